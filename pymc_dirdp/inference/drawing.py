"""Exact draws of the counts of a row: given their total, or where every total is as likely as another.

1. Cells are drawn from their tilted distributions, by cumulative probabilities or by rejection.
2. One cell takes what the others leave of the total, and the draw is accepted with the probability that it does. If no
   cell has much room, several take the rest: it is accepted with the probability of their sum, and they are drawn next.
3. Where few proposals are accepted, cells are drawn one after the other from listed sums.
4. A flat prior of the total makes the cells independent given one rate, with a density that is known: the rate is drawn
   first, and no sum over tables of one total is needed.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import loggamma

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import Distributions, NumberDraws
from pymc_dirdp.inference.rows import RowPosterior, TiltedCells, tilt_for
from pymc_dirdp.inference.sums import Convolution, Inversion, Pair, refuse_too_many
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio

# One cell takes what the others leave if it has this share of the room; it is then accepted often enough.
_SHARE = 0.02
# So few proposals may be accepted before sums are taken number by number.
_RARE = 2e-3
# At least so many tables are proposed at a time, because every cell of a round takes some time of its own.
_AT_LEAST = 512
_MOST_ROUNDS = 5_000
# What takes more work than can be done is found out from so many cells.
_SOME = 64
# So many tables are proposed to see how many are accepted.
_TRIAL = 8_192


def _room(cells: Distributions) -> Array:
    """The variance of a normal distribution with the same largest probability.

    It says how well a cell can take what others leave.

    A cell that is probably empty may have a large variance, and yet nearly always refuse. It is rounded, so that the
    first of several cells with the same noise is taken on every machine, and a seed gives the same draws.
    """
    return np.exp(np.round(-2 * cells.peaks, 6)) / (2 * np.pi)


def draw_counts(tilted: TiltedCells, totals: Integers, rng: np.random.Generator) -> tuple[Integers, float]:
    """One table for each of some totals, and the share of the proposals that was accepted.

    Parameters
    ----------
    tilted : TiltedCells
        The cells; the totals are near theirs.
    totals : array of int, shape (draws,)
        What each table adds up to.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    counts : array of int, shape (draws, d)
        Independent draws from the distribution of the cells given their total.
    acceptance : float
        In (0, 1]; 1 where no draw is ever refused.
    """
    cells = tilted.cells
    numbers = NumberDraws(cells)
    room = _room(cells)
    order = np.argsort(room, kind="stable")
    counts = np.empty((len(totals), cells.size), dtype=np.int64)
    expected = tilted.log_sum_of_products - cells.log_totals.sum() + cells.tilt * tilted.total
    is_rare = expected - numbers.log_bound(int(order[-1])) < np.log(_RARE)
    if is_rare and isinstance(tilted.sums, Convolution):
        return tilted.sums.draw(totals, rng), 1.0
    if is_rare and isinstance(tilted.sums, Pair) and np.all(totals == tilted.total):
        counts[:, 0] = NumberDraws(tilted.marginals).draw(0, len(totals), rng)
        counts[:, 1] = totals - counts[:, 0]
        return counts, 1.0
    # A row of one cell holds all of its records, and nothing is proposed.
    acceptance, left = 1.0, totals
    while len(order) > 1:
        # The cell with most room takes the rest, or those with half of all room, which are drawn next.
        own = room[order]
        half = int(np.searchsorted(np.cumsum(own[::-1]), own.sum() / 2)) + 1
        free, rest = np.split(order, [-1 if own[-1] >= _SHARE * own.sum() else -half])
        counts[:, free], share = _drawn_with_rest(tilted, numbers, free, rest, left, rng)
        acceptance = share if len(order) == cells.size else acceptance
        left, order = left - counts[:, free].sum(axis=1), rest
    counts[:, order[0]] = left
    return counts, acceptance


def _drawn_with_rest(
    tilted: TiltedCells,
    numbers: NumberDraws,
    free: Integers,
    rest: Integers,
    totals: Integers,
    rng: np.random.Generator,
) -> tuple[Integers, float]:
    """Some cells of every row given that others take the rest of the total; and the share of proposals accepted.

    They are drawn from their own distributions, and accepted with a probability proportional to that of the rest.
    """
    pivot, sums = int(rest[0]), None if len(rest) == 1 else Inversion(tilted.cells, tilted.total, of=rest)
    counts, waiting = np.empty((len(totals), len(free)), dtype=np.int64), np.arange(len(totals))
    tried = accepted = 0
    for _ in range(_MOST_ROUNDS):
        # The first accepted one of several proposals counts; a few more than are needed spare rounds.
        repeats = 1 + _AT_LEAST // len(waiting)
        rows = np.repeat(waiting, repeats)
        proposed = np.stack([numbers.draw(int(cell), len(rows), rng) for cell in free], axis=1)
        left = totals[rows] - proposed.sum(axis=1)
        known, bound = (
            (numbers.log_pmf(pivot, left), numbers.log_bound(pivot))
            if sums is None
            else (sums.log_sum(left), sums.log_bound)
        )
        took = np.log1p(-rng.random(len(rows))) <= known - bound
        tried, accepted = tried + len(rows), accepted + int(took.sum())
        took = took.reshape(-1, repeats)
        settled = took.any(axis=1)
        counts[waiting[settled]] = proposed[np.flatnonzero(settled) * repeats + took[settled].argmax(axis=1)]
        waiting = waiting[~settled]
        if len(waiting) == 0:
            return counts, accepted / tried
    raise ArgumentError(
        "The output is too unlikely under its total for rejection sampling. Check the output and n_records."
    )


def draw_row(row: RowPosterior, draws: int, rng: np.random.Generator) -> tuple[Integers, float]:
    """Independent draws of the counts of a row with a known total, and the share of the proposals that was accepted.

    Sums of cells, which take long for wide noise on very many records, are looked at only if they are needed: if no
    single cell takes what the others leave often enough.

    Parameters
    ----------
    row : RowPosterior
        The row.
    draws : int
        How many.
    rng : numpy.random.Generator
        The source of randomness.
    """
    cells = row.cells()
    cells.settle(tilt_for(cells, row.total))
    room = _room(cells)
    pivot = int(np.argmax(room))
    if room[pivot] >= _SHARE * room.sum():
        numbers = NumberDraws(cells)
        accepted = _by_pivot(cells, numbers, pivot, row.total, rng)
        if len(accepted) >= _RARE * _TRIAL:
            found, proposed, size = [accepted], _TRIAL, len(accepted)
            while size < draws:
                found.append(_by_pivot(cells, numbers, pivot, row.total, rng))
                proposed, size = proposed + _TRIAL, size + len(found[-1])
            return np.concatenate(found)[:draws], size / proposed
    return draw_counts(row.tilted, np.full(draws, row.total), rng)


def refuse_undrawable(row: RowPosterior) -> None:
    """Raise an error about a row of so many cells, or with noise so wide, that :func:`draw_row` could not draw it.

    It looks at some of its cells, evenly spaced, so it takes no time.

    Raises
    ------
    TooManyNodesError
    """
    d = len(row.alpha)
    some = np.unique(np.linspace(0, d - 1, min(d, _SOME)).astype(np.int64))
    part = replace(
        row, alpha=row.alpha[some], log_likelihood=lambda counts, cells: row.log_likelihood(counts, some[cells])
    )
    cells = part.cells()
    cells.settle(tilt_for(cells, row.total * len(some) // d))
    refuse_too_many(cells, d)


def _by_pivot(cells: Distributions, numbers: NumberDraws, pivot: int, total: int, rng: np.random.Generator) -> Integers:
    """The accepted ones of some proposals: one cell takes what the others leave."""
    counts = np.zeros((_TRIAL, cells.size), dtype=np.int64)
    for cell in np.delete(np.arange(cells.size), pivot).tolist():
        counts[:, cell] = numbers.draw(cell, _TRIAL, rng)
    counts[:, pivot] = total - counts.sum(axis=1)
    log_share = numbers.log_pmf(pivot, counts[:, pivot]) - numbers.log_bound(pivot)
    return counts[np.log1p(-rng.random(_TRIAL)) <= log_share]


# Relative error of the sum of exponentials, on the logarithmic scale, and what is left out at its ends.
_ERROR = -21.0
_LEFT_OUT = 32.0
# Errors of the sums over single counts, at the rates that matter and elsewhere.
_PRECISE, _ROUGH = 1e-11, 1e-3
# Where a rate times the largest total is below that, its exponential is 1.
_FLAT = 1e-10
# Between these rates nothing is overlooked before the rule is laid.
_COARSE = 0.5
# Rates with less probability do not matter, nor do totals so many standard deviations away.
_NEGLIGIBLE, _FAR = 1e-9, 12.0
# Numbers of a distribution that are stored whole where draws are few.
_NARROW = 2048
_MANY = 10_000
_MOST_PROPOSALS = 1000
# So many counts are proposed at a time.
_AT_ONCE = 2**20


def exponential_mixture(excess: float) -> float:
    """The step at which the trapezoidal rule in `log rate` makes a Beta function a sum of exponentials.

    `B(n + 1, excess)` is the integral of `exp(-(n + 1) s) (1 - exp(-s))**(excess - 1)` over rates s > 0. In `log s` it
    is smooth and falls off at both ends. So the rule is wrong by the Fourier transform at `y = 2 pi / step`, which is
    at most about `|Gamma(excess + i y)| / Gamma(excess)` of the whole (Theory, section 16).

    Examples
    --------
    >>> round(exponential_mixture(1.0), 2)
    0.41
    """
    frequency = 12.0
    while (loggamma(excess + 1j * frequency) - loggamma(excess)).real > _ERROR:
        frequency *= 1.05
    return 2 * np.pi / frequency


@dataclass(frozen=True, eq=False)
class FreeTotal:
    """The counts of one row given an output, if every total from `least_total` on is as likely as another.

    A Dirichlet-multinomial prior with a flat total weighs tables by `n! / Gamma(n + a0)` and one factor for each cell.
    Where `a0 > 1`, `n! / Gamma(n + a0)` is an integral of `t**n` with a positive weight. So given t the cells are
    independent, and t has a density that is known. No sum over tables of one total is needed.

    A tree of sums has the same distribution, and takes at most twice the time for ordinary tables. But it takes 60
    times as long for a hundred cells with priors of .01, and refuses noise of scale 10**4 on 10**7 records.

    Parameters
    ----------
    row : RowPosterior
        The row, with the largest total that is possible. A factor of the likelihood that depends on the total alone is
        not looked at.
    least_total : int
        The least one.

    Examples
    --------
    >>> z = np.array([3.0, 12.0, 8.0])
    >>> row = RowPosterior(
    ...     alpha=[1, 1, 1], total=100, log_likelihood=lambda counts, cells: -np.abs(z[cells] - counts) / 2
    ... )
    >>> counts, _ = FreeTotal(row).draw(4000, np.random.default_rng(1))
    >>> round(counts.sum(axis=1).mean())
    22
    """

    row: RowPosterior
    least_total: int = 0

    @cached_property
    def _cells(self) -> Distributions:
        return self.row.cells()

    @cached_property
    def nodes(self) -> tuple[Array, Array]:
        """Rates `s = -log t`, rising, and their probabilities given the output."""
        excess = float(self.row.alpha.sum()) - 1
        if excess <= 0:
            # The weight of a total rises with it. No integral is needed, for draws are refused in proportion.
            return np.zeros(1), np.ones(1)
        step = exponential_mixture(excess)
        # The density rises up to the first of these rates, and falls from the last one on.
        coarse = np.arange(np.log(excess / (self.row.total + excess + 1)), np.log(2 + np.log1p(excess)), _COARSE)
        # Rates that lie far apart need rules of their own.
        rough = np.array([self._log_density(self.row.cells(), u, _ROUGH) for u in coarse.tolist()])
        near = coarse[rough > rough.max() - _LEFT_OUT]
        middle, lowest = int(coarse[np.argmax(rough)] // step), np.log(_FLAT / (self.row.total + 1))
        found = {middle: self._log_density(self._cells, middle * step, _PRECISE)}
        for sign, end in ((-1, near[0]), (1, near[-1])):
            k = middle
            while sign > 0 or k * step > lowest:
                k += sign
                found[k] = self._log_density(self._cells, k * step, _PRECISE)
                if sign * (k * step - end) > 0 and found[k] < max(found.values()) - _LEFT_OUT:
                    break
            else:
                # What is left follows a geometric series.
                found[k] -= np.log(-np.expm1(-excess * step))
        order = np.array(sorted(found))
        logs = np.array([found[k] for k in order.tolist()])
        masses = np.exp(logs - logs.max())
        return np.exp(order * step), masses / masses.sum()

    @cached_property
    def is_cut_off(self) -> bool:
        """Whether totals above the largest one, were they possible, would have any probability to speak of."""
        rates, masses = self.nodes
        self._cells.settle(-float(rates[masses > _NEGLIGIBLE][0]), tolerance=_PRECISE, short=False)
        total = self._cells.means.sum() + _FAR * np.sqrt(self._cells.variances.sum())
        return bool(total > self.row.total or (self._cells.highs >= self.row.most).any())

    def _log_density(self, cells: Distributions, u: float, tolerance: float) -> float:
        """Logarithm of the density of `u = log s` given the output, up to a constant."""
        s, excess = np.exp(u), float(self.row.alpha.sum()) - 1
        cells.settle(-s, tolerance=tolerance, short=False)
        return float(u - s + (excess - 1) * np.log(-np.expm1(-s)) + cells.log_totals.sum())

    def draw(self, draws: int, rng: np.random.Generator) -> tuple[Integers, float]:
        """Independent tables given the output, shape `(draws, d)`, and the share of proposals that was accepted."""
        rates, masses = self.nodes
        found: list[Integers] = []
        size, proposed, accepted = draws, 0, 0
        for _ in range(_MOST_PROPOSALS):
            tables = self._proposed(rng.multinomial(size, masses), rates, rng)
            tables = tables[self._accepted(tables.sum(axis=1), rng)]
            found.append(tables)
            proposed, accepted = proposed + size, accepted + len(tables)
            if accepted >= draws:
                # Tables stand in the order of their rates.
                together = np.concatenate(found)
                return rng.permutation(together)[:draws], accepted / proposed
            size = min(2 * proposed * (1 + (draws - accepted) // (1 + accepted)), 1 + _AT_ONCE // self._cells.size)
        raise ArgumentError(
            "The output is too unlikely under its totals for rejection sampling. Check the output and n_records."
        )

    def _proposed(self, sizes: Integers, rates: Array, rng: np.random.Generator) -> Integers:
        tables = []
        for rate, size in zip(rates.tolist(), sizes.tolist(), strict=True):
            if size:
                self._cells.settle(-rate, tolerance=_PRECISE)
                # Whole distributions are looked up only where many draws are made from them.
                numbers = NumberDraws(self._cells, narrow=_NARROW if size < _MANY else None)
                tables.append(np.stack([numbers.draw(i, size, rng) for i in range(self._cells.size)], axis=1))
        return np.concatenate(tables)

    def _accepted(self, totals: Integers, rng: np.random.Generator) -> NDArray[np.bool_]:
        possible = (totals >= self.least_total) & (totals <= self.row.total)
        concentration = float(self.row.alpha.sum())
        if concentration >= 1:
            return possible
        # n! / Gamma(n + a0) rises with n.
        ends = np.append(np.minimum(totals, self.row.total), self.row.total).astype(np.float64)
        logs = -_log_gamma_ratio(ends, concentration)
        accepted: NDArray[np.bool_] = possible & (np.log1p(-rng.random(len(totals))) <= logs[:-1] - logs[-1])
        return accepted
