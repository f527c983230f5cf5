"""The scales of effects, learned from how large the effects are and how many of them the measurements tell."""

from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array

__all__ = ["SCALES", "Shrinkage"]

SCALES = np.array([0.0, 2.0, 0.5, 0.2, 0.1])
"""The scale of an effect of no, one, two, three, and more variables before anything is known."""

# How many coordinates of that size this counts for. The scales of the effects of one order are around a common one,
# which counts for as many.
_WORTH = 10.0
# The scales have settled when their logarithms change by less on average over what the measurements tell.
_SETTLED = 0.03


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
        order, of_all, told = (
            np.concatenate([found[name] for name in self._orders]) for found in (self._orders, squares, known)
        )
        lengths = np.bincount(order, of_all, len(SCALES)) + _WORTH * SCALES**2
        common = lengths / (np.bincount(order, told, len(SCALES)) + _WORTH)
        change = 0.0
        for name, own in self._orders.items():
            scales = np.sqrt((squares[name] + _WORTH * common[own]) / (known[name] + _WORTH))
            scales[own == 0] = 0.0
            moved = own > 0
            change += float(np.sum(known[name][moved] * np.abs(np.log(scales[moved] / self.scales[name][moved]))))
            self.scales[name] = scales
        return change <= _SETTLED * max(1.0, float(told[order > 0].sum()))
