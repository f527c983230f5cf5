"""Which Deterministics are released: each is a way to carry data out of a model."""

import json
import os
import subprocess
import sys

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

import pymc_dirdp as dirdp

G = dirdp.ApproxDP(epsilon=1, delta=1e-6)
CLS = np.repeat([0, 1, 2], 100)
HAIR = [108, 286, 71, 127]


def hair(n=592):
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones(4))
        pm.Multinomial("students", n=n, p=p, observed=HAIR)
    return model


def classes(cls=CLS):
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones(3))
        pm.Categorical("cls", p=p, observed=cls)
    return model


def left_out(release):
    return json.loads(release.attrs.get("left_out", "{}"))


X = pt.dvector()
# Arrays that a formula holds, and what could hold one without showing it.
CARRIERS = {
    "residual": lambda p: np.array(HAIR) - 592 * p,
    "by record": lambda p: p[CLS],
    "in a matrix": lambda p: p[CLS.reshape(3, 100)],
    "one hot": lambda p: pt.dot(np.eye(3)[CLS], p[:3]),
    "counted": lambda p: (p[:3] * np.bincount(CLS)).sum() / 300,
    "in a column": lambda p: p[CLS[:, None]],
    "as a mask": lambda p: pt.switch(CLS == 1, p[0], p[1]),
    "hidden behind an operation": lambda p: p * pt.exp(pt.as_tensor(np.log(HAIR))),
}
HIDDEN = {
    "in a graph of its own": lambda p: OpFromGraph([X], [(X * np.array(HAIR)).sum()])(p),
    "in the step of a scan": lambda p: pytensor.scan(
        lambda q: (q * np.array(HAIR)).sum(), sequences=[p], return_updates=False
    ),
    "in a function": lambda p: pytensor.wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])(lambda v: v * HAIR)(p),
    "one entry for each person": lambda p: pt.stack([p[int(k)] for k in CLS]),
    "the sum over people": lambda p: sum(p[int(k)] for k in CLS[:20]),
    "one number for each person": lambda p: pt.stack([p[0] * int(k) for k in CLS[:20]]),
}


@pytest.mark.parametrize("carrier", CARRIERS | HIDDEN)
def test_no_array_comes_along_unless_it_is_named(carrier):
    with hair() as model:
        pm.Deterministic("d", (CARRIERS | HIDDEN)[carrier](model["p"]))
    release = dirdp.sample(G, model)
    assert set(release["posterior"].data_vars) == {"p"}
    assert ("holds an array" if carrier in CARRIERS else "could") in left_out(release)["d"]
    assert "var_names=['d']" in left_out(release)["d"]


@pytest.mark.parametrize(
    "carrier",
    [
        lambda p: p[CLS],
        lambda p: p[CLS.reshape(3, 100)],
        lambda p: pt.dot(np.eye(3)[CLS], p),
        lambda p: (CLS[::-1].astype(float) * p[0]).sum(),
        lambda p: p[CLS[:, None]],
        # Lists of them, and a loop.
        lambda p: pt.stack([p[int(k)] for k in CLS]),
        lambda p: sum(p[0] * int(k) for k in CLS),
        lambda p: pytensor.scan(lambda q: (q * CLS).sum(), sequences=[p], return_updates=False),
    ],
)
def test_an_array_of_data_does_not_come_along_if_it_is_named(carrier):
    with classes() as model:
        pm.Deterministic("d", carrier(model["p"]))
    with pytest.raises(dirdp.errors.ArgumentError, match="'d' cannot be part of the release"):
        dirdp.sample(G, model, var_names=["d"])


def test_counts_do_not_come_along_in_any_order_or_shape():
    for array in (HAIR, HAIR[::-1], np.reshape(HAIR, (2, 2)), np.array(HAIR, dtype=float)):
        with hair() as model:
            pm.Deterministic("d", (pt.as_tensor(array) * model["p"].reshape(np.shape(array))).sum())
        with pytest.raises(dirdp.errors.ArgumentError, match="'d' cannot be part of the release"):
            dirdp.sample(G, model, var_names=["d"])


def test_a_public_array_comes_along_if_it_is_named():
    with hair() as model:
        pm.Deterministic("score", pt.dot(model["p"], np.array([1.0, 2.0, 3.0, 5.0])))
        pm.Deterministic("odds", model["p"] / (1 - model["p"]))
    release = dirdp.sample(G, model, var_names=["score"])
    drawn = release["posterior"]["p"].values[0, 0]
    np.testing.assert_allclose(release["posterior"]["score"].values, [[drawn @ [1, 2, 3, 5]]])
    assert "var_names" in left_out(release)["odds"]
    both = dirdp.sample(G, model, var_names=["p", "score", "odds"])
    assert set(both["posterior"].data_vars) == {"p", "score", "odds"}
    none = dirdp.sample(G, model, var_names=[])
    assert set(none["posterior"].data_vars) == {"p"}


def test_a_misspelt_name_is_refused_with_the_near_one():
    with hair() as model:
        pm.Deterministic("odds", model["p"] / (1 - model["p"]))
    with pytest.raises(dirdp.errors.ArgumentError, match="Did you mean 'odds'"):
        dirdp.sample(G, model, var_names=["ods"])
    with pytest.raises(dirdp.errors.ArgumentError, match=r"write \['odds'\]"):
        dirdp.sample(G, model, var_names="odds")


@pytest.mark.parametrize("n_people", [5, 6])
def test_what_is_left_out_does_not_depend_on_the_number_of_people(n_people):
    """At 0.1.0 an array of five numbers was left out with five people, and came along with six."""
    with classes(np.arange(n_people) % 3) as model:
        pm.Deterministic("d", pt.dot(model["p"][np.array([0, 1, 2, 0, 1])], np.ones(5)))
    release = dirdp.sample(G, model)
    assert set(release["posterior"].data_vars) == {"p"}


def test_a_number_that_may_be_the_number_of_people_does_not_come_along_where_that_is_private():
    with hair() as model:
        pm.Deterministic("expected", 592 * model["p"])
        pm.Deterministic("odds", model["p"] / (1 - model["p"]))
        pm.Deterministic("third", model["p"][2])
    private = dirdp.sample(G, model, adjacency="add-remove", n_records=600)
    assert set(private["posterior"].data_vars) == {"p", "odds", "third"}
    assert "number of records" in left_out(private)["expected"]
    public = dirdp.sample(G, model)
    assert {"expected", "odds", "third"} <= set(public["posterior"].data_vars)


def test_each_reason_is_its_own():
    with hair() as model:
        shared = pm.Data("shared", [1.0, 2.0, 3.0, 4.0])
        pm.Deterministic("lift", model["p"] * shared)
        pm.Deterministic("residual", model["students"] - 592 * model["p"])
        pm.Deterministic("constant", pm.math.sqrt(2.0))
    reasons = left_out(dirdp.sample(G, model))
    assert "the data 'shared'" in reasons["lift"]
    assert "the variable 'students'" in reasons["residual"]
    assert "does not depend on a released variable" in reasons["constant"]
    with pytest.raises(dirdp.errors.ArgumentError, match="'lift' cannot be part of the release"):
        dirdp.sample(G, model, var_names=["lift"])


@pytest.mark.parametrize("name", ["a\nb", "a\\b", "a\x1b[2Jb"])
def test_a_name_that_no_file_can_hold_stays_behind(name):
    with hair() as model:
        pm.Deterministic(name, 1 - model["p"])
    release = dirdp.sample(G, model)
    assert set(release["posterior"].data_vars) == {"p"}
    assert "Rename it" in left_out(release)[name]
    assert name not in str(dirdp.report(release, full=True)) or name == "a\\b"


def test_a_deterministic_that_fails_does_so_before_anything_is_spent():
    class Fails(pt.Op):
        itypes = (pt.dvector,)
        otypes = (pt.dscalar,)

        def perform(self, node, inputs, outputs):
            raise RuntimeError("no")

    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=2, delta=1e-5))
    with hair() as model:
        pm.Deterministic("bad", Fails()(model["p"]))
    with pytest.raises(dirdp.errors.ArgumentError, match="'bad' cannot be part of the release"):
        dirdp.sample(G, model, ledger=ledger, var_names=["bad"])
    assert ledger.entries() == ()


@pytest.mark.thorough
def test_nothing_is_compiled(tmp_path):
    """A softmax would call the C compiler, for seconds, also in Python mode."""
    code = """
import numpy as np, pymc as pm, pymc_dirdp as dirdp
from pytensor.link.c.cmodule import ModuleCache
def refuse(*args, **kwargs):
    raise AssertionError("a C module was asked for")
ModuleCache.module_from_key = refuse
with pm.Model() as model:
    p = pm.Dirichlet("p", a=np.ones(4))
    pm.Multinomial("x", n=10, p=p, observed=[1, 2, 3, 4])
    pm.Deterministic("soft", pm.math.softmax(pm.math.log(p)))
    pm.Deterministic("gamma", pm.math.gammaln(p))
release = dirdp.sample(dirdp.ApproxDP(epsilon=1, delta=1e-6), model)
assert set(release["posterior"].data_vars) == {"p", "soft", "gamma"}
"""
    flags = f"base_compiledir={tmp_path}"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTENSOR_FLAGS": flags})


def test_a_formula_with_a_few_numbers_comes_along():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((2, 2)))
        pm.Multinomial("y", n=[30, 30], p=p, observed=[[10, 20], [15, 15]])
        chance = (p[0, 0] + p[0, 1]) * (p[0, 0] + p[1, 0]) + (p[1, 0] + p[1, 1]) * (p[0, 1] + p[1, 1])
        pm.Deterministic("kappa", (p[0, 0] + p[1, 1] - chance) / (1 - chance))
        pm.Deterministic("entropy", -(p * pt.log(p)).sum(axis=-1))
    assert set(dirdp.sample(G, model)["posterior"].data_vars) == {"p", "kappa", "entropy"}


@pytest.mark.parametrize("number", [1 / 592, 286 / 592, 592j])
def test_no_number_that_comes_from_the_number_of_people_where_that_is_private(number):
    with hair() as model:
        pm.Deterministic("d", number * model["p"])
    release = dirdp.sample(G, model, adjacency="add-remove", n_records=600)
    assert "number of records" in left_out(release)["d"]


def test_dims_that_do_not_fit_are_an_error_before_anything_is_spent():
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=2, delta=1e-5))
    with pm.Model(coords={"hair": list("abcd")}) as model:
        p = pm.Dirichlet("p", a=np.ones(4), dims="hair")
        pm.Multinomial("students", n=592, p=p, observed=HAIR, dims="hair")
        pm.Deterministic("odds", p[:2] / p[2:], dims="hair")
    with pytest.raises(dirdp.errors.ArgumentError, match="'odds' has a name or dims that do not fit"):
        dirdp.sample(G, model, ledger=ledger)
    assert ledger.entries() == ()
    assert set(dirdp.sample(G, model, ledger=ledger, var_names=[])["posterior"].data_vars) == {"p"}


def test_another_shape_at_the_draw_does_not_lose_the_release():
    with pm.Model(coords={"hair": list("abcd")}) as model:
        p = pm.Dirichlet("p", a=np.ones(4), dims="hair")
        pm.Multinomial("students", n=592, p=p, observed=[590, 1, 1, 0], dims="hair")
        pm.Deterministic("large", p[p > 0.2], dims="hair")
    release = dirdp.sample(dirdp.ApproxDP(epsilon=100, delta=1e-6), model)
    assert set(release["posterior"].data_vars) == {"p"}
    assert "no formula that a release can hold" in left_out(release)["large"]


def test_names_and_dims_that_a_release_cannot_hold_stay_behind():
    with pm.Model(coords={"a/b": [0, 1], "c\nd": [0, 1]}) as model:
        p = pm.Dirichlet("p", a=np.ones(4))
        pm.Multinomial("students", n=592, p=p, observed=HAIR)
        pm.Deterministic("draw", p[0])
        pm.Deterministic("slash", p[:2], dims="a/b")
        pm.Deterministic("line", p[:2], dims="c\nd")
    release = dirdp.sample(G, model)
    assert set(release["posterior"].data_vars) == {"p"}
    assert set(left_out(release)) == {"draw", "slash", "line"}
