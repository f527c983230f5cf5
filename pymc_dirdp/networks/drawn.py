"""The draws of the tables that one record goes through: of a release, or given a release."""

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MOST_RECORDS, integer
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.networks.fitting import fit
from pymc_dirdp.releases.analysis import analyse
from pymc_dirdp.releases.opened import opened, view_of
from pymc_dirdp.sampling.entropy import Seed
from pymc_dirdp.stored.draws import Drawn, drawn_tables, probabilities, stored_labels
from pymc_dirdp.stored.untrusted import Group, group_at

__all__ = ["DrawnTable", "analysed", "given_release", "is_analysis", "is_estimate", "of_release", "records_of_estimate"]

Integers = NDArray[np.int64]

# Draws of an analysis that is made here, and how many shares they may hold together.
_DRAWS, _MOST_SHARES = 4000, 10**7
# Shares in single precision add up to 1 within this tolerance.
_SINGLE = 1e-5
_NO_COUNTS: Integers = np.empty(0, dtype=np.int64)


@final
@dataclass(frozen=True, eq=False)
class DrawnTable:
    """Draws of one table.

    Attributes
    ----------
    labels : tuple of (str, list)
        The name of each axis of the table, and the labels along it if it has any; the last axis is that of the
        variable whose shares they are, and the others are its parents.
    shares : array, shape (draws, ...)
        The last axis adds up to 1.
    counts : array of int, shape (draws, ...)
        The counts that the shares were drawn with; empty for the draws of a release itself, which keeps none.
    is_beta : bool
        Whether the variable is the outcome of a Beta table.
    """

    labels: tuple[tuple[str, list[Any] | None], ...]
    shares: Array
    counts: Integers
    is_beta: bool = False

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the axes."""
        return tuple(dim for dim, _ in self.labels)


def is_analysis(tree: Any) -> bool:
    """Whether a tree is what `dirdp.analyse` returns, and not a release."""
    children = getattr(tree, "children", {})
    return "latent_counts" in children and "mechanism" not in children


def is_estimate(tree: Any) -> bool:
    """Whether a tree holds one estimate of the shares, and no draws: of `dirdp.fit`, or a release of marginals."""
    return "estimate" in getattr(tree, "attrs", ())


def records_of_estimate(tree: xr.DataTree) -> int:
    """The number of records that an estimate tells, or an error if it tells none."""
    if "mechanism" not in tree.children:
        return Group("/", tree.to_dataset()).whole("n_records", 0, MOST_RECORDS)
    plan = opened(tree).plan
    sizes = {part.n_records for part in plan.parts} if plan.reading.sizes_are_public else set()
    if len(sizes) != 1:
        raise ArgumentError("The number of records is private. Pass n_records=, or take dirdp.fit(release).")
    return sizes.pop() or 0


def of_release(release: xr.DataTree) -> dict[str, DrawnTable]:
    """The draws that a release holds itself, or the estimate of `dirdp.fit`."""
    if is_estimate(release) and "mechanism" not in release.children:
        return _of_estimate(release)
    release = view_of(release)
    found = {}
    for name, drawn in drawn_tables(release).items():
        values = drawn.positive.reshape(-1, *drawn.values.shape[2:])
        if drawn.family == "beta":
            outcome = (f"{name}_outcome", ["success", "failure"])
            found[name] = DrawnTable((*drawn.labels, outcome), _pairs(values), _NO_COUNTS, is_beta=True)
        else:
            found[name] = DrawnTable(drawn.labels, values, _NO_COUNTS)
    return found


def analysed(release: xr.DataTree, draws: int, random_seed: Seed) -> xr.DataTree:
    """An analysis of a release, or an error that says who can make one."""
    try:
        return analyse(release, draws, random_seed=random_seed, progressbar=False)
    except ReleaseError:
        raise
    except ArgumentError as error:
        raise ArgumentError(
            f"{error} These are arguments of dirdp.analyse: pass what it returns in the place of the release."
        ) from error


def given_release(tree: xr.DataTree, draws: int | xr.DataTree | None, random_seed: Seed) -> dict[str, DrawnTable]:
    """Draws given a release: those of an analysis, or of one that is made here.

    An estimate counts as one draw.

    Parameters
    ----------
    tree : xarray.DataTree
        A release, an analysis of one, or an estimate.
    draws : int, xarray.DataTree or None
        How many; an analysis has its own. By default 4000, or fewer where those would fill much memory. Or draws that
        were made elsewhere, as by `pm.sample` of `dirdp.releases.analyst_model(release)`.
    random_seed : int, SeedSequence, Generator or None
    """
    tree = view_of(tree)
    if isinstance(draws, xr.DataTree):
        return _of_posterior(tree, draws)
    if is_estimate(tree):
        if draws is not None:
            raise ArgumentError(
                "The release holds one estimate of the shares, and no draws. Leave draws out, or pass what pm.sample "
                "returns for dirdp.releases.analyst_model(release)."
            )
        return _of_estimate(tree) if "mechanism" not in tree.children else _fitted_jointly(tree)
    if is_analysis(tree):
        if draws is not None:
            raise ArgumentError("An analysis has its own draws. Leave draws out, or pass the release itself.")
        return _of_analysis(tree)
    if draws is None:
        cells = sum(math.prod(drawn.values.shape[2:]) for drawn in drawn_tables(tree).values())
        draws = min(_DRAWS, max(100, _MOST_SHARES // cells))
    return _of_analysis(analysed(tree, integer(1, draws=draws), random_seed))


def _fitted_jointly(release: xr.DataTree) -> dict[str, DrawnTable]:
    """The tables that fit all marginals of a release at once, or those of the release if they are parts of a network.

    A release of marginals holds what is fitted table by table, which is quick; the joint fit predicts better.
    """
    with suppress(ArgumentError):
        return _of_estimate(fit(release, progressbar=False))
    return of_release(release)


def _of_posterior(release: xr.DataTree, idata: xr.DataTree) -> dict[str, DrawnTable]:
    """Draws of the tables of a release from the posterior of a model of it; the same draw of each goes together."""
    if "mechanism" not in getattr(release, "children", {}):
        raise ArgumentError("Draws of a model stand beside the release that the model is of. Pass the release itself.")
    if "posterior" not in idata.children:
        raise ArgumentError("Expected draws to have the group posterior, as from pm.sample.")
    posterior, found = idata.children["posterior"].to_dataset(), {}
    for name, drawn in drawn_tables(release).items():
        if name in posterior and not {"chain", "draw"} <= {*posterior[name].dims}:
            raise ArgumentError(
                f"The draws of {name!r} have no dim chain or no dim draw. Select some of them by a list, such as "
                "draws.isel(chain=[0]), which keeps the dim."
            )
        if name not in posterior or {*posterior[name].dims} != {"chain", "draw", *drawn.dims}:
            raise ArgumentError(
                f"Expected draws to hold {name!r} with the dims chain, draw, {', '.join(drawn.dims)}, as the model of "
                "dirdp.releases.analyst_model(release) has it."
            )
        draws = posterior[[name]].transpose("chain", "draw", *drawn.dims)
        if draws[name].dtype == np.float32:
            draws[name] = _in_doubles(draws[name], drawn)
        group = Group("posterior", draws)
        own = dict(stored_labels(group, name))
        for dim, declared in drawn.labels:
            if declared is not None and own[dim] != declared:
                raise ArgumentError(f"The draws of {name!r} have other labels of {dim!r} than the release.")
        expected, shape = drawn.values.shape[2:], group.dataset[name].shape
        if shape[2:] != expected or 0 in shape:
            raise ArgumentError(f"Expected at least one draw of {name!r}, in the shape {expected}, got {shape[2:]}.")
        try:
            values = probabilities(group, name, drawn.family)
        except ReleaseError:
            # It is the draws that are wrong, and not the release.
            raise ArgumentError(
                f"The draws of {name!r} are no shares: each lies in [0, 1]"
                + (f", and over {drawn.dims[-1]!r} they add up to 1." if drawn.family != "beta" else ".")
            ) from None
        shares, labels = values.reshape(-1, *values.shape[2:]), drawn.labels
        if drawn.family == "beta":
            shares, labels = _pairs(shares), (*labels, (f"{name}_outcome", ["success", "failure"]))
        found[name] = DrawnTable(labels, shares, _NO_COUNTS, is_beta=drawn.family == "beta")
    return found


def _in_doubles(draws: xr.DataArray, drawn: Drawn) -> xr.DataArray:
    """Draws of a sampler in single precision, whose shares add up to 1 as nearly as that can be."""
    found = draws.astype(np.float64)
    if drawn.family == "beta":
        return found
    total = found.sum(drawn.dims[-1])
    return found / total.where(np.abs(total - 1) < _SINGLE, 1.0)


def _of_estimate(estimate: xr.DataTree) -> dict[str, DrawnTable]:
    posterior = group_at(estimate, "posterior")
    betas = Group("/", estimate.to_dataset()).names("beta_tables")
    found = {}
    for name in map(str, posterior.dataset.data_vars):
        values = probabilities(posterior, name, "beta" if name in betas else "dirichlet")
        shares, labels = values.reshape(-1, *values.shape[2:]), stored_labels(posterior, name)
        if name in betas:
            labels, shares = (*labels, (f"{name}_outcome", ["success", "failure"])), _pairs(shares)
        found[name] = DrawnTable(labels, shares, _NO_COUNTS, is_beta=name in betas)
    return found


def _of_analysis(analysis: xr.DataTree) -> dict[str, DrawnTable]:
    posterior, latent = group_at(analysis, "posterior"), group_at(analysis, "latent_counts")
    return {str(name): _drawn_with_counts(posterior, latent, str(name)) for name in latent.dataset.data_vars}


def _drawn_with_counts(posterior: Group, latent: Group, name: str) -> DrawnTable:
    variable = latent.dataset[name]
    if not {"chain", "draw"} < set(variable.dims) or variable.dtype.kind != "i":
        raise latent.damaged(f"{name!r} holds no counts of draws")
    counts = variable.transpose("chain", "draw", ...).values
    if name not in posterior.dataset.data_vars:
        raise posterior.damaged(f"the variable {name!r} is missing")
    family = "dirichlet" if posterior.dataset[name].ndim == variable.ndim else "beta"
    values = probabilities(posterior, name, family)
    shares = _pairs(values) if family == "beta" else values
    if shares.shape != counts.shape:
        raise posterior.damaged(f"the draws of {name!r} do not have the shape of its counts")
    if np.any(counts < 0) or np.any(values == 0):
        raise posterior.damaged(f"a count of {name!r} is negative, or a probability is 0")
    # A dim of a mechanism's group may have been renamed; the draws have the names of the model.
    own = stored_labels(posterior, name)
    labels = own if family == "dirichlet" else (*own, stored_labels(latent, name)[-1])
    shape = (-1, *counts.shape[2:])
    return DrawnTable(labels, shares.reshape(shape), counts.reshape(shape), is_beta=family == "beta")


def _pairs(values: Array) -> Array:
    return np.stack([values, np.maximum(1 - values, 0.0)], axis=-1)
