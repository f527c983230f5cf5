"""Noisy tables as observed variables: verbs of PyMC and ArviZ, what is drawn, and their log-probability."""

import copy

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key
from scipy.special import expit, logsumexp
from scipy.stats import binom

import pymc_dirdp as dirdp
from pymc_dirdp.inference.joint_rows import JointRows
from pymc_dirdp.inference.noisy_rows import NoisyRows
from pymc_dirdp.models.graph import PLAIN
from pymc_dirdp.releases.counts_logp import RowsLogp, rows_logp
from pymc_dirdp.releases.opened import open_release

PURE, DRAWS = dirdp.PureDP(epsilon=1.0), 500
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
NOISY, NOISE = np.array([[3.0, -1.0, 6.0], [2.0, 2.0, 1.0]]), np.array([0.0, 0.5, 0.0])
TOTALS, LOGS = np.array([8, 5]), np.log([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])


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


def private_of(kind):
    make, said = KINDS[kind]
    return dirdp.private_model(PURE, make(), random_seed=1, **said)


@pytest.mark.filterwarnings("ignore")
def test_verbs_of_pymc_and_arviz():
    model = private_of("numbers of people")
    (observed,) = [rv.name for rv in model.observed_RVs]
    options = {"progressbar": False, "random_seed": 1}
    with model:
        idata = pm.sample(20, tune=20, chains=2, cores=1, compute_convergence_checks=False, **options)
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
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    again = cloudpickle.loads(cloudpickle.dumps(function))
    point = pm.blocking.DictToArrayBijection.map(model.initial_point())
    for this, that in zip(function(point), again(point), strict=True):
        np.testing.assert_array_equal(this, that)


@pytest.mark.parametrize("kind", ["private number", "numbers of people", "joint noise"])
def test_copies_and_other_forms_have_the_same_log_probability(kind):
    model = private_of(kind)
    at = model.initial_point()
    expected = model.compile_logp(mode=PLAIN)(at)
    for other in (freeze_dims_and_data(model), copy.deepcopy(model), cloudpickle.loads(cloudpickle.dumps(model))):
        assert other.compile_logp(mode=PLAIN)(at) == pytest.approx(expected, rel=1e-12)
    seen = pm.observe(model, {"e": np.full(model["e"].shape.eval(), 0.3)})
    assert np.isfinite(seen.compile_logp(mode=PLAIN)(seen.initial_point()))
    for formatting in ("plain", "latex"):
        assert any(name in model.str_repr(formatting=formatting) for name in ("Noisy", "JointCounts"))


# In two of the tables with joint noise, all have the same answer.
EFFECT, LEVEL = np.array([0.3, -1.2, 2.0, 0.0]), np.array([40.0, -40.0, 0.3])
SHARES, EXPECTED, CASES = np.array([0.1, 0.2, 0.3, 0.4]), np.array([10.0, 20, 30, 40]), 10 * np.exp(0.1 * np.arange(6))
P, LEVELS = (np.stack([1 - expit(logits), expit(logits)], axis=1) for logits in (EFFECT, LEVEL))
# The parameters of each kind, the mean of its counts given the totals, and their variance without the noise.
MOMENTS = {
    "public rows": ({"e": EFFECT}, lambda n: (n * P, n * P * (1 - P))),
    "private covariates": (
        {"e": EFFECT, "y_shares": SHARES},
        lambda n: (120 * SHARES[:, None] * P, 120 * SHARES[:, None] * P * (1 - SHARES[:, None] * P)),
    ),
    "private number": ({"e": EFFECT, "y_expected": EXPECTED}, lambda n: (EXPECTED[:, None] * P,) * 2),
    "numbers of people": ({"e": 10.0, "s": 0.1}, lambda n: (CASES, CASES + CASES**2 / 3)),
    "joint noise": ({"e": LEVEL}, lambda n: (80 * LEVELS, 80 * LEVELS * (1 - LEVELS))),
}


@pytest.mark.parametrize("kind", MOMENTS)
def test_moments_are_those_of_the_counts_and_the_noise(kind):
    values, moments = MOMENTS[kind]
    private = private_of(kind)
    (rv,) = private.observed_RVs
    part = open_release(dirdp.releases.release_of(private)).plan.parts[0]
    mean, variance = moments(np.array(part.totals, dtype=float)[:, None] if kind == "public rows" else None)
    variance = variance + part.mechanism.noise_sd**2
    drawn = pm.draw(pm.do(private, values)[rv.name], DRAWS, random_seed=1, mode=PLAIN).reshape(DRAWS, *mean.shape)
    off = (drawn - mean) / np.sqrt(variance)
    assert (np.abs(off.mean(axis=0)) < 5 / np.sqrt(DRAWS)).all()
    squares = (off**2).reshape(DRAWS, -1).mean(axis=1)
    assert abs(squares.mean() - 1) < 5 * squares.std() / np.sqrt(DRAWS) < 0.3
    if kind == "private covariates":
        assert (drawn.sum(axis=(1, 2)) == 120).all()
    if kind == "joint noise":
        # All tables share one radius, so the sizes of their noises depend on each other; each adds up to 0.
        assert (drawn.sum(axis=2) == 80).all()
        assert np.corrcoef(np.abs(off[:, :2, 0].T))[0, 1] > 5 / np.sqrt(DRAWS)


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
    ("said", "reads"),
    [
        ({"public": ["region", "age"]}, ("age",)),
        ({"public": ["region"], "levels": {"age": 2}}, ()),
        ({"levels": {"region": 3, "age": 2}}, ("age",)),
        ({"levels": {"region": 3, "age": 2}, "adjacency": "add-remove"}, ()),
    ],
)
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
    labels = "y_cell" if "y_cell" in smaller.coords else "y_row"
    assert smaller.coords[labels] == private.coords[labels]
    point = {name: rng.normal(size=np.shape(value)) for name, value in smaller.initial_point().items()}
    whole = {name: np.zeros_like(value) for name, value in private.initial_point().items()} | point
    logp = [one.compile_logp(vars=one.observed_RVs, mode=PLAIN)(at) for one, at in ((smaller, point), (private, whole))]
    assert logp[0] == pytest.approx(logp[1])
    assert np.isfinite(logp[0])


def term(logs, totals=TOTALS):
    return rows_logp(NoisyRows, logs, NOISY, NOISE, np.empty((0, 0, 0)), totals)


@pytest.mark.parametrize("totals", [TOTALS, np.empty(0, dtype=np.int64)], ids=["public", "private"])
def test_python_and_numba_give_the_same_bits(totals):
    logs = pt.dmatrix("logs")
    value = term(logs, totals)
    outputs = [value, pytensor.grad(value.sum(), logs)]
    python, numba = (pytensor.function([logs], outputs, mode=mode)(LOGS) for mode in ("FAST_COMPILE", "NUMBA"))
    for this, that in zip(python, numba, strict=True):
        np.testing.assert_array_equal(this, that)


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_shapes_are_checked_before_memory_is_read(mode):
    logs = pt.dmatrix("logs")
    function = pytensor.function([logs], term(logs), mode=mode)
    with pytest.raises(ValueError, match="as many weights of cells as noisy counts"):
        function(LOGS[:, :2])


def test_what_was_compiled_is_known_by_its_kind_alone():
    keys = []
    for kind, arrays in ((NoisyRows, (np.empty((0, 0, 0)), TOTALS)), (NoisyRows, (np.empty((0, 0, 0)), TOTALS + 1))):
        node = RowsLogp(kind).make_node(LOGS, NOISY, NOISE, *arrays)
        keys.append(numba_funcify_and_cache_key(node.op, node=node)[1])
    assert keys[0] == keys[1] is not None
    assert RowsLogp(NoisyRows) == RowsLogp(NoisyRows)
    assert RowsLogp(NoisyRows) != RowsLogp(JointRows)
