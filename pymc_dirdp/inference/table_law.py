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
from pymc_dirdp.inference.beliefs import Beliefs, OfTotal, number_of, prior_of, row_prior_of
from pymc_dirdp.inference.binary_row import BinaryRow
from pymc_dirdp.inference.drawing import draw_counts
from pymc_dirdp.inference.estimates import Estimate, RowGiven, estimate, estimate_of_rows
from pymc_dirdp.inference.number_laws import ImpossibleError
from pymc_dirdp.inference.posterior import Draws, draw_shares
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.seen import Seen
from pymc_dirdp.inference.tree import Cells, Group, Node, Root, Spread, largest
from pymc_dirdp.mechanisms.row_likelihood import RowLikelihood

__all__ = ["TableLaw"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Counts of all cells that are looked at one by one where a likelihood follows no smooth curve.
_MOST_LOOKED_AT = 10**7
_FEW_COUNTS = 20_000
# Sums over all counts have so many terms at most: of one row, for which there are other sums, and of several rows.
_MOST_TERMS = 20_000, 5_000_000


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
        Of other tables of the same records, each with a row for every cell of this table, which has one row. Its counts
        are their row totals, and with them all tables have one tree.

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
        self._row_laws = [_row(alpha, room, each, output) for alpha, each in zip(alphas, likelihoods, strict=True)]
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
        for name in ("_row", "_groups", "_root", "numbers", "_rows_given", "_binary_row", "_all_counts"):
            law.__dict__.pop(name, None)
        rows = log_shares.reshape(len(self._row_laws), -1)
        law._row_laws = [
            replace(row, log_shares=logs, near=self._usual) for row, logs in zip(self._row_laws, rows, strict=True)
        ]
        return law

    @cached_property
    def _usual(self) -> ProductLaw | None:
        """The law at shares that are likely, for the only row of a public total."""
        if not self._is_one_row:
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
        if not self._is_one_row:
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
    def _row(self) -> ProductLaw:
        """The only row, of a public total."""
        factor = self._factors[0](np.array([float(self._most)]))
        return self._row_laws[0].at(self._most, float(factor[0]))

    @property
    def _is_one_row(self) -> bool:
        """Whether nothing but the counts of one row is unknown."""
        return len(self._row_laws) == 1 and self._log_prior is None and not self._features

    @cached_property
    def _groups(self) -> list[Group]:
        """The cells of each row, as a function of its total."""
        return [Group(Cells(law)) for law in self._row_laws]

    def _log_weight_of_row(self, row: int, totals: Array) -> Array:
        """What the likelihood and the prior of a row are multiplied by to be functions of its total."""
        return np.asarray(self._row_laws[row].log_normaliser(totals) + self._factors[row](totals))

    @cached_property
    def _above(self) -> ProductLaw:
        """The law of the numbers that the tree is made of next to its root: row totals, or counts of this table."""
        if self._features:
            return self._row_laws[0]
        rows = len(self._row_laws)
        shares = np.ones(rows) if self._row_prior is None else self._row_prior

        def nothing(counts: Array, cells: Integers) -> Array:
            return np.zeros(np.broadcast_shapes(np.shape(counts), np.shape(cells)))

        return ProductLaw(alpha=shares, total=self._most, log_likelihood=nothing)

    @cached_property
    def _root(self) -> Root:
        """The number of all records, on top of the tree of all counts."""
        total, most = (self._most, None) if self._log_prior is None else (None, self._most)
        below = self._row_laws[0] if len(self._row_laws) == 1 else self._above
        group = Group([self._node(i) for i in range(len(below.alpha))]) if self._nodes_wanted else self._groups[0]

        def log_weight(totals: Array) -> Array:
            found = below.log_normaliser(totals)
            if len(self._row_laws) == 1:
                found = found + self._factors[0](totals)
            return np.asarray(found if self._log_prior is None else found + self._log_prior(totals))

        return Root(group, log_weight, total=total, most=most)

    @property
    def _nodes_wanted(self) -> bool:
        return bool(self._features) or len(self._row_laws) > 1

    def _node(self, cell: int) -> Node:
        """One row total, or one count of this table, and all that is said of it."""
        tables: Sequence[TableLaw] = self._features or [self]
        at = np.array([cell])

        def log_weight(totals: Array) -> Array:
            own = self._above.log_weight(totals, np.full(totals.shape, cell))
            return np.asarray(own + sum(table._log_weight_of_row(cell, totals) for table in tables))

        def start(tilt: float) -> int:
            law = self._above
            ends = np.array([law.least]), np.array([law.most])
            return int(largest(lambda x: law.log_weight(x, at) + tilt * x, *ends)[0][0])

        groups = [table._groups[cell] for table in tables]
        most = self._most - (self._above.least if self._features else 0)
        return Node(groups, log_weight, most=most, start=start if self._features else None)

    @cached_property
    def numbers(self) -> list[Spread]:
        """The distributions of the row totals, or of the counts if there are features; of one row that of its total."""
        _, root = self._root.law
        return self._root.group.given(root) if self._nodes_wanted else [root]

    @cached_property
    def _rows_given(self) -> list[RowGiven]:
        """All rows, given what is known of their totals."""
        numbers = [self._root.law[1]] if self._features else self.numbers
        groups = [self._root.group] if self._features else self._groups
        laws = zip(self._row_laws, groups, numbers, strict=True)
        return [RowGiven(law.alpha, group, number) for law, group, number in laws]

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability or density of what was put out, counts and shares summed out."""
        return self._row.log_evidence if self._is_one_row else self._root.law[0]

    @property
    def count_means(self) -> Array:
        """Expected counts, in the shape of the table: exact sums."""
        if self._is_one_row:
            found = self._row.tilted.count_means
        else:
            found = np.concatenate([row.count_means for row in self._rows_given])
        return found.reshape(self.prior.shape)

    def counts(self, draws: int, rng: np.random.Generator) -> tuple[Integers, float]:
        """Independent draws of the counts, shape `(draws, *shape)`, and the share of proposals that was accepted."""
        if self._is_one_row:
            counts, acceptance = draw_counts(self._row.tilted, np.full(draws, self._most), rng)
            return counts.reshape(draws, *self.prior.shape), acceptance
        numbers, acceptance = self._root.group.draw(self._root.draw(draws, rng), rng)
        if not self._nodes_wanted or self._features:
            return numbers.reshape(draws, *self.prior.shape), acceptance
        counts, share = self._counts_given(numbers, rng)
        return counts, min(acceptance, share)

    def _counts_given(self, totals: Integers, rng: np.random.Generator) -> tuple[Integers, float]:
        """One draw of the counts for each draw of the row totals, shape `(draws, rows)`."""
        rows = [group.draw(totals[:, row], rng) for row, group in enumerate(self._groups)]
        counts = np.stack([one for one, _ in rows], axis=1).reshape(len(totals), *self.prior.shape)
        return counts, min(share for _, share in rows)

    def draw(self, draws: int, rng: np.random.Generator) -> Draws:
        """Independent draws of counts and shares, in arrays of shape `(draws, *shape)`."""
        counts, acceptance = self.counts(draws, rng)
        return Draws(counts, draw_shares(counts, self.prior, rng), acceptance)

    def draw_given(self, totals: Integers, rng: np.random.Generator) -> Draws:
        """The same for several rows, one draw for each table of their totals, shape `(draws, rows)`."""
        counts, acceptance = self._counts_given(totals, rng)
        return Draws(counts, draw_shares(counts, self.prior, rng), acceptance)

    def estimate(self, prob: list[float]) -> Estimate:
        """Means, standard deviations and central intervals of shares and counts, cell by cell in the order of rows."""
        if self._is_one_row:
            return estimate(self._row, prob)
        return estimate_of_rows(self._rows_given, prob, self.log_evidence)

    def estimate_given(self, totals: Sequence[Spread], prob: list[float], log_evidence: float) -> Estimate:
        """The same of a table whose row totals are the counts of another one, from their distributions."""
        rows = zip(self._row_laws, self._groups, totals, strict=True)
        return estimate_of_rows([RowGiven(law.alpha, group, total) for law, group, total in rows], prob, log_evidence)


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


def _of_total(each: list[RowLikelihood]) -> OfTotal:
    def factor(totals: Array) -> Array:
        found: Array = sum((one.of_total(totals) for one in each), start=np.zeros(()))
        return found

    return factor
