"""Numbers as intervals, in memory and in engines."""

import numpy as np
import pyarrow as pa
import pytest

from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.intervals import count_between, interval_of, refuse_missing
from pymc_dirdp.errors import ArgumentError, DataError


@pytest.mark.parametrize("kind", [list, np.array, lambda values: np.array(values, dtype=object)])
def test_an_interval_is_the_number_of_edges_that_are_reached(kind):
    values = [-np.inf, -1, 0, 0.5, 1, 2, np.inf]
    assert interval_of(kind(values), [0, 1.0]).tolist() == [0, 0, 1, 1, 2, 2, 2]


def test_integers_of_any_type():
    for dtype in (np.int8, np.uint64, np.int64, np.float32):
        assert interval_of(np.array([1, 2, 3], dtype=dtype), [2, 3]).tolist() == [0, 1, 2]


def test_records_are_counted_in_each_interval():
    rng = np.random.default_rng(0)
    values, edges = rng.normal(size=500), [-1.0, 0.0, 2.0]
    expected = [np.sum((low <= values) & (values < high)) for low, high in zip([-9, *edges], [*edges, 9], strict=True)]
    assert count_between({"x": values}, "x", edges, None).tolist() == expected
    assert count_between({"x": [], "who": []}, "x", edges, Bound("who", 1)).tolist() == [0, 0, 0, 0]
    assert count_between({"x": values, "who": [1] * 500}, "x", edges, Bound("who", 3)).sum() == 3
    with pytest.raises(DataError, match="different lengths"):
        count_between({"x": values, "who": [1]}, "x", edges, Bound("who", 1))


EDGES = [-1.0, 0.0, 0.5, 2.0]
_RNG = np.random.default_rng(20261123)
# Many values are there several times, some lie on an edge, and a zero has two signs.
VALUES = np.concatenate([_RNG.normal(size=300).round(1), np.repeat(EDGES, 7), [-0.0, np.inf, -np.inf, 2**53]])


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.int64(), pa.int8()], ids=str)
def test_an_engine_counts_as_memory_does(in_engine, kind):
    values = VALUES if pa.types.is_floating(kind) else np.clip(np.nan_to_num(VALUES), -100, 100).astype(int)
    table = pa.table({"x": pa.array(values).cast(kind, safe=False), "other": ["a"] * len(values)})
    seen = np.asarray(table["x"]).astype(float)
    expected = [np.sum((low <= seen) & (seen < high)) for low, high in zip([-np.inf, *EDGES], EDGES, strict=False)]
    expected += [np.sum(seen >= EDGES[-1])]
    records = in_engine(table)
    refuse_missing(records, "x", None)
    found = count_between(records, "x", EDGES, None)
    assert found.tolist() == expected
    assert found.dtype == np.int64


def test_an_engine_keeps_a_few_records_of_each_unit(choosing):
    """A person with ten records in one interval, and one whose records lie in two."""
    table = pa.table({"x": [5.0] * 10 + [50.0] + [5.0, 50.0] * 4, "who": ["ann"] * 10 + ["bob"] + ["cid"] * 8})
    bound = Bound("who", 2)
    refuse_missing(choosing(table), "x", bound)
    seen = [count_between(choosing(table), "x", [10.0], bound) for _ in range(12)]
    assert {int(counts.sum()) for counts in seen} == {5}
    assert all(2 <= counts[0] <= 4 for counts in seen)
    # Which records of the third one are retained is chosen anew.
    assert len({tuple(counts) for counts in seen}) > 1
    with pytest.raises(DataError):
        count_between(choosing(pa.table({"x": [1.0, 2.0], "who": ["ann", None]})), "x", [10.0], bound)


@pytest.mark.parametrize("wrong", [[1.0, None], [1.0, float("nan")], ["a", "31.5"], [True, False]], ids=str)
def test_what_is_no_number_in_an_engine_is_refused_and_not_shown(in_engine, wrong):
    with pytest.raises(DataError) as caught:
        count_between(in_engine(pa.table({"x": wrong})), "x", EDGES, None)
    assert "31.5" not in str(caught.value)
    assert caught.value.__context__ is None


def test_columns_that_are_not_there_are_missed_before_a_record_is_read(in_engine):
    table = pa.table({"x": [1.0], "who": ["ann"]})
    for column, bound in (("y", None), ("x", Bound("whom", 1))):
        with pytest.raises(ArgumentError, match="no column"):
            refuse_missing(in_engine(table), column, bound)
