"""A value is written and read by the annotations of its class, and nothing but what was annotated is read."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pymc_dirdp as dirdp
from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.texts.codec import WithLayout, facts_of, fields_of, label_of, value_of
from pymc_dirdp.texts.grammar import to_builtin, to_lines

type Lengths = tuple[int, ...]


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclass(frozen=True)
class Everything:
    word: str
    number: int
    share: float
    yes: bool
    kind: Literal["a", "b"]
    nothing: int | None
    either: tuple[str | int, ...]
    pairs: tuple[tuple[str, float], ...]
    lengths: Lengths
    labels: Mapping[str, tuple[Any, ...] | None]
    guarantee: Guarantee
    point: Point | None
    points: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Numbers:
    doubles: Array
    integers: Integers


@dataclass(frozen=True)
class Inner:
    name: str
    prior: float


@dataclass(frozen=True)
class Outer(WithLayout):
    inner: Inner
    draws: int
    public: bool
    more: Lengths = ()

    layout: ClassVar = {
        "statement": "statement",
        "name": "inner.name",
        "people": {"draws": "draws", "public": "public"},
        "prior": "inner.prior",
        "more": "more",
    }
    omitted_if_empty: ClassVar = frozenset({"more"})

    @property
    def statement(self):
        return f"{self.draws} draws"


EVERYTHING = Everything(
    word="größe",
    number=-3,
    share=0.1,
    yes=True,
    kind="b",
    nothing=None,
    either=("a", 1),
    pairs=(("p", 0.5), ("q", 1e-300)),
    lengths=(2, 3),
    labels={"when": (np.datetime64("2020-01-31", "ns"), np.datetime64("2021-01-31", "ns")), "none": None},
    guarantee=dirdp.TruncatedCDP(rho=0.1, omega=math.inf),
    point=Point(1.0),
)


def through_json(value):
    return json.loads(to_lines(facts_of(value)))


def test_what_is_written_is_read_again():
    facts = through_json(EVERYTHING)
    assert facts["guarantee"] == {"kind": "TruncatedCDP", "rho": 0.1, "omega": "inf"}
    assert facts["labels"]["when"][0] == {"time": "2020-01-31T00:00:00.000000000"}
    assert list(facts) == [field.name for field in dataclasses.fields(Everything)]
    assert value_of(Everything, facts) == EVERYTHING
    with pytest.raises(ArgumentError, match=r"^'share' has a value of the wrong type"):
        value_of(Everything, facts | {"share": "secret"})


WRONG = {
    "word": [None, 1, True, ["a"], {}],
    "number": [True, 1.0, "1", None, [1]],
    "share": [1, True, "0.1", None],
    "yes": [1, 0, "true", None],
    "kind": ["c", "", None, ["a"], 1, {}],
    "nothing": [False, 1.0, "none", []],
    "either": ["ab", ["a", 1.0], ["a", True], [None], {"a": 1}, None],
    "pairs": [[["p"]], [["p", 0.5, 1]], [["p", 1]], [{"p": 0.5}], "pq"],
    "lengths": [[2, 3.0], [True], ["2"], 2, "23", {"2": 3}, None],
    "labels": [{"when": [None]}, {"when": [[1]]}, {"when": "ab"}, [["when", None]], {"when": [{"time": "soon"}]}],
    "guarantee": [{"kind": "Guarantee"}, {"kind": "TruncatedCDP", "rho": 0.1}, None, "1", {}],
    "point": [{}, {"x": 1}, {"x": 1.0, "z": 1.0}, {"x": 1.0, "y": 0.0, "z": 0.0}, [1.0, 0.0], "x"],
    "points": [{}, {"x": 1.0, "y": 0.0}, [[1.0, 0.0]], [None]],
}


@pytest.mark.parametrize("name", WRONG)
def test_nothing_else_is_read(name):
    for wrong in WRONG[name]:
        facts = through_json(EVERYTHING) | {name: wrong}
        with pytest.raises((ArgumentError, LookupError, TypeError, ValueError)):
            value_of(Everything, facts)
    facts = through_json(EVERYTHING)
    del facts[name]
    with pytest.raises(KeyError, match=name):
        value_of(Everything, facts)
    with pytest.raises(ArgumentError, match="'more' is not a fact of Everything"):
        value_of(Everything, facts | {name: None, "more": 1})


def test_arrays_are_arrays():
    value = Numbers(np.array([[0.5, -0.0], [1e300, 2.0]]), np.array([[1, -1]]))
    assert facts_of(value)["doubles"] is value.doubles
    again = value_of(Numbers, through_json(value))
    assert again.doubles.tobytes() == value.doubles.tobytes()
    assert again.integers.dtype == np.int64
    assert again.integers.tolist() == [[1, -1]]
    facts = through_json(value)
    for wrong in (["0.5"], [True, False], [None], [[1], [1, 2]], "0.5", 0.5, {}, [10**400]):
        for name in facts:
            with pytest.raises((ArgumentError, ValueError)):
                value_of(Numbers, facts | {name: wrong})
    with pytest.raises(ArgumentError, match="'integers'"):
        value_of(Numbers, facts | {"integers": [0.5]})


def test_a_layout_arranges_facts_and_what_follows_is_not_read():
    value = Outer(Inner("p", 1.0), 2, True)
    facts = facts_of(value)
    expected = {"statement": "2 draws", "name": "p", "people": {"draws": 2, "public": True}, "prior": 1.0}
    assert list(facts.items()) == list(expected.items())
    assert value_of(Outer, facts) == value
    assert value_of(Outer, facts | {"statement": "three draws"}) == value
    assert value_of(Outer, facts | {"more": [1]}) == Outer(Inner("p", 1.0), 2, True, (1,))
    assert facts_of(Outer(Inner("p", 1.0), 2, True, (1,)))["more"] == [1]
    for name in ("statement", "name", "people", "prior"):
        with pytest.raises(KeyError):
            value_of(Outer, {key: fact for key, fact in facts.items() if key != name})
    with pytest.raises(TypeError):
        value_of(Outer, facts | {"people": [2, True]})
    assert fields_of(Outer, facts, without=("inner",)) == {"draws": 2, "public": True, "more": ()}


def test_a_label_comes_back_as_it_was():
    for label in (
        *("a", "", 1, -(2**70), True, 0.5, math.inf, -math.inf, b"\xff", np.uint64(2**64 - 1)),
        *(np.datetime64("1999-12-31", "ns"), np.timedelta64(5, "ns")),
    ):
        (again,) = value_of(tuple[Any, ...], through_json((label,)))
        assert again == label
        assert type(again) is type(label)
    # Many integers of NumPy are an array.
    labels = tuple(np.arange(5))
    assert isinstance(facts_of(labels), np.ndarray)
    assert value_of(tuple[Any, ...], through_json(labels)) == (0, 1, 2, 3, 4)
    for wrong in (None, [], [1], {"time": 1}, {"number": "nan"}, {"bytes": "x"}, {"word": "a"}, {}):
        with pytest.raises((TypeError, ValueError)):
            label_of(wrong)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "x", "y", "name"]), inner),
    max_leaves=6,
)


@given(JSON)
def test_whatever_is_read_is_written_as_it_was(facts):
    """The proof of the grammar, at the level of single values: what a reader accepts it would write so."""
    kinds = (str, int, float, bool, int | None, tuple[int, ...], tuple[str | int, ...], tuple[str, float], Point, Any)
    for kind in (*kinds, dict[str, int], tuple[Any, ...], tuple[Point, ...], Point | None, Inner, Literal["a", "b"]):
        try:
            value = value_of(kind, facts)
        except (ArgumentError, LookupError, TypeError, ValueError):
            continue
        again = to_builtin(facts_of(value))
        assert json.dumps(again) == json.dumps(facts)
