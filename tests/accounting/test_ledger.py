"""The ledger: nothing over the limit, nothing released that is not recorded, whatever happens."""

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.privacy.curves import NoLoss
from pymc_dirdp.sampling.drawing import DirichletDrawing
from tests.planned import planned_sample

LIMIT = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
TENTH = dirdp.ApproxDP(epsilon=0.1, delta=1e-7)
TRUNCATED = dirdp.TruncatedCDP(rho=1.0, omega=4)


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    return Ledger(LIMIT, tmp_path / "budget.db" if request.param == "file" else None)


def model():
    with pm.Model() as built:
        pm.Multinomial("students", n=592, p=pm.Dirichlet("p", np.ones(4)), observed=[108, 286, 71, 127])
    return built


def test_the_way_is_fixed_by_the_first_release(tmp_path):
    mechanism = dirdp.mechanisms.DirichletMechanism([1.0, 1.0], 0.02)
    guarantee = dirdp.ApproxDP(epsilon=mechanism.epsilon(1e-8), delta=1e-8)
    ledger = Ledger(LIMIT, tmp_path / "budget.db")
    assert ledger.composition_rule is None
    ledger.spend(guarantee, what="a draw", mechanism=mechanism)
    assert ledger.composition_rule == "divergences"
    assert Ledger(LIMIT, tmp_path / "budget.db").composition_rule == "divergences"
    # A guarantee alone leaks its delta, of which this way has half.
    with pytest.raises(dirdp.errors.BudgetError, match=r"With it .*delta outside of it"):
        ledger.spend(dirdp.ApproxDP(epsilon=0.01, delta=6e-7), what="another")
    basic = Ledger(LIMIT)
    basic.spend(TENTH, what="a guarantee")
    basic.spend(guarantee, what="a draw", mechanism=mechanism)
    assert (basic.composition_rule, basic.spent["epsilon"]) == ("basic", pytest.approx(0.1 + guarantee.epsilon))


def test_what_is_no_such_release_is_refused(ledger):
    """A mechanism that does not keep its guarantee, no guarantee, and another relation of neighbours."""
    loose = dirdp.mechanisms.DirichletMechanism([1.0, 1.0], 1.0)
    for guarantee, options, words in (
        (TENTH, {"mechanism": loose}, "does not satisfy"),
        (0.5, {}, "Expected a guarantee such as"),
        (TENTH, {"adjacency": "add-remove"}, "do not compose"),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=words):
            ledger.spend(guarantee, what="p", **options)
    assert ledger.entries() == ()
    with pytest.raises(dirdp.errors.ArgumentError, match="Expected limit to be a guarantee"):
        Ledger(1.0)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"ledger to be a Ledger, got a str\. Create it once"):
        dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1), ledger="budget.db")


@pytest.mark.thorough
def test_what_depends_on_data_is_refused_after_the_charge_and_no_count_is_in_the_file(tmp_path, monkeypatch):
    """Otherwise the error is an answer about the data that nobody paid for."""
    path = tmp_path / "budget.db"
    ledger = Ledger(LIMIT, path)
    with pytest.raises(dirdp.errors.ArgumentError):
        planned_sample(TENTH, model(), sampler="slow", ledger=ledger)
    assert ledger.entries() == ()
    # Numbers of nine digits: a hash holds any number of three.
    counts = [108_346_127, 286_912_553, 171_402_339]
    with pm.Model() as broken:
        pm.Multinomial("students", n=sum(counts), p=pm.Dirichlet("p", np.ones(3)), observed=counts)
        pm.Multinomial("wrong", n=sum(counts), p=pm.Dirichlet("q", np.ones(2)), observed=[2, 2])
    with pytest.raises(dirdp.errors.DataError, match="The ledger has been charged"):
        dirdp.sample(TENTH, broken, ledger=ledger)
    assert len(ledger.entries()) == 1
    saved = path.read_bytes()
    assert b"0.1" in saved
    for secret in (*counts, sum(counts)):
        assert str(secret).encode() not in saved

    # Nothing is released where nothing is recorded.
    monkeypatch.setattr(DirichletDrawing, "check", lambda *_: pytest.fail("drawn"))
    path.unlink()
    with pytest.raises(dirdp.errors.LedgerError, match="missing"):
        dirdp.sample(TENTH, model(), ledger=ledger)


def test_a_damaged_file_is_refused(tmp_path):
    """`test_chain.py` has files whose rows were changed."""
    path = tmp_path / "budget.db"
    ledger = Ledger(LIMIT, path)
    ledger.spend(TENTH, what="hair")
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", random.Random(1).randbytes(len(whole)), b"budget"):
        path.write_bytes(damaged)
        for use in (lambda: Ledger(LIMIT, path), lambda: ledger.spend(TENTH, what="hair"), ledger._verified):
            with pytest.raises(dirdp.errors.LedgerError, match=r"budget\.db"):
                use()


def test_a_file_that_cannot_be_written_can_still_be_read(tmp_path, monkeypatch):
    path = tmp_path / "budget.db"
    ledger = Ledger(LIMIT, path)
    ledger.spend(TENTH, what="hair")
    connect = sqlite3.connect
    # The administrator may write to any file, so the file is opened as read-only instead.
    monkeypatch.setattr(
        sqlite3, "connect", lambda name, **options: connect(f"file:{name}?mode=ro", uri=True, **options)
    )
    assert len(ledger.entries()) == 1
    with pytest.raises(dirdp.errors.LedgerError, match="readonly"):
        ledger.spend(TENTH, what="hair")


def test_threads_never_pass_the_limit(ledger):
    def spend(refused=0):
        for _ in range(10):
            try:
                ledger.spend(TENTH, what="hair")
            except dirdp.errors.BudgetError:
                refused += 1
        return refused

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(lambda _: spend(), range(4))) == 30
    assert [entry.number for entry in ledger.entries()] == list(range(1, 11))
    assert ledger.spent == {"epsilon": 1.0, "delta": 1e-6}
    for least, words in (
        (TENTH, r"epsilon: 1 of 1 spent, 0 left.*With it epsilon: 1\.1"),
        (dirdp.PureDP(epsilon=1e-9), ""),
    ):
        with pytest.raises(dirdp.errors.BudgetError, match=f"Nothing is left.*{words}"):
            ledger.spend(least, what="eyes")


SPENDER = """
import os, sys
from pymc_dirdp.errors import BudgetError
from pymc_dirdp.privacy.guarantees import ApproxDP
from pymc_dirdp.accounting.ledger import Ledger
path, out, epsilon, delta = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
ledger = Ledger(ApproxDP(epsilon=epsilon, delta=delta), path)
released = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
try:
    while True:
        entry = ledger.spend(ApproxDP(epsilon=0.05, delta=1e-9), what=f"process {os.getpid()}")
        os.write(released, f"{entry.number}\\n".encode())
except BudgetError:
    pass
"""


def start(path, out, limit, program=SPENDER, **options):
    arguments = [str(path), str(out), str(limit.epsilon), str(limit.delta)]
    return subprocess.Popen([sys.executable, "-c", program, *arguments], **options)


@pytest.mark.thorough
def test_processes_never_pass_the_limit(tmp_path):
    path = tmp_path / "budget.db"
    # None exists at first: they race to make the file, too.
    processes = [start(path, tmp_path / f"out{i}", LIMIT) for i in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 2
    released = sorted(int(line) for i in range(2) for line in (tmp_path / f"out{i}").read_text().split())
    alone = Ledger(LIMIT)
    with pytest.raises(dirdp.errors.BudgetError):  # noqa: PT012 - one process, until it is refused
        while True:
            alone.spend(dirdp.ApproxDP(epsilon=0.05, delta=1e-9), what="alone")
    assert released == list(range(1, len(alone.entries()) + 1))
    assert Ledger(LIMIT, path).left == alone.left
    assert list(tmp_path.glob("*.new")) == []


# A process that has imported the library forks one that spends for each line it reads, and says how it ended.
NURSERY = f"""
import os, sys
import pymc_dirdp.accounting.ledger
for _ in sys.stdin:
    child = os.fork()
    if not child:
        exec({SPENDER!r})
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.thorough
def test_what_came_out_is_recorded_even_if_the_process_is_killed(tmp_path, kills):
    """With 200 kills, what goes wrong with one in 30 is missed once in a thousand times."""
    path, out = tmp_path / "budget.db", tmp_path / "out"
    rng = random.Random(4)
    # No process comes to the end of it: 20,000 entries.
    limit = dirdp.ApproxDP(epsilon=1000.0, delta=0.5)
    Ledger(limit, path)
    with start(path, out, limit, NURSERY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nursery:
        for _ in range(kills):
            before = out.stat().st_size if out.exists() else 0
            nursery.stdin.write("one more\n")
            nursery.stdin.flush()
            child = int(nursery.stdout.readline())
            while (out.stat().st_size if out.exists() else 0) == before:
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.05))
            os.kill(child, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(int(nursery.stdout.readline())) == -signal.SIGKILL
            recorded = {entry.number for entry in Ledger(limit, path).entries()}
            released = [int(line) for line in out.read_text().split()]
            assert set(released) <= recorded
            assert len(set(released)) == len(released)
            # At most one entry in each process was recorded and did not come out.
            assert len(recorded) - len(released) <= kills
        nursery.stdin.close()


def test_a_path_at_which_no_file_can_be_is_refused_in_one_way(tmp_path):
    """Found by attack: such paths ended in errors of other libraries."""
    for path in (tmp_path / ("a" * 400), tmp_path, tmp_path / "missing" / "budget.db"):
        with pytest.raises(dirdp.errors.LedgerError, match=r"[Nn]othing may be released"):
            Ledger(LIMIT, path)
    for path in (b"budget.db", 3, ["budget.db"], "a\0b"):
        with pytest.raises(dirdp.errors.ArgumentError, match="Expected path to be a path"):
            Ledger(LIMIT, path)


@pytest.mark.parametrize(
    ("limit", "curve"),
    [(LIMIT, "_renyi"), (dirdp.RenyiDP(order=4, epsilon=1.0), "_renyi"), (TRUNCATED, "_rho")],
    ids=str,
)
def test_a_mechanism_that_loses_less_than_nothing_is_refused(limit, curve, monkeypatch):
    """With a bug: releasing it would refill the ledger."""
    monkeypatch.setattr(NoLoss, curve, lambda *_: -1.0)
    ledger = Ledger(limit)
    with pytest.raises(dirdp.errors.ArgumentError, match="below 0"):
        ledger.spend(limit, what="hair", mechanism=NoLoss())
    assert ledger.entries() == ()


def test_a_reservation_is_used_once(ledger):
    """Not a release, one that was used, the release that used it, or none."""
    ledger.spend(TENTH, what="eyes")
    ledger.reserve(TENTH, what="hair", times=3)
    ledger.using(2).spend(TENTH, what="hair")
    for number in (1, 2, 5, 6):
        with pytest.raises(dirdp.errors.ArgumentError, match=rf"Entry {number} of the ledger .* Open are: 3, 4\."):
            ledger.using(number).spend(TENTH, what="hair")
    assert ledger.spent == {"epsilon": 0.4, "delta": 4e-7}


def test_reservations_fit_together_or_there_is_none(ledger):
    with pytest.raises(dirdp.errors.BudgetError):
        ledger.reserve(TENTH, what="hair", times=11, unit="record")
    assert ledger.entries() == ()
    ledger.reserve(TENTH, what="hair", times=9, unit="record")
    # A release may cost more than was reserved for it where the rest of the limit is enough, and no more.
    with pytest.raises(dirdp.errors.BudgetError):
        ledger.using(9).spend(dirdp.ApproxDP(epsilon=0.21, delta=1e-7), what="hair")
    ledger.using(9).spend(dirdp.ApproxDP(epsilon=0.2, delta=1e-7), what="hair")
    assert ledger.left["epsilon"] == 0


def test_a_sample_uses_a_reservation(ledger):
    ledger.reserve(TENTH, what="hair, next year", unit="record")
    release = dirdp.sample(TENTH, model(), ledger=ledger.using(1))
    assert release["posterior"]["p"].shape == (1, 1, 4)
    assert ledger.spent["epsilon"] == 0.1
    for wrong, words in (
        (lambda: dirdp.sample(TENTH, model(), ledger=ledger.using(1)), "Open are: none"),
        (lambda: dirdp.sample(TENTH, model(), ledger=ledger, adjacency="add-remove", n_records=9), "do not compose"),
        (lambda: Ledger(LIMIT).reserve(TENTH, what="hair"), 'unit="record"'),
        (lambda: ledger.using("1"), "reservation to be an integer"),
        (lambda: ledger.reserve(TENTH, what="hair", unit="person"), "releases that are about unit='record'"),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=words):
            wrong()
    assert [entry.what for entry in ledger.entries()] == ["hair, next year", "p"]
    assert repr(ledger.using(1)).endswith(").using(1)")


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize(
    ("limit", "spent", "delta"),
    [
        (dirdp.PureDP(epsilon=1.0), dirdp.PureDP(epsilon=0.37), None),
        (dirdp.ZeroCDP(rho=0.5), dirdp.ZeroCDP(rho=0.125), None),
        (dirdp.RenyiDP(order=3, epsilon=2.0), dirdp.RenyiDP(order=3, epsilon=0.5), None),
        (dirdp.ApproxDP(epsilon=1.0, delta=1e-5), dirdp.ApproxDP(epsilon=0.4, delta=1e-6), 1e-6),
    ],
)
def test_what_remains_is_admitted_and_a_little_more_is_not(limit, spent, delta, adaptive):
    ledger = dirdp.Ledger(limit, adaptive=adaptive)
    ledger.spend(spent, what="first")
    most = ledger.remaining(delta)
    more = most.with_budget(most.budget * 1.011)
    with pytest.raises(dirdp.errors.BudgetError, match=f"{re.escape(str(most))} would fit"):
        ledger.spend(more, what="too much")
    ledger.spend(most, what="second")
    assert len(ledger.entries()) == 2


def test_nothing_remains():
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0))
    assert ledger.remaining() == dirdp.PureDP(epsilon=1.0)
    # A tenth of the delta, and not 1.0000000000000002e-06.
    assert dirdp.Ledger(dirdp.ApproxDP(epsilon=1.0, delta=1e-5)).remaining() == dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    assert dirdp.Ledger(dirdp.ZeroCDP(rho=1.0)).remaining(delta=1e-6) is None
    ledger.spend(dirdp.PureDP(epsilon=1.0), what="all")
    assert ledger.remaining() is None
    with pytest.raises(dirdp.errors.BudgetError, match="Nothing is left"):
        ledger.spend(dirdp.PureDP(epsilon=0.1), what="more")
