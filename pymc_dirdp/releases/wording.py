"""What a release says in words, of people above all. Its numbers decide it when it is drawn and when it is verified."""

import json
from typing import Any

from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.protected import Reading
from pymc_dirdp.models.stated import Stated, stated
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.stored.release import Stored

__all__ = ["ESTIMATE", "NO_NUMBER", "assumed", "people_of", "records_word", "stored_reading"]

ESTIMATE = "the shares are fitted to noisy counts of margins, and are no draw"
"""What a release says of shares that are fitted."""
NO_NUMBER = "no a priori KL without n_records, the size to plan for"
"""What it says where nobody said how many records to plan for."""

# Parallel composition without a loss across groups needs this assumption, which the model cannot show.
_FIXED_GROUPS = "the size of each group of disjoint is public, and a replaced person stays in the group"
_FIXED_ROWS = "whose row is whose is public, and a replaced person's records stay in the person's own row"
_FACTS = {"unit", "contribution", "public_n", "public_prior", "max_records_per_person", "n_units", "others", "counted"}


def records_word(reading: Reading) -> str:
    """What a release calls its numbers of records: public, or planned for."""
    return "public" if reading.sizes_are_public else "planned for"


def assumed(reading: Reading) -> tuple[str, ...]:
    """The assumptions that no model shows: what the user calls public and, under replace-one, whose rows are whose."""
    owns = any("own" in contribution.axes for _, contribution in reading.contributions)
    fixed = {_FIXED_GROUPS: len(reading.groups) > 1, _FIXED_ROWS: owns} if reading.relation.records_are_public else {}
    named = [f"anybody may know the number of trials of {name!r}" for name in reading.stated.public_n]
    named += [f"anybody may know the data {name!r} in a prior" for name in reading.stated.public_prior]
    return (*(sentence for sentence, needed in fixed.items() if needed), *named)


def people_of(reading: Reading) -> str:
    """What a release has to record about people beside its numbers, as JSON."""
    said = reading.stated
    return json.dumps(
        {
            "unit": list(said.unit),
            "contribution": said.contribution,
            "public_n": list(said.public_n),
            "public_prior": list(said.public_prior),
            "max_records_per_person": said.max_records_per_person,
            "n_units": reading.n_units,
            "others": reading.others,
            "counted": said.counted,
        }
    )


def stored_reading(release: Stored) -> Reading:
    """Who is protected, as it follows from a release's numbers.

    Raises
    ------
    ReleaseError
        If what the file says about people cannot be understood.
    """
    facts = release.privacy.json("people")
    try:
        said, n_units, others = _understood(facts)
    except (ArgumentError, LookupError, TypeError, OverflowError):
        raise release.privacy.damaged("the attribute 'people' does not say who is one person") from None
    relation = adjacency_named(release.adjacency)
    shapes = tuple((name, table.prior.shape) for name, table in release.tables.items())
    try:
        adds = tuple((name, release.tables[name].contribution.fitted(shape)) for name, shape in shapes)
    except ArgumentError:
        raise release.privacy.damaged("what one person adds to a table does not fit its shape") from None
    return Reading(said, relation, shapes, adds, release.groups, n_units, others)


def _understood(facts: Any) -> tuple[Stated, int | None, bool]:
    if not isinstance(facts, dict) or set(facts) != _FACTS or not isinstance(facts["others"], bool):
        raise ArgumentError("These are no facts about people.")
    said = stated(
        unit=tuple(facts["unit"]) or None,
        contribution=facts["contribution"],
        public_n=tuple(facts["public_n"]),
        public_prior=tuple(facts["public_prior"]),
        max_records_per_person=facts["max_records_per_person"],
        disjoint=None,
        counted=facts["counted"],
    )
    n_units = facts["n_units"]
    return said, None if n_units is None else integer(0, n_units=n_units), facts["others"]
