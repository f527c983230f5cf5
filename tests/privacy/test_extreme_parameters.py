"""Curves at the ends of what is allowed: large parameters, large r, coarse grids, persons who change groups."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.numerics.roots import log_ratio_to_budget
from pymc_dirdp.planning.prices import calibrate
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.divergences import LogitLoss, renyi_add
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.guarantees import ApproxDP, RenyiDP
from tests.oracles import gamma_hockey_stick
from tests.test_rounding import gamma_renyi, pair_renyi


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("a", "b", "r", "deviations"),
    [
        (3e3, 4.5e3, 100.0, 1.5),
        (9999.999999999, 3e4, 5.0, 1.0),
        (1e4, 3e4, 5.0, 1.0),
        (12345.0, 9e7, 40.0, 6.0),
        (1e16, 1e16, 1e7, -1.0),
        (1e90, 1e91, 3e44, 2.0),
    ],
)
def test_large_parameters(a, b, r, deviations):
    """At 1e12 a delta came out too small by 2e-8, at 1e30 by all of it, and at 1e28 it was above 1."""
    divergence = DominatingPair(a, b, r).renyi(1.0)
    epsilon = abs(divergence + deviations * math.sqrt(2 * divergence))
    for pair, removed, added in (
        (DominatingPair(a, b, r), [(a, r)], [(b, r)]),
        (DominatingPair(a, math.inf, r), [(a, r)], []),
        (DominatingPair(math.inf, a, r), [], [(a, r)]),
    ):
        exact = gamma_hockey_stick(removed, added, epsilon)
        # Raised by 3e-11, or by the errors of two tails.
        assert exact <= pair.delta(epsilon) <= exact * (1 + (4e-11 if a >= 1e4 else 1e-9))


@pytest.mark.parametrize("r", [1e10, 1e18, 1e90])
def test_a_large_r_guarantees_nothing(r):
    """From r of 1e17 on the distance that is looked at was lost against 1, and a delta of 1 came out as 0."""
    assert not DirichletMechanism([1.0, 1.0], r).satisfies(ApproxDP(epsilon=700, delta=0.9))
    for pair in (DominatingPair(1.0, math.inf, r), DominatingPair(math.inf, 1.0, r), DominatingPair(0.5, 2.0, r)):
        for epsilon in (1.0, 599.0, 601.0, 0.01 * r):
            # The probability that a category is so large or small that the loss is below it is about 1 / r.
            assert 1 - 1e-6 < pair.delta(epsilon) <= 1
        for way in (pair, pair._reversed):
            assert np.all(way._deltas(300.0 * np.arange(4)) > 0.99)


@pytest.mark.parametrize(
    "pair",
    [
        DominatingPair(1.0, math.inf, 0.001),
        DominatingPair(1e4, math.inf, 0.5),
        DominatingPair(9e3, math.inf, 0.5),
        DominatingPair(0.5, 2.0, 0.01),
        DominatingPair(1.0, 0.1, 3.0),
        # Differences of tails would have lost all their digits here.
        DominatingPair(2.0, math.inf, 1e-6),
        DominatingPair(1.0, 1.0, 1e-6),
        DominatingPair(0.01, 1e5, 1e-5),
    ],
)
def test_coarse_grids(pair):
    """Oracle: each point by itself. Beside a mechanism that loses more, a step may be longer than this loss."""
    for share in (1e-3, 0.06, 0.5, 2.0, 60.0, 1000.0):
        epsilons = share * math.sqrt(2 * pair.renyi(1.0)) * np.arange(30)
        assert_allclose(pair._deltas(epsilons), pair.delta(epsilons), rtol=1e-11, atol=1e-280)
        back = DominatingPair(pair.gains, pair.loses, pair.r)
        assert_allclose(pair._reversed._deltas(epsilons), back.delta(epsilons), rtol=1e-11, atol=1e-280)


@pytest.mark.parametrize(("step", "points"), [(0.3, 2**15 + 2), (100.0, 9)])
def test_a_long_grid_is_one_pass(step, points, monkeypatch):
    """From 2**15 points on each was an integral of its own, and a delta took two minutes."""
    pair = DominatingPair(0.001, math.inf, 4.7)
    alone = []
    monkeypatch.setattr(
        LogitLoss, "_integrate", lambda self, t, real=LogitLoss._integrate: alone.append(t) or real(self, t)
    )
    there, back = (way._deltas(step * np.arange(points)) for way in (pair, pair._reversed))
    assert len(alone) <= 10
    places = np.unique(np.geomspace(1, points - 1, 12).astype(int))
    assert_allclose(there[places], pair.delta(step * places), rtol=1e-11, atol=1e-280)
    assert_allclose(back[places], DominatingPair(math.inf, 0.001, 4.7).delta(step * places), rtol=1e-11, atol=1e-280)


def test_a_composition_knows_both_orders_of_neighbours():
    """One part loses more one way and the other the other way; below the grid one order alone had counted."""
    together = Composition(((DominatingPair(50.0, math.inf, 0.01), 1), (DominatingPair(math.inf, 0.5, 0.1), 1)))
    for epsilon in (1.0, 5.0, 20.0):
        assert together.delta(epsilon) >= DominatingPair(0.5, math.inf, 0.1).delta(epsilon)
    moves = Composition(((DominatingPair(2.0, math.inf, 1.0), 1), (DominatingPair(math.inf, 0.3, 1.0), 1)))
    assert moves._renyi(1.2) == pytest.approx(DominatingPair(2.0, 0.3, 1.0).renyi(1.2))
    assert moves._renyi(1.2) > sum(pair._renyi(1.2) for pair, _ in moves.parts)


def test_divergences_of_huge_orders_and_of_a_concentration_that_is_lost_against_the_prior():
    """The direction was once read off `a + r > a`, and a divergence came out a hundred times too small."""
    with mp.workdps(500):
        for order, a, r in itertools.product((1e150, 1e300), (1e-100, 1.0, 1e100), (1e-100, 1e10)):
            assert renyi_add(order, a, r) >= gamma_renyi(mp.mpf(order), mp.mpf(a) + r, mp.mpf(a)) * (1 - 1e-11)
        for order, (a, r) in itertools.product((2.0, 1e16, 1e25), ((1.0, 1e-17), (1e3, 1e-14), (1e-3, 1e-20))):
            exact = float(gamma_renyi(mp.mpf(order), mp.mpf(a) + r, mp.mpf(a)))
            assert renyi_add(order, a, r) == pytest.approx(exact, rel=4e-11)


@pytest.mark.parametrize(("a", "r"), [(1e-18, 1.0), (1e-100, 1e100), (1e100, 1e-100), (1e100, 1e100), (1e-30, 1e-31)])
def test_divergences_at_the_ends_of_what_is_allowed(a, r):
    for pair in (DominatingPair(a, math.inf, r), DominatingPair(math.inf, a, r), DominatingPair(a, 2 * a, r)):
        assert_allclose(pair.renyi(1.0), float(pair_renyi(1.0, pair.loses, pair.gains, r)), rtol=4e-11)
        assert 0 <= pair.delta(1.0) <= 1
        assert pair.renyi(1.5) >= pair.renyi(1.0) * (1 - 1e-12)


def test_parameters_without_curves_in_doubles_are_refused():
    for alpha, r in (([5e-324, 1], 1.0), ([1e-300, 1], 1.0), ([1, 1e300], 1.0), ([1, 1], 1e-300), ([1, 1], 1e200)):
        with pytest.raises(ArgumentError, match="between 1e-100 and 1e"):
            DirichletMechanism(alpha, r)
    with pytest.raises(ArgumentError, match="prior between"):
        calibrate(RenyiDP(order=2, epsilon=1), prior=[1e-200, 1], mechanism=Dirichlet(strategy="temper"))
    # Integers beyond all doubles ended in an OverflowError.
    for call, words in (
        (lambda: DirichletMechanism([1, 1], 1.0, min_count=1e300), "min_count"),
        (lambda: DirichletMechanism([1, 1], 10**400), "r"),
        (lambda: DirichletMechanism([1, 1], 1.0).delta(10**400), "epsilon"),
        *((lambda s=s: DiscreteGaussianMechanism([1, 1], s), "between") for s in (1e-300, 1e-200, 1e200, 1e300)),
    ):
        with pytest.raises(ArgumentError, match=words):
            call()


def test_losses_beyond_the_doubles():
    """A product beyond the doubles made a bound no number, and a fraction of it an OverflowError."""
    assert 0 < DiscreteGaussianMechanism([1, 1], 4.7e23, contribution=3).delta(1e300) < 1e-300
    assert 0 < DiscreteGaussianMechanism([1, 1], 2000.0).delta(1.7e308) < 1e-300
    # A loss that is no number is beyond every guarantee.
    assert log_ratio_to_budget(math.nan, 1.0) == math.inf
