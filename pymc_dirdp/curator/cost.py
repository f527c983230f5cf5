"""The errors of a release, measured on the data themselves, beside what was expected without them. All is secret."""

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.curator.laws import Law, simplex
from pymc_dirdp.curator.realised import kl_of_draws, kl_of_rows, realised_kl
from pymc_dirdp.planning.expected_kl import dirichlet_kl_rows
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["realised", "realised_by_row"]

# How many draws and data sets rank a realised error: a rank is then accurate to about 0.02.
_REPLICATES = 500


def realised(
    own: tuple[Law, ...], private: tuple[Law, ...], release: xr.DataTree, rng: np.random.Generator
) -> xr.Dataset:
    """Errors by table, in nats, and their ranks: the share of a reference whose error is smaller.

    `kl_release` is `KL(x/N || y)` of each released draw, averaged over rows by size. Its reference is the private
    posterior given these data. `kl_posterior` is the divergence of the private posterior from the user's own, summed
    over rows. Its reference is data sets of the same row sizes that the model's prior produces.
    """
    names = [law.table.name for law in own]
    errors = [_errors(mine, theirs, release, rng) for mine, theirs in zip(own, private, strict=True)]
    columns = {
        name: (("table", "draw") if np.ndim(errors[0][name]) else ("table",), np.array([row[name] for row in errors]))
        for name in errors[0]
    }
    utility = release.children["utility"].to_dataset().sel(table=names)
    columns["kl_release_expected"] = (("table",), utility["expected_kl_estimate"].values)
    columns["kl_posterior_expected"] = (("table",), utility["expected_kl_posterior"].values)
    return xr.Dataset(columns, coords={"table": names, "draw": release["posterior"]["draw"].values})


def realised_by_row(own: Law, private: Law, release: xr.DataTree) -> xr.Dataset:
    """The errors of each row of a table; `kl_release` is NaN for a row without records."""
    rows = own.cells.isel({own.cells.dims[-1]: 0}, drop=True)
    drawn = rows.expand_dims(draw=release["posterior"]["draw"])
    return xr.Dataset(
        {
            "kl_release": drawn.copy(data=kl_of_rows(own.counts, _released(own, release))),
            "kl_posterior": rows.copy(data=dirichlet_kl_rows(own.concentration, private.concentration)),
        }
    )


def _errors(own: Law, private: Law, release: xr.DataTree, rng: np.random.Generator) -> dict[str, float | Array]:
    counts = own.counts
    sizes = counts.sum(axis=-1)
    p = dirichlet(own.prior, _REPLICATES, rng)
    possible = rng.multinomial(sizes.astype(np.int64), p / p.sum(axis=-1, keepdims=True))
    error = float(dirichlet_kl_rows(own.concentration, private.concentration).sum())
    others = dirichlet_kl_rows(possible + own.prior, private.power * possible + private.prior)
    reference = others.reshape(_REPLICATES, -1).sum(axis=-1)
    released = kl_of_draws(counts, _released(own, release))
    fresh = kl_of_draws(counts, dirichlet(private.concentration, _REPLICATES, rng))
    some = bool(sizes.sum() > 0)
    return {
        "kl_release": released,
        "kl_release_mean": realised_kl(counts, private.prior, private.power).value if some else np.nan,
        "kl_release_rank": (fresh < released[:, None]).mean(axis=-1) if some else np.full(released.shape, np.nan),
        "kl_posterior": error,
        "kl_posterior_rank": float(np.mean(reference < error)),
    }


def _released(law: Law, release: xr.DataTree) -> Array:
    return simplex(law.table, release.children["posterior"].to_dataset()[law.table.name].values[0])
