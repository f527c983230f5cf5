"""The Pólya urn: Dirichlet-multinomial counts from whole numbers and random bits alone."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.sampling.bits import Bits, Words
from pymc_dirdp.sampling.compiling import compiled

__all__ = ["urn"]

# Up to so many steps in a process, which take half a second, Python is faster than importing a compiler.
_STEPS_IN_PYTHON = 10**6
# How many steps Python has walked in this process: many small tables take as long as a large one.
_walked = {"steps": 0}
# The compiled walk counts in 64-bit integers, and holds numbers of at most two words.
_MOST_RECORDS, _TWO_WORDS = 2**62, 128


def urn(rows: Sequence[Sequence[int]], digits: int, *, steps: int, draws: int, bits: Bits) -> Integers:
    """Counts from the Dirichlet-multinomial law with parameters `rows / 2**digits`, exactly.

    Step `j` of the urn copies one of the `j - 1` earlier records, or draws a new one from the weights. The counts of
    all steps have the law of a table of `steps` synthetic records, `Multinomial(steps, y)` with
    `y ~ Dirichlet(rows / 2**digits)`. No floating-point number takes part, and no size is refused.

    Parameters
    ----------
    rows : sequence of sequences of int
        Secret weights, at least 1: a row for each row of the table.
    digits : int
        Binary digits of the weights after the point.
    steps : int
        Records in every row, at least 1. Must be public.
    draws : int
        Number of independent draws.
    bits : Bits
        The source of randomness. Rows take their words one after the other, and so do the draws of a row.

    Returns
    -------
    counts : array of int, shape (draws, rows, d)
        Each row adds up to `steps`.

    Notes
    -----
    The law is exact, but the memory that is touched, the number of random words that are rejected and the running time
    depend on the secret. The counts are not safe from somebody who can measure these.

    Ten thousand steps take about 5 ms in Python. Once a process has walked a million steps the urn is compiled, which
    takes one to two seconds once; then a million steps take about 0.02 s. Both make the same draws from the same words.
    Weights that do not fit into two words, such as parameters with a sum of 1e22 times the least of them, stay in
    Python.

    References
    ----------
    Theory, Theorem 6 and section 11.
    """
    counts = np.zeros((draws, len(rows), len(rows[0])), dtype=np.int64)
    wanted = draws * len(rows) * steps
    large = _walked["steps"] + wanted > _STEPS_IN_PYTHON
    _walked["steps"] += 0 if large else wanted
    for i, row in enumerate(rows):
        cumulative = list(accumulate(row))
        fits = (
            max(digits, cumulative[-1].bit_length()) < _TWO_WORDS and (cumulative[-1] >> digits) + steps < _MOST_RECORDS
        )
        if large and fits:
            _compiled(cumulative, digits, steps, bits, counts[:, i])
        else:
            for draw in range(draws):
                counts[draw, i] = _in_python(cumulative, digits, steps, bits)
    return counts


def _in_python(cumulative: list[int], digits: int, steps: int, bits: Bits) -> Integers:
    """The counts of one draw, shape (d,)."""
    uniform, total, one = bits.uniform, cumulative[-1], 1 << digits
    # The first record comes from the weights. Later every earlier record is a cell of size 1, and the weights lie on
    # the cells after these, of which the last may be covered in part. A place that is not covered is drawn again.
    cells = -(-total // one)
    # The first category whose cumulative weight exceeds the point.
    records = [bisect_right(cumulative, uniform(total))]
    while len(records) < steps:
        earlier = len(records)
        cell = uniform(earlier + cells)
        if cell < earlier:
            records.append(records[cell])
        else:
            point = ((cell - earlier) << digits) + uniform(one)
            if point < total:
                records.append(bisect_right(cumulative, point))
    return np.bincount(records, minlength=len(cumulative))


def _compiled(cumulative: list[int], digits: int, steps: int, bits: Bits, counts: Integers) -> None:
    """Add the counts of all draws to `counts`, shape (draws, d)."""
    length = (cumulative[-1] - 1).bit_length()
    # The numbers become the leading bits of three words, as in `Bits.uniform`.
    first = _three_words([c << 192 - length for c in cumulative])
    later = _three_words([c << 128 - digits for c in cumulative])
    cells = -(-cumulative[-1] >> digits)
    first_words, later_words = -(-length // 64), -(-digits // 64)
    walk, records, done = compiled_walk(), np.empty(steps, dtype=np.int32), 0
    while done < len(counts) * steps:
        words = bits.ahead(max(first_words, 1 + later_words))
        done, used = walk(first, first_words, later, later_words, cells, words, records, counts, done)
        bits.spend(used)


def _three_words(numbers: list[int]) -> Words:
    """The words of numbers up to 2**192, shape (3, n). 2**192 itself only has to be above all others, so it is cut."""
    cut = [min(number, 2**192 - 1) for number in numbers]
    return np.array([[number >> shift & 2**64 - 1 for number in cut] for shift in (128, 64, 0)], dtype=np.uint64)


def _walk(
    first: Words,
    first_words: int,
    later: Words,
    later_words: int,
    cells: int,
    words: Words,
    records: NDArray[np.int32],
    counts: Integers,
    done: int,
) -> tuple[int, int]:
    """Run until the words are used up.

    Parameters
    ----------
    first, later : array of uint64, shape (3, d)
        Cumulative weights for the first record, with the first bit of the total in front, and for the later ones, with
        the whole part in the first word.
    first_words, later_words : int
        How many random words they are compared with; for the later ones these follow the word of the cell.
    cells : int
        The number of cells that the weights lie on.
    records : array of int32, shape (steps,)
        Categories of the records of the draw in progress, kept between calls.
    counts : array of int64, shape (draws, d)
        The records of each category, which are added to.
    done : int
        Steps done by earlier calls, over all draws.

    Returns
    -------
    done : int
    used : int
        The number of words that were used.
    """
    draws, d, steps, used = counts.shape[0], counts.shape[1], records.size, 0
    draw, earlier, length = done // steps, done % steps, 0
    need = max(first_words, 1 + later_words)
    while draw < draws and used + need <= words.size:
        if earlier == 0:
            category = _category(first, words, used, first_words, np.uint64(0), 0)
            used += first_words
        else:
            last = earlier + cells - 1
            while last >> length > 0:
                length += 1
            cell = np.int64(words[used] >> np.uint64(64 - length))
            used += 1
            if cell > last:
                continue
            if cell < earlier:
                category = int(records[cell])
            else:
                category = _category(later, words, used, later_words, np.uint64(cell - earlier), 1)
                used += later_words
        # No weight covers this place, so it is drawn again.
        if category == d:
            continue
        records[earlier] = category
        counts[draw, category] += 1
        earlier += 1
        if earlier == steps:
            draw, earlier, length = draw + 1, 0, 0
    return draw * steps + earlier, used


def _category(cumulative: Words, words: Words, at: int, count: int, cell: np.uint64, skip: int) -> int:
    """The first category whose cumulative weight exceeds a number: the cell, if `skip` is 1, and then the words."""
    low, high = 0, cumulative.shape[1]
    while low < high:
        middle = (low + high) // 2
        above = False
        for place in range(3):
            value = np.uint64(0)
            if place < skip:
                value = cell
            elif place < skip + count:
                value = words[at + place - skip]
            if cumulative[place, middle] != value:
                above = cumulative[place, middle] > value
                break
        if above:
            high = middle
        else:
            low = middle + 1
    return low


@cache
def compiled_walk() -> Callable[..., tuple[int, int]]:
    """The walk, compiled at the first call."""
    words, weights = "Array(uint64, 1, 'C', readonly=True)", "uint64[:, ::1], int64"
    return compiled(
        f"UniTuple(int64, 2)({weights}, {weights}, int64, {words}, int32[::1], int64[:, :], int64)",
        _walk,
        _category,
    )
