"""Where a ledger is stored: one SQLite file, or memory. The store makes entries durable and finds damage."""

import os
import secrets
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import final

from pymc_dirdp.accounting.entries import NONSENSE, Entry, Header, Position, Transaction, chained, understood, written
from pymc_dirdp.errors import LedgerError

__all__ = ["Store"]

_VERSION = 3
# How long to wait for other processes that are writing, in seconds.
_PATIENCE = 60.0
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
            self.start = Position(0, chained("", *self._facts))
            self._position = Transaction(connection, self.header, self.start, self.place).position
        self._refuse_another_unit()
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
                    now = Transaction(connection, self.header, self.start if whole else self._position, self.place)
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
                            "one was changed or removed, or the whole ledger was written again. Restore it from a "
                            "copy. Nothing may be released."
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
                "can be written, that the disk has room, and that it is a ledger; restore a damaged one from a copy. "
                "Then look at entries(): if the disk failed at the last moment, the entry is there without a release."
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
                f"{self.place} holds something other than a ledger, such as a trigger. Restore it from a copy. Nothing "
                "may be released."
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

    def _refuse_another_unit(self) -> None:
        first = self._position.first
        if first is not None and self.header.unit not in (None, first.terms.unit):
            raise LedgerError(
                f"{self.place} adds guarantees about unit={first.terms.unit!r}, not {self.header.unit!r}; keep one "
                "ledger for each unit."
            )

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
        return sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)

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
        start = Position(0, chained("", *facts, header.unit))
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
