"""Composition of mechanisms: sums of divergences, composed losses, and people who are disjoint."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import betaln, gammaln, loggamma, polygamma

from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import Bounded, NoLoss, epsilon_at
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP
from pymc_dirdp.privacy.loss_distribution import ComposedLoss
from tests.oracles import hockey_stick, sum_of

SMALL = DirichletMechanism([1.0, 1.0, 1.0], 0.05)
UNEVEN = DirichletMechanism([[0.4, 2.0], [3.0, 1.0]], 0.02)
REMOVE = DirichletMechanism([1.0, 2.0], 0.1, adjacency="add-remove")


def test_divergences_add_and_equal_curves_are_counted_together():
    both = Composition(((SMALL, 3), (UNEVEN, 1)))
    assert both.renyi(4) == pytest.approx(3 * SMALL.renyi(4) + UNEVEN.renyi(4), rel=1e-14)
    assert both.rho(4) == pytest.approx(3 * SMALL.rho(4) + UNEVEN.rho(4), rel=1e-14)
    assert both.satisfies(RenyiDP(order=4, epsilon=both.renyi(4)))
    alone = Composition(((SMALL, 1),))
    assert (alone.delta(0.3), alone.epsilon(1e-6)) == (SMALL.delta(0.3), SMALL.epsilon(1e-6))
    spelled = Composition(((SMALL, 1), (DirichletMechanism(np.ones((5, 2)), 0.05), 1), (SMALL, 1)))
    assert spelled.delta(0.4) == Composition(((SMALL, 3),)).delta(0.4)
    # A composition in a composition is that of its parts.
    draws = Composition(((SMALL, 30),))
    nested = Composition(((Composition(((draws, 1),)), 1), (draws, 1)))
    assert nested.delta(1.0) == Composition(((SMALL, 60),)).delta(1.0)


@pytest.mark.parametrize(("mechanism", "times"), [(SMALL, 24), (UNEVEN, 8), (REMOVE, 8), (SMALL, 1000)])
def test_composed_losses_are_below_the_conversion_of_divergences(mechanism, times):
    composition = Composition(((mechanism, times),))
    for delta in (1e-3, 1e-10):
        order = composition.best_order(delta)
        converted = epsilon_at(order, composition.renyi(order), delta)
        # The lower end: nothing composes better than basic composition of a bound would allow for one of them.
        assert mechanism.epsilon(delta) < composition.epsilon(delta) < converted
    if times == 24:
        # P1's naive Bayes has this size. The figure is printed in the documentation.
        order = composition.best_order(1e-5)
        assert 0.85 < composition.epsilon(1e-5) / epsilon_at(order, composition.renyi(order), 1e-5) < 0.93


def test_adding_and_removing_are_composed_apart():
    """A record is removed from all tables or added to all, so mixing the worse halves would waste."""
    composition = Composition(((REMOVE, 8),))
    assert [times for _, times in composition._loss.parts] == [(8, 0), (0, 8)]
    mixed = Composition(((DirichletMechanism([1.0, 1.0], 0.1), 8),))
    assert [times for _, times in mixed._loss.parts] == [(8,)]
    apart = [ComposedLoss(((loss, 8),)).delta(0.5) for loss, _ in composition._loss.parts]
    assert composition.delta(0.5) == pytest.approx(max(apart), rel=1e-9)
    # So are releases about disjoint people, of which one loses the most in both directions.
    disjoint = Parallel((REMOVE, DirichletMechanism([3.0, 4.0], 0.1, adjacency="add-remove")))
    assert Composition(((disjoint, 8),)).delta(0.5) == pytest.approx(composition.delta(0.5), rel=1e-6)


@pytest.mark.parametrize(("alpha", "r"), [([0.05, 1.0], 1.4), ([0.1, 0.1], 10.0)])
def test_losses_of_thousands_of_nats_compose(alpha, r):
    """Found by fuzzing: exp(709) times an empty tail is no number."""
    mechanism = DirichletMechanism(alpha, r, adjacency="add-remove")
    curves = mechanism._curves
    for way in (curves, curves._reversed):
        assert np.all(np.isfinite(way._deltas(0.5 * np.arange(4000))))
    twice = Composition(((mechanism, 2),))
    for epsilon in (0.0, 10.0, 600.0, 2000.0):
        assert mechanism.delta(epsilon) <= twice.delta(epsilon) <= 1


@pytest.mark.parametrize("times", [1, 4])
def test_releases_that_tell_nothing_or_everything(times):
    nothing, more = Composition(((NoLoss(), times),)), Composition(((SMALL, 2),))
    assert nothing.delta(0.0) == nothing.epsilon(1e-12) == 0
    for epsilon in (0.0, 0.2, 1.0):
        assert Composition(((NoLoss(), times), (SMALL, 2))).delta(epsilon) == pytest.approx(
            more.delta(epsilon), rel=1e-6
        )
    for guarantee in (ApproxDP(epsilon=0, delta=1e-300), PureDP(epsilon=1e-300)):
        assert nothing.satisfies(guarantee)
    for others in ((), ((NoLoss(), 1),), ((SMALL, 3), (Bounded(0.1, 1e-9), 2))):
        everything = Composition(((Bounded(0.0, 1.0), times), *others))
        assert everything.delta(3.0) == 1
        assert everything.epsilon(0.999) == everything.renyi(2.0) == everything.pure_epsilon == math.inf


@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1e-9, 1.0, 1e6, 1e110])
@pytest.mark.parametrize(("delta", "times"), [(0.0, 2), (1e-9, 3), (0.5, 2)])
def test_the_worst_of_every_size_composes(epsilon, delta, times):
    """Oracle: the distribution of the sum, without rounding (Kairouz, Oh and Viswanath, Theorem 3.3)."""
    composed = Composition(((Bounded(epsilon, delta), times),))
    with mp.workdps(1000 if epsilon < 1 else 50):
        e, d = mp.mpf(epsilon), mp.mpf(delta)
        loss = sum_of(*[[(d, mp.inf), *(((1 - d) / (1 + mp.exp(-x)), x) for x in (e, -e))]] * times)
        for at in (0.0, epsilon / 2, epsilon, 1.5 * epsilon):
            exact, claimed = hockey_stick(loss, at), composed.delta(at)
            assert claimed >= exact * (1 - mp.mpf(10) ** -14)
            # Tight to the grid where there is one.
            if 1e-80 < epsilon < 1e7:
                assert claimed <= 1.05 * exact + 1e-12
    assert composed.satisfies(ApproxDP(epsilon=1.7e308, delta=0.999)) or epsilon > 1e7
    bound = composed.epsilon(0.9)
    # The grid ends a little above the largest loss, and there is none beyond 1e7 nats.
    assert bound <= 1.01 * times * epsilon or (delta > 0 and epsilon > 1e7 and bound == math.inf)


def test_a_guarantee_of_epsilon_zero_beside_others():
    """Found by review: the grid of its loss started at 0 and never grew. It leaks, and adds nothing else."""
    leaking, others = 1 - (1 - 1e-7) ** 2, Composition(((Bounded(0.1, 0.0), 3),))
    both = Composition(((Bounded(0.0, 1e-7), 2), (Bounded(0.1, 0.0), 3)))
    for epsilon in (0.0, 0.15, 0.2, 1.0):
        expected = leaking + (1 - leaking) * others.delta(epsilon)
        assert both.delta(epsilon) == pytest.approx(expected, rel=1e-6)
        assert both.delta(epsilon) >= leaking


# Several draws from one table, direction by direction. The oracle inverts the moment generating function of the sum of
# the losses, which is a ratio of Gamma functions, along a line in the complex plane: no grid of losses, no pair.


def draws_delta(epsilon, *tables):
    """Hockey-stick divergence of so many draws from `Beta(*first)` from as many of `Beta(*second)`, of each table."""
    slopes = [first[0] - second[0] for first, second, _ in tables]

    def log_integrand(z):
        total = -z * epsilon - np.log(z) - np.log1p(z)
        for ((a, b), (c, d), times), slope in zip(tables, slopes, strict=True):
            shift = betaln(c, d) - betaln(a, b)
            moment = loggamma(a + z * slope) + loggamma(b - z * slope) - gammaln(a) - gammaln(b) + z * shift
            total = total + times * moment
        return total

    edge = min(
        (first[1] if slope > 0 else first[0]) / abs(slope) for (first, *_), slope in zip(tables, slopes, strict=True)
    )
    # Any line between 0 and the pole will do; on this one the integrand is the smallest.
    line = edge * np.linspace(0.002, 0.998, 500)
    at = line[np.argmin(log_integrand(line.astype(complex)).real)]
    variance = sum(
        times * slope**2 * float(polygamma(1, first[0]) + polygamma(1, first[1]))
        for (first, _, times), slope in zip(tables, slopes, strict=True)
    )
    step = min(at, edge - at, 1 / np.sqrt(variance)) / 12
    t = step * np.arange(6_000)
    values = np.exp(log_integrand(at + 1j * t)).real
    assert abs(values[-1]) < 1e-12 * values[0]
    return float(step / np.pi * (values.sum() - values[0] / 2))


@pytest.mark.thorough
@pytest.mark.parametrize("times", [1, 30, 200])
@pytest.mark.parametrize(("alpha", "r"), [((1.0, 10.0), 0.1), ((0.5, 50.0), 0.1), ((3.0, 2.0), 0.4)])
def test_no_neighbours_exceed_the_curve_of_several_draws(alpha, r, times):
    pair = DominatingPair(*alpha, r / math.sqrt(times))
    together = Composition(((pair, times),))
    for epsilon in (0.1, 1.0):
        claim, worst = together.delta(epsilon), 0.0
        for n_records in (1, 2, 62):
            for n in {0, n_records - 1}:
                a, b = alpha[0] + pair.r * n, alpha[1] + pair.r * (n_records - 1 - n)
                distributions = (a + pair.r, b), (a, b + pair.r)
                worst = max(
                    worst,
                    draws_delta(epsilon, (*distributions, times)),
                    draws_delta(epsilon, (*distributions[::-1], times)),
                )
        # Two hundred draws in one direction of an uneven prior lose a tenth as much at a delta of 1e-13.
        assert worst <= claim <= worst * 12


TABLES = {
    "two": (((1.0, 10.0), 0.08, 3), ((0.5, 20.0), 0.05, 2)),
    "even": (((1.0, 10.0), 0.06, 6), ((2.0, 2.0), 0.1, 2)),
    "three": (((1.0, 10.0), 0.05, 4), ((0.5, 20.0), 0.03, 4), ((3.0, 40.0), 0.1, 4)),
}


@pytest.mark.parametrize("name", TABLES)
def test_no_neighbours_exceed_the_curve_of_several_tables(name):
    """Oracle: draws of tables of all small sizes, where the record moves in either direction in each table."""
    tables = TABLES[name]
    parts = tuple((DominatingPair(*alpha, r), draws) for alpha, r, draws in tables)
    together = Composition(parts)
    moves = []
    for (first, second), r, draws in tables:
        sizes = [(n, n_records - 1 - n) for n_records in (1, 2) for n in range(1)]
        distributions = [((first + r * n + r, second + r * k), (first + r * n, second + r * k + r)) for n, k in sizes]
        moves.append([(*distribution[::way], draws) for distribution in distributions for way in (1, -1)])
    for epsilon in (0.0, 0.3, 1.0):
        deltas = [draws_delta(epsilon or 1e-9, *move) for move in itertools.product(*moves)]
        claim, worst = together.delta(epsilon), max(deltas)
        assert worst <= claim <= worst * 2
