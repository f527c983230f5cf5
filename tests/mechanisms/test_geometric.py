"""Two-sided geometric noise: curves by summation over integers, distribution, calibration."""

import math

import mpmath as mp
import numpy as np
import pytest

from pymc_dirdp.mechanisms.geometric import GeometricMechanism, LaplaceMechanism
from pymc_dirdp.privacy.guarantees import PureDP


def pair(scale):
    """The distributions of one noisy cell at neighbouring counts, on integers that hold all but 1e-16."""
    reach = int(40 * scale) + 50
    g = np.arange(-reach, reach + 2)
    p, q = np.exp(-np.abs(g) / scale), np.exp(-np.abs(g - 1) / scale)
    return p / p.sum(), q / q.sum()


@pytest.mark.parametrize("scale", [0.3, 2.0, 40.0])
@pytest.mark.parametrize(("adjacency", "cells"), [("add-remove", 1), ("replace-one", 2)])
@pytest.mark.thorough
def test_curves_by_summation(scale, adjacency, cells):
    mechanism = GeometricMechanism(np.ones(3), scale, adjacency=adjacency)
    p, q = pair(mechanism.scale)
    if cells == 2:
        # The other cell moves the other way; by symmetry its distributions are the same pair.
        p, q = np.multiply.outer(p, p).ravel(), np.multiply.outer(q, q).ravel()
    for order in (1.5, 4.0, 30.0):
        by_hand = math.log(math.fsum(q * np.exp(order * (np.log(p) - np.log(q))))) / (order - 1)
        assert mechanism.renyi(order) == pytest.approx(by_hand, rel=1e-7)
    assert mechanism.renyi(1) == pytest.approx(math.fsum(p * (np.log(p) - np.log(q))), rel=1e-7)
    for share in (0.0, 0.2, 0.6, 0.99, 1.0):
        epsilon = share * mechanism.pure_epsilon
        by_hand = math.fsum(np.maximum(p - math.exp(epsilon) * q, 0))
        assert mechanism.delta(epsilon) == pytest.approx(by_hand, rel=1e-6, abs=1e-12)
    assert mechanism.satisfies(PureDP(epsilon=mechanism.pure_epsilon))
    orders = 1 + np.geomspace(1e-6, 1e4, 100)
    assert np.all(mechanism.renyi(orders) / orders <= mechanism.rho(math.inf) * (1 + 1e-12))


def test_it_loses_no_more_than_laplace_noise_of_its_scale():
    geometric, laplace = GeometricMechanism(np.ones(3), 2.0), LaplaceMechanism(np.ones(3), 2.0)
    assert geometric.pure_epsilon == laplace.pure_epsilon
    # It uses the guarantee whole, and is less noisy.
    assert geometric.noise_sd < laplace.noise_sd


@pytest.mark.parametrize("scale", [0.2, 1.5])
@pytest.mark.parametrize("cells", [1, 3])
def test_the_noise_of_some_cells_goes_no_further_than_is_looked(scale, cells):
    """Exact sums of the tail, with 60 digits: beyond the reach there is a probability below 2 exp(-60)."""
    reach = math.floor(GeometricMechanism(np.ones(2), scale)._sum_reach(cells))
    with mp.workdps(60):
        q = mp.exp(-1 / mp.mpf(scale))
        one = {z: (1 - q) / (1 + q) * q ** abs(z) for z in range(-reach, reach + 1)}
        # What the list leaves out of one cell is counted in full, for every cell.
        beyond = cells * 2 * q ** (reach + 1) / (1 + q)
        distribution = {0: mp.mpf(1)}
        for _ in range(cells):
            distribution = {
                z: mp.fsum(one[z - x] * p for x, p in distribution.items() if z - x in one)
                for z in range(-reach - max(distribution), reach + max(distribution) + 1)
            }
        beyond += mp.fsum(p for z, p in distribution.items() if abs(z) > reach)
        assert beyond < 2 * mp.exp(-60)
