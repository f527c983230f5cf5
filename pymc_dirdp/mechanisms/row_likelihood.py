"""What an output says of one row of a table: a factor for each cell, and one for the row's total."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError

if TYPE_CHECKING:
    from pymc_dirdp.mechanisms.joint import JointLikelihoods

__all__ = ["CellNoise", "ReadsOutputs", "RowLikelihood", "RowsSeen"]


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


class ReadsOutputs:
    """What a mechanism tells anyone who reads an output of it. By default it tells that this is not possible here."""

    def public_records(self, n_records: int | None) -> int | None:
        """The public number of records that an output is read with; None if it is private.

        Raises
        ------
        ArgumentError
            If a public number is missing, or is not that of the mechanism, or a private one is given.
        """
        if n_records is None:
            raise ArgumentError(f"The number of records of a {type(self).__name__} is public. Pass n_records=.")
        return integer(0, n_records=n_records)

    def published_totals(self, output: Array) -> list[tuple[NDArray[np.intp], float]]:
        """The rows, by number, whose records an output tells to add up to a number, and that number; often none."""
        return []

    def joint_rows(self, output: Array) -> "JointLikelihoods | None":
        """The likelihood of all rows together, where noise has a latent radius; None where it has none."""
        return None

    @property
    def cell_noise(self) -> CellNoise | None:
        """The noise on each cell, where the output is the counts with a noise that is Laplace or normal; or None."""
        return None

    @property
    def alike_alone(self) -> Any:
        """Noise of the same size on this table alone: itself, where no other table shares it."""
        return self

    def rows_seen(self, counts: Array, rng: np.random.Generator) -> RowsSeen | None:
        """Outputs of made-up rows of counts, shape (m, d), as those see them who estimate; None if that is unknown."""
        return None

    def expected_shares(self, counts: Array, rng: np.random.Generator) -> Array | None:
        """Shares of made-up rows as papers read them in outputs of which nothing else is inferred; None otherwise."""
        return None

    def likelihoods_of_rows(
        self, output: Array, *, n_records: int | None, sampler: str, steps: int | None = None
    ) -> list[RowLikelihood]:
        """The factors of each cell and of each row's total in the likelihood of one output: one object for each row.

        Parameters
        ----------
        output : array
            What the guarantee is about, in the shape of the table.
        n_records : int or None
            As :meth:`public_records` returned it.
        sampler : {"exact", "fast"}
            What drew it.
        steps : int, optional
            Of the urn, for `"exact"`; by default those that are its default.

        Raises
        ------
        ArgumentError
            If the likelihood is no product, or the mechanism cannot have put this out.
        """
        raise ArgumentError(
            f"The distribution of a {type(self).__name__} with so many categories is no product over cells, so nothing "
            "is inferred from its outputs here. Release with TruncatedNoiseMechanism or GeometricMechanism; or weigh "
            "each possible data set by its prior times exp(mechanism.log_likelihood(output, counts)) yourself."
        )
