"""Reads the observed values of tables, and the facts about observed variables that concern people.

Counts are secret. No error contains a value.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray

from pymc_dirdp.checks import MAX_RECORDS
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.models.graph import Node, evaluate, origin, parameters, root_of, same_data, shift_axis, stored_shape
from pymc_dirdp.models.likelihoods import KINDS, Kind, stored_observations, trials_parameter
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.table import Likelihood, Table
from pymc_dirdp.models.tables import Parent, parents_of

Counts = NDArray[np.int64]


def total_records(observations: Iterable["Observation"]) -> int:
    """The number of records in the table of these observed variables.

    It is public under replace-one and private under add-remove. It follows from the number of trials, or from the
    shape of raw records; observed values are not read.

    Raises
    ------
    DataError
        If the total is above 2**53.
    """
    return sum(int(observed.totals(())) for observed in observations)


def _align_axes(values: NDArray[Any], on: Sequence[int], batch: tuple[int, ...]) -> NDArray[Any]:
    """An array whose axes are some of the batch axes, with axes of length 1 for all others."""
    lengths = [1] * len(batch)
    for axis, length in zip(on, values.shape, strict=True):
        lengths[axis] = length
    return values.transpose(np.argsort(on)).reshape(lengths)


def read_counts(observations: Sequence["Observation"]) -> Counts:
    """The secret counts of a table: the number of records in each cell.

    PyMC converts the observations first. It truncates a plain array to integers: `observed=[1.5, 2]` arrives as `[1,
    2]`, which is detected only if it does not add up to `n`. A `pm.Data` of floats arrives unchanged. PyMC stores
    integer arrays in 32 bits, so counts of 2**31 and more wrap around; lists and floats do not. Under
    `floatX="float32"` it stores them in 16 bits, and counts of 2**24 and more are refused.

    Parameters
    ----------
    observations : sequence of Observation
        All observed variables of one table.

    Returns
    -------
    ndarray of int64
        In the shape of the table, summed over all axes that are not rows of it.

    Raises
    ------
    DataError
        If the observations do not fit their likelihood: not integers >= 0, not adding up to `n` or above it, codes
        outside the categories, shapes that do not fit the rows, a total above 2**53. The error names the variable and
        the problem, never a value, a position or a number of records.
    """
    counts = np.zeros(observations[0].table.shape, dtype=np.int64)
    for observed in observations:
        counts += observed.counts()
    return counts


class Records(NamedTuple):
    """**Secret**: the checked observations of one likelihood.

    Attributes
    ----------
    values : ndarray of int64
        The observations.
    row : ndarray of int64
        The number of the row that each observation feeds, among the rows that the likelihood sees; of length 1 along
        each batch axis on which it does not depend.
    records : ndarray of int64, shape (*batch, d), or None
        The observations as counts of categories; None for a Categorical, whose values are their numbers.
    """

    values: Counts
    row: Counts
    records: Counts | None

    def __repr__(self) -> str:
        return "Records(secret)"


def _codes(parent: Parent, length: int, observed: str, batch: tuple[int, ...]) -> Counts:
    """The codes of each observation, all from 0 to `length` - 1."""
    index = _evaluated_input(parent.index, observed)
    lengths = parent.lengths(batch)
    if index.size != math.prod(lengths) or tuple(index.shape[axis] for axis in parent.places) != lengths:
        raise _invalid(observed, "do not have one code for each observation", "parents")
    index = (index != 0).astype(np.int64) if parent.truth else index
    code = _integers(index.reshape([batch[axis] for axis in parent.axes]), observed, "parents")
    if np.any(code >= length):
        raise _invalid(observed, f"are not all codes from 0 to {length - 1}", "parents")
    return _align_axes(code, parent.axes, batch)


def _trials_of(rv: Node, kind: Kind, batch: tuple[int, ...]) -> Counts | None:
    """`n` as the model gives it, with an axis for each batch axis, of length 1 where it is the same along it.

    None for a likelihood without trials.
    """
    if kind.trials is None:
        return None
    observed = str(rv.name)
    trials = _integers(_evaluated_input(trials_parameter(rv, kind), observed), observed, "numbers of trials")
    # PyTensor may have more axes of length 1 than there are observations.
    aligned = (1,) * (len(batch) - trials.ndim) + trials.shape
    if len(aligned) != len(batch) or any(n not in (1, length) for n, length in zip(aligned, batch, strict=True)):
        raise _invalid(observed, "have another shape than the number of trials")
    return trials.reshape(aligned)


def _evaluated_input(variable: Node, observed: str) -> NDArray[Any]:
    """The value of an input of a likelihood; no error shows it."""
    with suppress(Exception):
        return evaluate(variable)
    # Raised here and not in a handler, because PyTensor's message holds values and would be attached as the context.
    raise _invalid(observed, "or their number of trials cannot be computed")


def _integers(values: NDArray[Any], observed: str, what: str = "observations", *, in_float32: bool = False) -> Counts:
    """The same values as integers, or an error that names the problem and shows no value.

    A short float has rounded large integers before they arrive, so that two neighbouring data sets could differ by more
    than one record. Above 2**24 `float32` has only even numbers and rounds 2**24 + 1 to 2**24, so 2**24 itself is
    refused, too. PyMC casts observations to floatX and then to integers, so their dtype no longer shows that they were
    cast `in_float32`.
    """
    if values.dtype.kind not in "biuf":
        raise _invalid(observed, "are not a dense array of numbers", what)
    if not np.all(np.isfinite(values)):
        raise _invalid(observed, "are not all finite", what)
    if np.any(values < 0):
        missing = "; a missing value, such as the code -1 of pandas, needs a category of its own"
        raise _invalid(observed, f"are not all >= 0{'' if what == 'numbers of trials' else missing}", what)
    if values.dtype.kind == "f" and np.any(values != np.floor(values)):
        raise _invalid(
            observed, "are not all integers. Pass unweighted counts, and weight the released shares instead", what
        )
    if np.any(values > MAX_RECORDS):
        raise _invalid(observed, "are above 2**53", what)
    precision = np.finfo(values.dtype if values.dtype.kind == "f" else np.float64)
    if in_float32 and precision.bits > 32:
        precision = np.finfo(np.float32)
    if precision.bits < 64 and np.any(values >= 2 ** (precision.nmant + 1)):
        problem = f"reach 2**{precision.nmant + 1}, from where {precision.dtype} no longer holds every integer. "
        raise _invalid(observed, problem + "Use floatX='float64' and arrays of that dtype", what)
    return values.astype(np.int64)


def _check_total(values: Counts, observed: str) -> None:
    # Sum in doubles first, because the exact sum of many large numbers would wrap around.
    if values.sum(dtype=np.float64) > MAX_RECORDS or int(values.sum()) > MAX_RECORDS:
        raise _invalid(observed, "count more than 2**53 records in all")


def _invalid(observed: str, problem: str, what: str = "observations") -> DataError:
    return DataError(f"The {what} of {observed!r} {problem}.")


@dataclass(frozen=True, eq=False, repr=False)
class Observation:
    """An observed variable of a table: its axes, its number of records, and the codes that choose rows.

    Attributes
    ----------
    name : str
        The observed variable.
    table : Table
        The table in which its records are counted.
    likelihood : Likelihood
        Its view of the table.
    kind : Kind
        The kind of its distribution.
    axes : tuple of str or int
        Its batch axes: a dim's name, or the number of an axis without a dim.
    core : tuple of str
        The dims of its categories.
    lengths : tuple of int
        The lengths of the batch axes. Under add-remove the number of people is private, and so is the length of the
        axis that holds them.
    rows : tuple of int or None
        For every row axis of its view of the table, the batch axis that the row follows by position. None where codes
        of parents choose the row, and where there is one row along the axis, unless both have the same dim.
    trials : ndarray or None
        The number of trials, with one axis for each batch axis (of length 1 where it is the same along it); None where
        each observation is one record.
    numbered : tuple of int
        The batch axes along which the model gives a number of trials for each entry.
    parents : tuple of Parent
        The codes that choose rows, one for each None in the `rows` of the likelihood.
    variable : Variable
        The observed variable itself.
    stored : Variable
        The array of its observations.
    in_float32 : bool
        Whether the model was built under ``floatX="float32"``, or is read under it.
    """

    name: str
    table: Table
    likelihood: Likelihood
    kind: Kind
    axes: tuple[str | int, ...]
    core: tuple[str, ...]
    lengths: tuple[int, ...]
    rows: tuple[int | None, ...]
    trials: NDArray[np.int64] | None
    numbered: tuple[int, ...]
    parents: tuple[Parent, ...]
    variable: Node
    stored: Node
    in_float32: bool

    @property
    def codes(self) -> tuple[tuple[str, Node], ...]:
        """The names and the stored arrays of its parents."""
        return tuple((parent.name, array) for parent in self.parents for array in parent.stored)

    @property
    def arrays(self) -> tuple[Node, ...]:
        """The arrays of its observations and of its parents' codes, and the whole arrays behind parts."""
        parts = (self.stored, *(codes for _, codes in self.codes))
        whole = (root for root in map(root_of, parts) if root is not None)
        return tuple(dict.fromkeys((*parts, *whole)))

    @property
    def record_axes(self) -> tuple[int, ...]:
        """The batch axes along which every entry has a row of its own."""
        return tuple(axis for axis in self.rows if axis is not None)

    @property
    def summed(self) -> tuple[int, ...]:
        """The other batch axes, including those of length 1, because a length may be a private number of records."""
        return tuple(axis for axis in range(len(self.lengths)) if axis not in self.record_axes)

    @property
    def shown(self) -> frozenset[int]:
        """The batch axes whose entries the rows of the table may show.

        These are the record axes, and in a table with labels an axis without a dim whose single entry is a row.
        """
        followed = (axis for axis in self.likelihood.rows if axis is not None and self.table.dims)
        single = (axis for axis in followed if self.lengths[axis] == 1 and not isinstance(self.axes[axis], str))
        return frozenset((*self.record_axes, *single))

    @property
    def integrated(self) -> bool:
        """Whether each observation has a row of its own, which the likelihood integrates out."""
        return self.kind.probability is None

    @property
    def has_several_trials(self) -> bool:
        """Whether an observation may hold several trials. If each has a number of its own, no number is read."""
        return bool(self.numbered) or (self.trials is not None and bool(self.trials.max(initial=0) > 1))

    @property
    def common_n_trials(self) -> int | None:
        """The number of trials if the model has a single one, otherwise None."""
        if self.trials is None:
            return 1
        return int(self.trials.flat[0]) if self.trials.size == 1 else None

    def trials_differ_along(self, axes: tuple[int, ...]) -> bool:
        """Whether the number of trials differs along these batch axes."""
        if self.trials is None or not self.trials.size or not axes:
            return False
        return bool(np.any(self.trials.max(axis=axes) != self.trials.min(axis=axes)))

    def step_axis(self, other: "Observation", *, strict: bool = False) -> int | None:
        """The axis along which a parent is the observations of `other` some steps later, as in a Markov chain.

        With `strict`, enough numbers have to agree to rule out chance. A parent that is `other` itself is not a
        sequence, although periodic data are the same some steps later.
        """
        # Twelve numbers of two categories agree by chance in one of 4096 cases.
        min_matches = 12 if strict else 2
        arrays = (array for _, array in self.codes if not same_data(array, other.stored))
        axes = (shift_axis(array, other.stored, least=min_matches) for array in arrays)
        return next((axis for axis in axes if axis is not None), None)

    @property
    def records_per_step(self) -> int:
        """The number of records with an entry of a chain: its own, and one for each parent in which it recurs."""
        return 1 + sum(shift_axis(array, self.stored) is not None for _, array in self.codes)

    def max_records_in_block(self, people: tuple[int, ...]) -> int:
        """The largest number of records of an entry of the axes `people` in cells that no record axis separates."""
        merged = tuple(axis for axis in self.summed if axis not in people)
        if self.trials is None:
            return math.prod(self.lengths[axis] for axis in merged)
        lengths = [self.lengths[axis] if axis in merged else n for axis, n in enumerate(self.trials.shape)]
        return int(np.broadcast_to(self.trials, lengths).sum(axis=merged).max(initial=0))

    def records_of(self, people: tuple[int, ...]) -> Counts:
        """The number of records of each entry of the axes `people`."""
        others = tuple(axis for axis in range(len(self.lengths)) if axis not in people)
        return np.asarray(np.broadcast_to(self._trials, self.lengths).sum(axis=others))

    @property
    def _trials(self) -> Counts:
        """The number of trials of every observation, 1 where it is one record, with axes of length 1 as in `trials`."""
        return np.ones((1,) * len(self.lengths), dtype=np.int64) if self.trials is None else self.trials

    def _checked_trials(self) -> Counts:
        if self.trials is not None:
            _check_total(np.broadcast_to(self.trials, self.lengths), self.name)
        return self._trials

    def totals(self, axes: Sequence[int]) -> Counts:
        """The number of this variable's records for each entry of some row axes of the table, in their shape.

        The positions of observations must determine the entry, and whether a record belongs to the table. No observed
        value is read.

        Raises
        ------
        DataError
            If there are more than 2**53 records.
        """
        shape, by_position = self.table.shape, [axis for axis in self.likelihood.rows if axis is not None]
        lengths = [shape[axis] for axis in axes]
        # For every row that the likelihood sees, the number of the entry of these axes; -1 for one of another table.
        rows = self.likelihood.table_rows(shape)
        places = np.unravel_index(np.maximum(rows, 0), shape[:-1]) if shape[:-1] else ()
        entries = np.zeros_like(rows)
        for axis in axes:
            entries = entries * shape[axis] + places[axis]
        entries = np.where(rows >= 0, entries, -1)
        by_codes = tuple(k for k, axis in enumerate(self.likelihood.rows) if axis is None)
        if np.any(entries.max(axis=by_codes) != entries.min(axis=by_codes)):
            parents = " and ".join(self.likelihood.parents)
            raise refusal("tables by codes", self.name, names="its tables", parent=parents)
        # All entries along the axes of codes are equal.
        placed, trials = _align_axes(entries.max(axis=by_codes), by_position, self.lengths), self._checked_trials()
        # Observations along axes on which neither the row nor the number of trials depends are multiplied, not listed.
        joint = np.broadcast_shapes(placed.shape, trials.shape)
        alike = math.prod(length for length, n in zip(self.lengths, joint, strict=True) if n == 1)
        placed, trials = np.broadcast_to(placed, joint), np.broadcast_to(trials, joint)
        totals = np.zeros(math.prod(lengths), dtype=np.int64)
        np.add.at(totals, placed[placed >= 0], alike * trials[placed >= 0])
        return totals.reshape(lengths)

    def records(self) -> Records:
        """**Secret**: the checked observations, or the errors of :func:`read_counts`."""
        values = _integers(_evaluated_input(self.stored, self.name), self.name, in_float32=self.in_float32)
        lengths, parents = self.likelihood.shape(self.table.shape), iter(self.parents)
        row = np.zeros((1,) * len(self.lengths), dtype=np.int64)
        for axis, length in zip(self.likelihood.rows, lengths[:-1], strict=True):
            if axis is None:
                entry = _codes(next(parents), length, self.name, self.lengths)
            else:
                entry = _align_axes(np.arange(length), [axis], self.lengths)
            row = row * length + entry
        if self.kind.name == "categorical":
            if np.any(values >= lengths[-1]):
                raise _invalid(self.name, f"are not all codes from 0 to {lengths[-1] - 1}")
            return Records(values, row, None)
        trials = self._checked_trials()
        if self.kind.core:
            _check_total(values, self.name)
            if np.any(values.sum(axis=-1) != trials):
                raise _invalid(
                    self.name,
                    "do not add up to `n` in every row. For shares within rows pass n=counts.sum(axis=-1). For the "
                    "shares of all cells of a table pass observed=counts.ravel(), with one Dirichlet of this length. "
                    "Use unweighted counts, because PyMC rounds others down, and weight the released shares instead",
                )
            return Records(values, row, values)
        if np.any(values > trials):
            raise _invalid(self.name, "are not all 0 or 1" if self.kind.trials is None else "are above `n` in some row")
        return Records(values, row, np.stack([values, trials - values], axis=-1))

    def counts(self) -> Counts:
        """**Secret**: the number of records in each cell of the table, or the errors of :func:`read_counts`."""
        shape, observed = self.likelihood.shape(self.table.shape), self.records()
        if observed.records is None:
            # Count each category in each row, without an indicator for each record and category.
            cells = np.bincount((observed.row * shape[-1] + observed.values).ravel(), minlength=math.prod(shape))
        else:
            # Sum the records along the axes that no row follows, and then by the row that they feed.
            repeated = tuple(axis for axis, length in enumerate(observed.row.shape) if length == 1)
            records = observed.records.sum(axis=repeated, keepdims=True)
            cells = np.zeros((math.prod(shape[:-1]), shape[-1]), dtype=np.int64)
            np.add.at(cells, observed.row.ravel(), records.reshape(-1, shape[-1]))
        cells = cells.reshape(shape)
        return cells if self.likelihood.view is None else self.likelihood.view.to_table(cells, self.table.shape)


def find_observations(tables: Iterable[Table], model: pm.Model) -> tuple[Observation, ...]:
    """The observed variables of some tables of a model. Numbers of trials are read, observed values are not.

    Raises
    ------
    DataError
        If the numbers of trials are not integers >= 0 that fit the shape of the observations, or that shape does not
        fit the table.
    """
    return tuple(_observation(table, likelihood, model) for table in tables for likelihood in table.likelihoods)


def _observation(table: Table, likelihood: Likelihood, model: pm.Model) -> Observation:
    name, rv = likelihood.name, model.named_vars.get(likelihood.name)
    if rv is None:
        raise ArgumentError(f"The model has no variable {name!r}. Does the table belong to another model?")
    kind, stored = KINDS[likelihood.kind], stored_observations(rv, model)
    shape, row_lengths = stored_shape(stored), likelihood.shape(table.shape)[:-1]
    lengths = shape[: len(shape) - kind.core]
    if kind.core and shape[-1] != table.n_categories:
        raise _invalid(name, f"do not have the {table.n_categories} categories of the prior")
    for axis, length in zip(likelihood.rows, row_lengths, strict=True):
        # All records along this axis share a row axis of length 1. One observation for many rows would be counted
        # many times.
        if axis is not None and length not in (1, lengths[axis]):
            raise _invalid(name, f"do not have the {length} rows of the prior along axis {axis}")
    size, _ = parameters(rv)
    # PyMC repeats the likelihood up to `shape=`, so the same record would count many times.
    if size is not None and tuple(_evaluated_input(size, name)) != lengths:
        raise _invalid(name, "do not have the shape that the variable declares")
    parents = parents_of(rv, kind, model) if likelihood.parents else ()
    # PyMC would repeat an array of another shape, and one person's parents would change many records.
    if any(stored_shape(array) != parent.lengths(lengths) for parent in parents for array in parent.stored):
        raise _invalid(
            name,
            "do not have one code for each observation. Repeat codes that several observations share, as "
            "np.repeat(codes[:, None], n, axis=1) does, and pass unit= for the axis of the people",
            "parents",
        )
    dims = model.named_vars_to_dims.get(name) or (None,) * len(shape)
    names = tuple(axis if dim is None else dim for axis, dim in enumerate(dims))
    # Where the prior is integrated out, each observation has its own row, also if there is only one observation.
    is_integrated = kind.probability is None
    row_dims = table.dims[: len(row_lengths)] if likelihood.view is None and table.dims else (None,) * len(row_lengths)
    trials, numbered = _trials_of(rv, kind, lengths), tuple[int, ...]()
    if trials is not None:
        parameter = trials_parameter(rv, kind)
        # PyMC adds axes of length 1 to a single number for all observations.
        written_axes = {
            axis + len(lengths) - parameter.type.ndim for axis in origin(parameter, through_rounding=True)[1]
        }
        full_axes = (axis for axis, length in enumerate(lengths) if trials.shape[axis] == length)
        numbered = tuple(axis for axis in full_axes if lengths[axis] > 1 or axis in written_axes)
    in_float32 = pytensor.config.floatX == "float32"  # type: ignore[attr-defined]
    return Observation(
        name=name,
        table=table,
        likelihood=likelihood,
        kind=kind,
        axes=names[: len(lengths)],
        core=tuple(name for name in names[len(lengths) :] if isinstance(name, str)),
        lengths=lengths,
        rows=tuple(
            axis if length > 1 or is_integrated or (axis is not None and names[axis] == dim) else None
            for axis, length, dim in zip(likelihood.rows, row_lengths, row_dims, strict=True)
        ),
        trials=trials,
        numbered=numbered,
        parents=parents,
        variable=rv,
        stored=stored,
        in_float32=in_float32 or any(free.type.dtype == "float32" for free in model.free_RVs),
    )
