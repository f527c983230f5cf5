"""What nobody may infer from, and priors that do not fit: each is one clear error."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, InternalError, ReleaseError
from tests.planned import one_row, planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
PRIVATE = {"adjacency": "add-remove", "n_records": 100}


def released(observed=(30, 20, 10), **options):
    return planned_sample(APPROX, one_row(observed, [1, 2, 3]), **options)


def rates(**options):
    with pm.Model(coords={"department": list("AB")}) as model:
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
    return planned_sample(APPROX, model, **options)


def counts_of(release, draws=20, **options):
    return dirdp.analyse(release, draws, chains=1, random_seed=1, **options)["latent_counts"]["p"]


def test_noisy_counts_far_outside_give_tables_of_the_public_total():
    release = released(mechanism="geometric")
    for noisy in ([-1e6, 1e6, 60], [-1e12, -1e12, 2e12 + 60]):
        release["mechanism/p"]["noisy_counts"].values[:] = noisy
        counts = counts_of(release).values
        assert np.all(counts >= 0)
        assert np.all(counts.sum(axis=-1) == 60)


def test_rows_of_noisy_counts_that_no_table_could_give_come_to_an_end(edited):
    """A tilt that was lost to rounding was looked for in small steps, for ever."""
    release = rates(mechanism="geometric")
    values = release["mechanism/rate"]["noisy_counts"].values
    for far in (10**15, -(10**15), 2.0**999):
        values[0], values[1] = far, -far
        values[1, 1] += 70
        numbers = [[int(n) if abs(n) < 2**53 else n for n in row] for row in values.tolist()]
        with pytest.raises(ReleaseError):
            dirdp.analyse(edited(release, (("output", "rate", "noisy_counts"), numbers)), 20)


def test_a_failed_computation_is_our_error_where_the_numbers_are_those_of_a_release(monkeypatch):
    """Found by attack: an overflow of the library's own was called damage of the release."""

    def failing(*_):
        raise FloatingPointError("overflow encountered in divide")

    release = rates(mechanism="geometric")
    monkeypatch.setattr("pymc_dirdp.inference.tables.estimate_of_rows", failing)
    with pytest.raises(InternalError, match=r"'rate' could not be computed.*report"):
        dirdp.estimate(release)


def test_a_private_number_of_records_needs_a_prior_that_reaches_far_enough():
    release = released(**PRIVATE)
    with pytest.raises(ArgumentError, match=r"number of records of 'p' is private.*n_prior"):
        dirdp.analyse(release)
    analysis = dirdp.analyse(release, 100, chains=1, n_prior=200)
    assert "0 to 200 records" in analysis.attrs["conditional_on"]
    totals = analysis["latent_counts"]["p"].sum("hair")
    assert totals.max() <= 200
    assert len(np.unique(totals)) > 10
    # All weight on one number is that number.
    known = dirdp.analyse(release, 20, chains=1, n_prior=np.arange(61) == 60.0)
    assert set(np.unique(known["latent_counts"]["p"].sum("hair"))) == {60}
    assert "your prior of the number" in known.attrs["conditional_on"]
    for wrong in (0, -3, 2.5, [1.0], [0.0, 0.0], [1.0, -1.0], [[1.0, 2.0]], [1.0, np.nan]):
        with pytest.raises(ArgumentError, match="n_prior"):
            dirdp.analyse(release, n_prior=wrong)
    least = released(min_count=5, **PRIVATE)
    with pytest.raises(ArgumentError, match="reaches further"):
        dirdp.analyse(least, n_prior=14)
    assert counts_of(least, n_prior=30).min() >= 5
    noisy = released((9000, 20, 10), mechanism="geometric", adjacency="add-remove")
    for n_prior in (10, range(10), np.ones(11)):
        for verb in (dirdp.estimate, dirdp.analyse):
            with pytest.raises(ArgumentError, match="with larger numbers"):
                verb(noisy, n_prior=n_prior)
    assert dirdp.estimate(noisy, n_prior=20_000)


def test_a_prior_of_ones_own_changes_the_answer_and_has_to_fit():
    release = released(mechanism="geometric")
    narrow = dirdp.estimate(release, prior=[1e4, 1e4, 1e4])
    np.testing.assert_allclose(narrow.tables["p"].share_means, 1 / 3, rtol=1e-2)
    assert "a prior of your own" in narrow.conditions[0]
    assert dirdp.analyse(release, 5, chains=1, prior={"p": [1, 1, 1]})["posterior"]["p"].shape == (1, 5, 3)
    for wrong in ([1, 1], [1, 1, 0], [[1, 1, 1]], "a"):
        with pytest.raises(ArgumentError, match="prior"):
            dirdp.analyse(release, prior=wrong)
    with pytest.raises(ArgumentError, match="prior names 'q', and the release has the tables p"):
        dirdp.analyse(release, prior={"q": [1, 1, 1]})


def test_a_prior_of_rows_is_for_several_rows():
    release = rates()
    strong = dirdp.analyse(release, 200, chains=1, row_prior=[1e6, 1e6], random_seed=1)
    totals = strong["latent_counts"]["rate"].sum("rate_outcome")
    # Half of 70 records, give or take those of a binomial distribution.
    assert abs(float(totals.mean(("chain", "draw"))[0]) - 35) < 3
    assert float(totals.std(("chain", "draw"))[0]) < 6
    assert "your prior of the division" in strong.attrs["conditional_on"]
    for given, row_prior, words in ((release, [1, 1, 1], "row_prior"), (released(), [1.0], "'p' has one")):
        with pytest.raises(ArgumentError, match=words):
            dirdp.analyse(given, row_prior=row_prior)
