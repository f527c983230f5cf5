"""A chain of entries in which none can be changed, removed or moved without a trace.

Each entry has a hash over the hash before it, its own content and the totals after it. The first one follows a hash of
what the ledger is for and of its identity. Number, hash and totals of the last entry stand in the ledger's header too.
An open ledger remembers the last entry that it has seen, so it reads only what was added since.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import final

from pymc_dirdp.accounting.amounts import Totals
from pymc_dirdp.accounting.entries import Entry, Header, chained
from pymc_dirdp.errors import LedgerError

__all__ = ["NONSENSE", "Position", "Transaction"]

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
            raise self._damaged(entry.number, "the file changes more or less than what is written to it")
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
