"""The facts about one observed variable that matter for people: its axes, its trials and the origin of its rows."""

import math
from dataclasses import dataclass

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_dirdp.models.graph import Node, origin, root_of
from pymc_dirdp.models.likelihoods import Kind, stored_observations, trials_parameter
from pymc_dirdp.models.observations import checked_parents, resolve_likelihood, trials_of
from pymc_dirdp.models.shared_data import same_data, shift_axis
from pymc_dirdp.models.table import Likelihood, Table

__all__ = ["Observation", "observation"]

# This many numbers of two categories agree by chance in one of 4096 cases.
_NO_CHANCE = 12


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
    def most_trials(self) -> int:
        """The largest number of trials of one observation."""
        return 1 if self.trials is None else int(self.trials.max(initial=0))

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
        least = _NO_CHANCE if surely else 2
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
    rv, kind, lengths = resolve_likelihood(likelihood, table, model)
    dims = model.named_vars_to_dims.get(likelihood.name) or (None,) * (len(lengths) + kind.core)
    names = tuple(axis if dim is None else dim for axis, dim in enumerate(dims))
    # Where the prior is integrated out, each observation has its own row, also if there is only one observation.
    alone = kind.probability is None
    row_lengths = likelihood.shape(table.shape)[:-1]
    row_dims = table.dims[: len(row_lengths)] if likelihood.view is None and table.dims else (None,) * len(row_lengths)
    by_axis = zip(likelihood.rows, row_lengths, row_dims, strict=True)
    parents = checked_parents(rv, kind, lengths, model) if likelihood.parents else ()
    trials = trials_of(rv, kind, lengths)
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
        numbered=() if trials is None else _numbered(trials, trials_parameter(rv, kind), lengths),
        parents=tuple((parent.name, array) for parent in parents for array in parent.stored),
        followed=tuple((parent.name, parent.axes) for parent in parents),
        stored=stored_observations(rv, model),
    )


def _numbered(trials: NDArray[np.int64], given: Node, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """The batch axes for each of whose entries there is a number of trials, also where that is a single entry."""
    # PyMC gives a number that is written for all of them axes of length 1, which are none of its own.
    own = {axis + len(lengths) - given.type.ndim for axis in origin(given, through_rounding=True)[1]}
    each = (axis for axis, length in enumerate(lengths) if trials.shape[axis] == length)
    return tuple(axis for axis in each if lengths[axis] > 1 or axis in own)
