"""The curves of floored draws: divergences against 60 digits and every count, and what follows from them."""

import itertools
import math
import tracemalloc

import mpmath as mp
import numpy as np
import pytest
from scipy.special import gammaincc

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.gamma import log_mass, variance_log
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import ORDERS, NoLoss, best_order, log_delta_at
from pymc_dirdp.privacy.dominating_pairs import AddRemovePair, ReplaceOnePair
from pymc_dirdp.privacy.floored import (
    FlooredCells,
    floored_curves,
    largest_divergences,
    largest_slope,
    largest_sum_of_variances,
    largest_variance,
    renyi_of_record,
)
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, ZeroCDP
from pymc_dirdp.privacy.people import Contribution

# Floor, epsilon, and the largest r with a delta of 1e-6 for all real shapes from 0.02 on; within 3e-4 relative. They
# come from a search over counts, which is tighter than the divergences by 4 to 6 % of r.
REFERENCES = [
    (0.1, 1.0, 0.20082),
    (1.0, 1.0, 0.35494),
    (4.0, 1.0, 0.55009),
    (8.0, 1.0, 0.70286),
    (16.0, 1.0, 0.91297),
    (32.0, 1.0, 1.20394),
    (0.1, 3.0, 0.56917),
    (1.0, 3.0, 0.98501),
    (4.0, 3.0, 1.52064),
    (8.0, 3.0, 1.93965),
    (16.0, 3.0, 2.51525),
    (32.0, 3.0, 3.31271),
    (0.1, 0.3, 0.06397),
    (1.0, 0.3, 0.11423),
    (4.0, 0.3, 0.17755),
    (8.0, 0.3, 0.22716),
    (16.0, 0.3, 0.29539),
]


def hockey_stick(epsilon, gaining, losing, r, floor, ceiling=math.inf):
    """Of a record that moves, as an integral over the logarithm of the intensity of the cell that loses it."""

    def log_tail(g, a):
        if math.isinf(ceiling):
            return np.log(gammaincc(a, np.maximum(g, floor)) / gammaincc(a, floor))
        inside = np.clip(g, floor, ceiling)
        above, beyond = gammaincc(a, floor), gammaincc(a, ceiling)
        return np.log((gammaincc(a, inside) - beyond) / (above - beyond))

    z = {a: float(log_mass(a, floor, ceiling)) for a in (gaining, gaining + r, losing, losing + r)}
    s = (epsilon - (z[gaining] - z[gaining + r] + z[losing + r] - z[losing])) / r
    x, w = np.polynomial.legendre.leggauss(40)
    top = min(math.log(ceiling), math.log(max(losing, floor) + 60 + 12 * math.sqrt(max(losing, floor))))
    # The integrand has a kink where the other intensity is at an end.
    kinks = [v for v in (math.log(floor) - s, math.log(ceiling) - s) if math.log(floor) < v < top]
    edges = np.sort(np.concatenate([np.linspace(math.log(floor), top, 12), kinks]))
    y = ((edges[1:] + edges[:-1])[:, None] + np.diff(edges)[:, None] * x) / 2
    weight = np.diff(edges)[:, None] / 2 * w
    with np.errstate(divide="ignore"):
        first = np.exp(losing * y - np.exp(y) - z[losing] + log_tail(np.exp(y + s), gaining + r))
        other = (losing + r) * y - np.exp(y) - z[losing + r] + log_tail(np.exp(y + s), gaining)
    return float(((first - np.exp(epsilon + other)) * weight).sum())


@pytest.mark.parametrize(("floor", "epsilon", "r"), REFERENCES)
def test_delta_at_the_reference_concentrations(floor, epsilon, r):
    """It goes like a power 20 of r, and what the divergences give up of it is less than a factor of 5."""
    bound = FlooredCells((0.02, 0.02), r, floor).delta(epsilon)
    assert 1e-6 < bound < 5e-6


def test_the_oracle_of_deltas_has_the_reference_values():
    """Of the worst real shapes that a search found; elsewhere there is less."""
    shapes = np.linspace(0.02, 30, 18).tolist()
    worst = max(hockey_stick(1.0, a, b, 0.70286, 8.0) for a, b in itertools.product(shapes, shapes))
    assert 0.9e-6 < worst < 1.01e-6


def worst_pair(cells, r, floor, epsilon, counts):
    pairs = [(a, b) for a in set(cells) for b in set(cells) if a != b or cells.count(a) > 1]
    return max(hockey_stick(epsilon, a + r * n, b + r * m, r, floor) for a, b in pairs for n in counts for m in counts)


@pytest.mark.parametrize("others", [0, 3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (40, 5000))])
@pytest.mark.parametrize("cells", [(0.5, 0.5), (0.2, 30.0)])
def test_no_division_of_a_public_number_of_records_exceeds_the_curves(cells, others):
    r, floor = 0.6, 4.0
    curves, any_number = FlooredCells(cells, r, floor, others=others), FlooredCells(cells, r, floor)
    few = np.arange(0.0, 100.0, 3.0)
    counts = np.arange(others + 1.0) if others < 100 else np.append(few, others - few)
    divisions = [(a + r * n, b + r * (others - n)) for a, b in itertools.permutations(cells) for n in counts.tolist()]
    for epsilon in (0.2, 1.5):
        worst = max(hockey_stick(epsilon, x, y, r, floor) for x, y in divisions)
        assert worst <= curves.delta(epsilon) <= any_number.delta(epsilon)
    for order in (1.0, 2.0, 9.0, 60.0):
        worst = max(
            renyi_of_record(order, x, r, floor, joins=True) + renyi_of_record(order, y, r, floor, joins=False)
            for x, y in divisions
        )
        assert worst <= curves.renyi(order) <= any_number.renyi(order)
        assert worst <= curves.rho(math.inf) * order
    # For many records the bound is close at small orders, and far below that for any number of records.
    if others == 5000:
        assert curves.renyi(1.0) <= 1.02 * max(
            renyi_of_record(1.0, x, r, floor, joins=True) + renyi_of_record(1.0, y, r, floor, joins=False)
            for x, y in divisions
        )
        assert curves.rho(math.inf) < 0.6 * any_number.rho(math.inf)


@pytest.mark.parametrize(
    "cells",
    [
        (0.5, 0.5),
        pytest.param((0.2, 30.0), marks=pytest.mark.thorough),
        pytest.param((2.0, 2.0, 9.0), marks=pytest.mark.thorough),
        pytest.param((0.3, 1.1, 4.0), marks=pytest.mark.thorough),
    ],
)
def test_no_pair_of_counts_exceeds_the_curves(cells):
    r, floor = 0.6, 4.0
    curves = FlooredCells(cells, r, floor)
    for epsilon in (0.2, 1.5):
        worst = worst_pair(cells, r, floor, epsilon, range(0, 40, 2))
        # A rough measure of what the divergences give up.
        assert worst <= curves.delta(epsilon) <= 10 * worst
    counts = r * np.arange(41.0)
    for order in (1.0, 5.0):
        divergences = {
            (a, way): max(renyi_of_record(order, a + n, r, floor, joins=way) for n in counts.tolist())
            for a in set(cells)
            for way in (True, False)
        }
        worst = max(divergences[a, True] + divergences[b, False] for a, b in itertools.permutations(cells, 2))
        assert worst <= curves.renyi(order) <= worst * (1 + 1e-8)
        assert curves.renyi(order) <= order * curves.rho(math.inf)


def test_either_direction_of_add_remove_counts():
    """One record at known counts; where one direction was left out, a curve would be below it."""
    for cell, r, floor, order, joins in ((0.02, 0.7, 8.0, 40.0, True), (4.0, 1.0, 1.0, 5.0, False)):
        curves = FlooredCells((cell, cell), r, floor, adjacency="add-remove")
        each = [max(renyi_of_record(order, cell + r * n, r, floor, joins=way) for n in range(40)) for way in (0, 1)]
        assert each[joins] > 1.05 * each[not joins]
        assert max(each) <= curves.renyi(order) <= max(each) * (1 + 1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cells", "r", "floor"),
    [((0.2, 30.0), 0.3, 0.3), ((0.02, 1.0, 7.0), 0.6, 8.0), ((0.5, 0.5, 12.0), 1.7, 4.0), ((0.1, 40.0), 0.15, 2.0)],
)
def test_add_remove_of_uneven_cells_against_all_counts_up_to_300(cells, r, floor):
    """Every cell, every count, both directions; the worst cell is not always the one with the least prior."""
    curves = FlooredCells(cells, r, floor, adjacency="add-remove")
    shapes = np.concatenate([a + r * np.arange(301.0) for a in sorted(set(cells))])
    for order in (1.0, 4.0, 30.0):
        worst = max(renyi_of_record(order, a, r, floor, joins=way) for a in shapes.tolist() for way in (True, False))
        assert worst <= curves.renyi(order) <= worst * (1 + 1e-8)


def test_zero_concentrated_privacy_holds_at_every_order():
    curves = FlooredCells((0.5, 0.5), 0.65, 8.0)
    assert curves.rho(math.inf) == pytest.approx(0.025731, abs=1e-6)
    assert curves.satisfies(ZeroCDP(rho=0.02574))
    assert not curves.satisfies(ZeroCDP(rho=0.0257))
    assert curves.rho(20.0) < curves.rho(math.inf)
    assert max(curves.renyi(order) / order for order in (1.0, 5.0, 20.0)) <= curves.rho(20.0)


def test_the_largest_slope_may_lie_between_the_ends():
    curves = FlooredCells((25.0, 25.0), 1.0, 8.0)
    assert curves.rho(40.0) >= curves.renyi(16.0) / 16 > 1.04 * max(curves.renyi(1.0), curves.renyi(40.0) / 40)


@pytest.mark.parametrize(
    ("r", "floor", "adjacency", "others", "ceiling"),
    [
        (0.7, 8.0, "replace-one", None, math.inf),
        (0.06, 0.1, "replace-one", None, 90.0),
        (2.5, 16.0, "add-remove", None, math.inf),
        (0.7, 8.0, "replace-one", 99, math.inf),
    ],
)
def test_deltas_and_epsilons_are_those_of_the_best_order(r, floor, adjacency, others, ceiling):
    """The few orders that are looked at cost 0.5 % of epsilon at most, and no delta is below that of any order."""
    curves = FlooredCells((0.02, 0.02), r, floor, ceiling, adjacency=adjacency, others=others)
    for delta in (1e-2, 1e-5, 1e-9, 1e-20):
        epsilon = curves.epsilon(delta)
        assert curves.delta(epsilon) <= delta < curves.delta(epsilon * (1 - 1e-6)) or epsilon == 0

        def log_delta(order, epsilon=epsilon):
            return log_delta_at(order, curves.renyi(order), epsilon)

        def tighter(order, epsilon=epsilon):
            return log_delta_at(order, curves.renyi(order), epsilon * 0.995)

        assert log_delta(best_order(log_delta)) <= math.log(curves.delta(epsilon)) + 1e-12
        assert math.isfinite(ceiling) or tighter(best_order(tighter)) > math.log(delta)
    assert curves.epsilon(0.99) == 0


def test_a_ceiling_has_valid_deltas():
    r, floor, ceiling = 0.5, 1.0, 12.0
    curves = FlooredCells((0.5, 0.5), r, floor, ceiling)
    for epsilon in (0.3, 1.0):
        counts = range(0, 60, 8)
        worst = max(hockey_stick(epsilon, 0.5 + r * n, 0.5 + r * m, r, floor, ceiling) for n in counts for m in counts)
        assert worst <= curves.delta(epsilon) < 1


def test_a_floor_far_below_leaves_the_draw_without_one():
    """With large prior parameters the floor does nothing, and the worst counts are 0."""
    floored, free = FlooredCells((40.0, 55.0), 0.6, 1e-3), ReplaceOnePair(40.0, 55.0, 0.6)
    for order in (1.0, 3.0, 20.0):
        assert floored.renyi(order) == pytest.approx(free.renyi(order), rel=1e-8)
    for epsilon in (0.1, 0.5):
        assert free.delta(epsilon) <= floored.delta(epsilon) <= 5 * free.delta(epsilon)
    floored, free = FlooredCells((40.0, 55.0), 0.6, 1e-3, adjacency="add-remove"), AddRemovePair(40.0, 0.6)
    assert floored.renyi(3.0) == pytest.approx(free.renyi(3.0), rel=1e-8)


def test_a_higher_floor_loses_less():
    deltas = [FlooredCells((0.02, 0.02), 0.6, floor).delta(1.0) for floor in (2.0, 4.0, 8.0, 16.0)]
    assert all(high > 1.5 * low for high, low in itertools.pairwise(deltas))


def test_many_prior_parameters_are_bounded_by_the_two_smallest():
    rng = np.random.default_rng(7)
    cells = tuple(np.sort(rng.uniform(0.3, 3.0, 40)).tolist())
    many = FlooredCells(cells, 1.0, 4.0)
    pairs = [FlooredCells(pair, 1.0, 4.0) for pair in itertools.combinations(cells[::13], 2)]
    for epsilon in (0.5, 2.0):
        deltas = [pair.delta(epsilon) for pair in pairs]
        assert max(deltas) <= 1.02 * many.delta(epsilon)
        assert many.delta(epsilon) < 1.2 * max(deltas)
    assert all(pair.renyi(4.0) <= many.renyi(4.0) for pair in pairs)


def pure_loss(alpha_gaining, alpha_losing, r, floor, ceiling, counts):
    """The largest loss over pairs of counts and corners of the outputs, from the densities themselves."""
    worst = 0.0
    for n_gaining, n_losing in itertools.product(counts, counts):
        a, b = alpha_gaining + r * n_gaining, alpha_losing + r * n_losing
        shift = log_mass(a, floor, ceiling) - log_mass(a + r, floor, ceiling)
        shift += log_mass(b + r, floor, ceiling) - log_mass(b, floor, ceiling)
        corners = [r * (math.log(x) - math.log(y)) + shift for x in (floor, ceiling) for y in (floor, ceiling)]
        worst = max(worst, *map(abs, map(float, corners)))
    return worst


@pytest.mark.parametrize("alphas", [(0.5, 0.5), (0.2, 5.0), (9.0, 3.0)])
def test_the_pure_epsilon_with_a_ceiling_against_brute_force(alphas):
    r, floor, ceiling = 0.4, 2.0, 30.0
    curves = FlooredCells(tuple(sorted(alphas)), r, floor, ceiling)
    counts = [0, 1, 2, 5, 20, 100_000]
    truth = max(pure_loss(a, b, r, floor, ceiling, counts) for a, b in itertools.permutations(alphas, 2))
    assert truth <= curves.pure_epsilon <= truth * (1 + 1e-3)
    assert curves.pure_epsilon <= 2 * r * math.log(ceiling / floor)
    assert curves.satisfies(PureDP(epsilon=curves.pure_epsilon))
    assert curves.delta(curves.pure_epsilon) == 0
    assert curves.renyi(1e9) <= curves.pure_epsilon


def test_the_pure_epsilon_under_add_remove():
    r, floor, ceiling = 0.4, 2.0, 30.0
    curves = FlooredCells((0.5, 0.5), r, floor, ceiling, adjacency="add-remove")
    counts = 0.5 + r * np.array([*range(12), 100, 1000, 1e5])
    change = log_mass(counts + r, floor, ceiling) - log_mass(counts, floor, ceiling)
    truth = max(float((r * math.log(ceiling) - change).max()), float((change - r * math.log(floor)).max()))
    assert truth <= curves.pure_epsilon <= truth * (1 + 1e-3)


def test_without_a_ceiling_there_is_no_pure_epsilon():
    assert FlooredCells((0.5, 0.5), 0.1, 8.0).pure_epsilon == math.inf


def test_several_records_lose_at_most_what_the_bound_says():
    """All ways to move two records, by the sums of divergences, at every order."""
    r, floor = 0.5, 4.0
    curves = FlooredCells((0.5, 0.5), r, floor, records=2)
    shapes = (0.5 + r * np.arange(80.0)).tolist()
    for order, looser in ((1.0, 1.3), (3.0, 1.3), (20.0, 2.0)):
        gain, loss = (
            {k: max(renyi_of_record(order, a, k * r, floor, joins=way) for a in shapes) for k in (1, 2)}
            for way in (True, False)
        )
        together = max(2 * gain[1], gain[2]) + max(2 * loss[1], loss[2])
        assert together <= curves.renyi(order) <= looser * together
    assert curves.rho(math.inf) == pytest.approx(4 * FlooredCells((0.5, 0.5), r, floor).rho(math.inf), rel=1e-9)
    assert curves.delta(2.0) >= FlooredCells((0.5, 0.5), r, floor).delta(2.0)
    assert curves.satisfies(ApproxDP(epsilon=curves.epsilon(1e-6), delta=1e-6))


def test_compositions_bound_the_divergences_and_the_deltas():
    one = FlooredCells((0.5, 0.5), 0.2, 8.0)
    four = Composition(((one, 4),))
    assert four.renyi(3.0) == pytest.approx(4 * one.renyi(3.0))
    assert four.rho(math.inf) == pytest.approx(4 * one.rho(math.inf))
    deltas, back = one.hockey_sticks(0.05, 12)
    assert back is deltas
    assert all(one.delta(0.05 * i) <= deltas[i] for i in range(0, 12, 3))
    assert one.delta(0.8) < four.delta(0.8) < 1


def test_tables_their_blocks_and_people():
    alpha = np.array([[0.5, 0.5, 2.0], [0.5, 1.0, 1.0]])
    anywhere = floored_curves(alpha, 0.3, 4.0)
    assert anywhere == FlooredCells((0.5, 0.5, 1.0, 1.0, 2.0), 0.3, 4.0)
    each = floored_curves(alpha, 0.3, 4.0, contribution=Contribution(1, ("each",)))
    assert isinstance(each, Composition)
    rows = [FlooredCells((0.5, 0.5, 2.0), 0.3, 4.0), FlooredCells((0.5, 1.0, 1.0), 0.3, 4.0)]
    assert {part for part, _ in each.parts} == set(rows)
    own = floored_curves(alpha, 0.3, 4.0, contribution=Contribution(1, ("own",)))
    assert isinstance(own, Parallel)
    assert set(own.members) == set(rows)
    two = floored_curves(np.ones((2, 4)), 0.3, 4.0, contribution=Contribution(1, ("each",)))
    assert two.renyi(2.0) == pytest.approx(2 * FlooredCells((1.0, 1.0), 0.3, 4.0).renyi(2.0))
    assert floored_curves(np.ones((2, 4)), 0.3, 4.0, 50.0).pure_epsilon < math.inf


def test_a_block_of_one_cell_loses_nothing_where_records_only_move():
    assert floored_curves(np.ones((1, 1)), 0.3, 4.0) == NoLoss()
    assert floored_curves(np.ones((3, 1)), 0.3, 4.0, contribution=Contribution(1, ("each",))).renyi(2.0) == 0
    # The intensities of several rows tell where a record lies, and that of one cell tells that there is a record.
    assert floored_curves(np.ones((3, 1)), 0.3, 4.0).renyi(2.0) > 0
    assert floored_curves(np.ones((1, 1)), 0.3, 4.0, adjacency="add-remove").renyi(2.0) > 0


@pytest.mark.parametrize(
    ("alpha", "r", "floor"), [(1e-3, 1e-4, 1e-3), (1e-3, 10.0, 1e4), (1e7, 10.0, 8.0), (1.0, 1.0, 1e-3)]
)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.thorough
def test_curves_at_the_ends_of_what_is_allowed(alpha, r, floor, adjacency):
    curves = FlooredCells((alpha, alpha), r, floor, adjacency=adjacency)
    for order in (1.0, 100.0, 1e6):
        assert 0 < curves.renyi(order) <= order * curves.rho(math.inf)
    for epsilon in (0.0, 5.0, 1e3):
        assert 0 <= curves.delta(epsilon) <= 1
    assert curves.delta(0.0) >= curves.delta(5.0)


@pytest.mark.parametrize(
    ("alpha", "r", "floor"), [(1e-7, 0.1, 8.0), (1.0, 101.0, 8.0), (1.0, 0.1, 1e-7), (1.0, 0.1, 1e9)]
)
def test_numbers_beyond_the_bounds_are_refused(alpha, r, floor):
    with pytest.raises(ArgumentError, match="between"):
        floored_curves(np.full((1, 3), alpha), r, floor)


def worst_within(row, n_records, r, floor, epsilon, order):
    """The largest delta and divergence of all moves of one record within a row of two cells."""
    moves = [(a + r * n, b + r * (n_records - 1 - n)) for a, b in (row, row[::-1]) for n in range(n_records)]
    delta = max((hockey_stick(epsilon, x, y, r, floor) for x, y in moves), default=0.0)
    found = (
        renyi_of_record(order, x, r, floor, joins=True) + renyi_of_record(order, y, r, floor, joins=False)
        for x, y in moves
    )
    return delta, max(found, default=0.0)


@pytest.mark.parametrize(
    ("alphas", "numbers"),
    [
        ([[0.02, 0.02], [0.02, 0.02], [0.02, 0.02]], [3, 60, 25]),
        ([[0.5, 4.0], [0.02, 0.02]], [40, 0]),
        ([[30.0, 0.1], [2.0, 2.0], [0.3, 9.0]], [1, 90, 33]),
    ],
)
def test_rows_of_public_numbers_lose_what_the_worst_row_does(alphas, numbers):
    alpha, r, floor, epsilon, order = np.array(alphas), 0.7, 4.0, 0.8, 3.0
    deltas, divergences = zip(
        *(worst_within(row, n, r, floor, epsilon, order) for row, n in zip(alphas, numbers, strict=True)), strict=True
    )
    distribution = (alpha, r, floor, math.inf, "replace-one")
    # A person has one record somewhere, or publicly in one of the rows, or one in every row.
    for contribution in (1, Contribution(1, ("own",))):
        curves = floored_curves(*distribution, contribution, numbers)
        assert max(deltas) <= curves.delta(epsilon) <= floored_curves(*distribution, contribution).delta(epsilon)
        assert max(divergences) <= curves.renyi(order) <= floored_curves(*distribution, contribution).renyi(order)
    each = floored_curves(*distribution, Contribution(1, ("each",)), numbers)
    assert (
        sum(divergences) <= each.renyi(order) <= floored_curves(*distribution, Contribution(1, ("each",))).renyi(order)
    )
    assert each.delta(epsilon) >= max(deltas)


def test_the_worst_row_need_not_be_the_smallest_or_the_largest():
    """Few records cannot make a large loss, and many cannot either, because some cell then holds many of them."""
    rows, distribution = np.full((3, 2), 0.02), (0.7, 4.0)
    together = floored_curves(rows, *distribution, n_records=[2, 60, 5000]).delta(0.8)
    alone = [floored_curves(rows[:1], *distribution, n_records=n).delta(0.8) for n in (2, 60, 5000)]
    assert together == max(alone) == alone[1]
    assert together < floored_curves(rows, *distribution).delta(0.8) / 2


def test_the_numbers_of_rows_go_with_their_rows():
    """Rows lie along two axes, of which a person has one entry along the first and a record in each of the second."""
    alpha = np.array([[[0.02, 0.02], [5.0, 5.0]], [[40.0, 40.0], [0.02, 3.0]]])
    numbers = [[9, 50], [70, 400]]
    contribution = Contribution(1, ("own", "each"))
    together = floored_curves(alpha, 0.7, 4.0, contribution=contribution, n_records=np.ravel(numbers).tolist())
    people = [
        sum(floored_curves(alpha[i, j], 0.7, 4.0, n_records=numbers[i][j]).renyi(3.0) for j in range(2))
        for i in range(2)
    ]
    assert together.renyi(3.0) == pytest.approx(max(people), rel=1e-12)
    turned = floored_curves(
        alpha.transpose(1, 0, 2),
        0.7,
        4.0,
        contribution=Contribution(1, ("each", "own")),
        n_records=np.transpose(numbers).ravel().tolist(),
    )
    assert turned.renyi(3.0) == pytest.approx(together.renyi(3.0), rel=1e-12)


def exact(order, a, r, floor, *, joins, ceiling=None):
    """The closed form with 60 digits."""
    with mp.workdps(60):
        order, a, r, floor = map(mp.mpf, (order, a, r, floor))

        def log_z(x):
            if ceiling is None:
                return mp.log(mp.gammainc(x, floor))
            return mp.log(mp.quad(lambda g: g ** (x - 1) * mp.exp(-g), [floor, ceiling]))

        if joins:
            total = log_z(a + order * r) - order * log_z(a + r) + (order - 1) * log_z(a)
        else:
            total = log_z(a - (order - 1) * r) + (order - 1) * log_z(a + r) - order * log_z(a)
        return float(total / (order - 1))


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize(
    ("floor", "a", "r", "order"),
    [
        (8.0, 0.5, 0.65, 2.0),
        (8.0, 0.5, 0.65, 50.0),
        (1e-3, 0.1, 1.0, 7.0),
        (1.0, 3.0, 1e-4, 2.5),
        (1.0, 3.0, 1e-4, 1.0 + 1e-6),
        (0.5, 0.2, 5.0, 3.0),
        (300.0, 20.0, 0.5, 40.0),
        (800.0, 900.0, 0.5, 4.0),
        (16.0, 1e3, 1e-3, 100.0),
    ],
)
def test_the_divergence_of_a_record_against_60_digits(floor, a, r, order, joins):
    value = renyi_of_record(order, a, r, floor, joins=joins)
    assert value == pytest.approx(exact(order, a, r, floor, joins=joins), rel=1e-10)


@pytest.mark.parametrize("joins", [True, False])
def test_the_divergence_of_a_record_below_a_ceiling_against_60_digits(joins):
    for order, a, r, floor, ceiling in [(3.0, 2.0, 0.7, 0.5, 4.0), (20.0, 9.0, 0.3, 4.0, 30.0)]:
        value = renyi_of_record(order, a, r, floor, ceiling, joins=joins)
        assert value == pytest.approx(exact(order, a, r, floor, joins=joins, ceiling=ceiling), rel=1e-10)


def test_the_kullback_leibler_divergence_is_the_limit_of_the_others():
    for joins in (True, False):
        limit = renyi_of_record(1.0, 3.0, 0.7, 2.0, joins=joins)
        assert limit == pytest.approx(exact(1 + 1e-12, 3.0, 0.7, 2.0, joins=joins), rel=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize("joins", [True, False])
def test_the_largest_divergence_against_every_count(joins):
    rng = np.random.default_rng(5)
    for _ in range(25):
        floor, r, alpha = 10 ** rng.uniform(-1.5, 1.3), 10 ** rng.uniform(-0.7, 0.5), 10 ** rng.uniform(-2, 1.5)
        orders = np.array([1.0, 1 + 10 ** rng.uniform(-3, 1.2)])
        values = largest_divergences(orders, alpha, r, floor, joins=joins)
        for order, value in zip(orders.tolist(), values.tolist(), strict=True):
            counts = range(0, int((5 + order) * r / r + (3 * floor + 10 + order * r) / r), 1)
            truth = max(renyi_of_record(order, alpha + r * n, r, floor, joins=joins) for n in counts)
            assert truth <= value <= truth * (1 + 3e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("joins", [True, False])
def test_no_count_near_the_maximiser_has_a_larger_divergence(joins):
    """Steps from far smaller to far larger than the width of the maximum."""
    rng = np.random.default_rng(15)
    for _ in range(40):
        floor, r, alpha = 10 ** rng.uniform(-2, 3), 10 ** rng.uniform(-3, 1.3), 10 ** rng.uniform(-2, 2)
        order = 1 + 10 ** rng.uniform(-1, 2)
        value = float(largest_divergences(np.array([order]), alpha, r, floor, joins=joins)[0])
        grid = np.unique(np.round(np.geomspace(1, (5 * floor + order * r + 50) / r, 60)))
        over_grid = [renyi_of_record(order, alpha + r * n, r, floor, joins=joins) for n in grid.tolist()]
        best = grid[int(np.argmax(over_grid))]
        near = range(max(int(best) - 6, 0), int(best) + 7)
        truth = max(*over_grid, *(renyi_of_record(order, alpha + r * n, r, floor, joins=joins) for n in near))
        assert value >= truth


@pytest.mark.thorough
def test_divergences_have_one_mode_in_the_shape():
    """What the search for the largest count rests on (statement 2 on the page of proofs)."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        floor, r, order = 10 ** rng.uniform(-2, 2), 10 ** rng.uniform(-1, 1), 1 + 10 ** rng.uniform(-1, 2)
        shapes = np.linspace(0.01, 4 * floor + order * r + 20, 60).tolist()
        for joins in (True, False):
            values = np.array([renyi_of_record(order, a, r, floor, joins=joins) for a in shapes])
            signs = np.sign(np.diff(values))[np.abs(np.diff(values)) > 1e-9 * values[:-1]]
            assert np.count_nonzero(np.diff(signs)) <= 1


@pytest.mark.parametrize("floor", [1e-3, 0.5, 8.0, 300.0, 1e4])
def test_the_variance_of_the_logarithm_rises_and_then_falls(floor):
    shapes = np.linspace(-5 * (1 + floor), 6 * (1 + floor), 4001)
    variances = variance_log(shapes, floor)
    signs = np.sign(np.diff(variances))[np.abs(np.diff(variances)) > 1e-13 * variances[:-1]]
    assert np.count_nonzero(np.diff(signs)) == 1
    shape, most = largest_variance(floor)
    assert variances.max() <= most <= variances.max() * (1 + 1e-3)
    assert variance_log(shape, floor) <= most <= variance_log(shape, floor) * (1 + 2e-12)


def test_the_largest_variance_with_a_ceiling():
    shapes = np.linspace(-60, 400, 8001)
    most = largest_variance(2.0, 20.0)[1]
    assert variance_log(shapes, 2.0, 20.0).max() <= most <= variance_log(shapes, 2.0, 20.0).max() * (1 + 1e-3)
    # A ceiling that takes away the bulk leaves less to vary.
    assert largest_variance(2.0, 4.0)[1] < most < largest_variance(2.0)[1] * (1 + 1e-11)


# Floor, prior, r, an order between 1 and 40, and the largest divergences over their order at 1 and at that order.
INSIDE = [(8.0, 25.0, 1.0, 16.0, 0.0399991, 0.0416705), (1.0, 6.0, 1.0, 5.5, 0.165709, 0.171606)]


@pytest.mark.parametrize(("floor", "alpha", "r", "order", "at_one", "at_order"), INSIDE)
def test_the_largest_divergence_over_its_order_may_lie_inside(floor, alpha, r, order, at_one, at_order):
    def over_order(orders):
        return sum(largest_divergences(orders, alpha, r, floor, joins=way) for way in (True, False))

    ends, inside = over_order(np.array([1.0, 40.0])) / [1, 40], over_order(np.array([order]))[0] / order
    assert ends[0] == pytest.approx(at_one, rel=2e-5)
    assert inside == pytest.approx(at_order, rel=2e-5)
    assert inside > 1.02 * ends.max()
    slope = largest_slope(over_order, 40.0)
    orders = np.linspace(1.0, 40.0, 300)
    attained = float((over_order(orders) / orders).max())
    assert attained * (1 - 1e-9) <= slope <= attained * (1 + 2e-4)


def test_the_largest_slope_of_known_curves():
    """The largest one is everywhere, at order 1, and at the last order, beyond which nothing is asked."""
    assert largest_slope(lambda order: 0.1 * order**2, 9.0) == pytest.approx(0.9, rel=1e-4)
    assert largest_slope(lambda order: 0.2 * order, 50.0) == pytest.approx(0.2, rel=1e-4)
    assert largest_slope(lambda order: np.full(order.shape, 0.7), 9.0) == pytest.approx(0.7, rel=1e-4)


@pytest.mark.parametrize(
    ("floor", "alpha", "r"), [(8.0, 0.5, 0.65), (1e-3, 1e-3, 1e-4), (1e4, 1.0, 10.0), (0.3, 40.0, 2.0)]
)
def test_no_order_exceeds_the_bound_by_the_largest_variance(floor, alpha, r):
    orders = 1 + np.exp(np.linspace(-25, 25, 40))
    most = r * r * largest_variance(floor)[1]
    for joins in (True, False):
        values = largest_divergences(orders, alpha, r, floor, joins=joins)
        assert np.all(np.isfinite(values))
        assert np.all(values > 0)
        assert np.all(values <= orders * most / 2)
        # The divergence rises with its order.
        assert np.all(np.diff(values) >= -3e-9 * values[1:])


def test_the_bound_by_the_largest_variance_is_nearly_attained():
    orders = np.linspace(1, 60, 60)
    over_order = sum(largest_divergences(orders, 0.5, 0.65, 8.0, joins=way) for way in (True, False)) / orders
    assert 0.999 * 0.025731 < over_order.max() < 0.025731
    assert 0.65**2 * largest_variance(8.0)[1] == pytest.approx(0.025731, abs=5e-7)


def test_real_shapes_have_the_divergence_of_the_best_lattice():
    orders = np.array([1.0, 4.0])
    every = largest_divergences(orders, 0.02, 1.75, 6.0, joins=True, real=True)
    lattices = [largest_divergences(orders, a, 1.75, 6.0, joins=True) for a in np.linspace(0.02, 1.77, 36)]
    assert np.all(np.max(lattices, axis=0) <= every * (1 + 1e-8))
    np.testing.assert_allclose(np.max(lattices, axis=0), every, rtol=1e-4)
    assert math.isfinite(every.sum())


@pytest.mark.thorough
@pytest.mark.parametrize("floor", [0.05, 1.0, 8.0, 200.0])
@pytest.mark.parametrize("shapes", [0.04, 3.0, 30.0, 400.0, 1e7])
def test_the_largest_sum_of_two_variances_is_that_of_a_fine_grid(floor, shapes):
    peak, most = largest_variance(floor)
    around = peak + (1 + floor) * np.linspace(-30, 30, 20_001)
    x = np.concatenate([around, shapes / 2 + np.linspace(-1, 1, 2001) * (1 + floor)])
    seen = float((variance_log(x, floor) + variance_log(shapes - x, floor)).max())
    found = largest_sum_of_variances(shapes, floor)
    assert seen * (1 - 1e-12) <= found <= seen * (1 + 1e-3)
    assert found <= 2 * most


@pytest.mark.parametrize("joins", [True, False])
def test_many_orders_at_a_large_shape_are_what_each_is_alone_in_little_memory(joins):
    """There the closed form is lost to rounding, and the legs of the largest orders have tens of thousands of nodes."""
    distribution = 1e7, 10.0, 8.0
    tracemalloc.start()
    together = largest_divergences(ORDERS, *distribution, joins=joins)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500e6
    alone = [largest_divergences(ORDERS[i : i + 1], *distribution, joins=joins)[0] for i in (0, 20, 30, 40, 48)]
    np.testing.assert_allclose(together[[0, 20, 30, 40, 48]], alone, rtol=1e-9)
