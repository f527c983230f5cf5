"""Synthetic records given a release, which are post-processing, so the guarantee covers them."""

import math
from collections.abc import Callable, Collection
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.networks.fitting import DrawnTable, draws_given_release, is_analysis, is_estimate, records_of_estimate
from pymc_dirdp.networks.systematic import systematic
from pymc_dirdp.networks.wide_records import mixture_of, pairs_of, records_of
from pymc_dirdp.releases.opened import Published
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.signatures import user_facing


@user_facing
def synthetic(
    release: Published,
    n_records: int | None = None,
    n_sets: int = 1,
    *,
    tables: Collection[str] | None = None,
    random_seed: Seed = None,
) -> Any:
    """Synthetic records given a release, as a data frame.

    For each set, shares are drawn from the posterior given the release, and then records with these shares, each
    variable given its parents. So differences between sets show the uncertainty given the release; a single set does
    not show it. Sets from an estimate do not show it either, because they have the same shares. Records of an estimate
    are drawn by systematic sampling, so their counts are closer to the expected counts than those of independent
    records. For inference, use :func:`pymc_dirdp.analyse` and :func:`pymc_dirdp.estimate`, which have no additional
    sampling error. :func:`pymc_dirdp.combine` is for tools that only accept data.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, or the result of :func:`pymc_dirdp.analyse` for it, whose first draws are used,
        or the estimate of :func:`pymc_dirdp.fit`. Its tables are assumed to have the same records.
    n_records : int, optional
        The number of records in each set. The default is that of the data, which is public under replace-one. If it is
        private, it is drawn for each set from an analysis, or taken from an estimate.
    n_sets : int, default 1
        The number of sets.
    tables : collection of str, optional
        The tables whose variables the records have; by default all tables of the release.
    random_seed : int, SeedSequence, Generator or None
        A seed does not affect privacy here, because the release is already public.

    Returns
    -------
    records : pandas.DataFrame
        A column for each variable, with the labels of the model, or 0, 1, 2, ... if it has no labels. A Beta has the
        column `<name>_outcome` with the values "success" and "failure". The index has the levels `set` and `record`, so
        `records.groupby(level="set")` separates the sets.

    Raises
    ------
    ReleaseError
        If it is not a release, or is damaged.
    ArgumentError
        If the tables do not define whole records, `n_sets` exceeds the draws of an analysis, or the number of records
        is private. In this case pass your prior for it to :func:`pymc_dirdp.analyse`.

    Notes
    -----
    If no table has the shares of a dim, such as the departments in a table of rates, the shares of its rows are drawn
    from `Dirichlet(1 + records in the row)`.

    References
    ----------
    Rubin (1993), Discussion: statistical disclosure limitation, Journal of Official Statistics 9, 461-468. Räisä,
    Jälkö, Kaski and Honkela (2023), Noise-aware statistical inference with differentially private synthetic data, for
    draws that account for the privacy noise.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> records = {"fur": ["yes", "yes", "no"], "eggs": ["no", "no", "yes"]}
    >>> yes_no = {"fur": ["yes", "no"], "eggs": ["yes", "no"]}
    >>> model = dirdp.bayesian_network(records, {"eggs": [], "fur": ["eggs"]}, categories=yes_no)
    >>> release = dirdp.sample(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric")
    >>> dirdp.synthetic(release, n_records=100, n_sets=2).shape
    (200, 2)
    """
    n_sets = integer(1, n_sets=n_sets)
    size = None if n_records is None else integer(0, n_records=n_records)
    rng = generator(random_seed)
    if (pairs := pairs_of(release)) is not None:
        if tables is not None:
            raise ArgumentError("tables= is for the tables of a network, and a wide table has none. Leave it out.")
        mixture = mixture_of(release, pairs)
        return _frame([records_of(pairs, mixture, size, rng) for _ in range(n_sets)])
    has_one_draw = is_estimate(release)
    draws = None if is_analysis(release) or has_one_draw else n_sets
    selection = _selection(draws_given_release(release, draws, rng), tables)
    n_draws = len(next(iter(selection.values())).shares)
    if n_sets > n_draws and not has_one_draw:
        raise ArgumentError(f"Each set uses one of {n_draws} draws. Pass fewer sets, or an analysis with more draws.")
    order = _order(selection)
    rows = _rows(selection)
    if size is None and has_one_draw:
        size = records_of_estimate(release)
    sizes = [_size(selection, i) if size is None else size for i in range(n_sets)]
    sampler = systematic if has_one_draw else _independent
    places = [0] * n_sets if has_one_draw else range(n_sets)
    sets = [_records(order, rows, place, n, rng, sampler) for place, n in zip(places, sizes, strict=True)]
    labels = {dim: names for table in selection.values() for dim, names in table.labels}
    arrays = {dim: np.asarray(values) for dim, values in labels.items() if values is not None}
    dims = (*rows[0], *order)
    return _frame([{dim: arrays[dim][codes[dim]] if dim in arrays else codes[dim] for dim in dims} for codes in sets])


def _frame(sets: list[dict[str, Any]]) -> Any:
    """Sets of records as one data frame."""
    import pandas as pd

    sizes = [len(next(iter(columns.values()))) for columns in sets]
    columns = {name: np.concatenate([codes[name] for codes in sets]) for name in sets[0]}
    numbers = [np.repeat(np.arange(len(sets)), sizes), np.concatenate([np.arange(n) for n in sizes])]
    return pd.DataFrame(columns, index=pd.MultiIndex.from_arrays(numbers, names=["set", "record"]))


def _selection(all_tables: dict[str, DrawnTable], tables: Collection[str] | None) -> dict[str, DrawnTable]:
    if tables is None:
        return all_tables
    names = [tables] if isinstance(tables, str) else list(tables)
    if not names or (unknown := [name for name in names if name not in all_tables]):
        got = "none" if not names else repr(unknown[0])
        raise ArgumentError(f"Expected tables to name some of {', '.join(map(repr, all_tables))}, got {got}.")
    return {name: all_tables[name] for name in names}


def _order(tables: dict[str, DrawnTable]) -> dict[str, DrawnTable]:
    """The table of each variable, in topological order."""
    by_variable: dict[str, DrawnTable] = {}
    for name, table in tables.items():
        variable = table.dims[-1]
        if variable in by_variable:
            raise ArgumentError(
                f"Two tables, one of them {name!r}, have shares of {variable!r}, so they do not define whole records. "
                f"Pass tables=[{name!r}], for example."
            )
        by_variable[variable] = table
    parents = {variable: set(table.dims[:-1]) & set(by_variable) for variable, table in by_variable.items()}
    try:
        return {variable: by_variable[variable] for variable in TopologicalSorter(parents).static_order()}
    except CycleError:
        raise ArgumentError(
            "The tables depend on each other in a cycle, so no record can be drawn. Pass some of them as tables=."
        ) from None


def _rows(tables: dict[str, DrawnTable]) -> tuple[tuple[str, ...], Integers | None]:
    """The dims without shares in any table, and the number of records of each of their combinations in each draw."""
    variables = {table.dims[-1] for table in tables.values()}
    rows: tuple[tuple[str, ...], Integers | None] = ((), None)
    for name, table in tables.items():
        free = tuple(dim for dim in table.dims if dim not in variables)
        if not free or set(free) == set(rows[0]):
            continue
        if not table.counts.size:
            raise ArgumentError(
                f"No table has shares of {free[0]!r}, so the estimate does not define whole records. Pass tables=."
            )
        if rows[0]:
            dims = ", ".join(map(repr, dict.fromkeys((*rows[0], *free))))
            raise ArgumentError(
                f"No table has shares of {dims}, and the tables have different ones of these dims, so they do not "
                f"define whole records. Pass tables=[{name!r}], for example."
            )
        others = tuple(i + 1 for i, dim in enumerate(table.dims) if dim in variables)
        rows = free, table.counts.sum(axis=others, dtype=np.int64)
    return rows


def _size(tables: dict[str, DrawnTable], draw: int) -> int:
    """The number of records of the data in a draw."""
    totals = {int(table.counts[draw].sum()) for table in tables.values()}
    if len(totals) > 1:
        raise ArgumentError(
            "The tables have different numbers of records. Pass n_records=, or pass tables of the same records as "
            "tables=."
        )
    return totals.pop()


def _records(
    order: dict[str, DrawnTable],
    rows: tuple[tuple[str, ...], Integers | None],
    draw: int,
    n: int,
    rng: np.random.Generator,
    sampler: Callable[[Integers, Array, np.random.Generator], Integers],
) -> dict[str, Integers]:
    """The codes of each variable of `n` records, drawn by `sampler` with the shares of one draw."""
    codes: dict[str, Integers] = {}
    dims, totals = rows
    if totals is not None:
        shares = rng.dirichlet(1.0 + totals[draw].ravel())
        cells = _independent(np.zeros(n, dtype=np.int64), shares[None], rng)
        codes = dict(zip(dims, np.unravel_index(cells, totals.shape[1:]), strict=True))
    for variable, table in order.items():
        shares = table.shares[draw]
        parents = tuple(codes[dim] for dim in table.dims[:-1])
        row = np.ravel_multi_index(parents, shares.shape[:-1]) if parents else np.zeros(n, dtype=np.int64)
        codes[variable] = sampler(np.asarray(row), shares.reshape(-1, shares.shape[-1]), rng)
    return codes


def _independent(row: Integers, shares: Array, rng: np.random.Generator) -> Integers:
    """Draw a category for each record independently, from the shares of its row."""
    codes = np.empty(len(row), dtype=np.int64)
    by_row = np.argsort(row, kind="stable")
    ends = np.cumsum(np.bincount(row, minlength=len(shares)))
    for p, records in zip(shares, np.split(by_row, ends[:-1]), strict=True):
        if len(records):
            codes[records] = rng.choice(len(p), size=len(records), p=p / math.fsum(p))
    return codes
