"""Plans and seeded releases hold the numbers that they held before the code was put into rooms.

The numbers are in `tests/reference/releases.json`. A change of them is a change of what is released, so it has to be
meant, and the changelog has to say it. `python tests/releases/test_unchanged.py` writes the file again.

Some numbers were written again where a change of what is released was meant; the history of that file has the reasons.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from tests.planned import planned_sample

# The counts of the eyes descend in the order in which the data have always been printed.
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.CategoriesFromDataWarning")

REFERENCE = Path(__file__).parent.parent / "reference" / "releases.json"
HAIR, EYES = ["black", "brown", "red", "blond"], ["brown", "blue", "hazel", "green"]
COUNTS = np.array([[68, 20, 15, 5], [119, 84, 54, 29], [26, 17, 14, 14], [7, 94, 10, 16]])


def one_row():
    with pm.Model(coords={"hair": HAIR}) as model:
        p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
        pm.Multinomial("students", n=592, p=p, observed=COUNTS.sum(axis=1))
    return model


def one_rate():
    with pm.Model() as model:
        theta = pm.Beta("theta", 2, 3)
        pm.Binomial("heads", n=100, p=theta, observed=37)
    return model


def two_tables():
    """Hair, and eyes given hair: two tables with the same people."""
    hair = np.repeat(np.arange(4), COUNTS.sum(axis=1))
    eyes = np.concatenate([np.repeat(np.arange(4), row) for row in COUNTS])
    with pm.Model(coords={"hair": HAIR, "eyes": EYES}) as model:
        p = pm.Dirichlet("p", a=np.ones(4), dims="hair")
        q = pm.Dirichlet("q", a=np.full((4, 4), 0.5), dims=("hair", "eyes"))
        seen = pm.Categorical("h", p=p, observed=hair)
        pm.Categorical("e", p=q[seen], observed=eyes)
    return model


def survey():
    """Ten people with an answer to each of three items."""
    answers = (np.arange(30).reshape(10, 3) * 7) % 5 % 3
    with pm.Model(coords={"person": range(10), "item": ["a", "b", "c"], "answer": ["no", "maybe", "yes"]}) as model:
        p = pm.Dirichlet("p", a=np.ones((3, 3)), dims=("item", "answer"))
        pm.Categorical("x", p=p, observed=answers, dims=("person", "item"))
    return model


APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
CASES = {
    "draw": (one_row, APPROX, {}),
    "draws": (one_row, APPROX, {"released_draws": 3, "mechanism": Dirichlet(strategy="inflate")}),
    "in floating point": (one_row, APPROX, {"sampler": "fast", "mechanism": Dirichlet(strategy="temper")}),
    "algorithm 1": (one_row, dirdp.RenyiDP(order=2, epsilon=0.1), {"mechanism": Dirichlet(strategy="algorithm-1")}),
    "estimate": (one_row, dirdp.TruncatedCDP(rho=0.1, omega=20), {"objective": "estimate", "min_count": 2}),
    "gaussian": (one_row, dirdp.ZeroCDP(rho=0.1), {"mechanism": "gaussian"}),
    "geometric": (one_row, dirdp.PureDP(epsilon=0.5), {"mechanism": "geometric", "released_draws": 2}),
    "auto": (two_tables, APPROX, {"mechanism": "auto", "unit": 0}),
    "rate": (one_rate, APPROX, {"adjacency": "add-remove", "n_records": 100}),
    "two tables": (two_tables, APPROX, {"weights": {"p": 1.0, "q": 2.0}, "contribution": 1}),
    "survey": (survey, APPROX, {"unit": "person"}),
    "several": (one_row, APPROX, {"contribution": 3, "mechanism": "gaussian"}),
}


ORDERS = np.array([1.0, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256])
EPSILONS = np.array([0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 8, 10])
DELTAS = np.array([1e-4, 1e-5, 1e-6, 1e-8, 1e-10])


def numbers(tree):
    """All numbers of a tree, by their place, and those of its curves."""
    found = {}
    for group in tree.subtree:
        for name, value in group.attrs.items():
            if isinstance(value, int | float):
                found[f"{group.path}@{name}"] = value
        for name, values in group.data_vars.items():
            if values.dtype.kind in "iuf":
                found[f"{group.path}/{name}"] = values.values.tolist()
    curves = dirdp.interop.as_mechanism(tree)
    at_points = {
        "renyi_divergence": curves.renyi(ORDERS),
        "delta": curves.delta(EPSILONS),
        "epsilon_at": curves.epsilon(DELTAS),
        "best_order_at": curves.best_order(DELTAS),
    }
    return found | {f"/privacy/{name}": values.tolist() for name, values in at_points.items()}


def released(name):
    build, guarantee, options = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dirdp.errors.SeededReleaseWarning)
        return numbers(planned_sample(guarantee, build(), random_seed=20261121, **options))


@pytest.mark.parametrize("name", CASES)
def test_release_is_the_same(name):
    before, now = json.loads(REFERENCE.read_text(encoding="utf-8"))[name], released(name)
    assert set(now) == set(before)
    for place, value in before.items():
        # Solvers of another SciPy, or on another processor, end in other last digits (1e-7 of r was seen); a draw or a
        # count would differ by far more. A bound is flat around its best order, so that moves more than the bound.
        rtol = 1e-3 if place.endswith("/best_order_at") else 3e-6
        np.testing.assert_allclose(now[place], value, rtol=rtol, atol=1e-300, err_msg=place)


if __name__ == "__main__":
    REFERENCE.write_text(json.dumps({name: released(name) for name in CASES}, indent=1) + "\n", encoding="utf-8")
