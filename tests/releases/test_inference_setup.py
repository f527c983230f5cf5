"""What nobody may infer from, and priors that do not fit: each is one clear error."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError
from tests.planned import planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def released(observed=(30, 20, 10), **options):
    with pm.Model(coords={"hair": ["black", "brown", "red"]}):
        p = pm.Dirichlet("p", a=[1, 2, 3], dims="hair")
        pm.Multinomial("students", n=sum(observed), p=p, observed=list(observed))
        return planned_sample(APPROX, **options)


def rates(**options):
    with pm.Model(coords={"department": list("AB")}):
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
        return planned_sample(APPROX, **options)


@pytest.mark.parametrize("noisy", [[-1e6, 1e6, 60], [1e9, 60, -1e9], [-1e12, -1e12, 2e12 + 60]])
def test_noisy_counts_far_outside_give_tables_of_the_public_total(noisy):
    release = released(mechanism="geometric")
    release["mechanism/p"]["noisy_counts"].values[:] = noisy
    counts = dirdp.analyse(release, 20, chains=1)["latent_counts"]["p"].values
    assert np.all(counts >= 0)
    assert np.all(counts.sum(axis=-1) == 60)


def test_a_failed_computation_is_our_error_where_the_numbers_are_those_of_a_release(monkeypatch):
    """Found by attack: an overflow of the library's own was called damage of the release."""
    release = rates(mechanism="geometric")

    def failing(*_):
        raise FloatingPointError("overflow encountered in divide")

    monkeypatch.setattr("pymc_dirdp.inference.tables.estimate_of_rows", failing)
    with pytest.raises(dirdp.errors.InternalError, match=r"'rate' could not be computed.*report"):
        dirdp.estimate(release)


def test_a_private_number_of_records_needs_a_prior():
    release = released(adjacency="add-remove", n_records=100)
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


@pytest.mark.parametrize("n_prior", [10, range(10), np.ones(11)], ids=["integer", "range", "array"])
def test_a_prior_of_fewer_records_than_noisy_counts_leave_possible_is_refused(n_prior):
    release = released((9000, 20, 10), mechanism="geometric", adjacency="add-remove")
    for verb in (dirdp.estimate, dirdp.analyse):
        with pytest.raises(ArgumentError, match="with larger numbers"):
            verb(release, n_prior=n_prior)
    assert dirdp.estimate(release, n_prior=20_000)


def test_a_guarantee_of_least_counts_needs_room():
    release = released(adjacency="add-remove", n_records=100, min_count=5)
    with pytest.raises(ArgumentError, match="reaches further"):
        dirdp.analyse(release, n_prior=14)
    assert dirdp.analyse(release, 20, chains=1, n_prior=30)["latent_counts"]["p"].min() >= 5


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
    with pytest.raises(ArgumentError, match="row_prior"):
        dirdp.analyse(release, row_prior=[1, 1, 1])
    with pytest.raises(ArgumentError, match="'p' has one"):
        dirdp.analyse(released(), row_prior=[1.0])
    with pytest.raises(ArgumentError, match="draws"):
        dirdp.analyse(release, 0, chains=1)


def test_a_number_of_records_is_said_of_the_table_of_the_classes_or_of_all():
    """Tables that are read together hold the same records, so a number for another of them would be passed over."""
    classes, answers = np.array([0, 1, 0, 1, 1, 0, 0]), np.array([0, 1, 1, 1, 0, 0, 0])
    with pm.Model(coords={"kind": ["u", "v"], "said": ["no", "yes"]}):
        share = pm.Dirichlet("share", [1.0, 1.0], dims="kind")
        theta = pm.Dirichlet("theta", np.ones((2, 2)), dims=("kind", "said"))
        given = pm.Categorical("class", p=share, observed=classes)
        pm.Categorical("answer", p=theta[given], observed=answers)
        release = dirdp.sample(APPROX, adjacency="add-remove", n_records=7, mechanism="geometric", contribution=1)
    for n_prior in (30, {"share": 30}):
        analysis = dirdp.analyse(release, 20, chains=1, n_prior=n_prior)
        counts = analysis["latent_counts"].to_dataset()
        assert counts["theta"].sum(axis=(-2, -1)).equals(counts["share"].sum(axis=-1))
        assert counts["share"].sum(axis=-1).max() <= 30
    with pytest.raises(ArgumentError, match=r"n_prior applies to that table only. Leave 'theta' out"):
        dirdp.analyse(release, 20, chains=1, n_prior={"share": 30, "theta": 30})
    assert dirdp.analyse(release, 20, chains=1, n_prior={"share": 30, "theta": 20}, same_records=False)


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
