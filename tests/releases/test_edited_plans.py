"""A plan may come from a file: what was edited in it is found before anything is charged or drawn."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.privacy.curves import LossCurves

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def model():
    with pm.Model() as built:
        p = pm.Dirichlet("p", a=np.ones(3))
        pm.Multinomial("x", n=50, p=p, observed=[30, 12, 8])
        rate = pm.Beta("rate", 1, 1)
        pm.Binomial("z", n=50, p=rate, observed=5)
    return built


@pytest.fixture(scope="module")
def plan(model):
    return dirdp.plan(TARGET, model, min_count=2)


def refused(plan, changes, model, error, match):
    """Nowhere: a plan that is made so is none, and what comes from elsewhere is compared with the model."""
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=5.0, delta=1e-4))
    with pytest.raises(error, match=match):
        dirdp.sample(pickle.loads(pickle.dumps(replace(plan, **changes))), model, ledger=ledger)
    # Nor if it was changed behind its back.
    edited = copy.copy(plan)
    for name, value in changes.items():
        object.__setattr__(edited, name, value)
    with pytest.raises(error, match=match):
        dirdp.sample(pickle.loads(pickle.dumps(edited)), model, ledger=ledger)
    assert ledger.entries() == ()
    assert ledger._verified().startswith("0:")


@pytest.mark.parametrize("draws", [0, -1, 1.5, True, "1"])
def test_draws_that_are_none(model, plan, draws):
    """Found by attack: -1 draws lose less than nothing, and were charged as that."""
    refused(plan, {"released_draws": draws}, model, dirdp.errors.ArgumentError, "draws")


def test_more_draws_than_were_planned(model, plan):
    refused(plan, {"released_draws": 2}, model, dirdp.errors.UnattainableError, "does not satisfy")


def test_assumptions_that_were_taken_out(model, plan):
    """Found by attack: the release and the ledger would have guaranteed without them."""
    refused(plan, {"min_count": 0.0}, model, dirdp.errors.ArgumentError, "assume")
    apart = dirdp.plan(TARGET, model, disjoint=[["p"], ["rate"]])
    assert apart.assumptions
    together = {"groups": (("p", "rate"),)}
    refused(apart, together, model, dirdp.errors.UnsupportedModelError, "not the one that was planned")
    with pytest.raises(TypeError, match="assumptions"):
        replace(apart, assumptions=())  # They follow from what the plan states.


def test_curves_that_a_mechanism_remembers_are_not_believed(model, plan):
    """Found by attack: a plan keeps what its mechanisms have computed, which may be another's."""
    original = plan.parts[0].mechanism
    assert original.epsilon(1e-6) < 1
    stronger = replace(original, r=5.0)
    stronger.__dict__["_curves"] = original.__dict__["_curves"]
    assert stronger.epsilon(1e-6) == original.epsilon(1e-6)
    parts = (replace(plan.parts[0], mechanism=stronger), plan.parts[1])
    with pytest.raises(dirdp.errors.UnattainableError, match="does not satisfy"):
        dirdp.sample(replace(plan, parts=parts), model)
    assert copy.copy(stronger).epsilon(1e-6) > 1
    refused(plan, {"parts": parts}, model, dirdp.errors.UnattainableError, "does not satisfy")


def test_numbers_and_words_that_no_plan_has(model, plan):
    original = replace(plan.parts[0].mechanism)
    object.__setattr__(original, "r", -1.0)
    parts = (replace(plan.parts[0], mechanism=original), plan.parts[1])
    refused(plan, {"parts": parts}, model, dirdp.errors.ArgumentError, "r")
    refused(plan, {"strategy": "best"}, model, dirdp.errors.ArgumentError, "strategy")
    refused(plan, {"objective": "fame"}, model, dirdp.errors.ArgumentError, "objective")
    refused(plan, {"others": True}, model, dirdp.errors.UnsupportedModelError, "not the one that was planned")
    stated = replace(plan.unit_options, adjacency="add-remove")
    refused(plan, {"unit_options": stated}, model, dirdp.errors.ArgumentError, "what its mechanisms assume")


def test_a_release_names_the_version_that_drew_it(model, plan):
    release = dirdp.sample(replace(plan, library_version="0.0.1"), model)
    assert release.attrs["inference_library_version"] == plan.library_version


def test_a_ledger_records_no_loss_below_zero():
    """Found by attack: it was written, and made the ledger unreadable."""

    class Gains(LossCurves):
        def _renyi(self, order):
            return -0.5

        def _rho(self, omega):
            return -0.5

    class Strange(dirdp.mechanisms.DirichletMechanism):
        _curves = Gains()

        def satisfies(self, guarantee):
            return True

    for limit in (dirdp.RenyiDP(order=2, epsilon=1), dirdp.TruncatedCDP(rho=1, omega=4)):
        ledger = dirdp.Ledger(limit)
        with pytest.raises(dirdp.errors.ArgumentError, match="below 0"):
            ledger.spend(limit, what="p", mechanism=Strange([1, 1], 0.1))
        assert ledger.entries() == ()
