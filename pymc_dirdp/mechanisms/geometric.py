"""Geometric noise on counts, independent, or with sums of 0 if totals are public."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, final, override

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.audit_distributions import block_distributions
from pymc_dirdp.mechanisms.noise import Noise, Whole, round_scale_up
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.numerics.balls import adds_up_to_0
from pymc_dirdp.numerics.quadrature import coth_excess, legendre_excess, log_legendre
from pymc_dirdp.numerics.roots import raised, round_up
from pymc_dirdp.privacy.bounded_loss import RandomisedResponse, erased_responses
from pymc_dirdp.privacy.curves import LossCurves
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_laplace
from pymc_dirdp.sampling.geometric import fast_zero_sum_laplace, zero_sum_laplace
from pymc_dirdp.signatures import user_facing


@final
@dataclass(frozen=True)
class Geometric(Noise):
    """`P[G = g]` proportional to `exp(-|g| / scale)`, independent in every cell.

    Parameters
    ----------
    scale : float
        Positive; it is rounded up to 41 binary digits.
    """

    scale: float

    smooth_noise = True
    family = "laplace"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", round_scale_up(self.scale))

    @property
    @override
    def sd(self) -> float:
        u = 1 / self.scale
        return math.sqrt(2) * math.exp(-u / 2) / -math.expm1(-u)

    @override
    def log_pmf(self, noise: Array) -> Array:
        u = 1 / self.scale
        return math.log(-math.expm1(-u)) - math.log1p(math.exp(-u)) - np.abs(noise) * u

    @override
    def fast(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """The difference of two geometric variables, computed as exponential variables rounded down."""
        first, second = self.scale * rng.standard_exponential((2, *shape))
        return np.asarray(np.floor(first) - np.floor(second))

    @override
    def exact(self, shape: tuple[int, ...], bits: Bits) -> Whole:
        return discrete_laplace(Fraction(self.scale), shape, bits)

    @override
    def curves(self, blocks: int, records: int, changes: int) -> RandomisedResponse:
        """One randomised response per group of cells that changes; `1 / scale` and the maximum loss are rounded up."""
        groups, loss = blocks * changes, records / Fraction(self.scale)
        return RandomisedResponse(round_up(loss), groups, round_up(groups * loss))

    @override
    def cell_distributions(self, shift: int) -> FiniteDistributions:
        """The integers between the two counts, and one cell for each tail, where the loss is constant."""
        u = 1 / self.scale
        # P[G <= 0] = 1 / (1 + q), P[G = g] = (1 - q) / (1 + q) q^|g| and P[G >= g] = q^g / (1 + q), with q = exp(-u).
        total = math.log1p(math.exp(-u))
        g = np.arange(1, shift)
        distribution = np.concatenate([[-total], math.log(-math.expm1(-u)) - total - u * g, [-u * shift - total]])
        return FiniteDistributions(distribution, distribution[::-1])


@final
@dataclass(frozen=True)
class ZeroSumGeometric(Noise):
    """`P[Z = z]` proportional to `exp(-sum |z| / scale)` over lists of integers that add up to 0.

    Parameters
    ----------
    scale : float
        Positive, at most 2**980; it is rounded up to 41 binary digits. Noise of a larger scale might have to be
        clipped, and would then not add up to 0.
    cells : int
        The length of a list, at least 2.
    """

    scale: float
    cells: int

    smooth_noise = True
    family = "laplace"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", round_scale_up(self.scale, most=2.0**980))

    @property
    @override
    def name(self) -> str:
        return "Zero-sum geometric"

    @property
    @override
    def sd(self) -> float:
        # The variance is (d - 1) / (d + 1) (x P_d(x) / P_{d-1}(x) - 1) at x = coth(1 / scale); see the proof page.
        u = 2 / self.scale
        coth_term, excess = coth_excess(u), legendre_excess(self.cells, u)
        if coth_term == 0:
            return 0.0
        return (
            math.sqrt((self.cells - 1) / (self.cells + 1))
            * math.sqrt(coth_term)
            * math.sqrt(1 + excess * (1 + 1 / coth_term))
        )

    @property
    @override
    def free_variance(self) -> float:
        # Exchangeable noise that adds up to 0 has the covariance of independent noise minus its mean.
        return self.sd**2 * self.cells / (self.cells - 1)

    @override
    def log_pmf(self, noise: Array) -> Array:
        return -np.abs(noise) / self.scale - self._log_normaliser / self.cells

    @cached_property
    def _log_normaliser(self) -> float:
        """Logarithm of the sum of `exp(-sum |z| / scale)` over all lists."""
        return log_legendre(self.cells - 1, 2 / self.scale)

    @override
    def log_probability(self, noise: Array) -> Array:
        return np.asarray(np.where(adds_up_to_0(noise), super().log_probability(noise), -np.inf))

    @override
    def fast(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return fast_zero_sum_laplace(self.scale, math.prod(shape) // self.cells, self.cells, rng).reshape(shape)

    @override
    def exact(self, shape: tuple[int, ...], bits: Bits) -> Whole:
        lists = range(math.prod(shape) // self.cells)
        return np.stack([zero_sum_laplace(Fraction(self.scale), self.cells, bits) for _ in lists]).reshape(shape)

    @override
    def of_row(self, cells: int) -> Noise:
        # Other rows balance the sum of a row, so the noise in the row is nearly independent and slightly smaller.
        return self if cells == self.cells else Geometric(self.scale)

    @override
    def sum_reach(self, cells: int, *, unlikely: float = 60.0) -> float:
        # The noise of some cells is independent noise, weighted by the probability that the other cells cancel its sum.
        # That probability decreases with the sum, so the sum is stochastically smaller than that of independent noise.
        return Geometric(self.scale).sum_reach(cells, unlikely=unlikely)

    @override
    def curves(self, blocks: int, records: int, changes: int) -> LossCurves:
        """A changed record is exposed if the noise of neither of its two cells hides it; see the proof page."""
        # The maximum loss of one record.
        u = round_up(2 / Fraction(self.scale))
        p_exposed = 1 / (-math.expm1(-u) * (1 + legendre_excess(self.cells - 1, u)))
        # It is at least that of independent noise.
        p_bound = min(raised(max(p_exposed, (1 + math.exp(-u / 2)) ** -2), 32), 1.0)
        return erased_responses(u, p_bound, records, blocks, round_up(2 * records * blocks / Fraction(self.scale)))

    @override
    def distributions(self, shifts: Array) -> FiniteDistributions:
        if np.any(shifts.sum(axis=-1) != 0):
            raise ArgumentError(
                "Expected two data sets with the same number of records in every block, which this noise publishes."
            )
        changed = [block[block != 0] for block in shifts if np.any(block)]
        return product_of([block_distributions(self.scale, self.cells, block) for block in changed])


@user_facing
@final
@dataclass(frozen=True, eq=False)
class GeometricMechanism(NoisyCounts):
    """Release `counts + G`, with `P[G = g]` proportional to `exp(-|g| / scale)`, independent in every cell.

    It is for private numbers of records. If the number is public, a release uses
    :class:`pymc_dirdp.mechanisms.ZeroSumGeometricMechanism`, which has less noise at the same guarantee.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    scale : float
        Scale of the noise, positive: that of the Laplace distribution of which this is the discrete form. It is rounded
        up to 41 binary digits, and the attribute is the rounded number.
    adjacency, postprocess, contribution
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`.

    Notes
    -----
    The exact sampler draws integer noise of any scale. The loss of one cell is `1 / scale` or `-1 / scale`, as in
    randomised response. With one record in each of R blocks the curves are exact. With m records in a block, the counts
    that increase satisfy `m / scale`-differential privacy, and so do the counts that decrease. The curves are those of
    randomised response at `m / scale`, which dominates all pairs with this guarantee. The pure epsilon is exact in all
    cases.

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
    noise_type: ClassVar[type[Noise]] = Geometric


@user_facing
@final
@dataclass(frozen=True, eq=False)
class ZeroSumGeometricMechanism(NoisyCounts):
    """Release `counts + Z`, with `P[Z = z]` proportional to `exp(-sum |z| / scale)` over integers z that add up to 0.

    The noisy counts of a table add up to its number of records, which is public. If a person has records in each entry
    of an axis (`"each"`), or if one entry is the person's own (`"own"`), the number of records of each entry is public.
    The noise of each entry then adds up to 0, and noise of different entries is independent.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    scale : float
        Scale of the noise, positive. It is rounded up to 41 binary digits, and the attribute is the rounded number.
    adjacency : {"replace-one"}
        No other adjacency leaves the number of records public.
    postprocess, contribution
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`. A person's records
        may change their cells within a block, but not their number. If numbers of records are private, use
        :class:`pymc_dirdp.mechanisms.GeometricMechanism`.

    Raises
    ------
    ArgumentError
        If the adjacency is "add-remove", or a number is outside its domain.

    Notes
    -----
    At a given scale the pure epsilon is the same as for independent noise, `2 m / scale` for each block in which a
    person has m records, and the variance is smaller: a quarter for d = 2, and nearly the same for many cells. For
    d = 2 this is geometric noise on one cell, which is universally optimal (Ghosh, Roughgarden and Sundararajan 2012).
    All curves are exact for one record in each block, and for up to 64 records in two cells. Otherwise they are bounds,
    and the pure epsilon is still exact.

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
    needs_public_totals: ClassVar[bool] = True
    instead: ClassVar[str] = "GeometricMechanism"

    @property
    @override
    def separate_axes(self) -> tuple[int, ...]:
        return self.contributed.fixed_axes

    @override
    def noise_at(self, parameter: float) -> ZeroSumGeometric:
        cells = self.prior.size // math.prod(self.prior.shape[axis] for axis in self.separate_axes)
        return ZeroSumGeometric(parameter, cells)
