"""The arguments of the command line, and the code with which it ends."""

import argparse
import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn, override

from pymc_dirdp.cli import actions
from pymc_dirdp.display import visible
from pymc_dirdp.errors import BudgetError, DataError, DirdpError, LedgerError, UnattainableError
from pymc_dirdp.progress import Bar

__all__ = ["CODES", "main"]

CODES = {
    0: "done",
    1: "verify: the guarantee does not follow from the file",
    2: "wrong use: an argument, the declaration, or a file that is missing or is not what it should be",
    3: "the data are not what the declaration says",
    4: "refused: the guarantee is not attainable, or the ledger does not allow it",
    5: "an error of this library",
}
_DONE, _FALSE, _WRONG, _DATA, _REFUSED, _OWN = CODES
# How errors write arguments of functions that a declaration has, too.
_OTHERWISE = re.compile(r", as in otherwise=\{[^}]*\}")
_ARGUMENT = re.compile(
    r"\b(adjacency|draws|mechanism|min_count|n_records|objective|weights)="
    r"('[^']*'|\"[^\"]*\"|\d[\w.]*)?"
)


class _Parser(argparse.ArgumentParser):
    @override
    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong with the arguments."""
        self.exit(_WRONG, f"dirdp: {message} (try --help)\n")


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
    command = getattr(actions, name := given.pop("command"))
    # A label may have characters that the terminal cannot show.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        # Other libraries warn, and nobody has read what they print.
        warnings.simplefilter("ignore")
        try:
            with Bar(1, name, shown=True) as bar:
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
    return _FALSE if command is actions.verify and not result else _DONE


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
    message = _OTHERWISE.sub(" in the data and in the declaration", message)
    return _ARGUMENT.sub(lambda found: f"{found[1]} = {found[2]}" if found[2] else f"{found[1]} in [options]", message)


def _failed(code: int, message: str) -> int:
    print(f"dirdp: {visible(' '.join(message.split()))}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {code}  {meaning}" for code, meaning in CODES.items())
    parser = _Parser(
        prog="dirdp",
        description="Differentially private releases of counts and records. A declaration is a TOML file.",
        epilog=f"ends with:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pymc_dirdp {version('pymc-dirdp')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")

    init = add("init", "write a declaration from the categories that you type")
    init.add_argument("declaration", type=Path, help="the TOML file to write")
    init.add_argument(
        "--variable",
        action="append",
        required=True,
        metavar="NAME=LABEL,LABEL",
        dest="variables",
        help="a variable and all values that it could take, typed without looking at the data; repeatable",
    )
    init.add_argument(
        "--given",
        action="append",
        default=[],
        metavar="NAME=PARENT,PARENT",
        help="the variables that a variable is conditional on; repeatable",
    )
    init.add_argument("--separator", default=",", help="what separates labels and parents (%(default)s)")
    init.add_argument("--epsilon", type=float, default=1.0, help="epsilon of the guarantee (%(default)s)")
    init.add_argument("--delta", type=float, default=1e-6, help="delta of the guarantee, 0 for none (%(default)s)")
    init.add_argument(
        "--contribution", type=int, required=True, help="the most records of the data that one person has"
    )
    init.add_argument("--counts", help="the column that says how many records a line stands for")
    init.add_argument("--records", type=int, help="how many records there are, if that is public")
    _add_force(init)

    plan = add("plan", "the guarantee and the expected error of a release, before any count is read")
    plan.add_argument("declaration", type=Path, help="a TOML file")
    plan.add_argument("data", type=Path, nargs="?", help="a CSV or Parquet file; not needed if [data] has records")
    plan.add_argument("--out", type=Path, help="write the plan to this JSON file")
    _add_force(plan)

    release = add("release", "draw a release from data and write it to a file")
    release.add_argument("declaration", type=Path, help="a TOML file")
    release.add_argument("data", type=Path, help="a CSV or Parquet file")
    release.add_argument("--out", type=Path, required=True, help="write the release to this file")
    release.add_argument("--plan", type=Path, dest="plan_file", help="a plan that the command plan wrote")
    release.add_argument("--reservation", type=int, metavar="NUMBER", help="a reservation of the ledger that is used")
    _add_force(release)

    report = add("report", "the guarantee and the expected error of a release or a plan")
    report.add_argument("path", type=Path, help="a release, or a plan in a file that ends in .json")
    report.add_argument("--full", action="store_true", help="five deltas, assumptions, arithmetic, every table")

    statement = add("statement", "the privacy statement to print under a published table, in Markdown")
    statement.add_argument("path", type=Path, help="a release; or a declaration, for all that its ledger holds")
    statement.add_argument("--json", action="store_true", dest="as_json", help="an entry for a register of deployments")

    analyse = add("analyse", "estimates from a release, with credible intervals that account for the privacy noise")
    analyse.add_argument("path", type=Path, help="a release")
    analyse.add_argument("--out", type=Path, help="write draws of shares and counts to this netCDF file")
    analyse.add_argument("--draws", type=int, default=1000, help="how many in each of four chains (%(default)s)")
    analyse.add_argument("--n-prior", type=int, metavar="N", help="0 to N records, where their number is private")
    _add_force(analyse)

    verify = add("verify", "recompute the privacy guarantee of a release from its file")
    verify.add_argument("path", type=Path, help="a release")
    verify.add_argument("--full", action="store_true", help="what each check found, and what no file can show")

    ledger = add("ledger", "what was released under the budget of a declaration, checked entry by entry")
    ledger.add_argument("declaration", type=Path, help="a TOML file with a section [ledger]")
    ledger.add_argument("--new", action="store_true", help="make the ledger")
    ledger.add_argument("--head", help="a head that was noted before, through which the ledger has to have passed")
    return parser


def _add_force(command: argparse.ArgumentParser) -> None:
    command.add_argument("--force", action="store_true", help="replace the file that --out names, if there is one")
