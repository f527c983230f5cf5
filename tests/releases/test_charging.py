"""What a ledger is charged for a choice, and errors after that."""

import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, BudgetError, DataError
from pymc_dirdp.mechanisms.quantiles import QuantilesMechanism
from pymc_dirdp.releases.charging import charged_choice, people_of, read_after_charge

MECHANISM = QuantilesMechanism(3, n_candidates=9, scale=8.0, adjacency="add-remove", contribution=2)
TERMS = {"what": "bins", "people": ("person", 2), "random_seed": None}


def test_the_ledger_holds_what_is_lost():
    book = dirdp.Ledger(dirdp.PureDP(epsilon=1.5 * MECHANISM.pure_epsilon), adjacency="add-remove", unit="person")
    terms = charged_choice(dirdp.PureDP(epsilon=2.0), MECHANISM, ledger=book, **TERMS)
    assert terms["guarantee"].epsilon == pytest.approx(MECHANISM.pure_epsilon, rel=1e-3)
    assert book.spent["epsilon"] == pytest.approx(MECHANISM.pure_epsilon, rel=1e-3)
    assert (terms["unit"], terms["reproducible"]) == ("person", False)
    with pytest.raises(BudgetError):
        charged_choice(dirdp.PureDP(epsilon=3.0), MECHANISM, ledger=book, **TERMS)
    assert people_of(None) == ("record", 1)


def test_an_error_says_whether_the_ledger_was_charged_and_carries_no_data():
    def read():
        secret = "1234567"
        raise DataError(f"A value of {len(secret)} letters is missing.")

    with pytest.raises(DataError, match="has been charged") as caught:
        read_after_charge(read, charged=True)
    assert caught.value.__context__ is None
    with pytest.raises(DataError, match=r"missing\.$"):
        read_after_charge(read, charged=False)
    assert read_after_charge(lambda: 3, charged=True) == 3


def test_every_error_of_the_library_after_the_charge_says_so_and_carries_no_data():
    """Found by attack: only errors about values did, and not those about columns that do not belong together."""

    def read():
        secret = "1234567"
        raise ArgumentError(f"A column of {len(secret)} letters has another index.")

    with pytest.raises(ArgumentError, match=r"index\. The ledger has been charged") as caught:
        read_after_charge(read, charged=True)
    assert caught.value.__context__ is None
    assert "read" not in [entry.name for entry in caught.traceback]
