"""Markov chains of pymc-extras: the same tables, counts, questions and releases as those of chains by codes."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, UnsupportedModelError
from pymc_dirdp.models.likelihoods import unroll_chains
from pymc_dirdp.models.tables import root_model, tables
from tests.planned import counts_of, read_people

from . import small
from .markov import DiscreteMarkovChain, categorical, markov_chain

TARGET = dirdp.ApproxDP(epsilon=3, delta=1e-3)
PATHS = np.random.default_rng(4).integers(0, 3, (30, 6))
FLAT = np.full(3, 1 / 3)
DIMS = ("person", "time")


def built(build, **options):
    return small.built(lambda: build(**options), coords={"person": range(30), "time": range(6)})


def flat(*shape, name="P"):
    return small.simplex(*shape, name=name)


def chain(paths=PATHS, dims=None):
    markov_chain("path", flat(3, 3), categorical(FLAT), paths, dims=dims)


def by_codes(paths=PATHS):
    pm.Categorical("path", p=flat(3, 3)[paths[..., :-1]], observed=paths[..., 1:])


def chain_with_a_start(paths=PATHS, dims=None, n_lags=1):
    start = flat(3, name="start")
    markov_chain("path", flat(*[3] * n_lags, 3), categorical(start), paths, n_lags=n_lags, dims=dims)


def by_codes_with_a_start(paths=PATHS):
    start = flat(3, name="start")
    by_codes(paths)
    pm.Categorical("path_start", p=start, observed=paths[..., 0] if paths.ndim > 1 else paths[:1])


def second_order():
    chain_with_a_start(n_lags=2)


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
    "add-remove": (chain, by_codes, {"unit": 0, "adjacency": "add-remove", "contribution": 5}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_chain_is_what_it_is_by_codes(name):
    *builds, said = PAIRS[name]
    models = [built(build) for build in builds]
    read = [read_people(model, **said) for model in models]
    for table, same in zip(*(one.tables for one in read), strict=True):
        # An array that a model does not name is called "an array".
        seen = [[replace(one, parents=()) for one in t.likelihoods] for t in (table, same)]
        assert seen[0] == seen[1]
        assert (table.name, table.prior.tolist()) == (same.name, same.prior.tolist())
    for counts, same in zip(*(counts_of(model).values() for model in models), strict=True):
        np.testing.assert_array_equal(counts, same)
    assert read[0].reading.contributions == read[1].reading.contributions


def test_the_question_is_the_same():
    said = []
    for build in (chain_with_a_start, by_codes_with_a_start):
        with pytest.raises(UnsupportedModelError, match="takes its rows of 'P' from itself") as caught:
            read_people(built(build))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_dims_name_the_people_and_not_the_steps():
    model = built(chain_with_a_start, dims=DIMS)
    contributions = dict(read_people(model, unit="person").reading.contributions)
    assert {name: one.records for name, one in contributions.items()} == {"start": 1, "P": 5}
    with pytest.raises(ArgumentError, match="unit='time' is not a dim of any observation"):
        read_people(model, unit="time")
    assert root_model(model).named_vars_to_dims["path_start"] == ("person",)


@pytest.mark.thorough
def test_the_curator_sees_the_same_model():
    """Labels of states are more than there are steps, and none of them is left over."""
    model = built(chain_with_a_start, dims=DIMS)
    release = dirdp.sample(TARGET, model, unit="person", mechanism="geometric")
    exact = dirdp.curator.exact_posterior(model, random_seed=1)
    assert exact["observed_data"]["path"].shape == (30, 5)
    assert dirdp.diagnose(release, model, draws=100)["non_private"]


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


@pytest.mark.skipif(DiscreteMarkovChain is None, reason="the double has no density")
@pytest.mark.parametrize("build", [chain_with_a_start, second_order])
def test_the_density_is_that_of_the_package(build):
    model = built(build)
    other = root_model(model)
    point = {name: value + 0.1 for name, value in model.initial_point().items()}
    assert other.compile_logp()(point) == pytest.approx(float(model.compile_logp()(point)), rel=1e-12)
