"""Tables of intensities above a floor, of which rows have public numbers of records, against every move of a record."""

import math

import numpy as np
import pytest

from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.floored import FlooredCells
from pymc_dirdp.privacy.floored_loss import Cells, moving
from pymc_dirdp.privacy.floored_renyi import renyi_of_record
from pymc_dirdp.privacy.floored_table import floored_curves


def worst_within(row, n_records, r, floor, epsilon, order):
    """The largest delta and divergence of all moves of one record within a row of two cells."""
    if n_records == 0:
        return 0.0, 0.0
    others = np.arange(n_records, dtype=float)
    floors, delta, divergence = np.full(n_records, floor), 0.0, 0.0
    for a, b in (row, row[::-1]):
        gaining, losing = a + r * others, b + r * others[::-1]
        found = moving(Cells.of(losing, floors, r), Cells.of(gaining, floors, r), epsilon)
        delta = max(delta, float(found.max()))
        for x, y in zip(gaining, losing, strict=True):
            both = [renyi_of_record(order, z, r, floor, joins=way) for z, way in ((x, True), (y, False))]
            divergence = max(divergence, sum(both))
    return delta, divergence


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
    law = (alpha, r, floor, math.inf, "replace-one")
    # A person has one record somewhere, or publicly in one of the rows, or one in every row.
    for contribution in (1, Contribution(1, ("own",))):
        curves = floored_curves(*law, contribution, numbers)
        assert max(deltas) <= curves.delta(epsilon) <= 1.05 * max(deltas)
        assert max(divergences) <= curves.renyi(order) <= floored_curves(*law, contribution).renyi(order)
    each = floored_curves(*law, Contribution(1, ("each",)), numbers)
    assert sum(divergences) <= each.renyi(order) <= floored_curves(*law, Contribution(1, ("each",))).renyi(order)
    assert each.delta(epsilon) >= max(deltas)


def test_the_worst_row_need_not_be_the_smallest_or_the_largest():
    """Few records cannot make a large loss, and many cannot either, because some cell then holds many of them."""
    rows, law = np.full((3, 2), 0.02), (0.7, 4.0)
    together = floored_curves(rows, *law, n_records=[2, 60, 5000]).delta(0.8)
    alone = [floored_curves(rows[:1], *law, n_records=n).delta(0.8) for n in (2, 60, 5000)]
    assert together == max(alone) == alone[1]
    assert together < floored_curves(rows, *law).delta(0.8) / 3


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


def test_a_total_of_several_rows_gains_nothing():
    """All other records may lie in third cells, so the cells of the record hold what they hold for any number."""
    r, floor, epsilon = 0.7, 4.0, 0.8
    shapes = floored_curves(np.full((2, 2), 0.02), r, floor).worst_counts(epsilon).shapes
    counts = [round((shape - 0.02) / r) for shape in shapes]
    gaining, losing = (Cells.of(np.array([0.02 + r * n]), np.array([floor]), r) for n in counts)
    # The first cells of two rows hold the counts, and the record moves from one row to the other.
    table = np.array([[counts[0], 500], [counts[1], 500]])
    assert (
        float(moving(losing, gaining, epsilon)[0]) > 0.98 * FlooredCells((0.02, 0.02), r, floor).delta(epsilon) / 1.02
    )
    public = floored_curves(np.full((1, 2), 0.02), r, floor, n_records=int(table.sum()) + 1)
    assert float(moving(losing, gaining, epsilon)[0]) > 3 * public.delta(epsilon)
