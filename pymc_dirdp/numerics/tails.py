"""Logarithms of Gamma ratios and tail probabilities, taken from the side on which they are small.

Each tail takes a number or an array. Beyond `_FAR` nats from where its distribution lies a tail is computed as its
leading power, whose relative error is `exp(-60) = 9e-27`: the argument underflows long before the power does.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betainc, betaincc, digamma, expit, gammaincc, gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.gamma_tail import regularized_lower
from pymc_dirdp.numerics.quadrature import graded_breaks, integrate

__all__ = ["gamma_lower", "gamma_upper", "logit_beta_upper", "mean_digamma"]

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
