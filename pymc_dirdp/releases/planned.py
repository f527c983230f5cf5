"""A plan: the public facts about a release that will be drawn, and their fingerprint."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_dirdp.checks import at_least, integer, one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import TableMechanism
from pymc_dirdp.models.protected import Reading
from pymc_dirdp.models.tables import Table
from pymc_dirdp.planning.allocation import composed
from pymc_dirdp.planning.calibration import OBJECTIVES, STRATEGIES
from pymc_dirdp.planning.choosing import Choice
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.library import library_version
from pymc_dirdp.releases.wording import assumed

__all__ = ["Plan", "PlannedTable", "made_again"]


@dataclass(frozen=True)
class PlannedTable:
    """One table of a plan.

    Attributes
    ----------
    table : Table
        The public facts about it.
    mechanism : TableMechanism
        The mechanism that releases it.
    n_records : int or None
        The public number of records; where it is private, the planning size, if one was given.
    choice : Choice or None
        Under `mechanism="auto"`: the expected KL by which the mechanism was chosen.
    """

    table: Table
    mechanism: TableMechanism
    n_records: int | None
    choice: Choice | None = None


@dataclass(frozen=True)
class Plan:
    """What will be done with the data, decided before any of them is counted. It is public: safe to pickle or print.

    Attributes
    ----------
    guarantee : RenyiDP, TruncatedCDP or ApproxDP
        The guarantee of the whole release, all tables and draws together.
    parts : tuple of PlannedTable
        The tables that are released, in the model's order.
    groups : tuple of tuple of str
        The names of tables that one person's records may feed together. There is one group without `disjoint`.
    strategy, objective : str
        How the mechanisms were chosen, see :func:`pymc_dirdp.calibrate`.
    draws : int
        How many draws the guarantee covers.
    adjacency : str
        What one person can change.
    min_count : float
        What every cell is promised to hold.
    reading : Reading
        Whose records the model holds, and what one person adds to each table.
    assumptions : tuple of str
        What else the guarantee rests on, in sentences.
    library_version : str
        The version of pymc_dirdp.
    """

    guarantee: Guarantee
    parts: tuple[PlannedTable, ...]
    groups: tuple[tuple[str, ...], ...]
    strategy: str
    objective: str
    draws: int
    adjacency: str
    min_count: float
    reading: Reading
    assumptions: tuple[str, ...]
    library_version: str

    def _repr_html_(self) -> str:
        from pymc_dirdp.releases.report import report  # It needs this file.

        return report(self)._repr_html_()

    @property
    def unit_label(self) -> str:
        """The name of the unit of privacy: "record", "person", "hospital, person", "at most 3 records"."""
        return self.reading.label

    @property
    def protected(self) -> str:
        """Who is protected, and what two neighbouring data sets are, in sentences."""
        return self.reading.protected

    @property
    def contribution(self) -> int:
        """How many records of one table a unit holds at most."""
        return max(self.reading.contribution(part.table.name).total(part.table.shape) for part in self.parts)

    @property
    def digest(self) -> str:
        """A fingerprint of all public facts: plans with equal digests promise and do the same."""
        facts = {
            "guarantee": repr(self.guarantee),
            "tables": [_facts(part) for part in self.parts],
            "groups": self.groups,
            "draws": self.draws,
            "adjacency": self.adjacency,
            "min_count": self.min_count,
            "protected": self.protected,
            "assumptions": self.assumptions,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def composition(self) -> PrivacyCurves:
        """The privacy curves of the whole release."""
        return composed({part.table.name: part.mechanism for part in self.parts}, self.groups, self.draws)


def made_again(plan: Plan) -> Plan:
    """The same plan, checked, with mechanisms that remember no computed value. The plan may come from a file.

    Raises
    ------
    ArgumentError
        If a number is outside its domain, or the plan does not state what its mechanisms assume.
    """
    adjacency_named(plan.adjacency)
    one_of(STRATEGIES, strategy=plan.strategy)
    one_of(OBJECTIVES, objective=plan.objective)
    at_least(0, min_count=plan.min_count)
    # A mechanism keeps what it has computed, and a file might hold what another mechanism has computed.
    parts = tuple(
        replace(part, mechanism=replace(part.mechanism))  # type: ignore[type-var]  # each is a dataclass
        for part in plan.parts
    )
    used = {part.mechanism.min_count for part in parts} - {None}
    if used - {plan.min_count} or plan.assumptions != assumed(plan.reading):
        raise ArgumentError(
            "The plan does not state what its mechanisms assume: min_count, or whose records lie where. Call plan() "
            "again."
        )
    if not plan.reading.sizes_are_public and any(part.mechanism.needs_public_totals for part in parts):
        raise ArgumentError(
            "The plan would publish a private number of records: noise that adds up to 0 is for public ones. Call "
            "plan() again."
        )
    return replace(plan, parts=parts, draws=integer(1, draws=plan.draws), library_version=library_version())


def _facts(part: PlannedTable) -> dict[str, Any]:
    table, mechanism = part.table, part.mechanism
    given = {fact.name: np.asarray(getattr(mechanism, fact.field)).tolist() for fact in mechanism.facts if fact.given}
    return {
        "name": table.name,
        "prior": table.prior.tolist(),
        "dims": table.dims,
        "coords": {dim: labels and list(labels) for dim, labels in table.coords.items()},
        "likelihoods": [repr(likelihood) for likelihood in table.likelihoods],
        "n_records": part.n_records,
        "mechanism": type(mechanism).__name__,
        "parameters": given,
        "contribution": mechanism.contributed.to_json(),
    }
