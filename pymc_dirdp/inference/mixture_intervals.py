"""Estimates and intervals of shares and counts from a mixture that was fitted to noisy pairs.

The noisy count `y` of a cell has an error of known variance. The error of the fit `m` has an unknown variance and is
correlated with that of `y`. A parametric bootstrap estimates both: it draws records from the mixture, counts them with
the same noise, and fits them again. Squares of the fit's errors, and products with the errors of the noisy counts, are
averaged over all cells with about the same number of expected records.

1. The bias of the fit is not in these averages, but it makes `y - m` larger than in the bootstrap. The excess of its
   square is the variance of the bias.
2. The fit has more bias in some pairs than in others, so this variance is scaled in each table by its cells.
3. The estimate is `m + k (y - m)` with the k of the smallest error. This error is nearly normal.

Errors about the shares of a population include the sampling error, and errors about the counts of the records do not.
The same refits yield both.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np
from scipy.special import log_ndtr, ndtri

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import Estimate, interval_ends
from pymc_dirdp.inference.mixture import Mixture, NoisyPairs, fit_mixture
from pymc_dirdp.progress import QUIET, Bar

_REFITS = 2
FITS = 1 + _REFITS
"""Coverage was the same with four refits, and lower by .003 with one."""
_ROOT = math.sqrt(10)
# Bins of cells by their expected records in standard deviations of the noise. Bins below the noise share one scale of
# the bias, because each of them alone has little information.
_EDGES_OF_PAIRS = _ROOT ** np.arange(-3.0, 4.0)
_SCALES_OF_PAIRS = np.maximum(np.arange(8) - 3, 0)
# Single columns have few cells.
_EDGES_OF_COLUMNS, _SCALES_OF_COLUMNS = np.array([_ROOT]), np.zeros(2, dtype=np.int64)


@final
@dataclass(frozen=True, eq=False)
class FitErrors:
    """A mixture, the noisy pairs that it was fitted to, and its errors, computed once for a release.

    Attributes
    ----------
    noisy : NoisyPairs
    mixture : Mixture
        The fit to `noisy`.
    refits : tuple of Mixture
        Fits to noisy counts of records that were drawn from the mixture.
    of_columns, of_pairs : ErrorCurve
        Errors in cells of single columns, and of pairs.

    Examples
    --------
    >>> counts = np.array([[0, 0, 400, 100], [0, 0, 100, 400], [400, 100, 0, 0], [100, 400, 0, 0]], dtype=np.float32)
    >>> noisy = NoisyPairs((2, 2), np.full(4, 500.0), counts, variance=100.0, known_records=1000)
    >>> errors = FitErrors.of(noisy, fit_mixture(noisy))
    >>> errors.estimate([0, 1], [0.95]).share_means.round(1).tolist()
    [0.4, 0.1, 0.1, 0.4]
    """

    noisy: NoisyPairs
    mixture: Mixture
    refits: tuple[Mixture, ...]
    of_columns: "ErrorCurve"
    of_pairs: "ErrorCurve"

    @classmethod
    def of(cls, noisy: NoisyPairs, mixture: Mixture, seed: int = 0, *, bar: Bar = QUIET) -> Self:
        """The errors of a mixture.

        Parameters
        ----------
        noisy : NoisyPairs
        mixture : Mixture
            The fit to `noisy`.
        seed : int
            The public seed of the fit.
        bar : Bar
            Advances by one with each of the `2 * STEPS` steps.
        """
        sums = {1: _Sums(_EDGES_OF_COLUMNS, _SCALES_OF_COLUMNS), 2: _Sums(_EDGES_OF_PAIRS, _SCALES_OF_PAIRS)}
        columns = [column for column, length in enumerate(noisy.lengths) if length > 1]
        tables = [table for order in sums for table in itertools.combinations(columns, order)]
        refits = []
        for number in range(_REFITS):
            drawn = _drawn(noisy, mixture, np.random.default_rng([seed, 2, number]))
            replicate = _measured(drawn, np.random.default_rng([seed, 3, number]))
            refits.append(fit_mixture(replicate, seed, bar=bar))
            for table in tables:
                cells, counts = _Cells.of(noisy, mixture, table), _Cells.of(drawn, mixture, table).counts
                sums[len(table)].add(cells, _Cells.of(replicate, refits[-1], table), counts)
        return cls(noisy, mixture, tuple(refits), sums[1].curve(), sums[2].curve())

    def estimate(self, columns: Sequence[int], prob: Sequence[float]) -> Estimate:
        """Means, standard deviations and central intervals of the cells of one, two or three columns.

        Parameters
        ----------
        columns : sequence of int
            Distinct columns.
        prob : sequence of float
            Probabilities of the intervals, in (0, 1).

        Returns
        -------
        estimate : Estimate
            Estimates of the shares in the population that the records are from, and of the counts of the records. A
            pair and one of its columns need not agree.

        Raises
        ------
        ArgumentError
            If the columns are not up to three different ones, or a probability is outside (0, 1).

        Notes
        -----
        Coverage is averaged over all cells with about the same number of expected records. By design it is nominal if
        this number is at least the standard deviation of the noise. Below it, where most cells are empty, coverage is
        higher. But intervals often miss a cell with records where hardly any are expected, and pairs of few cells
        whose dependence the noise hides. Intervals of three columns are less reliable.
        """
        columns, places = [integer(0, column=column) for column in columns], range(len(self.noisy.lengths))
        if not (1 <= len(set(columns)) == len(columns) <= 3 and all(column in places for column in columns)):
            raise ArgumentError(
                f"Expected one, two or three different columns of {len(places)}, got {columns}. More have no intervals."
            )
        # A column of one category has no information and was not measured.
        known = [column for column in columns if self.noisy.lengths[column] > 1]
        if len(known) == 3:
            return self._bootstrapped(known, prob)
        if not known:
            all_records, its_sd = np.full(1, self.noisy.n_records), np.full(1, self.noisy.n_records_sd)
            return _estimate(np.ones(1), np.zeros(1), all_records, its_sd, prob, "")
        cells = _Cells.of(self.noisy, self.mixture, known)
        curve = self.of_columns if len(known) == 1 else self.of_pairs
        (shares, share_sds), (counts, count_sds) = curve.estimates(cells)
        if len(known) == 1:
            # No fit reduces the sampling error of a column, and its cells are few.
            shares, share_sds = counts, np.sqrt(count_sds**2 + cells.total - cells.variance)
        caveat = "noisy counts and a fit to all pairs, taken together by their errors"
        n_records = self.noisy.n_records
        return _estimate(shares / n_records, share_sds / n_records, counts, count_sds, prob, caveat)

    def _bootstrapped(self, columns: Sequence[int], prob: Sequence[float]) -> Estimate:
        """Estimates of three columns, which were not measured: from the refits, and the bias of the fit in pairs."""
        n_records = self.noisy.n_records
        expected = np.maximum(n_records * self.mixture.table(columns), 1e-9)
        tables = np.array([n_records * refit.table(columns) for refit in self.refits])
        squares = np.mean((tables - expected) ** 2, axis=0)
        # The average over cells with about the same number of expected records, per record.
        places = np.unique(np.ceil(2 * np.log10(expected)), return_inverse=True)[1].ravel()
        ratios = np.bincount(places, squares.ravel()) / np.bincount(places, expected.ravel())
        variances = ratios[places].reshape(expected.shape) * expected
        for axis in range(3):
            pair = [column for place, column in enumerate(columns) if place != axis]
            cells = _Cells.of(self.noisy, self.mixture, pair)
            relative = self.of_pairs.excess_of(cells).reshape(cells.expected.shape) / expected.sum(axis=axis) ** 2
            variances += expected**2 * np.expand_dims(relative, axis)
        means, share_sds = expected.ravel() / n_records, np.sqrt(variances).ravel() / n_records
        caveat = "a bootstrap of the fit; what is in no pair of the columns is not in its errors"
        # The fit's errors include the sampling error, but its correlation with the counts is not known.
        count_sds = n_records * np.sqrt(share_sds**2 + means * (1 - means) / n_records)
        return _estimate(means, share_sds, n_records * means, count_sds, prob, caveat)


@final
@dataclass(frozen=True, eq=False)
class ErrorCurve:
    """Errors of a fit by the expected number of records, from averages over all cells of columns or of pairs.

    Attributes
    ----------
    edges : array, shape (bins - 1,)
        Expected records between the bins, in standard deviations of the noise.
    residuals : array, shape (bins,)
        Squares of `y - m` without the bias of the fit, over the variance of `y`.
    excess : array, shape (bins,)
        The variance of the bias, over the root of the expected records.
    of_shares, of_counts : array, shape (2, bins)
        Squares of the fit's errors, and their products with the errors of `y`, over the variance of `y`.
    """

    edges: Array
    residuals: Array
    excess: Array
    of_shares: Array
    of_counts: Array

    def excess_of(self, cells: "_Cells", *, scale_sd: float = 2.0) -> Array:
        """The variance of the bias of the fit in the cells of one table, flat."""
        places, m = cells.places(self.edges), cells.expected
        excess = self.excess[places] * np.sqrt(m.ravel())
        expected_squares = self.residuals[places] * cells.total.ravel()
        # The scale of this table relative to others: positive, with a normal prior about 1. The squares that inform it
        # have a variance of twice their squared mean.
        weighted = excess / (2 * (expected_squares + excess) ** 2)
        precision = 1 / scale_sd**2 + float(weighted @ excess)
        scale = (1 / scale_sd**2 + float(weighted @ (cells.missed.ravel() - expected_squares))) / precision
        # A number in [0, most] has at most the variance of a number that is always 0 or `most`.
        most = m.sum() if m.ndim == 1 else np.minimum(m.sum(axis=0), m.sum(axis=1, keepdims=True))
        return np.minimum(_mean_above_0(scale, precision**-0.5) * excess, (m * (most - m)).ravel())

    def estimates(self, cells: "_Cells") -> list[tuple[Array, Array]]:
        """Estimates and standard deviations of expected counts in the population, and of counts, flat."""
        places, excess = cells.places(self.edges), self.excess_of(cells)
        m, y = cells.expected.ravel(), cells.counts.ravel()
        estimates = []
        for (squares, products), variance in ((self.of_shares, cells.total), (self.of_counts, cells.variance)):
            v = np.ravel(variance)
            fit, product = squares[places] * v + excess, products[places] * v
            k = np.clip((fit - product) / np.maximum(fit + v - 2 * product, 1e-12 * v), 0.0, 1.0)
            left = (1 - k) ** 2 * fit + k**2 * v + 2 * k * (1 - k) * product
            estimates.append((m + k * (y - m), np.sqrt(np.maximum(left, 0.0))))
        return estimates


@final
@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells of a table.

    Attributes
    ----------
    expected, counts : array
        Counts by the fit, and noisy counts. Those of a column are from all tables that have it.
    variance : float
        The variance of the noise.
    total : array
        The variance of noisy counts about their expectation in the population, which includes the sampling error.
    """

    expected: Array
    counts: Array
    variance: float
    total: Array

    @classmethod
    def of(cls, noisy: NoisyPairs, mixture: Mixture, columns: Sequence[int]) -> Self:
        """The cells of a table of one or two columns."""
        places = tuple(noisy.place(column) for column in columns)
        if len(places) == 1:
            counts, variance = noisy.column_counts[places], noisy.column_variance(columns[0])
        else:
            counts, variance = noisy.pair_counts[places].astype(np.float64), noisy.variance
        shares = mixture.table(columns)
        draw = noisy.n_records * shares * (1 - shares) + (noisy.n_records_sd * shares) ** 2
        return cls(noisy.n_records * shares, counts, variance, variance + draw)

    @property
    def missed(self) -> Array:
        """Squared distances of the fit from the noisy counts."""
        return (self.counts - self.expected) ** 2

    def places(self, edges: Array) -> Integers:
        """The bin of each cell, flat."""
        return np.searchsorted(edges, (self.expected / math.sqrt(self.variance)).ravel())


@final
class _Sums:
    """Sums over cells of all refits, by bin."""

    def __init__(self, edges: Array, scales: Integers) -> None:
        self._edges, self._scales, self._sums = edges, scales, np.zeros((9, len(scales)))

    def add(self, cells: _Cells, replicate: _Cells, drawn: Array) -> None:
        """Add a refit.

        Parameters
        ----------
        cells, replicate : _Cells
            Those of the release, and those of the refit with its noisy counts.
        drawn : array
            The counts of the refit without noise.
        """
        m, variance, total = cells.expected, cells.variance, cells.total
        fit, noisy = replicate.expected - m, replicate.counts - m
        fit_of_counts, noise = replicate.expected - drawn, replicate.counts - drawn
        terms = (
            np.ones_like(m),
            m / total**2,
            np.sqrt(m) * cells.missed / total**2,
            np.sqrt(m) / total,
            replicate.missed / total,
            fit**2 / total,
            fit * noisy / total,
            fit_of_counts**2 / variance,
            fit_of_counts * noise / variance,
        )
        places = cells.places(self._edges)
        for row, term in zip(self._sums, terms, strict=True):
            row += np.bincount(places, term.ravel(), len(row))

    def curve(self) -> ErrorCurve:
        """The averages."""
        cells, roots_squared, missed, roots, *sums = self._sums
        # A bin without cells is never used.
        residuals, *averages = np.array(sums) / np.maximum(cells, 1.0)
        safe = np.where(cells > 0, residuals, 1.0)

        def by_scale(terms: Array) -> Array:
            return np.bincount(self._scales, terms)[self._scales]

        # By weighted least squares, with a positive coefficient. Each refit adds the same cells of the release.
        weights = np.maximum(by_scale(roots_squared / safe**2), 1e-300)
        excess = by_scale((missed - safe * roots) / safe**2) / weights
        sds = np.sqrt(2 * (1 + _REFITS) / weights)
        scales = np.array([_mean_above_0(*pair) for pair in zip(excess, sds, strict=True)])
        moments = [
            # The fit follows the noise, so the correlation is at least 0; and it is at most 1.
            np.array([squares, np.clip(products, 0.0, np.sqrt(squares))])
            for squares, products in (averages[:2], averages[2:])
        ]
        return ErrorCurve(self._edges, safe, scales, *moments)


def _mean_above_0(mean: float, sd: float) -> float:
    """The mean of a normal distribution truncated to positive numbers."""
    t = mean / sd
    return max(mean + sd * math.exp(-0.5 * t**2 - float(log_ndtr(t))) / math.sqrt(2 * math.pi), 0.0)


def _drawn(noisy: NoisyPairs, mixture: Mixture, rng: np.random.Generator) -> NoisyPairs:
    """Counts without noise of records drawn from a mixture."""
    n, lengths = round(noisy.n_records), noisy.lengths
    components = rng.integers(len(mixture.shares), size=n)
    codes = []
    for shares, length in zip(mixture.by_column, lengths, strict=True):
        # The distribution functions of all components in one rising array: component k from k to k + 1.
        ends = (np.cumsum(shares, axis=1) + np.arange(len(shares))[:, None])[:, :-1]
        codes.append(np.searchsorted(ends.ravel(), components + rng.random(n)) - (length - 1) * components)
    counts, pair_counts = np.empty(len(noisy.counts)), np.zeros_like(noisy.pair_counts)
    for i, code in enumerate(codes):
        column = noisy.place(i)
        counts[column] = np.bincount(code, minlength=lengths[i])
        for j in range(i + 1, len(codes)):
            cells = np.bincount(code * lengths[j] + codes[j], minlength=lengths[i] * lengths[j])
            pair_counts[column, noisy.place(j)] = cells.reshape(lengths[i], lengths[j])
            pair_counts[noisy.place(j), column] = pair_counts[column, noisy.place(j)].T
    return replace(noisy, counts=counts, pair_counts=pair_counts, known_records=n)


def _measured(counts: NoisyPairs, rng: np.random.Generator) -> NoisyPairs:
    """The same counts with noise."""
    sd, several = math.sqrt(counts.variance), np.repeat(np.array(counts.lengths) > 1, counts.lengths)
    noise = np.triu(rng.standard_normal(counts.pair_counts.shape, dtype=np.float32), 1)
    return replace(
        counts,
        counts=counts.counts + sd * several * rng.standard_normal(len(several)),
        pair_counts=counts.pair_counts + np.float32(sd) * counts.is_measured * (noise + noise.T),
    )


def _estimate(
    shares: Array, share_sds: Array, counts: Array, count_sds: Array, prob: Sequence[float], caveat: str
) -> Estimate:
    """The estimate with normal errors, clipped to possible shares and counts."""
    levels, tails = interval_ends(prob)

    def share_quantiles(levels: Array) -> Array:
        return np.asarray(np.clip(shares + share_sds * ndtri(levels)[:, None], 0.0, 1.0))

    # The quantiles of a rounded normal variable.
    count_quantiles = np.maximum(np.ceil(counts + count_sds * ndtri(tails)[:, None] - 0.5), 0.0).astype(np.int64)
    return Estimate(
        share_means=np.clip(shares, 0.0, 1.0),
        share_sds=share_sds,
        count_means=np.maximum(counts, 0.0),
        count_sds=count_sds,
        prob=levels,
        count_intervals=np.stack(np.split(count_quantiles, 2), axis=-1),
        log_evidence=math.nan,
        share_quantiles=share_quantiles,
        caveat=caveat,
    )
