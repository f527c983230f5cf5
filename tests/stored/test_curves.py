"""The curves that a release states: computed once for all who ask, and told apart by the numbers of the mechanisms."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms import FlooredDirichletMechanism
from pymc_dirdp.privacy.composition import Composition, Parallel, told_apart
from pymc_dirdp.privacy.dominating_pairs import AddRemovePair
from pymc_dirdp.privacy.floored import FlooredCells
from pymc_dirdp.stored.curves import _computed, curve_at


def floored(r=0.61, floor=7.5):
    return FlooredDirichletMechanism(np.full(3, 0.02), r, floor)


def test_the_same_numbers_in_other_objects_are_not_told_apart():
    for make in (
        lambda one: one,
        lambda one: Composition(((one, 1),)),
        lambda one: Composition(((one, 4), (AddRemovePair(1.0, 0.1), 1))),
        lambda one: Parallel((one, AddRemovePair(1.0, 0.1))),
    ):
        same = told_apart(make(floored()))
        assert same == told_apart(make(floored()))
        assert hash(same) == hash(told_apart(make(floored())))
        for other in (floored(r=0.62), floored(floor=7.4)):
            assert same != told_apart(make(other))


def test_how_often_and_how_things_are_released_is_told_apart():
    one, other = floored(), AddRemovePair(1.0, 0.1)
    ways = [
        Composition(((one, 1),)),
        Composition(((one, 2),)),
        Composition(((one, 1), (other, 1))),
        Composition(((one, 1), (other, 2))),
        Parallel((one, other)),
        Parallel((one, one)),
        Composition(((Parallel((one, other)), 2),)),
    ]
    keys = [told_apart(way) for way in ways]
    assert len(set(keys)) == len(keys)
    assert told_apart(Composition(((one, 1),))) == told_apart(one)


def test_what_is_kept_is_what_the_curves_say():
    for curves in (floored(), Composition(((floored(), 2),))):
        points = np.array([0.1, 0.7])
        for _ in range(2):
            assert curve_at(curves, "delta", points) == tuple(np.asarray(curves.delta(points)).tolist())
    assert curve_at(floored(), "delta", points) != curve_at(floored(r=0.62), "delta", points)
    assert curve_at(floored(), "delta", points) != curve_at(floored(), "delta", points / 2)


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.RepeatedReleaseWarning")
def test_a_plan_its_releases_and_reports_and_verify_search_each_curve_once(monkeypatch):
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones(3))
        pm.Multinomial("x", n=60, p=p, observed=[10, 20, 30])
    plan = dirdp.plan(dirdp.ApproxDP(epsilon=0.9, delta=1e-6), model, mechanism="floored")
    _computed.cache_clear()
    asked, look_ahead = [], FlooredCells._certified_deltas

    def counted(self, epsilons):
        asked.append(len(epsilons))
        return look_ahead(self, epsilons)

    monkeypatch.setattr(FlooredCells, "_certified_deltas", counted)
    releases = [dirdp.sample(plan, model, sampler="fast") for _ in range(3)]
    stated = [release["privacy"]["delta"].values for release in releases]
    assert sum(n >= 10 for n in asked) == 1
    assert np.array_equal(stated[0], stated[1])
    str(dirdp.report(releases[0]))
    assert dirdp.verify(releases[1]).follows
    assert sum(n >= 10 for n in asked) == 1
    # A file with other numbers is no reader's memory.
    edited = releases[2].copy(deep=True)
    edited["mechanism/p"]["r"].values[...] *= 1.01
    assert not dirdp.verify(edited).follows
    assert sum(n >= 10 for n in asked) == 2
