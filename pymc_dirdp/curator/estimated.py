"""Confidential and private posteriors of tables beside each other, and errors of estimates."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

import numpy as np
import pymc as pm
import xarray as xr
from scipy.special import digamma, gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.observations import read_counts
from pymc_dirdp.models.table import DIAGNOSIS_NAMES, Table, dim_beside, dim_name, outcome_dim
from pymc_dirdp.planning.estimate_error import _Rows, estimates_of
from pymc_dirdp.releases.description import labels
from pymc_dirdp.releases.estimation import estimate
from pymc_dirdp.sampling.fast import dirichlet

__all__ = [
    "Distribution",
    "Fresh",
    "errors_of_estimates",
    "kl_of_estimates",
    "own_distribution",
    "planned_numbers",
    "simplex",
    "variable",
]

# The two secret conjugate posteriors of each table: the user's own, and the one that a release is drawn from.


@dataclass(frozen=True, eq=False)
class Distribution:
    """`Dirichlet(power * counts + prior)` for every row: the posterior if each record counts `power` times.

    All arrays have the shape of the table.
    """

    table: Table
    counts: Array = field(repr=False)  # The secret.
    prior: Array  # The model's own prior, or the mechanism's `alpha`.
    power: float  # 1, or the mechanism's `r`.

    @property
    def cells(self) -> xr.DataArray:
        """An array with the dims and labels of the table and its categories, to be filled with a number for each."""
        table = self.table
        axes = table.dims or (None,) * (len(table.shape) - (table.family == "beta"))
        names = {dim_name(table.name, axis, dim): dim for axis, dim in enumerate(axes)}
        coords = {dim_beside(name, DIAGNOSIS_NAMES): labels(table).get(str(dim)) for name, dim in names.items()}
        if table.family == "beta":
            coords[outcome_dim(table.name)] = ["success", "failure"]
        given = {dim: values for dim, values in coords.items() if values is not None}
        return xr.DataArray(np.zeros(table.shape), given, list(coords))

    @property
    def concentration(self) -> Array:
        """The parameters of the distribution."""
        return self.power * self.counts + self.prior

    def sample(self, chains: int, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws, shape `(chains, draws, *table.shape)`; they are called chains for ArviZ."""
        return dirichlet(self.concentration, chains * draws, rng).reshape(chains, draws, *self.counts.shape)

    def sample_prior(self, chains: int, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws from the prior, of the same shape."""
        return dirichlet(self.prior, chains * draws, rng).reshape(chains, draws, *self.counts.shape)

    def log_prior(self, p: Array) -> Array:
        """Logarithm of the prior's density at `p`, for each row: shape `(..., *rows)`.

        It is the density in the coordinates of samplers, `log(p_i / p_d)`: `prod p**prior` over the Beta function. Its
        power `k` is a prior with `k` times the prior counts. With respect to `p` itself a flat prior has the same
        density everywhere, so its powers would not show what its counts do.
        """
        constant = gammaln(self.prior.sum(axis=-1)) - gammaln(self.prior).sum(axis=-1)
        return np.asarray(constant + (self.prior * np.log(p)).sum(axis=-1))

    def left_one_out(self) -> Array:
        """Logarithm of the mean probability of each cell once one of its records is left out; NaN for an empty cell.

        This is the mean of `Dirichlet(power * (counts - e_c) + prior)` at the cell `c`, so no Monte Carlo is needed.
        """
        rest = np.where(self.counts > 0, self.concentration - self.power, np.nan)
        total = self.concentration.sum(axis=-1, keepdims=True) - self.power
        return np.asarray(np.log(rest) - np.log(total))


def own_distribution(table: Table, model: pm.Model) -> Distribution:
    """The model's own posterior of a table. This function reads the counts."""
    return Distribution(table, read_counts(table, model).astype(np.float64), table.prior, 1.0)


def simplex(table: Table, values: Array) -> Array:
    """Draws of the released variable with both categories of a Beta, none of them 0, so that logarithms are finite."""
    p = np.stack([values, 1 - values], axis=-1) if table.family == "beta" else values
    return np.maximum(p, np.finfo(np.float64).tiny)


def variable(table: Table, p: Array) -> Array:
    """The reverse of `simplex`. A Beta variable is the probability of success, the first of two categories."""
    return p[..., 0] if table.family == "beta" else p


# The error of estimates from a release on these data, beside that of fresh releases of them. All is secret.


# So many fresh releases of a table, unless that makes more cells than these; with fewer than the least there is none.
_REPLICATES, _CELLS, _LEAST = 200, 20_000, 20


@final
@dataclass(frozen=True, eq=False)
class Fresh:
    """Estimates from fresh releases of the same data, shape `(releases, *table.shape)`; none for a large table."""

    shares: Array

    @classmethod
    def releases(
        cls,
        distribution: Distribution,
        mechanism: TableMechanism,
        *,
        public: bool,
        draws: int,
        rng: np.random.Generator,
    ) -> "Fresh":
        """In the approximation that plans use, all at once."""
        counts, d = distribution.counts.reshape(-1, distribution.counts.shape[-1]), distribution.counts.shape[-1]
        times = min(_REPLICATES, _CELLS // counts.size)
        n_records = int(counts.sum())
        if times < _LEAST or n_records == 0:
            return cls(np.empty((0, *distribution.counts.shape)))
        which = np.tile(np.arange(len(counts)), times)
        prior = distribution.table.prior.reshape(-1, d)
        rows = _Rows(which, prior[which], counts[which].astype(np.float64), len(counts), n_records, public)
        estimates = estimates_of(mechanism, rows, draws, rng)
        if estimates is None:
            return cls(np.empty((0, *distribution.counts.shape)))
        return cls(estimates.reshape(times, *distribution.counts.shape))


def errors_of_estimates(
    own: tuple[Distribution, ...],
    private: dict[str, Distribution],
    mechanisms: dict[str, TableMechanism],
    release: xr.DataTree,
    rng: np.random.Generator,
) -> dict[str, xr.Dataset]:
    """The errors of estimates by table, and those of every cell."""
    utility = release.children["utility"].to_dataset()
    public, draws = utility.attrs["records"] == "public", int(release["privacy"].attrs["draws"])
    estimates = _estimates_of(release, own, private)
    groups, rows = {}, []
    for distribution in own:
        name = distribution.table.name
        mechanism = mechanisms[name]
        times = mechanism.output_kind.releases_for(draws)
        fresh = Fresh.releases(distribution, mechanism, public=public, draws=times, rng=rng)
        groups[f"/cells/{name}"] = _cell_errors(distribution, private.get(name), release, estimates[name], fresh)
        error, others = (
            float(kl_of_estimates(distribution, estimates[name])),
            kl_of_estimates(distribution, fresh.shares),
        )
        known = bool(len(others)) and np.isfinite(error)
        rows.append(
            {
                "kl_estimate": error,
                "kl_estimate_mean": float(others.mean()) if len(others) else np.nan,
                "kl_estimate_rank": float(np.mean(others < error)) if known else np.nan,
                "kl_estimate_expected": float(utility["estimate_kl"].sel(table=name)),
            }
        )
    columns = {what: ("table", [row[what] for row in rows]) for what in rows[0]}
    return groups | {
        "/estimated": xr.Dataset(columns, coords={"table": [distribution.table.name for distribution in own]})
    }


def planned_numbers(release: xr.DataTree, private: Iterable[str]) -> dict[str, int] | None:
    """The prior numbers of records that a plan takes for the tables of these names, where they are private."""
    utility = release.children["utility"].to_dataset()
    if utility.attrs["records"] == "public":
        return None
    planned = {name: float(utility["n_records"].sel(table=name)) for name in private}
    return {name: 2 * int(n) for name, n in planned.items() if np.isfinite(n)}


def _estimates_of(
    release: xr.DataTree, distributions: tuple[Distribution, ...], private: Iterable[str]
) -> dict[str, Array]:
    """The estimates of :func:`pymc_dirdp.estimate`, table by table; NaN where they need more than the release says.

    `private` names the tables whose draw is the release. Their number of records, if it is private, is taken for any up
    to twice that of the plan, as plans do.
    """
    try:
        numbers = planned_numbers(release, private)
        found = estimate(release, jointly=False, n_prior=numbers, progressbar=False).tables
    except ArgumentError:
        return {distribution.table.name: np.full(distribution.counts.shape, np.nan) for distribution in distributions}
    return {
        distribution.table.name: found[distribution.table.name].share_means.reshape(distribution.counts.shape)
        for distribution in distributions
    }


def kl_of_estimates(distribution: Distribution, estimates: Array) -> Array:
    """The expected divergence of estimates from the shares given the data, averaged over rows; shape of the first axes.

    The expectation is over the model's own posterior, so it can be compared with what was expected without the data.
    """
    u = distribution.counts + distribution.table.prior
    size = u.sum(axis=-1, keepdims=True)
    best = u / size
    of_data = (best * (digamma(u + 1) - digamma(size + 1) - np.log(best))).sum(axis=-1).mean()
    added = (best * np.log(best / estimates)).sum(axis=-1)
    rows = tuple(range(added.ndim - u.ndim + 1, added.ndim))
    return np.asarray(of_data + added.mean(axis=rows))


def _cell_errors(
    own: Distribution, private: Distribution | None, release: xr.DataTree, estimates: Array, fresh: Fresh
) -> xr.Dataset:
    """The errors of every cell of a table. `private` is None for a table that was released by noise.

    `bias_of_draw` is P1 equation 3 with its sign: how far the mean of a draw is from the cell's frequency.
    """
    counts = own.counts
    sizes = counts.sum(axis=-1, keepdims=True)
    share = counts / np.where(sizes > 0, sizes, np.nan)
    columns = {"records": counts, "share": share, "estimate": estimates}
    if len(fresh.shares):
        columns["error_of_estimate"] = np.sqrt(((fresh.shares - share) ** 2).mean(axis=0))
    if private is not None:
        u = private.concentration
        total = u.sum(axis=-1, keepdims=True)
        mean = u / total
        columns["released"] = simplex(own.table, release.children["posterior"].to_dataset()[own.table.name].values[0])[
            0
        ]
        columns["bias_of_draw"] = mean - share
        columns["error_of_draw"] = np.sqrt(mean * (1 - mean) / (total + 1) + (mean - share) ** 2)
    return xr.Dataset({name: own.cells.copy(data=values) for name, values in columns.items()})
