"""The curves of floored draws: suprema over counts, both adjacencies, ceilings, and compositions."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.truncated_gamma import log_mass, upper_tail
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import NoLoss
from pymc_dirdp.privacy.dominating_pairs import AddRemovePair, ReplaceOnePair
from pymc_dirdp.privacy.floored import FlooredCells
from pymc_dirdp.privacy.floored_loss import Cells, joining, leaving, moving
from pymc_dirdp.privacy.floored_renyi import largest_variance, renyi_of_record
from pymc_dirdp.privacy.floored_table import floored_curves
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, ZeroCDP

# Floor, epsilon, and the largest r with a delta of 1e-6 for all real shapes from 0.02 on; within 3e-4 relative.
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


@pytest.mark.parametrize(("floor", "epsilon", "r"), REFERENCES)
def test_delta_at_the_reference_concentrations(floor, epsilon, r):
    """Of real shapes, by five prior parameters that differ by next to nothing; delta goes like a power 20 of r."""
    near = tuple(0.02 + 1e-9 * i for i in range(5))
    seen = FlooredCells(near, r, floor)._searched([epsilon], math.inf)[0].attained
    assert math.log(seen / 1e-6) / 22 == pytest.approx(0.0, abs=4e-4)
    bound = FlooredCells((0.02, 0.02), r, floor).delta(epsilon)
    assert 0.8e-6 < bound < 1.03e-6


@pytest.mark.parametrize("others", [0, 3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (40, 5000))])
@pytest.mark.parametrize("cells", [(0.5, 0.5), (0.2, 30.0)])
def test_no_division_of_a_public_number_of_records_exceeds_the_curves(cells, others):
    r, floor = 0.6, 4.0
    curves, any_number = FlooredCells(cells, r, floor, others=others), FlooredCells(cells, r, floor)
    counts = np.arange(others + 1.0) if others < 100 else np.append(np.arange(100.0), others - np.arange(100.0))
    orders = (1.0, 2.0, 9.0, 60.0)
    worst = {}
    for a, b in itertools.permutations(cells):
        gaining, losing = a + r * counts, b + r * (others - counts)
        floors = np.full(len(counts), floor)
        for epsilon in (0.2, 1.5):
            found = moving(Cells.of(losing, floors, r), Cells.of(gaining, floors, r), epsilon).max()
            worst[epsilon] = max(worst.get(epsilon, 0.0), float(found))
        for order in orders:
            found = max(
                renyi_of_record(order, x, r, floor, joins=True) + renyi_of_record(order, y, r, floor, joins=False)
                for x, y in zip(gaining, losing, strict=True)
            )
            worst[order, "renyi"] = max(worst.get((order, "renyi"), 0.0), found)
    for epsilon in (0.2, 1.5):
        assert worst[epsilon] <= curves.delta(epsilon) <= min(1.05 * worst[epsilon], any_number.delta(epsilon))
    for order in orders:
        assert worst[order, "renyi"] <= curves.renyi(order) <= any_number.renyi(order)
        assert worst[order, "renyi"] <= curves.rho(math.inf) * order
    # For many records the bound is close at small orders, and far below that for any number of records.
    if others == 5000:
        assert curves.renyi(1.0) <= 1.01 * worst[1.0, "renyi"]
        assert curves.rho(math.inf) < 0.6 * any_number.rho(math.inf)


@pytest.mark.parametrize(
    ("floor", "epsilon", "n_records", "r"),
    [
        (3.3, 1.0, 20, 0.547),
        (3.3, 1.0, 100, 0.692),
        (3.3, 1.0, 1000, 0.750),
        (6.0, 3.0, 20, 1.966),
        (6, 3, 1000, 2.561),
    ],
)
def test_delta_at_the_reference_concentrations_for_public_numbers(floor, epsilon, n_records, r):
    bound = floored_curves(np.array([0.02, 0.02]), r, floor, n_records=n_records).delta(epsilon)
    # The references have three digits, and delta goes like a power 20 of r.
    assert 0.9e-6 < bound < 1.15e-6


@pytest.mark.parametrize(
    "cells",
    [
        (0.5, 0.5),
        (0.2, 30.0),
        pytest.param((2.0, 2.0, 9.0), marks=pytest.mark.thorough),
        pytest.param((0.3, 1.1, 4.0), marks=pytest.mark.thorough),
    ],
)
def test_no_pair_of_counts_exceeds_the_curves(cells):
    r, floor = 0.6, 4.0
    curves = FlooredCells(cells, r, floor)
    counts = r * np.arange(41.0)
    for epsilon in (0.2, 1.5):
        worst = 0.0
        for a, b in itertools.permutations(cells, 2):
            shapes = np.array(list(itertools.product(a + counts, b + counts)))
            gaining, losing = (Cells.of(shape, np.full(len(shape), floor), r) for shape in shapes.T)
            worst = max(worst, float(moving(losing, gaining, epsilon).max()))
        assert worst <= curves.delta(epsilon) <= worst * 1.04
    for order in (1.0, 5.0):
        divergences = {
            (a, way): max(renyi_of_record(order, a + n, r, floor, joins=way) for n in counts.tolist())
            for a in set(cells)
            for way in (True, False)
        }
        worst = max(divergences[a, True] + divergences[b, False] for a, b in itertools.permutations(cells, 2))
        assert worst <= curves.renyi(order) <= worst * (1 + 1e-8)
        assert curves.renyi(order) <= order * curves.rho(math.inf)


@pytest.mark.thorough
def test_add_remove_takes_the_larger_direction():
    curves = FlooredCells((0.02, 0.02), 0.7, 8.0, adjacency="add-remove")
    shapes = 0.02 + 0.7 * np.arange(300.0)
    cells = Cells.of(shapes, np.full(300, 8.0), 0.7)
    directions = {}
    for epsilon in (0.5, 1.0):
        joins, leaves = float(joining(cells, epsilon).max()), float(leaving(cells, epsilon).max())
        directions[epsilon] = joins > leaves
        assert max(joins, leaves) <= curves.delta(epsilon) <= 1.05 * max(joins, leaves)
    # At one epsilon adding is worse, at the other one removing.
    assert directions == {0.5: False, 1.0: True}
    for order in (1.0, 5.0, 40.0):
        each = [max(renyi_of_record(order, a, 0.7, 8.0, joins=way) for a in shapes) for way in (True, False)]
        assert max(each) <= curves.renyi(order) <= max(each) * (1 + 1e-8)
    assert curves.rho(math.inf) == pytest.approx(0.7**2 * largest_variance(8.0)[1] / 2, rel=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cells", "r", "floor"),
    [((0.2, 30.0), 0.3, 0.3), ((0.02, 1.0, 7.0), 0.6, 8.0), ((0.5, 0.5, 12.0), 1.7, 4.0), ((0.1, 40.0), 0.15, 2.0)],
)
def test_add_remove_of_uneven_cells_against_all_counts_up_to_300(cells, r, floor):
    """Every cell, every count, both directions; the worst cell is not always the one with the least prior."""
    curves = FlooredCells(cells, r, floor, adjacency="add-remove")
    shapes = np.concatenate([a + r * np.arange(301.0) for a in sorted(set(cells))])
    of_cell = Cells.of(shapes, np.full(len(shapes), floor), r)
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        found = np.maximum(joining(of_cell, epsilon), leaving(of_cell, epsilon))
        # A worst count at the end would say that more counts are needed.
        assert int(found.argmax()) % 301 < 300
        assert found.max() <= curves.delta(epsilon) <= 1.06 * found.max()
    for order in (1.0, 4.0, 30.0):
        worst = max(renyi_of_record(order, a, r, floor, joins=way) for a in shapes.tolist() for way in (True, False))
        assert worst <= curves.renyi(order) <= worst * (1 + 1e-8)


def test_zero_concentrated_privacy_is_kept_at_every_order():
    curves = FlooredCells((0.5, 0.5), 0.65, 8.0)
    assert curves.rho(math.inf) == pytest.approx(0.025731, abs=1e-6)
    assert curves.satisfies(ZeroCDP(rho=0.02574))
    assert not curves.satisfies(ZeroCDP(rho=0.0257))
    assert curves.rho(20.0) < curves.rho(math.inf)
    assert max(curves.renyi(order) / order for order in (1.0, 5.0, 20.0)) <= curves.rho(20.0)


def test_the_largest_slope_may_lie_between_the_ends():
    curves = FlooredCells((25.0, 25.0), 1.0, 8.0)
    assert curves.rho(40.0) >= curves.renyi(16.0) / 16 > 1.04 * max(curves.renyi(1.0), curves.renyi(40.0) / 40)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("r", "floor", "adjacency", "others"),
    [(0.7, 8.0, "replace-one", None), (0.06, 0.1, "replace-one", None), (2.5, 16.0, "add-remove", None)]
    + [(0.7, 8.0, "replace-one", 99)],
)
def test_epsilons_keep_their_deltas_and_leave_little(r, floor, adjacency, others):
    curves = FlooredCells((0.02, 0.02), r, floor, adjacency=adjacency, others=others)
    for delta in (1e-2, 1e-5, 1e-9, 1e-20):
        epsilon = curves.epsilon(delta)
        # The curve is another object, which knows nothing from before.
        assert replace(curves).delta(epsilon) <= delta
        assert replace(curves).delta(epsilon * 0.99) > delta
    # Where even epsilon 0 has a smaller delta.
    assert curves.epsilon(0.99) == 0


def test_epsilon_is_from_above_and_close():
    for adjacency in ("replace-one", "add-remove"):
        curves = FlooredCells((0.5, 0.5), 0.65, 8.0, adjacency=adjacency)
        epsilon = curves.epsilon(1e-6)
        assert curves.delta(epsilon) <= 1e-6 < curves.delta(epsilon * 0.995)


def test_a_floor_far_below_leaves_the_draw_without_one():
    """With large prior parameters the floor does nothing, and the worst counts are 0."""
    floored, free = FlooredCells((40.0, 55.0), 0.6, 1e-3), ReplaceOnePair(40.0, 55.0, 0.6)
    for epsilon in (0.1, 0.5):
        assert floored.delta(epsilon) == pytest.approx(free.delta(epsilon), rel=1e-8)
    for order in (1.0, 3.0, 20.0):
        assert floored.renyi(order) == pytest.approx(free.renyi(order), rel=1e-8)
    floored, free = FlooredCells((40.0, 55.0), 0.6, 1e-3, adjacency="add-remove"), AddRemovePair(40.0, 0.6)
    assert floored.delta(0.2) == pytest.approx(free.delta(0.2), rel=1e-8)


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


def test_a_ceiling_has_valid_deltas():
    r, floor, ceiling = 0.5, 1.0, 12.0
    curves = FlooredCells((0.5, 0.5), r, floor, ceiling)
    x, w = np.polynomial.legendre.leggauss(200)
    low, high = math.log(floor), math.log(ceiling)
    y, weight = (low + high) / 2 + (high - low) / 2 * x, (high - low) / 2 * w
    for epsilon in (0.3, 1.0):
        worst = 0.0
        for n_a, n_b in itertools.product(range(0, 60, 8), repeat=2):
            a, b = 0.5 + r * n_a, 0.5 + r * n_b
            z = {shape: float(log_mass(shape, floor, ceiling)) for shape in (a, a + r, b, b + r)}
            s = (epsilon - (z[a] - z[a + r] + z[b + r] - z[b])) / r
            g = np.exp(y + s)
            first = np.exp(b * y - np.exp(y) - z[b]) * upper_tail(g, a + r, floor, ceiling)
            second = np.exp((b + r) * y - np.exp(y) - z[b + r]) * upper_tail(g, a, floor, ceiling)
            worst = max(worst, float(((first - math.exp(epsilon) * second) * weight).sum()))
        assert worst <= curves.delta(epsilon) + 1e-9
        assert curves.delta(epsilon) < 1


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


def test_a_delta_that_only_the_search_reaches_at_0_has_an_epsilon():
    """The bound may exceed what the search sees at epsilon 0, where a factor moves nothing."""
    curves = FlooredCells((0.02, 0.02), 0.02, 8.0)
    delta = curves._searched([0.0], math.inf)[0].attained * 1.0201
    bound = curves._delta(0.0)
    epsilon = curves.epsilon(min(delta, bound * (1 - 1e-9)))
    assert 0 < epsilon < 0.1
    assert curves.delta(epsilon) <= delta


@pytest.mark.parametrize(
    "make",
    [
        lambda cells: cells,
        lambda cells: replace(cells, adjacency="add-remove"),
        lambda cells: replace(cells, others=400),
        lambda cells: replace(cells, ceiling=100.0),
        lambda cells: Composition(((cells, 1),)),
        lambda cells: Parallel((cells, replace(cells, r=0.4))),
    ],
)
@pytest.mark.thorough
def test_curves_at_many_points_are_those_at_each(make):
    """Points that are asked for together are computed together."""
    cells = FlooredCells((0.02, 0.02), 0.6, 8.0)
    at = {"renyi": [1.0, 1.5, 7.0, 300.0], "delta": [0.0, 0.3, 1.0, 9.0], "epsilon": [1e-3, 1e-6, 1e-39]}
    for name, points in at.items():
        together = getattr(make(replace(cells)), name)(np.array(points).reshape(1, -1))
        alone = [getattr(make(replace(cells)), name)(point) for point in points]
        assert together.shape == (1, len(points))
        np.testing.assert_allclose(together[0], alone, rtol=1e-9)
