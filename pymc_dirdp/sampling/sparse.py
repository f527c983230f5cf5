"""The cells of a huge table of noise that pass a threshold, drawn exactly, in a time that depends on their number."""

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import geometric

__all__ = ["noise_above"]

# A rarer candidate is never seen: its mean distance to the next one is far beyond any table.
_RAREST = 2**256
# A number that stands for a probability is computed to so many digits beyond those that a coin needs.
_SPARE = 25
_EXPONENT = 10**18 - 1


def noise_above(n_cells: int, threshold: int, scale: Fraction, bits: Bits) -> tuple[Integers, list[int]]:
    """Where independent two-sided geometric noise is at least `threshold`, and how large it is there.

    Parameters
    ----------
    n_cells : int
        Number of cells, at least 1 and below 2**63.
    threshold : int
        At least 1, and at most 10**15 times the scale.
    scale : Fraction
        Positive: `P[G = g]` is proportional to `exp(-|g| / scale)`.
    bits : Bits

    Returns
    -------
    places : array of int64
        The cells, in order, counted from 0.
    noise : list of int
        What each of them holds, at least `threshold`.

    Notes
    -----
    Candidates are the cells at which a coin of probability `1 - exp(-1 / t)` shows heads, for an integer t. The
    number of cells before the next candidate is geometric with ratio `exp(-1 / t)`, so it is drawn at once. A candidate
    is accepted with probability `p / (1 - exp(-1 / t))`, where `p = exp(-threshold / scale) / (1 + exp(-1 / scale))` is
    the probability to pass the threshold; t is the largest integer, nearly, for which that is at most 1. So each cell
    is accepted with probability p, independently of all others. The noise above the threshold is geometric again,
    because it has no memory.

    A coin compares uniform bits with bounds on its probability, and asks for more bits and tighter bounds until they
    decide. So no probability is rounded.

    Examples
    --------
    >>> places, noise = noise_above(10**10, 40, Fraction(2), Bits())
    >>> len(places) == len(noise) < 1000 and all(g >= 40 for g in noise)
    True
    """
    t = _mean_distance(threshold, scale)

    @cache
    def ends(length: int) -> tuple[int, int]:
        return _acceptance_bounds(threshold, scale, t, length)

    uniform, place, places, noise = bits.uniform, -1, [], []
    while (place := place + 1 + geometric(uniform, t, 1)) < n_cells:
        if coin(ends, bits):
            places.append(place)
            noise.append(threshold + geometric(uniform, scale.numerator, scale.denominator))
    return np.array(places, dtype=np.int64), noise


def coin(ends: Callable[[int], tuple[int, int]], bits: Bits) -> bool:
    """True with a probability p of which bounds are known.

    Parameters
    ----------
    ends : callable
        For a length, two integers with `low <= p * 2**length <= high`, which come together as the length grows.
    bits : Bits
    """
    number, length = bits.uniform(2**64), 64
    while True:
        low, high = ends(length)
        # The uniform number lies between number / 2**length and (number + 1) / 2**length.
        if number < low:
            return True
        if number >= high:
            return False
        number, length = number << 64 | bits.uniform(2**64), length + 64


def _mean_distance(threshold: int, scale: Fraction) -> int:
    """An integer t with `1 - exp(-1 / t) >= p`, where p is the probability to pass the threshold."""
    with localcontext(_context(3 * _SPARE + len(str(_RAREST)) + len(str(threshold)))) as context:
        p = _passing(threshold, scale)
        # It is below 1 / 2, so 1 is such a number; and so is any t <= (1 - p) / p, because 1 - exp(-1 / t) is at least
        # 1 / (t + 1). One less makes up for rounding.
        return _RAREST if p * _RAREST < 1 else max(1, int(context.divide(1 - p, p)) - 1)


def _acceptance_bounds(threshold: int, scale: Fraction, t: int, length: int) -> tuple[int, int]:
    """Bounds on the probability with which a candidate is accepted, times `2**length`."""
    size = _decimal(threshold / scale)
    digits = length // 3 + _SPARE + 2 * len(str(t)) + len(str(int(size)))
    with localcontext(_context(digits)):
        share = _passing(threshold, scale) / (1 - (-1 / Decimal(t)).exp())
        # Each operation is rounded to the nearest number of so many digits, and exponents before they are taken; the
        # difference from 1 is at least 1 / (t + 1).
        error = Decimal(10) ** (1 - digits) * (4 * _decimal(threshold / scale) + 8 * t + 40)
        return int(share * (1 - error) * 2**length), int(share * (1 + error) * 2**length) + 1


def _passing(threshold: int, scale: Fraction) -> Decimal:
    """The probability to pass the threshold, in the digits of the context."""
    return (-_decimal(threshold / scale)).exp() / (1 + (-_decimal(1 / scale)).exp())


def _context(digits: int) -> Context:
    return Context(prec=digits, rounding="ROUND_HALF_EVEN", Emax=_EXPONENT, Emin=-_EXPONENT)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
