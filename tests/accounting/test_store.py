"""The file under a ledger: what is committed has reached the disk."""

import sqlite3

import pytest

from pymc_dirdp.accounting import store
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.privacy.guarantees import ApproxDP

LIMIT = ApproxDP(epsilon=1.0, delta=1e-6)
FULL = 2


@pytest.fixture
def commits(monkeypatch):
    """How far each commit waits for the disk, in SQLite's numbers: 0 is off, 1 is normal, 2 is full."""
    levels = []

    class Watched(sqlite3.Connection):
        def execute(self, statement, *values):
            if statement == "COMMIT":
                levels.append(super().execute("PRAGMA synchronous").fetchone()[0])
            return super().execute(statement, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(store.sqlite3, "connect", lambda *args, **options: connect(*args, factory=Watched, **options))
    return levels


def test_every_commit_waits_for_the_disk(tmp_path, commits):
    """Otherwise a power cut would forget what was spent, and it could be spent again."""
    ledger = Ledger(LIMIT, tmp_path / "budget.db")
    made = len(commits)
    assert made >= 1
    ledger.spend(ApproxDP(epsilon=0.1, delta=1e-7), what="hair")
    assert len(commits) > made
    assert set(commits) == {FULL}
