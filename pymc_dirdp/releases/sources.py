"""What may be concluded from: a release, the output of a mechanism alone, or several of them over the same records."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
import xarray as xr

from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.mechanism_output import MechanismOutput
from pymc_dirdp.inference.seen import Seen
from pymc_dirdp.releases.verification import verified
from pymc_dirdp.stored.outputs import Output, outputs
from pymc_dirdp.stored.release import Stored, read

__all__ = ["Source", "Told", "checked", "told"]

type Source = xr.DataTree | MechanismOutput


@final
@dataclass(frozen=True, eq=False)
class Told:
    """What one or several releases put out.

    Attributes
    ----------
    tables : list of dict of str to Seen
        For each release its tables, all of the same names.
    seeded : bool
        Whether any says that a seed was used.
    same_people : bool
        Whether the records of all tables of a release may be those of the same people.
    has_own_prior : bool
        Whether the prior of the tables is that of whoever concludes, and no model's.
    """

    tables: list[dict[str, Seen]]
    seeded: bool
    same_people: bool
    has_own_prior: bool


def told(source: Source | Sequence[Source]) -> Told:
    """The tables of one or several releases, checked.

    Raises
    ------
    ReleaseError
        If one is no release, is damaged, or contradicts itself.
    ArgumentError
        If they cannot be read together.
    """
    sources = list(source) if isinstance(source, list | tuple) else [source]
    if not sources:
        raise ArgumentError("Expected at least one release to conclude from, got an empty list.")
    alone = [output for one in sources if (output := MechanismOutput.of(one)) is not None]
    if alone and len(alone) < len(sources):
        raise ArgumentError("Expected releases, or outputs of mechanisms, and not both in one list.")
    found = _of_outputs(alone) if alone else _of_releases(sources)
    names = set(found.tables[0])
    for other in found.tables:
        if set(other) != names:
            raise ArgumentError(
                f"One release has the tables {', '.join(sorted(names))} and another {', '.join(sorted(other))}, so "
                "they are not read together. Analyse each by itself."
            )
    return found


def _of_outputs(given: list[MechanismOutput]) -> Told:
    for one, other in combinations(given, 2):
        # Two noisy tables of whole numbers may be the same by chance.
        by_chance = one is not other and one.mechanism.covers_all_draws
        if not by_chance and np.array_equal(one.values, other.values):
            raise _twice()
    return Told([{output.name: output} for output in given], seeded=False, same_people=True, has_own_prior=True)


def _of_releases(given: list[Any]) -> Told:
    stored = [checked(release) for release in given]
    if len({one.adjacency for one in stored}) > 1:
        raise ArgumentError(
            "The releases are for different adjacencies: for one the number of records is public and for the other it "
            "is private. Analyse each by itself."
        )
    found = [outputs(one, release) for one, release in zip(stored, given, strict=True)]
    for one, other in combinations(found, 2):
        if set(one) == set(other) and all(_same(one[name], other[name]) for name in one):
            raise _twice()
    return Told(
        [dict(tables) for tables in found],
        seeded=any(one.reproducible for one in stored),
        same_people=all(len(one.groups) == 1 for one in stored),
        has_own_prior=False,
    )


def checked(release: Any) -> Stored:
    """Its facts, or an error if they contradict each other. That it was drawn with a seed is no contradiction."""
    stored = read(release)
    wrong = [check for check in verified(stored, release).checks if not check.passed and check.name != "randomness"]
    if wrong:
        raise ReleaseError(
            f"The release contradicts itself, so nothing is concluded from it. {wrong[0].sentence} See dirdp.verify."
        )
    return stored


def _same(one: Output, other: Output) -> bool:
    """Whether two releases put out the same of a table: noisy counts may agree by chance, their draws do not."""
    return np.array_equal(one.published, other.published) and np.array_equal(one.drawn.values, other.drawn.values)


def _twice() -> ArgumentError:
    return ArgumentError(
        "The same release stands in the list twice. It says what it says once: whoever counts it twice is too sure. "
        "Leave one of them out."
    )
