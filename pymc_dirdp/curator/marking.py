"""Trees whose every group and variable says that they are confidential."""

from collections.abc import Mapping
from typing import Any

import xarray as xr

from pymc_dirdp.curator.confidential import DO_NOT_PUBLISH

__all__ = ["marked"]


def marked(groups: Mapping[str, xr.Dataset]) -> xr.DataTree:
    """The groups by path as a tree with the mark on every group and variable, so that what is taken out keeps it."""
    tree = xr.DataTree.from_dict({path: _with_marks(dataset) for path, dataset in groups.items()}, name="confidential")
    for node in tree.subtree:
        # Attributes are texts or numbers, so that a file returns what was written.
        kept: dict[Any, Any] = {key: value for key, value in node.attrs.items() if isinstance(value, str | int | float)}
        node.attrs = {"confidential": DO_NOT_PUBLISH} | kept
    return tree


def _with_marks(dataset: xr.Dataset) -> xr.Dataset:
    own = dataset.copy()
    for values in own.data_vars.values():
        values.attrs = {**values.attrs, "confidential": DO_NOT_PUBLISH}
    return own
