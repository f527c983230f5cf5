"""Randomised response: the pair of laws that no mechanism with pure differential privacy is worse than."""

import math
from dataclasses import dataclass
from typing import final

from pymc_dirdp.roots import least_epsilon

__all__ = ["RandomisedResponse"]


@final
@dataclass(frozen=True)
class RandomisedResponse:
    """The truth with probability `1 / (1 + exp(-u))`, else its opposite, `cells` times independently.

    For one cell every curve is the largest among all mechanisms that keep `u`-differential privacy.

    Attributes
    ----------
    u : float
        The loss of one answer, or minus that. Positive.
    cells : int
        1 or 2.

    References
    ----------
    Kairouz, Oh and Viswanath (2015), The composition theorem for differential privacy, Theorem 3.3.
    """

    u: float
    cells: int = 1

    @property
    def pure_epsilon(self) -> float:
        """The largest loss."""
        return self.cells * self.u

    def renyi(self, order: float) -> float:
        """Per cell the logarithm of `cosh((order - 1/2) u) / cosh(u / 2)` over `order - 1`."""
        return self.cells * _renyi(self.u, order)

    def rho(self) -> float:
        """The largest `D_order / order`: it falls with the order (Theory, Theorem 7)."""
        return self.renyi(1.0)

    def delta(self, epsilon: float) -> float:
        """Hockey-stick divergence at epsilon >= 0.

        For two cells only the largest loss, `2 u`, is above epsilon: the others are 0 and `-2 u`.
        """
        if epsilon >= self.pure_epsilon:
            return 0.0
        return -math.expm1(epsilon - self.pure_epsilon) / (1 + math.exp(-self.u)) ** self.cells

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
