"""Models to start from, and counts behind their draws."""

import itertools

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.special import gammaln, softmax
from scipy.stats import chi2

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError
from tests.planned import planned_sample

from .test_likelihood import only

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-4)


def released(counts=(30, 20, 10), prior=(1.0, 2.0, 3.0), **options):
    with pm.Model(coords={"hair": ["black", "brown", "red"]}):
        p = pm.Dirichlet("p", a=np.array(prior), dims="hair")
        pm.Multinomial("students", n=int(np.sum(counts)), p=p, observed=counts)
        return planned_sample(APPROX, **options)


def two_tables():
    with pm.Model(coords={"department": list("AB"), "hair": ["black", "brown", "red"]}):
        rate = pm.Beta("rate", [1, 2], 1, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
        p = pm.Dirichlet("p", a=np.ones(3), dims="hair")
        pm.Multinomial("students", n=70, p=p, observed=[30, 30, 10])
        return dirdp.sample(APPROX, contribution=1, mechanism="geometric")


def draws_of(**shares):
    """What `pm.sample` returns, with shares that are given."""
    return xr.DataTree.from_dict({"/posterior": xr.Dataset(shares)})


def test_the_model_has_the_names_dims_and_labels_of_the_release():
    model = dirdp.releases.analyst_model(two_tables())
    assert sorted(variable.name for variable in model.free_RVs) == ["p", "rate"]
    assert [potential.name for potential in model.potentials] == ["rate_release", "p_release"]
    assert model.named_vars_to_dims == {"rate": ("department",), "p": ("hair",)}
    assert model.coords == {"department": ("A", "B"), "hair": ("black", "brown", "red")}
    assert np.isfinite(model.compile_logp()(model.initial_point()))
    with model:
        pm.Deterministic("odds", model["rate"] / (1 - model["rate"]), dims="department")
    assert "odds" in model.named_vars


def test_some_tables_and_a_prior_of_ones_own():
    release = two_tables()
    model = dirdp.releases.analyst_model(release, ["p"], prior={"p": [5.0, 6.0, 7.0]})
    assert [variable.name for variable in model.free_RVs] == ["p"]
    assert model["p"].owner.op.dist_params(model["p"].owner)[0].eval().tolist() == [5.0, 6.0, 7.0]
    assert [variable.name for variable in dirdp.releases.analyst_model(release, "rate").free_RVs] == ["rate"]
    for wrong, problem in ((["q"], "no table 'q'"), ([], "at least one table")):
        with pytest.raises(ArgumentError, match=problem):
            dirdp.releases.analyst_model(release, wrong)


def test_the_posterior_is_that_of_the_exact_sums():
    """The model's density, summed over a grid of the simplex, has the means of `estimate`."""
    release = released((5, 3, 1), (1.0, 1.0, 2.0), mechanism="geometric")
    model = dirdp.releases.analyst_model(release)
    steps = np.arange(0.5, 60) / 60
    grid = np.array([(a, b, 1 - a - b) for a, b in itertools.product(steps, steps) if a + b < 1 - 1e-9])
    logp = model.compile_logp(jacobian=False)
    points = np.log(grid) - np.log(grid).mean(axis=1, keepdims=True)
    density = softmax([float(logp({"p_simplex__": point[:2]})) for point in points])
    estimates = dirdp.estimate(release).tables["p"]
    np.testing.assert_allclose(density @ grid, estimates.share_means, atol=2e-3)
    np.testing.assert_allclose(density @ grid**2 - (density @ grid) ** 2, estimates.share_sds**2, rtol=2e-2)


@pytest.mark.thorough
def test_counts_given_shares_have_the_distribution_of_all_tables():
    release = released((7, 4, 1), mechanism="geometric")
    shares = np.array([0.4, 0.4, 0.2])
    idata = draws_of(p=(("chain", "draw", "hair"), np.broadcast_to(shares, (2, 1500, 3))))
    counts = dirdp.releases.latent_counts(idata, release, random_seed=1)["p"]
    assert counts.dims == ("chain", "draw", "hair")
    assert counts.dtype == np.int64
    assert counts["hair"].values.tolist() == ["black", "brown", "red"]
    one = only(release, None, None, None)
    x = np.array([x for x in itertools.product(range(13), repeat=3) if sum(x) == 12], dtype=float)

    def p_value(shares):
        logs = one.drawn.mechanism.log_likelihood(one.drawn.published[0], x)
        distribution = softmax(logs + np.sum(x * np.log(shares) - gammaln(x + 1), axis=1))
        place = {tuple(table): i for i, table in enumerate(x.astype(int).tolist())}
        drawn = counts.values.reshape(-1, 3).tolist()
        seen, expected = np.bincount([place[tuple(c)] for c in drawn], minlength=len(x)), distribution * len(drawn)
        rare = expected < 10
        seen, expected = (np.append(values[~rare], values[rare].sum()) for values in (seen, expected))
        return chi2.sf(np.sum((seen - expected) ** 2 / expected), len(seen) - 1)

    assert p_value(shares) > 1e-6
    assert p_value(np.array([0.46, 0.36, 0.18])) < 1e-6


def test_counts_of_rows_and_of_private_numbers():
    release = two_tables()
    both = dirdp.releases.latent_counts(dirdp.analyse(release, 5, chains=1), release, random_seed=1)
    assert both["rate"].dims == ("chain", "draw", "department", "rate_outcome")
    assert np.all(both["rate"].sum(("department", "rate_outcome")) == 70)
    private = released(adjacency="add-remove", n_records=100)
    totals = dirdp.releases.latent_counts(dirdp.analyse(private, 40, chains=1, n_prior=200), private, n_prior=200)[
        "p"
    ].sum("hair")
    assert totals.max() <= 200
    assert len(np.unique(totals)) > 5


def test_a_draw_of_zero_is_an_empty_cell():
    dims = ("chain", "draw", "hair")
    edge = draws_of(p=(dims, np.array([[[0.5, 0.5, 0.0]]])))
    assert dirdp.releases.latent_counts(edge, released(mechanism="geometric"))["p"].values[0, 0, 2] == 0
    with pytest.raises(ArgumentError, match="Did your model use this release"):
        dirdp.releases.latent_counts(edge, released(min_count=1))


def test_draws_that_do_not_fit_are_refused():
    release, dims = released(), ("chain", "draw", "hair")
    for idata in (None, draws_of()["posterior"], {"posterior": 1}):
        with pytest.raises(ArgumentError, match="group posterior"):
            dirdp.releases.latent_counts(idata, release)
    with pytest.raises(ArgumentError, match="at least one table"):
        dirdp.releases.latent_counts(draws_of(q=(("chain", "draw"), [[0.5]])), release)
    with pytest.raises(ArgumentError, match=r"draws of 'p', with the dims"):
        dirdp.releases.latent_counts(draws_of(q=(("chain", "draw"), [[0.5]])), release, "p")
    with pytest.raises(ArgumentError, match=r"shape \(3,\), got \(2,\)"):
        dirdp.releases.latent_counts(draws_of(p=(dims, [[[0.5, 0.5]]])), release)
    for wrong in ([0.5, 0.3, 0.3], [0.5, 0.7, -0.2], [np.nan, 0.5, 0.5]):
        with pytest.raises(ArgumentError, match="no probabilities"):
            dirdp.releases.latent_counts(draws_of(p=(dims, [[wrong]])), release)
    with pytest.raises(ReleaseError, match="Expected a release"):
        dirdp.releases.latent_counts(draws_of(p=(dims, [[[0.5, 0.3, 0.2]]])), 3)
