"""Privacy curves of posterior draws whose intensities stay above a public floor.

Each cell of a table draws `G ~ TG(alpha + r n; floor, ceiling)`, and the intensities, or any function of them such as
the shares, are released. What a record in one cell changes depends on the cell's counts, and the worst counts are
nowhere near 0: every curve here is a supremum over all counts. The proofs are in the documentation under "floored".

Write `Z(a)` for the mass of `TG(a)` and V for the second derivative of `log Z`, the variance of `log G`. The Rényi
divergences of order L of a record that joins a cell, or leaves it, are

    joins(a) = [log Z(a + L r) - L log Z(a + r) + (L - 1) log Z(a)] / (L - 1)
             = r**2 times the integral of K(s) V(a + r s) over s from 0 to L,

with K the hat of Theory, section 3, and the same with `V(a + r - r s)`. V first rises and then falls, and so do both in
`a`. So each supremum over counts stands next to the real maximiser, and `rho` is `r**2` times the largest V. Deltas
follow from the divergences.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import final, override

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import within
from pymc_dirdp.numerics.gamma import log_mass_change, moments_log, variance_log
from pymc_dirdp.numerics.quadrature import nodes
from pymc_dirdp.numerics.roots import sign_changes
from pymc_dirdp.privacy.bounded_loss import RandomisedResponse
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import NoLoss, PrivacyCurves, log_deltas_at
from pymc_dirdp.privacy.people import Contribution, adjacency_named

__all__ = [
    "ALPHAS",
    "FLOORS",
    "STEPS",
    "FlooredCells",
    "floored_curves",
    "largest_divergences",
    "largest_slope",
    "largest_sum_of_variances",
    "largest_variance",
    "renyi_of_record",
]

# Within these bounds, of alpha, r, and the floor, the curves were tried and take little time.
ALPHAS, STEPS, FLOORS = (1e-6, 1e12), (1e-9, 100.0), (1e-6, 1e8)
# Up to so many distinct prior parameters every lattice of shapes is searched. With more, all real shapes from the two
# smallest on are, which costs at most some thousandths of r.
_MOST_LATTICES = 3
# The orders at which divergences are turned into deltas. The best of all orders gains 0.3 % of epsilon at most.
_ORDERS = 1 + np.exp(np.linspace(-7.0, 13.0, 101))
# The rounding of a few operations.
_UP = 1 + 1e-12
# A closed form is used while its rounding error is below this share of it.
_TRUSTED = 1e-10
# Divergences have relative errors below this number, with what a maximiser that is a little off leaves out.
_SLACK = 2e-9
# Where the whole integral sees so little of V's shape, V's largest value serves.
_FLAT = 1e-9
# A larger sum of shapes is not looked at, where the largest one is for a smaller one.
_FAR = 1e6
# The least order at which the derivative of a divergence by the shape is not lost to rounding.
_LEAST_ORDER = 1 + 1e-4
# The logarithm of a maximiser is found this closely. A shape that changes V by half is at least `sqrt(floor)` away.
_WIDTH = 3e-7
# Panels of all integrals that are summed together, with 14 nodes each.
_PANELS = 1024
# An interval of orders is cut in so many parts at once at most.
_MOST_PARTS = 32


@final
@dataclass(frozen=True)
class FlooredCells(PrivacyCurves):
    """What one person can change in a block of cells whose intensities stay above a floor.

    With one record of a person Rényi divergences are suprema over all counts; with more they are upper bounds. Deltas
    are what the divergences imply.

    Parameters
    ----------
    cells : tuple of float
        The prior parameters of the cells in rising order, positive. Those that occur more than twice are here twice.
    r : float
        What one record adds to a shape, positive.
    floor, ceiling : float
        All intensities lie between them; `0 < floor < ceiling <= inf`.
    records : int
        The most records of a person in the block.
    adjacency : {"replace-one", "add-remove"}
    others : int, optional
        The number of records in two cells without the one that moves, if it is public. Then one cell decides the other,
        and the curves are smaller. `rho` and Rényi divergences are upper bounds, which are close for many records.

    Examples
    --------
    >>> curves = FlooredCells((0.5, 0.5), 0.65, 8.0)
    >>> curves.rho(math.inf), curves.epsilon(1e-6)
    (0.0257..., 0.97...)
    >>> FlooredCells((0.5, 0.5), 0.65, 8.0, others=99).epsilon(1e-6)
    0.8...
    """

    cells: tuple[float, ...]
    r: float
    floor: float
    ceiling: float = math.inf
    records: int = 1
    adjacency: str = "replace-one"
    others: int | None = None

    @property
    def _moves(self) -> bool:
        """Whether a record moves from one cell to another; otherwise it appears or disappears."""
        return adjacency_named(self.adjacency).records_are_public

    @property
    def _one_record(self) -> bool:
        return self.records == 1

    @property
    @override
    def from_divergences(self) -> bool:
        return True

    @cached_property
    def _real(self) -> bool:
        """Whether every real shape counts, from the smallest two on; otherwise the lattice of each prior parameter."""
        return len(set(self.cells)) > _MOST_LATTICES

    @cached_property
    def _pairs(self) -> list[tuple[float, float]]:
        """The cells that gain and lose a record, by their shapes without one: all ordered pairs of different cells.

        Of more cells than are searched one has a shape not below the smallest, and the other one not below the second.
        """
        cells = self.cells[:2] if self._real else self.cells
        times = Counter(cells)
        return [(a, b) for a in times for b in times if a != b or times[a] > 1]

    @cached_property
    def _rho_everywhere(self) -> float:
        """A bound on the divergence over its order, at every order (statement 3 on the page of proofs)."""
        steps = self.records * self.r
        most = largest_variance(self.floor, self.ceiling)[1]
        variance = 2 * most if self._moves else most
        if self.others is not None:
            shapes = sum(self.cells) + self.r * (self.others + 1)
            variance = min(variance, largest_sum_of_variances(shapes, self.floor, self.ceiling))
        return steps * steps * variance / 2 * _UP

    @property
    @override
    def pure_epsilon(self) -> float:
        """With a ceiling the loss is bounded, whatever the number of records is."""
        if math.isinf(self.ceiling):
            return math.inf
        width = self.r * math.log(self.ceiling / self.floor)
        if self._moves:
            least = float(log_mass_change(self.cells[0], self.r, self.floor, self.ceiling))
            # All other records lie in the other cell, without limit.
            width += self.r * math.log(self.ceiling) - least
        size = self.r * (1 + abs(math.log(self.floor)) + abs(math.log(self.ceiling)))
        return self.records * (width + 1e-13 * size)

    def _divergences(self, orders: Array) -> Array:
        """Rényi divergences at an array of orders."""
        if not self._one_record:
            return np.asarray(orders * self._rho_everywhere)
        distribution = (self.r, self.floor, self.ceiling)
        starts = dict.fromkeys(self.cells[:2] if self._real else self.cells)
        # Rows of a table have the same divergences at the orders that deltas come from.
        find = _at_orders if orders is _ORDERS else partial(largest_divergences, orders)
        joins, leaves = (
            {a: find(a, *distribution, joins=way, real=self._real) for a in starts} for way in (True, False)
        )
        if self._moves:
            largest = np.max([joins[a] + leaves[b] for a, b in self._pairs], axis=0)
            # The bound takes account of a public number of records.
            return np.asarray(np.minimum(largest, orders * self._rho_everywhere))
        return np.asarray(np.max([*joins.values(), *leaves.values()], axis=0))

    @override
    def _renyi(self, order: float) -> float:
        if order not in self._known:
            self._known[order] = min(float(self._divergences(np.array([order]))[0]), self.pure_epsilon)
        return self._known[order]

    @cached_property
    def _known(self) -> dict[float, float]:
        """Divergences by order: a composition asks for both orders of two neighbours, which are equal here."""
        return {}

    @override
    def _rho(self, omega: float) -> float:
        if math.isinf(omega) or not self._one_record:
            return self._rho_everywhere
        return min(largest_slope(self._divergences, omega), self._rho_everywhere)

    @cached_property
    def _bounds(self) -> Array:
        """Rényi divergences at the orders that deltas come from."""
        return np.minimum(self._divergences(_ORDERS), self.pure_epsilon)

    @override
    def _delta(self, epsilon: float) -> float:
        return float(self.hockey_sticks(epsilon, 2)[0][1] if epsilon else self.hockey_sticks(1.0, 1)[0][0])

    @override
    def _epsilon(self, delta: float) -> float:
        return min(super()._epsilon(delta), self.pure_epsilon)

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        larger = np.exp([float(log_deltas_at(_ORDERS, self._bounds, i * step).min()) for i in range(points)])
        if math.isfinite(self.pure_epsilon):
            larger = np.minimum(larger, RandomisedResponse(self.pure_epsilon).hockey_sticks(step, points)[0])
        return larger, larger


def floored_curves(
    alpha: Array,
    r: float,
    floor: float,
    ceiling: float = math.inf,
    adjacency: str = "replace-one",
    contribution: Contribution | int = 1,
    n_records: int | Sequence[int] | None = None,
) -> PrivacyCurves:
    """The privacy curves of what one person can change in a table of intensities above a floor.

    Parameters
    ----------
    alpha : array, shape (..., d)
        Prior parameters, between 1e-6 and 1e12.
    r : float
        What one record adds to a shape, between 1e-9 and 100.
    floor, ceiling : float
        `floor < ceiling <= inf`, with a floor between 1e-6 and 1e8.
    adjacency : {"replace-one", "add-remove"}
        The neighbouring relation.
    contribution : Contribution or int
        What one person can add to the table.
    n_records : int or sequence of int, optional
        The public number of records of a row of two cells under replace-one, or of each such row in order, where a
        person has at most one record in a block. It is that of every data set that could occur, so a record moves
        within its row. With several rows of which only the total is public nothing is gained: leave it out.

    Returns
    -------
    curves : PrivacyCurves
        :class:`FlooredCells` for one block of cells, and a composition of them where a person has several blocks. Under
        replace-one a block of a single cell loses nothing.

    Raises
    ------
    ArgumentError
        If a number is outside of these bounds.

    Examples
    --------
    >>> floored_curves(np.full((2, 3), 0.5), 0.65, 8.0).rho(math.inf)
    0.0257...
    """
    within(*ALPHAS, alpha=alpha)
    within(*STEPS, r=r)
    within(*FLOORS, floor=floor)
    contribution = Contribution.of(contribution)
    axes = contribution.fitted(alpha.shape).axes
    own, each = ([i for i, axis in enumerate(axes) if axis == kind] for kind in ("own", "each"))
    rest = [i for i in range(alpha.ndim) if i not in {*own, *each}]
    shape = tuple(math.prod(alpha.shape[i] for i in some) for some in (own, each, rest))
    # The last axis of each block stays the last one, so a row of two cells stays a row.
    table = alpha.transpose([*own, *each, *rest]).reshape(shape)
    if n_records is None:
        distribution = (r, floor, ceiling, adjacency, contribution.records)
        return _largest(_of_person(blocks, *distribution) for blocks in table)
    totals = np.reshape(np.array(n_records, dtype=object), alpha.shape[:-1]).transpose([*own, *each, *rest[:-1]])
    people = zip(table, totals.reshape(shape[0], shape[1], -1).tolist(), strict=True)
    return _largest(_of_public_rows(blocks, numbers, r, floor, ceiling) for blocks, numbers in people)


def _largest(curves: Iterable[PrivacyCurves]) -> PrivacyCurves:
    """The curves of different people, of which the largest counts."""
    distinct = tuple(dict.fromkeys(curves))
    return distinct[0] if len(distinct) == 1 else Parallel(distinct)


def _of_public_rows(blocks: Array, numbers: list[list[int]], r: float, floor: float, ceiling: float) -> PrivacyCurves:
    """The curves of a person with a record in one row of each block, shape (blocks, 2 rows), by the rows' numbers."""
    times: Counter[PrivacyCurves] = Counter()
    for block, of_rows in zip(blocks.reshape(len(blocks), -1, 2).tolist(), numbers, strict=True):
        # Nothing is known of a row without records.
        rows = (
            FlooredCells((min(row), max(row)), r, floor, ceiling, others=n - 1) if n else NoLoss()
            for row, n in zip(block, of_rows, strict=True)
        )
        times[_largest(rows)] += 1
    (first, count), *more = times.items()
    return first if count == 1 and not more else Composition(tuple(times.items()))


def _of_person(blocks: Array, r: float, floor: float, ceiling: float, adjacency: str, records: int) -> PrivacyCurves:
    """The curves of a person with records in each of some blocks, shape (blocks, cells)."""
    if blocks.shape[1] == 1 and adjacency_named(adjacency).records_are_public:
        return NoLoss()
    times: Counter[tuple[float, ...]] = Counter()
    for block in blocks:
        distinct, count = np.unique(block, return_counts=True)
        times[tuple(np.repeat(distinct, np.minimum(count, 2)).tolist())] += 1
    parts = tuple(
        (FlooredCells(cells, r, floor, ceiling, records, adjacency), count) for cells, count in sorted(times.items())
    )
    return parts[0][0] if len(parts) == 1 and parts[0][1] == 1 else Composition(parts)


@lru_cache(maxsize=64)
def largest_variance(floor: float, ceiling: float = math.inf) -> tuple[float, float]:
    """The shape at which the variance of `log G` is largest, and that variance, not below the truth.

    The variance rises and then falls in the shape, so three points of a grid always enclose the maximum.
    """
    low, high = -10.0 * (1 + floor), 10.0 * (1 + floor)
    if math.isfinite(ceiling):
        high = max(high, 10.0 * (1 + ceiling))
    while high - low > 1e-7 * (1 + abs(low) + abs(high)):
        grid = np.linspace(low, high, 33)
        best = int(np.argmax(variance_log(grid, floor, ceiling)))
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 32)])
    shape = (low + high) / 2
    return shape, float(variance_log(shape, floor, ceiling)) * (1 + 1e-12)


@lru_cache(maxsize=1024)
def largest_sum_of_variances(shapes: float, floor: float, ceiling: float = math.inf) -> float:
    """The largest sum of the variances of `log G` of two real shapes with a given sum, not below the truth.

    Each variance rises and then falls, so on an interval it is at most the larger of its ends, or its peak if that lies
    inside. Intervals are halved until the bound is within a share of 1e-6 of what is attained.
    """
    peak, most = largest_variance(floor, ceiling)
    # Beyond twice the peak the sum falls in `shapes`: one of both is above the peak, and moves away from it.
    shapes = min(shapes, max(_FAR, 2 * peak))

    def variances(low: Array) -> Array:
        return variance_log(np.stack([low, shapes - low]), floor, ceiling)

    # The sum is symmetric. Before the first edge one shape lies below the peak and the other above, and both move away.
    middle, reach = shapes / 2, abs(shapes / 2 - peak) + 20 * (1 + floor)
    edges = middle - np.concatenate([[0.0], np.geomspace(1e-3 * reach, reach, 48)])[::-1]
    at = variances(edges)
    low, high, at_low, at_high = edges[:-1], edges[1:], at[:, :-1], at[:, 1:]
    settled, attained = float(at[:, 0].sum()), 0.0
    while len(low):
        attained = max(attained, float(at_low.sum(axis=0).max()))
        peaks = np.stack([(low <= peak) & (peak <= high), (shapes - high <= peak) & (peak <= shapes - low)])
        bounds = np.where(peaks, most, np.maximum(at_low, at_high) * (1 + 1e-12)).sum(axis=0)
        done = bounds <= attained * (1 + 1e-6)
        settled = max(settled, float(bounds[done].max(initial=0.0)))
        low, high, at_low, at_high = low[~done], high[~done], at_low[:, ~done], at_high[:, ~done]
        middles = (low + high) / 2
        at = variances(middles)
        low, high = np.concatenate([low, middles]), np.concatenate([middles, high])
        at_low, at_high = np.concatenate([at_low, at], axis=1), np.concatenate([at, at_high], axis=1)
    return max(settled, attained)


def renyi_of_record(order: float, a: float, r: float, floor: float, ceiling: float = math.inf, *, joins: bool) -> float:
    """Divergence of `TG(a + r)` from `TG(a)` where a record joins, and of `TG(a)` from `TG(a + r)` where it leaves."""
    closed, error = _closed(np.array([order]), np.array([a]), r, floor, ceiling, joins=joins)
    if error[0] <= _TRUSTED * closed[0]:
        return float(closed[0])
    return float(_kernel(np.array([order]), np.array([a]), r, floor, ceiling, joins=joins)[0])


def _closed(order: Array, a: Array, r: float, floor: float, ceiling: float, *, joins: bool) -> tuple[Array, Array]:
    """The difference of masses, and how much of it may be rounding; infinitely much at order 1."""
    above = order - 1
    far = np.maximum(above * r, 1e-300)
    from_a = log_mass_change(a, r, floor, ceiling)
    if joins:
        rest, end = log_mass_change(a + r, far, floor, ceiling), a + order * r
        value = rest - above * from_a
    else:
        rest, end = log_mass_change(a - far, far, floor, ceiling), a - far
        value = above * from_a - rest
    scale = 2 + abs(math.log(floor)) + np.log1p(np.abs(a)) + np.log1p(np.abs(end))
    rounding = 1e-15 * (far * scale + 4) + 4e-16 * above * (np.abs(from_a) + r * scale)
    some = np.where(above > 0, above, 1.0)
    return value / some, np.where(above > 0, rounding / some, np.inf)


def _kernel(orders: Array, a: Array, r: float, floor: float, ceiling: float, *, joins: bool) -> Array:
    """The integral against the hat, in which every term is positive, for orders and shapes of shape (n,)."""
    above = orders - 1

    def variance(a: Array, change: Array) -> Array:
        return variance_log(a[:, None] + (change if joins else r - change), floor, ceiling)

    def falling(some: Integers) -> Array:
        tops, starts = orders[some, None] * r, a[some]
        return _leg(above[some], r, lambda distance: variance(starts, tops - distance), floor, ceiling)

    # Many orders have the same shapes, and the first leg of the hat does not depend on them.
    shapes, each = np.unique(a, return_inverse=True)
    total = _leg(np.ones(len(shapes)), r, lambda distance: variance(shapes, distance), floor, ceiling)[each]
    # Orders far apart have legs of different lengths, which need different numbers of panels.
    panels = np.ceil(np.log2(np.maximum(above * r / _longest(floor, ceiling), 1.0)))
    for some in (np.flatnonzero(panels == one) for one in np.unique(panels)):
        # At order 1 the second leg has no width.
        total[some] += falling(some) / np.maximum(above[some], 1e-300)
    return total


def _leg(times: Array, r: float, variance: Callable[[Array], Array], floor: float, ceiling: float) -> Array:
    """Integrals over legs of the lengths `times * r`, of the distance to a leg's foot and the variance there."""
    panels = max(1, math.ceil(float(times.max()) * r / _longest(floor, ceiling)))
    edges, found = np.linspace(0.0, r, panels + 1), np.zeros(len(times))
    # The variance at each node is an integral itself, so not all nodes of a long leg fit into the memory.
    together = max(1, _PANELS // len(times))
    for first in range(0, panels, together):
        distance, weights = (times[:, None] * one for one in nodes(edges[first : first + together + 1]))
        found += (distance * weights * variance(distance)).sum(axis=-1)
    return found


def _longest(floor: float, ceiling: float) -> float:
    """How long panels may be: as long as the distance of Z's nearest zero.

    The characteristic function of `log G` at y is at least `1 - y**2 V / 2`, so there is none within `sqrt(2 / V)` of
    the real line.
    """
    return math.sqrt(2 / largest_variance(floor, ceiling)[1])


def largest_divergences(
    orders: Array, start: float, r: float, floor: float, ceiling: float = math.inf, *, joins: bool, real: bool = False
) -> Array:
    """The largest divergences over all counts, where a record joins the cell or leaves it.

    Parameters
    ----------
    orders : array, shape (n,)
        At least 1.
    start : float
        The shape of the cell without records, positive.
    r, floor, ceiling : float
        Positive.
    joins : bool
        Whether the record joins the cell; otherwise it leaves it.
    real : bool
        Whether every real shape from `start` on counts. Otherwise it is the lattice `start + r n`, n a count.

    Returns
    -------
    divergences : array, shape (n,)
        In nats, not below the truth.
    """
    peak, most = largest_variance(floor, ceiling)
    # On a lattice the points next to the maximiser are needed, and for real shapes the maximiser itself.
    closely = 0.0 if real else r / 4
    shapes = _maximisers(np.maximum(orders, _LEAST_ORDER), start, r, floor, ceiling, closely, joins=joins)
    if not real:
        counts = np.floor((shapes - start) / r - 1 / 8)[:, None] + np.arange(3.0)
        candidates = start + r * np.maximum(counts, 0.0)
    else:
        candidates = shapes[:, None]
    repeated = np.repeat(orders, candidates.shape[1])
    found = _closed(repeated, candidates.ravel(), r, floor, ceiling, joins=joins)
    values, errors = (one.reshape(candidates.shape) for one in found)
    lost = ~np.all(errors <= _TRUSTED * values, axis=1)
    flat = orders * r <= math.sqrt(_FLAT / most)
    if np.any(some := lost & flat):
        reach = (orders[some] * r)[:, None]
        nearest = np.clip(peak, candidates[some] - reach, candidates[some] + reach)
        values[some] = reach * (r / 2 * (1 + 1e-9)) * variance_log(nearest, floor, ceiling)
    if np.any(some := lost & ~flat):
        each = np.repeat(orders[some], candidates.shape[1]), candidates[some].ravel()
        values[some] = _kernel(*each, r, floor, ceiling, joins=joins).reshape(-1, candidates.shape[1])
    largest = values.max(axis=1) * (1 + _SLACK)
    # No divergence is larger than that of the largest variance (statement 3 on the page of proofs).
    return np.asarray(np.minimum(largest, orders * (r * r) / 2 * most))


@lru_cache(maxsize=64)
def _at_orders(start: float, r: float, floor: float, ceiling: float, *, joins: bool, real: bool) -> Array:
    return largest_divergences(_ORDERS, start, r, floor, ceiling, joins=joins, real=real)


def _maximisers(
    orders: Array, start: float, r: float, floor: float, ceiling: float, closely: float, *, joins: bool
) -> Array:
    """The real shapes from `start` on with the largest divergences, where their derivative changes its sign.

    They are in the middle of a range that is no wider than `closely`, or than a share of `_WIDTH`.
    """
    far = (orders - 1) * r
    peak = largest_variance(floor, ceiling)[0]

    def rise(log_a: Array, of: Integers) -> tuple[Array, Array]:
        a, above = np.exp(log_a), orders[of] - 1
        last = a + orders[of] * r if joins else a - far[of]
        # The derivatives by the shape, of the divergence and of that derivative, from means and from variances.
        first, second = (
            one[2] - one[1] - above * (one[1] - one[0]) if joins else one[2] - one[0] + above * (one[1] - one[0])
            for one in moments_log(np.stack([a, a + r, last]), floor, ceiling)
        )
        return first, a * second

    if joins:
        low, high = peak - orders * r, np.full(orders.shape, peak)
        guess = peak - (1 + orders) * r / 3
    else:
        low, high = np.full(orders.shape, peak - r), peak + far
        guess = peak + (orders - 2) * r / 3
    # The search is on a logarithmic scale, because the largest orders have their maximisers far away.
    low, high, guess = (np.log(np.maximum(one, start)) for one in (low, high, guess))
    width = np.maximum(_WIDTH, closely * np.exp(-high))
    low, high = sign_changes(rise, low, high, guess, width)
    return np.asarray(np.maximum(np.exp((low + high) / 2), start))


def largest_slope(divergences: Callable[[Array], Array], omega: float, *, tolerance: float = 1e-4) -> float:
    """An upper bound on the largest divergence over its order, for orders from 1 to `omega`, within a tolerance.

    The largest value may lie anywhere between the ends. With D the divergence at the order `1 + x`, `x D` is convex and
    0 at `x = 0`. So between two orders it is below its chord `p + q x`, and the bound is the largest value of
    `(p + q x) / (x (1 + x))`. Orders are added where this is above what was attained.

    Parameters
    ----------
    divergences : callable
        Upper bounds on the divergences at an array of orders.
    omega : float
        Finite, above 1.
    tolerance : float
        Relative.
    """
    x = np.concatenate([[0.0], (omega - 1) * np.geomspace(min(1e-2, 1 / omega), 1.0, 16)])
    convex = np.concatenate([[0.0], x[1:] * divergences(1 + x[1:])])
    for _ in range(40):
        slopes = convex[1:] / (x[1:] * (1 + x[1:]))
        allowed = float(slopes.max()) * (1 + tolerance)
        wide = np.flatnonzero((_below_chords(x, convex) > allowed) & (np.diff(x) > 1e-9 * x[1:]))
        if not len(wide):
            break
        # What is smaller at both ends of an interval may rise more.
        ends = np.maximum(slopes, np.concatenate([[0.0], slopes[:-1]]))
        new = np.concatenate([_between(x[i], x[i + 1], allowed / ends[i] - 1) for i in wide])
        # Rounding may put a point on its neighbour, and a chord needs two points.
        new = new[~np.isin(new, x)]
        x, convex = np.concatenate([x, new]), np.concatenate([convex, new * divergences(1 + new)])
        order = np.argsort(x)
        x, convex = x[order], convex[order]
    return float(_below_chords(x, convex).max()) * (1 + 1e-12)


def _between(low: float, high: float, tolerance: float) -> Array:
    """Points of an interval, so close that a divergence which is a line through 0 is as near to its chord as wanted.

    With `x = sinh(u)**2` the chord of such a line is above it by a share of at most the square of the step in u.
    """
    ends = np.arcsinh(np.sqrt([low, high]))
    parts = min(max(math.ceil((ends[1] - ends[0]) / (0.9 * math.sqrt(tolerance))), 2), _MOST_PARTS)
    return np.asarray(np.unique(np.sinh(np.linspace(ends[0], ends[1], parts + 1)[1:-1]) ** 2))


def _below_chords(x: Array, convex: Array) -> Array:
    """The largest value of the chord over `x (1 + x)` between each two neighbours."""
    low, high = x[:-1], x[1:]
    q = np.diff(convex) / np.diff(x)
    p = convex[:-1] - q * low
    inner = np.where(p < 0, (np.sqrt(np.maximum(p * (p - q), 0.0)) - p) / np.maximum(q, 1e-300), low)
    at = np.stack([low, np.clip(inner, low, high), high])
    # The chord of the first two starts at 0, where it is q x.
    values = np.where(low > 0, (p / np.where(low > 0, at, 1.0) + q) / (1 + at), q)
    return np.asarray(values.max(axis=0))
