"""Exact draws from random bits: discrete Laplace and Gaussian noise.

The algorithms use only integers and random bits (Canonne, Kamath and Steinke 2020). Python code draws numbers of any
size, and compiled code draws many numbers from the same words.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.bits import Bits, Uniform, Words, compiled, exponential_coin


def dyadic_above(value: float | Fraction) -> Fraction:
    """The least number with at most 41 binary digits that is at least `value`.

    Parameters
    ----------
    value : float or Fraction
        Positive, of any size: the scale or the variance of noise.

    Returns
    -------
    used : Fraction
        At most `value * (1 + 2**-40)`. It is an integer of 41 digits times a power of two, so it is a double unless it
        is too large or too small for one. The privacy curves can therefore use exactly the same number. A double that
        would be rounded up above the largest double is returned as it is.

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
    # The relative error of 41 digits is at most 2**-40, and the numerators fit into compiled code.
    step = Fraction(2) ** (exponent + 1 - 41)
    used = math.ceil(exact / step) * step
    return exact if isinstance(value, float) and used >= 2**1024 else used


# All numbers stay below this limit, so that no sum of two 64-bit integers overflows.
_LIMIT = 2**62
# Results of a draw with too few words, and of a draw in which a number would exceed the limit.
_NO_WORDS, _TOO_LARGE = 2**63 - 1, 2**63 - 2


def _draws(t: int, s: int, n: int, d: int, words: Words, noise: Integers, done: int) -> tuple[int, int, int]:
    """Draw until no words are left. Return the number of draws, the number of words used, and the last answer.

    If a draw is missing, the answer is the reason.
    """
    used, answer = 0, 0
    while done < noise.size:
        if d == 0:
            answer, position = _laplace(words, used, t, s)
        else:
            answer, position = _gaussian(words, used, t, n, d)
        if answer >= _TOO_LARGE:
            break
        noise[done] = answer
        done, used = done + 1, position
    return done, used, answer


def _uniform(words: Words, position: int, n: int) -> tuple[int, int]:
    """A uniform number below n, or -1 if there are too few words, and the position of the next word."""
    length = 0
    while (n - 1) >> length > 0:
        length += 1
    if length == 0:
        return 0, position
    while position < words.size:
        value = int(np.int64(words[position] >> np.uint64(64 - length)))
        position += 1
        if value < n:
            return value, position
    return -1, position


def _coin(words: Words, position: int, a: int, b: int, c: int, d: int) -> tuple[int, int]:
    """1 with probability exp(-(a / b) (c / d)), otherwise 0; -1 without words."""
    k = 1
    while True:
        value, position = _uniform(words, position, k)
        if value == 0:
            value, position = _uniform(words, position, b)
            if 0 <= value < a:
                value, position = _uniform(words, position, d)
                if 0 <= value < c:
                    k += 1
                    continue
        return (-1 if value < 0 else k & 1), position


def _coins(words: Words, position: int, times: int, a: int, b: int) -> tuple[int, int]:
    """1 if `times` coins with probability exp(-a / b) are all 1, otherwise 0; -1 without words."""
    answer = 1
    while times > 0 and answer == 1:
        answer, position = _coin(words, position, a, b, 1, 1)
        times -= 1
    return answer, position


def _laplace(words: Words, position: int, t: int, s: int) -> tuple[int, int]:
    while True:
        u, position = _uniform(words, position, t)
        if u < 0:
            return _NO_WORDS, position
        coin, position = _coin(words, position, u, t, 1, 1)
        if coin == 0:
            continue
        v = 0
        while coin == 1:
            coin, position = _coin(words, position, 1, 1, 1, 1)
            v += coin
        if coin < 0:
            return _NO_WORDS, position
        if v >= _LIMIT // t:
            return _TOO_LARGE, position
        size = (u + t * v) // s
        negative, position = _uniform(words, position, 2)
        if negative < 0:
            return _NO_WORDS, position
        if negative == 0:
            return size, position
        if size > 0:
            return -size, position


def _gaussian(words: Words, position: int, t: int, n: int, d: int) -> tuple[int, int]:
    while True:
        x, position = _laplace(words, position, t, 1)
        if x >= _TOO_LARGE:
            return x, position
        if abs(x) >= _LIMIT // (d * t):
            return _TOO_LARGE, position
        distance = abs(abs(x) * d * t - n)
        b, e = 2 * n, d * t * t
        i, y = distance // b, distance % b
        j, z = distance // e, distance % e
        if i > 0 and j >= _LIMIT // i:
            return _TOO_LARGE, position
        accepted, position = _coins(words, position, i * j, 1, 1)
        if accepted == 1:
            accepted, position = _coins(words, position, i, z, e)
        if accepted == 1:
            accepted, position = _coins(words, position, j, y, b)
        if accepted == 1:
            accepted, position = _coin(words, position, y, b, z, e)
        if accepted < 0:
            return _NO_WORDS, position
        if accepted == 1:
            return x, position


@cache
def compiled_draws() -> Callable[..., tuple[int, int, int]]:
    """The function `_draws`, compiled at the first call."""
    words = "Array(uint64, 1, 'C', readonly=True)"
    return compiled(
        f"UniTuple(int64, 3)(int64, int64, int64, int64, {words}, int64[::1], int64)",
        _draws,
        _uniform,
        _coin,
        _coins,
        _laplace,
        _gaussian,
    )


Draw = Callable[[Uniform], int]


def discrete_laplace(scale: Fraction, shape: tuple[int, ...], bits: Bits) -> NDArray[np.object_]:
    """Integers with `P[x]` proportional to `exp(-|x| / scale)`: two-sided geometric noise.

    Parameters
    ----------
    scale : Fraction
        Positive, of any size. For a real scale pass :func:`dyadic_above` of it.
    shape : tuple of int
        Shape of the independent cells.
    bits : Bits
        The source of randomness.

    Returns
    -------
    noise : array of Python integers, shape `shape`
        Their size is unbounded. Add integer counts before you round anything to a double.

    Notes
    -----
    The number of words of a draw, and so its time, depends on the noise but not on the counts.

    A draw takes 2 to 10 microseconds. Above 300,000 cells compiled code draws the noise; compilation takes one to two
    seconds, once. If a draw does not fit into 64-bit integers, Python code makes it from the same words.

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
        The parameter sigma**2, positive, of any size. The variance of the noise is smaller, by very little if sigma is
        above 1.
    shape, bits
        As in :func:`discrete_laplace`, whose notes apply here, too.

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


def geometric(uniform: Uniform, t: int, s: int) -> int:
    """A non-negative integer with `P[x]` proportional to `exp(-x s / t)`."""
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
    """One draw of discrete Laplace noise with scale `t / s`."""
    while True:
        size = geometric(uniform, t, s)
        negative = uniform(2) == 1
        # Both signs of 0 are the same number, so one of them is rejected.
        if not (negative and size == 0):
            return -size if negative else size


def gaussian(uniform: Uniform, n: int, d: int) -> int:
    """One draw of discrete Gaussian noise with `sigma**2 = n / d`."""
    t = math.isqrt(n // d) + 1
    while True:
        x = laplace(uniform, t, 1)
        # The draw is accepted with probability exp(-(|x| - sigma**2 / t)**2 / (2 sigma**2)).
        distance = abs(abs(x) * d * t - n)
        if _product_coin(uniform, distance, 2 * n, d * t * t):
            return x


def _product_coin(uniform: Uniform, a: int, b: int, d: int) -> bool:
    """True with probability `exp(-(a / b) * (a / d))`, for any a."""
    # (i + x / b) (j + z / d) = i j + i z / d + j x / b + x z / (b d), without numbers above a, b and d.
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
        raise ArgumentError(f"Expected {name} to be a positive Fraction. For a float pass dyadic_above of it.")
    return value.numerator, value.denominator


def _drawn(
    draw: Draw, numbers: tuple[int, int, int, int], shape: tuple[int, ...], bits: Bits, *, in_python: int = 300_000
) -> NDArray[np.object_]:
    """An array of draws.

    Parameters
    ----------
    draw : callable
        The draw in Python, also for numbers that do not fit into 64 bits.
    numbers : tuple of int
        `t, s, n, d`: the scale `t / s` of Laplace noise, and the variance `n / d` of the Gaussian noise made from it,
        or `d = 0` for Laplace noise.
    in_python : int, default 300,000
        Number of cells up to which Python is not slower than compilation.
    """
    t, _, n, d = numbers
    noise = np.empty(math.prod(shape), dtype=object)
    compiles = noise.size > in_python and max(*numbers, 2 * n, d * t * t) < _LIMIT
    drawn = np.empty(noise.size if compiles else 0, dtype=np.int64)
    done, least, answer = 0, 1, 0
    while done < noise.size:
        if compiles:
            start, words = done, bits.ahead(least)
            done, used, answer = compiled_draws()(*numbers, words, drawn, done)
            noise[start:done] = drawn[start:done].tolist()
            bits.spend(used)
            # A draw that runs out of words starts again from its first word, with more words to follow. New words would
            # favour short draws.
            least = words.size - used + 1 if answer == _NO_WORDS else 1
        if not compiles or answer == _TOO_LARGE:
            noise[done] = draw(bits.uniform)
            done += 1
    return noise.reshape(shape)
