"""The posterior distributions of the tables of releases or mechanism outputs, with their assumptions in words."""

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
from pymc_dirdp.releases.wording import totals_text

type PerTable[T] = T | Mapping[str, T] | None


type Source = Published | MechanismOutput
type Origin = LoadedRelease | MechanismOutput
"""A source of the outputs of tables: a loaded release, or the output of a mechanism."""


def origins_of(source: Source | Sequence[Source]) -> list[Origin]:
    """The releases or mechanism outputs of a source, checked for joint inference.

    Raises
    ------
    ReleaseError
        If a source is not a release, is damaged, or is inconsistent.
    ArgumentError
        If the sources cannot be analysed jointly.
    """
    sources = list(source) if isinstance(source, list | tuple) else [source]
    if not sources:
        raise ArgumentError("Expected at least one release to infer from, got an empty list.")
    outputs = [output for item in sources if (output := MechanismOutput.of(item)) is not None]
    if outputs and len(outputs) < len(sources):
        raise ArgumentError("Expected a list of releases or a list of mechanism outputs, got both kinds in one list.")
    releases = [] if outputs else [_open_source(item) for item in sources]
    if len({release.plan.adjacency for release in releases}) > 1:
        raise ArgumentError(
            "The releases have different adjacencies: the number of records is public in one and private in another. "
            "Analyse each release separately."
        )
    identities = [loaded.release.identity for loaded in releases if loaded.release is not None]
    # Two noisy tables of integers may be equal by chance.
    duplicates = [
        first is second or (first.mechanism.output_kind is Draws and np.array_equal(first.values, second.values))
        for first, second in combinations(outputs, 2)
    ]
    if len(set(identities)) < len(identities) or any(duplicates):
        raise ArgumentError(
            "The same release is in the list twice, which would make intervals too narrow. Leave one of them out."
        )
    origins: list[Origin] = [*outputs, *releases]
    names = set(origins[0].observed_tables)
    for origin in origins:
        if (others := set(origin.observed_tables)) != names:
            raise ArgumentError(
                f"One release has the tables {', '.join(sorted(names))} and another {', '.join(sorted(others))}, so "
                "they cannot be analysed jointly. Analyse each release separately."
            )
    return origins


def _open_source(source: Any) -> LoadedRelease:
    if "estimate" in getattr(source, "attrs", ()) and TEXT_GROUP not in getattr(source, "children", ()):
        raise ArgumentError(
            "Pass the release that was fitted: an estimate of dirdp.fit does not hold its own error, so no interval "
            "can be computed from it. Its shares are in its group 'posterior'."
        )
    return open_verified(source)


def open_verified(release: Any) -> LoadedRelease:
    """Open a release and raise an error if its guarantee does not follow. A seeded release is accepted."""
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
    """The posterior distributions of the tables of one or several releases.

    Attributes
    ----------
    tables : dict of str to ObservedTable
        The published output of each table.
    beliefs : dict of str to Beliefs
        The analyst's priors of each table.
    distributions : Posteriors
        The distributions of all tables.
    classes : str or None
        The table of classes, if all tables are analysed jointly.
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
        """Whether tables share information, in words."""
        if self.classes is not None:
            return f"jointly: the rows of every other table add up to the counts of {self.classes}"
        if len(self.tables) == 1:
            return "one table"
        return "table by table: what other tables say of the same records is not used"

    def conditions(self, name: str) -> str:
        """The assumptions of the inference about a table, in a sentence."""
        output, beliefs = self.tables[name], self.beliefs[name]
        if output.measurements:
            known = "an unknown number of records" if output.n_records is None else f"{output.n_records} records"
            return (
                f"{known}, a normal sample, normal noise, and effects with learned scales in place of the model's "
                "prior, with all marginals of its variables"
            )
        prior = "the model's prior" if beliefs.prior is None else "a prior of your own"
        parts = [f"{prior} of the shares"]
        if output.n_records is not None:
            known = f", {totals_text([total for _, total in output.blocks])}" if len(output.blocks) > 1 else ""
            parts.append(f"{output.n_records} records{known}, which is public")
        elif isinstance(beliefs.n_prior, int):
            parts.append(f"0 to {beliefs.n_prior} records, with a uniform prior")
        elif isinstance(beliefs.n_prior, range):
            least, most = beliefs.n_prior[0], beliefs.n_prior[-1]
            parts.append(f"{least} to {most} records, with a uniform prior")
        else:
            parts.append("your prior of the number of records")
        if output.n_records is None and output.joint_rows is not None and len(output.joint_rows.blocks) > 1:
            parts[-1] += " in each row"
        if self.classes not in (None, name):
            parts.append(f"as many records in a row as {self.classes} has of that class")
        elif rows_are_divided(output) and output.joint_rows is not None:
            parts.append("a division of the records among rows by the sums of their priors")
        elif rows_are_divided(output):
            flat = "a uniform prior over divisions of the records among rows"
            parts.append(flat if beliefs.row_prior is None else "your prior of the division among rows")
        if output.least:
            parts.append(f"at least {output.least} records in every cell, as was guaranteed")
        if len(output.observed) > 1:
            parts.append(f"{len(output.observed)} releases of the same records")
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
        If a source is not a release, is damaged, or is inconsistent.
    ArgumentError
        If a prior does not match its table, or the releases cannot be analysed jointly.
    """
    origins = origins_of(source)
    (origin, *others), arguments = origins, (prior, n_prior, row_prior)
    if (
        others
        or not isinstance(origin, LoadedRelease)
        or not all(isinstance(argument, Mapping | None) and not argument for argument in arguments)
    ):
        return _inferences(origins, prior, n_prior, row_prior, same_records)
    # Without priors of the analyst the result depends on the release alone, so it is cached.
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
        _by_table(value, names, argument)
        for value, argument in ((prior, "prior"), (n_prior, "n_prior"), (row_prior, "row_prior"))
    )
    tables = {
        name: pooled([origin.observed_tables[name] for origin in origins], own_prior=priors[name] is not None)
        for name in names
    }
    releases = [origin for origin in origins if isinstance(origin, LoadedRelease)]
    if not releases:
        # The prior that accompanies the output of a mechanism is the analyst's.
        priors = {name: tables[name].prior if priors[name] is None else priors[name] for name in names}
    beliefs = {name: Beliefs(prior=priors[name], n_prior=n_priors[name], row_prior=row_priors[name]) for name in names}
    same_people = all(len(release.plan.groups) == 1 for release in releases)
    classes = class_table(tables) if same_records and same_people else None
    if classes is not None:
        beliefs = _of_the_same_records(beliefs, classes, shared_number=not isinstance(n_prior, Mapping))
    # All tables count the records of the classes, so the table of classes determines their number.
    beliefs = {name: _with_number(belief, tables[classes or name]) for name, belief in beliefs.items()}
    return Inferences(tables, beliefs, Posteriors(tables, beliefs, classes), classes, origins)


def _of_the_same_records(beliefs: dict[str, Beliefs], classes: str, *, shared_number: bool) -> dict[str, Beliefs]:
    """Priors of tables that are analysed jointly: all count the same records, and their rows are the classes."""
    for name, belief in beliefs.items():
        if belief.row_prior is not None:
            raise ArgumentError(
                f"The rows of the other tables are the classes of {classes!r}, so the prior of {classes!r} is also the "
                "prior of the division among rows. Leave row_prior out, or pass same_records=False."
            )
        if name != classes and belief.n_prior is not None and not shared_number:
            raise ArgumentError(
                f"All tables count the records of {classes!r}, so n_prior applies to that table only. Leave {name!r} "
                "out of n_prior, or pass same_records=False."
            )
    return {name: replace(belief, n_prior=beliefs[classes].n_prior) for name, belief in beliefs.items()}


def _with_number(beliefs: Beliefs, output: ObservedTable) -> Beliefs:
    """The priors of a table, by default with the prior of the private number that the released draws use."""
    possible = output.possible_records
    if beliefs.n_prior is None:
        return replace(beliefs, n_prior=possible)
    if possible is not None and number_of(output, beliefs.n_prior)[0] < possible[0]:
        raise ArgumentError(
            f"The noisy counts of {output.name!r} are almost impossible for fewer than {possible[0]} records. Pass an "
            "n_prior with larger numbers."
        )
    return beliefs


def _by_table(value: Any, names: tuple[str, ...], argument: str) -> dict[str, Any]:
    """The value for each table: from a mapping by table, or the same value for all."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(names, value)
    if unknown := [name for name in value if name not in names]:
        raise ArgumentError(f"{argument} names {unknown[0]!r}, and the release has the tables {', '.join(names)}.")
    return {name: value.get(name) for name in names}
