"""The arguments of the command line, and the code with which it ends."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, override

from pymc_dirdp.commands import actions
from pymc_dirdp.display import visible
from pymc_dirdp.errors import BudgetError, DataError, DirdpError, LedgerError, UnattainableError

__all__ = ["CODES", "main"]

CODES = {
    0: "done",
    1: "verify: the promise does not follow from the file",
    2: "wrong use: an argument, the declaration, or a file that is missing or is not what it should be",
    3: "the data are not what the declaration says",
    4: "refused: the promise cannot be kept, or the ledger does not allow it",
    5: "an error of this library",
}
_DONE, _FALSE, _WRONG, _DATA, _REFUSED, _OWN = CODES


class _Parser(argparse.ArgumentParser):
    @override
    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong with the arguments."""
        self.exit(_WRONG, f"pymc_dirdp: {message} (try --help)\n")


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
    command = getattr(actions, given.pop("command"))
    # A label may have characters that the terminal cannot show.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        # Other libraries warn, and nobody has read what they print.
        warnings.simplefilter("ignore")
        try:
            result = command(**given)
            print(result, flush=True)
        except BrokenPipeError:
            # Whoever read this has left. Python would complain about it once more at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _DONE
        except KeyboardInterrupt:
            return _failed(_WRONG, "stopped")
        except Exception as error:
            return _failed(*_told(error))
    return _FALSE if command is actions.verify and not result else _DONE


def _told(error: Exception) -> tuple[int, str]:
    """The code and the line for an error. No error that this library did not write is repeated: it may hold data."""
    if isinstance(error, DirdpError):
        refused = isinstance(error, BudgetError | LedgerError | UnattainableError)
        return _DATA if isinstance(error, DataError) else _REFUSED if refused else _WRONG, str(error)
    if isinstance(error, ImportError) and "pip install" in str(error):
        return _WRONG, str(error)
    if isinstance(error, OSError):
        return _WRONG, f"{error.filename or 'a file'}: {error.strerror or type(error).__name__}"
    return _OWN, (
        f"{type(error).__name__} in this library or in one that it uses. Report it with the declaration, and without "
        "the data."
    )


def _failed(code: int, message: str) -> int:
    print(f"pymc_dirdp: {visible(' '.join(message.split()))}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {code}  {meaning}" for code, meaning in CODES.items())
    parser = _Parser(
        prog="python -m pymc_dirdp",
        description="Private posterior draws of counts and records. A declaration is a TOML file of public facts.",
        epilog=f"ends with:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")

    plan = add("plan", "what a release would promise and how accurate it would be, before any count is read")
    plan.add_argument("declaration", type=Path, help="a TOML file")
    plan.add_argument("data", type=Path, nargs="?", help="a CSV or Parquet file; not needed if [data] has records")
    plan.add_argument("--out", type=Path, help="write the plan to this JSON file")
    _add_force(plan)

    release = add("release", "draw a release from data and write it to a netCDF file")
    release.add_argument("declaration", type=Path, help="a TOML file")
    release.add_argument("data", type=Path, help="a CSV or Parquet file")
    release.add_argument("--out", type=Path, required=True, help="write the release to this netCDF file")
    release.add_argument("--plan", type=Path, dest="plan_file", help="a plan that the command plan wrote")
    release.add_argument("--reservation", type=int, metavar="NUMBER", help="a reservation of the ledger that is used")
    _add_force(release)

    report = add("report", "what a release or a plan promises and how accurate it is")
    report.add_argument("path", type=Path, help="a release, or a plan in a file that ends in .json")

    analyse = add("analyse", "what may be concluded from a release, with intervals that know about the noise")
    analyse.add_argument("path", type=Path, help="a release")
    analyse.add_argument("--out", type=Path, help="write draws of shares and counts to this netCDF file")
    analyse.add_argument("--draws", type=int, default=4000, help="how many (%(default)s)")
    analyse.add_argument("--n-prior", type=int, metavar="N", help="0 to N records, where their number is private")
    _add_force(analyse)

    verify = add("verify", "whether the promise of a release follows from its file")
    verify.add_argument("path", type=Path, help="a release")

    ledger = add("ledger", "what was released under the budget of a declaration, checked entry by entry")
    ledger.add_argument("declaration", type=Path, help="a TOML file with a section [ledger]")
    ledger.add_argument("--new", action="store_true", help="make the ledger")
    ledger.add_argument("--head", help="a head that was noted before, through which the ledger has to have passed")
    return parser


def _add_force(command: argparse.ArgumentParser) -> None:
    command.add_argument("--force", action="store_true", help="replace the file that --out names, if there is one")
