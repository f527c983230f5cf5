"""The exact cost of all releases of a ledger, the composition rules that apply, and what a ledger admits."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Clamped, Context, Decimal, Inexact, Overflow, Rounded, Underflow
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import final

from pymc_dirdp.accounting.entries import Entry, Header, Row
from pymc_dirdp.errors import ArgumentError, BudgetError, LedgerError, type_name
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.numerics.roots import floor_to_digits as down
from pymc_dirdp.numerics.roots import raised
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import Bounded, PrivacyCurves, convert, epsilon_at
from pymc_dirdp.privacy.guarantees import ApproxDP, Guarantee, PureDP, RenyiDP

# Composition rules: what releases cost against a limit, and when they are within it.
#
# You choose the next release after seeing earlier ones, so a composition rule has to be valid for guarantees that are
# chosen adaptively. Plain sums and divergences at one order are valid. Choosing the best order or the better rule
# afterwards is not known to be valid. So the limit fixes one order, and the first release, which nobody chose after
# seeing anything, fixes one rule.

# Orders at which divergences are summed for a ledger whose releases are fixed in advance.
_ORDERS = tuple(1 + 2.0 ** (k / 2) for k in range(-6, 19))
# The share of delta that a conversion from divergences uses; the rest is for releases known only up to a delta.
_CONVERSION_SHARE = 0.5

# A sum of doubles as they are written has at most 309 digits before the point, a few for the carry, and 344 behind.
EXACT = Context(prec=1000, traps=[Clamped, Inexact, Overflow, Rounded, Underflow])

# The cost of one release: numbers by name. A name is absent where the number cannot be derived.
Cost = Mapping[str, float]


def as_decimal(value: float) -> Decimal:
    """The number as printed: limits and costs are decimal, so their sums are compared without rounding."""
    return Decimal(repr(float(value)))


@final
@dataclass(frozen=True)
class Amount:
    """One number that must not exceed its limit. Decimal numbers are exact, so that ten times 0.1 is 1."""

    label: str  # The name of the sum.
    spent: Decimal
    limit: Decimal

    @property
    def left(self) -> Decimal:
        """The remaining budget; below 0 where the limit is exceeded."""
        return EXACT.subtract(self.limit, self.spent)

    @property
    def within(self) -> bool:
        """Whether the limit holds."""
        return self.spent <= self.limit

    @property
    def state(self) -> str:
        """The amounts spent and left, as text."""
        spent, limit, left = map(float, (self.spent, self.limit, self.left))
        return f"{up(spent):.6g} of {limit:.6g} spent, {down(left):.6g} left"

    @property
    def share(self) -> Fraction:
        """The part of the limit that is spent."""
        return Fraction(self.spent) / Fraction(self.limit) if self.limit > 0 else Fraction(int(self.spent > 0))


Amounts = tuple[Amount, ...]


@final
@dataclass(frozen=True)
class Balance:
    """The total cost of the entries of a ledger, and what else it admits.

    :meth:`after` folds entries into it, so its size depends on the kinds of their costs and on open reservations, not
    on the number of entries. All rules about what a ledger admits are here: releases about its unit that stay within
    its limit.

    Attributes
    ----------
    header : Header
        The limit, adjacency and unit of the ledger.
    place : str
        Where the ledger is, as the subject of a sentence.
    last : (int, str, str)
        Number, text and hash of the last line of the chain, which is the header if there is no entry.
    first : Entry or None
        The first entry, which fixes the composition rule and the unit of the others.
    n_entries : int
        The number of entries in the sums: a reservation that was used is no longer among them.
    sums : mapping of str to (int, Decimal)
        For each number, the number of entries that have it, and its exact sum.
    guarantees : mapping of (float, float) to int
        The number of entries that cost this epsilon and delta; only for releases that are fixed in advance.
    reservations : mapping of int to Entry
        The open reservations, by number.
    """

    header: Header
    place: str
    last: Row
    first: Entry | None = None
    n_entries: int = 0
    sums: Mapping[str, tuple[int, Decimal]] = field(default_factory=dict)
    guarantees: Mapping[tuple[float, float], int] = field(default_factory=dict)
    reservations: Mapping[int, Entry] = field(default_factory=dict)

    def after(self, entries: Sequence[Entry]) -> "Balance":
        """The balance after more entries. A release that uses a reservation frees its cost."""
        n_entries, sums, reservations = self.n_entries, dict(self.sums), dict(self.reservations)
        guarantees = Counter(self.guarantees)
        for entry in entries:
            changes = [(entry.cost, 1, EXACT.add)]
            if entry.uses is not None:
                if entry.uses not in reservations:
                    raise damage_error(self.place, "it uses an entry that is no open reservation", entry.number)
                changes.append((reservations.pop(entry.uses).cost, -1, EXACT.subtract))
            if entry.reserved:
                reservations[entry.number] = entry
            for cost, sign, operation in changes:
                n_entries += sign
                for name, value in cost.items():
                    n_with_cost, total = sums.get(name, (0, Decimal(0)))
                    sums[name] = n_with_cost + sign, operation(total, as_decimal(value))
                if not self.header.adaptive and {"epsilon", "delta"} <= set(cost):
                    guarantees[cost["epsilon"], cost["delta"]] += sign
        return replace(
            self,
            first=self.first or next(iter(entries), None),
            n_entries=n_entries,
            sums=sums,
            guarantees=+guarantees,
            reservations=reservations,
        )

    @property
    def head(self) -> str:
        """The number and the hash of the last entry."""
        return f"{self.last[0]}:{self.last[2]}"

    def sum(self, name: str) -> Decimal | None:
        """The sum of one number; None if some entry does not have it."""
        n_with_cost, total = self.sums.get(name, (0, Decimal(0)))
        return total if n_with_cost == self.n_entries else None

    @property
    def unit(self) -> str | None:
        """The unit of privacy: the one the ledger was created for, or else that of its first release."""
        return self.header.unit if self.first is None else self.first.unit

    def admit(self, requests: Sequence[Entry], time: str) -> list[Entry]:
        """The entries of some releases or reservations, if all of them fit together.

        Raises
        ------
        BudgetError
            If they do not fit.
        ArgumentError
            If they are about another unit, use a reservation that is not open, or have no cost under the ledger's rule.
        """
        entries = []
        for number, entry in enumerate(requests, start=self.last[0] + 1):
            if entry.uses is not None and entry.uses not in self.reservations:
                open_numbers = ", ".join(map(str, self.reservations)) or "none"
                raise ArgumentError(
                    f"Entry {entry.uses} of {self.place[0].lower()}{self.place[1:]} is no open reservation. Open are: "
                    f"{open_numbers}. Make one by ledger.reserve(...), or leave using() out."
                )
            entries.append(replace(entry, number=number, recorded=time, unit=self._check_unit(entry)))
        rule = self._check_amounts(entries)
        return [replace(entry, composition_rule=rule) for entry in entries]

    def _check_unit(self, entry: Entry) -> str | None:
        """The unit of a release, which has to be the unit of all others."""
        unit = entry.unit or self.header.unit or self.unit
        if self.first is None and self.unit is None:
            if entry.reserved and unit is None:
                raise ArgumentError(
                    'Pass unit=, as in ledger.reserve(..., unit="record") or with a name of people, such as '
                    'unit="person": the first entry of a ledger decides whom its releases protect.'
                )
        elif unit != self.unit:
            raise ArgumentError(other_unit_message(self.place, self.unit, unit))
        return unit

    def _check_amounts(self, entries: Sequence[Entry]) -> str | None:
        """The rule under which more entries are within the limit; None if the tightest rule is chosen each time."""
        amounts: dict[str, Amounts] = {}
        for rule, rule_amounts in self.after(entries)._iterate_amounts():
            # A slower rule is tried only if the quicker ones are not enough.
            if not self.header.adaptive and all(amount.within for amount in rule_amounts):
                return None
            amounts[rule] = rule_amounts
        # The ledger itself is checked before a release is refused.
        previous_amounts, fixed_rule = self._amounts_by_rule, self._fixed_rule
        if not amounts or (fixed_rule is not None and fixed_rule not in amounts):
            raise ArgumentError(
                f"Pass mechanism=, or state the release as {type(self.header.limit).__name__}, the type of the limit: "
                f"{entries[-1].guarantee} alone does not imply the losses that this ledger adds up"
                f"{'' if fixed_rule is None else f' by the rule {fixed_rule!r}'}."
            )
        rule = fixed_rule or _tightest(amounts)
        if not all(amount.within for amount in amounts[rule]):
            current = "; ".join(f"{amount.label}: {amount.state}" for amount in previous_amounts.get(rule, ()))
            requested = "; ".join(f"{amount.label}: {up(float(amount.spent)):.6g}" for amount in amounts[rule])
            raise BudgetError(f"Now {current}. With it {requested}.")
        return rule if self.header.adaptive else None

    def largest_admitted(self, template: Guarantee) -> Guarantee | None:
        """The largest guarantee of this kind and delta that is admitted without a mechanism, to three digits.

        None if not even a budget of 1e-9 is admitted: nothing is left, or no rule composes such guarantees.
        """

        def is_refused(budget: float) -> bool:
            guarantee = template.with_budget(budget)
            try:
                cost = cost_of(self.header.limit, guarantee, None, adaptive=self.header.adaptive)
                self._check_amounts([Entry(0, "now", "one more release", guarantee, cost)])
            except (ArgumentError, BudgetError):
                return True
            return False

        def budget(place: int) -> float:
            """The numbers of three digits in ascending order, from 1e-9."""
            return float(f"{100 + place % 900}e{place // 900 - 11}")

        # The search goes up to 1e10.
        n_admitted = bisect_left(range(19 * 900), True, key=lambda place: is_refused(budget(place)))
        return template.with_budget(budget(n_admitted - 1)) if n_admitted else None

    @cached_property
    def rule(self) -> str | None:
        """The rule that is fixed, or the tightest; None while there is no entry and several rules are open."""
        return self._fixed_rule if self.first is None else self._fixed_rule or _tightest(self._amounts_by_rule)

    @property
    def amounts(self) -> Amounts:
        """The cost of all entries under the fixed rule, or else under the tightest."""
        return self._amounts_by_rule[self.rule or _tightest(self._amounts_by_rule)]

    @property
    def within(self) -> bool:
        """Whether the entries are within the limit. Entries of a damaged file may not be."""
        return all(amount.within for amount in self.amounts)

    @property
    def joint_guarantee(self) -> Guarantee:
        """The guarantee that all entries satisfy together: the limit, a tighter one of its kind, or a pure one.

        Where releases were chosen after seeing others, no sum of divergences or deltas is known to be a guarantee by
        itself (Rogers et al. 2016), so this is the limit. Pure losses are bounded output by output, so their sum is
        always a guarantee.
        """
        if not self.within:
            raise damage_error(self.place, "its entries exceed its limit")
        limit, epsilon = self.header.limit, self.sum("epsilon")
        is_pure = limit.is_pure or (limit.stated_delta and self.sum("delta") == 0)
        if is_pure and epsilon and (total_epsilon := _double_above(epsilon)) <= limit.budget:
            return PureDP(epsilon=total_epsilon)
        if self.header.adaptive or not self.amounts[0].spent:
            return limit
        budget, *deltas = (_double_above(amount.spent) for amount in self.amounts)
        if self.rule == "basic" and deltas[0]:
            return ApproxDP(epsilon=budget, delta=deltas[0])
        return limit.with_budget(budget)

    @property
    def _fixed_rule(self) -> str | None:
        """The rule that the limit or the first release fixed; None if the tightest is chosen again each time."""
        rules = tracked_rules(self.header.limit, adaptive=self.header.adaptive)
        if len(rules) == 1:
            return next(iter(rules))
        return None if self.first is None else self.first.composition_rule

    def _iterate_amounts(self) -> Iterator[tuple[str, Amounts]]:
        """The cost of the entries under each rule that applies to all of them, the fastest rule first."""
        for rule, compute in tracked_rules(self.header.limit, adaptive=self.header.adaptive).items():
            if (amounts := compute(self)) is not None:
                yield rule, amounts

    @cached_property
    def _amounts_by_rule(self) -> dict[str, Amounts]:
        """The cost of the entries under each rule, or an error if the fixed rule does not apply to them."""
        amounts, fixed_rule = dict(self._iterate_amounts()), self._fixed_rule
        undecided = self.header.adaptive and fixed_rule is None and self.first is not None
        if not amounts or undecided or (fixed_rule is not None and fixed_rule not in amounts):
            raise damage_error(self.place, "its entries cannot be added up")
        return amounts


RESTORE = (
    "Restore the newest copy, and call verify() with the head that you noted last or with that of the newest release, "
    "release.attrs['ledger_head']: an older copy would give back what was spent since."
)
"""The way out for a ledger that is damaged or missing. The file itself cannot tell how old it is."""


def other_unit_message(place: str, unit: str | None, other_unit: str | None) -> str:
    """The message that a ledger is about another unit, and the way out."""
    unit_text = "do not say their unit" if unit is None else f"are about unit={unit!r}"
    return (
        f"{place} holds releases that {unit_text}, so one about unit={other_unit!r} does not compose with them. Keep a "
        f"ledger for each unit, such as Ledger(limit, unit={other_unit!r})."
    )


def damage_error(place: str, how: str, number: int | None = None) -> LedgerError:
    """The error about a ledger that differs from what was written to it, from an entry on."""
    start = "" if number is None else f" from entry {number} on"
    return LedgerError(f"{place} is damaged{start}: {how}. {RESTORE} Nothing may be released.")


def _tightest(by_rule: Mapping[str, Sequence[Amount]]) -> str:
    """The rule with the smallest maximum share of a limit, among rules under which all limits hold if there are any."""

    def order(rule: str) -> tuple[bool, Fraction]:
        return not all(amount.within for amount in by_rule[rule]), max(amount.share for amount in by_rule[rule])

    return min(by_rule, key=order)


# The composition rules, and the numbers that they need from each release.


def tracked_rules(limit: Guarantee, *, adaptive: bool) -> dict[str, Callable[[Balance], Amounts | None]]:
    """The composition rules that prove this limit, the fastest first, each as a function of a balance.

    A rule returns None where some entry lacks a number that it sums.
    """
    if Guarantee.checked(limit=limit).adds_up:
        # Losses of one measure add up, also for releases that are chosen adaptively (Feldman and Zrnic 2021).
        return {limit.measure: _sum_rule((limit.measure, limit.measure, as_decimal(limit.budget)))}
    delta = as_decimal(limit.allowed)
    # Epsilons and deltas add up (Dwork et al. 2006), also as a filter (Rogers, Roth, Ullman and Vadhan 2016).
    basic = _sum_rule(("epsilon", "epsilon", as_decimal(limit.budget)), ("delta", "delta", delta))
    if not adaptive:
        return {"basic": basic, "best order": _best_order_epsilon, "optimal composition": _optimal_composition}
    order, max_divergence = _suitable_order(limit.budget, limit.allowed)
    if not (max_divergence > 0 and math.isfinite(order)):
        return {"basic": basic}
    # Rényi divergences at one order, converted to the limit at the end.
    divergences = _sum_rule(
        ("divergence", f"Rényi divergence at order {order:.4g}", as_decimal(max_divergence)),
        ("divergence leak", "delta outside of it", EXACT.multiply(delta, 1 - as_decimal(_CONVERSION_SHARE))),
    )
    return {"basic": basic, "divergences": divergences}


def _sum_rule(*limits: tuple[str, str, Decimal]) -> Callable[[Balance], Amounts | None]:
    """The rule that sums numbers: for each, its name in costs, its label, and the largest sum."""

    def compute(balance: Balance) -> Amounts | None:
        amounts = [
            Amount(label, total, max_sum) for name, label, max_sum in limits if (total := balance.sum(name)) is not None
        ]
        return tuple(amounts) if len(amounts) == len(limits) else None

    return compute


def _best_order_epsilon(balance: Balance) -> Amounts | None:
    """The least epsilon over the tracked orders, at the remaining delta."""
    limit, least = balance.header.limit, math.inf
    for order in _ORDERS:
        spent, leak = balance.sum(f"order {order:g}"), balance.sum(f"order {order:g} leak")
        if spent is None or leak is None:
            continue
        # Delta is rounded down and the divergence up, because the epsilon is a guarantee.
        left = math.nextafter(float(EXACT.subtract(as_decimal(limit.allowed), leak)), -math.inf)
        if left > 0:
            divergence = math.nextafter(float(spent), math.inf)
            least = min(least, epsilon_at(order, divergence, left)) if spent > 0 else 0.0
    return (Amount("epsilon", as_decimal(least), as_decimal(limit.budget)),) if math.isfinite(least) else None


def _optimal_composition(balance: Balance) -> Amounts | None:
    """Composition of the worst case of each (epsilon, delta) (Kairouz, Oh and Viswanath 2017)."""
    if sum(balance.guarantees.values()) < max(1, balance.n_entries):
        return None
    limit, composition = balance.header.limit, Composition(_worst_case_parts(balance.guarantees))
    largest = as_decimal(limit.budget)
    if composition._delta(limit.budget) > limit.allowed:
        # The amount past the limit is not needed, and an epsilon need not exist.
        return (Amount("epsilon", max(EXACT.multiply(largest, Decimal(2)), as_decimal(math.ulp(0))), largest),)
    return (Amount("epsilon", min(as_decimal(composition._epsilon(limit.allowed)), largest), largest),)


def cost_of(
    limit: Guarantee, guarantee: Guarantee, mechanism: PrivacyCurves | None, *, adaptive: bool
) -> dict[str, float]:
    """The cost of one release against the limit.

    Parameters
    ----------
    limit : Guarantee
        The joint guarantee of all releases of the ledger.
    guarantee : Guarantee
        The guarantee of the release.
    mechanism : PrivacyCurves or None
        The privacy curves of the release, if known. They cost less than the guarantee implies.
    adaptive : bool
        Whether the next release may be chosen after seeing this one.
    """
    if Guarantee.checked(limit=limit).adds_up:
        return {limit.measure: _loss(limit, guarantee, mechanism)}
    epsilon, delta = guarantee.budget, guarantee.stated_delta
    if delta is None:
        # State a release without a delta at a tenth of the limit's delta.
        delta = max(limit.allowed * 0.1, math.ulp(0))
        epsilon = _loss(ApproxDP(epsilon=1, delta=delta), guarantee, mechanism)
    # Use pure differential privacy where it costs no more.
    if mechanism is not None and mechanism.pure_epsilon <= epsilon:
        epsilon, delta = mechanism.pure_epsilon, 0.0
    cost = {"epsilon": epsilon, "delta": delta}
    for name, order in _orders_by_name(limit, adaptive=adaptive).items():
        divergence, leak = RenyiDP(order=order, epsilon=1), 0.0
        try:
            loss = _loss(divergence, guarantee, mechanism)
        except ArgumentError:
            # (epsilon, delta) is pure epsilon except with probability delta.
            loss, leak = divergence.loss(Bounded(epsilon, 0.0)), delta
        cost |= {name: loss, f"{name} leak": leak}
    return {name: value for name, value in cost.items() if math.isfinite(value)}


def _worst_case_parts(
    guarantees: Mapping[tuple[float, float], int], *, max_epsilons: int = 1000
) -> tuple[tuple[PrivacyCurves, int], ...]:
    """The worst case of some guarantees, in a few parts: each epsilon by itself, and all deltas in one.

    If there are more than `max_epsilons` different epsilons, each is rounded up.
    """
    must_round = len({epsilon for epsilon, _ in guarantees}) > max_epsilons
    counts: Counter[float] = Counter()
    for (epsilon, _), count in guarantees.items():
        counts[_round_up(epsilon) if must_round else epsilon] += count
    log_survival = math.fsum(count * math.log1p(-delta) for (_, delta), count in guarantees.items() if delta < 1)
    # Near 0 the logarithm is accurate where 1 - delta is not. The factor covers its rounding.
    leak = 1.0 if any(delta >= 1 for _, delta in guarantees) else -math.expm1(log_survival)
    leak = min(1.0, raised(leak, 16)) if log_survival else leak
    parts = [(Bounded(epsilon, 0.0), count) for epsilon, count in counts.items()]
    return (*parts, (Bounded(0.0, leak), 1)) if leak > 0 else tuple(parts)


def _round_up(epsilon: float, *, ratio: float = 1.001) -> float:
    """The least power of `ratio` that is not below `epsilon`, where powers are doubles."""
    if not 1e-300 < epsilon < 1e300:
        return epsilon
    return max(ratio ** math.ceil(math.log(epsilon) / math.log(ratio)), epsilon)


def _orders_by_name(limit: Guarantee, *, adaptive: bool) -> dict[str, float]:
    """The Rényi orders at which divergences are summed for an (epsilon, delta), by the name of their sum."""
    if not adaptive:
        return {f"order {order:g}": order for order in _ORDERS}
    by_order = "divergences" in tracked_rules(limit, adaptive=True)
    return {"divergence": _suitable_order(limit.budget, limit.allowed)[0]} if by_order else {}


@lru_cache
def _suitable_order(epsilon: float, delta: float) -> tuple[float, float]:
    """A good Rényi order for this limit if losses are nearly Gaussian, and the divergence that implies the limit.

    The divergence is 0 where no order helps.
    """
    delta *= _CONVERSION_SHARE
    if epsilon == 0 or delta == 0:
        return math.inf, 0.0
    log = -math.log(delta)
    root = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))
    order = 1 + math.sqrt(log) / root if root > 0 else math.inf
    # At larger orders the conversion has no correct digit in doubles.
    if not 1 < order < 1e15:
        return order, 0.0
    # Lower the budget by a few roundings, because its conversion must not exceed the limit.
    budget = epsilon - epsilon_at(order, 0.0, delta)
    step = math.ulp(budget)
    while budget > 0 and epsilon_at(order, budget, delta) > epsilon:
        budget -= step
        step *= 2
    return order, max(budget, 0.0)


def _loss(kind: Guarantee, guarantee: Guarantee, mechanism: PrivacyCurves | None) -> float:
    """The privacy loss of a release in the measure of `kind`: from its curves, or else implied by its guarantee."""
    if mechanism is not None and math.isfinite(loss := kind.least_budget(mechanism)):
        return loss
    return convert(guarantee, type(kind), **kind.fixed).budget


def _double_above(value: Decimal) -> float:
    """The least double that is not below the decimal."""
    double = float(value)
    return double if as_decimal(double) >= value else math.nextafter(double, math.inf)


def check_ledger_type(ledger: object) -> None:
    """Refuse anything but a ledger, such as its limit or its path."""
    if ledger is not None and not hasattr(ledger, "spend"):
        raise ArgumentError(
            f"Expected ledger to be a Ledger, got {type_name(ledger)}. Create it once, by Ledger(limit) or "
            "Ledger(limit, path), where limit is a guarantee."
        )
