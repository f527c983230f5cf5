"""Chains of pymc-extras and models of `pymc.dims`, as those by codes and by axes; and what a model was built for."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest
from pytensor.xtensor import as_xtensor

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.graph import Purpose, initial_point, lower_dims, purpose_of, set_purpose
from pymc_dirdp.models.likelihoods import unroll_chains
from pymc_dirdp.models.tables import root_model, tables
from tests.planned import counts_of, read_people

from . import small
from .small import categorical, markov_chain, simplex

TARGET = dirdp.ApproxDP(epsilon=3, delta=1e-3)
PATHS = np.random.default_rng(4).integers(0, 3, (30, 6))
ONE, FLAT = PATHS[:, 0], np.full(3, 1 / 3)
DIMS = ("person", "time")
PURE = dirdp.PureDP(epsilon=3)
RNG = np.random.default_rng(3)
COORDS = {"group": ["a", "b"], "level": ["low", "mid", "high"], "person": range(30)}
GROUP, LEVEL, YES = RNG.integers(0, 2, 30), RNG.integers(0, 3, 30), RNG.integers(0, 2, 30)


def built(build, **options):
    return small.built(lambda: build(**options), coords={"person": range(30), "time": range(6)})


def chain(paths=PATHS, dims=None):
    markov_chain("path", simplex(3, 3, name="P"), categorical(FLAT), paths, dims=dims)


def by_codes(paths=PATHS):
    pm.Categorical("path", p=simplex(3, 3, name="P")[paths[..., :-1]], observed=paths[..., 1:])


def chain_with_a_start(paths=PATHS, dims=None, n_lags=1):
    start = simplex(3, name="start")
    markov_chain("path", simplex(*[3] * n_lags, 3, name="P"), categorical(start), paths, n_lags=n_lags, dims=dims)


def by_codes_with_a_start(paths=PATHS):
    start = simplex(3, name="start")
    by_codes(paths)
    pm.Categorical("path_start", p=start, observed=paths[..., 0] if paths.ndim > 1 else paths[:1])


def second_order_by_codes():
    start = simplex(3, name="start")
    pm.Categorical("path", p=simplex(3, 3, 3, name="P")[PATHS[:, :-2], PATHS[:, 1:-1]], observed=PATHS[:, 2:])
    pm.Categorical("path_start", p=start, observed=PATHS[:, :2])


PAIRS = {
    "whole sequences": (chain, by_codes, {"contribution": 5}),
    "a start": (chain_with_a_start, by_codes_with_a_start, {"unit": 0}),
    "second order": (lambda: chain_with_a_start(n_lags=2), second_order_by_codes, {"unit": 0}),
    "one sequence": (lambda: chain_with_a_start(ONE), lambda: by_codes_with_a_start(ONE), {"contribution": 30}),
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


def test_dims_name_the_people_and_not_the_steps():
    model = built(chain_with_a_start, dims=DIMS)
    contributions = dict(read_people(model, unit="person").reading.contributions)
    assert {name: one.records for name, one in contributions.items()} == {"start": 1, "P": 5}
    with pytest.raises(ArgumentError, match="unit='time' is not a dim of any observation"):
        read_people(model, unit="time")
    assert root_model(model).named_vars_to_dims["path_start"] == ("person",)


@pytest.mark.thorough
def test_the_curator_sees_the_same_model():
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
    # What is no chain stays as it is.
    for other in (built(by_codes), root_model(built(chain))):
        assert unroll_chains(other) is other


def test_a_name_that_is_taken_is_not_used_twice():
    def build():
        chain_with_a_start()
        pm.Bernoulli("path_start", p=pm.Beta("b", 1, 1), observed=PATHS[:, 0] > 0)

    names = {one.name for table in tables(built(build)) for one in table.likelihoods}
    assert names == {"path", "path_start", "path_start_"}


def with_dims(level=LEVEL):
    with pm.Model(coords=COORDS) as model:
        a = as_xtensor(np.array([1.0, 2.0, 3.0]), dims=("level",))
        p = pmd.Dirichlet("p", a=a, core_dims="level", dims=("group", "level"))
        u = pmd.Uniform("u", 0, 1)
        group, levels = pmd.Data("of_person", GROUP, dims="person"), pmd.Data("levels", level, dims="person")
        pmd.Categorical("y", p=p.isel(group=group), core_dims="level", observed=levels)
        pm.Bernoulli("z", p=u.values, observed=YES, dims="person")
        pmd.Deterministic("difference", p.isel(group=0) - p.isel(group=1))
    return model


def with_axes():
    with pm.Model(coords=COORDS) as model:
        p = pm.Dirichlet("p", a=[1.0, 2.0, 3.0], dims=("group", "level"))
        u = pm.Uniform("u", 0, 1)
        pm.Categorical("y", p=p[pm.Data("of_person", GROUP)], observed=LEVEL, dims="person")
        pm.Bernoulli("z", p=u, observed=YES, dims="person")
    return model


def test_tables_and_counts_are_those_of_the_model_with_axes():
    first, second = with_dims(), with_axes()
    for model in (second, root_model(first)):
        assert lower_dims(model) is model
    assert tables(first) == tables(second)
    for name, counts in counts_of(first).items():
        np.testing.assert_array_equal(counts, counts_of(second)[name])
    # New data are read when they are set.
    with first:
        pm.set_data({"levels": np.zeros(30, dtype=int)})
    assert counts_of(first)["p"][:, 1:].sum() == 0


def test_a_release_has_the_dims_and_the_deterministic():
    release = dirdp.sample(PURE, with_dims(), unit="person", mechanism="geometric")
    draw = release["posterior"].to_dataset()
    assert draw["p"].dims == ("chain", "draw", "group", "level")
    assert draw["p"].coords["level"].values.tolist() == COORDS["level"]
    expected = draw["p"].isel(group=0, drop=True) - draw["p"].isel(group=1, drop=True)
    np.testing.assert_allclose(draw["difference"], expected)
    assert "30 of them, as the publisher states" in " ".join(str(dirdp.report(release, full=True)).split())


def test_a_deterministic_on_the_way_is_looked_through():
    with pm.Model(coords=COORDS) as model:
        b = pmd.Beta("b", 1, 1, dims="group")
        rest = pmd.Deterministic("rest", 1 - b)
        same = pmd.Deterministic("same", b)
        pm.Bernoulli("y", p=rest.values[GROUP], observed=YES)
    expected = np.zeros((2, 2))
    np.add.at(expected, (GROUP, YES), 1)
    np.testing.assert_array_equal(counts_of(model)["b"], expected)
    assert same.name == "same"
    draw = dirdp.sample(PURE, model, mechanism="geometric")["posterior"].to_dataset()
    np.testing.assert_allclose(draw["rest"], 1 - draw["b"])
    np.testing.assert_allclose(draw["same"], draw["b"])


def test_what_is_refused_is_refused_with_dims():
    def of(low, p):
        with pm.Model(coords=COORDS) as model:
            pm.Bernoulli("z", p=p(pmd.Uniform("u", low, 1).values), observed=YES, dims="person")
        return model

    plan = dirdp.plan(PURE, of(0, lambda u: u), unit="person", mechanism="geometric")
    with pytest.raises(UnsupportedModelError, match="not the one that was planned"):
        dirdp.sample(plan, of(0, lambda u: 1 - u))
    with pytest.raises(UnsupportedModelError, match="bounds other than 0 and 1"):
        tables(of(0.5, lambda u: u))


def test_a_purpose_belongs_to_one_model_and_ends_with_it():
    model, other = pm.Model(), pm.Model()
    set_purpose(model, Purpose("estimate", target="class"))
    assert purpose_of(model).target == "class"
    assert purpose_of(other) == Purpose()
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_the_initial_point_is_that_of_pymc():
    with pm.Model() as model:
        pm.Normal("drawn", initval="prior")
        scale = pm.HalfNormal("scale")
        pm.Dirichlet("p", np.ones(3))
        pm.Uniform("given", 0, 2, initval=1.5)
        pm.Beta("from_another", 1, scale, shape=2, initval="prior")
    ours, theirs = initial_point(model, seed=1), model.initial_point(random_seed=1)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value)
