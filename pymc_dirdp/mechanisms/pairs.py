"""Noisy counts of all columns and of all pairs of them, in two rounds of looks.

A budget is counted in looks, and each look at a table costs the same, whatever the table. So the second round may be
divided by what the first has shown.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Self, final, override

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, one_of, positive, within
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.geometric import Geometric
from pymc_dirdp.mechanisms.marginals import NOISES
from pymc_dirdp.numerics.roots import largest_safe, log_excess, round_up
from pymc_dirdp.privacy.bounded_loss import RandomisedResponse
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import LossCurves, PrivacyCurves, worst_curves
from pymc_dirdp.privacy.gaussian_loss import DividedGaussianLoss
from pymc_dirdp.privacy.guarantees import Guarantee, ZeroCDP
from pymc_dirdp.privacy.people import adjacency_named
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_gaussian
from pymc_dirdp.signatures import user_facing

_MOST_COLUMNS, _MOST_CELLS = 300, 20_000_000
# Noisy counts are 64-bit integers.
_MOST_NOISE = 2.0**60
# The looks at each pair in the first round: so finely is the second one divided.
_LOOKS = 60
# Of the looks of the first round a quarter are at single columns.
_OF_COLUMNS = 0.25


@user_facing
@final
@dataclass(frozen=True)
class PairsMechanism(PrivacyCurves):
    """Measure each column and each pair of columns, and then again the pairs where it pays.

    The first round has as many looks at each pair, and public ones at each column. From its noisy counts follows, by a
    formula, how the second round divides as many looks again among the pairs: a pair that depends strongly gets more.

    Parameters
    ----------
    lengths : sequence of int
        The number of categories of each column, at least 1; two columns at least have more than one. At most 300
        columns, and 20 million cells in all pairs.
    parameter : float
        Of the noise of one look: the variance of discrete Gaussian noise, or the scale of geometric noise. It is
        rounded up to 21 binary digits, and the attribute is the number that is used.
    noise : {"gaussian", "geometric"}, default "gaussian"
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one unit can change.
    contribution : int, default 1
        The largest number of records of one unit.

    Raises
    ------
    ArgumentError
        If a number is outside its domain.

    Notes
    -----
    With n looks at a table n times its counts are published with discrete Gaussian noise of n times the variance, or
    its counts with geometric noise of one nth of the scale. A record adds 1 to one cell of each table, so all looks
    together have the curves of :class:`~pymc_dirdp.privacy.gaussian_loss.DividedGaussianLoss`, or a pure loss that adds
    up, for each division.

    References
    ----------
    McKenna, Mullins, Sheldon and Miklau (2022), AIM, https://doi.org/10.14778/3551793.3551817, which chooses tables
    privately; here none is chosen. The page of proofs on pairs.

    Examples
    --------
    >>> mechanism = PairsMechanism([2, 3, 2], parameter=10.0, adjacency="add-remove")
    >>> mechanism.first_looks, mechanism.looks
    ((20, 20, 20, 60, 60, 60), 480)
    >>> mechanism.rho(8)
    24.0
    """

    lengths: tuple[int, ...]
    parameter: float
    noise: str = "gaussian"
    _: KW_ONLY
    adjacency: str = "replace-one"
    contribution: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(integer(1, length=length) for length in self.lengths))
        object.__setattr__(self, "adjacency", adjacency_named(self.adjacency).name)
        object.__setattr__(self, "contribution", integer(1, contribution=self.contribution))
        one_of(NOISES, noise=self.noise)
        within(2.0**-20, _MOST_NOISE, parameter=positive(parameter=self.parameter))
        # Few digits, so that so many times a variance is drawn quickly and exactly.
        mantissa, exponent = math.frexp(self.parameter)
        object.__setattr__(self, "parameter", math.ldexp(math.ceil(mantissa * 2**21), exponent - 21))
        if len(self.columns) < 2:
            raise ArgumentError("Expected at least two columns with more than one category: else there is no pair.")
        if len(self.columns) > _MOST_COLUMNS:
            raise ArgumentError(
                f"Expected at most {_MOST_COLUMNS} columns, got {len(self.columns)}: every pair of them is measured. "
                "Release groups of columns that belong together as tables of their own."
            )
        cells = (sum(self.lengths) ** 2 - sum(length**2 for length in self.lengths)) // 2
        if cells > _MOST_CELLS:
            raise ArgumentError(
                f"All pairs have {cells} cells together, and at most {_MOST_CELLS} are measured. Merge categories, or "
                "leave columns out."
            )

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        lengths: Sequence[int],
        *,
        adjacency: str = "replace-one",
        contribution: int = 1,
        before: Sequence[tuple[PrivacyCurves, int]] = (),
    ) -> Self:
        """The mechanism with the least noise that keeps a guarantee of any kind.

        Parameters
        ----------
        guarantee : Guarantee
            Of what was chosen `before`, too.
        lengths, adjacency, contribution
            As for the mechanism.
        before : sequence of (PrivacyCurves, int), optional
            Curves of what was released before, and how often.

        Raises
        ------
        UnattainableError
            If no noise keeps it.

        Examples
        --------
        >>> from pymc_dirdp import PureDP
        >>> round(PairsMechanism.for_guarantee(PureDP(epsilon=1.0), [2, 3, 2]).parameter, 3)
        960.0
        """
        guarantee = Guarantee.checked(guarantee=guarantee)
        noise = "geometric" if guarantee.is_pure else "gaussian"
        any_noise = cls(tuple(lengths), 1.0, noise, adjacency=adjacency, contribution=contribution)

        def excess(parameter: float) -> float:
            return log_excess(*Composition((*before, (any_noise.with_parameter(parameter), 1))).loss(guarantee))

        tight = f"{guarantee} is so tight that the noise would hide everything; relax it."
        try:
            return any_noise.with_parameter(1 / largest_safe(lambda inverse: excess(1 / inverse)))
        except ArgumentError:
            raise UnattainableError(tight) from None

    def with_parameter(self, parameter: float) -> Self:
        """The same mechanism with other noise."""
        return replace(self, parameter=parameter)

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The columns with more than one category. The others are known without being measured."""
        return tuple(i for i, length in enumerate(self.lengths) if length > 1)

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """All pairs of these columns, the smaller first, in rising order."""
        return tuple(itertools.combinations(self.columns, 2))

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The columns of each table of the first round: single ones, and then pairs. The second has pairs alone."""
        return (*((i,) for i in self.columns), *self.pairs)

    def shape(self, table: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a table with these columns."""
        return tuple(self.lengths[i] for i in table)

    @cached_property
    def first_looks(self) -> tuple[int, ...]:
        """The looks of the first round at each of `tables`."""
        of_pairs = _LOOKS * len(self.pairs)
        of_column = max(1, round(_OF_COLUMNS / (1 - _OF_COLUMNS) * of_pairs / len(self.columns)))
        return (*[of_column] * len(self.columns), *[_LOOKS] * len(self.pairs))

    @property
    def looks(self) -> int:
        """The number of looks of both rounds."""
        return 2 * sum(self.first_looks)

    @property
    @override
    def _curves(self) -> LossCurves:
        return self._all_curves

    @cached_property
    def _all_curves(self) -> LossCurves:
        changes, parameter = self.looks * round(adjacency_named(self.adjacency).delta_1), Fraction(self.parameter)
        if self.noise == "geometric":
            # Pure losses add up, whoever divides them by what was seen before.
            return RandomisedResponse(round_up(changes * self.contribution / parameter))
        if self.contribution == 1:
            return DividedGaussianLoss(parameter, changes)
        # Which of several ways to lose is the worst may differ from table to table, so Rényi divergences are added.
        return worst_curves(ZeroCDP(rho=round_up(changes * self.contribution**2 / (2 * parameter))))

    def variance(self, looks: int) -> float:
        """The variance of the noise in counts that are :meth:`estimated` from so many looks."""
        if self.noise == "geometric":
            return float(Geometric(self.parameter / looks).sd ** 2)
        return self.parameter / looks

    def estimated(self, published: Integers, looks: int) -> Array:
        """The noisy counts that so many looks make together."""
        return np.asarray(published / (1 if self.noise == "geometric" else looks))

    def measured(self, counts: Integers, looks: int, bits: Bits) -> Integers:
        """What so many looks at a table publish, exactly. The counts are **secret**."""
        if self.noise == "geometric":
            times, noise = 1, Geometric(self.parameter / looks).exact(counts.shape, bits)
        else:
            times, noise = looks, discrete_gaussian(looks * Fraction(self.parameter), counts.shape, bits)
        # In Python's integers, so that nothing wraps.
        return np.array(times * counts.astype(object) + noise, dtype=np.int64)

    def second_looks(self, first: Sequence[Integers]) -> tuple[int, ...]:
        """The looks of the second round at each of `pairs`, by what the first has published.

        Parameters
        ----------
        first : sequence of array of int
            Of each of `tables`.

        Returns
        -------
        looks : tuple of int
            As many as those of the first round in all.

        Notes
        -----
        If cells depart from independence by a normal number whose standard deviation is in proportion to what is
        expected of them, the noise hides of a cell with the deviation t what is left of it after shrinkage, about
        `s t / sqrt(s**2 + t**2)`. The scale of t follows from the squares of all cells of a pair. The looks of both
        rounds together are then in proportion to `error ** (2/3)`, by which the sum of all errors would be least if
        each were one over the root of the looks; and none is taken back.
        """
        columns = len(self.columns)
        shares, totals = {}, []
        for i, published, looks in zip(self.columns, first, self.first_looks, strict=False):
            noisy = self.estimated(published, looks)
            totals.append(noisy.sum())
            clipped = np.maximum(noisy, 0.5)
            shares[i] = clipped / clipped.sum()
        n_records = max(float(np.mean(totals)), 1.0)
        before = np.array(self.first_looks[columns:], dtype=np.float64)
        errors = np.empty(len(before))
        for place, ((i, j), published) in enumerate(zip(self.pairs, first[columns:], strict=True)):
            looks, expected = self.first_looks[columns + place], n_records * np.outer(shares[i], shares[j])
            variance, departure = self.variance(looks), self.estimated(published, looks) - expected
            scale = max(float(np.sum(departure**2 - variance)), 0.0) / float(np.sum(expected**2))
            spread = scale * expected**2
            errors[place] = np.sqrt(variance * spread / (variance + spread)).sum()
        # A pair without any dependence that can be seen has an error of 0, and all of them may.
        return _divided(before, (errors + 1e-9 * n_records) ** (2 / 3), sum(self.first_looks))

    @property
    def in_short(self) -> str:
        """What is done, in a few words."""
        kind = "discrete Gaussian" if self.noise == "gaussian" else "geometric"
        return (
            f"{len(self.columns)} columns and {len(self.pairs)} pairs, {self.looks} looks with {kind} noise of "
            f"standard deviation {math.sqrt(self.variance(1)):.4g}"
        )


def _divided(before: Array, wanted: Array, looks: int, *, digits: int = 6) -> tuple[int, ...]:
    """So many looks, divided so that with those from before they are in proportion to what is wanted, as far as may be.

    Parameters
    ----------
    before : array, shape (n,)
        The looks that there are, of which none is taken back.
    wanted : array, shape (n,)
        Positive.
    looks : int
    digits : int
        Numbers are rounded to so many digits of them all, so that machines whose last bits differ agree.
    """

    def more(factor: float) -> Array:
        return np.maximum(factor * wanted - before, 0.0)

    low, high = 0.0, float((looks + before.sum()) / wanted.min())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if more(middle).sum() < looks else (low, middle)
    shared = np.round(more(high), digits)
    whole = np.floor(shared).astype(np.int64)
    # The largest rests get what is left, the first of equal ones first.
    rests = np.argsort(-np.round(shared - whole, digits), kind="stable")
    whole[rests[: looks - int(whole.sum())]] += 1
    return tuple(whole.tolist())
