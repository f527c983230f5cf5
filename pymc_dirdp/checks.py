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
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError, DataError, KeywordError, missing_values, quote, type_name

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


def checked_counts(
    counts: ArrayLike, shape: tuple[int, ...], min_count: float = 0.0, n_records: int | None = None
) -> Array:
    """A copy of the counts as floats. Errors never contain counts.

    Parameters
    ----------
    counts : array_like of integers, shape `shape`
        The secret counts, each at most 2**53.
    shape : tuple of int
        The public shape of the table.
    min_count : float
        The public lower bound on the records of each cell.
    n_records : int or None
        The public number of records of the guarantee.

    Returns
    -------
    counts : array of float, shape `shape`
    """
    array = numbers_or_none(counts)
    if array is None:
        raise DataError("Expected counts to be an array of integers.")
    if array.shape != shape:
        raise DataError(f"Expected counts of shape {shape}, the shape of alpha, got another shape.")
    # Both propagate NaN.
    smallest, largest = array.min(initial=0.0), array.max(initial=0.0)
    if not (math.isfinite(smallest) and math.isfinite(largest)):
        raise DataError(
            f"Some counts are missing or not finite. Write 0 for a cell without records. {missing_values()}"
        )
    if smallest < 0:
        raise DataError("Some counts are negative.")
    is_integer = isinstance(counts, np.ndarray) and counts.dtype.kind in "biu"
    if not is_integer and np.any(array != np.floor(array)):
        raise DataError(
            "Some counts are not integers. Pass unweighted counts of records; survey weights belong to the released "
            "shares."
        )
    if largest > MAX_RECORDS:
        raise DataError("Some counts are above 2**53, so a double cannot represent them exactly.")
    if min_count and np.any(array < min_count):
        raise DataError(
            "A cell has fewer records than min_count, so the guarantee would be false. Lower min_count, which must "
            "hold for every possible data set."
        )
    if n_records is not None and _exact_sum(array) != n_records:
        raise DataError(
            "The counts do not add up to n_records, so the guarantee would be false. Every possible data set must have "
            "n_records records."
        )
    return array


def _exact_sum(integers: Array) -> int:
    """The sum of integers up to 2**53, fewer than 2**36 of them, without rounding."""
    numbers = integers.astype(np.int64)
    high: int = (numbers >> 26).sum(dtype=np.int64).item()
    low: int = (numbers & (2**26 - 1)).sum(dtype=np.int64).item()
    return (high << 26) + low


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


# Characters that isprintable() accepts, but that are invisible or look like a space.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def identifier(value: object) -> str | None:
    """The normal form of the identifier of a person; None if it is not an identifier.

    Two texts have the same normal form if they differ only in letter case, the Unicode form of characters (NFKC), the
    script of digits, spaces, or zeros before an integer. An integer has the form of its decimal text. Empty texts and
    texts with invisible characters, such as a zero-width space, are not identifiers. Similar letters of different
    scripts differ.

    It is unknown whether "05" and "5" are one person. If they are, two identifiers would give this person twice the
    records. If they are not, one identifier would let records of one person replace those of the other when that one is
    removed, which add-remove does not cover. So `count` refuses a column that has both. A bandit, whose guarantee is
    for replaced rewards, treats them as one person.

    Examples
    --------
    >>> [identifier(written) for written in (5, "05 ", "\uff15", "Ann", "A\u200bnn")]
    ['5', '5', '5', 'ann', None]
    """
    if not isinstance(value, str | int) or isinstance(value, bool):
        return None
    try:
        spelling = str(value)
    except ValueError:  # The integer has thousands of digits.
        return None
    text = unicodedata.normalize("NFKC", spelling).strip()
    if not text.isprintable() or _INVISIBLE.search(text):
        return None
    # A letter with two marks may need folding and composition twice.
    for _ in range(2):
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", text).casefold())
    if not text.isascii():
        text = "".join(str(unicodedata.decimal(letter, letter)) for letter in text)
    text = " ".join(text.split())
    return (text.lstrip("0") or "0") if text.isdecimal() else text or None


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
