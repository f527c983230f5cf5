"""What each command does: it reads a declaration and files, and calls what a program would call."""

import csv
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pymc_dirdp.cli.declaration import Declaration, declared, written
from pymc_dirdp.errors import ArgumentError, DataError, LedgerError

if TYPE_CHECKING:
    import pymc as pm
    import xarray as xr

    from pymc_dirdp.accounting.ledger import Ledger
    from pymc_dirdp.display import Tabular
    from pymc_dirdp.releases.plan_types import Plan
    from pymc_dirdp.releases.report import Report
    from pymc_dirdp.releases.statement import Statement
    from pymc_dirdp.releases.verification import Verification

__all__ = [
    "analyse",
    "init",
    "ledger",
    "plan",
    "release",
    "report",
    "statement",
    "verify",
]

# Files that are made whole or not at all, and that replace another one only if somebody says so.


@contextmanager
def new_file(path: Path, *, force: bool) -> Iterator[Path]:
    """A file beside `path`, which takes its place at the end of the block, if nothing goes wrong.

    The name is taken at the beginning, so before anything is spent: no two processes write the same file.

    Parameters
    ----------
    path : Path
        The name that the file gets.
    force : bool
        Whether it may replace another file.

    Raises
    ------
    ArgumentError
        If there is such a file already, or what is there is no file.
    OSError
        If no file can be made there.
    """
    taken = _take(path, force)
    try:
        handle, name = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=path.parent)
        os.close(handle)
        aside = Path(name)
        try:
            yield aside
            # A temporary file can be read by its owner alone, and others have the rights that this process gives.
            mask = os.umask(0)
            os.umask(mask)
            aside.chmod(0o666 & ~mask)
            aside.replace(path)
            taken = False
        finally:
            aside.unlink(missing_ok=True)
    finally:
        if taken:
            path.unlink(missing_ok=True)


def _take(path: Path, force: bool) -> bool:
    """Make an empty file of this name, or find that there is one that may be replaced; whether it was made."""
    if path.is_dir():
        raise ArgumentError(f"{path} is a folder. Name a file in it.")
    if path.exists() and not path.is_file():
        raise ArgumentError(f"{path} is no ordinary file, such as a device. Give another name.")
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        if not force:
            raise ArgumentError(f"{path} is there already. Give another name, or --force to replace it.") from None
        return False
    return True


# The columns of a CSV or Parquet file. **Secret**: no error of this file holds a value, a number or a place.


# A longer integer is no count, and Python refuses to read one of many thousand digits.
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


# What each command does. It calls the functions that a program would call, and returns what is printed.


_ENGINE: Final = "h5netcdf"


def init(declaration: Path, *, force: bool, **typed: Any) -> str:
    """A declaration of the categories that were typed, in a file."""
    text = written(**typed)
    with new_file(declaration, force=force) as aside:
        aside.write_text(text, encoding="utf-8")
        declared(aside)  # What cannot be read again is not left there.
    data = "" if typed["records"] is not None else " DATA, the file of the data"
    return f"{declaration} is written. Read it, and go on with: dirdp plan {declaration}{data}"


def plan(declaration: Path, data: Path | None, out: Path | None, *, force: bool) -> "Report":
    """The report of the plan, and the plan in a file if one is named."""
    facts = declared(declaration)
    if data is not None and facts.ledger is not None:
        raise ArgumentError(
            "Leave the data out, and declare records in [data], the public number of records: with a section [ledger] "
            "a plan reads no data, because it charges nothing."
        )
    chosen = _plan(facts, _made_up(facts, facts.records) if data is None else _model(facts, data, facts.records))
    if out is not None:
        from pymc_dirdp.releases.files import save

        with new_file(out, force=force) as aside:
            save(chosen, aside)
    return report_of(chosen)


def release(
    declaration: Path, data: Path, out: Path, *, plan_file: Path | None, force: bool, reservation: int | None = None
) -> "Report":
    """The report of a release, which is drawn and written. The data are read after the charge."""
    facts = declared(declaration)
    budget = _ledger(facts, new=False)
    if reservation is not None:
        if budget is None:
            raise ArgumentError("Declare [ledger], or leave --reservation out: a reservation is an entry of a ledger.")
        budget = budget.using(reservation)
    with new_file(out, force=force) as aside:
        refuse_unreadable(data)
        given = None if plan_file is None else _read_plan(plan_file, facts)
        number = facts.records
        if number is None and given is not None and facts.adjacency == "replace-one":
            # Under add-remove the plan holds a guess, which says nothing of the data.
            number = given.parts[0].n_records
        # Without a ledger and a public number of records, the plan rests on the number in the data.
        first = budget is None and number is None and facts.adjacency == "replace-one"
        model = _model(facts, data, number) if first else _made_up(facts, number)
        from pymc_dirdp.releases.files import save
        from pymc_dirdp.releases.ledger_charge import Sealed
        from pymc_dirdp.releases.release import sample_sealed

        sealed = Sealed(lambda: model if first else _model(facts, data, number), budget)
        chosen = given or _plan(facts, model)
        drawn = sample_sealed(chosen, model, sealed, progressbar=False)
        save(drawn, aside)
    return report_of(drawn)


def report(path: Path, *, full: bool = False) -> "Report":
    """The report of a release or of a plan, whichever the file holds."""
    return report_of(_opened(path), full=full)


def report_of(thing: "xr.DataTree | Plan", *, full: bool = False) -> "Report":
    """The report of a release or a plan."""
    from pymc_dirdp.releases.report import report as reported

    return reported(thing, full=full)


def statement(path: Path, *, as_json: bool) -> "Statement | str":
    """What can be printed under a published table, in Markdown or as an entry for a register."""
    from pymc_dirdp.releases.statement import statement as stated

    found = stated(_declared_ledger(path) if path.suffix == ".toml" else _opened(path))
    return found.to_json() if as_json else found


def analyse(path: Path, out: Path | None, *, draws: int, n_prior: int | None, force: bool) -> "Tabular":
    """Estimates from a release, and draws in a file if one is named."""
    from pymc_dirdp.releases.analysis import analyse as analysed
    from pymc_dirdp.releases.estimation import estimate

    tree = _opened(path)
    found = estimate(tree, n_prior=n_prior)
    if out is not None:
        with new_file(out, force=force) as aside:
            analysed(tree, draws, n_prior=n_prior).to_netcdf(aside, engine=_ENGINE)
    return found


def verify(path: Path, *, full: bool = False) -> "Verification":
    """Whether the guarantee of a release follows from its file."""
    from pymc_dirdp.releases.verification import verify as verified

    found = verified(_opened(path))
    return found.full if full else found


def ledger(declaration: Path, *, new: bool, head: str | None) -> str:
    """What was spent, after every entry was compared with its hash."""
    budget = _declared_ledger(declaration, new=new)
    return f"{budget}\nHead: {budget.verify(head)}"


def _declared_ledger(declaration: Path, *, new: bool = False) -> "Ledger":
    """The ledger of a declaration, which has to have one."""
    budget = _ledger(declared(declaration), new=new)
    if budget is None:
        raise ArgumentError(f"{declaration} has no section [ledger] with a path and a limit.")
    return budget


def _model(facts: Declaration, data: Path, number: int | None) -> "pm.Model":
    """The model of the declared variables and the data, which hold so many records if that is known. **Secret**."""
    columns = read_columns(data, facts)
    model = _network(facts, columns, facts.counts)
    if number is not None:
        counted = (
            len(columns[next(iter(facts.categories))]) if facts.counts is None else sum(map(int, columns[facts.counts]))
        )
        if counted != number:
            raise DataError("The data have another number of records than [data] or the plan declares.")
    return model


def _made_up(facts: Declaration, number: int | None) -> "pm.Model":
    """The same model of as many records of the first category of each variable. No data are read."""
    if facts.adjacency == "add-remove":
        number = 1  # It is private, and n_records in [options] says what to plan for.
    if number is None:
        unless = (
            "Give the data to the plan, too, or declare"
            if facts.ledger is None
            else "No data are read before the ledger is charged. Declare"
        )
        raise ArgumentError(f"{unless} records in [data], the number of records, if anybody may know it.")
    counts = "" if facts.counts is None else facts.counts  # No variable has this name.
    columns = {name: labels[:1] for name, labels in facts.categories.items()} | {counts: [number]}
    return _network(facts, columns, counts)


def _network(facts: Declaration, columns: dict[str, Any], counts: str | None) -> "pm.Model":
    from pymc_dirdp.networks.builders import bayesian_network

    return bayesian_network(columns, facts.structure, categories=facts.categories, alpha=facts.prior, counts=counts)


def _plan(facts: Declaration, model: "pm.Model") -> "Plan":
    from pymc_dirdp.releases.plan import plan as planned

    options: dict[str, Any] = facts.options
    # The command shows a bar of its own.
    plan: Plan = planned(facts.guarantee, model, progressbar=False, contribution=facts.contribution, **options)
    return plan


def _read_plan(path: Path, facts: Declaration) -> "Plan":
    """A plan from a file, which has to state the guarantee that was declared."""
    from pymc_dirdp.releases.plan_types import Plan

    given = _opened(path)
    if not isinstance(given, Plan):
        raise ArgumentError(f"{path} holds no plan; the command plan writes one.")
    theirs = given.guarantee, given.adjacency, given.reading.stated.contribution
    if theirs != (facts.guarantee, facts.adjacency, facts.contribution):
        raise ArgumentError(
            "The plan differs from the declaration in its guarantee, adjacency or contribution. Plan "
            "again from this declaration."
        )
    return given


def _ledger(facts: Declaration, *, new: bool) -> "Ledger | None":
    from pymc_dirdp.accounting.ledger import Ledger

    if facts.ledger is None or facts.limit is None:
        return None
    if facts.ledger.exists() == new:
        raise LedgerError(
            f"There is a ledger at {facts.ledger} already; leave --new out."
            if new
            else f"There is no ledger at {facts.ledger}. Make it once by the command ledger with --new. If there was "
            "one, restore it from a copy: a new one would forget what was spent."
        )
    return Ledger(facts.limit, facts.ledger, adjacency=facts.adjacency)


def _opened(path: Path) -> Any:
    from pymc_dirdp.releases.files import load

    return load(path)
