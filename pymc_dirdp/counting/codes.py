"""Columns as the positions of their values among the declared labels. **Secret**."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.counting.categories import Categories
from pymc_dirdp.counting.columns import NOTHING, column_of, exact_below, index_of, refuse_lazy, values_of
from pymc_dirdp.counting.dictionaries import dictionary_of, plain_array
from pymc_dirdp.errors import ArgumentError, DataError, DirdpError

__all__ = ["Frame", "encode", "refuse_other_indexes"]


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
    columns = {name: column_of(frame, name) for name in names}
    refuse_other_indexes(columns if beside is None else columns | {beside: column_of(frame, beside)})
    codes = {name: _codes(column, name, labels[name], (otherwise or {}).get(name)) for name, column in columns.items()}
    if len(set(map(len, codes.values()))) > 1:
        raise DataError(f"The columns {', '.join(names)} are not of one length.")
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
            f"The column {name!r} holds missing values or values that were not declared. Drop those records, or "
            f"declare a category for them, as in otherwise={{{name!r}: 'unknown'}}; do not read the categories off the "
            "data."
        )
    return codes


def _positions(column: Any, name: str, labels: Sequence[Any]) -> Integers:
    """The position of each value among the labels, -1 for what is none of them. Missing values are no labels."""
    refuse_lazy(column)
    exact = exact_below(column)
    # A floating-point number of this size may have been another whole number before it was rounded.
    rounded = any(isinstance(label, int) and abs(label) >= exact for label in labels)
    if (array := plain_array(column)) is not None:
        wide = rounded and array.dtype.kind == "f"
        return _looked_up(array, [NOTHING if wide and _at_least(label, exact) else label for label in labels])
    held = dictionary_of(column, name)
    values = values_of(column, name) if held is None else held[1]
    if rounded:
        values = [NOTHING if isinstance(value, float) and abs(value) >= exact else value for value in values]
    position = {label: i for i, label in enumerate(labels)}
    found = np.fromiter(map(position.get, values, repeat(-1)), dtype=np.int64, count=len(values))
    return found if held is None else np.append(found, -1)[held[0]]


def _at_least(label: Any, bound: int) -> bool:
    return isinstance(label, int | float) and abs(label) >= bound


def _looked_up(array: NDArray[Any], labels: Sequence[Any]) -> Integers:
    """The positions of numbers or texts among the labels, by comparing arrays."""
    held = [_held(label, array.dtype) for label in labels]
    places = [i for i, label in enumerate(held) if label is not None]
    if not places:
        return np.full(len(array), -1, dtype=np.int64)
    keys = np.array([held[i] for i in places], dtype=array.dtype)
    order = np.argsort(keys)
    keys, positions = keys[order], np.array(places, dtype=np.int64)[order]
    found = np.searchsorted(keys, array)
    found[found == len(keys)] = 0
    return np.where(keys[found] == array, positions[found], -1)


def _held(label: Any, dtype: np.dtype[Any]) -> Any:
    """The value of this type that equals the label in Python; None if there is none."""
    if dtype.kind == "U":
        return label if isinstance(label, str) and len(label) <= dtype.itemsize // 4 else None
    held = None
    with suppress(Exception), np.errstate(all="ignore"):
        held = dtype.type(label)
    return held if held is not None and held.item() == label else None
