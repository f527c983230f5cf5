"""Checks of the arguments of public functions and classes against their signatures.

:func:`user_facing` marks every public function. An unknown keyword raises an error with the nearest one before the
call. A value of the wrong type is left to the function's own checks, whose errors are more helpful. If none of them
catches it and Python raises an error later, the error here names the argument.
"""

import builtins
import functools
import inspect
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAliasType, TypeVar, get_args, get_origin, get_overloads

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.checks import numbers_or_none, refuse_unknown
from pymc_dirdp.errors import ArgumentError, DirdpError, type_name


def user_facing[Verb: Callable[..., Any]](verb: Verb) -> Verb:
    """Mark a function, a method or the constructor of a class with arguments from a user.

    Examples
    --------
    >>> @user_facing
    ... def share(table: list[float], draws: int = 1):
    ...     return [cell / sum(table) for cell in table] * draws
    >>> share([1, 3], draws=1)
    [0.25, 0.75]
    >>> share([1, 3], darws=1)
    Traceback (most recent call last):
        ...
    pymc_dirdp.errors.KeywordError: share() got an unexpected keyword argument 'darws'. Did you mean 'draws'?
    >>> share([1, 3], draws="one")
    Traceback (most recent call last):
        ...
    pymc_dirdp.errors.ArgumentError: Expected draws to be an integer, got a str.
    """
    if isinstance(verb, type):
        setattr(verb, "__init__", user_facing(vars(verb)["__init__"]))  # noqa: B010
        return verb

    @functools.cache
    def names() -> list[str]:
        return list(dict.fromkeys(name for function in _overloads(verb) for name, _ in _arguments(function)))

    @functools.wraps(verb)
    def checked_call(*args: Any, **keywords: Any) -> Any:
        if keywords and not keywords.keys() <= set(names()):
            of_plan = getattr(verb, "options_of_plan", ())
            refuse_unknown(verb.__qualname__.removesuffix(".__init__"), keywords, names(), of_plan=of_plan)
        try:
            return verb(*args, **keywords)
        except DirdpError:
            raise
        except Exception:
            problem = first_misfit(verb, args, keywords)
            if problem is None:
                raise
        # Python's error may show the value, so it must not be the context of this one.
        raise ArgumentError(problem)

    return checked_call  # type: ignore[return-value]


def options_of_plan[Verb: Callable[..., Any]](*names: str) -> Callable[[Verb], Verb]:
    """Mark a function that accepts a plan with the options that only :func:`pymc_dirdp.plan` has.

    Apply it below :func:`user_facing`. The error for such a keyword shows the call of `plan`.
    """

    def mark(verb: Verb) -> Verb:
        vars(verb)["options_of_plan"] = names
        return verb

    return mark


def first_misfit(verb: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]) -> str | None:
    """A sentence about the first argument whose type differs from its annotation; None if all fit.

    The sentence has the type of the value and not the value, because somebody may pass data by mistake.
    """
    expected: dict[str, list[Any]] = {}
    for function in _overloads(verb):
        for name, annotation in _arguments(function):
            expected.setdefault(name, []).append(annotation)
    parameters = inspect.signature(verb).parameters
    for name, value in {**dict(zip(parameters, args, strict=False)), **keywords}.items():
        kinds = [_resolved(annotation, verb) for annotation in expected.get(name, [])]
        if kinds and not any(_fits(value, kind) for kind in kinds):
            words = _join_words(_describe(kinds[0]))
            is_collection = isinstance(value, Collection) and not isinstance(value, str | bytes)
            actual = f"{type_name(value)} with other entries" if is_collection and words else type_name(value)
            return f"Expected {name} to be {words}, got {actual}."
    return None


def _overloads(verb: Callable[..., Any]) -> list[Callable[..., Any]]:
    return [verb, *get_overloads(verb)]


def _arguments(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The names and annotations of a function's arguments, including those of `**options`."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            for options in get_args(parameter.annotation):
                yield from options.__annotations__.items()
        elif parameter.name not in ("self", "cls"):
            yield parameter.name, parameter.annotation


class _Names(dict[str, Any]):
    """Names in a quoted annotation. A class that is not imported has no instances, and is `Any` here."""

    def __missing__(self, name: str) -> Any:
        namespaces = (vars(module) for key, module in sorted(sys.modules.items()) if key.startswith("pymc_dirdp."))
        return next((names[name] for names in namespaces if name in names), getattr(builtins, name, Any))


def _resolved(annotation: Any, verb: Callable[..., Any]) -> Any:
    """The annotation, evaluated if it is a text."""
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, {"__builtins__": {}}, _Names(getattr(verb, "__globals__", {})))


def _fits(value: object, kind: Any) -> bool:
    """Whether a value fits an annotation; True if that cannot be checked."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is None or kind is types.NoneType:
        return value is None
    if kind == ArrayLike or origin is np.ndarray:
        return value is not None and numbers_or_none(value) is not None  # type: ignore[arg-type]
    if isinstance(kind, TypeAliasType | str):
        return _fits(value, _alias_value(kind)) if isinstance(kind, TypeAliasType) else kind in _kinds_of(value)
    if isinstance(origin, TypeAliasType):
        return _fits(value, origin.__value__[inner])
    if isinstance(kind, TypeVar):
        return kind.__bound__ is None or _fits(value, kind.__bound__)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in _parts(inner))
    if kind is int or kind is float:
        number = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
        if not isinstance(number, numbers.Real) or isinstance(number, bool | np.bool_):
            return False
        return kind is float or number % 1 == 0  # The checks accept an integer such as 60.0.
    if origin is type:
        return isinstance(value, type)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(entry, inner[1]) for key, entry in value.items()
        )
    if isinstance(origin, type) and issubclass(origin, Iterable):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            return False
        if not isinstance(value, Collection):
            return True  # Do not consume an iterator.
        if issubclass(origin, tuple) and inner[-1] is not Ellipsis:
            return len(value) == len(inner) and all(map(_fits, value, inner))
        return all(_fits(entry, inner[0]) for entry in value)
    try:
        return isinstance(value, kind if origin is None else origin)
    except TypeError:  # A protocol, or `Any`.
        return True


_DESCRIPTIONS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "True or False",
    None: "None",
    types.NoneType: "None",
    os.PathLike: "a path",
    np.random.SeedSequence: "a SeedSequence",
}


def _alias_value(alias: TypeAliasType) -> Any:
    """The value of an alias; or its name, if it is a class of a module that is not imported."""
    try:
        return alias.__value__
    except NameError:
        return alias.__name__


def _kinds_of(value: object) -> set[str]:
    return {kind.__name__ for kind in type(value).__mro__}


def _parts(inner: tuple[Any, ...]) -> list[Any]:
    """The members of a union. Before NumPy 2.4 `ArrayLike` is a union itself, and its members are among the others."""
    arrays = get_args(ArrayLike)
    if arrays and set(arrays) <= set(inner):
        return [ArrayLike, *(part for part in inner if part not in arrays)]
    return list(inner)


def _describe(kind: Any) -> list[str]:
    """The values that an annotation allows, in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind == ArrayLike or origin is np.ndarray:
        return ["an array of numbers"]
    if isinstance(kind, TypeAliasType):
        return _describe(_alias_value(kind))
    if isinstance(origin, TypeAliasType):
        return _describe(origin.__value__[inner])
    if isinstance(kind, TypeVar):
        return _describe(kind.__bound__)
    if origin in (typing.Union, types.UnionType):
        return list(dict.fromkeys(word for part in _parts(inner) for word in _describe(part)))
    if origin is Literal:
        return [repr(word) for word in inner]
    if origin is type:
        return ["a class"]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [f"a dict whose values are each {_join_words(_describe(inner[1]))}"]
    if isinstance(origin, type) and issubclass(origin, Iterable):
        if issubclass(origin, tuple) and inner[-1] is not Ellipsis:
            return [f"a tuple of {len(inner)} whose first entry is {_join_words(_describe(inner[0]))}"]
        return [f"a list whose entries are each {_join_words(_describe(inner[0]))}"]
    if (bare_type := origin or kind) in _DESCRIPTIONS:
        return [_DESCRIPTIONS[bare_type]]
    if origin is Callable:
        return ["a function"]
    name = getattr(bare_type, "__name__", str(bare_type))
    return [f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"]


def _join_words(words: list[str]) -> str:
    """Words joined for a sentence, with None at the end."""
    ordered = [word for word in words if word != "None"] + ["None"] * ("None" in words)
    return " or ".join(filter(None, [", ".join(ordered[:-1]), ordered[-1]]))
