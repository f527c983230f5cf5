"""What one person adds to a table that likelihoods see in parts or in another order: blocks of rows, carried back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.models.observation import Observation
from pymc_dirdp.privacy.people import Contribution

__all__ = ["carried_back", "overlapping"]

_Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Seen:
    """The rows of a table that a person may feed through one likelihood.

    Each row `rows[i]` belongs to block `blocks[i]` of person `people[i]`, who has `records` records in the block.
    """

    rows: _Numbers
    blocks: _Numbers
    people: _Numbers
    records: int


def overlapping(observed: Observation, others: Sequence[Observation]) -> list[Observation]:
    """The observed variables, itself among them, that feed a row which this one feeds, too."""
    mine = _rows(observed)
    return [other for other in others if other is observed or np.intersect1d(mine, _rows(other)).size]


def carried_back(observations: Sequence[Observation], parts: Sequence[Contribution], *, public: bool) -> Contribution:
    """What a person adds to a table, from what the person adds to what each observed variable sees of it.

    All observed variables feed the same table. A block of rows that a likelihood sees is a set of rows of the table, in
    which the records may lie anywhere. A pattern of the table's axes covers these sets if each of its blocks holds as
    many records as all sets that meet it: then whatever the person can do, the pattern allows. Among all patterns of
    `"any"` and `"each"` the one with the least blocks times squared records is taken, which is what their loss grows
    with; each of them is safe. Rows of its own (`"own"`) stay so where one likelihood feeds the table and an axis of
    the table follows the axis of the people.

    Where the numbers of records are `public`, so is that of each block: noise may add up to 0 in it. A pattern that
    divides a set of rows in which a record may move between them is left out then.

    References
    ----------
    Theory, section 6: the loss of a contribution is a supremum over all that it allows.
    """
    shape = observations[0].table.shape[:-1]
    seen = [_seen(observed, part) for observed, part in zip(observations, parts, strict=True)]
    own = _own_axes(seen[0], shape) if len(seen) == 1 else [False] * len(shape)
    best: tuple[float, Contribution] | None = None
    for pattern in product(*map(_choices, own, shape)):
        if public and any(_divides(pattern, one, shape) for one in seen):
            continue
        records = _largest(seen, pattern, shape)
        blocks = math.prod(length for kind, length in zip(pattern, shape, strict=True) if kind == "each")
        if best is None or blocks * records**2 < best[0]:
            best = blocks * records**2, Contribution(max(1, records), pattern)
    assert best is not None
    return best[1]


def _choices(own: bool, length: int) -> tuple[str, ...]:
    return ("own",) if own else ("any", "each") if length > 1 else ("any",)


def _rows(observed: Observation) -> _Numbers:
    """The numbers of the table's rows that an observed variable feeds."""
    view = observed.likelihood.view
    if view is None:
        return np.arange(observed.table.n_rows)
    rows = view.rows(observed.table.n_categories)
    return rows[rows >= 0]


def _seen(observed: Observation, part: Contribution) -> _Seen:
    shape = observed.table.shape
    lengths = observed.likelihood.shape(shape)[:-1]
    kinds = part.fitted((*lengths, 2)).axes
    view = observed.likelihood.view
    rows = np.arange(math.prod(lengths)) if view is None else view.rows(shape[-1]).ravel()
    entries = np.indices(lengths).reshape(len(lengths), rows.size)
    inside = rows >= 0
    block, person = (_numbered(entries, kinds, kind)[inside] for kind in ("each", "own"))
    return _Seen(rows[inside], block, person, part.records)


def _numbered(entries: _Numbers, kinds: Sequence[str], wanted: str) -> _Numbers:
    """A number for each combination of the entries along the axes of one kind."""
    chosen = entries[[kind == wanted for kind in kinds]]
    if not chosen.size:
        return np.zeros(entries.shape[1], dtype=np.int64)
    return np.asarray(np.unique(chosen, axis=1, return_inverse=True)[1]).ravel()


def _own_axes(seen: _Seen, shape: tuple[int, ...]) -> list[bool]:
    """Along which axes of the table each person has entries of its own, which no other person has."""
    entries = np.unravel_index(seen.rows, shape) if shape else ()
    people = np.unique(seen.people).size
    found = []
    for entry, length in zip(entries, shape, strict=True):
        pairs = np.unique(np.stack([entry, seen.people]), axis=1).shape[1]
        found.append(1 < people == pairs == np.unique(entry).size and length > 1)
    return found


def _divides(pattern: Sequence[str], seen: _Seen, shape: tuple[int, ...]) -> bool:
    """Whether rows in which the same records of a person may lie are in several blocks of the pattern."""
    triples = np.stack([seen.people, seen.blocks, _place(seen.rows, pattern, shape)])
    return bool(np.unique(triples, axis=1).shape[1] > np.unique(triples[:2], axis=1).shape[1])


def _largest(seen: Sequence[_Seen], pattern: Sequence[str], shape: tuple[int, ...]) -> int:
    """The most records of a person in a block of the pattern."""
    most: dict[int, int] = {}
    for one in seen:
        where = _place(one.rows, pattern, shape)
        triples = np.unique(np.stack([where, one.people, one.blocks]), axis=1)
        pairs, many = np.unique(triples[:2], axis=1, return_counts=True)
        here: dict[int, int] = {}
        for place, number in zip(pairs[0].tolist(), many.tolist(), strict=True):
            here[place] = max(here.get(place, 0), number * one.records)
        for place, number in here.items():
            most[place] = most.get(place, 0) + number
    return max(most.values(), default=0)


def _place(rows: _Numbers, pattern: Sequence[str], shape: tuple[int, ...]) -> _Numbers:
    """The number of the pattern's block in which each row lies."""
    place = np.zeros_like(rows)
    entries = np.unravel_index(rows, shape) if shape else ()
    for kind, entry, length in zip(pattern, entries, shape, strict=True):
        place = place * length + entry if kind == "each" else place
    return place
