"""What a ledger holds: entries, each chained to the one before, in one SQLite file or in memory.

The store makes entries durable and finds damage.
"""

import json
import math
import os
import re
import secrets
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, final

from pymc_dirdp.accounting.budget import RESTORE, Header, Position, chained
from pymc_dirdp.checks import at_least, integer, one_line
from pymc_dirdp.errors import ArgumentError, LedgerError
from pymc_dirdp.privacy.guarantees import KINDS, Guarantee
from pymc_dirdp.privacy.people import apart, bounded_by, filled, who

# The errors that reading a damaged text can raise.
NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


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
        said, label = [], self.unit or "unit"
        if self.min_count:
            said.append(filled(self.min_count))
        if isinstance(self.contribution, str):
            said.append(f"a {who(label)} contributes no more than {self.contribution}")
        elif self.contribution is not None and (self.contribution, self.unit or "record") != (1, "record"):
            said.append(bounded_by(label, self.contribution))
        if len(self.groups) > 1:
            said.append(apart(label, self.groups))
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
    def from_facts(cls, facts: Any) -> Self | None:
        """The receipt of which these are the facts; None for None, and an error of any kind if they are no receipt."""
        if facts is None:
            return None
        found = cls(**facts)
        proper = type(found.number) is int and found.number >= 1 and {type(found.ledger), type(found.hash)} == {str}
        if not (proper and re.fullmatch("[0-9a-f]{32}", found.ledger) and re.fullmatch("[0-9a-f]{64}", found.hash)):
            raise ValueError("These are no facts of a receipt.")
        return found

    @property
    def head(self) -> str:
        """What the head of the ledger was when it had been charged: its number and its hash."""
        return f"{self.number}:{self.hash}"


def written(guarantee: Guarantee) -> str:
    """A guarantee as a text for files."""
    return json.dumps({"kind": type(guarantee).__name__, **asdict(guarantee)})


def understood(text: str) -> Guarantee:
    """The guarantee that was written."""
    facts = json.loads(text)
    return KINDS[facts.pop("kind")](**facts)


# A chain of entries in which none can be changed, removed or reordered without a trace.
#
# Each entry has a hash over the hash before it, its own content and the totals after it. The first one follows a hash
# of what the ledger is for and of its identity. Number, hash and totals of the last entry stand in the ledger's header
# too. An open ledger remembers the last entry that it has seen, so it reads only what was added since.


@final
class Transaction:
    """A connection to one state of a ledger.

    It has the `entries` that came after what was seen before, the `heads` of what was seen and of all states after it,
    and the `position` of the last entry.
    """

    def __init__(self, connection: sqlite3.Connection, seen: Position) -> None:
        self._connection = connection
        self.entries, self.heads, self.position = list[Entry](), {seen.head}, seen
        self._compare_last(seen)
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
        after = self.position.after(entry)
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
                position = position.after(entry)
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
            f"{self.position.place} is damaged from entry {number} on: {how}. {RESTORE} Nothing may be released."
        )


_VERSION = 3
_SCHEMA = {
    "ledger": "CREATE TABLE ledger (version INTEGER NOT NULL, identity TEXT NOT NULL, spending_limit TEXT NOT NULL,"
    " adaptive INTEGER NOT NULL, adjacency TEXT NOT NULL, unit TEXT,"
    " number INTEGER NOT NULL, hash TEXT NOT NULL, totals TEXT NOT NULL)",
    "entries": "CREATE TABLE entries (number INTEGER PRIMARY KEY, recorded TEXT NOT NULL, what TEXT NOT NULL,"
    " guarantee TEXT NOT NULL, cost TEXT NOT NULL, terms TEXT NOT NULL, composition_rule TEXT,"
    " reserved INTEGER NOT NULL, uses INTEGER, hash TEXT NOT NULL)",
}
# Only one thread uses SQLite at a time: the threads of a ledger in memory share its connection, and SQLite must not be
# in use while the process is copied.
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@final
class Store:
    """Entries that are durable once written, read and appended by one process at a time.

    Parameters
    ----------
    path : Path or None
        The path of the file, which is made if there is none; None for memory.
    header : Header
        What the ledger is for. A file with another header is refused; one with a unit adds it to a header without.
    known : (str, str), optional
        Identity and head of the ledger as it was seen before. Then no file is made.
    """

    def __init__(self, path: Path | None, header: Header, known: tuple[str, str] | None = None) -> None:
        # Resolved only once, so that the path means the same ledger after a change of the directory.
        self.path = None if path is None else _resolved(path)
        self.header = header
        self._process = os.getpid()
        self._memory: sqlite3.Connection | None = None
        if self.path is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._memory.close)
            self._fill(self._memory)
        elif known is None and not self.path.exists():
            self._make(self.path)
        self._facts: tuple[object, ...] = ()
        with self._opened(writing=False) as connection:
            self._facts = self._read_facts(connection)
            self.header = self._understood_header()
            self.start = Position(self.header, self.place, 0, chained("", *self._facts))
            self._position = Transaction(connection, self.start).position
        first = self._position.first
        if first is not None and self.header.unit not in (None, first.terms.unit):
            raise LedgerError(
                f"{self.place} adds guarantees about unit={first.terms.unit!r}, not {self.header.unit!r}; keep one "
                "ledger for each unit."
            )
        if known is not None:
            self._refuse_another_identity(known[0])
            self.verified(known[1])

    @property
    def place(self) -> str:
        """Where the ledger is, as the subject of a sentence."""
        return "The ledger in memory" if self.path is None else f"The ledger at {self.path}"

    @property
    def identity(self) -> str:
        """A random text that was made with the file."""
        return str(self._facts[1])

    @contextmanager
    def transaction(self, *, writing: bool = False, whole: bool = False) -> Iterator[Transaction]:
        """One state of the ledger, which nobody else changes if it is for writing.

        At the end, all that was done with it becomes durable, or nothing does. It holds the entries that were added
        since the last transaction, or the whole ledger.
        """
        written: Position | None = None
        with _LOCK:
            try:
                with self._opened(writing=writing) as connection:
                    facts = self._read_facts(connection)
                    self._refuse_another_identity(str(facts[1]))
                    if facts != self._facts:
                        raise LedgerError(
                            f"{self.place} is damaged: what it is for was changed. Nothing may be released."
                        )
                    now = Transaction(connection, self.start if whole else self._position)
                    yield now
                    written = now.position if writing else None
            except LedgerError:
                # A commit that was reported as an error may have been made.
                if written is None or not self._holds(written):
                    raise
            # The changes are durable only now.
            self._position = now.position

    def hash_of(self, number: int) -> str | None:
        """The hash of an entry; None if there is none with this number."""
        with _LOCK, self.transaction() as now:
            return now.hash_of(number)

    def _holds(self, position: Position) -> bool:
        """Whether the last entry of a position is in the file for good, although an error was reported."""
        try:
            with self._opened(writing=True) as connection:
                self._refuse_another_identity(str(self._read_facts(connection)[1]))
                rows = connection.execute("SELECT hash FROM entries WHERE number = ?", (position.number,)).fetchall()
                # This commit returns only when all before it is on the disk, too.
                connection.execute("UPDATE ledger SET number = number")
        except LedgerError:
            return False
        return rows == [(position.hash,)]

    def verified(self, *heads: str) -> tuple[Position, tuple[Entry, ...]]:
        """The last position and all entries, each compared with its hash.

        The `heads` are earlier states that somebody has noted. The ledger has to have passed through each of them.
        """
        with _LOCK:
            heads = (*heads, self._position.head)
            with self.transaction(whole=True) as now:
                for head in heads:
                    if head not in now.heads:
                        number = head.partition(":")[0]
                        raise LedgerError(
                            f"{self.place} does not lead to entry {number} as it was noted: that entry or an earlier "
                            "one was changed or removed, this is an older copy, or the whole ledger was written "
                            f"again. {RESTORE} Nothing may be released."
                        )
        return now.position, tuple(now.entries)

    @contextmanager
    def _opened(self, *, writing: bool) -> Iterator[sqlite3.Connection]:
        if self._memory is not None and os.getpid() != self._process:
            raise LedgerError(
                "A ledger in memory cannot be used after os.fork(): both processes would spend it. Give it a path: "
                "Ledger(limit, 'budget.db')."
            )
        try:
            with _LOCK:
                connection = self._memory or self._connected()
                try:
                    # A commit returns only when the entry is on the disk.
                    connection.execute("PRAGMA synchronous = FULL")
                    # An immediate transaction keeps the balance true until the entry is written.
                    connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
                    try:
                        yield connection
                        connection.execute("COMMIT")
                    except BaseException:
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
                        raise
                finally:
                    if self._memory is None:
                        connection.close()
        except sqlite3.Error as error:
            raise LedgerError(
                f"{self.place} cannot be used ({error}), so nothing may be released. See that the file and its folder "
                "can be written, that the disk has room, and that it is a ledger. Then look at entries(): if the disk "
                f"failed at the last moment, the entry is there without a release. If it is damaged: {RESTORE}"
            ) from error

    def _read_facts(self, connection: sqlite3.Connection) -> tuple[object, ...]:
        """The version, the identity and what the ledger is for, as they are written."""
        (version,) = connection.execute("SELECT version FROM ledger").fetchone() or (None,)
        if version != _VERSION:
            raise LedgerError(
                f"{self.place} has version {version!r} of the format, and this library reads version {_VERSION} only. "
                "Keep it as a record, and begin a new ledger whose limit is what the old one has left."
            )
        schema = connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
        rows = connection.execute("SELECT * FROM ledger LIMIT 2").fetchall()
        if dict(schema) != _SCHEMA or len(rows) != 1:
            raise LedgerError(
                f"{self.place} holds something other than a ledger, such as a trigger. {RESTORE} Nothing may be "
                "released."
            )
        return tuple(rows[0][:6])

    def _understood_header(self) -> Header:
        try:
            _, _, limit, adaptive, adjacency, unit = self._facts
            stored = Header(understood(str(limit)), bool(adaptive), str(adjacency), None if unit is None else str(unit))
        except NONSENSE:
            raise LedgerError(f"{self.place} is damaged: what it is for cannot be understood.") from None
        wanted = self.header if self.header.unit is not None else replace(self.header, unit=stored.unit)
        if wanted != (stored if stored.unit is not None else replace(stored, unit=wanted.unit)):
            raise LedgerError(
                f"{self.place} is for ({stored}), not for ({self.header}). Open it for that, or give another path."
            )
        return wanted

    def _refuse_another_identity(self, identity: str) -> None:
        if identity != self.identity:
            raise LedgerError(
                f"{self.place} is not the one that was opened: the file was removed and rebuilt, and does not know "
                "what was spent before. Restore the old file, or open the new one if nothing was released under the "
                "old one."
            )

    def _connected(self) -> sqlite3.Connection:
        assert self.path is not None
        # SQLite would take an empty file for a new database and forget what was spent.
        if not self.path.exists() or self.path.stat().st_size == 0:
            raise sqlite3.DatabaseError("the file is missing or empty")
        # How long to wait for other processes that are writing, in seconds.
        return sqlite3.connect(self.path, timeout=60.0, isolation_level=None)

    def _make(self, path: Path) -> None:
        """Make the file under another name and then give it its own, so that nobody sees a part of it."""
        aside = None
        try:
            handle, aside = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=path.parent)
            os.close(handle)
            with closing(sqlite3.connect(aside, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                self._fill(connection)
            os.link(aside, path)
        except FileExistsError:
            pass  # Another process was faster. Its ledger is read and compared.
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(
                f"The ledger {path} cannot be made ({error}). Nothing may be released. "
                "See that its folder exists, can be written and has room."
            ) from error
        finally:
            if aside is not None:
                with suppress(OSError):
                    os.unlink(aside)

    def _fill(self, connection: sqlite3.Connection) -> None:
        header = self.header
        facts = (_VERSION, secrets.token_hex(16), written(header.limit), int(header.adaptive), header.adjacency)
        start = Position(header, self.place, 0, chained("", *facts, header.unit))
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.values():
            connection.execute(statement)
        connection.execute(
            "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*facts, header.unit, start.number, start.hash, start.sums),
        )
        connection.execute("COMMIT")


def _resolved(path: Path) -> Path:
    """The absolute path, or the error that there can be no such file."""
    try:
        absolute = path.resolve()
        # This raises an error if the name is too long for the file system.
        absolute.exists()
    except (OSError, ValueError) as error:
        raise LedgerError(
            f"No ledger can be at {str(path)[:80]!r} ({error.strerror if isinstance(error, OSError) else error}). "
            "Nothing may be released. Give another path."
        ) from None
    return absolute
