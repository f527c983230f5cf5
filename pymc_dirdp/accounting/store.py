"""The file of a ledger: entries that are durable once written, each chained to the previous one.

It detects damage. A ledger in memory has its own database. :mod:`pymc_dirdp.accounting.budget` decides which releases
are admitted.
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

from pymc_dirdp.accounting.budget import RESTORE, Balance, damage_error, other_unit_message
from pymc_dirdp.accounting.entries import PARSE_ERRORS, Entry, Header, Receipt, Row, next_row
from pymc_dirdp.errors import LedgerError

type BalanceAndEntries = tuple[Balance, tuple[Entry, ...]]
"""Some entries, and the balance after them."""

# A hash chain: no entry can be changed, removed or reordered undetected.
#
# The hash of an entry covers the previous hash and its own text. The first entry follows a hash of the header's text,
# which contains the identity of the ledger. Number and hash of the last entry are stored with the header, so that its
# removal is detected. An open ledger remembers the last row that it has read, so it reads only newer ones.

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
        The path of the file, which is created if it does not exist; None for memory.
    header : Header
        The purpose of the ledger. A file with another header is refused; a unit in the file is added to a header
        without one. If the header has an identity, a file with another one is refused, and no file is created.
    head : str, optional
        An earlier head: number and hash of the last entry at that time.
    """

    def __init__(self, path: Path | None, header: Header, head: str | None = None) -> None:
        # Resolved once, so that the path names the same ledger after a change of the directory.
        self.path = None if path is None else _resolve(path)
        self._process, self._identity = os.getpid(), header.identity
        self._stored: Header | None = None
        self._memory: sqlite3.Connection | None = None
        if self.path is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._memory.close)
            _create_tables(self._memory, header)
        elif self._identity is None and not self.path.exists():
            _create_file(self.path, header)
        with self._open() as connection:
            stored = self._header(connection)
            self._identity, self._stored = stored.identity, stored
            unit = stored.unit if header.unit is None else header.unit
            self.header = replace(header, unit=unit, identity=stored.identity)
            if self.header != (stored if stored.unit is not None else replace(stored, unit=unit)):
                raise LedgerError(
                    f"{self.place} is for ({stored}), not for ({header}). Open it for that, or pass another path."
                )
            self._start = Balance(self.header, self.place, next_row("", 0, stored.text))
            self._balance, _ = self._read(connection, self._start)
        if self.header.unit not in (None, self._balance.unit):
            raise LedgerError(other_unit_message(self.place, self._balance.unit, self.header.unit))
        if head is not None:
            self.verify(head)

    @property
    def place(self) -> str:
        """Where the ledger is, as the subject of a sentence."""
        return "The ledger in memory" if self.path is None else f"The ledger at {self.path}"

    @property
    def balance(self) -> Balance:
        """The total cost of all entries; the same object as long as no entry was added."""
        with self._transaction():
            return self._balance

    def receipt(self, number: int) -> Receipt | None:
        """The receipt of an entry; None if there is no entry with this number."""
        with self._transaction() as connection:
            digest = self._hash(connection, number)
            return Receipt(str(self._identity), number, digest) if digest and number else None

    def verify(self, head: str | None = None) -> BalanceAndEntries:
        """The balance and all entries, each checked against its hash.

        An earlier `head` has to be part of the chain.
        """
        with self._open() as connection:
            # From the start, so that an error names the first damaged entry.
            balance, entries = self._read(connection, self._start)
            for noted_head in (head or self._start.head, self._balance.head):
                number = int(noted_head.partition(":")[0])
                if noted_head != f"{number}:{self._hash(connection, number)}":
                    reason = f"it has no entry {number} with the noted hash, so that or an earlier entry was changed or"
                    raise damage_error(self.place, f"{reason} removed, or this is an older copy, or it was rewritten")
            # Keep the results that were computed for the same entries.
            self._balance = self._balance if balance.head == self._balance.head else balance
            return self._balance, entries

    def _hash(self, connection: sqlite3.Connection, number: int) -> str | None:
        if number == 0:
            return self._start.last[2]
        # SQLite has no larger integers.
        parameters = (min(number, 2**63 - 1),)
        rows = connection.execute("SELECT hash FROM entries WHERE number = ?", parameters).fetchall()
        return str(rows[0][0]) if rows else None

    def record(self, decide: Callable[[Balance], Sequence[Entry]]) -> tuple[Entry, ...]:
        """Write the entries that `decide` returns for the current balance, which is locked meanwhile.

        They are durable once this returns. After an error none of them is.
        """
        result = None
        with _LOCK:
            try:
                with self._transaction(writing=True) as connection:
                    result = self._append(connection, tuple(decide(self._balance)))
            except LedgerError:
                # A commit may have succeeded although it reported an error.
                if result is None or not self._is_durable(result[0].last):
                    raise
            # The changes are durable only now.
            self._balance, entries = result
        return entries

    @contextmanager
    def _transaction(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        """A consistent state of the ledger, after reading all new entries."""
        with self._open(writing=writing) as connection:
            self._balance, _ = self._read(connection, self._balance)
            yield connection

    def _append(self, connection: sqlite3.Connection, entries: tuple[Entry, ...]) -> tuple[Balance, tuple[Entry, ...]]:
        """Write entries and read them back, because a trigger may have changed them or other rows."""
        rows, changes = [self._balance.last], connection.total_changes
        for entry in entries:
            rows.append(next_row(rows[-1][2], entry.number, entry.text))
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows[1:])
        connection.execute("UPDATE ledger SET number = ?, hash = ?", rows[-1][::2])
        if connection.total_changes != changes + len(rows):
            raise damage_error(self.place, "something else than this entry was written to the file", rows[1][0])
        result = self._read(connection, self._balance)
        if result[0].last != rows[-1] or result[1] != entries:
            raise damage_error(self.place, "it is missing, or differs from what was written", rows[1][0])
        return result

    def _read(self, connection: sqlite3.Connection, balance: Balance) -> BalanceAndEntries:
        """The balance after all entries that are newer than `balance`, and these entries, each checked by its hash."""
        # The last row is read again, because nothing else reveals its removal. No entry has a number below 1.
        last, entries = balance.last, list[Entry]()
        rows = connection.execute(
            "SELECT * FROM entries WHERE number >= ? ORDER BY number", (last[0] or -(2**63),)
        ).fetchall()
        if last[0] and rows[:1] != [last]:
            raise damage_error(self.place, "it is missing, or differs from what was written", last[0])
        for number, text, stored_hash in rows[bool(last[0]) :]:
            expected = last[0] + 1
            if number != expected:
                raise damage_error(self.place, f"there is entry {number} in its place", expected)
            try:
                entries.append(Entry.from_text(text))
                last = next_row(last[2], entries[-1].number, text)
            except PARSE_ERRORS:
                raise damage_error(self.place, "it cannot be parsed", expected) from None
            if last != (number, text, stored_hash):
                raise damage_error(self.place, "it or the order of the entries was changed", expected)
        ((number, stored_hash),) = connection.execute("SELECT number, hash FROM ledger").fetchall()
        if isinstance(number, int) and number != last[0]:
            raise damage_error(self.place, f"there are {last[0]} of {number} entries", min(number, last[0]) + 1)
        if (number, stored_hash) != last[::2]:
            raise damage_error(self.place, "the hash beside the header is not that of the last entry", last[0])
        return replace(balance.after(entries), last=last) if entries else balance, tuple(entries)

    def _is_durable(self, last: Row) -> bool:
        """Whether a row is on the disk, although an error was reported."""
        try:
            with self._open(writing=True) as connection:
                rows = connection.execute("SELECT * FROM entries WHERE number = ?", last[:1]).fetchall()
                # This commit returns only when all earlier ones are on the disk, too.
                connection.execute("UPDATE ledger SET number = number")
        except LedgerError:
            return False
        return rows == [last]

    @contextmanager
    def _open(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection to the same ledger, as one transaction: all of its changes become durable, or none."""
        if self._memory is not None and os.getpid() != self._process:
            raise LedgerError(
                "A ledger in memory cannot be used after os.fork(): both processes would spend it. Create it with a "
                "path: Ledger(limit, 'budget.db')."
            )
        try:
            with _LOCK:
                connection = self._memory or self._connect()
                try:
                    # A commit returns only when the entry is on the disk.
                    connection.execute("PRAGMA synchronous = FULL")
                    # Disks of macOS have their own cache. Elsewhere this has no effect.
                    connection.execute("PRAGMA fullfsync = ON")
                    # Under an immediate transaction the balance cannot change before the entry is written.
                    connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
                    try:
                        if self._stored is not None and self._header(connection) != self._stored:
                            raise damage_error(self.place, "its header was changed")
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
                f"{self.place} cannot be used ({error}), so nothing may be released. Check that the file is a ledger, "
                "that it and its folder are writable, and that the disk is not full. Then look at entries(): if the "
                "disk failed at the last moment, the entry is there without a release. "
                f"If the file is damaged, {RESTORE[0].lower()}{RESTORE[1:]}"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        assert self.path is not None
        # SQLite would treat an empty file as a new database without spending.
        if not self.path.exists() or self.path.stat().st_size == 0:
            raise sqlite3.DatabaseError("the file is missing or empty")
        # The timeout for other processes that are writing, in seconds.
        return sqlite3.connect(self.path, timeout=60.0, isolation_level=None)

    def _header(self, connection: sqlite3.Connection) -> Header:
        """The header of the file, if it is a ledger, and the one that was opened."""
        (version,) = connection.execute("SELECT version FROM ledger").fetchone() or (None,)
        if version != _VERSION:
            raise LedgerError(
                f"{self.place} has version {version!r} of the format, and this library reads version {_VERSION} only. "
                "Keep it as a record, and create a new ledger whose limit is the remaining budget of the old one."
            )
        schema = connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
        rows, header = connection.execute("SELECT text FROM ledger LIMIT 2").fetchall(), None
        if dict(schema) != _SCHEMA or len(rows) != 1:
            raise damage_error(self.place, "it holds something other than a ledger, such as a trigger")
        with suppress(*PARSE_ERRORS):
            header = Header.from_text(rows[0][0])
        if header is None or header.identity is None:
            raise damage_error(self.place, "its header cannot be parsed")
        if self._identity not in (None, header.identity):
            raise LedgerError(
                f"{self.place} is not the one that was opened: the file was removed and rebuilt, and has no record of "
                "earlier spending. Restore the old file, or open the new one if nothing was released under the old one."
            )
        return header


def _create_file(path: Path, header: Header) -> None:
    """Create the file under another name and then rename it, so that nobody sees an incomplete file."""
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=path.parent)
        os.close(handle)
        with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            _create_tables(connection, header)
        os.link(temporary, path)
    except FileExistsError:
        pass  # Another process was faster. Its ledger is read and compared.
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(
            f"The ledger {path} cannot be created ({error}). Nothing may be released. "
            "Check that its folder exists and is writable, and that the disk is not full."
        ) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def _create_tables(connection: sqlite3.Connection, header: Header) -> None:
    """Create the tables of an empty ledger with a new identity."""
    _, text, start = next_row("", 0, replace(header, identity=secrets.token_hex(16)).text)
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.values():
        connection.execute(statement)
    connection.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", (_VERSION, text, 0, start))
    connection.execute("COMMIT")


def _resolve(path: Path) -> Path:
    """The absolute path, or an error if there can be no such file."""
    try:
        absolute = path.resolve()
        # This raises an error if the name is too long for the file system.
        absolute.exists()
    except (OSError, ValueError) as error:
        raise LedgerError(
            f"No ledger can be at {str(path)[:80]!r} ({error.strerror if isinstance(error, OSError) else error}). "
            "Nothing may be released. Pass another path."
        ) from None
    return absolute
