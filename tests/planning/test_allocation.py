"""One target, many tables: the parts add up to no more than the whole."""

from fractions import Fraction

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.allocation import allocate, composed

PRIORS = {"a": np.ones(3), "b": np.full(4, 0.5)}
TOGETHER = [("a", "b")]
PURE = dirdp.PureDP(epsilon=1.0)
RENYI = dirdp.RenyiDP(order=4.0, epsilon=0.3)
TRUNCATED = dirdp.TruncatedCDP(rho=0.7, omega=5.0)
ZERO = dirdp.ZeroCDP(rho=0.1)


def tempered(name, share):
    return dirdp.calibrate(share, prior=PRIORS[name], mechanism=Dirichlet(strategy="temper"))


@pytest.mark.parametrize(
    "guarantee",
    [
        dirdp.RenyiDP(order=3, epsilon=1),
        dirdp.TruncatedCDP(rho=0.1, omega=5),
        dirdp.ApproxDP(epsilon=1, delta=1e-6),
    ],
)
def test_tables_keep_a_guarantee_together_and_leave_little(guarantee):
    made = allocate(guarantee, tempered, weights={"a": 1, "b": 2}, groups=TOGETHER, draws=2)
    curves = composed(made, TOGETHER, 2)
    assert curves.satisfies(guarantee)
    assert not curves.satisfies(guarantee.with_budget(0.97 * guarantee.budget))


def test_a_guarantee_that_all_posteriors_keep_gives_them_back():
    def optimal(name, share):
        return dirdp.calibrate(share, prior=PRIORS[name] + 50, n_records=100)

    loose = dirdp.ApproxDP(epsilon=20, delta=1e-3)
    made = allocate(loose, optimal, weights={"a": 1, "b": 1}, groups=TOGETHER, draws=2)
    assert all(mechanism.r == 1 for mechanism in made.values())
    assert all(np.array_equal(mechanism.alpha, PRIORS[name] + 50) for name, mechanism in made.items())


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.01, 1e-9)])
def test_an_order_that_is_too_high_is_left_after_few_calibrations(epsilon, delta):
    """At the first order the divergence becomes infinite before the guarantee is used up, whatever the budget."""
    guarantee, orders = dirdp.ApproxDP(epsilon=epsilon, delta=delta), []

    def optimal(name, share):
        orders.append(share.order)
        return dirdp.calibrate(share, prior=np.ones(3 + (name == "b")), n_records=100)

    curves = composed(allocate(guarantee, optimal, weights={"a": 1, "b": 2}, groups=TOGETHER, draws=1), TOGETHER, 1)
    assert len(set(orders)) > 1
    # At each order that is left three budgets of two tables are tried, and a fourth is compared with the largest.
    assert all(orders.count(order) <= 8 for order in set(orders) - {orders[-1]})
    assert curves.satisfies(guarantee)
    assert not curves.satisfies(guarantee.with_budget(0.97 * guarantee.budget))


def test_the_search_for_an_order_ends():
    """It did not end: the delta of a half allows far more than a tiny epsilon does, so the search begins there."""
    guarantee, orders = dirdp.ApproxDP(epsilon=1e-6, delta=0.5), []

    def algorithm_1(name, share):
        orders.append(share.order)
        return dirdp.calibrate(share, prior=PRIORS[name], mechanism=Dirichlet(strategy="algorithm-1"), contribution=5)

    made = allocate(guarantee, algorithm_1, weights={"a": 1, "b": 1}, groups=TOGETHER, draws=2)
    assert len(orders) < 50
    assert composed(made, TOGETHER, 2).satisfies(guarantee)
    # Nearly all of it is used.
    assert composed(made, TOGETHER, 2).delta(1e-6) > 0.49


def test_a_guarantee_that_nothing_keeps_is_refused():
    with pytest.raises(dirdp.errors.UnattainableError, match="so tight"):
        allocate(dirdp.ApproxDP(epsilon=0, delta=1e-150), tempered, weights={"a": 1, "b": 1}, groups=TOGETHER, draws=2)


def amount(guarantee):
    """The epsilon or rho as the rational number that the double is."""
    return Fraction(guarantee.rho if isinstance(guarantee, dirdp.TruncatedCDP | dirdp.ZeroCDP) else guarantee.epsilon)


@pytest.mark.parametrize("guarantee", [PURE, RENYI, TRUNCATED, ZERO], ids=lambda guarantee: type(guarantee).__name__)
def test_the_parts_add_up_to_no_more_than_the_whole_to_the_last_bit(guarantee):
    """Oracle: rational arithmetic. Without the rounding down, half of such sums are above the whole."""
    rng = np.random.default_rng(7)
    for _ in range(100):
        draws, n_tables = int(rng.integers(1, 8)), int(rng.integers(2, 9))
        weights = {f"table {i}": float(rng.choice([rng.uniform(0.1, 9), rng.integers(1, 4)])) for i in range(n_tables)}
        parts = allocate(guarantee, lambda _, part: part, weights=weights, groups=[tuple(weights)], draws=draws)
        spent = draws * sum(amount(part) for part in parts.values())
        assert (1 - Fraction(1, 10**14)) * amount(guarantee) < spent <= amount(guarantee)
        assert [type(part) for part in parts.values()] == [type(guarantee)] * n_tables


def test_a_group_that_spends_alone_has_the_whole_budget():
    """Parallel composition: each group of tables may spend everything, and a table obeys its largest group."""
    weights = {"a": 1.0, "b": 3.0, "c": 2.0}
    parts = allocate(PURE, lambda _, part: part, weights=weights, groups=[("a", "b"), ("c",)], draws=1)
    assert [part.epsilon for part in parts.values()] == pytest.approx([0.25, 0.75, 1.0], rel=1e-14)
    shared = allocate(PURE, lambda _, part: part, weights=weights, groups=[("a", "b"), ("b", "c")], draws=1)
    assert [part.epsilon for part in shared.values()] == pytest.approx([0.25, 0.6, 0.4], rel=1e-14)


def test_a_table_whose_one_release_serves_all_draws_pays_once():
    parts = allocate(PURE, lambda _, part: part, weights={"a": 1.0, "b": 1.0}, groups=[("a", "b")], draws=5, once={"a"})
    assert [part.epsilon for part in parts.values()] == pytest.approx([0.5, 0.1], rel=1e-14)
