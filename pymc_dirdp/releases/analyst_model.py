"""Models for inference from a release: a model to start from, and counts behind the draws of one's own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import ImpossibleError
from pymc_dirdp.inference.tables import posterior_of
from pymc_dirdp.releases.inference_setup import Inferences, Source, inferences
from pymc_dirdp.releases.likelihood import logp_of, owned
from pymc_dirdp.sampling.bits import Seed, generator

__all__ = ["analyst_model", "latent_counts"]

Array = NDArray[np.float64]


def analyst_model(
    release: Source | Sequence[Source],
    tables: Sequence[str] | None = None,
    *,
    prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
    n_prior: int | ArrayLike | Mapping[str, int | ArrayLike] | None = None,
    row_prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
) -> pm.Model:
    """A PyMC model of a release: the shares with their priors, and the likelihood of what was published.

    Its posterior is what :func:`pymc_dirdp.analyse` draws from directly, without chains. Take the model if you want to
    add to it; take `analyse` if not. For other priors than Dirichlet and Beta write a model of your own around
    :func:`pymc_dirdp.release_logp`.

    Parameters
    ----------
    release : xarray.DataTree, MechanismOutput, or a list of them
        As for :func:`pymc_dirdp.analyse`. It is copied.
    tables : sequence of str, optional
        Which tables of the release; all by default.
    prior, n_prior, row_prior
        As for :func:`pymc_dirdp.analyse`.

    Returns
    -------
    model : pymc.Model
        For each table a Dirichlet or a Beta, with the name, dims and labels that it has in the release, and the
        potential `<name>_release`.

    Raises
    ------
    ReleaseError, ArgumentError
        As :func:`pymc_dirdp.analyse` does, or if the release has no such table, or is one of marginals, which have no
        likelihood table by table; `analyse` takes it.

    Notes
    -----
    `pm.sample_prior_predictive` draws from the priors alone and warns that it leaves potentials out.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}):
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     students = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    ...     release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6))
    >>> with dirdp.releases.analyst_model(release) as model:
    ...     _ = pm.Deterministic("blond_to_red", model["p"][3] / model["p"][2])
    >>> [variable.name for variable in model.free_RVs + model.potentials]
    ['p', 'p_release']
    """
    found = inferences(owned(release), prior, n_prior, row_prior, jointly=False)
    with pm.Model() as model:
        for name in _chosen(found, tables):
            logp = logp_of(found.tables[name], found.beliefs[name], _shares(model, name, found))
            pm.Potential(f"{name}_release", logp)
    return model


def _shares(model: pm.Model, name: str, found: Inferences) -> Any:
    """The variable of a table's shares, in a model that is open."""
    seen = found.tables[name]
    prior = posterior_of(seen, found.beliefs[name]).prior
    for (dim, labels), size in zip(seen.share_labels, prior.shape, strict=False):
        model.add_coord(dim, range(size) if labels is None else labels)
    dims = tuple(dim for dim, _ in seen.share_labels) or None
    # No initial values: PyMC copies no model that has some, and the likelihood is finite wherever a chain may start.
    if seen.family == "beta":
        return pm.Beta(name, alpha=prior[..., 0], beta=prior[..., 1], dims=dims)
    return pm.Dirichlet(name, a=prior, dims=dims)


def _chosen(found: Inferences, tables: Sequence[str] | None) -> list[str]:
    return list(found.tables) if tables is None else _named(tuple(found.tables), tables)


def _named(known: Sequence[str], tables: Sequence[str]) -> list[str]:
    names = [tables] if isinstance(tables, str) else list(tables)
    if not names:
        raise ArgumentError("Expected tables to name at least one table of the release.")
    if unknown := [name for name in names if name not in known]:
        raise ArgumentError(f"The release has no table {unknown[0]!r}, but {', '.join(known)}.")
    return names


def latent_counts(
    idata: xr.DataTree,
    release: Source | Sequence[Source],
    tables: Sequence[str] | None = None,
    *,
    n_prior: int | ArrayLike | Mapping[str, int | ArrayLike] | None = None,
    row_prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
    random_seed: Seed = None,
) -> xr.Dataset:
    """Exact draws of the counts behind a release, one for each draw of the shares.

    The likelihood in a model of your own has the counts summed out. This draws them afterwards, given the shares and
    the release, so that shares and counts together are draws from the posterior of that model.

    Parameters
    ----------
    idata : xarray.DataTree
        From `pm.sample`: its group `posterior` holds the shares of each table under the name of the table, with the
        dims `chain` and `draw` and those of the table in its order. Keep what your model computes as
        `pm.Deterministic("name of the table", ...)`.
    release : xarray.DataTree, MechanismOutput, or a list of them
        What the model was given.
    tables : sequence of str, optional
        Which tables; by default all of the release that the posterior holds.
    n_prior, row_prior
        What the model was given.
    random_seed : int, SeedSequence, Generator or None
        Harmless here: what is drawn from is public.

    Returns
    -------
    counts : xarray.Dataset
        For each table the counts, integers, with the dims `chain`, `draw` and those of the table. To keep them with the
        rest: `idata["latent_counts"] = xarray.DataTree(counts)`.

    Raises
    ------
    ReleaseError
        If it is no release, is damaged, or contradicts itself.
    ArgumentError
        If the posterior holds no such shares, or shares with which the release is impossible.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     heads = pm.Binomial("heads", n=1000, p=p, observed=300)
    ...     release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric")
    >>> analysis = dirdp.analyse(release, 2, chains=2)  # the posterior of a model of your own goes here
    >>> dirdp.releases.latent_counts(analysis, release)["p"].sum("p_outcome").values
    array([[1000, 1000],
           [1000, 1000]])
    """
    if "posterior" not in getattr(idata, "children", {}):
        raise ArgumentError("Expected idata to have the group posterior, as from pm.sample.")
    posterior = idata.children["posterior"].to_dataset()
    found = inferences(release, None, n_prior, row_prior, jointly=False)
    chosen = _chosen(found, [name for name in found.tables if name in posterior] if tables is None else tables)
    rng = generator(random_seed)
    return xr.Dataset({name: _counts(name, found, posterior, rng) for name in chosen})


def _counts(name: str, found: Inferences, posterior: xr.Dataset, rng: np.random.Generator) -> xr.DataArray:
    seen = found.tables[name]
    distribution = posterior_of(seen, found.beliefs[name])
    shape, beta = distribution.prior.shape, seen.family == "beta"
    expected = shape[:-1] if beta else shape
    if name not in posterior or not {"chain", "draw"} <= set(posterior[name].dims):
        raise ArgumentError(f"Expected the posterior to hold draws of {name!r}, with the dims chain and draw.")
    draws = posterior[name].transpose("chain", "draw", ...)
    p = draws.values.astype(np.float64)
    if p.shape[2:] != expected:
        raise ArgumentError(f"Expected draws of {name!r} in the shape {expected}, got {p.shape[2:]}.")
    shares = np.stack([p, 1 - p], axis=-1) if beta else p
    if not np.all(shares >= 0) or not np.allclose(shares.sum(axis=-1), 1, rtol=0, atol=1e-6):
        raise ArgumentError(f"The posterior holds draws of {name!r} that are no probabilities.")
    with np.errstate(divide="ignore"):
        logs = np.log(shares).reshape(-1, *shape)
    try:
        counts = np.stack([distribution.given(each).counts(1, rng)[0][0] for each in logs])
    except ImpossibleError as error:
        raise ArgumentError(
            f"The posterior holds draws of {name!r} with which the release is impossible. Did your model use this "
            "release?"
        ) from error
    coords: dict[str, Any] = {dim: draws.coords[dim] for dim in ("chain", "draw")}
    coords |= {dim: labels for dim, labels in seen.cell_labels if labels is not None}
    dims = ["chain", "draw", *(dim for dim, _ in seen.cell_labels)]
    return xr.DataArray(counts.reshape(*p.shape[:2], *shape), coords, dims)
