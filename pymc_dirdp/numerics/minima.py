"""The least value of a function on an interval."""

import math
from collections.abc import Generator

__all__ = ["minimum_search"]

# The part of an interval that a golden section takes off.
_GOLDEN = (3 - math.sqrt(5)) / 2
_MOST_STEPS = 500


def minimum_search(low: float, high: float, close: float) -> Generator[float, float, tuple[float, float]]:
    """Brent's search for the minimum on an interval, which yields each point where it asks for the value.

    So several searches can ask together, see :func:`~pymc_dirdp.numerics.roots.found_together`, which those of SciPy
    cannot.

    Parameters
    ----------
    low, high : float
        The ends, which are not looked at.
    close : float
        How close to the minimum to end.

    Returns
    -------
    x, value : float
        The best point that was seen, and the value there, or 1e300 if that is less.

    References
    ----------
    Brent (1973), Algorithms for Minimization without Derivatives, chapter 5.

    Examples
    --------
    >>> from pymc_dirdp.numerics.roots import found_together
    >>> search = minimum_search(-1.0, 4.0, close=1e-7)
    >>> [(x, value)] = found_together([search], lambda points: [(x - 1) ** 2 for x in points.values()])
    >>> round(x, 6)
    1.0
    """
    best = second = third = low + _GOLDEN * (high - low)
    value = second_value = third_value = min((yield best), 1e300)
    step = before = 0.0
    for _ in range(_MOST_STEPS):
        middle, least = (low + high) / 2, 1.5e-8 * abs(best) + close / 3
        if abs(best - middle) <= 2 * least - (high - low) / 2:
            break
        # The lowest point of a parabola through the best three.
        a = (best - second) * (value - third_value)
        b = (best - third) * (value - second_value)
        over, under = (best - third) * b - (best - second) * a, 2 * (b - a)
        over, under = (-over, under) if under > 0 else (over, -under)
        inside = under * (low - best) < over < under * (high - best)
        if abs(before) > least and abs(over) < abs(under * before / 2) and inside:
            before, step = step, over / under
            if min(best + step - low, high - best - step) < 2 * least:
                step = math.copysign(least, middle - best)
        else:
            before = (high if best < middle else low) - best
            step = _GOLDEN * before
        x = best + math.copysign(max(abs(step), least), step)
        seen = min((yield x), 1e300)
        if seen <= value:
            low, high = (best, high) if x >= best else (low, best)
            third, third_value, second, second_value, best, value = second, second_value, best, value, x, seen
        else:
            low, high = (x, high) if x < best else (low, x)
            if seen <= second_value or second == best:
                third, third_value, second, second_value = second, second_value, x, seen
            elif seen <= third_value or third in (best, second):
                third, third_value = x, seen
    return best, value
