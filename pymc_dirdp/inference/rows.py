"""Posterior of rows of counts given an output: independent cells, tilted so that their mean sum is the total.

1. A row has a Dirichlet-multinomial prior and one likelihood for each cell. So its counts are independent integers,
   conditioned on their total. Their weights are tilted so that the mean of the sum is the total, where the distribution
   of the sum is most accurate.
2. The tilts of all rows are computed together, by bracketed Newton steps on coarse lists.
3. The distribution of a count given the total follows from the sum of all other counts of the row, see
   :mod:`pymc_dirdp.inference.lattice`. Rows of similar length are summed together.
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
    likelihood `exp(log_factor) * prod_i exp(log_likelihood(x_i, i))`. Then `p | x` is `Dirichlet(alpha + x)` for any
    output, and `P(x | output)` is proportional to a product of one weight for each cell (Theory, section 16).

    Parameters
    ----------
    alpha : array, shape (d,)
        Prior of the analyst; positive. It need not be the prior of the mechanism.
    total : int
        The known number of records.
    log_likelihood : callable
        `log_likelihood(counts, cells)` takes a float array of counts and an integer array of cells, which broadcast
        against each other, and returns the log-likelihoods, elementwise; `-inf` if the output is impossible. If
        `smooth` is True, it is also evaluated between integers. Log-likelihoods of several outputs add up.
    least : int
        The public lower bound of every count, `min_count`.
    smooth : bool
        False if the log-likelihood is defined for integers only; then all are evaluated.
    log_factor : float
        Logarithm of the factor of the likelihood that depends on the total only. It affects the evidence only.
    log_shares : array, shape (d,), optional
        Logarithms of the shares, if they are known. Then `x ~ Multinomial(total, shares)` and `alpha` is not used. A
        value of `-inf` means that the cell is empty.
    unit : float
        The unit of counts and total, from :meth:`in_units`; 1 if sums run over all integers.

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
                f"Expected alpha to be one row, got shape {alpha.shape}. Create one RowPosterior per row."
            )
        object.__setattr__(self, "alpha", alpha)
        object.__setattr__(self, "total", integer(0, total=self.total))
        object.__setattr__(self, "least", integer(0, least=self.least))
        if self.total < self.least * len(alpha):
            raise ArgumentError(
                f"Expected total >= least * d = {self.least * len(alpha)}, because every cell has `least` records."
            )

    def at(self, total: int, log_factor: float = 0.0) -> "RowPosterior":
        """The posterior for another total."""
        return replace(self, total=total, log_factor=log_factor)

    @property
    def most(self) -> int:
        """The largest possible count of a cell."""
        return self.total - self.least * (len(self.alpha) - 1)

    def log_weight(self, counts: Array, cells: Integers) -> Array:
        """`log Gamma(x + alpha_i) - log x! + log L_i(x)`, or `x log p_i - log x! + log L_i(x)` for known shares."""
        x = self.unit * counts
        logs = np.asarray(self.log_prior_weight(counts, cells) + self.log_likelihood(x, cells), dtype=np.float64)
        if self.unit == 1:
            return logs
        near = self._first_multiples
        place = np.minimum(np.rint(counts), len(near) - 1).astype(np.int64)
        return np.where(counts < len(near), near[place, cells], logs + np.log(self.unit))

    def log_prior_weight(self, counts: Array, cells: Integers) -> Array:
        """The prior part of :meth:`log_weight`."""
        x = self.unit * counts
        if self.log_shares is None:
            return _log_gamma_ratio(x, self.alpha[cells])  # type: ignore[arg-type]  # It broadcasts.
        with np.errstate(invalid="ignore"):
            known: Array = np.where(x == 0, 0.0, x * self.log_shares[cells]) - gammaln(x + 1)
        return known

    def in_units(self, unit: float) -> "RowPosterior":
        """The posterior with counts and total in multiples of about `unit` records, for noise that is far wider.

        A multiple has the weights of all counts near it. The weight of a count is divided between the two nearest
        multiples such that its mean is unchanged. The error is of order `(unit / width)**2`, relative to the width of
        the weights. If the number of records may be smaller than the unit, the error of shares is `unit / width`.
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
        """Log-normalisers of the sums of the first multiples, such that an empty output has an evidence of 1.

        For small totals a formula in the total only would ignore the weights that a multiple shares with its
        neighbours.
        """
        prior = replace(self, log_likelihood=lambda x, cells: np.zeros(np.shape(x)), log_shares=None)
        sums, scale = np.ones(1), 0.0
        for logs in prior._near_zero(multiples).T:
            sums = np.convolve(sums, np.exp(logs - logs.max()))[:multiples]
            scale += logs.max()
        with np.errstate(divide="ignore"):
            return np.asarray(-np.log(sums) - scale)

    def _near_zero(self, multiples: int, listed: int = 2048) -> Array:
        """Log-weights of the first multiples, shape (multiples, d), where weights are those of a power of the count.

        The first counts are summed one by one; the others are integrated, from half a count below the first.
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
        beyond, sums = (x / self.unit - near)[:, None], np.zeros((multiples + 2, len(self.alpha)))
        np.add.at(sums, near, weights * (1 - beyond))
        np.add.at(sums, near + 1, weights * beyond)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(sums[:multiples]) + peak)

    @cached_property
    def batch(self) -> "BatchedRows":
        """A batch of this row only."""
        return BatchedRows.summable([self])

    def log_normaliser(self, totals: ArrayLike) -> Array:
        """The log of the factor that makes products of weights equal to prior times likelihood."""
        records = self.unit * np.asarray(totals, dtype=np.float64)
        if self.log_shares is not None:
            return np.asarray(gammaln(records + 1) - np.log(self.unit))
        concentration = self.alpha.sum()
        # total! Gamma(a0) / Gamma(total + a0), without the cancellation of the two large terms.
        ratio = _log_gamma_ratio(records, concentration)
        logs = np.asarray(gammaln(concentration) - ratio - gammaln(self.alpha).sum())
        if self.unit == 1:
            return logs
        # One of the numbers of records in a unit is the known one.
        logs -= np.log(self.unit)
        place = np.rint(totals).astype(np.int64)
        near = self._first_totals[np.minimum(place, len(self._first_totals) - 1)]
        return np.where((place < len(self._first_totals)) & np.isfinite(near), near, logs)

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability (or density) of the output under the prior, the counts summed out."""
        return float(self.batch.log_evidences[0])

    @property
    def means(self) -> Array:
        """Expected counts given the output, shape (d,)."""
        return np.asarray(self.batch.moments[0][0])

    @property
    def variances(self) -> Array:
        """Variances of the counts given the output, shape (d,)."""
        return np.asarray(self.batch.moments[1][0])


def numbers_of(posteriors: Sequence[RowPosterior], most_listed: int = 2**21) -> Numbers:
    """The cells of some rows of equal width, concatenated."""
    d = len(posteriors[0].alpha)
    least, most = (np.repeat([getattr(row, name) for row in posteriors], d) for name in ("least", "most"))
    smooth = all(row.smooth for row in posteriors)
    if len(posteriors) == 1:
        return Numbers(posteriors[0].log_weight, d, least, most, smooth=smooth, most_listed=most_listed)

    def log_weight(x: Array, cells: Integers) -> Array:
        row = (cells if cells.ndim == 1 else cells[0]) // d
        order = np.argsort(row, kind="stable")
        logs, which = np.empty(x.shape), np.split(order, np.flatnonzero(np.diff(row[order])) + 1)
        for places in which:
            number = int(row[places[0]])
            logs[..., places] = posteriors[number].log_weight(x[..., places], cells[..., places] - d * number)
        return logs

    return Numbers(log_weight, d * len(posteriors), least, most, smooth=smooth, most_listed=most_listed)


def tilts_for(numbers: Numbers, totals: Integers, start: Array | None = None, *, close: float = 0.1) -> Array:
    """The tilts at which the mean sum of each row is its total, by bracketed Newton steps.

    Parameters
    ----------
    numbers : Numbers
        The cells of all rows, equally many for each.
    totals : array, shape (rows,)
    start : array, shape (rows,), optional
        Start of the search.
    close : float
        Tolerance, in standard deviations of the sum.

    Raises
    ------
    ImpossibleError
        If a total is outside the range of sums with positive weight.
    """
    rows = len(totals)
    d = numbers.size // rows
    if start is None and rows == 1 and d > 512:
        # Start from the tilt of a sample of the cells with a proportional total.
        sampled_cells = np.arange(0, d, d // 128)
        few = Numbers(
            lambda x, cell: numbers.log_weight(x, sampled_cells[cell]),
            len(sampled_cells),
            numbers.least[sampled_cells],
            numbers.most[sampled_cells],
            smooth=numbers.smooth,
        )
        start = tilts_for(few, totals * len(sampled_cells) // d, close=close)
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
            # There are few tables, with totals far apart.
            return tilts
        tilts = new
    return tilts


class _Counts(Protocol):
    """Counts in some unit, and their variances before conditioning on the total."""

    def rough_variance(self) -> float:
        """An approximation of the largest variance, without sums."""
        ...

    def largest_variance(self) -> float:
        """The largest variance; computes all sums."""
        ...


def summable[T: _Counts](counts_in_units: Callable[[float], T], *, finest: int = 100) -> T:
    """Counts in single records, or in the smallest unit for which exact sums are feasible.

    Noise with a standard deviation of millions does not distinguish adjacent counts.

    Parameters
    ----------
    counts_in_units : callable
        `counts_in_units(unit)` returns the counts in multiples of `unit` records.
    finest : int
        Minimum standard deviation of the widest count, in units.

    Raises
    ------
    TooManyNumbersError
        If the units would be as wide as the counts.
    """
    unit = 1.0
    while True:
        in_units = counts_in_units(unit)
        try:
            widest = in_units.largest_variance()
        except TooManyNumbersError:
            if in_units.rough_variance() < finest**2:
                raise
            unit *= 2
            continue
        if unit > 1 and widest < finest**2:
            refuse_too_many(np.inf, most=0)
        return in_units


def divided(counts: Integers, unit: float, alpha: Array, records: int | None, rng: np.random.Generator) -> Integers:
    """Convert draws of counts in units to records, the inverse of the division between neighbouring multiples.

    Parameters
    ----------
    counts : array of int, shape (draws, cells)
    unit : float
    alpha : array, shape (cells,)
        Priors; near 0 the weights of the records of a cell are those of a power of the count.
    records : int or None
        The total of each draw, if it is known.
    rng : numpy.random.Generator
    """
    if unit == 1:
        return counts
    after_zero = counts + rng.random(counts.shape) - rng.random(counts.shape)
    counts_of_records = np.floor(unit * np.where(counts == 0, rng.beta(alpha, 2.0, counts.shape), after_zero)).astype(
        np.int64
    )
    if records is not None:
        # Correct the total in the largest count, where a few units are negligible.
        counts_of_records[np.arange(len(counts_of_records)), counts.argmax(axis=1)] += records - counts_of_records.sum(
            axis=1
        )
    return counts_of_records


@final
@dataclass(frozen=True, eq=False)
class BatchedRows:
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
    def summable(cls, posteriors: Sequence[RowPosterior]) -> "BatchedRows":
        """A batch in units for which exact sums are feasible, see :func:`summable`."""
        batch = cls(posteriors)
        try:
            batch.largest_variance()
        except TooManyNumbersError:
            return cls(
                [row for posterior in posteriors for row in summable(partial(cls._of_row, posterior)).posteriors]
            )
        return batch

    @classmethod
    def _of_row(cls, row: RowPosterior, unit: float) -> "BatchedRows":
        return cls([row.in_units(unit)])

    def rough_variance(self) -> float:
        """An approximation of the largest variance of a count before conditioning on the total, in its unit."""
        return float(self._numbers.rough(self._tilts).variances.max())

    def largest_variance(self) -> float:
        """The largest variance of a count; computes all sums."""
        lists = [self._pairs[1]] if self.shape[1] == 2 else [sums.lists for _, sums in self._sums]
        return float(max(part.variances.max() for part in lists))

    @cached_property
    def units(self) -> Array:
        """The unit of the counts of each row, shape (rows,)."""
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
        """All cells at the tilts of their rows, in blocks that are short compared with the sum of the others."""
        rows, d = self.shape
        rough = self._numbers.rough(self._tilts)
        variances = rough.variances.reshape(rows, d)
        others = np.sqrt(np.maximum(variances.sum(axis=1, keepdims=True) - variances, 0.0)).ravel()
        # Counts that the other cells cannot balance are impossible, so their weights do not matter.
        reach, means = reaches(rough, rows, of_others=True), rough.means.reshape(rows, d)
        middle = self.totals[:, None] - (means.sum(axis=1, keepdims=True) - means)
        near = (np.floor(middle - 1.5 * reach).ravel(), np.ceil(middle + 1.5 * reach).ravel())
        lists = self._numbers.at(self._tilts, longest=others / 2, room=lambda lows, highs: near)
        self._numbers.forget_rough()
        return lists

    @cached_property
    def _sums(self) -> list[tuple[Integers, Sums]]:
        """The sums of rows of similar length, with the row numbers."""
        return self._summed(self._lists())

    def _summed(self, lists: Lists) -> list[tuple[Integers, Sums]]:
        parts: list[tuple[Integers, Sums]] = []
        for rows in self._alike(lists):
            sums = self._of(lists, rows)
            known = sums.probabilities(self.totals[rows]) > 1e-7
            if known.any():
                parts.append((rows[known], sums if known.all() else self._of(lists, rows[known])))
            parts += [(rows[[i]], self._deep(int(rows[i]))) for i in np.flatnonzero(~known).tolist()]
        return parts

    def _of(self, lists: Lists, rows: Integers) -> Sums:
        cells = self._cells(rows)
        return Sums(lists.take(cells), len(rows), lambda x, cell: self._numbers.log_weight(x, cells[cell]))

    def _cells(self, rows: Integers) -> Integers:
        d = self.shape[1]
        cells: Integers = (d * rows[:, None] + np.arange(d)).ravel()
        return cells

    def _alike(self, lists: Lists) -> Iterator[Integers]:
        """Row numbers, grouped by similar lengths of their circles."""
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
        """The sums of a row whose total is improbable at any tilt, with longer lists and relative errors."""
        numbers = numbers_of([self.posteriors[row]])
        for cut in (CUT, 6 * CUT, 13 * CUT):
            lists = numbers.at(self._tilts[self.shape[1] * row], cut)
            if Convolved.work(lists) > 2e10:
                break
            sums = Convolved(lists)
            # The weights that were left out must be negligible for this total.
            if sums.probabilities(self.totals[[row]])[0] > np.exp(40 - cut):
                return sums
        raise impossible()

    @cached_property
    def _pairs(self) -> tuple[Numbers, Lists]:
        """Rows of two cells: one count determines the other, so no sums are needed."""
        numbers, totals = self._numbers, np.repeat(self.totals, 2)

        def log_weight(x: Array, cells: Integers) -> Array:
            return numbers.log_weight(x, cells) + numbers.log_weight(totals[cells] - x, cells ^ 1)

        pairs = Numbers(log_weight, numbers.size, numbers.least, numbers.most, smooth=numbers.smooth)
        return pairs, pairs.at(0.0, longest=np.full(numbers.size, np.inf))

    @cached_property
    def log_evidences(self) -> Array:
        """The log-evidence of each row, with counts and shares marginalised out, shape (rows,)."""
        logs = np.array([float(row.log_normaliser(row.total)) + row.log_factor for row in self.posteriors])
        if self.shape[1] == 2:
            return np.asarray(logs + self._pairs[1].log_totals[::2])
        for rows, sums in self._sums:
            logs[rows] += sums.log_probabilities(self.totals[rows])
        return logs

    @cached_property
    def marginals(self) -> list[tuple[Integers, Lists]]:
        """The distributions of all counts in their units, row by row, with the row numbers."""
        if self.shape[1] == 2:
            return [(np.arange(len(self.posteriors)), self._pairs[1])]
        return [
            (rows, sums.lists.weighted(sums.masses_at_totals(self.totals[rows])).trimmed(CUT))
            for rows, sums in self._sums
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
        """Raise if exact sums over the cells are not feasible.

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
    """Combine draws of counts of groups of rows, with their row numbers, to shape `(draws, rows, d)`."""
    if len(parts) == 1 and np.array_equal(parts[0][0], np.arange(len(parts[0][0]))):
        # Avoid a copy of tens of millions of counts.
        return parts[0][1]
    table = np.empty((len(parts[0][1]), sum(len(rows) for rows, _ in parts), parts[0][1].shape[2]), dtype=np.int64)
    for rows, counts in parts:
        table[:, rows] = counts
    return table
