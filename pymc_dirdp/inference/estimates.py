"""What a release says of counts and shares, without sampling: means, standard deviations and intervals."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import open_unit_interval
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import CUT, Lists
from pymc_dirdp.inference.quantiles import count_quantiles, share_mixture, share_quantiles
from pymc_dirdp.inference.tree import Group, Spread, added
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
        The share of proposals of a Markov chain that was accepted; 1 for independent draws.
    effective : float or None
        How many independent draws these are worth; None where they are independent.
    """

    counts: Integers
    shares: Array
    acceptance: float = 1.0
    effective: float | None = None


def draw_shares(counts: Integers, alpha: Array, rng: np.random.Generator) -> Array:
    """One draw of the shares for each row of counts: `Dirichlet(alpha + counts)`, shape of `counts`."""
    shares: Array = dirichlet(alpha + counts, 1, rng)[0]
    return shares


@dataclass(frozen=True, eq=False)
class Estimate:
    """Summaries of one row, or of rows that follow one another, given an output.

    Attributes
    ----------
    share_means, share_sds, count_means, count_sds : array, shape (d,)
        Means and standard deviations of the shares `p` and of the counts `x`.
    prob : array, shape (m,)
        Probabilities of the intervals.
    count_intervals : array of int, shape (m, d, 2)
        Central intervals of the counts, both ends included; they hold at least the stated probability.
    log_evidence : float
        Logarithm of the probability or density of the output.
    share_quantiles : callable
        Quantiles of the shares, shape `(levels, d)`, at an array of levels: what takes most of the time.
    caveat : str
        What these are if not sums, and what of them should not be trusted; empty for sums.
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


def listed(cells: Sequence[Spread]) -> Lists:
    """Distributions of counts in one."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.concatenate([cell.values for cell in cells]))
    widths = np.array([len(cell.values) for cell in cells])
    return Lists.whole(np.array([cell.low for cell in cells]), widths, logs).trimmed(CUT)


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
        Of all cells, row by row.
    """

    alpha: Array
    totals: Integers
    counts: Lists

    @property
    def share_moments(self) -> tuple[Array, Array]:
        """Means and standard deviations of the shares."""
        size = np.repeat(self.alpha.sum(axis=1) + self.totals, self.alpha.shape[1])
        if self.alpha.shape[1] == 1:
            return np.ones(len(size)), np.zeros(len(size))
        mean = (self.alpha.ravel() + self.counts.means) / size
        return mean, np.sqrt((mean * (1 - mean) + self.counts.variances / size) / (size + 1))

    def share_quantiles(self, levels: Array, cells: int) -> Array:
        """Quantiles of the shares, shape `(levels, cells)`."""
        return share_quantiles(share_mixture(self.counts, self.alpha, self.totals), levels)


@final
class RowGiven:
    """A row whose total is not known, but its distribution: sums over all counts and totals, and quantiles of draws.

    Parameters
    ----------
    alpha : array, shape (d,)
        The prior of the shares.
    total : Spread
        The distribution of the total, shape (1, n).
    group : Group
        Of the cells.
    """

    def __init__(self, alpha: Array, total: Spread, group: Group) -> None:
        self._alpha, self._total, self._group = alpha, total, group

    @cached_property
    def _parts(self) -> list[tuple[Lists, Array]]:
        """Of each count the distribution, and the same with the expected 1 / (a0 + n) and 1 / ((a0 + n) (a0 + n + 1)).

        The moments of a share given its count x and the total n are (a + x) / (a0 + n), and so on.
        """
        size = self._alpha.sum() + self._total.numbers
        masses = self._total.values[0]
        known = Spread(self._total.low, np.stack([masses, masses / size, masses / (size * (size + 1))]))
        return self._group.given(known)

    @property
    def count_means(self) -> Array:
        """Expected counts, shape (d,)."""
        return np.asarray(sum(np.bincount(lists.cell, masses[0] * lists.x, lists.size) for lists, masses in self._parts))

    @cached_property
    def counts(self) -> Lists:
        """The distributions of the counts."""
        (first, masses), *others = self._parts
        if not others:
            return first.weighted(masses[0]).trimmed(CUT)
        return listed([
            added([Spread(int(lists.lows[cell]), lists.every(values[0], cell)[None]) for lists, values in self._parts]).part(0)
            for cell in range(len(self._alpha))
        ])

    @cached_property
    def share_moments(self) -> tuple[Array, Array]:
        """Means and standard deviations of the shares."""
        if len(self._alpha) == 1:
            return np.ones(1), np.zeros(1)
        mean, square = np.zeros(len(self._alpha)), np.zeros(len(self._alpha))
        for lists, masses in self._parts:
            first = self._alpha[lists.cell] + lists.x
            mean += np.bincount(lists.cell, masses[1] * first, len(mean))
            square += np.bincount(lists.cell, masses[2] * first * (first + 1), len(mean))
        return mean, np.sqrt(np.maximum(square - mean**2, 0.0))

    def share_quantiles(self, levels: Array, cells: int, draws: int = 20_000) -> Array:
        """Quantiles of the shares, shape `(levels, d)`, of so many draws: to .015 of a standard deviation."""
        rng = np.random.default_rng(0)
        totals = self._total.low + rng.choice(self._total.values.shape[1], draws, p=self._total.values[0])
        shares = draw_shares(self._group.draw(totals, rng), self._alpha, rng)
        return np.quantile(shares, levels, axis=0)


def estimate_of_rows(
    parts: Sequence[KnownRows | RowGiven], prob: Sequence[float], log_evidence: float, order: Integers | None = None
) -> Estimate:
    """Summaries of rows, whose cells follow one another.

    Parameters
    ----------
    parts : sequence of KnownRows or RowGiven
    prob : sequence of float
        Probabilities of the intervals.
    log_evidence : float
    order : array of int, shape (cells,), optional
        The place of each cell among those of all parts; by default they are in order.
    """
    levels, ends = interval_ends(prob)
    cells = sum(part.counts.size for part in parts)
    place = np.arange(cells) if order is None else order

    def together(values: Iterable[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(list(values), axis=-1)[..., place]

    moments = [part.share_moments for part in parts]
    least, most = np.split(together(count_quantiles(part.counts, ends) for part in parts), 2)
    return Estimate(
        share_means=together(mean for mean, _ in moments),
        share_sds=together(sd for _, sd in moments),
        count_means=together(part.counts.means for part in parts),
        count_sds=np.sqrt(together(part.counts.variances for part in parts)),
        prob=levels,
        count_intervals=np.stack([least, most], axis=-1),
        log_evidence=log_evidence,
        share_quantiles=lambda ends: together(part.share_quantiles(ends, cells) for part in parts),
    )


def summarised(
    draws: Draws,
    alpha: Array | None,
    prob: Sequence[float],
    log_evidence: float,
    caveat: str = "averages over exact draws",
) -> Estimate:
    """The same summaries of draws. Cells of all rows follow one another.

    Parameters
    ----------
    draws : Draws
        Of shape `(draws, ..., d)`.
    alpha : array, shape (..., d), or None
        Prior of the shares; None if it is no Dirichlet distribution.
    prob : sequence of float
        Probabilities of the intervals.
    log_evidence : float
    caveat : str, optional
        What is said of the averages.
    """
    levels, ends = interval_ends(prob)
    counts, shares = (values.reshape(len(values), -1) for values in (draws.counts, draws.shares))
    means, inner = shares, np.zeros(shares.shape)
    if alpha is not None:
        # Given its counts the mean and the variance of a share are known, which leaves less to chance.
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
    """Probabilities of intervals, and those of all lower and then all upper ends."""
    if len(prob) == 0:
        raise ArgumentError("Expected prob to hold at least one probability, got none.")
    levels = np.array([open_unit_interval(prob=p) for p in prob])
    return levels, np.concatenate([(1 - levels) / 2, (1 + levels) / 2])
