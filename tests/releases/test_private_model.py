"""Private models: against sums over all data sets, 35 models, the recipient's half, and what is left behind."""

import itertools
import pickle
import re
import warnings

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from scipy.integrate import quad
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import betabinom

import pymc_dirdp as dirdp
from pymc_dirdp.errors import (
    ArgumentError,
    DataError,
    DirdpError,
    InternalError,
    ManyRowsWarning,
    ReleaseError,
    UnsupportedModelError,
)
from pymc_dirdp.models.graph import PLAIN, compile_plain, is_random, origin
from pymc_dirdp.models.model_options import ModelOptions
from pymc_dirdp.models.without_data import check_nothing_left
from pymc_dirdp.releases import model_tables, noisy_tables
from pymc_dirdp.releases.model_tables import read_model
from pymc_dirdp.releases.opened import open_release
from tests.releases import any_models
from tests.releases.any_models import ACCEPTED

PURE, APPROX = dirdp.PureDP(epsilon=1.0), dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
QUICK = ["hierarchical_logit", "latent_class", "capped_counts", "two_private_predictors", "zero_inflated_cases"]


def made(name, **more):
    make, said = ACCEPTED[name]
    with warnings.catch_warnings(), pm.Model() as model:
        # PyMC warns of a default of OrderedLogistic.
        warnings.simplefilter("ignore")
        make()
        return model, dirdp.private_model(PURE, model, **said, **more)


def likelihood_of(private):
    """The log-probability of all noisy tables as a function of the free variables."""
    return sum(pm.logp(rv, private.rvs_to_values[rv]).sum() for rv in private.observed_RVs)


def term_at(private, **values):
    """The log-probability of the noisy tables where the free variables have these values."""
    function = compile_plain(private.free_RVs, likelihood_of(private))
    return float(function(*[np.asarray(values[rv.name], dtype=float) for rv in private.free_RVs]))


def part_of(private):
    stored = open_release(dirdp.releases.release_of(private))
    (part,) = stored.plan.parts
    return part, stored.release.output[part.table.name].values[0]


def every_table(n, cells):
    """All tables of n records."""
    return [
        np.bincount(records_of_all, minlength=cells)
        for records_of_all in itertools.combinations_with_replacement(range(cells), n)
    ]


def test_shares_of_trials_are_summed_out_by_the_sampler():
    """A BetaBinomial whose trials are people: over the new free variable the likelihood is that of its counts."""
    with pm.Model() as model:
        pm.BetaBinomial("y", n=pm.Data("n", 7), alpha=2.0, beta=pm.Data("b", 3.0), observed=5)
    private = dirdp.private_model(PURE, model, contribution=1, public=["y", "b"])
    assert [rv.name for rv in private.free_RVs] == ["y_p"]
    part, noisy = part_of(private)
    yes = np.arange(8.0)
    seen = part.mechanism.log_likelihood(noisy, np.stack([yes, 7 - yes], axis=1))
    # PyMC's own BetaBinomial is off by 2e-8.
    expected = logsumexp(betabinom.logpmf(yes, 7, 2, 3) + seen)
    logp = private.compile_logp(mode=PLAIN)
    mass, _ = quad(
        lambda logit: np.exp(logp({"y_p_logodds__": np.array(logit)})), -40, 40, limit=200, epsabs=0, epsrel=1e-12
    )
    assert np.log(mass) == pytest.approx(expected, rel=1e-12)
    with pm.Model() as model:
        pm.Normal("y_p")
        pm.BetaBinomial("y", n=7, alpha=2.0, beta=3.0, observed=5)
    with pytest.raises(DirdpError, match="The private model needs the name 'y_p'"):
        dirdp.private_model(PURE, model, contribution=1)


@pytest.mark.parametrize("place", ["a prior", "the likelihood", "a prior of a prior", "a number of trials"])
def test_data_that_nobody_named_are_refused_wherever_they_stand(place):
    """Found by attacks: single numbers in a pm.Data, a mean or the largest of the records, came into the model."""
    observed, ledger = np.array([0, 1, 1, 0, 1]), dirdp.Ledger(PURE)
    said = {"unit": "person"} if place == "a number of trials" else {}
    with pm.Model(coords={"person": range(5)}) as model:
        number = pm.Data("number", observed.max() if place == "a number of trials" else observed.mean())
        middle = pm.Normal("middle", number if place == "a prior of a prior" else 0.0)
        logit = pm.Normal("a", number if place == "a prior" else middle)
        if place == "a number of trials":
            pm.Binomial("y", n=number, p=pm.math.invlogit(logit), observed=observed, dims="person")
        else:
            logit = logit + number if place == "the likelihood" else logit
            pm.Bernoulli("y", logit_p=logit, observed=observed, dims="person")
    with pytest.raises(DirdpError, match=r"reads the data 'number'. Pass public=\['number'\]"):
        dirdp.private_model(PURE, model, **said, ledger=ledger)
    assert not ledger.entries()
    assert dirdp.private_model(PURE, model, **said, public=["number"], ledger=ledger).observed_RVs


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_no_record_at_all_is_released_as_any_number_is(adjacency):
    """Found by a mutant: an error of NumPy, after the charge, said that there was none."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=2)
        pm.Bernoulli("y", logit_p=a[pm.Data("x", np.zeros(0, dtype=int))], observed=np.zeros(0, dtype=int))
    private = {} if adjacency == "replace-one" else {"n_prior": 10.0}
    found = dirdp.private_model(APPROX, model, levels={"x": 2}, adjacency=adjacency, **private)
    assert "y" in found.named_vars


def test_rows_of_trials_are_no_records():
    """An effect of each row is none of single persons, where a row holds the trials of many."""
    with pm.Model() as model:
        effect = pm.Normal("effect", shape=3)
        pm.Binomial("y", n=[20, 30, 25], p=pm.math.invlogit(effect), observed=[3, 9, 5])
    assert read_model(model, ModelOptions(contribution=1, adjacency="add-remove")).outcomes
    with pytest.raises(UnsupportedModelError, match="an entry for each record"):
        read_model(model, ModelOptions(unit=0, adjacency="add-remove"))


def items(n=5, outcomes=2):
    """Three questions to the same people."""
    with pm.Model() as model:
        ability = pm.Normal("ability")
        pm.Bernoulli("first", logit_p=ability, observed=np.arange(n) % 2)
        pm.Bernoulli("second", logit_p=ability + 0.5, observed=np.arange(n) % 3 == 0)
        pm.Categorical(
            "third", pt.special.softmax(ability * np.arange(float(outcomes))), observed=np.ones(n, dtype=int)
        )
    return model


def test_joint_noise_against_all_tables(tmp_path):
    """Noise that three tables share: the sum over the counts of all of them, which no product over tables is."""
    outcomes = 3
    private = dirdp.private_model(PURE, items(4, outcomes), mechanism="joint", contribution=2)
    release = dirdp.releases.release_of(private)
    stored = open_release(release)
    (parts,) = stored.plan.noise_groups
    noisy = [stored.release.output[part.table.name].values[0] for part in parts]
    ability = 0.3
    third = np.exp(ability * np.arange(outcomes))
    log_p = [*(np.log([1 - p, p]) for p in expit(ability + np.array([0, 0.5]))), np.log(third / third.sum())]
    logs, apart = [], []
    # The noise has its tables in the order of their sizes, and so has the model.
    noise = parts[0].mechanism.shared_noise
    for counts in itertools.product(every_table(4, 2), every_table(4, 2), every_table(4, outcomes)):
        chance = sum(gammaln(5) + x @ logs - gammaln(x + 1).sum() for x, logs in zip(counts, log_p, strict=True))
        logs.append(chance + noise.log_probability(np.concatenate(noisy) - np.concatenate(counts)))
        distance = sum(np.abs(z - x).sum() for z, x in zip(noisy, counts, strict=True))
        apart.append(chance - distance / 2 / parts[0].mechanism.scale)
    (noisy_counts,) = private.observed_RVs
    assert noisy_counts.name == "first_second_third"
    value = term_at(private, ability=ability)
    assert value == pytest.approx(logsumexp(logs), rel=1e-12)
    assert value != pytest.approx(logsumexp(apart) + noise.log_probability(np.zeros(4 + outcomes)), rel=1e-3)
    ahead, behind = (term_at(private, ability=ability + step) for step in (1e-5, -1e-5))
    # With the standard normal prior.
    (slope,) = private.compile_dlogp(mode=PLAIN)({"ability": np.array(ability)})
    assert slope == pytest.approx((ahead - behind) / 2e-5 - ability, rel=1e-6)
    dirdp.save(release, tmp_path / "items.json")
    again = dirdp.private_model(tmp_path / "items.json", items(6, outcomes))
    assert term_at(again, ability=ability) == value


def test_joint_noise_is_for_few_outcomes_and_the_way_out_works(ledger):
    before = ledger.entries()
    with pytest.raises(DirdpError, match="of up to some eight outcomes") as caught:
        dirdp.private_model(PURE, items(outcomes=24), mechanism="joint", ledger=ledger)
    assert "mechanism='auto'" in str(caught.value)
    assert ledger.entries() == before
    dirdp.private_model(PURE, items(outcomes=24), ledger=ledger)
    with pytest.raises(DirdpError):
        dirdp.private_model(PURE, items(), mechanism="joint", adjacency="add-remove")


def test_answers_are_counted_by_combination():
    with pm.Model() as model:
        effect, codes = pm.Normal("effect", shape=2), pm.Data("group", [0, 1, 1, 0])
        pm.Bernoulli("first", logit_p=effect[codes], observed=[1, 0, 1, 1])
        pm.Bernoulli("second", logit_p=effect[codes], observed=[0, 1, 1, 0])
    found = read_model(model, ModelOptions(levels={"group": 2}, jointly=[["first", "second"]]))
    (one,) = found.outcomes
    assert one.reading.counts().tolist() == [[0, 0, 2, 0], [0, 1, 0, 1]]
    plan = dirdp.plan(PURE, model, any_model=True, levels={"group": 2}, jointly=[["first", "second"]])
    labels = plan.tables.parts[0].table.coords["first_second_cell"]
    assert labels[1:5] == ("group=0 | 0,1", "group=0 | 1,0", "group=0 | 1,1", "group=1 | 0,0")


def test_a_flat_expected_number_is_a_flat_number_of_records():
    """The integral over `lam` of the Poisson cells is the sum over all numbers of the Multinomial cells."""
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("y", p=p, observed=[1, 0, 1])
    private = dirdp.private_model(PURE, model, adjacency="add-remove")
    part, noisy = part_of(private)
    lam, weights = np.polynomial.laguerre.laggauss(90)
    function = compile_plain(private.free_RVs, likelihood_of(private))
    logs = [
        function(np.array(0.3), np.array([one])) + one + np.log(weight)
        for one, weight in zip(lam, weights, strict=True)
    ]
    x = np.array([(n - k, k) for n in range(80) for k in range(n + 1)], dtype=float)
    chance = gammaln(x.sum(axis=1) + 1) + (x * np.log([0.7, 0.3]) - gammaln(x + 1)).sum(axis=1)
    assert logsumexp(logs) == pytest.approx(logsumexp(chance + part.mechanism.log_likelihood(noisy, x)), abs=1e-8)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in QUICK else pytest.mark.thorough) for one in ACCEPTED]
)
def test_a_model_that_is_accepted(name, monkeypatch):
    """Its variables, no random variable in a term, and value and gradient against sums over all tables."""
    parsed, read = [], model_tables.read_model
    monkeypatch.setattr(model_tables, "read_model", lambda *given: parsed.append(read(*given)) or parsed[-1])
    model, private = made(name)
    own = {rv.name for rv in model.free_RVs}
    new = {rv.name for rv in private.free_RVs} - own
    assert own <= {rv.name for rv in private.free_RVs}
    tables = dirdp.releases.release_of(private)["mechanism"].children
    assert new <= {f"{table}_{what}" for table in tables for what in ("expected", "shares", "p")}
    assert not private.potentials
    for rv in model.free_RVs:
        assert private.named_vars_to_dims.get(rv.name) == model.named_vars_to_dims.get(rv.name)
        assert type(private.rvs_to_transforms[private[rv.name]]) is type(model.rvs_to_transforms[rv])
    for rv in private.observed_RVs:
        term = pm.logp(rv, private.rvs_to_values[rv])
        inside = set(ancestors([term], blockers=private.free_RVs)) - set(private.free_RVs)
        assert not any(map(is_random, inside))
    free, places = private.free_RVs, [rv.type() for rv in private.free_RVs]
    terms = graph_replace([likelihood_of(private)], dict(zip(free, places, strict=True)), strict=False)[0]
    at = compile_plain(places, [terms, *pt.grad(terms, places, disconnected_inputs="ignore")])
    rng, start = np.random.default_rng(1), private.initial_point(random_seed=1)
    nearby = {key: value + rng.normal(scale=0.2, size=np.shape(value)) for key, value in start.items()}
    own = compile_plain([private.rvs_to_values[rv] for rv in free], private.replace_rvs_by_values(free))
    here = own(*[nearby[private.rvs_to_values[rv].name] for rv in free])
    step = [1e-5 * np.abs(value) * rng.normal(size=np.shape(value)) for value in here]
    stored = open_release(dirdp.releases.release_of(private))

    def by_hand(side):
        point = {rv.name: value + side * one for rv, value, one in zip(free, here, step, strict=True)}
        return any_models.likelihood_by_hand(parsed[-1], stored, point)

    value, *slopes = at(*here)
    assert value == pytest.approx(by_hand(0), rel=1e-12, abs=1e-12)
    slope = sum(float(np.sum(one * slope)) for one, slope in zip(step, slopes, strict=True))
    assert slope == pytest.approx((by_hand(1) - by_hand(-1)) / 2, rel=1e-6, abs=1e-11)
    again = at(*here)
    assert all(np.array_equal(one, other) for one, other in zip([value, *slopes], again, strict=True))


@pytest.fixture
def ledger():
    return dirdp.Ledger(dirdp.PureDP(epsilon=5.0))


def of_codes(logit, **options):
    """Answers whose logit reads a covariate."""
    x = pm.Data("x", any_models.codes(3))
    pm.Bernoulli("y", logit_p=logit(x), observed=any_models.answers(2), **options)


def trials(logit=lambda n: pm.Normal("a"), prior=None):
    """Numbers of trials in a pm.Data, which the probabilities or their prior read."""
    n = pm.Data("n", [23, 31, 17])
    pm.Binomial("y", n=n, p=pm.math.invlogit(logit(n)) if prior is None else prior(n), observed=[5, 9, 3])


def shares_read(numbers):
    pm.BetaBinomial("y", n=[23, 31, 17], alpha=np.array(numbers), beta=2.0, observed=[5, 9, 3])


def two_of_the_same_people():
    first = any_models.answers(2)
    pm.Bernoulli("first", pm.Beta("p", 1, 1), observed=first)
    pm.Bernoulli("y", logit_p=pm.Normal("a") * pm.Data("x", first.copy()), observed=any_models.answers(2))


def real_numbers():
    """No statement mends it, so nothing is asked about its covariate."""
    pm.Normal("y", pm.Normal("a") * pm.Data("x", [0, 1]), observed=np.ones(2))


def rows_of_people():
    pm.modelcontext(None).add_coord("record", range(9))
    pm.Bernoulli("y", logit_p=pm.Normal("u", dims="record"), observed=[0] * 9, dims="record")


def hidden_state():
    pm.Bernoulli("y", p=pt.where(pm.Bernoulli("state", 0.5), 0.2, 0.7), observed=[0, 1])


def a_potential():
    p = pm.Beta("p", 1, 1)
    pm.Potential("weights", pt.log(p) * 3)
    pm.Bernoulli("y", p=p, observed=[0, 1])


def of_another_outcome():
    first = pm.Bernoulli("first", pm.Beta("p", 1, 1), observed=any_models.answers(2))
    pm.Bernoulli("y", p=pt.where(first, pm.Beta("q", 1, 1), 0.5), observed=any_models.answers(2))


def with_a_missing_value():
    pm.Bernoulli("y", p=pm.Beta("p", 1, 1), observed=np.ma.masked_array([0, 1, 1], mask=[0, 0, 1]))


PRIVATE = {"adjacency": "add-remove"}
PEOPLE = {"contribution": 1, "adjacency": "add-remove"}
MODELS_REFUSED = [
    (any_models.pairs_of_choices, {}, "unit=0 if"),
    (any_models.items_of_private_groups, {"levels": {"group": 3}}, "jointly="),
    (lambda: pm.Poisson("y", pm.Gamma("rate", 2, 1), observed=any_models.answers(4)), {}, "count_variables="),
    (hidden_state, {}, "discrete free variable"),
    (a_potential, {}, "is a Potential"),
    (of_another_outcome, {}, "depends on a random variable"),
    (with_a_missing_value, {}, "missing values"),
    (real_numbers, {}, "variable of real numbers"),
    (lambda: of_codes(lambda x: pm.Normal("a", shape=10**5)[x]), {"levels": {"x": 10**5}}, "100000 cells|max_cells"),
    (lambda: of_codes(lambda x: pm.Normal("a"), total_size=600), {}, "total_size"),
    (lambda: of_codes(lambda x: pm.Normal("y_expected")), PRIVATE, "Rename it"),
    (lambda: of_codes(lambda x: pm.Normal("y_expected")), {"n_prior": 2.0} | PRIVATE, "Rename it"),
    (two_of_the_same_people, {"public": True}, "observations of another variable"),
    (
        lambda: of_codes(lambda x: pm.Normal("a") * x + pm.Normal("b", shape=3)[any_models.codes(3)]),
        {"public": True, "levels": {"x": 3}},
        "public and private",
    ),
    (lambda: of_codes(lambda x: pm.Normal("a", x.mean()) + pm.Normal("b") * x), {"public": ["x"]}, "prior that reads"),
    (lambda: of_codes(lambda x: pm.Normal("a") * (x - x.mean())), {"levels": {"x": 3}}, "mean of a covariate"),
    (any_models.design_matrix, {"levels": {"X": 3}}, "vector of integers"),
    (any_models.latent_class, {"support": {"y": [[0, 0, 0], [1, 1, 1]]}}, "add up to 1"),
    (any_models.probit_without_covariates, {"n_prior": -1.0} | PRIVATE, "n_prior"),
    # Under add-remove the private model would contain how many people each row has.
    (lambda: trials(lambda n: pm.Normal("a") * n), PEOPLE, "private under add-remove"),
    (lambda: trials(prior=lambda n: pm.Beta("p", n * 1.0, 2.0, shape=3)), PEOPLE, "prior that reads the records"),
    (lambda: shares_read([23, 31, 17]), PEOPLE, "private under add-remove"),
    (lambda: shares_read([5, 9, 3]), PEOPLE, "reads the observations of a variable"),
    # Its own number of records is that of an effect of each person.
    (
        lambda: pm.Bernoulli("y", logit_p=pm.Normal("u", shape=9)[pm.Data("w", np.arange(9))], observed=[0] * 9),
        {"public": ["w"]} | PRIVATE,
        "reveals the number of records",
    ),
    (
        lambda: pm.Bernoulli("y", logit_p=pm.Normal("u", shape=9), observed=[0] * 9),
        {"public": True},
        "effect of single persons",
    ),
    (lambda: pm.Bernoulli("y", logit_p=pm.Normal("u", shape=9), observed=[0] * 9), PRIVATE, "effect of single persons"),
    (rows_of_people, {}, "single persons are their data"),
]
SAID_WRONGLY = [
    ("hierarchical_logit", {"public": []}, "Pass public="),
    ("hierarchical_logit", {"public": ["groups"]}, "public or levels"),
    ("hierarchical_logit", {"public": "group"}, "list of names"),
    ("hierarchical_logit", {"adjacency": "add-remove"}, "Pass levels="),
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
    [*MODELS_REFUSED, *((ACCEPTED[name][0], ACCEPTED[name][1] | said, match) for name, said, match in SAID_WRONGLY)],
)
def test_no_refusal_is_charged(make, said, match, ledger):
    before = ledger.entries()
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore")
        make()
    with pytest.raises(DirdpError, match=match):
        dirdp.private_model(PURE, model, **said, ledger=ledger)
    assert ledger.entries() == before


def test_what_is_left_is_found_before_the_charge(ledger, monkeypatch):
    """The copy is looked at before the charge; an error of our own costs nothing."""

    def found(*_):
        raise InternalError("A private model still contained an array of its data.")

    monkeypatch.setattr(noisy_tables, "check_nothing_left", found)
    before = ledger.entries()
    with pytest.raises(InternalError):
        made("hierarchical_logit", ledger=ledger)
    assert ledger.entries() == before


def test_a_copy_that_holds_an_array_of_the_data_is_not_handed_out():
    secret = pytensor.shared(np.arange(7.0), name="secret")
    for records_of_all in (secret, pt.constant(secret.get_value(borrow=True)[:3])):
        with pm.Model() as model:
            pm.Potential("left", pm.Normal("a") * records_of_all.sum())
        with pytest.raises(InternalError, match="array of its data"):
            check_nothing_left(model, [secret], [], set())
    # Numbers that are the same by chance are no data, and nobody learns that they are the same.
    with pm.Model() as model:
        pm.Potential("left", pm.Normal("a") * pt.constant(np.arange(7.0)).sum())
    check_nothing_left(model, [secret], [], set())
    with pm.Model(coords={"record": range(7)}) as model:
        pm.Normal("a", dims="record")
    check_nothing_left(model, [secret], [], set())
    with pytest.raises(InternalError, match="entry for each record"):
        check_nothing_left(model, [secret], [], {"record"})


def test_an_observation_that_the_model_cannot_have_is_an_error_of_the_data():
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=5.0), adjacency="add-remove")
    with pm.Model() as model:
        pm.BetaBinomial("y", n=[20, 30], alpha=pm.Gamma("a", 2, 1), beta=2, observed=[21, 9])
    with pytest.raises(DataError, match="charged") as caught:
        dirdp.private_model(PURE, model, count_variables=["y"], ledger=ledger)
    assert "21" not in str(caught.value)


def test_the_recipient_has_the_same_model(tmp_path):
    group, y = any_models.codes(3), any_models.answers(2)

    def model(group, observed):
        with pm.Model(coords={"region": ["a", "b", "c"]}) as made:
            effect = pm.Normal("effect", dims="region")
            pm.Bernoulli("y", logit_p=effect[pm.Data("group", group)], observed=observed)
        return made

    private = dirdp.private_model(APPROX, model(group, y), public=["group"])
    path = tmp_path / "survey.json"
    dirdp.save(dirdp.releases.release_of(private), path)
    # A row for each group, in another order, and made-up answers.
    again = dirdp.private_model(path, model(np.array([2, 0, 1]), [0, 0, 0]), public=["group"])
    point = private.initial_point()
    assert again.compile_logp(mode=PLAIN)(point) == private.compile_logp(mode=PLAIN)(point)
    assert dirdp.verify(dirdp.releases.release_of(again)) is not None
    assert "1" in str(dirdp.statement(dirdp.releases.release_of(private)))
    for fewer in ([2, 0, 2], [1, 1, 1]):
        with pytest.raises(ReleaseError, match="other rows or outcomes"):
            dirdp.private_model(path, model(np.array(fewer), [0, 0, 0]), public=["group"])
    with pytest.raises(ArgumentError, match="charged and drawn before"):
        dirdp.private_model(path, model(group, y), public=["group"], random_seed=1)
    other, _ = made("cases")
    with pm.Model() as named:
        pm.Bernoulli("z", pm.Beta("p", 1, 1), observed=[0])
    with pytest.raises(ReleaseError, match="has the tables y"):
        dirdp.private_model(path, named)
    with pytest.raises(ArgumentError, match="adjacency"):
        dirdp.private_model(path, other, count_variables=["y"])


def test_records_are_read_after_the_charge(ledger):
    with pm.Model() as model:
        group = pm.Data("group", np.array([0, 1, 7]))
        pm.Bernoulli("y", logit_p=pm.Normal("effect", shape=8)[group], observed=[0, 1, 1])
    before = len(ledger.entries())
    with pytest.raises(UnsupportedModelError, match="entry for each record"):
        dirdp.private_model(PURE, model, ledger=ledger)
    assert len(ledger.entries()) == before
    with pytest.raises(DataError, match="charged") as caught:
        dirdp.private_model(PURE, model, levels={"group": 2}, ledger=ledger)
    assert "7" not in str(caught.value)
    assert len(ledger.entries()) == before + 1
    dirdp.private_model(PURE, model, levels={"group": 8}, ledger=ledger)
    assert len(ledger.entries()) == before + 2


def stored_in(private):
    """All arrays of all nodes of a model."""
    records_of_all = [*private.basic_RVs, *private.deterministics, *private.potentials, *private.value_vars]
    for node in ancestors(records_of_all):
        if isinstance(node, Constant) and not isinstance(node.data, slice | type(None)):
            yield np.asarray(node.data)
        elif hasattr(node, "get_value") and not hasattr(node.get_value(), "bit_generator"):
            yield np.asarray(node.get_value())


X = pt.dvector()
INSIDE = {
    "a graph of its own": lambda effect, y: OpFromGraph([X], [(X[0] * y).sum()])(effect),
    "the step of a scan": lambda effect, y: pytensor.scan(
        lambda one: (one * y).sum(), sequences=[effect], return_updates=False
    ),
    "a function": lambda effect, y: pytensor.wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])(lambda v: v[0] * y)(
        effect
    ),
}


@pytest.mark.parametrize("inside", INSIDE)
def test_no_array_inside_of_an_operation_comes_along(inside):
    y = np.arange(40) % 2
    with pm.Model() as model:
        effect = pm.Normal("effect", shape=2)
        pm.Deterministic("hidden", INSIDE[inside](effect, y.astype(float)))
        pm.Deterministic("odds", pm.math.exp(effect))
        pm.Bernoulli("y", logit_p=effect[0], observed=y)
    private = dirdp.private_model(PURE, model)
    assert "odds" in private.named_vars
    assert "hidden" not in private.named_vars


def test_nothing_is_left_behind(numbers_in):
    """Nodes, coordinates, draws and their pickle, against the answers, the codes and the number of records."""
    n, rng = 1237, np.random.default_rng(1)
    group, y = rng.integers(3, size=n), rng.integers(2, size=n)
    with pm.Model(coords={"region": ["a", "b", "c"], "record": np.arange(n)}) as model:
        codes = pm.Data("group", group, dims="record")
        effect = pm.Normal("effect", dims="region", initval=np.zeros(3))
        pm.Deterministic("odds", pm.math.exp(effect), dims="region")
        pm.Deterministic("each", effect[codes], dims="record")
        pm.Deterministic("expected_yes", pm.math.invlogit(effect[0]) * n)
        pm.Bernoulli("y", logit_p=effect[codes], observed=y, dims="record")
    truth = np.bincount(2 * group + y)
    # Now and then all noise is 0, and the release is the counts. What is left behind stands in every model.
    for _ in range(9):
        private = dirdp.private_model(PURE, model, levels={"group": 3}, adjacency="add-remove")
        if not any(np.array_equal(array.ravel(), truth) for array in stored_in(private)):
            break
    assert set(private.named_vars) >= {"effect", "odds", "y"}
    assert "each" not in private.named_vars
    assert "record" not in private.coords
    # A number that is written into a model is public, also where it equals the number of records.
    assert "expected_yes" in private.named_vars
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
    assert n not in numbers_in(dirdp.releases.release_of(private)["release"]["text"].item())


def test_no_private_model():
    with pytest.raises(ArgumentError, match="without a release"):
        dirdp.releases.release_of(pm.Model())
    with pm.Model() as model:
        pm.Normal("a")
    with pytest.raises(UnsupportedModelError, match="observes nothing"):
        dirdp.private_model(PURE, model)
    make, options = ACCEPTED["hierarchical_logit"]
    with pm.Model() as model:
        make()
    with pytest.raises((ArgumentError, UnsupportedModelError), match="max_cells=5"):
        dirdp.plan(PURE, model, any_model=True, **options, max_cells=5)


@pytest.mark.parametrize("unit", ["record", "pers", 1])
def test_a_unit_is_an_axis_as_for_sample(unit, ledger):
    before = ledger.entries()
    with pm.Model(coords={"person": range(4)}) as model:
        pm.Binomial("y", n=3, p=pm.Beta("p", 1, 1), observed=[0, 1, 3, 2], dims="person")
    with pytest.raises(ArgumentError, match="of any observation"):
        dirdp.private_model(PURE, model, unit=unit, ledger=ledger)
    with pytest.raises(ArgumentError, match="either unit= or contribution="):
        dirdp.private_model(PURE, model, unit=0, contribution=1, ledger=ledger)
    with model:
        pm.Bernoulli("z", p=model["p"], observed=[0, 1, 1, 0])
    with pytest.raises(ArgumentError, match="'z' lacks the axis of unit='person'"):
        dirdp.private_model(PURE, model, unit="person", ledger=ledger)
    assert ledger.entries() == before


@pytest.mark.parametrize("family", ["Binomial", "BetaBinomial", "Multinomial", "DirichletMultinomial"])
def test_whose_trials_there_are_is_asked_for(family, ledger):
    """Every kind of trials is asked for, also where the numbers of trials are private and might all be 1."""
    before, n = ledger.entries(), np.array([1, 1])
    for said, adjacency in (({"n": 5}, "replace-one"), ({"n": n}, "add-remove")):
        with pm.Model() as model:
            rate = pm.Gamma("rate", 2, 1)
            prior = {"Binomial": {"p": rate / (1 + rate)}, "BetaBinomial": {"alpha": rate, "beta": 1.0}}
            several = {"Multinomial": {"p": np.full(3, 1 / 3)}, "DirichletMultinomial": {"a": rate * np.ones(3)}}
            answers = {"observed": np.eye(3, dtype=int)[:2] * np.max(said["n"])} if family in several else {}
            answers = answers or {"observed": [1, 0]}
            getattr(pm, family)("y", **said, **(prior | several)[family], **answers)
        with pytest.raises(UnsupportedModelError, match="leaves open whose they are"):
            dirdp.private_model(PURE, model, adjacency=adjacency, ledger=ledger)
    assert ledger.entries() == before


STATEMENTS = ("public", "levels", "count_variables", "jointly", "unit", "contribution")
# Models whose sets of statements are those of all others.
WITH_STATEMENTS = (
    *("capped_counts", "ordered_logit_private_everything", "one_of_two_private", "overdispersed_table"),
    *("pairs_of_choices", "bounded_counts", "items_of_private_groups"),
)


def call_in(error):
    """The only call in a refusal."""
    (call,) = re.findall(r"^    (dirdp\.(?:private_model|plan)\(.*\))$", str(error), flags=re.MULTILINE)
    return call


@pytest.mark.parametrize("name", WITH_STATEMENTS)
def test_one_refusal_asks_for_all_with_a_call_that_leads_to_a_release(name, ledger):
    make, said = ACCEPTED[name]
    rest = {key: value for key, value in said.items() if key not in STATEMENTS}
    stated = [{}]
    if name in ("one_of_two_private", "overdispersed_table"):
        stated += [{key: said[key]} for key in STATEMENTS if key in said]
    before = ledger.entries()
    with pm.Model() as model:
        make()
    for some in stated:
        try:
            dirdp.plan(PURE, model, any_model=True, **rest, **some)
        except UnsupportedModelError:
            pass
        else:
            continue
        with pytest.raises(UnsupportedModelError) as caught:
            dirdp.private_model(PURE, model, **rest, **some, ledger=ledger)
        assert ledger.entries() == before
        names = {"dirdp": dirdp, "guarantee": PURE, "model": model}
        assert eval(call_in(caught.value), names).free_RVs
        with pytest.raises(UnsupportedModelError) as caught:
            dirdp.plan(PURE, model, any_model=True, **rest, **some)
        assert eval(call_in(caught.value), names).tables


def monthly(mean, region=None, seed=1):
    rng = np.random.default_rng(seed)
    region = rng.integers(3, size=90) if region is None else region
    with pm.Model(coords={"region": ["a", "b", "c"]}) as model:
        effect = pm.Normal("effect", mean, 1.5, dims="region")
        pm.Bernoulli("y", logit_p=effect[pm.Data("where", region)], observed=rng.integers(2, size=len(region)))
    return model


def test_several_releases_of_different_people_are_one_model(tmp_path):
    """The log-probability is the sum of those of the releases alone, and PyMC's verbs see each by its name."""
    models = {"may": monthly(0.0), "june": monthly(0.0, np.repeat([0, 1, 2], [10, 20, 60]), seed=2)}
    releases = {}
    for month, model in models.items():
        private = dirdp.private_model(PURE, model, public=["where"])
        releases[month] = dirdp.releases.release_of(private)
    path = tmp_path / "june.json"
    dirdp.save(releases["june"], path)
    together = dirdp.private_model({"may": releases["may"], "june": path}, models, public=["where"])
    assert [rv.name for rv in together.free_RVs] == ["effect"]
    assert [rv.name for rv in together.observed_RVs] == ["y_may", "y_june"]
    effect = np.array([0.4, -1.0, 0.2])
    apart = [
        term_at(dirdp.private_model(releases[month], models[month], public=["where"]), effect=effect)
        for month in models
    ]
    assert term_at(together, effect=effect) == pytest.approx(sum(apart), rel=1e-13)
    assert (
        dirdp.releases.release_of(together, "june")["release"]["text"].item()
        == releases["june"]["release"]["text"].item()
    )
    with pytest.raises(ArgumentError, match="name= one of may, june"):
        dirdp.releases.release_of(together)
    with pytest.raises(ArgumentError, match="Leave 'again' out"):
        dirdp.private_model({"may": releases["may"], "again": releases["may"]}, models["may"], public=["where"])
    with pytest.raises(ArgumentError, match="a model for each release"):
        dirdp.private_model(releases, {"may": models["may"]}, public=["where"])
    for given in ({"ledger": dirdp.Ledger(PURE)}, {"random_seed": 1}):
        with pytest.raises(ArgumentError, match="was charged and drawn before"):
            dirdp.private_model(releases, models, public=["where"], **given)
    with pytest.raises(ArgumentError, match="Leave adjacency out"):
        dirdp.private_model(releases, models, public=["where"], adjacency="add-remove")
    with pm.Model() as other:
        pm.Bernoulli(
            "y", logit_p=pm.Normal("effect", shape=4)[pm.Data("where", np.arange(90) % 3)], observed=np.zeros(90, int)
        )
    with pytest.raises(ArgumentError, match="no free variable of the same shape"):
        dirdp.private_model(releases, {"may": models["may"], "june": other}, public=["where"])


def test_other_questions_to_the_same_people_are_one_model_whose_guarantees_add_up():
    """Oracle: the same two questions as observed variables of one model with the same noisy counts."""
    rng = np.random.default_rng(3)
    answers = dict(zip(("may", "june"), rng.integers(2, size=(2, 60)), strict=True))

    def wave(*months):
        with pm.Model() as model:
            level, change = pm.Normal("level"), pm.Normal("change")
            for month in months:
                eta = level + change * int(month == "june")
                pm.Bernoulli("y" if len(months) == 1 else f"y_{month}", logit_p=eta, observed=answers[month])
        return model

    ledger, half = dirdp.Ledger(dirdp.PureDP(epsilon=1.0)), dirdp.PureDP(epsilon=0.5)
    releases = {
        month: dirdp.releases.release_of(dirdp.private_model(half, wave(month), ledger=ledger)) for month in answers
    }
    with pytest.raises(dirdp.errors.BudgetError):
        dirdp.private_model(half, wave("may"), ledger=ledger)
    private = dirdp.private_model(releases, {month: wave(month) for month in answers})
    both = dirdp.private_model(dirdp.PureDP(epsilon=1.0), wave(*answers), mechanism="geometric")
    assert [rv.name for rv in both.observed_RVs] == [rv.name for rv in private.observed_RVs]
    for rv in both.observed_RVs:
        noisy = private.rvs_to_values[private[rv.name]].eval()
        origin(both.rvs_to_values[rv], through_rounding=True)[0].set_value(noisy)
    at = {"level": 0.3, "change": -0.8}
    assert term_at(private, **at) == pytest.approx(term_at(both, **at), rel=1e-10)  # Scales are rounded up.


@pytest.mark.parametrize("said", [{"levels": {"where": 3}}, {"levels": {"where": 3}, "adjacency": "add-remove"}])
def test_releases_with_private_numbers_have_numbers_of_their_own(said):
    model = monthly(0.0)
    releases = {
        name: dirdp.releases.release_of(dirdp.private_model(PURE, model, **said)) for name in ("first", "second")
    }
    together = dirdp.private_model(releases, model, **said)
    new = "expected" if "adjacency" in said else "shares"
    assert [rv.name for rv in together.free_RVs] == ["effect", f"y_first_{new}", f"y_second_{new}"]
    assert np.isfinite(together.compile_logp(mode=PLAIN)(together.initial_point()))


@pytest.mark.filterwarnings("default::pymc_dirdp.errors.ManyRowsWarning")
def test_many_rows_of_private_covariates_are_warned_of_before_they_are_bought():
    with pm.Model() as model:
        first, second = pm.Data("first", np.arange(60) % 40), pm.Data("second", np.arange(60) // 2)
        logit = pm.Normal("a", shape=40)[first] + pm.Normal("b", shape=40)[second]
        pm.Bernoulli("y", logit_p=logit, observed=np.zeros(60, int))
    levels = {"first": 40, "second": 40}
    with pytest.warns(ManyRowsWarning, match=r"1600 rows .* free variables of the private model\. Fewer levels"):
        dirdp.plan(PURE, model, any_model=True, levels=levels, adjacency="add-remove")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ManyRowsWarning)
        dirdp.plan(PURE, model, any_model=True, levels={"first": 20}, public=["second"])


@pytest.mark.parametrize(
    ("logit", "refusal"),
    [
        # Two rows: with two records this was accepted.
        (lambda effect, group: effect[group] / group.shape[0], "something for each record"),
        (lambda effect, group: effect[group] + pt.repeat(effect[:1], group.shape[0]) / group.shape[0], "each record"),
        # With one record nobody was asked.
        (lambda effect, group: effect[group] * pt.as_tensor(np.array([1.0, 2.0]))[group], "public=True"),
    ],
)
def test_a_private_number_of_records_decides_no_refusal(logit, refusal):
    for n in (1, 2, 3, 5):
        with pm.Model() as model:
            effect, group = pm.Normal("effect", shape=2), pm.Data("group", np.arange(n) % 2)
            pm.Bernoulli("y", logit_p=logit(effect, group), observed=np.arange(n) // 2 % 2)
        with pytest.raises(UnsupportedModelError, match=refusal):
            dirdp.private_model(PURE, model, levels={"group": 2}, adjacency="add-remove")


def rows_of_regions(build=None, dim=("north", "south"), said=None, codes=(0, 1, 1, 0), y=(1, 0, 1, 1)):
    """The labels of the rows of a model with an effect of each region."""
    with pm.Model(coords={"region": list(dim), "other": ["a", "b"]}) as model:
        region, effect = pm.Data("which", np.array(codes)), pm.Normal("effect", dims="region")
        logit = effect[region] if build is None else build(effect, region)
        pm.Bernoulli("y", logit_p=logit, observed=np.array(y))
    (outcomes,) = read_model(model, ModelOptions(**(said or {"levels": {"which": 2}}))).outcomes
    return outcomes.rows


def test_rows_have_the_labels_of_the_model():
    named = ("which=north", "which=south")
    assert rows_of_regions() == rows_of_regions(said={"public": ["which"]}) == named
    # A recipient makes up observations, and as many as they like.
    assert rows_of_regions(codes=(0,) * 7, y=(0,) * 7) == named
    assert rows_of_regions(said={"levels": {"which": 2}, "adjacency": "add-remove"}, codes=(1,), y=(0,)) == named
    assert rows_of_regions(lambda effect, region: pm.Deterministic("twice", 2 * effect, dims="region")[region]) == named
    assert rows_of_regions(lambda effect, region: pm.Normal("b", dims=("other", "region"))[1, region]) == named
    # The second covariate has no labels, and a code beyond those of the dim has none.
    assert rows_of_regions(lambda effect, region: pt.concatenate([effect, [0.0]])[region]) == ("which=0", "which=1")
    three = rows_of_regions(
        lambda e, region: e[pt.minimum(region, 1)] + 0 * e[region % 2], said={"levels": {"which": 3}}
    )
    assert three == ("which=0", "which=1", "which=2")


@pytest.mark.parametrize(
    ("build", "dim"),
    [
        (lambda effect, region: effect[region] + pm.Normal("b", dims="other")[region], ("north", "south")),
        (None, ("north", "north")),
        (None, ("north", "so\nuth")),
        # Only the private model's own labels: those of a Deterministic may name people.
        (
            lambda effect, region: pm.Deterministic("one", pt.ones(2) * effect[0], dims="other")[region],
            ("north", "south"),
        ),
    ],
)
def test_rows_are_called_by_their_codes_where_labels_are_none(build, dim):
    assert rows_of_regions(build, dim) == ("which=0", "which=1")


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("public", [(), ["records"]])
def test_no_part_of_an_array_is_observed_which_could_be_public_as_a_whole(public, adjacency):
    """It was proposed to say that the array is public, which published the observations with it."""
    records = np.array([[0, 1], [1, 1], [1, 0], [0, 0]])
    for part in (np.s_[:, 0], np.s_[:3, 0]):
        with pm.Model() as model:
            pm.Bernoulli("y", logit_p=pm.Normal("b"), observed=pm.Data("records", records)[part])
        with pytest.raises(UnsupportedModelError, match="'y' observes a part") as error:
            dirdp.private_model(PURE, model, public=public, adjacency=adjacency)
        assert "public" not in str(error.value)
    with pm.Model() as way_out:
        pm.Bernoulli("y", logit_p=pm.Normal("b"), observed=pm.Data("observations", records[:, 0]))
    private = dirdp.private_model(PURE, way_out, adjacency=adjacency)
    assert np.isfinite(term_at(private, **{rv.name: np.full(rv.type.shape, 0.5) for rv in private.free_RVs}))


def likelihood_at_start(private):
    """The log-probability of a private model at its initial point; its gradient has to be finite."""
    start = private.initial_point(random_seed=1)
    assert np.all(np.isfinite(private.compile_dlogp(mode=PLAIN)(start)))
    return float(private.compile_logp(mode=PLAIN)(start))


def different_people(first, second):
    b = pm.Normal("b")
    pm.Bernoulli("y", logit_p=b, observed=first)
    pm.Bernoulli("z", logit_p=b + 1, observed=second)


def with_impossible_cells():
    p = pt.stack([pm.Beta("p", 1, 1), 0.0])
    pm.Bernoulli("y", p=p[pm.Data("group", [0, 0, 0, 1, 0, 0])], observed=[0, 1, 1, 0, 1, 1])


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: pm.Bernoulli("y", logit_p=pm.Normal("b") * pm.Data("x", 2.0), observed=[0, 1]), {"public": ["x"]}),
        (lambda: pm.Bernoulli("y", logit_p=pm.Normal("b"), observed=pm.Data("only", 1)), {}),
        (lambda: different_people([0, 1, 1, 0], [1, 1, 0]), {"disjoint": [["y"], ["z"]]}),
        (lambda: pm.Bernoulli("y", logit_p=pm.Flat("b"), observed=[0, 1]), {}),
        (lambda: pm.Poisson("y", mu=pm.HalfFlat("m"), observed=[0, 0, 0]), {"count_variables": ["y"]}),
        (lambda: pm.Poisson("y", mu=pm.Gamma("rate", 2, 1), observed=5), {"count_variables": ["y"]}),
        (lambda: pm.Binomial("y", n=5, p=pm.Beta("p", 1, 1), observed=0), {"contribution": 1}),
        (with_impossible_cells, {"public": ["group"]}),
        (with_impossible_cells, {"levels": {"group": 2}}),
        (with_impossible_cells, {"levels": {"group": 2}, "adjacency": "add-remove"}),
    ],
)
def test_unusual_models_have_a_finite_log_probability_and_gradient(build, said):
    with pm.Model() as model:
        build()
    assert np.isfinite(likelihood_at_start(dirdp.private_model(PURE, model, **said)))


def refusal_of(covariate, *, codes=False, **said):
    """What a model says that reads a covariate about which nothing was said."""
    with pm.Model() as model:
        x = covariate if isinstance(covariate, pt.TensorConstant) else pm.Data("x", covariate)
        p = pm.Beta("p", 1, 1, shape=2)[x] if codes else pm.math.invlogit(pm.Normal("a") * x)
        pm.Bernoulli("y", p, observed=np.arange(len(covariate.data if codes else covariate)) % 2)
    with pytest.raises(UnsupportedModelError) as caught:
        dirdp.private_model(PURE, model, **said)
    return str(caught.value)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_what_a_refusal_proposes_does_not_depend_on_the_covariate(adjacency):
    """Answers that nobody gave are tried on made-up covariates."""
    covariates = [np.zeros(300), np.arange(300.0), np.full(300, np.inf), np.full(300, 1e300), -1e5 * np.arange(300.0)]
    refusals = {refusal_of(x, adjacency=adjacency) for x in covariates}
    assert len(refusals) == 1
    assert "public=[" in refusals.pop()


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_the_covariate_of_a_single_record_is_one(adjacency):
    """It was a number of the model, and stood in the private model."""
    for n in (1, 2, 3):
        said = refusal_of(pt.constant(np.arange(1, n + 1) % 2), codes=True, adjacency=adjacency)
        assert "without a name" in said, n


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_length_of_other_data_is_no_number(n):
    """One that is as long as there are records is that of the observations, which nobody has to be asked about."""
    with pm.Model() as model:
        p, x = pm.Beta("p", 1, 1, shape=2), pm.Data("x", np.arange(n))
        pm.Bernoulli("y", pt.broadcast_to(p[None, :], (x.shape[0], 2))[:, 0], observed=np.arange(n) % 2)
    private = dirdp.private_model(PURE, model, public=["x"], adjacency="add-remove")
    assert private.observed_RVs
