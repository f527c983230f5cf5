"""Bounded losses: ranges over all distributions, adaptive choices, chains of steps and many blocks.

`test_contract.py` has the curves against sums of all that can be listed.
"""

import math

import numpy as np
import pytest

from pymc_dirdp.privacy.bounded_loss import BoundedRange, ErasedResponse, RandomisedResponse, erased_responses
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of

EPSILONS = (0.0, 0.2, 0.65, 1.1)

# Losses in an interval of known width.


def test_no_distribution_with_this_range_loses_more():
    """Random distributions of two to six outcomes whose losses lie in an interval of width u."""
    rng, reached = np.random.default_rng(7), {"delta": 0.0, "renyi": 0.0}
    for i in range(200):
        u = (0.1, 1.0, 5.0)[i % 3]
        choice, log_q = BoundedRange(u), np.log(rng.dirichlet(np.full(rng.integers(2, 7), rng.choice([0.2, 1.0, 5.0]))))
        tilt = u * (rng.random(log_q.size) if rng.random() < 0.5 else rng.integers(2, size=log_q.size))
        log_p = log_q + tilt - np.logaddexp.reduce(log_q + tilt)
        distributions = FiniteDistributions(log_p, log_q)
        for epsilon in (0.0, 0.3 * u, 0.8 * u):
            assert distributions.delta(epsilon) <= choice.delta(epsilon) + 1e-15
        for order in (1.0, 2.0, 10.0):
            assert distributions.renyi(order) <= choice.renyi(order) * (1 + 1e-12) + 1e-15
        reached["delta"] = max(reached["delta"], distributions.delta(0.0) / choice.delta(0.0))
        reached["renyi"] = max(reached["renyi"], distributions.renyi(2.0) / choice.renyi(2.0))
        assert choice.rho(math.inf) <= u * u / 8 * (1 + 1e-14)
    assert min(reached.values()) > 0.95


def two_losses(u, t):
    """The distribution of a loss that is t or t - u."""
    p = math.expm1(u - t) / (math.expm1(u - t) - math.expm1(-t))
    return (p, t), (1 - p, t - u)


@pytest.mark.parametrize("u", [0.2, 3.0])
def test_choices_that_depend_on_earlier_ones_lose_no_more_than_the_composition(u):
    """The interval of the second is any, and another after each outcome; intervals fixed in advance lose less."""
    two = Composition(((BoundedRange(u), 2),))
    distributions = [two_losses(u, t) for t in np.linspace(0, u, 17)[1:-1].tolist()]
    wider = []
    for share in (0.05, 0.6, 1.3):
        epsilon = share * u

        def best_after(loss, epsilon=epsilon):
            return [
                sum(p * max(-math.expm1(epsilon - loss - second), 0.0) for p, second in distribution)
                for distribution in distributions
            ]

        # For each first distribution: the probability of each outcome, and what every second one adds after it.
        after = [[(p, best_after(loss)) for p, loss in distribution] for distribution in distributions]
        adaptive = max(sum(p * max(seconds) for p, seconds in outcomes) for outcomes in after)
        fixed = max(
            sum(p * seconds[k] for p, seconds in outcomes) for outcomes in after for k in range(len(distributions))
        )
        assert fixed <= adaptive <= two.delta(epsilon) < 1.6 * adaptive + 1e-12
        wider.append(adaptive / fixed if fixed > 0 else 1.0)
    assert max(wider) > 1.001


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
    one, several = ErasedResponse(0.4, 0.42, steps), ErasedResponse(0.4, 0.42, steps, blocks)
    times, masses = one._block_distribution
    log = np.log(masses)
    middle = np.log([1 - masses.sum() - np.sum(masses * np.exp(-times * 0.4))])
    distribution = np.concatenate([(log - times * 0.4)[::-1], middle, log])
    product = product_of([FiniteDistributions(distribution, distribution[::-1])] * blocks)
    composed = erased_responses(0.4, 0.42, steps, blocks, math.inf, max_values=1)
    assert isinstance(composed, Composition)
    for epsilon in EPSILONS:
        exact, listed = product.delta(epsilon), several.delta(epsilon)
        assert exact * (1 - 1e-12) <= listed <= exact * (1 + 1e-9)
        assert listed * (1 - 1e-12) <= composed.delta(epsilon) <= 1.03 * listed
    assert several.renyi([1.0, 3.0, 40.0]) == pytest.approx(blocks * one.renyi([1.0, 3.0, 40.0]), rel=1e-14)


def test_losses_and_levels_at_the_ends_of_the_doubles():
    assert 0 < ErasedResponse(0.9, 0.3, 1, 1500).delta(1300.0) < 1e-290
    # The loss of 900 steps is 900 with the probability of one true answer: every step betrays the same.
    for steps in (300, 900):
        assert ErasedResponse(1.0, 0.3, steps).delta(steps - 0.5) >= 0.3 * -math.expm1(-0.5)
        assert ErasedResponse(1.0, 0.3, steps).delta(steps - 3.5) >= 0.3 * -math.expm1(-3.5)
    assert ErasedResponse(1e-300, 0.5).delta(0.0) == pytest.approx(5e-301, rel=1e-9)
    assert 1 - 1e-6 < ErasedResponse(900.0, 1.0, 3).delta(0.0) <= 1
    assert ErasedResponse(2.0**900, 1.0).epsilon(0.5) <= 2.0**901
    for u in (1e-300, 1e-9, 800.0, 2.0**1000):
        curve = ErasedResponse(u, 0.4, 3)
        for order in (1.0, 1 + 1e-12, 2.0, 1e9):
            assert 0 <= curve.renyi(order) <= curve.pure_epsilon
        assert curve.rho(5.0) >= curve.renyi(1.0)
