"""Before the receipt nothing depends on records: not on their values, and not on a number of them that is private.

Each model is built with several sets of records. Among the numbers of records are all numbers and lengths that stand in
the model, those beside them, and 0 to 3 records. What is planned, what is published of it, and what is refused has to
be the same for all.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.models.outcomes import ModelOptions
from pymc_dirdp.releases.model_terms import planned_tables, read_model, with_terms

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
    cases: ({"counts": ["y"]}, (5, 6)),
    trials: ({"unit": "trial"}, (5, 6)),
    effects_of_persons: ({}, ()),
    covariate_of_records: ({}, ()),
    named_covariate: ({"public": ["x"]}, ()),
    mean_of_records: ({}, ()),
    mean_of_numbers: ({}, ()),
}


def shown(model):
    return {
        name: (type(model[name]).__name__, tuple(model.named_vars_to_dims.get(name, ())), model[name].type.shape)
        for name in sorted(model.named_vars)
    }, dict(model.coords)


def seen_before_the_charge(make, n, said):
    """The plan, the private model as far as it can be looked at, or the refusal."""
    try:
        with pm.Model() as model:
            make(n)
        options = ModelOptions(adjacency="add-remove", **said)
        found = read_model(model, options)
        chosen = planned_tables(PURE, found, options)
        private = with_terms(found, chosen, None).model
    except dirdp.errors.DirdpError as error:
        return type(error), str(error)
    return (chosen.digest, shown(private))


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_private_number_of_records_changes_nothing_before_the_charge(make):
    said, present = MODELS[make]
    first = seen_before_the_charge(make, 40, said)
    for n in sorted({2, 3, 17, 41, *present} - {40}):
        assert seen_before_the_charge(make, n, said) == first, n


def test_most_models_of_the_zoo_are_released():
    """So that equal answers are not all refusals."""
    accepted = [make for make in MODELS if isinstance(seen_before_the_charge(make, 40, MODELS[make][0])[0], str)]
    assert len(accepted) >= 12


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
