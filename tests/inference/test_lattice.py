"""Sums by waves, by transforms and by products of all numbers; draws given a sum, against all tables there are."""

import numpy as np
import pytest
from scipy.special import gammaln, softmax
from scipy.stats import chisquare, nbinom

from pymc_dirdp.inference.lattice import Convolved, Sums, reaches
from pymc_dirdp.inference.numbers import Lists, Numbers
from pymc_dirdp.inference.rows import BatchedRows
from tests.oracles import drawn_p_value, tables_of

from .posteriors import released


def moments(sums, totals):
    """Sums of the masses of each number given the totals, and of them times the number and its square."""
    lists = sums.lists
    above, masses = lists.x - np.rint(lists.means)[lists.cell], sums.masses_at_totals(totals)
    return np.array([np.bincount(lists.cell, masses * above**k, lists.size) for k in range(3)])


@pytest.mark.parametrize(("d", "rows"), [(3, 4), (40, 1)])
def test_three_ways_to_sum_agree(d, rows):
    rng, n, size = np.random.default_rng(d + rows), 8_000, d * rows
    z, sd, alpha = rng.uniform(0.2 * n, 0.8 * n, size), np.exp(rng.uniform(2, 4.5, size)), rng.uniform(0.3, 2, size)

    def log_weight(x, i):
        prior = gammaln(x + alpha[i]) - gammaln(x + 1)
        return prior - (((x - z[i]) / sd[i]) ** 2) / 2 - np.abs(x - np.rint(z[i])) / 900

    numbers, tilts = Numbers(log_weight, size, 0, n, few=0), np.repeat(np.linspace(-1e-4, 1e-4, rows), d)
    listed = numbers.at(tilts)
    variances = listed.variances.reshape(rows, d)
    longest = np.sqrt(variances.sum(axis=1, keepdims=True) - variances).ravel()
    nodes = numbers.at(tilts, longest=longest, dense=0)
    assert (listed.are_whole, nodes.are_whole) == (True, False)
    products = [Convolved(listed.take(d * row + np.arange(d))) for row in range(rows)]
    means, sds = listed.means.reshape(rows, d).sum(axis=1), np.sqrt(variances.sum(axis=1))
    for shift in (-3.0, 0.0, 0.7, 4.0):
        totals = np.rint(means + shift * sds).astype(np.int64)
        of_rows = list(zip(products, totals[:, None], strict=True))
        exact = np.array([float(one.at(np.array([0]), total)[0]) for one, total in of_rows])
        logs = np.array([float(one.log_probabilities(total)[0]) for one, total in of_rows])
        largest, wanted = np.array([one.pmf.max() for one in products]), [moments(*of_row) for of_row in of_rows]
        bound = 1e-11 + 1e-14 * largest / exact
        # The masses of all points, their mean and their square.
        scales = np.maximum(1, (10 * np.sqrt(listed.variances)) ** np.arange(3)[:, None])
        allowed = np.repeat(bound, d) * (1 + abs(shift)) * scales
        for sums in (Sums(listed, rows, log_weight), Sums(nodes, rows, log_weight)):
            assert np.abs(sums.at(np.arange(rows), totals) - exact).max() < 1e-11 * largest.min()
            assert np.all(np.abs(sums.log_probabilities(totals) - logs) < bound)
            assert np.all((sums.largest >= largest * (1 - 1e-12)) & (sums.largest < 1.2 * largest))
            assert np.all(np.abs(moments(sums, totals) - np.concatenate(wanted, axis=1)) < allowed)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("kind", [Convolved, Sums])
def test_what_is_said_of_a_sum_is_said_of_each_number(kind, size):
    """Functions of some sums, spread over the cells: each kind of sum against sums over all tables."""
    rng = np.random.default_rng(5)
    widths, lows = np.array([9, 14, 6])[:size], np.array([3, 0, 40])[:size]
    cells = Lists.whole(lows, widths, np.concatenate([np.sort(rng.normal(size=w)) for w in widths]), 0.05)
    grids = np.meshgrid(*(low + np.arange(w) for low, w in zip(lows, widths, strict=True)), indexing="ij")
    pmf = np.prod([cells.pmf(i)[g - lows[i]] for i, g in enumerate(grids)], axis=0)
    n, first = sum(grids), lows.sum() + 2 * size
    known = rng.random((2, np.ptp(n) - 4 * size))
    inside = (n >= first) & (n < first + known.shape[1])
    found = kind(cells).cell_masses(np.array([first]), known[:, None])
    for i in range(size):
        for k in range(2):
            weights = np.where(inside, known[k][np.clip(n - first, 0, known.shape[1] - 1)] * pmf, 0.0)
            expected = np.bincount((grids[i] - lows[i]).ravel(), weights.ravel(), widths[i])
            np.testing.assert_allclose(found[k, cells.cell == i], expected, atol=1e-12)


def test_many_cells_take_no_more_waves_than_few():
    """Equal cells with means of .4.

    Whose sum is a negative binomial distribution: 5,000 rounded means miss 2,000 together.
    """
    d, q = 5_000, 2 / 7
    sums = Sums(Numbers(lambda x, cell: x * np.log(q), d, 0, 400).at(0.0))
    totals = np.array([1_900, 2_000, 2_080])
    logs = [float(sums.log_probabilities(np.array([n]))[0]) for n in totals]
    np.testing.assert_allclose(logs + d * np.log1p(-q), nbinom.logpmf(totals, d, 1 - q), atol=1e-9)
    assert sums._product.shape[-1] <= 60
    rest = nbinom.logpmf(2_000 - np.arange(3), d - 1, 1 - q)
    given = sums.cell_masses(np.array([2_000]), np.ones((1, 1, 1)))[0]
    for cell in (0, 2_499, d - 1):
        start = sums.lists.starts[cell]
        found = given[start : start + 3] / sums.lists.masses[start : start + 3]
        np.testing.assert_allclose(np.log(found), rest, atol=1e-9)


# Draws


@pytest.mark.parametrize("d", [2, 9])
def test_a_million_records_by_gauss_rules(d):
    posteriors = [released(d, 10**6, r, 1.0, seed) for seed, r in enumerate((2e-3, 3e-3, 2e-3))]
    known = BatchedRows(posteriors)
    counts = known.draw(4000, np.random.default_rng(d))
    assert np.all(counts.sum(axis=2) == 10**6)
    means, variances = known.moments
    assert np.abs((counts.mean(axis=0) - means) / np.sqrt(variances / 4000)).max() < 5.5
    np.testing.assert_allclose(counts.var(axis=0) / variances, 1, atol=0.15)
    for i, posterior in enumerate(posteriors):
        np.testing.assert_allclose(means[i], posterior.means, rtol=1e-9)
        np.testing.assert_allclose(variances[i], posterior.variances, rtol=1e-8)


def test_proposals_from_blocks_are_those_of_the_numbers():
    """With kinks, and at the ends: whatever numbers add up to, against probabilities of all numbers."""
    z, n = np.array([300.0, 25_000, 25_000]), 50_000

    def log_weight(x, i):
        return -np.abs(x - z[i]) / np.array([500.0, 2000, 100])[i] + gammaln(x + 0.3) - gammaln(x + 1)

    numbers = Numbers(log_weight, 3, 0, n, few=0)
    nodes, whole = numbers.at(0.0, longest=np.full(3, np.inf), dense=0), numbers.at(0.0)
    assert not nodes.are_whole
    for lists in (nodes, whole):
        sample = Sums(lists, 1, log_weight).propose(np.zeros(100_000, dtype=np.int64), np.random.default_rng(4))
        for cell in range(3):
            cdf, x = np.cumsum(whole.pmf(cell)), sample[cell]
            edges = whole.lows[cell] + np.unique(np.searchsorted(cdf, np.arange(1, 50) / 50))
            mass = np.diff(np.concatenate([[0.0], cdf[edges - whole.lows[cell]], [1.0]]))
            right, wider = (
                np.bincount(np.searchsorted(edges, one), minlength=len(edges) + 1)
                for one in (x, x.mean() + 1.05 * (x - x.mean()))
            )
            assert chisquare(right, 100_000 * mass / mass.sum()).pvalue > 1e-6
            assert chisquare(wider, 100_000 * mass / mass.sum()).pvalue < 1e-6


@pytest.mark.parametrize("kind", [Sums, Convolved])
def test_sums_far_from_their_mean_are_drawn(kind):
    rng = np.random.default_rng(6)
    logs = -0.15 * np.arange(31.0) + 0.3 * rng.normal(size=(4, 31))
    sums = kind(Lists.whole(np.zeros(4, dtype=np.int64), np.full(4, 31), logs.ravel()))
    for total, tilt in ((3, 0.0), (30, 0.3), (110, 0.0)):
        tables = np.array(list(tables_of((4,), min(total, 120 - total))))
        tables = tables if total < 110 else 30 - tables
        weights = logs[np.arange(4), tables].sum(axis=1)
        counts = sums.draw(np.full((8_000, 1), total), rng)[:, 0]
        if kind is Convolved or total < 110:
            assert drawn_p_value(counts, tables, softmax(weights)) > 1e-6
        if tilt:
            assert drawn_p_value(counts, tables, softmax(weights + tilt * tables[:, 0])) < 1e-6


def test_a_rare_number_far_away_is_within_reach():
    """A probability of 1e-10 in a hundred thousand deviations matters, and no bound on an exponent may hide it."""
    logs = np.full(10**5 + 1, -np.inf)
    logs[[0, 1, -1]] = 0.0, 0.0, np.log(1e-10)
    few = Lists.whole(np.array([0, 0]), np.array([len(logs), 2]), np.concatenate([logs, [0.0, 0.0]]))
    assert np.all(reaches(few, 1) >= 99_998)
    assert np.all(reaches(few, 1, of_others=True) >= [[0.5, 99_998]])
