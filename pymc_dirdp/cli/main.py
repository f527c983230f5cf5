"""The command line: the commands, their arguments and their exit codes."""

import argparse
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, override

import pymc_dirdp as dirdp
from pymc_dirdp import errors
from pymc_dirdp.cli.columns import check_schema, count_file, read_columns
from pymc_dirdp.cli.declaration import Declaration, read_declaration, to_toml
from pymc_dirdp.cli.wording import CODES, DONE, FALSE, WRONG, as_commands, code_and_line
from pymc_dirdp.display import escape_invisible
from pymc_dirdp.errors import ArgumentError, DataError, LedgerError
from pymc_dirdp.numerics.roots import floor_to_digits as down
from pymc_dirdp.progress import Bar
from pymc_dirdp.texts.files import new_file

if TYPE_CHECKING:
    import pandas as pd
    import pymc as pm
    import xarray as xr

    from pymc_dirdp.counting.bounding import Bound
    from pymc_dirdp.networks.builders import NetworkTables
    from pymc_dirdp.releases.analysis import Estimates
    from pymc_dirdp.releases.plan_types import Plan


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default the arguments of the process.

    Returns
    -------
    code : int
        The exit code, see `CODES`.
    """
    options = vars(_parser().parse_args(arguments))
    command = options.pop("run")
    # A label may have characters that the terminal cannot display.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        # Warnings of other libraries are not about the declaration.
        warnings.simplefilter("ignore")
        try:
            with Bar(1, command.__name__, shown=True) as bar:
                result = command(**options)
                bar.advance()
            print(as_commands(str(result)), flush=True)
        except BrokenPipeError:
            # The reader has closed the pipe. Without this, Python would raise the error again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
        except KeyboardInterrupt:
            return _failed(WRONG, "stopped")
        except Exception as error:
            return _failed(*code_and_line(error))
    return FALSE if command is verify and not result else DONE


def _failed(code: int, message: str) -> int:
    print(f"dirdp: {escape_invisible(' '.join(message.split()))}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    @override
    def error(self, message: str) -> NoReturn:
        """Print the error about the arguments in one line."""
        self.exit(WRONG, f"dirdp: {message} (try --help)\n")


_FULL = "print five deltas, assumptions, arithmetic and every table, too"


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

    def add(run: Callable[..., object], writes: str | None = None) -> argparse.ArgumentParser:
        """Add a command with the name of a function and the first line of its docstring as help.

        It writes `writes` to the file that `--out` names.
        """
        summary = str(run.__doc__).partition("\n")[0].rstrip(".")
        command: argparse.ArgumentParser = commands.add_parser(
            run.__name__, help=summary[0].lower() + summary[1:], description=f"{summary}."
        )
        command.set_defaults(run=run)
        if writes is not None:
            needed = run is release
            command.add_argument("--out", type=Path, required=needed, help=f"write {writes} to this file")
        if writes is not None or run is init:
            command.add_argument("--overwrite", action="store_true", help="replace the file, if there is one")
        return command

    command = add(init)
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
        dest="parents",
        help="the variables that a variable is conditional on; repeatable",
    )
    command.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME=VARIABLE,VARIABLE",
        dest="tables",
        help="a cross-table of these variables, with one row of all their combinations; repeatable",
    )
    command.add_argument(
        "--otherwise",
        action="append",
        default=[],
        metavar="NAME=LABEL",
        help="the label that missing and undeclared values of a variable are counted as; repeatable",
    )
    command.add_argument("--separator", default=",", help="what separates labels and names (%(default)s)")
    command.add_argument("--epsilon", type=float, default=1.0, help="epsilon of the guarantee (%(default)s)")
    command.add_argument("--delta", type=float, default=1e-6, help="delta of the guarantee, 0 for none (%(default)s)")
    command.add_argument(
        "--contribution",
        type=int,
        required=True,
        help="the maximum number of records of a person, or with --unit of those that are counted",
    )
    command.add_argument("--unit", metavar="COLUMN", help="the column that identifies the person of a line")
    command.add_argument("--counts", metavar="COLUMN", help="the column with the number of records of a line")
    command.add_argument("--records", type=int, metavar="N", help="the number of records, if it is public")
    command.add_argument(
        "--n-records", type=int, metavar="N", help="the number of records to plan for, if their number is private"
    )
    command.add_argument(
        "--delimiter",
        type=lambda typed: typed.replace("\\t", "\t"),
        help=r"the character between the fields of a CSV file, \t for a tab (,)",
    )
    command.add_argument("--encoding", help="the encoding of a CSV file (utf-8)")

    command = add(check)
    command.add_argument("declaration", type=Path, help="a TOML file")
    command.add_argument("data", type=Path, nargs="?", help="a CSV or Parquet file, whose column names are read")
    command.add_argument("--full", action="store_true", help=_FULL)

    command = add(plan, writes="the plan")
    command.add_argument("declaration", type=Path, help="a TOML file")
    command.add_argument("data", type=Path, nargs="?", help="a CSV or Parquet file; not needed if [data] has records")
    command.add_argument("--full", action="store_true", help=_FULL)

    command = add(release, writes="the release")
    command.add_argument("declaration", type=Path, help="a TOML file")
    command.add_argument("data", type=Path, help="a CSV or Parquet file")
    command.add_argument("--plan", type=Path, dest="plan_file", help="a plan that the command plan wrote")
    command.add_argument("--reservation", type=int, metavar="NUMBER", help="the reservation of the ledger to use")

    command = add(report)
    command.add_argument("path", type=Path, help="a release or a plan; or a declaration, for its ledger")
    command.add_argument("--full", action="store_true", help=_FULL)

    command = add(statement)
    command.add_argument("path", type=Path, help="a release; or a declaration, for all entries of its ledger")
    command.add_argument("--json", action="store_true", dest="as_json", help="an entry for a register of deployments")

    command = add(analyse, writes="draws of shares and counts, as CSV if its name ends so, or netCDF,")
    command.add_argument("path", type=Path, help="a release")
    command.add_argument("--draws", type=int, default=1000, help="draws in each of four chains (%(default)s)")
    command.add_argument("--csv", type=Path, metavar="FILE", help="write a line for each cell to this file")
    command.add_argument("--json", action="store_true", dest="as_json", help="print the cells as JSON")
    command.add_argument(
        "--columns", nargs="+", metavar="NAME", help="one to three columns of a wide table, whose cells are estimated"
    )
    command.add_argument("--n-prior", type=int, metavar="N", help="the largest possible number of records, if private")

    command = add(verify)
    command.add_argument("path", type=Path, help="a release or a plan; or a declaration, for its ledger")
    command.add_argument("--full", action="store_true", help="the result of each check, and the assumptions")

    command = add(ledger)
    command.add_argument("declaration", type=Path, help="a TOML file with a section [ledger]")
    command.add_argument("--new", action="store_true", help="create the ledger")
    command.add_argument("--head", help="an earlier head, which must be in the history of the ledger")
    return parser


# The commands. They call the public functions, and return the object to print.


def init(declaration: Path, *, overwrite: bool, **options: Any) -> str:
    """Write a declaration from the categories that you type."""
    if options["records"] is not None and options["n_records"] is not None:
        raise ArgumentError("Give --records if the number of records is public, or --n-records if it is private.")
    if options["unit"] is not None and options["contribution"] > 1 and options["n_records"] is None:
        raise ArgumentError(
            "Pass --n-records, the number of records to plan for: if more than one record of each "
            f"{options['unit']!r} is counted, the number of records depends on who they are, so it is private."
        )
    text = to_toml(**options)
    with new_file(declaration, overwrite=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")
        facts = read_declaration(temporary)
        # A declaration without a plan leaves no file.
        _refuse_unplannable(facts)
    is_known = options["records"] is not None or facts.adjacency == "add-remove"
    data = "" if is_known else " DATA, the file of the data"
    return f"{declaration} is written. Read it, then run: dirdp plan {declaration}{data}"


def check(declaration: Path, data: Path | None, *, full: bool = False) -> object:
    """Check a declaration, its ledger and the column names of the data, and show what a release would cost.

    No record is read, and nothing is charged.
    """
    from pymc_dirdp.releases.ledger_charge import refuse_unaffordable
    from pymc_dirdp.releases.report import Report

    facts = read_declaration(declaration)
    budget = _ledger(facts, new=False)
    lines = [("tables", "; ".join(_tables(facts).descriptions))]
    if data is not None:
        check_schema(data, facts)
        lines.append(("data", f"{data} names {', '.join(facts.columns)}; no record was read"))
    unknown = "unknown without records in [data], the number of records"
    answer: tuple[tuple[str, Any], ...] = (("", (("expected error", unknown), ("guarantee", str(facts.guarantee)))),)
    if facts.records is None and budget is None and facts.adjacency != "add-remove":
        _refuse_unplannable(facts)
    else:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            new_plan = _plan(facts, _made_up(facts, facts.records))
        # Warnings of other libraries are not about the declaration.
        lines += [("warning", str(item.message)) for item in caught if item.category.__module__ == errors.__name__]
        answer = dirdp.report(new_plan, full=full).sections
        if budget is not None:
            refuse_unaffordable(new_plan, budget)
    state = "none: nobody adds up the privacy losses of your releases"
    if budget is not None:
        left = ", ".join(f"{name} {down(number):.6g}" for name, number in budget.left.items())
        state = f"{facts.ledger}: {len(budget.entries())} entries; remaining: {left}; this release fits"
    lines.append(("ledger", state))
    return Report(f"{declaration} is in order", (("", tuple(lines)), *answer))


def plan(declaration: Path, data: Path | None, out: Path | None, *, overwrite: bool, full: bool = False) -> object:
    """The guarantee and the expected error of a release, before any count is read."""
    facts = read_declaration(declaration)
    if data is not None and facts.ledger is not None:
        raise ArgumentError(
            "Leave the data out, and declare records in [data], the public number of records: with a section [ledger] "
            "a plan reads no data, because it charges nothing."
        )
    if data is not None:
        check_schema(data, facts)
        _refuse_unplannable(facts)
    new_plan = _plan(facts, _made_up(facts, facts.records) if data is None else _model(facts, data, facts.records))
    if out is not None:
        with new_file(out, overwrite=overwrite) as temporary:
            dirdp.save(new_plan, temporary)
    return dirdp.report(new_plan, full=full)


def release(
    declaration: Path, data: Path, out: Path, *, plan_file: Path | None, overwrite: bool, reservation: int | None = None
) -> object:
    """Draw a release from data and write it to a file.

    The data are read after the charge.
    """
    facts = read_declaration(declaration)
    budget = _ledger(facts, new=False)
    if reservation is not None:
        if budget is None:
            raise ArgumentError("Declare [ledger], or leave --reservation out: a reservation is an entry of a ledger.")
        budget = budget.using(reservation)
    with new_file(out, overwrite=overwrite) as temporary:
        check_schema(data, facts)
        saved_plan = None if plan_file is None else _read_plan(plan_file, facts)
        number = facts.records
        if number is None and saved_plan is not None and facts.adjacency == "replace-one":
            # Under add-remove the plan has a guess, which need not be the number in the data.
            number = saved_plan.parts[0].n_records
        # Without a ledger and a public number of records, the plan uses the number in the data.
        counts_first = budget is None and number is None and facts.adjacency == "replace-one"
        if counts_first:
            _refuse_unplannable(facts)
        model = _model(facts, data, number) if counts_first else _made_up(facts, number)
        from pymc_dirdp.accounting.opening import Counting
        from pymc_dirdp.releases.release import sample_sealed

        release_plan = saved_plan or _plan(facts, model)
        tables = _tables(facts)
        count = partial(
            count_file, declaration=facts, families=tables.families, flat=set(tables.axes), bound=_bound(facts)
        )
        counting = None if counts_first else Counting(data, count, has_numbers=True)
        tree = sample_sealed(release_plan, model, counting, ledger=budget, progressbar=False)
        dirdp.save(tree, temporary)
    return dirdp.report(tree)


def report(path: Path, *, full: bool = False) -> object:
    """The guarantee and the expected error of a release or a plan, or the entries of a ledger."""
    return dirdp.report(_content(path), full=full)


def statement(path: Path, *, as_json: bool) -> object:
    """The privacy statement to print under a published table, in Markdown."""
    result = dirdp.statement(_content(path))
    return result.to_json() if as_json else result


def analyse(
    path: Path,
    out: Path | None,
    *,
    draws: int,
    csv: Path | None,
    as_json: bool,
    columns: list[str] | None,
    n_prior: int | None,
    overwrite: bool,
) -> object:
    """Estimates from a release, with credible intervals that account for the privacy noise."""
    tree = dirdp.load(path)
    # The files are reserved before anything is computed.
    with ExitStack() as files:
        table, draws_file = (
            None if file is None else files.enter_context(new_file(file, overwrite=overwrite)) for file in (csv, out)
        )
        estimates = dirdp.estimate(tree, [_LEVEL], columns=columns, n_prior=n_prior, progressbar=False)
        if table is not None:
            estimates.tidy().to_csv(table, index=False, encoding="utf-8", lineterminator="\n")
        if draws_file is not None:
            analysis = dirdp.analyse(tree, draws, n_prior=n_prior, progressbar=False)
            if draws_file.suffix.lower() == ".csv":
                by_draw = _draws_by_cell(estimates, analysis)
                by_draw.to_csv(draws_file, index=False, encoding="utf-8", lineterminator="\n", float_format="%.9g")
            else:
                # Likelihoods may take far longer than the draws, and replicates are computed in Python.
                later = {"posterior_predictive", "log_likelihood", "log_prior"} & set(analysis.children)
                analysis.drop_nodes(later).to_netcdf(draws_file, engine="h5netcdf")
    return _as_json(estimates) if as_json else estimates


def _draws_by_cell(estimates: "Estimates", analysis: "xr.DataTree") -> "pd.DataFrame":
    """A row for each draw: the share of each cell, in the order of the lines of `--csv`, and then each count."""
    import numpy as np
    import pandas as pd

    columns: dict[str, Any] = {}
    for group, what in (("posterior", "share"), ("latent_counts", "count")):
        for name, cells in estimates.cells.items():
            values = analysis[group].to_dataset()[name].values
            if values.ndim < analysis["latent_counts"].to_dataset()[name].ndim:
                # The posterior of a Beta variable has the probability of a success.
                values = np.stack([values, 1 - values], axis=-1)
            names = (f"{what} {cell}" for cell in cells)
            columns |= dict(zip(names, values.reshape(-1, len(cells)).T, strict=True))
    return pd.DataFrame(columns)


_LEVEL = 0.95
"""The probability of the intervals."""


def _as_json(estimates: "Estimates") -> str:
    """The rows of a tidy frame and their conditions, as JSON, in which infinite and missing numbers are null."""
    frame = estimates.tidy().astype(object)
    rows = [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
        for row in frame.where(frame.notna(), None).to_dict("records")
    ]
    content = {"interval_probability": _LEVEL, "given": estimates.conditions, "cells": rows}
    return json.dumps(content, indent=1, allow_nan=False, default=str)


def verify(path: Path, *, full: bool = False) -> object:
    """Recompute the privacy guarantee of a release, a plan or a ledger from its file."""
    verification = dirdp.verify(_content(path))
    return verification.full if full else verification


def ledger(declaration: Path, *, new: bool, head: str | None) -> str:
    """The releases under the budget of a declaration, with every entry verified."""
    budget = _declared_ledger(declaration, new=new)
    return f"{budget}\nHead: {budget._verified(head)}"


def _content(path: Path) -> Any:
    """The content of a file: a release, a plan, or the ledger of a declaration."""
    return _declared_ledger(path) if path.suffix == ".toml" else dirdp.load(path)


def _declared_ledger(declaration: Path, *, new: bool = False) -> "dirdp.Ledger":
    """The ledger of a declaration, which must have one."""
    budget = _ledger(read_declaration(declaration), new=new)
    if budget is None:
        raise ArgumentError(f"{declaration} has no section [ledger] with a path and a limit.")
    return budget


def _tables(facts: Declaration) -> "NetworkTables":
    """The declared tables."""
    from pymc_dirdp.networks.builders import NetworkTables  # Other commands do not need this slow import.

    return NetworkTables.of(facts.structure, facts.crosses, categories=facts.categories, prior=facts.prior)


def _model(facts: Declaration, data: Path, number: int | None) -> "pm.Model":
    """The model of the declared variables and the data, with this number of records if it is known. **Secret**."""
    columns = read_columns(data, facts)
    model = _tables(facts).model_of(columns, otherwise=facts.otherwise, bound=_bound(facts), counts_column=facts.counts)
    if number is not None and number != model.rvs_to_values[model.observed_RVs[0]].data.sum():
        raise DataError("The data have another number of records than [data] or the plan declares.")
    return model


def _made_up(facts: Declaration, number: int | None) -> "pm.Model":
    """The same model with all records in one cell of each table. No data are read."""
    if facts.adjacency == "add-remove":
        number = 1  # It is private, and n_records in [options] is the planning size.
    if number is None:
        unless = (
            "Pass the data to the plan, too, or declare"
            if facts.ledger is None
            else "No data are read before the ledger is charged. Declare"
        )
        raise ArgumentError(f"{unless} records in [data], the number of records, if it is public.")
    return _tables(facts).planning_model(number, _bound(facts))


def _refuse_unplannable(facts: Declaration) -> None:
    """Raise the error of a plan of this declaration. No data are read, so it does not depend on them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The real number of records may differ.
        _plan(facts, _made_up(facts, 1000 if facts.records is None else facts.records))


def _bound(facts: Declaration) -> "Bound | None":
    """The unit, and the maximum number of records that are counted of each."""
    from pymc_dirdp.counting.bounding import checked_bound

    return None if facts.unit is None else checked_bound(facts.unit, facts.contribution, distinct=False)


def _plan(facts: Declaration, model: "pm.Model") -> "Plan":
    options: dict[str, Any] = facts.options
    # The command itself shows a bar.
    result: Plan = dirdp.plan(facts.guarantee, model, progressbar=False, contribution=facts.contribution, **options)
    return result


def _read_plan(path: Path, facts: Declaration) -> "Plan":
    """A plan from a file, which must state the declared guarantee."""
    from pymc_dirdp.releases.plan_types import Plan

    saved_plan = dirdp.load(path)
    if not isinstance(saved_plan, Plan):
        raise ArgumentError(f"{path} is not a plan; the command plan writes one.")
    unit = saved_plan.adjacency, saved_plan.unit_options.contribution, saved_plan.unit_options.counted
    if (saved_plan.guarantee, *unit) != (facts.guarantee, facts.adjacency, facts.contribution, facts.unit):
        raise ArgumentError(
            "The plan differs from the declaration in its guarantee, adjacency, contribution or unit. Plan again from "
            "this declaration."
        )
    return saved_plan


def _ledger(facts: Declaration, *, new: bool) -> "dirdp.Ledger | None":
    if facts.ledger is None or facts.limit is None:
        return None
    if facts.ledger.exists() == new:
        raise LedgerError(
            f"There is a ledger at {facts.ledger} already; leave --new out."
            if new
            else f"There is no ledger at {facts.ledger}. Create it once by the command ledger with --new. If there was "
            "one, restore the newest copy and check it by --head with its last head, or with the entry of the newest "
            "release, as number:hash. A new or an older ledger would forget what was spent."
        )
    return dirdp.Ledger(facts.limit, facts.ledger, adjacency=facts.adjacency)
