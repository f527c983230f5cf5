"""What is said about a ledger: who is protected, what was released, what is reserved, and what has to be believed."""

import pytest

from pymc_dirdp.accounting.facts import assumptions_of, deployment_of, lines_of, title_of, use_of
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.display import select_lines
from pymc_dirdp.errors import LedgerError
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP

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
