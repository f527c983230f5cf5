"""Guarantees of all kinds from 1e-300 to 1e300: every verb answers, or refuses with an error of the library.

Warnings are errors here, as everywhere, so an overflow on the way is seen.
"""

import functools

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp import bandits, privacy
from pymc_dirdp.errors import DirdpError, InternalError
from pymc_dirdp.mechanisms.registry import STRATEGIES
from tests.planned import planned_sample

BUDGETS = [1e-300, 1e-20, 1e-3, 1.0, 50.0, 1e4, 1e20, 1e300]
GUARANTEES = [
    *(dirdp.PureDP(epsilon=budget) for budget in BUDGETS),
    *(dirdp.ZeroCDP(rho=budget) for budget in BUDGETS),
    *(
        dirdp.ApproxDP(epsilon=budget, delta=delta)
        for budget in (0.0, *BUDGETS)
        for delta in (1e-300, 1e-6, 1 - 2.0**-53)
    ),
    *(dirdp.RenyiDP(order=order, epsilon=budget) for budget in BUDGETS for order in (1, 1 + 1e-15, 2, 1e20, 1e300)),
    *(dirdp.TruncatedCDP(rho=budget, omega=omega) for budget in BUDGETS for omega in (1 + 1e-15, 2, 1e20, 1e300)),
]
# All of them take an hour with all verbs. These are the ends of each kind, and one between.
ENDS = [
    *(dirdp.PureDP(epsilon=budget) for budget in (1e-300, 50.0, 1e300)),
    dirdp.ZeroCDP(rho=1e-300),
    *(dirdp.ApproxDP(epsilon=budget, delta=delta) for budget, delta in ((0.0, 1e-300), (1e300, 1 - 2.0**-53))),
    *(dirdp.RenyiDP(order=order, epsilon=budget) for order, budget in ((1 + 1e-15, 1e-300), (1e300, 1e300))),
    *(dirdp.TruncatedCDP(rho=budget, omega=omega) for budget, omega in ((1.0, 1 + 1e-15), (1e300, 1e300))),
]
TABLE = {"prior": [1, 1, 1], "n_records": 60}
quiet = {"progressbar": False}
rng = np.random.default_rng(20261128)
FRAME = pd.DataFrame({name: rng.choice(["u", "v"], 60) for name in "abc"} | {"age": rng.integers(0, 60, 60)})
ALL, LABELS = FRAME[["a", "b", "c"]], {name: ["u", "v"] for name in "abc"}


@functools.cache
def hair():
    with pm.Model() as model:
        pm.Multinomial("y", n=60, p=pm.Dirichlet("p", np.ones(3)), observed=[20, 30, 10])
    return model


@functools.cache
def answers():
    """Two answers of the same people: finding N7."""
    with pm.Model() as model:
        for name in "xy":
            pm.Bernoulli(name, pm.Beta(f"p_{name}", 1, 1), observed=rng.integers(0, 2, 60))
    return model


@functools.cache
def network():
    return dirdp.bayesian_network(ALL, {"a": [], "b": ["a"], "c": ["b"]}, categories=LABELS)


def described(release):
    """What everybody reads of a release."""
    dirdp.verify(release)
    assert repr(dirdp.report(release))
    assert repr(dirdp.statement(release))


def in_ledgers(guarantee):
    """As a limit, and as what is spent of another one."""
    for adaptive in (True, False):
        for limit, cost in (
            (guarantee, dirdp.PureDP(epsilon=1e-3)),
            (dirdp.ApproxDP(epsilon=1, delta=1e-6), guarantee),
        ):
            ledger = dirdp.Ledger(limit, adaptive=adaptive)
            answered(lambda ledger=ledger, cost=cost: ledger.spend(cost, what="x", unit="record"))
            answered(lambda ledger=ledger: (ledger.remaining(), ledger.remaining(1e-6), repr(ledger), ledger.frame()))
            answered(lambda ledger=ledger: repr(dirdp.statement(ledger)))


def in_bandits(guarantee):
    answered(lambda: played(dirdp.ThompsonSampler(["a", "b"], guarantee, contribution=3)))
    answered(lambda: dirdp.ThompsonSampler(["a", "b"], guarantee, schedule="every-round", horizon=100))


def played(bandit):
    bandit.update("a", 1, person="Ann")
    bandit.select()
    assert repr(dirdp.report(bandit, full=True))


def converted(guarantee):
    for kind, at in (
        (dirdp.PureDP, {}),
        (dirdp.ZeroCDP, {}),
        (dirdp.ApproxDP, {"delta": 1e-300}),
        (dirdp.RenyiDP, {"order": 1e300}),
        (dirdp.TruncatedCDP, {"omega": 2}),
    ):
        answered(lambda kind=kind, at=at: privacy.convert(guarantee, kind, **at))


def answered(call):
    """The result, or None if the library refuses."""
    try:
        return call()
    except InternalError:
        raise
    except DirdpError:
        return None


def bounded(value):
    assert not np.isnan(value)
    assert value >= 0


def verbs():
    for kind in ("dirichlet", "gaussian", "geometric", "auto", "joint"):
        named = {"mechanism": kind}
        for adjacency in ("replace-one", "add-remove"):
            here = named | {"adjacency": adjacency}
            sizes = {} if adjacency == "replace-one" else {"n_records": 60}
            yield f"calibrate {kind} {adjacency}", lambda g, here=here: dirdp.calibrate(g, **TABLE, **here)
            yield f"plan {kind} {adjacency}", lambda g, here=here | sizes: dirdp.plan(g, hair(), **here, **quiet)
            yield f"two {kind} {adjacency}", lambda g, here=here | sizes: dirdp.plan(g, answers(), **here, **quiet)
        yield f"error {kind}", lambda g, named=named: bounded(dirdp.expected_error(g, **TABLE, **named))
        yield (
            f"sample {kind}",
            lambda g, named=named: described(planned_sample(g, hair(), **named, **quiet)),
        )
    for strategy in STRATEGIES:
        named = {"mechanism": dirdp.mechanisms.Dirichlet(strategy=strategy)}
        yield f"calibrate {strategy}", lambda g, named=named: dirdp.calibrate(g, **TABLE, **named)
        yield f"error {strategy}", lambda g, named=named: bounded(dirdp.expected_error(g, **TABLE, **named))
        yield f"sample {strategy}", lambda g, named=named: described(planned_sample(g, hair(), **named, **quiet))
    for kind in ("auto", "joint", "geometric", "gaussian"):
        here = {"mechanism": kind, "unit": "record", "adjacency": "replace-one"}
        yield f"private_model {kind}", lambda g, here=here: dirdp.private_model(g, answers(), **here)
        yield (
            f"plan of any model {kind}",
            lambda g, here=here: repr(dirdp.plan(g, answers(), any_model=True, **here, **quiet)),
        )
    yield "least_guarantee", lambda g: dirdp.least_guarantee(0.1, g, **TABLE)
    yield "least_records", lambda g: dirdp.least_records(0.1, g, prior=[1, 1, 1])
    yield "privacy_utility", lambda g: repr(dirdp.privacy_utility([g], **TABLE))
    yield "choose_structure", lambda g: repr(dirdp.choose_structure(g, ALL, categories=LABELS))
    yield (
        "choose_bins",
        lambda g: repr(
            dirdp.choose_bins(g, FRAME, "age", n_bins=3, candidates=list(range(0, 61, 5)), ledger=None),
        ),
    )
    yield "EveryRound", lambda g: bandits.EveryRound(g, 100)
    yield "bandits", in_bandits
    yield "ledgers", in_ledgers
    yield "convert", converted


VERBS = dict(verbs())
# A table of these plans takes seconds for one guarantee.
SLOW = {
    "compare": lambda g: repr(dirdp.compare(g, **TABLE, simulations=5, **quiet)),
    "Classifier": lambda g: dirdp.Classifier.sample(g, FRAME[["a", "b"]], FRAME["c"], categories=LABELS, target="c"),
    **{
        f"network {kind}": lambda g, kind=kind: dirdp.plan(g, network(), mechanism=kind, **quiet)
        for kind in ("dirichlet", "gaussian", "geometric", "auto", "marginals")
    },
}


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_answers_or_refuses_at_the_ends(verb):
    for guarantee in ENDS:
        answered(lambda guarantee=guarantee: VERBS[verb](guarantee))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("verb", VERBS | SLOW)
def test_every_verb_answers_or_refuses(verb):
    for guarantee in GUARANTEES:
        answered(lambda guarantee=guarantee: (VERBS | SLOW)[verb](guarantee))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("epsilon", [1e-3, 40.0, 60.0])
def test_a_private_model_of_two_variables(epsilon):
    """Finding N7: `math domain error` from an epsilon of 40 on, where the noise has a variance of 0 in doubles."""
    guarantee = dirdp.ApproxDP(epsilon=epsilon, delta=1e-6)
    model = dirdp.private_model(guarantee, answers(), adjacency="replace-one")
    assert len(model.free_RVs) == 2
