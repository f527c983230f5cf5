"""Discrete Gaussian noise on counts, with exact curves."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from typing import ClassVar, final, override

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import positive, within
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.noise import LEAST, MOST, Noise, Whole
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.numerics.roots import largest_satisfying
from pymc_dirdp.privacy.gaussian_loss import GaussianLoss
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_gaussian, dyadic_above
from pymc_dirdp.signatures import user_facing


@final
@dataclass(frozen=True)
class DiscreteGaussian(Noise):
    """`P[K = k]` proportional to `exp(-k**2 / (2 sigma**2))`, independent in every cell.

    Parameters
    ----------
    sigma : float
        Between 2**-200 and 2**200.
    """

    sigma: float

    smooth_noise = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", positive(sigma=self.sigma))
        within(LEAST, MOST, sigma=self.sigma)

    @property
    @override
    def name(self) -> str:
        return "Discrete Gaussian"

    @cached_property
    def variance(self) -> Fraction:
        """The exact parameter of the sampler: the square of `sigma`, rounded up by a relative 2**-40 at most."""
        return dyadic_above(Fraction(self.sigma) ** 2)

    @property
    @override
    def sd(self) -> float:
        """The exact standard deviation; above 1 it is nearly the square root of the parameter."""
        if self.variance > 100:
            return math.sqrt(self.variance)
        k, distribution = self._listed
        return math.sqrt(float(distribution @ k**2))

    @cached_property
    def _listed(self) -> tuple[Array, Array]:
        """The integers with non-negligible probabilities, and these probabilities."""
        variance = float(self.variance)
        reach = 1 + math.ceil(10 * math.sqrt(variance))
        k = np.arange(-reach, reach + 1, dtype=np.float64)
        weights: Array = np.exp(-(k**2) / (2 * variance))
        return k, weights / weights.sum()

    @override
    def log_pmf(self, noise: Array) -> Array:
        variance = float(self.variance)
        return -(noise**2) / (2 * variance) - _log_normaliser(variance)

    @override
    def fast(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Inversion of the distribution function; for large sigma rounded normal noise, which agrees to 1e-7."""
        if self.variance > 1e6:
            return np.rint(rng.normal(0.0, math.sqrt(self.variance), size=shape))
        k, distribution = self._listed
        places = np.searchsorted(np.cumsum(distribution), rng.random(shape), side="right")
        return np.asarray(k[np.minimum(places, len(k) - 1)])

    @override
    def exact(self, shape: tuple[int, ...], bits: Bits) -> Whole:
        return discrete_gaussian(self.variance, shape, bits)

    @override
    def curves(self, blocks: int, records: int, changes: int) -> GaussianLoss:
        return GaussianLoss(self.variance, blocks * changes, records)

    @classmethod
    @override
    def least(cls, excess: Callable[[float], float]) -> float:
        """The search goes down to the first sigma that fails, because even smaller values may satisfy it again."""

        def bounded_excess(sigma: float) -> float:
            if sigma > MOST:
                raise UnattainableError(
                    "No sigma up to 2**200 satisfies this guarantee. Ask for a larger epsilon, rho or delta."
                )
            return excess(sigma) if sigma >= LEAST else math.inf

        return _first_safe(bounded_excess, 1 / largest_satisfying(lambda inverse: bounded_excess(1 / inverse)))

    @override
    def distributions(self, shifts: Array) -> FiniteDistributions:
        changed = [round(shift) for shift in shifts[shifts != 0].tolist()]
        if not changed:
            raise ArgumentError("Expected two data sets that differ, got equal ones.")
        return _convolved_outputs(self, changed)


def _first_safe(
    excess: Callable[[float], float], safe: float, *, fine: float = 8.0, step: float = 0.98, bisections: int = 32
) -> float:
    """The smallest safe sigma such that all larger values are safe.

    The search goes down by the factor `step`, and then bisects. Above `fine` the lattice is so fine that delta does not
    increase with sigma.
    """
    if safe > fine:
        return safe
    safe *= 2
    while excess(safe) > 0:
        safe *= 2
    unsafe = step * safe
    while excess(unsafe) <= 0:
        safe, unsafe = unsafe, step * unsafe
    for _ in range(bisections):
        middle = (safe + unsafe) / 2
        safe, unsafe = (middle, unsafe) if excess(middle) <= 0 else (safe, middle)
    return safe


def _convolved_outputs(
    noise: DiscreteGaussian,
    shifts: list[int],
    *,
    reach: float = 13.0,
    most_cells: int = 400_000,
    least_listed: float = 1e-290,
) -> FiniteDistributions:
    """The distributions of `shifts @ noise`, a sufficient statistic of the likelihood ratio, by convolution.

    The noise is listed to `reach` times sigma. Probabilities below `least_listed` are raised to it, because the loss
    would be infinite if one of the two were 0.
    """
    ends = math.ceil(reach * math.sqrt(noise.variance)) + max(map(abs, shifts)) + 2
    if 2 * ends * sum(map(abs, shifts)) > most_cells:
        raise ArgumentError(
            f"The distribution of noise with sigma={noise.sigma:g} has too many cells to sum over. Use audit, which "
            "samples it."
        )
    g = np.arange(-ends, ends + 1, dtype=np.float64)

    def cell(centre: int, shift: int) -> Array:
        """Probabilities of `shift * (centre + noise)`, in rising order; other integers have probability 0."""
        spread = np.zeros((len(g) - 1) * abs(shift) + 1)
        spread[:: abs(shift)] = np.exp(noise.log_pmf(g - centre))
        return spread if shift > 0 else spread[::-1]

    def distribution(centres: list[int]) -> Array:
        return reduce(np.convolve, [cell(c, s) for c, s in zip(centres, shifts, strict=True)])

    p, q = (np.maximum(distribution(centres), least_listed) for centres in (shifts, [0] * len(shifts)))
    return FiniteDistributions(np.log(p), np.log(q))


def _log_normaliser(variance: float, *, wide: float = 2.0, terms: int = 80) -> float:
    """Logarithm of the sum of `exp(-k**2 / (2 variance))` over all integers k."""
    if variance > wide:
        # Poisson's summation formula; the next term is below 1e-60.
        return math.log(2 * math.pi * variance) / 2 + math.log1p(2 * math.exp(-2 * math.pi**2 * variance))
    return math.log1p(2 * math.fsum(math.exp(-(k**2) / (2 * variance)) for k in range(1, terms)))


@user_facing
@final
@dataclass(frozen=True, eq=False)
class DiscreteGaussianMechanism(NoisyCounts):
    """Release `counts + K`, with `P[K = k]` proportional to `exp(-k**2 / (2 sigma**2))`, independent in every cell.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    sigma : float
        Parameter of the noise, between 2**-200 and 2**200; above 1 it is nearly the standard deviation. Its square is
        rounded up to a rational number, see `variance`.
    adjacency, postprocess, contribution
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`.

    Notes
    -----
    All curves are those of the rational variance that the sampler uses. As for continuous noise, `rho` is
    `Delta_2**2 / (2 variance)` for every omega, where `Delta_2**2` is m**2 times the number of groups of cells that
    change. The Rényi divergences equal those of continuous noise at integer orders and are smaller between them. The
    hockey-stick divergence can exceed that of continuous noise, so it is computed by sums over integers. With one
    record in each of several blocks it is exact. With m records in a block it is a maximum of two curves: the exact
    curve of all m records in one cell, and the bound that the Rényi divergences of all other changes imply.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy,
    https://doi.org/10.48550/arXiv.2004.00010, Algorithm 3 and Theorem 7. Theory, Exact noise.

    Examples
    --------
    >>> mechanism = DiscreteGaussianMechanism([1, 1, 1, 1], 5.0)
    >>> mechanism.rho(8)
    0.04
    >>> mechanism.epsilon(1e-6)
    1.2...
    >>> mechanism.release([108, 286, 71, 127]).shape
    (4,)
    """

    sigma: float

    kind: ClassVar[str] = "gaussian"
    noise_type: ClassVar[type[Noise]] = DiscreteGaussian

    @property
    def variance(self) -> Fraction:
        """The exact parameter of the sampler: the square of `sigma`, rounded up by a relative 2**-40 at most."""
        return DiscreteGaussian(self.sigma).variance
