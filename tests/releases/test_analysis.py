"""What is inferred from a release: by brute force over all tables, the tree of the draws, and estimates as text."""

import itertools
import re
import subprocess
import sys
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
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.graph import PLAIN
from pymc_dirdp.releases.opened import open_release
from pymc_dirdp.sampling.exact import urn_counts
from tests.oracles import drawn_p_value
from tests.planned import one_row, planned_sample

APPROX, PURE = dirdp.ApproxDP(epsilon=1.0, delta=1e-4), dirdp.PureDP(epsilon=1.0)
PRIOR, SHARES = np.array([1.0, 0.5, 2.0]), np.array([0.62, 0.3, 0.08])
KINDS = {
    "draws": {"released_draws": 3},
    "min_count": {"min_count": 1, "released_draws": 2},
    "geometric": {"mechanism": "geometric"},
}
PRIVATE = {"adjacency": "add-remove", "n_records": 12}


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
        # A flat prior of the number of records.
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
    # Rounding shows where the logarithms of the urn's factors are large.
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
    """The logarithm of the probability of each table and of what was released, given shares."""
    x = few.tables
    return few.logs + gammaln(x.sum(axis=1) + 1) + np.sum(x * np.log(p) - gammaln(x + 1), axis=1)


def test_the_likelihood_of_shares_and_its_gradient_are_those_of_all_tables(few):
    p, logs = pt.dvector("p"), with_shares(few, SHARES)
    logp = dirdp.release_logp(few.release, p, n_prior=few.n_prior)
    value, gradient = pytensor.function([p], [logp, pytensor.grad(logp, p)], mode=PLAIN)(SHARES)
    assert value == pytest.approx(logsumexp(logs), abs=1e-7 if few.steps else 1e-11)
    np.testing.assert_allclose(gradient * SHARES, np.exp(logs - logsumexp(logs)) @ few.tables, rtol=1e-9)


def test_counts_given_shares_have_the_distribution_of_all_tables(few):
    """Each of 200 draws has these shares; others are found out."""
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
    with pm.Model(coords={"department": list("AB"), "hair": ["black", "brown", "red"]}) as model:
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
        p = pm.Dirichlet("p", a=np.ones(3), dims="hair")
        pm.Multinomial("students", n=70, p=p, observed=[30, 30, 10])
    release = dirdp.sample(APPROX, model, contribution=1, mechanism=mechanism, random_seed=1)
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
