"""Totals that are not known, against brute force over all totals and tables."""

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import chisquare

import pymc_dirdp.inference.evidence as evidence_module
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.evidence import Evidence
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.totals import PrivateTotal, RowTotals

from .laws import PRIOR, brute_force, dirichlet, gaussian, geometric, row, simulated

MOST = 12
TOTALS = np.arange(MOST + 1)


def factor(totals):
    """That of a Dirichlet draw with r = 0.3."""
    return gammaln(0.3 * totals + PRIOR.sum())


def evidences(law, least=0):
    return np.array([brute_force(law, n)[2] if n >= least else -np.inf for n in TOTALS])


def test_evidence_for_every_total():
    for name in ("dirichlet", "geometric", "far away"):
        law = row(name, total=MOST)
        np.testing.assert_allclose(Evidence(law)(TOTALS.astype(float)), evidences(law), rtol=0, atol=1e-10)


@pytest.mark.parametrize("total", [4000, 60_000])
def test_one_run_of_totals_continues_the_other(total):
    """Runs with tilts of their own, and what is interpolated, against a tilt for each total."""
    law = ProductLaw(alpha=np.ones(3), total=total, log_likelihood=dirichlet([0.5, 0.3, 0.2], 0.1, np.ones(3)))
    totals = np.random.default_rng(1).integers(total // 2, total, 6)
    expected = [law.at(int(n)).log_evidence for n in totals]
    np.testing.assert_allclose(Evidence(law)(totals.astype(float)), expected, rtol=0, atol=1e-8)
    between = Evidence(law)(np.array([total / 2 + 0.5]))
    around = Evidence(law)(total / 2 + np.array([0.0, 1.0]))
    assert between[0] == pytest.approx(around.mean(), abs=1e-4)


@pytest.mark.parametrize("name", ["dirichlet", "geometric", "far away"])
def test_small_totals_are_what_runs_of_totals_are(name, monkeypatch):
    law = row(name, total=900)
    totals = np.arange(901.0)
    at_once = Evidence(law)(totals)
    monkeypatch.setattr("pymc_dirdp.inference.evidence.largest_small", lambda law: -1)
    in_runs = Evidence(law)(totals)
    assert np.isfinite(in_runs).all()
    np.testing.assert_allclose(at_once, in_runs, rtol=0, atol=1e-9)


def test_small_totals_that_underflow_are_left_to_runs_of_their_own():
    """Two cells without noise to speak of: all totals but one are some thousand nats less probable than that."""
    law = ProductLaw(alpha=np.ones(3), total=300, log_likelihood=geometric(np.array([150.0, 40.0, 9.0]), 0.05))
    totals = np.array([0.0, 150.0, 199.0, 240.0, 300.0])
    expected = [law.at(int(n)).log_evidence for n in totals]
    assert min(expected) < -1000
    np.testing.assert_allclose(Evidence(law)(totals), expected, rtol=1e-12)


def test_a_long_run_of_totals_is_summed_once(monkeypatch):
    """What is known of a run was looked for again whenever a rule of sums was refined: naive Bayes took minutes."""
    law = ProductLaw(alpha=np.ones(3), total=60_000, log_likelihood=geometric(np.array([2e4, 1e4, 3e3]), 3e4))
    evidence, solved = Evidence(law), []

    def counted(cells, total, **options):
        solved.append(total)
        return real(cells, total, **options)

    real = evidence_module.solved
    monkeypatch.setattr(evidence_module, "solved", counted)
    evidence(np.linspace(5e3, 6e4, 500))
    first = len(solved)
    later = np.linspace(5.01e3, 5.99e4, 500).round()
    found = evidence(later)
    assert 0 < first == len(solved) < 10
    # The law of the noise has a kink at 33,000, the sum of the noisy counts.
    some = np.append(later[::50], [32_990.0, 33_000.0, 33_001.0])
    expected = [law.at(int(n)).log_evidence for n in some]
    np.testing.assert_allclose(evidence(some), expected, rtol=0, atol=2e-9)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("alike", [0, 10**9])
def test_rows_of_small_totals_are_drawn_number_by_number(alike, monkeypatch):
    """Those with the same total together, or each for itself: the law of whole tables given their total."""
    monkeypatch.setattr("pymc_dirdp.inference.convolution._ALIKE", alike)
    monkeypatch.setattr("pymc_dirdp.inference.convolution._AT_A_TIME", 5_000)
    law = row("dirichlet", total=MOST)
    rng = np.random.default_rng(5)
    totals = rng.permutation(np.resize(np.arange(5), 60_000))
    counts, acceptance = Evidence(law).draw(totals, rng)
    assert acceptance == 1
    np.testing.assert_array_equal(counts.sum(axis=1), totals)
    for total in (2, 4):
        tables, logs, _ = brute_force(law, total)
        seen = {tuple(table): place for place, table in enumerate(tables.astype(int).tolist())}
        found = np.bincount([seen[tuple(table)] for table in counts[totals == total].tolist()], minlength=len(tables))
        expected = np.exp(logs) * found.sum()
        often = expected > 5
        assert chisquare(found[often], expected[often] * found[often].sum() / expected[often].sum()).pvalue > 1e-6
        other = np.exp(brute_force(row("geometric", total=MOST), total)[1])[often]
        assert chisquare(found[often], other * found[often].sum() / other.sum()).pvalue < 1e-6


def test_rows_end_where_larger_totals_do_not_matter(monkeypatch):
    """Many rows of few records, and one of many: against totals that are looked at up to all records."""
    monkeypatch.setattr("pymc_dirdp.inference.evidence.largest_small", lambda law: 60)
    monkeypatch.setattr("pymc_dirdp.inference.bounded_totals._SHARES", 8)
    rng = np.random.default_rng(6)
    sizes = np.append(rng.multinomial(300, rng.dirichlet(np.full(39, 0.5))), 300)
    tables = np.stack([rng.multinomial(n, [0.5, 0.3, 0.2]) for n in sizes])
    noisy = tables + rng.normal(0, 3, tables.shape)
    rows = [ProductLaw(alpha=np.ones(3), total=600, log_likelihood=gaussian(z, 3.0)) for z in noisy]
    ends = RowTotals(rows, total=600)
    reached = ends._known.at_most
    assert reached[-1] >= 300 > reached[0]
    assert len(reached) == 40
    monkeypatch.setattr("pymc_dirdp.inference.totals.bounded", lambda totals, *_: totals)
    all_of_them = RowTotals(rows, total=600)
    assert ends.log_evidence == pytest.approx(all_of_them.log_evidence, abs=1e-8)
    np.testing.assert_allclose(ends.marginals.means, all_of_them.marginals.means, rtol=1e-9)
    np.testing.assert_allclose(ends.marginals.variances, all_of_them.marginals.variances, rtol=1e-7)


def test_one_tilt_serves_no_total_that_one_far_wider_cell_was_cut_off_for():
    """A run of totals went further than the wide cell had been kept: the evidence was wrong by a factor of up to 27."""
    for y in ([0.995, 0.0025, 0.0025], [0.9995, 0.0003, 0.0002]):
        law = ProductLaw(alpha=np.ones(3), total=100_000, log_likelihood=dirichlet(y, 0.1, np.ones(3)))
        evidence, totals = Evidence(law), np.arange(58_000, 62_001, 400)
        evidence(np.array([60_000.0]))
        expected = [law.at(int(n)).log_evidence for n in totals]
        np.testing.assert_allclose(evidence(totals.astype(float)), expected, rtol=0, atol=1e-9)


def posterior_of_totals(law, log_prior):
    logs = evidences(law) + factor(TOTALS) + log_prior(TOTALS)
    return logs, np.exp(logs - logsumexp(logs))


def test_a_private_total():
    law = row("dirichlet", total=MOST)
    found = PrivateTotal(law, log_prior=lambda n: -n / 5, log_factor=factor)
    logs, mass = posterior_of_totals(law, lambda n: -n / 5)
    assert found.log_evidence == pytest.approx(logsumexp(logs), abs=1e-10)
    mean, sd = found.mean_and_sd
    assert mean == pytest.approx(mass @ TOTALS, abs=1e-10)
    assert sd == pytest.approx(np.sqrt(mass @ (TOTALS - mean) ** 2), abs=1e-10)
    counts, acceptance = found.draw(50_000, np.random.default_rng(2))
    assert 0 < acceptance <= 1
    seen = np.bincount(counts.sum(axis=1), minlength=MOST + 1)
    assert chisquare(seen, 50_000 * mass).pvalue > 1e-6
    # With a flat prior of the total these draws would not do.
    assert chisquare(seen, 50_000 * posterior_of_totals(law, lambda n: 0 * n)[1]).pvalue < 1e-6
    means = sum(m * (np.exp(logs) @ tables) for m, (tables, logs, _) in zip(mass, map(brute(law), TOTALS), strict=True))
    np.testing.assert_allclose(counts.mean(axis=0), means, atol=0.06)


def brute(law):
    return lambda total: brute_force(law, total)


def test_rows_that_share_a_total():
    first = row("geometric", total=MOST)
    second = ProductLaw(alpha=[0.5, 0.4], total=MOST, log_likelihood=dirichlet([0.2, 0.8], 0.5, [1.0, 1.0]))

    def second_factor(n):
        return gammaln(0.5 * n + 2)

    rows = RowTotals([first, second], total=MOST, row_prior=[1.0, 2.0], log_factors=[lambda n: 0 * n, second_factor])
    # Dirichlet-multinomial law of the two totals with parameters 1 and 2.
    prior = np.log(TOTALS[::-1] + 1) - np.log((MOST + 1) * (MOST + 2) / 2)
    logs = prior + evidences(first) + (evidences(second) + second_factor(TOTALS))[::-1]
    mass = np.exp(logs - logsumexp(logs))
    assert rows.log_evidence == pytest.approx(logsumexp(logs), abs=1e-9)
    assert rows.totals.means[0] == pytest.approx(mass @ TOTALS, abs=1e-9)
    tables, _ = rows.draw(50_000, np.random.default_rng(3))
    assert np.all(tables[0].sum(axis=1) + tables[1].sum(axis=1) == MOST)
    seen = np.bincount(tables[0].sum(axis=1), minlength=MOST + 1)
    assert chisquare(seen, 50_000 * mass).pvalue > 1e-6
    flat = np.exp(logs - prior - logsumexp(logs - prior))
    assert chisquare(seen, 50_000 * flat).pvalue < 1e-6


def test_promised_least_counts_of_rows():
    rows = [row("geometric", total=MOST - 3, least=1), row("dirichlet", total=MOST - 3, least=1)]
    found = RowTotals(rows, total=MOST, log_factors=[lambda n: 0 * n, factor])
    logs = evidences(rows[0], 3) + (evidences(rows[1], 3) + factor(TOTALS))[::-1]
    mass = np.exp(logs - logsumexp(logs))
    assert found.totals.means[0] == pytest.approx(mass @ TOTALS, abs=1e-9)
    tables, _ = found.draw(500, np.random.default_rng(3))
    assert min(table.min() for table in tables) >= 1


@pytest.mark.parametrize("total", [500, 20_000])
def test_larger_rows_are_near_the_truth(total):
    """Noise on every cell: row totals are known to about the noise, also where they are not looked at one by one."""
    rng = np.random.default_rng(4)
    _, x = simulated(6, total, 2.0, rng)
    x = x.reshape(2, 3)
    z = x + rng.laplace(size=x.shape) * 4
    rows = [ProductLaw(alpha=np.ones(3), total=total, log_likelihood=geometric(cells, 4.0)) for cells in z]
    found = RowTotals(rows, total=total)
    sd = np.sqrt(found.totals.variances)
    # Of the sum of three noises, and of the other three, both are known of one number.
    assert np.all((sd > 5) & (sd < 9))
    assert np.all(np.abs(found.totals.means - x.sum(axis=1)) < 4 * sd)
    tables, _ = found.draw(500, rng)
    np.testing.assert_allclose(tables[0].sum(axis=1).mean(), found.totals.means[0], atol=5 * sd[0] / np.sqrt(500))


def test_bad_rows_are_refused():
    rows = [row("geometric"), row("dirichlet")]
    for options, words in (
        ({"rows": rows[:1]}, "two rows"),
        ({"row_prior": [1.0, 1.0, 1.0]}, "row_prior"),
        ({"row_prior": [1.0, 0.0]}, "row_prior"),
        ({"log_factors": [factor]}, "log_factors"),
        ({"total": -1}, "total"),
    ):
        given = {"rows": rows, "total": MOST, **options}
        with pytest.raises(ArgumentError, match=words):
            RowTotals(given.pop("rows"), **given)


def test_class_counts_of_naive_bayes_are_sharpened_by_the_features():
    """Two classes, two features: what the features' tables say of the class counts is a likelihood of these."""
    total, prior = 6, np.array([1.0, 2.0])
    noisy = geometric(np.array([1.0, 4.0]), 2.0)
    features = [
        [
            ProductLaw(alpha=[1.0, 0.5], total=total, log_likelihood=geometric(np.array([1.0 + f, 2.0 + k]), 1.5))
            for k in range(2)
        ]
        for f in range(2)
    ]
    known = [[Evidence(law) for law in laws] for laws in features]

    def log_likelihood(counts, classes):
        counts, classes = np.broadcast_arrays(counts, classes)
        parts = [np.where(classes == k, sum(laws[k](counts) for laws in known), 0.0) for k in range(2)]
        return noisy(counts, classes) + sum(parts)

    classes = ProductLaw(alpha=prior, total=total, log_likelihood=log_likelihood, smooth=False)
    logs = []
    for n in range(total + 1):
        both = np.array([n, total - n])
        log_prior = gammaln(total + 1) + gammaln(3) - gammaln(total + 3)
        log_prior += np.sum(gammaln(both + prior) - gammaln(both + 1) - gammaln(prior))
        of_features = sum(brute_force(laws[k], both[k])[2] for laws in features for k in range(2))
        logs.append(log_prior + noisy(both, np.arange(2)).sum() + of_features)
    mass = np.exp(np.array(logs) - logsumexp(logs))
    assert classes.log_evidence == pytest.approx(logsumexp(logs), abs=1e-10)
    assert classes.means[0] == pytest.approx(mass @ np.arange(total + 1), abs=1e-10)


def test_rows_that_are_nearly_empty_are_drawn_too():
    """A release with little in it leaves every total open. Proposals for 350 records are next to never an empty row."""
    law = ProductLaw(alpha=np.ones(4), total=700, log_likelihood=lambda counts, cells: 1e-5 * counts)
    totals = np.concatenate([np.zeros(20, dtype=np.int64), [1, 2, 3], np.full(200, 300)])
    counts, acceptance = Evidence(law).draw(totals, np.random.default_rng(1))
    np.testing.assert_array_equal(counts.sum(axis=1), totals)
    assert acceptance > 0.05


def test_totals_next_to_those_that_no_table_has():
    """Found by attack: a genuine release of three rows with a private number of records was called damaged."""
    middle, alpha, x = np.array([1500.0, 2500.0, 900.0]), np.array([1.0, 2.0, 0.5]), np.arange(3000.0)

    def log_likelihood(counts, cells):
        distance = np.abs(middle[cells] - counts)
        return np.where(distance <= 300, -distance / 10, -np.inf)

    row = ProductLaw(alpha=alpha, total=20_000, log_likelihood=log_likelihood)
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        mean, sd = PrivateTotal(row, log_prior=lambda totals: 0 * totals).mean_and_sd
    sums = np.ones(1)
    for i in range(3):
        weights = log_likelihood(x, np.full(len(x), i)) + gammaln(x + alpha[i]) - gammaln(x + 1)
        sums = np.convolve(sums, np.exp(weights))
    n = np.arange(len(sums))
    weights = sums * np.exp(gammaln(n + 1) - gammaln(n + alpha.sum()))
    expected = weights @ n / weights.sum()
    assert mean == pytest.approx(expected, rel=1e-10)
    assert sd == pytest.approx(np.sqrt(weights @ (n - expected) ** 2 / weights.sum()), rel=1e-8)
