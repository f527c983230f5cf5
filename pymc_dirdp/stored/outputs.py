"""What a release put out of each table, with all that whoever concludes from it has to know; checked."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError, ReleaseError, shown
from pymc_dirdp.mechanisms.row_likelihood import RowLikelihood
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.stored.draws import Drawn, drawn_tables, stored_labels
from pymc_dirdp.stored.release import Stored
from pymc_dirdp.stored.table import StoredTable
from pymc_dirdp.stored.untrusted import Group, group_at

__all__ = ["Output", "outputs"]

Array = NDArray[np.float64]
Integers = NDArray[np.intp]


@final
@dataclass(frozen=True, eq=False)
class Output:
    """What was put out of one table.

    Attributes
    ----------
    drawn : Drawn
        The draws as they are in the file, with the labels of their axes.
    mechanism : TableMechanism
    prior : array, shape (..., d)
        The model's own.
    published : array, shape (k, ..., d)
        Independent outputs of the mechanism: one noisy table, or all draws.
    steps : int or None
        Of the urn that drew.
    n_records : int or None
        How many records the table holds; None if that is private.
    least : int
        What every cell is promised to hold.
    """

    drawn: Drawn
    mechanism: TableMechanism
    prior: Array
    published: Array
    steps: int | None
    n_records: int | None
    least: int

    @cached_property
    def blocks(self) -> list[tuple[Integers, int]]:
        """The rows, by number, whose records the output tells to add up to a number, and that number."""
        return [(rows, round(total)) for rows, total in self.mechanism.published_totals(self.published[0])]

    @property
    def name(self) -> str:
        """That of the table."""
        return self.group.path.removeprefix("mechanism/")

    @property
    def group(self) -> Group:
        """The group of its mechanism in the file."""
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
        if self.mechanism.publishes is not None:
            return [(self.published[0], self.cell_labels)]
        if self.mechanism.beside is not None:
            return [(self.published, (("release_draw", None), *self.cell_labels))]
        return [(self.drawn.values, (("release_chain", None), ("release_draw", None), *self.share_labels))]

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
            If the mechanism has no product law, so that nothing is concluded from what it puts out.
        ReleaseError
            If the mechanism cannot have put this out.
        """
        if not self.mechanism.has_product_law:
            self.mechanism.row_likelihoods(self.published[0])
        try:
            each = [self.mechanism.row_likelihoods(output, steps=self.steps) for output in self.published]
        except ArgumentError as error:
            raise self.group.damaged(f"what was put out is none of this mechanism ({error})") from error
        return [list(row) for row in zip(*each, strict=True)]


def outputs(stored: Stored, release: Any) -> dict[str, Output]:
    """What a release put out, by table.

    Parameters
    ----------
    stored : Stored
        Its checked facts.
    release : xarray.DataTree

    Raises
    ------
    ReleaseError
        If a probability is 0, which no sampler draws.
    """
    utility, drawn = group_at(release, "utility"), drawn_tables(release)
    sizes = dict(zip(stored.tables, utility.any_array("n_records").tolist(), strict=True))
    records = utility.text("records")
    if records not in ("public", "planned for"):
        raise utility.damaged(f"the number of records is {shown(records)}, and neither public nor planned for")
    public = records == "public"
    if public and not adjacency_named(stored.adjacency).records_are_public:
        raise utility.damaged(f"the number of records is public, which it is not under {stored.adjacency}")
    found = {}
    for name, table in stored.tables.items():
        mechanism, group = table.mechanism, table.group
        if public and math.isnan(sizes[name]):
            raise utility.damaged("a public number of records is missing")
        found[name] = Output(
            drawn[name],
            mechanism,
            table.prior,
            published=_published(table, drawn[name]),
            steps=int(group.number("steps")) if "steps" in group else None,
            n_records=int(sizes[name]) if public else None,
            least=math.ceil(mechanism.min_count or 0),
        )
    return found


def _published(table: StoredTable, drawn: Drawn) -> Array:
    """All outputs of a table: one noisy table, or what is beside each draw, or the draws."""
    if table.mechanism.publishes is not None:
        return table.output[None]
    return _drawn(drawn) if table.mechanism.beside is None else table.group.array(table.mechanism.beside)


def _drawn(drawn: Drawn) -> Array:
    """All components of all draws."""
    values = drawn.positive.reshape(-1, *drawn.values.shape[2:])
    if drawn.family == "dirichlet":
        return values
    if not np.all(values < 1):
        raise drawn.group.damaged("some released probability is 1")
    return np.stack([values, 1 - values], axis=-1)
