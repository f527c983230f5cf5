"""From a value to the facts that a text holds of it, and back, by the annotations of its class.

A fact is a text, a number, a truth value, None, a list, an object or an array of numbers: what JSON has. A dataclass is
an object with a fact for each of its fields, in their order, or as its `layout` arranges them. Reading believes
nothing: a fact has exactly the type that is annotated, a truth value is no number and an integer is no double, and
everything else is checked by the class, in `__post_init__`, so that a value is valid however it was made.

The proof that nothing more was written is no business of this file: see :mod:`pymc_dirdp.texts.grammar`.
"""

import dataclasses
import math
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial, reduce
from operator import attrgetter, getitem
from typing import Any, ClassVar, Literal, TypeAliasType, Union, get_args, get_origin, get_type_hints

import numpy as np

from pymc_dirdp.errors import ArgumentError, shown
from pymc_dirdp.privacy.guarantees import KINDS, Guarantee

type Layout = Mapping[str, str | Layout]
"""Where the facts of an object stand: by name the path of an attribute, or the layout of an object within."""

type Reader = Callable[[Any], Any]


class LaidOut:
    """A dataclass whose text has another order than its fields, other names, or facts that follow from others.

    A path of the layout whose first name is no field is that of a property. It is written for people and never read: a
    text that states anything else there is not the one that is written.
    """

    layout: ClassVar[Layout]
    """By the name of a fact the path of its attribute, as `"table.prior"`."""
    left_out: ClassVar[frozenset[str]] = frozenset()
    """The facts that are not written where they are empty."""


class Remade:
    """A frozen dataclass that is made of its fields again when it is copied or unpickled.

    So it is checked again, and what it has computed stays behind, which could be what another one has computed.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        given = (field.name for field in dataclasses.fields(self) if field.init)  # type: ignore[arg-type]  # a dataclass
        return partial(type(self), **{name: getattr(self, name) for name in given}), ()


def facts_of(value: Any) -> Any:
    """The facts of a value, in objects, lists, texts, numbers and arrays of numbers.

    Examples
    --------
    >>> from pymc_dirdp import PureDP
    >>> facts_of({"guarantee": PureDP(epsilon=1.0), "lengths": (2, 3)})
    {'guarantee': {'kind': 'PureDP', 'epsilon': 1.0}, 'lengths': [2, 3]}
    """
    if isinstance(value, Guarantee):
        return guarantee_facts(value)
    if hasattr(type(value), "to_facts"):
        return value.to_facts()
    if dataclasses.is_dataclass(value):
        return facts_by_field(value)
    if isinstance(value, Mapping):
        return {key: facts_of(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        kinds = set(map(type, value))
        # There may be a million labels.
        if kinds == {np.int64}:
            return np.array(value)
        return list(value) if kinds <= {str, int} else list(map(facts_of, value))
    return value if isinstance(value, np.ndarray) else label_facts(value)


def facts_by_field(value: Any) -> dict[str, Any]:
    """The facts of a dataclass: one for each field, or as its layout arranges them."""
    if isinstance(value, LaidOut):
        return _arranged(value, value.layout)
    return {field.name: facts_of(getattr(value, field.name)) for field in dataclasses.fields(value)}


def value_of[T](kind: type[T], facts: Any) -> T:
    """The value of a kind of which these are the facts; errors of all kinds if it is none.

    Examples
    --------
    >>> value_of(tuple[int, ...], [2, 3])
    (2, 3)
    """
    read: Callable[[Any], T] = _reader(kind)  # type: ignore[arg-type]  # a class is hashable
    return read(facts)


def fields_of[T](kind: type[T], facts: Mapping[str, Any], *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The arguments that make a dataclass of these facts; `without` those that its class reads itself."""
    readers = _field_readers(kind)  # type: ignore[arg-type]  # a class is hashable
    if issubclass(kind, LaidOut):
        facts = _by_field({name: [] for name in kind.left_out} | dict(facts), kind.layout)
    elif unknown := facts.keys() - readers:
        raise ArgumentError(f"{shown(min(unknown))} is no fact of {kind.__name__}.")
    values = {}
    for name in [name for name in readers if name not in without]:
        fact = facts[name]
        try:
            values[name] = readers[name](fact)
        except TypeError:
            raise ArgumentError(f"{shown(name)} has a value of another type than it has in such a text.") from None
    return values


def guarantee_facts(guarantee: Guarantee) -> dict[str, Any]:
    """A guarantee as JSON, which has no infinity."""
    numbers = dataclasses.asdict(guarantee).items()
    return {"kind": type(guarantee).__name__} | {n: x if math.isfinite(x) else str(x) for n, x in numbers}


def guarantee_of(facts: Mapping[str, Any]) -> Guarantee:
    """The guarantee that was written; errors of all kinds if it is none."""
    if type(facts) is not dict:
        raise TypeError
    numbers = {name: math.inf if value == "inf" else value for name, value in facts.items() if name != "kind"}
    if set(map(type, numbers.values())) != {float}:
        raise TypeError
    return KINDS[facts["kind"]](**numbers)


def label_facts(label: Any) -> Any:
    """A label as JSON: a text, a number or a truth value as it is, all else with the name of its kind."""
    if isinstance(label, np.datetime64):
        return {"time": str(label)}
    if isinstance(label, np.timedelta64):
        return {"nanoseconds": int(label.astype(np.int64))}
    if isinstance(label, np.uint64):
        # Such numbers would become doubles beside smaller ones.
        return {"unsigned": int(label)}
    if isinstance(label, bytes):
        return {"bytes": label.hex()}
    if isinstance(label, str):
        return str.__str__(label)
    plain = label.item() if isinstance(label, np.generic) else label
    return {"number": str(plain)} if isinstance(plain, float) and not math.isfinite(plain) else plain


def label_of(label: Any) -> Any:
    """The label that was written as JSON."""
    match label:
        case {"time": str(text)}:
            return np.datetime64(text, "ns")
        case {"nanoseconds": int(number)}:
            return np.timedelta64(number, "ns")
        case {"unsigned": int(number)}:
            return np.uint64(number)
        case {"bytes": str(text)}:
            return bytes.fromhex(text)
        case {"number": "inf" | "-inf" as text}:
            return float(text)
        case str() | bool() | int() | float():
            return label
    raise TypeError


def _arranged(value: Any, layout: Layout) -> dict[str, Any]:
    """The facts of a value as a layout arranges them."""
    facts = {
        name: facts_of(attrgetter(path)(value)) if isinstance(path, str) else _arranged(value, path)
        for name, path in layout.items()
    }
    return {name: fact for name, fact in facts.items() if name not in value.left_out or len(fact)}


def _by_field(facts: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """The same facts by the fields of their class, and of the dataclasses in these fields."""
    found: dict[str, Any] = {}
    for names, path in _places(layout):
        field, _, inner = path.partition(".")
        fact = reduce(getitem, names, facts)
        if inner:
            found.setdefault(field, {})[inner] = fact
        else:
            found[field] = fact
    return found


def _places(layout: Layout, within: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where each fact stands, and the path of its attribute."""
    for name, path in layout.items():
        if isinstance(path, str):
            yield (*within, name), path
        else:
            yield from _places(path, (*within, name))


@cache
def _field_readers(kind: type) -> dict[str, Reader]:
    """How the facts of each field of a dataclass are read."""
    hints = get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind) if field.init}


@cache
def _reader(kind: Any) -> Reader:
    """How the facts of a kind are read."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, TypeAliasType):
        return _reader(kind.__value__)
    if isinstance(origin, TypeAliasType):
        # NumPy's name for an array of some kind of number.
        return _reader(origin.__value__[arguments])
    if kind is Any:
        # What may be anything in Python is a label.
        return label_of
    if origin is Literal:
        return _words(arguments)
    if origin in (Union, types.UnionType):
        return _any_of(arguments)
    if origin is tuple:
        return _several(arguments[0]) if arguments[-1] is Ellipsis else _row(arguments)
    if origin is np.ndarray:
        (number,) = get_args(arguments[1])
        return _array(np.dtype(number))
    if origin in (dict, Mapping):
        return _mapping(arguments[1])
    if isinstance(kind, type) and issubclass(kind, Guarantee):
        return guarantee_of
    if hasattr(kind, "from_facts"):
        return kind.from_facts  # type: ignore[no-any-return]
    return _dataclass(kind) if dataclasses.is_dataclass(kind) else _exactly(kind)


def _dataclass(kind: Any) -> Reader:
    def read(facts: Any) -> Any:
        if type(facts) is not dict:
            raise TypeError
        return kind(**fields_of(kind, facts))

    return read


def _exactly(kind: type) -> Reader:
    def read(fact: Any) -> Any:
        # By the type itself: True is an int in Python.
        if type(fact) is not kind:
            raise TypeError
        return fact

    return read


def _words(words: tuple[Any, ...]) -> Reader:
    def read(fact: Any) -> Any:
        if type(fact) is not str or fact not in words:
            raise ArgumentError(f"{shown(fact)} is none of {', '.join(map(str, words))}.")
        return fact

    return read


def _any_of(kinds: tuple[Any, ...]) -> Reader:
    alternatives = [_reader(kind) for kind in kinds if kind is not types.NoneType]

    def read(fact: Any) -> Any:
        if fact is None and types.NoneType in kinds:
            return None
        *others, last = alternatives
        for alternative in others:
            with suppress(TypeError):
                return alternative(fact)
        return last(fact)

    return read


def _several(kind: Any) -> Reader:
    plain: set[Any] = {str, int, float, bool}
    item, plain = _reader(kind), plain if kind is Any else plain & {kind}

    def read(facts: Any) -> tuple[Any, ...]:
        if type(facts) is not list:
            raise TypeError
        # A text may hold a million of them.
        return tuple(facts) if set(map(type, facts)) <= plain else tuple(map(item, facts))

    return read


def _row(kinds: tuple[Any, ...]) -> Reader:
    readers = [_reader(kind) for kind in kinds]

    def read(facts: Any) -> tuple[Any, ...]:
        if type(facts) is not list:
            raise TypeError
        return tuple(reader(fact) for reader, fact in zip(readers, facts, strict=True))

    return read


def _array(dtype: np.dtype[Any]) -> Reader:
    def read(facts: Any) -> Any:
        if type(facts) is not list:
            raise TypeError
        # All numbers at once; texts and truth values would become numbers of their own.
        values = np.array(facts)
        if values.size and values.dtype.kind not in ("i" if dtype.kind == "i" else "if"):
            raise TypeError
        return values.astype(dtype, copy=False)

    return read


def _mapping(kind: Any) -> Reader:
    item = _reader(kind)

    def read(facts: Any) -> dict[str, Any]:
        if type(facts) is not dict:
            raise TypeError
        return {name: item(fact) for name, fact in facts.items()}

    return read
