"""Every kind of guarantee answers the same questions, so nobody has to ask which kind it is."""

import dataclasses
import math

import pytest

from pymc_dirdp import ApproxDP, Guarantee
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms import DirichletMechanism, GeometricMechanism
from pymc_dirdp.privacy.guarantees import KINDS, PureDP, RenyiDP, TruncatedCDP, ZeroCDP

# A guarantee of each kind, with its loss on the geometric mechanism, by the definition of the kind.
NOISE = GeometricMechanism([1, 1, 1], 2.0)
LOSSES = {
    RenyiDP(order=3, epsilon=0.7): NOISE.renyi(3),
    TruncatedCDP(rho=0.7, omega=5): NOISE.rho(5),
    ApproxDP(epsilon=0.7, delta=1e-3): NOISE.delta(0.7),
    ZeroCDP(rho=0.7): NOISE.rho(math.inf),
    PureDP(epsilon=0.7): NOISE.pure_epsilon,
}
every_kind = pytest.mark.parametrize("guarantee", LOSSES, ids=lambda guarantee: type(guarantee).__name__)


def test_the_guarantees_here_are_of_every_kind():
    assert {type(guarantee) for guarantee in LOSSES} == set(KINDS.values())


@every_kind
def test_the_budget_is_what_is_bought_and_the_rest_stays(guarantee):
    assert guarantee.budget == 0.7
    other = guarantee.with_budget(0.2)
    assert type(other) is type(guarantee)
    assert other.budget == 0.2
    assert other.fixed == guarantee.fixed
    assert dataclasses.asdict(guarantee) == guarantee.fixed | {guarantee.budget_name: 0.7}
    with pytest.raises(ArgumentError, match=guarantee.budget_name):
        guarantee.with_budget(math.inf)


@every_kind
def test_the_loss_is_that_of_the_definition(guarantee):
    assert guarantee.loss(NOISE) == LOSSES[guarantee]
    assert NOISE.loss(guarantee) == (LOSSES[guarantee], guarantee.allowed)
    assert NOISE.satisfies(guarantee) == (LOSSES[guarantee] <= guarantee.allowed)


@every_kind
def test_the_least_budget_suffices_and_less_is_not(guarantee):
    least = guarantee.least_budget(NOISE)
    assert NOISE.satisfies(guarantee.with_budget(least))
    assert not NOISE.satisfies(guarantee.with_budget(least * (1 - 1e-6)))


@every_kind
def test_a_dirichlet_draw_keeps_no_guarantee_about_every_order(guarantee):
    draw = DirichletMechanism([2, 2, 2], 0.2)
    assert math.isfinite(guarantee.least_budget(draw)) == math.isfinite(guarantee.largest_order)
    if math.isfinite(guarantee.largest_order):
        assert math.isfinite(draw.renyi(guarantee.largest_order))


@every_kind
def test_a_guarantee_adds_up_or_has_a_divergence_to_plan_with(guarantee):
    divergence = guarantee.as_divergence()
    assert guarantee.adds_up == (divergence is None)
    if divergence is not None:
        # A Gaussian loss of this divergence comes close to the guarantee, and that of other curves is their own.
        assert divergence.epsilon < guarantee.budget
        own = guarantee.as_divergence(NOISE)
        assert own.epsilon == NOISE.renyi(own.order)
        assert own.order == NOISE.best_order(guarantee.stated_delta)


def test_an_approximate_guarantee_without_room_still_has_a_divergence():
    assert ApproxDP(epsilon=0, delta=1e-300).as_divergence() == RenyiDP(order=1, epsilon=1e-100)


@every_kind
def test_pure_is_an_epsilon_without_delta(guarantee):
    assert guarantee.is_pure == isinstance(guarantee, PureDP)
    assert guarantee.stated_delta == {ApproxDP: 1e-3, PureDP: 0.0}.get(type(guarantee))


def test_what_the_budget_bounds_in_words():
    words = [guarantee.measure for guarantee in LOSSES]
    assert words == ["Rényi divergence at order 3", "rho", "epsilon", "rho", "epsilon"]


def test_what_is_no_guarantee_is_named():
    guarantee = PureDP(epsilon=1)
    assert Guarantee.checked(limit=guarantee) is guarantee
    with pytest.raises(ArgumentError, match=r"Expected limit to be a guarantee such as ApproxDP.*, got a float"):
        Guarantee.checked(limit=0.7)
    with pytest.raises(ArgumentError, match=r"got the class PureDP\.$"):
        Guarantee.checked(guarantee=PureDP)
    with pytest.raises(ArgumentError, match=r"^Expected a guarantee such as"):
        NOISE.loss(0.7)
