"""The hockey-stick divergence of two distributions, from the tails of their privacy loss."""

import math
import sys
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.quadrature import integrate, nodes

__all__ = ["RAISED", "Loss"]

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
# A step of a grid is one panel if it is at most this share of the law's scales and the tail falls by less than exp(2).
_SMOOTH, _FALL = 0.5, 2.0
# More panels of one step would not be quicker than integrals that are taken one by one.
_MOST_PANELS = 64
# So many numbers are held at a time.
_AT_A_TIME = 2**19


class Tail(Protocol):
    """The probability that V lies above a number, or above each number of an array."""

    def __call__[Real: (float, Array)](self, v: Real, /) -> Real: ...


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
