"""Whose records a model holds: what one person adds to each table, in numbers and in words."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pymc as pm

from pymc_dirdp.errors import ArgumentError, DataError, UnsupportedModelError
from pymc_dirdp.models.ambiguous_unit import question, records_of_one
from pymc_dirdp.models.blocks import overlapping
from pymc_dirdp.models.groups import groups_of_people, refuse_shared_data, tables_of
from pymc_dirdp.models.observation import Observation, observation
from pymc_dirdp.models.observations import totals_of
from pymc_dirdp.models.privacy_unit import Reading
from pymc_dirdp.models.privacy_unit_args import Stated, as_code, axis_text, check_stated
from pymc_dirdp.models.public import check_public
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.table import Table
from pymc_dirdp.models.unit import (
    contribution_of_record,
    contribution_to,
    lacking,
    largest,
    people_axes,
    refuse_steps,
    refuse_unknown_axes,
)
from pymc_dirdp.privacy.people import Adjacency, Contribution

__all__ = ["check_people", "public_totals", "read"]


def read(tables: Sequence[Table], model: pm.Model, stated: Stated, relation: Adjacency, *, ask: bool = True) -> Reading:
    """Find out from a model whose records it holds.

    With `ask`, the error for an open question offers answers, each of which is tried by another call.

    Raises
    ------
    UnsupportedModelError
        If the model leaves open whose records it holds, with lines to choose from; or if something would be published
        that is not public.
    ArgumentError
        If what was said does not fit the model.

    References
    ----------
    Theory, sections 6 and 7.
    """
    # This comes before the data are looked at, so that a misspelt name is reported first.
    check_stated(stated)
    groups, anybody = groups_of_people(tables, stated.disjoint)
    public = relation.records_are_public and not stated.is_bounded

    def works(said: Stated) -> bool:
        # A statement that leaves something else open is no answer. To ask again about it would never end.
        if not ask:
            return False
        try:
            read(tables, model, said, relation, ask=False)
        except (UnsupportedModelError, ArgumentError):
            return False
        return True

    observations = _observations(tables, model)
    refuse_unknown_axes(observations, stated)
    refuse_shared_data(groups, observations)
    check_public(observations, model, stated, relation)
    parts: dict[str, list[Contribution]] = {table.name: [] for table in tables}
    others = False
    for group in groups:
        together = [observed for observed in observations if observed.name in group | anybody]
        of_group = _of_group(together, stated, relation, works)
        if of_group is None:
            of_group = _single_records(together, stated, relation)
            if (asked := question(together, stated, public, works)) is not None:
                raise UnsupportedModelError(asked)
            others = bool(stated.unit)
        for name, contribution in of_group.items():
            parts[name].append(contribution)
    fed = tuple(tables_of(tables, group | anybody) for group in groups)
    shapes = tuple((table.name, table.shape) for table in tables)
    contributions = tuple((name, largest(parts[name], shape).fitted(shape)) for name, shape in shapes)
    n_units = _number_of_units(observations, stated) if relation.records_are_public else None
    return Reading(stated, relation, shapes, contributions, fed, n_units, others)


def public_totals(reading: Reading, table: Table, model: pm.Model) -> tuple[int, ...]:
    """The public numbers of records of the entries of a table's `public_axes`; empty if there are no such axes."""
    axes = reading.public_axes(table.name)
    return tuple(totals_of(table, model, axes).ravel().tolist()) if axes else ()


def check_people(tables: Sequence[Table], model: pm.Model, stated: Stated) -> None:
    """Refuse data in which a person holds more records than `contribution` with a `unit`.

    Raises
    ------
    DataError
        It names the observed variable, and not the person or the number of records, which are secret.
    """
    if not stated.unit or (most := stated.contribution) is None:
        return
    for observed in _observations(tables, model):
        people = people_axes(observed, stated)
        if people is not None and np.any(observed.records_of(people) > most):
            raise DataError(
                f"Some entry of {stated.unit_text} holds more than contribution={most} records of "
                f"{observed.name!r}. Leave records out, or plan for more."
            )


def _observations(tables: Sequence[Table], model: pm.Model) -> list[Observation]:
    return [observation(table, likelihood, model) for table in tables for likelihood in table.likelihoods]


def _of_group(
    together: Sequence[Observation], stated: Stated, relation: Adjacency, works: Callable[[Stated], bool]
) -> Mapping[str, Contribution] | None:
    """What a person of this group adds to each table; None where nothing was said about the group."""
    tables = {observed.table.name: observed.table for observed in together}
    if stated.contribution is not None and not stated.unit:
        _refuse_many(together, stated.contribution, stated, relation, works)
        _refuse_few(together, stated.contribution)
        if stated.contribution == 1 and stated.counted is None:
            return _single_records(together, stated, relation)
        return dict.fromkeys(tables, Contribution(stated.contribution))
    having = [observed for observed in together if stated.unit and people_axes(observed, stated) is not None]
    if not having:
        # Nothing was said, or this group is fed by people who are no entries of the unit.
        _refuse_many(together, 1, stated, relation, works)
        return None
    for observed in together:
        if observed not in having:
            raise lacking(observed, together, stated, works)
        refuse_steps(observed, together, stated)
    return {
        name: contribution_to(table, [one for one in together if one.table.name == name], stated, relation)
        for name, table in tables.items()
    }


def _refuse_many(
    together: Sequence[Observation],
    contribution: int,
    stated: Stated,
    relation: Adjacency,
    works: Callable[[Stated], bool],
) -> None:
    """Refuse a table that has more likelihoods than a person holds records."""
    for name in dict.fromkeys(observed.table.name for observed in together):
        fed = [observed for observed in together if observed.table.name == name]
        # Likelihoods of different rows are like those of different tables, unless a number for the table was said.
        anywhere = stated.contribution is not None and not stated.unit
        sharing = fed if anywhere else max((overlapping(observed, fed) for observed in fed), key=len)
        if len(sharing) <= contribution:
            continue
        names = [observed.name for observed in sharing]
        ways = ["Give each its own parameter", "observe the summed counts once"]
        apart = replace(stated, disjoint=(*(stated.disjoint or ()), *((one,) for one in names)))
        if stated.disjoint is None and works(apart):
            groups = as_code([[one] for one in names])
            ways.append(f"say with disjoint={groups} that different people feed them")
        axes = [axis for axis in sharing[0].axes if all(axis in observed.axes for observed in sharing)][:1]
        if axes and works(replace(stated, unit=tuple(axes), contribution=None)):
            ways.append(f"say with unit={as_code(axes[0])} that its entries are the people")
        public = relation.records_are_public and not stated.is_bounded
        records = sum(records_of_one(observed, public) for observed in sharing)
        bound = f"contribution={max(records, len(names))} (or your bound) that one person holds so many records in it."
        ways.append(f"or with {bound}")
        raise refusal("used twice", name, first=names[0], second=names[1], ways=", ".join(ways))


def _refuse_few(together: Sequence[Observation], contribution: int) -> None:
    """Refuse a bound on a person's records below the number of records whose row one entry of the codes decides."""
    for observed in together:
        for name, axes in observed.followed:
            records = math.prod(n for axis, n in enumerate(observed.lengths) if axis not in axes)
            if records > contribution:
                entries = " x ".join(axis_text(observed.axes[axis]) for axis in axes)
                said = f"contribution={contribution}"
                raise refusal("few records", observed.name, records=records, parent=name, said=said, axes=entries)


def _single_records(together: Sequence[Observation], stated: Stated, relation: Adjacency) -> dict[str, Contribution]:
    """What a person adds who holds a record in each observed variable. No two of them feed the same row."""
    names = dict.fromkeys(observed.table.name for observed in together)
    fed = {name: [observed for observed in together if observed.table.name == name] for name in names}
    return {name: contribution_of_record(by, stated, relation) for name, by in fed.items()}


def _number_of_units(observations: Sequence[Observation], stated: Stated) -> int | None:
    """The number of people where all observed variables agree on it."""
    having = [(one, people_axes(one, stated)) for one in observations if stated.unit]
    numbers = {math.prod(one.lengths[axis] for axis in axes) for one, axes in having if axes is not None}
    return numbers.pop() if len(numbers) == 1 else None
