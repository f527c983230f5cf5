"""The exact posterior without privacy.

Its distribution, its shape, its marks, and that nothing takes it for a release.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pymc_dirdp as dirdp

RNG = np.random.default_rng(8)
A = RNG.integers(0, 3, 60)
B = (RNG.random(60) < 0.2 + 0.3 * A).astype(int)


def hair(counts=(108, 286, 71, 127)):
    with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
        p = pm.Dirichlet("p", a=[1, 1, 1, 2], dims="hair")
        pm.Multinomial("students", n=sum(counts), p=p, observed=counts, dims="hair")
        pm.Deterministic("odds", p / (1 - p), dims="hair")
    return model


def network():
    with pm.Model(coords={"A": list("xyz"), "record": np.arange(60)}) as model:
        p_a = pm.Dirichlet("p_a", np.ones(3), dims="A")
        p_b = pm.Beta("p_b", 1, 2, dims="A")
        a = pm.Categorical("a", p=p_a, observed=A, dims="record")
        pm.Bernoulli("b", p=p_b[a], observed=B, dims="record")
        pm.Deterministic("lift", p_b[2] - p_b[0])
        pm.Deterministic("of_each", p_b[a], dims="record")
        pm.Deterministic("code", a + 1)
    return model


def integrated():
    with pm.Model() as model:
        pm.DirichletMultinomial("words", n=[9, 6], a=[1.0, 2.0, 1.0], observed=[[4, 3, 2], [0, 6, 0]])
        pm.BetaBinomial("hits", n=[10, 20], alpha=1, beta=1, observed=[3, 18])
    return model


def fits(values, distribution):
    return stats.kstest(values, distribution.cdf).pvalue > 1e-6


def test_draws_have_the_distribution_of_prior_plus_counts():
    tree = dirdp.curator.exact_posterior(hair(), random_seed=1)
    assert tree["posterior"]["p"].dims == ("chain", "draw", "hair")
    assert tree["posterior"]["p"].shape == (1, 4000, 4)
    u = np.array([109, 287, 72, 129])
    for i in range(4):
        values = tree["posterior"]["p"].values[0, :, i]
        assert fits(values, stats.beta(u[i], u.sum() - u[i]))
        # The same test sees it if records count seven tenths.
        assert not fits(values, stats.beta(0.7 * u[i], 0.7 * (u.sum() - u[i])))
    np.testing.assert_allclose(tree["posterior"]["p"].sum("hair"), 1)
    odds = tree["posterior"]["p"] / (1 - tree["posterior"]["p"])
    np.testing.assert_allclose(tree["posterior"]["odds"], odds)


def test_integrated_tables_and_rows_have_closed_forms():
    tree = dirdp.curator.exact_posterior(integrated(), 3000, random_seed=2)["posterior"]
    assert set(tree.data_vars) == {"words_p", "hits_p"}
    assert fits(tree["words_p"].values[0, :, 1, 1], stats.beta(8, 2))
    assert fits(tree["hits_p"].values[0, :, 0], stats.beta(4, 8))
    assert fits(tree["hits_p"].values[0, :, 1], stats.beta(19, 3))


def test_a_deterministic_of_observed_records_reads_them():
    """`p[a]` is evaluated at the records that were observed, and not at records that are drawn anew."""
    tree = dirdp.curator.exact_posterior(network(), 50, random_seed=6)["posterior"]
    np.testing.assert_array_equal(tree["of_each"].values, tree["p_b"].values[:, :, A])


def test_every_group_is_what_arviz_looks_for():
    tree = dirdp.curator.exact_posterior(network(), 400, random_seed=7)
    groups = {"posterior", "prior", "log_prior", "log_likelihood", "posterior_predictive", "observed_data"}
    assert set(tree.children) == groups
    np.testing.assert_array_equal(tree["observed_data"]["a"], A)
    assert np.isfinite(az.loo(tree, var_name="b").elpd)
    assert "p_a[x]" in az.summary(tree, var_names="p_a").index


def test_it_is_what_a_diagnosis_holds():
    """With one chain and the same seed it is the same tree, so there is one implementation."""
    model = hair()
    release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model)
    diagnosis = dirdp.diagnose(release, model, draws=100, chains=1, random_seed=9)
    own = dirdp.curator.exact_posterior(model, 100, random_seed=9)
    xr.testing.assert_equal(diagnosis["non_private/posterior"]["p"], own["posterior"]["p"])
    assert set(diagnosis["non_private"].children) == set(own.children)


def test_everything_says_that_it_is_confidential(tmp_path):
    tree = dirdp.curator.exact_posterior(network(), 20)
    assert all("do not publish" in group.attrs["confidential"] for group in tree.subtree)
    assert all("confidential" in values.attrs for group in tree.subtree for values in group.data_vars.values())
    tree.to_netcdf(tmp_path / "exact.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "exact.nc", engine="h5netcdf") as back:
        assert all("confidential" in group.attrs for group in back.subtree)
        with pytest.raises(dirdp.errors.ReleaseError, match="no guarantee covers it"):
            dirdp.verify(back)


USES = {
    "report": dirdp.report,
    "verify": dirdp.verify,
    "analyse": dirdp.analyse,
    "analyse, in a list": lambda tree: dirdp.analyse([tree, tree]),
    "estimate": dirdp.estimate,
    "analyst_model": dirdp.releases.analyst_model,
    "latent_counts": lambda tree: dirdp.releases.latent_counts(tree, tree),
    "release_logp": lambda tree: dirdp.release_logp(tree, [0.25, 0.25, 0.25, 0.25]),
    "sample_posterior_predictive": lambda tree: dirdp.releases.sample_posterior_predictive(tree, n_records=3),
    "synthetic": dirdp.synthetic,
    "predict_log_proba": lambda tree: dirdp.predict_log_proba(tree, {}),
    "predict_log_proba, released": lambda tree: dirdp.predict_log_proba(tree, {}, draws="released"),
    "log_likelihood": lambda tree: dirdp.log_likelihood(tree, {"hair": ["red"]}),
    "as_mechanism": dirdp.interop.as_mechanism,
    "diagnose": lambda tree: dirdp.diagnose(tree, hair()),
    "plot_draw": dirdp.plots.plot_draw,
    "plot_analysis": dirdp.plots.plot_analysis,
}


def test_no_function_takes_it_for_a_release():
    exact = dirdp.curator.exact_posterior(hair(), 20)
    for use in USES.values():
        with pytest.raises(dirdp.errors.ReleaseError, match="got a tree that is marked as confidential"):
            use(exact)


def test_a_part_of_a_diagnosis_is_no_release_either():
    """Found by attack: an analysis is recognised by its groups, which anybody can put beside each other."""
    exact = dirdp.curator.exact_posterior(hair(), 20)
    exact["latent_counts"] = xr.DataTree(xr.Dataset({"p": exact["posterior"]["p"].astype(int)}))
    with pytest.raises(dirdp.errors.ReleaseError, match="marked as confidential"):
        dirdp.predict_log_proba(exact, {})


def test_what_cannot_be_read_is_refused_in_the_words_of_tables():
    with pm.Model() as model:
        mean = pm.Normal("mean")
        pm.Normal("seen", mean, observed=[1.0])
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="'mean'"):
        dirdp.curator.exact_posterior(model)
    with pytest.raises(dirdp.errors.ArgumentError, match="Expected a PyMC model, got none"):
        dirdp.curator.exact_posterior()
