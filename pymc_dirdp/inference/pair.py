"""The distribution of the sum of two integers: one single sum, however many numbers there are."""

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.inference.number_laws import NumberLaws

__all__ = ["Pair"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


class Pair:
    """Sums of the two distributions of `cells`: what one of them is, the other is the rest.

    Parameters
    ----------
    cells : NumberLaws
        Two distributions, settled.
    total : int
        The total that the rest is compared with.
    """

    def __init__(self, cells: NumberLaws, total: int) -> None:
        self._cells, self._total = cells, total

    def log_sum(self, totals: Integers) -> Array:
        """Logarithm of the probability that both add up to each of some totals."""
        return self.first_given(totals).log_totals if len(totals) else np.empty(0)

    def first_given(self, totals: Integers) -> NumberLaws:
        """For each of some totals, the distribution of the first number given that both add up to it."""

        def log_weight(x: Array, which: Integers) -> Array:
            first, second = np.zeros(x.shape, dtype=np.int64), np.ones(x.shape, dtype=np.int64)
            return self._cells.log_pmf(x, first) + self._cells.log_pmf(totals[which] - x, second)

        cells = self._cells
        laws = NumberLaws(
            log_weight,
            len(totals),
            int(cells.least.min()),
            int(cells.most.max()),
            smooth=cells.smooth,
        )
        laws.settle(0.0)
        return laws

    def log_rest(self, x: Array, cell: Integers) -> Array:
        """Logarithm of the probability that the other number is `total - x`."""
        return self._cells.log_pmf(self._total - x, 1 - cell)
