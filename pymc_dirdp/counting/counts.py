"""Counts of records by cell, which know whose records they hold, and how they add up."""

import math
from collections.abc import Iterator, Sequence
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


def tabulate(columns: Sequence[Integers], shape: tuple[int, ...], times: Integers | None = None) -> Integers:
    """How many records have each combination of codes, where `times` says how many each row stands for. **Secret**."""
    cells = np.ravel_multi_index(tuple(columns), shape)
    # With weights NumPy adds in doubles, which are exact for as many records as `row_counts` allows.
    return np.bincount(cells, times, minlength=math.prod(shape)).astype(np.int64).reshape(shape)


def row_counts(frame: Frame, name: str) -> Integers:
    """How many records each row of a frame stands for, according to a column. **Secret**.

    Raises
    ------
    DataError
        If an entry is no integer from 0 on, or they add up to more than 2**53. The message holds no number.
    """
    values = values_of(column_of(frame, name), name)
    whole = all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_RECORDS and value % 1 == 0
        for value in values
    )
    if not whole or sum(map(int, values)) > MAX_RECORDS:
        raise DataError(
            f"Expected the column {name!r} to hold numbers of records, integers from 0 on that add up to at most "
            "2**53. Leave survey weights out: they belong to the released shares."
        )
    return np.array(values, dtype=np.int64)


# Counts that remember whose records they hold, so that a plan protects these people.


# The variables of a table with their labels, axis by axis.
_Declared = tuple[tuple[str, tuple[Any, ...]], ...]


class Counts(np.ndarray[Any, np.dtype[np.int64]]):
    """A table of counts as :func:`count` returns it: an array that knows what was declared. It is **secret**.

    Pass it as `observed=` itself. PyMC keeps what it knows, so :func:`plan` protects the unit that was counted. A part
    of it, a sum along its axes, and a copy know the unit too. A file does not: say `contribution=` to :func:`plan`
    there. Nor do `np.asarray(counts)`, `pm.Data`, lists, and arrays of pandas and xarray: a model that observes the
    same numbers in one of these, while the counts live, is refused where nothing is said of people.

    `first + second` adds tables of the same variables, categories and unit. A unit may have records in both, so what
    it contributes adds up; :meth:`with_other_people` is for tables of different units.

    Attributes
    ----------
    bound : Bound or None
        The unit, and how many of its records were counted at most; None if each record was counted.
    is_computed : bool
        Whether the numbers were computed from bounded counts in a way that may have changed what a unit contributes.

    Raises
    ------
    ArgumentError
        If tables are added whose declarations differ, or that are no whole tables.

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
    _declared: _Declared | None

    @classmethod
    def of(cls, table: Integers, declared: _Declared | None = None, bound: Bound | None = None) -> Self:
        """Return the counts with what was declared."""
        counts = table.view(cls)
        counts._declared, counts.bound = declared, bound
        counts._remember()
        return counts

    def _remember(self) -> None:
        if self.bound is not None:
            _LIVE[id(self)] = self

    def __array_finalize__(self, given: Any) -> None:
        # A part of a table has the bound of the whole. Its variables are not known.
        self.bound = getattr(given, "bound", None)
        # What is no part of the same memory may hold a cell twice, or cells that were mixed: `take`, `repeat`, `dot`.
        is_part = self.base is not None and self.size <= np.size(given) and self.dtype == given.dtype
        self.is_computed = self.bound is not None and (given.is_computed or not is_part)
        self._declared = None
        self._remember()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if out is not None:
            options["out"] = tuple(_plain(one) for one in out)
        result = getattr(ufunc, method)(*map(_plain, inputs), **options)
        is_sum = ufunc is np.add and method == "reduce"
        if out is not None:
            for one in out:
                if isinstance(one, Counts):
                    one.is_computed, one._declared = True, None
            return out[0] if len(out) == 1 else out
        return self._marked(result, [one for one in inputs if isinstance(one, Counts)], computed=not is_sum)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(function, types, args, kwargs)
        if isinstance(result, Counts):
            # Functions of NumPy whose result is a table of the same records, in new memory.
            result.is_computed |= self._is_mixed(result) and function not in (np.sum, np.copy)
            return result
        return self._marked(result, [self], computed=True)

    def _is_mixed(self, result: np.ndarray[Any, Any]) -> bool:
        """Whether a result is no part of this memory, so that it may hold a cell twice, or in another place."""
        return self.bound is not None and not np.may_share_memory(np.asarray(result), np.asarray(self))

    def _marked(self, result: Any, inputs: "list[Counts]", *, computed: bool) -> Any:
        """What was computed from bounded counts, with their bound. What comes from others is a plain array."""
        bounded = [one for one in inputs if one.bound is not None]
        if not bounded or not isinstance(result, np.ndarray):
            return result
        marked = Counts.of(result, bound=bounded[0].bound)
        marked.is_computed = computed or any(one.is_computed for one in inputs)
        return marked

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, np.ndarray) or self.bound is None:
            if isinstance(found, Counts):
                found.is_computed |= self._is_mixed(found)
            return found
        # A number cannot know the unit, and one cell may be what a Binomial observes.
        cell = Counts.of(np.asarray(found), bound=self.bound)
        cell.is_computed = self.is_computed
        return cell

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.is_computed, self._declared = self.bound is not None, None

    def copy(self, order: Any = "C") -> Self:
        """A copy, which knows the unit."""
        copied: Self = self._same(super().copy(order))
        return copied

    def astype(self, *args: Any, **options: Any) -> Any:
        """The counts as another type of number, which know the unit."""
        return self._same(super().astype(*args, **options))

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Self:
        return self.copy()

    def _same(self, copied: Any) -> Any:
        """A copy of all numbers."""
        if isinstance(copied, Counts):
            copied.is_computed = self.is_computed
        return copied

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
        return self._sum(other, others=False) if isinstance(other, Counts) else super().__add__(other)

    __iadd__ = __add__

    def __radd__(self, other: Any) -> Any:
        # `sum` starts with 0.
        return self if type(other) is int and other == 0 else super().__radd__(other)

    def with_other_people(self, other: "Counts") -> Self:
        """Add counts of other units: nobody has records in both. What a unit contributes stays the same.

        That nobody is in both cannot be seen in counts. It holds, for example, if the records were divided by unit.

        Parameters
        ----------
        other : Counts
            Of the same variables, categories and unit.

        Returns
        -------
        Counts
        """
        if not isinstance(other, Counts):
            raise ArgumentError(f"Expected counts as count() returns them, got {type_name(other)}.")
        return self._sum(other, others=True)

    def _sum(self, other: "Counts", *, others: bool) -> Self:
        if self._declared is None or other._declared is None or self.is_computed or other.is_computed:
            raise ArgumentError(
                "Only whole tables as count() returned them can be added, not parts or copies: which variables those "
                "have is not known. Add first, or add np.asarray(...) of each and say contribution= to plan()."
            )
        _refuse_other_declaration(self._declared, other._declared)
        bound = _bound_of_sum(self.bound, other.bound, others=others)
        return type(self).of(np.asarray(self) + np.asarray(other), self._declared, bound)


# Bounded counts that live in this process, by identity: arrays have no hash.
_LIVE: "WeakValueDictionary[int, Counts]" = WeakValueDictionary()


def live_bound(numbers: np.ndarray[Any, Any]) -> Bound | None:
    """The largest bound of counts of this process that hold the same numbers, in any shape and order, if there are any.

    Also looked at are sums of these counts over some of their variables, and the counts of one category in all rows.
    What PyMC, xarray, pandas, NumPy and lists make of counts shares no memory with them, so nothing but the numbers
    tells where they come from. One number may agree by chance, and all tables without records are equal, so neither is
    looked for. The answer depends on the counts, which are **secret**.
    """
    wanted = np.sort(numbers, axis=None)
    found: list[Bound] = []
    for counts in list(_LIVE.values()) if wanted.size > 1 and wanted.any() else ():
        if counts.bound is None or counts.is_computed:
            continue
        if any(np.array_equal(np.sort(part, axis=None), wanted) for part in _parts(np.asarray(counts), wanted.size)):
            found.append(counts.bound)
    return max(found, key=lambda bound: bound.records, default=None)


def _parts(counts: np.ndarray[Any, Any], size: int) -> Iterator[np.ndarray[Any, Any]]:
    """The table, its sums over axes, and its counts of one category in all rows, if they have this size. **Secret**."""
    axes = range(counts.ndim)
    for summed in (some for n_summed in axes for some in combinations(axes, n_summed)):
        if math.prod(length for axis, length in enumerate(counts.shape) if axis not in summed) == size:
            yield counts.sum(axis=summed)
    if counts.ndim > 1 and math.prod(counts.shape[:-1]) == size:
        yield from np.moveaxis(counts, -1, 0)


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Counts) else value


def _refuse_other_declaration(mine: _Declared, its: _Declared) -> None:
    """Refuse to add tables that were not declared in the same way."""
    if mine != its:
        raise ArgumentError("The tables have different variables or categories. Count all with the same ones.")


def _bound_of_sum(mine: Bound | None, its: Bound | None, *, others: bool) -> Bound | None:
    """What one unit contributes to the sum of two tables, of other units or of units that may be in both.

    Raises
    ------
    ArgumentError
        If the tables were counted for different units, or only one of them for a unit.
    """
    if mine is None or its is None:
        if mine is not its:
            raise ArgumentError("One table was counted with unit= and the other without. Count both with it.")
        return None
    if (mine.unit, mine.distinct) != (its.unit, its.distinct):
        raise ArgumentError("The tables were counted for different units, or one with distinct=True. Count again.")
    if others:
        return Bound(mine.unit, max(mine.records, its.records), mine.distinct)
    # A unit may be in both, and have a record in the same cell of both.
    return Bound(mine.unit, mine.records + its.records, mine.distinct)
