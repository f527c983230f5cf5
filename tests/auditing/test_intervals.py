"""Limits are never above the truth more often than they say."""

import math

import numpy as np
import pytest
from scipy.stats import beta, binom

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.intervals import (
    EventLoss,
    epsilon_from_shares,
    epsilon_of,
    guaranteed_orders,
    lower_limit,
    upper_limit,
)


@pytest.mark.parametrize("n", [10, 1_000, 1_000_000])
@pytest.mark.parametrize("level", [0.1, 1e-9])
def test_limits_are_those_of_clopper_and_pearson(n, level):
    """Oracle: the definition, by the binomial distribution at the limit."""
    hits = np.unique([0, 1, 3, n // 2, n - 1, n])
    low, high = lower_limit(hits, n, level), upper_limit(hits, n, level)
    np.testing.assert_allclose(binom.sf(hits[1:] - 1, n, low[1:]), level, rtol=1e-6)
    # A limit within 1e-15 of 1 is a double with few digits left.
    np.testing.assert_allclose(binom.cdf(hits[:-1], n, high[:-1]), level, rtol=1e-2)
    assert low[0] == 0
    assert high[-1] == 1
    np.testing.assert_allclose(high, beta.isf(level, hits + 1, np.maximum(n - hits, 1e-300)), rtol=1e-6)


def event(p, q):
    return EventLoss(np.asarray(p), np.asarray(q))


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
    assert epsilon_of(p, q, 0.1) == pytest.approx(math.log(2))
    assert epsilon_of(0.05, q, 0.1) == -math.inf
    orders = guaranteed_orders(1.0005)
    assert np.all((orders > 1) & (orders <= 1.0005 * (1 + 1e-15)))


def test_shares_prove_what_the_binomial_distribution_says():
    """Oracle: at the bound, the probability of so many hits or more for the first data set is the level."""
    found = epsilon_from_shares([40.0, 700.0], [3.0, 350.0], 10_000, 0.0, 1e-6)
    for epsilon, hits, others in zip(found.tolist(), (40, 700), (3, 350), strict=True):
        share = 1 / (1 + math.exp(-epsilon))
        assert binom.sf(hits - 1, hits + others, share) == pytest.approx(1e-6, rel=1e-6)
    assert epsilon_from_shares(0.0, 5.0, 100, 0.0, 1e-6) == -math.inf
    # As many outputs as the rest may have are taken off the hits; each half of the level serves one of the two.
    taken = int(next(k for k in range(100) if binom.sf(k, 20_000, 5e-5) <= 5e-9))
    expected = epsilon_from_shares(200.0 - taken, 20.0, 20_000, 0.0, 5e-9)
    assert epsilon_from_shares(200.0, 20.0, 20_000, 1e-4, 1e-8) == pytest.approx(float(expected), rel=1e-9)


def hits(rng, repeats, n, p, q):
    """Outputs with an event, when each of `n` comes from either data set by a coin."""
    of_x = rng.binomial(n, 0.5, size=repeats)
    return rng.binomial(of_x, p), rng.binomial(n - of_x, q)


@pytest.mark.parametrize(("epsilon", "delta", "q"), [(1.0, 0.0, 0.3), (1.0, 0.0, 0.001), (0.5, 0.01, 0.05)])
def test_shares_are_wrong_as_seldom_as_stated(epsilon, delta, q):
    """40,000 repeats at a level of 0.1, where the event attains what is stated."""
    rng, n, repeats, level = np.random.default_rng(4), 4_000, 40_000, 0.1
    p = math.exp(epsilon) * q + delta
    wrong = np.sum(epsilon_from_shares(*hits(rng, repeats, n, p, q), n, delta, level) > epsilon)
    assert wrong <= binom.isf(1e-6, repeats, level)
    # It is not idle: with 1.3 times the odds it is above what is stated in most repeats of the commoner events.
    if q > 0.01:
        more = epsilon_from_shares(*hits(rng, repeats, n, min(1.3 * p, 1.0), q), n, delta, level)
        assert np.mean(more > epsilon) > 0.5


def test_shares_are_sharper_than_two_limits_where_the_event_is_rare():
    n, level = 100_000, 1e-6
    two = epsilon_of(lower_limit(400, n, level / 2), upper_limit(100, n, level / 2), 0.0)
    assert epsilon_from_shares(400.0, 100.0, 2 * n, 0.0, level) > two + 0.15
