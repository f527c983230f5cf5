"""Hellinger distance of Dirichlet distributions, to full precision also between neighbours of large data sets."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import positive_array

__all__ = ["AffinityRows", "affinity_loss", "distance_of", "hellinger_distance"]


_HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)
# For numbers from here on, six terms of Stirling's series are exact to rounding.
_LARGE = 12.0
# In floating point sqrt(1 - exp(-40)) is 1.
_APART = 40.0


def hellinger_distance(first: ArrayLike, second: ArrayLike) -> Array | float:
    """Hellinger distance of `Dirichlet(first)` and `Dirichlet(second)`, between 0 and 1.

    Parameters
    ----------
    first, second : array_like, shape (..., d)
        Concentrations, positive, broadcast against each other; `d = 2` is the Beta distribution.

    Returns
    -------
    distance : float or array, shape (...)
        Within 1e-12 relative where the totals are equal.

    References
    ----------
    P4, section 4.2: `H**2 = 1 - B((a + b) / 2) / sqrt(B(a) B(b))`.

    Examples
    --------
    >>> hellinger_distance([7501, 7501], [7502, 7500])
    0.0057732...
    """
    a, b = positive_array(first=first), positive_array(second=second)
    loss = affinity_loss(a, b).sum(axis=-1) - affinity_loss(a.sum(axis=-1), b.sum(axis=-1))
    # If the totals differ, rounding may make the loss negative.
    distance = distance_of(np.maximum(loss, 0.0))
    return distance if distance.ndim else float(distance)


def distance_of(loss: Array) -> Array:
    """The distance whose affinity, `1 - distance**2`, is `exp(-loss)`."""
    distance: Array = np.sqrt(-np.expm1(-loss))
    return distance


def affinity_loss(a: ArrayLike, b: ArrayLike) -> Array:
    """`[log Gamma(a) + log Gamma(b)] / 2 - log Gamma((a + b) / 2)` for positive a and b: never negative.

    The logarithms of the gamma function cancel almost wholly where a and b are large and near, so they are written by
    Stirling's formula, and what cancels is cancelled on paper (Theory, section 13).
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    mean = (a + b) / 2
    loss: Array = np.maximum(_bulk(a, b, mean) + (_remainder(a) + _remainder(b)) / 2 - _remainder(mean), 0.0)
    return loss


def _bulk(a: Array, b: Array, mean: Array) -> Array:
    """The loss if `log Gamma(z)` were `(z - 1/2) log z`; the linear terms cancel."""
    half = (b - a) / 2
    u = half / mean
    near = np.abs(u) < 0.5
    u = np.where(near, u, 0.0)
    falls = np.where(near, np.log1p(-u * u), np.log(a / mean) + np.log(b / mean))
    turns = np.where(near, np.arctanh(u), np.log(b / a) / 2)
    bulk: Array = (mean - 0.5) * falls / 2 + half * turns
    return bulk


def _remainder(z: Array) -> Array:
    """`log Gamma(z) - [(z - 1/2) log z - z + log(2 pi) / 2]`."""
    large = np.maximum(z, _LARGE)
    w = 1 / large**2
    series = (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w * (1 / 1188 - w * 691 / 360360))))) / large
    small = np.minimum(z, _LARGE)
    direct = gammaln(small) - ((small - 0.5) * np.log(small) - small + _HALF_LOG_2PI)
    return np.where(z >= _LARGE, series, direct)


class AffinityRows:
    """The loss between `prior + i` and `prior + j`, for integers from 0 to n: a row i at a time.

    What does not depend on the pair is kept, and what is beyond any floating-point difference is not computed, so that
    all rows of n = 15,000 take seconds.

    Parameters
    ----------
    prior : float
        Positive.
    n : int
        Number of records.
    """

    def __init__(self, prior: float, n: int) -> None:
        self._points = prior + np.arange(2 * n + 1) / 2
        self._remainders = _remainder(self._points)
        self._values = self._points[::2]
        rows = np.arange(n + 1)
        self._first, self._last = self._reach(rows, 0), self._reach(rows, n)

    def row(self, i: int) -> Array:
        """Shape `(n + 1,)`; `inf` where the affinity is 0 to rounding."""
        first, last = self._first[i], self._last[i]
        loss = np.full(len(self._values), np.inf)
        loss[first : last + 1] = self._between(np.asarray(i), np.arange(first, last + 1))
        return loss

    def _between(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> Array:
        bulk = _bulk(self._values[i], self._values[j], self._points[i + j])
        kept = (self._remainders[2 * i] + self._remainders[2 * j]) / 2 - self._remainders[i + j]
        loss: Array = np.maximum(bulk + kept, 0.0)
        return loss

    def _reach(self, rows: NDArray[np.intp], end: int) -> NDArray[np.intp]:
        """How far from each row towards `end` the loss, which grows with the distance, stays finite; by bisection."""
        near, far = rows, np.full_like(rows, end)
        while np.any(np.abs(far - near) > 1):
            middle = (near + far) // 2
            inside = self._between(rows, middle) < _APART
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        return far
