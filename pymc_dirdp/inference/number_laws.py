"""Distributions of integers that are known up to a factor, summed by rules that are refined where the mass is."""

import copy
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.quadrature import _block_rule

__all__ = ["CUT", "ImpossibleError", "LogWeight", "NumberLaws", "refuse_no_weights"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
LogWeight = Callable[[Array, Integers], Array]

# What is a factor of exp(-50) below the largest weight is left out.
CUT = 50.0
# While a tilt is looked for, sums may be this wrong, and more is left out.
_ROUGH = 1e-3
_ROUGH_CUT = 15.0
# A Gauss rule has 12 nodes; blocks of up to 12 numbers are summed number by number.
_NODES = 12
# So few numbers in all laws together are summed one by one, because that takes less time than any refinement.
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
            "The log-likelihood is no number, or infinite, for some count that is possible. It must be finite or -inf "
            "for all counts from `least` to the total."
        )


class NumberLaws:
    """Independent distributions of integers on `least..most`, with weights `exp(log_weight(x, law) + tilt * x)`.

    The numbers are cut into blocks, and a block is replaced by a Gauss rule. A block is halved until its two halves
    give the same sum, wherever the weights matter. So a distribution on ten million numbers takes some hundred nodes,
    wherever its mass is.

    Parameters
    ----------
    log_weight : callable
        `log_weight(x, law)` with arrays that broadcast against each other; of the shape of `x`. It is evaluated
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
        self._log_weight = log_weight
        ends = list(zip(self.least.tolist(), self.most.tolist(), strict=True))
        coarse = smooth and sum(high - low + 1 for low, high in ends) > _FEW
        starts, lengths = zip(*(_first_blocks(low, high, coarse) for low, high in ends), strict=True)
        self._law = np.repeat(np.arange(size), [len(start) for start in starts])
        self._start, self._length = np.concatenate(starts), np.concatenate(lengths)
        self._points, self._rule, self._values = self._evaluated(self._law, self._start, self._length)
        self._settled = np.zeros(len(self._law), dtype=bool)
        # The tilt at which the rule of each block was found right.
        self._right_at = np.full(len(self._law), np.nan)

    def shifted(self, log_weight: LogWeight, slopes: Array) -> "NumberLaws":
        """Laws whose log-weights differ from those of these settled laws by `slopes * x`, on the same blocks.

        Where slopes differ little, a rule that was right is not looked at again. The tilt stays where it is until the
        distributions are settled. These distributions do not change.

        Parameters
        ----------
        log_weight : callable
            That of the distributions wanted.
        slopes : array, shape (size,)
            They may be `-inf`: then 0 is the only number.
        """
        found = copy.copy(self)
        found._log_weight = log_weight
        with np.errstate(invalid="ignore"):
            found._values = self._values + np.where(self._points == 0, 0.0, slopes[self._law] * self._points)
        found._right_at = self._right_at - slopes[self._law]
        return found

    def log_weights(self, x: Array, law: Integers) -> Array:
        """The logarithms of the weights before the tilt."""
        return self._log_weight(x, law)

    def settle(self, tilt: float, tolerance: float = 1e-14, cut: float = CUT, *, short: bool = True) -> None:
        """Refine the rules for this tilt, until every sum is known to about `tolerance` of itself.

        Blocks end up no longer than a standard deviation if `short`: for characteristic functions, and for draws.
        """
        self.tilt, self.cut = tilt, cut
        self._settled = np.abs(self._right_at - tilt) * self._length <= _STEADY
        self._refine(tolerance, short)
        self._gather()

    def shorten(self, limit: Callable[[Integers, Integers, Integers], Array]) -> None:
        """Halve blocks until none that matters is longer than `limit(law, start, end)`, from its first to its last."""
        while True:
            _, top, peak = self._tilted()
            long = (top > peak[self._law] - self.cut) & (
                self._length > limit(self._law, self._start, self._start + self._length - 1)
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
        law, start = self._law[seen], self._start[seen]
        known = np.bincount(law, minlength=self.size) > 0
        lows, highs = np.where(known, self.most, self.least), np.where(known, self.least, self.most)
        np.minimum.at(lows, law, start)
        np.maximum.at(highs, law, start + self._length[seen] - 1)
        return float(lows.sum()), float(highs.sum())

    def rough_moments(self, tilt: float) -> tuple[float, float]:
        """Mean and variance of the sum of all numbers at a tilt, to about a thousandth."""
        self.tilt, self.cut = tilt, _ROUGH_CUT
        self._refine(_ROUGH, short=False)
        values, _, peak = self._tilted()
        level = np.where(np.isneginf(peak), 0.0, peak)
        mean, variance = self._moments(self._rule * np.exp(values - level[self._law]))
        return float(mean.sum()), float(variance.sum())

    def _refine(self, tolerance: float, short: bool) -> None:
        while (split := self._unsettled(short)).any():
            self._halve(split, tolerance)

    def _tilted(self) -> tuple[Array, Array, Array]:
        """Tilted logarithms at the points, their largest in a block, and their largest in a distribution."""
        values = self._values + self.tilt * self._points
        top = values.max(axis=0)
        peak = np.full(self.size, -np.inf)
        np.maximum.at(peak, self._law, top)
        return values, top, peak

    def _unsettled(self, short: bool) -> NDArray[np.bool_]:
        values, top, peak = self._tilted()
        nowhere = np.isneginf(peak)
        level = np.where(nowhere, 0.0, peak)[self._law]
        high = top > level - self.cut
        # A peak may hide between the nodes of a block whose neighbours are lower.
        before = np.concatenate([[-np.inf], np.where(np.diff(self._law) == 0, top[:-1], -np.inf)])
        after = np.concatenate([np.where(np.diff(self._law) == 0, top[1:], -np.inf), [-np.inf]])
        steps = np.abs(np.diff(np.maximum(values, -1e300), axis=0)).max(axis=0)
        hidden = (top >= before) & (top >= after) & (steps > 3) & ~np.isneginf(top)
        wanted = hidden | (high & ~self._settled) | nowhere[self._law]
        if short:
            mass = self._rule * np.exp(values - level)
            _, variance = self._moments(mass)
            wanted |= high & (self._length > np.sqrt(variance)[self._law])
        if nowhere.any() and len(self._law) > _MOST_BLOCKS:
            raise ImpossibleError(
                "No count was found for which the output of some cell is possible. Give the likelihood of every count "
                "as a table."
            )
        return wanted & (self._length > _NODES)

    def _moments(self, mass: Array) -> tuple[Array, Array]:
        """Means and variances from the masses of the points, which need no normalisation."""
        total = np.bincount(self._law, mass.sum(axis=0), self.size)
        total = np.where(total > 0, total, 1.0)
        mean = np.bincount(self._law, (mass * self._points).sum(axis=0), self.size) / total
        spread = (mass * (self._points - mean[self._law]) ** 2).sum(axis=0)
        return mean, np.bincount(self._law, spread, self.size) / total

    def _halve(self, split: NDArray[np.bool_], tolerance: float) -> None:
        law, start, length = self._law[split], self._start[split], self._length[split]
        half = (length + 1) // 2
        child_law = np.repeat(law, 2)
        child_start = np.stack([start, start + half], axis=1).ravel()
        child_length = np.stack([half, length - half], axis=1).ravel()
        points, rule, values = self._evaluated(child_law, child_start, child_length)
        before, _, peak = self._tilted()
        tilted = values + self.tilt * points
        np.maximum.at(peak, child_law, tilted.max(axis=0))
        level = np.where(np.isneginf(peak), 0.0, peak)
        mass = np.bincount(self._law, (self._rule * np.exp(before - level[self._law])).sum(axis=0), self.size)
        old = (self._rule[:, split] * np.exp(before[:, split] - level[law])).sum(axis=0)
        new = (rule * np.exp(tilted - level[child_law])).sum(axis=0).reshape(-1, 2).sum(axis=1)
        # The weights are rounded where their logarithms are large: no rule can do better than that.
        largest = np.max(np.where(np.isfinite(values), np.abs(values), 0.0) + np.abs(self.tilt * points), axis=0)
        noise = tolerance + 2e-16 * largest.reshape(-1, 2).max(axis=1)
        error = np.abs(old - new)
        settled = np.repeat(error <= noise * np.maximum(mass[law], new), 2)
        # A block that does not matter may matter after a small change of the tilt, if it lies far from those that do.
        right = np.repeat((error <= noise * new) & (tolerance < _ROUGH), 2)
        # The halves take the place of their block, so the blocks stay in order.
        places = np.repeat(np.arange(len(split)), 1 + split)
        new_ones = split[places]
        self._law = self._law[places]
        self._start = _replaced(self._start[places], new_ones, child_start)
        self._length = _replaced(self._length[places], new_ones, child_length)
        self._settled = _replaced(self._settled[places], new_ones, settled)
        right_at = np.where(right, self.tilt, np.nan)
        self._right_at = _replaced(self._right_at[places], new_ones, right_at)
        self._points = _replaced(self._points[:, places], new_ones, points)
        self._rule = _replaced(self._rule[:, places], new_ones, rule)
        self._values = _replaced(self._values[:, places], new_ones, values)

    def _evaluated(self, law: Integers, start: Integers, length: Integers) -> tuple[Array, Array, Array]:
        distinct, which = np.unique(length, return_inverse=True)
        rules = [_with_ends(int(n)) for n in distinct]
        points = start + np.stack([offsets for offsets, _ in rules], axis=1)[:, which]
        rule = np.stack([weights for _, weights in rules], axis=1)[:, which]
        values = np.broadcast_to(self._log_weight(points, law), points.shape)
        refuse_no_weights(values)
        return points, rule, values

    def _gather(self) -> None:
        values, top, peak = self._tilted()
        if np.isneginf(peak).any():
            raise ImpossibleError(
                "The output is impossible for every count of some cell. Check that the output and the parameters of "
                "the mechanism belong together."
            )
        kept = top > peak[self._law] - self.cut
        law, mass = self._law[kept], self._rule[:, kept] * np.exp(values[:, kept] - peak[self._law[kept]])
        total = np.bincount(law, mass.sum(axis=0), self.size)
        self.log_totals: Array = peak + np.log(total)
        self.peaks: Array = peak - self.log_totals
        self.lows: Integers = self.most.copy()
        self.highs: Integers = self.least.copy()
        np.minimum.at(self.lows, law, self._start[kept])
        np.maximum.at(self.highs, law, self._start[kept] + self._length[kept] - 1)
        mass /= total[law]
        self.block_law, self.block_start, self.block_length = law, self._start[kept], self._length[kept]
        self.block_mass: Array = mass.sum(axis=0)
        self.block_top: Array = top[kept] - self.log_totals[law]
        # Nodes in the order of their laws.
        mass, points = mass.T, self._points[:, kept].T
        inside = mass > 0
        self.nodes: Array = points[inside]
        self.masses: Array = mass[inside]
        self.node_law: Integers = np.broadcast_to(law[:, None], mass.shape)[inside]
        self.means: Array = np.bincount(self.node_law, self.masses * self.nodes, self.size)
        centred = self.nodes - self.means[self.node_law]
        self.variances: Array = np.bincount(self.node_law, self.masses * centred**2, self.size)

    def log_pmf(self, x: Array, law: Integers) -> Array:
        """Logarithm of the probability of `x`, also where the rule has no node."""
        inside = (x >= self.least[law]) & (x <= self.most[law])
        safe = np.where(inside, x, self.least[law])
        return np.where(inside, self._log_weight(safe, law) + self.tilt * safe - self.log_totals[law], -np.inf)


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
