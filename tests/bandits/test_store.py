"""A file never releases a batch twice: after a crash, in a second process, or edited."""

import os
import sqlite3
import stat
from contextlib import closing

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.store import State, StateFile

GUARANTEE = dirdp.PureDP(epsilon=1.0)


def test_a_run_goes_on_after_a_pause_or_a_crash_for_the_last_who_loaded_it(tmp_path):
    path = tmp_path / "bandit.db"
    first = dirdp.ThompsonSampler(["a", 7], GUARANTEE, first_batch=4, path=path)
    first.update(["a"] * 6, [1] * 6)
    first.save()
    second = dirdp.ThompsonSampler.load(path)
    assert second.released.equals(first.released)
    assert (second.arms, second.guarantee) == (("a", 7), GUARANTEE)
    assert second._run.state.open[0].pulls == 2
    for act in (lambda: first.update(["a"] * 2, [1] * 2), first.save):
        with pytest.raises(dirdp.errors.ReleaseError, match="another process has loaded it"):
            act()
    second.update(["a"] * 3, [1] * 3)
    assert second.released["size"].values.tolist() == [4, 4]
    assert first.released.sizes["batch"] == 1
    # What is released is erased from what is open in the file.
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT arm FROM open").fetchall() == [(1,)]
    # A crash: what is in memory is gone. The two saved rewards are in the batch that was released.
    last = dirdp.ThompsonSampler.load(path)
    assert last.released.equals(second.released)
    assert last._run.state.open[0].pulls == 0


def test_people_are_remembered_by_a_fingerprint_and_only_if_they_are_counted(tmp_path):
    path = tmp_path / "bandit.db"
    a_file(path)
    assert b"Ann" not in path.read_bytes()
    again = dirdp.ThompsonSampler.load(path)
    again.update("a", 1, person="Ann")
    assert again._run.state.people[again._settings.fingerprint("Ann")] == 2
    single = tmp_path / "single.db"
    dirdp.ThompsonSampler(["a"], GUARANTEE, path=single)
    with closing(sqlite3.connect(single)) as connection, connection:
        connection.execute("INSERT INTO people (person, rewards) VALUES (?, 1)", (b"x" * 16,))
    with pytest.raises(dirdp.errors.ReleaseError):
        dirdp.ThompsonSampler.load(single)


def test_a_file_is_never_overwritten_and_there_is_one_for_each_bandit(tmp_path):
    path, bandit = tmp_path / "bandit.db", dirdp.ThompsonSampler(["a"], GUARANTEE)
    for refused, error, message in (
        (bandit.save, dirdp.errors.ArgumentError, r"save\(path\)"),
        (lambda: bandit.save(path) or bandit.save(tmp_path / "other.db"), dirdp.errors.ArgumentError, "a second file"),
        (lambda: dirdp.ThompsonSampler(["a"], GUARANTEE, path=path), dirdp.errors.ReleaseError, "exists"),
        (lambda: dirdp.ThompsonSampler.load(tmp_path / "missing.db"), FileNotFoundError, "No such file"),
    ):
        with pytest.raises(error, match=message):
            refused()


@pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")
def test_only_the_owner_may_read_the_file_and_its_journal(tmp_path, monkeypatch):
    seen, old = [], os.umask(0)
    real = StateFile._write

    def noting(self, connection, state):
        real(self, connection, state)
        seen.extend((one.name, stat.S_IMODE(one.stat().st_mode)) for one in tmp_path.iterdir())

    monkeypatch.setattr(StateFile, "_write", noting)
    try:
        path = tmp_path / "bandit.db"
        bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=100, path=path)
        bandit.update(["a"] * 50, [1] * 50)
        bandit.save()
        dirdp.ThompsonSampler.load(path)
    finally:
        os.umask(old)
    assert {name for name, _ in seen} == {"bandit.db", "bandit.db-journal"}
    assert {mode for _, mode in seen} == {0o600}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_of_two_who_make_one_file_one_is_refused(tmp_path, monkeypatch):
    """The other one made the file after this one had looked."""
    late = StateFile(tmp_path / "bandit.db")
    dirdp.ThompsonSampler(["a"], GUARANTEE, path=late.path)
    looks, real = [], StateFile.refuse_unless_free
    monkeypatch.setattr(StateFile, "refuse_unless_free", lambda self: looks.append(1) if not looks else real(self))
    with pytest.raises(dirdp.errors.ReleaseError, match="exists"):
        late.create("{}", State.empty(1))
    assert dirdp.ThompsonSampler.load(late.path).arms == ("a",)


# What settings may say is tested beside them.
VALUES = {
    "released.batch": ["5", "'x'"],
    "released.arm": ["-1", "'a'", "0.5"],
    "released.size": ["-4", "1000000"],
    "released.output": ["'many'", "'0' || output", "x'ff'", f"'{'9' * 500}'", f"'{'9' * 5000}'"],
    "open.counts": ["'0 99'", "0.5", "'-1 1'", "'x 0'", "'999 1'", "'1'", "'0 0 1'"],
    "open.batch": ["7"],
    "open.arm": ["4"],
    "people.rewards": ["-5", "'none'", "7"],
    "bandit.version": ["9"],
    "bandit.settings": ["'x'", "x'00'", "'{}'", "replace(settings, '\"scale\": 2', '\"scale\": 0.2')"],
}
EDITS = ["DROP TABLE people", "DROP TABLE released", "DELETE FROM bandit"]
for place, values in VALUES.items():
    EDITS += [f"UPDATE {' SET '.join(place.split('.'))} = {value}" for value in values]


def a_file(path):
    """The file of a run with a released batch, an open one, and people."""
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=2, contribution=2, path=path)
    bandit.update(["a"] * 3, [1] * 3, person=["Ann", "Bob", "Eve"])
    bandit.save()
    return bandit


def test_edited_files_are_one_kind_of_error_and_keep_their_owner(tmp_path):
    path, whole = tmp_path / "bandit.db", tmp_path / "whole.db"
    bandit = a_file(whole)
    for edit in EDITS:
        path.write_bytes(whole.read_bytes())
        with closing(sqlite3.connect(path)) as connection, connection:
            before = list(connection.iterdump())
            connection.execute(edit)
            assert list(connection.iterdump()) != before
            owners = connection.execute("SELECT owner FROM bandit").fetchall()
        with pytest.raises(dirdp.errors.ReleaseError) as caught:
            pytest.fail(f"{edit}: {dirdp.ThompsonSampler.load(path)}")
        assert bandit._settings.key.hex() not in str(caught.value)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT owner FROM bandit").fetchall() == owners


def test_any_byte_may_be_damaged(tmp_path):
    """Whatever stands in a file, it is a run that keeps its guarantee or one kind of error."""
    path, rng, refused = tmp_path / "bandit.db", np.random.default_rng(7), 0
    a_file(path)
    whole = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    for _ in range(80):
        hurt = whole.copy()
        hurt[rng.choice(np.flatnonzero(whole), size=2)] = rng.choice([0, 1, 32, 48, 57, 91, 123, 125, 127, 255], size=2)
        (tmp_path / "hurt.db").write_bytes(hurt.tobytes())
        try:
            bandit = dirdp.ThompsonSampler.load(tmp_path / "hurt.db")
        except dirdp.errors.ReleaseError:
            refused += 1
        else:
            assert bandit.privacy.satisfies(bandit.guarantee)
            bandit.posterior(draws=2)
            dirdp.report(bandit, full=True)
    assert 20 < refused < 80


def test_a_run_without_its_file_is_not_charged_and_a_failure_leaves_no_file(tmp_path, monkeypatch):
    def begun(name, ledger, match):
        with pytest.raises(dirdp.DirdpError, match=match):
            dirdp.ThompsonSampler(["a"], GUARANTEE, path=tmp_path / name, ledger=ledger)
        assert ledger.entries() == ()

    (tmp_path / "mine.db").write_text("hello " * 1000)
    begun("mine.db", dirdp.Ledger(GUARANTEE), "exists")
    begun("missing/bandit.db", dirdp.Ledger(GUARANTEE), "no folder")
    begun("bandit.db", dirdp.Ledger(dirdp.PureDP(epsilon=0.5)), "does not fit")
    monkeypatch.setattr(StateFile, "_write", lambda *_: (_ for _ in ()).throw(sqlite3.OperationalError("full")))
    with pytest.raises(dirdp.errors.ReleaseError, match="cannot be used"):
        dirdp.ThompsonSampler(["a"], GUARANTEE, path=tmp_path / "bandit.db")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.db"]
    with pytest.raises(dirdp.errors.ReleaseError, match="cannot be used"):
        dirdp.ThompsonSampler.load(tmp_path / "mine.db")
