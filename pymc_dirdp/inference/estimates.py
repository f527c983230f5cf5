"""What a release says of counts and shares, without sampling: means, standard deviations and intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.checks import open_unit_interval
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.number_laws import NumberLaws
from pymc_dirdp.inference.posterior import Draws
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.quantiles import Mixture, count_quantiles, share_mixture, share_quantiles
from pymc_dirdp.inference.unknown_total import UnknownTotal

__all__ = ["Estimate", "estimate", "estimate_of_rows", "interval_ends", "summarised"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Summaries of one row, or of rows that follow one another, given an output.

    Attributes
    ----------
    share_means, share_sds, count_means, count_sds : array, shape (d,)
        Means and standard deviations of the shares `p` and of the counts `x`.
    prob : array, shape (m,)
        Probabilities of the intervals.
    share_intervals : array, shape (m, d, 2)
        Central intervals of the shares.
    count_intervals : array of int, shape (m, d, 2)
        Central intervals of the counts, both ends included; they hold at least the stated probability.
    log_evidence : float
        Logarithm of the probability or density of the output.
    """

    share_means: Array
    share_sds: Array
    count_means: Array
    count_sds: Array
    prob: Array
    share_intervals: Array
    count_intervals: Integers
    log_evidence: float


def estimate(law: ProductLaw, prob: Sequence[float] = (0.5, 0.8, 0.95)) -> Estimate:
    """Means, standard deviations and central intervals of the counts and the shares of a row, without sampling.

    Parameters
    ----------
    law : ProductLaw
        The row given an output.
    prob : sequence of float
        Probabilities of the intervals, in (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> z = np.array([3.0, 12.0, 8.0])
    >>> law = ProductLaw(alpha=[1, 1, 1], total=20, log_likelihood=lambda counts, cells: -np.abs(z[cells] - counts) / 2)
    >>> found = estimate(law, prob=[0.95])
    >>> found.share_means.round(3)
    array([0.15 , 0.512, 0.339])
    >>> found.count_intervals[0]
    array([[ 0,  6],
           [ 7, 14],
           [ 3, 10]])
    """
    marginals = law.tilted.marginals
    return _estimate(marginals, share_mixture(marginals, law.alpha, law.total), prob, law.log_evidence)


def estimate_of_rows(rows: Sequence[UnknownTotal], prob: Sequence[float], log_evidence: float) -> Estimate:
    """The same summaries of rows whose totals are not known, without sampling. Cells of all rows follow one another."""
    found = [_estimate(row.counts, row.mixture, prob, log_evidence) for row in rows]

    def joined(field: str, axis: int) -> NDArray[Any]:
        return np.concatenate([getattr(one, field) for one in found], axis=axis)

    return Estimate(
        share_means=joined("share_means", 0),
        share_sds=joined("share_sds", 0),
        count_means=joined("count_means", 0),
        count_sds=joined("count_sds", 0),
        prob=found[0].prob,
        share_intervals=joined("share_intervals", 1),
        count_intervals=joined("count_intervals", 1),
        log_evidence=log_evidence,
    )


def _estimate(counts: NumberLaws, mixture: Mixture, prob: Sequence[float], log_evidence: float) -> Estimate:
    levels, ends = interval_ends(prob)
    means, variances = mixture.moments
    low, high = np.split(share_quantiles(mixture, ends), 2)
    least, most = np.split(count_quantiles(counts, ends), 2)
    return Estimate(
        share_means=means,
        share_sds=np.sqrt(variances),
        count_means=counts.means,
        count_sds=np.sqrt(counts.variances),
        prob=levels,
        share_intervals=np.stack([low, high], axis=-1),
        count_intervals=np.stack([least, most], axis=-1),
        log_evidence=log_evidence,
    )


def summarised(draws: Draws, alpha: Array, prob: Sequence[float], log_evidence: float) -> Estimate:
    """The same summaries of draws, where totals are not known. Cells of all rows follow one another.

    Parameters
    ----------
    draws : Draws
        Of shape `(draws, ..., d)`.
    alpha : array, shape (..., d)
        Prior of the shares.
    prob : sequence of float
        Probabilities of the intervals.
    log_evidence : float
    """
    levels, ends = interval_ends(prob)
    counts, shares = (values.reshape(len(values), -1) for values in (draws.counts, draws.shares))
    # Given its counts the mean and the variance of a share are known, which leaves less to chance.
    first, size = alpha + draws.counts, (alpha + draws.counts).sum(axis=-1, keepdims=True)
    means = (first / size).reshape(len(counts), -1)
    inner = (first * (size - first) / (size**2 * (size + 1))).reshape(len(counts), -1)
    low, high = np.split(np.quantile(shares, ends, axis=0), 2)
    least, most = np.split(np.quantile(counts, ends, axis=0, method="inverted_cdf"), 2)
    return Estimate(
        share_means=means.mean(axis=0),
        share_sds=np.sqrt(inner.mean(axis=0) + means.var(axis=0)),
        count_means=counts.mean(axis=0),
        count_sds=counts.std(axis=0),
        prob=levels,
        share_intervals=np.stack([low, high], axis=-1),
        count_intervals=np.stack([least, most], axis=-1),
        log_evidence=log_evidence,
    )


def interval_ends(prob: Sequence[float]) -> tuple[Array, Array]:
    """Probabilities of intervals, and those of all lower and then all upper ends."""
    if len(prob) == 0:
        raise ArgumentError("Expected prob to hold at least one probability, got none.")
    levels = np.array([open_unit_interval(prob=p) for p in prob])
    return levels, np.concatenate([(1 - levels) / 2, (1 + levels) / 2])
