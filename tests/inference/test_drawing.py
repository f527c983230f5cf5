"""Draws have the distribution that they should, and a distribution that is a little off is told from it."""

import numpy as np
import pytest
from scipy.stats import chisquare

from pymc_dirdp.inference.drawing import draw_counts, draw_row
from pymc_dirdp.inference.numbers import NumberDraws
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.sums import Inversion

from .posteriors import ALPHA, LIKELIHOODS, brute_force, dirichlet, draw, geometric, row, simulated, tabulated

DRAWS = 200_000


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


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_posterior_of_tables(name):
    posterior = row(name, total=6)
    tables, logs, _ = brute_force(posterior)
    counts, acceptance = draw_counts(posterior.tilted, np.full(DRAWS, 6), np.random.default_rng(7))
    assert 0 < acceptance <= 1
    assert p_value(tables, logs, counts) > 1e-6


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_whole_tables_without_sums(name, monkeypatch):
    posterior = row(name, total=6)
    tables, logs, _ = brute_force(posterior)
    # Wherever one cell can take the rest, sums are not asked for.
    monkeypatch.setattr("pymc_dirdp.inference.drawing._RARE", 0.0)
    monkeypatch.delattr(RowPosterior, "tilted")
    counts, acceptance = draw_row(posterior, DRAWS, np.random.default_rng(8))
    assert 0 < acceptance <= 1
    assert p_value(tables, logs, counts) > 1e-6


def test_sums_are_asked_for_where_no_cell_takes_the_rest():
    posterior = RowPosterior(alpha=np.ones(120), total=240, log_likelihood=geometric(np.full(120, 2.0), 1.0))
    counts, _ = draw_row(posterior, 1000, np.random.default_rng(8))
    assert np.all(counts.sum(axis=1) == 240)
    assert np.abs(z_scores(posterior, counts)).max() < 5.5


@pytest.mark.parametrize("d", [2, 4])
def test_noise_of_billions_on_billions_of_records(d):
    total = 1_674_501_300
    posterior = RowPosterior(alpha=np.full(d, 1.5), total=total, log_likelihood=geometric(np.full(d, 2.5e8), 1e8))
    counts, _ = draw_row(posterior, 500, np.random.default_rng(8))
    assert counts.shape == (500, d)
    assert np.all(counts.sum(axis=1) == total)
    assert np.all(counts >= 0)


def test_a_posterior_that_is_off_by_a_fifth_is_rejected():
    posterior = row("dirichlet", total=6)
    tables, _, _ = brute_force(posterior)
    wrong = RowPosterior(alpha=ALPHA, total=6, log_likelihood=lambda x, i: LIKELIHOODS["dirichlet"](1.2 * x, i))
    counts, _ = draw_counts(posterior.tilted, np.full(DRAWS, 6), np.random.default_rng(7))
    assert p_value(tables, brute_force(wrong)[1], counts) < 1e-6


def z_scores(posterior, counts):
    sds = np.sqrt(posterior.variances)
    return (counts.mean(axis=0) - posterior.means)[sds > 0.2] / sds[sds > 0.2] * np.sqrt(len(counts))


@pytest.mark.parametrize(
    ("d", "total", "r", "alpha"),
    [(4, 1000, 0.1, 1.0), (50, 10_000, 0.5, 0.2), (300, 5000, 1.0, 1.0), (10, 10**7, 1e-3, 1)],
)
def test_draws_agree_with_the_exact_moments(d, total, r, alpha):
    rng = np.random.default_rng(d)
    _, x = simulated(d, total, alpha, rng)
    y = np.maximum(rng.dirichlet(r * x + 1), 1e-300)
    posterior = RowPosterior(alpha=np.full(d, alpha), total=total, log_likelihood=dirichlet(y, r, np.ones(d)))
    counts, _ = draw_counts(posterior.tilted, np.full(4000, total), rng)
    assert np.all(counts.sum(axis=1) == total)
    assert np.all(counts >= 0)
    z = z_scores(posterior, counts)
    assert np.abs(z).max() < 5.5
    wide = np.sqrt(posterior.variances) > 0.2
    ratio = counts.var(axis=0)[wide] / posterior.variances[wide]
    assert np.median(ratio) == pytest.approx(1, abs=0.06)
    # The same draws are rejected as draws from a neighbouring distribution.
    shifted = counts + np.where(
        np.arange(d) == np.argmax(posterior.variances), 0.2 * np.sqrt(posterior.variances.max()), 0
    )
    assert np.abs(z_scores(posterior, shifted)).max() > 8


def test_many_cells_are_drawn_in_halves():
    d = 400
    rng = np.random.default_rng(1)
    _, x = simulated(d, 4000, 1.0, rng)
    posterior = RowPosterior(alpha=np.ones(d), total=4000, log_likelihood=geometric(x + rng.normal(size=d), 3.0))
    assert isinstance(posterior.tilted.sums, Inversion)
    counts, acceptance = draw_counts(posterior.tilted, np.full(4000, 4000), rng)
    assert acceptance > 0.5
    z = z_scores(posterior, counts)
    assert np.abs(z).max() < 5.5
    assert np.mean(z**2) == pytest.approx(1, abs=0.4)
    # What halves could spoil is how cells go together: given the total the sum over the first half varies less.
    half = counts[:, : d // 2].sum(axis=1).var()
    first, second = posterior.variances[: d // 2].sum(), posterior.variances[d // 2 :].sum()
    assert half == pytest.approx(first * second / (first + second), rel=0.15)
    assert abs(half / first - 1) > 0.3


def test_wide_posteriors_are_drawn_block_by_block():
    """Block by block, and by cumulative probabilities, the same distribution; one that is 3 % wider is told from it."""
    rng = np.random.default_rng(2)
    posterior = RowPosterior(alpha=[0.5, 0.7], total=200_000, log_likelihood=dirichlet([0.3, 0.7], 1e-3, [1, 1]))
    marginals = posterior.tilted.marginals
    assert marginals.highs[0] - marginals.lows[0] > 100_000
    numbers = NumberDraws(marginals)
    numbers._narrow = 0
    drawn = numbers.draw(0, DRAWS, rng)
    x = np.arange(200_001.0)
    cdf = np.cumsum(np.exp(marginals.log_pmf(x, np.zeros(len(x), dtype=int))))
    edges = np.searchsorted(cdf, np.arange(1, 100) / 100)

    def p(sample):
        seen = np.bincount(np.searchsorted(edges, sample), minlength=100)
        mass = np.diff(np.concatenate([[0.0], cdf[edges], [cdf[-1]]])) / cdf[-1]
        return chisquare(seen, DRAWS * mass).pvalue

    assert p(drawn) > 1e-6
    assert p(drawn.mean() + 1.03 * (drawn - drawn.mean())) < 1e-6


@pytest.mark.parametrize("narrow", [0, None])
def test_probabilities_that_are_looked_up_are_those_of_the_posterior(narrow):
    """Also beyond the numbers that are kept, where there is hardly any, and where there is none."""
    posterior = RowPosterior(alpha=[0.5, 2.0], total=5_000, log_likelihood=geometric(np.array([20, 4_980]), 0.5))
    cells = posterior.tilted.cells
    assert cells.highs[0] < 4_000
    x = np.arange(-3, 5_004)
    for cell in range(2):
        expected = cells.log_pmf(x.astype(np.float64), np.full(len(x), cell))
        assert np.isfinite(expected).sum() == 5_001
        np.testing.assert_allclose(NumberDraws(cells, narrow).log_pmf(cell, x), expected, rtol=1e-14)


def test_rare_totals_are_drawn_number_by_number():
    """One cell is 0, 60 or, much less likely, between; the other is nearly known, so it has to be between."""
    table = np.full((2, 101), -np.inf)
    table[0, [0, 29, 30, 60]] = [0.0, -31.0, -30.0, 0.0]
    table[1, [70, 71]] = 0.0
    posterior = RowPosterior(alpha=[1.0, 1.0], total=100, log_likelihood=tabulated(table), smooth=False)
    _tables, _logs, evidence = brute_force(posterior)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-10)
    counts, acceptance = draw_counts(posterior.tilted, np.full(20_000, 100), np.random.default_rng(3))
    assert acceptance == 1
    assert np.mean(counts[:, 0] == 30) == pytest.approx(1 / (1 + np.exp(-1)), abs=0.02)


def test_draws_are_reproducible_and_shares_are_on_the_simplex():
    posterior = row("dirichlet")
    first, second = (draw(posterior, 100, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(first.counts, second.counts)
    np.testing.assert_array_equal(first.shares, second.shares)
    assert first.shares.min() > 0
    np.testing.assert_allclose(first.shares.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("total", [0, 1])
def test_small_totals_are_drawn(total):
    assert np.all(draw(row("geometric", total=total), 50, np.random.default_rng(5)).counts.sum(axis=1) == total)
