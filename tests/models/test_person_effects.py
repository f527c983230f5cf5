"""Several answers of a person: against sums over all tables, integrals by scipy, and what is refused with a way out."""

import itertools
import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy.integrate import quad
from scipy.special import expit, log_expit, log_ndtr, logsumexp
from scipy.stats import binom, norm, poisson

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, UnsupportedModelError
from pymc_dirdp.models.answers import Answers
from pymc_dirdp.models.model_options import ModelOptions
from pymc_dirdp.models.person_effects import normal_rule
from pymc_dirdp.releases.model_tables import counting_of, read_model
from pymc_dirdp.releases.opened import open_release
from tests.releases.any_models import sum_over_tables

PURE = dirdp.PureDP(epsilon=1.0)
ANSWERS = np.array([[0, 1], [1, 1], [0, 0], [1, 1], [1, 0]])
DIFFICULTY = np.array([-0.5, 0.7])
OF_KINDS = np.array([[0.3, 0.7, 0.0], [0.2, 0.5, 0.3], [0.6, 0.4, 0.0]])
MANY = np.zeros((30, 20), dtype=int)
NAMES = {"person": range(5), "item": ["first", "second"]}
PERSON = {"unit": "person"}
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.FewRecordsWarning")


def part_of(private):
    stored = open_release(dirdp.releases.release_of(private))
    (part,) = stored.plan.parts
    return part, stored.release.output[part.table.name].values[0]


def compiled(private, outputs):
    """A function of a point with all rewrites, and without the time that compilation takes."""
    return private.compile_fn(outputs, inputs=private.value_vars, point_fn=True, mode=Mode("py", "fast_run"))


def nearby(private):
    rng, start = np.random.default_rng(3), private.initial_point()
    return {name: value + rng.normal(scale=0.7, size=np.shape(value)) for name, value in start.items()}


def likelihood(private, point=None):
    """The log-probability of what is published at a point, and the values of the free variables there, by name."""
    logps = [private.logp(), private.logp(vars=private.free_RVs)]
    function = compiled(private, [*logps, *private.replace_rvs_by_values(private.free_RVs)])
    both, prior, *values = function(point or nearby(private))
    return float(both - prior), dict(zip((rv.name for rv in private.free_RVs), values, strict=True))


def by_hand(private, p, totals):
    """The sum over all tables whose rows have these totals, with the probabilities of the cells of each row."""
    part, noisy = part_of(private)
    rows = zip(p, totals, noisy.reshape(np.shape(p)), strict=True)
    return sum(sum_over_tables(weights, n, z, part.mechanism.noise.log_pmf) for weights, n, z in rows)


def combinations(mean, sd, difficulty=DIFFICULTY):
    """The probabilities of all combinations of answers, by an adaptive rule of scipy."""

    def chance(answers):
        def at(z):
            yes = expit(mean + sd * z - difficulty)
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
        (non_centred, {"unit": 1}),
        (column, {"unit": 0}),
        (several_variables, {"unit": "person", "jointly": [["first", "second"]]}),
    ],
)
def test_an_effect_of_each_person_against_all_tables(make, said):
    private = dirdp.private_model(PURE, model_of(make), **said)
    assert {rv.name for rv in private.free_RVs} == {"sigma", "mean"}
    assert private.deterministics == []
    part, _ = part_of(private)
    assert part.table.coords[part.table.dims[0]] == ("0,0", "0,1", "1,0", "1,1")
    value, free = likelihood(private)
    p = combinations(free["mean"], free["sigma"])
    assert value == pytest.approx(by_hand(private, p[None], [5]), rel=1e-10)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_as_many_questions_as_people_are_no_records(adjacency):
    """Found by use: the length of the difficulties was taken for the number of people, and the model was refused."""
    with pm.Model(coords={"person": range(2), "item": range(2)}) as model:
        asked(ability()[:, None] - pm.Normal("difficulty", dims="item"), observed=ANSWERS[:2])
    size = {"n_prior": 2} if adjacency == "add-remove" else {}
    private = dirdp.private_model(PURE, model, unit="person", adjacency=adjacency, **size)
    value, free = likelihood(private)
    p = combinations(free["mean"], free["sigma"], free["difficulty"])
    if adjacency == "replace-one":
        assert value == pytest.approx(by_hand(private, p[None], [2]), rel=1e-10)
    assert np.isfinite(value)


def test_a_single_entry_is_no_effect_of_a_single_person():
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.Normal("b", shape=1), observed=[1])
    assert [rv.name for rv in dirdp.private_model(PURE, model, unit=0).free_RVs] == ["b"]


def test_answers_without_the_effect_may_be_joint_with_those_that_have_it():
    def with_another():
        several_variables()
        pm.Bernoulli("third", pm.Beta("b", 1, 1), observed=ANSWERS[:, 0], dims="person")

    said = {"unit": "person", "jointly": [["first", "second", "third"]]}
    assert part_of(dirdp.private_model(PURE, model_of(with_another), **said))[0].table.shape == (8,)


def test_a_model_of_a_file_is_that_of_the_release():
    private = dirdp.private_model(PURE, model_of(centred), unit="person")
    assert "person" not in private.coords
    other = model_of(centred, observed=1 - ANSWERS)
    again = dirdp.private_model(dirdp.releases.release_of(private), other, unit="person")
    assert likelihood(again, nearby(private))[0] == likelihood(private)[0]


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
    value, free = likelihood(private)
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


def of_other_kinds(observed):
    """Three questions with two, three and two answers, of which PyMC says that each has three."""
    pm.Normal("other")
    pm.Categorical("y", p=pt.as_tensor(OF_KINDS), observed=observed)


def test_answers_of_other_kinds_without_an_effect():
    private = dirdp.private_model(PURE, model_of(of_other_kinds, observed=ANSWERS[:4, [0, 1, 0]]), unit=0)
    part, _ = part_of(private)
    assert part.table.shape == (12,)
    assert part.table.coords["y_outcome"][-1] == "1,2,1"
    p = [math.prod(OF_KINDS[range(3), own]) for own in itertools.product((0, 1), (0, 1, 2), (0, 1))]
    value, _ = likelihood(private)
    assert value == pytest.approx(by_hand(private, np.array([p]), [4]), rel=1e-10)


def test_a_value_that_is_possible_at_some_point_is_an_answer():
    never, sometimes = np.array([[[0.0, -np.inf, -np.inf]]]), np.array([[[0.0, -np.inf, -1.0]]])
    answers = Answers.from_logs("y", [never, sometimes])
    assert answers.values_by_question[0].tolist() == [0, 2]
    assert answers.labels(np.array([-2, 0, 5])) == ("-2", "5")


def test_numbers_of_successes_of_a_person():
    with pm.Model(coords=NAMES) as model:
        theta = pm.LogNormal("theta", 0.0, pm.HalfNormal("sigma", 1.0), dims="person")
        right = pm.math.exp(-theta[:, None] * np.array([0.4, 1.1]))
        pm.Binomial("y", n=[2, 1], p=right, observed=ANSWERS, dims=("person", "item"))
    private = dirdp.private_model(PURE, model, unit="person")
    value, free = likelihood(private)

    def at(z, i, j):
        rates = [np.exp(-scale * np.exp(free["sigma"] * z)) for scale in (0.4, 1.1)]
        return norm.pdf(z) * binom.pmf(i, 2, rates[0]) * binom.pmf(j, 1, rates[1])

    cells = itertools.product(range(3), range(2))
    p = [quad(at, -9, 9, args=cell, epsabs=1e-15, epsrel=1e-13, limit=400)[0] for cell in cells]
    assert value == pytest.approx(by_hand(private, np.array([p]), [5]), rel=1e-9)


def of_many_links():
    theta = ability()
    asked(theta - DIFFICULTY[0], "logit", observed=ANSWERS[:, 0], dims="person")
    for name, p in {
        "inverse logit": pm.math.invlogit(theta),
        "probit": pm.math.invprobit(theta),
        "complementary": 1 - pm.math.exp(-pm.math.exp(theta)),
    }.items():
        pm.Bernoulli(name, p=p, observed=ANSWERS[:, 1], dims="person")


def graded():
    eta = ability()[:, None] - pm.Normal("difficulty", dims="item")
    cutpoints, dims = np.array([-1.0, 1.0]), ("person", "item")
    pm.OrderedLogistic("y", eta=eta, cutpoints=cutpoints, observed=ANSWERS, dims=dims, compute_p=False)


@pytest.mark.parametrize(
    ("make", "said"),
    [(of_many_links, {"jointly": [["logit", "inverse logit", "probit", "complementary"]]}), (graded, {})],
)
def test_gradients_are_finite_also_where_probabilities_are_0(make, said):
    """Found by this test: at 8.5 standard deviations a probability rounds to 1, and the gradient was no number."""
    private = dirdp.private_model(PURE, model_of(make), unit="person", **said)
    logp, gradient = compiled(private, private.logp()), compiled(private, private.dlogp())
    for sigma in (1.5, 8.0):
        point = nearby(private) | {"sigma_log__": np.log(sigma)}
        step = {name: 1e-4 * (1 + np.arange(np.size(x)).reshape(np.shape(x))) for name, x in point.items()}
        # Central differences of fourth order, along one direction.
        at = [float(logp({name: x + k * step[name] for name, x in point.items()})) for k in (1, -1, 2, -2)]
        slope = (8 * (at[0] - at[1]) - (at[2] - at[3])) / 12
        found = gradient(point)
        assert np.all(np.isfinite(found))
        along = np.concatenate([np.ravel(step[value.name]) for value in private.value_vars])
        assert found @ along == pytest.approx(slope, rel=1e-6, abs=1e-10)


@pytest.mark.parametrize("log_probability", [log_expit, log_ndtr], ids=["logit", "probit"])
def test_twice_as_many_nodes_change_nothing(log_probability):
    """Among all combinations of 10 answers. Gauss-Hermite quadrature with 128 nodes is off by 1e-4 at sd 3."""
    answers = np.array(list(itertools.product([False, True], repeat=10)))
    for sd, difficulty in itertools.product((0.5, 3.0), (np.zeros(10), np.linspace(-3, 3, 10))):
        found = []
        for nodes in (171, 341):
            z, weights = normal_rule(nodes)
            eta = sd * z[:, None] - difficulty
            of_answers = np.where(answers[:, None, :], log_probability(eta), log_probability(-eta)).sum(axis=-1)
            found.append(logsumexp(of_answers + weights, axis=1))
        np.testing.assert_allclose(*found, rtol=0, atol=1e-8)


def long_format():
    person, item = np.divmod(np.arange(10), 2)
    asked(effect()[pm.Data("who", person)] - DIFFICULTY[item], observed=ANSWERS.ravel(), dims="record")


def score_in_a_prior(score, place, part=...):
    """An attack: a score of the answers in the prior of what is integrated out would be in the private model."""
    asked(effect(**{place: pm.Data("score", score)[part]})[:, None] - DIFFICULTY)


@pytest.mark.parametrize(
    ("make", "said", "match"),
    [
        (long_format, PERSON, r"dims=\(\"person\", \"question\"\), with theta\[:, None\]"),
        (lambda: asked(effect()[:, None] - effect("other")[:, None]), PERSON, "so has 'other'. Give each person one"),
        (lambda: asked(pm.StudentT("theta", nu=3, dims="person")[:, None]), PERSON, r"not pm.Normal \(StudentT\)"),
        (lambda: asked(pm.ZeroSumNormal("theta", dims="person")[:, None]), PERSON, "its prior is not pm.Normal"),
        (lambda: asked(((theta := effect()) - theta.mean())[:, None] - DIFFICULTY), PERSON, "mixes records"),
        (lambda: asked(effect(dims=("person", "item"))), PERSON, "several entries for each person"),
        (lambda: asked(pm.Bernoulli("group", 0.5, dims="person")[:, None] - DIFFICULTY), PERSON, "discrete free"),
        (lambda: score_in_a_prior(ANSWERS * 1.0, "mean", np.s_[:, 0]), PERSON, "reads the observations of a variable"),
        (lambda: asked((a := effect())[:, None] + pm.Normal("other", a.sum())), PERSON, "'other' depends on 'theta'"),
        (several_variables, PERSON, r'Pass jointly=\[\["first", "second"\]\]'),
        (lambda: score_in_a_prior(ANSWERS.sum(axis=1), "mean"), PERSON, r"public=\['score'\]"),
        (lambda: score_in_a_prior(ANSWERS.mean(), "sigma"), PERSON, r"public=\['score'\]"),
        (lambda: (effect(), pm.DiscreteUniform("y", 2, 2, observed=[2] * 5)), {"unit": 0}, "has one value only"),
        # Whose answers they are is asked with a call to copy.
        (centred, {}, r'private_model\(guarantee, model, unit="person"\)'),
        (column, {}, "unit=0 if each entry of axis 0"),
        (lambda: asked(effect(shape=30, dims=None)[:, None], observed=MANY, dims=None), {"unit": 0}, "1048576 cells"),
    ],
)
def test_other_effects_are_refused_before_the_charge(make, said, match):
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=5.0))
    with pytest.raises(UnsupportedModelError, match=match):
        dirdp.private_model(PURE, model_of(make), ledger=ledger, **said)
    assert ledger.entries() == ()


def test_an_answer_that_a_distribution_cannot_have_is_no_answer():
    model = model_of(centred, observed=np.where(ANSWERS == 1, 1, 7))
    with pytest.raises(DataError, match="missing, or is a value that its distribution cannot have"):
        dirdp.private_model(PURE, model, unit="person")
    with pytest.raises(DataError, match="probability of 0"):
        dirdp.private_model(PURE, model_of(of_other_kinds, observed=np.full((4, 3), 2)), unit=0)
    with pytest.raises(ArgumentError, match="unit='persons' is not a dim"):
        dirdp.private_model(PURE, model_of(centred), unit="persons")


def test_a_person_is_all_answers_and_a_plan_names_what_is_integrated_out():
    """The accounting is that of `dirdp.sample` of a table of the same combinations, with a record of each person."""
    with pm.Model() as table:
        pm.Categorical("records", p=pm.Dirichlet("y", np.ones(4)), observed=ANSWERS @ [2, 1])
    plan = dirdp.plan(PURE, model_of(centred), any_model=True, unit="person", mechanism="geometric")
    assert plan.integrated == ("theta",)
    assert "'theta' has an entry for each person, and is integrated out" in plan.frame().to_string() + str(plan)
    private = dirdp.private_model(plan, model_of(centred))
    assert "theta" not in private.named_vars
    (theirs,) = dirdp.plan(PURE, table, mechanism="geometric").parts
    assert part_of(private)[0].mechanism == theirs.mechanism


def test_all_answers_of_one_person_are_replaced():
    counts = []
    for answers in (ANSWERS, np.vstack([1 - ANSWERS[:1], ANSWERS[1:]])):
        counting = counting_of(read_model(model_of(centred, observed=answers), ModelOptions(unit="person")))
        counts += counting.count(counting.records)
    difference = counts[1] - counts[0]
    assert sorted(difference[difference != 0]) == [-1, 1]
