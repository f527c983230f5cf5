"""Laplace noise on counts: curves against many digits and integration."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from pymc_dirdp.mechanisms.geometric import LaplaceMechanism
from pymc_dirdp.privacy.guarantees import PureDP


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


@pytest.mark.parametrize("scale", [0.5, 2.0, 30.0])
@pytest.mark.parametrize(("adjacency", "cells"), [("add-remove", 1), ("replace-one", 2)])
def test_laplace_delta_by_integration(scale, adjacency, cells):
    """Oracle: E[1 - exp(epsilon - loss)]+ over the noise of each cell that changes, on a fine grid of its quantiles."""
    mechanism = LaplaceMechanism(np.ones(3), scale, adjacency=adjacency)
    n = 2001 if cells == 2 else 2_000_001
    noise = stats.laplace.ppf((np.arange(n) + 0.5) / n) * scale
    loss = (np.abs(noise + 1) - np.abs(noise)) / scale
    total = loss if cells == 1 else np.add.outer(loss, loss)
    for share in (0.0, 0.3, 0.9):
        epsilon = share * mechanism.pure_epsilon
        by_hand = np.mean(np.maximum(-np.expm1(epsilon - total), 0))
        assert mechanism.delta(epsilon) == pytest.approx(by_hand, rel=5e-3, abs=1e-7)
    assert mechanism.delta(mechanism.pure_epsilon) == 0
    assert mechanism.satisfies(PureDP(epsilon=mechanism.pure_epsilon))


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
