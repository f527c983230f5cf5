"""Rules to combine estimates from several synthetic data sets."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import numbers_or_none, open_unit_interval, positive
from pymc_dirdp.errors import ArgumentError


@final
@dataclass(frozen=True, eq=False)
class Combined:
    """An estimate from several synthetic data sets, with its error.

    Attributes
    ----------
    estimate : array
        The mean of the estimates.
    variance : array
        The variance of the estimate, as an estimate of the population quantity.
    degrees_of_freedom : array
        Degrees of freedom of the t distribution of the intervals.

    Examples
    --------
    >>> from pymc_dirdp.papers import combine
    >>> combined = combine([0.31, 0.33, 0.29], [1e-4, 1e-4, 1e-4])
    >>> round(float(combined.estimate), 3)
    0.31
    """

    estimate: Array
    variance: Array
    degrees_of_freedom: Array

    def interval(self, prob: float = 0.95) -> tuple[Array, Array]:
        """The ends of the central interval with this probability."""
        prob = open_unit_interval(prob=prob)
        half = t.ppf((1 + prob) / 2, self.degrees_of_freedom) * np.sqrt(self.variance)
        return self.estimate - half, self.estimate + half


def combine(estimates: ArrayLike, variances: ArrayLike, *, records_ratio: float = 1.0) -> Combined:
    """Combine the estimates of a tool from several fully synthetic data sets.

    Let `q_1, ..., q_m` be the estimates, `u_1, ..., u_m` their stated variances, `B` the variance of the estimates
    between sets (with divisor `m - 1`), and `U` the mean of the `u`. The combined estimate is the mean of the `q`, and
    its variance is `T = (1 + 1/m) B - U`.

    Parameters
    ----------
    estimates : array_like, shape (m, ...)
        The estimate from each set of :func:`pymc_dirdp.synthetic`; at least two sets.
    variances : array_like, shape (m, ...)
        The variance of each estimate, as if the set were data, which is the square of its standard error.
    records_ratio : float, default 1
        The number of synthetic records in a set over the number of records. Used only if `T` is not positive.

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
    With few sets the difference `T` is sometimes not positive. Then the variance is `records_ratio * U`, the adjustment
    of Reiter (2002), and the degrees of freedom are `m - 1`, which is a choice of this library. Otherwise they are
    `(m - 1) (1 - U / ((1 + 1/m) B))**2`. The rules work well with at least twenty sets. The intervals of
    :func:`pymc_dirdp.estimate` do not need them.

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
