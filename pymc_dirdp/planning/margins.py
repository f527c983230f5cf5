"""Which marginals of the tables of a model are measured."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError, type_name

__all__ = ["MEASURES", "Axes", "Margin", "Measure", "margins_of"]

MEASURES = ("levels", "families")

type Measure = str | Iterable[str | tuple[str, ...]]
# The name and the length of each axis of a table; the last is that of the variable whose shares it holds.
type Axes = tuple[tuple[str, int], ...]


@final
@dataclass(frozen=True)
class Margin:
    """A marginal of one table.

    Attributes
    ----------
    table : str
        The table whose counts are summed.
    axes : tuple of int
        Those of its axes that stay, in rising order.
    names : tuple of str
        The names of these axes.
    cells : int
    """

    table: str
    axes: tuple[int, ...]
    names: tuple[str, ...]
    cells: int


def margins_of(tables: Mapping[str, Axes], measure: Measure) -> tuple[Margin, ...]:
    """The marginals that are measured, each once.

    Parameters
    ----------
    tables : mapping of str to tuple of (str, int)
        The name and the length of each axis of each table, the parents first and the variable itself last.
    measure : {"levels", "families"} or iterable of str or tuple of str
        `"levels"` are for each table the marginal of its variable, that of the variable and each parent, and the table
        itself; `"families"` are the tables themselves; otherwise the marginals are listed by the names of their axes.

    Raises
    ------
    ArgumentError
        If a marginal is within no table, or no marginal says anything of a variable.
    """
    if isinstance(measure, str):
        one_of(MEASURES, measure=measure)
        kinds = {"levels": _levels, "families": _family}
        return tuple(margin for name, axes in tables.items() for margin in kinds[measure](name, axes))
    found: dict[tuple[str, tuple[int, ...]], Margin] = {}
    for names in _listed(measure, tables):
        margin = _within(names, tables)
        found[margin.table, margin.axes] = margin
    for name, axes in tables.items():
        own = axes[-1][0]
        if not any(margin.table == name and own in margin.names for margin in found.values()):
            raise ArgumentError(
                f"measure lists no margin of {name!r} with {own!r}, so nothing would be known of its shares. Add "
                f"{tuple(axis for axis, _ in axes)!r} to it, or take measure='levels'."
            )
    return tuple(found.values())


def _margin(table: str, axes: Axes, kept: Iterable[int]) -> Margin:
    """The marginal with these axes. An axis of length 1 is left out, because it changes no count."""
    long = tuple(sorted(axis for axis in set(kept) if axes[axis][1] > 1))
    return Margin(table, long, tuple(axes[axis][0] for axis in long), math.prod(axes[axis][1] for axis in long))


def _levels(table: str, axes: Axes) -> list[Margin]:
    own = len(axes) - 1
    kept = [(own,), *((parent, own) for parent in range(own)), range(len(axes))]
    return list(dict.fromkeys(_margin(table, axes, each) for each in kept))


def _family(table: str, axes: Axes) -> list[Margin]:
    return [_margin(table, axes, range(len(axes)))]


def _listed(measure: object, tables: Mapping[str, Axes]) -> list[tuple[str, ...]]:
    """The marginals that the user lists, as tuples of known names."""
    if not isinstance(measure, Iterable):
        raise ArgumentError(
            f"Expected measure to be one of {', '.join(MEASURES)}, or a list, got {type_name(measure)}."
        )
    known = list(dict.fromkeys(name for axes in tables.values() for name, _ in axes))
    listed = []
    for margin in measure:
        names = (margin,) if isinstance(margin, str) else margin
        each = names if isinstance(names, tuple | list) else ()
        found = [one_of(known, **{"variable in measure": name}) for name in each]
        if not found or len(set(found)) < len(found):
            raise ArgumentError("Expected each margin in measure to be a name, or a tuple of different names.")
        listed.append(tuple(found))
    return listed


def _within(names: tuple[str, ...], tables: Mapping[str, Axes]) -> Margin:
    """The margin of the table of one of its variables; there is one such table at most, if the tables have an order."""
    holding = {table: axes for table, axes in tables.items() if set(names) <= {name for name, _ in axes}}
    if not holding:
        raise ArgumentError(
            f"No table has all axes of the margin {names!r} in measure, so it cannot be summed from one. Take names of "
            "one variable and its parents."
        )
    table, axes = min(holding.items(), key=lambda one: (one[1][-1][0] not in names, len(one[1])))
    margin = _margin(table, axes, (axis for axis, (name, _) in enumerate(axes) if name in names))
    if margin.cells < 2:
        raise ArgumentError(f"The margin {names!r} in measure has one cell, which says nothing. Leave it out.")
    return margin
