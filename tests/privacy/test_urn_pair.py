"""The worst neighbours of an urn, against fractions: every curve is at or above the truth, and close to it."""

import math
from fractions import Fraction
from itertools import permutations, product

import mpmath
import numpy as np
import pytest

from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.dominating_pairs import ReplaceOnePair
from pymc_dirdp.privacy.urn_pair import UrnPair

ORDERS = (1.0, 1 + 1e-7, 1.5, 2.0, 7.0, 100.0)
EPSILONS = (0.0, 0.05, 0.3, 0.8)


def urn_law(parameters, steps):
    """The probability of every outcome, as fractions: a Dirichlet-multinomial law."""
    law = {}
    for counts in product(range(steps + 1), repeat=len(parameters)):
        if sum(counts) == steps:
            mass = Fraction(math.factorial(steps))
            for u, c in zip(parameters, counts, strict=True):
                mass *= rising(u, c) / math.factorial(c)
            law[counts] = mass / rising(sum(parameters), steps)
    return law


def rising(u, c):
    return math.prod((u + j for j in range(c)), start=Fraction(1))


def true_curves(p, q):
    """All curves of two laws in both directions, with digits for divergences of 1e-120."""
    with mpmath.workdps(160):
        pairs = [
            (mpmath.mpf(p[c].numerator) / p[c].denominator, mpmath.mpf(q[c].numerator) / q[c].denominator) for c in p
        ]
        pairs = [pairs, [(b, a) for a, b in pairs]]
        pure = max(mpmath.log(a / b) for pair in pairs for a, b in pair)
        renyi = [max(divergence(pair, order) for pair in pairs) for order in ORDERS]
        delta = [max(sum(max(a - mpmath.exp(e) * b, 0) for a, b in pair) for pair in pairs) for e in EPSILONS]
    return pure, renyi, delta


def divergence(pair, order):
    if order == 1:
        return sum(a * mpmath.log(a / b) for a, b in pair)
    return mpmath.log(sum(a * (a / b) ** (mpmath.mpf(order) - 1) for a, b in pair)) / (mpmath.mpf(order) - 1)


def moved(alpha, r, counts, a, b):
    """The parameters of two neighbours: the record is in cell a, and in cell b."""
    base = [Fraction(x) + Fraction(r) * c for x, c in zip(alpha, counts, strict=True)]
    return tuple([u + Fraction(r) * (i == cell) for i, u in enumerate(base)] for cell in (a, b))


def assert_within(curves, p, q):
    pure, renyi, delta = true_curves(p, q)
    assert curves.pure_epsilon >= pure
    assert all(curves.renyi(order) >= true for order, true in zip(ORDERS, renyi, strict=True))
    assert all(curves.delta(epsilon) >= true for epsilon, true in zip(EPSILONS, delta, strict=True))


CASES = [
    ((1.0, 1.0), 0.5, 4),
    ((0.25, 2.0), 1.0, 5),
    ((0.001, 0.5), 0.0625, 3),
    ((3.0, 0.5, 1.0), 0.5, 4),
    ((1.0, 1.0, 1.0, 0.25), 2.0, 3),
]


@pytest.mark.parametrize(("alpha", "r", "steps"), CASES)
def test_one_record_attains_the_curves(alpha, r, steps):
    low, high, *rest = sorted(alpha)
    pair = UrnPair(low, high, sum(rest), r, steps)
    cells = alpha.index(high), len(alpha) - 1 - alpha[::-1].index(low)
    pure, renyi, delta = true_curves(*(urn_law(u, steps) for u in moved(alpha, r, [0] * len(alpha), *cells)))
    assert pure <= pair.pure_epsilon <= float(pure) * (1 + 1e-13)
    for order, true in zip(ORDERS, renyi, strict=True):
        assert true <= pair.renyi(order) <= float(true) * (1 + 1e-10)
    for epsilon, true in zip(EPSILONS, delta, strict=True):
        assert true <= pair.delta(epsilon) <= float(true) * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize(("alpha", "r", "steps"), CASES)
def test_no_neighbours_of_up_to_three_records_are_further_apart(alpha, r, steps):
    low, high, *rest = sorted(alpha)
    pair, d = UrnPair(low, high, sum(rest), r, steps), len(alpha)
    for counts in product(range(3), repeat=d):
        if sum(counts) <= 2:
            for a, b in product(range(d), repeat=2):
                if a < b:
                    assert_within(pair, *(urn_law(u, steps) for u in moved(alpha, r, counts, a, b)))


@pytest.mark.parametrize(("alpha", "r", "steps"), CASES)
def test_no_record_that_disappears_loses_more(alpha, r, steps):
    """With one record of a person at most, a data set may also have none."""
    low, high, *rest = sorted(alpha)
    pair, d = UrnPair(low, high, sum(rest), r, steps), len(alpha)
    for counts in [*product(range(3), repeat=d), *(tuple(50 * (i == full) for i in range(d)) for full in range(d))]:
        for cell in range(d):
            with_it, _ = moved(alpha, r, counts, cell, cell)
            without = [Fraction(a) + Fraction(r) * c for a, c in zip(alpha, counts, strict=True)]
            if sum(counts) <= 2 or sum(counts) == 50:
                assert_within(pair, urn_law(with_it, steps), urn_law(without, steps))


def test_a_wrong_pair_of_cells_is_found():
    alpha, r = (3.0, 0.5, 1.0), 0.5
    wrong = UrnPair(0.5, 3.0, 1.0, r, 4)
    with pytest.raises(AssertionError):
        assert_within(wrong, *(urn_law(u, 4) for u in moved(alpha, r, (0, 0, 0), 2, 1)))


@pytest.mark.parametrize("steps", [1, 30, 64, 5_000])
def test_the_draw_of_which_the_urn_is_made_loses_more(steps):
    draw, two = ReplaceOnePair(2.9, 1.9, 0.2), UrnPair(1.9, 2.9, 0.0, 0.2, steps)
    for urn in (two, UrnPair(1.9, 2.9, 5.0, 0.2, steps)):
        assert all(urn.renyi(order) < draw.renyi(order) for order in ORDERS)
        assert all(urn.delta(epsilon) < draw.delta(epsilon) for epsilon in EPSILONS)
        assert all(urn.renyi(order) <= two.renyi(order) for order in ORDERS)


def test_curves_rise_with_the_steps_towards_those_of_the_draw():
    pairs = [UrnPair(1.9, 2.9, 0.0, 0.2, steps) for steps in (10, 100, 1_000, 16_384)]
    for losses in zip(*([pair.renyi(2), pair.delta(0.3), pair.pure_epsilon] for pair in pairs), strict=True):
        assert np.all(np.diff(losses) > 0)
    assert pairs[-1].renyi(2) / ReplaceOnePair(2.9, 1.9, 0.2).renyi(2) == pytest.approx(1, abs=1e-3)


def test_large_orders_lead_to_the_pure_loss():
    pair = UrnPair(0.5, 1.0, 0.0, 1.0, 50)
    assert pair._renyi(math.inf) == pair.pure_epsilon
    assert pair.renyi(1e6) == pytest.approx(pair.pure_epsilon, rel=1e-4)
    assert pair.delta(pair.pure_epsilon) == 0
    assert pair.rho(math.inf) >= max(pair.renyi(order) / order for order in np.geomspace(1, 1e4, 200))


@pytest.mark.parametrize(("low", "r"), [(1e-100, 1e-4), (1e-3, 10.0), (1e12, 1e-4), (1.0, 1e-100)])
def test_curves_at_the_ends_of_the_domain(low, r):
    pair = UrnPair(low, 2 * low, 0.0, r, 100)
    assert 0 < pair.renyi(1.0) <= pair.renyi(2.0) <= pair.renyi(50.0) <= pair.pure_epsilon
    assert 0 < pair.delta(0.0) <= pair.pure_epsilon


@pytest.mark.parametrize("r", [1e-4, 1e-9, 1e-60])
def test_small_losses_keep_their_digits(r):
    pair = UrnPair(0.5, 1.0, 0.0, r, 3)
    pure, renyi, delta = true_curves(*(urn_law(u, 3) for u in moved((1.0, 0.5), r, (0, 0), 0, 1)))
    assert pure <= pair.pure_epsilon
    assert all(true <= pair.renyi(order) <= float(true) * (1 + 1e-9) for order, true in zip(ORDERS, renyi, strict=True))
    assert delta[0] <= pair.delta(0.0) <= float(delta[0]) * (1 + 1e-9)


def test_a_grid_of_deltas_is_that_of_the_curve_from_above():
    pair = UrnPair(0.7, 1.2, 3.0, 0.4, 40)
    grid, back = pair.hockey_sticks(0.05, 60)
    curve = pair.delta(0.05 * np.arange(60))
    assert back is grid
    assert np.all(grid >= curve * (1 - 1e-12))
    assert np.allclose(grid, curve, rtol=1e-9, atol=1e-12)


def test_two_draws_compose():
    pair = UrnPair(1.0, 1.0, 0.0, 0.5, 3)
    twice = Composition(((pair, 2),))
    once = [urn_law(u, 3) for u in moved((1.0, 1.0), 0.5, (0, 0), 0, 1)]
    p, q = ({(c, e): law[c] * law[e] for c in law for e in law} for law in once)
    assert_within(twice, p, q)
    assert twice.pure_epsilon == pytest.approx(2 * pair.pure_epsilon, rel=1e-14)


@pytest.mark.parametrize("order", [1.0, 1.0 + 1e-4, 3.0])
def test_losses_whose_exponentials_are_no_doubles(order):
    """The record is so heavy that its cell takes every step, or none."""
    low, high, r, steps = 1e-100, 1e-90, 1e100, 3
    with mpmath.workdps(60):
        a, b, heavy = map(mpmath.mpf, (high, low, r))
        logs = {}
        for name, (u, v) in {"first": (a + heavy, b), "second": (a, b + heavy)}.items():
            logs[name] = [
                mpmath.log(mpmath.binomial(steps, i))
                + mpmath.log(mpmath.rf(u, i) * mpmath.rf(v, steps - i) / mpmath.rf(u + v, steps))
                for i in range(steps + 1)
            ]
        divergences = []
        for p, q in permutations(logs.values()):
            if order == 1:
                divergences.append(sum(mpmath.exp(x) * (x - y) for x, y in zip(p, q, strict=True)))
            else:
                powers = (mpmath.exp(order * x + (1 - order) * y) for x, y in zip(p, q, strict=True))
                divergences.append(mpmath.log(sum(powers)) / (order - 1))
        truth = float(max(divergences))
    assert truth > 700
    pair = UrnPair(low, high, 0.0, r, steps)
    # So little of the probabilities is left after rounding that the bound is the largest loss.
    assert truth <= pair.renyi(order) <= pair.pure_epsilon < 1.5 * truth
    assert 0.99 < pair.delta(1.0) <= 1
