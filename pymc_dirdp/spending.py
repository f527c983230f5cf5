"""What releases cost against a limit, and when they are within it. Rules only; the ledger keeps the record.

Whoever keeps a ledger decides on the next release after seeing earlier ones, so a way of adding up has to be valid for
guarantees that are chosen adaptively. Divergences at one order and plain sums are; the best order, or the better of two
ways, chosen afterwards, are not known to be. Hence one order, fixed by the limit, and one way, fixed by the first
release, which nobody chose after seeing anything.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from pymc_dirdp.composition import Composition
from pymc_dirdp.conversion import epsilon_at
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.guarantees import ApproxDP, Guarantee, PureDP, RenyiDP, TruncatedCDP, ZeroCDP, convert
from pymc_dirdp.privacy.curves import PrivacyCurves

__all__ = ["Amount", "Cost", "balances", "cost_of", "kept_ways"]

# One release's cost: numbers by name. A name is absent where the number does not follow from what is known.
Cost = Mapping[str, float]

# Orders at which divergences are kept for a ledger whose releases are fixed in advance.
_ORDERS = tuple(1 + 2.0 ** (k / 2) for k in range(-6, 19))
# The share of delta that a conversion from divergences uses; the rest is for releases known only up to a delta.
_CONVERTED = 0.5
# At which share of the limit's delta a release without a delta of its own is stated.
_STATED = 0.1


@dataclass(frozen=True)
class Amount:
    """One number that must not pass its limit.

    Attributes
    ----------
    label : str
        What is added up.
    spent, limit : Fraction
        Exact decimal numbers, so that ten times 0.1 is 1.
    """

    label: str
    spent: Fraction
    limit: Fraction

    @property
    def within(self) -> bool:
        """Whether the limit holds."""
        return self.spent <= self.limit

    @property
    def share(self) -> Fraction:
        """The part of the limit that is spent."""
        return self.spent / self.limit if self.limit > 0 else Fraction(int(self.spent > 0))


def kept_ways(limit: Guarantee, *, adaptive: bool) -> tuple[str, ...]:
    """The ways of adding up that prove this limit, in order of preference."""
    match limit:
        case ApproxDP():
            order, budget = _order(limit)
            ways = ("basic", "divergences") if budget > 0 and math.isfinite(order) else ("basic",)
            return ways if adaptive else ("basic", "best order", "optimal composition")
        case RenyiDP():
            return ("divergences",)
        case TruncatedCDP() | ZeroCDP():
            return ("rho",)
        case PureDP():
            return ("epsilons",)
    raise ArgumentError(f"Expected limit to be a guarantee such as ApproxDP(epsilon=1, delta=1e-6), got {type(limit)}.")


def cost_of(
    limit: Guarantee, guarantee: Guarantee, mechanism: PrivacyCurves | None, *, adaptive: bool
) -> dict[str, float]:
    """What one release costs against the limit.

    Parameters
    ----------
    limit : Guarantee
        The ledger's.
    guarantee : Guarantee
        What the release promises.
    mechanism : Mechanism or None
        Its curves, where they are known: they cost less than what the promise implies.
    adaptive : bool
        Whether the next release may be chosen after seeing this one.
    """
    match limit:
        case RenyiDP(order=order):
            return {"divergence": _divergence(guarantee, mechanism, order)}
        case TruncatedCDP(omega=omega):
            return {"rho": _rho(guarantee, mechanism, omega)}
        case ZeroCDP():
            return {"rho": _rho(guarantee, mechanism, math.inf)}
        case PureDP():
            return {"epsilon": convert(guarantee, PureDP).epsilon}
        case ApproxDP(delta=delta):
            stated = _stated(guarantee, mechanism, delta * _STATED)
            cost = {"epsilon": stated.epsilon, "delta": stated.delta if not isinstance(guarantee, PureDP) else 0.0}
            orders = {"divergence": _order(limit)[0]} if adaptive else {f"order {o:g}": o for o in _ORDERS}
            for name, order in orders.items():
                divergence, leak = _leaking(stated, guarantee, mechanism, order)
                cost |= {name: divergence, f"{name} leak": leak}
            return {name: value for name, value in cost.items() if math.isfinite(value)}
    raise ArgumentError(f"Expected limit to be a guarantee, got {type(limit)}.")


def balances(limit: Guarantee, costs: Sequence[Cost], *, adaptive: bool) -> dict[str, tuple[Amount, ...]]:
    """What these releases have spent together, by each way that applies to all of them."""
    found = {}
    for way in kept_ways(limit, adaptive=adaptive):
        amounts = _WAYS[way](limit, costs)
        if amounts is not None:
            found[way] = amounts
    return found


def exact(value: float) -> Fraction:
    """The number as it is written: limits and costs are decimal, and their sums are compared without rounding."""
    return Fraction(repr(float(value)))


def _sum(costs: Sequence[Cost], name: str) -> Fraction | None:
    if any(name not in cost for cost in costs):
        return None
    return sum((exact(cost[name]) for cost in costs), Fraction(0))


def _single(name: str, label: str, limit: float, costs: Sequence[Cost]) -> tuple[Amount, ...] | None:
    spent = _sum(costs, name)
    return None if spent is None else (Amount(label, spent, exact(limit)),)


def _divergences(limit: Guarantee, costs: Sequence[Cost]) -> tuple[Amount, ...] | None:
    """Rényi divergences at one order add, whatever is chosen after seeing what (Feldman and Zrnic 2021)."""
    if isinstance(limit, RenyiDP):
        return _single("divergence", f"Rényi divergence at order {limit.order:g}", limit.epsilon, costs)
    assert isinstance(limit, ApproxDP)
    order, budget = _order(limit)
    spent, leaked = _sum(costs, "divergence"), _sum(costs, "divergence leak")
    if spent is None or leaked is None:
        return None
    return (
        Amount(f"Rényi divergence at order {order:.4g}", spent, exact(budget)),
        Amount("delta outside of it", leaked, exact(limit.delta) * (1 - exact(_CONVERTED))),
    )


def _basic(limit: Guarantee, costs: Sequence[Cost]) -> tuple[Amount, ...] | None:
    """Epsilons and deltas add (Dwork et al. 2006); also as a filter (Rogers, Roth, Ullman and Vadhan 2016)."""
    assert isinstance(limit, ApproxDP)
    epsilon, delta = _sum(costs, "epsilon"), _sum(costs, "delta")
    if epsilon is None or delta is None:
        return None
    return Amount("epsilon", epsilon, exact(limit.epsilon)), Amount("delta", delta, exact(limit.delta))


def _best_order(limit: Guarantee, costs: Sequence[Cost]) -> tuple[Amount, ...] | None:
    """The least epsilon over the kept orders, at what is left of delta."""
    assert isinstance(limit, ApproxDP)
    least = math.inf
    for order in _ORDERS:
        spent, leaked = _sum(costs, f"order {order:g}"), _sum(costs, f"order {order:g} leak")
        if spent is not None and leaked is not None and leaked < exact(limit.delta):
            # Rounded up, as is the divergence: an epsilon is a promise.
            delta = math.nextafter(float(exact(limit.delta) - leaked), 0.0)
            converted = epsilon_at(order, math.nextafter(float(spent), math.inf), delta)
            least = min(least, math.nextafter(converted, math.inf)) if spent > 0 else 0.0
    return (Amount("epsilon", exact(least), exact(limit.epsilon)),) if math.isfinite(least) else None


def _optimal(limit: Guarantee, costs: Sequence[Cost]) -> tuple[Amount, ...] | None:
    """Composition of what each (epsilon, delta) allows at worst (Kairouz, Oh and Viswanath 2017)."""
    assert isinstance(limit, ApproxDP)
    known = [Bounded(cost["epsilon"], cost["delta"]) for cost in costs if {"epsilon", "delta"} <= set(cost)]
    if len(known) < max(1, len(costs)):
        return None
    composition = Composition(tuple((bounded, 1) for bounded in known))
    if composition._delta(limit.epsilon) > limit.delta:
        # The amount past the limit is of no use, and an epsilon need not exist.
        return (Amount("epsilon", exact(limit.epsilon) * 2, exact(limit.epsilon)),)
    return (
        Amount("epsilon", min(exact(composition._epsilon(limit.delta)), exact(limit.epsilon)), exact(limit.epsilon)),
    )


_WAYS = {
    "basic": _basic,
    "divergences": _divergences,
    "rho": lambda limit, costs: _single("rho", "rho", limit.rho, costs),
    "epsilons": lambda limit, costs: _single("epsilon", "epsilon", limit.epsilon, costs),
    "best order": _best_order,
    "optimal composition": _optimal,
}


@final
@dataclass(frozen=True)
class Bounded(PrivacyCurves):
    """The worst that a promise of (epsilon, delta) allows.

    Parameters
    ----------
    at_epsilon, at_delta : float
        The promise.

    References
    ----------
    Kairouz, Oh and Viswanath (2017), The composition theorem for differential privacy, Theorem 3.3.
    """

    at_epsilon: float
    at_delta: float

    @property
    def pure_epsilon(self) -> float:
        """Infinite unless delta is 0."""
        return self.at_epsilon if self.at_delta == 0 else math.inf

    def _renyi(self, order: float) -> float:
        # Order 1 also stands for the spread of the finite losses.
        if order == 1:
            return self.at_epsilon * math.tanh(self.at_epsilon / 2)
        return min(self.at_epsilon, order * self.at_epsilon**2 / 2) if self.at_delta == 0 else math.inf

    def _rho(self, omega: float) -> float:
        return self.at_epsilon**2 / 2 if self.at_delta == 0 else math.inf

    def _delta(self, epsilon: float) -> float:
        over = max(0.0, -math.expm1(epsilon - self.at_epsilon)) / (1 + math.exp(-self.at_epsilon))
        return self.at_delta + (1 - self.at_delta) * over

    def _epsilon(self, delta: float) -> float:
        return self.at_epsilon if delta >= self.at_delta else math.inf


def _order(limit: ApproxDP) -> tuple[float, float]:
    """The order that suits the limit if losses are about Gaussian, and the divergence at it that implies the limit."""
    delta = limit.delta * _CONVERTED
    log = -math.log(delta)
    root = limit.epsilon / (math.sqrt(log + limit.epsilon) + math.sqrt(log))
    order = 1 + math.sqrt(log) / root if root > 0 else math.inf
    if not math.isfinite(order):
        return order, 0.0
    # Some roundings below, because the conversion of the budget must not exceed the limit.
    budget = limit.epsilon - (math.log(order - 1) - (math.log(delta) + order * math.log(order)) / (order - 1))
    step = math.ulp(budget)
    while budget > 0 and epsilon_at(order, budget, delta) > limit.epsilon:
        budget -= step
        step *= 2
    return order, max(budget, 0.0)


def _divergence(guarantee: Guarantee, mechanism: PrivacyCurves | None, order: float) -> float:
    if mechanism is not None and math.isfinite(mechanism._renyi(order)):
        return mechanism._renyi(order)
    return convert(guarantee, RenyiDP, order=order).epsilon


def _rho(guarantee: Guarantee, mechanism: PrivacyCurves | None, omega: float) -> float:
    if mechanism is not None and math.isfinite(mechanism._rho(omega)):
        return mechanism._rho(omega)
    return convert(guarantee, TruncatedCDP, omega=omega).rho


def _stated(guarantee: Guarantee, mechanism: PrivacyCurves | None, delta: float) -> ApproxDP:
    """The release as an (epsilon, delta): its own, or one at the given delta."""
    if isinstance(guarantee, ApproxDP):
        return guarantee
    if mechanism is not None and not isinstance(guarantee, PureDP):
        return ApproxDP(epsilon=mechanism._epsilon(delta), delta=delta)
    return convert(guarantee, ApproxDP, delta=delta)


def _leaking(
    stated: ApproxDP, guarantee: Guarantee, mechanism: PrivacyCurves | None, order: float
) -> tuple[float, float]:
    """Divergence at the order, outside of an event of probability at most the second number."""
    try:
        return _divergence(guarantee, mechanism, order), 0.0
    except ArgumentError:
        # (epsilon, delta) is pure epsilon except with probability delta.
        pure = _divergence(PureDP(epsilon=stated.epsilon), None, order) if stated.epsilon > 0 else 0.0
        return pure, stated.delta
