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
from pymc_dirdp.releases.comes_along import Deterministic
from pymc_dirdp.releases.opened import Opened, opened

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
    deterministics : tuple of Deterministic
        Formulas over the tables, of the first release.
    """

    tables: list[dict[str, Seen]]
    seeded: bool
    same_people: bool
    has_own_prior: bool
    deterministics: tuple[Deterministic, ...] = ()


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
        by_chance = one is not other and one.mechanism.output_kind.may_repeat
        if not by_chance and np.array_equal(one.values, other.values):
            raise _twice()
    return Told([{output.name: output} for output in given], seeded=False, same_people=True, has_own_prior=True)


def _of_releases(given: list[Any]) -> Told:
    if any("estimate" in getattr(one, "attrs", ()) and "mechanism" not in one for one in given):
        raise ArgumentError(
            "An estimate of dirdp.fit says nothing of its own error, so no interval follows from it. Pass the release "
            "that was fitted; the shares of the estimate are in its group 'posterior'."
        )
    stored = [checked(release) for release in given]
    if len({one.adjacency for one in stored}) > 1:
        raise ArgumentError(
            "The releases are for different adjacencies: for one the number of records is public and for the other it "
            "is private. Analyse each by itself."
        )
    identities = [one.release.identity for one in stored if one.release is not None]
    if len(set(identities)) < len(identities):
        raise _twice()
    return Told(
        [dict(one.tables) for one in stored],
        seeded=any(one.reproducible for one in stored),
        same_people=all(len(one.groups) == 1 for one in stored),
        has_own_prior=False,
        deterministics=stored[0].release.deterministics if stored[0].release is not None else (),
    )


def checked(release: Any) -> Opened:
    """A release that was opened, or an error if its guarantee does not follow. A seed is no contradiction."""
    stored = opened(release)
    if not stored.curves.satisfies(stored.guarantee):
        raise ReleaseError(
            f"{stored.guarantee} does not follow from the release, so nothing is inferred from it. See dirdp.verify."
        )
    return stored


def _twice() -> ArgumentError:
    return ArgumentError(
        "The same release stands in the list twice. It says what it says once: whoever counts it twice is too sure. "
        "Leave one of them out."
    )
