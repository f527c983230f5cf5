"""Pointwise densities and leave-one-out predictions of private posteriors."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.curator.confidential import DO_NOT_PUBLISH
from pymc_dirdp.curator.realised import Distribution, simplex
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.likelihoods import Kind
from pymc_dirdp.models.observations import observed_records
from pymc_dirdp.models.table import Likelihood, Table, View, dim_name
from pymc_dirdp.progress import Bar
from pymc_dirdp.signatures import user_facing

__all__ = ["Observed", "elpd", "elpd_by_cell", "elpd_by_table", "nuts", "observations", "tempered_model"]

# The secret private posterior as an ordinary PyMC model, to compare the closed forms with NUTS.


def tempered_model(distributions: Iterable[Distribution]) -> pm.Model:
    """Priors as they are, and the likelihood of the counts to the power of each weight, as a `pm.Potential`.

    A power of a likelihood is no distribution of data, so nothing is observed in this model.
    """
    # The model has no parent: inside `with model:` it would become a part of the user's own model.
    with pm.Model(model=None) as model:
        for distribution in distributions:
            name, prior, weight = distribution.table.name, distribution.prior, distribution.power * distribution.counts
            if distribution.table.family == "beta":
                p = pm.Beta(name, prior[..., 0], prior[..., 1], shape=prior.shape[:-1])
                log_likelihood = weight[..., 0] * pm.math.log(p) + weight[..., 1] * pm.math.log1p(-p)
            else:
                p = pm.Dirichlet(name, prior, shape=prior.shape)
                log_likelihood = weight * pm.math.log(p)
            pm.Potential(f"{name}_tempered_likelihood", log_likelihood.sum())
    return model


def nuts(
    distributions: tuple[Distribution, ...], *, draws: int, tune: int, chains: int, rng: np.random.Generator, bar: Bar
) -> tuple[dict[str, Array], xr.Dataset]:
    """Draws of each table by NUTS, shape `(chains, draws, *table.shape)`, and the sampler's own statistics."""
    with tempered_model(distributions):
        trace = pm.sample(
            draws,
            tune=tune,
            chains=chains,
            # A step takes microseconds, and starting a process takes seconds.
            cores=1,
            nuts_sampler="pymc",
            random_seed=int(rng.integers(2**31)),
            # PyMC's own bar is off, because `quiet` is for all that it prints.
            progressbar=False,
            callback=lambda trace, draw: bar.advance(),
            quiet=True,
            # The group `convergence` has these checks, without warnings.
            compute_convergence_checks=False,
        )
    posterior = trace["posterior"]
    drawn = {
        distribution.table.name: simplex(distribution.table, posterior[distribution.table.name].values)
        for distribution in distributions
    }
    return drawn, trace["sample_stats"].to_dataset()


# Log-likelihoods and replicated data of each observation of a model, given draws of its tables. All is secret.


Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Observed:
    """One observed variable as it was given. It has no `repr` of its own, because it holds the data."""

    name: str
    kind: Kind
    values: Codes  # Shape (*batch,) or (*batch, d).
    row: Codes  # Shape (*batch,): which row of those that it sees of the table each observation feeds.
    view: View | None  # What it sees of the table; None if that is the table itself.
    records: Codes | None  # Shape (*batch, d): the observations as counts of categories; None for codes.
    dims: tuple[str, ...]  # The dims of `values`.
    coords: dict[str, list[Any]]  # The labels of these dims.

    def log_likelihood(self, p: Array) -> Array:
        """The log-likelihood of each observation: `(chains, draws, *table.shape)` gives `(chains, draws, *batch)`."""
        p = self._seen(p)
        log_p = np.log(p).reshape(*p.shape[:2], -1, p.shape[-1])
        if self.records is None:
            cells = log_p.reshape(*p.shape[:2], -1)
            return np.asarray(cells[:, :, self.row * p.shape[-1] + self.values])
        total = np.broadcast_to(self._arrangements, (*p.shape[:2], *self.row.shape)).copy()
        # The categories are added one by one: all at once would take d times the memory.
        for category in range(p.shape[-1]):
            total += self.records[..., category] * log_p[:, :, self.row, category]
        return total

    def total_log_likelihood(self, p: Array) -> Array:
        """The sum over all observations, shape `(chains, draws)`, in memory that does not grow with their number."""
        p = self._seen(p)
        counts = np.zeros((int(np.prod(p.shape[2:-1])), p.shape[-1]))
        if self.records is None:
            np.add.at(counts, (self.row.ravel(), self.values.ravel()), 1)
        else:
            np.add.at(counts, self.row.ravel(), self.records.reshape(-1, p.shape[-1]))
        log_p = np.log(p).reshape(*p.shape[:2], *counts.shape)
        return np.asarray((counts * log_p).sum(axis=(-2, -1)) + self._arrangements.sum())

    def replicate(self, p: Array, rng: np.random.Generator) -> Codes:
        """Data like the observed ones for each draw: `(chains, draws, *values.shape)`."""
        p = self._seen(p)
        rows = p.reshape(*p.shape[:2], -1, p.shape[-1])
        rows = rows / rows.sum(axis=-1, keepdims=True)
        if self.records is None:
            uniform = rng.random((*p.shape[:2], *self.row.shape))
            below = np.cumsum(rows, axis=-1)
            codes = np.zeros(uniform.shape, dtype=np.int64)
            # The last category is what is left, so that rounding of the sums cannot lead beyond it.
            for category in range(p.shape[-1] - 1):
                codes += uniform >= below[:, :, self.row, category]
            return codes
        trials = self.records.sum(axis=-1)
        if self.kind.core:
            return rng.multinomial(trials, rows[:, :, self.row])
        return rng.binomial(trials, rows[:, :, self.row, 0])

    def _seen(self, p: Array) -> Array:
        """The shares that the observed variable sees: `(chains, draws, *rows, k)`."""
        return p if self.view is None else p.reshape(*p.shape[:2], -1)[..., self.view.cells]

    @cached_property
    def _arrangements(self) -> Array:
        """The logarithm of how many orders of the records give the same counts; it depends on no parameter."""
        if self.records is None:
            return np.zeros(self.row.shape)
        return np.asarray(gammaln(self.records.sum(axis=-1) + 1) - gammaln(self.records + 1).sum(axis=-1))


def observations(tables: Iterable[Table], model: pm.Model) -> dict[str, tuple[Observed, ...]]:
    """The observed variables that feed each table, by its name."""
    return {table.name: tuple(_observed(table, one, model) for one in table.likelihoods) for table in tables}


def _observed(table: Table, likelihood: Likelihood, model: pm.Model) -> Observed:
    """The single observations that `read_counts` has counted and checked."""
    kind, values, row, records = observed_records(likelihood, table, model)
    axes = model.named_vars_to_dims.get(likelihood.name) or (None,) * values.ndim
    dims = tuple(dim_name(likelihood.name, axis, dim) for axis, dim in enumerate(axes))
    labels = {dim: model.coords.get(dim) for dim in dims}
    return Observed(
        name=likelihood.name,
        kind=kind,
        values=values,
        row=np.broadcast_to(row, values.shape[: values.ndim - kind.core]),
        view=likelihood.view,
        records=records,
        dims=dims,
        coords={dim: list(given) for dim, given in labels.items() if given is not None},
    )


# The secret expected log predictive density of one more record, by ArviZ's PSIS-LOO and in closed form.


# Before ArviZ 1.2 there was one class for all kinds, with the kind as an argument.
_LOO: Any = getattr(az, "ELPDDataLOO", None)
_KIND = {} if _LOO else {"kind": "loo"}


class _ConfidentialELPD(_LOO or az.ELPDData):  # type: ignore[misc]  # which of the two, the version of ArviZ decides
    """A result of ArviZ whose print says that it is confidential."""

    confidential = DO_NOT_PUBLISH

    def __str__(self) -> str:
        return f"Confidential: {self.confidential}.\n\n{super().__str__()}"

    def __repr__(self) -> str:
        return str(self)


@user_facing
def elpd(diagnosis: xr.DataTree) -> dict[str, az.ELPDData]:
    """What `arviz.compare` takes: the leave-one-out results of each posterior, record by record. **Confidential**.

    A record is what one person adds to one table. ArviZ's own `loo` of a tree cannot be compared between posteriors
    where `r` is not 1: it takes the tempered likelihood for the probability of the data.

    Parameters
    ----------
    diagnosis : xarray.DataTree
        From :func:`pymc_dirdp.diagnose`.

    Returns
    -------
    dict of str to ELPDData
        One result for each posterior. The records of one cell have the same value. Those of several tables follow each
        other, so that the sum is about whole persons and the standard error is not. Their prints say that they are
        confidential; the table that `arviz.compare` makes of them is confidential too, and does not say so.

    Examples
    --------
    >>> import arviz as az
    >>> az.compare(elpd(diagnosis))  # doctest: +SKIP
    """
    tables = getattr(diagnosis, "children", {}).get("elpd_by_cell")
    if tables is None:
        raise ArgumentError("Expected what pymc_dirdp.diagnose returns; it has no group elpd_by_cell.")
    datasets = [node.to_dataset() for node in tables.children.values()]
    n_samples = int(tables.attrs["n_samples"])
    names = [str(name) for name in datasets[0]["posterior"].values]
    return {name: _expanded([data.sel(posterior=name) for data in datasets], n_samples) for name in names}


def elpd_by_cell(distributions: dict[str, Distribution], drawn: dict[str, Array]) -> xr.Dataset:
    """Leave-one-out results of a record of each cell of one table; NaN for a cell without records.

    Both arguments are by posterior: the distribution of the table, and its draws, shape `(chains, draws,
    *table.shape)`.
    """
    first = next(iter(distributions.values()))
    results = {name: _left_out(distribution, drawn[name]) for name, distribution in distributions.items()}
    columns = {
        what: xr.concat([first.cells.copy(data=result[what]) for result in results.values()], dim="posterior")
        for what in ("elpd", "p", "pareto_k", "elpd_exact")
    }
    data = xr.Dataset(columns | {"records": first.cells.copy(data=first.counts)})
    return data.assign_coords(posterior=list(results))


def elpd_by_table(cells: dict[str, xr.Dataset]) -> xr.Dataset:
    """Sums over the records of each table, by posterior, with ArviZ's standard error and the worst Pareto k."""
    rows = []
    for data in cells.values():
        records, axes = data["records"], list(data["records"].dims)
        n = records.sum()
        sums = (data[["elpd", "p", "elpd_exact"]].fillna(0.0) * records).sum(axes)
        deviation = (data["elpd"] - sums["elpd"] / n.where(n > 0)) ** 2
        se = np.sqrt(n * (deviation.fillna(0.0) * records).sum(axes) / n.where(n > 0))
        rows.append(sums.assign(se=se, pareto_k_max=data["pareto_k"].max(axes), records=n))
    return xr.concat(rows, dim="table").assign_coords(table=list(cells))


def _left_out(distribution: Distribution, p: Array) -> dict[str, Array]:
    filled, exact = distribution.counts > 0, distribution.left_one_out()
    empty = np.full(filled.shape, np.nan)
    if not filled.any():
        return {"elpd": empty, "p": empty, "pareto_k": empty, "elpd_exact": exact}
    log_p = xr.DataArray(np.log(p[:, :, filled]), dims=("chain", "draw", "cell"), name="record")
    # A record entered the posterior `power` times, so it is taken out `power` times: the weights are p**-power. The
    # prediction is of a whole record, whose density is p.
    n_samples = log_p.sizes["chain"] * log_p.sizes["draw"]
    reff = 1.0 if log_p.sizes["chain"] == 1 else float(az.ess(log_p, method="mean").mean()) / n_samples
    weights, pareto_k = (distribution.power * log_p).azstats.psislw(r_eff=reff, dim=["chain", "draw"])
    tree = xr.DataTree.from_dict({"/posterior": log_p.to_dataset(), "/log_likelihood": log_p.to_dataset()})
    with warnings.catch_warnings():
        # ArviZ warns of high values of Pareto k and of one cell; k and the exact value are in the result.
        warnings.simplefilter("ignore", UserWarning)
        result = az.loo(tree, pointwise=True, reff=reff, log_weights=weights, pareto_k=pareto_k)
    full = log_p.copy(data=np.exp(log_p.values)).mean(["chain", "draw"])

    def placed(values: xr.DataArray) -> Array:
        whole = empty.copy()
        whole[filled] = values.values
        return whole

    p = placed(np.log(full) - result.elpd_i)
    return {"elpd": placed(result.elpd_i), "p": p, "pareto_k": placed(pareto_k), "elpd_exact": exact}


def _expanded(tables: list[xr.Dataset], n_samples: int) -> az.ELPDData:
    """One value for each record, from one for each cell."""
    repeats = [data["records"].values.astype(np.int64).ravel() for data in tables]

    def records(what: str) -> xr.DataArray:
        values = [np.repeat(data[what].values.ravel(), n) for data, n in zip(tables, repeats, strict=True)]
        marked = {"confidential": DO_NOT_PUBLISH}
        return xr.DataArray(np.concatenate(values), dims="record", name=what, attrs=marked)

    pointwise, pareto_k = records("elpd"), records("pareto_k")
    n = pointwise.size
    good_k = min(1 - 1 / np.log10(n_samples), 0.7)
    return _ConfidentialELPD(
        **_KIND,
        elpd=float(pointwise.sum()),
        se=float(np.sqrt(n * pointwise.var())),
        p=float(records("p").sum()),
        n_samples=n_samples,
        n_data_points=n,
        scale="log",
        warning=bool((pareto_k > good_k).any()),
        good_k=good_k,
        elpd_i=pointwise,
        pareto_k=pareto_k,
        approx_posterior=False,
    )
