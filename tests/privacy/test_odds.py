"""Odds and probabilities in words are never below the true ones, and the row of a register states them."""

import math
import re

import numpy as np
import pytest

from pymc_dirdp.display import Line
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.privacy.curves import convert
from pymc_dirdp.privacy.deployment import Deployment
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.privacy.odds import DELTA, Odds, chance, delta_of, randomness


def noise(epsilon, cells=3):
    return GeometricMechanism.for_guarantee(PureDP(epsilon=epsilon), prior=np.ones((1, cells)))


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
    odds = Odds.of_guarantee(RenyiDP(order=1, epsilon=0.5), "the records of one person")
    assert str(odds) == "anything, because no bound follows"
    assert "becomes certainty at most" in odds.paragraph("p was published", "")
    # Nothing is left out of a pure guarantee.
    assert str(Odds(noise(1.0), 0.0, "a")) == "2.72 at most"


@pytest.mark.parametrize(
    "guarantee",
    [ApproxDP(epsilon=1.0, delta=1.234567e-6), ZeroCDP(rho=0.1), RenyiDP(order=8, epsilon=0.5)],
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


def stated(guarantee, name="p"):
    odds = Odds.of_guarantee(guarantee, "the records of one person")
    return Deployment(name, f"shares of {name}", guarantee, name, "one record moves", odds, "sums", "1:0", "1.0")


def test_an_epsilon_and_a_delta_stand_there_as_they_are_stated_and_any_other_kind_from_above():
    """Oracle: the conversion of the guarantee."""
    for guarantee in (ApproxDP(epsilon=0.5, delta=1e-9), PureDP(epsilon=0.5)):
        row = stated(guarantee, "a\x1b[2J").row
        assert (row["epsilon"], row["delta"]) == (guarantee.epsilon, guarantee.stated_delta)
        assert row["flavor"] == guarantee.flavour
        # A terminal obeys no name.
        assert all(str(value).isprintable() for value in row.values())
    for guarantee in (ZeroCDP(rho=0.1), RenyiDP(order=4, epsilon=0.5), TruncatedCDP(rho=0.1, omega=20)):
        row, exact = stated(guarantee).row, convert(guarantee, ApproxDP, delta=DELTA).epsilon
        assert row["delta"] == DELTA
        assert exact <= row["epsilon"] <= exact * (1 + 1e-5)
    # JSON lacks infinity.
    assert stated(RenyiDP(order=1, epsilon=0.5)).row["epsilon"] is None


def test_lines_for_a_screen_and_for_a_page_have_one_source():
    found = stated(ApproxDP(epsilon=0.5, delta=1e-9))
    lines = list(found.lines(protects="every person", protected="every person at all", most="0.5", together=", in all"))
    by_depth = {depth: {line.label: line.text for line in lines if line.depth == depth} for depth in (0, 1)}
    assert by_depth[0] == {"protects": "every person", "at most": "0.5", "odds": f"times {found.odds}"}
    assert by_depth[1]["guarantee"] == f"{found.guarantee}, in all"
    assert by_depth[1]["posterior odds"] == f"times {found.odds}, about the records of one person"
    assert Line("protected", "every person at all", 1) in lines
