"""Limits are never above the truth more often than they say."""

import math

import numpy as np
import pytest
from scipy.stats import binom

import pymc_dirdp as dirdp
from pymc_dirdp.auditing import intervals


@pytest.mark.parametrize(("n", "level"), [(10, 1e-9), (1_000_000, 0.1), (1_000_000, 1e-9)])
def test_limits_are_those_of_clopper_and_pearson(n, level):
    """Oracle: the definition, by the binomial distribution at the limit."""
    hits = np.unique([0, 1, 3, n // 2, n - 1, n])
    low, high = intervals.lower_limit(hits, n, level), intervals.upper_limit(hits, n, level)
    np.testing.assert_allclose(binom.sf(hits[1:] - 1, n, low[1:]), level, rtol=1e-6)
    # A limit within 1e-15 of 1 is a double with few digits left.
    np.testing.assert_allclose(binom.cdf(hits[:-1], n, high[:-1]), level, rtol=1e-2)
    assert low[0] == 0
    assert high[-1] == 1


def event(p, q):
    return intervals.EventLoss(np.asarray(p), np.asarray(q))


def test_events_prove_no_more_than_their_two_probabilities():
    """Oracle: the definitions, for distributions on two outcomes."""
    p, q = 0.3, 0.1
    assert dirdp.ApproxDP(epsilon=0.5, delta=0.1).loss(event(p, q)) == pytest.approx(p - math.exp(0.5) * q)
    assert dirdp.PureDP(epsilon=1).loss(event(p, q)) == pytest.approx(math.log(3))
    square = math.log(p**2 / q + (1 - p) ** 2 / (1 - q))
    assert dirdp.RenyiDP(order=2, epsilon=1).loss(event(p, q)) == pytest.approx(square)
    kl = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    assert dirdp.RenyiDP(order=1, epsilon=1).loss(event(p, q)) == pytest.approx(kl)
    assert dirdp.RenyiDP(order=1, epsilon=1).loss(event(1.0, q)) == pytest.approx(math.log(10))
    assert dirdp.RenyiDP(order=3, epsilon=1).loss(event(1.0, q)) == pytest.approx(math.log(10))
    assert dirdp.RenyiDP(order=3, epsilon=1).loss(event(0.1, 0.3)) == 0
    for kind in (dirdp.TruncatedCDP(rho=1, omega=3), dirdp.ZeroCDP(rho=1)):
        # Over the order it falls here, so the largest slope is that near 1: the divergence itself.
        assert kl * 0.99 < kind.loss(event(p, q)) <= square / 2 * 1.5
    assert intervals.epsilon_of(p, q, 0.1) == pytest.approx(math.log(2))
    assert intervals.epsilon_of(0.05, q, 0.1) == -math.inf
    orders = intervals.guaranteed_orders(1.0005)
    assert np.all((orders > 1) & (orders <= 1.0005 * (1 + 1e-15)))


def test_shares_prove_what_the_binomial_distribution_says():
    """Oracle: at the bound, the probability of so many hits or more for the first data set is the level."""
    found = intervals.epsilon_from_shares([40.0, 700.0], [3.0, 350.0], 10_000, 0.0, 1e-6)
    for epsilon, hits, others in zip(found.tolist(), (40, 700), (3, 350), strict=True):
        share = 1 / (1 + math.exp(-epsilon))
        assert binom.sf(hits - 1, hits + others, share) == pytest.approx(1e-6, rel=1e-6)
    assert intervals.epsilon_from_shares(0.0, 5.0, 100, 0.0, 1e-6) == -math.inf
    # As many outputs as the rest may have are taken off the hits; each half of the level serves one of the two.
    taken = int(next(k for k in range(100) if binom.sf(k, 20_000, 5e-5) <= 5e-9))
    expected = intervals.epsilon_from_shares(200.0 - taken, 20.0, 20_000, 0.0, 5e-9)
    assert intervals.epsilon_from_shares(200.0, 20.0, 20_000, 1e-4, 1e-8) == pytest.approx(float(expected), rel=1e-9)


X, Y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 0.0, 1.0])


def test_events_are_counted_in_both_directions():
    there = intervals.counted(intervals.Event(0, 0.5, False, intervals.LIMITS), X, Y)
    assert (there.hits_p[0], there.trials_p, there.hits_q[0], there.trials_q) == (3, 4, 1, 3)
    back = intervals.counted(intervals.Event(0, 0.5, True, intervals.LIMITS), X, Y)
    assert (back.hits_p[0], back.trials_p, back.hits_q[0], back.trials_q) == (2, 3, 1, 4)


def test_the_statistic_that_tells_most_is_chosen_and_a_few_lucky_hits_are_not():
    rng = np.random.default_rng(1)
    noise = tuple(np.sort(rng.normal(size=2_000)) for _ in range(2))
    telling = np.sort(rng.normal(1.0, size=2_000)), np.sort(rng.normal(size=2_000))
    for event in intervals.chosen(
        [noise, telling, noise], intervals.measures(None, dirdp.PureDP(epsilon=1), 1e-3), 10_000, 1e-6
    ):
        assert event.which == 1
        assert event.method in (intervals.LIMITS, intervals.SHARES)
    # Three hits against none look like an infinite loss; a common event with a clear ratio guarantees more.
    common = np.sort(np.repeat([1.0, 0.0], [1_000, 1_000])), np.sort(np.repeat([1.0, 0.0], [250, 1_750]))
    lucky = np.sort(np.repeat([1.0, 0.0], [3, 1_997])), np.zeros(2_000)
    (event,) = intervals.chosen([lucky, common], intervals.measures(None, None, 1e-3), 4_000, 1e-6)
    assert event.which == 1


MECHANISM = dirdp.mechanisms.DirichletMechanism([1.0, 1.0], 0.3)


def test_the_claim_comes_first_and_the_curve_after_it():
    claimed, small, pure, total = intervals.measures(MECHANISM, dirdp.ApproxDP(epsilon=2, delta=1e-3), [1e-5, 0])
    assert (claimed.stated, claimed.delta) == (2, 1e-3)
    assert (small.stated, small.delta) == (MECHANISM.epsilon(1e-5), 1e-5)
    assert (pure.stated, pure.delta) == (math.inf, 0)
    assert (total.stated, total.methods) == (MECHANISM.delta(0.0), (intervals.LIMITS,))
    # Curves as a claim stand in the place of the own ones.
    other = dirdp.mechanisms.DirichletMechanism([1.0, 1.0], 0.1)
    for subject in (MECHANISM, None):
        assert [m.stated for m in intervals.measures(subject, other, 1e-5)] == [other.epsilon(1e-5), other.delta(0.0)]
    (only,) = intervals.measures(None, None, 1e-5)
    assert math.isnan(only.stated)


def test_bounds_are_those_of_the_two_methods_and_of_the_measure_of_a_guarantee():
    counts, level = intervals.Counts(np.array([90.0]), 1_000, np.array([10.0]), 990), 1e-3
    measure = intervals.measures(MECHANISM, None, 1e-3)[0]
    two = intervals.epsilon_of(
        intervals.lower_limit(90, 1_000, level / 2), intervals.upper_limit(10, 990, level / 2), 1e-3
    )
    assert measure.lower(counts, intervals.LIMITS, level)[0] == pytest.approx(float(two))
    assert measure.lower(counts, intervals.SHARES, level) == pytest.approx(
        intervals.epsilon_from_shares([90], [10], 1_990, 1e-3, level)
    )
    measure = intervals.measures(MECHANISM, dirdp.RenyiDP(order=2, epsilon=0.5), 1e-5)[0]
    assert (measure.stated, measure.of_curves(MECHANISM)) == (0.5, MECHANISM.renyi(2.0))
    assert measure.of_event(0.3, 0.1) == pytest.approx(math.log(0.09 / 0.1 + 0.49 / 0.9))
