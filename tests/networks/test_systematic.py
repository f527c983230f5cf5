import numpy as np
import pytest

from pymc_dirdp.networks.systematic import systematic

RNG = np.random.default_rng(7)
SHARES = RNG.dirichlet(np.ones(4), size=6)
ROWS = RNG.integers(0, 6, 500)


def test_each_record_has_its_category_with_the_probability_of_its_row():
    """The same records are drawn 20 000 times; the same test tells the shares of another row apart."""
    rows, times = ROWS[:30], 20_000
    rng = np.random.default_rng(1)
    seen = np.stack([systematic(rows, SHARES, rng) for _ in range(times)])
    for shares, passes in ((SHARES, True), (np.roll(SHARES, 1, axis=0), False)):
        p = shares[rows]
        found = np.stack([(seen == category).mean(axis=0) for category in range(4)], axis=1)
        z = (found - p) / np.sqrt(p * (1 - p) / times)
        assert bool(np.abs(z).max() < 5.5) is passes


@pytest.mark.parametrize("seed", range(5))
def test_counts_of_rows_and_of_rows_in_order_are_as_expected_up_to_rounding(seed):
    codes = systematic(ROWS, SHARES, np.random.default_rng(seed))
    found = np.stack([np.bincount(codes[row == ROWS], minlength=4) for row in range(6)])
    expected = np.bincount(ROWS, minlength=6)[:, None] * SHARES
    for end in range(1, 7):
        off = np.abs(found[:end].sum(axis=0) - expected[:end].sum(axis=0))
        assert np.all(off <= np.array([1, 2, 3, 4]) + 1e-9)
    assert np.all(np.abs(found - expected) <= np.array([1, 2, 3, 4]) + 1e-9)


def test_categories_of_probability_zero_and_one_and_no_records():
    certain = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    codes = systematic(np.array([0, 1, 0, 1, 1]), certain, np.random.default_rng(0))
    assert codes.tolist() == [1, 2, 1, 2, 2]
    assert systematic(np.zeros(0, dtype=int), certain, np.random.default_rng(0)).size == 0
    assert systematic(np.zeros(3, dtype=int), np.ones((1, 1)), np.random.default_rng(0)).tolist() == [0, 0, 0]


def test_two_children_of_the_same_parents_are_independent_given_them():
    """Without a random order within rows, both would go up and down together."""
    rng, shares = np.random.default_rng(0), np.full((2, 2), 0.5)
    rows = np.repeat([0, 1], 5000)
    one, other = systematic(rows, shares, rng), systematic(rows, shares, rng)
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / 100
