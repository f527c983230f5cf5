"""The worst pairs are neighbours, and no others that were tried lose more."""

import itertools

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.dirichlet import blocks
from pymc_dirdp.privacy.people import Contribution

SURVEY = np.array([[1.0, 3.0, 2.0], [0.5, 5.0, 4.0], [2.0, 2.0, 2.0]])


def dirichlet_pair(alpha, contribution, **options):
    return dirdp.mechanisms.DirichletMechanism(alpha, 0.2, contribution=contribution, **options).worst_neighbours()


def test_records_move_between_the_two_smallest_priors_of_each_block():
    x, y = dirichlet_pair([0.4, 2.0, 0.9], 1)
    np.testing.assert_array_equal(x - y, [1, 0, -1])
    x, y = dirichlet_pair(SURVEY, Contribution(3, ("each",)))
    np.testing.assert_array_equal(x - y, 3 * np.array([[1, 0, -1], [1, 0, -1], [1, -1, 0]]))


def test_without_axes_all_records_move_between_two_cells_of_the_table():
    x, y = dirichlet_pair(SURVEY, Contribution(2))
    # The two smallest priors lie in two rows, and both are filled: the curve is approached there.
    np.testing.assert_array_equal(x - y, [[-2, 0, 0], [2, 0, 0], [0, 0, 0]])
    assert np.all(np.minimum(x, y)[:2].sum(axis=1) >= 1_000_000)


def test_a_person_with_a_row_of_their_own_is_the_one_whose_row_shows_most():
    x, y = dirichlet_pair(SURVEY, Contribution(2, ("own",)))
    np.testing.assert_array_equal(x - y, [[0, 0, 0], [2, 0, -2], [0, 0, 0]])
    # By brute force: no other row has a larger divergence.
    mechanism = dirdp.mechanisms.DirichletMechanism(SURVEY, 0.2)
    losses = []
    for row in range(3):
        a, b = np.argsort(SURVEY[row], kind="stable")[:2]
        z, w = np.zeros((2, 3, 3))
        z[row, a], w[row, b] = 2, 2
        losses.append(mechanism.output_distributions(z, w).renyi(1.0))
    assert np.argmax(losses) == 1
    assert mechanism.output_distributions(x, y).renyi(1.0) == pytest.approx(max(losses), rel=1e-12)


def test_blocks_are_all_cells_once():
    """Oracle: enumeration of the cells, for every assignment of kinds to two row axes."""
    prior = np.ones((2, 3, 4))
    for axes in itertools.product(("any", "each", "own"), repeat=2):
        found = blocks(prior, Contribution(1, axes), lambda *_: 1.0)
        assert len(found) == Contribution(1, axes).blocks(prior.shape)
        cells = np.concatenate(found)
        assert len(np.unique(cells)) == len(cells)
        share = np.prod([n for axis, n in zip(axes, (2, 3), strict=True) if axis == "own"], initial=1)
        assert len(cells) == prior.size / share


@pytest.mark.parametrize("axes", [("each",), ("own",), ("any",), ()])
def test_under_add_remove_the_records_are_nowhere_in_the_other_data_set(axes):
    x, y = dirichlet_pair(SURVEY, Contribution(2, axes), adjacency="add-remove", min_count=3)
    assert np.all(y >= 3)
    assert np.all(x >= y)
    assert (x - y).sum() == Contribution(2, axes).total(SURVEY.shape)
    # Each record leaves a cell with the smallest prior of its block, and others fill that row.
    assert (x - y)[1, 0] == (2 if axes != ("own",) or (x - y)[1].any() else 0)


def test_noise_moves_the_records_of_each_block():
    x, y = dirdp.mechanisms.GeometricMechanism(
        np.ones((2, 3)), 1.0, contribution=Contribution(2, ("each",))
    ).worst_neighbours()
    np.testing.assert_array_equal(x - y, [[2, -2, 0], [2, -2, 0]])
    x, y = dirdp.mechanisms.GeometricMechanism(np.ones(3), 1.0, adjacency="add-remove").worst_neighbours()
    np.testing.assert_array_equal(x - y, [1, 0, 0])
