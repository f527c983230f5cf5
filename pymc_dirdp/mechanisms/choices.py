"""Mechanisms that choose something from the records and release no number: a tree over variables, and edges of bins.

Both choose by the exponential mechanism among public candidates. The variables of a table are joined one by one, by how
far the counts of a pair are from what noisy marginals predict; edges are chosen by how near they are to a quantile.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self, final, override

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import MAX_RECORDS, integer, one_of, positive, within
from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.mechanisms.marginals import NOISES
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.numerics.roots import largest_safe, log_excess, round_up
from pymc_dirdp.privacy.bounded_loss import BoundedRange
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import LossCurves, PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.sampling.bits import Bits, Seed, generator
from pymc_dirdp.sampling.discrete_noise import chosen, dyadic_above
from pymc_dirdp.signatures import user_facing

type Pair = tuple[int, int]

_LEAST_SCALE, _LARGEST_SCALE = 2.0**-20, 2.0**60


class ChoiceMechanism(PrivacyCurves):
    """A dataclass of public numbers and words that are all that is known of a choice, besides what was chosen."""

    scale: float
    adjacency: str
    contribution: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", adjacency_by_name(self.adjacency).name)
        object.__setattr__(self, "contribution", integer(1, contribution=self.contribution))
        scale = positive(scale=self.scale)
        within(_LEAST_SCALE, _LARGEST_SCALE, scale=scale)
        object.__setattr__(self, "scale", float(dyadic_above(scale)))


@user_facing
@final
@dataclass(frozen=True)
class TreeMechanism(ChoiceMechanism):
    """Choose which variables depend on each other: a tree, or a forest of fewer edges.

    First the marginal of each variable is measured, with integer noise. Then pairs of variables are joined one by one.
    A pair is a candidate if no path joins its variables yet. Its score is the l1 distance between its counts and
    those that the noisy marginals predict for independent variables, less what this distance would be on average if
    they were independent. Each choice is one of the exponential mechanism, among all candidates and "no more edges",
    whose score is what the noise of the choice would reach among so many candidates. No other number of the data is
    used.

    Parameters
    ----------
    lengths : sequence of int
        The number of categories of each variable, at least 1; two variables at least have more than one.
    scale : float
        A candidate is chosen with a probability in proportion to `exp(score / scale)`. It is rounded up to 41 binary
        digits, and the attribute is the number that is used.
    parameter : float
        The parameter of the noise on the marginals: sigma, or the scale.
    noise : {"gaussian", "geometric"}, default "gaussian"
        The discrete Gaussian distribution, or the discrete Laplace distribution.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one unit can change.
    contribution : int, default 1
        The largest number of records of one unit.

    Raises
    ------
    ArgumentError
        If a number is outside its domain, there are more than 200 variables, or two variables together have more than a
        million cells.

    Notes
    -----
    Neighbours with m records of a unit change each score by at most m (add-remove) or 2 m (replace-one), because the
    prediction is a function of what has been published. So the loss of a choice lies in an interval of width `2 m /
    scale` or `4 m / scale`, and of half of that for two variables: no record changes the score of "no more edges". All
    choices count, also those that an early end leaves out.

    References
    ----------
    Chow and Liu (1968), https://doi.org/10.1109/TIT.1968.1054142. McKenna, Miklau and Sheldon (2021), Winning the NIST
    contest, https://doi.org/10.29012/jpc.778, for a tree by the exponential mechanism. The page of proofs on
    structures.

    Examples
    --------
    >>> mechanism = TreeMechanism([2, 2, 2], scale=8.0, parameter=10.0)
    >>> mechanism.choice.pure_epsilon, mechanism.choices
    (0.5, 2)
    >>> equal, others = [[5000, 0], [0, 5000]], [[2500, 2500], [2500, 2500]]
    >>> mechanism.release([[5000, 5000]] * 3, {(0, 1): others, (0, 2): equal, (1, 2): others})[0]
    (0, 2)
    """

    lengths: tuple[int, ...]
    scale: float
    parameter: float
    noise: str = "gaussian"
    _: KW_ONLY
    adjacency: str = "replace-one"
    contribution: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(integer(1, length=length) for length in self.lengths))
        super().__post_init__()
        one_of(NOISES, noise=self.noise)
        # Every pair of variables is counted and is a candidate, and every choice is one more loss to compose.
        if len(self.lengths) > 200:
            raise ArgumentError(
                f"Expected at most 200 variables, got {len(self.lengths)}: every pair of them is a "
                "candidate. Choose among fewer, and give the others their parents yourself."
            )
        if len(self.variables) < 2:
            raise ArgumentError("Expected at least two variables with more than one category: else there is no choice.")
        if (cells := math.prod(sorted(self.lengths)[-2:])) > 10**6:
            raise ArgumentError(
                f"Two of the variables have {cells} cells together, and a table of at most 1000000 is fitted. "
                "Merge categories, or leave a variable out."
            )
        # What is used is what the mechanism of a marginal makes of it: a scale is rounded up.
        object.__setattr__(self, "parameter", self.marginals[0].parameter)

    @property
    def variables(self) -> tuple[int, ...]:
        """The variables with more than one category. The others depend on nothing, and nothing depends on them."""
        return tuple(i for i, length in enumerate(self.lengths) if length > 1)

    @property
    def choices(self) -> int:
        """The largest number of edges, each of which is chosen."""
        return len(self.variables) - 1

    @property
    def choice(self) -> BoundedRange:
        """The curves of one choice."""
        # A score may go up by its sensitivity while another goes down; the score of no more edges stays.
        width = min(2, self.choices) * round(adjacency_by_name(self.adjacency).delta_1) * self.contribution
        return BoundedRange(round_up(width / Fraction(self.scale)))

    @cached_property
    def marginals(self) -> tuple[NoisyCounts, ...]:
        """The mechanism of the marginal of each variable that has more than one category."""
        kind = DiscreteGaussianMechanism if self.noise == "gaussian" else GeometricMechanism
        facts = {"parameter": self.parameter, "adjacency": self.adjacency, "contribution": self.contribution}
        return tuple(kind.from_dict({"prior": np.ones(self.lengths[i]), **facts}) for i in self.variables)

    @cached_property
    @override
    def _curves(self) -> Composition:
        marginals = tuple((marginal, 1) for marginal in self.marginals)
        return Composition((*marginals, (self.choice, self.choices)))

    def release(
        self, marginals: Sequence[Integers], pairs: Mapping[Pair, Integers], *, random_seed: Seed = None
    ) -> tuple[Pair, ...]:
        """The edges of a forest over the variables.

        Parameters
        ----------
        marginals : sequence of arrays of int
            The counts of each of `variables`. Secret.
        pairs : mapping of (int, int) to array of int
            The counts of each pair of `variables`, the smaller first, as a table or as its cells. Secret.
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.

        Returns
        -------
        edges : tuple of (int, int)
            Pairs of variables, the smaller first, in rising order.
        """
        # A generator moves on, so nothing shares its randomness.
        rng = None if random_seed is None else generator(random_seed)
        noisy = [
            part.release(counts, sampler="exact", random_seed=rng)
            for part, counts in zip(self.marginals, marginals, strict=True)
        ]
        return self.joined(noisy, pairs, Bits(rng))

    def joined(self, noisy: Sequence[Array], pairs: Mapping[Pair, Integers], bits: Bits) -> tuple[Pair, ...]:
        """The choices that follow the noisy marginals."""
        shares, total = self._predicted(noisy)
        scores = {pair: self._score(pairs[pair], shares, total, pair) for pair in pairs}
        part_of = {i: i for i in self.variables}
        edges: list[Pair] = []
        for _ in range(self.choices):
            candidates = [(i, j) for i, j in scores if part_of[i] != part_of[j]]
            offered = [*(scores[pair] for pair in candidates), self.end(len(candidates))]
            place = chosen(offered, Fraction(self.scale), bits)
            if place == len(candidates):
                break
            i, j = candidates[place]
            edges.append((i, j))
            part_of = {k: part_of[i] if part == part_of[j] else part for k, part in part_of.items()}
        return tuple(sorted(edges))

    def end(self, candidates: int) -> int:
        """The score of no more edges: about what the best of so many candidates reaches by the noise of the choice."""
        return math.ceil(self.scale * math.log(candidates))

    def _predicted(self, noisy: Sequence[Array]) -> tuple[dict[int, Array], float]:
        """Shares of all variables, and a number of records, from the noisy marginals."""
        counts = {i: np.clip(z, 0.0, MAX_RECORDS) for i, z in zip(self.variables, noisy, strict=True)}
        total = float(np.clip(np.mean([np.sum(z) for z in noisy]), 0.0, MAX_RECORDS))
        return {i: (z + 1e-9) / np.sum(z + 1e-9) for i, z in counts.items()}, total

    def _score(self, cells: Integers, shares: Mapping[int, Array], total: float, pair: Pair) -> int:
        """The l1 distance of a pair's counts from what is predicted, less its mean for independent variables."""
        first, second = (shares[k] for k in pair)
        expected = total * np.outer(first, second).ravel()
        whole = np.round(expected)
        # Everything but this sum follows from the noisy marginals, which are published.
        distance = int(np.abs(np.asarray(cells).ravel().astype(np.int64) - whole.astype(np.int64)).sum())
        spread = np.outer(1 - first, 1 - second).ravel() * expected
        noise = self.marginals[0].noise_sd ** 2 * np.add.outer(first**2, second**2).ravel()
        variance = np.where(whole > 0, spread + noise, np.minimum(expected**2, spread + noise))
        # A cell that is predicted to be empty is off by its own count.
        # The mean size of a normal number is its standard deviation times this.
        mean_size = math.sqrt(2 / math.pi)
        mean = np.where(whole > 0, mean_size * np.sqrt(variance), expected).sum()
        among = math.sqrt(2 * math.log(len(self.variables) ** 2 / 2) * (1 - mean_size**2) * variance.sum())
        return distance - math.floor(min(float(mean) + among, float(MAX_RECORDS)))


@user_facing
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
        # A choice proposes candidates one after the other, and every edge is one more loss to compose.
        if self.n_bins > 1000 or self.n_candidates > 10**5:
            raise ArgumentError(
                f"Expected at most 1000 bins and 100000 candidates, got n_bins={self.n_bins} and "
                f"{self.n_candidates} candidates. Take a coarser grid."
            )
        super().__post_init__()

    @classmethod
    def for_guarantee(cls, guarantee: Guarantee, *, n_bins: int, n_candidates: int, **people: Any) -> Self:
        """The mechanism with the least scale that satisfies a guarantee; `people` are `adjacency` and `contribution`.

        Raises
        ------
        UnattainableError
            If no scale satisfies it.

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
        tight = "The guarantee is so tight that no scale satisfies it; relax it."
        # The noise is the least that satisfies the guarantee, up to this share of it.
        found = mechanism(largest_safe(excess, least=least, most=most, rtol=1e-4, tight=tight))
        if not found.satisfies(guarantee):
            raise UnattainableError(tight)
        return found

    def _widths(self, below: int, above: int) -> tuple[Fraction, ...]:
        """How wide the intervals of losses of all edges are, times the scale; the proof says what is counted."""
        bins, m = self.n_bins, self.contribution
        if adjacency_by_name(self.adjacency).records_are_public:
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
        m, alone = self.contribution, adjacency_by_name(self.adjacency).records_are_public
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
    def _curves(self) -> LossCurves:
        # Records of a unit are split between two sides; of more ways to do so none is composed by itself.
        if len(self._splits) > 16:
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
