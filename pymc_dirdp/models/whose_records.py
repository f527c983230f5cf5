"""Whose records a model holds: the contribution of one person to each table, and questions that are open."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import final

import numpy as np
import pymc as pm

from pymc_dirdp.checks import one_of
from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.counts import Counts
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models import counted
from pymc_dirdp.models.contributions import (
    DEFAULT_BOUND,
    contribution_of_record,
    contribution_to,
    missing_unit_error,
    overlapping,
    refuse_steps,
    unite,
)
from pymc_dirdp.models.counted import Reading
from pymc_dirdp.models.graph import Node, evaluate, purpose_of, root_of, same_data
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.observations import Observation, find_observations, total_records
from pymc_dirdp.models.privacy_unit import (
    PrivacyUnit,
    UnitOptions,
    axis_text,
    people_axes,
    refuse_unknown_axes,
)
from pymc_dirdp.models.public import check_public, may_be_public, numbers_to_name
from pymc_dirdp.models.questions import Answer, OpenQuestionError, as_question, read_or_ask
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.table import Table
from pymc_dirdp.models.tables import tables as tables_of
from pymc_dirdp.privacy.people import Contribution

type Group = frozenset[str]
"""The observed variables that one person may feed together."""


@final
@dataclass(frozen=True, eq=False)
class ModelTables:
    """The tables of a model, their observed variables, and whose records they hold."""

    tables: tuple[Table, ...]
    observations: tuple[Observation, ...]
    reading: PrivacyUnit

    def observed(self, table: Table) -> list[Observation]:
        """The observed variables of a table."""
        return [observation for observation in self.observations if observation.table is table]

    def n_records(self, table: Table) -> int | None:
        """The number of records of a table, if it is public."""
        return total_records(self.observed(table)) if self.reading.n_records_is_public else None

    def public_totals(self, table: Table) -> tuple[int, ...]:
        """The public numbers of records of the entries of its `public_axes`; empty if there are no such axes."""
        axes = self.reading.public_axes(table.name)
        totals = [observed.totals(axes) for observed in self.observed(table) if axes]
        return tuple(np.sum(totals, axis=0).ravel().tolist()) if totals else ()


def tables_and_people(model: pm.Model, options: UnitOptions, *, all_public: bool = False) -> ModelTables:
    """The tables of a model, and whose records they hold.

    Raises
    ------
    UnsupportedModelError
        If the model leaves questions open, with all of them and a call to copy; or if something would be published that
        is not public.
    ArgumentError
        If the options do not fit the model.
    """

    def attempt(options: UnitOptions) -> ModelTables:
        model_tables = tables_of(model, public=all_public or options.public)
        observed = find_observations(model_tables, model)
        options = add_count_bound(options, observed)
        options = with_all_public(options, observed, model) if all_public else options
        return ModelTables(model_tables, observed, read_unit(observed, model, options))

    return read_or_ask(attempt, options, f"dirdp.plan(guarantee, model{', public=True' if all_public else ''}")


def read_unit(observations: Sequence[Observation], model: pm.Model, options: UnitOptions) -> PrivacyUnit:
    """Determine whose records a model holds from its observed variables.

    Raises
    ------
    OpenQuestionError
        If the model leaves open whose records it holds.
    UnsupportedModelError
        If something would be published that is not public.
    ArgumentError
        If the options do not fit the model.

    References
    ----------
    Theory, sections 6 and 7.
    """
    groups, anybody = _groups_of_people(observations, options.disjoint)
    refuse_unknown_axes(observations, options)
    if not purpose_of(model).of_counts:
        _refuse_shared_data(groups, observations)
    sizes = _numbers(observations, options)
    differing = _differing(sizes, groups, anybody)
    numbered = anybody.union(*differing.values()) if differing else frozenset()
    for idle in check_public(observations, model, options, numbered).values():
        raise ArgumentError(idle)
    shapes = {observed.table.name: observed.table.shape for observed in observations}
    parts: dict[str, list[Contribution]] = {name: [] for name in shapes}
    others = False
    for group in groups:
        members = [observed for observed in observations if observed.name in group | anybody]
        group_contributions = _group_contributions(members, options)
        if group_contributions is None:
            group_contributions = _single_records(members, options)
            if (open_question := question(members, options)) is not None:
                raise open_question
            others = bool(options.unit)
        for name, contribution in group_contributions.items():
            parts[name].append(contribution)
    if unnamed := [name for name in differing if name not in options.public]:
        raise _different_numbers(unnamed, sizes, differing[unnamed[0]] | anybody, options)
    fed = tuple(
        tuple(dict.fromkeys(observed.table.name for observed in observations if observed.name in group | anybody))
        for group in groups
    )
    contributions = {name: unite(parts[name], shape, max).fitted(shape) for name, shape in shapes.items()}
    # State their number if it is public and all observed variables agree on it.
    with_people = [(observed, people_axes(observed, options)) for observed in observations if options.unit]
    numbers = {math.prod(observed.lengths[axis] for axis in axes) for observed, axes in with_people if axes is not None}
    known = options.relation.records_are_public and len(numbers) == 1
    n_units = numbers.pop() if known else None
    return PrivacyUnit(options, tuple(shapes.items()), tuple(contributions.items()), fed, n_units, others)


def with_all_public(options: UnitOptions, observations: Sequence[Observation], model: pm.Model) -> UnitOptions:
    """The options with all names in `public` that change something: `public=True`."""
    groups, anybody = _groups_of_people(observations, options.disjoint)
    refuse_unknown_axes(observations, options)
    differing = _differing(_numbers(observations, options), groups, anybody)
    numbered = anybody.union(*differing.values()) if differing else frozenset()
    names = may_be_public(observations, model, numbered)
    idle = check_public(observations, model, replace(options, public=tuple(names)), numbered)
    return replace(options, public=tuple(name for name in names if name not in idle))


def reading_of(observed: Observation, options: UnitOptions) -> Reading:
    """How to count the records of an observed variable, with what is assumed about its people."""
    people = people_axes(observed, options) if options.unit and options.contribution is not None else None
    # Counts that lost their unit are looked for if the unit is not stated.
    states_unit = bool(options.unit) or options.contribution is not None
    too_many = (
        f"Some entry of {options.unit_text} holds more than contribution={options.contribution} records of "
        f"{observed.name!r}. Plan for a larger contribution=, which must bound every data set that could "
        "have occurred, or enforce a smaller one with dirdp.count(..., unit=, contribution=)."
    )
    return replace(
        observed.reading,
        people=people,
        most=options.contribution,
        too_many=too_many,
        unstated=None if states_unit or known_bound(observed.stored) is not None else 1,
    )


def _group_contributions(group: Sequence[Observation], options: UnitOptions) -> Mapping[str, Contribution] | None:
    """The contribution of a person of this group to each table; None without options about the group."""
    tables = {observed.table.name: observed.table for observed in group}
    if options.contribution is not None and not options.unit:
        _refuse_many(group, options.contribution, options)
        _refuse_few(group, options.contribution)
        if options.contribution == 1 and options.counted is None:
            return _single_records(group, options)
        return dict.fromkeys(tables, Contribution(options.contribution))
    with_people = [observed for observed in group if options.unit and people_axes(observed, options) is not None]
    if not with_people:
        # There is no unit, or people who are not entries of it feed this group.
        _refuse_many(group, 1, options)
        return None
    for observed in group:
        if observed not in with_people:
            raise missing_unit_error(observed, group, options)
        refuse_steps(observed, group, options)
    return {
        name: contribution_to(table, [other for other in group if other.table.name == name], options)
        for name, table in tables.items()
    }


def _refuse_many(group: Sequence[Observation], contribution: int, options: UnitOptions) -> None:
    """Refuse a table that has more likelihoods than a person holds records."""
    for name in dict.fromkeys(observed.table.name for observed in group):
        feeding = [observed for observed in group if observed.table.name == name]
        # Likelihoods of different rows are like those of different tables, unless a bound holds for the whole table.
        anywhere = options.contribution is not None and not options.unit
        sharing = feeding if anywhere else max((overlapping(observed, feeding) for observed in feeding), key=len)
        if len(sharing) <= contribution:
            continue
        names = [observed.name for observed in sharing]
        disjoint = (*(options.disjoint or ()), *((name,) for name in names))
        answers = [Answer({"disjoint": disjoint}, "if different people feed them")] if options.disjoint is None else []
        axes = [axis for axis in sharing[0].axes if all(axis in observed.axes for observed in sharing)][:1]
        if axes:
            answers.append(Answer({"unit": tuple(axes), "contribution": None}, "if its entries are the people"))
        records = sum(_records_per_entry(observed, options.n_records_is_public) for observed in sharing)
        bound = Answer(
            {"contribution": max(records, len(names))}, "(or your bound) if a person holds several records in it"
        )
        raise as_question(refusal("used twice", name, first=names[0], second=names[1]), *answers, bound)


def _refuse_few(group: Sequence[Observation], contribution: int) -> None:
    """Refuse a bound on a person's records below the number of records whose row one entry of the codes chooses."""
    for observed in group:
        for name, axes in ((parent.name, parent.axes) for parent in observed.parents):
            records = math.prod(n for axis, n in enumerate(observed.lengths) if axis not in axes)
            if records > contribution:
                entries = " x ".join(axis_text(observed.axes[axis]) for axis in axes)
                bound_text = f"contribution={contribution}"
                raise refusal(
                    "few records", observed.name, records=records, parent=name, unit_text=bound_text, axes=entries
                )


def _single_records(group: Sequence[Observation], options: UnitOptions) -> dict[str, Contribution]:
    """The contribution of a person with a record in each observed variable. No two variables feed the same row."""
    names = dict.fromkeys(observed.table.name for observed in group)
    fed = {name: [observed for observed in group if observed.table.name == name] for name in names}
    return {name: contribution_of_record(variables, options) for name, variables in fed.items()}


def _numbers(observations: Sequence[Observation], options: UnitOptions) -> dict[str, int]:
    """The number of records of each observed variable, or of people if one of its axes holds them.

    Empty if that is private, or if a person may hold several records, more of one table than of another. A variable
    that takes its rows from the observations of another one has the number of the other.
    """
    if not options.n_records_is_public or (options.contribution or 1) > 1:
        return {}
    numbers = {}
    for observed in observations:
        people = people_axes(observed, options) if options.unit else None
        numbers[observed.name] = (
            int(observed.records_of(())) if people is None else math.prod(observed.lengths[axis] for axis in people)
        )
    parents = {id(observed.stored): observed.name for observed in observations}
    for child in observations:
        for _, codes in child.codes:
            numbers[child.name] = numbers[parents.get(id(codes), child.name)]
    return numbers


def _differing(sizes: Mapping[str, int], groups: Iterable[Group], anybody: Group) -> dict[str, Group]:
    """The variables with fewer records than others of the same people, with all variables of these people."""
    return {name: group for group in groups for name in numbers_to_name(sizes, group | anybody)}


def _different_numbers(
    unnamed: Sequence[str],
    numbers: Mapping[str, int],
    group: Collection[str],
    options: UnitOptions,
) -> OpenQuestionError:
    """The question about numbers of records that differ. It names no number."""
    first = unnamed[0]
    other = max((name for name in numbers if name in group), key=numbers.__getitem__)
    names_by_number = {
        number: tuple(name for name in numbers if numbers[name] == number) for number in numbers.values()
    }
    phrase = "this number" if len(unnamed) == 1 else "these numbers"
    several = f"(or your bound) if a person may hold several records in one of them, and anybody may know {phrase}"
    answers = [
        Answer({"public": tuple(unnamed)}, f"if anybody may know {phrase}"),
        *(
            []
            if options.disjoint
            else [Answer({"disjoint": tuple(names_by_number.values())}, "if nobody has records in two of these groups")]
        ),
        Answer({"contribution": 2, "unit": ()}, several),
    ]
    return as_question(refusal("different numbers", first, other=other), *answers)


def _groups_of_people(
    observations: Sequence[Observation], disjoint: tuple[tuple[str, ...], ...] | None
) -> tuple[tuple[Group, ...], Group]:
    """The groups of observed variables that are fed by different people, and the variables that anybody may feed.

    Each group of `disjoint` holds names of tables or observed variables, and nobody has records in two groups. Without
    `disjoint` there is one empty group. Anybody may have records in variables that no group names.

    Raises
    ------
    ArgumentError
        If a name is unknown or stands in two groups.
    """
    names_of: dict[str, set[str]] = {}
    for observed_variable in observations:
        names_of.setdefault(observed_variable.table.name, set()).add(observed_variable.name)
    names_of |= {observed_variable.name: {observed_variable.name} for observed_variable in observations}
    groups: list[Group] = []
    for group in disjoint or ():
        observed: set[str] = set()
        for name in group:
            observed |= names_of[one_of(names_of, **{"variable in disjoint": name})]
        for other in groups:
            if twice := sorted(observed & other):
                raise ArgumentError(f"{twice[0]!r} is in two groups of disjoint=. Name it in one of them.")
        groups.append(frozenset(observed))
    all_names = frozenset(observed_variable.name for observed_variable in observations)
    return tuple(groups) or (frozenset(),), all_names - frozenset().union(*groups)


def _refuse_shared_data(groups: Sequence[Group], observations: Sequence[Observation]) -> None:
    """Refuse groups that the same people feed: they share data, or one chooses the rows of the other."""
    for first, second in combinations(groups, 2):
        for observed, other in product(observations, observations):
            if observed.name not in first or other.name not in second:
                continue
            families = ((observed, other), (other, observed))
            if any(same_data(codes, parent.stored) for child, parent in families for _, codes in child.codes):
                raise refusal("shared data", observed.name, problem=f"and {other.name!r} are parent and child")
            if any(same_data(array, other_array) for array, other_array in product(observed.arrays, other.arrays)):
                raise refusal("shared data", observed.name, problem=f"and {other.name!r} hold the same data")


# Questions about whose records a model holds, and their answers.


def question(group: Sequence[Observation], options: UnitOptions) -> OpenQuestionError | None:
    """The question whom a release of these variables would protect; None if it is not open."""
    for opening, axes, bound in _open_questions(group, options):
        people = f"unit= for the axis of the people, such as {axis_text(axes[0])}, or " if axes else ""
        answers = [Answer({"unit": axes, "contribution": None})] if axes else []
        return OpenQuestionError(
            f"Cannot say whom this release would protect: {opening} Define a person: pass {people}contribution=m if a "
            "person holds at most m records of each table, anywhere.",
            [*answers, Answer({"unit": (), "contribution": bound})],
        )
    return None


type _OpenQuestion = tuple[str, tuple[str | int, ...], int]
"""The question, an axis that may hold the people, if there is one, and a bound on the records of a person."""


def _open_questions(group: Sequence[Observation], options: UnitOptions) -> Iterator[_OpenQuestion]:
    for observed in group:
        open_question = _question_about(observed, options)
        if open_question is not None:
            yield open_question
    for first, second in combinations(group, 2):
        # An observed variable that feeds two tables occurs twice. Without parents nothing links two variables. Check
        # this first, because there are many pairs.
        linked = (first.parents or second.parents) and first.name != second.name
        link = _link(first, second) if linked else None
        if link is not None:
            steps = next(
                (axis for axis in (first.step_axis(second), second.step_axis(first)) if axis is not None), None
            )
            axes = [a for a in first.axes if a in second.axes and (steps is None or first.axes.index(a) != steps)]
            sequence = (
                max(2, first.lengths[steps]) if steps is not None and options.n_records_is_public else DEFAULT_BOUND
            )
            bound = 1 if steps is None else sequence
            yield f"{link}, so one person can change both.", tuple(axes[:1]), bound


def _question_about(observed: Observation, options: UnitOptions) -> _OpenQuestion | None:
    """The question about one observed variable alone; None if nothing is open."""
    name, first, public = repr(observed.name), _offered_axis(observed), options.n_records_is_public
    several, n, records = observed.has_several_trials, observed.common_n_trials, _records_per_entry(observed, public)
    trials = f"n={n} trials" if n is not None and public else "several trials"
    people = tuple(observed.axes[axis] for axis in first)
    if (chain := observed.step_axis(observed)) is not None:
        others = tuple(axis for number, axis in enumerate(observed.axes) if number != chain)
        return (
            f"{name} takes its rows of {observed.table.name!r} from itself some steps earlier or later, so a whole "
            "sequence of records may belong to one person.",
            others[:1],
            max(observed.records_per_step, observed.lengths[chain] if public else DEFAULT_BOUND),
        )
    if several and observed.parents:
        parents = " and ".join(repr(parent) for parent, _ in observed.codes)
        detail = f"for each entry of the observed parent {parents}, and a person who changes it changes all of them."
        return f"{name} holds {trials} {detail}", people, records
    if several and observed.integrated and observed.lengths:
        detail = f"in each row of {observed.table.name!r}, and a row may be one person or many."
        return f"{name} holds {trials} {detail}", people, records
    if observed.summed and (observed.record_axes or len(observed.summed) > 1):
        shape = " x ".join(map(str, observed.lengths))
        how_many = f"{shape} observations" if public else "observations"
        axes = ", ".join(map(repr, observed.axes))
        detail = f"over the axes ({axes}), and several of them may belong to one person."
        return f"{name} has {how_many} {detail}", people, records
    if observed.summed and several:
        detail = f"in each entry of {axis_text(people[0])}, and several of them may belong to one person."
        return f"{name} holds {trials} {detail}", people, records
    return None


def _link(first: Observation, second: Observation) -> str | None:
    """The relation of two observed variables by the codes of their parents, as a sentence; None if there is none."""
    for child, parent in ((first, second), (second, first)):
        for name, codes in child.codes:
            if same_data(codes, parent.stored):
                suffix = "" if name == parent.name else f" ({name})"
                return f"{child.name!r} takes its rows from what is observed in {parent.name!r}{suffix}"
        if child.step_axis(parent) is not None:
            return f"{child.name!r} takes its rows from what is observed in {parent.name!r} some steps earlier or later"
    for name, codes in first.codes:
        if any(same_data(codes, other_codes) for _, other_codes in second.codes):
            return f"{first.name!r} and {second.name!r} take their rows from the same parent ({name})"
    return None


def _offered_axis(observed: Observation) -> tuple[int, ...]:
    """The axis to suggest as the axis of the people; empty without an axis."""
    return (*observed.summed, *observed.record_axes)[:1]


def _records_per_entry(observed: Observation, public: bool) -> int:
    """The number of records of an entry of the suggested axis, if that is public; otherwise a bound to start from."""
    people = _offered_axis(observed)
    trials = observed.common_n_trials
    others = [axis for axis in range(len(observed.axes)) if axis not in people]
    # The lengths of rows are those of the prior, so they are always public.
    known = public or (observed.trials is None and set(others) <= set(observed.record_axes))
    if trials is None or not known:
        return DEFAULT_BOUND
    return max(1, trials * math.prod(observed.lengths[axis] for axis in others))


# The unit and the bound that observed counts carry: whose records they are, and at most how many of each.


_BoundedCounts = tuple[Counts, Bound]


def add_count_bound(options: UnitOptions, observations: Sequence[Observation]) -> UnitOptions:
    """The options with the unit and bound of counts from :func:`pymc_dirdp.count`. No count is read.

    Raises
    ------
    ArgumentError
        If these contradict the options, or the number of records would be public although it depends on the units.
    """
    options = replace(options, counted=None)
    stored = {observed.name: observed.stored for observed in observations}
    bounded = {name: known for name in sorted(stored) if (known := known_bound(stored[name])) is not None}
    if not bounded:
        return options
    name = next(iter(bounded))
    unit = bounded[name][1].unit
    for other, (counts, bound) in bounded.items():
        if counts.is_computed:
            raise ArgumentError(
                f"{other!r} observes numbers that were computed from counts of at most {bound.records} records of each "
                f"{unit!r}, so it is unknown what one of them changes. Observe the counts as count() returned them, or "
                "np.asarray(...) of the numbers, and pass contribution=."
            )
        if bound.unit != unit:
            raise ArgumentError(
                f"{name!r} counts records of each {unit!r}, and {other!r} of each {bound.unit!r}. A release protects "
                "one kind of unit, so count both for the same one."
            )
    if options.unit:
        raise ArgumentError(
            f"{options.unit_text} and the counts of {name!r}, with a bound for each {unit!r}, both define the unit. "
            "Leave unit= out."
        )
    # A unit may have records in each array that feeds a table.
    of_table = Counter[str]()
    for observed in observations:
        of_table[observed.table.name] += bounded[observed.name][1].records if observed.name in bounded else 0
    most = max(of_table.values())
    if options.contribution is None and (unknown := stored.keys() - bounded.keys()):
        raise ArgumentError(
            f"{name!r} has a bound on the records of each {unit!r}, but {min(unknown)!r} has none. Count both with "
            f"unit={unit!r}, or pass contribution= for the maximum number of records of a person in each table."
        )
    if options.contribution is not None and options.contribution < most:
        raise ArgumentError(
            f"contribution={options.contribution} is less than the {most} records of each {unit!r} that were counted. "
            "Leave it out, because the counts carry it."
        )
    Bound(unit, most).refuse_public_number(options.adjacency)
    return replace(options, contribution=max(most, options.contribution or 1), counted=unit)


def known_bound(stored: Node) -> _BoundedCounts | None:
    """The observed counts with their bound; None for another kind of array, and for counts without a bound."""
    data = getattr(root_of(stored), "data", None)
    return (data, data.bound) if isinstance(data, Counts) and data.bound is not None else None


def refuse_lost_unit(names: Iterable[str], model: pm.Model, contribution: int = 1) -> None:
    """Refuse observations that equal bounded counts of this process but lost their bound, if it is larger.

    This reads the observations, so the answer depends on the records: two tables may agree by chance, or because nobody
    has more records than are counted. It comes after the charge, like all errors about data. A plan charges nothing,
    and its errors are for the curator.

    Raises
    ------
    DataError
        If there are such counts. The error names the observed variable, the unit and the bound.
    """
    for name in sorted(names):
        stored = stored_observations(model[name], model)
        if known_bound(stored) is None:
            counted.refuse_lost_unit(name, evaluate(stored), contribution)
