"""Trees that are put together without being compared are those that xarray makes."""

import numpy as np
import pytest
import xarray as xr

from pymc_dirdp.releases import view
from pymc_dirdp.releases.view import tree_of


def groups():
    return {
        "/posterior": xr.Dataset(
            {"p": (("chain", "draw", "k"), np.ones((1, 2, 3))), "q": ((), 1.0)},
            {"chain": [0], "draw": [0, 1], "k": ["a", "b", "c"], "of_k": ("k", [1, 2, 3])},
            {"note": "x"},
        ),
        "/mechanism": xr.Dataset(attrs={"what": "y"}),
        # Labels that differ from those of the group beside it.
        "/mechanism/p": xr.Dataset({"prior": ("k", [1.0, 2.0])}, {"k": [5, 7]}),
        "/mechanism/q/r": xr.Dataset({"prior": ("k", [1.0, 2.0])}),
        "/privacy": xr.Dataset({"delta": ("k", [1.0])}),
    }


@pytest.mark.parametrize("put", [view._PUT, "no such function"])
def test_trees_are_those_of_xarray(put, monkeypatch):
    """Oracle: `DataTree.from_dict`, with the order of the groups; with and without the function of xarray."""
    monkeypatch.setattr(view, "_PUT", put)
    given = groups()
    tree, oracle = tree_of(given), xr.DataTree.from_dict(groups())
    assert tree.identical(oracle)
    assert tree.groups == oracle.groups
    assert tree["posterior"].to_dataset().xindexes.keys() == oracle["posterior"].to_dataset().xindexes.keys()
    assert dict(tree["posterior"].sizes) == {"chain": 1, "draw": 2, "k": 3}
    assert str(tree) == str(oracle)
    # What is given stays as it is if the tree is changed, as after `from_dict`.
    tree["posterior"].attrs["note"] = "changed"
    tree["posterior"]["more"] = 1.0
    assert given["/posterior"].identical(groups()["/posterior"])
    assert tree_of({}).identical(xr.DataTree())


def test_no_group_with_labels_is_compared(monkeypatch):
    """What takes long is the comparison, so that none is made of the group with all dims."""
    compared = []
    check = xr.core.datatree.check_alignment
    monkeypatch.setattr(xr.core.datatree, "check_alignment", lambda *of: compared.append(len(of[1].dims)) or check(*of))
    tree_of({"/posterior": xr.Dataset(coords={f"d{i}": range(2) for i in range(50)}), "/privacy": xr.Dataset()})
    assert compared == [0, 0]
