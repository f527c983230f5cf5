"""Doubles on the safe side of exact numbers."""

import math
from fractions import Fraction

__all__ = ["not_below"]


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
