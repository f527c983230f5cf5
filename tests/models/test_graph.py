"""Models of `pymc.dims` as those with axes, and what a model was built for."""

import gc
import weakref

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest
from pytensor.xtensor import as_xtensor

import pymc_dirdp as dirdp
from pymc_dirdp.errors import UnsupportedModelError
from pymc_dirdp.models.graph import Purpose, initial_point, lower_dims, purpose_of, set_purpose
from pymc_dirdp.models.tables import root_model, tables
from tests.planned import counts_of

PURE = dirdp.PureDP(epsilon=3)
RNG = np.random.default_rng(3)
COORDS = {"group": ["a", "b"], "level": ["low", "mid", "high"], "person": range(30)}
GROUP, LEVEL, YES = RNG.integers(0, 2, 30), RNG.integers(0, 3, 30), RNG.integers(0, 2, 30)


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
    assert tables(first) == tables(second)
    for name, counts in counts_of(first).items():
        np.testing.assert_array_equal(counts, counts_of(second)[name])
    # New data are read when they are set.
    with first:
        pm.set_data({"levels": np.zeros(30, dtype=int)})
    assert counts_of(first)["p"][:, 1:].sum() == 0


def test_a_model_with_axes_is_itself():
    model = with_axes()
    assert lower_dims(model) is model
    other = root_model(with_dims())
    assert lower_dims(other) is other


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


# What a model was built for is remembered as long as the model lives, and no longer.


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
