"""Draws given a release: their distribution by brute force, the tree, and truths among them over many data sets."""

import itertools
import re
import subprocess
import sys
import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.special import eval_legendre, gammaln, logsumexp
from scipy.stats import chi2

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.releases.opened import open_release
from pymc_dirdp.sampling.exact import urn_counts
from tests.planned import planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-4)
PRIOR, COUNTS = np.array([1.0, 0.5, 2.0]), [7, 4, 1]
KINDS = {
    "draws": {"released_draws": 3},
    "min_count": {"min_count": 1, "released_draws": 2},
    "geometric": {"mechanism": "geometric"},
}


def released(counts=COUNTS, prior=PRIOR, **options):
    with pm.Model(coords={"hair": ["black", "brown", "red"][: len(counts)]}):
        p = pm.Dirichlet("p", a=prior, dims="hair")
        pm.Multinomial("students", n=int(np.sum(counts)), p=p, observed=counts)
        return planned_sample(APPROX, **options)


def log_likelihood(release, x):
    """Of whole tables x, from the numbers of the file alone."""
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


def brute_force(release, least=0):
    """All tables of twelve records, their probabilities given the release, and the evidence."""
    x = np.array([x for x in itertools.product(range(13), repeat=3) if sum(x) == 12 and min(x) >= least], dtype=float)
    logs = gammaln(13) + gammaln(PRIOR.sum()) - gammaln(12 + PRIOR.sum()) + log_likelihood(release, x)
    logs += np.sum(gammaln(x + PRIOR) - gammaln(x + 1) - gammaln(PRIOR), axis=1)
    return x, np.exp(logs - logsumexp(logs)), logsumexp(logs)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_and_estimates_are_those_of_all_tables(kind):
    release = released(**KINDS[kind])
    tables, distribution, evidence = brute_force(release, least=KINDS[kind].get("min_count", 0))
    analysis, estimates = dirdp.analyse(release, 8000, chains=1, random_seed=1), dirdp.estimate(release).tables["p"]
    means = distribution @ tables
    np.testing.assert_allclose(estimates.count_means, means, rtol=1e-10)
    np.testing.assert_allclose(estimates.count_sds**2, distribution @ tables**2 - means**2, rtol=1e-8)
    shares = (tables + PRIOR) / (12 + PRIOR.sum())
    np.testing.assert_allclose(estimates.share_means, distribution @ shares, rtol=1e-10)
    # Rounding shows where the logarithms of the urn's factors are large.
    slack = 1e-7 if "steps" in release["mechanism/p"].attrs else 1e-9
    assert estimates.log_evidence == pytest.approx(evidence, abs=slack)
    assert float(analysis["sample_stats"]["log_evidence"][0]) == estimates.log_evidence
    counts = analysis["latent_counts"]["p"].values[0]
    place = {tuple(map(int, table)): i for i, table in enumerate(tables)}
    seen = np.bincount([place[tuple(row)] for row in counts.tolist()], minlength=len(tables))
    rare = distribution * len(counts) < 10
    observed, expected = (np.append(values[~rare], values[rare].sum()) for values in (seen, distribution * len(counts)))
    likely = expected > 0
    assert chi2.sf(np.sum((observed - expected)[likely] ** 2 / expected[likely]), likely.sum() - 1) > 1e-6
    drawn = analysis["posterior"]["p"].values[0]
    assert np.all(np.abs(drawn.mean(axis=0) - distribution @ shares) < 5 * estimates.share_sds / np.sqrt(len(drawn)))


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
def test_the_tree_has_the_names_of_the_model_and_says_what_it_rests_on(mechanism):
    with pm.Model(coords={"department": list("AB"), "hair": ["black", "brown", "red"]}):
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
        p = pm.Dirichlet("p", a=np.ones(3), dims="hair")
        pm.Multinomial("students", n=70, p=p, observed=[30, 30, 10])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dirdp.errors.SeededReleaseWarning)
            release = dirdp.sample(APPROX, contribution=1, mechanism=mechanism, random_seed=1)
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
    published = analysis["observed_data"]
    for name in ("p", "rate"):
        noisy = mechanism == "geometric"
        there = release[f"mechanism/{name}"]["noisy_counts"] if noisy else release["posterior"][name][0, 0]
        np.testing.assert_array_equal(published[name].values, there.values)
    assert analysis["sample_stats"]["acceptance"].dims == ("table",)
    assert analysis.attrs["reproducible"] == "not private"
    assert "70 records, which is public" in analysis.attrs["conditional_on"]
    assert analysis.attrs["consistency"].startswith("table by table")


def test_chains_are_parts_of_the_same_independent_draws():
    release = released()
    one, four = dirdp.analyse(release, 400, chains=1, random_seed=1), dirdp.analyse(release, 100, random_seed=1)
    for group in ("posterior", "latent_counts"):
        assert four[group]["p"].shape == (4, 100, *one[group]["p"].shape[2:])
        np.testing.assert_array_equal(four[group]["p"].values.reshape(one[group]["p"].shape), one[group]["p"].values)
    summary = az.summary(dirdp.analyse(release, random_seed=1))
    assert (summary["r_hat"].astype(float) < 1.02).all()
    with pytest.raises(dirdp.errors.ArgumentError, match="chains"):
        dirdp.analyse(release, chains=0)


SMALL_DELTA = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def one_row(**options):
    with pm.Model():
        p = pm.Dirichlet("p", a=[1, 2, 3])
        pm.Multinomial("students", n=60, p=p, observed=[30, 20, 10])
        return planned_sample(SMALL_DELTA, **options)


def test_the_table_is_shown_and_given():
    found = dirdp.estimate(one_row(), prob=(0.5, 0.9))
    frame = found.frame()
    assert list(frame.index) == ["p[0]", "p[1]", "p[2]"]
    assert frame["share"].sum() == pytest.approx(1)
    assert frame["count"].sum() == pytest.approx(60)
    assert (frame["share_low_0.9"] < frame["share_low_0.5"]).all()
    assert (frame["share_high_0.5"] < frame["share_high_0.9"]).all()
    for text in (str(found), found._repr_html_()):
        assert "Typical error" in text
        assert "90 %" in text
        assert "60 records, which is public" in text
        assert "averages" not in text


def test_a_number_that_next_to_nothing_is_known_of_is_summed_over():
    """A draw says next to nothing of a private number of records."""
    release = one_row(adjacency="add-remove", n_records=60)
    found, analysis = (
        dirdp.estimate(release, n_prior=5000),
        dirdp.analyse(release, 20_000, chains=1, n_prior=5000, random_seed=2),
    )
    drawn, shares, frame = analysis["latent_counts"]["p"].values[0], analysis["posterior"]["p"].values[0], found.frame()
    assert "averages" not in str(found)
    assert np.all(np.abs(frame["count"] - drawn.mean(axis=0)) < 5 * drawn.std(axis=0) / np.sqrt(20_000))
    np.testing.assert_allclose(frame["share_high_0.8"], np.quantile(shares, 0.9, axis=0), atol=0.01)


def test_inferences_need_no_pymc(tmp_path):
    one_row(mechanism="geometric").to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    code = (
        "import sys, xarray, pymc_dirdp\n"
        f"with xarray.open_datatree({str(tmp_path / 'release.nc')!r}, engine='h5netcdf') as release:\n"
        "    pymc_dirdp.analyse(release, 5, chains=1), pymc_dirdp.estimate(release)\n"
        "assert not {'pymc', 'pytensor', 'arviz', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_probabilities_have_to_be_some():
    for wrong in ([], [0.5, 1.0], [0]):
        with pytest.raises(ArgumentError, match="prob"):
            dirdp.estimate(one_row(), prob=wrong)


def test_a_printed_estimate_lies_in_its_printed_interval():
    """Counts above 10,000 lost their digits once: 1.001e+05 ± 1.4, 100054 to 100060."""
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("x", n=1_000_000, p=p, observed=[100_057, 111_112, 788_831])
        release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric")
    found = dirdp.estimate(release)
    pages = str(found), re.sub("<.*?>", " ", found._repr_html_().replace("&nbsp;", " "))
    for page in pages:
        numbers = re.findall(r"([.\d]+) ± ([.\d]+)\s+([.\d]+) to ([.\d]+)", page)
        assert len(numbers) == 6
        for number, _, low, high in numbers:
            assert float(low) < float(number) < float(high)


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_tables_with_joint_noises_of_their_own_are_drawn_independently():
    """The radii of two noises were found by the same uniform numbers: sizes of noise had a correlation of .85."""
    coords = {"a": list("uvw"), "b": list("xyz"), "answer": ["no", "yes"]}
    answers = np.arange(90).reshape(30, 3) * 7 % 5 % 2
    with pm.Model(coords=coords):
        p = pm.Dirichlet("p", np.ones((3, 2)), dims=("a", "answer"))
        pm.Categorical("x", p=p, observed=answers[:20])
        q = pm.Dirichlet("q", np.ones((3, 2)), dims=("b", "answer"))
        pm.Categorical("y", p=q, observed=1 - answers)
        options = {"contribution": 1, "disjoint": [["p"], ["q"]]}
        release = planned_sample(dirdp.PureDP(epsilon=1.0), mechanism="joint", random_seed=1, **options)
    assert len(open_release(release).tables) == 2
    assert all(seen.mechanism.shared_noise is None for seen in open_release(release).tables.values())
    counts = dirdp.analyse(release, 2000, chains=1, random_seed=1)["latent_counts"]
    published = {name: release[f"mechanism/{name}"]["noisy_counts"].values for name in "pq"}
    sizes = [np.abs(counts[name].values[0] - published[name]).sum(axis=(1, 2)) for name in "pq"]
    assert abs(np.corrcoef(sizes)[0, 1]) < 5 / np.sqrt(2000)
