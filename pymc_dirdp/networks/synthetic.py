"""Synthetic records given a release: post-processing, so the guarantee covers them."""

import math
from collections.abc import Callable, Collection
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.networks.fitting import DrawnTable, given_release, is_analysis, is_estimate, records_of_estimate
from pymc_dirdp.networks.systematic import systematic
from pymc_dirdp.networks.wide_records import mixture_of, pairs_of, records_of
from pymc_dirdp.releases.opened import Published
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.signatures import user_facing

Codes = NDArray[np.int64]


@user_facing
def synthetic(
    release: Published,
    n_records: int | None = None,
    n_sets: int = 1,
    *,
    tables: Collection[str] | None = None,
    random_seed: Seed = None,
) -> Any:
    """Whole synthetic records given a release, as a data frame.

    For each set, shares are drawn from the posterior given the release, and then records with those shares, each
    variable given its parents. So the differences between sets show what the release leaves open, and one set alone
    does not. An estimate has one set of shares, so its sets do not show that either. Its records are drawn by
    systematic sampling: counts are nearly what is expected of them, which those of independent records are not. For
    inferences, :func:`pymc_dirdp.analyse` and :func:`pymc_dirdp.estimate` say directly, and without the error of a
    further sample, what the release says; :func:`pymc_dirdp.combine` is for tools that only take data.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, or what :func:`pymc_dirdp.analyse` returned for it, of whose draws the first are
        taken, or the estimate of :func:`pymc_dirdp.fit`. Its tables are read as tables of the same records.
    n_records : int, optional
        Records in each set; by default as many as the data have, which is public under replace-one. If it is private,
        only an analysis has it, and then it is drawn for each set, or an estimate.
    n_sets : int, default 1
        How many sets.
    tables : collection of str, optional
        Tables whose variables the records have; by default all of the release.
    random_seed : int, SeedSequence, Generator or None
        Harmless here: what is drawn from is public.

    Returns
    -------
    records : pandas.DataFrame
        A column for each variable, with the labels of the model, or 0, 1, 2, ... where it has none. A Beta has the
        column `<name>_outcome` with the values "success" and "failure". The index has the levels `set` and `record`:
        `records.groupby(level="set")` takes the sets apart.

    Raises
    ------
    ReleaseError
        If it is no release, or is damaged.
    ArgumentError
        If the tables do not make up records, or more sets are asked for than an analysis has draws, or the number of
        records is private, so that only :func:`pymc_dirdp.analyse` takes your prior of it.

    Notes
    -----
    A dim that no table has the shares of, such as the departments of a table of rates, has a share for each row from
    `Dirichlet(1 + records in the row)`.

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
            raise ArgumentError("tables= names tables of a network, and a wide table has none. Leave it out.")
        mixture = mixture_of(release, pairs)
        return _frame([records_of(pairs, mixture, size, rng) for _ in range(n_sets)])
    is_one = is_estimate(release)
    asked = None if is_analysis(release) or is_one else n_sets
    drawn = given_release(release, asked, rng)
    chosen = _chosen(drawn, tables)
    have = len(next(iter(chosen.values())).shares)
    if n_sets > have and not is_one:
        raise ArgumentError(f"There are {have} draws, one for each set. Ask for as many sets at most, or draw more.")
    order = _order(chosen)
    rows = _rows(chosen)
    if size is None and is_one:
        size = records_of_estimate(release)
    sizes = [_size(chosen, i) if size is None else size for i in range(n_sets)]
    drawn_by = systematic if is_one else _drawn
    places = [0] * n_sets if is_one else range(n_sets)
    sets = [_records(order, rows, place, n, rng, drawn_by) for place, n in zip(places, sizes, strict=True)]
    labels = {dim: found for table in chosen.values() for dim, found in table.labels}
    return _frame([{dim: _labelled(codes[dim], labels[dim]) for dim in (*rows[0], *order)} for codes in sets])


def _frame(sets: list[dict[str, Any]]) -> Any:
    """Sets of records one below the other."""
    import pandas as pd

    sizes = [len(next(iter(columns.values()))) for columns in sets]
    columns = {name: np.concatenate([one[name] for one in sets]) for name in sets[0]}
    numbers = [np.repeat(np.arange(len(sets)), sizes), np.concatenate([np.arange(n) for n in sizes])]
    return pd.DataFrame(columns, index=pd.MultiIndex.from_arrays(numbers, names=["set", "record"]))


def _chosen(drawn: dict[str, DrawnTable], tables: Collection[str] | None) -> dict[str, DrawnTable]:
    if tables is None:
        return drawn
    names = [tables] if isinstance(tables, str) else list(tables)
    if not names or (unknown := [name for name in names if name not in drawn]):
        asked = "none" if not names else repr(unknown[0])
        raise ArgumentError(f"Expected tables to name some of {', '.join(map(repr, drawn))}, got {asked}.")
    return {name: drawn[name] for name in names}


def _order(tables: dict[str, DrawnTable]) -> dict[str, DrawnTable]:
    """Tables by the variable whose shares they hold, each after those of its parents."""
    own: dict[str, DrawnTable] = {}
    for name, table in tables.items():
        variable = table.dims[-1]
        if variable in own:
            raise ArgumentError(
                f"Two tables hold shares of {variable!r}, one of them {name!r}, so they do not make up a record. "
                f"Choose tables=[{name!r}], for example."
            )
        own[variable] = table
    try:
        order = TopologicalSorter({name: set(table.dims[:-1]) & set(own) for name, table in own.items()}).static_order()
        return {name: own[name] for name in order}
    except CycleError:
        raise ArgumentError(
            "The tables depend on each other in a circle, so no record can be drawn. Choose some of them by tables=."
        ) from None


def _rows(tables: dict[str, DrawnTable]) -> tuple[tuple[str, ...], Codes | None]:
    """The dims that no table has shares of, and how many records each combination of them has in each draw."""
    own = {table.dims[-1] for table in tables.values()}
    found: tuple[tuple[str, ...], Codes | None] = ((), None)
    for name, table in tables.items():
        free = tuple(dim for dim in table.dims if dim not in own)
        if not free or set(free) == set(found[0]):
            continue
        if not table.counts.size:
            raise ArgumentError(
                f"No table holds the shares of {free[0]!r}, so the estimate does not make up records. Choose tables by "
                "tables=."
            )
        if found[0]:
            dims = ", ".join(map(repr, dict.fromkeys((*found[0], *free))))
            raise ArgumentError(
                f"No table holds the shares of {dims}, and the tables do not agree on them, so they do not make up a "
                f"record. Choose tables=[{name!r}], for example."
            )
        others = tuple(i + 1 for i, dim in enumerate(table.dims) if dim in own)
        found = free, table.counts.sum(axis=others, dtype=np.int64)
    return found


def _size(tables: dict[str, DrawnTable], draw: int) -> int:
    """How many records the data have in a draw."""
    totals = {int(table.counts[draw].sum()) for table in tables.values()}
    if len(totals) > 1:
        raise ArgumentError(
            "The tables hold different numbers of records. Pass n_records=, or choose tables of the same records by "
            "tables=."
        )
    return totals.pop()


def _records(
    order: dict[str, DrawnTable],
    rows: tuple[tuple[str, ...], Codes | None],
    draw: int,
    n: int,
    rng: np.random.Generator,
    drawn: Callable[[Codes, Array, np.random.Generator], Codes],
) -> dict[str, Codes]:
    """The codes of each variable of `n` records, with the shares of one draw, as `drawn` draws them."""
    codes: dict[str, Codes] = {}
    dims, totals = rows
    if totals is not None:
        shares = rng.dirichlet(1.0 + totals[draw].ravel())
        cells = _drawn(np.zeros(n, dtype=np.int64), shares[None], rng)
        codes = dict(zip(dims, np.unravel_index(cells, totals.shape[1:]), strict=True))
    for variable, table in order.items():
        shares = table.shares[draw]
        parents = tuple(codes[dim] for dim in table.dims[:-1])
        row = np.ravel_multi_index(parents, shares.shape[:-1]) if parents else np.zeros(n, dtype=np.int64)
        codes[variable] = drawn(np.asarray(row), shares.reshape(-1, shares.shape[-1]), rng)
    return codes


def _drawn(row: Codes, shares: Array, rng: np.random.Generator) -> Codes:
    """For each record a category from the shares of its row."""
    codes = np.empty(len(row), dtype=np.int64)
    by_row = np.argsort(row, kind="stable")
    ends = np.cumsum(np.bincount(row, minlength=len(shares)))
    for p, there in zip(shares, np.split(by_row, ends[:-1]), strict=True):
        if len(there):
            codes[there] = rng.choice(len(p), size=len(there), p=p / math.fsum(p))
    return codes


def _labelled(codes: Codes, labels: list[Any] | None) -> Any:
    return codes if labels is None else np.asarray(labels)[codes]
