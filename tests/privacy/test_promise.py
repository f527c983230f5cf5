"""Every kind of guarantee answers the same questions, so nobody has to ask which kind it is."""

import dataclasses
import math

import pytest

from pymc_dirdp import ApproxDP, Guarantee
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms import DirichletMechanism, GeometricMechanism
from pymc_dirdp.privacy.guarantees import KINDS, PureDP, RenyiDP, TruncatedCDP, ZeroCDP

# A promise of each kind, with its loss on the geometric mechanism, by the definition of the kind.
NOISE = GeometricMechanism([1, 1, 1], 2.0)
LOSSES = {
    RenyiDP(order=3, epsilon=0.7): NOISE.renyi(3),
    TruncatedCDP(rho=0.7, omega=5): NOISE.rho(5),
    ApproxDP(epsilon=0.7, delta=1e-3): NOISE.delta(0.7),
    ZeroCDP(rho=0.7): NOISE.rho(math.inf),
    PureDP(epsilon=0.7): NOISE.pure_epsilon,
}
every_kind = pytest.mark.parametrize("promise", LOSSES, ids=lambda promise: type(promise).__name__)


def test_the_promises_here_are_of_every_kind():
    assert {type(promise) for promise in LOSSES} == set(KINDS.values())


@every_kind
def test_the_budget_is_what_is_bought_and_the_rest_stays(promise):
    assert promise.budget == 0.7
    other = promise.with_budget(0.2)
    assert type(other) is type(promise)
    assert other.budget == 0.2
    assert other.fixed == promise.fixed
    assert dataclasses.asdict(promise) == promise.fixed | {promise.budget_name: 0.7}
    with pytest.raises(ArgumentError, match=promise.budget_name):
        promise.with_budget(math.inf)


@every_kind
def test_the_loss_is_that_of_the_definition(promise):
    assert promise.loss(NOISE) == LOSSES[promise]
    assert NOISE.loss(promise) == (LOSSES[promise], promise.allowed)
    assert NOISE.satisfies(promise) == (LOSSES[promise] <= promise.allowed)


@every_kind
def test_the_least_budget_is_kept_and_less_is_not(promise):
    least = promise.least_budget(NOISE)
    assert NOISE.satisfies(promise.with_budget(least))
    assert not NOISE.satisfies(promise.with_budget(least * (1 - 1e-6)))


@every_kind
def test_a_dirichlet_draw_keeps_no_promise_about_every_order(promise):
    draw = DirichletMechanism([2, 2, 2], 0.2)
    assert math.isfinite(promise.least_budget(draw)) == math.isfinite(promise.largest_order)
    if math.isfinite(promise.largest_order):
        assert math.isfinite(draw.renyi(promise.largest_order))


@every_kind
def test_a_promise_adds_up_or_has_a_divergence_to_plan_with(promise):
    divergence = promise.as_divergence()
    assert promise.adds_up == (divergence is None)
    if divergence is not None:
        # A Gaussian loss of this divergence comes close to the promise, and that of other curves is their own.
        assert divergence.epsilon < promise.budget
        own = promise.as_divergence(NOISE)
        assert own.epsilon == NOISE.renyi(own.order)
        assert own.order == NOISE.best_order(promise.stated_delta)


def test_an_approximate_promise_without_room_still_has_a_divergence():
    assert ApproxDP(epsilon=0, delta=1e-300).as_divergence() == RenyiDP(order=1, epsilon=5e-324)


@every_kind
def test_pure_is_an_epsilon_without_delta(promise):
    assert promise.is_pure == isinstance(promise, PureDP)
    assert promise.stated_delta == {ApproxDP: 1e-3, PureDP: 0.0}.get(type(promise))


def test_what_the_budget_bounds_in_words():
    words = [promise.measure for promise in LOSSES]
    assert words == ["Rényi divergence at order 3", "rho", "epsilon", "rho", "epsilon"]


def test_what_is_no_guarantee_is_named():
    promise = PureDP(epsilon=1)
    assert Guarantee.checked(limit=promise) is promise
    with pytest.raises(ArgumentError, match=r"Expected limit to be a guarantee such as ApproxDP.*, got a float"):
        Guarantee.checked(limit=0.7)
    with pytest.raises(ArgumentError, match=r"got the class PureDP\.$"):
        Guarantee.checked(guarantee=PureDP)
    with pytest.raises(ArgumentError, match=r"^Expected a guarantee such as"):
        NOISE.loss(0.7)
