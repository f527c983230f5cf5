"""The loss of `Dirichlet(r * f + alpha)` for a statistic f with real values, of which two sensitivities are known.

It is the setting of P1 Theorem 1 and P2 Theorem 1, and the bound here is smaller than theirs.
"""

import math
from dataclasses import dataclass
from typing import Self, final, override

from scipy.special import polygamma

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import positive, within
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.numerics.roots import largest_safe, log_excess
from pymc_dirdp.privacy.conversion import best_order, converted_deltas, log_delta_at
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.renyi import renyi_remove

__all__ = ["RealValuedLoss"]

# Squares of products of two parameters have to be doubles.
_LEAST, _MOST = 1e-60, 1e60


@final
@dataclass(frozen=True)
class RealValuedLoss(PrivacyCurves):
    """Upper bounds on the loss of a draw from `Dirichlet(r * f + alpha)`, for any statistic `f >= 0` of the data.

    At Rényi orders of at least 2 the worst neighbours differ by `delta_inf` in `delta_2_squared / delta_inf**2` cells,
    each of which falls to 0. If that is an integer below `d`, no smaller bound holds. The bounds on delta are
    converted from the Rényi divergences.

    If one person only moves a weight of at most w from one cell to another, the *exact* curves are those of
    ``DirichletMechanism(alpha, r * w)``, whether the steps are whole or not; and those with ``adjacency="add-remove"``
    if one person only adds a weight of at most w to one cell.

    Parameters
    ----------
    r : float
        Concentration. This and the other parameters lie between 1e-60 and 1e60.
    alpha_min : float
        Smallest prior parameter. With the public guarantee that every entry of f is at least c, pass
        `alpha_min + r * c`.
    delta_2_squared : float
        Largest squared l2 distance of f between neighbours.
    delta_inf : float
        Largest distance of one entry.

    References
    ----------
    P1 section 3.1 and Theorem 1, P2 Theorem 1; the proof is on the page "Statistics with real values".

    Examples
    --------
    >>> from pymc_dirdp.papers import p1_theorem_1
    >>> known = {"r": 0.1, "alpha_min": 3.0, "delta_2_squared": 2.0, "delta_inf": 1.0}
    >>> p1_theorem_1(order=5, **known).epsilon, RealValuedLoss(**known).renyi(5)
    (0.0233..., 0.0205...)
    """

    r: float
    alpha_min: float
    delta_2_squared: float
    delta_inf: float

    def __post_init__(self) -> None:
        for name in ("r", "alpha_min", "delta_2_squared", "delta_inf"):
            object.__setattr__(self, name, positive(**{name: getattr(self, name)}))
            within(_LEAST, _MOST, **{name: getattr(self, name)})

    @classmethod
    def for_guarantee(cls, guarantee: Guarantee, *, alpha_min: float, delta_2_squared: float, delta_inf: float) -> Self:
        """The loss with the largest `r` that keeps a guarantee.

        Raises
        ------
        UnattainableError
            If no `r` keeps it, as for pure and zero-concentrated differential privacy.

        Examples
        --------
        >>> from pymc_dirdp import ApproxDP
        >>> known = {"alpha_min": 3.0, "delta_2_squared": 0.5, "delta_inf": 0.25}
        >>> round(RealValuedLoss.for_guarantee(ApproxDP(epsilon=1, delta=1e-6), **known).r, 3)
        0.417
        """
        if math.isinf(Guarantee.checked(guarantee=guarantee).largest_order):
            raise UnattainableError(
                f"No continuous Dirichlet draw keeps {guarantee}: its loss is unbounded. Ask for ApproxDP, RenyiDP or "
                "TruncatedCDP."
            )

        def at(r: float) -> Self:
            return cls(r, alpha_min, delta_2_squared, delta_inf)

        # A first guess of the right size: r times the step is what changes.
        start = min(max(1 / positive(delta_inf=delta_inf), _LEAST), _MOST)
        return at(largest_safe(lambda r: log_excess(*at(r).loss(guarantee)), start=start, least=_LEAST, most=_MOST))

    @property
    def _step(self) -> float:
        """The most that one parameter of the draw changes: no entry changes by more than the whole."""
        return self.r * min(self.delta_inf, math.nextafter(math.sqrt(self.delta_2_squared), math.inf))

    @property
    def _small_steps(self) -> float:
        """What many tiny steps lose at an order, over that order."""
        return self.r**2 * self.delta_2_squared * float(polygamma(1, self.alpha_min)) / 2

    def _large_steps(self, order: float) -> float:
        """What steps of the largest size lose."""
        return self.r**2 * self.delta_2_squared / self._step**2 * renyi_remove(order, self.alpha_min, self._step)

    @override
    def _renyi(self, order: float) -> float:
        large = self._large_steps(order)
        return large if order >= 2 else max(large, order * self._small_steps)

    @override
    def _rho(self, omega: float) -> float:
        return max(self._small_steps, self._large_steps(omega) / omega) if math.isfinite(omega) else math.inf

    @override
    def _delta(self, epsilon: float) -> float:
        def log_delta(order: float) -> float:
            return log_delta_at(order, self._renyi(order), epsilon)

        return math.exp(log_delta(best_order(log_delta)))

    @property
    @override
    def from_divergences(self) -> bool:
        return True

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        deltas = converted_deltas(self._renyi, step, points)
        return deltas, deltas
