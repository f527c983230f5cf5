"""The groups for ArviZ: replicates, likelihoods, priors, and ArviZ's verbs on what is returned."""

import pickle

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy.stats import dirichlet

import pymc_dirdp as dirdp
from pymc_dirdp.models.graph import PLAIN
from pymc_dirdp.releases import arviz_groups
from pymc_dirdp.releases.arviz_groups import log_dirichlet
from pymc_dirdp.releases.opened import LoadedRelease, open_release
from tests.planned import one_row, planned_sample, three_questions

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
COUNTS = np.array([[30, 12, 8], [10, 22, 18], [5, 5, 40], [20, 20, 10]])
RECORDS = {"class": np.arange(60) % 2, "a": np.arange(60) % 3}
CATEGORIES = {"class": [0, 1], "a": [0, 1, 2]}


def of_rows():
    with pm.Model(coords={"region": list("nsew"), "answer": list("abc")}) as model:
        p = pm.Dirichlet("p", np.ones((4, 3)), dims=("region", "answer"))
        pm.Multinomial("x", n=COUNTS.sum(axis=1), p=p, observed=COUNTS)
    return model


def of_hair():
    return one_row([7, 4, 1], [1.0, 0.5, 2.0])


def of_heads():
    with pm.Model() as model:
        pm.Binomial("x", n=12, p=pm.Beta("p", 1, 1), observed=4)
    return model


@pytest.fixture(scope="module")
def rows():
    return dirdp.sample(APPROX, of_rows(), mechanism="geometric", public=["x"], random_seed=2)


@pytest.fixture(scope="module")
def analysis(rows):
    return dirdp.analyse(rows, 400, random_seed=1)


RELEASES = {
    "geometric": (of_hair, {"mechanism": "geometric"}),
    "draws": (of_hair, {"released_draws": 3}),
    "least": (of_rows, {"mechanism": "dirichlet", "public": ["x"], "min_count": 5}),
    "private number": (of_hair, {"mechanism": "geometric", "adjacency": "add-remove"}),
    "beta": (of_heads, {"mechanism": "geometric"}),
    "rows": (of_rows, {"mechanism": "geometric", "public": ["x"]}),
    "rows that add up": (three_questions, {"mechanism": "geometric", "unit": "person"}),
    "joint noise": (three_questions, {"mechanism": "joint", "unit": "person"}),
}


@pytest.mark.parametrize("kind", RELEASES)
def test_groups_have_the_axes_of_what_was_published_and_the_likelihood_of_each_draw(kind):
    model, options = RELEASES[kind]
    release = planned_sample(APPROX, model(), random_seed=3, **options)
    found = dirdp.analyse(release, 10, chains=2, random_seed=1)
    assert found.identical(dirdp.analyse(release, 10, chains=2, random_seed=1))
    published, made = found["observed_data"]["p"], found["posterior_predictive"]["p"]
    assert made.dims == ("chain", "draw", *published.dims)
    assert made.shape == (2, 10, *published.shape)
    assert set(published.coords) <= set(made.coords)
    assert np.isfinite(found["log_prior"]["p"]).all()
    # All lie on the same grid: the integers, or that of an urn.
    scale, cells = 1.0, 2 if model is of_heads else 3
    if "steps" in release["mechanism/p"].attrs:
        scale = (2 * release["mechanism/p"].attrs["steps"] + cells) / 2
    parts = np.mod(scale * np.stack([made.values.min(), published.values.min()]), 1)
    assert np.ptp(parts) < 1e-5
    # Rows add up to the likelihood of the table, of which the oracle are sums over all tables.
    shares = found["posterior"]["p"].values[0]
    p = pt.tensor("p", shape=shares.shape[1:])
    logp = pytensor.function([p], dirdp.release_logp(release, p), mode=PLAIN)
    said = found["log_likelihood"]["p"]
    assert said.dims[2:] == {"rows": ("region",), "least": ("region",), "rows that add up": ("item",)}.get(kind, ())
    assert found.attrs["log_likelihood_unit"].startswith("p: a row" if said.dims[2:] else "p: the table")
    for one, logs in zip(shares[:4], said.values[0], strict=False):
        assert logs.sum() == pytest.approx(float(logp(one)), abs=1e-8)


def test_replicates_vary_as_the_sample_and_the_noise(rows, analysis):
    made, shares = analysis["posterior_predictive"]["p"], analysis.posterior["p"]
    noise, draws = open_release(rows).tables["p"].mechanism.noise_sd, shares.sizes["chain"] * shares.sizes["draw"]
    variance = float((50 * shares * (1 - shares)).mean()) + noise**2
    off = made - 50 * shares
    np.testing.assert_allclose(off.mean(("chain", "draw")), 0, atol=5 * np.sqrt(variance / draws))
    assert float((off**2).mean()) == pytest.approx(variance, rel=0.1)


def test_new_counts_are_at_least_what_was_guaranteed(monkeypatch):
    seen, real = [], LoadedRelease.replicates
    monkeypatch.setattr(LoadedRelease, "replicates", lambda *given: seen.append(given[1]["p"]) or real(*given))
    model, options = RELEASES["least"]
    found = dirdp.analyse(planned_sample(APPROX, model(), **options), 20)
    assert np.isfinite(found["posterior_predictive"]["p"]).all()
    (counts,) = seen
    assert counts.min() == 5
    assert (counts.sum(axis=-1) == 50).all()


def test_a_log_prior_is_a_density_in_the_coordinates_of_samplers():
    p, prior = np.array([0.2, 0.5, 0.3]), np.array([1.0, 0.5, 2.0])
    # The derivative of the shares in log(p_i / p_d) has the determinant of the product of all shares.
    assert log_dirichlet(prior, p) == pytest.approx(dirichlet(prior).logpdf(p) + np.log(p).sum())


@pytest.mark.parametrize(("mechanism", "reason"), [("geometric", "same_records=False"), ("marginals", "marginals")])
def test_what_has_no_likelihood_is_left_out_and_said(mechanism, reason):
    model = dirdp.bayesian_network(RECORDS, {"class": [], "a": ["class"]}, categories=CATEGORIES)
    release = dirdp.sample(APPROX, model, mechanism=mechanism)
    found = dirdp.analyse(release, 20)
    assert "log_likelihood" not in found.children
    assert reason in found.attrs["log_likelihood_left_out"]
    for name, published in found.observed_data.data_vars.items():
        assert found.posterior_predictive[name].shape == (4, 20, *published.shape)
    if mechanism == "geometric":
        assert set(found.posterior_predictive.data_vars) == set(found.posterior.data_vars)
        by_table = dirdp.analyse(release, 20, same_records=False)
        assert set(by_table.log_likelihood.data_vars) == set(found.posterior.data_vars)


def test_several_releases_have_replicates_of_each(rows):
    again = dirdp.sample(APPROX, of_rows(), mechanism="geometric", public=["x"])
    found = dirdp.analyse([rows, again], 10)
    assert set(found.posterior_predictive.data_vars) == {"p_release_0", "p_release_1"}
    for name, published in found.observed_data.data_vars.items():
        assert found.posterior_predictive[name].dims == ("chain", "draw", *published.dims)
    assert found.log_likelihood["p"].sizes == {"chain": 4, "draw": 10, "region": 4}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_arviz_takes_what_is_returned_as_it_is(rows, analysis):
    fits = {"flat": analysis, "50": dirdp.analyse(rows, 400, prior=np.full((4, 3), 50.0))}
    assert list(az.compare(fits).index) == ["flat", "50"]
    for verb in (az.loo, az.psense_summary, az.plot_ppc_dist, az.plot_ppc_tstat):
        assert verb(analysis) is not None
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
    logs = found["log_likelihood"]["p"]
    np.testing.assert_array_equal(logs.isel(draw=[3, 1], region=2), logs.values[:, [3, 1], 2])
