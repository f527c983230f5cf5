"""Before the receipt nothing depends on records: not on their values, and not on a number of them that is private.

Each model is built with several sets of records. Among the numbers of records are all numbers and lengths that stand in
the model, those beside them, and 0 to 3 records. What is planned, what is published of it, and what is refused has to
be the same for all.
"""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.cli import main as command_line
from pymc_dirdp.models.model_options import ModelOptions
from pymc_dirdp.releases.model_tables import plan_tables, read_model
from pymc_dirdp.releases.noisy_tables import with_terms
from tests.planned import planned_sample

APPROX, PURE = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), dirdp.PureDP(epsilon=1.0)


def answers(n, outcomes=2):
    """Records as neighbours have them: one more record leaves the others as they are."""
    return np.random.default_rng(n % 2).integers(outcomes, size=1000)[:n]


def coin(n):
    pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=answers(n))


def numbers(n):
    """The numbers of records that a Deterministic holds were left out of the private model, at any epsilon."""
    p = pm.Beta("p", 1, 1)
    pm.Bernoulli("y", p, observed=answers(n))
    for k in range(2, 12):
        pm.Deterministic(f"per_{k}", k * p)


def free_vector(n):
    """A free variable of shape 7 was refused at 7 records."""
    effect = pm.Normal("effect", shape=7)
    pm.Bernoulli("y", logit_p=effect.mean(), observed=answers(n))


def long_dim(n):
    """A dim of twelve labels was an InternalError at 12 records."""
    pm.modelcontext(None).add_coord("week", range(12))
    effect = pm.Normal("effect", dims="week")
    pm.Deterministic("odds", pm.math.exp(effect), dims="week")
    pm.Bernoulli("y", logit_p=effect[0], observed=answers(n))


def weights(n):
    """Three constant weights were refused at 3 records."""
    effect = pm.Normal("effect", shape=3)
    pm.Bernoulli("y", logit_p=pt.dot(np.array([0.2, 0.3, 0.5]), effect), observed=answers(n))


def unnamed_weights(n):
    """Nobody says that they are public: three numbers of three records would look the same."""
    weights(n)


def mean_of_numbers(n):
    pm.Bernoulli("y", logit_p=pm.Normal("b") * pt.constant(np.linspace(-1, 1, n)).mean(), observed=answers(n))


def thresholds(n):
    pm.OrderedLogistic("y", eta=pm.Normal("eta"), cutpoints=np.array([-1.0, 0.0, 1.0]), observed=answers(n, 4))


def lookup(n):
    """A table of four rows that private codes choose from."""
    group = pm.Data("group", answers(n, 4))
    table = np.array([0.1, 0.2, 0.3, 0.4])
    pm.Bernoulli("y", logit_p=pm.Normal("a") + pm.Normal("b") * pt.constant(table)[group], observed=answers(n))


def groups(n):
    group = pm.Data("group", answers(n, 5))
    pm.Bernoulli("y", logit_p=pm.Normal("effect", shape=5)[group], observed=answers(n))


def groups_with_dims(n):
    model = pm.modelcontext(None)
    model.add_coord("record", range(n))
    model.add_coord("kind", range(5))
    group = pm.Data("group", answers(n, 5), dims="record")
    effect = pm.Normal("effect", dims="kind")
    pm.Deterministic("each", effect[group], dims="record")
    pm.Bernoulli("y", logit_p=effect[group], observed=answers(n), dims="record")


def two_questions(n):
    ability = pm.Normal("ability")
    pm.Bernoulli("first", logit_p=ability, observed=answers(n))
    pm.Bernoulli("second", logit_p=ability + 0.5, observed=answers(n))


def capped(n):
    pm.Censored("y", pm.Poisson.dist(pm.Gamma("rate", 2, 1)), lower=None, upper=6, observed=answers(n, 6))


def cases(n):
    """Each observation is a number of people; the number of observations is public."""
    pm.Poisson("y", pm.Gamma("rate", 2, 1, shape=5), observed=answers(1000, 5)[n % 7 : n % 7 + 5])


def trials(n):
    pm.Binomial("y", n=n + 5, p=pm.Beta("p", 1, 1), observed=n)


def effects_of_persons(n):
    pm.Bernoulli("y", logit_p=pm.Normal("u", shape=n), observed=answers(n))


def covariate_of_records(n):
    pm.Bernoulli("y", logit_p=pm.Normal("b") * np.linspace(-1, 1, n), observed=answers(n))


def named_covariate(n):
    x = pm.Data("x", np.linspace(-1, 1, n))
    pm.Bernoulli("y", logit_p=pm.Normal("b") * x, observed=answers(n))


def mean_of_records(n):
    x = pm.Data("x", np.linspace(-1, 1, n))
    pm.Bernoulli("y", logit_p=pm.Normal("b") * x.mean(), observed=answers(n))


def three_questions(n):
    ability = pm.Normal("ability")
    for k in range(3):
        pm.Bernoulli(f"answer_{k}", logit_p=ability + pm.Normal(f"item_{k}"), observed=answers(n + k)[:n])


def probit(n):
    pm.OrderedProbit("y", eta=pm.Normal("eta"), cutpoints=np.array([-1.0, 0.0, 1.0, 2.0]), observed=answers(n, 5))


def beta_binomial(n):
    pm.BetaBinomial("y", alpha=pm.Gamma("a", 2, 1), beta=2.0, n=6, observed=answers(n, 7))


def softmax(n):
    effect = pm.ZeroSumNormal("effect", shape=7)
    pm.Categorical("y", logit_p=effect, observed=answers(n, 7))


def mixture(n):
    parts = [pm.Binomial.dist(n=4, p=0.2), pm.Binomial.dist(n=4, p=0.8)]
    pm.Mixture("y", w=pm.Dirichlet("w", np.ones(2)), comp_dists=parts, observed=answers(n, 5))


def truncated(n):
    pm.Truncated("y", pm.Poisson.dist(pm.Gamma("rate", 2, 1)), upper=5, observed=answers(n, 6))


def zero_inflated(n):
    inner = pm.ZeroInflatedPoisson.dist(psi=pm.Beta("psi", 2, 1), mu=pm.Gamma("rate", 2, 1))
    pm.Censored("y", inner, lower=None, upper=6, observed=answers(n, 6))


def overdispersed(n):
    inner = pm.NegativeBinomial.dist(mu=pm.Gamma("rate", 2, 1), alpha=pm.Gamma("alpha", 2, 1))
    pm.Censored("y", inner, lower=None, upper=7, observed=answers(n, 7))


def hierarchy(n):
    group = pm.Data("group", answers(n, 5))
    effect = pm.Normal("effect", pm.Normal("mean"), pm.HalfNormal("scale"), shape=5)
    pm.Bernoulli("y", logit_p=effect[group], observed=answers(n))


def interaction(n):
    row, column = pm.Data("row", answers(n, 3)), pm.Data("column", answers(n + 1, 4)[:n])
    pm.Bernoulli("y", logit_p=pm.Normal("effect", shape=(3, 4))[row, column], observed=answers(n))


def walk(n):
    steps = pm.GaussianRandomWalk("steps", init_dist=pm.Normal.dist(), steps=6)
    pm.Bernoulli("y", logit_p=steps[3], observed=answers(n))


def neighbours_on_a_map(n):
    ring = np.roll(np.eye(6), 1, axis=0) + np.roll(np.eye(6), -1, axis=0)
    effect = pm.ICAR("effect", W=ring)
    pm.Bernoulli("y", logit_p=effect[pm.Data("district", answers(n, 6))], observed=answers(n))


def penalty(n):
    effect = pm.Normal("effect", shape=4)
    pm.Potential("smooth", -(pt.diff(effect) ** 2).sum())
    pm.Bernoulli("y", logit_p=effect[2], observed=answers(n))


def poststratified(n):
    share = pm.Data("share", np.full(5, 0.2))
    effect = pm.Normal("effect", shape=5)
    pm.Deterministic("all", (share * pm.math.invlogit(effect)).sum())
    pm.Bernoulli("y", logit_p=effect[pm.Data("group", answers(n, 5))], observed=answers(n))


def latent_classes(n):
    weight = pm.Dirichlet("weight", np.ones(3))
    pm.Bernoulli("y", p=(weight * pm.Beta("p", 1, 1, shape=3)).sum(), observed=answers(n))


def two_groups_of_people(n):
    pm.Bernoulli("first", logit_p=pm.Normal("a"), observed=answers(n))
    pm.Bernoulli("second", logit_p=pm.Normal("b"), observed=answers(n + 2)[:n])


def table_of_constants(n):
    design = pt.constant(np.arange(12.0).reshape(4, 3))
    effect = pm.Normal("effect", shape=3)
    pm.Bernoulli("y", logit_p=pt.dot(design, effect)[pm.Data("group", answers(n, 4))], observed=answers(n))


def part_of_the_people(n):
    pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=answers(n), total_size=10 * n)


def observed_data(n):
    pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=pm.Data("records", answers(n)))


def without_end(n):
    pm.Poisson("y", pm.Gamma("rate", 2, 1), observed=answers(n, 6))


def own_distribution(n):
    pm.CustomDist("y", pm.Normal("a"), logp=lambda value, a: -pt.log1p(pt.exp(a)) + value * a, observed=answers(n))


def numbers_of_its_own(n):
    """An array within the user's own log-probability, which no parameter shows."""
    effects = np.linspace(-1, 1, n)

    def logp(value, a):
        return value * a - pt.log1p(pt.exp(a)) + 0.0 * pt.constant(effects).sum()

    pm.CustomDist("y", pm.Normal("a"), logp=logp, observed=answers(n), dtype="int64")


def lengths_that_are_read(n):
    """An array of lengths, as PyMC writes them for itself, which the log-probability reads, too."""
    lengths = pt.constant(np.array([1, int(answers(n).sum())]))

    def logp(value, a):
        return value * a - pt.log1p(pt.exp(a)) + pt.zeros(lengths).reshape(lengths).sum() + 0.0 * lengths.sum()

    pm.CustomDist("y", pm.Normal("a"), logp=logp, observed=answers(n), dtype="int64")


# What is said about each, and the numbers that stand in it. All are under add-remove, where the number is private.
MODELS = {
    coin: ({}, ()),
    numbers: ({}, range(2, 13)),
    free_vector: ({}, (6, 7, 8)),
    long_dim: ({}, (11, 12, 13)),
    weights: ({"public": True}, (3, 4)),
    thresholds: ({"public": True}, (3, 4, 5)),
    lookup: ({"levels": {"group": 4}, "public": True}, (3, 4, 5)),
    unnamed_weights: ({}, (3, 4)),
    groups: ({"levels": {"group": 5}}, (4, 5, 6, 10)),
    groups_with_dims: ({"levels": {"group": 5}}, (4, 5, 6, 10)),
    two_questions: ({"jointly": [["first", "second"]]}, (4, 5)),
    capped: ({}, (6, 7, 8)),
    cases: ({"count_variables": ["y"]}, (5, 6)),
    trials: ({"contribution": 1}, (5, 6)),
    effects_of_persons: ({}, ()),
    covariate_of_records: ({}, ()),
    named_covariate: ({"public": ["x"]}, ()),
    mean_of_records: ({}, ()),
    mean_of_numbers: ({}, ()),
    three_questions: ({"jointly": [["answer_0", "answer_1", "answer_2"]]}, (3, 8)),
    probit: ({"public": True}, (4, 5)),
    beta_binomial: ({"unit": 0}, (6, 7)),
    softmax: ({}, (6, 7)),
    mixture: ({}, (4, 5)),
    truncated: ({}, (5, 6)),
    zero_inflated: ({}, (6, 7)),
    overdispersed: ({}, (7, 8)),
    hierarchy: ({"levels": {"group": 5}}, (5,)),
    interaction: ({"levels": {"row": 3, "column": 4}}, (3, 4, 12)),
    walk: ({}, (6, 7)),
    neighbours_on_a_map: ({"levels": {"district": 6}, "public": True}, (6, 12)),
    penalty: ({}, (3, 4)),
    poststratified: ({"levels": {"group": 5}, "public": ["share"]}, (5,)),
    latent_classes: ({}, (3,)),
    two_groups_of_people: ({"disjoint": [["first"], ["second"]]}, (4,)),
    table_of_constants: ({"levels": {"group": 4}, "public": True}, (3, 4, 12)),
    part_of_the_people: ({}, (10,)),
    observed_data: ({}, ()),
    without_end: ({}, ()),
    own_distribution: ({}, ()),
    numbers_of_its_own: ({"support": {"y": [0, 1]}}, (3, 4)),
    lengths_that_are_read: ({"support": {"y": [0, 1]}}, ()),
}


def shown(model):
    return {
        name: (type(model[name]).__name__, tuple(model.named_vars_to_dims.get(name, ())), model[name].type.shape)
        for name in sorted(model.named_vars)
    }, dict(model.coords)


@cache
def seen_before_the_charge(make, n):
    """The plan, the private model as far as it can be looked at, or the refusal."""
    try:
        with pm.Model() as model:
            make(n)
        options = ModelOptions(adjacency="add-remove", **MODELS[make][0])
        found = read_model(model, options)
        chosen = plan_tables(PURE, found)
        private = with_terms(found, chosen, None)
    except dirdp.errors.DirdpError as error:
        return type(error), str(error)
    return (chosen.digest, shown(private))


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_private_number_of_records_changes_nothing_before_the_charge(make):
    first = seen_before_the_charge(make, 40)
    for n in sorted({2, 3, 17, 41, *MODELS[make][1]} - {40}):
        assert seen_before_the_charge(make, n) == first, n


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("is_data", [True, False])
@pytest.mark.parametrize("verb", [dirdp.plan, dirdp.private_model])
def test_numbers_of_trials_decide_no_question(verb, is_data, adjacency):
    """Whether each of them is 1 was looked at, before anybody had said whose they are."""
    questions = set()
    for trials in ([1, 1, 1], [2, 1, 1], [7, 8, 9]):
        with pm.Model() as model:
            n = pm.Data("n", trials) if is_data else np.array(trials)
            pm.Binomial("y", n=n, p=pm.Beta("p", 1, 1), observed=[1, 0, 1])
        with pytest.raises(dirdp.errors.UnsupportedModelError) as caught:
            verb(PURE, model, adjacency=adjacency)
        # Under replace-one everybody has the same number of trials in all neighbours.
        questions.add(str(caught.value) if adjacency == "add-remove" else str(caught.value).partition(". ")[0])
    assert len(questions) == 1
    assert "several" in questions.pop()


@pytest.mark.parametrize("make", [capped, mixture, truncated, zero_inflated, overdispersed, coin])
def test_numbers_that_pymc_writes_are_no_covariates(make):
    """It writes sizes and single numbers as arrays of one entry, which are as many as a single record."""
    for n in (1, 2):
        with pm.Model() as model:
            make(n)
        assert dirdp.private_model(PURE, model).observed_RVs


def test_most_models_of_the_zoo_are_released():
    """So that equal answers are not all refusals."""
    accepted = [make for make in MODELS if isinstance(seen_before_the_charge(make, 40)[0], str)]
    assert len(accepted) >= 28


def test_an_array_without_a_name_is_asked_for_wherever_it_stands():
    for make in (unnamed_weights, mean_of_numbers, numbers_of_its_own, lengths_that_are_read):
        assert "an array of numbers without a name" in seen_before_the_charge(make, 40)[1]


CONJUGATE = {
    "coin": lambda n: pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=answers(n)),
    "share": lambda n: pm.Categorical("y", pm.Dirichlet("p", [1.0] * 4), observed=answers(n, 4)),
    "table": lambda n: pm.Multinomial("y", n=n, p=pm.Dirichlet("p", [1.0] * 3), observed=[1, n - 2, 1]),
    "trials": lambda n: pm.Binomial("y", n=n, p=pm.Beta("p", 2, 5), observed=n // 2),
}


@pytest.mark.parametrize("mechanism", ["geometric", "dirichlet", "gaussian"])
@pytest.mark.parametrize("name", CONJUGATE)
def test_a_plan_of_a_conjugate_model_does_not_know_a_private_number(name, mechanism):
    digests = set()
    for n in (2, 3, 4, 5, 40, 41):
        with pm.Model() as model:
            CONJUGATE[name](n)
        plan = dirdp.plan(APPROX, model, adjacency="add-remove", n_records=30, mechanism=mechanism)
        digests.add((plan.digest, str(dirdp.report(plan, full=True))))
    assert len(digests) == 1


# Verbs that read the records of a frame. Each data set is a neighbour of a neighbour of the first one, or worse: other
# numbers of records, none at all, labels that nobody declared, missing values.

CATEGORIES = {"sex": ["f", "m"], "group": [0, 1, 2], "y": [0, 1]}


def frame(n, **spoilt):
    columns = {"sex": np.array(["f", "m"], dtype=object)[answers(n)], "group": answers(n, 3), "y": answers(n + 1)[:n]}
    for name, value in spoilt.items():
        columns[name] = columns[name].astype(object)
        columns[name][:1] = value
    return columns


FRAMES = {f"{n} records": frame(n) for n in (40, 41, 0, 1, 2, 3, 4, 6, 12)}
FRAMES |= {
    "another label": frame(40, sex="x"),
    "a missing label": frame(40, sex=None),
    "another code": frame(40, group=-1),
    "a missing number": frame(40, group=float("nan")),
    "a text among numbers": frame(40, y="1"),
    "one column is shorter": frame(40) | {"group": answers(39, 3)},
    "one sex": frame(40) | {"sex": np.full(40, "f", dtype=object)},
}


def conjugate(records):
    with pm.Model(coords={"sex": ["f", "m"]}) as model:
        sexes = [CATEGORIES["sex"].index(one) if one in CATEGORIES["sex"] else -1 for one in records["sex"]]
        pm.Categorical("y", pm.Dirichlet("p", [1.0, 1.0], dims="sex"), observed=np.array(sexes, dtype=int))
    return model


def regression(records):
    with pm.Model() as model:
        group = pm.Data("group", np.array([one if one in (0, 1, 2) else -1 for one in records["group"]], dtype=int))
        sexes = np.array([one == "m" for one in records["sex"]], dtype=int)[: group.get_value().size]
        pm.Bernoulli("y", logit_p=pm.Normal("effect", shape=3)[group], observed=sexes)
    return model


def of_command_line(records, ledger):
    """The command reads a file of its own, in which a record is a line."""
    columns = [list(records[name]) for name in CATEGORIES]
    rows = ["" if value is None else str(value) for row in zip(*columns, strict=False) for value in row]
    lines = [",".join(rows[i : i + 3]) for i in range(0, len(rows), 3)]
    with TemporaryDirectory() as folder:
        data, declaration, out = (Path(folder, name) for name in ("records.csv", "records.toml", "release.json"))
        data.write_text("\n".join([",".join(CATEGORIES), *lines, ""]), encoding="utf-8")
        declaration.write_text(DECLARATION, encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(command_line, "_ledger", lambda facts, *, new: ledger)
            command_line.release(declaration, data, out, plan_file=None, overwrite=False)


DECLARATION = """
[people]
contribution = 1


[guarantee]
kind = "PureDP"
epsilon = 1.0

[options]
adjacency = "add-remove"
mechanism = "geometric"
n_records = 30

[variables.sex]
categories = ["f", "m"]
"""

OPTIONS = {"adjacency": "add-remove"}
VERBS = {
    "sample": lambda records, ledger: planned_sample(
        PURE, conjugate(records), n_records=30, mechanism="geometric", ledger=ledger, progressbar=False, **OPTIONS
    ),
    "private_model": lambda records, ledger: dirdp.private_model(
        PURE, regression(records), levels={"group": 3}, mechanism="geometric", ledger=ledger, **OPTIONS
    ),
    "choose_bins": lambda records, ledger: dirdp.choose_bins(
        PURE, records, "group", n_bins=2, candidates=[0.5, 1.5], ledger=ledger, **OPTIONS
    ),
    "choose_structure": lambda records, ledger: dirdp.choose_structure(
        PURE, records, categories=CATEGORIES, share=1, ledger=ledger, **OPTIONS
    ),
    "Classifier": lambda records, ledger: dirdp.Classifier.sample(
        APPROX,
        records,
        "y",
        categories=CATEGORIES,
        n_records=30,
        mechanism="geometric",
        ledger=ledger,
        progressbar=False,
        **OPTIONS,
    ),
    "command line": of_command_line,
}


def charged_for(verb, records, epsilon):
    """What a ledger holds after a call, and the error, if there is one. Entries are without their dates."""
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=epsilon, delta=1e-5), **OPTIONS)
    try:
        VERBS[verb](records, ledger)
        error = None
    except dirdp.errors.DirdpError as raised:
        error = raised
    # The digest of a choice is that of a random text, and what a classifier calibrates are tables that it has released.
    entries = [replace(entry, recorded="now") for entry in ledger.entries()]
    if verb in ("choose_bins", "choose_structure", "Classifier"):
        entries = [replace(entry, what=re.sub("[0-9a-f]{12}", "", entry.what), digest=None) for entry in entries]
    return entries, error


@pytest.mark.parametrize("verb", VERBS)
def test_a_spent_ledger_answers_nothing_about_records(verb):
    said = {name: charged_for(verb, records, 1e-3) for name, records in FRAMES.items()}
    assert all(not entries and isinstance(error, dirdp.errors.BudgetError) for entries, error in said.values()), said
    assert len({str(error) for _, error in said.values()}) == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_ledger_is_charged_the_same_whatever_the_records_are(verb):
    said = {name: charged_for(verb, records, 4.0) for name, records in FRAMES.items()}
    first, error = said["40 records"]
    assert error is None, error
    assert first
    for name, (entries, error) in said.items():
        # An error ends what would have been charged next.
        assert entries
        assert entries == (first[: len(entries)] if error else first), name
        assert error is None or "The ledger has been charged" in str(error), name
    # So that it is no test of records that fit alone.
    assert any(error for _, error in said.values())
