"""The distribution of a count with whole noise, truncated to 0 and the number of records."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array

__all__ = ["TruncatedCell"]


@final
@dataclass(frozen=True)
class TruncatedCell:
    """A noisy count that is cut at 0 and `most`; the two ends take the tails of the noise.

    All functions are elementwise, and follow smooth curves with few kinks between whole counts.

    Parameters
    ----------
    scale : float
        Of the noise, positive.
    floored : bool
        Whether it is Laplace noise rounded down; otherwise it is two-sided geometric.
    most : int
        The public number of records, at least 1.
    """

    scale: float
    floored: bool
    most: int

    @property
    def _log_side(self) -> float:
        """Minus the logarithm of the probability of noise of 0 or more."""
        return math.log(2) if self.floored else math.log1p(math.exp(-1 / self.scale))

    def log_pmf(self, released: ArrayLike, counts: ArrayLike) -> Array:
        """Logarithm of the probability of what is released, from 0 to `most`, given the count."""
        z, x = np.asarray(released, dtype=np.float64), np.asarray(counts, dtype=np.float64)
        # Laplace noise that is rounded down is g or -1 - g with the same probability.
        half = self.floored / 2
        inside = math.log(-math.expm1(-1 / self.scale)) - self._log_side - (np.abs(z - x + half) - half) / self.scale
        below, above = self._log_tail(x - self.floored), self._log_tail(self.most - x)
        return np.where(z == 0, below, np.where(z == self.most, above, inside))

    def log_at_least(self, released: ArrayLike, counts: ArrayLike) -> Array:
        """Logarithm of the probability of at least so much, from 1 to `most`, given the count."""
        return self._log_tail(np.asarray(released, dtype=np.float64) - np.asarray(counts, dtype=np.float64))

    def _log_tail(self, noise: Array) -> Array:
        """Logarithm of the probability that the noise is at least this."""
        log_rest = (np.minimum(noise, 0) - 1 + self.floored) / self.scale - self._log_side
        with np.errstate(divide="ignore"):
            return np.where(noise >= 0, -noise / self.scale - self._log_side, np.log1p(-np.exp(log_rest)))
