"""Tables of logits as sums of effects, one for each subset of the axes, and the scales of effects.

The scales are estimated from the sizes of the effects and the effective number of parameters. The probability that a
variable depends on its parents at all is estimated from Bayes factors.
"""

from typing import final

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from pymc_dirdp.arrays import Array


@final
class Effects:
    """Orthogonal coordinates of a table, grouped by the set of axes that their effect depends on.

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
        The number of the group of each coordinate. A group is one effect, or all effects of more than 3 axes. Group 0
        is the constant.
    orders : array of int, shape (groups,)
        The number of axes that the effects of each group depend on; for more than 3 it is that of the table.
    of_several : array of bool, shape (groups,)
        Whether the effects depend on the last axis and on others, so that shares along it depend on these.

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
        # The constant functions of the transform have norm 1; here they are 1 for each value.
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
        # The last axis has the highest bit.
        self.of_several = (self.orders > 1) & (subsets.ravel()[first] >= 2 ** (len(shape) - 1))

    def logits(self, coordinates: Array) -> Array:
        """The table with these coordinates; leading axes are allowed."""
        return np.asarray(scipy.fft.idctn(self._lengths * coordinates, axes=self._axes, norm="ortho"))

    def transposed(self, slopes: Array) -> Array:
        """The gradient in the coordinates, from the gradient in the logits."""
        return np.asarray(self._lengths * scipy.fft.dctn(slopes, axes=self._axes, norm="ortho"))

    def coordinates(self, logits: Array) -> Array:
        """The coordinates of a table."""
        return np.asarray(scipy.fft.dctn(logits, axes=self._axes, norm="ortho") / self._lengths)

    def sums(self, values: Array) -> Array:
        """The sum over the coordinates of each group."""
        return np.bincount(self.groups.ravel(), values.ravel(), minlength=len(self.orders))


SCALES = np.array([0.0, 2.0, 0.5, 0.2, 0.1])
"""The prior scale of an effect of 0, 1, 2, 3, and more variables."""


@final
class Shrinkage:
    """A scale for each group of effects in each table, around a common scale for each order of effects.

    Parameters
    ----------
    orders : dict of str to array of int, shape (groups,)
        The number of variables that the effects of each group depend on, by name of the table; 0 for a constant.

    Attributes
    ----------
    scales : dict of str to array, shape (groups,)
        0 for a constant.

    Notes
    -----
    Let `s` be the sum of squares of a group's coordinates at the mode, `k` the effective number of these that the
    measurements determine, and `t0` the common scale of its order. The new scale is the square root of
    `(s + w t0**2) / (k + w)`. This is MacKay's fixed point for the marginal likelihood, with a prior equivalent to
    `w = 10` coordinates. The common scale is that of all groups of the order together, shrunk to 2, 0.5, 0.2 and 0.1
    for the orders 1, 2, 3 and above.

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
        """Update the scales from the modes at the current scales; returns whether they have converged.

        Parameters
        ----------
        squares : dict of str to array, shape (groups,)
            The sum of the squared coordinates of each group.
        known : dict of str to array, shape (groups,)
            The effective number of coordinates of each group that the measurements determine.
        """
        order, of_all, numbers = (
            np.concatenate([by_name[name] for name in self._orders]) for by_name in (self._orders, squares, known)
        )
        # The scales of one order are shrunk to a common scale, and this to its prior scale; each counts for this number
        # of coordinates.
        worth = 10.0
        lengths = np.bincount(order, of_all, len(SCALES)) + worth * SCALES**2
        common = lengths / (np.bincount(order, numbers, len(SCALES)) + worth)
        change = 0.0
        for name, orders in self._orders.items():
            scales = np.sqrt((squares[name] + worth * common[orders]) / (known[name] + worth))
            scales[orders == 0] = 0.0
            positive = orders > 0
            change += float(
                np.sum(known[name][positive] * np.abs(np.log(scales[positive] / self.scales[name][positive])))
            )
            self.scales[name] = scales
        # Convergence: the mean change of the log-scales, weighted by the effective numbers of coordinates.
        return change <= 0.03 * max(1.0, float(numbers[order > 0].sum()))


def probabilities_of(log_odds: ArrayLike) -> Array:
    """The posterior probability of each of several effects of one kind, an unknown share of which is present.

    The prior of the share is Beta(1/2, 9/2): a tenth of the effects is expected to be present. So an effect without any
    evidence has a probability of about a tenth. Many effects with weak evidence support each other, and the probability
    of all decreases if none has evidence.

    Parameters
    ----------
    log_odds : array_like, shape (n,)
        Log Bayes factor of each effect.

    Returns
    -------
    probabilities : array, shape (n,)
        Averages over the share, by quadrature with 200 points.

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
    log_present = np.log(shares)[:, None] + np.asarray(log_odds, dtype=np.float64)
    log_marginals = np.logaddexp(np.log1p(-shares)[:, None], log_present)
    weights = softmax(log_marginals.sum(axis=1) - np.log(shares) / 2 + 3.5 * np.log1p(-shares))
    return np.asarray(weights @ np.exp(log_present - log_marginals))
