"""Gauss-Legendre rules on graded panels, Gamma ratios, and the distribution of a count before it is seen."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import digamma
from scipy.stats import betabinom

from pymc_dirdp.numerics.quadrature import (
    _log_gamma_ratio,
    coth_excess,
    count_distribution,
    graded_breaks,
    integrate,
    legendre_excess,
    log_legendre,
    nodes,
)

BREAKS = np.array([-1.0, 0.2, 0.5, 3.0])


@pytest.mark.parametrize("degree", [0, 13, 27])
def test_polynomials_up_to_degree_27_are_exact_and_no_others(degree):
    powers = BREAKS ** (degree + 1) / (degree + 1)
    panels = [integrate(lambda x: x**degree, BREAKS[i : i + 2]) for i in range(3)]
    np.testing.assert_allclose(panels, np.diff(powers), rtol=1e-13, atol=1e-16)
    points, weights = nodes(BREAKS)
    assert np.all(np.diff(points) > 0)
    assert np.all(weights > 0)
    for found in (integrate(lambda x: x**degree, BREAKS), points**degree @ weights):
        assert found == pytest.approx(powers[-1] - powers[0], rel=1e-13)
    # The rule has 14 nodes and no more: a test that passes for any function would show nothing.
    one_panel = np.array([-1.0, 3.0])
    assert integrate(lambda x: x**28, one_panel) != pytest.approx((3.0**29 + 1) / 29, rel=1e-13)


@pytest.mark.parametrize("gap", [1e-150, 1e-8, 50.0])
@pytest.mark.parametrize("length", [1e-200, 1e-6, 1e4])
def test_panels_are_no_longer_than_their_distance_from_a_pole_which_keeps_thirteen_digits(gap, length):
    breaks = graded_breaks(gap, length)
    assert (breaks[0], breaks[-1]) == (0, length)
    assert np.all(np.diff(breaks) > 0)
    assert np.all(np.diff(breaks) <= (gap + breaks[:-1]) * (1 + 1e-12))
    # And not many more than that takes: each panel is at least about half as long.
    assert len(breaks) - 1 <= 1 + math.log2(1 + length / gap)
    assert integrate(lambda x: 1 / (gap + x), breaks) == pytest.approx(math.log1p(length / gap), rel=1e-13)


@pytest.mark.parametrize("a", [1e-100, 1e-17, 1e-3, 1.0, 60.0])
def test_ratios_of_gamma_functions_with_fifty_digits(a):
    """Stirling's series from 64 on, whose terms are all seen at 65; the smallest priors are not lost beside 1."""
    x = np.array([0.0, 1.0, 63.5, 64.5, 65.0, 66.0, 1e3, 1e9, 1e15])
    with mp.workdps(150):
        exact = [float(mp.loggamma(mp.mpf(one) + mp.mpf(a)) - mp.loggamma(mp.mpf(one) + 1)) for one in x.tolist()]
    np.testing.assert_allclose(_log_gamma_ratio(x, a), exact, rtol=2e-15, atol=2e-13)


@pytest.mark.parametrize("u", [1e-300, 0.1, 8.0, 60.0])
def test_ratios_of_legendre_polynomials_have_no_cancellation(u):
    with mp.workdps(60):
        x = mp.coth(mp.mpf(u) / 2)
        values = [mp.mpf(1), x]
        for n in range(2, 60):
            values.append(((2 * n - 1) * x * values[-1] - (n - 1) * values[-2]) / n)
        assert coth_excess(u) == pytest.approx(float(x - 1), rel=4e-16)
        for n in (1, 2, 30, 59):
            assert legendre_excess(n, u) == pytest.approx(float(values[n] / values[n - 1] - 1), rel=2e-15)
            assert log_legendre(n, u) == pytest.approx(float(mp.log(values[n])), rel=2e-15)
    # A late start is below the truth.
    truth = legendre_excess(3000, u)
    least = {8.0: 0.9, 60.0: 0.01}.get(u, 1 - 1e-15)
    assert truth * least <= legendre_excess(3000, u, steps=100) <= truth * (1 + 1e-15)
    assert legendre_excess(5, 800.0) == log_legendre(5, 2.0**1001) == log_legendre(0, u) == 0.0


# The distribution of a count, against SciPy's Beta-binomial, summed over every count.

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


def check(distribution, prior, n, names=FUNCTIONS, rel=1e-9):
    for name in names:
        found = distribution.weights @ FUNCTIONS[name](distribution.counts, distribution.priors)
        assert found == pytest.approx(expectation(FUNCTIONS[name], prior, n), rel=rel, abs=1e-13), name


@pytest.mark.parametrize("n", [1, 255, 256, 3000])
@pytest.mark.parametrize(
    "prior", [[0.01, 4.0, 4.0], [0.5, 300.0], np.linspace(0.1, 6.4, 9)], ids=["sparse", "uneven", "nine"]
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
    check(distribution, prior, n, ("second moment", "zero", "digamma"), rel=3e-3)
