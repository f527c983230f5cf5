"""The numbers that travel with a release, where the number of records is private."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.releases.axes import cell_dims, divided, free_dim_name, joined

TARGET = dirdp.RenyiDP(order=3, epsilon=0.2)


@pytest.mark.parametrize("strategy", ["temper", "inflate"])
def test_nothing_is_said_of_errors_where_no_number_of_records_is_planned_for(strategy):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("y", n=9, p=p, observed=[4, 4, 1])
    release = dirdp.sample(TARGET, model, adjacency="add-remove", mechanism=Dirichlet(strategy=strategy))
    utility = release["utility"].to_dataset()
    for name in ("grid_weight", "grid_variance", "n_records", "effective_records", "expected_kl_posterior"):
        assert np.all(np.isnan(utility[name]))


def test_a_dim_has_another_name_than_a_variable_of_the_group():
    assert free_dim_name("hair") == "hair"
    for taken in ("prior", "noisy_counts", "noisy_counts_0_1"):
        assert free_dim_name(taken) != taken


def test_both_outcomes_of_a_beta_are_an_axis():
    with pm.Model(coords={"group": ["g", "h"]}) as model:
        rate = pm.Beta("rate", 1, 1, dims="group")
        pm.Binomial("wins", n=[3, 4], p=rate, observed=[1, 2], dims="group")
    (table,) = dirdp.tables(model)
    assert cell_dims(table) == ["group", "rate_outcome"]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("sex and left", ["f and no", "f and yes", "m and no"]),
        ("sex and left", ["f and no", "m and no", "f and yes", "m and yes"]),
        ("sex and left", ["f", "m"]),
        ("sex", ["f and no", "f and yes"]),
        ("sex and sex", ["f and no", "f and yes"]),
        ("sex and left", [1, 2]),
    ],
)
def test_an_axis_that_is_no_cross_stays_one(name, labels):
    assert divided(name, labels) == [(name, labels)]


@pytest.mark.parametrize("labels", [["a", "b and c"], ["a & b", "c and d"], ["x"], [1, 2]])
def test_variables_that_share_an_axis_are_divided_again(labels):
    name, axis = joined({"one": labels, "two": ["u", "v"], "three": ["w"]})
    texts = [str(label) for label in labels]
    assert divided(name, axis) == [("one", texts), ("two", ["u", "v"]), ("three", ["w"])]


def test_variables_that_would_be_mistaken_have_no_axis():
    assert joined({"one": ["a and b & c | d", "e"], "two": ["f", "g"]}) is None
    assert joined({"one": ["a", "b"]}) == ("one", ["a", "b"])
