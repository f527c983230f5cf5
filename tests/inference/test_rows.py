"""Product distributions against brute force over all tables."""

import tracemalloc
from time import process_time

import numpy as np
import pytest
from scipy.special import gammaln

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.lattice import Convolved
from pymc_dirdp.inference.numbers import ImpossibleError, Numbers, TooManyNumbersError
from pymc_dirdp.inference.rows import BatchedRows, RowPosterior, tilts_for

from .posteriors import (
    ALPHA,
    LIKELIHOODS,
    Y,
    brute_force,
    dirichlet,
    estimate,
    geometric,
    log_probability,
    log_sum_of_products,
    released,
    row,
    simulated,
    tabulated,
)


@pytest.mark.parametrize("least", [0, 2])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_table_and_the_evidence_against_brute_force(name, least):
    posterior = row(name, least=least)
    tables, logs, evidence = brute_force(posterior)
    np.testing.assert_allclose(np.exp(log_probability(posterior, tables)), np.exp(logs), rtol=0, atol=1e-12)
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=0, atol=1e-10)
    means = np.exp(logs) @ tables
    np.testing.assert_allclose(posterior.means, means, rtol=0, atol=1e-10)
    np.testing.assert_allclose(posterior.variances, np.exp(logs) @ (tables - means) ** 2, rtol=0, atol=1e-10)


def test_likelihoods_may_be_tiny_or_nothing():
    """Likelihoods of e-300 and below in every cell, and counts that are impossible, in the middle too."""
    base = LIKELIHOODS["geometric"]

    def log_likelihood(x, i):
        return np.where((i == 1) & ((x < 2) | (x == 5)), -np.inf, base(x, i) - 800.0 * (1 + i))

    posterior = RowPosterior(alpha=ALPHA, total=12, log_likelihood=log_likelihood)
    tables, logs, evidence = brute_force(posterior)
    np.testing.assert_allclose(np.exp(log_probability(posterior, tables)), np.exp(logs), atol=1e-12)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-10)
    assert evidence < -4800


@pytest.mark.parametrize(
    "rows",
    [
        [[0.0, -np.inf, -np.inf, -np.inf]] * 3,  # All cells are empty, and the total is not.
        [[-np.inf, -np.inf, 0.0, 0.0]] * 3,  # Every cell holds two at least.
        [[0.0, -np.inf, 0.0, -np.inf]] * 3,  # Even counts, odd total.
        [[0.0] * 4, [0.0] * 4, [-np.inf] * 4],
    ],
)
def test_no_table_at_all_is_an_error(rows):
    posterior = RowPosterior(alpha=[1, 1, 1], total=3, log_likelihood=tabulated(rows), smooth=False)
    with pytest.raises(ArgumentError, match=r"No table of counts|impossible for every count"):
        posterior.means  # noqa: B018


def test_a_conflict_that_leaves_only_tables_far_from_every_peak():
    """A sparse cell is empty or near 60, another is sharply in between: the total is improbable under every tilt."""
    z = np.array([60.0, 70.0])
    posterior = RowPosterior(
        alpha=[1e-3, 1.0],
        total=100,
        log_likelihood=lambda x, i: -((x - z[i]) ** 2) / (2 * np.array([3.0, 3.0])[i] ** 2),
    )
    tables, logs, evidence = brute_force(posterior)
    np.testing.assert_allclose(posterior.means, np.exp(logs) @ tables, rtol=1e-11)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": [1.0, 0.0, 1.0]}, "alpha"),
        ({"alpha": np.ones((2, 3))}, "one row"),
        ({"total": -1}, "total"),
        ({"total": 1.5}, "total"),
        ({"least": 5}, "least"),
    ],
)
def test_bad_arguments_are_named(options, words):
    given = {"alpha": ALPHA, "total": 12, "log_likelihood": dirichlet(Y, 1.0, np.ones(3)), **options}
    with pytest.raises(ArgumentError, match=words):
        RowPosterior(**given)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_likelihood_that_is_no_number_is_refused(bad):
    posterior = RowPosterior(alpha=ALPHA, total=12, log_likelihood=lambda x, i: np.where(x == 7, bad, 0.0) + 0.0 * i)
    with pytest.raises(ArgumentError, match="log-likelihood"):
        posterior.means  # noqa: B018


def test_rows_whose_totals_are_hardly_possible_are_summed_beside_the_others():
    """Counts are 0 or 12, all but never between, and add up to 36 or to 31: no tilt makes that probable."""
    posterior = RowPosterior(
        alpha=[1.0, 0.5, 2.0],
        total=36,
        log_likelihood=lambda x, i: -3.0 * np.minimum(x, np.abs(12 - x)) - 0.1 * i,
        smooth=False,
    )
    posteriors = [posterior, posterior.at(31), posterior.at(19), posterior.at(5)]
    known = BatchedRows(posteriors)
    expected = [brute_force(one) for one in posteriors]
    assert known.log_evidences.sum() == pytest.approx(sum(evidence for _, _, evidence in expected), abs=1e-10)
    means = [np.exp(logs) @ tables for tables, logs, _ in expected]
    np.testing.assert_allclose(known.moments[0], means, rtol=1e-9)
    drawn = known.draw(20_000, np.random.default_rng(1))
    sds = np.sqrt(np.array([np.exp(logs) @ tables**2 for tables, logs, _ in expected]) - np.square(means))
    assert np.all(np.abs(drawn.mean(axis=0) - means) < 5 * sds / np.sqrt(20_000) + 1e-3)


def log_sum(numbers, total):
    """The logarithm of the sum of the products of all weights whose numbers add up to a total."""
    tilts = tilts_for(numbers, np.array([total]))
    return float(Convolved(numbers.at(tilts[0])).log_probabilities(np.array([total]))[0])


def bounded_cells():
    """Three cells whose counts lie within ten of 40, 60 and 20, and are likely as geometric noise makes them."""
    middle = np.array([40.0, 60.0, 20.0])

    def log_weight(x, cell):
        distance = np.abs(x - middle[cell])
        return np.where(distance <= 10, -2 * distance, -np.inf)

    return Numbers(log_weight, 3, 0, 500, smooth=False)


@pytest.mark.parametrize(("beyond", "end"), [(70, 90), (300, 150)])
def test_a_total_that_no_counts_have_spoils_no_other(beyond, end):
    """After the search for it, the least and the largest total that exist are found as with fresh cells."""
    cells = bounded_cells()
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        with pytest.raises(ImpossibleError, match="0 in double precision"):
            log_sum(cells, beyond)
        for total in (end, 121, end):
            fresh = log_sum(bounded_cells(), total)
            assert log_sum(cells, total) == pytest.approx(fresh, abs=1e-9)
        # There is one such table: every count is ten away.
        assert fresh == pytest.approx(-60.0, abs=1e-9)


def test_a_total_is_not_called_impossible_before_the_counts_are_found():
    """Found when the documentation was built: no node lay near the few numbers of records that a row may have."""
    middle, near = np.array([12_345.0, 54_321.0]), np.arange(-10, 11)

    def log_weight(x, cell):
        distance = np.abs(x - middle[cell])
        return np.where(distance <= 10, -2 * distance, -np.inf)

    cells = Numbers(log_weight, 2, 0, 100_000)
    first = np.where(np.abs(4 - near) <= 10, np.exp(-2.0 * np.abs(near) - 2.0 * np.abs(4 - near)), 0)
    assert log_sum(cells, 66_666 + 4) == pytest.approx(np.log(first.sum()), abs=1e-9)
    alone = RowPosterior(alpha=np.ones(2), total=66_670, log_likelihood=log_weight)
    assert log_sum_of_products(alone) == pytest.approx(np.log(first.sum()), abs=1e-9)


def test_one_cell_far_wider_than_all_others_together():
    """Sums of the small cells decide; the wide one takes what they leave."""
    z = np.array([7e5, 1e5 + 20.0, 1e5 - 25.5, 1e5 + 15.0])
    scale = np.array([2e4, 3.0, 1.0, 2.0])
    posterior = RowPosterior(
        alpha=np.ones(4), total=10**6, log_likelihood=lambda x, i: -((z[i] - x) ** 2) / (2 * scale[i] ** 2)
    )
    # The small cells by all their numbers: what is left is the wide one's.
    near = [np.arange(np.rint(z[i]) - 40 * scale[i], np.rint(z[i]) + 40 * scale[i] + 1) for i in (1, 2, 3)]
    grid = np.meshgrid(*near, indexing="ij")
    last = 10**6 - sum(grid)
    logs = sum(posterior.log_likelihood(x, np.array(i)) for i, x in zip((0, 1, 2, 3), (last, *grid), strict=True))
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    means = np.array([np.sum(mass * x) for x in (last, *grid)])
    np.testing.assert_allclose(posterior.means, means, rtol=1e-10)
    variances = [np.sum(mass * (x - mean) ** 2) for x, mean in zip((last, *grid), means, strict=True)]
    np.testing.assert_allclose(posterior.variances, variances, rtol=1e-8)


@pytest.mark.parametrize(("d", "r"), [(2, 1e-4), (50, 10.0)])
def test_ten_million_records_take_little_memory(d, r):
    posterior = released(d, 10**7, r, 1.0, 5)
    tracemalloc.start()
    means = posterior.means
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    assert means.sum() == pytest.approx(1e7, rel=1e-9)


def test_ten_thousand_cells_of_one_row():
    d, rng = 10_000, np.random.default_rng(1)
    _, x = simulated(d, 50_000, 1.0, rng)
    posterior = RowPosterior(alpha=np.ones(d), total=50_000, log_likelihood=geometric(x + rng.normal(size=d), 3.0))
    start = process_time()
    assert posterior.means.sum() == pytest.approx(50_000, rel=1e-10)
    assert process_time() - start < 6
    assert np.mean(np.abs(posterior.means - x)) < 6


UNITS = [
    ([1.0, 1.0, 1.0, 1.0], 40_000),
    ([0.01, 0.01, 0.5, 3.0], 40_000),
    ([0.5, 0.1, 1.0], 3_000),
    ([5.0, 30.0], 100_000),
]


@pytest.mark.parametrize("known_shares", [False, True])
@pytest.mark.parametrize(("alpha", "n"), UNITS)
def test_counts_in_units_are_off_by_the_square_of_the_unit(alpha, n, known_shares):
    rng = np.random.default_rng(n)
    z = rng.multinomial(n, rng.dirichlet(alpha)) + rng.laplace(0, 1000, len(alpha)).round()
    shares = np.log(rng.dirichlet(np.add(alpha, 1))) if known_shares else None
    every = RowPosterior(alpha=alpha, total=n, log_likelihood=geometric(z, 1000.0), log_shares=shares)
    for unit in (4.0, 20.0):
        units = every.in_units(unit)
        # With known shares the counts have a width of their own, and kinks of noise stand between multiples.
        width = min(1000.0, float(np.sqrt(every.variances.max())))
        if unit > width / 5:
            continue
        error = 20 * (units.unit / width) ** 2
        sds = np.sqrt(every.variances)
        assert abs(units.log_evidence - every.log_evidence) < error
        assert np.all(np.abs(units.means - every.means) < error * sds)
        assert np.all(np.abs(np.sqrt(units.variances) - sds) < error * sds + (units.unit / 2 if known_shares else 0))


@pytest.mark.parametrize(("d", "scale"), [(3, 1e8), (6, 1e5), (12, 1e8)])
def test_rows_with_noise_of_millions_are_summed(d, scale):
    """What one record is does not matter: the shares are those of a table with a thousandth of the noise."""
    rng = np.random.default_rng(d)
    share = rng.dirichlet(np.ones(d))
    z = 20 * share + rng.laplace(0, 1, d)
    found, small = (
        estimate(wide)
        for wide in (
            RowPosterior(alpha=np.full(d, 1.5), total=round(20 * size), log_likelihood=geometric(size * z, size))
            for size in (scale, 2000.0)
        )
    )
    # Of a count of k records a multinomial draw leaves sqrt(k).
    np.testing.assert_allclose(found.share_means, small.share_means, atol=2e-4)
    np.testing.assert_allclose(found.share_sds, small.share_sds, rtol=2e-3)
    np.testing.assert_allclose(found.share_intervals, small.share_intervals, atol=1e-3)
    np.testing.assert_allclose(found.count_intervals / scale, small.count_intervals / 2000, atol=0.02)


def test_draws_in_units_add_up_and_have_the_moments():
    posterior = RowPosterior(
        alpha=[0.05, 1.0, 2.0], total=1_674_501_301, log_likelihood=geometric([-1e8, 4e8, 1.3e9], 1e8)
    )
    known = BatchedRows.summable([posterior])
    assert known.units[0] > 1
    counts = known.draw(40_000, np.random.default_rng(3))[:, 0]
    assert np.all(counts.sum(axis=1) == posterior.total)
    assert np.all(counts >= 0)
    means, variances = (of[0] for of in known.moments)
    assert np.all(np.abs(counts.mean(axis=0) - means) < 4.5 * np.sqrt(variances / 40_000))
    np.testing.assert_allclose(counts.std(axis=0), np.sqrt(variances), rtol=0.05)
    # A small prior says that a cell is nearly empty, whatever a unit is: counts fall by powers of ten.
    near = counts[:, 0][counts[:, 0] < 1e6]
    assert len(near) > 1000
    levels = np.array([1e1, 1e2, 1e3, 1e4, 1e5])
    expected = np.exp(gammaln(levels + 1 + 0.05) - gammaln(levels + 1)) / np.exp(gammaln(1e6 + 0.05) - gammaln(1e6))
    found = (near[:, None] <= levels).mean(axis=0)
    assert np.all(np.abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / len(near)) + 2e-3)


def test_what_units_cannot_do_is_refused():
    with pytest.raises(TooManyNumbersError, match="larger parameters"):
        row("geometric", least=2).in_units(4.0)
    # Counts that are known one by one follow no curve between them.
    table = RowPosterior(alpha=ALPHA, total=12, log_likelihood=lambda x, i: -0.1 * x, smooth=False)
    with pytest.raises(TooManyNumbersError, match="larger parameters"):
        table.in_units(4.0)
    with pytest.raises(TooManyNumbersError, match="larger parameters"):
        row("geometric").in_units(100.0)
