"""Mechanisms that release a choice and no number: a tree over variables, and edges of bins.

Both choose with the exponential mechanism among public candidates. The tree joins variables one by one; the score of a
pair is the distance of its counts from the prediction of noisy marginals. The score of a bin edge is its distance from
a quantile.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self, final, override

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import integer, one_of, positive, within
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.literals import AdjacencyName, CountNoise
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.mechanisms.marginals import NOISES
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.numerics.roots import largest_satisfying, log_ratio_to_budget, round_up
from pymc_dirdp.privacy.bounded_loss import BoundedRange
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import LossCurves, PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.sampling.bits import Bits, Seed, generator
from pymc_dirdp.sampling.discrete_noise import dyadic_above
from pymc_dirdp.sampling.drawing import EdgesDrawing, Once, Pair, SecretCounts, TreeDrawing
from pymc_dirdp.signatures import user_facing

_LEAST_SCALE, _LARGEST_SCALE = 2.0**-20, 2.0**60


class ChoiceMechanism(PrivacyCurves):
    """The public parameters of a choice. A release holds these and the result of the choice, and nothing else."""

    scale: float
    adjacency: AdjacencyName
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

    First, the marginal of each variable is measured with integer noise. Then, pairs of variables are joined one by one.
    A pair is a candidate if no path joins its variables yet. Its score is the l1 distance between its counts and the
    counts that the noisy marginals predict for independent variables, minus the expected distance under independence.
    The exponential mechanism chooses among all candidates and "no more edges", whose score is about the maximum that
    the noise of the choice reaches among this number of candidates. No other number is computed from the data.

    Parameters
    ----------
    lengths : sequence of int
        The number of categories of each variable, at least 1. At least two variables have more than one category.
    scale : float
        A candidate is chosen with a probability proportional to `exp(score / scale)`. The scale is rounded up to 41
        binary digits, and the attribute is the rounded number.
    parameter : float
        The parameter of the noise on the marginals: sigma, or the scale.
    noise : {"gaussian", "geometric"}, default "gaussian"
        The discrete Gaussian distribution, or the discrete Laplace distribution.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        The change of one unit between neighbouring data sets.
    contribution : int, default 1
        The maximum number of records of one unit.

    Raises
    ------
    ArgumentError
        If a number is outside its domain, there are more than 200 variables, or two variables together have more than a
        million cells.

    Notes
    -----
    The prediction is a function of the published marginals. So between neighbours that differ in m records of a unit,
    each score changes by at most m (add-remove) or 2 m (replace-one). The loss of a choice lies in an interval of width
    `2 m / scale` or `4 m / scale`. For two variables the width is half of that, because no record changes the score of
    "no more edges". All choices are composed, including those that an early stop leaves out.

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
    noise: CountNoise = "gaussian"
    _: KW_ONLY
    adjacency: AdjacencyName = "replace-one"
    contribution: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(integer(1, length=length) for length in self.lengths))
        super().__post_init__()
        one_of(NOISES, noise=self.noise)
        # Every pair of variables is counted and is a candidate, and every choice composes.
        if len(self.lengths) > 200:
            raise ArgumentError(
                f"Expected at most 200 variables, got {len(self.lengths)}: every pair of them is a "
                "candidate. Choose among fewer variables, and declare the parents of the others yourself."
            )
        if len(self.variables) < 2:
            raise ArgumentError(
                "Expected at least two variables with more than one category: otherwise there is no choice to make."
            )
        if (cells := math.prod(sorted(self.lengths)[-2:])) > 10**6:
            raise ArgumentError(
                f"Two of the variables have {cells} cells together, and a table of at most 1000000 is fitted. "
                "Merge categories, or leave a variable out."
            )
        # The mechanism of a marginal rounds a scale up, and the rounded number is the one in use.
        object.__setattr__(self, "parameter", self.marginals[0].parameter)

    @property
    def variables(self) -> tuple[int, ...]:
        """The variables with more than one category. The others depend on nothing, and nothing depends on them."""
        return tuple(i for i, length in enumerate(self.lengths) if length > 1)

    @property
    def choices(self) -> int:
        """The maximum number of edges. Each edge is one choice."""
        return len(self.variables) - 1

    @property
    def choice(self) -> BoundedRange:
        """The curves of one choice."""
        # One score may rise by its sensitivity while another falls; the score of "no more edges" is constant.
        width = min(2, self.choices) * round(adjacency_by_name(self.adjacency).delta_1) * self.contribution
        return BoundedRange(round_up(width / Fraction(self.scale)))

    @cached_property
    def marginals(self) -> tuple[NoisyCounts, ...]:
        """The mechanism for the marginal of each variable with more than one category."""
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
            The counts of each variable in `variables`. Secret.
        pairs : mapping of (int, int) to array of int
            The counts of each pair of `variables`, the smaller first, as a table or flattened. Secret.
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.

        Returns
        -------
        edges : tuple of (int, int)
            Pairs of variables, the smaller first, in rising order.
        """
        tables = [*marginals, *(pairs[pair] for pair in self.pairs)]
        return self.prepare(random_seed).of([SecretCounts(counts) for counts in tables])

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All pairs of variables with more than one category."""
        return tuple(itertools.combinations(self.variables, 2))

    def prepare(self, random_seed: Seed = None) -> TreeDrawing:
        """The choice with its noise and its source of randomness, before the records are opened."""
        # The state of the generator advances, so no two draws share randomness.
        rng = None if random_seed is None else generator(random_seed)
        noise = {
            i: marginal.prepare(1, sampler="exact", random_seed=rng)
            for i, marginal in zip(self.variables, self.marginals, strict=True)
        }
        return TreeDrawing(noise, self.pairs, self.marginals[0].noise_sd, Fraction(self.scale), Once(Bits(rng)))


@user_facing
@final
@dataclass(frozen=True)
class QuantilesMechanism(ChoiceMechanism):
    """Choose `n_bins - 1` edges among public candidates, so that about equally many records lie between them.

    Edge number j targets a share `j / n_bins` of the records below it. The score of a candidate is minus the number of
    records by which it misses the target. Each edge is one choice of the exponential mechanism. Equal edges are merged,
    so there may be fewer bins. No other number is computed from the data.

    Parameters
    ----------
    n_bins : int
        Maximum number of bins, 2 to 1000.
    n_candidates : int
        Number of candidates for an edge, 1 to 100,000.
    scale : float
        A candidate is chosen with a probability proportional to `exp(score / scale)`. The scale is rounded up to 41
        binary digits, and the attribute is the rounded number.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        The change of one unit between neighbouring data sets.
    contribution : int, default 1
        The maximum number of records of one unit.

    Notes
    -----
    If one record is replaced, each score changes by at most 1, so the loss of a choice lies in an interval of width
    `2 m / scale` for m records of a unit. If one record is added or removed, the score of an edge with share q changes
    by at most `max(q, 1 - q)`. One record is the worst case either for edges below the median or for edges above it:
    the widths are `max(2 (1 - q), 1) / scale`, or these in reverse. If k of m records are the worst case for the edges
    below, the widths are `max(m + k - 2 m q, m) / scale` below the median and `max(2 m q - k, m) / scale` above. The
    curve is the maximum over k.

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
    adjacency: AdjacencyName = "replace-one"
    contribution: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_bins", integer(2, n_bins=self.n_bins))
        object.__setattr__(self, "n_candidates", integer(1, n_candidates=self.n_candidates))
        # A choice proposes candidates one after the other, and every edge composes.
        if self.n_bins > 1000 or self.n_candidates > 10**5:
            raise ArgumentError(
                f"Expected at most 1000 bins and 100000 candidates, got n_bins={self.n_bins} and "
                f"{self.n_candidates} candidates. Pass fewer bins or a coarser grid of candidates."
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

        mechanism(1.0)  # Invalid arguments raise here, before the search for a scale.
        Guarantee.checked(guarantee=guarantee)

        def excess(inverse: float) -> float:
            return log_ratio_to_budget(*mechanism(inverse).loss(guarantee))

        least, most = 2 / _LARGEST_SCALE, 1 / (2 * _LEAST_SCALE)
        tight = "No scale satisfies this guarantee. Ask for a larger epsilon, rho or delta."
        # The noise is the least that satisfies the guarantee, up to this share of it.
        calibrated = mechanism(largest_satisfying(excess, least=least, most=most, rtol=1e-4, tight=tight))
        if not calibrated.satisfies(guarantee):
            raise UnattainableError(tight)
        return calibrated

    def _widths(self, below: int, above: int) -> tuple[Fraction, ...]:
        """The widths of the loss intervals of all edges, times the scale; see the proof."""
        bins, m = self.n_bins, self.contribution
        if adjacency_by_name(self.adjacency).records_are_public:
            return (Fraction(2 * m),) * (bins - 1)
        return tuple(
            max(m + (below if 2 * edge < bins else above) - Fraction(2 * m * min(edge, bins - edge), bins), Fraction(m))
            for edge in range(1, bins)
        )

    def _composed(self, below: int, above: int) -> Composition:
        """The curves of all edges, if these numbers of records of a unit are the worst case on each side."""
        widths = Counter(round_up(width / Fraction(self.scale)) for width in self._widths(below, above))
        return Composition(tuple((BoundedRange(u), times) for u, times in sorted(widths.items())))

    @property
    def _splits(self) -> tuple[int, ...]:
        """Numbers of records of a unit that may be the worst case below the median, while the others are it above."""
        m, alone = self.contribution, adjacency_by_name(self.adjacency).records_are_public
        # Fewer than half is the mirror image. If no edge above has a width over m, all records below is the worst.
        mixed = [] if alone else [k for k in range(-(-m // 2), m) if (m - k) * self.n_bins > 2 * m]
        return (*mixed, m)

    @property
    @override
    def composed_of(self) -> tuple[tuple[PrivacyCurves, int], ...]:
        return (self._curves if isinstance(self._curves, Composition) else self._at_most).parts

    @property
    def _at_most(self) -> Composition:
        """An upper bound: all records are the worst case for every edge."""
        return self._composed(self.contribution, self.contribution)

    @cached_property
    @override
    def _curves(self) -> LossCurves:
        # Records of a unit are split between two sides. With many splits, use the bound instead of each split.
        if len(self._splits) > 16:
            return self._at_most
        (*mixed, worst) = [self._composed(k, self.contribution - k) for k in self._splits]
        return Parallel((*mixed, worst)) if mixed else worst

    def release(self, counts: Integers, *, random_seed: Seed = None) -> tuple[int, ...]:
        """The positions of the edges among the candidates, in rising order and without repetitions.

        Parameters
        ----------
        counts : array of int, shape (n_candidates + 1,)
            The number of records below the first candidate, from each candidate to below the next, and from the last
            candidate on. **Secret.**
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.

        Returns
        -------
        edges : tuple of int
        """
        return self.prepare(random_seed).of([SecretCounts(counts)])

    def prepare(self, random_seed: Seed = None) -> EdgesDrawing:
        """The choice with its source of randomness, before the records are opened."""
        bits = Bits(None if random_seed is None else generator(random_seed))
        return EdgesDrawing(self.n_bins, self.n_candidates, Fraction(self.scale), Once(bits))
