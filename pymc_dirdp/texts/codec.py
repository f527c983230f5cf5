"""Serialize values to the facts that a text contains, and parse them, by the annotations of their class.

A fact is a JSON value: a text, a number, a Boolean, None, a list, an object or an array of numbers. A dataclass is
an object with a fact for each of its fields, in their order, or as its `layout` arranges them. Parsing trusts
nothing: a fact has exactly the annotated type, a Boolean is not a number and an integer is not a
double. The class checks everything else in `__post_init__`, so that every value is valid.

:mod:`pymc_dirdp.texts.grammar` proves that a text contains nothing else.
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

from pymc_dirdp.errors import ArgumentError, quote
from pymc_dirdp.privacy.guarantees import KINDS, Guarantee

type Layout = Mapping[str, str | Layout]
"""The layout of an object: each name maps to the path of an attribute, or to the layout of a nested object."""


_hints = cache(get_type_hints)


class WithLayout:
    """A dataclass whose text differs from its fields in order or names, or has facts that follow from others.

    A path whose first name is not a field is that of a property. It is written for people and never parsed: a text that
    states anything else there is refused, because it would be written differently.
    """

    layout: ClassVar[Layout]
    """The path of the attribute of each fact, such as `"table.prior"`."""
    omitted_if_empty: ClassVar[frozenset[str]] = frozenset()
    """The facts that are not written if they are empty."""


class RebuiltOnCopy:
    """A frozen dataclass that is rebuilt from its fields when it is copied or unpickled.

    The copy is therefore validated, and has no cached results of another value.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        names = (field.name for field in dataclasses.fields(self) if field.init)  # type: ignore[arg-type]  # a dataclass
        return partial(type(self), **{name: getattr(self, name) for name in names}), ()


def facts_of(value: Any) -> Any:
    """The facts of a value: objects, lists, texts, numbers and arrays of numbers.

    Examples
    --------
    >>> from pymc_dirdp import PureDP
    >>> facts_of({"guarantee": PureDP(epsilon=1.0), "lengths": (2, 3)})
    {'guarantee': {'kind': 'PureDP', 'epsilon': 1.0}, 'lengths': [2, 3]}
    """
    if isinstance(value, Guarantee):
        return guarantee_facts(value)
    if hasattr(type(value), "to_dict"):
        return value.to_dict()
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
    if isinstance(value, WithLayout):
        return _apply_layout(value, value.layout)
    return {field.name: facts_of(getattr(value, field.name)) for field in dataclasses.fields(value)}


def value_of[T](kind: type[T], facts: Any) -> T:
    """The value of type `kind` with these facts. Raises any of several errors if there is none.

    Examples
    --------
    >>> value_of(tuple[int, ...], [2, 3])
    (2, 3)
    """
    value: T = _parse(kind, facts)
    return value


def fields_of(kind: Any, facts: Mapping[str, Any], *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The constructor arguments of a dataclass with these facts, `without` those that its class parses itself."""
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    if issubclass(kind, WithLayout):
        facts = _undo_layout({name: [] for name in kind.omitted_if_empty} | dict(facts), kind.layout)
    elif unknown := _require_type(dict, facts).keys() - names:
        raise ArgumentError(f"{quote(min(unknown))} is not a fact of {kind.__name__}.")
    return {name: field_of(kind, name, facts[name]) for name in names if name not in without}


def field_of(kind: type, name: str, fact: Any) -> Any:
    """The value of a field of a dataclass, parsed from its fact."""
    try:
        return _parse(_hints(kind)[name], fact)
    except TypeError:
        raise ArgumentError(f"{quote(name)} has a value of the wrong type.") from None


def guarantee_facts(guarantee: Guarantee) -> dict[str, Any]:
    """A guarantee as JSON, which has no infinity."""
    numbers = dataclasses.asdict(guarantee).items()
    return {"kind": type(guarantee).__name__} | {n: x if math.isfinite(x) else str(x) for n, x in numbers}


def guarantee_of(facts: Mapping[str, Any]) -> Guarantee:
    """Parse a guarantee. Raises any of several errors if it is invalid."""
    numbers = {n: math.inf if x == "inf" else x for n, x in _require_type(dict, facts).items() if n != "kind"}
    if set(map(type, numbers.values())) != {float}:
        raise TypeError
    return KINDS[facts["kind"]](**numbers)


def label_facts(label: Any) -> Any:
    """A label as JSON: a text, a number or a Boolean as it is, anything else with the name of its kind."""
    if isinstance(label, np.datetime64):
        return {"time": str(label)}
    if isinstance(label, np.timedelta64):
        return {"nanoseconds": int(label.astype(np.int64))}
    if isinstance(label, np.uint64):
        # Together with smaller numbers these would become doubles.
        return {"unsigned": int(label)}
    if isinstance(label, bytes):
        return {"bytes": label.hex()}
    if isinstance(label, str):
        return str.__str__(label)
    builtin = label.item() if isinstance(label, np.generic) else label
    return {"number": str(builtin)} if isinstance(builtin, float) and not math.isfinite(builtin) else builtin


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


def _apply_layout(value: Any, layout: Layout) -> dict[str, Any]:
    """The facts of a value as a layout arranges them."""
    facts = {
        name: facts_of(attrgetter(path)(value)) if isinstance(path, str) else _apply_layout(value, path)
        for name, path in layout.items()
    }
    return {name: fact for name, fact in facts.items() if name not in value.omitted_if_empty or len(fact)}


def _undo_layout(facts: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """The same facts by the fields of their class, and of nested dataclasses."""
    values: dict[str, Any] = {}
    for names, path in _layout_paths(layout):
        field, _, inner = path.partition(".")
        fact = reduce(getitem, names, facts)
        if inner:
            values.setdefault(field, {})[inner] = fact
        else:
            values[field] = fact
    return values


def _layout_paths(layout: Layout, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The names that lead to each fact, and the path of its attribute."""
    for name, path in layout.items():
        if isinstance(path, str):
            yield (*prefix, name), path
        else:
            yield from _layout_paths(path, (*prefix, name))


def _parse(kind: Any, facts: Any) -> Any:
    """Parse a value of any annotation, for :func:`value_of`."""
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, TypeAliasType):
        return _parse(kind.__value__, facts)
    if isinstance(origin, TypeAliasType):
        # NumPy's name for an array of some kind of number.
        return _parse(origin.__value__[inner], facts)
    if kind is Any:
        # A value of any type is a label.
        return label_of(facts)
    if origin in (Union, types.UnionType):
        return _parse_union(inner, facts)
    if origin is Literal:
        if facts not in inner:
            raise ArgumentError(f"{quote(facts)} is not one of {', '.join(map(str, inner))}.")
        return facts
    if origin is tuple:
        return _parse_tuple(inner, _require_type(list, facts))
    if origin is np.ndarray:
        return _parse_array(inner[1], _require_type(list, facts))
    if origin in (dict, Mapping):
        return {name: _parse(inner[1], fact) for name, fact in _require_type(dict, facts).items()}
    if issubclass(kind, Guarantee):
        return guarantee_of(facts)
    if hasattr(kind, "from_dict"):
        return kind.from_dict(facts)
    if not dataclasses.is_dataclass(kind):
        return _require_type(kind, facts)
    return kind(**fields_of(kind, facts))  # type: ignore[operator]  # a class


def _require_type(kind: type, fact: Any) -> Any:
    """The fact, which must have exactly this type: in Python True is also an int."""
    if type(fact) is not kind:
        raise TypeError
    return fact


def _parse_union(kinds: tuple[Any, ...], fact: Any) -> Any:
    """The value as the first of these types that fits."""
    if fact is None and types.NoneType in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not types.NoneType)
    for kind in others:
        with suppress(TypeError):
            return _parse(kind, fact)
    return _parse(last, fact)


def _parse_tuple(kinds: tuple[Any, ...], facts: list[Any]) -> tuple[Any, ...]:
    """A tuple of any length with items of one type, or one item of each type."""
    item, *others = kinds
    if others != [...]:
        return tuple(_parse(kind, fact) for kind, fact in zip(kinds, facts, strict=True))
    builtin: set[Any] = {str, int, float, bool}
    # A text may contain a million of them.
    if set(map(type, facts)) <= (builtin if item is Any else builtin & {item}):
        return tuple(facts)
    return tuple(_parse(item, fact) for fact in facts)


def _parse_array(kind: Any, facts: list[Any]) -> NDArray[Any]:
    """Parse all numbers at once. Texts and Booleans are refused, because NumPy would convert them to numbers."""
    values, dtype = np.array(facts), np.dtype(*get_args(kind))
    if values.size and values.dtype.kind not in ("i" if dtype.kind == "i" else "if"):
        raise TypeError
    return values.astype(dtype, copy=False)
