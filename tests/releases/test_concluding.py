"""What nobody may conclude from, and priors that do not fit: each is one clear error."""

import warnings

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def released(observed=(30, 20, 10), **options):
    with pm.Model(coords={"hair": ["black", "brown", "red"]}):
        p = pm.Dirichlet("p", a=[1, 2, 3], dims="hair")
        pm.Multinomial("students", n=60, p=p, observed=list(observed))
        return dirdp.sample(APPROX, **options)


def rates(**options):
    with pm.Model(coords={"department": list("AB")}):
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
        return dirdp.sample(APPROX, **options)


def test_what_is_no_release_is_refused():
    for thing in (None, 3, released()["posterior"], {"posterior": 1}):
        with pytest.raises(ReleaseError, match="Expected a release"):
            dirdp.analyse(thing)


def test_an_edited_release_is_refused():
    release = released()
    release["mechanism/p"]["r"].values[...] = 0.9
    with pytest.raises(ReleaseError, match="contradicts itself"):
        dirdp.analyse(release)
    release = released(mechanism="geometric")
    release["mechanism/p"]["noisy_counts"].values[:2] += [0.5, -0.5]
    with pytest.raises(ReleaseError, match="not on the grid"):
        dirdp.estimate(release)


@pytest.mark.parametrize(
    ("y", "problem"),
    [
        ([0.5, 0.3, 0.200001], "add up to 1"),
        ([0.0, 0.5, 0.5], r"contradicts itself.*grid"),
        ([0.5, 0.6, -0.1], "no probability"),
    ],
)
def test_a_draw_off_the_simplex_is_refused(y, problem):
    release = released()
    release["posterior"]["p"].values[:] = y
    with pytest.raises(ReleaseError, match=problem):
        dirdp.analyse(release)


def test_a_component_0_of_a_draw_in_floating_point_is_refused():
    release = released(sampler="fast")
    release["posterior"]["p"].values[:] = [0.0, 0.5, 0.5]
    with pytest.raises(ReleaseError, match="probability is 0"):
        dirdp.analyse(release)


def test_a_seeded_release_is_read_and_marked():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dirdp.SeededReleaseWarning)
        release = released(random_seed=1)
    assert dirdp.analyse(release, 5).attrs["reproducible"] == "not private"
    assert "reproducible" not in dirdp.analyse(released(), 5).attrs


@pytest.mark.parametrize("noisy", [[-1e6, 1e6, 60], [1e9, 60, -1e9], [-1e12, -1e12, 2e12 + 60]])
def test_noisy_counts_far_outside_give_tables_of_the_public_total(noisy):
    release = released(mechanism="geometric")
    release["mechanism/p"]["noisy_counts"].values[:] = noisy
    counts = dirdp.analyse(release, 20)["latent_counts"]["p"].values
    assert np.all(counts >= 0)
    assert np.all(counts.sum(axis=-1) == 60)


def test_noisy_counts_that_no_table_could_give_are_damage():
    release = released(mechanism="geometric")
    release["mechanism/p"]["noisy_counts"].values[:] = [2.0**999, -(2.0**999), 60]
    with pytest.raises(ReleaseError, match="nothing follows from its numbers"):
        dirdp.analyse(release)


def test_rows_of_noisy_counts_that_no_table_could_give_come_to_an_end():
    """A tilt that was lost to rounding was looked for in small steps, for ever."""
    release = rates(mechanism="geometric")
    values = release["mechanism/rate"]["noisy_counts"].values
    for far in (1e15, -1e15, 2.0**999):
        values[0], values[1] = far, -far
        values[1, 1] += 70
        with pytest.raises(ReleaseError, match="nothing follows from its numbers"):
            dirdp.analyse(release, 20)


def test_a_prior_from_a_file_with_which_nothing_can_be_computed_is_damage():
    release = rates(mechanism="geometric")
    release["mechanism/rate"]["prior"] = 1e300 * release["mechanism/rate"]["prior"]
    with pytest.raises(ReleaseError, match="nothing follows from its numbers"):
        dirdp.analyse(release)


def test_a_private_number_of_records_needs_a_prior():
    release = released(adjacency="add-remove", n_records=100)
    with pytest.raises(ArgumentError, match=r"number of records of 'p' is private.*n_prior"):
        dirdp.analyse(release)
    analysis = dirdp.analyse(release, 100, n_prior=200)
    assert "0 to 200 records" in analysis.attrs["conditional_on"]
    totals = analysis["latent_counts"]["p"].sum("hair")
    assert totals.max() <= 200
    assert len(np.unique(totals)) > 10
    # All weight on one number is that number.
    known = dirdp.analyse(release, 20, n_prior=np.arange(61) == 60.0)
    assert set(np.unique(known["latent_counts"]["p"].sum("hair"))) == {60}
    assert "your prior of the number" in known.attrs["conditional_on"]
    for wrong in (0, -3, 2.5, [1.0], [0.0, 0.0], [1.0, -1.0], [[1.0, 2.0]], [1.0, np.nan]):
        with pytest.raises(ArgumentError, match="n_prior"):
            dirdp.analyse(release, n_prior=wrong)


def test_a_public_number_of_records_takes_no_prior():
    with pytest.raises(ArgumentError, match="60, which is public"):
        dirdp.analyse(released(), n_prior=100)


def test_a_promise_of_least_counts_needs_room():
    release = released(adjacency="add-remove", n_records=100, min_count=5)
    with pytest.raises(ArgumentError, match="reaches further"):
        dirdp.analyse(release, n_prior=14)
    assert dirdp.analyse(release, 20, n_prior=30)["latent_counts"]["p"].min() >= 5


def test_a_prior_of_ones_own_changes_the_answer_and_has_to_fit():
    release = released(mechanism="geometric")
    narrow = dirdp.estimate(release, prior=[1e4, 1e4, 1e4])
    np.testing.assert_allclose(narrow.tables["p"].share_means, 1 / 3, rtol=1e-2)
    assert "a prior of your own" in narrow.conditions[0]
    assert dirdp.analyse(release, 5, prior={"p": [1, 1, 1]})["posterior"]["p"].shape == (1, 5, 3)
    for wrong in ([1, 1], [1, 1, 0], [[1, 1, 1]], "a"):
        with pytest.raises(ArgumentError, match="prior"):
            dirdp.analyse(release, prior=wrong)
    with pytest.raises(ArgumentError, match="prior names 'q', and the release has the tables p"):
        dirdp.analyse(release, prior={"q": [1, 1, 1]})


def test_a_prior_of_rows_is_for_several_rows():
    release = rates()
    strong = dirdp.analyse(release, 200, row_prior=[1e6, 1e6], random_seed=1)
    totals = strong["latent_counts"]["rate"].sum("rate_outcome")
    # Half of 70 records, give or take those of a binomial law.
    assert abs(float(totals.mean(("chain", "draw"))[0]) - 35) < 3
    assert float(totals.std(("chain", "draw"))[0]) < 6
    assert "your prior of the division" in strong.attrs["conditional_on"]
    with pytest.raises(ArgumentError, match="row_prior"):
        dirdp.analyse(release, row_prior=[1, 1, 1])
    with pytest.raises(ArgumentError, match="'p' has one"):
        dirdp.analyse(released(), row_prior=[1.0])
    with pytest.raises(ArgumentError, match="draws"):
        dirdp.analyse(release, 0)
