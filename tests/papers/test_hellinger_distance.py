"""Hellinger distances against 40 digits and against an integral."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.papers.hellinger_distributions import AffinityRows, affinity_loss, hellinger_distance


def by_mpmath(a, b):
    def log_beta(values):
        return mp.fsum(mp.loggamma(v) for v in values) - mp.loggamma(mp.fsum(values))

    with mp.workdps(40):
        a, b = ([mp.mpf(float(v)) for v in values] for values in (a, b))
        middle = [(u + v) / 2 for u, v in zip(a, b, strict=True)]
        return float(mp.sqrt(-mp.expm1(log_beta(middle) - (log_beta(a) + log_beta(b)) / 2)))


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(-3, 2), st.integers(0, 1_000_000)), min_size=2, max_size=5),
    st.integers(1, 1000),
)
def test_moving_records_to_full_precision(cells, shift):
    # A prior of 2**-20 steps, so that the sums are exact and rounding of the arguments plays no part.
    prior = np.array([max(round(10**log * 2**20), 1) / 2**20 for log, _ in cells])
    before = np.array([count for _, count in cells]) + shift
    after = before.copy()
    after[0] -= shift
    after[1] += shift
    assert hellinger_distance(prior + before, prior + after) == pytest.approx(
        by_mpmath(prior + before, prior + after), rel=1e-12
    )


@pytest.mark.parametrize(("a", "b"), [((0.7, 0.9), (1.4, 4.0)), ((30.0, 3.0), (29.0, 40.0))])
def test_the_definition_also_for_unequal_totals(a, b):
    affinity = quad(lambda x: math.sqrt(beta.pdf(x, *a) * beta.pdf(x, *b)), 0, 1, limit=200)[0]
    assert hellinger_distance(a, b) == pytest.approx(math.sqrt(1 - affinity), rel=1e-6)


def test_symmetry_identity_and_broadcasting():
    a, b = np.array([[1.0, 2.0, 0.3], [4.0, 0.1, 9.0]]), np.array([3.0, 1.0, 1.0])
    np.testing.assert_array_equal(hellinger_distance(a, b), hellinger_distance(b, a))
    np.testing.assert_array_equal(hellinger_distance(a, a), 0.0)
    assert hellinger_distance([0.01, 1e6], [1e6, 0.01]) == 1.0
    # Nearly empty cells keep their digits.
    for a, b in (([1e-9, 5.0], [3 + 1e-9, 2.0]), ([1e-30, 0.5], [0.5, 1e-30])):
        assert hellinger_distance(a, b) == pytest.approx(by_mpmath(a, b), rel=1e-13)
    with pytest.raises(ArgumentError, match="first"):
        hellinger_distance([0, 1], [1, 1])


@pytest.mark.parametrize("prior", [0.01, 1.0, 37.5])
@pytest.mark.parametrize("n", [1, 7, 2000])
def test_rows_are_the_losses_and_infinite_only_where_nothing_is_left(prior, n):
    rows = AffinityRows(prior, n)
    points = prior + np.arange(n + 1)
    for i in {0, n // 3, n}:
        row, loss = rows.row(i), affinity_loss(points[i], points)
        known = np.isfinite(row)
        np.testing.assert_allclose(row[known], loss[known], rtol=1e-10, atol=1e-18)
        assert np.all(loss[~known] > 37)
    # There is something beyond reach in the large table, and the test above sees it.
    assert np.isinf(rows.row(0)).any() == (loss.max() > 41)
