"""Losses in an interval of known width: over all such distributions, and over choices that follow others.

`test_contract.py` has the curves against sums over where the interval lies.
"""

import math

import numpy as np
import pytest

from pymc_dirdp.privacy.bounded_loss import BoundedRange, RandomisedResponse
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions


def two_losses(u, t):
    """The distribution of a loss that is t or t - u."""
    p = math.expm1(u - t) / (math.expm1(u - t) - math.expm1(-t))
    return (p, t), (1 - p, t - u)


@pytest.mark.parametrize("u", [0.1, 1.0, 5.0])
def test_no_distribution_with_this_range_loses_more(u):
    """Random distributions of three to six outcomes whose losses lie in an interval of width u."""
    rng, choice = np.random.default_rng(7), BoundedRange(u)
    reached = {"delta": 0.0, "renyi": 0.0}
    for _ in range(150):
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


@pytest.mark.parametrize("u", [0.2, 1.0, 3.0])
def test_choices_that_depend_on_earlier_ones_lose_no_more_than_the_composition(u):
    """Two choices: the interval of the second is any, and another one after each outcome of the first.

    The best order of intervals that is fixed in advance loses less, so its curve would be no bound.
    """
    two = Composition(((BoundedRange(u), 2),))
    grid = np.linspace(0, u, 17)[1:-1]
    distributions = [two_losses(u, t) for t in grid.tolist()]
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


@pytest.mark.parametrize("u", [1e-4, 0.05, 0.5, 2.0, 30.0])
def test_it_lies_below_randomised_response_and_below_an_eighth_of_the_square(u):
    choice, pure = BoundedRange(u), RandomisedResponse(u)
    assert choice.delta(0.0) == pytest.approx(math.tanh(u / 4), rel=1e-12)
    assert choice.delta(0.0) < pure.delta(0.0)
    assert all(choice.renyi(order) < pure.renyi(order) for order in (1.0, 3.0, 50.0)) or u > 10
    assert choice.rho(math.inf) <= u * u / 8 * (1 + 1e-14)
    assert choice.pure_epsilon == u == choice._renyi(math.inf)
    assert choice.epsilon(1e-300) <= u
    # Both directions of neighbours are one curve, which falls with epsilon and rises with the order.
    assert choice._reversed is choice
    assert np.all(np.diff(choice.delta(np.linspace(0, u, 20))) <= 0)
    assert np.all(np.diff(choice.renyi([1.0, 1.5, 3.0, 40.0, 1e5])) >= 0)
