"""Randomised response: no mechanism with pure differential privacy loses more than this pair of distributions."""

import math
from dataclasses import dataclass
from typing import final, override

import numpy as np
from scipy.special import gammaln

from pymc_dirdp.numerics.quadrature import inner
from pymc_dirdp.privacy.curves import PrivacyCurves

__all__ = ["RandomisedResponse"]

# Relative error of the logarithm of a factorial; a binomial coefficient is made of three.
_ROUNDING = 2e-15
# The closed forms are raised by their rounding error, so that no curve comes out below the true one.
_UP = 1 + 4e-15


@final
@dataclass(frozen=True)
class RandomisedResponse(PrivacyCurves):
    """Answers that are true with probability `1 / (1 + exp(-u))`, else false, `answers` times independently.

    For one answer every curve is the largest among all mechanisms that keep `u`-differential privacy, and for several
    the largest among all products of such mechanisms.

    Attributes
    ----------
    u : float
        The loss of a true answer, positive; that of a false one is `-u`.
    answers : int
        The number of answers, at least 1.
    largest : float
        A known upper bound of the loss, because `u` may have been rounded up.

    References
    ----------
    Kairouz, Oh and Viswanath (2015), The composition theorem for differential privacy, Theorem 3.3.
    """

    u: float
    answers: int = 1
    largest: float = math.inf

    @property
    def _all_true(self) -> float:
        """The loss of an output whose answers are all true."""
        loss = self.answers * self.u
        # Multiplication by a power of two is exact; any other product may have been rounded down.
        return loss if self.answers & (self.answers - 1) == 0 else math.nextafter(loss, math.inf)

    @property
    @override
    def pure_epsilon(self) -> float:
        """The largest loss of an output."""
        return min(self._all_true, self.largest)

    @override
    def _renyi(self, order: float) -> float:
        """The sum of `log(cosh((order - 1/2) u) / cosh(u / 2)) / (order - 1)` over the answers."""
        return min(self.answers * _renyi(self.u, order) * _UP, self.pure_epsilon)

    @override
    def _rho(self, omega: float) -> float:
        """The divergence at order 1, because `D_order / order` falls with the order (Theory, Theorem 7)."""
        return self._renyi(1.0)

    @override
    def _delta(self, epsilon: float) -> float:
        """Hockey-stick divergence at epsilon >= 0: a sum over i false answers, with loss `(answers - 2 i) u`.

        With two answers only the largest loss, `2 u`, can be above epsilon: the others are 0 and `-2 u`.
        """
        if epsilon >= self.pure_epsilon:
            return 0.0
        n, top = self.answers, self._all_true
        if n <= 2:
            return min(1.0, _UP * -math.expm1(epsilon - top) / (1 + math.exp(-self.u)) ** n)
        i = np.arange(min(math.ceil((top - epsilon) / (2 * self.u)), n // 2 + 1), dtype=np.float64)
        gamma = float(gammaln(n + 1))
        logs = gamma - gammaln(i + 1) - gammaln(n - i + 1) - i * self.u - n * math.log1p(math.exp(-self.u))
        excess = np.maximum(top - epsilon - 2 * i * self.u, 0.0)
        rounding = math.exp(min(_ROUNDING * (gamma + top + 1), 1.0))
        return min(1.0, inner(np.exp(logs), -np.expm1(-excess)) * rounding)

    @override
    def _epsilon(self, delta: float) -> float:
        return min(super()._epsilon(delta), self.pure_epsilon)


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
