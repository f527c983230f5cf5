"""Discrete Laplace and discrete Gaussian noise, drawn exactly with integers and random bits alone."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.bits import Bits

__all__ = ["discrete_gaussian", "discrete_laplace"]

Uniform = Callable[[int], int]
Draw = Callable[[Uniform], int]

# Up to so many cells Python is as fast as importing a compiler, which takes a second or two.
_CELLS_IN_PYTHON = 300_000


def discrete_laplace(scale: Fraction, shape: tuple[int, ...], bits: Bits) -> NDArray[np.object_]:
    """Integers with `P[x]` proportional to `exp(-|x| / scale)`: two-sided geometric noise.

    Parameters
    ----------
    scale : Fraction
        Positive, of any size. For a real scale take :func:`pymc_dirdp.sampling.rationals.dyadic_above` of it.
    shape : tuple of int
        Cells are independent.
    bits : Bits
        The source of randomness. The cells take their words one after the other.

    Returns
    -------
    noise : array of Python integers, shape `shape`
        Their size has no bound. Add whole counts to them before anything is rounded to a double.

    Notes
    -----
    The number of words that a draw takes, and so its time, depends on the noise and on no count.

    A draw takes 2 to 10 microseconds. Above 300,000 cells the draws are compiled, which takes one to two seconds once.
    A draw that does not fit into 64-bit integers is then made in Python from the same words.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Algorithm 2,
    https://arxiv.org/abs/2004.00010; Theory, section 15.

    Examples
    --------
    >>> noise = discrete_laplace(Fraction(10), (4,), Bits())
    >>> noise.shape, type(noise[0])
    ((4,), <class 'int'>)
    """
    t, s = _ratio(scale=scale)
    return _drawn(lambda uniform: laplace(uniform, t, s), (t, s, 1, 0), shape, bits)


def discrete_gaussian(variance: Fraction, shape: tuple[int, ...], bits: Bits) -> NDArray[np.object_]:
    """Integers with `P[x]` proportional to `exp(-x**2 / (2 * variance))`.

    Parameters
    ----------
    variance : Fraction
        The parameter sigma**2, positive, of any size. The variance of the noise is below it, by very little where
        sigma is above 1.
    shape, bits
        Same as in :func:`discrete_laplace`, whose notes apply here too.

    Returns
    -------
    noise : array of Python integers, shape `shape`

    References
    ----------
    Canonne, Kamath and Steinke (2020), Algorithm 3, https://arxiv.org/abs/2004.00010; Theory, section 15.

    Examples
    --------
    >>> discrete_gaussian(Fraction(10**40), (2,), Bits()).shape
    (2,)
    """
    n, d = _ratio(variance=variance)
    return _drawn(lambda uniform: gaussian(uniform, n, d), (math.isqrt(n // d) + 1, 1, n, d), shape, bits)


def exponential_coin(uniform: Uniform, a: int, b: int, c: int = 1, d: int = 1) -> bool:
    """True with probability `exp(-(a / b) * (c / d))`, for `a <= b` and `c <= d`."""
    k = 1
    # P[k > n] is (a c / (b d))**n / n!, so that P[k is odd] is the series of the exponential. The draws are separate,
    # because the product k b d might be large.
    while uniform(k) == 0 and uniform(b) < a and (d == 1 or uniform(d) < c):
        k += 1
    return k % 2 == 1


def geometric(uniform: Uniform, t: int, s: int) -> int:
    """An integer of at least 0, with `P[x]` proportional to `exp(-x s / t)`."""
    while True:
        u = uniform(t)
        if not exponential_coin(uniform, u, t):
            continue
        v = 0
        while exponential_coin(uniform, 1, 1):
            v += 1
        # u + t v is geometric with ratio exp(-1 / t).
        return (u + t * v) // s


def laplace(uniform: Uniform, t: int, s: int) -> int:
    """One draw of discrete Laplace noise of the scale `t / s`."""
    while True:
        size = geometric(uniform, t, s)
        negative = uniform(2) == 1
        # Both signs of 0 are the same number, so one of them is drawn again.
        if not (negative and size == 0):
            return -size if negative else size


def gaussian(uniform: Uniform, n: int, d: int) -> int:
    """One draw of discrete Gaussian noise with `sigma**2 = n / d`."""
    t = math.isqrt(n // d) + 1
    while True:
        x = laplace(uniform, t, 1)
        # The draw is kept with probability exp(-(|x| - sigma**2 / t)**2 / (2 sigma**2)).
        distance = abs(abs(x) * d * t - n)
        if _product_coin(uniform, distance, 2 * n, d * t * t):
            return x


def _product_coin(uniform: Uniform, a: int, b: int, d: int) -> bool:
    """True with probability `exp(-(a / b) * (a / d))`, for any a."""
    # (i + x / b) (j + z / d) = i j + i z / d + j x / b + x z / (b d), so no number is larger than a, b or d.
    i, x = divmod(a, b)
    j, z = divmod(a, d)
    return (
        all(exponential_coin(uniform, 1, 1) for _ in range(i * j))
        and all(exponential_coin(uniform, z, d) for _ in range(i))
        and all(exponential_coin(uniform, x, b) for _ in range(j))
        and exponential_coin(uniform, x, b, z, d)
    )


def _ratio(**named: Fraction) -> tuple[int, int]:
    ((name, value),) = named.items()
    if not isinstance(value, Fraction | int) or isinstance(value, bool) or value <= 0:
        raise ArgumentError(f"Expected {name} to be a positive Fraction. For a float take dyadic_above of it.")
    return value.numerator, value.denominator


def _drawn(draw: Draw, numbers: tuple[int, int, int, int], shape: tuple[int, ...], bits: Bits) -> NDArray[np.object_]:
    size = math.prod(shape)
    noise = np.empty(size, dtype=object)
    if size <= _CELLS_IN_PYTHON:
        noise[:] = [draw(bits.uniform) for _ in range(size)]
    else:
        from pymc_dirdp.sampling.compiled_noise import fill

        fill(noise, numbers, draw, bits)
    return noise.reshape(shape)
