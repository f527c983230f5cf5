"""Where the intensities of uniform numbers lie, in floating point: the guesses from which exact draws start."""

import math

import numpy as np
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

from pymc_dirdp.arrays import Array

__all__ = ["guesses"]

# A probability below it is too close to the smallest double to be inverted.
_TINY = 1e-280


def guesses(u: Array, a: Array, floor: float, ceiling: float) -> Array:
    """`log(g / floor)` about where `P[G >= g]` is u. Nothing is guaranteed about its error.

    Parameters
    ----------
    u : array, shape (draws, cells)
        Between 0 and 1.
    a : array, shape (cells,)
        Shapes of the truncated Gamma distributions.
    floor, ceiling : float

    Returns
    -------
    logs : array, shape (draws, cells)
        Finite. Where `a` is far above the ceiling the error is about `ceiling / (a - ceiling)**2` of itself, and
        elsewhere about 1e-13.

    Examples
    --------
    >>> guesses(np.array([[0.5]]), np.array([1.0]), 8.0, math.inf).round(6) == round(math.log1p(math.log(2) / 8), 6)
    array([[ True]])
    """
    with np.errstate(all="ignore"):
        above, beyond = gammaincc(a, floor), gammaincc(a, ceiling)
        under, within = gammainc(a, floor), gammainc(a, ceiling)
        q, p = beyond + u * (above - beyond), within - u * (within - under)
        logs = np.log(np.where(q < p, gammainccinv(a, q), gammaincinv(a, p)) / floor)
        # Where the law lies so far out in a tail that doubles do not hold its probability, it is all but exponential.
        logs = np.where(within < _TINY, math.log(ceiling / floor) + np.log1p(-u) / (a - ceiling), logs)
        far = above < _TINY
        if np.any(far):
            logs[:, far] = _far_out(u[:, far], a[far], floor, ceiling)
    finite: Array = np.nan_to_num(logs, posinf=0, neginf=0)
    return finite


def _far_out(u: Array, a: Array, floor: float, ceiling: float) -> Array:
    """`log(g / floor)` about where `P[G >= g]` is u, for a floor far above `a`: Newton's steps for its logarithm.

    `Gamma(a, g) = g**a * exp(-g) / f(g)`, where f is the even part of the continued fraction of DLMF 8.9.2.
    """

    def f(g: Array | float) -> Array:
        fraction: Array = g + 41 - a
        for k in range(20, 0, -1):
            fraction = g + 2 * k - 1 - a - k * (k - a) / fraction
        return fraction

    def log_tail(y: Array | float) -> Array:
        tail: Array = a * np.log1p(y / floor) - y - np.log(f(floor + y) / at_floor)
        return tail

    at_floor = f(floor)
    beyond = np.exp(log_tail(ceiling - floor)) if ceiling < math.inf else 0.0
    wanted = np.log(u + (1 - u) * beyond)
    y = -wanted * floor / at_floor
    for _ in range(6):
        y = np.maximum(y + (log_tail(y) - wanted) * (floor + y) / f(floor + y), 0)
    logs: Array = np.log1p(y / floor)
    return logs
