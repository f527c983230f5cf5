"""Compiled draws for large tables: the same noise from the same words as in `discrete_noise`."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.sampling.bits import Bits, Words
from pymc_dirdp.sampling.compiling import compiled

__all__ = ["fill"]

# All numbers stay below this limit, so that no sum of two 64-bit integers overflows.
_LIMIT = 2**62
# The answers of a draw for which there were too few words, or in which a number would pass the limit.
_NO_WORDS, _TOO_LARGE = 2**63 - 1, 2**63 - 2


def fill(
    noise: NDArray[np.object_],
    numbers: tuple[int, int, int, int],
    draw: Callable[[Callable[[int], int]], int],
    bits: Bits,
) -> None:
    """Noise for every cell, in place.

    Parameters
    ----------
    numbers : tuple of int
        `t, s, n, d`: the scale `t / s` of Laplace noise, and the variance `n / d` of the Gaussian noise that is made
        from it, or `d = 0`.
    draw : callable
        The same draw in Python, for numbers that do not fit into 64 bits.
    """
    t, _, n, d = numbers
    fits = max(*numbers, 2 * n, d * t * t) < _LIMIT
    done, least = 0, 1
    drawn = np.empty(noise.size, dtype=np.int64)
    while done < noise.size:
        if fits:
            start, words = done, bits.ahead(least)
            done, used, answer = compiled_draws()(*numbers, words, drawn, done)
            noise[start:done] = drawn[start:done].tolist()
            bits.spend(used)
            # A draw that ran out of words starts again from its own first word, with more words behind it. Other words
            # would favour short draws.
            least = words.size - used + 1 if answer == _NO_WORDS else 1
        if not fits or answer == _TOO_LARGE:
            noise[done] = draw(bits.uniform)
            done += 1


def _draws(t: int, s: int, n: int, d: int, words: Words, noise: Integers, done: int) -> tuple[int, int, int]:
    """Draw until the words are used up. Returns the draws that are done, the words that they took, and the last answer.

    The answer says why the next draw is not done, if it is not.
    """
    used, answer = 0, 0
    while done < noise.size:
        if d == 0:
            answer, at = _laplace(words, used, t, s)
        else:
            answer, at = _gaussian(words, used, t, n, d)
        if answer >= _TOO_LARGE:
            break
        noise[done] = answer
        done, used = done + 1, at
    return done, used, answer


def _uniform(words: Words, at: int, n: int) -> tuple[int, int]:
    """A uniform number below n, or -1 if there are too few words, and the place of the next word."""
    length = 0
    while (n - 1) >> length > 0:
        length += 1
    if length == 0:
        return 0, at
    while at < words.size:
        value = int(np.int64(words[at] >> np.uint64(64 - length)))
        at += 1
        if value < n:
            return value, at
    return -1, at


def _coin(words: Words, at: int, a: int, b: int, c: int, d: int) -> tuple[int, int]:
    """1 with probability exp(-(a / b) (c / d)), otherwise 0; -1 without words."""
    k = 1
    while True:
        value, at = _uniform(words, at, k)
        if value == 0:
            value, at = _uniform(words, at, b)
            if 0 <= value < a:
                value, at = _uniform(words, at, d)
                if 0 <= value < c:
                    k += 1
                    continue
        return (-1 if value < 0 else k & 1), at


def _coins(words: Words, at: int, times: int, a: int, b: int) -> tuple[int, int]:
    """1 if that many coins with probability exp(-a / b) are all 1, otherwise 0; -1 without words."""
    answer = 1
    while times > 0 and answer == 1:
        answer, at = _coin(words, at, a, b, 1, 1)
        times -= 1
    return answer, at


def _laplace(words: Words, at: int, t: int, s: int) -> tuple[int, int]:
    while True:
        u, at = _uniform(words, at, t)
        if u < 0:
            return _NO_WORDS, at
        coin, at = _coin(words, at, u, t, 1, 1)
        if coin == 0:
            continue
        v = 0
        while coin == 1:
            coin, at = _coin(words, at, 1, 1, 1, 1)
            v += coin
        if coin < 0:
            return _NO_WORDS, at
        if v >= _LIMIT // t:
            return _TOO_LARGE, at
        size = (u + t * v) // s
        negative, at = _uniform(words, at, 2)
        if negative < 0:
            return _NO_WORDS, at
        if negative == 0:
            return size, at
        if size > 0:
            return -size, at


def _gaussian(words: Words, at: int, t: int, n: int, d: int) -> tuple[int, int]:
    while True:
        x, at = _laplace(words, at, t, 1)
        if x >= _TOO_LARGE:
            return x, at
        if abs(x) >= _LIMIT // (d * t):
            return _TOO_LARGE, at
        distance = abs(abs(x) * d * t - n)
        b, e = 2 * n, d * t * t
        i, y = distance // b, distance % b
        j, z = distance // e, distance % e
        if i > 0 and j >= _LIMIT // i:
            return _TOO_LARGE, at
        kept, at = _coins(words, at, i * j, 1, 1)
        if kept == 1:
            kept, at = _coins(words, at, i, z, e)
        if kept == 1:
            kept, at = _coins(words, at, j, y, b)
        if kept == 1:
            kept, at = _coin(words, at, y, b, z, e)
        if kept < 0:
            return _NO_WORDS, at
        if kept == 1:
            return x, at


@cache
def compiled_draws() -> Callable[..., tuple[int, int, int]]:
    """The draws, compiled at the first call."""
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
