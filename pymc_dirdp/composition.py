"""Many releases about the same people, one guarantee."""

import math
from dataclasses import dataclass
from typing import final

from pymc_dirdp.conversion import best_order, epsilon_at, log_delta_at
from pymc_dirdp.mechanisms.base import Mechanism

__all__ = ["Composition"]


@final
@dataclass(frozen=True)
class Composition(Mechanism):
    """Sequential composition: releases that the same records feed, such as `K` draws from one posterior.

    One release alone keeps its exact curves. For more, Rényi divergences add at equal order, which is safe for adaptive
    use, and the (epsilon, delta) curve is their conversion at the best order (P1 Lemma 3).

    Parameters
    ----------
    parts : tuple of (Mechanism, int)
        Each mechanism and how many independent draws of it are released.

    References
    ----------
    P1 Lemma 1 and Lemma 3; Theory, section 7.
    """

    parts: tuple[tuple[Mechanism, int], ...]

    @property
    def _single(self) -> Mechanism | None:
        (mechanism, times), *others = self.parts
        return mechanism if times == 1 and not others else None

    def _renyi(self, order: float) -> float:
        return math.fsum(times * mechanism._renyi(order) for mechanism, times in self.parts)

    def _rho(self, omega: float) -> float:
        return math.fsum(times * mechanism._rho(omega) for mechanism, times in self.parts)

    def _delta(self, epsilon: float) -> float:
        if self._single is not None:
            return self._single._delta(epsilon)

        def log_delta(order: float) -> float:
            return log_delta_at(order, self._renyi(order), epsilon)

        return math.exp(log_delta(best_order(log_delta)))

    def _epsilon(self, delta: float) -> float:
        if self._single is not None:
            return self._single._epsilon(delta)
        order = self.best_order(delta)
        return epsilon_at(order, self._renyi(order), delta)

    def best_order(self, delta: float) -> float:
        """The Rényi order whose conversion to (epsilon, delta) gives the least epsilon at this delta."""
        return best_order(lambda order: epsilon_at(order, self._renyi(order), delta))
