"""The law of a sum of independent whole numbers, number by number: exact to rounding, also where it is improbable."""

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.inference.listed import Listed
from pymc_dirdp.inference.number_laws import NumberLaws

__all__ = ["Convolution"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# So many doubles are kept at most; 32 megabytes.
_MOST_KEPT = 4_000_000
# So many products are looked at together where draws have totals of their own.
_AT_A_TIME = 2**18
# If so many draws have the same total on average, they are drawn together.
_ALIKE = 8


class Convolution:
    """Sums of some of the distributions of `cells`, and of all but one, from the probabilities of every number.

    Products of probabilities are added up and nothing is subtracted, so every result has a small relative error. A
    Fourier transform has a small absolute error only.

    Parameters
    ----------
    cells : NumberLaws
        Settled.
    total : int
        The total that sums of all but one cell are compared with.
    """

    @staticmethod
    def work(cells: NumberLaws) -> float:
        """The number of products that all sums take; infinite if they take too much memory."""
        widths = np.sort((cells.highs - cells.lows + 1).astype(np.float64))
        ends = np.cumsum(widths)
        if 2 * ends.sum() > _MOST_KEPT:
            return np.inf
        before = np.concatenate([[0.0], ends[:-1]])
        after = ends[-1] - ends
        return float(np.sum(widths * (before + after) + before * after))

    def __init__(self, cells: NumberLaws, total: int) -> None:
        self._order = np.argsort(cells.highs - cells.lows, kind="stable")
        self._lows = cells.lows[self._order]
        self._pmfs = [_pmf(cells, int(i)) for i in self._order]
        self._low, self._total = int(cells.lows.sum()), total
        self._prefix = _running(self._pmfs)
        self._all_lows = cells.lows
        self._rest: Array | None = None
        self._sizes = np.empty(0, dtype=np.int64)

    def log_sum(self, totals: Integers) -> Array:
        """Logarithm of the probability that all cells add up to each of some totals."""
        return _looked_up(self._prefix[-1], totals - self._low)

    def log_rest(self, x: Array, cell: Integers) -> Array:
        """Logarithm of the probability that all cells but this one add up to `total - x`."""
        if self._rest is None:
            self._rest = self._all_but_one()
        offset = self._total - np.asarray(x, dtype=np.int64) - (self._low - self._all_lows[cell])
        inside = (offset >= 0) & (offset < self._sizes[cell])
        place = (np.cumsum(self._sizes) - self._sizes)[cell] + np.where(inside, offset, 0)
        with np.errstate(divide="ignore"):
            return np.where(inside, np.log(self._rest[place]), -np.inf)

    def _all_but_one(self) -> Array:
        """The distributions of the sums of all cells but one, one behind the other in the order of the cells."""
        suffix = _running(self._pmfs[::-1])
        parts: list[Array] = [np.empty(0)] * len(self._pmfs)
        for place, i in enumerate(self._order):
            parts[i] = np.convolve(self._prefix[place], suffix[len(self._pmfs) - 1 - place])
        self._sizes = np.array([len(part) for part in parts])
        return np.concatenate(parts)

    def spread(self, low: int, known: Array) -> list[Array]:
        """What functions of the sum, shape `(k, n)` from `low` on, say of each cell, shape `(k, numbers)`.

        They are the sums over all other cells of the function times all probabilities.
        """
        of_sum = np.zeros((len(known), len(self._prefix[-1])))
        start = low - self._low
        of_sum[:, start : start + known.shape[1]] = known
        parts: list[Array] = [np.empty(0)] * len(self._pmfs)
        for place in range(len(self._pmfs) - 1, -1, -1):
            pmf, before = self._pmfs[place], self._prefix[place]
            parts[self._order[place]] = np.stack([np.correlate(one, before, "valid") * pmf for one in of_sum])
            of_sum = np.stack([np.correlate(one, pmf, "valid") for one in of_sum])
        return parts

    def draw(self, totals: Integers, rng: np.random.Generator) -> Integers:
        """For each total, one draw of all cells given that they add up to it, shape `(len(totals), d)`.

        The last cell is drawn given the total, then the one before given what is left, and so on.
        """
        counts = np.empty((len(totals), len(self._pmfs)), dtype=np.int64)
        left = totals - self._low
        for place in range(len(self._pmfs) - 1, -1, -1):
            pmf, before = self._pmfs[place], self._prefix[place]
            drawn = _drawn(pmf, before, left, rng)
            left = left - drawn
            counts[:, self._order[place]] = self._lows[place] + drawn
        return counts


def _pmf(cells: NumberLaws, i: int) -> Array:
    if isinstance(cells, Listed):
        return cells.pmf(i)
    x = np.arange(cells.lows[i], cells.highs[i] + 1, dtype=np.float64)
    return np.exp(cells.log_pmf(x, np.full(len(x), i)))


def _running(pmfs: list[Array]) -> list[Array]:
    """The distribution of the sum of the first 0, 1, ... of some distributions."""
    sums = [np.ones(1)]
    for pmf in pmfs:
        sums.append(np.convolve(sums[-1], pmf))
    return sums


def _drawn(pmf: Array, before: Array, left: Integers, rng: np.random.Generator) -> Integers:
    """One number of the law `pmf` for each of some sums, given that another number of the law `before` is the rest."""
    drawn = np.empty(len(left), dtype=np.int64)
    distinct, which = np.unique(left, return_inverse=True)
    if len(left) >= _ALIKE * len(distinct):
        for i, n in enumerate(distinct.tolist()):
            first, last = max(0, n - len(before) + 1), min(n, len(pmf) - 1)
            weights = pmf[first : last + 1] * before[n - last : n - first + 1][::-1]
            same = np.flatnonzero(which == i)
            cdf = np.cumsum(weights / weights.max())
            drawn[same] = first + np.searchsorted(cdf, rng.random(len(same)) * cdf[-1], side="right")
        return drawn
    order = np.argsort(left, kind="stable")
    while len(order):
        # The largest sums first, as many as fit.
        width = min(int(left[order[-1]]) + 1, len(pmf))
        now, order = order[-max(1, _AT_A_TIME // width) :], order[: -max(1, _AT_A_TIME // width)]
        x = np.arange(width)
        rest = left[now][:, None] - x
        possible = (rest >= 0) & (rest < len(before))
        weights = np.where(possible, pmf[:width] * before[np.where(possible, rest, 0)], 0.0)
        cdf = np.cumsum(weights / weights.max(axis=1, keepdims=True), axis=1)
        level = rng.random(len(now)) * cdf[:, -1]
        drawn[now] = np.sum(cdf <= level[:, None], axis=1)
    return drawn


def _looked_up(pmf: Array, offset: Integers) -> Array:
    inside = (offset >= 0) & (offset < len(pmf))
    with np.errstate(divide="ignore"):
        return np.where(inside, np.log(pmf[np.where(inside, offset, 0)]), -np.inf)
