"""Tables of logits as sums of effects, one for each subset of the axes, and the scales of effects.

Scales are learned from how large the effects are and how many of them the measurements tell; and of effects by which a
variable depends on its parents it is said how probable they are at all.
"""

from typing import final

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from pymc_dirdp.arrays import Array


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
        # There are exponentially many effects of more than three axes, which share a scale.
        orders[orders > 3] = len(shape)
        subsets[orders > 3] = 2 ** len(shape)
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


SCALES = np.array([0.0, 2.0, 0.5, 0.2, 0.1])
"""The scale of an effect of no, one, two, three, and more variables before anything is known."""


@final
class Shrinkage:
    """A scale for each group of effects in each table, around a common scale for each order of effects.

    Parameters
    ----------
    orders : dict of str to array of int, shape (groups,)
        By name of the table, the number of variables that the effects of each group depend on; 0 for a constant.

    Attributes
    ----------
    scales : dict of str to array, shape (groups,)
        0 for a constant.

    Notes
    -----
    Let `s` be the sum of squares of a group's coordinates at the mode, `k` the number of them that the measurements
    tell, and `t0` the common scale of its order. The new scale is the root of `(s + w t0**2) / (k + w)`: MacKay's fixed
    point for the marginal likelihood, with a prior that is worth `w = 10` coordinates. The common scale is that of all
    groups of its order together, around 2, 0.5, 0.2 and 0.1 for the orders 1, 2, 3 and above.

    Examples
    --------
    >>> shrinkage = Shrinkage({"p": np.array([0, 1, 2])})
    >>> shrinkage.scales["p"]
    array([0. , 2. , 0.5])
    """

    def __init__(self, orders: dict[str, NDArray[np.int64]]) -> None:
        self._orders = {name: np.minimum(order, len(SCALES) - 1) for name, order in orders.items()}
        self.scales: dict[str, Array] = {name: SCALES[order] for name, order in self._orders.items()}

    def update(self, squares: dict[str, Array], known: dict[str, Array]) -> bool:
        """Learn from the modes at the present scales; whether the scales have settled.

        Parameters
        ----------
        squares : dict of str to array, shape (groups,)
            The sum of the squared coordinates of each group.
        known : dict of str to array, shape (groups,)
            How many coordinates of each group the measurements tell.
        """
        order, of_all, numbers = (
            np.concatenate([found[name] for name in self._orders]) for found in (self._orders, squares, known)
        )
        # The scales of the effects of one order are around a common one. That, and a scale before anything is known,
        # count for so many coordinates of that size.
        worth = 10.0
        lengths = np.bincount(order, of_all, len(SCALES)) + worth * SCALES**2
        common = lengths / (np.bincount(order, numbers, len(SCALES)) + worth)
        change = 0.0
        for name, own in self._orders.items():
            scales = np.sqrt((squares[name] + worth * common[own]) / (known[name] + worth))
            scales[own == 0] = 0.0
            positive = own > 0
            change += float(
                np.sum(known[name][positive] * np.abs(np.log(scales[positive] / self.scales[name][positive])))
            )
            self.scales[name] = scales
        # They have settled when their logarithms change by less on average over what the measurements tell.
        return change <= 0.03 * max(1.0, float(numbers[order > 0].sum()))


def probabilities_of(log_odds: ArrayLike) -> Array:
    """The probability of each of several things of one kind, of which an unknown share is there.

    A priori the share has a Beta(1/2, 9/2) distribution: a tenth of them are expected to be there. So things that
    nothing speaks for are taken for a tenth, many that each have weak evidence support each other, and where nothing is
    found little is believed of the rest.

    Parameters
    ----------
    log_odds : array_like, shape (n,)
        Logarithms of the Bayes factors of each.

    Returns
    -------
    probabilities : array, shape (n,)
        Averages over the share, at 200 points.

    References
    ----------
    Scott and Berger (2010), Bayes and empirical-Bayes multiplicity adjustment in the variable-selection problem,
    Annals of Statistics 38, 2587-2619.

    Examples
    --------
    >>> probabilities_of([0.0]).round(2), probabilities_of([-2.0, -2.0, 3.0]).round(2)
    (array([0.11]), array([0.03, 0.03, 0.64]))
    """
    shares = (np.arange(200) + 0.5) / 200
    there = np.log(shares)[:, None] + np.asarray(log_odds, dtype=np.float64)
    either = np.logaddexp(np.log1p(-shares)[:, None], there)
    weights = softmax(either.sum(axis=1) - np.log(shares) / 2 + 3.5 * np.log1p(-shares))
    return np.asarray(weights @ np.exp(there - either))
