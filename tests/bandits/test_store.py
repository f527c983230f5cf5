"""A file never releases a batch twice: after a crash, in a second process, or edited."""

import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
from contextlib import closing

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.store import State, StateFile

GUARANTEE = dirdp.PureDP(epsilon=1.0)


def test_a_run_goes_on_after_a_pause(tmp_path):
    path = tmp_path / "bandit.db"
    bandit = dirdp.ThompsonSampler(["a", 7], GUARANTEE, first_batch=4, path=path)
    bandit.update(["a"] * 6, [1] * 6)
    bandit.save()
    again = dirdp.ThompsonSampler.load(path)
    assert again.released.equals(bandit.released)
    assert again.arms == ("a", 7)
    assert again.guarantee == GUARANTEE
    assert again._run.state.open[0].pulls == 2
    again.update(["a"] * 2, [1, 1])
    assert again.released["size"].values.tolist() == [4, 4]


def test_what_was_released_after_the_last_save_is_never_released_again(tmp_path):
    path = tmp_path / "bandit.db"
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=4, path=path)
    bandit.update(["a"] * 3, [1] * 3)
    bandit.save()
    bandit.update(["a"] * 2, [1] * 2)
    # A crash: what is in memory is gone. The three saved rewards are in the batch that was released.
    again = dirdp.ThompsonSampler.load(path)
    assert again.released["noisy_sum"].values.tolist() == bandit.released["noisy_sum"].values.tolist()
    assert again._run.state.open[0].pulls == 0


def test_a_crash_between_the_draw_and_the_file_releases_nothing(tmp_path, monkeypatch):
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=2, path=tmp_path / "bandit.db")
    bandit.update("a", 1)
    monkeypatch.setattr(type(bandit._run.file), "release", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        bandit.update("a", 1)
    assert bandit.released.sizes["batch"] == 0
    assert bandit._run.state.open[0].pulls == 1
    monkeypatch.undo()
    bandit.update("a", 0)
    assert bandit.released["size"].values.tolist() == [2]


def test_only_the_last_who_loaded_a_file_releases(tmp_path):
    path = tmp_path / "bandit.db"
    first = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=2, path=path)
    first.update("a", 1)
    first.save()
    second = dirdp.ThompsonSampler.load(path)
    with pytest.raises(dirdp.errors.ReleaseError, match="another process has loaded it"):
        first.update("a", 1)
    with pytest.raises(dirdp.errors.ReleaseError, match="another process has loaded it"):
        first.save()
    second.update("a", 1)
    assert second.released.sizes["batch"] == 1
    assert first.released.sizes["batch"] == 0


@pytest.mark.thorough
def test_a_second_process_takes_over(tmp_path):
    path = tmp_path / "bandit.db"
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=2, path=path)
    bandit.update("a", 1)
    code = f"""
        import pymc_dirdp as dirdp
        dirdp.ThompsonSampler.load({str(path)!r}).update(["a", "a"], [1, 1])
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    with pytest.raises(dirdp.errors.ReleaseError, match="another process has loaded it"):
        bandit.update("a", 1)
    assert dirdp.ThompsonSampler.load(path).released.sizes["batch"] == 1


def test_people_are_remembered_by_a_fingerprint(tmp_path):
    path = tmp_path / "bandit.db"
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=2, contribution=1, path=path)
    bandit.update(["a", "a"], [1, 1], person=["Ann", "Bob"])
    again = dirdp.ThompsonSampler.load(path)
    again.update("a", 1, person="Ann")
    assert again._run.state.open[0].pulls == 0
    assert b"Ann" not in path.read_bytes()


def test_a_file_is_never_overwritten_and_there_is_one_for_each_bandit(tmp_path):
    path = tmp_path / "bandit.db"
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"save\(path\)"):
        bandit.save()
    bandit.save(path)
    with pytest.raises(dirdp.errors.ArgumentError, match="a second file"):
        bandit.save(tmp_path / "other.db")
    with pytest.raises(dirdp.errors.ReleaseError, match="exists"):
        dirdp.ThompsonSampler(["a"], GUARANTEE, path=path)
    with pytest.raises(FileNotFoundError, match="No such file"):
        dirdp.ThompsonSampler.load(tmp_path / "missing.db")


def test_a_released_sum_is_erased_from_the_file(tmp_path):
    path = tmp_path / "bandit.db"
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, first_batch=3, path=path)
    bandit.update(["a", "a", "b"], [1, 1, 1])
    bandit.save()
    bandit.update("a", 1)
    with closing(sqlite3.connect(path)) as connection:
        assert [arm for arm, *_ in connection.execute("SELECT * FROM open")] == [1]


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


def test_a_run_without_a_folder_is_not_charged_and_a_failure_leaves_no_file(tmp_path, monkeypatch):
    ledger = dirdp.Ledger(GUARANTEE)
    with pytest.raises(dirdp.errors.ReleaseError, match="no folder"):
        dirdp.ThompsonSampler(["a"], GUARANTEE, path=tmp_path / "missing" / "bandit.db", ledger=ledger)
    assert ledger.entries() == ()
    monkeypatch.setattr(StateFile, "_write", lambda *_: (_ for _ in ()).throw(sqlite3.OperationalError("full")))
    with pytest.raises(dirdp.errors.ReleaseError, match="cannot be used"):
        dirdp.ThompsonSampler(["a"], GUARANTEE, path=tmp_path / "bandit.db")
    assert list(tmp_path.iterdir()) == []


def test_of_two_who_make_one_file_one_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "bandit.db"
    late = StateFile(path)
    dirdp.ThompsonSampler(["a"], GUARANTEE, path=path)
    # The other one made the file after this one had looked.
    looks, real = [], StateFile.refuse_unless_free
    monkeypatch.setattr(StateFile, "refuse_unless_free", lambda self: looks.append(1) if not looks else real(self))
    with pytest.raises(dirdp.errors.ReleaseError, match="exists"):
        late.create("{}", State.empty(1))
    assert dirdp.ThompsonSampler.load(path).arms == ("a",)


EDITS = [
    "UPDATE bandit SET version = 9",
    "UPDATE bandit SET settings = 'x'",
    "UPDATE bandit SET settings = x'00'",
    "UPDATE bandit SET settings = '{}'",
    "UPDATE bandit SET settings = replace(settings, '\"scale\": 2', '\"scale\": 0.2')",
    "UPDATE bandit SET settings = replace(settings, '\"seeded\": false', '\"seeded\": 0')",
    'UPDATE bandit SET settings = replace(settings, \'"unit": "person"\', \'"unit": "reward"\')',
    'UPDATE bandit SET settings = replace(settings, \'"unit": "person"\', \'"people": true\')',
    'UPDATE bandit SET settings = replace(settings, \'"key": "\', \'"key": "zz\')',
    'UPDATE bandit SET settings = replace(settings, \'"key": "\', \'"key": "00\')',
    "UPDATE bandit SET settings = replace(settings, '[\"a\"', '[[]')",
    "UPDATE bandit SET settings = replace(settings, 'PureDP', 'os.system')",
    "UPDATE released SET batch = 5",
    "UPDATE released SET batch = 'x'",
    "UPDATE released SET arm = -1",
    "UPDATE released SET arm = 'a'",
    "UPDATE released SET arm = 0.5",
    "UPDATE released SET size = -4",
    "UPDATE released SET size = 1000000",
    "UPDATE released SET output = 'many'",
    "UPDATE released SET output = '0' || output",
    "UPDATE released SET output = x'ff'",
    f"UPDATE released SET output = '{'9' * 500}'",
    f"UPDATE released SET output = '{'9' * 5000}'",
    "UPDATE open SET counts = '0 99'",
    "UPDATE open SET counts = 0.5",
    "UPDATE open SET counts = '-1 1'",
    "UPDATE open SET counts = 'x 0'",
    "UPDATE open SET counts = '999 1'",
    "UPDATE open SET counts = '1'",
    "UPDATE open SET counts = '0 0 1'",
    "UPDATE open SET batch = 7",
    "UPDATE open SET arm = 4",
    "UPDATE people SET rewards = -5",
    "UPDATE people SET rewards = 'none'",
    "UPDATE people SET rewards = 7",
    "DROP TABLE people",
    "DROP TABLE released",
    "DELETE FROM bandit",
]


def a_file(path):
    """The file of a run with a released batch, an open one, and people."""
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=2, contribution=2, path=path)
    bandit.update(["a"] * 3, [1] * 3, person=["Ann", "Bob", "Eve"])
    bandit.save()
    return bandit


@pytest.mark.parametrize("edit", EDITS)
def test_edited_files_are_one_kind_of_error_and_keep_their_owner(tmp_path, edit):
    path = tmp_path / "bandit.db"
    bandit = a_file(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        before = list(connection.iterdump())
        connection.execute(edit)
        assert list(connection.iterdump()) != before
        owners = connection.execute("SELECT owner FROM bandit").fetchall()
    with pytest.raises(dirdp.errors.ReleaseError) as caught:
        dirdp.ThompsonSampler.load(path)
    assert bandit._settings.key.hex() not in str(caught.value)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT owner FROM bandit").fetchall() == owners


def test_people_in_a_file_of_single_rewards_are_damage(tmp_path):
    path = tmp_path / "bandit.db"
    dirdp.ThompsonSampler(["a"], GUARANTEE, path=path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO people (person, rewards) VALUES (?, 1)", (b"x" * 16,))
    with pytest.raises(dirdp.errors.ReleaseError):
        dirdp.ThompsonSampler.load(path)


def test_any_byte_may_be_damaged(tmp_path):
    """Whatever stands in a file, it is a run that keeps its guarantee or one kind of error."""
    path, hurt = tmp_path / "bandit.db", tmp_path / "hurt.db"
    a_file(path)
    whole, rng = path.read_bytes(), np.random.default_rng(7)
    written = np.flatnonzero(np.frombuffer(whole, dtype=np.uint8))
    refused = 0
    for _ in range(400):
        data = bytearray(whole)
        for place in rng.choice(written, size=rng.integers(1, 4)):
            data[place] = rng.choice([0, 1, 32, 48, 57, 91, 123, 125, 127, 255])
        hurt.write_bytes(data[: len(data) // 2] if rng.random() < 0.05 else data)
        try:
            bandit = dirdp.ThompsonSampler.load(hurt)
        except dirdp.errors.ReleaseError:
            refused += 1
        else:
            assert bandit.privacy.satisfies(bandit.guarantee)
            bandit.posterior(draws=2)
            dirdp.report(bandit, full=True)
    assert 100 < refused < 400


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "bandit.db"
    path.write_text("hello " * 1000)
    with pytest.raises(dirdp.errors.ReleaseError, match="cannot be used"):
        dirdp.ThompsonSampler.load(path)


def test_a_run_that_was_not_paid_for_leaves_no_file(tmp_path):
    path, ledger = tmp_path / "bandit.db", dirdp.Ledger(dirdp.PureDP(epsilon=0.5))
    with pytest.raises(dirdp.errors.BudgetError):
        dirdp.ThompsonSampler(["a"], GUARANTEE, path=path, ledger=ledger)
    assert not path.exists()


def test_a_run_that_cannot_have_its_file_is_not_charged(tmp_path):
    path, ledger = tmp_path / "bandit.db", dirdp.Ledger(GUARANTEE)
    path.write_text("mine")
    with pytest.raises(dirdp.errors.ReleaseError, match="exists"):
        dirdp.ThompsonSampler(["a"], GUARANTEE, path=path, ledger=ledger)
    assert ledger.entries() == ()
