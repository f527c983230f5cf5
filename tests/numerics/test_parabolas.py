"""The tops of parabolas through values on a grid."""

import numpy as np

from pymc_dirdp.numerics.parabolas import tops_of_parabolas

GRID = np.array(np.meshgrid(*[[-1.0, 0.0, 1.0]] * 2)).reshape(2, -1).T


def test_tops_of_known_parabolas():
    rng = np.random.default_rng(3)
    tops, values = rng.normal(size=(20, 2)), []
    for top in tops:
        root = rng.normal(size=(2, 2)) + 2 * np.eye(2)
        values.append(rng.normal() - (((GRID - top) @ root) ** 2).sum(axis=1))
    np.testing.assert_allclose(tops_of_parabolas(np.array(values), GRID), tops, rtol=1e-9)


def test_what_rises_in_some_direction_has_no_top():
    x, y = GRID.T
    found = tops_of_parabolas(np.array([x**2 - y**2, x + y, 0 * x, x**2 + y**2, -(x**2)]), GRID)
    assert np.all(np.isinf(found))
