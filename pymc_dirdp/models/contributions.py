"""The contribution of one person to each table, from the axes of the model and the views of its likelihoods."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.observations import Observation
from pymc_dirdp.models.privacy_unit import UnitOptions, axis_text, people_axes
from pymc_dirdp.models.questions import Answer, OpenQuestionError
from pymc_dirdp.models.refusals import join_names, refusal
from pymc_dirdp.models.table import Table
from pymc_dirdp.privacy.people import Contribution

DEFAULT_BOUND = 10
"""The contribution bound that errors suggest where the model's own number is private."""


# Errors about observed variables that lack the unit, and about units whose entries are not people.


def missing_unit_error(observed: Observation, group: Sequence[Observation], options: UnitOptions) -> OpenQuestionError:
    """The question about an observed variable that lacks the unit of other variables."""
    names = list(dict.fromkeys(other.name for other in group))
    names_with_unit = {other.name for other in group if people_axes(other, options) is not None}
    with_unit, without_unit = (
        [name for name in names if name in names_with_unit],
        [name for name in names if name not in names_with_unit],
    )
    kind = "a dim" if all(isinstance(axis, str) for axis in options.unit) else "an axis"
    disjoint = (*(options.disjoint or ()), tuple(with_unit), tuple(without_unit))
    return OpenQuestionError(
        f"{options.unit_text} is {kind} of {join_names(with_unit)} but not of {observed.name!r}, so the "
        f"contribution of a person to {observed.name!r} is unknown. Give {observed.name!r} the dim.",
        [Answer({"disjoint": disjoint}, f"if other people feed {join_names(without_unit)}")]
        if options.disjoint is None
        else [],
    )


def refuse_steps(observed: Observation, group: Sequence[Observation], options: UnitOptions) -> None:
    """Refuse a unit whose entries are the steps of a sequence, because each step is in several records."""
    for other in (observed, *group):
        axis = observed.step_axis(other, strict=True)
        if axis is not None and axis in (people_axes(observed, options) or ()):
            axis_name = axis_text(observed.axes[axis])
            raise refusal("steps", observed.name, axis=axis_name, unit_text=options.unit_text)


# The contribution of one person to each table, from the axes of the model: see Theory, section 6.


def _contribution_of(observed: Observation, options: UnitOptions) -> Contribution:
    """The contribution of one person, an entry of the unit's axes, to the view that this variable has of its table.

    A row axis that follows an axis of the unit is `"own"`, one that follows another axis `"each"`, and one whose rows
    are chosen by codes is `"any"`. The person's records in a block are the trials of one observation times the lengths
    of the other axes that are summed.

    Raises
    ------
    UnsupportedModelError
        If the number of records of a person is data, or the shape of the release would reveal who takes part.
    ArgumentError
        If `contribution` is less than the number of records in the shape of the observations.
    """
    people = people_axes(observed, options)
    assert people is not None
    for name, followed in ((parent.name, parent.axes) for parent in observed.parents):
        # If several people share an entry of the codes that choose their rows, its owner is unknown.
        if not set(people) <= set(followed):
            entries = " x ".join(axis_text(observed.axes[axis]) for axis in followed)
            raise refusal("shared codes", observed.name, parent=name, unit_text=options.unit_text, axes=entries)
    axes = tuple("any" if axis is None else "own" if axis in people else "each" for axis in observed.rows)
    if not options.relation.records_are_public and people and observed.shown.issuperset(people):
        raise UnsupportedModelError(
            f"The rows of {observed.table.name!r} are the units of {options.unit_text}, so under add-remove the shape "
            'of the release would show who takes part. Use adjacency="replace-one", where the list of people is public.'
        )
    outside = [axis for axis in range(len(observed.lengths)) if axis not in people]
    if (max_records := options.contribution) is not None:
        n_records = math.prod(observed.lengths[axis] for axis in outside)
        if observed.trials is None and n_records > max_records:
            raise ArgumentError(
                f"contribution={max_records} is too small for {observed.name!r}: by its shape, each entry of "
                f"{options.unit_text} holds more records. Raise it."
            )
        # All of them may lie in one row, so "each" would understate the contribution.
        return Contribution(max_records, tuple("own" if axis == "own" else "any" for axis in axes))
    _refuse_private_trials(observed, people, options)
    return Contribution(max(1, observed.max_records_in_block(people)), axes)


def _refuse_private_trials(observed: Observation, people: tuple[int, ...], options: UnitOptions) -> None:
    if not options.relation.records_are_public:
        # Equal numbers are refused, too. Their equality is data, because another person may hold another number.
        if set(people) & set(observed.numbered):
            raise UnsupportedModelError(
                f"{options.unit_text} under adjacency='add-remove' hides who takes part, but 'n' of {observed.name!r} "
                "has a number for each person. Write a single number if everybody who could take part has as many "
                "records, or pass contribution=m. The number of records is then private, so pass n_records= for "
                "planning."
            )
    elif observed.trials_differ_along(people) and observed.name not in options.public:
        raise OpenQuestionError(
            f"{options.unit_text} under adjacency='replace-one' publishes the number of records of every person, but "
            f"'n' of {observed.name!r} differs between people and is not in public=. Add it if anybody may know it, or "
            "pass contribution=m. The number of records is then private, so pass n_records= for planning.",
            [Answer({"public": (observed.name,)}), Answer({"contribution": DEFAULT_BOUND}, "(or your bound)")],
        )


def contribution_to(table: Table, observations: Sequence[Observation], options: UnitOptions) -> Contribution:
    """The contribution of one person to a table through all these observed variables."""
    contributions = [_contribution_of(observed, options) for observed in observations]
    if any(observed.likelihood.view is not None for observed in observations):
        public = options.n_records_is_public
        return _through_likelihoods(observations, contributions, public=public)
    # If two variables follow different axes of the unit, a person's own rows differ between them, so the records may
    # lie anywhere along that axis.
    axes_by_variable = []
    for observed in observations:
        people = people_axes(observed, options) or ()
        axes_by_variable.append([people.index(axis) if axis in people else None for axis in observed.rows])
    ambiguous = [len(set(axes)) > 1 for axes in zip(*axes_by_variable, strict=True)]
    parts = []
    for part in (contribution.fitted(table.shape) for contribution in contributions):
        kinds = (
            "any" if kind == "own" and is_ambiguous else kind
            for kind, is_ambiguous in zip(part.axes, ambiguous, strict=True)
        )
        parts.append(Contribution(part.records, tuple(kinds)))
    return unite(parts, table.shape, sum)


def contribution_of_record(observations: Sequence[Observation], options: UnitOptions) -> Contribution:
    """The contribution to a table of a person with one record in each of these observed variables, which feed it.

    If `public` names the numbers of trials, the numbers of records of all rows that follow positions are public, too. A
    record that is replaced then stays in its row (`"own"`).
    """
    table = observations[0].table
    public = options.relation.records_are_public and all(observed.name in options.public for observed in observations)
    if public and all(None not in observed.likelihood.rows for observed in observations):
        return Contribution(1, tuple("own" if length > 1 else "any" for length in table.shape[:-1]))
    if len(observations) > 1:
        single = [Contribution() for _ in observations]
        return _through_likelihoods(observations, single, public=options.relation.records_are_public)
    if not public or observations[0].likelihood.view is not None:
        return Contribution()
    return Contribution(1, tuple("any" if axis is None else "own" for axis in observations[0].rows))


def unite(
    parts: Sequence[Contribution], shape: tuple[int, ...], combine: Callable[[Iterable[int]], int]
) -> Contribution:
    """The contribution of a person who makes all of these to one table (`sum`), or the largest of them (`max`).

    Overlapping blocks are united. A row axis along which the patterns differ becomes `"any"`. Records that lay in each
    entry of an axis (`"each"`) may then lie anywhere, and are multiplied by the length of the axis.
    """
    parts = [part.fitted(shape) for part in parts]
    patterns = [{part.axes[axis] for part in parts} for axis in range(len(shape) - 1)]
    axes = tuple(next(iter(pattern)) if len(pattern) == 1 else "any" for pattern in patterns)
    records = []
    for part in parts:
        merged = [axis for axis, (old, new) in enumerate(zip(part.axes, axes, strict=True)) if old == "each" != new]
        records.append(part.records * math.prod(shape[axis] for axis in merged))
    return Contribution(combine(records), axes)


# Contributions to a table that likelihoods see in parts or in another order: blocks of rows, mapped to the table.


@dataclass(frozen=True, eq=False)
class _FedRows:
    """The rows of a table that a person may feed through one likelihood.

    Each row `rows[i]` belongs to block `blocks[i]` of person `people[i]`, who has `records` records in the block.
    """

    rows: Integers
    blocks: Integers
    people: Integers
    records: int


def overlapping(observed: Observation, others: Sequence[Observation]) -> list[Observation]:
    """The observed variables, including this one, that feed a row which this one feeds."""
    rows = [variable.likelihood.table_rows(variable.table.shape) for variable in (observed, *others)]
    own_rows, *other_rows = [numbers[numbers >= 0] for numbers in rows]
    pairs = zip(others, other_rows, strict=True)
    return [other for other, row_numbers in pairs if other is observed or np.intersect1d(own_rows, row_numbers).size]


def _through_likelihoods(
    observations: Sequence[Observation], parts: Sequence[Contribution], *, public: bool
) -> Contribution:
    """The contribution of a person to a table, from the contributions to the view of each observed variable.

    All observed variables feed the same table. A block of rows that a likelihood sees is a set of rows of the table,
    and the records may lie anywhere in it. A pattern of the table's axes covers these sets if each of its blocks holds
    as many records as all sets that meet it, so that the pattern allows every change that the person can make. All
    patterns of `"any"` and `"each"` are safe. The one with the smallest number of blocks times squared records is
    taken, because the loss grows with that. Rows of its own (`"own"`) remain where one likelihood feeds the table and
    an axis of the table follows the axis of the people.

    If the numbers of records are `public`, so is the number of each block, in which noise may add up to 0. Patterns
    that split a set of rows between which a record may move are then excluded.

    References
    ----------
    Theory, section 6: the loss of a contribution is a supremum over all changes that it allows.
    """
    shape = observations[0].table.shape[:-1]
    fed_rows = [_rows_fed_through(observed, part) for observed, part in zip(observations, parts, strict=True)]
    personal = _personal_axes(fed_rows[0], shape) if len(fed_rows) == 1 else [False] * len(shape)
    best: tuple[float, Contribution] | None = None
    choices = [
        ("own",) if is_personal else ("any", "each") if n > 1 else ("any",)
        for is_personal, n in zip(personal, shape, strict=True)
    ]
    for pattern in product(*choices):
        if public and any(_splits_fed_rows(pattern, fed, shape) for fed in fed_rows):
            continue
        blocks = math.prod(length for kind, length in zip(pattern, shape, strict=True) if kind == "each")
        records = _max_records_in_block(fed_rows, pattern, shape, blocks)
        if best is None or blocks * records**2 < best[0]:
            best = blocks * records**2, Contribution(max(1, records), pattern)
    assert best is not None
    return best[1]


def _rows_fed_through(observed: Observation, part: Contribution) -> _FedRows:
    shape = observed.table.shape
    lengths = observed.likelihood.shape(shape)[:-1]
    kinds = part.fitted((*lengths, 2)).axes
    rows = observed.likelihood.table_rows(shape).ravel()
    entries = np.indices(lengths).reshape(len(lengths), rows.size)
    inside = rows >= 0
    block, person = (_combination_numbers(entries, kinds, kind)[inside] for kind in ("each", "own"))
    return _FedRows(rows[inside], block, person, part.records)


def _combination_numbers(entries: Integers, kinds: Sequence[str], axis_kind: str) -> Integers:
    """A number for each combination of the entries along the axes of one kind."""
    chosen = entries[[kind == axis_kind for kind in kinds]]
    if not chosen.size:
        return np.zeros(entries.shape[1], dtype=np.int64)
    return np.asarray(np.unique(chosen, axis=1, return_inverse=True)[1]).ravel()


def _personal_axes(fed: _FedRows, shape: tuple[int, ...]) -> list[bool]:
    """For each axis of the table, whether every person has an entry that no other person has."""
    entries = np.unravel_index(fed.rows, shape) if shape else ()
    people = np.unique(fed.people).size
    personal = []
    for entry, length in zip(entries, shape, strict=True):
        pairs = np.unique(np.stack([entry, fed.people]), axis=1).shape[1]
        personal.append(1 < people == pairs == np.unique(entry).size and length > 1)
    return personal


def _splits_fed_rows(pattern: Sequence[str], fed: _FedRows, shape: tuple[int, ...]) -> bool:
    """Whether the pattern splits a set of rows in which the same records of a person may lie."""
    triples = np.stack([fed.people, fed.blocks, _block_numbers(fed.rows, pattern, shape)])
    return bool(np.unique(triples, axis=1).shape[1] > np.unique(triples[:2], axis=1).shape[1])


def _max_records_in_block(
    fed_rows: Sequence[_FedRows], pattern: Sequence[str], shape: tuple[int, ...], blocks: int
) -> int:
    """The maximum number of records of a person in a block of the pattern."""
    total = np.zeros(blocks, dtype=object)  # Python's integers do not wrap around.
    for fed in fed_rows:
        block_numbers = _block_numbers(fed.rows, pattern, shape)
        triples = np.unique(np.stack([block_numbers, fed.people, fed.blocks]), axis=1)
        pairs, n_blocks = np.unique(triples[:2], axis=1, return_counts=True)
        records = np.zeros_like(total)
        np.maximum.at(records, pairs[0], n_blocks.astype(object) * fed.records)
        total += records
    return int(total.max(initial=0))


def _block_numbers(rows: Integers, pattern: Sequence[str], shape: tuple[int, ...]) -> Integers:
    """The number of the pattern's block in which each row lies."""
    place = np.zeros_like(rows)
    entries = np.unravel_index(rows, shape) if shape else ()
    for kind, entry, length in zip(pattern, entries, shape, strict=True):
        place = place * length + entry if kind == "each" else place
    return place
