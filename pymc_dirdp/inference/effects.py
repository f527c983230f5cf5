"""Tables of logits as sums of effects: one for each subset of the axes, as in an analysis of variance."""

from typing import final

import numpy as np
import scipy  # which loads scipy.fft where it is used, and not before
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array

__all__ = ["Effects"]

# Effects of so many axes at most have a scale each; those of more axes, of which there are exponentially many, share
# one.
_MOST_AXES = 3


@final
class Effects:
    """Orthogonal coordinates of a table, grouped by the axes on which the effect that they describe depends.

    A coordinate is a multiple of a product of one function along each axis: a constant one, or one of the `n - 1`
    cosines of the discrete cosine transform, which are orthonormal contrasts of the `n` values. A coordinate that takes
    contrasts along the axes in S, and the constant 1 along the others, describes an effect of the axes in S together.
    Independent coordinates of variance 1 make up an effect whose values have a variance of nearly 1. The distribution
    of the effect is the same for all orthonormal contrasts, so neither the order of the values nor that of the axes
    matters.

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
    of_several : array of bool, shape (groups,)
        Whether they depend on the last axis and others, so that shares along it depend on these.

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
        self._axes = tuple(range(-len(shape), 0))
        # The transform's constant functions have the length 1, and ours are 1 for each value.
        self._lengths = np.ones(shape)
        subsets = np.zeros(shape, dtype=np.int64)
        orders = np.zeros(shape, dtype=np.int64)
        for i, index in enumerate(np.indices(shape, sparse=True)):
            subsets += (index > 0) * 2**i
            orders += index > 0
            self._lengths *= np.where(index > 0, 1.0, shape[i] ** 0.5)
        orders[orders > _MOST_AXES] = len(shape)
        subsets[orders > _MOST_AXES] = 2 ** len(shape)
        groups: NDArray[np.int64]
        _, first, groups = np.unique(subsets, return_index=True, return_inverse=True)
        self.groups = groups.reshape(shape)
        self.orders = orders.ravel()[first]
        # The last axis has the highest place.
        self.of_several = (self.orders > 1) & (subsets.ravel()[first] >= 2 ** (len(shape) - 1))

    def logits(self, coordinates: Array) -> Array:
        """The table with these coordinates. There may be axes before those of the table."""
        return np.asarray(scipy.fft.idctn(self._lengths * coordinates, axes=self._axes, norm="ortho"))

    def transposed(self, slopes: Array) -> Array:
        """The slope in each coordinate, from the slope in each logit."""
        return np.asarray(self._lengths * scipy.fft.dctn(slopes, axes=self._axes, norm="ortho"))

    def coordinates(self, logits: Array) -> Array:
        """The coordinates of a table."""
        return np.asarray(scipy.fft.dctn(logits, axes=self._axes, norm="ortho") / self._lengths)

    def sums(self, values: Array) -> Array:
        """The sum over the coordinates of each group."""
        return np.bincount(self.groups.ravel(), values.ravel(), minlength=len(self.orders))
