"""Distributions of integers that are known up to a factor, independent of one another: sums over them, and draws.

Weights are tilted: multiplied by `exp(tilt * x)`. A distribution that is narrow, or follows no smooth curve, is
*listed* number by number where it matters. That of a count among millions is summed by *rules*: its numbers are cut
into blocks, each of which is replaced by Gauss nodes and halved until its halves give the same sum. Either has nodes
with masses, of which moments and waves are sums, and logarithms of probabilities between the nodes. Draws are made by
cumulative probabilities, or from wide blocks by rejection.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.quadrature import _block_rule

LogWeight = Callable[[Array, Integers], Array]

# What is a factor of exp(-50) below the largest weight is left out.
CUT = 50.0
# While a tilt is looked for, sums may be this wrong, and more is left out.
_ROUGH = 1e-3
ROUGH_CUT = 15.0
# A Gauss rule has 12 nodes; blocks of up to 12 numbers are summed number by number.
_NODES = 12
# So few numbers in all distributions together are summed one by one, because that takes less time than any refinement.
_FEW = 4096
# A block without a number whose weight is known is looked for in all numbers, if they are no more than this.
_MOST_BLOCKS = 2**19
# A rule that is right stays right if the weights at the two ends of its block change by up to this against one another.
_STEADY = 4.0


class ImpossibleError(ArgumentError):
    """No numbers have a positive weight, or none that doubles can tell from 0."""


def refuse_no_weights(logs: Array) -> None:
    """Raise the error about logarithms of weights that are no numbers, or infinite."""
    if np.isnan(logs).any() or np.isposinf(logs).any():
        raise ArgumentError(
            "The log-likelihood is NaN or +inf for some count that is possible. It must be finite or -inf "
            "for all counts from `least` to the total."
        )


class Distributions:
    """Independent distributions of integers on `least..most`, with weights `exp(log_weight(x, dist) + tilt * x)`.

    The numbers are cut into blocks, and a block is replaced by a Gauss rule. A block is halved until its two halves
    give the same sum, wherever the weights matter. So a distribution on ten million numbers takes some hundred nodes,
    wherever its mass is.

    Parameters
    ----------
    log_weight : callable
        `log_weight(x, dist)` with arrays that broadcast against each other; of the shape of `x`. It is evaluated
        between integers, too, unless `smooth` is false. It may be `-inf`.
    size : int
        The number of distributions.
    least, most : int or array of int, shape (size,)
        The ends of the numbers of each distribution.
    smooth : bool
        If false, every number is a node: for weights that follow no smooth curve.
    """

    def __init__(
        self,
        log_weight: LogWeight,
        size: int,
        least: int | Integers,
        most: int | Integers,
        *,
        smooth: bool = True,
    ) -> None:
        self.size, self.smooth = size, smooth
        self.least = np.broadcast_to(np.asarray(least, dtype=np.int64), (size,))
        self.most = np.broadcast_to(np.asarray(most, dtype=np.int64), (size,))
        self.tilt = 0.0
        self.cut = CUT
        self.log_weight = log_weight
        ends = list(zip(self.least.tolist(), self.most.tolist(), strict=True))
        coarse = smooth and sum(high - low + 1 for low, high in ends) > _FEW
        starts, lengths = zip(*(_first_blocks(low, high, coarse) for low, high in ends), strict=True)
        self._distribution = np.repeat(np.arange(size), [len(start) for start in starts])
        self._start, self._length = np.concatenate(starts), np.concatenate(lengths)
        self._points, self._rule, self._values = self._evaluated(self._distribution, self._start, self._length)
        self._settled = np.zeros(len(self._distribution), dtype=bool)
        # The tilt at which the rule of each block was found right.
        self._right_at = np.full(len(self._distribution), np.nan)

    def settle(self, tilt: float, tolerance: float = 1e-14, cut: float = CUT, *, short: bool = True) -> None:
        """Refine the rules for this tilt, until every sum is known to about `tolerance` of itself.

        Blocks end up no longer than a standard deviation if `short`: for characteristic functions, and for draws.
        """
        self.tilt, self.cut = tilt, cut
        self._settled = np.abs(self._right_at - tilt) * self._length <= _STEADY
        self._refine(tolerance, short)
        self._gather()

    def shorten(self, limit: Callable[[Integers, Integers, Integers], Array]) -> None:
        """Halve blocks until none that matters is longer than `limit(dist, start, end)`, from its first to its last."""
        while True:
            _, top, peak = self._tilted()
            long = (top > peak[self._distribution] - self.cut) & (
                self._length > limit(self._distribution, self._start, self._start + self._length - 1)
            )
            split = long & (self._length > _NODES)
            if not split.any():
                break
            self._halve(split, 1e-14)
        self._gather()

    def reach(self) -> tuple[float, float]:
        """The least and the largest sum of all numbers that blocks with a positive weight reach.

        The ends of blocks are nodes, so no block beside a seen one has a positive weight unseen. A distribution of
        which nothing is seen yet may reach every number.
        """
        seen = np.isfinite(self._values).any(axis=0)
        dist, start = self._distribution[seen], self._start[seen]
        known = np.bincount(dist, minlength=self.size) > 0
        lows, highs = np.where(known, self.most, self.least), np.where(known, self.least, self.most)
        np.minimum.at(lows, dist, start)
        np.maximum.at(highs, dist, start + self._length[seen] - 1)
        return float(lows.sum()), float(highs.sum())

    def rough_moments(self, tilt: float) -> tuple[float, float]:
        """Mean and variance of the sum of all numbers at a tilt, to about a thousandth."""
        self.tilt, self.cut = tilt, ROUGH_CUT
        self._refine(_ROUGH, short=False)
        values, _, peak = self._tilted()
        level = np.where(np.isneginf(peak), 0.0, peak)
        mean, variance = self._moments(self._rule * np.exp(values - level[self._distribution]))
        return float(mean.sum()), float(variance.sum())

    def _refine(self, tolerance: float, short: bool) -> None:
        while (split := self._unsettled(short)).any():
            self._halve(split, tolerance)

    def _tilted(self) -> tuple[Array, Array, Array]:
        """Tilted logarithms at the points, their largest in a block, and their largest in a distribution."""
        values = self._values + self.tilt * self._points
        top = values.max(axis=0)
        peak = np.full(self.size, -np.inf)
        np.maximum.at(peak, self._distribution, top)
        return values, top, peak

    def _unsettled(self, short: bool) -> NDArray[np.bool_]:
        values, top, peak = self._tilted()
        nowhere = np.isneginf(peak)
        level = np.where(nowhere, 0.0, peak)[self._distribution]
        high = top > level - self.cut
        # A peak may hide between the nodes of a block whose neighbours are lower.
        before = np.concatenate([[-np.inf], np.where(np.diff(self._distribution) == 0, top[:-1], -np.inf)])
        after = np.concatenate([np.where(np.diff(self._distribution) == 0, top[1:], -np.inf), [-np.inf]])
        steps = np.abs(np.diff(np.maximum(values, -1e300), axis=0)).max(axis=0)
        hidden = (top >= before) & (top >= after) & (steps > 3) & ~np.isneginf(top)
        wanted = hidden | (high & ~self._settled) | nowhere[self._distribution]
        if short:
            mass = self._rule * np.exp(values - level)
            _, variance = self._moments(mass)
            wanted |= high & (self._length > np.sqrt(variance)[self._distribution])
        if nowhere.any() and len(self._distribution) > _MOST_BLOCKS:
            raise ImpossibleError(
                "No count was found for which the output of some cell is possible. Give the likelihood of every count "
                "as a table."
            )
        return wanted & (self._length > _NODES)

    def _moments(self, mass: Array) -> tuple[Array, Array]:
        """Means and variances from the masses of the points, which need no normalisation."""
        total = np.bincount(self._distribution, mass.sum(axis=0), self.size)
        total = np.where(total > 0, total, 1.0)
        mean = np.bincount(self._distribution, (mass * self._points).sum(axis=0), self.size) / total
        spread = (mass * (self._points - mean[self._distribution]) ** 2).sum(axis=0)
        return mean, np.bincount(self._distribution, spread, self.size) / total

    def _halve(self, split: NDArray[np.bool_], tolerance: float) -> None:
        dist, start, length = self._distribution[split], self._start[split], self._length[split]
        half = (length + 1) // 2
        child_distribution = np.repeat(dist, 2)
        child_start = np.stack([start, start + half], axis=1).ravel()
        child_length = np.stack([half, length - half], axis=1).ravel()
        points, rule, values = self._evaluated(child_distribution, child_start, child_length)
        before, _, peak = self._tilted()
        tilted = values + self.tilt * points
        np.maximum.at(peak, child_distribution, tilted.max(axis=0))
        level = np.where(np.isneginf(peak), 0.0, peak)
        mass = np.bincount(
            self._distribution, (self._rule * np.exp(before - level[self._distribution])).sum(axis=0), self.size
        )
        old = (self._rule[:, split] * np.exp(before[:, split] - level[dist])).sum(axis=0)
        new = (rule * np.exp(tilted - level[child_distribution])).sum(axis=0).reshape(-1, 2).sum(axis=1)
        # The weights are rounded where their logarithms are large: no rule can do better than that.
        largest = np.max(np.where(np.isfinite(values), np.abs(values), 0.0) + np.abs(self.tilt * points), axis=0)
        noise = tolerance + 2e-16 * largest.reshape(-1, 2).max(axis=1)
        error = np.abs(old - new)
        settled = np.repeat(error <= noise * np.maximum(mass[dist], new), 2)
        # A block that does not matter may matter after a small change of the tilt, if it lies far from those that do.
        right = np.repeat((error <= noise * new) & (tolerance < _ROUGH), 2)
        # The halves take the place of their block, so the blocks stay in order.
        places = np.repeat(np.arange(len(split)), 1 + split)
        new_ones = split[places]
        self._distribution = self._distribution[places]
        self._start = _replaced(self._start[places], new_ones, child_start)
        self._length = _replaced(self._length[places], new_ones, child_length)
        self._settled = _replaced(self._settled[places], new_ones, settled)
        right_at = np.where(right, self.tilt, np.nan)
        self._right_at = _replaced(self._right_at[places], new_ones, right_at)
        self._points = _replaced(self._points[:, places], new_ones, points)
        self._rule = _replaced(self._rule[:, places], new_ones, rule)
        self._values = _replaced(self._values[:, places], new_ones, values)

    def _evaluated(self, dist: Integers, start: Integers, length: Integers) -> tuple[Array, Array, Array]:
        distinct, which = np.unique(length, return_inverse=True)
        rules = [_with_ends(int(n)) for n in distinct]
        points = start + np.stack([offsets for offsets, _ in rules], axis=1)[:, which]
        rule = np.stack([weights for _, weights in rules], axis=1)[:, which]
        values = np.broadcast_to(self.log_weight(points, dist), points.shape)
        refuse_no_weights(values)
        return points, rule, values

    def _gather(self) -> None:
        values, top, peak = self._tilted()
        if np.isneginf(peak).any():
            raise ImpossibleError(
                "The output is impossible for every count of some cell. Check that the output and the parameters of "
                "the mechanism belong together."
            )
        within = top > peak[self._distribution] - self.cut
        dist, mass = (
            self._distribution[within],
            self._rule[:, within] * np.exp(values[:, within] - peak[self._distribution[within]]),
        )
        total = np.bincount(dist, mass.sum(axis=0), self.size)
        self.log_totals: Array = peak + np.log(total)
        self.peaks: Array = peak - self.log_totals
        self.lows: Integers = self.most.copy()
        self.highs: Integers = self.least.copy()
        np.minimum.at(self.lows, dist, self._start[within])
        np.maximum.at(self.highs, dist, self._start[within] + self._length[within] - 1)
        mass /= total[dist]
        self.block_distribution, self.block_start, self.block_length = dist, self._start[within], self._length[within]
        self.block_mass: Array = mass.sum(axis=0)
        self.block_top: Array = top[within] - self.log_totals[dist]
        # Nodes in the order of their distributions.
        mass, points = mass.T, self._points[:, within].T
        inside = mass > 0
        self.nodes: Array = points[inside]
        self.masses: Array = mass[inside]
        self.node_distribution: Integers = np.broadcast_to(dist[:, None], mass.shape)[inside]
        # From the lowest number on, whose distances are exact where numbers have more digits than doubles.
        above = self.nodes - self.lows[self.node_distribution]
        mean: Array = np.bincount(self.node_distribution, self.masses * above, self.size)
        self.means: Array = self.lows + mean
        centred = above - mean[self.node_distribution]
        self.variances: Array = np.bincount(self.node_distribution, self.masses * centred**2, self.size)

    def log_pmf(self, x: Array, dist: Integers) -> Array:
        """Logarithm of the probability of `x`, also where the rule has no node."""
        inside = (x >= self.least[dist]) & (x <= self.most[dist])
        safe = np.where(inside, x, self.least[dist])
        return np.where(inside, self.log_weight(safe, dist) + self.tilt * safe - self.log_totals[dist], -np.inf)


def _replaced[T: np.generic](array: NDArray[T], where: NDArray[np.bool_], new: NDArray[T]) -> NDArray[T]:
    array[..., where] = new
    return array


@lru_cache(maxsize=4096)
def _first_blocks(least: int, most: int, coarse: bool) -> tuple[Integers, Integers]:
    """Blocks of `least..most` with 12 numbers; or coarse ones, which grow by factors of 2 from both ends.

    That is where powers of a count vary fast.
    """
    count = most - least + 1
    if coarse and count > 4 * _NODES:
        ladder = _NODES * 2 ** np.arange(1 + int(np.log2(count / (2 * _NODES))), dtype=np.int64)
        ladder = ladder[ladder < count / 2]
        edges = np.unique(np.concatenate([[0, count], ladder, count - ladder]))
    else:
        edges = np.unique(np.append(np.arange(0, count, _NODES), count))
    return least + edges[:-1], np.diff(edges)


@lru_cache(maxsize=4096)
def _with_ends(length: int) -> tuple[Array, Array]:
    """The nodes of a block with its two ends around them, which have no weight; always 14 points."""
    offsets, weights = _block_rule(length)
    missing = _NODES - len(offsets)
    offsets = np.concatenate([[0.0], offsets, np.full(1 + missing, length - 1.0)])
    weights = np.concatenate([[0.0], weights, np.zeros(1 + missing)])
    return offsets, weights


# Distributions with so few numbers in all are listed whole.
FEW = 2**13
# Points of each round of a search.
_PART = np.arange(33)[:, None] / 32


@final
class Listed(Distributions):
    """Independent distributions of integers with weights `exp(logs + tilt * x)`, of which every number is stored.

    They are settled: nodes are all numbers, each a block of its own, and there are no rules to be refined.

    Parameters
    ----------
    lows, widths : array of int, shape (size,)
        The first number of each, and how many there are.
    logs : array
        Logarithms of the weights before the tilt, of one distribution after the other.
    tilt, cut : float
    """

    def __init__(self, lows: Integers, widths: Integers, logs: Array, tilt: float, cut: float) -> None:
        self.size, self.tilt, self.cut, self.smooth = len(lows), tilt, cut, False
        self._widths, self._before = widths, logs
        self.lows, self.highs = lows, lows + widths - 1
        self.least, self.most = self.lows, self.highs
        self._starts = np.cumsum(widths) - widths
        self.node_distribution = np.repeat(np.arange(self.size), widths)
        self.block_start = np.arange(len(logs)) - (self._starts - lows)[self.node_distribution]
        self.nodes = self.block_start.astype(np.float64)
        tilted = logs + tilt * self.nodes
        peak = np.maximum.reduceat(tilted, self._starts)
        if np.isneginf(peak).any():
            raise ImpossibleError("The output is impossible for every count of some cell, or every total of some row.")
        self._logs = tilted - peak[self.node_distribution]
        masses = np.exp(self._logs)
        total = np.add.reduceat(masses, self._starts)
        self.log_totals = peak + np.log(total)
        self.peaks = -np.log(total)
        self._logs += self.peaks[self.node_distribution]
        self.masses = masses / total[self.node_distribution]
        above = self.nodes - lows[self.node_distribution]
        mean = np.add.reduceat(self.masses * above, self._starts)
        self.means = lows.astype(np.float64) + mean
        centred = above - mean[self.node_distribution]
        self.variances = np.add.reduceat(self.masses * centred**2, self._starts)
        self.block_distribution, self.block_mass, self.block_top = self.node_distribution, self.masses, self._logs
        self.block_length = np.broadcast_to(np.int64(1), len(logs))

    @override
    def shorten(self, limit: Callable[[Integers, Integers, Integers], Array]) -> None:
        """Nothing: a block of one number cannot be halved."""

    def part(self, first: int, end: int) -> "Listed":
        """Some of the distributions that follow one another."""
        starts = np.append(self._starts, len(self.nodes))
        logs = self._before[starts[first] : starts[end]]
        return Listed(self.lows[first:end], self._widths[first:end], logs, self.tilt, self.cut)

    def at(self, tilt: float, cut: float) -> "Listed":
        """At another tilt, from the first to the last number whose weight is not below the largest by exp(cut)."""
        logs = self._before + tilt * self.nodes
        places = np.flatnonzero(logs >= (np.maximum.reduceat(logs, self._starts) - cut)[self.node_distribution])
        ends = np.searchsorted(places, np.append(self._starts, len(logs)))
        first, last = places[ends[:-1]], places[ends[1:] - 1]
        widths = last - first + 1
        within = np.arange(widths.sum()) + np.repeat(first - (np.cumsum(widths) - widths), widths)
        return Listed(self.lows + (first - self._starts), widths, self._before[within], tilt, cut)

    def trimmed(self, cut: float) -> "Listed":
        """Without the numbers at both ends whose weight is below the largest by a factor of exp(cut)."""
        return self.at(self.tilt, cut)

    def pmf(self, dist: int) -> Array:
        """The probabilities of the numbers of one distribution."""
        start = int(self._starts[dist])
        return self.masses[start : start + int(self.highs[dist] - self.lows[dist]) + 1]

    @override
    def log_pmf(self, x: Array, dist: Integers) -> Array:
        """Logarithm of the probability of integers, elementwise."""
        place = np.asarray(x, dtype=np.int64) - self.lows[dist]
        inside = (place >= 0) & (place <= (self.highs - self.lows)[dist])
        return np.where(inside, self._logs[self._starts[dist] + np.where(inside, place, 0)], -np.inf)


def listed_numbers(
    log_weight: LogWeight, least: Integers, most: Integers, *, smooth: bool, tilt: float, cut: float
) -> Listed:
    """All numbers of some distributions whose tilted weight is not below the largest by a factor of exp(cut).

    Parameters
    ----------
    log_weight : callable
        As that of :class:`Distributions`.
    least, most : array of int, shape (size,)
        The first and the last number of each that is possible.
    smooth : bool
        Whether weights rise to a mode and fall after it, so that not all have to be looked at.
    tilt, cut : float
    """
    cells, lows, highs = np.arange(len(least)), least, most
    if smooth and (most - least + 1).sum() > FEW:
        lows, highs = _windows(lambda x: log_weight(x, cells) + tilt * x, least, most, cut)
    widths = highs - lows + 1
    cell = np.repeat(cells, widths)
    x = (np.arange(widths.sum()) - (np.cumsum(widths) - widths - lows)[cell]).astype(np.float64)
    logs = log_weight(x, cell)
    refuse_no_weights(logs)
    return Listed(lows, widths, logs, tilt, cut)


def largest(weight: Callable[[Array], Array], least: Integers, most: Integers) -> tuple[Integers, Array]:
    """The numbers with the largest weights, and these weights.

    `weight` takes points, shape (k, distributions), and rises to a mode.
    """
    low, high, at = least, most, np.arange(len(least))
    best, top = least, np.full(len(least), -np.inf)
    while True:
        x = np.rint(low + _PART * (high - low)).astype(np.int64)
        values = weight(x.astype(np.float64))
        place = values.argmax(axis=0)
        better = values[place, at] > top
        best, top = np.where(better, x[place, at], best), np.where(better, values[place, at], top)
        if (high - low <= len(_PART)).all():
            return best, top
        low, high = x[np.maximum(place - 1, 0), at], x[np.minimum(place + 1, len(_PART) - 1), at]


def _windows(
    weight: Callable[[Array], Array], least: Integers, most: Integers, cut: float
) -> tuple[Integers, Integers]:
    """The first and the last number of each distribution that matters, or a few more.

    Weights rise to a mode and fall after it. An end may be a mode of its own, as that of a count with a small prior.
    """
    best, top = largest(weight, least, most)
    if np.isneginf(top).any():
        # Nothing is seen between the points: every number is looked at.
        return least, most
    ends, at = [], np.arange(len(least))
    for end in (least, most):
        inner, outer = best, end
        while True:
            x = np.rint(inner + _PART * (outer - inner)).astype(np.int64)
            inside = weight(x.astype(np.float64)) > top - cut
            last = len(_PART) - 1 - inside[::-1].argmax(axis=0)
            inner, outer = x[last, at], x[np.minimum(last + 1, len(_PART) - 1), at]
            if (np.abs(outer - inner) <= 1 + np.abs(inner - best) // 8).all():
                break
        ends.append(outer)
    return ends[0], ends[1]


# Cumulative probabilities of all numbers are cached up to this width, or if they are this many in all.
_NARROW = 2048
_MOST_DRAWN = 2**20
# Within a block weights may be so much larger than at the nodes, on the logarithmic scale.
_SLACK = 0.25


class NumberDraws:
    """Draws from settled distributions.

    They are made by cumulative probabilities, or block by block with rejection where a distribution is wide.

    Parameters
    ----------
    dists : Distributions
        Settled; not changed while this is used.
    narrow : int, optional
        Up to this width cumulative probabilities are cached; by default what pays for thousands of draws.
    """

    def __init__(self, dists: Distributions, narrow: int | None = None) -> None:
        self._posteriors = dists
        self._narrow = max(_NARROW, _MOST_DRAWN // dists.size) if narrow is None else narrow
        self._logs: dict[int, Array] = {}
        self._tables: dict[int, tuple[Array, NDArray[np.int32]]] = {}
        self._starts = np.searchsorted(dists.block_distribution, np.arange(dists.size + 1))

    def log_bound(self, dist: int) -> float:
        """Logarithm of the largest probability of a number, or a little more where the distribution is wide."""
        if self._is_wide(dist):
            return float(self._posteriors.peaks[dist]) + _SLACK
        return float(np.max(self._log_table(dist)))

    def log_pmf(self, dist: int, x: Integers) -> Array:
        """Logarithm of the probability of numbers, which is looked up where cumulative probabilities are cached."""
        if self._is_wide(dist):
            return self._posteriors.log_pmf(x.astype(np.float64), np.full(len(x), dist))
        low, high = int(self._posteriors.lows[dist]), int(self._posteriors.highs[dist])
        found = self._log_table(dist)[np.clip(x, low, high) - low]
        outside = np.flatnonzero((x < low) | (x > high))
        found[outside] = self._posteriors.log_pmf(x[outside].astype(np.float64), np.full(len(outside), dist))
        return found

    def _is_wide(self, dist: int) -> bool:
        return int(self._posteriors.highs[dist] - self._posteriors.lows[dist]) >= self._narrow

    def _log_table(self, dist: int) -> Array:
        """The logarithms of the probabilities of all numbers that matter."""
        if dist not in self._logs:
            x = np.arange(self._posteriors.lows[dist], self._posteriors.highs[dist] + 1, dtype=np.float64)
            self._logs[dist] = self._posteriors.log_pmf(x, np.full(len(x), dist))
        return self._logs[dist]

    def draw(self, dist: int, size: int, rng: np.random.Generator) -> Integers:
        """Independent draws from one distribution, shape `(size,)`."""
        if self._is_wide(dist):
            return self._from_blocks(dist, size, rng)
        if dist not in self._tables:
            cdf = np.cumsum(np.exp(self._log_table(dist)))
            # The first number for which a cell of a grid of uniform numbers may stand: few are left to be searched.
            grid = np.arange(2.0 * len(cdf) + 1) / (2 * len(cdf))
            self._tables[dist] = cdf, np.searchsorted(cdf, grid * cdf[-1], side="right").astype(np.int32)
        cdf, guide = self._tables[dist]
        u = rng.random(size)
        place = (u * (len(guide) - 1)).astype(np.intp)
        drawn = guide[place].astype(np.int64)
        unclear = np.flatnonzero(guide[place + 1] > drawn)
        drawn[unclear] = np.searchsorted(cdf, u[unclear] * cdf[-1], side="right")
        return int(self._posteriors.lows[dist]) + drawn

    def _from_blocks(self, dist: int, size: int, rng: np.random.Generator) -> Integers:
        """A block by its mass, then a number in it: proposed uniformly, accepted with its share of the largest weight.

        The largest weight is that of the nodes and the ends with some slack. Blocks are no longer than a standard
        deviation and their sums are those of polynomials, so the slack is far more than is needed; a block in which a
        weight exceeds it all the same starts again with a larger one, and so do all draws from it.
        """
        dists, blocks = self._posteriors, slice(self._starts[dist], self._starts[dist + 1])
        start, length = dists.block_start[blocks], dists.block_length[blocks]
        bound = dists.block_top[blocks] + _SLACK
        cdf = np.cumsum(dists.block_mass[blocks])
        block = np.searchsorted(cdf, rng.random(size) * cdf[-1], side="right")
        drawn = np.empty(size, dtype=np.int64)
        waiting = np.arange(size)
        while len(waiting):
            at = block[waiting]
            x = start[at] + (rng.random(len(waiting)) * length[at]).astype(np.int64)
            excess = dists.log_pmf(x.astype(np.float64), np.full(len(x), dist)) - bound[at]
            if np.any(excess > 0):
                np.maximum.at(bound, at, bound[at] + excess + _SLACK)
                waiting = np.flatnonzero(np.isin(block, at[excess > 0]) | np.isin(np.arange(size), waiting))
                continue
            accepted = np.log1p(-rng.random(len(waiting))) <= excess
            drawn[waiting[accepted]] = x[accepted]
            waiting = waiting[~accepted]
        return drawn
