"""Real parameters as the rational numbers that the exact samplers use."""

import math
from collections.abc import Sequence
from fractions import Fraction

__all__ = ["dyadic_above", "over_one_power"]

# Rounding to 41 digits changes a number by at most 2**-40 of it, and leaves numerators that fit into compiled code.
_DIGITS = 41


def dyadic_above(value: float | Fraction) -> Fraction:
    """The least number with at most 41 binary digits that is not below `value`.

    Parameters
    ----------
    value : float or Fraction
        Positive, of any size: the scale or the variance of noise.

    Returns
    -------
    used : Fraction
        At most `value * (1 + 2**-40)`. It is a number of 41 digits times a power of two, so it is a double unless it
        is too large or too small for one, and the privacy curves can be those of the very number that is used. A double
        that would be rounded up beyond the largest one is returned as it is.

    Raises
    ------
    ValueError
        If `value` is not a positive number.

    Examples
    --------
    >>> dyadic_above(10.0)
    Fraction(10, 1)
    >>> float(dyadic_above(0.1)) / 0.1 - 1 < 2**-40
    True
    """
    if not 0 < value < math.inf:
        raise ValueError("Expected a positive and finite number.")
    exact = Fraction(value)
    # 2**(exponent - 1) < exact < 2**(exponent + 1).
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    exponent -= exact < Fraction(2) ** exponent
    step = Fraction(2) ** (exponent + 1 - _DIGITS)
    used = math.ceil(exact / step) * step
    return exact if isinstance(value, float) and used >= 2**1024 else used


def over_one_power(values: Sequence[float]) -> tuple[list[int], int]:
    """Doubles as integers over one power of two, exactly.

    Parameters
    ----------
    values : sequence of float
        Finite.

    Returns
    -------
    numerators : list of int
    digits : int
        Binary digits after the point: each value is its numerator over `2**digits`.

    Examples
    --------
    >>> over_one_power([0.75, 3.0])
    ([3, 12], 2)
    """
    ratios = [value.as_integer_ratio() for value in values]
    digits = max((denominator.bit_length() - 1 for _, denominator in ratios), default=0)
    return [numerator << digits + 1 - denominator.bit_length() for numerator, denominator in ratios], digits
