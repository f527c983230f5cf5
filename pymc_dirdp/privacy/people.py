"""Neighbouring relations, contribution bounds, and their descriptions."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.checks import MAX_RECORDS, integer, one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.numerics.roots import ceil_to_digits
from pymc_dirdp.signatures import user_facing

# Neighbouring relations and their sensitivities.


@dataclass(frozen=True, kw_only=True)
class Adjacency:
    """A neighbouring relation on tables of counts.

    Attributes
    ----------
    name : str
        The name of the relation.
    statement : str
        The definition of two neighbouring data sets, in words.
    records_are_public : bool
        Whether the total number of records may be used and published.
    delta_2_squared : float
        Largest squared l2 distance of the counts of two neighbours.
    delta_1, delta_inf : float
        Largest l1 and l-infinity distances.

    References
    ----------
    Theory, section 1; P1 section 3.1; P2 Theorem 1.
    """

    name: AdjacencyName
    statement: str
    records_are_public: bool
    delta_2_squared: float
    delta_1: float
    delta_inf: float

    def refuse_private_records(self, instead: str) -> None:
        """Refuse zero-sum noise if the number of records is private."""
        if not self.records_are_public:
            raise ArgumentError(
                f"Under adjacency={self.name!r} the number of records is private, and zero-sum noise would "
                f"publish it. Use {instead}, or adjacency='replace-one'."
            )


ADJACENCIES: dict[str, Adjacency] = {
    relation.name: relation
    for relation in (
        Adjacency(
            name="replace-one",
            statement="one record moves from one cell to another; the number of records is public",
            records_are_public=True,
            delta_2_squared=2.0,
            delta_1=2.0,
            delta_inf=1.0,
        ),
        Adjacency(
            name="add-remove",
            statement="one record appears or disappears; the number of records is private",
            records_are_public=False,
            delta_2_squared=1.0,
            delta_1=1.0,
            delta_inf=1.0,
        ),
    )
}


def adjacency_by_name(adjacency: str) -> Adjacency:
    """The relation of this name, or an error that suggests the nearest one."""
    return ADJACENCIES[one_of(ADJACENCIES, adjacency=adjacency)]


# Descriptions of the unit of privacy, shared by reports, statements, verifications and ledgers.


def who(label: str) -> str:
    """The name of the unit of privacy of a plan or a ledger in sentences, from its label.

    Examples
    --------
    >>> who("record"), who("at most 3 records"), who("patient_id"), who("hospital, person")
    ('person', 'person', 'patient_id', 'unit (hospital, person)')
    """
    if label == "record" or label.startswith("at most "):
        return "person"
    return label if label.isidentifier() else f"unit ({label})"


def protected_by(label: str) -> str:
    """Who is protected, in a few words.

    Examples
    --------
    >>> protected_by("record")
    'every person, who holds at most 1 record of each table'
    >>> protected_by("patient")
    'every patient'
    """
    bound = "at most 1 record" if label == "record" else label if label.startswith("at most ") else None
    return f"every {who(label)}" + ("" if bound is None else f", who holds {bound} of each table")


def secret_of(label: str, relation: Adjacency) -> str:
    """The subject of the odds. Under add-remove two answers of one person are not neighbours."""
    records = f"the records of one {who(label)}"
    return records if relation.records_are_public else f"whether {records} are in the data"


def number_of_records(relation: Adjacency) -> str:
    """Whether the number of records is public, in words."""
    return f"the number of records is {'public' if relation.records_are_public else 'private'}"


def bounded_by(label: str, records: int) -> str:
    """The assumption on the number of records of one person in a table."""
    bound = f"at most {records} record{'s' * (records > 1)}"
    if label == "record" or label.startswith("at most "):
        return f"one {who(label)} holds {bound} of a table"
    # With a column of units the library counts no more.
    return f"{bound} of one {who(label)} count{'s' * (records == 1)} in a table"


def disjoint_groups(label: str, groups: Iterable[Sequence[str]]) -> str:
    """The assumption that no person has records in two of the groups of tables."""
    return f"no {who(label)} feeds two of {' and '.join(f'({", ".join(group)})' for group in groups)}"


def filled_cells(min_count: float) -> str:
    """The assumption on the number of records in each cell."""
    return f"every cell holds at least {ceil_to_digits(min_count):g} records"


NOT_PROTECTED = (
    "what is true of the people as a whole, and what it suggests about each of them",
    "what is published elsewhere about the same people: the losses add up",
)
"""What no guarantee covers."""
TO_CHECK = "pymc_dirdp.verify(path), or dirdp verify FILE on a command line, without the data"
"""How anyone checks the file of a release."""


# Contribution bounds: the number of records of one person in a table, and their possible cells.


# The possible positions of one person's records along a row axis of a table.
AXES = ("any", "each", "own")


@user_facing
@final
@dataclass(frozen=True)
class Contribution:
    """The public bound on the records of one person in one table.

    A table has row axes and, last, its categories. Along the categories a person's records may always lie anywhere.

    Parameters
    ----------
    records : int, default 1
        The maximum number of the person's records in every block of cells, where they may lie anywhere.
    axes : tuple of {"any", "each", "own"}, default ()
        For every row axis of the table:

        * `"any"`: the records may lie anywhere along it, so its cells belong to one block;
        * `"each"`: every entry along it holds `records` of the person's records, so each is a block of its own;
        * `"own"`: one entry along it belongs to this person, publicly, and no other entry holds any of the records.

        Empty for `"any"` along all axes.

    Notes
    -----
    Two data sets are neighbours if they differ in the records of one person. All of that person's records may change
    together, each within its block.

    References
    ----------
    Theory, section 6.

    Examples
    --------
    A survey of 10 items (the rows), with one answer of each person to each item:

    >>> Contribution(1, ("each",)).total((10, 3))
    10
    """

    records: int = 1
    axes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", integer(1, records=self.records))
        if self.records > MAX_RECORDS:
            raise ArgumentError("Expected records to be at most 2**53: no table with larger counts can be released.")
        object.__setattr__(self, "axes", tuple(one_of(AXES, axes=axis) for axis in self.axes))

    @classmethod
    def of(cls, value: "int | Contribution") -> "Contribution":
        """A contribution; an integer is a number of records anywhere in the table."""
        return value if isinstance(value, Contribution) else cls(integer(1, contribution=value))

    def fitted(self, shape: Sequence[int]) -> Self:
        """Return this contribution with one entry in `axes` for each row axis of a table of this shape."""
        n_axes = len(shape) - 1
        if self.axes and len(self.axes) != n_axes:
            raise ArgumentError(
                f"Expected a contribution with one of {', '.join(map(repr, AXES))} for each of {n_axes} row axes, got "
                f"{len(self.axes)}."
            )
        return type(self)(self.records, self.axes or ("any",) * n_axes)

    @property
    def fixed_axes(self) -> tuple[int, ...]:
        """The row axes along which a person's records do not move.

        Neighbours under replace-one have the same number of records in every entry of these axes. So where the numbers
        of records of people are public, that of each entry is public, too.
        """
        return tuple(axis for axis, kind in enumerate(self.axes) if kind != "any")

    def rows_by_entry(self, shape: Sequence[int]) -> NDArray[np.intp]:
        """The numbers of the rows in each entry of the `fixed_axes` of a table of this shape: entries x rows."""
        rows, fixed = np.arange(math.prod(shape[:-1])).reshape(shape[:-1]), self.fitted(shape).fixed_axes
        entries = math.prod(shape[axis] for axis in fixed)
        return np.moveaxis(rows, fixed, range(len(fixed))).reshape(entries, -1)

    def by_person(self, table: NDArray[Any]) -> NDArray[Any]:
        """The cells of a table by the entries of axes "own", of which a person has one, and by a person's blocks."""
        axes = self.fitted(table.shape).axes
        own_axes, each_axes = ([i for i, axis in enumerate(axes) if axis == kind] for kind in ("own", "each"))
        rest = [i for i in range(table.ndim) if i not in {*own_axes, *each_axes}]
        shape = [math.prod(table.shape[axis] for axis in group) for group in (own_axes, each_axes, rest)]
        return table.transpose([*own_axes, *each_axes, *rest]).reshape(shape)

    def blocks(self, shape: Sequence[int]) -> int:
        """The number of blocks of cells in which a person holds records, in a table of this shape."""
        axes = self.fitted(shape).axes
        return math.prod(length for axis, length in zip(axes, shape[:-1], strict=True) if axis == "each")

    def total(self, shape: Sequence[int]) -> int:
        """The maximum number of records of a person in a table of this shape."""
        return self.records * self.blocks(shape)

    def in_marginal(self, shape: Sequence[int], marginal_axes: Sequence[int]) -> tuple[int, int]:
        """The number of records of a person in each block of a marginal, and the number of these blocks.

        If a marginal sums over an axis `"each"`, the records of its entries are in one block.

        Parameters
        ----------
        shape : sequence of int
            The shape of the table.
        marginal_axes : sequence of int
            The axes of the marginal.

        Examples
        --------
        >>> survey = Contribution(1, ("each",))
        >>> survey.in_marginal((10, 3), [1]), survey.in_marginal((10, 3), [0, 1])
        ((10, 1), (1, 10))
        """
        lengths = {axis: shape[axis] for axis, kind in enumerate(self.fitted(shape).axes) if kind == "each"}
        blocks = math.prod(length for axis, length in lengths.items() if axis in marginal_axes)
        return self.records * math.prod(lengths.values()) // blocks, blocks

    def fixes_marginal(self, marginal_axes: Sequence[int], adjacency: str) -> bool:
        """Whether a marginal of these axes of a table is the same for all neighbours, so that it has no privacy loss.

        Under replace-one the number of records in each entry of the `fixed_axes` is fixed.
        """
        return adjacency_by_name(adjacency).records_are_public and set(marginal_axes) <= set(self.fixed_axes)

    def to_json(self) -> str:
        """Write this contribution as a text."""
        return json.dumps({"records": self.records, "axes": list(self.axes)})
