"""A low-rank mixture of products, fitted to noisy counts of columns and of pairs of them.

Each of several hundred components of equal weight is a product of shares, one vector for each column. Its logits are
`common + place @ slopes`, where the place has few coordinates. This is close to a log-linear model of all pairs, so
the shares of three columns, which are not measured, are also close.

Places have a standard normal prior, slopes a normal prior and noisy counts a normal likelihood, so the fit is a
posterior mode. The prior prevents overfitting the noise, so the data need not choose the number of steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.progress import QUIET, Bar

COMPONENTS, RANK = 300, 24
"""The number of components, and of their coordinates. 800 or 48 were not more accurate."""
SLOPE_SD, COMMON_SD = 2.5 / math.sqrt(RANK), 4.0
"""The standard deviations of slopes, so that logits differ by 2.5 among components, and of common logits."""
STEPS = 500
"""The steps of a descent. With 2,000 the fit of Adult hardly changes."""
_FLOOR = 0.02

# Matrices of all pairs of categories. The noise is far larger than the rounding of single precision.
_Single = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class NoisyPairs:
    """Noisy counts of columns and pairs of columns, with the categories of all columns side by side.

    Attributes
    ----------
    lengths : tuple of int
        The number of categories of each column.
    counts : array, shape (categories,)
        Noisy counts of single columns.
    pair_counts : array, shape (categories, categories)
        Noisy counts of pairs; symmetric, and 0 between categories of one column. Columns of one category are not
        measured.
    variance : float
        The variance of the noise in each cell.
    known_records : int, optional
        The number of records, if it is public.
    """

    lengths: tuple[int, ...]
    counts: Array
    pair_counts: _Single
    variance: float
    known_records: int | None = None

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The first category of each column, and the end of the last column."""
        return (0, *np.cumsum(self.lengths).tolist())

    def place(self, column: int) -> slice:
        """The categories of a column."""
        return slice(self.ends[column], self.ends[column + 1])

    @cached_property
    def is_measured(self) -> NDArray[np.bool_]:
        """Which cells of pairs have noisy counts, shape (categories, categories)."""
        column = np.repeat(np.arange(len(self.lengths)), self.lengths)
        several = np.array(self.lengths)[column] > 1
        return np.asarray(several & several[:, None] & (column != column[:, None]))

    @cached_property
    def _inverse(self) -> Array:
        """One over the length of each measured column, and 0 for others."""
        lengths = np.array(self.lengths, dtype=np.float64)
        return np.where(lengths > 1, 1 / lengths, 0.0)

    @cached_property
    def _sums(self) -> Array:
        """The sums of all pairs over each of their columns, shape (categories, columns)."""
        return np.add.reduceat(self.pair_counts.astype(np.float64), self.ends[:-1], axis=1)

    @cached_property
    def column_counts(self) -> Array:
        """Counts of single columns by least squares from all tables, shape (categories,).

        A pair yields the counts of each of its columns, with variance proportional to the length of the other.
        """
        others = self._inverse.sum() - self._inverse
        return np.asarray((self.counts + self._sums @ self._inverse) / np.repeat(1 + others, self.lengths))

    def column_variance(self, column: int) -> float:
        """The variance of these counts in each category of a column."""
        return float(self.variance / (1 + self._inverse.sum() - self._inverse[column]))

    @cached_property
    def _precision(self) -> float:
        """One over the variance of the number of records estimated from all tables, in units of the noise."""
        inverse = self._inverse
        return float(inverse.sum() + inverse @ (inverse.sum() - inverse) / 2)

    @cached_property
    def n_records(self) -> float:
        """The number of records, public or by least squares; at least 1.

        Each table yields it with a variance proportional to its number of cells.
        """
        if self.known_records is not None:
            return float(max(self.known_records, 1))
        starts = self.ends[:-1]
        pairs = self._inverse @ np.add.reduceat(self._sums, starts, axis=0) @ self._inverse / 2
        columns = self._inverse @ np.add.reduceat(self.counts, starts)
        return max(float(columns + pairs) / self._precision, 1.0)

    @property
    def n_records_sd(self) -> float:
        """The standard deviation of the estimate; 0 if the number is public."""
        return math.sqrt(self.variance / self._precision) if self.known_records is None else 0.0

    @cached_property
    def shares(self) -> Array:
        """The shares of each column, by least squares from all tables."""
        counts, total = self.column_counts, self.n_records
        nearest = [_simplex(counts[self.place(column)] / total) for column in range(len(self.lengths))]
        # No share may be 0, because the descent begins at the logarithms.
        return np.concatenate([(1 - _FLOOR) * shares + _FLOOR / len(shares) for shares in nearest])

    @property
    def hides_dependence(self) -> bool:
        """Whether noise alone explains the distance of the pairs from independence."""
        alone = self.shares.astype(np.float32)
        expected = np.float32(self.n_records) * np.outer(alone, alone)
        squares = np.where(self.is_measured, (self.pair_counts - expected) ** 2, 0.0).sum(dtype=np.float64)
        cells = np.count_nonzero(self.is_measured)
        # Two standard deviations above the mean of the sum of squares. Each cell occurs twice.
        return bool(squares / self.variance / 2 < cells / 2 + 2 * math.sqrt(cells))


def _simplex(values: Array) -> Array:
    """The nearest shares, which are at least 0 and sum to 1."""
    # Subtracting 1 from a very large number would have no effect.
    values = np.clip(values, -1e6, 1e6)
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    shares: Array = np.maximum(values - excess[np.flatnonzero(falling > excess)[-1]], 0.0)
    return shares / shares.sum()


@final
@dataclass(frozen=True, eq=False)
class Mixture:
    """Products of shares with equal weights.

    Attributes
    ----------
    lengths : tuple of int
        The number of categories of each column.
    shares : array, shape (components, categories)
        The shares of all columns side by side; those of each column sum to 1.

    Examples
    --------
    >>> both = Mixture((2, 2), np.array([[0.9, 0.1, 0.8, 0.2], [0.1, 0.9, 0.2, 0.8]]))
    >>> both.table([0, 1]).round(2).tolist()
    [[0.37, 0.13], [0.13, 0.37]]
    """

    lengths: tuple[int, ...]
    shares: Array

    @cached_property
    def by_column(self) -> list[Array]:
        """The shares of each column, shape (components, categories of it)."""
        return np.split(self.shares, np.cumsum(self.lengths)[:-1], axis=1)

    def table(self, columns: Sequence[int]) -> Array:
        """The shares of the cells of some columns."""
        first, *others = (self.by_column[i] for i in columns)
        product = first
        for shares in others[:-1]:
            product = (product[:, :, None] * shares[:, None, :]).reshape(len(product), -1)
        table = product.mean(axis=0) if not others else product.T @ others[-1] / len(product)
        return np.asarray(table.reshape([self.lengths[i] for i in columns]))

    def log_proba(self, codes: dict[int, Integers]) -> Array:
        """Log-probability of records, given their categories in some columns.

        Parameters
        ----------
        codes : dict of int to array of int, shape (n,)
            The categories, by column.
        """
        return np.asarray(logsumexp(self.log_weights(codes), axis=1) - math.log(len(self.shares)))

    def log_weights(self, codes: dict[int, Integers]) -> Array:
        """Log-probability of each record in each component, shape (n, components)."""
        # A share may underflow to 0, but its logarithm must be finite.
        least = np.finfo(np.float64).tiny
        n = len(next(iter(codes.values()), ()))
        total = np.zeros((n, len(self.shares)))
        for column, code in codes.items():
            total += np.log(np.maximum(self.by_column[column], least)).T[code]
        return total


def fit_mixture(noisy: NoisyPairs, seed: int = 0, *, steps: int = STEPS, bar: Bar = QUIET) -> Mixture:
    """The posterior mode of the mixture given noisy counts, by gradient descent.

    Parameters
    ----------
    noisy : NoisyPairs
    seed : int
        Public seed of the starting point.
    steps : int
        Number of steps.
    bar : Bar
        Advances by one with each step.

    Returns
    -------
    mixture : Mixture

    References
    ----------
    Kingma and Ba (2015), Adam: a method for stochastic optimization.

    Examples
    --------
    >>> counts = np.array([[0, 0, 400, 100], [0, 0, 100, 400], [400, 100, 0, 0], [100, 400, 0, 0]], dtype=np.float32)
    >>> noisy = NoisyPairs((2, 2), np.full(4, 500.0), counts, variance=100.0)
    >>> fit_mixture(noisy).table([0, 1]).round(1).tolist()
    [[0.4, 0.1], [0.1, 0.4]]
    """
    descent = _Descent(noisy, np.random.default_rng(seed))
    for _ in range(steps):
        descent.step()
        bar.advance()
    return Mixture(noisy.lengths, np.asarray(descent.shares, dtype=np.float64))


class _Descent:
    """Adam on the logits `common + places @ slopes` of all components, from nearly independent columns."""

    def __init__(
        self, noisy: NoisyPairs, rng: np.random.Generator, *, rate: float = 0.02, spread: float = 0.25
    ) -> None:
        self._noisy, self._rate, categories = noisy, rate, len(noisy.counts)
        self._starts = np.array(noisy.ends[:-1])
        several = np.repeat(np.array(noisy.lengths) > 1, noisy.lengths)
        self._counts, self._precisions = noisy.counts.astype(np.float32), (several / noisy.variance).astype(np.float32)
        self._pair_precisions = noisy.is_measured * np.float32(1 / noisy.variance)
        self._records_per_component = np.float32(noisy.n_records / COMPONENTS)
        common = np.log(noisy.shares).astype(np.float32)[None]
        places = rng.standard_normal((COMPONENTS, RANK), dtype=np.float32)
        slopes = np.float32(spread / math.sqrt(RANK)) * rng.standard_normal((RANK, categories), dtype=np.float32)
        self._parameters = [places, slopes, common]
        self._weights = [np.float32(sd**-2) for sd in (1.0, SLOPE_SD, COMMON_SD)]
        self._moments = [(np.zeros_like(parameter), np.zeros_like(parameter)) for parameter in self._parameters]
        self._steps = 0
        self.shares = self._softmax()

    def _by_column(self, sums: _Single) -> _Single:
        """Sums of columns, repeated for each of their categories."""
        return np.repeat(sums, self._noisy.lengths, axis=1)

    def _softmax(self) -> _Single:
        places, slopes, common = self._parameters
        logits = places @ slopes + common
        weights = np.exp(logits - self._by_column(np.maximum.reduceat(logits, self._starts, axis=1)))
        return np.asarray(weights / self._by_column(np.add.reduceat(weights, self._starts, axis=1)))

    def step(self, *, decays: tuple[float, float] = (0.9, 0.99)) -> None:
        """One step up the log-density."""
        places, slopes, _ = self._parameters
        expected = self._records_per_component * (self.shares.T @ self.shares)
        missed = (expected - self._noisy.pair_counts) * self._pair_precisions
        of_columns = (self._records_per_component * self.shares.sum(axis=0) - self._counts) * self._precisions
        slope = self._records_per_component * (self.shares @ missed + of_columns)
        # The slope in the logits: the shares of a column sum to 1.
        slope -= self._by_column(np.add.reduceat(self.shares * slope, self._starts, axis=1))
        slope *= self.shares
        self._steps += 1
        corrections = [1 - decay**self._steps for decay in decays]
        gradients = (slope @ slopes.T, places.T @ slope, slope.sum(axis=0, keepdims=True))
        for parameter, gradient, weight, (mean, square) in zip(
            self._parameters, gradients, self._weights, self._moments, strict=True
        ):
            down = gradient + weight * parameter
            mean += np.float32(1 - decays[0]) * (down - mean)
            square += np.float32(1 - decays[1]) * (down**2 - square)
            size = np.sqrt(square / np.float32(corrections[1])) + np.float32(1e-12)
            parameter -= np.float32(self._rate / corrections[0]) * mean / size
        self.shares = self._softmax()
