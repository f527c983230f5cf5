"""Which Deterministics stand beside a release: each is a way to carry data out of a model."""

import json

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

import pymc_dirdp as dirdp
from tests.planned import planned_sample

G = dirdp.ApproxDP(epsilon=1, delta=1e-6)
CLS = np.repeat([0, 1, 2], 100)
HAIR = [108, 286, 71, 127]


def hair(n=592):
    with pm.Model(coords={"hair": list("abcd")}) as model:
        p = pm.Dirichlet("p", a=np.ones(4), dims="hair")
        pm.Multinomial("students", n=n, p=p, observed=HAIR, dims="hair")
    return model


def left_out(tree):
    return json.loads(tree["posterior"].attrs.get("left_out", "[]"))


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
    "in a graph of its own": lambda p: OpFromGraph([X], [(X * np.array(HAIR)).sum()])(p),
    "in the step of a scan": lambda p: pytensor.scan(
        lambda q: (q * np.array(HAIR)).sum(), sequences=[p], return_updates=False
    ),
    "in a function": lambda p: pytensor.wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])(lambda v: v * HAIR)(p),
    "one entry for each person": lambda p: pt.stack([p[int(k)] for k in CLS]),
    "the sum over people": lambda p: sum(p[int(k)] for k in CLS[:20]),
    "one number for each person": lambda p: pt.stack([p[0] * int(k) for k in CLS[:20]]),
    "shared": lambda p: p * pytensor.shared(np.array(HAIR, dtype=float)),
    "the observed variable": lambda p: pm.modelcontext(None)["students"] - p,
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_no_array_stands_beside_the_draws(carrier):
    with hair() as model:
        pm.Deterministic("d", CARRIERS[carrier](model["p"]))
        pm.Deterministic("odds", model["p"] / (1 - model["p"]), dims="hair")
    release = dirdp.sample(G, model)
    assert set(release["posterior"].data_vars) == {"p", "odds"}
    assert left_out(release) == ["d"]
    assert "'d'" in str(dirdp.report(release, full=True))
    analysis = dirdp.analyse(release, 10, model=model)
    assert set(analysis["posterior"].data_vars) == {"p", "odds"}
    assert left_out(analysis) == ["d"]


def test_the_values_are_those_of_the_formula_at_the_draws():
    """Oracle: NumPy."""
    with hair() as model:
        pm.Deterministic("odds", model["p"] / (1 - model["p"]), dims="hair")
        pm.Deterministic("largest", model["odds"].max())
    release = planned_sample(G, model, mechanism="geometric", released_draws=1)
    for tree in (release, dirdp.analyse(release, 25, model=model)):
        p = tree["posterior"]["p"].values
        np.testing.assert_allclose(tree["posterior"]["odds"].values, p / (1 - p), rtol=1e-12)
        np.testing.assert_allclose(tree["posterior"]["largest"].values, (p / (1 - p)).max(axis=-1), rtol=1e-12)
        assert tree["posterior"]["odds"].dims == ("chain", "draw", "hair")
        assert list(tree["posterior"]["odds"]["hair"].values) == list("abcd")
        assert left_out(tree) == []


def test_the_text_holds_none():
    with hair() as model:
        pm.Deterministic("odds", model["p"] / (1 - model["p"]), dims="hair")
    release = dirdp.sample(G, model)
    assert "odds" not in str(release["release"]["text"].values)
    assert dirdp.verify(release)
    (view,) = (check for check in dirdp.verify(release).checks if check.name == "view")
    assert "but for 'odds'" in view.sentence


def test_a_draw_that_was_changed_is_seen_beside_deterministics():
    with hair() as model:
        pm.Deterministic("odds", model["p"] / (1 - model["p"]), dims="hair")
    release = dirdp.sample(G, model)
    release["posterior"]["p"].values[...] = 0.25
    assert not dirdp.verify(release)


def test_pymc_computes_what_was_left_out_from_the_release():
    with hair() as model:
        pm.Deterministic("score", pt.dot(model["p"], np.array([1.0, 2.0, 3.0, 5.0])))
    release = dirdp.sample(G, model)
    assert left_out(release) == ["score"]
    found = pm.compute_deterministics(release["posterior"], model=model, progressbar=False)
    np.testing.assert_allclose(found["score"].values, release["posterior"]["p"].values @ [1, 2, 3, 5])


@pytest.mark.parametrize("number", [592, 1 / 592, 286 / 592, 592j])
def test_no_number_that_may_come_from_a_private_number_of_people(number):
    with hair() as model:
        pm.Deterministic("d", number * model["p"])
        pm.Deterministic("odds", model["p"] / (1 - model["p"]), dims="hair")
        pm.Deterministic("third", model["p"][2])
    private = dirdp.sample(G, model, adjacency="add-remove", n_records=600)
    assert set(private["posterior"].data_vars) == {"p", "odds", "third"}
    assert left_out(private) == ["d"]
    assert set(dirdp.sample(G, model)["posterior"].data_vars) == {"p", "d", "odds", "third"}


def test_a_formula_with_a_few_numbers_comes_along():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((2, 2)))
        pm.Multinomial("y", n=[30, 30], p=p, observed=[[10, 20], [15, 15]])
        chance = (p[0, 0] + p[0, 1]) * (p[0, 0] + p[1, 0]) + (p[1, 0] + p[1, 1]) * (p[0, 1] + p[1, 1])
        pm.Deterministic("kappa", (p[0, 0] + p[1, 1] - chance) / (1 - chance))
        pm.Deterministic("entropy", -(p * pt.log(p)).sum(axis=-1))
    assert set(dirdp.sample(G, model)["posterior"].data_vars) == {"p", "kappa", "entropy"}


@pytest.mark.parametrize("n_people", [5, 6])
def test_what_is_left_out_does_not_depend_on_the_number_of_people(n_people):
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones(3))
        pm.Categorical("cls", p=p, observed=np.arange(n_people) % 3)
        pm.Deterministic("d", pt.dot(p[np.array([0, 1, 2, 0, 1])], np.ones(5)))
        pm.Deterministic("six", 6 * p[0])
    assert set(dirdp.sample(G, model)["posterior"].data_vars) == {"p", "six"}


def test_a_dim_of_the_records_stays_behind():
    with pm.Model(coords={"record": range(300)}) as model:
        p = pm.Dirichlet("p", a=np.ones(3))
        pm.Categorical("cls", p=p, observed=CLS, dims="record")
        pm.Deterministic("each", pt.zeros(model.dim_lengths["record"]) + p[0], dims="record")
    release = dirdp.sample(G, model, adjacency="add-remove", n_records=300)
    assert set(release["posterior"].data_vars) == {"p"}
    assert left_out(release) == ["each"]


@pytest.mark.parametrize("name", ["a\nb", "a\\b", "a\x1b[2Jb", "draw"])
def test_a_name_that_no_file_can_hold_stays_behind(name):
    with hair() as model:
        pm.Deterministic(name, 1 - model["p"])
    release = dirdp.sample(G, model)
    assert set(release["posterior"].data_vars) == {"p"}
    assert left_out(release) == [name]
    assert repr(name) in str(dirdp.report(release, full=True))


class Fails(pt.Op):
    itypes = (pt.dvector,)
    otypes = (pt.dscalar,)

    def perform(self, node, inputs, outputs):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("deterministic", "dims"),
    [
        (lambda p: Fails()(p), None),
        (lambda p: pt.linalg.inv(0 * pt.outer(p, p)), None),
        (lambda p: p[:2], "c\nd"),
    ],
)
def test_a_deterministic_that_fails_does_not_lose_the_release(deterministic, dims):
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=200, delta=1e-5))
    with hair() as model:
        model.add_coord("c\nd", [0, 1])
        pm.Deterministic("bad", deterministic(model["p"]), dims=dims)
        pm.Deterministic("odds", model["p"] / (1 - model["p"]), dims="hair")
    release = dirdp.sample(dirdp.ApproxDP(epsilon=100, delta=1e-6), model, ledger=ledger)
    assert set(release["posterior"].data_vars) == {"p", "odds"}
    assert left_out(release) == ["bad"]
    assert len(ledger.entries()) == 1
