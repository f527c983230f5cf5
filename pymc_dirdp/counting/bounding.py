"""Contribution bounding: the choice of retained records of each unit."""

from dataclasses import dataclass

from pymc_dirdp.checks import MAX_RECORDS, integer
from pymc_dirdp.errors import ArgumentError, DataError, type_name
from pymc_dirdp.privacy.people import adjacency_by_name


@dataclass(frozen=True)
class Bound:
    """The maximum number of counted records of each unit. It is public.

    Attributes
    ----------
    unit : str
        The column that identifies the units.
    records : int
        The maximum number of retained records of a unit.
    distinct : bool
        Whether equal records of a unit count once. In a sum of tables they count once in each.
    """

    unit: str
    records: int
    distinct: bool = False

    def lost_bound_error(self, name: str) -> DataError:
        """The error for numbers that equal bounded counts of this process, without their bound."""
        return DataError(
            f"{name} has the same numbers as counts of at most {self.records} records of each {self.unit!r}, but is "
            "another array, so each record of a person would be protected by itself. Pass the counts as they were "
            f"returned, or pass contribution={self.records}. If these are other data, pass contribution= or unit=, or "
            "delete the counts."
        )

    def refuse_public_number(self, adjacency: str) -> None:
        """Refuse an adjacency that makes the number of these records public, although it depends on the units."""
        if self.records > 1 and adjacency_by_name(adjacency).records_are_public:
            raise ArgumentError(
                'Pass adjacency="add-remove" (and n_records= for planning), or count with contribution=1, where the '
                f"number of records is the number of units: at most {self.records} records of each {self.unit!r} are "
                "counted, so the number of records depends on who they are, and replace-one would make it public."
            )


def checked_bound(unit: str | None, contribution: int | None, *, distinct: bool) -> Bound | None:
    """The bound that these arguments of `count` request."""
    if unit is None and contribution is None and not distinct:
        return None
    if unit is None or contribution is None:
        raise ArgumentError(
            "Expected unit and contribution together: unit='patient', contribution=3 counts at most 3 records of each "
            "patient."
        )
    if not isinstance(unit, str):
        raise ArgumentError(f"Expected unit to be the name of a column, got {type_name(unit)}.")
    records = integer(1, contribution=contribution)
    if records > MAX_RECORDS:
        raise ArgumentError("Expected contribution to be at most 2**53: no table with larger counts can be released.")
    return Bound(unit, records, bool(distinct))


def bound_for(*, adjacency: str, unit: str | None, contribution: int | None) -> Bound | None:
    """The bound on records of each unit, where the number of counted records may be public.

    Raises
    ------
    ArgumentError
        If the number of records would be public, although it depends on the units.
    """
    bound = checked_bound(unit, contribution, distinct=False)
    if bound is not None:
        bound.refuse_public_number(adjacency)
    return bound
