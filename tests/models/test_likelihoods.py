"""Markov chains of pymc-extras: the same tables, counts, questions and releases as those of chains by codes."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, UnsupportedModelError
from pymc_dirdp.models.likelihoods import unroll_chains
from pymc_dirdp.models.tables import root_model, tables
from tests.planned import counts_of

from .markov import DiscreteMarkovChain, categorical, markov_chain

TARGET = dirdp.ApproxDP(epsilon=3, delta=1e-3)
PATHS = np.random.default_rng(4).integers(0, 3, (30, 6))
FLAT = np.full(3, 1 / 3)


def flat(*shape, name="P"):
    return pm.Dirichlet(name, np.ones(shape))


def built(build, *args, **kwargs):
    with pm.Model(coords={"person": range(30), "time": range(6)}) as model:
        build(*args, **kwargs)
    return model


def chain(paths=PATHS, dims=None):
    markov_chain("path", flat(3, 3), categorical(FLAT), paths, dims=dims)


def by_codes(paths=PATHS):
    pm.Categorical("path", p=flat(3, 3)[paths[..., :-1]], observed=paths[..., 1:])


def chain_with_a_start(paths=PATHS, dims=None):
    start = flat(3, name="start")
    markov_chain("path", flat(3, 3), categorical(start), paths, dims=dims)


def by_codes_with_a_start(paths=PATHS):
    start = flat(3, name="start")
    pm.Categorical("path", p=flat(3, 3)[paths[..., :-1]], observed=paths[..., 1:])
    pm.Categorical("path_start", p=start, observed=paths[..., 0] if paths.ndim > 1 else paths[:1])


def second_order():
    start = flat(3, name="start")
    markov_chain("path", flat(3, 3, 3), categorical(start), PATHS, n_lags=2)


def second_order_by_codes():
    start = flat(3, name="start")
    pm.Categorical("path", p=flat(3, 3, 3)[PATHS[:, :-2], PATHS[:, 1:-1]], observed=PATHS[:, 2:])
    pm.Categorical("path_start", p=start, observed=PATHS[:, :2])


PAIRS = {
    "whole sequences": (chain, by_codes, {"contribution": 5}),
    "a start": (chain_with_a_start, by_codes_with_a_start, {"unit": 0}),
    "second order": (second_order, second_order_by_codes, {"unit": 0}),
    "one sequence with a start": (
        lambda: chain_with_a_start(PATHS[:, 0]),
        lambda: by_codes_with_a_start(PATHS[:, 0]),
        {"contribution": 30},
    ),
    "add-remove": (chain, by_codes, {"unit": 0, "adjacency": "add-remove", "n_records": 99, "contribution": 5}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_chain_is_what_it_is_by_codes(name):
    first, second, said = PAIRS[name]
    one, other = built(first), built(second)
    for table, same in zip(tables(one), tables(other), strict=True):
        # An array that a model does not name is called "an array".
        likelihoods = [replace(likelihood, parents=()) for t in (table, same) for likelihood in t.likelihoods]
        assert likelihoods[: len(likelihoods) // 2] == likelihoods[len(likelihoods) // 2 :]
        assert (table.name, table.prior.tolist()) == (same.name, same.prior.tolist())
    for counts, same in zip(counts_of(one).values(), counts_of(other).values(), strict=True):
        np.testing.assert_array_equal(counts, same)
    plans = [dirdp.plan(TARGET, model, mechanism="geometric", **said).parts for model in (one, other)]
    assert [part.mechanism for part in plans[0]] == [part.mechanism for part in plans[1]]


def test_the_question_is_the_same():
    said = []
    for build in (chain_with_a_start, by_codes_with_a_start):
        with pytest.raises(UnsupportedModelError, match="takes its rows of 'P' from itself") as caught:
            dirdp.plan(TARGET, built(build))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_dims_name_the_people_and_not_the_steps():
    model = built(chain, dims=("person", "time"))
    assert dirdp.plan(TARGET, model, unit="person").parts[0].mechanism.contribution.records == 5
    with pytest.raises(ArgumentError, match="unit='time' is not a dim of any observation"):
        dirdp.plan(TARGET, model, unit="time")


@pytest.mark.thorough
def test_the_curator_sees_the_same_model():
    """Labels of states are more than there are steps, and none of them is left over."""
    model = built(chain_with_a_start, dims=("person", "time"))
    release = dirdp.sample(TARGET, model, unit="person")
    exact = dirdp.curator.exact_posterior(model, random_seed=1)
    assert exact["observed_data"]["path"].shape == (30, 5)
    assert dirdp.diagnose(release, model, draws=100)["non_private"]


def test_the_first_states_have_the_dims_of_the_people():
    model = built(chain_with_a_start, dims=("person", "time"))
    plan = dirdp.plan(TARGET, model, unit="person")
    assert [part.mechanism.contribution.records for part in plan.parts] == [1, 5]
    assert root_model(model).named_vars_to_dims["path_start"] == ("person",)


@pytest.mark.parametrize("kind", [int, float])
def test_states_in_data_stay_data(kind):
    model = built(lambda: chain(pm.Data("x", PATHS.astype(kind))))
    (table,) = tables(model)
    np.testing.assert_array_equal(counts_of(model)[table.name], counts_of(built(by_codes))[table.name])
    assert root_model(model)["x"] is model["x"]


def test_what_is_not_a_chain_stays_as_it_is():
    model = built(by_codes)
    assert unroll_chains(model) is model
    other = root_model(built(chain))
    assert unroll_chains(other) is other


def test_a_name_that_is_taken_is_not_used_twice():
    def build():
        chain_with_a_start()
        pm.Bernoulli("path_start", p=pm.Beta("b", 1, 1), observed=PATHS[:, 0] > 0)

    names = {one.name for table in tables(built(build)) for one in table.likelihoods}
    assert names == {"path", "path_start", "path_start_"}


def test_states_that_the_matrix_does_not_have():
    model = built(lambda: markov_chain("path", flat(2, 2), categorical(0.5, 0.5), PATHS))
    with pytest.raises(DataError, match="are not all codes from 0 to 1"):
        dirdp.sample(TARGET, model, unit=0)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: markov_chain("path", flat(5, 3, 3), categorical(FLAT), PATHS, time_varying_P=True), "for every step"),
        (lambda: markov_chain("path", flat(30, 3, 3), categorical(FLAT), PATHS), "several matrices"),
        (
            lambda: markov_chain("path", flat(3, 3), categorical(flat(30, 3, name="start")), PATHS),
            "first states that are not from one row",
        ),
        (
            lambda: markov_chain("path", flat(3, 3), pm.Binomial.dist(n=2, p=pm.Beta("b", 1, 1)), PATHS),
            "first states that are not from one row",
        ),
        (lambda: markov_chain("path", flat(3, 3), categorical(FLAT), pt.as_tensor(PATHS) + 0), "computed in the model"),
    ],
)
def test_what_is_refused(build, says):
    with pytest.raises(UnsupportedModelError, match=says):
        dirdp.plan(TARGET, built(build), unit=0)


@pytest.mark.skipif(DiscreteMarkovChain is None, reason="the double has no density")
@pytest.mark.parametrize("build", [chain_with_a_start, second_order])
def test_the_density_is_that_of_the_package(build):
    model = built(build)
    other = root_model(model)
    point = {name: value + 0.1 for name, value in model.initial_point().items()}
    assert other.compile_logp()(point) == pytest.approx(float(model.compile_logp()(point)), rel=1e-12)
