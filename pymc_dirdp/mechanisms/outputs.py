"""What a mechanism publishes: an output, which knows its values, its text, and what is read from it.

There are three kinds: draws of the shares, one noisy table, and noisy marginals of a table. Which kind a mechanism
publishes is its own business: anyone who has an output asks the output. What an output says of one row of a table is a
factor for each cell, and one for the row's total.
"""

import abc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.balls import Ball

if TYPE_CHECKING:
    from pymc_dirdp.mechanisms.table import TableMechanism

DRAWS = "draws"
"""The name of draws of the shares in a text."""

type Measured = tuple[tuple[int, ...], Array, float]
"""The axes that a noisy marginal keeps, its counts, and the variance of the noise."""
type Axes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, eq=False)
class Output(abc.ABC):
    """What one mechanism published of one table.

    Attributes
    ----------
    published : mapping of str to array
        The arrays that are published, by the names that a text gives them.
    """

    published: Mapping[str, Array]

    @classmethod
    def releases_for(cls, draws: int) -> int:
        """How many independent outputs so many draws take: draws given noisy counts all take the same."""
        return 1

    @classmethod
    def read(cls, facts: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], table: str, **more: Any) -> Self:
        """The output of which a text says these facts.

        Parameters
        ----------
        facts : mapping of str to list
            By name.
        shapes : mapping of str to tuple of int
            The shape that each array has to have.
        table : str
            The name of the table, for the error.

        Raises
        ------
        ArgumentError
            If an array has another shape, or a number is not finite.
        """
        found = {name: np.array(facts[name], dtype=np.float64) for name in shapes}
        for name, values in found.items():
            if values.shape != shapes[name] or not np.all(np.isfinite(values)):
                raise ArgumentError(f"{name!r} of {table!r} is not one number for each cell.")
        return cls(found, **more)

    @property
    def facts(self) -> dict[str, Any]:
        """The arrays as a text holds them: integers without a point, other numbers as Python writes doubles."""
        return {name: _written(values) for name, values in self.published.items()}

    @property
    def of_beta(self) -> "Output":
        """The same of a Beta variable: draws are those of success, the first of its two categories."""
        return self

    @property
    @abc.abstractmethod
    def values(self) -> Array:
        """Independent outputs as the likelihood takes them, shape `(k, ...)`: one noisy table, or all draws."""

    def problems(
        self, mechanism: "TableMechanism", sampler: str, n_records: int | None, totals: Sequence[int] = ()
    ) -> Iterator[str]:
        """What of the output its mechanism cannot have published, in sentences.

        Parameters
        ----------
        mechanism : TableMechanism
        sampler : {"exact", "fast"}
        n_records : int or None
            The public or planned number of records.
        totals : sequence of int
            The public numbers of records of blocks of rows, if any.
        """
        steps = mechanism.steps(sampler, n_records)
        if sampler == "exact" and not all(mechanism.is_on_grid(one, steps) for one in self.values):
            yield "a number is not on the grid of the exact sampler"

    @property
    def shares(self) -> Array | None:
        """The draws of the shares, shape `(k, ..., d)`; None where draws have to be made given the output."""
        return None

    def observed(self, cells: Axes, shares: Axes) -> tuple[Array, Axes]:
        """The values as data, with the names and labels of their axes: those of cells, or of the shares of draws."""
        return self.values[0], cells

    def row_likelihoods(self, mechanism: "TableMechanism", steps: int | None) -> "list[list[RowLikelihood]]":
        """For each row, the likelihoods of all outputs, which are independent given the counts."""
        each = [mechanism.row_likelihoods(output, steps=steps) for output in self.values]
        return [list(row) for row in zip(*each, strict=True)]


@final
@dataclass(frozen=True, eq=False)
class Draws(Output):
    """Draws of the shares that are themselves the release.

    Attributes
    ----------
    published : mapping of str to array
        One array, shape `(k, ..., d)`. Of a Beta variable the draws are those of success, shape `(k, ...)`.
    of_success : bool
        Whether they are those of success.
    """

    of_success: bool = False

    @classmethod
    @override
    def releases_for(cls, draws: int) -> int:
        return draws

    @property
    def _array(self) -> Array:
        return self.published[DRAWS]

    @property
    @override
    def values(self) -> Array:
        return np.stack([self._array, 1 - self._array], axis=-1) if self.of_success else self._array

    @override
    def problems(
        self, mechanism: "TableMechanism", sampler: str, n_records: int | None, totals: Sequence[int] = ()
    ) -> Iterator[str]:
        shares = self.shares
        if not np.all(shares > 0):
            yield "a share of a draw is not between 0 and 1"
        elif not np.all(add_up_to_1(shares)):
            yield "the shares of a draw do not add up to 1"
        yield from super().problems(mechanism, sampler, n_records, totals)

    @property
    @override
    def shares(self) -> Array:
        return self.values

    @override
    def observed(self, cells: Axes, shares: Axes) -> tuple[Array, Axes]:
        return self._array[None], (("release_chain", None), ("release_draw", None), *shares)

    @property
    @override
    def of_beta(self) -> Output:
        return Draws({DRAWS: self._array[..., 0]}, of_success=True)


class _Noisy(Output):
    """Noisy counts, from which draws have to be made."""

    @override
    def problems(
        self, mechanism: "TableMechanism", sampler: str, n_records: int | None, totals: Sequence[int] = ()
    ) -> Iterator[str]:
        yield from super().problems(mechanism, sampler, n_records, totals)
        if not mechanism.needs_public_totals:
            return
        # Noisy counts that are no whole doubles are rounded by this share of their size.
        rounded = [2.0**-50 * float(np.abs(table).sum()) for table in self.published.values()]
        for rounding, found in zip(rounded, mechanism.totals_by_marginal(self.values[0]), strict=True):
            if abs(math.fsum(found) - (n_records or 0)) > rounding:
                yield "the noisy counts do not add up to the number of records"
            if len(totals) == len(found) and np.any(np.abs(np.subtract(totals, found)) > rounding):
                yield "the noisy counts do not add up to the public numbers of records of the rows"
            if min(found) < -rounding:
                yield "the noisy counts give a block of rows a negative number of records"


@final
@dataclass(frozen=True, eq=False)
class NoisyTable(_Noisy):
    """One noisy table, given which draws are made.

    Attributes
    ----------
    published : mapping of str to array
        One array, in the shape of the table.
    """

    @property
    @override
    def values(self) -> Array:
        (table,) = self.published.values()
        return np.asarray(table[None])


@final
@dataclass(frozen=True, eq=False)
class Marginals(_Noisy):
    """Noisy marginals of a table, to which shares are fitted.

    Attributes
    ----------
    published : mapping of str to array
        The marginals, each in the shape of the axes that it keeps.
    """

    @property
    @override
    def values(self) -> Array:
        return np.concatenate([noisy.ravel() for noisy in self.published.values()])[None]

    @override
    def observed(self, cells: Axes, shares: Axes) -> tuple[Array, Axes]:
        return self.values[0], (("_".join(["marginals", *(dim for dim, _ in cells)]), None),)


def add_up_to_1(shares: Array, *, rounding: float = 1e-9) -> NDArray[np.bool_]:
    """Whether shares along the last axis do, for any number of categories that is in use."""
    return np.asarray(np.abs(shares.sum(axis=-1) - 1) <= rounding)


def _written(values: Array) -> Array | Integers:
    """Numbers as JSON has them: integers without a point, all others as Python writes doubles."""
    integers = np.all((values == np.floor(values)) & (np.abs(values) <= MOST_RECORDS))
    return values.astype(np.int64) if integers else values


@final
@dataclass(frozen=True)
class CellNoise:
    """The noise of one cell: `log P[z | x]` is `constant - slope * |z - x|`, or `constant - slope * (z - x)**2`.

    Attributes
    ----------
    is_normal : bool
        Whether the distance is squared.
    slope : float
        Positive.
    constant : float
        Logarithm of the probability of no noise; for noise that adds up to a number, the share of the cell in it.
    """

    is_normal: bool
    slope: float
    constant: float

    @property
    def sd(self) -> float:
        """The standard deviation of continuous noise of this slope; that of noise of integers is below it."""
        return math.sqrt(0.5 / self.slope) if self.is_normal else math.sqrt(2) / self.slope

    @property
    def numbers(self) -> Array:
        """All three as an array, for compiled code."""
        return np.array([self.is_normal, self.slope, self.constant])

    def log_noise(self, noise: Array) -> Array:
        """Logarithm of the probability of noise, elementwise."""
        return self.constant - self.slope * (noise**2 if self.is_normal else np.abs(noise))


@final
@dataclass(frozen=True, eq=False)
class RowLikelihood:
    """The likelihood of an output as a function of the counts of one row.

    It is `exp(of_total(sum_i x_i)) * prod_i exp(of_cells(x_i, i))`.

    Attributes
    ----------
    of_cells : callable
        `of_cells(counts, cells)`: the logarithm of the factor of each cell. Counts and cells are arrays that broadcast
        against each other.
    of_total : callable
        `of_total(totals)`: the logarithm of the factor of the row's total, elementwise.
    smooth : bool
        Whether `of_cells` follows a smooth curve with few kinks between whole counts, too.
    """

    of_cells: Callable[[Array, Integers], Array]
    of_total: Callable[[Array], Array]
    smooth: bool

    @classmethod
    def of_nothing(cls) -> Self:
        """The likelihood that is 1 for all counts."""

        def flat(counts: Array, cells: Integers) -> Array:
            return np.zeros(np.broadcast_shapes(np.shape(counts), np.shape(cells)))

        return cls(flat, np.zeros_like, smooth=True)


@final
@dataclass(frozen=True, eq=False)
class BlockLikelihood:
    """What a joint release says of the counts of one table, given the latent radius.

    Attributes
    ----------
    ball : Ball
        The norm of the table's noise.
    noisy : array, shape (d,)
        The noisy counts of this table.
    limits : array of int, shape (radii,)
        Given the radius, counts are possible if the norm of the noise is at most this, and all of those are as likely.
    """

    ball: Ball
    noisy: Array
    limits: Integers

    def norm(self, counts: ArrayLike) -> Array:
        """The norm of the noise if these were the counts, shape of their leading axes; `inf` if they are impossible."""
        return self.ball.norm(self.noisy - np.asarray(counts, dtype=np.float64))


@final
@dataclass(frozen=True, eq=False)
class JointLikelihoods:
    """The likelihood of a joint release as a mixture over its latent radius; given that, tables are independent.

    It is the sum over i of `exp(log_weights[i])` times the product over blocks of 1 where the norm is at most
    `limits[i]`, and 0 elsewhere.

    Attributes
    ----------
    radii : array of int, shape (radii,)
        In units of one over the least common multiple of the records. Radii with a probability below exp(-80) together
        are left out.
    log_weights : array, shape (radii,)
    blocks : tuple of BlockLikelihood
        One for each table.
    """

    radii: Integers
    log_weights: Array
    blocks: tuple[BlockLikelihood, ...]

    def log_likelihood(self, counts: Sequence[ArrayLike]) -> Array:
        """Logarithm of the probability of the release given the counts of each table; leading axes broadcast."""
        norms = np.broadcast_arrays(*(block.norm(c) for block, c in zip(self.blocks, counts, strict=True)))
        # From the first radius at which all tables are possible on.
        tails = np.append(np.logaddexp.accumulate(self.log_weights[::-1])[::-1], -np.inf)
        firsts = [np.searchsorted(block.limits, norm) for block, norm in zip(self.blocks, norms, strict=True)]
        return np.asarray(tails[np.max(firsts, axis=0)])


@final
@dataclass(frozen=True, eq=False)
class RowsSeen:
    """What simulated outputs say of the counts of m rows, each in a table of its own: for planning.

    Attributes
    ----------
    low, high : array, shape (m, d)
        Between these the counts lie, for all that is not negligible.
    log_likelihood : callable
        `log_likelihood(counts, *of_cells)`: the logarithm of the factor of each cell. All arrays broadcast against each
        other, elementwise.
    of_cells : tuple of array
        What was seen of each cell; they broadcast to shape (m, d).
    totals : array, shape (m,)
        What is said of the numbers of records.
    total_sd : float
        How exactly; 0 if they are known.
    """

    low: Array
    high: Array
    log_likelihood: Callable[..., Array]
    of_cells: tuple[NDArray[Any], ...]
    totals: Array
    total_sd: float
