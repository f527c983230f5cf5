"""Product distributions against brute force over all tables."""

import tracemalloc
from dataclasses import replace
from time import process_time

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import chisquare

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.lattice import Convolved, Sums
from pymc_dirdp.inference.numbers import ImpossibleError, Numbers, TooManyNumbersError
from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput
from pymc_dirdp.inference.rows import BatchedRows, RowPosterior, numbers_of, tilts_for
from pymc_dirdp.inference.tables import posterior_of
from pymc_dirdp.mechanisms import ZeroSumGeometricMechanism
from pymc_dirdp.privacy.people import Contribution

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


@pytest.mark.parametrize("name", ["dirichlet", "truncated"])
def test_a_table_of_likelihoods_says_the_same_as_a_function(name):
    posterior = row(name)
    x, i = np.meshgrid(np.arange(13.0), np.arange(3))
    table = RowPosterior(alpha=ALPHA, total=12, log_likelihood=tabulated(LIKELIHOODS[name](x, i)), smooth=False)
    np.testing.assert_allclose(table.means, posterior.means, rtol=1e-12)
    assert table.log_evidence == pytest.approx(posterior.log_evidence, abs=1e-12)


@pytest.mark.parametrize("total", [0, 1])
def test_small_totals(total):
    posterior = row("dirichlet", total=total)
    tables, logs, evidence = brute_force(posterior)
    np.testing.assert_allclose(posterior.means, np.exp(logs) @ tables, atol=1e-12)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-12)


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


def test_the_only_possible_table_is_found():
    table = np.full((3, 6), -np.inf)
    table[[0, 1, 2], [1, 4, 0]] = -700.0
    posterior = RowPosterior(alpha=ALPHA, total=5, log_likelihood=tabulated(table), smooth=False)
    np.testing.assert_array_equal(posterior.means, [1, 4, 0])


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


def test_the_order_of_the_cells_does_not_matter():
    order = np.array([2, 0, 1])
    posterior, other = row("pooled"), LIKELIHOODS["pooled"]
    turned = RowPosterior(alpha=ALPHA[order], total=12, log_likelihood=lambda x, i: other(x, order[i]))
    np.testing.assert_allclose(turned.means, posterior.means[order], rtol=1e-12)


def test_pooled_outputs_are_one_output_after_the_other():
    """The evidence of two outputs is that of the first times that of the second given the first."""
    first = row("dirichlet")
    tables, logs, _ = brute_force(first)
    second = sum(LIKELIHOODS["geometric"](tables[:, i].astype(float), np.full(len(tables), i)) for i in range(3))
    expected = first.log_evidence + np.log(np.exp(logs) @ np.exp(second))
    assert row("pooled").log_evidence == pytest.approx(expected, abs=1e-10)


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


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_known_shares_against_brute_force(name):
    shares = np.array([0.2, 0.7, 0.1])
    posterior = replace(row(name), log_shares=np.log(shares))
    tables, _, _ = brute_force(row(name))
    logs = np.array([sum(float(posterior.log_likelihood(x[i], np.array(i))) for i in range(3)) for x in tables])
    logs += gammaln(posterior.total + 1) + np.sum(tables * np.log(shares) - gammaln(tables + 1), axis=1)
    probabilities = np.exp(logs - logsumexp(logs))
    assert posterior.log_evidence - posterior.log_factor == pytest.approx(logsumexp(logs), abs=1e-10)
    np.testing.assert_allclose(np.exp(log_probability(posterior, tables)), probabilities, rtol=0, atol=1e-12)
    means = probabilities @ tables
    np.testing.assert_allclose(posterior.means, means, rtol=1e-10)
    np.testing.assert_allclose(posterior.variances, probabilities @ (tables - means) ** 2, rtol=1e-9, atol=1e-20)


ROWS = [("dirichlet", 12, 0), ("geometric", 7, 1), ("gaussian", 0, 0), ("truncated", 12, 0), ("pooled", 5, 0)]


def some_rows():
    return [row(name, total=total, least=least) for name, total, least in ROWS]


def test_every_row_has_the_numbers_that_a_sum_over_its_tables_gives():
    posteriors = some_rows()
    known = BatchedRows(posteriors)
    evidence = 0.0
    marginals = {int(i): counts.take(3 * k + np.arange(3)) for at, counts in known.marginals for k, i in enumerate(at)}
    assert sorted(marginals) == list(range(5))
    for i, posterior in enumerate(posteriors):
        counts, logs, of_row = brute_force(posterior)
        evidence += of_row
        for k in range(3):
            expected = np.bincount(counts[:, k].astype(int), np.exp(logs), 13)
            found = marginals[i].pmf(k)
            low = int(marginals[i].lows[k])
            np.testing.assert_allclose(found, expected[low : low + len(found)], rtol=1e-10, atol=1e-14)
            assert expected[:low].sum() + expected[low + len(found) :].sum() < 1e-14
    assert known.log_evidences.sum() == pytest.approx(evidence, abs=1e-10)


@pytest.mark.parametrize("i", [0, 1, 3])
def test_draws_of_a_row_among_others_are_of_its_tables(i):
    counts, logs, _ = brute_force(some_rows()[i])
    drawn = BatchedRows(some_rows()).draw(20_000, np.random.default_rng(i))
    np.testing.assert_array_equal(drawn.sum(axis=2), np.tile([total for _, total, _ in ROWS], (20_000, 1)))
    seen = np.zeros((13, 13, 13))
    np.add.at(seen, tuple(drawn[:, i].T), 1)
    observed, expected = seen[tuple(counts.astype(int).T)], 20_000 * np.exp(logs)
    often = expected > 10
    pairs = [np.append(x[often], x[~often].sum() + 1e-9) for x in (observed, expected)]
    assert chisquare(*pairs).pvalue > 1e-6
    # Those of another row would be noticed.
    assert chisquare(observed, np.full(len(counts), 20_000 / len(counts))).pvalue < 1e-6


def test_one_cell_and_a_total_that_is_hardly_possible():
    alone = [RowPosterior(alpha=[0.3], total=n, log_likelihood=geometric(np.array([4.0]), 1.0)) for n in (0, 5)]
    known = BatchedRows(alone)
    assert known.moments[0].tolist() == [[0], [5]]
    assert known.draw(3, np.random.default_rng(1)).tolist() == [[[0], [5]]] * 3


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


def test_a_table_of_rows_is_each_row_by_itself():
    """Rows of 0 to 90 records, and one that is larger by far, in no order."""
    rng = np.random.default_rng(3)
    totals = np.append(rng.integers(0, 90, 8), [9000, 20])[rng.permutation(10)]
    counts = np.stack([rng.multinomial(n, rng.dirichlet(np.ones(4))) for n in totals])
    noise = np.rint(rng.laplace(0, 3, counts.shape))
    noise[:, -1] -= noise.sum(axis=1)
    prior = rng.uniform(0.2, 3, counts.shape)
    mechanism = ZeroSumGeometricMechanism(prior, 3.0, contribution=Contribution(1, ("each",)))
    output = MechanismOutput(mechanism, counts + noise, prior=prior, n_records=int(totals.sum()))
    found = dirdp.estimate(output, prob=[0.5, 0.95]).tables["p"]
    ((_, known),) = (posterior_of(output.observed_table, Beliefs())._known,)
    evidence = 0.0
    for i, row_of in enumerate(known.posteriors):
        evidence += row_of.log_evidence
        wanted = estimate(row_of, prob=[0.5, 0.95])
        for field in ("share_means", "share_sds", "count_means", "count_sds"):
            mine = getattr(found, field).reshape(10, 4)[i]
            np.testing.assert_allclose(mine, getattr(wanted, field), rtol=1e-10, atol=1e-12)
        for field in ("share_intervals", "count_intervals"):
            mine = getattr(found, field).reshape(2, 10, 4, 2)[:, i]
            np.testing.assert_allclose(mine, getattr(wanted, field), rtol=1e-9, atol=1e-12)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)


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


@pytest.mark.parametrize(("d", "total"), [(10, 1000), (3, 60)])
def test_the_tilt_does_not_matter(d, total):
    """A tilt that moves the mean of the sum by one standard deviation gives the same marginals."""
    posterior = released(d, total, 0.1, 1.0, 3)
    numbers = numbers_of([posterior])
    (tilt,) = tilts_for(numbers, np.array([total]))
    lists = numbers.at(tilt)
    shifted = numbers.at(tilt + 1 / np.sqrt(lists.variances.sum()))
    assert abs(shifted.means.sum() - total) > 0.5 * np.sqrt(shifted.variances.sum())
    for kind in (Sums, Convolved):
        sums = kind(shifted)
        found = float(sums.log_probabilities(np.array([total]))[0])
        assert found == pytest.approx(log_sum_of_products(posterior), rel=0, abs=1e-10)
        given = shifted.weighted(sums.masses_at_totals(np.array([total])))
        np.testing.assert_allclose(given.means, posterior.means, rtol=1e-10)


def test_a_million_records_in_two_cells_against_the_plain_sum():
    posterior = released(2, 10**6, 1e-3, 0.01, 4)
    x = np.arange(10**6 + 1.0)
    weights = posterior.log_weight(x, np.zeros(len(x), dtype=int)) + posterior.log_weight(
        10**6 - x, np.ones(len(x), dtype=int)
    )
    mass = np.exp(weights - weights.max())
    mean = mass @ x / mass.sum()
    assert posterior.means[0] == pytest.approx(mean, rel=1e-11)
    assert posterior.variances[0] == pytest.approx(mass @ (x - mean) ** 2 / mass.sum(), rel=1e-9)
    assert log_sum_of_products(posterior) == pytest.approx(weights.max() + np.log(mass.sum()), rel=0, abs=1e-9)


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


@pytest.mark.parametrize("r", [1e-4, 10.0])
@pytest.mark.parametrize("d", [2, 10, 50])
def test_ten_million_records_take_little_memory(d, r):
    posterior = released(d, 10**7, r, 1.0, 5)
    tracemalloc.start()
    means = posterior.means
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    assert means.sum() == pytest.approx(1e7, rel=1e-9)


def test_one_noisy_cell_of_a_binary_table():
    posterior = RowPosterior(
        alpha=[1.0, 2.0], total=30, log_likelihood=lambda x, i: np.where(i == 0, -np.abs(11 - x) / 3, 0.0)
    )
    x = np.arange(31)
    logs = gammaln(x + 1) - gammaln(x + 1) + gammaln(32 - x) - gammaln(31 - x) - np.abs(11 - x) / 3
    mass = np.exp(logs - logs.max())
    assert posterior.means[0] == pytest.approx(mass @ x / mass.sum(), rel=1e-12)


def test_narrow_noise_among_many_numbers_is_found():
    z = np.array([4_123_456.4, 5_000_000.0, 876_543.9])
    posterior = RowPosterior(alpha=np.full(3, 1e-3), total=10**7, log_likelihood=geometric(z, 1.0))
    np.testing.assert_allclose(posterior.means, z, atol=1.5)


def vague(total, r, alpha=1.0):
    """Records of which the output says next to nothing."""
    y = np.array([0.5, 0.3, 0.2])
    return RowPosterior(alpha=np.full(3, alpha), total=total, log_likelihood=dirichlet(y, r, np.ones(3)))


def test_a_million_records_that_hardly_anything_is_known_of():
    """Against the sum over the first cell, of the plain sums over the other two, at every ten thousandth count."""
    posterior = vague(10**6, 1e-5)
    others = RowPosterior(alpha=np.ones(2), total=10**6, log_likelihood=lambda x, i: posterior.log_likelihood(x, i + 1))
    counts = np.arange(5000, 10**6, 10_000)
    logs = posterior.log_weight(counts.astype(float), np.zeros(len(counts), dtype=int))
    logs += [log_sum_of_products(others.at(10**6 - int(x))) for x in counts]
    mass = np.exp(logs - logs.max())
    assert posterior.means[0] == pytest.approx(mass @ counts / mass.sum(), rel=1e-3)
    assert log_sum_of_products(posterior) == pytest.approx(logs.max() + np.log(mass.sum() * 1e4), abs=1e-3)


def test_ten_million_records_of_which_next_to_nothing_is_said():
    """In units, and with fewer cells or a prior that says more."""
    np.testing.assert_allclose(vague(10**7, 1e-6).means, vague(10**6, 1e-5).means * 10, rtol=1e-4)
    merged = RowPosterior(alpha=[1.0, 2.0], total=10**7, log_likelihood=dirichlet([0.5, 0.5], 1e-6, [1.0, 2.0]))
    for posterior in (merged, vague(10**7, 1e-6, alpha=60.0)):
        assert posterior.means.sum() == pytest.approx(1e7)


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
    ([0.5, 0.5, 0.5, 0.5], 40_000),
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


@pytest.mark.parametrize("scale", [1e5, 1e8])
@pytest.mark.parametrize("d", [3, 4, 6, 12])
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
