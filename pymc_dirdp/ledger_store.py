"""Where a ledger is kept: one SQLite file, or memory. It knows no rules, only what is durable and what is damaged."""

import json
import math
import os
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from pymc_dirdp.errors import LedgerError
from pymc_dirdp.guarantees import ApproxDP, Guarantee, PureDP, RenyiDP, TruncatedCDP, ZeroCDP

__all__ = ["Entry", "Header", "Store"]

_VERSION = 1
_KINDS = {kind.__name__: kind for kind in (ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP)}
# How long to wait for other processes that are writing, in seconds.
_PATIENCE = 60.0
_SCHEMA = (
    "CREATE TABLE ledger (version INTEGER NOT NULL, spending_limit TEXT NOT NULL, adaptive INTEGER NOT NULL,"
    " adjacency TEXT NOT NULL, way TEXT)",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, recorded TEXT NOT NULL, what TEXT NOT NULL,"
    " guarantee TEXT NOT NULL, cost TEXT NOT NULL)",
)


@final
@dataclass(frozen=True)
class Header:
    """What a ledger is for; it never changes.

    Attributes
    ----------
    limit : Guarantee
        What all releases together promise.
    adaptive : bool
        Whether a release may be chosen after seeing earlier ones.
    adjacency : str
        What one person can change.
    """

    limit: Guarantee
    adaptive: bool
    adjacency: str


@final
@dataclass(frozen=True)
class Entry:
    """One release that was recorded.

    Attributes
    ----------
    number : int
        From 1 on.
    recorded : str
        When, in UTC, ISO 8601.
    what : str
        What was released: a public text, such as the names of the variables.
    guarantee : Guarantee
        What was promised.
    cost : mapping of str to float
        The numbers that are added up, in nats or as probabilities.
    """

    number: int
    recorded: str
    what: str
    guarantee: Guarantee
    cost: Mapping[str, float]


@final
class Store:
    """Entries that are durable once written, read and appended by one process at a time.

    Parameters
    ----------
    path : Path or None
        Of the file, which is made if there is none; None for memory.
    header : Header
        What the ledger is for. A file with another one is refused.
    way : str or None
        The way of adding up that a new ledger starts with.
    """

    def __init__(self, path: Path | None, header: Header, way: str | None) -> None:
        self.path = path
        self.header = header
        self._start = way
        # Threads share the connection of a ledger in memory; files have a connection for each use.
        self._lock = threading.Lock()
        self._memory: sqlite3.Connection | None = None
        if path is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._memory.close)
            self._fill(self._memory)
        else:
            if not path.exists():
                self._make(path)
            with self.transaction() as connection:
                self.read(connection)

    @contextmanager
    def transaction(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection to one state of the ledger, which nobody else changes if it is for writing.

        All that is done with it becomes durable at the end, or nothing.
        """
        try:
            with self._lock:
                connection = self._memory or self._connected()
                try:
                    # On the disk when it is committed, not only with the operating system.
                    connection.execute("PRAGMA synchronous = FULL")
                    # Immediate: the balance that is read stays true until the entry is written.
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
                f"The ledger {self.path} cannot be used ({error}). Nothing was recorded, so nothing may be released. "
                "See that the file and its folder can be written, that the disk has room, and that it is a ledger; "
                "restore a damaged one from a copy."
            ) from error

    def read(self, connection: sqlite3.Connection) -> tuple[str | None, tuple[Entry, ...]]:
        """The way that is fixed, if one is, and all entries; an error if they are not those of this ledger."""
        try:
            ((version, limit, adaptive, adjacency, way),) = connection.execute("SELECT * FROM ledger").fetchall()
            rows = connection.execute("SELECT * FROM entries ORDER BY number").fetchall()
            stored = _understood(limit)
            entries = tuple(
                Entry(number, recorded, what, _understood(guarantee), dict(json.loads(cost)))
                for number, recorded, what, guarantee, cost in rows
            )
            whole = [entry.number for entry in entries] == list(range(1, len(entries) + 1))
            # A cost that is no number could be added up to anything.
            whole &= all(math.isfinite(value) and value >= 0 for entry in entries for value in entry.cost.values())
        except (ValueError, TypeError, KeyError, AttributeError):
            whole = False
        if not whole:
            raise LedgerError(f"The ledger {self.path} is damaged: restore it from a copy. Nothing may be released.")
        if version != _VERSION:
            raise LedgerError(f"The ledger {self.path} has version {version}, expected {_VERSION}.")
        found = Header(stored, bool(adaptive), adjacency)
        if found != self.header:
            raise LedgerError(
                f"The ledger {self.path} is for {found}, not {self.header}. Give another path, or open it so."
            )
        return way, entries

    def append(self, connection: sqlite3.Connection, entry: Entry, way: str | None) -> None:
        """Write one more entry, and the way of adding up that it fixes."""
        connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?)",
            (entry.number, entry.recorded, entry.what, _written(entry.guarantee), json.dumps(dict(entry.cost))),
        )
        connection.execute("UPDATE ledger SET way = ?", (way,))

    def _connected(self) -> sqlite3.Connection:
        assert self.path is not None
        # An empty file would be taken for a new database, and its losses forgotten.
        if not self.path.exists() or self.path.stat().st_size == 0:
            raise sqlite3.DatabaseError("the file is missing or empty")
        return sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)

    def _make(self, path: Path) -> None:
        """A new file, whole from the first moment: it is made aside and then given its name, once."""
        aside = None
        try:
            handle, aside = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=path.parent)
            os.close(handle)
            with closing(sqlite3.connect(aside, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                self._fill(connection)
            os.link(aside, path)
        except FileExistsError:
            pass  # Somebody else was faster; their ledger is read and compared.
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(
                f"The ledger {path} cannot be made ({error}). Nothing may be released. "
                "See that its folder exists, can be written and has room."
            ) from error
        finally:
            if aside is not None:
                os.unlink(aside)

    def _fill(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(
            "INSERT INTO ledger VALUES (?, ?, ?, ?, ?)",
            (_VERSION, _written(self.header.limit), self.header.adaptive, self.header.adjacency, self._start),
        )
        connection.execute("COMMIT")


def _written(guarantee: Guarantee) -> str:
    return json.dumps({"kind": type(guarantee).__name__, **asdict(guarantee)})


def _understood(text: str) -> Guarantee:
    facts = json.loads(text)
    guarantee: Guarantee = _KINDS[facts.pop("kind")](**facts)
    return guarantee
