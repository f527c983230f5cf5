"""The exact curves: against references, high precision, and every neighbour of every small data set."""

import itertools
import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln, gammaln, polygamma

from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.unit import dominating_pair

REFERENCE = Path(__file__).parents[1] / "reference" / "curves.json"


@pytest.mark.parametrize(("curve", "argument"), [("renyi", "order"), ("rho", "omega"), ("delta", "epsilon")])
def test_reference_values(curve, argument):
    for case in json.loads(REFERENCE.read_text())[curve]:
        pair = dominating_pair(np.array(case["alpha"], dtype=float), float(case["r"]), case["adjacency"])
        assert getattr(pair, curve)(case[argument]) == pytest.approx(float(case["value"]), rel=1e-10)


# 17 digits from 40-digit arithmetic: (adjacency, epsilon, alpha, r, delta).
DELTAS = [
    ("replace-one", 1, [1, 1], 0.3, 0.010460627886751318),
    ("replace-one", 1, [5, 5], 0.3, 3.9835160976312345e-7),
    ("replace-one", 3, [1.5, 4], 1, 0.0087468807983961114),
    ("replace-one", 10, [0.15, 0.15], 0.6, 0.061375652764705207),
    ("replace-one", 5, [1.2, 1.2], 4.8, 0.71836880274064676),
    ("replace-one", 20, [2, 2], 2, 1.0304271041197831e-8),
    ("replace-one", 0, [1, 3], 0.5, 0.23925930569064349),
    ("add-remove", 0.5, [100, 100], 3, 0.0084420658710574887),
    ("add-remove", 20, [2, 2], 2, 3.0915470688183741e-9),
    ("add-remove", 0, [1, 3], 0.5, 0.21009140544393728),
    # Where the two tails cancel and the loss is integrated; mpmath quadrature with 30 digits.
    ("replace-one", 2.339879986719443e-06, [3.8260564459584474] * 2, 5.369271349060827e-07, 2.1268579414444938e-13),
    (
        "replace-one",
        0.003163407710141332,
        [0.9189357400366182, 622.1830230681468],
        0.0008135600913877155,
        1.322797867683812e-05,
    ),
    (
        "replace-one",
        61000.491061500645,
        [0.003722788138886541, 969.5915456498782],
        216.47211189633882,
        0.35686226207016764,
    ),
]


@pytest.mark.parametrize(("adjacency", "epsilon", "alpha", "r", "delta"), DELTAS)
def test_delta_of_typed_cases(adjacency, epsilon, alpha, r, delta):
    pair = dominating_pair(np.array(alpha, dtype=float), r, adjacency)
    assert pair.delta(float(epsilon)) == pytest.approx(delta, rel=1e-10)


def exact_renyi(order, a, b, r, adjacency):
    """Theory, section 3, with 60 digits."""
    with mp.workdps(60):
        order, a, b, r = map(mp.mpf, (order, a, b, r))
        log_gamma = mp.loggamma

        def add(a):
            return (log_gamma(a + order * r) - order * log_gamma(a + r) + (order - 1) * log_gamma(a)) / (order - 1)

        def remove(a):
            end = a - (order - 1) * r
            if end <= 0:
                return mp.inf
            return (log_gamma(end) + (order - 1) * log_gamma(a + r) - order * log_gamma(a)) / (order - 1)

        if adjacency == "add-remove":
            return max(add(a), remove(a))
        return max(add(a) + remove(b), add(b) + remove(a))


@pytest.mark.parametrize("seed", range(4))
def test_renyi_keeps_ten_digits_everywhere(seed):
    """Over r from 1e-8 to 1e4, alpha from 1e-3 to 1e6; orders near 1, large, and up to the pole."""
    rng = np.random.default_rng(seed)
    for i in range(150):
        a, b = 10 ** rng.uniform(-3, 6, 2)
        r = 10 ** rng.uniform(-8, 4)
        if i % 3 == 0:
            b = a
        near_pole = 1 + min(a, b) / r * rng.choice([0.5, 0.999, 1 - 1e-9, 1.01])
        order = [1 + 10 ** rng.uniform(-6, 0), 10 ** rng.uniform(0.1, 4), near_pole][seed % 3]
        if order <= 1:
            continue
        for adjacency, pair in (
            ("replace-one", DominatingPair(a, b, r)),
            ("add-remove", DominatingPair(a, math.inf, r)),
        ):
            expected = exact_renyi(order, a, b, r, adjacency)
            value = pair.renyi(order)
            assert value == math.inf if expected == mp.inf else abs(value / expected - 1) < 1e-10


def dirichlet_renyi(order, u, v):
    """Rényi divergence of Dirichlet(u) from Dirichlet(v), row by row; inf where it diverges."""
    w = order * u + (1 - order) * v
    if np.any(w <= 0):
        return math.inf

    def log_b(x):
        return (gammaln(x).sum(axis=-1) - gammaln(x.sum(axis=-1))).sum()

    return (log_b(w) - order * log_b(u) - (1 - order) * log_b(v)) / (order - 1)


def tables_of(shape, n):
    cells = math.prod(shape)
    for x in itertools.product(range(n + 1), repeat=cells):
        if sum(x) == n:
            yield np.array(x, dtype=float).reshape(shape)


def neighbours(x, adjacency):
    for i in np.ndindex(x.shape):
        if x[i] == 0:
            continue
        without = x.copy()
        without[i] -= 1
        if adjacency == "add-remove":
            yield without
            continue
        for j in np.ndindex(x.shape):
            if j != i:
                neighbour = without.copy()
                neighbour[j] += 1
                yield neighbour


# Rounding of the oracle's own log-gammas; the curve is compared from above without any other room.
ORACLE = 1 + 1e-12


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    "alpha", [[1.0, 1.0], [0.4, 2.0], [0.7, 1.5, 0.9], [[1.0, 1.0], [1.0, 1.0]], [[0.5, 3.0], [2.0, 0.8]]]
)
def test_no_neighbour_exceeds_the_renyi_curve(alpha, adjacency):
    """Every neighbour of every data set of up to 4 records, records that change rows included."""
    alpha = np.array(alpha)
    for r, order in itertools.product([0.1, 0.6, 2.0], [1.2, 2.0, 5.0]):
        bound = dominating_pair(alpha, r, adjacency).renyi(order)
        worst = 0.0
        for n in range(1, 5):
            for x in tables_of(alpha.shape, n):
                for y in neighbours(x, adjacency):
                    both = [(x, y), (y, x)] if adjacency == "add-remove" else [(x, y)]
                    worst = max(worst, *(dirichlet_renyi(order, r * p + alpha, r * q + alpha) for p, q in both))
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
    assert losses[-1] < bound
    assert losses[-1] == pytest.approx(bound, rel=1e-4)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_min_count_bounds_every_data_set_that_keeps_it(adjacency):
    alpha, r, order, least = np.array([0.6, 1.0, 0.8]), 0.5, 3.0, 2
    bound = dominating_pair(alpha, r, adjacency, min_count=least).renyi(order)
    worst = 0.0
    for n in range(6, 10):
        for x in tables_of((3,), n):
            for y in neighbours(x, adjacency):
                if min(x.min(), y.min()) >= least:
                    worst = max(worst, dirichlet_renyi(order, r * x + alpha, r * y + alpha))
                    worst = max(worst, dirichlet_renyi(order, r * y + alpha, r * x + alpha))
    assert worst <= bound * ORACLE
    # The guarantee is used: without it the bound is far larger.
    assert bound < 0.5 * dominating_pair(alpha, r, adjacency).renyi(order)


def beta_hockey_stick(epsilon, u, v):
    """Independent of the curve's own formula: integral of the positive part of the difference of densities."""
    log_u, log_v = betaln(*u), betaln(*v)

    def difference(z):
        # In logit coordinates, where neither density has a pole.
        tail = np.logaddexp(0, z)
        p = math.exp(u[0] * z - (u[0] + u[1]) * tail - log_u)
        return max(0.0, p - math.exp(epsilon + v[0] * z - (v[0] + v[1]) * tail - log_v))

    return quad(difference, -80, 80, points=np.arange(-20, 21, 2.0), limit=400)[0]


@pytest.mark.parametrize("alpha", [[1.0, 1.0], [0.5, 2.0]])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.5])
def test_no_neighbour_exceeds_the_delta_curve(alpha, epsilon):
    alpha, r = np.array(alpha), 0.4
    bound = DominatingPair(*alpha, r).delta(epsilon)
    losses = [
        beta_hockey_stick(epsilon, r * x + alpha, r * y + alpha)
        for n in range(1, 4)
        for x in tables_of((2,), n)
        for y in neighbours(x, "replace-one")
    ]
    assert max(losses) <= bound + 1e-7  # the absolute accuracy of the oracle
    assert max(losses) == pytest.approx(bound, abs=1e-7)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_no_random_large_data_set_exceeds_the_curves(seed):
    rng = np.random.default_rng(seed)
    for _ in range(200):
        shape = (int(rng.integers(1, 4)), int(rng.integers(2, 7)))
        alpha = 10 ** rng.uniform(-1, 1, shape)
        r, order = 10 ** rng.uniform(-2, 0.5), 1 + 10 ** rng.uniform(-1, 1)
        x = rng.poisson(10 ** rng.uniform(-1, 3), shape).astype(float)
        for adjacency in ("replace-one", "add-remove"):
            bound = dominating_pair(alpha, r, adjacency).renyi(order)
            for y in itertools.islice(neighbours(x, adjacency), 20):
                assert dirichlet_renyi(order, r * x + alpha, r * y + alpha) <= bound * (1 + 1e-8) + 1e-12


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_rho_is_the_largest_divergence_over_its_order(adjacency):
    for alpha, r in [([1.0, 1.0], 0.2), ([0.3, 4.0], 0.1), ([50.0, 2.0], 0.5)]:
        pair = dominating_pair(np.array(alpha), r, adjacency)
        omega = 1 + 0.9 * min(alpha) / r
        orders = np.linspace(1, omega, 400)[1:]
        assert pair.rho(omega) == pytest.approx(max(pair.renyi(order) / order for order in orders), rel=1e-9)
        assert pair.rho(1 + 1.01 * min(alpha) / r) == math.inf
        assert pair.rho(math.inf) == math.inf


def test_delta_of_extreme_arguments():
    assert DominatingPair(1.0, 1.0, 1e-8).delta(1e6) == 0
    assert DominatingPair(1.0, math.inf, 1e-8).delta(1e6) == 0
    # The total variation of a tiny r is r E|logit(w)| / 2 with w uniform: E|logit| = 2 log 2.
    assert DominatingPair(1.0, 1.0, 1e-8).delta(0.0) == pytest.approx(1e-8 * math.log(2), rel=1e-6)
    assert DominatingPair(1e-3, 1e-3, 1e4).delta(0.0) <= 1
    # Small parameters put mass far beyond what exp can hold.
    assert 0.1 < DominatingPair(1e-3, math.inf, 1e-2).delta(0.5) < 1


def test_curves_are_monotone():
    base = DominatingPair(1.0, 2.0, 0.2)
    for curve, argument in (("renyi", 3.0), ("delta", 0.3)):
        value = getattr(base, curve)(argument)
        assert getattr(DominatingPair(1.0, 2.0, 0.21), curve)(argument) > value
        assert getattr(DominatingPair(1.1, 2.0, 0.2), curve)(argument) < value
        assert getattr(DominatingPair(1.0, 2.1, 0.2), curve)(argument) < value
    assert np.all(np.diff([base.renyi(order) for order in (1.0, 1.5, 2, 4, 5.9)]) > 0)
    assert np.all(np.diff([base.delta(epsilon) for epsilon in (0.0, 0.1, 1, 2)]) < 0)


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 1e-7])
def test_uneven_priors_and_tiny_concentrations_keep_ten_digits(epsilon):
    """Oracle: incomplete beta functions with 60 digits, where a difference of doubles has none left."""
    a, b, r = 1.6e5, 0.011, 1.1e-7
    with mp.workdps(60):
        a_, b_, r_ = mp.mpf(a), mp.mpf(b), mp.mpf(r)
        t = (mp.mpf(epsilon) - mp.log(mp.beta(a_, b_ + r_)) + mp.log(mp.beta(a_ + r_, b_))) / r_
        q = 1 / (1 + mp.exp(t))
        first = mp.betainc(b_, a_ + r_, 0, q, regularized=True)
        exact = first - mp.exp(epsilon) * mp.betainc(b_ + r_, a_, 0, q, regularized=True)
    assert DominatingPair(b, a, r).delta(epsilon) == pytest.approx(float(exact), rel=1e-10)


@pytest.mark.parametrize("pair", [DominatingPair(1.0, 2.0, 1e10), DominatingPair(1.0, math.inf, 1e10)])
def test_orders_at_the_end_of_the_doubles_are_no_way_round_a_curve(pair):
    """A divergence that was no number vanished in a maximum: (1, 1e300)-tCDP was guaranteed by its divergence at 1."""
    assert pair.renyi(1e300) == math.inf
    assert pair.rho(1e300) == math.inf


# How far above the truth a delta may be: an integral, and a difference of two tails that nearly cancel.
INTEGRATED, SUBTRACTED = 1 + 4e-11, 1 + 1.1e-9

# Deltas next to the smallest doubles: one of the two tails is below them (60 digits).


def trigamma(a):
    return float(polygamma(1, a))


def faint_move(epsilon, a, b, r):
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


def faint_removal(epsilon, a, r):
    with mp.workdps(60):
        a, r, epsilon = map(mp.mpf, (a, r, epsilon))
        g = mp.exp((mp.loggamma(a + r) - mp.loggamma(a) - epsilon) / r)
        return mp.gammainc(a, 0, g, regularized=True) - mp.exp(epsilon) * mp.gammainc(a + r, 0, g, regularized=True)


@pytest.mark.parametrize(
    ("epsilon", "a", "b", "r"),
    [
        (500.0, 1.0, 1.0, 1.0),
        (590.0, 1.0, 1.0, 1.0),
        (650.0, 2.0, 2.0, 2.0),
        (104.0, 5.0, 3.0, 0.5),
        (112.0, 5.0, 3.0, 0.5),
        (20.0, 20.0, 10.0, 0.3),
        (125.0, 0.5, 0.5, 0.1),
        (133.0, 0.5, 0.5, 0.1),
    ],
)
def test_faint_deltas_keep_their_digits(epsilon, a, b, r):
    """Found by attack: the second tail had fewer digits or none, and delta was up to six times its size."""
    pair, truth = DominatingPair(a, b, r), faint_move(epsilon, a, b, r)
    assert 1e-300 < truth < 1e-210
    assert truth <= pair.delta(epsilon) <= truth * INTEGRATED
    assert truth <= pair._deltas(np.array([0.0, epsilon]))[1] <= truth * INTEGRATED


@pytest.mark.parametrize(("epsilon", "a", "r"), [(157.0, 2.0, 0.5), (38.0, 5.0, 0.3), (630.0, 1.0, 1.0)])
def test_faint_deltas_of_removing_keep_their_digits(epsilon, a, r):
    truth = faint_removal(epsilon, a, r)
    assert truth <= DominatingPair(a, math.inf, r).delta(epsilon) <= truth * INTEGRATED


@pytest.mark.parametrize(
    ("epsilon", "a", "r"),
    [(2.3983179906, 0.0257974531964, 0.110164176673), (0.055091652, 1.95493584057, 0.0102995235), (0.2, 0.5, 0.05)],
)
def test_faint_deltas_of_adding_keep_their_digits(epsilon, a, r):
    """Far out this tail falls like the exponential of an exponential, and sums lost one part in eighty."""
    with mp.workdps(60):
        first, shift, loss = mp.mpf(a) + mp.mpf(r), mp.mpf(r), mp.mpf(epsilon)
        g = mp.exp((loss + mp.loggamma(first) - mp.loggamma(first - shift)) / shift)
        truth = mp.gammainc(first, g, regularized=True) - mp.exp(loss) * mp.gammainc(first - shift, g, regularized=True)
    assert truth > 1e-290
    assert truth <= DominatingPair(math.inf, a, r).delta(epsilon) <= truth * SUBTRACTED


def test_deltas_are_rounded_up():
    """They were below the truth by up to 8e-11, relative, where two tails nearly cancel. Oracle: 50 digits."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        (a, b), r = np.sort(10 ** rng.uniform(-2, 2.7, size=2)).tolist()[::-1], float(10 ** rng.uniform(-3, 1))
        for pair, move in (
            (DominatingPair(a, b, r), math.sqrt(trigamma(a) + trigamma(b))),
            (DominatingPair(b, math.inf, r), math.sqrt(trigamma(b))),
        ):
            epsilon = abs(rng.normal()) * 3 * r * move
            truth = faint_move(epsilon, a, b, r) if pair == DominatingPair(a, b, r) else faint_removal(epsilon, b, r)
            if truth > 1e-290:
                assert truth <= pair.delta(epsilon) <= truth * SUBTRACTED
                assert truth <= pair._deltas(np.array([0.0, epsilon]))[1] <= truth * SUBTRACTED


@pytest.mark.parametrize(("a", "b", "r"), [(1e25, 0.5, 0.01), (1e20, 3.0, 1.0), (1e40, 1.0, 0.3)])
def test_a_parameter_that_is_huge_beside_a_small_one_is_an_infinite_one(a, b, r):
    """The full cell of a row with a public number of records; what is left is the record that is removed."""
    for epsilon in (0.1 * r, 2 * r, 5.0):
        assert DominatingPair(a, b, r).delta(epsilon) == pytest.approx(
            DominatingPair(b, math.inf, r).delta(epsilon), rel=1e-9
        )


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_what_is_rounded_up_is_no_more_than_1(adjacency):
    found = dominating_pair(np.full(2, 1e-6), 100.0, adjacency)
    assert 1 - 1e-3 < found.delta(0.0) <= 1
    assert np.all(np.asarray(found.delta(np.linspace(0, 5, 50))) <= 1)
