"""Who is protected, and what two neighbouring data sets are, in sentences. They hold public numbers only."""

import math
from collections.abc import Mapping, Sequence

from pymc_dirdp.models.stated import Stated
from pymc_dirdp.privacy.adjacency import Adjacency
from pymc_dirdp.privacy.contribution import Contribution

__all__ = ["neighbours", "protected", "unit_label"]

# Shapes and contributions are given by the names of the tables.
Shapes = Mapping[str, Sequence[int]]
Contributions = Mapping[str, Contribution]


def unit_label(stated: Stated, *, others: bool = False) -> str:
    """The name of the unit in a report, an attribute and a ledger; `others` if some people are no entries of it."""
    if stated.unit:
        named = ", ".join(axis if isinstance(axis, str) else f"axis {axis}" for axis in stated.unit)
        return f"{named} | record" if others else named
    if stated.contribution is not None and stated.contribution > 1:
        return f"at most {stated.contribution} records"
    return "record"


def protected(
    stated: Stated,
    relation: Adjacency,
    shapes: Shapes,
    contributions: Contributions,
    groups: Sequence[Sequence[str]],
    n_units: int | None,
    *,
    others: bool = False,
) -> str:
    """Who is protected, as a sentence."""
    what = neighbours(stated, relation, shapes, contributions, groups)
    if stated.unit:
        facts = [_axes(stated)]
        if n_units is not None:
            facts.append(f"{n_units} of them")
        facts.append(_holdings(stated, shapes, contributions, groups))
        rest = " In the other groups, whose people are no such entries: every record." if others else ""
        return f"every {_called(stated)} ({', '.join(facts)}). Neighbours: {what}.{rest}"
    if stated.contribution is not None and stated.contribution > 1:
        return f"every person, who holds at most {stated.contribution} records of each table. Neighbours: {what}."
    return (
        "every record: each observation, and each trial where several are counted, is another person. "
        f"Neighbours: {what}."
    )


def neighbours(
    stated: Stated, relation: Adjacency, shapes: Shapes, contributions: Contributions, groups: Sequence[Sequence[str]]
) -> str:
    """What two neighbouring data sets are, as a part of a sentence."""
    public = relation.records_are_public
    if stated.unit:
        total, kept = _total(shapes, contributions, groups), ", and so is how many records each holds"
        many = "the record" if total == 1 else f"all {total} records"
        if stated.max_records_per_person is not None:
            many, kept = "all records", ""
        if public:
            return f"{many} of one {_called(stated)} replaced; how many of them there are is public{kept}"
        return f"{many} of one {_called(stated)} appear or disappear; how many of them there are is private"
    if stated.contribution is not None and stated.contribution > 1:
        m = stated.contribution
        if public:
            return f"all records of one person replaced, at most {m} in each table; the number of records is public"
        return f"all records of one person, at most {m} in each table, appear or disappear; the number is private"
    several = " (in each table that it feeds)" if len(shapes) > 1 else ""
    return f"{relation.statement}{several}"


def _called(stated: Stated) -> str:
    if len(stated.unit) == 1:
        (axis,) = stated.unit
        return axis if isinstance(axis, str) else f"entry of axis {axis}"
    return f"entry of ({unit_label(stated)})"


def _axes(stated: Stated) -> str:
    dims = [axis for axis in stated.unit if isinstance(axis, str)]
    if len(dims) < len(stated.unit):
        return "numbered axes, without a dim" if len(stated.unit) > 1 else "an axis without a dim"
    return f"dim{'s' if len(dims) > 1 else ''} {' and '.join(map(repr, dims))}"


def _total(shapes: Shapes, contributions: Contributions, groups: Sequence[Sequence[str]]) -> int:
    totals = {name: contributions[name].total(shape) for name, shape in shapes.items()}
    return max(sum(totals[name] for name in group) for group in groups)


def _holdings(stated: Stated, shapes: Shapes, contributions: Contributions, groups: Sequence[Sequence[str]]) -> str:
    total = _total(shapes, contributions, groups)
    where = "; ".join(_where(name, shape, contributions[name]) for name, shape in shapes.items())
    records = "1 record" if total == 1 else f"{total} records"
    bound = "at most " if stated.max_records_per_person is not None else ""
    return f"{bound}{records} each: {where}"


def _where(name: str, shape: Sequence[int], contribution: Contribution) -> str:
    blocks = contribution.blocks(shape)
    many = "one" if contribution.records == 1 else str(contribution.records)
    own = " of its own" if "own" in contribution.axes else ""
    if blocks == math.prod(shape[:-1]) and blocks > 1:
        return f"{many} in each row of {name}"
    if blocks > 1:
        return f"{many} in each of {blocks} parts of {name}{own}"
    rows = f"in a row{own} of" if own else "in"
    return f"{many} {rows} {name}"
