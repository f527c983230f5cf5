"""Rows whose totals are known, many at once: their counts given an output.

1. The numbers of all cells are listed, each with the logarithm of its weight.
2. Each row has a tilt at which its cells add up to its total on average: Newton's method for all rows.
3. A Fourier transform of each list, along one axis of an array. Products of those of all cells of a row, of all but
   one, and of the first few, give the distributions of sums.
4. What all other cells say of a count, times its own probability, is its distribution given the total.
5. A draw takes the last cell given the total, the one before given what is left, and so on.

Errors are 1e-16 of the largest probability of a sum, so rows whose total has little of it are left to others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy  # which loads scipy.fft where it is used, and not before
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.inference.numbers import CUT, Listed
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.sums import drawn_of_sums

__all__ = ["KnownTotals", "summed_at_once"]

# So many rows are summed at once, if they hold fewer records than this; so many numbers together.
_MANY, _MOST_RECORDS, _AT_ONCE = 4, 2**11, 2**21

# The means add up to the total up to this share of the deviation of the sum, after so many steps.
_NEAR, _MOST_STEPS, _LONGEST = 0.05, 60, 4.0
# Totals are left to others whose probability is lower than the largest by a factor of more than this.
_RARE = 1e-4

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
        known = found > _RARE * sums.max(axis=1)
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
    if len(short) < _MANY:
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
