"""The outputs of mechanisms, with their text form, and the likelihoods of outputs.

There are three kinds: draws of the shares, one noisy table, and noisy marginals of a table. Callers use the interface
of the output and do not depend on its kind. The likelihood of a row has a factor for each cell and one for the row's
total.
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
"""The axes of a noisy marginal, its counts, and the variance of the noise."""
type Axes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, eq=False)
class Output(abc.ABC):
    """The published output of one mechanism for one table.

    Attributes
    ----------
    published : mapping of str to array
        The published arrays, by their names in a text.
    """

    published: Mapping[str, Array]

    @classmethod
    def releases_for(cls, released_draws: int) -> int:
        """The number of independent outputs that this number of draws needs; all draws given noisy counts need one."""
        return 1

    @classmethod
    def read(cls, facts: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], table: str, **options: Any) -> Self:
        """The output from the fields of a text.

        Parameters
        ----------
        facts : mapping of str to list
            By name.
        shapes : mapping of str to tuple of int
            The required shape of each array.
        table : str
            The name of the table, for error messages.

        Raises
        ------
        ArgumentError
            If an array has another shape, or a number is not finite.
        """
        arrays = {name: np.array(facts[name], dtype=np.float64) for name in shapes}
        for name, values in arrays.items():
            if values.shape != shapes[name] or not np.all(np.isfinite(values)):
                raise ArgumentError(f"Expected {name!r} of {table!r} to have one finite number for each cell.")
        return cls(arrays, **options)

    def to_dict(self) -> dict[str, Any]:
        """The arrays for a text: integers without a decimal point, other numbers as Python writes doubles."""
        return {name: _written(values) for name, values in self.published.items()}

    @property
    def of_beta(self) -> "Output":
        """The output for a Beta variable: draws of the probability of success, the first of its two categories."""
        return self

    @property
    @abc.abstractmethod
    def values(self) -> Array:
        """Independent outputs for the likelihood, shape `(k, ...)`: one noisy table, or all draws."""

    @property
    def shares(self) -> Array | None:
        """The draws of the shares, shape `(k, ..., d)`; None if draws have to be sampled given the output."""
        return None

    @property
    def cell_values(self) -> tuple[tuple[str, Array], ...]:
        """The arrays that have a number for each cell, by what the numbers are; empty if there are none."""
        return ()

    def observed(self, cells: Axes, shares: Axes) -> tuple[Array, Axes]:
        """The values as observed data, with the names and labels of their axes: those of cells or of shares."""
        return self.values[0], cells


@final
@dataclass(frozen=True, eq=False)
class Draws(Output):
    """Draws of the shares that are themselves the release.

    Attributes
    ----------
    published : mapping of str to array
        One array, shape `(k, ..., d)`. For a Beta variable, probabilities of success, shape `(k, ...)`.
    of_success : bool
        Whether the draws are probabilities of success.
    """

    of_success: bool = False

    @classmethod
    @override
    def releases_for(cls, released_draws: int) -> int:
        return released_draws

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

    @property
    @override
    def cell_values(self) -> tuple[tuple[str, Array], ...]:
        return tuple(("draw", draw) for draw in self.values)

    @override
    def observed(self, cells: Axes, shares: Axes) -> tuple[Array, Axes]:
        # ArviZ does not plot data without an axis.
        alone = len(self._array) == 1 and shares
        return (self._array[0], shares) if alone else (self._array, (("release_draw", None), *shares))

    @property
    @override
    def of_beta(self) -> Output:
        return Draws({DRAWS: self._array[..., 0]}, of_success=True)


@final
@dataclass(frozen=True, eq=False)
class NoisyTable(Output):
    """One noisy table; draws are sampled given it.

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

    @property
    @override
    def cell_values(self) -> tuple[tuple[str, Array], ...]:
        return (("noisy_count", self.values[0]),)


@final
@dataclass(frozen=True, eq=False)
class Marginals(Output):
    """Noisy marginals of a table, to which shares are fitted.

    Attributes
    ----------
    published : mapping of str to array
        The marginals, each in the shape of its axes.
    """

    @property
    @override
    def values(self) -> Array:
        return np.concatenate([noisy.ravel() for noisy in self.published.values()])[None]

    @override
    def observed(self, cells: Axes, shares: Axes) -> tuple[Array, Axes]:
        return self.values[0], (("_".join(["marginals", *(dim for dim, _ in cells)]), None),)


def add_up_to_1(shares: Array, *, rounding: float = 1e-9) -> NDArray[np.bool_]:
    """Whether shares add up to 1 along the last axis, for any usual number of categories."""
    return np.asarray(np.abs(shares.sum(axis=-1) - 1) <= rounding)


def _written(values: Array) -> Array | Integers:
    """Numbers for JSON: integers without a decimal point, all others as Python writes doubles."""
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
        Log-probability of no noise; for noise with a fixed sum, the term of the cell in it.
    """

    is_normal: bool
    slope: float
    constant: float

    @property
    def sd(self) -> float:
        """The standard deviation of continuous noise with this slope, an upper bound for integer noise."""
        return math.sqrt(0.5 / self.slope) if self.is_normal else math.sqrt(2) / self.slope

    @property
    def numbers(self) -> Array:
        """All three fields as an array, for compiled code."""
        return np.array([self.is_normal, self.slope, self.constant])

    def log_noise(self, noise: Array) -> Array:
        """Log-probability of noise, elementwise."""
        return self.constant - self.slope * (noise**2 if self.is_normal else np.abs(noise))


@final
@dataclass(frozen=True, eq=False)
class RowLikelihood:
    """The likelihood of an output as a function of the counts of one row.

    It is `exp(total_loglik(sum_i x_i)) * prod_i exp(cell_loglik(x_i, i))`.

    Attributes
    ----------
    cell_loglik : callable
        `cell_loglik(counts, cells)`: the logarithm of the factor of each cell. Counts and cells are arrays that
        broadcast against each other.
    total_loglik : callable
        `total_loglik(totals)`: the logarithm of the factor of the row's total, elementwise.
    smooth : bool
        Whether `cell_loglik` is also a smooth curve with few kinks between integer counts.
    """

    cell_loglik: Callable[[Array, Integers], Array]
    total_loglik: Callable[[Array], Array]
    smooth: bool

    @classmethod
    def of_nothing(cls) -> Self:
        """The constant likelihood 1, for all counts."""

        def flat(counts: Array, cells: Integers) -> Array:
            return np.zeros(np.broadcast_shapes(np.shape(counts), np.shape(cells)))

        return cls(flat, np.zeros_like, smooth=True)


@final
@dataclass(frozen=True, eq=False)
class BlockLikelihood:
    """The likelihood of a joint release for the counts of one table, given the latent radius.

    Attributes
    ----------
    ball : Ball
        The norm of the table's noise.
    noisy : array, shape (d,)
        The noisy counts of this table.
    limits : array of int, shape (radii,)
        Given the radius, the likelihood is constant for counts with a norm of the noise up to this limit, and 0 beyond.
    """

    ball: Ball
    noisy: Array
    limits: Integers

    def norm(self, counts: ArrayLike) -> Array:
        """The norm of the noise for given counts, in the shape of their leading axes; `inf` if they are impossible."""
        return self.ball.norm(self.noisy - np.asarray(counts, dtype=np.float64))


@final
@dataclass(frozen=True, eq=False)
class JointLikelihoods:
    """The likelihood of a joint release, a mixture over its latent radius. Given the radius, tables are independent.

    It is the sum over i of `exp(log_weights[i])` times the product over blocks of 1 where the norm is at most
    `limits[i]`, and 0 elsewhere.

    Attributes
    ----------
    radii : array of int, shape (radii,)
        In units of one over the least common multiple of the records, without radii of a total probability below
        exp(-80).
    log_weights : array, shape (radii,)
    blocks : tuple of BlockLikelihood
        One for each table.
    """

    radii: Integers
    log_weights: Array
    blocks: tuple[BlockLikelihood, ...]

    def log_likelihood(self, counts: Sequence[ArrayLike]) -> Array:
        """Log-probability of the release given the counts of each table; leading axes broadcast."""
        norms = np.broadcast_arrays(*(block.norm(c) for block, c in zip(self.blocks, counts, strict=True)))
        # The sum over radii from the first one at which all tables are possible.
        tails = np.append(np.logaddexp.accumulate(self.log_weights[::-1])[::-1], -np.inf)
        firsts = [np.searchsorted(block.limits, norm) for block, norm in zip(self.blocks, norms, strict=True)]
        return np.asarray(tails[np.max(firsts, axis=0)])
