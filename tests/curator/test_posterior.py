"""The exact posterior without privacy: its distribution, its marks, and that nothing takes it for a release."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pymc_dirdp as dirdp
from tests.curator.observed_models import A, hair_model, network


def test_integrated_tables_and_rows_have_closed_forms():
    with pm.Model() as model:
        pm.DirichletMultinomial("words", n=[9, 6], a=[1.0, 2.0, 1.0], observed=[[4, 3, 2], [0, 6, 0]])
        pm.BetaBinomial("hits", n=[10, 20], alpha=1, beta=1, observed=[3, 18])
    tree = dirdp.curator.exact_posterior(model, 3000, random_seed=2)["posterior"]
    assert set(tree.data_vars) == {"words_p", "hits_p"}
    drawn = {(8, 2): tree["words_p"][0, :, 1, 1], (4, 8): tree["hits_p"][0, :, 0], (19, 3): tree["hits_p"][0, :, 1]}
    for (a, b), values in drawn.items():
        assert stats.kstest(values, stats.beta(a, b).cdf).pvalue > 1e-6
        # The same test sees it if records count seven tenths.
        assert stats.kstest(values, stats.beta(0.7 * a, 0.7 * b).cdf).pvalue < 1e-6


def test_a_deterministic_of_observed_records_reads_them():
    """`p[a]` is evaluated at the records that were observed, and not at records that are drawn anew."""
    with network() as model:
        pm.Deterministic("of_each", model["p_b"][model["a"]], dims="record")
        pm.Deterministic("code", model["a"] + 1)
    tree = dirdp.curator.exact_posterior(model, 50, random_seed=6)["posterior"]
    np.testing.assert_array_equal(tree["of_each"].values, tree["p_b"].values[:, :, A])


def test_it_is_what_a_diagnosis_holds():
    """With one chain and the same seed it is the same tree, so there is one implementation."""
    model = hair_model()
    release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model)
    diagnosis = dirdp.diagnose(release, model, draws=100, chains=1, random_seed=9)
    own = dirdp.curator.exact_posterior(model, 100, random_seed=9)
    xr.testing.assert_equal(diagnosis["non_private/posterior"]["p"], own["posterior"]["p"])
    assert set(diagnosis["non_private"].children) == set(own.children)


def test_everything_says_that_it_is_confidential():
    tree = dirdp.curator.exact_posterior(network(), 20)
    assert all("do not publish" in group.attrs["confidential"] for group in tree.subtree)
    assert all("confidential" in values.attrs for group in tree.subtree for values in group.data_vars.values())
    with pytest.raises(dirdp.errors.ReleaseError, match="no guarantee covers it"):
        dirdp.verify(tree)


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
    "diagnose": lambda tree: dirdp.diagnose(tree, hair_model()),
    "plot_draw": dirdp.plots.plot_draw,
    "plot_analysis": dirdp.plots.plot_analysis,
}


@pytest.mark.parametrize("part", ["the tree", "groups of an analysis"])
def test_no_function_takes_it_for_a_release(part):
    """Found by attack: an analysis is recognised by its groups, which anybody can put beside each other."""
    exact = dirdp.curator.exact_posterior(hair_model(), 20)
    if part != "the tree":
        exact["latent_counts"] = xr.DataTree(xr.Dataset({"p": exact["posterior"]["p"].astype(int)}))
    for use in USES.values():
        with pytest.raises(dirdp.errors.ReleaseError, match="got a tree that is marked as confidential"):
            use(exact)


def test_what_cannot_be_read_is_refused_in_the_words_of_tables():
    with pm.Model() as model:
        mean = pm.Normal("mean")
        pm.Normal("seen", mean, observed=[1.0])
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="'mean'"):
        dirdp.curator.exact_posterior(model)
    with pytest.raises(dirdp.errors.ArgumentError, match="Expected a PyMC model, got none"):
        dirdp.curator.exact_posterior()
