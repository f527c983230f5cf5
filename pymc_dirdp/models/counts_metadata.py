"""What the counts that a model observes know of people: whose records they are, and how many of each at most."""

from collections.abc import Sequence
from dataclasses import replace

import pymc as pm

from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.counts import Counts
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.graph import root_of
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.privacy_unit_args import Stated
from pymc_dirdp.models.table import Table
from pymc_dirdp.privacy.people import Adjacency

__all__ = ["known_bound", "with_counted"]

_Known = tuple[Counts, Bound]


def with_counted(said: Stated, tables: Sequence[Table], model: pm.Model, relation: Adjacency) -> Stated:
    """What was said about people, with what :func:`pymc_dirdp.count` knows of them. No count is looked at.

    Raises
    ------
    ArgumentError
        If that contradicts what was said, or the number of records would be public although it depends on who the
        units are.
    """
    said = replace(said, counted=None)
    names = {likelihood.name for table in tables for likelihood in table.likelihoods}
    bounded = {name: known for name in sorted(names) if (known := known_bound(name, model)) is not None}
    if not bounded:
        return said
    name = next(iter(bounded))
    unit = bounded[name][1].unit
    _refuse_contradictions(said, bounded, unit)
    # A unit has its records in each array that feeds a table.
    most = max(
        sum(bounded[one.name][1].records for one in table.likelihoods if one.name in bounded) for table in tables
    )
    if said.contribution is None:
        _refuse_other_observations(tables, bounded, name, unit)
    elif said.contribution < most:
        raise ArgumentError(
            f"contribution={said.contribution} is less than the {most} records of each {unit!r} that were counted. "
            "Leave it out: the counts know it."
        )
    if relation.records_are_public and most > 1:
        raise ArgumentError(
            f"{name!r} counts at most {most} records of each {unit!r}, so the number of records depends on who these "
            'are, and replace-one would make it public. Add adjacency="add-remove" (and n_records= for planning), or '
            "count with contribution=1, where it is the number of units."
        )
    return replace(said, contribution=max(most, said.contribution or 1), counted=unit)


def known_bound(name: str, model: pm.Model) -> _Known | None:
    """The counts that are observed, with their bound; None if they are another kind of array, or have none."""
    data = getattr(root_of(stored_observations(model[name], model)), "data", None)
    return (data, data.bound) if isinstance(data, Counts) and data.bound is not None else None


def _refuse_contradictions(said: Stated, bounded: dict[str, _Known], unit: str) -> None:
    for name, (counts, bound) in bounded.items():
        if counts.is_computed:
            raise ArgumentError(
                f"{name!r} observes numbers that were computed from counts of at most {bound.records} records of each "
                f"{unit!r}, so it is unknown what one of them changes. Observe the counts as count() returned them, or "
                "np.asarray(...) of the numbers, and say contribution=."
            )
        if bound.unit != unit:
            raise ArgumentError(
                f"{next(iter(bounded))!r} counts records of each {unit!r}, and {name!r} of each {bound.unit!r}. A "
                "release protects one kind of unit: count all for the same one."
            )
    if said.unit:
        raise ArgumentError(
            f"{said.unit_text} and the counts of {next(iter(bounded))!r}, of at most so many records of each {unit!r}, "
            "both say who is protected. Leave unit= out."
        )


def _refuse_other_observations(tables: Sequence[Table], bounded: dict[str, _Known], name: str, unit: str) -> None:
    """Refuse observations of which it is unknown how many records of a unit they hold."""
    for table in tables:
        for likelihood in table.likelihoods:
            if likelihood.name not in bounded:
                raise ArgumentError(
                    f"{name!r} counts at most so many records of each {unit!r}, and it is unknown how many of them "
                    f"{likelihood.name!r} holds. Count both with unit={unit!r}, or say with contribution= how many "
                    "records of each table a person holds at most."
                )
