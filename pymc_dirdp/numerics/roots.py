"""Roots that end on the safe side."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from pymc_dirdp.errors import UnattainableError

__all__ = ["bracket", "largest_safe", "last_safe", "least_epsilon", "log_excess", "safe_root", "with_margin"]

# 6e-11, relative: far above the rounding of a curve, and far below what anybody could see.
_MARGIN = 2.0**-34


def log_excess(loss: float, allowed: float) -> float:
    """`log(loss / allowed)`, at most 0 exactly where `loss <= allowed`: rounding does not decide."""
    if loss <= allowed:
        return min(math.log(loss) - math.log(allowed), 0.0) if loss > 0 else -math.inf
    # What is no number may be any loss: a comparison would not see it.
    return math.inf if math.isnan(loss) else max(math.log(loss) - math.log(allowed), 5e-324)


def safe_root(excess: Callable[[float], float], *, safe: float, unsafe: float, rtol: float = 2e-12) -> float:
    """The last point at which a promise still holds, going from `safe` to `unsafe`.

    Parameters
    ----------
    excess : callable
        At most 0 exactly where the promise holds. May be infinite.
    safe, unsafe : float
        Positive, in either order. The promise holds at `safe` and not at `unsafe`.
    rtol : float
        How close to the root to end, relative.

    Returns
    -------
    x : float
        `excess(x) <= 0` was evaluated and holds there; within about 50 `rtol` of where it stops to hold.
    """
    from scipy.optimize import brentq  # Here, because it takes most of a second to import.

    def bounded(log_x: float) -> float:
        # Brent's method interpolates, so infinities must be large instead.
        return min(max(excess(math.exp(log_x)), -1e3), 1e3)

    ends = math.log(safe), math.log(unsafe)
    if bounded(ends[0]) > 0 or bounded(ends[1]) <= 0:
        return safe  # An end is itself within rounding of the root.
    root = math.exp(brentq(bounded, *ends, xtol=rtol, rtol=1e-14))
    # Brent's method ends on either side. Step towards the safe end until the promise is seen to hold.
    step = -rtol if safe < unsafe else rtol
    x = root
    while excess(x) > 0:
        x *= 1 + step
        step *= 2
        if (x - safe) * (unsafe - safe) <= 0:
            return safe
    return x


def with_margin(x: float, excess: Callable[[float], float]) -> float:
    """A little less than `x`, if a promise that holds up to `x` holds there: rounding elsewhere must not break it.

    A release is verified on other machines, whose last digits differ.
    """
    lower = x * (1 - _MARGIN)
    return lower if excess(lower) <= 0 else x


def bracket(
    excess: Callable[[float], float],
    *,
    start: float = 1.0,
    factor: float = 2.0,
    least: float = 1e-300,
    most: float = 1e300,
) -> tuple[float, float]:
    """Two points around the one at which a promise stops to hold, found by steps of a factor.

    Parameters
    ----------
    excess : callable
        At most 0 exactly where the promise holds.
    start : float
        Where the search starts, positive.
    factor : float
        In this direction the promise breaks: above 1 if it holds for small numbers, below 1 if for large ones.
    least, most : float
        The search ends here.

    Returns
    -------
    safe, unsafe : float
        Neighbours, a factor apart or less. The one that was not found is 0 or infinite.
    """
    holds = excess(start) <= 0
    step, x = factor if holds else 1 / factor, start
    while (further := min(max(x * step, least), most)) != x:
        if (excess(further) <= 0) != holds:
            return (x, further) if holds else (further, x)
        x = further
    beyond = math.inf if step > 1 else 0.0
    return (x, beyond) if holds else (beyond, x)


def last_safe(
    excess: Callable[[float], float],
    *,
    rtol: float = 2e-12,
    tight: str = "The guarantee is so tight that no setting keeps it; relax it.",
    loose: str = "The guarantee is so loose that every setting keeps it; ask for a tighter one.",
    **search: float,
) -> float:
    """The last point at which a promise holds: :func:`bracket` with its arguments, and then :func:`safe_root`.

    Raises
    ------
    UnattainableError
        If the promise holds nowhere, with the text `tight`, or everywhere, with the text `loose`.
    """
    safe, unsafe = bracket(excess, **search)
    if not 0 < safe < math.inf:
        raise UnattainableError(tight)
    if not 0 < unsafe < math.inf:
        raise UnattainableError(loose)
    return safe_root(excess, safe=safe, unsafe=unsafe, rtol=rtol)


def largest_safe(excess: Callable[[float], float], **search: Any) -> float:
    """The largest `x` at which a promise holds, as :func:`last_safe`, less a little for rounding elsewhere."""
    return with_margin(last_safe(excess, **search), excess)


def least_epsilon(curve: Callable[[float], float], delta: float) -> float:
    """Least `epsilon >= 0` (from above, within 1e-9 relative) with `curve(epsilon) <= delta`, for a falling curve.

    It is `inf` where the curve is above `delta` at every double.
    """
    if curve(0.0) <= delta:
        return 0.0

    @cache
    def excess(epsilon: float) -> float:
        return log_excess(curve(epsilon), delta)

    high = 1.0
    while excess(high) > 0:
        # Few steps, where one may take long: there are thousands of factors of 2 between the ends of the doubles.
        high *= 2.0 if high < 1e4 else 1e4
        if math.isinf(high):
            return math.inf
    _, low = bracket(excess, start=high, factor=0.5)
    return safe_root(excess, safe=high, unsafe=low) if low > 0 else high
