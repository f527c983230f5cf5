"""Odds and probabilities in words are never below the true ones."""

import math
import re

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.privacy.odds import DELTA, Odds, chance, delta_of, randomness


def noise(epsilon, cells=3):
    return GeometricMechanism.for_guarantee(dirdp.PureDP(epsilon=epsilon), prior=np.ones((1, cells)))


def percent(text):
    """The probability that is said, and what is missing to 1."""
    if found := re.fullmatch(r"([\d.]+) %", text):
        return float(found[1]) / 100
    if found := re.fullmatch(r"1 - exp\(-([\d.e+]+)\)", text):
        return 1 - math.exp(-float(found[1]))
    return 1 - float(re.fullmatch(r"1 - ([\d.e-]+)", text)[1])


@pytest.mark.parametrize("log_odds", [0.0, 1e-9, 0.1, 0.5, 3.0, 6.9, 7.0, 30.0, 40.0, 300.0, 709.0, 710.0, 1e4, 1e300])
def test_a_chance_is_from_above_and_near_and_never_certain(log_odds):
    """Oracle: it is 1 - 1 / (1 + exp(log_odds)), and the logarithm of what is missing is nearly -log_odds."""
    text, true = chance(log_odds), 1 / (1 + math.exp(-log_odds))
    assert true * (1 - 1e-15) <= percent(text) <= min(true + 0.1 * (1 - true) + 1e-3 * (true < 0.999), 1)
    assert "100 %" not in text
    if found := re.fullmatch(r"1 - exp\(-(.*)\)", text):
        assert log_odds <= float(found[1]) <= log_odds * 1.001 + 1e-9
    elif log_odds > 7:
        missing = float(text.removeprefix("1 - "))
        assert 0.89 * math.exp(-log_odds) < missing <= math.exp(-log_odds)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
def test_without_a_probability_that_is_left_out_the_factor_is_that_of_the_largest_loss(epsilon):
    mechanism = noise(epsilon)
    assert Odds(mechanism, 0.0, "a").log_factor == mechanism.pure_epsilon
    text = str(Odds(mechanism, 0.0, "a"))
    assert "except" not in text
    factor = float(re.match(r"([\d.e+]+) at most", text)[1])
    assert math.exp(mechanism.pure_epsilon) <= factor <= 1.011 * math.exp(mechanism.pure_epsilon)


class NormalLoss:
    """The curve of a loss that is normal for both neighbours, with mean mu^2 / 2 and standard deviation mu."""

    pure_epsilon = math.inf

    def __init__(self, mu):
        self.mu = mu

    def delta(self, epsilon):
        shift, mean = epsilon / self.mu, self.mu / 2
        return norm.cdf(mean - shift) - math.exp(epsilon) * norm.cdf(-mean - shift)

    def epsilon(self, delta):
        return brentq(lambda epsilon: self.delta(epsilon) - delta, -50.0, 100.0, xtol=1e-13)


@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.1])
@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_the_factor_holds_but_for_the_probability(mu, delta):
    """Oracle: the quantile of the loss, in closed form."""
    odds = Odds(NormalLoss(mu), delta, "the records of one person")
    factor, quantile = odds.log_factor, mu**2 / 2 + mu * norm.isf(delta)
    assert quantile <= factor < quantile + 0.4 * mu + 0.1
    assert f"except with a probability of at most {delta:g}" in str(odds)


def test_a_guarantee_from_which_no_bound_follows_says_so():
    """A divergence of order 1 bounds no odds; "exp(inf) at most" was said, as if nothing could exceed it."""
    odds = Odds.of_guarantee(dirdp.RenyiDP(order=1, epsilon=0.5), "the records of one person")
    assert str(odds) == "anything, because no bound follows"
    assert "becomes certainty at most" in odds.paragraph("p was published", "")


@pytest.mark.parametrize(
    "guarantee",
    [dirdp.ApproxDP(epsilon=1.0, delta=1.234567e-6), dirdp.ZeroCDP(rho=0.1), dirdp.RenyiDP(order=8, epsilon=0.5)],
)
def test_odds_of_a_guarantee_hold_for_the_worst_that_it_allows(guarantee):
    """Oracle: what a bound on odds needs, that the chance of more than the factor is below the probability.

    For a hockey-stick divergence of b at e, it is at most a where the factor is exp(e) / (1 - b / a).
    """
    odds = Odds.of_guarantee(guarantee, "the records of one person")
    curves = odds.curves
    assert curves.satisfies(guarantee)
    assert odds.delta >= (guarantee.stated_delta or 0.0) * 10 or odds.delta == DELTA
    bounds = [
        epsilon - math.log1p(-curves.delta(epsilon) / odds.delta)
        for epsilon in np.linspace(0.0, 2 * odds.log_factor, 200)
        if curves.delta(epsilon) < odds.delta
    ]
    # The points of the grid are not the best ones.
    assert min(bounds) - 0.01 * odds.log_factor <= odds.log_factor <= min(bounds) + 0.1


def test_the_delta_of_a_guarantee_is_its_own():
    assert delta_of(dirdp.ApproxDP(epsilon=1.0, delta=1e-9)) == 1e-9
    for other in (dirdp.PureDP(epsilon=1.0), dirdp.ZeroCDP(rho=1.0), dirdp.RenyiDP(order=3, epsilon=1.0)):
        assert delta_of(other) == DELTA


def test_numbers_are_called_noisy_by_how_often_they_are_the_counts():
    assert "random on purpose" in randomness([])
    wide, narrow = noise(0.1), noise(20.0)
    for mechanisms in ([wide], [wide, narrow], [narrow]):
        text = randomness(mechanism.log_no_noise for mechanism in mechanisms)
        said = percent(re.search(r"probability of (.*) at most", text)[1])
        true = math.exp(min(mechanism.log_no_noise for mechanism in mechanisms))
        assert true <= said <= true * 1.011 or said == pytest.approx(true, abs=2e-3)
        assert said >= true
    assert "All noise is 0" in randomness([noise(80.0).log_no_noise])
    # What never happens is not said: a release of 100 cells once stated a probability of 4e-124 %.
    assert randomness([100 * wide.log_no_noise]) == "The numbers are noisy on purpose."
    # One table with noise is enough, for numbers that are noisy.
    assert "noisy on purpose" in randomness([noise(80.0).log_no_noise, wide.log_no_noise])
