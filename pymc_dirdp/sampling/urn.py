"""The Pólya urn: Dirichlet-multinomial counts from whole numbers and random bits alone."""

import os
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, product

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.sampling.bits import Bits

__all__ = ["urn"]

# So many steps are drawn at once. Their arrays take a few megabytes.
_AT_ONCE = 2**16
# Points among the weights are compared by so many leading bits, and by all others only where these do not decide. Sums
# of numbers below this power of two are 64-bit integers.
_LEADING = 62
# Work of fewer steps than this is not worth threads. Those of a process hold so many records at most.
_WORTH, _MOST_HELD = 2**20, 2**26


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
        The source of randomness. Rows take their words one after the other; where many steps are drawn with bits of the
        operating system, rows and draws are divided among the cores, and each part has bits of its own.

    Returns
    -------
    counts : array of int, shape (draws, rows, d)
        Each row adds up to `steps`.

    Notes
    -----
    The law is exact, but the memory that is touched, the number of random words that are rejected and the running time
    depend on the secret. The counts are not safe from somebody who can measure these.

    Which earlier record a step copies does not depend on what that record is. So these numbers are drawn for many steps
    at once, and then the copies are followed back to the records that came from the weights.

    References
    ----------
    Theory, Theorem 6 and section 11.
    """
    d = len(rows[0])
    counts = np.zeros((draws, len(rows), d), dtype=np.int64)
    side_by_side = max(1, _AT_ONCE // max(steps, d))
    starts = range(0, draws, side_by_side)

    def work(part: tuple[int, int], bits: Bits) -> None:
        i, start = part
        _of_row(rows[i], digits, steps, bits, counts[start : start + side_by_side, i])

    parts = list(product(range(len(rows)), starts))
    # Whether threads are used is public, and so is what each of them does.
    cores = min(len(parts), os.cpu_count() or 1, max(1, _MOST_HELD // steps))
    if cores > 1 and steps * draws * len(rows) >= _WORTH and bits.of_the_system:
        with ThreadPoolExecutor(cores) as threads:
            # Whoever asks for the results gets the error of a thread, if there is one.
            list(threads.map(work, parts, [Bits() for _ in parts]))
    else:
        for part in parts:
            work(part, bits)
    return counts


def _of_row(row: Sequence[int], digits: int, steps: int, bits: Bits, counts: Integers) -> None:
    """Add the records of draws of a row to their `counts`, shape (draws, d)."""
    cumulative = list(accumulate(row))
    # Every earlier record is a cell of size 1, and the weights lie on the cells after these, of which the last may be
    # covered in part.
    cells = -(-cumulative[-1] >> digits)
    if cells + steps >= 2**_LEADING:
        counts += [_in_python(cumulative, cells, digits, steps, bits) for _ in counts]
    else:
        _walk(cumulative, cells, digits, steps, bits, counts)


def _in_python(cumulative: list[int], cells: int, digits: int, steps: int, bits: Bits) -> Integers:
    """The counts of one draw, shape (d,), with numbers of any size."""
    uniform, one = bits.uniform, 1 << digits
    # The first category whose cumulative weight exceeds the point.
    records = [bisect_right(cumulative, uniform(cumulative[-1]))]
    while len(records) < steps:
        earlier = len(records)
        cell = uniform(earlier + cells)
        if cell < earlier:
            records.append(records[cell])
        else:
            category = bisect_right(cumulative, ((cell - earlier) << digits) + uniform(one))
            # A place that no weight covers is drawn again.
            if category < len(cumulative):
                records.append(category)
    return np.bincount(records, minlength=len(cumulative))


def _walk(cumulative: list[int], cells: int, digits: int, steps: int, bits: Bits, counts: Integers) -> None:
    """Add the records of draws that go side by side to their `counts`, shape (draws, d)."""
    records = np.empty((len(counts), steps), dtype=np.int32)
    # The first record comes from the weights. Were it to wait for its place among the cells, tiny weights would take
    # billions of trials.
    first = _Weights(cumulative, (cumulative[-1] - 1).bit_length())
    later = _Weights(cumulative, (cells - 1).bit_length() + digits)
    start, length = 0, max(1, _AT_ONCE // len(counts))
    while start < steps:
        stop = min(start + length, steps) if start else 1
        block = _block(records[:, :start], stop, cells, later, bits) if start else _first(first, len(counts), bits)
        records[:, start:stop] = block
        places = block + len(cumulative) * np.arange(len(counts))[:, None]
        counts += np.bincount(places.ravel(), minlength=counts.size).reshape(counts.shape)
        start = stop


class _Weights:
    """Cumulative weights, among which points of so many bits find their category."""

    def __init__(self, cumulative: list[int], length: int) -> None:
        self._cumulative = cumulative
        # How many bits are compared at first, and how many are left.
        self.leading = min(length, _LEADING)
        self._left = length - self.leading
        self.outside = len(cumulative)
        self._high = np.array([weight >> self._left for weight in cumulative], dtype=np.int64)

    def categories(self, points: Integers, bits: Bits) -> Integers:
        """The first category whose cumulative weight exceeds each point, given by its leading bits; d if there is none.

        The bits that are left are drawn where they matter.
        """
        # At most so many cumulative weights are below the point or equal to it, and this one may be equal to it.
        found = np.searchsorted(self._high, points, side="right")
        if self._left:
            for i in np.flatnonzero(self._high[found - 1] == points).tolist():
                point = (int(points[i]) << self._left) + bits.uniform(1 << self._left)
                found[i] = bisect_right(self._cumulative, point)
        return found


def _first(weights: _Weights, draws: int, bits: Bits) -> Integers:
    """The category of the first record of each draw, shape (draws, 1)."""
    found = np.empty(draws, dtype=np.int64)
    todo = np.arange(draws)
    while todo.size:
        found[todo] = weights.categories(bits.uniforms(np.full(todo.size, 1 << weights.leading)), bits)
        todo = todo[found[todo] == weights.outside]
    return found[:, None]


def _block(earlier: NDArray[np.int32], stop: int, cells: int, weights: _Weights, bits: Bits) -> Integers:
    """The categories of the records behind the earlier ones up to `stop`, shape (draws, stop - start)."""
    draws, start = earlier.shape
    length = stop - start
    at = np.tile(np.arange(start, stop), draws)
    # Each record has a place: that of an earlier one, which it copies, or a cell behind these, where the weights are.
    place, found = bits.uniforms(at + cells), np.empty_like(at)
    within = weights.leading - (cells - 1).bit_length()
    new = np.flatnonzero(place >= at)
    while new.size:
        points = (place[new] - at[new]) << within
        if within:
            points += bits.uniforms(np.full(new.size, 1 << within))
        found[new] = weights.categories(points, bits)
        # A place that no weight covers is drawn again.
        again = new[found[new] == weights.outside]
        place[again] = bits.uniforms(at[again] + cells)
        new = again[place[again] >= at[again]]
    copies = np.flatnonzero(place < at)
    draw, place = copies // length, place[copies]
    within_block = place >= start
    before = ~within_block
    found[copies[before]] = earlier[draw[before], place[before]]
    # A copy of a record of this block is followed to its origin, in steps that double.
    copies = copies[within_block]
    origin = np.arange(at.size)
    origin[copies] = draw[within_block] * length + place[within_block] - start
    todo = copies
    while todo.size:
        further = origin[origin[todo]]
        moved = further != origin[todo]
        origin[todo] = further
        todo = todo[moved]
    found[copies] = found[origin[copies]]
    return found.reshape(draws, length)
