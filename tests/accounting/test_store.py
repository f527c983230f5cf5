"""The file under a ledger: what is committed has reached the disk."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from pymc_dirdp.accounting import store
from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.errors import LedgerError
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


def test_of_two_that_make_a_ledger_at_once_one_reads_what_the_other_made(tmp_path, monkeypatch):
    link = os.link

    def slower(made, path):
        link(made, path)
        raise FileExistsError(path)

    monkeypatch.setattr(store.os, "link", slower)
    ledger = Ledger(LIMIT, tmp_path / "budget.db")
    ledger.spend(ApproxDP(epsilon=0.1, delta=1e-7), what="hair")
    assert len(Ledger(LIMIT, tmp_path / "budget.db").entries()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["budget.db"]


@pytest.mark.parametrize("limit", ["", "{}", "os.system", "9" * 5000])
def test_a_limit_that_is_none_is_damage(tmp_path, limit):
    Ledger(LIMIT, tmp_path / "budget.db")
    with closing(sqlite3.connect(tmp_path / "budget.db")) as connection, connection:
        connection.execute("UPDATE ledger SET spending_limit = ?", (limit,))
    with pytest.raises(LedgerError, match="what it is for cannot be understood"):
        Ledger(LIMIT, tmp_path / "budget.db")


def test_a_receipt_is_a_ledger_a_number_and_a_hash():
    facts = {"ledger": "0" * 32, "number": 1, "hash": "f" * 64}
    assert Receipt.from_facts(facts) == Receipt(**facts)
    for name, wrong in (("ledger", "0" * 31), ("ledger", 0), ("number", 0), ("number", True), ("hash", "F" * 64)):
        with pytest.raises(ValueError, match="no facts of a receipt"):
            Receipt.from_facts(facts | {name: wrong})


def test_a_ledger_in_memory_serves_every_thread():
    ledger = Ledger(LIMIT)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(ledger.spend, ApproxDP(epsilon=0.1, delta=1e-7), what="hair").result()
    assert [entry.what for entry in ledger.entries()] == ["hair"]
