"""Plans and seeded releases have the numbers that they had before the code was put into rooms.

The numbers are in `tests/reference/releases.json`. A change of them is a change of what is released, so it has to be
meant, and the changelog has to say it. `python tests/releases/test_unchanged.py` writes the file again.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from tests.planned import hair_model, planned_sample, three_questions, two_tables

REFERENCE = Path(__file__).parent.parent / "reference" / "releases.json"

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
CASES = {
    "draw": (hair_model, APPROX, {}),
    "draws": (hair_model, APPROX, {"released_draws": 3, "mechanism": Dirichlet(strategy="inflate")}),
    "in floating point": (hair_model, APPROX, {"sampler": "fast", "mechanism": Dirichlet(strategy="temper")}),
    "algorithm 1": (hair_model, dirdp.RenyiDP(order=2, epsilon=0.1), {"mechanism": Dirichlet(strategy="algorithm-1")}),
    "estimate": (hair_model, dirdp.TruncatedCDP(rho=0.1, omega=20), {"objective": "estimate", "min_count": 2}),
    "gaussian": (hair_model, dirdp.ZeroCDP(rho=0.1), {"mechanism": "gaussian"}),
    "geometric": (hair_model, dirdp.PureDP(epsilon=0.5), {"mechanism": "geometric", "released_draws": 2}),
    "private number": (hair_model, APPROX, {"adjacency": "add-remove", "n_records": 600}),
    "two tables": (two_tables, APPROX, {"weights": {"p": 1.0, "rate": 2.0}, "contribution": 1}),
    "survey": (three_questions, APPROX, {"unit": "person"}),
    "several": (hair_model, APPROX, {"contribution": 3, "mechanism": "gaussian"}),
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
