"""Many rows with known totals at once, against every table of each, and against sums of one row after the other."""

from dataclasses import fields

import numpy as np
import pytest
from scipy.stats import chisquare

import pymc_dirdp as dirdp
from pymc_dirdp.inference import known_totals
from pymc_dirdp.inference.known_totals import KnownTotals
from pymc_dirdp.inference.mechanism_output import MechanismOutput
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.mechanisms import ZeroSumGeometricMechanism
from pymc_dirdp.privacy.people import Contribution

from .posteriors import brute_force, geometric, row

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
    assert [
        len(places) for places, _ in known_totals.summed_at_once([posterior, posterior.at(19), posterior, posterior])
    ] == [3]


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
    monkeypatch.setattr(known_totals, "_MANY", 1000)
    wanted = dirdp.estimate(output).tables["p"]
    for field in ("share_intervals", *(field.name for field in fields(wanted))):
        one, other = getattr(found, field), getattr(wanted, field)
        if not isinstance(other, str) and field != "share_quantiles":
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
