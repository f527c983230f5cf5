"""Roots that end on the safe side."""

import math
from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import Any

from pymc_dirdp.errors import UnattainableError

__all__ = [
    "bracket",
    "found_together",
    "largest_safe",
    "last_safe",
    "least_epsilon",
    "log_excess",
    "near_root",
    "root_search",
    "safe_root",
    "with_margin",
]

type RootSearch = Generator[float, float, float | None]

# This relative margin of 6e-11 is far above the rounding of a curve and far below anything of practical interest.
_MARGIN = 2.0**-34
# A secant that did not end after so many steps is given up for bisection, which then takes as many again as it needs.
_SECANTS, _MOST_STEPS = 10, 60


def log_excess(loss: float, allowed: float) -> float:
    """`log(loss / allowed)`, which is at most 0 exactly where `loss <= allowed`, whatever rounding does."""
    if loss <= allowed:
        return min(math.log(loss) - math.log(allowed), 0.0) if loss > 0 else -math.inf
    # NaN may be any loss, and no comparison notices it.
    return math.inf if math.isnan(loss) else max(math.log(loss) - math.log(allowed), 5e-324)


def safe_root(excess: Callable[[float], float], *, safe: float, unsafe: float, rtol: float = 2e-12) -> float:
    """The last point at which a guarantee still holds, going from `safe` to `unsafe`.

    Parameters
    ----------
    excess : callable
        At most 0 exactly where the guarantee holds. May be infinite.
    safe, unsafe : float
        Positive, in either order. The guarantee holds at `safe` and not at `unsafe`.
    rtol : float
        How close to the root to end, relative.

    Returns
    -------
    x : float
        `excess(x) <= 0` was evaluated and holds; x is within about 50 `rtol` of the root.
    """
    from scipy.optimize import brentq  # Here, because it takes most of a second to import.

    def bounded(log_x: float) -> float:
        # Brent's method interpolates, so infinities are replaced by large numbers.
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
    """A little less than `x`, if the guarantee holds there too, so that rounding elsewhere does not break it."""
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
    """Two points around the one at which a guarantee stops holding, by steps of a factor.

    Parameters
    ----------
    excess : callable
        At most 0 exactly where the guarantee holds.
    start : float
        The first point, positive.
    factor : float
        In this direction the guarantee breaks: above 1 if it holds for small numbers, below 1 if for large ones.
    least, most : float
        The ends of the search.

    Returns
    -------
    safe, unsafe : float
        At most a factor apart. If all points up to an end are on one side, the other point is 0 or infinite.
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
    """The last point at which a guarantee holds, by :func:`bracket` with its arguments and then :func:`safe_root`.

    Raises
    ------
    UnattainableError
        If the guarantee holds nowhere, with the text `tight`, or everywhere, with the text `loose`.
    """
    safe, unsafe = bracket(excess, **search)
    if not 0 < safe < math.inf:
        raise UnattainableError(tight)
    if not 0 < unsafe < math.inf:
        raise UnattainableError(loose)
    return safe_root(excess, safe=safe, unsafe=unsafe, rtol=rtol)


def largest_safe(excess: Callable[[float], float], **search: Any) -> float:
    """The result of :func:`last_safe`, less the marginal of :func:`with_margin`."""
    return with_margin(last_safe(excess, **search), excess)


def near_root(
    excess: Callable[[float], float],
    start: float,
    *,
    slope: float,
    close: float,
    reach: float = 1.0,
    least: float = -math.inf,
    most: float = math.inf,
) -> float | None:
    """A point close to the last one at which a guarantee holds, in few steps, for a curve that is nearly straight.

    Parameters
    ----------
    excess : callable
        At most 0 exactly where the guarantee holds, which is up to some point. May be infinite.
    start : float
        The first point.
    slope : float
        About how much `excess` rises for a step of 1, positive.
    close : float
        How far below 0 `excess` may be at the end.
    reach : float
        The longest step.
    least, most : float
        The ends of the search.

    Returns
    -------
    x : float or None
        `excess(x) <= 0` was evaluated and holds. It is above `-close`, or x is `most`, or there is a jump. None if the
        guarantee does not hold at `least`.

    Examples
    --------
    >>> x = near_root(lambda x: x**3 - 8, 1.0, slope=3.0, close=1e-6)
    >>> 2 - 1e-7 < x <= 2
    True
    """
    search = root_search(start, slope=slope, close=close, reach=reach, least=least, most=most)
    return found_together([search], lambda points: [excess(x) for x in points.values()])[0]


def found_together[Result](
    searches: Sequence[Generator[float, float, Result]], values: Callable[[dict[int, float]], Sequence[float]]
) -> list[Result]:
    """The results of several searches, whose functions are looked at together.

    Parameters
    ----------
    searches : sequence of generator
        From :func:`root_search` or :func:`~pymc_dirdp.numerics.minima.minimum_search`.
    values : callable
        Takes a point of each search that goes on, by its number, and returns the value of each, in the same order.
    """
    found: dict[int, Result] = {}
    points = {i: next(search) for i, search in enumerate(searches)}
    while points:
        for i, value in zip(list(points), values(points), strict=True):
            try:
                points[i] = searches[i].send(value)
            except StopIteration as end:
                found[i] = end.value
                del points[i]
    return [found[i] for i in range(len(searches))]


def root_search(
    start: float,
    *,
    slope: float,
    close: float,
    reach: float = 1.0,
    least: float = -math.inf,
    most: float = math.inf,
) -> RootSearch:
    """The search of :func:`near_root`, with its arguments, which yields each point where it asks for `excess`."""
    safe, unsafe, x = -math.inf, math.inf, min(max(start, least), most)
    last: tuple[float, float] | None = None
    for step in range(_MOST_STEPS):
        value = yield x
        if value <= 0:
            safe = x
            if value > -close or x == most:
                return x
        else:
            unsafe = x
            if x == least:
                return None
        if last is not None and math.isfinite(value - last[1]):
            # A curve that is flat for a while is steeper further on.
            slope = max((value - last[1]) / (x - last[0]), slope / 8)
        last = x, value
        # The aim is a little on the safe side.
        further = x - min(max((value + close / 2) / slope, -reach), reach)
        if not safe < further < unsafe or (step >= _SECANTS and unsafe - safe < math.inf):
            further = (safe + unsafe) / 2
        if further in (safe, unsafe):
            break
        x = min(max(further, least), most)
    return safe if safe > -math.inf else None


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
        # Large steps, because one may take long and 1e308 is a thousand doublings away.
        high *= 2.0 if high < 1e4 else 1e4
        if math.isinf(high):
            return math.inf
    _, low = bracket(excess, start=high, factor=0.5)
    return safe_root(excess, safe=high, unsafe=low) if low > 0 else high
