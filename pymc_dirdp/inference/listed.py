"""Distributions of integers, number by number: what a tree of sums adds up."""

from typing import final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.inference.number_laws import NumberLaws

__all__ = ["Listed"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@final
class Listed(NumberLaws):
    """Independent distributions of integers with weights `exp(logs + tilt * x)`, of which every number is kept.

    They are settled: nodes are all numbers, each a block of its own, and there are no rules to be refined.

    Parameters
    ----------
    lows, widths : array of int, shape (size,)
        The first number of each, and how many there are.
    logs : array
        Logarithms of the weights before the tilt, of one distribution after the other.
    tilt, cut : float
    """

    def __init__(self, lows: Integers, widths: Integers, logs: Array, tilt: float, cut: float) -> None:
        self.size, self.tilt, self.cut, self.smooth = len(lows), tilt, cut, False
        self.lows, self.highs = lows, lows + widths - 1
        self.least, self.most = self.lows, self.highs
        self._starts = np.cumsum(widths) - widths
        self.node_law = np.repeat(np.arange(self.size), widths)
        self.block_start = np.arange(len(logs)) - (self._starts - lows)[self.node_law]
        self.nodes = self.block_start.astype(np.float64)
        tilted = logs + tilt * self.nodes
        peak = np.maximum.reduceat(tilted, self._starts)
        self._logs = tilted - peak[self.node_law]
        masses = np.exp(self._logs)
        total = np.add.reduceat(masses, self._starts)
        self.log_totals = peak + np.log(total)
        self.peaks = -np.log(total)
        self._logs += self.peaks[self.node_law]
        self.masses = masses / total[self.node_law]
        self.means = np.add.reduceat(self.masses * self.nodes, self._starts)
        centred = self.nodes - self.means[self.node_law]
        self.variances = np.add.reduceat(self.masses * centred**2, self._starts)
        self.block_law, self.block_mass, self.block_top = self.node_law, self.masses, self._logs
        self.block_length = np.ones(1, dtype=np.int64)

    def pmf(self, law: int) -> Array:
        """The probabilities of the numbers of one distribution."""
        start = int(self._starts[law])
        return self.masses[start : start + int(self.highs[law] - self.lows[law]) + 1]

    @override
    def log_pmf(self, x: Array, law: Integers) -> Array:
        """Logarithm of the probability of whole numbers, elementwise."""
        place = np.asarray(x, dtype=np.int64) - self.lows[law]
        inside = (place >= 0) & (place <= (self.highs - self.lows)[law])
        return np.where(inside, self._logs[self._starts[law] + np.where(inside, place, 0)], -np.inf)
