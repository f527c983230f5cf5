"""The draws of the tables that a record goes through: of an estimate, of an analysis, and given a release."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.networks.fitting import draws_given_release

CATEGORIES = {"a": ["x", "y", "z"], "b": ["no", "yes"], "one": ["only"]}
STRUCTURE = {"a": [], "b": ["a"], "one": []}
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    columns = {"a": rng.integers(0, 3, n), "b": rng.integers(0, 2, n), "one": np.zeros(n, dtype=int)}
    return {name: np.asarray(CATEGORIES[name])[code] for name, code in columns.items()}


@pytest.fixture(scope="module")
def release():
    model = dirdp.bayesian_network(records(300), STRUCTURE, categories=CATEGORIES)
    return dirdp.sample(TARGET, model, mechanism="marginals")


def test_a_release_of_marginals_is_fitted_or_drawn_from(release):
    fitted, drawn = draws_given_release(release, None, 0), draws_given_release(release, 400, 0)
    estimate = dirdp.estimate(release).tables
    for name in STRUCTURE:
        table = f"p_{name}"
        assert fitted[table].shares.shape[0] == 1
        assert drawn[table].shares.shape == drawn[table].counts.shape == (400, *fitted[table].shares.shape[1:])
        error = 5 * estimate[table].share_sds / np.sqrt(50) + 1e-9
        off = drawn[table].shares.mean(axis=0).ravel() - estimate[table].share_means
        assert np.all(np.abs(off) < error)
    data = records(40, seed=2)
    a, b = (np.array([CATEGORIES[name].index(value) for value in data[name]]) for name in "ab")
    # Tables are drawn one by one, so a record has the product of the mean shares.
    expected = np.log(drawn["p_a"].shares.mean(0)[a] * drawn["p_b"].shares.mean(0)[a, b])
    np.testing.assert_allclose(dirdp.log_likelihood(release, data, draws=400, random_seed=0), expected, rtol=1e-9)
    analysis = dirdp.analyse(release, 100, random_seed=1)
    assert dirdp.synthetic(analysis, 50, n_sets=3).shape == (150, 3)
    with pytest.raises(dirdp.errors.ArgumentError, match="An estimate has no draws"):
        dirdp.log_likelihood(dirdp.fit(release), data, draws=10)


def test_a_beta_has_the_shares_of_both_outcomes():
    with pm.Model(coords={"group": ["g", "h"]}):
        rate = pm.Beta("rate", 1, 1, dims="group")
        pm.Binomial("wins", n=[300, 400], p=rate, observed=[100, 300], dims="group")
        release = dirdp.sample(TARGET, mechanism="marginals")
    table = draws_given_release(release, 300, 0)["rate"]
    assert table.dims == ("group", "rate_outcome")
    np.testing.assert_allclose(table.shares.sum(axis=-1), 1)
    np.testing.assert_allclose(table.shares[..., 0].mean(axis=0), [1 / 3, 3 / 4], atol=0.1)
    found = np.exp(dirdp.predict_log_proba(release, {"group": ["h"]}, target="rate_outcome", draws=300, random_seed=0))
    np.testing.assert_allclose(found[0, 0], table.shares[:, 1, 0].mean(), rtol=1e-9)


def test_what_holds_no_draws_is_refused(release):
    analysis = dirdp.analyse(release, 10)
    dataset = analysis["posterior"].to_dataset()

    def given(changed):
        return xr.DataTree.from_dict({"/posterior": changed, "/latent_counts": analysis["latent_counts"].to_dataset()})

    data = records(5)
    for changed, message in (
        (dataset.drop_vars("p_b"), "does not have draws of both the shares and the counts of 'p_b'"),
        (dataset.assign(p_a=0.5 * dataset["p_a"]), r"not shares.*add up to 1"),
        (dataset.assign(p_a=np.nan * dataset["p_a"]), "not shares"),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            dirdp.log_likelihood(given(changed), data)
    single = given(dataset.astype(np.float32))
    np.testing.assert_allclose(dirdp.log_likelihood(single, data), dirdp.log_likelihood(analysis, data), rtol=1e-4)
