"""Checks of public arguments: what is allowed, and what the error says; and the different ones of many values."""

import math
import sys
import unicodedata
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from pymc_dirdp.arrays import distinct_values
from pymc_dirdp.checks import at_least, integer, one_of, open_unit_interval, positive, positive_array
from pymc_dirdp.counting.columns import identifier
from pymc_dirdp.errors import ArgumentError, DataError, type_name
from pymc_dirdp.sampling.drawing import checked_counts


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int64(1), np.array(1.0), Fraction(1)])
def test_numbers_of_any_kind(value):
    assert positive(r=value) == at_least(1, r=value) == integer(1, r=value) == 1
    assert isinstance(positive(r=value), float)
    assert isinstance(integer(1, r=value), int)
    assert at_least(1, finite=False, omega=math.inf) == math.inf


# A check, values outside of its domain, and what it says of them.
CHECKS = {
    "positive": (positive, (0, -1, math.inf, math.nan), "Expected r > 0 and finite"),
    "unit": (open_unit_interval, (0, 1, math.nan), r"in \(0, 1\)"),
    "two": (partial(at_least, 2), (1.9, math.inf), "r >= 2 and finite"),
    "any two": (partial(at_least, 2, finite=False), (math.nan,), "r >= 2"),
    "integer": (partial(integer, 2), (1, 2.5, math.inf), "integer >= 2"),
}


@pytest.mark.parametrize("kind", CHECKS)
def test_outside_of_the_domain_and_what_is_no_number_which_is_named_by_its_type_only(kind):
    check, values, message = CHECKS[kind]
    for value in values:
        with pytest.raises(ArgumentError, match=rf"{message}, got r={value}"):
            check(r=value)
    for value in (True, np.True_, "1", None, [1], np.ones(1), 1j):
        with pytest.raises(ArgumentError, match=rf"r .*got {type_name(value)}"):
            check(r=value)


def test_names_suggest_the_near_one():
    assert one_of(("temper", "inflate"), strategy="temper") == "temper"
    for name, message in (
        ("Tempr", r"one of 'temper', 'inflate'\. Did you mean 'temper'"),
        (3, "'inflate', got an int.$"),
    ):
        with pytest.raises(ArgumentError, match=message):
            one_of(("temper", "inflate"), strategy=name)


def test_arrays_are_copies_and_parameters_are_read_only():
    for counts in (np.array([1, 2]), np.array([1.0, 2.0]), [1, 2]):
        checked_counts(counts, (2,))[:] = 7
        assert list(counts) == [1, 2]
    given = np.array([[1, 2], [3, 4]])
    array = positive_array(alpha=given)
    given[0, 0] = 9
    assert array[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 2


def test_arrays_outside_of_the_domain():
    for message, values in (
        ("two categories", [[1.0], 1.0]),
        ("at least one row", [np.ones((0, 2))]),
        ("> 0 and finite", [[1, 0], [1, math.nan], [1, math.inf]]),
        ("got a list", [["a", "b"], [[1, 2], [3]]]),
    ):
        for value in values:
            with pytest.raises(ArgumentError, match=message):
                positive_array(alpha=value)


@pytest.mark.parametrize("counts", [[2**53, 1], [2**53 - 1, 2], [2**26, 2**53 + 1 - 2**26]])
def test_the_number_of_records_is_added_without_rounding(counts):
    """Oracle: Python's integers. Doubles hold no 2**53 + 1."""
    checked_counts(counts, (2,), n_records=2**53 + 1)
    for wrong in (2**53, 2**53 + 2):
        with pytest.raises(DataError, match="do not add up"):
            checked_counts(counts, (2,), n_records=wrong)


def test_counts_that_are_none():
    for message, values in (
        ("missing", [[1.0, math.nan], [math.inf, 1], [-math.inf, math.nan]]),
        ("negative", [[-1, 1], np.array([-1, 1])]),
        ("not integers", [[0.5, 1]]),
        (r"above 2\*\*53", [[2.0**54, 1], np.array([2**62, 1])]),
        ("another shape", [[1, 2, 3]]),
        ("integers", [["a", "b"]]),
    ):
        for counts in values:
            with pytest.raises(DataError, match=message):
                checked_counts(counts, (2,))


# An identifier, and what nobody could tell from it.
ALIKE = [
    *((5, "5"), ("5", "\uff15"), ("5", "05"), (5, "000\u0665"), ("5", " 5\u00a0"), ("0", "00"), ("Ann", "ann")),
    *(("Zo\u00eb", "zoe\u0308"), ("\u1e9b\u0323", "\u1e61\u0323"), ("STRASSE", "stra\u00dfe")),
    *(("\u0391\u03a3", "\u03b1\u03c2"), ("\u212b", "a\u030a"), ("ann smith", "Ann\u2003 Smith"), ("\ufb01n", "fin")),
]
APART = [5, 50, "5a", "0a", "a0", "ann", "an", "-5", "5.0", "\u0430nn", "ann smith", "annsmith"]
UNSEEN = ["A\u200bnn", "a\u00adnn", "\u202eann", "ann\ufe0f", "\u3164", "a\nb", "\ud800"]
NOBODY = [None, True, 1.5, b"5", "", " \t", "\u3000", *UNSEEN]


def test_identifiers_that_look_alike_are_one_and_others_several():
    for first, second in ALIKE:
        assert identifier(first) == identifier(second) is not None
    assert len(set(map(identifier, APART))) == len(APART)
    for value in (*NOBODY, 10**5000):
        assert identifier(value) is None


@pytest.mark.thorough
def test_the_form_of_an_identifier_is_its_own_form():
    """All characters that are assigned, alone and with marks before which a letter is composed."""
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) not in ("Cn", "Co"):
            for text in (chr(code), f"a{chr(code)}", f"{chr(code)}\u0323\u0345"):
                form = identifier(text)
                assert form is None or identifier(form) == form, code


RNG = np.random.default_rng(1)
VALUES = {
    "none": np.array([], dtype=np.int64),
    "one": np.array([7]),
    "equal": np.full((3, 4), -5),
    "close": RNG.integers(-3, 4, (50, 4)),
    "with gaps": RNG.choice([-9, 0, 8], 1000),
    "the next to a search": np.array([0, 2, 1, 4]),
    "the last of a look-up": np.array([0, 2, 1, 3]),
    "far apart": np.array([2**63 - 1, -(2**63), 0, 0]),
    "at the end": np.array([2**63 - 1, 2**63 - 2, 2**63 - 1]),
    "at the other end": np.array([-(2**63), -(2**63) + 1]),
    "bits of doubles": np.array([0.0, -0.0, 1.0, 1.0]).view(np.int64),
    "doubles": np.array([0.5, -1.0, 0.5]),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_each_value_is_found_at_its_place(values):
    found, place = distinct_values(values)
    assert found.dtype == values.dtype
    assert np.all(found[1:] > found[:-1])
    np.testing.assert_array_equal(found[place], values)
    np.testing.assert_array_equal(found, np.unique(values))
