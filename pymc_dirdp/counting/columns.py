"""The values of a column, whichever engine holds it: never its codes, and never what a conversion made of them."""

import re
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from pymc_dirdp.errors import ArgumentError, DataError

__all__ = ["NOTHING", "column_of", "exact_below", "index_of", "of_data_frame", "scalar", "values_of", "without_dims"]

# The types that need no look at them: of texts, numbers and None.
_PLAIN = frozenset((str, int, float, bool, type(None)))


class _Nothing:
    """Stands for a value that is missing, or that is not known exactly: it is equal to no label."""


NOTHING = _Nothing()


def column_of(frame: Any, name: str) -> Any:
    """One column of a frame. What the frame itself says of a missing one may hold its data, so it is not repeated."""
    if type(frame).__name__ == "LazyFrame":
        raise ArgumentError("Expected records, got a LazyFrame, whose values are not computed yet. Pass its collect().")
    try:
        column = frame[name]
    except Exception:
        column = None
    if column is None:
        raise ArgumentError(f"The records have no column {name!r}.")
    return column


def values_of(column: Any, name: str) -> list[Any]:
    """The values of a one-dimensional column as Python objects. **Secret**.

    A missing value comes as None, NaN, the NA of pandas or `NOTHING`, none of which can be a label.

    Parameters
    ----------
    column : list, tuple, range, or array
        Of NumPy, pandas, polars, Arrow, xarray, or of any library whose arrays are lists or tell NumPy what they hold.
    name : str
        What the error calls it.

    Raises
    ------
    DataError
        If it is none. The message holds no value.

    Notes
    -----
    Each engine decodes its own categories. NumPy makes other values of them: of the null of an Arrow dictionary, for
    example, the last entry of that dictionary, which depends on the order of the records.
    """
    try:
        values = _decoded(column)
    except Exception:
        # What an unusual array says of itself may hold its values.
        values = None
    if values is None or set(map(type, values)) == {list}:
        raise DataError(f"The column {name!r} is not one-dimensional, or its values cannot be read.")
    return values


def _decoded(column: Any) -> list[Any] | None:
    if isinstance(column, str | bytes | bytearray | Mapping | Set) or hasattr(column, "as_py"):
        # They have a length but no values in an order, or are the scalars of Arrow.
        return None
    column = without_dims(column)
    if getattr(column, "ndim", 1) != 1 or hasattr(column, "columns"):
        return None
    if isinstance(column, np.ndarray):
        return _of_numpy(column)
    # The arrays of pandas decode what they hold as they are iterated over. Some versions warn of their to_list().
    if hasattr(column, "isna"):
        return _plain(column)
    # Arrow has the first and polars the second of these.
    for method in ("to_pylist", "to_list"):
        if callable(decode := getattr(column, method, None)):
            return _plain(decode())
    # NumPy is asked only where no other library that speaks Arrow decodes its own values.
    if hasattr(column, "__array__") and not {"__arrow_c_array__", "__arrow_c_stream__"} & set(dir(column)):
        array = np.asarray(column)
        return _of_numpy(array) if array.ndim == 1 else None
    return _plain(column) if hasattr(column, "__len__") else None


def _of_numpy(array: Any) -> list[Any]:
    if np.ma.isMaskedArray(array) and np.ma.getmaskarray(array).any():
        return [NOTHING] * len(array)
    # Without the habits of a subclass.
    plain = np.asarray(array)
    # Dates become whole numbers where they count nanoseconds, and records become tuples.
    return [NOTHING] * len(plain) if plain.dtype.kind in "mMV" else _plain(plain.tolist())


def without_dims(given: Any) -> Any:
    """The array in a DataArray of xarray, which iterates over arrays; anything else as it is."""
    return given.to_numpy() if hasattr(given, "dims") and hasattr(given, "to_numpy") else given


def _plain(values: Any) -> list[Any]:
    return [value if type(value) in _PLAIN else scalar(value) for value in values]


def scalar(value: Any) -> Any:
    """A single value as Python says it, of a scalar of NumPy or Arrow."""
    if hasattr(value, "as_py"):
        return value.as_py()
    if isinstance(value, np.datetime64 | np.timedelta64 | np.void):
        return NOTHING
    # The texts of NumPy are texts of Python; their item() drops a NUL at the end.
    if isinstance(value, np.generic) and not isinstance(value, str | bytes):
        return value.item()
    return value


def exact_below(column: Any) -> int:
    """Whole numbers below this are exact in a column if it holds floating-point numbers; others may be rounded."""
    dtype = getattr(column, "dtype", None)
    # A category of pandas holds the type of its values one step further in.
    dtype = getattr(getattr(dtype, "categories", None), "dtype", dtype)
    # Arrow's column has a type, and calls 32 bits "float" and 64 bits "double".
    name = str(getattr(column, "type", None) if dtype is None else dtype).lower()
    if re.search(r"half|float16", name):
        return 2**11
    return 2**24 if re.search(r"float32|\bfloat\b", name) else 2**53


def index_of(column: Any) -> Any:
    """The index of a pandas object, by which pandas would match its entries with those of another; None for others."""
    index = getattr(column, "index", None)
    return index if callable(getattr(index, "equals", None)) else None


def of_data_frame(given: Any) -> bool:
    """Whether this is an object of a library for data frames, whose values are those that were in some data."""
    return any(kind.__module__.partition(".")[0] in ("pandas", "polars", "pyarrow") for kind in type(given).__mro__)
