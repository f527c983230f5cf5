"""From records to counts over a declared domain: the user declares the cells, and the data never decide them."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from numbers import Number
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.counting.columns import (
    NOTHING,
    column_of,
    exact_below,
    index_of,
    of_data_frame,
    scalar,
    values_of,
    without_dims,
)
from pymc_dirdp.errors import ArgumentError, CategoriesFromDataWarning, DataError, type_name

__all__ = ["Categories", "Frame", "checked_categories", "count", "encode", "row_counts", "table_shape", "tabulate"]

Counts = NDArray[np.int64]
Categories = Mapping[str, Sequence[Any]]

# A table of doubles of this size takes 400 MB, and the release several of them.
_MOST_CELLS = 50_000_000


class Frame(Protocol):
    """Columns by name: a data frame of pandas or polars, a table of Arrow, an xarray Dataset, a mapping of arrays."""

    def __getitem__(self, name: str, /) -> Any: ...


def count(frame: Frame, variables: Sequence[str], *, categories: Categories) -> Counts:
    """How many records fall into each cell of the declared domain. The result is **secret**.

    Parameters
    ----------
    frame : data frame or mapping of str to one-dimensional array
        The records; one entry of each column is one record.
    variables : sequence of str
        The columns to count, each once, in the order of the result's axes.
    categories : mapping of str to sequence
        All values that each variable could take, in order: texts, numbers or members of an Enum. They are public, so
        they must not be read off the data. As in Python, 1, 1.0 and True are one label; "1" is another. A missing value
        is no label: where it is a category of its own, write one in its place, such as "unknown".

    Returns
    -------
    counts : ndarray of int64, shape ``tuple(len(categories[v]) for v in variables)``
        Cells without records hold a 0.

    Warns
    -----
    CategoriesFromDataWarning
        If categories are an object of pandas, polars or Arrow, which may have been made from data.

    Raises
    ------
    ArgumentError
        If a variable has no column or no categories or is named twice, or the domain is too large, or the columns have
        different indexes of pandas or xarray.
    DataError
        If a column holds a value that was not declared, or a missing one (None, NaN, NA, NaT, masked), or the columns
        are not of one length. The message names the column, and no value, position or number of records.

    Notes
    -----
    Values are compared, whatever the engine: dictionaries and categoricals of pandas, polars and Arrow are decoded.
    Dates, durations and intervals are no labels, because engines differ in what they make of them; nor is a
    floating-point number that may have been rounded, where labels are whole numbers of that size.

    Examples
    --------
    >>> records = {"eye": ["blue", "green", "blue"], "left": [True, False, False]}
    >>> count(records, ["eye", "left"], categories={"eye": ["blue", "green", "grey"], "left": [False, True]})
    array([[1, 1],
           [1, 0],
           [0, 0]])
    """
    if isinstance(variables, str) or not (names := list(variables)):
        raise ArgumentError("Expected variables to be a list of at least one column name.")
    if len(set(names)) < len(names):
        raise ArgumentError(f"Expected each variable once, got {', '.join(map(repr, names))}.")
    labels = checked_categories(names, categories)
    shape = table_shape(names, labels)
    columns = encode(frame, names, labels)
    return tabulate([columns[name] for name in names], shape)


def table_shape(names: Sequence[str], labels: Categories) -> tuple[int, ...]:
    """The shape of a table with these axes, or an error if it is too large to be released."""
    shape = tuple(len(labels[name]) for name in names)
    if math.prod(shape) > _MOST_CELLS:
        raise ArgumentError(
            f"The table of {', '.join(names)} has {math.prod(shape)} cells, more than {_MOST_CELLS}. "
            "Count fewer variables together, or merge categories."
        )
    return shape


def tabulate(columns: Sequence[Counts], shape: tuple[int, ...], times: Counts | None = None) -> Counts:
    """How many records have each combination of codes, where `times` says how many each row stands for. **Secret**."""
    cells = np.ravel_multi_index(tuple(columns), shape)
    # With weights NumPy adds in doubles, which are exact for as many records as `row_counts` allows.
    return np.bincount(cells, times, minlength=math.prod(shape)).astype(np.int64).reshape(shape)


def row_counts(frame: Frame, name: str) -> Counts:
    """How many records each row of a frame stands for, according to a column. **Secret**.

    Raises
    ------
    DataError
        If an entry is no whole number from 0 on, or they add up to more than 2**53. The message holds no number.
    """
    values = values_of(column_of(frame, name), name)
    whole = all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_RECORDS and value % 1 == 0
        for value in values
    )
    if not whole or sum(map(int, values)) > MOST_RECORDS:
        raise DataError(
            f"The column {name!r} holds something other than whole numbers from 0 on, or more records than 2**53."
        )
    return np.array(values, dtype=np.int64)


def checked_categories(names: Sequence[str], categories: Categories) -> dict[str, list[Any]]:
    """The declared labels of these variables as plain Python values, or an error that says what is wrong with them."""
    if not isinstance(categories, Mapping):
        raise ArgumentError(f"Expected categories to map names to labels, got {type_name(categories)}.")
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
    if any(map(_is_missing, labels)):
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


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except (TypeError, ArithmeticError):
        # The NA of pandas, and a signalling NaN, do not say whether they equal themselves.
        return True
    except ValueError:
        # This is an array, which is another mistake.
        return False


def encode(frame: Frame, names: Sequence[str], labels: Categories) -> dict[str, Counts]:
    """Each column as the positions of its values among the labels, all of shape ``(n,)``. **Secret**."""
    columns = {name: column_of(frame, name) for name in names}
    _refuse_other_indexes(columns)
    codes = {name: _codes(column, name, labels[name]) for name, column in columns.items()}
    if len(set(map(len, codes.values()))) > 1:
        raise DataError(f"The columns {', '.join(names)} are not of one length.")
    return codes


def _refuse_other_indexes(columns: Mapping[str, Any]) -> None:
    """Refuse columns with different indexes: pandas and xarray match by index, and this library by position."""
    indexed = [(name, index) for name, column in columns.items() if (index := index_of(column)) is not None]
    for name, index in indexed[1:]:
        if not index.equals(indexed[0][1]):
            raise ArgumentError(
                f"The columns {indexed[0][0]!r} and {name!r} have different indexes, and records are matched by "
                "position. Align them, as in y.loc[X.index], or take the indexes away if they are in the same order: "
                "reset_index(drop=True) in pandas, drop_vars in xarray."
            )


def _codes(column: Any, name: str, labels: Sequence[Any]) -> Counts:
    values = values_of(column, name)
    exact = exact_below(column)
    if any(isinstance(label, int) and abs(label) >= exact for label in labels):
        # A floating-point number of this size may have been another whole number before it was rounded.
        values = [NOTHING if isinstance(value, float) and abs(value) >= exact else value for value in values]
    position = {label: i for i, label in enumerate(labels)}
    try:
        # Missing values are no labels, so the same look-up finds them.
        codes = np.fromiter((position.get(value, -1) for value in values), dtype=np.int64, count=len(values))
    except Exception:
        # A value that has no hash is no label. The error of an unusual value may hold the value.
        codes = np.array([-1])
    if np.any(codes < 0):
        raise DataError(
            f"The column {name!r} holds missing values or values that were not declared. Drop those records, or "
            "declare a category for them; do not read the categories off the data."
        )
    return codes
