"""A private draw in every round: its guarantee for the horizon, and what it costs."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.design import EveryRound
from pymc_dirdp.sampling.bits import Bits

GUARANTEE = dirdp.RenyiDP(epsilon=0.5, order=2)


def divergence_of_a_run(policy, rounds, order=2):
    """Rényi divergence of all draws of one arm: the first reward is 0 or 1, and all others are 1. Oracle."""
    a, b, r = *policy.prior, policy.mechanism.r
    total = 0.0
    for seen in range(1, rounds):
        # The draws before a round are made of the rewards of all earlier ones.
        x, y = ((r * s + a, r * (seen - s) + b) for s in (seen, seen - 1))
        mixed = [order * one - (order - 1) * other for one, other in zip(x, y, strict=True)]
        assert min(mixed) > 0
        total += (betaln(*mixed) - order * betaln(*x) + (order - 1) * betaln(*y)) / (order - 1)
    return total


def test_all_rounds_together_keep_the_guarantee_and_without_composition_they_do_not():
    policy = EveryRound(GUARANTEE, horizon=8)
    assert policy.privacy.satisfies(GUARANTEE)
    assert divergence_of_a_run(policy, 8) <= 0.5
    alone = EveryRound(GUARANTEE, horizon=1)
    assert divergence_of_a_run(alone, 2) <= 0.5
    assert divergence_of_a_run(alone, 8) > 0.5


def test_a_draw_has_the_distribution_that_the_report_states():
    policy, bits = EveryRound(GUARANTEE, horizon=4, prior=(2.0, 1.0)), Bits(np.random.SeedSequence(5))
    draws = [policy.draw((10, 30), bits) for _ in range(200)]
    r = policy.mechanism.r
    assert stats.kstest(draws, stats.beta(30 * r + 2, 10 * r + 1).cdf).pvalue > 1e-3
    assert stats.kstest(draws, stats.beta(10 * r + 1, 30 * r + 2).cdf).pvalue < 1e-9


def test_it_is_for_one_horizon():
    policy = EveryRound(dirdp.RenyiDP(epsilon=1, order=2), horizon=50)
    runs = dirdp.simulate_bandit(policy, [0.9, 0.1], 50, 30, random_seed=1, progressbar=False)
    assert (runs.pulls.sum(axis=1) == 50).all()
    assert (np.diff(runs.regret, axis=1) >= 0).all()
    with pytest.raises(dirdp.errors.ArgumentError, match="longer horizon"):
        dirdp.simulate_bandit(policy, [0.9, 0.1], 51, 2, progressbar=False)


def test_a_draw_has_no_pure_privacy():
    with pytest.raises(dirdp.errors.UnattainableError):
        EveryRound(dirdp.PureDP(epsilon=1), horizon=10)
    with pytest.raises(dirdp.errors.ArgumentError, match="prior"):
        EveryRound(GUARANTEE, 10, prior=(0, 1))
    assert math.isinf(EveryRound(GUARANTEE, 10).epsilon)
