"""What releases cost against each kind of limit, by every way of adding up."""

import contextlib
import math
from decimal import Decimal, Inexact
from fractions import Fraction

import mpmath
import pytest

from pymc_dirdp.accounting import budget
from pymc_dirdp.accounting.entries import Entry, Header
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.errors import ArgumentError, BudgetError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import Bounded, convert, epsilon_at
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP

LIMIT = ApproxDP(epsilon=1.0, delta=1e-6)
MECHANISM = DirichletMechanism([1.0, 1.0], 0.02)
GUARANTEE = ApproxDP(epsilon=MECHANISM.epsilon(1e-8), delta=1e-8)


def folded(limit, costs, *, adaptive=True):
    """The balance of releases with these costs."""
    balance = budget.Balance(Header(limit, adaptive, "replace-one"), "The ledger", (0, "", ""))
    return balance.after([Entry(i, "now", "hair", PureDP(epsilon=1), cost) for i, cost in enumerate(costs, start=1)])


def spent(limit, *releases, adaptive=True):
    costs = [budget.cost_of(limit, guarantee, mechanism, adaptive=adaptive) for guarantee, mechanism in releases]
    return dict(folded(limit, costs, adaptive=adaptive)._iterate_amounts())


@pytest.mark.parametrize(
    ("limit", "guarantee", "expected"),
    [
        (RenyiDP(order=4, epsilon=1), RenyiDP(order=4, epsilon=0.3), 0.3),
        (RenyiDP(order=4, epsilon=1), RenyiDP(order=8, epsilon=0.3), 0.3),
        (RenyiDP(order=4, epsilon=1), TruncatedCDP(rho=0.05, omega=9), 0.2),
        (RenyiDP(order=4, epsilon=1), ZeroCDP(rho=0.05), 0.2),
        (TruncatedCDP(rho=1, omega=5), TruncatedCDP(rho=0.05, omega=9), 0.05),
        (ZeroCDP(rho=1), PureDP(epsilon=0.2), 0.02),
        (PureDP(epsilon=1), PureDP(epsilon=0.2), 0.2),
        # These imply nothing.
        (RenyiDP(order=4, epsilon=1), RenyiDP(order=3, epsilon=0.3), None),
        (RenyiDP(order=4, epsilon=1), ApproxDP(epsilon=0.1, delta=1e-9), None),
        (ZeroCDP(rho=1), TruncatedCDP(rho=0.05, omega=4), None),
        (PureDP(epsilon=1), ZeroCDP(rho=0.1), None),
    ],
)
def test_what_a_guarantee_costs(limit, guarantee, expected):
    if expected is None:
        with pytest.raises(ArgumentError, match="does not follow"):
            budget.cost_of(limit, guarantee, None, adaptive=True)
    else:
        ((amount,),) = spent(limit, (guarantee, None)).values()
        assert float(amount.spent) == pytest.approx(expected, rel=1e-12)


def test_a_mechanism_costs_its_own_divergence():
    limit = RenyiDP(order=4, epsilon=1)
    cost = budget.cost_of(limit, RenyiDP(order=4, epsilon=0.3), MECHANISM, adaptive=True)
    assert cost[limit.measure] == MECHANISM.renyi(4)
    # Under an (epsilon, delta) guarantee too, where the guarantee itself implies none.
    assert budget.cost_of(limit, GUARANTEE, MECHANISM, adaptive=True)[limit.measure] == MECHANISM.renyi(4)
    # A bound on divergences alone is stated at a tenth of the delta of the limit.
    cost, stated = (
        budget.cost_of(LIMIT, ZeroCDP(rho=0.01), None, adaptive=True),
        convert(ZeroCDP(rho=0.01), ApproxDP, delta=1e-7),
    )
    assert (cost["epsilon"], cost["delta"]) == (stated.epsilon, pytest.approx(1e-7))


def test_divergences_of_an_approximate_limit_convert_back_to_it():
    """Spending the whole budget is (epsilon, delta / 2) by P1 Lemma 3, and the leaks have the other half."""
    (amount, leak) = spent(LIMIT, (GUARANTEE, MECHANISM))["divergences"]
    order = float(amount.label.rsplit(" ", 1)[1])
    assert epsilon_at(order, float(amount.limit), LIMIT.delta / 2) == pytest.approx(1.0, rel=2e-3)
    assert leak.limit == Fraction(1, 2_000_000)
    assert leak.spent == 0
    assert float(amount.spent) == pytest.approx(MECHANISM.renyi(order), rel=2e-3)
    # A bare guarantee leaks its delta.
    amount, leak = spent(LIMIT, (ApproxDP(epsilon=0.1, delta=1e-7), None))["divergences"]
    assert leak.spent == budget.as_decimal(1e-7)
    assert float(amount.spent) == pytest.approx(min(0.1, order * 0.01 / 2), rel=2e-3)
    # Many small releases cost less by divergences than by sums.
    rules = spent(LIMIT, *[(GUARANTEE, MECHANISM)] * 20)
    assert max(amount.share for amount in rules["divergences"]) < 1 < max(amount.share for amount in rules["basic"])


def test_fixed_releases_are_added_up_by_the_tightest_way():
    assert tuple(budget.tracked_rules(LIMIT, adaptive=False)) == ("basic", "best order", "optimal composition")
    rules = spent(LIMIT, *[(GUARANTEE, MECHANISM)] * 20, adaptive=False)
    best, optimal = rules["best order"][0], rules["optimal composition"][0]
    composition = Composition(((MECHANISM, 20),))
    # The tracked orders are a grid, so a little above the best of all; the composed loss is below both.
    order = composition.best_order(1e-6)
    converted = epsilon_at(order, composition.renyi(order), 1e-6)
    assert converted <= float(best.spent) < 1.02 * converted
    assert composition.epsilon(1e-6) < float(best.spent)
    assert optimal.share > best.share


@pytest.mark.parametrize("delta", [5e-324, 0.5])
@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1.0, 1000.0, 1e300])
def test_a_limit_of_every_size_is_spent_once(epsilon, delta):
    """Found by review: an epsilon of 0 did not end, (1000, 0.5) was no double."""
    limit = ApproxDP(epsilon=epsilon, delta=delta)
    ledger = Ledger(limit)
    ledger.spend(limit, what="hair")
    for more in (limit, PureDP(epsilon=1e160), RenyiDP(order=1e9, epsilon=1.7e308), ZeroCDP(rho=1e160)):
        with contextlib.suppress(ArgumentError), pytest.raises(BudgetError):
            ledger.spend(more, what="eyes")
    assert len(ledger.entries()) == 1
    fixed = Ledger(limit, adaptive=False)
    with contextlib.suppress(BudgetError):
        fixed.spend(limit, what="hair")
        fixed.spend(limit, what="hair")
    assert all(left >= 0 for left in (*ledger.left.values(), *fixed.left.values()))


def test_a_guarantee_of_epsilon_zero_costs_its_delta_alone():
    for adaptive in (True, False):
        ledger = Ledger(LIMIT, adaptive=adaptive)
        for _ in range(10):
            ledger.spend(ApproxDP(epsilon=0, delta=1e-7), what="hair")
        with pytest.raises(BudgetError):
            ledger.spend(ApproxDP(epsilon=0, delta=1e-7), what="hair")


@pytest.mark.parametrize("epsilon", [1e-15, 1e-3, 1.0, 30.0, 1e12])
@pytest.mark.parametrize("delta", [1e-30, 0.5])
def test_the_budget_of_divergences_keeps_the_limit(epsilon, delta):
    """Oracle: the conversion of P1 Lemma 3 with 60 digits. No rounding is on the unsafe side."""
    for amount in spent(ApproxDP(epsilon=epsilon, delta=delta)).get("divergences", ())[:1]:
        with mpmath.workdps(60):
            o, d = mpmath.mpf(budget._suitable_order(epsilon, delta)[0]), mpmath.mpf(delta) / 2
            implied = mpmath.mpf(str(amount.limit)) + mpmath.log(o - 1)
            implied -= (mpmath.log(d) + o * mpmath.log(o)) / (o - 1)
            assert implied <= mpmath.mpf(epsilon)


def test_sums_are_exact_from_the_smallest_to_the_largest_double():
    costs = [{"epsilon": value} for value in (1.7e308, 5e-324, 0.1, 1.7e308, 2.0**-1074)]
    total = folded(LIMIT, costs)
    assert Fraction(total.sum("epsilon")) == 2 * Fraction("1.7e308") + 2 * Fraction("5e-324") + Fraction("0.1")
    with pytest.raises(Inexact):
        budget.EXACT.add(Decimal("1e900"), Decimal("1e-900"))
    # A number that one release lacks has no sum.
    assert folded(LIMIT, [*costs, {"delta": 0.1}]).sum("epsilon") is None
    assert folded(LIMIT, []).sum("delta") == 0
    assert float(total.sum("epsilon")) == math.inf


def test_a_pure_mechanism_costs_no_delta():
    """A pure guarantee stays pure in a ledger, also if it was asked for as (epsilon, delta)."""
    mechanism = Composition(((GeometricMechanism.for_guarantee(PureDP(epsilon=0.25), prior=[1, 1]), 2),))
    cost = budget.cost_of(LIMIT, ApproxDP(epsilon=0.5, delta=1e-7), mechanism, adaptive=True)
    assert (cost["epsilon"], cost["delta"]) == (mechanism.pure_epsilon, 0.0)
    assert budget.cost_of(PureDP(epsilon=1), ApproxDP(epsilon=0.5, delta=1e-7), mechanism, adaptive=True) == {
        "epsilon": mechanism.pure_epsilon
    }
    # Where the mechanism is pure only at a larger epsilon, what was guaranteed costs less.
    loose = Composition(((mechanism, 4),))
    guarantee = ApproxDP(epsilon=loose.epsilon(1e-3), delta=1e-3)
    assert guarantee.epsilon < loose.pure_epsilon
    cost = budget.cost_of(LIMIT, guarantee, loose, adaptive=True)
    assert (cost["epsilon"], cost["delta"]) == (guarantee.epsilon, guarantee.delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (1.0, 5e-324)])
def test_a_limit_for_which_no_order_is_of_use_has_no_budget_of_divergences(epsilon, delta):
    assert budget._suitable_order(epsilon, delta)[1] == 0
    with pytest.raises(BudgetError):
        Ledger(ApproxDP(epsilon=epsilon, delta=delta)).spend(RenyiDP(order=2.0, epsilon=0.5), what="hair")


def different(n, delta=1e-9):
    return [(ApproxDP(epsilon=0.05 + 0.001 * i, delta=delta * (1 + i / n)), None) for i in range(n)]


def test_deltas_are_composed_apart_from_epsilons():
    """Oracle: the composition of the pairs as they are. Two guarantees of one epsilon need one part."""
    guarantees = [*different(20, 1e-4), *different(20, 1e-4 / 7)]
    limit = ApproxDP(epsilon=50, delta=0.01)
    found = spent(limit, *guarantees, adaptive=False)["optimal composition"][0]
    pairs = tuple((Bounded(guarantee.epsilon, guarantee.delta), 1) for guarantee, _ in guarantees)
    assert float(found.spent) == pytest.approx(Composition(pairs).epsilon(0.01), rel=1e-6)


def test_a_delta_is_never_lost(monkeypatch):
    """Oracle: at an epsilon that no finite loss exceeds, what is left is 1 - prod(1 - delta), in exact numbers."""
    deltas = [1e-9 * (1 + i / 20) for i in range(20)]
    parts = budget._worst_case_parts({(0.05 + 0.001 * i, delta): 2 for i, delta in enumerate(deltas)})
    survives = math.prod((1 - Fraction(delta)) ** 2 for delta in deltas)
    assert Composition(parts)._delta(100.0) >= 1 - survives
    assert Composition(parts)._delta(100.0) == pytest.approx(float(1 - survives), rel=1e-9)
    assert budget._worst_case_parts({(0.1, 0.0): 3}) == ((Bounded(0.1, 0.0), 3),)
    assert budget._worst_case_parts({(0.1, 1.0): 3})[-1] == (Bounded(0.0, 1.0), 1)


def test_many_different_epsilons_are_rounded_up(monkeypatch):
    """Oracle: the composition without the rounding. It is never above, and 0.1 % of each epsilon below."""
    limit = ApproxDP(epsilon=50, delta=0.01)
    exact = float(spent(limit, *different(40), adaptive=False)["optimal composition"][0].spent)
    monkeypatch.setitem(budget._worst_case_parts.__kwdefaults__, "max_epsilons", 39)
    monkeypatch.setitem(budget._round_up.__kwdefaults__, "ratio", 1.01)
    rounded = float(spent(limit, *different(40), adaptive=False)["optimal composition"][0].spent)
    assert exact < rounded < 1.02 * exact


def test_rounding_never_lowers_an_epsilon_and_makes_few_of_many():
    for epsilon in (0.0, 5e-324, 1e-300, 3e-7, 0.1, 1.0, 1.001, 7.3, 1e10, 1e300, 1.7e308):
        assert epsilon <= budget._round_up(epsilon) <= max(1.001 * epsilon * (1 + 1e-12), epsilon)
    assert len({budget._round_up(1 + i / 10**5) for i in range(1000)}) < 15


def test_a_rule_by_which_a_limit_of_0_is_exceeded_is_not_the_tightest():
    def amounts(*values):
        return [
            budget.Amount(name, *map(Decimal, pair)) for name, pair in zip(("epsilon", "delta"), values, strict=True)
        ]

    by_rule = {"exceeded": amounts(("0.5", "1"), ("1e-9", "0")), "full": amounts(("1", "1"), ("0", "0"))}
    assert budget._tightest(by_rule) == "full"
    assert budget._tightest(dict(reversed(by_rule.items()))) == "full"


def test_shares_of_a_limit_and_what_is_left():
    for spent, limit, share in ((0.5, 2, 0.25), (2, 2, 1), (3, 2, 1.5), (0, 0, 0), (5e-324, 0, 1)):
        amount = budget.Amount("epsilon", budget.as_decimal(spent), budget.as_decimal(limit))
        assert (amount.share, amount.within) == (share, spent <= limit)
        assert amount.left == budget.as_decimal(limit) - budget.as_decimal(spent)


def test_what_a_reservation_lacks_is_added_up_again_once_it_was_used():
    """It was lost for good: a reservation without a divergence, and no release has one less than the ledger needs."""
    costs = [{"epsilon": 0.1, "delta": 0.0}, {"epsilon": 0.2, "delta": 0.0}]
    bare = Entry(1, "now", "hair", PureDP(epsilon=1), {"epsilon": 0.4}, reserved=True)
    release = Entry(2, "now", "hair", PureDP(epsilon=1), costs[0], uses=1)
    reserved = budget.Balance(Header(LIMIT, True, "replace-one"), "The ledger", (0, "", "")).after([bare])
    assert reserved.sum("delta") is None
    used = reserved.after([release])
    assert (used.sum("epsilon"), used.sum("delta"), used.n_entries) == (budget.as_decimal(0.1), 0, 1)
    assert used.reservations == {}
