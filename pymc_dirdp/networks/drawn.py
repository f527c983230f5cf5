"""The draws of the tables that one record goes through: of a release, or given a release."""

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.networks.fitting import fit
from pymc_dirdp.releases.analysis import analyse
from pymc_dirdp.releases.opened import ListedLabels, labels_of, opened, refuse_confidential
from pymc_dirdp.releases.view import TEXT_GROUP
from pymc_dirdp.sampling.bits import Seed

__all__ = ["DrawnTable", "analysed", "given_release", "is_analysis", "is_estimate", "of_release", "records_of_estimate"]

Integers = NDArray[np.int64]

# Draws of an analysis that is made here, and how many shares they may hold together.
_DRAWS, _MOST_SHARES = 4000, 10**7
# Shares in single precision add up to 1 within this tolerance.
_SINGLE = 1e-5
# Those in double precision, for any number of categories that is in use.
_DOUBLE = 1e-9
# What stands for a share that was drawn as 0: its logarithm is finite.
_TINY = np.finfo(np.float64).tiny
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

    labels: ListedLabels
    shares: Array
    counts: Integers
    is_beta: bool = False

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the axes."""
        return tuple(dim for dim, _ in self.labels)


def _is_release(tree: Any) -> bool:
    refuse_confidential(tree)
    return TEXT_GROUP in getattr(tree, "children", {})


def is_analysis(tree: Any) -> bool:
    """Whether a tree is what `dirdp.analyse` returns, and not a release."""
    return not _is_release(tree) and "latent_counts" in getattr(tree, "children", {})


def is_estimate(tree: Any) -> bool:
    """Whether a tree holds one estimate of the shares, and no draws: of `dirdp.fit`, or a release of marginals."""
    return opened(tree).is_estimate if _is_release(tree) else "estimate" in getattr(tree, "attrs", ())


def records_of_estimate(tree: xr.DataTree) -> int:
    """The number of records that an estimate tells, or an error if it tells none."""
    if not _is_release(tree):
        return integer(0, n_records=tree.attrs.get("n_records"))
    plan = opened(tree).plan
    sizes = {part.n_records for part in plan.parts} if plan.reading.sizes_are_public else set()
    if len(sizes) != 1:
        raise ArgumentError("The number of records is private. Pass n_records=, or take dirdp.fit(release).")
    return sizes.pop() or 0


def of_release(release: xr.DataTree) -> dict[str, DrawnTable]:
    """The draws that a release holds itself, or the estimate of `dirdp.fit`."""
    if not _is_release(release) and is_estimate(release):
        return _of_estimate(release)
    return {
        name: _table(table.share_labels, table.draws, name, is_beta=table.family == "beta")
        for name, table in opened(release).tables.items()
    }


def _table(
    labels: ListedLabels, values: Array, name: str, *, is_beta: bool, counts: Integers = _NO_COUNTS
) -> DrawnTable:
    """A table of draws, shape `(draws, ...)`; of a Beta those of success, to which those of failure are put."""
    if is_beta:
        labels = (*labels, (f"{name}_outcome", ["success", "failure"]))
        values = np.stack([values, np.maximum(1 - values, 0.0)], axis=-1)
    return DrawnTable(labels, np.maximum(values, _TINY), counts, is_beta=is_beta)


def analysed(release: xr.DataTree, draws: int, random_seed: Seed) -> xr.DataTree:
    """An analysis of a release, or an error that says who can make one."""
    try:
        return analyse(release, draws, chains=1, random_seed=random_seed, progressbar=False)
    except ReleaseError:
        raise
    except ArgumentError as error:
        raise ArgumentError(
            f"{error} These are arguments of dirdp.analyse: pass what it returns in the place of the release."
        ) from error


def given_release(tree: xr.DataTree, draws: int | None, random_seed: Seed) -> dict[str, DrawnTable]:
    """Draws given a release: those of an analysis, or of one that is made here.

    An estimate counts as one draw.

    Parameters
    ----------
    tree : xarray.DataTree
        A release, an analysis of one, or an estimate.
    draws : int or None
        How many; an analysis has its own. By default 4000, or fewer where those would fill much memory; and the fit of
        a release of marginals.
    random_seed : int, SeedSequence, Generator or None
    """
    if is_estimate(tree) and not _is_release(tree):
        if draws is not None:
            raise ArgumentError("An estimate has no draws. Leave draws out, or pass the release that was fitted.")
        return _of_estimate(tree)
    if draws is None and is_estimate(tree):
        return _fitted_jointly(tree)
    if is_analysis(tree):
        if draws is not None:
            raise ArgumentError("An analysis has its own draws. Leave draws out, or pass the release itself.")
        return _of_analysis(tree)
    if draws is None:
        cells = sum(math.prod(table.draws.shape[1:]) for table in opened(tree).tables.values())
        draws = min(_DRAWS, max(100, _MOST_SHARES // cells))
    return _of_analysis(analysed(tree, integer(1, draws=draws), random_seed))


def _fitted_jointly(release: xr.DataTree) -> dict[str, DrawnTable]:
    """The tables that fit all marginals of a release at once, or those of the release if they are parts of a network.

    A release of marginals holds what is fitted table by table, which is quick; the joint fit predicts better.
    """
    with suppress(ArgumentError):
        return _of_estimate(fit(release, progressbar=False))
    return of_release(release)


def _shares(draws: xr.DataArray, *, is_beta: bool) -> Array:
    """Draws of shares with dims `chain` and `draw` first, as an array of shape `(draws, ...)`; others are refused."""
    values = np.asarray(draws.values, dtype=np.float64)
    near = _SINGLE if draws.dtype == np.float32 else _DOUBLE
    total = 1.0 if is_beta else values.sum(axis=-1, keepdims=True)
    if not (np.all((values >= 0) & (values <= 1 + near)) and np.all(np.abs(total - 1) < near)):
        raise ArgumentError(
            f"The draws of {draws.name!r} are no shares: each lies in [0, 1]"
            + ("." if is_beta else f", and over {draws.dims[-1]!r} they add up to 1.")
        )
    # Those in single precision add up to 1 as nearly as that can be.
    values = values / total if near == _SINGLE else values
    return np.asarray(values.reshape(-1, *values.shape[2:]))


def _of_estimate(estimate: xr.DataTree) -> dict[str, DrawnTable]:
    found: dict[str, DrawnTable] = {}
    tables = estimate["posterior"].to_dataset() if "posterior" in estimate else xr.Dataset()
    whole = estimate["network"].to_dataset() if "network" in estimate else tables
    try:
        betas = json.loads(estimate.attrs["beta_tables"])
        known = set(betas) <= set(tables) == set(whole) != set()
    except (LookupError, TypeError, ValueError):
        known = False
    if not known:
        raise ArgumentError("Expected a release, an analysis, or an estimate of dirdp.fit; this estimate is damaged.")
    for name, draws in whole.data_vars.items():
        is_beta = name in betas
        found[str(name)] = _table(labels_of(draws), _shares(draws, is_beta=is_beta), str(name), is_beta=is_beta)
    return found


def _of_analysis(analysis: xr.DataTree) -> dict[str, DrawnTable]:
    posterior, latent = (analysis[name].to_dataset() for name in ("posterior", "latent_counts"))
    return {str(name): _drawn_with_counts(posterior, drawn) for name, drawn in latent.data_vars.items()}


def _drawn_with_counts(posterior: xr.Dataset, drawn: xr.DataArray) -> DrawnTable:
    name = str(drawn.name)
    if name not in posterior or not {"chain", "draw"} < set(drawn.dims):
        raise ArgumentError(f"The analysis has no draws of the shares and the counts of {name!r} together.")
    counts = drawn.transpose("chain", "draw", ...)
    shares = posterior[name].transpose("chain", "draw", ...)
    is_beta = shares.ndim < counts.ndim
    labels = labels_of(shares)
    if counts.shape != (*shares.shape, 2) if is_beta else counts.shape != shares.shape:
        raise ArgumentError(f"The analysis has counts of {name!r} in another shape than its shares.")
    if counts.dtype.kind != "i" or np.any(counts.values < 0):
        raise ArgumentError(f"The analysis holds something else than counts of {name!r}.")
    found = counts.values.reshape(-1, *counts.shape[2:])
    return _table(labels, _shares(shares, is_beta=is_beta), name, is_beta=is_beta, counts=found)
