"""Exact draws of integers from distributions that are known up to a factor."""

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.inference.number_laws import NumberLaws

__all__ = ["NumberDraws"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Cumulative probabilities of all numbers are kept for laws up to this width, or if they are this many in all.
_NARROW = 2048
_MOST_KEPT = 2**20
# Within a block weights may be so much larger than at the nodes, on the logarithmic scale.
_SLACK = 0.25


class NumberDraws:
    """Draws from settled laws, by cumulative probabilities, or block by block with rejection where a law is wide.

    Parameters
    ----------
    laws : NumberLaws
        Settled; not changed while this is used.
    narrow : int, optional
        Up to this width cumulative probabilities are kept; by default what pays for thousands of draws.
    """

    def __init__(self, laws: NumberLaws, narrow: int | None = None) -> None:
        self._laws = laws
        self._narrow = max(_NARROW, _MOST_KEPT // laws.size) if narrow is None else narrow
        self._logs: dict[int, Array] = {}
        self._tables: dict[int, tuple[Array, NDArray[np.int32]]] = {}
        self._starts = np.searchsorted(laws.block_law, np.arange(laws.size + 1))

    def log_bound(self, law: int) -> float:
        """Logarithm of the largest probability of a number, or a little more where the distribution is wide."""
        if self._is_wide(law):
            return float(self._laws.peaks[law]) + _SLACK
        return float(np.max(self._log_table(law)))

    def log_pmf(self, law: int, x: Integers) -> Array:
        """Logarithm of the probability of numbers, which is looked up where cumulative probabilities are kept."""
        if self._is_wide(law):
            return self._laws.log_pmf(x.astype(np.float64), np.full(len(x), law))
        low, high = int(self._laws.lows[law]), int(self._laws.highs[law])
        found = self._log_table(law)[np.clip(x, low, high) - low]
        outside = np.flatnonzero((x < low) | (x > high))
        found[outside] = self._laws.log_pmf(x[outside].astype(np.float64), np.full(len(outside), law))
        return found

    def _is_wide(self, law: int) -> bool:
        return int(self._laws.highs[law] - self._laws.lows[law]) >= self._narrow

    def _log_table(self, law: int) -> Array:
        """The logarithms of the probabilities of all numbers that matter."""
        if law not in self._logs:
            x = np.arange(self._laws.lows[law], self._laws.highs[law] + 1, dtype=np.float64)
            self._logs[law] = self._laws.log_pmf(x, np.full(len(x), law))
        return self._logs[law]

    def draw(self, law: int, size: int, rng: np.random.Generator) -> Integers:
        """Independent draws from one distribution, shape `(size,)`."""
        if self._is_wide(law):
            return self._from_blocks(law, size, rng)
        if law not in self._tables:
            cdf = np.cumsum(np.exp(self._log_table(law)))
            # The first number for which a cell of a grid of uniform numbers may stand: few are left to be searched.
            grid = np.arange(2.0 * len(cdf) + 1) / (2 * len(cdf))
            self._tables[law] = cdf, np.searchsorted(cdf, grid * cdf[-1], side="right").astype(np.int32)
        cdf, guide = self._tables[law]
        u = rng.random(size)
        place = (u * (len(guide) - 1)).astype(np.intp)
        drawn = guide[place].astype(np.int64)
        unclear = np.flatnonzero(guide[place + 1] > drawn)
        drawn[unclear] = np.searchsorted(cdf, u[unclear] * cdf[-1], side="right")
        return int(self._laws.lows[law]) + drawn

    def _from_blocks(self, law: int, size: int, rng: np.random.Generator) -> Integers:
        """A block by its mass, then a number in it: proposed uniformly, accepted with its share of the largest weight.

        The largest weight is that of the nodes and the ends with some slack. Blocks are no longer than a standard
        deviation and their sums are those of polynomials, so the slack is far more than is needed; a block in which a
        weight exceeds it all the same starts again with a larger one, and so do all draws from it.
        """
        laws, blocks = self._laws, slice(self._starts[law], self._starts[law + 1])
        start, length = laws.block_start[blocks], laws.block_length[blocks]
        bound = laws.block_top[blocks] + _SLACK
        cdf = np.cumsum(laws.block_mass[blocks])
        block = np.searchsorted(cdf, rng.random(size) * cdf[-1], side="right")
        drawn = np.empty(size, dtype=np.int64)
        waiting = np.arange(size)
        while len(waiting):
            at = block[waiting]
            x = start[at] + (rng.random(len(waiting)) * length[at]).astype(np.int64)
            excess = laws.log_pmf(x.astype(np.float64), np.full(len(x), law)) - bound[at]
            if np.any(excess > 0):
                np.maximum.at(bound, at, bound[at] + excess + _SLACK)
                waiting = np.flatnonzero(np.isin(block, at[excess > 0]) | np.isin(np.arange(size), waiting))
                continue
            accepted = np.log1p(-rng.random(len(waiting))) <= excess
            drawn[waiting[accepted]] = x[accepted]
            waiting = waiting[~accepted]
        return drawn
