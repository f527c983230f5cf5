"""Columns of any engine in memory: their values, and the positions of these among the declared labels."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from itertools import repeat
from numbers import Number
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.errors import (
    ArgumentError,
    CategoriesFromDataWarning,
    DataError,
    DirdpError,
    missing_values,
    type_name,
    warn,
)

# Values of these types are not converted.
_PYTHON_SCALARS = frozenset((str, int, float, bool, type(None)))


class _Unknown:
    """A value that is missing or not known exactly. It equals no label."""


UNKNOWN = _Unknown()


def column_of(frame: Any, name: str, *, needed: Sequence[str] = ()) -> Any:
    """One column of a frame. An error lists the `needed` columns.

    The frame's own error for a missing column may hold data, so it is not repeated.
    """
    _refuse_lazy(frame)
    # A list has rows, and so has an array without names; a column of a data frame looks up its rows. Structured arrays
    # are frames.
    dtype = getattr(frame, "dtype", None)
    is_plain_array = dtype is not None and getattr(dtype, "names", None) is None
    if frame is None or isinstance(frame, str | bytes | list | tuple | Iterator) or is_plain_array:
        raise ArgumentError(
            f"Expected records as columns by name, got {type_name(frame)}. Pass a data frame, such as "
            f"pandas.read_csv(path) or pandas.DataFrame(rows), or a mapping such as {{{name!r}: [...]}}."
        )
    try:
        column = frame[name]
    except Exception:
        column = None
    if column is None:
        needed_text = f" Needed are {', '.join(map(repr, needed))}." if needed else ""
        raise ArgumentError(f"The records have no column {name!r}.{needed_text}")
    return column


def _refuse_lazy(column: Any) -> None:
    """Refuse lazy objects of polars."""
    kind = type(column).__name__
    if kind == "LazyFrame":
        raise ArgumentError("Expected records, got a LazyFrame, whose values are not computed yet. Pass its collect().")
    if kind == "Expr" and hasattr(column, "meta"):
        raise ArgumentError(
            "Expected a column, got an Expr, which holds no values. Pass frame.select(...).to_series() instead."
        )


def values_of(column: Any, name: str) -> list[Any]:
    """The values of a one-dimensional column as Python objects. **Secret**.

    A missing value is None, NaN, the NA of pandas or `UNKNOWN`, which cannot be labels.

    Parameters
    ----------
    column : list, tuple, range, or array
        An array of NumPy, pandas, polars, Arrow, xarray, or of any library that converts it to a list or for NumPy.
    name : str
        The name of the column in the error.

    Raises
    ------
    ArgumentError
        If it is lazy in polars.
    DataError
        If it is not such a column. The message contains no value.

    Notes
    -----
    Each engine decodes its own categories. NumPy would change them: it turns the null of an Arrow dictionary, for
    example, into the last entry of that dictionary, which depends on the order of the records.
    """
    _refuse_lazy(column)
    try:
        values = _decode(column)
    except Exception:
        # The error of an unusual array may hold its values.
        values = None
    if values is None or set(map(type, values)) == {list}:
        several = hasattr(column, "columns") or hasattr(column, "column_names")
        raise DataError(
            f"The column {name!r} is not one-dimensional, or its values cannot be read."
            + " It is a frame: pass one of its columns, and check that no two have the same name." * several
        )
    return values


def _decode(column: Any) -> list[Any] | None:
    if isinstance(column, str | bytes | bytearray | Mapping | Set) or hasattr(column, "as_py"):
        # These have a length but are not columns, or they are scalars of Arrow.
        return None
    column = _without_dims(column)
    if getattr(column, "ndim", 1) != 1 or hasattr(column, "columns"):
        return None
    if isinstance(column, np.ndarray):
        return _decode_numpy(column)
    # The arrays of pandas decode their values when they are iterated over. Some versions warn about their to_list().
    if hasattr(column, "isna"):
        is_plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf"
        return _decode_numpy(column.to_numpy()) if is_plain else _to_python(column)
    # Arrow has the first and polars the second of these methods.
    for method in ("to_pylist", "to_list"):
        if callable(decode := getattr(column, method, None)):
            return _to_python(decode())
    # Use NumPy only if no library with the Arrow interface decodes its own values.
    if hasattr(column, "__array__") and not {"__arrow_c_array__", "__arrow_c_stream__"} & set(dir(column)):
        array = np.asarray(column)
        return _decode_numpy(array) if array.ndim == 1 else None
    return _to_python(column) if hasattr(column, "__len__") else None


def _decode_numpy(array: Any) -> list[Any]:
    if np.ma.isMaskedArray(array) and np.ma.getmaskarray(array).any():
        return [UNKNOWN] * len(array)
    # A subclass may behave differently.
    base = np.asarray(array)
    # `tolist` turns dates that count nanoseconds into integers, and records into tuples.
    return [UNKNOWN] * len(base) if base.dtype.kind in "mMV" else _to_python(base.tolist())


def _without_dims(array: Any) -> Any:
    """The array in a DataArray of xarray, which iterates over arrays; anything else as it is."""
    return array.to_numpy() if hasattr(array, "dims") and hasattr(array, "to_numpy") else array


def _to_python(values: Iterable[Any]) -> list[Any]:
    items = list(values)
    return items if _PYTHON_SCALARS.issuperset(map(type, items)) else [scalar(value) for value in items]


def scalar(value: Any) -> Any:
    """The Python value of a scalar of NumPy or Arrow; any other value as it is."""
    if hasattr(value, "as_py"):
        return value.as_py()
    if isinstance(value, np.datetime64 | np.timedelta64 | np.void):
        return UNKNOWN
    # NumPy's str is a Python str, and its item() drops a NUL at the end.
    if isinstance(value, np.generic) and not isinstance(value, str | bytes):
        return value.item()
    return value


def is_missing(value: Any) -> bool:
    """Whether a value is None, not-a-number, or the NA of a library."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ArithmeticError):
        # The NA of pandas and a signalling NaN cannot be compared.
        return True
    except ValueError:
        # An array: another check refuses it.
        return False


def _exact_integer_bound(column: Any) -> int:
    """The bound below which integers are exact in a column of floating-point numbers; others may be rounded."""
    dtype = getattr(column, "dtype", None)
    # A pandas categorical stores the type of its values in its own type.
    dtype = getattr(getattr(dtype, "categories", None), "dtype", dtype)
    # A column of Arrow has a type, and Arrow calls 32 bits "float" and 64 bits "double".
    name = str(getattr(column, "type", None) if dtype is None else dtype).lower()
    if re.search(r"half|float16", name):
        return 2**11
    return 2**24 if re.search(r"float32|\bfloat\b", name) else 2**53


def index_of(column: Any) -> Any:
    """The index by which pandas or xarray would align the column with another one, or None."""
    index = getattr(column, "index", None)
    if hasattr(column, "dims"):
        index = getattr(column, "indexes", {}).get(next(iter(column.dims), None))
    return index if callable(getattr(index, "equals", None)) else None


# Columns that are codes into their distinct values. **Secret**.


def dictionary_of(column: Any, name: str) -> tuple[Integers, list[Any]] | None:
    """The column as codes into a list of values, -1 where missing; None if the engine has no such form.

    The list may contain duplicates, unused values and missing ones.
    """
    column = _without_dims(column)
    dtype: Any = getattr(column, "dtype", None)
    try:
        if hasattr(dtype, "categories") and hasattr(column, "isna"):
            codes = getattr(column, "cat", column).codes
            return np.asarray(codes, dtype=np.int64), values_of(dtype.categories, name)
        if getattr(dtype, "storage", None) == "pyarrow" or hasattr(dtype, "pyarrow_dtype"):
            return _dictionary_of_arrow(getattr(column, "array", column).__arrow_array__(), name)
        if callable(getattr(column, "dictionary_encode", None)):
            return _dictionary_of_arrow(column, name)
        if hasattr(column, "replace_strict") and hasattr(dtype, "is_integer"):
            return _dictionary_of_polars(column)
        if isinstance(column, np.ndarray) and not np.ma.isMaskedArray(column):
            return _dictionary_of_integers(np.asarray(column))
        if hasattr(column, "isna") and isinstance(dtype, np.dtype):
            return _dictionary_of_integers(column.to_numpy())
    except Exception:
        # The values are then decoded one by one, which gives a precise error.
        return None
    return None


def _dictionary_of_integers(column: NDArray[Any]) -> tuple[Integers, list[Any]] | None:
    """None for other arrays, because strings take longer to sort than to look up, and numbers may be missing."""
    if column.ndim != 1 or column.dtype.kind not in "biu":
        return None
    values, codes = np.unique(column, return_inverse=True)
    return codes.astype(np.int64), values.tolist()


def _dictionary_of_polars(column: Any) -> tuple[Integers, list[Any]] | None:
    if column.dtype.is_integer() and not column.null_count():
        return _dictionary_of_integers(column.to_numpy())
    if str(column.dtype) != "String":
        return None
    values = column.drop_nulls().unique()
    codes = column.replace_strict(values, range(len(values)), default=-1)
    return codes.to_numpy().astype(np.int64), values.to_list()


def _dictionary_of_arrow(column: Any, name: str) -> tuple[Integers, list[Any]]:
    codes: list[Integers] = [np.empty(0, dtype=np.int64)]
    values: list[Any] = []
    for chunk in getattr(column, "chunks", [column]):
        encoded = chunk if hasattr(chunk, "indices") else chunk.dictionary_encode()
        indices = encoded.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
        # Each chunk has its own dictionary.
        codes.append(np.where(indices < 0, -1, indices + len(values)))
        values += values_of(encoded.dictionary, name)
    return np.concatenate(codes), values


# The declared labels of variables: public, checked, and as plain Python values.


Categories = Mapping[str, Sequence[Any]]
Otherwise = Mapping[str, Any]


def checked_variables(variables: Sequence[str]) -> list[str]:
    """The names of the columns of a table: at least one, without duplicates."""
    if isinstance(variables, str) or not (names := list(variables)):
        raise ArgumentError("Expected variables to be a list of at least one column name, such as ['hair'].")
    if len(set(names)) < len(names):
        raise ArgumentError(f"Expected each variable once, got {', '.join(map(repr, names))}.")
    return names


def checked_categories(names: Sequence[str], categories: Categories) -> dict[str, list[Any]]:
    """The declared labels of these variables as Python values, or an error that explains the problem."""
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
    """Warn once if categories are objects of data frames, because these may contain values of the data."""
    # Libraries for data frames: the values of their objects may have been read off the data.
    suspects = [
        name
        for name in names
        if any(
            kind.__module__.partition(".")[0] in ("pandas", "polars", "pyarrow")
            for kind in type(categories[name]).__mro__
        )
    ]
    if suspects:
        warn(
            f"categories[{suspects[0]!r}] is {type_name(categories[suspects[0]])}"
            + (f", as are {len(suspects) - 1} more" if len(suspects) > 1 else "")
            + ". Which values occur in the data is secret, so declare categories without looking at them:  "
            "write them as a list.",
            CategoriesFromDataWarning,
        )


def _checked_labels(name: str, sequence: Any) -> list[Any]:
    expected = f"Expected categories[{name!r}] to be a sequence of labels"
    if isinstance(sequence, str | bytes):
        raise ArgumentError(f"{expected}, got one text.")
    if isinstance(sequence, set | frozenset) or not isinstance(sequence, Iterable):
        # A set has no order of the user's choice, and its order may differ between processes.
        raise ArgumentError(f"{expected} in order, got {type_name(sequence)}.")
    if hasattr(sequence, "columns") or hasattr(sequence, "column_names"):
        # A pandas data frame iterates over its column names, which would become labels.
        raise ArgumentError(f"{expected}, got {type_name(sequence)}. Write the labels as a list.")
    originals = list(_without_dims(sequence))
    labels = [_plain_label(label) for label in originals]
    if not labels:
        raise ArgumentError(f"Expected categories[{name!r}] to hold at least one label, got none.")
    if any(map(is_missing, labels)):
        raise ArgumentError(f"{expected} without a missing value. Write a label, such as 'unknown', instead.")
    for label, original in zip(labels, originals, strict=True):
        if not isinstance(label, str | bytes | Number | Enum):
            # Engines convert dates and intervals: some to nanoseconds, others truncate them.
            raise ArgumentError(
                f"{expected} that are texts or numbers, not lists or dates; one is {type_name(original)}. "
                "Write dates and intervals as texts, there and in the records."
            )
    if any("\0" in label if isinstance(label, str) else isinstance(label, bytes) and 0 in label for label in labels):
        raise ArgumentError(f"{expected} without the character NUL, which NumPy drops at the end of a text.")
    if len(set(labels)) < len(labels):
        raise ArgumentError(f"Expected the labels of categories[{name!r}] to differ; 1, 1.0 and True are the same.")
    return labels


def _plain_label(label: Any) -> Any:
    """A label as a Python value: for a member of StrEnum or IntEnum, its text or number."""
    python_value = scalar(label)
    return (
        python_value.value
        if isinstance(python_value, Enum) and isinstance(python_value, str | Number)
        else python_value
    )


def checked_otherwise(otherwise: Otherwise | None, labels: Mapping[str, list[Any]]) -> dict[str, int]:
    """The position of the label that stands for missing and undeclared values, by variable."""
    if otherwise is None:
        return {}
    if not isinstance(otherwise, Mapping):
        raise ArgumentError(f"Expected otherwise to map names to labels, got {type_name(otherwise)}.")
    positions = {}
    for name, declared in otherwise.items():
        if name not in labels:
            raise ArgumentError(f"otherwise has {name!r}, which is not one of the variables.")
        label = _plain_label(declared)
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
    unit: str | None = None,
) -> dict[str, Integers]:
    """Each column as the positions of its values among the labels, all of shape ``(n,)``. **Secret**.

    A position in `otherwise` stands for values of this variable that are missing or not declared. The index of the
    column `unit` has to be that of the others.
    """
    columns = {name: column_of(frame, name, needed=names) for name in names}
    refuse_other_indexes(columns if unit is None else columns | {unit: column_of(frame, unit)})
    codes = {name: _codes(column, name, labels[name], (otherwise or {}).get(name)) for name, column in columns.items()}
    if len(set(map(len, codes.values()))) > 1:
        raise DataError(f"The columns {', '.join(names)} have different lengths.")
    return codes


def refuse_other_indexes(columns: Mapping[str, Any]) -> None:
    """Refuse columns with different indexes: pandas and xarray align by index, and this library by position."""
    indexed = [(name, index) for name, column in columns.items() if (index := index_of(column)) is not None]
    for name, index in indexed[1:]:
        if not index.equals(indexed[0][1]):
            raise ArgumentError(
                f"The columns {indexed[0][0]!r} and {name!r} have different indexes, and records are aligned by "
                "position. Align them, as in y.loc[X.index], or take the indexes away if they are in the same order: "
                "reset_index(drop=True) in pandas, drop_vars in xarray."
            )


def _codes(column: Any, name: str, labels: Sequence[Any], otherwise: int | None) -> Integers:
    try:
        codes = _positions(column, name, labels)
    except DirdpError:
        raise
    except Exception:
        # A value without a hash is not a label. The error of an unusual value may contain the value.
        codes = None
    if codes is not None and otherwise is not None:
        codes[codes < 0] = otherwise
    if codes is None or np.any(codes < 0):
        raise DataError(
            f"The column {name!r} holds missing values, or values that categories[{name!r}] does not declare, perhaps "
            f"by a capital letter, a space, or their type: the labels are {_types_of(labels)}, and True is no 'True'. "
            f"Correct them, or declare a label for all of them, as in otherwise={{{name!r}: 'unknown'}}. Do not take "
            "the categories from the data."
        )
    return codes


def _types_of(labels: Sequence[Any]) -> str:
    """The types of labels, which are public, in words."""
    return "of the type " + " or ".join(sorted({type(label).__name__ for label in labels}))


def _positions(column: Any, name: str, labels: Sequence[Any]) -> Integers:
    """The position of each value among the labels, -1 if it is not a label. Missing values are not labels."""
    _refuse_lazy(column)
    bound = _exact_integer_bound(column)
    # A floating-point number of this size may be a rounded integer.
    may_be_rounded = any(isinstance(label, int) and abs(label) >= bound for label in labels)
    dictionary = dictionary_of(column, name)
    values = values_of(column, name) if dictionary is None else dictionary[1]
    if may_be_rounded:
        values = [UNKNOWN if isinstance(value, float) and abs(value) >= bound else value for value in values]
    position = {label: i for i, label in enumerate(labels)}
    positions = np.fromiter(map(position.get, values, repeat(-1)), dtype=np.int64, count=len(values))
    return positions if dictionary is None else np.append(positions, -1)[dictionary[0]]


# Units of privacy, by their texts or numbers. **Secret**.


def missing_unit_error(unit: str) -> DataError:
    """The error for records whose unit is missing."""
    return DataError(
        f"The column {unit!r} of the units holds missing values, empty texts or invisible characters, so it "
        f"is unknown whose these records are. {missing_values('Find out whose they are')}"
    )


def refuse_ambiguous_units(units: Iterable[Any], unit: str) -> None:
    """Refuse different texts that may be the same person, and texts without an identifier. **Secret**.

    Raises
    ------
    DataError
        If one of them is not an identifier, or two of them are spellings of one identifier.
    """
    spellings = set(units)
    people = set(map(identifier, spellings))
    if None in people:
        raise missing_unit_error(unit)
    if len(people) < len(spellings):
        raise DataError(
            f"The column {unit!r} of the units holds texts that differ only in letter case, Unicode form, "
            "spaces, or zeros before an integer, so it is unknown whether they are one person. Write the unit of "
            "a person in one way. Number the people, in a table that you keep, if they are different."
        )


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
