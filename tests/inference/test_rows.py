"""Product distributions against brute force over all tables."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import chisquare

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference import rows
from pymc_dirdp.inference.observed_table import MechanismOutput
from pymc_dirdp.inference.rows import KnownTotals, RowPosterior
from pymc_dirdp.mechanisms import ZeroSumGeometricMechanism
from pymc_dirdp.privacy.people import Contribution

from .posteriors import ALPHA, LIKELIHOODS, Y, brute_force, dirichlet, geometric, log_probability, row, tabulated


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
    np.testing.assert_allclose(posterior.tilted.count_means, means, rtol=1e-10)
    np.testing.assert_allclose(posterior.variances, probabilities @ (tables - means) ** 2, rtol=1e-9)


ROWS = [("dirichlet", 12, 0), ("geometric", 7, 1), ("gaussian", 0, 0), ("truncated", 12, 0), ("pooled", 5, 0)]


def some_rows():
    return [row(name, total=total, least=least) for name, total, least in ROWS]


def test_every_row_has_the_numbers_that_a_sum_over_its_tables_gives():
    posteriors = some_rows()
    known = KnownTotals(posteriors)
    assert known.are_known.all()
    evidence = 0.0
    for i, posterior in enumerate(posteriors):
        counts, logs, of_row = brute_force(posterior)
        evidence += of_row
        for k in range(3):
            cell = 3 * i + k
            expected = np.bincount(counts[:, k].astype(int), np.exp(logs), 13)
            found = known.marginals.pmf(cell)
            low = int(known.marginals.lows[cell])
            np.testing.assert_allclose(found, expected[low : low + len(found)], rtol=1e-10, atol=1e-14)
            assert expected[:low].sum() + expected[low + len(found) :].sum() < 1e-14
    assert known.log_evidence == pytest.approx(evidence, abs=1e-10)


@pytest.mark.parametrize("i", [0, 1, 3])
def test_draws_of_a_row_among_others_are_of_its_tables(i):
    counts, logs, _ = brute_force(some_rows()[i])
    drawn = KnownTotals(some_rows()).draw(20_000, np.random.default_rng(i))
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
    known = KnownTotals(alone)
    assert known.marginals.means.tolist() == [0, 5]
    assert known.draw(3, np.random.default_rng(1)).tolist() == [[[0], [5]]] * 3
    # Both counts are 0 or 12, all but never between, and add up to 24 or to 19.
    posterior = RowPosterior(
        alpha=[1.0, 1.0], total=24, log_likelihood=lambda x, i: -3.0 * np.minimum(x, np.abs(12 - x)), smooth=False
    )
    assert KnownTotals([posterior, posterior.at(19)]).are_known.tolist() == [True, False]
    assert [len(places) for places, _ in rows.summed_at_once([posterior, posterior.at(19), posterior, posterior])] == [
        3
    ]


def test_tables_of_many_rows_are_those_of_one_row_after_the_other(monkeypatch):
    """Rows of 0 to 90 records, and one that is larger by far, in no order."""
    rng = np.random.default_rng(3)
    totals = np.append(rng.integers(0, 90, 8), [9000, 20])[rng.permutation(10)]
    counts = np.stack([rng.multinomial(n, rng.dirichlet(np.ones(4))) for n in totals])
    noise = np.rint(rng.laplace(0, 3, counts.shape))
    noise[:, -1] -= noise.sum(axis=1)
    prior = rng.uniform(0.2, 3, counts.shape)
    mechanism = ZeroSumGeometricMechanism(prior, 3.0, contribution=Contribution(1, ("each",)))
    output = MechanismOutput(mechanism, counts + noise, prior=prior, n_records=int(totals.sum()))
    found = dirdp.estimate(output).tables["p"]
    monkeypatch.setattr(rows, "_AT_LEAST_ROWS", 1000)
    wanted = dirdp.estimate(output).tables["p"]
    for field in ("share_intervals", *(field.name for field in fields(wanted))):
        one, other = getattr(found, field), getattr(wanted, field)
        if not isinstance(other, str) and field != "share_quantiles":
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
