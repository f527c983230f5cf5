"""Rényi divergences of floored intensities, against mpmath with 60 digits and against every count."""

import math
import tracemalloc

import mpmath as mp
import numpy as np
import pytest

from pymc_dirdp.numerics.truncated_gamma import variance_log
from pymc_dirdp.privacy.conversion import ORDERS
from pymc_dirdp.privacy.floored_renyi import (
    largest_divergences,
    largest_slope,
    largest_sum_of_variances,
    largest_variance,
    renyi_of_record,
)
from pymc_dirdp.privacy.floored_search import Shapes


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
        values = largest_divergences(orders, Shapes(alpha), r, floor, joins=joins)
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
        value = float(largest_divergences(np.array([order]), Shapes(alpha), r, floor, joins=joins)[0])
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
        cells = Shapes(alpha)
        return sum(largest_divergences(orders, cells, r, floor, joins=way) for way in (True, False))

    ends, inside = over_order(np.array([1.0, 40.0])) / [1, 40], over_order(np.array([order]))[0] / order
    assert ends[0] == pytest.approx(at_one, rel=2e-5)
    assert inside == pytest.approx(at_order, rel=2e-5)
    assert inside > 1.02 * ends.max()
    slope = largest_slope(over_order, 40.0)
    orders = np.linspace(1.0, 40.0, 300)
    attained = float((over_order(orders) / orders).max())
    assert attained * (1 - 1e-9) <= slope <= attained * (1 + 2e-4)


def test_the_largest_slope_of_known_curves():
    """A straight line through 0, and a curve with its largest slope at order 3."""
    assert largest_slope(lambda order: 0.2 * order, 50.0) == pytest.approx(0.2, rel=1e-4)
    assert largest_slope(lambda order: np.full(order.shape, 0.7), 9.0) == pytest.approx(0.7, rel=1e-4)


@pytest.mark.parametrize(
    ("floor", "alpha", "r"), [(8.0, 0.5, 0.65), (1e-3, 1e-3, 1e-4), (1e4, 1.0, 10.0), (0.3, 40.0, 2.0)]
)
def test_no_order_exceeds_the_bound_by_the_largest_variance(floor, alpha, r):
    orders = 1 + np.exp(np.linspace(-25, 25, 40))
    most = r * r * largest_variance(floor)[1]
    for joins in (True, False):
        values = largest_divergences(orders, Shapes(alpha), r, floor, joins=joins)
        assert np.all(np.isfinite(values))
        assert np.all(values > 0)
        assert np.all(values <= orders * most / 2)
        # The divergence rises with its order.
        assert np.all(np.diff(values) >= -3e-9 * values[1:])


def test_the_bound_by_the_largest_variance_is_nearly_attained():
    orders = np.linspace(1, 60, 60)
    over_order = sum(largest_divergences(orders, Shapes(0.5), 0.65, 8.0, joins=way) for way in (True, False)) / orders
    assert 0.999 * 0.025731 < over_order.max() < 0.025731
    assert 0.65**2 * largest_variance(8.0)[1] == pytest.approx(0.025731, abs=5e-7)


def test_real_shapes_have_the_divergence_of_the_best_lattice():
    orders = np.array([1.0, 4.0])
    every = largest_divergences(orders, Shapes(0.02, real=True), 1.75, 6.0, joins=True)
    lattices = [largest_divergences(orders, Shapes(a), 1.75, 6.0, joins=True) for a in np.linspace(0.02, 1.77, 36)]
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
    law = Shapes(1e7), 10.0, 8.0
    tracemalloc.start()
    together = largest_divergences(ORDERS, *law, joins=joins)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500e6
    alone = [largest_divergences(ORDERS[i : i + 1], *law, joins=joins)[0] for i in (0, 20, 30, 40, 48)]
    np.testing.assert_allclose(together[[0, 20, 30, 40, 48]], alone, rtol=1e-9)
