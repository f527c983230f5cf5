"""Several releases of one table over the same records, read together: their likelihoods multiply."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.measurements import Measurement
from pymc_dirdp.inference.observed_table import Labels, Seen
from pymc_dirdp.mechanisms.row_likelihood import RowLikelihood

__all__ = ["Pooled", "pooled"]


@final
@dataclass(frozen=True, eq=False)
class Pooled:
    """One table that several releases tell of. Whatever is not theirs to add up is that of the first.

    Attributes
    ----------
    parts : tuple of Seen
        The table in each of them, at least one.
    """

    parts: tuple[Seen, ...]

    @property
    def name(self) -> str:
        """That of the table."""
        return self.parts[0].name

    @property
    def prior(self) -> Array:
        """The prior of the shares."""
        return self.parts[0].prior

    @property
    def n_records(self) -> int | None:
        """How many records the table holds; all inferences are conditional on it once."""
        return self.parts[0].n_records

    @property
    def possible_records(self) -> range | None:
        """The numbers that all releases which name some have in common; None if there are none."""
        named = [part.possible_records for part in self.parts]
        ranges = [numbers for numbers in named if numbers is not None]
        if not ranges:
            return None
        common = range(max(numbers[0] for numbers in ranges), min(numbers[-1] for numbers in ranges) + 1)
        return common if len(common) else None

    @property
    def blocks(self) -> Sequence[tuple[NDArray[np.intp], int]]:
        """What that output tells of numbers of records which tells most; the others do not contradict it."""
        return max((part.blocks for part in self.parts), key=len)

    @property
    def least(self) -> int:
        """All guarantees hold, so the largest does."""
        return max(part.least for part in self.parts)

    @property
    def family(self) -> str:
        """`"dirichlet"` or `"beta"`."""
        return self.parts[0].family

    @property
    def share_labels(self) -> Labels:
        """Axes of the shares."""
        return self.parts[0].share_labels

    @property
    def cell_labels(self) -> Labels:
        """Axes of the table of counts."""
        return self.parts[0].cell_labels

    @property
    def mechanism_names(self) -> tuple[str, ...]:
        """The classes of all mechanisms."""
        return tuple(dict.fromkeys(chain.from_iterable(part.mechanism_names for part in self.parts)))

    @property
    def observed(self) -> list[tuple[Array, Labels]]:
        """What each of them published."""
        return [one for part in self.parts for one in part.observed]

    @property
    def cell_noise(self) -> None:
        """Several noisy tables are no single one."""
        return None

    @property
    def joint_rows(self) -> None:
        """A joint release is read by itself."""
        return None

    @property
    def measurements(self) -> list[Measurement]:
        """The noisy marginals of all of them."""
        return [one for part in self.parts for one in part.measurements]

    def row_likelihoods(self) -> list[list[RowLikelihood]]:
        """For each row, the likelihoods of all outputs of all releases."""
        return [list(chain.from_iterable(row)) for row in zip(*(p.row_likelihoods() for p in self.parts), strict=True)]

    def damaged(self, problem: str) -> Exception:
        """The error about numbers that no mechanism can release."""
        return self.parts[0].damaged(problem)


def pooled(tables: Sequence[Seen], *, own_prior: bool) -> Seen:
    """One table that several releases tell of, checked.

    Parameters
    ----------
    tables : sequence of Seen
        The table of each release.
    own_prior : bool
        Whether the analyst has a prior of their own; otherwise all models must have the same.

    Raises
    ------
    ArgumentError
        If they are not the same table of the same records.
    """
    first, *others = tables
    if others and any(table.joint_rows is not None for table in tables):
        raise ArgumentError(
            f"The rows of {first.name!r} share the noise of a joint release, which is not read together with others. "
            "Analyse each by itself."
        )
    if len({len(table.measurements) > 0 for table in tables}) > 1:
        raise ArgumentError(
            f"{first.name!r} was released by marginals, and in another release it was not, so they are not read "
            "together. Analyse each by itself."
        )
    for other in others:
        for what, one, two in (
            ("shape", first.prior.shape, other.prior.shape),
            ("family", first.family, other.family),
            ("labels", first.share_labels, other.share_labels),
            ("number of records", first.n_records, other.n_records),
        ):
            if one != two:
                raise ArgumentError(
                    f"The table {first.name!r} has another {what} in another release, so they do not tell of the same "
                    "records. Analyse each by itself."
                )
        totals = [[(rows.tolist(), total) for rows, total in one.blocks] for one in (first, other)]
        if min(map(len, totals)) > 1 and totals[0] != totals[1]:
            raise ArgumentError(
                f"The outputs of {first.name!r} tell of different numbers of records in its rows, so they are not "
                "about the same records. Analyse each by itself."
            )
        if not own_prior and not np.array_equal(first.prior, other.prior):
            raise ArgumentError(
                f"The models of the releases have different priors of {first.name!r}. Say which you hold, as prior=."
            )
    return Pooled(tuple(tables)) if others else first
