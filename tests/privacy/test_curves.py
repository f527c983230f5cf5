"""What all curves share: the best order, conversions between guarantees, and rho from values of divergences."""

import math

import numpy as np
import pytest

from pymc_dirdp import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.privacy import convert
from pymc_dirdp.privacy.bounded_loss import RandomisedResponse
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import best_order, converted_deltas, epsilon_at, log_delta_at, rho_from_above
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from tests.oracles import normal_hockey_stick

PAIR = DominatingPair(1.0, math.inf, 0.1)
MECHANISM = DirichletMechanism([5, 5], 0.3)


@pytest.mark.parametrize("curves", [PAIR, Composition(((PAIR, 3),))])
def test_best_orders_of_several_deltas_are_those_of_each_and_no_other_order_is_better(curves):
    deltas = np.array([[1e-3, 1e-6], [1e-12, 0.5]])
    orders = curves.best_order(deltas)
    assert orders.shape == deltas.shape
    others = 1 + np.geomspace(1e-4, 1e6, 300)
    divergences = curves.renyi(others)
    for delta, order in zip(deltas.ravel().tolist(), orders.ravel().tolist(), strict=True):
        assert curves.best_order(delta) == pytest.approx(order, rel=1e-5)
        bounds = [epsilon_at(*pair, delta) for pair in zip(others.tolist(), divergences.tolist(), strict=True)]
        assert epsilon_at(order, curves.renyi(order), delta) <= min(bounds) * (1 + 1e-9)


@pytest.mark.parametrize("best", [1.0001, 40.0, 1e6])
def test_the_best_order_is_found_beside_infinities(best):
    def bound(order):
        return math.log(order / best) ** 2 if 0.7 < (order - 1) / (best - 1) < 3 else math.inf

    assert best_order(bound) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("largest", [1.2, 7.0, 1e8])
def test_the_best_order_is_at_an_end_or_never_exceeds_the_largest(largest):
    """A guarantee that ends at an order says nothing beyond it."""
    asked = []
    order = best_order(lambda order: asked.append(order) or 1 / order, largest=largest)
    assert largest * (1 - 1e-5) < order <= largest
    assert max(asked) <= largest * (1 + 1e-12)
    assert best_order(lambda order: order) == pytest.approx(1.0, abs=1e-9)
    assert best_order(lambda order: 1 / order) > 1e12


@pytest.mark.parametrize("order", [1 + 1e-6, 1.7, 1e5])
@pytest.mark.parametrize("divergence", [0.0, 7.0, math.inf])
def test_an_epsilon_of_one_order_implies_its_delta(order, divergence):
    """`tests/test_rounding.py` has the lemma with 60 digits."""
    for delta in (0.999, 0.1, 1e-300):
        back = epsilon_at(order, divergence, delta)
        assert back == (math.inf if divergence == math.inf else max(back, 0.0))
        if 0 < back < math.inf:
            # Both roundings are of the terms, which grow with the order.
            assert log_delta_at(order, divergence, back) == pytest.approx(math.log(delta), rel=1e-8, abs=5e-14 * order)
    assert log_delta_at(order, math.inf, 3.0) == 0.0 >= log_delta_at(order, 7.0, 0.0)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_the_conversion_is_never_below_the_truth_of_a_gaussian_and_nearly_the_best(mu):
    """Oracle: the hockey stick of two normal distributions, and the best order for each epsilon."""
    epsilons = np.array([0.0, 0.5, 1.0, 2.0])
    found = converted_deltas(lambda order: order * mu**2 / 2, epsilons)
    for epsilon, delta in zip(epsilons.tolist(), found.tolist(), strict=True):

        def log_delta(order, epsilon=epsilon):
            return log_delta_at(order, order * mu**2 / 2, epsilon)

        best = log_delta(best_order(log_delta))
        assert normal_hockey_stick(mu, epsilon) <= math.exp(best)
        assert best - 1e-9 <= math.log(delta) <= 0.9 * best + 1e-9


def test_what_is_implied_holds_on_the_exact_curve():
    renyi = RenyiDP(order=8, epsilon=MECHANISM.renyi(8))
    for known in (renyi, TruncatedCDP(rho=MECHANISM.rho(10), omega=10)):
        assert MECHANISM.satisfies(convert(known, RenyiDP, order=4))
        assert MECHANISM.satisfies(convert(known, TruncatedCDP, omega=6))
        for delta in (1e-2, 1e-9):
            assert MECHANISM.satisfies(convert(known, ApproxDP, delta=delta))
    pure = PureDP(epsilon=0.5)
    assert convert(pure, ZeroCDP).rho == 0.125
    assert convert(pure, RenyiDP, order=100).epsilon == convert(pure, ApproxDP, delta=1e-9).epsilon == 0.5
    # Never above P2 Lemma 1.
    for rho, omega, delta in [(0.5, 3, 1e-6), (0.01, 50, 1e-3), (2, 100, 1e-9)]:
        log = math.log(1 / delta)
        lemma = rho + 2 * math.sqrt(rho * log) if log <= (omega - 1) ** 2 * rho else rho * omega + log / (omega - 1)
        assert convert(TruncatedCDP(rho=rho, omega=omega), ApproxDP, delta=delta).epsilon <= lemma


def test_what_does_not_follow_is_refused():
    approx = ApproxDP(epsilon=1, delta=1e-6)
    for known, kind, at in (
        *((approx, kind, at) for kind, at in ((PureDP, {}), (ApproxDP, {"delta": 1e-7}), (RenyiDP, {"order": 2}))),
        (RenyiDP(order=2, epsilon=1), RenyiDP, {"order": 3}),
        (TruncatedCDP(rho=1, omega=3), RenyiDP, {"order": 4}),
        (ZeroCDP(rho=1), PureDP, {}),
    ):
        with pytest.raises(ArgumentError, match="does not follow"):
            convert(known, kind, **at)


@pytest.mark.parametrize("omega", [1.2, 3.0, 40.0, math.inf])
def test_rho_is_above_every_order_and_near(omega):
    rng = np.random.default_rng(0)
    rising = (np.array([0.01, 0.99]), np.array([1e-6, 1 - 1e-6]))
    # A rare and large loss makes D / order rise before it falls.
    random = [(rng.dirichlet([a, 1, 5, 5]) * 0.999 + 0.00025 for a in (0.3, 0.05)) for _ in range(8)]
    for p, q in (rising, *random):
        curve = FiniteDistributions(np.log(p), np.log(q))._renyi
        orders = 1 + np.geomspace(1e-6, min(omega, 1e4) - 1, 1000)
        exact = max(curve(order) / order for order in orders.tolist())
        assert exact * (1 - 1e-12) <= rho_from_above(curve, omega) <= exact * 1.01
    response = RandomisedResponse(0.8)
    assert response.rho(2.0) <= rho_from_above(response._renyi, math.inf) <= response.rho(2.0) * 1.003
    assert rho_from_above(lambda order: 0.0, omega) == 0.0
