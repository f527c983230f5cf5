"""What is inferred from releases, alone and together: by brute force over all tables, as a tree, and as text."""

import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy.special import eval_legendre, gammaln, logsumexp

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.observed_table import pooled
from pymc_dirdp.models.graph import PLAIN
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.releases.opened import open_release, text_of
from pymc_dirdp.sampling.exact import urn_counts
from tests.oracles import drawn_p_value
from tests.planned import one_row, planned_sample
from tests.releases.kinds import departments

APPROX, PURE = dirdp.ApproxDP(epsilon=1.0, delta=1e-4), dirdp.PureDP(epsilon=1.0)
PRIOR, SHARES = np.array([1.0, 0.5, 2.0]), np.array([0.62, 0.3, 0.08])
KINDS = {
    "draws": {"released_draws": 3},
    "min_count": {"min_count": 1, "released_draws": 2},
    "geometric": {"mechanism": "geometric"},
}
PRIVATE = {"adjacency": "add-remove", "n_records": 12}
RECORDS = {"fur": list("aabbbaabab") * 4, "eggs": list("xyxyxxyyxz") * 4}
CATEGORIES = {"class": ["cat", "hen"], "fur": ["a", "b"], "eggs": ["x", "y", "z"]}


def log_likelihood(release, x):
    """Of whole tables x of a public number of records, from the numbers of the file alone."""
    group, y = release["mechanism/p"], release["posterior"]["p"].values[0]
    if "steps" in group.attrs:
        u = float(group["r"]) * x + group["alpha"].values
        logs = np.zeros(len(x))
        for c in urn_counts(y, group.attrs["steps"]):
            logs += np.sum(gammaln(u + c) - gammaln(u) - gammaln(c + 1), axis=1) + gammaln(c.sum() + 1)
            logs += gammaln(u.sum(axis=1)) - gammaln(u.sum(axis=1) + c.sum())
        return logs
    noise, size = group["noisy_counts"].values - x, float(group["noise_parameter"])
    cells = noise.shape[-1]
    logs = -np.abs(noise) / size - np.log(eval_legendre(cells - 1, 1 / np.tanh(1 / size))) / cells
    return logs.sum(axis=1)


@pytest.fixture(scope="module", params=[(kind, private) for kind in KINDS for private in (False, True)], ids=str)
def few(request):
    """A release of twelve records, all tables that it may stand for, and the likelihood of each."""
    kind, private = request.param
    options = KINDS[kind] | (PRIVATE if private else {})
    release, most = planned_sample(APPROX, one_row([7, 4, 1], PRIOR), **options), 14 if private else 12
    least = options.get("min_count", 0)
    x = np.array([x for x in itertools.product(range(least, most + 1), repeat=3) if sum(x) <= most], dtype=float)
    one = open_release(release).tables["p"]
    if private:
        logs = sum(one.mechanism.log_likelihood(y, x, steps=one.steps) for y in one.published) - np.log(most + 1)
    else:
        x = x[x.sum(axis=1) == most]
        logs = log_likelihood(release, x)
    return SimpleNamespace(release=release, tables=x, logs=logs, n_prior=most if private else None, steps=one.steps)


def test_draws_and_estimates_are_those_of_all_tables(few):
    x, n, a = few.tables, few.tables.sum(axis=1), PRIOR.sum()
    logs = few.logs + gammaln(n + 1) + gammaln(a) - gammaln(n + a)
    logs += np.sum(gammaln(x + PRIOR) - gammaln(x + 1) - gammaln(PRIOR), axis=1)
    evidence, distribution = logsumexp(logs), np.exp(logs - logsumexp(logs))
    analysis = dirdp.analyse(few.release, 4000, chains=1, n_prior=few.n_prior, random_seed=1)
    estimates = dirdp.estimate(few.release, n_prior=few.n_prior).tables["p"]
    assert estimates.log_evidence == pytest.approx(evidence, abs=1e-7 if few.steps else 1e-9)
    assert float(analysis["sample_stats"]["log_evidence"][0]) == estimates.log_evidence
    means, shares = distribution @ x, (x + PRIOR) / (n + a)[:, None]
    np.testing.assert_allclose(estimates.count_means, means, rtol=1e-8)
    np.testing.assert_allclose(estimates.count_sds**2, distribution @ x**2 - means**2, rtol=1e-6)
    np.testing.assert_allclose(estimates.share_means, distribution @ shares, rtol=1e-8)
    assert drawn_p_value(analysis["latent_counts"]["p"].values[0], x, distribution) > 1e-6
    drawn = analysis["posterior"]["p"].values[0]
    assert np.all(np.abs(drawn.mean(axis=0) - distribution @ shares) < 5 * estimates.share_sds / np.sqrt(len(drawn)))


def with_shares(few, p):
    x = few.tables
    return few.logs + gammaln(x.sum(axis=1) + 1) + np.sum(x * np.log(p) - gammaln(x + 1), axis=1)


def test_the_likelihood_of_shares_and_its_gradient_are_those_of_all_tables(few):
    p, logs = pt.dvector("p"), with_shares(few, SHARES)
    logp = dirdp.release_logp(few.release, p, n_prior=few.n_prior)
    value, gradient = pytensor.function([p], [logp, pytensor.grad(logp, p)], mode=PLAIN)(SHARES)
    assert value == pytest.approx(logsumexp(logs), abs=1e-7 if few.steps else 1e-11)
    np.testing.assert_allclose(gradient * SHARES, np.exp(logs - logsumexp(logs)) @ few.tables, rtol=1e-9)


def test_counts_given_shares_have_the_distribution_of_all_tables(few):
    shares = xr.Dataset({"p": (("chain", "draw", "hair"), np.broadcast_to(SHARES, (2, 100, 3)))})
    idata = xr.DataTree.from_dict({"/posterior": shares})
    counts = dirdp.releases.latent_counts(idata, few.release, n_prior=few.n_prior, random_seed=1)["p"]
    assert counts.dims == ("chain", "draw", "hair")
    assert counts.dtype == np.int64
    assert counts["hair"].values.tolist() == ["black", "brown", "red"]
    for p, found in ((SHARES, True), (SHARES[::-1], False)):
        probabilities = np.exp(with_shares(few, p) - logsumexp(with_shares(few, p)))
        assert (drawn_p_value(counts.values.reshape(-1, 3), few.tables, probabilities) > 1e-6) == found


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_the_tree_has_the_names_of_the_model_and_says_what_it_rests_on(mechanism):
    release = dirdp.sample(APPROX, departments(), contribution=1, mechanism=mechanism, random_seed=1)
    before = release.copy(deep=True)
    analysis = dirdp.analyse(release, 50, chains=1, random_seed=3)
    assert release.identical(before)
    assert analysis.identical(dirdp.analyse(release, 50, chains=1, random_seed=3))
    assert analysis["posterior"]["rate"].dims == ("chain", "draw", "department")
    assert analysis["posterior"]["p"].sizes == {"chain": 1, "draw": 50, "hair": 3}
    assert analysis["posterior"]["hair"].values.tolist() == ["black", "brown", "red"]
    counts = analysis["latent_counts"]
    assert counts["rate"].dims == ("chain", "draw", "department", "rate_outcome")
    assert set(np.unique(counts["rate"].sum(("department", "rate_outcome")))) == {70}
    assert set(np.unique(counts["p"].sum("hair"))) == {70}
    for name in ("p", "rate"):
        noisy = mechanism == "geometric"
        there = release[f"mechanism/{name}"]["noisy_counts"] if noisy else release["posterior"][name][0, 0]
        np.testing.assert_array_equal(analysis["observed_data"][name].values, there.values)
    assert analysis["sample_stats"]["acceptance"].dims == ("table",)
    assert analysis.attrs["reproducible"] == "not private"
    assert "70 records, which is public" in analysis.attrs["conditional_on"]
    assert analysis.attrs["consistency"].startswith("table by table")


def test_chains_are_parts_of_the_same_independent_draws():
    release = planned_sample(PURE, one_row(), mechanism="geometric")
    one, four = dirdp.analyse(release, 400, chains=1, random_seed=1), dirdp.analyse(release, 100, random_seed=1)
    for group in ("posterior", "latent_counts"):
        assert four[group]["p"].shape == (4, 100, 3)
        np.testing.assert_array_equal(four[group]["p"].values.reshape(one[group]["p"].shape), one[group]["p"].values)
    assert (az.summary(four)["r_hat"].astype(float) < 1.05).all()
    for wrong in ({"chains": 0}, {"draws": 0}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            dirdp.analyse(release, **wrong)


def test_the_table_is_shown_and_given():
    release = planned_sample(APPROX, one_row())
    assert dirdp.estimate(release).tables["p"].prob.tolist() == [0.5, 0.8, 0.95]
    found = dirdp.estimate(release, prob=(0.5, 0.9))
    frame = found.frame()
    assert list(frame.index) == ["p[black]", "p[brown]", "p[red]"]
    assert frame["share"].sum() == pytest.approx(1)
    assert frame["count"].sum() == pytest.approx(60)
    assert (frame["share_low_0.9"] < frame["share_low_0.5"]).all()
    assert (frame["share_high_0.5"] < frame["share_high_0.9"]).all()
    for text in (str(found), found._repr_html_()):
        assert all(part in text for part in ("Typical error", "90 %", "60 records, which is public"))
        assert "averages" not in text
    for wrong in ([], [0.5, 1.0], [0]):
        with pytest.raises(ArgumentError, match="prob"):
            dirdp.estimate(release, prob=wrong)


def test_inferences_need_no_pymc(tmp_path):
    dirdp.save(planned_sample(PURE, one_row(), mechanism="geometric"), tmp_path / "release.json")
    code = (
        "import sys, pymc_dirdp\n"
        f"release = pymc_dirdp.load({str(tmp_path / 'release.json')!r})\n"
        "pymc_dirdp.analyse(release, 5, chains=1), pymc_dirdp.estimate(release)\n"
        "assert not {'pymc', 'pytensor', 'arviz', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_printed_estimate_lies_in_its_printed_interval():
    """Counts above 10,000 lost their digits once: 1.001e+05 ± 1.4, 100054 to 100060."""
    found = dirdp.estimate(planned_sample(PURE, one_row([100_057, 111_112, 788_831]), mechanism="geometric"))
    for page in (str(found), re.sub("<.*?>", " ", found._repr_html_().replace("&nbsp;", " "))):
        numbers = re.findall(r"([.\d]+) ± ([.\d]+)\s+([.\d]+) to ([.\d]+)", page)
        assert len(numbers) == 6
        for number, _, low, high in numbers:
            assert float(low) < float(number) < float(high)


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_tables_with_joint_noises_of_their_own_are_drawn_independently():
    """The radii of two noises were found by the same uniform numbers: sizes of noise had a correlation of .85."""
    answers = np.arange(90).reshape(30, 3) * 7 % 5 % 2
    with pm.Model(coords={"a": list("uvw"), "b": list("xyz"), "answer": ["no", "yes"]}) as model:
        for name, dim, observed in (("p", "a", answers[:20]), ("q", "b", 1 - answers)):
            p = pm.Dirichlet(name, np.ones((3, 2)), dims=(dim, "answer"))
            pm.Categorical(f"{name}_seen", p=p, observed=observed)
    options = {"contribution": 1, "disjoint": [["p"], ["q"]], "mechanism": "joint", "random_seed": 1}
    release = planned_sample(PURE, model, **options)
    assert [seen.mechanism.shared_noise for seen in open_release(release).tables.values()] == [None, None]
    counts = dirdp.analyse(release, 1000, chains=1, random_seed=1)["latent_counts"]
    published = {name: release[f"mechanism/{name}"]["noisy_counts"].values for name in "pq"}
    sizes = [np.abs(counts[name].values[0] - published[name]).sum(axis=(1, 2)) for name in "pq"]
    assert abs(np.corrcoef(sizes)[0, 1]) < 5 / np.sqrt(1000)


def released(counts=(7, 4, 1), prior=PRIOR, labels=("black", "brown", "red"), dim="hair", **options):
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
    with one_row([7, 4, 1], PRIOR) as model:
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
    said = release["mechanism/p_class"].attrs
    analysis = dirdp.analyse(release, 20, chains=1, random_seed=1)
    assert f"{said['least_records']} to {said['most_records']} records" in analysis.attrs["conditional_on"]
    with pytest.raises(ArgumentError, match="is private"):
        dirdp.analyse(animals(adjacency="add-remove", n_records=40, mechanism="dirichlet"))


@pytest.mark.parametrize(("people", "consistency"), [({"disjoint": [["p"], ["q"]]}, "table by"), ({}, "jointly")])
def test_tables_of_different_people_are_not_taken_together(people, consistency):
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
