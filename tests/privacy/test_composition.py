"""Composition of mechanisms: sums of divergences, composed losses, and people who are disjoint."""

import math
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from pymc_dirdp.accounting.budget import Bounded
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.conversion import epsilon_at
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP

SMALL = DirichletMechanism([1.0, 1.0, 1.0], 0.05)
UNEVEN = DirichletMechanism([[0.4, 2.0], [3.0, 1.0]], 0.02)
REMOVE = DirichletMechanism([1.0, 2.0], 0.1, adjacency="add-remove")


def test_one_release_keeps_its_exact_curves():
    alone = Composition(((SMALL, 1),))
    assert alone.delta(0.3) == SMALL.delta(0.3)
    assert alone.epsilon(1e-6) == SMALL.epsilon(1e-6)
    assert alone.rho(4) == SMALL.rho(4)


def test_divergences_add():
    both = Composition(((SMALL, 3), (UNEVEN, 1)))
    assert both.renyi(4) == pytest.approx(3 * SMALL.renyi(4) + UNEVEN.renyi(4), rel=1e-14)
    assert both.rho(4) == pytest.approx(3 * SMALL.rho(4) + UNEVEN.rho(4), rel=1e-14)
    assert both.satisfies(RenyiDP(order=4, epsilon=both.renyi(4)))


def test_equal_curves_are_counted_together():
    spelled = Composition(((SMALL, 1), (DirichletMechanism(np.ones((5, 2)), 0.05), 1), (SMALL, 1)))
    assert spelled.delta(0.4) == Composition(((SMALL, 3),)).delta(0.4)


@pytest.mark.parametrize(("mechanism", "times"), [(SMALL, 2), (SMALL, 24), (UNEVEN, 8), (REMOVE, 8), (SMALL, 1000)])
def test_composed_losses_are_below_the_conversion_of_divergences(mechanism, times):
    composition = Composition(((mechanism, times),))
    for delta in (1e-3, 1e-6, 1e-10):
        order = composition.best_order(delta)
        converted = epsilon_at(order, composition.renyi(order), delta)
        assert composition.epsilon(delta) < converted
        # The lower end: nothing composes better than basic composition of a bound would allow for one of them.
        assert composition.epsilon(delta) > mechanism.epsilon(delta)


def test_the_ratio_for_24_tables():
    """P1's naive Bayes has this size. The figure is printed in the documentation."""
    composition = Composition(((SMALL, 24),))
    order = composition.best_order(1e-5)
    ratio = composition.epsilon(1e-5) / epsilon_at(order, composition.renyi(order), 1e-5)
    assert 0.85 < ratio < 0.93


def test_curves_fall_and_epsilon_is_the_inverse_of_delta():
    composition = Composition(((SMALL, 10), (UNEVEN, 5)))
    epsilons = np.linspace(0, 12, 60)
    deltas = composition.delta(epsilons)
    assert np.all(np.diff(deltas) <= 0)
    for delta in (1e-2, 1e-7, 1e-13):
        epsilon = composition.epsilon(delta)
        assert composition.delta(epsilon) <= delta
        assert composition.delta(epsilon * (1 - 1e-6)) > delta
        assert composition.satisfies(ApproxDP(epsilon=epsilon, delta=delta))


def test_adding_and_removing_are_composed_apart():
    """A record is removed from all tables or added to all, so mixing the worse halves would waste."""
    composition = Composition(((REMOVE, 8),))
    assert len(composition._losses) == 2
    mixed = Composition(((DirichletMechanism([1.0, 1.0], 0.1), 8),))
    assert len(mixed._losses) == 1
    assert composition.delta(0.5) == max(loss.delta(0.5) for loss in composition._losses)


def test_monte_carlo_of_the_composed_loss():
    """Oracle: the loss of 6 tables, simulated; five standard errors of a million draws."""
    rng = np.random.default_rng(11)
    a, r, times, n = 1.0, 0.3, 6, 10**6
    total = np.zeros(n)
    for _ in range(times):
        w = rng.beta(a + r, a, n)
        total += r * np.log(w / (1 - w))
    composition = Composition(((DirichletMechanism([a, a], r), times),))
    for epsilon in (0.0, 1.0, 2.5):
        terms = np.maximum(-np.expm1(epsilon - total), 0)
        error = terms.std() / math.sqrt(n)
        assert abs(composition.delta(epsilon) - terms.mean()) < 5 * error + 1e-3 * terms.mean()


def test_dp_accounting_agrees_on_the_same_curve():
    pld_pmf = pytest.importorskip("dp_accounting.pld.pld_pmf", reason="the optional extra dp-accounting")
    step, points = 1e-3, 12_000
    there, _ = SMALL.hockey_sticks(step, points)
    epsilons = step * np.arange(points)
    below = -np.expm1(-epsilons[:0:-1]) + np.exp(-epsilons[:0:-1]) * there[:0:-1]
    rounded = np.arange(-points + 1, points)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(step, rounded, np.concatenate([below, there]))
    theirs = pmf.self_compose(24)
    ours = Composition(((SMALL, 24),))
    for epsilon in (0.2, 1.0, 2.0):
        assert ours.delta(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=0.01)


def test_disjoint_people_lose_what_the_worst_of_them_loses():
    apart = Parallel((Composition(((SMALL, 2),)), UNEVEN))
    assert apart.renyi(3) == max(2 * SMALL.renyi(3), UNEVEN.renyi(3))
    assert apart.delta(0.2) == max(Composition(((SMALL, 2),)).delta(0.2), UNEVEN.delta(0.2))
    assert apart.epsilon(1e-6) == max(Composition(((SMALL, 2),)).epsilon(1e-6), UNEVEN.epsilon(1e-6))
    assert apart.rho(3) == max(2 * SMALL.rho(3), UNEVEN.rho(3))
    assert apart.pure_epsilon == math.inf


@pytest.mark.parametrize(("alpha", "r"), [([0.05, 1.0], 1.4), ([0.1, 0.1], 10.0)])
def test_losses_of_thousands_of_nats_compose(alpha, r):
    """Found by fuzzing: exp(709) times an empty tail is no number."""
    mechanism = DirichletMechanism(alpha, r, adjacency="add-remove")
    assert np.all(np.isfinite(mechanism.hockey_sticks(0.5, 4000)))
    twice = Composition(((mechanism, 2),))
    for epsilon in (0.0, 10.0, 600.0, 2000.0):
        assert mechanism.delta(epsilon) <= twice.delta(epsilon) <= 1


@dataclass(frozen=True)
class Fixed(PrivacyCurves):
    """A release that tells nothing (0) or everything (1)."""

    told: float

    @property
    def pure_epsilon(self):
        return math.inf if self.told else 0.0

    def _renyi(self, order):
        return math.inf if self.told else 0.0

    _rho = _renyi

    def _delta(self, epsilon):
        return self.told


@pytest.mark.parametrize("times", [1, 4])
def test_a_release_that_tells_nothing_adds_nothing(times):
    nothing = Composition(((Fixed(0.0), times),))
    assert nothing.delta(0.0) == 0
    assert nothing.epsilon(1e-12) == 0
    with_more = Composition(((Fixed(0.0), times), (SMALL, 2)))
    alone = Composition(((SMALL, 2),))
    for epsilon in (0.0, 0.2, 1.0):
        assert with_more.delta(epsilon) == pytest.approx(alone.delta(epsilon), rel=1e-6)
    assert nothing.satisfies(ApproxDP(epsilon=0, delta=1e-300))
    assert nothing.satisfies(PureDP(epsilon=1e-300))


@pytest.mark.parametrize("others", [(), ((Fixed(0.0), 1),), ((SMALL, 3), (Bounded(0.1, 1e-9), 2))])
@pytest.mark.parametrize("times", [1, 4])
def test_a_release_that_tells_everything_keeps_no_promise(others, times):
    everything = Composition(((Fixed(1.0), times), *others))
    assert everything.delta(3.0) == 1
    assert everything.epsilon(0.999) == math.inf
    assert not everything.satisfies(ApproxDP(epsilon=1e300, delta=0.999))
    assert not everything.satisfies(PureDP(epsilon=1e300))
    assert not everything.satisfies(RenyiDP(order=2, epsilon=1e300))


@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1e-110, 1e-90, 1e-9, 1.0, 1000.0, 1e6, 1e90, 1e110, 1e300])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 0.5])
@pytest.mark.parametrize("times", [2, 3])
def test_the_worst_of_every_size_composes(epsilon, delta, times):
    """Oracle: the law of the sum by hand, without rounding (Kairouz, Oh and Viswanath, Theorem 3.3)."""
    composed = Composition(((Bounded(epsilon, delta), times),))
    leaked = 1 - (1 - Fraction(delta)) ** times
    with mpmath.workdps(1000 if epsilon < 1 else 50):
        e = mpmath.mpf(epsilon)
        for at in (0.0, epsilon / 2, epsilon, 1.5 * epsilon):
            finite = mpmath.mpf(0)
            for wins in range(times + 1):
                loss = (2 * wins - times) * e
                if loss > at:
                    log_p = wins * e - times * (e + mpmath.log1p(mpmath.exp(-e)))
                    finite += math.comb(times, wins) * mpmath.exp(log_p) * -mpmath.expm1(at - loss)
            exact = mpmath.mpf(leaked.numerator) / leaked.denominator + (1 - mpmath.mpf(delta)) ** times * finite
            claimed = composed.delta(at)
            assert claimed >= exact * (1 - mpmath.mpf(10) ** -14)
            # Tight to the grid where there is one.
            if 1e-80 < epsilon < 1e7:
                assert claimed <= 1.05 * exact + 1e-12
    assert composed.satisfies(ApproxDP(epsilon=1.7e308, delta=0.999)) or epsilon > 1e7
    bound = composed.epsilon(0.9)
    # The grid ends a little above the largest loss, and there is none beyond 1e7 nats.
    assert bound <= 1.01 * times * epsilon or (delta > 0 and epsilon > 1e7 and bound == math.inf)


def test_a_promise_of_epsilon_zero_beside_others():
    """Found by review: the grid of its loss started at 0 and never grew. It leaks, and adds nothing else."""
    leaking, others = 1 - (1 - 1e-7) ** 2, Composition(((Bounded(0.1, 0.0), 3),))
    both = Composition(((Bounded(0.0, 1e-7), 2), (Bounded(0.1, 0.0), 3)))
    for epsilon in (0.0, 0.15, 0.2, 1.0):
        expected = leaking + (1 - leaking) * others.delta(epsilon)
        assert both.delta(epsilon) == pytest.approx(expected, rel=1e-6)
        assert both.delta(epsilon) >= leaking
