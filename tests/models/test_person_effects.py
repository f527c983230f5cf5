"""Several answers of a person: against sums over all tables, integrals by scipy, and what is refused with a way out."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.integrate import quad
from scipy.special import expit, gammaln, log_expit, log_ndtr, logsumexp
from scipy.stats import binom, norm, poisson

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, UnsupportedModelError
from pymc_dirdp.models.model_options import ModelOptions
from pymc_dirdp.models.person_effects import normal_rule
from pymc_dirdp.releases.model_tables import counting_of, read_model
from pymc_dirdp.releases.opened import open_release

PURE = dirdp.PureDP(epsilon=1.0)
ANSWERS = np.array([[0, 1], [1, 1], [0, 0], [1, 1], [1, 0]])
DIFFICULTY = np.array([-0.5, 0.7])
NAMES = {"person": range(5), "item": ["first", "second"]}
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.FewRecordsWarning")


@pytest.fixture
def ledger():
    return dirdp.Ledger(dirdp.PureDP(epsilon=5.0))


def part_of(private):
    stored = open_release(dirdp.releases.release_of(private))
    (part,) = stored.plan.parts
    return part, stored.release.output[part.table.name].values[0]


def likelihood(private):
    """The log-probability of what is published at a point, and the values of the free variables there, by name."""
    both, prior = private.compile_logp(), private.compile_logp(vars=private.free_RVs)
    values = private.compile_fn(
        private.replace_rvs_by_values(private.free_RVs), inputs=private.value_vars, point_fn=True
    )
    names = [rv.name for rv in private.free_RVs]
    return lambda point: (float(both(point) - prior(point)), dict(zip(names, values(point), strict=True)))


def nearby(private, seed=3):
    rng = np.random.default_rng(seed)
    return {
        name: value + rng.normal(scale=0.7, size=np.shape(value)) for name, value in private.initial_point().items()
    }


def every_table(n, cells):
    for places in itertools.combinations_with_replacement(range(cells), n):
        yield np.bincount(places, minlength=cells)


def by_hand(private, p, totals):
    """The sum over all tables whose rows have these totals, with the probabilities of the cells of each row."""
    part, noisy = part_of(private)
    logs = []
    for rows in itertools.product(*(list(every_table(n, len(own))) for n, own in zip(totals, p, strict=True))):
        x = np.array(rows)
        chance = (gammaln(x.sum(axis=1) + 1) + (x * np.log(p) - gammaln(x + 1)).sum(axis=1)).sum()
        logs.append(chance + part.mechanism.log_likelihood(noisy, x.reshape(part.table.shape)))
    return logsumexp(logs)


def combinations(mean, sd, difficulty=DIFFICULTY, probability=expit):
    """The probabilities of all combinations of answers, by an adaptive rule of scipy."""

    def chance(answers):
        def at(z):
            yes = probability(mean + sd * z - difficulty)
            return norm.pdf(z) * np.prod(np.where(answers, yes, 1 - yes))

        return quad(at, -9, 9, limit=400, epsabs=1e-15, epsrel=1e-13)[0]

    return np.array([chance(np.array(own)) for own in itertools.product([0, 1], repeat=len(difficulty))])


def asked(eta, name="y", **options):
    pm.Bernoulli(name, logit_p=eta, **{"observed": ANSWERS, "dims": ("person", "item")} | options)


def effect(name="theta", mean=0, sigma=1, **options):
    return pm.Normal(name, mean, sigma, **{"dims": "person"} | options)


def ability(**options):
    return effect(mean=pm.Normal("mean"), sigma=pm.HalfNormal("sigma", 1.5), **options)


def centred(observed=ANSWERS):
    asked(ability()[:, None] - DIFFICULTY, observed=observed)


def non_centred():
    """Items first, without dims."""
    z = effect(shape=5, dims=None)
    theta = pm.Deterministic("effect", pm.HalfNormal("sigma", 1.5) * z + pm.Normal("mean"))
    pm.Bernoulli("y", p=pm.math.invlogit(theta[None, :] - DIFFICULTY[:, None]), observed=ANSWERS.T)


def column():
    asked(ability(shape=(5, 1), dims=None) - DIFFICULTY, dims=None)


def several_variables():
    theta = ability()
    for k, name in enumerate(("first", "second")):
        asked(theta - DIFFICULTY[k], name, observed=ANSWERS[:, k], dims="person")


def model_of(make, **data):
    with pm.Model(coords=NAMES | {"record": range(10)}) as model:
        make(**data)
    return model


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (centred, {"unit": "person"}),
        (centred, {"unit": 0}),
        (non_centred, {"unit": 1}),
        (column, {"unit": 0}),
        (several_variables, {"unit": "person", "jointly": [["first", "second"]]}),
    ],
)
def test_an_effect_of_each_person_against_all_tables(make, said):
    private = dirdp.private_model(PURE, model_of(make), **said)
    assert [rv.name for rv in private.free_RVs if rv.name not in ("sigma", "mean")] == []
    assert [one.name for one in private.deterministics] == []
    part, _ = part_of(private)
    assert part.table.coords[part.table.dims[0]] == ("0,0", "0,1", "1,0", "1,1")
    at, point = likelihood(private), nearby(private)
    value, free = at(point)
    p = combinations(free["mean"], free["sigma"])
    assert value == pytest.approx(by_hand(private, p[None], [5]), rel=1e-10)
    # Again from the file, with answers that are made up.
    again = dirdp.private_model(dirdp.releases.release_of(private), model_of(make), **said)
    assert likelihood(again)(point)[0] == value


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("mean", {"public": ["x"]}),
        ("likelihood", {"levels": {"x": 2}}),
        ("mean", {"levels": {"x": 2}, "adjacency": "add-remove"}),
    ],
)
def test_covariates_of_people_against_all_tables(place, said):
    """Rows of people, with a mean of their own: public, private, and with a private number of people."""
    with pm.Model(coords=NAMES | {"person": range(4)}) as model:
        slope, codes = pm.Normal("slope"), pm.Data("x", np.array([0, 1, 1, 0]))
        sigma = pm.HalfNormal("sigma", 1.5)
        theta = pm.Normal("theta", slope * codes if place == "mean" else 0.0, sigma, dims="person")
        eta = theta if place == "mean" else theta + slope * codes
        numbers = pm.Data("numbers", DIFFICULTY)
        pm.Bernoulli("y", logit_p=eta[:, None] - numbers, observed=ANSWERS[:4], dims=("person", "item"))
    public = ["numbers", *said.get("public", [])]
    private = dirdp.private_model(PURE, model, unit="person", **said | {"public": public})
    value, free = likelihood(private)(nearby(private))
    p = np.array([combinations(free["slope"] * own, free["sigma"]) for own in (0, 1)])
    part, noisy = part_of(private)
    if "public" in said:
        expected = by_hand(private, p, [2, 2])
    elif "adjacency" not in said:
        expected = by_hand(private, (free["y_shares"][:, None] * p).reshape(1, -1), [4])
    else:
        counts = np.arange(80)[:, None]
        cells = poisson.logpmf(counts, (free["y_expected"][:, None] * p).ravel())
        expected = logsumexp(cells + part.mechanism.noise.log_pmf(noisy.ravel() - counts), axis=0).sum()
    assert value == pytest.approx(expected, rel=1e-10)


def test_answers_of_other_kinds_without_an_effect():
    """Three questions with two, three and two answers, of which PyMC says that each has three."""
    answers = np.array([[0, 2, 1], [1, 0, 0], [1, 1, 1], [0, 0, 0]])
    p = np.array([[0.3, 0.7, 0.0], [0.2, 0.5, 0.3], [0.6, 0.4, 0.0]])

    def made(observed):
        with pm.Model() as model:
            pm.Normal("other")
            pm.Categorical("y", p=pt.as_tensor(p), observed=observed)
        return model

    private = dirdp.private_model(PURE, made(answers), unit=0)
    part, _ = part_of(private)
    assert part.table.shape == (12,)
    assert part.table.coords["y_outcome"][-1] == "1,2,1"
    expected = np.array([p[0, i] * p[1, j] * p[2, k] for i in (0, 1) for j in (0, 1, 2) for k in (0, 1)])
    assert likelihood(private)(nearby(private))[0] == pytest.approx(by_hand(private, expected[None], [4]), rel=1e-10)
    with pytest.raises(DataError, match="probability of 0"):
        dirdp.private_model(PURE, made(np.full((4, 3), 2)), unit=0)


def test_numbers_of_successes_of_a_person():
    with pm.Model(coords=NAMES) as model:
        theta = pm.LogNormal("theta", 0.0, pm.HalfNormal("sigma", 1.0), dims="person")
        right = pm.math.exp(-theta[:, None] * np.array([0.4, 1.1]))
        pm.Binomial("y", n=[2, 1], p=right, observed=ANSWERS, dims=("person", "item"))
    private = dirdp.private_model(PURE, model, unit="person")
    value, free = likelihood(private)(nearby(private))

    def at(z, i, j):
        rates = [np.exp(-scale * np.exp(free["sigma"] * z)) for scale in (0.4, 1.1)]
        return norm.pdf(z) * binom.pmf(i, 2, rates[0]) * binom.pmf(j, 1, rates[1])

    cells = itertools.product(range(3), range(2))
    p = [quad(at, -9, 9, args=cell, epsabs=1e-15, epsrel=1e-13, limit=400)[0] for cell in cells]
    assert value == pytest.approx(by_hand(private, np.array([p]), [5]), rel=1e-9)


def with_probability(p_of):
    p = p_of(ability()[:, None] - DIFFICULTY)
    pm.Bernoulli("y", p=p, observed=ANSWERS, dims=("person", "item"))


def graded():
    eta = ability()[:, None] - pm.Normal("difficulty", dims="item")
    cutpoints, dims = np.array([-1.0, 1.0]), ("person", "item")
    pm.OrderedLogistic("y", eta=eta, cutpoints=cutpoints, observed=ANSWERS, dims=dims, compute_p=False)


@pytest.mark.parametrize(
    "make",
    [
        centred,
        lambda: with_probability(pm.math.invlogit),
        lambda: with_probability(pm.math.invprobit),
        lambda: with_probability(lambda eta: 1 - pm.math.exp(-pm.math.exp(eta))),
        graded,
    ],
    ids=["logit", "inverse logit", "probit", "complementary", "graded"],
)
def test_gradients_are_finite_also_where_probabilities_are_0(make):
    """Found by this test: at 8.5 standard deviations a probability rounds to 1, and the gradient was no number."""
    private = dirdp.private_model(PURE, model_of(make), unit="person")
    logp, dlogp = private.compile_logp(), private.compile_dlogp()
    for sigma in (1.5, 8.0):
        point = nearby(private) | {"sigma_log__": np.log(sigma)}
        assert dlogp(point) == pytest.approx(differences(logp, point, private), rel=1e-6, abs=1e-6)


def differences(logp, point, private, *, step=1e-4):
    """The gradient by central differences of fourth order."""
    slopes = []
    for value in private.value_vars:
        own = np.asarray(point[value.name])
        for place in range(own.size):
            shift = np.zeros(own.size)
            shift[place] = step
            at = [float(logp(point | {value.name: own + k * shift.reshape(own.shape)})) for k in (1, -1, 2, -2)]
            slopes.append((8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * step))
    return np.array(slopes)


def log_combinations(nodes, sd, difficulty, answers, log_probability):
    z, weights = normal_rule(nodes)
    eta = sd * z[:, None] - difficulty
    of_answers = np.where(answers[:, None, :], log_probability(eta), log_probability(-eta)).sum(axis=-1)
    return logsumexp(of_answers + weights, axis=1)


@pytest.mark.parametrize("log_probability", [log_expit, log_ndtr], ids=["logit", "probit"])
@pytest.mark.parametrize("sd", [0.5, 3.0])
def test_twice_as_many_nodes_change_nothing(sd, log_probability):
    """Among all combinations of 10 answers. Gauss-Hermite quadrature with 128 nodes is off by 1e-4 at sd 3."""
    answers = np.array(list(itertools.product([False, True], repeat=10)))
    for difficulty in (np.zeros(10), np.linspace(-3, 3, 10)):
        few, many = (log_combinations(n, sd, difficulty, answers, log_probability) for n in (171, 341))
        np.testing.assert_allclose(few, many, rtol=0, atol=1e-8)


def long_format():
    person, item = np.divmod(np.arange(10), 2)
    asked(effect()[pm.Data("who", person)] - DIFFICULTY[item], observed=ANSWERS.ravel(), dims="record")


def walk():
    theta = pm.GaussianRandomWalk("theta", init_dist=pm.Normal.dist(), steps=4, dims="person")
    asked(theta[:, None] - DIFFICULTY)


def effect_in_a_prior():
    theta = effect()
    asked(theta[:, None] + pm.Normal("other", theta.sum(), 1))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (long_format, r"dims=\(\"person\", \"question\"\), with theta\[:, None\]"),
        (
            lambda: asked(effect()[:, None] - effect("other")[:, None]),
            "'theta' has an entry for each person, and so has 'other'. Give each person one effect",
        ),
        (lambda: asked(pm.StudentT("theta", nu=3, dims="person")[:, None]), r"its prior is not pm.Normal \(StudentT\)"),
        (walk, "its prior is not pm.Normal"),
        (lambda: asked(pm.ZeroSumNormal("theta", dims="person")[:, None]), "its prior is not pm.Normal"),
        (lambda: asked(((theta := effect()) - theta.mean())[:, None] - DIFFICULTY), "mixes records"),
        (lambda: asked(effect(dims=("person", "item"))), "several entries for each person"),
        (lambda: asked(pm.Bernoulli("group", 0.5, dims="person")[:, None] - DIFFICULTY), "discrete free variable"),
        (
            lambda: asked(effect(mean=pm.Data("score", ANSWERS.astype(float))[:, 0])[:, None] - DIFFICULTY),
            "reads the observations of a variable",
        ),
        (effect_in_a_prior, "'other' depends on 'theta'"),
        (several_variables, r'Pass jointly=\[\["first", "second"\]\]'),
    ],
)
def test_other_effects_are_refused_before_the_charge(make, match, ledger):
    before = ledger.entries()
    with pytest.raises(UnsupportedModelError, match=match):
        dirdp.private_model(PURE, model_of(make), unit="person", ledger=ledger)
    assert ledger.entries() == before


def test_whose_answers_they_are_is_asked_with_a_call_to_copy():
    with pytest.raises(UnsupportedModelError, match=r'private_model\(guarantee, model, unit="person"\)'):
        dirdp.private_model(PURE, model_of(centred))
    with pytest.raises(UnsupportedModelError, match="unit=0 if each entry of axis 0"):
        dirdp.private_model(PURE, model_of(column))
    with pytest.raises(ArgumentError, match="unit='persons' is not a dim"):
        dirdp.private_model(PURE, model_of(centred), unit="persons")


def test_too_many_combinations_are_refused_with_their_number():
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=30)
        pm.Bernoulli("y", logit_p=theta[:, None], observed=np.zeros((30, 20), dtype=int))
    with pytest.raises(UnsupportedModelError, match=r"1048576 cells.*ask fewer questions"):
        dirdp.private_model(PURE, model, unit=0)


def test_a_missing_answer_is_no_answer():
    model = model_of(centred, observed=np.where(ANSWERS == 1, 1, 7))
    with pytest.raises(DataError, match="missing, or is a value that its distribution cannot have"):
        dirdp.private_model(PURE, model, unit="person")


def test_a_person_is_all_answers():
    """The accounting is that of `dirdp.sample` of a table of the same combinations, with a record of each person."""
    codes = ANSWERS @ [2, 1]
    with pm.Model() as table:
        shares = pm.Dirichlet("y", np.ones(4))
        pm.Categorical("records", p=shares, observed=codes)
    private = dirdp.private_model(PURE, model_of(centred), unit="person", mechanism="geometric")
    mine, _ = part_of(private)
    release = dirdp.plan(PURE, table, mechanism="geometric")
    (theirs,) = release.parts
    assert mine.mechanism == theirs.mechanism
    # All answers of one person are replaced: two cells change by 1.

    def counts(answers):
        model = model_of(centred, observed=answers)
        counting = counting_of(read_model(model, ModelOptions(unit="person")))
        (table,) = counting.count(counting.records)
        return table

    for person, other in itertools.product(range(5), itertools.product([0, 1], repeat=2)):
        changed = ANSWERS.copy()
        changed[person] = other
        difference = counts(changed) - counts(ANSWERS)
        assert sorted(difference[difference != 0]) in ([], [-1, 1])


def test_a_plan_names_what_is_integrated_out():
    plan = dirdp.plan(PURE, model_of(centred), any_model=True, unit="person")
    assert plan.integrated == ("theta",)
    assert "'theta' has an entry for each person, and is integrated out" in plan.frame().to_string() + str(plan)
    private = dirdp.private_model(plan, model_of(centred))
    assert "theta" not in private.named_vars
    assert "person" not in private.coords


@pytest.mark.parametrize("place", ["mean", "sd"])
def test_data_in_the_prior_of_an_effect_have_to_be_named(place, ledger):
    """An attack: a score of the answers in the prior of what is integrated out would be in the private model."""
    with pm.Model(coords=NAMES) as model:
        score = pm.Data("score", ANSWERS.mean() if place == "sd" else ANSWERS.sum(axis=1))
        theta = pm.Normal("theta", **{"mu": score} if place == "mean" else {"sigma": score}, dims="person")
        pm.Bernoulli("y", logit_p=theta[:, None] - DIFFICULTY, observed=ANSWERS, dims=("person", "item"))
    with pytest.raises(UnsupportedModelError, match=r"public=\['score'\]"):
        dirdp.private_model(PURE, model, unit="person", ledger=ledger)
    assert not ledger.entries()


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_a_rasch_model_of_300_people():
    rng = np.random.default_rng(5)
    difficulty = np.array([-1.2, -0.5, 0.0, 0.6, 1.3])
    answers = (rng.random((300, 5)) < expit(rng.normal(0, 1.4, 300)[:, None] - difficulty)).astype(int)
    with pm.Model(coords={"person": range(300), "item": list("abcde")}) as model:
        theta = pm.Normal("theta", 0, pm.HalfNormal("sigma", 1.5), dims="person")
        hard = pm.Normal("hard", 0, 1.5, dims="item")
        pm.Bernoulli("y", logit_p=theta[:, None] - hard, observed=answers, dims=("person", "item"))
    private = dirdp.private_model(PURE, model, unit="person", random_seed=3)
    idata = pm.sample(300, tune=300, chains=1, cores=1, model=private, progressbar=False, random_seed=1)
    assert not idata.sample_stats["diverging"].any()
    for name, truth in (("hard", difficulty), ("sigma", 1.4)):
        draws = idata.posterior[name].stack(sample=("chain", "draw")).values
        assert np.all(np.abs(draws.mean(axis=-1) - truth) < 4 * draws.std(axis=-1))
        # Some information of 300 people remains, and not more than without noise.
        assert np.all((draws.std(axis=-1) > 0.1) & (draws.std(axis=-1) < 0.4))
