"""Randomised response: the pair of laws that no mechanism with pure differential privacy is worse than."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import gammaln

from pymc_dirdp.numerics.roots import least_epsilon

__all__ = ["RandomisedResponse"]

# Of the logarithm of a factorial, relative; three of them make a binomial coefficient.
_ROUNDING = 2e-15
# Covers the rounding of the closed forms, so that no curve comes out below the true one.
_UP = 1 + 4e-15


@final
@dataclass(frozen=True)
class RandomisedResponse:
    """The truth with probability `1 / (1 + exp(-u))`, else its opposite, `cells` times independently.

    For one cell every curve is the largest among all mechanisms that keep `u`-differential privacy, and for several
    cells the largest among all products of such mechanisms.

    Attributes
    ----------
    u : float
        The loss of one answer, or minus that. Positive.
    cells : int
        How many answers, at least 1.

    References
    ----------
    Kairouz, Oh and Viswanath (2015), The composition theorem for differential privacy, Theorem 3.3.
    """

    u: float
    cells: int = 1

    @property
    def pure_epsilon(self) -> float:
        """The largest loss."""
        largest = self.cells * self.u
        # A multiple by a power of two is exact, and any other one may have been rounded down.
        return largest if self.cells & (self.cells - 1) == 0 else math.nextafter(largest, math.inf)

    def renyi(self, order: float) -> float:
        """Per cell the logarithm of `cosh((order - 1/2) u) / cosh(u / 2)` over `order - 1`."""
        return min(self.cells * _renyi(self.u, order) * _UP, self.pure_epsilon)

    def rho(self) -> float:
        """The largest `D_order / order`: it falls with the order (Theory, Theorem 7)."""
        return self.renyi(1.0)

    def delta(self, epsilon: float) -> float:
        """Hockey-stick divergence at epsilon >= 0: a sum over the number i of lies, with loss `(cells - 2 i) u`.

        For two cells only the largest loss, `2 u`, is above epsilon: the others are 0 and `-2 u`.
        """
        if epsilon >= self.pure_epsilon:
            return 0.0
        if self.cells <= 2:
            return min(1.0, _UP * -math.expm1(epsilon - self.pure_epsilon) / (1 + math.exp(-self.u)) ** self.cells)
        below = (self.pure_epsilon - epsilon) / (2 * self.u)
        i = np.arange(min(math.ceil(below), self.cells // 2 + 1), dtype=np.float64)
        gamma = float(gammaln(self.cells + 1))
        logs = gamma - gammaln(i + 1) - gammaln(self.cells - i + 1) - i * self.u
        logs -= self.cells * math.log1p(math.exp(-self.u))
        excess = np.maximum(self.pure_epsilon - epsilon - 2 * i * self.u, 0.0)
        rounding = math.exp(min(_ROUNDING * (gamma + self.pure_epsilon + 1), 1.0))
        return min(1.0, float(np.exp(logs) @ -np.expm1(-excess)) * rounding)

    def epsilon(self, delta: float) -> float:
        """Least epsilon at this delta, from above."""
        return least_epsilon(self.delta, delta)


def _renyi(u: float, order: float) -> float:
    if order == math.inf:
        return u
    if order == 1:
        return u * math.tanh(u / 2)
    tilt = (order - 1) * u
    if tilt > 30:
        return u + (math.log1p(math.exp(-2 * (order - 0.5) * u)) - math.log1p(math.exp(-u))) / (order - 1)
    # cosh((order - 1/2) u) / cosh(u / 2) - 1, without cancellation where the order is near 1 or u is small.
    more = math.expm1(tilt) * -math.expm1(-order * u) / (1 + math.exp(-u))
    return math.log1p(more) / (order - 1)
