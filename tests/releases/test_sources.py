"""Several releases of the same records, read together, and lists that nobody may read together."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.special import gammaln, logsumexp

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.observed_table import pooled
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.releases.opened import open_release, text_of
from tests.oracles import drawn_p_value
from tests.planned import one_row, planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-4)
PRIOR, COUNTS = np.array([1.0, 0.5, 2.0]), [7, 4, 1]
PRIVATE = {"adjacency": "add-remove", "n_records": 12}


def released(counts=COUNTS, prior=PRIOR, labels=("black", "brown", "red"), dim="hair", **options):
    return planned_sample(APPROX, one_row(counts, prior, labels, dim=dim), **{"mechanism": "geometric"} | options)


def brute_force(releases, most, public):
    """All tables of so many records, or of up to so many, given all output; a flat prior of the number."""
    x = np.array([x for x in itertools.product(range(most + 1), repeat=3) if sum(x) <= most], dtype=float)
    x = x[x.sum(axis=1) == most] if public else x
    n, a = x.sum(axis=1), PRIOR.sum()
    logs = gammaln(n + 1) + gammaln(a) - gammaln(n + a) - (0 if public else np.log(most + 1))
    logs += np.sum(gammaln(x + PRIOR) - gammaln(x + 1) - gammaln(PRIOR), axis=1)
    for release in releases:
        one = open_release(release).tables["p"]
        logs += sum(one.mechanism.log_likelihood(y, x, steps=one.steps) for y in one.published)
    return x, np.exp(logs - logsumexp(logs)), logsumexp(logs)


@pytest.mark.parametrize("public", [True, False])
def test_likelihoods_of_releases_multiply(public):
    planned, n_prior = ({}, None) if public else (PRIVATE, 20)
    releases = [
        released(**planned, mechanism="dirichlet", released_draws=2),
        released(**planned),
        released(**planned, mechanism="gaussian", released_draws=3),
    ]
    analysis = dirdp.analyse(releases, 4000, chains=1, n_prior=n_prior, random_seed=1)
    tables, distribution, evidence = brute_force(releases, n_prior or 12, public)
    assert float(analysis["sample_stats"]["log_evidence"][0]) == pytest.approx(evidence, abs=1e-7)
    assert drawn_p_value(analysis["latent_counts"]["p"].values[0], tables, distribution) > 1e-6
    found = dirdp.estimate(releases, n_prior=n_prior).tables["p"]
    if public:
        np.testing.assert_allclose(found.count_means, distribution @ tables, rtol=1e-10)
    # What was published stands beside it, release by release.
    published = analysis["observed_data"]
    assert list(published.data_vars) == ["p_release_0", "p_release_1", "p_release_2"]
    assert published["p_release_0"].shape == (2, 3)
    np.testing.assert_array_equal(published["p_release_1"], releases[1]["mechanism/p"]["noisy_counts"])
    assert "3 releases of the same records" in analysis.attrs["conditional_on"]
    assert analysis.attrs["consistency"] == "one table"


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
def test_the_same_release_twice_is_refused(mechanism, tmp_path):
    release = released(mechanism=mechanism)
    release.to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf") as again:
        for pair in ((release, release), (release, again), (released(), release, release.copy(deep=True))):
            with pytest.raises(ArgumentError, match="twice"):
                dirdp.analyse(list(pair))


def test_noisy_counts_that_agree_by_chance_are_two_releases(edited):
    first = released()
    second = edited(released(), (("output",), json.loads(text_of(first))["output"]))
    sds = [dirdp.estimate(given).tables["p"].count_sds for given in (first, [first, second])]
    assert np.all(sds[1] < sds[0])


def test_all_guaranteed_least_counts_hold():
    releases = [released(mechanism="dirichlet", min_count=1), released()]
    for given in (releases, releases[::-1]):
        assert dirdp.analyse(given, 200, chains=1, random_seed=1)["latent_counts"]["p"].min() == 1


def two_tables():
    with one_row(COUNTS, PRIOR) as model:
        pm.Binomial("heads", n=12, p=pm.Beta("q", 1, 1), observed=5)
    return planned_sample(APPROX, model, contribution=1, mechanism="geometric")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda: released(labels=("black", "red", "brown")), "not have the same labels"),
        (lambda: released(dim="eyes"), "not have the same labels"),
        (lambda: released([7, 4, 2]), "not have the same number of records"),
        (lambda: released([7, 5], [1, 1]), "not have the same shape"),
        (lambda: released(prior=[1, 1, 1]), "different priors of 'p'.*prior="),
        (lambda: released(**PRIVATE), "different adjacencies"),
        (two_tables, "tables p and another p, q"),
        (lambda: 3, "Expected a release"),
    ],
)
def test_what_does_not_say_of_the_same_records_is_refused(other, words):
    given = [released(), other()]
    for verb, both in ((dirdp.analyse, given), (dirdp.estimate, tuple(given))):
        with pytest.raises((ArgumentError, ReleaseError), match=words):
            verb(both)


def test_a_prior_of_ones_own_takes_the_place_of_two_and_one_that_was_edited_spoils_all(edited):
    releases = [released(), released(prior=[1, 1, 1])]
    for prior in ([1, 2, 3], {"p": [1, 2, 3]}):
        assert "a prior of your own" in dirdp.estimate(releases, prior=prior).conditions[0]
    forged = edited(released(mechanism="dirichlet"), (("plan", "tables", 0, "parameters", "r"), 0.9))
    with pytest.raises(ReleaseError, match="does not follow"):
        dirdp.analyse([released(), forged])


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_a_seeded_release_marks_what_is_read_of_it_and_all_that_is_read_with_it():
    seeded = released(random_seed=1)
    for given, marked in ((seeded, True), ([released(), seeded], True), ([released(), released()], False)):
        assert ("reproducible" in dirdp.analyse(given, 5, chains=1).attrs) == marked


RECORDS = {"fur": list("aabbbaabab") * 4, "eggs": list("xyxyxxyyxz") * 4}
CATEGORIES = {"class": ["cat", "hen"], "fur": ["a", "b"], "eggs": ["x", "y", "z"]}


def animals(**options):
    model = dirdp.naive_bayes(RECORDS, ["cat", "cat", "hen", "hen", "hen"] * 8, categories=CATEGORIES)
    return planned_sample(APPROX, model, **{"mechanism": "geometric"} | options)


def test_classes_and_features_of_a_release_are_taken_together():
    release = animals()
    analysis = dirdp.analyse(release, 200, chains=1, random_seed=1)
    counts = analysis["latent_counts"]
    for name in ("p_fur", "p_eggs"):
        np.testing.assert_array_equal(counts[name].sum(counts[name].dims[-1]), counts["p_class"])
    assert analysis.attrs["consistency"].startswith("jointly")
    assert "as many records in a row as p_class has of that class" in analysis.attrs["conditional_on"]
    assert analysis["sample_stats"]["log_evidence"].shape == ()
    found = dirdp.estimate(release)
    assert found.tables["p_fur"].log_evidence == float(analysis["sample_stats"]["log_evidence"])
    assert not any("averages" in one for one in found.conditions)
    # Of two releases, too.
    both = dirdp.analyse([release, animals()], 50, chains=1, random_seed=1)
    np.testing.assert_array_equal(both["latent_counts"]["p_fur"].sum("fur"), both["latent_counts"]["p_class"])
    assert both.attrs["conditional_on"].count("2 releases of the same records") == 3
    alone = dirdp.analyse(release, 200, chains=1, same_records=False, random_seed=1)
    assert alone.attrs["consistency"].startswith("table by table")
    assert alone["sample_stats"]["log_evidence"].shape == (3,)
    assert not np.array_equal(alone["latent_counts"]["p_fur"].sum("fur"), alone["latent_counts"]["p_class"])


def test_a_private_number_is_that_of_all_tables():
    release = animals(adjacency="add-remove", n_records=40)
    for given in (100, {"p_class": 100}):
        analysis = dirdp.analyse(release, 50, chains=1, n_prior=given, random_seed=1)
        assert analysis.attrs["conditional_on"].count("0 to 100 records") == 3
        classes = analysis["latent_counts"]["p_class"]
        assert classes.sum("class").max() <= 100
        np.testing.assert_array_equal(analysis["latent_counts"]["p_fur"].sum("fur"), classes)
    with pytest.raises(ArgumentError, match=r"n_prior applies to that table only. Leave 'p_fur' out"):
        dirdp.analyse(release, n_prior={"p_class": 100, "p_fur": 90})
    with pytest.raises(ArgumentError, match="row_prior out, or pass same_records=False"):
        dirdp.analyse(release, n_prior=100, row_prior={"p_fur": [1, 1]})
    apart = dirdp.analyse(release, 10, chains=1, n_prior=100, row_prior={"p_fur": [1, 1]}, same_records=False)
    assert "your prior of the division" in apart.attrs["conditional_on"]
    assert dirdp.analyse(release, 10, chains=1, n_prior={"p_class": 100, "p_fur": 90}, same_records=False)
    # Without a prior of one's own the numbers are those that the noisy classes leave open.
    said = release["mechanism/p_class"].attrs
    analysis = dirdp.analyse(release, 20, chains=1, random_seed=1)
    assert f"{said['least_records']} to {said['most_records']} records" in analysis.attrs["conditional_on"]
    with pytest.raises(ArgumentError, match="is private"):
        dirdp.analyse(animals(adjacency="add-remove", n_records=40, mechanism="dirichlet"))


@pytest.mark.parametrize(("people", "consistency"), [({"disjoint": [["p"], ["q"]]}, "table by"), ({}, "jointly")])
def test_tables_of_different_people_are_not_taken_together(people, consistency):
    """Nothing in the other release says that the rows of q are not the cells of p. Of a chain, no table is."""
    with pm.Model(coords={"class": ["cat", "hen"], "fur": ["a", "b"]}) as model:
        p = pm.Dirichlet("p", a=[1, 1], dims="class")
        pm.Multinomial("x", n=40, p=p, observed=[20, 20])
        q = pm.Dirichlet("q", a=np.ones((2, 2)), dims=("class", "fur"))
        pm.Multinomial("y", n=[15, 25], p=q, observed=[[10, 5], [5, 20]])
    release = planned_sample(APPROX, model, mechanism="geometric", **people or {"contribution": 1})
    assert dirdp.analyse(release, 5, chains=1).attrs["consistency"].startswith(consistency)
    chain = {"class": [], "fur": ["class"], "eggs": ["fur"]}
    model = dirdp.bayesian_network(RECORDS | {"class": ["cat", "hen"] * 20}, chain, categories=CATEGORIES)
    release = dirdp.sample(APPROX, model, mechanism="geometric")
    assert dirdp.analyse(release, 5, chains=1).attrs["consistency"].startswith("table by table")


def test_outputs_that_tell_of_other_totals_of_rows_are_not_pooled():
    survey = dirdp.mechanisms.ZeroSumGeometricMechanism(np.ones((2, 3)), 2.0, contribution=Contribution(1, ("each",)))
    tables = [[[3, 1, 2], [2, 2, 2]], [[3, 2, 1], [1, 2, 3]], [[3, 1, 1], [3, 2, 2]]]
    first, same, other = (
        dirdp.mechanisms.MechanismOutput(survey, x, prior=np.ones((2, 3)), n_records=12) for x in tables
    )
    assert dirdp.estimate([first, same], progressbar=False)
    with pytest.raises(ArgumentError, match="different numbers of records in its rows"):
        dirdp.estimate([first, other], progressbar=False)


def test_private_numbers_of_records_are_those_that_all_releases_allow():
    mechanism = dirdp.mechanisms.GeometricMechanism(PRIOR, 1.0, adjacency="add-remove")
    output = dirdp.mechanisms.MechanismOutput(mechanism, [3, 2, 1], prior=PRIOR)
    cases = [
        ((range(5, 80), range(20, 50), None), range(20, 50)),
        ((range(5, 50), range(20, 80)), range(20, 50)),
        ((range(5, 20), range(20, 80)), None),
        ((None, None), None),
    ]
    for ranges, common in cases:
        tables = [replace(output.observed_table, possible_records=one) for one in ranges]
        assert pooled(tables, own_prior=True).possible_records == common
