"""Plans of private models: what they say, and as input of a release."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DirdpError, UnsupportedModelError

PURE = dirdp.PureDP(epsilon=0.2)
PRIVATE = {"adjacency": "add-remove"}
APART = {"disjoint": [["y"], ["z"]]}


def one_share(observed=(0,) * 100):
    with pm.Model() as model:
        pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=list(observed))
    return model


def three_outcomes():
    with pm.Model() as model:
        pm.Categorical("y", pm.Dirichlet("p", [1, 1, 1]), observed=[0] * 100)
    return model


def rates():
    with pm.Model() as model:
        pm.Poisson("y", pm.Gamma("rate", 2, 0.2, shape=3), observed=[3, 0, 5])
    return model


def test_a_plan_is_input_of_a_release(tmp_path):
    model, ledger = rates(), dirdp.Ledger(dirdp.PureDP(epsilon=1.0), **PRIVATE)
    chosen = dirdp.plan(PURE, model, any_model=True, count_variables=["y"])
    assert chosen.cells == {"y": 3}
    assert "geometric" in str(chosen)
    assert list(chosen.frame().index) == ["y"]
    private = dirdp.private_model(chosen, model, ledger=ledger)
    assert len(ledger.entries()) == 1
    assert [rv.name for rv in private.free_RVs] == ["rate"]
    with pytest.raises(ArgumentError, match="a plan of a model decides"):
        dirdp.private_model(chosen, model, count_variables=["y"])
    path = tmp_path / "plan.json"
    dirdp.save(chosen.tables, path)
    assert dirdp.private_model(path, model, count_variables=["y"]).observed_RVs[0].name == "y"


@pytest.mark.parametrize("other", [one_share([0] * 101), three_outcomes()])
def test_a_model_that_changed_is_refused_before_the_charge(other):
    chosen, ledger = dirdp.plan(PURE, one_share(), any_model=True), dirdp.Ledger(dirdp.PureDP(epsilon=1.0))
    with pytest.raises(UnsupportedModelError, match="has changed"):
        dirdp.private_model(chosen, other, ledger=ledger)
    assert not ledger.entries()


@pytest.mark.parametrize(
    ("said", "error", "match"),
    [
        ({"any_model": True, "strategy": "temper"}, TypeError, "strategy"),
        ({"any_model": False}, ArgumentError, "any_model=True"),
        ({"any_model": True, "max_cells": 1}, DirdpError, "max_cells=1"),
    ],
)
def test_what_is_said_wrongly(said, error, match):
    with pytest.raises(error, match=match):
        dirdp.plan(PURE, one_share(), **said)


def two_questions(first, second, *, reads_the_first=False):
    with pm.Model() as model:
        level, slope = pm.Normal("level"), pm.Normal("slope")
        pm.Bernoulli("y", logit_p=level, observed=np.array(first))
        other = slope * pm.Data("x", np.array(first)) if reads_the_first else slope
        pm.Bernoulli("z", logit_p=level + other, observed=np.array(second))
    return model


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("second", [[1, 0, 0, 1], [1, 0, 0, 1, 1], [1, 0]])
def test_different_people_of_any_number_are_released(second, adjacency):
    """Tables of one plan are made up and alike; where numbers agreed, they were taken for one table."""
    model = two_questions([0, 1, 1, 0], second)
    chosen = dirdp.plan(PURE, model, any_model=True, adjacency=adjacency, **APART)
    assert len(dirdp.private_model(chosen, model).observed_RVs) == 2


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (two_questions([0, 1, 1, 0], [0, 1, 1, 0]), {}),
        (two_questions([0, 1, 1, 0], [0, 1, 1, 0]), PRIVATE),
        (two_questions([0, 1, 1, 0], [1, 1, 0, 1], reads_the_first=True), {"public": ["x"]}),
        (two_questions([0, 1, 1, 0], [1, 1, 0, 1], reads_the_first=True), {"levels": {"x": 2}} | PRIVATE),
    ],
)
def test_the_same_records_are_no_different_people(model, said):
    with pytest.raises(UnsupportedModelError, match=r"hold the same data|the observations of a(nother)? variable"):
        dirdp.private_model(PURE, model, **APART, **said)
