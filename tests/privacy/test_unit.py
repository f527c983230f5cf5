"""What one person can change: blocks, partitions, conditions, and the figures that the documentation prints."""

import itertools
import math
import pickle

import numpy as np
import pytest
from scipy.special import digamma, gammaln

from pymc_dirdp import ApproxDP, RenyiDP, TruncatedCDP, calibrate
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.papers.privacy import p1_theorem_1
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import converted_deltas
from pymc_dirdp.privacy.divergences import renyi_add
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.privacy.unit import (
    SpreadRecords,
    dominating_pair,
    gains,
    lie_in_one_cell,
    partitions,
    personal_cells,
)
from tests.oracles import log_logit_density

EACH = Contribution(1, ("each",))


def pair(alpha, r, contribution=1, adjacency="replace-one", min_count=0.0):
    return dominating_pair(np.array(alpha, dtype=float), r, adjacency, min_count, contribution)


# Which cells matter.


def test_blocks_of_equal_cells_are_one_pair_counted():
    table = np.ones((10, 3))
    assert pair(table, 0.1, EACH) == Composition(((DominatingPair(1.0, 1.0, 0.1), 10),))
    assert pair(table, 0.1) == pair(table, 0.1, Contribution(1, ("any",))) == DominatingPair(1.0, 1.0, 0.1)
    assert pair(table, 0.1, Contribution(1, ("own",))) == DominatingPair(1.0, 1.0, 0.1)
    # Ten times 0.1, rounded up.
    assert pair(table, 0.1, 10) == DominatingPair(1.0, 1.0, 1.0000000000000002)


def test_every_block_has_its_own_smallest_cells():
    table = [[1.0, 5.0, 2.0], [3.0, 0.7, 9.0]]
    both = Composition(((DominatingPair(0.7, 3.0, 0.1), 1), (DominatingPair(1.0, 2.0, 0.1), 1)))
    assert pair(table, 0.1, EACH) == both
    assert pair(table, 0.1, 2) == DominatingPair(0.7, 1.0, 0.2)
    own = pair(table, 0.1, Contribution(3, ("own",)))
    assert own == Parallel((DominatingPair(0.7, 3.0, 0.1 * 3), DominatingPair(1.0, 2.0, 0.1 * 3)))
    raised = pair(table, 0.1, EACH, "add-remove", min_count=2.0)
    assert raised == Composition(
        ((DominatingPair(0.7 + 0.2, math.inf, 0.1), 1), (DominatingPair(1.0 + 0.2, math.inf, 0.1), 1))
    )


def test_axes_of_three_kinds():
    """Axes (own, each, any, categories): a person's block is an entry of the first two."""
    rng = np.random.default_rng(4)
    alpha = 1 + rng.random((3, 2, 4, 3))
    curves = pair(alpha, 0.2, Contribution(2, ("own", "each", "any")))
    people = [
        Composition(tuple((DominatingPair(*np.sort(alpha[i, j], axis=None)[:2], 0.4), 1) for j in range(2)))
        for i in range(3)
    ]
    for order in (1.0, 2.5):
        assert curves.renyi(order) == pytest.approx(max(p.renyi(order) for p in people), rel=1e-12)
    assert curves.delta(0.3) == pytest.approx(max(p.delta(0.3) for p in people), rel=1e-12)


def test_own_entries_with_larger_priors_are_left_out():
    alpha = np.array([[1.0, 4.0], [2.0, 5.0], [3.0, 3.0], [3.5, 9.0]])
    assert pair(alpha, 0.1, Contribution(1, ("own",))) == Parallel(
        (DominatingPair(1.0, 4.0, 0.1), DominatingPair(3.0, 3.0, 0.1))
    )


def test_a_mechanism_holds_a_contribution_that_fits_its_table():
    mechanism = DirichletMechanism(np.ones((4, 3)), 0.1, contribution=2)
    assert mechanism.contribution == Contribution(2, ("any",))
    assert mechanism == DirichletMechanism(np.ones((4, 3)), 0.1, contribution=Contribution(2))
    other = DirichletMechanism(np.ones((4, 3)), 0.1, contribution=EACH)
    assert mechanism != other
    assert hash(other) == hash(pickle.loads(pickle.dumps(other)))
    assert pickle.loads(pickle.dumps(other)) == other
    assert other.renyi(2) == 4 * DirichletMechanism(np.ones((4, 3)), 0.1).renyi(2)
    assert Composition(((other, 3),)).delta(0.5) == Composition(((DominatingPair(1.0, 1.0, 0.1), 12),)).delta(0.5)


# Several records in one block.


def test_partitions_are_all_ways_to_write_a_number():
    assert [len(partitions(m, m)) for m in range(1, 13)] == [1, 2, 3, 5, 7, 11, 15, 22, 30, 42, 56, 77]
    for m, parts in itertools.product(range(1, 6), range(1, 7)):
        ways = itertools.product(range(m + 1), repeat=min(parts, m))
        brute = {tuple(sorted((k for k in ks if k), reverse=True)) for ks in ways if sum(ks) == m}
        assert sorted(partitions(m, parts)) == sorted(brute)


def exact_add(order, a, s):
    if order == 1:
        return gammaln(a) - gammaln(a + s) + s * digamma(a + s)
    return (gammaln(a + order * s) - order * gammaln(a + s) + (order - 1) * gammaln(a)) / (order - 1)


def test_gains_are_the_largest_over_all_ways_to_put_records_into_cells():
    rng = np.random.default_rng(0)
    for _ in range(80):
        n, m = int(rng.integers(1, 5)), int(rng.integers(1, 6))
        cells = tuple(np.sort(10 ** rng.uniform(-2, 0.5, n)).tolist())
        r, order = 10 ** rng.uniform(-1.5, 1.5), float(rng.choice([1.0, 1.3, 4.0]))
        brute = max(
            sum(exact_add(order, a, k * r) for a, k in zip(cells, ks, strict=True) if k)
            for ks in itertools.product(range(m + 1), repeat=n)
            if sum(ks) == m
        )
        assert gains(order, cells, n, r, m) == pytest.approx(brute, rel=1e-9)


@pytest.mark.parametrize("cells", [(0.01, 0.4, 0.45), (0.3, 0.3, 0.3), (0.02, 0.02, 5.0), (1e-4, 0.2, 0.6)])
def test_what_many_records_gain_in_uneven_cells_is_bounded_and_of_the_right_size(cells):
    """Oracle: all partitions of 14 records, the larger part in the cell with the smaller parameter."""
    for order, r in itertools.product((1.0, 1.5, 8.0), (0.01, 1.0)):
        every = [
            math.fsum(renyi_add(order, a, k * r) for a, k in zip(cells, spread, strict=False))
            for spread in partitions(14, len(cells))
        ]
        assert max(every) * (1 - 1e-12) <= gains(order, cells, len(cells), r, 14) <= 4 * max(every)


@pytest.mark.parametrize("a", [0.01, 0.1, 0.3, 0.45])
def test_the_bound_for_many_records_is_above_every_way_and_close(a):
    """More than twelve records: against dynamic programming over equal cells."""
    m, n = 20, 6
    for r, order in itertools.product([0.01, 0.3, 5.0], [1.0, 1.5, 8.0]):
        one = np.array([0.0, *(exact_add(order, a, k * r) for k in range(1, m + 1))])
        best = one.copy()
        for _ in range(n - 1):
            best = np.array([max(best[j] + one[k - j] for j in range(k + 1)) for k in range(m + 1)])
        bound = gains(order, (a,) * n, n, r, m)
        assert best[m] <= bound * (1 + 1e-12)
        assert bound < 1.03 * best[m]


@pytest.mark.parametrize(("cells", "records"), [((0.45, 0.48, 0.48), 3), ((0.499, 0.499), 8), ((0.1, 0.2), 3)])
def test_hockey_sticks_on_a_grid_are_the_least_of_the_bounds(cells, records):
    """They lie above the curve of all ways to spread, or of all together, and below each of the two bounds."""
    spread = SpreadRecords(cells, len(cells), 0.05, records, "replace-one")
    epsilons = 0.02 * np.arange(20)
    found = spread._deltas(epsilons)
    assert spread._reversed is spread
    bounds = [weaker._deltas(epsilons) for weaker in spread._bounding_pairs]
    assert all(np.all(found <= bound) for bound in bounds)
    assert (len(bounds), np.any(found < converted_deltas(spread._renyi, epsilons))) in ((0, False), (1, True))
    worst = spread._one_cell_pair if records > 6 else spread
    assert np.all(found * (1 + 1e-9) >= [worst.delta(0.02 * k) for k in range(20)])


def test_the_cell_that_loses_is_the_smallest():
    """Largest over every cell that loses all, and every way to gain elsewhere."""
    cells, m = (0.05, 0.2, 0.9), 3
    for r, order in itertools.product([0.005, 0.01], [1.0, 2.0, 4.0]):
        worst = max(
            DominatingPair(cells[i], math.inf, m * r).renyi(order) + gains(order, cells[:i] + cells[i + 1 :], 2, r, m)
            for i in range(3)
        )
        assert SpreadRecords(cells, 3, r, m, "replace-one").renyi(order) == pytest.approx(worst, rel=1e-12)


# (alpha, r, records, ratio): several cells over one, at order 1; 40-digit arithmetic gives the same digits.
COUNTEREXAMPLES = [(0.4, 42.0, 2, 1.00014), (0.02, 0.132, 2, 1.0466), (0.1, 0.595, 2, 1.0294), (0.3, 4.5, 2, 1.0030)]


@pytest.mark.parametrize(("a", "r", "m", "ratio"), COUNTEREXAMPLES)
def test_below_one_half_two_cells_gain_more_than_one(a, r, m, ratio):
    """Fails for the reading of 0.1.0 with its floor taken away: one pair of `m r`."""
    losing = gammaln(a + m * r) - gammaln(a) - m * r * digamma(a)
    truth = m * exact_add(1, a, r) + losing
    one_cell = DominatingPair(a, a, m * r).renyi(1)
    assert truth / one_cell == pytest.approx(ratio, abs=6e-5 if ratio > 1.001 else 6e-6)
    assert DirichletMechanism([a] * 3, r, contribution=m).renyi(1) == pytest.approx(truth, rel=1e-10)


def gamma_pair_delta(epsilon, a, r, cells):
    """Removing one record from each of `cells` cells: the loss is k - r sum log G; by its density on a grid."""
    k = gammaln(a + r) - gammaln(a)
    x = np.linspace(-60 / a, 8, 400_001)
    density = np.exp(a * x - np.exp(x) - gammaln(a))
    step = x[1] - x[0]
    size = 2 ** math.ceil(math.log2(cells * len(x)))
    total = np.fft.irfft(np.fft.rfft(density * step, size) ** cells, size)[: cells * (len(x) - 1) + 1]
    loss = cells * k - r * (cells * x[0] + step * np.arange(len(total)))
    above = loss > epsilon
    return float(total[above] @ -np.expm1(epsilon - loss[above]))


@pytest.mark.parametrize(
    ("a", "r", "epsilon", "ratio"), [(0.02, 0.06, 0.0, 1.043), (0.02, 0.06, 1.0, 1.018), (0.02, 0.2, 3.0, 1.104)]
)
def test_under_add_remove_two_cells_may_lose_more_than_one(a, r, epsilon, ratio):
    two, one = gamma_pair_delta(epsilon, a, r, 2), DominatingPair(a, math.inf, 2 * r).delta(epsilon)
    assert two / one == pytest.approx(ratio, abs=2e-3)
    claim = DirichletMechanism([a] * 3, r, adjacency="add-remove", contribution=2)
    assert two * (1 - 1e-4) <= claim.delta(epsilon) <= two * 1.005
    # Divergences do not: there one cell is the worst.
    assert claim.renyi(1.05) == DominatingPair(a, math.inf, 2 * r).renyi(1.05)


def test_where_records_lie_in_one_cell_the_tails_of_jumps_say_so():
    """Theorem 9 by quadrature: the tail integral that its proof needs, for every way to spread the records."""
    rng = np.random.default_rng(0)
    seen = {True: 0, False: 0}
    for _ in range(40):
        a, m = rng.uniform(0.02, 0.48), int(rng.integers(2, 6))
        # Around the r where the answer changes.
        low, high = 1e-9, 1e6
        while high / low > 1.0001:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if lie_in_one_cell(a, middle, m) else (low, middle)
        r = low * rng.choice([0.3, 0.97, 1.05])

        def jumps(y, rho, a=a):
            return np.exp(-a * y / rho) / (y * -np.expm1(-y / rho))

        y = np.geomspace(1e-7 * r, 800 * m * r / a, 20_001)
        together = lie_in_one_cell(a, r, m)
        seen[together] += 1
        lowest = []
        for parts in partitions(m, m)[1:]:
            weight = -np.expm1(-y) * (jumps(y, m * r) - sum(jumps(y, k * r) for k in parts))
            pieces = np.diff(y) * (weight[1:] + weight[:-1]) / 2
            tails = np.cumsum(pieces[::-1])[::-1]
            lowest.append(tails.min() / np.abs(pieces).sum())
        # The way that decides is all but one record together.
        assert (min(lowest) > -2e-3) == together or abs(lowest[0]) < 2e-2
    assert min(seen.values()) > 5


def test_one_cell_is_the_worst_where_it_is_claimed():
    """The composed curve of every other way is no larger, but for its grid."""
    for a, m, r in [(0.3, 2, 0.4), (0.2, 3, 0.05), (0.1, 2, 0.018), (0.05, 4, 0.0015)]:
        assert lie_in_one_cell(a, r, m)
        together = DominatingPair(a, a, m * r)
        for losing, gaining in itertools.product(partitions(m, m), repeat=2):
            if max(len(losing), len(gaining)) == 1:
                continue
            parts = [(DominatingPair(a, math.inf, k * r), 1) for k in losing]
            parts += [(DominatingPair(math.inf, a, k * r), 1) for k in gaining]
            spread = Composition(tuple(parts))
            for epsilon in (0.0, together.epsilon(1e-2), together.epsilon(1e-6)):
                assert spread.delta(epsilon) <= together.delta(epsilon) * 1.004


def test_rho_is_the_largest_divergence_over_its_order_below_one_half():
    for cells, r, m, omega in [
        ((0.1,) * 4, 0.02, 3, 2.5),
        ((0.02, 0.3, 0.4), 0.004, 2, 3.0),
        ((0.3,) * 21, 0.002, 20, 8),
    ]:
        for adjacency in ("replace-one", "add-remove"):
            block = SpreadRecords(cells, len(cells), r, m, adjacency)
            orders = np.linspace(1, omega, 60)[1:]
            largest = max(block.renyi(orders) / orders)
            assert largest <= block.rho(omega) * (1 + 1e-12)
            assert block.rho(omega) <= largest * (1.02 if m > 12 else 1 + 1e-9)
            assert block.rho(math.inf) == math.inf


def test_the_published_bound_is_never_below():
    """P1 Theorem 1 with the sensitivities of a unit: another proof of the same thing."""
    rng = np.random.default_rng(8)
    for _ in range(40):
        a, m, blocks = 10 ** rng.uniform(-1.5, 1), int(rng.integers(1, 30)), int(rng.integers(1, 4))
        order = 1 + 10 ** rng.uniform(-1, 1)
        r = a / (order * m) * rng.uniform(0.05, 0.95)
        for adjacency, changed in (("replace-one", 2), ("add-remove", 1)):
            curves = pair(np.full((blocks, 40), a), r, Contribution(m, ("each",)), adjacency)
            bound = p1_theorem_1(
                order=order, r=r, alpha_min=a, delta_2_squared=changed * blocks * m**2, delta_inf=float(m)
            )
            assert curves.renyi(order) <= bound.epsilon


# Calibration.


def composed_by_density(epsilon, a, r, times):
    """The hockey stick of `times` moves in cells with prior `a`: the density of the logit, to its power under FFT."""
    size = 2**17
    v = np.linspace(-150, 150, size + 1)[:-1]
    step = v[1] - v[0]
    # The mass below the loss's own zero wraps around; the sum stays far inside the circle.
    masses = np.exp(log_logit_density(v, a + r, a)) * step
    total = np.fft.irfft(np.fft.rfft(np.roll(masses, size // 2)) ** times, size)
    loss = r * np.fft.fftfreq(size, 1 / size) * step
    above = loss > epsilon
    return float(total[above] @ -np.expm1(epsilon - loss[above]))


# (alpha, rows, r of a person with one answer in each row, r of that many records anywhere), at (1, 1e-6).
@pytest.mark.parametrize(
    ("a", "rows", "r_unit", "r_contribution"),
    [
        (1.0, 2, 0.0721, 0.0439),
        (1.0, 10, 0.0388, 0.0088),
        (1.0, 50, 0.0183, 0.0018),
        (5.0, 2, 0.2374, 0.1586),
        (5.0, 50, 0.0503, 0.0063),
    ],
)
def test_the_table_of_surveys_in_the_documentation(a, rows, r_unit, r_contribution):
    target, prior = ApproxDP(epsilon=1, delta=1e-6), np.full((rows, 3), a)
    each, anywhere, one = (
        calibrate(target, prior=prior, mechanism=Dirichlet(strategy="temper"), contribution=contribution).r
        for contribution in (EACH, rows, 1)
    )
    assert (each, anywhere) == pytest.approx((r_unit, r_contribution), abs=6e-5)
    # A second oracle for the curve on which they end.
    assert 0.99e-6 < composed_by_density(1.0, a, each, rows) < 1e-6 * (1 + 1e-6)
    assert composed_by_density(1.0, a, anywhere * rows, 1) == pytest.approx(1e-6, rel=1e-4)
    # 0.1.0 read one record of a person: its delta is far above the guarantee.
    assert composed_by_density(1.0, a, one, rows) > 1e-5


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    ("strategy", "contribution"),
    [
        *(
            ("temper", contribution)
            for contribution in (EACH, Contribution(2, ("own",)), Contribution(3, ("each",)), 4)
        ),
        *(("inflate", EACH), ("inflate", 4), ("optimal", Contribution(2, ("own",)))),
    ],
)
@pytest.mark.parametrize(
    "target", [ApproxDP(epsilon=1, delta=1e-6), RenyiDP(order=3, epsilon=0.2), TruncatedCDP(rho=0.05, omega=5)], ids=str
)
def test_calibration_of_a_person_is_safe_and_tight(target, contribution, strategy, adjacency):
    prior = np.array([[0.3, 1.0, 0.6], [0.8, 0.4, 2.0]])
    setting = {"adjacency": adjacency, "contribution": contribution}
    mechanism = calibrate(target, prior=prior, n_records=200, mechanism=Dirichlet(strategy=strategy), **setting)
    assert mechanism.satisfies(target)
    assert not DirichletMechanism(mechanism.alpha, mechanism.r * (1 + 1e-8), **setting).satisfies(target)
    assert mechanism.contribution == Contribution.of(contribution).fitted((2, 3))


def test_adding_to_the_prior_keeps_the_smallest_cells():
    rng = np.random.default_rng(1)
    alpha = 10 ** rng.uniform(-2, 1, (4, 5))
    for contribution in (Contribution(3, ("each",)), Contribution(2, ("own",)), Contribution(4)):
        cells = personal_cells(alpha, contribution)
        for s in (0.0, 0.37, 5.0):
            direct = dominating_pair(alpha + s, 0.02, "replace-one", 2.0, contribution)
            shifted = cells.curves(0.02, "replace-one", raise_by=s, min_count=2.0)
            assert shifted.renyi([1.0, 2.0]) == pytest.approx(direct.renyi([1.0, 2.0]), rel=1e-12)


def test_the_quadrature_of_this_file():
    """The oracle against a closed form."""
    assert gamma_pair_delta(0.5, 0.3, 0.2, 1) == pytest.approx(DominatingPair(0.3, math.inf, 0.2).delta(0.5), rel=1e-3)
