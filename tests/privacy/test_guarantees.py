"""Guarantees: every kind answers the same questions; domains, texts, shares, and the published bounds."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

from pymc_dirdp import ApproxDP, Guarantee, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms import DirichletMechanism, GeometricMechanism
from pymc_dirdp.privacy.curves import epsilon_at
from pymc_dirdp.privacy.guarantees import KINDS

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
def test_the_loss_is_that_of_the_definition_and_the_least_budget_just_suffices(guarantee):
    assert guarantee.loss(NOISE) == LOSSES[guarantee]
    assert NOISE.loss(guarantee) == (LOSSES[guarantee], guarantee.allowed)
    assert NOISE.satisfies(guarantee) == (LOSSES[guarantee] <= guarantee.allowed)
    least = guarantee.least_budget(NOISE)
    assert NOISE.satisfies(guarantee.with_budget(least))
    assert not NOISE.satisfies(guarantee.with_budget(least * (1 - 1e-6)))
    # A Dirichlet draw keeps no guarantee about every order.
    draw = DirichletMechanism([2, 2, 2], 0.2)
    assert math.isfinite(guarantee.least_budget(draw)) == math.isfinite(guarantee.largest_order)
    assert math.isfinite(draw.renyi(min(guarantee.largest_order, 5.0)))


@every_kind
def test_a_guarantee_adds_up_or_has_a_divergence_to_plan_with(guarantee):
    assert guarantee.is_pure == isinstance(guarantee, PureDP)
    assert guarantee.stated_delta == {ApproxDP: 1e-3, PureDP: 0.0}.get(type(guarantee))
    divergence = guarantee.as_divergence()
    assert guarantee.adds_up == (divergence is None)
    if divergence is not None:
        # A Gaussian loss of this divergence comes close to the guarantee, and that of other curves is their own.
        implied = epsilon_at(divergence.order, divergence.epsilon, guarantee.stated_delta)
        assert 0.5 * guarantee.budget < implied < guarantee.budget
        own = guarantee.as_divergence(NOISE)
        assert own.epsilon == NOISE.renyi(own.order)
        assert own.order == NOISE.best_order(guarantee.stated_delta)


def test_words_of_guarantees_and_what_is_none():
    assert [guarantee.measure for guarantee in LOSSES] == [
        *("Rényi divergence at order 3", "rho", "epsilon", "rho", "epsilon")
    ]
    # Found by attack: epsilon 1.0000004 was printed, and published, as 1. `tests/test_rounding.py` has every kind.
    assert str(PureDP(epsilon=1.0000004)) == "1.00001-differential privacy"
    assert str(PureDP(epsilon=0.1)) == "0.1-differential privacy"
    # There is a divergence to plan with even without room.
    assert ApproxDP(epsilon=0, delta=1e-300).as_divergence() == RenyiDP(order=1, epsilon=1e-100)
    guarantee = PureDP(epsilon=1)
    assert Guarantee.checked(limit=guarantee) is guarantee
    with pytest.raises(ArgumentError, match=r"Expected limit to be a guarantee such as ApproxDP.*, got a float"):
        Guarantee.checked(limit=0.7)
    with pytest.raises(ArgumentError, match=r"got the class PureDP\.$"):
        Guarantee.checked(guarantee=PureDP)
    with pytest.raises(ArgumentError, match=r"^Expected a guarantee such as"):
        NOISE.loss(0.7)


def test_domains():
    for kind, good, wrong in (
        (RenyiDP, {"order": 2, "epsilon": 1}, {"order": (0.5, math.inf), "epsilon": (0, -1)}),
        (TruncatedCDP, {"rho": 1, "omega": 2}, {"omega": (1,), "rho": (-1,)}),
        (ApproxDP, {"epsilon": 1, "delta": 0.1}, {"epsilon": (-1, math.nan), "delta": (0, 1)}),
        (ZeroCDP, {"rho": 1}, {"rho": (math.inf,)}),
        (PureDP, {"epsilon": 1}, {"epsilon": (True, "1")}),
    ):
        for name, value in ((name, value) for name, values in wrong.items() for value in values):
            # No delta is another guarantee.
            advice = r"got delta=0\. .*write PureDP\(epsilon=1\)" if (name, value) == ("delta", 0) else "got "
            with pytest.raises(ArgumentError, match=advice):
                kind(**(good | {name: value}))


@pytest.mark.parametrize(
    "whole", [*LOSSES, ApproxDP(epsilon=1, delta=1.1e-7)], ids=lambda guarantee: type(guarantee).__name__
)
def test_the_two_guarantees_add_up_to_the_whole_and_no_more(whole):
    """As doubles, and as the decimals that a ledger adds."""
    for budget in (*np.random.default_rng(2).exponential(size=60).tolist(), 1.0, 0.1, 5e-300, 1e300):
        whole = whole.with_budget(budget)
        first, second = whole.split(0.8)
        assert first.budget == pytest.approx(0.8 * budget)
        for exact in (Fraction, lambda value: Fraction(repr(value))):
            both = exact(first.budget) + exact(second.budget)
            assert exact(budget) * (1 - Fraction(1, 10**14)) <= both <= exact(budget)
            if isinstance(whole, ApproxDP):
                assert exact(first.delta) + exact(second.delta) <= exact(whole.delta)
            else:
                assert first.fixed == second.fixed == whole.fixed
