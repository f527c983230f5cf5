"""Every curve of a finite loss, against sums with many digits: never below the truth, and not far above it."""

import functools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from pymc_dirdp.privacy.bounded_loss import BoundedRange, ErasedResponse, RandomisedResponse
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import Bounded, NoLoss
from pymc_dirdp.privacy.gaussian_loss import GaussianLoss
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from tests.oracles import hockey_stick, losses_of, renyi_divergence, sum_of


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(60):
        yield


def erased(u, truth, answers=1):
    """An answer that is true, false or erased, so many times."""
    true = mp.mpf(truth)
    return sum_of(
        *[[(true, mp.mpf(u)), (true * mp.exp(-u), -mp.mpf(u)), (1 - true * (1 + mp.exp(-u)), mp.mpf(0))]] * answers
    )


def randomised(u, answers=1):
    """The number of false answers is binomial."""
    true = 1 / (1 + mp.exp(-mp.mpf(u)))
    return [
        (mp.binomial(answers, i) * true ** (answers - i) * (1 - true) ** i, (answers - 2 * i) * mp.mpf(u))
        for i in range(answers + 1)
    ]


def one_cell(u, steps):
    """Geometric noise on a count that changes by so many."""
    reach = math.ceil(140 / u)
    masses = {k: mp.exp(-mp.mpf(u) * abs(k)) for k in range(-reach - steps, reach + 1)}
    total = mp.fsum(masses.values())
    return [(masses[k] / total, mp.mpf(u) * (abs(k - steps) - abs(k))) for k in range(-reach, reach + 1)]


def leaking(epsilon, delta):
    """Kairouz, Oh and Viswanath (2017), Theorem 3.3."""
    return [(mp.mpf(delta), mp.inf), *((p * (1 - mp.mpf(delta)), loss) for p, loss in randomised(epsilon))]


def gaussian(variance, groups):
    """Discrete Gaussian noise on so many counts, each of which changes by 1: the loss of one count, summed."""
    s = mp.mpf(variance)
    reach = math.ceil(14 * math.sqrt(variance)) + 8
    masses = {k: mp.exp(-(mp.mpf(k) ** 2) / (2 * s)) for k in range(-reach, reach + 1)}
    total = mp.fsum(masses.values())
    return sum_of(*[[(mass / total, (1 + 2 * k) / (2 * s)) for k, mass in masses.items()]] * groups)


class Range:
    """The largest divergence of a loss that is t or t - u, over t, by a golden section."""

    def __init__(self, u):
        self.u = mp.mpf(u)

    def largest(self, divergence, low):
        def value(t):
            p = mp.expm1(self.u - t) / (mp.expm1(self.u - t) - mp.expm1(-t))
            return divergence([(p, t), (1 - p, t - self.u)])

        golden, high = (mp.sqrt(5) - 1) / 2, self.u
        for _ in range(45):
            inner = [high - golden * (high - low), low + golden * (high - low)]
            low, high = (inner[0], high) if value(inner[0]) < value(inner[1]) else (low, inner[1])
        return value(low)


P, Q = np.array([1, 2, 5, 7, 1]) / 16, np.array([4, 4, 1, 3, 4]) / 16
R, S = np.array([5, 7, 4]) / 16, np.array([2, 9, 5]) / 16
# Curves, their losses, and by how much a delta and a divergence may be too large.
CASES = [
    *(
        (RandomisedResponse(u, n), functools.partial(randomised, u, n), 1e-10, 1e-13)
        for u, n in [(0.3, 1), (5.0, 1), (500.0, 1), (1e-6, 1), (0.7, 2), (0.1, 3), (0.4, 101), (40.0, 2), (1e-4, 7)]
    ),
    *(
        (ErasedResponse(u, truth, 1, n), functools.partial(erased, u, truth, n), 1e-12, 1e-12)
        for u, truth, n in [(0.7, 0.4, 1), (3.0, 0.94, 1), (1e-5, 0.4, 1), (300.0, 0.9, 1), (0.4, 0.42, 4)]
    ),
    *(
        (ErasedResponse(0.7, 1 / (1 + math.exp(-0.7)), steps), functools.partial(one_cell, 0.7, steps), 1e-12, 1e-12)
        for steps in (2, 8)
    ),
    *((BoundedRange(u), functools.partial(Range, u), 1e-9, 1e-6) for u in (0.3, 4.0, 30.0)),
    *(
        (GaussianLoss(Fraction(s), groups, 1), functools.partial(gaussian, s, groups), 1e-10, 1e-11)
        for s, groups in [(0.0025, 1), (0.29, 2), (0.31, 1), (3.61, 2), (2.25, 3), (400.0, 1)]
    ),
    (Bounded(0.5, 1e-3), functools.partial(leaking, 0.5, 1e-3), 1e-13, 0.0),
    (Bounded(0.5, 0.0), functools.partial(randomised, 0.5), 1e-13, 0.5),
    (NoLoss(), lambda: [(mp.mpf(1), mp.mpf(0))], 0.0, 0.0),
    (FiniteDistributions(np.log(P), np.log(Q)), lambda: [losses_of(P, Q), losses_of(Q, P)], 1e-12, 1e-12),
    (
        Parallel((RandomisedResponse(0.5), ErasedResponse(1.0, 0.1))),
        lambda: [randomised(0.5), erased(1.0, 0.1)],
        1e-12,
        1e-12,
    ),
    (
        Composition(((RandomisedResponse(0.3), 4), (ErasedResponse(0.7, 0.4), 2), (Bounded(0.1, 1e-6), 1))),
        lambda: sum_of(randomised(0.3, 4), erased(0.7, 0.4, 2), leaking(0.1, 1e-6)),
        0.02,
        1e-12,
    ),
    (
        # Their curves cross, and the loss may go another way in each part: the bound lies above the truth.
        Composition(((FiniteDistributions(np.log(P), np.log(Q)), 1), (FiniteDistributions(np.log(R), np.log(S)), 1))),
        lambda: [sum_of(losses_of(*one), losses_of(*two)) for one in ((P, Q), (Q, P)) for two in ((R, S), (S, R))],
        4.0,
        1e-11,
    ),
    (Composition(((Bounded(0.1, 0.0), 10),)), lambda: randomised(0.1, 10), 0.02, math.inf),
    (
        Composition(((GaussianLoss(Fraction(1.7), 1, 1), 1), (GaussianLoss(Fraction(4), 1, 1), 1))),
        lambda: sum_of(gaussian(1.7, 1), gaussian(4.0, 1)),
        0.02,
        1e-11,
    ),
]


class Truth:
    """The largest divergences of some losses."""

    def __init__(self, losses):
        self.range = losses if isinstance(losses, Range) else None
        self.losses = [] if self.range else losses if isinstance(losses[0], list) else [losses]
        self.largest = self.range.u if self.range else max(loss for one in self.losses for p, loss in one if p)

    def delta(self, epsilon):
        if self.range:
            return self.range.largest(lambda loss: hockey_stick(loss, epsilon), low=mp.mpf(epsilon))
        return max(hockey_stick(loss, epsilon) for loss in self.losses)

    def renyi(self, order):
        if self.range:
            return self.range.largest(lambda loss: renyi_divergence(loss, order), low=mp.mpf(0))
        return max(renyi_divergence(loss, order) for loss in self.losses)


# By what share curves may be below the truth that are not rounded up: a grid covers the first, the last only audit.
NOT_ROUNDED = {Bounded: 1e-15, Composition: 1e-15, FiniteDistributions: 1e-11}


@pytest.mark.parametrize(
    ("curves", "losses", "above", "renyi_above"),
    CASES,
    ids=[f"{type(curves).__name__} {place}" for place, (curves, *_) in enumerate(CASES)],
)
def test_every_curve_of_a_finite_loss(curves, losses, above, renyi_above):
    truth = Truth(losses())
    below = mp.mpf(next((share for kind, share in NOT_ROUNDED.items() if isinstance(curves, kind)), 1e-20))
    # The noise of this file ends somewhere.
    noisy = "GaussianLoss" in str(curves)
    pure, is_pure = curves.pure_epsilon, not noisy and math.isfinite(curves.pure_epsilon)
    if is_pure:
        assert truth.largest * (1 - below) <= pure <= truth.largest * (1 + mp.mpf("2e-15"))

    # Deltas, alone and on a grid, and back.
    epsilons = min(float(truth.largest), 8 * curves._loss_spread) * np.array([0.0, 0.1, 0.35, 0.5, 0.9, 0.999])
    found, grid = curves.delta(epsilons), curves._deltas(epsilons)
    faint = 1e-20 if isinstance(curves, Composition) else 1e-200
    for epsilon, delta, on_grid in zip(epsilons.tolist(), found.tolist(), grid.tolist(), strict=True):
        exact = truth.delta(epsilon)
        assert exact * (1 - below) <= delta <= min(exact * (1 + above) + faint, 1)
        assert on_grid == pytest.approx(delta, rel=1e-11, abs=1e-200)
    assert np.all(np.diff(found) <= 0)
    if is_pure:
        assert curves.delta(pure) == curves.delta(2 * pure + 1) == 0
    for delta in (0.3, 1e-2, 1e-6):
        epsilon = curves.epsilon(delta)
        assert epsilon == math.inf or curves.delta(epsilon) <= delta
        assert epsilon in (0, math.inf) or isinstance(curves, Bounded) or curves.delta(epsilon * (1 - 1e-6)) > delta

    # Divergences, also next to order 1.
    orders = [1.0, 1 + 1e-12, 1 + 1e-9, 1.0001, 1.2, 2.0, 7.25, *(() if noisy else (100.0, 1e4))]
    exact = [truth.renyi(order) for order in orders]
    for order, true, divergence in zip(orders, exact, curves.renyi(orders).tolist(), strict=True):
        # Where digits are lost the bound of Hoeffding's lemma stands.
        rough = isinstance(curves, BoundedRange) and 1 < order < 1.001
        slack = renyi_above + float(truth.largest) ** 2 if rough else renyi_above
        if order == 1 and isinstance(curves, Bounded):
            slack = 1e-14
        assert true * (1 - below) <= divergence <= true * (1 + slack) or divergence == true
        assert divergence <= pure
    if is_pure:
        assert truth.largest * (1 - below) <= curves._renyi(math.inf) <= pure

    # The largest divergence over its order.
    for omega in (1.2, 7.25, math.inf):
        rho = curves.rho(omega)
        assert all(
            true / order * (1 - below) <= rho for order, true in zip(orders, exact, strict=True) if order <= omega
        )
        dense = [1.0, *(1 + np.geomspace(1e-4, min(omega, 1e3) - 1, 200)).tolist()]
        if not isinstance(curves, Bounded | Composition | Parallel):
            assert rho <= 1.02 * max(curves._renyi(order) / order for order in dense) or rho == math.inf
        assert rho <= curves.rho(math.inf)
