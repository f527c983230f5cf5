"""Guarantees: what each bounds and implies, and the curve that decides it."""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, final, override

from pymc_dirdp.checks import at_least, open_unit_interval, positive
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.numerics.roots import floor_to_digits as down
from pymc_dirdp.signatures import user_facing

if TYPE_CHECKING:
    from pymc_dirdp.privacy.curves import PrivacyCurves

# The interface of all guarantees.


# A function that takes one number by name, and returns it as a float or raises an error with the allowed values.
type Domain = Callable[..., float]


class Losses[Loss](Protocol):
    """Anything with a privacy loss in every measure: curves, a pair, or the probabilities of an event."""

    def renyi(self, order: float, /) -> Loss:
        """Rényi divergence of an order of at least 1."""

    def rho(self, omega: float, /) -> Loss:
        """The largest Rényi divergence over its order, for orders in `(1, omega]`."""

    def delta(self, epsilon: float, /) -> Loss:
        """Hockey-stick divergence at an epsilon of at least 0."""

    @property
    def pure_epsilon(self) -> Loss:
        """The largest loss."""


@dataclass(frozen=True, kw_only=True)
class Guarantee(abc.ABC):
    """A guarantee of one kind. Its *budget* is the number that is spent: epsilon, or rho.

    Attributes
    ----------
    budget_name : str
        The field that is the budget. The other fields are the order, the largest order, or the delta.
    domains : dict
        The check of each field.
    flavour : str
        The name of this kind in registries of deployments.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> isinstance(ApproxDP(epsilon=1.0, delta=1e-6), Guarantee)
    True
    """

    budget_name: ClassVar[str] = "epsilon"
    domains: ClassVar[dict[str, Domain]]
    flavour: ClassVar[str]

    def __post_init__(self) -> None:
        for name, check in self.domains.items():
            object.__setattr__(self, name, check(**{name: getattr(self, name)}))

    @staticmethod
    def checked(**named: object) -> "Guarantee":
        """The argument if it is a guarantee, or an error that names it."""
        ((name, value),) = named.items()
        if not isinstance(value, Guarantee):
            example = "a guarantee such as ApproxDP(epsilon=1, delta=1e-6)"
            expectation = example if name == "guarantee" else f"{name} to be {example}"
            actual = f"the class {value.__name__}" if isinstance(value, type) else type_name(value)
            raise ArgumentError(f"Expected {expectation}, got {actual}.")
        return value

    @property
    def budget(self) -> float:
        """The epsilon or rho."""
        return float(getattr(self, self.budget_name))

    @property
    def fixed(self) -> dict[str, float]:
        """The other numbers of the guarantee, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != self.budget_name}

    def with_budget(self, budget: float) -> Self:
        """The same guarantee with another epsilon or rho."""
        changes: dict[str, Any] = {self.budget_name: budget}
        return replace(self, **changes)

    def split(self, share: float) -> tuple[Self, Self]:
        """Two guarantees for releases that together satisfy this one: a share of the budget, and the rest.

        Budgets add under basic composition. Their sum does not exceed this one, as doubles and as
        decimals, which a ledger adds.

        Examples
        --------
        >>> first, second = PureDP(epsilon=0.1).split(0.8)
        >>> first.epsilon + second.epsilon <= 0.1
        True
        """
        first, second = _split(self.budget, share)
        return self.with_budget(first), self.with_budget(second)

    @property
    def measure(self) -> str:
        """What the budget bounds, in words."""
        return self.budget_name

    @abc.abstractmethod
    def loss[Loss](self, losses: Losses[Loss]) -> Loss:
        """The loss in the measure of this kind."""

    @property
    def allowed(self) -> float:
        """The largest loss, in the measure of this kind, with which the guarantee holds."""
        return self.budget

    def least_budget(self, curves: "PrivacyCurves") -> float:
        """The least budget with which this guarantee holds on the curves; it may be 0 or infinite."""
        return self.loss(curves)

    @property
    def largest_order(self) -> float:
        """The Rényi order up to which the divergence is bounded; 1 if it is bounded at no larger order."""
        # Apart from its budget a guarantee has a largest order, or a delta, or nothing else.
        return 1.0 if self.stated_delta else next(iter(self.fixed.values()), math.inf)

    @property
    def stated_delta(self) -> float | None:
        """The delta, if the guarantee is an (epsilon, delta); 0 for pure, None for a bound on Rényi divergences."""
        return self.fixed.get("delta")

    @property
    def adds_up(self) -> bool:
        """Whether releases whose budgets add up to this one together satisfy the guarantee.

        This is False for (epsilon, delta), because delta adds up, too.
        """
        return not self.stated_delta

    @property
    def is_pure(self) -> bool:
        """Whether the guarantee bounds the loss of every single output."""
        return self.stated_delta == 0

    def as_divergence(self, curves: "PrivacyCurves | None" = None) -> "RenyiDP | None":
        """A bound on a Rényi divergence to plan with, for a guarantee whose budget cannot be divided into parts.

        It proves nothing about this guarantee. None if parts of the budget add up, so that no substitute is needed.

        Parameters
        ----------
        curves : PrivacyCurves, optional
            The divergence is that of these curves, at the best order for this guarantee. By default it is
            that of a Gaussian loss that just satisfies this guarantee.
        """
        return None


def _split(total: float, share: float) -> tuple[float, float]:
    """A share of a number, and nearly the largest rest whose sum with it does not exceed the number."""
    first = share * total
    second = total - first
    for exact in (Fraction, lambda value: Fraction(repr(value))):
        while exact(first) + exact(second) > exact(total):
            second = math.nextafter(second, 0.0)
    return first, second


# The five kinds of guarantees. Each class holds whatever depends on its kind.
#
# The text of a guarantee is rounded so that it follows from the guarantee: losses up, orders down.


@user_facing
@final
@dataclass(frozen=True, kw_only=True)
class RenyiDP(Guarantee):
    """Rényi differential privacy at one order.

    For all neighbouring data sets the Rényi divergence of order `order` between the two output distributions is at most
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

    Examples
    --------
    >>> print(RenyiDP(order=5, epsilon=0.1))
    (5, 0.1)-Rényi differential privacy
    """

    domains: ClassVar[dict[str, Domain]] = {"order": partial(at_least, 1), "epsilon": positive}
    flavour: ClassVar[str] = "Rényi DP"
    order: float
    epsilon: float

    def __str__(self) -> str:
        return f"({down(self.order):g}, {up(self.epsilon):g})-Rényi differential privacy"

    @property
    @override
    def measure(self) -> str:
        return f"Rényi divergence at order {self.order:g}"

    @override
    def loss[Loss](self, losses: Losses[Loss]) -> Loss:
        return losses.renyi(self.order)


@user_facing
@final
@dataclass(frozen=True, kw_only=True)
class TruncatedCDP(Guarantee):
    """Truncated concentrated differential privacy.

    For all neighbouring data sets and every order in `(1, omega)` the Rényi divergence of that order is at most
    `order * rho`.

    Parameters
    ----------
    rho : float
        The slope of the bound in nats, positive.
    omega : float
        The order at which the guarantee ends, above 1. `inf` is accepted and means `ZeroCDP(rho=rho)`; no
        continuous Dirichlet draw reaches it.

    References
    ----------
    Bun, Dwork, Rothblum and Steinke (2018), Composable and versatile privacy via truncated CDP,
    https://doi.org/10.1145/3188745.3188946. P2 Definition 2.3.

    Examples
    --------
    >>> print(TruncatedCDP(rho=0.01, omega=50))
    (0.01, 50)-truncated concentrated differential privacy
    """

    budget_name: ClassVar[str] = "rho"
    domains: ClassVar[dict[str, Domain]] = {"rho": positive, "omega": partial(at_least, 1, finite=False)}
    flavour: ClassVar[str] = "Truncated concentrated DP"
    rho: float
    omega: float

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.omega == 1:
            raise ArgumentError("Expected omega > 1, got omega=1: the guarantee would hold for no order at all.")

    def __str__(self) -> str:
        return f"({up(self.rho):g}, {down(self.omega):g})-truncated concentrated differential privacy"

    @override
    def loss[Loss](self, losses: Losses[Loss]) -> Loss:
        return losses.rho(self.omega)


def _delta(*, delta: object) -> float:
    """A probability above 0, because a guarantee without delta is another kind."""
    if isinstance(delta, int | float) and delta == 0:
        raise ArgumentError(
            "Expected delta in (0, 1), got delta=0. For a guarantee without delta, write PureDP(epsilon=1)."
        )
    return open_unit_interval(delta=delta)


@user_facing
@final
@dataclass(frozen=True, kw_only=True)
class ApproxDP(Guarantee):
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

    Examples
    --------
    >>> print(ApproxDP(epsilon=1.0, delta=1e-6))
    (1, 1e-06)-differential privacy
    """

    domains: ClassVar[dict[str, Domain]] = {"epsilon": partial(at_least, 0), "delta": _delta}
    flavour: ClassVar[str] = "Approximate DP"
    epsilon: float
    delta: float

    def __str__(self) -> str:
        return f"({up(self.epsilon):g}, {up(self.delta):g})-differential privacy"

    @override
    def split(self, share: float) -> tuple[Self, Self]:
        """Two guarantees with a share of epsilon and of delta, and with the rest of both."""
        first, second = super().split(share)
        first_delta, second_delta = _split(self.delta, share)
        return replace(first, delta=first_delta), replace(second, delta=second_delta)

    @override
    def loss[Loss](self, losses: Losses[Loss]) -> Loss:
        return losses.delta(self.epsilon)

    @property
    @override
    def allowed(self) -> float:
        return self.delta

    @override
    def least_budget(self, curves: "PrivacyCurves") -> float:
        return curves.epsilon(self.delta)

    @override
    def as_divergence(self, curves: "PrivacyCurves | None" = None) -> RenyiDP:
        if curves is not None:
            order = curves.best_order(self.delta)
            return RenyiDP(order=order, epsilon=curves.renyi(order))
        log = -math.log(self.delta)
        root = self.epsilon / (math.sqrt(log + self.epsilon) + math.sqrt(log))
        # No noise in doubles has a divergence below its square.
        least_root = 1e-50
        if root == 0:
            return RenyiDP(order=1.0, epsilon=max(self.delta, least_root) ** 2)
        # If epsilon is smaller still, delta is about the deviation of the loss. The budget is divided into parts,
        # so it is far above the least double.
        root = max(root, self.delta, least_root)
        order = 1 + math.sqrt(log) / root
        return RenyiDP(order=order, epsilon=order * root**2)


@user_facing
@final
@dataclass(frozen=True, kw_only=True)
class ZeroCDP(Guarantee):
    """Zero-concentrated differential privacy: Rényi divergence at most `order * rho` at every order above 1.

    Parameters
    ----------
    rho : float
        The slope of the bound in nats, positive.

    References
    ----------
    Bun and Steinke (2016), Concentrated differential privacy, https://doi.org/10.1007/978-3-662-53641-4_24.

    Examples
    --------
    >>> print(ZeroCDP(rho=0.05))
    0.05-zero-concentrated differential privacy
    """

    budget_name: ClassVar[str] = "rho"
    domains: ClassVar[dict[str, Domain]] = {"rho": positive}
    flavour: ClassVar[str] = "Zero-concentrated DP"
    omega: ClassVar[float] = math.inf
    rho: float

    def __str__(self) -> str:
        return f"{up(self.rho):g}-zero-concentrated differential privacy"

    @override
    def loss[Loss](self, losses: Losses[Loss]) -> Loss:
        return losses.rho(self.omega)


@user_facing
@final
@dataclass(frozen=True, kw_only=True)
class PureDP(Guarantee):
    """Pure differential privacy: (epsilon, 0).

    Parameters
    ----------
    epsilon : float
        In nats, positive.

    References
    ----------
    Dwork, McSherry, Nissim and Smith (2006), https://doi.org/10.1007/11681878_14.

    Examples
    --------
    >>> print(PureDP(epsilon=0.5))
    0.5-differential privacy
    """

    domains: ClassVar[dict[str, Domain]] = {"epsilon": positive}
    flavour: ClassVar[str] = "Pure DP"
    epsilon: float

    def __str__(self) -> str:
        return f"{up(self.epsilon):g}-differential privacy"

    @override
    def loss[Loss](self, losses: Losses[Loss]) -> Loss:
        return losses.pure_epsilon

    @property
    @override
    def stated_delta(self) -> float:
        return 0.0


# The kinds by their name in files.
KINDS: dict[str, type[Guarantee]] = {kind.__name__: kind for kind in (ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP)}
