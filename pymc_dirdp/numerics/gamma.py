"""Gamma and Beta distributions with small relative errors: tails, truncated ones, and remainders of series."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincc, digamma, expit, gammainc, gammaincc, gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.quadrature import graded_breaks, integrate, nodes

__all__ = [
    "expm1_less",
    "gamma_lower",
    "gamma_upper",
    "log1p_less",
    "log_mass",
    "log_mass_change",
    "logit_beta_upper",
    "mean_digamma",
    "moments_log",
    "regularized_lower",
    "stirling_remainder",
    "variance_log",
]

# Functions without their leading terms, computed without cancellation.
#
# Calibrations spend much of their time here, so a series is summed in place, and only where it is needed.


# Below this size a series is summed, whose error after 13 terms is below rounding.
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
        # The sum goes from the last term to the first, so that small ones are not lost.
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
    """`log Gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2` for a of at least 1e4."""
    return (1 / 12 - 1 / (360 * a * a)) / a


# The lower tail of a Gamma distribution with a large shape, of which SciPy misses 30 % at 5 sigma and shape 1e8.


# Beyond 4.5 standard deviations below the mean SciPy sums 2000 terms of a power series, which needs some multiple of
# `sqrt(a)` terms. Up to this shape they suffice.
_LARGE = 1e4
_SIGMAS = 4.0
# The integral ends where its integrand has fallen to exp(-45).
_REACH = 45.0
_PANELS = 32


def regularized_lower[Real: (float, Array)](a: float, x: Real) -> Real:
    """`P[G_a < x]` for `a > 0` and a number or an array of `x >= 0`, within about 1e-11 relative."""
    if a <= _LARGE:
        return gammainc(a, x)  # type: ignore[no-any-return]  # of the type of x
    if isinstance(x, float):
        return float(regularized_lower(a, np.array([x]))[0])
    values: Array = np.asarray(gammainc(a, x))
    far = (x < a - _SIGMAS * np.sqrt(a)) & (x > 0)
    values[far] = _far(a, x[far])
    return values


def _far(a: float, x: Array) -> Array:
    """`x**a exp(-x) / Gamma(a)` times the integral of `(1 - s)**(a - 1) exp(x s)` over s from 0 to 1.

    The substitution is `t = x (1 - s)` in the Gamma integral. The integrand falls from 1 like `exp(-k s)` with
    `k = a - 1 - x`, and faster.
    """
    leading = a * log1p_less((x - a) / a) + 0.5 * np.log(a / (2 * np.pi)) - stirling_remainder(a)
    k = a - 1 - x
    points, weights = nodes(np.linspace(0.0, 1.0, _PANELS + 1))
    end = np.minimum(1.0, _REACH / k)[:, None]
    s = end * points
    # The exponent is (a - 1) log(1 - s) + x s, whose linear terms nearly cancel.
    integrand = np.exp((a - 1) * log1p_less(-s) - k[:, None] * s)
    return np.asarray(np.exp(leading) * (integrand * (end * weights)).sum(axis=1))


# Logarithms of Gamma ratios and tail probabilities, taken from the side on which they are small.
#
# Each tail takes a number or an array. Beyond `_FAR` nats from where its distribution lies a tail is computed as its
# leading power, whose relative error is `exp(-60) = 9e-27`: the argument underflows long before the power does.


_FAR = 60.0
_LARGEST_EXPONENT = 700.0


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
        (_LARGEST_EXPONENT, lambda log_g: 0.0 * log_g),
        (-_FAR, lambda log_g: gammaincc(a, np.exp(log_g))),
        (-math.inf, lambda log_g: -np.expm1(np.minimum(a * log_g - gammaln(a + 1), 0.0))),
    )


def gamma_lower[Real: (float, Array)](log_g: Real, a: float) -> Real:
    """`P[G_a < exp(log_g)]`."""
    return _first_above(
        log_g,
        (_LARGEST_EXPONENT, lambda log_g: 1.0 + 0.0 * log_g),
        (-_FAR, lambda log_g: regularized_lower(a, np.exp(log_g))),
        (-math.inf, lambda log_g: np.exp(np.minimum(a * log_g - gammaln(a + 1), 0.0))),
    )


def _first_above[Real: (float, Array)](x: Real, *branches: tuple[float, Callable[[Real], Real]]) -> Real:
    """Apply, elementwise, the first branch whose bound lies below `x`."""
    if isinstance(x, float):
        return next(float(f(x)) for bound, f in branches if x > bound)
    values = np.empty_like(x)
    left = np.ones(x.shape, dtype=bool)
    for bound, f in branches:
        here = left & (x > bound)
        if here.any():
            values[here] = f(x[here])
            left &= ~here
    return values


# The Gamma distribution above a floor, and below a ceiling if there is one: masses and log moments.
#
# `TG(a; floor, ceiling)` has the density `g**(a - 1) exp(-g) / Z(a)` on `[floor, ceiling)`. Write `c` for `a`, shifted
# into that interval, and `u = log(g / c)`. The distribution of u has the log-concave density `exp(-h(u)) / I(a)`, where
#
#     h(u) = (c - a) u + c (exp(u) - 1 - u) >= 0,        log Z(a) = a log c - c + log I(a).
#
# Its mode is u = 0. So I and all moments are sums of positive terms over Gauss-Legendre nodes on both sides of 0, which
# neither overflow nor cancel, wherever the floor is. Each function takes numbers or arrays that broadcast.


# The density is cut where it has fallen to exp(-46) = 1e-20 of its largest value.
_NEGLIGIBLE = 46.0
# The density is entire, and it is no larger than on the real line for |Im u| < pi / 2. So many nodes on each side of
# the mode leave a relative error near 1e-15 for floors from 1e-100.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_UNIT, _UNIT_WEIGHTS = (1 + _NODES) / 2, _WEIGHTS / 2
# The ends start within a factor of 2 of where they belong, and what is beyond costs a few nodes only.
_NEWTON_STEPS = 2
# Up to this product of a step and the width of the distribution of u a change of `log Z` is an expectation over that
# distribution.
_SMALL_STEP = 1.0


def log_mass(a: ArrayLike, floor: ArrayLike, ceiling: ArrayLike = np.inf) -> Array:
    """`log Z(a)`, the logarithm of the integral of `g**(a - 1) exp(-g)` from `floor` to `ceiling`.

    Parameters
    ----------
    a : array_like
        Any real number: the floor keeps every integral finite.
    floor, ceiling : array_like
        `0 < floor < ceiling <= inf`.

    Examples
    --------
    >>> round(float(log_mass(1.0, 2.0)), 12)
    -2.0
    """
    a, floor, ceiling = _broadcast(a, floor, ceiling)
    c, _, weights = _distribution(a, floor, ceiling)
    return np.asarray(a * np.log(c) - c + np.log(weights.sum(axis=-1)))


def log_mass_change(a: ArrayLike, step: ArrayLike, floor: ArrayLike, ceiling: ArrayLike = np.inf) -> Array:
    """`log Z(a + step) - log Z(a)` for positive steps, without cancellation: the error is relative to `step`.

    Examples
    --------
    >>> import math
    >>> round(math.exp(log_mass_change(5.0, 1.0, 1e-3)), 12)
    5.0
    """
    a, step, floor, ceiling = _broadcast(a, step, floor, ceiling)
    (c, other), (u, _), both = _distribution(np.stack([a, a + step]), floor, ceiling)
    weights, (mass, other_mass) = both[0], both.sum(axis=-1)
    small = step * np.abs(u).max(axis=-1) <= _SMALL_STEP
    # The exponent is cut, because it is used where it is small only.
    exponent = np.where(small[..., None], step[..., None] * u, 0.0)
    near = step * np.log(c) + np.log1p((weights * np.expm1(exponent)).sum(axis=-1) / mass)
    # In this order the mode moves by exactly `step` if it is inside both times.
    shift = np.clip(step + (a - c), 0.0, ceiling - c)
    far = step * np.log(other) + _shift_integral(a, c, other, shift) + np.log(other_mass / mass)
    return np.asarray(np.where(small, near, far))


def moments_log(a: ArrayLike, floor: ArrayLike, ceiling: ArrayLike = np.inf) -> tuple[Array, Array]:
    """Expectation and variance of `log G`, the first and second derivatives of :func:`log_mass` by `a`."""
    c, u, weights = _distribution(*_broadcast(a, floor, ceiling))
    mean = _average(u, weights)
    return np.asarray(np.log(c) + mean), _average((u - mean[..., None]) ** 2, weights)


def variance_log(a: ArrayLike, floor: ArrayLike, ceiling: ArrayLike = np.inf) -> Array:
    """Variance of `log G`."""
    return moments_log(a, floor, ceiling)[1]


def _broadcast(*values: ArrayLike) -> tuple[Array, ...]:
    return tuple(np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in values)))


def _average(values: Array, weights: Array) -> Array:
    return np.asarray((values * weights).sum(axis=-1) / weights.sum(axis=-1))


def _shift_integral(a: Array, c: Array, other: Array, by: Array) -> Array:
    """`a log(other) - other` less `a log c - c`, where `other` is `c + by`."""
    x = by / c
    # Far below c the digits of `1 + x` are not those of `other / c`.
    near = np.maximum(x, -0.5)
    ratio = np.where(x > -0.5, np.log1p(near), np.log(other / c))
    return np.asarray((a - c) * ratio + c * np.where(x > -0.5, log1p_less(near), ratio - x))


def _distribution(a: Array, floor: Array, ceiling: Array) -> tuple[Array, Array, Array]:
    """The mode c, and nodes u and weights of the unnormalised density of `log(G / c)`; the last axis is for nodes."""
    c = np.clip(a, floor, ceiling)
    below = np.minimum(np.log(c / floor), _left_end(a, c))[..., None]
    above = np.minimum(np.log(ceiling / c), _right_end(a, c))[..., None]
    u = np.concatenate([-below * _UNIT, above * _UNIT], axis=-1)
    weights = np.concatenate([below * _UNIT_WEIGHTS, above * _UNIT_WEIGHTS], axis=-1)
    c_, slope = c[..., None], (a - c)[..., None]
    return c, u, weights * np.exp(slope * u - c_ * expm1_less(u))


def _right_end(a: Array, c: Array) -> Array:
    """The point above 0 where h is `_NEGLIGIBLE`; h is convex, so Newton's steps approach it from above."""
    slope = np.maximum(c - a, 0.0)
    with np.errstate(divide="ignore"):
        # Each of the three is above the point: by h's linear part, its square, and its exponential.
        linear = _NEGLIGIBLE / slope
    u = np.minimum(np.minimum(np.sqrt(2 * _NEGLIGIBLE / c), np.log(2 * (1 + _NEGLIGIBLE / c))), linear)
    for _ in range(_NEWTON_STEPS):
        change = np.expm1(u)
        # No digit of the end matters, so the difference may lose some.
        u = u - (slope * u + c * (change - u) - _NEGLIGIBLE) / (slope + c * change)
    return np.asarray(u)


def _left_end(a: Array, c: Array) -> Array:
    """The distance below 0 where h is `_NEGLIGIBLE`, from above, by `exp(-v) - 1 + v >= v**2 / (2 + v)`."""
    slope = np.maximum(a - c, 0.0)
    share = _NEGLIGIBLE / c
    v = (share + np.sqrt(share * (share + 8))) / 2
    for _ in range(_NEWTON_STEPS):
        change = np.expm1(-v)
        v = v - (slope * v + c * (change + v) - _NEGLIGIBLE) / (slope - c * change)
    return np.asarray(v)
