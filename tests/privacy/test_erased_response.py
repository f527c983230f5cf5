"""Erased randomised response: chains of steps and many blocks; `test_contract.py` has what can be listed."""

import math

import numpy as np
import pytest

from pymc_dirdp.privacy.bounded_loss import ErasedResponse, RandomisedResponse, erased_responses
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of

EPSILONS = (0.0, 0.2, 0.65, 1.1)


@pytest.mark.parametrize("true_share", [0.3, 0.4, 0.56])
def test_a_chain_has_the_power_of_its_tests(true_share):
    """By the largest power at each level, applied again and again on a fine grid of levels."""
    u, levels = 0.4, np.concatenate([[0.0], np.geomspace(1e-9, 0.5, 100_000), np.linspace(0.5, 1, 50_001)[1:]])
    powers = levels
    for _ in range(5):
        lines = [math.exp(u) * powers, powers + true_share * -math.expm1(-u), 1 - math.exp(-u) * (1 - powers)]
        powers = np.minimum.reduce(lines)
    for epsilon in (0.0, 0.5, 1.3, 1.9):
        largest = float(np.max(powers - math.exp(epsilon) * levels))
        assert largest <= ErasedResponse(u, true_share, 5).delta(epsilon) * (1 + 1e-12) <= largest * (1 + 1e-4) + 1e-9


def test_many_steps_at_a_time_lose_more_and_little_more(monkeypatch):
    exact = ErasedResponse(0.01, 0.3, 60)
    values = [exact.delta(epsilon) for epsilon in EPSILONS]
    monkeypatch.setattr(ErasedResponse, "max_steps", 16)
    for value, epsilon in zip(values, EPSILONS, strict=True):
        assert value * (1 - 1e-9) <= ErasedResponse(0.01, 0.3, 60).delta(epsilon) <= 1.001 * value
    monkeypatch.undo()
    huge = ErasedResponse(2.0**-53, 0.3, 2**53)
    assert 0 < huge.delta(0.5) < RandomisedResponse(1.0).delta(0.5)
    assert huge.pure_epsilon == pytest.approx(1.0)


def test_several_blocks_are_a_product():
    steps, blocks = 3, 4
    one = ErasedResponse(0.4, 0.42, steps)
    times, masses = one._block_distribution
    log = np.log(masses)
    middle = np.log([1 - masses.sum() - np.sum(masses * np.exp(-times * 0.4))])
    distribution = np.concatenate([(log - times * 0.4)[::-1], middle, log])
    product = product_of([FiniteDistributions(distribution, distribution[::-1])] * blocks)
    several = ErasedResponse(0.4, 0.42, steps, blocks)
    for epsilon in EPSILONS:
        exact = product.delta(epsilon)
        assert exact * (1 - 1e-12) <= several.delta(epsilon) <= exact * (1 + 1e-9)
    assert several.renyi([1.0, 3.0, 40.0]) == pytest.approx(blocks * one.renyi([1.0, 3.0, 40.0]), rel=1e-14)
    exact = [several.delta(epsilon) for epsilon in EPSILONS]
    other = erased_responses(0.4, 0.42, steps, blocks, math.inf, max_values=1)
    assert isinstance(other, Composition)
    for value, epsilon in zip(exact, EPSILONS, strict=True):
        assert value * (1 - 1e-12) <= other.delta(epsilon) <= 1.03 * value


def test_many_blocks_keep_their_far_tail():
    curve = ErasedResponse(0.9, 0.3, 1, 1500)
    assert curve.renyi(1e6) == pytest.approx(1500 * ErasedResponse(0.9, 0.3).renyi(1e6))
    assert 0 < curve.delta(1300.0) < 1e-290
    assert curve.delta(curve.pure_epsilon) == 0.0
    composed = Composition(((ErasedResponse(0.9, 0.3), 1500),))
    assert curve.delta(330.0) <= composed.delta(330.0) * (1 + 1e-9)


def test_levels_that_are_too_small_for_doubles_are_not_forgotten():
    """The loss of 900 steps is 900 with the probability of one true answer: every step betrays the same."""
    for steps in (300, 900):
        assert ErasedResponse(1.0, 0.3, steps).delta(steps - 0.5) >= 0.3 * -math.expm1(-0.5)
        assert ErasedResponse(1.0, 0.3, steps).delta(steps - 3.5) >= 0.3 * -math.expm1(-3.5)


def test_extreme_losses():
    assert ErasedResponse(1e-300, 0.5).delta(0.0) == pytest.approx(5e-301, rel=1e-9)
    assert ErasedResponse(900.0, 1.0, 3).delta(0.0) == pytest.approx(1.0)
    assert ErasedResponse(900.0, 1.0, 3).delta(0.0) <= 1
    assert ErasedResponse(2.0**900, 1.0).epsilon(0.5) <= 2.0**901
    for u in (1e-300, 1e-9, 800.0, 2.0**1000):
        for order in (1.0, 1 + 1e-12, 2.0, 1e9):
            curve = ErasedResponse(u, 0.4, 3)
            assert 0 <= curve.renyi(order) <= curve.pure_epsilon
        assert curve.rho(5.0) >= curve.renyi(1.0)
