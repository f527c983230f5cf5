"""Facts about the observed variables of tables: how to count their records, and whose these are.

:mod:`pymc_dirdp.models.counted` counts them, after the charge.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.counted import CodesReading, Reading, align_axes, count_readings, integers, invalid, read_array
from pymc_dirdp.models.graph import Node, origin, parameters, root_of, same_data, shift_axis, source_of, stored_shape
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


def read_counts(observations: Sequence["Observation"]) -> Counts:
    """The **secret** counts of the table that these observed variables feed, see :func:`counted.count_readings`."""
    (counts,) = count_readings([[observed.reading for observed in observations]])
    return counts


def _trials_of(rv: Node, kind: Kind, batch: tuple[int, ...]) -> Counts | None:
    """`n` as the model gives it, with an axis for each batch axis, of length 1 where it is the same along it.

    None for a likelihood without trials.
    """
    if kind.trials is None:
        return None
    observed = str(rv.name)
    trials = integers(read_array(source_of(trials_parameter(rv, kind)), observed), observed, "numbers of trials")
    # PyTensor may have more axes of length 1 than there are observations.
    aligned = (1,) * (len(batch) - trials.ndim) + trials.shape
    if len(aligned) != len(batch) or any(n not in (1, length) for n, length in zip(aligned, batch, strict=True)):
        raise invalid(observed, "have another shape than the number of trials")
    return trials.reshape(aligned)


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
        return self.reading.records_of(people)

    @cached_property
    def reading(self) -> Reading:
        """How to count its records. It holds no records."""
        codes = (
            CodesReading(
                source_of(parent.index), parent.axes, parent.places, parent.lengths(self.lengths), parent.truth
            )
            for parent in self.parents
        )
        one_of_categories = self.kind.name == "categorical"
        view = self.likelihood.view
        return Reading(
            name=self.name,
            source=source_of(self.stored),
            kind="codes" if one_of_categories else "counts" if self.kind.core else "successes",
            has_trials=self.kind.trials is not None,
            table=self.table.shape,
            likelihood_shape=self.likelihood.shape(self.table.shape),
            cells=None if view is None else view.cells,
            rows=self.likelihood.rows,
            lengths=self.lengths,
            trials=self.trials,
            codes=tuple(codes),
            in_float32=self.in_float32,
        )

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
        placed, trials = (
            align_axes(entries.max(axis=by_codes), by_position, self.lengths),
            self.reading.checked_trials(),
        )
        # Observations along axes on which neither the row nor the number of trials depends are multiplied, not listed.
        joint = np.broadcast_shapes(placed.shape, trials.shape)
        alike = math.prod(length for length, n in zip(self.lengths, joint, strict=True) if n == 1)
        placed, trials = np.broadcast_to(placed, joint), np.broadcast_to(trials, joint)
        totals = np.zeros(math.prod(lengths), dtype=np.int64)
        np.add.at(totals, placed[placed >= 0], alike * trials[placed >= 0])
        return totals.reshape(lengths)


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
        raise invalid(name, f"do not have the {table.n_categories} categories of the prior")
    for axis, length in zip(likelihood.rows, row_lengths, strict=True):
        # All records along this axis share a row axis of length 1. One observation for many rows would be counted
        # many times.
        if axis is not None and length not in (1, lengths[axis]):
            raise invalid(name, f"do not have the {length} rows of the prior along axis {axis}")
    size, _ = parameters(rv)
    # PyMC repeats the likelihood up to `shape=`, so the same record would count many times.
    if size is not None and tuple(read_array(source_of(size), name)) != lengths:
        raise invalid(name, "do not have the shape that the variable declares")
    parents = parents_of(rv, kind, model) if likelihood.parents else ()
    # PyMC would repeat an array of another shape, and one person's parents would change many records.
    if any(stored_shape(array) != parent.lengths(lengths) for parent in parents for array in parent.stored):
        raise invalid(
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
