"""The groups for ArviZ: replicates, likelihoods and priors by brute force, ArviZ's verbs, and LOO against refits."""

import itertools
import pickle

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import dirichlet, multinomial

import pymc_dirdp as dirdp
from pymc_dirdp.errors import SeededReleaseWarning
from pymc_dirdp.releases import arviz_groups
from pymc_dirdp.releases.arviz_groups import log_dirichlet
from pymc_dirdp.releases.opened import open_release
from tests.planned import planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
COUNTS = np.array([[30, 12, 8], [10, 22, 18], [5, 5, 40], [20, 20, 10]])


def of_rows(prior=1.0, counts=COUNTS):
    with pm.Model(coords={"region": list("nsew")[: len(counts)], "answer": list("abc")}) as model:
        p = pm.Dirichlet("p", np.full(counts.shape, prior), dims=("region", "answer"))
        pm.Multinomial("x", n=counts.sum(axis=1), p=p, observed=counts)
    return model


def of_hair(counts=(7, 4, 1)):
    with pm.Model(coords={"hair": ["black", "brown", "red"]}) as model:
        p = pm.Dirichlet("p", np.array([1.0, 0.5, 2.0]), dims="hair")
        pm.Multinomial("x", n=sum(counts), p=p, observed=counts)
    return model


def of_heads():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Binomial("x", n=12, p=p, observed=4)
    return model


def of_survey():
    with pm.Model(coords={"person": range(20), "question": list("abc"), "answer": ["no", "yes"]}) as model:
        p = pm.Dirichlet("p", a=np.ones((3, 2)), dims=("question", "answer"))
        answers = np.arange(60).reshape(20, 3) * 7 % 5 % 2
        pm.Categorical("x", p=p, observed=answers, dims=("person", "question"))
    return model


@pytest.fixture(scope="module")
def rows():
    """A release of rows whose numbers of records are public."""
    with pytest.warns(SeededReleaseWarning):
        return dirdp.sample(APPROX, of_rows(), mechanism="geometric", public=["x"], random_seed=2)


@pytest.fixture(scope="module")
def analysis(rows):
    return dirdp.analyse(rows, random_seed=1)


RELEASES = {
    "geometric": (of_hair, {"mechanism": "geometric"}),
    "draw": (of_hair, {}),
    "draws": (of_hair, {"released_draws": 3}),
    "min_count": (of_hair, {"min_count": 1}),
    "private number": (of_hair, {"mechanism": "geometric", "adjacency": "add-remove"}),
    "beta": (of_heads, {"mechanism": "geometric"}),
    "rows that add up": (of_survey, {"mechanism": "geometric", "unit": "person"}),
    "joint noise": (of_survey, {"mechanism": "joint", "unit": "person"}),
}


@pytest.mark.parametrize("kind", RELEASES)
@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_groups_have_the_axes_of_what_was_published(kind):
    model, options = RELEASES[kind]
    release = planned_sample(APPROX, model(), random_seed=3, **options)
    found = dirdp.analyse(release, 25, chains=2, random_seed=1)
    assert found.identical(dirdp.analyse(release, 25, chains=2, random_seed=1))
    published, made = found["observed_data"]["p"], found["posterior_predictive"]["p"]
    assert made.dims == ("chain", "draw", *published.dims)
    assert made.shape == (2, 25, *published.shape)
    assert set(published.coords) <= set(made.coords)
    assert np.isfinite(found["log_likelihood"]["p"]).all()
    assert np.isfinite(found["log_prior"]["p"]).all()
    # All lie on the same grid: the integers, or that of an urn.
    scale = 1.0
    if "steps" in release["mechanism/p"].attrs:
        scale = (2 * release["mechanism/p"].attrs["steps"] + (2 if model is of_heads else 3)) / 2
    parts = np.mod(scale * np.stack([made.values.min(), published.values.min()]), 1)
    assert np.ptp(parts) < 1e-5


def test_likelihoods_of_a_few_records_are_sums_over_all_tables():
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("x", n=5, p=p, observed=[2, 2, 1])
        releases = [
            dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric"),
            planned_sample(APPROX, sampler="fast"),
        ]
    tables = np.array([x for x in itertools.product(range(6), repeat=3) if sum(x) == 5])
    for release in releases:
        found = dirdp.analyse(release, 10, chains=1, random_seed=1)
        stored = open_release(release).tables["p"]
        given = np.array([float(stored.mechanism.log_likelihood(stored.published[0], x)) for x in tables])
        for shares, said in zip(found.posterior["p"].values[0], found.log_likelihood["p"].values[0], strict=True):
            right = np.log(np.sum(np.exp(multinomial(5, shares).logpmf(tables) + given)))
            assert said == pytest.approx(right, abs=1e-9)


def test_rows_add_up_to_the_likelihood_of_the_table(rows, analysis):
    shares = analysis.posterior["p"].values[0, :5]
    for p, logs in zip(shares, analysis.log_likelihood["p"].values[0, :5], strict=True):
        assert logs.sum() == pytest.approx(float(dirdp.release_logp(rows, p).eval()), abs=1e-9)


def test_replicates_vary_as_the_sample_and_the_noise(rows, analysis):
    made, shares = analysis["posterior_predictive"]["p"], analysis.posterior["p"]
    noise = open_release(rows).tables["p"].mechanism.noise_sd
    expected = 50 * shares
    variance = float((50 * shares * (1 - shares)).mean()) + noise**2
    off = made - expected
    np.testing.assert_allclose(off.mean(("chain", "draw")), 0, atol=5 * np.sqrt(variance / 4000))
    assert float((off**2).mean()) == pytest.approx(variance, rel=0.05)


def test_a_log_prior_is_a_density_in_the_coordinates_of_samplers():
    p, prior = np.array([0.2, 0.5, 0.3]), np.array([1.0, 0.5, 2.0])
    # The derivative of the shares in log(p_i / p_d) has the determinant of the product of all shares.
    assert log_dirichlet(prior, p) == pytest.approx(dirichlet(prior).logpdf(p) + np.log(p).sum())


def test_what_has_no_likelihood_is_left_out_and_said():
    records = {"class": np.arange(60) % 2, "a": np.arange(60) % 3}
    model = dirdp.naive_bayes(records, "class", categories={"class": [0, 1], "a": [0, 1, 2]})
    release = dirdp.sample(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric")
    found = dirdp.analyse(release, 20)
    assert "log_likelihood" not in found.children
    assert "same_records=False" in found.attrs["log_likelihood_left_out"]
    assert set(found.posterior_predictive.data_vars) == set(found.posterior.data_vars)
    by_table = dirdp.analyse(release, 20, same_records=False)
    assert set(by_table.log_likelihood.data_vars) == set(found.posterior.data_vars)


def test_marginals_are_replicated_and_have_no_likelihood():
    records = {"class": np.arange(60) % 2, "a": np.arange(60) % 3}
    model = dirdp.bayesian_network(records, {"class": [], "a": ["class"]}, categories={"class": [0, 1], "a": [0, 1, 2]})
    release = dirdp.sample(dirdp.ApproxDP(epsilon=3.0, delta=1e-6), model, mechanism="marginals")
    found = dirdp.analyse(release, 20)
    for name, published in found.observed_data.data_vars.items():
        assert found.posterior_predictive[name].shape == (4, 20, *published.shape)
    assert "log_likelihood" not in found.children
    assert "marginals" in found.attrs["log_likelihood_left_out"]


def test_several_releases_have_replicates_of_each(rows):
    again = dirdp.sample(APPROX, of_rows(), mechanism="geometric", public=["x"])
    found = dirdp.analyse([rows, again], 10)
    assert set(found.posterior_predictive.data_vars) == {"p_release_0", "p_release_1"}
    for name, published in found.observed_data.data_vars.items():
        assert found.posterior_predictive[name].dims == ("chain", "draw", *published.dims)
    assert found.log_likelihood["p"].sizes == {"chain": 4, "draw": 10, "region": 4}


KINDS_OF_DATA = {
    "noisy counts": {"mechanism": "geometric", "public": ["x"]},
    "draws": {"mechanism": "dirichlet", "public": ["x"], "released_draws": 2},
}


@pytest.mark.parametrize("kind", KINDS_OF_DATA)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_arviz_takes_what_is_returned_as_it_is(kind):
    """Priors of one release are compared; replicates, sensitivities and leave-one-out need no argument."""
    release = planned_sample(APPROX, of_rows(), **KINDS_OF_DATA[kind])
    fits = {str(prior): dirdp.analyse(release, 100, prior=np.full((4, 3), prior)) for prior in (1.0, 50.0)}
    # The rows differ far more than shares under the second prior do.
    assert list(az.compare(fits).index) == ["1.0", "50.0"]
    for verb in (az.loo, az.psense_summary, az.plot_ppc_dist, az.plot_ppc_tstat):
        assert verb(fits["1.0"]) is not None
    plt.close("all")


def test_groups_are_computed_when_they_are_looked_at_and_once(rows, monkeypatch):
    calls = []
    monkeypatch.setattr(arviz_groups, "log_likelihood", lambda *given: calls.append(given) or np.zeros((40, 4)))
    found = dirdp.analyse(rows, 10)
    assert "log_likelihood" in repr(found)
    assert found["log_likelihood"]["p"].shape == found["log_likelihood"]["p"].isel(region=[0, 1, 2, 3]).shape
    assert not calls
    for _ in range(2):
        assert not found["log_likelihood"]["p"].values.any()
    assert len(calls) == 1


def test_groups_are_copied_and_written(rows, tmp_path):
    found = dirdp.analyse(rows, 10, random_seed=1)
    copies = [found.copy(deep=True), pickle.loads(pickle.dumps(found))]
    found.to_netcdf(tmp_path / "found.nc", engine="h5netcdf")
    for copy in [*copies, xr.open_datatree(tmp_path / "found.nc", engine="h5netcdf")]:
        for name in ("posterior_predictive", "log_likelihood", "log_prior"):
            np.testing.assert_array_equal(copy[name]["p"], found[name]["p"])
    np.testing.assert_array_equal(
        found["log_likelihood"]["p"].isel(draw=[3, 1], region=2), found["log_likelihood"]["p"].values[:, [3, 1], 2]
    )


def test_private_totals_of_rows_and_least_counts_have_likelihoods_by_row():
    """They have no compiled program, and are the same sums."""
    release = planned_sample(APPROX, of_rows(), mechanism="dirichlet", public=["x"], min_count=5)
    found = dirdp.analyse(release, 5, chains=1, random_seed=1)
    assert found["log_likelihood"]["p"].dims == ("chain", "draw", "region")
    for p, logs in zip(found["posterior"]["p"].values[0], found["log_likelihood"]["p"].values[0], strict=True):
        assert logs.sum() == pytest.approx(float(dirdp.release_logp(release, p).eval()), abs=1e-8)
