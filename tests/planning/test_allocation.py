"""One target, many tables: the parts must not add up to more than the whole."""

from fractions import Fraction

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.planning.allocation import allocate

PURE = dirdp.PureDP(epsilon=1.0)
RENYI = dirdp.RenyiDP(order=4.0, epsilon=0.3)
TRUNCATED = dirdp.TruncatedCDP(rho=0.7, omega=5.0)
ZERO = dirdp.ZeroCDP(rho=0.1)


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
