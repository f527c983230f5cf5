"""The one door to observed values, and the facts about an observed variable that matter for people.

Counts are secret; no error holds a value.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray

from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.models.graph import Node, evaluate, origin, parameters, root_of, same_data, shift_axis, stored_shape
from pymc_dirdp.models.likelihoods import KINDS, Kind, stored_observations, trials_parameter
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.table import Likelihood, Table
from pymc_dirdp.models.tables import Parent, parents_of

Counts = NDArray[np.int64]


def total_records(table: Table, model: pm.Model) -> int:
    """How many records a table counts: public under replace-one, private under add-remove.

    It follows from the number of trials, or from the shape of raw records; observed values are not read.

    Parameters
    ----------
    table : Table
        A table that `tables` found in this model.
    model : pymc.Model
        What `root_model` has returned.

    Returns
    -------
    int

    Raises
    ------
    DataError
        If the number of trials is not made of integers >= 0 that fit the shape of the observations, or the
        total is above 2**53.
    """
    return int(totals_of(table, model, ()))


def totals_of(table: Table, model: pm.Model, axes: Sequence[int]) -> Counts:
    """How many records each entry of some row axes holds, in the shape of these axes, as :func:`total_records`.

    Positions of observations have to decide the entry, and whether a record belongs to the table.
    """
    lengths = [table.shape[axis] for axis in axes]
    totals = np.zeros(math.prod(lengths), dtype=np.int64)
    for likelihood in table.likelihoods:
        observed, kind, batch = _resolved(likelihood, table, model)
        # For every row that the likelihood sees, the number of the entry of these axes; -1 for one of another table.
        rows = likelihood.table_rows(table.shape)
        places = np.unravel_index(np.maximum(rows, 0), table.shape[:-1]) if table.shape[:-1] else ()
        entries = np.zeros_like(rows)
        for axis in axes:
            entries = entries * table.shape[axis] + places[axis]
        entries = np.where(rows >= 0, entries, -1)
        by_codes = tuple(k for k, axis in enumerate(likelihood.rows) if axis is None)
        if np.any(entries.max(axis=by_codes) != entries.min(axis=by_codes)):
            raise refusal("tables by codes", observed.name, names="its tables", parent=" and ".join(likelihood.parents))
        # Any entry along the axes that codes decide will do.
        placed = _spread(entries.max(axis=by_codes), [a for a in likelihood.rows if a is not None], batch)
        trials = _trials(observed, kind, batch)
        # Axes along which neither the row nor the number of trials differs are many observations, and are not gone
        # through.
        shape = np.broadcast_shapes(placed.shape, trials.shape)
        alike = math.prod(length for length, one in zip(batch, shape, strict=True) if one == 1)
        placed, trials = np.broadcast_to(placed, shape), np.broadcast_to(trials, shape)
        np.add.at(totals, placed[placed >= 0], alike * trials[placed >= 0])
    return totals.reshape(lengths)


def _spread(values: NDArray[Any], on: Sequence[int], batch: tuple[int, ...]) -> NDArray[Any]:
    """An array whose axes are some of the batch axes, with axes of length 1 for all others."""
    lengths = [1] * len(batch)
    for axis, length in zip(on, values.shape, strict=True):
        lengths[axis] = length
    return values.transpose(np.argsort(on)).reshape(lengths)


def read_counts(table: Table, model: pm.Model) -> Counts:
    """The secret counts: how many records fell into each cell.

    PyMC converts the observations before this function sees them. It cuts a plain array to integers: `observed=[1.5,
    2]` is `[1, 2]` here, and is caught only where it does not add up to `n`; a `pm.Data` of floats is read as it was
    given. It stores integer arrays in 32 bits, so counts of 2**31 and more wrap around; lists and floats do not. Under
    `floatX="float32"` it stores them in 16 bits, and counts of 2**24 and more are refused.

    Parameters
    ----------
    table : Table
        A table that `tables` found in this model.
    model : pymc.Model
        What `root_model` has returned.

    Returns
    -------
    ndarray of int64
        It has the table's shape, and is summed over all axes that are no rows of the table.

    Raises
    ------
    DataError
        If the observations are not what their likelihood says: not integers >= 0, not adding up to `n` or above
        it, codes outside the categories, shapes that do not fit the rows, a total above 2**53. It says which variable
        and what is wrong, never a value, a position or how many.
    """
    counts = np.zeros(table.shape, dtype=np.int64)
    for likelihood in table.likelihoods:
        shape = likelihood.shape(table.shape)
        seen = observed_records(likelihood, table, model)
        if seen.records is None:
            # How often each category occurs in each row, without an indicator for each record and category.
            cells = np.bincount((seen.row * shape[-1] + seen.values).ravel(), minlength=math.prod(shape))
        else:
            # Records are added up along the axes that no row follows, and then by the row that they feed.
            together = tuple(axis for axis, length in enumerate(seen.row.shape) if length == 1)
            records = seen.records.sum(axis=together, keepdims=True)
            cells = np.zeros((math.prod(shape[:-1]), shape[-1]), dtype=np.int64)
            np.add.at(cells, seen.row.ravel(), records.reshape(-1, shape[-1]))
        cells = cells.reshape(shape)
        counts += cells if likelihood.view is None else likelihood.view.carried(cells, table.shape)
    return counts


class Records(NamedTuple):
    """What one likelihood observes of a table, checked. It is secret.

    Attributes
    ----------
    kind : Kind
        The kind of its distribution.
    values : ndarray of int64
        The observations.
    row : ndarray of int64
        The number of the row that each feeds, among those that the likelihood sees; of length 1 along each batch axis
        on which it does not depend.
    records : ndarray of int64, shape (*batch, d), or None
        The observations as counts of categories; None for a Categorical, whose values are their numbers.
    """

    kind: Kind
    values: Counts
    row: Counts
    records: Counts | None


def observed_records(likelihood: Likelihood, table: Table, model: pm.Model) -> Records:
    """The records of a likelihood, or the errors of :func:`read_counts`."""
    observed, kind, batch = _resolved(likelihood, table, model)
    values = _integers(_evaluated_input(stored_observations(observed, model), observed), observed, model=model)
    lengths = likelihood.shape(table.shape)
    parents = iter(_checked_parents(observed, kind, batch, model) if None in likelihood.rows else ())
    row = np.zeros((1,) * len(batch), dtype=np.int64)
    for axis, length in zip(likelihood.rows, lengths[:-1], strict=True):
        if axis is None:
            entry = _codes(next(parents), length, observed, batch)
        else:
            entry = _spread(np.arange(length), [axis], batch)
        row = row * length + entry
    if kind.name == "categorical":
        if np.any(values >= lengths[-1]):
            raise _wrong(observed, f"are not all codes from 0 to {lengths[-1] - 1}")
        return Records(kind, values, row, None)
    trials = _trials(observed, kind, batch)
    if kind.core:
        _check_total(values, observed)
        if np.any(values.sum(axis=-1) != trials):
            raise _wrong(
                observed,
                "do not add up to `n` in every row. For shares within rows say n=counts.sum(axis=-1); for the shares "
                "of all cells of a table, observed=counts.ravel() and one Dirichlet of as many. Counts have to be "
                "unweighted: PyMC rounds others down, and survey weights belong to the released shares",
            )
        return Records(kind, values, row, values)
    if np.any(values > trials):
        raise _wrong(observed, "are not all 0 or 1" if kind.trials is None else "are above `n` in some row")
    return Records(kind, values, row, np.stack([values, trials - values], axis=-1))


def _resolved(likelihood: Likelihood, table: Table, model: pm.Model) -> tuple[Node, Kind, tuple[int, ...]]:
    """The observed variable, its kind, and the batch shape of its observations, which has to fit the table."""
    observed = model.named_vars.get(likelihood.name)
    if observed is None:
        raise ArgumentError(f"The model has no variable {likelihood.name!r}. Was the table found in another model?")
    kind = KINDS[likelihood.kind]
    shape = stored_shape(stored_observations(observed, model))
    batch = shape[: len(shape) - kind.core]
    if kind.core and shape[-1] != table.n_categories:
        raise _wrong(observed, f"do not have the {table.n_categories} categories of the prior")
    for axis, length in zip(likelihood.rows, likelihood.shape(table.shape)[:-1], strict=True):
        # All records along this axis share a row axis of length 1. One observation for many rows would be counted
        # many times.
        if axis is not None and length not in (1, batch[axis]):
            raise _wrong(observed, f"do not have the {length} rows of the prior along axis {axis}")
    size, _ = parameters(observed)
    # PyMC repeats the likelihood up to `shape=`, so the same record would count many times.
    if size is not None and tuple(_evaluated_input(size, observed)) != batch:
        raise _wrong(observed, "do not have the shape that the variable declares")
    return observed, kind, batch


def _checked_parents(observed: Node, kind: Kind, batch: tuple[int, ...], model: pm.Model) -> tuple[Parent, ...]:
    """The parents of an observed variable, each with one code for each observation. No code is read."""
    parents = parents_of(observed, kind, model)
    # PyMC would repeat an array of another shape, and one person's parents would move many records.
    if any(stored_shape(array) != parent.lengths(batch) for parent in parents for array in parent.stored):
        raise _wrong(
            observed,
            "do not have one code for each observation. Repeat codes that several observations share, as "
            "np.repeat(codes[:, None], n, axis=1) does, and say with unit= whose records they are",
            "parents",
        )
    return parents


def _codes(parent: Parent, length: int, observed: Node, batch: tuple[int, ...]) -> Counts:
    """The codes of each observation, all from 0 to `length` - 1."""
    given = _evaluated_input(parent.index, observed)
    wanted = parent.lengths(batch)
    if given.size != math.prod(wanted) or tuple(given.shape[axis] for axis in parent.places) != wanted:
        raise _wrong(observed, "do not have one code for each observation", "parents")
    given = (given != 0).astype(np.int64) if parent.truth else given
    code = _integers(given.reshape([batch[axis] for axis in parent.axes]), observed, "parents")
    if np.any(code >= length):
        raise _wrong(observed, f"are not all codes from 0 to {length - 1}", "parents")
    return _spread(code, parent.axes, batch)


def _trials_of(observed: Node, kind: Kind, batch: tuple[int, ...]) -> Counts | None:
    """`n` as the model gives it, with an axis for each batch axis, of length 1 where it is the same along it.

    None for a likelihood without trials.
    """
    if kind.trials is None:
        return None
    given = _evaluated_input(trials_parameter(observed, kind), observed)
    trials = _integers(given, observed, "numbers of trials")
    # PyTensor may have more axes of length 1 than there are observations.
    aligned = (1,) * (len(batch) - trials.ndim) + trials.shape
    if len(aligned) != len(batch) or any(n not in (1, length) for n, length in zip(aligned, batch, strict=True)):
        raise _wrong(observed, "have another shape than the number of trials")
    return trials.reshape(aligned)


def _trials(observed: Node, kind: Kind, batch: tuple[int, ...]) -> Counts:
    """The number of trials of every observation, 1 where it is one record, with axes of length 1 as `_trials_of`."""
    given = _trials_of(observed, kind, batch)
    if given is None:
        return np.ones((1,) * len(batch), dtype=np.int64)
    _check_total(np.broadcast_to(given, batch), observed)
    return given


def _evaluated_input(variable: Node, observed: Node) -> NDArray[Any]:
    """The value of an input of a likelihood; no error shows it."""
    with suppress(Exception):
        return evaluate(variable)
    # Raised here and not in a handler, because PyTensor's message holds values and would be attached as the context.
    raise _wrong(observed, "or their number of trials cannot be computed")


def _integers(
    values: NDArray[Any], observed: Node, what: str = "observations", model: pm.Model | None = None
) -> Counts:
    """The same values as integers, or an error that says what is wrong with them and does not show them.

    Numbers that a short float cannot tell from the next one were rounded before anybody looked, so that two
    neighbouring data sets could differ by more than one record. Above 2**24 `float32` has only even numbers, and
    2**24 + 1 is rounded down to 2**24, so 2**24 itself is refused too. PyMC casts the observations of a `model` to
    floatX and then to integers, so their dtype no longer shows the cast.
    """
    if values.dtype.kind not in "biuf":
        raise _wrong(observed, "are not a dense array of numbers", what)
    if not np.all(np.isfinite(values)):
        raise _wrong(observed, "are not all finite", what)
    if np.any(values < 0):
        missing = "; a missing value, such as the code -1 of pandas, needs a category of its own"
        raise _wrong(observed, f"are not all >= 0{'' if what == 'numbers of trials' else missing}", what)
    if values.dtype.kind == "f" and np.any(values != np.floor(values)):
        raise _wrong(
            observed, "are not all integers. Pass unweighted counts: survey weights belong to the released shares", what
        )
    if np.any(values > MOST_RECORDS):
        raise _wrong(observed, "are above 2**53", what)
    precision = np.finfo(values.dtype if values.dtype.kind == "f" else np.float64)
    if model is not None and precision.bits > 32 and np.any(values >= 2 ** (np.finfo(np.float32).nmant + 1)):
        # The model may have been built under `floatX="float32"`, or be read under it.
        short = any(rv.type.dtype == "float32" for rv in model.free_RVs)
        if short or pytensor.config.floatX == "float32":  # type: ignore[attr-defined]
            precision = np.finfo(np.float32)
    if precision.bits < 64 and np.any(values >= 2 ** (precision.nmant + 1)):
        problem = f"reach 2**{precision.nmant + 1}, from where {precision.dtype} no longer holds every integer: "
        raise _wrong(observed, problem + "use floatX='float64', and make arrays of that dtype,", what)
    return values.astype(np.int64)


def _check_total(values: Counts, observed: Node) -> None:
    # The sum is taken in doubles first, because the exact sum of many large numbers would wrap around.
    if values.sum(dtype=np.float64) > MOST_RECORDS or int(values.sum()) > MOST_RECORDS:
        raise _wrong(observed, "count more than 2**53 records in all")


def _wrong(observed: Node, problem: str, what: str = "observations") -> DataError:
    return DataError(f"The {what} of {observed.name!r} {problem}.")


# The facts about one observed variable that matter for people: its axes, its trials and the origin of its rows.


@dataclass(frozen=True, eq=False, repr=False)
class Observation:
    """The facts about one likelihood of one table. A plan does not keep them, only what follows from them.

    Attributes
    ----------
    name : str
        The observed variable.
    table : Table
        The table in which its records are counted.
    likelihood : Likelihood
        What it sees of the table.
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
        For every row axis of what it sees of the table: the batch axis that decides it by position. None where codes
        of parents decide it, and where there is one row along it, unless both have the same dim.
    trials : ndarray or None
        The number of trials, with one axis for each batch axis (of length 1 where it is the same along it); None where
        each observation is one record.
    numbered : tuple of int
        The batch axes along which the model gives a number of trials for each entry.
    parents : tuple of (str, Variable)
        The names and stored arrays of its parents.
    followed : tuple of (str, tuple of int)
        The names of its parents and the batch axes along which each has its entries.
    stored : Variable
        The array of its observations.
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
    parents: tuple[tuple[str, Node], ...]
    followed: tuple[tuple[str, tuple[int, ...]], ...]
    stored: Node

    @property
    def arrays(self) -> tuple[Node, ...]:
        """The arrays of its observations and of its parents' codes, and the whole arrays of which they are parts."""
        own = (self.stored, *(codes for _, codes in self.parents))
        whole = (root for root in map(root_of, own) if root is not None)
        return tuple(dict.fromkeys((*own, *whole)))

    @property
    def record_axes(self) -> tuple[int, ...]:
        """The batch axes along which every entry has a row of its own."""
        return tuple(axis for axis in self.rows if axis is not None)

    @property
    def summed(self) -> tuple[int, ...]:
        """The other batch axes, also those of length 1: a length may be a private number of records."""
        return tuple(axis for axis in range(len(self.lengths)) if axis not in self.record_axes)

    @property
    def shown(self) -> frozenset[int]:
        """The batch axes whose entries the rows of the table may show.

        They are the record axes, and in a table with labels a nameless axis with a single entry at the place of a row.
        """
        followed = (axis for axis in self.likelihood.rows if axis is not None and self.table.dims)
        single = (axis for axis in followed if self.lengths[axis] == 1 and not isinstance(self.axes[axis], str))
        return frozenset((*self.record_axes, *single))

    @property
    def integrated(self) -> bool:
        """Whether each observation has a row of its own that the likelihood has integrated out."""
        return self.kind.probability is None

    @property
    def has_several_trials(self) -> bool:
        """Whether an observation may hold several trials. Where each has a number of its own, none is looked at."""
        return bool(self.numbered) or (self.trials is not None and bool(self.trials.max(initial=0) > 1))

    @property
    def one_number_of_trials(self) -> int | None:
        """The number of trials where the model says a single one, None where it says several."""
        if self.trials is None:
            return 1
        return int(self.trials.flat[0]) if self.trials.size == 1 else None

    def trials_differ_along(self, axes: tuple[int, ...]) -> bool:
        """Whether the number of trials differs along these batch axes."""
        if self.trials is None or not self.trials.size or not axes:
            return False
        return bool(np.any(self.trials.max(axis=axes) != self.trials.min(axis=axes)))

    def step_axis(self, other: "Observation", *, surely: bool = False) -> int | None:
        """The axis along which a parent is what is observed in `other` some steps later, as in a Markov chain.

        With `surely`, so many numbers have to agree that it can hardly be chance. A parent that is `other` itself is no
        sequence, although data that repeat themselves are the same some steps later.
        """
        # This many numbers of two categories agree by chance in one of 4096 cases.
        least = 12 if surely else 2
        apart = (array for _, array in self.parents if not same_data(array, other.stored))
        axes = (shift_axis(array, other.stored, least=least) for array in apart)
        return next((axis for axis in axes if axis is not None), None)

    @property
    def records_of_a_step(self) -> int:
        """The number of records that hold an entry of a chain: its own, and one for each parent that it becomes."""
        return 1 + sum(shift_axis(array, self.stored) is not None for _, array in self.parents)

    def most_in_a_block(self, people: tuple[int, ...]) -> int:
        """The largest number of records of an entry of the axes `people` in cells that no record axis separates."""
        together = tuple(axis for axis in self.summed if axis not in people)
        if self.trials is None:
            return math.prod(self.lengths[axis] for axis in together)
        lengths = [self.lengths[axis] if axis in together else n for axis, n in enumerate(self.trials.shape)]
        return int(np.broadcast_to(self.trials, lengths).sum(axis=together).max(initial=0))

    def records_of(self, people: tuple[int, ...]) -> NDArray[np.int64]:
        """How many records each entry of the axes `people` holds."""
        trials = np.ones((1,) * len(self.lengths), dtype=np.int64) if self.trials is None else self.trials
        others = tuple(axis for axis in range(len(self.lengths)) if axis not in people)
        return np.asarray(np.broadcast_to(trials, self.lengths).sum(axis=others))


def observation(table: Table, likelihood: Likelihood, model: pm.Model) -> Observation:
    """The facts about a likelihood of a table. It reads the number of trials, and no observed value."""
    # Before a ledger is charged, all shapes are found to fit.
    rv, kind, lengths = _resolved(likelihood, table, model)
    dims = model.named_vars_to_dims.get(likelihood.name) or (None,) * (len(lengths) + kind.core)
    names = tuple(axis if dim is None else dim for axis, dim in enumerate(dims))
    # Where the prior is integrated out, each observation has its own row, also if there is only one observation.
    alone = kind.probability is None
    row_lengths = likelihood.shape(table.shape)[:-1]
    row_dims = table.dims[: len(row_lengths)] if likelihood.view is None and table.dims else (None,) * len(row_lengths)
    by_axis = zip(likelihood.rows, row_lengths, row_dims, strict=True)
    parents = _checked_parents(rv, kind, lengths, model) if likelihood.parents else ()
    trials = _trials_of(rv, kind, lengths)
    numbered: tuple[int, ...] = ()
    if trials is not None:
        given = trials_parameter(rv, kind)
        # PyMC gives a number that is written for all of them axes of length 1, which are none of its own.
        own = {axis + len(lengths) - given.type.ndim for axis in origin(given, through_rounding=True)[1]}
        each = (axis for axis, length in enumerate(lengths) if trials.shape[axis] == length)
        numbered = tuple(axis for axis in each if lengths[axis] > 1 or axis in own)
    return Observation(
        name=likelihood.name,
        table=table,
        likelihood=likelihood,
        kind=kind,
        axes=names[: len(lengths)],
        core=tuple(name for name in names[len(lengths) :] if isinstance(name, str)),
        lengths=lengths,
        rows=tuple(
            axis if length > 1 or alone or (axis is not None and names[axis] == dim) else None
            for axis, length, dim in by_axis
        ),
        trials=trials,
        numbered=numbered,
        parents=tuple((parent.name, array) for parent in parents for array in parent.stored),
        followed=tuple((parent.name, parent.axes) for parent in parents),
        stored=stored_observations(rv, model),
    )
