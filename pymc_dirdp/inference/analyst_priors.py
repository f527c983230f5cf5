"""What the analyst takes for granted of a table: checked, or taken from the model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer, numbers_or_none, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.observed_table import Seen

__all__ = ["Beliefs", "OfTotal", "number_of", "prior_of", "row_prior_of"]

type OfTotal = Callable[[Array], Array]
"""Logarithms of weights of totals."""


@final
@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """What the analyst takes for granted about one table. Their own, and free: no privacy is spent.

    Attributes
    ----------
    prior : array_like, optional
        Of the shares, in the shape of the table; by default that of the model.
    n_prior : int or array_like, optional
        Of a private number of records. An integer n makes 0 to n as likely as one another, a `range` each number in
        it; an array holds the weights of 0, 1, 2, ....
    row_prior : array_like, optional
        Dirichlet prior of the shares of the rows, in their shape; 1 for each row by default.
    """

    prior: ArrayLike | None = None
    n_prior: int | range | ArrayLike | None = None
    row_prior: ArrayLike | None = None


def prior_of(output: Seen, prior: ArrayLike | None) -> Array:
    """The prior of the shares: that of the analyst, or the model's own."""
    if prior is None:
        return output.prior
    given = positive_array(prior=prior, fewest=1)
    if given.shape != output.prior.shape:
        raise ArgumentError(
            f"Expected the prior of {output.name!r} to have the shape of the table, {output.prior.shape}, got "
            f"{given.shape}."
        )
    return given


def row_prior_of(output: Seen, row_prior: ArrayLike | None) -> Array | None:
    """The prior of the shares of rows, if there is one."""
    if row_prior is None:
        return None
    shape = output.prior.shape[:-1]
    if not shape or output.prior.size == output.prior.shape[-1]:
        raise ArgumentError(f"row_prior is for tables of several rows, and {output.name!r} has one.")
    given = positive_array(row_prior=row_prior)
    if given.shape != shape:
        raise ArgumentError(f"Expected row_prior of {output.name!r} to have the shape {shape}, got {given.shape}.")
    return given.ravel()


def number_of(output: Seen, n_prior: int | range | ArrayLike | None) -> tuple[int, OfTotal | None]:
    """The largest number of records that is possible, and the prior of a private one."""
    if output.n_records is not None:
        if n_prior is not None:
            raise ArgumentError(
                f"n_prior is for a private number of records, and {output.name!r} has {output.n_records}, which is "
                "public. Leave it out."
            )
        return output.n_records, None
    if n_prior is None:
        raise ArgumentError(
            f"The number of records of {output.name!r} is private, so an inference needs your own prior for it. Pass "
            "n_prior=n, for 0 to n being as likely as one another, or the weights of 0, 1, 2, ... as an array."
        )
    if isinstance(n_prior, range):
        return _in_range(n_prior)
    weights = numbers_or_none(n_prior)
    if weights is None or weights.ndim == 0:
        most = integer(1, n_prior=n_prior)
        return most, lambda totals: np.full(np.shape(totals), -np.log(most + 1.0))
    if weights.ndim != 1 or len(weights) < 2 or not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.any():
        raise ArgumentError("Expected n_prior to be an integer or a list of weights, at least 0 and not all 0.")
    with np.errstate(divide="ignore"):
        logs = np.log(weights / weights.sum())

    def log_prior(totals: Array) -> Array:
        below = np.floor(totals).astype(np.int64)
        part = totals - below
        # Where a weight is 0 nothing between it and its neighbour is possible; 0 times infinity must not be.
        with np.errstate(invalid="ignore"):
            between = (1 - part) * logs[below] + part * logs[np.minimum(below + 1, len(logs) - 1)]
        return np.asarray(np.where(part == 0, logs[below], between))

    return int(np.flatnonzero(weights)[-1]), log_prior


def _in_range(numbers: range) -> tuple[int, OfTotal]:
    """The largest of some numbers of records that are as likely as one another, and their prior."""
    if len(numbers) == 0 or numbers.step != 1 or numbers[0] < 0:
        raise ArgumentError("Expected the range of n_prior to hold integers from 0 on, in steps of 1.")
    least, weight = numbers[0], -float(np.log(len(numbers)))
    return numbers[-1], lambda totals: np.where(totals >= least, weight, -np.inf)
