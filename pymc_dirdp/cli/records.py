"""The columns of a CSV or Parquet file. **Secret**: no error of this file holds a value, a number or a place."""

import csv
from pathlib import Path
from typing import Any

from pymc_dirdp.cli.declaration import Declaration
from pymc_dirdp.errors import ArgumentError, DataError

__all__ = ["read_columns", "refuse_unreadable"]

# A longer whole number is no count, and Python refuses to read one of many thousand digits.
_MOST_DIGITS = 18


def read_columns(path: Path, declaration: Declaration) -> dict[str, Any]:
    """The declared columns of a file, by name: lists, or columns of Arrow.

    Parameters
    ----------
    path : Path
        A Parquet file if its name ends so; any other is read as CSV in UTF-8, whose first line names the columns.
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


def refuse_unreadable(path: Path) -> None:
    """Refuse a file that is not there or needs another package. Nothing of it is read."""
    if _is_parquet(path):
        _refuse_without_arrow()
    path.open("rb").close()  # This raises the operating system's own error if the file cannot be read.


def _refuse_without_arrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ImportError(
            "Parquet files need PyArrow. Install it with: pip install pyarrow, or save the data as CSV."
        ) from None


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _csv(path: Path, declaration: Declaration) -> dict[str, Any]:
    try:
        # Excel begins its files with a mark, which this encoding leaves out.
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=declaration.delimiter, strict=True)
            header = next(lines, [])
            at = [_position(name, header) for name in declaration.columns]
            # A blank line is no record.
            rows = [[row[i] for i in at] for row in lines if row and _fits(row, header)]
    except UnicodeDecodeError:
        problem = "is not written in UTF-8. Save it as UTF-8, by an editor or by iconv."
    except csv.Error:
        problem = "is no CSV file: some quotation mark is not closed, or a field is too long."
    else:
        return _values(rows, declaration)
    # Raised here, because those errors hold the data, and Python would keep them as its context.
    raise DataError(f"{path} {problem}")


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
            "line holds the names, and that delimiter in [data] is right."
        )
    return header.index(name)


def _fits(row: list[str], header: list[str]) -> bool:
    if len(row) != len(header):
        raise DataError("Some line of the data has another number of fields than the first line.")
    return True


def _count(text: str) -> int | str:
    """An integer, or the text itself, which is then refused as any other value is."""
    short = text.strip(" ")
    return int(short) if short.isascii() and short.isdigit() and len(short) <= _MOST_DIGITS else text


def _parquet(path: Path, declaration: Declaration) -> dict[str, Any]:
    _refuse_without_arrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.open("rb").close()  # This raises the operating system's own error if the file cannot be read.
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
