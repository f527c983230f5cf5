"""A compiled Pólya urn that jumps over steps, for tables of many rows, with only integers and random bytes.

A weight is an integer plus a fraction. The integer is a number of *atoms* of weight 1. Each record becomes an atom of
its category.

1. A record drawn from a fraction is *new*; all other records copy an atom. The fractions of a row lie side by side on G
   cells next to the atoms, and the last cell may be partly empty. With A atoms, none of the next s steps goes to a cell
   with probability `prod_{g<G} (A + g) / (A + g + s)`. This product telescopes, so few coins draw the number of steps
   until the next new record.
2. Each new record, from the last to the first, draws the number of copies of itself and of its copies. Out of M copies
   of B + 1 atoms, this is the number of stars before the first bar in a random order of M stars and B bars.
3. The remaining copies are divided among the first atoms like stars between bars in a uniform order.

With m steps, fractions with sum F, and n atoms, a row takes about `F log(m) + n` operations. A walk takes m steps.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.sampling.bits import Bits, compiled

MAX_STEPS = 2**29
"""Maximum number of atoms, steps and categories of an urn, because numbers are compared byte by byte in 64 bits."""
# The bits of a word of the source and of a digit of a weight. A test reduces this number to enumerate all words.
_WIDTH = 8


def urns_in_jumps(
    rows: Integers,
    weights: list[int],
    digits: int,
    *,
    draws: int,
    steps: int,
    bits: Bits,
    counts: Integers,
    words: int = 2**16,
) -> None:
    """Draw the counts of urns, in place. Each urn adds up to `steps`.

    Parameters
    ----------
    rows : array of int, shape (rows, d)
        The index of each weight in `weights`. A row has at most as many atoms as steps.
    weights : list of int
        The distinct weights, times `2**digits`.
    digits : int
    draws : int
    steps : int
        At most `MAX_STEPS`.
    bits : Bits
        If these are bits of the operating system, urns are divided among the cores, and each part has its own bits.
    counts : array of int, shape (rows * draws, d)
        The draws of a row are consecutive.
    words : int, default 2**16
        The number of words to request at a time; it is doubled until an urn has enough.
    """
    whole = np.array([min(weight >> digits, MAX_STEPS) for weight in weights], dtype=np.int64)
    size = -(-digits // 8)
    bytes_of = b"".join(((weight << 8 * size - digits) % 256**size).to_bytes(size) for weight in weights)
    fractions = np.frombuffer(bytes_of, dtype=np.uint8).reshape(len(weights), size)

    def work(start: int, bits: Bits) -> None:
        part = counts[start : start + length]
        done, ahead = 0, words
        while done < len(part):
            source = bits.ahead(ahead)[:ahead].view(np.uint8)
            before = done
            done, used = _compiled()(source, rows, start, whole, fractions, draws, steps, part, done)
            bits.spend(-(-used // 8))
            # An urn that runs out of bytes restarts from its first byte. New bytes would favour urns that take few.
            ahead = words if done > before else 2 * ahead

    # The use of threads and the work of each are public.
    cores = (os.cpu_count() or 1) if bits.of_the_system else 1
    # Four parts for each core, and none without urns.
    length = max(1, -(-len(counts) // (cores * 4 if cores > 1 else 1)))
    with ThreadPoolExecutor(cores) as threads:
        tasks = [threads.submit(work, i, Bits() if cores > 1 else bits) for i in range(0, len(counts), length)]
    for task in tasks:
        task.result()  # Raises the error of a thread.


@cache
def _compiled() -> Callable[..., tuple[int, int]]:
    signature = (
        "UniTuple(int64, 2)(Array(uint8, 1, 'C', readonly=True), int64[:,::1], int64, int64[::1], "
        "Array(uint8, 2, 'C', readonly=True), int64, int64, int64[:,::1], int64)"
    )
    return compiled(signature, _urns, _add_up, _under, _below, _first_from, _category, _wait, _before_a_bar, _share_out)


def _urns(
    source: Any,
    rows: Any,
    start: int,
    whole: Any,
    fractions: Any,
    draws: int,
    steps: int,
    counts: Any,
    done: int,
) -> tuple[int, int]:
    """Draw urns from number `done` on, until no bytes of the source are left. The number of bytes is a power of two.

    Return the number of completed urns and of the bytes that they used. After the last byte, reading continues at the
    first one and all loops end, and that urn is not completed.
    """
    d, used = counts.shape[1], 0
    born, category_of, bars = np.empty(steps, np.int64), np.empty(steps, np.int64), np.empty(steps, np.int64)
    copies_of, atoms = np.empty(d, np.int64), np.empty(d, np.int64)
    sums, digit = np.zeros((d, fractions.shape[1] + 1), np.int64), 0
    while done < len(counts):
        row, position = rows[(start + done) // draws], used
        for k in range(d):
            copies_of[k], atoms[k] = 0, whole[row[k]]
        if used == 0 or (start + done) % draws == 0:
            digit = _add_up(fractions, row, sums)
        cells = sums[d - 1, 0] + 1 if digit < sums.shape[1] else 0
        first, left, new, k = atoms.sum(), steps, 0, -1
        if first == 0:
            # Drawn directly, because rejection from the cells takes billions of trials for tiny weights.
            while k < 0 and position <= source.size:
                k, position = _category(source, position, sums, digit)
            atoms[k], copies_of[k], first, left = 1, 1, 1, steps - 1
        # Step 1. `records` is the number of records so far.
        records = 0
        while cells > 0 and records < left and position <= source.size:
            waited, position = _wait(source, position, first + records, cells, left - records)
            records += waited
            if records == left:
                break
            # Rejected if no weight covers the point.
            k, position = _category(source, position, sums, 0)
            if k >= 0:
                born[new], category_of[new] = records, k
                new, records = new + 1, records + 1
        # Step 2.
        for i in range(new - 1, -1, -1):
            copies, position = _before_a_bar(source, position, left - born[i] - 1, first + born[i])
            copies_of[category_of[i]] += 1 + copies
            left -= 1 + copies
        # Step 3.
        position = _share_out(source, position, left, atoms, bars[: first - 1])
        if position > source.size:
            # Some bytes were read twice.
            break
        for k in range(d):
            counts[done, k] = copies_of[k] + atoms[k]
        done, used = done + 1, position
    return done, used


def _under(source: Any, position: int, part: int, whole: int) -> tuple[bool, int]:
    """True with probability part / whole, from as many bytes of a uniform number as needed; and the next position."""
    while position <= source.size:
        product = 0
        for _ in range(3):
            product = (product << _WIDTH) + whole * np.int64(source[position & (source.size - 1)])  # type: ignore[assignment]
            position += 1
            part <<= _WIDTH
            if product + whole <= part:
                return True, position
            if product >= part:
                return False, position
        part -= product
    return False, position


def _below(source: Any, position: int, limit: int) -> tuple[int, int]:
    """The integer part of the limit times a uniform number, whose bytes are drawn until the integer is known.

    After some bytes, the product is in `[product, product + limit) / cells`. With at least `limit` cells the length of
    this interval is at most 1, so it meets at most two integers. One more coin then decides between them.
    """
    product, cells, value = 0, 1, 0
    while True:
        product = (product << _WIDTH) + limit * np.int64(source[position & (source.size - 1)])  # type: ignore[assignment]
        position, cells = position + 1, cells << _WIDTH
        value = product // cells
        if product + limit <= (value + 1) * cells:
            return value, position
        if cells >= limit:
            break
    same, position = _under(source, position, (value + 1) * cells - product, limit)
    return (value if same else value + 1), position


def _add_up(fractions: Any, row: Any, sums: Any) -> int:
    """Write the cumulative fractions of a row, as an integer and bytes. Return the first nonzero digit of the last."""
    last = sums.shape[1] - 1
    for k in range(len(row)):
        carry = 0
        for i in range(last, 0, -1):
            digit = carry + fractions[row[k], i - 1] + (sums[k - 1, i] if k > 0 else 0)
            sums[k, i], carry = digit & ((1 << _WIDTH) - 1), digit >> _WIDTH
        sums[k, 0] = carry + (sums[k - 1, 0] if k > 0 else 0)
    first = 0
    while first <= last and sums[len(row) - 1, first] == 0:
        first += 1
    return first


def _category(source: Any, position: int, sums: Any, first: int) -> tuple[int, int]:
    """The first sum above a uniform number, or -1 if there is none. Its digits before the digit `first` are 0.

    The digit `first` is at most that of the last sum, and the digits after it are bytes.
    """
    low, high = 0, len(sums)
    for i in range(first, sums.shape[1]):
        if i == first:
            digit, position = _below(source, position, sums[high - 1, i] + 1)
        else:
            digit, position = int(source[position & (source.size - 1)]), position + 1
        # Sums before low are not larger, sums from high on are larger, and sums between are equal so far.
        low, high = _first_from(sums, i, low, high, digit), _first_from(sums, i, low, high, digit + 1)
        if low == high:
            break
    # An equal sum is not larger.
    return (high if high < len(sums) else -1), position


def _first_from(sums: Any, digit: int, low: int, high: int, value: int) -> int:
    """The first sum in a range whose digit is at least `value`. The sums agree in all digits before it."""
    while low < high:
        middle = (low + high) // 2
        if sums[middle, digit] < value:
            low = middle + 1
        else:
            high = middle
    return low


def _wait(source: Any, position: int, atoms: int, cells: int, most: int) -> tuple[int, int]:
    """The number of steps that copy an atom before a step goes to the cells, at most `most`."""
    passed = 0
    while passed < most:
        # One step, or a window of steps with a fair chance that none goes to the cells.
        window = min(atoms // cells, most - passed) if atoms > cells * cells else 1
        free, g = True, 0
        if window == 1:
            free, position = _under(source, position, atoms, atoms + cells)
        while window > 1 and free and g < cells:
            free, position = _under(source, position, atoms + g, atoms + g + window)
            g += 1
        if free:
            passed += window
            atoms += window
            continue
        if window == 1:
            return passed, position
        # Step k of the window is the first to a cell with the probability of k free steps and one to a cell.
        accepted, k = False, 0
        while not accepted and position <= source.size:
            k, position = _below(source, position, window)
            accepted, g = True, 0
            while accepted and g <= cells:
                accepted, position = _under(source, position, atoms + g, atoms + g + k)
                g += 1
        return passed + k, position
    return most, position


def _before_a_bar(source: Any, position: int, stars: int, bars: int) -> tuple[int, int]:
    """The number of stars before the first bar in a uniform order of stars and bars."""
    if stars > bars * bars:
        # Bars are inserted one by one. A bar before the first bar becomes the first.
        count, position = _below(source, position, stars + 1)
        for b in range(2, bars + 1):
            earlier, position = _under(source, position, count, stars + b)
            if earlier:
                count, position = _below(source, position, count)
        return count, position
    count = 0
    while count < stars:
        ends, position = _under(source, position, bars, stars + bars - count)
        if ends:
            break
        count += 1
    return count, position


def _share_out(source: Any, position: int, stars: int, atoms: Any, bars: Any) -> int:
    """Replace the number of atoms of each category by its number of stars. Bars separate the atoms."""
    # A uniform multiset of positions: a bar goes to a new position, or to that of an earlier bar.
    for b in range(len(bars)):
        place, position = _below(source, position, stars + 1 + b)
        bars[b] = place if place <= stars else bars[place - stars - 1]
    bars.sort()
    end, before = 0, 0
    for k in range(len(atoms)):
        end += atoms[k]
        after = 0 if end == 0 else (bars[end - 1] if end <= len(bars) else stars)
        atoms[k], before = after - before, after
    return position
