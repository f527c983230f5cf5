"""Sums of independent integers: the distribution of the sum, of the sum of all but one, and what it says of each.

Where numbers are few they are *convolved*: products of probabilities are added up, so every result has a small relative
error. So has that of a *pair*, which is a single sum. Otherwise there are characteristic functions: at a few points, by
*inversion*, where sums are nearly normal, or at as many as the sum has numbers, by *Fourier* transforms. Their error is
1e-16 of the largest probability, so they are asked for totals near the mean of the sum alone.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy  # which loads scipy.fft where it is used, and not before
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import Distributions, Listed

Complex = NDArray[np.complex128]

# So many doubles are cached at most; 32 megabytes.
_MOST_CACHED = 4_000_000
# So many products are looked at together, and so many distributions that numbers are drawn from.
_AT_A_TIME, _PAIRS = 2**16, 2**12


class Convolution:
    """Sums of some of the distributions of `cells`, and of all but one, from the probabilities of every number.

    Products of probabilities are added up and nothing is subtracted, so every result has a small relative error. A
    Fourier transform has a small absolute error only.

    Parameters
    ----------
    cells : Distributions
        Settled.
    total : int
        The total that sums of all but one cell are compared with.
    """

    @staticmethod
    def work(cells: Distributions) -> float:
        """The number of products that all sums take; infinite if they take too much memory."""
        widths = np.sort((cells.highs - cells.lows + 1).astype(np.float64))
        ends = np.cumsum(widths)
        if 2 * ends.sum() > _MOST_CACHED:
            return np.inf
        before = np.concatenate([[0.0], ends[:-1]])
        after = ends[-1] - ends
        return float(np.sum(widths * (before + after) + before * after))

    def __init__(self, cells: Distributions, total: int) -> None:
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
        pmf, offset = self._prefix[-1], totals - self._low
        inside = (offset >= 0) & (offset < len(pmf))
        with np.errstate(divide="ignore"):
            return np.where(inside, np.log(pmf[np.where(inside, offset, 0)]), -np.inf)

    def log_rest(self, x: Array, cell: Integers) -> Array:
        """Logarithm of the probability that all cells but this one add up to `total - x`."""
        if self._rest is None:
            suffix, parts = _running(self._pmfs[::-1]), [np.empty(0)] * len(self._pmfs)
            for before, i in enumerate(self._order):
                parts[i] = np.convolve(self._prefix[before], suffix[len(self._pmfs) - 1 - before])
            # The distributions of the sums of all cells but one, one behind the other in the order of the cells.
            self._sizes, self._rest = np.array([len(part) for part in parts]), np.concatenate(parts)
        offset = self._total - np.asarray(x, dtype=np.int64) - (self._low - self._all_lows[cell])
        inside = (offset >= 0) & (offset < self._sizes[cell])
        place = (np.cumsum(self._sizes) - self._sizes)[cell] + np.where(inside, offset, 0)
        with np.errstate(divide="ignore"):
            return np.where(inside, np.log(self._rest[place]), -np.inf)

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
            before = np.zeros((1, len(self._prefix[-1])))
            before[0, : len(self._prefix[place])] = self._prefix[place]
            drawn = drawn_of_sums(self._pmfs[place][None], before, left[:, None], rng)[:, 0]
            left = left - drawn
            counts[:, self._order[place]] = self._lows[place] + drawn
        return counts


def numbers_of(cells: Distributions) -> tuple[Array, Integers]:
    """Every number that matters, one distribution after the other, and its distribution."""
    widths = cells.highs - cells.lows + 1
    cell = np.repeat(np.arange(cells.size), widths)
    return (np.arange(widths.sum()) - (np.cumsum(widths) - widths - cells.lows)[cell]).astype(np.float64), cell


def _pmf(cells: Distributions, i: int) -> Array:
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


def drawn_of_sums(own: Array, rest: Array, sums: Integers, rng: np.random.Generator) -> Integers:
    """For each of some sums of two numbers of every row, a draw of the first.

    Parameters
    ----------
    own, rest : array, shape (rows, ...)
        The probabilities of 0, 1, 2, ... of both numbers in each row; their sums may be rounded.
    sums : array of int, shape (draws, rows)
        Possible ones.
    rng : numpy.random.Generator
    """
    (rows, width), length = own.shape, rest.shape[1]
    key = (np.arange(rows) * length + sums).ravel()
    # The same sum of the same row has the same weights.
    order = np.argsort(key, kind="stable")
    new = np.diff(key[order], prepend=-1) > 0
    different, which = key[order][new], np.cumsum(new) - 1
    drawn, some = np.empty(key.size, dtype=np.int64), max(1, min(_PAIRS, 4 * _AT_A_TIME // width))
    for first in range(0, len(different), some):
        row, total = np.divmod(different[first : first + some], length)
        other = total[:, None] - np.arange(width)
        weights = np.where(other >= 0, own[row] * rest[row[:, None], np.maximum(other, 0)], 0.0)
        cdf = np.cumsum(np.maximum(weights, 0.0), axis=1)
        here = slice(*np.searchsorted(which, [first, first + some]))
        at = which[here] - first
        # All in one list, each distribution between two integers.
        level = at + np.minimum(rng.random(len(at)), 1 - 1e-12)
        places = np.searchsorted((cdf / cdf[:, -1:] + np.arange(len(row))[:, None]).ravel(), level, side="right")
        drawn[order[here]] = places - at * width
    return drawn.reshape(sums.shape)


# Where the product of characteristic functions stays below exp(-39), the rest of the integral is left out.
_NEGLIGIBLE = -39.0
_IN_A_ROW = 4
# A power of a complex number loses digits; so often it is computed afresh.
_FRESH = 32
# Gauss rules of 12 nodes add up a wave to 15 digits if its phase changes by up to this within a block.
_TURN = 9.0
_MOST_BLOCKS = 50_000
# So many waves are added up before it gives up; that takes some ten seconds. A table is refused before anything is
# drawn where a quarter of them is expected.
_MOST_TURNS = 1.6e9
# Sums of very many cells are nearly normal, and their characteristic functions are small after so many nodes at most.
_NODES_OF_MANY = 64
# The sum of the centres of all cells, or of all but one, is nearer to that of the means than this.
_ROUNDED = 3


class TooManyNodesError(ArgumentError):
    """Characteristic functions stay large over too many nodes."""


def _too_many() -> TooManyNodesError:
    return TooManyNodesError(
        "The output says so little about so many records that the counts cannot be summed exactly. Give a prior with "
        "larger parameters, or merge the cells that are nearly empty."
    )


def refuse_too_many(of_some: Distributions, cells: int) -> None:
    """Raise the error of :class:`Inversion` for a table of so many cells, from settled distributions of some of them.

    The output later may need more nodes for each cell, so a quarter of the work has to suffice.

    Raises
    ------
    TooManyNodesError
    """
    if _NODES_OF_MANY * cells * (len(of_some.nodes) / of_some.size) > _MOST_TURNS / 4:
        raise _too_many()


class Inversion:
    """Sums of some of the distributions of `cells`, and of all but one, by the trapezoid rule for Fourier's integral.

    With nodes `2 pi j / L` the rule is exact for the sum modulo L; L is so large that what lies a multiple of L away
    from the total has no probability. The error is about 1e-16 of the largest probability of the sum, so it must not
    be used far from the mean of the sum.

    Parameters
    ----------
    cells : Distributions
        Settled, at a tilt at which the cells add up to about the total.
    total : int
        The total that sums of all but one cell are compared with.
    of : array of int, optional
        The cells that are summed; all by default.
    most_nodes : int
        After so many nodes it gives up.

    Raises
    ------
    TooManyNodesError
        If the characteristic functions have not become small by then.
    """

    def __init__(self, cells: Distributions, total: int, of: Integers | None = None, most_nodes: int = 2**14) -> None:
        self._most_nodes = most_nodes
        self._cells = cells
        self._of = np.arange(cells.size) if of is None else np.sort(of)
        self._place = np.full(cells.size, -1)
        self._place[self._of] = np.arange(len(self._of))
        # Integers near the means, whose sums are near those of the means: rounded one by one, a million means of .4
        # would be wrong by 400,000 together, and the rule would need nodes for that.
        edges = np.round(np.cumsum(cells.means[self._of])).astype(np.int64)
        self._centres = np.zeros(cells.size, dtype=np.int64)
        self._centres[self._of] = np.diff(edges, prepend=0)
        self._centre = int(self._centres[self._of].sum())
        self._total = total
        self._reach = reach_of_sum(cells, self._of)
        self._step = 2 * np.pi / (2 * self._reach + 1)
        self._factors = self._characteristic_functions(cells)
        # The rule of a block adds up a wave exactly if it turns few times within the block.
        longest = _TURN / (self._step * self._factors.shape[1])
        long = cells.block_length > max(longest, 12)
        if long.any():
            if cells.block_length[long].sum() / longest > _MOST_BLOCKS:
                raise _too_many()
            cells.shorten(lambda dist, start, end: np.full(dist.shape, longest))
            self._factors = self._characteristic_functions(cells)
        product = np.prod(self._factors, axis=0)
        self._weights = np.full(len(product), self._step / np.pi)
        self._weights[0] /= 2
        self._product = product * self._weights
        self.log_bound = float(np.log(np.abs(self._product).sum()))

    def _characteristic_functions(self, cells: Distributions) -> Complex:
        """`E exp(i t (x - centre))` of each cell at the nodes, shape `(cells, nodes)`."""
        chosen = self._place[cells.node_distribution] >= 0
        x = (cells.nodes - self._centres[cells.node_distribution])[chosen]
        masses = cells.masses[chosen]
        starts = np.searchsorted(cells.node_distribution[chosen], self._of)
        turn = np.exp(1j * self._step * x)
        columns: list[Complex] = []
        small = 0
        current: Complex = masses.astype(np.complex128)
        for j in range(self._reach + 1):
            if j % _FRESH == 0:
                current[:] = masses * np.exp(1j * self._step * j * x)
            else:
                current *= turn
            columns.append(np.add.reduceat(current, starts))
            size = np.log(np.maximum(np.abs(columns[-1]), 1e-300))
            small = small + 1 if size.sum() - size.min() < _NEGLIGIBLE else 0
            if small == _IN_A_ROW:
                break
            if j == self._most_nodes or j * len(x) > _MOST_TURNS:
                raise _too_many()
        return np.stack(columns, axis=1)

    def log_sum(self, totals: Integers) -> Array:
        """Logarithm of the probability that the cells add up to each of some totals."""
        distinct, which = np.unique(totals, return_inverse=True)
        bound = float(np.exp(self.log_bound))
        return self._inverted(lambda j: self._product[j], distinct - self._centre, bound)[which]

    def log_rest(self, x: Array, cell: Integers) -> Array:
        """Logarithm of the probability that all cells but this one add up to `total - x`."""
        x, cell = np.broadcast_arrays(x, cell)
        x, cell, shape = x.ravel(), cell.ravel(), x.shape
        found = np.empty(x.size)
        for first in range(0, x.size, _AT_A_TIME):
            some, part = cell[first : first + _AT_A_TIME], slice(first, first + _AT_A_TIME)
            place, others = self._place[some], self._centre - self._centres[some]
            bound = np.abs(self._without).sum(axis=0)[place]
            # Columns are repeated row by row, when they are asked for.
            columns = partial(self._repeated, place)
            found[part] = self._inverted(columns, self._total - x[part] - others, bound)
        return found.reshape(shape)

    @cached_property
    def _without(self) -> Complex:
        """Products of the characteristic functions of all cells but one, shape `(nodes, cells)`."""
        ones = np.ones((1, self._factors.shape[1]))
        before = np.cumprod(np.concatenate([ones, self._factors[:-1]]), axis=0)
        after = np.cumprod(np.concatenate([ones, self._factors[:0:-1]]), axis=0)[::-1]
        return np.ascontiguousarray((before * after * self._weights).T)

    def spread(self, low: int, known: Array) -> list[Array]:
        """As :meth:`Convolution.spread`."""
        x, place = numbers_of(self._cells)
        masses = np.exp(self._cells.log_pmf(x, place))
        t = self._step * np.arange(len(self._product))
        of_sum = known @ np.exp(-1j * np.outer(np.arange(known.shape[1]), t))
        turn = np.exp(1j * self._step * (x + (self._centre - self._centres)[place] - low))
        value = np.zeros((len(known), len(place)), dtype=np.complex128)
        for j in range(len(self._product) - 1, -1, -1):
            value *= turn
            value += of_sum[:, j, None] * self._without[j][place]
        return np.split(
            np.maximum(value.real, 0.0) * masses, np.searchsorted(place, np.arange(1, self._cells.size)), axis=1
        )

    def _repeated(self, place: Integers, j: int) -> Complex:
        row: Complex = self._without[j][place]
        return row

    def _inverted(self, coefficients: Callable[[int], Any], distance: Array | Integers, bound: Array | float) -> Array:
        """Logarithm of `Re sum_j c_j exp(-i j step distance)`, by Horner's rule; -inf beyond the period."""
        inside = np.abs(distance) <= self._reach
        turn = np.exp(-1j * self._step * np.where(inside, distance, 0))
        value = np.zeros(len(turn), dtype=np.complex128)
        for j in range(len(self._product) - 1, -1, -1):
            value *= turn
            value += coefficients(j)
        # What is below the rounding of the sum is not known to be positive.
        known = inside & (value.real > _ROUNDING * bound)
        return np.where(known, np.log(np.where(known, value.real, 1.0)), -np.inf)


def reach_of_sum(cells: Distributions, of: Integers) -> int:
    """How far from its mean the sum may be with a probability that matters: Chernoff's bound, or where numbers end."""
    chosen = np.zeros(cells.size, dtype=bool)
    chosen[of] = True
    inside = chosen[cells.node_distribution]
    dist, masses = cells.node_distribution[inside], cells.masses[inside]
    x = (cells.nodes - cells.means[cells.node_distribution])[inside]
    deviation = np.sqrt(cells.variances[of].sum())
    ends = float(np.sum(cells.highs[of] - cells.lows[of])) + 1
    if deviation == 0:
        return int(ends)
    sides = []
    for sign in (-1, 1):
        best = ends
        for strength in (0.25, 0.5, 1.0, 2.0, 4.0):
            rate = strength / deviation
            # The exponent is bounded, because the mass beyond the window is not part of the rule.
            grown = np.bincount(dist, masses * np.exp(np.minimum(sign * rate * x, 600.0)), cells.size)[of]
            best = min(best, (np.log(grown).sum() + 45) / rate)
        sides.append(best)
    return int(np.ceil(max(sides))) + _ROUNDED


# So many numbers are transformed at most, over all cells: 48 megabytes; and where there is no other way, 240.
MUCH_CACHED, MOST_CACHED = 6_000_000, 30_000_000
# A probability below this share of the largest is rounding.
_ROUNDING = 1e-15


class Fourier:
    """Sums of the distributions of `cells`, and of all but one, where characteristic functions do not get small.

    The transform is as long as the sum can be large, so nothing wraps around. As in :class:`Inversion`, the error is
    about 1e-16 of the largest probability, and the sum must not be looked at far from its mean.

    Parameters
    ----------
    cells : Distributions
        Settled, at a tilt at which the cells add up to about the total.
    total : int
        The total that sums of all but one cell are compared with.
    """

    @staticmethod
    def fits(cells: Distributions, *, most: int = MUCH_CACHED) -> bool:
        """Whether all transforms hold no more than so many numbers."""
        return cells.size * _length(cells) <= most

    def __init__(self, cells: Distributions, total: int) -> None:
        self._cells, self._total = cells, total
        self._size = _length(cells)
        self._factors = []
        for cell, (low, high) in enumerate(zip(cells.lows, cells.highs, strict=True)):
            x = np.arange(low, high + 1, dtype=np.float64)
            self._factors.append(scipy.fft.rfft(np.exp(cells.log_pmf(x, np.full(len(x), cell))), self._size))
        self._low = int(cells.lows.sum())
        self._sum = scipy.fft.irfft(np.prod(self._factors, axis=0), self._size)
        self.log_bound = float(np.log(self._sum.max()))
        self._rest: dict[int, Array] = {}

    def log_sum(self, totals: Integers) -> Array:
        """Logarithm of the probability that all cells add up to each of some totals."""
        return _known(self._sum, totals - self._low)

    def log_rest(self, x: Array, cell: Integers) -> Array:
        """Logarithm of the probability that all cells but this one add up to `total - x`."""
        x, cell = np.broadcast_arrays(np.asarray(x, dtype=np.int64), cell)
        found = np.empty(x.shape)
        for i in np.unique(cell):
            if i not in self._rest:
                others = [factor for j, factor in enumerate(self._factors) if j != i]
                self._rest[i] = scipy.fft.irfft(np.prod(others, axis=0), self._size)
            here = cell == i
            low = self._low - int(self._cells.lows[i])
            found[here] = _known(self._rest[i], self._total - x[here] - low)
        return found

    def spread(self, low: int, known: Array) -> list[Array]:
        """As :meth:`Convolution.spread`."""
        start, cells = low - self._low, self._cells
        of_sum = scipy.fft.rfft(np.pad(known, ((0, 0), (start, 0))), self._size)
        after = [np.ones(1)]
        for factor in self._factors[:0:-1]:
            after.append(after[-1] * factor)
        before, parts = np.ones(1), []
        for i, factor in enumerate(self._factors):
            x = np.arange(cells.lows[i], cells.highs[i] + 1, dtype=np.float64)
            others = scipy.fft.irfft(of_sum * np.conj(before * after[-1 - i]), self._size)[:, : len(x)]
            parts.append(np.maximum(others, 0.0) * np.exp(cells.log_pmf(x, np.full(len(x), i))))
            before = before * factor
        return parts


def _length(cells: Distributions) -> int:
    return int(scipy.fft.next_fast_len(int(np.sum(cells.highs - cells.lows)) + 1, real=True))


def _known(pmf: Array, offset: Integers) -> Array:
    inside = (offset >= 0) & (offset < len(pmf))
    values = pmf[np.where(inside, offset, 0)]
    known = inside & (values > _ROUNDING * pmf.max())
    return np.where(known, np.log(np.where(known, values, 1.0)), -np.inf)


class Pair:
    """Sums of the two distributions of `cells`: what one of them is, the other is the rest.

    Waves would add up the same, but with noise of scale 10**4 on 10**7 records they are too many.

    Parameters
    ----------
    cells : Distributions
        Two distributions, settled.
    total : int
        The total that the rest is compared with.
    """

    def __init__(self, cells: Distributions, total: int) -> None:
        self._cells, self._total = cells, total

    def log_sum(self, totals: Integers) -> Array:
        """Logarithm of the probability that both add up to each of some totals."""
        if not len(totals):
            return np.empty(0)

        def log_weight(x: Array, which: Integers) -> Array:
            first, second = np.zeros(x.shape, dtype=np.int64), np.ones(x.shape, dtype=np.int64)
            return self._cells.log_pmf(x, first) + self._cells.log_pmf(totals[which] - x, second)

        cells = self._cells
        found = Distributions(
            log_weight,
            len(totals),
            int(cells.least.min()),
            int(cells.most.max()),
            smooth=cells.smooth,
        )
        found.settle(0.0)
        return found.log_totals

    def log_rest(self, x: Array, cell: Integers) -> Array:
        """Logarithm of the probability that the other number is `total - x`."""
        return self._cells.log_pmf(self._total - x, 1 - cell)
