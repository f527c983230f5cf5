"""The law of an intensity above a floor, as a function of the count: what inference from a floored draw needs."""

from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import gammaincc, gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.mechanisms.row_likelihood import RowLikelihood, RowsSeen
from pymc_dirdp.numerics.truncated_gamma import log_mass

__all__ = ["FlooredLaw"]

# What an intensity says of a count is looked at in so many places, so many standard deviations far.
_POINTS, _REACH = 64, 12.0
# A probability that SciPy computes with all digits.
_RARE = 1e-200


@final
@dataclass(frozen=True)
class FlooredLaw:
    """Gamma distributions with parameters `r * counts + alpha`, given that they lie between a floor and a ceiling.

    Attributes
    ----------
    r, floor : float
    ceiling : float
        Infinite if there is none.
    """

    r: float
    floor: float
    ceiling: float

    def log_density(self, g: Array, counts: Array, alpha: Array) -> Array:
        """The logarithm of the density of intensities g. Shapes broadcast."""
        a = alpha + self.r * counts
        return np.asarray((a - 1) * np.log(g) - g - self._log_mass(a))

    def _log_likelihood(self, counts: Array, g: Array, alpha: Array) -> Array:
        return self.log_density(g, counts, alpha)

    def _log_mass(self, a: Array) -> Array:
        """The logarithm of the normaliser: quickly where SciPy's function is precise, by quadrature elsewhere."""
        if np.isfinite(self.ceiling):
            return log_mass(a, self.floor, self.ceiling)
        above = np.asarray(gammaincc(a, self.floor))
        found, rare = np.array(gammaln(a) + np.log(np.maximum(above, _RARE))), above < _RARE
        found[rare] = log_mass(a[rare], self.floor)
        return found

    def row_likelihood(self, g: Array, alpha: Array) -> RowLikelihood:
        """One row of intensities as a function of its counts. Shapes (d,)."""
        return RowLikelihood(
            lambda counts, cells: self.log_density(g[cells], counts, alpha[cells]), np.zeros_like, smooth=True
        )

    def rows_seen(self, g: Array, alpha: Array) -> RowsSeen:
        """What rows of intensities, each of another table, say of their counts. Shapes (rows, d)."""
        reach = _REACH * np.sqrt(g) / self.r + 1
        low, high = np.maximum(g / self.r - reach, 0), g / self.r + reach

        points = low + (high - low) * np.linspace(0, 1, _POINTS)[:, None, None]
        logs = self.log_density(g, points, alpha)
        mass = np.exp(logs - logs.max(axis=0))
        mass /= mass.sum(axis=0)
        mean = (mass * points).sum(axis=0)
        variance = (mass * (points - mean) ** 2).sum(axis=0)
        spread = float(np.sqrt(variance.sum(axis=-1)).mean())
        return RowsSeen(low, high, self._log_likelihood, (g, alpha), mean.sum(axis=-1), spread)
