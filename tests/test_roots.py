"""Roots end on the safe side, from either end."""

import math

import pytest

from pymc_dirdp.conversion import best_order, epsilon_at, log_delta_at
from pymc_dirdp.roots import least_epsilon, log_excess, safe_root


@pytest.mark.parametrize(("safe", "unsafe"), [(1e-3, 10.0), (10.0, 1e-3)])
@pytest.mark.parametrize("root", [0.002, 0.7, math.pi, 9.99])
@pytest.mark.parametrize("steep", [1e-3, 1.0, 1e6])
def test_ends_on_the_safe_side_and_close(safe, unsafe, root, steep):
    sign = 1 if safe < unsafe else -1
    found = safe_root(lambda x: sign * steep * (x - root), safe=safe, unsafe=unsafe)
    assert sign * (found - root) <= 0
    assert found == pytest.approx(root, rel=1e-10)


def test_a_jump_to_infinity_is_no_obstacle():
    found = safe_root(lambda x: -1.0 if x <= 2 else math.inf, safe=1.0, unsafe=5.0)
    assert 2 * (1 - 1e-9) < found <= 2


def test_a_loose_tolerance_is_safe_too():
    evaluations = []

    def excess(x):
        evaluations.append(x)
        return x - 0.7

    found = safe_root(excess, safe=0.1, unsafe=3.0, rtol=1e-3)
    assert 0.7 * (1 - 0.05) < found <= 0.7
    assert len(evaluations) < 20


@pytest.mark.parametrize(
    ("loss", "allowed"), [(1.0, 1.0), (0.0, 1e-300), (1.0, 1.0 + 2**-52), (0.1 + 0.2, 0.3 + 2**-52)]
)
def test_the_sign_of_the_excess_is_the_comparison(loss, allowed):
    assert (log_excess(loss, allowed) <= 0) == (loss <= allowed)
    assert log_excess(math.nextafter(allowed, math.inf), allowed) > 0


def test_least_epsilon_of_a_known_curve():
    epsilon = least_epsilon(lambda e: math.exp(-3 * e), 1e-6)
    assert math.exp(-3 * epsilon) <= 1e-6
    assert epsilon == pytest.approx(math.log(1e6) / 3, rel=1e-9)
    assert least_epsilon(lambda e: 1e-7, 1e-6) == 0.0


@pytest.mark.parametrize("rho", [1e-6, 0.01, 1.0, 40.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_the_best_order_is_that_of_a_fine_grid(rho, delta):
    """Oracle: 200,000 orders."""
    import numpy as np

    orders = 1 + np.exp(np.linspace(-12, 12, 200_000))
    bounds = orders * rho + np.log(orders - 1) - (math.log(delta) + orders * np.log(orders)) / (orders - 1)
    order = best_order(lambda order: epsilon_at(order, order * rho, delta))
    assert epsilon_at(order, order * rho, delta) <= max(0.0, bounds.min()) * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("order", [1.01, 2.0, 30.0])
def test_both_directions_of_the_conversion_are_one(order):
    epsilon = epsilon_at(order, 0.3, 1e-7)
    assert log_delta_at(order, 0.3, epsilon) == pytest.approx(math.log(1e-7), rel=1e-9)
    assert epsilon_at(order, 0.0, 0.999) == 0.0
    assert log_delta_at(order, 50.0, 0.0) == 0.0


def test_the_conversion_is_never_below_the_truth_of_a_gaussian():
    """Oracle: the Gaussian mechanism, whose delta is a difference of two tails."""
    from scipy.stats import norm

    for mu in (0.1, 1.0, 3.0):
        for epsilon in (0.0, 0.5, 2.0):
            exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
            order = best_order(lambda o, e=epsilon, m=mu: log_delta_at(o, o * m**2 / 2, e))
            assert math.exp(log_delta_at(order, order * mu**2 / 2, epsilon)) >= exact
