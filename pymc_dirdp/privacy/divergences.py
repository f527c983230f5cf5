"""Divergences of Gamma and Beta distributions: Rényi, hockey sticks, and sums of losses that are narrow."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Protocol, Self, final

import numpy as np
from scipy.special import gammaln, zeta

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.gamma import expm1_less, log1p_less, stirling_remainder
from pymc_dirdp.numerics.quadrature import bulk_breaks, graded_breaks, inner, integrate, nodes

# Rényi divergences of `Gamma(a + r)` from `Gamma(a)` and back (Theory, section 3).


# A closed form is trusted while its rounding error, estimated from its terms, stays below this share of the result.
_TRUSTED = 2e-12


def renyi_add(order: float, a: float, r: float) -> float:
    """Divergence of `Gamma(a + r)` from `Gamma(a)` (Theory, section 3)."""
    terms = (order - 1, a), (-order, a + r), (1, a + order * r)
    closed = _closed_form(order, terms)
    return _kernel_form(order, a, a + r, a + order * r, r, upwards=True) if closed is None else closed


def renyi_remove(order: float, a: float, r: float) -> float:
    """Divergence of `Gamma(a)` from `Gamma(a + r)` (Theory, section 3); infinite for `(order - 1) * r >= a`."""
    end = _gap(order, a, r)
    if end <= 0:
        return math.inf
    closed = _closed_form(order, ((order - 1, a + r), (-order, a), (1, end)))
    return _kernel_form(order, a + r, a, end, r, upwards=False) if closed is None else closed


def _gap(order: float, a: float, r: float) -> float:
    """`a - (order - 1) * r`, rounded once: its sign decides whether a divergence is finite."""
    if not math.isfinite(order):
        return -math.inf
    rough = a - (order - 1) * r
    return rough if abs(rough) > 1e-3 * a else float(Fraction(a) - (Fraction(order) - 1) * Fraction(r))


def _closed_form(order: float, terms: tuple[tuple[float, float], ...]) -> float | None:
    """Sum of `weight * log Gamma(x)` over `order - 1`, or None where cancellation spoils it."""
    # The divergence is about order * r**2 / x. Where that is small, it is lost among terms of size log Gamma(x).
    (_, middle), (_, end) = terms[1:]
    # At order 1 it is 0 over 0, and the last two arguments are equal.
    if abs(middle - end) < 1e-2 * min(middle, end):
        return None
    values = [weight * float(gammaln(x)) for weight, x in terms]
    if not all(map(math.isfinite, values)):
        # Beyond the largest double a difference of infinities would be NaN, which no comparison notices.
        return math.inf
    # Each argument is itself rounded, which moves its log Gamma by about eps * x * |digamma(x)| <= eps * (1 + x log x).
    error = 2.2e-16 * sum(
        abs(value) + abs(weight) * (1 + x * abs(math.log(x))) for value, (weight, x) in zip(values, terms, strict=True)
    )
    total = math.fsum(values)
    return total / (order - 1) if error < _TRUSTED * abs(total) else None


def _kernel_form(order: float, start: float, middle: float, end: float, r: float, *, upwards: bool) -> float:
    """`r**2 * integral of K(s) psi'(x(s))` with x running from `start` over `middle` (s = 1) to `end` (s = order).

    Every term is positive, so nothing cancels. `K` is the hat of Theory, section 3: s on [0, 1], then
    `(order - s) / (order - 1)`. Both legs of the hat are integrated over the distance u from their foot. `upwards` says
    whether x rises with s; where r is lost against the parameters, `start` and `middle` do not show it.
    """
    total = _leg(r, near=min(start, middle), from_foot=upwards)
    if order > 1:
        total += _leg((order - 1) * r, near=min(middle, end), from_foot=not upwards) / (order - 1)
    return total


def _trigamma_square(x: Array) -> Array:
    """`x**2 psi'(x)`, which is a double wherever x is."""
    # zeta(2, x) is psi'(x); `polygamma` would also prepare for other orders.
    trigamma, below = zeta(2.0, np.where(x < 1, x + 1, x)), np.minimum(x, 1.0)
    return np.asarray(np.where(x < 1, 1 + below * below * trigamma, x * (x * trigamma)))


def _leg(length: float, *, near: float, from_foot: bool) -> float:
    """The integral of `u * psi'(x)` over a leg of this length; u is 0 at its foot.

    `near` is the argument at the end closest to the pole, which is the foot or the other end.
    """
    distance, weights = nodes(graded_breaks(near, length))
    x = near + distance
    u = distance if from_foot else length - distance
    # In this order no product over- or underflows before the result does.
    return float(np.sum(u / x * _trigamma_square(x) * (weights / x)))


# The hockey-stick divergence of two distributions, from the tails of their privacy loss.


# Tail differences are trusted while they keep this share of their larger term; below it, the loss is integrated.
_CANCELLED = 1e-3
# A difference is raised by this share of the larger tail, above the rounding errors of both tails; and every result by
# more than an integral is rounded.
_TAILS, RAISED = 1e-12, 1 + 3e-11
# A tail below this number may have lost digits, because it is, or was multiplied from, a number next to the smallest.
_FAINT = 1e-290
# Integrals end at exp(-46) = 1e-20 of their largest value.
_NEGLIGIBLE = 46.0
# Up to this epsilon exp(epsilon) times a tail is a double.
_LARGEST_EXPONENT = 600.0
# A step of a grid is one panel if it is at most this share of the distribution's scales and the tail falls by less than
# exp(2).
_SMOOTH, _FALL = 0.5, 2.0
# More panels of one step would not be quicker than integrals that are taken one by one.
_MOST_PANELS = 64
# So many numbers are in memory at a time.
_AT_A_TIME = 2**19


class Tail(Protocol):
    """The probability that V lies above a number, or above each number of an array."""

    def __call__[Real: (float, Array)](self, v: Real, /) -> Real:
        """The probability above `v`."""
        ...


@final
@dataclass(frozen=True, eq=False)
class Loss:
    """A privacy loss `r * (V - shift)` under the first of two distributions.

    Attributes
    ----------
    r, shift : float
        Scale and origin of the loss.
    upper, other : callable
        `P[V > v]` under the first distribution, where it is log-concave, and under the second.
    centre, spread : float
        Rough centre and standard deviation of V under the first distribution.
    rate : float
        The upper tail falls at least like `exp(-rate * v)` beyond the bulk.
    """

    r: float
    shift: float
    upper: Tail
    other: Tail
    centre: float
    spread: float
    rate: float

    def delta(self, epsilon: float) -> float:
        """Hockey-stick divergence at `epsilon >= 0`, from above."""
        # Beyond the largest double the divergence at a smaller epsilon is used, which is larger.
        t = min(epsilon / self.r + self.shift, sys.float_info.max)
        first = self.upper(t)
        if first == 0:
            return 0.0
        other = self.other(t)
        if epsilon < _LARGEST_EXPONENT and other > _FAINT:
            delta = first - math.exp(epsilon) * other
            if delta > _CANCELLED * first:
                return min((delta + _TAILS * first) * RAISED, 1.0)
        return min(self._integrated(t) * RAISED, 1.0)

    def deltas(self, step: float, points: int) -> Array:
        """Hockey-stick divergences at `0, step, ..., step * (points - 1)`, from above."""
        epsilons = step * np.arange(points, dtype=np.float64)
        with np.errstate(over="ignore"):
            t: Array = np.minimum(epsilons / self.r + self.shift, sys.float_info.max)
        first = self.upper(t)
        with np.errstate(over="ignore", invalid="ignore"):
            other = self.other(t)
            deltas: Array = first - np.exp(epsilons) * other
            cancelled = ~(deltas > _CANCELLED * first) | (epsilons >= _LARGEST_EXPONENT) | ~(other > _FAINT)
        # Beyond exp(709) an empty tail times infinity is NaN.
        deltas[first == 0] = 0.0
        raised = deltas + _TAILS * first
        cancelled &= first > 0
        if np.any(cancelled):
            integrated = self._accumulated(step, t, first)
            raised[cancelled] = integrated[cancelled]
        return np.minimum(raised * RAISED, 1.0)

    def _integrated(self, t: float) -> float:
        """`delta = r * integral_0^inf exp(-r v) P[V > t + v] dv`, in which every term is positive.

        This is `E[1 - exp(-(loss - epsilon))]_+` after one integration by parts.
        """
        # Everything is measured from t, because with a large r the distances are too small to be added to t.
        r, spread, rate, centre = self.r, self.spread, self.rate, self.centre - t
        end = min(_NEGLIGIBLE / r, max(0.0, centre) + 50 * spread + 50 / rate)
        doubling = np.exp2(np.arange(-2.0, 1 + max(1, math.ceil(math.log2(1 + abs(t) + end)))))
        scales = np.concatenate([[0.25, 0.5], np.arange(1.0, 12.0), np.arange(12.0, 51.0, 3.0)])
        # Far out a tail may fall much faster than anywhere else.
        steep = end * np.exp2(np.arange(-26.0, 0.0, 2.0))
        edges = [np.array([0.0, end, -t, centre]), doubling - t, -doubling - t, scales / r, scales / rate, steep]
        edges += [centre - scales * spread, centre + scales * spread]
        breaks = np.concatenate(edges)
        breaks = np.unique(breaks[(breaks >= 0) & (breaks <= end)])
        return min(1.0, r * integrate(lambda u: np.exp(-r * u) * self.upper(t + u), breaks))

    def _accumulated(self, step: float, t: Array, first: Array) -> Array:
        """The integral of :meth:`_integrated` at increasing `t`, each from the one after it, in one pass from the top.

        `first` is `P[V > t]`. Each step is cut into panels in which the integrand changes little. Where that would take
        too many of them, the integral is taken by itself.
        """
        # Beyond this share of a step there is nothing left of the integrand.
        end = min(1.0, _NEGLIGIBLE / step)
        width = step / self.r
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            tail = np.log(first[:-1] / first[1:])
        finest = end * max(width / (_SMOOTH * min(1.0, self.spread)), step / (4 * _SMOOTH))
        # A log-concave tail falls most in the last panel of a step, so of several panels each may have half as much.
        steepest = 2 * float(np.max(tail, where=np.isfinite(tail), initial=0.0)) / _FALL
        cuts = 1
        if finest > 1 or steepest > 2:
            cuts = max(1, math.ceil(min(max(finest, steepest), _MOST_PANELS)))
        smooth = (finest <= cuts) & (tail <= (_FALL if cuts == 1 else _FALL * cuts / 2))
        u, weights = nodes(np.linspace(0.0, end, cuts + 1))
        weights *= step * np.exp(-step * u)
        panels = np.zeros_like(tail)
        places = np.flatnonzero(smooth)
        for some in np.array_split(places, len(places) * len(u) // _AT_A_TIME + 1):
            panels[some] = np.add.reduce(self.upper(t[some, None] + width * u) * weights, axis=1)
        fall = math.exp(-step)
        deltas = np.empty_like(t)
        deltas[-1] = self._integrated(float(t[-1]))
        for i in range(len(t) - 2, -1, -1):
            if smooth[i]:
                deltas[i] = panels[i] + fall * deltas[i + 1]
            else:
                deltas[i] = self._integrated(float(t[i])) if first[i] > 0 else 0.0
        return deltas


# The hockey-stick divergence of Gamma and Beta distributions with large parameters.
#
# Such a distribution is narrow: the logarithm of a Gamma variable with parameter 1e12 has a standard deviation of 1e-6.
# Its tails need arguments with far more digits than a difference of logarithms of 1e12 keeps. So everything is measured
# from the mode, and the divergence is one integral of the density, in which every term is positive.


# Parameters are large from this one on: Stirling's series has 16 digits after two terms, and the distribution is
# narrow.
LARGE = 1e4
# The integral begins so many standard deviations from the mode, and ends so many beyond the mode and its own start.
_LEFT, _REACH = -40.0, 12.0
# Beyond so many standard deviations the density is below exp(-745), the smallest double.
_FURTHEST = 60.0
_ROUNDING = 2e-15
# The integral ends where the integrand has fallen to exp(-60).
_NARROW_LOSS_NEGLIGIBLE = 60.0


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
        length = from_mode - left + min(_REACH, _NARROW_LOSS_NEGLIGIBLE / slope if slope > 0 else math.inf)
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
