"""Errors of draws and of estimates on the data themselves: what privacy cost, beside the own posterior."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import digamma, xlogy

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import checked_counts, positive, positive_array
from pymc_dirdp.curator.confidential import Confidential
from pymc_dirdp.errors import ArgumentError, DataError, type_name
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.observations import find_observations, read_counts
from pymc_dirdp.models.table import DIAGNOSIS_NAMES, Table, dim_beside, dim_name, outcome_dim
from pymc_dirdp.planning.draw_error import DrawError, expected_kl
from pymc_dirdp.planning.estimate_error import _Rows, estimates_of
from pymc_dirdp.planning.expected_kl import dirichlet_kl, dirichlet_kl_rows
from pymc_dirdp.releases.analysis import estimate
from pymc_dirdp.releases.arviz_groups import log_dirichlet
from pymc_dirdp.releases.axes import labels
from pymc_dirdp.releases.opened import Published, opened
from pymc_dirdp.sampling.fast import dirichlet

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

        See :func:`pymc_dirdp.releases.arviz_groups.log_dirichlet`.
        """
        return log_dirichlet(self.prior, p)


def own_distribution(table: Table, model: pm.Model) -> Distribution:
    """The model's own posterior of a table. This function reads the counts."""
    return Distribution(table, read_counts(find_observations([table], model)).astype(np.float64), table.prior, 1.0)


def simplex(table: Table, values: Array) -> Array:
    """Draws of the released variable with both categories of a Beta, none of them 0, so that logarithms are finite."""
    p = np.stack([values, 1 - values], axis=-1) if table.family == "beta" else values
    return np.maximum(p, np.finfo(np.float64).tiny)


def variable(table: Table, p: Array) -> Array:
    """The reverse of `simplex`. A Beta variable is the probability of success, the first of two categories."""
    return p[..., 0] if table.family == "beta" else p


# The error of estimates from a release on these data, beside that of fresh releases of them. All is secret.


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

    They are those of the approximation that plans use, all at once.
    """
    shape, d = distribution.counts.shape, distribution.counts.shape[-1]
    counts, prior = distribution.counts.reshape(-1, d), distribution.table.prior.reshape(-1, d)
    # So many fresh releases of a table, unless that makes more cells than these; with fewer than 20 there is none.
    times, n_records = min(200, 20_000 // counts.size), int(counts.sum())
    if times < 20 or n_records == 0:
        return np.empty((0, *shape))
    which = np.tile(np.arange(len(counts)), times)
    sizes, sharing = mechanism.public_sizes(shape, n_records, totals, public=public)
    rows = _Rows(which, prior[which], counts[which], sharing, sizes[which], public)
    estimates = estimates_of(mechanism, rows, draws, rng)
    return np.empty((0, *shape)) if estimates is None else estimates.reshape(times, *shape)


def errors_of_estimates(
    own: tuple[Distribution, ...],
    private: Mapping[str, Distribution],
    release: Published,
    rng: np.random.Generator,
) -> dict[str, xr.Dataset]:
    """The errors of estimates by table, and those of every cell."""
    stored = opened(release)
    public, estimates = stored.plan.reading.sizes_are_public, _estimates_of(release, own, private)
    groups, rows = {}, []
    for distribution in own:
        name = distribution.table.name
        seen, tempered = stored.tables[name], private.get(name)
        draws = seen.mechanism.output_kind.releases_for(stored.plan.draws)
        fresh = fresh_estimates(distribution, seen.mechanism, public=public, totals=seen.totals, draws=draws, rng=rng)
        released = simplex(distribution.table, seen.draws)[0]
        groups[f"/cells/{name}"] = _cell_errors(distribution, tempered, released, estimates[name], fresh)
        error, others = float(kl_of_estimates(distribution, estimates[name])), kl_of_estimates(distribution, fresh)
        rank = np.mean(others < error) if len(others) and np.isfinite(error) else np.nan
        rows.append(
            {
                "kl_estimate": error,
                "kl_estimate_mean": others.mean() if len(others) else np.nan,
                "kl_estimate_rank": rank,
                "kl_estimate_expected": _known(stored.errors[name].estimate_kl),
            }
        )
    return groups | {"/estimated": _by_table(own, rows)}


def _by_table(own: tuple[Distribution, ...], rows: Sequence[Mapping[str, Any]]) -> xr.Dataset:
    """Numbers of each table, or of each of its draws."""
    columns = {what: np.array([row[what] for row in rows]) for what in rows[0]} if rows else {}
    names = [distribution.table.name for distribution in own]
    return xr.Dataset(
        {what: (("table", "draw")[: values.ndim], values) for what, values in columns.items()}, {"table": names}
    )


def _known(number: float | None) -> float:
    return np.nan if number is None else number


def planned_numbers(release: Published, private: Iterable[str]) -> dict[str, int] | None:
    """The prior numbers of records that a plan takes for the tables of these names, where they are private."""
    stored = opened(release)
    if stored.plan.reading.sizes_are_public:
        return None
    planned = {name: stored.tables[name].part.n_records for name in private}
    return {name: 2 * n for name, n in planned.items() if n is not None}


def _estimates_of(
    release: Published, distributions: tuple[Distribution, ...], private: Iterable[str]
) -> dict[str, Array]:
    """The estimates of :func:`pymc_dirdp.estimate`, table by table; NaN where they need more than the release says.

    `private` names the tables whose draw is the release. Their number of records, if it is private, is taken for any up
    to twice that of the plan, as plans do.
    """
    shapes = {distribution.table.name: distribution.counts.shape for distribution in distributions}
    try:
        numbers = planned_numbers(release, private)
        found = estimate(release, jointly=False, n_prior=numbers, progressbar=False).tables
    except ArgumentError:
        return {name: np.full(shape, np.nan) for name, shape in shapes.items()}
    return {name: found[name].share_means.reshape(shape) for name, shape in shapes.items()}


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
    own: Distribution, private: Distribution | None, released: Array, estimates: Array, fresh: Array
) -> xr.Dataset:
    """The errors of every cell of a table. `private` is None for a table that was released by noise.

    `bias_of_draw` is P1 equation 3 with its sign: how far the mean of a draw is from the cell's frequency.
    """
    counts = own.counts
    sizes = counts.sum(axis=-1, keepdims=True)
    share = counts / np.where(sizes > 0, sizes, np.nan)
    columns = {"records": counts, "share": share, "estimate": estimates}
    if len(fresh):
        columns["error_of_estimate"] = np.sqrt(((fresh - share) ** 2).mean(axis=0))
    if private is not None:
        u = private.concentration
        total = u.sum(axis=-1, keepdims=True)
        mean = u / total
        columns["released"] = released
        columns["bias_of_draw"] = mean - share
        columns["error_of_draw"] = np.sqrt(mean * (1 - mean) / (total + 1) + (mean - share) ** 2)
    return xr.Dataset({name: own.cells.copy(data=values) for name, values in columns.items()})


# The error for the data at hand. **Everything here is confidential**: the guarantee does not cover it.


def realised_kl(counts: ArrayLike, alpha: ArrayLike, r: float) -> Confidential:
    """`E KL(x/N || y)` over `y ~ Dirichlet(r x + alpha)`, in nats, averaged over rows by size. **Confidential**.

    Parameters
    ----------
    counts : array_like of integers, shape (..., d)
        The data `x`, with at least one record.
    alpha : array_like, shape (..., d)
        Prior parameters of the mechanism, positive.
    r : float
        The concentration of the mechanism, positive.

    References
    ----------
    Theory, section 8. P1 minimises this error.
    """
    parameters = positive_array(alpha=alpha)
    x = checked_counts(counts, parameters.shape)
    sizes = x.sum(axis=-1, keepdims=True)
    if not sizes.sum() > 0:
        raise ArgumentError("The data's frequencies are undefined: there is no record.")
    u = positive(r=r) * x + parameters
    per_row = expected_kl(x / np.where(sizes > 0, sizes, 1.0), u)
    return Confidential((per_row * sizes[..., 0]).sum() / sizes.sum())


def kl_of_draws(counts: Array, y: Array) -> Array:
    """`KL(x/N || y)` of each draw, averaged over rows by size; NaN if there is no record."""
    sizes = counts.sum(axis=-1, keepdims=True)
    if not sizes.sum() > 0:
        return np.full(len(y), np.nan)
    p = counts / np.where(sizes > 0, sizes, 1.0)
    per_row = (xlogy(p, p) - xlogy(p, y)).sum(axis=-1)
    return np.asarray((per_row * sizes[..., 0]).reshape(len(y), -1).sum(axis=-1) / sizes.sum())


@final
class RealisedError:
    """How far the draws of a Dirichlet mechanism are from these data: for the curator, never to be published.

    Every number is a :class:`pymc_dirdp.curator.Confidential`. What may be published is the a priori version,
    :class:`pymc_dirdp.planning.PriorExpectedKL`, or a :class:`pymc_dirdp.planning.DrawError` of assumed frequencies.

    Parameters
    ----------
    mechanism : DirichletMechanism
        The mechanism that draws.
    counts : array_like of integers, shape of `mechanism.alpha`
        The data, which are secret, with at least one record.
    prior : array_like, shape of `mechanism.alpha`
        The model's own prior parameters.

    Examples
    --------
    >>> mechanism = DirichletMechanism([1, 1, 1, 1], 0.1)
    >>> RealisedError(mechanism, [108, 286, 71, 127], prior=[1, 1, 1, 1]).kl_posterior
    2.04... (confidential: computed from the data)
    """

    def __init__(self, mechanism: DirichletMechanism, counts: ArrayLike, *, prior: ArrayLike) -> None:
        if getattr(mechanism, "tempered", None) is None:
            raise ArgumentError(f"Expected a DirichletMechanism, got {type_name(mechanism)}.")
        x = checked_counts(counts, mechanism.alpha.shape)
        if not x.sum() > 0:
            raise DataError("The data's frequencies are undefined: there is no record.")
        self._mechanism, self._counts = mechanism, x
        self._posterior = x + np.asarray(prior, dtype=np.float64)
        self._private = mechanism.concentration(counts)
        sizes = x.sum(axis=-1, keepdims=True)
        # A row without records has no frequencies, and no weight.
        some = sizes[..., 0] > 0
        self._weights = (sizes[some] / x.sum()).ravel()
        frequencies = (x[some] / sizes[some]).reshape(len(self._weights), -1)
        parameters = self._private[some].reshape(frequencies.shape)
        self._rows = [DrawError(p, u) for p, u in zip(frequencies, parameters, strict=True)]

    def __repr__(self) -> str:
        return "RealisedError (confidential)"

    @property
    def kl_posterior(self) -> Confidential:
        """`KL(posterior || private posterior)` in nats, summed over rows; P2's measure."""
        return Confidential(dirichlet_kl(self._posterior, self._private))

    @property
    def mean(self) -> Confidential:
        """Expected `KL(x/N || y)` over the draw, in nats, averaged over rows by size; P1's measure."""
        return realised_kl(self._counts, self._mechanism.alpha, self._mechanism.r)

    @property
    def variance(self) -> Confidential:
        """Variance over the draw of the error of which `mean` is the expectation; rows are drawn independently."""
        return Confidential(sum(w**2 * row.variance for w, row in zip(self._weights, self._rows, strict=True)))

    @property
    def squared_hellinger(self) -> Confidential:
        """Expected squared Hellinger distance of the draw from the frequencies, averaged over rows by size."""
        rows = zip(self._weights, self._rows, strict=True)
        return Confidential(sum(w * row.squared_hellinger for w, row in rows))

    def tail(self, eta: float) -> Confidential:
        """Upper bound of the probability that some row misses its frequencies by more than `eta` nats."""
        return Confidential(min(1.0, sum(row.tail(eta) for row in self._rows)))

    def of_draw(self, y: ArrayLike) -> Confidential:
        """`KL(x/N || y)` of one released draw, in nats, averaged over rows by size.

        Parameters
        ----------
        y : array_like, shape of `mechanism.alpha`
            The draw; for a Beta variable with its complement.
        """
        draw = np.asarray(y, dtype=np.float64)
        if draw.shape != self._posterior.shape:
            raise ArgumentError(f"Expected one draw of shape {self._posterior.shape}, got {draw.shape}.")
        return Confidential(kl_of_draws(self._counts, draw[np.newaxis])[0])


# The errors of a release, measured on the data themselves, beside what was expected without them. All is secret.


def realised(
    own: tuple[Distribution, ...], private: Mapping[str, Distribution], release: Published, rng: np.random.Generator
) -> xr.Dataset:
    """Errors by table, in nats, and their ranks: the share of a reference whose error is smaller.

    `kl_release` is `KL(x/N || y)` of each released draw, averaged over rows by size. Its reference is the private
    posterior given these data. `kl_posterior` is the divergence of the private posterior from the user's own, summed
    over rows. Its reference is data sets of the same row sizes that the model's prior produces.
    """
    stored, rows = opened(release), []
    for distribution in own:
        table, expected = distribution.table, stored.errors[distribution.table.name]
        released = simplex(table, stored.tables[table.name].draws)
        rows.append(
            _errors(distribution, private[table.name], released, rng)
            | {
                "kl_release_expected": _known(expected.expected_kl_estimate),
                "kl_posterior_expected": _known(expected.expected_kl_posterior),
            }
        )
    return _by_table(own, rows).assign_coords(draw=np.arange(stored.plan.draws))


def _errors(
    own: Distribution, private: Distribution, released: Array, rng: np.random.Generator, *, replicates: int = 500
) -> dict[str, float | Array]:
    """The errors of one table.

    So many draws and data sets as `replicates` rank a realised error: a rank is then accurate to about 0.02.
    """
    counts = own.counts
    sizes = counts.sum(axis=-1)
    p = dirichlet(own.prior, replicates, rng)
    possible = rng.multinomial(sizes.astype(np.int64), p / p.sum(axis=-1, keepdims=True))
    error = float(dirichlet_kl_rows(own.concentration, private.concentration).sum())
    others = dirichlet_kl_rows(possible + own.prior, private.power * possible + private.prior)
    reference = others.reshape(replicates, -1).sum(axis=-1)
    errors = kl_of_draws(counts, released)
    fresh = kl_of_draws(counts, dirichlet(private.concentration, replicates, rng))
    some = bool(sizes.sum() > 0)
    return {
        "kl_release": errors,
        "kl_release_mean": realised_kl(counts, private.prior, private.power).value if some else np.nan,
        "kl_release_rank": (fresh < errors[:, None]).mean(axis=-1) if some else np.full(errors.shape, np.nan),
        "kl_posterior": error,
        "kl_posterior_rank": float(np.mean(reference < error)),
    }
