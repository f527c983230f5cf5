"""Trees of many dims, put together in time that grows as their number does."""

from collections.abc import Mapping
from typing import Final

import xarray as xr

__all__ = ["tree_of"]

# xarray compares each group with those above it, and looks through all labels of a group again for each of its dims: a
# second for a thousand tables with dims of their own. This is what it calls once it has compared.
_PUT: Final = "_set_node_data"


def tree_of(groups: Mapping[str, xr.Dataset]) -> xr.DataTree:
    """The tree that `xarray.DataTree.from_dict` makes of groups below an empty root.

    Nothing stands above or below a group of the first level that is alone, so it is put in without being compared.
    Where a version of xarray has no such function, the tree is the same and takes longer.

    Parameters
    ----------
    groups : mapping of str to Dataset
        By their paths, such as `"/posterior"` or `"/mechanism/p"`; none is the root.

    Returns
    -------
    tree : xarray.DataTree
    """
    shared = {path.split("/")[1] for path in groups if path.count("/") > 1}
    alone = {path for path in groups if path.count("/") == 1 and path[1:] not in shared and hasattr(xr.DataTree, _PUT)}
    tree = xr.DataTree.from_dict({path: xr.Dataset() if path in alone else one for path, one in groups.items()})
    for path in alone:
        getattr(tree[path], _PUT)(groups[path].copy(deep=False))
    return tree
