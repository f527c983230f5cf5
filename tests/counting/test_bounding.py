"""At most m records of a unit: which ones, and that no other unit has a say in it."""

import itertools

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

from pymc_dirdp.counting import engines, tables
from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.counts import tabulate
from pymc_dirdp.counting.engines import EngineRecords
from pymc_dirdp.counting.tables import count, count_families, retained_rows
from pymc_dirdp.errors import ArgumentError, DataError

KEY = 2**255 + 987654321
RNG = np.random.default_rng(7)
# Units of 1 to 12 records, in an order of their own, whose cells are few: many records of a unit are equal.
SIZES = {f"person {i}": 1 + i % 12 for i in range(60)}
PEOPLE = RNG.permutation([name for name, size in SIZES.items() for _ in range(size)])
RECORDS = pa.table({"who": PEOPLE, "x": RNG.choice(["a", "b", "c"], len(PEOPLE)), "y": RNG.integers(0, 2, len(PEOPLE))})
LABELS = {"x": ["a", "b", "c"], "y": [0, 1]}
LAZY = {"DuckDB": lambda table: duckdb.connect().from_arrow(table), "polars": lambda table: pl.from_arrow(table).lazy()}


def test_each_unit_has_so_many_records_and_no_more(choosing):
    """Oracle: the smaller one of its records and the bound, for each unit. The unit itself is what is counted."""
    records = choosing(RECORDS)
    for most in (1, 5, 10**6):
        found = count(records, ["who"], categories={"who": list(SIZES)}, unit="who", contribution=most)
        assert found.tolist() == [min(size, most) for size in SIZES.values()]
    bounded = count(records, ["y", "x"], categories=LABELS, unit="who", contribution=12)
    np.testing.assert_array_equal(bounded, count(records, ["y", "x"], categories=LABELS))
    tables = [count(records, ["x", "y"], categories=LABELS, unit="who", contribution=1) for _ in range(6)]
    assert len({table.tobytes() for table in tables}) > 1
    for n in (0, 1):
        few = choosing(RECORDS.slice(0, n))
        assert count(few, ["x"], categories=LABELS, unit="who", contribution=2).sum() == n


def test_units_are_integers_or_texts_in_any_one_way_to_write_them(choosing):
    for kind in (pa.int64(), pa.uint8(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        units = pa.array([3, 7, 3, 7, 7, 200]).cast(kind if pa.types.is_integer(kind) else pa.string())
        units = units.dictionary_encode() if pa.types.is_dictionary(kind) else units.cast(kind)
        records = choosing(pa.table({"who": units, "x": ["a", "b", "a", "b", "b", "c"]}))
        assert count(records, ["x"], categories=LABELS, unit="who", contribution=2).tolist() == [2, 2, 1]
    units = ["Ann", "05", "\uff15a", "Zoe\u0308", "p ", "q", "q", "007"]
    records = choosing(pa.table({"who": units, "x": ["a"] * len(units)}))
    assert count(records, ["x"], categories=LABELS, unit="who", contribution=1).tolist() == [7, 0, 0]


MISSING = "'who' of the units holds missing values"
UNITS = {
    "a text is missing": (pa.array(["p", None, "q"]), MISSING),
    "a number is missing": (pa.array([1, None, 2]), MISSING),
    "all are missing": (pa.array([None] * 3, pa.string()), MISSING),
    # Four guests are no person.
    **{repr(nobody): (pa.array([nobody, nobody, "q"]), MISSING) for nobody in ("", "A\u200bnn", "\u3000", "a\tb")},
    # What could be written in two ways.
    **{
        str(kind): (pa.array([0, 1, 1], pa.int32()).cast(pa.int64()).cast(kind), "to hold texts or integers")
        for kind in (pa.float64(), pa.bool_(), pa.timestamp("us"))
    },
    "dates": (pa.array([0, 1, 1], pa.date32()), "to hold texts or integers"),
}


@pytest.mark.parametrize("case", UNITS)
def test_units_that_are_refused(case, choosing):
    units, message = UNITS[case]
    records = choosing(pa.table({"who": units, "x": ["a", "b", "c"]}))
    with pytest.raises((ArgumentError, DataError), match=message) as caught:
        count(records, ["x"], categories=LABELS, unit="who", contribution=1)
    assert caught.value.__context__ is None


def test_records_that_would_not_be_retained_are_checked(choosing):
    for value in (None, "violet"):
        records = choosing(pa.table({"who": ["one"] * 50, "x": [*["a"] * 49, value]}))
        for _ in range(3):
            with pytest.raises(DataError, match="'x' holds missing"):
                count(records, ["x"], categories=LABELS, unit="who", contribution=1)


def test_a_unit_counts_once_in_a_cell(choosing):
    """Oracle: the cells of each unit as a set."""
    cells = {(who, x, y) for who, x, y in zip(*RECORDS.to_pydict().values(), strict=True)}
    expected = [[sum(x == a and y == b for _, x, y in cells) for a in LABELS["x"]] for b in LABELS["y"]]
    records = choosing(RECORDS)
    options = {"categories": LABELS, "unit": "who", "distinct": True}
    assert count(records, ["y", "x"], contribution=6, **options).tolist() == expected
    records_of = {who: sum(name == who for name, _, _ in cells) for who in SIZES}
    assert count(records, ["y", "x"], contribution=2, **options).sum() == sum(min(n, 2) for n in records_of.values())


def test_units_that_look_alike_are_refused(choosing):
    """Two people with a record each would be one person with two, or one person two: nobody knows."""
    zoe = ("Zo\u00eb", "Zoe\u0308")
    for pair in (("5", "\uff15"), ("5", "05"), ("Ann", "ann"), zoe, ("p", "p "), ("\u00df", "ss")):
        records = choosing(pa.table({"who": [*pair, "q"], "x": ["a", "b", "c"]}))
        with pytest.raises(DataError, match="'who' of the units holds texts that differ only in") as caught:
            count(records, ["x"], categories=LABELS, unit="who", contribution=1)
        assert not any(repr(text) in str(caught.value) for text in pair)
    # The ways out: one way to write it, and numbers.
    for units in (["\u00df", "\u00df", "q"], ["1", "2", "3"]):
        records = choosing(pa.table({"who": units, "x": ["a", "b", "c"]}))
        assert count(records, ["x"], categories=LABELS, unit="who", contribution=1).sum() == len(set(units))


@pytest.mark.parametrize("units", [["p", 1], [1, 1.0], [True, 2], [b"p", "p"], [float("nan"), 1], [("p",), "p"]])
def test_units_of_mixed_types_are_refused(units):
    with pytest.raises(DataError, match="'who' of the units"):
        count({"who": units, "x": ["a", "b"]}, ["x"], categories=LABELS, unit="who", contribution=1)


ONE = {"who": ["p"], "x": ["a"]}
WRONG = {
    "different indexes": ({"who": pd.Series(["p", "q"], index=[1, 0]), "x": pd.Series(["a", "b"])}, {}),
    "different lengths": ({"who": ["p"], "x": ["a", "b"]}, {}),
    "no column 'who'": ({"x": ["a", "b"]}, {}),
    "unit and contribution together": (ONE, {"contribution": None}),
    "contribution together": (ONE, {"unit": None}),
    "and contribution together": (ONE, {"unit": None, "contribution": None, "distinct": True}),
    "contribution": (ONE, {"contribution": 0}),
    "contribution=1.5": (ONE, {"contribution": 1.5}),
    "unit to be the name of a column, got a list": (ONE, {"unit": ["who"]}),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_bounds_and_columns(message):
    records, options = WRONG[message]
    with pytest.raises((ArgumentError, DataError), match=message):
        count(records, ["x"], **({"categories": LABELS, "unit": "who", "contribution": 1} | options))


# The proof: for one key, what a unit adds depends on its own records alone.


def retained_in_memory(table, most, *, distinct=False):
    bound = Bound("who", most, distinct)
    codes = [np.array([LABELS[name].index(value) for value in table[name].to_pylist()]) for name in ("x", "y")]
    chosen = table.take(retained_rows(table["who"].to_pylist(), codes, bound, KEY))
    return sorted(zip(*chosen.to_pydict().values(), strict=True))


def retained_in_engine(table, most, engine, *, distinct=False):
    bound = Bound("who", most, distinct)
    # The unit is a variable too, so what comes back says whose records were retained.
    labels = LABELS | {"who": list(SIZES)}
    source = EngineRecords.of(LAZY[engine](table), labels, {}, bound).with_bound(bound, KEY)
    ((columns, times),) = source.encode_families([["who", "x", "y"]], [10**9])
    found = tabulate(columns, (len(SIZES), 3, 2), times)
    cells = itertools.product(SIZES, LABELS["x"], LABELS["y"])
    return sorted(cell for cell, n in zip(cells, found.ravel(), strict=True) for _ in range(n))


@pytest.mark.parametrize("place", ["memory", *LAZY])
@pytest.mark.parametrize(("most", "distinct"), [(1, False), (3, False), (3, True)])
def test_a_unit_changes_its_own_records_only(place, most, distinct):
    def retained(table):
        if place == "memory":
            return retained_in_memory(table, most, distinct=distinct)
        return retained_in_engine(table, most, place, distinct=distinct)

    everybody = retained(RECORDS)
    # In another order of records the same ones are retained, as far as they differ.
    assert retained(RECORDS.take(RNG.permutation(len(RECORDS)))) == everybody
    for gone in ("person 0", "person 11", "person 35"):
        without = RECORDS.filter(np.array([name != gone for name in RECORDS["who"].to_pylist()]))
        rest = retained(without)
        assert rest == [record for record in everybody if record[0] != gone]
        assert 1 <= len(everybody) - len(rest) <= most


@pytest.mark.parametrize("most", [1, 3])
def test_hashes_that_tie_keep_no_more(most, monkeypatch):
    """All hashes are equal, as if somebody had found records that collide."""
    monkeypatch.setattr(tables, "_mix", np.zeros_like)
    monkeypatch.setitem(engines._ADD_HASH, "polars", lambda polars, native, *_: native.with_columns(h=polars.lit(1)))
    expected = [min(size, most) for size in SIZES.values()]
    for records in (RECORDS, LAZY["polars"](RECORDS)):
        found = count(records, ["who"], categories={"who": list(SIZES)}, unit="who", contribution=most)
        assert found.tolist() == expected
    # Records that differ are then one for the hash, so each unit has them in another number.
    found = count(RECORDS, ["x"], categories=LABELS, unit="who", contribution=most)
    assert found.sum() == sum(expected)


def test_equal_records_are_chosen_as_often_as_others(hashing):
    """Nine equal records and another one, one of which counts: the other one in a tenth of the units.

    A hash of values alone would let it count in half of them. A single hash of DuckDB did in 12 of 100.
    """
    n = 12_000
    who = np.repeat(np.arange(n), 10)
    x = np.tile(["a"] * 9 + ["b"], n)
    records = hashing(pa.table({"who": who, "x": x}))
    found = count(records, ["x"], categories={"x": ["a", "b"]}, unit="who", contribution=1)
    assert stats.binomtest(int(found[1]), n, 0.1).pvalue > 1e-6
    for wrong in (0.12, 0.5):
        assert stats.binomtest(int(found[1]), n, wrong).pvalue < 1e-6


def test_every_choice_of_two_records_out_of_four_is_as_likely(hashing):
    n = 4000
    names = list("abcd")
    records = hashing(pa.table({"who": np.repeat(np.arange(n), 4), "x": np.tile(names, n)}))
    labels = {"x": names, "who": range(n)}
    found = np.asarray(count(records, ["who", "x"], categories=labels, unit="who", contribution=2))
    assert np.all(found.sum(axis=1) == 2)
    pairs = np.array([np.sum(found[:, i] & found[:, j]) for i, j in itertools.combinations(range(4), 2)])
    assert pairs.sum() == n
    assert stats.chisquare(pairs).pvalue > 1e-6
    # The first two would be retained without a hash.
    assert stats.chisquare(pairs, n * np.array([0.24, *[0.152] * 5])).pvalue < 1e-6


def test_a_declared_category_takes_what_is_missing_before_the_choice(choosing):
    records = choosing(pa.table({"who": ["p", "p", "p", "q"], "x": ["a", None, "violet", None]}))
    declared = {"categories": {"x": ["a", "other"]}, "otherwise": {"x": "other"}, "unit": "who"}
    assert count(records, ["x"], contribution=3, **declared).tolist() == [1, 3]
    assert count(records, ["x"], contribution=3, distinct=True, **declared).tolist() == [1, 2]
    assert count(records, ["x"], contribution=1, **declared).sum() == 2


def test_all_tables_count_the_same_records():
    bound = Bound("who", 2)
    labels = {name: list(values) for name, values in LABELS.items()}
    both, first, second = count_families(RECORDS, [["x", "y"], ["x"], ["y"]], labels, otherwise={}, bound=bound)
    np.testing.assert_array_equal(both.sum(axis=1), first)
    np.testing.assert_array_equal(both.sum(axis=0), second)


def test_a_unit_of_very_many_records():
    n = 1_200_000
    records = duckdb.sql(f"SELECT 1 AS who, i % 2 AS x FROM range({n}) AS t(i)")
    found = count(records, ["x"], categories={"x": [0, 1]}, unit="who", contribution=1000)
    assert found.sum() == 1000
    assert stats.binomtest(int(found[0]), 1000).pvalue > 1e-6


@pytest.mark.slow
def test_spark_chooses_too(spark):
    found = count(spark.createDataFrame(RECORDS), ["who"], categories={"who": list(SIZES)}, unit="who", contribution=3)
    assert found.tolist() == [min(size, 3) for size in SIZES.values()]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["Parquet", "polars lazy"])
def test_ten_million_records_of_bounded_units(place, tmp_path):
    """Oracle: the smaller one of its records and the bound, for each unit, by NumPy."""
    n, units, most, path = 10**7, 2_500_000, 3, str(tmp_path / "records.parquet")
    columns = f"hash(i) % {units} AS who, hash(i + {n}) % 5 AS x, hash(i) % {units} % 7 AS y"
    duckdb.sql(f"SELECT {columns} FROM range({n}) AS t(i)").write_parquet(path)
    who = pl.read_parquet(path, columns=["who"])["who"].to_numpy().astype(np.int64)
    records = path if place == "Parquet" else pl.scan_parquet(path)
    labels = {"y": range(7), "x": range(5)}
    table = np.asarray(count(records, ["y", "x"], categories=labels, unit="who", contribution=most))
    retained = np.minimum(np.bincount(who, minlength=units), most)
    np.testing.assert_array_equal(table.sum(axis=1), np.bincount(np.arange(units) % 7, weights=retained, minlength=7))
    # Retaining a record does not depend on its values, so each value has its share, within 6 standard deviations.
    assert np.abs(table.sum(axis=0) - retained.sum() / 5).max() < 6 * np.sqrt(retained.sum() / 5)
