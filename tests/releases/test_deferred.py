"""Shares that follow from noisy counts are computed when somebody looks at them, and not before."""

import copy
import pickle

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.releases import opened as opening
from pymc_dirdp.releases.cache import Cache
from pymc_dirdp.releases.deferred import is_untouched
from pymc_dirdp.releases.opened import from_text, open_release, text_of
from pymc_dirdp.releases.view import view
from tests.planned import planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


@pytest.fixture
def calls(monkeypatch):
    """How often shares were drawn; nothing was opened before."""
    monkeypatch.setattr(opening, "_OPENED", Cache(2**28))
    really, calls = opening.draw_shares, []
    monkeypatch.setattr(opening, "draw_shares", lambda *args: calls.append(1) or really(*args))
    return calls


@pytest.fixture
def release(calls):
    with pm.Model(coords={"hair": ["black", "brown", "red"]}):
        p = pm.Dirichlet("p", a=np.ones(3), dims="hair")
        pm.Multinomial("x", n=60, p=p, observed=[30, 20, 10])
        return planned_sample(APPROX, mechanism="geometric", released_draws=2)


def variable(tree):
    return tree["posterior"].to_dataset().variables["p"]


def test_what_reads_the_text_draws_nothing(release, calls, tmp_path):
    path = tmp_path / "r.json"
    assert dirdp.verify(release)
    dirdp.save(release, path)
    loaded = dirdp.load(path)
    assert dirdp.verify(loaded)
    assert dirdp.verify(path)
    for other in (loaded.copy(), loaded.copy(deep=True), copy.copy(loaded), copy.deepcopy(loaded)):
        assert dirdp.verify(other)
        assert other["posterior"]["p"].shape == (1, 2, 3)
        assert other["posterior"]["p"].dtype == np.float64
        assert other["posterior"]["p"].dims == ("chain", "draw", "hair")
        assert is_untouched(variable(other), text_of(release))
    assert calls == []


LOOKS = {
    "print": lambda tree, _: repr(tree["posterior"]["p"]),
    "values": lambda tree, _: tree["posterior"]["p"].values,
    "array": lambda tree, _: np.asarray(tree["posterior"]["p"]),
    "arithmetic": lambda tree, _: tree["posterior"]["p"] + 1,
    "sum": lambda tree, _: tree["posterior"]["p"].sum(),
    "sel": lambda tree, _: tree["posterior"]["p"].sel(hair="red").values,
    "isel": lambda tree, _: tree["posterior"]["p"].isel(draw=1).values,
    "netcdf": lambda tree, folder: tree.to_netcdf(folder / "r.nc", engine="h5netcdf"),
    "pickle": lambda tree, _: pickle.dumps(tree),
    "identical": lambda tree, _: tree.identical(tree.copy(deep=True)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_who_looks_finds_what_follows_from_the_text(release, calls, tmp_path, look):
    LOOKS[look](release, tmp_path)
    assert calls == [1]
    right = from_text(text_of(release)).draws["p"]
    np.testing.assert_array_equal(release["posterior"]["p"].values[0], right)
    assert dirdp.verify(release)
    # Drawn once for all trees of the release.
    np.testing.assert_array_equal(view(open_release(release))["posterior"]["p"].values[0], right)
    assert calls == [1]


def test_a_pickle_and_a_netcdf_file_hold_the_numbers(release, calls, tmp_path):
    right = from_text(text_of(release)).draws["p"]
    back = pickle.loads(pickle.dumps(release))
    np.testing.assert_array_equal(back["posterior"]["p"].values[0], right)
    assert b"Deferred" not in pickle.dumps(release)
    assert back.identical(release)
    release.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "r.nc", engine="h5netcdf") as stored:
        np.testing.assert_array_equal(stored["posterior"]["p"].values[0], right)
        assert dirdp.verify(stored)


def test_an_edit_in_place_stays_and_is_found(release, calls, tmp_path):
    edited = release.copy(deep=True)
    edited["posterior"]["p"].values[0, 0, 0] = 0.5
    assert edited["posterior"]["p"].values[0, 0, 0] == 0.5
    copied = edited.copy(deep=True)
    for tree in (edited, copied, copy.deepcopy(edited), pickle.loads(pickle.dumps(edited))):
        assert tree["posterior"]["p"].values[0, 0, 0] == 0.5
        assert [check.name for check in dirdp.verify(tree).checks if not check.passed] == ["view"]
    copied["posterior"]["p"].values[0, 0, 0] = 0.25
    assert edited["posterior"]["p"].values[0, 0, 0] == 0.5
    # Nobody else sees it, and nothing is read of it.
    assert dirdp.verify(release)
    assert from_text(text_of(edited)).draws["p"][0, 0] != 0.5
    assert str(dirdp.estimate(edited)) == str(dirdp.estimate(release))
    other = release.copy(deep=True)
    other["posterior"]["p"][{"draw": 1}] = 1 / 3
    assert (other["posterior"]["p"].values[0, 1] == 1 / 3).all()
    assert not dirdp.verify(other)


def test_an_edit_in_place_of_a_noisy_count_changes_no_inference(release):
    """It did, in all trees of the release: they shared the array with what had been opened."""
    before, noisy = str(dirdp.estimate(release)), release["mechanism/p"]["noisy_counts"]
    published = open_release(release).tables["p"].published.copy()
    noisy.values[:] = [0, 0, 60]
    assert not dirdp.verify(release)
    np.testing.assert_array_equal(open_release(release).tables["p"].published, published)
    assert str(dirdp.estimate(release)) == before
    assert dirdp.verify(view(open_release(release)))


def test_the_shares_of_another_release_are_not_taken_for_its_own(release, calls):
    """What nobody has looked at follows from a text; it has to be this one."""
    with pm.Model(coords={"hair": ["black", "brown", "red"]}):
        p = pm.Dirichlet("p", a=np.ones(3), dims="hair")
        # Far from the first ones: with noise this narrow near ones have the same noisy counts once in a hundred times.
        pm.Multinomial("x", n=60, p=p, observed=[0, 0, 60])
        other = planned_sample(APPROX, mechanism="geometric", released_draws=2)
    swapped = release.copy(deep=True)
    swapped["release"] = other["release"].copy()
    assert not is_untouched(variable(swapped), text_of(swapped))
    found = dirdp.verify(swapped)
    assert [check.name for check in found.checks if not check.passed] == ["view"]
