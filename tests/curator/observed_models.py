"""Models whose records the curator sees."""

import numpy as np
import pymc as pm

HAIR = np.array([108, 286, 71, 127])  # Snee (1974)
RNG = np.random.default_rng(4)
N = 90
A = RNG.integers(0, 3, N)
B = (RNG.random(N) < 0.2 + 0.3 * A).astype(int)
C = (A + B + RNG.integers(0, 2, N)) % 4


def hair_model(counts=HAIR, prior=(1, 1, 1, 1)):
    with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
        p = pm.Dirichlet("p", a=list(prior), dims="hair")
        pm.Multinomial("students", n=int(sum(counts)), p=p, observed=counts, dims="hair")
        pm.Deterministic("odds", p / (1 - p), dims="hair")
    return model


def admissions_model():
    with pm.Model(coords={"department": list("ABC")}) as model:
        rate = pm.Beta("rate", 1, 2, dims="department")
        pm.Binomial("admitted", n=[933, 585, 918], p=rate, observed=[601, 370, 322], dims="department")
    return model


def network():
    """Every kind of single record, and rows that the records' parents decide."""
    with pm.Model(coords={"A": list("xyz"), "B": ["no", "yes"], "C": list("pqrs"), "record": np.arange(N)}) as model:
        p_a = pm.Dirichlet("p_a", np.ones(3), dims="A")
        p_b = pm.Beta("p_b", 1, 1, dims="A")
        p_c = pm.Dirichlet("p_c", np.full((3, 2, 4), 0.5), dims=("A", "B", "C"))
        a = pm.Categorical("a", p=p_a, observed=A, dims="record")
        b = pm.Bernoulli("b", p=p_b[a], observed=B)
        pm.Categorical("c", p=p_c[a, b], observed=C)
        pm.Deterministic("lift", p_b[2] - p_b[0])
    return model
