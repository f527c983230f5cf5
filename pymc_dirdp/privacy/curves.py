"""The interface of everything that has a privacy loss: four curves, and what is derived from them."""

import abc
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import final, overload, override

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, open_unit_interval
from pymc_dirdp.numerics.roots import least_epsilon
from pymc_dirdp.privacy.conversion import best_order, epsilon_at
from pymc_dirdp.privacy.guarantees import Guarantee, TruncatedCDP

__all__ = ["CurvesOf", "NoLoss", "PrivacyCurves"]


class PrivacyCurves(abc.ABC):
    """Exact or upper-bound privacy curves of anything: a pair, a mechanism, a composition of mechanisms.

    The curves take a number or an array of numbers and return the same shape. Each value is an upper bound on the
    loss between all neighbouring data sets.
    """

    @abc.abstractmethod
    def _renyi(self, order: float) -> float: ...

    @abc.abstractmethod
    def _rho(self, omega: float) -> float: ...

    @abc.abstractmethod
    def _delta(self, epsilon: float) -> float: ...

    def _epsilon(self, delta: float) -> float:
        return least_epsilon(self._delta, delta)

    def _renyi_back(self, order: float) -> float:
        """Rényi divergence with the two data sets exchanged. `_renyi` is the larger of both unless stated."""
        return self._renyi(order)

    def _delta_back(self, epsilon: float) -> float:
        """Hockey-stick divergence with the two data sets exchanged, or an upper bound of it."""
        return self._delta(epsilon)

    @property
    def curve_key(self) -> Hashable:
        """Objects with equal keys have equal curves."""
        return self

    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        """Hockey-stick divergences at `0, step, ..., step * (points - 1)`, for removing and for adding.

        Both arrays are the same object where neighbours come in both orders, or where the curves do not tell the
        orders apart.
        """
        deltas = np.array([self._delta(i * step) for i in range(points)])
        return deltas, deltas

    @property
    def pure_epsilon(self) -> float:
        """The epsilon of pure differential privacy, `inf` where the loss is unbounded."""
        return math.inf

    @property
    def _loss_spread(self) -> float:
        """A rough standard deviation of the finite losses. Any value is safe: only the width of a grid depends on it.

        Where some loss is infinite, it is the scale at which the hockey-stick curve has fallen half way.
        """
        divergence = self._renyi(1.0)
        if math.isfinite(divergence):
            return math.sqrt(2 * divergence)
        scales = [2.0**k for k in range(-20, 21)]
        half = (self._delta(0.0) + self._delta(scales[-1])) / 2
        return next(scale for scale in scales if self._delta(scale) <= half or scale == scales[-1])

    @property
    def from_divergences(self) -> bool:
        """Whether the deltas come from the Rényi divergences, so that a composition also tries the divergences."""
        return False

    @property
    def composed_of(self) -> "tuple[tuple[PrivacyCurves, int], ...]":
        """The curves of each release that these are composed of, with the number of such releases; of one its own.

        Composed by themselves they lose as much or more, because neighbours may then differ in either order in each.
        """
        return ((self, 1),)

    @property
    def one_way(self) -> "PrivacyCurves | None":
        """The curves where it is known which of two neighbours comes first, if both orders of them stand for all.

        They are for several draws from one table, which all see the same two neighbours. None if they would be the same
        curves, or if no such pair of distributions is known.
        """
        return None

    @overload
    def renyi(self, order: float) -> float: ...
    @overload
    def renyi(self, order: ArrayLike) -> float | Array: ...
    def renyi(self, order: ArrayLike) -> float | Array:
        """Rényi divergence in nats at orders >= 1 (1 is the Kullback-Leibler divergence); `inf` where it diverges."""
        return _elementwise(lambda value: self._renyi(at_least(1, order=value)), order)

    @overload
    def rho(self, omega: float) -> float: ...
    @overload
    def rho(self, omega: ArrayLike) -> float | Array: ...
    def rho(self, omega: ArrayLike) -> float | Array:
        """Least `rho` of `(rho, omega)`-truncated concentrated differential privacy, for `omega > 1`."""
        return _elementwise(lambda value: self._rho(TruncatedCDP(rho=1, omega=value).omega), omega)

    @overload
    def delta(self, epsilon: float) -> float: ...
    @overload
    def delta(self, epsilon: ArrayLike) -> float | Array: ...
    def delta(self, epsilon: ArrayLike) -> float | Array:
        """Least `delta` of `(epsilon, delta)`-differential privacy, for `epsilon >= 0`."""
        return _elementwise(lambda value: self._delta(at_least(0, epsilon=value)), epsilon)

    @overload
    def epsilon(self, delta: float) -> float: ...
    @overload
    def epsilon(self, delta: ArrayLike) -> float | Array: ...
    def epsilon(self, delta: ArrayLike) -> float | Array:
        """Least `epsilon` of `(epsilon, delta)`-differential privacy, for `delta` in (0, 1); from above."""
        return _elementwise(lambda value: self._epsilon(open_unit_interval(delta=value)), delta)

    @overload
    def best_order(self, delta: float) -> float: ...
    @overload
    def best_order(self, delta: ArrayLike) -> float | Array: ...
    def best_order(self, delta: ArrayLike) -> float | Array:
        """The Rényi order whose conversion to (epsilon, delta) gives the least epsilon at this delta."""

        def at(value: float) -> float:
            checked = open_unit_interval(delta=value)
            return best_order(lambda order: epsilon_at(order, self._renyi(order), checked))

        return _elementwise(at, delta)

    def satisfies(self, guarantee: Guarantee) -> bool:
        """Whether the guarantee holds, decided on the curve of its own kind and without tolerance."""
        return Guarantee.checked(guarantee=guarantee).holds_for(self)

    def loss(self, guarantee: Guarantee) -> tuple[float, float]:
        """The loss in the guarantee's own measure, and the largest loss that it allows."""
        guarantee = Guarantee.checked(guarantee=guarantee)
        return guarantee.loss(self), guarantee.allowed


class CurvesOf(PrivacyCurves):
    """Base class of what has the curves of another object, its `_curves`."""

    @staticmethod
    def unwrapped(curves: PrivacyCurves) -> PrivacyCurves:
        """The object that has the curves itself: a mechanism is not one if it takes them from another."""
        while isinstance(curves, CurvesOf):
            curves = curves._curves
        return curves

    @property
    @abc.abstractmethod
    def _curves(self) -> PrivacyCurves: ...

    @property
    @override
    def curve_key(self) -> Hashable:
        return self._curves.curve_key

    @property
    @override
    def pure_epsilon(self) -> float:
        return self._curves.pure_epsilon

    @property
    @override
    def _loss_spread(self) -> float:
        return self._curves._loss_spread

    @property
    @override
    def from_divergences(self) -> bool:
        return self._curves.from_divergences

    @property
    @override
    def one_way(self) -> PrivacyCurves | None:
        return self._curves.one_way

    @override
    def _renyi(self, order: float) -> float:
        return self._curves._renyi(order)

    @override
    def _rho(self, omega: float) -> float:
        return self._curves._rho(omega)

    @override
    def _delta(self, epsilon: float) -> float:
        return self._curves._delta(epsilon)

    @override
    def _epsilon(self, delta: float) -> float:
        return self._curves._epsilon(delta)

    @override
    def hockey_sticks(self, step: float, points: int) -> tuple[Array, Array]:
        return self._curves.hockey_sticks(step, points)


@final
@dataclass(frozen=True)
class NoLoss(PrivacyCurves):
    """The curves of what is the same for all data sets, such as the shares in a table of one category."""

    @property
    @override
    def pure_epsilon(self) -> float:
        return 0.0

    @override
    def _renyi(self, order: float) -> float:
        return 0.0

    @override
    def _rho(self, omega: float) -> float:
        return 0.0

    @override
    def _delta(self, epsilon: float) -> float:
        return 0.0


def _elementwise(f: Callable[[float], float], values: ArrayLike) -> float | Array:
    array = np.asarray(values)
    if array.ndim == 0:
        return f(values if isinstance(values, float) else array.item())
    return np.array([f(value) for value in array.ravel().tolist()], dtype=np.float64).reshape(array.shape)
