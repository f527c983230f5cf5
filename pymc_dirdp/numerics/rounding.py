"""Doubles on the safe side of exact numbers, and short numbers on the safe side of doubles."""

import math
from decimal import Decimal
from fractions import Fraction

__all__ = ["at_least_in_short", "at_most_in_short", "not_below"]


def not_below(exact: Fraction) -> float:
    """The least double that is not below `exact`; infinite beyond the largest double.

    Examples
    --------
    >>> not_below(Fraction(1, 2))
    0.5
    >>> Fraction(not_below(Fraction(1, 3))) > Fraction(1, 3)
    True
    """
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def at_least_in_short(value: float, digits: int = 6) -> float:
    """The least number of so many digits that is not below a value: an upper bound that can be printed.

    With `:g` it is printed exactly, while `:g` of the value itself might print a smaller number, which is no bound.

    Examples
    --------
    >>> at_least_in_short(1.0000004)
    1.00001
    >>> at_least_in_short(0.1)
    0.1
    >>> at_least_in_short(7.38905609893065, digits=3)
    7.39
    """
    if not math.isfinite(value):
        return value
    nearest = f"{value:.{digits - 1}e}"
    if float(nearest) >= value:
        return float(nearest)
    short = Decimal(nearest)
    return float(short + Decimal(1).scaleb(short.adjusted() - digits + 1))


def at_most_in_short(value: float, digits: int = 6) -> float:
    """The largest number of so many digits that is not above a value.

    Examples
    --------
    >>> at_most_in_short(12.3456789)
    12.3456
    """
    return -at_least_in_short(-value, digits)
