"""The unit of privacy: the options about people, and the contribution of one person in numbers and in sentences.

All numbers here are public.
"""

import difflib
import json
import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, final

from pymc_dirdp.checks import groups_of_names, integer, list_of_names
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.privacy.people import Adjacency, Contribution, adjacency_by_name

Unit = str | int | tuple[str | int, ...]


@dataclass(frozen=True)
class UnitOptions:
    """Checked options about people. They are public.

    Attributes
    ----------
    unit : tuple of str or int
        The dims or numbers of the axes whose entries are the people; empty without a unit.
    contribution : int or None
        The maximum number of records of a person in each table, anywhere; with a unit, in each observed variable, and
        the number itself is private. None without a bound.
    public : tuple of str
        Observed variables whose number of trials or records anybody may know, and `pm.Data` in priors that anybody may
        know.
    disjoint : tuple of tuple of str, or None
        Groups of tables or observed variables that different people feed.
    counted : str or None
        The column whose entries are the people, if the model observes counts of at most `contribution` records of each;
        None for counts without a bound.
    adjacency : str
        The name of the relation between neighbouring data sets.
    """

    unit: tuple[str | int, ...] = ()
    contribution: int | None = None
    public: tuple[str, ...] = ()
    disjoint: tuple[tuple[str, ...], ...] | None = None
    counted: str | None = None
    adjacency: AdjacencyName = "replace-one"

    def __post_init__(self) -> None:
        unit_axes(self.unit or None)
        if self.contribution is not None:
            integer(1, contribution=self.contribution)
        list_of_names(public=self.public)
        groups_of_names(disjoint=self.disjoint or ())
        if self.counted is not None and (not isinstance(self.counted, str) or self.contribution is None or self.unit):
            raise ArgumentError("Expected counted to be the name of a column, with contribution and without unit.")
        adjacency_by_name(self.adjacency)

    @property
    def relation(self) -> Adjacency:
        """The relation between neighbouring data sets."""
        return adjacency_by_name(self.adjacency)

    @property
    def n_records_is_public(self) -> bool:
        """Whether the number of records of each table is public."""
        return self.relation.records_are_public and not self.is_bounded

    @property
    def is_bounded(self) -> bool:
        """Whether the entries of a unit hold a private number of records, up to a bound."""
        return bool(self.unit) and self.contribution is not None

    @property
    def unit_text(self) -> str:
        """The unit as the user writes it, or a phrase for it."""
        if self.counted is not None:
            return f"unit={self.counted!r} of counts"
        if not self.unit:
            return "single records" if self.contribution in (None, 1) else f"contribution={self.contribution}"
        return f"unit={self.unit[0]!r}" if len(self.unit) == 1 else f"unit={self.unit!r}"


def as_code(value: object) -> str:
    """A name, a number, or a list, tuple or dict of these as Python code with double quotes."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{as_code(key)}: {as_code(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"({', '.join(map(as_code, value))})"
    return f"[{', '.join(map(as_code, value))}]" if isinstance(value, list) else repr(value)


def axis_text(axis: str | int) -> str:
    """An axis as errors and questions name it."""
    return repr(axis) if isinstance(axis, str) else f"axis {axis}"


def unit_options(
    *,
    unit: Unit | None,
    contribution: int | None,
    public: Iterable[str],
    disjoint: Iterable[Iterable[str]] | None,
    counted: str | None = None,
    adjacency: AdjacencyName = "replace-one",
) -> UnitOptions:
    """The checked options, or an ArgumentError if they contradict one another."""
    return UnitOptions(
        unit_axes(unit),
        None if contribution is None else integer(1, contribution=contribution),
        list_of_names(public=public),
        None if disjoint is None else groups_of_names(disjoint=disjoint),
        counted,
        adjacency,
    )


def unit_axes(unit: Unit | None) -> tuple[str | int, ...]:
    """The axes of a unit, or an ArgumentError if it names none."""
    if unit is None:
        return ()
    axes = unit if isinstance(unit, tuple | list) else (unit,)
    for axis in axes:
        is_position = isinstance(axis, numbers.Integral) and not isinstance(axis, bool) and int(axis) >= 0
        if not isinstance(axis, str) and not is_position:
            raise ArgumentError(
                f"Expected unit to be the name of a dim, the number of an axis from 0 on, or a tuple of these, got "
                f"{type_name(axis)}{' below 0' if isinstance(axis, numbers.Integral) else ''}."
            )
    if not axes or len(set(axes)) < len(axes):
        raise ArgumentError("Expected unit to name at least one axis, and no axis twice.")
    return tuple(axis if isinstance(axis, str) else int(axis) for axis in axes)


# Which axes of an observed variable hold the people.


class HasAxes(Protocol):
    """An observed variable with named axes."""

    @property
    def name(self) -> str:
        """The observed variable."""

    @property
    def axes(self) -> tuple[str | int, ...]:
        """Its batch axes: a dim's name, or the number of an axis without a dim."""

    @property
    def core(self) -> tuple[str, ...]:
        """The dims of one observation, such as that of the categories."""


@final
@dataclass(frozen=True)
class NamedAxes:
    """The axes of an observed variable: see :class:`HasAxes`."""

    name: str
    axes: tuple[str | int, ...]
    core: tuple[str, ...]


def people_axes(observed: HasAxes, options: UnitOptions) -> tuple[int, ...] | None:
    """The batch axes of an observed variable that hold the people; None if it lacks one of them.

    Raises
    ------
    ArgumentError
        If the unit is the dim of the categories.
    """
    people = []
    for axis in options.unit:
        if axis in observed.core:
            raise ArgumentError(
                f"{options.unit_text} is the dim of the categories of {observed.name!r}, so its entries are "
                f"not people. Name another axis of {observed.name!r}: "
                f"{', '.join(map(repr, observed.axes)) or 'it has none'}."
            )
        if isinstance(axis, str) and axis in observed.axes:
            people.append(observed.axes.index(axis))
        elif isinstance(axis, int) and axis < len(observed.axes):
            people.append(axis)
        else:
            return None
    if len(set(people)) < len(people):
        raise ArgumentError(f"{options.unit_text} names an axis of {observed.name!r} twice. Name each axis once.")
    return tuple(people)


def refuse_unknown_axes(observations: Sequence[HasAxes], options: UnitOptions) -> None:
    """Refuse a unit that no observed variable has."""
    dims = sorted({axis for observed in observations for axis in observed.axes if isinstance(axis, str)})
    n_axes = max((len(observed.axes) for observed in observations), default=0)
    cores = {dim for observed in observations for dim in observed.core}
    for axis in options.unit:
        if isinstance(axis, str) and axis not in dims and axis not in cores:
            similar = difflib.get_close_matches(axis, dims, n=1, cutoff=0.4)
            known = f"They have {', '.join(map(repr, dims))}." if dims else "Name axes with dims=, or give a number."
            known += " Pass contribution=1 instead if each record, or each trial, is another person."
            hint = f"Did you mean {similar[0]!r}?" if similar else known
            if axis in ("record", "trial"):
                hint = "If every record is that of another person, pass contribution=1 instead of unit=."
            raise ArgumentError(f"unit={axis!r} is not a dim of any observation. {hint}")
        if isinstance(axis, int):
            if axis >= n_axes:
                raise ArgumentError(
                    f"unit={axis} is not an axis of any observation. They have at most {n_axes}, numbered from 0."
                )
            # The same number may stand for different dims of different observed variables.
            dims_of_axis = {
                observed.axes[axis]: observed.name for observed in observations if axis < len(observed.axes)
            }
            # The name of an axis without a dim is its number.
            dims_of_axis.pop(axis, None)
            if len(dims_of_axis) > 1:
                (dim, first), (other, second) = list(dims_of_axis.items())[:2]
                raise ArgumentError(
                    f"unit={axis} is the dim {dim!r} of {first!r} and {other!r} of {second!r}. Name the dim of the "
                    "people."
                )
    if options.unit and all(people_axes(observed, options) is None for observed in observations):
        raise ArgumentError(
            f"{options.unit_text} names axes that no single observation has. Name axes of one observation, such as "
            + " or ".join(f"unit={as_code(observed.axes)}" for observed in observations if observed.axes)
            + "."
        )


# Who is protected, and what two neighbouring data sets are, in sentences.


@dataclass(frozen=True)
class PrivacyUnit:
    """The contribution of one person, in numbers and in sentences. It is public, and has no graph, model or data.

    Attributes
    ----------
    options : UnitOptions
        The options about people.
    shapes : tuple of (str, tuple of int)
        The name and the shape of each table.
    contributions : tuple of (str, Contribution)
        The name of each table, and the contribution of one person to it.
    groups : tuple of tuple of str
        The names of tables that one person's records may feed together.
    n_units : int or None
        The number of units, if a unit is an axis and their number is public.
    others : bool
        Whether people who are not entries of the unit feed some groups of tables.
    """

    options: UnitOptions
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    contributions: tuple[tuple[str, Contribution], ...]
    groups: tuple[tuple[str, ...], ...]
    n_units: int | None
    others: bool

    def contribution(self, name: str) -> Contribution:
        """The contribution of one person to the table of this name."""
        return self._by_table[name]

    @cached_property
    def _by_table(self) -> dict[str, Contribution]:
        return dict(self.contributions)

    @property
    def relation(self) -> Adjacency:
        """The relation between neighbouring data sets."""
        return self.options.relation

    @property
    def n_records_is_public(self) -> bool:
        """Whether the number of records of each table is public."""
        return self.options.n_records_is_public

    def public_axes(self, name: str) -> tuple[int, ...]:
        """The row axes of a table along which the number of records of each entry is public.

        This number is the same in all neighbouring data sets, so every inference may use it.
        """
        if not self.n_records_is_public:
            return ()
        lengths = dict(self.shapes)[name]
        return tuple(axis for axis in self.contribution(name).fixed_axes if lengths[axis] > 1)

    @property
    def label(self) -> str:
        """The name of the unit: "record", "person", "hospital, person", "axis 0", "at most 3 records", "patient"."""
        if self.options.unit:
            return f"{_axis_names(self.options)} | record" if self.others else _axis_names(self.options)
        if self.options.counted is not None:
            return self.options.counted
        return f"at most {self.options.contribution} records" if self._holds_several else "record"

    @property
    def protected(self) -> str:
        """Who is protected, as a sentence."""
        if self.options.unit:
            number = [] if self.n_units is None else [f"{self.n_units} of them, as the publisher states"]
            places = "; ".join(_location(name, shape, self.contribution(name)) for name, shape in self.shapes)
            bound = "at most " if self.options.is_bounded else ""
            facts = ", ".join([_origin(self.options), *number, f"{bound}{self._records} each: {places}"])
            rest = " In the other groups, whose people are no such entries: every record." if self.others else ""
            return f"every {_unit_name(self.options)} ({facts}). Neighbours: {self.neighbours}.{rest}"
        if self.options.counted is not None:
            number_text = f"at most {self.options.contribution} records" if self._holds_several else "one record"
            counted = f"{number_text} of each, chosen at random, in each table"
            subject = f"every {self.options.counted} (a column of the records; {counted})"
        elif self._holds_several:
            subject = f"every person, who holds at most {self.options.contribution} records of each table"
        elif self.shared_tables:
            subject = f"every person, with {self.shared_tables}"
        else:
            subject = "every record: each observation, and each trial where several are counted, is another person"
        return f"{subject}. Neighbours: {self.neighbours}."

    @property
    def shared_tables(self) -> str:
        """The tables in which every person has a record, in words; empty if each record is another person."""
        (names, *others) = self.groups
        if others or len(names) == 1 or any("each" in adds.axes for _, adds in self.contributions):
            return ""
        tables = f"{', '.join(names[:-1])} and {names[-1]}"
        # A sentence names up to five tables, and counts more of them.
        if len(names) > 5:
            tables = f"the {len(names)} tables"
        # With these options numbers of records may differ, and then some people have no record in some table.
        most = "at most " if self.options.contribution is not None or self.options.public else ""
        return f"{most}one record in each of {tables}"

    @property
    def neighbours(self) -> str:
        """What two neighbouring data sets are, as a part of a sentence."""
        public = self.relation.records_are_public
        if self.options.unit:
            records_text, sizes = f"all {self._records}", ", and so is how many records each holds"
            if self.options.is_bounded:
                records_text, sizes = "all records", ""
            elif self._total == 1:
                records_text = "the record"
            records_text = f"{records_text} of one {_unit_name(self.options)}"
            if public:
                return f"{records_text} replaced; how many of them there are is public{sizes}"
            return f"{records_text} appear or disappear; how many of them there are is private"
        if (unit := self.options.counted) is not None:
            # Counts carry the unit, which may hold any number of records, and a few of them count.
            changed = "replaced" if public else "appear or disappear"
            sizes = "public" if public else "private, and so is the number of records"
            return (
                f"all records of one {unit} {changed}, of which at most {self.options.contribution} in each table "
                f"count; how many of them there are is {sizes}"
            )
        if self._holds_several:
            m = self.options.contribution
            if public:
                return f"all records of one person replaced, at most {m} in each table; the number of records is public"
            return f"all records of one person, at most {m} in each table, appear or disappear; the number is private"
        several = " (in each table that it feeds)" if len(self.shapes) > 1 else ""
        return f"{self.relation.statement}{several}{self._fixed_rows_text}"

    @property
    def _fixed_rows_text(self) -> str:
        """The tables in which a record stays in its row, as a part of a sentence."""
        if not self.relation.records_are_public:
            return ""
        fixed, repeated = ([name for name, adds in self.contributions if kind in adds.axes] for kind in ("own", "each"))
        if not fixed and not repeated:
            return ""
        several = f"; a person may have a record in each row of {' and '.join(repeated)}" if repeated else ""
        return f"; so is that of each row of {' and '.join(fixed + repeated)}, and a record stays in its row{several}"

    @property
    def _holds_several(self) -> bool:
        return self.options.contribution is not None and self.options.contribution > 1

    @property
    def _total(self) -> int:
        """The largest number of records of one person in all tables."""
        totals = {name: self.contribution(name).total(shape) for name, shape in self.shapes}
        return max(sum(totals[name] for name in group) for group in self.groups)

    @property
    def _records(self) -> str:
        return "1 record" if self._total == 1 else f"{self._total} records"


def _axis_names(options: UnitOptions) -> str:
    return ", ".join(axis if isinstance(axis, str) else f"axis {axis}" for axis in options.unit)


def _unit_name(options: UnitOptions) -> str:
    if len(options.unit) > 1:
        return f"entry of ({_axis_names(options)})"
    return _axis_names(options) if isinstance(options.unit[0], str) else f"entry of {_axis_names(options)}"


def _origin(options: UnitOptions) -> str:
    dims = [axis for axis in options.unit if isinstance(axis, str)]
    if len(dims) < len(options.unit):
        return "numbered axes" if len(options.unit) > 1 else "a numbered axis"
    return f"dim{'s' if len(dims) > 1 else ''} {' and '.join(map(repr, dims))}"


def _location(name: str, shape: Sequence[int], contribution: Contribution) -> str:
    blocks = contribution.blocks(shape)
    number = "one" if contribution.records == 1 else str(contribution.records)
    ownership = " of its own" if "own" in contribution.axes else ""
    if blocks == math.prod(shape[:-1]) and blocks > 1:
        return f"{number} in each row of {name}"
    if blocks > 1:
        return f"{number} in each of {blocks} parts of {name}{ownership}"
    rows = f"in a row{ownership} of" if ownership else "in"
    return f"{number} {rows} {name}"
