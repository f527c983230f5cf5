"""Noisy tables as observed variables: verbs of PyMC and ArviZ on private models, and the moments of what is drawn."""

import copy
import math

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data
from scipy.special import expit, logsumexp
from scipy.stats import binom

import pymc_dirdp as dirdp
from pymc_dirdp.models.graph import PLAIN
from pymc_dirdp.releases.opened import open_release

PURE, DRAWS = dirdp.PureDP(epsilon=1.0), 3000
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")


def logit():
    rng = np.random.default_rng(1)
    with pm.Model(coords={"g": list("abcd")}) as model:
        which = pm.Data("w", rng.integers(4, size=120))
        effect = pm.Normal("e", 0, 1, dims="g")
        pm.Bernoulli("y", logit_p=effect[which], observed=rng.integers(2, size=120))
    return model


def cases():
    with pm.Model(coords={"year": range(6)}) as model:
        rate, trend = pm.Gamma("e", 2, 0.2), pm.Normal("s", 0, 0.1)
        mu = rate * pm.math.exp(trend * np.arange(6.0))
        pm.NegativeBinomial("y", mu=mu, alpha=3.0, observed=[8, 12, 9, 14, 6, 11], dims="year")
    return model


def items():
    rng = np.random.default_rng(3)
    with pm.Model() as model:
        level = pm.Normal("e", 0, 1, shape=3)
        for i in range(3):
            pm.Bernoulli(f"i{i}", logit_p=level[i], observed=rng.integers(2, size=80))
    return model


KINDS = {
    "public rows": (logit, {"public": ["w"]}),
    "private covariates": (logit, {"levels": {"w": 4}}),
    "private number": (logit, {"levels": {"w": 4}, "adjacency": "add-remove"}),
    "numbers of people": (cases, {"count_variables": ["y"]}),
    "joint noise": (items, {"mechanism": "joint"}),
}


def same(one, other, mode=PLAIN):
    """Whether two forms of a model have the same log-probability."""
    point = one.initial_point()
    expected = float(one.compile_logp(mode=PLAIN)(point))
    return float(other.compile_logp(mode=mode)(point)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["private number", "numbers of people", "joint noise"])
def test_verbs_of_pymc_and_arviz(kind):
    """Verbs of the table in docs/any_model.md."""
    make, said = KINDS[kind]
    model = dirdp.private_model(PURE, make(), random_seed=1, **said)
    (observed,) = [rv.name for rv in model.observed_RVs]
    options = {"progressbar": False, "random_seed": 1}
    with model:
        idata = pm.sample(100, tune=100, chains=2, cores=1, compute_convergence_checks=False, **options)
        idata.update(pm.sample_posterior_predictive(idata, **options))
        pm.compute_log_likelihood(idata, progressbar=False)
        pm.compute_log_prior(idata, progressbar=False)
        prior = pm.sample_prior_predictive(20, random_seed=1, compile_kwargs={"mode": PLAIN})
    shape = idata.observed_data[observed].shape
    assert np.isfinite(idata.posterior["e"]).all()
    assert np.isfinite(idata.log_likelihood[observed]).all()
    assert set(idata.log_prior) == {rv.name for rv in model.free_RVs}
    assert idata.posterior_predictive[observed].dims[:2] == ("chain", "draw")
    assert idata.posterior_predictive[observed].dtype == np.int64
    assert prior.prior_predictive[observed].shape[2:] == shape
    assert az.loo(idata, var_name=observed) is not None
    for other in (freeze_dims_and_data(model), copy.deepcopy(model), cloudpickle.loads(cloudpickle.dumps(model))):
        assert same(model, other)
    assert same(model, model, "NUMBA")
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    again = cloudpickle.loads(cloudpickle.dumps(function))
    point = pm.blocking.DictToArrayBijection.map(model.initial_point())
    for this, that in zip(function(point), again(point), strict=True):
        np.testing.assert_array_equal(this, that)
    values = {"e": np.full(model["e"].shape.eval(), 0.3)}
    known, seen = pm.do(model, values), pm.observe(model, values)
    assert "e" not in {rv.name for rv in known.free_RVs}
    assert pm.draw(known[observed], mode=PLAIN).shape == shape
    assert np.isfinite(seen.compile_logp(mode=PLAIN)(seen.initial_point()))
    for formatting in ("plain", "latex"):
        assert any(name in model.str_repr(formatting=formatting) for name in ("Noisy", "JointCounts"))


def fixed(kind, **values):
    """Draws of the noisy table at these parameters, and the parts of the plan."""
    make, said = KINDS[kind]
    private = dirdp.private_model(PURE, make(), random_seed=1, **said)
    parts = open_release(dirdp.releases.release_of(private)).plan.parts
    (rv,) = private.observed_RVs
    return pm.draw(pm.do(private, values)[rv.name], DRAWS, random_seed=1, mode=PLAIN), parts


def assert_moments(drawn, mean, variance):
    """Mean and variance of each cell within five standard errors; the noise has longer tails than a normal one."""
    n, off = len(drawn), drawn - mean
    assert (np.abs(off.mean(axis=0)) < 5 * np.sqrt(variance / n)).all()
    error = np.sqrt(((off**2 - variance) ** 2).mean(axis=0) / n)
    assert (np.abs((off**2).mean(axis=0) - variance) < 5 * error).all()


EFFECT = np.array([0.3, -1.2, 2.0, 0.0])
P = np.stack([1 - expit(EFFECT), expit(EFFECT)], axis=1)


def test_moments_of_rows_with_public_totals():
    drawn, (part,) = fixed("public rows", e=EFFECT)
    n = np.array(part.totals, dtype=float)[:, None]
    assert_moments(drawn, n * P, n * P * (1 - P) + part.mechanism.noise_sd**2)


def test_moments_of_private_covariates():
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    drawn, (part,) = fixed("private covariates", e=EFFECT, y_shares=shares)
    p = shares[:, None] * P
    assert_moments(drawn.reshape(DRAWS, 4, 2), 120 * p, 120 * p * (1 - p) + part.mechanism.noise_sd**2)
    # The noise adds up to 0, and so is correlated.
    assert (drawn.sum(axis=(1, 2) if drawn.ndim == 3 else 1) == 120).all()
    first, last = drawn.reshape(DRAWS, -1)[:, [0, 7]].T
    expected = -120 * p[0, 0] * p[3, 1] - part.mechanism.noise_sd**2 / 7
    assert np.cov(first, last)[0, 1] == pytest.approx(expected, abs=5 * first.std() * last.std() / np.sqrt(DRAWS))


def test_moments_of_a_private_number():
    expected = np.array([10.0, 20.0, 30.0, 40.0])
    drawn, (part,) = fixed("private number", e=EFFECT, y_expected=expected)
    mu = expected[:, None] * P
    assert_moments(drawn, mu, mu + part.mechanism.noise_sd**2)


def test_moments_of_numbers_of_people():
    drawn, (part,) = fixed("numbers of people", e=10.0, s=0.1)
    mu = 10 * np.exp(0.1 * np.arange(6.0))
    assert_moments(drawn, mu, mu + mu**2 / 3 + part.mechanism.noise_sd**2)


def test_moments_of_joint_noise():
    """All tables share one radius, so the sizes of their noises depend on each other; each adds up to 0."""
    level = np.array([0.3, -1.2, 2.0])
    drawn, parts = fixed("joint noise", e=level)
    p = np.stack([1 - expit(level), expit(level)], axis=1).ravel()
    assert (drawn.reshape(-1, 3, 2).sum(axis=2) == 80).all()
    assert_moments(drawn, 80 * p, 80 * p * (1 - p) + parts[0].mechanism.noise_sd ** 2)
    noise = parts[0].mechanism.noisy_marginals[0].noise.draw((DRAWS, 1, 6), np.random.default_rng(2)).reshape(-1, 3, 2)
    many = np.random.default_rng(3).binomial(80, p[1::2], size=(DRAWS, 3)) + noise[..., 1]
    quantiles = [0.05, 0.25, 0.5, 0.75, 0.95]
    spread, other = (np.abs(x - 80 * p[1::2]).sum(axis=1) for x in (drawn[:, 1::2], many))
    np.testing.assert_allclose(np.quantile(spread, quantiles), np.quantile(other, quantiles), atol=4.0)
    assert math.isclose(np.corrcoef(spread, other)[0, 1], 0.0, abs_tol=0.1)


def test_other_noisy_counts_have_a_likelihood_of_their_own():
    """What was computed of the published ones is of no use for them. Oracle: the sum over all counts of each row."""
    private = dirdp.private_model(PURE, logit(), public=["w"], random_seed=1)
    y = private["y"]
    _, totals, noise, terms = (one.eval() for one in y.owner.op.dist_params(y.owner))
    published = private.rvs_to_values[y].eval()
    np.testing.assert_array_equal(terms[:, :3], np.column_stack([published, totals]))
    for noisy in (published, published + [1, -1], published[::-1], published + [0, 1]):
        found = pm.logp(y, noisy).eval({private["e"]: np.zeros(4)})
        for row, n in enumerate(totals.ravel()):
            x = np.arange(n + 1)
            distances = abs(noisy[row, 0] - x) + abs(noisy[row, 1] - (n - x))
            logs = binom.logpmf(x, n, 0.5) - noise.ravel()[1] * distances + 2 * noise.ravel()[2]
            assert found[row] == pytest.approx(logsumexp(logs), rel=1e-12)


@pytest.mark.parametrize(
    "said",
    [
        {"public": ["region", "age"]},
        {"public": ["region"], "levels": {"age": 2}},
        {"levels": {"region": 3, "age": 2}},
        {"levels": {"region": 3, "age": 2}, "adjacency": "add-remove"},
    ],
)
@pytest.mark.parametrize("reads", [("age",), ()])
def test_a_model_without_a_covariate_has_the_likelihood_of_the_same_release(said, reads):
    rng = np.random.default_rng(4)
    codes = {"region": rng.integers(3, size=150), "age": rng.integers(2, size=150)}
    answers = rng.integers(3, size=150)

    def model(reads):
        with pm.Model(coords={"regions": list("abc"), "ages": ["young", "old"], "answer": range(3)}) as made:
            logits = pm.Normal("mean", 0, 1, dims="answer")
            for name in reads:
                effect = pm.Normal(f"{name}_effect", 0, 1, dims=(f"{name}s", "answer"))
                logits = logits + effect[pm.Data(name, codes[name])]
            pm.Categorical("y", logit_p=logits, observed=answers, shape=150)
        return made

    private = dirdp.private_model(PURE, model(("region", "age")), **said, random_seed=1)
    declared = {
        "public": [name for name in said.get("public", ()) if name in reads],
        "levels": {name: k for name, k in said.get("levels", {}).items() if name in reads},
    }
    smaller = dirdp.private_model(dirdp.releases.release_of(private), model(reads), **declared)
    assert (
        dict(smaller.coords)["y_cell" if "y_cell" in smaller.coords else "y_row"]
        == dict(private.coords)["y_cell" if "y_cell" in private.coords else "y_row"]
    )
    # Without their effects, the larger model is the smaller one.
    point = {name: rng.normal(size=np.shape(value)) for name, value in smaller.initial_point().items()}
    whole = {name: np.zeros_like(value) for name, value in private.initial_point().items()} | point
    logp = [one.compile_logp(vars=one.observed_RVs, mode=PLAIN)(at) for one, at in ((smaller, point), (private, whole))]
    assert logp[0] == pytest.approx(logp[1])
    assert np.isfinite(logp[0])
