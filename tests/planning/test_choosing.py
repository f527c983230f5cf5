"""Noise on counts in plans and releases, and the choice between mechanisms without data."""

import json
import math
import pickle

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.registry import noises
from pymc_dirdp.planning.allocation import composed
from pymc_dirdp.planning.choosing import Choice, TableFacts, Terms, choose, noise_instead
from pymc_dirdp.planning.estimate_error import estimate_error
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.releases.interop import as_mechanism
from tests.planned import STUDENTS, hair_model

NOISES = noises(public_totals=True)
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def report(plan_or_release):
    return " ".join(str(dirdp.report(plan_or_release, full=True)).split())


@pytest.mark.parametrize("kind", NOISES)
def test_noise_keeps_the_guarantee_of_the_release(kind):
    chosen = dirdp.plan(TARGET, hair_model(), mechanism=kind, released_draws=7)
    assert isinstance(chosen.parts[0].mechanism, NOISES[kind])
    loss, allowed = chosen.composition.loss(TARGET)
    # One release serves all draws.
    assert allowed * (1 - 1e-4) < loss <= allowed
    release = dirdp.sample(chosen, hair_model())
    assert release["posterior"].sizes["draw"] == 7
    assert as_mechanism(release).loss(TARGET) == chosen.composition.loss(TARGET)


def test_no_data_decides_and_the_report_names_the_choice_and_the_next():
    first, second = (dirdp.plan(TARGET, hair_model(n), mechanism="auto") for n in (STUDENTS, (1, 0, 590, 1)))
    assert first == second
    assert pickle.loads(pickle.dumps(first)) == first
    release = dirdp.sample(first, hair_model())
    ranking = json.loads(release["mechanism/p"].attrs["chosen_from"])
    assert [loss for _, loss in ranking] == sorted(loss for _, loss in ranking)
    assert f"{ranking[0][0]} by auto: next is {ranking[1][0]} with" in report(release)
    # No urn is fine enough for so small a loss.
    noise = dirdp.plan(dirdp.PureDP(epsilon=1e-9), hair_model(), mechanism="auto")
    assert "geometric by auto, nothing else can satisfy the guarantee" in report(noise)


def test_the_report_says_when_auto_would_be_clearly_better_and_only_then():
    advised = report(dirdp.plan(TARGET, hair_model(), contribution=2))
    assert "smaller expected KL" in advised
    assert "mechanism='auto'" in advised
    with pm.Model() as wide:
        pm.Multinomial("y", n=400, p=pm.Dirichlet("p", a=np.ones(200)), observed=np.full(200, 2))
    for quiet in (
        # Here nothing tells more than the prior.
        dirdp.plan(dirdp.ApproxDP(epsilon=0.003, delta=1e-6), wide),
        dirdp.plan(TARGET, hair_model(), mechanism="auto"),
        dirdp.plan(dirdp.ApproxDP(epsilon=50, delta=1e-6), hair_model(prior=100.0), objective="estimate"),
    ):
        assert "smaller expected KL" not in report(quiet)


def test_what_cannot_be_planned_is_refused_with_what_can():
    nobody = hair_model([0, 0, 0, 0])
    for model, options, message in (
        (hair_model(), {"mechanism": "auto", "adjacency": "add-remove"}, "n_records"),
        (hair_model(), {"mechanism": "gausian"}, "Did you mean 'gaussian'"),
        (nobody, {"mechanism": "auto"}, "Pass 'geometric'"),
    ):
        with pytest.raises(ArgumentError, match=message):
            dirdp.plan(TARGET, model, **options)
    private = dirdp.plan(TARGET, hair_model(), mechanism="gaussian", adjacency="add-remove")
    assert private.composition.satisfies(TARGET)
    assert math.isnan(float(dirdp.sample(private, hair_model())["utility"]["n_records"][0]))
    assert dirdp.verify(dirdp.sample(dirdp.plan(TARGET, nobody, mechanism="geometric"), nobody))


def test_what_cannot_keep_a_guarantee_is_left_out():
    terms = Terms(groups=[("p",)], calibration={"strategy": "algorithm-1"})
    _, choices = choose(dirdp.PureDP(epsilon=1), {"p": TableFacts(np.ones(3), 50)}, terms)
    assert {kind for kind, _ in choices["p"].expected_kl} == {"geometric"}
    assert choices["p"].advantage("dirichlet") == math.inf
    assert Choice((("geometric", 0.0),)).advantage("geometric") == 0
    with pytest.raises(ArgumentError, match="Did you mean 'temper'"):
        choose(TARGET, {"p": TableFacts(np.ones(3), 50)}, Terms(groups=[("p",)], calibration={"strategy": "tempr"}))


# What a person adds to, by name; the last two tables are alike.
SEVERAL = {
    "narrow": TableFacts(np.ones(2), 300),
    "wide": TableFacts(np.full(20, 0.3), 300),
    "one": TableFacts(np.ones((2, 3)), 300),
    "two": TableFacts(np.ones((2, 3)), 300),
}
TOGETHER, APART = [tuple(SEVERAL)], [("narrow", "wide"), ("one", "two")]
KINDS = ("dirichlet", "gaussian", "geometric")
ALIKE = {f"table {k}": TableFacts(np.ones(4), 800) for k in range(3)}


def errors_of(mechanisms, tables=SEVERAL):
    """The errors of estimates from these mechanisms, each judged by itself; None if one is not known."""
    found = {n: estimate_error(mechanisms[n], facts.prior, facts.n_records, public=True) for n, facts in tables.items()}
    return None if None in found.values() else {name: error.kl for name, error in found.items()}


@pytest.mark.parametrize(
    ("target", "tables", "groups", "kinds"),
    [
        (TARGET, SEVERAL, TOGETHER, KINDS),
        (dirdp.RenyiDP(order=4, epsilon=0.2), SEVERAL, APART, KINDS),
        (TARGET, ALIKE, [tuple(ALIKE)], (*KINDS, "joint")),
        (TARGET, ALIKE, [(name,) for name in ALIKE], (*KINDS, "joint")),
    ],
    ids=["together", "apart", "alike", "alike and apart"],
)
def test_auto_is_never_worse_than_one_kind_for_all_tables(target, tables, groups, kinds):
    """The guarantee is kept by the composition that is stated, and the errors are those of the mechanisms that result.

    Tables were compared by a divergence at one order, and took the wrong noise with up to 3.05 times the error.
    """
    terms = Terms(groups=groups, public_totals=True)
    chosen, choices = choose(target, tables, terms)
    assert list(chosen) == list(tables)
    assert composed(chosen, groups, 1).satisfies(target)
    errors = errors_of(chosen, tables)
    for kind in kinds:
        other, none = choose(target, tables, terms, mechanism=kind)
        assert none == {}
        assert composed(other, groups, 1).satisfies(target)
        others = errors_of(other, tables)
        # Joint noise that takes long to read is no candidate.
        assert others is not None or kind == "joint"
        for group in groups if others else ():
            # The joint noise of one table is geometric noise, but for rounding.
            assert sum(errors[name] for name in group) <= sum(others[name] for name in group) * (1 + 1e-12)
    for group in groups:
        for name in group:
            # The ranking is that of the plans which were compared, and its first entry is the plan that was taken.
            error = pytest.approx(np.mean([errors[n] for n in group]), rel=1e-12)
            assert choices[name].expected_kl[0] == (chosen[name].kind, error)
    if tables is SEVERAL:
        # The last two change their kind together, and some do.
        assert chosen["one"] == chosen["two"]
        assert len({name for choice in choices.values() for name, _ in choice.expected_kl}) > 1


def test_each_group_of_other_people_has_the_whole_guarantee():
    groups, target = APART, dirdp.RenyiDP(order=4, epsilon=0.2)
    together, _ = choose(target, SEVERAL, Terms(groups=groups, public_totals=True))
    for group in groups:
        tables = {name: SEVERAL[name] for name in group}
        alone, _ = choose(target, tables, Terms(groups=[group], public_totals=True))
        assert alone == {name: together[name] for name in group}
    linked = list(Terms(groups=[*groups, ("wide", "two")]).independent_sets(SEVERAL))
    assert [list(part) for part in linked] == [list(SEVERAL)]
    # What was lost before is composed with all of them at once.
    lost = ((dirdp.mechanisms.GeometricMechanism([1, 1], 40.0), 1),)
    assert len(list(Terms(groups=groups, before=lost).independent_sets(SEVERAL))) == 1
    after, _ = choose(target, SEVERAL, Terms(groups=groups, before=lost, public_totals=True))
    assert Composition((*lost, (composed(after, groups, 1), 1))).satisfies(target)


def test_noise_instead_of_draws_is_compared_with_the_same_composition():
    terms = Terms(groups=TOGETHER, public_totals=True, calibration={"strategy": "temper"})
    drawn, *noisy = (choose(TARGET, SEVERAL, terms, mechanism=kind)[0] for kind in KINDS)
    of_draws, *of_noise = (sum(errors_of(mechanisms).values()) for mechanisms in (drawn, *noisy))
    least = KINDS[1 + int(np.argmin(of_noise))]
    times = pytest.approx(of_draws / min(of_noise), rel=1e-12)
    assert noise_instead(TARGET, SEVERAL, terms, drawn) == dict.fromkeys(SEVERAL, (least, times))
    assert noise_instead(TARGET, {"p": TableFacts(np.ones(3), 0)}, Terms(groups=[("p",)]), {"p": drawn["one"]}) == {}


def test_a_joint_noise_adds_up_to_0_where_totals_are_public_and_only_there():
    """The noise for private totals kept the guarantee, too, and had 1.75 times the variance."""
    facts = {name: TableFacts(np.ones(2), 300) for name in ("one", "two", "three")}
    found = {
        public: choose(TARGET, facts, Terms(groups=[tuple(facts)], public_totals=public), mechanism="joint")[0]
        for public in (True, False)
    }
    assert all(mechanism.needs_public_totals == public for public, one in found.items() for mechanism in one.values())
    assert found[True]["one"].noise_sd < found[False]["one"].noise_sd
