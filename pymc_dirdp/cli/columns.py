"""The declared columns of a CSV or Parquet file. **Secret**: no error here holds a value, a number or a place."""

import csv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pymc_dirdp.cli.declaration import Declaration
from pymc_dirdp.errors import ArgumentError, DataError


def read_columns(path: Path, declaration: Declaration) -> dict[str, Any]:
    """The declared columns of a file, by name: lists, or columns of Arrow.

    Parameters
    ----------
    path : Path
        A Parquet file if its name ends so; any other is read as CSV, whose first line names the columns.
    declaration : Declaration

    Raises
    ------
    ArgumentError, DataError
        If a column is missing, or the file is not what its name says.
    ImportError
        If a Parquet file cannot be read without another package.
    OSError
        If the file cannot be read.
    """
    return (_parquet if _is_parquet(path) else _csv)(path, declaration)


def check_schema(path: Path, declaration: Declaration) -> None:
    """Refuse a file that is not there, needs another package, or has no columns such as are declared.

    The first line of a CSV file and the schema of a Parquet file are public, as the declaration is. No record is read,
    and a file that has no such parts is refused when it is read.

    Raises
    ------
    ArgumentError
        If a column is missing, or can hold none of the labels or numbers that are declared.
    ImportError, OSError
        As for :func:`read_columns`.
    """
    if path.suffix.lower() in (".xls", ".xlsx", ".ods"):
        path.open("rb").close()
        raise ArgumentError(f"{path} is the workbook of a spreadsheet. Save its sheet as CSV.")
    if not _is_parquet(path):
        # Bytes that the encoding does not have may stand in a record, and are no matter of this line.
        try:
            with path.open(encoding=_codec(declaration), errors="replace", newline="") as file, suppress(csv.Error):
                header = next(csv.reader(file, delimiter=declaration.delimiter, strict=True), [])
                for name in declaration.columns:
                    _position(name, header)
            return
        except UnicodeError:
            pass  # The mark of UTF-16 or UTF-32 is missing, with which a file begins.
        raise ArgumentError(f"{path} {_other_encoding(declaration)}")
    pa, pq = _arrow(path)
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError):
        return
    of_kind: dict[str, tuple[Any, ...]] = {
        "texts": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        "numbers": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    }
    of_kind["texts or integers"] = (*of_kind["texts"], pa.types.is_integer)
    for name in declaration.columns:
        kind = schema.field(_position(name, schema.names)).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        wanted = "texts" if isinstance(declaration.categories.get(name, [0])[0], str) else "numbers"
        wanted = "texts or integers" if name == declaration.unit else wanted
        if not (pa.types.is_null(kind) or any(is_kind(kind) for is_kind in of_kind[wanted])):
            raise ArgumentError(
                f"Expected the column {name!r} to hold {wanted}, as the declaration says, and it is of the "
                f"type {str(kind).partition('<')[0]}. Convert it, or declare what it holds."
            )


def _arrow(path: Path) -> tuple[Any, Any]:
    """PyArrow and its module for Parquet, to read a file that can be opened."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError(
            "Parquet files need PyArrow. Install it with: pip install pyarrow, or save the data as CSV."
        ) from None
    path.open("rb").close()  # This raises the operating system's own error if the file cannot be read.
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
        problem = "is no CSV file: some quotation mark is not closed, or a field is too long."
    else:
        return _values(rows, declaration)
    # Raised here, because those errors hold the data, and Python would keep them as its context.
    raise DataError(f"{path} {problem}")


def _codec(declaration: Declaration) -> str:
    # Excel begins its files with a mark, which this one leaves out.
    return "utf-8-sig" if declaration.encoding == "utf-8" else declaration.encoding


def _other_encoding(declaration: Declaration) -> str:
    return (
        f"is not written in {declaration.encoding.upper()}. Declare its encoding in [data], such as "
        'encoding = "latin-1", or save it as UTF-8.'
    )


def _records(lines: Iterator[list[str]], width: int) -> Iterator[list[str]]:
    """The fields of each record, as many as there are columns.

    A blank line, which the csv module reads as no fields, is a record in a file of one column: its field is empty, and
    that is how Polars, DuckDB and Arrow write a missing value. No record of several columns is written so. There, blank
    lines that end the file are an editor's, and others are an error.
    """
    at_end = False
    for row in lines:
        if not row and width > 1:
            at_end = True
        elif at_end or len(row or [""]) != width:
            raise DataError("Some line of the data has another number of fields than the first line.")
        else:
            yield row or [""]


def _values(rows: list[list[str]], declaration: Declaration) -> dict[str, Any]:
    """The columns of these rows. In a CSV file everything is a text."""
    columns: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(declaration.columns)}
    for name, labels in declaration.categories.items():
        numbers = {str(label): label for label in labels if isinstance(label, int)}
        if numbers:
            columns[name] = [numbers.get(text, text) for text in columns[name]]
    if declaration.counts is not None:
        columns[declaration.counts] = list(map(_count, columns[declaration.counts]))
    return columns


def _position(name: str, header: list[str]) -> int:
    # What the header holds is not repeated: if the header is missing, it is a record.
    if header.count(name) != 1:
        raise ArgumentError(
            f"Expected the data to name the column {name!r} once, in the first line of a CSV file. See that the first "
            "line holds the names, and that delimiter and encoding in [data] are right."
        )
    return header.index(name)


def _count(text: str) -> int | str:
    """An integer, or the text itself, which is then refused as any other value is."""
    short = text.strip(" ")
    # A longer integer is no count, and Python refuses to read one of many thousand digits.
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
        raise DataError(f"{path} is no Parquet file, or a damaged one.")
    return {name: table[name] for name in declaration.columns}
