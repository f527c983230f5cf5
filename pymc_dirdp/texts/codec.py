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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, partial, reduce
from operator import attrgetter, getitem
from typing import Any, ClassVar, Literal, TypeAliasType, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError, shown
from pymc_dirdp.privacy.guarantees import KINDS, Guarantee

type Layout = Mapping[str, str | Layout]
"""Where the facts of an object stand: by name the path of an attribute, or the layout of an object within."""


_hints = cache(get_type_hints)


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
    value: T = _read(kind, facts)
    return value


def fields_of(kind: Any, facts: Mapping[str, Any], *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The arguments that make a dataclass of these facts; `without` those that its class reads itself."""
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    if issubclass(kind, LaidOut):
        facts = _by_field({name: [] for name in kind.left_out} | dict(facts), kind.layout)
    elif unknown := _of_type(dict, facts).keys() - names:
        raise ArgumentError(f"{shown(min(unknown))} is no fact of {kind.__name__}.")
    return {name: field_of(kind, name, facts[name]) for name in names if name not in without}


def field_of(kind: type, name: str, fact: Any) -> Any:
    """The value of a field of a dataclass of which this is the fact."""
    try:
        return _read(_hints(kind)[name], fact)
    except TypeError:
        raise ArgumentError(f"{shown(name)} has a value of another type than it has in such a text.") from None


def guarantee_facts(guarantee: Guarantee) -> dict[str, Any]:
    """A guarantee as JSON, which has no infinity."""
    numbers = dataclasses.asdict(guarantee).items()
    return {"kind": type(guarantee).__name__} | {n: x if math.isfinite(x) else str(x) for n, x in numbers}


def guarantee_of(facts: Mapping[str, Any]) -> Guarantee:
    """The guarantee that was written; errors of all kinds if it is none."""
    numbers = {n: math.inf if x == "inf" else x for n, x in _of_type(dict, facts).items() if n != "kind"}
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


def _read(kind: Any, facts: Any) -> Any:
    """What :func:`value_of` returns, of any annotation."""
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, TypeAliasType):
        return _read(kind.__value__, facts)
    if isinstance(origin, TypeAliasType):
        # NumPy's name for an array of some kind of number.
        return _read(origin.__value__[inner], facts)
    if kind is Any:
        # What may be anything in Python is a label.
        return label_of(facts)
    if origin in (Union, types.UnionType):
        return _alternative(inner, facts)
    if origin is Literal:
        if facts not in inner:
            raise ArgumentError(f"{shown(facts)} is none of {', '.join(map(str, inner))}.")
        return facts
    if origin is tuple:
        return _tuple(inner, _of_type(list, facts))
    if origin is np.ndarray:
        return _array(inner[1], _of_type(list, facts))
    if origin in (dict, Mapping):
        return {name: _read(inner[1], fact) for name, fact in _of_type(dict, facts).items()}
    if issubclass(kind, Guarantee):
        return guarantee_of(facts)
    if hasattr(kind, "from_facts"):
        return kind.from_facts(facts)
    if not dataclasses.is_dataclass(kind):
        return _of_type(kind, facts)
    return kind(**fields_of(kind, facts))  # type: ignore[operator]  # a class


def _of_type(kind: type, fact: Any) -> Any:
    """The fact, which has to be of this type itself: True is an int in Python."""
    if type(fact) is not kind:
        raise TypeError
    return fact


def _alternative(kinds: tuple[Any, ...], fact: Any) -> Any:
    """The value of the first of these kinds that it can be of."""
    if fact is None and types.NoneType in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not types.NoneType)
    for kind in others:
        with suppress(TypeError):
            return _read(kind, fact)
    return _read(last, fact)


def _tuple(kinds: tuple[Any, ...], facts: list[Any]) -> tuple[Any, ...]:
    """As many values as there are, of one kind, or one of each kind."""
    item, *others = kinds
    if others != [...]:
        return tuple(_read(kind, fact) for kind, fact in zip(kinds, facts, strict=True))
    plain: set[Any] = {str, int, float, bool}
    # A text may hold a million of them.
    if set(map(type, facts)) <= (plain if item is Any else plain & {item}):
        return tuple(facts)
    return tuple(_read(item, fact) for fact in facts)


def _array(kind: Any, facts: list[Any]) -> NDArray[Any]:
    """All numbers at once; texts and truth values would become numbers of their own."""
    values, dtype = np.array(facts), np.dtype(*get_args(kind))
    if values.size and values.dtype.kind not in ("i" if dtype.kind == "i" else "if"):
        raise TypeError
    return values.astype(dtype, copy=False)
