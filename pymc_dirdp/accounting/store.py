"""The file of a ledger: entries that are durable once written, each chained to the one before.

It finds damage. A ledger in memory is the same in a database of its own. What is admitted is decided in
:mod:`pymc_dirdp.accounting.budget`.
"""

import os
import secrets
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import final

from pymc_dirdp.accounting.budget import RESTORE, Balance, about_others, damaged
from pymc_dirdp.accounting.entries import NONSENSE, Entry, Header, Receipt, Row, following
from pymc_dirdp.errors import LedgerError

type Reading = tuple[Balance, tuple[Entry, ...]]
"""Some entries, and the balance after them."""

# A chain of entries in which none can be changed, removed or reordered without a trace.
#
# Each entry has a hash over the hash before it and its own text. The first one follows a hash of the header's text,
# which holds the identity of the ledger. Number and hash of the last entry stand beside the header, so that its
# removal is found. An open ledger remembers the last row that it has seen, so it reads only what was added since.

_VERSION = 4
_SCHEMA = {
    "ledger": "CREATE TABLE ledger (version INTEGER NOT NULL, text TEXT NOT NULL, number INTEGER NOT NULL,"
    " hash TEXT NOT NULL)",
    "entries": "CREATE TABLE entries (number INTEGER PRIMARY KEY, text TEXT NOT NULL, hash TEXT NOT NULL)",
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
        What the ledger is for. A file with another header is refused; one with a unit adds it to a header without. If
        it has an identity, a file with another one is refused, and none is made.
    head : str, optional
        Number and hash of the last entry, as they were seen before.
    """

    def __init__(self, path: Path | None, header: Header, head: str | None = None) -> None:
        # Resolved only once, so that the path means the same ledger after a change of the directory.
        self.path = None if path is None else _resolved(path)
        self._process, self._identity = os.getpid(), header.identity
        self._stored: Header | None = None
        self._memory: sqlite3.Connection | None = None
        if self.path is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._memory.close)
            _fill(self._memory, header)
        elif self._identity is None and not self.path.exists():
            _make(self.path, header)
        with self._opened() as connection:
            stored = self._header(connection)
            self._identity, self._stored = stored.identity, stored
            unit = stored.unit if header.unit is None else header.unit
            self.header = replace(header, unit=unit, identity=stored.identity)
            if self.header != (stored if stored.unit is not None else replace(stored, unit=unit)):
                raise LedgerError(
                    f"{self.place} is for ({stored}), not for ({header}). Open it for that, or give another path."
                )
            self._start = Balance(self.header, self.place, following("", 0, stored.text))
            self._balance, _ = self._read(connection, self._start)
        if self.header.unit not in (None, self._balance.unit):
            raise LedgerError(about_others(self.place, self._balance.unit, self.header.unit))
        if head is not None:
            self.verified(head)

    @property
    def place(self) -> str:
        """Where the ledger is, as the subject of a sentence."""
        return "The ledger in memory" if self.path is None else f"The ledger at {self.path}"

    @property
    def balance(self) -> Balance:
        """What all entries cost together; the same object as long as no entry was added."""
        with self._transaction():
            return self._balance

    def receipt(self, number: int) -> Receipt | None:
        """The receipt of an entry; None if there is none with this number."""
        with self._transaction() as connection:
            digest = self._hash(connection, number)
            return Receipt(str(self._identity), number, digest) if digest and number else None

    def verified(self, head: str | None = None) -> Reading:
        """The balance and all entries, each compared with its hash.

        The ledger has to have passed through the `head`, an earlier state that somebody has noted.
        """
        with self._opened() as connection:
            # From the start, so that an error says from which entry on it is damaged.
            balance, entries = self._read(connection, self._start)
            for noted in (head or self._start.head, self._balance.head):
                number = int(noted.partition(":")[0])
                if noted != f"{number}:{self._hash(connection, number)}":
                    how = f"it does not lead to entry {number} as it was noted, so that or an earlier one was changed"
                    raise damaged(self.place, f"{how} or removed, or this is an older copy, or was written again whole")
            # What was computed for the same entries is still known.
            self._balance = self._balance if balance.head == self._balance.head else balance
            return self._balance, entries

    def _hash(self, connection: sqlite3.Connection, number: int) -> str | None:
        if number == 0:
            return self._start.last[2]
        # SQLite has no numbers of more digits.
        asked = (min(number, 2**63 - 1),)
        rows = connection.execute("SELECT hash FROM entries WHERE number = ?", asked).fetchall()
        return str(rows[0][0]) if rows else None

    def record(self, decide: Callable[[Balance], Sequence[Entry]]) -> tuple[Entry, ...]:
        """Write the entries that are decided on when the balance is known, which nobody else changes meanwhile.

        They are durable once this returns. After an error none is.
        """
        written = None
        with _LOCK:
            try:
                with self._transaction(writing=True) as connection:
                    written = self._appended(connection, tuple(decide(self._balance)))
            except LedgerError:
                # A commit that was reported as an error may have been made.
                if written is None or not self._is_durable(written[0].last):
                    raise
            # The changes are durable only now.
            self._balance, entries = written
        return entries

    @contextmanager
    def _transaction(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        """One state of the ledger, of which the entries that were added since the last one have been read."""
        with self._opened(writing=writing) as connection:
            self._balance, _ = self._read(connection, self._balance)
            yield connection

    def _appended(
        self, connection: sqlite3.Connection, entries: tuple[Entry, ...]
    ) -> tuple[Balance, tuple[Entry, ...]]:
        """Write entries and read them back, because a trigger may have changed them or something else."""
        rows, changes = [self._balance.last], connection.total_changes
        for entry in entries:
            rows.append(following(rows[-1][2], entry.number, entry.text))
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows[1:])
        connection.execute("UPDATE ledger SET number = ?, hash = ?", rows[-1][::2])
        if connection.total_changes != changes + len(rows):
            raise damaged(self.place, "the file changed by something else than this entry", rows[1][0])
        written = self._read(connection, self._balance)
        if written[0].last != rows[-1] or written[1] != entries:
            raise damaged(self.place, "it is missing, or not what was written", rows[1][0])
        return written

    def _read(self, connection: sqlite3.Connection, seen: Balance) -> Reading:
        """The balance after the entries that follow what was seen, and these entries, each compared with its hash."""
        # The last row is read again, because nothing else shows that it was removed. No entry has a number below 1.
        last, entries = seen.last, list[Entry]()
        rows = connection.execute(
            "SELECT * FROM entries WHERE number >= ? ORDER BY number", (last[0] or -(2**63),)
        ).fetchall()
        if last[0] and rows[:1] != [last]:
            raise damaged(self.place, "it is missing, or not what was written", last[0])
        for number, text, stored in rows[bool(last[0]) :]:
            due = last[0] + 1
            if number != due:
                raise damaged(self.place, f"there is entry {number} in its place", due)
            try:
                entries.append(Entry.from_text(text))
                last = following(last[2], entries[-1].number, text)
            except NONSENSE:
                raise damaged(self.place, "it cannot be understood", due) from None
            if last != (number, text, stored):
                raise damaged(self.place, "it or the order of the entries was changed", due)
        ((number, stored),) = connection.execute("SELECT number, hash FROM ledger").fetchall()
        if isinstance(number, int) and number != last[0]:
            raise damaged(self.place, f"there are {last[0]} of {number} entries", min(number, last[0]) + 1)
        if (number, stored) != last[::2]:
            raise damaged(self.place, "the hash beside the header is not that of the last entry", last[0])
        return replace(seen.after(entries), last=last) if entries else seen, tuple(entries)

    def _is_durable(self, last: Row) -> bool:
        """Whether a row is in the file for good, although an error was reported."""
        try:
            with self._opened(writing=True) as connection:
                rows = connection.execute("SELECT * FROM entries WHERE number = ?", last[:1]).fetchall()
                # This commit returns only when all before it is on the disk, too.
                connection.execute("UPDATE ledger SET number = number")
        except LedgerError:
            return False
        return rows == [last]

    @contextmanager
    def _opened(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection to the same ledger; at its end all that was done with it becomes durable, or nothing does."""
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
                        if self._stored is not None and self._header(connection) != self._stored:
                            raise damaged(self.place, "what it is for was changed")
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

    def _connected(self) -> sqlite3.Connection:
        assert self.path is not None
        # SQLite would take an empty file for a new database and forget what was spent.
        if not self.path.exists() or self.path.stat().st_size == 0:
            raise sqlite3.DatabaseError("the file is missing or empty")
        # How long to wait for other processes that are writing, in seconds.
        return sqlite3.connect(self.path, timeout=60.0, isolation_level=None)

    def _header(self, connection: sqlite3.Connection) -> Header:
        """What the file is for, if it is a ledger, and the one that was opened."""
        (version,) = connection.execute("SELECT version FROM ledger").fetchone() or (None,)
        if version != _VERSION:
            raise LedgerError(
                f"{self.place} has version {version!r} of the format, and this library reads version {_VERSION} only. "
                "Keep it as a record, and begin a new ledger whose limit is what the old one has left."
            )
        schema = connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
        rows, header = connection.execute("SELECT text FROM ledger LIMIT 2").fetchall(), None
        if dict(schema) != _SCHEMA or len(rows) != 1:
            raise damaged(self.place, "it holds something other than a ledger, such as a trigger")
        with suppress(*NONSENSE):
            header = Header.from_text(rows[0][0])
        if header is None or header.identity is None:
            raise damaged(self.place, "what it is for cannot be understood")
        if self._identity not in (None, header.identity):
            raise LedgerError(
                f"{self.place} is not the one that was opened: the file was removed and rebuilt, and does not know "
                "what was spent before. Restore the old file, or open the new one if nothing was released under the "
                "old one."
            )
        return header


def _make(path: Path, header: Header) -> None:
    """Make the file under another name and then give it its own, so that nobody sees a part of it."""
    aside = None
    try:
        handle, aside = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=path.parent)
        os.close(handle)
        with closing(sqlite3.connect(aside, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            _fill(connection, header)
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


def _fill(connection: sqlite3.Connection, header: Header) -> None:
    """Make an empty ledger with a name of its own."""
    _, text, start = following("", 0, replace(header, identity=secrets.token_hex(16)).text)
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.values():
        connection.execute(statement)
    connection.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", (_VERSION, text, 0, start))
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
