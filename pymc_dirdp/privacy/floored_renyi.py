"""Rényi divergences between neighbouring distributions of intensities above a floor, and their suprema over all counts.

Write `Z(a)` for the mass of `TG(a)` and V for the second derivative of `log Z`, the variance of `log G`. Then

    joins(a) = [log Z(a + L r) - L log Z(a + r) + (L - 1) log Z(a)] / (L - 1)
             = r**2 times the integral of K(s) V(a + r s) over s from 0 to L,

with L the order and K the hat of Theory, section 3. A record that leaves gives the same with `V(a + r - r s)`. V first
rises and then falls, and so do both in `a`. So each supremum over a lattice stands next to the real maximiser.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.numerics.bisection import sign_changes
from pymc_dirdp.numerics.quadrature import nodes
from pymc_dirdp.numerics.truncated_gamma import log_mass_change, moments_log, variance_log
from pymc_dirdp.privacy.floored_search import Shapes

__all__ = ["largest_divergences", "largest_slope", "largest_sum_of_variances", "largest_variance", "renyi_of_record"]

# A closed form is used while its rounding error is below this share of it.
_TRUSTED = 1e-10
# Divergences have relative errors below this number, with what a maximiser that is a little off leaves out.
_MARGIN = 2e-9
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

    def above(low: Array, high: Array) -> Array:
        ends = np.maximum(variance_log(low, floor, ceiling), variance_log(high, floor, ceiling))
        return np.where((low <= peak) & (peak <= high), most, ends * (1 + 1e-12))

    # The sum is symmetric. Before the first edge one shape lies below the peak and the other above, and both move away.
    middle, reach = shapes / 2, abs(shapes / 2 - peak) + 20 * (1 + floor)
    edges = middle - np.concatenate([[0.0], np.geomspace(1e-3 * reach, reach, 48)])[::-1]
    low, high, attained = edges[:-1], edges[1:], 0.0
    settled = float(variance_log(edges[:1], floor, ceiling)[0] + variance_log(shapes - edges[:1], floor, ceiling)[0])
    while len(low):
        sums = variance_log(low, floor, ceiling) + variance_log(shapes - low, floor, ceiling)
        attained = max(attained, float(sums.max()))
        bounds = above(low, high) + above(shapes - high, shapes - low)
        done = bounds <= attained * (1 + 1e-6)
        settled = max(settled, float(bounds[done].max(initial=0.0)))
        low, high = low[~done], high[~done]
        middles = (low + high) / 2
        low, high = np.concatenate([low, middles]), np.concatenate([middles, high])
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

    def variance(a: Array, moved: Array) -> Array:
        return variance_log(a[:, None] + (moved if joins else r - moved), floor, ceiling)

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
    orders: Array, cells: Shapes, r: float, floor: float, ceiling: float = math.inf, *, joins: bool
) -> Array:
    """The largest divergences over all counts, where a record joins the cell or leaves it.

    Parameters
    ----------
    orders : array, shape (n,)
        At least 1.
    cells : Shapes
        The shapes that the cell may have without the record.
    r, floor, ceiling : float
        Positive.
    joins : bool
        Whether the record joins the cell; otherwise it leaves it.

    Returns
    -------
    divergences : array, shape (n,)
        In nats, not below the truth.
    """
    peak, most = largest_variance(floor, ceiling)
    # On a lattice the points next to the maximiser are needed, and for real shapes the maximiser itself.
    closely = 0.0 if cells.real else r / 4
    shapes = _maximisers(np.maximum(orders, _LEAST_ORDER), cells.start, r, floor, ceiling, closely, joins=joins)
    if not cells.real:
        counts = np.floor((shapes - cells.start) / r - 1 / 8)[:, None] + np.arange(3.0)
        candidates = cells.start + r * np.maximum(counts, 0.0)
    else:
        candidates = shapes[:, None]
    repeated = np.repeat(orders, candidates.shape[1])
    found = _closed(repeated, candidates.ravel(), r, floor, ceiling, joins=joins)
    values, errors = (one.reshape(candidates.shape) for one in found)
    lost = ~np.all(errors <= _TRUSTED * values, axis=1)
    flat = (orders * r) ** 2 * most <= _FLAT
    if np.any(some := lost & flat):
        reach = (orders[some] * r)[:, None]
        nearest = np.clip(peak, candidates[some] - reach, candidates[some] + reach)
        values[some] = reach * (r / 2 * (1 + 1e-9)) * variance_log(nearest, floor, ceiling)
    if np.any(some := lost & ~flat):
        each = np.repeat(orders[some], candidates.shape[1]), candidates[some].ravel()
        values[some] = _kernel(*each, r, floor, ceiling, joins=joins).reshape(-1, candidates.shape[1])
    largest = values.max(axis=1) * (1 + _MARGIN)
    # No divergence is larger than that of the largest variance (statement 3 on the page of proofs).
    return np.asarray(np.minimum(largest, orders * (r * r) / 2 * most))


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
