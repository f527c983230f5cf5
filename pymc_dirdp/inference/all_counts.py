"""The output of a few rows of few records, as a function of their shares: all counts summed."""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import gammaln, logsumexp

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.product_law import ProductLaw

__all__ = ["AllCounts"]

OfTotal = Callable[[Array], Array]
# For each total of some cells, the logarithm of a sum over their counts, and the expected count of each cell.
Summed = tuple[Array, Array]

# So many terms are looked at together; they fit into a processor's cache.
_AT_A_TIME = 2**15
# Terms that are that much smaller than the largest one are left out. Doubles of such a size are slow.
_LEAST = -700.0


@final
class AllCounts:
    """The likelihood of known shares of rows whose totals are not known, or of one row.

    The cells of a row are added one by one, and then the rows: for each total so far, the probability of what was put
    out, and the expected counts. So the gradient costs little more than the likelihood itself. Sums have logarithms
    everywhere, so no share and no output is too improbable. What does not depend on the shares is computed once.

    Parameters
    ----------
    rows : sequence of ProductLaw
        With the same number of cells, which is two or more. Their priors are not used.
    log_numbers : array
        Logarithms of the weights of each number of records, from 0 on: of a public number 0, and `-inf` below.
    row_prior : array, shape (rows,)
        A priori the rows have the shares `Dirichlet(row_prior)` of the records.
    log_factors : sequence of callables
        For each row, the logarithm of the factor of its likelihood that depends on its total alone.

    Examples
    --------
    Noisy counts of ten records in two rows, and the shares of each row:

    >>> def row(z):
    ...     return ProductLaw(alpha=[1, 1], total=10, log_likelihood=lambda counts, cells: -np.abs(z[cells] - counts))
    >>> rows = [row(np.array([3.0, 1.0])), row(np.array([2.0, 5.0]))]
    >>> public = np.where(np.arange(11) == 10, 0.0, -np.inf)
    >>> table = AllCounts(rows, public, row_prior=np.ones(2), log_factors=[np.zeros_like] * 2)
    >>> log_likelihood, means = table.given(np.log([[0.5, 0.5], [0.2, 0.8]]))
    >>> means.round(2)
    array([[2.46, 1.12],
           [1.57, 4.86]])
    """

    def __init__(
        self, rows: Sequence[ProductLaw], log_numbers: Array, *, row_prior: Array, log_factors: Sequence[OfTotal]
    ) -> None:
        cells = np.arange(len(rows[0].alpha))
        promised = rows[0].least * len(cells)
        # Each cell holds what is promised; sums are over the further records.
        further = np.arange(len(log_numbers) - promised * len(rows), dtype=np.float64)
        self._counts = rows[0].least + further
        said = [row.log_likelihood(self._counts, cells[:, None]) - gammaln(self._counts + 1) for row in rows]
        self._said = np.stack(said)
        # A row of n records has n! in its multinomial law, by which the law of the totals is divided.
        totals, prior, all_prior = promised + further, row_prior[:, None], row_prior.sum()
        self._of_totals = gammaln(totals + prior) - gammaln(prior) + np.stack([of(totals) for of in log_factors])
        numbers = promised * len(rows) + further
        weights = gammaln(numbers + 1) + gammaln(all_prior) - gammaln(numbers + all_prior)
        weights += log_numbers[promised * len(rows) :]
        self._first = int(np.argmax(weights > -np.inf))
        self._of_numbers = weights[self._first :]

    @staticmethod
    def work(rows: int, cells: int, most: int) -> float:
        """How many terms the sums have at most, for rows of some cells that hold up to `most` records together."""
        return (rows * cells - 1) * (most + 1.0) ** 2 / 2

    def given(self, log_shares: Array) -> tuple[float, Array]:
        """The logarithm of the likelihood and the expected counts, its gradient; `-inf` and zeros if it is impossible.

        Parameters
        ----------
        log_shares : array, shape (rows, d)
            Logarithms of the shares; one may be `-inf`, so that its cell is empty.
        """
        with np.errstate(invalid="ignore"):
            # No records in a cell whose share is 0: the product would be no number.
            cells = self._said + np.where(self._counts == 0, 0.0, self._counts * log_shares[..., None])
        # The number of all records need only be a possible one.
        rows, first = [], self._first if len(cells) == 1 else 0
        for row, of_total in zip(cells, self._of_totals, strict=True):
            logs, means = _added([(cell, self._counts[None]) for cell in row], first)
            rows.append((logs + of_total[first:], means))
        logs, means = rows[0] if len(rows) == 1 else _added(rows, self._first)
        logs = logs + self._of_numbers
        log_likelihood = float(logsumexp(logs))
        if log_likelihood == -np.inf:
            return -np.inf, np.zeros(log_shares.shape)
        return log_likelihood, (means @ np.exp(logs - log_likelihood)).reshape(log_shares.shape)


def _added(parts: Sequence[Summed], first: int) -> Summed:
    """All parts together, for totals from `first` on."""
    found = parts[0]
    for part in parts[1:-1]:
        found = _together(found, part, 0)
    return _together(found, parts[-1], first)


def _together(one: Summed, other: Summed, first: int) -> Summed:
    """Two parts together, for totals from `first` on."""
    n, own = len(one[0]), 1 + len(one[1])
    # In column j of total t, the count of the one part is `n - 1 - j`, and that of the other `t - (n - 1 - j)`.
    log_weights = one[0][::-1]
    of_one = np.concatenate([np.ones((1, n)), one[1]])[:, ::-1].T
    rest, of_other = _shifted(other[0], -np.inf), [_shifted(means, 0.0) for means in other[1]]
    levels, sums = np.empty(n - first), np.empty((n - first, own + len(of_other)))
    step = 1 + _AT_A_TIME // n
    for start in range(first, n, step):
        end = min(n, start + step)
        here, columns = slice(start - first, end - first), slice(n - end, n)
        terms = log_weights[columns] + rest[start:end, columns]
        levels[here] = level = terms.max(axis=1)
        terms -= np.where(level > -np.inf, level, 0.0)[:, None]
        np.copyto(terms, -np.inf, where=terms < _LEAST)
        np.exp(terms, out=terms)
        sums[here, :own] = terms @ of_one[columns]
        for i, means in enumerate(of_other, start=own):
            sums[here, i] = np.einsum("tj,tj->t", terms, means[start:end, columns])
    total = sums[:, :1]
    with np.errstate(divide="ignore"):
        return levels + np.log(total[:, 0]), (sums[:, 1:] / np.where(total > 0, total, 1.0)).T


def _shifted(values: Array, below: float) -> Array:
    """The value at `t - (n - 1 - j)`, in the shape `(t, j)`, and `below` at negative numbers."""
    n = len(values)
    return sliding_window_view(np.concatenate([np.full(n - 1, below), values]), n)
