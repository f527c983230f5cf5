"""Losses in an interval of known width.

The largest curves over all such distributions, and over choices that follow others.
"""

import itertools
import math

import mpmath
import numpy as np
import pytest

from pymc_dirdp.privacy.bounded_loss import BoundedRange, RandomisedResponse
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions

WIDTHS = [1e-4, 0.3, 1.0, 4.0, 30.0]
SHARES = [0.0, 0.5, 0.999]
ORDERS = [1.0, 1 + 1e-7, 1.5, 7.0, 300.0]


def two_losses(u, t):
    """The distributions of an output whose loss is t or t - u, with many digits."""
    u, t = mpmath.mpf(u), mpmath.mpf(t)
    p = mpmath.expm1(u - t) / (mpmath.expm1(u - t) - mpmath.expm1(-t))
    return (p, t), (1 - p, t - u)


def largest(u, of, least=0.0):
    """The largest value over t, by a search with many digits by the golden section."""
    with mpmath.workdps(40):
        golden, low, high = (mpmath.sqrt(5) - 1) / 2, mpmath.mpf(least), mpmath.mpf(u)
        inner = [high - golden * (high - low), low + golden * (high - low)]
        values = [of(two_losses(u, t)) for t in inner]
        for _ in range(40):
            if values[0] < values[1]:
                low, inner[0], values[0] = inner[0], inner[1], values[1]
                inner[1] = low + golden * (high - low)
                values[1] = of(two_losses(u, inner[1]))
            else:
                high, inner[1], values[1] = inner[1], inner[0], values[0]
                inner[0] = high - golden * (high - low)
                values[0] = of(two_losses(u, inner[0]))
        return max(values)


def hockey_stick(distribution, epsilon):
    return mpmath.fsum(p * -mpmath.expm1(epsilon - loss) for p, loss in distribution if loss > epsilon)


def divergence(distribution, order):
    if order == 1:
        return mpmath.fsum(p * loss for p, loss in distribution)
    order = mpmath.mpf(order)
    return mpmath.log(mpmath.fsum(p * mpmath.exp((order - 1) * loss) for p, loss in distribution)) / (order - 1)


@pytest.mark.parametrize("u", WIDTHS)
@pytest.mark.parametrize("share", SHARES)
def test_delta_is_the_largest_over_where_the_interval_lies(u, share):
    epsilon = share * u
    exact = largest(u, lambda distribution: hockey_stick(distribution, epsilon), least=epsilon)
    assert exact * (1 - mpmath.mpf("1e-20")) <= BoundedRange(u).delta(epsilon) <= exact * (1 + mpmath.mpf("1e-9"))


@pytest.mark.parametrize("u", WIDTHS)
@pytest.mark.parametrize("order", ORDERS)
def test_divergences_are_the_largest_over_where_the_interval_lies(u, order):
    exact = largest(u, lambda distribution: divergence(distribution, order))
    # Where digits are lost the bound of Hoeffding's lemma stands, which is near for small widths.
    slack = 1e-6 + (u * u if 1 < order < 1.001 else (order * u) ** 2 if u < 0.01 else 0.0)
    assert exact * (1 - mpmath.mpf("1e-20")) <= BoundedRange(u).renyi(order) <= exact * (1 + slack)


@pytest.mark.parametrize("u", [0.1, 1.0, 5.0])
def test_no_distribution_with_this_range_loses_more(u):
    """Random distributions of three to six outcomes whose losses lie in an interval of width u."""
    rng, choice = np.random.default_rng(7), BoundedRange(u)
    reached = {"delta": 0.0, "renyi": 0.0}
    for _ in range(400):
        log_q = np.log(rng.dirichlet(np.full(rng.integers(2, 7), rng.choice([0.2, 1.0, 5.0]))))
        tilt = u * (rng.random(log_q.size) if rng.random() < 0.5 else rng.integers(2, size=log_q.size))
        log_p = log_q + tilt - np.logaddexp.reduce(log_q + tilt)
        distributions = FiniteDistributions(log_p, log_q)
        for epsilon in (0.0, 0.3 * u, 0.8 * u):
            assert distributions.delta(epsilon) <= choice.delta(epsilon) + 1e-15
        for order in (1.0, 2.0, 10.0):
            assert distributions.renyi(order) <= choice.renyi(order) * (1 + 1e-12) + 1e-15
        reached["delta"] = max(reached["delta"], distributions.delta(0.0) / choice.delta(0.0))
        reached["renyi"] = max(reached["renyi"], distributions.renyi(2.0) / choice.renyi(2.0))
    assert min(reached.values()) > 0.95


def test_half_the_width_is_refuted():
    """A mutant: the width of the exponential mechanism taken for that of a monotone score."""
    distributions = FiniteDistributions(*np.log([[0.6, 0.4], [0.4, 0.6]]))
    width = 2 * math.log(1.5)
    assert distributions.delta(0.0) <= BoundedRange(width).delta(0.0) + 1e-15
    assert distributions.delta(0.0) > 1.9 * BoundedRange(width / 2).delta(0.0)


@pytest.mark.parametrize("u", [0.2, 1.0, 3.0])
def test_choices_that_depend_on_earlier_ones_lose_no_more_than_the_composition(u):
    """Two choices: the interval of the second is any, and another one after each outcome of the first.

    The best order of intervals that is fixed in advance loses less, so its curve would be no bound.
    """
    two = Composition(((BoundedRange(u), 2),))
    grid = np.linspace(0, u, 17)[1:-1]
    distributions = [[(float(p), float(loss)) for p, loss in two_losses(u, t)] for t in grid]
    wider = []
    for share in (0.05, 0.6, 1.3):
        epsilon = share * u

        def best_after(loss, epsilon=epsilon):
            return [
                sum(p * max(-math.expm1(epsilon - loss - second), 0.0) for p, second in distribution)
                for distribution in distributions
            ]

        after = [[best_after(loss) for _, loss in distribution] for distribution in distributions]
        adaptive = max(
            sum(p * max(a) for (p, _), a in zip(distribution, of, strict=True))
            for distribution, of in zip(distributions, after, strict=True)
        )
        fixed = max(
            sum(p * a[k] for (p, _), a in zip(distribution, of, strict=True))
            for distribution, of in zip(distributions, after, strict=True)
            for k in range(len(distributions))
        )
        assert fixed <= adaptive <= two.delta(epsilon)
        wider.append(adaptive / fixed if fixed > 0 else 1.0)
        assert two.delta(epsilon) < 1.6 * adaptive + 1e-12
    assert max(wider) > 1.001


@pytest.mark.parametrize("u", [0.05, 0.5, 2.0])
def test_it_lies_below_randomised_response_and_below_an_eighth_of_the_square(u):
    choice, pure = BoundedRange(u), RandomisedResponse(u)
    assert choice.delta(0.0) == pytest.approx(math.tanh(u / 4), rel=1e-12)
    assert choice.delta(0.0) < pure.delta(0.0)
    for order in (1.0, 3.0, 50.0):
        assert choice.renyi(order) < pure.renyi(order)
        assert choice.renyi(order) <= order * choice.rho(1e6) * (1 + 1e-12)
    assert choice.rho(math.inf) <= u * u / 8 * (1 + 1e-14)
    assert choice.rho(1.001) >= choice.renyi(1.0)


def test_its_grid_is_its_curve_and_both_directions_are_one():
    choice = BoundedRange(0.7)
    epsilons = 0.01 * np.arange(100)
    assert choice._reversed is choice
    np.testing.assert_allclose(choice._deltas(epsilons), choice.delta(epsilons), rtol=1e-12)
    assert choice.delta(0.7) == choice.delta(5.0) == 0.0
    assert choice.pure_epsilon == 0.7 == choice._renyi(math.inf)
    for delta in (0.1, 1e-3, 1e-9):
        assert choice.delta(choice.epsilon(delta)) <= delta
    assert choice.epsilon(1e-300) <= 0.7


def test_curves_fall_with_epsilon_and_rise_with_order():
    for u in WIDTHS:
        choice = BoundedRange(u)
        for some, many in itertools.pairwise(np.linspace(0, u, 20)):
            assert choice.delta(many) <= choice.delta(some)
        for low, high in itertools.pairwise([1.0, 1.5, 3.0, 40.0, 1e5]):
            assert choice.renyi(low) <= choice.renyi(high)
    assert BoundedRange(1e-200).renyi(2.0) > 0
    assert BoundedRange(1e4).renyi(2.0) <= 1e4
