"""Noisy counts of all columns and all pairs of columns of a wide table, in one round without a private choice."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Self, final, override

from pymc_dirdp.checks import integer, one_of, positive, within
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.literals import AdjacencyName, CountNoise
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussian
from pymc_dirdp.mechanisms.geometric import Geometric
from pymc_dirdp.mechanisms.marginals import NOISES
from pymc_dirdp.numerics.roots import log_ratio_to_budget
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import LossCurves, PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.drawing import Once, PairsDrawing
from pymc_dirdp.signatures import user_facing

# A fit uses matrices of all categories by all categories.
_MAX_COLUMNS, _MAX_CATEGORIES = 300, 6_500
# Noisy counts are 64-bit integers.
_MAX_NOISE = 2.0**40


@user_facing
@final
@dataclass(frozen=True)
class PairsMechanism(PrivacyCurves):
    """Measure each column and each pair of columns, all with the same noise in each cell.

    Parameters
    ----------
    lengths : sequence of int
        The number of categories of each column, at least 1. At least two columns have more than one. At most 300
        columns, and 6,500 categories in all columns together.
    parameter : float
        The noise parameter: sigma, or the scale.
    noise : {"gaussian", "geometric"}, default "gaussian"
        The discrete Gaussian distribution, or the discrete Laplace distribution.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one unit can change.
    contribution : int, default 1
        The maximum number of records of one unit.

    Raises
    ------
    ArgumentError
        If a number is outside its domain.

    Notes
    -----
    Each record is counted in exactly one cell of each table. So the loss is that of one block of cells per table and
    does not depend on the lengths. Compare :class:`~pymc_dirdp.mechanisms.marginals.MarginalsMechanism`, whose table
    would have a cell for each combination of all columns.

    References
    ----------
    McKenna, Mullins, Sheldon and Miklau (2022), AIM, https://doi.org/10.14778/3551793.3551817, which chooses tables
    privately; this mechanism makes no choice. The page of proofs on pairs.

    Examples
    --------
    >>> mechanism = PairsMechanism([2, 3, 2], parameter=10.0, adjacency="add-remove")
    >>> mechanism.tables
    ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
    >>> round(mechanism.rho(8), 6)
    0.03
    """

    lengths: tuple[int, ...]
    parameter: float
    noise: CountNoise = "gaussian"
    _: KW_ONLY
    adjacency: AdjacencyName = "replace-one"
    contribution: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(integer(1, length=length) for length in self.lengths))
        object.__setattr__(self, "adjacency", adjacency_by_name(self.adjacency).name)
        object.__setattr__(self, "contribution", integer(1, contribution=self.contribution))
        one_of(NOISES, noise=self.noise)
        within(2.0**-20, _MAX_NOISE, parameter=positive(parameter=self.parameter))
        # The noise rounds a scale up, and the attribute is the rounded number.
        drawn = self.drawn_noise
        object.__setattr__(self, "parameter", drawn.sigma if isinstance(drawn, DiscreteGaussian) else drawn.scale)
        if len(self.columns) < 2:
            raise ArgumentError(
                f"Expected at least two columns with more than one category, got {len(self.columns)}: otherwise there "
                "is no pair."
            )
        if len(self.columns) > _MAX_COLUMNS:
            raise ArgumentError(
                f"Expected at most {_MAX_COLUMNS} columns, got {len(self.columns)}: every pair of them is measured. "
                "Release groups of columns that belong together as tables of their own."
            )
        if (categories := sum(self.lengths)) > _MAX_CATEGORIES:
            raise ArgumentError(
                f"Expected at most {_MAX_CATEGORIES} categories in all columns together, got {categories}: each pair "
                "of them is a cell. Merge categories, or leave columns out."
            )

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        lengths: Sequence[int],
        *,
        adjacency: AdjacencyName = "replace-one",
        contribution: int = 1,
        before: Sequence[tuple[PrivacyCurves, int]] = (),
    ) -> Self:
        """The mechanism with the least noise that satisfies a guarantee of any kind: geometric noise for a pure one.

        Parameters
        ----------
        guarantee : Guarantee
            The target for the composition with `before`.
        lengths, adjacency, contribution
            As for the mechanism.
        before : sequence of (PrivacyCurves, int), optional
            Curves of earlier releases, and their numbers.

        Raises
        ------
        UnattainableError
            If no noise satisfies it.

        Examples
        --------
        >>> from pymc_dirdp import PureDP
        >>> round(PairsMechanism.for_guarantee(PureDP(epsilon=1.0), [2, 3, 2]).parameter, 3)
        12.0
        """
        guarantee = Guarantee.checked(guarantee=guarantee)
        noise: CountNoise = "geometric" if guarantee.is_pure else "gaussian"
        any_noise = cls(tuple(lengths), 1.0, noise, adjacency=adjacency, contribution=contribution)

        def excess(parameter: float) -> float:
            curves = any_noise.curves_of(type(any_noise.drawn_noise)(parameter))
            return log_ratio_to_budget(*Composition((*before, (curves, 1))).loss(guarantee))

        try:
            return replace(any_noise, parameter=type(any_noise.drawn_noise).least(excess))
        except ArgumentError:
            raise UnattainableError(
                f"No noise up to {_MAX_NOISE:.0g} satisfies {guarantee}. Ask for a larger epsilon, rho or delta."
            ) from None

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The columns with more than one category. The others are constant, so they are not measured."""
        return tuple(i for i, length in enumerate(self.lengths) if length > 1)

    @cached_property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The columns of each table: single ones, and then pairs, the smaller first, in rising order."""
        return (*((i,) for i in self.columns), *itertools.combinations(self.columns, 2))

    def shape(self, table: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a table with these columns."""
        return tuple(self.lengths[i] for i in table)

    @cached_property
    def drawn_noise(self) -> DiscreteGaussian | Geometric:
        """The noise that is added to the counts, independent in each cell."""
        return (DiscreteGaussian if self.noise == "gaussian" else Geometric)(self.parameter)

    def curves_of(self, noise: DiscreteGaussian | Geometric) -> LossCurves:
        """The curves of all tables with this noise."""
        changes = round(adjacency_by_name(self.adjacency).delta_1)
        return noise.curves(len(self.tables), self.contribution, changes)

    @property
    @override
    def _curves(self) -> LossCurves:
        return self._all_curves

    @cached_property
    def _all_curves(self) -> LossCurves:
        return self.curves_of(self.drawn_noise)

    def prepare(self, bits: Bits) -> PairsDrawing:
        """Exact noise for all tables, before the records are opened."""
        return PairsDrawing(tuple(Once(self.drawn_noise.exact(self.shape(table), bits)) for table in self.tables))

    @property
    def summary(self) -> str:
        """The public parameters in a few words."""
        kind = "discrete Gaussian" if self.noise == "gaussian" else "geometric"
        pairs = math.comb(len(self.columns), 2)
        return (
            f"{len(self.columns)} columns and {pairs} pair{'s' * (pairs > 1)} with {kind} noise of standard deviation "
            f"{self.drawn_noise.sd:.4g}"
        )
