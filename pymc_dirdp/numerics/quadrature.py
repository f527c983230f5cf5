"""Gauss-Legendre rules on graded panels, for integrands that are smooth between known breakpoints."""

import math
from collections.abc import Callable

import numpy as np

from pymc_dirdp.arrays import Array

__all__ = ["bulk_breaks", "graded_breaks", "inner", "integrate", "nodes"]

# With 14 nodes on a panel whose nearest singularity is one panel length away the error is about 5.8**-28 = 4e-22.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(14)
# The longest panel of a density, in standard deviations.
_BULK_PANEL = 0.5


def integrate(f: Callable[[Array], Array], breaks: Array) -> float:
    """Integral of `f` over `[breaks[0], breaks[-1]]`, by one Gauss-Legendre rule a panel; `f` is called once.

    Parameters
    ----------
    f : callable
        Takes and returns arrays of shape `(panels, nodes)`.
    breaks : array, shape (panels + 1,)
        Increasing. `f` is smooth inside each panel, with its singularities at least about a panel's length away.
    """
    half = (breaks[1:, None] - breaks[:-1, None]) / 2
    # The sum over each panel comes first, so that small panels are not lost.
    return float(np.sum(np.sum(f(breaks[:-1, None] + half * (1 + _NODES)) * (half * _WEIGHTS), axis=1)))


def nodes(breaks: Array) -> tuple[Array, Array]:
    """Nodes and weights of the rules on all panels, each of shape `(panels * 14,)`."""
    half = (breaks[1:, None] - breaks[:-1, None]) / 2
    points: Array = breaks[:-1, None] + half * (1 + _NODES)
    weights: Array = half * _WEIGHTS
    return points.ravel(), weights.ravel()


def inner(values: Array, weights: Array) -> float:
    """The sum of the products, in one thread.

    `@` wakes the threads of a BLAS library for some ten thousand numbers, which takes longer than the sum, and adds
    them in an order that depends on the number of threads.
    """
    return float(np.add.reduce(values * weights))


def graded_breaks(gap: float, length: float) -> Array:
    """Breakpoints of `[0, length]` for an integrand with its nearest singularity at `-gap`.

    Each panel is at most as long as its distance from the singularity. The first breakpoint is exactly 0 and the last
    exactly `length`, however small `length / gap` is.
    """
    if length <= gap:
        return np.array([0.0, length])
    panels = math.ceil(math.log2(1 + length / gap))
    breaks: Array = gap * np.expm1(math.log1p(length / gap) * (np.arange(panels + 1) / panels))
    breaks[0], breaks[-1] = 0.0, length
    return breaks


def bulk_breaks(gap: float, length: float) -> Array:
    """Breakpoints of `[0, length]` for a density in units of its standard deviation: panels of 1/2, graded towards 0.

    `gap` is the distance of the nearest singularity from 0, as in :func:`graded_breaks`.
    """
    if length <= _BULK_PANEL:
        return graded_breaks(gap, length)
    return np.concatenate([graded_breaks(gap, _BULK_PANEL), np.arange(2 * _BULK_PANEL, length, _BULK_PANEL), [length]])
