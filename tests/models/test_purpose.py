"""What a model was built for is remembered as long as the model lives, and no longer."""

import gc
import weakref

import pymc as pm

from pymc_dirdp.models.graph import Purpose, build_for, built_for


def test_a_purpose_belongs_to_one_model_and_ends_with_it():
    model, other = pm.Model(), pm.Model()
    build_for(model, Purpose("estimate", target="class"))
    assert built_for(model).target == "class"
    assert built_for(other) == Purpose()
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None
