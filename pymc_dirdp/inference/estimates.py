"""Posterior summaries of counts and shares without sampling: means, standard deviations and intervals."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import open_unit_interval
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import Lists
from pymc_dirdp.inference.quantiles import count_quantiles, share_mixture, share_quantiles, sums_of_others
from pymc_dirdp.inference.tree import Pmf
from pymc_dirdp.sampling.fast import dirichlet


@dataclass(frozen=True, eq=False)
class Draws:
    """Independent draws from the distribution of a row given an output.

    Attributes
    ----------
    counts : array of int, shape (draws, d)
        Each row adds up to the total.
    shares : array, shape (draws, d)
        Each row is positive and adds up to 1.
    acceptance : float
        The acceptance rate of a Markov chain; 1 for independent draws.
    effective : float or None
        Effective sample size; None if the draws are independent.
    """

    counts: Integers
    shares: Array
    acceptance: float = 1.0
    effective: float | None = None


def draw_shares(counts: Integers, alpha: Array, rng: np.random.Generator) -> Array:
    """One draw of the shares for each row of counts: `Dirichlet(alpha + counts)`, shape of `counts`."""
    shares: Array = dirichlet(alpha + counts, 1, rng, overwrite=True)[0]
    return shares


@dataclass(frozen=True, eq=False)
class Estimate:
    """Posterior summaries of one row, or of several concatenated rows, given an output.

    Attributes
    ----------
    share_means, share_sds, count_means, count_sds : array, shape (d,)
        Means and standard deviations of the shares `p` and of the counts `x`.
    prob : array, shape (m,)
        Probabilities of the intervals.
    count_intervals : array of int, shape (m, d, 2)
        Central intervals of the counts, both ends included; their probability is at least the nominal one.
    log_evidence : float
        Logarithm of the probability or density of the output.
    share_quantiles : callable
        Quantiles of the shares, shape `(levels, d)`, at an array of levels. This is the slowest part.
    caveat : str
        How the summaries were computed if not by exact sums, and which of them are unreliable; empty for exact sums.
    """

    share_means: Array
    share_sds: Array
    count_means: Array
    count_sds: Array
    prob: Array
    count_intervals: Integers
    log_evidence: float
    share_quantiles: Callable[[Array], Array] = field(repr=False)
    caveat: str = ""

    @cached_property
    def share_intervals(self) -> Array:
        """Central intervals of the shares, shape (m, d, 2)."""
        low, high = np.split(self.share_quantiles(np.concatenate([(1 - self.prob) / 2, (1 + self.prob) / 2])), 2)
        return np.stack([low, high], axis=-1)


def listed(cells: Sequence[Pmf]) -> tuple[Lists, Array]:
    """Concatenate functions of the counts of cells: their numbers in one list, and the values, shape (k, numbers).

    The first of the k functions of a cell is its distribution, which the list has.
    """
    values = np.concatenate([np.atleast_2d(cell.values) for cell in cells], axis=1)
    widths = np.array([cell.values.shape[-1] for cell in cells])
    with np.errstate(divide="ignore"):
        return Lists.whole(np.array([cell.low for cell in cells]), widths, np.log(values[0])), values


@final
@dataclass(frozen=True, eq=False)
class KnownRows:
    """Rows whose totals are known, and the distributions of their counts.

    Attributes
    ----------
    alpha : array, shape (rows, d)
        The priors of the shares.
    totals : array of int, shape (rows,)
    counts : Lists
        The distributions of all cells, row by row.
    units : array, shape (rows,), optional
        Number of records per unit of the counts and the total; 1 by default.
    """

    alpha: Array
    totals: Integers
    counts: Lists
    units: Array | float = 1.0

    @cached_property
    def cell_units(self) -> Array:
        """The unit of each cell."""
        return np.repeat(np.broadcast_to(self.units, len(self.alpha)), self.alpha.shape[1])

    @property
    def share_moments(self) -> tuple[Array, Array]:
        """Means and standard deviations of the shares."""
        size = np.repeat(self.alpha.sum(axis=1) + self.units * self.totals, self.alpha.shape[1])
        if self.alpha.shape[1] == 1:
            return np.ones(len(size)), np.zeros(len(size))
        mean = (self.alpha.ravel() + self.cell_units * self.counts.means) / size
        variances = self.cell_units**2 * self.counts.variances
        return mean, np.sqrt((mean * (1 - mean) + variances / size) / (size + 1))

    @property
    def count_moments(self) -> tuple[Array, Array]:
        """Means and standard deviations of the counts."""
        return self.cell_units * self.counts.means, self.cell_units * np.sqrt(self.counts.variances)

    def count_quantiles(self, levels: Array) -> Integers:
        """Quantiles of the counts, shape `(levels, cells)`."""
        return _in_records(count_quantiles(levels, self.counts), self.cell_units)

    def share_quantiles(self, levels: Array, *, at_a_time: int = 2**16) -> Array:
        """Quantiles of the shares, shape `(levels, cells)`, in chunks of cells with `at_a_time` points."""
        alphas, others = self.alpha.ravel(), sums_of_others(self.alpha).ravel()
        totals, quantiles = np.repeat(self.totals, self.alpha.shape[1]), np.empty((len(levels), self.counts.size))
        ends = np.flatnonzero(np.diff(np.cumsum(self.counts.widths) // at_a_time)) + 1
        for cells in np.split(np.arange(self.counts.size), ends):
            priors, units = (alphas[cells], others[cells]), self.cell_units[cells]
            mixture = share_mixture(self.counts.take(cells), priors, totals[cells], units)
            quantiles[:, cells] = share_quantiles(mixture, levels)
        return quantiles


@final
@dataclass(frozen=True, eq=False)
class RowWithUncertainTotal:
    """A row with a distribution of its total: sums over all counts and totals.

    Attributes
    ----------
    alpha : array, shape (d,)
        The prior of the shares.
    parts : sequence of (Lists, array of shape (3, points))
        From :func:`given_total`; the parts add up.
    cell_units : float
        Number of records per unit of the counts.
    """

    alpha: Array
    parts: Sequence[tuple[Lists, Array]]
    cell_units: float = 1.0

    @property
    def count_means(self) -> Array:
        """Expected counts, shape (d,)."""
        sums = (np.bincount(lists.cell, masses[0] * lists.x, lists.size) for lists, masses in self.parts)
        return np.asarray(self.cell_units * sum(sums))

    @property
    def count_moments(self) -> tuple[Array, Array]:
        """Means and standard deviations of the counts."""
        means = self.count_means
        squares = (
            np.bincount(lists.cell, masses[0] * (self.cell_units * lists.x - means[lists.cell]) ** 2, lists.size)
            for lists, masses in self.parts
        )
        return means, np.sqrt(np.asarray(sum(squares)))

    def count_quantiles(self, levels: Array) -> Integers:
        """Quantiles of the counts, shape `(levels, d)`."""
        shares = [np.bincount(lists.cell, masses[0], lists.size) for lists, masses in self.parts]
        # A part without mass for a cell may have any distribution there.
        counts = [lists.weighted(np.maximum(masses[0], 1e-280)) for lists, masses in self.parts]
        return _in_records(count_quantiles(levels, *counts, shares=shares), self.cell_units)

    @cached_property
    def share_moments(self) -> tuple[Array, Array]:
        """Means and standard deviations of the shares."""
        if len(self.alpha) == 1:
            return np.ones(1), np.zeros(1)
        mean, square = np.zeros(len(self.alpha)), np.zeros(len(self.alpha))
        for lists, masses in self.parts:
            first = self.alpha[lists.cell] + self.cell_units * lists.x
            mean += np.bincount(lists.cell, masses[1] * first, len(mean))
            square += np.bincount(lists.cell, masses[2] * first * (first + 1), len(mean))
        return mean, np.sqrt(np.maximum(square - mean**2, 0.0))


def _in_records(counts: Integers, unit: Array | float) -> Integers:
    return np.rint(unit * counts).astype(np.int64)


def given_total(alpha: Array, total: Pmf, unit: float = 1.0) -> Pmf:
    """Three functions of a row's total n for :class:`RowWithUncertainTotal`.

    They are its distribution, and the distribution times 1 / (a0 + n) and times 1 / ((a0 + n) (a0 + n + 1)). These give
    the moments of a share: its mean given the count x and the total n is (a + x) / (a0 + n), and so on.
    """
    size, masses = alpha.sum() + unit * total.numbers, total.values[0]
    return Pmf(total.low, np.stack([masses, masses / size, masses / (size * (size + 1))]))


def with_drawn_quantiles(estimate: Estimate, draw: Callable[[int, np.random.Generator], Draws]) -> Estimate:
    """Replace quantiles of shares by those of exact draws; 20,000 draws have an error of 0.015 standard deviations."""
    # Fewer draws for many cells, to limit memory.
    draws = min(20_000, max(2000, 20_000_000 // len(estimate.share_means)))

    def share_quantiles(ends: Array) -> Array:
        shares = draw(draws, np.random.default_rng(20261124)).shares
        return np.asarray(np.quantile(shares.reshape(draws, -1), ends, axis=0))

    return replace(
        estimate, share_quantiles=share_quantiles, caveat=f"ends of intervals of shares from {draws} exact draws"
    )


def estimate_of_rows(
    parts: Sequence[KnownRows | RowWithUncertainTotal],
    prob: Sequence[float],
    log_evidence: float,
    order: Integers | None = None,
) -> Estimate:
    """Summaries of rows, whose cells are concatenated.

    Parameters
    ----------
    parts : sequence of KnownRows or RowWithUncertainTotal
    prob : sequence of float
        Probabilities of the intervals.
    log_evidence : float
    order : array of int, shape (cells,), optional
        The position of each cell in the concatenated parts; by default they are in order.
    """
    levels, ends = interval_ends(prob)
    cells = sum(part.alpha.size for part in parts)
    place = np.arange(cells) if order is None else order

    def together(values: Iterable[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(list(values), axis=-1)[..., place]

    moments, of_counts = [part.share_moments for part in parts], [part.count_moments for part in parts]
    least, most = np.split(together(part.count_quantiles(ends) for part in parts), 2)
    return Estimate(
        share_means=together(mean for mean, _ in moments),
        share_sds=together(sd for _, sd in moments),
        count_means=together(mean for mean, _ in of_counts),
        count_sds=together(sd for _, sd in of_counts),
        prob=levels,
        count_intervals=np.stack([least, most], axis=-1),
        log_evidence=log_evidence,
        share_quantiles=lambda ends: together(
            part.share_quantiles(ends) for part in parts if isinstance(part, KnownRows)
        ),
    )


def summarised(
    draws: Draws,
    alpha: Array | None,
    prob: Sequence[float],
    log_evidence: float,
    caveat: str = "averages over exact draws",
) -> Estimate:
    """Summaries of draws, with the cells of all rows concatenated.

    Parameters
    ----------
    draws : Draws
        Of shape `(draws, ..., d)`.
    alpha : array, shape (..., d), or None
        Prior of the shares; None if it is not a Dirichlet distribution.
    prob : sequence of float
        Probabilities of the intervals.
    log_evidence : float
    caveat : str, optional
        Description of the averages.
    """
    levels, ends = interval_ends(prob)
    counts, shares = (values.reshape(len(values), -1) for values in (draws.counts, draws.shares))
    means, inner = shares, np.zeros(shares.shape)
    if alpha is not None:
        # Use the exact mean and variance of a share given the counts, which reduces the Monte Carlo error.
        first, size = alpha + draws.counts, (alpha + draws.counts).sum(axis=-1, keepdims=True)
        means = (first / size).reshape(len(counts), -1)
        inner = (first * (size - first) / (size**2 * (size + 1))).reshape(len(counts), -1)
    least, most = np.split(np.quantile(counts, ends, axis=0, method="inverted_cdf"), 2)
    return Estimate(
        share_means=means.mean(axis=0),
        share_sds=np.sqrt(inner.mean(axis=0) + means.var(axis=0)),
        count_means=counts.mean(axis=0),
        count_sds=counts.std(axis=0),
        prob=levels,
        count_intervals=np.stack([least, most], axis=-1),
        log_evidence=log_evidence,
        share_quantiles=lambda ends: np.quantile(shares, ends, axis=0),
        caveat=caveat,
    )


def interval_ends(prob: Sequence[float]) -> tuple[Array, Array]:
    """Probabilities of intervals, and levels of all lower and then all upper ends."""
    if len(prob) == 0:
        raise ArgumentError("Expected prob to have at least one probability, got none.")
    levels = np.array([open_unit_interval(prob=p) for p in prob])
    return levels, np.concatenate([(1 - levels) / 2, (1 + levels) / 2])
