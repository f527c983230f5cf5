"""The loss of counts under discrete Gaussian noise: sums of positive terms from above, at one epsilon or on a grid."""

import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Self, final, override

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.quadrature import bulk_breaks, inner, nodes
from pymc_dirdp.numerics.roots import raised, round_up
from pymc_dirdp.privacy.curves import LossCurves
from pymc_dirdp.privacy.divergences import delta_grid

# The rounding error of an exponential of at most 745 and of its use, 1e-12 of it.
_ULPS = 2.0**12
# Terms beyond a share exp(-50) of the sum are replaced by their bound.
_REACH = 100.0
# Masses below exp(-745) are 0 in doubles.
_UNDERFLOW = 745.0


@final
@dataclass(frozen=True)
class GaussianLoss(LossCurves):
    """The loss of counts with independent discrete Gaussian noise, some of which change by several records.

    The noise of a count takes the integer k with probability proportional to `exp(-k**2 / (2 variance))`. With one
    record in each group the hockey-stick divergence is exact. With m records in a group it is the larger of that of all
    m in one cell, exact, and of the bound from the Rényi divergences of all other cases.

    Parameters
    ----------
    variance : Fraction
        The parameter of the noise, equal to a double.
    groups : int
        The groups of cells that change, at least 1.
    records : int
        By how many records the counts of a group change together, at least 1.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Theorem 7. Theory, Exact noise.

    Examples
    --------
    >>> GaussianLoss(Fraction(25), 2, 1).epsilon(1e-6)
    1.2...
    """

    variance: Fraction
    groups: int
    records: int
    # All points of a grid are one pass.
    widening: ClassVar[float] = 2e-5

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
    def _deltas(self, epsilons: Array) -> Array:
        one_cell = deltas(float(self.variance), self.groups, self.records, epsilons)
        if self.records == 1 or np.all(one_cell == 1):
            return one_cell
        # If the m records of some group are not all in one cell, its squares add up to (m - 1)**2 + 1 at most.
        spread = self._slope - (self.records - 1) / self.variance
        return np.maximum(one_cell, convert_deltas(round_up(spread), epsilons))


def deltas(variance: float, cells: int, records: int, epsilons: Array, *, max_closeness: float = 1e-12) -> Array:
    """Upper bounds on the hockey-stick divergence at ascending epsilons >= 0, tight up to rounding or 1e-6.

    The loss is a function of the sum K of the noises of the cells, and by symmetry the divergence is

        sum over j > t of P[K = j] (1 - exp(-(records / s) (j - t))),   t = s epsilon / records - cells records / 2.

    A sum of noises that is as close as `max_closeness` to one discrete Gaussian variable is taken for one, and what is
    missing is added. Otherwise the noises are convolved.

    Parameters
    ----------
    variance : float
        The parameter s of the noise, exactly.
    cells, records : int
        The number of counts that change, and by how many records each (Theory, Exact noise).
    epsilons : array, shape (n,)
    """
    v = cells * variance
    with np.errstate(over="ignore"):
        # If these were infinite, the next difference would be NaN.
        up, down = np.minimum(variance * epsilons / records, sys.float_info.max), cells * records / 2
        # Chernoff's bound holds, because the noise is subgaussian with its parameter. It is rounded up.
        nearest = np.maximum(up - down - 1e-15 * (up + down), 0.0)
        log_bounds = -nearest * nearest / (2 * v)
    bounds = np.maximum(np.exp(log_bounds), 5e-324)
    near = epsilons[log_bounds >= -700]
    if not len(near):
        return bounds
    t = _Thresholds.of(variance, cells, records, near)
    closeness, slope = _closeness(variance, cells), records / variance
    # A term for every point of the grid, each of which is computed from the next one.
    rounding = _ULPS + 4 * len(near)
    if closeness <= max_closeness:
        sums = _single_variable_sums(v, slope, t) * (1 + closeness)
    elif cells <= 4096:
        # The total of all masses that are 0 in doubles is far below 1e-305.
        sums = t.excess(slope, *_convolve(variance, cells)) + 1e-305
        rounding += 4 * cells * math.sqrt(2 * _UNDERFLOW * v)
    else:
        sums = convert_deltas(cells * records**2 / (2 * variance), near)
    bounds[: len(near)] = np.minimum(raised(sums, rounding), bounds[: len(near)])
    return bounds


def convert_deltas(rho: float, epsilons: Array) -> Array:
    """The least deltas implied by Rényi divergences of at most `order * rho`, or by Pinsker's inequality."""
    # The logarithm of delta is convex in the order, and every order gives a bound.
    low, high = np.full(epsilons.shape, -300.0), np.full(epsilons.shape, 300.0)
    for _ in range(60):
        log_order_minus_1 = (low + high) / 2
        rises = (1 + 2 * np.exp(log_order_minus_1)) * rho - np.logaddexp(0.0, -log_order_minus_1) > epsilons
        low, high = np.where(rises, low, log_order_minus_1), np.where(rises, log_order_minus_1, high)
    order_minus_1 = np.exp(high)
    with np.errstate(over="ignore", invalid="ignore"):
        gain, cost = (
            order_minus_1 * (1 + order_minus_1) * rho,
            order_minus_1 * (epsilons + np.logaddexp(0.0, -high)) + np.log1p(order_minus_1),
        )
        # The rounding error of a difference is added. Terms that overflow give no bound.
        logs = np.nan_to_num(gain * (1 + 1e-15) - cost * (1 - 1e-15), nan=0.0, neginf=-math.inf)
    bounds: Array = raised(np.minimum(np.exp(np.minimum(logs, 0.0)), math.sqrt(rho / 2)), _ULPS)
    return np.minimum(bounds, 1.0)


def _closeness(variance: float, cells: int) -> float:
    """The largest relative excess of a probability of the sum over that of one variable with the summed variance.

    `(1 + tau) / (1 - tau) - 1` with `tau = (1 + 2 q + 2 q**4 + ...)**cells - 1` and `q = exp(-pi**2 variance)`.
    """
    q = math.exp(-(math.pi**2) * variance)
    tau = math.expm1(min(cells * math.log1p(2 * q / (1 - q)), 700.0)) if q < 1 else math.inf
    return 2 * tau / (1 - tau) if tau < 0.5 else math.inf


@dataclass(frozen=True, eq=False)
class _Thresholds:
    """The points at which the loss exceeds each of some ascending epsilons.

    Attributes
    ----------
    following, gaps : array, shape (n,)
        Each threshold is `following - gap`. Over integers `following` is the first one above it, so that rounding
        does not decide whether an outcome counts.
    steps : array, shape (n - 1,)
        From each epsilon to the next.
    """

    following: Array
    gaps: Array
    steps: Array

    @classmethod
    def of(cls, variance: float, cells: int, records: int, epsilons: Array) -> Self:
        """The thresholds `variance * epsilon / records - cells * records / 2`."""
        # The product is exact as the sum of two doubles, by the halves of its factors (Dekker); so are its quotient by
        # the number of records, up to a part in 10^16 of the smaller one, and the difference (Knuth).
        product, (rows, columns) = variance * epsilons, (_halves(np.array(variance)), _halves(epsilons))
        correction = rows[0] * columns[0] - product + rows[0] * columns[1] + rows[1] * columns[0] + rows[1] * columns[1]
        quotient, down = product / records, cells * records / 2
        back, parts = quotient * records, _halves(quotient)
        # A number of records has half as many digits as a double, so its products with halves are exact.
        correction = (product - back - (parts[0] * records - back + parts[1] * records) + correction) / records
        t = quotient - down
        shifted = t - quotient
        correction += quotient - (t - shifted) - (down + shifted)
        # A threshold just below an integer may have been rounded to it.
        following = np.where((t == np.floor(t)) & (correction < 0), t, np.floor(t) + 1)
        return cls(following, following - t - correction + 4e-16 * np.abs(correction), np.diff(epsilons))

    @property
    def rounded(self) -> Array:
        """The thresholds as doubles."""
        return self.following - self.gaps

    def excess(self, slope: float, places: Array, masses: Array) -> Array:
        """The sums of `masses * (1 - exp(-slope * (places - t)))` over the places above each threshold t; both rise."""
        starts = np.searchsorted(places, self.following)
        # Places below the first threshold are in no sum.
        first, sizes = starts[0], np.diff(starts, append=len(places))
        distances = places[first:] - np.repeat(self.following, sizes) + np.repeat(self.gaps, sizes)
        return delta_grid(slope * distances, masses[first:], starts - first, self.steps)


def _halves(x: Array) -> tuple[Array, Array]:
    """Split each number into two with half the digits of a double (Veltkamp)."""
    scaled = (2.0**27 + 1) * x
    high = scaled - (scaled - x)
    return high, x - high


def _single_variable_sums(v: float, slope: float, thresholds: _Thresholds, *, max_variance: float = 2.0**24) -> Array:
    """The sums for one discrete Gaussian variable of variance v.

    Above the variance `max_variance` each is an integral, with a bound on the difference of about 1e-6 of it and less:
    an eighth of the derivative's total variation at most.
    """
    t = thresholds.rounded
    if v > max_variance:
        deviation = math.sqrt(v)
        integrals, variations = gaussian_excess(slope * deviation, t / deviation)
        return integrals + variations / (8 * v)
    reach = math.ceil(math.sqrt(_REACH * v)) + 2
    last = math.ceil(math.sqrt(max(float(t[-1]), 0.0) ** 2 + _REACH * v)) + 2
    j = np.arange(max(float(thresholds.following[0]), -reach), last + 1)
    # A decreasing geometric series bounds the terms beyond the reach, on either side.
    above, below = (math.exp(-((k + 1) ** 2) / (2 * v)) / -math.expm1(-(2 * k + 3) / (2 * v)) for k in (last, reach))
    sums = thresholds.excess(slope, j, np.exp(-(j**2) / (2 * v))) + above + np.where(t < -reach, below, 0.0)
    # theta is at least the integral of its terms, by Poisson's formula.
    return sums / math.sqrt(2 * math.pi * v)


def gaussian_excess(ratio: float, starts: Array) -> tuple[Array, Array]:
    """Two numbers about `f(x) = phi(x) (1 - exp(-ratio (x - start)))`, 0 below each start; phi is the normal density.

    With `start = epsilon / ratio - ratio / 2` its integral is the hockey-stick divergence at epsilon of two normal
    distributions whose centres are `ratio` standard deviations apart. The integrand is positive, so nothing cancels.

    Parameters
    ----------
    ratio : float
        Positive.
    starts : array, shape (n,)
        In ascending order.

    Returns
    -------
    integrals : array, shape (n,)
        The integrals of f, from above up to rounding.
    variations : array, shape (n,)
        Upper bounds on the total variations of the derivatives of f, their jumps at `start` included.
    """
    # The tail below this has a probability of 1e-33, which is added.
    lowest, tail_bound = -12.0, 1e-32
    first, last = (max(float(starts[i]), 0.0) for i in (0, -1))
    end = math.sqrt(last**2 + _REACH)
    x, weights = nodes(_panels(np.append(np.maximum(starts, lowest), end), ratio))
    # Everything is relative to the density at the first start, if that is in the upper tail.
    density = np.exp(-(x - first) * (x + first) / 2) * weights
    thresholds = _Thresholds(starts, np.zeros(len(starts)), ratio * np.diff(starts))
    integrals = thresholds.excess(ratio, x, density)
    bends = thresholds.excess(ratio, x, density * (x**2 + 1))
    # The exponential is at most 1, so its factor is integrated without it.
    smooth = np.cumsum((density * ratio * (2 * np.abs(x) + ratio))[::-1])[::-1]
    bends += np.append(smooth, 0.0)[np.searchsorted(x, starts)]
    at_start = np.exp(-(starts - first) * (starts + first) / 2)
    beyond = np.minimum(1 / end, ratio * (1 + np.abs(starts) / end))
    beyond *= math.exp(-(last - first) * (last + first) / 2 - _REACH / 2)
    scale = math.exp(-(first**2) / 2) / math.sqrt(2 * math.pi)
    below = np.where(starts < lowest, tail_bound, 0.0)
    return scale * (integrals + beyond) + below, scale * (bends + ratio * at_start)


def _panels(starts: Array, ratio: float) -> Array:
    """Breakpoints from the first start to the last one for a normal density that is raised from 0 at every start."""
    gap = np.minimum(min(1.0, 1 / ratio), 1 / (1 + np.maximum(starts[:-1], 0.0)))
    breaks = [starts]
    for i in np.flatnonzero(np.diff(starts) > np.minimum(gap, 0.5)).tolist():
        breaks.append(starts[i] + bulk_breaks(float(gap[i]), float(starts[i + 1] - starts[i]))[1:-1])
    return np.unique(np.concatenate(breaks))


@lru_cache(maxsize=64)
def _convolve(variance: float, cells: int) -> tuple[Array, Array]:
    """The values and the probabilities of the sum of the noises of several cells, convolved from positive numbers."""

    def trim(distribution: Array, n: int) -> Array:
        reach, middle = math.ceil(math.sqrt(2 * _UNDERFLOW * n * variance)), len(distribution) // 2
        return distribution[max(middle - reach, 0) : middle + reach + 1]

    power, power_of = _cell_masses(variance), 1
    distribution, raised_to = np.ones(1), 0
    remaining = cells
    while remaining:
        if remaining & 1:
            raised_to += power_of
            distribution = trim(np.convolve(distribution, power), raised_to)
        remaining >>= 1
        if remaining:
            power_of *= 2
            power = trim(np.convolve(power, power), power_of)
    return np.arange(len(distribution), dtype=np.float64) - len(distribution) // 2, distribution


def _cell_masses(variance: float) -> Array:
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
    reduction = cells * log_theta_ratio(float(variance), order) / (order - 1)
    return math.nextafter(whole + reduction * (1 - _ULPS * 2.0**-52), math.inf)


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
        increase = (np.exp(-k * (k - 2 * abs(x)) / (2 * variance)) * np.expm1(-k * abs(x) / variance) ** 2).sum()
        return math.log1p(float(increase) / (1 + 2 * float(weights.sum()))) - x * x / (2 * variance)
    k = np.arange(1.0, 12.0)
    weights = np.exp(-2 * (math.pi * k) ** 2 * variance)
    reduction = 4 * inner(weights, np.sin(math.pi * k * x) ** 2)
    return math.log1p(-reduction / (1 + 2 * float(weights.sum())))
