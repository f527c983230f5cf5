"""A plan is released with the model that was planned, and decides everything."""

import dataclasses

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.releases.options import Options

HAIR = [108, 286, 71, 127]  # Snee (1974)
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def hair_model(n=592, prior=(1, 1, 1, 1), counts=HAIR):
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=prior)
        pm.Multinomial("students", n=n, p=p, observed=counts)
    return model


@pytest.mark.parametrize(
    "changed",
    [
        {"n": 593, "counts": [109, 286, 71, 127]},
        {"prior": (1, 1, 1, 2)},
        {"prior": (1, 1, 1), "counts": [394, 71, 127]},
    ],
)
def test_a_plan_is_for_one_model(changed):
    plan = dirdp.plan(TARGET, hair_model())
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="not the one that was planned"):
        dirdp.sample(plan, hair_model(**changed))
    # Other counts are what it is for.
    assert dirdp.sample(plan, hair_model(counts=[107, 287, 71, 127])).attrs["plan_digest"] == plan.digest


def test_a_plan_beside_any_option_is_an_error_also_if_it_equals_the_default():
    """Finding 12: an add-remove plan with `adjacency="replace-one"` beside it was released without a word."""
    plan = dirdp.plan(TARGET, hair_model(), adjacency="add-remove", n_records=500)
    for field in dataclasses.fields(Options):
        name, value = field.name, field.default
        with pytest.raises(dirdp.errors.ArgumentError, match=f"already decides {name}"):
            dirdp.sample(plan, hair_model(), **{name: value})
    with pytest.raises(TypeError, match="unexpected keyword argument 'adjacancy'"):
        dirdp.sample(plan, hair_model(), adjacancy="replace-one")
    with pytest.raises(TypeError, match="unexpected keyword argument 'adjacancy'"):
        dirdp.sample(TARGET, hair_model(), adjacancy="replace-one")


def test_a_plan_for_another_unit():
    with pm.Model(coords={"household": range(4)}) as model:
        p = pm.Dirichlet("p", np.ones(2))
        pm.Categorical("y", p=p, observed=[0, 1, 1, 0], dims="household")
    plan = dirdp.plan(TARGET, model, unit="household")
    with pytest.raises(
        dirdp.errors.ArgumentError, match="This plan protects unit='household'; sample was asked for unit='pe"
    ):
        dirdp.sample(plan, model, unit="person")
