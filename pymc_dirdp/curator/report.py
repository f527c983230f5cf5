"""One page on a plan, a release or a diagnosis. What is on a page about a diagnosis is confidential."""

from collections.abc import Hashable, Iterable, Iterator
from os import PathLike

import numpy as np
import xarray as xr

from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.report import Report
from pymc_dirdp.releases.report import report as report_of_release
from pymc_dirdp.releases.verification import Claiming
from pymc_dirdp.signatures import user_facing


@user_facing
def report(release: xr.DataTree | str | PathLike[str] | Plan | Ledger | Claiming, *, full: bool = False) -> Report:
    r"""Describe the guarantee and the accuracy of a plan or a release, or what privacy has cost by a diagnosis.

    Parameters
    ----------
    release : xarray.DataTree, path-like, Plan, Ledger, ThompsonSampler or Transcript
        A release from :func:`pymc_dirdp.sample`, or the path of its file; a plan from :func:`pymc_dirdp.plan`, before
        any count is read; a ledger or a bandit; or a diagnosis from :func:`pymc_dirdp.diagnose`.
    full : bool
        Whether to say everything: five deltas, assumptions, arithmetic, every table. The default is 15 lines at most.
        It is ignored for a diagnosis.

    Returns
    -------
    report : Report
        `print(report(release))` shows it as text of at most 80 columns; a notebook shows it as a table. Of a plan or a
        release it holds public numbers only. Where the stated guarantee does not follow from the release's own numbers,
        or the release was drawn with a seed, the title says so and states no guarantee; see :func:`pymc_dirdp.verify`.
        The report on a diagnosis is **confidential**, and says so in its title and above each section.

    Raises
    ------
    ReleaseError
        If it is no release, or is damaged.

    Notes
    -----
    A realised error has a rank: the share of fresh releases of the same data that err less; for the KL of posteriors,
    of data sets that the prior predicts. The bias of a cell is P1 equation 3: how far the mean of the draw is from the
    cell's frequency. It is largest, as a part of the cell, in the smallest cells, so these are listed.

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
    if isinstance(release, xr.DataTree) and {"guarantee", "cells", "estimated"} <= set(release.children):
        return _of_diagnosis(release)
    return report_of_release(release, full=full)


def _of_diagnosis(diagnosis: xr.DataTree) -> Report:
    guarantee = diagnosis["guarantee"].attrs
    tables = list(diagnosis["cells"].children)
    sections = {
        "errors of this release": tuple(_errors(diagnosis, tables)),
        "the smallest cells": tuple(_smallest_cells(diagnosis, tables)),
        "the smallest groups": tuple(_smallest_rows(diagnosis, tables)),
    }
    guaranteed = (
        ("guarantee", str(guarantee["statement"])),
        ("protected", str(guarantee["protected"])),
        ("draws", f"{guarantee['draws']}, all of them covered"),
        ("this page", "is not covered: it was computed from the data themselves"),
    )
    mark = "CONFIDENTIAL, do not publish"
    return Report(
        f"{mark}: the cost of privacy in {', '.join(tables)}",
        (
            ("Guarantee of the release", guaranteed),
            *((f"{mark}: {heading}", lines) for heading, lines in sections.items() if lines),
        ),
    )


def _errors(diagnosis: xr.DataTree, tables: list[str]) -> Iterator[tuple[str, str]]:
    """Realised and expected divergences by table, with the rank of the realised one."""
    estimated = diagnosis["estimated"].to_dataset()
    tempered = diagnosis["realised"].to_dataset() if "realised" in diagnosis.children else None
    for name in tables:
        label = f" of {name}" if len(tables) > 1 else ""
        yield f"KL of the estimate{label}", _compared(estimated.sel(table=name), "kl_estimate", "fresh releases")
        if tempered is not None:
            of_table = tempered.sel(table=name)
            first = of_table.isel(draw=0).rename({"kl_release": "kl_draw", "kl_release_rank": "kl_draw_rank"})
            first = first.rename({"kl_release_mean": "kl_draw_mean", "kl_release_expected": "kl_draw_expected"})
            which = "KL of the first draw" if tempered.sizes["draw"] > 1 else "KL of the draw"
            yield f"{which}{label}", _compared(first, "kl_draw", "fresh draws")
            yield f"KL of the posteriors{label}", _compared(of_table, "kl_posterior", "data sets of the prior")


def _compared(errors: xr.Dataset, what: str, others: str) -> str:
    parts = [f"{_known(errors[what])} nats", f"expected without the data {_known(errors[f'{what}_expected'])}"]
    if f"{what}_mean" in errors and np.isfinite(errors[f"{what}_mean"]):
        parts.append(f"with them {float(errors[f'{what}_mean']):.3g}")
    rank = float(errors[f"{what}_rank"])
    if np.isfinite(rank):
        parts.append(f"{100 * rank:.0f} % of {others} err less")
    return ", ".join(parts)


def _known(value: xr.DataArray) -> str:
    return f"{float(value):.3g}" if np.isfinite(value) else "unknown"


def _smallest_cells(diagnosis: xr.DataTree, tables: list[str]) -> Iterator[tuple[str, str]]:
    for name in tables:
        cells = diagnosis["cells"][name].to_dataset()
        # So many of the smallest cells of a table are shown.
        order = np.argsort(cells["records"].values, axis=None, kind="stable")[:8]
        for index in zip(*np.unravel_index(order, cells["records"].shape), strict=True):
            one = cells.isel(dict(zip(cells["records"].dims, map(int, index), strict=True)))
            yield f"{name}[{_labels(one, cells['records'].dims, index)}]", _of_cell(one)


def _labels(one: xr.Dataset, dims: Iterable[Hashable], index: tuple[int, ...]) -> str:
    """The labels at an index; the numbers of entries that have none."""
    return ", ".join(str(one[dim].item()) if dim in one.coords else str(i) for dim, i in zip(dims, index, strict=True))


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


def _smallest_rows(diagnosis: xr.DataTree, tables: list[str]) -> Iterator[tuple[str, str]]:
    """The rows of the fewest records of each table that has several."""
    for name in tables:
        cells = diagnosis["cells"][name].to_dataset()
        *rows, last = map(str, cells["records"].dims)
        sizes = cells["records"].sum(last)
        if sizes.size < 2:
            continue
        # So many of its smallest rows are shown.
        for at in np.argsort(sizes.values, axis=None, kind="stable")[:3]:
            index = tuple(int(i) for i in np.unravel_index(at, sizes.shape))
            one = cells.isel(dict(zip(rows, index, strict=True)))
            worst = float(np.abs(one["estimate"] - one["share"]).max())
            error = f", the worst share of the estimate is off by {worst:.2g}" if np.isfinite(worst) else ""
            yield f"{name}[{_labels(one, rows, index)}]", f"{float(sizes.values[index]):g} records{error}"
