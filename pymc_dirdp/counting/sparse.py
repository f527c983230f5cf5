"""From records to the occupied cells of a table that is too large for an array. **Secret**."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, final

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.counting.bounding import Bound, bound_of_sum, checked_bound, refuse_other_declaration
from pymc_dirdp.counting.codes import (
    Categories,
    Frame,
    Otherwise,
    checked_categories,
    checked_otherwise,
    checked_variables,
)
from pymc_dirdp.counting.tables import coded_families
from pymc_dirdp.errors import ArgumentError, type_name

__all__ = ["SparseCounts", "count_sparse"]

_MOST_CELLS = 2**63 - 1


@final
@dataclass(frozen=True, repr=False, eq=False)
class SparseCounts:
    """The occupied cells of a huge table and their counts, as :func:`count_sparse` finds them. They are **secret**.

    Pass it to :func:`release_sparse` in the place of cells and counts. Its text shows the declaration alone.

    `first + second` adds tables of the same variables, categories and unit. A unit may have records in both, so what
    it contributes adds up; :meth:`with_other_people` is for tables of different units.

    Attributes
    ----------
    cells : array of int64, shape (n,)
        The numbers of the cells that hold records, in ascending order.
    counts : array of int64, shape (n,)
        How many records each of them holds, at least 1.
    categories : mapping of str to tuple
        The variables, in the order of the table's axes, with their labels. The last one varies fastest with the number
        of a cell. Public.
    bound : Bound or None
        The unit, and how many of its records were counted at most; None if each record was counted. Public.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> visits = {"postcode": [10115, 80331, 80331], "illness": ["flu", "flu", "cold"]}
    >>> declared = {"postcode": range(10_000, 100_000), "illness": ["cold", "flu"]}
    >>> found = dirdp.sparse.count_sparse(visits, ["postcode", "illness"], categories=declared)
    >>> found
    SparseCounts(postcode, illness: 180000 cells)
    >>> found.labels()["postcode"]
    [10115, 80331, 80331]
    >>> (found + found).counts.tolist()
    [2, 2, 2]
    """

    # NumPy would add it to each number of an array.
    __array_ufunc__ = None

    cells: Integers
    counts: Integers
    categories: Mapping[str, tuple[Any, ...]]
    bound: Bound | None = None

    def __post_init__(self) -> None:
        for numbers in (self.cells, self.counts):
            numbers.flags.writeable = False

    @property
    def n_cells(self) -> int:
        """How many cells the whole table has."""
        return math.prod(map(len, self.categories.values()))

    def labels(self) -> dict[str, list[Any]]:
        """For each variable the labels of the occupied cells. **Secret**."""
        codes = np.unravel_index(self.cells, tuple(map(len, self.categories.values())))
        return {
            name: [labels[code] for code in column.tolist()]
            for (name, labels), column in zip(self.categories.items(), codes, strict=True)
        }

    def __add__(self, other: Any) -> "SparseCounts":
        return self._sum(other, others=False) if isinstance(other, SparseCounts) else NotImplemented

    def __radd__(self, other: Any) -> "SparseCounts":
        # `sum` starts with 0.
        return self if type(other) is int and other == 0 else NotImplemented

    def with_other_people(self, other: "SparseCounts") -> "SparseCounts":
        """Add counts of other units: nobody has records in both. What a unit contributes stays the same.

        That nobody is in both cannot be seen in counts. It holds, for example, if the records were divided by unit.

        Parameters
        ----------
        other : SparseCounts
            Of the same variables, categories and unit.

        Returns
        -------
        SparseCounts

        Raises
        ------
        ArgumentError
            If the declarations differ.
        """
        if not isinstance(other, SparseCounts):
            raise ArgumentError(f"Expected counts as count_sparse() returns them, got {type_name(other)}.")
        return self._sum(other, others=True)

    def _sum(self, other: "SparseCounts", *, others: bool) -> "SparseCounts":
        refuse_other_declaration(tuple(self.categories.items()), tuple(other.categories.items()))
        bound = bound_of_sum(self.bound, other.bound, others=others)
        cells, where = np.unique(np.concatenate([self.cells, other.cells]), return_inverse=True)
        counts = np.zeros(len(cells), dtype=np.int64)
        np.add.at(counts, where, np.concatenate([self.counts, other.counts]))
        return SparseCounts(cells, counts, self.categories, bound)

    def __repr__(self) -> str:
        whose = "" if self.bound is None else f", unit={self.bound.unit!r}, contribution={self.bound.records}"
        return f"SparseCounts({', '.join(self.categories)}: {self.n_cells} cells{whose})"


def count_sparse(
    records: Frame | str | PathLike[str],
    variables: Sequence[str],
    *,
    categories: Categories,
    unit: str | None = None,
    contribution: int | None = None,
    distinct: bool = False,
    otherwise: Otherwise | None = None,
) -> SparseCounts:
    """Find the cells of a huge declared table that hold records, and how many these are. The result is **secret**.

    It is :func:`count` for tables of up to 2**63 - 1 cells, and asks the same engines. Only the occupied cells come
    back.

    Parameters
    ----------
    records, variables, categories, unit, contribution, distinct, otherwise
        Same as in :func:`count`.

    Returns
    -------
    counts : SparseCounts

    Warns
    -----
    CategoriesFromDataWarning
        If categories are an object of pandas, polars or Arrow, which may have been made from data.

    Raises
    ------
    ArgumentError, DataError, ImportError
        The same errors as those of :func:`count`, where the declared table has more than 2**63 - 1 cells, too.

    Notes
    -----
    Which cells are occupied is as secret as the counts: see :func:`release_sparse`.

    Examples
    --------
    >>> visits = {"zip": [10_115, 10_115, 80_331], "ill": ["flu", "flu", "cold"]}
    >>> declared = {"zip": range(100_000), "ill": ["flu", "cold", "measles"]}
    >>> found = count_sparse(visits, ["zip", "ill"], categories=declared)
    >>> found
    SparseCounts(zip, ill: 300000 cells)
    >>> found.cells.tolist(), found.counts.tolist()
    ([30345, 240994], [2, 1])
    """
    names = checked_variables(variables)
    labels = checked_categories(names, categories)
    shape = tuple(len(labels[name]) for name in names)
    if math.prod(shape) > _MOST_CELLS:
        raise ArgumentError(
            f"The table of {', '.join(names)} has {math.prod(shape)} cells, and their numbers have to be below 2**63. "
            "Count fewer variables together, or merge categories."
        )
    bound = checked_bound(unit, contribution, distinct=distinct)
    stands_for = checked_otherwise(otherwise, labels)
    ((columns, times),) = coded_families(records, [names], labels, otherwise=stands_for, bound=bound, most=[None])
    # Rows that an engine tells apart may lie in one cell.
    cells, where = np.unique(np.ravel_multi_index(tuple(columns), shape).astype(np.int64), return_inverse=True)
    counts = np.zeros(len(cells), dtype=np.int64)
    np.add.at(counts, where, 1 if times is None else times)
    return SparseCounts(cells, counts, {name: tuple(labels[name]) for name in names}, bound)
