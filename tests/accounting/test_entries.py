"""What a ledger says in texts: what is written is read again, checked as what is made; and what is said of it."""

import json
import random

import pytest

from pymc_dirdp.accounting.entries import PARSE_ERRORS, Entry, Header, Receipt
from pymc_dirdp.accounting.facts import assumptions_of, deployment_of, lines_of, title_of, use_of
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.display import select_lines
from pymc_dirdp.errors import ArgumentError, LedgerError
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, TruncatedCDP
from pymc_dirdp.texts.codec import value_of

GUARANTEE, ENDLESS = ApproxDP(epsilon=0.1, delta=1e-7), TruncatedCDP(rho=0.1, omega=float("inf"))
FULL = Entry(
    2,
    "2026-01-01T00:00:00+00:00",
    "größe, 日本語",
    GUARANTEE,
    {"epsilon": 0.1, "delta": 1e-7},
    "basic",
    unit="person",
    contribution=3,
    min_count=5,
    groups=[["p", "q"], ["rate"]],
    digest="sha256:6f1e",
    uses=1,
)


def test_the_text_of_an_entry():
    """By hand: the fields in their order, as JSON; `test_contract.py` has what ledgers write."""
    assert FULL.text == (
        '{"number": 2, "recorded": "2026-01-01T00:00:00+00:00", "what": "größe, 日本語", "guarantee": {"kind": '
        '"ApproxDP", "epsilon": 0.1, "delta": 1e-07}, "cost": {"epsilon": 0.1, "delta": 1e-07}, "composition_rule": '
        '"basic", "unit": "person", "contribution": 3, "min_count": 5.0, "groups": [["p", "q"], ["rate"]], "digest": '
        '"sha256:6f1e", "reserved": false, "uses": 1}'
    )
    for line in (
        FULL,
        Entry(1, "now", "hair", GUARANTEE, {"epsilon": 5e-324, "delta": 1.7e308}, reserved=True),
        Entry(1, "now", "hair", ENDLESS, {"epsilon": 0.1}, contribution='two of "p"'),
        Header(GUARANTEE, False, "add-remove", "person", "0" * 32),
    ):
        again = type(line).from_text(line.text)
        assert (again, again.text) == (line, line.text)


def test_no_edit_of_a_text_is_read_as_what_it_was():
    """2,000 edits of one to three characters: an error of the known kinds, or what the text says now."""
    draw, different = random.Random(5), 0
    for line in (FULL, Header(ENDLESS, True, "replace-one", "person", "0" * 32)):
        for _ in range(1000):
            text = list(line.text)
            for _ in range(draw.randint(1, 3)):
                at = draw.randrange(len(text))
                match draw.randrange(3):
                    case 0:
                        text[at] = chr(draw.choice([0, 9, 10, 32, 34, 44, 45, 48, 49, 91, 93, 123, 125, 233, 0xD800]))
                    case 1:
                        del text[at]
                    case 2:
                        text.insert(at, draw.choice(' ,:"{}[]019eE.-xü'))
            edited = "".join(text)
            try:
                read = type(line).from_text(edited)
            except PARSE_ERRORS:
                continue
            assert read.text == edited
            assert read != line or edited == line.text
            different += 1
    assert different > 20


def test_a_cost_that_is_no_cost_is_refused_and_a_reservation_uses_no_other():
    for cost in ({}, {"epsilon": -1e-9}, {"epsilon": float("nan")}, {"epsilon": float("inf")}):
        with pytest.raises(ArgumentError, match="cannot be recorded"):
            Entry(1, "now", "hair", GUARANTEE, cost)
    with pytest.raises(ArgumentError, match=r"leave using\(\) out"):
        Entry(1, "now", "hair", GUARANTEE, {"epsilon": 0.1}, reserved=True, uses=1)


def test_a_header_with_another_identity_than_a_ledger_has_and_other_texts_are_refused():
    text = Header(GUARANTEE, True, "replace-one", None, "0" * 32).text
    assert Header.from_text(text).identity == "0" * 32
    edited = [json.dumps(json.loads(text) | {"identity": wrong}) for wrong in ("0" * 31, "G" * 32, "")]
    for wrong in (*edited, "", "[", "null", "3", "[]", "{}", '{"number": 1}', b"{}", None, 5, "[" * 5000):
        for kind in (Entry, Header):
            with pytest.raises(PARSE_ERRORS):
                kind.from_text(wrong)


def test_a_receipt_is_a_ledger_a_number_and_a_hash():
    facts = {"ledger": "0" * 32, "number": 1, "hash": "f" * 64}
    assert value_of(Receipt, facts) == Receipt(**facts)
    assert Receipt(**facts).head == f"1:{'f' * 64}"
    for name, wrong in (("ledger", "0" * 31), ("ledger", 0), ("number", 0), ("number", True), ("hash", "F" * 64)):
        with pytest.raises(ArgumentError):
            value_of(Receipt, facts | {name: wrong})


# What is said about a ledger: who is protected, what was released, what is reserved, and what has to be believed.

LIMIT = ApproxDP(epsilon=1.0, delta=1e-6)
PART = PureDP(epsilon=0.05)


def state_of(ledger):
    return ledger._store.verify()


def lines(ledger, heading, *depths):
    return dict(select_lines(lines_of(*state_of(ledger)), [heading], *depths))


def test_a_reservation_is_named_until_it_is_used_and_every_entry_says_which():
    ledger = Ledger(LIMIT, unit="person")
    assert title_of(state_of(ledger)[0]) == "Ledger of (1, 1e-06)-differential privacy, replace-one; unit person"
    assert lines(ledger, "Answer", 0) == {"published": "nothing yet", "left": "1e-06 (delta)"}
    assert lines(ledger, "Guarantee", 0, 1, 2) == {}
    ledger.reserve(PART, what="spring", times=2)
    ledger.using(1).spend(PART, what="summer")
    assert lines(ledger, "Guarantee", 1)["reserved"] == "spring (entry 2), which the guarantee covers"
    balance, entries = state_of(ledger)
    used = [" (reservation that was used)", " (reserved)", " (as reserved in entry 1)"]
    assert [use_of(entry, balance) for entry in entries] == used
    listed = lines(ledger, "Entries", 2)
    assert [listed[f"entry {number}"].partition(")")[2] for number in (1, 2, 3)] == used
    assert lines(ledger, "Entries", 1)["published"] == listed["entry 3"].removesuffix(used[2])
    ledger.using(2).spend(PART, what="autumn")
    assert "reserved" not in lines(ledger, "Guarantee", 1)


def test_a_public_statement_names_the_first_releases():
    ledger = Ledger(LIMIT)
    for number in range(10):
        ledger.spend(PART, what=f"quarter {number}")
        assert len(lines(ledger, "Entries", 2)) == number + 1
        end = f"quarter {number}" if number < 9 else "and 2 more"
        assert lines(ledger, "Entries", 1)["published"].split("; ")[-1].startswith(end)


def test_one_record_is_said_only_if_no_entry_allows_more():
    ledger = Ledger(LIMIT)
    ledger.spend(PART, what="hair", unit="record", contribution=1)
    assert lines(ledger, "Guarantee", 1)["protected"].startswith("every person, who holds at most 1 record")
    ledger.spend(PART, what="eyes", contribution=3)
    assert lines(ledger, "Guarantee", 1)["protected"].startswith("every person; ")
    assert assumptions_of(ledger.entries()) == (
        "one person holds at most 3 records of a table (entry 2)",
        "each release was drawn as it says, once",
    )


def test_entries_beyond_the_limit_have_no_guarantee():
    balance, _ = state_of(Ledger(PureDP(epsilon=0.1)))
    other = Ledger(LIMIT)
    entries = [other.spend(PART, what="hair") for _ in range(3)]
    balance = balance.after(entries)
    assert not balance.within
    facts = lines_of(balance, entries)
    assert facts["Guarantee"] == []
    assert dict(select_lines(facts, ["Budget"], 2)) == {"epsilon": "0.15 of 0.1 spent, -0.05 left"}
    with pytest.raises(LedgerError, match="exceed its limit"):
        deployment_of(balance, entries)
