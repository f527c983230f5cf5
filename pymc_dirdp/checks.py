"""Checks of public arguments. Each takes the argument by keyword, so that the error can name it.

>>> positive(r=-1)
Traceback (most recent call last):
    ...
pymc_dirdp.errors.ArgumentError: Expected r > 0 and finite, got r=-1.
"""

import difflib
import math
import numbers
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError, KeywordError, quote, type_name

MAX_RECORDS = 2**53
"""Above it a double cannot represent every integer, so sums would be rounded."""


def _real(requirement: str, argument: dict[str, object]) -> tuple[str, float]:
    ((name, value),) = argument.items()
    is_scalar = isinstance(value, numbers.Real) or (isinstance(value, np.ndarray) and value.ndim == 0)
    if not is_scalar or isinstance(value, (bool, np.bool_)):
        # The error shows the type and not the value, because somebody may pass data here by mistake.
        raise ArgumentError(f"Expected {name} {requirement}, got {type_name(value)}.")
    try:
        return name, float(value)  # type: ignore[arg-type]
    except OverflowError:
        # This is an integer or a fraction beyond the largest double.
        return name, math.inf if value > 0 else -math.inf  # type: ignore[operator]


def positive(**argument: object) -> float:
    """A finite real number above 0."""
    name, value = _real("> 0 and finite", argument)
    if not (math.isfinite(value) and value > 0):
        raise ArgumentError(f"Expected {name} > 0 and finite, got {name}={value:g}.")
    return value


def at_least(bound: float, *, finite: bool = True, **argument: object) -> float:
    """A real number that is not below `bound`."""
    requirement = f">= {bound:g}" + (" and finite" if finite else "")
    name, value = _real(requirement, argument)
    if not value >= bound or (finite and not math.isfinite(value)):
        raise ArgumentError(f"Expected {name} {requirement}, got {name}={value:g}.")
    return value


def open_unit_interval(**argument: object) -> float:
    """A real number strictly between 0 and 1."""
    name, value = _real("in (0, 1)", argument)
    if not 0 < value < 1:
        raise ArgumentError(f"Expected {name} in (0, 1), got {name}={value:g}.")
    return value


def within(low: float, high: float, **argument: ArrayLike) -> None:
    """Refuse numbers outside the bounds of computations in doubles.

    Beyond such bounds products of parameters overflow or underflow, and integers are rounded.
    """
    ((name, value),) = argument.items()
    if not np.all((np.asarray(value) >= low) & (np.asarray(value) <= high)):
        raise ArgumentError(
            f"Expected {name} between {low:g} and {high:g}, where doubles can represent its privacy loss. Rescale it."
        )


def integer(bound: int, **argument: object) -> int:
    """An integer that is not below `bound`."""
    name, value = _real(f"to be an integer >= {bound}", argument)
    if not (value >= bound and math.isfinite(value) and value == math.floor(value)):
        raise ArgumentError(f"Expected {name} to be an integer >= {bound}, got {name}={value:g}.")
    return int(argument[name])  # type: ignore[call-overload,no-any-return]


def one_of(allowed: Iterable[str], **argument: object) -> str:
    """A name from a list. The error suggests the nearest name."""
    ((name, value),) = argument.items()
    choices = list(allowed)
    choices_text = ", ".join(map(repr, choices))
    if not isinstance(value, str):
        raise ArgumentError(f"Expected {name} to be one of {choices_text}, got {type_name(value)}.")
    if value in choices:
        return value
    raise ArgumentError(
        f"Unknown {name} {quote(value)}; expected one of {choices_text}.{_hint(value, choices, cutoff=0.4)}"
    )


def _hint(name: str, choices: Iterable[str], *, cutoff: float) -> str:
    matches = difflib.get_close_matches(name.lower(), list(choices), n=1, cutoff=cutoff)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def numbers_or_none(value: ArrayLike) -> Array | None:
    """A copy of the value as an array of doubles, or None.

    NumPy's own error shows the value and would become the context of a later error, so it is caught here.
    """
    try:
        array = np.asarray(value, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        return None
    # NumPy does not convert doubles, so the array may share the memory of the value.
    return array if isinstance(value, np.ndarray) and value.dtype != np.float64 else array.copy()


def positive_array(*, min_entries: int = 2, **argument: ArrayLike) -> Array:
    """A read-only copy of an array of finite positive numbers with at least `min_entries` in its last axis."""
    ((name, value),) = argument.items()
    array = numbers_or_none(value)
    if array is None:
        raise ArgumentError(f"Expected {name} to be an array of numbers, got {type_name(value)}.")
    if array.ndim == 0 or array.shape[-1] < min_entries:
        raise ArgumentError(
            f"Expected {name} to have at least two categories in its last axis, got shape {array.shape}. "
            "With one category there is nothing to estimate; write a Beta prior as the pair [alpha, beta]."
        )
    if array.size == 0:
        raise ArgumentError(f"Expected {name} to hold at least one row, got shape {array.shape}.")
    if not np.all(np.isfinite(array) & (array > 0)):
        raise ArgumentError(f"Expected every entry of {name} to be > 0 and finite.")
    array.flags.writeable = False
    return array


def one_line(**argument: object) -> str:
    """Accept a text of one line, without control characters and invisible characters."""
    ((name, value),) = argument.items()
    if not isinstance(value, str):
        raise ArgumentError(f"Expected {name} to be a text, got {type_name(value)}.")
    if not value.strip():
        raise ArgumentError(f"Expected {name} to be a text that is not empty.")
    if not value.isprintable():
        raise ArgumentError(
            f"Expected {name} to be a line of printable text, got control characters or invisible characters: "
            f"{quote(value)}. Rename it, or leave them out."
        )
    return value


def file_path(**argument: object) -> Path:
    """The path of a file. Numbers, which Python would open, are refused."""
    ((name, value),) = argument.items()
    if not isinstance(value, str | os.PathLike):
        raise ArgumentError(f"Expected {name} to be a path, got {type_name(value)}.")
    if "\0" in (text := os.fspath(value)):
        raise ArgumentError(f"Expected {name} to be a path without a null character.")
    return Path(text)


def list_of_names(**argument: object) -> tuple[Any, ...]:
    """Accept a list of names, or of groups of names, but not a text."""
    ((name, value),) = argument.items()
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ArgumentError(f"Expected {name} to be a list of names: write ['name'].")
    names = tuple(value)
    for entry in names:
        if entry is None or isinstance(entry, numbers.Number | np.bool_):
            raise ArgumentError(f"Expected {name} to be a list of names, got {type_name(entry)} in it.")
    return names


def groups_of_names(**argument: object) -> tuple[tuple[Any, ...], ...]:
    """Accept a list of lists of names."""
    ((name, _),) = argument.items()
    return tuple(list_of_names(**{f"each group of {name}": group}) for group in list_of_names(**argument))


def mapping_of_names(**argument: object) -> dict[str, Any]:
    """Accept a dict whose keys are names, or None for an empty one."""
    ((name, value),) = argument.items()
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ArgumentError(f"Expected {name} to map names to values, as {{'name': ...}}, got {type_name(value)}.")
    return dict(value)


def refuse_unknown(
    function: str, keywords: Iterable[str], names: Iterable[str], *, of_plan: Collection[str] = ()
) -> None:
    """Refuse keywords that a function does not have. The error suggests the nearest keyword, or lists all.

    `of_plan` has the options of :func:`pymc_dirdp.plan`, if the function accepts a plan.
    """
    names = list(names)
    for name in keywords:
        if name in of_plan:
            raise KeywordError(
                f"{function}() has no {name}=, which is an option of a plan. Call plan(..., {name}=...), and pass the "
                f"plan to {function}() instead of the guarantee."
            )
        if name not in names:
            hint = _hint(name, names, cutoff=0.6) or f" It has {', '.join(names) or 'none'}."
            raise KeywordError(f"{function}() got an unexpected keyword argument {quote(name)}.{hint}")
