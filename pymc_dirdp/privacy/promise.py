"""What can be asked of any guarantee, whatever its kind."""

import abc
import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from pymc_dirdp.errors import ArgumentError

if TYPE_CHECKING:
    from pymc_dirdp.privacy.curves import PrivacyCurves
    from pymc_dirdp.privacy.guarantees import RenyiDP

__all__ = ["Guarantee", "Losses"]


class Losses[Loss](Protocol):
    """Whatever has a privacy loss in every measure: curves, two laws, or the probabilities of an event."""

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
    """A promise of one kind. Its *budget* is the number that is bought and spent: epsilon, or rho.

    Attributes
    ----------
    budget_name : str
        Which of the fields is the budget. The others say at which order, up to which one, or at which delta.
    """

    budget_name: ClassVar[str] = "epsilon"

    @staticmethod
    def checked(**named: object) -> "Guarantee":
        """The argument, if it is a guarantee; else an error that names it."""
        ((name, value),) = named.items()
        if not isinstance(value, Guarantee):
            example = "a guarantee such as ApproxDP(epsilon=1, delta=1e-6)"
            wanted = example if name == "guarantee" else f"{name} to be {example}"
            raise ArgumentError(f"Expected {wanted}, got a {type(value).__name__}.")
        return value

    @property
    def budget(self) -> float:
        """The epsilon or rho."""
        return float(getattr(self, self.budget_name))

    @property
    def fixed(self) -> dict[str, float]:
        """The other numbers of the promise, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != self.budget_name}

    def with_budget(self, budget: float) -> Self:
        """The same promise with another epsilon or rho."""
        changes: dict[str, Any] = {self.budget_name: budget}
        return replace(self, **changes)

    @property
    def measure(self) -> str:
        """What the budget bounds, in words."""
        return self.budget_name

    @abc.abstractmethod
    def loss[Loss](self, of: Losses[Loss]) -> Loss:
        """What is lost in the measure of this kind."""

    @property
    def allowed(self) -> float:
        """How much the promise allows in the measure of its kind: it holds where the loss is not above this."""
        return self.budget

    def least_budget(self, curves: "PrivacyCurves") -> float:
        """The least budget with which this promise holds on the curves; it may be 0 or infinite."""
        return self.loss(curves)

    @property
    def largest_order(self) -> float:
        """Up to which Rényi order the divergence is bounded; 1 where it is bounded at none above."""
        return math.inf

    @property
    def stated_delta(self) -> float | None:
        """The delta, if the promise is an (epsilon, delta); 0 for pure, None for a bound on Rényi divergences."""
        return self.fixed.get("delta")

    @property
    def adds_up(self) -> bool:
        """Whether releases keep the promise together whose budgets add up to this one: (epsilon, delta) has two."""
        return not self.stated_delta

    @property
    def is_pure(self) -> bool:
        """Whether it bounds the loss of every single output."""
        return self.stated_delta == 0

    def as_divergence(self, curves: "PrivacyCurves | None" = None) -> "RenyiDP | None":
        """A bound on a Rényi divergence to plan with, for a promise whose budget cannot be divided into parts.

        It proves nothing about this promise. None where parts of the budget add up, and no substitute is needed.

        Parameters
        ----------
        curves : PrivacyCurves, optional
            The divergence is theirs, at the order that suits this promise best. Without them it is that of a Gaussian
            loss which just keeps this promise.
        """
        return None
