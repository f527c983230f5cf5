"""Measures come in their order, and say what is stated of them."""

import math

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.intervals import (
    LIMITS,
    SHARES,
    Counts,
    epsilon_from_shares,
    epsilon_of,
    lower_limit,
    measures,
    upper_limit,
)

MECHANISM = dirdp.mechanisms.DirichletMechanism([1.0, 1.0], 0.3)


def test_the_claim_comes_first_and_the_curve_after_it():
    claimed, small, pure, total = measures(MECHANISM, dirdp.ApproxDP(epsilon=2, delta=1e-3), [1e-5, 0])
    assert (claimed.stated, claimed.delta) == (2, 1e-3)
    assert (small.stated, small.delta) == (MECHANISM.epsilon(1e-5), 1e-5)
    assert (pure.stated, pure.delta) == (math.inf, 0)
    assert total.stated == MECHANISM.delta(0.0)
    assert total.methods == (LIMITS,)


def test_curves_as_a_claim_stand_in_the_place_of_the_own_ones():
    other = dirdp.mechanisms.DirichletMechanism([1.0, 1.0], 0.1)
    assert [m.stated for m in measures(MECHANISM, other, 1e-5)] == [other.epsilon(1e-5), other.delta(0.0)]
    assert [m.stated for m in measures(None, other, 1e-5)] == [other.epsilon(1e-5), other.delta(0.0)]
    (only,) = measures(None, None, 1e-5)
    assert math.isnan(only.stated)


def test_bounds_are_those_of_the_two_methods():
    counts, level = Counts(np.array([90.0]), 1_000, np.array([10.0]), 990), 1e-3
    measure = measures(MECHANISM, None, 1e-3)[0]
    two = epsilon_of(lower_limit(90, 1_000, level / 2), upper_limit(10, 990, level / 2), 1e-3)
    assert measure.lower(counts, LIMITS, level)[0] == pytest.approx(float(two))
    assert measure.lower(counts, SHARES, level) == pytest.approx(epsilon_from_shares([90], [10], 1_990, 1e-3, level))


def test_other_guarantees_are_bounded_in_their_own_measure():
    claim = dirdp.RenyiDP(order=2, epsilon=0.5)
    measure = measures(MECHANISM, claim, 1e-5)[0]
    assert measure.stated == 0.5
    assert measure.of_curves(MECHANISM) == MECHANISM.renyi(2.0)
    assert measure.of_event(0.3, 0.1) == pytest.approx(math.log(0.09 / 0.1 + 0.49 / 0.9))
