"""The state of a bandit in one file: what was released, and the sums of the batches that are open."""

import errno
import os
import secrets
import sqlite3
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self, final

from pymc_dirdp.accounting.entries import PARSE_ERRORS
from pymc_dirdp.bandits.batch_release import Output
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.settings import REWARD, Settings
from pymc_dirdp.checks import file_path
from pymc_dirdp.errors import DirdpError, ReleaseError

# In version 1 the fingerprints of 5 and "5" were different, and up to 3 those of "Ann" and "ann"; up to 2 a batch was a
# number of pulls and a sum.
_VERSION = 4


@dataclass(frozen=True)
class OpenBatch:
    """The batch of an arm that is not released yet: how many rewards are in each cell, which is a secret."""

    counts: tuple[int, ...] = (0, 0)

    @property
    def pulls(self) -> int:
        """How many rewards it has."""
        return sum(self.counts)

    def plus(self, cell: int) -> "OpenBatch":
        """The batch with one more reward."""
        return OpenBatch((*self.counts[:cell], self.counts[cell] + 1, *self.counts[cell + 1 :]))

    def __repr__(self) -> str:
        return "OpenBatch(secret)"


@dataclass
class State:
    """All that changes while a bandit runs.

    Attributes
    ----------
    released : list of list of (int, Output)
        For each arm the sizes and outputs of its finished batches: public.
    open : list of OpenBatch
        For each arm the batch that is being filled: secret.
    people : mapping of str to int
        How many rewards of each person were used, by a keyed fingerprint of the person: secret.
    """

    released: list[list[tuple[int, Output]]]
    open: list[OpenBatch] = field(repr=False)
    people: MutableMapping[str, int] = field(repr=False, default_factory=dict)

    @classmethod
    def empty(cls, arms: int, cells: int = 2) -> Self:
        """The state before the first pull."""
        return cls([[] for _ in range(arms)], [OpenBatch((0,) * cells) for _ in range(arms)])


def _text_of(numbers: Output) -> str:
    return str(numbers) if isinstance(numbers, int) else " ".join(map(str, numbers))


def _numbers_of(text: str) -> Output:
    first, *others = map(int, text.split(" "))
    numbers = (first, *others) if others else first
    if _text_of(numbers) != text:
        raise ValueError("Numbers are written in another way.")
    return numbers


@final
class StateFile:
    """A file that one process at a time may write, and that never forgets a release.

    A batch is written as released, and its open sum erased, in one transaction before anybody acts on the output.
    So whatever happens, its rewards are never released a second time. Each transaction that releases leaves a mark of
    its own, which tells whether a transaction was made although an error was reported.

    Parameters
    ----------
    path : Path
        Resolved now, not when it is used.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = file_path(path=path).expanduser().resolve()
        self._owner = self._tried = secrets.token_hex(16)

    def create(self, settings: str, state: State) -> None:
        """Make the file, with the text of the settings. There must be none."""
        self.refuse_unless_free()
        self._make_private()
        schema = (
            "CREATE TABLE bandit (version INTEGER NOT NULL, settings TEXT NOT NULL, owner TEXT NOT NULL)",
            "CREATE TABLE released (arm INTEGER NOT NULL, batch INTEGER NOT NULL, size INTEGER NOT NULL,"
            " output TEXT NOT NULL, PRIMARY KEY (arm, batch))",
            "CREATE TABLE open (arm INTEGER PRIMARY KEY, batch INTEGER NOT NULL, counts TEXT NOT NULL)",
            "CREATE TABLE people (person TEXT PRIMARY KEY, rewards INTEGER NOT NULL)",
        )
        try:
            with self._opened() as connection:
                for line in schema:
                    connection.execute(line)
                connection.execute("INSERT INTO bandit VALUES (?, ?, ?)", (_VERSION, settings, self._owner))
                self._write(connection, state)
        except BaseException:
            # Nothing but this process has seen the file, and no run is in it.
            with suppress(OSError):
                self.path.unlink()
            raise

    def _make_private(self) -> None:
        """An empty file that only its owner may read. SQLite gives its journal the rights of the file."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            self.refuse_unless_free()
            raise
        except OSError as error:
            raise self._unusable(error) from None

    def refuse_unless_free(self) -> None:
        """Never write over another run, and never begin one that cannot be written."""
        if self.path.exists():
            raise ReleaseError(
                f"{self.path} exists. Continue the run that it holds by ThompsonSampler.load, or give another path."
            )
        if not self.path.parent.is_dir():
            raise ReleaseError(f"There is no folder {self.path.parent}. Make it, or give another path.")

    def take_over(self) -> tuple[Settings[Design], State]:
        """Read the file and become its only owner: any other process that still holds it can release nothing more."""
        if not self.path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        with self._opened() as connection:
            settings, state = self._read(connection)
            connection.execute("UPDATE bandit SET owner = ?", (self._owner,))
        return settings, state

    def save(self, state: State) -> None:
        """Write the open sums, and whatever was released."""
        with self._opened() as connection:
            self._refuse_another_owner(connection)
            self._write(connection, state)

    def settle(self, settings: str) -> None:
        """Write other settings. If it fails the file has the old ones or the new ones, and both go with its batches."""
        with self._opened() as connection:
            self._refuse_another_owner(connection)
            connection.execute("UPDATE bandit SET settings = ?", (settings,))

    def release(self, state: State, finished: Sequence[tuple[int, int, int, Output]]) -> None:
        """Make releases durable, with all that they rest on; or raise an error, and then the file is as it was.

        Parameters
        ----------
        state : State
            As it will be.
        finished : sequence of (int, int, int, Output)
            Arm, number, size and output of each batch that the file does not hold yet.
        """
        mark = secrets.token_hex(16)
        try:
            with self._opened() as connection:
                self._refuse_another_owner(connection)
                self._tried = mark
                rows = [(arm, batch, size, _text_of(output)) for arm, batch, size, output in finished]
                connection.executemany("INSERT INTO released VALUES (?, ?, ?, ?)", rows)
                connection.executemany("DELETE FROM open WHERE arm = ?", {(arm,) for arm, *_ in finished})
                self._write_people(connection, state)
                connection.execute("UPDATE bandit SET owner = ?", (mark,))
        except ReleaseError:
            if not self._made(mark):
                raise
        self._owner = mark

    def _made(self, mark: str) -> bool:
        """Whether the transaction with this mark is in the file for good, although an error was reported."""
        try:
            with self._opened() as connection:
                ((owner,),) = connection.execute("SELECT owner FROM bandit").fetchall()
                # This commit returns only when all before it is on the disk, too.
                connection.execute("UPDATE bandit SET owner = ?", (owner,))
        except ReleaseError:
            return False
        return bool(owner == mark)

    def _write(self, connection: sqlite3.Connection, state: State) -> None:
        for arm, batches in enumerate(state.released):
            rows = [(arm, batch, size, _text_of(output)) for batch, (size, output) in enumerate(batches)]
            connection.executemany("INSERT OR IGNORE INTO released VALUES (?, ?, ?, ?)", rows)
        counts = [(arm, len(state.released[arm]), _text_of(item.counts)) for arm, item in enumerate(state.open)]
        connection.executemany("INSERT OR REPLACE INTO open VALUES (?, ?, ?)", counts)
        self._write_people(connection, state)

    def _write_people(self, connection: sqlite3.Connection, state: State) -> None:
        connection.executemany("INSERT OR REPLACE INTO people VALUES (?, ?)", state.people.items())

    def _read(self, connection: sqlite3.Connection) -> tuple[Settings[Design], State]:
        version, text = connection.execute("SELECT version, settings FROM bandit").fetchone()
        if version != _VERSION:
            raise ReleaseError(
                f"{self.path} has version {version!r} of the format, and this library reads version {_VERSION}. Finish "
                "the run with the library that began it."
            )
        try:
            settings = Settings.from_json(text)
        except PARSE_ERRORS as error:
            reason = str(error) if isinstance(error, DirdpError) else type(error).__name__
            raise ReleaseError(f"{self.path} is damaged: its settings cannot be read ({reason}).") from None
        try:
            return settings, self._read_state(connection, settings)
        except PARSE_ERRORS as error:
            raise ReleaseError(f"{self.path} is damaged: its batches contradict its settings.") from error

    def _read_state(self, connection: sqlite3.Connection, settings: Settings[Design]) -> State:
        """The state, every number of which has to be one that the rules allow."""
        design, arms = settings.design, len(settings.arms)
        released: list[list[tuple[int, Output]]] = [[] for _ in range(arms)]
        for arm, batch, size, text in connection.execute("SELECT * FROM released ORDER BY arm, batch"):
            arm_batches = released[_bounded_integer(arm, 0, arms - 1)]
            if batch != len(arm_batches):
                raise ValueError("A batch is missing.")
            arm_batches.append((size, _numbers_of(text)))
        for batches in released:
            design.refuse_others(batches)
        cells = len(design.mechanism.worths)
        state = State.empty(arms, cells)
        state.released = released
        for arm, batch, text in connection.execute("SELECT * FROM open"):
            arm_batches = released[_bounded_integer(arm, 0, arms - 1)]
            # What was saved before a batch was released is a part of it, and must not enter the next one.
            if _bounded_integer(batch, 0, len(arm_batches)) == len(arm_batches):
                next_size = design.next_size(sum(batch_size for batch_size, _ in arm_batches))
                counts = tuple(_bounded_integer(int(item), 0, next_size) for item in text.split(" "))
                if len(counts) != cells or sum(counts) > next_size:
                    raise ValueError("There are more rewards than pulls.")
                state.open[arm] = OpenBatch(counts)
        for person, rewards in connection.execute("SELECT person, rewards FROM people"):
            state.people[person] = _bounded_integer(rewards, 1, settings.rewards)
        if state.people and settings.unit == REWARD:
            raise ValueError("Single rewards have no people.")
        return state

    def _refuse_another_owner(self, connection: sqlite3.Connection) -> None:
        (owner,) = connection.execute("SELECT owner FROM bandit").fetchone()
        if owner == self._tried != self._owner:
            raise ReleaseError(
                f"Load {self.path} again, and do not report the rewards of the last update again: it ended in an error "
                "here, and the file holds what it released."
            )
        if owner != self._owner:
            raise ReleaseError(
                f"Load {self.path} again to take over: another process has loaded it since and may release the open "
                "batches, so this bandit releases nothing more."
            )

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as connection:
                # A commit returns only when everything is on the disk, and what was deleted is overwritten.
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        except ReleaseError:
            raise
        except (sqlite3.Error, OSError, *PARSE_ERRORS) as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> ReleaseError:
        return ReleaseError(
            f"{self.path} cannot be used as the state of a bandit ({type(error).__name__}). See that its folder can be "
            "written and the disk has room; restore a damaged file from a copy only if no batch was released since the "
            "copy was made."
        )


def _bounded_integer(value: object, low: int, high: int) -> int:
    """An integer of a file between two bounds; SQLite keeps any kind of value in any column."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError("A number is none, or out of its bounds.")
    return value
