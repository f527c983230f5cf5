"""What a ledger says: whom it is about, what it assumes, what was released and what is left."""

from collections.abc import Sequence
from typing import Any

from pymc_dirdp.accounting.amounts import Amount
from pymc_dirdp.accounting.entries import Entry, Header
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["COLUMNS", "footing", "heading", "refusal", "rows", "unused"]

COLUMNS = ("number", "recorded", "what", "guarantee")


def heading(header: Header, entries: Sequence[Entry]) -> list[str]:
    """What the ledger is for, and what has to be true for the sum of its guarantees to hold."""
    fixed = "" if header.adaptive else "; releases fixed in advance"
    unit = "" if header.unit is None else f"; unit {header.unit}"
    numbers: dict[str, list[int]] = {}
    for entry in entries:
        for assumption in entry.terms.assumptions:
            numbers.setdefault(assumption, []).append(entry.number)
    assumed = [f"Assumed: {text} ({_ranges(which)})." for text, which in numbers.items()]
    return [f"Ledger of {header.limit}, {header.adjacency}{fixed}{unit}", *assumed]


def rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The entries as rows of a table."""
    used = {entry.uses for entry in entries}
    return [
        {column: getattr(entry, column) for column in COLUMNS} | {"what": _what(entry, used=entry.number in used)}
        for entry in entries
    ]


def _what(entry: Entry, *, used: bool) -> str:
    if entry.reserved:
        return f"{entry.what} ({'reservation that was used' if used else 'reserved'})"
    return entry.what if entry.uses is None else f"{entry.what} (as reserved in entry {entry.uses})"


def unused(entries: Sequence[Entry]) -> list[str]:
    """Which reservations are open, if there are any."""
    used = {entry.uses for entry in entries}
    still = [entry.number for entry in entries if entry.reserved and entry.number not in used]
    return [f"of it reserved: {_ranges(still)}"] if still else []


def footing(rule: str | None, amounts: Sequence[Amount]) -> list[str]:
    """What is spent and left, and how it is added up."""
    lines = [f"{amount.label}: {_shown(amount)}" for amount in amounts]
    return [*lines, f"added up by the rule: {rule}"] if rule else lines


def refusal(before: Sequence[Amount], after: Sequence[Amount], guarantee: Guarantee, rule: str) -> str:
    """The message that says why a release does not fit."""
    now = "; ".join(f"{amount.label}: {_shown(amount)}" for amount in before)
    then = "; ".join(f"{amount.label}: {float(amount.spent):.6g}" for amount in after)
    return (
        f"A release of {guarantee} was asked for and does not fit, so nothing was recorded. Now {now}. With it {then} "
        f"(added up by the rule {rule!r}). Ask for a tighter guarantee, or stop releasing data about these people."
    )


def _shown(amount: Amount) -> str:
    return f"{float(amount.spent):.6g} of {float(amount.limit):.6g} spent, {float(amount.left):.6g} left"


def _ranges(numbers: Sequence[int]) -> str:
    """The numbers as a text, such as "entries 1, 3 to 5"."""
    known = set(numbers)
    starts = [n for n in numbers if n - 1 not in known]
    ends = [n for n in numbers if n + 1 not in known]
    listed = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return f"{'entry' if len(known) == 1 else 'entries'} {', '.join(listed)}"
