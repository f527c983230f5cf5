"""Laplace noise on counts: curves against many digits; test_contract.py has their deltas."""

import math

import mpmath as mp
import numpy as np
import pytest

from pymc_dirdp.mechanisms.geometric import LaplaceMechanism


@pytest.mark.parametrize("u", [1e-9, 1e-5, 0.01, 0.4, 3.0, 40.0])
@pytest.mark.parametrize("order", [1.0, 1 + 1e-6, 1.5, 4.0, 300.0])
def test_laplace_divergence_with_fifty_digits(u, order):
    with mp.workdps(60):
        u_, o = mp.mpf(u), mp.mpf(order)
        if order == 1:
            exact = u_ + mp.expm1(-u_)
        else:
            inside = (o * mp.exp((o - 1) * u_) + (o - 1) * mp.exp(-o * u_)) / (2 * o - 1)
            exact = mp.log(inside) / (o - 1)
    mechanism = LaplaceMechanism(np.ones(2), 1 / u, adjacency="add-remove")
    assert mechanism.renyi(order) == pytest.approx(float(exact), rel=1e-9)


def test_two_cells_lose_less_than_one_that_moves_twice():
    """ERRATA P1.11: twice the scalar divergence at sensitivity 1, not that at sensitivity 2."""
    mechanism = LaplaceMechanism(np.ones(3), 2.0)
    loose = LaplaceMechanism(np.ones(3), 1.0, adjacency="add-remove")
    assert mechanism.renyi(3) < loose.renyi(3)
    assert mechanism.pure_epsilon == loose.pure_epsilon


def test_the_least_rho_of_laplace_noise_is_its_kl():
    """D / order falls in the order, over a grid (Theory, Theorem 7)."""
    for scale in (0.05, 0.5, 2.0, 100.0):
        mechanism = LaplaceMechanism(np.ones(2), scale)
        orders = 1 + np.geomspace(1e-6, 1e4, 200)
        assert np.all(mechanism.renyi(orders) / orders <= mechanism.rho(math.inf) * (1 + 1e-12))
