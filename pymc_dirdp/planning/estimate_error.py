"""The expected error of the shares from :func:`pymc_dirdp.estimate`, before any data are seen.

Tables are simulated from the model's prior and released. The means of the shares given the release are compared with
the shares. Sums over all tables of counts use a saddle-point approximation, the normal approximation of sums of
independent, tilted cells, for all simulated tables at once. This is for planning, and not for inference.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, logsumexp

from pymc_dirdp.arrays import Array
from pymc_dirdp.mechanisms.base import Tempered
from pymc_dirdp.mechanisms.noise import Noise
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio


@final
@dataclass(frozen=True)
class EstimateError:
    """Expected errors of estimated shares, averaged over rows.

    Attributes
    ----------
    kl : float
        Divergence of the estimate from the shares, in nats.
    share : float
        Root mean square error of one share.
    """

    kl: float
    share: float


def estimate_error(
    mechanism: TableMechanism,
    prior: Array,
    n_records: int,
    *,
    public: bool = True,
    totals: Sequence[int] = (),
    draws: int = 1,
) -> EstimateError | None:
    """The expected error of estimates from releases of a mechanism; None if it is not known, or without records.

    Parameters
    ----------
    mechanism : TableMechanism
        A mechanism that adds noise to counts, draws from a tempered posterior, or releases a whole posterior. If the
        density of the output is not a product over cells, as for the Hellinger mechanism with three categories, the
        error is that of the mean of the released posterior.
    prior : array, shape (..., d)
        The model's own prior.
    n_records : int
        The public number of records, or the size to plan for.
    public : bool, default True
        Whether the analyst knows the number of records. If not, it has a uniform prior up to twice the number. The
        division of the records among rows is private and has a uniform prior. The approximation ignores that the rows
        add up to all records, so the error is a little too large. If a person has as many records in every row, and
        their number is public, rows hold equal numbers.
    totals : sequence of int, optional
        The public numbers of records of parts of the rows: the entries of the axes along which a person stays in place,
        see :meth:`Contribution.rows_by_entry`. The division of records is unknown only within a part.
    draws : int, default 1
        The number of released draws, if each is a release.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms.geometric import GeometricMechanism
    >>> error = estimate_error(GeometricMechanism(np.ones(4), 2.0), np.ones(4), 592)
    >>> round(error.share, 3)
    0.016
    """
    if n_records == 0:
        return None
    if prior.shape[-1] == 1:
        # Every share is 1, before and after.
        return EstimateError(0.0, 0.0)
    # The maximum number of simulated draws of a table.
    times = mechanism.output_kind.releases_for(min(draws, 1_000))
    return _estimate_error(mechanism, prior.shape, prior.tobytes(), n_records, public, tuple(totals), times)


def estimated_shares(
    mechanism: TableMechanism,
    prior: Array,
    counts: Array,
    *,
    public: bool,
    rng: np.random.Generator,
    totals: Sequence[int] = (),
    draws: int = 1,
    times: int | None = None,
) -> Array | None:
    """Estimates of the shares of one table from a simulated release; None if they are not known.

    Parameters
    ----------
    mechanism : TableMechanism
    prior : array, shape (..., d)
    counts : array, shape of `prior`
        Made-up counts, or those of the data for the curator's eyes.
    public : bool
        Whether the analyst knows the number of records.
    rng : numpy.random.Generator
    totals, draws
        As for :func:`estimate_error`.
    times : int, optional
        The number of releases to simulate, with an estimate from each alone.

    Returns
    -------
    shares : array, shape of `prior`, or (times, ..., d)
    """
    d = prior.shape[-1]
    table = counts.reshape(-1, d).astype(np.float64)
    row_index = np.tile(np.arange(len(table)), times or 1)
    sizes, sharing = mechanism.public_sizes(prior.shape, round(float(table.sum())), totals, public=public)
    rows = _Rows(row_index, prior.reshape(-1, d)[row_index], table[row_index], sharing, sizes[row_index], public)
    estimates = _estimates(mechanism, rows, draws, rng)
    return None if estimates is None else estimates.reshape(prior.shape if times is None else (times, *prior.shape))


@lru_cache(maxsize=512)
def _estimate_error(
    mechanism: TableMechanism,
    shape: tuple[int, ...],
    prior: bytes,
    n_records: int,
    public: bool,
    totals: tuple[int, ...],
    draws: int,
    *,
    most_cells: int = 2_000,
) -> EstimateError | None:
    """The same with arguments that can be cached. A row with more than `most_cells` cells is sampled."""
    table, part = np.frombuffer(prior).reshape(-1, shape[-1]), 1.0
    sizes, sharing = mechanism.public_sizes(shape, n_records, totals, public=public)
    if shape[-1] > most_cells:
        # Cells at equal steps in the order of their priors, with their part of the records. The relation of noise to
        # records is the same, and the shares are larger.
        order = np.argsort(table.sum(axis=0), kind="stable")
        cells = np.sort(order[np.linspace(0, shape[-1] - 1, most_cells).round().astype(np.intp)])
        part = most_cells / shape[-1]
        mechanism, table = _of_cells(mechanism, shape, cells), table[:, cells]
        sizes = np.maximum(np.minimum(sizes, 1), np.round(part * sizes))
    rows = _Rows.simulated(table, sizes, sharing, public=public)
    rng = np.random.default_rng(20261122)
    estimated = _estimates(mechanism, rows, draws, rng)
    if estimated is None:
        return None
    error = _error_of(rows.prior + rows.counts, estimated)
    return EstimateError(error.kl, part * error.share)


def _of_cells(mechanism: TableMechanism, shape: tuple[int, ...], cells: NDArray[np.intp]) -> TableMechanism:
    """The mechanism for a subset of the cells of each row."""
    facts = {field.name: getattr(mechanism, field.name) for field in fields(mechanism)}  # type: ignore[arg-type]
    arrays = {name: values[..., cells] for name, values in facts.items() if np.shape(values) == shape}
    return replace(mechanism, **arrays)  # type: ignore[type-var]  # each is a dataclass


@final
@dataclass(frozen=True, eq=False)
class _Rows:
    """Simulated rows: their rows of the table, priors and counts, shape (m, d), and the public facts about totals.

    Each is one of `sharing` rows that divide `n_records`, shape (m,), among them; `public` says if this is known.
    """

    which: NDArray[np.intp]
    prior: Array
    counts: Array
    sharing: int
    n_records: Array
    public: bool

    @classmethod
    def simulated(
        cls, prior: Array, n_records: Array, sharing: int, *, public: bool, cells: int = 2_000, most: int = 1_000
    ) -> "_Rows":
        """Rows of tables with a prior of shape (rows, d), and the records that each shares with others: (rows,).

        They have about `cells` cells, from at least 3 and at most `most` tables.
        """
        # A seed does not affect privacy here, because no data are used, and repeated plans are equal.
        rng = np.random.default_rng(20261121)
        n_rows, d = prior.shape
        # The maximum number of rows of one table.
        looked_at = np.unique(np.linspace(0, n_rows - 1, min(n_rows, 16)).round().astype(np.intp))
        tables = max(1, round(min(max(cells / d, 3), most) / len(looked_at)))
        row_index = np.tile(looked_at, tables)
        shared = n_records[row_index].astype(np.int64)
        # The share of one row under a uniform prior over divisions of the records among rows.
        totals = rng.binomial(shared, rng.beta(1.0, sharing - 1.0, len(row_index))) if sharing > 1 else shared
        logs = _log_gammas(prior[row_index], rng)
        shares = np.exp(logs - logsumexp(logs, axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        counts = rng.multinomial(totals, shares).astype(np.float64)
        return cls(row_index, prior[row_index], counts, sharing, shared.astype(np.float64), public)

    @property
    def sizes(self) -> Array:
        """True totals, shape (m,)."""
        return np.asarray(self.counts.sum(axis=-1))

    @property
    def most(self) -> Array:
        """The largest possible total for an estimate, shape (m,); at least 1."""
        return np.maximum(1.0, self.n_records if self.public else 2 * self.n_records)

    def totals(self, observed: tuple[Array, float] | None, *, n_totals: int = 9) -> tuple[Array, Array]:
        """Grid of totals, and the logarithms of their prior weights; shape (k, m).

        The totals are evenly spaced around the observed total, if there is one. Otherwise each stands for an equal
        share of the prior.

        The grid has `n_totals` totals if the total of a row is private.
        """
        if (self.public and self.sharing == 1) or (observed is not None and observed[1] == 0):
            return self.sizes[None], np.zeros((1, len(self.counts)))
        level = (np.arange(n_totals)[:, None] + 0.5) / n_totals
        # The quantiles of the total of one row; for a single row, of the number of records.
        prior = self.most * -np.expm1(np.log1p(-level) / max(self.sharing - 1, 1))
        possible_totals = np.broadcast_to(prior, (n_totals, len(self.counts)))
        weights = np.zeros(possible_totals.shape)
        if observed is not None:
            low, high = (np.clip(observed[0] + side * 3.5 * observed[1], 0, self.most) for side in (-1, 1))
            is_known = (high > low) & (high - low < self.most)
            possible_totals = np.where(
                is_known, low + (high - low) * np.linspace(0, 1, n_totals)[:, None], possible_totals
            )
            thinner = max(self.sharing - 2, 0) * np.log1p(-np.minimum(possible_totals / self.most, 1 - 1e-9))
            weights = np.where(is_known, thinner, weights)
        # The prior of the shares decides the probability of each table with a total.
        return possible_totals, weights - _log_gamma_ratio(possible_totals, self.prior.sum(axis=-1))  # type: ignore[arg-type, operator]


class _Noise:
    """The likelihood of counts given noisy counts."""

    def __init__(self, noise: Noise, rows: _Rows, rng: np.random.Generator) -> None:
        z = rows.counts + noise.of_row(rows.counts.shape[-1]).fast(rows.counts.shape, rng)
        totals = z.sum(axis=-1)
        # Noise that adds up to 0 in each row reveals its total.
        tells_totals = np.array_equal(totals, rows.sizes)
        self.observed_total = totals, 0.0 if tells_totals else noise.sd * math.sqrt(z.shape[-1]) + 1
        # The maximum distance of a count from its release, in standard deviations.
        reach = 12.0 * noise.sd + 1
        self._cells = _Cells.between(z - reach, z + reach, rows, lambda x, z: noise.log_pmf(z - x), (z,))

    def cells(self, totals: Array) -> "_Cells":
        return self._cells

    def total_loglik(self, totals: Array) -> Array:
        """The factor of a total in the likelihood, as a logarithm."""
        return np.zeros(totals.shape)


class _Draws:
    """The likelihood of counts given draws from `Dirichlet(r * counts + alpha)`."""

    observed_total = None

    def __init__(self, tempered: Tempered, rows: _Rows, draws: int, rng: np.random.Generator) -> None:
        self._rows, self._r, self._draws = rows, tempered.r, draws
        self._alpha = tempered.alpha.reshape(-1, rows.prior.shape[-1])[rows.which]
        self._logs, self._mean = np.zeros(rows.counts.shape), np.zeros(rows.counts.shape)
        for _ in range(draws):
            logs = _log_gammas(self._r * rows.counts + self._alpha, rng)
            logs -= logsumexp(logs, axis=-1, keepdims=True)
            self._logs += logs
            self._mean += np.exp(logs) / draws

    def cells(self, totals: Array) -> "_Cells":
        size = (self._r * totals + self._alpha.sum(axis=-1))[:, None]
        parameters = self._mean * size
        middle = (parameters - self._alpha) / self._r
        # The maximum distance of a count from its release, in standard deviations.
        reach = 12.0 * np.sqrt(np.maximum(parameters, 1.0) / self._draws) / self._r + 1
        slopes = self._r * self._logs
        return _Cells.between(middle - reach, middle + reach, self._rows, self._log_likelihood, (self._alpha,), slopes)

    def _log_likelihood(self, x: Array, alpha: Array) -> Array:
        """The log-likelihood without the product of count and slope."""
        return np.asarray(-self._draws * gammaln(self._r * x + alpha))

    def total_loglik(self, totals: Array) -> Array:
        """The factor of a total in the likelihood, as a logarithm."""
        size = self._r * totals + self._alpha.sum(axis=-1)
        return np.asarray(self._draws * gammaln(size))


@final
@dataclass(frozen=True, eq=False)
class _Cells:
    """Bounds of every count, shape (m, d), and the logarithm of the weight of a count before the tilt.

    It is `log_weight(x, *known) + slopes * x`, elementwise in arrays of shape (m, d). Cells with the same bounds and
    `known` have the same points and weights; if they also share a row and a slope, they have the same moments. Each is
    computed once.
    """

    low: Array
    high: Array
    log_weight: Callable[..., Array]
    known: tuple[Array, ...]
    slopes: Array
    n_points: ClassVar[int] = 96
    """Number of points at which the weights of a cell are summed."""

    @classmethod
    def between(
        cls,
        low: Array,
        high: Array,
        rows: _Rows,
        log_likelihood: Callable[..., Array],
        observations: tuple[Array, ...],
        slopes: Array | float = 0.0,
    ) -> "_Cells":
        most = rows.most[:, None]
        low = np.floor(np.clip(low, 0, most - 1))
        high = np.ceil(np.clip(high, low + 1, most))

        def log_weight(x: Array, prior: Array, *observations: Array) -> Array:
            return _log_gamma_ratio(x, prior) + log_likelihood(x, *observations)  # type: ignore[arg-type]  # It broadcasts.

        parameters = tuple(np.broadcast_to(values, low.shape) for values in (rows.prior, *observations))
        return cls(low, high, log_weight, parameters, np.broadcast_to(slopes, low.shape))

    @cached_property
    def _points(self) -> tuple[NDArray[np.intp], Array, Array]:
        """The kind of each cell, and points of the kinds with logarithms of their weights, shape (kinds, points).

        The points are the midpoints of blocks of counts between the bounds, which are shorter near 0.
        """
        representative, kind = _distinct(self.low, self.high, *self.known)
        low, high, *known = (values.ravel()[representative, None] for values in (self.low, self.high, *self.known))
        level = np.linspace(0, 1, self.n_points + 1)
        edges = np.floor(low + (high + 1 - low) * np.where(low == 0, level**3, level))
        length = np.diff(edges, axis=1)
        points = edges[:, :-1] + np.maximum(length - 1, 0) / 2
        with np.errstate(divide="ignore"):
            return kind, points, np.log(length) + self.log_weight(points, *known)

    @cached_property
    def _distinct_sets(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """One cell of each set with the same moments, and the set of each cell."""
        return _distinct(self._points[0], np.repeat(np.arange(len(self.low)), self.low.shape[1]), self.slopes)

    def conditional_means(self, totals: Array) -> tuple[Array, Array]:
        """Means of the counts given totals, shape (m, d), and the logarithm of the sum of all products, shape (m,)."""
        if self.low.shape[-1] == 2:
            return self._of_two(totals)
        tilt = self._tilt(totals)
        log_sum, mean, variance = self._moments(tilt)
        spread = np.maximum(variance.sum(axis=-1), 1e-3)
        mean = mean + ((totals - mean.sum(axis=-1)) / spread)[:, None] * variance
        return np.maximum(mean, 0), log_sum.sum(axis=-1) - tilt * totals - np.log(spread) / 2

    def _of_two(self, totals: Array) -> tuple[Array, Array]:
        """The same for two cells, where one count determines the other, so that the sum is exact."""
        first = np.maximum(self.low[:, 0], np.ceil(totals - self.high[:, 1]))
        last = np.maximum(np.minimum(self.high[:, 0], np.floor(totals - self.low[:, 1])), first)
        level = np.linspace(0, 1, 4 * self.n_points + 1)[:, None]
        edges = np.floor(first + (last + 1 - first) * level**2 * (3 - 2 * level))
        length = np.diff(edges, axis=0)
        points = edges[:-1] + np.maximum(length - 1, 0) / 2
        pairs = np.stack([points, np.maximum(totals - points, 0)], axis=-1)
        with np.errstate(divide="ignore"):
            logs = np.log(length) + (self.log_weight(pairs, *self.known) + self.slopes * pairs).sum(axis=-1)
        log_sum = logsumexp(logs, axis=0)
        mean = (np.exp(logs - log_sum) * points).sum(axis=0)
        return np.stack([mean, np.maximum(totals - mean, 0)], axis=-1), log_sum

    def _moments(self, tilt: Array, *, at_once: int = 512) -> Array:
        """Logarithms of sums over the points of every cell, means, and variances; shape (3, m, d).

        The points of `at_once` cells fit into a cache.
        """
        kind, points, log_weights = self._points
        representative, index = self._distinct_sets
        kinds, slopes = kind[representative], (tilt[:, None] + self.slopes).ravel()[representative]
        moments = np.empty((3, len(representative)))
        for start in range(0, len(representative), at_once):
            block = slice(start, start + at_once)
            x = points[kinds[block]]
            logs = log_weights[kinds[block]] + slopes[block, None] * x
            top = logs.max(axis=1)
            mass = np.exp(logs - top[:, None])
            total = mass.sum(axis=1)
            mean = (mass * x).sum(axis=1) / total
            moments[:, block] = top + np.log(total), mean, (mass * (x - mean[:, None]) ** 2).sum(axis=1) / total
        return moments[:, index].reshape(3, *self.low.shape)

    def _tilt(self, totals: Array) -> Array:
        """The tilt at which the means add up to the totals: Newton's method between bounds."""
        low, high, step = np.full(len(totals), -np.inf), np.full(len(totals), np.inf), np.full(len(totals), 1.0)
        tilt = np.zeros(len(totals))
        for _ in range(80):
            _, mean, variance = self._moments(tilt)
            excess, spread = mean.sum(axis=-1) - totals, variance.sum(axis=-1)
            converged = np.abs(excess) <= 0.02 * np.sqrt(spread) + 1e-6
            if converged.all():
                break
            low, high = np.where(excess < 0, tilt, low), np.where(excess < 0, high, tilt)
            newton = tilt - excess / np.maximum(spread, 1e-12)
            bounded = np.isfinite(high - low)
            usual = (newton > low) & (newton < high) & (np.abs(newton - tilt) <= 10 * step)
            next_tilt = np.where(bounded, (low + high) / 2, tilt - np.sign(excess) * step)
            step = np.where(usual | bounded, step, 4 * step)
            tilt = np.where(converged, tilt, np.where(usual, newton, np.nan_to_num(next_tilt)))
        return tilt


def _estimates(mechanism: TableMechanism, rows: _Rows, draws: int, rng: np.random.Generator) -> Array | None:
    """Expected shares of rows, shape (m, d), given simulated releases of a mechanism; None if they are not known."""
    if mechanism.tempered is not None:
        return _estimate_cells(_Draws(mechanism.tempered, rows, draws, rng), rows)
    # The likelihood of several outputs is known for tempered draws alone.
    noise = mechanism.row_noise if draws == 1 else None
    return None if noise is None else _estimate_cells(_Noise(noise, rows, rng), rows)


def _estimate_cells(noise: _Noise | _Draws, rows: _Rows) -> Array:
    """Expected shares given a release, averaged over the possible totals; shape (m, d)."""
    totals, weights = rows.totals(noise.observed_total)
    shares, logs = [], []
    for total, weight in zip(totals, weights, strict=True):
        means, log_sum = noise.cells(total).conditional_means(total)
        shares.append((rows.prior + means) / (rows.prior + means).sum(axis=-1, keepdims=True))
        logs.append(weight + log_sum + noise.total_loglik(total))
    mass = np.exp(np.array(logs) - logsumexp(logs, axis=0))
    return np.asarray((mass[..., None] * np.array(shares)).sum(axis=0))


def kl_of_estimate(parameters: Array, estimate: Array) -> Array:
    """The expected divergence of estimates from the shares of each row, which are Dirichlet given the counts.

    The shape of `estimate` may have further axes in front: (..., *rows, d) gives (..., *rows).
    """
    size = parameters.sum(axis=-1, keepdims=True)
    shares = parameters / size
    cell_terms = (shares * (digamma(parameters + 1) - digamma(size + 1) - np.log(shares))).sum(axis=-1)
    return np.asarray(cell_terms + (shares * np.log(shares / estimate)).sum(axis=-1))


def _error_of(parameters: Array, estimate: Array) -> EstimateError:
    """The error of estimates of rows, shape (m, d), averaged over these.

    The error given the counts is exact; the additional error of the release is averaged over the rows.
    """
    size = parameters.sum(axis=-1, keepdims=True)
    best = parameters / size
    squared = best * (1 - best) / (size + 1) + (best - estimate) ** 2
    kl = float(kl_of_estimate(parameters, estimate).mean())
    return EstimateError(kl, math.sqrt(float(squared.mean())))


def _distinct(*columns: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first position of each distinct combination of entries of flattened arrays, and each position's number."""
    flat = [column.ravel() for column in columns]
    order = np.lexsort(flat)
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([np.diff(column[order]) != 0 for column in flat], axis=0)
    index = np.empty(len(order), dtype=np.intp)
    index[order] = np.cumsum(new) - 1
    return order[new], index


def _log_gammas(shape: Array, rng: np.random.Generator) -> Array:
    """Logarithms of Gamma variables; for a small shape the variables themselves are below every double."""
    return np.asarray(np.log(rng.standard_gamma(shape + 1.0)) + np.log1p(-rng.random(shape.shape)) / shape)
