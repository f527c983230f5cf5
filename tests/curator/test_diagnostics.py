"""The curator's diagnostics: closed forms, ArviZ, and the mark that none of it may be published."""

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats
from scipy.special import digamma, gammaln, rel_entr

import pymc_dirdp as dirdp
from pymc_dirdp.curator import posterior as posterior_tree
from pymc_dirdp.curator.diagnostics import diagnose
from pymc_dirdp.curator.realised import by_size, exact_posterior_of, frequencies, simplex
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.models.graph import PLAIN, evaluate
from pymc_dirdp.models.observations import find_observations, read_counts
from pymc_dirdp.planning.draw_error import expected_kl
from tests.curator.observed_models import HAIR, A, B, N, admissions_model, hair_model, network
from tests.planned import planned_sample

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
RNG = np.random.default_rng(5)
POSTERIORS = ["non_private", "private"]


@pytest.fixture(scope="module")
def hair():
    model = hair_model()
    release = dirdp.sample(TARGET, model)
    return model, release, diagnose(release, model, draws=500, random_seed=1)


@pytest.fixture(scope="module")
def admissions():
    model = admissions_model()
    release = planned_sample(TARGET, model, released_draws=3, adjacency="add-remove", n_records=2000)
    return model, release, diagnose(release, model, draws=500, random_seed=2)


@pytest.fixture(scope="module")
def whole():
    model = network()
    release = planned_sample(dirdp.ApproxDP(epsilon=3, delta=1e-4), model, released_draws=2, unit=0)
    return model, release, diagnose(release, model, draws=400, random_seed=3)


def distributions(model, release):
    """By hand: the parameters of both distributions of each table."""
    found = {}
    for table in dirdp.tables(model):
        x, group = read_counts(find_observations([table], model)), release["mechanism"][table.name]
        found[table.name] = x + table.prior, float(group["r"]) * x + group["alpha"].values
    return found


def first(tree, name):
    values = tree["posterior"][name].values
    return values.reshape(-1, *values.shape[2:])


@pytest.mark.parametrize("which", ["admissions", "whole"])
@pytest.mark.thorough
def test_draws_are_those_of_the_closed_forms(which, request):
    """Means and variances of SciPy, within six Monte Carlo errors."""
    model, release, diagnosis = request.getfixturevalue(which)
    for table in dirdp.tables(model):
        for name, u in zip(POSTERIORS, distributions(model, release)[table.name], strict=True):
            drawn, total = first(diagnosis[name], table.name), u.sum(axis=-1, keepdims=True)
            mean, variance = u / total, u * (total - u) / total**2 / (total + 1)
            if table.family == "beta":
                mean, variance = mean[..., 0], variance[..., 0]
            assert np.all(np.abs(drawn.mean(axis=0) - mean) < 6 * np.sqrt(variance / len(drawn)))
            squares = (drawn - mean) ** 2
            assert np.all(np.abs(squares.mean(axis=0) - variance) < 6 * squares.std(axis=0) / np.sqrt(len(drawn)))


@pytest.mark.thorough
def test_the_prior_is_that_of_pymc_in_the_coordinates_of_samplers(whole):
    """Oracle: PyMC's own log-probability of the user's graph. Constants drop out."""
    model, _, _ = whole
    start = model.initial_point()
    points = [{name: value + RNG.normal(size=value.shape) for name, value in start.items()} for _ in range(3)]
    logp = model.compile_logp(vars=model.free_RVs, jacobian=True, mode=PLAIN)
    ours = np.zeros(len(points))
    for table in dirdp.tables(model):
        rv, distribution = model[table.name], exact_posterior_of(table, model)
        backward = model.rvs_to_transforms[rv].backward
        for i, point in enumerate(points):
            value = evaluate(backward(pt.as_tensor(point[model.rvs_to_values[rv].name]), *rv.owner.inputs))
            ours[i] += distribution.log_prior(simplex(table, value)).sum()
    np.testing.assert_allclose(np.diff([logp(point) for point in points]), np.diff(ours), rtol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("which", ["admissions", "whole"])
def test_log_likelihood_is_that_of_pymc_to_the_power_r(which, request):
    model, release, diagnosis = request.getfixturevalue(which)
    for name in POSTERIORS:
        few = diagnosis[name]["posterior"].to_dataset().isel(chain=slice(1), draw=slice(20))
        tree = xr.DataTree.from_dict({"/posterior": few[[table.name for table in dirdp.tables(model)]]})
        oracle = pm.compute_log_likelihood(
            tree, model=model, progressbar=False, extend_inferencedata=False, compile_kwargs={"mode": PLAIN}
        )
        ours = diagnosis[name]["log_likelihood"]
        for table in dirdp.tables(model):
            r = 1.0 if name == "non_private" else float(release["mechanism"][table.name]["r"])
            for likelihood in table.likelihoods:
                one = ours[likelihood.name].isel(chain=slice(1), draw=slice(20))
                assert one.shape == oracle[likelihood.name].shape
                # PyMC's number of arrangements of a Multinomial is in single precision, and the same for all draws.
                relative = [value - value.isel(draw=0) for value in (one, r * oracle[likelihood.name])]
                np.testing.assert_allclose(*relative, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(one, r * oracle[likelihood.name], rtol=1e-5)
                assert ours.attrs[f"power_{likelihood.name}"] == r


def test_arviz_leaves_records_out_and_compares_and_finds_sensitivities(whole, hair):
    """Oracles: a record left out by hand; and the mechanism adds to the prior and takes from the likelihood."""
    model, _, diagnosis = whole
    results = {}
    for name, table in (("a", "p_a"), ("b", "p_b")):
        results[name] = az.loo(diagnosis["non_private"], var_name=name, pointwise=True)
        x = read_counts(find_observations([next(one for one in dirdp.tables(model) if one.name == table)], model))
        # Both priors are flat, and a record is in a cell of `x` records.
        by_hand = (x * np.log(x / (x.sum(axis=-1, keepdims=True) - 1 + x.shape[-1]))).sum()
        assert results[name].n_data_points == N
        assert not results[name].warning
        assert results[name].elpd == pytest.approx(by_hand, abs=0.1)
    assert list(az.compare(results).index) == ["b", "a"]
    prior = {name: az.psense_summary(hair[2][name], var_names="p", round_to=10)["prior"] for name in POSTERIORS}
    assert np.all(prior["private"] > prior["non_private"])


@pytest.mark.parametrize("which", ["hair", "admissions", "whole"])
def test_realised_losses_are_the_formulas(which, request):
    model, release, diagnosis = request.getfixturevalue(which)
    realised = diagnosis["realised"].to_dataset()
    for table in dirdp.tables(model):
        x, (u, v) = read_counts(find_observations([table], model)), distributions(model, release)[table.name]
        y = release["posterior"][table.name].values[0]
        y = np.stack([y, 1 - y], axis=-1) if table.family == "beta" else y
        sizes = x.sum(axis=-1)
        with np.errstate(invalid="ignore"):
            p = x / sizes[..., None]
        rows = rel_entr(p, y).sum(axis=-1)
        own = realised.sel(table=table.name)
        averaged = np.nansum(rows * sizes, axis=tuple(range(1, rows.ndim))) / sizes.sum()
        np.testing.assert_allclose(own["kl_release"], averaged)
        u0, v0 = u.sum(axis=-1), v.sum(axis=-1)
        posterior = gammaln(u0) - gammaln(v0) + (gammaln(v) - gammaln(u)).sum(axis=-1)
        posterior += ((u - v) * (digamma(u) - digamma(u0)[..., None])).sum(axis=-1)
        assert float(own["kl_posterior"]) == pytest.approx(posterior.sum(), rel=1e-8)
        assert float(own["kl_release_mean"]) == by_size(x, expected_kl(frequencies(x), v))
        for what in ("posterior", "estimate"):
            ours = "kl_posterior_expected" if what == "posterior" else "kl_release_expected"
            planned = release["utility"][f"expected_kl_{what}"].sel(table=table.name)
            np.testing.assert_array_equal(own[ours], planned)


@pytest.mark.thorough
# Random counts descend now and then.
@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.CategoriesFromDataWarning")
def test_ranks_are_uniform_where_the_reference_is_the_truth():
    """Draws of the private posterior among such draws, and data from the prior among data from the prior."""
    model = hair_model()
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        release = planned_sample(dirdp.RenyiDP(order=4, epsilon=50), model, released_draws=400, random_seed=5)
    realised = diagnose(release, model, draws=100, random_seed=6)["realised"]
    # The reference has 500 draws, so its error is part of the distance.
    distance = stats.kstest(realised["kl_release_rank"].values[0], "uniform").statistic
    assert stats.kstwobign.sf(distance * np.sqrt(400 * 500 / 900)) > 1e-6
    assert stats.spearmanr(realised["kl_release"].values[0], realised["kl_release_rank"].values[0]).statistic > 0.99
    rng, losses, ranks = np.random.default_rng(7), [], []
    for _ in range(20):
        model = hair_model(rng.multinomial(300, rng.dirichlet([1, 1, 1, 1])))
        release = dirdp.sample(TARGET, model, mechanism=Dirichlet(strategy="temper"))
        realised = diagnose(release, model, draws=100, random_seed=rng)["realised"]
        losses.append(realised["kl_posterior"].item())
        ranks.append(realised["kl_posterior_rank"].item())
    assert stats.kstest(ranks, "uniform").pvalue > 1e-6
    assert stats.spearmanr(losses, ranks).statistic > 0.9


def test_the_release_is_neither_changed_nor_marked(hair):
    _, release, diagnosis = hair
    assert "confidential" not in repr(release)
    assert not any("confidential" in variable.attrs for variable in release["posterior"].data_vars.values())
    xr.testing.assert_equal(release["posterior"]["p"], diagnosis["release"]["p"])


def test_groups_and_names_are_those_of_pymc(whole):
    _, _, diagnosis = whole
    for name in POSTERIORS:
        tree = diagnosis[name]
        groups = {"posterior", "prior", "log_prior", "log_likelihood", "observed_data", "posterior_predictive"}
        assert set(tree.children) == groups
        assert set(tree["posterior"].data_vars) == {"p_a", "p_b", "p_c", "lift"}
        assert tree["posterior"]["p_c"].dims == ("chain", "draw", "A", "B", "C")
        assert list(tree["posterior"]["C"].values) == list("pqrs")
        np.testing.assert_allclose(
            tree["posterior"]["lift"], tree["posterior"]["p_b"][..., 2] - tree["posterior"]["p_b"][..., 0]
        )
        np.testing.assert_array_equal(tree["observed_data"]["a"], A)
        dims = {"log_likelihood/a": ("record",), "log_prior/p_c": ("A", "B"), "log_prior/p_b": ("A",)}
        assert {name: tree[name].dims[2:] for name in dims} == dims


def test_replicated_data_follow_the_draws(hair, admissions, whole):
    """Given a draw, counts have its probabilities as means: residuals in standard errors, all draws together."""
    for (_, _, diagnosis), counts, p, n in (
        (hair, "students", "p", 592),
        (admissions, "admitted", "rate", np.array([933, 585, 918])),
    ):
        drawn = diagnosis["private/posterior_predictive"][counts].values
        p = diagnosis["private/posterior"][p].values
        z = (drawn - n * p) / np.sqrt(n * p * (1 - p))
        assert np.all(np.abs(z.mean(axis=(0, 1))) < 6 / np.sqrt(2000))
    assert np.all(hair[2]["private/posterior_predictive"]["students"].sum(axis=-1) == 592)
    tree = whole[2]["private"]
    codes, p_c = tree["posterior_predictive"]["c"].values, tree["posterior"]["p_c"].values[:, :, A, B]
    for category in range(4):
        expected = p_c[..., category]
        spread = np.sqrt((expected * (1 - expected)).sum())
        assert abs(((codes == category) - expected).sum()) < 6 * spread


@pytest.mark.parametrize(
    ("dims", "mechanism"), [(("kl_release", "records"), "dirichlet"), (("share", "estimate"), "geometric")]
)
def test_dims_may_have_the_names_of_results(dims, mechanism):
    with pm.Model(coords={dims[0]: list("ab"), dims[1]: list("xyz")}) as model:
        theta = pm.Dirichlet("theta", a=np.ones((2, 3)), dims=dims)
        pm.Multinomial("n", n=[3, 4], p=theta, observed=[[1, 1, 1], [2, 2, 0]])
    diagnosis = diagnose(dirdp.sample(TARGET, model, mechanism=mechanism), model, draws=100)
    assert diagnosis["private/posterior"]["theta"].dims == ("chain", "draw", *dims)
    assert diagnosis["cells/theta"]["records"].dims == tuple(f"{dim}_labels" for dim in dims)
    assert "theta[a, z]" in str(dirdp.report(diagnosis))


@pytest.mark.thorough
def test_too_many_observations_are_summed(monkeypatch, whole):
    model, release, diagnosis = whole
    monkeypatch.setitem(posterior_tree._observed_groups.__kwdefaults__, "max_values", 1000)
    short = diagnose(release, model, draws=400, random_seed=3)
    for name in POSTERIORS:
        assert "posterior_predictive" not in short[name].children
        assert "summed" in short[name]["log_likelihood"].attrs
        for observed, dim in (("a", "record"), ("b", "b_dim_0"), ("c", "c_dim_0")):
            np.testing.assert_allclose(
                short[name]["log_likelihood"][observed], diagnosis[name]["log_likelihood"][observed].sum(dim)
            )
    az.psense_summary(short["private"])


def test_no_records_and_empty_cells():
    model = hair_model([0, 0, 0, 0])
    diagnosis = diagnose(dirdp.sample(TARGET, model), model, draws=100)
    assert np.isnan(diagnosis["realised"]["kl_release"].item())
    assert diagnosis["realised"]["kl_posterior"].item() == pytest.approx(0, abs=1e-12)
    model = hair_model([5, 0, 0, 0], prior=(0.05, 0.05, 0.05, 0.05))
    diagnosis = diagnose(dirdp.sample(TARGET, model), model, draws=100)
    for node in diagnosis.subtree:
        if node.name in ("posterior", "log_prior", "log_likelihood"):
            # The odds may be infinite, where p is 1 but for rounding.
            assert all(np.all(np.isfinite(values)) for name, values in node.data_vars.items() if name != "odds")


def test_another_model_is_refused(hair):
    _, release, _ = hair
    for given, options, words in (
        ((xr.DataTree(), hair_model()), {}, "lacks the group"),
        ((release, hair_model()), {"draws": 10}, "draws"),
        ((release,), {}, "model"),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=words):
            diagnose(*given, **options)
    with pm.Model() as model:
        p = pm.Dirichlet("p", [1, 1, 1, 1])
        pm.Multinomial("pupils", n=592, p=p, observed=HAIR)
    for other in (admissions_model(), hair_model(prior=(1, 1, 1, 2)), hair_model(HAIR + 1), model):
        with pytest.raises(dirdp.errors.UnsupportedModelError, match="not the one that was planned") as caught:
            diagnose(release, other)
        assert "596" not in str(caught.value)
    # A guarantee that the data break is an error without a value.
    with pytest.raises(dirdp.errors.DataError) as caught:
        diagnose(planned_sample(TARGET, hair_model(), min_count=50), hair_model([49, 286, 71, 186]))
    assert not any(str(count) in str(caught.value) for count in (49, 286, 186))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [{"released_draws": 50}, {"adjacency": "add-remove", "n_records": 600}],
    ids=["many", "private N"],
)
def test_a_release_of_noise_is_diagnosed_without_what_needs_a_tempered_posterior(options):
    release = planned_sample(TARGET, hair_model(), mechanism="geometric", **options)
    diagnosis = diagnose(release, hair_model(), draws=200, chains=2, random_seed=4)
    assert {name for name in diagnosis["realised"].data_vars if not name.startswith("kl_estimate")} == set()
    assert set(diagnosis["private"].children) == {"posterior"}
    # Oracle: the means that anybody gets from the release.
    drawn, exact = first(diagnosis["private"], "p"), dirdp.estimate(release).tables["p"]
    assert drawn.shape == (400, 4)
    assert np.all(np.abs(drawn.mean(axis=0) - exact.share_means) < 6 * exact.share_sds / 20)
    np.testing.assert_allclose(diagnosis["cells/p"]["estimate"], exact.share_means)
    assert all("do not publish" in node.attrs["confidential"] for node in diagnosis.subtree)


def test_noise_of_several_tables_is_read_table_by_table():
    """Oracle: the estimates of each table on its own; for this seed those of all tables together are half an sd off."""
    columns = {"a": ["x", "y", "y"] * 10, "b": ["x", "x", "y"] * 10, "class": ["u", "v"] * 15}
    labels = {"a": ["x", "y"], "b": ["x", "y"], "class": ["u", "v"]}
    model = dirdp.naive_bayes(columns, "class", categories=labels)
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        release = dirdp.sample(dirdp.PureDP(epsilon=0.5), model, mechanism="geometric", random_seed=3)
    drawn = diagnose(release, model, draws=1000, chains=1)["private"]
    for name, estimate in dirdp.estimate(release, same_records=False).tables.items():
        error = first(drawn, name).mean(axis=0).ravel() - estimate.share_means.ravel()
        assert np.all(np.abs(error) < 6 * estimate.share_sds.ravel() / np.sqrt(1000))


PLOTS = {
    "plot_forest": {},
    "plot_loo_pit": {"var_names": "a"},
    "plot_ppc_dist": {"var_names": "c", "kind": "ecdf"},
    "plot_ppc_pava": {"var_names": "b"},
    "plot_ppc_rootogram": {"var_names": "c"},
    "plot_prior_posterior": {"var_names": "p_a"},
    "plot_psense_dist": {"var_names": "p_a"},
}


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.thorough
def test_plots_of_arviz(whole, name):
    if not hasattr(az, name):
        pytest.skip(f"this version of ArviZ has no {name}")
    getattr(az, name)(whole[2]["private"], backend="matplotlib", **PLOTS[name])
    plt.close("all")
