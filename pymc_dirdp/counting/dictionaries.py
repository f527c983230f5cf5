"""How an engine holds a column: as one plain array, or as codes into its distinct values. **Secret**."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.counting.columns import values_of, without_dims

__all__ = ["dictionary_of", "plain_array"]

# Booleans, whole numbers, doubles and texts, which NumPy compares as Python does.
_KINDS = "biufU"

# The types of polars that NumPy has too. It would make doubles of wider whole numbers.
_OF_POLARS = {
    "Boolean",
    "Float32",
    "Float64",
    *(f"{kind}{bits}" for kind in ("Int", "UInt") for bits in (8, 16, 32, 64)),
}


def plain_array(column: Any) -> NDArray[Any] | None:
    """The column as a one-dimensional array of numbers or texts without missing values; None if it is held otherwise.

    Not-a-number may be among the doubles. It equals no label.
    """
    column = without_dims(column)
    if isinstance(column, np.ndarray):
        if np.ma.isMaskedArray(column) and np.ma.getmaskarray(column).any():
            return None
        return _plain(np.asarray(column))
    dtype = getattr(column, "dtype", None)
    if hasattr(column, "isna"):
        # pandas keeps plain arrays, and others that have a mask of missing values.
        kept = dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", None)
        # The texts of Arrow have a type of NumPy, too, which would drop a NUL at their end.
        if isinstance(kept, np.dtype) and kept.kind in "biuf" and not (kept is not dtype and column.isna().any()):
            return _plain(column.to_numpy(dtype=kept))
    elif str(dtype) in _OF_POLARS and callable(getattr(column, "null_count", None)) and not column.null_count():
        return _plain(column.to_numpy())
    return None


def _plain(array: NDArray[Any]) -> NDArray[Any] | None:
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
