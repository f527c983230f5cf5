"""The law of a whole table given what a release put out of it."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.all_counts import AllCounts
from pymc_dirdp.inference.beliefs import Beliefs, number_of, prior_of, row_prior_of
from pymc_dirdp.inference.binary_row import BinaryRow
from pymc_dirdp.inference.drawing import draw_counts
from pymc_dirdp.inference.estimates import Estimate, estimate, estimate_of_rows, summarised
from pymc_dirdp.inference.number_laws import ImpossibleError, NumberLaws
from pymc_dirdp.inference.posterior import Draws, draw_shares
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.seen import Seen
from pymc_dirdp.inference.tilted import count_itself
from pymc_dirdp.inference.totals import OfTotal, PrivateTotal, RowTotals
from pymc_dirdp.inference.unknown_total import UnknownTotal
from pymc_dirdp.mechanisms.row_likelihood import RowLikelihood

__all__ = ["SUMMARISED", "TableLaw"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Counts of all cells that are looked at one by one where a likelihood follows no smooth curve.
_MOST_LOOKED_AT = 10**7
# Pairs of a total and a cell that are summed over at most, which takes some seconds, and totals of one row.
_MOST_PAIRS = 6_000
_MOST_TOTALS = 1_000
_NEGLIGIBLE = 1e-13
_FEW_COUNTS = 20_000
# Sums over all counts have so many terms at most: of one row, for which there are other sums, and of several rows.
_MOST_TERMS = 20_000, 5_000_000
# Draws that the summaries of tables with private totals are made from.
SUMMARISED = 20_000


@final
class TableLaw:
    """The counts and shares of a table given what was put out of it.

    Parameters
    ----------
    output : Seen
        Of the table.
    beliefs : Beliefs
        Of whoever concludes.
    features : sequence of TableLaw
        Of other tables of the same records, each with a row for every cell of this table, which has one row. What they
        say of their row totals they say of the counts of this table.

    Attributes
    ----------
    prior : array, shape (..., d)
        Of the shares.

    Raises
    ------
    ArgumentError
        If the beliefs do not fit the table.
    ReleaseError
        If the mechanism cannot have put this out.
    """

    def __init__(self, output: Seen, beliefs: Beliefs, features: "Sequence[TableLaw]" = ()) -> None:
        self.prior = prior_of(output, beliefs.prior)
        most, log_prior = number_of(output, beliefs.n_prior)
        likelihoods = output.row_likelihoods()
        row_prior = row_prior_of(output, beliefs.row_prior)
        d, others = self.prior.shape[-1], len(likelihoods) - 1
        if most < output.least * self.prior.size:
            if log_prior is None:
                raise output.damaged("it was promised to hold more records in each cell than there are")
            raise ArgumentError(
                f"The table {output.name!r} was promised to hold at least {output.least} records in each cell, which "
                f"is more than {most} in all. Pass an n_prior that reaches further."
            )
        room = most - output.least * d * others
        alphas = self.prior.reshape(-1, d)
        self._own_laws = [_row(alpha, room, each, output) for alpha, each in zip(alphas, likelihoods, strict=True)]
        self._features = features
        self._factors = [_of_total(each) for each in likelihoods]
        self._most, self._row_prior, self._log_prior = most, row_prior, log_prior

    def given(self, log_shares: Array) -> "TableLaw":
        """The law of the counts if the shares are known.

        Its evidence is the likelihood of the shares, up to the beliefs about totals, and the gradient of that in
        `log_shares` is `count_means` (Theory, section 16).

        Parameters
        ----------
        log_shares : array, shape of the table
            Logarithms of the shares.
        """
        law = copy.copy(self)
        for name in ("_row", "_rows", "_private", "_totals", "_binary_row", "_all_counts"):
            law.__dict__.pop(name, None)
        rows = log_shares.reshape(len(self._row_laws), -1)
        law._row_laws = [
            replace(row, log_shares=logs, near=self._usual) for row, logs in zip(self._row_laws, rows, strict=True)
        ]
        return law

    @cached_property
    def _usual(self) -> ProductLaw | None:
        """The law at shares that are likely, for the only row of a public total."""
        if self._rows is not None or self._private is not None:
            return None
        shares = (self.prior.ravel() + self._row.means) / (self.prior.sum() + self._most)
        # If there are few counts, looking at each is less work than rules for many.
        smooth = self._row.smooth and self._most * shares.size > _FEW_COUNTS
        return replace(self._row, log_shares=np.log(shares), smooth=smooth)

    def likelihood(self, log_shares: Array) -> tuple[float, Array]:
        """The logarithm of the likelihood of known shares, and its gradient in `log_shares`: the expected counts.

        Parameters
        ----------
        log_shares : array, shape of the table
            Logarithms of the shares; one may be `-inf`.

        Returns
        -------
        log_likelihood : float
            `-inf` where the output is impossible.
        means : array, shape of the table
            Zeros where it is impossible.
        """
        if self._binary_row is not None:
            value, means = self._binary_row.given(log_shares.ravel())
            return value, means.reshape(self.prior.shape)
        if self._all_counts is not None:
            value, means = self._all_counts.given(log_shares.reshape(len(self._row_laws), -1))
            return value, means.reshape(self.prior.shape)
        law = self.given(log_shares)
        try:
            return law.log_evidence, law.count_means
        except ImpossibleError:
            return -np.inf, np.zeros(self.prior.shape)

    @cached_property
    def _binary_row(self) -> BinaryRow | None:
        """The only row, of a public total, as a function of its shares, if that is one short sum."""
        if self._rows is not None or self._private is not None:
            return None
        few = self.prior.shape[-1] == 2 and self._most <= _FEW_COUNTS
        return BinaryRow(self._row) if few else None

    @cached_property
    def _all_counts(self) -> AllCounts | None:
        """The table as a function of its shares, if its records are so few that all counts are summed in no time."""
        rows, numbers = len(self._row_laws), np.arange(self._most + 1.0)
        if AllCounts.work(rows, self.prior.shape[-1], self._most) > _MOST_TERMS[rows > 1]:
            return None
        public = np.where(numbers == self._most, 0.0, -np.inf)
        log_numbers = public if self._log_prior is None else self._log_prior(numbers)
        row_prior = np.ones(rows) if self._row_prior is None else self._row_prior
        return AllCounts(self._row_laws, log_numbers, row_prior=row_prior, log_factors=self._factors)

    # The laws are summed up when they are asked for: numbers of a file may be such that no sum exists.

    @cached_property
    def _row_laws(self) -> list[ProductLaw]:
        if not self._features:
            return self._own_laws
        return [_sharpened(law, [feature._said_of_rows for feature in self._features]) for law in self._own_laws]

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

    @property
    def _said_of_rows(self) -> ProductLaw:
        """The totals of several rows, given what was put out of these."""
        return self._rows.totals  # type: ignore[union-attr]

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

    @property
    def count_means(self) -> Array:
        """Expected counts, in the shape of the table: exact sums."""
        if self._rows is not None:
            sums = self._private or self._rows
            found = sums.expectations(self._rows.count_means)
        elif self._private is not None:
            found = self._private.expectations(count_itself)
        else:
            found = self._row.tilted.expectations(count_itself, np.array([self._most]))
        return found.reshape(self.prior.shape)

    def counts(self, draws: int, rng: np.random.Generator) -> tuple[Integers, float]:
        """Independent draws of the counts, shape `(draws, *shape)`, and the share of proposals that was accepted."""
        tables, acceptance = self._tables(draws, rng)
        return np.stack(tables, axis=1).reshape(draws, *self.prior.shape), acceptance

    def draw(self, draws: int, rng: np.random.Generator) -> Draws:
        """Independent draws of counts and shares, in arrays of shape `(draws, *shape)`."""
        counts, acceptance = self.counts(draws, rng)
        return Draws(counts, draw_shares(counts, self.prior, rng), acceptance)

    def draw_given(self, totals: Integers, rng: np.random.Generator) -> Draws:
        """The same for several rows, one draw for each table of their totals, shape `(draws, rows)`."""
        tables, acceptance = self._rows.tables(totals, rng)  # type: ignore[union-attr]
        counts = np.stack(tables, axis=1).reshape(len(totals), *self.prior.shape)
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

    def estimate(self, prob: list[float], rng: np.random.Generator) -> Estimate:
        """Means, standard deviations and central intervals of shares and counts, cell by cell in the order of rows."""
        if self._private is None and self._rows is None:
            return estimate(self._row, prob)
        if self._totals is None:
            return summarised(self.draw(SUMMARISED, rng), self.prior, prob, self.log_evidence)
        rows = [UnknownTotal(law, *of) for law, of in zip(self._row_laws, self._totals, strict=True)]
        return estimate_of_rows(rows, prob, self.log_evidence)

    @property
    def is_exact(self) -> bool:
        """Whether estimates are sums. If the totals of rows have too wide a law, they are averages over exact draws."""
        return (self._private is None and self._rows is None) or self._totals is not None

    @cached_property
    def _totals(self) -> list[tuple[Integers, Array]] | None:
        """For each row the totals that matter and their probabilities; None if they are too many to be summed over."""
        most = _MOST_PAIRS // self.prior.shape[-1]
        if self._private is None:
            return _whole(self._rows.marginals, most)  # type: ignore[union-attr]
        of_all = _whole(self._private.totals, most)
        if of_all is None or self._rows is None:
            return of_all
        return _whole(UnknownTotal(self._rows.totals, *of_all[0]).counts, most)


def _whole(laws: NumberLaws, most: int) -> list[tuple[Integers, Array]] | None:
    """The numbers of each law that matter, with their probabilities; None if they are more than `most` in all."""
    matters = laws.block_mass > _NEGLIGIBLE
    low, high = laws.highs.copy(), laws.lows.copy()
    np.minimum.at(low, laws.block_law[matters], laws.block_start[matters])
    np.maximum.at(high, laws.block_law[matters], (laws.block_start + laws.block_length - 1)[matters])
    if np.sum(high - low + 1) > most or np.max(high - low) >= _MOST_TOTALS:
        return None
    numbers = [np.arange(a, b + 1) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    return [(x, np.exp(laws.log_pmf(x.astype(np.float64), np.full(len(x), i)))) for i, x in enumerate(numbers)]


def _row(alpha: Array, most: int, each: list[RowLikelihood], output: Seen) -> ProductLaw:
    smooth = all(likelihood.smooth for likelihood in each)
    if not smooth and most * output.prior.size > _MOST_LOOKED_AT:
        raise ArgumentError(
            f"The law of {' or '.join(output.mechanism_names)} is known at whole numbers only, and {most} records in "
            f"{output.prior.size} cells are too many to look at one by one. If it follows a smooth curve between "
            "them, set smooth_noise = True in its class."
        )

    def log_likelihood(counts: Array, cells: Integers) -> Array:
        found: Array = sum((one.of_cells(counts, cells) for one in each), start=np.zeros(()))
        return found

    return ProductLaw(alpha=alpha, total=most, log_likelihood=log_likelihood, least=output.least, smooth=smooth)


def _sharpened(law: ProductLaw, said: list[ProductLaw]) -> ProductLaw:
    """The law of the counts of a row that are the row totals of other tables."""

    def log_likelihood(counts: Array, cells: Integers) -> Array:
        found: Array = sum((one.log_likelihood(counts, cells) for one in said), start=law.log_likelihood(counts, cells))
        return found

    return replace(
        law,
        log_likelihood=log_likelihood,
        smooth=law.smooth and all(one.smooth for one in said),
        noise=law.noise + sum(one.noise for one in said),
    )


def _of_total(each: list[RowLikelihood]) -> OfTotal:
    def factor(totals: Array) -> Array:
        found: Array = sum((one.of_total(totals) for one in each), start=np.zeros(()))
        return found

    return factor
