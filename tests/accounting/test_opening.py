"""Records are opened once, with a receipt of the ledger, and no error has one of them."""

from dataclasses import replace

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.accounting.opening import CountRules, Sealed, TablesDrawing
from pymc_dirdp.errors import ArgumentError, DataError, InternalError, LedgerError
from pymc_dirdp.sampling.drawing import AddedNoise, Once, SecretCounts

NUMBERS = [48611, 31337, 77003]


def nothing(tables):
    """Publish how many tables there are."""
    assert all(type(table) is SecretCounts for table in tables)
    return len(tables)


@pytest.fixture
def charged():
    """A ledger, and the receipt of its only entry."""
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0), unit="record")
    return ledger, ledger.receipt(ledger.spend(dirdp.PureDP(epsilon=0.5), what="hair"))


@pytest.mark.parametrize("in_draw", [False, True])
@pytest.mark.parametrize("has_ledger", [False, True])
@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (DataError("A value is missing."), DataError),
        (ArgumentError("Other columns."), ArgumentError),
        (IndexError("index 48611 is out of bounds"), InternalError),
        (OSError(2, "No such file"), FileNotFoundError),
        (OSError("row 48611"), OSError),
        (ImportError("Install it."), ImportError),
        (MemoryError("an array with shape (48611,)"), MemoryError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_an_error_says_whether_the_ledger_was_charged_and_has_no_frame_with_records(
    charged, problem, kind, has_ledger, in_draw
):
    """Found by attack: without a ledger the traceback had the frames that held the counts."""

    def fail(secret):
        assert secret
        raise problem

    ledger, receipt = charged if has_ledger else (None, None)
    stages = (lambda records: [np.array(records)], fail) if in_draw else (fail, nothing)
    with pytest.raises(kind) as caught:
        Sealed(NUMBERS, ledger).release(*stages, receipt)
    error = caught.value
    assert (error.__context__, error.__cause__) == (None, None)
    assert ("has been charged" in str(error)) == (has_ledger and not isinstance(error, KeyboardInterrupt))
    assert "48611" not in str(error)
    frames = [entry.frame for entry in caught.traceback]
    assert not any(frame.code.raw is fail.__code__ for frame in frames)
    assert "48611" not in repr(frames[-1].f_locals) + repr(vars(frames[-1].f_locals["self"]))


def test_records_are_opened_once_with_a_receipt_of_this_ledger(charged):
    ledger, receipt = charged
    other = dirdp.Ledger(ledger.limit)
    wrong = [None, replace(receipt, number=2), replace(receipt, hash="0" * 64), replace(receipt, ledger="0" * 32)]
    wrong.append(other.receipt(other.spend(dirdp.PureDP(epsilon=0.5), what="hair")))
    for forged in wrong:
        with pytest.raises(LedgerError, match="not charged"):
            Sealed(NUMBERS, ledger).release(pytest.fail, nothing, forged)
    sealed = Sealed(NUMBERS, ledger)
    assert repr(sealed) == "Sealed(secret)"
    assert sealed.release(lambda records: [records, records], nothing, receipt) == 2
    # The receipt has been used, and so have the records.
    for records in (sealed, Sealed(NUMBERS, ledger)):
        with pytest.raises(LedgerError, match="not charged"):
            records.release(pytest.fail, nothing, receipt)
    again = ledger.receipt(ledger.spend(dirdp.PureDP(epsilon=0.1), what="eyes"))
    with pytest.raises(InternalError):
        sealed.release(lambda records: [records], nothing, again)


def drawing_without_noise():
    zeros = {"t0": np.zeros(2, dtype=object), "t1": np.zeros(3, dtype=object)}
    drawings = {name: AddedNoise(noise.shape, 0.0, None, (((), Once(noise)),)) for name, noise in zeros.items()}
    return TablesDrawing(drawings, CountRules(), {"t1": 6})


def test_all_tables_are_checked_before_any_is_drawn():
    drawn = drawing_without_noise().of([SecretCounts([1, 2]), SecretCounts([3, 2, 1])])
    assert [array.tolist() for array in (*drawn.arrays["t0"], *drawn.arrays["t1"])] == [[1, 2], [3, 2, 1]]
    for second, problem in (
        ([3, 2], "shape"),
        ([3, 2, -1], "negative"),
        ([3, 2, 2], "another number of records"),
        ([2**53, 2, 2], r"2\*\*53"),
    ):
        drawing = drawing_without_noise()
        with pytest.raises(DataError, match=problem):
            drawing.of([SecretCounts([1, 2]), SecretCounts(second)])
        # Nothing was drawn from the first table.
        assert drawing.drawings["t0"].of(SecretCounts([1, 2]))[0].tolist() == [1.0, 2.0]
