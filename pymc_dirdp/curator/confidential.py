"""Trees of numbers computed from the data, which no guarantee covers. Every group and variable says so."""

from collections.abc import Mapping
from typing import Any

import xarray as xr

DO_NOT_PUBLISH = "do not publish: computed from the data themselves, so the guarantee does not cover it"


def marked(groups: Mapping[str, xr.Dataset]) -> xr.DataTree:
    """The groups by path as a tree with the mark on every group and variable, so that extracted parts have it, too."""
    tree = xr.DataTree.from_dict({path: _with_marks(dataset) for path, dataset in groups.items()}, name="confidential")
    for node in tree.subtree:
        # Attributes are texts or numbers, so that they survive a file unchanged.
        others: dict[Any, Any] = {
            key: value for key, value in node.attrs.items() if isinstance(value, str | int | float)
        }
        node.attrs = {"confidential": DO_NOT_PUBLISH} | others
    return tree


def _with_marks(dataset: xr.Dataset) -> xr.Dataset:
    marked_copy = dataset.copy()
    for values in marked_copy.data_vars.values():
        values.attrs = {**values.attrs, "confidential": DO_NOT_PUBLISH}
    return marked_copy
