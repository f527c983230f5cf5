"""The secret expected log predictive density of one more record, by ArviZ's PSIS-LOO and in closed form."""

import warnings
from typing import Any

import arviz as az
import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.curator.confidential import DO_NOT_PUBLISH
from pymc_dirdp.curator.laws import Law
from pymc_dirdp.errors import ArgumentError

__all__ = ["elpd", "elpd_by_cell", "elpd_by_table"]

# Before ArviZ 1.2 there was one class for all kinds, which was told the kind.
_LOO: Any = getattr(az, "ELPDDataLOO", None)
_KIND = {} if _LOO else {"kind": "loo"}


class _ConfidentialELPD(_LOO or az.ELPDData):  # type: ignore[misc]  # which of the two, the version of ArviZ decides
    """A result of ArviZ whose print says that it is confidential."""

    confidential = DO_NOT_PUBLISH

    def __str__(self) -> str:
        return f"Confidential: {self.confidential}.\n\n{super().__str__()}"

    def __repr__(self) -> str:
        return str(self)


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


def elpd_by_cell(laws: dict[str, Law], drawn: dict[str, Array]) -> xr.Dataset:
    """Leave-one-out results of a record of each cell of one table; NaN for a cell without records.

    Both arguments are by posterior: the distribution of the table, and its draws, shape `(chains, draws,
    *table.shape)`.
    """
    first = next(iter(laws.values()))
    results = {name: _left_out(law, drawn[name]) for name, law in laws.items()}
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


def _left_out(law: Law, p: Array) -> dict[str, Array]:
    filled, exact = law.counts > 0, law.left_one_out()
    empty = np.full(filled.shape, np.nan)
    if not filled.any():
        return {"elpd": empty, "p": empty, "pareto_k": empty, "elpd_exact": exact}
    log_p = xr.DataArray(np.log(p[:, :, filled]), dims=("chain", "draw", "cell"), name="record")
    # A record entered the posterior `power` times, so it is taken out `power` times: the weights are p**-power. The
    # prediction is of a whole record, whose density is p.
    n_samples = log_p.sizes["chain"] * log_p.sizes["draw"]
    reff = 1.0 if log_p.sizes["chain"] == 1 else float(az.ess(log_p, method="mean").mean()) / n_samples
    weights, pareto_k = (law.power * log_p).azstats.psislw(r_eff=reff, dim=["chain", "draw"])
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
