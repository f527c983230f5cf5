"""The interface of noise on counts: integers with a distribution, samplers and privacy curves.

:mod:`pymc_dirdp.mechanisms.geometric`, :mod:`~pymc_dirdp.mechanisms.gaussian` and :mod:`~pymc_dirdp.mechanisms.joint`
have the noises; :mod:`pymc_dirdp.mechanisms.noisy_counts` adds them to tables.
"""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import positive
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.outputs import CellNoise
from pymc_dirdp.numerics.roots import largest_satisfying, raised
from pymc_dirdp.privacy.curves import LossCurves
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import dyadic_above
from pymc_dirdp.sampling.drawing import noisy_counts

Whole = NDArray[Any]

# The square of a parameter, also divided by a squared number of records, has to be a double.
LEAST, MOST = 2.0**-200, 2.0**200


class Noise(abc.ABC):
    """Integer noise that is added to counts. A subclass is a frozen dataclass of public numbers.

    Noise is drawn for lists of cells along the last axis of an array. Noise of different lists is independent. If it is
    independent in all cells, the array may have any shape.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms.geometric import Geometric
    >>> round(Geometric(2.0).sd, 3)
    2.799
    """

    smooth_noise: ClassVar[bool] = False
    """Whether `log_pmf` is also a smooth curve with few kinks between integers."""
    family: ClassVar[str] = "normal"
    """The continuous distribution that `log_pmf` follows: "normal" or "laplace"."""

    @property
    def name(self) -> str:
        """The name in a report."""
        return type(self).__name__

    @property
    @abc.abstractmethod
    def sd(self) -> float:
        """The standard deviation in one cell."""

    @property
    def free_variance(self) -> float:
        """The variance in one cell if the sum of a list is not used."""
        return self.sd**2

    @abc.abstractmethod
    def log_pmf(self, noise: Array) -> Array:
        """Log-probability of the noise in each cell, or the term of the cell in the log-probability of its list."""

    def log_probability(self, noise: Array) -> Array:
        """Log-probability of lists, shape of the leading axes."""
        return np.asarray(self.log_pmf(noise).sum(axis=-1))

    def log_ratio(self, first: Array, second: Array) -> Array:
        """Log-ratio of the probabilities of two arrays of lists. Infinite terms are 1e300, or 0 if both are."""
        with np.errstate(invalid="ignore", over="ignore"):
            ratio = self.log_pmf(first) - self.log_pmf(second)
        return np.asarray(np.nan_to_num(ratio, nan=0.0, posinf=1e300, neginf=-1e300).sum(axis=-1))

    @abc.abstractmethod
    def fast(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Noise in floating point: for simulations, and for `sampler="fast"`."""

    @abc.abstractmethod
    def exact(self, shape: tuple[int, ...], bits: Bits) -> Whole:
        """Noise as Python integers, with exactly the distribution of the privacy curves."""

    def draw(self, shape: tuple[int, ...], source: np.random.Generator | Bits) -> Whole:
        """Noise in floating point from a generator, or exact from bits."""
        return self.fast(shape, source) if isinstance(source, np.random.Generator) else self.exact(shape, source)

    def curves(self, blocks: int, records: int, changes: int) -> LossCurves:
        """The privacy curves of noisy counts; equal curves are equal objects.

        By default the curves of one record of a person, from the listed distribution of a cell, which is symmetric.

        Parameters
        ----------
        blocks : int
            Number of blocks of cells in which one person has records.
        records : int
            How many in each, at most.
        changes : {1, 2}
            Whether a person's records in a block appear or disappear (1), or are replaced (2). In a block they may gain
            and lose `records` in all, so the counts that grow make a group of cells, and those that fall another.
        """
        if blocks * records > 1:
            raise UnattainableError(f"{self.name} noise is for one record of a person. Take mechanism='geometric'.")
        return ListedCurves(self, changes)

    @classmethod
    def least(cls, excess: Callable[[float], float]) -> float:
        """The smallest parameter that satisfies a guarantee, that is, `excess` is at most 0."""
        return 1 / largest_satisfying(lambda inverse: excess(1 / inverse))

    def of_row(self, cells: int) -> "Noise":
        """The noise in a row with this number of cells, for simulations of rows that are in different tables."""
        return self

    @property
    def cell_noise(self) -> CellNoise | None:
        """The noise of one cell in a likelihood, if cells are independent given their sum."""
        normal, far_out = self.family == "normal", 2.0**20
        # The log-probability at this distance determines the slope to all digits.
        constant, far = (float(self.log_pmf(np.array(k))) for k in (0.0, far_out))
        return CellNoise(normal, (constant - far) / (far_out**2 if normal else far_out), constant)

    def sum_reach(self, cells: int, *, unlikely: float = 60.0) -> float:
        """A bound of the absolute sum of the noise of some cells that fails with probability below `2 exp(-unlikely)`.

        Bernstein's inequality for noise whose moments are at most those of a Laplace distribution of the same variance.
        The scale is raised by 1 for integer noise that is mostly 0.
        """
        scale = self.sd / math.sqrt(2) + 1
        return math.sqrt(2 * unlikely * cells) * self.sd + unlikely * scale

    def distributions(self, shifts: Array) -> FiniteDistributions:
        """The distributions of noisy counts at two data sets whose counts differ by `shifts`, shape (lists, cells).

        Raises
        ------
        ArgumentError
            If the distributions are not available, or have too many cells to list.
        """
        return product_of([self.cell_distributions(round(shift)) for shift in np.abs(shifts[shifts != 0]).tolist()])

    def cell_distributions(self, shift: int) -> FiniteDistributions:
        """The distributions of one cell whose counts differ by `shift`."""
        return _listed(self, shift)


@final
@dataclass(frozen=True)
class NoisyMarginal:
    """A marginal of a table and its noise.

    Attributes
    ----------
    axes : tuple of int
        The axes of the table that the marginal has.
    shape : tuple of int
    noise : Noise
    separate_axes : tuple of int
        The axes whose entries have separate lists of noise; if empty, one list is for all cells.
    """

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    noise: Noise
    separate_axes: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    @property
    def list_length(self) -> int:
        """The number of cells of a list of noise."""
        return self.size // math.prod(self.shape[axis] for axis in self.separate_axes)

    def lists(self, table: NDArray[Any]) -> NDArray[Any]:
        """Reorder a table into lists of noise: shape `(..., *shape)` to `(..., lists, cells of a list)`."""
        lead = table.ndim - len(self.shape)
        reordered = np.moveaxis(
            table, [lead + axis for axis in self.separate_axes], range(lead, lead + len(self.separate_axes))
        )
        return reordered.reshape(*table.shape[:lead], -1, self.list_length)

    def noise_for(self, lead: tuple[int, ...], source: np.random.Generator | Bits) -> Whole:
        """Independent noise of shape `(*lead, *shape)`: in floating point from a generator, or exact from bits."""
        drawn = self.noise.draw((*lead, self.size // self.list_length, self.list_length), source)
        order = [*self.separate_axes, *(axis for axis in range(len(self.shape)) if axis not in self.separate_axes)]
        reordered = drawn.reshape(*lead, *(self.shape[axis] for axis in order))
        return np.moveaxis(
            reordered,
            range(len(lead), len(lead) + len(self.separate_axes)),
            [len(lead) + axis for axis in self.separate_axes],
        )

    def noisy(self, counts: Array, lead: tuple[int, ...], source: np.random.Generator | Bits) -> Array:
        """Independent noisy counts, shape `(*lead, *shape)`."""
        return noisy_counts(counts, self.noise_for(lead, source))

    def log_likelihood(self, output: Array, counts: Array) -> Array:
        """Logarithm of the probability of noisy counts, shape of the leading axes."""
        return np.asarray(self.noise.log_probability(self.lists(output - counts)).sum(axis=-1))

    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array) -> Array:
        """The log-likelihood at one data set minus that at another."""
        if self.noise.cell_noise is None:
            lists = (self.lists(outputs - counts) for counts in (x, y))
            return np.asarray(self.noise.log_ratio(*lists).sum(axis=-1))
        # Cells that are equal in both data sets cancel exactly.
        changed = x != y
        changed_outputs = outputs[..., changed]
        return self.noise.log_ratio(changed_outputs - x[changed], changed_outputs - y[changed])


@final
@dataclass(frozen=True)
class ListedCurves(LossCurves):
    """The curves of symmetric noise that is independent in each cell, if `changes` counts change by 1.

    The noise is listed, and the probability that is not listed is added to delta. Noise that is not listed may be
    possible for one of the data sets only, so Rényi divergences are infinite.

    Attributes
    ----------
    noise : Noise
    changes : {1, 2}
    """

    noise: Noise
    changes: int

    @cached_property
    def _listed(self) -> tuple[FiniteDistributions, float]:
        """The distributions of the cells that change, without merging cells, and the probability that is not listed."""
        cell = self.noise.cell_distributions(1)
        possible = np.maximum(cell.log_p, cell.log_q) > -np.inf
        cell = FiniteDistributions(cell.log_p[possible], cell.log_q[possible])
        if len(cell.log_p) > 4_000:
            raise ArgumentError(f"{self.noise.name} noise is too wide to list. Override curves() of its class.")
        # The rounding error of the log-probabilities, of which the sum is close to 1.
        beyond = self.changes * (max(1 - math.fsum(np.exp(cell.log_p)), 0.0) + 1e-13)
        return cell.times(cell) if self.changes == 2 else cell, beyond

    @override
    def _renyi(self, order: float) -> float:
        return math.inf

    @override
    def _rho(self, omega: float) -> float:
        return math.inf

    @override
    def _delta(self, epsilon: float) -> float:
        distributions, beyond = self._listed
        return min(1.0, raised(distributions._delta(epsilon), 2.0**17) + beyond)


def round_scale_up(scale: float, *, least: float = 2.0**-1000, most: float = 2.0**1000) -> float:
    """A scale rounded up to the rational number that the exact sampler uses."""
    # Noise of a larger scale overflows a double; with a scale below the minimum all noise is 0.
    if not least <= positive(scale=scale) <= most:
        raise ArgumentError(
            f"Expected scale between 2**{math.log2(least):.0f} and 2**{math.log2(most):.0f}, got scale={scale:g}. Ask "
            "for a larger epsilon if the scale is too large, and for a smaller one if it is too small."
        )
    return float(dyadic_above(float(scale)))


def _listed(noise: Noise, shift: int, *, reach: float = 60.0, most_cells: int = 400_000) -> FiniteDistributions:
    """The distributions of one cell, to `reach` standard deviations."""
    ends = math.ceil(reach * noise.sd) + 1
    if 2 * ends + shift > most_cells:
        raise ArgumentError(f"The distribution of {noise.name} noise has too many cells to sum over.")
    outputs = np.arange(-ends, ends + shift + 1, dtype=np.float64)
    return FiniteDistributions(noise.log_pmf(outputs), noise.log_pmf(outputs - shift))
