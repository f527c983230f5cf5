"""From records to counts over a declared domain: what a cell is, the user says, never the data."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError, DataError

__all__ = ["Categories", "Frame", "checked_categories", "coded", "count", "table_shape", "tabulate"]

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
        Columns to count, each once, in the order of the result's axes.
    categories : mapping of str to sequence
        All values that each variable could take, in order; at least two. They are public, so they must not be read off
        the data. As in Python, 1, 1.0 and True are one label; "1" is another. A missing value is no label: where it
        is a category of its own, write one in its place, such as "unknown".

    Returns
    -------
    counts : ndarray of int64, shape ``tuple(len(categories[v]) for v in variables)``
        With a 0 for cells that no record is in.

    Raises
    ------
    ArgumentError
        If a variable has no column or no categories or is named twice, or the domain is too large.
    DataError
        If a column holds a value that was not declared, or a missing one (None, NaN, NA, NaT, masked), or the columns
        are not of one length. The message names the column, and no value, position or number of records.

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
    columns = coded(frame, names, labels)
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


def tabulate(columns: Sequence[Counts], shape: tuple[int, ...]) -> Counts:
    """How many records have each combination of codes. **Secret**."""
    cells = np.ravel_multi_index(tuple(columns), shape)
    return np.bincount(cells, minlength=math.prod(shape)).astype(np.int64).reshape(shape)


def checked_categories(names: Sequence[str], categories: Categories) -> dict[str, list[Any]]:
    """The declared labels of these variables as plain Python values, or an error that says what is wrong with them."""
    if not isinstance(categories, Mapping):
        raise ArgumentError(f"Expected categories to map names to labels, got a {type(categories).__name__}.")
    checked = {}
    for name in names:
        if name not in categories:
            raise ArgumentError(
                f"Expected categories[{name!r}]: declare all values that {name!r} could take, in order."
            )
        checked[name] = _checked_labels(name, categories[name])
    return checked


def _checked_labels(name: str, given: Any) -> list[Any]:
    expected = f"Expected categories[{name!r}] to be a sequence of labels"
    if isinstance(given, str | bytes):
        raise ArgumentError(f"{expected}, got one text.")
    if isinstance(given, set | frozenset) or not isinstance(given, Iterable):
        # The order of a set is not the user's, and that of texts differs from one process to the next.
        raise ArgumentError(f"{expected} in order, got a {type(given).__name__}.")
    labels = [label.item() if isinstance(label, np.generic) else label for label in given]
    if len(labels) < 2:
        raise ArgumentError(f"Expected categories[{name!r}] to hold at least two labels, got {len(labels)}.")
    try:
        distinct = len(set(labels))
    except TypeError:
        raise ArgumentError(f"{expected} that are texts or numbers, not lists or arrays.") from None
    if any(map(_is_missing, labels)):
        raise ArgumentError(f"{expected}, none of them a missing value; write one, such as 'unknown', in its place.")
    if distinct < len(labels):
        raise ArgumentError(f"Expected the labels of categories[{name!r}] to differ; 1, 1.0 and True are the same.")
    return labels


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:
        # The NA of pandas: whether it equals itself is neither true nor false.
        return True


def coded(frame: Frame, names: Sequence[str], labels: Categories) -> dict[str, Counts]:
    """Each column as the positions of its values among the labels: shape ``(n,)``, of one length. **Secret**."""
    columns = {name: _codes(frame, name, labels[name]) for name in names}
    if len({len(column) for column in columns.values()}) > 1:
        raise DataError(f"The columns {', '.join(names)} are not of one length.")
    return columns


def _codes(frame: Frame, name: str, labels: Sequence[Any]) -> Counts:
    try:
        column = frame[name]
    except Exception:
        # Outside of the handler: what a frame says of a missing column may hold its data.
        column = None
    if column is None:
        raise ArgumentError(f"The records have no column {name!r}.")
    values = _values(column)
    if values is None or values.ndim != 1:
        raise DataError(f"The column {name!r} is not one-dimensional.")
    position = {label: i for i, label in enumerate(labels)}
    try:
        # Missing values are no labels, so they are found by the same look-up; the masked ones are None in the list.
        found = np.fromiter((position.get(value, -1) for value in values.tolist()), dtype=np.int64, count=len(values))
    except Exception:
        # A value that has no hash is no label. What an unusual one says of itself may hold it.
        found = np.array([-1])
    if np.any(found < 0):
        raise DataError(
            f"The column {name!r} holds missing values or values that were not declared. Drop those records, or "
            "declare a category for them; do not read the categories off the data."
        )
    return found


def _values(column: Any) -> NDArray[Any] | None:
    """The column as an array that keeps masks and types, or None if it is none."""
    try:
        if hasattr(column, "__array__"):
            values: NDArray[Any] = np.asanyarray(column)
            return values
        # Without dtype=object NumPy makes one text "1" of 1 and "1", and "nan" of a missing value among texts.
        return np.array(column, dtype=object)
    except Exception:
        return None
