"""What a release says of counts and shares, without sampling: means, standard deviations and intervals."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, final

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import open_unit_interval
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import CUT, Distributions, Listed
from pymc_dirdp.inference.quantiles import Mixture, count_quantiles, share_mixture, share_quantiles
from pymc_dirdp.inference.tree import Spread
from pymc_dirdp.sampling.fast import dirichlet

# Counts and totals beyond which there is less probability are left out of a mixture.
_NEGLIGIBLE = 1e-13
# Up to so many pairs of both are all looked at for each cell: as many as take some two seconds for all cells together,
# between bounds. With the fewer of them an end of a 95 % interval of 20 x 5 Dirichlet draws moves by .0014 deviations.
_ALL_PAIRS, _FEWEST_PAIRS, _MOST_PAIRS = 3_000_000, 30_000, 400_000
# The masses of so many pairs, of all cells and of one, are collected at fewer pairs; of more pairs, some are looked at.
# So many masses are found at a time.
_ALL_MASSES, _MOST_MASSES, _AT_A_TIME = 2**26, 2**24, 2**20
# A step over the deviation of a share, the part of a deviation given another number that counts, and the product of
# steps from which on few pairs of any distance take less time than runs of all.
_STEP, _GIVEN, _WORTH = 0.7, 0.65, 16
# With a larger error of the masses, sums over some pairs are no sums over all.
_TRAPEZOID = 1e-10
# The length of a block of numbers, in deviations, that of one with any masses, and the points of a block.
_LENGTH, _LONG, _NODES = 2.0, 6.0, 14


@dataclass(frozen=True, eq=False)
class Draws:
    """Independent draws from the distribution of a row given an output.

    Attributes
    ----------
    counts : array of int, shape (draws, d)
        Each row adds up to the total.
    shares : array, shape (draws, d)
        Each row is positive and adds up to 1.
    acceptance : float
        The share of proposals that was accepted, in (0, 1]; how many draws are worth one does not depend on it.
    effective : float or None
        How many independent draws these are worth; None where they are independent.
    """

    counts: Integers
    shares: Array
    acceptance: float
    effective: float | None = None


def draw_shares(counts: Integers, alpha: Array, rng: np.random.Generator) -> Array:
    """One draw of the shares for each row of counts: `Dirichlet(alpha + counts)`, shape of `counts`."""
    shares: Array = dirichlet(alpha + counts, 1, rng)[0]
    return shares


@dataclass(frozen=True, eq=False)
class Estimate:
    """Summaries of one row, or of rows that follow one another, given an output.

    Attributes
    ----------
    share_means, share_sds, count_means, count_sds : array, shape (d,)
        Means and standard deviations of the shares `p` and of the counts `x`.
    prob : array, shape (m,)
        Probabilities of the intervals.
    count_intervals : array of int, shape (m, d, 2)
        Central intervals of the counts, both ends included; they hold at least the stated probability.
    log_evidence : float
        Logarithm of the probability or density of the output.
    share_quantiles : callable
        Quantiles of the shares, shape `(levels, d)`, at an array of levels: what takes most of the time.
    caveat : str
        What these are if not sums, and what of them should not be trusted; empty for sums.
    """

    share_means: Array
    share_sds: Array
    count_means: Array
    count_sds: Array
    prob: Array
    count_intervals: Integers
    log_evidence: float
    share_quantiles: Callable[[Array], Array] = field(repr=False)
    caveat: str = ""

    @cached_property
    def share_intervals(self) -> Array:
        """Central intervals of the shares, shape (m, d, 2)."""
        low, high = np.split(self.share_quantiles(np.concatenate([(1 - self.prob) / 2, (1 + self.prob) / 2])), 2)
        return np.stack([low, high], axis=-1)


def listed(cells: Sequence[Spread]) -> Listed:
    """Distributions of counts in one."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.concatenate([cell.values for cell in cells]))
    widths = np.array([len(cell.values) for cell in cells])
    return Listed(np.array([cell.low for cell in cells]), widths, logs, 0.0, CUT)


@final
@dataclass(frozen=True, eq=False)
class KnownRows:
    """Rows whose totals are known, and the distributions of their counts.

    Attributes
    ----------
    alpha : array, shape (rows, d)
        The priors of the shares.
    totals : array of int, shape (rows,)
    counts : Distributions
        Of all cells, row by row.
    """

    alpha: Array
    totals: Integers
    counts: Distributions

    @property
    def share_moments(self) -> tuple[Array, Array]:
        """Means and standard deviations of the shares."""
        size = np.repeat(self.alpha.sum(axis=1) + self.totals, self.alpha.shape[1])
        if self.alpha.shape[1] == 1:
            return np.ones(len(size)), np.zeros(len(size))
        mean = (self.alpha.ravel() + self.counts.means) / size
        return mean, np.sqrt((mean * (1 - mean) + self.counts.variances / size) / (size + 1))

    def share_quantiles(self, levels: Array, cells: int) -> Array:
        """Quantiles of the shares, shape `(levels, cells)`."""
        return share_quantiles(share_mixture(self.counts, self.alpha, self.totals), levels)


@final
class RowGiven:
    """A row whose total is not known, but its distribution: sums over all counts and totals.

    Parameters
    ----------
    alpha : array, shape (d,)
        The prior of the shares.
    total : Spread
        The distribution of the total, shape (1, n).
    given : callable
        As :meth:`Group.given`, of the cells.
    joint : callable
        As :meth:`Group.joint`, for quantiles of the shares; None where they are not asked for.
    """

    def __init__(
        self,
        alpha: Array,
        total: Spread,
        given: Callable[[Spread], list[Spread]],
        joint: Callable[[int, Integers, Integers, Array], Array] | None,
    ) -> None:
        self._alpha, self._total, self._given, self._joint = alpha, total, given, joint

    @cached_property
    def _cells(self) -> list[Spread]:
        """Of each count the distribution, and the same with the expected 1 / (a0 + n) and 1 / ((a0 + n) (a0 + n + 1)).

        The moments of a share given its count x and the total n are (a + x) / (a0 + n), and so on.
        """
        size = self._alpha.sum() + self._total.numbers
        masses = self._total.values[0]
        return self._given(Spread(self._total.low, np.stack([masses, masses / size, masses / (size * (size + 1))])))

    @cached_property
    def counts(self) -> Distributions:
        """The distributions of the counts."""
        return listed([cell.part(0) for cell in self._cells])

    @cached_property
    def share_moments(self) -> tuple[Array, Array]:
        """Means and standard deviations of the shares."""
        if len(self._alpha) == 1:
            return np.ones(1), np.zeros(1)
        shapes = [cell.numbers + a for cell, a in zip(self._cells, self._alpha, strict=True)]
        mean = np.array([cell.values[1] @ u for cell, u in zip(self._cells, shapes, strict=True)])
        square = np.array([cell.values[2] @ (u * (u + 1)) for cell, u in zip(self._cells, shapes, strict=True)])
        return mean, np.sqrt(np.maximum(square - mean**2, 0.0))

    def share_quantiles(self, levels: Array, cells: int) -> Array:
        """Quantiles of the shares, shape `(levels, d)`; of so many cells in all rows."""
        most = min(max(_ALL_PAIRS // cells, _FEWEST_PAIRS), _MOST_PAIRS)
        collected = min(_ALL_MASSES // cells, _MOST_MASSES)
        return np.concatenate([self._share(cell, levels, most, collected) for cell in range(len(self._alpha))], axis=1)

    def _share(self, cell: int, levels: Array, most: int, collected: int) -> Array:
        """Quantiles of one share, shape `(levels, 1)`.

        Of a mixture over all counts and totals, or over `most` pairs, at which the masses of all are collected if these
        are up to `collected`.
        """
        alpha, others = float(self._alpha[cell]), float(np.delete(self._alpha, cell).sum())
        count, total = self._cells[cell].part(0).trimmed(_NEGLIGIBLE), self._total.part(0).trimmed(_NEGLIGIBLE)
        middle = total.mean_and_sd[0]
        # That of a category alone is 1, and not above it by rounding.
        share = min((alpha + count.mean_and_sd[0]) / (alpha + others + middle), 1.0)
        assert self._joint is not None
        pairs = len(count.values) * len(total.values)
        every, whole, squared = pairs <= most, False, _LENGTH**2
        if (grid := self._grid(cell, count, total, share)) is not None:
            every, (x, n, masses) = False, grid
        elif pairs <= max(collected, most):
            x, n = (dist.low + np.arange(len(dist.values)) for dist in (count, total))
            parts = np.array_split(x, 1 + pairs // _AT_A_TIME)
            masses = np.concatenate([self._joint(cell, part, n, total.values) for part in parts])
            whole, every = True, every or int(np.count_nonzero(masses > _NEGLIGIBLE / len(n))) <= most
        else:
            while True:
                # Of more pairs some, which are nearer to one another than the deviations of a share, in both numbers.
                x, of_count = _points(count, squared, lambda at: min(at, abs(middle - at) + 1))
                n, of_total = _points(total, squared, lambda at: (1 / share - 1) * at)
                if len(x) * len(n) <= most:
                    break
                squared *= 4
            masses = self._joint(cell, x, n, total.values[n - total.low] * of_total) * of_count[:, None]
        matters = np.abs(masses) > _NEGLIGIBLE / len(n)
        if not whole or every:
            # Of each count a run of totals, from the first to the last that matters.
            last = matters.shape[1] - matters[:, ::-1].argmax(axis=1)
            column = np.arange(len(n))
            some = matters.any(axis=1)[:, None]
            matters = (column >= matters.argmax(axis=1)[:, None]) & (column < last[:, None]) & some
        row, place = np.nonzero(matters)
        first, second = np.asarray(alpha + x[row], dtype=np.float64), np.asarray(others + (n[place] - x[row]))
        masses = masses[row, place]
        if whole and not every:
            first, second, masses = _collected(first, second, masses, most)
        masses = masses / masses.sum()
        mixture = Mixture(first, second, masses, np.zeros(len(masses), dtype=np.int64), 1)
        if every:
            runs = np.append(True, np.diff(row) > 0)
            after = np.cumsum(masses[::-1])[::-1] - masses
            ends = np.append(np.flatnonzero(runs)[1:], len(row)) - 1
            tails = np.maximum(after - after[ends][np.cumsum(runs) - 1], 0.0) / np.maximum(second, 1e-300)
            mixture = replace(mixture, tails=tails, runs=runs)
        return share_quantiles(mixture, levels)

    def _grid(self, cell: int, count: Spread, total: Spread, share: float) -> tuple[Integers, Integers, Array] | None:
        """Counts, totals, and masses of pairs that add up smooth functions of all pairs; None where they are too many.

        The rule is the trapezoid's, whose error falls faster than any power of the steps. They are short beside the
        deviations of the share, given either number, and of each number given the other. With twice the steps the
        masses must still add up, which they do not where there are kinks, or counts near 0.
        """
        (mean, sd), (_, sd_of_total) = count.mean_and_sd, total.mean_and_sd
        beta, others = np.sqrt((self._alpha[cell] + mean) * (1 - share)), np.sqrt(max(sd_of_total**2 - sd**2, 0.0))
        widths = min(beta, _GIVEN * sd * others / max(sd_of_total, 1e-300)), min(beta / share, _GIVEN * others)
        steps = [max(1, int(_STEP * width)) for width in widths]
        if steps[0] * steps[1] < _WORTH:
            return None
        assert self._joint is not None
        x, n = (
            dist.low + np.arange(0, len(dist.values), step) for dist, step in zip((count, total), steps, strict=True)
        )
        masses = self._joint(cell, x, n, total.values[n - total.low]) * (steps[0] * steps[1])
        half = 4 * masses[::2, ::2]
        of_count: Array = half.sum(axis=1)
        off = abs(float(of_count.sum()) - 1), abs(float(of_count @ (x[::2] - mean))) / max(sd, 1.0)
        return (x, n, masses) if max(off) < _TRAPEZOID else None


def _points(dist: Spread, squared: float, variance: Callable[[int], float]) -> tuple[Integers, Array]:
    """Numbers, and weights with which they add up smooth functions of all numbers of a distribution.

    These are polynomials on a block that is no longer than the root of `squared * variance`, and a long block has
    Chebyshev's points among its numbers. Where there are kinks, as in Laplace noise, sums are off by thousandths.
    """
    found: list[tuple[Integers, Array]] = []
    start, end = dist.low, dist.low + len(dist.values)
    while start < end:
        size = min(int(np.sqrt(squared * max(variance(start), 0.0))), end - start)
        if size <= 2 * _NODES:
            size = min(_NODES, end - start)
            found.append((start + np.arange(size, dtype=np.int64), np.ones(size)))
        else:
            places, onto = _block(size)
            found.append((start + places, onto.sum(axis=1)))
        start += size
    points = np.concatenate([places for places, _ in found])
    return points, np.concatenate([each for _, each in found])


@lru_cache(maxsize=256)
def _block(size: int) -> tuple[Integers, Array]:
    """Places in a block of numbers, and what a polynomial's value at each adds to that at every number."""
    level = (1 - np.cos(np.pi * np.arange(_NODES) / (_NODES - 1))) / 2
    places = np.unique(np.rint((size - 1) * level).astype(np.int64))
    polynomials = chebvander(2 * np.arange(size) / (size - 1) - 1, len(places) - 1)
    return places, np.asarray(np.linalg.solve(polynomials[places].T, polynomials.T), dtype=np.float64)


def _collected(first: Array, second: Array, masses: Array, most: int) -> tuple[Array, Array, Array]:
    """Of pairs of parameters some, at most so many, and masses for which smooth functions have the same mean.

    The pairs are cut into rectangles until no side of many numbers is longer than some deviations of a share, in terms
    of that parameter. Distribution functions of the shares are polynomials there, whatever the masses are.
    """
    least, length = np.array([first.min(), second.min()]), _LONG
    row, column = (np.rint(one - low).astype(np.int64) for one, low in zip((first, second), least, strict=True))
    table = np.zeros((row.max() + 1, column.max() + 1))
    table[row, column] = masses
    while True:
        found: list[tuple[Array, Array, Array]] = []
        waiting = [(least, table)]
        while waiting:
            corner, part = waiting.pop()
            if not part.any():
                continue
            # Deviations where they are least.
            across = corner[::-1] + part.shape[::-1]
            sides = np.where(np.array(part.shape) > _NODES, part.shape / np.sqrt(corner * (1 + corner / across)), 0.0)
            longer = int(sides.argmax())
            if sides[longer] > length:
                half = part.shape[longer] // 2
                one, other = np.split(part, [half], axis=longer)
                waiting += [(corner, one), (corner + half * np.eye(2)[longer], other)]
                continue
            places = [np.arange(size) for size in part.shape]
            if sides[0]:
                places[0], onto = _block(len(part))
                part = onto @ part
            if sides[1]:
                places[1], onto = _block(part.shape[1])
                part = part @ onto.T
            row, column = np.nonzero(np.abs(part) > _NEGLIGIBLE / len(table))
            found.append((corner[0] + places[0][row], corner[1] + places[1][column], part[row, column]))
        if sum(len(part) for *_, part in found) <= most:
            first, second, collected = (np.concatenate(values) for values in zip(*found, strict=True))
            return first, second, collected
        length *= 2


def estimate_of_rows(
    parts: Sequence[KnownRows | RowGiven], prob: Sequence[float], log_evidence: float, order: Integers | None = None
) -> Estimate:
    """Summaries of rows, whose cells follow one another.

    Parameters
    ----------
    parts : sequence of KnownRows or RowGiven
    prob : sequence of float
        Probabilities of the intervals.
    log_evidence : float
    order : array of int, shape (cells,), optional
        The place of each cell among those of all parts; by default they are in order.
    """
    levels, ends = interval_ends(prob)
    cells = sum(part.counts.size for part in parts)
    place = np.arange(cells) if order is None else order

    def together(values: Iterable[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(list(values), axis=-1)[..., place]

    moments = [part.share_moments for part in parts]
    least, most = np.split(together(count_quantiles(part.counts, ends) for part in parts), 2)
    return Estimate(
        share_means=together(mean for mean, _ in moments),
        share_sds=together(sd for _, sd in moments),
        count_means=together(part.counts.means for part in parts),
        count_sds=np.sqrt(together(part.counts.variances for part in parts)),
        prob=levels,
        count_intervals=np.stack([least, most], axis=-1),
        log_evidence=log_evidence,
        share_quantiles=lambda ends: together(part.share_quantiles(ends, cells) for part in parts),
    )


def summarised(
    draws: Draws,
    alpha: Array | None,
    prob: Sequence[float],
    log_evidence: float,
    caveat: str = "averages over exact draws",
) -> Estimate:
    """The same summaries of draws. Cells of all rows follow one another.

    Parameters
    ----------
    draws : Draws
        Of shape `(draws, ..., d)`.
    alpha : array, shape (..., d), or None
        Prior of the shares; None if it is no Dirichlet distribution.
    prob : sequence of float
        Probabilities of the intervals.
    log_evidence : float
    caveat : str, optional
        What is said of the averages.
    """
    levels, ends = interval_ends(prob)
    counts, shares = (values.reshape(len(values), -1) for values in (draws.counts, draws.shares))
    means, inner = shares, np.zeros(shares.shape)
    if alpha is not None:
        # Given its counts the mean and the variance of a share are known, which leaves less to chance.
        first, size = alpha + draws.counts, (alpha + draws.counts).sum(axis=-1, keepdims=True)
        means = (first / size).reshape(len(counts), -1)
        inner = (first * (size - first) / (size**2 * (size + 1))).reshape(len(counts), -1)
    least, most = np.split(np.quantile(counts, ends, axis=0, method="inverted_cdf"), 2)
    return Estimate(
        share_means=means.mean(axis=0),
        share_sds=np.sqrt(inner.mean(axis=0) + means.var(axis=0)),
        count_means=counts.mean(axis=0),
        count_sds=counts.std(axis=0),
        prob=levels,
        count_intervals=np.stack([least, most], axis=-1),
        log_evidence=log_evidence,
        share_quantiles=lambda ends: np.quantile(shares, ends, axis=0),
        caveat=caveat,
    )


def interval_ends(prob: Sequence[float]) -> tuple[Array, Array]:
    """Probabilities of intervals, and those of all lower and then all upper ends."""
    if len(prob) == 0:
        raise ArgumentError("Expected prob to hold at least one probability, got none.")
    levels = np.array([open_unit_interval(prob=p) for p in prob])
    return levels, np.concatenate([(1 - levels) / 2, (1 + levels) / 2])
