"""Which releases a ledger admits: those about its unit that stay within its limit."""

from pymc_dirdp.accounting.amounts import Amount, Cost
from pymc_dirdp.accounting.budget import balances, cost_of, kept_rules, tightest
from pymc_dirdp.accounting.chain import Position
from pymc_dirdp.accounting.entries import Header
from pymc_dirdp.accounting.text import refusal
from pymc_dirdp.errors import ArgumentError, BudgetError, LedgerError, type_name
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["admitted", "agreed_unit", "balance", "largest_admitted", "refuse_other", "unit_at", "without_reservation"]


# Less than this, in the units of a guarantee, is nothing.
_LEAST = 1e-9


def refuse_other(ledger: object, *, reservation: object = None) -> None:
    """Refuse what somebody passes in the place of a ledger, such as its limit or its path, or a reservation of none."""
    if reservation is not None and ledger is None:
        raise ArgumentError("reservation is the number of an entry of a ledger. Pass ledger= too, or leave it out.")
    if ledger is not None and not hasattr(ledger, "spend"):
        raise ArgumentError(
            f"Expected ledger to be a Ledger, got {type_name(ledger)}. Make it once, by Ledger(limit) or "
            "Ledger(limit, path), where limit is a guarantee."
        )


def unit_at(header: Header, position: Position) -> str | None:
    """Whom the guarantees are about: what the ledger was made for, or what its first release said."""
    return header.unit if position.first is None else position.first.terms.unit


def agreed_unit(place: str, header: Header, position: Position, unit: str | None) -> str | None:
    """The unit of a release, which has to be the unit of all others."""
    fixed = unit_at(header, position)
    wanted = unit if unit is not None else header.unit if header.unit is not None else fixed
    if wanted == fixed or (position.first is None and fixed is None):
        return wanted
    if fixed is None:
        raise ArgumentError(
            f"{place} holds releases that do not say their unit, so nobody knows whether they add up with one about "
            f"unit={wanted!r}. Keep another ledger for it: Ledger(limit, unit={wanted!r})."
        )
    raise ArgumentError(
        f"{place} adds promises about unit={fixed!r}; keep one ledger for each unit. The release is about "
        f"unit={wanted!r}."
    )


def without_reservation(place: str, position: Position, number: int | None) -> Position:
    """What a ledger holds once a reservation is given back, or an error that says which ones are open."""
    if number is None or number in position.reservations:
        return position.giving_back(number)
    still = ", ".join(map(str, position.reservations)) or "none"
    raise ArgumentError(
        f"Entry {number} of {place[0].lower()}{place[1:]} is no reservation that can be used. Open: {still}. Make one "
        "by ledger.reserve(...), or leave reservation out."
    )


def admitted(place: str, header: Header, position: Position, cost: Cost, guarantee: Guarantee) -> str | None:
    """The rule by which a release is added up, if that stays fixed from now on.

    Raises
    ------
    BudgetError
        If the release does not fit.
    """
    fixed = _fixed_rule(header, position)
    totals = position.totals.plus([cost], adaptive=header.adaptive)
    after = {}
    for rule, amounts in balances(header.limit, totals, adaptive=header.adaptive):
        # A slower rule is tried only if the quicker ones are not enough.
        if not header.adaptive and all(amount.within for amount in amounts):
            return None
        after[rule] = amounts
    # The ledger itself is checked before the release is refused.
    before = _amounts_by_rule(place, header, position)
    if fixed is not None and fixed not in after and position.first is not None:
        raise BudgetError(
            f"This ledger adds up by the rule {fixed!r}, and the release has no finite cost there. State it as the "
            "ledger's own kind of guarantee, or pass the mechanism."
        )
    if not after:
        raise ArgumentError("The promise of this release says nothing about what the limit adds up.")
    rule = fixed or tightest(after)
    if not all(amount.within for amount in after[rule]):
        raise BudgetError(refusal(before.get(rule, ()), after[rule], guarantee, rule))
    return rule if header.adaptive else None


def largest_admitted(place: str, header: Header, position: Position, like: Guarantee) -> Guarantee | None:
    """The largest guarantee of the same kind and delta that is admitted without a mechanism, to three digits.

    None if none is: nothing is left, or the limit does not add up such guarantees.
    """

    def fits(budget: float) -> bool:
        asked = like.with_budget(budget)
        try:
            admitted(place, header, position, cost_of(header.limit, asked, None, adaptive=header.adaptive), asked)
        except (ArgumentError, BudgetError):
            return False
        return True

    digit = 1.0
    while digit > _LEAST and not fits(digit):
        digit /= 10
    while _LEAST < digit < 1 / _LEAST and fits(10 * digit):
        digit *= 10
    # `digit` is admitted and ten times as much is not: three digits are found one by one, each from below.
    found = 0.0
    for step in (digit, digit / 10, digit / 100) if digit > _LEAST else ():
        tried = [float(f"{found + n * step:.3g}") for n in range(9, 0, -1)]
        found = next(filter(fits, tried), found)
    return like.with_budget(found) if found else None


def balance(place: str, header: Header, position: Position) -> tuple[str | None, tuple[Amount, ...]]:
    """The rule that is fixed, or the tightest, and what all entries cost by it.

    The rule is None while there is no entry and several rules are open.
    """
    fixed, amounts = _fixed_rule(header, position), _amounts_by_rule(place, header, position)
    rule = fixed or tightest(amounts)
    return (rule if position.first is not None else fixed), amounts[rule]


def _fixed_rule(header: Header, position: Position) -> str | None:
    """The rule that the limit or the first release fixed; None if the tightest is chosen again each time."""
    rules = kept_rules(header.limit, adaptive=header.adaptive)
    if len(rules) == 1:
        return rules[0]
    return position.first.composition_rule if position.first is not None and header.adaptive else None


def _amounts_by_rule(place: str, header: Header, position: Position) -> dict[str, tuple[Amount, ...]]:
    """What the entries cost by each rule, or an error if they do not add up by the rule that was fixed."""
    amounts = dict(balances(header.limit, position.totals, adaptive=header.adaptive))
    fixed = _fixed_rule(header, position)
    undecided = header.adaptive and fixed is None and position.first is not None
    if not amounts or undecided or (fixed is not None and fixed not in amounts):
        raise LedgerError(
            f"{place} is damaged: its entries cannot be added up. Restore it from a copy. Nothing may be released."
        )
    return amounts
