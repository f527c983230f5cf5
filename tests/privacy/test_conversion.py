"""From Rényi divergences to (epsilon, delta): against the definition, fine grids and known mechanisms."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import norm

from pymc_dirdp import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP, papers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.privacy import convert
from pymc_dirdp.privacy.curves import best_order, epsilon_at, log_delta_at


def largest_log_delta(order, divergence, epsilon):
    """The proof of P1 Lemma 3, by brute force and without its closed form.

    `delta = E[(1 - exp(epsilon - L))+]` and `exp((order - 1) divergence) = E[exp((order - 1) L)]`, so the largest ratio
    of the two integrands over the loss L is what one may infer.
    """
    with mp.workdps(30):
        order, epsilon = mp.mpf(order), mp.mpf(epsilon)

        def log_ratio(excess):
            return mp.log(-mp.expm1(-excess)) - (order - 1) * excess

        # The ratio is unimodal in the logarithm of the excess: three sections.
        low, high = mp.mpf(-60), mp.mpf(60)
        for _ in range(300):
            third = (high - low) / 3
            if log_ratio(mp.exp(low + third)) < log_ratio(mp.exp(high - third)):
                low += third
            else:
                high -= third
        return min(mp.mpf(0), log_ratio(mp.exp(low)) + (order - 1) * (mp.mpf(divergence) - epsilon))


@pytest.mark.thorough
@pytest.mark.parametrize("order", [1 + 1e-6, 1.01, 1.7, 2.0, 30.0, 1e5])
@pytest.mark.parametrize(("divergence", "epsilon"), [(0.0, 0.4), (0.3, 2.0), (7.0, 7.5), (0.5, 0.0)])
def test_one_order_implies_what_its_proof_gives(order, divergence, epsilon):
    exact = float(largest_log_delta(order, divergence, epsilon))
    assert log_delta_at(order, divergence, epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("order", [1.01, 2.0, 30.0])
def test_both_directions_of_the_conversion_are_one(order):
    for delta in (0.1, 1e-7, 1e-300):
        epsilon = epsilon_at(order, 0.3, delta)
        assert epsilon == 0 or log_delta_at(order, 0.3, epsilon) == pytest.approx(math.log(delta), rel=1e-9)


def test_no_guarantee_is_below_zero_or_above_certainty():
    assert epsilon_at(2.0, 0.0, 0.999) == 0.0
    assert log_delta_at(2.0, 50.0, 0.0) == 0.0
    assert epsilon_at(2.0, math.inf, 0.1) == math.inf
    assert log_delta_at(2.0, math.inf, 3.0) == 0.0


@pytest.mark.parametrize("rho", [1e-6, 0.01, 1.0, 40.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-200])
def test_the_best_order_is_that_of_a_fine_grid(rho, delta):
    orders = 1 + np.exp(np.linspace(-12, 22, 200_000))
    bounds = orders * rho + np.log(orders - 1) - (math.log(delta) + orders * np.log(orders)) / (orders - 1)
    order = best_order(lambda order: epsilon_at(order, order * rho, delta))
    assert epsilon_at(order, order * rho, delta) <= max(0.0, bounds.min()) * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("best", [1.0001, 1.5, 40.0, 1e6])
def test_the_best_order_is_found_beside_infinities(best):
    def bound(order):
        return math.log(order / best) ** 2 if 0.7 < (order - 1) / (best - 1) < 3 else math.inf

    assert best_order(bound) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("largest", [1.2, 7.0, 1e8])
def test_the_best_order_never_exceeds_the_largest(largest):
    """A guarantee that ends at an order says nothing beyond it."""
    asked = []
    order = best_order(lambda order: asked.append(order) or 1 / order, largest=largest)
    assert order <= largest
    assert order == pytest.approx(largest, rel=1e-5)
    assert max(asked) <= largest * (1 + 1e-12)


def test_the_best_order_may_be_at_either_end():
    assert best_order(lambda order: order) == pytest.approx(1.0, abs=1e-9)
    assert best_order(lambda order: 1 / order) > 1e12


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_conversion_is_never_below_the_truth_of_a_gaussian(mu, epsilon):
    """Oracle: the Gaussian mechanism, whose delta is a difference of two tails."""
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    order = best_order(lambda order: log_delta_at(order, order * mu**2 / 2, epsilon))
    assert math.exp(log_delta_at(order, order * mu**2 / 2, epsilon)) >= exact


MECHANISM = DirichletMechanism([5, 5], 0.3)


def test_what_is_implied_holds_on_the_exact_curve():
    renyi = RenyiDP(order=8, epsilon=MECHANISM.renyi(8))
    truncated = TruncatedCDP(rho=MECHANISM.rho(10), omega=10)
    for known in (renyi, truncated):
        assert MECHANISM.satisfies(convert(known, RenyiDP, order=4))
        assert MECHANISM.satisfies(convert(known, TruncatedCDP, omega=6))
        for delta in (1e-2, 1e-5, 1e-9):
            assert MECHANISM.satisfies(convert(known, ApproxDP, delta=delta))


def test_pure_implies_everything():
    pure = PureDP(epsilon=0.5)
    assert convert(pure, ZeroCDP).rho == 0.125
    assert convert(pure, RenyiDP, order=100).epsilon == 0.5
    assert convert(pure, ApproxDP, delta=1e-9).epsilon == 0.5


@pytest.mark.parametrize(
    ("known", "kind", "at"),
    [
        (ApproxDP(epsilon=1, delta=1e-6), PureDP, {}),
        (ApproxDP(epsilon=1, delta=1e-6), ApproxDP, {"delta": 1e-7}),
        (ApproxDP(epsilon=1, delta=1e-6), RenyiDP, {"order": 2}),
        (RenyiDP(order=2, epsilon=1), RenyiDP, {"order": 3}),
        (RenyiDP(order=2, epsilon=1), ZeroCDP, {}),
        (TruncatedCDP(rho=1, omega=3), ZeroCDP, {}),
        (TruncatedCDP(rho=1, omega=3), RenyiDP, {"order": 4}),
        (ZeroCDP(rho=1), PureDP, {}),
    ],
)
def test_what_does_not_follow_is_refused(known, kind, at):
    with pytest.raises(ArgumentError, match="does not follow"):
        convert(known, kind, **at)


def test_renyi_conversion_is_p1_lemma_3():
    order, epsilon, delta = 8.0, 0.5, 1e-6
    implied = convert(RenyiDP(order=order, epsilon=epsilon), ApproxDP, delta=delta).epsilon
    # Equation 13, solved for delta at the epsilon that came out.
    back = math.exp((order - 1) * (epsilon - implied)) / (order - 1) * (1 - 1 / order) ** order
    assert back == pytest.approx(delta, rel=1e-12)


def test_truncated_conversion_is_never_above_p2_lemma_1():
    for rho, omega, delta in [(0.5, 3, 1e-6), (0.01, 50, 1e-3), (2, 100, 1e-9)]:
        log = math.log(1 / delta)
        lemma = rho + 2 * math.sqrt(rho * log) if log <= (omega - 1) ** 2 * rho else rho * omega + log / (omega - 1)
        assert convert(TruncatedCDP(rho=rho, omega=omega), ApproxDP, delta=delta).epsilon <= lemma


def test_the_example_of_the_errata():
    """ERRATA, P2.5: three epsilons of one mechanism at delta = 1e-5, each larger than the next."""
    grid = np.linspace(1.01, 1 + 4.99 / 0.3, 4000)
    bound = min(
        convert(papers.p1_theorem_1(order=order, r=0.3, alpha_min=5), ApproxDP, delta=1e-5).epsilon for order in grid
    )
    assert bound == pytest.approx(1.405, abs=1e-3)
    renyi = min(
        convert(RenyiDP(order=order, epsilon=MECHANISM.renyi(order)), ApproxDP, delta=1e-5).epsilon
        for order in grid[:-9]
    )
    assert renyi == pytest.approx(0.9185, abs=1e-4)
    assert MECHANISM.epsilon(1e-5) == pytest.approx(0.79205, abs=1e-5)
    assert papers.p2_theorem_2(delta=1e-5, alpha_min=5, r=0.3).epsilon > bound
