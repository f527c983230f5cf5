"""Rows whose total is private and flat: cells that are independent given one rate."""

from itertools import product

import numpy as np
import pytest
from scipy.special import betaln, gammaln, logsumexp
from scipy.stats import chisquare

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.drawing import FreeTotal, exponential_mixture
from pymc_dirdp.inference.rows import RowPosterior

from .posteriors import geometric, of_private_total


def brute_force(alpha, z, scale, least, least_total, most):
    tables = np.array(list(product(range(most + 1), repeat=len(alpha))))
    totals = tables.sum(axis=1)
    tables = tables[(totals >= least_total) & (totals <= most) & (tables.min(axis=1) >= least)]
    logs = (gammaln(tables + alpha) - gammaln(tables + 1) - np.abs(np.array(z) - tables) / scale).sum(axis=1)
    logs += gammaln(tables.sum(axis=1) + 1) - gammaln(tables.sum(axis=1) + np.sum(alpha))
    return tables, np.exp(logs - logsumexp(logs))


@pytest.mark.parametrize("excess", [1e-3, 0.3, 1.0, 2.5, 9.0, 50.0, 1000.0])
def test_a_beta_function_is_a_sum_of_exponentials(excess):
    n = np.array([0.0, 1, 2, 7, 30, 1e3, 1e5, 1e7])
    step = exponential_mixture(excess)
    u = np.arange(np.log(excess * 1e-10 / 1e7) - 30 / max(excess, 0.05), np.log(60.0 + excess), step)
    s = np.exp(u)
    with np.errstate(divide="ignore"):
        logs = u + (excess - 1) * np.log(-np.expm1(-s)) - s * (n[:, None] + 1) + np.log(step)
    # What lies below the first rate follows a geometric series.
    logs[:, 0] -= np.log(-np.expm1(-excess * step))
    np.testing.assert_allclose(logsumexp(logs, axis=1), betaln(n + 1, excess), atol=3e-9)


CASES = {
    "flat": ([1.0, 1, 1], [2.0, 5, 1], 1.5, 0, 0),
    "uneven": ([0.3, 2, 0.9], [-3.0, 7, 1], 2.0, 0, 3),
    "few in the prior": ([0.1, 0.2, 0.3], [1.0, 4, 0], 2.0, 0, 1),
    "one in all": ([0.4, 0.6], [3.0, 2], 3.0, 0, 0),
    "a little more than one in all": ([0.5, 0.52], [3.0, 2], 3.0, 0, 0),
    "at least one": ([1.0, 3, 1], [2.0, 5, 1], 1.0, 1, 4),
    "much noise": ([2.0, 2, 2], [40.0, -30, 5], 100.0, 0, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_every_table_has_the_probability_that_a_sum_over_all_gives(name):
    alpha, z, scale, least, least_total = CASES[name]
    tables, probabilities = brute_force(np.array(alpha), z, scale, least, least_total, 12)
    posterior = RowPosterior(alpha=alpha, total=12, log_likelihood=geometric(z, scale), least=least)
    row = FreeTotal(posterior, least_total)
    rates, masses = row.nodes
    logs = []
    for rate, mass in zip(rates, masses, strict=True):
        cells = posterior.cells()
        cells.settle(-rate)
        where = np.broadcast_to(np.arange(len(alpha)), tables.shape)
        logs.append(np.log(mass) + cells.log_pmf(tables.astype(float), where).sum(axis=1))
    found = logsumexp(logs, axis=0)
    if sum(alpha) < 1:
        # Refusing makes up for the weight of the total.
        found += gammaln(tables.sum(axis=1) + 1) - gammaln(tables.sum(axis=1) + sum(alpha))
    np.testing.assert_allclose(np.exp(found - logsumexp(found)), probabilities, rtol=1e-8)

    drawn, acceptance = row.draw(20_000, np.random.default_rng(1))
    assert 0 < acceptance <= 1
    seen = np.zeros((13,) * len(alpha))
    np.add.at(seen, tuple(drawn.T), 1)
    observed, expected = seen[tuple(tables.T)], 20_000 * probabilities
    assert observed.sum() == 20_000
    often = expected > 10
    observed, expected = (np.append(x[often], x[~often].sum() + 1e-9) for x in (observed, expected))
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-6
    # Uniform tables would be noticed.
    wrong = np.full(len(tables), 20_000 / len(tables))
    assert chisquare(seen[tuple(tables.T)], wrong).pvalue < 1e-6


@pytest.mark.parametrize("scale", [3.0, 100.0])
def test_moments_of_the_total_are_those_of_sums_over_totals(scale):
    z = np.array([500.0, 2000, -20, 130])
    posterior = RowPosterior(alpha=[1, 0.5, 1, 3], total=int(z.sum() + 90 * scale), log_likelihood=geometric(z, scale))
    rates, masses = FreeTotal(posterior).nodes
    means, seconds = [], []
    for rate in rates:
        cells = posterior.cells()
        cells.settle(-rate)
        means.append(cells.means.sum())
        seconds.append(cells.variances.sum() + means[-1] ** 2)
    mean = masses @ means
    expected_mean, expected_sd = of_private_total(posterior).distribution[1].part(0).mean_and_sd
    assert mean == pytest.approx(expected_mean, rel=1e-8)
    assert np.sqrt(masses @ seconds - mean**2) == pytest.approx(expected_sd, rel=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("d", "total", "scale", "alpha"),
    [
        (2, 10**9, 1e8, 1.0),
        (4, 2 * 10**6, 1e5, 1.0),
        (1000, 200_000, 2.0, 1.0),
        (6, 10**5, 1e3, 0.01),
        (3, 0, 1.0, 1.0),
    ],
)
def test_wide_noise_and_large_tables(d, total, scale, alpha):
    z = np.zeros(d)
    posterior = RowPosterior(alpha=np.full(d, alpha), total=total, log_likelihood=geometric(z, scale))
    drawn, _ = FreeTotal(posterior).draw(50, np.random.default_rng(1))
    assert drawn.shape == (50, d)
    assert drawn.min() >= 0
    assert drawn.sum(axis=1).max() <= total


@pytest.mark.parametrize(("total", "cut_off"), [(0, True), (200, True), (500, True), (2000, False), (10**9, False)])
def test_a_largest_total_among_those_that_have_a_probability_is_seen(total, cut_off):
    row = FreeTotal(RowPosterior(alpha=[1.0, 2], total=total, log_likelihood=geometric([300.0, 100], 20.0)))
    assert row.is_cut_off == cut_off


def test_counts_that_no_total_is_far_from_are_seen():
    """Each count may reach the largest total, although the mean of their sum stays far below."""
    row = FreeTotal(RowPosterior(alpha=[5000.0, 1], total=300, log_likelihood=geometric([20.0, 10], 1.0)))
    assert not row.is_cut_off
    assert FreeTotal(row.row.at(60)).is_cut_off


def test_draws_stand_in_no_order():
    posterior = RowPosterior(alpha=np.ones(3), total=10**5, log_likelihood=geometric(np.zeros(3), 1e3))
    totals = FreeTotal(posterior).draw(4000, np.random.default_rng(1))[0].sum(axis=1)
    # In the order of the rates they would be as far apart as possible.
    assert abs(np.corrcoef(totals[1:], totals[:-1])[0, 1]) < 0.1


def test_a_range_of_totals_that_contradicts_the_output_is_an_error(monkeypatch):
    monkeypatch.setattr("pymc_dirdp.inference.drawing._MOST_PROPOSALS", 3)
    posterior = RowPosterior(alpha=np.ones(2), total=10**4, log_likelihood=geometric([1.0, 2.0], 1.0))
    with pytest.raises(ArgumentError, match="too unlikely"):
        FreeTotal(posterior, 9000).draw(10, np.random.default_rng(1))
