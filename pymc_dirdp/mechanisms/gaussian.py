"""Discrete Gaussian noise on counts, with exact curves."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, reduce
from typing import ClassVar, final, override

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import positive, within
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.noise import LEAST, MOST, Noise, Whole
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.numerics.quadrature import bulk_breaks, nodes
from pymc_dirdp.numerics.roots import largest_safe, round_up
from pymc_dirdp.privacy.curves import PrivacyCurves, best_order, log_delta_at
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_gaussian, dyadic_above
from pymc_dirdp.signatures import user_facing


def gaussian_excess(
    ratio: float, start: float, *, lowest: float = -12.0, left_out: float = 1e-32, reach: float = 100.0
) -> tuple[float, float]:
    """Two numbers about `f(x) = phi(x) (1 - exp(-ratio (x - start)))`, 0 below `start`; phi is the normal density.

    With `start = epsilon / ratio - ratio / 2` its integral is the hockey-stick divergence at epsilon of two normal
    distributions whose centres are `ratio` standard deviations apart. The integrand is positive, so nothing cancels.
    Below `lowest` the probability is 1e-33, and `left_out` is added. Above, exp(-reach / 2) of the integrand is left
    out, and its bound is added.

    Returns
    -------
    integral : float
        The integral of f, from above up to rounding.
    variation : float
        An upper bound on the total variation of the derivative of f, its jump at `start` included.
    """
    # Everything is relative to the density at the start, if that is in the upper tail.
    reference = max(start, 0.0)
    left = max(0.0, lowest - start)
    end = math.sqrt(reference**2 + reach)
    y, weights = nodes(left + bulk_breaks(min(1.0, 1 / ratio, 1 / (1 + reference)), end - start - left))
    x = start + y
    # The exponent is (x**2 - reference**2) / 2, written so that nothing cancels in the upper tail.
    density = np.exp(-(y * (y / 2 + start) if start > 0 else x**2 / 2)) * weights
    fallen = np.exp(-ratio * y)
    integral = float(density @ -np.expm1(-ratio * y))
    bends = (x**2 + 1) * (1 - fallen) + ratio * (2 * np.abs(x) + ratio) * fallen
    at_start = math.exp(-(start**2 - reference**2) / 2)
    beyond = math.exp(-reach / 2) * min(1 / end, ratio * (1 + abs(start) / end))
    scale = math.exp(-(reference**2) / 2) / math.sqrt(2 * math.pi)
    below = left_out if left else 0.0
    return scale * (integral + beyond) + below, scale * (float(density @ bends) + ratio * at_start)


# Privacy curves of discrete Gaussian noise, from above: certified sums of positive terms.
#
# The noise of a cell takes the integer k with probability `exp(-k**2 / (2 s)) / theta(s)`. If `cells` counts move by
# `records` each, the loss is a function of the sum K of their noises, and by symmetry the hockey-stick divergence is
#
#     sum over j > t of P[K = j] (1 - exp(-(records / s) (j - t))),   t = s epsilon / records - cells records / 2.


# This covers the rounding of an exponential of at most 745 and of what is done with it, relative.
_SLACK = 1e-12


def delta(
    variance: float,
    cells: int,
    records: int,
    epsilon: float,
    *,
    close: float = 1e-12,
    most_convolved: int = 4096,
    most_summed: float = 2.0**24,
) -> float:
    """Upper bound on the hockey-stick divergence at epsilon >= 0, tight up to rounding, or to 1e-6 for large variances.

    The variance is the parameter s of the noise, exactly; `cells` counts move by `records` each (Theory, Exact noise).

    Parameters
    ----------
    variance, cells, records, epsilon : float
    close : float
        A sum of noises that is so close to a discrete Gaussian variable is taken for one, and what is missing is added.
    most_convolved : int
        Distributions of more cells are not convolved.
    most_summed : float
        Above this variance the sum is an integral with a bound on the difference, of about 1e-6 of it and less.
    """
    v = cells * variance
    # If `up` were infinite, the next difference would be NaN.
    up, down = min(variance * epsilon / records, sys.float_info.max), cells * records / 2
    # Chernoff's bound holds, because the noise is subgaussian with its parameter. It is rounded up.
    nearest = up - down - 1e-15 * (up + down)
    log_bound = -nearest * nearest / (2 * v) if nearest > 0 else 0.0
    if log_bound < -700:
        return max(math.exp(log_bound), 5e-324)
    # The fraction is exact: rounding must not decide whether an outcome counts.
    t = Fraction(variance) * Fraction(epsilon) / records - Fraction(cells * records, 2)
    closeness = _closeness(variance, cells)
    if closeness > close and cells > most_convolved:
        return converted(cells * records**2 / (2 * variance), epsilon)
    if closeness > close:
        # What is 0 in doubles weighs far less than 1e-305 together.
        summed = _summed(v, records / variance, t, _convolved(variance, cells)) + 1e-305
        slack = _SLACK + cells * _underflowing(v) * 1e-15
    else:
        summed = (_summed if v <= most_summed else _integrated)(v, records / variance, t) * (1 + closeness)
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


def _summed(v: float, slope: float, t: Fraction, masses: Array | None = None, *, ends: float = 100.0) -> float:
    """The sum, term by term; by default with the masses of one discrete Gaussian variable of variance v."""
    reach = math.ceil(math.sqrt(max(float(t), 0.0) ** 2 + ends * v)) + 2
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
        reach, middle = math.ceil(_underflowing(n * variance)), len(distribution) // 2
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


def _underflowing(variance: float) -> float:
    """How far out masses are below exp(-745), which is 0 in doubles."""
    return math.sqrt(2 * 745.0 * variance)


def _single(variance: float) -> Array:
    reach = math.ceil(_underflowing(variance))
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


@final
@dataclass(frozen=True)
class DiscreteGaussianCurves(PrivacyCurves):
    """The curves of `groups` groups of counts, each of which gains or loses `records` in all.

    Attributes
    ----------
    variance : Fraction
        The parameter of the noise.
    groups, records : int
    """

    variance: Fraction
    groups: int
    records: int

    @override
    def _renyi(self, order: float) -> float:
        if self.records == 1 or order == math.inf:
            return renyi(self.variance, self.groups, order)
        return round_up(Fraction(order) * self._slope)

    @override
    def _rho(self, omega: float) -> float:
        return round_up(self._slope)

    @property
    def _slope(self) -> Fraction:
        """Half of the squared l2 distance of neighbours over the variance."""
        return self.groups * self.records**2 / (2 * self.variance)

    @override
    def _delta(self, epsilon: float) -> float:
        together = delta(float(self.variance), self.groups, self.records, epsilon)
        if self.records == 1 or together == 1:
            return together
        # If the m records of some group are not all in one cell, its squares add up to (m - 1)**2 + 1 at most.
        spread = self._slope - (self.records - 1) / self.variance
        return max(together, converted(round_up(spread), epsilon))


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

    @cached_property
    def variance(self) -> Fraction:
        """The parameter that is really used: the square of `sigma`, rounded up by 2**-40 at most, relative."""
        return dyadic_above(Fraction(self.sigma) ** 2)

    @property
    @override
    def sd(self) -> float:
        """The true one; nearly the root of its parameter if that is above 1."""
        if self.variance > 100:
            return math.sqrt(self.variance)
        k, distribution = self._listed
        return math.sqrt(float(distribution @ k**2))

    @cached_property
    def _listed(self) -> tuple[Array, Array]:
        """The integers that are not negligible, and their probabilities."""
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
        """By the inverse of the distribution function; rounded normal noise where that is as good to 1e-7."""
        if self.variance > 1e6:
            return np.rint(rng.normal(0.0, math.sqrt(self.variance), size=shape))
        k, distribution = self._listed
        places = np.searchsorted(np.cumsum(distribution), rng.random(shape), side="right")
        return np.asarray(k[np.minimum(places, len(k) - 1)])

    @override
    def exact(self, shape: tuple[int, ...], bits: Bits) -> Whole:
        return discrete_gaussian(self.variance, shape, bits)

    @override
    def curves(self, blocks: int, records: int, changes: int) -> DiscreteGaussianCurves:
        return DiscreteGaussianCurves(self.variance, blocks * changes, records)

    @classmethod
    @override
    def least(cls, excess: Callable[[float], float]) -> float:
        """The search goes down to the first sigma that is not safe, because smaller ones may be safe again."""

        def at(sigma: float) -> float:
            if sigma > MOST:
                raise UnattainableError("The guarantee is so tight that no sigma up to 2**200 keeps it; relax it.")
            return excess(sigma) if sigma >= LEAST else math.inf

        return _first_safe(at, 1 / largest_safe(lambda inverse: at(1 / inverse)))

    @override
    def distributions(self, shifts: Array) -> FiniteDistributions:
        changed = [round(shift) for shift in shifts[shifts != 0].tolist()]
        if not changed:
            raise ArgumentError("Expected two data sets that differ.")
        return _convolved_outputs(self, changed)


def _first_safe(
    excess: Callable[[float], float], safe: float, *, fine: float = 8.0, step: float = 0.98, bisections: int = 32
) -> float:
    """The end of the safe sigmas below which the first is not safe.

    The search goes down by the factor `step`, and then bisects. Above `fine` the lattice is too fine for delta to rise
    with sigma.
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
    """The likelihood ratio depends on `shifts @ noise` alone, so the distribution of that is convolved.

    It is listed `reach` times sigma far; below `least_listed` one of the two would be 0, and the loss infinite.
    """
    ends = math.ceil(reach * math.sqrt(noise.variance)) + max(map(abs, shifts)) + 2
    if 2 * ends * sum(map(abs, shifts)) > most_cells:
        raise ArgumentError(
            f"The distribution of noise with sigma={noise.sigma:g} has too many cells to be summed over."
        )
    g = np.arange(-ends, ends + 1, dtype=np.float64)

    def cell(centre: int, shift: int) -> Array:
        """Probabilities of `shift * (centre + noise)`, in rising order. No other multiples are possible."""
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
        # This is Poisson's summation formula; the next term is below 1e-60.
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
    noise_type: ClassVar[type[Noise]] = DiscreteGaussian

    @property
    def variance(self) -> Fraction:
        """The parameter that is really used: the square of `sigma`, rounded up by 2**-40 at most, relative."""
        return DiscreteGaussian(self.sigma).variance
