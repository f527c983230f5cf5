"""Where parabolas through values on a small grid have their tops."""

import numpy as np

from pymc_dirdp.arrays import Array

__all__ = ["tops_of_parabolas"]

# A parabola that bends less than this at a step of 1 is taken to be flat.
_FLAT = 1e-9


def tops_of_parabolas(values: Array, grid: Array) -> Array:
    """The tops of the parabolas of least squares, one for each row of values.

    Parameters
    ----------
    values : array, shape (n, points)
        Finite.
    grid : array, shape (points, axes)
        The points that the columns belong to; at least three along each axis, with all their combinations.

    Returns
    -------
    tops : array, shape (n, axes)
        Infinite where a parabola does not fall in all directions.

    Examples
    --------
    >>> grid = np.array([[-1.0], [0.0], [1.0]])
    >>> tops_of_parabolas(-((grid.T - 0.25) ** 2), grid).round(12)
    array([[0.25]])
    """
    axes = grid.shape[1]
    pairs = [(i, j) for i in range(axes) for j in range(i, axes)]
    terms = np.column_stack([np.ones(len(grid)), grid, *(grid[:, i] * grid[:, j] for i, j in pairs)])
    found = values @ np.linalg.pinv(terms).T
    slopes, bends = found[:, 1 : axes + 1], np.empty((len(values), axes, axes))
    for (i, j), bend in zip(pairs, found[:, axes + 1 :].T, strict=True):
        bends[:, i, j] = bends[:, j, i] = bend * (1 + (i == j))
    bent = np.linalg.eigvalsh(bends)[:, -1] < -_FLAT
    tops = np.full(slopes.shape, np.inf)
    tops[bent] = -np.linalg.solve(bends[bent], slopes[bent][..., None])[..., 0]
    return tops
