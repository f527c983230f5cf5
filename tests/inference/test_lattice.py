"""Sums by waves, by transforms and by products of all numbers; draws given a sum, against all tables there are."""

import itertools

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import chisquare, nbinom

from pymc_dirdp.inference.lattice import Convolved, Sums, reaches
from pymc_dirdp.inference.numbers import Lists, Numbers
from pymc_dirdp.inference.rows import BatchedRows, RowPosterior

from .posteriors import (
    LIKELIHOODS,
    brute_force,
    geometric,
    released,
    row,
    simulated,
    tabulated,
)

DRAWS = 40_000


# Three ways to sum


def numbers_of_rows(d, rows, n=8_000):
    """Noisy counts of several rows, some of them narrow and some wide."""
    rng = np.random.default_rng(d + rows)
    z, sd = rng.uniform(0.2 * n, 0.8 * n, d * rows), np.exp(rng.uniform(2, 4.5, d * rows))
    alpha = rng.uniform(0.3, 2, d * rows)

    def log_weight(x, i):
        return (
            -(((x - z[i]) / sd[i]) ** 2) / 2 - np.abs(x - np.rint(z[i])) / 900 + gammaln(x + alpha[i]) - gammaln(x + 1)
        )

    return log_weight, Numbers(log_weight, d * rows, 0, n, few=0)


def three_ways(d, rows):
    """By transforms, by waves, and for each row by products."""
    log_weight, numbers = numbers_of_rows(d, rows)
    tilts = np.repeat(np.linspace(-1e-4, 1e-4, rows), d)
    whole = numbers.at(tilts)
    rough = numbers.rough(tilts)
    variances = rough.variances.reshape(rows, d)
    longest = np.sqrt(variances.sum(axis=1, keepdims=True) - variances).ravel()
    nodes = numbers.at(tilts, longest=longest, dense=0)
    assert whole.are_whole
    assert not nodes.are_whole
    products = [Convolved(whole.take(d * row + np.arange(d))) for row in range(rows)]
    return Sums(whole, rows, log_weight), Sums(nodes, rows, log_weight), products


def summed(sums, masses):
    """Sums over the points of each number: of functions, and of them times the number and its square."""
    lists = sums.lists
    above = lists.x - np.rint(lists.means)[lists.cell]
    return [np.bincount(lists.cell, masses * above**k, lists.size) for k in range(3)]


@pytest.mark.parametrize(("d", "rows"), [(3, 4), (40, 1)])
def test_three_ways_to_sum_agree(d, rows):
    whole, nodes, products = three_ways(d, rows)
    means, sds = (values.reshape(rows, d).sum(axis=1) for values in (whole.lists.means, whole.lists.variances))
    sds = np.sqrt(sds)
    for shift in (-3.0, -1.0, 0.0, 0.7, 4.0):
        totals = np.rint(means + shift * sds).astype(np.int64)
        exact = np.array([float(one.at(np.array([0]), totals[[i]])[0]) for i, one in enumerate(products)])
        largest = np.array([one.pmf.max() for one in products])
        logs = np.array([float(one.log_probabilities(totals[[i]])[0]) for i, one in enumerate(products)])
        for sums in (whole, nodes):
            assert np.abs(sums.at(np.arange(rows), totals) - exact).max() < 1e-11 * largest.min()
            bound = largest / exact
            assert np.all(np.abs(sums.log_probabilities(totals) - logs) < 1e-11 + 1e-14 * bound)
            assert np.all(sums.largest >= largest * (1 - 1e-12))
            assert np.all(sums.largest < 1.2 * largest)
        given = [summed(sums, sums.masses_at_totals(totals)) for sums in (whole, nodes)]
        alone = [summed(one, one.masses_at_totals(totals[[i]])) for i, one in enumerate(products)]
        expected = [np.concatenate([part[k] for part in alone]) for k in range(3)]
        accuracy = (1e-11 + 1e-14 * np.repeat(bound, d)) * (1 + abs(shift))
        for found in given:
            sd = np.sqrt(whole.lists.variances)
            for k in range(3):
                # The masses of all points, their mean and their square.
                assert np.all(np.abs(found[k] - expected[k]) < accuracy * np.maximum(1, (10 * sd) ** k))


@pytest.mark.parametrize("kind", [Convolved, Sums])
def test_what_is_said_of_a_sum_is_said_of_each_number(kind):
    """Functions of the sum, spread over the cells: each kind of sum against sums over all tables."""
    rng = np.random.default_rng(5)
    widths, lows = np.array([9, 14, 6]), np.array([3, 0, 40])
    cells = Lists.whole(lows, widths, np.concatenate([np.sort(rng.normal(size=w)) for w in widths]), 0.05)
    sums, total = kind(cells), np.arange(48, 66)
    known = rng.random((2, len(total)))
    grids = np.meshgrid(*(low + np.arange(w) for low, w in zip(lows, widths, strict=True)), indexing="ij")
    pmf = np.prod([cells.pmf(i)[g - lows[i]] for i, g in enumerate(grids)], axis=0)
    n = sum(grids)
    inside = (n >= 48) & (n <= 65)
    found = sums.cell_masses(np.array([48]), known[:, None])
    for i in range(3):
        for k in range(2):
            weights = np.where(inside, known[k][np.clip(n - 48, 0, 17)] * pmf, 0.0)
            expected = np.bincount((grids[i] - lows[i]).ravel(), weights.ravel(), widths[i])
            np.testing.assert_allclose(found[k, cells.cell == i], expected, atol=1e-12)


def test_many_cells_take_no_more_waves_than_few():
    """Equal cells with means of .4.

    Whose sum is a negative binomial distribution: 20,000 rounded means miss 8,000 together.
    """
    d, q = 20_000, 2 / 7
    sums = Sums(Numbers(lambda x, cell: x * np.log(q), d, 0, 400).at(0.0))
    totals = np.array([7_800, 8_000, 8_150])
    logs = [float(sums.log_probabilities(np.array([n]))[0]) for n in totals]
    np.testing.assert_allclose(logs + d * np.log1p(-q), nbinom.logpmf(totals, d, 1 - q), atol=1e-9)
    assert sums._product.shape[-1] <= 60
    rest = nbinom.logpmf(8_000 - np.arange(3), d - 1, 1 - q)
    given = sums.cell_masses(np.array([8_000]), np.ones((1, 1, 1)))[0]
    for cell in (0, 9_999, d - 1):
        start = sums.lists.starts[cell]
        found = given[start : start + 3] / sums.lists.masses[start : start + 3]
        np.testing.assert_allclose(np.log(found), rest, atol=1e-9)


# Draws


def p_value(tables, logs, counts):
    """Of a chi-square test of drawn tables; tables that are expected fewer than 10 times are merged."""
    place = {tuple(table): i for i, table in enumerate(tables.tolist())}
    seen = np.bincount([place[tuple(x)] for x in counts.tolist()], minlength=len(tables))
    expected = len(counts) * np.exp(logs)
    rare = expected < 10
    rest = expected[rare].sum()
    assert rest > 1e-3 or seen[rare].sum() == 0
    seen, expected = np.append(seen[~rare], seen[rare].sum()), np.append(expected[~rare], rest)
    seen, expected = seen[expected > 1e-3], expected[expected > 1e-3]
    return chisquare(seen, expected * seen.sum() / expected.sum()).pvalue if len(seen) > 1 else 1.0


def z_scores(posterior, counts):
    sds = np.sqrt(posterior.variances)
    return (counts.mean(axis=0) - posterior.means)[sds > 0.2] / sds[sds > 0.2] * np.sqrt(len(counts))


def drawn(posterior, draws, rng):
    return posterior.batch.draw(draws, rng)[:, 0]


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_tables_of_rows_that_are_drawn_together(name):
    posterior = row(name, total=6)
    tables, logs, _ = brute_force(posterior)
    others = [row("dirichlet", total=n) for n in (0, 6, 12)]
    counts = BatchedRows([others[0], posterior, *others[1:]]).draw(DRAWS // 4, np.random.default_rng(8))
    assert p_value(tables, logs, counts[:, 1]) > 1e-6
    assert p_value(*brute_force(others[2])[:2], counts[:, 3]) > 1e-6


def compositions(total, d):
    """All tables of d counts that add up to a total."""
    bars = np.array(list(itertools.combinations(range(total + d - 1), d - 1)))
    ends = np.concatenate([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), total + d - 1)], axis=1)
    return np.diff(ends, axis=1) - 1


@pytest.mark.parametrize("d", [2, 9])
def test_a_million_records_by_gauss_rules(d):
    """Several rows at once, of which lists are blocks: draws against moments, and blocks against all numbers."""
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
    # With a tilt of a tenth of a deviation, or of another total, it would be seen.
    wrong = known.draw(4000, np.random.default_rng(d)) + 0.2 * np.sqrt(variances)
    assert np.abs((wrong.mean(axis=0) - means) / np.sqrt(variances / 4000)).max() > 8


def test_many_cells_are_drawn_in_halves():
    d = 400
    rng = np.random.default_rng(1)
    _, x = simulated(d, 4000, 1.0, rng)
    posterior = RowPosterior(alpha=np.ones(d), total=4000, log_likelihood=geometric(x + rng.normal(size=d), 3.0))
    counts = drawn(posterior, 4000, rng)
    z = z_scores(posterior, counts)
    assert np.abs(z).max() < 5.5
    assert np.mean(z**2) == pytest.approx(1, abs=0.4)
    # What halves could spoil is how cells go together: given the total the sum over the first half varies less.
    half = counts[:, : d // 2].sum(axis=1).var()
    first, second = posterior.variances[: d // 2].sum(), posterior.variances[d // 2 :].sum()
    assert half == pytest.approx(first * second / (first + second), rel=0.15)
    assert abs(half / first - 1) > 0.3


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


def test_rare_totals_are_drawn_number_by_number():
    """One cell is 0, 60 or, much less likely, between; the other is nearly known, so it has to be between."""
    table = np.full((2, 101), -np.inf)
    table[0, [0, 29, 30, 60]] = [0.0, -31.0, -30.0, 0.0]
    table[1, [70, 71]] = 0.0
    posterior = RowPosterior(alpha=[1.0, 1.0], total=100, log_likelihood=tabulated(table), smooth=False)
    _tables, _logs, evidence = brute_force(posterior)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-10)
    counts = drawn(posterior, 20_000, np.random.default_rng(3))
    assert np.mean(counts[:, 0] == 30) == pytest.approx(1 / (1 + np.exp(-1)), abs=0.02)
    # The same of sums of two numbers, and of three, of which one adds nothing.
    for many in (2, 3):
        logs = np.concatenate([table, [[0.0] + [-np.inf] * 100]])[:many]
        sums = Convolved(Lists.whole(np.zeros(many, dtype=np.int64), np.full(many, 101), logs.ravel()))
        counts = sums.draw(np.full((20_000, 1), 100), np.random.default_rng(3))[:, 0]
        assert np.all(counts.sum(axis=1) == 100)
        assert np.mean(counts[:, 0] == 30) == pytest.approx(1 / (1 + np.exp(-1)), abs=0.02)


@pytest.mark.parametrize("kind", [Sums, Convolved])
def test_sums_far_from_their_mean_are_drawn(kind):
    """Totals of which hardly any proposal is accepted, against all tables."""
    rng = np.random.default_rng(6)
    logs = -0.15 * np.arange(31.0) + 0.3 * rng.normal(size=(4, 31))
    sums = kind(Lists.whole(np.zeros(4, dtype=np.int64), np.full(4, 31), logs.ravel()))
    for total, tilt in ((3, 0.0), (30, 0.3), (100, -0.5), (118, 0.5)):
        tables = np.array([x for x in compositions(total, 4) if max(x) < 31])
        weights = logs[np.arange(4), tables].sum(axis=1)
        counts = sums.draw(np.full((20_000, 1), total), rng)[:, 0]
        if kind is Convolved or total < 100:
            assert p_value(tables, weights - logsumexp(weights), counts) > 1e-6
        if tilt:
            wrong = weights + tilt * tables[:, 0]
            assert p_value(tables, wrong - logsumexp(wrong), counts) < 1e-6


def test_a_rare_number_far_away_is_within_reach():
    """A probability of 1e-10 in a hundred thousand deviations matters, and no bound on an exponent may hide it."""
    logs = np.full(10**5 + 1, -np.inf)
    logs[[0, 1, -1]] = 0.0, 0.0, np.log(1e-10)
    few = Lists.whole(np.array([0, 0]), np.array([len(logs), 2]), np.concatenate([logs, [0.0, 0.0]]))
    assert np.all(reaches(few, 1) >= 99_998)
    assert np.all(reaches(few, 1, of_others=True) >= [[0.5, 99_998]])
