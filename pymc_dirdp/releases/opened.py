"""A loaded release: its text, and all results that follow from it, which are computed on first use.

A tree may come from anybody, and its groups may have been edited. Every function that takes a release therefore reads
the text in the group `release` of the tree, and ignores its other groups. :func:`pymc_dirdp.verify` compares them.

Loaded releases are cached by their texts, together with their results, so that the functions of an analysis read, fit
and draw once. :mod:`pymc_dirdp.releases.view` makes the tree of a loaded release.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any, final

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError, ReleaseError, type_name
from pymc_dirdp.inference.joint_tables import given_all_others
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.inference.observed_table import ObservedTable, replicates_of
from pymc_dirdp.mechanisms.outputs import JointLikelihoods, Marginals, NoisyTable, Output, RowLikelihood
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.releases import axes
from pymc_dirdp.releases.axes import ListedLabels
from pymc_dirdp.releases.cache import Cache
from pymc_dirdp.releases.draws import draw_shares, fitted_shares, measurements_of_table
from pymc_dirdp.releases.expected_errors import ExpectedErrors, expected_errors
from pymc_dirdp.releases.pairs import PairsRelease
from pymc_dirdp.releases.plan_types import Plan, PlannedTable
from pymc_dirdp.releases.text import Release
from pymc_dirdp.sampling.drawing import SecretCounts
from pymc_dirdp.texts.codec import facts_of
from pymc_dirdp.texts.files import read_text
from pymc_dirdp.texts.grammar import Text, digest, parse

TEXT_GROUP = "release"
"""The group of a tree that holds the text, in a variable of the name `text`."""
type Published = xr.DataTree | str | PathLike[str]
"""A release, or the path of the file that :func:`pymc_dirdp.save` wrote."""
_OPENED: Cache[str, "LoadedRelease | PairsRelease"] = Cache(max_bytes=2**28)


@final
@dataclass(frozen=True, eq=False)
class ReleasedTable:
    """One table of a release, with all that inference needs. The table of a plan has no output.

    Attributes
    ----------
    part : PlannedTable
    stored : LoadedRelease
        The release, or the plan.
    """

    part: PlannedTable
    stored: "LoadedRelease"

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.part.table.name

    @property
    def mechanism(self) -> TableMechanism:
        """The mechanism that released it."""
        return self.part.mechanism

    @property
    def prior(self) -> Array:
        """The prior of the model, shape (..., d)."""
        return self.part.table.prior

    @property
    def family(self) -> str:
        """`"dirichlet"` or `"beta"`."""
        return self.part.table.family

    @property
    def totals(self) -> tuple[int, ...]:
        """The public numbers of records along some row axes; empty if there are none."""
        return self.part.totals

    @property
    def is_public(self) -> bool:
        """Whether the number of records is public."""
        return self.stored.plan.privacy_unit.n_records_is_public

    @property
    def n_records(self) -> int | None:
        """The number of records of the table; None if it is private."""
        return self.part.n_records if self.is_public else None

    @property
    def observed_names(self) -> tuple[str, ...]:
        """The observed variables that the table counts."""
        return tuple(likelihood.name for likelihood in self.part.table.likelihoods)

    @property
    def output(self) -> Output:
        """The published output of its mechanism."""
        if self.stored.release is None:
            raise ArgumentError("A plan has no output.")
        return self.stored.release.output[self.name]

    @property
    def steps(self) -> int | None:
        """The number of steps of the urn; None without an urn."""
        return self.mechanism.steps(self.stored.plan.sampler, self.part.n_records)

    @property
    def published(self) -> Array:
        """Independent outputs of the mechanism, shape (k, ..., d): a single noisy table, or all draws."""
        return self.output.values

    @property
    def draws(self) -> Array:
        """The draws in the tree of the release, shape (draws, ...). A Beta variable has those of success only."""
        return self.stored.draws[self.name]

    @property
    def possible_records(self) -> range | None:
        """The numbers of records that the draws of the release consider possible; None if the number is public."""
        if self.is_public or self.stored.release is None or self.mechanism.output_kind is not NoisyTable:
            return None
        return self.mechanism.possible_records(self.published[0])

    @cached_property
    def share_labels(self) -> ListedLabels:
        """The axes of the draws after `chain` and `draw`, with their labels."""
        return axes.share_labels(self.part.table)

    @cached_property
    def cell_labels(self) -> ListedLabels:
        """The axes of the table of counts, with their labels."""
        return axes.cell_labels(self.part.table)

    @cached_property
    def observed_table(self) -> ObservedTable:
        """The table in the form that inference uses."""
        mechanism, n_records = self.mechanism, self.n_records
        # Rows whose number of records is public or follows from the output.
        totals: Iterable[tuple[Integers, float]] = mechanism.published_totals(self.published[0])
        if self.totals:
            totals = zip(mechanism.contributed.rows_by_entry(self.prior.shape), self.totals, strict=True)
        group, joint_rows = self.stored.shared_noises.get(self.name, ((), None))
        return ObservedTable(
            name=self.name,
            prior=self.prior,
            n_records=n_records,
            cell_labels=self.cell_labels,
            share_labels=self.share_labels,
            mechanism_names=(type(mechanism).__name__,),
            observed=[self.output.observed(self.cell_labels, self.share_labels)],
            row_likelihoods=self._row_likelihoods,
            damaged=self._damaged,
            family=self.family,
            least=math.ceil(mechanism.min_count or 0),
            blocks=[(rows, round(total)) for rows, total in totals],
            possible_records=self.possible_records,
            # None for draws.
            cell_noise=mechanism.cell_noise,
            joint_rows=joint_rows or mechanism.joint_rows(self.published[0]),
            noise_group=group,
            measurements=self.stored.measurements_for(self.part),
            cell_values=self.output.cell_values,
        )

    def _damaged(self, problem: str) -> ReleaseError:
        return ReleaseError(
            f"The release is damaged: of {self.name!r} {problem}. Ask its publisher for the file again."
        )

    def _row_likelihoods(self) -> list[list[RowLikelihood]]:
        self.mechanism.refuse_inference()
        try:
            likelihoods = [self.mechanism.row_likelihoods(output, steps=self.steps) for output in self.output.values]
        except ArgumentError as error:
            raise self._damaged(f"the output cannot come from this mechanism ({error})") from error
        return [list(row) for row in zip(*likelihoods, strict=True)]


@final
@dataclass(frozen=True, eq=False)
class LoadedRelease:
    """A release, or a plan that is described like a release, with all results that follow from it.

    Attributes
    ----------
    plan : Plan
    release : Release or None
        None for a plan.
    """

    plan: Plan
    release: Release | None = None
    _derived: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and other processes get the text, and compute the results again.
        return (LoadedRelease, (self.plan,)) if self.release is None else (from_text, (self.release.text,))

    @property
    def reproducible(self) -> bool:
        """Whether a seed was used."""
        return self.release is not None and self.release.is_seeded

    @property
    def is_estimate(self) -> bool:
        """Whether the shares are a single estimate, fitted to the noisy marginals of all tables, instead of draws."""
        return bool(self.plan.publishing(Marginals))

    @cached_property
    def tables(self) -> dict[str, ReleasedTable]:
        """The tables by name."""
        return {part.table.name: ReleasedTable(part, self) for part in self.plan.parts}

    @cached_property
    def observed_tables(self) -> dict[str, ObservedTable]:
        """The tables in the form that inference uses, by name."""
        return {name: table.observed_table for name, table in self.tables.items()}

    @cached_property
    def curves(self) -> PrivacyCurves:
        """The privacy curves of all tables and draws together."""
        return self.plan.composition

    @cached_property
    def draws(self) -> dict[str, Array]:
        """The shares of each table in the tree, shape (draws, ...). A Beta variable has those of success only.

        Raises
        ------
        ReleaseError
            If nothing can be drawn given its numbers.
        """
        if self.release is None:
            raise ArgumentError("A plan has no draws.")
        plan, output, shares = self.plan, self.release.output, {}
        with computable():
            n_records = plan.parts[0].n_records if plan.privacy_unit.n_records_is_public else None
            shares_by_name = {name: fit[None] for name, fit in fitted_shares(self.measured.values(), n_records).items()}
            if noisy := [self.tables[part.table.name] for part in plan.publishing(NoisyTable)]:
                # The seed is the digest of the output, so the same text has the same draws everywhere.
                rng = np.random.default_rng(int(digest(facts_of(output)), 16))
                tables = {table.name: (table.mechanism, table.observed_table) for table in noisy}
                shares_by_name |= draw_shares(tables, plan.released_draws, rng)
            for name, table in self.tables.items():
                values = shares_by_name.get(name, table.published)
                shares[name] = values[..., 0] if table.family == "beta" else values
        return shares

    def replicates(self, counts: Mapping[str, Integers], rng: np.random.Generator) -> dict[str, Array]:
        """Replicated outputs of the mechanisms for several counts of each table, by table, in floating point."""
        published: dict[str, Array] = {}
        for first, *others in self.plan.noise_groups:
            names, mechanisms = [part.table.name for part in (first, *others)], [part.mechanism for part in others]
            outputs = []
            for simulated in zip(*(map(SecretCounts, counts[name]) for name in names), strict=True):
                drawings = first.mechanism.prepare_together(mechanisms, sampler="fast", random_seed=rng)
                outputs.append([drawing.of(cells) for drawing, cells in zip(drawings, simulated, strict=True)])
            published |= {name: np.stack([output[i] for output in outputs]) for i, name in enumerate(names)}
        for name, table in self.tables.items():
            if name not in published:
                values = replicates_of(table.mechanism, counts[name], len(table.published), table.steps, rng)
                of_success = table.family == "beta" and table.output.shares is not None
                published[name] = values[..., 0] if of_success else values
        return published

    @cached_property
    def errors(self) -> dict[str, ExpectedErrors]:
        """The expected errors of each table, which use public numbers only."""
        return expected_errors(self.plan)

    @cached_property
    def shared_noises(self) -> dict[str, tuple[tuple[str, ...], JointLikelihoods]]:
        """For each table that shares its noise: the names of the group, and its likelihood given the other outputs."""
        by_table: dict[str, tuple[tuple[str, ...], JointLikelihoods]] = {}
        for parts in self.plan.noise_groups if self.release is not None else ():
            names = tuple(part.table.name for part in parts)
            mechanisms, priors = [part.mechanism for part in parts], [part.table.prior for part in parts]
            likelihoods = given_all_others(mechanisms, [self.tables[name].published[0] for name in names], priors)
            by_table |= {name: (names, likelihood) for name, likelihood in zip(names, likelihoods, strict=True)}
        return by_table

    @cached_property
    def measured(self) -> dict[str, tuple[Family, list[Measurement]]]:
        """The tables that were released by marginals, with the noisy marginals of each."""
        return {
            part.table.name: measurements_of_table(
                part.table.name, tuple(axes.cell_dims(part.table)), part.mechanism, self.tables[part.table.name].output
            )
            for part in self.plan.publishing(Marginals)
        }

    def measurements_for(self, part: PlannedTable) -> list[Measurement]:
        """The noisy marginals of all tables of the same records, if the table was released by marginals."""
        same_group = {name for group in self.plan.groups if part.table.name in group for name in group}
        return [
            measurement
            for other in self.plan.publishing(Marginals)
            if part.table.name in self.measured and other.table.name in same_group and other.n_records == part.n_records
            for measurement in self.measured[other.table.name][1]
        ]

    def once[T](self, what: Hashable, compute: Callable[[], T]) -> T:
        """The result of a function of this release, which is called the first time only.

        Parameters
        ----------
        what : hashable
            The name of the result, and all that it depends on except for the release.
        compute : callable
        """
        if what not in self._derived:
            self._derived[what] = compute()
        result: T = self._derived[what]
        return result


def text_of(tree: Any) -> str:
    """The text in a tree, which is not yet verified.

    Raises
    ------
    ReleaseError
        If the tree has no text, because it is not a release or has lost its group `release`.
    """
    refuse_confidential(tree)
    children = getattr(tree, "children", None)
    if hasattr(tree, "free_RVs"):
        raise ReleaseError(
            "Expected a release, got a PyMC model. The release of a private model is dirdp.releases.release_of(model); "
            "pm.sample(model=model) draws from its posterior."
        )
    if not isinstance(children, Mapping):
        hint = " Use dirdp.report, statement or verify, or its method posterior()." if hasattr(tree, "arms") else ""
        hint = " Pass its attribute tables or calibration." if hasattr(tree, "tables") else hint
        raise ReleaseError(
            "Expected a release from pymc_dirdp.sample, an xarray.DataTree, or the path of one that was saved, got "
            f"{type_name(tree)}.{hint}"
        )
    variables = children[TEXT_GROUP].to_dataset().variables if TEXT_GROUP in children else {}
    text = variables["text"].values if "text" in variables else None
    if text is None or text.ndim or not isinstance(text.item(), str):
        raise ReleaseError(
            f"Expected a release from pymc_dirdp.sample or pymc_dirdp.load; the tree lacks the group {TEXT_GROUP!r} "
            "with its text."
        )
    return str(text.item())


def open_release(release: Any) -> LoadedRelease:
    """Load a release from its text.

    Parameters
    ----------
    release : xarray.DataTree or path-like
        From :func:`pymc_dirdp.sample`, or the path of a file that :func:`pymc_dirdp.save` wrote.

    Raises
    ------
    ReleaseError
        If it is not a release of tables, or its text is damaged.
    """
    content = remembered(read_text(release)) if isinstance(release, str | PathLike) else from_text(text_of(release))
    if isinstance(content, LoadedRelease):
        return content
    if isinstance(content, PairsRelease):
        raise ReleaseError(
            "This is a release of pairs of columns, which has no tables with draws. Pass it to dirdp.fit, "
            "dirdp.synthetic, dirdp.log_likelihood, dirdp.predict_log_proba or dirdp.estimate(release, columns=[...])."
        )
    raise ReleaseError(f"Expected a release, got a text of the kind {content.kind!r}.")


def content_of(source: Any) -> Any:
    """The content of a file or a tree: a loaded release, a plan or another text. Other objects are returned."""
    if isinstance(source, str | PathLike):
        return remembered(read_text(source))
    return from_text(text_of(source)) if TEXT_GROUP in getattr(source, "children", {}) else source


def from_text(text: str) -> "LoadedRelease | PairsRelease":
    """The release with this text.

    Raises
    ------
    ReleaseError
        If it is not the text of a release.
    """
    if (cached := _OPENED.get(text)) is not None:
        return cached
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise ReleaseError("The release is damaged: its text contains halves of characters.") from None
    content = remembered(parse(encoded, Release, PairsRelease))
    assert isinstance(content, LoadedRelease | PairsRelease)
    return content


def remembered(text: Text) -> Any:
    """A text, or the cached object with all its results if it is the text of a release."""
    if isinstance(text, Release):
        return of_release(text)
    if isinstance(text, PairsRelease):
        if (cached := _OPENED.get(text.text)) is not None:
            return cached
        for choice in text.plan.after:
            choice.forget()
        _OPENED.put(text.text, text)
    return text


def of_release(release: Release) -> LoadedRelease:
    """The loaded release, from the cache or new. Later plans need not cover its choices."""
    if isinstance(cached := _OPENED.get(release.text), LoadedRelease):
        return cached
    for choice in release.plan.after:
        choice.forget()
    stored = LoadedRelease(release.plan, release)
    _OPENED.put(release.text, stored)
    return stored


def refuse_confidential(tree: Any) -> None:
    """Refuse a tree that was computed from the data."""
    if "confidential" in getattr(tree, "attrs", ()):
        raise ReleaseError(
            "Expected a release from pymc_dirdp.sample, got a tree that is marked as confidential: like those of "
            "posterior() and diagnose(), it was computed from the data themselves, and no guarantee covers it."
        )


@contextmanager
def computable() -> Iterator[None]:
    """Raise a ReleaseError if a computation fails, because the numbers of a text may be too large or too small."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            yield
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, ReleaseError):
            raise
        raise ReleaseError(
            "The release is damaged: no curve can be computed from its numbers, some of which are far too large or too "
            "small."
        ) from error
