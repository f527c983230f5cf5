"""Columns of any engine in memory, and their values."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.errors import ArgumentError, DataError, type_name

__all__ = [
    "NOTHING",
    "column_of",
    "dictionary_of",
    "exact_below",
    "index_of",
    "is_missing",
    "of_data_frame",
    "plain_array",
    "refuse_lazy",
    "scalar",
    "values_of",
    "without_dims",
]

# The values of a column of any engine, as that engine decodes them: not its codes, and not converted values.


# Values of these types are taken as they are.
_PLAIN = frozenset((str, int, float, bool, type(None)))


class _Nothing:
    """Stands for a value that is missing, or that is not known exactly: it is equal to no label."""


NOTHING = _Nothing()


def column_of(frame: Any, name: str, *, among: Sequence[str] = ()) -> Any:
    """One column of a frame, `among` those that are needed.

    The frame's own error for a missing column may hold data, so it is not repeated.
    """
    refuse_lazy(frame)
    # A list has rows, and so has an array without names; a column of a data frame looks up its rows.
    if frame is None or isinstance(frame, str | bytes | list | tuple | Iterator) or _is_one_array(frame):
        raise ArgumentError(
            f"Expected records as columns by name, got {type_name(frame)}. Pass a data frame, such as "
            f"pandas.read_csv(path) or pandas.DataFrame(rows), or a mapping such as {{{name!r}: [...]}}."
        )
    try:
        column = frame[name]
    except Exception:
        column = None
    if column is None:
        needed = f" Needed are {', '.join(map(repr, among))}." if among else ""
        raise ArgumentError(f"The records have no column {name!r}.{needed}")
    return column


def refuse_lazy(given: Any) -> None:
    """Refuse what polars has not computed yet."""
    kind = type(given).__name__
    if kind == "LazyFrame":
        raise ArgumentError("Expected records, got a LazyFrame, whose values are not computed yet. Pass its collect().")
    if kind == "Expr" and hasattr(given, "meta"):
        raise ArgumentError(
            "Expected a column, got an Expr, which holds no values. Pass frame.select(...).to_series() instead."
        )


def _is_one_array(frame: Any) -> bool:
    """Whether it is one array or column, whose entries are not columns by name; structured arrays are frames."""
    dtype = getattr(frame, "dtype", None)
    return dtype is not None and getattr(dtype, "names", None) is None


def values_of(column: Any, name: str) -> list[Any]:
    """The values of a one-dimensional column as Python objects. **Secret**.

    A missing value comes as None, NaN, the NA of pandas or `NOTHING`, none of which can be a label.

    Parameters
    ----------
    column : list, tuple, range, or array
        An array of NumPy, pandas, polars, Arrow, xarray, or of any library that converts it to a list or for NumPy.
    name : str
        The name of the column in the error.

    Raises
    ------
    ArgumentError
        If polars has not computed it yet.
    DataError
        If it is no such column. The message holds no value.

    Notes
    -----
    Each engine decodes its own categories. NumPy would change them: it turns the null of an Arrow dictionary, for
    example, into the last entry of that dictionary, which depends on the order of the records.
    """
    refuse_lazy(column)
    try:
        values = _decoded(column)
    except Exception:
        # The error of an unusual array may hold its values.
        values = None
    if values is None or set(map(type, values)) == {list}:
        several = hasattr(column, "columns") or hasattr(column, "column_names")
        raise DataError(
            f"The column {name!r} is not one-dimensional, or its values cannot be read."
            + " It is a frame of its own: pass one column of it, and see that no two have one name." * several
        )
    return values


def _decoded(column: Any) -> list[Any] | None:
    if isinstance(column, str | bytes | bytearray | Mapping | Set) or hasattr(column, "as_py"):
        # These have a length but are no columns, or they are scalars of Arrow.
        return None
    column = without_dims(column)
    if getattr(column, "ndim", 1) != 1 or hasattr(column, "columns"):
        return None
    if isinstance(column, np.ndarray):
        return _of_numpy(column)
    # The arrays of pandas decode their values when they are iterated over. Some versions warn about their to_list().
    if hasattr(column, "isna"):
        return _plain(column)
    # Arrow has the first and polars the second of these methods.
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
    # A subclass may behave differently.
    plain = np.asarray(array)
    # `tolist` turns dates that count nanoseconds into integers, and records into tuples.
    return [NOTHING] * len(plain) if plain.dtype.kind in "mMV" else _plain(plain.tolist())


def without_dims(given: Any) -> Any:
    """The array in a DataArray of xarray, which iterates over arrays; anything else as it is."""
    return given.to_numpy() if hasattr(given, "dims") and hasattr(given, "to_numpy") else given


def _plain(values: Any) -> list[Any]:
    return [value if type(value) in _PLAIN else scalar(value) for value in values]


def scalar(value: Any) -> Any:
    """The Python value of a scalar of NumPy or Arrow; any other value as it is."""
    if hasattr(value, "as_py"):
        return value.as_py()
    if isinstance(value, np.datetime64 | np.timedelta64 | np.void):
        return NOTHING
    # The texts of NumPy are texts of Python, and their item() drops a NUL at the end.
    if isinstance(value, np.generic) and not isinstance(value, str | bytes):
        return value.item()
    return value


def is_missing(value: Any) -> bool:
    """Whether a value is None, not-a-number, or the NA of a library."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ArithmeticError):
        # The NA of pandas, and a signalling NaN, do not say whether they equal themselves.
        return True
    except ValueError:
        # This is an array, which is another mistake.
        return False


def exact_below(column: Any) -> int:
    """The bound below which integers are exact in a column of floating-point numbers; others may be rounded."""
    dtype = getattr(column, "dtype", None)
    # A categorical of pandas has the type of its values inside its own type.
    dtype = getattr(getattr(dtype, "categories", None), "dtype", dtype)
    # A column of Arrow has a type, and Arrow calls 32 bits "float" and 64 bits "double".
    name = str(getattr(column, "type", None) if dtype is None else dtype).lower()
    if re.search(r"half|float16", name):
        return 2**11
    return 2**24 if re.search(r"float32|\bfloat\b", name) else 2**53


def index_of(column: Any) -> Any:
    """The index by which pandas or xarray would match the entries with those of another column; None without one."""
    index = getattr(column, "index", None)
    if hasattr(column, "dims"):
        index = getattr(column, "indexes", {}).get(next(iter(column.dims), None))
    return index if callable(getattr(index, "equals", None)) else None


def of_data_frame(given: Any) -> bool:
    """Whether this is an object of a library for data frames, so that its values may have been read off the data."""
    return any(kind.__module__.partition(".")[0] in ("pandas", "polars", "pyarrow") for kind in type(given).__mro__)


# How an engine holds a column: as one plain array, or as codes into its distinct values. **Secret**.


# Booleans, integers, doubles and texts, which NumPy compares as Python does.
_KINDS = "biufU"

# The types of polars that NumPy has too. It would make doubles of wider integers.
_OF_POLARS = {
    "Boolean",
    "Float32",
    "Float64",
    *(f"{kind}{bits}" for kind in ("Int", "UInt") for bits in (8, 16, 32, 64)),
}


def plain_array(column: Any) -> NDArray[Any] | None:
    """The column as a one-dimensional array of numbers or texts without missing values; None if it has another type.

    Not-a-number may be among the doubles. It equals no label.
    """
    column = without_dims(column)
    if isinstance(column, np.ndarray):
        if np.ma.isMaskedArray(column) and np.ma.getmaskarray(column).any():
            return None
        return _dictionaries_plain(np.asarray(column))
    dtype = getattr(column, "dtype", None)
    if hasattr(column, "isna"):
        # pandas keeps plain arrays, and others that have a mask of missing values.
        own = dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", None)
        # The texts of Arrow have a type of NumPy, too, which would drop a NUL at their end.
        if isinstance(own, np.dtype) and own.kind in "biuf" and not (own is not dtype and column.isna().any()):
            return _dictionaries_plain(column.to_numpy(dtype=own))
    elif str(dtype) in _OF_POLARS and callable(getattr(column, "null_count", None)) and not column.null_count():
        return _dictionaries_plain(column.to_numpy())
    return None


def _dictionaries_plain(array: NDArray[Any]) -> NDArray[Any] | None:
    # A wider float than a double has no value of Python.
    return array if array.ndim == 1 and array.dtype.kind in _KINDS and array.dtype != np.longdouble else None


def dictionary_of(column: Any, name: str) -> tuple[Integers, list[Any]] | None:
    """The column as codes into a list of values, -1 for a missing one; None if the engine has no such form.

    The list may hold a value twice, values that occur nowhere, and missing ones.
    """
    column = without_dims(column)
    dtype: Any = getattr(column, "dtype", None)
    try:
        if hasattr(dtype, "categories") and hasattr(column, "isna"):
            codes = getattr(column, "cat", column).codes
            return np.asarray(codes, dtype=np.int64), values_of(dtype.categories, name)
        if getattr(dtype, "storage", None) == "pyarrow" or hasattr(dtype, "pyarrow_dtype"):
            return _of_arrow(getattr(column, "array", column).__arrow_array__(), name)
        if callable(getattr(column, "dictionary_encode", None)):
            return _of_arrow(column, name)
        if str(dtype) in ("String", "Categorical") or str(dtype).startswith(("Categorical(", "Enum(")):
            return _of_polars(column, name)
    except Exception:
        # The values are then read one by one, which says what is wrong with them.
        return None
    return None


def _of_arrow(column: Any, name: str) -> tuple[Integers, list[Any]]:
    codes: list[Integers] = [np.empty(0, dtype=np.int64)]
    values: list[Any] = []
    for chunk in getattr(column, "chunks", [column]):
        encoded = chunk if hasattr(chunk, "indices") else chunk.dictionary_encode()
        found = encoded.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
        # Each chunk has a dictionary of its own.
        codes.append(np.where(found < 0, -1, found + len(values)))
        values += values_of(encoded.dictionary, name)
    return np.concatenate(codes), values


def _of_polars(column: Any, name: str) -> tuple[Integers, list[Any]]:
    texts = column.cast(column.dtype if str(column.dtype) == "String" else _text_type(column))
    distinct = texts.drop_nulls().unique().sort()
    codes = distinct.search_sorted(texts.fill_null("")).to_numpy().astype(np.int64)
    return np.where(texts.is_null().to_numpy(), -1, codes), values_of(distinct, name)


def _text_type(column: Any) -> Any:
    """The type of texts in polars: that of the categories."""
    return column.cat.get_categories().dtype
