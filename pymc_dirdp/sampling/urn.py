"""The Pólya urn: Dirichlet-multinomial counts from whole numbers and random bits alone."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.sampling.bits import Bits, Words
from pymc_dirdp.sampling.compiling import compiled

__all__ = ["urn"]

Integers = NDArray[np.int64]

# Up to so many steps in all, half a second, Python is faster than importing a compiler.
_STEPS_IN_PYTHON = 10**6
# The compiled walk counts in 64-bit integers, and holds two words of a fraction.
_MOST_WHOLE, _MOST_DIGITS = 2**62, 128


def urn(rows: Sequence[Sequence[int]], digits: int, *, steps: int, draws: int, bits: Bits) -> Integers:
    """Counts from the Dirichlet-multinomial law with parameters `rows / 2**digits`, exactly.

    Step `j` of the urn copies one of the `j - 1` earlier records, or draws a new one from the weights. The counts of
    all steps have the law of a table of `steps` synthetic records, `Multinomial(steps, y)` with
    `y ~ Dirichlet(rows / 2**digits)`. No floating-point number takes part, and no size is refused.

    Parameters
    ----------
    rows : sequence of sequences of int
        Weights, at least 1: a row for each row of the table. The secret.
    digits : int
        Binary digits of the weights behind the point.
    steps : int
        Records in every row, at least 1. Must be public.
    draws : int
        Number of independent draws.
    bits : Bits
        Where the randomness comes from. Rows take their words one after the other, and so do the draws of a row.

    Returns
    -------
    counts : array of int, shape (draws, rows, d)
        Each row adds up to `steps`.

    Notes
    -----
    The law is exact, but the memory that is touched depends on the secret, the number of random words that are thrown
    away depends on it too, and so does the running time: the counts are not safe from somebody who can measure these.

    Ten thousand steps take about 5 ms in Python. Above a million steps in all the urn is compiled, which takes one to
    two seconds once; then a million steps take about 0.03 s. From the same words both make the same draws. What does
    not fit into 64-bit integers, parameters below 1e-22 or above 1e18, stays in Python.

    References
    ----------
    Theory, Theorem 6 and section 11.
    """
    counts = np.zeros((draws, len(rows), len(rows[0])), dtype=np.int64)
    large = draws * len(rows) * steps > _STEPS_IN_PYTHON
    for i, row in enumerate(rows):
        cumulative = list(accumulate(row))
        if large and digits <= _MOST_DIGITS and (cumulative[-1] >> digits) + steps < _MOST_WHOLE:
            _compiled(cumulative, digits, steps, bits, counts[:, i])
        else:
            for draw in range(draws):
                counts[draw, i] = _in_python(cumulative, digits, steps, bits)
    return counts


def _in_python(cumulative: list[int], digits: int, steps: int, bits: Bits) -> Integers:
    """Counts of one draw."""
    uniform, total, one = bits.uniform, cumulative[-1], 1 << digits
    # Every earlier record is a cell of size 1, and the weights lie on the cells behind them, of which the last may be
    # covered in part. A place there that is not covered is drawn again.
    cells = -(-total // one)
    records: list[int] = []
    while len(records) < steps:
        earlier = len(records)
        cell = uniform(earlier + cells)
        if cell < earlier:
            records.append(records[cell])
        else:
            point = ((cell - earlier) << digits) + uniform(one)
            if point < total:
                # The first category whose cumulative weight exceeds the point.
                records.append(bisect_right(cumulative, point))
    return np.bincount(records, minlength=len(cumulative))


def _compiled(cumulative: list[int], digits: int, steps: int, bits: Bits, counts: Integers) -> None:
    """Counts of all draws, added to `counts`, shape (draws, d)."""
    whole = np.array([c >> digits for c in cumulative], dtype=np.int64)
    words = -(-digits // 64)
    # The digits behind the point as the leading bits of 128.
    behind = [(c & (1 << digits) - 1) << 128 - digits for c in cumulative]
    high, low = (np.array([b >> shift & 2**64 - 1 for b in behind], dtype=np.uint64) for shift in (64, 0))
    walk, records, done = compiled_walk(), np.empty(steps, dtype=np.int32), 0
    while done < len(counts) * steps:
        done, used = walk(whole, high, low, words, bits.ahead(1 + words), records, counts, done)
        bits.spend(used)


def _walk(
    whole: Integers,
    high: Words,
    low: Words,
    fraction: int,
    words: Words,
    records: NDArray[np.int32],
    counts: Integers,
    done: int,
) -> tuple[int, int]:
    """As many steps as the words are good for.

    Parameters
    ----------
    whole, high, low : array of int64, of uint64 and of uint64, shape (d,)
        Cumulative weights: their whole part, and 128 binary digits behind the point.
    fraction : int
        How many words the digits behind the point take: 0, 1 or 2.
    words : array of uint64, shape (n,)
    records : array of int32, shape (steps,)
        Categories of the records of the draw in progress. Kept between calls.
    counts : array of int64, shape (draws, d)
        Added to.
    done : int
        Steps done by earlier calls, over all draws.

    Returns
    -------
    done : int
    used : int
        Words that were spent. The next step starts with the first that was not.
    """
    draws, steps, used = counts.shape[0], records.size, 0
    draw, earlier = done // steps, done % steps
    cells = whole[-1]
    if high[-1] != 0 or low[-1] != 0:
        cells += 1
    length = 0
    while draw < draws and used + 1 + fraction <= words.size:
        last = earlier + cells - 1
        while last >> length > 0:
            length += 1
        cell = np.int64(0)
        if length > 0:
            cell = np.int64(words[used] >> np.uint64(64 - length))
            used += 1
            if cell > last:
                continue
        if cell < earlier:
            category = np.int64(records[cell])
        else:
            cell -= earlier
            first = second = np.uint64(0)
            if fraction > 0:
                first = words[used]
                used += 1
            if fraction > 1:
                second = words[used]
                used += 1
            category, end = np.int64(0), np.int64(whole.size)
            while category < end:
                middle = (category + end) // 2
                if whole[middle] != cell:
                    above = whole[middle] > cell
                elif high[middle] != first:
                    above = high[middle] > first
                else:
                    above = low[middle] > second
                if above:
                    end = middle
                else:
                    category = middle + 1
            if category == whole.size:
                continue
        records[earlier] = category
        counts[draw, category] += 1
        earlier += 1
        if earlier == steps:
            draw, earlier, length = draw + 1, 0, 0
    return draw * steps + earlier, used


@cache
def compiled_walk() -> Callable[..., tuple[int, int]]:
    """The walk, compiled at the first call."""
    words = "Array(uint64, 1, 'C', readonly=True)"
    return compiled(
        f"UniTuple(int64, 2)(int64[::1], {words}, {words}, int64, {words}, int32[::1], int64[:, :], int64)", _walk
    )
