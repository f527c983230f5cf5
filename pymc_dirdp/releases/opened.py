"""A release that was opened: what its text says, for all that read one.

A tree may come from anybody, and its groups may have been edited. So every function that takes a release reads the text
that the tree holds in its group `release`, and looks at the view that follows from the text, never at the groups of the
tree that it was given. :func:`pymc_dirdp.verify` says whether these differ.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, final

import xarray as xr

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError, ReleaseError, type_name
from pymc_dirdp.inference.joint_tables import SharedNoise
from pymc_dirdp.mechanisms.joint import JointLikelihoods
from pymc_dirdp.mechanisms.outputs import Marginals, Output
from pymc_dirdp.mechanisms.row_likelihood import CellNoise, RowLikelihood
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.protected import Reading
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.aware import shared_noises
from pymc_dirdp.releases.planned import Plan, PlannedTable
from pymc_dirdp.releases.text import Release, SparseRelease, understood
from pymc_dirdp.releases.view import TEXT_GROUP, view
from pymc_dirdp.stored.choice import PrivateChoice
from pymc_dirdp.stored.draws import Drawn, drawn_tables, stored_labels
from pymc_dirdp.stored.untrusted import Group, computable, refuse_others

__all__ = [
    "Opened",
    "ReleasedTable",
    "StoredTable",
    "from_text",
    "opened",
    "opened_sparse",
    "shown_tree",
    "text_of",
    "view_of",
]

# Releases that were opened last: the verbs of an analysis all open the same one.
_MOST_KEPT = 8
_KEPT: "OrderedDict[str, tuple[Release | SparseRelease, xr.DataTree]]" = OrderedDict()
_LOCK = Lock()


@final
@dataclass(frozen=True, eq=False)
class StoredTable:
    """How one table was released.

    Attributes
    ----------
    part : PlannedTable
    group : Group
        Its group of the view.
    """

    part: PlannedTable
    group: Group

    @property
    def mechanism(self) -> TableMechanism:
        """The mechanism that released it."""
        return self.part.mechanism

    @property
    def prior(self) -> Array:
        """The model's own."""
        return self.part.table.prior

    @property
    def contribution(self) -> Contribution:
        """What one person adds to the table."""
        return self.mechanism.contributed

    @property
    def totals(self) -> tuple[int, ...]:
        """The public numbers of records of the entries of some row axes; empty without any."""
        return self.part.totals


@final
@dataclass(frozen=True, eq=False)
class Opened:
    """A release, or a plan that is described like one.

    Attributes
    ----------
    plan : Plan
    tree : xarray.DataTree
        The view of its text.
    release : Release or None
        None for a plan.
    """

    plan: Plan
    tree: xr.DataTree
    release: Release | None = None

    @property
    def guarantee(self) -> Guarantee:
        """The stated guarantee. Whether it follows is another question."""
        return self.plan.guarantee

    @property
    def adjacency(self) -> str:
        """What one person can change."""
        return self.plan.adjacency

    @property
    def reading(self) -> Reading:
        """Who is protected, in numbers and in sentences."""
        return self.plan.reading

    @property
    def min_count(self) -> float:
        """The promised least count of a cell."""
        return self.plan.min_count

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The names of tables that one person's records may feed together."""
        return self.plan.groups

    @property
    def draws(self) -> int:
        """How many draws the guarantee covers."""
        return self.plan.draws

    @property
    def choices(self) -> tuple[PrivateChoice, ...]:
        """What was chosen from the same records before; the guarantee covers it, too."""
        return self.plan.after

    @property
    def reproducible(self) -> bool:
        """Whether a seed was used."""
        return self.release is not None and self.release.is_seeded

    @property
    def privacy(self) -> Group:
        """The group `privacy` of the view."""
        return Group("privacy", self.tree["privacy"].to_dataset())

    @property
    def is_estimate(self) -> bool:
        """Whether the shares are one estimate, fitted to what is published of all tables, and no draw."""
        return bool(self.plan.publishing(Marginals))

    @cached_property
    def tables(self) -> dict[str, StoredTable]:
        """Its tables by name."""
        groups = self.tree["mechanism"].children
        return {
            part.table.name: StoredTable(
                part, Group(f"mechanism/{part.table.name}", groups[part.table.name].to_dataset())
            )
            for part in self.plan.parts
        }

    @cached_property
    def curves(self) -> PrivacyCurves:
        """The privacy curves of all tables and draws together."""
        return self.plan.composition

    @property
    def pure_epsilon(self) -> float:
        """The largest loss of what the samplers put out; for an urn it is finite, other than for what it draws from."""
        return float(self.tree["privacy"].attrs.get("pure_epsilon", math.inf))

    def published(self, table: str) -> Output:
        """What was published of a table."""
        if self.release is None:
            raise ArgumentError("A plan has put out nothing.")
        return self.release.output[table]

    @cached_property
    def outputs(self) -> "dict[str, ReleasedTable]":
        """The tables that were released, by name."""
        if self.release is None:
            raise ArgumentError("A plan has put out nothing.")
        drawn, public = drawn_tables(self.tree), self.reading.sizes_are_public
        shared = shared_noises(self.plan, self.release.output)
        return {
            part.table.name: ReleasedTable(
                part,
                self.published(part.table.name),
                drawn[part.table.name],
                steps=self.release.steps(part) if self.release.sampler == "exact" else None,
                n_records=part.n_records if public else None,
                totals=part.totals if public else (),
                shared=shared.get(part.table.name),
            )
            for part in self.plan.parts
        }


@final
@dataclass(frozen=True, eq=False)
class ReleasedTable:
    """One table of a release, with all that inference from it needs.

    Attributes
    ----------
    part : PlannedTable
    output : Output
        What its mechanism published.
    drawn : Drawn
        The draws of the release, with the labels of their axes.
    steps : int or None
        Of the urn that drew.
    n_records : int or None
        How many records the table holds; None if that is private.
    totals : tuple of int
        The public numbers of records of the entries of some row axes; empty without any.
    shared : tuple of SharedNoise and int, or None
        The outputs of all tables that share its noise, and which of them this one is.
    """

    part: PlannedTable
    output: Output
    drawn: Drawn
    steps: int | None
    n_records: int | None
    totals: tuple[int, ...] = ()
    shared: tuple[SharedNoise, int] | None = None

    @property
    def mechanism(self) -> TableMechanism:
        """What drew it."""
        return self.part.mechanism

    @property
    def prior(self) -> Array:
        """The model's own, shape (..., d)."""
        return self.part.table.prior

    @property
    def published(self) -> Array:
        """Independent outputs of the mechanism, shape (k, ..., d): one noisy table, or all draws."""
        return self.output.values

    @property
    def least(self) -> int:
        """What every cell is promised to hold."""
        return math.ceil(self.mechanism.min_count or 0)

    @cached_property
    def blocks(self) -> list[tuple[Integers, int]]:
        """The rows, by number, whose records add up to a number that is public or that the output tells; often none."""
        if self.totals:
            rows = self.mechanism.contributed.rows_by_entry(self.prior.shape)
            return list(zip(rows, self.totals, strict=True))
        return [(rows, round(total)) for rows, total in self.mechanism.published_totals(self.published[0])]

    @property
    def cell_noise(self) -> CellNoise | None:
        """The noise on each cell of the noisy table; None where draws are the output."""
        return self.mechanism.cell_noise

    @cached_property
    def joint_rows(self) -> JointLikelihoods | None:
        """The likelihood of all rows together, where noise has a latent radius; otherwise None."""
        if self.shared is not None:
            noise, number = self.shared
            return noise.likelihoods[number]
        return self.mechanism.joint_rows(self.published[0])

    @property
    def name(self) -> str:
        """That of the table."""
        return self.part.table.name

    @property
    def group(self) -> Group:
        """The group of its mechanism in the view."""
        return self.drawn.group

    @property
    def family(self) -> str:
        """`"dirichlet"` or `"beta"`."""
        return self.drawn.family

    @property
    def share_labels(self) -> tuple[tuple[str, list[Any] | None], ...]:
        """Axes of the draws after `chain` and `draw`, with their labels."""
        return self.drawn.labels

    @property
    def cell_labels(self) -> tuple[tuple[str, list[Any] | None], ...]:
        """Axes of the table of counts, with their labels."""
        return stored_labels(self.group, "prior")

    @property
    def mechanism_names(self) -> tuple[str, ...]:
        """The class of the mechanism."""
        return (type(self.mechanism).__name__,)

    @property
    def observed(self) -> list[tuple[Array, tuple[tuple[str, list[Any] | None], ...]]]:
        """The noisy counts, or the draws that are the release, with the names and labels of the axes."""
        return [self.output.observed(self.cell_labels, self.share_labels)]

    def damaged(self, problem: str) -> ReleaseError:
        """The error about numbers that no mechanism can have put out."""
        return self.group.damaged(problem)

    @property
    def possible_records(self) -> range | None:
        """The numbers of records that the release's own draws take for as likely as one another, if they do."""
        if self.n_records is not None or "most_records" not in self.group:
            return None
        return range(int(self.group.number("least_records")), int(self.group.number("most_records")) + 1)

    def row_likelihoods(self) -> list[list[RowLikelihood]]:
        """For each row, the likelihoods of all outputs, which are independent given the counts.

        Raises
        ------
        ArgumentError
            If the mechanism has no product law, so that nothing is inferred from what it puts out.
        ReleaseError
            If the mechanism cannot have put this out.
        """
        self.mechanism.refuse_inference()
        try:
            return self.output.row_likelihoods(self.mechanism, self.steps)
        except ArgumentError as error:
            raise self.group.damaged(f"what was put out is none of this mechanism ({error})") from error


def text_of(tree: Any) -> str:
    """The text that a tree holds, which nobody has checked.

    Raises
    ------
    ReleaseError
        If the tree holds none, so that it is no release, or one whose text was lost.
    """
    refuse_others(tree)
    children = getattr(tree, "children", None)
    if not isinstance(children, Mapping):
        raise ReleaseError(
            f"Expected a release from pymc_dirdp.sample, an xarray.DataTree, got {type_name(tree)}. A file is "
            'opened first, by pymc_dirdp.load("release.json").'
        )
    variables = children[TEXT_GROUP].to_dataset().variables if TEXT_GROUP in children else {}
    text = variables["text"].values if "text" in variables else None
    if text is None or text.ndim or not isinstance(text.item(), str):
        raise ReleaseError(
            f"Expected a release from pymc_dirdp.sample or pymc_dirdp.load; the tree lacks the group {TEXT_GROUP!r} "
            "with its text."
        )
    return str(text.item())


def from_text(text: str) -> tuple[Release | SparseRelease, xr.DataTree]:
    """The release of which this is the text, and its view, which nobody may change.

    Raises
    ------
    ReleaseError
        If it is no text of a release.
    """
    with _LOCK:
        if text in _KEPT:
            _KEPT.move_to_end(text)
            return _KEPT[text]
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise ReleaseError("The release is damaged: its text holds halves of characters.") from None
    release = understood(encoded)
    with computable():
        tree = view(release)
    keep(release, tree)
    return release, tree


def keep(release: Release | SparseRelease, tree: xr.DataTree) -> None:
    """Keep the view of a release, so that it is not made again."""
    if isinstance(release, Release) and release.plan.after:
        # Bins that nobody has paid for are known as long as somebody holds them.
        return
    with _LOCK:
        _KEPT[release.text] = release, tree
        while len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)


def shown_tree(release: Release | SparseRelease) -> xr.DataTree:
    """The view of a release that was just drawn, for its user."""
    tree = view(release)
    keep(release, tree)
    return tree.copy(deep=True)


def opened(release: Any) -> Opened:
    """What a release from :func:`pymc_dirdp.sample` says, by its text.

    Raises
    ------
    ReleaseError
        If it is no such release, or its text is damaged.
    """
    found, tree = from_text(text_of(release))
    if isinstance(found, SparseRelease):
        raise ReleaseError(
            "This is a release of a sparse table. Use estimate_sparse or analyse_sparse, with your prior of it."
        )
    return Opened(found.plan, tree, found)


def opened_sparse(release: Any) -> SparseRelease:
    """What a release from :func:`pymc_dirdp.sparse.release_sparse` says, by its text.

    Raises
    ------
    ReleaseError
        If it is no such release, or its text is damaged.
    """
    found, _ = from_text(text_of(release))
    if not isinstance(found, SparseRelease):
        raise ReleaseError("Expected a release from pymc_dirdp.sparse.release_sparse, got one from pymc_dirdp.sample.")
    return found


def view_of(tree: Any) -> Any:
    """The view of a release, by its text; an analysis or an estimate, which is no release, as it is."""
    refuse_others(tree)
    return opened(tree).tree if TEXT_GROUP in getattr(tree, "children", ()) else tree
