"""Which margins of the tables of a model are measured."""

import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.planning.margins import margins_of

A, B, C = ("a", 2), ("b", 3), ("c", 4)
TABLES = {"p_a": (A,), "p_b": (A, B), "p_c": (A, B, C)}


def test_levels_are_measured_once():
    found = [(margin.table, margin.names, margin.cells) for margin in margins_of(TABLES, "levels")]
    assert found == [
        ("p_a", ("a",), 2),
        ("p_b", ("b",), 3),
        ("p_b", ("a", "b"), 6),
        ("p_c", ("c",), 4),
        ("p_c", ("a", "c"), 8),
        ("p_c", ("b", "c"), 12),
        ("p_c", ("a", "b", "c"), 24),
    ]
    assert [margin.names for margin in margins_of(TABLES, "families")] == [("a",), ("a", "b"), ("a", "b", "c")]


def test_axes_of_one_entry_change_no_count():
    tables = {"p_a": (("a", 2),), "p_b": (("one", 1), ("a", 2), ("b", 3))}
    assert [margin.names for margin in margins_of(tables, "levels")] == [("a",), ("b",), ("a", "b")]
    assert margins_of(tables, "levels")[-1].axes == (1, 2)
    with pytest.raises(ArgumentError, match="one cell"):
        margins_of(tables, ["a", ("one", "b"), "one"])


def test_a_margin_is_summed_from_the_table_of_one_of_its_variables():
    found = margins_of(TABLES, [("b", "a"), "a", "b", ["c", "a"], ("a", "b"), "c"])
    assert [(margin.table, margin.names) for margin in found] == [
        ("p_b", ("a", "b")),
        ("p_a", ("a",)),
        ("p_b", ("b",)),
        ("p_c", ("a", "c")),
        ("p_c", ("c",)),
    ]
    # No table is that of one of the parents alone.
    rows = {"p": (("x", 2), ("y", 2), ("z", 3))}
    assert [margin.names for margin in margins_of(rows, [("x", "y"), "z"])] == [("x", "y"), ("z",)]


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("level", "levels"),
        (3, "got an int"),
        ([3], "a name, or a tuple"),
        ([("a", {})], "got a dict"),
        ([()], "a name, or a tuple"),
        ([("a", "a")], "different names"),
        (["d", "a"], "'d'"),
        (["a", "b"], "no margin of 'p_c' with 'c'"),
        ([("b", "c"), ("a", "b"), ("a", "c")], "no margin of 'p_a' with 'a'"),
        ([], "no margin of 'p_a'"),
    ],
)
def test_margins_that_cannot_be_measured(measure, message):
    with pytest.raises(ArgumentError, match=message):
        margins_of(TABLES, measure)


def test_no_table_holds_the_margin():
    tables = {"p_a": (A,), "p_b": (B,)}
    with pytest.raises(ArgumentError, match="No table has all axes of the margin"):
        margins_of(tables, ["a", "b", ("a", "b")])
