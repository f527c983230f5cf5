"""From releases, or outputs of mechanisms, to the distributions of their tables, and on what these rest, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput, ObservedTable, number_of, pooled, prior_of
from pymc_dirdp.inference.tables import Posteriors, class_table, rows_are_divided
from pymc_dirdp.mechanisms.outputs import Draws
from pymc_dirdp.releases.opened import TEXT_GROUP, LoadedRelease, Published, open_release
from pymc_dirdp.releases.wording import totals_in_words

type PerTable[T] = T | Mapping[str, T] | None


type Source = Published | MechanismOutput
type Origin = LoadedRelease | MechanismOutput
"""What hands over the outputs of tables: a release that was opened, or a mechanism alone."""


def origins_of(source: Source | Sequence[Source]) -> list[Origin]:
    """One or several releases, or outputs of mechanisms, which may be read together.

    Raises
    ------
    ReleaseError
        If one is no release, is damaged, or contradicts itself.
    ArgumentError
        If they cannot be read together.
    """
    sources = list(source) if isinstance(source, list | tuple) else [source]
    if not sources:
        raise ArgumentError("Expected at least one release to infer from, got an empty list.")
    outputs = [output for one in sources if (output := MechanismOutput.of(one)) is not None]
    if outputs and len(outputs) < len(sources):
        raise ArgumentError("Expected releases, or outputs of mechanisms, and not both in one list.")
    releases = [] if outputs else [_checked_source(one) for one in sources]
    if len({one.plan.adjacency for one in releases}) > 1:
        raise ArgumentError(
            "The releases are for different adjacencies: for one the number of records is public and for the other it "
            "is private. Analyse each by itself."
        )
    identities = [one.release.identity for one in releases if one.release is not None]
    # Two noisy tables of integers may be the same by chance.
    twice = [
        one is other or (one.mechanism.output_kind is Draws and np.array_equal(one.values, other.values))
        for one, other in combinations(outputs, 2)
    ]
    if len(set(identities)) < len(identities) or any(twice):
        raise ArgumentError(
            "Leave one of them out: the same release is in the list twice, which would make intervals too narrow."
        )
    origins: list[Origin] = [*outputs, *releases]
    names = set(origins[0].observed_tables)
    for origin in origins:
        if (others := set(origin.observed_tables)) != names:
            raise ArgumentError(
                f"One release has the tables {', '.join(sorted(names))} and another {', '.join(sorted(others))}, so "
                "they are not read together. Analyse each by itself."
            )
    return origins


def _checked_source(source: Any) -> LoadedRelease:
    if "estimate" in getattr(source, "attrs", ()) and TEXT_GROUP not in getattr(source, "children", ()):
        raise ArgumentError(
            "Pass the release that was fitted: an estimate of dirdp.fit does not hold its own error, so no interval "
            "can be computed from it. Its shares are in its group 'posterior'."
        )
    return checked(source)


def checked(release: Any) -> LoadedRelease:
    """A release that was opened, or an error if its guarantee does not follow. A seed is no contradiction."""
    stored = open_release(release)
    if not stored.curves.satisfies(stored.plan.guarantee):
        raise ReleaseError(
            f"{stored.plan.guarantee} does not follow from the release, so nothing is inferred from it. See "
            "dirdp.verify."
        )
    return stored


@final
@dataclass(frozen=True, eq=False)
class Inferences:
    """What one or several releases say of their tables.

    Attributes
    ----------
    tables : dict of str to ObservedTable
        The output of each.
    beliefs : dict of str to Beliefs
        What is taken for granted of each.
    distributions : Posteriors
        Of all tables.
    classes : str or None
        The table of classes, if all tables are taken together.
    origins : list of LoadedRelease or MechanismOutput
        The releases, or the outputs of mechanisms.
    """

    tables: dict[str, ObservedTable]
    beliefs: dict[str, Beliefs]
    distributions: Posteriors
    classes: str | None
    origins: list[Origin]

    def prior(self, name: str) -> Array:
        """The prior of the shares of a table."""
        return prior_of(self.tables[name], self.beliefs[name].prior)

    @property
    def consistency(self) -> str:
        """What the tables know of each other."""
        if self.classes is not None:
            return f"jointly: the rows of every other table add up to the counts of {self.classes}"
        if len(self.tables) == 1:
            return "one table"
        return "table by table: what other tables say of the same records is not used"

    def conditions(self, name: str) -> str:
        """What the inference about a table rests on, in a sentence."""
        seen, beliefs = self.tables[name], self.beliefs[name]
        if seen.measurements:
            known = "an unknown number of records" if seen.n_records is None else f"{seen.n_records} records"
            return (
                f"{known}, a normal sample, normal noise, and effects with learned scales in place of the model's "
                "prior, with all marginals of its variables"
            )
        prior = "the model's prior" if beliefs.prior is None else "a prior of your own"
        parts = [f"{prior} of the shares"]
        if seen.n_records is not None:
            known = f", {totals_in_words([total for _, total in seen.blocks])}" if len(seen.blocks) > 1 else ""
            parts.append(f"{seen.n_records} records{known}, which is public")
        elif isinstance(beliefs.n_prior, int):
            parts.append(f"0 to {beliefs.n_prior} records, with a uniform prior")
        elif isinstance(beliefs.n_prior, range):
            least, most = beliefs.n_prior[0], beliefs.n_prior[-1]
            parts.append(f"{least} to {most} records, with a uniform prior")
        else:
            parts.append("your prior of the number of records")
        if seen.n_records is None and seen.joint_rows is not None and len(seen.joint_rows.blocks) > 1:
            parts[-1] += " in each row"
        if self.classes not in (None, name):
            parts.append(f"as many records in a row as {self.classes} has of that class")
        elif rows_are_divided(seen) and seen.joint_rows is not None:
            parts.append("a division of the records among rows by the sums of their priors")
        elif rows_are_divided(seen):
            flat = "a uniform prior over divisions of the records among rows"
            parts.append(flat if beliefs.row_prior is None else "your prior of the division among rows")
        if seen.least:
            parts.append(f"at least {seen.least} records in every cell, as was guaranteed")
        if len(seen.observed) > 1:
            parts.append(f"{len(seen.observed)} releases of the same records")
        return "; ".join(parts)


def inferences(
    source: Source | Sequence[Source],
    prior: PerTable[ArrayLike],
    n_prior: PerTable[int | ArrayLike],
    row_prior: PerTable[ArrayLike],
    same_records: bool,
) -> Inferences:
    """The distributions of all tables of a release, or of several releases of the same records.

    Raises
    ------
    ReleaseError
        If one is no release, is damaged, or contradicts itself.
    ArgumentError
        If a prior does not fit, or the releases cannot be read together.
    """
    origins = origins_of(source)
    (origin, *others), said = origins, (prior, n_prior, row_prior)
    if (
        others
        or not isinstance(origin, LoadedRelease)
        or not all(isinstance(own, Mapping | None) and not own for own in said)
    ):
        return _inferences(origins, prior, n_prior, row_prior, same_records)
    # Without beliefs of an analyst's own they follow from the release, and its rows are summed once.
    return origin.once(
        ("inferences", same_records), lambda: _inferences(origins, prior, n_prior, row_prior, same_records)
    )


def _inferences(
    origins: list[Origin],
    prior: PerTable[ArrayLike],
    n_prior: PerTable[int | ArrayLike],
    row_prior: PerTable[ArrayLike],
    same_records: bool,
) -> Inferences:
    names = tuple(origins[0].observed_tables)
    priors, n_priors, row_priors = (
        _by_table(given, names, called)
        for given, called in ((prior, "prior"), (n_prior, "n_prior"), (row_prior, "row_prior"))
    )
    tables = {
        name: pooled([origin.observed_tables[name] for origin in origins], own_prior=priors[name] is not None)
        for name in names
    }
    releases = [origin for origin in origins if isinstance(origin, LoadedRelease)]
    if not releases:
        # The prior that stands beside the output of a mechanism is the analyst's own.
        priors = {name: tables[name].prior if priors[name] is None else priors[name] for name in names}
    beliefs = {name: Beliefs(prior=priors[name], n_prior=n_priors[name], row_prior=row_priors[name]) for name in names}
    same_people = all(len(release.plan.groups) == 1 for release in releases)
    classes = class_table(tables) if same_records and same_people else None
    if classes is not None:
        beliefs = _of_the_same_records(beliefs, classes, one_number=not isinstance(n_prior, Mapping))
    # All tables hold the records of the classes, so their number is what the table of the classes tells.
    beliefs = {name: _with_number(belief, tables[classes or name]) for name, belief in beliefs.items()}
    return Inferences(tables, beliefs, Posteriors(tables, beliefs, classes), classes, origins)


def _of_the_same_records(beliefs: dict[str, Beliefs], classes: str, *, one_number: bool) -> dict[str, Beliefs]:
    """Beliefs about tables that are read together: all hold the same records, whose classes are their rows."""
    for name, belief in beliefs.items():
        if belief.row_prior is not None:
            raise ArgumentError(
                f"The rows of the other tables are the classes of {classes!r}, so the prior of {classes!r} is that of "
                "the division among rows. Leave row_prior out, or pass same_records=False."
            )
        if name != classes and belief.n_prior is not None and not one_number:
            raise ArgumentError(
                f"All tables hold the records of {classes!r}, so n_prior is for that table alone. Leave {name!r} "
                "out of it, or pass same_records=False."
            )
    return {name: replace(belief, n_prior=beliefs[classes].n_prior) for name, belief in beliefs.items()}


def _with_number(beliefs: Beliefs, seen: ObservedTable) -> Beliefs:
    """The beliefs about a table, by default with the prior of its private number that the release's own draws have."""
    possible = seen.possible_records
    if beliefs.n_prior is None:
        return replace(beliefs, n_prior=possible)
    if possible is not None and number_of(seen, beliefs.n_prior)[0] < possible[0]:
        raise ArgumentError(
            f"The noisy counts of {seen.name!r} are nearly impossible for fewer than {possible[0]} records. Pass an "
            "n_prior that reaches further."
        )
    return beliefs


def _by_table(given: Any, names: tuple[str, ...], called: str) -> dict[str, Any]:
    """One value for each table: of a mapping, or the same for all."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, given)
    if unknown := [name for name in given if name not in names]:
        raise ArgumentError(f"{called} names {unknown[0]!r}, and the release has the tables {', '.join(names)}.")
    return {name: given.get(name) for name in names}
