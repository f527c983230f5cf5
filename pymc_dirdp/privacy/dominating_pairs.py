"""The dominating pairs of the Dirichlet mechanism and their exact privacy curves.

For every pair of neighbouring data sets and every f-divergence, the output distributions are no further apart than one
fixed pair of distributions, which depends only on the two smallest prior parameters and on `r` (Theory, section 2). A
pair has its curves. :mod:`pymc_dirdp.privacy.unit` composes such pairs for a person with several
records. The proofs are in the documentation under "Theory".
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final, override

from pymc_dirdp.arrays import Array
from pymc_dirdp.privacy.curves import LossCurves
from pymc_dirdp.privacy.divergences import LogitLoss, renyi_add, renyi_remove


@final
@dataclass(frozen=True)
class DominatingPair(LossCurves):
    """Two distributions that are at least as far apart as the output distributions of any two neighbouring data sets.

    They are `Gamma(loses) x Gamma(gains + r)` and `Gamma(loses + r) x Gamma(gains)`: a record has left the cell with
    the prior parameter `loses`, and is in the cell with `gains`. All curves are exact for the pair, so they are upper
    bounds for every pair of neighbouring data sets and the suprema over them. They rise with `r` and fall as the
    parameters rise.

    - Under replace-one a record moves between the cells with the two smallest prior parameters. Neighbours come in both
      orders, and both directions have the larger curve: the larger parameter gains, at every Rényi order and every
      epsilon >= 0 (Theory, Theorem 2).
    - In a row of two cells with a public number of records the worst neighbours have all other records in the cell with
      the larger prior, so `gains` has them in it, times the concentration. For epsilon < 0 some neighbours are further
      apart, so a composition takes the larger curve on both sides (Theory, Theorem 14).
    - Under add-remove a record disappears, and `gains` is infinite, which loses more (Theory, Theorem 2); the other
      direction is that of a record that appears.
    - If only `gains` is finite, records appear and none disappears. In a composition such pairs stand
      for cells that gain records while others lose some.

    Parameters
    ----------
    loses, gains : float
        Positive; infinite where no cell loses a record, or none gains one.
    r : float
        The concentration, times the number of records that move; positive.

    References
    ----------
    Theory, section 2 to 6.

    Examples
    --------
    >>> any_number = DominatingPair(8.0, 8.0, 0.3)
    >>> public = DominatingPair(8.0, 8.0 + 0.3 * 999, 0.3)
    >>> public.epsilon(1e-6) / any_number.epsilon(1e-6)
    0.84...
    """

    loses: float
    gains: float
    r: float

    @property
    def _both_ways(self) -> bool:
        """Whether the record moves, so that neighbours come in both orders."""
        return math.isfinite(self.loses) and math.isfinite(self.gains)

    @property
    @override
    def _reversed(self) -> "DominatingPair":
        return self if self._both_ways else DominatingPair(self.gains, self.loses, self.r)

    @override
    def _renyi(self, order: float) -> float:
        low, high = sorted((self.loses, self.gains)) if self._both_ways else (self.loses, self.gains)
        losing = renyi_remove(order, low, self.r) if math.isfinite(low) else 0.0
        # Where this is infinite, the other term may be NaN.
        return losing if losing == math.inf or high == math.inf else renyi_add(order, high, self.r) + losing

    @override
    def _rho(self, omega: float) -> float:
        if self.loses == math.inf:
            # The divergence over its order falls (Theory, section 5), and stays finite.
            return self._renyi(1.0)
        # It is convex in the order (Theory, sections 5 and 6), so it is largest at an end.
        return max(self._renyi(1.0), self._renyi(omega) / omega) if math.isfinite(omega) else math.inf

    @override
    def _delta(self, epsilon: float) -> float:
        return self._loss.delta(epsilon)

    @override
    def _deltas(self, epsilons: Array) -> Array:
        return self._loss.deltas(epsilons)

    @cached_property
    def _loss(self) -> LogitLoss:
        low, high = sorted((self.loses, self.gains)) if self._both_ways else (self.loses, self.gains)
        return LogitLoss(low, high, self.r)
