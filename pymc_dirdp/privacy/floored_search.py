"""The largest hockey-stick divergence over all counts, for intensities above a floor: branch and bound.

The shapes of a cell lie on a lattice `start + r n`. A box of counts is bounded by one pair of distributions (statement
4 on the page of proofs "floored"): all shapes in `[low, high]` lose at most what the shape `low` loses above a lower
floor, at which its hazard is that of `high` at the true floor. Boxes are split until none can hold much more than the
largest divergence that was found, and what is returned is the largest bound of a box, never the divergence found.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.numerics.parabolas import tops_of_parabolas
from pymc_dirdp.numerics.truncated_gamma import log_hazard
from pymc_dirdp.privacy.floored_loss import Cells, joining, leaving, moving

__all__ = [
    "LARGEST_STEP",
    "LEAST_DELTA",
    "Found",
    "Shapes",
    "largest_joins",
    "largest_leaves",
    "largest_moves",
    "looser",
    "lower_floors",
]

# A floor as low as this is none: `G ** 1` falls below it with a probability of 1e-60.
_NO_FLOOR = 1e-60
_LEAST_SHAPE = 0.75
# Counts with larger shapes are bounded together, where the number of records is public.
_FAR_SHAPE = 1e6
_STEPS = 12
# Log hazards have absolute errors below 1e-12 times their size; lower floors keep this distance from equality.
_SLACK, _NEAR = 1e-9, 1e-5
# Boxes that are bounded at once, and in all. If there are more, the bound is larger than it has to be, and it holds.
# With so many boxes the tolerance doubles, because next to the maximum on a fine lattice there may be very many.
_BATCH, _MOST_BOXES, _MANY_BOXES = 512, 40_000, 2500
_FIRST_CELLS = 8
# The top of a parabola through nine values is believed up to so many steps away.
_TRUSTED_STEPS = 2.0
# Error budget. Divergences of at least 1e-40 of pairs with r up to 20 have relative errors below 1e-12 for shapes up to
# 1e4 (against finer panels and 30 digits), and below 1e-16 times the shape beyond; smaller divergences lose digits. So
# nothing below 1e-40 is reported, larger steps are not searched, and the bound is raised by a hundred times the error.
LEAST_DELTA, LARGEST_STEP = 1e-40, 20.0
_MARGIN, _MARGIN_PER_SHAPE = 1e-10, 1e-14


@dataclass(frozen=True)
class Shapes:
    """Shapes that a cell may have before a record joins, or after one has left.

    Attributes
    ----------
    start : float
        The shape without records, positive.
    real : bool
        Whether every real number from `start` on counts. Otherwise it is the lattice `start + r n`, n a count.
    """

    start: float
    real: bool = False


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes
    ----------
    bound : float
        No counts have a larger divergence.
    attained : float
        The largest divergence that was seen.
    shapes : tuple of float
        The shapes where it was seen.
    """

    bound: float
    attained: float
    shapes: tuple[float, ...]

    def larger(self, other: "Found") -> "Found":
        """What both searches together found."""
        more = self if self.attained >= other.attained else other
        return Found(max(self.bound, other.bound), more.attained, more.shapes)


def lower_floors(low: Array, high: Array, floor: float) -> Array:
    """The floors at which `low` has a hazard not above that of `high` at `floor`; 0 where there is none but 0.

    `low <= high`, and `high` may be infinite.
    """
    floors = np.where(low < high, 0.0, floor)
    wanted = (low < high) & (high < np.inf)
    if np.any(wanted):
        floors[wanted] = _floors_of(low[wanted], high[wanted], floor)
    return floors


def _floors_of(low: Array, high: Array, floor: float) -> Array:
    target = log_hazard(high, floor) - _SLACK * (1 + 1e-3 * high)
    # The hazard rises with the floor. Newton's steps aim a little below equality, so that they end on either side.
    safe, unsafe = np.full(low.shape, math.log(_NO_FLOOR)), np.full(low.shape, math.log(floor))
    at, left = unsafe.copy(), np.arange(len(low))
    for _ in range(_STEPS):
        x = at[left]
        value = log_hazard(low[left], np.exp(x))
        holds = value <= target[left]
        safe[left] = np.where(holds, np.maximum(safe[left], x), safe[left])
        unsafe[left] = np.where(holds, unsafe[left], np.minimum(unsafe[left], x))
        slope = np.maximum(low[left] - np.exp(x) + np.exp(value), 1e-3)
        step = x - (value - target[left] + _SLACK) / slope
        at[left] = np.where((step > safe[left]) & (step < unsafe[left]), step, (safe[left] + unsafe[left]) / 2)
        # What has ended stays, so that no floor depends on which others are looked up with it.
        left = left[~(holds & (target[left] - value <= _NEAR))]
        if not len(left):
            break
    return np.asarray(np.where(safe > math.log(_NO_FLOOR), np.exp(safe), 0.0))


def looser(delta: ArrayLike) -> Array:
    """A factor for the tolerance of small deltas, whose logarithms change the more with r."""
    return np.maximum(1.0, -np.log(np.maximum(delta, LEAST_DELTA)) / 14)


def largest_moves(
    floor: float,
    r: float,
    pairs: tuple[tuple[Shapes, Shapes], ...],
    epsilons: Sequence[float],
    *,
    tolerance: float = 0.02,
    near: Sequence[tuple[float, ...]] | None = None,
    others: int | None = None,
) -> tuple[Found, ...]:
    """The largest divergence where a record moves: for each pair the first cell gains it and the second loses it.

    Parameters
    ----------
    floor, r : float
        Positive, `r` up to `LARGEST_STEP`.
    pairs : tuple of (Shapes, Shapes)
        The cells between which a record may move.
    epsilons : sequence of float
        At least 0. All are searched side by side, which takes much less time than one after the other, and what is
        found for one does not depend on the others.
    tolerance : float
        By how much the bound may exceed the divergence that was found, relative. If it is infinite, there is no search
        for a bound, and the bound is 1: this is quick, and enough to refuse.
    near : sequence of tuple of float, optional
        For each epsilon, shapes of a gaining and a losing cell with a large divergence.
    others : int, optional
        The number of records in both cells together without the one that moves, if it is public. Without it each cell
        may hold any number.
    """

    def divergence(gaining: Cells, losing: Cells, epsilon: Array) -> Array:
        return moving(losing, gaining, epsilon)

    guess = [(floor + math.sqrt(floor), floor + 4 * math.sqrt(floor))] if near is None else near
    reach = 2 * math.sqrt(floor + 1) / (1 if near is None else 16)
    return _Search(floor, r, pairs, (0.0, r), divergence, epsilons, (guess, reach), others).run(tolerance)


def largest_joins(
    floor: float, r: float, cells: tuple[Shapes, ...], epsilons: Sequence[float], *, tolerance: float = 0.02
) -> tuple[Found, ...]:
    """The largest divergence where a record appears in one of the cells."""
    ways = tuple((cell,) for cell in cells)
    start = [(floor,)], math.sqrt(floor + 1)
    return _Search(floor, r, ways, (0.0,), joining, epsilons, start).run(tolerance)


def largest_leaves(
    floor: float, r: float, cells: tuple[Shapes, ...], epsilons: Sequence[float], *, tolerance: float = 0.02
) -> tuple[Found, ...]:
    """The largest divergence where a record disappears from one of the cells."""
    ways = tuple((cell,) for cell in cells)
    start = [(floor,)], math.sqrt(floor + 1)
    return _Search(floor, r, ways, (r,), leaving, epsilons, start).run(tolerance)


class _Search:
    """Branch and bound over one or two cells, for several epsilons.

    A box has a row: for each axis the first and the last count, in units of r, and the way it belongs to, which is one
    of the cells that change and an epsilon. Each cell is an axis, unless the number of records in both is known: then
    there is one axis, the count of the first cell. A cell of real shapes has counts that are real numbers.
    """

    def __init__(
        self,
        floor: float,
        r: float,
        ways: tuple[tuple[Shapes, ...], ...],
        matched_at: tuple[float, ...],
        divergence: Callable[..., Array],
        epsilons: Sequence[float],
        begin: tuple[Sequence[tuple[float, ...]], float],
        others: int | None = None,
    ) -> None:
        self.floor, self.r, self.divergence, self.others = floor, r, divergence, others
        # The ways of the first epsilon come first, then those of the second.
        searches = len(epsilons)
        self.search = np.repeat(np.arange(searches), len(ways))
        self.epsilon = np.asarray(epsilons, dtype=np.float64)[self.search]
        # The climb starts at these shapes with steps of this size.
        guess, self.reach = begin
        self.guess = np.broadcast_to(guess, (searches, len(matched_at)))[self.search]
        self.start = np.array([[cell.start for cell in way] for way in ways] * searches)
        self.real = np.array([[cell.real for cell in way] for way in ways] * searches)
        # Hazards are compared at the shapes under the second law: with the record, where it leaves the cell.
        self.matched_at = matched_at
        self.cells = len(matched_at)
        self.axes = self.cells if others is None else 1
        beyond = floor + 8 * math.sqrt(floor) + 12
        last = np.ceil(np.maximum(beyond - self.start, 0.0) / r)
        # Beyond 2**50 counts are no longer told apart.
        self.last = np.minimum(last, 2.0**50)
        self.attained, self.shapes = np.zeros(searches), np.tile(self.start[0], (searches, 1))

    def run(self, tolerance: float) -> tuple[Found, ...]:
        """What was found for each epsilon."""
        self._climb()
        bounds = np.ones(len(self.attained)) if math.isinf(tolerance) else self._certified(tolerance)
        found = zip(bounds.tolist(), self.attained.tolist(), self.shapes.tolist(), strict=True)
        return tuple(Found(bound, attained, tuple(shapes)) for bound, attained, shapes in found)

    def _certified(self, tolerance: float) -> Array:
        """The largest bound of a box for each epsilon."""
        way, boxes = self._first()
        searches = len(self.attained)
        settled, seen = np.zeros(searches), np.zeros(searches, dtype=np.int64)
        while len(way):
            search = self.search[way]
            seen += np.bincount(search, minlength=searches)
            bounds = self._bounds(way, boxes)
            share = tolerance * looser(self.attained) * (1 + seen / _MANY_BOXES)
            allowed = np.maximum(self.attained * (1 + share), LEAST_DELTA)[search]
            done = (bounds <= allowed) | self._points(boxes) | (seen > _MOST_BOXES)[search]
            np.maximum.at(settled, search[done], bounds[done])
            way, boxes = self._split(way[~done], boxes[~done])
        largest = float(self.start.max()) + self.floor + self.r + (0.0 if self.others is None else _FAR_SHAPE)
        margin = 1 + _MARGIN + _MARGIN_PER_SHAPE * largest
        return np.minimum(np.maximum(np.maximum(settled, self.attained), LEAST_DELTA) * margin, 1.0)

    def _interval(self, boxes: Array, way: Integers, cell: int) -> tuple[Array, Array]:
        """The least and the largest count of a cell in each box."""
        if self.others is None:
            return boxes[:, cell, 0], boxes[:, cell, 1]
        low, high = boxes[:, 0, 0], boxes[:, 0, 1]
        if cell == 1:
            low, high = self.others - high, self.others - low
        # What holds for all counts from a large one on is nearly as tight, and can be computed for any number.
        far = np.ceil((_FAR_SHAPE - self.start[way, cell]) / self.r)
        return np.minimum(low, far), np.where(low > far, np.inf, high)

    def _shapes(self, counts: Array, way: Integers) -> Array:
        """The shapes of all cells at single counts, shape (n, axes); those of large counts are cut off."""
        if self.others is not None:
            counts = np.concatenate([counts, self.others - counts], axis=1)
            return np.asarray(np.minimum(self.start[way] + self.r * counts, np.maximum(self.start[way], _FAR_SHAPE)))
        return np.asarray(self.start[way] + self.r * counts)

    def _values(self, way: Integers, counts: Array) -> Array:
        """The divergences at single counts, shape (n, axes)."""
        floors = np.full(len(way), self.floor)
        cells = (Cells.of(shape, floors, self.r) for shape in self._shapes(counts, way).T)
        return self.divergence(*cells, self.epsilon[way])

    def _see(self, way: Integers, counts: Array, values: Array) -> Integers:
        """Remember the best values of single counts, and say where those are that no earlier one was as good as."""
        search = self.search[way]
        order = np.lexsort((-values, search))
        best = order[np.unique(search[order], return_index=True)[1]]
        better = best[values[best] > self.attained[search[best]]]
        self.attained[search[better]] = values[better]
        self.shapes[search[better]] = self._shapes(counts[better], way[better])
        return better

    def _climb(self) -> None:
        """Find large divergences: a few counts of every way, then the neighbours of the best with shrinking steps."""
        way, counts = self._starts()
        whole = ~self.real[way][:, : self.axes]
        counts = np.where(whole, np.round(counts), counts)
        best = self._see(way, counts, self._values(way, counts))
        # The searches that still climb: each is at some counts of a way.
        way, at = way[best], counts[best]
        real, limit = self.real[way][:, : self.axes], np.inf if self.others is None else self.others
        step = np.full(len(way), max(1.0, self.reach / self.r))
        grid = np.array(np.meshgrid(*[[-1.0, 0.0, 1.0]] * self.axes)).reshape(self.axes, -1).T
        while True:
            on = (step >= 1) | (np.any(real, axis=1) & (step * self.r > 2e-2 * math.sqrt(self.floor)))
            way, at, real, step = way[on], at[on], real[on], step[on]
            if not len(way):
                return
            size = np.where(real, step[:, None], np.maximum(np.round(step), 1.0)[:, None])
            around = np.clip(at[:, None] + size[:, None] * grid, 0.0, limit).reshape(-1, self.axes)
            ways = np.repeat(way, len(grid))
            values = self._values(ways, around)
            best = self._see(ways, around, values)
            climbed = best // len(grid)
            stays = ~np.isin(np.arange(len(way)), climbed)
            # The top of a parabola through these values is mostly a better place than the best of them.
            tops = tops_of_parabolas(np.log(np.maximum(values, 1e-300)).reshape(len(way), -1), grid)
            inside = np.all(np.abs(tops) <= _TRUSTED_STEPS, axis=1) & np.any(real | (step[:, None] > 1), axis=1)
            top = at + size * np.where(inside[:, None], tops, 0.0)
            at[climbed] = around[best]
            at[inside] = np.clip(np.where(real, top, np.round(top)), 0.0, limit)[inside]
            step[stays | (inside & np.all(np.abs(tops) <= 1, axis=1))] /= 4

    def _starts(self) -> tuple[Integers, Array]:
        """Counts of every way from which the best is climbed to."""
        every = np.arange(len(self.start))
        if self.others is None:
            guess = np.maximum(self.guess - self.start, 0.0) / self.r
            return np.tile(every, 2), np.concatenate([np.zeros_like(guess), guess])
        # There may be a maximum next to either end.
        nearby = (self.guess[:, 0] - self.start[:, 0]) / self.r
        ends = [np.append(self._sides(way, 0).ravel(), nearby[way]) for way in range(len(every))]
        sides = [np.clip(end, 0.0, self.others) for end in ends]
        return np.repeat(every, [len(side) for side in sides]), np.concatenate(sides)[:, None]

    def _first(self) -> tuple[Integers, Array]:
        ways, boxes = [], []
        for way in range(len(self.start)):
            sides = [self._sides(way, axis) for axis in range(self.axes)]
            index = np.array(np.meshgrid(*[np.arange(len(side)) for side in sides])).reshape(self.axes, -1).T
            boxes.append(np.stack([side[index[:, axis]] for axis, side in enumerate(sides)], axis=1))
            ways.append(np.full(len(index), way))
        return np.concatenate(ways), np.concatenate(boxes)

    def _sides(self, way: int, axis: int) -> Array:
        """The first intervals of counts, shape (n, 2); the last one is a tail without an end."""
        last, gap = self.last[way, axis], 0.0 if self.real[way, axis] else 1.0
        edges, end = np.linspace(0.0, last, _FIRST_CELLS + 1), np.inf
        if self.others is not None:
            of_other = self.others - np.linspace(0.0, self.last[way, 1], _FIRST_CELLS + 1)
            edges, end = np.clip(np.concatenate([edges, of_other]), 0.0, self.others), float(self.others)
        edges = np.unique(edges if self.real[way, axis] else np.floor(edges))
        ends = np.append(edges[1:] - gap, end)
        return np.stack([edges, ends], axis=1)

    def _points(self, boxes: Array) -> NDArray[np.bool_]:
        """Which boxes hold one pair of counts only."""
        return np.asarray(np.all(boxes[..., 0] == boxes[..., 1], axis=1))

    def _bounds(self, way: Integers, boxes: Array) -> Array:
        """An upper bound for every box; 1 where a lower floor is out of reach."""
        # All cells are looked up together, because a few of them take as long as one.
        rows = [
            np.stack([self.start[way, cell], *self._interval(boxes, way, cell), np.full(len(way), matched_at)], axis=1)
            for cell, matched_at in enumerate(self.matched_at)
        ]
        distinct, inverse = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
        cells, usable = self._dominating(distinct)
        places = inverse.reshape(self.cells, len(way))
        bounds = np.ones(len(way))
        index = np.flatnonzero(np.all(usable[places], axis=0))
        for part in np.array_split(index, max(1, math.ceil(len(index) / _BATCH))):
            if len(part):
                bounds[part] = self.divergence(*(cells[place[part]] for place in places), self.epsilon[way[part]])
        points = self._points(boxes)
        if np.any(points):
            self._see(way[points], boxes[points, :, 0], bounds[points])
        return bounds

    def _dominating(self, rows: Array) -> tuple[Cells, NDArray[np.bool_]]:
        """The cells that bound intervals of counts, and which of them can be computed.

        A row has the shape without records, the first and the last count, and where the hazards are compared.
        """
        start, first, last, matched_at = rows.T
        low, high = start + self.r * first, start + self.r * last
        floors = lower_floors(low + matched_at, high + matched_at, self.floor)
        usable = (floors > 0) | (low >= _LEAST_SHAPE)
        floors = np.where(floors > 0, floors, _NO_FLOOR)
        return Cells.of(low, floors, self.r), np.asarray(usable)

    def _split(self, way: Integers, boxes: Array) -> tuple[Integers, Array]:
        """Halve each box across its wider side. A tail is split where there is nothing else to split."""
        size = boxes[..., 1] - boxes[..., 0]
        size = np.where(np.isinf(size), 1e-9, size)
        axis = np.argmax(size, axis=1)
        rows = np.arange(len(way))
        low, high = boxes[rows, axis, 0], boxes[rows, axis, 1]
        real = self.real[way, axis]
        half = np.where(np.isinf(high), low + 8, (high - low) / 2)
        # A half is cut to a whole number before it is added: large sums are rounded, perhaps up to `high`.
        middle = low + np.where(real, half, np.floor(half))
        first, second = boxes.copy(), boxes.copy()
        first[rows, axis, 1] = middle
        second[rows, axis, 0] = np.where(real, middle, middle + 1)
        return np.concatenate([way, way]), np.concatenate([first, second])
