"""Geometric noise on counts, independent or with sums of 0 where totals are public."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.audit_distributions import block_distributions
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts, adds_up_to_0, geometric_noise, round_scale_up
from pymc_dirdp.numerics.quadrature import coth_excess, legendre_excess, log_legendre
from pymc_dirdp.numerics.roots import round_up
from pymc_dirdp.privacy.bounded_loss import RandomisedResponse, erased_responses
from pymc_dirdp.privacy.curves import CurvesOf, PrivacyCurves
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.bits import Bits, Seed, generator
from pymc_dirdp.sampling.discrete_noise import discrete_laplace
from pymc_dirdp.sampling.geometric import fast_zero_sum_laplace, zero_sum_laplace
from pymc_dirdp.signatures import user_facing


@user_facing
@final
@dataclass(frozen=True, eq=False)
class GeometricMechanism(CurvesOf, NoisyCounts):
    """Release `counts + G`, with `P[G = g]` proportional to `exp(-|g| / scale)`, independent in every cell.

    It is for a private number of records. Where that is public, a release takes
    :class:`pymc_dirdp.mechanisms.ZeroSumGeometricMechanism`, which is less noisy at the same guarantee.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    scale : float
        Scale of the noise, positive: that of the Laplace distribution of which this is the discrete form. It is rounded
        up to 41 binary digits, and the attribute is the number that is used.
    adjacency, postprocess, contribution
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`.

    Notes
    -----
    The noise consists of integers and is drawn as such (`sampler="exact"`), for scales of any size. The loss of
    one cell is `1 / scale` or `-1 / scale`, as that of randomised response. With one record in each of R blocks the
    curves are exact. With m records in a block the counts that grow, wherever they lie, keep `m / scale`-differential
    privacy, and so do those that fall: the curves are those of randomised response at `m / scale`, of which no pair
    with that guarantee is worse. The pure epsilon is exact in all cases.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Algorithm 2. Kairouz, Oh and
    Viswanath (2015), Theorem 3.3. Ghosh, Roughgarden and Sundararajan (2012), Universally utility-maximizing
    privacy mechanisms, https://doi.org/10.1137/09076828X. Theory, section 13.

    Examples
    --------
    >>> mechanism = GeometricMechanism([1, 1, 1, 1], 2.0)
    >>> mechanism.pure_epsilon
    1.0
    >>> mechanism.release([108, 286, 71, 127]).shape
    (4,)
    """

    scale: float

    kind: ClassVar[str] = "geometric"
    smooth_noise: ClassVar[bool] = True
    noise_family: ClassVar[str] = "laplace"

    @override
    def _checked_parameter(self, value: float) -> float:
        return round_scale_up(value)

    @property
    @override
    def noise_sd(self) -> float:
        u = 1 / self.scale
        return math.sqrt(2) * math.exp(-u / 2) / -math.expm1(-u)

    @override
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return geometric_noise(self.scale, shape, rng)

    @override
    def log_noise(self, noise: Array) -> Array:
        u = 1 / self.scale
        return math.log(-math.expm1(-u)) - math.log1p(math.exp(-u)) - np.abs(noise) * u

    @override
    def exact_noise(self, shape: tuple[int, ...], bits: Bits) -> NDArray[Any]:
        return discrete_laplace(Fraction(self.scale), shape, bits)

    @cached_property
    @override
    def _curves(self) -> RandomisedResponse:
        """One answer for each group of cells that changes; one over the scale and the largest loss are rounded up."""
        each = self._records / Fraction(self.scale)
        return RandomisedResponse(round_up(each), self._groups, round_up(self._groups * each))

    @override
    def _cell_distributions(self, shift: float, cells: int | None) -> FiniteDistributions:
        """Integers between the two counts, and all beyond in one cell each: there the loss is constant."""
        u, between = 1 / self.scale, round(shift)
        # P[G <= 0] = 1 / (1 + q), P[G = g] = (1 - q) / (1 + q) q^|g| and P[G >= g] = q^g / (1 + q), with q = exp(-u).
        total = math.log1p(math.exp(-u))
        g = np.arange(1, between)
        distribution = np.concatenate([[-total], math.log(-math.expm1(-u)) - total - u * g, [-u * between - total]])
        return FiniteDistributions(distribution, distribution[::-1])


# The probability that neither of two cells betrays a record is raised by more than its rounding error.
_RAISED = 1 + 4e-15
# Noise of a larger scale might have to be clipped, and would not add up to 0 any more.
_LARGEST_SCALE = 2.0**980


@user_facing
@final
@dataclass(frozen=True, eq=False)
class ZeroSumGeometricMechanism(CurvesOf, NoisyCounts):
    """Release `counts + Z`, with `P[Z = z]` proportional to `exp(-sum |z| / scale)` over whole z that add up to 0.

    The noisy counts of a table add up to its number of records, which is public. Where a person has records in each
    entry of an axis (`"each"`), or one entry is this person's (`"own"`), the number of records of each entry is public,
    and the noise of each entry adds up to 0. Noise of different entries is independent.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    scale : float
        Scale of the noise, positive. It is rounded up to 41 binary digits, and the attribute is the number that is
        used.
    adjacency : {"replace-one"}
        Nothing else leaves the number of records public.
    postprocess, contribution
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`. A person's records
        in a block may move within it, but keep their number: with private numbers of records take
        :class:`pymc_dirdp.mechanisms.GeometricMechanism`.

    Raises
    ------
    ArgumentError
        If the adjacency is "add-remove", or a number is outside its domain.

    Notes
    -----
    At the scale of independent noise the pure epsilon is the same, `2 m / scale` for each block in which a person has m
    records, and there is less noise: the variance is 1/4 of it (d = 2) to nearly all of it (many cells). For d = 2
    this is geometric noise on one cell, and no mechanism whatever does better (Ghosh, Roughgarden and Sundararajan
    2012). All curves are exact for one record in each block, and for up to 64 records in two cells; otherwise they are
    bounds, and the pure epsilon is still exact.

    References
    ----------
    Ghosh, Roughgarden and Sundararajan (2012), Universally utility-maximizing privacy mechanisms,
    https://doi.org/10.1137/09076828X. The proof page of this class.

    Examples
    --------
    >>> mechanism = ZeroSumGeometricMechanism([1, 1, 1, 1], 2.0)
    >>> mechanism.pure_epsilon
    1.0
    >>> int(mechanism.release([108, 286, 71, 127]).sum())
    592
    """

    scale: float

    kind: ClassVar[str] = "geometric"
    formula: ClassVar[str] = (
        "exact draws from the posterior given the noisy counts, which add up to the number of records: "
        "Dirichlet(x + prior), averaged over all counts x"
    )
    smooth_noise: ClassVar[bool] = True
    noise_family: ClassVar[str] = "laplace"
    needs_public_totals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._relation.refuse_private_records("GeometricMechanism")

    @override
    def _checked_parameter(self, value: float) -> float:
        used = round_scale_up(value)
        if used > _LARGEST_SCALE:
            raise ArgumentError(
                f"Expected scale up to 2**980, got scale={value:g}: larger noise is clipped where a double cannot hold "
                "it, and would not add up to 0. Ask for a larger epsilon."
            )
        return used

    @property
    def _block_cells(self) -> int:
        """The number of cells whose noise adds up to 0."""
        return self.prior.size // math.prod([int(self.prior.shape[axis]) for axis in self.contributed.fixed_axes])

    @property
    def _loss(self) -> float:
        """What one record adds to the loss at most: two over the scale, rounded up."""
        return round_up(2 / Fraction(self.scale))

    @override
    def _alike(self) -> dict[str, Any]:
        blocks = np.ones((self._blocks, self._block_cells))
        return {"prior": blocks, "contribution": Contribution(self._records, ("each",))}

    def _by_block(self, table: NDArray[Any]) -> NDArray[Any]:
        """The cells of each block side by side: shape `(..., *shape)` to `(..., blocks, cells of a block)`."""
        lead = table.ndim - self.prior.ndim
        first = [lead + axis for axis in self.contributed.fixed_axes]
        turned = np.moveaxis(table, first, range(lead, lead + len(first)))
        return turned.reshape(*table.shape[:lead], -1, self._block_cells)

    def _from_blocks(self, blocks: NDArray[Any]) -> NDArray[Any]:
        lead = blocks.ndim - 2
        first = self.contributed.fixed_axes
        order = [*first, *(axis for axis in range(self.prior.ndim) if axis not in first)]
        turned = blocks.reshape(*blocks.shape[:lead], *(self.prior.shape[axis] for axis in order))
        return np.moveaxis(turned, range(lead, lead + len(first)), [lead + axis for axis in first])

    @property
    @override
    def noise_sd(self) -> float:
        # The variance is (d - 1) / (d + 1) (x P_d(x) / P_{d-1}(x) - 1) at x = coth(1 / scale); see the proof page.
        cells, u = self._block_cells, 2 / self.scale
        more, excess = coth_excess(u), legendre_excess(self._block_cells, u)
        if more == 0:
            return 0.0
        return math.sqrt((cells - 1) / (cells + 1)) * math.sqrt(more) * math.sqrt(1 + excess * (1 + 1 / more))

    @property
    @override
    def free_variance(self) -> float:
        # The covariance of exchangeable noise that adds up to 0 is that of independent noise without its mean.
        return self.noise_sd**2 * self._block_cells / (self._block_cells - 1)

    @property
    @override
    def in_short(self) -> str:
        return f"Zero-sum geometric noise of standard deviation {self.noise_sd:.4g}"

    @override
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        tables = math.prod(shape) // self._block_cells
        noise = fast_zero_sum_laplace(self.scale, tables, self._block_cells, rng)
        lead = shape[: len(shape) - self.prior.ndim]
        return self._from_blocks(noise.reshape(*lead, -1, self._block_cells))

    @override
    def noise_of_rows(self, rows: int, rng: np.random.Generator) -> Array:
        cells = self.prior.shape[-1]
        if cells == self._block_cells:
            return fast_zero_sum_laplace(self.scale, rows, cells, rng)
        # Other rows take what a row has too much, so its own cells are nearly independent, and a little less noisy.
        return geometric_noise(self.scale, (rows, cells), rng)

    @override
    def _sum_reach(self, cells: int) -> float:
        # The noise of some cells is that of independent ones, weighed by how likely the others cancel it. The larger
        # their sum, the less likely that is, so no sum is larger than that of independent noise.
        return GeometricMechanism(np.ones(2), self.scale)._sum_reach(cells)

    @override
    def exact_noise(self, shape: tuple[int, ...], bits: Bits) -> NDArray[Any]:
        blocks = self.prior.size // self._block_cells
        drawn = [zero_sum_laplace(Fraction(self.scale), self._block_cells, bits) for _ in range(blocks)]
        return self._from_blocks(np.stack(drawn)).reshape(shape)

    @override
    def releases(
        self, counts: Array, n: int, *, sampler: str = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        rng = generator(random_seed)
        if self.checked_sampler(sampler) == "fast":
            return counts + self.noise_for((n, *self.prior.shape), rng)
        bits = Bits(rng)
        return np.stack([self._exact_release(counts, bits) for _ in range(n)])

    @override
    def log_noise(self, noise: Array) -> Array:
        """The share of each cell in the logarithm of the probability of noise that adds up to 0."""
        return -np.abs(noise) / self.scale - self._log_normaliser / self._block_cells

    @cached_property
    def _log_normaliser(self) -> float:
        """Logarithm of the sum of `exp(-sum |z| / scale)` over all noise of one block."""
        return log_legendre(self._block_cells - 1, 2 / self.scale)

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        found = super().log_likelihood(output, counts, steps=steps)
        noise = self._by_block(np.asarray(output, dtype=np.float64) - np.asarray(counts, dtype=np.float64))
        return np.asarray(np.where(adds_up_to_0(noise).all(axis=-1), found, -np.inf))

    @override
    def published_totals(self, output: Array) -> list[tuple[NDArray[np.intp], float]]:
        blocks = zip(self.contributed.rows_by_entry(self.shape), self._by_block(output), strict=True)
        return [(rows, float(cells.sum())) for rows, cells in blocks]

    @cached_property
    @override
    def _curves(self) -> PrivacyCurves:
        """A record that moves is betrayed where neither of its two cells hides it; see the proof page."""
        u = self._loss
        betrayed = 1 / (-math.expm1(-u) * (1 + legendre_excess(self._block_cells - 1, u)))
        # It is never below that of independent noise; rounding must not hide that.
        truth = min(max(betrayed, (1 + math.exp(-u / 2)) ** -2) * _RAISED, 1.0)
        largest = round_up(2 * self._records * self._blocks / Fraction(self.scale))
        return erased_responses(u, truth, self._records, self._blocks, largest)

    @override
    def output_distributions(self, x: Array, y: Array, cells: int | None = None) -> FiniteDistributions:
        shifts = self._by_block(np.asarray(x, dtype=np.float64) - y)
        if np.any(shifts.sum(axis=-1) != 0):
            raise ArgumentError("Expected two data sets with the same number of records in every block.")
        changed = [block[block != 0] for block in shifts if np.any(block)]
        return product_of([block_distributions(self.scale, self._block_cells, block) for block in changed])
