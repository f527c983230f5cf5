"""What papers compare with: noise on counts, and rules that put results of synthetic data together."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, integer, numbers_or_none, open_unit_interval, positive
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.noisy_counts import frequencies, postprocessed
from pymc_dirdp.numerics.roots import last_safe, log_excess

__all__ = ["Combined", "combine", "p1_equation_12", "p1_gaussian_sigma", "p1_laplace_renyi", "p1_laplace_scale"]

# P1's baselines of section 5: noise on counts, and the maximum likelihood of what comes out.
#
# The noise is right for its guarantee, or larger than needed. What makes P1's baselines look poor is the clipping at
# 1e-6, after which an empty cell has next to no probability: see :func:`pymc_dirdp.compare`.


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
        P1 takes the l1 sensitivity of counts under replace-one, as if one number changed by 2. Two numbers that change
        by 1 lose twice what this function gives for `sensitivity=1`, which is less (ERRATA P1.11).

    Examples
    --------
    >>> one_number = p1_laplace_renyi(order=5, scale=10.0)
    >>> two_numbers = 2 * p1_laplace_renyi(order=5, scale=10.0, sensitivity=1.0)
    >>> round(one_number, 4), round(two_numbers, 4)
    (0.0841, 0.0469)
    """
    u, order = positive(sensitivity=sensitivity) / positive(scale=scale), at_least(1, order=order)
    # exp((order - 1) D) is [order exp((order - 1) u) + (order - 1) exp(-order u)] / (2 order - 1).
    if order == math.inf:
        return u
    if order == 1:
        return _second_order(-u)
    if order * u > 1:
        # The larger term is taken out.
        return u + math.log1p((order - 1) / (2 * order - 1) * math.expm1(-(2 * order - 1) * u)) / (order - 1)
    # The constant and linear terms of both exponentials cancel; what is left of them is positive.
    more = order * _second_order((order - 1) * u) + (order - 1) * _second_order(-order * u)
    return math.log1p(more / (2 * order - 1)) / (order - 1)


def _second_order(x: float) -> float:
    """`exp(x) - 1 - x`, without cancellation."""
    if abs(x) > 0.5:
        return math.expm1(x) - x
    return math.fsum(x**k / math.factorial(k) for k in range(2, 18))


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


# Rules for combining estimates from several synthetic data sets into one.


@final
@dataclass(frozen=True, eq=False)
class Combined:
    """An estimate from several synthetic data sets, with its error.

    Attributes
    ----------
    estimate : array
        The mean of the estimates.
    variance : array
        Its variance, about the quantity behind the data.
    degrees_of_freedom : array
        Of the t distribution that intervals are taken from.

    Examples
    --------
    >>> from pymc_dirdp.papers import combine
    >>> found = combine([0.31, 0.33, 0.29], [1e-4, 1e-4, 1e-4])
    >>> round(float(found.estimate), 3)
    0.31
    """

    estimate: Array
    variance: Array
    degrees_of_freedom: Array

    def interval(self, prob: float = 0.95) -> tuple[Array, Array]:
        """The ends of the central interval of this probability."""
        prob = open_unit_interval(prob=prob)
        half = t.ppf((1 + prob) / 2, self.degrees_of_freedom) * np.sqrt(self.variance)
        return self.estimate - half, self.estimate + half


def combine(estimates: ArrayLike, variances: ArrayLike, *, records_ratio: float = 1.0) -> Combined:
    """Combine what a tool says of each of several fully synthetic data sets.

    With `q_1, ..., q_m` the estimates, `u_1, ..., u_m` the variances that the tool states for them, `B` the variance
    of the estimates among sets (with divisor `m - 1`) and `U` the mean of the `u`, the estimate is the mean of the `q`
    and its variance `T = (1 + 1/m) B - U`.

    Parameters
    ----------
    estimates : array_like, shape (m, ...)
        One for each set of :func:`pymc_dirdp.synthetic`; at least two sets.
    variances : array_like, shape (m, ...)
        The variance of each estimate, as if the set were data: the square of its standard error.
    records_ratio : float, default 1
        Records in a synthetic set for each record of the data. Needed only where `T` is not positive.

    Returns
    -------
    combined : Combined
        Estimate, variance, degrees of freedom and intervals.

    Raises
    ------
    ArgumentError
        If there are fewer than two sets, the shapes differ, or a variance is negative.

    Notes
    -----
    `T` is a difference, and not positive now and then where there are few sets. Then the variance is
    `records_ratio * U`, the adjustment of Reiter (2002), and the degrees of freedom are `m - 1`, which is a choice of
    this library. Otherwise they are `(m - 1) (1 - U / ((1 + 1/m) B))**2`. With twenty sets and more the rules work
    well; the intervals of :func:`pymc_dirdp.estimate` need none of this.

    References
    ----------
    Raghunathan, Reiter and Rubin (2003), Multiple imputation for statistical disclosure limitation, Journal of Official
    Statistics 19, 1-16. Reiter (2002), Satisfying disclosure restrictions with synthetic data sets, Journal of Official
    Statistics 18, 531-543.

    Examples
    --------
    >>> combined = combine([0.31, 0.35, 0.28, 0.36], [0.0002, 0.0002, 0.0002, 0.0002])
    >>> combined.estimate.round(3), combined.variance.round(6)
    (np.float64(0.325), np.float64(0.001508))
    """
    q, u = numbers_or_none(estimates), numbers_or_none(variances)
    ratio = positive(records_ratio=records_ratio)
    if q is None or u is None or q.ndim == 0 or len(q) < 2 or q.shape != u.shape:
        raise ArgumentError("Expected estimates and variances as numbers of one shape (m, ...), for at least two sets.")
    if not (np.all(np.isfinite(q)) and np.all(np.isfinite(u) & (u >= 0))):
        raise ArgumentError("Expected finite estimates, and variances that are finite and at least 0.")
    m = len(q)
    between, within = (1 + 1 / m) * q.var(axis=0, ddof=1), u.mean(axis=0)
    positive_difference = between > within
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = np.where(positive_difference, (m - 1) * (1 - within / between) ** 2, m - 1)
    variance = np.where(positive_difference, between - within, ratio * within)
    return Combined(q.mean(axis=0), variance, degrees)
