"""The largest hockey-stick divergence over all counts, for intensities above a floor: branch and bound.

The shapes of a cell lie on a lattice `start + r n`. A box of counts is bounded by one pair of laws (statement 4 on the
page of proofs "floored"): all shapes in `[low, high]` lose at most what the shape `low` loses above a lower floor, at
which its hazard is that of `high` at the true floor. Boxes are split until none can hold much more than the largest
divergence that was found, and what is returned is the largest bound of a box, never the divergence found.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.numerics.truncated_gamma import log_hazard
from pymc_dirdp.privacy.floored_loss import Cells, joining, leaving, moving

__all__ = [
    "LARGEST_STEP",
    "LEAST_DELTA",
    "Found",
    "Shapes",
    "largest_join",
    "largest_leave",
    "largest_move",
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
    at = unsafe
    for _ in range(_STEPS):
        value = log_hazard(low, np.exp(at))
        holds = value <= target
        safe, unsafe = np.where(holds, np.maximum(safe, at), safe), np.where(holds, unsafe, np.minimum(unsafe, at))
        if np.all(holds & (target - value <= _NEAR)):
            break
        slope = np.maximum(low - np.exp(at) + np.exp(value), 1e-3)
        step = at - (value - target + _SLACK) / slope
        at = np.where((step > safe) & (step < unsafe), step, (safe + unsafe) / 2)
    return np.asarray(np.where(safe > math.log(_NO_FLOOR), np.exp(safe), 0.0))


def largest_move(
    floor: float,
    r: float,
    pairs: tuple[tuple[Shapes, Shapes], ...],
    epsilon: float,
    *,
    tolerance: float = 0.02,
    near: tuple[float, ...] | None = None,
    others: int | None = None,
) -> Found:
    """The largest divergence where a record moves: for each pair the first cell gains it and the second loses it.

    Parameters
    ----------
    floor, r : float
        Positive, `r` up to `LARGEST_STEP`.
    pairs : tuple of (Shapes, Shapes)
        The cells between which a record may move.
    epsilon : float
        At least 0.
    tolerance : float
        By how much the bound may exceed the divergence that was found, relative. If it is infinite, there is no search
        for a bound, and the bound is 1: this is quick, and enough to refuse.
    near : tuple of float, optional
        Shapes of a gaining and a losing cell with a large divergence.
    others : int, optional
        The number of records in both cells together without the one that moves, if it is public. Without it each cell
        may hold any number.
    """

    def divergence(gaining: Cells, losing: Cells) -> Array:
        return moving(losing, gaining, epsilon)

    guess = near or (floor + math.sqrt(floor), floor + 4 * math.sqrt(floor))
    reach = 2 * math.sqrt(floor + 1) / (1 if near is None else 16)
    return _Search(floor, r, pairs, (0.0, r), divergence, guess, reach, others).run(tolerance)


def largest_join(
    floor: float, r: float, cells: tuple[Shapes, ...], epsilon: float, *, tolerance: float = 0.02
) -> Found:
    """The largest divergence where a record appears in one of the cells."""
    ways = tuple((cell,) for cell in cells)
    return _Search(floor, r, ways, (0.0,), lambda cell: joining(cell, epsilon), (floor,), math.sqrt(floor + 1)).run(
        tolerance
    )


def largest_leave(
    floor: float, r: float, cells: tuple[Shapes, ...], epsilon: float, *, tolerance: float = 0.02
) -> Found:
    """The largest divergence where a record disappears from one of the cells."""
    ways = tuple((cell,) for cell in cells)
    return _Search(floor, r, ways, (r,), lambda cell: leaving(cell, epsilon), (floor,), math.sqrt(floor + 1)).run(
        tolerance
    )


class _Search:
    """Branch and bound over one or two cells.

    A box has a row: for each axis the first and the last count, in units of r, and the way it belongs to. Each cell is
    an axis, unless the number of records in both is known: then there is one axis, the count of the first cell. A cell
    of real shapes has counts that are real numbers.
    """

    def __init__(
        self,
        floor: float,
        r: float,
        ways: tuple[tuple[Shapes, ...], ...],
        matched_at: tuple[float, ...],
        divergence: Callable[..., Array],
        guess: tuple[float, ...],
        reach: float,
        others: int | None = None,
    ) -> None:
        self.floor, self.r, self.divergence, self.others = floor, r, divergence, others
        # The climb starts at these shapes with steps of this size.
        self.guess, self.reach = guess, reach
        self.start = np.array([[cell.start for cell in way] for way in ways])
        self.real = np.array([[cell.real for cell in way] for way in ways])
        # Hazards are compared at the shapes under the second law: with the record, where it leaves the cell.
        self.matched_at = matched_at
        self.cells = len(matched_at)
        self.axes = self.cells if others is None else 1
        beyond = floor + 8 * math.sqrt(floor) + 12
        last = np.ceil(np.maximum(beyond - self.start, 0.0) / r)
        # Beyond 2**50 counts are no longer told apart.
        self.last = np.minimum(last, 2.0**50)
        self.attained, self.shapes = 0.0, tuple(self.start[0].tolist())

    def run(self, tolerance: float) -> Found:
        self._climb()
        if math.isinf(tolerance):
            return Found(1.0, self.attained, self.shapes)
        way, boxes = self._first()
        settled, seen = 0.0, 0
        while len(way):
            seen += len(way)
            bounds = self._bounds(way, boxes)
            allowed = max(self.attained * (1 + tolerance * self._looser * (1 + seen / _MANY_BOXES)), LEAST_DELTA)
            if seen > _MOST_BOXES:
                settled = max(settled, float(bounds.max()))
                break
            done = (bounds <= allowed) | self._points(boxes)
            settled = max(settled, float(bounds[done].max(initial=0.0)))
            way, boxes = self._split(way[~done], boxes[~done])
        largest = float(self.start.max()) + self.floor + self.r + (0.0 if self.others is None else _FAR_SHAPE)
        margin = 1 + _MARGIN + _MARGIN_PER_SHAPE * largest
        bound = min(max(settled, self.attained, LEAST_DELTA) * margin, 1.0)
        return Found(bound, self.attained, self.shapes)

    @property
    def _looser(self) -> float:
        """A factor for the tolerance of a small delta, whose logarithm changes the more with r."""
        return max(1.0, -math.log(max(self.attained, LEAST_DELTA)) / 14)

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
        return self.divergence(*(Cells.of(shape, floors, self.r) for shape in self._shapes(counts, way).T))

    def _see(self, way: Integers, counts: Array) -> int:
        """Evaluate single counts, remember the best, and say which it is, or -1 if an earlier one was better."""
        values = self._values(way, counts)
        best = int(np.argmax(values))
        if values[best] <= self.attained:
            return -1
        self.attained = float(values[best])
        self.shapes = tuple(self._shapes(counts[best : best + 1], way[best : best + 1])[0].tolist())
        return best

    def _climb(self) -> None:
        """Find large divergences: a few counts of every way, then the neighbours of the best with shrinking steps."""
        way, counts = self._starts()
        whole = ~self.real[way][:, : self.axes]
        counts = np.where(whole, np.round(counts), counts)
        best = self._see(way, counts)
        if best < 0:
            return
        chosen, at = way[best], counts[best]
        real = self.real[chosen][: self.axes]
        step = max(1.0, self.reach / self.r)
        grid = np.array(np.meshgrid(*[[-1.0, 0.0, 1.0]] * self.axes)).reshape(self.axes, -1).T
        while step >= 1 or (np.any(real) and step * self.r > 2e-2 * math.sqrt(self.floor)):
            around = np.maximum(at + np.where(real, step, max(1.0, round(step))) * grid, 0.0)
            around = around if self.others is None else np.minimum(around, self.others)
            best = self._see(np.full(len(around), chosen), around)
            if best < 0:
                step /= 3
            else:
                at = around[best]

    def _starts(self) -> tuple[Integers, Array]:
        """Counts of every way from which the best is climbed to."""
        every = np.arange(len(self.start))
        if self.others is None:
            guess = np.maximum(np.array(self.guess) - self.start, 0.0) / self.r
            return np.tile(every, 2), np.concatenate([np.zeros_like(guess), guess])
        # There may be a maximum next to either end.
        nearby = (self.guess[0] - self.start[:, 0]) / self.r
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
                bounds[part] = self.divergence(*(cells[place[part]] for place in places))
        points = np.flatnonzero(self._points(boxes))
        if len(points):
            best = points[np.argmax(bounds[points])]
            if bounds[best] > self.attained:
                self.attained = float(bounds[best])
                self.shapes = tuple(self._shapes(boxes[best : best + 1, :, 0], way[best : best + 1])[0].tolist())
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
