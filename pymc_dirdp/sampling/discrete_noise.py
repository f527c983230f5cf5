"""Discrete Laplace and discrete Gaussian noise in whole numbers: no floating-point number takes part in a draw."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.sampling.bits import Bits

__all__ = ["discrete_gaussian", "discrete_laplace", "rounded_up"]

Whole = NDArray[Any]

_DIGITS = 41


def rounded_up(value: float) -> Fraction:
    """The least number with 41 binary digits that is not below a positive double: what is used in its place."""
    mantissa, exponent = math.frexp(value)
    return Fraction(math.ceil(math.ldexp(mantissa, _DIGITS))) * Fraction(2) ** (exponent - _DIGITS)


def discrete_laplace(scale: Fraction, shape: tuple[int, ...], bits: Bits) -> Whole:
    """Independent whole numbers x with probabilities proportional to `exp(-|x| / scale)`.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Algorithm 2.
    """
    t, s = scale.numerator, scale.denominator
    return _array(lambda: _laplace(t, s, bits), shape)


def discrete_gaussian(variance: Fraction, shape: tuple[int, ...], bits: Bits) -> Whole:
    """Independent whole numbers x with probabilities proportional to `exp(-x**2 / (2 variance))`.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Algorithm 3.
    """
    n, d = variance.numerator, variance.denominator
    return _array(lambda: _gaussian(n, d, bits), shape)


def _array(draw: Callable[[], int], shape: tuple[int, ...]) -> Whole:
    values = np.empty(math.prod(shape), dtype=object)
    values[:] = [draw() for _ in range(len(values))]
    return values.reshape(shape)


def _coin(a: int, b: int, bits: Bits) -> bool:
    """True with probability `exp(-a / b)`, for 0 <= a <= b."""
    k = 1
    while bits.uniform(k) == 0 and bits.uniform(b) < a:
        k += 1
    return k % 2 == 1


def _coins(a: int, b: int, bits: Bits) -> bool:
    """True with probability `exp(-a / b)`, for any a >= 0."""
    while a > b:
        if not _coin(1, 1, bits):
            return False
        a -= b
    return _coin(a, b, bits)


def _laplace(t: int, s: int, bits: Bits) -> int:
    while True:
        u = bits.uniform(t)
        if not _coin(u, t, bits):
            continue
        v = 0
        while _coin(1, 1, bits):
            v += 1
        size = (u + t * v) // s
        negative = bits.uniform(2) == 1
        if size or not negative:
            return -size if negative else size


def _gaussian(n: int, d: int, bits: Bits) -> int:
    t = math.isqrt(n // d) + 1
    while True:
        y = _laplace(t, 1, bits)
        if _coins((abs(y) * d * t - n) ** 2, 2 * n * d * t * t, bits):
            return y
