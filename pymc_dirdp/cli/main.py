"""The command line: what each command does, its arguments, and the code with which it ends."""

import argparse
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, override

from pymc_dirdp.cli.declaration import Declaration, check_schema, declared, read_columns, written
from pymc_dirdp.display import visible
from pymc_dirdp.errors import ArgumentError, BudgetError, DataError, DirdpError, LedgerError, UnattainableError
from pymc_dirdp.progress import Bar

if TYPE_CHECKING:
    import pymc as pm
    import xarray as xr

    from pymc_dirdp.accounting.ledger import Ledger
    from pymc_dirdp.display import Tabular
    from pymc_dirdp.releases.plan_types import Plan
    from pymc_dirdp.releases.report import Report
    from pymc_dirdp.releases.statement import Statement
    from pymc_dirdp.releases.verification import Verification

CODES = {
    0: "done",
    1: "verify: the guarantee does not follow from the file",
    2: "wrong use: an argument, the declaration, or a file that is missing or is not what it should be",
    3: "the data are not what the declaration says",
    4: "refused: the guarantee is not attainable, or the ledger does not allow it",
    5: "an error of this library",
}
_DONE, _FALSE, _WRONG, _DATA, _REFUSED, _OWN = CODES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process by default.

    Returns
    -------
    code : int
        As in `CODES`.
    """
    given = vars(_parser().parse_args(arguments))
    command = given.pop("run")
    # A label may have characters that the terminal cannot show.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        # Other libraries warn, and nobody has read what they print.
        warnings.simplefilter("ignore")
        try:
            with Bar(1, command.__name__, shown=True) as bar:
                result = command(**given)
                bar.advance()
            print(_as_commands(str(result)), flush=True)
        except BrokenPipeError:
            # The reader has left. Python would complain about it once more at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _DONE
        except KeyboardInterrupt:
            return _failed(_WRONG, "stopped")
        except Exception as error:
            return _failed(*_code_and_line(error))
    return _FALSE if command is verify and not result else _DONE


def _code_and_line(error: Exception) -> tuple[int, str]:
    """The code and the line for an error. No error that this library did not write is repeated: it may hold data."""
    if isinstance(error, DirdpError):
        refused = isinstance(error, BudgetError | LedgerError | UnattainableError)
        return _DATA if isinstance(error, DataError) else _REFUSED if refused else _WRONG, _in_a_declaration(str(error))
    if isinstance(error, ImportError) and "pip install" in str(error):
        return _WRONG, str(error)
    if isinstance(error, OSError):
        return _WRONG, f"{error.filename or 'a file'}: {error.strerror or type(error).__name__}"
    return _OWN, (
        f"{type(error).__name__} in this library or in one that it uses. Report it with the declaration, and without "
        "the data."
    )


def _as_commands(text: str) -> str:
    """A result with its last line, what to do next, as a command."""
    from pymc_dirdp.releases.wording import NEXT  # Help needs no release.

    for of_python, of_command in (*NEXT.values(), ("print(dirdp.verify(release).full)", "dirdp verify --full")):
        text = text.replace(of_python, of_command)
    return text


def _in_a_declaration(message: str) -> str:
    """An error of a function, with its arguments as a declaration names them."""
    # How errors write arguments of functions that a declaration has, too.
    otherwise = re.compile(r", as in otherwise=\{[^}]*\}")
    message = otherwise.sub(" in the data and in the declaration", message)
    argument = re.compile(
        r"\b(adjacency|draws|mechanism|min_count|n_records|objective|weights)="
        r"('[^']*'|\"[^\"]*\"|\d[\w.]*)?"
    )
    return argument.sub(lambda found: f"{found[1]} = {found[2]}" if found[2] else f"{found[1]} in [options]", message)


def _failed(code: int, message: str) -> int:
    print(f"dirdp: {visible(' '.join(message.split()))}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    @override
    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong with the arguments."""
        self.exit(_WRONG, f"dirdp: {message} (try --help)\n")


def _parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {code}  {meaning}" for code, meaning in CODES.items())
    parser = _Parser(
        prog="dirdp",
        description="Differentially private releases of counts and records. A declaration is a TOML file.",
        epilog=f"ends with:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pymc_dirdp {version('pymc-dirdp')}")
    commands = parser.add_subparsers(required=True, metavar="command")

    def add(run: Callable[..., object], summary: str) -> argparse.ArgumentParser:
        command: argparse.ArgumentParser = commands.add_parser(
            run.__name__, help=summary, description=summary[0].upper() + summary[1:] + "."
        )
        command.set_defaults(run=run)
        return command

    command = add(init, "write a declaration from the categories that you type")
    command.add_argument("declaration", type=Path, help="the TOML file to write")
    command.add_argument(
        "--variable",
        action="append",
        required=True,
        metavar="NAME=LABEL,LABEL",
        dest="variables",
        help="a variable and all values that it could take, typed without looking at the data; repeatable",
    )
    command.add_argument(
        "--given",
        action="append",
        default=[],
        metavar="NAME=PARENT,PARENT",
        help="the variables that a variable is conditional on; repeatable",
    )
    command.add_argument("--separator", default=",", help="what separates labels and parents (%(default)s)")
    command.add_argument("--epsilon", type=float, default=1.0, help="epsilon of the guarantee (%(default)s)")
    command.add_argument("--delta", type=float, default=1e-6, help="delta of the guarantee, 0 for none (%(default)s)")
    command.add_argument(
        "--contribution", type=int, required=True, help="the most records of the data that one person has"
    )
    command.add_argument("--counts", help="the column that says how many records a line stands for")
    command.add_argument("--records", type=int, help="how many records there are, if that is public")
    _add_force(command)

    command = add(plan, "the guarantee and the expected error of a release, before any count is read")
    command.add_argument("declaration", type=Path, help="a TOML file")
    command.add_argument("data", type=Path, nargs="?", help="a CSV or Parquet file; not needed if [data] has records")
    command.add_argument("--out", type=Path, help="write the plan to this JSON file")
    _add_force(command)

    command = add(release, "draw a release from data and write it to a file")
    command.add_argument("declaration", type=Path, help="a TOML file")
    command.add_argument("data", type=Path, help="a CSV or Parquet file")
    command.add_argument("--out", type=Path, required=True, help="write the release to this file")
    command.add_argument("--plan", type=Path, dest="plan_file", help="a plan that the command plan wrote")
    command.add_argument("--reservation", type=int, metavar="NUMBER", help="a reservation of the ledger that is used")
    _add_force(command)

    command = add(report, "the guarantee and the expected error of a release or a plan")
    command.add_argument("path", type=Path, help="a release, or a plan in a file that ends in .json")
    command.add_argument("--full", action="store_true", help="five deltas, assumptions, arithmetic, every table")

    command = add(statement, "the privacy statement to print under a published table, in Markdown")
    command.add_argument("path", type=Path, help="a release; or a declaration, for all that its ledger holds")
    command.add_argument("--json", action="store_true", dest="as_json", help="an entry for a register of deployments")

    command = add(analyse, "estimates from a release, with credible intervals that account for the privacy noise")
    command.add_argument("path", type=Path, help="a release")
    command.add_argument("--out", type=Path, help="write draws of shares and counts to this netCDF file")
    command.add_argument("--draws", type=int, default=1000, help="how many in each of four chains (%(default)s)")
    command.add_argument("--n-prior", type=int, metavar="N", help="0 to N records, where their number is private")
    _add_force(command)

    command = add(verify, "recompute the privacy guarantee of a release from its file")
    command.add_argument("path", type=Path, help="a release")
    command.add_argument("--full", action="store_true", help="what each check found, and what no file can show")

    command = add(ledger, "what was released under the budget of a declaration, checked entry by entry")
    command.add_argument("declaration", type=Path, help="a TOML file with a section [ledger]")
    command.add_argument("--new", action="store_true", help="make the ledger")
    command.add_argument("--head", help="a head that was noted before, through which the ledger has to have passed")
    return parser


def _add_force(command: argparse.ArgumentParser) -> None:
    command.add_argument("--force", action="store_true", help="replace the file that --out names, if there is one")


# What each command does. It calls the functions that a program would call, and returns what is printed.


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
        from pymc_dirdp.releases.saving import save

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
        check_schema(data, facts)
        given = None if plan_file is None else _read_plan(plan_file, facts)
        number = facts.records
        if number is None and given is not None and facts.adjacency == "replace-one":
            # Under add-remove the plan holds a guess, which says nothing of the data.
            number = given.parts[0].n_records
        # Without a ledger and a public number of records, the plan rests on the number in the data.
        first = budget is None and number is None and facts.adjacency == "replace-one"
        model = _model(facts, data, number) if first else _made_up(facts, number)
        from pymc_dirdp.releases.ledger_charge import Sealed
        from pymc_dirdp.releases.release import sample_sealed
        from pymc_dirdp.releases.saving import save

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
    from pymc_dirdp.releases.analysis import estimate

    tree = _opened(path)
    found = estimate(tree, n_prior=n_prior)
    if out is not None:
        with new_file(out, force=force) as aside:
            analysed(tree, draws, n_prior=n_prior).to_netcdf(aside, engine="h5netcdf")
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
            "one, restore the newest copy and check it by --head with the head that was noted last, or with the entry "
            "of the newest release, as number:hash: a new or an older one would forget what was spent."
        )
    return Ledger(facts.limit, facts.ledger, adjacency=facts.adjacency)


def _opened(path: Path) -> Any:
    from pymc_dirdp.releases.saving import load

    return load(path)


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
