"""What releases cost together, exactly, by which rules that is added up, and what a ledger admits."""

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
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import Bounded, PrivacyCurves, convert, epsilon_at
from pymc_dirdp.privacy.guarantees import ApproxDP, Guarantee, PureDP, RenyiDP

# What releases cost against a limit, and when they are within it. These are the rules; the ledger keeps the record.
#
# Anyone who keeps a ledger decides on the next release after seeing earlier ones, so a rule of adding up has to be
# valid for guarantees that are chosen adaptively. Divergences at one order and plain sums are valid. The best order, or
# the better of two rules, chosen afterwards, is not known to be. So the limit fixes one order, and the first release,
# which nobody chose after seeing anything, fixes one rule.

# Orders at which divergences are summed for a ledger whose releases are fixed in advance.
_ORDERS = tuple(1 + 2.0 ** (k / 2) for k in range(-6, 19))
# The share of delta that a conversion from divergences uses; the rest is for releases known only up to a delta.
_CONVERTED = 0.5

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
    def state(self) -> str:
        """How much is spent and left, in words."""
        spent, limit, left = map(float, (self.spent, self.limit, self.left))
        return f"{spent:.6g} of {limit:.6g} spent, {left:.6g} left"

    @property
    def share(self) -> Fraction:
        """The part of the limit that is spent."""
        return Fraction(self.spent) / Fraction(self.limit) if self.limit > 0 else Fraction(int(self.spent > 0))


Amounts = tuple[Amount, ...]


@final
@dataclass(frozen=True)
class Balance:
    """What the entries of a ledger cost together, and what it admits beside them.

    All that is known of the entries is folded into it by :meth:`after`, and its size depends on the kinds of their
    costs, and on open reservations, and not on the number of entries. All rules about what a ledger admits are here:
    releases about its unit that stay within its limit.

    Attributes
    ----------
    header : Header
        What the ledger is for.
    place : str
        Where the ledger is, as the subject of a sentence.
    last : (int, str, str)
        Number, text and hash of the last line of the chain, which is the header where there is no entry.
    first : Entry or None
        The first entry, which decides how the others are added up and whom they are about.
    counted : int
        How many entries the sums are of: a reservation that was used is no longer among them.
    sums : mapping of str to (int, Decimal)
        For each number how many of the entries have it, and its exact sum.
    guarantees : mapping of (float, float) to int
        How many of the entries cost this epsilon and delta; only for releases that are fixed in advance.
    reservations : mapping of int to Entry
        Those that no release has used, by number.
    """

    header: Header
    place: str
    last: Row
    first: Entry | None = None
    counted: int = 0
    sums: Mapping[str, tuple[int, Decimal]] = field(default_factory=dict)
    guarantees: Mapping[tuple[float, float], int] = field(default_factory=dict)
    reservations: Mapping[int, Entry] = field(default_factory=dict)

    def after(self, entries: Sequence[Entry]) -> "Balance":
        """The balance after some more entries. The use of a reservation gives its cost back."""
        counted, sums, reservations = self.counted, dict(self.sums), dict(self.reservations)
        guarantees = Counter(self.guarantees)
        for entry in entries:
            changes = [(entry.cost, 1, EXACT.add)]
            if entry.uses is not None:
                if entry.uses not in reservations:
                    raise damaged(self.place, "it uses an entry that is no open reservation", entry.number)
                changes.append((reservations.pop(entry.uses).cost, -1, EXACT.subtract))
            if entry.reserved:
                reservations[entry.number] = entry
            for cost, sign, changed in changes:
                counted += sign
                for name, value in cost.items():
                    having, total = sums.get(name, (0, Decimal(0)))
                    sums[name] = having + sign, changed(total, as_decimal(value))
                if not self.header.adaptive and {"epsilon", "delta"} <= set(cost):
                    guarantees[cost["epsilon"], cost["delta"]] += sign
        return replace(
            self,
            first=self.first or next(iter(entries), None),
            counted=counted,
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
        having, total = self.sums.get(name, (0, Decimal(0)))
        return total if having == self.counted else None

    @property
    def unit(self) -> str | None:
        """Whom the guarantees are about: what the ledger was made for, or what its first release said."""
        return self.header.unit if self.first is None else self.first.unit

    def admitted(self, asked: Sequence[Entry], time: str) -> list[Entry]:
        """The entries that some releases or reservations become, if all of them fit together.

        Raises
        ------
        BudgetError
            If they do not fit.
        ArgumentError
            If they are about another unit, use what is no open reservation, or cost what the ledger does not add up.
        """
        entries = []
        for number, entry in enumerate(asked, start=self.last[0] + 1):
            if entry.uses is not None and entry.uses not in self.reservations:
                still = ", ".join(map(str, self.reservations)) or "none"
                raise ArgumentError(
                    f"Entry {entry.uses} of {self.place[0].lower()}{self.place[1:]} is no open reservation. Open are: "
                    f"{still}. Make one by ledger.reserve(...), or leave using() out."
                )
            entries.append(replace(entry, number=number, recorded=time, unit=self._agreed_unit(entry)))
        rule = self._agreed_rule(entries)
        return [replace(entry, composition_rule=rule) for entry in entries]

    def _agreed_unit(self, entry: Entry) -> str | None:
        """The unit of a release, which has to be the unit of all others."""
        unit = entry.unit or self.header.unit or self.unit
        if self.first is None and self.unit is None:
            if entry.reserved and unit is None:
                raise ArgumentError(
                    "Say whom the releases will protect, because the first entry of a ledger decides it: "
                    'ledger.reserve(..., unit="record"), or the name of the people, such as unit="person".'
                )
        elif unit != self.unit:
            raise ArgumentError(about_others(self.place, self.unit, unit))
        return unit

    def _agreed_rule(self, entries: Sequence[Entry]) -> str | None:
        """The rule by which some more entries are within the limit, if that stays fixed from now on."""
        amounts: dict[str, Amounts] = {}
        for rule, by_rule in self.after(entries)._by_rules():
            # A slower rule is tried only if the quicker ones are not enough.
            if not self.header.adaptive and all(amount.within for amount in by_rule):
                return None
            amounts[rule] = by_rule
        # The ledger itself is checked before a release is refused.
        before, fixed = self._checked, self._fixed_rule
        if not amounts or (fixed is not None and fixed not in amounts):
            raise ArgumentError(
                f"Pass mechanism=, or state the release as {type(self.header.limit).__name__}, as the limit: "
                f"{entries[-1].guarantee} alone does not imply what this ledger adds up"
                f"{'' if fixed is None else f' by the rule {fixed!r}'}."
            )
        rule = fixed or _tightest(amounts)
        if not all(amount.within for amount in amounts[rule]):
            now = "; ".join(f"{amount.label}: {amount.state}" for amount in before.get(rule, ()))
            then = "; ".join(f"{amount.label}: {float(amount.spent):.6g}" for amount in amounts[rule])
            raise BudgetError(f"Now {now}. With it {then}.")
        return rule if self.header.adaptive else None

    def largest_admitted(self, like: Guarantee) -> Guarantee | None:
        """The largest guarantee of the same kind and delta that is admitted without a mechanism, to three digits.

        None if not even one of 1e-9 is: nothing is left, or the limit does not add up such guarantees.
        """

        def fails(budget: float) -> bool:
            guarantee = like.with_budget(budget)
            try:
                cost = cost_of(self.header.limit, guarantee, None, adaptive=self.header.adaptive)
                self._agreed_rule([Entry(0, "now", "one more release", guarantee, cost)])
            except (ArgumentError, BudgetError):
                return True
            return False

        def budget(place: int) -> float:
            """The numbers of three digits from 1e-9 on, in order."""
            return float(f"{100 + place % 900}e{place // 900 - 11}")

        # Up to 1e10. What is returned was tried.
        admitted = bisect_left(range(19 * 900), True, key=lambda place: fails(budget(place)))
        return like.with_budget(budget(admitted - 1)) if admitted else None

    @cached_property
    def rule(self) -> str | None:
        """The rule that is fixed, or the tightest; None while there is no entry and several rules are open."""
        return self._fixed_rule if self.first is None else self._fixed_rule or _tightest(self._checked)

    @property
    def amounts(self) -> Amounts:
        """What all entries cost, by the rule or else by the tightest."""
        return self._checked[self.rule or _tightest(self._checked)]

    @property
    def within(self) -> bool:
        """Whether the entries keep the limit. Those that were admitted do, and a file may hold others."""
        return all(amount.within for amount in self.amounts)

    @property
    def together(self) -> Guarantee:
        """What all entries keep together, which is the limit or a tighter guarantee of its kind, or a pure one.

        Where releases were chosen after seeing others, no sum of divergences or deltas is known to be a guarantee by
        itself (Rogers et al. 2016), so the limit is said. Pure losses are bounded output by output, so their sum always
        is.
        """
        if not self.within:
            raise damaged(self.place, "its entries do not keep its limit")
        limit, epsilon = self.header.limit, self.sum("epsilon")
        is_pure = limit.is_pure or (limit.stated_delta and self.sum("delta") == 0)
        if is_pure and epsilon and (least := _not_below(epsilon)) <= limit.budget:
            return PureDP(epsilon=least)
        if self.header.adaptive or not self.amounts[0].spent:
            return limit
        budget, *deltas = (_not_below(amount.spent) for amount in self.amounts)
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

    def _by_rules(self) -> Iterator[tuple[str, Amounts]]:
        """What the entries cost by each rule that applies to all of them, the quickest rule first."""
        for rule, applied in tracked_rules(self.header.limit, adaptive=self.header.adaptive).items():
            if (amounts := applied(self)) is not None:
                yield rule, amounts

    @cached_property
    def _checked(self) -> dict[str, Amounts]:
        """What the entries cost by each rule, or an error if they do not add up by the rule that was fixed."""
        amounts, fixed = dict(self._by_rules()), self._fixed_rule
        undecided = self.header.adaptive and fixed is None and self.first is not None
        if not amounts or undecided or (fixed is not None and fixed not in amounts):
            raise damaged(self.place, "its entries cannot be added up")
        return amounts


RESTORE = (
    "Restore the newest copy, and call verify() with the head that was noted last or with the one in the newest "
    "release, release.attrs['ledger_head']: an older copy would give back what was spent since."
)
"""The way out for a ledger that is damaged or missing. The file itself cannot tell how old it is."""


def about_others(place: str, unit: str | None, asked: str | None) -> str:
    """That a ledger is about another unit than is asked for, and the way out."""
    stated = "do not say their unit" if unit is None else f"are about unit={unit!r}"
    return (
        f"{place} holds releases that {stated}, so one about unit={asked!r} does not add up with them. Keep one ledger "
        f"for each unit, such as Ledger(limit, unit={asked!r})."
    )


def damaged(place: str, how: str, number: int | None = None) -> LedgerError:
    """The error about a ledger that is not what was written to it, from an entry on."""
    start = "" if number is None else f" from entry {number} on"
    return LedgerError(f"{place} is damaged{start}: {how}. {RESTORE} Nothing may be released.")


def _tightest(by_rule: Mapping[str, Sequence[Amount]]) -> str:
    """The rule by which the largest share of a limit is least; one by which all limits hold, if there is one."""

    def order(rule: str) -> tuple[bool, Fraction]:
        return not all(amount.within for amount in by_rule[rule]), max(amount.share for amount in by_rule[rule])

    return min(by_rule, key=order)


# The rules by which costs are added up, and the numbers that they need of each release.


def tracked_rules(limit: Guarantee, *, adaptive: bool) -> dict[str, Callable[[Balance], Amounts | None]]:
    """The rules of adding up that prove this limit, the quickest first, and what entries have spent by each.

    A rule gives None where the entries do not all have the numbers that it adds up.
    """
    if Guarantee.checked(limit=limit).adds_up:
        # Losses of one measure add up, also for releases that are chosen adaptively (Feldman and Zrnic 2021).
        return {limit.measure: _summed((limit.measure, limit.measure, as_decimal(limit.budget)))}
    delta = as_decimal(limit.allowed)
    # Epsilons and deltas add up (Dwork et al. 2006), also as a filter (Rogers, Roth, Ullman and Vadhan 2016).
    basic = _summed(("epsilon", "epsilon", as_decimal(limit.budget)), ("delta", "delta", delta))
    if not adaptive:
        return {"basic": basic, "best order": _best_order, "optimal composition": _optimal}
    order, most = _order(limit.budget, limit.allowed)
    if not (most > 0 and math.isfinite(order)):
        return {"basic": basic}
    # Rényi divergences at one order, converted to the limit at the end.
    divergences = _summed(
        ("divergence", f"Rényi divergence at order {order:.4g}", as_decimal(most)),
        ("divergence leak", "delta outside of it", EXACT.multiply(delta, 1 - as_decimal(_CONVERTED))),
    )
    return {"basic": basic, "divergences": divergences}


def _summed(*limits: tuple[str, str, Decimal]) -> Callable[[Balance], Amounts | None]:
    """The rule that numbers are added: of each its name in costs, its label, and what the sum must not exceed."""

    def spent(balance: Balance) -> Amounts | None:
        amounts = [
            Amount(label, total, most) for name, label, most in limits if (total := balance.sum(name)) is not None
        ]
        return tuple(amounts) if len(amounts) == len(limits) else None

    return spent


def _best_order(balance: Balance) -> Amounts | None:
    """The least epsilon over the tracked orders, at what is left of delta."""
    limit, least = balance.header.limit, math.inf
    for order in _ORDERS:
        spent, leaked = balance.sum(f"order {order:g}"), balance.sum(f"order {order:g} leak")
        if spent is None or leaked is None:
            continue
        # Delta is rounded down and the divergence up, because the epsilon is a guarantee.
        left = math.nextafter(float(EXACT.subtract(as_decimal(limit.allowed), leaked)), -math.inf)
        if left > 0:
            divergence = math.nextafter(float(spent), math.inf)
            least = min(least, _converted(order, divergence, left)) if spent > 0 else 0.0
    return (Amount("epsilon", as_decimal(least), as_decimal(limit.budget)),) if math.isfinite(least) else None


def _optimal(balance: Balance) -> Amounts | None:
    """Composition of what each (epsilon, delta) allows at worst (Kairouz, Oh and Viswanath 2017)."""
    if sum(balance.guarantees.values()) < max(1, balance.counted):
        return None
    limit, composition = balance.header.limit, Composition(_worst(balance.guarantees))
    largest = as_decimal(limit.budget)
    if composition._delta(limit.budget) > limit.allowed:
        # The amount past the limit is of no use, and an epsilon need not exist.
        return (Amount("epsilon", max(EXACT.multiply(largest, Decimal(2)), as_decimal(math.ulp(0))), largest),)
    return (Amount("epsilon", min(as_decimal(composition._epsilon(limit.allowed)), largest), largest),)


def cost_of(
    limit: Guarantee, guarantee: Guarantee, mechanism: PrivacyCurves | None, *, adaptive: bool
) -> dict[str, float]:
    """What one release costs against the limit.

    Parameters
    ----------
    limit : Guarantee
        What all releases of the ledger together guarantee.
    guarantee : Guarantee
        What the release guarantees.
    mechanism : PrivacyCurves or None
        The curves of the release, where they are known: they cost less than what the guarantee implies.
    adaptive : bool
        Whether the next release may be chosen after seeing this one.
    """
    if Guarantee.checked(limit=limit).adds_up:
        return {limit.measure: _loss(limit, guarantee, mechanism)}
    epsilon, delta = guarantee.budget, guarantee.stated_delta
    if delta is None:
        # The share of the limit's delta at which a release without a delta of its own is stated.
        delta = max(limit.allowed * 0.1, math.ulp(0))
        epsilon = _loss(ApproxDP(epsilon=1, delta=delta), guarantee, mechanism)
    # Pure where that costs no more.
    if mechanism is not None and mechanism.pure_epsilon <= epsilon:
        epsilon, delta = mechanism.pure_epsilon, 0.0
    cost = {"epsilon": epsilon, "delta": delta}
    for name, order in _orders(limit, adaptive=adaptive).items():
        divergence, leak = RenyiDP(order=order, epsilon=1), 0.0
        try:
            loss = _loss(divergence, guarantee, mechanism)
        except ArgumentError:
            # (epsilon, delta) is pure epsilon except with probability delta.
            loss, leak = divergence.loss(Bounded(epsilon, 0.0)), delta
        cost |= {name: loss, f"{name} leak": leak}
    return {name: value for name, value in cost.items() if math.isfinite(value)}


def _worst(
    guarantees: Mapping[tuple[float, float], int], *, most_different: int = 1000
) -> tuple[tuple[PrivacyCurves, int], ...]:
    """What some guarantees allow at worst, in few different parts: each epsilon by itself, and all deltas in one.

    Above so many different epsilons as `most_different` each is rounded up.
    """
    rounded = len({epsilon for epsilon, _ in guarantees}) > most_different
    times: Counter[float] = Counter()
    for (epsilon, _), count in guarantees.items():
        times[_rounded_up(epsilon) if rounded else epsilon] += count
    survives = math.fsum(count * math.log1p(-delta) for (_, delta), count in guarantees.items() if delta < 1)
    # Next to 0 the logarithm keeps the digits that 1 - delta would lose; the factor covers its rounding.
    leak = 1.0 if any(delta >= 1 for _, delta in guarantees) else min(1.0, -math.expm1(survives) * (1 + 1e-14))
    parts = [(Bounded(epsilon, 0.0), count) for epsilon, count in times.items()]
    return (*parts, (Bounded(0.0, leak), 1)) if leak > 0 else tuple(parts)


def _rounded_up(epsilon: float, *, ratio: float = 1.001) -> float:
    """The least power of `ratio` that is not below, where powers are doubles."""
    if not 1e-300 < epsilon < 1e300:
        return epsilon
    return max(ratio ** math.ceil(math.log(epsilon) / math.log(ratio)), epsilon)


def _orders(limit: Guarantee, *, adaptive: bool) -> dict[str, float]:
    """The Rényi orders at which divergences are summed for an (epsilon, delta), by the name of their sum."""
    if not adaptive:
        return {f"order {order:g}": order for order in _ORDERS}
    by_order = "divergences" in tracked_rules(limit, adaptive=True)
    return {"divergence": _order(limit.budget, limit.allowed)[0]} if by_order else {}


def _converted(order: float, divergence: float, delta: float) -> float:
    """The epsilon that a divergence implies, with room for the rounding of the conversion."""
    return epsilon_at(order, divergence, delta) * (1 + 1e-14) + 1e-13


@lru_cache
def _order(epsilon: float, delta: float) -> tuple[float, float]:
    """The order that suits the limit if losses are about Gaussian, and the divergence at it that implies the limit.

    The divergence is 0 where no order is of use.
    """
    delta *= _CONVERTED
    if epsilon == 0 or delta == 0:
        return math.inf, 0.0
    log = -math.log(delta)
    root = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))
    order = 1 + math.sqrt(log) / root if root > 0 else math.inf
    # At larger orders a double holds no digit of the conversion.
    if not 1 < order < 1e15:
        return order, 0.0
    # The budget is lowered by some roundings, because its conversion must not exceed the limit.
    budget = epsilon - epsilon_at(order, 0.0, delta)
    step = math.ulp(budget)
    while budget > 0 and _converted(order, budget, delta) > epsilon:
        budget -= step
        step *= 2
    return order, max(budget, 0.0)


def _loss(kind: Guarantee, guarantee: Guarantee, mechanism: PrivacyCurves | None) -> float:
    """The loss of a release in the measure of a kind: from its curves, or else what its guarantee implies."""
    if mechanism is not None and math.isfinite(known := kind.least_budget(mechanism)):
        return known
    return convert(guarantee, type(kind), **kind.fixed).budget


def _not_below(value: Decimal) -> float:
    """The least double that is not below, as both are written."""
    found = float(value)
    return found if as_decimal(found) >= value else math.nextafter(found, math.inf)


def check_ledger_type(ledger: object) -> None:
    """Refuse what somebody passes in the place of a ledger, such as its limit or its path."""
    if ledger is not None and not hasattr(ledger, "spend"):
        raise ArgumentError(
            f"Expected ledger to be a Ledger, got {type_name(ledger)}. Make it once, by Ledger(limit) or "
            "Ledger(limit, path), where limit is a guarantee."
        )
