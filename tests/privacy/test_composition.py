"""Composition of mechanisms: sums of divergences, composed losses, and people who are disjoint."""

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy.special import betaln, gammaln, loggamma, polygamma

from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import Bounded, LossCurves, NoLoss, epsilon_at
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP
from pymc_dirdp.privacy.loss_distribution import ComposedLoss
from tests.oracles import beta_hockey_stick, normal_hockey_stick

SMALL = DirichletMechanism([1.0, 1.0, 1.0], 0.05)
UNEVEN = DirichletMechanism([[0.4, 2.0], [3.0, 1.0]], 0.02)
REMOVE = DirichletMechanism([1.0, 2.0], 0.1, adjacency="add-remove")


def test_divergences_add_and_equal_curves_are_counted_together():
    both = Composition(((SMALL, 3), (UNEVEN, 1)))
    assert both.renyi(4) == pytest.approx(3 * SMALL.renyi(4) + UNEVEN.renyi(4), rel=1e-14)
    assert both.rho(4) == pytest.approx(3 * SMALL.rho(4) + UNEVEN.rho(4), rel=1e-14)
    assert both.satisfies(RenyiDP(order=4, epsilon=both.renyi(4)))
    alone = Composition(((SMALL, 1),))
    assert (alone.delta(0.3), alone.epsilon(1e-6), alone.rho(4)) == (
        SMALL.delta(0.3),
        SMALL.epsilon(1e-6),
        SMALL.rho(4),
    )
    spelled = Composition(((SMALL, 1), (DirichletMechanism(np.ones((5, 2)), 0.05), 1), (SMALL, 1)))
    assert spelled.delta(0.4) == Composition(((SMALL, 3),)).delta(0.4)


def test_a_composition_in_a_composition_is_that_of_its_parts():
    pair = DominatingPair(0.5, 50.0, 0.02)
    draws = Composition(((pair, 30),))
    nested = Composition(((Composition(((draws, 1),)), 1), (draws, 1)))
    assert nested.delta(1.0) == Composition(((pair, 60),)).delta(1.0)
    assert Composition(((Composition(((draws, 1),)), 1),)).delta(1.0) == draws.delta(1.0)


@pytest.mark.parametrize(("mechanism", "times"), [(SMALL, 2), (SMALL, 24), (UNEVEN, 8), (REMOVE, 8), (SMALL, 1000)])
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


def test_curves_fall_and_epsilon_is_the_inverse_of_delta():
    composition = Composition(((SMALL, 10), (UNEVEN, 5)))
    assert np.all(np.diff(composition.delta(np.linspace(0, 12, 60))) <= 0)
    for delta in (1e-2, 1e-7, 1e-13):
        epsilon = composition.epsilon(delta)
        assert composition.delta(epsilon) <= delta < composition.delta(epsilon * (1 - 1e-6))
        assert composition.satisfies(ApproxDP(epsilon=epsilon, delta=delta))


@pytest.mark.parametrize("delta", [1e-3, 1e-200])
@pytest.mark.parametrize("scale", [0.01, 1e6])
def test_an_epsilon_is_that_of_a_search_over_deltas(delta, scale):
    """Oracle: bisection of the curve of deltas, which converts divergences at every point."""
    parts = ((DiscreteGaussianMechanism([1, 2, 3], 10 * scale), 1), (DirichletMechanism([0.5, 1.5], 0.02 / scale), 2))
    composition = Composition(parts)
    epsilon = composition.epsilon(delta)
    assert epsilon == pytest.approx(LossCurves._epsilon(composition, delta), rel=1e-9)
    assert composition.delta(epsilon) <= delta


def test_adding_and_removing_are_composed_apart():
    """A record is removed from all tables or added to all, so mixing the worse halves would waste."""
    composition = Composition(((REMOVE, 8),))
    assert [times for _, times in composition._loss.parts] == [(8, 0), (0, 8)]
    mixed = Composition(((DirichletMechanism([1.0, 1.0], 0.1), 8),))
    assert [times for _, times in mixed._loss.parts] == [(8,)]
    apart = [ComposedLoss(((loss, 8),)).delta(0.5) for loss, _ in composition._loss.parts]
    assert composition.delta(0.5) == pytest.approx(max(apart), rel=1e-9)


def test_dp_accounting_agrees_on_the_same_curve():
    pld_pmf = pytest.importorskip("dp_accounting.pld.pld_pmf", reason="the optional extra dp-accounting")
    step, points = 1e-3, 12_000
    epsilons = step * np.arange(points)
    there = SMALL._curves._deltas(epsilons)
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


@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1e-110, 1e-9, 1.0, 1000.0, 1e6, 1e110, 1e300])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 0.5])
@pytest.mark.parametrize("times", [2, 3])
def test_the_worst_of_every_size_composes(epsilon, delta, times):
    """Oracle: the distribution of the sum by hand, without rounding (Kairouz, Oh and Viswanath, Theorem 3.3)."""
    composed = Composition(((Bounded(epsilon, delta), times),))
    leaked = 1 - (1 - Fraction(delta)) ** times
    with mp.workdps(1000 if epsilon < 1 else 50):
        e = mp.mpf(epsilon)
        for at in (0.0, epsilon / 2, epsilon, 1.5 * epsilon):
            finite = mp.mpf(0)
            for wins in range(times + 1):
                loss = (2 * wins - times) * e
                if loss > at:
                    log_p = wins * e - times * (e + mp.log1p(mp.exp(-e)))
                    finite += math.comb(times, wins) * mp.exp(log_p) * -mp.expm1(at - loss)
            exact = mp.mpf(leaked.numerator) / leaked.denominator + (1 - mp.mpf(delta)) ** times * finite
            claimed = composed.delta(at)
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
        if times == 1:
            # One draw has its exact curve, and the oracle another form.
            assert draws_delta(epsilon, (*distributions, 1)) == pytest.approx(
                beta_hockey_stick(epsilon, *distributions)
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


@dataclass(frozen=True)
class Finite(LossCurves):
    """Two distributions on outcomes, as fractions, in both orders."""

    p: tuple[Fraction, ...]
    q: tuple[Fraction, ...]

    def _renyi(self, order):
        return max(math.log(x / y) for x, y in zip(self.p + self.q, self.q + self.p, strict=True))

    def _rho(self, omega):
        return self._renyi(omega)

    def _sticks(self, p, q, epsilons):
        e = np.exp(epsilons)
        return sum(np.maximum(float(x) - e * float(y), 0.0) for x, y in zip(p, q, strict=True))

    def _deltas(self, epsilons):
        return np.maximum(*(self._sticks(p, q, epsilons) for p, q in ((self.p, self.q), (self.q, self.p))))


@pytest.mark.parametrize("seed", range(4))
def test_directions_of_finite_distributions_against_exact_sums(seed):
    """Oracle: all outcomes of all tables in fractions, for each choice of directions.

    The curves of distributions may cross.
    """
    rng = np.random.default_rng(seed)

    def distribution():
        weights = [Fraction(int(n)) for n in rng.integers(4, 12, 3)]
        return tuple(weight / sum(weights) for weight in weights)

    one, other = Finite(distribution(), distribution()), Finite(distribution(), distribution())
    parts = ((one, 2), (other, 1), (one, 2), (other, 1), (Finite(distribution(), distribution()), 1))
    together = Composition(parts)
    worst = dict.fromkeys((Fraction(1), Fraction(5, 4), Fraction(2)), Fraction(0))
    for ways in itertools.product((False, True), repeat=len(parts)):
        outcomes = {(Fraction(1), Fraction(1)): 1}
        for (pair, draws), back in zip(parts, ways, strict=True):
            steps = list(zip(*((pair.q, pair.p) if back else (pair.p, pair.q)), strict=True))
            for _ in range(draws):
                found = Counter()
                for ((p, q), n), (x, y) in itertools.product(outcomes.items(), steps):
                    found[p * x, q * y] += n
                outcomes = found
        for e in worst:
            worst[e] = max(worst[e], sum(n * max(p - e * q, Fraction(0)) for (p, q), n in outcomes.items()))
    for e, exact in worst.items():
        epsilon = math.log(e)
        assert float(exact) <= together.delta(epsilon) * (1 + 1e-12)
        assert together.delta(epsilon) <= float(exact) * 1.5 + 1e-9


@pytest.mark.parametrize("n", [10, 60])
def test_many_different_gaussian_noises_lose_what_one_normal_variable_does(n):
    """With so many wide noises no lattice is left in the loss, so the curve is that of a normal loss."""
    sigmas = np.linspace(10.0, 30.0, n)
    noises = [DiscreteGaussianMechanism([1, 1], sigma, adjacency="add-remove") for sigma in sigmas.tolist()]
    ratio = math.sqrt(math.fsum(1 / float(noise.variance) for noise in noises))
    for delta in (1e-3, 1e-12):
        epsilon = Composition(tuple((noise, 1) for noise in noises)).epsilon(delta)
        low, high = (normal_hockey_stick(ratio, epsilon * (1 - share)) for share in (1e-9, 5e-5))
        assert low < delta < high
