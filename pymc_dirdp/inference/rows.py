"""Rows of counts given an output: independent cells, tilted so that they add up to the total.

1. A row has a Dirichlet-multinomial prior and one likelihood for each cell, so its counts are independent numbers given
   their total. Their weights are tilted so that the total is what they add up to on average; then the distribution of
   the sum is known best where it is asked for.
2. Tilts of all rows are found at once, by Newton's method between bounds on lists of few points.
3. The distribution of a count given the total follows from the sum of all other counts of the row,
   :mod:`pymc_dirdp.inference.lattice`. Rows of about the same length are summed together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.lattice import Convolved, Sums, reaches
from pymc_dirdp.inference.numbers import (
    CUT,
    Lists,
    LogWeight,
    Numbers,
    TooManyNumbersError,
    impossible,
    refuse_too_many,
)
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio, nodes


@dataclass(frozen=True, kw_only=True)
class RowPosterior:
    """The distribution of one row of counts given an output whose likelihood is a product over cells.

    A priori the shares are `p ~ Dirichlet(alpha)` and the counts `x ~ Multinomial(total, p)`. The output has the
    likelihood `exp(log_factor) * prod_i exp(log_likelihood(x_i, i))`. Then `p | x` is `Dirichlet(alpha + x)` whatever
    was released, and `P(x | output)` is proportional to a product of one weight for each cell (Theory, section 16).

    Parameters
    ----------
    alpha : array, shape (d,)
        Prior of the analyst; positive. It need not be the prior of the mechanism.
    total : int
        Number of records, known.
    log_likelihood : callable
        `log_likelihood(counts, cells)` takes a real array of counts and a whole array of cells, which broadcast
        against each other, and returns the log-likelihood of each, elementwise; `-inf` where the output is impossible.
        With `smooth` it is also asked between whole counts. Log-likelihoods of several outputs add up.
    least : int
        The guaranteed least count of every cell, `min_count`.
    smooth : bool
        False if the log-likelihood is known at whole counts only; then all are looked at.
    log_factor : float
        Logarithm of the factor of the likelihood that depends on the total alone. It matters for the evidence only.
    log_shares : array, shape (d,), optional
        Logarithms of the shares, if they are known. Then `x ~ Multinomial(total, shares)` and `alpha` says nothing. One
        may be `-inf`: that cell is empty.
    unit : float
        What a count and the total are multiples of, from :meth:`in_units`; 1 if every count is summed by itself.

    Examples
    --------
    Two-sided geometric noise of scale 2 on three counts with a total of 20:

    >>> z = np.array([3.0, 12.0, 8.0])
    >>> row = RowPosterior(
    ...     alpha=[1, 1, 1], total=20, log_likelihood=lambda counts, cells: -np.abs(z[cells] - counts) / 2
    ... )
    >>> row.means.round(2)
    array([ 2.44, 10.77,  6.79])
    """

    alpha: Array
    total: int
    log_likelihood: LogWeight = field(repr=False)
    least: int = 0
    smooth: bool = True
    log_factor: float = 0.0
    log_shares: Array | None = field(default=None, repr=False)
    unit: float = 1.0

    def __post_init__(self) -> None:
        alpha = positive_array(alpha=self.alpha, min_entries=1)
        if alpha.ndim != 1:
            raise ArgumentError(
                f"Expected alpha to be one row, got shape {alpha.shape}. Give each row a distribution of its own."
            )
        object.__setattr__(self, "alpha", alpha)
        object.__setattr__(self, "total", integer(0, total=self.total))
        object.__setattr__(self, "least", integer(0, least=self.least))
        if self.total < self.least * len(alpha):
            raise ArgumentError(
                f"Expected total >= least * d = {self.least * len(alpha)}, because every cell holds `least` records."
            )

    def at(self, total: int, log_factor: float = 0.0) -> "RowPosterior":
        """The same output for another total."""
        return replace(self, total=total, log_factor=log_factor)

    @property
    def most(self) -> int:
        """The largest count that a cell can have."""
        return self.total - self.least * (len(self.alpha) - 1)

    def log_weight(self, counts: Array, cells: Integers) -> Array:
        """`log Gamma(x + alpha_i) - log x! + log L_i(x)`, or `x log p_i - log x! + log L_i(x)` for known shares."""
        x = self.unit * counts
        found = np.asarray(self.log_prior_weight(counts, cells) + self.log_likelihood(x, cells), dtype=np.float64)
        if self.unit == 1:
            return found
        near = self._first_multiples
        place = np.minimum(np.rint(counts), len(near) - 1).astype(np.int64)
        return np.where(counts < len(near), near[place, cells], found + np.log(self.unit))

    def log_prior_weight(self, counts: Array, cells: Integers) -> Array:
        """The same without the likelihood."""
        x = self.unit * counts
        if self.log_shares is None:
            return _log_gamma_ratio(x, self.alpha[cells])  # type: ignore[arg-type]  # It broadcasts.
        with np.errstate(invalid="ignore"):
            known: Array = np.where(x == 0, 0.0, x * self.log_shares[cells]) - gammaln(x + 1)
        return known

    def in_units(self, unit: float) -> "RowPosterior":
        """The same with counts and a total that are multiples of about so many records, for noise that is far wider.

        A multiple has the weights of all counts near it, each of which is divided between its two neighbours so that it
        stays where it is on average. What is off is of the order of `(unit / width)**2`, of the width of the weights;
        where it is not known whether there are fewer records than a unit, shares are off by `unit / width`.
        """
        if unit == 1:
            return self
        if not self.smooth or self.least or self.total < 64 * unit:
            refuse_too_many(np.inf, most=0)
        return replace(self, total=round(self.total / unit), unit=self.total / round(self.total / unit))

    @cached_property
    def _first_multiples(self) -> Array:
        return self._near_zero(64)

    @cached_property
    def _first_totals(self, multiples: int = 1024) -> Array:
        """Logarithms of what the sums of the first multiples are multiplied by, so that nothing has an evidence of 1.

        There a formula in the total alone would divide what a cell has from what it shares with multiples beside it.
        """
        prior = replace(self, log_likelihood=lambda x, cells: np.zeros(np.shape(x)), log_shares=None)
        sums, scale = np.ones(1), 0.0
        for logs in prior._near_zero(multiples).T:
            sums = np.convolve(sums, np.exp(logs - logs.max()))[:multiples]
            scale += logs.max()
        with np.errstate(divide="ignore"):
            return np.asarray(-np.log(sums) - scale)

    def _near_zero(self, multiples: int, listed: int = 2048) -> Array:
        """Logarithms of the weights of the first multiples, shape (multiples, d): counts there are as steep as a power.

        Few counts are summed one by one; after them come integrals, from half a count below the first of each.
        """
        end = multiples * self.unit
        breaks = np.concatenate([listed * 2.0 ** np.arange(64), self.unit * np.arange(multiples + 1)])
        breaks = np.unique(breaks[(breaks >= listed) & (breaks <= end)])
        panels, panel_weights = nodes(breaks)
        x = np.concatenate([np.arange(min(listed, np.ceil(end))), panels - 0.5])
        rule = np.concatenate([np.ones(len(x) - len(panels)), panel_weights])
        cells = np.broadcast_to(np.arange(len(self.alpha)), (len(x), len(self.alpha)))
        logs = replace(self, unit=1.0).log_weight(np.broadcast_to(x[:, None], cells.shape), cells)
        peak = np.maximum(logs.max(axis=0), -1e300)
        weights, near = rule[:, None] * np.exp(logs - peak), np.floor(x / self.unit).astype(np.int64)
        beyond, found = (x / self.unit - near)[:, None], np.zeros((multiples + 2, len(self.alpha)))
        np.add.at(found, near, weights * (1 - beyond))
        np.add.at(found, near + 1, weights * beyond)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(found[:multiples]) + peak)

    @cached_property
    def solved(self) -> "KnownTotals":
        """The counts of this row alone."""
        return KnownTotals.summable([self])

    def log_normaliser(self, totals: ArrayLike) -> Array:
        """Logarithm of what products of weights are multiplied by to be a prior times the likelihood."""
        records = self.unit * np.asarray(totals, dtype=np.float64)
        if self.log_shares is not None:
            return np.asarray(gammaln(records + 1) - np.log(self.unit))
        concentration = self.alpha.sum()
        # total! Gamma(a0) / Gamma(total + a0), without the cancellation of the two large terms.
        ratio = _log_gamma_ratio(records, concentration)
        found = np.asarray(gammaln(concentration) - ratio - gammaln(self.alpha).sum())
        if self.unit == 1:
            return found
        # Of every unit one number of records is the known one.
        found -= np.log(self.unit)
        place = np.rint(totals).astype(np.int64)
        near = self._first_totals[np.minimum(place, len(self._first_totals) - 1)]
        return np.where((place < len(self._first_totals)) & np.isfinite(near), near, found)

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability (or density) of the output under the prior, the counts summed out."""
        return float(self.solved.log_evidences[0])

    @property
    def means(self) -> Array:
        """Expected counts given the output, shape (d,)."""
        return np.asarray(self.solved.moments[0][0])

    @property
    def variances(self) -> Array:
        """Variances of the counts given the output, shape (d,)."""
        return np.asarray(self.solved.moments[1][0])


def numbers_of(posteriors: Sequence[RowPosterior], most_listed: int = 2**21) -> Numbers:
    """The cells of some rows of equal width, one row after the other."""
    d = len(posteriors[0].alpha)
    least, most = (np.repeat([getattr(row, name) for row in posteriors], d) for name in ("least", "most"))
    smooth = all(row.smooth for row in posteriors)
    if len(posteriors) == 1:
        return Numbers(posteriors[0].log_weight, d, least, most, smooth=smooth, most_listed=most_listed)

    def log_weight(x: Array, cells: Integers) -> Array:
        row = (cells if cells.ndim == 1 else cells[0]) // d
        order = np.argsort(row, kind="stable")
        found, which = np.empty(x.shape), np.split(order, np.flatnonzero(np.diff(row[order])) + 1)
        for some in which:
            at = int(row[some[0]])
            found[..., some] = posteriors[at].log_weight(x[..., some], cells[..., some] - d * at)
        return found

    return Numbers(log_weight, d * len(posteriors), least, most, smooth=smooth, most_listed=most_listed)


def tilts_for(numbers: Numbers, totals: Integers, start: Array | None = None, *, close: float = 0.1) -> Array:
    """The tilts at which the numbers of each row add up to its total on average: Newton's method between bounds.

    Parameters
    ----------
    numbers : Numbers
        Of all rows, equally many for each.
    totals : array, shape (rows,)
    start : array, shape (rows,), optional
        Where the search starts.
    close : float
        How near is enough, in standard deviations of the sum.

    Raises
    ------
    ImpossibleError
        If a total lies beyond all that numbers of a positive weight add up to.
    """
    rows = len(totals)
    d = numbers.size // rows
    if start is None and rows == 1 and d > 512:
        # Nearly what some of the numbers need that add up to their part.
        some = np.arange(0, d, d // 128)
        few = Numbers(
            lambda x, cell: numbers.log_weight(x, some[cell]),
            len(some),
            numbers.least[some],
            numbers.most[some],
            smooth=numbers.smooth,
        )
        start = tilts_for(few, totals * len(some) // d, close=close)
    tilts = np.zeros(rows) if start is None else np.asarray(start, dtype=np.float64)
    low, high, longest = np.full(rows, -np.inf), np.full(rows, np.inf), np.ones(rows)
    for attempt in range(400):
        lists = numbers.rough(np.repeat(tilts, d))
        variances = lists.variances.reshape(rows, d).sum(axis=1)
        off = totals - lists.means.reshape(rows, d).sum(axis=1)
        near = off**2 <= close**2 * variances + 1e-18 * (1 + np.abs(totals)) ** 2
        if near.all():
            return tilts
        low, high = np.where(off > 0, tilts, low), np.where(off > 0, high, tilts)
        bounded = np.isfinite(high - low)
        steps = np.clip(off / np.maximum(variances, 1e-100), -longest, longest)
        middle = np.where(bounded, (low + high) / 2, tilts + np.copysign(longest, off))
        newton = tilts + steps
        useful = (newton > low) & (newton < high) & (attempt % 6 != 5)
        new = np.where(near, tilts, np.where(useful, newton, middle))
        longest = np.where(near, longest, np.where(bounded, longest, 2 * longest))
        if (np.abs(new) > 1e15).any():
            raise impossible()
        if ((new == tilts) | near).all():
            # The tables are few, and their totals far apart.
            return tilts
        tilts = new
    return tilts


class _Counts(Protocol):
    """Counts in some unit, and variances of them in that unit, before their total is known."""

    def rough_variance(self) -> float:
        """The largest, about; nothing is summed."""
        ...

    def largest_variance(self) -> float:
        """The largest; all sums are taken."""
        ...


def summable[T: _Counts](of: Callable[[float], T], *, finest: int = 100) -> T:
    """Counts of single records, or of units of so many that there are few enough to be summed.

    Noise of millions does not tell a count from the next.

    Parameters
    ----------
    of : callable
        `of(unit)` has the counts in units of so many records.
    finest : int
        The standard deviation of the widest count is at least so many units.

    Raises
    ------
    TooManyNumbersError
        If units are as wide as what they divide, or would be.
    """
    unit = 1.0
    while True:
        found = of(unit)
        try:
            widest = found.largest_variance()
        except TooManyNumbersError:
            if found.rough_variance() < finest**2:
                raise
            unit *= 2
            continue
        if unit > 1 and widest < finest**2:
            refuse_too_many(np.inf, most=0)
        return found


def divided(counts: Integers, unit: float, alpha: Array, records: int | None, rng: np.random.Generator) -> Integers:
    """Numbers of records for counts in units, as what lies near each unit is divided between it and its neighbours.

    Parameters
    ----------
    counts : array of int, shape (draws, cells)
    unit : float
    alpha : array, shape (cells,)
        Priors: near 0 the records of a cell follow a power.
    records : int or None
        What those of a draw add up to, if that is known.
    rng : numpy.random.Generator
    """
    if unit == 1:
        return counts
    beside = counts + rng.random(counts.shape) - rng.random(counts.shape)
    found = np.floor(unit * np.where(counts == 0, rng.beta(alpha, 2.0, counts.shape), beside)).astype(np.int64)
    if records is not None:
        # The largest count may as well be a few units away.
        found[np.arange(len(found)), counts.argmax(axis=1)] += records - found.sum(axis=1)
    return found


@final
@dataclass(frozen=True, eq=False)
class KnownTotals:
    """The counts of some rows of d cells given an output.

    Attributes
    ----------
    posteriors : sequence of RowPosterior
        One for each row.

    Raises
    ------
    ImpossibleError
        If no table with these totals has a positive weight.
    """

    posteriors: Sequence[RowPosterior]

    @classmethod
    def summable(cls, posteriors: Sequence[RowPosterior]) -> "KnownTotals":
        """The same in units in which the counts of each row can be summed, see :func:`summable`."""
        found = cls(posteriors)
        try:
            found.largest_variance()
        except TooManyNumbersError:
            return cls([row for one in posteriors for row in summable(partial(cls._of_row, one)).posteriors])
        return found

    @classmethod
    def _of_row(cls, row: RowPosterior, unit: float) -> "KnownTotals":
        return cls([row.in_units(unit)])

    def rough_variance(self) -> float:
        """The largest variance of a count before its total is known, in its unit, about."""
        return float(self._numbers.rough(self._tilts).variances.max())

    def largest_variance(self) -> float:
        """The same; all sums are taken."""
        lists = [self._pairs[1]] if self.shape[1] == 2 else [sums.lists for _, sums in self._sums]
        return float(max(each.variances.max() for each in lists))

    @cached_property
    def units(self) -> Array:
        """What the counts are multiples of, shape (rows,)."""
        return np.array([row.unit for row in self.posteriors])

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Rows and cells."""
        return len(self.posteriors), len(self.posteriors[0].alpha)

    @cached_property
    def alpha(self) -> Array:
        """Priors of the shares, shape (rows, d)."""
        return np.stack([row.alpha for row in self.posteriors])

    @cached_property
    def totals(self) -> Integers:
        """Numbers of records, shape (rows,)."""
        return np.array([row.total for row in self.posteriors], dtype=np.int64)

    @cached_property
    def _numbers(self) -> Numbers:
        return numbers_of(self.posteriors)

    @cached_property
    def _tilts(self) -> Array:
        return np.repeat(tilts_for(self._numbers, self.totals), self.shape[1])

    def _lists(self) -> Lists:
        """All cells at the tilts of their rows, in blocks that are short beside what they are multiplied by."""
        rows, d = self.shape
        rough = self._numbers.rough(self._tilts)
        variances = rough.variances.reshape(rows, d)
        others = np.sqrt(np.maximum(variances.sum(axis=1, keepdims=True) - variances, 0.0)).ravel()
        # Counts that the other cells cannot make up for may have any weight.
        reach, means = reaches(rough, rows, of_others=True), rough.means.reshape(rows, d)
        middle = self.totals[:, None] - (means.sum(axis=1, keepdims=True) - means)
        near = (np.floor(middle - 1.5 * reach).ravel(), np.ceil(middle + 1.5 * reach).ravel())
        found = self._numbers.at(self._tilts, longest=others / 2, room=lambda lows, highs: near)
        self._numbers.forget_rough()
        return found

    @cached_property
    def _sums(self) -> list[tuple[Integers, Sums]]:
        """For rows of about the same length, by number, their sums."""
        return self._summed(self._lists())

    def _summed(self, lists: Lists) -> list[tuple[Integers, Sums]]:
        found: list[tuple[Integers, Sums]] = []
        for rows in self._alike(lists):
            sums = self._of(lists, rows)
            known = sums.probabilities(self.totals[rows]) > 1e-7
            if known.any():
                found.append((rows[known], sums if known.all() else self._of(lists, rows[known])))
            found += [(rows[[i]], self._deep(int(rows[i]))) for i in np.flatnonzero(~known).tolist()]
        return found

    def _of(self, lists: Lists, rows: Integers) -> Sums:
        cells = self._cells(rows)
        return Sums(lists.take(cells), len(rows), lambda x, cell: self._numbers.log_weight(x, cells[cell]))

    def _cells(self, rows: Integers) -> Integers:
        d = self.shape[1]
        found: Integers = (d * rows[:, None] + np.arange(d)).ravel()
        return found

    def _alike(self, lists: Lists) -> Iterator[Integers]:
        """Rows by number, those together whose circles are about as long."""
        rows, d = self.shape
        spans = (lists.highs - lists.lows).reshape(rows, d)
        length = np.minimum(spans.sum(axis=1), np.maximum(2 * reaches(lists, rows)[:, 0], spans.max(axis=1))) + 1
        order, first = np.argsort(length, kind="stable"), 0
        while first < rows:
            longer = length[order[first:]]
            fits = (longer <= 2 * longer[0]) & (np.arange(1, len(longer) + 1) * d * longer <= 2**21)
            end = first + max(1, len(fits) if fits.all() else int(np.argmin(fits)))
            yield np.sort(order[first:end])
            first = end

    def _deep(self, row: int) -> Sums:
        """The sums of a row whose total is improbable at any tilt: lists go further down, and errors are relative."""
        numbers = numbers_of([self.posteriors[row]])
        for cut in (CUT, 6 * CUT, 13 * CUT):
            lists = numbers.at(self._tilts[self.shape[1] * row], cut)
            if Convolved.work(lists) > 2e10:
                break
            sums = Convolved(lists)
            # What was left out of the cells must not matter for this total.
            if sums.probabilities(self.totals[[row]])[0] > np.exp(40 - cut):
                return sums
        raise impossible()

    @cached_property
    def _pairs(self) -> tuple[Numbers, Lists]:
        """Of two cells, what one holds the other does not: each is a number by itself, and there is nothing to sum."""
        numbers, totals = self._numbers, np.repeat(self.totals, 2)

        def log_weight(x: Array, cells: Integers) -> Array:
            return numbers.log_weight(x, cells) + numbers.log_weight(totals[cells] - x, cells ^ 1)

        both = Numbers(log_weight, numbers.size, numbers.least, numbers.most, smooth=numbers.smooth)
        return both, both.at(0.0, longest=np.full(numbers.size, np.inf))

    @cached_property
    def log_evidences(self) -> Array:
        """Logarithms of the probability of the output of each row, its counts and shares summed out, shape (rows,)."""
        found = np.array([float(row.log_normaliser(row.total)) + row.log_factor for row in self.posteriors])
        if self.shape[1] == 2:
            return np.asarray(found + self._pairs[1].log_totals[::2])
        for rows, sums in self._sums:
            found[rows] += sums.log_probabilities(self.totals[rows])
        return found

    @cached_property
    def marginals(self) -> list[tuple[Integers, Lists]]:
        """For some rows, by number, the distributions of all counts in their units, row by row."""
        if self.shape[1] == 2:
            return [(np.arange(len(self.posteriors)), self._pairs[1])]
        return [
            (rows, sums.lists.weighted(sums.given_totals(self.totals[rows])).trimmed(CUT)) for rows, sums in self._sums
        ]

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """Means and variances of all counts, shape (rows, d)."""
        means, variances = np.empty(self.shape), np.empty(self.shape)
        for rows, counts in self.marginals:
            means[rows] = counts.means.reshape(len(rows), -1)
            variances[rows] = counts.variances.reshape(len(rows), -1)
        units = self.units[:, None]
        return means * units, variances * units**2

    def check(self) -> None:
        """Raise the error about cells whose numbers are too many to be summed, where they may be.

        Raises
        ------
        TooManyNumbersError
        """
        numbers = sum(row.most - row.least + 1 for row in self.posteriors) * self.shape[1]
        if numbers > self._numbers.most_listed and self.shape[1] > 2:
            self.summable(self.posteriors).draw(1, np.random.default_rng(0))

    def draw(self, draws: int, rng: np.random.Generator) -> Integers:
        """Independent draws of the counts, shape `(draws, rows, d)`."""
        if self.shape[1] == 2:
            numbers, lists = self._pairs
            row = np.tile(np.arange(len(self.posteriors)), draws)
            first = Sums(lists, lists.size, numbers.log_weight).propose(2 * row, rng).reshape(draws, -1)
            counts = np.stack([first, self.totals - first], axis=-1)
        else:
            parts = [(rows, sums.draw(np.tile(self.totals[rows], (draws, 1)), rng)) for rows, sums in self._sums]
            counts = in_their_rows(parts)
        for place, posterior in enumerate(self.posteriors):
            if posterior.unit > 1:
                records = round(posterior.unit * posterior.total)
                counts[:, place] = divided(counts[:, place], posterior.unit, posterior.alpha, records, rng)
        return counts


def in_their_rows(parts: Sequence[tuple[Integers, Integers]]) -> Integers:
    """Draws of counts, shape `(draws, rows, d)`, of parts that have some of the rows each, by number."""
    if len(parts) == 1 and np.array_equal(parts[0][0], np.arange(len(parts[0][0]))):
        # There may be tens of millions of counts.
        return parts[0][1]
    found = np.empty((len(parts[0][1]), sum(len(rows) for rows, _ in parts), parts[0][1].shape[2]), dtype=np.int64)
    for rows, counts in parts:
        found[:, rows] = counts
    return found
