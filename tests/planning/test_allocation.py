"""One target, many tables: the parts add up to no more than the whole."""

from fractions import Fraction

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.allocation import allocate, composed

PRIORS = {"a": np.ones(3), "b": np.full(4, 0.5)}
WEIGHTS = {"a": 1, "b": 2}
TOGETHER = [("a", "b")]


def tempered(name, share):
    return dirdp.calibrate(share, prior=PRIORS[name], mechanism=Dirichlet(strategy="temper"))


@pytest.mark.parametrize(
    "guarantee", [dirdp.RenyiDP(order=3, epsilon=1), dirdp.ApproxDP(epsilon=1, delta=1e-6)], ids=str
)
def test_tables_keep_a_guarantee_together_and_leave_little(guarantee):
    made = allocate(guarantee, tempered, weights=WEIGHTS, groups=TOGETHER, draws=2)
    curves = composed(made, TOGETHER, 2)
    assert curves.satisfies(guarantee)
    assert not curves.satisfies(guarantee.with_budget(0.97 * guarantee.budget))


def optimal(name, share):
    return dirdp.calibrate(share, prior=PRIORS[name] + 50, n_records=100)


def test_a_guarantee_that_all_posteriors_keep_gives_them_back_and_one_that_nothing_keeps_is_refused():
    made = allocate(dirdp.ApproxDP(epsilon=20, delta=1e-3), optimal, weights=WEIGHTS, groups=TOGETHER, draws=2)
    for name, mechanism in made.items():
        assert mechanism.r == 1
        np.testing.assert_array_equal(mechanism.alpha, PRIORS[name] + 50)
    with pytest.raises(dirdp.errors.UnattainableError, match="so tight"):
        allocate(dirdp.ApproxDP(epsilon=0, delta=1e-150), tempered, weights=WEIGHTS, groups=TOGETHER, draws=2)


def test_an_order_that_is_too_high_is_left_after_few_calibrations():
    """At the first order the divergence becomes infinite before the guarantee is used up, whatever the budget."""
    guarantee, orders = dirdp.ApproxDP(epsilon=0.01, delta=1e-9), []

    def optimal(name, share):
        orders.append(share.order)
        return dirdp.calibrate(share, prior=np.ones(3 + (name == "b")), n_records=100)

    curves = composed(allocate(guarantee, optimal, weights=WEIGHTS, groups=TOGETHER, draws=1), TOGETHER, 1)
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

    made = composed(allocate(guarantee, algorithm_1, weights=WEIGHTS, groups=TOGETHER, draws=2), TOGETHER, 2)
    assert len(orders) < 50
    assert made.satisfies(guarantee)
    assert made.delta(1e-6) > 0.49


@pytest.mark.parametrize("guarantee", [dirdp.PureDP(epsilon=1.0), dirdp.TruncatedCDP(rho=0.7, omega=5.0)], ids=str)
def test_the_parts_add_up_to_no_more_than_the_whole_to_the_last_bit(guarantee):
    """Oracle: rational arithmetic. Without the rounding down, half of such sums are above the whole."""
    rng = np.random.default_rng(7)
    for _ in range(100):
        draws, n_tables = int(rng.integers(1, 8)), int(rng.integers(2, 9))
        weights = {f"table {i}": float(rng.choice([rng.uniform(0.1, 9), rng.integers(1, 4)])) for i in range(n_tables)}
        parts = allocate(guarantee, lambda _, part: part, weights=weights, groups=[tuple(weights)], draws=draws)
        spent = draws * sum(Fraction(part.budget) for part in parts.values())
        assert (1 - Fraction(1, 10**14)) * Fraction(guarantee.budget) < spent <= Fraction(guarantee.budget)
        assert all(part == guarantee.with_budget(part.budget) for part in parts.values())


@pytest.mark.parametrize(
    ("groups", "options", "expected"),
    [
        # Parallel composition: each group of tables may spend everything.
        ([("a", "b"), ("c",)], {"draws": 1}, [0.25, 0.75, 1.0]),
        # A table obeys its largest group.
        ([("a", "b"), ("b", "c")], {"draws": 1}, [0.25, 0.6, 0.4]),
        # The one release of the first table serves all draws.
        ([("a", "b"), ("c",)], {"draws": 5, "once": {"a"}}, [0.25, 0.15, 0.2]),
    ],
)
def test_shares_follow_groups_and_numbers_of_releases(groups, options, expected):
    weights = {"a": 1.0, "b": 3.0, "c": 2.0}
    parts = allocate(dirdp.PureDP(epsilon=1.0), lambda _, part: part, weights=weights, groups=groups, **options)
    assert [part.epsilon for part in parts.values()] == pytest.approx(expected, rel=1e-14)
