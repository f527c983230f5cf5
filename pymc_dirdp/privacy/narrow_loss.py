"""The hockey-stick divergence of Gamma and Beta distributions with large parameters.

Such a distribution is narrow: the logarithm of a Gamma variable with parameter 1e12 has a standard deviation of 1e-6.
Its tails need arguments with far more digits than a difference of logarithms of 1e12 keeps. So everything is measured
from the mode, and the divergence is one integral of the density, in which every term is positive.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self, final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.quadrature import bulk_breaks, graded_breaks, inner, integrate, nodes
from pymc_dirdp.numerics.second_order import expm1_less, log1p_less, stirling_remainder
from pymc_dirdp.privacy.hockey_stick import RAISED

__all__ = ["LARGE", "NarrowLoss"]

# Parameters are large from this one on: Stirling's series has 16 digits after two terms, and the law is narrow.
LARGE = 1e4
# The integral begins so many standard deviations from the mode, and ends so many beyond the mode and its own start.
_LEFT, _REACH = -40.0, 12.0
# Beyond so many standard deviations the density is below exp(-745), the smallest double.
_FURTHEST = 60.0
_ROUNDING = 2e-15
# The integral ends where the integrand has fallen to exp(-60).
_NEGLIGIBLE = 60.0


@final
@dataclass(frozen=True, eq=False)
class NarrowLoss:
    """A privacy loss `r * (X - start)`, where X is measured from the mode of its density under the first of the two.

    Attributes
    ----------
    r : float
        Scale of the loss.
    start : float
        Origin of the loss, less the mode.
    spread : float
        Rough standard deviation of X.
    log_density : callable
        Logarithm of the density of X over that at 0; concave.
    log_slope : callable
        Its derivative, at a number.
    remainder : float
        Logarithm of the density at 0, over that of a normal density with this spread.
    """

    r: float
    start: float
    spread: float
    log_density: Callable[[Array], Array]
    log_slope: Callable[[float], float]
    remainder: float

    @classmethod
    def of_gamma(cls, a: float, r: float, *, removing: bool) -> Self:
        """The loss of `Gamma(a)` from `Gamma(a + r)`, or, if not removing, of the reverse. `a` is large."""
        first, sign = (a, -1.0) if removing else (a + r, 1.0)
        return cls(
            r=r,
            start=sign * _mean_digamma_less_log(a, r, at_end=not removing),
            spread=1 / math.sqrt(first),
            log_density=partial(_gamma_log_density, first, sign),
            log_slope=partial(_gamma_log_slope, first, sign),
            remainder=-stirling_remainder(first),
        )

    @classmethod
    def of_beta(cls, a: float, b: float, r: float) -> Self:
        """The loss of the logit of `Beta(a + r, b)` from that of `Beta(a, b + r)`. Both parameters are large."""
        first = a + r
        return cls(
            r=r,
            start=_mean_digamma_less_log(a, r, at_end=True) - _mean_digamma_less_log(b, r, at_end=False),
            spread=math.sqrt(1 / first + 1 / b),
            log_density=partial(_beta_log_density, first, b),
            log_slope=partial(_beta_log_slope, first, b),
            remainder=stirling_remainder(first + b) - stirling_remainder(first) - stirling_remainder(b),
        )

    def delta(self, epsilon: float) -> float:
        """Hockey-stick divergence at `epsilon >= 0`: the integral of `f(x) (1 - exp(-r (x - t)))` above t, raised."""
        above = epsilon / self.r
        # Rounding may have raised t, so a bound of that is subtracted: it is small unless the loss is above 1e12.
        t = (above + self.start - _ROUNDING * (above + abs(self.start))) / self.spread
        if t > _FURTHEST:
            return 0.0
        from_mode, left, ratio = max(t, 0.0), max(t, _LEFT), self.r * self.spread
        slope = -self.log_slope(self.spread * from_mode) * self.spread
        # The log-density is concave, so from the start on it falls at least as fast as there, and as from the mode.
        length = from_mode - left + min(_REACH, _NEGLIGIBLE / slope if slope > 0 else math.inf)
        y, weights = nodes(bulk_breaks(min(1.0, 1 / ratio, 1 / (1 + from_mode)), length))
        density = np.exp(self.log_density(self.spread * (left + y)) + self.remainder)
        integral = inner(density * -np.expm1(-ratio * (y + (left - t))), weights)
        return min(1.0, integral / math.sqrt(2 * math.pi) * RAISED)

    def deltas(self, step: float, points: int) -> Array:
        """Hockey-stick divergences at `0, step, ..., step * (points - 1)`."""
        deltas = np.zeros(points)
        for i in range(points):
            deltas[i] = self.delta(i * step)
            if deltas[i] == 0:
                break
        return deltas


def _mean_digamma_less_log(a: float, r: float, *, at_end: bool) -> float:
    """The mean of digamma over `[a, a + r]` less the logarithm of one end, without cancellation. `a` is large."""
    end = a + r

    def difference(u: Array) -> Array:
        x = a + u
        # digamma(x) - log(x).
        own = -(0.5 + (1 / 12 - 1 / (120 * x * x)) / x) / x
        return own + (np.log1p((u - r) / end) if at_end else np.log1p(u / a))

    return integrate(difference, graded_breaks(a, r)) / r


def _gamma_log_density(a: float, sign: float, x: Array) -> Array:
    return -a * expm1_less(sign * x)


def _gamma_log_slope(a: float, sign: float, x: float) -> float:
    return -a * sign * math.expm1(sign * x)


def _beta_log_density(a: float, b: float, x: Array) -> Array:
    """The log-density of the logit of `Beta(a, b)`, with its argument measured from the mode `log(a / b)`."""
    if a > b:
        a, b, x = b, a, -x
    share = a / (a + b)
    # The two terms have opposite signs, and the larger is at least twice the smaller.
    near = log1p_less(share * np.expm1(x)) + share * expm1_less(x)
    return np.asarray(-(a + b) * near)


def _beta_log_slope(a: float, b: float, x: float) -> float:
    more = a / (a + b) * math.expm1(x)
    return -b * more / (1 + more)
