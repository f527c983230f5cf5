"""Distributions of all counts and shares from the outputs of tables, by trees of sums.

A row is a group of cells. Rows that share a number of records form a tree. Its root is that number, known or with a
prior, its nodes are the row totals, and its leaves are the counts. If the numbers of records of several blocks of rows
are public, each block has a tree. A table of classes and tables of features given the class form one tree, where a node
is the count of a class, the total of a row in each feature.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import (
    Draws,
    Estimate,
    KnownRows,
    RowWithUncertainTotal,
    draw_shares,
    estimate_of_rows,
    given_total,
    with_drawn_quantiles,
)
from pymc_dirdp.inference.joint_tables import JointPosterior
from pymc_dirdp.inference.marginal_posterior import MarginalPosterior
from pymc_dirdp.inference.noisy_rows import private_total
from pymc_dirdp.inference.numbers import ImpossibleError, largest, refuse_too_many
from pymc_dirdp.inference.observed_table import (
    Beliefs,
    ObservedTable,
    OfTotal,
    computing,
    number_of,
    prior_of,
    row_prior_of,
)
from pymc_dirdp.inference.rows import BatchedRows, RowPosterior, divided, in_their_rows, summable
from pymc_dirdp.inference.tree import Cells, Group, Node, Pmf, Root
from pymc_dirdp.mechanisms.outputs import RowLikelihood
from pymc_dirdp.progress import QUIET, Bar


def rows_are_divided(table: ObservedTable) -> bool:
    """Whether some rows share a number of records with an unknown division among them."""
    sizes = [len(rows) for rows, _ in table.blocks] or [table.prior.size // table.prior.shape[-1]]
    return max(sizes) > 1


def posterior_of(table: ObservedTable, beliefs: Beliefs) -> "TablePosterior | JointPosterior":
    """The distribution of a table given its output, as sums over counts."""
    return (
        TablePosterior(table, beliefs) if table.joint_rows is None else JointPosterior(table, table.joint_rows, beliefs)
    )


@final
class CountTree:
    """Rows that share a number of records.

    Parameters
    ----------
    posteriors : sequence of RowPosterior
        The rows, with the largest possible total of each.
    factors : sequence of callables
        For each row, the logarithm of the factor of its likelihood that depends on its total.
    most : int
        The number of records, or its upper bound.
    log_prior : callable or None
        Log-prior of the number, if it is private.
    row_prior : array or None
        Dirichlet prior of the shares of the rows.
    features : sequence of CountTree
        Trees of other tables of the same records, each with a row for every cell of the only row of this table.
    unit : float
        Number of records in a unit of the counts and of `most`.
    """

    def __init__(
        self,
        posteriors: Sequence[RowPosterior],
        factors: Sequence[OfTotal],
        most: int,
        log_prior: OfTotal | None,
        row_prior: Array | None,
        features: "Sequence[CountTree]" = (),
        unit: float = 1.0,
    ) -> None:
        self.posteriors, self._factors, self._features, self.unit = posteriors, factors, features, unit
        self._most, self._log_prior, self._row_prior = most, log_prior, row_prior

    def with_shares(self, log_shares: Array) -> "CountTree":
        """The same for known shares, shape (rows, d)."""
        posteriors = [replace(row, log_shares=logs) for row, logs in zip(self.posteriors, log_shares, strict=True)]
        return CountTree(posteriors, self._factors, self._most, self._log_prior, self._row_prior, unit=self.unit)

    def in_units(self, unit: float) -> "CountTree":
        """The same with counts in units of about so many records, see :meth:`RowPosterior.in_units`."""
        if unit == 1:
            return self
        if self._features:
            # The totals of their rows are in records.
            refuse_too_many(np.inf, most=0)
        rows = [row.in_units(unit) for row in self.posteriors]
        most, unit = rows[0].total, rows[0].unit
        return CountTree(rows, self._factors, most, self._log_prior, self._row_prior, unit=unit)

    @cached_property
    def summable(self) -> "CountTree":
        """The same in units in which the counts can be summed."""
        return summable(self.in_units)

    def rough_variance(self) -> float:
        """Approximate largest variance of a count before conditioning on its total, in squared units."""
        return max(float(Cells(row).rough_variances.max()) for row in self.posteriors)

    def largest_variance(self) -> float:
        """Largest variance of a count in all sums, which are computed here."""
        self.root.distribution  # noqa: B018
        bands = (band for group in self.groups for band in group.bands)
        return float(max((band.lists.variances.max() for band in bands), default=np.inf))

    # Sums are computed on demand, because a malformed file can make them undefined.

    @cached_property
    def groups(self) -> list[Group]:
        """The cells of each row, as a function of its total."""
        return [Group(Cells(row)) for row in self.posteriors]

    def log_weight_of_row(self, row: int, totals: Array) -> Array:
        """Log-weight of each total of a row from the normalization of its prior and its likelihood."""
        return np.asarray(self.posteriors[row].log_normaliser(totals) + self._factors[row](self.unit * totals))

    @property
    def _has_nodes(self) -> bool:
        return bool(self._features) or len(self.posteriors) > 1

    @cached_property
    def _above(self) -> RowPosterior:
        """The numbers below the root: row totals, or counts of the classes."""
        if self._features:
            return self.posteriors[0]
        shares = np.ones(len(self.posteriors)) if self._row_prior is None else self._row_prior
        nothing = RowLikelihood.of_nothing().cell_loglik
        return RowPosterior(alpha=shares, total=self._most, log_likelihood=nothing, unit=self.unit)

    @cached_property
    def root(self) -> Root:
        """The number of all records, the root of the tree of all counts."""
        total, most = (self._most, None) if self._log_prior is None else (None, self._most)
        below = self.posteriors[0] if len(self.posteriors) == 1 else self._above
        group = Group([self._node(i) for i in range(len(below.alpha))]) if self._has_nodes else self.groups[0]

        def guide(totals: Array) -> Array:
            logs = below.log_normaliser(totals)
            return logs + self._factors[0](self.unit * totals) if len(self.posteriors) == 1 else logs

        def log_weight(totals: Array) -> Array:
            if self._log_prior is None:
                return guide(totals)
            # Each total stands for the numbers of records that are nearest to it.
            near = np.where(totals == 0, (self.unit + 1) / 2, self.unit)
            return np.asarray(guide(totals) + self._log_prior(self.unit * totals) + np.log(near))

        return Root(group, log_weight, guide, total=total, most=most)

    def _node(self, cell: int) -> Node:
        """The node of a row total, or of the count of a class."""
        tables = self._features or [self]
        cell_index = np.array([cell])

        def log_weight(totals: Array) -> Array:
            logs = self._above.log_weight(totals, np.full(totals.shape, cell))
            return np.asarray(logs + sum(table.log_weight_of_row(cell, totals) for table in tables))

        def start(tilt: float) -> int:
            above = self._above
            ends = np.array([above.least]), np.array([above.most])
            return int(largest(lambda x: above.log_weight(x.astype(np.float64), cell_index) + tilt * x, *ends)[0][0])

        groups = [table.groups[cell] for table in tables]
        most = self._most - (self._above.least if self._features else 0)
        return Node(groups, log_weight, most=most, start=start if self._features else None)

    @cached_property
    def numbers(self) -> list[Pmf]:
        """The distributions of the row totals, of the counts if there are features, or of the total of a single row."""
        _, root = self.root.distribution
        return self.root.group.child_pmfs(root) if self._has_nodes else [root]

    @cached_property
    def rows(self) -> list[RowWithUncertainTotal]:
        """All rows, given the distributions of their totals in this tree."""
        return self.rows_given([self.root.distribution[1]] if self._features else self.numbers)

    def rows_given(self, totals: Sequence[Pmf]) -> list[RowWithUncertainTotal]:
        """All rows, given the distributions of their totals."""
        groups = [self.root.group] if self._features else self.groups
        rows = zip(self.posteriors, groups, totals, strict=True)
        return [
            RowWithUncertainTotal(row.alpha, group.child_points(given_total(row.alpha, total, self.unit)), self.unit)
            for row, group, total in rows
        ]

    @property
    def is_known_row(self) -> bool:
        """Whether the tree is a single row with a known total."""
        return self._log_prior is None and not self._has_nodes

    @property
    def row(self) -> RowPosterior:
        """The single row with all factors of its likelihood."""
        # There may be many rows, and the factor of noise is 0.
        factor = float(self._factors[0](np.array([float(self._most)]))[0])
        return replace(self.posteriors[0], log_factor=factor) if factor else self.posteriors[0]

    @property
    def count_means(self) -> Array:
        """Expected counts, shape (rows, d)."""
        return np.stack([row.count_means for row in self.rows])

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability or density of the output, counts and shares summed out."""
        return self.root.distribution[0]

    def counts(self, draws: int, rng: np.random.Generator) -> Integers:
        """Independent draws of the counts, shape `(draws, rows, d)`."""
        numbers = self.root.draw_below(draws, rng)
        counts = self.counts_given(numbers, rng) if self._has_nodes and not self._features else numbers[:, None]
        alpha = np.concatenate([row.alpha for row in self.posteriors])
        records = round(self.unit * self._most) if self._log_prior is None else None
        return divided(counts.reshape(draws, -1), self.unit, alpha, records, rng).reshape(counts.shape)

    def counts_given(self, totals: Integers, rng: np.random.Generator) -> Integers:
        """One draw of the counts for each draw of the row totals, shape `(draws, rows)`."""
        return np.stack([group.draw(totals[:, row], rng) for row, group in enumerate(self.groups)], axis=1)


@final
class TablePosterior:
    """The counts and shares of a table given its output.

    Sums are exact. Quantiles of shares are exact if the numbers of records of all rows are known. Otherwise they are
    quantiles of exact draws, with an error of .015 standard deviations.

    Parameters
    ----------
    output : ObservedTable
    beliefs : Beliefs
        The beliefs of the analyst.
    features : sequence of TablePosterior
        Posteriors of other tables of the same records, each with a row for every cell of this table, which must have
        one row. Its counts are their row totals, and all tables form one tree.

    Attributes
    ----------
    prior : array, shape (..., d)
        Prior of the shares.

    Raises
    ------
    ArgumentError
        If the beliefs do not fit the table.
    ReleaseError
        If the mechanism cannot have this output.
    """

    def __init__(self, output: ObservedTable, beliefs: Beliefs, features: "Sequence[TablePosterior]" = ()) -> None:
        self.prior = prior_of(output, beliefs.prior)
        most, log_prior = number_of(output, beliefs.n_prior)
        self._private_total = None if features else private_total(output, beliefs)
        row_prior = row_prior_of(output, beliefs.row_prior)
        if row_prior is not None and not rows_are_divided(output):
            raise ArgumentError(
                f"Leave row_prior out: the output of {output.name!r} has the number of records of each row."
            )
        d, whole = self.prior.shape[-1], [(np.arange(self._in_rows[0]), most)]
        # Blocks of rows with known numbers of records are independent given the output.
        blocks: Sequence[tuple[NDArray[np.intp], int]] = output.blocks if len(output.blocks) > 1 else whole
        if output.block_likelihoods is None:
            of_rows = output.row_likelihoods()
            likelihoods = [[of_rows[row] for row in rows.tolist()] for rows, _ in blocks]
        else:
            likelihoods = [
                [[likelihood]] for likelihood in output.block_likelihoods(np.stack([rows for rows, _ in blocks]))
            ]
        self._trees: list[tuple[NDArray[np.intp], CountTree]] = []
        for rows, total in (*whole, *blocks):
            if total < output.least * d * len(rows):
                _refuse_too_few(output, total, is_public=log_prior is None)
        for (rows, total), of_block in zip(blocks, likelihoods, strict=True):
            alphas = self.prior.reshape(-1, d)[rows].reshape(len(of_block), -1)
            room = total - output.least * alphas.shape[1] * (len(alphas) - 1)
            posteriors = [
                _row(alpha, room, likelihood, output) for alpha, likelihood in zip(alphas, of_block, strict=True)
            ]
            shares = None if row_prior is None else row_prior[rows]
            below = [table._trees[0][1] for table in features]
            factors = [_of_total(likelihood) for likelihood in of_block]
            self._trees.append((rows, CountTree(posteriors, factors, total, log_prior, shares, below)))

    @property
    def _in_rows(self) -> tuple[int, int]:
        return self.prior.size // self.prior.shape[-1], self.prior.shape[-1]

    def with_shares(self, log_shares: Array) -> "TablePosterior":
        """The distribution of the counts if the shares are known.

        Its evidence is the likelihood of the shares, given the beliefs about totals. The gradient of the log-likelihood
        in `log_shares` is `count_means` (Theory, section 16).

        Parameters
        ----------
        log_shares : array, shape of the table
            Logarithms of the shares.
        """
        table, of_rows = copy.copy(self), log_shares.reshape(self._in_rows)
        for known in ("_known", "log_evidence"):
            # Discard what was computed without the shares.
            table.__dict__.pop(known, None)
        table._trees = [(rows, tree.with_shares(of_rows[rows])) for rows, tree in self._trees]
        return table

    def likelihood(self, log_shares: Array) -> tuple[float, Array]:
        """Log-likelihood of known shares, and its gradient in `log_shares`, the expected counts.

        Parameters
        ----------
        log_shares : array, shape of the table
            Logarithms of the shares. They may be `-inf`.

        Returns
        -------
        log_likelihood : float
            `-inf` if the output is impossible.
        means : array, shape of the table
            Zeros if the output is impossible.
        """
        if self._private_total is not None and (integral := self._private_total.likelihood(log_shares)) is not None:
            return integral
        try:
            table = self.with_shares(log_shares)
            return table.log_evidence, table.count_means
        except ImpossibleError:
            return -np.inf, np.zeros(self.prior.shape)

    @property
    def numbers(self) -> list[Pmf]:
        """The distributions of the counts of classes."""
        return self._trees[0][1].numbers

    @cached_property
    def _known(self) -> tuple[Integers, BatchedRows] | None:
        """The numbers and the posterior of rows with known totals."""
        alone = [(rows, tree.row) for rows, tree in self._trees if tree.is_known_row]
        if not alone:
            return None
        return np.concatenate([rows for rows, _ in alone]), BatchedRows.summable([row for _, row in alone])

    @property
    def _others(self) -> "list[tuple[NDArray[np.intp], CountTree]]":
        return [(rows, tree.summable) for rows, tree in self._trees if not tree.is_known_row]

    @cached_property
    def log_evidence(self) -> float:
        """Logarithm of the probability or density of the output, counts and shares summed out."""
        return float(self.log_evidences.sum())

    @property
    def log_evidences(self) -> Array:
        """The log-evidence of each block of rows that share a number of records, in the order of their first rows."""
        by_row = {int(rows[0]): tree.log_evidence for rows, tree in self._others}
        if self._known:
            by_row |= zip(self._known[0].tolist(), self._known[1].log_evidences.tolist(), strict=True)
        return np.array([by_row[row] for row in sorted(by_row)])

    @property
    def count_means(self) -> Array:
        """Expected counts, in the shape of the table: exact sums."""
        means = np.empty(self._in_rows)
        if self._known:
            means[self._known[0]] = self._known[1].moments[0]
        for rows, tree in self._others:
            means[rows] = tree.count_means
        return means.reshape(self.prior.shape)

    def check(self) -> None:
        """Check that the counts can be summed.

        Raises
        ------
        TooManyNumbersError
            If there are too many.
        """
        for _, tree in self._trees:
            if tree.is_known_row:
                BatchedRows([tree.row]).check()
            else:
                tree.summable.counts(1, np.random.default_rng(0))

    def counts(self, draws: int, rng: np.random.Generator) -> Integers:
        """Independent draws of the counts, shape `(draws, *shape)`."""
        parts = [(self._known[0], self._known[1].draw(draws, rng))] if self._known else []
        parts += [(rows, tree.counts(draws, rng)) for rows, tree in self._others]
        in_rows = [(rows, counts.reshape(draws, len(rows), -1)) for rows, counts in parts]
        return in_their_rows(in_rows).reshape(draws, *self.prior.shape)

    def draw(self, draws: int, rng: np.random.Generator) -> Draws:
        """Independent draws of counts and shares, in arrays of shape `(draws, *shape)`."""
        counts = self.counts(draws, rng)
        return Draws(counts, draw_shares(counts, self.prior, rng))

    def draw_given(self, totals: Integers, rng: np.random.Generator) -> Draws:
        """Draw once for each vector of row totals, which have the shape `(draws, rows)`."""
        counts = self._trees[0][1].counts_given(totals, rng).reshape(len(totals), *self.prior.shape)
        return Draws(counts, draw_shares(counts, self.prior, rng))

    def estimate(self, prob: list[float]) -> Estimate:
        """Means, standard deviations and central intervals of shares and counts, cell by cell in the order of rows."""
        parts: list[KnownRows | RowWithUncertainTotal] = []
        places: list[Integers] = []
        if self._known:
            rows, known = self._known
            for batch, counts in known.marginals:
                parts.append(KnownRows(known.alpha[batch], known.totals[batch], counts, known.units[batch]))
                places.append(rows[batch])
        for rows, tree in self._others:
            parts += tree.rows
            places.append(rows)
        d = self.prior.shape[-1]
        order = (np.argsort(np.concatenate(places))[:, None] * d + np.arange(d)).ravel()
        summary = estimate_of_rows(parts, prob, self.log_evidence, order)
        return with_drawn_quantiles(summary, self.draw) if self._others else summary

    def estimate_given(self, totals: Sequence[Pmf], prob: list[float], log_evidence: float) -> Estimate:
        """The same, without quantiles of shares, if the row totals are the counts of another table."""
        return estimate_of_rows(self._trees[0][1].rows_given(totals), prob, log_evidence)


def _refuse_too_few(output: ObservedTable, most: int, *, is_public: bool) -> None:
    if is_public:
        raise output.damaged("it was guaranteed to hold more records in each cell than there are")
    raise ArgumentError(
        f"The table {output.name!r} was guaranteed to hold at least {output.least} records in each cell, which "
        f"is more than {most} in all. Pass an n_prior that reaches further."
    )


def _row(
    alpha: Array, most: int, likelihoods: list[RowLikelihood], output: ObservedTable, *, most_one_by_one: int = 10**7
) -> RowPosterior:
    smooth = all(likelihood.smooth for likelihood in likelihoods)
    if not smooth and most * output.prior.size > most_one_by_one:
        raise ArgumentError(
            f"Set smooth_noise = True in the class of the noise of {' or '.join(output.mechanism_names)} if its "
            f"distribution follows a smooth curve between integers: {most} records in {output.prior.size} cells of "
            f"{output.name!r} are too many to evaluate one by one."
        )

    def log_likelihood(counts: Array, cells: Integers) -> Array:
        logs: Array = sum((factor.cell_loglik(counts, cells) for factor in likelihoods), start=np.zeros(()))
        return logs

    return RowPosterior(alpha=alpha, total=most, log_likelihood=log_likelihood, least=output.least, smooth=smooth)


def _of_total(likelihoods: list[RowLikelihood]) -> OfTotal:
    def factor(totals: Array) -> Array:
        logs: Array = sum((likelihood.total_loglik(totals) for likelihood in likelihoods), start=np.zeros(()))
        return logs

    return factor


def class_table(tables: Mapping[str, ObservedTable]) -> str | None:
    """The name of the table whose cells are the rows of all other tables; None if there is no such table."""
    roots = [name for name, table in tables.items() if table.prior.ndim == 1 and table.family == "dirichlet"]
    if (
        len(tables) < 2
        or len(roots) != 1
        or any(table.joint_rows is not None or table.measurements for table in tables.values())
    ):
        return None
    root = tables[roots[0]]
    if len(root.prior) == 1:
        # With one class the tables have no information about each other.
        return None
    for name, table in tables.items():
        if name != roots[0] and not (
            table.prior.ndim == 2
            and table.share_labels[0] == root.share_labels[0]
            and len(table.prior) == len(root.prior)
            and table.n_records == root.n_records
            and len(table.blocks) < 2
        ):
            return None
    return roots[0]


type _Posterior = TablePosterior | JointPosterior | MarginalPosterior


@final
class Posteriors:
    """Counts and shares of tables, each given its own output, or all given all outputs.

    Rows of features sum to the counts of the classes. So the output of a feature yields a likelihood for the count of
    each class. The counts of the classes keep a product distribution, and given them all rows are independent (Theory,
    section 16).

    Parameters
    ----------
    tables : mapping of str to ObservedTable
    beliefs : mapping of str to Beliefs
        By table.
    classes : str, optional
        The name of the table of the classes, from :func:`class_table`. All tables are then analysed jointly and have
        the same number of records.
    """

    def __init__(
        self, tables: Mapping[str, ObservedTable], beliefs: Mapping[str, Beliefs], classes: str | None = None
    ) -> None:
        self._tables, self._classes = dict(tables), classes
        self._root_counts: Integers | None = None
        # The tables of features in a joint analysis.
        self._features: dict[str, TablePosterior] = {}
        self._posteriors: dict[str, _Posterior] = {}
        if classes is not None:
            self._features = {name: TablePosterior(tables[name], beliefs[name]) for name in tables if name != classes}
            self._root = TablePosterior(tables[classes], beliefs[classes], tuple(self._features.values()))
            self._posteriors = {classes: self._root, **self._features}
            return
        for name, table in tables.items():
            kind = MarginalPosterior if table.measurements else posterior_of
            self._posteriors[name] = kind(table, beliefs[name])

    @property
    def log_evidence(self) -> float | list[float]:
        """The log-probability or log-density of each output, or of all outputs in a joint analysis."""
        if self._classes is not None:
            with computing(self._tables[self._classes]):
                return self._root.log_evidence
        return list(self._for_all_tables(lambda _, posterior: posterior.log_evidence).values())

    def draw(self, draws: int, rng: np.random.Generator, bar: Bar = QUIET) -> dict[str, Draws]:
        """Independent draws of all tables. The bar advances by one with each table."""
        drawn: dict[str, Draws] = {}
        # Tables that share a noise share the radius of each draw.
        uniforms: dict[tuple[str, ...], Array] = {}

        def draw_table(name: str, posterior: _Posterior) -> Draws:
            group = self._tables[name].noise_group
            if isinstance(posterior, JointPosterior) and group:
                if group not in uniforms:
                    uniforms[group] = rng.random(draws)
                return posterior.draw(draws, rng, uniforms[group])
            if name in self._features:
                return self._features[name].draw_given(drawn[str(self._classes)].counts, rng)
            drawn[name] = posterior.draw(draws, rng)
            return drawn[name]

        return self._for_all_tables(draw_table, bar)

    def estimate(self, prob: list[float], bar: Bar = QUIET) -> dict[str, Estimate]:
        """Means, standard deviations and central intervals of shares and counts. The evidence is that of all tables."""

        def estimate_table(name: str, posterior: _Posterior) -> Estimate:
            if (feature := self._features.get(name)) is None:
                return posterior.estimate(prob)
            summary = feature.estimate_given(self._root.numbers, prob, self._root.log_evidence)
            return with_drawn_quantiles(summary, partial(self._draw_given, feature))

        return self._for_all_tables(estimate_table, bar)

    def _draw_given(self, feature: TablePosterior, draws: int, rng: np.random.Generator) -> Draws:
        if self._root_counts is None or len(self._root_counts) != draws:
            # A separate generator, because `rng` restarts for each feature.
            self._root_counts = self._root.counts(draws, np.random.default_rng(20261125))
        return feature.draw_given(self._root_counts, rng)

    def _for_all_tables[T](self, function: Callable[[str, _Posterior], T], bar: Bar = QUIET) -> dict[str, T]:
        """The results of a function of each table, called for the classes first, in the order of the tables."""
        results = {}
        for name, posterior in self._posteriors.items():
            with computing(self._tables[self._classes or name]):
                results[name] = function(name, posterior)
            bar.advance()
        return {name: results[name] for name in self._tables}
