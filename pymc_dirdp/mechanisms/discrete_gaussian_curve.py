"""Privacy curves of discrete Gaussian noise, from above: certified sums of positive terms.

The noise of a cell takes the integer k with probability `exp(-k**2 / (2 s)) / theta(s)`. If `cells` counts move by
`records` each, the loss is a function of the sum K of their noises, and by symmetry the hockey-stick divergence is

    sum over j > t of P[K = j] (1 - exp(-(records / s) (j - t))),   t = s epsilon / records - cells records / 2.
"""

import math
import sys
from fractions import Fraction
from functools import lru_cache

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.mechanisms.gaussian_excess import gaussian_excess
from pymc_dirdp.numerics.rounding import not_below
from pymc_dirdp.privacy.conversion import best_order, log_delta_at

__all__ = ["converted", "delta", "log_theta_ratio", "renyi"]

# This covers the rounding of an exponential of at most 745 and of what is done with it, relative.
_MARGIN = 1e-12
_LEAST = 5e-324
# A sum of noises that is this close to a discrete Gaussian variable is taken for one, and what is missing is added.
_CLOSE = 1e-12
# Laws of more cells are not convolved.
_MOST_CONVOLVED = 4096
# Masses below exp(-745) are 0 in doubles; what all of them weigh together is far below this.
_UNDERFLOW, _UNDERFLOWN = 745.0, 1e-305
# Above this variance the sum is an integral with a bound on the difference, of about 1e-6 of it and less.
_MOST_SUMMED = 2.0**24
# A part exp(-50) of the sum is left out, and bounded.
_REACH = 100.0


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
        margin = _MARGIN + cells * math.sqrt(2 * _UNDERFLOW * v) * 1e-15
    else:
        summed = (_summed if v <= _MOST_SUMMED else _integrated)(v, records / variance, t) * (1 + closeness)
        margin = _MARGIN
    return min(summed * (1 + margin), math.exp(log_bound))


def converted(rho: float, epsilon: float) -> float:
    """The least delta that follows from Rényi divergences of at most `order * rho`, or from Pinsker's inequality."""

    def log_delta(order: float) -> float:
        return log_delta_at(order, order * rho, epsilon)

    return min(1.0, math.sqrt(rho / 2) * (1 + _MARGIN), math.exp(log_delta(best_order(log_delta))) * (1 + _MARGIN))


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

    def within(law: Array, n: int) -> Array:
        reach, middle = math.ceil(math.sqrt(2 * _UNDERFLOW * n * variance)), len(law) // 2
        return law[max(middle - reach, 0) : middle + reach + 1]

    power, power_of = _single(variance), 1
    law, law_of = np.ones(1), 0
    left = cells
    while left:
        if left & 1:
            law_of += power_of
            law = within(np.convolve(law, power), law_of)
        left >>= 1
        if left:
            power_of *= 2
            power = within(np.convolve(power, power), power_of)
    return law[len(law) // 2 :]


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
    whole = not_below(cells * Fraction(order) / (2 * variance))
    if order == 1:
        return whole
    less = cells * log_theta_ratio(float(variance), order) / (order - 1)
    return math.nextafter(whole + less * (1 - _MARGIN), math.inf)


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
