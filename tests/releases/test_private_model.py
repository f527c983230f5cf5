"""Private models: against sums over all data sets, ordinary models, the recipient's half, and what is left behind."""

import itertools
import pickle
import re
import warnings
from unittest.mock import Mock

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from scipy.integrate import quad
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import betabinom

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, DirdpError, InternalError, ManyRowsWarning, ReleaseError
from pymc_dirdp.models.graph import PLAIN, compile_plain, is_random
from pymc_dirdp.models.model_options import ModelOptions
from pymc_dirdp.models.without_data import check_nothing_left
from pymc_dirdp.releases import model_tables, noisy_tables
from pymc_dirdp.releases.model_tables import read_model
from pymc_dirdp.releases.opened import open_release
from tests.oracles import tables_of
from tests.releases import any_models
from tests.releases.any_models import ACCEPTED, PRIVATE, answers, codes

PURE, APPROX = dirdp.PureDP(epsilon=1.0), dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
QUICK = ["hierarchical_logit", "latent_class", "two_private_predictors", "zero_inflated_cases"]
release_of = dirdp.releases.release_of
LEVELS = {"levels": {"which": 2}}
NAMED, CODED = ("which=north", "which=south"), ("which=0", "which=1")


def model_of(build, **coords):
    with warnings.catch_warnings(), pm.Model(coords=coords) as model:
        # PyMC warns of a default of OrderedLogistic, and of missing values.
        warnings.simplefilter("ignore")
        build()
    return model


@pytest.fixture
def ledger():
    return dirdp.Ledger(dirdp.PureDP(epsilon=5.0))


def likelihood_of(private):
    return sum(pm.logp(rv, private.rvs_to_values[rv]).sum() for rv in private.observed_RVs)


def term_at(private, **values):
    function = compile_plain(private.free_RVs, likelihood_of(private))
    return float(function(*[np.asarray(values[rv.name], dtype=float) for rv in private.free_RVs]))


def part_of(private):
    stored = open_release(release_of(private))
    (part,) = stored.plan.parts
    return part, stored.release.output[part.table.name].values[0]


def test_shares_of_trials_are_summed_out_by_the_sampler():
    """A BetaBinomial whose trials are people: over the new free variable the likelihood is that of its counts."""
    with pm.Model() as model:
        pm.BetaBinomial("y", n=pm.Data("n", 7), alpha=2.0, beta=pm.Data("b", 3.0), observed=5)
    private = dirdp.private_model(PURE, model, contribution=1, public=["y", "b"])
    assert [rv.name for rv in private.free_RVs] == ["y_p"]
    part, noisy = part_of(private)
    yes = np.arange(8.0)
    seen = part.mechanism.log_likelihood(noisy, np.stack([yes, 7 - yes], axis=1))
    expected = logsumexp(betabinom.logpmf(yes, 7, 2, 3) + seen)
    logp = private.compile_logp(mode=PLAIN)
    mass, _ = quad(
        lambda logit: np.exp(logp({"y_p_logodds__": np.array(logit)})), -40, 40, limit=200, epsabs=0, epsrel=1e-12
    )
    assert np.log(mass) == pytest.approx(expected, rel=1e-12)


def items(n=5, outcomes=2):
    with pm.Model() as model:
        ability = pm.Normal("ability")
        pm.Bernoulli("first", logit_p=ability, observed=np.arange(n) % 2)
        pm.Bernoulli("second", logit_p=ability + 0.5, observed=np.arange(n) % 3 == 0)
        third = pt.special.softmax(ability * np.arange(float(outcomes)))
        pm.Categorical("third", third, observed=np.ones(n, dtype=int))
    return model


def test_joint_noise_against_all_tables(tmp_path):
    """Noise that three tables share: the sum over the counts of all of them, which no product over tables is."""
    n, outcomes, ability = 4, 3, 0.3
    private = dirdp.private_model(PURE, items(n, outcomes), mechanism="joint", contribution=2)
    stored = open_release(release_of(private))
    (parts,) = stored.plan.noise_groups
    noisy = np.concatenate([stored.release.output[part.table.name].values[0] for part in parts])
    third = np.exp(ability * np.arange(outcomes))
    log_p = [*(np.log([1 - p, p]) for p in expit(ability + np.array([0, 0.5]))), np.log(third / third.sum())]
    logs, noise = [], parts[0].mechanism.shared_noise
    # The noise has its tables in the order of their sizes, and so has the model.
    for counts in itertools.product(tables_of((2,), n), tables_of((2,), n), tables_of((outcomes,), n)):
        chance = sum(gammaln(n + 1) + x @ log - gammaln(x + 1).sum() for x, log in zip(counts, log_p, strict=True))
        logs.append(chance + noise.log_probability(noisy - np.concatenate(counts)))
    assert [rv.name for rv in private.observed_RVs] == ["first_second_third"]
    value = term_at(private, ability=ability)
    assert value == pytest.approx(logsumexp(logs), rel=1e-12)
    (slope,) = private.compile_dlogp(mode=PLAIN)({"ability": np.array(ability)})
    ahead, behind = (term_at(private, ability=ability + step) for step in (1e-5, -1e-5))
    assert slope == pytest.approx((ahead - behind) / 2e-5 - ability, rel=1e-6)
    dirdp.save(release_of(private), tmp_path / "items.json")
    again = dirdp.private_model(tmp_path / "items.json", items(n + 2, outcomes))
    assert term_at(again, ability=ability) == value


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in QUICK else pytest.mark.thorough) for one in ACCEPTED]
)
def test_a_model_that_is_accepted(name, monkeypatch):
    parsed, read = [], model_tables.read_model
    monkeypatch.setattr(model_tables, "read_model", lambda *given: parsed.append(read(*given)) or parsed[-1])
    make, said = ACCEPTED[name]
    model = model_of(make)
    private = dirdp.private_model(PURE, model, **said)
    stored = open_release(release_of(private))
    own, free = {rv.name for rv in model.free_RVs}, private.free_RVs
    new = {f"{part.table.name}_{what}" for part in stored.plan.parts for what in ("expected", "shares", "p")}
    assert own <= {rv.name for rv in free} <= own | new
    assert not private.potentials
    for rv in model.free_RVs:
        assert private.named_vars_to_dims.get(rv.name) == model.named_vars_to_dims.get(rv.name)
        assert type(private.rvs_to_transforms[private[rv.name]]) is type(model.rvs_to_transforms[rv])
    for rv in private.observed_RVs:
        term = pm.logp(rv, private.rvs_to_values[rv])
        assert not any(map(is_random, set(ancestors([term], blockers=free)) - set(free)))
    places = [rv.type() for rv in free]
    terms = graph_replace([likelihood_of(private)], dict(zip(free, places, strict=True)), strict=False)[0]
    at = compile_plain(places, [terms, *pt.grad(terms, places, disconnected_inputs="ignore")])
    rng, start = np.random.default_rng(1), private.initial_point(random_seed=1)
    nearby = {key: value + rng.normal(scale=0.2, size=np.shape(value)) for key, value in start.items()}
    untransformed = compile_plain([private.rvs_to_values[rv] for rv in free], private.replace_rvs_by_values(free))
    here = untransformed(*[nearby[private.rvs_to_values[rv].name] for rv in free])
    value, *slopes = at(*here)
    point = {rv.name: one for rv, one in zip(free, here, strict=True)}
    assert value == pytest.approx(any_models.likelihood_by_hand(parsed[-1], stored, point), rel=1e-12, abs=1e-12)
    step = [1e-5 * np.abs(one) * rng.normal(size=np.shape(one)) for one in here]
    ahead, behind = (at(*[one + side * more for one, more in zip(here, step, strict=True)])[0] for side in (1, -1))
    slope = sum(float(np.sum(one * slope)) for one, slope in zip(step, slopes, strict=True))
    assert slope == pytest.approx((ahead - behind) / 2, rel=1e-6, abs=1e-11)


def with_impossible_cells():
    p = pt.stack([pm.Beta("p", 1, 1), 0.0])
    pm.Bernoulli("y", p=p[pm.Data("group", [0, 0, 0, 1, 0, 0])], observed=[0, 1, 1, 0, 1, 1])


def without_records():
    effect, nothing = pm.Normal("effect", shape=2), np.zeros(0, dtype=int)
    pm.Bernoulli("y", logit_p=effect[pm.Data("x", nothing)], observed=nothing)


def with_a_length_of_other_data(n):
    p, x = pm.Beta("p", 1, 1, shape=2), pm.Data("x", np.arange(n))
    pm.Bernoulli("y", pt.broadcast_to(p[None, :], (x.shape[0], 2))[:, 0], observed=np.arange(n) % 2)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: pm.Bernoulli("y", logit_p=pm.Normal("b") * pm.Data("x", 2.0), observed=[0, 1]), {"public": ["x"]}),
        (lambda: pm.Bernoulli("y", logit_p=pm.Flat("b"), observed=pm.Data("only", 1)), {}),
        (lambda: pm.Poisson("y", mu=pm.HalfFlat("m"), observed=[0, 0, 0]), {"count_variables": ["y"]}),
        (lambda: pm.Poisson("y", mu=pm.Gamma("rate", 2, 1), observed=5), {"count_variables": ["y"]}),
        (lambda: pm.Binomial("y", n=5, p=pm.Beta("p", 1, 1), observed=0), {"contribution": 1}),
        (with_impossible_cells, {"levels": {"group": 2}}),
        (with_impossible_cells, {"levels": {"group": 2}} | PRIVATE),
        # Found by a mutant: an error of NumPy, after the charge, said that there was no record.
        (without_records, {"levels": {"x": 2}}),
        (without_records, {"levels": {"x": 2}, "n_prior": 10.0} | PRIVATE),
        (lambda: with_a_length_of_other_data(1), {"public": ["x"]} | PRIVATE),
        (lambda: with_a_length_of_other_data(5), {"public": ["x"]} | PRIVATE),
    ],
)
def test_unusual_models_have_a_finite_log_probability_and_gradient(build, said):
    private = dirdp.private_model(PURE, model_of(build), **said)
    start = private.initial_point(random_seed=1)
    assert np.all(np.isfinite(private.compile_dlogp(mode=PLAIN)(start)))
    assert np.isfinite(private.compile_logp(mode=PLAIN)(start))


@pytest.mark.parametrize(("n_prior", "largest"), [(None, None), (80.0, 80.0), ({"y": 50}, 50.0)])
def test_private_numbers_have_flat_priors(n_prior, largest):
    model = model_of(lambda: pm.Bernoulli("y", p=pm.Beta("p", 1, 1), observed=answers(2)))
    private = dirdp.private_model(PURE, model, n_prior=n_prior, **PRIVATE)
    if largest is None:
        part, noisy = part_of(private)
        largest = 10 * noisy.sum() + 40 * part.mechanism.cell_noise.sd
    log_prior = pm.logp(private["y_expected"], np.ones(1)).eval().item()
    assert np.exp(-log_prior) == pytest.approx(largest, rel=1e-9)


def bernoulli(p, observed=None, name="y", **options):
    return pm.Bernoulli(name, p=p, observed=answers(2) if observed is None else observed, **options)


def beta(name="p", **options):
    return pm.Beta(name, 1, 1, **options)


def of_codes(logit, **options):
    bernoulli(pt.sigmoid(logit(pm.Data("x", codes(3)))), **options)


def trials(p):
    n = pm.Data("n", [23, 31, 17])
    pm.Binomial("y", n=n, p=p(n), observed=[5, 9, 3])


def shares_read(numbers):
    pm.BetaBinomial("y", n=[23, 31, 17], alpha=np.array(numbers), beta=2.0, observed=[5, 9, 3])


def two_of_the_same_people():
    bernoulli(beta(), name="first")
    bernoulli(pt.sigmoid(pm.Normal("a") * pm.Data("x", answers(2))))


def a_prior_of_some_records():
    """The array shares its memory with that of the records."""
    x = pm.Data("x", answers(2))
    bernoulli(pt.sigmoid(pm.Normal("a", pt.constant(x.get_value(borrow=True)[:3]).mean())), x)


def an_effect_of_each_person(code=lambda effect: effect, **dims):
    pm.modelcontext(None).add_coords({"record": range(9)})
    bernoulli(pt.sigmoid(code(pm.Normal("u", **(dims or {"shape": 9})))), [0] * 9, **dims)


def single_number(place):
    """Found by attacks: single numbers in a pm.Data, a mean or the largest of the records, came into the model."""
    observed = np.array([0, 1, 1, 0, 1])
    number = pm.Data("number", observed.max() if place == "trials" else observed.mean())
    middle = pm.Normal("middle", number if place == "a prior of a prior" else 0.0)
    p = pt.sigmoid(pm.Normal("a", middle) * (number if place == "the likelihood" else 1.0))
    if place == "trials":
        pm.Binomial("y", n=number, p=p, observed=observed)
    else:
        bernoulli(p, observed)


def of_a_private_number(logit, n):
    effect, group = pm.Normal("effect", shape=2), pm.Data("group", np.arange(n) % 2)
    bernoulli(pt.sigmoid(logit(effect, group)), np.arange(n) // 2 % 2)


def people_with_scores():
    pm.modelcontext(None).add_coord("person", range(4))
    p = beta()
    pm.Binomial("y", n=3, p=p, observed=[0, 1, 3, 2], dims="person")
    return p


PEOPLE = {"contribution": 1} | PRIVATE
OPEN, SINGLE, PART = "leaves open whose they are", "effect of single persons", "'y' observes a part"
NUMBER = r"reads the data 'number'. Pass public=\['number'\]"
RECORDS = [[0, 1], [1, 1], [1, 0], [0, 0]]
REFUSED = [
    (beta, {}, "observes nothing"),
    (any_models.pairs_of_choices, {}, "unit=0 if"),
    (any_models.items_of_private_groups, {"levels": {"group": 3}}, "jointly="),
    (lambda: pm.Poisson("y", pm.Gamma("rate", 2, 1), observed=answers(4)), {}, "count_variables="),
    (lambda: bernoulli(pt.where(pm.Bernoulli("state", 0.5), 0.2, 0.7)), {}, "discrete free variable"),
    (lambda: (bernoulli(p := beta()), pm.Potential("weights", pt.log(p))), {}, "is a Potential"),
    (lambda: bernoulli(pt.where(bernoulli(beta(), name="z"), beta("q"), 0.5)), {}, "depends on a random variable"),
    (lambda: bernoulli(pt.sigmoid(pm.Normal("a", bernoulli(beta(), name="z").mean()))), {}, "on the observed .* 'z'"),
    (a_prior_of_some_records, {}, "prior that reads the records"),
    (lambda: bernoulli(beta(), np.ma.masked_array([0, 1, 1], mask=[0, 0, 1])), {}, "missing values"),
    (lambda: pm.Normal("y", pm.Normal("a") * pm.Data("x", [0, 1]), observed=np.ones(2)), {}, "of real numbers"),
    (lambda: of_codes(lambda x: pm.Normal("a", shape=10**5)[x]), {"levels": {"x": 10**5}}, "100000 cells|max_cells"),
    (lambda: of_codes(lambda x: pm.Normal("a"), total_size=600), {}, "total_size"),
    (lambda: of_codes(lambda x: pm.Normal("y_expected")), PRIVATE, "Rename it"),
    (lambda: (pm.Normal("y_p"), pm.BetaBinomial("y", n=7, alpha=2, beta=3, observed=5)), {"contribution": 1}, "'y_p'"),
    (two_of_the_same_people, {"public": True}, "observations of another variable"),
    (
        lambda: of_codes(lambda x: pm.Normal("a") * x + pm.Normal("b", shape=3)[codes(3)]),
        {"public": True, "levels": {"x": 3}},
        "public and private",
    ),
    (lambda: of_codes(lambda x: pm.Normal("a", x.mean()) + pm.Normal("b") * x), {"public": ["x"]}, "prior that reads"),
    (lambda: of_codes(lambda x: pm.Normal("a") * (x - x.mean())), {"levels": {"x": 3}}, "mean of a covariate"),
    (any_models.design_matrix, {"levels": {"X": 3}}, "vector of integers"),
    (any_models.probit_without_covariates, {"n_prior": -1.0} | PRIVATE, "n_prior"),
    # Under add-remove the private model would contain how many people each row has.
    (lambda: trials(lambda n: pt.sigmoid(pm.Normal("a") * n)), PEOPLE, "private under add-remove"),
    (lambda: trials(lambda n: pm.Beta("p", n * 1.0, 2.0, shape=3)), PEOPLE, "prior that reads the records"),
    (lambda: shares_read([23, 31, 17]), PEOPLE, "private under add-remove"),
    (lambda: shares_read([5, 9, 3]), PEOPLE, "reads the observations of a variable"),
    # Its own number of records is that of an effect of each person.
    (lambda: an_effect_of_each_person(lambda u: u[pm.Data("w", np.arange(9))]), {"public": ["w"]} | PRIVATE, "reveals"),
    (an_effect_of_each_person, {"public": True}, SINGLE),
    (an_effect_of_each_person, PRIVATE, SINGLE),
    (lambda: an_effect_of_each_person(dims="record"), {}, "single persons are their data"),
    # An effect of each row is none of single persons only where a row is the trials of many.
    (any_models.successes_of_groups, {"unit": 0} | PRIVATE, "an entry for each record"),
    *((lambda place=place: single_number(place), {}, NUMBER) for place in ("a prior of a prior", "the likelihood")),
    (lambda: single_number("trials"), {"unit": 0}, NUMBER),
    (lambda: items(outcomes=24), {"mechanism": "joint"}, "of up to some eight outcomes.*Pass mechanism='auto'"),
    (lambda: bernoulli(beta()), {"mechanism": "joint"} | PRIVATE, "[Jj]oint noise"),
    # Every kind of trials is asked for, also where the numbers of trials are private and might all be 1.
    (lambda: pm.Binomial("y", n=5, p=beta(), observed=[1, 0]), {}, OPEN),
    (lambda: pm.Binomial("y", n=[1, 1], p=beta(), observed=[1, 0]), PRIVATE, OPEN),
    (lambda: pm.BetaBinomial("y", n=[1, 1], alpha=beta(), beta=1.0, observed=[1, 0]), PRIVATE, OPEN),
    (lambda: pm.Multinomial("y", n=[1, 1], p=[0.2, 0.3, 0.5], observed=np.eye(3)[:2]), PRIVATE, OPEN),
    (lambda: pm.DirichletMultinomial("y", n=[1, 1], a=[beta()] * 3, observed=np.eye(3)[:2]), PRIVATE, OPEN),
    *((people_with_scores, {"unit": unit}, "of any observation") for unit in ("record", 1)),
    (people_with_scores, {"unit": 0, "contribution": 1}, "either unit= or contribution="),
    (lambda: bernoulli(people_with_scores(), [0, 1, 1, 0], name="z"), {"unit": "person"}, "'z' lacks the axis"),
    # Found by attacks: how many records there are decided what was said, or whether a covariate was asked for.
    *(
        (lambda logit=logit, n=n: of_a_private_number(logit, n), {"levels": {"group": 2}} | PRIVATE, words)
        for logit, words in (
            (lambda effect, group: effect[group] / group.shape[0], "something for each record"),
            (lambda effect, group: effect[group] * pt.as_tensor(np.array([1.0, 2.0]))[group], "public=True"),
        )
        for n in (1, 2, 5)
    ),
    *(
        (lambda n=n: bernoulli(beta(shape=2)[pt.constant(np.arange(n) % 2)], np.zeros(n, int)), said, "without a name")
        for n in (1, 2)
        for said in ({}, PRIVATE)
    ),
    # Answers that nobody gave were tried on the covariate, so that a refusal said whether its values fit the model.
    *(
        (lambda: bernoulli(pt.sigmoid(pm.Normal("a") * pm.Data("x", np.full(60, np.inf)))), said, r"public=\['x'\]")
        for said in ({}, PRIVATE)
    ),
    # It was proposed to say that the array is public, which published the observations with it.
    (lambda: bernoulli(beta(), pm.Data("records", RECORDS)[:, 0]), {}, PART),
    (lambda: bernoulli(beta(), pm.Data("records", RECORDS)[:3, 0]), {"public": ["records"]} | PRIVATE, PART),
]
SAID_WRONGLY = [
    ("hierarchical_logit", {"public": []}, "Pass public="),
    ("hierarchical_logit", {"public": ["groups"]}, "public or levels"),
    ("hierarchical_logit", {"public": "group"}, "list of names"),
    ("hierarchical_logit", PRIVATE, "Pass levels="),
    ("hierarchical_logit", {"levels": {"group": 3}}, "in public or in levels, not in both"),
    ("hierarchical_logit", {"support": {"y": [0, 2]}}, "do not add up to 1"),
    ("successes_of_groups", {"public": []}, "number of trials for each"),
    ("log_linear_table", {"contribution": None}, "contribution=1"),
    ("cases", {"adjacency": "replace-one"}, "Leave adjacency='replace-one' out"),
    ("cases", {"count_variables": ["z"]}, "observed variable in count_variables"),
    ("latent_class", {"support": None}, "list of all of them"),
    ("latent_class", {"unit": "person"}, "unit"),
    ("latent_class", {"mechanism": "laplace"}, "mechanism"),
]


@pytest.mark.parametrize(
    ("make", "said", "match"),
    [*REFUSED, *((ACCEPTED[name][0], ACCEPTED[name][1] | said, match) for name, said, match in SAID_WRONGLY)],
)
def test_no_refusal_is_charged(make, said, match, ledger):
    with pytest.raises(DirdpError, match=match) as caught:
        dirdp.private_model(PURE, model_of(make), **said, ledger=ledger)
    assert not ledger.entries()
    assert match != PART or "public" not in str(caught.value)


STATEMENTS = ("public", "levels", "count_variables", "jointly", "unit", "contribution")
ASKED = [
    ("overdispersed_table", "private_model", ()),
    ("overdispersed_table", "plan", ("contribution",)),
    ("pairs_of_choices", "private_model", ()),
    ("bounded_counts", "plan", ()),
    ("items_of_private_groups", "private_model", ()),
]


@pytest.mark.parametrize(("name", "verb", "stated"), ASKED)
def test_one_refusal_asks_for_all_with_a_call_that_leads_to_a_release(name, verb, stated, ledger):
    make, said = ACCEPTED[name]
    given = {key: value for key, value in said.items() if key not in STATEMENTS or key in stated}
    given |= {"ledger": ledger} if verb == "private_model" else {"any_model": True}
    model = model_of(make)
    with pytest.raises(DirdpError) as caught:
        getattr(dirdp, verb)(PURE, model, **given)
    assert not ledger.entries()
    (call,) = re.findall(rf"^    (dirdp\.{verb}\(.*\))$", str(caught.value), flags=re.MULTILINE)
    answered = eval(call, {"dirdp": dirdp, "guarantee": PURE, "model": model})
    assert answered.free_RVs if verb == "private_model" else answered.tables


def test_many_rows_of_private_covariates_are_warned_of_before_they_are_bought():
    with pm.Model() as model:
        first, second = pm.Data("first", np.arange(60) % 40), pm.Data("second", np.arange(60) // 2)
        logit = pm.Normal("a", shape=40)[first] + pm.Normal("b", shape=40)[second]
        pm.Bernoulli("y", logit_p=logit, observed=np.zeros(60, int))
    levels = {"first": 40, "second": 40}
    with pytest.warns(ManyRowsWarning, match=r"1600 rows .* free variables of the private model\. Fewer levels"):
        dirdp.plan(PURE, model, any_model=True, levels=levels, adjacency="add-remove")


def test_what_is_left_is_found_before_the_charge(ledger, monkeypatch):
    found = Mock(side_effect=InternalError("A private model still contained an array of its data."))
    monkeypatch.setattr(noisy_tables, "check_nothing_left", found)
    with pytest.raises(InternalError):
        dirdp.private_model(PURE, model_of(any_models.hierarchical_logit), public=["group"], ledger=ledger)
    assert not ledger.entries()


def test_records_are_read_after_the_charge(ledger):
    with pm.Model() as model:
        group = pm.Data("group", np.array([0, 1, 7]))
        pm.Bernoulli("y", logit_p=pm.Normal("effect", shape=8)[group], observed=[0, 1, 1])
    with pytest.raises(DataError, match="charged") as caught:
        dirdp.private_model(PURE, model, levels={"group": 2}, ledger=ledger)
    assert "7" not in str(caught.value)
    assert len(ledger.entries()) == 1
    dirdp.private_model(PURE, model, levels={"group": 8}, ledger=ledger)
    assert len(ledger.entries()) == 2
    with pm.Model() as model:
        pm.BetaBinomial("y", n=[20, 30], alpha=pm.Gamma("a", 2, 1), beta=2, observed=[21, 9])
    with pytest.raises(DataError, match="charged") as caught:
        dirdp.private_model(
            PURE, model, count_variables=["y"], ledger=dirdp.Ledger(dirdp.PureDP(epsilon=5.0), **PRIVATE)
        )
    assert "21" not in str(caught.value)


def by_group(where, observed):
    with pm.Model(coords={"region": ["a", "b", "c"]}) as model:
        effect = pm.Normal("effect", 0.0, 1.5, dims="region")
        pm.Bernoulli("y", logit_p=effect[pm.Data("group", where)], observed=observed)
    return model


def test_the_recipient_has_the_same_model(tmp_path):
    model, path, public = by_group(codes(3), answers(2)), tmp_path / "survey.json", {"public": ["group"]}
    private = dirdp.private_model(APPROX, model, **public)
    dirdp.save(release_of(private), path)
    again = dirdp.private_model(path, by_group(np.array([2, 0, 1]), [0, 0, 0]), **public)
    point = private.initial_point()
    assert again.compile_logp(mode=PLAIN)(point) == private.compile_logp(mode=PLAIN)(point)
    assert dirdp.verify(release_of(again))
    for fewer in ([2, 0, 2], [1, 1, 1]):
        with pytest.raises(ReleaseError, match="other rows or outcomes"):
            dirdp.private_model(path, by_group(np.array(fewer), [0, 0, 0]), **public)
    with pytest.raises(ReleaseError, match="has the tables y"):
        dirdp.private_model(path, model_of(lambda: pm.Bernoulli("z", pm.Beta("p", 1, 1), observed=[0])))
    with pytest.raises(ArgumentError, match="adjacency"):
        dirdp.private_model(path, model_of(ACCEPTED["cases"][0]), count_variables=["y"])
    with pytest.raises(ArgumentError, match="charged and drawn before"):
        dirdp.private_model(path, model, **public, random_seed=1)
    with pytest.raises(ArgumentError, match="without a release"):
        release_of(pm.Model())


def test_several_releases_of_different_people_are_one_model(tmp_path):
    models = {"may": by_group(codes(3), answers(2)), "june": by_group(np.repeat([0, 1, 2], [9, 20, 31]), answers(2))}
    public = {"public": ["group"]}
    releases = {month: release_of(dirdp.private_model(PURE, model, **public)) for month, model in models.items()}
    path, effect = tmp_path / "june.json", np.array([0.4, -1.0, 0.2])
    dirdp.save(releases["june"], path)
    together = dirdp.private_model({"may": releases["may"], "june": path}, models, **public)
    assert [rv.name for rv in together.free_RVs] == ["effect"]
    assert [rv.name for rv in together.observed_RVs] == ["y_may", "y_june"]
    apart = [term_at(dirdp.private_model(releases[month], models[month], **public), effect=effect) for month in models]
    assert term_at(together, effect=effect) == pytest.approx(sum(apart), rel=1e-13)
    texts = [one["release"]["text"].item() for one in (release_of(together, "june"), releases["june"])]
    assert texts[0] == texts[1]
    with pytest.raises(ArgumentError, match="name= one of may, june"):
        release_of(together)
    with pm.Model() as other:
        logit = pm.Normal("effect", shape=4)[pm.Data("group", codes(3))]
        pm.Bernoulli("y", logit_p=logit, observed=answers(2))
    twice = {"may": releases["may"], "again": releases["may"]}
    for source, given, said, words in (
        (twice, models["may"], {}, "Leave 'again' out"),
        (releases, {"may": models["may"]}, {}, "a model for each release"),
        (releases, models, {"ledger": dirdp.Ledger(PURE)}, "was charged and drawn before"),
        (releases, models, {"random_seed": 1}, "was charged and drawn before"),
        (releases, models, PRIVATE, "Leave adjacency out"),
        (releases, {"may": models["may"], "june": other}, {}, "no free variable of the same shape"),
    ):
        with pytest.raises(ArgumentError, match=words):
            dirdp.private_model(source, given, **public, **said)


@pytest.mark.parametrize(("said", "new"), [({}, "shares"), (PRIVATE, "expected")])
def test_releases_with_private_numbers_have_numbers_of_their_own(said, new):
    model, said = by_group(codes(3), answers(2)), {"levels": {"group": 3}} | said
    releases = {name: release_of(dirdp.private_model(PURE, model, **said)) for name in ("first", "second")}
    together = dirdp.private_model(releases, model, **said)
    assert [rv.name for rv in together.free_RVs] == ["effect", f"y_first_{new}", f"y_second_{new}"]
    if new == "shares":
        assert pm.logp(together["y_first_shares"], [0.2, 0.3, 0.5]).eval() == pytest.approx(np.log(2))
    assert np.isfinite(together.compile_logp(mode=PLAIN)(together.initial_point()))


def test_a_copy_that_has_an_array_of_the_data_is_not_handed_out():
    secret = pytensor.shared(np.arange(7.0), name="secret")
    for records_of_all in (secret, pt.constant(secret.get_value(borrow=True)[:3])):
        with pm.Model() as model:
            pm.Potential("left", pm.Normal("a") * records_of_all.sum())
        with pytest.raises(InternalError, match="array of its data"):
            check_nothing_left(model, [secret], [], set())
    # Numbers that are the same by chance are no data, and nobody learns that they are the same.
    with pm.Model(coords={"record": range(7)}) as model:
        pm.Potential("left", pm.Normal("a", dims="record").sum() * pt.constant(np.arange(7.0)).sum())
    check_nothing_left(model, [secret], [], set())
    with pytest.raises(InternalError, match="entry for each record"):
        check_nothing_left(model, [secret], [], {"record"})


def stored_in(private):
    records_of_all = [*private.basic_RVs, *private.deterministics, *private.potentials, *private.value_vars]
    for node in ancestors(records_of_all):
        if isinstance(node, Constant) and not isinstance(node.data, slice | type(None)):
            yield np.asarray(node.data)
        elif hasattr(node, "get_value") and not hasattr(node.get_value(), "bit_generator"):
            yield np.asarray(node.get_value())


def test_nothing_is_left_behind(numbers_in):
    """Nodes, coordinates, draws and their pickle, against the answers, the codes and the number of records."""
    n, rng = 1237, np.random.default_rng(1)
    group, y = rng.integers(3, size=n), rng.integers(2, size=n)
    with pm.Model(coords={"region": ["a", "b", "c"], "record": np.arange(n)}) as model:
        where = pm.Data("group", group, dims="record")
        effect = pm.Normal("effect", dims="region", initval=np.zeros(3))
        pm.Deterministic("odds", pm.math.exp(effect), dims="region")
        pm.Deterministic("each", effect[where], dims="record")
        pm.Deterministic("expected_yes", pt.sigmoid(effect[0]) * n)
        pm.Bernoulli("y", logit_p=effect[where], observed=y, dims="record")
    truth = np.bincount(2 * group + y)
    # Now and then all noise is 0, and the release is the counts. What is left behind stands in every model.
    for _ in range(9):
        private = dirdp.private_model(PURE, model, levels={"group": 3}, **PRIVATE)
        if not any(np.array_equal(array.ravel(), truth) for array in stored_in(private)):
            break
    # A number that is written into a model is public, also where it equals the number of records.
    assert set(private.named_vars) >= {"effect", "odds", "y", "expected_yes"}
    assert "each" not in private.named_vars
    assert "record" not in private.coords
    for array in stored_in(private):
        assert n not in array.shape
        assert not np.array_equal(array.ravel(), truth)
    idata = pm.sample_prior_predictive(3, model=private, random_seed=1)
    names = {name for node in idata.subtree for name in node.dataset.variables}
    assert names.isdisjoint({"group", "record", "each"})
    assert "constant_data" not in idata.children or not idata["constant_data"].data_vars
    (part, noisy) = part_of(private)
    assert list(idata["observed_data"].data_vars) == ["y"]
    assert np.array_equal(idata["observed_data"]["y"].values, noisy.reshape(part.table.shape))
    for node in idata.subtree:
        assert n not in node.dataset.sizes.values()
    for text in (pickle.dumps(idata), cloudpickle.dumps(private)):
        assert group.tobytes() not in text
        assert y.tobytes() not in text
    assert n not in numbers_in(release_of(private)["release"]["text"].item())


def test_answers_are_counted_by_combination():
    with pm.Model() as model:
        effect, group = pm.Normal("effect", shape=2), pm.Data("group", [0, 1, 1, 0])
        pm.Bernoulli("first", logit_p=effect[group], observed=[1, 0, 1, 1])
        pm.Bernoulli("second", logit_p=effect[group], observed=[0, 1, 1, 0])
    said = {"levels": {"group": 2}, "jointly": [["first", "second"]]}
    (one,) = read_model(model, ModelOptions(**said)).outcomes
    assert one.reading.counts().tolist() == [[0, 0, 2, 0], [0, 1, 0, 1]]
    labels = dirdp.plan(PURE, model, any_model=True, **said).tables.parts[0].table.coords["first_second_cell"]
    assert labels[1:5] == ("group=0 | 0,1", "group=0 | 1,0", "group=0 | 1,1", "group=1 | 0,0")


def rows_of_regions(build, said, dim=("north", "south"), n=4):
    with pm.Model(coords={"region": list(dim), "other": ["a", "b"]}) as model:
        region, effect = pm.Data("which", np.array([0, 1, 1, 0, 0, 1, 1])[:n]), pm.Normal("effect", dims="region")
        pm.Bernoulli("y", logit_p=build(effect, region), observed=np.arange(n) % 2)
    (outcomes,) = read_model(model, ModelOptions(**said)).outcomes
    return outcomes.rows


def by_region(effect, region):
    return effect[region]


@pytest.mark.parametrize(
    ("build", "said", "changed", "expected"),
    [
        (by_region, LEVELS, {}, NAMED),
        (by_region, LEVELS, {"n": 7}, NAMED),
        (by_region, LEVELS | PRIVATE, {"n": 1}, NAMED),
        (lambda effect, region: pm.Deterministic("twice", 2 * effect, dims="region")[region], LEVELS, {}, NAMED),
        (lambda effect, region: pm.Normal("b", dims=("other", "region"))[1, region], LEVELS, {}, NAMED),
        (lambda effect, region: effect[region] + pm.Normal("b", dims="other")[region], LEVELS, {}, CODED),
        (by_region, LEVELS, {"dim": ("north", "north")}, CODED),
        (by_region, LEVELS, {"dim": ("north", "so\nuth")}, CODED),
        (lambda effect, region: pt.concatenate([effect, [0.0]])[region], LEVELS, {}, CODED),
        # A code beyond those of the dim has no label.
        (lambda e, r: e[pt.minimum(r, 1)] + 0 * e[r % 2], {"levels": {"which": 3}}, {}, (*CODED, "which=2")),
        # Only the private model's own labels: those of a Deterministic may name people.
        (lambda e, r: pm.Deterministic("one", pt.ones(2) * e[0], dims="other")[r], LEVELS, {}, CODED),
    ],
)
def test_rows_have_the_labels_of_the_model(build, said, changed, expected):
    assert rows_of_regions(build, said, **changed) == expected
