"""Independent integers with unnormalised weights: their non-negligible weights, and sums over them.

Weights are tilted, that is, multiplied by `exp(tilt * x)`. A small range of integers is *listed* completely. The
weights of a count among millions follow a smooth curve with few kinks: the range is divided into blocks that are
replaced by Gauss nodes, and a block is halved until its halves give the same sum. In both cases all sums run over
points with masses.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.quadrature import _block_rule

LogWeight = Callable[[Array, Integers], Array]
Room = Callable[[Integers, Integers], tuple[Array, Array]]

# Weights below the largest by a factor of more than exp(50) are left out.
CUT = 50.0
# The number of nodes of the Gauss rule of a block of 2^k integers. In a block of this length all integers are nodes.
NODES = 16


class ImpossibleError(ArgumentError):
    """No integers have a positive weight in double precision."""


class TooManyNumbersError(ArgumentError):
    """There are more non-negligible integers than can be listed."""


def impossible() -> ImpossibleError:
    """The error if all counts have probability 0."""
    return ImpossibleError(
        "No table of counts could have led to this output, or only ones whose probability is 0 in double precision. "
        "Check that the output belongs to this mechanism, and the number of records."
    )


@final
class Lists:
    """Independent distributions of integers with weights `exp(logs + tilt * x)`, represented by points.

    Parameters
    ----------
    lows, highs : array of int, shape (size,)
        The first and the last non-negligible integer of each distribution.
    cell : array of int, shape (points,)
        The distribution of each point, in order.
    x, logs : array, shape (points,)
        The points, in order, and the logarithms of their weights before the tilt.
    tilts : float or array, shape (size,)
    rule : array, shape (points,), optional
        The number of integers that each point represents; by default every integer from `lows` to `highs` is a point.
    blocks : tuple of array, optional
        Cells, first numbers and lengths of blocks of `NODES` points each, if points are the nodes of their Gauss rules.

    Attributes
    ----------
    masses : array, shape (points,)
        The contributions of the points to sums over all integers: their probabilities times the rule.
    log_totals : array, shape (size,)
        Logarithms of the sums of the tilted weights.

    Raises
    ------
    ImpossibleError
        If all weights of a distribution are 0.
    """

    def __init__(
        self,
        lows: Integers,
        highs: Integers,
        cell: Integers,
        x: Array,
        logs: Array,
        tilts: float | Array = 0.0,
        rule: Array | None = None,
        blocks: tuple[Integers, Integers, Integers] | None = None,
    ) -> None:
        self.size, self.lows, self.highs, self.cell, self.x, self.logs = len(lows), lows, highs, cell, x, logs
        self.rule, self.blocks = rule, blocks
        self.tilts = np.broadcast_to(np.asarray(tilts, dtype=np.float64), (self.size,))
        self.starts = np.searchsorted(cell, np.arange(self.size + 1))
        masses = self._tilted
        self._peak = np.maximum.reduceat(masses, self.starts[:-1])
        if np.isneginf(self._peak).any():
            raise impossible()
        refuse_lost_digits(np.maximum.reduceat(logs, self.starts[:-1]))
        masses -= self._peak[cell]
        np.exp(masses, out=masses)
        if rule is not None:
            masses *= rule
        total = np.add.reduceat(masses, self.starts[:-1])
        self.log_totals: Array = self._peak + np.log(total)
        masses /= total[cell]
        self.masses: Array = masses

    # There may be millions of points, so derived arrays are not stored.

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        above = self.above
        mean = np.add.reduceat(self.masses * above, self.starts[:-1])
        above -= mean[self.cell]
        above *= above
        above *= self.masses
        return np.asarray(self.lows + mean, dtype=np.float64), np.add.reduceat(above, self.starts[:-1])

    @property
    def means(self) -> Array:
        """The mean of each, shape (size,)."""
        return self._moments[0]

    @property
    def variances(self) -> Array:
        """The variance of each, shape (size,)."""
        return self._moments[1]

    @property
    def _tilted(self) -> Array:
        """Logarithms of the tilted weights."""
        logs = self.tilts[self.cell]
        logs *= self.x
        logs += self.logs
        return logs

    @property
    def above(self) -> Array:
        """The distance of each point from the lowest one; exact if integers have more digits than doubles."""
        return np.asarray(self.x - self.lows[self.cell], dtype=np.float64)

    @classmethod
    def whole(cls, lows: Integers, widths: Integers, logs: Array, tilts: float | Array = 0.0) -> "Lists":
        """Lists of all integers from `lows`, `widths` of each."""
        cell = np.repeat(np.arange(len(lows)), widths)
        x = lows[cell] + (np.arange(len(cell)) - (np.cumsum(widths) - widths)[cell])
        return cls(lows, lows + widths - 1, cell, x.astype(np.float64), logs, tilts)

    @property
    def by_cell(self) -> tuple[Integers, Array]:
        """The distribution of each point, and its mass."""
        return self.cell, self.masses

    @property
    def widths(self) -> Integers:
        """The number of points of each distribution."""
        return np.diff(self.starts)

    @property
    def are_whole(self) -> bool:
        """Whether every integer is a point."""
        return self.rule is None

    @cached_property
    def log_pmf(self) -> Array:
        """Logarithms of the probabilities at the points."""
        logs: Array = self._tilted - self.log_totals[self.cell]
        return logs

    def pmf(self, cell: int) -> Array:
        """The masses of the points of one distribution."""
        masses: Array = self.masses[self.starts[cell] : self.starts[cell + 1]]
        return masses

    def at(self, tilts: float | Array) -> "Lists":
        """The same points at other tilts."""
        return Lists(self.lows, self.highs, self.cell, self.x, self.logs, tilts, self.rule, self.blocks)

    def ends(self, cut: float) -> tuple[Integers, Integers]:
        """The positions of the first and the last point of each distribution above the largest weight / exp(cut)."""
        places = np.flatnonzero(self._tilted >= (self._peak - cut)[self.cell])
        edges = np.searchsorted(places, self.starts)
        return places[edges[:-1]], places[edges[1:] - 1]

    def trimmed(self, cut: float) -> "Lists":
        """The lists without the integers at both ends whose weight is below the largest by a factor of exp(cut)."""
        if not self.are_whole:
            return self
        first, last = self.ends(cut)
        widths = last - first + 1
        within = np.arange(widths.sum()) + np.repeat(first - (np.cumsum(widths) - widths), widths)
        return Lists.whole(self.lows + (first - self.starts[:-1]), widths, self.logs[within], self.tilts)

    def points(self, cells: Integers) -> Integers:
        """The positions of the points of some distributions, concatenated."""
        widths = self.widths[cells]
        place = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
        places: Integers = np.repeat(self.starts[:-1][cells], widths) + place
        return places

    def take(self, cells: Integers) -> "Lists":
        """Some of the distributions, in the given order."""
        if np.array_equal(cells, np.arange(self.size)):
            return self
        points, rule, blocks = self.points(cells), self.rule, self.blocks
        if blocks is not None:
            edges = np.searchsorted(blocks[0], np.arange(self.size + 1))
            counts = np.diff(edges)[cells]
            chosen = np.arange(counts.sum()) + np.repeat(edges[:-1][cells] - (np.cumsum(counts) - counts), counts)
            blocks = np.repeat(np.arange(len(cells)), counts), blocks[1][chosen], blocks[2][chosen]
        return Lists(
            self.lows[cells],
            self.highs[cells],
            np.repeat(np.arange(len(cells)), self.widths[cells]),
            self.x[points],
            self.logs[points],
            self.tilts[cells],
            None if rule is None else rule[points],
            blocks,
        )

    def weighted(self, masses: Array) -> "Lists":
        """The same points with other masses."""
        with np.errstate(divide="ignore"):
            logs = np.log(masses if self.rule is None else masses / np.where(self.rule > 0, self.rule, np.inf))
        return Lists(self.lows, self.highs, self.cell, self.x, logs, 0.0, self.rule, self.blocks)

    @cached_property
    def pieces(self) -> tuple[Integers, Integers, Integers, Array]:
        """Blocks of integers in order: cells, first integers, lengths and masses; single integers in complete lists."""
        if self.blocks is None:
            return (
                self.cell,
                np.rint(self.x).astype(np.int64),
                np.broadcast_to(np.int64(1), self.cell.shape),
                self.masses,
            )
        return *self.blocks, self.masses.reshape(-1, NODES).sum(axis=1)

    def _at_nodes(self, piece: Integers) -> Array:
        """The probabilities at the nodes of some blocks, shape (blocks, NODES)."""
        assert self.rule is not None
        rule = self.rule.reshape(-1, NODES)[piece]
        densities: Array = self.masses.reshape(-1, NODES)[piece] / np.where(rule > 0, rule, np.inf)
        return densities

    def densities(self, x: Array, piece: Integers) -> Array:
        """The probabilities of integers, each in a block, by polynomial interpolation within the block."""
        if self.blocks is None:
            return self.masses[piece]
        _, start, length = self.blocks
        values, known = np.empty(len(x)), self._at_nodes(piece)
        for size in np.unique(length[piece]).tolist():
            pieces = np.flatnonzero(length[piece] == size)
            weights = interpolation(block_rule(size)[0], x[pieces] - start[piece[pieces]])
            values[pieces] = np.einsum("ij,ij->i", weights, known[pieces])
        return np.maximum(values, 0.0)

    def first_of(self, piece: Integers, counts: Integers) -> Array:
        """The probability of the first `counts` integers of each block."""
        if self.blocks is None:
            return np.where(counts > 0, self.masses[piece], 0.0)
        sums_of_first = np.empty(len(piece))
        for pieces, ends, sums in self._sums_within(piece):
            sums_of_first[pieces] = np.einsum("ij,ij->i", interpolation(ends, counts[pieces].astype(np.float64)), sums)
        return np.maximum(sums_of_first, 0.0)

    def reaching(self, piece: Integers, mass: Array) -> tuple[Integers, Integers]:
        """Bounds of the integer in each block at which its cumulative mass reaches `mass`."""
        first, last = np.zeros(len(piece), dtype=np.int64), np.zeros(len(piece), dtype=np.int64)
        for pieces, ends, sums in self._sums_within(piece) if self.blocks is not None else ():
            place = np.clip((sums < mass[pieces, None]).sum(axis=1), 1, len(ends) - 1)
            # Rounding may shift it to the next integer.
            first[pieces], last[pieces] = ends[np.maximum(place - 2, 0)], ends[np.minimum(place + 1, len(ends) - 1)]
        return first, np.maximum(last - 1, first)

    def _sums_within(self, piece: Integers) -> Iterator[tuple[Integers, Array, Array]]:
        """For blocks of each length: their numbers, the integers at which cumulative sums are known, and these sums."""
        assert self.blocks is not None
        length, known = self.blocks[2][piece], self._at_nodes(piece)
        for size in np.unique(length).tolist():
            pieces = np.flatnonzero(length == size)
            ends, sums = _sums_within(size)
            yield pieces, ends, known[pieces] @ sums


def interpolation(nodes: Array, places: Array) -> Array:
    """Weights that interpolate a polynomial from its values at nodes to other places, shape (places, nodes).

    Barycentric interpolation.
    """
    apart = nodes[:, None] - nodes
    np.fill_diagonal(apart, 1.0)
    # Scaled by the length, because the products would overflow.
    of_nodes, distances = 1 / (apart / (nodes[-1] - nodes[0] + 1)).prod(axis=1), places[:, None] - nodes
    near = np.abs(distances) < 1e-9
    distances[near] = 1.0
    weights: Array = of_nodes / distances
    at_nodes = near.any(axis=1)
    weights[at_nodes] = near[at_nodes]
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


@cache
def _sums_within(length: int) -> tuple[Array, Array]:
    """The sums of the first k integers of a block, a polynomial in k, at NODES + 1 values: k, and factors of nodes."""
    few = np.arange(NODES // 2 + 1)
    # Chebyshev points, rounded to integers.
    below = np.maximum(few, np.rint((1 - np.cos(np.pi * few / NODES)) * length / 2)).astype(np.int64)
    ends = np.concatenate([below, length - below[-2::-1]])
    sums = np.zeros((NODES, len(ends)))
    for place, end in enumerate(ends.tolist()[1:], start=1):
        offsets, rule = _block_rule(end, NODES)
        sums[:, place] = rule @ interpolation(block_rule(length)[0], offsets)
    return ends.astype(np.float64), sums


@final
class Numbers:
    """Independent distributions of integers on `least..most`, with weights `exp(log_weight(x, cell) + tilt * x)`.

    Parameters
    ----------
    log_weight : callable
        `log_weight(x, cell)` with arrays of the same shape. It may be `-inf`. It is evaluated between integers only
        if `smooth` is True.
    size : int
        The number of distributions.
    least, most : int or array of int, shape (size,)
        The ends of the range of each distribution.
    smooth : bool
        Whether weights increase up to a mode and then decrease, so that not all have to be evaluated. Either end may be
        another mode, as for a count with a small prior.
    few : int
        Up to this number of integers, all are listed, because evaluating them is faster than a search.
    most_listed : int
        Maximum number of points in all lists; more raise an error.
    """

    def __init__(
        self,
        log_weight: LogWeight,
        size: int,
        least: int | Integers,
        most: int | Integers,
        *,
        smooth: bool = True,
        few: int = 2**15,
        most_listed: int = 2**21,
    ) -> None:
        self.log_weight, self.size, self.smooth, self.most_listed = log_weight, size, smooth, most_listed
        self.least = np.broadcast_to(np.asarray(least, dtype=np.int64), (size,))
        self.most = np.broadcast_to(np.asarray(most, dtype=np.int64), (size,))
        # A search evaluates about 400 integers of each distribution.
        self._few = float((self.most - self.least + 1).sum()) <= max(few, 400 * size)
        self._rough: Lists | None = None

    @cached_property
    def _all(self) -> Lists | None:
        if self.smooth and not self._few:
            return None
        return self._listed(self.least, self.most, np.zeros(self.size))

    def _listed(self, lows: Integers, highs: Integers, tilts: Array) -> Lists:
        return every_number(self._weights, lows, highs, tilts, self.most_listed)

    def _weights(self, x: Array, cell: Integers) -> Array:
        logs = weights(self.log_weight, x, cell)
        refuse_no_weights(logs)
        return logs

    def rough(self, tilts: float | Array, *, points: int = 64) -> Lists:
        """A coarse list with few points, for moments to a few per cent, at one tilt or one for each distribution."""
        tilts = np.broadcast_to(np.asarray(tilts, dtype=np.float64), (self.size,))
        if self._all is not None:
            return self._all.at(tilts)
        if self._rough is None:
            self._rough = self._searched(tilts, points)
        lists = self._rough.at(tilts)
        # Points for another tilt are reused if they cover all non-negligible integers.
        first, last = lists.ends(20.0)
        outside = ((first == lists.starts[:-1]) & (lists.x[first] > self.least)) | (
            (last == lists.starts[1:] - 1) & (lists.x[last] < self.most)
        )
        # There must also be enough of them.
        if (outside | ((last - first < points // 8) & (lists.widths > points))).any():
            lists = self._rough = self._searched(tilts, points)
        return lists

    def forget_rough(self) -> None:
        """Free the coarse list, which takes as much memory as a full list."""
        self._rough = None

    def _searched(self, tilts: Array, points: int) -> Lists:
        lows, highs, _, top = self._windows(tilts, 1.6 * CUT, self.least, self.most)
        if top is None:
            return self._listed(lows, highs, tilts)
        strides = np.maximum(1, (highs - lows) // (2 * points))
        widths = (highs - lows) // strides + 1
        cell = np.repeat(np.arange(self.size), widths)
        x = lows[cell] + (np.arange(len(cell)) - (np.cumsum(widths) - widths)[cell]) * strides[cell].astype(np.float64)
        # A curve may begin and end there: the first point represents half as many, the last one the remainder.
        half, left = (strides[cell] + 1) / 2, highs[cell] - x
        rule = np.where(left < strides[cell], half + left, np.where(x == lows[cell], half, strides[cell]))
        return Lists(lows, highs, cell, x, self._weights(x, cell), tilts, rule)

    def at(
        self,
        tilts: float | Array,
        cut: float = CUT,
        *,
        longest: Array | None = None,
        room: Room | None = None,
        dense: int = 2**19,
    ) -> Lists:
        """The lists of all non-negligible integers at a tilt.

        Parameters
        ----------
        tilts : float or array, shape (size,)
        cut : float
            Weights below the largest by a factor of more than exp(cut) are left out.
        longest : array, shape (size,), optional
            Maximum length of a block, short compared with the function that multiplies the weights; by default every
            integer is listed.
        room : callable, optional
            `room(lows, highs)` returns bounds of the possible integers if all are between `lows` and `highs`.
        dense : int
            Up to this number of integers all are listed, and also up to 150 per distribution, because blocks would
            hardly have fewer points.
        """
        if self._all is not None:
            return self._all.at(tilts).trimmed(cut)
        tilts = np.broadcast_to(np.asarray(tilts, dtype=np.float64), (self.size,))
        # Beyond the tilt at which the mode changes from 0 to the far end, this finds the weights near 0.
        least, most = _with_room(self.least, self.most, room)
        lows, highs, best, top = self._windows(tilts, cut, least, most)
        first, last = _with_room(lows, highs, room)
        # The integer with the largest weight is always listed.
        lows, highs = np.minimum(first, best), np.maximum(last, best)
        if longest is None or top is None or not self.smooth or (highs - lows + 1).sum() <= max(dense, 150 * self.size):
            return self._listed(lows, highs, tilts).trimmed(cut)
        return self._in_blocks(lows, highs, top, tilts, cut, longest)

    def _in_blocks(
        self, lows: Integers, highs: Integers, top: Array, tilts: Array, cut: float, longest: Array
    ) -> Lists:
        """Blocks of 2^k integers with a Gauss rule each, halved until the halves give the same sum and values.

        Blocks of `NODES` integers are listed, and blocks that extend beyond the last integer are halved, too.
        """

        def blocks_at(cell: Integers, start: Integers, length: Integers) -> _Blocks:
            rules = np.reshape([block_rule(size) for size in lengths], (-1, 2, NODES))
            which = np.searchsorted(lengths, length)
            x = start[:, None] + rules[which, 0]
            rule, last = rules[which, 1], highs[cell][:, None]
            rule[x > last] = 0.0
            np.minimum(x, last, out=x)
            logs = self._weights(x.ravel(), np.repeat(cell, NODES)).reshape(x.shape)
            weights = tilts[cell][:, None] * x
            weights += logs
            weights -= top[cell][:, None]
            np.exp(np.minimum(weights, 700.0, out=weights), out=weights)
            return _Blocks(cell, start, length, x, rule, logs, weights)

        size = 2 ** np.floor(np.log2(np.maximum((highs - lows + 1) / 4, NODES))).astype(np.int64)
        lengths = (2 ** np.arange(int(np.log2(NODES)), int(size.max()).bit_length())).tolist()
        n_blocks = (highs - lows) // size + 1
        cell = np.repeat(np.arange(self.size), n_blocks)
        start = lows[cell] + (np.arange(len(cell)) - (np.cumsum(n_blocks) - n_blocks)[cell]) * size[cell]
        blocks, accepted = blocks_at(cell, start, size[cell]), []
        total = np.maximum(np.bincount(cell, blocks.sums, self.size), 1.0)
        while len(blocks.cell):
            large = blocks.weights.max(axis=1) > np.exp(-cut)
            beyond = blocks.start + blocks.length - 1 > highs[blocks.cell]
            whole = blocks.length == NODES
            accepted.append(blocks.take(large & whole))
            divided = (large | beyond) & ~whole
            wide = blocks.take(divided)
            refuse_too_many(2.0 * NODES * len(wide.cell), most=3 * self.most_listed)
            starts = np.stack([wide.start, wide.start + wide.length // 2], axis=1)
            halves = blocks_at(np.repeat(wide.cell, 2), starts.ravel(), np.repeat(wide.length // 2, 2))
            before, after = wide.sums, halves.sums.reshape(-1, 2).sum(axis=1)
            # The rounding error of weights with large logarithms limits every rule.
            noise = 1e-14 + 1e-15 * np.abs(wide.logs).max(axis=1, where=np.isfinite(wide.logs), initial=1.0)
            right = np.abs(after - before) <= noise * np.maximum(total[wide.cell], before)
            right &= _between_nodes(wide, halves) <= 2e-10 + noise
            right &= ~beyond[divided] & (wide.length <= longest[wide.cell])
            accepted.append(wide.take(right))
            blocks = halves.take(np.repeat(~right, 2) & (halves.start <= highs[halves.cell]))
        finest_blocks = _Blocks(
            *(np.concatenate([getattr(part, field.name) for part in accepted]) for field in fields(_Blocks))
        )
        finest_blocks = finest_blocks.take(np.lexsort((finest_blocks.start, finest_blocks.cell)))
        x, rule, logs = (values.ravel() for values in (finest_blocks.x, finest_blocks.rule, finest_blocks.logs))
        places = finest_blocks.cell, finest_blocks.start, finest_blocks.length
        return Lists(lows, highs, np.repeat(finest_blocks.cell, NODES), x, logs, tilts, rule, places)

    def _windows(
        self, tilts: Array, cut: float, least: Integers, most: Integers
    ) -> tuple[Integers, Integers, Integers, Array | None]:
        """Bounds of the non-negligible integers of each distribution within a range.

        Also returns the integers with the largest weights, and these weights.
        """
        cells = np.arange(self.size)

        def weight(x: Integers) -> Array:
            return self._weights(x.astype(np.float64), np.broadcast_to(cells, x.shape)) + tilts * x

        best, top = largest(weight, least, most)
        refuse_lost_digits(top)
        if np.isneginf(top).any():
            # Weights between the points are unknown, so every integer is evaluated.
            return least, most, best, None
        ends = []
        for end in (least, most):
            inner, outer = best, end
            while True:
                x = np.rint(inner + _PART * (outer - inner)).astype(np.int64)
                inside = weight(x) > top - cut
                last = len(_PART) - 1 - inside[::-1].argmax(axis=0)
                inner, outer = x[last, cells], x[np.minimum(last + 1, len(_PART) - 1), cells]
                if (np.abs(outer - inner) <= 1 + np.abs(inner - best) // 8).all():
                    break
            ends.append(outer)
        return ends[0], ends[1], best, top


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Blocks of integers, and the nodes of each, shape (blocks, NODES), with their rules and weights.

    A rule is 0 beyond the last integer. Weights are tilted and divided by the largest of their distribution.
    """

    cell: Integers
    start: Integers
    length: Integers
    x: Array
    rule: Array
    logs: Array
    weights: Array

    @property
    def sums(self) -> Array:
        """The sum of the weights of each block."""
        return np.asarray(np.einsum("ij,ij->i", self.rule, self.weights))

    def take(self, chosen: Integers | NDArray[np.bool_]) -> "_Blocks":
        return _Blocks(*(getattr(self, field.name)[chosen] for field in fields(self)))


def _between_nodes(wide: _Blocks, halves: _Blocks) -> Array:
    """The maximum error of interpolation from the nodes of blocks to the nodes of their halves."""
    off, exact = np.empty(len(wide.cell)), halves.weights.reshape(-1, 2 * NODES)
    for length in np.unique(wide.length).tolist():
        chosen = np.flatnonzero(wide.length == length)
        off[chosen] = np.abs(wide.weights[chosen] @ _at_halves(length).T - exact[chosen]).max(axis=1)
    return off


@cache
def _at_halves(length: int) -> Array:
    """Interpolation from the nodes of a block to the nodes of its halves, shape (2 NODES, NODES)."""
    half = block_rule(length // 2)[0]
    return interpolation(block_rule(length)[0], np.concatenate([half, length // 2 + half]))


def _with_room(lows: Integers, highs: Integers, room: Room | None) -> tuple[Integers, Integers]:
    """Intersect ranges with the bounds of `room`; each range has at least one integer."""
    if room is None:
        return lows, highs
    first, last = (np.clip(end, lows, highs).astype(np.int64) for end in room(lows, highs))
    return first, np.maximum(first, last)


def every_number(log_weight: LogWeight, lows: Integers, highs: Integers, tilts: Array, most: int = 2**21) -> Lists:
    """Lists of all integers from the lowest to the highest of each distribution.

    Raises
    ------
    TooManyNumbersError
    """
    widths = highs - lows + 1
    refuse_too_many(float(widths.sum()), most=most)
    cell = np.repeat(np.arange(len(lows)), widths)
    x = np.arange(len(cell), dtype=np.float64)
    x -= (np.cumsum(widths) - widths - lows)[cell]
    return Lists(lows, highs, cell, x, weights(log_weight, x, cell), tilts)


def weights(log_weight: LogWeight, x: Array, cell: Integers, *, at_a_time: int = 2**16) -> Array:
    """Log-weights, evaluated in chunks to limit memory."""
    logs, step = np.empty(x.shape), max(1, at_a_time * x.shape[-1] // max(x.size, 1))
    for first in range(0, x.shape[-1], step):
        chunk = (..., slice(first, first + step))
        logs[chunk] = log_weight(x[chunk], cell[chunk])
    return logs


@cache
def block_rule(length: int) -> tuple[Array, Array]:
    """The nodes and the weights of a block of at least `NODES` integers."""
    return _block_rule(length, NODES)


# The points of each round of a search.
_PART = np.arange(17)[:, None] / 16


def largest(weight: Callable[[Integers], Array], least: Integers, most: Integers) -> tuple[Integers, Array]:
    """The integers with the largest weights, and these weights.

    `weight` takes integers, shape (k, distributions), and is unimodal.
    """
    low, high, cells = least, most, np.arange(len(least))
    best, top = least, np.full(len(least), -np.inf)
    while True:
        x = np.rint(low + _PART * (high - low)).astype(np.int64)
        values = weight(x)
        place = values.argmax(axis=0)
        better = values[place, cells] > top
        best, top = np.where(better, x[place, cells], best), np.where(better, values[place, cells], top)
        if (high - low <= len(_PART)).all():
            return best, top
        low, high = x[np.maximum(place - 1, 0), cells], x[np.minimum(place + 1, len(_PART) - 1), cells]


def refuse_too_many(numbers: float, *, most: float) -> None:
    """Raise if there are too many integers.

    Raises
    ------
    TooManyNumbersError
    """
    if numbers > most:
        raise TooManyNumbersError(
            "The output has so little information about so many records that exact sums over the counts take too long. "
            "Pass a prior with larger parameters, or merge the cells that are nearly empty."
        )


def refuse_lost_digits(largest_logs: Array, most: float = 5e12) -> None:
    """Raise if the rounding error of log-weights exceeds the differences between them.

    Raises
    ------
    ImpossibleError
    """
    if np.any(np.isfinite(largest_logs) & (np.abs(largest_logs) > most)):
        raise ImpossibleError("Some numbers of the output are far too large or too small.")


def refuse_no_weights(logs: Array) -> None:
    """Raise if a log-weight is NaN or +inf."""
    if np.isnan(logs).any() or np.isposinf(logs).any():
        raise ArgumentError(
            "The log-likelihood is NaN or +inf for a possible count. It must be finite or -inf "
            "for all counts from `least` to the total."
        )
