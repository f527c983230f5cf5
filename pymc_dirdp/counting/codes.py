"""Declared categories, and the codes of labels."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import repeat
from numbers import Number
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.counting.columns import (
    NOTHING,
    column_of,
    dictionary_of,
    exact_below,
    index_of,
    is_missing,
    of_data_frame,
    plain_array,
    refuse_lazy,
    scalar,
    values_of,
    without_dims,
)
from pymc_dirdp.errors import ArgumentError, CategoriesFromDataWarning, DataError, DirdpError, type_name

__all__ = [
    "Categories",
    "Frame",
    "Otherwise",
    "checked_categories",
    "checked_otherwise",
    "checked_variables",
    "encode",
    "refuse_other_indexes",
]

# The declared labels of variables: public, checked, and as plain Python values.


Categories = Mapping[str, Sequence[Any]]
Otherwise = Mapping[str, Any]


def checked_variables(variables: Sequence[str]) -> list[str]:
    """The names of the columns of a table, at least one and each once."""
    if isinstance(variables, str) or not (names := list(variables)):
        raise ArgumentError("Expected variables to be a list of at least one column name, such as ['hair'].")
    if len(set(names)) < len(names):
        raise ArgumentError(f"Expected each variable once, got {', '.join(map(repr, names))}.")
    return names


def checked_categories(names: Sequence[str], categories: Categories) -> dict[str, list[Any]]:
    """The declared labels of these variables as plain Python values, or an error that says what is wrong with them."""
    if not isinstance(categories, Mapping):
        raise ArgumentError(
            f"Expected categories to map each variable to its labels, as in {{{names[0]!r}: [...]}}, got "
            f"{type_name(categories)}."
        )
    checked = {}
    for name in names:
        if name not in categories:
            raise ArgumentError(
                f"Expected categories[{name!r}]: declare all values that {name!r} could take, in order."
            )
        checked[name] = _checked_labels(name, categories[name])
    _warn_of_data(names, categories)
    return checked


def _warn_of_data(names: Sequence[str], categories: Categories) -> None:
    """Warn once if categories are objects of data frames, because those may hold values of the data."""
    suspect = [name for name in names if of_data_frame(categories[name])]
    if suspect:
        warnings.warn(
            f"categories[{suspect[0]!r}] is {type_name(categories[suspect[0]])}"
            + (f", as are {len(suspect) - 1} more" if len(suspect) > 1 else "")
            + ". Which values are in the data is secret, so categories must be declared without looking at them: "
            "write them as a list.",
            CategoriesFromDataWarning,
            skip_file_prefixes=(str(Path(__file__).parents[1]),),
        )


def _checked_labels(name: str, given: Any) -> list[Any]:
    expected = f"Expected categories[{name!r}] to be a sequence of labels"
    if isinstance(given, str | bytes):
        raise ArgumentError(f"{expected}, got one text.")
    if isinstance(given, set | frozenset) or not isinstance(given, Iterable):
        # The user does not decide the order of a set, and it may differ from one process to the next.
        raise ArgumentError(f"{expected} in order, got {type_name(given)}.")
    if hasattr(given, "columns") or hasattr(given, "column_names"):
        # A data frame of pandas iterates over its column names, which would be taken for labels.
        raise ArgumentError(f"{expected}, got {type_name(given)}. Write the labels as a list.")
    written = list(without_dims(given))
    labels = [_plain_label(label) for label in written]
    if not labels:
        raise ArgumentError(f"Expected categories[{name!r}] to hold at least one label, got none.")
    if any(map(is_missing, labels)):
        raise ArgumentError(f"{expected}, none of them a missing value; write one, such as 'unknown', in its place.")
    for label, as_written in zip(labels, written, strict=True):
        if not isinstance(label, str | bytes | Number | Enum):
            # Engines change dates and intervals: some count nanoseconds, and others truncate them.
            raise ArgumentError(
                f"{expected} that are texts or numbers, not lists or dates; one is {type_name(as_written)}. "
                "Write dates and intervals as texts, there and in the records."
            )
    if any("\0" in label if isinstance(label, str) else isinstance(label, bytes) and 0 in label for label in labels):
        raise ArgumentError(f"{expected} without the character NUL, which NumPy leaves out at the end of a text.")
    if len(set(labels)) < len(labels):
        raise ArgumentError(f"Expected the labels of categories[{name!r}] to differ; 1, 1.0 and True are the same.")
    return labels


def _plain_label(label: Any) -> Any:
    """A label as a Python value: for a member of StrEnum or IntEnum, its text or number."""
    plain = scalar(label)
    return plain.value if isinstance(plain, Enum) and isinstance(plain, str | Number) else plain


def checked_otherwise(otherwise: Otherwise | None, labels: Mapping[str, list[Any]]) -> dict[str, int]:
    """The position of the label that stands for missing and undeclared values, by variable."""
    if otherwise is None:
        return {}
    if not isinstance(otherwise, Mapping):
        raise ArgumentError(f"Expected otherwise to map names to labels, got {type_name(otherwise)}.")
    positions = {}
    for name, given in otherwise.items():
        if name not in labels:
            raise ArgumentError(f"otherwise has {name!r}, which is none of the variables.")
        label = _plain_label(given)
        if label not in labels[name]:
            raise ArgumentError(
                f"Add {label!r} to categories[{name!r}]: otherwise= takes one of the labels that are declared."
            )
        positions[name] = labels[name].index(label)
    return positions


# Columns as the positions of their values among the declared labels. **Secret**.


class Frame(Protocol):
    """Columns by name: a data frame of pandas or polars, a table of Arrow, an xarray Dataset, a mapping of arrays."""

    def __getitem__(self, name: str, /) -> Any: ...


def encode(
    frame: Frame,
    names: Sequence[str],
    labels: Categories,
    otherwise: Mapping[str, int] | None = None,
    *,
    beside: str | None = None,
) -> dict[str, Integers]:
    """Each column as the positions of its values among the labels, all of shape ``(n,)``. **Secret**.

    A position in `otherwise` stands for values of this variable that are missing or not declared. The index of the
    column `beside` has to be that of the others.
    """
    columns = {name: column_of(frame, name, among=names) for name in names}
    refuse_other_indexes(columns if beside is None else columns | {beside: column_of(frame, beside)})
    codes = {name: _codes(column, name, labels[name], (otherwise or {}).get(name)) for name, column in columns.items()}
    if len(set(map(len, codes.values()))) > 1:
        raise DataError(f"The columns {', '.join(names)} have different lengths.")
    return codes


def refuse_other_indexes(columns: Mapping[str, Any]) -> None:
    """Refuse columns with different indexes: pandas and xarray match by index, and this library by position."""
    indexed = [(name, index) for name, column in columns.items() if (index := index_of(column)) is not None]
    for name, index in indexed[1:]:
        if not index.equals(indexed[0][1]):
            raise ArgumentError(
                f"The columns {indexed[0][0]!r} and {name!r} have different indexes, and records are matched by "
                "position. Align them, as in y.loc[X.index], or take the indexes away if they are in the same order: "
                "reset_index(drop=True) in pandas, drop_vars in xarray."
            )


def _codes(column: Any, name: str, labels: Sequence[Any], otherwise: int | None) -> Integers:
    try:
        codes = _positions(column, name, labels)
    except DirdpError:
        raise
    except Exception:
        # A value that has no hash is no label. The error of an unusual value may hold the value.
        codes = None
    if codes is not None and otherwise is not None:
        codes[codes < 0] = otherwise
    if codes is None or np.any(codes < 0):
        raise DataError(
            f"The column {name!r} holds missing values, or values that categories[{name!r}] does not declare, perhaps "
            "by a capital letter or a space. Correct them; or declare a label for all of them, as in "
            f"otherwise={{{name!r}: 'unknown'}}. Do not take the categories from the data."
        )
    return codes


def _positions(column: Any, name: str, labels: Sequence[Any]) -> Integers:
    """The position of each value among the labels, -1 for what is none of them. Missing values are no labels."""
    refuse_lazy(column)
    exact = exact_below(column)
    # A floating-point number of this size may have been another integer before it was rounded.
    rounded = any(isinstance(label, int) and abs(label) >= exact for label in labels)
    if (array := plain_array(column)) is not None:
        wide = rounded and array.dtype.kind == "f"
        return _looked_up(array, [NOTHING if wide and _at_least(label, exact) else label for label in labels])
    dictionary = dictionary_of(column, name)
    values = values_of(column, name) if dictionary is None else dictionary[1]
    if rounded:
        values = [NOTHING if isinstance(value, float) and abs(value) >= exact else value for value in values]
    position = {label: i for i, label in enumerate(labels)}
    found = np.fromiter(map(position.get, values, repeat(-1)), dtype=np.int64, count=len(values))
    return found if dictionary is None else np.append(found, -1)[dictionary[0]]


def _at_least(label: Any, bound: int) -> bool:
    return isinstance(label, int | float) and abs(label) >= bound


def _looked_up(array: NDArray[Any], labels: Sequence[Any]) -> Integers:
    """The positions of numbers or texts among the labels, by comparing arrays."""
    typed = [_as_dtype(label, array.dtype) for label in labels]
    places = [i for i, label in enumerate(typed) if label is not None]
    if not places:
        return np.full(len(array), -1, dtype=np.int64)
    keys = np.array([typed[i] for i in places], dtype=array.dtype)
    order = np.argsort(keys)
    keys, positions = keys[order], np.array(places, dtype=np.int64)[order]
    found = np.searchsorted(keys, array)
    found[found == len(keys)] = 0
    return np.where(keys[found] == array, positions[found], -1)


def _as_dtype(label: Any, dtype: np.dtype[Any]) -> Any:
    """The value of this type that equals the label in Python; None if there is none."""
    if dtype.kind == "U":
        return label if isinstance(label, str) and len(label) <= dtype.itemsize // 4 else None
    value = None
    with suppress(Exception), np.errstate(all="ignore"):
        value = dtype.type(label)
    return value if value is not None and value.item() == label else None
