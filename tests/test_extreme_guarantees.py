"""Guarantees of all kinds from 1e-300 to 1e300: every verb answers, or refuses with an error of the library.

Warnings are errors here, as everywhere, so an overflow on the way is seen.
"""

import inspect
import re

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp import privacy
from pymc_dirdp.errors import DirdpError, InternalError
from pymc_dirdp.mechanisms.registry import STRATEGIES
from tests.planned import planned_sample
from tests.verbs import APPROX, CALLS, VERBS, called, hair, network, quiet, tosses

BUDGETS = [1e-300, 1e-20, 1e-3, 1.0, 50.0, 1e4, 1e20, 1e300]
ORDERS, DELTAS = (1 + 1e-15, 2, 1e20, 1e300), (1e-300, 1e-6, 1 - 2.0**-53)
KINDS = [
    [dirdp.PureDP(epsilon=budget) for budget in BUDGETS],
    [dirdp.ZeroCDP(rho=budget) for budget in BUDGETS],
    [dirdp.ApproxDP(epsilon=budget, delta=delta) for budget in (0.0, *BUDGETS) for delta in DELTAS],
    [dirdp.RenyiDP(order=order, epsilon=budget) for budget in BUDGETS for order in (ORDERS[0], 1, *ORDERS[1:])],
    [dirdp.TruncatedCDP(rho=budget, omega=omega) for budget in BUDGETS for omega in ORDERS],
]
GUARANTEES = [guarantee for kind in KINDS for guarantee in kind]
# All of them take an hour with all verbs. These are the ends of each kind, and two between.
ENDS = [dirdp.PureDP(epsilon=50.0), dirdp.TruncatedCDP(rho=1.0, omega=1 + 1e-15)]
ENDS += [guarantee for first, *_, last in KINDS for guarantee in (first, last)]
TABLE = {"prior": [1, 1, 1], "n_records": 60}


def answered(call):
    try:
        return call()
    except InternalError:
        raise
    except DirdpError:
        return None


def described(release):
    dirdp.verify(release)
    assert repr(dirdp.report(release))
    assert repr(dirdp.statement(release))


def bounded(value):
    assert not np.isnan(value)
    assert value >= 0


def in_ledgers(guarantee):
    for limit, cost in ((guarantee, dirdp.PureDP(epsilon=1e-3)), (APPROX, guarantee)):
        for adaptive in (True, False):
            ledger = dirdp.Ledger(limit, adaptive=adaptive)
            answered(lambda ledger=ledger, cost=cost: ledger.spend(cost, what="x", unit="record"))
            answered(lambda ledger=ledger: (ledger.remaining(), ledger.remaining(1e-6), repr(ledger), ledger.frame()))
            answered(lambda ledger=ledger: repr(dirdp.statement(ledger)))
            assert all(left >= 0 for left in ledger.left.values())


def in_bandits(guarantee):
    def played():
        bandit = dirdp.ThompsonSampler(["a", "b"], guarantee, contribution=3)
        bandit.update("a", 1, person="Ann")
        bandit.select()
        assert repr(dirdp.report(bandit, full=True))

    answered(played)
    answered(lambda: dirdp.ThompsonSampler(["a", "b"], guarantee, schedule="every-round", horizon=100))


def converted(guarantee):
    given = {dirdp.ApproxDP: {"delta": 1e-300}, dirdp.RenyiDP: {"order": 1e300}, dirdp.TruncatedCDP: {"omega": 2}}
    for kind in (dirdp.PureDP, dirdp.ZeroCDP, *given):
        answered(lambda kind=kind: privacy.convert(guarantee, kind, **given.get(kind, {})))


def of_call(verb):
    return lambda g: repr(called(verb, CALLS[verb]() | {"guarantee": g}))


def with_options():
    for kind in ("dirichlet", "gaussian", "geometric", "auto", "joint"):
        for adjacency, size in (("replace-one", {}), ("add-remove", {"n_records": 60})):
            here = {"mechanism": kind, "adjacency": adjacency}
            yield f"calibrate {kind} {adjacency}", lambda g, here=here: dirdp.calibrate(g, **TABLE, **here)
            here = here | size | quiet
            yield f"plan {kind} {adjacency}", lambda g, here=here: dirdp.plan(g, hair(), **here)
            # Two answers of the same people: finding N7.
            yield f"two {kind} {adjacency}", lambda g, here=here: dirdp.plan(g, tosses("xy"), **here)
    for kind in ("auto", "joint", "geometric", "gaussian"):
        here = {"mechanism": kind, "adjacency": "replace-one", "unit": "record"}
        yield f"private_model {kind}", lambda g, here=here: dirdp.private_model(g, tosses("xy"), **here)
        here = here | {"any_model": True} | quiet
        yield f"plan of any model {kind}", lambda g, here=here: repr(dirdp.plan(g, tosses("xy"), **here))
    strategies = {strategy: dirdp.mechanisms.Dirichlet(strategy=strategy) for strategy in STRATEGIES}
    for kind, of in ({kind: kind for kind in ("gaussian", "geometric", "auto", "joint")} | strategies).items():
        yield f"expected_error {kind}", lambda g, of=of: bounded(dirdp.expected_error(g, **TABLE, mechanism=of))
        yield f"sample {kind}", lambda g, of=of: described(planned_sample(g, hair(), mechanism=of, **quiet))


VERBS_OF_GUARANTEES = {
    **dict(with_options()),
    **{verb: of_call(verb) for verb in ("least_records", "choose_structure", "choose_bins", "EveryRound")},
    "least_guarantee": lambda g: dirdp.least_guarantee(0.1, g, **TABLE),
    "privacy_utility": lambda g: repr(dirdp.privacy_utility([g], **TABLE)),
    "bandits": in_bandits,
    "ledgers": in_ledgers,
    "convert": converted,
}
# A table of these plans takes seconds for one guarantee.
SLOW = {
    **{verb: of_call(verb) for verb in ("compare", "Classifier.sample")},
    **{
        f"network {kind}": lambda g, kind=kind: dirdp.plan(g, network(), mechanism=kind, **quiet)
        for kind in ("dirichlet", "gaussian", "geometric", "auto", "marginals")
    },
}
# A release is planned, a plan is calibrated, and joint noise and the choice of a mechanism take longest.
LONG = r"(calibrate|two|expected_error|plan) (joint|auto)|plan of any model auto"
IN_OTHERS = {verb for verb in VERBS_OF_GUARANTEES if re.match(LONG, verb)} - {
    "two joint add-remove",
    "plan auto add-remove",
}


def test_each_verb_that_takes_a_guarantee_is_tried():
    takes = {verb for verb in VERBS if "guarantee" in inspect.signature(VERBS[verb]).parameters}
    tried = {name.split()[0] for name in VERBS_OF_GUARANTEES | SLOW} | {"ThompsonSampler", "Ledger.spend"}
    assert takes - tried == {"Ledger.reserve"}


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("verb", [verb for verb in VERBS_OF_GUARANTEES if verb not in IN_OTHERS])
def test_every_verb_answers_or_refuses_at_the_ends(verb):
    # The search for joint noise, and for a number, takes a second for each of them.
    for guarantee in ENDS[2::3] if {"joint", "least_records", "least_guarantee"} & set(verb.split()) else ENDS:
        answered(lambda guarantee=guarantee: VERBS_OF_GUARANTEES[verb](guarantee))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("verb", VERBS_OF_GUARANTEES | SLOW)
def test_every_verb_answers_or_refuses(verb):
    for guarantee in GUARANTEES:
        answered(lambda guarantee=guarantee: (VERBS_OF_GUARANTEES | SLOW)[verb](guarantee))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("epsilon", [1e-3, 40.0, 60.0])
def test_a_private_model_of_two_variables(epsilon):
    """Finding N7: `math domain error` from an epsilon of 40 on, where the noise has a variance of 0 in doubles."""
    guarantee = dirdp.ApproxDP(epsilon=epsilon, delta=1e-6)
    assert len(dirdp.private_model(guarantee, tosses("xy"), adjacency="replace-one").free_RVs) == 2
