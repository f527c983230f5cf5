"""Groups of observed variables that may hold records of the same person, checked against the model."""

from collections.abc import Sequence
from itertools import combinations

from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.observation import Observation
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.shared_data import same_data
from pymc_dirdp.models.table import Table

__all__ = ["Group", "groups_of_people", "refuse_shared_data", "tables_of"]

# The observed variables that one person may feed together.
Group = frozenset[str]


def groups_of_people(
    tables: Sequence[Table], disjoint: tuple[tuple[str, ...], ...] | None
) -> tuple[tuple[Group, ...], Group]:
    """The groups of observed variables that are fed by different people, and the variables that anybody may feed.

    Each group of `disjoint` holds names of tables or observed variables, and nobody has records in two groups. There is
    one empty group if nothing was said. Anybody may have records in the variables that were not named.

    Raises
    ------
    ArgumentError
        If a name is unknown or stands in two groups.
    """
    meant = {table.name: {likelihood.name for likelihood in table.likelihoods} for table in tables}
    meant |= {likelihood.name: {likelihood.name} for table in tables for likelihood in table.likelihoods}
    stated: list[Group] = []
    for group in disjoint or ():
        observed: set[str] = set()
        for name in group:
            observed |= meant[one_of(meant, **{"variable in disjoint": name})]
        for other in stated:
            if twice := sorted(observed & other):
                raise ArgumentError(f"{twice[0]!r} stands in two groups of disjoint; nobody has records in both.")
        stated.append(frozenset(observed))
    everything = frozenset(likelihood.name for table in tables for likelihood in table.likelihoods)
    return tuple(stated) or (frozenset(),), everything - frozenset().union(*stated)


def tables_of(tables: Sequence[Table], group: Group) -> tuple[str, ...]:
    """The names of the tables that a group feeds."""
    return tuple(table.name for table in tables if any(likelihood.name in group for likelihood in table.likelihoods))


def refuse_shared_data(groups: Sequence[Group], observations: Sequence[Observation]) -> None:
    """Refuse groups that are fed by the same people: they share data, or one decides the rows of the other."""
    for first, second in combinations(groups, 2):
        for one in observations:
            for other in observations:
                if one.name in first and other.name in second and (problem := _shared(one, other)):
                    raise refusal("shared data", one.name, problem=problem)


def _shared(one: Observation, other: Observation) -> str | None:
    """What the two observed variables share, as a part of a sentence; None if nothing."""
    for child, parent in ((one, other), (other, one)):
        for _, codes in child.parents:
            if same_data(codes, parent.stored):
                return f"and {other.name!r} are parent and child"
    if any(same_data(mine, theirs) for mine in one.arrays for theirs in other.arrays):
        return f"and {other.name!r} hold the same data"
    return None
