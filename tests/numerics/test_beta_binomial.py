"""The distribution of a count before it is seen: against SciPy's Beta-binomial, summed over every count."""

import numpy as np
import pytest
from scipy.special import digamma
from scipy.stats import betabinom

from pymc_dirdp.numerics.quadrature import count_distribution

FUNCTIONS = {
    "mean": lambda x, a: x,
    "second moment": lambda x, a: x**2,
    "zero": lambda x, a: (x == 0).astype(float),
    "digamma": lambda x, a: digamma(0.1 * x + a),
    "entropy": lambda x, a: x * np.log(x + 0.5),
}


def expectation(f, prior, n):
    """Over the cells of all rows, count by count, each row with n records."""
    x = np.arange(n + 1.0)
    return sum(betabinom.pmf(x, n, a, row.sum() - a) @ f(x, a) for row in np.atleast_2d(prior) for a in row)


def check(distribution, prior, n):
    for name, f in FUNCTIONS.items():
        found = distribution.weights @ f(distribution.counts, distribution.priors)
        assert found == pytest.approx(expectation(f, prior, n), rel=1e-9, abs=1e-13), name


@pytest.mark.parametrize("n", [1, 255, 256, 3000])
@pytest.mark.parametrize(
    "prior",
    [[0.01, 4.0, 4.0], [0.5, 300.0], np.linspace(0.1, 6.4, 9)],
    ids=["sparse", "uneven", "nine"],
)
def test_expectations_do_not_depend_on_how_counts_are_summed(prior, n):
    """Nine digits on both sides of 256, where blocks of counts become Gauss rules."""
    distribution = count_distribution(np.array(prior), n)
    check(distribution, np.array(prior), n)
    assert np.all(distribution.weights >= 0)
    np.testing.assert_array_equal(np.unique(distribution.priors), np.unique(prior))
    if n < 256:
        own = distribution.priors == prior[0]
        np.testing.assert_array_equal(np.unique(distribution.counts[own]), np.arange(n + 1))


@pytest.mark.parametrize(("n", "rtol"), [(10**6, 1e-9), (10**9, 1e-6)])
def test_moments_of_large_tables_and_few_nodes(n, rtol):
    prior = np.array([0.3, 2.0, 5.0])
    distribution, total = count_distribution(prior, n), prior.sum()
    for a in prior:
        own = distribution.priors == a
        mean = distribution.weights[own] @ distribution.counts[own]
        variance = distribution.weights[own] @ (distribution.counts[own] - mean) ** 2
        p = a / total
        assert mean == pytest.approx(n * p, rel=rtol)
        assert variance == pytest.approx(n * p * (1 - p) * (total + n) / (total + 1), rel=rtol)
    assert distribution.counts.size < 5000


@pytest.mark.parametrize("n", [90, 4000])
def test_rows_share_the_records_and_equal_cells_their_nodes(n):
    prior = np.array([[1.0, 1.0, 2.0], [1.0, 2.0, 1.0], [0.5, 0.5, 3.0]])
    distribution = count_distribution(prior, n)
    assert distribution.row_size == round(n / 3)
    np.testing.assert_array_equal(distribution.row_totals, [4, 4, 4])
    # Four kinds of cells: 1, 2, 0.5 and 3 out of 4.
    nodes = count_distribution(np.array([1.0, 3.0]), distribution.row_size).counts.size // 2
    assert set(distribution.priors) == {0.5, 1.0, 2.0, 3.0}
    assert np.sum(distribution.priors == 1.0) == nodes
    check(distribution, prior, distribution.row_size)
    # Equal cells of unequal rows are distinguished.
    prior = np.array([[1.0, 1.0], [1.0, 9.0]])
    check(count_distribution(prior, n), prior, n // 2)
    # One record in three rows: no row is planned as empty.
    sizes = [count_distribution(np.ones((3, 2)), records).row_size for records in (0, 1, 8)]
    assert sizes == [0, 1, 3]


def test_many_distinct_priors_share_nodes_with_their_neighbours():
    """200 distinct cells over four decades; neighbours within a few per cent share a distribution."""
    n, prior = 1000, 10 ** np.random.default_rng(4).uniform(-2, 2, 200)
    distribution = count_distribution(prior, n)
    assert len(np.unique(distribution.priors)) <= 64
    assert distribution.weights.sum() == pytest.approx(200, rel=1e-12)
    # The mean of a cell is linear in its prior, so it survives exactly.
    assert distribution.weights @ distribution.counts == pytest.approx(n, rel=1e-10)
    for name in ("second moment", "zero", "digamma"):
        exact = expectation(FUNCTIONS[name], prior, n)
        assert distribution.weights @ FUNCTIONS[name](distribution.counts, distribution.priors) == pytest.approx(
            exact, rel=3e-3
        ), name
