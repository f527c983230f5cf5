"""The exact curves: against references, many digits, and every neighbour of every small data set."""

import itertools
import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from scipy.special import polygamma

from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.unit import dominating_pair
from tests.oracles import beta_hockey_stick, dirichlet_renyi, neighbours, tables_of

REFERENCE = Path(__file__).parents[1] / "reference" / "curves.json"
# Rounding of the oracle's own log-gammas; the curve is compared from above without any other room.
ORACLE = 1 + 1e-12
RELATIONS = ["replace-one", "add-remove"]


@pytest.mark.parametrize(("curve", "argument"), [("renyi", "order"), ("rho", "omega"), ("delta", "epsilon")])
def test_reference_values(curve, argument):
    for case in json.loads(REFERENCE.read_text())[curve]:
        pair = dominating_pair(np.array(case["alpha"], dtype=float), float(case["r"]), case["adjacency"])
        assert getattr(pair, curve)(case[argument]) == pytest.approx(float(case["value"]), rel=1e-10)


# Every neighbour.


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize(
    "alpha", [[1.0, 1.0], [0.4, 2.0], [0.7, 1.5, 0.9], [[1.0, 1.0], [1.0, 1.0]], [[0.5, 3.0], [2.0, 0.8]]]
)
def test_no_neighbour_exceeds_the_renyi_curve(alpha, adjacency):
    """Every neighbour of every data set of up to 3 records, records that change rows included."""
    alpha = np.array(alpha)
    pairs = [(x, y) for n in range(1, 4) for x in tables_of(alpha.shape, n) for y in neighbours(x, adjacency)]
    both = [*pairs, *((y, x) for x, y in pairs)] if adjacency == "add-remove" else pairs
    for r, order in itertools.product([0.1, 0.6, 2.0], [1.2, 2.0, 5.0]):
        bound = dominating_pair(alpha, r, adjacency).renyi(order)
        worst = max(dirichlet_renyi(order, r * x + alpha, r * y + alpha) for x, y in both)
        assert worst <= bound * ORACLE
        if adjacency == "replace-one" and alpha.ndim == 1:
            # Within one row the bound is attained, with all other records out of the two cells; with d = 2 at N = 1.
            assert worst == pytest.approx(bound, rel=1e-9)


def test_add_remove_is_a_supremum_over_the_number_of_records():
    alpha, r, order = np.array([0.8, 1.0]), 0.4, 2.0
    bound = dominating_pair(alpha, r, "add-remove").renyi(order)
    losses = [
        dirichlet_renyi(order, r * np.array([0, n]) + alpha, r * np.array([1, n]) + alpha) for n in (1, 10, 1e3, 1e6)
    ]
    assert np.all(np.diff(losses) > 0)
    assert bound * (1 - 1e-4) < losses[-1] < bound


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_min_count_bounds_every_data_set_that_keeps_it(adjacency):
    alpha, r, order, least = np.array([0.6, 1.0, 0.8]), 0.5, 3.0, 2
    bound = dominating_pair(alpha, r, adjacency, min_count=least).renyi(order)
    worst = 0.0
    for x in itertools.chain.from_iterable(tables_of((3,), n) for n in range(6, 10)):
        for y in neighbours(x, adjacency):
            if min(x.min(), y.min()) >= least:
                both = (r * x + alpha, r * y + alpha)
                worst = max(worst, dirichlet_renyi(order, *both), dirichlet_renyi(order, *both[::-1]))
    assert worst <= bound * ORACLE
    # The guarantee is used: without it the bound is far larger.
    assert bound < 0.5 * dominating_pair(alpha, r, adjacency).renyi(order)


@pytest.mark.parametrize("alpha", [[1.0, 1.0], [0.5, 2.0]])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.5])
def test_no_neighbour_exceeds_the_delta_curve(alpha, epsilon):
    r = 0.4
    losses = [
        beta_hockey_stick(epsilon, tuple(r * x + alpha), tuple(r * y + alpha))
        for n in range(1, 4)
        for x in tables_of((2,), n)
        for y in neighbours(x, "replace-one")
    ]
    assert max(losses) == pytest.approx(DominatingPair(*alpha, r).delta(epsilon), rel=1e-8)


@pytest.mark.thorough
def test_no_random_large_data_set_exceeds_the_curves():
    rng = np.random.default_rng(0)
    for _ in range(200):
        shape = (int(rng.integers(1, 4)), int(rng.integers(2, 7)))
        alpha, r, order = 10 ** rng.uniform(-1, 1, shape), 10 ** rng.uniform(-2, 0.5), 1 + 10 ** rng.uniform(-1, 1)
        x = rng.poisson(10 ** rng.uniform(-1, 3), shape)
        for adjacency in RELATIONS:
            bound = dominating_pair(alpha, r, adjacency).renyi(order)
            for y in itertools.islice(neighbours(x, adjacency), 20):
                assert dirichlet_renyi(order, r * x + alpha, r * y + alpha) <= bound * (1 + 1e-8) + 1e-12


# The shape of the curves.


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_rho_is_the_largest_divergence_over_its_order(adjacency):
    for alpha, r in [([1.0, 1.0], 0.2), ([0.3, 4.0], 0.1), ([50.0, 2.0], 0.5)]:
        pair = dominating_pair(np.array(alpha), r, adjacency)
        omega = 1 + 0.9 * min(alpha) / r
        orders = np.linspace(1, omega, 200)[1:]
        assert pair.rho(omega) == pytest.approx(max(pair.renyi(orders) / orders), rel=1e-9)
        assert pair.rho(1 + 1.01 * min(alpha) / r) == pair.rho(math.inf) == math.inf


def test_curves_are_monotone():
    base = DominatingPair(1.0, 2.0, 0.2)
    for curve, argument in (("renyi", 3.0), ("delta", 0.3)):
        value = getattr(base, curve)(argument)
        assert getattr(DominatingPair(1.0, 2.0, 0.21), curve)(argument) > value
        assert getattr(DominatingPair(1.1, 2.0, 0.2), curve)(argument) < value
        assert getattr(DominatingPair(1.0, 2.1, 0.2), curve)(argument) < value
    assert np.all(np.diff(base.renyi([1.0, 1.5, 2, 4, 5.9])) > 0)
    assert np.all(np.diff(base.delta([0.0, 0.1, 1, 2])) < 0)


@pytest.mark.parametrize("pair", [DominatingPair(1.0, 2.0, 1e10), DominatingPair(1.0, math.inf, 1e10)])
def test_orders_at_the_end_of_the_doubles_are_no_way_round_a_curve(pair):
    """A divergence that was no number vanished in a maximum: (1, 1e300)-tCDP was guaranteed by its divergence at 1."""
    assert pair.renyi(1e300) == math.inf
    assert pair.rho(1e300) == math.inf


# Deltas with 60 digits. How far above the truth one may be: an integral, and a difference of two tails.
INTEGRATED, SUBTRACTED = 1 + 4e-11, 1 + 1.1e-9


def moving(epsilon, a, b, r):
    """Hockey stick of `Beta(a + r, b)` from `Beta(a, b + r)`, by the series of the incomplete Beta function."""
    with mp.workdps(60):
        a, b, r, epsilon = map(mp.mpf, (a, b, r, epsilon))
        k = mp.loggamma(a) - mp.loggamma(a + r) + mp.loggamma(b + r) - mp.loggamma(b)
        x = 1 / (1 + mp.exp((epsilon - k) / r))

        def lower(p, q):
            start = p * mp.log(x) + q * mp.log1p(-x) - mp.log(p)
            start += mp.loggamma(p + q) - mp.loggamma(p) - mp.loggamma(q)
            return mp.exp(start) * mp.hyp2f1(p + q, 1, p + 1, x)

        return lower(b, a + r) - mp.exp(epsilon) * lower(b + r, a)


def removal(epsilon, a, r):
    """Hockey stick of `Gamma(a)` from `Gamma(a + r)`."""
    with mp.workdps(60):
        a, r, epsilon = map(mp.mpf, (a, r, epsilon))
        g = mp.exp((mp.loggamma(a + r) - mp.loggamma(a) - epsilon) / r)
        return mp.gammainc(a, 0, g, regularized=True) - mp.exp(epsilon) * mp.gammainc(a + r, 0, g, regularized=True)


def addition(epsilon, a, r):
    """Hockey stick of `Gamma(a + r)` from `Gamma(a)`."""
    with mp.workdps(60):
        a, r, epsilon = map(mp.mpf, (a, r, epsilon))
        g = mp.exp((epsilon + mp.loggamma(a + r) - mp.loggamma(a)) / r)
        return mp.gammainc(a + r, g, regularized=True) - mp.exp(epsilon) * mp.gammainc(a, g, regularized=True)


def delta_is(pair, epsilon, truth, above):
    assert truth <= pair.delta(epsilon) <= truth * above
    assert truth <= pair._deltas(np.array([0.0, epsilon]))[1] <= truth * above


@pytest.mark.parametrize(
    ("epsilon", "a", "b", "r"),
    [
        # Far out the second tail had fewer digits or none, and delta was up to six times its size.
        (500.0, 1.0, 1.0, 1.0),
        (590.0, 1.0, 1.0, 1.0),
        (650.0, 2.0, 2.0, 2.0),
        (104.0, 5.0, 3.0, 0.5),
        (112.0, 5.0, 3.0, 0.5),
        (20.0, 20.0, 10.0, 0.3),
        (125.0, 0.5, 0.5, 0.1),
        (133.0, 0.5, 0.5, 0.1),
        # Uneven priors and tiny concentrations: a difference of doubles has no digit left.
        (0.0, 1.6e5, 0.011, 1.1e-7),
        (1e-9, 1.6e5, 0.011, 1.1e-7),
        (1e-7, 1.6e5, 0.011, 1.1e-7),
        # The two tails cancel, and the loss is integrated.
        (2.339879986719443e-06, 3.8260564459584474, 3.8260564459584474, 5.369271349060827e-07),
        (0.003163407710141332, 622.1830230681468, 0.9189357400366182, 0.0008135600913877155),
        (61000.491061500645, 969.5915456498782, 0.003722788138886541, 216.47211189633882),
    ],
)
def test_deltas_of_moves_keep_their_digits(epsilon, a, b, r):
    delta_is(DominatingPair(b, a, r), epsilon, moving(epsilon, a, b, r), INTEGRATED)


@pytest.mark.parametrize(("epsilon", "a", "r"), [(157.0, 2.0, 0.5), (38.0, 5.0, 0.3), (630.0, 1.0, 1.0)])
def test_faint_deltas_of_removing_keep_their_digits(epsilon, a, r):
    delta_is(DominatingPair(a, math.inf, r), epsilon, removal(epsilon, a, r), INTEGRATED)


@pytest.mark.parametrize(
    ("epsilon", "a", "r"),
    [(2.3983179906, 0.0257974531964, 0.110164176673), (0.055091652, 1.95493584057, 0.0102995235), (0.2, 0.5, 0.05)],
)
def test_faint_deltas_of_adding_keep_their_digits(epsilon, a, r):
    """Far out this tail falls like the exponential of an exponential, and sums lost one part in eighty."""
    delta_is(DominatingPair(math.inf, a, r), epsilon, addition(epsilon, a, r), SUBTRACTED)


def test_deltas_are_rounded_up():
    """They were below the truth by up to 8e-11, relative, where two tails nearly cancel."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        (b, a), r = np.sort(10 ** rng.uniform(-2, 2.7, size=2)).tolist(), float(10 ** rng.uniform(-3, 1))
        deviations = abs(rng.normal()) * 3 * r
        epsilon = deviations * math.sqrt(polygamma(1, a) + polygamma(1, b))
        one = deviations * math.sqrt(polygamma(1, b))
        for pair, at, truth in (
            (DominatingPair(b, a, r), epsilon, moving(epsilon, a, b, r)),
            (DominatingPair(b, math.inf, r), one, removal(one, b, r)),
            (DominatingPair(math.inf, b, r), one, addition(one, b, r)),
        ):
            if truth > 1e-290:
                delta_is(pair, at, truth, SUBTRACTED)


@pytest.mark.parametrize(("a", "b", "r"), [(1e25, 0.5, 0.01), (1e20, 3.0, 1.0), (1e40, 1.0, 0.3)])
def test_a_parameter_that_is_huge_beside_a_small_one_is_an_infinite_one(a, b, r):
    """The full cell of a row with a public number of records; what is left is the record that is removed."""
    epsilons = np.array([0.1 * r, 2 * r, 5.0])
    np.testing.assert_allclose(
        DominatingPair(a, b, r).delta(epsilons), DominatingPair(b, math.inf, r).delta(epsilons), rtol=1e-9
    )


def test_delta_of_extreme_arguments():
    # No loss is bounded, so no delta is 0.
    assert 0 < DominatingPair(1.0, 1.0, 1e-8).delta(1e6) < 1e-300
    assert 0 < DominatingPair(1.0, math.inf, 1e-8).delta(1e6) < 1e-300
    # Small parameters put mass far beyond what exp can hold.
    assert 0.1 < DominatingPair(1e-3, math.inf, 1e-2).delta(0.5) < 1
    # What is rounded up is no more than 1.
    for pair in (DominatingPair(1e-3, 1e-3, 1e4), *(dominating_pair(np.full(2, 1e-6), 100.0, a) for a in RELATIONS)):
        assert 1 - 1e-3 < pair.delta(0.0) <= 1
        assert np.all(pair.delta(np.linspace(0, 5, 50)) <= 1)
