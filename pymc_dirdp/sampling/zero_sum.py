"""Two-sided geometric noise that adds up to 0, drawn exactly with random bits; and in floating point.

A two-sided geometric number is the difference of two one-sided ones, `a - b`. Given their sum A, one-sided geometric
numbers are uniform over all lists of integers with that sum. So noise that adds up to 0 is the difference of two
independent uniform lists with the same sum, and that sum has the weight `C(A + d - 1, d - 1)**2 exp(-2 A / scale)`.
"""

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_laplace

__all__ = ["decimal_coin", "fast_zero_sum_laplace", "uniform_list", "zero_sum_laplace"]

# Decimal numbers start with so many digits, and uniform numbers with so many bits; each attempt doubles them.
_DIGITS, _BITS = 30, 64
_EXPONENT = 400_000_000
# Above this scale noise in floating point is continuous noise, rounded.
_CONTINUOUS = 2.0**30


def zero_sum_laplace(scale: Fraction, cells: int, bits: Bits) -> NDArray[np.object_]:
    """Integers that add up to 0, with `P[z]` proportional to `exp(-sum |z| / scale)`.

    Parameters
    ----------
    scale : Fraction
        Positive, of any size.
    cells : int
        At least 2.
    bits : Bits
        The source of randomness.

    Returns
    -------
    noise : array of Python integers, shape `(cells,)`

    Notes
    -----
    One-sided geometric numbers are drawn, and their sum A is accepted with a probability proportional to its own, which
    makes it as likely as two such sums that agree; about 0.7 of them are accepted. A second uniform list with the same
    sum is drawn as a random set of separators (Floyd). The coin is decided by decimal arithmetic whose error is
    bounded, with as many digits as the coin needs. The time depends on the noise and on no count.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Algorithm 2. Bentley and Floyd
    (1987), Programming pearls: a sample of brilliance, https://doi.org/10.1145/30401.315746.

    Examples
    --------
    >>> int(zero_sum_laplace(Fraction(10), 5, Bits()).sum())
    0
    """
    mode = _mode(scale, cells)
    while True:
        two_sided = discrete_laplace(scale, (cells,), bits).tolist()
        # The one of x and -1 - x that is not negative is one-sided.
        gains = [max(x, -1 - x) for x in two_sided]
        if _accepted(sum(gains), mode, scale, cells, bits):
            break
    losses = uniform_list(sum(gains), cells, bits.uniform)
    noise = np.empty(cells, dtype=object)
    noise[:] = [gain - loss for gain, loss in zip(gains, losses, strict=True)]
    return noise


def fast_zero_sum_laplace(scale: float, tables: int, cells: int, rng: np.random.Generator) -> Array:
    """The same noise for many tables in floating point, shape `(tables, cells)`; for simulations."""
    if scale > _CONTINUOUS:
        size = rng.gamma(2 * cells - 1, scale / 2, size=(tables, 1))
        gains, losses = rng.dirichlet(np.ones(cells), size=(2, tables))
        noise: Array = np.rint(size * (gains - losses))
        # Their own sum is rounded, too, where they are too large for whole doubles.
        noise[:, 0] = -noise[:, 1:].sum(axis=1)
        return noise
    sums = _fast_sums(scale, tables, cells, rng)
    gains, losses = (rng.multinomial(sums, rng.dirichlet(np.ones(cells), size=tables)) for _ in range(2))
    return np.asarray(gains - losses, dtype=np.float64)


def _fast_sums(scale: float, tables: int, cells: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The sum of the positive parts, by the same rejection."""
    rate = -math.expm1(-1 / scale)
    mode = float(max(0, math.ceil((cells * (1 - rate) - 1) / rate)))
    highest = _log_gamma_ratio(np.array([mode]), cells)[0] - mode / scale
    sums = np.zeros(tables, dtype=np.int64)
    wanting = np.arange(tables)
    while len(wanting):
        tried = rng.negative_binomial(cells, rate, size=len(wanting))
        log_share = _log_gamma_ratio(tried.astype(np.float64), cells) - tried / scale - highest
        accepted = -rng.standard_exponential(len(wanting)) <= log_share
        sums[wanting[accepted]] = tried[accepted]
        wanting = wanting[~accepted]
    return sums


def uniform_list(total: int, cells: int, uniform: Callable[[int], int]) -> list[int]:
    """Integers of at least 0 that add up to `total`, every list as likely as any other."""
    places = total + cells - 1
    # The separators are a uniform set of places; so are the places that are no separators, which may be fewer.
    few = min(cells - 1, total)
    chosen: set[int] = set()
    for last in range(places - few, places):
        place = uniform(last + 1)
        chosen.add(last if place in chosen else place)
    marks = sorted(chosen)
    if few == cells - 1:
        return [after - before - 1 for before, after in zip([-1, *marks], [*marks, places], strict=True)]
    parts = [0] * cells
    for units_before, place in enumerate(marks):
        parts[place - units_before] += 1
    return parts


def _accepted(total: int, mode: int, scale: Fraction, cells: int, bits: Bits) -> bool:
    """A coin: true with the probability of this sum of geometric numbers over that of the most likely sum."""
    if total == mode:
        return True
    low, high, sign = (mode, total, 1) if total > mode else (total, mode, -1)
    # C(high + d - 1, d - 1) / C(low + d - 1, d - 1), as the shorter one of two products.
    if high - low < cells - 1:
        factors = [(j + cells - 1, j) for j in range(low + 1, high + 1)]
    else:
        factors = [(high + j, low + j) for j in range(1, cells)]

    def share(digits: int) -> tuple[Decimal, Decimal]:
        ratio = Decimal(1)
        for numerator, denominator in factors:
            ratio = ratio * numerator / denominator
        # Each operation is rounded to the nearest number of so many digits, and the exponent before it is taken.
        error = Decimal(10) ** (1 - digits) * (2 * len(factors) + 10 + _decimal((high - low) / scale))
        return (ratio * (-_decimal((high - low) / scale)).exp()) ** sign, error

    return decimal_coin(share, len(str(len(factors))), bits)


def decimal_coin(share: Callable[[int], tuple[Decimal, Decimal]], digits: int, bits: Bits) -> bool:
    """True with a probability that is known to any number of digits, exactly.

    Parameters
    ----------
    share : callable
        `share(digits)`: the probability, computed in a decimal context of so many digits, and a bound of its relative
        error.
    digits : int
        So many more digits than usual to start with.
    bits : Bits
        The source of randomness.
    """
    digits, number, length = _DIGITS + digits, bits.uniform(2**_BITS), _BITS
    while True:
        with localcontext(_context(digits)):
            about, error = share(digits)
            least, most = about * (1 - error), about * (1 + error)
            if (number + 1) <= least * 2**length:
                return True
            if number >= most * 2**length:
                return False
        digits, number, length = 2 * digits, number << _BITS | bits.uniform(2**_BITS), length + _BITS


def _mode(scale: Fraction, cells: int) -> int:
    """The most likely sum: the least A of at least 0 with `(A + d) / (A + 1) <= exp(1 / scale)`."""
    if 1 / scale >= cells.bit_length():
        return 0
    digits = _DIGITS + len(str(max(cells, math.ceil(scale))))
    while True:
        with localcontext(_context(digits)):
            ratio = _decimal(1 / scale).exp()
            error = Decimal(10) ** (2 - digits) * ratio
            ends = [(cells - value) / (value - 1) for value in (ratio + error, ratio - error)]
            # The numbers are not whole, because exp(1 / scale) is not rational.
            least, most = (max(0, int(end.to_integral_value("ROUND_CEILING"))) for end in ends)
        if least == most:
            return least
        digits *= 2


def _context(digits: int) -> Context:
    return Context(prec=digits, rounding="ROUND_HALF_EVEN", Emax=_EXPONENT, Emin=-_EXPONENT)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
