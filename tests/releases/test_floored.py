"""Releases by floored draws: plan, file, report, inference, and what an editor of a file might try."""

import sys
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.RepeatedReleaseWarning")
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
COUNTS = np.array([108, 286, 71, 127])


def hair():
    with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
        p = pm.Dirichlet("p", a=np.ones(4), dims="hair")
        pm.Multinomial("students", n=592, p=p, observed=COUNTS)
    return model


def share():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Binomial("x", n=592, p=p, observed=286)
    return model


def rows():
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)))
        pm.Categorical("x", p=p[np.repeat([0, 1], 200)], observed=np.resize([0, 0, 1, 2], 400))
    return model


@lru_cache(maxsize=1)
def released():
    """One release for all tests that do not change it."""
    return dirdp.sample(TARGET, hair(), mechanism="floored")


@pytest.mark.parametrize("engine", ["netcdf", "zarr"])
def test_a_release_survives_a_file(engine, tmp_path):
    release = released()
    path = tmp_path / "release"
    if engine == "netcdf":
        release.to_netcdf(path, engine="h5netcdf")
        found = xr.open_datatree(path, engine="h5netcdf")
    else:
        release.to_zarr(path, zarr_format=2)
        found = xr.open_datatree(path, engine="zarr")
    assert dirdp.verify(found).follows
    assert str(dirdp.report(found, full=True)) == str(dirdp.report(release, full=True))
    assert found["mechanism/p"]["intensities"].dims == ("draw", "hair")
    group = found["mechanism/p"]
    g = group["intensities"].values - group.attrs["shift"] * group["floor"].item()
    np.testing.assert_allclose(found["posterior"]["p"].values[0], g / g.sum(axis=-1, keepdims=True), rtol=1e-12)
    found.close()


@pytest.mark.parametrize(
    ("build", "draws"),
    [
        (share, 1),
        *(
            # Several draws take a minute.
            pytest.param(build, draws, marks=pytest.mark.slow if draws > 1 else pytest.mark.thorough)
            for build, draws in [(hair, 1), (hair, 3), (share, 3), (rows, 1), (rows, 3)]
        ),
    ],
)
def test_everybody_infers_from_a_release(build, draws):
    ledger = dirdp.Ledger(TARGET)
    release = dirdp.sample(TARGET, build(), mechanism="floored", draws=draws, ledger=ledger)
    assert dirdp.verify(release).follows
    assert len(ledger.entries()) == 1
    analysed = dirdp.analyse(release, draws=500, chains=1, random_seed=1, progressbar=False)
    estimated = dirdp.estimate(release, progressbar=False).frame()
    assert np.isfinite(estimated.select_dtypes("number").to_numpy()).all()
    mean = analysed["posterior"]["p"].mean(("chain", "draw")).values
    truth = {hair: COUNTS / 592, share: 286 / 592, rows: np.array([[0.5, 0.25, 0.25]] * 2)}[build]
    assert np.abs(mean - truth).max() < 0.15
    assert "FlooredDirichletMechanism" in str(dirdp.report(release, full=True))
    assert "analyse" in str(dirdp.statement(release))


@pytest.mark.thorough
def test_a_private_number_of_records_is_estimated():
    options = {"mechanism": "floored", "adjacency": "add-remove", "n_records": 600}
    release = dirdp.sample(TARGET, hair(), **options)
    assert dirdp.verify(release).follows
    counts = dirdp.estimate(release, n_prior={"p": 1200}, progressbar=False).frame()["count"].sum()
    assert 300 < counts < 900


@pytest.mark.thorough
def test_zero_concentrated_privacy_holds_by_a_draw():
    target = dirdp.ZeroCDP(rho=0.05)
    for mechanism in ("floored", "dirichlet"):
        assert dirdp.verify(dirdp.sample(target, hair(), mechanism=mechanism)).follows
    # A draw without a floor keeps it as the counts of an urn, further from the frequencies.
    table = {"prior": np.ones(4), "n_records": 592, "objective": "estimate"}
    floored, urn = (dirdp.expected_error(target, **table, mechanism=kind) for kind in ("floored", "dirichlet"))
    assert floored < 0.5 * urn


def test_a_weaker_floor_does_not_keep_the_guarantee(edited):
    found = dirdp.verify(edited(released(), (("plan", "tables", 0, "parameters", "r"), lambda r: r * 1.5)))
    assert not found.follows
    assert "does not follow" in found.headline


def test_a_missing_package_is_named_before_anything_is_spent(monkeypatch):
    """Found by an attack: the ledger was charged, and there was no release."""
    plan, ledger = dirdp.plan(TARGET, hair(), mechanism="floored"), dirdp.Ledger(TARGET)
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(ImportError, match="pip install python-flint"):
        dirdp.sample(plan, hair(), ledger=ledger)
    assert not ledger.entries()


def test_readers_need_no_further_package(monkeypatch):
    release = released()
    monkeypatch.setitem(sys.modules, "flint", None)
    assert dirdp.verify(release).follows
    assert np.isfinite(dirdp.estimate(release, progressbar=False).frame()["count"]).all()


def test_a_diagnosis_leaves_out_what_is_about_dirichlet_draws():
    model = hair()
    release = dirdp.sample(TARGET, model, mechanism="floored")
    diagnosis = dirdp.diagnose(release, model)
    assert "realised" not in diagnosis.children
    assert "confidential" in str(dirdp.report(diagnosis)).lower()


def test_a_row_of_two_categories_rests_on_its_public_number(tmp_path):
    plan = dirdp.plan(TARGET, share(), mechanism="floored")
    assert plan.parts[0].mechanism.n_records == 592
    dirdp.save(plan, tmp_path / "plan.json")
    again = dirdp.load(tmp_path / "plan.json")
    assert again.digest == plan.digest
    assert again.parts[0].mechanism == plan.parts[0].mechanism
    release = dirdp.sample(again, model=share())
    assert release["mechanism/p"].attrs["public_records"] == 592
    assert dirdp.verify(release)
    assert "592" in str(dirdp.verify(release).full)
    release["mechanism/p"].attrs["public_records"] = 100_000
    assert not dirdp.verify(release)


@pytest.mark.thorough
def test_a_pure_guarantee_all_the_way(tmp_path):
    target = dirdp.PureDP(epsilon=2.0)
    plan = dirdp.plan(target, hair(), mechanism="floored")
    mechanism = plan.parts[0].mechanism
    assert mechanism.satisfies(target)
    again = dirdp.plan(target, hair(), mechanism="floored")
    assert again.parts[0].mechanism == mechanism
    release = dirdp.sample(plan, hair())
    intensities = release["mechanism/p"]["intensities"].values
    assert mechanism.floor <= intensities.min() <= intensities.max() <= mechanism.ceiling * (1 + 1e-9)
    release.to_netcdf(tmp_path / "release", engine="h5netcdf")
    found = xr.open_datatree(tmp_path / "release", engine="h5netcdf")
    assert dirdp.verify(found).follows
    text = " ".join(str(dirdp.report(found, full=True)).split())
    assert f"all below {mechanism.ceiling:.4g}" in text
    assert "epsilon 2, for every single output" in text
    assert float(found["privacy"].attrs["pure_epsilon"]) <= 2.0
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=3.0))
    dirdp.sample(plan, hair(), ledger=ledger, sampler="fast")
    assert ledger.entries()[0].cost == {"epsilon": pytest.approx(2.0, rel=1e-6)}
    # A higher ceiling in the file keeps less.
    other = found.copy(deep=True)
    other["mechanism/p"].attrs["ceiling"] *= 2
    assert not dirdp.verify(other)


def test_the_other_mechanisms_are_compared_to_the_digit():
    release = dirdp.sample(TARGET, hair())
    edited = release.copy(deep=True)
    edited["privacy"]["delta"].values[6] *= 1.001
    assert not dirdp.verify(edited).follows


def test_numbers_of_rows_are_data_of_a_model_so_no_plan_rests_on_them(tmp_path):
    """A plan that was edited so was released, and charged, and nobody could read the release."""
    with pm.Model() as model:
        rate = pm.Beta("rate", 1, 1, shape=3)
        pm.Binomial("admitted", n=[93, 58, 91], p=rate, observed=[60, 37, 32])
    plan = dirdp.plan(TARGET, model, mechanism="floored")
    mechanism = dirdp.planning.calibrate_floored(
        TARGET, prior=np.ones((3, 2)), n_records=[93, 58, 91], public_totals=True
    )
    assert mechanism.assumed_records == plan.parts[0].n_records
    assert mechanism.r > plan.parts[0].mechanism.r
    edited = replace(plan, parts=(replace(plan.parts[0], mechanism=mechanism),))
    ledger = dirdp.Ledger(TARGET)
    with pytest.raises(ArgumentError, match="takes the number of records of each row as public") as raised:
        dirdp.sample(edited, model, ledger=ledger)
    assert not ledger.entries()
    dirdp.save(edited, tmp_path / "plan.json")
    with pytest.raises(ArgumentError, match="takes the number of records of each row as public"):
        dirdp.load(tmp_path / "plan.json")
    # The way out.
    assert "MechanismOutput(mechanism, output, prior=prior)" in str(raised.value)
    output, prior = mechanism.release([[60, 33], [37, 21], [32, 59]]), np.ones((3, 2))
    found = dirdp.estimate(dirdp.mechanisms.MechanismOutput(mechanism, output, prior=prior)).frame()
    assert len(found) == 6


def test_an_edited_release_is_refused(edited):
    release, place = released(), ("output", "p", "intensities")
    least = float(release["mechanism/p"]["intensities"].min())
    floor = ("plan", "tables", 0, "parameters", "floor")
    for edit in (
        ((*place, 0, 0), lambda one: one * 1.7),
        ((*place, 0, 0), lambda one: -one),
        (place, lambda draws: draws[0]),
        (floor, least * 1.01),
        (floor, 1e-9),
    ):
        with pytest.raises(ReleaseError):
            dirdp.verify(edited(release, edit))
