"""Entries of a ledger: amounts, what an entry holds, the chain of hashes, and their text."""

import hashlib
import json
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Clamped, Context, Decimal, Inexact, Overflow, Rounded, Underflow
from fractions import Fraction
from typing import Any, Self, final

from pymc_dirdp.checks import at_least, integer
from pymc_dirdp.display import visible
from pymc_dirdp.errors import ArgumentError, LedgerError, type_name
from pymc_dirdp.numerics.roots import ceil_to_digits
from pymc_dirdp.privacy.guarantees import KINDS, Guarantee

__all__ = [
    "COLUMNS",
    "EXACT",
    "NONSENSE",
    "Amount",
    "Cost",
    "Entry",
    "Header",
    "Position",
    "Receipt",
    "Terms",
    "Totals",
    "Transaction",
    "added_up",
    "as_decimal",
    "chained",
    "footing",
    "heading",
    "one_line",
    "refusal",
    "rows",
    "unused",
]

# Numbers that are added up exactly, as they are written: what a release costs, and what many of them cost together.


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
    guarantees: Mapping[tuple[float, float], int] = field(default_factory=dict)

    def plus(self, costs: Iterable[Cost], *, adaptive: bool) -> "Totals":
        """The totals of these releases and some more."""
        releases, sums, guarantees = self.releases, dict(self.sums), Counter(self.guarantees)
        for cost in costs:
            names = set(cost) if releases == 0 else set(cost) & set(sums)
            sums = {name: EXACT.add(sums.get(name, Decimal(0)), as_decimal(cost[name])) for name in sorted(names)}
            releases += 1
            if not adaptive and {"epsilon", "delta"} <= set(cost):
                guarantees[cost["epsilon"], cost["delta"]] += 1
        return Totals(releases, sums, guarantees)

    def without(self, cost: Cost) -> "Totals":
        """The totals of these releases except one of them, which has this cost."""
        sums = {name: EXACT.subtract(total, as_decimal(cost[name])) for name, total in self.sums.items()}
        guarantees = Counter(self.guarantees)
        if guarantees and {"epsilon", "delta"} <= set(cost):
            guarantees[cost["epsilon"], cost["delta"]] -= 1
        return Totals(self.releases - 1, sums, +guarantees)

    def sum(self, name: str) -> Decimal | None:
        """The sum of one number; None if some release does not have it."""
        return self.sums.get(name, None if self.releases else Decimal(0))


# What a ledger holds: what it is for, the releases, and the texts that stand for both in its file.


@final
@dataclass(frozen=True)
class Header:
    """What a ledger is for; it never changes. The fields are the parameters of :class:`Ledger`."""

    limit: Guarantee
    adaptive: bool
    adjacency: str
    unit: str | None = None

    def __str__(self) -> str:
        fixed = "" if self.adaptive else "; releases fixed in advance"
        unit = "" if self.unit is None else f"; unit {self.unit}"
        return f"{self.limit}, {self.adjacency}{fixed}{unit}"


@final
@dataclass(frozen=True)
class Terms:
    """Whom a release protects, and what it assumes. A fact that is None or empty was not stated.

    Attributes
    ----------
    unit : str or None
        Whom the guarantee is about, such as "record" or "person".
    contribution : int or str or None
        How many records of a unit are in one table at most, or a text that says it table by table.
    min_count : float or None
        The number of records that every cell is assumed to hold.
    groups : tuple of tuple of str
        The tables of each group, where no unit feeds two groups.
    digest : str or None
        A fingerprint of the plan.
    """

    unit: str | None = None
    contribution: int | str | None = None
    min_count: float | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    digest: str | None = None

    @classmethod
    def checked(
        cls,
        *,
        unit: str | None,
        contribution: int | str | None,
        min_count: float | None,
        groups: Iterable[Iterable[str]] | None,
        digest: str | None,
    ) -> Self:
        """The terms, or an error that names the argument that is wrong."""
        if contribution is not None and not isinstance(contribution, str):
            contribution = integer(1, contribution=contribution)
        if isinstance(groups, str):
            raise ArgumentError("Expected groups to be a sequence of groups of names, got a str.")
        return cls(
            None if unit is None else one_line(unit=unit),
            one_line(contribution=contribution) if isinstance(contribution, str) else contribution,
            None if min_count is None else at_least(0, min_count=min_count),
            tuple(tuple(one_line(groups=name) for name in group) for group in groups or ()),
            None if digest is None else one_line(digest=digest),
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What has to be true for the guarantee to hold, in words."""
        said = []
        if self.min_count:
            said.append(f"every cell holds at least {ceil_to_digits(self.min_count):g} records")
        if isinstance(self.contribution, str):
            said.append(f"a {self.unit or 'unit'} contributes no more than {self.contribution}")
        elif self.contribution is not None and (self.contribution, self.unit or "record") != (1, "record"):
            plural = "s" * (self.contribution > 1)
            said.append(f"one {self.unit or 'unit'} holds at most {self.contribution} record{plural} of a table")
        if len(self.groups) > 1:
            listed = " and ".join(f"({', '.join(group)})" for group in self.groups)
            said.append(f"no {self.unit or 'unit'} feeds two of {listed}")
        return tuple(said)


@final
@dataclass(frozen=True)
class Entry:
    """One release that was recorded, or a reservation for one.

    Attributes
    ----------
    number : int
        Entries are numbered from 1 on.
    recorded : str
        The time, in UTC, ISO 8601.
    what : str
        What was released: a public text, such as the names of the variables.
    guarantee : Guarantee
        What was guaranteed.
    cost : mapping of str to float
        The numbers that are added up, in nats or as probabilities.
    terms : Terms
        Whom the guarantee is about, and what it assumes.
    composition_rule : str or None
        How its cost was added to the others; None where the tightest rule is chosen again each time.
    reserved : bool
        Whether nothing was released yet, and the cost is reserved for a later release.
    uses : int or None
        The number of the reservation whose cost this release gave back when its own was added.
    """

    number: int
    recorded: str
    what: str
    guarantee: Guarantee
    cost: Mapping[str, float]
    terms: Terms
    composition_rule: str | None
    reserved: bool = False
    uses: int | None = None

    def row(self) -> tuple[int, str, str, str, str, str, str | None, int, int | None]:
        """The entry as a file holds it."""
        guarantee, cost, terms = written(self.guarantee), json.dumps(dict(self.cost)), json.dumps(asdict(self.terms))
        facts = self.number, self.recorded, self.what, guarantee, cost, terms, self.composition_rule
        return *facts, int(self.reserved), self.uses

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Self:
        """The entry that a file holds.

        Raises
        ------
        ValueError
            If the row is no entry. Other errors of wrong types and of numbers out of range are raised as they come.
        """
        number, recorded, what, guarantee, cost, terms, composition_rule, reserved, uses = row
        costs = {str(name): float(value) for name, value in json.loads(cost).items()}
        facts = json.loads(terms)
        optional = (composition_rule, facts["unit"], facts["digest"])
        texts = (recorded, what, *(text for text in optional if text is not None))
        # A sum with a cost that is no number could be anything.
        if not all(math.isfinite(value) and value >= 0 for value in costs.values()) or not costs:
            raise ValueError("A cost is no number.")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("A text is no text.")
        if reserved and uses is not None:
            raise ValueError("A reservation uses no other.")
        facts["groups"] = tuple(tuple(str(name) for name in group) for group in facts["groups"])
        own = Terms(**facts)
        return cls(number, recorded, what, understood(guarantee), costs, own, composition_rule, bool(reserved), uses)


@final
@dataclass(frozen=True)
class Receipt:
    """That a ledger has charged something: which entry of which ledger. It is public.

    Attributes
    ----------
    ledger : str
        The random text that was made with the ledger.
    number : int
        The number of the entry.
    hash : str
        The hash of the entry, which follows from all entries up to it.
    """

    ledger: str
    number: int
    hash: str

    @classmethod
    def from_facts(cls, facts: Any) -> Self:
        """The receipt of which these are the facts; an error of any kind if they are none."""
        found = cls(**facts)
        if type(found.number) is not int or found.number < 1 or {type(found.ledger), type(found.hash)} != {str}:
            raise ValueError("These are no facts of a receipt.")
        if not re.fullmatch("[0-9a-f]{32}", found.ledger) or not re.fullmatch("[0-9a-f]{64}", found.hash):
            raise ValueError("These are no facts of a receipt.")
        return found


def written(guarantee: Guarantee) -> str:
    """A guarantee as a text for files."""
    return json.dumps({"kind": type(guarantee).__name__, **asdict(guarantee)})


def understood(text: str) -> Guarantee:
    """The guarantee that was written."""
    facts = json.loads(text)
    return KINDS[facts.pop("kind")](**facts)


def chained(before: str, *facts: object) -> str:
    """The SHA-256, in hexadecimal, of the hash before and some texts and numbers."""
    return hashlib.sha256(json.dumps([before, *facts]).encode()).hexdigest()


def one_line(**named: object) -> str:
    """Accept a text of one line, without characters that a terminal obeys or that hide others."""
    ((name, value),) = named.items()
    if not isinstance(value, str):
        raise ArgumentError(f"Expected {name} to be a text, got {type_name(value)}.")
    if not value.strip():
        raise ArgumentError(f"Expected {name} to be a text, got an empty one.")
    if not value.isprintable():
        raise ArgumentError(
            f"Expected {name} to be a line of printable text, got control characters or others that cannot be seen: "
            f"{visible(value)!r}. Rename it, or leave them out."
        )
    return value


# A chain of entries in which none can be changed, removed or reordered without a trace.
#
# Each entry has a hash over the hash before it, its own content and the totals after it. The first one follows a hash
# of what the ledger is for and of its identity. Number, hash and totals of the last entry stand in the ledger's header
# too. An open ledger remembers the last entry that it has seen, so it reads only what was added since.


# The errors that reading a damaged text can raise.
NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@final
@dataclass(frozen=True)
class Position:
    """How far a ledger was read, what the entries up to there cost together, and which reservations are open."""

    number: int  # The number of the last entry, 0 if there is none.
    hash: str  # The hash of the last entry, or of the header.
    totals: Totals = field(default_factory=Totals)
    first: Entry | None = None  # It decides how the others are added up and whom they are about.
    last: Entry | None = None
    reservations: Mapping[int, Entry] = field(default_factory=dict)  # Those that no release has used, by number.

    @property
    def head(self) -> str:
        """Number and hash as one text."""
        return f"{self.number}:{self.hash}"

    @property
    def sums(self) -> str:
        """The totals as a text for files."""
        return _text(self.totals)

    def after(self, entry: Entry, *, adaptive: bool) -> "Position":
        """The position after one more entry."""
        before = self.giving_back(entry.uses)
        totals = before.totals.plus([entry.cost], adaptive=adaptive)
        still = {**before.reservations, entry.number: entry} if entry.reserved else before.reservations
        after = chained(self.hash, *entry.row(), _text(totals))
        return Position(entry.number, after, totals, self.first or entry, entry, still)

    def giving_back(self, number: int | None) -> "Position":
        """The same without the cost of an open reservation, or a KeyError if there is none with this number."""
        if number is None:
            return self
        still = dict(self.reservations)
        return replace(self, totals=self.totals.without(still.pop(number).cost), reservations=still)


def _text(totals: Totals) -> str:
    return json.dumps({name: str(total) for name, total in sorted(totals.sums.items())})


@final
class Transaction:
    """A connection to one state of a ledger.

    It has the `entries` that came after what was seen before, the `heads` of what was seen and of all states after it,
    and the `position` of the last entry.
    """

    def __init__(self, connection: sqlite3.Connection, header: Header, seen: Position, place: str) -> None:
        self._connection = connection
        self._header = header
        self._place = place
        self._compare_last(seen)
        self.entries, self.heads, self.position = list[Entry](), {seen.head}, seen
        for reached, entry in self._following(seen):
            self.entries.append(entry)
            self.heads.add(reached.head)
            self.position = reached
        self._compare_header()

    def hash_of(self, number: int) -> str | None:
        """The hash of an entry; None if there is none with this number."""
        rows = self._connection.execute("SELECT hash FROM entries WHERE number = ?", (number,)).fetchall()
        return str(rows[0][0]) if rows else None

    def append(self, entry: Entry) -> None:
        """Write one more entry and read it back, because a trigger may have changed it or something else."""
        after = self.position.after(entry, adaptive=self._header.adaptive)
        changes = self._connection.total_changes
        self._connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*entry.row(), after.hash)
        )
        self._connection.execute(
            "UPDATE ledger SET number = ?, hash = ?, totals = ?", (after.number, after.hash, after.sums)
        )
        if self._connection.total_changes != changes + 2:
            raise self._damaged(entry.number, "the file changed by something else than this entry")
        self._compare_last(after)
        self.position = after
        self._compare_header()

    def _following(self, position: Position) -> Iterator[tuple[Position, Entry]]:
        """The entries that come after a position, each with its own position."""
        # Look for numbers below 1 as well, which no entry may have.
        least = position.number + 1 if position.number else -(2**63)
        rows = self._connection.execute("SELECT * FROM entries WHERE number >= ? ORDER BY number", (least,))
        for *content, stored in rows:
            number = position.number + 1
            if content[0] != number:
                raise self._damaged(number, f"there is entry {content[0]} in its place")
            try:
                entry = Entry.from_row(tuple(content))
                position = position.after(entry, adaptive=self._header.adaptive)
            except NONSENSE:
                raise self._damaged(number, "it cannot be understood") from None
            # The texts are compared too: another text might have the same meaning.
            if position.hash != stored or entry.row() != tuple(content):
                raise self._damaged(number, "it or the order of the entries was changed")
            yield position, entry

    def _compare_last(self, seen: Position) -> None:
        """Refuse a ledger without the last entry that was seen; nothing else shows that it was removed."""
        if seen.last is not None:
            rows = self._connection.execute("SELECT * FROM entries WHERE number = ?", (seen.number,)).fetchall()
            if rows != [(*seen.last.row(), seen.hash)]:
                raise self._damaged(seen.number, "it is missing, or not what was written")

    def _compare_header(self) -> None:
        ((number, stored, sums),) = self._connection.execute("SELECT number, hash, totals FROM ledger").fetchall()
        here = self.position
        if isinstance(number, int) and number != here.number:
            raise self._damaged(min(number, here.number) + 1, f"there are {here.number} of {number} entries")
        if stored != here.hash or sums != here.sums:
            raise self._damaged(here.number, "the hash or the totals in the header are not those of the entries")

    def _damaged(self, number: int, how: str) -> LedgerError:
        return LedgerError(
            f"{self._place} is damaged from entry {number} on: {how}. Restore it from a copy. Nothing may be released."
        )


# What a ledger says: whom it is about, what it assumes, what was released and what is left.


COLUMNS = ("number", "recorded", "what", "guarantee")


def heading(header: Header, entries: Sequence[Entry]) -> list[str]:
    """What the ledger is for, and what has to be true for the sum of its guarantees to hold."""
    numbers: dict[str, list[int]] = {}
    for entry in entries:
        for assumption in entry.terms.assumptions:
            numbers.setdefault(assumption, []).append(entry.number)
    assumed = [f"Assumed: {text} ({_ranges(which)})." for text, which in numbers.items()]
    return [f"Ledger of {header}", *assumed]


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


def footing(rule: str | None, amounts: Sequence[Amount], together: Guarantee) -> list[str]:
    """What is spent and left, what all of it guarantees, and how it is added up."""
    lines = [f"{amount.label}: {_shown(amount)}" for amount in amounts]
    if rule and all(amount.within for amount in amounts):
        lines.append(f"All of this together keeps {together}: {added_up(rule, together)}.")
    return lines


def added_up(rule: str, together: Guarantee) -> str:
    """How releases are added up to what they keep together, in words."""
    return "epsilons are added" if together.is_pure else _ADDED.get(rule, f"losses are added, each as {rule}")


_ADDED = {
    "basic": "epsilons and deltas are added",
    "divergences": "Rényi divergences at one order are added",
    "best order": "Rényi divergences are added, at the order that suits best",
    "optimal composition": "by the optimal composition of guarantees that were fixed in advance",
}


def refusal(before: Sequence[Amount], after: Sequence[Amount]) -> str:
    """What is spent, and what would be."""
    now = "; ".join(f"{amount.label}: {_shown(amount)}" for amount in before)
    then = "; ".join(f"{amount.label}: {float(amount.spent):.6g}" for amount in after)
    return f"Now {now}. With it {then}."


def _shown(amount: Amount) -> str:
    return f"{float(amount.spent):.6g} of {float(amount.limit):.6g} spent, {float(amount.left):.6g} left"


def _ranges(numbers: Sequence[int]) -> str:
    """The numbers as a text, such as "entries 1, 3 to 5"."""
    known = set(numbers)
    starts = [n for n in numbers if n - 1 not in known]
    ends = [n for n in numbers if n + 1 not in known]
    listed = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return f"{'entry' if len(known) == 1 else 'entries'} {', '.join(listed)}"
