"""The state of a bandit in one file: its released batches, and the sums of its open batches."""

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

# Version 1 distinguished the fingerprints of 5 and "5", and versions up to 3 those of "Ann" and "ann". Versions up to 2
# stored a number of pulls and a sum for each batch.
_VERSION = 4


@dataclass(frozen=True)
class OpenBatch:
    """The secret counts of an arm's batch that is not released yet."""

    counts: tuple[int, ...] = (0, 0)

    @property
    def pulls(self) -> int:
        """Number of rewards."""
        return sum(self.counts)

    def plus(self, cell: int) -> "OpenBatch":
        """The batch with one more reward."""
        return OpenBatch((*self.counts[:cell], self.counts[cell] + 1, *self.counts[cell + 1 :]))

    def __repr__(self) -> str:
        return "OpenBatch(secret)"


@dataclass
class State:
    """The state of a bandit, which changes as it runs.

    Attributes
    ----------
    released : list of list of (int, Output)
        For each arm the sizes and outputs of its finished batches, which are public.
    open : list of OpenBatch
        For each arm the open batch, which is secret.
    people : mapping of str to int
        Number of rewards used of each person, by a keyed fingerprint of the person. It is secret.
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
    """A file that one process at a time may write, and that has every release.

    One transaction writes the output of a batch and erases its open sum, before the output is used. So its rewards are
    never released twice. Each such transaction leaves a random mark, which shows whether it was committed although an
    error was reported.

    Parameters
    ----------
    path : Path
        Resolved at construction.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = file_path(path=path).expanduser().resolve()
        self._owner = self._tried = secrets.token_hex(16)

    def create(self, settings: str, state: State) -> None:
        """Create the file with the text of the settings. It must not exist."""
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
            # Only this process knows the file, and it has no run.
            with suppress(OSError):
                self.path.unlink()
            raise

    def _make_private(self) -> None:
        """Create an empty file that only its owner may read. SQLite gives its journal the same permissions."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            self.refuse_unless_free()
            raise
        except OSError as error:
            raise self._unusable(error) from None

    def refuse_unless_free(self) -> None:
        """Check that the file does not exist and can be created."""
        if self.path.exists():
            raise ReleaseError(f"{self.path} exists. Continue its run by ThompsonSampler.load, or pass another path.")
        if not self.path.parent.is_dir():
            raise ReleaseError(f"There is no folder {self.path.parent}. Create it, or pass another path.")

    def take_over(self) -> tuple[Settings[Design], State]:
        """Read the file and become its only owner. No other process can release from it any more."""
        if not self.path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        with self._opened() as connection:
            settings, state = self._read(connection)
            connection.execute("UPDATE bandit SET owner = ?", (self._owner,))
        return settings, state

    def save(self, state: State) -> None:
        """Write the open sums and the released batches."""
        with self._opened() as connection:
            self._refuse_another_owner(connection)
            self._write(connection, state)

    def settle(self, settings: str) -> None:
        """Write other settings. After a failure the file has the old or the new ones, and both fit its batches."""
        with self._opened() as connection:
            self._refuse_another_owner(connection)
            connection.execute("UPDATE bandit SET settings = ?", (settings,))

    def release(self, state: State, finished: Sequence[tuple[int, int, int, Output]]) -> None:
        """Make releases durable, with the people they use; or raise an error and leave the file unchanged.

        Parameters
        ----------
        state : State
            The state after the releases.
        finished : sequence of (int, int, int, Output)
            Arm, number, size and output of each batch that is not in the file yet.
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
        """Whether the transaction with this mark was committed although an error was reported."""
        try:
            with self._opened() as connection:
                ((owner,),) = connection.execute("SELECT owner FROM bandit").fetchall()
                # This commit returns only when all earlier ones are on the disk, too.
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
                "the run with the version of the library that started it."
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
        """The state, after a check that the rules allow every number."""
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
            # Counts that were saved before the batch was released belong to it, and must not enter the next one.
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
                "here, but the file has its releases."
            )
        if owner != self._owner:
            raise ReleaseError(
                f"Load {self.path} again to take over: another process has loaded it and may release the open batches, "
                "so this bandit releases nothing more."
            )

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as connection:
                # A commit returns only when everything is on the disk, and deleted content is overwritten.
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
            f"{self.path} cannot be used as the state of a bandit ({type(error).__name__}). Check that its folder is "
            "writable and the disk is not full. Restore a damaged file from a copy only if no batch was released after "
            "the copy."
        )


def _bounded_integer(value: object, low: int, high: int) -> int:
    """An integer of a file between two bounds. SQLite stores any type in any column."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError("A value is not an integer, or out of its bounds.")
    return value
