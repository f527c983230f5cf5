"""What a release has lost, measured on the data themselves, beside what was expected without them. Secret."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import xlogy

from pymc_dirdp.curator.laws import Law, simplex
from pymc_dirdp.curator.realised import realised_kl
from pymc_dirdp.sampling.fast import dirichlet
from pymc_dirdp.utility.expected_kl import dirichlet_kl_rows

__all__ = ["realised", "realised_by_row"]

Array = NDArray[np.float64]

# Draws and data sets by which a realised loss is ranked: a rank is then good to about 0.02.
_REPLICATES = 500


def realised(
    own: tuple[Law, ...], private: tuple[Law, ...], release: xr.DataTree, rng: np.random.Generator
) -> xr.Dataset:
    """Losses by table, in nats, and their ranks: the share of a reference that lost less.

    `kl_release` is `KL(x/N || y)` of each released draw, averaged over rows by size. Its reference is the private
    posterior given these data. `kl_posterior` is the divergence of the private posterior from the user's own, summed
    over rows. Its reference are data sets of the same row sizes that the model's prior produces.
    """
    names = [law.table.name for law in own]
    losses = [_losses(mine, theirs, release, rng) for mine, theirs in zip(own, private, strict=True)]
    columns = {
        name: (("table", "draw") if np.ndim(losses[0][name]) else ("table",), np.array([row[name] for row in losses]))
        for name in losses[0]
    }
    utility = release.children["utility"].to_dataset().sel(table=names)
    columns["kl_release_expected"] = (("table",), utility["expected_kl_estimate"].values)
    columns["kl_posterior_expected"] = (("table",), utility["expected_kl_posterior"].values)
    return xr.Dataset(columns, coords={"table": names, "draw": release["posterior"]["draw"].values})


def realised_by_row(own: Law, private: Law, release: xr.DataTree) -> xr.Dataset:
    """The same losses for each row of a table; NaN for the frequencies of a row without records."""
    rows = own.cells.isel({own.cells.dims[-1]: 0}, drop=True)
    drawn = rows.expand_dims(draw=release["posterior"]["draw"])
    return xr.Dataset(
        {
            "kl_release": drawn.copy(data=_kl_of_rows(own.counts, _released(own, release))),
            "kl_posterior": rows.copy(data=dirichlet_kl_rows(own.concentration, private.concentration)),
        }
    )


def _losses(own: Law, private: Law, release: xr.DataTree, rng: np.random.Generator) -> dict[str, float | Array]:
    counts = own.counts
    sizes = counts.sum(axis=-1)
    p = dirichlet(own.prior, _REPLICATES, rng)
    possible = rng.multinomial(sizes.astype(np.int64), p / p.sum(axis=-1, keepdims=True))
    loss = float(dirichlet_kl_rows(own.concentration, private.concentration).sum())
    others = dirichlet_kl_rows(possible + own.prior, private.power * possible + private.prior)
    reference = others.reshape(_REPLICATES, -1).sum(axis=-1)
    released = _kl_of_draws(counts, _released(own, release))
    fresh = _kl_of_draws(counts, dirichlet(private.concentration, _REPLICATES, rng))
    some = bool(sizes.sum() > 0)
    return {
        "kl_release": released,
        "kl_release_mean": realised_kl(counts, private.prior, private.power).value if some else np.nan,
        "kl_release_rank": (fresh < released[:, None]).mean(axis=-1) if some else np.full(released.shape, np.nan),
        "kl_posterior": loss,
        "kl_posterior_rank": float(np.mean(reference < loss)),
    }


def _released(law: Law, release: xr.DataTree) -> Array:
    return simplex(law.table, release.children["posterior"].to_dataset()[law.table.name].values[0])


def _kl_of_rows(counts: Array, y: Array) -> Array:
    """`KL(x/N || y)` of each row: `(draws, *table.shape)` gives `(draws, *rows)`."""
    sizes = counts.sum(axis=-1, keepdims=True)
    p = counts / np.where(sizes > 0, sizes, np.nan)
    return np.asarray((xlogy(p, p) - xlogy(p, y)).sum(axis=-1))


def _kl_of_draws(counts: Array, y: Array) -> Array:
    """Averaged over the rows by size, as `realised_kl` does."""
    sizes = counts.sum(axis=-1)
    if not sizes.sum() > 0:
        return np.full(len(y), np.nan)
    per_row = np.where(sizes > 0, _kl_of_rows(counts, y), 0.0)
    return np.asarray((per_row * sizes).reshape(len(y), -1).sum(axis=-1) / sizes.sum())
