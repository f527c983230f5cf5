"""The Pólya urn in jumps, compiled: tables of many rows, in integers and random bytes alone.

A weight is an integer, of so many *atoms* of weight 1, and a fraction. A record is an atom of its category, too.

1. Only a record that comes from a fraction is *new*; all others copy an atom. The fractions of a row lie one after the
   other on G cells beside the atoms, of which the last is covered in part. From A atoms on, no step out of s goes to a
   cell with the probability `prod_{g<G} (A + g) / (A + g + s)`: products telescope, so that the steps to the next new
   record are few coins.
2. Each new record, from the last to the first, takes the copies of itself and of its copies: of M copies of B + 1 atoms
   as many as stars stand before the first of B bars among M stars.
3. The copies that are left divide among the first atoms as stars between bars, in an order that is uniform.

A row takes some `F log(m) + n` of these for m steps, fractions that add up to F, and n atoms; a walk takes m steps.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import compiled

MAX_STEPS = 2**29
"""Atoms, steps and categories of an urn are no more than this: numbers are compared byte by byte in 64 bits."""
# The bits of a word of the source, and of a digit of a weight. A test makes it smaller, and enumerates all words.
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
    """Counts of the urns of some rows, in place; each urn adds up to `steps`.

    Parameters
    ----------
    rows : array of int, shape (rows, d)
        The place of each weight among the different ones. A row holds no more atoms than steps.
    weights : list of int
        Over `2**digits`.
    digits : int
    draws : int
    steps : int
        No more than `MAX_STEPS`.
    bits : Bits
        Bits of the operating system are not used: urns are divided among the cores then, and each part has its own.
    counts : array of int, shape (rows * draws, d)
        The draws of a row one after the other.
    words : int, default 2**16
        So many are asked for at a time, or more if they do not suffice for an urn.
    """
    whole = np.array([min(weight >> digits, MAX_STEPS) for weight in weights], dtype=np.int64)
    size = -(-digits // 8)
    bytes_of = b"".join(((weight << 8 * size - digits) % 256**size).to_bytes(size) for weight in weights)
    fractions = np.frombuffer(bytes_of, dtype=np.uint8).reshape(len(weights), size)

    def work(start: int, bits: Bits) -> None:
        part = counts[start : start + together]
        done, ahead = 0, words
        while done < len(part):
            source = bits.ahead(ahead)[:ahead].view(np.uint8)
            before = done
            done, used = _compiled()(source, rows, start, whole, fractions, draws, steps, part, done)
            bits.spend(-(-used // 8))
            # An urn for which bytes do not suffice starts again from its own first byte, with more behind. Other bytes
            # would favour those that take few.
            ahead = words if done > before else 2 * ahead

    # Whether threads are used is public, and so is what each of them does.
    cores = (os.cpu_count() or 1) if bits.of_the_system else 1
    # Urns are divided into so many parts for each core.
    together = -(-len(counts) // (cores * 4 if cores > 1 else 1))
    with ThreadPoolExecutor(cores) as threads:
        tasks = [threads.submit(work, i, Bits() if cores > 1 else bits) for i in range(0, len(counts), together)]
    for task in tasks:
        # The error of a thread is raised where its result is asked for.
        task.result()


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
    """Urns from the first that is not done, until the bytes of the source are used up, whose number is a power of two.

    Returns the urns that are done, and the bytes that they took. Behind the last byte the first ones are read again,
    and whatever was going on ends: that urn is not done.
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
            # Were the first record to wait for its place among the cells, tiny weights would take billions of trials.
            while k < 0 and position <= source.size:
                k, position = _category(source, position, sums, digit)
            atoms[k], copies_of[k], first, left = 1, 1, 1, steps - 1
        # Step 1: so many records are there already.
        records = 0
        while cells > 0 and records < left and position <= source.size:
            waited, position = _wait(source, position, first + records, cells, left - records)
            records += waited
            if records == left:
                break
            # A place that no weight covers is drawn again.
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
            # Bytes were taken twice.
            break
        for k in range(d):
            counts[done, k] = copies_of[k] + atoms[k]
        done, used = done + 1, position
    return done, used


def _under(source: Any, position: int, part: int, whole: int) -> tuple[bool, int]:
    """True with probability part / whole, by the bytes of a uniform number until it is known; and the next byte."""
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
    """An integer below the limit: of a uniform number times it, whose bytes are drawn until it is known.

    The bytes say that the product lies in `[found, found + limit) / cells`. With at least `limit` cells this interval
    is no longer than 1, and so meets two integers at most. Until then bytes are added, whatever the limit.
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
    """Write the sums of the first fractions of a row: an integer and its bytes. Returns the first digit of the last."""
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
    """The first sum above a uniform number with no digits but 0 before the first; or -1 if that is above all sums.

    Its first digit is no larger than that of the last sum, and the digits behind it are bytes.
    """
    low, high = 0, len(sums)
    for i in range(first, sums.shape[1]):
        if i == first:
            digit, position = _below(source, position, sums[high - 1, i] + 1)
        else:
            digit, position = int(source[position & (source.size - 1)]), position + 1
        # Sums from low on are not known to be no larger, and those from high on are larger.
        low, high = _first_from(sums, i, low, high, digit), _first_from(sums, i, low, high, digit + 1)
        if low == high:
            break
    # Of equal numbers none is larger.
    return (high if high < len(sums) else -1), position


def _first_from(sums: Any, digit: int, low: int, high: int, value: int) -> int:
    """The first of some sums whose digit is no less than a value; they have the same digits before that one."""
    while low < high:
        middle = (low + high) // 2
        if sums[middle, digit] < value:
            low = middle + 1
        else:
            high = middle
    return low


def _wait(source: Any, position: int, atoms: int, cells: int, most: int) -> tuple[int, int]:
    """The number of steps that copy an atom before one goes to the cells, or `most`."""
    passed = 0
    while passed < most:
        # Steps one by one, or as many as have some chance to go to none of the cells.
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
        # Step k of the window is the first with the probability of k steps that are free, and one that is not.
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
    """How many of some stars stand before the first of some bars, in an order that is uniform."""
    if stars > bars * bars:
        # Each bar stands before so many stars and earlier bars that it may follow.
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
    """The stars between as many atoms of each category, in place of these numbers: bars stand between the atoms."""
    # A set of places in which each may stand several times: a bar stands at one of them, or where another one is.
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
