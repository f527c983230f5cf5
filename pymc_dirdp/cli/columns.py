"""The declared columns of a CSV or Parquet file. **Secret**: no error contains a value, a number or a line number."""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from pymc_dirdp.arrays import Integers
from pymc_dirdp.cli.declaration import Declaration
from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.columns import checked_otherwise
from pymc_dirdp.counting.tables import count_families
from pymc_dirdp.errors import ArgumentError, DataError


def read_columns(path: Path, declaration: Declaration) -> dict[str, Any]:
    """The declared columns of a file, by name, as lists or columns of Arrow.

    Parameters
    ----------
    path : Path
        A Parquet file by its suffix, otherwise a CSV file whose first line has the names of the columns.
    declaration : Declaration

    Raises
    ------
    ArgumentError, DataError
        If a column is missing, or the file does not have the format of its suffix.
    ImportError
        If reading a Parquet file requires another package.
    OSError
        If the file cannot be read.
    """
    return (_parquet if _is_parquet(path) else _csv)(path, declaration)


def count_file(
    path: Path,
    *,
    declaration: Declaration,
    families: Mapping[str, Sequence[str]],
    flat: Collection[str],
    bound: Bound | None,
) -> list[Integers]:
    """Count the records of a file in the declared tables. Some tables have a single axis."""
    labels = {name: declaration.categories[name] for name in dict.fromkeys(chain.from_iterable(families.values()))}
    tables = count_families(
        read_columns(path, declaration),
        list(families.values()),
        labels,
        otherwise=checked_otherwise(declaration.otherwise, labels),
        bound=bound,
        counts_column=declaration.counts,
    )
    return [table.ravel() if name in flat else table for name, table in zip(families, tables, strict=True)]


def check_schema(path: Path, declaration: Declaration) -> None:
    """Refuse a file that is missing, requires another package, or lacks the declared columns.

    The first line of a CSV file and the schema of a Parquet file are public, like the declaration. No record is read.
    Files without these parts are refused later, when they are read.

    Raises
    ------
    ArgumentError
        If a column is missing, or cannot contain the declared labels or numbers.
    ImportError, OSError
        As for :func:`read_columns`.
    """
    if path.suffix.lower() in (".xls", ".xlsx", ".ods"):
        path.open("rb").close()
        raise ArgumentError(f"{path} is the workbook of a spreadsheet. Save its sheet as CSV.")
    if not _is_parquet(path):
        # Invalid bytes are replaced, because they may be in a record, and only the first line matters here.
        try:
            with path.open(encoding=_codec(declaration), errors="replace", newline="") as file, suppress(csv.Error):
                header = next(csv.reader(file, delimiter=declaration.delimiter, strict=True), [])
                for name in declaration.columns:
                    _position(name, header)
            return
        except UnicodeError:
            pass  # The file does not begin with the byte order mark of UTF-16 or UTF-32.
        raise ArgumentError(f"{path} {_other_encoding(declaration)}")
    pa, pq = _arrow(path)
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError):
        return
    checks: dict[str, tuple[Any, ...]] = {
        "texts": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        "numbers": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    }
    checks["texts or integers"] = (*checks["texts"], pa.types.is_integer)
    for name in declaration.columns:
        kind = schema.field(_position(name, schema.names)).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        contents = "texts" if isinstance(declaration.categories.get(name, [0])[0], str) else "numbers"
        contents = "texts or integers" if name == declaration.unit else contents
        if not (pa.types.is_null(kind) or any(is_kind(kind) for is_kind in checks[contents])):
            raise ArgumentError(
                f"Expected the column {name!r} to hold {contents}, as declared, got the type "
                f"{str(kind).partition('<')[0]}. Convert it, or change the declaration."
            )


def _arrow(path: Path) -> tuple[Any, Any]:
    """PyArrow and its module for Parquet. The file must be readable."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError(
            "Parquet files need PyArrow. Install it with: pip install pyarrow, or save the data as CSV."
        ) from None
    path.open("rb").close()  # It raises the error of the operating system if the file cannot be read.
    return pa, pq


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _csv(path: Path, declaration: Declaration) -> dict[str, Any]:
    try:
        with path.open(encoding=_codec(declaration), newline="") as file:
            lines = csv.reader(file, delimiter=declaration.delimiter, strict=True)
            header = next(lines, [])
            places = [_position(name, header) for name in declaration.columns]
            rows = [[row[place] for place in places] for row in _records(lines, len(header))]
    except UnicodeError:
        problem = _other_encoding(declaration)
    except csv.Error:
        problem = "is not a CSV file: a quotation mark is not closed, or a field is too long."
    else:
        return _values(rows, declaration)
    # It is raised here, because those errors contain data, and Python would store them as its context.
    raise DataError(f"{path} {problem}")


def _codec(declaration: Declaration) -> str:
    # Files of Excel begin with a byte order mark, which this codec skips.
    return "utf-8-sig" if declaration.encoding == "utf-8" else declaration.encoding


def _other_encoding(declaration: Declaration) -> str:
    return (
        f"is not written in {declaration.encoding.upper()}. Declare its encoding in [data], such as "
        'encoding = "latin-1", or save it as UTF-8.'
    )


def _records(lines: Iterator[list[str]], width: int) -> Iterator[list[str]]:
    """The fields of each record, one for each column.

    The csv module reads a blank line as no fields. In a file with one column it is a record with an empty field, which
    is how Polars, DuckDB and Arrow write a missing value. With several columns, blank lines are accepted at the end of
    the file, and are an error elsewhere.
    """
    at_end = False
    for row in lines:
        if not row and width > 1:
            at_end = True
        elif at_end or len(row or [""]) != width:
            raise DataError("A line of the data has another number of fields than the first line.")
        else:
            yield row or [""]


def _values(rows: list[list[str]], declaration: Declaration) -> dict[str, Any]:
    """The columns of these rows of a CSV file, in which all values are texts."""
    columns: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(declaration.columns)}
    for name, labels in declaration.categories.items():
        numbers = {str(label): label for label in labels if isinstance(label, int)}
        if numbers:
            columns[name] = [numbers.get(text, text) for text in columns[name]]
    if declaration.counts is not None:
        columns[declaration.counts] = list(map(_count, columns[declaration.counts]))
    return columns


def _position(name: str, header: list[str]) -> int:
    # The error does not quote the header, because the first line is a record if the header is missing.
    if header.count(name) != 1:
        raise ArgumentError(
            f"Expected the data to name the column {name!r} once, in the first line of a CSV file. Check that the "
            "first line has the names, and that delimiter and encoding in [data] are right."
        )
    return header.index(name)


def _count(text: str) -> int | str:
    """An integer, or the text itself, which is then refused like any other value."""
    short = text.strip(" ")
    # Longer integers are not counts, and Python refuses to convert those of many thousand digits.
    return int(short) if short.isascii() and short.isdigit() and len(short) <= 18 else text


def _parquet(path: Path, declaration: Declaration) -> dict[str, Any]:
    pa, pq = _arrow(path)
    try:
        with pq.ParquetFile(path) as file:
            for name in declaration.columns:
                _position(name, file.schema_arrow.names)
            table = file.read(columns=declaration.columns)
    except (pa.ArrowException, OSError):
        table = None
    if table is None:
        raise DataError(f"{path} is not a Parquet file, or is damaged.")
    return {name: table[name] for name in declaration.columns}
