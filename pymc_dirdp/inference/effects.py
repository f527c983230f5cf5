"""Tables of logits as sums of effects: one for each subset of the axes, as in an analysis of variance."""

import math
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array

__all__ = ["Effects"]

# Effects of so many axes at most have a scale each; those of more axes, of which there are exponentially many, share
# one.
_MOST_AXES = 3


@final
class Effects:
    """Orthogonal coordinates of a table, grouped by the axes on which the effect that they describe depends.

    The table is multiplied along each axis of `n` values by a matrix whose first column is constant and whose others
    are orthonormal contrasts. A coordinate that takes contrasts along the axes in S, and the constant along the others,
    describes an effect of the axes in S together. Independent coordinates of variance 1 make up an effect whose values
    have a variance of nearly 1, and whose law does not depend on which contrasts were chosen, nor on the order of the
    axes.

    Parameters
    ----------
    shape : tuple of int

    Attributes
    ----------
    shape : tuple of int
    groups : array of int, shape `shape`
        For each coordinate the number of its group: the coordinates of one effect, or of all effects of more than 3
        axes. Group 0 is the constant.
    orders : array of int, shape (groups,)
        How many axes the effects of each group depend on; the number of axes of the table for those of more than 3.

    Examples
    --------
    >>> effects = Effects((2, 3))
    >>> effects.groups
    array([[0, 2, 2],
           [1, 3, 3]])
    >>> effects.orders
    array([0, 1, 1, 2])
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._matrices = [_contrasts(n) for n in shape]
        subsets = np.zeros(shape, dtype=np.int64)
        orders = np.zeros(shape, dtype=np.int64)
        for i, index in enumerate(np.indices(shape)):
            subsets += (index > 0) * 2**i
            orders += index > 0
        orders[orders > _MOST_AXES] = len(shape)
        subsets[orders > _MOST_AXES] = 2 ** len(shape)
        groups: NDArray[np.int64]
        _, first, groups = np.unique(subsets, return_index=True, return_inverse=True)
        self.groups = groups.reshape(shape)
        self.orders = orders.ravel()[first]

    def logits(self, coordinates: Array) -> Array:
        """The table with these coordinates. There may be axes before those of the table."""
        return self._along_axes(coordinates, self._matrices)

    def transposed(self, slopes: Array) -> Array:
        """The slope in each coordinate, from the slope in each logit."""
        return self._along_axes(slopes, [matrix.T for matrix in self._matrices])

    def coordinates(self, logits: Array) -> Array:
        """The coordinates of a table."""
        # The columns are orthogonal, and the first one has the squared length n.
        inverses = [matrix.T / np.square(matrix).sum(axis=0)[:, None] for matrix in self._matrices]
        return self._along_axes(logits, inverses)

    def sums(self, values: Array) -> Array:
        """The sum over the coordinates of each group."""
        return np.bincount(self.groups.ravel(), values.ravel(), minlength=len(self.orders))

    def _along_axes(self, table: Array, matrices: list[Array]) -> Array:
        whole = table.shape
        before = table.ndim - len(self.shape)
        for i, matrix in enumerate(matrices, start=before):
            # A product of matrices over the middle axis needs no copy of the table.
            after = math.prod(whole[i + 1 :])
            table = (
                table.reshape(-1, whole[i]) @ matrix.T
                if after == 1
                else matrix @ table.reshape(*whole[:before], -1, whole[i], after)
            )
        return table.reshape(whole)


def _contrasts(n: int) -> Array:
    columns = np.column_stack([np.ones(n), np.eye(n)[:, : n - 1]])
    matrix: Array = np.linalg.qr(columns)[0]
    matrix[:, 0] = 1.0
    return matrix
