"""What inference has to know of one table, wherever it comes from."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.errors import ArgumentError, InternalError
from pymc_dirdp.inference.measurements import Measurement
from pymc_dirdp.mechanisms.joint import JointLikelihoods
from pymc_dirdp.mechanisms.row_likelihood import CellNoise, RowLikelihood

__all__ = ["Labels", "Seen", "computing"]

Labels = tuple[tuple[str, list[Any] | NDArray[Any] | None], ...]
"""The name of each axis, and the labels along it if it has any."""
# Smaller priors are nobody's, and to larger ones a double cannot add a record.
_LEAST_PRIOR, _MOST_PRIOR = 1e-100, 1e16


class Seen(Protocol):
    """One table, and all that was published of it: from a release, from a mechanism alone, or from several of those."""

    @property
    def name(self) -> str:
        """That of the table."""

    @property
    def prior(self) -> Array:
        """The prior of the shares, in the shape of the table: the default of an analyst."""

    @property
    def n_records(self) -> int | None:
        """How many records the table holds; None if that is private."""

    @property
    def possible_records(self) -> range | None:
        """Private numbers of records that the release's own draws take for as likely as one another, if they do."""

    @property
    def blocks(self) -> Sequence[tuple[NDArray[np.intp], int]]:
        """The rows, by number, whose records the output tells to add up to a number, and that number; often none."""

    @property
    def least(self) -> int:
        """What every cell is guaranteed to hold."""

    @property
    def family(self) -> str:
        """`"dirichlet"`, or `"beta"`, of which the shares of success are shown."""

    @property
    def share_labels(self) -> Labels:
        """Axes of the shares as they are shown."""

    @property
    def cell_labels(self) -> Labels:
        """Axes of the table of counts."""

    @property
    def mechanism_names(self) -> tuple[str, ...]:
        """The mechanisms that put it out."""

    @property
    def observed(self) -> Sequence[tuple[Array, Labels]]:
        """What was published, by release: values and their axes."""

    def row_likelihoods(self) -> list[list[RowLikelihood]]:
        """For each row, the likelihoods of all outputs, which are independent given the counts."""

    @property
    def cell_noise(self) -> CellNoise | None:
        """The noise on each cell, where one noisy table is all that was released; otherwise None."""

    @property
    def joint_rows(self) -> JointLikelihoods | None:
        """The likelihood of all rows together, where noise has a latent radius; otherwise None."""

    @property
    def measurements(self) -> Sequence[Measurement]:
        """The noisy marginals of all tables of the release, where the table was released by marginals; often none."""

    def damaged(self, problem: str) -> Exception:
        """The error about numbers that no mechanism can release."""


@contextmanager
def computing(seen: Seen) -> Iterator[None]:
    """Turn a failed computation into an error: about the output if that fits no table of counts, or about us.

    Raises
    ------
    InternalError
        If arithmetic failed on numbers with which it must not.
    """
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            yield
    except ArgumentError as error:
        raise seen.damaged(f"no posterior can be computed from its numbers ({error})") from error
    except ArithmeticError as error:
        if _computable(seen):
            raise InternalError(f"The posterior of {seen.name!r} could not be computed. Please report this.") from error
        raise seen.damaged(
            "no posterior can be computed from its numbers, some of which are far too large or too small"
        ) from error


def _computable(seen: Seen) -> bool:
    """Whether all numbers are such that what follows from them must be computable."""
    small = all(np.all(np.abs(values) <= MOST_RECORDS) for values, _ in seen.observed)
    return small and bool(np.all((seen.prior >= _LEAST_PRIOR) & (seen.prior <= _MOST_PRIOR)))
