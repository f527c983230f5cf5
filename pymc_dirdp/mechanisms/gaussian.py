"""Discrete Gaussian noise on counts, with exact curves."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, reduce
from typing import Any, ClassVar, final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.noisy_counts import LEAST, MOST, NoisyCounts
from pymc_dirdp.numerics.quadrature import bulk_breaks, nodes
from pymc_dirdp.numerics.roots import largest_safe, round_up
from pymc_dirdp.privacy.curves import best_order, log_delta_at
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_gaussian, dyadic_above
from pymc_dirdp.signatures import user_facing

# Further than this below 0, in standard deviations, the probability is 1e-33; it is added.
_LEFT, _LEFT_OUT = -12.0, 1e-32
# Above, exp(-50) of the integrand is left out; its bound is added.
_REACH = 100.0


def gaussian_excess(ratio: float, start: float) -> tuple[float, float]:
    """Two numbers about `f(x) = phi(x) (1 - exp(-ratio (x - start)))`, 0 below `start`; phi is the normal density.

    With `start = epsilon / ratio - ratio / 2` its integral is the hockey-stick divergence at epsilon of two normal
    distributions whose centres are `ratio` standard deviations apart. The integrand is positive, so nothing cancels.

    Returns
    -------
    integral : float
        The integral of f, from above up to rounding.
    variation : float
        An upper bound on the total variation of the derivative of f, its jump at `start` included.
    """
    # Everything is relative to the density at the start, if that is in the upper tail.
    reference = max(start, 0.0)
    left = max(0.0, _LEFT - start)
    end = math.sqrt(reference**2 + _REACH)
    y, weights = nodes(left + bulk_breaks(min(1.0, 1 / ratio, 1 / (1 + reference)), end - start - left))
    x = start + y
    # The exponent is (x**2 - reference**2) / 2, written so that nothing cancels in the upper tail.
    density = np.exp(-(y * (y / 2 + start) if start > 0 else x**2 / 2)) * weights
    fallen = np.exp(-ratio * y)
    integral = float(density @ -np.expm1(-ratio * y))
    bends = (x**2 + 1) * (1 - fallen) + ratio * (2 * np.abs(x) + ratio) * fallen
    at_start = math.exp(-(start**2 - reference**2) / 2)
    beyond = math.exp(-_REACH / 2) * min(1 / end, ratio * (1 + abs(start) / end))
    scale = math.exp(-(reference**2) / 2) / math.sqrt(2 * math.pi)
    below = _LEFT_OUT if left else 0.0
    return scale * (integral + beyond) + below, scale * (float(density @ bends) + ratio * at_start)


# Privacy curves of discrete Gaussian noise, from above: certified sums of positive terms.
#
# The noise of a cell takes the integer k with probability `exp(-k**2 / (2 s)) / theta(s)`. If `cells` counts move by
# `records` each, the loss is a function of the sum K of their noises, and by symmetry the hockey-stick divergence is
#
#     sum over j > t of P[K = j] (1 - exp(-(records / s) (j - t))),   t = s epsilon / records - cells records / 2.


# This covers the rounding of an exponential of at most 745 and of what is done with it, relative.
_SLACK = 1e-12
_LEAST = 5e-324
# A sum of noises that is this close to a discrete Gaussian variable is taken for one, and what is missing is added.
_CLOSE = 1e-12
# Distributions of more cells are not convolved.
_MOST_CONVOLVED = 4096
# Masses below exp(-745) are 0 in doubles; what all of them weigh together is far below this.
_UNDERFLOW, _UNDERFLOWN = 745.0, 1e-305
# Above this variance the sum is an integral with a bound on the difference, of about 1e-6 of it and less.
_MOST_SUMMED = 2.0**24


def delta(variance: float, cells: int, records: int, epsilon: float) -> float:
    """Upper bound on the hockey-stick divergence at epsilon >= 0, tight up to rounding or 1e-6 (see the constants).

    The variance is the parameter s of the noise, exactly; `cells` counts move by `records` each (Theory, Exact noise).
    """
    v = cells * variance
    # If `up` were infinite, the next difference would be NaN.
    up, down = min(variance * epsilon / records, sys.float_info.max), cells * records / 2
    # Chernoff's bound holds, because the noise is subgaussian with its parameter. It is rounded up.
    nearest = up - down - 1e-15 * (up + down)
    log_bound = -nearest * nearest / (2 * v) if nearest > 0 else 0.0
    if log_bound < -700:
        return max(math.exp(log_bound), _LEAST)
    # The fraction is exact: rounding must not decide whether an outcome counts.
    t = Fraction(variance) * Fraction(epsilon) / records - Fraction(cells * records, 2)
    closeness = _closeness(variance, cells)
    if closeness > _CLOSE and cells > _MOST_CONVOLVED:
        return converted(cells * records**2 / (2 * variance), epsilon)
    if closeness > _CLOSE:
        summed = _summed(v, records / variance, t, _convolved(variance, cells)) + _UNDERFLOWN
        slack = _SLACK + cells * math.sqrt(2 * _UNDERFLOW * v) * 1e-15
    else:
        summed = (_summed if v <= _MOST_SUMMED else _integrated)(v, records / variance, t) * (1 + closeness)
        slack = _SLACK
    return min(summed * (1 + slack), math.exp(log_bound))


def converted(rho: float, epsilon: float) -> float:
    """The least delta that follows from Rényi divergences of at most `order * rho`, or from Pinsker's inequality."""

    def log_delta(order: float) -> float:
        return log_delta_at(order, order * rho, epsilon)

    return min(1.0, math.sqrt(rho / 2) * (1 + _SLACK), math.exp(log_delta(best_order(log_delta))) * (1 + _SLACK))


def _closeness(variance: float, cells: int) -> float:
    """How much larger, relative, a probability of the sum may be than that of one variable of the summed variance.

    `(1 + tau) / (1 - tau) - 1` with `tau = (1 + 2 q + 2 q**4 + ...)**cells - 1` and `q = exp(-pi**2 variance)`.
    """
    q = math.exp(-(math.pi**2) * variance)
    tau = math.expm1(min(cells * math.log1p(2 * q / (1 - q)), 700.0)) if q < 1 else math.inf
    return 2 * tau / (1 - tau) if tau < 0.5 else math.inf


def _summed(v: float, slope: float, t: Fraction, masses: Array | None = None) -> float:
    """The sum, term by term; by default with the masses of one discrete Gaussian variable of variance v."""
    reach = math.ceil(math.sqrt(max(float(t), 0.0) ** 2 + _REACH * v)) + 2
    first = max(math.floor(t) + 1, -reach)
    steps = np.arange(reach + 1 - first, dtype=np.float64)
    j = first + steps
    terms = -np.expm1(-slope * (float(first - t) + steps))
    if masses is not None:
        index = np.abs(j).astype(np.int64)
        inside = index < len(masses)
        return float(masses[index[inside]] @ terms[inside])
    # A falling geometric sequence lies above what is beyond the reach, on either side.
    beyond = math.exp(-((reach + 1) ** 2) / (2 * v)) / -math.expm1(-(2 * reach + 3) / (2 * v))
    # theta is at least the integral of its terms, by Poisson's formula.
    return (float(np.exp(-(j**2) / (2 * v)) @ terms) + 2 * beyond) / math.sqrt(2 * math.pi * v)


def _integrated(v: float, slope: float, t: Fraction) -> float:
    """The integral in place of the sum: they differ by an eighth of the derivative's total variation at most."""
    deviation = math.sqrt(v)
    integral, variation = gaussian_excess(slope * deviation, float(t) / deviation)
    return integral + variation / (8 * v)


@lru_cache(maxsize=64)
def _convolved(variance: float, cells: int) -> Array:
    """Probabilities of 0, 1, ... of the sum of the noises of several cells, by convolution of positive numbers."""

    def within(distribution: Array, n: int) -> Array:
        reach, middle = math.ceil(math.sqrt(2 * _UNDERFLOW * n * variance)), len(distribution) // 2
        return distribution[max(middle - reach, 0) : middle + reach + 1]

    power, power_of = _single(variance), 1
    distribution, raised_to = np.ones(1), 0
    left = cells
    while left:
        if left & 1:
            raised_to += power_of
            distribution = within(np.convolve(distribution, power), raised_to)
        left >>= 1
        if left:
            power_of *= 2
            power = within(np.convolve(power, power), power_of)
    return distribution[len(distribution) // 2 :]


def _single(variance: float) -> Array:
    reach = math.ceil(math.sqrt(2 * _UNDERFLOW * variance))
    weights: Array = np.exp(-(np.arange(-reach, reach + 1, dtype=np.float64) ** 2) / (2 * variance))
    return weights / math.fsum(weights)


def renyi(variance: Fraction, cells: int, order: float) -> float:
    """Upper bound on the Rényi divergence at an order >= 1 if `cells` counts move by 1 each, tight up to rounding.

    `order / (2 s)` for each cell at whole orders, and below that between them.
    """
    if order == math.inf:
        return math.inf
    whole = round_up(cells * Fraction(order) / (2 * variance))
    if order == 1:
        return whole
    less = cells * log_theta_ratio(float(variance), order) / (order - 1)
    return math.nextafter(whole + less * (1 - _SLACK), math.inf)


def log_theta_ratio(variance: float, x: float) -> float:
    """`log(theta(x) / theta(0))` with `theta(x) = sum exp(-(k - x)**2 / (2 s))` over whole k: 0 at whole x, else below.

    Without cancellation: by the sum itself if s is small, and by Poisson's formula if it is not.
    """
    x -= round(x)
    if x == 0:
        return 0.0
    if variance < 0.3:
        # theta(x) is exp(-x**2 / (2 s)) times the sum of exp(-k**2 / (2 s)) cosh(k x / s).
        k = np.arange(1.0, 40.0)
        weights = np.exp(-(k**2) / (2 * variance))
        more = (np.exp(-k * (k - 2 * abs(x)) / (2 * variance)) * np.expm1(-k * abs(x) / variance) ** 2).sum()
        return math.log1p(float(more) / (1 + 2 * float(weights.sum()))) - x * x / (2 * variance)
    k = np.arange(1.0, 12.0)
    weights = np.exp(-2 * (math.pi * k) ** 2 * variance)
    less = 4 * float(weights @ np.sin(math.pi * k * x) ** 2)
    return math.log1p(-less / (1 + 2 * float(weights.sum())))


# Up to this variance the normaliser is a sum of so many terms.
_WIDE, _TERMS = 2.0, 80
# Audits sum over so many sigmas, over so many cells at most, and take smaller probabilities for this one.
_DISCRETE_GAUSSIAN_REACH, _MOST_CELLS = 13.0, 400_000
_LEAST_LISTED = 1e-290
# The search for the least noise goes down by this factor until a guarantee breaks, and then bisects.
_STEP = 0.98
_BISECTIONS = 32
# Above this sigma the lattice is too fine for delta to rise with it.
_FINE = 8.0


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
        Parameter of the noise, between 2**-200 and 2**200; above 1 it is nearly its standard deviation. Its square is
        rounded up to a rational number, see `variance`.
    adjacency, postprocess, contribution
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`.

    Notes
    -----
    All curves are those of the rational variance that is drawn with. `rho` is `Delta_2**2 / (2 variance)` for every
    omega, as for continuous noise, with `Delta_2**2` equal to m**2 times the groups of cells that change; Rényi
    divergences are equal to those of continuous noise at whole orders and below them between. The hockey-stick
    divergence is not below the continuous one, so it has its own sums. With one record in each of several blocks it is
    exact; with m records in a block it is the larger of that of all m in one cell, exact, and of what the Rényi
    divergences of everything else imply.

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
    smooth_noise: ClassVar[bool] = True

    @cached_property
    def variance(self) -> Fraction:
        """The parameter that is really used: the square of `sigma`, rounded up by 2**-40 at most, relative."""
        return dyadic_above(Fraction(self.sigma) ** 2)

    @property
    @override
    def noise_sd(self) -> float:
        return gaussian_deviation(float(self.variance))

    @override
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return gaussian_noise(float(self.variance), shape, rng)

    @override
    def log_noise(self, noise: Array) -> Array:
        variance = float(self.variance)
        return -(noise**2) / (2 * variance) - _log_normaliser(variance)

    @override
    def exact_noise(self, shape: tuple[int, ...], bits: Bits) -> NDArray[Any]:
        return discrete_gaussian(self.variance, shape, bits)

    @override
    def _renyi(self, order: float) -> float:
        if self._records == 1 or order == math.inf:
            return renyi(self.variance, self._groups, order)
        return round_up(Fraction(order) * self._slope)

    @override
    def _rho(self, omega: float) -> float:
        return round_up(self._slope)

    @property
    def _slope(self) -> Fraction:
        """Half of the squared l2 distance of neighbours over the variance."""
        return self._groups * self._records**2 / (2 * self.variance)

    @override
    def _delta(self, epsilon: float) -> float:
        together = delta(float(self.variance), self._groups, self._records, epsilon)
        if self._records == 1 or together == 1:
            return together
        # If the m records of some group are not all in one cell, its squares add up to (m - 1)**2 + 1 at most.
        spread = self._slope - (self._records - 1) / self.variance
        return max(together, converted(round_up(spread), epsilon))

    @classmethod
    @override
    def _least(cls, excess: Callable[[float], float]) -> float:
        """The search goes down to the first sigma that is not safe, because smaller ones may be safe again."""

        def at(sigma: float) -> float:
            if sigma > MOST:
                raise UnattainableError("The guarantee is so tight that no sigma up to 2**200 keeps it; relax it.")
            return excess(sigma) if sigma >= LEAST else math.inf

        safe = 1 / largest_safe(lambda inverse: at(1 / inverse))
        if safe > _FINE:
            return safe
        safe *= 2
        while at(safe) > 0:
            safe *= 2
        unsafe = _STEP * safe
        while at(unsafe) <= 0:
            safe, unsafe = unsafe, _STEP * unsafe
        for _ in range(_BISECTIONS):
            middle = (safe + unsafe) / 2
            safe, unsafe = (middle, unsafe) if at(middle) <= 0 else (safe, middle)
        return safe

    @override
    def output_distributions(self, x: Array, y: Array, cells: int | None = None) -> FiniteDistributions:
        """The likelihood ratio depends on `(x - y) @ noise` alone, so the distribution of that is convolved."""
        shifts = [round(float(shift)) for shift in (x - y)[x != y]]
        if not shifts:
            raise ArgumentError("Expected two data sets that differ.")
        reach = math.ceil(_DISCRETE_GAUSSIAN_REACH * math.sqrt(self.variance)) + max(map(abs, shifts)) + 2
        if 2 * reach * sum(map(abs, shifts)) > _MOST_CELLS:
            raise ArgumentError(
                f"The distribution of noise with sigma={self.sigma:g} has too many cells to be summed over."
            )
        g = np.arange(-reach, reach + 1, dtype=np.float64)

        def cell(centre: int, shift: int) -> Array:
            """Probabilities of `shift * (centre + noise)`, in rising order. No other multiples are possible."""
            spread = np.zeros((len(g) - 1) * abs(shift) + 1)
            spread[:: abs(shift)] = np.exp(self.log_noise(g - centre))
            return spread if shift > 0 else spread[::-1]

        def distribution(centres: list[int]) -> Array:
            return reduce(np.convolve, [cell(c, s) for c, s in zip(centres, shifts, strict=True)])

        # Below the least double one of the two would be 0, and the loss infinite.
        p, q = (np.maximum(distribution(centres), _LEAST_LISTED) for centres in (shifts, [0] * len(shifts)))
        return FiniteDistributions(np.log(p), np.log(q))


def _log_normaliser(variance: float) -> float:
    """Logarithm of the sum of `exp(-k**2 / (2 variance))` over all integers k."""
    if variance > _WIDE:
        # This is Poisson's summation formula; the next term is below 1e-60.
        return math.log(2 * math.pi * variance) / 2 + math.log1p(2 * math.exp(-2 * math.pi**2 * variance))
    return math.log1p(2 * math.fsum(math.exp(-(k**2) / (2 * variance)) for k in range(1, _TERMS)))


# Above this variance a discrete Gaussian variable is a rounded normal one up to 1e-7 of the variance.
_MOST_LISTED = 1e6


def gaussian_noise(variance: float, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Discrete Gaussian noise as doubles, by the inverse of its distribution function."""
    if variance > _MOST_LISTED:
        return np.rint(rng.normal(0.0, math.sqrt(variance), size=shape))
    k, distribution = _listed(variance)
    return np.asarray(
        k[np.minimum(np.searchsorted(np.cumsum(distribution), rng.random(shape), side="right"), len(k) - 1)]
    )


def gaussian_deviation(variance: float) -> float:
    """The true standard deviation of discrete Gaussian noise; nearly the root of its parameter if that is above 1."""
    if variance > 100:
        return math.sqrt(variance)
    k, distribution = _listed(variance)
    return math.sqrt(float(distribution @ k**2))


def _listed(variance: float) -> tuple[Array, Array]:
    reach = 1 + math.ceil(10 * math.sqrt(variance))
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    weights: Array = np.exp(-(k**2) / (2 * variance))
    return k, weights / weights.sum()
