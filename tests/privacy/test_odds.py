"""Odds and probabilities in words are never below the true ones."""

import math
import re

import numpy as np
import pytest

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


@pytest.mark.parametrize("log_odds", [0.0, 1e-9, 0.5, 6.9, 7.0, 40.0, 700.0, 710.0, 1e300])
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


def test_a_guarantee_from_which_no_bound_follows_says_so():
    """A divergence of order 1 bounds no odds; "exp(inf) at most" was said, as if nothing could exceed it."""
    odds = Odds.of_guarantee(dirdp.RenyiDP(order=1, epsilon=0.5), "the records of one person")
    assert str(odds) == "anything, because no bound follows"
    assert "becomes certainty at most" in odds.paragraph("p was published", "")
    # Nothing is left out of a pure guarantee.
    assert str(Odds(noise(1.0), 0.0, "a")) == "2.72 at most"


@pytest.mark.parametrize(
    "guarantee",
    [dirdp.ApproxDP(epsilon=1.0, delta=1.234567e-6), dirdp.ZeroCDP(rho=0.1), dirdp.RenyiDP(order=8, epsilon=0.5)],
)
def test_odds_of_a_guarantee_hold_for_the_worst_that_it_allows(guarantee):
    """Oracle: a hockey-stick divergence of b at e bounds the factor by exp(e) / (1 - b / delta)."""
    odds = Odds.of_guarantee(guarantee, "the records of one person")
    assert odds.curves.satisfies(guarantee)
    own = guarantee.stated_delta or DELTA
    assert delta_of(guarantee) == own
    # At its own delta there is no bound.
    assert odds.delta >= own * 10 or odds.delta == DELTA == own
    epsilons = np.linspace(0.0, 2 * odds.log_factor, 200)
    deltas = odds.curves.delta(epsilons)
    enough = deltas < odds.delta
    bounds = epsilons[enough] - np.log1p(-deltas[enough] / odds.delta)
    # The points of the grid are not the best ones.
    assert min(bounds) - 0.01 * odds.log_factor <= odds.log_factor <= min(bounds) + 0.1


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
