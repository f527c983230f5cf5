"""What an output says about the total of a row: sums over all tables with each total."""

from collections.abc import Callable

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.drawing import draw_counts
from pymc_dirdp.inference.fourier import Fourier
from pymc_dirdp.inference.inversion import Inversion
from pymc_dirdp.inference.pair import Pair
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.small_totals import KNOWN, largest_small, small_sums, summed_up_to
from pymc_dirdp.inference.tilted import LITTLE_WORK, OfCount, TiltedCells, solved

__all__ = ["Evidence"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# One tilt serves all totals whose probability is within this factor of the largest, on the logarithmic scale.
_DEPTH = 8.0
# Runs of totals up to this length are kept whole.
_LONG = 4096
# Two cells are convolved, for all totals at once, if that takes fewer products than this.
_PAIR_WORK = 1e9
# So many totals of two wide cells are summed at a time.
_AT_A_TIME = 64
# Draws of rows with small totals are made number by number, if that takes no more products than this.
_DRAWING_WORK = 2e7
# In a long run, the sums of so many totals are made, and a polynomial of this degree goes through them.
_POINTS, _DEGREE = 80, 40
# Where none fits, a run is halved until it is as short as that.
_SHORT = 512
# If a sum serves for all totals, the largest of a run is so many times the smallest.
_STRETCH = 8
# A polynomial is kept if it is as near as that to the logarithms of all these sums.
_FITS = 1e-10
# Between whole totals, that many of them are interpolated.
_STENCIL = np.arange(-3, 5)


class Evidence:
    """The probability of an output for every total that a row may have, and draws of the row given its total.

    Small totals are summed all at once. One tilt is right for totals near the mean of the tilted cells only. So larger
    ones are taken in runs, each with a tilt of its own; what is known of a long run is kept as a polynomial.

    Parameters
    ----------
    law : ProductLaw
        Of the row, with the largest total that it may have.

    Attributes
    ----------
    law : ProductLaw
    least : int
        The least total.
    small : int
        Up to this total, all sums are made at once.
    """

    def __init__(self, law: ProductLaw) -> None:
        self.law = law
        self.least = law.least * len(law.alpha)
        self._cells = law.cells()
        self._little_work = _PAIR_WORK if len(law.alpha) == 2 else LITTLE_WORK
        # What is known already, in the order of the totals.
        self._totals, self._values = np.empty(0, dtype=np.int64), np.empty(0)
        self.small = largest_small(law)
        self._summed_to = -1
        self._curves: list[Chebyshev] = []

    def __call__(self, totals: Array) -> Array:
        """Logarithm of the probability of the output for each total, without the factor of the total alone.

        Between whole totals it is interpolated. It is `-inf` where no table could have given the output.
        """
        totals = np.asarray(totals, dtype=np.float64)
        return self._between(self._at, totals) + self.law.log_normaliser(totals)

    def expectations(self, of: OfCount, totals: Array) -> Array:
        """Expected functions of each count for each total that some table has, shape `(len(totals), d, m)`."""

        def at(whole: Integers) -> Array:
            distinct, which = np.unique(whole, return_inverse=True)
            waiting = distinct
            parts: dict[int, Array] = {}
            while len(waiting):
                middle = int(waiting[len(waiting) // 2])
                tilted = solved(self._cells, middle, little_work=self._little_work)
                near = waiting[:_AT_A_TIME] if isinstance(tilted.sums, Pair) else self._served(tilted, waiting)
                served = np.intersect1d(waiting, near)
                parts.update(zip(served.tolist(), tilted.expectations(of, served), strict=True))
                waiting = np.setdiff1d(waiting, served, assume_unique=True)
            return np.stack([parts[n] for n in distinct.tolist()])[which.reshape(whole.shape)]

        return self._between(at, np.asarray(totals, dtype=np.float64))

    def _between(self, at: Callable[[Integers], Array], totals: Array) -> Array:
        """What `at` knows at whole totals, interpolated between them."""
        whole = np.floor(totals).astype(np.int64)
        fraction = totals - whole
        between = fraction > 0
        if not between.any():
            return at(whole)
        inside = np.clip(whole[between], self.least + 3, self.law.total - 4)
        values = at(inside[:, None] + _STENCIL)
        weights = _lagrange(whole[between] + fraction[between] - inside)
        found = np.empty((*totals.shape, *values.shape[2:]))
        if not between.all():
            found[~between] = at(whole[~between])
        # No curve runs through a total that no table has. Next to it, what lies between totals counts as impossible.
        impossible = np.isneginf(values).any(axis=1)
        values = np.where(impossible[:, None], 0.0, values)
        smooth = np.sum(values * weights.reshape(*weights.shape, *(1,) * (values.ndim - 2)), axis=1)
        found[between] = np.where(impossible, -np.inf, smooth)
        return found

    def _at(self, totals: Integers) -> Array:
        distinct, which = np.unique(totals, return_inverse=True)
        while len(missing := np.setdiff1d(distinct, self._totals, assume_unique=True)):
            self._look_at(missing)
        return self._values[np.searchsorted(self._totals, distinct)][which].reshape(totals.shape)

    def _look_at(self, missing: Integers) -> None:
        """Sum the tables of some of the missing totals, and of those around them for which the same tilt serves."""
        least, most = self._cells.reach()
        beyond = missing[(missing < least) | (missing > most)]
        curve = next((curve for curve in self._curves if _within(curve, missing).any()), None)
        if len(beyond):
            found, values = beyond, np.full(len(beyond), -np.inf)
        elif missing[0] <= self.small and (end := int(missing[missing <= self.small][-1])) > self._summed_to:
            found, values = small_sums(self.law, end)
            self._summed_to = end
        elif curve is not None:
            found = missing[_within(curve, missing)]
            values = curve(found)
        else:
            found, values = self._summed(missing)
        totals, values = np.append(self._totals, found), np.append(self._values, values)
        self._totals, first = np.unique(totals, return_index=True)
        self._values = values[first]

    def _summed(self, missing: Integers) -> tuple[Integers, Array]:
        middle = missing[len(missing) // 2]
        try:
            tilted = solved(self._cells, int(middle), little_work=self._little_work)
        except ArgumentError:
            # No table has this total.
            return middle[None], np.array([-np.inf])
        if isinstance(tilted.sums, Pair):
            # It serves for all totals.
            low, high = int(missing[0]), min(int(missing[-1]), _STRETCH * int(missing[0]))
        else:
            low, high = self._reached(tilted)
            served = self._good(tilted, _points(low, high))
            low, high = int(served[0]), int(served[-1])
        if self.law.smooth and high - low >= _LONG:
            return self._long(tilted, low, high)
        found = missing[:_AT_A_TIME] if isinstance(tilted.sums, Pair) else self._served(tilted, missing)
        return found, tilted.log_sums_of_products(found)

    def _long(self, tilted: TiltedCells, low: int, high: int) -> tuple[Integers, Array]:
        """Keep polynomials through the sums of a long run of totals, and the sums themselves where none fits."""
        run = np.arange(low, high + 1) if high - low < _SHORT else _points(low, high)
        values = tilted.log_sums_of_products(run)
        if high - low < _SHORT:
            return run, values
        if np.isfinite(values).all():
            curve: Chebyshev = Chebyshev.fit(run, values, _DEGREE, domain=[low, high])
            if np.abs(curve(run) - values).max() <= _FITS + 1e-14 * np.abs(values).max():
                self._curves.append(curve)
                return run, values
        middle = (low + high) // 2
        halves = self._long(tilted, low, middle), self._long(tilted, middle + 1, high)
        return np.concatenate([totals for totals, _ in halves]), np.concatenate([sums for _, sums in halves])

    def _reached(self, tilted: TiltedCells) -> tuple[int, int]:
        """Totals beyond which a tilt does not serve."""
        wide = int(min(5 * np.sqrt(tilted.cells.variances.sum()) + 1, tilted.reach))
        return max(self.least, tilted.total - wide), min(self.law.total, tilted.total + wide)

    def _served(self, tilted: TiltedCells, missing: Integers) -> Integers:
        """The totals around its own for which a tilt serves: all, or those that are missing if there are many."""
        low, high = self._reached(tilted)
        run = np.arange(low, high + 1) if high - low < _LONG else missing[(missing >= low) & (missing <= high)]
        return self._good(tilted, run)

    @staticmethod
    def _good(tilted: TiltedCells, run: Integers) -> Integers:
        """Those of a run of totals whose sums are known well: without a gap around the total of the tilt."""
        values = tilted.sums.log_sum(run)
        top = tilted.sums.log_bound if isinstance(tilted.sums, Fourier | Inversion) else values.max()
        bad = run[values < top - _DEPTH]
        below = bad[bad < tilted.total].max(initial=run[0] - 1)
        above = bad[bad > tilted.total].min(initial=run[-1] + 1)
        # The total that the tilt was made for is known well whatever its probability.
        return np.union1d(run[(run > below) & (run < above)], tilted.total)

    def draw(self, totals: Integers, rng: np.random.Generator) -> tuple[Integers, float]:
        """One table for each total, shape `(len(totals), d)`, and the share of proposals that was accepted."""
        counts = np.empty((len(totals), len(self.law.alpha)), dtype=np.int64)
        kept = 0.0
        waiting = np.argsort(totals, kind="stable")
        # The smallest totals, as many as it takes little time to draw number by number.
        cost = np.cumsum(totals[waiting] + 1.0) * counts.shape[1]
        few = int(np.sum((totals[waiting] <= self.small) & (cost <= _DRAWING_WORK)))
        if few and (small := summed_up_to(self.law, int(totals[waiting[few - 1]]))) is not None:
            _, sums = small
            possible = sums.log_sum(totals[waiting[:few]]) > KNOWN
            chosen = waiting[:few][possible]
            counts[chosen] = sums.draw(totals[chosen], rng)
            kept += len(chosen)
            waiting = np.concatenate([waiting[:few][~possible], waiting[few:]])
        while len(waiting):
            middle = int(totals[waiting[len(waiting) // 2]])
            tilted = solved(self.law.cells(), middle)
            near = np.abs(totals[waiting] - middle) <= min(2 * np.sqrt(tilted.cells.variances.sum()), tilted.reach)
            # Where cells are wide, an empty row may be as near as that, and yet be proposed next to never.
            near &= 2 * (totals[waiting] - self.least) >= middle - self.least
            chosen = waiting[near]
            counts[chosen], acceptance = draw_counts(tilted, totals[chosen], rng)
            kept += len(chosen) / acceptance
            waiting = waiting[~near]
        return counts, len(totals) / kept


def _lagrange(x: Array) -> Array:
    """Weights of the polynomial through the values at the stencil, shape `(..., 8)`."""
    weights = np.ones((*x.shape, len(_STENCIL)))
    for i, node in enumerate(_STENCIL):
        for other in np.delete(_STENCIL, i):
            weights[..., i] *= (x - other) / (node - other)
    return weights


def _points(low: int, high: int) -> Integers:
    """Integers from `low` to `high`, closer to one another at both ends."""
    level = (1 - np.cos(np.pi * np.arange(_POINTS) / (_POINTS - 1))) / 2
    return np.unique(np.round(low + (high - low) * level).astype(np.int64))


def _within(curve: Chebyshev, totals: Integers) -> NDArray[np.bool_]:
    low, high = curve.domain
    inside: NDArray[np.bool_] = (totals >= low) & (totals <= high)
    return inside
