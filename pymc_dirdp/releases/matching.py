"""Whether a plan is the plan of a model: of its tables, its people and its public numbers."""

from dataclasses import replace

import pymc as pm

from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.counted import with_counted
from pymc_dirdp.models.labels import held_labels
from pymc_dirdp.models.names import check_names
from pymc_dirdp.models.observations import records_of
from pymc_dirdp.models.reading import public_totals, read
from pymc_dirdp.models.table import Table
from pymc_dirdp.models.tables import tables
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.releases.options import Planning
from pymc_dirdp.releases.planned import Plan, PlannedTable

__all__ = ["of_model", "refuse_second_planning"]


def refuse_second_planning(chosen: Plan, planning: Planning) -> None:
    """Refuse options beside a plan, also those that equal a default: the plan may have decided another value."""
    if (asked := planning.get("unit")) is not None:
        raise ArgumentError(
            f"This plan protects {chosen.reading.stated.unit_text}; sample was asked for unit={asked!r}. Pass unit= to "
            "plan() instead."
        )
    if planning:
        raise ArgumentError(f"A plan already decides {', '.join(planning)}. Pass it to plan() instead.")


def _protects(part: PlannedTable, chosen: Plan) -> bool:
    """Whether a mechanism protects those whom the plan says."""
    unit, contribution = part.mechanism.contributed, chosen.reading.contribution(part.table.name)
    return part.mechanism.adjacency == chosen.adjacency and unit.fitted(part.table.shape) == contribution


def _with_held_labels(table: Table) -> Table:
    """The table with labels as a file holds them, which Python does not find equal to times of its own."""
    held = {dim: given and tuple(held_labels(given)) for dim, given in table.coords.items()}
    return replace(table, coords=held)


def of_model(chosen: Plan, model: pm.Model) -> Plan:
    """The plan with the tables of the model itself, or the error that it is the plan of another one."""
    reading = chosen.reading
    held = tables(model, public_prior=reading.stated.public_prior)
    check_names(held)
    same = (
        list(map(_with_held_labels, held)) == [_with_held_labels(part.table) for part in chosen.parts]
        # The people are read again, because a model with the same tables may say something else about them.
        and with_counted(reading.stated, held, model, reading.relation) == reading.stated
        and read(held, model, reading.stated, adjacency_named(chosen.adjacency)) == reading
        # A plan may come from a file, so what its mechanisms protect is compared with what was read.
        and chosen.groups == reading.groups
        and all(_protects(part, chosen) for part in chosen.parts)
    )
    public = reading.sizes_are_public
    if not same or any(
        (public and records_of(part.table, model) != part.n_records)
        or public_totals(reading, part.table, model) != part.totals
        for part in chosen.parts
    ):
        names = ", ".join(repr(part.table.name) for part in chosen.parts)
        raise UnsupportedModelError(
            f"The model is not the one that was planned: {names}, a prior, dims, a likelihood, whose records they are "
            "or the public number of records has changed. Call plan() again."
        )
    # Labels of a file are equal to those of the model, and may be of another type, such as a wider number.
    parts = tuple(replace(part, table=table) for part, table in zip(chosen.parts, held, strict=True))
    return replace(chosen, parts=parts)
