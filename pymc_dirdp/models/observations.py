"""The only file that reads observed values. What it returns is secret; what it raises never holds a value."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray

from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.models.codes import Parent
from pymc_dirdp.models.graph import Node, evaluate, parameters, stored_shape
from pymc_dirdp.models.likelihood_routing import parents_of
from pymc_dirdp.models.likelihoods import KINDS, Kind, stored_observations, trials_parameter
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.table import Likelihood, Table
from pymc_dirdp.models.tables import root_model

__all__ = [
    "checked_parents",
    "counts_of",
    "evaluated_input",
    "integers",
    "read_counts",
    "records_by_cell",
    "records_of",
    "resolve_likelihood",
    "rows_of",
    "total_records",
    "totals_of",
    "trials_of",
]

Counts = NDArray[np.int64]

# From here on `float32` does not hold every integer.
_MOST_IN_SHORT = 2 ** (np.finfo(np.float32).nmant + 1)


def total_records(table: Table, model: pm.Model | None = None) -> int:
    """How many records a table counts: public under replace-one, private under add-remove.

    It follows from the number of trials, or from the shape of raw records; observed values are not read.

    Parameters
    ----------
    table : Table
        A table that `tables` found in this model.
    model : pymc.Model, optional
        The model on the context stack by default.

    Returns
    -------
    int

    Raises
    ------
    DataError
        If the number of trials is not made of integers >= 0 that fit the shape of the observations, or the
        total is above 2**53.
    """
    return records_of(table, root_model(model))


def records_of(table: Table, model: pm.Model) -> int:
    """The :func:`total_records` of a model that `root_model` has returned, which goes through all its variables."""
    return int(totals_of(table, model, ()))


def totals_of(table: Table, model: pm.Model, axes: Sequence[int]) -> Counts:
    """How many records each entry of some row axes holds, in the shape of these axes, as :func:`total_records`.

    Positions of observations have to decide the entry, and whether a record belongs to the table.
    """
    lengths = [table.shape[axis] for axis in axes]
    totals = np.zeros(math.prod(lengths), dtype=np.int64)
    for likelihood in table.likelihoods:
        observed, kind, batch = resolve_likelihood(likelihood, table, model)
        entries = _entries(likelihood, table, axes)
        by_codes = tuple(k for k, axis in enumerate(likelihood.rows) if axis is None)
        if np.any(entries.max(axis=by_codes) != entries.min(axis=by_codes)):
            raise refusal("tables by codes", observed.name, names="its tables", parent=" and ".join(likelihood.parents))
        # Any entry along the axes that codes decide will do.
        placed = _spread(entries.max(axis=by_codes), [a for a in likelihood.rows if a is not None], batch)
        trials = np.ones((1,) * len(batch), np.int64) if kind.trials is None else _trials(observed, kind, batch)
        # Axes along which neither the row nor the number of trials differs are many observations, and are not gone
        # through.
        shape = np.broadcast_shapes(placed.shape, trials.shape)
        alike = math.prod(length for length, one in zip(batch, shape, strict=True) if one == 1)
        placed, trials = np.broadcast_to(placed, shape), np.broadcast_to(trials, shape)
        np.add.at(totals, placed[placed >= 0], alike * trials[placed >= 0])
    return totals.reshape(lengths)


def _entries(likelihood: Likelihood, table: Table, axes: Sequence[int]) -> Counts:
    """For every row that a likelihood sees, the number of the entry of these axes; -1 for a row of another table."""
    shape = table.shape[:-1]
    seen = likelihood.shape(table.shape)[:-1]
    view = likelihood.view
    rows = np.arange(math.prod(shape)).reshape(shape) if view is None else view.rows(table.n_categories)
    places = np.unravel_index(np.maximum(rows, 0), shape) if shape else ()
    number = np.zeros(seen, dtype=np.int64)
    for axis in axes:
        number = number * shape[axis] + places[axis]
    return np.where(rows >= 0, number, -1).reshape(seen)


def _spread(values: NDArray[Any], on: Sequence[int], batch: tuple[int, ...]) -> NDArray[Any]:
    """An array whose axes are some of the batch axes, with axes of length 1 for all others."""
    lengths = [1] * len(batch)
    for axis, length in zip(on, values.shape, strict=True):
        lengths[axis] = length
    return values.transpose(np.argsort(on)).reshape(lengths)


def read_counts(table: Table, model: pm.Model | None = None) -> Counts:
    """The secret counts: how many records fell into each cell.

    PyMC converts the observations before this function sees them. It cuts a plain array to integers: `observed=[1.5,
    2]` is `[1, 2]` here, and is caught only where it does not add up to `n`; a `pm.Data` of floats is read as it was
    given. It stores integer arrays in 32 bits, so counts of 2**31 and more wrap around; lists and floats do not. Under
    `floatX="float32"` it stores them in 16 bits, and counts of 2**24 and more are refused.

    Parameters
    ----------
    table : Table
        A table that `tables` found in this model.
    model : pymc.Model, optional
        The model on the context stack by default.

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
    return counts_of(table, root_model(model))


def counts_of(table: Table, model: pm.Model) -> Counts:
    """The counts that :func:`read_counts` returns, of a model that `root_model` has returned."""
    counts = np.zeros(table.shape, dtype=np.int64)
    for likelihood in table.likelihoods:
        observed, kind, batch = resolve_likelihood(likelihood, table, model)
        values = integers(evaluated_input(stored_observations(observed, model), observed), observed)
        if np.any(values >= _MOST_IN_SHORT) and _is_short(model):
            # PyMC has cast an array of numbers to floatX and then to integers, so its dtype no longer shows the cast.
            _check_precision(values, np.finfo(np.float32), observed)
        shape = likelihood.shape(table.shape)
        row = rows_of(values, observed, likelihood, table, model)
        if kind.name == "categorical":
            seen = _tally(values, row, observed, shape)
        elif list(likelihood.rows) == sorted(axis for axis in likelihood.rows if axis is not None):
            seen = _summed(records_by_cell(values, observed, kind, batch), likelihood, shape)
        else:
            seen = _gathered(records_by_cell(values, observed, kind, batch), row, shape)
        counts += seen if likelihood.view is None else likelihood.view.carried(seen, table.shape)
    return counts


def resolve_likelihood(likelihood: Likelihood, table: Table, model: pm.Model) -> tuple[Node, Kind, tuple[int, ...]]:
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
    if size is not None and tuple(evaluated_input(size, observed)) != batch:
        raise _wrong(observed, "do not have the shape that the variable declares")
    return observed, kind, batch


def records_by_cell(values: Counts, observed: Node, kind: Kind, batch: tuple[int, ...]) -> Counts:
    """The observations as counts of categories: shape (*batch, d)."""
    trials = np.ones(batch, dtype=np.int64) if kind.trials is None else _trials(observed, kind, batch)
    if kind.core:
        _check_total(values, observed)
        if np.any(values.sum(axis=-1) != trials):
            raise _wrong(
                observed,
                "do not add up to `n` in every row. For shares within rows say n=counts.sum(axis=-1); for the shares "
                "of all cells of a table, observed=counts.ravel() and one Dirichlet of as many. Counts have to be "
                "unweighted: PyMC rounds others down, and survey weights belong to the released shares",
            )
        return values
    if np.any(values > trials):
        raise _wrong(observed, "are not all 0 or 1" if kind.trials is None else "are above `n` in some row")
    return np.stack([values, trials - values], axis=-1)


def _summed(records: Counts, likelihood: Likelihood, shape: tuple[int, ...]) -> Counts:
    """Records of the same row added up: (*batch, k) to (*rows, k)."""
    lengths = dict(zip(likelihood.rows, shape[:-1], strict=True))
    # The rows keep their order, so the axes that are left after the sums are those of the table.
    shared = tuple(axis for axis, length in lengths.items() if length == 1 and axis is not None)
    repeated = tuple(axis for axis in range(records.ndim - 1) if axis not in lengths)
    summed: Counts = records.sum(axis=shared, keepdims=True).sum(axis=repeated)
    return summed


def _tally(codes: Counts, row: Counts, observed: Node, shape: tuple[int, ...]) -> Counts:
    """How often each category occurs in each row, without an indicator for each record and category."""
    if np.any(codes >= shape[-1]):
        raise _wrong(observed, f"are not all codes from 0 to {shape[-1] - 1}")
    cells = np.bincount((row * shape[-1] + codes).ravel(), minlength=math.prod(shape))
    return cells.reshape(shape)


def _gathered(records: Counts, row: Counts, shape: tuple[int, ...]) -> Counts:
    """Records added up by the row that they feed: (*batch, k) to (*rows, k)."""
    counts = np.zeros((math.prod(shape[:-1]), shape[-1]), dtype=np.int64)
    np.add.at(counts, row.ravel(), records.reshape(-1, shape[-1]))
    return counts.reshape(shape)


def rows_of(values: Counts, observed: Node, likelihood: Likelihood, table: Table, model: pm.Model) -> Counts:
    """The number of the row that each observation feeds, among those that the likelihood sees, in the batch shape."""
    kind = KINDS[likelihood.kind]
    batch = values.shape[: values.ndim - kind.core]
    lengths = likelihood.shape(table.shape)[:-1]
    parents = iter(checked_parents(observed, kind, batch, model) if None in likelihood.rows else ())
    row = np.zeros((1,) * len(batch), dtype=np.int64)
    for axis, length in zip(likelihood.rows, lengths, strict=True):
        if axis is None:
            entry = _codes(next(parents), length, observed, batch)
        else:
            entry = _spread(np.arange(length), [axis], batch)
        row = row * length + entry
    return np.broadcast_to(row, batch)


def checked_parents(observed: Node, kind: Kind, batch: tuple[int, ...], model: pm.Model) -> tuple[Parent, ...]:
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
    given = evaluated_input(parent.index, observed)
    wanted = parent.lengths(batch)
    if given.size != math.prod(wanted) or tuple(given.shape[axis] for axis in parent.places) != wanted:
        raise _wrong(observed, "do not have one code for each observation", "parents")
    given = (given != 0).astype(np.int64) if parent.truth else given
    code = integers(given.reshape([batch[axis] for axis in parent.axes]), observed, "parents")
    if np.any(code >= length):
        raise _wrong(observed, f"are not all codes from 0 to {length - 1}", "parents")
    return _spread(code, parent.axes, batch)


def trials_of(observed: Node, kind: Kind, batch: tuple[int, ...]) -> Counts | None:
    """`n` as the model gives it, with an axis for each batch axis, of length 1 where it is the same along it.

    None for a likelihood without trials.
    """
    if kind.trials is None:
        return None
    given = evaluated_input(trials_parameter(observed, kind), observed)
    trials = integers(given, observed, "numbers of trials")
    # PyTensor may have more axes of length 1 than there are observations.
    aligned = (1,) * (len(batch) - trials.ndim) + trials.shape
    if len(aligned) != len(batch) or any(n not in (1, length) for n, length in zip(aligned, batch, strict=True)):
        raise _wrong(observed, "have another shape than the number of trials")
    return trials.reshape(aligned)


def _trials(observed: Node, kind: Kind, batch: tuple[int, ...]) -> Counts:
    """`n` for every observation."""
    given = trials_of(observed, kind, batch)
    assert given is not None
    trials = np.broadcast_to(given, batch)
    _check_total(trials, observed)
    return trials


def evaluated_input(variable: Node, observed: Node) -> NDArray[Any]:
    """The value of an input of a likelihood; no error shows it."""
    with suppress(Exception):
        return evaluate(variable)
    # Raised here and not in a handler, because PyTensor's message holds values and would be attached as the context.
    raise _wrong(observed, "or their number of trials cannot be computed")


def integers(values: NDArray[Any], observed: Node, what: str = "observations") -> Counts:
    """The same values as integers, or an error that says what is wrong with them and does not show them."""
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
    if values.dtype.kind == "f" and values.dtype.itemsize < 8:
        _check_precision(values, np.finfo(values.dtype), observed, what)
    return values.astype(np.int64)


def _is_short(model: pm.Model) -> bool:
    """Whether the model was built under `floatX="float32"`, or is read under it."""
    short = any(rv.type.dtype == "float32" for rv in model.free_RVs)
    return short or pytensor.config.floatX == "float32"  # type: ignore[attr-defined]


def _check_precision(
    values: NDArray[Any], precision: "np.finfo[Any]", observed: Node, what: str = "observations"
) -> None:
    """Refuse numbers that a short float cannot tell from the next one: they were rounded before anybody looked.

    Two neighbouring data sets could then differ by more than one record. Above 2**24 `float32` has only even numbers,
    and 2**24 + 1 is rounded down to 2**24, so 2**24 itself is refused too.
    """
    bits = precision.nmant + 1
    if np.any(values >= 2**bits):
        raise _wrong(
            observed,
            f"reach 2**{bits}, from where {precision.dtype} no longer holds every integer: "
            "use floatX='float64', and make arrays of that dtype,",
            what,
        )


def _check_total(values: Counts, observed: Node) -> None:
    # The sum is taken in doubles first, because the exact sum of many large numbers would wrap around.
    if values.sum(dtype=np.float64) > MOST_RECORDS or int(values.sum()) > MOST_RECORDS:
        raise _wrong(observed, "count more than 2**53 records in all")


def _wrong(observed: Node, problem: str, what: str = "observations") -> DataError:
    return DataError(f"The {what} of {observed.name!r} {problem}.")
