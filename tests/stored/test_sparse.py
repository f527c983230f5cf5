"""Files that claim to be releases of sparse tables."""

import json

import numpy as np
import pytest
import xarray as xr

from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.privacy.guarantees import PureDP
from pymc_dirdp.releases.sparse import release_sparse
from pymc_dirdp.stored.sparse import read_sparse

LABELS = {"zip": ["1", "2", "3"], "ill": ["a", "b"]}


@pytest.fixture
def release():
    return release_sparse(
        PureDP(epsilon=1), {"zip": ["1", "3"], "ill": ["b", "a"]}, [500, 600], categories=LABELS, threshold=50
    )


def test_it_is_read(release):
    stored = read_sparse(release)
    assert stored.cells.tolist() == [1, 4]
    assert stored.names(stored.cells) == [("1", "b"), ("3", "a")]
    assert stored.categories == LABELS
    assert stored.mechanism.n_cells == 6
    assert stored.guarantee == PureDP(epsilon=1)
    assert not stored.reproducible


def with_listed(release, **variables):
    release["noisy_counts"].dataset = xr.Dataset(
        {"cell": ("listed", np.array([1, 4])), "noisy_count": ("listed", np.array([500, 600]))} | variables
    )


LISTS = {
    "order": {"cell": ("listed", np.array([4, 1]))},
    "twice": {"cell": ("listed", np.array([1, 1]))},
    "outside": {"cell": ("listed", np.array([1, 6]))},
    "below": {"cell": ("listed", np.array([-1, 4]))},
    "wraps": {"cell": ("listed", np.array([2**63 + 1, 4], dtype=np.uint64))},
    "doubles": {"cell": ("listed", np.array([1.0, 4.0]))},
    "texts": {"cell": ("listed", np.array(["1", "4"]))},
    "missing": {"noisy_count": ("listed", np.array([np.nan, 600.0]))},
    "below the threshold": {"noisy_count": ("listed", np.array([49, 600]))},
    "too large": {"noisy_count": ("listed", np.array([2**53 + 1, 600]))},
    "matrix": {"noisy_count": (("listed", "more"), np.array([[500], [600]]))},
    "other length": {"noisy_count": ("others", np.array([500, 600, 700]))},
    "more": {"secret": ("listed", np.array([1, 2]))},
    "a coordinate more": {"zip": ("listed", np.array(["a", "b"]))},
    "scalar": {"noisy_count": ((), 500)},
}


@pytest.mark.parametrize("name", LISTS)
def test_wrong_lists(release, name):
    with_listed(release)
    read_sparse(release)
    with_listed(release, **LISTS[name])
    with pytest.raises(ReleaseError):
        read_sparse(release)


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("mechanism", "mechanism", "GeometricMechanism"),
        ("mechanism", "n_cells", "7"),
        ("mechanism", "n_cells", "1"),
        ("mechanism", "n_cells", "9" * 19),
        ("mechanism", "n_cells", "9" * 10**6),
        ("mechanism", "n_cells", "-6"),
        ("mechanism", "n_cells", "٦"),
        ("mechanism", "n_cells", "6.0"),
        ("mechanism", "n_cells", 6),
        ("mechanism", "threshold", 0),
        ("mechanism", "threshold", 1.5),
        ("mechanism", "threshold", 2**60),
        ("mechanism", "threshold", "50"),
        ("mechanism", "scale", float("nan")),
        ("mechanism", "scale", float("inf")),
        ("mechanism", "scale", 0.0),
        ("mechanism", "scale", -2.0),
        ("mechanism", "scale", 1e300),
        ("mechanism", "scale", 0.1),
        ("mechanism", "contribution", 0),
        ("mechanism", "contribution", 1.5),
        ("mechanism", "adjacency", "both"),
        ("mechanism", "arithmetic", 3),
        ("mechanism", "true_count", 500),
        ("privacy", "guarantee", "NoDP"),
        ("privacy", "epsilon", -1.0),
        ("privacy", "epsilon", "1"),
        ("privacy", "order", 3.0),
        ("privacy", "unit", 3),
        ("privacy", "pure_epsilon", "1"),
        ("privacy", "note", "true counts follow"),
        ("categories", "variables", "[]"),
        ("categories", "variables", '["zip"]'),
        ("categories", "variables", '["zip", "zip"]'),
        ("categories", "variables", '["zip", "ill", "zip"]'),
        ("categories", "variables", '["zip", "other"]'),
        ("categories", "variables", "zip"),
        ("categories", "variables", "[" * 100_000),
        ("categories", "counts", "1 2 3"),
        ("/", "counts", "1 2 3"),
        ("/", "counts", [1, 2, 3]),
        ("noisy_counts", "seen", "500 600"),
    ],
)
def test_wrong_attributes(release, group, name, value):
    (release if group == "/" else release[group]).attrs[name] = value
    with pytest.raises(ReleaseError):
        read_sparse(release)


@pytest.mark.parametrize("group", ["noisy_counts", "mechanism", "privacy"])
def test_missing_parts(release, group):
    for name in list(release[group].attrs):
        value = release[group].attrs.pop(name)
        with pytest.raises(ReleaseError):
            read_sparse(release)
        release[group].attrs[name] = value
    read_sparse(release)
    for name in list(release[group].data_vars):
        cut = release.copy()
        cut[group].dataset = cut[group].dataset.drop_vars(name)
        with pytest.raises(ReleaseError):
            read_sparse(cut)
    del release[group]
    with pytest.raises(ReleaseError):
        read_sparse(release)


def test_what_was_added(release):
    more = release.copy()
    more["true_counts"] = xr.DataTree(xr.Dataset({"count": ("cell", [500, 600])}))
    with pytest.raises(ReleaseError, match="no guarantee covers"):
        read_sparse(more)
    more = release.copy()
    more["mechanism/true_counts"] = xr.DataTree(xr.Dataset({"count": ("cell", [500, 600])}))
    with pytest.raises(ReleaseError, match="no guarantee covers"):
        read_sparse(more)
    # Found by attack: attributes of variables were not looked at.
    for path, name in (("noisy_counts", "cell"), ("noisy_counts", "noisy_count"), ("categories", "zip")):
        more = release.copy(deep=True)
        marked = more[path].to_dataset()
        marked[name].attrs["true_counts"] = "500, 600"
        more[path].dataset = marked
        with pytest.raises(ReleaseError, match="'true_counts' is not part"):
            read_sparse(more)
    for labels in ({"zip": ["1", "1", "3"], "ill": ["a", "b"]}, {"zip": ["1", "2"], "ill": ["a", "b"]}):
        more = release.copy()
        more["categories"].dataset = xr.Dataset(coords=labels, attrs={"variables": json.dumps(list(labels))})
        with pytest.raises(ReleaseError, match="labels"):
            read_sparse(more)
    for other in (None, 3, xr.Dataset(), xr.DataTree()):
        with pytest.raises(ReleaseError):
            read_sparse(other)
