"""A plan as a text that people can read, and back. What it says is checked when it is read."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, get_args

import numpy as np

from pymc_dirdp.checks import MOST_RECORDS, at_least, integer, one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Fact
from pymc_dirdp.mechanisms.registry import by_class_name
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.privacy_unit import Reading, stated
from pymc_dirdp.models.table import KindName, Likelihood, Table, View, check_names, plain_labels
from pymc_dirdp.planning.choosing import Choice
from pymc_dirdp.planning.options import MOST_DRAWS
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.releases.choices import choices_of
from pymc_dirdp.releases.grammar import (
    at,
    guarantee_facts,
    guarantee_of,
    label_of,
    labels_facts,
    line_of,
    plain,
    version_of,
)
from pymc_dirdp.releases.plan_types import Plan, PlannedTable, rebuild
from pymc_dirdp.releases.wording import assumed

__all__ = ["facts_of", "plan_of"]


def facts_of(plan: Plan) -> dict[str, Any]:
    """All that a plan says, in texts, numbers, lists and dicts. The first sentences follow from the numbers."""
    people = plain(asdict(plan.reading.stated))
    del people["adjacency"]  # It stands by itself.
    return {
        "statement": str(plan.guarantee),
        "protected": plan.protected,
        "assumptions": list(plan.assumptions),
        "library_version": plan.library_version,
        "guarantee": guarantee_facts(plan.guarantee),
        "draws": plan.draws,
        "adjacency": plan.adjacency,
        "min_count": plan.min_count,
        "strategy": plan.strategy,
        "objective": plan.objective,
        "people": people | {"n_units": plan.reading.n_units, "others": plan.reading.others},
        "groups": plain(plan.groups),
        "tables": [_table(part) for part in plan.parts],
    } | ({"after": [choice.facts for choice in plan.after]} if plan.after else {})


def plan_of(facts: Mapping[str, Any]) -> Plan:
    """The plan that says these facts; errors of all kinds if none does. Its guarantee is not decided."""
    adjacency = facts["adjacency"]
    people = dict(facts["people"])
    n_units, others = people.pop("n_units"), people.pop("others")
    said = stated(**people | {"unit": tuple(people["unit"]) or None, "adjacency": adjacency})
    parts = tuple(_part(table, adjacency, i) for i, table in enumerate(facts["tables"]))
    shapes = tuple((part.table.name, part.table.shape) for part in parts)
    contributions = tuple((part.table.name, part.mechanism.contributed) for part in parts)
    groups = tuple(map(tuple, facts["groups"]))
    grouped = {name for group in groups for name in group} == {name for name, _ in shapes}
    if (
        not grouped
        or len(dict(shapes)) < len(shapes)
        or any(len(set(group)) != len(group) or not group for group in groups)
    ):
        raise ArgumentError("its groups are not groups of its tables.")
    check_names(tuple(part.table for part in parts))
    n_units = None if n_units is None else integer(0, n_units=n_units)
    reading = Reading(said, shapes, contributions, groups, n_units, bool(others))
    if integer(1, draws=facts["draws"]) > MOST_DRAWS:
        raise ArgumentError(f"it has more than {MOST_DRAWS} draws.")
    plan = Plan(
        guarantee=guarantee_of(facts["guarantee"]),
        parts=parts,
        groups=groups,
        strategy=facts["strategy"],
        objective=facts["objective"],
        draws=integer(1, draws=facts["draws"]),
        adjacency=adjacency,
        min_count=at_least(0, min_count=facts["min_count"]),
        reading=reading,
        assumptions=assumed(reading),
        library_version=version_of(facts["library_version"]),
        after=choices_of(facts["after"]) if "after" in facts else (),
    )
    rebuild(plan)
    return plan


def _table(part: PlannedTable) -> dict[str, Any]:
    table, mechanism = part.table, part.mechanism
    dims = list(table.dims) if table.dims else None
    return {
        "name": table.name,
        "family": table.family,
        "dims": dims,
        "labels": {dim: labels and labels_facts(plain_labels(labels)) for dim, labels in table.coords.items()},
        "observed": [_observed(likelihood) for likelihood in table.likelihoods],
        "n_records": part.n_records,
        **({"totals": list(part.totals)} if part.totals else {}),
        "prior": table.prior,
        "one_person_adds": plain(asdict(mechanism.contributed)),
        "mechanism": type(mechanism).__name__,
        "parameters": {
            fact.name: _parameter(getattr(mechanism, fact.field))
            for fact in _own_facts(type(mechanism))
            if not (fact.optional and getattr(mechanism, fact.field) is None)
        },
        "chosen_from": part.choice and plain(asdict(part.choice)),
    }


def _parameter(value: Any) -> Any:
    """A number, a word or a table as JSON; a tuple may hold tuples of several lengths."""
    if isinstance(value, tuple):
        return plain(value)
    found = np.asarray(value)
    return found if found.dtype in (np.float64, np.int64) else found.tolist()


def _part(facts: dict[str, Any], adjacency: str, place: int) -> PlannedTable:
    with at(f"table {place + 1}"):
        return _read_part(facts, adjacency)


def _read_part(facts: dict[str, Any], adjacency: str) -> PlannedTable:
    table = _read_table(facts)
    kind = by_class_name()[one_of(by_class_name(), mechanism=facts["mechanism"])]
    adds = facts["one_person_adds"]
    contribution = Contribution(adds["records"], tuple(adds["axes"])).fitted(table.shape)
    # A mechanism takes a single number if the records may lie anywhere.
    plain = contribution.records if set(contribution.axes) <= {"any"} else contribution
    given = {
        fact.field: facts["parameters"][fact.name]
        for fact in _own_facts(kind)
        if not fact.optional or fact.name in facts["parameters"]
    }
    shared = {"prior": table.prior} if any(fact.name == "prior" for fact in kind.facts) else {}
    mechanism = kind.from_facts({**shared, **given, "adjacency": adjacency, "contribution": plain})
    if mechanism.shape != table.shape:
        raise ArgumentError(f"the mechanism of {table.name!r} is for a table of another shape.")
    n_records, choice = facts["n_records"], facts["chosen_from"]
    n_records = None if n_records is None else integer(0, n_records=n_records)
    if n_records is not None and n_records > MOST_RECORDS:
        raise ArgumentError("n_records is above 2**53.")
    totals = tuple(integer(0, totals=total) for total in facts.get("totals", ()))
    return PlannedTable(table, mechanism, n_records, None if choice is None else _choice(choice), totals)


def _own_facts(kind: type[TableMechanism]) -> list[Fact]:
    """What has to be said of a mechanism beside the facts of its table."""
    return [fact for fact in kind.facts if fact.given and fact.name != "prior"]


def _read_table(facts: dict[str, Any]) -> Table:
    dims, coords = facts["dims"], facts["labels"]
    table = Table(
        name=line_of(facts["name"]),
        family="beta" if facts["family"] == "beta" else "dirichlet",
        prior=facts["prior"],
        dims=None if dims is None else tuple(dims),
        coords={dim: None if labels is None else tuple(map(label_of, labels)) for dim, labels in coords.items()},
    )
    n_cells = table.prior.size
    table = replace(table, likelihoods=tuple(_likelihood(one, n_cells) for one in facts["observed"]))
    released = table.shape if table.family == "dirichlet" else table.shape[:-1]
    if table.family == "beta" and table.n_categories != 2:
        raise ArgumentError(f"{table.name!r} is a Beta and has more than two categories.")
    if dims is not None and (len(dims) != len(released) or set(coords) != set(dims) - {None}):
        raise ArgumentError(f"the dims of {table.name!r} are not those of its shape.")
    for dim, length in zip(dims or (), released, strict=bool(dims)):
        labels = coords.get(dim)
        if labels is not None and len(labels) != length:
            raise ArgumentError(f"the labels of {dim!r} are not as many as its entries.")
    return table


def _observed(likelihood: Likelihood) -> dict[str, Any]:
    view = likelihood.view
    return {
        "name": likelihood.name,
        "kind": likelihood.kind,
        "rows": list(likelihood.rows),
        "parents": list(likelihood.parents),
        "view": view and {"cells": view.cells.tolist(), "by_codes": view.by_codes},
    }


def _likelihood(facts: dict[str, Any], n_cells: int) -> Likelihood:
    rows = tuple(None if axis is None else integer(0, rows=axis) for axis in facts["rows"])
    view, parents = facts["view"], tuple(map(line_of, facts["parents"]))
    if view is not None:
        cells = np.array(view["cells"])
        # The last axis holds the categories, and -1 stands for a cell of another table.
        if cells.dtype.kind != "i" or not cells.ndim or not np.all((cells >= -1) & (cells < n_cells)):
            raise ArgumentError("a view leads to cells that its table does not have.")
        view = View(cells, bool(view["by_codes"]))
    return Likelihood(line_of(facts["name"]), _kind(facts["kind"]), rows, parents, view)


def _kind(name: str) -> KindName:
    for known in get_args(KindName):
        if known == name:
            return known  # type: ignore[no-any-return]  # It is one of the words of a Literal.
    raise ArgumentError("a variable is of a kind that no table is counted from.")


def _choice(facts: dict[str, Any]) -> Choice:
    pairs = tuple((line_of(kind), at_least(0, expected_kl=kl)) for kind, kl in facts["expected_kl"])
    if not pairs:
        raise ArgumentError("a choice was made from nothing.")
    return Choice(pairs)
