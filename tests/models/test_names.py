"""Odd names: those that a release can hold work to the end, the others are refused before anything is spent."""

import datetime

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import UnsupportedModelError

TARGET = dirdp.RenyiDP(order=3, epsilon=0.2)


def model_of(name="p", dim="k", labels=("a", "b", "c"), seen="seen"):
    with pm.Model(coords={dim: labels}) as model:
        p = pm.Dirichlet(name, a=np.ones(3), dims=dim)
        pm.Multinomial(seen, n=6, p=p, observed=[1, 2, 3])
    return model


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"dim": "x/y"}, "x/y"),
        ({"dim": "table"}, "table"),
        ({"dim": "."}, "dim"),
        ({"name": "."}, "name of a group"),
        ({"name": ".."}, "name of a group"),
        ({"dim": "a\\b"}, "control characters"),
        ({"dim": "a\nb"}, "control characters"),
        ({"dim": "a\ud800"}, "control characters"),
        ({"name": "a\\b"}, "name of a group"),
        ({"name": "a\nb"}, "name of a group"),
        ({"name": "a\0b"}, "name of a group"),
        ({"name": "a\x1b[2Jb"}, "name of a group"),
        ({"seen": "a\nb"}, "control characters"),
        ({"labels": ["a\nb", "b", "c"]}, "labels .* control characters"),
        ({"labels": ["a\0", "b", "c"]}, "labels .* control characters"),
        ({"labels": ["a\ud800", "b", "c"]}, "labels .* control characters"),
        ({"labels": [(1, 2), (3, 4), (5, 6)]}, "tuples"),
        ({"labels": [2**64, 1, 2]}, "no file can hold"),
        ({"labels": [datetime.date(2020, 1, day) for day in (1, 2, 3)]}, "no file can hold"),
    ],
)
def test_what_no_release_can_hold_is_refused_before_it_is_paid_for(options, word):
    ledger = dirdp.Ledger(dirdp.RenyiDP(order=3, epsilon=1.0))
    with pytest.raises(UnsupportedModelError, match=word):
        dirdp.sample(TARGET, model_of(**options), ledger=ledger)
    assert ledger.entries() == ()


@pytest.mark.parametrize(
    "labels", [np.array(["2020", "2021", "2022"], "M8[ns]"), [1, 2.5, 3], [True, False, 2], ["a b", "ä\u200b", "a/b"]]
)
def test_other_labels_are_in_the_file_as_they_were(labels, tmp_path):
    release = dirdp.sample(TARGET, model_of(labels=labels))
    release.to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf") as back:
        np.testing.assert_array_equal(back["posterior"]["k"].values, np.asarray(labels))


def test_a_dim_may_be_called_sample():
    release = dirdp.sample(TARGET, model_of(dim="sample"))
    assert release["posterior"]["p"].dims == ("chain", "draw", "sample")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["a b", "größe", "p::q", "r", "alpha", "x.y", "-", "posterior", "mechanism"])
@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
def test_other_names_work_to_the_end(name, mechanism, tmp_path):
    release = dirdp.sample(TARGET, model_of(name=name, dim=f"{name} dim"), mechanism=mechanism)
    assert name in str(dirdp.report(release, full=True))
    release.to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    back = xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf")
    np.testing.assert_array_equal(back["posterior"][name].values, release["posterior"][name].values)


@pytest.mark.parametrize("name", ["chain", "draw"])
def test_a_table_is_not_called_as_the_draws_are(name):
    """It was charged for, and the draws of the table were not in the release."""
    with pm.Model() as model:
        pm.Multinomial("y", n=6, p=pm.Dirichlet(name, np.ones(3)), observed=[1, 2, 3])
    with pytest.raises(UnsupportedModelError, match="Rename the variable: not chain or draw"):
        dirdp.plan(TARGET, model)


def test_names_that_a_release_makes_itself_are_taken():
    with pm.Model(coords={"q_dim_0": list("abc")}) as model:
        pm.Multinomial("y", n=6, p=pm.Dirichlet("p", np.ones(3), dims="q_dim_0"), observed=[1, 2, 3])
        pm.Multinomial("z", n=6, p=pm.Dirichlet("q", np.ones(2)), observed=[3, 3])
    with pytest.raises(UnsupportedModelError, match="'q_dim_0' of 'p' is also that of an axis of 'q'"):
        dirdp.plan(TARGET, model)
    with pm.Model(coords={"p_outcome": list("ab")}) as model:
        pm.Binomial("y", n=9, p=pm.Beta("p", 1, 1, dims="p_outcome"), observed=[4, 5])
    with pytest.raises(UnsupportedModelError, match="that of success and failure"):
        dirdp.plan(TARGET, model)


def test_labels_that_are_no_number_are_refused():
    """Nobody could read the release again: its labels are not those of its mechanism."""
    with pm.Model(coords={"k": [1.0, np.nan, 3.0]}) as model:
        pm.Multinomial("y", n=6, p=pm.Dirichlet("p", np.ones(3), dims="k"), observed=[1, 2, 3])
    with pytest.raises(UnsupportedModelError, match="not all equal to themselves"):
        dirdp.plan(TARGET, model)
