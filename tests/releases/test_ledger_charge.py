"""What a ledger is charged for a choice, and errors after that."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import BudgetError, LedgerError
from pymc_dirdp.mechanisms.choices import QuantilesMechanism
from pymc_dirdp.releases import release as releasing
from pymc_dirdp.releases.ledger_charge import charge_choice, people_of
from pymc_dirdp.releases.private_model import release_of

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


class Column:
    """Values that must not be touched before a ledger has an entry."""

    def __init__(self, values, ledger):
        self.values, self.ledger, self.touched = np.asarray(values), ledger, 0

    def _open(self):
        assert self.ledger.entries(), "touched before the charge"
        self.touched += 1
        return self.values

    def __array__(self, *args, **named):
        return self._open().__array__(*args, **named)

    def __len__(self):
        return len(self._open())

    def __iter__(self):
        return iter(self._open().tolist())

    def __getitem__(self, key):
        return self._open()[key]


AGES, SEXES = np.arange(400.0) % 80, ["f", "m"] * 200
ONE = dirdp.PureDP(epsilon=1.0)
VERBS = {
    "choose_bins": lambda age, sex, ledger: dirdp.choose_bins(
        ONE, {"age": age}, "age", n_bins=2, candidates=[39.5], ledger=ledger
    ),
    "choose_structure": lambda age, sex, ledger: dirdp.choose_structure(
        ONE, {"age": age, "sex": sex}, categories={"age": range(80), "sex": ["f", "m"]}, share=1, ledger=ledger
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_record_is_touched_before_the_charge(verb):
    for limit in (1e-3, 2.0):
        ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=limit, delta=2e-3))
        age, sex = Column(AGES, ledger), Column(SEXES, ledger)
        if limit < 1:
            with pytest.raises(BudgetError):
                VERBS[verb](age, sex, ledger)
            assert not age.touched + sex.touched
        else:
            VERBS[verb](age, sex, ledger)
            assert age.touched + sex.touched
            assert len(ledger.entries()) == 1


def test_sample_counts_no_observation_before_the_charge(monkeypatch):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("x", n=60, p=p, observed=[10, 20, 30])
    seen, real = [], releasing.count_readings
    monkeypatch.setattr(releasing, "count_readings", lambda *args: seen.append(len(ledger.entries())) or real(*args))
    for limit, entries in ((0.1, []), (1.0, [1])):
        ledger = dirdp.Ledger(dirdp.PureDP(epsilon=limit), unit="record")
        if entries:
            dirdp.sample(ONE, model, mechanism="geometric", ledger=ledger)
        else:
            with pytest.raises(BudgetError):
                dirdp.sample(ONE, model, mechanism="geometric", ledger=ledger)
        assert seen == entries


def test_an_older_copy_of_a_ledger_is_found_by_a_release(tmp_path):
    """Found by attack: a ledger that was copied at .4 of 1, spent and put back admitted .6 again."""
    with pm.Model() as model:
        pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=[0, 1, 1, 0, 1])
    path, limit = tmp_path / "budget.db", dirdp.ApproxDP(epsilon=9, delta=1e-2)
    releases = {
        "sample": lambda ledger: dirdp.sample(ONE, model, mechanism="geometric", ledger=ledger),
        "private_model": lambda ledger: release_of(dirdp.private_model(ONE, model, ledger=ledger)),
    }
    for name, draw in releases.items():
        ledger = dirdp.Ledger(limit, path)
        copy = path.read_bytes()
        release = draw(ledger)
        head = release.attrs["ledger_head"]
        assert head == ledger.head
        assert ledger._verified(head) == head
        saved = tmp_path / f"{name}.json"
        dirdp.save(release, saved)
        assert dirdp.load(saved).attrs["ledger_head"] == head
        del ledger
        later = path.read_bytes()
        path.write_bytes(copy)
        with pytest.raises(LedgerError, match="older copy would give back"):
            dirdp.Ledger(limit, path)._verified(head)
        path.write_bytes(later)
    assert "ledger_head" not in dirdp.sample(ONE, model, mechanism="geometric").attrs
