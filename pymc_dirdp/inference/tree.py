"""Counts with unknown totals: a tree of sums over integers, exact up to rounding.

A leaf is a count with a weight. A :class:`Node` is an integer with a weight, and the children of each of its groups add
up to it. A group is summed at a *tilt*: all weights are multiplied by `exp(tilt * x)`, listed where they are not
negligible, and convolved. The result is accurate for a *band* of totals near the mean of the tilted sum. Bands are
added on both sides until the weight of the parent has decreased by a factor of exp(50). One pass upwards gives the
evidence. One pass downwards gives the distribution of every count, from the ratio of the posterior of each total and
its sum. Draws also go downwards, each integer given its parent.

Distributions of sums are in :mod:`pymc_dirdp.inference.lattice`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.inference.lattice import Convolved, Sums
from pymc_dirdp.inference.numbers import CUT, Lists, impossible
from pymc_dirdp.inference.rows import RowPosterior, numbers_of

_ANY = (-np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class Pmf:
    """A probability mass function, or several functions of one integer: the values from `low` on, 0 elsewhere."""

    low: int
    values: Array

    @property
    def numbers(self) -> Array:
        """The integers."""
        return self.low + np.arange(self.values.shape[-1], dtype=np.float64)

    def part(self, row: int) -> "Pmf":
        """One of several functions."""
        return Pmf(self.low, self.values[row])

    def trimmed(self, mass: float) -> "Pmf":
        """A distribution without both tails, each of which has at most this mass."""
        inside = (np.cumsum(self.values) > mass) & (np.cumsum(self.values[::-1])[::-1] > mass)
        accepted = np.flatnonzero(inside)
        return Pmf(self.low + int(accepted[0]), self.values[accepted[0] : accepted[-1] + 1])

    @property
    def mean_and_sd(self) -> tuple[float, float]:
        """Mean and standard deviation of a distribution."""
        mean = float(self.values @ self.numbers)
        return mean, float(np.sqrt(self.values @ (self.numbers - mean) ** 2))


class Cells:
    """The counts of a row as the leaves of a tree.

    Parameters
    ----------
    row : RowPosterior
        The row, with its largest possible total.
    """

    def __init__(self, row: RowPosterior) -> None:
        self.row, self.size = row, len(row.alpha)
        self.least, self.most = row.least * self.size, row.total
        # Bands of totals need many sums, so use larger units if there are units at all.
        self._most_listed = 2**20 if row.unit == 1 else 2**19
        self._numbers = numbers_of([row], self._most_listed)

    def at(self, tilt: float, cut: float, sums: tuple[float, float] = _ANY) -> Lists:
        """Distributions of the counts at a tilt, without weights below `exp(-cut)` times the largest.

        Counts that are impossible for sums in the range `sums` are also left out.
        """
        if self.size == 1:
            return self._numbers.at(tilt, cut)
        rough = self._numbers.rough(tilt)
        others = np.sqrt(np.maximum(rough.variances.sum() - rough.variances, 0.0))

        def room(lows: Integers, highs: Integers) -> tuple[Array, Array]:
            return np.asarray(sums[0] - (highs.sum() - highs)), np.asarray(sums[1] - (lows.sum() - lows))

        return self._numbers.at(tilt, cut, longest=others / 2, room=room)

    def moments(self, tilt: float) -> tuple[float, float]:
        """Approximate mean and variance of the sum of the counts."""
        cells = self._numbers.rough(tilt)
        return float(cells.means.sum()), float(cells.variances.sum())

    @property
    def rough_variances(self) -> Array:
        """Approximate variances of the counts before conditioning on a total."""
        return self._numbers.rough(0.0).variances

    def summed(self, cells: Lists) -> Sums:
        """The sum of the counts."""
        return Sums(cells, 1, self._numbers.log_weight, self._most_listed)


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
        self.bands: list[Sums] = []
        self._depths: list[float] = []
        self.low, self.high = 0, -1
        self._logs, self._depth = np.empty(0), np.empty(0)
        self._owner = np.empty(0, dtype=np.int64)

    def _at(self, tilt: float, cut: float, sums: tuple[float, float] = _ANY) -> Lists:
        if isinstance(self.children, Cells):
            return self.children.at(tilt, cut, sums)
        windows = [node.window(tilt, cut) for node in self._nodes]
        widths = np.array([window.values.shape[-1] for window in windows])
        lows = np.array([window.low for window in windows])
        return Lists.whole(lows, widths, np.concatenate([window.values for window in windows]), tilt).trimmed(cut)

    def _moments(self, tilt: float) -> tuple[float, float]:
        if isinstance(self.children, Cells):
            return self.children.moments(tilt)
        cells = self._at(tilt, CUT)
        return float(cells.means.sum()), float(cells.variances.sum())

    def _band(self, tilt: float, sums: tuple[float, float] = _ANY, little_work: float = 5e6) -> "_Band":
        """The distribution of the sum at a tilt, for sums in a range.

        Convolutions of few integers are accurate to the depth of the lists. The integers of a node are sums
        themselves, so improbable ones are not worth their time.
        """
        # The depth of the lists of the children, and the resulting depth of their sum.
        cut, depth = (CUT, 20.0) if self._nodes else (150.0, 100.0)
        cells = self._at(tilt, CUT, sums)
        deep = cells
        if cut > CUT and cells.are_whole and Convolved.work(cells) <= little_work:
            deep = self._at(tilt, cut)
        band: Sums
        if deep.are_whole and Convolved.work(deep) <= little_work and (deep is not cells or cut == CUT):
            band = Convolved(deep)
        else:
            depth = 9.0
            band = self.children.summed(cells) if isinstance(self.children, Cells) else Sums(cells)
        low = int(band.low[0])
        first = max(int(max(self.least, sums[0])) - low, 0)
        end = max(int(min(self.most, sums[1])) - low + 1, 0)
        deepest = max(depth, 27.0)
        logs = band.log_sums(float(np.exp(-deepest)))[0, first:end]
        return _Band(band, low + first, logs, depth, deepest)

    def _add(self, band: "_Band", low: int, logs: Array) -> None:
        """Add a band, and assign each total to the band that is most accurate there."""
        high = low + len(logs) - 1
        if not self.bands:
            self.low, self.high = low, low - 1
        first, last = min(self.low, low), max(self.high, high)
        before, after = self.low - first, last - self.high
        self._logs = np.pad(self._logs, (before, after), constant_values=-np.inf)
        self._depth = np.pad(self._depth, (before, after), constant_values=-np.inf)
        self._owner = np.pad(self._owner, (before, after))
        self.low, self.high = first, last
        covered = slice(low - first, high - first + 1)
        probability = band.probabilities(low, logs)
        better = probability > self._depth[covered]
        self._logs[covered] = np.where(better, logs, self._logs[covered])
        self._depth[covered] = np.where(better, probability, self._depth[covered])
        self._owner[covered] = np.where(better, len(self.bands), self._owner[covered])
        self.bands.append(band.sums)
        self._depths.append(band.depth)

    def start_at_mode(self, slope: Callable[[float], float]) -> int:
        """Make the first band near the mode of the sum times a weight, and return the mode.

        At the mode the slope of the log-weight is minus that of the log of the sum, which is the tilt.

        The search uses Newton steps until it is within about half a standard deviation.
        """
        tilt, low, high, mean = 0.0, -np.inf, np.inf, 0.0
        for _ in range(60):
            mean, variance = self._moments(tilt)
            off = slope(mean) - tilt
            low, high = (tilt, high) if off > 0 else (low, tilt)
            bend = (slope(mean + 0.5) - slope(mean - 0.5)) * variance - 1
            step = float(np.clip(-off / min(bend, -0.05), -4, 4))
            new = tilt + step if low < tilt + step < high else (low + high) / 2
            if step**2 * variance <= 0.1 or not np.isfinite(new) or new in (low, high):
                break
            tilt = new
        middle = int(np.clip(round(mean), self.least, self.most))
        self.start(total=middle, tilt=tilt)
        return middle

    def start(self, *, tilt: float = 0.0, total: int | None = None) -> None:
        """Make the first band, at a tilt or where the mean of the sum is a total."""
        if self.bands:
            return
        if total is not None:
            tilt = self._tilt_for(total, tilt)
        band = self._band(tilt)
        low, logs = band.known(band.depth)
        if len(logs):
            self._add(band, low, logs)
            return
        # No total is possible at this tilt, so shift it towards the possible totals.
        self.start(total=int(np.clip(band.sums.lists.means.sum(), self.least, self.most)))

    def _tilt_for(self, total: int, tilt: float) -> float:
        """The tilt at which the mean of the sum is `total`, to half a standard deviation."""
        low, high, step = -np.inf, np.inf, 1.0
        for trial in range(320):
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
            if abs(tilt) > 1e15:
                raise impossible()
        return tilt

    def cover(self, low: int, high: int) -> None:
        """Add bands until all totals in the range are covered."""
        while self.low > max(low, self.least):
            self._extend(-1, (low, np.inf))
        while self.high < min(high, self.most):
            self._extend(1, (-np.inf, high))

    def _extend(self, side: int, sums: tuple[float, float]) -> None:
        """Add a band beyond the lowest or the highest covered total."""
        edge = self.high if side > 0 else self.low
        number = int(self._owner[-1 if side > 0 else 0])
        last = self.bands[number]
        # At this number of standard deviations, the accuracy has about half of its depth. If a smaller range was
        # requested before, the tilt may have been too steep.
        deviation = max(float(np.sqrt(last.lists.variances.sum())), 1e-3)
        step = side * 1.2 * np.sqrt(self._depths[number]) / deviation
        tilt, near, far = float(last.lists.tilts[0]) + step, -side * np.inf, side * np.inf
        # If counts of 0 are far more probable than all others, no tilt moves from one total to the next. Then use
        # improbable sums of another tilt.
        improbable: list[tuple[float, _Band]] = []
        for _ in range(80):
            band = self._band(tilt, sums)
            depths = [depth for depth in (band.depth, 13.0, 18.0, band.deepest) if depth >= band.depth]
            reaching = next((depth for depth in depths if _reaches(edge, side, *band.known(depth))), None)
            if reaching == band.depth:
                self._add(band, *band.known(band.depth))
                return
            if reaching is not None:
                improbable.append((reaching, band))
            if len(improbable) == 6:
                break
            low, logs = band.known(band.depth)
            if len(logs) and (low + len(logs) - 1 <= edge if side > 0 else low >= edge):
                near = tilt
            else:
                far = tilt
            bounded = np.isfinite(far - near)
            if (bounded and abs(far - near) <= 1e-13 * max(abs(far), 1e-300)) or abs(tilt) > 1e15:
                break
            tilt = (near + far) / 2 if bounded else near + step if np.isfinite(near) else far - step
            step *= 1 if bounded else 2
        if improbable:
            depth, band = min(improbable, key=lambda pair: pair[0])
            self._add(band, *band.known(depth))
            return
        # This total is impossible in double precision, so skip it.
        widths = (int(side < 0), int(side > 0))
        self._logs = np.pad(self._logs, widths, constant_values=-np.inf)
        self._depth = np.pad(self._depth, widths, constant_values=-np.inf)
        self._owner = np.pad(self._owner, widths, mode="edge")
        self.low, self.high = self.low - widths[0], self.high + widths[1]

    def logs(self, low: int, high: int) -> Array:
        """Logarithms of the sums of the products of all weights for the totals from `low` to `high`."""
        self.cover(low, high)
        x = np.arange(low, high + 1)
        inside = (x >= self.low) & (x <= self.high)
        return np.where(inside, self._logs[np.clip(x - self.low, 0, len(self._logs) - 1)], -np.inf)

    def child_points(self, total: Pmf) -> list[tuple[Lists, Array]]:
        """The distributions of the children given that of their sum: points of each, and their masses.

        Parameters
        ----------
        total : Pmf
            k functions of the sum, shape (k, n). The first is its distribution, and the others are this distribution
            times some function.

        Returns
        -------
        parts : list of (Lists, array of shape (k, points))
            One part for each band that covers some of the distribution; the parts add up.
        """
        low, length = total.low, total.values.shape[-1]
        self.cover(low, low + length - 1)
        owner = self._owner[low - self.low : low - self.low + length]
        # Smaller masses are negligible.
        matters = total.values[0] > 1e-18
        parts: list[tuple[Lists, Array]] = []
        for number in np.unique(owner[matters]).tolist():
            band = self.bands[number]
            places = np.flatnonzero(matters & (owner == number))
            x = low + places
            known = np.zeros((len(total.values), 1, places[-1] - places[0] + 1))
            known[:, 0, places - places[0]] = total.values[:, places] * np.exp(-self._depth[x - self.low])
            parts.append((band.lists, band.cell_masses(x[:1], known)))
        return parts

    def child_pmfs(self, total: Pmf) -> list[Pmf]:
        """:meth:`child_points` of nodes as functions of each child, shape (k, numbers)."""
        parts = self.child_points(total)
        return [
            added(
                [
                    Pmf(int(lists.lows[child]), masses[:, lists.starts[child] : lists.starts[child + 1]])
                    for lists, masses in parts
                ]
            )
            for child in range(self.size)
        ]

    def draw(self, totals: Integers, rng: np.random.Generator) -> Integers:
        """One draw of all numbers for each total, shape `(len(totals), size)`."""
        self.cover(int(totals.min()), int(totals.max()))
        counts = np.empty((len(totals), self.size), dtype=np.int64)
        owner = self._owner[totals - self.low]
        for number in np.unique(owner).tolist():
            draws_of_band = owner == number
            counts[draws_of_band] = self.bands[number].draw(totals[draws_of_band][:, None], rng)[:, 0]
        return counts


def _reaches(edge: int, side: int, low: int, logs: Array) -> bool:
    """Whether numbers from `low` on adjoin the last covered number and go beyond it."""
    high = low + len(logs) - 1
    beyond = high > edge if side > 0 else low < edge
    return bool(len(logs)) and low <= edge + 1 and high >= edge - 1 and beyond


@dataclass(frozen=True, eq=False)
class _Band:
    """A sum at a tilt, and logarithms of the sums of products of weights from `low` on.

    Attributes
    ----------
    sums : Sums
    low : int
    logs : array
        -inf where only rounding error remains.
    depth : float
        Probabilities above `exp(-depth)` times the largest are accurate.
    deepest : float
        Probabilities above `exp(-deepest)` times the largest are accurate to some digits.
    """

    sums: Sums
    low: int
    logs: Array
    depth: float
    deepest: float

    def probabilities(self, low: int, logs: Array) -> Array:
        """Logarithms of the probabilities of the numbers from `low` on."""
        lists = self.sums.lists
        return np.asarray(logs - lists.log_totals.sum() + lists.tilts[0] * np.arange(low, low + len(logs)))

    def known(self, depth: float) -> tuple[int, Array]:
        """The range from the first to the last number of this depth. Numbers between them may be less probable."""
        least = np.log(self.sums.pmf.max()) - depth
        inside = np.flatnonzero(self.probabilities(self.low, self.logs) > least)
        if not len(inside):
            return self.low, np.empty(0)
        return self.low + int(inside[0]), self.logs[inside[0] : inside[-1] + 1]


def added(parts: list[Pmf]) -> Pmf:
    """The sum of functions."""
    low = min(part.low for part in parts)
    high = max(part.low + part.values.shape[-1] for part in parts)
    values = np.zeros((len(parts[0].values), high - low))
    for part in parts:
        values[:, part.low - low : part.low - low + part.values.shape[-1]] += part.values
    return Pmf(low, values)


class Node:
    """A weighted number that is the sum of the children of each of its groups.

    Parameters
    ----------
    groups : sequence of Group
        At least one.
    log_weight : callable
        Logarithm of the weight of each integer in an array.
    guide : callable, optional
        `log_weight` without factors that are 0 for some numbers. It guides the search for the mode and for numbers
        beyond impossible ones.
    start : callable, optional
        `start(tilt)` is a number near the mode of the weight. By default the first group is searched.
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
        self.groups, self._log_weight, self._guide, self._start = list(groups), log_weight, guide or log_weight, start
        self.least = max(group.least for group in groups)
        self.most = min(group.most for group in groups) if most is None else most
        self._low, self._values, self._bounds = 0, np.empty(0), np.empty(0)

    def _cover(self, low: int, high: int) -> None:
        if len(self._values) and self._low <= low and high < self._low + len(self._values):
            return
        if len(self._values):
            low, high = min(low, self._low), max(high, self._low + len(self._values) - 1)
        x = np.arange(low, high + 1, dtype=np.float64)
        logs, sums = self._log_weight(x), sum(group.logs(low, high) for group in self.groups)
        # There may be possible numbers beyond an impossible one.
        bounds = logs if np.isfinite(logs[[0, -1]]).all() else self._guide(x)
        self._low, self._values, self._bounds = low, logs + sums, bounds + sums

    def _slope(self, number: float, tilt: float) -> float:
        """Slope of the log-weight in the number."""
        ends = np.clip([number - 0.5, number + 0.5], self.least, self.most)
        if ends[1] <= ends[0]:
            return tilt
        # Where the weight is 0, the guide leads to numbers with a positive weight.
        low, high = next(
            (logs for function in (self._log_weight, self._guide) if np.isfinite(logs := function(ends)).all()),
            (0.0, 0.0),
        )
        return tilt + float(high - low) / float(ends[1] - ends[0])

    def window(self, tilt: float, cut: float) -> Pmf:
        """Logarithms of the weights times the sums of the groups, where they are not negligible at a tilt."""
        if not len(self._values):
            if self._start is None:
                middle = self.groups[0].start_at_mode(lambda number: self._slope(number, tilt))
            else:
                middle = self._start(tilt)
            middle = int(np.clip(middle, self.least, self.most))
            for group in self.groups:
                group.start(total=middle)
            sd = min(float(np.sqrt(group.bands[0].lists.variances.sum())) for group in self.groups)
            self._cover(max(self.least, int(middle - sd / 4) - 4), min(self.most, int(middle + sd / 4) + 4))
        while True:
            low, high = self._low, self._low + len(self._values) - 1
            logs = self._values + tilt * np.arange(low, high + 1)
            peak = logs.max()
            bounds = self._bounds[[0, -1]] + tilt * np.array([low, high])
            width = 1 + (high - low) // 2
            # If no number is possible yet, extend on both sides.
            left = low > self.least and (bounds[0] > peak - cut or np.isneginf(peak))
            right = high < self.most and (bounds[1] > peak - cut or np.isneginf(peak))
            if not left and not right:
                break
            self._cover(max(self.least, low - width * left), min(self.most, high + width * right))
        if np.isneginf(peak):
            raise impossible()
        # At a steep tilt rounding leaves only the largest.
        inside = np.flatnonzero(logs >= peak - cut)
        return Pmf(low + int(inside[0]), self._values[inside[0] : inside[-1] + 1])


@dataclass(frozen=True, eq=False)
class Root:
    """The number at the root of a tree, known or with a prior.

    Attributes
    ----------
    group : Group
    log_weight : callable
        Logarithm of the weight of each number in an array.
    guide : callable, optional
        See :class:`Node`.
    total : int, optional
        The number, if it is known.
    most : int, optional
        The upper bound of a private number.
    """

    group: Group
    log_weight: Callable[[Array], Array]
    guide: Callable[[Array], Array] | None = None
    total: int | None = None
    most: int | None = None

    @cached_property
    def distribution(self) -> tuple[float, Pmf]:
        """The logarithm of the sum of all weights, and the distribution of the number, shape (1, n)."""
        if self.total is not None:
            logs = self.log_weight(np.array([float(self.total)]))
            self.group.start(total=self.total)
            window = Pmf(self.total, self.group.logs(self.total, self.total) + logs)
        else:
            window = Node([self.group], self.log_weight, self.guide, most=self.most).window(0.0, CUT)
        peak = window.values.max()
        if np.isneginf(peak):
            raise impossible()
        masses = np.exp(window.values - peak)
        return float(peak + np.log(masses.sum())), Pmf(window.low, masses[None] / masses.sum())

    def draw_below(self, draws: int, rng: np.random.Generator) -> Integers:
        """Independent draws of the numbers that sum to it, shape (draws, size)."""
        _, number = self.distribution
        cdf = np.cumsum(number.values[0])
        numbers = number.low + np.searchsorted(cdf, rng.random(draws) * cdf[-1], side="right")
        return self.group.draw(numbers, rng)
