"""Numbers that are added up exactly, as they are written: what a release costs, and what many of them cost together."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Clamped, Context, Decimal, Inexact, Overflow, Rounded, Underflow
from fractions import Fraction
from typing import final

__all__ = ["EXACT", "Amount", "Cost", "Totals", "as_decimal"]

# A sum of doubles as they are written has at most 309 digits before the point, a few for the carry, and 344 behind.
EXACT = Context(prec=1000, traps=[Clamped, Inexact, Overflow, Rounded, Underflow])

# One release's cost: numbers by name. A name is absent where the number does not follow from what is known.
Cost = Mapping[str, float]


def as_decimal(value: float) -> Decimal:
    """The number as it is written: limits and costs are decimal, and their sums are compared without rounding."""
    return Decimal(repr(float(value)))


@final
@dataclass(frozen=True)
class Amount:
    """One number that must not exceed its limit. Decimal numbers are exact, so that ten times 0.1 is 1."""

    label: str  # What is added up.
    spent: Decimal
    limit: Decimal

    @property
    def left(self) -> Decimal:
        """What may still be spent; below 0 where the limit does not hold."""
        return EXACT.subtract(self.limit, self.spent)

    @property
    def within(self) -> bool:
        """Whether the limit holds."""
        return self.spent <= self.limit

    @property
    def share(self) -> Fraction:
        """The part of the limit that is spent."""
        return Fraction(self.spent) / Fraction(self.limit) if self.limit > 0 else Fraction(int(self.spent > 0))


@final
@dataclass(frozen=True)
class Totals:
    """What some releases cost together. Its size depends on the kinds of their costs and not on their number."""

    releases: int = 0
    # The exact sum of each number that every release has.
    sums: Mapping[str, Decimal] = field(default_factory=dict)
    # How many releases cost this epsilon and delta; counted only for releases that are fixed in advance.
    promises: Mapping[tuple[float, float], int] = field(default_factory=dict)

    def plus(self, costs: Iterable[Cost], *, adaptive: bool) -> "Totals":
        """The totals of these releases and some more."""
        releases, sums, promises = self.releases, dict(self.sums), Counter(self.promises)
        for cost in costs:
            names = set(cost) if releases == 0 else set(cost) & set(sums)
            sums = {name: EXACT.add(sums.get(name, Decimal(0)), as_decimal(cost[name])) for name in sorted(names)}
            releases += 1
            if not adaptive and {"epsilon", "delta"} <= set(cost):
                promises[cost["epsilon"], cost["delta"]] += 1
        return Totals(releases, sums, promises)

    def without(self, cost: Cost) -> "Totals":
        """The totals of these releases except one of them, which has this cost."""
        sums = {name: EXACT.subtract(total, as_decimal(cost[name])) for name, total in self.sums.items()}
        promises = Counter(self.promises)
        if promises and {"epsilon", "delta"} <= set(cost):
            promises[cost["epsilon"], cost["delta"]] -= 1
        return Totals(self.releases - 1, sums, +promises)

    def sum(self, name: str) -> Decimal | None:
        """The sum of one number; None if some release does not have it."""
        return self.sums.get(name, None if self.releases else Decimal(0))
