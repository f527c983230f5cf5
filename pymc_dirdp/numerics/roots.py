"""Roots and rounding that end on the safe side."""

import math
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import UnattainableError

# Doubles on the safe side of exact numbers, and decimal numbers on the safe side of doubles.


def round_up(exact: Fraction) -> float:
    """The least double that is at least `exact`; infinite above the largest double.

    Examples
    --------
    >>> round_up(Fraction(1, 2))
    0.5
    >>> Fraction(round_up(Fraction(1, 3))) > Fraction(1, 3)
    True
    """
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def round_down(exact: Fraction) -> float:
    """The largest double that is at most `exact`.

    Examples
    --------
    >>> Fraction(round_down(Fraction(1, 10))) < Fraction(1, 10)
    True
    """
    return -round_up(-exact)


def product_above(*factors: float) -> float:
    """The product of numbers that are not negative, rounded up once.

    Examples
    --------
    >>> product_above(3.0, 0.1), 3 * 0.1
    (0.30000000000000004, 0.30000000000000004)
    >>> product_above(10.0, 0.1)
    1.0000000000000002
    """
    return (
        round_up(math.prod(map(Fraction, factors), start=Fraction(1)))
        if all(map(math.isfinite, factors))
        else math.prod(factors)
    )


def raised[Real: (float, Array)](value: Real, ulps: float) -> Real:
    """A computed number from above: `value` and `ulps` units of its last place.

    It is an upper bound of the exact number if `value` is at least 0 and its rounding error is at most
    `ulps * 2**-52` relative, or `ulps` times the least double. A positive number that has become 0 is positive again.

    Examples
    --------
    >>> raised(0.1, 2) - 0.1 <= 2 * 2.0**-52, raised(0.0, 2)
    (True, 1e-323)
    """
    return value * (1 + ulps * 2.0**-52) + ulps * 5e-324


def raised_exp(logs: Array) -> Array:
    """The exponentials of numbers up to 0, from above."""
    return np.minimum(raised(np.exp(logs), 4), 1.0)


def ceil_to_digits(value: float, digits: int = 6) -> float:
    """The least number with `digits` digits that is at least `value`, which is an upper bound to print.

    `:g` prints this number exactly, while `:g` of `value` could print a smaller number, which is not a bound.

    Examples
    --------
    >>> ceil_to_digits(1.0000004)
    1.00001
    >>> ceil_to_digits(0.1)
    0.1
    >>> ceil_to_digits(7.38905609893065, digits=3)
    7.39
    """
    if not math.isfinite(value):
        return value
    nearest = f"{value:.{digits - 1}e}"
    if float(nearest) >= value:
        return float(nearest)
    short = Decimal(nearest)
    return float(short + Decimal(1).scaleb(short.adjusted() - digits + 1))


def floor_to_digits(value: float, digits: int = 6) -> float:
    """The largest number with `digits` digits that is at most `value`.

    Examples
    --------
    >>> floor_to_digits(12.3456789)
    12.3456
    """
    return -ceil_to_digits(-value, digits)


# Roots that end on the safe side.


def log_ratio_to_budget(loss: float, allowed: float) -> float:
    """`log(loss / allowed)`, which is at most 0 exactly if `loss <= allowed`, despite rounding. Either may be 0."""
    if loss <= allowed:
        return min(math.log(loss) - math.log(allowed), 0.0) if loss > 0 else -math.inf
    # A NaN may be any loss, and comparisons with it are False.
    return math.inf if math.isnan(loss) or allowed <= 0 else max(math.log(loss) - math.log(allowed), 5e-324)


def safe_root(excess: Callable[[float], float], *, safe: float, unsafe: float, rtol: float = 2e-12) -> float:
    """The last point from `safe` to `unsafe` at which a guarantee holds.

    Parameters
    ----------
    excess : callable
        At most 0 exactly if the guarantee holds. May be infinite.
    safe, unsafe : float
        Positive, in either order. The guarantee holds at `safe` and not at `unsafe`.
    rtol : float
        Relative tolerance of the root.

    Returns
    -------
    x : float
        `excess(x) <= 0` was checked, and x is within about 50 `rtol` of the root.
    """
    from scipy.optimize import brentq  # Here, because it takes most of a second to import.

    excess = cache(excess)  # Brent's method evaluates both ends again.

    def bounded(log_x: float) -> float:
        # Brent's method interpolates, so infinities are replaced by large numbers.
        return min(max(excess(math.exp(log_x)), -1e3), 1e3)

    ends = math.log(safe), math.log(unsafe)
    if bounded(ends[0]) > 0 or bounded(ends[1]) <= 0:
        return safe  # An end is itself within rounding of the root.
    root = math.exp(brentq(bounded, *ends, xtol=rtol, rtol=1e-14))
    # Brent's method may end on either side. Step towards the safe end until the guarantee holds.
    step = -rtol if safe < unsafe else rtol
    x = root
    while excess(x) > 0:
        x *= 1 + step
        step *= 2
        if (x > safe) != (unsafe > safe):
            return safe
    return x


def with_slack(x: float, excess: Callable[[float], float], *, slack: float = 2.0**-34) -> float:
    """A number slightly below `x` if the guarantee holds there, too, so that rounding elsewhere does not break it.

    The relative `slack` of 6e-11 is far above the rounding of a curve and far below anything of practical interest.
    """
    lower = x * (1 - slack)
    return lower if excess(lower) <= 0 else x


def bracket(
    excess: Callable[[float], float],
    *,
    start: float = 1.0,
    factor: float = 2.0,
    least: float = 1e-300,
    most: float = 1e300,
) -> tuple[float, float]:
    """Two points on both sides of the point at which a guarantee breaks, a factor apart.

    Parameters
    ----------
    excess : callable
        At most 0 exactly if the guarantee holds.
    start : float
        The first point, positive.
    factor : float
        The direction in which the guarantee breaks: above 1 if it holds for small numbers, otherwise below 1.
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
    tight: str = "The guarantee is so tight that no setting satisfies it; relax it.",
    loose: str = "The guarantee is so loose that every setting satisfies it; ask for a tighter one.",
    **search: float,
) -> float:
    """The last point at which a guarantee holds, from :func:`bracket` with its arguments and :func:`safe_root`.

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


def largest_satisfying(excess: Callable[[float], float], **search: Any) -> float:
    """The result of :func:`last_safe` :func:`with_slack`."""
    return with_slack(last_safe(excess, **search), excess)


def least_epsilon(curve: Callable[[float], float], delta: float) -> float:
    """The least `epsilon >= 0` with `curve(epsilon) <= delta`, from above, within 1e-9 relative, for a falling curve.

    It is `inf` if the curve is above `delta` at every double.
    """
    if curve(0.0) <= delta:
        return 0.0

    @cache
    def excess(epsilon: float) -> float:
        return log_ratio_to_budget(curve(epsilon), delta)

    high = 1.0
    while excess(high) > 0:
        # Large steps, because a step may be slow, and 1e308 is a thousand doublings away.
        high *= 2.0 if high < 1e4 else 1e4
        if math.isinf(high):
            return math.inf
    _, low = bracket(excess, start=high, factor=0.5)
    return safe_root(excess, safe=high, unsafe=low) if low > 0 else high
