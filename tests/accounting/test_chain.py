"""A ledger's file under attack: forks, other folders and files, changed rows, and hostile texts; and its commits."""

import hashlib
import itertools
import json
import pickle
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from pymc_dirdp.accounting import store
from pymc_dirdp.accounting.entries import Entry, next_row
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.errors import ArgumentError, BudgetError, LedgerError
from pymc_dirdp.privacy.guarantees import ApproxDP

LIMIT = ApproxDP(epsilon=1.0, delta=1e-6)
TENTH = ApproxDP(epsilon=0.1, delta=1e-7)


def replaced(number, old, new):
    """An order that changes the text of an entry."""
    return f"UPDATE entries SET text = replace(text, '{old}', '{new}') WHERE number = {number}"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(path):
    made = Ledger(LIMIT, path)
    for name in ("hair", "eyes", "skin"):
        made.spend(TENTH, what=name)
    return made


# The first two entries change places.
SWAP = ("SET number = -1 WHERE number = 1", "SET number = 1 WHERE number = 2", "SET number = 2 WHERE number = -1")


def edit(path, *statements):
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.executescript(statement)
        connection.commit()


def in_a_process(code):
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    return run.stdout.splitlines()


FORK = """
import os, threading
from pymc_dirdp.errors import LedgerError
from pymc_dirdp.privacy.guarantees import ApproxDP
from pymc_dirdp.accounting.ledger import Ledger
ledger = Ledger(ApproxDP(epsilon=1, delta=1e-6), {path!r})
def spend():
    try:
        ledger.spend(ApproxDP(epsilon=1, delta=1e-6), what="hair")
        print("spent", flush=True)
    except Exception as error:
        print(f"{{type(error).__name__}}: {{error}}", flush=True)
{before}
if os.fork():
    os.wait()
    # Another thread, which would wait forever for a lock that is not free again.
    other = threading.Thread(target=spend, daemon=True)
    other.start()
    other.join(20)
else:
    spend()
    os._exit(0)
"""


# A thread that uses the ledger: SQLite's locks are not inherited, its belief to hold them is, and a lock of Python's
# would never be free again.
READING = """
import time
inside = threading.Event()
def reading():
    with ledger._store._transaction():
        inside.set()
        time.sleep(0.3)
threading.Thread(target=reading).start()
inside.wait()
"""


@pytest.mark.parametrize("where", ["memory", "file that a thread uses"])
def test_a_fork_spends_nothing_twice(path, where):
    before = READING if "thread" in where else ""
    child, parent = in_a_process(FORK.format(path=None if where == "memory" else str(path), before=before))
    if where == "memory":
        assert child.startswith("LedgerError: A ledger in memory cannot be used after os.fork()")
        assert "Ledger(limit, 'budget.db')" in child
        assert parent == "spent"
    else:
        assert child == "spent"
        assert parent.startswith("BudgetError")


def test_the_path_is_resolved_once_and_a_ledger_in_memory_is_not_copied(tmp_path, monkeypatch):
    with pytest.raises(LedgerError, match="both copies could spend"):
        pickle.dumps(Ledger(LIMIT))
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    monkeypatch.chdir(tmp_path / "first")
    ledger = Ledger(TENTH, "budget.db", adaptive=False)
    again = pickle.loads(pickle.dumps(ledger))
    ledger.spend(TENTH, what="hair")
    assert repr(again) == repr(ledger)
    monkeypatch.chdir(tmp_path / "second")
    assert ledger.path == tmp_path / "first" / "budget.db"
    for each in (ledger, again):
        with pytest.raises(BudgetError):
            each.spend(TENTH, what="hair")
    assert list((tmp_path / "second").iterdir()) == []
    # A symbolic link that is turned is not followed.
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "first.db")
    ledger = Ledger(TENTH, link)
    ledger.spend(TENTH, what="hair")
    link.unlink()
    link.symlink_to(tmp_path / "second.db")
    with pytest.raises(BudgetError):
        ledger.spend(TENTH, what="hair")


@pytest.mark.parametrize("spent", [0, 3])
def test_a_file_that_was_rebuilt_is_not_the_same_ledger(path, spent):
    ledger = Ledger(LIMIT, path)
    asleep = pickle.dumps(ledger)
    for _ in range(spent):
        ledger.spend(TENTH, what="hair")
    path.unlink()
    with pytest.raises(LedgerError, match="missing"):
        pickle.loads(asleep)
    assert not path.exists()
    again = Ledger(LIMIT, path)
    for _ in range(spent):
        again.spend(TENTH, what="hair")
    for use in (
        lambda: ledger.spend(TENTH, what="hair"),
        ledger.entries,
        ledger._verified,
        lambda: pickle.loads(asleep),
        lambda: ledger.left,
    ):
        with pytest.raises(LedgerError, match="is not the one that was opened"):
            use()
    assert len(again.entries()) == spent


def test_an_older_copy_is_not_taken_for_the_present(ledger, path, tmp_path):
    shutil.copy(path, tmp_path / "copy.db")
    noted = ledger.head
    ledger.spend(TENTH, what="teeth")
    asleep, after = pickle.dumps(ledger), ledger.head
    shutil.copy(tmp_path / "copy.db", path)
    with pytest.raises(LedgerError, match="damaged from entry 4 on"):
        ledger.spend(TENTH, what="teeth")
    with pytest.raises(LedgerError, match="has no entry 4"):
        pickle.loads(asleep)
    # Anyone who opens the copy anew cannot know, except from what was noted.
    opened = Ledger(LIMIT, path)
    assert opened._verified(noted) == noted
    with pytest.raises(LedgerError, match=r"has no entry 4 with the noted hash.*older copy would give back what was"):
        opened._verified(after)


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("; ".join(f"UPDATE entries {change}" for change in SWAP), 1),
        ("DELETE FROM entries WHERE number = 1", 1),
        ("DELETE FROM entries WHERE number = 2", 2),
        (replaced(2, "eyes", "nothing"), 2),
        (replaced(3, "skin", "nothing"), 3),
        (replaced(2, '"epsilon": 0.1', '"epsilon": 0.01'), 2),
        (replaced(1, "}", ', "more": 1}'), 1),
        ("UPDATE entries SET text = '{}' WHERE number = 1", 1),
        ("UPDATE entries SET text = '" + "[" * 5000 + "' WHERE number = 2", 2),
        (replaced(2, '"epsilon": 0.1', '"epsilon": 1e999'), 2),
        ("UPDATE entries SET hash = hash || 'a' WHERE number = 2", 2),
        ("UPDATE entries SET hash = x'ff' WHERE number = 2", 2),
        (replaced(2, '"uses": null', '"uses": 1'), 2),
        ("UPDATE entries SET text = x'ff' WHERE number = 2", 2),
        ("UPDATE entries SET text = CAST(text AS BLOB) WHERE number = 2", 2),
        ("UPDATE entries SET number = 10 - number", 1),
        ("INSERT INTO entries SELECT 0, text, hash FROM entries LIMIT 1", 1),
        ("INSERT INTO entries SELECT 4, text, hash FROM entries LIMIT 1", 4),
        ("UPDATE ledger SET number = 2", 3),
        ("UPDATE ledger SET number = 'three'", 3),
        ("UPDATE ledger SET hash = hash || 'a'", 3),
    ],
)
def test_every_change_is_found(ledger, path, statement, number):
    assert ledger._verified() == ledger.head
    edit(path, statement)
    # An open ledger reads its last entry again before a release.
    of_last = [lambda: ledger.left] if number == 3 else []
    for use in (*of_last, ledger._verified, ledger.entries, lambda: str(ledger), lambda: Ledger(LIMIT, path)):
        with pytest.raises(LedgerError, match=rf"damaged from entry {number} on: ") as error:
            use()
    # What says nothing is distinguished from what was changed.
    if "'nothing'" in statement:
        assert "it or the order of the entries was changed" in str(error.value)
    elif "'{}'" in statement:
        assert "it cannot be parsed" in str(error.value)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET text = replace(text, '1.0', '9.0')",
        "UPDATE ledger SET text = replace(text, 'true', 'false')",
        """UPDATE ledger SET text = replace(text, '"identity": "', '"identity": null, "x": "')""",
        "UPDATE ledger SET text = substr(text, 1, length(text) - 36) || '" + "null}" + "'",
        "DELETE FROM ledger",
        "CREATE VIEW more AS SELECT * FROM entries",
        "INSERT INTO ledger SELECT * FROM ledger",
    ],
)
def test_the_header_does_not_change(ledger, path, statement):
    edit(path, statement)
    for use in (ledger._verified, lambda: ledger.spend(TENTH, what="hair")):
        with pytest.raises(LedgerError):
            use()
    # The chain begins with the header, so it is not believed by those who open the file with the other header either.
    for limit, options in ((LIMIT, {}), (ApproxDP(epsilon=9.0, delta=1e-6), {}), (LIMIT, {"adaptive": False})):
        with pytest.raises(LedgerError):
            Ledger(limit, path, **options)


class Liar:
    """A connection that reports another number of changes than there were."""

    def __init__(self, connection):
        self._connection, self._changes = connection, 0

    def __getattr__(self, name):
        return getattr(self._connection, name)

    @property
    def total_changes(self):
        self._changes += 2
        return self._changes


THEFTS = [
    "DELETE FROM entries WHERE number = NEW.number",
    "UPDATE entries SET text = '{}' WHERE number = NEW.number",
    "DELETE FROM entries WHERE number = 1",
    "UPDATE ledger SET text = '{}'",
]
# What is left is a whole ledger, as it was before.
SET_BACK = "DELETE FROM entries WHERE number = 4; UPDATE ledger SET number = 3, hash = 'HASH'"


@pytest.mark.parametrize(
    ("event", "body", "seen_by", "words"),
    [
        *(("INSERT ON entries", body, None, "such as a trigger") for body in THEFTS),
        *(("INSERT ON main.entries", body, lambda connection: connection, "from entry 4 on") for body in THEFTS),
        ("INSERT ON main.entries", THEFTS[0], Liar, "entry 4 on: there are 3 of 4 entries"),
        ("UPDATE ON main.ledger", SET_BACK, Liar, "entry 4 on: it is missing, or differs"),
    ],
    ids=itertools.count(),
)
def test_a_trigger_is_noticed_before_anything_is_durable(ledger, path, event, body, seen_by, words, monkeypatch):
    """Of the file it is refused at once. One of the connection stands for anything else, also if it lies."""
    head, connected = ledger.head, type(ledger._store)._connect
    trigger = f"TRIGGER thief AFTER {event} BEGIN {body.replace('HASH', head.partition(':')[2])}; END"

    def cursed(store):
        connection = connected(store)
        connection.execute(f"CREATE TEMP {trigger}")
        return seen_by(connection)

    if seen_by is None:
        edit(path, f"CREATE {trigger}")
    else:
        monkeypatch.setattr(type(ledger._store), "_connect", cursed)
    with pytest.raises(LedgerError, match=words):
        ledger.spend(TENTH, what="teeth")
    monkeypatch.undo()
    edit(path, "DROP TRIGGER IF EXISTS thief")
    assert ledger._verified() == head


def rewritten(path, change):
    """What somebody can do who knows how the file is made: all hashes are computed again."""
    ledger = Ledger(LIMIT, path)
    last, rows = ledger._store._start.last, []
    for number, text in enumerate(change([entry.text for entry in ledger.entries()]), start=1):
        last = next_row(last[2], number, text)
        rows.append(last)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM entries")
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows)
        connection.execute("UPDATE ledger SET number = ?, hash = ?", (last[0], last[2]))
        connection.commit()


def with_facts(text, **facts):
    """The text of an entry that states other facts."""
    return json.dumps(json.loads(text) | facts, ensure_ascii=False)


TEXTS = ("what", "recorded", "unit", "contribution", "digest")


def test_what_a_rewriter_of_the_whole_file_can_still_do(ledger, path):
    """The limit of a chain without a key, as the documentation states it: only what is kept elsewhere notices."""
    noted = ledger.head
    rewritten(path, lambda texts: texts[:2])
    opened = Ledger(LIMIT, path)
    assert opened._verified() == opened.head
    with pytest.raises(LedgerError, match="has no entry 3 with the noted hash"):
        opened._verified(noted)
    for use in (ledger._verified, lambda: ledger.spend(TENTH, what="hair")):
        with pytest.raises(LedgerError, match="entry 3"):
            use()


@pytest.mark.parametrize(
    "change",
    [
        {"reserved": True, "uses": 1},
        {"uses": 1},
        {"number": 3},
        {"cost": {}},
        {"cost": {"epsilon": -0.1, "delta": 0.0}},
        {"what": 5},
        {"guarantee": {"kind": "os.system", "epsilon": 0.1}},
        {"groups": [["p"], "q"]},
        {"min_count": 5},
        {"more": 1},
        # Texts that a terminal obeys, or none.
        *({name: text} for name in TEXTS for text in ("hair\n3  2030-01-01  eyes", "\x1b[2J", "")),
    ],
)
def test_a_rewriter_cannot_give_back_what_was_released(ledger, path, change):
    """A row that uses an entry which is no reservation, or itself, or says what no entry says, cannot be understood."""
    rewritten(path, lambda texts: [texts[0], with_facts(texts[1], **change), *texts[2:]])
    words = ": it cannot be parsed" if {*change} & {*TEXTS} else ""
    with pytest.raises(LedgerError, match=f"damaged from entry 2 on{words}") as error:
        Ledger(LIMIT, path)
    assert str(error.value).isprintable()


def test_a_reservation_is_used_once_by_a_rewriter_too(path):
    ledger = Ledger(LIMIT, path)
    ledger.reserve(TENTH, what="hair", times=2, unit="record")
    for number in (1, 2):
        ledger.using(number).spend(TENTH, what="hair")
    rewritten(path, lambda texts: [*texts[:3], with_facts(texts[3], uses=1)])
    with pytest.raises(LedgerError, match="damaged from entry 4 on: it uses an entry that is no open reservation"):
        Ledger(LIMIT, path)


@pytest.mark.parametrize("composition_rule", [None, "epsilons"])
@pytest.mark.parametrize("cost", [{"hair": 0.1}, {"divergence": 0.1}])
def test_entries_that_do_not_add_up_are_damage_and_no_lack_of_budget(ledger, path, composition_rule, cost):
    facts = {"cost": cost, "composition_rule": composition_rule}
    rewritten(path, lambda texts: [with_facts(texts[0], **facts), *texts[1:]])
    with pytest.raises(LedgerError):
        Ledger(LIMIT, path).spend(TENTH, what="hair")


def test_a_head_is_a_number_and_a_hash(ledger):
    number, _, digest = ledger.head.partition(":")
    assert (number, len(digest)) == ("3", 64)
    noted = ledger.head
    ledger.spend(TENTH, what="teeth")
    assert ledger._verified(noted) == ledger.head != noted
    for wrong in ("", "3", f"3:{digest[:-1]}", f"-3:{digest}", 3, f"{noted}\n", f"{'9' * 5000}:{digest}"):
        with pytest.raises(ArgumentError, match="Expected head"):
            ledger._verified(wrong)
    with pytest.raises(LedgerError, match="entry 3 with the noted hash"):
        ledger._verified(f"3:{digest[::-1]}")
    # Numbers of no entry, the largest of which SQLite just has, and another way to write one.
    for number in ("03", "5", "999999999999999999"):
        with pytest.raises(LedgerError, match="with the noted hash"):
            ledger._verified(f"{number}:{digest}")


def test_the_chain_by_hand(ledger, path):
    """Oracle: SHA-256 over JSON, from the columns of the file alone."""
    with closing(sqlite3.connect(path)) as connection:
        ((header, last),) = connection.execute("SELECT text, hash FROM ledger").fetchall()
        rows = connection.execute("SELECT * FROM entries ORDER BY number").fetchall()
    digest = hashlib.sha256(json.dumps(["", header]).encode()).hexdigest()
    for i, (number, text, stored) in enumerate(rows, start=1):
        digest = hashlib.sha256(json.dumps([digest, text]).encode()).hexdigest()
        assert (number, stored) == (i, digest)
        assert json.loads(text)["number"] == i
    assert ledger.head == f"3:{digest}"
    assert last == digest
    assert json.loads(header)["limit"] == {"kind": "ApproxDP", "epsilon": 1.0, "delta": 1e-6}


def test_another_version_is_refused(path):
    """Whatever else its tables hold."""
    edit(path, "CREATE TABLE ledger (version INTEGER NOT NULL, way TEXT)", "INSERT INTO ledger VALUES (1, NULL)")
    with pytest.raises(LedgerError, match=r"has version 1 of the format.*reads version 4 only.*create a new ledger"):
        Ledger(LIMIT, path)


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_release_reads_no_more_entries_after_many(path, adaptive, monkeypatch):
    """An open ledger reads what others have added since, and compares its hashes."""
    ledger, other = (Ledger(ApproxDP(epsilon=9.0, delta=1e-3), path, adaptive=adaptive) for _ in range(2))
    read, from_text, few = [], Entry.from_text, []
    monkeypatch.setattr(Entry, "from_text", lambda text: read.append(text) or from_text(text))
    for _ in range(15):
        for one in (ledger, other):
            read.clear()
            one.spend(TENTH, what="hair")
            few.append(len(read))
    # One of the other ledger, and its own.
    assert few == [1, *[2] * 29]
    assert ledger._verified() == other._verified()


# What is committed has reached the disk, and what an entry holds.


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


def test_every_commit_waits_for_the_disk(path, commits):
    """Otherwise a power cut would forget what was spent, and it could be spent again."""
    ledger = Ledger(LIMIT, path)
    made = len(commits)
    assert made >= 1
    ledger.spend(TENTH, what="hair")
    assert len(commits) > made
    assert set(commits) == {2}


TERMS = {"unit": "person", "contribution": 3, "min_count": 5.0, "groups": [["p", "q"], ["rate"]]}


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("given", ["by the ledger", "by the first release"])
def test_guarantees_about_different_units_do_not_add_up(path, in_file, given):
    ledger = Ledger(LIMIT, path if in_file else None, unit="household" if given == "by the ledger" else None)
    ledger.spend(TENTH, what="hair", unit="household")
    assert ledger.unit == "household"
    with pytest.raises(ArgumentError, match=r"are about unit='household'.*Keep a ledger for each unit"):
        ledger.spend(TENTH, what="hair", unit="person")
    assert ledger.spend(TENTH, what="hair").unit == "household"
    assert len(ledger.entries()) == 2
    if in_file:
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
OBEYED = (FORGED, "\x1b[2J\x1b[1;1H", "a\rb", "a\x00b", "a\u2028b", "a\u202eb", "\ud800", "\x9b31m")
WRONG_TERMS = {
    "what": (3, " "),
    "unit": (3, ""),
    "contribution": (0, 1.5, [1, 2]),
    "min_count": (-1, float("nan"), "5"),
    "groups": ("pq", [["p"], [3]]),
    "digest": (b"00",),
}


def test_terms_of_the_wrong_kind_and_characters_that_a_terminal_obeys_are_refused():
    ledger = Ledger(LIMIT)
    wrong = [(name, value, "") for name, values in WRONG_TERMS.items() for value in values]
    for name, text in itertools.product(("what", "unit", "digest", "contribution", "groups"), OBEYED):
        wrong.append((name, [[text], ["q"]] if name == "groups" else text, " to be a line of printable text"))
    for name, value, words in wrong:
        with pytest.raises(ArgumentError, match=f"Expected {name}{words}") as error:
            ledger.spend(TENTH, **({"what": "hair"} | {name: value}))
        assert str(error.value).isprintable()
    assert ledger.entries() == ()
