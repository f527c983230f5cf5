"""Rows of counts given an output: independent cells, tilted so that they add up to the total.

1. A row has a Dirichlet-multinomial prior and one likelihood for each cell, so its counts are independent numbers given
   their total. Their weights are tilted so that the total is what they add up to on average; then the distribution of
   the sum is known best where it is asked for.
2. Many rows with known totals are summed at once. The numbers of all cells are listed; each row has a tilt, found by
   Newton's method for all rows. Products of Fourier transforms of the lists of all cells of a row, of all but one, and
   of the first few, give the distributions of sums.
3. What all other cells say of a count, times its own probability, is its distribution given the total. A draw takes the
   last cell given the total, the one before given what is left, and so on.
4. Errors are 1e-16 of the largest probability of a sum, so a row whose total has little of it is summed alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, log_ndtr

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import CUT, Distributions, ImpossibleError, Listed, LogWeight
from pymc_dirdp.inference.sums import (
    MOST_CACHED,
    Convolution,
    Fourier,
    Inversion,
    Pair,
    TooManyNodesError,
    drawn_of_sums,
    numbers_of,
    reach_of_sum,
)
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio

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

    @cached_property
    def log_sum_of_products(self) -> float:
        """Logarithm of the sum of the products of untilted weights over all tables with the total."""
        known = float(self.sums.log_sum(np.array([self.total]))[0])
        return float(self.cells.log_totals.sum() - self.cells.tilt * self.total + known)

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
        return cells.log_weight(x, cell) + np.where(cell == widest, taper, 0.0)

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


# So many rows are summed at once, if they hold fewer records than this; so many numbers together.
_AT_LEAST_ROWS, _MOST_RECORDS, _AT_ONCE = 4, 2**11, 2**21

# Steps to the tilts of all rows, and the longest.
_MOST_STEPS, _LONGEST = 60, 4.0
# Totals are left to others whose probability is lower than the largest by a factor of more than this.
_LEAST_SHARE = 1e-4

Complex = NDArray[np.complex128]


@final
@dataclass(frozen=True, eq=False)
class _Transforms:
    """Of the lists of rows of cells.

    Attributes
    ----------
    lists, before : array of complex, shape (rows, d, frequencies)
        Those of the lists, and the products of those of the cells before each.
    length : int
    totals : array of int, shape (rows,)
        By how much each total is above the least sum that is listed.
    tilts : array, shape (rows,)
    """

    lists: Complex
    before: Complex
    length: int
    totals: Integers
    tilts: Array


@final
@dataclass(frozen=True, eq=False)
class KnownTotals:
    """The counts of some rows of d cells given an output.

    Attributes
    ----------
    posteriors : sequence of RowPosterior
        One for each row.
    """

    posteriors: Sequence[RowPosterior]

    def _sums(self) -> tuple[Listed, _Transforms]:
        """The cells, tilted, and transforms of their lists. They are large, and not cached."""
        rows, d = self.shape
        widths, lows = (
            np.repeat(ends, d)
            for ends in np.transpose([(row.most - row.least + 1, row.least) for row in self.posteriors])
        )
        cells = np.arange(d)[:, None]
        logs = [row.log_weight(np.arange(row.least, row.most + 1.0), cells).ravel() for row in self.posteriors]
        listed, tilts = _tilted(lows, widths, np.concatenate(logs), self.totals)
        spans = (listed.highs - listed.lows).reshape(rows, d)
        length = int(scipy.fft.next_fast_len(int(spans.sum(axis=1).max()) + 1, real=True))
        folded = np.zeros((listed.size, length))
        folded[listed.node_distribution, listed.block_start - listed.lows[listed.node_distribution]] = listed.masses
        lists = scipy.fft.rfft(folded.reshape(rows, d, length))
        ones = np.ones((rows, 1, lists.shape[-1]))
        return listed, _Transforms(
            lists,
            np.cumprod(np.concatenate([ones, lists[:, :-1]], axis=1), axis=1),
            length,
            self.totals - listed.lows.reshape(rows, d).sum(axis=1),
            tilts,
        )

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
        return np.array([row.total for row in self.posteriors])

    @cached_property
    def _solved(self) -> tuple[NDArray[np.bool_], Array, Listed | None]:
        listed, of = self._sums()
        rows, d = self.shape
        sums = scipy.fft.irfft(of.before[:, -1] * of.lists[:, -1], of.length)
        inside = (of.totals >= 0) & (of.totals < of.length)
        found = np.where(inside, sums[np.arange(rows), np.where(inside, of.totals, 0)], 0.0)
        known = found > _LEAST_SHARE * sums.max(axis=1)
        logs = listed.log_totals.reshape(rows, d).sum(axis=1) + np.log(np.where(known, found, 1.0))
        logs -= of.tilts * self.totals
        if not known.all():
            return known, logs, None
        ones = np.ones((rows, 1, of.lists.shape[-1]))
        after = np.cumprod(np.concatenate([ones, of.lists[:, :0:-1]], axis=1), axis=1)[:, ::-1]
        others = scipy.fft.irfft(of.before * after, of.length).reshape(listed.size, of.length)
        place = listed.node_distribution
        rest = of.totals[place // d] - (listed.block_start - listed.lows[place])
        inside = (rest >= 0) & (rest < of.length)
        masses = listed.masses * np.where(inside, others[place, np.where(inside, rest, 0)], 0.0)
        with np.errstate(divide="ignore"):
            logs_given = np.log(np.maximum(masses, 0.0))
        return known, logs, Listed(listed.lows, listed.highs - listed.lows + 1, logs_given, 0.0, CUT).trimmed(CUT)

    @property
    def are_known(self) -> NDArray[np.bool_]:
        """The rows of which this is accurate, shape (rows,). If there are others, nothing else is to be asked for."""
        return self._solved[0]

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability of the output, counts and shares of all rows summed out."""
        priors = sum(float(row.log_normaliser(row.total)) + row.log_factor for row in self.posteriors)
        return float(self._solved[1].sum() + priors)

    @property
    def marginals(self) -> Listed:
        """The distributions of all counts, row by row."""
        _, _, found = self._solved
        assert found is not None
        return found

    def draw(self, draws: int, rng: np.random.Generator) -> Integers:
        """Independent draws of the counts, shape `(draws, rows, d)`."""
        listed, of = self._sums()
        rows, d = self.shape
        widths = (listed.highs - listed.lows + 1).reshape(rows, d)
        counts = np.empty((draws, rows, d), dtype=np.int64)
        left = np.tile(of.totals, (draws, 1))
        for k in range(d - 1, 0, -1):
            own = scipy.fft.irfft(of.lists[:, k], of.length)[:, : widths[:, k].max()]
            counts[..., k] = drawn_of_sums(own, scipy.fft.irfft(of.before[:, k], of.length), left, rng)
            left -= counts[..., k]
        counts[..., 0] = left
        counts += listed.lows.reshape(rows, d)
        return counts


def summed_at_once(posteriors: Sequence[RowPosterior]) -> list[tuple[Integers, KnownTotals]]:
    """Rows whose sums are taken at once, by their places among some, and the sums; the other rows are in none."""
    room, found = np.array([row.most for row in posteriors], dtype=np.int64), []
    short = np.flatnonzero(room < _MOST_RECORDS)
    if len(short) < _AT_LEAST_ROWS:
        return []
    # Rows of about the same length together.
    short = short[np.argsort(room[short], kind="stable")]
    numbers = np.cumsum(len(posteriors[0].alpha) ** 2 * (room[short] + 1)) // _AT_ONCE
    for some in np.split(short, np.flatnonzero(np.diff(numbers)) + 1):
        known = KnownTotals([posteriors[i] for i in some.tolist()])
        if known.are_known.any():
            rest = some[known.are_known]
            found.append(
                (rest, known if len(rest) == len(some) else KnownTotals([posteriors[i] for i in rest.tolist()]))
            )
    return found


def _tilted(lows: Integers, widths: Integers, logs: Array, totals: Integers) -> tuple[Listed, Array]:
    """Cells at the tilts at which those of each row add up to its total, without what is improbable then; the tilts."""
    rows, d = len(totals), len(lows) // len(totals)
    tilts, low, high = np.zeros(rows), np.full(rows, -np.inf), np.full(rows, np.inf)
    listed = Listed(lows, widths, logs, 0.0, CUT)
    for _ in range(_MOST_STEPS):
        variances = listed.variances.reshape(rows, d).sum(axis=1)
        off = totals - listed.means.reshape(rows, d).sum(axis=1)
        near = off**2 <= _NEAR**2 * variances + 1e-18 * (1 + totals) ** 2
        if near.all():
            break
        low, high = np.where(off > 0, tilts, low), np.where(off > 0, high, tilts)
        step = np.clip(off / np.maximum(variances, 1e-12), -_LONGEST, _LONGEST)
        inside = (tilts + step > low) & (tilts + step < high)
        # Both ends are known where a step leaves what is between them.
        tilts = np.where(near, tilts, np.where(inside, tilts + step, (low + high) / 2))
        listed = Listed(lows, widths, logs + tilts[listed.node_distribution // d] * listed.nodes, 0.0, CUT)
    return listed.trimmed(CUT), tilts
