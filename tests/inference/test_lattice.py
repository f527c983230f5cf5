"""Lists of numbers by Gauss rules, and their sums by waves, transforms and products: against lists of all numbers."""

import numpy as np
import pytest
from scipy.special import gammaln, softmax
from scipy.stats import chisquare, nbinom

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import KnownRows
from pymc_dirdp.inference.lattice import Convolved, Sums, reaches
from pymc_dirdp.inference.numbers import ImpossibleError, Lists, Numbers, TooManyNumbersError
from pymc_dirdp.inference.quantiles import count_quantiles, probability_up_to
from pymc_dirdp.inference.rows import BatchedRows
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio
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


LEVELS = np.array([1e-6, 0.025, 0.3, 0.5, 0.75, 0.975, 1 - 1e-6])


def of_prior(alpha, x):
    """Not by the difference of two large logarithms, which is rounded."""
    return _log_gamma_ratio(x, alpha)


def kinked(n):
    """Kinks at integers and between them, and a curve that has none."""
    z, alpha = np.array([0.3, 0.5, 0.9001, 0.61]) * n, np.array([1.0, 0.5, 3.0, 0.2])
    scale = np.array([n**0.5, 3.0, n**0.7, n / 20])

    def log_weight(x, i):
        off = np.abs(x - np.where(i < 2, np.rint(z[i]), z[i] + 0.3)) / scale[i]
        return np.where(i == 2, -(off**2) / 2, -off) + of_prior(alpha[i], x)

    return log_weight


def edge(n):
    """Next to nothing is known but that there are few: priors of less than a record peak at 0."""
    alpha = np.array([0.5, 1e-3, 1.0, 0.5])
    scale = np.array([n / 30, n / 30, n / 30, n / 3])
    return lambda x, i: of_prior(alpha[i], x) - x / scale[i]


def urn(n):
    seen, r, prior = np.array([20, 0, 4, 400]), 300 / n, np.array([1.0, 0.5, 2.0, 1.0])
    return lambda x, i: (
        gammaln(seen[i] + r * x + prior[i]) - gammaln(r * x + prior[i]) + of_prior(prior[i], x) - 1.2 * r * x
    )


KINDS = {"kinked": kinked, "edge": edge, "urn": urn}


def both(name, n, tilt=0.0, longest=np.inf):
    """The same numbers, all listed and in blocks."""
    log_weight = KINDS[name](n)
    every = Numbers(log_weight, 4, 0, n, most_listed=10**7, few=0).at(tilt, longest=None)
    blocks = Numbers(log_weight, 4, 0, n, few=0).at(tilt, longest=np.full(4, longest), dense=0)
    assert (every.are_whole, blocks.are_whole) == (True, False)
    return every, blocks


@pytest.mark.parametrize("n", [5_000, 10**6])
@pytest.mark.parametrize("name", KINDS)
def test_blocks_have_the_sums_and_quantiles_of_all_numbers(name, n):
    for tilt in (0.0, 3 / n, -(n**-0.5)):
        every, blocks = both(name, n, tilt)
        # Of two weights the logarithms are rounded.
        rounding = 3e-16 * np.abs(every.logs[np.isfinite(every.logs)]).max()
        np.testing.assert_allclose(blocks.log_totals, every.log_totals, rtol=0, atol=1e-11 + rounding)
        off = (blocks.means - every.means) / np.maximum(every.means, np.sqrt(every.variances))
        assert np.abs(off).max() < 1e-11 + rounding
        np.testing.assert_allclose(blocks.variances, every.variances, rtol=1e-11 + 10 * rounding, atol=1e-13)
    found = count_quantiles(LEVELS, blocks)
    for cell in range(every.size):
        cdf = np.append(0.0, np.cumsum(every.pmf(cell).astype(np.longdouble)).astype(np.float64))
        place = np.clip(found[:, cell] - every.lows[cell], 0, len(cdf) - 2)
        # Where a level is met but for rounding either number is right.
        assert np.all(cdf[place + 1] >= LEVELS - 1e-9)
        assert np.all(cdf[place] <= LEVELS + 1e-9)
    assert np.mean(found == count_quantiles(LEVELS, every)) > 0.9


@pytest.mark.parametrize("longest", [np.inf, 300.0])
@pytest.mark.parametrize("name", KINDS)
def test_probabilities_between_nodes_are_those_of_the_numbers(name, longest):
    """Within a block they follow a polynomial."""
    every, blocks = both(name, 20_000, longest=longest)
    for cell in range(every.size):
        x = np.arange(20_001)
        exact = np.zeros(len(x))
        exact[every.lows[cell] : every.highs[cell] + 1] = every.pmf(cell)
        inside = (x >= blocks.lows[cell]) & (x <= blocks.highs[cell])
        upto = probability_up_to(blocks, np.full(inside.sum(), cell), x[inside])
        assert np.abs(upto - np.cumsum(exact)[inside]).max() < 1e-9
        assert np.abs(np.diff(upto, prepend=0.0) - exact[inside]).max() < 1e-7 * exact.max()
    if np.isfinite(longest):
        assert blocks.blocks[2].max() <= 300
    # Shares given the counts are narrower than long blocks.
    rows = (KnownRows(np.ones((1, 4)), np.array([20_000]), of) for of in (blocks, every))
    np.testing.assert_allclose(*(row.share_quantiles(LEVELS[1:-1]) for row in rows), rtol=1e-5)


@pytest.mark.parametrize("size", [1, 20])
def test_rough_moments_are_near(size):
    """Near enough for a search, at tilts that were searched for and at ones that were not."""
    rng = np.random.default_rng(size)
    z, scale = rng.uniform(0, 10**6, size), np.exp(rng.uniform(0, 10, size))
    numbers = Numbers(lambda x, i: -np.abs(x - z[i]) / scale[i], size, 0, 10**6)
    every = Numbers(lambda x, i: -np.abs(x - z[i]) / scale[i], size, 0, 10**6)
    for tilt in (0.0, 1e-7, 1e-5, 0.01, 3.0, -3.0, 0.0):
        found, exact = numbers.rough(tilt), every.at(tilt, longest=np.full(size, np.inf))
        sds = np.sqrt(exact.variances)
        assert np.all(np.abs(found.means - exact.means) < 0.4 * sds + 0.1)
        assert np.all(np.abs(found.variances - exact.variances) < 0.4 * exact.variances + 0.1)


def test_numbers_that_are_too_many_are_refused_and_so_is_what_is_impossible():
    with pytest.raises(TooManyNumbersError, match="larger parameters, or merge"):
        Numbers(lambda x, i: 0.0 * x, 3, 0, 10**6, smooth=False, most_listed=10**6).at(0.0)
    with pytest.raises(ImpossibleError, match="0 in double precision"):
        Numbers(lambda x, i: np.where(i == 1, -np.inf, 0.0 * x), 2, 0, 100).at(0.0)
    with pytest.raises(ArgumentError, match="NaN or"):
        Numbers(lambda x, i: np.where(x == 7, np.nan, 0.0), 2, 0, 100).at(0.0)


def test_only_numbers_that_others_leave_room_for_are_listed():
    numbers = Numbers(lambda x, i: -np.abs(x - 5000.0) / 100 + 0 * i, 2, 0, 10**6)
    found = numbers.at(0.0, room=lambda lows, highs: (np.array([4000, -5]), np.array([6000, 4500])))
    assert found.lows[0] == 4000
    assert found.highs.tolist() == [6000, 4500]
    # What the windows of the others leave is less than what all of their numbers do, but never nothing.
    found = numbers.at(0.0, room=lambda lows, highs: (lows, 2000 - (lows.sum() - lows)))
    assert found.highs.tolist() == [2000, 2000]
