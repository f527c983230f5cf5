"""What a mechanism publishes: an output, which knows its values, its text, and what is read from it.

There are three kinds: draws of the shares, one noisy table, and noisy marginals of a table. Which kind a mechanism
publishes is its own business: anyone who has an output asks the output. What an output says of one row of a table is a
factor for each cell, and one for the row's total.
"""

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import MAX_RECORDS
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.balls import Ball

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

    def to_dict(self) -> dict[str, Any]:
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

    @property
    def shares(self) -> Array | None:
        """The draws of the shares, shape `(k, ..., d)`; None where draws have to be made given the output."""
        return None

    def observed(self, cells: Axes, shares: Axes) -> tuple[Array, Axes]:
        """The values as data, with the names and labels of their axes: those of cells, or of the shares of draws."""
        return self.values[0], cells


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

    @property
    @override
    def shares(self) -> Array:
        return self.values

    @override
    def observed(self, cells: Axes, shares: Axes) -> tuple[Array, Axes]:
        # ArviZ plots no data without any axis.
        alone = len(self._array) == 1 and shares
        return (self._array[0], shares) if alone else (self._array, (("release_draw", None), *shares))

    @property
    @override
    def of_beta(self) -> Output:
        return Draws({DRAWS: self._array[..., 0]}, of_success=True)


@final
@dataclass(frozen=True, eq=False)
class NoisyTable(Output):
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
class Marginals(Output):
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
    integers = np.all((values == np.floor(values)) & (np.abs(values) <= MAX_RECORDS))
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
