"""Independent cells, tilted so that their means add up to the total: what all sums and draws start from."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from pymc_dirdp.inference.convolution import Convolution
from pymc_dirdp.inference.fourier import MOST_KEPT, Fourier
from pymc_dirdp.inference.inversion import Inversion, TooManyNodesError, reach_of_sum
from pymc_dirdp.inference.listed import Listed
from pymc_dirdp.inference.number_laws import CUT, ImpossibleError, NumberLaws
from pymc_dirdp.inference.pair import Pair

__all__ = ["LITTLE_WORK", "TiltedCells", "solved", "summed", "tilt_for"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# With fewer products every sum is taken number by number; that takes some 10 milliseconds.
LITTLE_WORK = 5e6
_MUCH_WORK = 2e10
# So many numbers are transformed at once, before it is asked whether characteristic functions at few points do.
_LITTLE_KEPT = 500_000
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
    cells : NumberLaws
        Their distributions.
    total : int
        What they add up to in the distribution that is wanted.
    sums : Convolution, Fourier, Inversion or Pair
        The distribution of their sum.
    """

    cells: NumberLaws
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
            x, cell, log_mass = cells.nodes, cells.node_law, np.log(cells.masses)
        else:
            widths = cells.highs - cells.lows + 1
            cell = np.repeat(np.arange(cells.size), widths)
            x = (np.arange(widths.sum()) - (np.cumsum(widths) - widths - cells.lows)[cell]).astype(np.float64)
            log_mass = cells.log_pmf(x, cell)
        weights = np.exp(log_mass + self.sums.log_rest(x, cell) - self.sums.log_sum(np.array([self.total])))
        return np.bincount(cell, weights * x, cells.size)

    @cached_property
    def marginals(self) -> NumberLaws:
        """The distributions of the single counts given their total."""

        def log_weight(x: Array, cell: Integers) -> Array:
            return self.cells.log_pmf(x, cell) + self.sums.log_rest(x, cell)

        cells = self.cells
        smooth = cells.smooth and isinstance(self.sums, Inversion | Pair)
        laws = NumberLaws(log_weight, cells.size, cells.lows, cells.highs, smooth=smooth)
        laws.settle(0.0)
        return laws


def solved(cells: NumberLaws, total: int) -> TiltedCells:
    """Tilt cells so that they add up to a total on average, and find the distribution of their sum.

    Parameters
    ----------
    cells : NumberLaws
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
    raise _impossible()


def summed(cells: Listed, total: int) -> TiltedCells:
    """The distribution of the sum of cells as they are, near some total."""
    if Convolution.work(cells) <= LITTLE_WORK:
        return TiltedCells(cells, total, Convolution(cells, total))
    if Fourier.fits(cells, most=_LITTLE_KEPT):
        return TiltedCells(cells, total, Fourier(cells, total))
    return TiltedCells(cells, total, _transformed(cells, total))


def _transformed(cells: NumberLaws, total: int) -> Fourier | Inversion:
    """The distribution of the sum by characteristic functions: at few points, or at all if few do not suffice."""
    try:
        return Inversion(cells, total, most_nodes=_FEW if Fourier.fits(cells) else _MANY)
    except TooManyNodesError:
        if not Fourier.fits(cells, most=MOST_KEPT):
            raise
    return Fourier(cells, total)


def _tapered(cells: NumberLaws, total: int) -> NumberLaws:
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
        # The normal law's tail is 1 up to the last bit until 9 standard deviations before its middle. With half as
        # much again there is room for other totals, too.
        taper = log_ndtr(9 + (1.5 * reach - np.abs(x - centre)) / width)
        return cells.log_weights(x, cell) + np.where(cell == widest, taper, 0.0)

    tapered = NumberLaws(log_weight, cells.size, cells.least, cells.most, smooth=cells.smooth)
    tapered.settle(cells.tilt)
    return tapered


def _impossible() -> ImpossibleError:
    return ImpossibleError(
        "No table of counts with this total could have given this output, or none that doubles can tell from "
        "impossible. Check the total, the least count, and that the output belongs to this mechanism."
    )


def tilt_for(cells: NumberLaws, total: int) -> float:
    """The tilt at which the means add up to the total: Newton's method between bounds.

    The sum of the means rises with the tilt. Its logit varies evenly where the sum itself varies by powers of ten.
    """
    least, most = cells.reach()
    if not least <= total <= most:
        raise _impossible()
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
            raise _impossible()
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
