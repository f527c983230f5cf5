"""Releases by urns whose number of steps is decided, and the pure epsilon of every exact Dirichlet draw."""

import math
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError, UnattainableError
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.privacy.urn import urn_cells
from pymc_dirdp.releases.interop import as_mechanism
from pymc_dirdp.releases.opened import opened

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
TARGETS = [dirdp.PureDP(epsilon=1.0), dirdp.ZeroCDP(rho=0.05), dirdp.TruncatedCDP(rho=0.05, omega=math.inf)]


def hair(n=592):
    with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
        p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
        pm.Multinomial("students", n=n, p=p, observed=[108, 286, 71, n - 465])
    return model


def groups():
    """Shares of three answers in each of two groups, which are data too."""
    with pm.Model(coords={"group": ["a", "b"], "answer": ["no", "maybe", "yes"]}) as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)), dims=("group", "answer"))
        rows = np.repeat([0, 1], [40, 60])
        pm.Categorical("x", p=p[rows], observed=(np.arange(100) * 7) % 5 % 3)
    return model


def failed(release):
    return [check.name for check in dirdp.verify(release).checks if not check.passed]


@pytest.fixture(scope="module")
def urn():
    return dirdp.sample(TARGETS[0], hair(), mechanism="dirichlet")


@pytest.fixture(scope="module")
def exact():
    return dirdp.sample(APPROX, hair())


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_whole_way(target, tmp_path):
    plan = dirdp.plan(target, hair(), mechanism="dirichlet")
    assert plan.composition.satisfies(target)
    dirdp.save(plan, tmp_path / "plan.json")
    again = dirdp.load(tmp_path / "plan.json")
    assert again == plan
    dirdp.sample(again, hair()).to_netcdf(tmp_path / "release.nc")
    release = xr.open_datatree(tmp_path / "release.nc")
    assert failed(release) == []
    mechanism = as_mechanism(release)
    assert mechanism.satisfies(target)
    group = release["mechanism/p"].attrs
    assert group["steps"] == group["urn_steps"] == plan.parts[0].mechanism.urn_steps
    report = " ".join(str(dirdp.report(release, full=True)).split())
    assert f"{group['urn_steps']} steps of an urn" in report
    # 64 steps: .2321 was stated without a word, and .2215 is true.
    assert "about: the urn is taken for a Dirichlet distribution" in " ".join(report.split())
    assert str(target) in report
    np.testing.assert_allclose(dirdp.estimate(release).tables["p"].share_means.sum(), 1)
    assert dirdp.analyse(release, draws=200, chains=1)["posterior"]["p"].shape == (1, 200, 4)


def test_only_the_exact_sampler_keeps_a_pure_guarantee():
    with pytest.raises(ArgumentError, match="sampler='exact'"):
        dirdp.sample(TARGETS[0], hair(), mechanism="dirichlet", sampler="fast")


@pytest.mark.parametrize("options", [{}, {"draws": 3}, {"adjacency": "add-remove", "n_records": 592}])
def test_an_exact_draw_states_the_pure_epsilon_that_comes_for_free(options):
    draws = options.get("draws", 1)
    release = dirdp.sample(dirdp.RenyiDP(order=3, epsilon=0.3), hair(), **options)
    mechanism, steps = as_mechanism_of_one(release), release["mechanism/p"].attrs["steps"]
    pure = urn_cells(mechanism.alpha, Contribution.of(1)).pure_epsilon(mechanism.r, steps, mechanism.adjacency)
    stated = release["privacy"].attrs["pure_epsilon"]
    assert stated == pytest.approx(draws * pure, rel=1e-12)
    assert stated >= draws * pure
    assert opened(release).pure_epsilon == stated
    assert failed(release) == []
    text = " ".join(str(dirdp.report(release, full=True)).split())
    assert "delta 0 epsilon" in text
    assert "for every single output" in text
    assert "except with a probability of at most 1e-06" in text


def as_mechanism_of_one(release):
    return opened(release).tables["p"].mechanism


def test_the_loss_of_rows_includes_the_row_that_is_joined():
    release = dirdp.sample(APPROX, groups())
    mechanism, steps = as_mechanism_of_one(release), release["mechanism/p"].attrs["steps"]
    one_row = urn_cells(mechanism.alpha[:1], Contribution.of(1)).pure_epsilon(mechanism.r, steps, "replace-one")
    assert release["privacy"].attrs["pure_epsilon"] > one_row


def test_no_pure_epsilon_is_stated_of_what_has_none():
    for release in (dirdp.sample(APPROX, hair(), sampler="fast"), dirdp.sample(APPROX, hair(), mechanism="gaussian")):
        assert "pure_epsilon" not in release["privacy"].attrs
        assert failed(release) == []
        assert "delta 0 " not in " ".join(str(dirdp.report(release, full=True)).split())


@pytest.mark.parametrize("change", [{"urn_steps": 1024}, {"urn_steps": None}, {"r": 0.2}])
def test_an_edited_plan_of_another_urn_is_refused(change):
    plan = dirdp.plan(TARGETS[0], hair(), mechanism="dirichlet")
    (part,) = plan.parts
    worse = replace(plan, parts=(replace(part, mechanism=replace(part.mechanism, **change)),))
    with pytest.raises(UnattainableError, match="does not keep"):
        dirdp.sample(worse, hair())


def test_auto_compares_the_urn_with_noise_by_what_is_inferred():
    choice = dirdp.plan(TARGETS[0], hair(), mechanism="auto").parts[0].choice
    errors = dict(choice.expected_kl)
    assert choice.best == "geometric"
    assert errors["dirichlet"] > errors["geometric"]


def test_a_ledger_knows_what_the_number_of_steps_bounds():
    """An exact draw at (1, 1e-6) also keeps a pure guarantee, so a pure limit may pay for it; a fast one does not."""
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=20.0))
    release = dirdp.sample(APPROX, hair(), ledger=ledger)
    (entry,) = ledger.entries()
    assert entry.cost["epsilon"] == pytest.approx(float(release["privacy"].attrs["pure_epsilon"]), rel=1e-9)
    assert 1 < entry.cost["epsilon"] < 10
    with pytest.raises(ArgumentError, match="does not follow"):
        dirdp.sample(APPROX, hair(), ledger=ledger, sampler="fast")
    assert len(ledger.entries()) == 1
    # Zero-concentrated privacy follows, too.
    other = dirdp.Ledger(dirdp.ZeroCDP(rho=1.0))
    dirdp.sample(APPROX, hair(), ledger=other)
    assert other.entries()[0].cost["rho"] < 0.1 * entry.cost["epsilon"] ** 2


def test_a_ledger_takes_the_guarantee_where_that_costs_less():
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=2.0, delta=1e-5), adaptive=False)
    dirdp.sample(APPROX, hair(), ledger=ledger)
    assert (ledger.entries()[0].cost["epsilon"], ledger.entries()[0].cost["delta"]) == (1.0, 1e-6)


def test_steps_that_are_changed_are_found(urn, exact, edited):
    """Fewer steps would guarantee more."""
    place = ("plan", "tables", 0, "parameters", "urn_steps")
    steps = urn["mechanism/p"].attrs["urn_steps"]
    for wrong in (steps // 2, 2 * steps, 0, -3, 2.5, "512", 10**30, None):
        with pytest.raises(ReleaseError):
            dirdp.verify(edited(urn, (place, wrong)))
    with pytest.raises(ReleaseError):
        dirdp.verify(edited(exact, (place, 100)))


def test_a_continuous_draw_is_not_said_to_be_of_an_urn(urn, edited):
    with pytest.raises(ReleaseError):
        dirdp.verify(edited(urn, (("sampler",), "fast")))
    with pytest.raises(ReleaseError, match="grid"):
        dirdp.verify(edited(urn, (("output", "p", "draws", 0), [0.2, 0.5, 0.1, 0.2])))
