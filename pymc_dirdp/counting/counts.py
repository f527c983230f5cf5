"""Counts of records by cell, with their unit of privacy, and sums of them."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import MAX_RECORDS
from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.columns import Frame, column_of, values_of
from pymc_dirdp.errors import ArgumentError, DataError, type_name

# Codes of records to counts of cells. **Secret**.


def tabulate(columns: Sequence[Integers], shape: tuple[int, ...], weights: Integers | None = None) -> Integers:
    """The number of records of each combination of codes, where each row has a weight. **Secret**."""
    cells = np.ravel_multi_index(tuple(columns), shape)
    # With weights NumPy adds in doubles, which are exact up to the limit of `row_counts`.
    return np.bincount(cells, weights, minlength=math.prod(shape)).astype(np.int64).reshape(shape)


def tabulate_columns(
    records: Callable[[], Any], tables: Sequence[Sequence[int]], lengths: Sequence[int]
) -> list[Integers]:
    """Several tables of records, from their codes of shape (records, columns). **Secret**.

    Parameters
    ----------
    records : callable
        Returns the codes.
    tables : sequence of sequence of int
        The columns of each table.
    lengths : sequence of int
        The number of categories of each column.
    """
    codes = np.ascontiguousarray(records().T)
    return [tabulate([codes[i] for i in table], tuple(lengths[i] for i in table)) for table in tables]


def row_counts(frame: Frame, name: str) -> Integers:
    """The number of records that each row of a frame represents, from a column. **Secret**.

    Raises
    ------
    DataError
        If an entry is not a nonnegative integer, or the sum is above 2**53. The message contains no number.
    """
    values = values_of(column_of(frame, name), name)
    are_integers = all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_RECORDS and value % 1 == 0
        for value in values
    )
    if not are_integers or sum(map(int, values)) > MAX_RECORDS:
        raise DataError(
            f"Expected the column {name!r} to contain numbers of records: nonnegative integers with a sum of at most "
            "2**53. Leave survey weights out: they belong to the released shares."
        )
    return np.array(values, dtype=np.int64)


# Counts that store their unit of privacy, so that a plan protects these people.


# The variables of a table with their labels, axis by axis.
_Declaration = tuple[tuple[str, tuple[Any, ...]], ...]


class Counts(np.ndarray[Any, np.dtype[np.int64]]):
    """A table of counts as :func:`count` returns it: an array with its declaration. It is **secret**.

    Pass it directly as `observed=`. PyMC preserves it, so :func:`plan` protects the unit that was counted. Parts,
    sums along axes and copies have the same unit. A file does not have the unit, so pass `contribution=` to
    :func:`plan` there. Nor do `np.asarray(counts)`, `pm.Data`, lists, and arrays of pandas and xarray. A model that
    observes the same numbers in one of these, while the counts exist, is refused without a unit or contribution.

    `first + second` adds tables of the same variables, categories and unit. A unit may have records in both, so its
    contributions add up. Use :meth:`with_other_people` for tables of different units.

    Attributes
    ----------
    bound : Bound or None
        The unit and the maximum number of its counted records; None if all records were counted.
    is_computed : bool
        Whether the numbers were computed from bounded counts in a way that may change the contribution of a unit.

    Raises
    ------
    ArgumentError
        If tables are added whose declarations differ, or that are not complete tables.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> days = [{"who": ["ann", "bob"], "left": ["yes", "no"]}, {"who": ["ann"], "left": ["no"]}]
    >>> first, second = (
    ...     dirdp.count(day, ["left"], categories={"left": ["yes", "no"]}, unit="who", contribution=1) for day in days
    ... )
    >>> both = first + second
    >>> both.tolist(), both.bound.records
    ([1, 2], 2)
    """

    bound: Bound | None
    is_computed: bool
    _declaration: _Declaration | None

    @classmethod
    def of(cls, table: Integers, declaration: _Declaration | None = None, bound: Bound | None = None) -> Self:
        """Return the counts with their declaration."""
        counts = table.view(cls)
        counts._declaration, counts.bound = declaration, bound
        counts._remember()
        return counts

    def _remember(self) -> None:
        if self.bound is not None:
            _LIVE[id(self)] = self

    def __array_finalize__(self, parent: Any) -> None:
        # A part of a table has the bound of the table. Its variables are not known.
        self.bound = getattr(parent, "bound", None)
        # New memory may contain a cell twice, or mixed cells: `take`, `repeat`, `dot`.
        is_part = self.base is not None and self.size <= np.size(parent) and self.dtype == parent.dtype
        self.is_computed = self.bound is not None and (parent.is_computed or not is_part)
        self._declaration = None
        self._remember()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if out is not None:
            options["out"] = tuple(_to_plain(array) for array in out)
        result = getattr(ufunc, method)(*map(_to_plain, inputs), **options)
        is_sum = ufunc is np.add and method == "reduce"
        if out is not None:
            for array in out:
                if isinstance(array, Counts):
                    array.is_computed, array._declaration = True, None
            return out[0] if len(out) == 1 else out
        return self._with_bound(result, [array for array in inputs if isinstance(array, Counts)], computed=not is_sum)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(function, types, args, kwargs)
        if isinstance(result, Counts):
            # `np.sum` and `np.copy` return a table of the same records in new memory.
            result.is_computed |= self._is_mixed(result) and function not in (np.sum, np.copy)
            return result
        return self._with_bound(result, [self], computed=True)

    def _is_mixed(self, result: np.ndarray[Any, Any]) -> bool:
        """Whether a result has other memory, so that it may repeat or reorder cells."""
        return self.bound is not None and not np.may_share_memory(np.asarray(result), np.asarray(self))

    def _with_bound(self, result: Any, inputs: "list[Counts]", *, computed: bool) -> Any:
        """A result of bounded counts, with their bound. Other results are plain arrays."""
        bounded = [array for array in inputs if array.bound is not None]
        if not bounded or not isinstance(result, np.ndarray):
            return result
        result_counts = Counts.of(result, bound=bounded[0].bound)
        result_counts.is_computed = computed or any(array.is_computed for array in inputs)
        return result_counts

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if isinstance(part, np.ndarray) or self.bound is None:
            if isinstance(part, Counts):
                part.is_computed |= self._is_mixed(part)
            return part
        # A number cannot store the unit, and a Binomial may observe one cell.
        cell = Counts.of(np.asarray(part), bound=self.bound)
        cell.is_computed = self.is_computed
        return cell

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.is_computed, self._declaration = self.bound is not None, None

    def copy(self, order: Any = "C") -> Self:
        """A copy with the same unit."""
        duplicate: Self = self._with_flag(super().copy(order))
        return duplicate

    def astype(self, *args: Any, **options: Any) -> Any:
        """The counts as another type of number, with the same unit."""
        return self._with_flag(super().astype(*args, **options))

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Self:
        return self.copy()

    def _with_flag(self, duplicate: Any) -> Any:
        """Mark a copy of all numbers."""
        if isinstance(duplicate, Counts):
            duplicate.is_computed = self.is_computed
        return duplicate

    def __reduce__(self) -> Any:
        reduced: Any = super().__reduce__()
        make, args, state = reduced
        return make, args, (state, vars(self))

    def __setstate__(self, state: Any) -> None:
        array, facts = state
        super().__setstate__(array)
        vars(self).update(facts)
        self._remember()

    def __add__(self, other: Any) -> Any:
        return self._sum(other, disjoint=False) if isinstance(other, Counts) else super().__add__(other)

    __iadd__ = __add__

    def __radd__(self, other: Any) -> Any:
        # `sum` starts with 0.
        return self if type(other) is int and other == 0 else super().__radd__(other)

    def with_other_people(self, other: "Counts") -> Self:
        """Add counts of other units, if nobody has records in both. The contribution of a unit stays the same.

        Counts cannot show that nobody is in both. This is true, for example, if the records were divided by unit.

        Parameters
        ----------
        other : Counts
            Counts with the same variables, categories and unit.

        Returns
        -------
        Counts
        """
        if not isinstance(other, Counts):
            raise ArgumentError(f"Expected counts as count() returns them, got {type_name(other)}.")
        return self._sum(other, disjoint=True)

    def _sum(self, other: "Counts", *, disjoint: bool) -> Self:
        if self._declaration is None or other._declaration is None or self.is_computed or other.is_computed:
            raise ArgumentError(
                "Add complete tables of count() before you take parts or copies, whose variables are unknown; or add "
                "np.asarray(...) of each, and pass contribution= to plan()."
            )
        _refuse_other_declaration(self._declaration, other._declaration)
        bound = _bound_of_sum(self.bound, other.bound, disjoint=disjoint)
        return type(self).of(np.asarray(self) + np.asarray(other), self._declaration, bound)


# Bounded counts in this process, by identity: arrays have no hash.
_LIVE: "WeakValueDictionary[int, Counts]" = WeakValueDictionary()


def live_bound(numbers: np.ndarray[Any, Any]) -> Bound | None:
    """The largest bound of counts of this process with the same numbers, in any shape and order, if there are any.

    Sums of these counts over some of their variables, and the counts of one category in all rows, are
    compared, too. PyMC, xarray, pandas, NumPy and lists copy counts, so only the numbers reveal their
    origin. Single numbers and empty tables are not compared, because they agree by chance.
    The result depends on the counts, which are **secret**.
    """
    target = np.sort(numbers, axis=None)
    bounds: list[Bound] = []
    for counts in list(_LIVE.values()) if target.size > 1 and target.any() else ():
        if counts.bound is None or counts.is_computed:
            continue
        if any(np.array_equal(np.sort(part, axis=None), target) for part in _parts(np.asarray(counts), target.size)):
            bounds.append(counts.bound)
    return max(bounds, key=lambda bound: bound.records, default=None)


def _parts(counts: np.ndarray[Any, Any], size: int) -> Iterator[np.ndarray[Any, Any]]:
    """The table, its sums over axes, and its counts of one category in all rows, if they have this size. **Secret**."""
    axes = range(counts.ndim)
    for summed in (subset for n_summed in axes for subset in combinations(axes, n_summed)):
        if math.prod(length for axis, length in enumerate(counts.shape) if axis not in summed) == size:
            yield counts.sum(axis=summed)
    if counts.ndim > 1 and math.prod(counts.shape[:-1]) == size:
        yield from np.moveaxis(counts, -1, 0)


def _to_plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Counts) else value


def _refuse_other_declaration(first: _Declaration, second: _Declaration) -> None:
    """Refuse to add tables with different declarations."""
    if first != second:
        raise ArgumentError("Count all tables with the same variables and categories: those of these tables differ.")


def _bound_of_sum(first: Bound | None, second: Bound | None, *, disjoint: bool) -> Bound | None:
    """The bound of the sum of two tables, whose units are disjoint or may be in both.

    Raises
    ------
    ArgumentError
        If the tables were counted for different units, or only one of them for a unit.
    """
    if first is None or second is None:
        if first is not second:
            raise ArgumentError("Count both tables with unit=: one of them was counted without it.")
        return None
    if (first.unit, first.distinct) != (second.unit, second.distinct):
        raise ArgumentError("Count both tables for the same unit, and both or neither with distinct=True.")
    if disjoint:
        return Bound(first.unit, max(first.records, second.records), first.distinct)
    # A unit may be in both, and have a record in the same cell of both.
    return Bound(first.unit, first.records + second.records, first.distinct)
