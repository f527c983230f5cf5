"""Plans of private models: what they say, and as input of a release."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError

PURE = dirdp.PureDP(epsilon=0.2)


def one_share(observed=(0,) * 100):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("y", p, observed=list(observed))
    return model


def rates(observed=(3, 0, 5)):
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.2, shape=3)
        pm.Poisson("y", rate, observed=list(observed))
    return model


def test_a_plan_is_input_of_a_release():
    model = rates()
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0), adjacency="add-remove")
    chosen = dirdp.plan(PURE, model, any_model=True, count_variables=["y"])
    assert chosen.cells == {"y": 3}
    assert "geometric" in str(chosen)
    assert list(chosen.frame().index) == ["y"]
    opened = len(ledger.entries())
    private = dirdp.private_model(chosen, model, ledger=ledger)
    assert len(ledger.entries()) == opened + 1
    assert [rv.name for rv in private.free_RVs] == ["rate"]
    with pytest.raises(ArgumentError, match="a plan of a model decides"):
        dirdp.private_model(chosen, model, count_variables=["y"])


def test_the_tables_of_a_plan_are_a_file(tmp_path):
    model, path = rates(), tmp_path / "plan.json"
    dirdp.save(dirdp.plan(PURE, model, any_model=True, count_variables=["y"]).tables, path)
    private = dirdp.private_model(path, model, count_variables=["y"])
    assert private.observed_RVs[0].name == "y"
    with pytest.raises(UnsupportedModelError, match="has changed"):
        dirdp.private_model(path, one_share())


def test_a_model_that_changed_is_refused_before_the_charge():
    chosen = dirdp.plan(PURE, one_share(), any_model=True)
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0))
    opened = ledger.entries()
    with pytest.raises(UnsupportedModelError, match="has changed"):
        dirdp.private_model(chosen, one_share([0] * 101), ledger=ledger)
    with pm.Model() as other:
        pm.Categorical("y", pm.Dirichlet("p", [1, 1, 1]), observed=[0] * 100)
    with pytest.raises(UnsupportedModelError, match="has changed"):
        dirdp.private_model(chosen, other, ledger=ledger)
    assert ledger.entries() == opened


def test_no_number_of_a_plan_depends_on_records():
    plans = [dirdp.plan(PURE, one_share(y), any_model=True) for y in ([0] * 100, [1] * 100)]
    assert plans[0].tables == plans[1].tables
    assert str(plans[0]) == str(plans[1])


def test_what_is_said_wrongly():
    with pytest.raises(TypeError, match="strategy"):
        dirdp.plan(PURE, one_share(), any_model=True, strategy="temper")
    with pytest.raises(ArgumentError, match="any_model=True"):
        dirdp.plan(PURE, one_share(), any_model=False)
    with pytest.raises(TypeError, match="simulations"):
        dirdp.plan(PURE, one_share(), any_model=True, simulations=3)


# Whether groups of `disjoint` hold different people is seen from the records, and not from how many there are.


def two_questions(first, second, *, reads_the_first=False):
    with pm.Model() as model:
        level, slope = pm.Normal("level"), pm.Normal("slope")
        pm.Bernoulli("y", logit_p=level, observed=np.array(first))
        other = slope * pm.Data("x", np.array(first)) if reads_the_first else slope
        pm.Bernoulli("z", logit_p=level + other, observed=np.array(second))
    return model


APART = {"disjoint": [["y"], ["z"]]}


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("second", [[1, 0, 0, 1], [1, 0, 0, 1, 1], [1, 0]])
def test_different_people_of_any_number_are_released(second, adjacency):
    """Tables of one plan are made up and alike; where numbers agreed, they were taken for one table."""
    model = two_questions([0, 1, 1, 0], second)
    chosen = dirdp.plan(PURE, model, any_model=True, adjacency=adjacency, **APART)
    assert len(dirdp.private_model(chosen, model).observed_RVs) == 2


def test_tables_that_agree_by_chance_are_released():
    """As many answered yes."""
    model = two_questions([0, 1, 1, 0], [1, 0, 0, 1])
    assert len(dirdp.private_model(PURE, model, **APART).observed_RVs) == 2


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (two_questions([0, 1, 1, 0], [0, 1, 1, 0]), {}),
        (two_questions([0, 1, 1, 0], [0, 1, 1, 0]), {"adjacency": "add-remove"}),
        (two_questions([0, 1, 1, 0], [1, 1, 0, 1], reads_the_first=True), {"public": ["x"]}),
        (two_questions([0, 1, 1, 0], [1, 1, 0, 1], reads_the_first=True), {"levels": {"x": 2}}),
        (
            two_questions([0, 1, 1, 0], [1, 1, 0, 1], reads_the_first=True),
            {"levels": {"x": 2}, "adjacency": "add-remove"},
        ),
    ],
)
def test_the_same_records_are_no_different_people(model, said):
    with pytest.raises(
        UnsupportedModelError,
        match=r"hold the same data|the observations of another variable|the observations of a variable",
    ):
        dirdp.private_model(PURE, model, **APART, **said)


def test_a_plan_has_the_records_of_a_cell_if_they_are_few():
    few, many = (str(dirdp.plan(PURE, one_share([0] * n), any_model=True)) for n in (8, 100))
    assert "'y' has 4 records in a cell on average" in few
    assert "on average" not in many
