"""Sums of independent integers by Fourier transforms: distributions, conditional distributions, and conditional draws.

1. The lists of the terms are wrapped on a circle that is so long that sums with non-negligible probability do not
   overlap, and transformed. If the points of a list are Gauss nodes, the transform is a sum of waves.
2. All results follow from the products of the transforms of the terms *before* and *after* each term. A frequency is
   negligible if the product of all but one transform is small. No transform exceeds 1, so such frequencies are found
   early, and a sum of ten thousand terms takes a few dozen frequencies.
3. The distribution of a term given the total is its probability times that of the remainder as the sum of all others.
   Functions of the sum are propagated to the terms in the same way.
4. A draw given the total splits the terms in halves: the narrower half is proposed, and accepted with a probability
   proportional to that of the remainder as the sum of the other half.

The absolute error is 1e-16 of the largest probability, so totals should be near the mean; tilts ensure this. Sums of
few integers are convolved directly, with a relative error for any total.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import final, override

import numpy as np
import scipy  # which loads scipy.fft where it is used, and not before
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.inference.numbers import (
    NODES,
    Lists,
    LogWeight,
    TooManyNumbersError,
    every_number,
    impossible,
    refuse_too_many,
)

Complex = NDArray[np.complex128]

# Products of transforms below exp(-41) are negligible.
_NOTHING = -41.0


def reaches(lists: Lists, rows: int, *, of_others: bool = False) -> Array:
    """The largest non-negligible distance of each sum from its mean: Chernoff's bound, or the range of the terms.

    Parameters
    ----------
    lists : Lists
        The same number of terms for each sum.
    rows : int
        The number of sums.
    of_others : bool
        Whether to bound the sums of all terms but one, shape `(rows, d)`, or those of all, shape `(rows, 1)`.
    """
    d = lists.size // rows

    def summed(values: Array) -> Array:
        of_rows = values.reshape(rows, d)
        whole = of_rows.sum(axis=1, keepdims=True)
        sums: Array = whole - of_rows if of_others else whole
        return sums

    deviations = np.sqrt(np.maximum(summed(lists.variances), 0.0))
    best = summed((lists.highs - lists.lows).astype(np.float64))
    scale = np.maximum(np.sqrt(lists.variances.reshape(rows, d).sum(axis=1)), 1e-9)
    above = (lists.x - lists.means[lists.cell]) / scale[lists.cell // d]
    with np.errstate(over="ignore", invalid="ignore"):
        # Exclude negligible integers, whose large exponentials would dominate the bound.
        sides = [np.where(lists.masses > 1e-30, np.exp(sign * above / 4), 0.0) for sign in (-1, 1)]
        for strength in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
            bounds = []
            for side in sides:
                grown = np.add.reduceat(lists.masses * side, lists.starts[:-1])
                bounds.append((summed(np.log(grown)) + 45) * scale[:, None] / strength)
                # The next strength; if it overflows, the bound is not used.
                side *= side
            best = np.fmin(best, np.maximum(*bounds))
    return np.where(deviations > 0, np.ceil(best) + 3, 3.0)


class Sums:
    """The sums of the d terms of each of some rows.

    Parameters
    ----------
    lists : Lists
        All terms, row by row, at tilts at which the relevant sums are near their means.
    rows : int
    log_weight : callable, optional
        Untilted log-weights of the terms, for draws from Gauss nodes.
    most_listed : int
        No more numbers are listed instead of Gauss nodes.
    """

    def __init__(
        self, lists: Lists, rows: int = 1, log_weight: LogWeight | None = None, most_listed: int = 2**21
    ) -> None:
        self._most_listed = most_listed
        self.lists, self.rows, self.d, self._log_weight = lists, rows, lists.size // rows, log_weight
        # The widest terms first; they are determined by the remainder. Rounding makes the order of terms with the same
        # noise, and so the draws for a seed, the same on every machine.
        room = np.round(np.log(np.maximum(lists.variances, 1e-300)), 6).reshape(rows, self.d)
        order = np.argsort(-room, axis=1, kind="stable") + self.d * np.arange(rows)[:, None]
        self._order = order.ravel()
        self._table: Array | None = None
        # Lists of all integers, if so many are drawn that listing is faster.
        self._every: Guide | None = None
        self._first: Integers = lists.lows.reshape(rows, self.d).sum(axis=1)
        self._means = np.rint(lists.means.reshape(rows, self.d).sum(axis=1)).astype(np.int64)
        self._spans: Integers = (lists.highs - lists.lows).reshape(rows, self.d).sum(axis=1)

    @cached_property
    def length(self) -> int:
        """The length of the circle, on which non-negligible sums do not overlap; for few integers it holds all sums."""
        lists, longest = self.lists, float((self.lists.highs - self.lists.lows).max()) + 1
        if self.d == 1:
            return int(longest)
        around = 2 * float(reaches(lists, self.rows).max()) + 1
        needed = min(float(self._spans.max()) + 1, max(around, longest) if lists.are_whole else around)
        return int(scipy.fft.next_fast_len(int(needed), real=True))

    @cached_property
    def low(self) -> Integers:
        """The smallest sums on the circle, shape (rows,)."""
        near = np.maximum(self._first, self._means - self.length // 2)
        return np.where(self.length > self._spans, self._first, near)

    @cached_property
    def _lists(self) -> Complex:
        """Transforms of the lists at the non-negligible frequencies, shape (rows, d, frequencies).

        If Gauss nodes would take longer than all integers, all integers are listed.
        """
        if not self.lists.are_whole:
            waves = self._waves()
            if waves is not None:
                return waves
            self.lists = self._of_every_number()
            del self.length
        return self._transformed()

    def _of_every_number(self) -> Lists:
        assert self._log_weight is not None
        lists = self.lists
        return every_number(self._log_weight, lists.lows, lists.highs, lists.tilts, self._most_listed)

    @cached_property
    def _product(self) -> Complex:
        product: Complex = np.prod(self._lists, axis=1)
        return product

    @cached_property
    def pmf(self) -> Array:
        """Probabilities of the sums on the circle, from `low` on, shape (rows, length).

        Raises
        ------
        TooManyNumbersError
            If there are too many.
        """
        refuse_too_many(self.rows * self.length, most=4 * self._most_listed)
        if self.d == 1:
            sums = self.low[:, None] + np.arange(self.length)
            return np.exp(self._log_pmf(sums, np.arange(self.rows)[:, None]))
        place = (np.arange(self.length) + (self.low - self._first)[:, None]) % self.length
        return np.take_along_axis(self._inverse(self._product), place, axis=-1)

    def _inverse(self, values: Complex) -> Array:
        function: Array = scipy.fft.irfft(values, self.length)
        return function

    def _columns(self) -> Iterator[slice]:
        """Chunks of terms of all rows, whose transforms take a few megabytes."""
        step = max(1, 2**21 // (self.rows * self.length))
        return (slice(first, min(first + step, self.d)) for first in range(0, self.d, step))

    def _transformed(self) -> Complex:
        """Fast Fourier transforms of the lists at the non-negligible frequencies, shape (rows, d, frequencies)."""
        lists, frequencies = self.lists, self.length // 2 + 1
        logs, largest = np.zeros((self.rows, frequencies)), np.full((self.rows, frequencies), -np.inf)
        parts: list[Complex] = []
        order, above = self._order.reshape(self.rows, self.d), lists.above
        for columns in self._columns():
            chosen = order[:, columns].ravel()
            folded, points = np.zeros((len(chosen), self.length)), lists.points(chosen)
            folded[np.repeat(np.arange(len(chosen)), lists.widths[chosen]), above[points].astype(np.int64)] = (
                lists.masses[points]
            )
            part = scipy.fft.rfft(folded)[:, :frequencies].reshape(self.rows, -1, frequencies)
            parts.append(part)
            size = np.log(np.maximum(np.abs(part), 1e-300))
            logs = logs[:, :frequencies] + size.sum(axis=1)
            largest = np.maximum(largest[:, :frequencies], size.max(axis=1))
            matters = np.flatnonzero((logs - largest > _NOTHING).any(axis=0))
            frequencies = int(matters[-1]) + 1 if len(matters) else 1
        return np.concatenate([part[..., :frequencies] for part in parts], axis=1)

    def _waves(self, fresh: int = 32) -> Complex | None:
        """The transforms by sums of waves, one frequency after the other; None if this takes longer."""
        lists, step = self.lists, -2j * np.pi / self.length
        above = lists.above
        turn, current = np.exp(step * above), lists.masses.astype(np.complex128)
        columns: list[Complex] = []
        numbers = float((lists.highs - lists.lows + 1).sum())
        # The approximate cost of lists of all integers and their transforms.
        most = min(2.0**16, (5 * numbers + 1.5 * lists.size * self.length) / len(lists.x))
        small, before = 0, 0.0
        while small < 4:
            frequency = len(columns)
            if frequency > most:
                return None
            if frequency % fresh == 0:
                # Recompute, because repeated complex products lose digits.
                current = (lists.masses * np.exp(step * frequency * above)).astype(np.complex128)
            columns.append(np.add.reduceat(current, lists.starts[:-1])[self._order].reshape(self.rows, self.d))
            current *= turn
            size = np.log(np.maximum(np.abs(columns[-1]), 1e-300))
            others = float((size.sum(axis=1) - size.max(axis=1)).max())
            small = small + 1 if others < _NOTHING else 0
            if frequency >= 64 and frequency & (frequency - 1) == 0:
                # Eventually products decrease as a power of the frequency, or faster.
                falls = before - others
                if before < -3 and frequency * 2 ** min((others - _NOTHING) / max(falls, 1e-3), 50.0) > most:
                    return None
                before = others
            if frequency == self.length // 2:
                break
        return np.stack(columns, axis=-1)

    def log_sums(self, floor: float = 1e-15) -> Array:
        """Logarithms of the sums of products of untilted weights, for the sums on the circle.

        Probabilities below `floor` times the largest are rounding errors and become -inf.
        """
        known = self.pmf > floor * self.pmf.max(axis=1, keepdims=True)
        totals = self.low[:, None] + np.arange(self.pmf.shape[1])
        tilts = self.lists.tilts.reshape(self.rows, self.d)[:, :1]
        logs = np.log(np.where(known, self.pmf, 1.0)) - tilts * totals
        whole = self.lists.log_totals.reshape(self.rows, self.d).sum(axis=1, keepdims=True)
        log_sums: Array = np.where(known, logs + whole, -np.inf)
        return log_sums

    def at(self, row: Integers, sums: Integers) -> Array:
        """The probability of each sum of a row, elementwise."""
        if self.d == 1:
            return np.exp(self._log_pmf(sums, row))
        place = sums - self._first[row]
        # More than half of the circle from the mean, the probability is 0, and another sum has the same position.
        near = (self.length > self._spans[row]) | (np.abs(sums - self._means[row]) < self.length // 2)
        inside = near & (place >= 0) & (place <= self._spans[row])
        probabilities = np.zeros(sums.shape)
        probabilities[inside] = self._at_places(row[inside], place[inside] % self.length)
        return np.maximum(probabilities, 0.0)

    def _at_places(self, row: Integers, place: Integers) -> Array:
        # For few sums, or few frequencies, waves are faster than a table.
        if self._table is None and len(place) * self._product.shape[-1] < self.rows * self.length:
            return self._added_up(self._product, row, place.astype(np.float64))
        if self._table is None:
            self._table = self._inverse(self._product)
        probabilities: Array = self._table[row, place]
        return probabilities

    @cached_property
    def largest(self) -> Array:
        """A tight upper bound of the largest probability of the sums of each row, shape (rows,)."""
        if self.d == 1:
            return np.exp(np.maximum.reduceat(self.lists.log_pmf, self.lists.starts[:-1]) + 0.1)
        # The maximum of F frequencies is at most 1.02 times the maximum over 16 F points.
        short = min(self.length, 16 * self._product.shape[-1])
        values = scipy.fft.irfft(self._product[:, : short // 2 + 1], short) * (short / self.length)
        bounds: Array = 1.02 * values.max(axis=1)
        return bounds

    def probabilities(self, totals: Integers) -> Array:
        """The probability of one sum of each row, over the largest of its row, with an error of about 1e-16."""
        return self.at(np.arange(self.rows), totals) / self.largest

    def log_probabilities(self, totals: Integers) -> Array:
        """Logarithms of the sums of products of untilted weights for one sum of each row."""
        logs = np.log(self.at(np.arange(self.rows), totals))
        of_rows = self.lists.log_totals.reshape(self.rows, self.d).sum(axis=1)
        return np.asarray(logs + of_rows - self.lists.tilts.reshape(self.rows, self.d)[:, 0] * totals)

    def cell_masses(self, low: Integers, known: Array) -> Array:
        """Propagate functions of the sums to each term, shape (k, points).

        The result is the sum, over all other terms, of the function times all probabilities.

        Parameters
        ----------
        low : array of int, shape (rows,)
            The first sum for which the functions are not 0, in each row.
        known : array, shape (k, rows, n)
        """
        if self.d == 1:
            place = np.rint(self.lists.x).astype(np.int64) - low[self.lists.cell]
            inside = (place >= 0) & (place < known.shape[2])
            values = known[:, self.lists.cell, np.where(inside, place, 0)]
            return np.where(inside, values, 0.0) * self.lists.masses
        frequencies = self._lists.shape[-1]
        turned = np.exp(
            -2j * np.pi * np.arange(frequencies) * ((low - self._first) % self.length)[:, None] / self.length
        )
        # One sum of each row is a wave by itself.
        transformed = known if known.shape[2] == 1 else scipy.fft.rfft(known, self.length)[..., :frequencies]
        of_sums = transformed * turned
        masses = np.empty((len(known), len(self.lists.masses)))
        after: Complex = np.ones((self.rows, 1, frequencies), dtype=np.complex128)
        order, lists, above = self._order.reshape(self.rows, self.d), self.lists, self.lists.above
        ones = np.ones((self.rows, 1, frequencies))
        products = np.cumprod(np.concatenate([ones, self._lists[:, :-1]], axis=1), axis=1)
        for columns in reversed(list(self._columns())):
            transforms = self._lists[:, columns]
            suffix = np.cumprod(np.concatenate([after, transforms[:, ::-1]], axis=1), axis=1)[:, ::-1]
            others = np.conj(products[:, columns] * suffix[:, 1:])
            after = suffix[:, :1]
            chosen = order[:, columns].ravel()
            points = lists.points(chosen)
            number = np.repeat(np.arange(len(chosen)), lists.widths[chosen])
            for k, of_sum in enumerate(of_sums):
                spectrum = (of_sum[:, None] * others).reshape(len(chosen), frequencies)
                if lists.are_whole:
                    values = self._inverse(spectrum)[number, above[points].astype(np.int64)]
                else:
                    values = self._added_up(spectrum, number, above[points])
                # What is below the rounding of the sum is not known to be positive.
                rounding = 1e-15 * np.abs(spectrum).sum(axis=1) / self.length
                masses[k, points] = np.where(np.abs(values) > rounding[number], values, 0.0)
        masses *= self.lists.masses
        return np.maximum(masses, 0.0)

    def _added_up(self, spectrum: Complex, number: Integers, above: Array) -> Array:
        """The functions with these transforms at some places."""
        turn, value = 2j * np.pi / self.length, np.zeros(len(above), dtype=np.complex128)
        if len(above) < spectrum.shape[1]:
            waves = np.arange(1, spectrum.shape[1])
            for place, (row, position) in enumerate(zip(number.tolist(), above.tolist(), strict=True)):
                value[place] = spectrum[row, 1:] @ np.exp(turn * (position * waves % self.length))
        else:
            # Horner's rule.
            once = np.exp(turn * above)
            for frequency in range(spectrum.shape[1] - 1, 0, -1):
                value += spectrum[number, frequency]
                value *= once
        # Of a real function every frequency but the first, and the last of an even circle, counts twice.
        twice = 2 * value.real + spectrum[number, 0].real
        if 2 * (spectrum.shape[1] - 1) == self.length:
            twice -= (spectrum[number, -1] * np.exp(1j * np.pi * above)).real
        return np.asarray(twice / self.length)

    def masses_at_totals(self, totals: Integers) -> Array:
        """The masses of all points given the sum of each row, shape (points,)."""
        masses: Array = self.cell_masses(totals, 1 / self.at(np.arange(self.rows), totals)[None, :, None])[0]
        return masses

    def _halves(self) -> tuple["Sums", "Sums"]:
        """The sums of the wider and the narrower half of the terms of each row; of few, the widest and the rest.

        They are not cached, to limit memory.
        """
        order, half = self._order.reshape(self.rows, self.d), (self.d + 1) // 2
        for first in (half if self.d > 8 else 1, 1):
            wide, narrow = (self._of(part.ravel()) for part in np.split(order, [first], axis=1))
            # The sum of fewer numbers takes more waves. There is always that of one number.
            with suppress(TooManyNumbersError):
                if (wide.largest > 0).all():
                    break
        return wide, narrow

    def _of(self, cells: Integers) -> "Sums":
        log_weight = self._log_weight

        def of_some(x: Array, cell: Integers) -> Array:
            assert log_weight is not None
            return log_weight(x, cells[cell])

        sums = type(self)(self.lists.take(cells), self.rows, of_some, self._most_listed)
        # Draws rely on it, and the last bits of a variance may differ.
        sums._order = np.arange(len(cells))
        return sums

    def draw(self, totals: Integers, rng: np.random.Generator) -> Integers:
        """One draw of all terms given each sum of each row, shape `(draws, rows, d)`.

        Parameters
        ----------
        totals : array of int, shape (draws, rows)
        rng : numpy.random.Generator
        """
        row = np.tile(np.arange(self.rows), len(totals))
        drawn = self._draw(row, totals.ravel().astype(np.int64), rng).reshape(self.d, *totals.shape)
        table = np.empty((*totals.shape, self.d), dtype=np.int64)
        for number, order in enumerate(self._order.reshape(self.rows, self.d) % self.d):
            table[:, number, order] = drawn[..., number].T
        return table

    def _draw(self, row: Integers, totals: Integers, rng: np.random.Generator) -> Integers:
        """The terms of some rows given the sum of each, from the widest on, shape (d, draws)."""
        drawn, wide, rest = np.empty((self.d, len(totals)), dtype=np.int64), self, totals
        while wide.d > 1:
            end = wide.d
            wide, narrow = wide._halves()
            counts = drawn[wide.d : end]
            _draw_narrow_half(wide, narrow, row, rest, rng, counts)
            del narrow  # which takes as much memory as all that are still to be drawn
            rest = rest - counts.sum(axis=0)
        drawn[0] = rest
        return drawn

    def propose(self, row: Integers, rng: np.random.Generator, *, at_a_time: int = 2**16) -> Integers:
        """Unconditional draws of the terms of some rows, shape (d, draws)."""
        lists, numbers = self.lists, int((self.lists.highs - self.lists.lows + 1).sum())
        if self._every is None and (lists.are_whole or numbers <= min(4 * self.d * len(row), self._most_listed)):
            # Listing all integers is faster than evaluating the weights of the draws.
            cell, masses = (lists if lists.are_whole else self._of_every_number()).by_cell
            self._every = Guide(cell, masses, lists.lows)
        # Chunks of terms, whose lists are close in memory.
        drawn = np.empty((self.d, len(row)), dtype=np.int64)
        cells, step = np.arange(self.d)[:, None] + (self.d * row if self.rows > 1 else 0), max(1, at_a_time // len(row))
        for first in range(0, self.d, step):
            chunk = slice(first, min(first + step, self.d))
            if self._every is not None:
                drawn[chunk] = self._every.at(cells[chunk], rng.random(drawn[chunk].shape))
            else:
                drawn[chunk] = self._in_blocks(np.broadcast_to(cells[chunk], drawn[chunk].shape), rng)
        return drawn

    def _log_pmf(self, x: Integers, cell: Integers) -> Array:
        lists = self.lists
        inside = (x >= lists.lows[cell]) & (x <= lists.highs[cell])
        safe = np.where(inside, x, lists.lows[cell])
        if lists.are_whole:
            return np.where(inside, lists.log_pmf[lists.starts[cell] + safe - lists.lows[cell]], -np.inf)
        assert self._log_weight is not None
        shape = np.broadcast_shapes(safe.shape, cell.shape)
        cells = np.broadcast_to(cell, shape).ravel()
        logs = self._log_weight(safe.astype(np.float64).ravel(), cells).reshape(shape) + lists.tilts[cell] * safe
        return np.where(inside, logs - lists.log_totals[cell], -np.inf)

    @cached_property
    def _bounds(self) -> Array:
        """Upper bounds of the log-probabilities in each block."""
        # A weight within a block may exceed those at the nodes; the bound is raised when a draw shows it.
        return self.lists.log_pmf.reshape(-1, NODES).max(axis=1) + 0.25

    @cached_property
    def _guide(self) -> "Guide":
        assert self.lists.blocks is not None
        cell, _, length = self.lists.blocks
        return Guide(cell, np.exp(self._bounds) * length, np.searchsorted(cell, np.arange(self.lists.size)))

    def _in_blocks(self, cells: Integers, rng: np.random.Generator) -> Integers:
        """Draws from some lists by rejection.

        A block is drawn by its bound, and an integer in it is accepted with its probability over the bound.
        """
        assert self.lists.blocks is not None
        (_, first, length), bound, cell = self.lists.blocks, self._bounds, cells.ravel()
        drawn, waiting = np.empty(len(cell), dtype=np.int64), np.arange(len(cell))
        while len(waiting):
            cells_left = cell[waiting]
            block = self._guide.at(cells_left, rng.random(len(cells_left)))
            x = first[block] + (rng.random(len(cells_left)) * length[block]).astype(np.int64)
            excess = self._log_pmf(x, cells_left) - bound[block]
            if (excess > 0).any():
                # The bound of a block was too low: restart all draws from that list with a higher one.
                np.maximum.at(bound, block, bound[block] + excess + 0.25)
                del self._guide
                waiting = np.flatnonzero(np.isin(cell, cells_left[excess > 0]) | np.isin(np.arange(len(cell)), waiting))
                continue
            accepted = np.log1p(-rng.random(len(cells_left))) <= excess
            drawn[waiting[accepted]] = x[accepted]
            waiting = waiting[~accepted]
        return drawn.reshape(cells.shape)


@final
class Guide:
    """Inversion of the distribution functions of some lists.

    The levels of a list are divided into as many slots as it has entries. The first entry that reaches each slot is
    stored, so that a lookup compares few entries.

    Parameters
    ----------
    cell : array of int, shape (entries,)
        The list of each entry, in order.
    weights : array, shape (entries,)
        They need not add up to 1.
    first : array of int, shape (size,)
        The integer of the first entry of each list; the others are consecutive.
    """

    def __init__(self, cell: Integers, weights: Array, first: Integers) -> None:
        starts = np.searchsorted(cell, np.arange(len(first) + 1))
        cumulative = np.cumsum(weights)
        cumulative -= (cumulative[starts[:-1]] - weights[starts[:-1]])[cell]
        cumulative /= cumulative[starts[1:] - 1][cell]
        slots = np.diff(starts)
        self._slots, self._begins, self._first = slots, np.cumsum(slots + 1) - (slots + 1), first - starts[:-1]
        place = np.ceil(cumulative * slots[cell]).astype(np.int64)
        place += self._begins[cell]
        passed = np.bincount(place)
        self._cumulative, self._reaching = cumulative, np.cumsum(passed, out=passed)

    def at(self, cell: Integers, level: Array) -> Integers:
        """The entries at levels below 1, in the shape of these; the lists are broadcast."""
        entry = self._reaching[self._begins[cell] + (level * self._slots[cell]).astype(np.int64)]
        flat, levels = entry.ravel(), level.ravel()
        low = np.flatnonzero(self._cumulative[flat] <= levels)
        while len(low):
            flat[low] += 1
            low = low[self._cumulative[flat[low]] <= levels[low]]
        return np.asarray(flat.reshape(level.shape) + self._first[cell], dtype=np.int64)


def _draw_narrow_half(
    wide: Sums,
    narrow: Sums,
    row: Integers,
    totals: Integers,
    rng: np.random.Generator,
    counts: Integers,
    *,
    few_tries: int = 4,
    at_a_time: int = 2**20,
) -> None:
    """The numbers of the narrow half of some rows, given the sum of each and the wide half, in place, shape (d, draws).

    They are proposed first, if `few_tries` is positive. If fewer than one of `few_tries` proposals is accepted on
    average, their sum may be drawn first. The cost of its distribution is about that of proposing 8 integers per point
    of the lists, and one per sum.
    """
    waiting, tried, proposing = np.arange(len(totals)), 0, few_tries > 0
    while len(waiting) and proposing and tried < 2**14 + 256 * len(totals):
        # Use the first accepted of several proposals; a few extra proposals save rounds.
        repeats, batch = 1 + 256 // len(waiting), waiting[: 1 + at_a_time // narrow.d]
        which = np.repeat(batch, repeats)
        proposed = narrow.propose(row[which], rng)
        share = wide.at(row[which], totals[which] - proposed.sum(axis=0)) / wide.largest[row[which]]
        if (share > 1).any():
            # The bound was exceeded: restart all draws.
            wide.largest *= share.max()
            waiting = np.arange(len(totals))
            continue
        accepted = (rng.random(len(which)) < share).reshape(-1, repeats)
        tried = tried + len(which)
        is_done = accepted.any(axis=1)
        first_accepted = np.flatnonzero(is_done) * repeats + accepted[is_done].argmax(axis=1)
        counts[:, batch[is_done]] = proposed[:, first_accepted]
        waiting = np.concatenate([waiting[len(batch) :], batch[~is_done]])
        # The draws that wait longest have the rarest sums.
        tries = len(which) / (accepted.sum() + 1)
        sums_first = 8 * len(narrow.lists.x) + len(waiting) * narrow.length
        proposing = bool(tries < few_tries or tries * len(waiting) * narrow.d < sums_first)
    if len(waiting):
        sums = _drawn_sums(wide, narrow, row[waiting], totals[waiting], rng)
        counts[:, waiting] = narrow._draw(row[waiting], sums, rng)


def _drawn_sums(wide: Sums, narrow: Sums, row: Integers, totals: Integers, rng: np.random.Generator) -> Integers:
    """The sum of the narrow half of the terms given each sum of a row, by inversion."""
    drawn = np.empty(len(totals), dtype=np.int64)
    for row_number in np.unique(row).tolist():
        draws_of_row = np.flatnonzero(row == row_number)
        known = np.flatnonzero(narrow.pmf[row_number] > 0)
        sums, masses = narrow.low[row_number] + known, narrow.pmf[row_number, known]
        # Many draws share a sum.
        different, which = np.unique(totals[draws_of_row], return_inverse=True)
        step = max(1, 2**21 // len(sums))
        for begin in range(0, len(different), step):
            rest = different[begin : begin + step, None] - sums
            weights = masses * wide.at(np.full(rest.shape, row_number), rest)
            cdf = np.cumsum(weights, axis=1)
            if (cdf[:, -1] <= 0).any():
                raise impossible()
            chunk = np.flatnonzero((which >= begin) & (which < begin + step))
            # One search for all: the distribution function number i is shifted by i.
            level = which[chunk] - begin + np.minimum(rng.random(len(chunk)), 1 - 1e-12)
            flat = (cdf / cdf[:, -1:] + np.arange(len(cdf))[:, None]).ravel()
            place = np.searchsorted(flat, level, side="right") - (which[chunk] - begin) * len(sums)
            drawn[draws_of_row[chunk]] = sums[np.minimum(place, len(sums) - 1)]
    return drawn


class Convolved(Sums):
    """The sums of one row of few integers by direct convolution, with relative errors for all sums."""

    @staticmethod
    def work(lists: Lists) -> float:
        """The number of products of the convolutions."""
        widths = np.sort(lists.widths).astype(np.float64)
        before = np.cumsum(widths) - widths
        return float((widths * before).sum())

    @cached_property
    def _convolved(self) -> tuple[list[Array], list[Array]]:
        """The probabilities of each term, and those of the sums of the first 0, 1, ... terms."""
        pmfs, sums = [self.lists.pmf(cell) for cell in self._order.tolist()], [np.ones(1)]
        for pmf in pmfs:
            sums.append(np.convolve(sums[-1], pmf))
        return pmfs, sums

    @cached_property
    @override
    def length(self) -> int:
        return int(self._spans[0]) + 1

    @cached_property
    @override
    def pmf(self) -> Array:
        return self._convolved[1][-1][None]

    @override
    def cell_masses(self, low: Integers, known: Array) -> Array:
        start, (pmfs, sums) = int(low[0] - self.low[0]), self._convolved
        of_sum = np.zeros((len(known), self.length))
        of_sum[:, start : start + known.shape[2]] = known[:, 0]
        masses = np.empty((len(known), len(self.lists.masses)))
        for place in range(self.d - 1, -1, -1):
            pmf, before, cell = pmfs[place], sums[place], int(self._order[place])
            points = slice(int(self.lists.starts[cell]), int(self.lists.starts[cell + 1]))
            masses[:, points] = np.stack([np.correlate(values, before, "valid") * pmf for values in of_sum])
            of_sum = np.stack([np.correlate(values, pmf, "valid") for values in of_sum])
        return masses

    @cached_property
    @override
    def largest(self) -> Array:
        return np.array([self._convolved[1][-1].max()])

    @override
    def _at_places(self, row: Integers, place: Integers) -> Array:
        probabilities: Array = self._convolved[1][-1][place]
        return probabilities
