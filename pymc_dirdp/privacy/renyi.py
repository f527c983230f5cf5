"""Rényi divergences of `Gamma(a + r)` from `Gamma(a)` and back (Theory, section 3)."""

import math
from fractions import Fraction

import numpy as np
from scipy.special import gammaln, zeta

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.quadrature import graded_breaks, nodes

__all__ = ["renyi_add", "renyi_remove"]

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
