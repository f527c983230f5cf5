"""A tree of numbers that were computed from the data says so wherever a part of it goes."""

import copy
import pickle

import numpy as np
import pytest
import xarray as xr

from pymc_dirdp.curator.confidential import DO_NOT_PUBLISH, marked

ERRORS = xr.Dataset({"kl": ("table", [0.123456])}, {"table": ["p"]}, {"power": 0.5, "rows": [1, 2]})


@pytest.fixture
def tree():
    return marked({"/realised": ERRORS, "/private/posterior": xr.Dataset({"p": ("draw", np.ones(3))})})


def in_file(tree, folder):
    tree.to_netcdf(folder / "tree.nc", engine="h5netcdf")
    with xr.open_datatree(folder / "tree.nc", engine="h5netcdf") as back:
        return back.load()


@pytest.mark.parametrize(
    "way",
    [
        lambda tree, folder: tree,
        lambda tree, folder: pickle.loads(pickle.dumps(tree)),
        lambda tree, folder: copy.copy(tree),
        lambda tree, folder: copy.deepcopy(tree),
        in_file,
    ],
    ids=["itself", "pickle", "copy", "deep copy", "file"],
)
def test_every_group_and_variable_is_marked(tree, tmp_path, way):
    tree = way(tree, tmp_path)
    assert [node.path for node in tree.subtree] == ["/", "/realised", "/private", "/private/posterior"]
    for node in tree.subtree:
        assert node.attrs["confidential"] == DO_NOT_PUBLISH
        assert all(values.attrs["confidential"] == DO_NOT_PUBLISH for values in node.data_vars.values())


@pytest.mark.parametrize(
    "part",
    [
        lambda tree: tree,
        lambda tree: tree["private"],
        lambda tree: tree["realised"].to_dataset(),
        lambda tree: tree["realised"]["kl"],
        lambda tree: tree["realised"]["kl"].sel(table="p"),
        lambda tree: tree["realised"].to_dataset().isel(table=0)["kl"],
        lambda tree: tree["private/posterior"]["p"][:2],
    ],
)
def test_what_is_taken_out_says_so_as_text_and_as_html(tree, part):
    taken = part(tree)
    for shown in (repr(taken), str(taken), taken._repr_html_()):
        assert "do not publish" in shown


def test_other_attributes_stay_if_a_file_can_hold_them_and_the_given_groups_stay_as_they_are(tree):
    assert tree["realised"].attrs == {"confidential": DO_NOT_PUBLISH, "power": 0.5}
    assert ERRORS.attrs == {"power": 0.5, "rows": [1, 2]}
    assert "confidential" not in ERRORS["kl"].attrs
