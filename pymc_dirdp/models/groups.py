"""Whose records feed which tables? What the user says of it, checked against the model."""

from collections.abc import Iterable

from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.likelihoods import refusal
from pymc_dirdp.models.tables import Table

__all__ = ["people"]


def people(
    tables: tuple[Table, ...], disjoint: Iterable[Iterable[str]] | None, contribution: int
) -> tuple[tuple[str, ...], ...]:
    """Groups of tables that one person's records may feed together.

    Parameters
    ----------
    tables : tuple of Table
        Those of the model.
    disjoint : iterable of iterables of str, or None
        Names of tables or observed variables; nobody has records in two of these groups.
    contribution : int
        How many records of a table one person may hold.

    Returns
    -------
    groups : tuple of tuple of str
        Names of tables. Every table is in one at least; one whose records may be anybody's is in all.

    Raises
    ------
    UnsupportedModelError
        If one person may have more records in a table than `contribution`, because several likelihoods feed it.
    ArgumentError
        If a name is unknown or stands in two groups.
    """
    groups = []
    stated = _stated(tables, disjoint)
    everybody = {likelihood.name for table in tables for likelihood in table.likelihoods} - set().union(*stated)
    for observed in stated or [set()]:
        fed = {
            table.name: [likelihood.name for likelihood in table.likelihoods if likelihood.name in observed | everybody]
            for table in tables
        }
        for name, likelihoods in fed.items():
            _refuse_many(name, likelihoods, contribution)
        groups.append(tuple(name for name, likelihoods in fed.items() if likelihoods))
    return tuple(groups)


def _stated(tables: tuple[Table, ...], disjoint: Iterable[Iterable[str]] | None) -> list[set[str]]:
    """The groups as sets of observed variables."""
    meant = {table.name: {likelihood.name for likelihood in table.likelihoods} for table in tables}
    meant |= {likelihood.name: {likelihood.name} for table in tables for likelihood in table.likelihoods}
    stated: list[set[str]] = []
    for group in disjoint or ():
        if isinstance(group, str):
            raise ArgumentError(
                f"Expected disjoint to hold groups of names, got the name {group!r}: write [[...], ...]."
            )
        observed: set[str] = set()
        for name in group:
            observed |= meant[one_of(meant, **{"variable in disjoint": name})]
        for other in stated:
            if twice := sorted(observed & other):
                raise ArgumentError(f"{twice[0]!r} stands in two groups of disjoint; nobody has records in both.")
        stated.append(observed)
    return stated


def _refuse_many(name: str, likelihoods: list[str], contribution: int) -> None:
    if len(likelihoods) > contribution:
        raise refusal(
            name,
            f"is used twice: {likelihoods[0]!r} and {likelihoods[1]!r} may hold the same records",
            "Give each its own parameter, observe the summed counts once, say with disjoint=[[...], [...]] that "
            f"different people feed them, or with contribution={len(likelihoods)} that one person feeds them all.",
        )
