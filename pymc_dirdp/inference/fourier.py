"""The distribution of a sum of few, wide integers by fast Fourier transforms of all their probabilities."""

import numpy as np
import scipy  # which loads scipy.fft where it is used, and not before
from numpy.typing import NDArray

from pymc_dirdp.inference.number_laws import NumberLaws

__all__ = ["MOST_KEPT", "MUCH_KEPT", "Fourier"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# So many numbers are transformed at most, over all cells: 48 megabytes; and where there is no other way, 240.
MUCH_KEPT, MOST_KEPT = 6_000_000, 30_000_000
# A probability below this share of the largest is rounding.
_ROUNDING = 1e-15


class Fourier:
    """Sums of the distributions of `cells`, and of all but one, where characteristic functions do not get small.

    The transform is as long as the sum can be large, so nothing wraps around. As in :class:`Inversion`, the error is
    about 1e-16 of the largest probability, and the sum must not be looked at far from its mean.

    Parameters
    ----------
    cells : NumberLaws
        Settled, at a tilt at which the cells add up to about the total.
    total : int
        The total that sums of all but one cell are compared with.
    """

    @staticmethod
    def fits(cells: NumberLaws, *, most: int = MUCH_KEPT) -> bool:
        """Whether all transforms hold no more than so many numbers."""
        return cells.size * _length(cells) <= most

    def __init__(self, cells: NumberLaws, total: int) -> None:
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


def _length(cells: NumberLaws) -> int:
    return int(scipy.fft.next_fast_len(int(np.sum(cells.highs - cells.lows)) + 1, real=True))


def _known(pmf: Array, offset: Integers) -> Array:
    inside = (offset >= 0) & (offset < len(pmf))
    values = pmf[np.where(inside, offset, 0)]
    known = inside & (values > _ROUNDING * pmf.max())
    return np.where(known, np.log(np.where(known, values, 1.0)), -np.inf)
