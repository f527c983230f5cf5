"""Two bounds of the same loss: at every point the smaller of both."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import final, override

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.privacy.curves import PrivacyCurves

__all__ = ["LeastOf"]

# The order at which the two bounds of rho meet is halved so often between 1 and the largest one.
_HALVINGS, _LARGEST = 24, 1e15


@final
@dataclass(frozen=True)
class LeastOf(PrivacyCurves):
    """The smaller of two bounds, of which the second is of a pure loss: a draw, and the urn that draws it.

    Parameters
    ----------
    draw, urn : PrivacyCurves
        Curves of the same release, each valid for all neighbours. The second have a finite `pure_epsilon`.

    Notes
    -----
    The divergence of order `x` over x is at most `draw.rho(t)` up to any order t, and `urn.pure_epsilon / t` beyond it,
    so that `rho` takes the order t at which they meet.

    Examples
    --------
    >>> from pymc_dirdp.privacy.dominating_pairs import ReplaceOnePair
    >>> from pymc_dirdp.privacy.randomised_response import RandomisedResponse
    >>> both = LeastOf(ReplaceOnePair(2.9, 2.9, 0.2), RandomisedResponse(1.7))
    >>> both.draw.rho(math.inf), both.rho(math.inf)
    (inf, 0.1...)
    """

    draw: PrivacyCurves
    urn: PrivacyCurves

    @property
    @override
    def pure_epsilon(self) -> float:
        return min(self.draw.pure_epsilon, self.urn.pure_epsilon)

    @property
    @override
    def from_divergences(self) -> bool:
        return self.draw.from_divergences or self.urn.from_divergences

    @property
    @override
    def curve_key(self) -> Hashable:
        return type(self), self.draw.curve_key, self.urn.curve_key

    @property
    @override
    def one_way(self) -> "LeastOf | None":
        return None if self.draw.one_way is None else LeastOf(self.draw.one_way, self.urn)

    @override
    def _renyi(self, order: float) -> float:
        return min(self.draw._renyi(order), self.urn._renyi(order))

    @override
    def _renyi_back(self, order: float) -> float:
        return min(self.draw._renyi_back(order), self.urn._renyi_back(order))

    @override
    def _delta(self, epsilon: float) -> float:
        return 0.0 if epsilon >= self.pure_epsilon else min(self.draw._delta(epsilon), self.urn._delta(epsilon))

    @override
    def _delta_back(self, epsilon: float) -> float:
        return min(self.draw._delta_back(epsilon), self.urn._delta_back(epsilon))

    @override
    def _epsilon(self, delta: float) -> float:
        epsilon = self.urn._epsilon(delta)
        # A curve may be slow, and one value of it says which of the two is smaller.
        return epsilon if self.draw._delta(epsilon) > delta else min(epsilon, self.draw._epsilon(delta))

    @override
    def _rho(self, omega: float) -> float:
        least = self.draw._renyi(1.0)
        # They meet before the order at which the pure loss over the order is the least divergence of the draw.
        ends = (omega, _LARGEST, self.pure_epsilon / least if least > 0 else _LARGEST)
        low, high = 0.0, math.log(max(min(ends), 1.0))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = self.draw._rho(math.exp(middle)) * math.exp(middle) <= self.pure_epsilon
            low, high = (middle, high) if below else (low, middle)
        # Any order is valid; the last one at which the draw loses less.
        meeting = math.exp(low)
        joined = max(self.draw._rho(meeting), math.nextafter(self.pure_epsilon / meeting, math.inf))
        return min(joined, self.draw._rho(omega), self.urn._rho(omega))

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        drawn, whole = self.draw.hockey_sticks(step, points), self.urn.hockey_sticks(step, points)
        there = _convex(step, np.minimum(drawn[0], whole[0]))
        # One object for both directions means that neighbours come in both orders.
        both_ways = drawn[0] is drawn[1] and whole[0] is whole[1]
        return there, there if both_ways else _convex(step, np.minimum(drawn[1], whole[1]))


def _convex(step: float, deltas: Array) -> Array:
    """The largest function below these points that is convex in `exp(epsilon)`, as every true curve is."""
    epsilons = (step * np.arange(len(deltas))).tolist()
    kept: list[int] = []
    for i, delta in enumerate(deltas.tolist()):
        while len(kept) > 1 and deltas[kept[-1]] >= _chord(epsilons, deltas, kept[-2], kept[-1], i, delta):
            kept.pop()
        kept.append(i)
    places = np.arange(len(deltas))
    left = np.clip(np.searchsorted(kept, places, side="right") - 1, 0, len(kept) - 2)
    first, last = np.array(kept)[left], np.array(kept)[left + 1]
    share = np.exp(step * (places - last)) * np.expm1(step * (first - places)) / np.expm1(step * (first - last))
    return np.asarray(deltas[first] + (deltas[last] - deltas[first]) * share)


def _chord(epsilons: list[float], deltas: Array, first: int, middle: int, last: int, delta: float) -> float:
    """The value in the middle of a line in `exp(epsilon)` from the first point to a last one at `delta`."""
    a, b, c = epsilons[first], epsilons[middle], epsilons[last]
    share = math.exp(b - c) * math.expm1(a - b) / math.expm1(a - c)
    return float(deltas[first] + (delta - deltas[first]) * share)
