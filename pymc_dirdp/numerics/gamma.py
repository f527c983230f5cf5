"""Tails of Gamma and Beta distributions, and remainders of series, with small relative errors."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betainc, betaincc, digamma, expit, gammainc, gammaincc, gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.quadrature import graded_breaks, integrate, nodes

# Functions without their leading terms, computed without cancellation.
#
# Calibration spends much of its time here, so series are summed in place, and only for small arguments.


# Below this size a series is used, whose error after 13 terms is below rounding.
_SMALL = 0.05


def log1p_less(x: Array) -> Array:
    """`log(1 + x) - x` for x above -1; -inf at -1."""
    x = np.asarray(x)
    with np.errstate(divide="ignore"):
        result = np.asarray(np.log1p(x) - x)
    small = np.abs(x) < _SMALL
    near = x[small]
    series = np.zeros_like(near)
    for n in range(14, 1, -1):
        # From the last term to the first, so that small terms are not lost.
        series *= near
        series += (1.0 if n % 2 else -1.0) / n
    result[small] = series * near**2
    return result


def expm1_less(x: Array) -> Array:
    """`exp(x) - 1 - x`."""
    x = np.asarray(x)
    result = np.asarray(np.expm1(x) - x)
    small = np.abs(x) < _SMALL
    near = x[small]
    series = np.ones_like(near)
    for n in range(10, 2, -1):
        series *= near / n
        series += 1
    result[small] = series * near**2 / 2
    return result


def stirling_remainder(a: float) -> float:
    """`log Gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2` for a positive or infinite number."""
    if a < 10:
        return float(gammaln(a)) - (a - 0.5) * math.log(a) + a - math.log(2 * math.pi) / 2
    x = 1 / a / a
    return (
        1 / 12 - x * (1 / 360 - x * (1 / 1260 - x * (1 / 1680 - x * (1 / 1188 - x * (691 / 360360 - x / 156)))))
    ) / a


def digamma_less_log(x: Array) -> Array:
    """`digamma(x) - log(x)` for positive numbers, without cancellation for large numbers."""
    large = np.maximum(x, 10.0)
    y = 1 / large / large
    series = 1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132 - y * (691 / 32760 - y / 12)))))
    small = np.minimum(x, 10.0)
    return np.where(x < 10, digamma(small) - np.log(small), -(0.5 + series / large) / large)


# The lower tail of a Gamma distribution with a large shape. At 5 sigma and shape 1e8 SciPy has an error of 30 %.


def regularized_lower[Real: (float, Array)](a: float, x: Real) -> Real:
    """`P[G_a < x]` for `a > 0` and a number or an array of `x >= 0`, within about 1e-11 relative."""
    # More than 4.5 standard deviations below the mean, SciPy sums 2000 terms of a power series. The number of necessary
    # terms is a multiple of `sqrt(a)`, and 2000 are enough up to this shape.
    if a <= 1e4:
        return gammainc(a, x)  # type: ignore[no-any-return]  # It has the type of x.
    if isinstance(x, float):
        return float(regularized_lower(a, np.array([x]))[0])
    values: Array = np.asarray(gammainc(a, x))
    far = (x < a - 4.0 * np.sqrt(a)) & (x > 0)
    values[far] = _far(a, x[far])
    return values


def _far(a: float, x: Array) -> Array:
    """`x**a exp(-x) / Gamma(a)` times the integral of `(1 - s)**(a - 1) exp(x s)` over s from 0 to 1.

    The substitution is `t = x (1 - s)` in the Gamma integral. The integrand falls from 1 like `exp(-k s)` with
    `k = a - 1 - x`, and faster.
    """
    leading = a * log1p_less((x - a) / a) + 0.5 * np.log(a / (2 * np.pi)) - stirling_remainder(a)
    k = a - 1 - x
    points, weights = nodes(np.linspace(0.0, 1.0, 32 + 1))
    # The integral ends at a bound where the integrand is exp(-45).
    end = np.minimum(1.0, 45.0 / k)[:, None]
    s = end * points
    # The exponent is (a - 1) log(1 - s) + x s, whose linear terms nearly cancel.
    integrand = np.exp((a - 1) * log1p_less(-s) - k[:, None] * s)
    return np.asarray(np.exp(leading) * (integrand * (end * weights)).sum(axis=1))


# Logarithms of Gamma ratios, and tail probabilities computed from the side on which they are small.
#
# Each tail accepts a number or an array. More than `_FAR` nats away from the bulk of its distribution, a tail is its
# leading power with a relative error of `exp(-60) = 9e-27`, because the argument underflows long before the power.


_FAR = 60.0
LARGEST_EXPONENT = 700.0
"""The exponential of this number does not overflow."""


def mean_digamma(a: float, r: float) -> float:
    """`(log Gamma(a + r) - log Gamma(a)) / r`, the mean of digamma over `[a, a + r]`, without cancellation."""
    return integrate(lambda u: np.asarray(digamma(a + u)), graded_breaks(a, r)) / r


def logit_beta_upper[Real: (float, Array)](t: Real, a: float, b: float) -> Real:
    """`P[logit(w) > t]` for `w ~ Beta(a, b)`."""
    return _first_above(
        t,
        # I_x(b, a) -> x**b / (b B(a, b)) as x -> 0, with B(a, b) = Gamma(b) Gamma(a) / Gamma(a + b).
        (_FAR + math.log1p(a), lambda t: np.exp(np.minimum(b * (mean_digamma(a, b) - t) - gammaln(b + 1), 0.0))),
        # 1 - w = expit(-t) is small and exact where 1 - expit(t) is not.
        (0.0, lambda t: betainc(b, a, expit(-t))),
        (-_FAR - math.log1p(b), lambda t: betaincc(a, b, expit(t))),
        (-math.inf, lambda t: -np.expm1(np.minimum(a * (mean_digamma(b, a) + t) - gammaln(a + 1), 0.0))),
    )


def gamma_upper[Real: (float, Array)](log_g: Real, a: float) -> Real:
    """`P[G_a > exp(log_g)]`."""
    return _first_above(
        log_g,
        (LARGEST_EXPONENT, lambda log_g: 0.0 * log_g),
        (-_FAR, lambda log_g: gammaincc(a, np.exp(log_g))),
        (-math.inf, lambda log_g: -np.expm1(np.minimum(a * log_g - gammaln(a + 1), 0.0))),
    )


def gamma_lower[Real: (float, Array)](log_g: Real, a: float) -> Real:
    """`P[G_a < exp(log_g)]`."""
    return _first_above(
        log_g,
        (LARGEST_EXPONENT, lambda log_g: 1.0 + 0.0 * log_g),
        (-_FAR, lambda log_g: regularized_lower(a, np.exp(log_g))),
        (-math.inf, lambda log_g: np.exp(np.minimum(a * log_g - gammaln(a + 1), 0.0))),
    )


def _first_above[Real: (float, Array)](x: Real, *branches: tuple[float, Callable[[Real], Real]]) -> Real:
    """Apply, elementwise, the first branch whose bound is below `x`."""
    if isinstance(x, float):
        return next(float(f(x)) for bound, f in branches if x > bound)
    values = np.empty_like(x)
    left = np.ones(x.shape, dtype=bool)
    for bound, f in branches:
        is_next = left & (x > bound)
        if is_next.any():
            values[is_next] = f(x[is_next])
            left &= ~is_next
    return values
