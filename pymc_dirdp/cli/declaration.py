"""What is declared in a TOML file before anybody looks at the data, and the columns of the data that it names."""

import csv
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, final

from pymc_dirdp.checks import integer, one_of
from pymc_dirdp.errors import ArgumentError, DataError, type_name
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.mechanisms.registry import SETTINGS
from pymc_dirdp.privacy.guarantees import KINDS, Guarantee
from pymc_dirdp.privacy.people import adjacency_by_name


@final
@dataclass(frozen=True, eq=False)
class Declaration:
    """A declaration, checked as far as this is possible without a model.

    Attributes
    ----------
    guarantee : Guarantee
    categories : dict of str to list
        The labels of each variable: all texts, or all integers.
    structure : dict of str to list of str
        The variables that each is conditional on.
    prior : dict of str to number or list
        Of those variables that have another one than 1.
    contribution : int
        How many records one person has at most.
    options : dict
        Further options of :func:`pymc_dirdp.plan`. A mechanism is named, or has settings.
    counts : str or None
        The column that says how many records a row of the data stands for.
    records : int or None
        How many records there are, where anybody may know it, for planning without the data.
    delimiter : str
        What separates the fields of a CSV file.
    ledger : Path or None
        Where the budget is stored.
    limit : Guarantee or None
        The budget.
    """

    guarantee: Guarantee
    categories: dict[str, list[str | int]]
    structure: dict[str, list[str]]
    prior: dict[str, Any]
    contribution: int
    options: dict[str, Any]
    counts: str | None
    records: int | None
    delimiter: str
    ledger: Path | None
    limit: Guarantee | None

    @property
    def adjacency(self) -> AdjacencyName:
        """What one person can change."""
        return adjacency_by_name(self.options.get("adjacency", "replace-one")).name

    @property
    def columns(self) -> list[str]:
        """The columns of the data that are read."""
        return [*self.categories, *([] if self.counts is None else [self.counts])]


def declared(path: Path) -> Declaration:
    """The declaration in a TOML file.

    Raises
    ------
    ArgumentError
        If it is no TOML, or says what no declaration says.
    OSError
        If the file cannot be read.
    """
    sections = _parsed(path)
    _known("the declaration", sections, ("guarantee", "people", "variables", "options", "data", "ledger"))
    for name in ("guarantee", "people", "variables"):
        if name not in sections:
            raise ArgumentError(
                f"{path} has no section [{name}]. `dirdp init` writes a declaration from what you type."
            )
    variables = {name: _table(f"variables.{name}", facts) for name, facts in sections["variables"].items()}
    for name, facts in variables.items():
        _known(f"[variables.{name}]", facts, ("categories", "given", "prior"))
    if not variables:
        raise ArgumentError("Declare at least one variable, such as [variables.hair] with categories = [...].")
    people = _known("[people]", sections["people"], ("contribution",))
    if "contribution" not in people:
        raise ArgumentError(
            "Expected contribution in [people]: how many records of the data one person has at most, such as "
            "contribution = 1."
        )
    data = _known("[data]", sections.get("data", {}), ("counts", "records", "delimiter"))
    counts = data.get("counts")
    if counts is not None and (not isinstance(counts, str) or counts in variables):
        raise ArgumentError("Expected counts in [data] to be the name of a column that is no variable.")
    options = dict(
        _known(
            "[options]",
            sections.get("options", {}),
            ("adjacency", "mechanism", "min_count", "n_records", "objective", "released_draws", "weights"),
        )
    )
    if isinstance(settings := options.get("mechanism"), dict):
        # A mechanism with settings of its own.
        kind = SETTINGS[one_of(SETTINGS, **{"kind of mechanism in [options]": settings.get("kind")})]
        _known("mechanism in [options]", settings, ("kind", *(field.name for field in fields(kind))))
        options["mechanism"] = kind(**{name: value for name, value in settings.items() if name != "kind"})
    if "records" in data and options.get("adjacency", "replace-one") != "replace-one":
        raise ArgumentError(
            "records in [data] is for adjacency = 'replace-one'. Under 'add-remove' the number of records is private, "
            "and whether the data hold as many would tell it. Leave records out; n_records in [options] says what to "
            "plan for."
        )
    ledger = _known("[ledger]", sections.get("ledger", {}), ("path", "limit"))
    if ledger and (not isinstance(ledger.get("path"), str) or "limit" not in ledger):
        raise ArgumentError('Expected path and limit in [ledger], such as path = "budget.db".')
    structure = {name: facts.get("given", []) for name, facts in variables.items()}
    for name, given in structure.items():
        if not isinstance(given, list) or not all(isinstance(parent, str) for parent in given):
            raise ArgumentError(f"Expected given in [variables.{name}] to list names of variables.")
        for parent in given:
            one_of(variables, **{f"variable in given of [variables.{name}]": parent})
    delimiter = data.get("delimiter", ",")
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise ArgumentError('Expected delimiter in [data] to be one character, such as ";".')
    return Declaration(
        guarantee=_guarantee("[guarantee]", sections["guarantee"]),
        categories={name: _categories(name, facts.get("categories")) for name, facts in variables.items()},
        structure=structure,
        prior={name: facts["prior"] for name, facts in variables.items() if "prior" in facts},
        contribution=integer(1, contribution=people["contribution"]),
        options=options,
        counts=counts,
        records=None if "records" not in data else integer(0, records=data["records"]),
        delimiter=delimiter,
        ledger=path.parent / ledger["path"] if ledger else None,
        limit=_guarantee("limit of [ledger]", ledger["limit"]) if ledger else None,
    )


def written(
    *,
    variables: Sequence[str],
    given: Sequence[str],
    separator: str,
    epsilon: float,
    delta: float,
    contribution: int,
    counts: str | None,
    records: int | None,
) -> str:
    """A declaration as TOML, from what somebody typed.

    Parameters
    ----------
    variables : sequence of str
        A name, `=` and labels, with a separator between them.
    given : sequence of str
        A name, `=` and the names of the variables that it is conditional on.
    separator : str
    epsilon, delta : float
        Pure differential privacy if delta is 0.
    contribution : int
    counts, records
        As in :class:`Declaration`.
    """

    def listed(typed: str) -> list[str]:
        return [one.strip() for one in typed.split(separator)] if separator else [typed]

    labels: dict[str, list[str | int]] = {}
    parents: dict[str, list[str]] = {}
    for typed in variables:
        name, values = _split("--variable", typed, f"sex=female{separator}male")
        if name in labels:
            raise ArgumentError(f"--variable declares {name!r} twice. Give all its labels at once.")
        if not all(listed(values)):
            raise ArgumentError(
                f"A label of --variable {name}={values} is empty. Type none between two separators or after the last "
                f'one. If an empty field, which is a missing value, is a category of its own, write "" among the '
                f"categories of [variables.{name}] by hand."
            )
        whole = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", label) for label in listed(values))
        # They are integers if all are written as Python writes them, else texts.
        labels[name] = [int(label) if whole else label for label in listed(values)]
    for typed in given:
        name, those = _split("--given", typed, f"hair=sex or hair=sex{separator}age")
        for one in (name, *listed(those)):
            one_of(labels, **{"variable in --given": one})
        parents.setdefault(name, []).extend(listed(those))
    kind = ['kind = "PureDP"'] if delta == 0 else ['kind = "ApproxDP"', f"delta = {delta!r}"]
    lines = ["[guarantee]", *kind, f"epsilon = {epsilon!r}", "", "[people]", f"contribution = {contribution}"]
    for name, of_name in labels.items():
        lines += ["", f"[variables.{_quoted(name)}]", f"categories = [{', '.join(map(_quoted, of_name))}]"]
        if name in parents:
            lines.append(f"given = [{', '.join(map(_quoted, parents[name]))}]")
    facts = [] if counts is None else [f"counts = {_quoted(counts)}"]
    facts += [] if records is None else [f"records = {records}"]
    # The least error of a prediction would be that of marginals, from which `dirdp analyse` has no intervals.
    options = ['mechanism = "auto"', 'objective = "estimate"']
    lines += ["", "[options]", *options, *(["", "[data]", *facts] if facts else [])]
    return "\n".join([*lines, ""])


def _split(option: str, typed: str, example: str) -> tuple[str, str]:
    name, equals, values = typed.partition("=")
    if not (equals and name.strip() and values.strip()):
        raise ArgumentError(f"Expected {option} to be a name, = and what belongs to it, such as {example}.")
    return name.strip(), values.strip()


def _quoted(value: str | int) -> str:
    """A value as TOML writes it, which takes the escapes of JSON."""
    if isinstance(value, int):
        return str(value)
    if not value.isprintable():
        raise ArgumentError("A name or a label holds a character that cannot be printed. Edit the declaration by hand.")
    return json.dumps(value, ensure_ascii=False)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        sections = tomllib.loads(path.read_bytes().decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        # The rest of the message may repeat what stands there, and somebody may have passed the data.
        line = re.search(r"at line \d+", str(error))
        raise ArgumentError(f"{path} is not valid TOML{f': see {line[0][3:]}' if line else ''}.") from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise ArgumentError(f"{path} is not valid TOML, or not in UTF-8.") from None
    return {name: _table(name, section) for name, section in sections.items()}


def _table(name: str, section: object) -> dict[str, Any]:
    if not isinstance(section, dict):
        raise ArgumentError(f"Expected [{name}] to be a section of its own, got {type_name(section)}.")
    return section


def _known(where: str, facts: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    for name in facts:
        one_of(names, **{f"name in {where}": name})
    return facts


def _guarantee(where: str, facts: object) -> Guarantee:
    if not isinstance(facts, Mapping) or "kind" not in facts:
        raise ArgumentError(f'Expected {where} to have a kind, such as kind = "ApproxDP", and its numbers.')
    numbers = {name: value for name, value in facts.items() if name != "kind"}
    kind = KINDS[one_of(KINDS, **{f"kind in {where}": facts["kind"]})]
    if set(numbers) != set(kind.domains):
        raise ArgumentError(f"Expected {where} of the kind {facts['kind']} to have {' and '.join(kind.domains)}.")
    return kind(**numbers)


def _categories(name: str, labels: object) -> list[str | int]:
    kinds = {type(label) for label in labels} if isinstance(labels, list) else set()
    if not isinstance(labels, list) or kinds not in ({str}, {int}):
        raise ArgumentError(
            f"Expected categories in [variables.{name}] to list all values that {name!r} could take: all texts, or all "
            "integers."
        )
    return labels


# The columns of a CSV or Parquet file. **Secret**: no error of this file holds a value, a number or a place.


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
    if not _is_parquet(path):
        # Bytes that are no UTF-8 may stand in a record, and are no matter of this line.
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file, suppress(csv.Error):
            header = next(csv.reader(file, delimiter=declaration.delimiter, strict=True), [])
            for name in declaration.columns:
                _position(name, header)
        return
    pa, pq = _arrow(path)
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError):
        return
    of_kind = {
        "texts": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        "numbers": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    }
    for name in declaration.columns:
        kind = schema.field(_position(name, schema.names)).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        wanted = "texts" if isinstance(declaration.categories.get(name, [0])[0], str) else "numbers"
        if not (pa.types.is_null(kind) or any(is_kind(kind) for is_kind in of_kind[wanted])):
            raise ArgumentError(
                f"Expected the column {name!r} to hold {wanted}, as [variables] or counts declares, and it is of the "
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
        # Excel begins its files with a mark, which this encoding leaves out.
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=declaration.delimiter, strict=True)
            header = next(lines, [])
            places = [_position(name, header) for name in declaration.columns]
            rows = [[row[place] for place in places] for row in _records(lines, len(header))]
    except UnicodeDecodeError:
        problem = "is not written in UTF-8. Save it as UTF-8, by an editor or by iconv."
    except csv.Error:
        problem = "is no CSV file: some quotation mark is not closed, or a field is too long."
    else:
        return _values(rows, declaration)
    # Raised here, because those errors hold the data, and Python would keep them as its context.
    raise DataError(f"{path} {problem}")


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
            "line holds the names, and that delimiter in [data] is right."
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
