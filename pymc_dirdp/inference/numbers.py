"""Independent integers that are known up to a factor: their weights where they matter, and sums over them.

Weights are tilted: multiplied by `exp(tilt * x)`. Few numbers are *listed*, every one that matters. Those of a count
among millions follow a smooth curve with few kinks: they are cut into blocks, each of which is replaced by Gauss nodes,
and halved until its halves give the same sum. Either way there are points with masses, of which all sums are made.
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

# What is a factor of exp(-50) below the largest weight is left out.
CUT = 50.0
# Those of the Gauss rule of a block of 2^k numbers. In blocks of so many every number is a node.
NODES = 16


class ImpossibleError(ArgumentError):
    """No numbers have a positive weight, or none that doubles can tell from 0."""


class TooManyNumbersError(ArgumentError):
    """More numbers matter than can be listed."""


def impossible() -> ImpossibleError:
    """The error where all counts have a probability of 0."""
    return ImpossibleError(
        "No table of counts could have led to this output, or only ones whose probability is 0 in double precision. "
        "Check that the output belongs to this mechanism, and the number of records."
    )


@final
class Lists:
    """Independent distributions of integers with weights `exp(logs + tilt * x)`, by points of each.

    Parameters
    ----------
    lows, highs : array of int, shape (size,)
        The first and the last number of each that matters.
    cell : array of int, shape (points,)
        The distribution of each point, in order.
    x, logs : array, shape (points,)
        The points, in order, and the logarithms of their weights before the tilt.
    tilts : float or array, shape (size,)
    rule : array, shape (points,), optional
        How many numbers each point stands for; by default every number from `lows` to `highs` is a point.
    blocks : tuple of array, optional
        Cells, first numbers and lengths of blocks of `NODES` points each, if points are the nodes of their Gauss rules.

    Attributes
    ----------
    masses : array, shape (points,)
        What the points add to sums over all numbers: their probabilities times the rule.
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

    # There may be millions of points: what follows from others is not stored.

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
        found = self.tilts[self.cell]
        found *= self.x
        found += self.logs
        return found

    @property
    def above(self) -> Array:
        """How far each point is from the lowest: exact where numbers have more digits than doubles."""
        return np.asarray(self.x - self.lows[self.cell], dtype=np.float64)

    @classmethod
    def whole(cls, lows: Integers, widths: Integers, logs: Array, tilts: float | Array = 0.0) -> "Lists":
        """So many numbers from the lowest of each on, every one."""
        cell = np.repeat(np.arange(len(lows)), widths)
        x = lows[cell] + (np.arange(len(cell)) - (np.cumsum(widths) - widths)[cell])
        return cls(lows, lows + widths - 1, cell, x.astype(np.float64), logs, tilts)

    @property
    def by_cell(self) -> tuple[Integers, Array]:
        """The distribution of each point, and its mass."""
        return self.cell, self.masses

    @property
    def widths(self) -> Integers:
        """How many points each has."""
        return np.diff(self.starts)

    @property
    def are_whole(self) -> bool:
        """Whether every number is a point."""
        return self.rule is None

    @cached_property
    def log_pmf(self) -> Array:
        """Logarithms of the probabilities at the points."""
        found: Array = self._tilted - self.log_totals[self.cell]
        return found

    def pmf(self, cell: int) -> Array:
        """The masses of the points of one distribution."""
        found: Array = self.masses[self.starts[cell] : self.starts[cell + 1]]
        return found

    def at(self, tilts: float | Array) -> "Lists":
        """The same points at other tilts."""
        return Lists(self.lows, self.highs, self.cell, self.x, self.logs, tilts, self.rule, self.blocks)

    def ends(self, cut: float) -> tuple[Integers, Integers]:
        """The places of the first and the last point of each whose weight is not below the largest by exp(cut)."""
        places = np.flatnonzero(self._tilted >= (self._peak - cut)[self.cell])
        edges = np.searchsorted(places, self.starts)
        return places[edges[:-1]], places[edges[1:] - 1]

    def trimmed(self, cut: float) -> "Lists":
        """Without the numbers at both ends whose weight is below the largest by a factor of exp(cut)."""
        if not self.are_whole:
            return self
        first, last = self.ends(cut)
        widths = last - first + 1
        within = np.arange(widths.sum()) + np.repeat(first - (np.cumsum(widths) - widths), widths)
        return Lists.whole(self.lows + (first - self.starts[:-1]), widths, self.logs[within], self.tilts)

    def points(self, cells: Integers) -> Integers:
        """Where the points of some distributions are among all, one distribution after the other."""
        widths = self.widths[cells]
        place = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
        found: Integers = np.repeat(self.starts[:-1][cells], widths) + place
        return found

    def take(self, cells: Integers) -> "Lists":
        """Some of the distributions, in their order."""
        if np.array_equal(cells, np.arange(self.size)):
            return self
        points, rule, blocks = self.points(cells), self.rule, self.blocks
        if blocks is not None:
            edges = np.searchsorted(blocks[0], np.arange(self.size + 1))
            many = np.diff(edges)[cells]
            some = np.arange(many.sum()) + np.repeat(edges[:-1][cells] - (np.cumsum(many) - many), many)
            blocks = np.repeat(np.arange(len(cells)), many), blocks[1][some], blocks[2][some]
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
        """Blocks of numbers in order: their cells, first numbers, lengths and masses. Of whole lists every number."""
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
        found: Array = self.masses.reshape(-1, NODES)[piece] / np.where(rule > 0, rule, np.inf)
        return found

    def densities(self, x: Array, piece: Integers) -> Array:
        """The probabilities of numbers, each in a block: within one they follow a polynomial."""
        if self.blocks is None:
            return self.masses[piece]
        _, start, length = self.blocks
        found, known = np.empty(len(x)), self._at_nodes(piece)
        for size in np.unique(length[piece]).tolist():
            some = np.flatnonzero(length[piece] == size)
            weights = interpolation(block_rule(size)[0], x[some] - start[piece[some]])
            found[some] = np.einsum("ij,ij->i", weights, known[some])
        return np.maximum(found, 0.0)

    def first_of(self, piece: Integers, many: Integers) -> Array:
        """The probability of so many of the first numbers of each of some blocks."""
        if self.blocks is None:
            return np.where(many > 0, self.masses[piece], 0.0)
        found = np.empty(len(piece))
        for some, ends, sums in self._sums_within(piece):
            found[some] = np.einsum("ij,ij->i", interpolation(ends, many[some].astype(np.float64)), sums)
        return np.maximum(found, 0.0)

    def reaching(self, piece: Integers, mass: Array) -> tuple[Integers, Integers]:
        """Between which of its numbers each of some blocks, summed from its first one on, has some mass."""
        first, last = np.zeros(len(piece), dtype=np.int64), np.zeros(len(piece), dtype=np.int64)
        for some, ends, sums in self._sums_within(piece) if self.blocks is not None else ():
            place = np.clip((sums < mass[some, None]).sum(axis=1), 1, len(ends) - 1)
            # What is rounded may take it to the next.
            first[some], last[some] = ends[np.maximum(place - 2, 0)], ends[np.minimum(place + 1, len(ends) - 1)]
        return first, np.maximum(last - 1, first)

    def _sums_within(self, piece: Integers) -> Iterator[tuple[Integers, Array, Array]]:
        """For blocks of each length, by number, those of their numbers of which sums are known, and all sums."""
        assert self.blocks is not None
        length, known = self.blocks[2][piece], self._at_nodes(piece)
        for size in np.unique(length).tolist():
            some = np.flatnonzero(length == size)
            ends, sums = _sums_within(size)
            yield some, ends, known[some] @ sums


def interpolation(nodes: Array, places: Array) -> Array:
    """What the values of a polynomial at some nodes are weighted by to be those at places, shape (places, nodes).

    Barycentric interpolation.
    """
    apart = nodes[:, None] - nodes
    np.fill_diagonal(apart, 1.0)
    # Over the length, as their products leave the doubles.
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
    """Of a block the sums of the first k numbers, a polynomial in k, at NODES + 1 of these: k, and factors of nodes."""
    few = np.arange(NODES // 2 + 1)
    # As near to the ends as the points of Chebyshev are, but for integers.
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
        `log_weight(x, cell)` with arrays of the same shape. It may be `-inf`, and is asked for points between
        integers only where it is `smooth`.
    size : int
        The number of distributions.
    least, most : int or array of int, shape (size,)
        The ends of the numbers of each distribution.
    smooth : bool
        Whether weights rise to a mode and fall after it, so that not all have to be looked at. Either end may be a mode
        of its own, as that of a count with a small prior.
    few : int
        So many numbers are listed once, whole: evaluating them takes less time than any search.
    most_listed : int
        With more points in all lists an error is raised.
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
        # A search looks at some 400 numbers of each.
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
        """Few points of each distribution, for moments to a few per cent at a tilt, or at one for each."""
        tilts = np.broadcast_to(np.asarray(tilts, dtype=np.float64), (self.size,))
        if self._all is not None:
            return self._all.at(tilts)
        if self._rough is None:
            self._rough = self._searched(tilts, points)
        found = self._rough.at(tilts)
        # Points that were laid at another tilt serve as long as all that matters lies among them.
        first, last = found.ends(20.0)
        outside = ((first == found.starts[:-1]) & (found.x[first] > self.least)) | (
            (last == found.starts[1:] - 1) & (found.x[last] < self.most)
        )
        # Nor may they be too few.
        if (outside | ((last - first < points // 8) & (found.widths > points))).any():
            found = self._rough = self._searched(tilts, points)
        return found

    def forget_rough(self) -> None:
        """Let the few points of each go, which take as much memory as a list does."""
        self._rough = None

    def _searched(self, tilts: Array, points: int) -> Lists:
        lows, highs, _, top = self._windows(tilts, 1.6 * CUT, self.least, self.most)
        if top is None:
            return self._listed(lows, highs, tilts)
        strides = np.maximum(1, (highs - lows) // (2 * points))
        widths = (highs - lows) // strides + 1
        cell = np.repeat(np.arange(self.size), widths)
        x = lows[cell] + (np.arange(len(cell)) - (np.cumsum(widths) - widths)[cell]) * strides[cell].astype(np.float64)
        # A curve may begin and end there: the first stands for half as many, and the last for what is left.
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
        """All that matters of the numbers at a tilt.

        Parameters
        ----------
        tilts : float or array, shape (size,)
        cut : float
            Points below the largest weight by a factor of more than exp(cut) are left out.
        longest : array, shape (size,), optional
            The length of a block that is short beside what the weights are multiplied by; without it every number is
            listed.
        room : callable, optional
            `room(lows, highs)` has the first and the last of each that may matter, if all are between the two.
        dense : int
            Up to so many numbers are listed anyway, and up to 150 of each, for blocks have hardly fewer points.
        """
        if self._all is not None:
            return self._all.at(tilts).trimmed(cut)
        tilts = np.broadcast_to(np.asarray(tilts, dtype=np.float64), (self.size,))
        # At a tilt beyond that at which a distribution leaves 0 for its far end, what is near 0 is found in that way.
        least, most = _with_room(self.least, self.most, room)
        lows, highs, best, top = self._windows(tilts, cut, least, most)
        first, last = _with_room(lows, highs, room)
        # Where the weight is largest there is always something.
        lows, highs = np.minimum(first, best), np.maximum(last, best)
        if longest is None or top is None or not self.smooth or (highs - lows + 1).sum() <= max(dense, 150 * self.size):
            return self._listed(lows, highs, tilts).trimmed(cut)
        return self._in_blocks(lows, highs, top, tilts, cut, longest)

    def _in_blocks(
        self, lows: Integers, highs: Integers, top: Array, tilts: Array, cut: float, longest: Array
    ) -> Lists:
        """Blocks of 2^k numbers with a Gauss rule each, halved until the halves give the same sum, and numbers between.

        Those of `NODES` numbers are listed, and those that reach beyond the last number are halved, too.
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
        many = (highs - lows) // size + 1
        cell = np.repeat(np.arange(self.size), many)
        start = lows[cell] + (np.arange(len(cell)) - (np.cumsum(many) - many)[cell]) * size[cell]
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
            # Weights are rounded where their logarithms are large: no rule can do better than that.
            noise = 1e-14 + 1e-15 * np.abs(wide.logs).max(axis=1, where=np.isfinite(wide.logs), initial=1.0)
            right = np.abs(after - before) <= noise * np.maximum(total[wide.cell], before)
            right &= _between_nodes(wide, halves) <= 2e-10 + noise
            right &= ~beyond[divided] & (wide.length <= longest[wide.cell])
            accepted.append(wide.take(right))
            blocks = halves.take(np.repeat(~right, 2) & (halves.start <= highs[halves.cell]))
        found = _Blocks(*(np.concatenate([getattr(part, of.name) for part in accepted]) for of in fields(_Blocks)))
        found = found.take(np.lexsort((found.start, found.cell)))
        x, rule, logs = (values.ravel() for values in (found.x, found.rule, found.logs))
        places = found.cell, found.start, found.length
        return Lists(lows, highs, np.repeat(found.cell, NODES), x, logs, tilts, rule, places)

    def _windows(
        self, tilts: Array, cut: float, least: Integers, most: Integers
    ) -> tuple[Integers, Integers, Integers, Array | None]:
        """The first and the last number of each distribution that matters, or a few more, of those between two.

        And the numbers with the largest weights, and these.
        """
        cells = np.arange(self.size)

        def weight(x: Integers) -> Array:
            return self._weights(x.astype(np.float64), np.broadcast_to(cells, x.shape)) + tilts * x

        best, top = largest(weight, least, most)
        refuse_lost_digits(top)
        if np.isneginf(top).any():
            # Nothing is seen between the points: every number is looked at.
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
    """Blocks of numbers, and the nodes of each, shape (blocks, NODES), with their rules and weights.

    A rule is 0 beyond the last number. Weights are tilted, and over the largest of their distribution.
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

    def take(self, some: Integers | NDArray[np.bool_]) -> "_Blocks":
        return _Blocks(*(getattr(self, field.name)[some] for field in fields(self)))


def _between_nodes(wide: _Blocks, halves: _Blocks) -> Array:
    """How far polynomials through the nodes of blocks are from the weights at the nodes of their halves, at most."""
    off, exact = np.empty(len(wide.cell)), halves.weights.reshape(-1, 2 * NODES)
    for length in np.unique(wide.length).tolist():
        some = np.flatnonzero(wide.length == length)
        off[some] = np.abs(wide.weights[some] @ _at_halves(length).T - exact[some]).max(axis=1)
    return off


@cache
def _at_halves(length: int) -> Array:
    """What the values at the nodes of a block say of those at the nodes of its halves, shape (2 NODES, NODES)."""
    half = block_rule(length // 2)[0]
    return interpolation(block_rule(length)[0], np.concatenate([half, length // 2 + half]))


def _with_room(lows: Integers, highs: Integers, room: Room | None) -> tuple[Integers, Integers]:
    """The first and the last number that may matter; there is one at least."""
    if room is None:
        return lows, highs
    first, last = (np.clip(end, lows, highs).astype(np.int64) for end in room(lows, highs))
    return first, np.maximum(first, last)


def every_number(log_weight: LogWeight, lows: Integers, highs: Integers, tilts: Array, most: int = 2**21) -> Lists:
    """All numbers from the lowest to the highest of each distribution.

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
    """The logarithms of weights, of so many at a time, for that takes less memory."""
    logs, step = np.empty(x.shape), max(1, at_a_time * x.shape[-1] // max(x.size, 1))
    for first in range(0, x.shape[-1], step):
        some = (..., slice(first, first + step))
        logs[some] = log_weight(x[some], cell[some])
    return logs


@cache
def block_rule(length: int) -> tuple[Array, Array]:
    """The nodes and the weights of a block of at least `NODES` numbers."""
    return _block_rule(length, NODES)


# Points of each round of a search.
_PART = np.arange(17)[:, None] / 16


def largest(weight: Callable[[Integers], Array], least: Integers, most: Integers) -> tuple[Integers, Array]:
    """The numbers with the largest weights, and these weights.

    `weight` takes integers, shape (k, distributions), and rises to a mode.
    """
    low, high, at = least, most, np.arange(len(least))
    best, top = least, np.full(len(least), -np.inf)
    while True:
        x = np.rint(low + _PART * (high - low)).astype(np.int64)
        values = weight(x)
        place = values.argmax(axis=0)
        better = values[place, at] > top
        best, top = np.where(better, x[place, at], best), np.where(better, values[place, at], top)
        if (high - low <= len(_PART)).all():
            return best, top
        low, high = x[np.maximum(place - 1, 0), at], x[np.minimum(place + 1, len(_PART) - 1), at]


def refuse_too_many(numbers: float, *, most: float) -> None:
    """Raise the error about so many numbers.

    Raises
    ------
    TooManyNumbersError
    """
    if numbers > most:
        raise TooManyNumbersError(
            "The output says so little about so many records that the counts cannot be summed exactly. Give a "
            "prior with larger parameters, or merge the cells that are nearly empty."
        )


def refuse_lost_digits(largest_logs: Array, most: float = 5e12) -> None:
    """Raise the error about logarithms of weights whose rounding is larger than what numbers differ by.

    Raises
    ------
    ImpossibleError
    """
    if np.any(np.isfinite(largest_logs) & (np.abs(largest_logs) > most)):
        raise ImpossibleError("Some of its numbers are far too large or too small.")


def refuse_no_weights(logs: Array) -> None:
    """Raise the error about logarithms of weights that are no numbers, or infinite."""
    if np.isnan(logs).any() or np.isposinf(logs).any():
        raise ArgumentError(
            "The log-likelihood is NaN or +inf for some count that is possible. It must be finite or -inf "
            "for all counts from `least` to the total."
        )
