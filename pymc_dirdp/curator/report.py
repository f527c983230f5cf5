"""Reports on plans, releases and diagnoses. The report on a diagnosis is confidential."""

from collections.abc import Iterator
from os import PathLike

import numpy as np
import xarray as xr

from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.releases.claims import Claiming
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.report import Report
from pymc_dirdp.releases.report import report as report_of_release
from pymc_dirdp.signatures import user_facing


@user_facing
def report(release: xr.DataTree | str | PathLike[str] | Plan | Ledger | Claiming, *, full: bool = False) -> Report:
    r"""Describe the guarantee and the accuracy of a plan or a release, or the cost of privacy in a diagnosis.

    Parameters
    ----------
    release : xarray.DataTree, path-like, Plan, Ledger, ThompsonSampler or Transcript
        A release from :func:`pymc_dirdp.sample`, or the path of its file; a plan from :func:`pymc_dirdp.plan`, before
        any count is read; a ledger or a bandit; or a diagnosis from :func:`pymc_dirdp.diagnose`.
    full : bool
        Whether to include five deltas, assumptions, arithmetic and every table. By default a report has at most 15
        lines. Ignored for a diagnosis.

    Returns
    -------
    report : Report
        `print(report(release))` shows it as text of at most 80 columns, and a notebook shows it as a table. The report
        on a plan or a release holds public numbers only. If the stated guarantee does not follow from the release's own
        numbers, or the release was drawn with a seed, the title says so instead of stating a guarantee; see
        :func:`pymc_dirdp.verify`. The report on a diagnosis is **confidential**, and says so in its title and above
        each section.

    Raises
    ------
    ReleaseError
        If it is not a release, or is damaged.

    Notes
    -----
    A realised error has a rank, the share of fresh releases of the same data with a smaller error. For the KL of
    posteriors these are data sets from the prior predictive distribution. The bias of a cell is P1 equation 3, the
    distance of the mean of the draw from the cell's frequency. Its relative size is largest in the smallest cells, so
    the report lists these.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     heads = pm.Binomial("heads", n=1000, p=p, observed=300)
    ...     plan = dirdp.plan(dirdp.PureDP(epsilon=1.0), mechanism="geometric")
    >>> print("\n".join(str(dirdp.report(plan)).splitlines()[:4]))
    Plan of a private table of noisy counts of p, 1-DP
      error      a share is typically off by 0.013 (dirdp.estimate)
    <BLANKLINE>
      protects   every person, who holds at most 1 record of each table; the number
    """
    if isinstance(release, xr.DataTree) and {"guarantee", "cells", "realised"} <= set(release.children):
        return _of_diagnosis(release)
    return report_of_release(release, full=full)


def _of_diagnosis(diagnosis: xr.DataTree) -> Report:
    guarantee, mark = diagnosis["guarantee"].attrs, "CONFIDENTIAL, do not publish"
    cells = {name: group.to_dataset() for name, group in diagnosis["cells"].children.items()}
    guaranteed = (
        ("guarantee", str(guarantee["statement"])),
        ("protected", str(guarantee["protected"])),
        ("draws", f"{guarantee['released_draws']}, all covered by the guarantee"),
        ("this page", "is not covered, because it was computed from the data"),
    )
    sizes = {
        name: table_cells["records"].sum(list(table_cells["records"].dims)[-1]) for name, table_cells in cells.items()
    }
    several = [name for name, row_sizes in sizes.items() if row_sizes.size > 1]
    smallest_cells = [entry for name in cells for entry in _smallest(name, cells[name], cells[name]["records"], 8)]
    smallest_rows = [entry for name in several for entry in _smallest(name, cells[name], sizes[name], 3)]
    sections = {
        "errors of this release": tuple(_errors(diagnosis["realised"].to_dataset())),
        "the smallest cells": tuple((label, _of_cell(cell)) for label, cell in smallest_cells),
        "the smallest groups": tuple((label, _of_row(row)) for label, row in smallest_rows),
    }
    return Report(
        f"{mark}: the cost of privacy in {', '.join(cells)}",
        (
            ("Guarantee of the release", guaranteed),
            *((f"{mark}: {heading}", lines) for heading, lines in sections.items() if lines),
        ),
    )


def _errors(realised: xr.Dataset) -> Iterator[tuple[str, str]]:
    """Realised and expected divergences by table, with the rank of the realised one."""
    draw = "first draw" if realised.sizes["draw"] > 1 else "draw"
    what = {
        "kl_estimate": ("KL of the estimate", "fresh releases"),
        "kl_release": (f"KL of the {draw}", "fresh draws"),
        "kl_posterior": ("KL of the posteriors", "data sets of the prior"),
    }
    for name in realised["table"].values:
        errors = realised.sel(table=name).isel(draw=0)
        label = f" of {name}" if realised.sizes["table"] > 1 else ""
        for error, (error_name, others) in what.items():
            if error in errors:
                yield f"{error_name}{label}", _compared(errors, error, others)


def _compared(errors: xr.Dataset, what: str, others: str) -> str:
    parts = [f"{_known(errors[what])} nats", f"expected without the data {_known(errors[f'{what}_expected'])}"]
    if f"{what}_mean" in errors and np.isfinite(errors[f"{what}_mean"]):
        parts.append(f"with them {float(errors[f'{what}_mean']):.3g}")
    rank = float(errors[f"{what}_rank"])
    if np.isfinite(rank):
        parts.append(f"{100 * rank:.0f} % of {others} have a smaller error")
    return ", ".join(parts)


def _known(value: xr.DataArray) -> str:
    return f"{float(value):.3g}" if np.isfinite(value) else "unknown"


def _smallest(name: str, cells: xr.Dataset, records: xr.DataArray, most: int) -> Iterator[tuple[str, xr.Dataset]]:
    """The entries of a table with the fewest records, and their names from labels or numbers."""
    for place in np.argsort(records.values, axis=None, kind="stable")[:most]:
        index = dict(zip(records.dims, map(int, np.unravel_index(place, records.shape)), strict=True))
        entry = cells.isel(index)
        labels = [str(entry[dim].item()) if dim in entry.coords else str(i) for dim, i in index.items()]
        yield f"{name}[{', '.join(labels)}]", entry


def _of_cell(cell: xr.Dataset) -> str:
    share = float(cell["share"])
    if not np.isfinite(share):
        return "a row without records"
    parts = [f"{float(cell['records']):g} records, a share of {share:.3g}"]
    for what, named in (("released", "released"), ("estimate", "estimated")):
        if what in cell and np.isfinite(cell[what]):
            parts.append(f"{named} as {float(cell[what]):.3g}")
    for what, named in (("error_of_draw", "the draw"), ("error_of_estimate", "the estimate")):
        if what in cell:
            parts.append(f"{named} is typically off by {float(cell[what]):.2g}")
    if "bias_of_draw" in cell:
        bias = float(cell["bias_of_draw"])
        relative = f" ({100 * bias / share:+.0f} %)" if share > 0 else ""
        parts.append(f"the mean of the draw by {bias:+.2g}{relative}")
    return ", ".join(parts)


def _of_row(row: xr.Dataset) -> str:
    worst = float(np.abs(row["estimate"] - row["share"]).max())
    error = f", the worst share of the estimate is off by {worst:.2g}" if np.isfinite(worst) else ""
    return f"{float(row['records'].sum()):g} records{error}"
