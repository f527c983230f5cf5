"""Right mechanisms, and how many outputs each is attacked with."""

import numpy as np
import pytest

from pymc_dirdp import mechanisms, papers

FLAT = np.ones(4)
TWO_ROWS = [[1.0, 4.0, 5.0], [4.0, 1.2, 4.0]]
ADDED = {"adjacency": "add-remove"}
SLOW = pytest.mark.slow

# Distributions of finite mechanisms are drawn from one by one, so that they have fewer outputs.
MECHANISMS = {
    "Dirichlet": (lambda: mechanisms.DirichletMechanism(FLAT, 0.3), 20_000),
    "Dirichlet, unequal": (lambda: mechanisms.DirichletMechanism([0.4, 2.0, 0.9], 0.2), 20_000),
    "Dirichlet, two rows": (lambda: mechanisms.DirichletMechanism(TWO_ROWS, 0.3), 20_000),
    "Dirichlet, three records": (lambda: mechanisms.DirichletMechanism(FLAT, 0.2, contribution=3), 20_000),
    "Dirichlet, add-remove": (lambda: mechanisms.DirichletMechanism([1.0, 2.0], 0.4, **ADDED), 20_000),
    "Gaussian": (lambda: mechanisms.DiscreteGaussianMechanism(FLAT, 2.0), 20_000),
    "Geometric, add-remove": (lambda: mechanisms.GeometricMechanism(FLAT, 2.0, **ADDED), 20_000),
    "Zero-sum": (lambda: mechanisms.ZeroSumGeometricMechanism(FLAT, 2.0), 20_000),
    "Truncated": (lambda: papers.TruncatedNoiseMechanism([1.0, 1.0], 20, 1.0), 5_000),
    "Simplex": (
        lambda: papers.SimplexMechanism(10.0, papers.SimplexDomain(2, eta=0.2, etabar=0.2, b=0.1)),
        20_000,
    ),
    "Dirichlet, floor": (lambda: mechanisms.DirichletMechanism(FLAT, 0.5, min_count=3), 20_000, SLOW),
    "Hellinger": (lambda: papers.HellingerMechanism([1.0, 1.0], 12, 2.0), 2_500, SLOW),
}


@pytest.fixture(params=[pytest.param(name, marks=marks) for name, (_, _, *marks) in MECHANISMS.items()])
def subject(request):
    made, n, *_ = MECHANISMS[request.param]
    return made(), n


@pytest.fixture
def named():
    """A right mechanism by its name."""
    return lambda name: MECHANISMS[name][0]()
