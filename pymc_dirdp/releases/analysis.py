"""What follows from a release: exact draws of the shares and the counts, given what was published."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.checks import integer
from pymc_dirdp.releases.concluding import Conclusion, conclusions
from pymc_dirdp.sampling.entropy import Seed, generator

__all__ = ["analyse"]

_CELLS = "one table"
_TABLES = "table by table: what other tables say of the same records is not used"


def analyse(
    release: xr.DataTree,
    draws: int = 4000,
    *,
    prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
    n_prior: int | ArrayLike | Mapping[str, int | ArrayLike] | None = None,
    row_prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
    random_seed: Seed = None,
) -> xr.DataTree:
    """Independent draws from the posterior given a release: what may be concluded from it, noise and all.

    The draw or the noisy counts of a release are not the data, and who reads them as data is far too sure. This takes
    the law of the mechanism into account, exactly, for as many draws as you like. It uses what was published alone, so
    it costs no privacy.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, also after `to_netcdf` and back.
    draws : int, default 4000
        How many; they are independent, so as many are worth as many.
    prior : array_like, or mapping from table to array_like, optional
        Your own prior of the shares, in the shape of the table, which for a Beta ends in (success, failure). By
        default that of the model.
    n_prior : int or array_like, or mapping from table to those, optional
        Your prior of the number of records where it is private: a whole number n makes 0 to n as likely as one
        another, a `range` each number in it, and an array holds the weights of 0, 1, 2, .... A draw needs one. For
        noisy counts it is by default that of the release's own draws, `least_records` to `most_records` in the table's
        group, which is so wide that it does not matter.
    row_prior : array_like, or mapping from table to array_like, optional
        Dirichlet prior of how the records of a table divide among its rows; 1 for each by default.
    random_seed : int, SeedSequence, Generator or None
        Harmless here: what is drawn from is public.

    Returns
    -------
    analysis : xarray.DataTree
        `posterior` holds the shares, with the names, dims and labels of the release; `latent_counts` the counts of the
        records in each cell; `observed_data` what was published; `sample_stats` for each table the share of proposals
        that was accepted and the logarithm of the evidence. The attributes say what it is conditional on.

    Raises
    ------
    ReleaseError
        If it is no release, is damaged, or contradicts itself.
    ArgumentError
        If a prior does not fit, or the number of records is private and has no prior.

    Notes
    -----
    Several tables are taken one by one. For the shares that is right where a table's rows are not those of another; it
    leaves out what one table says of the row sizes of another.

    A draw with `sampler="fast"` is rounded to a grid of about 2**-32, and is read as if it were not.

    References
    ----------
    Theory, section 16. Bernstein and Sheldon (2018), Differentially private Bayesian inference for exponential
    families, for the question.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}):
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     students = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    ...     release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6))
    >>> dirdp.analyse(release)["posterior"]["p"].shape
    (1, 4000, 4)
    """
    draws = integer(1, draws=draws)
    found = conclusions(release, prior, n_prior, row_prior)
    rng = generator(random_seed)
    drawn, evidence = {}, []
    for name, conclusion in found.items():
        drawn[name], log_evidence = conclusion.draw(draws, rng)
        evidence.append(log_evidence)
    shares = {name: _released(conclusion, drawn[name].shares) for name, conclusion in found.items()}
    counts = {name: _table(release, name, drawn[name].counts) for name in found}
    stats = {"acceptance": [drawn[name].acceptance for name in found], "log_evidence": evidence}
    tree = xr.DataTree.from_dict(
        {
            "/posterior": xr.Dataset(shares),
            "/latent_counts": xr.Dataset(counts),
            "/observed_data": xr.Dataset({name: _published(release, one) for name, one in found.items()}),
            "/sample_stats": xr.Dataset(
                {key: ("table", value) for key, value in stats.items()}, {"table": list(found)}
            ),
        }
    )
    tree.attrs = _attributes(release, found)
    return tree


def _released(conclusion: Conclusion, shares: NDArray[np.float64]) -> xr.DataArray:
    """Shares with the dims and labels of the draws of the release; of a Beta those of success."""
    values = shares[..., 0] if conclusion.output.drawn.family == "beta" else shares
    return _drawn(values, conclusion.output.drawn.labels)


def _table(release: xr.DataTree, name: str, values: NDArray[Any]) -> xr.DataArray:
    """A table of counts for each draw, with the dims of the prior in the file."""
    prior = release.children["mechanism"].children[name].to_dataset()["prior"]
    labels = {dim: prior.coords[dim].values.tolist() if dim in prior.coords else None for dim in prior.dims}
    return _drawn(values, tuple((str(dim), found) for dim, found in labels.items()))


def _drawn(values: NDArray[Any], labels: tuple[tuple[str, list[Any] | None], ...]) -> xr.DataArray:
    coords: dict[str, Any] = {dim: found for dim, found in labels if found is not None}
    coords |= {"chain": [0], "draw": np.arange(len(values))}
    return xr.DataArray(values[None], coords, ["chain", "draw", *(dim for dim, _ in labels)])


def _published(release: xr.DataTree, conclusion: Conclusion) -> xr.DataArray:
    """The noisy counts, or the draws that are the release."""
    output = conclusion.output
    if output.mechanism.publishes is not None:
        group = release.children["mechanism"].children[output.name].to_dataset()
        return group[output.mechanism.publishes].reset_coords(drop=True)
    published = release.children["posterior"].to_dataset()[output.name].reset_coords(drop=True)
    return published.rename({"chain": "release_chain", "draw": "release_draw"})


def _attributes(release: xr.DataTree, found: dict[str, Conclusion]) -> dict[str, str]:
    attributes = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": version("pymc_dirdp"),
        "method": "exact independent draws given what was published",
        "conditional_on": " | ".join(f"{name}: {one.conditions}" for name, one in found.items()),
        "consistency": _TABLES if len(found) > 1 else _CELLS,
    }
    if "reproducible" in release.attrs:
        attributes["reproducible"] = str(release.attrs["reproducible"])
    return attributes
