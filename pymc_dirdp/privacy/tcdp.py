"""Truncated concentrated differential privacy from a Rényi curve of which only values are known."""

import itertools
import math
from collections.abc import Callable

import numpy as np

__all__ = ["rho_from_above"]

# The curve is evaluated at orders whose excess over 1 rises by a factor of 1.1, from this share of its range.
_POINTS = 100
_NEAREST = 1e-4


def rho_from_above(renyi: Callable[[float], float], omega: float) -> float:
    """Upper bound of `D_order / order` over `1 < order <= omega`, within about a per cent; omega may be infinite.

    `renyi` is the divergence, or the largest one of several pairs of distributions, and finite at an infinite order.

    `(order - 1) D_order` is convex in the order, so between two orders it lies below its chord; the bound is the
    largest value of the chord over `order (order - 1)`. Below the first point D is at most its value there, and beyond
    the last point it is at most the largest loss.
    """
    largest_loss, at_one = renyi(math.inf), renyi(1.0)
    if at_one == 0:
        return largest_loss
    # From the last order on, the largest loss over the order is below the divergence at 1. The points do not depend on
    # omega, so that the bound grows with omega.
    orders = (1 + largest_loss / at_one * np.geomspace(_NEAREST, 1, _POINTS)).tolist()
    first = orders[0]
    bound, cumulant = max(at_one, renyi(first)), (first - 1) * renyi(first)
    for a, b in itertools.pairwise(orders):
        if a >= omega:
            break
        after = (b - 1) * renyi(b)
        bound = max(bound, _under_chord(a, b, cumulant, after, min(b, omega)))
        cumulant = after
    return bound


def _under_chord(a: float, b: float, at_a: float, at_b: float, end: float) -> float:
    """The largest `(p + q x) / (x (x - 1))` on [a, end], where `p + q x` passes through the values at a and b."""
    q = (at_b - at_a) / (b - a)
    p = at_a - q * a
    points = [a, end]
    # The derivative vanishes where q x**2 + 2 p x - p = 0.
    if q > 0 and p * p + p * q >= 0:
        root = math.sqrt(p * p + p * q)
        points += [x for x in ((-p - root) / q, (-p + root) / q) if a < x < end]
    return max((p + q * x) / (x * (x - 1)) for x in points)
