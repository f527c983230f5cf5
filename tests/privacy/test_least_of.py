"""The smaller of two bounds, curve by curve."""

import math

import numpy as np
import pytest
from scipy.special import betaln, gammaln

from pymc_dirdp.privacy.bounded_loss import LeastOf, RandomisedResponse
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.dominating_pairs import AddRemovePair, ReplaceOnePair
from pymc_dirdp.privacy.unit import SpreadRecords
from pymc_dirdp.privacy.urn import largest_urn_loss

DRAW, URN = ReplaceOnePair(2.0, 1.0, 0.2), RandomisedResponse(largest_urn_loss(1.0, 0.2, 2_000))
CURVES = LeastOf(DRAW, URN)
ORDERS = np.geomspace(1, 1e4, 60)


def test_every_curve_is_the_smaller_one():
    for one, other in ((DRAW, CURVES.urn), (CURVES.urn, DRAW)):
        assert np.all(CURVES.renyi(ORDERS) <= one.renyi(ORDERS))
        for epsilon in (0.0, 0.5, 1.0, 1.3, 3.0):
            assert CURVES.delta(epsilon) <= one.delta(epsilon)
            assert CURVES.delta(epsilon) in (one.delta(epsilon), other.delta(epsilon), 0.0)
    assert CURVES.epsilon(1e-6) == min(DRAW.epsilon(1e-6), CURVES.urn.epsilon(1e-6))
    assert CURVES.pure_epsilon == URN.pure_epsilon
    assert CURVES.delta(CURVES.pure_epsilon) == 0


@pytest.mark.parametrize("omega", [1.001, 3.0, 6.5, 100.0, math.inf])
def test_rho_bounds_every_order_and_is_close(omega):
    orders = np.geomspace(1 + 1e-9, min(omega, 1e6), 4_000)
    ratios = CURVES.renyi(orders) / orders
    assert ratios.max() <= CURVES.rho(omega) <= max(1.05 * ratios.max(), DRAW.renyi(1.0) * (1 + 1e-9))


def test_rho_of_an_urn_that_loses_next_to_nothing():
    curves = LeastOf(DRAW, RandomisedResponse(1e-9))
    assert curves.rho(math.inf) <= 1e-17


def test_draws_of_one_table_lose_no_more_than_those_of_the_table_alone():
    many = Composition(((CURVES, 40),))
    alone = Composition(((DRAW, 40),))
    assert many.epsilon(1e-6) <= alone.epsilon(1e-6) * (1 + 1e-9)
    assert many.pure_epsilon == pytest.approx(40 * URN.pure_epsilon)


def test_directions_stay():
    removing = LeastOf(AddRemovePair(1.0, 0.2), RandomisedResponse(1.0))
    there, back = removing.hockey_sticks(0.1, 20)
    assert there is not back
    # At epsilon 0 both are the total variation, which each direction rounds up by itself.
    assert there[0] == pytest.approx(back[0], rel=1e-9)
    assert np.all(there[1:] >= back[1:])
    assert removing._renyi_back(3.0) == AddRemovePair(1.0, 0.2)._renyi_back(3.0)
    same, also = CURVES.hockey_sticks(0.1, 20)
    assert same is also
    smaller = np.array([CURVES.delta(0.1 * i) for i in range(20)])
    assert np.all(same <= smaller * (1 + 1e-12))


def test_a_grid_is_convex_and_above_the_true_curve():
    """The smaller of two convex curves is not convex, and a composition needs one that is."""
    step = 0.01
    there, _ = CURVES.hockey_sticks(step, 300)
    epsilons = step * np.arange(300)
    slopes = np.diff(there) / np.diff(np.exp(epsilons))
    assert np.all(np.diff(slopes) >= -1e-15)
    # The counts of the urn at the worst two tables: all of their losses, and the largest of both directions.
    counts = np.arange(2_001.0)
    logs = [betaln(a + counts, b + 2_000 - counts) - betaln(a, b) for a, b in ((1.2, 2.0), (1.0, 2.2))]
    mass = gammaln(2_001) - gammaln(counts + 1) - gammaln(2_001 - counts)
    for p, q in (logs, logs[::-1]):
        true = [np.maximum(np.exp(mass + p) - np.exp(epsilon + mass + q), 0).sum() for epsilon in epsilons]
        assert np.all(there >= np.array(true) * (1 - 1e-9))
    smaller = np.minimum(DRAW.hockey_sticks(step, 300)[0], CURVES.urn.hockey_sticks(step, 300)[0])
    assert np.any(there < 0.9 * smaller)


def test_equal_curves_have_equal_keys():
    assert CURVES.curve_key == LeastOf(DRAW, CURVES.urn).curve_key
    assert CURVES.curve_key != LeastOf(DRAW, RandomisedResponse(9.0)).curve_key
    spread = SpreadRecords((0.1, 0.1, 0.1), 3, 5.0, 2, "replace-one")
    assert LeastOf(spread, URN).from_divergences
    assert not CURVES.from_divergences
