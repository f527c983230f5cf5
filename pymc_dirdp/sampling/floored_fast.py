"""Intensities above a public floor in floating point: for simulation, and for those who ask for a fast release."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import checked_counts, integer, positive, positive_array
from pymc_dirdp.sampling.floored import cells_at, checked_ceiling

__all__ = ["fast_floored"]


def fast_floored(
    alpha: ArrayLike,
    r: float,
    floor: float,
    counts: ArrayLike,
    *,
    ceiling: float = math.inf,
    draws: int,
    rng: np.random.Generator,
) -> Integers:
    """Cells of the public grid as :func:`pymc_dirdp.sampling.floored.exact_floored` draws them, in floating point.

    Nothing is proved about its last bits. The number of random words that a draw takes, and its time, depend on the
    secret.

    Parameters
    ----------
    alpha, r, floor, counts, ceiling, draws
        Same as in :func:`pymc_dirdp.sampling.floored.exact_floored`.
    rng : numpy.random.Generator
        From :func:`pymc_dirdp.sampling.entropy.generator`.

    Returns
    -------
    cells : array of int, shape (draws, ..., d)

    References
    ----------
    Devroye (1986), Non-Uniform Random Variate Generation, chapter VII.2: rejection from tangents of a log-concave
    density, https://doi.org/10.1007/978-1-4613-8643-8.

    Examples
    --------
    >>> fast_floored([1.0, 1.0], 0.5, 4.0, [3, 10], draws=5, rng=np.random.default_rng(1)).shape
    (5, 2)
    """
    wanted, least, most = positive_array(alpha=alpha, fewest=1), positive(floor=floor), checked_ceiling(floor, ceiling)
    per_record, n_draws = positive(r=r), integer(1, draws=draws)
    shapes = wanted + per_record * checked_counts(counts, wanted.shape)
    a = np.broadcast_to(shapes, (n_draws, *wanted.shape)).ravel()
    logs, left = np.empty(a.size), np.arange(a.size)
    while left.size:
        tries, taken = _tries(a[left], least, most, rng)
        logs[left[taken]] = tries[taken]
        left = left[~taken]
    return cells_at(logs).reshape(-1, *wanted.shape)


def _tries(a: Array, floor: float, ceiling: float, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
    """One try for each number: the logarithm of an intensity over the floor, and whether the try is taken.

    With m the most likely intensity on the logarithmic scale, and `x = log(g / m)`, the log-density of x is
    `h(x) = (a - m) * x - m * (expm1(x) - x)`. It is concave with its maximum 0 at 0. So it is below 0 and below its
    tangents at any two points, one on either side. These points are chosen so that h is about -1 there.
    """
    m = np.clip(a, floor, ceiling)
    slopes = np.array([np.minimum(a - m, 0), np.maximum(a - m, 0)])  # to the right and to the left of 0
    ends = np.array([np.log(ceiling / m), np.log(floor / m)])
    width = 2 / (np.abs(slopes) + np.hypot(slopes, np.sqrt(2 * m)))
    points = np.array([np.minimum(width[0], np.log(2 + 1 / m)), -np.maximum(width[1], 1 / a)])

    def h(x: Array, slope: Array) -> Array:
        log_density: Array = slope * x - m * (np.expm1(x) - x)
        return log_density

    tangents = slopes - m * np.expm1(points)
    # The tangent is 0 at `starts`; from there on outwards it is the bound.
    starts = points - h(points, slopes) / tangents
    edges = np.array([np.minimum(starts[0], ends[0]), np.maximum(starts[1], ends[1])])
    flat = edges[0] - edges[1]
    tails = np.where(starts == edges, 1 / np.abs(tangents), 0)
    place = rng.random(a.size) * (flat + tails.sum(axis=0))
    outwards = _exponential(a.size, rng) / np.abs(tangents)
    right, left = place > flat, place > flat + tails[0]
    x = np.where(left, starts[1] - outwards[1], np.where(right, starts[0] + outwards[0], edges[1] + place))
    with np.errstate(over="ignore"):
        bound = np.where(right, np.where(left, -tangents[1] * outwards[1], tangents[0] * outwards[0]), 0)
        shortfall = bound - h(x, a - m)
    taken = (x >= ends[1]) & (x < ends[0]) & (_exponential(a.size, rng) > shortfall)
    return np.log(m / floor) + x, taken


def _exponential(size: int, rng: np.random.Generator) -> Array:
    """Exponential variables whose last bits are as fine far out as they are near 0.

    A uniform share of the sum of two of them is one of them. The logarithm of a uniform number is coarse far out.
    """
    drawn: Array = rng.random(size) * rng.standard_gamma(2.0, size)
    return drawn
