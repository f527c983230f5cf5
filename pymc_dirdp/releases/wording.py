"""What a release says about people, in words. Its numbers decide them when it is drawn and when it is verified."""

import json
from collections.abc import Collection
from typing import Any

from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.protected import Protection
from pymc_dirdp.models.reading import Reading
from pymc_dirdp.models.stated import Stated, stated
from pymc_dirdp.privacy.adjacency import Adjacency, adjacency_named
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.stored.release import Stored

__all__ = ["assumed", "people_of", "words_of"]

# Parallel composition without a loss across groups needs this assumption, which the model cannot show.
_FIXED_GROUPS = "the size of each group of disjoint is public, and a replaced person stays in the group"
_FIXED_ROWS = "whose row is whose is public, and a replaced person's records stay in the person's own row"
_FACTS = {"unit", "contribution", "public_n", "max_records_per_person", "n_units", "others"}


def assumed(
    contributions: Collection[Contribution], n_groups: int, relation: Adjacency, public_n: Collection[str]
) -> tuple[str, ...]:
    """The assumptions that no model shows: what the user calls public and, under replace-one, whose rows are whose."""
    owns = any("own" in contribution.axes for contribution in contributions)
    fixed = {_FIXED_GROUPS: n_groups > 1, _FIXED_ROWS: owns}
    named = [f"anybody may know the number of trials of {name!r}" for name in public_n]
    return (*(sentence for sentence, needed in fixed.items() if needed and relation.records_are_public), *named)


def people_of(reading: Reading) -> str:
    """What a release has to record about people beside its numbers, as JSON."""
    said = reading.stated
    return json.dumps(
        {
            "unit": list(said.unit),
            "contribution": said.contribution,
            "public_n": list(said.public_n),
            "max_records_per_person": said.max_records_per_person,
            "n_units": reading.n_units,
            "others": reading.others,
        }
    )


def words_of(release: Stored) -> tuple[Protection, tuple[str, ...]]:
    """Who is protected and what is assumed, as it follows from a release's numbers.

    Raises
    ------
    ReleaseError
        If what the file says of people cannot be understood.
    """
    facts = release.privacy.json("people")
    try:
        said, n_units, others = _understood(facts)
    except (ArgumentError, LookupError, TypeError, OverflowError):
        raise release.privacy.damaged("the attribute 'people' does not say who is one person") from None
    relation = adjacency_named(release.adjacency)
    shapes = {name: table.prior.shape for name, table in release.tables.items()}
    adds = {name: table.contribution.fitted(shapes[name]) for name, table in release.tables.items()}
    people = Protection(said, relation, shapes, adds, release.groups, n_units, others)
    assumptions = assumed(adds.values(), len(release.groups), relation, said.public_n)
    return people, assumptions


def _understood(facts: Any) -> tuple[Stated, int | None, bool]:
    if not isinstance(facts, dict) or set(facts) != _FACTS or not isinstance(facts["others"], bool):
        raise ArgumentError("These are no facts about people.")
    said = stated(
        unit=tuple(facts["unit"]) or None,
        contribution=facts["contribution"],
        public_n=tuple(facts["public_n"]),
        max_records_per_person=facts["max_records_per_person"],
        disjoint=None,
    )
    n_units = facts["n_units"]
    return said, None if n_units is None else integer(0, n_units=n_units), facts["others"]
