"""Who is protected, in sentences: each number and each word against what the tables and the user say."""

from dataclasses import replace

import pytest

from pymc_dirdp.models.privacy_unit import PrivacyUnit, UnitOptions
from pymc_dirdp.privacy.people import Contribution

REPLACED, REMOVED = "replace-one", "add-remove"
SHAPES = {"hair": (4,), "answers": (5, 3), "diary": (7, 2)}
ADDS = {"hair": Contribution(1), "answers": Contribution(1, ("each",)), "diary": Contribution(6, ("own",))}


def reading(stated, tables, groups, relation=REPLACED, others=False):
    shapes, adds = (tuple((name, of[name]) for name in tables) for of in (SHAPES, ADDS))
    return PrivacyUnit(replace(stated, adjacency=relation), shapes, adds, tuple(map(tuple, groups)), 9, others)


def said(*facts, **options):
    return reading(*facts, **options).protected


DIARY = "6 records each: 6 in a row of its own of diary"


@pytest.mark.parametrize(
    ("groups", "holds", "changed"),
    [
        ([["hair"]], "1 record each: one in hair", "the record of one person"),
        ([["hair", "answers"]], "6 records each", "all 6 records of one person"),
        # The largest group, wherever it stands.
        ([["hair"], ["answers"]], "5 records each", "all 5 records of one person"),
        ([["answers"], ["hair"]], "5 records each", "all 5 records of one person"),
        ([["diary"]], DIARY, "all 6 records of one person"),
    ],
)
def test_how_many_records_a_person_holds_is_what_the_tables_say(groups, holds, changed):
    text = said(UnitOptions(unit=("person",)), [name for group in groups for name in group], groups)
    assert text.startswith(f"every person (dim 'person', 9 of them, as the publisher states, {holds}")
    assert f"Neighbours: {changed} replaced; how many of them there are is public, and so is" in text


@pytest.mark.parametrize(
    ("unit", "called"),
    [
        (("person",), "every person (dim 'person', "),
        (("school", "class"), "every entry of (school, class) (dims 'school' and 'class', "),
        ((0,), "every entry of axis 0 (a numbered axis, "),
        (("school", 1), "every entry of (school, axis 1) (numbered axes, "),
    ],
)
def test_a_unit_is_called_by_its_axes(unit, called):
    assert said(UnitOptions(unit=unit), ["hair"], [["hair"]]).startswith(called)
    assert reading(UnitOptions(unit=unit), ["hair"], [["hair"]], others=True).label.endswith(" | record")


def test_a_bound_on_private_numbers_of_records_is_called_one():
    text = said(UnitOptions(unit=("person",), contribution=5), ["answers"], [["answers"]], REMOVED)
    assert "at most 5 records each" in text
    assert "all records of one person appear or disappear; how many of them there are is private" in text


@pytest.mark.parametrize(
    ("relation", "words"),
    [(REPLACED, "the number of records is public"), (REMOVED, "appear or disappear; the number is private")],
)
def test_several_records_of_anybody(relation, words):
    assert words in reading(UnitOptions(contribution=2), ["hair"], [["hair"]], relation).neighbours
    assert said(UnitOptions(contribution=2), ["hair"], [["hair"]]).startswith(
        "every person, who holds at most 2 records"
    )
    # One record of a person is a record.
    assert said(UnitOptions(contribution=1), ["hair"], [["hair"]]).startswith("every record")
    assert reading(UnitOptions(contribution=1), ["hair"], [["hair"]]).label == "record"


def test_the_unit_as_the_user_writes_it():
    assert [one.unit_text for one in (UnitOptions(), UnitOptions(contribution=1))] == ["single records"] * 2
    assert UnitOptions(contribution=3).unit_text == "contribution=3"
    assert UnitOptions(unit=("person",)).unit_text == "unit='person'"
    assert UnitOptions(unit=("person", 1)).unit_text == "unit=('person', 1)"
