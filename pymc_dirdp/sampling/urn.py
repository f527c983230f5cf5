"""The Pólya urn: Dirichlet-multinomial counts from integers and random bits alone."""

import os
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.sampling.bits import _POWERS, Bits

__all__ = ["urn"]

# So many steps are drawn at once, in urns that hold so many records together. Their arrays take a few megabytes.
_AT_ONCE, _HELD = 2**16, 2**20
# Points among the weights are compared by so many leading bits, and by all others only where these do not decide. Sums
# of numbers below this power of two are 64-bit integers.
_LEADING = 62
# Work of fewer steps than this is not worth threads. Those of a process hold so many records at most.
_WORTH, _MOST_HELD = 2**20, 2**26


def urn(
    rows: Sequence[Sequence[int]] | NDArray[np.object_], digits: int, *, steps: int, draws: int, bits: Bits
) -> Integers:
    """Counts from the Dirichlet-multinomial distribution with parameters `rows / 2**digits`, exactly.

    Step `j` of the urn copies one of the `j - 1` earlier records, or draws a new one from the weights. The counts of
    all steps have the distribution of a table of `steps` synthetic records, `Multinomial(steps, y)` with
    `y ~ Dirichlet(rows / 2**digits)`. No floating-point number takes part, and no size is refused.

    Parameters
    ----------
    rows : sequence of sequences of int, or array of int of any size
        Secret weights, at least 1: a row for each row of the table.
    digits : int
        Binary digits of the weights after the point.
    steps : int
        Records in every row, at least 1. Must be public.
    draws : int
        Number of independent draws.
    bits : Bits
        The source of randomness. Parts of many urns take their words one after the other; where many steps are drawn
        with bits of the operating system, the parts are divided among the cores, and each has bits of its own.

    Returns
    -------
    counts : array of int, shape (draws, rows, d)
        Each row adds up to `steps`.

    Notes
    -----
    The distribution is exact, but the memory that is touched, the number of random words that are rejected and the
    running time depend on the secret. The counts are not safe from somebody who can measure these.

    Which earlier record a step copies does not depend on what that record is. So these numbers are drawn for many steps
    at once, and then the copies are followed back to the records that came from the weights.

    Urns of many rows and draws go side by side. No two of them share a word: `Bits.uniforms` gives each of its limits
    words of its own, which are independent and uniform. So each urn sees the numbers that it would see alone, and all
    are independent, whatever the order in which their words are taken.

    References
    ----------
    Theory, Theorem 6 and section 11.
    """
    # An urn for each draw of each row, the draws of a row one after the other.
    weights = np.asarray(rows, dtype=object)
    n_rows, d = weights.shape
    counts = np.zeros((n_rows * draws, d), dtype=np.int64)
    side_by_side = max(1, min(_AT_ONCE, _HELD // max(steps, d)))

    def work(start: int, bits: Bits) -> None:
        part = counts[start : start + side_by_side]
        row = np.arange(start, start + len(part)) // draws
        _of_rows(weights[row[0] : row[-1] + 1], row - row[0], digits, steps, bits, part)

    parts = range(0, len(counts), side_by_side)
    # Whether threads are used is public, and so is what each of them does.
    cores = min(len(parts), os.cpu_count() or 1, max(1, _MOST_HELD // steps))
    if cores > 1 and steps * len(counts) >= _WORTH and bits.of_the_system:
        with ThreadPoolExecutor(cores) as threads:
            # The error of a thread is raised where its result is asked for.
            list(threads.map(work, parts, (Bits() for _ in parts)))
    else:
        for start in parts:
            work(start, bits)
    return np.ascontiguousarray(counts.reshape(n_rows, draws, d).swapaxes(0, 1))


def _of_rows(rows: NDArray[np.object_], row: Integers, digits: int, steps: int, bits: Bits, counts: Integers) -> None:
    """Add the records of some urns, each with the weights of a row, to their `counts`, shape (urns, d)."""
    cumulative = np.add.accumulate(rows, axis=1)
    # Every earlier record is a cell of size 1, and the weights lie on the cells after these, of which the last may be
    # covered in part.
    cells = -(-cumulative[:, -1] >> digits)
    large = (cells + steps >= 2**_LEADING).astype(np.bool_)[row]
    for urn in np.flatnonzero(large).tolist():
        counts[urn] += _in_python(cumulative[row[urn]].tolist(), cells[row[urn]], digits, steps, bits)
    if not large.any():
        _walk(cumulative, row, cells.astype(np.int64), digits, steps, bits, counts)
    elif not large.all():
        kept, row = np.unique(row[~large], return_inverse=True)
        small = np.zeros_like(counts[~large])
        _walk(cumulative[kept], row, cells[kept].astype(np.int64), digits, steps, bits, small)
        counts[~large] += small


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


def _walk(
    cumulative: NDArray[np.object_],
    row: Integers,
    cells: Integers,
    digits: int,
    steps: int,
    bits: Bits,
    counts: Integers,
) -> None:
    """Add the records of urns that go side by side to their `counts`, shape (urns, d)."""
    urns, d = counts.shape
    records = np.empty((urns, steps), dtype=np.int32)
    # The first record comes from the weights. Were it to wait for its place among the cells, tiny weights would take
    # billions of trials.
    first = _Weights(cumulative, [(int(total) - 1).bit_length() for total in cumulative[:, -1]])
    later = _Weights(cumulative, [(cell - 1).bit_length() + digits for cell in cells.tolist()])
    within = later.leading - np.searchsorted(_POWERS, cells - 1, side="right")
    start, length = 0, max(1, _AT_ONCE // urns)
    while start < steps:
        stop = min(start + length, steps) if start else 1
        seen = records[:, :start]
        block = _block(seen, stop, row, cells, within, later, bits) if start else _first(first, row, bits)
        records[:, start:stop] = block
        places = block + d * np.arange(urns)[:, None]
        counts += np.bincount(places.ravel(), minlength=counts.size).reshape(counts.shape)
        start = stop


class _Weights:
    """Cumulative weights of rows, among which points of so many bits find their category."""

    def __init__(self, cumulative: NDArray[np.object_], lengths: list[int]) -> None:
        self._cumulative = cumulative
        # How many bits are compared at first, and how many are left, by row.
        self.leading: Integers = np.minimum(lengths, _LEADING).astype(np.int64)
        self._left: Integers = np.array(lengths, dtype=np.int64) - self.leading
        self.outside = cumulative.shape[1]
        self._high = (cumulative >> self._left.astype(object)[:, None]).astype(np.int64)

    def categories(self, points: Integers, row: Integers, bits: Bits) -> Integers:
        """The first category whose cumulative weight exceeds each point, given by its leading bits; d if there is none.

        The bits that are left are drawn where they matter.
        """
        # At most so many cumulative weights are below the point or equal to it, and this one may be equal to it.
        found, width = np.zeros(len(points), dtype=np.int64), 1 << (self.outside.bit_length() - 1)
        while width:
            further = found + width
            inside = further <= self.outside
            inside &= self._high[row, np.minimum(further, self.outside) - 1] <= points
            found[inside] = further[inside]
            width >>= 1
        if self._left.any():
            for i in np.flatnonzero((self._high[row, found - 1] == points) & (self._left[row] > 0)).tolist():
                left = int(self._left[row[i]])
                point = (int(points[i]) << left) + bits.uniform(1 << left)
                found[i] = bisect_right(self._cumulative[row[i]].tolist(), point)
        return found


def _first(weights: _Weights, row: Integers, bits: Bits) -> Integers:
    """The category of the first record of each urn, shape (urns, 1)."""
    found = np.empty(len(row), dtype=np.int64)
    todo = np.arange(len(row))
    while todo.size:
        of = row[todo]
        found[todo] = weights.categories(bits.uniforms(1 << weights.leading[of]), of, bits)
        todo = todo[found[todo] == weights.outside]
    return found[:, None]


def _block(
    earlier: NDArray[np.int32],
    stop: int,
    row: Integers,
    cells: Integers,
    within: Integers,
    weights: _Weights,
    bits: Bits,
) -> Integers:
    """The categories of the records behind the earlier ones up to `stop`, shape (urns, stop - start)."""
    urns, start = earlier.shape
    length = stop - start
    at = np.tile(np.arange(start, stop), urns)
    row = np.repeat(row, length)
    limits = at + cells[row]
    # Each record has a place: that of an earlier one, which it copies, or a cell behind these, where the weights are.
    place, found = bits.uniforms(limits), np.empty_like(at)
    new = np.flatnonzero(place >= at)
    while new.size:
        of = row[new]
        points = (place[new] - at[new]) << within[of]
        if within.any():
            points += bits.uniforms(1 << within[of])
        found[new] = weights.categories(points, of, bits)
        # A place that no weight covers is drawn again.
        again = new[found[new] == weights.outside]
        place[again] = bits.uniforms(limits[again])
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
    return found.reshape(urns, length)
