"""A wide table of four columns, of which one has a single category, and guarantees of every kind."""

import numpy as np

import pymc_dirdp as dirdp

CATEGORIES = {"a": ["x", "y", "z"], "b": ["x", "y", "z"], "c": [0, 1], "one": ["only"]}
KINDS = (
    dirdp.ApproxDP(epsilon=1.0, delta=1e-6),
    dirdp.PureDP(epsilon=1.0),
    dirdp.ZeroCDP(rho=0.05),
    dirdp.RenyiDP(order=8.0, epsilon=0.5),
    dirdp.TruncatedCDP(rho=0.05, omega=10.0),
)
TARGET = KINDS[0]


def made_up(n=900):
    i = np.arange(n)
    codes = {"a": i % 3, "b": (i + (i % 10 == 0)) % 3, "c": (i // 3) % 2, "one": 0 * i}
    return {name: np.array(CATEGORIES[name])[values] for name, values in codes.items()}


RECORDS = made_up()
