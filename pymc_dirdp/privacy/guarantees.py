"""What is promised, and what one promise implies about another.

As a text, a promise is rounded so that it follows from the promise: losses up, orders down.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

from pymc_dirdp.checks import at_least, fraction, positive
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.rounding import at_least_in_short as up
from pymc_dirdp.numerics.rounding import at_most_in_short as down
from pymc_dirdp.privacy.conversion import best_order, epsilon_at

__all__ = ["ApproxDP", "Guarantee", "PureDP", "RenyiDP", "TruncatedCDP", "ZeroCDP", "convert"]


@dataclass(frozen=True, kw_only=True)
class RenyiDP:
    """Rényi differential privacy at one order.

    For all neighbouring data sets the Rényi divergence of order `order` between the two output laws is at most
    `epsilon`.

    Parameters
    ----------
    order : float
        The Rényi order, at least 1. Order 1 is the Kullback-Leibler divergence.
    epsilon : float
        The bound in nats, positive.

    References
    ----------
    Mironov (2017), Rényi differential privacy, https://doi.org/10.1109/CSF.2017.11. P1 Definition 2.3.
    """

    order: float
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", at_least(1, order=self.order))
        object.__setattr__(self, "epsilon", positive(epsilon=self.epsilon))

    def __str__(self) -> str:
        return f"({down(self.order):g}, {up(self.epsilon):g})-Rényi differential privacy"


@dataclass(frozen=True, kw_only=True)
class TruncatedCDP:
    """Truncated concentrated differential privacy.

    For all neighbouring data sets and every order in `(1, omega)` the Rényi divergence of that order is at most
    `order * rho`.

    Parameters
    ----------
    rho : float
        The slope of the bound in nats, positive.
    omega : float
        The order at which the promise ends, above 1. `inf` is accepted and means `ZeroCDP(rho=rho)`; no Dirichlet
        mechanism reaches it.

    References
    ----------
    Bun, Dwork, Rothblum and Steinke (2018), Composable and versatile privacy via truncated CDP,
    https://doi.org/10.1145/3188745.3188946. P2 Definition 2.3.
    """

    rho: float
    omega: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", positive(rho=self.rho))
        object.__setattr__(self, "omega", at_least(1, finite=False, omega=self.omega))
        if self.omega == 1:
            raise ArgumentError("Expected omega > 1, got omega=1: the promise would hold for no order at all.")

    def __str__(self) -> str:
        return f"({up(self.rho):g}, {down(self.omega):g})-truncated concentrated differential privacy"


@dataclass(frozen=True, kw_only=True)
class ApproxDP:
    """Approximate, or (epsilon, delta), differential privacy.

    For all neighbouring data sets and every event, its probability under one is at most `exp(epsilon)` times its
    probability under the other, plus `delta`.

    Parameters
    ----------
    epsilon : float
        In nats, at least 0.
    delta : float
        A probability strictly between 0 and 1; usually well below one over the number of people.

    References
    ----------
    Dwork, Kenthapadi, McSherry, Mironov and Naor (2006), https://doi.org/10.1007/11761679_29. P2 Definition 2.1.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", at_least(0, epsilon=self.epsilon))
        object.__setattr__(self, "delta", fraction(delta=self.delta))

    def __str__(self) -> str:
        return f"({up(self.epsilon):g}, {up(self.delta):g})-differential privacy"


@dataclass(frozen=True, kw_only=True)
class ZeroCDP:
    """Zero-concentrated differential privacy: Rényi divergence at most `order * rho` at every order above 1.

    Parameters
    ----------
    rho : float
        The slope of the bound in nats, positive.

    References
    ----------
    Bun and Steinke (2016), Concentrated differential privacy, https://doi.org/10.1007/978-3-662-53641-4_24.
    """

    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", positive(rho=self.rho))

    def __str__(self) -> str:
        return f"{up(self.rho):g}-zero-concentrated differential privacy"


@dataclass(frozen=True, kw_only=True)
class PureDP:
    """Pure differential privacy: (epsilon, 0).

    Parameters
    ----------
    epsilon : float
        In nats, positive.

    References
    ----------
    Dwork, McSherry, Nissim and Smith (2006), https://doi.org/10.1007/11681878_14.
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive(epsilon=self.epsilon))

    def __str__(self) -> str:
        return f"{up(self.epsilon):g}-differential privacy"


Guarantee: TypeAlias = RenyiDP | TruncatedCDP | ApproxDP | ZeroCDP | PureDP


def convert[Kind: (RenyiDP, TruncatedCDP, ApproxDP, ZeroCDP, PureDP)](
    guarantee: Guarantee, kind: type[Kind], **at: float
) -> Kind:
    """What `guarantee` implies, stated as another kind of promise.

    Only implications are converted: every mechanism that keeps `guarantee` keeps the result. A kind that does not
    follow, such as pure from approximate differential privacy, is refused. The result is usually weaker than what
    the mechanism's own curve gives; ask the mechanism where there is one.

    Parameters
    ----------
    guarantee : RenyiDP, TruncatedCDP, ApproxDP, ZeroCDP or PureDP
        What is known to hold.
    kind : type
        The class of the promise that is wanted.
    **at : float
        Where: `delta` for `ApproxDP`, `order` for `RenyiDP`, `omega` for `TruncatedCDP`; nothing for `ZeroCDP`.

    Returns
    -------
    guarantee : instance of `kind`

    Raises
    ------
    ArgumentError
        If the promise does not follow, or if `at` does not fit `kind`.

    References
    ----------
    Rényi to approximate: P1 Lemma 3 (Canonne, Kamath and Steinke 2020). Truncated to approximate: P2 Lemma 1. Pure to
    zero-concentrated: Bun and Steinke (2016), Proposition 1.4.

    Examples
    --------
    >>> convert(RenyiDP(order=8, epsilon=0.5), ApproxDP, delta=1e-6)
    ApproxDP(epsilon=2.04..., delta=1e-06)
    """
    where = {"ApproxDP": {"delta"}, "RenyiDP": {"order"}, "TruncatedCDP": {"omega"}}.get(kind.__name__, set())
    if set(at) != where:
        wanted = f"{next(iter(where))}=..." if where else "no further argument"
        raise ArgumentError(f"Conversion to {kind.__name__} takes {wanted}.")
    if kind is ApproxDP:
        delta = fraction(delta=at["delta"])
        return ApproxDP(epsilon=_approx_epsilon(guarantee, delta), delta=delta)  # type: ignore[return-value]
    if kind is RenyiDP:
        order = at_least(1, order=at["order"])
        return RenyiDP(order=order, epsilon=_renyi_epsilon(guarantee, order))  # type: ignore[return-value]
    if kind is TruncatedCDP:
        omega = TruncatedCDP(rho=1, omega=at["omega"]).omega
        return TruncatedCDP(rho=_rho(guarantee, omega), omega=omega)  # type: ignore[return-value]
    if kind is ZeroCDP:
        return ZeroCDP(rho=_rho(guarantee, math.inf))  # type: ignore[return-value]
    if kind is PureDP and isinstance(guarantee, PureDP):
        return guarantee  # type: ignore[return-value]
    raise _does_not_follow(guarantee, kind.__name__)


def _does_not_follow(guarantee: Guarantee, wanted: str) -> ArgumentError:
    return ArgumentError(
        f"{wanted} does not follow from {guarantee}. Ask the mechanism for its own curve, or calibrate for {wanted}."
    )


def _half_square(epsilon: float) -> float:
    """Half of `epsilon**2`: never 0, which would be no bound, and infinite where it is no double."""
    return max(epsilon * epsilon / 2, 5e-324)


def _renyi_epsilon(guarantee: Guarantee, order: float) -> float:
    match guarantee:
        # The divergence grows with the order, so a bound at a higher order serves.
        case RenyiDP(order=known, epsilon=epsilon) if order <= known:
            return epsilon
        # Orders up to omega inclusive: the divergence is continuous from the left where it is bounded.
        case TruncatedCDP(rho=rho, omega=omega) if order <= omega:
            return order * rho
        case ZeroCDP(rho=rho):
            return order * rho
        case PureDP(epsilon=epsilon):
            return min(epsilon, order * _half_square(epsilon))
    raise _does_not_follow(guarantee, f"Rényi differential privacy at order {order:g}")


def _rho(guarantee: Guarantee, omega: float) -> float:
    match guarantee:
        case TruncatedCDP(rho=rho, omega=known) if omega <= known:
            return rho
        case ZeroCDP(rho=rho):
            return rho
        case PureDP(epsilon=epsilon):
            return _half_square(epsilon)
        # D_lam <= D_order for lam <= order, and lam > 1; so D_lam <= lam * epsilon on (1, order).
        case RenyiDP(order=order, epsilon=epsilon) if omega <= order:
            return epsilon
    raise _does_not_follow(guarantee, f"truncated concentrated differential privacy at omega {omega:g}")


def _approx_epsilon(guarantee: Guarantee, delta: float) -> float:
    match guarantee:
        case ApproxDP(epsilon=epsilon, delta=known) if known <= delta:
            return epsilon
        case PureDP(epsilon=epsilon):
            return epsilon
        case RenyiDP(order=order, epsilon=epsilon) if order > 1:
            return epsilon_at(order, epsilon, delta)
        case TruncatedCDP(rho=rho, omega=omega):
            return _best_epsilon(rho, omega, delta)
        case ZeroCDP(rho=rho):
            return _best_epsilon(rho, math.inf, delta)
    raise _does_not_follow(guarantee, f"approximate differential privacy at delta {delta:g}")


def _best_epsilon(rho: float, omega: float, delta: float) -> float:
    """Never above P2 Lemma 1, which uses a looser lemma at one order. Order omega itself is covered, as above."""

    def bound(order: float) -> float:
        return epsilon_at(order, order * rho, delta)

    return bound(best_order(bound, largest=omega))
