"""The scales of effects, learned from how large they are and how many the measurements tell, and which are there."""

from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from pymc_dirdp.arrays import Array

__all__ = ["SCALES", "Shrinkage", "probabilities_of"]

SCALES = np.array([0.0, 2.0, 0.5, 0.2, 0.1])
"""The scale of an effect of no, one, two, three, and more variables before anything is known."""

# How many coordinates of that size this counts for. The scales of the effects of one order are around a common one,
# which counts for as many.
_WORTH = 10.0
# The scales have settled when their logarithms change by less on average over what the measurements tell.
_SETTLED = 0.03
# Shares of things that are there, each for as many as another.
_SHARES = (np.arange(200) + 0.5) / 200


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
        lengths = np.bincount(order, of_all, len(SCALES)) + _WORTH * SCALES**2
        common = lengths / (np.bincount(order, numbers, len(SCALES)) + _WORTH)
        change = 0.0
        for name, own in self._orders.items():
            scales = np.sqrt((squares[name] + _WORTH * common[own]) / (known[name] + _WORTH))
            scales[own == 0] = 0.0
            positive = own > 0
            change += float(
                np.sum(known[name][positive] * np.abs(np.log(scales[positive] / self.scales[name][positive])))
            )
            self.scales[name] = scales
        return change <= _SETTLED * max(1.0, float(numbers[order > 0].sum()))


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
    there = np.log(_SHARES)[:, None] + np.asarray(log_odds, dtype=np.float64)
    either = np.logaddexp(np.log1p(-_SHARES)[:, None], there)
    weights = softmax(either.sum(axis=1) - np.log(_SHARES) / 2 + 3.5 * np.log1p(-_SHARES))
    return np.asarray(weights @ np.exp(there - either))
