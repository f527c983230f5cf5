"""P1's baselines of section 5: noise on counts, and the maximum likelihood of what comes out.

The noise is right for its guarantee, or larger than needed. What makes P1's baselines look poor is the clipping at
1e-6, after which an empty cell has next to no probability: see :func:`pymc_dirdp.compare`.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, integer, numbers_or_none, positive
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.laplace import LaplaceMechanism
from pymc_dirdp.mechanisms.postprocess import frequencies, postprocessed
from pymc_dirdp.numerics.roots import last_safe, log_excess

__all__ = ["p1_equation_12", "p1_gaussian_sigma", "p1_laplace_renyi", "p1_laplace_scale"]


def p1_equation_12(noisy_counts: ArrayLike) -> Array:
    """Noisy maximum likelihood: noisy counts, clipped at 1e-6, over the totals of their rows.

    Equation 12 has no clipping, and a negative count would give it a negative probability. P1 clips at 1e-6 (ERRATA
    P1.6).

    Parameters
    ----------
    noisy_counts : array_like, shape (..., d)
        Finite numbers.

    Returns
    -------
    shares : array, shape (..., d)
        Each row adds up to 1.

    Examples
    --------
    >>> p1_equation_12([3.2, -0.7, 0.8]).tolist()
    [0.79999..., 2.49999...e-07, 0.19999...]
    """
    noisy = numbers_or_none(noisy_counts)
    if noisy is None or noisy.ndim == 0 or noisy.size == 0:
        raise ArgumentError("Expected noisy_counts to be an array of numbers with the categories in its last axis.")
    if not np.all(np.isfinite(noisy)):
        raise DataError("Expected all noisy_counts to be finite.")
    return frequencies(postprocessed(noisy, "clip", noise=0.0))


def p1_gaussian_sigma(*, order: float, epsilon: float, tables: int = 1) -> float:
    """The standard deviation of P1's Gaussian baseline, `sqrt(order * tables / epsilon)`.

    With it each of the tables has an equal part of `(order, epsilon)`-Rényi differential privacy, for counts under
    replace-one. It is exact.

    Parameters
    ----------
    order : float
        Rényi order, at least 1.
    epsilon : float
        Of all tables together, in nats, positive.
    tables : int, default 1
        P1's K nodes, or `K + 1` for naive Bayes.

    Examples
    --------
    >>> p1_gaussian_sigma(order=5, epsilon=0.2, tables=10) ** 2
    250.0...
    """
    return math.sqrt(at_least(1, order=order) * integer(1, tables=tables) / positive(epsilon=epsilon))


def p1_laplace_renyi(*, order: float, scale: float, sensitivity: float = 2.0) -> float:
    """The Rényi divergence of Laplace noise on one number (Mironov 2017, Corollary 2).

    Parameters
    ----------
    order : float
        At least 1.
    scale : float
        Of the noise, positive.
    sensitivity : float, default 2
        P1 takes the l1 sensitivity of counts under replace-one, as if one number moved by 2. Two numbers that move by 1
        lose twice what this function gives for `sensitivity=1`, which is less (ERRATA P1.11).

    Examples
    --------
    >>> one_number = p1_laplace_renyi(order=5, scale=10.0)
    >>> two_numbers = 2 * p1_laplace_renyi(order=5, scale=10.0, sensitivity=1.0)
    >>> round(one_number, 4), round(two_numbers, 4)
    (0.0841, 0.0469)
    """
    ratio = positive(scale=scale) / positive(sensitivity=sensitivity)
    # A record more in one cell moves one number by 1.
    return LaplaceMechanism(np.ones(2), ratio, adjacency="add-remove").renyi(at_least(1, order=order))


def p1_laplace_scale(*, order: float, epsilon: float, tables: int = 1, sensitivity: float = 2.0) -> float:
    """The scale of P1's Laplace baseline: the least with which each table has its part of the Rényi guarantee.

    Parameters
    ----------
    order, epsilon, tables
        Same as in :func:`p1_gaussian_sigma`. P1 says `tables = K` for naive Bayes here, and `K + 1` for the other
        mechanisms (ERRATA P1.3).
    sensitivity : float, default 2
        Same as in :func:`p1_laplace_renyi`.

    Examples
    --------
    >>> round(p1_laplace_scale(order=5, epsilon=0.2, tables=10), 3)
    21.736
    """
    part = positive(epsilon=epsilon) / integer(1, tables=tables)

    def excess(scale: float) -> float:
        return log_excess(p1_laplace_renyi(order=order, scale=scale, sensitivity=sensitivity), part)

    # The loss is at most sensitivity / scale, and it falls as the scale grows.
    return last_safe(excess, start=positive(sensitivity=sensitivity) / part, factor=0.5)
