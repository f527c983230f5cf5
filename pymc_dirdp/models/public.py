"""Which numbers of a model may be public? A number of trials that comes from the data is data."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Sum
from pytensor.tensor.type import TensorType

from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import DataError
from pymc_dirdp.models.graph import evaluate, origin, parameters, values_read
from pymc_dirdp.models.likelihoods import refusal
from pymc_dirdp.models.observation import Observation
from pymc_dirdp.models.observations import read_counts, records_by_cell, whole_numbers
from pymc_dirdp.models.shared_data import same_data, same_numbers
from pymc_dirdp.models.stated import Stated, as_code
from pymc_dirdp.privacy.adjacency import Adjacency

__all__ = ["check_public"]


def check_public(observations: Sequence[Observation], model: pm.Model, stated: Stated, relation: Adjacency) -> None:
    """Refuse what would publish data as if it were a public number.

    Raises
    ------
    UnsupportedModelError
        If a number of trials that a release would use is, or is computed from, something observed, or holds the same
        two numbers or more; if the rows of a release would show who takes part; if groups of `disjoint` share data.
    ArgumentError
        If `public_n` names what has no number of trials.
    """
    counted = [observed.name for observed in observations if observed.trials is not None]
    for name in stated.public_n:
        one_of(counted, **{"observed variable with a number of trials in public_n": name})
    if not relation.records_are_public:
        _refuse_rows_of_records(observations, stated)
        _refuse_private_lengths(observations, model, stated)
    # Under add-remove, and where people hold privately many records, no number of trials is used but that of a unit.
    public = relation.records_are_public
    used = stated.max_records_per_person is None and (public or bool(stated.unit))
    for observed in observations if used else ():
        source = _source(observed, observations, model, stated)
        if source is not None:
            raise refusal(
                observed.name,
                f"has a number of trials that is, or depends on, what is observed in {source!r}, so it is no public "
                "number",
                (f"Add public_n={as_code([observed.name])} if anybody may know it, or a" if public else "A")
                + (
                    "dd max_records_per_person=m, and n_records= for planning: then it is private."
                    if stated.unit
                    else "sk for adjacency='add-remove', where the numbers of records are private."
                ),
            )


def _source(
    observed: Observation,
    observations: Sequence[Observation],
    model: pm.Model,
    stated: Stated,
) -> str | None:
    """The observed variable that the number of trials comes from; None if it is public."""
    if observed.trials is None or observed.name in stated.public_n:
        return None
    trials = _trials(observed, model)
    if _is_own_total(trials, observed):
        # Counts have to add up to `n`, so however it is written it says no more than the total of the table.
        return None
    source, _ = origin(trials, through_rounding=True)
    # Complete counts add up to their own number of trials, which is checked in its turn, and the total is all that is
    # used of `n`, unless it says how many records a person holds. It is how naive Bayes on counts is written: the
    # records of a feature, class by class, are as many as the class counts say.
    if not stated.unit and any(_is_complete(other, source) for other in observations):
        return None
    graph = list(values_read(trials))
    for other in observations:
        rv = model.named_vars[other.name]
        data = (rv, model.rvs_to_values[rv], other.stored, *(array for _, array in other.parents))
        if any(variable is known for variable in graph for known in data):
            return other.name
    for other in observations:
        # Its own observations may agree with `n` for good reason: all trials of a Binomial may succeed.
        if other is not observed and any(_holds(other, array, model) for array in graph):
            return other.name
    return None


def _trials(observed: Observation, model: pm.Model) -> Variable[Any, Any]:
    assert observed.kind.trials is not None
    return parameters(model.named_vars[observed.name])[1][observed.kind.trials]


def _is_own_total(trials: Variable[Any, Any], observed: Observation) -> bool:
    """Whether the number of trials is `x.sum(axis=-1)` of the observed counts `x`."""
    total, _ = origin(trials, through_rounding=True)
    if not observed.kind.core or total.owner is None or not isinstance(total.owner.op, Sum):
        return False
    counts, axes = origin(total.owner.inputs[0], through_rounding=True)
    last = len(observed.lengths)
    return (
        counts is observed.stored
        and len(axes) == last + 1
        and total.owner.op.axis in ((last,), None if not last else (last,))
    )


def _holds(other: Observation, array: Variable[Any, Any], model: pm.Model) -> bool:
    """Whether the array is the observations of a variable or its parents' codes, or counts of some of its categories.

    These are counts of one category or of all others, of the first few or of the last few, in each row of the table or
    for each observation. Other sums are not known again.
    """
    if not _is_array(array):
        return False
    if any(same_data(array, known) for known in (other.stored, *(codes for _, codes in other.parents))):
        return True
    return any(same_numbers(array, some) for counts in _counts(other, model) for some in _parts(counts))


def _counts(other: Observation, model: pm.Model) -> Iterator[NDArray[np.int64]]:
    """The counts of its table, and those of each observation if it counts several records; none of data in error."""
    rv = model.named_vars[other.name]
    try:
        yield read_counts(other.table, model)
        if other.kind.trials is not None:
            values = whole_numbers(evaluate(other.stored), rv)
            yield records_by_cell(values, rv, other.kind, other.lengths)
    except DataError:
        # It is raised again where the counts are read, after the charge.
        return


def _parts(counts: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    total = counts.sum(axis=-1)
    for k in range(counts.shape[-1]):
        yield counts[..., k]
        yield total - counts[..., k]
        if k > 0:
            yield counts[..., :k]
            yield counts[..., k:]


def _refuse_private_lengths(observations: Sequence[Observation], model: pm.Model, stated: Stated) -> None:
    """Under add-remove the number of observations is private: no prior and no shape of a release may be made of it."""
    lengths: set[Variable[Any, Any]] = {observed.stored for observed in observations}
    for observed in observations:
        summed = {observed.axes[axis] for axis in observed.summed}
        private = summed & set(stated.unit) if stated.unit else summed
        lengths |= {model.dim_lengths[dim] for dim in private if isinstance(dim, str)}
        # Rows that are chosen by codes may have the labels of the people all the same.
        dims = set(observed.table.dims or ())
        if observed.parents and (set(stated.unit) <= dims if stated.unit else private & dims):
            raise refusal(
                observed.table.name,
                f"has a row for each entry of a dim along which {observed.name!r} has its records, so under add-remove "
                "the shape of the release would show how many people take part",
                'Use adjacency="replace-one", where the number of records is public.',
            )
    for name in dict.fromkeys(observed.table.name for observed in observations if not observed.integrated):
        if any(node in lengths for node in ancestors(parameters(model.named_vars[name])[1])):
            raise refusal(
                name,
                "has a prior that depends on the number of observations, which is private under add-remove",
                "Write the prior as numbers.",
            )


def _is_array(variable: Variable[Any, Any]) -> bool:
    return isinstance(variable, Constant | SharedVariable) and isinstance(variable.type, TensorType)


def _is_complete(other: Observation, array: Variable[Any, Any]) -> bool:
    """Whether the array is the counts of all categories of a variable."""
    return bool(other.kind.core) and _is_array(array) and same_data(array, other.stored)


def _refuse_rows_of_records(observations: Sequence[Observation], stated: Stated) -> None:
    """Under add-remove no row of a release may belong to one record: the shape would be the number of records."""
    for observed in observations:
        alone = observed.most_trials <= 1 if observed.integrated else observed.one_number_of_trials == 1
        each_has_a_row = observed.integrated or (observed.kept and not observed.summed)
        if observed.lengths and alone and each_has_a_row and not observed.parents and not stated.unit:
            raise refusal(
                observed.name,
                f"has one record in each row of {observed.table.name!r}, so under add-remove the shape of the release "
                "would show how many people take part",
                'Use adjacency="replace-one", where the number of records is public.',
            )
        if observed.integrated and observed.lengths and alone and stated.unit:
            raise refusal(
                observed.name,
                f"has a row of {observed.table.name!r} for each record, so under add-remove the shape of the release "
                "would show who takes part",
                'Use adjacency="replace-one", where the list of people is public.',
            )
