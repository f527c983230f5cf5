"""The law of a whole table given what a release put out of it."""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.checks import integer, numbers_or_none, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.drawing import draw_counts
from pymc_dirdp.inference.estimates import Estimate, estimate, summarised
from pymc_dirdp.inference.posterior import Draws, draw_shares
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.totals import OfTotal, PrivateTotal, RowTotals
from pymc_dirdp.mechanisms.row_likelihood import RowLikelihood
from pymc_dirdp.stored.outputs import Output

__all__ = ["Beliefs", "TableLaw"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Counts of all cells that are looked at one by one where a likelihood follows no smooth curve.
_MOST_LOOKED_AT = 10**7
# Draws that the summaries of tables with private totals are made from.
_SUMMARISED = 20_000


@final
@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """What whoever concludes takes for granted about one table. Their own, and free: no privacy is spent.

    Attributes
    ----------
    prior : array_like, optional
        Of the shares, in the shape of the table; by default that of the model.
    n_prior : int or array_like, optional
        Of a private number of records. A whole number n makes 0 to n as likely as one another, a `range` each number in
        it; an array holds the weights of 0, 1, 2, ....
    row_prior : array_like, optional
        Dirichlet prior of the shares of the rows, in their shape; 1 for each row by default.
    """

    prior: ArrayLike | None = None
    n_prior: int | range | ArrayLike | None = None
    row_prior: ArrayLike | None = None


@final
class TableLaw:
    """The counts and shares of a table given what was put out of it.

    Parameters
    ----------
    output : Output
        Of the table.
    beliefs : Beliefs
        Of whoever concludes.

    Attributes
    ----------
    prior : array, shape (..., d)
        Of the shares.
    is_exact : bool
        Whether estimates are sums; otherwise they are averages over exact draws.

    Raises
    ------
    ArgumentError
        If the beliefs do not fit the table.
    ReleaseError
        If the mechanism cannot have put this out.
    """

    def __init__(self, output: Output, beliefs: Beliefs) -> None:
        self._output = output
        self.prior = _prior(output, beliefs.prior)
        most, log_prior = _number(output, beliefs.n_prior)
        likelihoods = output.row_likelihoods()
        row_prior = _row_prior(output, beliefs.row_prior)
        d, others = self.prior.shape[-1], len(likelihoods) - 1
        if most < output.least * self.prior.size:
            if log_prior is None:
                raise output.group.damaged("it was promised to hold more records in each cell than there are")
            raise ArgumentError(
                f"The table {output.name!r} was promised to hold at least {output.least} records in each cell, which "
                f"is more than {most} in all. Pass an n_prior that reaches further."
            )
        room = most - output.least * d * others
        alphas = self.prior.reshape(-1, d)
        self._row_laws = [_row(alpha, room, each, output) for alpha, each in zip(alphas, likelihoods, strict=True)]
        self._factors = [_of_total(each) for each in likelihoods]
        self._most, self._row_prior, self._log_prior = most, row_prior, log_prior
        self.is_exact = not others and log_prior is None

    # The laws are summed up when they are asked for: numbers of a file may be such that no sum exists.

    @cached_property
    def _row(self) -> ProductLaw:
        """The only row, of a public total."""
        factor = self._factors[0](np.array([float(self._most)]))
        return self._row_laws[0].at(self._most, float(factor[0]))

    @cached_property
    def _rows(self) -> RowTotals | None:
        if len(self._row_laws) == 1:
            return None
        return RowTotals(self._row_laws, total=self._most, row_prior=self._row_prior, log_factors=self._factors)

    @cached_property
    def _private(self) -> PrivateTotal | None:
        if self._log_prior is None:
            return None
        if self._rows is not None:
            return PrivateTotal(self._rows.totals, log_prior=self._log_prior)
        return PrivateTotal(self._row_laws[0], log_prior=self._log_prior, log_factor=self._factors[0])

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability or density of what was put out, counts and shares summed out."""
        return (self._private or self._rows or self._row).log_evidence

    def draw(self, draws: int, rng: np.random.Generator) -> Draws:
        """Independent draws of counts and shares, in arrays of shape `(draws, *shape)`."""
        tables, acceptance = self._tables(draws, rng)
        counts = self._shaped(np.stack(tables, axis=1))
        return Draws(counts, draw_shares(counts, self.prior, rng), acceptance)

    def _tables(self, draws: int, rng: np.random.Generator) -> tuple[list[Integers], float]:
        """Counts of each row, of shape `(draws, d)`, and the share of proposals that was accepted."""
        if self._private is None and self._rows is None:
            counts, acceptance = draw_counts(self._row.tilted, np.full(draws, self._most), rng)
            return [counts], acceptance
        if self._private is None:
            return self._rows.draw(draws, rng)  # type: ignore[union-attr]
        totals, acceptance = self._private.draw(draws, rng)
        if self._rows is None:
            return [totals], acceptance
        tables, share = self._rows.tables(totals, rng)
        return tables, min(acceptance, share)

    def _shaped(self, values: NDArray) -> NDArray:  # type: ignore[type-arg]
        return values.reshape(len(values), *self.prior.shape)

    def estimate(self, prob: list[float], rng: np.random.Generator) -> Estimate:
        """Means, standard deviations and central intervals of shares and counts, cell by cell in the order of rows."""
        if self.is_exact:
            return estimate(self._row, prob)
        return summarised(self.draw(_SUMMARISED, rng), self.prior, prob, self.log_evidence)


def _row(alpha: Array, most: int, each: list[RowLikelihood], output: Output) -> ProductLaw:
    smooth = all(likelihood.smooth for likelihood in each)
    if not smooth and most * output.prior.size > _MOST_LOOKED_AT:
        raise ArgumentError(
            f"The law of {type(output.mechanism).__name__} is known at whole numbers only, and {most} records in "
            f"{output.prior.size} cells are too many to look at one by one. If it follows a smooth curve between "
            "them, set smooth_noise = True in its class."
        )

    def log_likelihood(counts: Array, cells: Integers) -> Array:
        found: Array = sum((one.of_cells(counts, cells) for one in each), start=np.zeros(()))
        return found

    return ProductLaw(alpha=alpha, total=most, log_likelihood=log_likelihood, least=output.least, smooth=smooth)


def _of_total(each: list[RowLikelihood]) -> OfTotal:
    def factor(totals: Array) -> Array:
        found: Array = sum((one.of_total(totals) for one in each), start=np.zeros(()))
        return found

    return factor


def _prior(output: Output, prior: ArrayLike | None) -> Array:
    if prior is None:
        return output.prior
    given = positive_array(prior=prior)
    if given.shape != output.prior.shape:
        raise ArgumentError(
            f"Expected the prior of {output.name!r} to have the shape of the table, {output.prior.shape}, got "
            f"{given.shape}."
        )
    return given


def _row_prior(output: Output, row_prior: ArrayLike | None) -> Array | None:
    if row_prior is None:
        return None
    shape = output.prior.shape[:-1]
    if not shape or output.prior.size == output.prior.shape[-1]:
        raise ArgumentError(f"row_prior is for tables of several rows, and {output.name!r} has one.")
    given = positive_array(row_prior=row_prior)
    if given.shape != shape:
        raise ArgumentError(f"Expected row_prior of {output.name!r} to have the shape {shape}, got {given.shape}.")
    return given.ravel()


def _number(output: Output, n_prior: int | range | ArrayLike | None) -> tuple[int, OfTotal | None]:
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
            f"The number of records of {output.name!r} is private, so a conclusion needs your own prior for it. Pass "
            "n_prior=n, for 0 to n being as likely as one another, or the weights of 0, 1, 2, ... as an array."
        )
    if isinstance(n_prior, range):
        return _in_range(n_prior)
    weights = numbers_or_none(n_prior)
    if weights is None or weights.ndim == 0:
        most = integer(1, n_prior=n_prior)
        return most, lambda totals: np.full(np.shape(totals), -np.log(most + 1.0))
    if weights.ndim != 1 or len(weights) < 2 or not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.any():
        raise ArgumentError("Expected n_prior to be a whole number or a list of weights, at least 0 and not all 0.")
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
        raise ArgumentError("Expected the range of n_prior to hold whole numbers from 0 on, in steps of 1.")
    least, weight = numbers[0], -float(np.log(len(numbers)))
    return numbers[-1], lambda totals: np.where(totals >= least, weight, -np.inf)
