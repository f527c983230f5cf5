"""The bound of rho against dense scans of curves that are known."""

import math

import numpy as np
import pytest

from pymc_dirdp.privacy.bounded_loss import RandomisedResponse
from pymc_dirdp.privacy.curves import _under_chord, rho_from_above


def pair_curve(p, q):
    loss = np.log(p / q)

    def renyi(order):
        if order == math.inf:
            return float(loss.max())
        if order == 1:
            return float(p @ loss)
        return float(np.log(p @ np.exp((order - 1) * (loss - loss.max()))) / (order - 1) + loss.max())

    return renyi


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("omega", [1.2, 3.0, 40.0, math.inf])
def test_it_is_above_every_order_and_near(seed, omega):
    rng = np.random.default_rng(seed)
    # A rare and large loss makes D / order rise before it falls.
    p, q = rng.dirichlet([0.3, 1, 5, 5]) * 0.999 + 0.00025, rng.dirichlet([0.05, 1, 5, 5]) * 0.999 + 0.00025
    curve = pair_curve(p, q)
    rho = rho_from_above(curve, omega)
    orders = 1 + np.geomspace(1e-6, min(omega, 1e4) - 1, 4000)
    exact = max(curve(order) / order for order in orders.tolist())
    assert exact * (1 - 1e-12) <= rho <= exact * 1.01


def test_some_of_these_curves_rise_before_they_fall():
    """So that the test above sees more than the divergence at 1."""
    rare = pair_curve(np.array([0.01, 0.99]), np.array([1e-6, 1 - 1e-6]))
    assert rho_from_above(rare, math.inf) > 5 * rare(1.0)


def test_randomised_response_is_worst_at_order_one():
    response = RandomisedResponse(0.8)
    assert rho_from_above(response._renyi, math.inf) == pytest.approx(response.rho(2.0), rel=3e-3)
    assert rho_from_above(response._renyi, math.inf) >= response.rho(2.0)


def test_no_loss_is_no_rho():
    assert rho_from_above(lambda order: 0.0, math.inf) == 0.0


def test_only_orders_from_one_on_are_asked_for():
    asked = []

    def renyi(order):
        asked.append(order)
        return RandomisedResponse(0.8)._renyi(order)

    rho_from_above(renyi, 5.0)
    assert min(asked) == 1.0


@pytest.mark.parametrize("slope", [1e-3, 0.05, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("offset", [-0.9, 0.0, 0.5])
def test_the_largest_value_under_a_chord_is_no_smaller_than_any_on_it(slope, offset):
    """Oracle: a dense scan; the largest value lies inside for some chords, and at an end for others."""
    a, b = 1.5, 9.0
    at_a = slope * (a - 1) * (1 + offset)
    at_b = at_a + slope * (b - a)
    x = np.linspace(a, b, 100_001)
    scan = (at_a + slope * (x - a)) / (x * (x - 1))
    assert _under_chord(a, b, at_a, at_b, b) >= scan.max() * (1 - 1e-15)
    assert _under_chord(a, b, at_a, at_b, b) == pytest.approx(scan.max(), rel=1e-8)
