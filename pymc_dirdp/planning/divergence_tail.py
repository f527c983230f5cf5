"""The exact tail of `KL(p || y)` over a Dirichlet draw y, from its moment generating function."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import digamma, loggamma, polygamma, xlogy

from pymc_dirdp.arrays import Array

__all__ = ["divergence_tail"]

# The integrand ends below exp(-60) of its largest value, and the rule stops when two of them agree to this share.
_NEGLIGIBLE, _AGREED = 60.0, 1e-11
_LONGEST = 600.0


def divergence_tail(p: Array, u: Array, eta: float) -> float:
    """`P[KL(p || y) > eta]` over `y ~ Dirichlet(u)`, for frequencies p and `eta > 0`.

    The relative error is about 1e-14 times the sum of u, and 1e-10 where that is less.

    References
    ----------
    Theory, section 8.

    Examples
    --------
    >>> divergence_tail(np.array([1.0, 0.0]), np.array([3.0, 1.0]), 0.5)  # P[y < exp(-0.5)] = exp(-1.5)
    0.22313...
    """
    total, entropy = float(u.sum()), float(xlogy(p, p).sum()) - eta
    p, u = p[p > 0], u[p > 0]

    def slope(t: float) -> float:
        return entropy - 1 / t + float(digamma(total - t)) - float((p * digamma(u - t * p)).sum())

    # The logarithm of the integrand is convex on both sides of its pole at 0. The path crosses the real axis at a
    # minimum, above 0 for large eta, and below 0 for small eta, where the integral is that of the other tail. Then it
    # bends around the other poles, which lie beyond the first one on the real axis.
    with np.errstate(over="ignore"):
        first = float(np.min(u / p))
    below = entropy + float(digamma(total)) - float((p * digamma(u)).sum()) > 0
    at = _crossing(slope, first, below=below)
    if math.isnan(at):
        return 1.0 if below else 0.0
    curvature = float((p**2 * polygamma(1, u - at * p)).sum() - polygamma(1, total - at)) + 1 / at**2
    width = 1 / math.sqrt(curvature)

    def integral(step: float) -> float:
        s = step * np.arange(math.ceil(min(math.acosh(1 + _NEGLIGIBLE / (eta * width)) + 3, _LONGEST) / step))
        t = at + width * (np.cosh(s) - 1 + 1j * np.sinh(s))
        terms = loggamma(u - t[:, None] * p) - loggamma(u)
        logs = t * entropy + loggamma(total) - loggamma(total - t) + terms.sum(axis=1) - np.log(t)
        values = (np.exp(logs) * width * (np.sinh(s) + 1j * np.cosh(s))).imag
        return float(values.sum() - values[0] / 2) * step / math.pi

    step, before, now = 0.125, math.inf, integral(0.25)
    while abs(now - before) > _AGREED * abs(now) and step > 1e-3:
        before, now, step = now, integral(step), step / 2
    return min(1.0, max(1 + now if below else now, 0.0))


def _crossing(slope: Callable[[float], float], first: float, *, below: bool) -> float:
    """Where a rising slope is 0, between 0 and the first pole or below 0; NaN where the tail is below exp(-1e9)."""
    from scipy.optimize import brentq  # Here, because it takes most of a second to import.

    if not below:
        low, high = first * 1e-12, first * (1 - 1e-12)
    else:
        low, high = -first, -first * 1e-12
        while slope(low) > 0 and low > -1e100:
            low *= 4
    if slope(high) <= 0 or slope(low) >= 0:
        return low if not below and slope(low) >= 0 else math.nan
    return float(brentq(slope, low, high, xtol=1e-9 * min(abs(low), abs(high)), rtol=1e-9))
