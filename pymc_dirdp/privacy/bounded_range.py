"""The exponential mechanism: its loss lies in an interval of known width, wherever that interval lies."""

import math
from dataclasses import dataclass
from typing import final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.tcdp import rho_from_above

__all__ = ["BoundedRange"]

# The closed forms are raised by their rounding error, so that no curve comes out below the true one.
_UP = 1 + 4e-15
_ROUNDING = 4e-14


@final
@dataclass(frozen=True)
class BoundedRange(PrivacyCurves):
    """One output whose loss lies, for each pair of neighbours, in an interval of width `u` that contains 0.

    So it is for a choice with probabilities in proportion to `exp(score / scale)`, where neighbours change the
    differences of two scores by at most `u * scale`. Every curve is the largest among all such mechanisms. The pairs of
    distributions that attain it are different ones at different epsilons or orders. The curves together are still those
    of one pair, so products of them are bounds for choices that depend on earlier ones, too.

    Attributes
    ----------
    u : float
        The width in nats, positive.

    References
    ----------
    Dong, Durfee and Rogers (2020), Optimal differential privacy composition for exponential mechanisms, Lemma 2.4 and
    Lemma 3.2. Cesar and Rogers (2021), Bounding, concentrating, and truncating, Lemma 3.4. The page of proofs on
    structures.

    Examples
    --------
    >>> choice = BoundedRange(1.0)
    >>> choice.pure_epsilon
    1.0
    >>> choice.rho(100) <= 1 / 8
    True
    """

    u: float

    @property
    @override
    def pure_epsilon(self) -> float:
        """The width itself: the interval contains 0."""
        return self.u

    @override
    def _renyi(self, order: float) -> float:
        u = self.u
        if order == math.inf:
            return u
        # Hoeffding's lemma; the closed form loses digits where u is small.
        bound = min(u, order * u * u / 8 * _UP)
        if u > 700:
            return bound
        return max(min(bound, _largest_divergence(u, order)), 5e-324)

    @override
    def _rho(self, omega: float) -> float:
        return max(min(self.u * self.u / 8 * _UP, rho_from_above(self._renyi, omega)), 5e-324)

    @override
    def _delta(self, epsilon: float) -> float:
        return float(self._deltas(np.array([epsilon]))[0])

    @override
    def _epsilon(self, delta: float) -> float:
        return min(super()._epsilon(delta), self.u)

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        deltas = self._deltas(step * np.arange(points))
        return deltas, deltas

    def _deltas(self, epsilon: NDArray[np.floating]) -> Array:
        """The largest of `p (1 - exp(epsilon - t))` over the largest loss t, which has probability p: at the middle."""
        half = -np.expm1(np.minimum(epsilon - self.u, 0.0) / 2)
        deltas: Array = np.minimum(half * half / -math.expm1(-self.u) * _UP, 1.0)
        return deltas


def _largest_divergence(u: float, order: float) -> float:
    """The largest Rényi divergence of two distributions whose loss is t or t - u, over t; from above."""
    if order == 1:
        over = u / math.expm1(u)
        return over - 1 - math.log(over) + _ROUNDING
    tilt = order - 1
    # The moment is exp(tilt t) (a - b exp(t)), and b is such that it is 1 at t = 0 and at t = u.
    a = math.expm1(-order * u) / math.expm1(-u)
    t = u + math.log(tilt / order) + math.log(math.expm1(-order * u) / math.expm1(-tilt * u))
    return t + math.log(a / order) / tilt + _ROUNDING * (1 + abs(math.log(tilt)) + u + 1 / tilt)
