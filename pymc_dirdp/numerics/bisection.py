"""Bisection of many ranges at once."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array

__all__ = ["last_inside"]

# A few ranges take as long at many points as at one. So up to so many points are looked at together.
_TOGETHER, _MOST_PARTS = 512, 16


def last_inside(
    inside: Callable[[Array], NDArray[np.bool_]], start: Array, end: Array, halvings: int = 16
) -> tuple[Array, Array]:
    """The parts of some ranges in which a condition ends that holds up to there.

    Parameters
    ----------
    inside : callable
        Takes points of shape (k, n), a column for each range, and says which are inside: those up to some point.
    start, end : array, shape (n,)
        The ranges. No end is taken to be inside, and no start outside.
    halvings : int
        Each range is cut to a share of ``2**-halvings`` of it, or less.

    Returns
    -------
    low, high : array, shape (n,)
        The condition ends between them.

    Examples
    --------
    >>> low, high = last_inside(lambda x: x**2 < 2, np.array([0.0]), np.array([2.0]), 30)
    >>> bool(low[0] <= math.sqrt(2) <= high[0])
    True
    """
    doublings = int(math.log2(min(max(_TOGETHER // max(start.size, 1), 2), _MOST_PARTS)))
    inner = np.arange(1, 2**doublings)[:, None] / 2**doublings
    for _ in range(math.ceil(halvings / doublings)):
        width = end - start
        start = start + width * (inside(start + width * inner).sum(axis=0) / 2**doublings)
        end = start + width / 2**doublings
    return start, end
