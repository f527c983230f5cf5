"""A release of a table with far more cells than records: a list of the cells whose noisy counts pass a threshold."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_dirdp.accounting.rules import refuse_other
from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import integer
from pymc_dirdp.counting.categories import Categories, checked_categories
from pymc_dirdp.counting.codes import Frame, encode
from pymc_dirdp.counting.columns import column_of, index_of
from pymc_dirdp.counting.sparse import SparseCounts
from pymc_dirdp.errors import ArgumentError, DataError, type_name
from pymc_dirdp.mechanisms.outputs import Cells
from pymc_dirdp.mechanisms.sparse import SparseGeometricMechanism
from pymc_dirdp.models.labels import check_labels, held_labels
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.charging import Sealed
from pymc_dirdp.releases.choices import refuse_unpaid_bins
from pymc_dirdp.releases.library import library_version
from pymc_dirdp.releases.opened import shown_tree
from pymc_dirdp.releases.text import SparseRelease
from pymc_dirdp.releases.warned import warn_of_seed
from pymc_dirdp.sampling.entropy import Seed, randomness

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger

__all__ = ["release_sparse"]

_RECORD = "record"


def release_sparse(
    guarantee: Guarantee,
    cells: ArrayLike | Frame | SparseCounts,
    counts: ArrayLike | None = None,
    n_cells: int | None = None,
    *,
    threshold: int,
    categories: Categories | None = None,
    adjacency: str = "replace-one",
    unit: str | None = None,
    contribution: int | None = None,
    random_seed: Seed = None,
    ledger: "Ledger | None" = None,
    reservation: int | None = None,
) -> xr.DataTree:
    """List the cells of a huge table whose noisy counts pass a public threshold, with a guarantee.

    The table may have 10**10 cells, of which few hold a record. Every cell gets geometric noise, also the empty ones;
    those whose noisy count is at least `threshold` are listed. The list has exactly the law that it would have if the
    whole table had been drawn, but only the cells that hold records and those that are listed are ever looked at.

    Parameters
    ----------
    guarantee : Guarantee
        What the list promises.
    cells : SparseCounts, array_like of int, data frame, or mapping of str to array
        What :func:`count_sparse` found, which knows all but the threshold and the adjacency. Or the cells that hold
        records, each once: their numbers from 0 to ``n_cells - 1``, or, with `categories`, the columns of their labels,
        such as those of ``frame.groupby(names).size().reset_index()``. Secret.
    counts : array_like of whole numbers, optional
        How many records each of them holds. Secret. Without it each entry of `cells` is one record, and they are
        counted here.
    n_cells : int, optional
        Number of cells of the whole table, from 2 to 2**63 - 1; with `categories` it follows.
    threshold : int
        The least noisy count that is listed, at least 1, chosen without the data: see :func:`least_threshold`.
    categories : mapping of str to sequence, optional
        The variables whose combinations are the cells, each with all values that it could take, as for :func:`count`.
        They are public, so they must not be read off the data.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one unit can change. Under `"add-remove"` the noise is half as large.
    unit : str, optional
        Whom the promise is about, in a word, such as `"patient"`; `"record"` unless the cells know the unit.
    contribution : int, optional
        The largest number of records of one unit in the table, which you promise; above 1 name the unit. It is 1 unless
        the cells know it.
    random_seed : int, SeedSequence, Generator or None, default None
        None takes entropy from the operating system. A seed makes the list reproducible, hence **not private**.
    ledger : Ledger, optional
        The ledger that records the release before the counts are looked at.
    reservation : int, optional
        The number of a reservation of the ledger, which this release uses, see :meth:`pymc_dirdp.Ledger.reserve`.

    Returns
    -------
    release : xarray.DataTree
        It may be published and saved by :func:`pymc_dirdp.save`. Group `noisy_counts` holds `cell` and `noisy_count` of
        each listed cell; `mechanism` the scale, the threshold and `n_cells`, as a text; `privacy` the promise;
        `categories` the labels, if there are any. :func:`estimate` and :func:`analyse` read it, given a
        :class:`SparsePrior`; :func:`report` says what it promises, and :func:`verify` checks it.

    Raises
    ------
    ArgumentError
        If the threshold is below 1, or more than a million empty cells would be listed on average; the message names a
        threshold that works. If the table has no declared number of cells.
    DataError
        If a cell is outside of the table or named twice, or a count is no whole number from 0 on. The message shows no
        cell and no count. The ledger was charged then.
    BudgetError, LedgerError
        If the ledger refuses the release or cannot be written. Nothing was drawn then.

    Warns
    -----
    SeededReleaseWarning
        If `random_seed` is given.

    Notes
    -----
    To list exactly the cells that hold records, without a threshold, is not private for any noise: a cell that only one
    person is in would be listed or not.

    The running time is proportional to the number of cells that hold records plus the number that is listed.

    References
    ----------
    Cormode, Procopiuc, Srivastava and Tran (2012), Differentially private summaries for sparse data,
    https://doi.org/10.1145/2274576.2274608; the page of proofs on sparse tables.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> promise = dirdp.ApproxDP(epsilon=1, delta=1e-6)
    >>> threshold = dirdp.sparse.least_threshold(promise, 10**10)
    >>> release = dirdp.sparse.release_sparse(promise, [7, 123_456_789], [1000, 3], 10**10, threshold=threshold)
    >>> 7 in release["noisy_counts"]["cell"].values
    True
    """
    refuse_other(ledger, reservation=reservation)
    _refuse_twice(cells, counts=counts, n_cells=n_cells, categories=categories, unit=unit, contribution=contribution)
    whom, most = _protected(cells, unit=unit, contribution=contribution)
    labels = _checked_labels(cells, n_cells, categories)
    refuse_unpaid_bins((labels or {}).values())
    size = math.prod(map(len, labels.values())) if labels is not None else integer(2, n_cells=n_cells)
    mechanism = SparseGeometricMechanism.for_guarantee(
        guarantee, n_cells=size, threshold=threshold, adjacency=adjacency, contribution=most
    )
    if random_seed is not None:
        warn_of_seed()
    sealed, receipt = Sealed((cells, counts), ledger), None
    del cells, counts
    if ledger is not None:
        entry = ledger.spend(
            guarantee,
            what=f"the cells of a table of {size} with a noisy count of at least {mechanism.threshold}",
            mechanism=mechanism,
            adjacency=mechanism.adjacency,
            unit=whom,
            contribution=most,
            reservation=reservation,
        )
        receipt = ledger.receipt(entry)
    listed, noisy = sealed.read(
        lambda held: mechanism.release(*_counted(*held, labels), random_seed=random_seed), receipt
    )
    source = randomness(random_seed, sampler="exact")
    return shown_tree(
        SparseRelease(guarantee, mechanism, whom, labels, source, Cells(listed, noisy), library_version())
    )


def _refuse_twice(cells: Any, **given: object) -> None:
    if isinstance(cells, SparseCounts) and any(value is not None for value in given.values()):
        raise ArgumentError(
            "What count_sparse found knows its counts, categories, unit and contribution. Leave these arguments "
            "out, or pass its cells and counts: release_sparse(guarantee, found.cells, found.counts, n_cells, ...)."
        )


def _protected(cells: Any, *, unit: str | None, contribution: int | None) -> tuple[str, int]:
    """Whom the promise is about, and how many records of the table are theirs at most."""
    bound = cells.bound if isinstance(cells, SparseCounts) else None
    if bound is not None:
        return bound.unit, bound.records
    unit, contribution = _RECORD if unit is None else unit, 1 if contribution is None else contribution
    if unit == _RECORD and contribution != 1:
        raise ArgumentError(
            "With contribution= above 1 the promise is about somebody who has several records: say who, as in "
            "unit='patient'."
        )
    if not isinstance(unit, str) or not unit.strip() or not unit.isprintable():
        raise ArgumentError(f"Expected unit to be a word such as 'patient', got {type_name(unit)} that is none.")
    return unit.strip(), contribution


def _checked_labels(cells: Any, n_cells: int | None, categories: Categories | None) -> dict[str, list[Any]] | None:
    """The labels of each variable; None if cells are numbers. Public arguments alone are looked at."""
    if isinstance(cells, SparseCounts):
        categories = cells.categories
    if (n_cells is None) == (categories is None):
        raise ArgumentError(
            "Say what the whole table is, without looking at the data: n_cells= if cells are numbers, or categories= "
            "if they have labels."
        )
    if categories is None:
        return None
    labels = checked_categories(list(categories), categories)
    for name in labels:
        check_labels(name, labels[name], "the table")
        if not isinstance(cells, SparseCounts):
            column_of(cells, name)
    return {name: held_labels(values) for name, values in labels.items()}


def _counted(cells: Any, counts: Any, labels: dict[str, list[Any]] | None) -> tuple[Any, Any]:
    """The numbers of the cells that hold records, and how many these are. **Secret**."""
    if isinstance(cells, SparseCounts):
        return cells.cells, cells.counts
    numbers = cells if labels is None else _numbered(cells, labels)
    if counts is not None:
        column = cells if labels is None else column_of(cells, next(iter(labels)))
        mine, its = index_of(column), index_of(counts)
        if mine is not None and its is not None and not mine.equals(its):
            raise DataError("The cells and the counts have different indexes, and they are matched by position.")
        return numbers, counts
    try:
        array = np.asarray(numbers)
    except (OverflowError, TypeError, ValueError):
        return numbers, []
    return np.unique(array, return_counts=True) if array.ndim == 1 and array.dtype.kind in "iu" else (numbers, [])


def _numbered(cells: Frame, labels: dict[str, list[Any]]) -> Integers:
    codes = encode(cells, list(labels), labels)
    return np.ravel_multi_index(tuple(codes.values()), tuple(map(len, labels.values()))).astype(np.int64)
