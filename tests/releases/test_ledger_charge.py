"""What a ledger is charged for a choice, and errors after that."""

import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, BudgetError, LedgerError
from pymc_dirdp.mechanisms.choices import QuantilesMechanism
from pymc_dirdp.releases import release as releasing
from pymc_dirdp.releases.ledger_charge import charge_choice, people_of, refuse_unaffordable
from pymc_dirdp.releases.private_model import release_of
from tests.planned import one_row, three_questions

ONE = dirdp.PureDP(epsilon=1.0)
MECHANISM = QuantilesMechanism(3, n_candidates=9, scale=8.0, adjacency="add-remove", contribution=2)
TERMS = {"what": "bins", "people": ("person", 2), "random_seed": None}


def test_the_ledger_holds_what_is_lost():
    book = dirdp.Ledger(dirdp.PureDP(epsilon=1.5 * MECHANISM.pure_epsilon), adjacency="add-remove", unit="person")
    terms = charge_choice(dirdp.PureDP(epsilon=2.0), MECHANISM, ledger=book, **TERMS)
    assert terms["guarantee"].epsilon == pytest.approx(MECHANISM.pure_epsilon, rel=1e-3)
    assert book.spent["epsilon"] == pytest.approx(MECHANISM.pure_epsilon, rel=1e-3)
    assert (terms["unit"], terms["reproducible"]) == ("person", False)
    with pytest.raises(BudgetError):
        charge_choice(dirdp.PureDP(epsilon=3.0), MECHANISM, ledger=book, **TERMS)
    assert people_of(None) == ("record", 1)
    plan = dirdp.plan(ONE, three_questions(), unit="person", mechanism="geometric")
    refuse_unaffordable(plan, dirdp.Ledger(ONE, unit="person"))
    with pytest.raises(ArgumentError, match="unit='record'"):
        refuse_unaffordable(plan, dirdp.Ledger(ONE, unit="record"))


def test_sample_counts_no_observation_before_the_charge(monkeypatch):
    seen, real = [], releasing.count_readings
    monkeypatch.setattr(releasing, "count_readings", lambda *args: seen.append(len(ledger.entries())) or real(*args))
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=0.1), unit="record")
    with pytest.raises(BudgetError):
        dirdp.sample(ONE, one_row(), mechanism="geometric", ledger=ledger)
    assert not seen
    ledger = dirdp.Ledger(ONE, unit="record")
    dirdp.sample(ONE, one_row(), mechanism="geometric", ledger=ledger)
    assert seen == [1]


RELEASES = {
    "sample": lambda model, ledger: dirdp.sample(ONE, model, mechanism="geometric", ledger=ledger),
    "private_model": lambda model, ledger: release_of(dirdp.private_model(ONE, model, ledger=ledger)),
}


@pytest.mark.parametrize("verb", RELEASES)
def test_an_older_copy_of_a_ledger_is_found_by_a_release(tmp_path, verb):
    """Found by attack: a ledger that was copied at .4 of 1, spent and put back admitted .6 again."""
    with pm.Model() as model:
        pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=[0, 1, 1, 0, 1])
    path, limit = tmp_path / "budget.db", dirdp.ApproxDP(epsilon=9, delta=1e-2)
    ledger = dirdp.Ledger(limit, path)
    copy = path.read_bytes()
    release = RELEASES[verb](model, ledger)
    head = release.attrs["ledger_head"]
    assert head == ledger.head == ledger._verified(head)
    dirdp.save(release, tmp_path / "release.json")
    assert dirdp.load(tmp_path / "release.json").attrs["ledger_head"] == head
    del ledger
    path.write_bytes(copy)
    with pytest.raises(LedgerError, match="older copy would give back"):
        dirdp.Ledger(limit, path)._verified(head)
    assert "ledger_head" not in RELEASES[verb](model, None).attrs
