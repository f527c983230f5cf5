"""Divergences of Gamma and Beta distributions where terms are no doubles, cancel, or belong to large parameters."""

import math

import mpmath as mp
import numpy as np
import pytest

from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.divergences import LogitLoss, renyi_add, renyi_remove
from pymc_dirdp.privacy.dominating_pairs import DominatingPair

# Rényi divergences.


def exact(order, a, r, *, adds, digits=60):
    """The closed form for records that appear, or disappear: infinite from the pole on."""
    with mp.workdps(digits):
        order, a, r = map(mp.mpf, (order, a, r))
        rise = mp.loggamma(a + r) - mp.loggamma(a)
        if order == 1:
            return float(r * mp.digamma(a + r) - rise if adds else rise - r * mp.digamma(a))
        if adds:
            total = (order - 1) * mp.loggamma(a) - order * mp.loggamma(a + r) + mp.loggamma(a + order * r)
            return float(total / (order - 1))
        left = a - (order - 1) * r
        if left <= 0:
            return math.inf
        return float((mp.loggamma(left) + (order - 1) * mp.loggamma(a + r) - order * mp.loggamma(a)) / (order - 1))


@pytest.mark.parametrize("order", [1e150, 1e300])
@pytest.mark.parametrize("a", [1e-100, 1.0, 1e10, 1e100])
@pytest.mark.parametrize("r", [1e-100, 1.0, 1e10])
def test_a_divergence_of_a_huge_order_is_a_number_and_not_below_the_truth(order, a, r):
    assert renyi_add(order, a, r) >= exact(order, a, r, adds=True, digits=400) * (1 - 1e-11)


@pytest.mark.parametrize("order", [2.0, 1e16, 1e18, 1e25])
@pytest.mark.parametrize(("a", "r"), [(1.0, 1e-17), (1e3, 1e-14), (1e-3, 1e-20), (0.3, 1e-12)])
def test_a_concentration_that_is_lost_against_the_prior_still_counts_at_large_orders(order, a, r):
    """The direction was once read off `a + r > a`, and the divergence came out a hundred times too small."""
    assert renyi_add(order, a, r) == pytest.approx(exact(order, a, r, adds=True, digits=120), rel=4e-11, abs=0)


@pytest.mark.parametrize(("a", "r"), [(1.6e-6, 5.6e5), (1e-3, 1e3), (0.3, 1e-6), (2.0, 0.7), (1e5, 3e4), (1e-6, 1e-8)])
def test_next_to_its_pole_and_to_order_1_a_divergence_keeps_its_digits(a, r):
    """At a = 1.6e-6, r = 5.6e5 and order 1 it was once 1.9e-5 too small, because `a - (order - 1) r` was rounded."""
    orders = {1.0, 1 + 1e-9, 1 + a / r}
    for share in (0.5, 1e-3, 1e-9, 1e-13):
        orders |= {1 + a / r * (1 - share), 1 + a / r * (1 + share), 1 + a / r * share}
    for order in sorted(orders):
        assert renyi_remove(order, a, r) == pytest.approx(exact(order, a, r, adds=False), rel=4e-11)
        assert renyi_add(order, a, r) == pytest.approx(exact(order, a, r, adds=True), rel=4e-11)


def test_divergences_of_pairs_keep_ten_digits_everywhere():
    """Over r from 1e-8 to 1e4, alpha from 1e-3 to 1e6; orders near 1, large, and up to the pole."""
    rng = np.random.default_rng(0)
    for i in range(150):
        a, b = (10 ** rng.uniform(-3, 6, 2)).tolist()
        r, b = float(10 ** rng.uniform(-8, 4)), a if i % 3 == 0 else b
        near_pole = 1 + min(a, b) / r * float(rng.choice([0.5, 0.999, 1 - 1e-9, 1.01]))
        order = (1 + float(10 ** rng.uniform(-6, 0)), float(10 ** rng.uniform(0.1, 4)), near_pole)[i // 3 % 3]
        add_a, add_b, remove_a, remove_b = (exact(order, cell, r, adds=adds) for adds in (1, 0) for cell in (a, b))
        assert DominatingPair(a, b, r).renyi(order) == pytest.approx(max(add_a + remove_b, add_b + remove_a), rel=1e-10)
        assert DominatingPair(a, math.inf, r).renyi(order) == pytest.approx(max(add_a, remove_a), rel=1e-10)


# Hockey sticks.


@pytest.mark.parametrize("epsilon", [1.0, 5.0, 12.0, 20.0])
def test_a_composition_counts_both_orders_in_its_far_tail(epsilon):
    """One part loses more one way and the other the other way; below the grid one order alone had counted."""
    together = Composition(((DominatingPair(50.0, math.inf, 0.01), 1), (DominatingPair(math.inf, 0.5, 0.1), 1)))
    assert together.delta(epsilon) >= DominatingPair(0.5, math.inf, 0.1).delta(epsilon)


@pytest.mark.parametrize("seed", range(2))
def test_tails_and_the_integral_of_the_density_agree(seed):
    """Two ways that share no formula, where a difference of tails keeps its digits; parameters from 1e-3 to 1e4."""
    rng = np.random.default_rng(seed)
    compared = 0
    for i in range(100):
        loses, gains = np.sort(10 ** rng.uniform(-3, 4, 2)).tolist()
        r = float(10 ** rng.uniform(-4, 3))
        loss = LogitLoss(*((loses, gains), (loses, math.inf), (math.inf, gains))[i % 3], r)
        epsilons = np.sort(np.append(0.0, r * 10 ** rng.uniform(-4, 1, 5) / min(loses, 1.0)))
        tails, trusted = loss._difference(epsilons, np.exp(np.minimum(epsilons, 600.0)))
        # Tails of SciPy have about 11 digits, of which a difference loses up to three.
        np.testing.assert_allclose(loss._integrate(epsilons)[trusted], tails[trusted], rtol=2e-8, atol=1e-290)
        compared += int(trusted.sum())
    assert compared > 150
