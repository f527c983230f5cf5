"""Refusals of models whose release would publish data as if they were public numbers."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Sum

from pymc_dirdp.accounting.opening import CountRules, parts_of
from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import DataError
from pymc_dirdp.models.contributions import contribution_of_record
from pymc_dirdp.models.graph import (
    Node,
    evaluate,
    is_stored,
    origin,
    parameters,
    same_data,
    same_numbers,
    value_ancestors,
)
from pymc_dirdp.models.likelihoods import data_in_priors, trials_parameter
from pymc_dirdp.models.observations import Observation, read_counts
from pymc_dirdp.models.privacy_unit import UnitOptions, as_code, people_axes
from pymc_dirdp.models.questions import Answer, as_question
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.table import Table


def check_public(
    observations: Sequence[Observation], model: pm.Model, options: UnitOptions, numbered: Iterable[str]
) -> dict[str, str]:
    """Refuse a model whose release would publish data as if they were public numbers.

    Parameters
    ----------
    observations : sequence of Observation
    model : pymc.Model
    options : UnitOptions
    numbered : iterable of str
        The variables of the same people whose numbers of records differ. `public` may name all of them.

    Returns
    -------
    idle : dict of str to str
        The names in `public` that change nothing, with the reason.

    Raises
    ------
    UnsupportedModelError
        If a number of trials that a release would use is observed or computed from observations, or has the same
        numbers, at least two of them; or if the rows of a release would reveal who takes part.
    ArgumentError
        If `public` names something that is neither a number of trials nor in a prior.
    """
    accepted_names = set(numbered)
    known = may_be_public(observations, model, accepted_names)
    for name in options.public:
        one_of(known, **{"observed variable with a number of trials, or data in a prior, in public": name})
    if not options.relation.records_are_public:
        _refuse_rows_of_records(observations, options)
        _refuse_private_lengths(observations, model, options)
    elif not options.is_bounded:
        _refuse_tables_by_codes(observations)
    # A number of trials is used only under replace-one, or for the records of a unit if their number is not private.
    public = options.relation.records_are_public
    used = not options.is_bounded and (public or bool(options.unit))
    if options.unit:
        way_out = "pass contribution=m, which makes it private, and n_records= for planning."
    else:
        way_out = "pass adjacency='add-remove', where the numbers of records are private."

    @cache
    def counts(i: int) -> tuple[NDArray[np.int64], ...]:
        """The counts of a variable's table, and of each observation of several records; none if the data are wrong.

        Numbers of trials of every other variable may be compared with them.
        """
        try:
            arrays = [read_counts([other for other in observations if other.table is observations[i].table])]
            if observations[i].kind.trials is not None:
                records = observations[i].reading.records().records
                assert records is not None
                arrays.append(records)
        except DataError:
            # The error is raised again where the counts are read, after the charge.
            return ()
        return tuple(arrays)

    data = _data(observations, model) if used else {}
    complete = {id(other.stored): other.stored for other in observations if other.kind.core}
    for observed in observations if used else ():
        source = _source(observed, observations, data, complete, model, options, counts)
        if source is not None and observed.name in options.public:
            accepted_names.add(observed.name)
        elif source is not None:
            named = f"pass public={as_code([observed.name])} if anybody may know it, or " if public else ""
            ways = named + way_out
            error = refusal("trials are data", observed.name, source=source, ways=ways[0].upper() + ways[1:])
            raise as_question(error, *([Answer({"public": (observed.name,)})] if public else []))
    others = (name for name in options.public if name not in accepted_names and name not in data_in_priors(model))
    reasons = ((name, _why_idle(name, observations, options)) for name in others)
    return {name: why for name, why in reasons if why is not None}


def may_be_public(observations: Sequence[Observation], model: pm.Model, numbered: Collection[str]) -> list[str]:
    """The names that `public` may contain."""
    counted = [observed.name for observed in observations if observed.trials is not None or observed.name in numbered]
    return list(dict.fromkeys([*counted, *data_in_priors(model)]))


def numbers_to_name(numbers: Mapping[str, int], together: Collection[str]) -> list[str]:
    """The variables with fewer records than others that the same people may feed, where these numbers are public.

    Such a number may be a count of what another variable observes, such as the number of buyers among those who signed
    up. The number itself does not show this, so the user always has to declare it public. A comparison with
    observations would reveal records, and a single number may agree by chance. Only public numbers are compared.
    """
    known = {name: number for name, number in numbers.items() if name in together}
    most = max(known.values(), default=0)
    return [name for name, number in known.items() if number < most]


def _why_idle(name: str, observations: Sequence[Observation], options: UnitOptions) -> str | None:
    """Why a name in `public` changes neither a contribution nor which models are accepted; None if it does."""
    matches = [
        (observed, people_axes(observed, options) if options.unit else None)
        for observed in observations
        if observed.name == name
    ]
    if not options.relation.records_are_public:
        why = (
            f"under adjacency={options.adjacency!r} the numbers of records are private. Use adjacency='replace-one', or"
        )
    elif options.is_bounded:
        why = "with unit= and contribution= the numbers of records are private. Leave out contribution=, or"
    elif options.contribution not in (None, 1) or options.counted is not None:
        why = f"with {options.unit_text} a person's records may lie in any rows. Pass unit= instead, or"
    elif any(
        _record_stays(observed.table, observations, options) if people is None else observed.trials_differ_along(people)
        for observed, people in matches
    ):
        return None
    elif matches[0][1] is not None:
        why = f"each entry of {options.unit_text} has the same number of trials, public under replace-one. Please"
    else:
        why = (
            "its number of trials is public under replace-one, and determines the number of records of no row: no axis "
            f"of {name!r} is a row axis of its table, or other variables that feed it are not named. Please"
        )
    return f"public={as_code([name])} changes nothing: {why} leave it out."


def _record_stays(table: Table, observations: Sequence[Observation], options: UnitOptions) -> bool:
    """Whether a record that is replaced stays in its row of a table."""
    fed = [observed for observed in observations if observed.table.name == table.name]
    kinds = zip(contribution_of_record(fed, options).axes, table.shape, strict=False)
    return any(kind == "own" and length > 1 for kind, length in kinds)


def _refuse_tables_by_codes(observations: Sequence[Observation]) -> None:
    """Refuse codes that decide to which table a record belongs, because its number of records would be data."""
    for observed in observations:
        view = observed.likelihood.view
        if view is not None and view.by_codes:
            fed = [repr(other.table.name) for other in observations if other.name == observed.name]
            parents = " and ".join(observed.likelihood.parents)
            raise refusal("tables by codes", observed.name, names=" and ".join(fed), parent=parents)


def _source(
    observed: Observation,
    observations: Sequence[Observation],
    data: Mapping[int, tuple[Node, int]],
    complete: Mapping[int, Node],
    model: pm.Model,
    options: UnitOptions,
    counts: Callable[[int], tuple[NDArray[np.int64], ...]],
) -> str | None:
    """The observed variable that the number of trials comes from; None if it comes from none."""
    if observed.trials is None:
        return None
    trials = trials_parameter(observed.variable, observed.kind)
    if _is_own_total(trials, observed):
        # Counts have to add up to `n`, so `n` reveals no more than the total of the table, however it is written.
        return None
    source, _ = origin(trials, through_rounding=True)
    # Complete counts add up to their own number of trials, which is checked itself. Only the total of `n` is used,
    # unless it tells how many records a person holds. Naive Bayes on counts is written like this: the counts of classes
    # are the numbers of records of each feature.
    if not options.unit and is_stored(source):
        same = _holds_several(source) and any(same_data(source, other) for other in complete.values())
        if same or id(source) in complete:
            return None
    graph = list(value_ancestors(trials))
    if read := [data[id(node)][1] for node in graph if id(node) in data]:
        return observations[min(read)].name
    # One number may agree by chance.
    several = [variable for variable in graph if is_stored(variable) and _holds_several(variable)]
    for i, other in enumerate(observations if several else ()):
        # Its own observations may equal `n` for a good reason: all trials of a Binomial may succeed. In a table of one
        # category the observations are the numbers of trials, which are checked themselves.
        if other.name == observed.name or other.table.n_categories == 1:
            continue
        # If a category is empty, the others add up to the numbers of trials, which are checked themselves.
        complete_here = observed.kind.core and other.kind.core and is_stored(source)
        if complete_here and any(same_numbers(source, cell_counts.sum(axis=-1)) for cell_counts in counts(i)):
            continue
        # Compare with the counts of one category or of all others, of the first few or of the last few, in each row of
        # the table or for each observation. Other sums are not recognised.
        if any(same_data(array, known) for array in several for known in other.arrays) or any(
            same_numbers(array, part)
            for cell_counts in counts(i)
            for part in parts_of(cell_counts)
            for array in several
        ):
            return other.name
    return None


def _data(observations: Iterable[Observation], model: pm.Model) -> dict[int, tuple[Node, int]]:
    """The nodes with observations or codes of parents, by identity, with the position of their first observation.

    Constants of PyTensor with equal values are equal to one another, so identity distinguishes them. The nodes stay
    alive, so that no other node reuses their identity.
    """
    data: dict[int, tuple[Node, int]] = {}
    for i, observed in enumerate(observations):
        rv = observed.variable
        for node in (rv, model.rvs_to_values[rv], *observed.arrays):
            data.setdefault(id(node), (node, i))
    return data


def _is_own_total(trials: Node, observed: Observation) -> bool:
    """Whether the number of trials is `x.sum(axis=-1)` of the observed counts `x`."""
    total, _ = origin(trials, through_rounding=True)
    if not observed.kind.core or total.owner is None or not isinstance(total.owner.op, Sum):
        return False
    counts, axes = origin(total.owner.inputs[0], through_rounding=True)
    last = len(observed.lengths)
    summed = total.owner.op.axis
    return counts is observed.stored and len(axes) == last + 1 and (summed == (last,) or (summed is None and not last))


def _holds_several(array: Node) -> bool:
    return np.size(evaluate(array)) > 1


def count_rules(tables: Sequence[Table], options: UnitOptions, arrays: Sequence[NDArray[Any]] = ()) -> CountRules:
    """What the counts of these tables must not equal. `arrays` are public, in addition to the priors."""
    names = {likelihood.name for table in tables for likelihood in table.likelihoods}
    stages = (
        table.name
        for table in tables
        if options.n_records_is_public
        and not options.unit
        and not {likelihood.name for likelihood in table.likelihoods} <= set(options.public)
    )
    priors = [table.prior for table in tables] if set(options.public) <= names else []
    return CountRules(
        frozenset(stages),
        (*(array for prior in priors for array in (prior, *np.moveaxis(prior, -1, 0))), *arrays),
        {table.name: tuple(_axes_in_any_order(table)) for table in tables},
    )


def _axes_in_any_order(table: Table) -> Iterator[int]:
    """The axes with at least four labels that are not in an order of their own."""
    for axis, dim in enumerate(table.dims or ()):
        labels = None if dim is None else table.coords[dim]
        # Counts of fewer labels often descend by chance: those of three labels in one of six cases.
        if labels is not None and len(labels) >= 4 and not _in_order_of_their_own(labels):
            yield axis


def _in_order_of_their_own(labels: Sequence[Any]) -> bool:
    """Whether labels are ascending numbers or times, such as the number of children."""
    return not any(issubclass(kind, str | bytes) for kind in set(map(type, labels))) and list(labels) == sorted(labels)


def _refuse_private_lengths(observations: Sequence[Observation], model: pm.Model, options: UnitOptions) -> None:
    """Refuse priors and shapes of a release that depend on the number of observations, which is private."""
    lengths: set[Node] = {array for observed in observations for array in observed.arrays}
    # A unit of numbered axes has the dims of these axes in each observed variable.
    people = [{observed.axes[axis] for axis in people_axes(observed, options) or ()} for observed in observations]
    for observed, people_dims in zip(observations, people, strict=True):
        summed = {observed.axes[axis] for axis in observed.summed}
        private = summed & people_dims if options.unit else summed
        lengths |= {model.dim_lengths[dim] for dim in private if isinstance(dim, str)}
        # Rows that are chosen by codes, a part of all rows, and a single row for all may have the people's labels.
        dims = set(observed.table.dims or ())
        labelled = any(unit and unit <= dims for unit in people) if options.unit else private & dims
        # If each person has a row, computing the contribution raises an error that names the unit.
        if labelled and not (people_dims and people_dims <= {observed.axes[axis] for axis in observed.record_axes}):
            raise refusal("labels of people", observed.table.name, observed=observed.name)
    for name in dict.fromkeys(observed.table.name for observed in observations if not observed.integrated):
        if any(node in lengths for node in ancestors(parameters(model.named_vars[name])[1])):
            raise refusal("prior of a length", name)


def _refuse_rows_of_records(observations: Sequence[Observation], options: UnitOptions) -> None:
    """Refuse rows that belong to one record, because the shape would reveal the private number of records."""
    for observed in observations:
        is_single = not observed.has_several_trials if observed.integrated else observed.common_n_trials == 1
        has_row_per_record = observed.integrated or len(observed.shown) == len(observed.lengths)
        if not observed.lengths or not is_single:
            continue
        if has_row_per_record and not options.unit:
            raise refusal("row of each record", observed.name, table=observed.table.name)
        if observed.integrated and options.unit:
            raise refusal("row of each person", observed.name, table=observed.table.name)
