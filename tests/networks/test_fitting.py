"""Fits of the tables of a network to a release, the measurements they use, and the draws of a record's tables."""

import json

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.networks.fitting import draws_given_release, measurements_of, records_of_estimate, stored_draws
from pymc_dirdp.releases.opened import _OPENED
from tests.planned import planned_sample

CATEGORIES = {"a": ["x", "y", "z"], "b": [1, 2], "c": ["no", "yes"], "one": ["only"]}
STRUCTURE = {"a": [], "b": ["a"], "one": ["a"], "c": ["b", "a"]}
EPSILON = dirdp.ApproxDP(epsilon=2.0, delta=1e-6)


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    b = (rng.random(n) < np.array([0.2, 0.5, 0.9])[a]).astype(int)
    c = (rng.random(n) < 0.1 + 0.3 * b + 0.2 * (a == 1)).astype(int)
    codes = {"a": a, "b": b, "c": c, "one": np.zeros(n, dtype=int)}
    return {name: np.asarray(CATEGORIES[name])[code] for name, code in codes.items()}


def released(mechanism, n=3000, guarantee=EPSILON, **options):
    model = dirdp.bayesian_network(records(n), STRUCTURE, categories=CATEGORIES)
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        return planned_sample(guarantee, model, mechanism=mechanism, random_seed=1, **options)


@pytest.fixture(scope="module", params=["marginals", "geometric"])
def release(request):
    return released(request.param)


@pytest.mark.parametrize("consistency", ["joint", "tables"])
def test_an_estimate_has_the_names_dims_and_labels_of_the_release(release, consistency):
    # Noisy tables are fitted one by one unless one asks.
    estimate, marginals = dirdp.fit(release, consistency, progressbar=False), "estimate" in release.attrs
    assert dirdp.fit(release).attrs["consistency"] == ("joint" if marginals else "tables")
    assert set(estimate.children) == {"posterior"}
    if marginals:
        data, fitted = records(50, seed=5), dirdp.fit(release, "joint")
        np.testing.assert_allclose(dirdp.log_likelihood(release, data), dirdp.log_likelihood(fitted, data), rtol=1e-6)
        assert len(dirdp.synthetic(release)) == 3000
    for name, table in release.posterior.data_vars.items():
        xr.testing.assert_equal(0 * estimate.posterior[name].squeeze(drop=True), 0 * table.squeeze(drop=True))
        np.testing.assert_allclose(estimate.posterior[name].sum(table.dims[-1]), 1, rtol=1e-12)


def test_a_network_that_is_too_large_falls_back_to_tables_and_says_so(release, monkeypatch):
    monkeypatch.setattr("pymc_dirdp.networks.joint_fit.MAX_CELLS", 3)
    # Another test may have fitted it, and a release is fitted once.
    _OPENED.clear()
    estimate = dirdp.fit(release, "joint")
    _OPENED.clear()
    assert estimate.attrs["consistency"].startswith("tables, because the whole network is too large: The marginal of")
    expected = dirdp.fit(release, "tables")
    xr.testing.assert_identical(estimate["posterior"].to_dataset(), expected["posterior"].to_dataset())


TWO = {"a": ["x", "y"], "b": [1, 2], "c": ["no", "yes"]}


def alike(n, seed=0):
    """Two parents of one child, which are equal in nine tenths of the records, and which the child compares."""
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=n)
    b = np.where(rng.random(n) < 0.9, a, 1 - a)
    c = (rng.random(n) < 0.2 + 0.6 * (a == b)).astype(int)
    return {name: np.asarray(TWO[name])[code] for name, code in {"a": a, "b": b, "c": c}.items()}


@pytest.fixture(scope="module")
def joined():
    """The joint fit of a network that takes the two parents for independent."""
    model = dirdp.bayesian_network(alike(4000), {"a": [], "b": [], "c": ["a", "b"]}, categories=TWO)
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        release = dirdp.sample(EPSILON, model, mechanism="marginals", random_seed=1)
    return dirdp.fit(release, progressbar=False)


def test_parents_of_one_variable_depend_on_each_other_where_the_records_do(joined):
    frame = dirdp.synthetic(joined, 20_000, random_seed=0)
    # Independent parents would be equal in half of the records, and then .5 of them would be "yes" rather than .74.
    assert np.mean((frame["a"] == "x") == (frame["b"] == 1)) == pytest.approx(0.9, abs=0.03)
    assert np.mean(frame["c"] == "yes") == pytest.approx(0.74, abs=0.03)
    tables = {name: table.squeeze(("chain", "draw")) for name, table in joined["network"].data_vars.items()}
    assert [tables[f"p_{name}"].dims for name in "abc"] == [("a",), ("a", "b"), ("a", "b", "c")]
    data = alike(100, seed=3)
    place = {dim: xr.DataArray(data[dim], dims="r") for dim in "abc"}
    cells = [table.sel({dim: place[dim] for dim in table.dims}) for table in tables.values()]
    np.testing.assert_allclose(dirdp.log_likelihood(joined, data), sum(map(np.log, cells)), rtol=1e-9)
    hostile = joined.copy()
    hostile["network"] = xr.DataTree(joined["network"].to_dataset().drop_vars("p_a"))
    with pytest.raises(dirdp.errors.ArgumentError, match="This estimate is damaged"):
        dirdp.log_likelihood(hostile, data)
    # The tables of the structure are marginals of what was fitted.
    found = joined.posterior["p_b"].squeeze(("chain", "draw"))
    assert found.dims == ("b",)
    np.testing.assert_allclose(found, (tables["p_a"] * tables["p_b"]).sum("a"), rtol=1e-12)


def test_noisy_counts_that_no_computation_can_take_are_a_damaged_release(edited):
    release = released("geometric", adjacency="add-remove")
    estimate = dirdp.fit(release)
    # A private number of records is what the counts say.
    assert 0 < abs(estimate.attrs["n_records"] - 3000) < 40
    assert len(dirdp.synthetic(estimate)) == estimate.attrs["n_records"]

    # One number with a point makes all of them so.
    hostile = np.full((3, 2), 1.0)
    hostile[0, 0] = 1e300
    with pytest.raises(dirdp.errors.ReleaseError):
        dirdp.fit(edited(release, (("output", "p_b", "noisy_counts"), hostile.tolist())))


@pytest.mark.parametrize(
    ("mechanism", "axes"), [("marginals", ["a", "b", "ab", "c", "bc", "ac", "bac"]), ("geometric", ["a", "ab", "bac"])]
)
def test_noisy_counts_are_measurements_with_the_variance_of_their_noise(mechanism, axes):
    model = dirdp.bayesian_network(records(60), STRUCTURE, categories=CATEGORIES)
    release = dirdp.sample(EPSILON, model, mechanism=mechanism)
    families, measurements, n_records = measurements_of(release)
    assert {one.name: one.shape for one in families} == {"p_a": (3,), "p_b": (3, 2), "p_c": (2, 3, 2)}
    assert ["".join(one.axes) for one in measurements] == axes
    assert n_records == 60
    last = release["mechanism/p_c"]
    sd = json.loads(last.attrs["noise_sds"])[-1] if mechanism == "marginals" else float(last["noise_sd"])
    # Noise that adds up to 0 is independent noise of a larger variance, given its sum.
    factor = 12 / 11 if last.attrs["mechanism"].startswith("ZeroSum") else 1
    assert measurements[-1].variance == pytest.approx(factor * sd**2)
    output = last["noisy_counts_0_1_2" if mechanism == "marginals" else "noisy_counts"].values
    assert np.array_equal(measurements[-1].noisy, output)


def test_a_beta_is_fitted_and_its_rows_make_up_no_whole_network():
    with pm.Model(coords={"sex": ["male", "female"]}):
        rate = pm.Beta("rate", 1, 1, dims="sex")
        pm.Binomial("alive", n=[1000, 1000], p=rate, observed=[200, 700], dims="sex")
        release = dirdp.sample(EPSILON, mechanism="geometric", contribution=1)
    estimate = dirdp.fit(release)
    np.testing.assert_allclose(estimate.posterior["rate"].squeeze(), [0.2, 0.7], atol=0.08)
    proba = np.exp(dirdp.predict_log_proba(estimate, {"sex": ["female"]}, target="rate_outcome"))
    assert proba[0, 0] == pytest.approx(estimate.posterior["rate"].sel(sex="female").item())
    for call, message in (
        (lambda: dirdp.fit(release, "joint"), "no table of 'sex', a parent in another table"),
        (lambda: dirdp.synthetic(estimate), "No table has shares of 'sex'"),
        (lambda: dirdp.fit(release, "jointly"), "Did you mean 'joint'"),
        (lambda: dirdp.fit(released("dirichlet")), "holds no noisy counts of 'p_a'"),
        # Found by attack: it was said to lack the groups of a release.
        (lambda: dirdp.estimate(estimate), r"an estimate of dirdp\.fit does not hold its own error"),
        (lambda: dirdp.analyse(estimate), r"Pass the release that was fitted"),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            call()
    for name, value in (("beta_tables", "not JSON"), ("beta_tables", "[1]"), ("n_records", -3), ("n_records", "many")):
        hostile = estimate.copy(deep=True)
        hostile.attrs[name] = value
        with pytest.raises(dirdp.errors.ArgumentError):
            records_of_estimate(hostile) if name == "n_records" else stored_draws(hostile)


@pytest.fixture(scope="module")
def of_pairs():
    structure = {"a": [], "b": ["a"], "one": []}
    model = dirdp.bayesian_network(records(300), structure, categories=CATEGORIES)
    return dirdp.sample(EPSILON, model, mechanism="marginals")


def test_a_release_of_marginals_is_fitted_or_drawn_from(of_pairs):
    fitted, drawn = draws_given_release(of_pairs, None, 0), draws_given_release(of_pairs, 400, 0)
    for table, estimate in dirdp.estimate(of_pairs).tables.items():
        assert fitted[table].shares.shape[0] == 1
        assert drawn[table].shares.shape == drawn[table].counts.shape == (400, *fitted[table].shares.shape[1:])
        off = drawn[table].shares.mean(axis=0).ravel() - estimate.share_means
        assert np.all(np.abs(off) < 5 * estimate.share_sds / np.sqrt(50) + 1e-9)
    data = records(40, seed=2)
    a, b = (np.array([list(CATEGORIES[name]).index(value) for value in data[name]]) for name in "ab")
    # Tables are drawn one by one, so a record has the product of the mean shares.
    expected = np.log(drawn["p_a"].shares.mean(0)[a] * drawn["p_b"].shares.mean(0)[a, b])
    np.testing.assert_allclose(dirdp.log_likelihood(of_pairs, data, draws=400, random_seed=0), expected, rtol=1e-9)
    with pytest.raises(dirdp.errors.ArgumentError, match="An estimate has no draws"):
        dirdp.log_likelihood(dirdp.fit(of_pairs), data, draws=10)


def test_draws_in_single_precision_are_shares_and_others_are_refused(of_pairs):
    analysis, data = dirdp.analyse(of_pairs, 10), records(5)
    dataset, expected = analysis["posterior"].to_dataset(), dirdp.log_likelihood(analysis, data)
    analysis["posterior"] = xr.DataTree(dataset.astype(np.float32))
    np.testing.assert_allclose(dirdp.log_likelihood(analysis, data), expected, rtol=1e-4)
    for table in draws_given_release(analysis, None, 0).values():
        np.testing.assert_allclose(table.shares.sum(axis=-1), 1, rtol=1e-12)
    for factor in (0.5, np.nan):
        analysis["posterior"] = xr.DataTree(dataset.assign(p_a=factor * dataset["p_a"]))
        with pytest.raises(dirdp.errors.ArgumentError, match=r"not shares.*add up to 1"):
            dirdp.log_likelihood(analysis, data)
