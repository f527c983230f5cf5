"""The interface of all guarantees."""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from pymc_dirdp.errors import ArgumentError, type_name

if TYPE_CHECKING:
    from pymc_dirdp.privacy.curves import PrivacyCurves
    from pymc_dirdp.privacy.guarantees import RenyiDP

__all__ = ["Domain", "Guarantee", "Losses"]

# Takes one number by its name, and returns it as a float or says what is allowed.
type Domain = Callable[..., float]


class Losses[Loss](Protocol):
    """Anything that has a privacy loss in every measure: curves, a pair, or the probabilities of an event."""

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
    """A guarantee of one kind. Its *budget* is the number that is bought and spent: epsilon, or rho.

    Attributes
    ----------
    budget_name : str
        Which of the fields is the budget. The others say at which order, up to which one, or at which delta.
    domains : dict
        The check of each field.
    flavour : str
        What registers of deployments call this kind.

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
        for name, checked in self.domains.items():
            object.__setattr__(self, name, checked(**{name: getattr(self, name)}))

    @staticmethod
    def checked(**named: object) -> "Guarantee":
        """The argument if it is a guarantee, or an error that names it."""
        ((name, value),) = named.items()
        if not isinstance(value, Guarantee):
            example = "a guarantee such as ApproxDP(epsilon=1, delta=1e-6)"
            wanted = example if name == "guarantee" else f"{name} to be {example}"
            got = f"the class {value.__name__}" if isinstance(value, type) else type_name(value)
            raise ArgumentError(f"Expected {wanted}, got {got}.")
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

    @property
    def measure(self) -> str:
        """What the budget bounds, in words."""
        return self.budget_name

    @abc.abstractmethod
    def loss[Loss](self, of: Losses[Loss]) -> Loss:
        """The loss in the measure of this kind."""

    @property
    def allowed(self) -> float:
        """The largest loss, in the measure of this kind, with which the guarantee holds."""
        return self.budget

    def kept_by(self, curves: "PrivacyCurves") -> bool:
        """Whether the guarantee holds on the curves, without tolerance."""
        return self.loss(curves) <= self.allowed

    def least_budget(self, curves: "PrivacyCurves") -> float:
        """The least budget with which this guarantee holds on the curves; it may be 0 or infinite."""
        return self.loss(curves)

    @property
    def largest_order(self) -> float:
        """The Rényi order up to which the divergence is bounded; 1 where it is bounded at no order above."""
        return math.inf

    @property
    def stated_delta(self) -> float | None:
        """The delta, if the guarantee is an (epsilon, delta); 0 for pure, None for a bound on Rényi divergences."""
        return self.fixed.get("delta")

    @property
    def adds_up(self) -> bool:
        """Whether releases whose budgets add up to this one keep the guarantee together.

        For (epsilon, delta) this is False, because delta adds up too.
        """
        return not self.stated_delta

    @property
    def is_pure(self) -> bool:
        """Whether the guarantee bounds the loss of every single output."""
        return self.stated_delta == 0

    def as_divergence(self, curves: "PrivacyCurves | None" = None) -> "RenyiDP | None":
        """A bound on a Rényi divergence to plan with, for a guarantee whose budget cannot be divided into parts.

        It proves nothing about this guarantee. None where parts of the budget add up, and no substitute is needed.

        Parameters
        ----------
        curves : PrivacyCurves, optional
            The divergence is that of these curves, at the order that suits this guarantee best. Without curves it is
            that of a Gaussian loss which just keeps this guarantee.
        """
        return None
