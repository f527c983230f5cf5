"""Two distributions over finitely many outcomes: those of a finite mechanism, or densities that are cut into cells.

Cutting the outputs into cells is post-processing. So the divergences of the cells' probabilities are lower bounds of
those of the outputs, however wide the cells are.
"""

import math
from dataclasses import dataclass
from functools import reduce
from typing import Self, final, override

import numpy as np
from scipy.special import logsumexp

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.tcdp import rho_from_above

__all__ = ["FiniteLaws", "product_of"]

# A product of two laws is merged into so many cells.
_KEPT = 1_500
# Cells are put in order by their loss, cut at this size.
_LARGEST_LOSS = 700.0


@final
@dataclass(frozen=True, eq=False)
class FiniteLaws(PrivacyCurves):
    """Logarithms of the probabilities of outcomes, given the first data set and given the second.

    Each curve is the larger one of both directions.

    Attributes
    ----------
    log_p, log_q : array, shape (m,)
        Minus infinity where an outcome is impossible.

    Examples
    --------
    >>> laws = FiniteLaws(np.log([0.75, 0.25]), np.log([0.25, 0.75]))
    >>> laws.delta(0.0), laws.pure_epsilon
    (0.5, 1.098...)
    """

    log_p: Array
    log_q: Array

    def times(self, other: Self) -> Self:
        """The distributions of two independent parts."""
        return type(self)(np.add.outer(self.log_p, other.log_p).ravel(), np.add.outer(self.log_q, other.log_q).ravel())

    def merged(self, cells: int) -> Self:
        """The same with outcomes of nearly equal loss joined. That is post-processing, so no divergence grows."""
        if len(self.log_p) <= cells:
            return self
        possible = (self.log_p > -np.inf) | (self.log_q > -np.inf)
        log_p, log_q = self.log_p[possible], self.log_q[possible]
        # Where one of the two laws is 0 the loss is infinite, and these cells stay apart from others.
        loss = np.clip(log_p - log_q, -_LARGEST_LOSS, _LARGEST_LOSS)
        order = np.argsort(loss, kind="stable")
        # Cells are narrow where the probability is, and as narrow in the loss itself far out.
        weight = np.cumsum(np.exp(np.logaddexp(log_p, log_q)[order])) / 2
        rank = weight / weight[-1] + np.arcsinh(loss[order])
        rank = (rank - rank[0]) / max(rank[-1] - rank[0], 1e-300)
        starts = np.flatnonzero(np.diff(np.floor(rank * (cells - 1)), prepend=-1.0))
        return type(self)(*(np.logaddexp.reduceat(law[order], starts) for law in (log_p, log_q)))

    @property
    @override
    def pure_epsilon(self) -> float:
        """The largest loss of an outcome, `inf` where an outcome is possible under one distribution only."""
        return max(float(np.max(p[p > -np.inf] - q[p > -np.inf], initial=0.0)) for p, q in self._directions)

    @override
    def _delta(self, epsilon: float) -> float:
        return max(_hockey_stick(*pair, epsilon) for pair in self._directions)

    @override
    def _renyi(self, order: float) -> float:
        if order == math.inf:
            return self.pure_epsilon
        return max(_renyi(*pair, order) for pair in self._directions)

    @override
    def _rho(self, omega: float) -> float:
        return rho_from_above(self._renyi, omega) if math.isfinite(self.pure_epsilon) else math.inf

    @property
    def _directions(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        return (self.log_p, self.log_q), (self.log_q, self.log_p)


def product_of(parts: list[FiniteLaws]) -> FiniteLaws:
    """The joint distributions of independent parts; outcomes of nearly equal loss are joined if there are many."""
    if not parts:
        raise ArgumentError("Expected two data sets that differ.")
    return reduce(lambda law, part: law.merged(_KEPT).times(part), parts)


def _hockey_stick(log_p: Array, log_q: Array, epsilon: float) -> float:
    possible = log_p > -np.inf
    excess = log_p[possible] - log_q[possible] - epsilon
    return float(np.sum(np.exp(log_p[possible]) * -np.expm1(-np.maximum(excess, 0.0))))


def _renyi(log_p: Array, log_q: Array, order: float) -> float:
    possible = log_p > -np.inf
    p, loss = log_p[possible], log_p[possible] - log_q[possible]
    if order == 1:
        # No term of p log(p / q) - p + q is negative.
        return float(np.sum(np.exp(p) * (loss + np.expm1(-loss))))
    tilt = (order - 1) * loss
    if tilt.max() == math.inf:
        # One of the two laws alone has this outcome.
        return math.inf
    if tilt.max() > 30:
        return float(logsumexp(p + tilt)) / (order - 1)
    # The sum is near 1, so its difference from 1 is summed. Its linear terms are left out: they add
    # up to the sum of q - p, which is 0 unless the other direction is infinite.
    return math.log1p(float(np.sum(np.exp(p) * (np.expm1(tilt) + (order - 1) * np.expm1(-loss))))) / (order - 1)
