"""Dirichlet draws on a grid, whose distribution is exact."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import at_least, checked_counts, integer, positive, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.rationals import over_one_power
from pymc_dirdp.sampling.urn import urn

__all__ = [
    "GridShare",
    "default_steps",
    "exact_dirichlet",
    "fewest_steps",
    "grid_share",
    "positive_frequencies",
    "synthetic_counts",
    "urn_counts",
]

# With so many steps the grid adds 1 % to the variance of the draw, and 1 % of the weight to the uniform distribution.
_STEPS_PER_CONCENTRATION, _STEPS_PER_CATEGORY = 100, 50
_FEWEST_STEPS, _MOST_STEPS = 10_000, 10_000_000
# A count that is read off a release may lie so far from a whole number. Rounding moves it by less than 1e-6.
_SLACK = 1e-3


@dataclass(frozen=True)
class GridShare:
    """What the grid of an exact release adds to the error of a Dirichlet draw. Both numbers are public.

    Attributes
    ----------
    weight : float
        `w = d / (2 m + d)`: the mean of a component is `(1 - w) p + w / d`, where p is that of the Dirichlet
        distribution.
    variance : float
        At most `u0 / m`: the variance of a component is `(1 - w)**2 (1 + u0 / m)` times that of the Dirichlet
        distribution.
    """

    weight: float
    variance: float


def grid_share(alpha: ArrayLike, r: float, n_records: int, *, steps: int) -> GridShare:
    """What the grid adds to a Dirichlet draw, for the largest row that `n_records` records can make.

    Parameters
    ----------
    alpha, r, n_records
        Same as in :func:`default_steps`.
    steps : int
        The number of steps of the urn, `m`.

    Returns
    -------
    share : GridShare

    References
    ----------
    Theory, section 11: the counts of the urn have mean `m p` and variance `m p (1 - p) (u0 + m) / (u0 + 1)`.

    Examples
    --------
    >>> grid_share([1, 1], 0.5, 196, steps=10_000).variance
    0.01
    """
    wanted, m = positive_array(alpha=alpha, fewest=1), integer(1, steps=steps)
    d = wanted.shape[-1]
    return GridShare(weight=d / (2 * m + d), variance=_largest_concentration(wanted, r, n_records) / m)


def default_steps(alpha: ArrayLike, r: float, n_records: int) -> int:
    """The number of synthetic records whose grid adds at most 1 % to the variance of a Dirichlet draw.

    Parameters
    ----------
    alpha : array_like, shape (..., d)
        Prior parameters, positive.
    r : float
        Concentration, positive.
    n_records : int
        A **public** number of records: N under replace-one, a guess under add-remove. Row totals are secret.

    Returns
    -------
    steps : int
        The largest of 10,000, `50 * d` and `100 * (r * n_records + largest row sum of alpha)`. The last is cut at
        10,000,000, because steps take time. Where a row's `u0` is above 100,000 the grid adds more than 1 %, the share
        `u0 / steps` of :func:`grid_share`.
    """
    wanted = positive_array(alpha=alpha, fewest=1)
    finer = min(_MOST_STEPS / _STEPS_PER_CONCENTRATION, _largest_concentration(wanted, r, n_records))
    return max(math.ceil(_STEPS_PER_CONCENTRATION * finer), fewest_steps(wanted.shape[-1]))


def fewest_steps(d: int) -> int:
    """The least default for rows of d categories, with which the weight of the grid is 1 %."""
    return max(_STEPS_PER_CATEGORY * d, _FEWEST_STEPS)


def synthetic_counts(alpha: ArrayLike, r: float, counts: ArrayLike, *, steps: int, draws: int, bits: Bits) -> Integers:
    """Tables of synthetic records, each row a Multinomial of its own draw from `Dirichlet(r * counts + alpha)`.

    The doubles `alpha` and `r` are used as the rational numbers that they are: nothing is rounded on the way, so the
    distribution is that of the pair given, to the last bit.

    Parameters
    ----------
    alpha : array_like, shape (..., d)
        Prior parameters, positive.
    r : float
        Concentration, positive.
    counts : array_like of whole numbers, shape of `alpha`
        They are secret, and errors never show them.
    steps : int
        Records in every row of the synthetic table, at least 1. Must be public.
    draws : int
        Number of independent draws. A guarantee is for one of them.
    bits : Bits
        The source of randomness.

    Returns
    -------
    synthetic : array of int, shape (draws, ..., d)
        Each row adds up to `steps`. A draw is a function of `y` and chance, so it has the guarantee of `y`.

    Raises
    ------
    DataError
        If the counts are not integers of that shape, or above 2**53. No smaller count is refused for its size,
        because that would tell about the data.

    References
    ----------
    Theory, section 11.
    """
    wanted = positive_array(alpha=alpha, fewest=1)
    whole = checked_counts(counts, wanted.shape).astype(np.int64).astype(object)
    # Priors are public, and most of them have few different entries.
    distinct, which = np.unique(wanted, return_inverse=True)
    (per_record, *prior), digits = over_one_power([positive(r=r), *distinct.tolist()])
    weights = per_record * whole + np.array(prior, dtype=object)[which.reshape(wanted.shape)]
    rows = weights.reshape(-1, wanted.shape[-1])
    table = urn(rows, digits, steps=integer(1, steps=steps), draws=integer(1, draws=draws), bits=bits)
    return table.reshape(-1, *wanted.shape)


def exact_dirichlet(alpha: ArrayLike, r: float, counts: ArrayLike, *, steps: int, draws: int, bits: Bits) -> Array:
    """Dirichlet draws on a grid: the :func:`positive_frequencies` of :func:`synthetic_counts`, with its arguments.

    Returns
    -------
    y : array, shape (draws, ..., d)
        :func:`grid_share` compares its mean and variance with those of the Dirichlet distribution.
    """
    return positive_frequencies(synthetic_counts(alpha, r, counts, steps=steps, draws=draws, bits=bits), steps)


def positive_frequencies(synthetic: Integers, steps: int) -> Array:
    """Frequencies `(2 c + 1) / (2 m + d)` of the counts c of an urn of m steps: a positive and public map of them.

    With 1/2 added, the mean of `log(c + 1/2)` given y is `log(m y) + 1 / (2 m)` up to the order `1 / (m y)**2`. The
    second term is the same for all categories and cancels in their ratios.

    Parameters
    ----------
    synthetic : array of int, shape (..., d)
        Each row adds up to `steps`.
    steps : int
        The number of steps of the urn, public.

    Returns
    -------
    y : array, shape (..., d)
        Positive; each row sums to 1 up to rounding. :func:`urn_counts` is the inverse.
    """
    y: Array = (2 * synthetic + 1) / (2 * steps + synthetic.shape[-1])
    return y


def urn_counts(y: ArrayLike, steps: int) -> Integers:
    """The counts of the urn behind an exact release: the inverse of :func:`positive_frequencies`.

    Inference from a release uses these counts, whose distribution given the data is exactly Dirichlet-multinomial.

    Parameters
    ----------
    y : array_like, shape (..., d)
        All components of the release; those of a Beta variable are its two probabilities.
    steps : int
        The number of steps of the urn, as stated in the release.

    Returns
    -------
    counts : array of int, shape (..., d)
        Each row adds up to `steps`.

    Raises
    ------
    ArgumentError
        If `y` does not lie on the grid of so many steps.

    Examples
    --------
    >>> urn_counts([0.375, 0.625], steps=3)
    array([1, 2])
    """
    released = positive_array(y=y, fewest=1)
    m = integer(1, steps=steps)
    places = ((2 * m + released.shape[-1]) * released - 1) / 2
    counts = np.round(places)
    if np.any(np.abs(places - counts) > _SLACK) or np.any(counts.sum(axis=-1) != m):
        raise ArgumentError(
            f"y is not on the grid of an exact release with steps={m}. Take steps from the release, and all components "
            "of each row."
        )
    whole: Integers = counts.astype(np.int64)
    return whole


def _largest_concentration(alpha: Array, r: float, n_records: int) -> float:
    return float(alpha.sum(axis=-1).max()) + positive(r=r) * at_least(0, n_records=n_records)
