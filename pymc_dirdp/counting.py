"""From records to counts over a declared domain: what a cell is, the user says, never the data."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError, DataError

__all__ = ["Categories", "Frame", "checked_categories", "codes", "count"]

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
        Columns to count, in the order of the result's axes.
    categories : mapping of str to sequence
        All values that each variable could take, in order; at least two. They are public, so they must not be read off
        the data. As in Python, 1, 1.0 and True are one label; "1" is another.

    Returns
    -------
    counts : ndarray of int64, shape ``tuple(len(categories[v]) for v in variables)``
        With a 0 for cells that no record is in.

    Raises
    ------
    ArgumentError
        If a variable has no column or no categories, or the domain is too large.
    DataError
        If a column holds a value that was not declared, or a missing one, or is of another length. The message names
        the column and never a value.

    Examples
    --------
    >>> records = {"eye": ["blue", "green", "blue"], "left": [True, False, False]}
    >>> count(records, ["eye", "left"], categories={"eye": ["blue", "green", "grey"], "left": [False, True]})
    array([[1, 1],
           [1, 0],
           [0, 0]])
    """
    if isinstance(variables, str) or len(variables) == 0:
        raise ArgumentError("Expected variables to be a list of at least one column name.")
    labels = checked_categories(variables, categories)
    shape = tuple(len(labels[name]) for name in variables)
    if math.prod(shape) > _MOST_CELLS:
        raise ArgumentError(
            f"The table of {', '.join(variables)} has {math.prod(shape)} cells, more than {_MOST_CELLS}. "
            "Count fewer variables together, or merge categories."
        )
    columns = [codes(frame, name, labels[name]) for name in variables]
    if len({len(column) for column in columns}) > 1:
        raise DataError(f"The columns {', '.join(variables)} are not of one length.")
    cells = np.ravel_multi_index(tuple(columns), shape)
    return np.bincount(cells, minlength=math.prod(shape)).astype(np.int64).reshape(shape)


def checked_categories(variables: Sequence[str], categories: Categories) -> dict[str, list[Any]]:
    """The declared labels of these variables as plain Python values, or an error that says what is wrong with them."""
    checked = {}
    for name in variables:
        if name not in categories:
            raise ArgumentError(
                f"Expected categories[{name!r}]: declare all values that {name!r} could take, in order."
            )
        if isinstance(categories[name], str):
            raise ArgumentError(f"Expected categories[{name!r}] to be a sequence of labels, got one text.")
        labels = [label.item() if isinstance(label, np.generic) else label for label in categories[name]]
        if len(labels) < 2:
            raise ArgumentError(f"Expected categories[{name!r}] to hold at least two labels, got {len(labels)}.")
        if len(set(labels)) < len(labels):
            raise ArgumentError(f"Expected the labels of categories[{name!r}] to differ; 1, 1.0 and True are the same.")
        checked[name] = labels
    return checked


def codes(frame: Frame, name: str, labels: Sequence[Any]) -> Counts:
    """The position of each record's value among the labels: shape ``(n,)``."""
    try:
        column = frame[name]
    except Exception:
        # Outside of the handler: what a frame says of a missing column may hold its data.
        column = None
    if column is None:
        raise ArgumentError(f"The records have no column {name!r}.")
    values = np.asarray(column)
    if values.ndim != 1:
        raise DataError(f"The column {name!r} is not one-dimensional.")
    position = {label: i for i, label in enumerate(labels)}
    try:
        # Missing values (None, NaN, NA) are no labels, so they are found by the same look-up.
        found = np.fromiter((position.get(value, -1) for value in values.tolist()), dtype=np.int64, count=len(values))
    except TypeError:
        found = np.array([-1])
    if np.any(found < 0):
        raise DataError(
            f"The column {name!r} holds missing values or values that were not declared. Drop those records, or "
            "declare a category for them; do not read the categories off the data."
        )
    return found
