"""Right mechanisms, and how many outputs each is attacked with."""

import numpy as np
import pytest

import pymc_dirdp as dirdp

FLAT = np.ones(4)

# Distributions of finite mechanisms are drawn from one by one.
MECHANISMS = {
    "Dirichlet": (lambda: dirdp.mechanisms.DirichletMechanism(FLAT, 0.3), 40_000),
    "Dirichlet, unequal": (lambda: dirdp.mechanisms.DirichletMechanism([0.4, 2.0, 0.9], 0.2), 40_000),
    "Dirichlet, two rows": (
        lambda: dirdp.mechanisms.DirichletMechanism([[1.0, 4.0, 5.0], [4.0, 1.2, 4.0]], 0.3),
        40_000,
    ),
    "Dirichlet, floor": (lambda: dirdp.mechanisms.DirichletMechanism(FLAT, 0.5, min_count=3), 40_000),
    "Dirichlet, three records": (lambda: dirdp.mechanisms.DirichletMechanism(FLAT, 0.2, contribution=3), 40_000),
    "Dirichlet, add-remove": (
        lambda: dirdp.mechanisms.DirichletMechanism([1.0, 2.0], 0.4, adjacency="add-remove"),
        40_000,
    ),
    "Gaussian": (lambda: dirdp.mechanisms.DiscreteGaussianMechanism(FLAT, 2.0), 40_000),
    "Gaussian, add-remove": (
        lambda: dirdp.mechanisms.DiscreteGaussianMechanism(FLAT, 2.0, adjacency="add-remove"),
        40_000,
    ),
    "Geometric": (lambda: dirdp.mechanisms.GeometricMechanism(FLAT, 2.0), 40_000),
    "Geometric, add-remove": (lambda: dirdp.mechanisms.GeometricMechanism(FLAT, 2.0, adjacency="add-remove"), 40_000),
    "Zero-sum": (lambda: dirdp.mechanisms.ZeroSumGeometricMechanism(FLAT, 2.0), 40_000),
    "Hellinger": (lambda: dirdp.papers.HellingerMechanism([1.0, 1.0], 12, 2.0), 2_500),
    "Hellinger, three": (
        lambda: dirdp.papers.HellingerMechanism([1.0, 1.0, 2.0], 4, 1.5, sensitivity="global"),
        2_500,
    ),
    "Truncated": (lambda: dirdp.papers.TruncatedNoiseMechanism([1.0, 1.0], 20, 1.0), 10_000),
    "Truncated, three": (lambda: dirdp.papers.TruncatedNoiseMechanism([1.0, 1.0, 1.0], 8, 2.0), 10_000),
    "Truncated, Laplace": (
        lambda: dirdp.papers.TruncatedNoiseMechanism([1.0, 1.0], 20, 1.0, noise_kind="laplace"),
        10_000,
    ),
    "Simplex": (
        lambda: dirdp.papers.SimplexMechanism(10.0, dirdp.papers.SimplexDomain(2, eta=0.2, etabar=0.2, b=0.1)),
        40_000,
    ),
}
SLOW = {
    "Hellinger",
    "Hellinger, three",
    "Truncated, three",
    "Truncated, Laplace",
    "Gaussian, add-remove",
    "Dirichlet, floor",
}


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in MECHANISMS])
def subject(request):
    made, n = MECHANISMS[request.param]
    return made(), n


@pytest.fixture
def named():
    """A right mechanism by its name."""
    return lambda name: MECHANISMS[name][0]()
