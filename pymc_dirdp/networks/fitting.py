"""The tables of a network, fitted to the noisy counts that a release published: post-processing of it."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import one_of
from pymc_dirdp.inference.measurements import Family, Measurement, number_of_records, with_co_parents
from pymc_dirdp.inference.network_fit import MOST_ROUNDS, fit_jointly, fit_tables, shares_given_parents
from pymc_dirdp.inference.network_posterior import EliminationError
from pymc_dirdp.progress import Bar
from pymc_dirdp.releases.grammar import library_version
from pymc_dirdp.releases.noisy_marginals import network_of
from pymc_dirdp.releases.opened import ReleasedTable, computable
from pymc_dirdp.releases.view import tree_of

__all__ = ["fit"]


def fit(
    release: xr.DataTree, consistency: Literal["joint", "tables"] | None = None, *, progressbar: bool = True
) -> xr.DataTree:
    """The tables of a network, estimated from all noisy counts of a release together.

    A draw given a release, or a table that is read off its noisy counts, takes every table by itself and every cell as
    if the others said nothing. This estimate uses that a table is mostly made of small effects, and that the marginals
    of different tables are those of the same records. It loses far less than either where there are many cells for the
    records. It is one estimate, and no posterior: it says nothing of its own error:
    :func:`pymc_dirdp.estimate` does.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, with `mechanism="marginals"`, or any other that publishes noisy counts, such as
        `"geometric"` or `"gaussian"`. Its tables are read as those of the same records.
    consistency : {"joint", "tables"}, optional
        By default `"joint"` for a release of marginals, and `"tables"` for one of noisy tables: without small marginals
        among what was measured, wide noise in the tables of children misleads those of their parents. `"joint"`
        compares each measured marginal with that of the whole network. `"tables"` fits each table by itself to the
        marginals of its own variables; it is faster, and its tables agree only roughly. It is also what is done where
        the marginals of the whole network would need a table of more than 10**7 cells; the attribute `consistency` of
        the estimate says so.
    progressbar : bool, default True
        Whether to count the tables that are fitted in a bar, if they take over a second.

    Returns
    -------
    estimate : xarray.DataTree
        Its group `posterior` holds the shares as one draw, with the names, dims and labels of the release. So it can
        stand in the place of the release in :func:`pymc_dirdp.predict_log_proba`, :func:`pymc_dirdp.log_likelihood` and
        :func:`pymc_dirdp.synthetic`. The attribute `n_records` is the number of records, or what the counts say of it
        if it is private. Where parents of one variable depend on each other beyond the structure, the group `network`
        holds tables that say how, and predictions, likelihoods and synthetic records follow them.

    Raises
    ------
    ReleaseError
        If it is no release, is damaged, or contradicts itself.
    ArgumentError
        If some table was released without noisy counts, or the tables are no network.

    Notes
    -----
    The logits of a variable are sums of effects, one for each subset of its parents. An effect is shrunk to 0 with a
    strength that is learned from the noisy counts (empirical Bayes): what the noise hides is left out, and what it does
    not hide stays. The likelihood of a noisy count is normal, with the variance of the noise and that of the sample.
    The estimate is the mode, found by Newton's method to a length of the gradient of 0.001. Where the noise of a cell
    is more than a fifth of all records, it is the mean of the shares over the normal distribution around the mode.

    A network takes parents of one variable for independent given their own parents, and records are not so. Where two
    of them were measured together, and the noise does not hide it, the joint fit makes the later one depend on the
    earlier; the tables of the release's structure are marginals of that.

    References
    ----------
    Theory, section 16, for draws given a release. McKenna, Sheldon and Miklau (2019), Graphical-model based estimation
    and inference for differential privacy, for estimates from noisy marginals without effects that are shrunk to 0.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> records = {"fur": ["yes"] * 60 + ["no"] * 40, "eggs": ["no"] * 65 + ["yes"] * 35}
    >>> yes_no = {"fur": ["yes", "no"], "eggs": ["yes", "no"]}
    >>> model = dirdp.bayesian_network(records, {"eggs": [], "fur": ["eggs"]}, categories=yes_no)
    >>> release = dirdp.sample(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric")
    >>> estimate = dirdp.fit(release)
    >>> dirdp.log_likelihood(estimate, records).shape
    (100,)
    """
    if consistency is not None:
        one_of(["joint", "tables"], consistency=consistency)
    network = network_of(release)
    consistency = consistency or ("joint" if network.of_marginals else "tables")
    if consistency == "joint":
        network.refuse_parts()
    families, measurements, n_records = network.families, network.measurements, network.n_records
    with computable(), Bar((MOST_ROUNDS + 1) * len(families) + 2, "tables", shown=progressbar) as bar:
        fitted, shares, done = _fitted(families, measurements, n_records, consistency, bar)
    groups = {}
    if any(own.axes != given.axes for own, given in zip(fitted, families, strict=True)):
        groups["/network"] = _network(fitted, shares, network.drawn)
        shares = shares_given_parents(fitted, shares, families)
    tree = tree_of({"/posterior": _posterior(shares, network.drawn), **groups})
    tree.attrs = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": library_version(),
        "estimate": "the shares are fitted to noisy counts, and are no draw",
        "consistency": done,
        "n_records": round(number_of_records(measurements)) if n_records is None else n_records,
        "beta_tables": json.dumps([name for name, one in network.drawn.items() if one.family == "beta"]),
    }
    tree.attrs |= {name: release.attrs[name] for name in ("guarantee", "adjacency") if name in release.attrs}
    if "reproducible" in release.attrs:
        tree.attrs["reproducible"] = "not private"
    return tree


def _fitted(
    families: Sequence[Family], measurements: tuple[Measurement, ...], n_records: int | None, consistency: str, bar: Bar
) -> tuple[Sequence[Family], dict[str, Array], str]:
    """The families that were fitted, their shares, and how they were found."""
    done = "tables"
    if consistency == "joint":
        known = number_of_records(measurements) if n_records is None else n_records
        joined = with_co_parents(families, measurements, known)
        try:
            return joined, fit_jointly(joined, measurements, n_records, bar), "joint"
        except EliminationError as error:
            done = f"tables, because the whole network is too large: {error}"
    return families, fit_tables(families, measurements, n_records, bar), done


def _posterior(shares: dict[str, Array], drawn: dict[str, ReleasedTable]) -> xr.Dataset:
    variables = {}
    for name, one in drawn.items():
        # A Beta variable is the probability of success, the first of its two categories.
        values = shares[name][..., 0] if one.family == "beta" else shares[name]
        labels: tuple[tuple[str, Any], ...] = (("chain", [0]), ("draw", [0]), *one.share_labels)
        coords = {dim: found for dim, found in labels if found is not None}
        values = np.broadcast_to(values, one.draws.shape[1:])[None, None]
        variables[name] = xr.DataArray(values, coords, [dim for dim, _ in labels])
    return xr.Dataset(variables)


def _network(families: Sequence[Family], shares: dict[str, Array], drawn: dict[str, ReleasedTable]) -> xr.Dataset:
    """The tables that were fitted, one draw, where some have further parents."""
    known = {dim: labels for one in drawn.values() for dim, labels in one.share_labels if labels is not None}
    variables = {}
    for family in families:
        is_beta = drawn[family.name].family == "beta"
        values = shares[family.name][..., 0] if is_beta else shares[family.name]
        dims = family.parents if is_beta else family.axes
        coords = {"chain": [0], "draw": [0]} | {dim: known[dim] for dim in dims if dim in known}
        variables[family.name] = xr.DataArray(values[None, None], coords, ("chain", "draw", *dims))
    return xr.Dataset(variables)
