"""The likelihood of shares, counts summed out, with its gradient: for one evaluation after the other.

Given the shares the counts of a cell have the weights `p^x / x! * L(x)`. The rows of a table are tilted, each so that
its cells add up to its most probable total. The numbers of all cells that matter are then listed at once. These lists
are convolved, cells to rows and rows to the table, and the distribution of the number of records goes down the same
way. All terms are positive, so results have relative accuracy as far down as numbers are listed, and what was needed of
them is checked.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import final

import numpy as np
from scipy.special import gammaln

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.inference.numbers import ImpossibleError, Listed, listed_numbers
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.sums import Convolution, Fourier

OfTotal = Callable[[Array], Array]

# Logarithms of likelihoods are cached for so many numbers of all cells.
_MOST_CACHED = 2**21
# A number with less than exp(-45) of the largest weight of its cell is left out; of cells whose total is not known
# exp(-80), and more if the total is far from what its cells say by themselves.
_CUT, _DEEP, _DEEPEST = 45.0, (80.0, 200.0), 700.0
# What was left out must not matter to that part.
_ACCURATE, _MASS = 35.0, 1e-13
# Products of the convolutions of one row at most, and of all rows before Fourier transforms are taken.
_MOST_WORK, _LITTLE_WORK = 3e7, 1e6
_MOST_STEPS = 60


@final
class KnownShares:
    """The likelihood of known shares of rows that hold a number of records together that is known, or unknown.

    Parameters
    ----------
    rows : sequence of RowPosterior
        With the same number of cells. Their priors are not used.
    most : int
        The number of all records, or the largest that it may be.
    log_number : callable or None
        Logarithm of the prior of each number of records; None if it is public.
    row_prior : array, shape (rows,)
        A priori the rows have the shares `Dirichlet(row_prior)` of the records.
    log_factors : sequence of callables
        For each row, the logarithm of the factor of its likelihood that depends on its total alone.

    Examples
    --------
    Noisy counts of ten records in two rows, and the shares of each row:

    >>> def row(z):
    ...     return RowPosterior(alpha=[1, 1], total=10, log_likelihood=lambda counts, cells: -np.abs(z[cells] - counts))
    >>> rows = [row(np.array([3.0, 1.0])), row(np.array([2.0, 5.0]))]
    >>> table = KnownShares(rows, 10, None, row_prior=np.ones(2), log_factors=[np.zeros_like] * 2)
    >>> log_likelihood, means = table.likelihood(np.log([[0.5, 0.5], [0.2, 0.8]]))
    >>> means.round(2)
    array([[2.46, 1.12],
           [1.57, 4.86]])
    """

    def __init__(
        self,
        rows: Sequence[RowPosterior],
        most: int,
        log_number: OfTotal | None,
        *,
        row_prior: Array,
        log_factors: Sequence[OfTotal],
    ) -> None:
        self._rows, self._most, self._log_number = rows, most, log_number
        self._total = most if log_number is None else None
        self._row_prior, self._log_factors = row_prior, log_factors
        self._d, first = len(rows[0].alpha), rows[0]
        self._ends = np.full(self._d * len(rows), first.least), np.full(self._d * len(rows), first.most)
        self._smooth = all(row.smooth for row in rows)
        self._cached: Array | None = None
        if (first.most - first.least + 1) * self._ends[0].size <= _MOST_CACHED:
            x = np.arange(first.least, first.most + 1, dtype=np.float64)
            cells = np.arange(self._d)[:, None]
            self._cached = np.concatenate([row.log_likelihood(x, cells) - gammaln(x + 1) for row in rows])

    def likelihood(self, log_shares: Array) -> tuple[float, Array] | None:
        """The logarithm of the likelihood and the expected counts, its gradient; None if it is not found like this.

        It takes too long, or is so small that it may be 0. It is `-inf`, and the counts are 0, if a cell that cannot be
        empty has no share.

        Parameters
        ----------
        log_shares : array, shape (rows, d)
            Logarithms of the shares; one may be `-inf`, so that its cell is empty.
        """
        logs = np.asarray(log_shares, dtype=np.float64).ravel()
        if self._cached is None:
            return None
        if self._ends[0][0] > 0 and np.isneginf(logs).any():
            return -np.inf, np.zeros(log_shares.shape)
        # Doubles cannot tell what is impossible from what lists at these tilts do not reach: others may.
        with suppress(ImpossibleError):
            tilts, slope = self._tilts(logs)
            for cut in _DEEP:
                found = self._of_totals(logs, tilts, slope, cut)
                if found is not None:
                    return found[0], found[1].reshape(log_shares.shape)
        return None

    def _listed(self, logs: Array, cut: float) -> Listed:
        """All cells, with the logarithms of their shares tilted."""
        cached = self._cached
        assert cached is not None

        def log_weight(x: Array, cell: Integers) -> Array:
            with np.errstate(invalid="ignore"):
                slope = np.where(x == 0, 0.0, x * logs[cell])
            return np.asarray(cached[cell, x.astype(np.int64) - self._ends[0][0]] + slope)

        return listed_numbers(log_weight, *self._ends, smooth=self._smooth, tilt=0.0, cut=cut)

    def _tilts(self, logs: Array) -> tuple[Array, float]:
        """For each row a tilt at which its total has its most probable value, about; and that of the rows' sum.

        At the mode of all totals, the logarithm of `Gamma(n + a)` of a row rises by its tilt and falls by that of all.
        """
        rows, public, prior = len(self._rows), self._total is not None, self._row_prior
        room = self._ends[1][0] * 0.5 / rows
        slope, factors = 0.0, self._log_factors
        tilts = np.full(rows, np.log(max(room, 1.0)))
        longest, before = np.full(rows, 2.0), np.zeros(rows)
        for _ in range(_MOST_STEPS):
            cells = self._listed(logs + np.repeat(tilts, self._d), _CUT)
            means = cells.means.reshape(rows, -1).sum(axis=1)
            variances = cells.variances.reshape(rows, -1).sum(axis=1) + 1e-12
            free = np.maximum(1 - variances / (means + prior), 0.05)
            ends = np.stack([np.maximum(means - 0.5, 0.0), means + 0.5], axis=1)
            with np.errstate(invalid="ignore"):
                rises = [float(of(n)[1] - of(n)[0]) for of, n in zip(factors, ends, strict=True)]
            off = (
                np.log(means + np.maximum(prior - 0.5, 0.25))
                + np.nan_to_num(rises, posinf=0.0, neginf=0.0)
                + slope
                - tilts
            )
            if public:
                assert self._total is not None
                missing = self._total - (means + variances * off / free).sum()
                change = float(np.clip(missing / (variances / free).sum(), -2, 2))
            else:
                number, all_prior = means.sum(), prior.sum()
                change = float(np.log(number + 0.5) - np.log(number + max(all_prior - 0.5, 0.25))) - slope
            moves = (off + change) / free
            # Where noise has a kink, Newton's steps would go to and fro.
            longest = np.where(moves * before < 0, longest / 2, longest)
            moves = before = np.clip(moves, -longest, longest)
            slope, tilts = slope + change, tilts + moves
            if (moves**2 * variances <= 0.1).all():
                break
        return tilts, slope

    def _of_totals(self, logs: Array, tilts: Array, slope: float, cut: float) -> tuple[float, Array] | None:
        """Totals that are not known; None if more numbers matter than are listed, or too many."""
        everything, d = self._listed(logs + np.repeat(tilts, self._d), cut), self._d
        sums, lows, weights, depths = [], [], [], []
        ends = (everything.lows == self._ends[0]) & (everything.highs == self._ends[1])
        whole = ends.reshape(-1, d).all(axis=1)
        for i, (tilt, prior) in enumerate(zip(tilts.tolist(), self._row_prior.tolist(), strict=True)):
            cells = everything.part(i * d, (i + 1) * d)
            if Convolution.work(cells) > _MOST_WORK:
                return None
            sums.append(Convolution(cells, 0))
            lows.append(int(cells.lows.sum()))
            n = np.arange(lows[-1], int(cells.highs.sum()) + 1)
            known = sums[-1].log_sum(n)
            depths.append(known - known.max())
            weight = known + cells.log_totals.sum() - tilt * n + gammaln(n + prior) - gammaln(prior)
            weights.append(weight + self._log_factors[i](n.astype(np.float64)))
        widths = np.array([len(weight) for weight in weights])
        rows = Listed(np.array(lows), widths, np.concatenate(weights), slope, _DEEPEST).trimmed(cut)
        together = Convolution(rows, 0) if Convolution.work(rows) < _LITTLE_WORK else Fourier(rows, 0)
        every = np.arange(int(rows.lows.sum()), int(rows.highs.sum()) + 1)
        n = every[(every >= 0) & (every <= self._most)]
        if len(n) == 0:
            return None
        total, known = self._row_prior.sum(), together.log_sum(n)
        weight = gammaln(n + 1) + gammaln(total) - gammaln(n + total) - slope * n
        weight = weight + (
            np.where(n == self._total, 0.0, -np.inf)
            if self._log_number is None
            else self._log_number(n.astype(np.float64))
        )
        peak = (known + weight).max()
        if np.isneginf(peak):
            return None
        masses = np.exp(known + weight - peak)
        value = float(peak + np.log(masses.sum()) + rows.log_totals.sum())
        of_total = np.where(masses > 0, np.exp(np.minimum(weight - peak, _DEEPEST)), 0.0) / masses.sum()
        means = np.zeros((len(tilts), d))
        for i, found in enumerate(together.spread(int(n[0]), of_total[None])):
            low = int(rows.lows[i]) - lows[i]
            depth = depths[i][low : low + found.shape[1]]
            # Beyond the ends of the lists there may be more, if these are not all numbers.
            if found[0, depth < _ACCURATE - (_DEEPEST if whole[i] else cut)].sum() > _MASS:
                return None
            of_row = sums[i].log_sum(int(rows.lows[i]) + np.arange(found.shape[1]))
            given = np.where(found > 0, found * np.exp(-np.maximum(of_row, -_DEEPEST)), 0.0)
            cells = everything.part(i * d, (i + 1) * d)
            for k, count in enumerate(sums[i].spread(int(rows.lows[i]), given)):
                means[i, k] = count[0] @ (cells.lows[k] + np.arange(count.shape[1]))
        return value, means
