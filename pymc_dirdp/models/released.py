"""The probabilities in a release, which may come from a file that somebody has damaged or changed."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_dirdp.errors import ArgumentError

__all__ = ["mechanisms_of", "probabilities_of"]

# Every sampler keeps the sum to less than this.
_TOLERANCE = 1e-6


def mechanisms_of(release: xr.DataTree) -> dict[str, dict[str, Any]]:
    """The attributes of each table of a release, by its name."""
    children = getattr(release, "children", {})
    if not {"posterior", "mechanism"} <= set(children) or not children["mechanism"].children:
        raise ArgumentError("Expected a release from pymc_dirdp.sample, with the groups posterior and mechanism.")
    return {str(name): dict(node.attrs) for name, node in children["mechanism"].children.items()}


def probabilities_of(release: xr.DataTree, table: str) -> xr.DataArray:
    """The released draws of a table, with dims `chain`, `draw` and then its own.

    Raises
    ------
    ArgumentError
        If they are not there, or are no probabilities: negative, not finite, or not adding up to 1 within 1e-6.
    """
    found = release.children["posterior"].to_dataset()
    family = release.children["mechanism"].children[table].attrs.get("family")
    if family not in ("dirichlet", "beta"):
        raise _damaged(table, "it does not say of which family they are")
    if table not in found or not {"chain", "draw"} <= set(found[table].dims):
        raise _damaged(table, "there are no draws of them")
    values = found[table].transpose("chain", "draw", ...)
    if values.size == 0 or values.ndim < 2 + (family == "dirichlet"):
        raise _damaged(table, "they have no draws or no categories")
    p = values.values
    if p.dtype.kind not in "iuf" or not np.all(np.isfinite(p)):
        raise _damaged(table, "they are not all finite numbers")
    if p.min() < 0 or p.max() > 1 + (_TOLERANCE if family == "dirichlet" else 0):
        raise _damaged(table, "they are not all between 0 and 1")
    if family == "dirichlet" and np.abs(p.sum(axis=-1) - 1).max() > _TOLERANCE:
        raise _damaged(table, "they do not add up to 1")
    return values


def _damaged(table: str, why: str) -> ArgumentError:
    return ArgumentError(f"The probabilities of {table!r} cannot be used, because {why}. The release is damaged.")
