"""Dirichlet draws on a grid, whose law is exact."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.checks import at_least, integer, positive, positive_array
from pymc_dirdp.errors import DataError
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.rationals import Rationals
from pymc_dirdp.sampling.urn import row_totals, urn

__all__ = ["default_steps", "exact_dirichlet", "synthetic_counts"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# The grid adds 1 % to the variance of the draw.
_STEPS_PER_CONCENTRATION = 100
_FEWEST_STEPS, _MOST_STEPS = 10_000, 10_000_000


def default_steps(alpha: ArrayLike, r: float, n_records: int) -> int:
    """How many synthetic records make a grid that adds at most 1 % to the variance of a Dirichlet draw.

    A component with mean `p` of a row with total concentration `u0` has variance `p (1 - p) / (u0 + 1)`. On a grid of
    `1 / steps` it is larger by the factor `1 + u0 / steps`.

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
        `100 * (r * n_records + largest row sum of alpha)`, but 10,000 at least, because steps are cheap, and
        10,000,000 at most, because they are not free. Where a row's `u0` is above 100,000 the grid adds more than 1 %:
        the share `u0 / steps`.
    """
    largest = float(positive_array(alpha=alpha).sum(axis=-1).max())
    largest += positive(r=r) * at_least(0, n_records=n_records)
    return min(max(math.ceil(_STEPS_PER_CONCENTRATION * largest), _FEWEST_STEPS), _MOST_STEPS)


def synthetic_counts(rationals: Rationals, counts: ArrayLike, *, draws: int, bits: Bits) -> Integers:
    """Tables of synthetic records, each row `Multinomial(steps, y)` of its own Dirichlet draw `y`.

    Parameters
    ----------
    rationals : Rationals
        `alpha`, `r` and `steps`, from :func:`pymc_dirdp.sampling.rationals.rounded`.
    counts : array_like of whole numbers, shape of `alpha`
        The secret. Errors never show it.
    draws : int
        Number of independent draws. A guarantee is for one of them.
    bits : Bits
        Where the randomness comes from.

    Returns
    -------
    synthetic : array of int, shape (draws, ..., d)
        Each row adds up to `rationals.steps`. As a function of `y`, a draw has the guarantee of `y`.

    Raises
    ------
    DataError
        If the counts are not whole numbers of that shape, or a row holds more records than the public bound. Under
        add-remove the second error tells that much about the data: choose a bound that no data set can reach.

    References
    ----------
    Theory, section 11.
    """
    weights = rationals.weights(_records(counts, rationals))
    return urn(weights, rationals.denominator, steps=rationals.steps, draws=integer(1, draws=draws), bits=bits)


def exact_dirichlet(rationals: Rationals, counts: ArrayLike, *, draws: int, bits: Bits) -> Array:
    """Frequencies of :func:`synthetic_counts`: Dirichlet draws on a grid of `1 / steps`. Same arguments.

    Returns
    -------
    y : array, shape (draws, ..., d)
        Each row sums to 1. The mean is that of the Dirichlet law, and the variance of every component is larger by the
        factor `1 + u0 / steps`. **A component may be exactly 0.**
    """
    frequencies: Array = synthetic_counts(rationals, counts, draws=draws, bits=bits) / rationals.steps
    return frequencies


def _records(counts: ArrayLike, rationals: Rationals) -> Integers:
    """Counts as integers, or an error that says what is wrong with them and never what they are."""
    try:
        array = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("Expected counts to be an array of whole numbers.") from None
    if array.shape != rationals.prior.shape:
        raise DataError(f"Expected counts of shape {rationals.prior.shape}, the shape of alpha, got another shape.")
    # Written so that a missing value fails.
    if not np.all((array >= 0) & (array == np.floor(array)) & (array <= 2.0**53)):
        raise DataError("Expected counts to be whole numbers from 0 to 2**53.")
    whole = array.astype(np.int64)
    if max(row_totals(whole)) > rationals.most_records:
        raise DataError(
            f"Some row holds more than most_records={rationals.most_records} records. The exact sampler needs a public "
            "bound on them: pass a larger most_records, one that no data set can exceed."
        )
    return whole
