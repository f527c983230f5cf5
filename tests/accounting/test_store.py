"""The file under a ledger: what is committed has reached the disk, and what an entry holds."""

import json
import pickle
import sqlite3
from contextlib import closing

import pytest

from pymc_dirdp.accounting import store
from pymc_dirdp.accounting.entries import next_row
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.errors import ArgumentError, LedgerError
from pymc_dirdp.privacy.guarantees import ApproxDP

FULL = 2
LIMIT = ApproxDP(epsilon=1.0, delta=1e-6)


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


# Whom the guarantees of a ledger are about, what they assume, and how that is shown.

TENTH = ApproxDP(epsilon=0.1, delta=1e-7)
TERMS = {
    "unit": "person",
    "contribution": 3,
    "min_count": 5.0,
    "groups": [["p", "q"], ["rate"]],
    "digest": "sha256:6f1e",
}


@pytest.fixture(params=["memory", "file"])
def path(request, tmp_path):
    return tmp_path / "budget.db" if request.param == "file" else None


@pytest.mark.parametrize("given", ["by the ledger", "by the first release"])
def test_guarantees_about_different_units_do_not_add_up(path, given):
    ledger = Ledger(LIMIT, path, unit="household" if given == "by the ledger" else None)
    ledger.spend(TENTH, what="hair", unit="household")
    assert ledger.unit == "household"
    with pytest.raises(ArgumentError, match=r"are about unit='household'.*Keep a ledger for each unit"):
        ledger.spend(TENTH, what="hair", unit="person")
    assert ledger.spend(TENTH, what="hair").unit == "household"
    assert len(ledger.entries()) == 2
    if path is not None:
        assert Ledger(LIMIT, path).unit == pickle.loads(pickle.dumps(ledger)).unit == "household"
        wrong = "replace-one; unit household" if given == "by the ledger" else "so one about unit='person'"
        with pytest.raises(LedgerError, match=wrong):
            Ledger(LIMIT, path, unit="person")
    # Neither is the first release of a ledger that was made for another unit.
    with pytest.raises(ArgumentError, match="are about unit='household'"):
        Ledger(LIMIT, unit="household").spend(TENTH, what="hair", unit="person")
    # What does not say its unit is not added to what does.
    ledger = Ledger(LIMIT)
    ledger.spend(TENTH, what="hair")
    with pytest.raises(ArgumentError, match=r"do not say their unit.*Ledger\(limit, unit='person'\)"):
        ledger.spend(TENTH, what="eyes", unit="person")
    assert len(ledger.entries()) == 1


def test_the_sum_assumes_what_each_of_its_guarantees_assumes():
    ledger = Ledger(LIMIT)
    ledger.spend(TENTH, what="hair", unit="person", min_count=5)
    ledger.spend(TENTH, what="eyes", unit="person", contribution=1)
    for _ in range(2):
        ledger.spend(TENTH, what="größer 日本語 <b>", **TERMS)
    shown, page = str(ledger).splitlines(), ledger._repr_html_()
    assert shown[0] == "Ledger of (1, 1e-06)-differential privacy, replace-one; unit person"
    assert shown[-1].removeprefix("assumed: ").split("; ") == [
        "every cell holds at least 5 records (entries 1, 3 to 4)",
        "at most 1 record of one person counts in a table (entry 2)",
        "at most 3 records of one person count in a table (entries 3 to 4)",
        "no person feeds two of (p, q) and (rate) (entries 3 to 4)",
        "each release was drawn as it says, once",
    ]
    assert "<p>assumed: every cell holds at least 5 records (entries 1, 3 to 4); at most 1 record" in page
    # Names are escaped.
    assert "größer 日本語 <b>" in str(ledger)
    assert "日本語 &lt;b&gt;" in page


FORGED = "hair\n2       2030-01-01T00:00:00+00:00  eyes  0-differential privacy"


@pytest.mark.parametrize("name", ["what", "unit", "digest", "contribution", "groups"])
def test_characters_that_a_terminal_obeys_are_refused(name):
    ledger = Ledger(LIMIT)
    for text in (FORGED, "\x1b[2J\x1b[1;1H", "a\rb", "a\x00b", "a\u2028b", "a\u202eb", "\ud800", "\x9b31m"):
        terms = {"what": "hair", name: [[text], ["q"]] if name == "groups" else text}
        with pytest.raises(ArgumentError, match=f"Expected {name} to be a line of printable text") as error:
            ledger.spend(TENTH, **terms)
        assert str(error.value).isprintable()
    assert ledger.entries() == ()


@pytest.mark.parametrize("name", ["what", "recorded", "unit", "contribution", "digest"])
def test_texts_of_a_file_that_a_terminal_obeys_are_refused(tmp_path, name):
    """Somebody else may have written the file, with the hashes that belong to it."""
    path = tmp_path / "budget.db"
    ledger = Ledger(LIMIT, path)
    entry = ledger.spend(TENTH, what="hair", unit="person", contribution="two", digest="sha256:6f1e")
    for text in (FORGED, "\x1b[2J", ""):
        line = json.dumps(json.loads(entry.text) | {name: text}, ensure_ascii=False)
        row = next_row(ledger._store._start.last[2], 1, line)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE entries SET text = ?, hash = ?", row[1:])
            connection.execute("UPDATE ledger SET hash = ?", row[2:])
        with pytest.raises(LedgerError, match="damaged from entry 1 on: it cannot be parsed") as error:
            Ledger(LIMIT, path)
        assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("what", (3, " ")),
        ("unit", (3, "")),
        ("contribution", (0, 1.5, [1, 2])),
        ("min_count", (-1, float("nan"), "5")),
        ("groups", ("pq", [["p"], [3]])),
        ("digest", (b"00",)),
    ],
)
def test_terms_of_the_wrong_kind_are_refused(name, values):
    ledger = Ledger(LIMIT)
    for value in values:
        with pytest.raises(ArgumentError, match=f"Expected {name}"):
            ledger.spend(TENTH, **({"what": "hair"} | {name: value}))
    assert ledger.entries() == ()
