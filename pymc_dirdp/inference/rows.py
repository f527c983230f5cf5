"""Rows of counts given an output: independent cells, tilted so that they add up to the total, and exact draws of them.

A row has a Dirichlet-multinomial prior and one likelihood for each cell, so its counts are independent numbers given
their total. Their weights are tilted so that the total is what they add up to on average; then the distribution of the
sum is known best where it is asked for. A draw proposes all cells but one, which takes what the others leave, and is
accepted with the probability that it does; where that is rare, cells are drawn one after the other.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, log_ndtr

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import CUT, Distributions, ImpossibleError, LogWeight, NumberDraws
from pymc_dirdp.inference.sums import (
    MOST_CACHED,
    Convolution,
    Fourier,
    Inversion,
    Pair,
    TooManyNodesError,
    numbers_of,
    reach_of_sum,
    refuse_too_many,
)
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio

__all__ = [
    "LITTLE_CACHED",
    "LITTLE_WORK",
    "RowPosterior",
    "TiltedCells",
    "draw_counts",
    "draw_row",
    "impossible",
    "refuse_undrawable",
    "solved",
    "summed",
    "tilt_for",
]


# With fewer products every sum is taken number by number; that takes some 10 milliseconds.
LITTLE_WORK = 5e6
_MUCH_WORK = 2e10
# So many numbers are transformed at once, before it is asked whether characteristic functions at few points do.
LITTLE_CACHED = 500_000
# Points at which characteristic functions are taken, if there is another way and if there is none.
_FEW, _MANY = 500, 2**14
# The means of the cells add up to the total up to this share of the standard deviation of the sum.
_NEAR = 0.05
# A slope of the log-likelihood beyond which no count is possible any more.
_STEEPEST = 1e15


@dataclass(frozen=True)
class TiltedCells:
    """Cells with weights `exp(log_weight + tilt * x)`, and the distribution of their sum.

    Attributes
    ----------
    cells : Distributions
        Their distributions.
    total : int
        What they add up to in the distribution that is wanted.
    sums : Convolution, Fourier, Inversion or Pair
        The distribution of their sum.
    """

    cells: Distributions
    total: int
    sums: Convolution | Fourier | Inversion | Pair

    def log_sums_of_products(self, totals: Integers) -> Array:
        """Logarithm of the sum of the products of untilted weights over all tables with each of some totals."""
        return self.cells.log_totals.sum() - self.cells.tilt * totals + self.sums.log_sum(totals)

    @cached_property
    def log_sum_of_products(self) -> float:
        """The same for the one total."""
        return float(self.log_sums_of_products(np.array([self.total]))[0])

    @property
    def count_means(self) -> Array:
        """Expected counts given the total, shape (d,)."""
        if isinstance(self.sums, Pair):
            return self.marginals.means
        cells = self.cells
        if isinstance(self.sums, Inversion):
            # Between nodes nothing is lost: their rules add up every wave that the sum is made of.
            x, cell, log_mass = cells.nodes, cells.node_distribution, np.log(cells.masses)
        else:
            x, cell = numbers_of(cells)
            log_mass = cells.log_pmf(x, cell)
        weights = np.exp(log_mass + self.sums.log_rest(x, cell) - self.sums.log_sum(np.array([self.total])))
        return np.bincount(cell, weights * x, cells.size)

    @cached_property
    def marginals(self) -> Distributions:
        """The distributions of the single counts given their total."""

        def log_weight(x: Array, cell: Integers) -> Array:
            return self.cells.log_pmf(x, cell) + self.sums.log_rest(x, cell)

        cells = self.cells
        smooth = cells.smooth and isinstance(self.sums, Inversion | Pair)
        found = Distributions(log_weight, cells.size, cells.lows, cells.highs, smooth=smooth)
        found.settle(0.0)
        return found


def solved(cells: Distributions, total: int) -> TiltedCells:
    """Tilt cells so that they add up to a total on average, and find the distribution of their sum.

    Parameters
    ----------
    cells : Distributions
        Their weights; the tilt that they have is where the search starts, and they are changed.
    total : int
        What they add up to.

    Raises
    ------
    ImpossibleError
        If no table with this total has a positive weight.
    """
    tilt = tilt_for(cells, total)
    for cut in (CUT, 6 * CUT, 13 * CUT):
        cells.settle(tilt, cut=cut)
        work = Convolution.work(cells)
        if cells.size == 2 and work > LITTLE_WORK:
            return TiltedCells(cells, total, Pair(cells, total))
        if work > LITTLE_WORK and cut == CUT:
            narrow = _tapered(cells, total)
            sums = _transformed(narrow, total)
            # Below that the rounding of the integral shows.
            if float(sums.log_sum(np.array([total]))[0]) > sums.log_bound - 9:
                return TiltedCells(narrow, total, sums)
        if work <= _MUCH_WORK:
            convolution = Convolution(cells, total)
            # What was left out of the cells must not matter for this total.
            if float(convolution.log_sum(np.array([total]))[0]) > 40 - cut:
                return TiltedCells(cells, total, convolution)
    raise impossible()


def summed(cells: Distributions, total: int) -> TiltedCells:
    """The distribution of the sum of cells as they are, near some total."""
    if Convolution.work(cells) <= LITTLE_WORK:
        return TiltedCells(cells, total, Convolution(cells, total))
    if Fourier.fits(cells, most=LITTLE_CACHED):
        return TiltedCells(cells, total, Fourier(cells, total))
    return TiltedCells(cells, total, _transformed(cells, total))


def _transformed(cells: Distributions, total: int) -> Fourier | Inversion:
    """The distribution of the sum by characteristic functions: at few points, or at all if few do not suffice."""
    try:
        return Inversion(cells, total, most_nodes=_FEW if Fourier.fits(cells) else _MANY)
    except TooManyNodesError:
        if not Fourier.fits(cells, most=MOST_CACHED):
            raise
    return Fourier(cells, total)


def _tapered(cells: Distributions, total: int) -> Distributions:
    """Take from a cell that is wide what the total leaves no room for.

    If one cell is far more uncertain than all others together, its count given the total is known nearly as well as
    their sum. Counts that the others cannot make up for may have any weight. Letting it fall to 0 smoothly makes the
    characteristic function of this cell as short as those of the others.
    """
    widest = int(np.argmax(cells.variances))
    others = np.delete(np.arange(cells.size), widest)
    rest = float(cells.variances[others].sum())
    if cells.variances[widest] < 100 * rest:
        return cells
    reach, width = reach_of_sum(cells, others), np.sqrt(rest)
    centre = total - float(cells.means[others].sum())

    def log_weight(x: Array, cell: Integers) -> Array:
        # The normal distribution's tail is 1 up to the last bit until 9 standard deviations before its middle. With
        # half as much again there is room for other totals, too.
        taper = log_ndtr(9 + (1.5 * reach - np.abs(x - centre)) / width)
        return cells.log_weights(x, cell) + np.where(cell == widest, taper, 0.0)

    tapered = Distributions(log_weight, cells.size, cells.least, cells.most, smooth=cells.smooth)
    tapered.settle(cells.tilt)
    return tapered


def impossible() -> ImpossibleError:
    """The error where all counts have a probability of 0."""
    return ImpossibleError(
        "No table of counts could have led to this output, or only ones whose probability is 0 in double precision. "
        "Check that the output belongs to this mechanism, and the number of records."
    )


def tilt_for(cells: Distributions, total: int) -> float:
    """The tilt at which the means add up to the total: Newton's method between bounds.

    The sum of the means rises with the tilt. Its logit varies evenly where the sum itself varies by powers of ten.
    """
    least, most = cells.reach()
    if not least <= total <= most:
        raise impossible()
    low, high, tilt, step = -np.inf, np.inf, cells.tilt, 1.0
    start, attempt = tilt, 0
    while True:
        attempt += 1
        mean, variance = cells.rough_moments(tilt)
        if abs(mean - total) <= _NEAR * np.sqrt(variance) + 1e-9 * (1 + total):
            return tilt
        low, high = (tilt, high) if mean < total else (low, tilt)
        middle, bounded = (low + high) / 2, np.isfinite(high - low)
        if bounded and middle in (low, high):
            # The tables are few, and their totals far apart.
            return tilt
        if abs(tilt) > _STEEPEST:
            # The total lies beyond all that the possible counts add up to. The next search must not start here, where
            # nothing but the steepest number of each cell is seen.
            cells.tilt = start
            raise impossible()
        below, above = mean - least, most - mean
        newton = np.nan
        if below > 0 and above > 0 and variance > 1e-100 and least < total < most:
            distance = np.log((total - least) / (most - total)) - np.log(below / above)
            newton = tilt + distance * below * above / (variance * (most - least))
        if bounded and (attempt % 4 == 0 or not low < newton < high):
            tilt = middle
        elif attempt % 8 and low < newton < high and abs(newton - tilt) <= 100 * step:
            # Not for ever: in numbers of a hostile file a small tilt is lost to rounding.
            tilt = newton
        else:
            tilt += step if mean < total else -step
            step *= 4


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

    def __post_init__(self) -> None:
        alpha = positive_array(alpha=self.alpha, fewest=1)
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
        return np.asarray(self.log_prior_weight(counts, cells) + self.log_likelihood(counts, cells), dtype=np.float64)

    def log_prior_weight(self, counts: Array, cells: Integers) -> Array:
        """The same without the likelihood."""
        if self.log_shares is None:
            return _log_gamma_ratio(counts, self.alpha[cells])  # type: ignore[arg-type]  # It broadcasts.
        with np.errstate(invalid="ignore"):
            known: Array = np.where(counts == 0, 0.0, counts * self.log_shares[cells]) - gammaln(counts + 1)
        return known

    def cells(self) -> Distributions:
        """Independent cells with the weights of this distribution, not tilted yet."""
        return Distributions(self.log_weight, len(self.alpha), self.least, self.most, smooth=self.smooth)

    @cached_property
    def tilted(self) -> TiltedCells:
        """Independent cells whose distribution given their total is this distribution."""
        return solved(self.cells(), self.total)

    def log_normaliser(self, totals: ArrayLike) -> Array:
        """Logarithm of what products of weights are multiplied by to be a prior times the likelihood."""
        if self.log_shares is not None:
            return np.asarray(gammaln(np.asarray(totals, dtype=np.float64) + 1))
        concentration = self.alpha.sum()
        # total! Gamma(a0) / Gamma(total + a0), without the cancellation of the two large terms.
        ratio = _log_gamma_ratio(np.asarray(totals, dtype=np.float64), concentration)
        return np.asarray(gammaln(concentration) - ratio - gammaln(self.alpha).sum())

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability (or density) of the output under the prior, the counts summed out."""
        return float(self.log_normaliser(self.total)) + self.log_factor + self.tilted.log_sum_of_products

    @property
    def means(self) -> Array:
        """Expected counts given the output, shape (d,)."""
        return self.tilted.marginals.means

    @property
    def variances(self) -> Array:
        """Variances of the counts given the output, shape (d,)."""
        return self.tilted.marginals.variances


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


@dataclass
class _Tally:
    """How many tables were proposed and accepted where the first cells are drawn."""

    proposed: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class _Sampler:
    tilted: TiltedCells
    numbers: NumberDraws
    order: Integers
    rng: np.random.Generator
    inversions: dict[int, Inversion] = field(default_factory=dict)

    def fill(self, counts: Integers, first: int, totals: Integers, tally: _Tally | None = None) -> None:
        """Draw the cells `order[first:]` of every row of `counts` given that they add up to `totals`.

        Some cells are drawn from their own distributions. The others have to take the rest; the draw is accepted with a
        probability proportional to that of their doing so, and then they are drawn given the rest.
        """
        group = self.order[first:]
        if len(group) == 1:
            counts[:, group[0]] = totals
            return
        taking = self._taking(group)
        free = group[: len(group) - taking]
        waiting = np.arange(len(totals))
        for _ in range(_MOST_ROUNDS):
            # The first accepted one of several proposals counts; a few more than are needed spare rounds.
            repeats = 1 + _AT_LEAST // len(waiting)
            rows = np.repeat(waiting, repeats)
            proposed = np.stack([self.numbers.draw(int(cell), len(rows), self.rng) for cell in free], axis=1)
            rest = totals[rows] - proposed.sum(axis=1)
            accepted = np.log1p(-self.rng.random(len(rows))) <= self._log_share(first + len(free), rest)
            if tally is not None:
                tally.proposed += len(rows)
                tally.accepted += int(accepted.sum())
            took = accepted.reshape(-1, repeats)
            settled = took.any(axis=1)
            place = np.flatnonzero(settled) * repeats + took[settled].argmax(axis=1)
            counts[waiting[settled][:, None], free] = proposed[place]
            waiting = waiting[~settled]
            if len(waiting) == 0:
                self.fill(counts, first + len(free), totals - counts[:, free].sum(axis=1))
                return
        raise ArgumentError(
            "The output is too unlikely under its total for rejection sampling. Check the output and n_records."
        )

    def _taking(self, group: Integers) -> int:
        """How many cells take the rest: the one with most room, or those with half of all room."""
        room = _room(self.tilted.cells)[group]
        if room[-1] >= _SHARE * room.sum():
            return 1
        return int(np.searchsorted(np.cumsum(room[::-1]), room.sum() / 2)) + 1

    def _log_share(self, first: int, rest: Integers) -> Array:
        """Logarithm of the probability that `order[first:]` add up to `rest`, by a bound of all such probabilities."""
        cells, taking = self.tilted.cells, self.order[first:]
        if len(taking) == 1:
            pivot = int(taking[0])
            return self.numbers.log_pmf(pivot, rest) - self.numbers.log_bound(pivot)
        if first not in self.inversions:
            self.inversions[first] = Inversion(cells, self.tilted.total, of=taking)
        inversion = self.inversions[first]
        return inversion.log_sum(rest) - inversion.log_bound


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
    order = np.argsort(_room(cells), kind="stable")
    sampler = _Sampler(tilted, numbers, order, rng)
    counts = np.empty((len(totals), cells.size), dtype=np.int64)
    expected = tilted.log_sum_of_products - cells.log_totals.sum() + cells.tilt * tilted.total
    is_rare = expected - numbers.log_bound(int(order[-1])) < np.log(_RARE)
    if is_rare and isinstance(tilted.sums, Convolution):
        return tilted.sums.draw(totals, rng), 1.0
    if is_rare and isinstance(tilted.sums, Pair) and np.all(totals == tilted.total):
        counts[:, 0] = NumberDraws(tilted.marginals).draw(0, len(totals), rng)
        counts[:, 1] = totals - counts[:, 0]
        return counts, 1.0
    tally = _Tally()
    sampler.fill(counts, 0, totals, tally)
    # A row of one cell holds all of its records, and nothing is proposed.
    return counts, tally.accepted / tally.proposed if tally.proposed else 1.0


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
