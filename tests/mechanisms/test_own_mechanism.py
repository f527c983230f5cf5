"""A mechanism of one's own is one class: it is planned, released, reported, audited, compared and read back."""

import runpy
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import registered

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_mechanism.py"
BinomialMechanism = runpy.run_path(str(EXAMPLE))["BinomialMechanism"]

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
CALIBRATED = BinomialMechanism.for_guarantee(TARGET, prior=np.ones(4))


@pytest.fixture
def hair():
    with registered(BinomialMechanism), pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as hair:
        p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
        pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
        yield hair


def test_a_model_is_planned_released_reported_and_read_back(hair, tmp_path):
    """Its curve is that of all neighbours in test_contract.py."""
    assert not BinomialMechanism(np.ones(4), CALIBRATED.coins - 2).satisfies(TARGET)
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 80
    plan = dirdp.plan(TARGET, hair, mechanism="binomial", released_draws=3)
    assert plan.parts[0].mechanism == CALIBRATED
    release = dirdp.sample(plan, hair)
    assert release.posterior["p"].shape == (1, 3, 4)
    assert "Binomial noise of standard deviation" in str(dirdp.report(release, full=True))
    release.to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    again = xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf")
    assert dirdp.verify(again).follows
    assert dirdp.report(again, full=True) == dirdp.report(release, full=True)


def test_an_audit_refutes_what_is_false_and_nothing_else():
    options = {"n": 10_000, "random_seed": 1}
    assert dirdp.audit(CALIBRATED, **options).verdict == "consistent"
    weaker = BinomialMechanism(np.ones(4), CALIBRATED.coins / 16)
    assert dirdp.audit(weaker, claim=TARGET, **options).verdict == "refuted"
    assert dirdp.auditing.check_curve(CALIBRATED).verdict == "consistent"


def test_it_is_compared_with_the_others_and_may_be_chosen(hair):
    comparison = dirdp.compare(TARGET, prior=np.ones(4), n_records=592, simulations=10)
    assert {"Binomial, clip", "Geometric, clip"} <= {score.mechanism for score in comparison.scores}
    plan = dirdp.plan(TARGET, hair, mechanism="auto")
    assert "binomial" in dict(plan.parts[0].choice.expected_kl)
