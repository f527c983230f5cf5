"""Four curves of a privacy loss, their interface, and conversions between them.

`convert` derives one guarantee from another. The lemma that converts Rényi divergences to (epsilon, delta)
is here, too.
"""

import abc
import itertools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from typing import ClassVar, final, overload, override

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, open_unit_interval
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.numerics.roots import least_epsilon, product_above, raised, raised_exp
from pymc_dirdp.privacy.guarantees import Guarantee, RenyiDP, TruncatedCDP, ZeroCDP


class PrivacyCurves(abc.ABC):
    """Anything that has exact or upper-bound privacy curves: a pair, a mechanism, a composition of mechanisms.

    The curves take a number or an array of numbers and return the same shape. Each value is an upper bound on the
    loss between all neighbouring data sets.
    """

    @property
    @abc.abstractmethod
    def _curves(self) -> "LossCurves":
        """The object that computes the curves."""

    @property
    def curve_key(self) -> Hashable:
        """Objects with equal keys have equal curves."""
        return self._curves.curve_key

    @property
    def pure_epsilon(self) -> float:
        """The epsilon of pure differential privacy, `inf` where the loss is unbounded."""
        return self._curves.pure_epsilon

    @property
    def composed_of(self) -> "tuple[tuple[PrivacyCurves, int], ...]":
        """The curves of each composed release, with the number of such releases; a single release has its own.

        Composed separately they lose at least as much, because neighbours may then differ in either order in each.
        """
        return ((self, 1),)

    @overload
    def renyi(self, order: float) -> float: ...
    @overload
    def renyi(self, order: ArrayLike) -> float | Array: ...
    def renyi(self, order: ArrayLike) -> float | Array:
        """Rényi divergence in nats at orders >= 1 (1 is the Kullback-Leibler divergence); `inf` where it diverges."""
        return _elementwise(lambda value: self._curves._renyi(at_least(1, order=value)), order)

    @overload
    def rho(self, omega: float) -> float: ...
    @overload
    def rho(self, omega: ArrayLike) -> float | Array: ...
    def rho(self, omega: ArrayLike) -> float | Array:
        """Least `rho` of `(rho, omega)`-truncated concentrated differential privacy, for `omega > 1`."""
        return _elementwise(lambda value: self._curves._rho(TruncatedCDP(rho=1, omega=value).omega), omega)

    @overload
    def delta(self, epsilon: float) -> float: ...
    @overload
    def delta(self, epsilon: ArrayLike) -> float | Array: ...
    def delta(self, epsilon: ArrayLike) -> float | Array:
        """Least `delta` of `(epsilon, delta)`-differential privacy, for `epsilon >= 0`."""
        return _elementwise(lambda value: self._curves._delta(at_least(0, epsilon=value)), epsilon)

    @overload
    def epsilon(self, delta: float) -> float: ...
    @overload
    def epsilon(self, delta: ArrayLike) -> float | Array: ...
    def epsilon(self, delta: ArrayLike) -> float | Array:
        """Least `epsilon` of `(epsilon, delta)`-differential privacy, for `delta` in (0, 1); from above."""
        return _elementwise(lambda value: self._curves._epsilon(open_unit_interval(delta=value)), delta)

    @overload
    def best_order(self, delta: float) -> float: ...
    @overload
    def best_order(self, delta: ArrayLike) -> float | Array: ...
    def best_order(self, delta: ArrayLike) -> float | Array:
        """The Rényi order whose conversion to (epsilon, delta) gives the least epsilon at this delta."""
        renyi = self._curves._renyi
        return _elementwise(lambda value: _order_for_delta(renyi, open_unit_interval(delta=value)), delta)

    def satisfies(self, guarantee: Guarantee) -> bool:
        """Whether the guarantee holds, decided by the curve of its kind and without tolerance."""
        loss, allowed = self.loss(guarantee)
        return loss <= allowed

    def loss(self, guarantee: Guarantee) -> tuple[float, float]:
        """The loss in the guarantee's own measure, and the largest loss that it allows."""
        guarantee = Guarantee.checked(guarantee=guarantee)
        return guarantee.loss(self), guarantee.allowed


class LossCurves(PrivacyCurves):
    """Base class of objects that compute their curves.

    A subclass defines `_renyi`, `_rho`, and one of `_delta` and `_deltas`, each of which follows from the other.
    """

    widening: ClassVar[float] = 1e-3
    """The share of the variance of a composed loss by which its grid may widen it. A finer grid has more points."""
    uses_renyi_conversion: ClassVar[bool] = False
    """Whether the deltas come from the Rényi divergences, so that a composition also tries the divergences."""

    @property
    @override
    def _curves(self) -> "LossCurves":
        return self

    @property
    @override
    def curve_key(self) -> Hashable:
        return self

    @property
    @override
    def pure_epsilon(self) -> float:
        return math.inf

    @abc.abstractmethod
    def _renyi(self, order: float) -> float: ...

    @abc.abstractmethod
    def _rho(self, omega: float) -> float: ...

    def _delta(self, epsilon: float) -> float:
        return float(self._deltas(np.array([epsilon], dtype=np.float64))[0])

    def _deltas(self, epsilons: Array) -> Array:
        """Hockey-stick divergences at ascending epsilons, of the first data set from the second.

        If the curve is slow, these are fast bounds.
        """
        return np.array([self._delta(epsilon) for epsilon in epsilons.tolist()])

    def _epsilon(self, delta: float) -> float:
        return min(least_epsilon(self._delta, delta), self.pure_epsilon)

    @property
    def _reversed(self) -> "LossCurves":
        """The curves with the two data sets exchanged: the object itself where neighbours come in both orders."""
        return self

    @property
    def _loss_spread(self) -> float:
        """A rough standard deviation of the finite losses. Any value is safe: only the width of a grid depends on it.

        If some loss is infinite, it is the scale at which the hockey-stick curve has fallen half way.
        """
        divergence = self._renyi(1.0)
        if math.isfinite(divergence):
            return math.sqrt(2 * divergence)
        scales = [2.0**k for k in range(-20, 21)]
        half = (self._delta(0.0) + self._delta(scales[-1])) / 2
        return next(scale for scale in scales if self._delta(scale) <= half or scale == scales[-1])


@final
@dataclass(frozen=True)
class NoLoss(LossCurves):
    """The curves of a release that is the same for all data sets, such as the shares in a table of one category."""

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


# A curve of deltas is computed from the divergences at these orders; each order gives a valid bound.
ORDERS = 1 + np.exp(np.linspace(-12.0, 12.0, 49))
# The rounding error of the terms that are subtracted, of which each has few roundings.
_ROUNDING = 8 * 2.0**-52


def epsilon_at(order: float, divergence: float, delta: float) -> float:
    """The epsilon that a divergence of `divergence` nats at `order > 1` implies at `delta`; from above, at least 0."""
    order_minus_1 = order - 1
    # The usual difference of logarithms would lose a digit for each digit of the order.
    gain, cost = divergence - math.log(delta) / order_minus_1, math.log(order) / order_minus_1
    # Few roundings of each of the terms, all of which are positive.
    return max(0.0, raised(gain, 8) - (math.log1p(1 / order_minus_1) + cost) * (1 - _ROUNDING))


def log_delta_at(order: float, divergence: float, epsilon: float) -> float:
    """The logarithm of the delta that a divergence of `divergence` nats at `order > 1` implies at `epsilon`.

    It is from above, also as the exponent of a delta.
    """
    order_minus_1 = order - 1
    gain, cost = order_minus_1 * divergence, order_minus_1 * (epsilon + math.log1p(1 / order_minus_1)) + math.log(order)
    # A bound of 0 is no bound, and neither is a difference of two infinities.
    return min(0.0, raised(gain, 8) - cost * (1 - _ROUNDING)) if gain < math.inf else 0.0


def least_log_delta(divergences: Array, epsilon: float) -> float:
    """The least of :func:`log_delta_at` over `ORDERS`, at which these are the divergences."""
    order_minus_1 = ORDERS - 1
    gains, costs = order_minus_1 * divergences, order_minus_1 * (epsilon + np.log1p(1 / order_minus_1)) + np.log(ORDERS)
    return float(np.minimum(raised(gains, 8) - costs * (1 - _ROUNDING), 0.0).min())


def converted_deltas(renyi: Callable[[float], float], epsilons: Array) -> Array:
    """Upper bounds on the deltas at these epsilons, from Rényi divergences at `ORDERS`."""
    divergences = np.array([renyi(order) for order in ORDERS.tolist()])
    return raised_exp(np.array([least_log_delta(divergences, epsilon) for epsilon in epsilons.tolist()]))


def converted_delta(renyi: Callable[[float], float], epsilon: float, largest: float = math.inf) -> float:
    """The delta that the divergence at the best order up to the largest implies; every order gives a bound."""

    def log_delta(order: float) -> float:
        return log_delta_at(order, renyi(order), epsilon)

    return float(raised_exp(np.array(log_delta(best_order(log_delta, largest=largest)))))


def _order_for_delta(renyi: Callable[[float], float], delta: float, largest: float = math.inf) -> float:
    return best_order(lambda order: epsilon_at(order, renyi(order), delta), largest=largest)


def converted_epsilon(renyi: Callable[[float], float], delta: float, largest: float = math.inf) -> float:
    """The epsilon that the divergence at the best order up to the largest implies; every order gives a bound."""
    order = _order_for_delta(renyi, delta, largest)
    return epsilon_at(order, renyi(order), delta)


def best_order(
    bound: Callable[[float], float],
    *,
    largest: float = math.inf,
    max_log: float = 30.0,
    n_points: int = 61,
    tolerance: float = 1e-7,
) -> float:
    """The order in `(1, largest]` at which `bound(order)` is least.

    Every order gives a valid bound, so an inexact minimiser costs tightness and never privacy. `bound` may be infinite.
    The search covers orders from `1 + exp(-max_log)` to `1 + exp(max_log)`, first at `n_points` of them, and ends
    within `tolerance` of the best one on a logarithmic scale; the bound differs by about the square of that.
    """
    from scipy.optimize import minimize_scalar  # Here, because it takes most of a second to import.

    def value_at(log_order_minus_1: float) -> float:
        return min(bound(1 + math.exp(log_order_minus_1)), 1e300)

    highest = min(max_log, math.log(largest - 1))
    if highest <= -max_log:
        return largest
    grid = np.linspace(-max_log, highest, n_points).tolist()
    values = [value_at(x) for x in grid]
    lowest = int(np.argmin(values))
    ends = grid[max(lowest - 1, 0)], grid[min(lowest + 1, n_points - 1)]
    refined = minimize_scalar(value_at, bounds=ends, method="bounded", options={"xatol": tolerance})
    log_order_minus_1 = float(refined.x) if refined.fun < values[lowest] else grid[lowest]
    return min(1 + math.exp(log_order_minus_1), largest)


def convert[Kind: Guarantee](guarantee: Guarantee, kind: type[Kind], **parameters: float) -> Kind:
    """What `guarantee` implies, stated as another kind of guarantee.

    Only implications are converted: every mechanism that satisfies `guarantee` satisfies the result. A kind that
    does not follow, such as pure from approximate differential privacy, is refused. The result is usually weaker than
    the mechanism's own curve; use that of the mechanism if you have one.

    Parameters
    ----------
    guarantee : RenyiDP, TruncatedCDP, ApproxDP, ZeroCDP or PureDP
        The guarantee that holds.
    kind : type
        The class of the result.
    ***parameters : float
        `delta` for `ApproxDP`, `order` for `RenyiDP`, `omega` for `TruncatedCDP`; nothing for the other kinds.

    Returns
    -------
    guarantee : instance of `kind`

    Raises
    ------
    ArgumentError
        If the guarantee does not follow, or if `parameters` do not fit `kind`.

    References
    ----------
    Rényi to approximate: P1 Lemma 3 (Canonne, Kamath and Steinke 2020). Truncated to approximate: P2 Lemma 1. Pure to
    zero-concentrated: Bun and Steinke (2016), Proposition 1.4.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> convert(RenyiDP(order=8, epsilon=0.5), ApproxDP, delta=1e-6)
    ApproxDP(epsilon=2.04..., delta=1e-06)
    """
    guarantee = Guarantee.checked(guarantee=guarantee)
    if not (isinstance(kind, type) and issubclass(kind, Guarantee) and kind is not Guarantee):
        raise ArgumentError(f"Expected kind to be a class of guarantees, such as ApproxDP, got {type_name(kind)}.")
    names = {field.name for field in fields(kind)} - {kind.budget_name}
    if set(parameters) != names:
        expected = f"{next(iter(names))}=..." if names else "no further argument"
        raise ArgumentError(f"Conversion to {kind.__name__} takes {expected}.")
    # The budget of 1 is a placeholder for the implied one.
    template = kind(**{kind.budget_name: 1.0, **parameters})
    budget = template.least_budget(worst_curves(guarantee))
    if not math.isfinite(budget):
        position = "".join(f" at {name} {value:g}" for name, value in template.fixed.items())
        raise ArgumentError(
            f"{kind.flavour}{position} does not follow from {guarantee}. Use the mechanism's own curve, or "
            f"calibrate for {kind.__name__}."
        )
    return template.with_budget(budget)


def worst_curves(guarantee: Guarantee) -> LossCurves:
    """The largest curves that the guarantee allows, or bounds on them."""
    match guarantee:
        case RenyiDP(order=order, epsilon=epsilon):
            return _BoundedDivergences(order, bound=epsilon)
        # The guarantee includes the order omega, because a bounded divergence is continuous from the left.
        case TruncatedCDP(rho=rho, omega=omega) | ZeroCDP(rho=rho, omega=omega):
            return _BoundedDivergences(omega, slope=rho)
    return Bounded(guarantee.budget, guarantee.stated_delta or 0.0)


@final
@dataclass(frozen=True)
class _BoundedDivergences(LossCurves):
    """Curves implied by Rényi divergences of at most `min(bound, slope * order)` up to the largest order."""

    largest: float
    bound: float = math.inf
    slope: float = math.inf

    @override
    def _renyi(self, order: float) -> float:
        # The divergence grows with the order, so a bound at a higher order is valid.
        return min(self.bound, product_above(self.slope, order)) if order <= self.largest else math.inf

    @override
    def _rho(self, omega: float) -> float:
        # D_lam <= D_order for lam <= order, and lam > 1; so D_lam <= lam * bound on (1, order).
        return min(self.bound, self.slope) if omega <= self.largest else math.inf

    @override
    def _delta(self, epsilon: float) -> float:
        return converted_delta(self._renyi, epsilon, self.largest) if self.largest > 1 else 1.0

    @override
    def _epsilon(self, delta: float) -> float:
        # At most the epsilon of P2 Lemma 1, which uses a looser lemma at one order.
        return converted_epsilon(self._renyi, delta, self.largest) if self.largest > 1 else math.inf


@final
@dataclass(frozen=True)
class Bounded(LossCurves):
    """The worst case of an (epsilon, delta) guarantee.

    Parameters
    ----------
    at_epsilon, at_delta : float
        The guarantee.

    References
    ----------
    Kairouz, Oh and Viswanath (2017), The composition theorem for differential privacy, Theorem 3.3.
    """

    at_epsilon: float
    at_delta: float

    @property
    def pure_epsilon(self) -> float:
        """The guaranteed epsilon; infinite unless delta is 0."""
        return self.at_epsilon if self.at_delta == 0 else math.inf

    @property
    def _loss_spread(self) -> float:
        """That of the pure guarantee: the loss is infinite with probability delta, and otherwise the pure one."""
        return math.sqrt(2 * self.at_epsilon * math.tanh(self.at_epsilon / 2))

    def _renyi(self, order: float) -> float:
        if self.at_delta > 0:
            return math.inf
        if self.at_epsilon == 0:
            return 0.0
        if order == 1:
            return min(self.at_epsilon, raised(self.at_epsilon * math.tanh(self.at_epsilon / 2), 4))
        return min(self.at_epsilon, product_above(order, self.at_epsilon, self.at_epsilon, 0.5))

    def _rho(self, omega: float) -> float:
        if self.at_delta > 0:
            return math.inf
        return product_above(self.at_epsilon, self.at_epsilon, 0.5)

    def _epsilon(self, delta: float) -> float:
        return self.at_epsilon if delta >= self.at_delta else math.inf

    def _deltas(self, epsilons: Array) -> Array:
        over: Array = -np.expm1(np.minimum(epsilons - self.at_epsilon, 0.0)) / (1 + math.exp(-self.at_epsilon))
        deltas = raised(self.at_delta + (1 - self.at_delta) * over, 8)
        return np.where(epsilons < self.at_epsilon, np.minimum(deltas, 1.0), self.at_delta)


# Truncated concentrated differential privacy from values of a Rényi curve.


def rho_from_above(
    renyi: Callable[[float], float], omega: float, *, points: int = 100, first_excess: float = 1e-4
) -> float:
    """Upper bound of `D_order / order` over `1 < order <= omega`, within about a per cent; omega may be infinite.

    `renyi` is the divergence, or the largest one of several pairs of distributions, and finite at an infinite order.

    `(order - 1) D_order` is convex in the order, so between two orders it lies below its chord; the bound is the
    largest value of the chord over `order (order - 1)`. Below the first point D is at most its value there, and beyond
    the last point it is at most the largest loss.
    """
    largest_loss, at_one = renyi(math.inf), renyi(1.0)
    if at_one == 0:
        return largest_loss
    # From the last order on, the largest loss over the order is below the divergence at 1. The points do not depend on
    # omega, so that the bound grows with omega; their excess over 1 rises by a factor of 1.1.
    orders = (1 + largest_loss / at_one * np.geomspace(first_excess, 1, points)).tolist()
    first = orders[0]
    bound, cumulant = max(at_one, renyi(first)), (first - 1) * renyi(first)
    for a, b in itertools.pairwise(orders):
        if a >= omega:
            break
        next_cumulant = (b - 1) * renyi(b)
        bound = max(bound, _under_chord(a, b, cumulant, next_cumulant, min(b, omega)))
        cumulant = next_cumulant
    # A chord loses about five digits to cancellation, next to the order 1.
    return raised(bound, 2.0**17)


def _under_chord(a: float, b: float, at_a: float, at_b: float, end: float) -> float:
    """The largest `(p + q x) / (x (x - 1))` on [a, end], where `p + q x` passes through the values at a and b."""
    q = (at_b - at_a) / (b - a)
    p = at_a - q * a
    points = [a, end]
    # The derivative vanishes where q x**2 + 2 p x - p = 0.
    if q > 0 and p * p + p * q >= 0:
        root = math.sqrt(p * p + p * q)
        points += [x for x in ((-p - root) / q, (-p + root) / q) if a < x < end]
    return max((p + q * x) / (x * (x - 1)) for x in points)
