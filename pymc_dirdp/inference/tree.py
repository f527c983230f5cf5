"""Counts whose totals are not known: a tree of sums over integers, exact to rounding.

A leaf is a count with a weight, a :class:`Node` an integer with a weight of its own, to which the children of each of
its groups add up. A group is summed at a *tilt*: all weights times `exp(tilt * x)` are listed number by number where
they matter, and convolved; that is exact for totals near the mean of the tilted sum. Such a *band* of totals is laid
next to another until the weight of the number above has fallen by a factor of exp(50) on both sides. So one pass up
gives the evidence; one down, of what is known of each total over what the sums say of it, the distribution of every
count; and draws go down in the same way, each number given the one above.

All that is needed from elsewhere is the distribution of a sum, :mod:`pymc_dirdp.inference.rows`.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.inference.drawing import draw_counts
from pymc_dirdp.inference.numbers import ROUGH_CUT, Distributions, Listed, refuse_no_weights
from pymc_dirdp.inference.rows import LITTLE_CACHED, LITTLE_WORK, RowPosterior, TiltedCells, impossible, summed
from pymc_dirdp.inference.sums import Convolution, Fourier, Inversion

# A number with less than exp(-50) of the largest weight is left out.
CUT = 50.0
# So few numbers of all children are listed whole.
_FEW = 2**13
# What is listed of the children of a group, and how deep their sum is then known: by convolution of positive numbers,
# whose error is relative, and by Fourier transforms, whose error is 1e-16 of the largest.
_DIRECT, _DEEP = 150.0, 100.0
_WHOLE, _ALL = 700.0, 600.0
_SHALLOWER, _WAVES = 20.0, 9.0
# The next band lies so many standard deviations away, times the square root of how deep the sum is known.
_STEP = 1.2
# Steps of the search for the mode of a total.
_MOST_STEPS = 60
# Bands that are tried before the totals beyond count as impossible.
_MOST_TRIALS = 80
_STEEPEST = 1e15
# A draw or a distribution takes no notice of less.
_NEGLIGIBLE = 1e-18


@dataclass(frozen=True, eq=False)
class Spread:
    """A function of one integer that is 0 elsewhere: its values, or several such functions, from `low` on."""

    low: int
    values: Array

    @property
    def numbers(self) -> Array:
        """The integers."""
        return self.low + np.arange(self.values.shape[-1], dtype=np.float64)

    def part(self, row: int) -> "Spread":
        """One of several functions."""
        return Spread(self.low, self.values[row])

    def trimmed(self, mass: float) -> "Spread":
        """A distribution without what is left out on both sides, which has no more than so much mass."""
        inside = (np.cumsum(self.values) > mass) & (np.cumsum(self.values[::-1])[::-1] > mass)
        accepted = np.flatnonzero(inside)
        return Spread(self.low + int(accepted[0]), self.values[accepted[0] : accepted[-1] + 1])

    @property
    def mean_and_sd(self) -> tuple[float, float]:
        """Of a distribution."""
        mean = float(self.values @ self.numbers)
        return mean, float(np.sqrt(self.values @ (self.numbers - mean) ** 2))


class Cells:
    """The counts of a row as the leaves of a tree.

    Parameters
    ----------
    row : RowPosterior
        Of the row, with the largest total that it may have.
    """

    def __init__(self, row: RowPosterior) -> None:
        self.row, self.size = row, len(row.alpha)
        self.least, self.most = row.least * self.size, row.total

    @cached_property
    def _listed(self) -> Listed | None:
        """All numbers, if transforms of that many are short; otherwise rules sum them."""
        widths = np.full(self.size, self.row.most - self.row.least + 1)
        if self.size * widths.sum() > LITTLE_CACHED:
            return None
        cell = np.repeat(np.arange(self.size), widths)
        logs = self.row.log_weight(np.tile(np.arange(self.row.least, self.row.most + 1.0), self.size), cell)
        refuse_no_weights(logs)
        return Listed(np.full(self.size, self.row.least), widths, logs, 0.0, CUT)

    @cached_property
    def _rules(self) -> Distributions:
        return self.row.cells()

    def at(self, tilt: float, cut: float) -> Distributions:
        """Their distributions at a tilt, without what is below the largest weight by more than a factor of exp(cut)."""
        if self._listed is not None:
            return self._listed.at(tilt, cut)
        self._rules.settle(tilt, cut=cut)
        # What is settled again later gets new arrays.
        return copy.copy(self._rules)

    def moments(self, tilt: float) -> tuple[float, float]:
        """Mean and variance of their sum, about."""
        if self._listed is None:
            return self._rules.rough_moments(tilt)
        cells = self._listed.at(tilt, ROUGH_CUT)
        return float(cells.means.sum()), float(cells.variances.sum())


class Group:
    """Independent numbers, as a function of their sum.

    Parameters
    ----------
    children : Cells or sequence of Node
    """

    def __init__(self, children: "Cells | Sequence[Node]") -> None:
        self.children = children
        nodes = [] if isinstance(children, Cells) else list(children)
        self._nodes = nodes
        self.size: int = children.size if isinstance(children, Cells) else len(nodes)
        self.least: int = children.least if isinstance(children, Cells) else sum(node.least for node in nodes)
        self.most: int = children.most if isinstance(children, Cells) else sum(node.most for node in nodes)
        self.bands: list[TiltedCells] = []
        # Of the cuts that are tried those that take too many products.
        self._passed = 0
        self._solved: TiltedCells | None = None
        self._depths: list[float] = []
        self.low, self.high = 0, -1
        self._logs, self._depth = np.empty(0), np.empty(0)
        self._owner = np.empty(0, dtype=np.int64)

    def _at(self, tilt: float, cut: float) -> Distributions:
        if isinstance(self.children, Cells):
            return self.children.at(tilt, cut)
        windows = [node.window(tilt, cut) for node in self._nodes]
        widths = np.array([window.values.shape[-1] for window in windows])
        lows = np.array([window.low for window in windows])
        return Listed(lows, widths, np.concatenate([window.values for window in windows]), tilt, cut)

    def _moments(self, tilt: float) -> tuple[float, float]:
        if isinstance(self.children, Cells):
            return self.children.moments(tilt)
        cells = self._at(tilt, CUT)
        return float(cells.means.sum()), float(cells.variances.sum())

    @property
    def _is_small(self) -> bool:
        """Whether all totals are known wherever the first band is."""
        return not self._nodes and (self.most - self.least + 1) * self.size <= _FEW

    def _band(self, tilt: float) -> tuple[TiltedCells, int, Array, float]:
        """The sum at a tilt, and where and how well it is known: logarithms of its probabilities from a number on."""
        # Each number of a node is itself a sum, and takes more time than it is worth if it is that improbable.
        levels = [(CUT, _SHALLOWER)]
        if not self._nodes:
            levels = [*([(_WHOLE, _ALL)] * self._is_small), (_DIRECT, _DEEP), *levels]
        for level in levels[self._passed :]:
            cut, depth = level
            cells = self._at(tilt, cut)
            if cut == CUT or Convolution.work(cells) <= LITTLE_WORK:
                break
            self._passed += 1
        mean, sd = cells.means.sum(), float(np.sqrt(cells.variances.sum()))
        band = summed(cells, round(float(mean)))
        low, high = max(self.least, int(cells.lows.sum())), min(self.most, int(cells.highs.sum()))
        if not isinstance(band.sums, Convolution):
            depth = _WAVES
            low, high = max(low, int(mean - 6 * sd) - 2), min(high, int(mean + 6 * sd) + 2)
        if high < low:
            return band, low, np.empty(0), depth
        logs = band.sums.log_sum(np.arange(low, high + 1))
        # The largest probability of the sum may lie beyond the totals that are possible.
        known = np.flatnonzero(
            logs >= -depth + (band.sums.log_bound if isinstance(band.sums, Fourier | Inversion) else 0.0)
        )
        if len(known) == 0:
            return band, low, np.empty(0), depth
        return band, low + int(known[0]), logs[known[0] : known[-1] + 1], depth

    def _add(self, band: TiltedCells, low: int, logs: Array, depth: float) -> None:
        """Keep a band, and for every total the one that knows it best."""
        high = low + len(logs) - 1
        if not self.bands:
            self.low, self.high = low, low - 1
        first, last = min(self.low, low), max(self.high, high)
        before, after = self.low - first, last - self.high
        self._logs = np.pad(self._logs, (before, after), constant_values=-np.inf)
        self._depth = np.pad(self._depth, (before, after), constant_values=-np.inf)
        self._owner = np.pad(self._owner, (before, after))
        self.low, self.high = first, last
        here = slice(low - first, high - first + 1)
        better = logs > self._depth[here]
        x = np.arange(low, high + 1)
        products = band.cells.log_totals.sum() - band.cells.tilt * x + logs
        self._logs[here] = np.where(better, products, self._logs[here])
        self._depth[here] = np.where(better, logs, self._depth[here])
        self._owner[here] = np.where(better, len(self.bands), self._owner[here])
        self.bands.append(band)
        self._depths.append(depth)

    def start_at_mode(self, slope: Callable[[float], float]) -> int:
        """Make the first band where the sum and a weight of it together are largest, about, and return that number.

        The weight rises there by what the logarithm of the sum falls, which is the tilt.

        The search takes as many steps of Newton's method as it needs to be within half a deviation, or a few.
        """
        tilt, low, high, mean = 0.0, -np.inf, np.inf, 0.0
        for _ in range(_MOST_STEPS):
            mean, variance = self._moments(tilt)
            off = slope(mean) - tilt
            low, high = (tilt, high) if off > 0 else (low, tilt)
            bend = (slope(mean + 0.5) - slope(mean - 0.5)) * variance - 1
            step = float(np.clip(-off / min(bend, -0.05), -4, 4))
            new = tilt + step if low < tilt + step < high else (low + high) / 2
            if self._is_small or step**2 * variance <= 0.1 or not np.isfinite(new) or new in (low, high):
                break
            tilt = new
        middle = int(np.clip(round(mean), self.least, self.most))
        self.start(total=middle, tilt=tilt)
        return middle

    def start(self, *, tilt: float = 0.0, total: int | None = None) -> None:
        """Make the first band, at a tilt or where the sum is some total on average."""
        if self.bands:
            return
        if total is not None:
            tilt = self._tilt_for(total, tilt)
        band, low, logs, depth = self._band(tilt)
        if len(logs):
            self._add(band, low, logs, depth)
            return
        # At this tilt no total is possible: it is shifted towards those that are.
        self.start(total=int(np.clip(band.cells.means.sum(), self.least, self.most)))

    def solved(self, total: int) -> TiltedCells:
        """The cells of a row whose total is known."""
        assert isinstance(self.children, Cells)
        if self._solved is None or self._solved.total != total:
            self._solved = self.children.row.at(total).tilted
        return self._solved

    def _tilt_for(self, total: int, tilt: float) -> float:
        """The tilt at which the sum is `total` on average, to half of its deviation."""
        low, high, step = -np.inf, np.inf, 1.0
        for trial in range(4 * _MOST_TRIALS):
            mean, variance = self._moments(tilt)
            off = total - mean
            if off**2 <= 0.25 * variance + 1e-12:
                break
            low, high = (tilt, high) if off > 0 else (low, tilt)
            newton = tilt + off / variance if variance > 0 else np.nan
            if np.isfinite(high - low):
                tilt = newton if low < newton < high and trial % 3 else (low + high) / 2
                if tilt in (low, high):
                    break
            else:
                tilt = newton if abs(newton - tilt) < step else tilt + np.copysign(step, off)
                step *= 4
            if abs(tilt) > _STEEPEST:
                raise impossible()
        return tilt

    def cover(self, low: int, high: int) -> None:
        """Make bands until all totals between the two are known, or known to be impossible."""
        while self.low > max(low, self.least):
            self._extend(-1)
        while self.high < min(high, self.most):
            self._extend(1)

    def _extend(self, side: int) -> None:
        """Another band beyond the lowest or the highest total that is known."""
        edge = self.high if side > 0 else self.low
        number = int(self._owner[-1 if side > 0 else 0])
        last = self.bands[number]
        near, far = last.cells.tilt, side * np.inf
        deviation = np.sqrt(last.cells.variances.sum())
        step = _STEP * np.sqrt(self._depths[number]) / max(deviation, 1e-3)
        for _ in range(_MOST_TRIALS):
            tilt = (near + far) / 2 if np.isfinite(far) else near + side * step
            band, low, logs, depth = self._band(tilt)
            first, end = low, low + len(logs) - 1
            if len(logs) and first <= edge + 1 and end >= edge - 1 and (end > edge if side > 0 else first < edge):
                self._add(band, low, logs, depth)
                return
            if len(logs) and (end <= edge if side > 0 else first >= edge):
                near, step = tilt, 2 * step
            else:
                far = tilt
            if tilt in (near, far) and np.isfinite(far) and abs(far - near) <= 1e-13 * max(abs(far), 1e-300):
                break
            if abs(tilt) > _STEEPEST:
                break
        # No table has such a total, or none that doubles can tell from impossible: one is passed over.
        more = (int(side < 0), int(side > 0))
        self._logs = np.pad(self._logs, more, constant_values=-np.inf)
        self._depth = np.pad(self._depth, more, constant_values=-np.inf)
        self._owner = np.pad(self._owner, more, mode="edge")
        self.low, self.high = self.low - more[0], self.high + more[1]

    def logs(self, low: int, high: int) -> Array:
        """Logarithms of the sums of the products of all weights for the totals from `low` to `high`."""
        self.cover(low, high)
        x = np.arange(low, high + 1)
        inside = (x >= self.low) & (x <= self.high)
        return np.where(inside, self._logs[np.clip(x - self.low, 0, len(self._logs) - 1)], -np.inf)

    def given(self, total: Spread) -> list[Spread]:
        """Distributions of the children, if those of their sum is known: one for each row of its values.

        Parameters
        ----------
        total : Spread
            Several functions of the sum, shape (k, n); the first is a distribution, and the others are what its terms
            are multiplied by.
        """
        low, many = total.low, total.values.shape[-1]
        self.cover(low, low + many - 1)
        owner = self._owner[low - self.low : low - self.low + many]
        matters = total.values[0] > _NEGLIGIBLE
        parts: list[list[Spread]] = [[] for _ in range(self.size)]
        for number in np.unique(owner[matters]).tolist():
            band = self.bands[number]
            here = np.flatnonzero(matters & (owner == number))
            x = low + here
            known = np.zeros((len(total.values), here[-1] - here[0] + 1))
            known[:, here - here[0]] = total.values[:, here] * np.exp(-band.sums.log_sum(x))
            for child, found in enumerate(band.sums.spread(int(x[0]), known)):
                parts[child].append(Spread(int(band.cells.lows[child]), found))
        return [_added(each) for each in parts]

    def joint(self, child: int, numbers: Integers, totals: Integers, masses: Array) -> Array:
        """Probabilities of some numbers of a child together with some totals, whose probabilities are known."""
        owner = self._owner[totals - self.low]
        found = np.zeros((len(numbers), len(totals)))
        for number in np.unique(owner).tolist():
            band, here = self.bands[number], np.flatnonzero(owner == number)
            own = band.cells.log_pmf(numbers, np.full(len(numbers), child))
            shifted = numbers[:, None] + (band.total - totals[here])
            rest = band.sums.log_rest(shifted, np.full(shifted.shape, child))
            found[:, here] = masses[here] * np.exp(own[:, None] + rest - band.sums.log_sum(totals[here]))
        return found

    def draw(self, totals: Integers, rng: np.random.Generator) -> tuple[Integers, float]:
        """One draw of all numbers for each of some totals, shape `(len(totals), size)`, and the share accepted."""
        if self._solved is not None and (totals == self._solved.total).all():
            return draw_counts(self._solved, totals, rng)
        self.cover(int(totals.min()), int(totals.max()))
        counts = np.empty((len(totals), self.size), dtype=np.int64)
        waiting, accepted = np.argsort(totals, kind="stable"), 0.0
        while len(waiting):
            middle = int(totals[waiting[len(waiting) // 2]])
            band = self.bands[int(self._owner[middle - self.low])]
            near = self._near(band, totals[waiting])
            if isinstance(band.sums, Convolution):
                # Where proposals would be accepted too rarely, numbers are drawn one after the other.
                far = waiting[~near & (self._owner[totals[waiting] - self.low] == self._owner[middle - self.low])]
                counts[far] = band.sums.draw(totals[far], rng)
                left = ~np.isin(waiting, far)
                near, waiting, accepted = near[left], waiting[left], accepted + len(far)
            elif not near[len(waiting) // 2]:
                band = summed(self._at(self._tilt_for(middle, band.cells.tilt), CUT), middle)
                near = self._near(band, totals[waiting]) | (totals[waiting] == middle)
            if near.any():
                counts[waiting[near]], acceptance = draw_counts(band, totals[waiting[near]], rng)
                accepted += near.sum() / acceptance
            waiting = waiting[~near]
        return counts, len(totals) / accepted

    @staticmethod
    def _near(band: TiltedCells, totals: Integers) -> NDArray[np.bool_]:
        """Whether totals are nearly as probable as that of a band."""
        known = band.sums.log_sum(np.append(totals, band.total))
        near: NDArray[np.bool_] = known[:-1] > known[-1] - 2
        return near


def _added(parts: list[Spread]) -> Spread:
    """Functions added up."""
    low = min(part.low for part in parts)
    high = max(part.low + part.values.shape[-1] for part in parts)
    values = np.zeros((len(parts[0].values), high - low))
    for part in parts:
        values[:, part.low - low : part.low - low + part.values.shape[-1]] += part.values
    return Spread(low, values)


class Node:
    """A number with a weight of its own, which the children of each of its groups add up to.

    Parameters
    ----------
    groups : sequence of Group
        At least one.
    log_weight : callable
        Logarithm of the weight of each of an array of integers.
    guide : callable, optional
        The same without factors that are 0 for some numbers: where to look for the mode.
    start : callable, optional
        `start(tilt)` is a number near the mode of the weight; by default that of the first group is looked for.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        log_weight: Callable[[Array], Array],
        guide: Callable[[Array], Array] | None = None,
        *,
        most: int | None = None,
        start: Callable[[float], int] | None = None,
    ) -> None:
        self.groups, self._own, self._guide, self._start = list(groups), log_weight, guide or log_weight, start
        self.least = max(group.least for group in groups)
        self.most = min(group.most for group in groups) if most is None else most
        self._low, self._values = 0, np.empty(0)

    def _cover(self, low: int, high: int) -> None:
        if len(self._values) and self._low <= low and high < self._low + len(self._values):
            return
        if len(self._values):
            low, high = min(low, self._low), max(high, self._low + len(self._values) - 1)
        own = self._own(np.arange(low, high + 1, dtype=np.float64))
        self._low, self._values = low, own + sum(group.logs(low, high) for group in self.groups)

    def _slope(self, number: float, tilt: float) -> float:
        """By how much the logarithm of the weight rises with the number."""
        ends = np.clip([number - 0.5, number + 0.5], self.least, self.most)
        if ends[1] <= ends[0]:
            return tilt
        # Where the weight is 0 what it is elsewhere leads to where it is not.
        low, high = next((found for of in (self._own, self._guide) if np.isfinite(found := of(ends)).all()), (0.0, 0.0))
        return tilt + float(high - low) / float(ends[1] - ends[0])

    def window(self, tilt: float, cut: float) -> Spread:
        """Logarithms of the weights, all sums done, where they matter at a tilt: from its first such number on."""
        if not len(self._values):
            if self._start is None:
                middle = self.groups[0].start_at_mode(lambda number: self._slope(number, tilt))
            else:
                middle = self._start(tilt)
            middle = int(np.clip(middle, self.least, self.most))
            for group in self.groups:
                group.start(total=middle)
            sd = min(float(np.sqrt(group.bands[0].cells.variances.sum())) for group in self.groups)
            self._cover(max(self.least, int(middle - sd / 4) - 4), min(self.most, int(middle + sd / 4) + 4))
        while True:
            low, high = self._low, self._low + len(self._values) - 1
            logs = self._values + tilt * np.arange(low, high + 1)
            peak = logs.max()
            width = 1 + (high - low) // 2
            # Where nothing is possible yet both sides are looked at.
            left = low > self.least and (logs[0] > peak - cut or np.isneginf(peak))
            right = high < self.most and (logs[-1] > peak - cut or np.isneginf(peak))
            if not left and not right:
                break
            self._cover(max(self.least, low - width * left), min(self.most, high + width * right))
        if np.isneginf(peak):
            raise impossible()
        # At a steep tilt the largest is all that rounding leaves.
        inside = np.flatnonzero(logs >= peak - cut)
        return Spread(low + int(inside[0]), self._values[inside[0] : inside[-1] + 1])


@dataclass(frozen=True, eq=False)
class Root:
    """A number at the top of a tree: known, or with a prior.

    Attributes
    ----------
    group : Group
    log_weight : callable
        Logarithm of the weight of each of an array of numbers.
    guide : callable, optional
        As that of a :class:`Node`.
    total : int, optional
        The number, if it is known.
    most : int, optional
        The largest it may be, if it is not.
    """

    group: Group
    log_weight: Callable[[Array], Array]
    guide: Callable[[Array], Array] | None = None
    total: int | None = None
    most: int | None = None

    @cached_property
    def distribution(self) -> tuple[float, Spread]:
        """The logarithm of the sum of all weights, and the distribution of the number, shape (1, n)."""
        if self.total is not None:
            own = self.log_weight(np.array([float(self.total)]))
            if isinstance(self.group.children, Cells):
                logs = np.array([self.group.solved(self.total).log_sum_of_products])
            else:
                self.group.start(total=self.total)
                logs = self.group.logs(self.total, self.total)
            window = Spread(self.total, logs + own)
        else:
            window = Node([self.group], self.log_weight, self.guide, most=self.most).window(0.0, CUT)
        peak = window.values.max()
        if np.isneginf(peak):
            raise impossible()
        masses = np.exp(window.values - peak)
        return float(peak + np.log(masses.sum())), Spread(window.low, masses[None] / masses.sum())

    def draw_below(self, draws: int, rng: np.random.Generator) -> tuple[Integers, float]:
        """Independent draws of the numbers that add up to it, and the share of proposals that was accepted."""
        _, number = self.distribution
        cdf = np.cumsum(number.values[0])
        numbers = number.low + np.searchsorted(cdf, rng.random(draws) * cdf[-1], side="right")
        return self.group.draw(numbers, rng)
