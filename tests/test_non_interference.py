"""Before the receipt nothing depends on records: not on their values, and not on a number of them that is private.

Each model is built with several sets of records. Among the numbers of records are all numbers and lengths that stand in
the model, those beside them, and 2 and 3 records. What is planned, what is published of it, and what is refused has to
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


def coin(n, **options):
    pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=answers(n), **options)


def yes(n, logit, name="y", **options):
    pm.Bernoulli(name, logit_p=logit, observed=answers(n), **options)


def codes(n, levels, name="group", **options):
    return pm.Data(name, answers(n, levels), **options)


def counted(n, inner, most=6, kind=pm.Censored):
    kind("y", inner, lower=None, upper=most, observed=answers(n, most))


def rate():
    return pm.Gamma("rate", 2, 1)


def numbers(n):
    """The numbers of records that a Deterministic holds were left out of the private model, at any epsilon."""
    p = pm.Beta("p", 1, 1)
    pm.Bernoulli("y", p, observed=answers(n))
    for k in range(2, 12):
        pm.Deterministic(f"per_{k}", k * p)


def long_dim(n):
    """A dim of twelve labels was an InternalError at 12 records."""
    pm.modelcontext(None).add_coord("week", range(12))
    effect = pm.Normal("effect", dims="week")
    pm.Deterministic("odds", pm.math.exp(effect), dims="week")
    yes(n, effect[0])


def weights(n):
    """Three constant weights were refused at 3 records."""
    yes(n, pt.dot(np.array([0.2, 0.3, 0.5]), pm.Normal("effect", shape=3)))


def groups_with_dims(n):
    model = pm.modelcontext(None)
    model.add_coord("record", range(n))
    model.add_coord("kind", range(5))
    group = codes(n, 5, dims="record")
    effect = pm.Normal("effect", dims="kind")
    pm.Deterministic("each", effect[group], dims="record")
    yes(n, effect[group], dims="record")


def two_questions(n):
    ability = pm.Normal("ability")
    yes(n, ability, "first")
    yes(n, ability + 0.5, "second")


def three_questions(n):
    ability = pm.Normal("ability")
    for k in range(3):
        pm.Bernoulli(f"answer_{k}", logit_p=ability + pm.Normal(f"item_{k}"), observed=answers(n + k)[:n])


def mixture(n):
    parts = [pm.Binomial.dist(n=4, p=0.2), pm.Binomial.dist(n=4, p=0.8)]
    pm.Mixture("y", w=pm.Dirichlet("w", np.ones(2)), comp_dists=parts, observed=answers(n, 5))


def penalty(n):
    effect = pm.Normal("effect", shape=4)
    pm.Potential("smooth", -(pt.diff(effect) ** 2).sum())
    yes(n, effect[2])


def poststratified(n):
    share = pm.Data("share", np.full(5, 0.2))
    effect = pm.Normal("effect", shape=5)
    pm.Deterministic("all", (share * pm.math.invlogit(effect)).sum())
    yes(n, effect[codes(n, 5)])


def two_groups_of_people(n):
    yes(n, pm.Normal("a"), "first")
    pm.Bernoulli("second", logit_p=pm.Normal("b"), observed=answers(n + 2)[:n])


def own(n, of_outcome):
    """The user's own log-probability, and more in it, which no parameter shows."""

    def logp(value, a):
        return value * a - pt.log1p(pt.exp(a)) + of_outcome()

    pm.CustomDist("y", pm.Normal("a"), logp=logp, observed=answers(n), dtype="int64")


def lengths_that_are_read(n):
    """An array of lengths, as PyMC writes them for itself, which the log-probability reads, too."""
    lengths = pt.constant(np.array([1, int(answers(n).sum())]))
    own(n, lambda: pt.zeros(lengths).reshape(lengths).sum() + 0.0 * lengths.sum())


LINE, RING = (-1.0, 1.0), np.roll(np.eye(6), 1, axis=0) + np.roll(np.eye(6), -1, axis=0)
BINARY = {"support": {"y": [0, 1]}}
# Each model, what is said about it, and the numbers that stand in it. All are under add-remove, where the number of
# records is private. A free variable of shape 7 was refused at 7 records.
MODELS = {
    "coin": (coin, {}, ()),
    "numbers": (numbers, {}, (2, 7, 11)),
    "free vector": (lambda n: yes(n, pm.Normal("effect", shape=7).mean()), {}, (7,)),
    "long dim": (long_dim, {}, (12,)),
    "weights": (weights, {"public": True}, (3,)),
    # Nobody says that they are public: three numbers of three records would look the same.
    "unnamed weights": (weights, {}, (3,)),
    "mean of numbers": (lambda n: yes(n, pm.Normal("b") * pt.constant(np.linspace(*LINE, n)).mean()), {}, ()),
    "thresholds": (
        lambda n: pm.OrderedLogistic("y", eta=pm.Normal("eta"), cutpoints=np.arange(-1.0, 2), observed=answers(n, 4)),
        {"public": True},
        (3, 4),
    ),
    "lookup": (
        lambda n: yes(n, pt.dot(pt.constant(np.eye(4, 3)), pm.Normal("effect", shape=3))[codes(n, 4)]),
        {"levels": {"group": 4}, "public": True},
        (3, 4, 12),
    ),
    "groups": (lambda n: yes(n, pm.Normal("effect", shape=5)[codes(n, 5)]), {"levels": {"group": 5}}, (5, 10)),
    "groups with dims": (groups_with_dims, {"levels": {"group": 5}}, (5, 10)),
    "two questions": (two_questions, {"jointly": [["first", "second"]]}, (4,)),
    "capped": (lambda n: counted(n, pm.Poisson.dist(rate())), {}, (7,)),
    # Each observation is a number of people; the number of observations is public.
    "cases": (
        lambda n: pm.Poisson("y", pm.Gamma("rate", 2, 1, shape=5), observed=answers(1000, 5)[n % 7 : n % 7 + 5]),
        {"count_variables": ["y"]},
        (5,),
    ),
    "trials": (lambda n: pm.Binomial("y", n=n + 5, p=pm.Beta("p", 1, 1), observed=n), {"contribution": 1}, (5,)),
    "effects of persons": (lambda n: yes(n, pm.Normal("u", shape=n)), {}, ()),
    "covariate of records": (lambda n: yes(n, pm.Normal("b") * np.linspace(*LINE, n)), {}, ()),
    "named covariate": (lambda n: yes(n, pm.Normal("b") * pm.Data("x", np.linspace(*LINE, n))), {"public": ["x"]}, ()),
    "mean of records": (lambda n: yes(n, pm.Normal("b") * pm.Data("x", np.linspace(*LINE, n)).mean()), {}, ()),
    "three questions": (three_questions, {"jointly": [["answer_0", "answer_1", "answer_2"]]}, (3, 8)),
    "probit": (
        lambda n: pm.OrderedProbit("y", eta=pm.Normal("eta"), cutpoints=np.arange(-1.0, 3), observed=answers(n, 5)),
        {"public": True},
        (4, 5),
    ),
    "beta-binomial": (
        lambda n: pm.BetaBinomial("y", alpha=rate(), beta=2.0, n=6, observed=answers(n, 7)),
        {"unit": 0},
        (6, 7),
    ),
    "softmax": (
        lambda n: pm.Categorical("y", logit_p=pm.ZeroSumNormal("w", shape=7), observed=answers(n, 7)),
        {},
        (7,),
    ),
    "mixture": (mixture, {}, (5,)),
    "truncated": (lambda n: pm.Truncated("y", pm.Poisson.dist(rate()), upper=5, observed=answers(n, 6)), {}, (6,)),
    "zero-inflated": (lambda n: counted(n, pm.ZeroInflatedPoisson.dist(psi=pm.Beta("psi", 2, 1), mu=rate())), {}, (7,)),
    "overdispersed": (
        lambda n: counted(n, pm.NegativeBinomial.dist(mu=rate(), alpha=pm.Gamma("alpha", 2, 1)), 7),
        {},
        (8,),
    ),
    "latent classes": (
        lambda n: pm.Bernoulli(
            "y", p=(pm.Dirichlet("w", np.ones(3)) * pm.Beta("p", 1, 1, shape=3)).sum(), observed=answers(n)
        ),
        {},
        (3,),
    ),
    "interaction": (
        lambda n: yes(n, pm.Normal("effect", shape=(3, 4))[codes(n, 3), pm.Data("column", answers(n + 1, 4)[:n])]),
        {"levels": {"group": 3, "column": 4}},
        (3, 4, 12),
    ),
    "walk": (lambda n: yes(n, pm.GaussianRandomWalk("w", init_dist=pm.Normal.dist(), steps=6)[3]), {}, (6, 7)),
    "map": (
        lambda n: yes(n, pm.ICAR("effect", W=RING)[codes(n, 6)]),
        {"levels": {"group": 6}, "public": True},
        (6, 12),
    ),
    "penalty": (penalty, {}, (3, 4)),
    "poststratified": (poststratified, {"levels": {"group": 5}, "public": ["share"]}, (5,)),
    "two groups of people": (two_groups_of_people, {"disjoint": [["first"], ["second"]]}, (4,)),
    "part of the people": (lambda n: coin(n, total_size=10 * n), {}, (10,)),
    "observed data": (lambda n: pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=pm.Data("r", answers(n))), {}, ()),
    "without end": (lambda n: pm.Poisson("y", rate(), observed=answers(n, 6)), {}, ()),
    "own distribution": (lambda n: own(n, lambda: 0.0), {}, ()),
    "numbers of its own": (lambda n: own(n, lambda: 0.0 * pt.constant(np.linspace(*LINE, n)).sum()), BINARY, (3,)),
    "lengths that are read": (lengths_that_are_read, BINARY, ()),
}
# Others have the same kind of graph, and to compile it takes seconds for these.
LONG = {"zero-inflated", "overdispersed", "truncated", "three questions", "probit", "interaction"}


# Arrays that the user makes as long as there are records: that of a single record is a number.
OF_RECORDS = {"effects of persons", "covariate of records", "named covariate", "numbers of its own"}


def shown(model):
    return {
        name: (type(model[name]).__name__, tuple(model.named_vars_to_dims.get(name, ())), model[name].type.shape)
        for name in sorted(model.named_vars)
    }, dict(model.coords)


@cache
def seen_before_the_charge(name, n):
    make, options, _ = MODELS[name]
    try:
        with pm.Model() as model:
            make(n)
        found = read_model(model, ModelOptions(adjacency="add-remove", **options))
        chosen = plan_tables(PURE, found)
        private = with_terms(found, chosen, None)
    except dirdp.errors.DirdpError as error:
        return type(error), str(error)
    return (chosen.digest, shown(private))


@pytest.mark.parametrize(
    ("name", "near"),
    [pytest.param(name, False, marks=pytest.mark.slow if name in LONG else ()) for name in MODELS]
    + [pytest.param(name, True, marks=pytest.mark.slow) for name in MODELS],
)
def test_a_private_number_of_records_changes_nothing_before_the_charge(name, near):
    numbers = MODELS[name][2]
    others = {3, 17, 41, *(n + beside for n in numbers for beside in (-1, 1))} if near else {2, *numbers}
    others |= set() if near or name in OF_RECORDS else {1}
    for n in sorted(others):
        assert seen_before_the_charge(name, n) == seen_before_the_charge(name, 40), n


@pytest.mark.parametrize(
    "name",
    ["coin", "capped", "mixture"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in ("truncated", "zero-inflated", "overdispersed")],
)
def test_numbers_that_pymc_writes_are_no_covariates(name):
    """It writes sizes and single numbers as arrays of one entry, which are as many as a single record."""
    with pm.Model() as model:
        MODELS[name][0](1)
    assert dirdp.private_model(PURE, model).observed_RVs


@pytest.mark.parametrize(("verb", "is_data"), [(dirdp.plan, True), (dirdp.private_model, False)])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
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


def test_most_models_of_the_zoo_are_released_and_arrays_without_a_name_are_asked_for():
    """So that equal answers are not all refusals."""
    seen = {name: seen_before_the_charge(name, 40) for name in set(MODELS) - LONG}
    assert sum(isinstance(answer[0], str) for answer in seen.values()) >= 22
    for name in ("unnamed weights", "mean of numbers", "numbers of its own", "lengths that are read"):
        assert "an array of numbers without a name" in seen[name][1]


CONJUGATE = {
    "coin": coin,
    "share": lambda n: pm.Categorical("y", pm.Dirichlet("p", [1.0] * 4), observed=answers(n, 4)),
    "table": lambda n: pm.Multinomial("y", n=n, p=pm.Dirichlet("p", [1.0] * 3), observed=[1, n - 2, 1]),
    "trials": lambda n: pm.Binomial("y", n=n, p=pm.Beta("p", 2, 5), observed=n // 2),
}


@pytest.mark.parametrize("mechanism", ["geometric", "dirichlet", "gaussian"])
@pytest.mark.parametrize("name", CONJUGATE)
def test_a_plan_of_a_conjugate_model_does_not_know_a_private_number(name, mechanism):
    digests = set()
    for n in (2, 4, 40):
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


FRAMES = {f"{n} records": frame(n) for n in (40, 41, 0, 1, 3, 6)}
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
        APPROX, records, "y", categories=CATEGORIES, n_records=30, mechanism="geometric", ledger=ledger, **OPTIONS
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
    some = ("40 records", "0 records", "another label", "a missing number", "one column is shorter")
    said = {name: charged_for(verb, FRAMES[name], 1e-3) for name in some}
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
