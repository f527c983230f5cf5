"""Erased randomised response: by its definition, and against the chains that it bounds."""

import math

import mpmath
import numpy as np
import pytest

from pymc_dirdp.privacy.bounded_loss import ErasedResponse, RandomisedResponse, erased_responses
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of

EPSILONS, ORDERS = (0.0, 0.2, 0.65, 1.1), (1.0, 1.2, 3.0, 40.0)


def independent(u):
    """What two independent cells of noise keep."""
    return (1 + math.exp(-u / 2)) ** -2


def single(u, true_share):
    with np.errstate(divide="ignore"):
        p = np.log([true_share, max(1 - true_share * (1 + math.exp(-u)), 0.0), true_share * math.exp(-u)])
    return FiniteDistributions(p, p[::-1])


def above(bound, truth, slack):
    assert truth <= bound <= truth * (1 + slack) + 1e-300


@pytest.mark.parametrize(
    ("u", "true_share"), [(0.7, 0.4), (1.5, 0.3), (0.7, independent(0.7)), (3.0, 1 / (1 + math.exp(-3)))]
)
def test_one_step_is_its_definition(u, true_share):
    curve, distribution = ErasedResponse(u, true_share), single(u, true_share)
    for epsilon in EPSILONS:
        above(curve.delta(epsilon), distribution.delta(epsilon) * (1 - 1e-15), 1e-13)
    for order in ORDERS:
        above(curve.renyi(order), distribution.renyi(order) * (1 - 1e-15), 1e-13)
    assert curve._renyi(math.inf) == curve.pure_epsilon >= u
    for omega in (1.5, 20.0, math.inf):
        orders = np.geomspace(1.0001, min(omega, 200.0), 40)
        largest = max(distribution.renyi(order) / order for order in orders.tolist())
        assert largest <= curve.rho(omega) <= max(largest, distribution.renyi(1.0)) * 1.02


def test_nothing_erased_and_two_independent_cells_are_randomised_responses():
    for ours, theirs in (
        (ErasedResponse(0.7, 1 / (1 + math.exp(-0.7))), RandomisedResponse(0.7)),
        (ErasedResponse(0.7, independent(0.7)), RandomisedResponse(0.35, 2)),
    ):
        for epsilon in EPSILONS:
            above(ours.delta(epsilon), theirs.delta(epsilon) * (1 - 1e-14), 1e-13)
        for order in ORDERS:
            above(ours.renyi(order), theirs.renyi(order) * (1 - 1e-14), 1e-13)
        above(ours.rho(7.0), theirs.rho(7.0) * (1 - 1e-14), 1e-13)


@pytest.mark.parametrize("steps", [2, 3, 8])
def test_a_chain_without_erasure_is_noise_on_one_cell(steps):
    u, k = 0.7, np.arange(-400, 401)
    p, q = (-np.abs(k - shift) * u for shift in (0, steps))
    distributions = FiniteDistributions(*(log - np.logaddexp.reduce(log) for log in (p, q)))
    curve = ErasedResponse(u, 1 / (1 + math.exp(-u)), steps)
    for epsilon in (*EPSILONS, (steps - 0.1) * u):
        above(curve.delta(epsilon), distributions.delta(epsilon) * (1 - 1e-14), 1e-12)
    for order in ORDERS:
        above(curve.renyi(order), distributions.renyi(order) * (1 - 1e-14), 1e-12)
    assert distributions.rho(9.0) * 0.99 <= curve.rho(9.0) <= distributions.rho(9.0) * 1.01


@pytest.mark.parametrize("true_share", [0.3, 0.4, 0.56])
def test_a_chain_has_the_power_of_its_tests(true_share):
    """By the largest power at each level, applied again and again on a fine grid of levels."""
    u, levels = 0.4, np.concatenate([[0.0], np.geomspace(1e-9, 0.5, 300_000), np.linspace(0.5, 1, 100_001)[1:]])
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


@pytest.mark.parametrize("steps", [1, 3])
def test_several_blocks_are_a_product(steps):
    one, blocks = ErasedResponse(0.4, 0.42, steps), 4
    times, masses = one._block_distribution
    log = np.log(masses)
    middle = np.log([1 - masses.sum() - np.sum(masses * np.exp(-times * 0.4))])
    distribution = np.concatenate([(log - times * 0.4)[::-1], middle, log])
    product = product_of([FiniteDistributions(distribution, distribution[::-1])] * blocks)
    several = ErasedResponse(0.4, 0.42, steps, blocks)
    for epsilon in EPSILONS:
        above(several.delta(epsilon), product.delta(epsilon) * (1 - 1e-12), 1e-9)
    for order in ORDERS:
        assert several.renyi(order) == pytest.approx(blocks * one.renyi(order), rel=1e-14)
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


@pytest.mark.parametrize("order", [1 + 1e-9, 1.3, 2.0, 40.0, 5000.0])
@pytest.mark.parametrize("u", [1e-5, 0.3, 4.0, 300.0])
def test_divergences_with_60_digits(u, order):
    true_share = 0.9 / (1 + math.exp(-u))
    with mpmath.workdps(60):
        p, loss, a = mpmath.mpf(true_share), mpmath.mpf(u), mpmath.mpf(order)
        mean = 1 + p * (mpmath.exp((a - 1) * loss) - 1) + p * mpmath.exp(-loss) * (mpmath.exp((1 - a) * loss) - 1)
        truth = mpmath.log(mean) / (a - 1)
        found = ErasedResponse(u, true_share).renyi(order)
        assert truth <= found <= truth * (1 + mpmath.mpf(1e-12)) + mpmath.mpf(1e-13) / (a - 1)
