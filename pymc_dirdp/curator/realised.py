"""Errors of draws and of estimates on the data, beside the errors expected without them. Results are confidential."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import xlogy

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.observations import find_observations, read_counts
from pymc_dirdp.models.table import DIAGNOSIS_NAMES, Table, unique_dim
from pymc_dirdp.planning.draw_error import expected_kl
from pymc_dirdp.planning.estimate_error import estimated_shares, kl_of_estimate
from pymc_dirdp.planning.expected_kl import dirichlet_kl_rows
from pymc_dirdp.releases.analysis import estimate
from pymc_dirdp.releases.arviz_groups import dataset_of, log_dirichlet
from pymc_dirdp.releases.axes import cell_labels
from pymc_dirdp.releases.opened import Published, open_release
from pymc_dirdp.sampling.fast import dirichlet

# The two confidential posteriors of each table: that of the model, and the one that a release is drawn from.


@dataclass(frozen=True, eq=False)
class Distribution:
    """`Dirichlet(power * counts + prior)` for every row, the posterior for the likelihood to the power `power`.

    All arrays have the shape of the table.
    """

    table: Table
    counts: Array = field(repr=False)  # Confidential.
    prior: Array  # The model's own prior, or the mechanism's `alpha`.
    power: float  # 1, or the mechanism's `r`.

    @property
    def concentration(self) -> Array:
        """The parameters of the distribution."""
        return self.power * self.counts + self.prior

    def sample(self, chains: int, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws, shape `(chains, draws, *table.shape)`. ArviZ calls the blocks chains."""
        return dirichlet(self.concentration, chains * draws, rng).reshape(chains, draws, *self.counts.shape)

    def sample_prior(self, chains: int, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws from the prior, of the same shape."""
        return dirichlet(self.prior, chains * draws, rng).reshape(chains, draws, *self.counts.shape)

    def log_prior(self, p: Array) -> Array:
        """Logarithm of the prior's density at `p`, for each row: shape `(..., *rows)`.

        See :func:`pymc_dirdp.releases.arviz_groups.log_dirichlet`.
        """
        return log_dirichlet(self.prior, p)


def exact_posterior_of(table: Table, model: pm.Model) -> Distribution:
    """The model's own posterior of a table. This function reads the counts."""
    return Distribution(table, read_counts(find_observations([table], model)).astype(np.float64), table.prior, 1.0)


def simplex(table: Table, values: Array) -> Array:
    """Draws of the released variable with both categories of a Beta, all positive, so that logarithms are finite."""
    p = np.stack([values, 1 - values], axis=-1) if table.family == "beta" else values
    return np.maximum(p, np.finfo(np.float64).tiny)


def variable(table: Table, p: Array) -> Array:
    """The inverse of `simplex`. A Beta variable is the probability of success, the first of two categories."""
    return p[..., 0] if table.family == "beta" else p


def frequencies(counts: Array) -> Array:
    """The share of each cell among the records of its row; 0 in a row without records."""
    sizes = counts.sum(axis=-1, keepdims=True)
    return np.asarray(counts / np.where(sizes > 0, sizes, 1.0))


def by_size(counts: Array, errors: Array) -> Array:
    """The mean of errors of rows, shape (..., *rows), weighted by numbers of records; NaN if there is no record."""
    sizes = counts.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        weights = sizes / sizes.sum()
    return np.asarray((errors * weights).sum(axis=tuple(range(-sizes.ndim, 0))))


def kl_of_draws(counts: Array, y: Array) -> Array:
    """`KL(x/N || y)` of each draw, in nats, averaged over rows by size; P1's measure."""
    p = frequencies(counts)
    return by_size(counts, (xlogy(p, p) - xlogy(p, y)).sum(axis=-1))


def kl_of_estimates(distribution: Distribution, estimates: Array) -> Array:
    """The expected divergence of estimates from the shares given the data, averaged over rows; shape of the first axes.

    The expectation is over the model's own posterior, so it is comparable with that expected without the data.
    """
    row_kl = kl_of_estimate(distribution.counts + distribution.table.prior, estimates)
    return np.asarray(row_kl.mean(axis=tuple(range(1 - distribution.counts.ndim, 0))))


def errors_of(
    release: Published,
    posterior: tuple[Distribution, ...],
    private: Mapping[str, Distribution],
    rng: np.random.Generator,
) -> dict[str, xr.Dataset]:
    """The errors of all tables, in nats with their ranks, and the errors of every cell by table.

    A rank is the share of a reference with a smaller error. `kl_estimate` is the divergence of the estimate from the
    shares, with fresh releases of the same data for reference. If each table has a tempered posterior there are two
    more. `kl_release` is `KL(x/N || y)` of each released draw, averaged over rows by size; its reference are draws of
    the private posterior given these data. `kl_posterior` is the divergence of the private posterior from the model's
    own, summed over rows; its reference are data sets of the same row sizes from the model's prior.
    """
    stored, estimates = open_release(release), _estimates_of(release, posterior)
    all_tempered = all(distribution.table.name in private for distribution in posterior)
    groups, rows = {}, []
    for distribution in posterior:
        name, counts = distribution.table.name, distribution.counts
        table, expected, tempered = stored.tables[name], stored.errors[name], private.get(name)
        fresh = fresh_estimates(
            distribution,
            table.mechanism,
            public=stored.plan.privacy_unit.n_records_is_public,
            totals=table.totals,
            draws=table.mechanism.output_kind.releases_for(stored.plan.released_draws),
            rng=rng,
        )
        released = simplex(distribution.table, table.draws)
        replicated = kl_of_estimates(distribution, fresh)
        error = kl_of_estimates(distribution, estimates[name])
        row = {
            **_ranked("kl_estimate", error, replicated, expected.estimate_kl),
            "kl_estimate_mean": replicated.mean() if len(replicated) else np.nan,
        }
        if tempered is not None and all_tempered:
            error, replicated = kl_of_draws(counts, released), kl_of_draws(counts, tempered.sample(1, 500, rng)[0])
            row |= _ranked("kl_release", error, replicated, expected.expected_kl_estimate)
            row["kl_release_mean"] = by_size(counts, expected_kl(frequencies(counts), tempered.concentration))
            error, replicated = _kl_of_posteriors(distribution, tempered, rng)
            row |= _ranked("kl_posterior", error, replicated, expected.expected_kl_posterior)
        groups[f"/cells/{name}"] = _cell_errors(distribution, tempered, released[0], estimates[name], fresh)
        rows.append(row)
    names = [distribution.table.name for distribution in posterior]
    columns = {what: np.array([row[what] for row in rows]) for what in (rows[0] if rows else ())}
    realised = {what: (("table", "draw")[: values.ndim], values) for what, values in columns.items()}
    return groups | {"/realised": xr.Dataset(realised, {"table": names, "draw": np.arange(stored.plan.released_draws)})}


def _ranked(what: str, error: Array, replicated: Array, expected: float | None) -> dict[str, Any]:
    """A realised error, its expectation without the data, and the share of a reference that is smaller."""
    is_defined = np.isfinite(error) & bool(len(replicated))
    rank = np.where(is_defined, np.searchsorted(np.sort(replicated), error) / max(len(replicated), 1), np.nan)
    return {what: error, f"{what}_rank": rank, f"{what}_expected": np.nan if expected is None else expected}


def _kl_of_posteriors(
    posterior: Distribution, private: Distribution, rng: np.random.Generator, *, replicates: int = 500
) -> tuple[Array, Array]:
    """The divergence of the private posterior from the model's own, and its values for data sets from the prior.

    A rank among 500 `replicates` is accurate to about 0.02.
    """
    p = posterior.sample_prior(1, replicates, rng)[0]
    possible = rng.multinomial(posterior.counts.sum(axis=-1).astype(np.int64), p / p.sum(axis=-1, keepdims=True))
    error = dirichlet_kl_rows(posterior.concentration, private.concentration).sum()
    replicated = dirichlet_kl_rows(possible + posterior.prior, private.power * possible + private.prior)
    return np.asarray(error), replicated.reshape(replicates, -1).sum(axis=-1)


def fresh_estimates(
    distribution: Distribution,
    mechanism: TableMechanism,
    *,
    public: bool,
    totals: Sequence[int] = (),
    draws: int,
    rng: np.random.Generator,
) -> Array:
    """Estimates from fresh releases of the same data, shape `(releases, *table.shape)`; none for a large table.

    They use the approximation of plans.
    """
    counts, prior = distribution.counts, distribution.table.prior
    # 200 fresh releases, or fewer if they had more than 20,000 cells; none instead of fewer than 20.
    times, estimates = min(200, 20_000 // counts.size), None
    if times >= 20 and counts.any():
        estimates = estimated_shares(
            mechanism, prior, counts, public=public, rng=rng, totals=totals, draws=draws, times=times
        )
    return np.empty((0, *counts.shape)) if estimates is None else estimates


def planned_numbers(release: Published) -> dict[str, int] | None:
    """Bounds on private numbers of records: twice those of the plan, by table. The number is uniform up to its bound.

    Only tables whose draw is the release need a bound, because noisy counts show the number.
    """
    stored = open_release(release)
    if stored.plan.privacy_unit.n_records_is_public:
        return None
    tempered = {name: table for name, table in stored.tables.items() if table.mechanism.tempered is not None}
    return {name: 2 * n for name, table in tempered.items() if (n := table.part.n_records) is not None}


def _estimates_of(release: Published, posterior: tuple[Distribution, ...]) -> dict[str, Array]:
    """The estimates of :func:`pymc_dirdp.estimate` by table; NaN if they need more than the release states."""
    shapes = {distribution.table.name: distribution.counts.shape for distribution in posterior}
    try:
        tables = estimate(release, same_records=False, n_prior=planned_numbers(release), progressbar=False).tables
    except ArgumentError:
        return {name: np.full(shape, np.nan) for name, shape in shapes.items()}
    return {name: tables[name].share_means.reshape(shape) for name, shape in shapes.items()}


def _cell_errors(
    posterior: Distribution, private: Distribution | None, released: Array, estimates: Array, fresh: Array
) -> xr.Dataset:
    """The errors of every cell of a table. `private` is None for a table that was released by noise.

    `bias_of_draw` is P1 equation 3 with its sign, the mean of a draw minus the cell's frequency.
    """
    counts = posterior.counts
    share = np.where(counts.sum(axis=-1, keepdims=True) > 0, frequencies(counts), np.nan)
    columns: dict[str, ArrayLike] = {"records": counts, "share": share, "estimate": estimates}
    columns["posterior_parameter"] = posterior.concentration
    if len(fresh):
        columns["error_of_estimate"] = np.sqrt(((fresh - share) ** 2).mean(axis=0))
    if private is not None:
        total = private.concentration.sum(axis=-1, keepdims=True)
        mean = private.concentration / total
        columns["private_parameter"] = private.concentration
        columns["released"] = released
        columns["bias_of_draw"] = mean - share
        columns["error_of_draw"] = np.sqrt(mean * (1 - mean) / (total + 1) + (mean - share) ** 2)
    labels = tuple((unique_dim(dim, DIAGNOSIS_NAMES), values) for dim, values in cell_labels(posterior.table))
    return dataset_of({name: (values, labels) for name, values in columns.items()})
