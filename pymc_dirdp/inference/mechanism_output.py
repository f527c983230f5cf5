"""The output of a mechanism, handed over without a release."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import numbers_or_none, positive_array
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.inference.observed_table import Labels
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.joint import JointLikelihoods
from pymc_dirdp.mechanisms.row_likelihood import CellNoise, RowLikelihood

__all__ = ["MechanismOutput"]


@final
@dataclass(frozen=True, eq=False)
class MechanismOutput:
    """The output of a mechanism, by its own `release` or `sample`, to be passed to `analyse` or `estimate`.

    Parameters
    ----------
    mechanism : Mechanism
        What drew it. Its distribution is a product over cells for all mechanisms here, except a
        :class:`~pymc_dirdp.papers.HellingerMechanism` with more than two categories. Of a
        :class:`~pymc_dirdp.mechanisms.ZeroSumJointMechanism`, one output of tables of equal size, one in each row.
    values : array_like, shape `(..., d)` or `(k, ..., d)`
        One output, or k independent ones of the same counts: what the guarantee is about, such as noisy counts or
        draws of a Dirichlet distribution. Draws that were made *from* noisy counts are not.
    prior : array_like, shape `(..., d)`
        Of the shares, positive; in the shape of the table. It is yours, and costs no privacy.
    n_records : int, optional
        The number of records, where it is public and the mechanism does not hold it.
    sampler : {"exact", "fast"}, optional
        What drew it; by default the mechanism's own default, as in `sample` and `release`.
    steps : int, optional
        Of the urn that drew it, if they were chosen; by default those that `sample` takes.
    name : str, default "p"
        What the shares are called.

    Notes
    -----
    The input of a :class:`~pymc_dirdp.papers.SimplexMechanism` is taken to be counts by `n_records`, none of them
    0. Floors of its domain that are higher are not used.

    References
    ----------
    Theory, section 16.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> mechanism = dirdp.papers.TruncatedNoiseMechanism([1, 1, 1], n_records=60, scale=2.0)
    >>> noisy = mechanism.release([30, 20, 10])
    >>> output = dirdp.mechanisms.MechanismOutput(mechanism, noisy, prior=[1, 1, 1])
    >>> round(float(dirdp.estimate(output).frame()["count"].sum()), 6)
    60.0
    """

    mechanism: Mechanism
    values: Array
    _: KW_ONLY
    prior: Array
    n_records: int | None = None
    sampler: str | None = None
    steps: int | None = None
    name: str = "p"

    @classmethod
    def of(cls, thing: object) -> Self | None:
        """The thing if it is the output of a mechanism, and None if it is anything else."""
        return thing if isinstance(thing, cls) else None

    def __post_init__(self) -> None:
        known = Mechanism.of(self.mechanism)
        if known is None:
            raise ArgumentError(f"Expected a mechanism, got {type_name(self.mechanism)}.")
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            raise ArgumentError("Expected name to be a text without '/'.")
        prior, given = positive_array(prior=self.prior), numbers_or_none(self.values)
        if given is None or not np.all(np.isfinite(given)):
            raise ArgumentError("Expected values to be an array of finite numbers.")
        values = given[None] if given.ndim == prior.ndim else given.copy()
        if values.shape[1:] != prior.shape or len(values) == 0:
            raise ArgumentError(
                f"Expected values to have the shape of the prior, {prior.shape}, or several outputs of it, got "
                f"{given.shape}."
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "prior", prior)
        object.__setattr__(self, "n_records", self.mechanism.public_records(self.n_records))
        object.__setattr__(self, "sampler", self.mechanism.checked_sampler(self.sampler))
        object.__setattr__(self, "steps", self.mechanism.checked_steps(self.steps, str(self.sampler)))
        # Anyone who hands over what cannot be read learns of it here.
        if self.joint_rows is None:
            self.row_likelihoods()

    @property
    def possible_records(self) -> None:
        """Nothing is taken for granted of a private number of records."""

    @property
    def blocks(self) -> list[tuple[NDArray[np.intp], int]]:
        """The rows whose records the output tells to add up to a number, and that number."""
        return [(rows, round(total)) for rows, total in self.mechanism.published_totals(self.values[0])]

    @property
    def least(self) -> int:
        """What every cell is guaranteed to hold."""
        return math.ceil(self.mechanism.min_count or 0)

    @property
    def family(self) -> str:
        """Shares of all categories are shown."""
        return "dirichlet"

    @property
    def cell_labels(self) -> Labels:
        """Axes of the table, named as PyMC names them."""
        return tuple((f"{self.name}_dim_{axis}", None) for axis in range(self.prior.ndim))

    @property
    def share_labels(self) -> Labels:
        """Axes of the shares, which are those of the table."""
        return self.cell_labels

    @property
    def mechanism_names(self) -> tuple[str, ...]:
        """The class of the mechanism."""
        return (type(self.mechanism).__name__,)

    @property
    def observed(self) -> list[tuple[Array, Labels]]:
        """The outputs."""
        return [(self.values, (("output", None), *self.cell_labels))]

    @property
    def cell_noise(self) -> CellNoise | None:
        """The noise on each cell, of one output; None for several, or another mechanism."""
        return self.mechanism.cell_noise if len(self.values) == 1 else None

    @cached_property
    def joint_rows(self) -> JointLikelihoods | None:
        """The likelihood of all rows together, where noise has a latent radius; otherwise None."""
        found = self.mechanism.joint_rows(self.values[0])
        if found is not None and len(self.values) > 1:
            raise ArgumentError("Expected one output of a joint mechanism: several are not read together.")
        return found

    @property
    def measurements(self) -> tuple[()]:
        """Marginals are read from releases, which name their variables."""
        return ()

    def row_likelihoods(self) -> list[list[RowLikelihood]]:
        """For each row, the likelihoods of all outputs.

        Raises
        ------
        ArgumentError
            If this cannot come from the mechanism, or its distribution is no product.
        """
        return self._rows

    @cached_property
    def _rows(self) -> list[list[RowLikelihood]]:
        each = [
            self.mechanism.likelihoods_of_rows(
                output, n_records=self.n_records, sampler=str(self.sampler), steps=self.steps
            )
            for output in self.values
        ]
        return [list(row) for row in zip(*each, strict=True)]

    def damaged(self, problem: str) -> ArgumentError:
        """The error about numbers that cannot come from any mechanism."""
        return ArgumentError(f"{problem[:1].upper()}{problem[1:]}. Check the output, the mechanism and n_records.")
