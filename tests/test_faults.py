"""Every write, commit and lock fails in turn, the user tries again, and the state is compared with a model."""

import itertools
import os
import sqlite3
import tempfile
from contextlib import closing, suppress

import pytest

import pymc_dirdp as dirdp

# The noise is 0 with a probability above 1 - 1e-300, so a released sum is the sum.
NO_NOISE = dirdp.PureDP(epsilon=700.0)
HALF = dirdp.PureDP(epsilon=0.5)


class Faults:
    """The steps of SQLite and of the file system, one of which fails: `at` says which, counted from 1.

    A step fails before it is done, or is done and reports an error (`late`). With `lasting` all later ones fail too.
    """

    seen, at, late, lasting = 0, None, False, False

    def arm(self, at, *, late, lasting):
        self.seen, self.at, self.late, self.lasting = 0, at, late, lasting

    def disarm(self):
        met, self.at = self.at is not None and self.seen >= self.at, None
        return met

    def step(self, act, *args, error=sqlite3.OperationalError):
        self.seen += 1
        fails = self.at is not None and (self.seen == self.at or (self.lasting and self.seen > self.at))
        # A file that is opened is not reported as one that is not.
        if fails and (not self.late or error is OSError):
            raise error("disk I/O error")
        result = act(*args)
        if fails:
            if hasattr(result, "close"):
                result.close()  # Nobody else could.
            raise error("disk I/O error")
        return result


@pytest.fixture
def faults(monkeypatch):
    found = Faults()

    class Failing(sqlite3.Connection):
        def execute(self, statement, *values):
            # What is to be undone is undone when the file is opened again, at the latest.
            if statement == "ROLLBACK":
                return super().execute(statement)
            return found.step(super().execute, statement, *values)

        def executemany(self, *args):
            return found.step(super().executemany, *args)

    connect = sqlite3.connect

    def connected(*args, **named):
        return found.step(lambda: connect(*args, **named | {"factory": Failing, "timeout": 1}))

    monkeypatch.setattr(sqlite3, "connect", connected)
    for module, name in ((os, "open"), (os, "link"), (tempfile, "mkstemp")):
        real = getattr(module, name)

        def failing(*args, real=real, **named):
            return found.step(lambda: real(*args, **named), error=OSError)

        monkeypatch.setattr(module, name, failing)
    return found


KINDS = [{"late": late, "lasting": lasting} for late in (False, True) for lasting in (False, True)]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind['late']}-{kind['lasting']}")


def each_step(attempt):
    """Each step of an attempt fails in turn, until there is none that could; how many attempts failed."""
    failed = 0
    for at in itertools.count(1):
        met, failures = attempt(at)
        failed += failures
        if not met:
            assert at > 8
            return failed


class Model:
    """What a bandit without noise holds: the pulls and the sum of each batch, and the rewards of each person."""

    def __init__(self, arms, first_batch, contribution):
        self.released, self.open = {arm: [] for arm in arms}, {arm: [0, 0] for arm in arms}
        self.used, self.first_batch, self.contribution = {}, first_batch, contribution

    def update(self, arms, rewards, people):
        for arm, reward, person in zip(arms, rewards, people, strict=True):
            if self.used.get(person, 0) == self.contribution:
                continue
            self.used[person] = self.used.get(person, 0) + 1
            self.open[arm][0] += 1
            self.open[arm][1] += reward
            if self.open[arm][0] == max(self.first_batch, sum(size for size, _ in self.released[arm])):
                self.released[arm].append(tuple(self.open[arm]))
                self.open[arm] = [0, 0]

    def is_that_of(self, bandit, *, with_open=True):
        state = bandit._run.state
        same = state.released == list(self.released.values())
        same &= sorted(state.people.values()) == sorted(self.used.values())
        return same and (
            not with_open or [[one.pulls, one.counts[1]] for one in state.open] == list(self.open.values())
        )


UPDATES = [
    (["a", "b", "a"], [1, 1, 0], ["Ann", "Bob", "Cy"]),
    (["a", "a", "b", "a", "a", "a"], [1, 0, 1, 1, 1, 0], ["Ann", "Ann", "Bob", "Dan", "Eve", 6]),
    (["b"] * 5, [1, 1, 0, 1, 1], ["Fay", 6, 6, "Guy", "Hal"]),
]


@each_kind
def test_a_list_of_rewards_is_counted_once(tmp_path, faults, kind):
    """The run and the file are those of the model after any fault and the user's retry."""
    loaded = []

    def attempt(at):
        path, model = tmp_path / f"{at}.db", Model("ab", 2, 2)
        bandit = dirdp.ThompsonSampler(["a", "b"], NO_NOISE, first_batch=2, contribution=2, path=path)
        met, failed = False, 0
        for update in UPDATES:
            arms, rewards, people = update
            before = bandit._run.state.released, [*bandit._run.state.open], dict(bandit._run.state.people)
            if not met and update is not UPDATES[0]:
                faults.arm(at, **kind)
            again = False
            try:
                bandit.update(arms, rewards, person=people)
            except dirdp.errors.ReleaseError:
                again, failed = True, failed + 1
                state = bandit._run.state
                assert before == (state.released, [*state.open], dict(state.people))
            met = met or faults.disarm()
            model.update(arms, rewards, people)
            with closing(sqlite3.connect(path)) as connection:
                (owner,) = connection.execute("SELECT owner FROM bandit").fetchone()
            if again and owner != bandit._run.file._owner:
                # The commit was made, and its file could not be read back. Nothing is released from here on.
                for act in (lambda: bandit.update(arms, rewards, person=people), lambda: bandit.save()):  # noqa: B023
                    with pytest.raises(dirdp.errors.ReleaseError, match="do not report the rewards"):
                        act()
                loaded.append(at)
                # What was open and not saved is lost, as in a crash.
                assert model.is_that_of(dirdp.ThompsonSampler.load(path), with_open=False)
                return met, failed
            if again:
                bandit.update(arms, rewards, person=people)
        assert model.is_that_of(bandit)
        bandit.save()
        assert model.is_that_of(dirdp.ThompsonSampler.load(path))
        return met, failed

    assert each_step(attempt) > 8 - kind["late"]
    assert len(loaded) == (kind["late"] and kind["lasting"])


@each_kind
def test_a_save_fails_and_is_done_again(tmp_path, faults, kind):
    def attempt(at):
        path, model = tmp_path / f"{at}.db", Model("ab", 2, 2)
        bandit = dirdp.ThompsonSampler(["a", "b"], NO_NOISE, first_batch=2, contribution=2)
        arms, rewards, people = UPDATES[1]
        bandit.update(arms, rewards, person=people)
        model.update(arms, rewards, people)
        met = False
        for where in (path, None):
            faults.arm(at, **kind)
            try:
                bandit.save(where)
            except dirdp.errors.ReleaseError:
                faults.disarm()
                bandit.save(where)
                met = True
            assert model.is_that_of(bandit)
        faults.disarm()
        assert model.is_that_of(dirdp.ThompsonSampler.load(path))
        return met, met

    each_step(attempt)


ACTS = {
    "spent": lambda ledger: ledger.spend(HALF, what="hair"),
    "reserved": lambda ledger: ledger.reserve(HALF, what="hair", times=2, unit="record"),
    "used": lambda ledger: ledger.using(1).spend(HALF, what="hair"),
}


@each_kind
@pytest.mark.parametrize("act", ACTS)
def test_no_release_without_an_entry(tmp_path, faults, act, kind):
    def attempt(at):
        ledger = dirdp.Ledger(dirdp.PureDP(epsilon=5.0), tmp_path / f"{at}.db")
        ledger.reserve(HALF, what="hair", unit="record")
        before, count = ledger.entries(), 2 if act == "reserved" else 1
        faults.arm(at, **kind)
        try:
            ACTS[act](ledger)
            done = True
        except dirdp.errors.LedgerError:
            done = False
        met = faults.disarm()
        after = ledger.entries()
        assert after[: len(before)] == before
        # As a whole, or not at all; without an error it is there.
        assert len(after) - len(before) in ((count,) if done else (0, count))
        written = len(after) > len(before)
        if not done:
            # Only if a commit is made, reported as an error, and cannot be read back, the entry has no release.
            assert not written or (kind["late"] and kind["lasting"])
            if written and act == "used":
                with pytest.raises(dirdp.errors.ArgumentError, match="reservation"):
                    ACTS[act](ledger)
            else:
                ACTS[act](ledger)
        assert dirdp.Ledger(ledger.limit, ledger.path).entries() == ledger.entries()
        return met, not done

    assert each_step(attempt) > 8 - kind["late"]


@each_kind
def test_a_ledger_is_made_whole_or_not_at_all(tmp_path, faults, kind):
    def attempt(at):
        path = tmp_path / f"{at}.db"
        faults.arm(at, **kind)
        with suppress(dirdp.errors.LedgerError):
            dirdp.Ledger(HALF, path)
        met = faults.disarm()
        ledger = dirdp.Ledger(HALF, path)
        assert ledger.entries() == ()
        ACTS["spent"](ledger)
        return met, 0

    each_step(attempt)


@pytest.mark.parametrize("trouble", ["locked", "full", "read-only", "gone", "foreign"])
def test_what_happens_to_files(tmp_path, monkeypatch, trouble):
    """The real errors of SQLite, in the middle of a list of rewards."""
    path, model = tmp_path / "bandit.db", Model("ab", 2, 9)
    bandit = dirdp.ThompsonSampler(["a", "b"], NO_NOISE, first_batch=2, contribution=9, path=path)
    connect, aside = sqlite3.connect, tmp_path / "aside"
    orders = {"full": "PRAGMA max_page_count = 1", "read-only": "PRAGMA query_only = ON"}

    def troubled(where, timeout, isolation_level):
        connection = connect(where, timeout=0.1, isolation_level=isolation_level)
        if trouble in orders:
            connection.execute(orders[trouble])
        return connection

    with closing(connect(path, isolation_level=None)) as other:
        if trouble == "locked":
            other.execute("BEGIN IMMEDIATE")
        if trouble in ("gone", "foreign"):
            path.rename(aside)
        if trouble == "foreign":
            path.write_text("something else" * 1000)
        with monkeypatch.context() as patched:
            patched.setattr(sqlite3, "connect", troubled)
            people = [f"person {i}" for i in range(200)]  # More than fits on the pages that are there.
            with pytest.raises(dirdp.errors.ReleaseError, match="cannot be used"):
                bandit.update(["a"] * 200, [1, 0] * 100, person=people)
        assert Model("ab", 2, 9).is_that_of(bandit)
    if aside.exists():
        aside.replace(path)
    bandit.update(["a"] * 200, [1, 0] * 100, person=people)
    model.update(["a"] * 200, [1, 0] * 100, people)
    assert model.is_that_of(bandit)
