"""What the user states about people: whose records there are, and which numbers anybody may know."""

import json
import numbers
from collections.abc import Iterable
from dataclasses import dataclass

from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError, type_name

__all__ = ["Stated", "Unit", "as_code", "check_stated", "stated"]

Unit = str | int | tuple[str | int, ...]


@dataclass(frozen=True)
class Stated:
    """The user's checked statements about people. They are public.

    Attributes
    ----------
    unit : tuple of str or int
        The dims or numbers of the axes whose entries are the people; empty if nothing was said.
    contribution : int or None
        How many records of each table a person holds at most, anywhere; with a unit, how many of each observed
        variable, and the number itself is private. None if nothing was said.
    public_n : tuple of str
        Observed variables whose number of trials anybody may know.
    disjoint : tuple of tuple of str, or None
        Groups of tables or observed variables that are fed by different people.
    public_prior : tuple of str
        The `pm.Data` in priors that anybody may know.
    counted : str or None
        The column whose entries are the people, where the counts of at most `contribution` records of each of them are
        observed; None if the counts say nothing of people.
    """

    unit: tuple[str | int, ...] = ()
    contribution: int | None = None
    public_n: tuple[str, ...] = ()
    disjoint: tuple[tuple[str, ...], ...] | None = None
    public_prior: tuple[str, ...] = ()
    counted: str | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether the entries of a unit hold a private number of records, up to a bound."""
        return bool(self.unit) and self.contribution is not None

    @property
    def unit_text(self) -> str:
        """The unit as the user writes it, or what stands in its place."""
        if self.counted is not None:
            return f"unit={self.counted!r} of counts"
        if not self.unit:
            return "single records" if self.contribution in (None, 1) else f"contribution={self.contribution}"
        return f"unit={self.unit[0]!r}" if len(self.unit) == 1 else f"unit={self.unit!r}"


def as_code(value: object) -> str:
    """A name, a number, or a list or tuple of these, as it is written in Python with double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"({', '.join(map(as_code, value))})"
    return f"[{', '.join(map(as_code, value))}]" if isinstance(value, list) else repr(value)


def axis_text(axis: str | int) -> str:
    """An axis as errors and questions name it."""
    return repr(axis) if isinstance(axis, str) else f"axis {axis}"


def stated(
    *,
    unit: Unit | None,
    contribution: int | None,
    public_n: Iterable[str],
    disjoint: Iterable[Iterable[str]] | None,
    public_prior: Iterable[str] = (),
    counted: str | None = None,
) -> Stated:
    """The checked statements, or an ArgumentError if they contradict one another."""
    axes = _axes(unit)
    if contribution is not None:
        contribution = integer(1, contribution=contribution)
    said = Stated(
        axes,
        contribution,
        _names(public_n, "public_n", "observed variables"),
        _groups(disjoint),
        _names(public_prior, "public_prior", "pm.Data"),
        counted,
    )
    check_stated(said)
    return said


def check_stated(said: Stated) -> None:
    """Refuse statements that contradict one another."""
    if said.counted is not None and (not isinstance(said.counted, str) or said.contribution is None or said.unit):
        raise ArgumentError("Expected counted to be the name of a column, with contribution and without unit.")


def _axes(unit: Unit | None) -> tuple[str | int, ...]:
    if unit is None:
        return ()
    given = unit if isinstance(unit, tuple | list) else (unit,)
    for axis in given:
        whole = isinstance(axis, numbers.Integral) and not isinstance(axis, bool) and int(axis) >= 0
        if not isinstance(axis, str) and not whole:
            raise ArgumentError(
                f"Expected unit to be the name of a dim, the number of an axis from 0 on, or a tuple of these, got "
                f"{type_name(axis)}{' below 0' if isinstance(axis, numbers.Integral) else ''}."
            )
    if not given or len(set(given)) < len(given):
        raise ArgumentError("Expected unit to name at least one axis, and each of them once.")
    return tuple(axis if isinstance(axis, str) else int(axis) for axis in given)


def _names(names: Iterable[str], argument: str, what: str) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ArgumentError(f"Expected {argument} to be a list of names of {what}: write ['name'].")
    return tuple(names)


def _groups(disjoint: Iterable[Iterable[str]] | None) -> tuple[tuple[str, ...], ...] | None:
    if disjoint is None:
        return None
    groups = []
    for group in disjoint:
        if isinstance(group, str):
            raise ArgumentError(
                f"Expected disjoint to hold groups of names, got the name {group!r}: write [[...], ...]."
            )
        groups.append(tuple(group))
    return tuple(groups)
