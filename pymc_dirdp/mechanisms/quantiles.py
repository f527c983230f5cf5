"""Edges of bins at about the quantiles of a column, chosen by the exponential mechanism among public candidates."""

from collections import Counter
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self, final, override

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import integer, positive, within
from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.mechanisms.base import ChoiceMechanism
from pymc_dirdp.numerics.roots import largest_safe, log_excess, round_up
from pymc_dirdp.privacy.bounded_loss import BoundedRange
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_named
from pymc_dirdp.sampling.bits import Bits, Seed, generator
from pymc_dirdp.sampling.discrete_noise import dyadic_above
from pymc_dirdp.sampling.exponential_mechanism import chosen

__all__ = ["QuantilesMechanism"]

# A choice proposes candidates one after the other, and every edge is one more loss to compose.
_MOST_BINS, _MOST_CANDIDATES = 1000, 10**5
_LEAST_SCALE, _LARGEST_SCALE = 2.0**-20, 2.0**60
# Records of a unit are split between two sides; of more ways to do so none is composed by itself.
_MOST_SPLITS = 16
# The noise is the least that keeps the guarantee, up to this share of it.
_TIGHT = 1e-4


@final
@dataclass(frozen=True)
class QuantilesMechanism(ChoiceMechanism):
    """Choose `n_bins - 1` edges among public candidates, so that about equally many records lie between them.

    The edge number j is meant to have a share `j / n_bins` of the records below it. The score of a candidate is minus
    the number of records by which it misses that, and each edge is one choice of the exponential mechanism. Edges that
    are equal are one, so there may be fewer bins. Nothing else of the data is used.

    Parameters
    ----------
    n_bins : int
        How many bins there are at most, 2 to 1000.
    n_candidates : int
        How many candidates there are for an edge, 1 to 100,000.
    scale : float
        A candidate is chosen with a probability in proportion to `exp(score / scale)`. It is rounded up to 41 binary
        digits, and the attribute is the number that is used.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one unit can change.
    contribution : int, default 1
        The largest number of records of one unit.

    Notes
    -----
    One record that is replaced changes each score by at most 1, so the loss of a choice lies in an interval of width
    `2 m / scale` for m records of a unit. One that is added or removed changes it by at most `max(q, 1 - q)` for the
    share q, and is the worst either for edges below the median or for those above: the widths are `max(2 (1 - q), 1) /
    scale`, or these in reverse. If k of m records are the worst for the edges below, the widths are `max(m + k - 2 m q,
    m) / scale` below the median and `max(2 m q - k, m) / scale` above, and the largest curve over k is taken.

    References
    ----------
    Smith (2011), Privacy-preserving statistical estimation with optimal convergence rates,
    https://doi.org/10.1145/1993636.1993743, for a quantile by the exponential mechanism. The page of proofs on bins.

    Examples
    --------
    >>> mechanism = QuantilesMechanism(2, n_candidates=3, scale=4.0)
    >>> mechanism.pure_epsilon
    0.5
    >>> mechanism.release([0, 5000, 5000, 0])
    (1,)
    """

    n_bins: int
    _: KW_ONLY
    n_candidates: int
    scale: float
    adjacency: str = "replace-one"
    contribution: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_bins", integer(2, n_bins=self.n_bins))
        object.__setattr__(self, "n_candidates", integer(1, n_candidates=self.n_candidates))
        if self.n_bins > _MOST_BINS or self.n_candidates > _MOST_CANDIDATES:
            raise ArgumentError(
                f"Expected at most {_MOST_BINS} bins and {_MOST_CANDIDATES} candidates, got n_bins={self.n_bins} and "
                f"{self.n_candidates} candidates. Take a coarser grid."
            )
        object.__setattr__(self, "adjacency", adjacency_named(self.adjacency).name)
        object.__setattr__(self, "contribution", integer(1, contribution=self.contribution))
        scale = positive(scale=self.scale)
        within(_LEAST_SCALE, _LARGEST_SCALE, scale=scale)
        object.__setattr__(self, "scale", float(dyadic_above(scale)))

    @classmethod
    def for_guarantee(cls, guarantee: Guarantee, *, n_bins: int, n_candidates: int, **people: Any) -> Self:
        """The mechanism with the least scale that keeps a guarantee; `people` are `adjacency` and `contribution`.

        Raises
        ------
        UnattainableError
            If no scale keeps it.

        Examples
        --------
        >>> from pymc_dirdp import PureDP
        >>> round(QuantilesMechanism.for_guarantee(PureDP(epsilon=1), n_bins=5, n_candidates=100).scale, 2)
        8.0
        """

        def mechanism(inverse: float) -> Self:
            return cls(n_bins, n_candidates=n_candidates, scale=1 / inverse, **people)

        mechanism(1.0)  # What is wrong with the arguments is no matter of the scale.
        Guarantee.checked(guarantee=guarantee)

        def excess(inverse: float) -> float:
            return log_excess(*mechanism(inverse).loss(guarantee))

        least, most = 2 / _LARGEST_SCALE, 1 / (2 * _LEAST_SCALE)
        tight = "The guarantee is so tight that no scale keeps it; relax it."
        found = mechanism(largest_safe(excess, least=least, most=most, rtol=_TIGHT, tight=tight))
        if not found.satisfies(guarantee):
            raise UnattainableError(tight)
        return found

    def _widths(self, below: int, above: int) -> tuple[Fraction, ...]:
        """How wide the intervals of losses of all edges are, times the scale; the proof says what is counted."""
        bins, m = self.n_bins, self.contribution
        if adjacency_named(self.adjacency).records_are_public:
            return (Fraction(2 * m),) * (bins - 1)
        return tuple(
            max(m + (below if 2 * edge < bins else above) - Fraction(2 * m * min(edge, bins - edge), bins), Fraction(m))
            for edge in range(1, bins)
        )

    def _composed(self, below: int, above: int) -> Composition:
        """The curves of all edges, if so many records of a unit may be the worst for edges on each side."""
        widths = Counter(round_up(width / Fraction(self.scale)) for width in self._widths(below, above))
        return Composition(tuple((BoundedRange(u), times) for u, times in sorted(widths.items())))

    @property
    def _splits(self) -> tuple[int, ...]:
        """How many records of a unit may be the worst for edges below the median, as the rest is for those above."""
        m, alone = self.contribution, adjacency_named(self.adjacency).records_are_public
        # Fewer than half are the mirror image. Where no edge above has more than m, it is worst to have all below.
        mixed = [] if alone else [k for k in range(-(-m // 2), m) if (m - k) * self.n_bins > 2 * m]
        return (*mixed, m)

    @property
    @override
    def composed_of(self) -> tuple[tuple[PrivacyCurves, int], ...]:
        return (self._curves if isinstance(self._curves, Composition) else self._at_most).parts

    @property
    def _at_most(self) -> Composition:
        """All records count as the worst for every edge."""
        return self._composed(self.contribution, self.contribution)

    @cached_property
    @override
    def _curves(self) -> PrivacyCurves:
        if len(self._splits) > _MOST_SPLITS:
            return self._at_most
        (*mixed, worst) = [self._composed(k, self.contribution - k) for k in self._splits]
        return Parallel((*mixed, worst)) if mixed else worst

    def release(self, between: Integers, *, random_seed: Seed = None) -> tuple[int, ...]:
        """The positions of the edges among the candidates, in rising order, each once.

        Parameters
        ----------
        between : array of int, shape (n_candidates + 1,)
            How many records lie below the first candidate, from each candidate to below the next, and from the last
            one on. **Secret.**
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.

        Returns
        -------
        edges : tuple of int
        """
        bits = Bits(None if random_seed is None else generator(random_seed))
        # Scores are integers, so that nothing is rounded.
        scale = Fraction(self.scale) * self.n_bins
        return tuple(sorted({chosen(scores, scale, bits) for scores in self.scores(between)}))

    def scores(self, between: Integers) -> list[list[int]]:
        """For each edge the scores of all candidates, times `n_bins`. **Secret.**"""
        counts = np.asarray(between)
        if counts.shape != (self.n_candidates + 1,) or counts.dtype.kind not in "iu":
            raise DataError("Expected integers of records, one more of them than there are candidates.")
        running = np.cumsum(counts).tolist()
        below, total = running[:-1], running[-1]
        return [[-abs(self.n_bins * c - edge * total) for c in below] for edge in range(1, self.n_bins)]
