"""Draws of a model of a release, beside it, in predictions, scores and synthetic records."""

import itertools

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.releases.noisy_marginals import network_of

CATEGORIES = {"a": ["x", "y", "z"], "b": ["no", "yes"], "one": ["only"]}
STRUCTURE = {"a": [], "b": ["a"], "one": []}
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    columns = {"a": rng.integers(0, 3, n), "b": rng.integers(0, 2, n), "one": np.zeros(n, dtype=int)}
    return {name: np.asarray(CATEGORIES[name])[code] for name, code in columns.items()}


@pytest.fixture(scope="module", params=["marginals", "geometric"])
def release(request):
    model = dirdp.bayesian_network(records(300), STRUCTURE, categories=CATEGORIES)
    return dirdp.sample(TARGET, model, mechanism=request.param)


@pytest.fixture(scope="module")
def posterior():
    """Draws such as a sampler returns: other variables beside the shares, and axes in another order."""
    rng = np.random.default_rng(1)
    shape = {"chain": 2, "draw": 30}
    labels = {name: CATEGORIES[name] for name in CATEGORIES}
    variables = {
        "p_a": (("chain", "draw", "a"), rng.dirichlet([0.5] * 3, (2, 30))),
        "p_b": (("chain", "draw", "a", "b"), rng.dirichlet([0.5] * 2, (2, 30, 3))),
        "p_one": (("chain", "draw", "one"), np.ones((2, 30, 1))),
        "p_a_effects": (("chain", "draw", "p_a_effects_dim_0"), rng.normal(size=(2, 30, 3))),
    }
    coords = labels | {name: range(size) for name, size in shape.items()}
    dataset = xr.Dataset(variables, coords)
    dataset["p_b"] = dataset["p_b"].transpose("b", "draw", "a", "chain")
    return xr.DataTree.from_dict({"/posterior": dataset})


def joint(posterior):
    """The probability of each (a, b) in each draw."""
    dataset = posterior["posterior"].to_dataset()
    product = dataset["p_a"] * dataset["p_b"]
    return product.transpose("chain", "draw", "a", "b").values.reshape(-1, 3, 2)


def test_a_record_has_the_mean_of_its_probabilities_over_the_draws(release, posterior):
    data = records(40, seed=2)
    a, b = (np.array([CATEGORIES[name].index(value) for value in data[name]]) for name in "ab")
    found = dirdp.log_likelihood(release, data, draws=posterior)
    np.testing.assert_allclose(found, np.log(joint(posterior)[:, a, b].mean(axis=0)), rtol=1e-12)
    # Means of shares, table by table, are something else.
    means = joint(posterior).sum(2).mean(0)[a] * posterior["posterior/p_b"].mean(("chain", "draw")).values.T[a, b]
    assert np.max(np.abs(found - np.log(means))) > 0.01
    proba = np.exp(dirdp.predict_log_proba(release, {"b": data["b"]}, target="a", draws=posterior))
    both = joint(posterior).mean(axis=0)
    np.testing.assert_allclose(proba, (both / both.sum(axis=0)).T[b], rtol=1e-12)


def test_each_set_of_records_has_the_shares_of_a_draw_of_its_own(release, posterior):
    frame = dirdp.synthetic(release, 4000, n_sets=3, draws=posterior, random_seed=0)
    assert frame.shape == (12_000, 3)
    for place, (_, part) in zip((0, 20, 40), frame.groupby(level="set"), strict=True):
        cells = np.array([[np.mean((part["a"] == x) & (part["b"] == y)) for y in ["no", "yes"]] for x in "xyz"])
        np.testing.assert_allclose(cells, joint(posterior)[place], atol=0.05)
    assert len(dirdp.synthetic(release, draws=posterior)) == 300
    with pytest.raises(dirdp.errors.ArgumentError, match="60 draws"):
        dirdp.synthetic(release, 10, n_sets=61, draws=posterior)


def test_records_of_draws_are_independent():
    """Sets of one and the same shares vary as independent records do, which those of an estimate do not."""
    kinds = {"a": ["x", "y"]}
    model = dirdp.bayesian_network({"a": ["x"] * 40 + ["y"] * 60}, {"a": []}, categories=kinds)
    release = dirdp.sample(TARGET, model, mechanism="geometric")
    shares = xr.DataArray(np.full((1, 400, 2), [0.4, 0.6]), kinds, ["chain", "draw", "a"], "p_a")
    draws = xr.DataTree.from_dict({"/posterior": shares.to_dataset()})
    frame = dirdp.synthetic(release, 100, n_sets=400, draws=draws, random_seed=0)
    counts = frame["a"].eq("x").groupby(level="set").sum()
    # The variance of 400 binomial counts, to five standard errors of it.
    assert counts.var() == pytest.approx(24, rel=5 * np.sqrt(2 / 400))


def test_rates_of_success():
    with pm.Model(coords={"group": ["g", "h"]}):
        rate = pm.Beta("rate", 1, 1, dims="group")
        pm.Binomial("wins", n=[300, 400], p=rate, observed=[100, 300], dims="group")
        release = dirdp.sample(TARGET, mechanism="marginals")
    shares = xr.DataArray([[[0.2, 0.6], [0.4, 0.8]]], {"group": ["g", "h"]}, ["chain", "draw", "group"], "rate")
    for precision, rtol in ((np.float64, 1e-12), (np.float32, 1e-6)):
        draws = xr.DataTree.from_dict({"/posterior": shares.astype(precision).to_dataset()})
        proba = np.exp(dirdp.predict_log_proba(release, {"group": ["h", "g"]}, target="rate_outcome", draws=draws))
        np.testing.assert_allclose(proba, [[0.7, 0.3], [0.3, 0.7]], rtol=rtol)
    # The only share of a row of two outcomes, so that no sum shows that it is none.
    for share in (1.5, 1 + 1e-6, -0.1):
        wrong = xr.DataTree.from_dict({"/posterior": shares.where(shares != 0.8, share).to_dataset()})
        with pytest.raises(dirdp.errors.ArgumentError, match="draws of 'rate' are no shares"):
            dirdp.predict_log_proba(release, {"group": ["h", "g"]}, target="rate_outcome", draws=wrong)


def test_draws_of_something_else_are_refused(release, posterior):
    data, dataset = records(5), posterior["posterior"].to_dataset()

    def given(changed):
        return xr.DataTree.from_dict({"/posterior": changed})

    wrong = {
        "hold 'p_b'": given(dataset.drop_vars("p_b")),
        "the dims chain, draw, a, b": given(dataset.isel(b=0)),
        "other labels of 'a'": given(dataset.assign_coords(a=["z", "y", "x"])),
        "group posterior": xr.DataTree.from_dict({"/prior": dataset}),
        "in the shape": given(dataset.isel(draw=[])),
    }
    for message, draws in wrong.items():
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            dirdp.log_likelihood(release, data, draws=draws)
    for factor in (0.5, np.nan):
        with pytest.raises(dirdp.errors.ArgumentError, match=r"draws of 'p_a' are no shares.*add up to 1"):
            dirdp.log_likelihood(release, data, draws=given(dataset.assign(p_a=factor * dataset["p_a"])))
    with pytest.raises(dirdp.errors.ArgumentError, match=r"isel\(chain=\[0\]\)"):
        dirdp.log_likelihood(release, data, draws=given(dataset.isel(chain=0)))
    one_chain = dirdp.log_likelihood(release, data, draws=given(dataset.isel(chain=[0])))
    assert np.isfinite(one_chain).all()
    with pytest.raises(dirdp.errors.ArgumentError, match="Pass the release itself"):
        dirdp.log_likelihood(posterior, data, draws=posterior)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"what pm\.sample returns"):
        dirdp.synthetic(release, draws=10)


def test_draws_in_single_precision(release, posterior):
    """Some samplers return them. Their shares add up to 1 as nearly as that can be."""
    dataset = posterior["posterior"].to_dataset()
    single = xr.DataTree.from_dict({"/posterior": dataset.astype(np.float32)})
    off = np.abs(single["posterior"]["p_a"].astype(float).sum("a") - 1)
    assert off.max() > 1e-8
    data = records(20, seed=2)
    expected = dirdp.log_likelihood(release, data, draws=posterior)
    np.testing.assert_allclose(dirdp.log_likelihood(release, data, draws=single), expected, rtol=1e-5)
    assert dirdp.synthetic(release, 10, draws=single).shape == (10, 3)
    # A share that is missing is no rounding.
    wrong = dataset.astype(np.float32).assign(p_a=(0.999 * dataset["p_a"]).astype(np.float32))
    with pytest.raises(dirdp.errors.ArgumentError, match="no shares"):
        dirdp.log_likelihood(release, data, draws=xr.DataTree.from_dict({"/posterior": wrong}))


def posterior_mean(noisy, variance, n):
    """The mean share of the first of two values of one variable, by sums over a grid: shrinkage, sample and noise."""
    # The logit is a half-normal scale times a normal effect, times the contrast of two values, twice.
    scale, effect = np.meshgrid(np.linspace(0.005, 10, 700), np.linspace(-7, 7, 701))
    p = 1 / (1 + np.exp(-np.sqrt(2.0) * scale * effect))
    log_prior = -0.5 * (scale / 2.0) ** 2 - 0.5 * effect**2
    # The two counts add up to n, so the sample has one direction, and what is seen along it is their difference.
    difference, spread = noisy[0] - noisy[1], 4 * n * p * (1 - p) + 2 * variance
    log_seen = -0.5 * (difference - n * (2 * p - 1)) ** 2 / spread - 0.5 * np.log(spread)
    weights = np.exp(log_prior + log_seen - (log_prior + log_seen).max())
    return np.sum(weights * p) / weights.sum()


@pytest.mark.thorough
def test_a_sampled_posterior_of_marginals_from_the_model_to_the_records():
    """One variable, whose posterior is also summed on a grid; the model has variables of the user's own."""
    kinds = {"a": ["x", "y"], "one": ["only"]}
    data = {"a": ["x"] * 30 + ["y"] * 170, "one": ["only"] * 200}
    model = dirdp.bayesian_network(data, {"a": [], "one": []}, categories=kinds)
    gaussian = dirdp.mechanisms.Marginals(noise="gaussian")
    release = dirdp.sample(dirdp.ApproxDP(epsilon=0.2, delta=1e-6), model, mechanism=gaussian)
    with dirdp.releases.analyst_model(release) as posterior_model:
        pm.Deterministic("odds", posterior_model["p_a"][0] / posterior_model["p_a"][1])
        pm.Normal("extra", dims="a")
        idata = pm.sample(
            800, tune=600, chains=2, cores=1, progressbar=False, random_seed=1, compute_convergence_checks=False
        )
    (measured,) = network_of(release).measurements
    expected = posterior_mean(measured.noisy, measured.variance, 200)
    proba = np.exp(dirdp.predict_log_proba(release, {"one": ["only"]}, target="a", draws=idata))[0]
    draws = idata["posterior"]["p_a"].values[..., 0]
    error = draws.std() / np.sqrt(200)  # The draws of a chain depend on one another.
    assert proba[0] == pytest.approx(expected, abs=5 * error)
    assert proba[0] == pytest.approx(draws.mean(), abs=1e-12)
    records = {name: values[:3] for name, values in data.items()}
    np.testing.assert_allclose(dirdp.log_likelihood(release, records, draws=idata), np.log(proba[0]), rtol=1e-10)
    thinned = idata.isel(draw=slice(None, None, 10))
    few = np.exp(dirdp.log_likelihood(release, records, draws=thinned))
    np.testing.assert_allclose(few, draws[:, ::10].mean(), rtol=1e-10)
    frame = dirdp.synthetic(release, 2000, n_sets=4, draws=idata, random_seed=0)
    shares = frame["a"].eq("x").groupby(level="set").mean()
    np.testing.assert_allclose(shares, draws.reshape(-1)[[0, 400, 800, 1200]], atol=0.05)
    assert np.ptp(draws) > 0.02


def network_with_its_model():
    """A release of noisy tables, the model of it that the library makes, and the prior in it."""
    kinds = {"a": ["x", "y"], "b": ["no", "yes", "both"]}
    data = {"a": ["x"] * 25 + ["y"] * 15, "b": ["no"] * 20 + ["yes"] * 12 + ["both"] * 8}
    model = dirdp.bayesian_network(data, {"a": [], "b": ["a"]}, categories=kinds)
    release = dirdp.sample(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric", random_seed=2)
    return release, dirdp.releases.analyst_model(release), None, kinds


def classifier_with_a_model_of_ones_own():
    """Noisy tables of a class and a feature, in a model around the likelihood; its Dirichlet is made of Gammas."""
    kinds = {"class": ["c", "d"], "b": ["no", "yes"]}
    features, classes = {"b": ["no"] * 13 + ["yes"] * 11 + ["no"] * 6}, ["c"] * 18 + ["d"] * 12
    model = dirdp.naive_bayes(features, classes, categories=kinds, target="class")
    target = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)
    release = dirdp.sample(target, model, mechanism="gaussian", random_seed=2)
    with pm.Model(coords=kinds) as own:
        parts = pm.Gamma("parts", 2.0, 1.0, dims="class")
        p = pm.Deterministic("p_class", parts / parts.sum(), dims="class")
        no = pm.Beta("no", 2.0, 2.0, dims="class")
        q = pm.Deterministic("p_b", pm.math.stack([no, 1 - no], axis=-1), dims=("class", "b"))
        pm.Potential("release", dirdp.release_logp(release, p, "p_class") + dirdp.release_logp(release, q, "p_b"))
    return release, own, {"p_class": [2.0, 2.0], "p_b": np.full((2, 2), 2.0)}, kinds


@pytest.mark.thorough
@pytest.mark.parametrize("made", [network_with_its_model, classifier_with_a_model_of_ones_own])
def test_a_sampled_posterior_of_noisy_tables_scores_as_the_exact_one(made):
    """Beside sums without draws: tables are independent in the posterior, so a record has the product of their means.

    The release is seeded, because chains mix badly for some releases, and their errors are then not known.
    """
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        release, model, prior, kinds = made()
    options = {"progressbar": False, "random_seed": 1, "compute_convergence_checks": False}
    with model:
        idata = pm.sample(500, tune=300, chains=2, cores=1, **options)
    values = np.array(list(itertools.product(*kinds.values()))).T
    data = dict(zip(kinds, values, strict=True))
    code = {name: [kinds[name].index(value) for value in column] for name, column in data.items()}
    means = dirdp.estimate(release, prior=prior, jointly=False).tables
    exact, drawn = np.ones(values.shape[1]), xr.DataArray(1.0)
    for name, table in release["posterior"].data_vars.items():
        of_table = means[name].share_means.reshape(table.shape[2:])
        exact = exact * of_table[tuple(code[dim] for dim in table.dims[2:])]
        drawn = drawn * idata["posterior"][name]
    each = drawn.transpose("chain", "draw", *kinds).values.reshape(2, 500, -1)
    errors = each.std(axis=(0, 1)) / np.sqrt(az.ess(xr.Dataset({"p": (("chain", "draw", "record"), each)}))["p"].values)
    found = np.exp(dirdp.log_likelihood(release, data, draws=idata))
    np.testing.assert_allclose(found, each.mean(axis=(0, 1)), rtol=1e-10)
    assert np.all(np.abs(found - exact) < 4 * errors)
    assert np.max(errors / exact) < 0.1
    # Exact draws given the release say the same.
    analysis = dirdp.analyse(release, 4000, chains=1, prior=prior, jointly=False, random_seed=1)
    np.testing.assert_allclose(np.exp(dirdp.log_likelihood(analysis, data)), exact, rtol=0.05)
    # One draw of the release alone does not.
    assert np.max(np.abs(np.exp(dirdp.log_likelihood(release, data, draws="released")) - exact) / errors) > 10
