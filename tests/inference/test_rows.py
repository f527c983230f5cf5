"""Product distributions against brute force over all tables."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.rows import RowPosterior

from .posteriors import ALPHA, LIKELIHOODS, Y, brute_force, dirichlet, log_probability, row, tabulated


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


def test_tables_with_another_total_or_fractions_are_impossible():
    posterior = row("dirichlet", least=1)
    assert np.isneginf(log_probability(posterior, [[4, 4, 5], [12, 0, 0], [3.5, 4.5, 4]])).all()


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
