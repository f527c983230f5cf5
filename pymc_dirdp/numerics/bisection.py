"""Roots in many ranges at once."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers

__all__ = ["last_inside", "sign_changes"]

# A few ranges take as long at many points as at one. So up to so many points are looked at together.
_TOGETHER, _MOST_PARTS = 512, 16
# A step of Newton's that ends on the near side of a root closes no range, so each aims by this share of the wanted
# width beyond it. Where so many steps did not close a range, it is halved.
_BEYOND, _NEWTON_STEPS = 0.45, 12


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


def sign_changes(
    f: Callable[[Array, Integers], tuple[Array, Array]], low: Array, high: Array, guess: Array, width: Array
) -> tuple[Array, Array]:
    """Narrow ranges in which functions fall through 0, by Newton's steps and by halves.

    Parameters
    ----------
    f : callable
        Takes points of shape (k,) and the numbers of their ranges, and returns the values and the derivatives there.
    low, high : array, shape (n,)
        Each function is positive up to its root and not beyond. If it is not positive at `low`, the result is that
        point; no `high` is taken to be positive.
    guess : array, shape (n,)
        About where the roots are; the result does not depend on it but for rounding and within `width`.
    width : array, shape (n,)
        How wide a range may be at the end, positive.

    Returns
    -------
    low, high : array, shape (n,)
        Each sign was seen: the function is positive at `low`, unless that is the first one, and not at `high`.

    Examples
    --------
    >>> low, high = sign_changes(lambda x, of: (2 - x**2, -2 * x), *np.array([[0.0], [2.0], [1.0], [1e-9]]))
    >>> bool(low[0] <= math.sqrt(2) <= high[0] <= low[0] + 1e-9)
    True
    """
    low, high, seen = low.copy(), high.copy(), np.zeros(low.shape, dtype=bool)
    x = np.where((guess > low) & (guess < high), guess, low)
    left, steps = np.flatnonzero(high - low > width), 0
    while len(left):
        at = x[left]
        values, slopes = f(at, left)
        positive = values > 0
        low[left[positive]], high[left[~positive]] = at[positive], at[~positive]
        seen[left] |= positive
        with np.errstate(divide="ignore", invalid="ignore"):
            aim = at - values / slopes + np.where(positive, _BEYOND, -_BEYOND) * width[left]
        steps += 1
        useful = (aim > low[left]) & (aim < high[left]) & (steps < _NEWTON_STEPS)
        x[left] = np.where(useful, aim, (low[left] + high[left]) / 2)
        # Nothing may be positive: then the first point settles it.
        first = ~useful & ~seen[left] & (steps < _NEWTON_STEPS)
        x[left[first]] = low[left[first]]
        # Two neighbouring doubles have no number between them.
        left = left[(high - low > width)[left] & (first | ((low < x) & (x < high))[left])]
    return low, high
