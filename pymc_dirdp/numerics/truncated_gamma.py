"""The Gamma distribution above a floor, and below a ceiling if there is one: masses and log moments.

`TG(a; floor, ceiling)` has the density `g**(a - 1) exp(-g) / Z(a)` on `[floor, ceiling)`. Write `c` for `a`, moved into
that interval, and `u = log(g / c)`. The distribution of u has the log-concave density `exp(-h(u)) / I(a)`, where

    h(u) = (c - a) u + c (exp(u) - 1 - u) >= 0,        log Z(a) = a log c - c + log I(a).

Its mode is u = 0. So I and all moments are sums of positive terms over Gauss-Legendre nodes on both sides of 0, which
neither overflow nor cancel, wherever the floor is. Each function takes numbers or arrays that broadcast.
"""

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.second_order import expm1_less, log1p_less

__all__ = [
    "log_mass",
    "log_mass_change",
    "moments_log",
    "variance_log",
]

# The density is cut where it has fallen to exp(-46) = 1e-20 of its largest value.
_NEGLIGIBLE = 46.0
# The density is entire, and it is no larger than on the real line for |Im u| < pi / 2. So many nodes on each side of
# the mode leave a relative error near 1e-15 for floors from 1e-100.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_UNIT, _UNIT_WEIGHTS = (1 + _NODES) / 2, _WEIGHTS / 2
# The ends start within a factor of 2 of where they belong, and what is beyond costs a few nodes only.
_NEWTON_STEPS = 2
# Up to this product of a step and the width of the law of u a change of `log Z` is an expectation over that law.
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
    c, _, weights = _law(a, floor, ceiling)
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
    (c, other), (u, _), both = _law(np.stack([a, a + step]), floor, ceiling)
    weights, (mass, other_mass) = both[0], both.sum(axis=-1)
    small = step * np.abs(u).max(axis=-1) <= _SMALL_STEP
    # The exponent is cut, because it is used where it is small only.
    exponent = np.where(small[..., None], step[..., None] * u, 0.0)
    near = step * np.log(c) + np.log1p((weights * np.expm1(exponent)).sum(axis=-1) / mass)
    # In this order the mode moves by exactly `step` if it is inside both times.
    moved = np.clip(step + (a - c), 0.0, ceiling - c)
    far = step * np.log(other) + _moved(a, c, other, moved) + np.log(other_mass / mass)
    return np.asarray(np.where(small, near, far))


def moments_log(a: ArrayLike, floor: ArrayLike, ceiling: ArrayLike = np.inf) -> tuple[Array, Array]:
    """Expectation and variance of `log G`, the first and second derivatives of :func:`log_mass` by `a`."""
    c, u, weights = _law(*_broadcast(a, floor, ceiling))
    mean = _average(u, weights)
    return np.asarray(np.log(c) + mean), _average((u - mean[..., None]) ** 2, weights)


def variance_log(a: ArrayLike, floor: ArrayLike, ceiling: ArrayLike = np.inf) -> Array:
    """Variance of `log G`."""
    return moments_log(a, floor, ceiling)[1]


def _broadcast(*values: ArrayLike) -> tuple[Array, ...]:
    return tuple(np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in values)))


def _average(values: Array, weights: Array) -> Array:
    return np.asarray((values * weights).sum(axis=-1) / weights.sum(axis=-1))


def _moved(a: Array, c: Array, other: Array, by: Array) -> Array:
    """`a log(other) - other` less `a log c - c`, where `other` is `c + by`."""
    x = by / c
    # Far below c the digits of `1 + x` are not those of `other / c`.
    near = np.maximum(x, -0.5)
    ratio = np.where(x > -0.5, np.log1p(near), np.log(other / c))
    return np.asarray((a - c) * ratio + c * np.where(x > -0.5, log1p_less(near), ratio - x))


def _law(a: Array, floor: Array, ceiling: Array) -> tuple[Array, Array, Array]:
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
