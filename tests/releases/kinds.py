"""Models and guarantees of every kind, and a plan and a release of each, which tests write, read and edit."""

import functools
import math

import numpy as np
import pymc as pm

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet, Marginals
from tests.planned import hair_model, three_questions, two_tables


def rows():
    """A table of rows without dims, a Beta with labels, and a table of one category."""
    with pm.Model(coords={"city": ["Köln", "São Paulo"], "k": ["all"]}) as model:
        p = pm.Dirichlet("p", a=[[1.0, 2.0, 3.0], [0.5, 0.5, 0.1]])
        pm.Multinomial("x", n=[30, 60], p=p, observed=[[10, 10, 10], [20, 20, 20]])
        rate = pm.Beta("rate", 1, 2, dims="city")
        pm.Binomial("heads", n=[60, 30], p=rate, observed=[20, 11])
        pm.Multinomial("one", n=90, p=pm.Dirichlet("q", a=np.ones(1), dims="k"), observed=[90])
    return model


def departments():
    with pm.Model(coords={"department": list("AB"), "hair": ["black", "brown", "red"]}) as model:
        rate = pm.Beta("rate", [1, 2], 1, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
        p = pm.Dirichlet("p", a=np.ones(3), dims="hair")
        pm.Multinomial("students", n=70, p=p, observed=[30, 30, 10])
    return model


def people_and_others():
    with three_questions() as model:
        pm.Binomial("visits", n=9, p=pm.Beta("rate", 1, 1), observed=4)
    return model


def viewed_model():
    """A likelihood that sees a part of its table, and one whose rows are chosen by codes."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=[[1, 1], [0.5, 2], [1, 1]])
        pm.Multinomial("x", n=20, p=p[1], observed=[15, 5])
        q = pm.Dirichlet("q", a=np.ones((2, 3)))
        pm.Categorical("y", p=q[pm.Data("c", [0, 1, 1, 0])], observed=[0, 1, 2, 0])
    return model


def seen_in_another_order():
    """Two likelihoods see one row each, the second one from the last category to the first."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)))
        pm.Multinomial("first", n=30, p=p[0], observed=[10, 12, 8])
        pm.Multinomial("second", n=20, p=p[1][::-1], observed=[0, 15, 5])
    return model


def hostile_names():
    with pm.Model(coords={"hair": ["p|`<b>", "x" * 200]}) as model:
        p = pm.Dirichlet("名" * 70, np.ones(2), dims="hair")
        pm.Multinomial("名" * 71, n=394, p=p, observed=[108, 286])
    return model


def network(n_features=1, words=""):
    names = [f"feature {words}{i}" for i in range(n_features)]
    columns = {name: np.array(["a", "b", "c"])[np.arange(300) % (2 + i % 2)] for i, name in enumerate(names)}
    categories = {name: ["a", "b", "c"] for name in names} | {"class": ["u", "v"]}
    return dirdp.naive_bayes(columns, ["u", "v", "v"] * 100, categories=categories)


APPROX, PURE = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), dirdp.PureDP(epsilon=1.0)
TEMPERED, INFLATED = ({"mechanism": Dirichlet(strategy=strategy)} for strategy in ("temper", "inflate"))
NOISE, ONE, PRIVATE = {"mechanism": "geometric"}, {"contribution": 1}, {"adjacency": "add-remove"}
OF_PEOPLE = {"unit": "person", "contribution": 3, "n_records": 100}
KINDS = {
    "draw": (hair_model, APPROX, {}),
    "draws": (two_tables, APPROX, ONE | {"released_draws": 2, "min_count": 1.5}),
    "approx": (two_tables, APPROX, {}),
    "renyi": (two_tables, dirdp.RenyiDP(order=4, epsilon=0.5), {"released_draws": 3}),
    "order 1": (hair_model, dirdp.RenyiDP(order=1, epsilon=0.5), {}),
    "tempered": (rows, dirdp.RenyiDP(order=3, epsilon=0.3), ONE | TEMPERED | {"released_draws": 3}),
    "fast": (hair_model, APPROX, TEMPERED | {"sampler": "fast"}),
    "algorithm 1": (hair_model, dirdp.RenyiDP(order=2, epsilon=0.1), {"mechanism": Dirichlet(strategy="algorithm-1")}),
    "inflated": (hair_model, APPROX, INFLATED | {"min_count": 2}),
    "truncated": (two_tables, dirdp.TruncatedCDP(rho=0.1, omega=8), PRIVATE | {"n_records": 100}),
    "omega": (hair_model, dirdp.TruncatedCDP(rho=0.1, omega=math.inf), {"mechanism": "gaussian"}),
    "zero": (two_tables, dirdp.ZeroCDP(rho=0.05), {"mechanism": "gaussian", "released_draws": 2}),
    "auto": (hair_model, APPROX, {"mechanism": "auto", "objective": "estimate"}),
    "geometric": (two_tables, APPROX, ONE | NOISE),
    "pure": (two_tables, PURE, NOISE | {"disjoint": [["p"], ["rate"]]}),
    "rows": (rows, APPROX, ONE | NOISE | {"released_draws": 2}),
    "views": (viewed_model, PURE, ONE | NOISE | {"public": ["y"]}),
    "another order": (seen_in_another_order, APPROX, {"public": ["second"]}),
    "private number": (two_tables, APPROX, ONE | NOISE | PRIVATE),
    "planned number": (two_tables, PURE, PRIVATE | NOISE | {"n_records": {"p": 60}, "weights": {"p": 2}}),
    "several": (hair_model, PURE, PRIVATE | NOISE | {"n_records": 9, "contribution": 2}),
    "many": (two_tables, APPROX, NOISE | {"contribution": 2}),
    "people": (three_questions, APPROX, NOISE | {"unit": "person"}),
    "at most, and others": (people_and_others, PURE, OF_PEOPLE | NOISE | {"disjoint": [["answer"], ["visits"]]}),
    "marginals": (network, APPROX, {"contribution": 2, "mechanism": Marginals(weights={("class", "feature 0"): 3})}),
    "wide": (lambda: network(12, "long name " * 9), PURE, NOISE),
    "hostile names": (hostile_names, APPROX, {}),
}


@functools.cache
def planned(kind):
    build, guarantee, options = KINDS[kind]
    model = build()
    return model, dirdp.plan(guarantee, model, progressbar=False, **options)


@functools.cache
def released(kind):
    """A release, which nobody may change: tests edit a copy."""
    model, plan = planned(kind)
    return dirdp.sample(plan, model, progressbar=False)


# A wide table of four columns, of which one has a single category, and guarantees of every kind.
CATEGORIES = {"a": ["x", "y", "z"], "b": ["x", "y", "z"], "c": [0, 1], "one": ["only"]}
GUARANTEES = (
    APPROX,
    PURE,
    dirdp.ZeroCDP(rho=0.05),
    dirdp.RenyiDP(order=8.0, epsilon=0.5),
    dirdp.TruncatedCDP(rho=0.05, omega=10.0),
)


def made_up(n=900):
    i = np.arange(n)
    codes = {"a": i % 3, "b": (i + (i % 10 == 0)) % 3, "c": (i // 3) % 2, "one": 0 * i}
    return {name: np.array(CATEGORIES[name])[values] for name, values in codes.items()}


RECORDS = made_up()
