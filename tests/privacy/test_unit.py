"""What one person can change: blocks, partitions and conditions; and who the neighbours are."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import digamma, gammaln

from pymc_dirdp import ApproxDP, RenyiDP, TruncatedCDP, calibrate
from pymc_dirdp.checks import MAX_RECORDS
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import converted_deltas
from pymc_dirdp.privacy.divergences import renyi_add
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.people import ADJACENCIES, Contribution, adjacency_by_name
from pymc_dirdp.privacy.unit import SpreadRecords, dominating_pair, gains, partitions, personal_cells
from tests.oracles import neighbours, tables_of

EACH = Contribution(1, ("each",))


def pair(alpha, r, contribution=1, adjacency="replace-one", min_count=0.0):
    return dominating_pair(np.array(alpha, dtype=float), r, adjacency, min_count, contribution)


def test_every_block_has_its_own_smallest_cells_and_equal_ones_are_counted():
    table = np.ones((10, 3))
    assert pair(table, 0.1, EACH) == Composition(((DominatingPair(1.0, 1.0, 0.1), 10),))
    assert pair(table, 0.1) == pair(table, 0.1, Contribution(1, ("any",))) == DominatingPair(1.0, 1.0, 0.1)
    assert pair(table, 0.1, Contribution(1, ("own",))) == DominatingPair(1.0, 1.0, 0.1)
    # Ten times 0.1, rounded up.
    assert pair(table, 0.1, 10) == DominatingPair(1.0, 1.0, 1.0000000000000002)
    table = [[1.0, 5.0, 2.0], [3.0, 0.7, 9.0]]
    both = Composition(((DominatingPair(0.7, 3.0, 0.1), 1), (DominatingPair(1.0, 2.0, 0.1), 1)))
    assert pair(table, 0.1, EACH) == both
    assert pair(table, 0.1, 2) == DominatingPair(0.7, 1.0, 0.2)
    # Own entries with larger priors are left out.
    own = pair([*table, [3.5, 9.0, 9.0]], 0.1, Contribution(3, ("own",)))
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


def exact_add(order, a, s):
    if order == 1:
        return gammaln(a) - gammaln(a + s) + s * digamma(a + s)
    return (gammaln(a + order * s) - order * gammaln(a + s) + (order - 1) * gammaln(a)) / (order - 1)


def test_gains_are_the_largest_over_all_ways_to_put_records_into_cells():
    rng = np.random.default_rng(0)
    for _ in range(40):
        n, m = int(rng.integers(1, 5)), int(rng.integers(1, 6))
        cells = tuple(np.sort(10 ** rng.uniform(-2, 0.5, n)).tolist())
        r, order = 10 ** rng.uniform(-1.5, 1.5), float(rng.choice([1.0, 1.3, 4.0]))
        brute = max(
            sum(exact_add(order, a, k * r) for a, k in zip(cells, ks, strict=True) if k)
            for ks in itertools.product(range(m + 1), repeat=n)
            if sum(ks) == m
        )
        assert gains(order, cells, n, r, m) == pytest.approx(brute, rel=1e-9)


@pytest.mark.parametrize("a", [0.01, 0.45])
def test_the_bound_for_many_records_is_above_every_way_and_close(a):
    """More than twelve records: against dynamic programming over equal cells."""
    m, n = 20, 6
    for r, order in itertools.product([0.01, 5.0], [1.0, 8.0]):
        one = np.array([0.0, *(exact_add(order, a, k * r) for k in range(1, m + 1))])
        best = one.copy()
        for _ in range(n - 1):
            best = np.array([max(best[j] + one[k - j] for j in range(k + 1)) for k in range(m + 1)])
        bound = gains(order, (a,) * n, n, r, m)
        assert best[m] * (1 - 1e-12) <= bound < 1.03 * best[m]
        # In uneven cells it is a bound, too, of the right size: all partitions, the larger part in the smaller cell.
        cells = (a, 0.46, 0.47)
        every = [
            math.fsum(renyi_add(order, cell, k * r) for cell, k in zip(cells, spread, strict=False))
            for spread in partitions(14, len(cells))
        ]
        assert max(every) * (1 - 1e-12) <= gains(order, cells, len(cells), r, 14) <= 4 * max(every)


@pytest.mark.parametrize(("cells", "records"), [((0.45, 0.48, 0.48), 3), ((0.499, 0.499), 8), ((0.1, 0.2), 3)])
def test_hockey_sticks_on_a_grid_are_the_least_of_the_bounds(cells, records):
    """They lie above the curve of all ways to spread, or of all together, and below each of the two bounds."""
    spread = SpreadRecords(cells, len(cells), 0.05, records, "replace-one")
    epsilons = 0.02 * np.arange(20)
    found = spread._deltas(epsilons)
    assert spread._reversed is spread
    for weaker in spread._bounding_pairs:
        # Each parameter is as far from 1/2 as all records together.
        low, high = (0.5 - records * (0.5 - cell) for cell in cells[:2])
        assert (weaker.loses, weaker.gains) == (pytest.approx(low), pytest.approx(high))
    bounds = [weaker._deltas(epsilons) for weaker in spread._bounding_pairs]
    assert all(np.all(found <= bound) for bound in bounds)
    assert (len(bounds), np.any(found < converted_deltas(spread._renyi, epsilons))) in ((0, False), (1, True))
    worst = spread._one_cell_pair if records > 6 else spread
    assert np.all(found * (1 + 1e-9) >= [worst.delta(0.02 * k) for k in range(20)])


# (alpha, r, records, ratio): several cells over one, at order 1; 40-digit arithmetic gives the same digits.
@pytest.mark.parametrize(
    ("a", "r", "m", "ratio"), [(0.4, 42.0, 2, 1.00014), (0.02, 0.132, 2, 1.0466), (0.1, 0.595, 2, 1.0294)]
)
def test_below_one_half_two_cells_gain_more_than_one(a, r, m, ratio):
    """Fails for the reading of 0.1.0 with its floor taken away: one pair of `m r`."""
    losing = gammaln(a + m * r) - gammaln(a) - m * r * digamma(a)
    truth = m * exact_add(1, a, r) + losing
    one_cell = DominatingPair(a, a, m * r).renyi(1)
    assert truth / one_cell == pytest.approx(ratio, abs=6e-5 if ratio > 1.001 else 6e-6)
    assert DirichletMechanism([a] * 3, r, contribution=m).renyi(1) == pytest.approx(truth, rel=1e-10)
    # In a block of two cells, records that leave both of them have no cell to go to.
    alone = SpreadRecords((a, a), 2, r, m, "replace-one")
    for epsilon in (0.0, 1.0):
        assert alone.delta(epsilon) == pytest.approx(DominatingPair(a, a, m * r).delta(epsilon), rel=1e-9)


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


@pytest.mark.parametrize(("a", "r", "epsilon", "ratio"), [(0.02, 0.06, 0.0, 1.043), (0.02, 0.2, 3.0, 1.104)])
def test_under_add_remove_two_cells_may_lose_more_than_one(a, r, epsilon, ratio):
    two, one = gamma_pair_delta(epsilon, a, r, 2), DominatingPair(a, math.inf, 2 * r).delta(epsilon)
    assert two / one == pytest.approx(ratio, abs=2e-3)
    claim = DirichletMechanism([a] * 3, r, adjacency="add-remove", contribution=2)
    assert two * (1 - 1e-4) <= claim.delta(epsilon) <= two * 1.005
    # Divergences do not: there one cell is the worst.
    assert claim.renyi(1.05) == DominatingPair(a, math.inf, 2 * r).renyi(1.05)


def test_rho_is_the_largest_divergence_over_its_order_below_one_half():
    for cells, r, m, omega in (((0.1,) * 4, 0.02, 3, 2.5), ((0.02, 0.3), 0.004, 2, 3.0), ((0.3,) * 21, 0.002, 20, 8)):
        for adjacency in ("replace-one", "add-remove"):
            block = SpreadRecords(cells, len(cells), r, m, adjacency)
            orders = np.linspace(1, omega, 60)[1:]
            largest = max(block.renyi(orders) / orders)
            assert largest <= block.rho(omega) * (1 + 1e-12)
            assert block.rho(omega) <= largest * (1.02 if m > 12 else 1 + 1e-9)
            assert block.rho(math.inf) == math.inf


OWN = Contribution(2, ("own",))


@pytest.mark.parametrize(
    ("target", "contribution", "strategy", "adjacency"),
    [
        (ApproxDP(epsilon=1, delta=1e-6), OWN, "optimal", "replace-one"),
        (RenyiDP(order=3, epsilon=0.2), OWN, "temper", "add-remove"),
        (RenyiDP(order=3, epsilon=0.2), EACH, "inflate", "replace-one"),
        (TruncatedCDP(rho=0.05, omega=5), Contribution(3, ("each",)), "temper", "replace-one"),
        (TruncatedCDP(rho=0.05, omega=5), 4, "inflate", "add-remove"),
    ],
    ids=str,
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


@pytest.mark.parametrize("name", ADJACENCIES)
def test_sensitivities_are_those_of_all_neighbours(name):
    relation = adjacency_by_name(name)
    tables = itertools.chain.from_iterable(tables_of((3,), n) for n in range(4))
    changes = np.array([x - y for x in tables for y in neighbours(x, name)])
    assert relation.delta_2_squared == (changes**2).sum(axis=1).max()
    assert relation.delta_1 == np.abs(changes).sum(axis=1).max()
    assert relation.delta_inf == np.abs(changes).max()
    assert relation.records_are_public == bool(np.all(changes.sum(axis=1) == 0))
    assert ("public" in relation.statement) == relation.records_are_public


def test_every_count_that_is_allowed_is_a_double_of_its_own():
    assert Contribution(MAX_RECORDS).records == MAX_RECORDS == 2**53
    assert float(MAX_RECORDS - 1) != float(MAX_RECORDS) == float(MAX_RECORDS + 1)
    for records in (0, MAX_RECORDS + 1, 10**20, 10**400):
        with pytest.raises(ArgumentError, match="records"):
            Contribution(records)


def test_blocks_and_records_are_counted_along_the_axes_of_each_entry():
    survey = Contribution(2, ("each", "own", "any"))
    assert survey.blocks((5, 7, 11, 3)) == 5
    assert survey.total((5, 7, 11, 3)) == 10
    with pytest.raises(ArgumentError, match="each of 2 row axes"):
        survey.fitted((5, 7, 3))
