"""A file is not believed: what an edited release says is found out, and nothing follows from it."""

import contextlib
import dataclasses
import sqlite3

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.accounting.entries import next_row
from pymc_dirdp.errors import ArgumentError, LedgerError, ReleaseError
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.releases.interop import as_mechanism
from pymc_dirdp.releases.opened import from_text, open_release
from pymc_dirdp.releases.verification import verify
from pymc_dirdp.releases.wording import plan_assumptions
from tests.planned import planned_sample, two_tables
from tests.releases.kinds import APPROX, released

R = ("plan", "tables", 0, "parameters", "r")
SPENT = dirdp.PureDP(epsilon=0.1)


def test_a_text_with_halves_of_characters_is_no_release():
    with pytest.raises(ReleaseError, match="halves of characters"):
        from_text("\ud800")


def test_what_would_follow_instead_is_near_the_least(edited):
    release = edited(released("approx"), (R, 1.0))
    found = verify(release)
    p, rate = open_release(release).tables.values()
    curves = dirdp.mechanisms.DirichletMechanism(p.mechanism.alpha, 1.0)
    # Independent oracle: the loss of both is at least that of one, and at most the sum of their parts.
    assert curves.epsilon(1e-6) <= found.recomputed.epsilon
    assert found.recomputed.epsilon <= 1.001 * (curves.epsilon(0.5e-6) + rate.mechanism.epsilon(0.5e-6))
    assert str(found.recomputed) in " ".join(str(found).split())
    said = ("plan", "statement")
    stricter = edited(
        released("renyi"), (("plan", "guarantee", "epsilon"), 0.1), (said, lambda text: text.replace("0.5", "0.1"))
    )
    assert verify(stricter).recomputed.epsilon == pytest.approx(0.5, rel=2e-3)
    assert verify(stricter).recomputed.epsilon >= as_mechanism(released("renyi")).renyi(4.0)


def test_draws_from_noisy_counts_are_as_many_as_one_likes(edited):
    release = edited(released("zero"), (("plan", "released_draws"), 7))
    assert verify(release)
    assert open_release(release).draws["p"].shape[0] == 7


def test_no_sign_of_a_file_reaches_a_terminal(edited):
    r"""Found by attack: `\x1b[2J` in a text cleared the screen."""
    evil = "\x1b[2J\x1b[31mgood\x07\r\nguarantee  perfect\u202e\u2028"
    paths = [("plan", name) for name in ("statement", "library_version", "sampler", "strategy")]
    paths += [("randomness",), ("plan", "tables", 0, "name"), ("plan", "tables", 0, "labels", "hair", 0)]
    for path in paths:
        for use in (verify, dirdp.report):
            try:
                shown = use(edited(released("approx"), (path, evil)))
                texts = [str(shown), shown._repr_html_()]
            except ReleaseError as error:
                texts = [str(error)]
            for text in texts:
                assert all(sign.isprintable() or sign == "\n" for sign in text)
                assert "\nguarantee  perfect" not in text


def test_what_no_file_can_show_is_said_in_the_same_words_everywhere():
    """The list of what was believed left out that the sizes of groups, and whose row is whose, are public."""
    with pm.Model(coords={"ward": range(2), "cure": range(3)}) as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)), dims=("ward", "cure"))
        pm.Multinomial("x", n=[30, 20], p=p, observed=[[10, 12, 8], [9, 6, 5]], dims=("ward", "cure"))
        pm.Binomial("y", n=50, p=pm.Beta("q", 1, 1), observed=20)
    options = {"contribution": 1, "public": ["x"], "disjoint": [["x"], ["y"]], "min_count": 2}
    release = planned_sample(APPROX, model, **options)
    sentences = plan_assumptions(open_release(release).plan, released=True)
    assert len(sentences) == 9
    texts = [dirdp.report(release, full=True), dirdp.statement(release), verify(release).full]
    for text in (" ".join(str(one).lower().split()) for one in texts):
        for sentence in sentences:
            assert " ".join(sentence.lower().split()) in text


def test_each_adjacency_has_its_own_words():
    replaced, removed = (str(dirdp.report(released(kind), full=True)) for kind in ("pure", "truncated"))
    replaced, removed = " ".join(replaced.split()), " ".join(removed.split())
    assert "one record moves from one cell to another" in replaced
    assert "one record moves" not in removed
    assert adjacency_by_name("add-remove").statement in removed
    assert adjacency_by_name("add-remove").statement not in replaced


def ledger_with(*facts, path=None, **options):
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0), path, **options)
    for number, fact in enumerate(facts):
        ledger.spend(SPENT, what=f"hair {number}", **fact)
    return ledger


def test_a_ledger_is_verified_by_its_entries_and_a_head_that_was_noted(tmp_path):
    ledger = ledger_with({}, {}, path=tmp_path / "ledger.db")
    noted = ledger.head
    ledger.spend(SPENT, what="later")
    for head in (None, noted, ledger.head):
        found = verify(ledger, head=head)
        assert found
        assert (found.what, found.stated, found.failures) == ("ledger", ledger.guarantee, ())
        assert found.recomputed == ledger.guarantee
        assert ("through the head" in found.checks[0].sentence) == (head is not None)
    for head in (f"2:{'0' * 64}", f"4:{noted[2:]}"):
        found = verify(ledger, head=head)
        assert not found
        assert found.recomputed is None
        assert [check.name for check in found.checks if not check.passed] == ["entries"]
        assert "follows from" not in str(found).splitlines()[0]
    for head in ("", 2, f"2:{'0' * 63}"):
        with pytest.raises(ArgumentError, match="head"):
            verify(ledger, head=head)
    for other in (released("pure"), dirdp.plan(APPROX, two_tables(), mechanism="geometric")):
        with pytest.raises(ArgumentError, match=r"verify\(ledger, head="):
            verify(other, head="0:" + "0" * 64)


def test_a_damaged_ledger_is_no_error_of_a_verification(tmp_path):
    ledger = ledger_with({}, {}, {}, path=tmp_path / "ledger.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as connection, connection:
        connection.execute("UPDATE entries SET text = replace(text, '0.1', '0.01') WHERE number = 1")
    found = verify(ledger)
    assert not found
    assert found.recomputed is None
    assert found.stated == dirdp.PureDP(epsilon=1.0)
    assert found.alternative == "No guarantee of the stated kind follows."
    assert "FAILED" in str(found)
    for use in (dirdp.report, dirdp.statement):
        with pytest.raises(LedgerError):
            use(ledger)


@pytest.mark.parametrize("options", [{}, {"adaptive": False}])
def test_a_ledger_that_was_written_again_beyond_its_limit_states_nothing(tmp_path, options):
    """Attack: with hashes that belong to it. The limit was said to follow, and was stated under the tables."""
    path = tmp_path / "ledger.db"
    ledger = ledger_with({}, path=path, **options)
    (entry,) = ledger.entries()
    rows = [ledger._store._start.last]
    for number in range(1, 13):
        rows.append(next_row(rows[-1][2], number, dataclasses.replace(entry, number=number).text))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM entries")
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows[1:])
        connection.execute("UPDATE ledger SET number = ?, hash = ?", rows[-1][::2])
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0), path, **options)
    assert ledger.spent == {"epsilon": 1.2}
    assert "1.2 of 1 spent, -0.2 left" in str(ledger)
    assert not verify(ledger)
    assert verify(ledger).recomputed is None
    with pytest.raises(LedgerError, match="exceed its limit"):
        dirdp.statement(ledger)
    for text in (str(ledger), str(dirdp.report(ledger)), str(dirdp.report(ledger, full=True))):
        assert "together" not in text
        assert "odds" not in text


def test_a_ledger_that_allows_three_records_of_a_person_never_says_one():
    ledger = ledger_with({"contribution": 1}, {"contribution": 3}, {})
    assert "one record" not in str(dirdp.report(ledger)).lower()
    for place in (dirdp.statement(ledger), dirdp.report(ledger, full=True), verify(ledger).full):
        words = " ".join(str(place).split()).lower()
        assert "at most 1 record" not in words
        assert "at most one record" not in words
        assert "holds at most 3 records of a table" in words
    assert "at most 1 record" in str(dirdp.statement(ledger_with({}, {"contribution": 1})))
