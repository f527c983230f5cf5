"""Families of a network, and noisy measurements of marginals of its records."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array


@final
@dataclass(frozen=True, eq=False)
class Family:
    """A variable with its parents.

    Attributes
    ----------
    name : str
        Name of the table of shares.
    axes : tuple of str
        The names of the parents, followed by that of the variable.
    shape : tuple of int
        The number of values of each.

    Examples
    --------
    >>> Family("p_survived", ("class", "sex", "survived"), (4, 2, 2)).shape
    (4, 2, 2)
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]

    @property
    def parents(self) -> tuple[str, ...]:
        """The names of the parents."""
        return self.axes[:-1]

    @property
    def variable(self) -> str:
        """The name of the variable itself."""
        return self.axes[-1]

    @property
    def sorted(self) -> "Family":
        """The same family with the parents in the order of their names."""
        axes = (*sorted(self.parents), self.variable)
        return Family(self.name, axes, tuple(self.shape[self.axes.index(axis)] for axis in axes))

    def as_given(self, table: Array) -> Array:
        """Transpose a table of the sorted family to the order of the parents of this family."""
        sorted_axes = self.sorted.axes
        return table.transpose([sorted_axes.index(axis) for axis in self.axes])


@final
@dataclass(frozen=True, eq=False)
class Measurement:
    """A noisy marginal: counts of the records by some variables, with noise of mean 0.

    Attributes
    ----------
    axes : tuple of str
        The names of the variables.
    noisy : array
        The noisy counts, with an axis for each variable.
    variance : float
        Variance of the noise of one cell; the noise of different cells is independent. If the total is known and the
        noise adds up to 0, it is the variance of independent noise that is conditioned on its sum. For an epsilon of
        thousands the variance is 0 in doubles and is replaced by 1e-9, because 1 / variance is needed.

    Examples
    --------
    >>> Measurement(("sex",), np.array([40.0, 61.0]), 2.0).noisy.shape
    (2,)
    """

    axes: tuple[str, ...]
    noisy: Array
    variance: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", max(self.variance, 1e-9))

    def onto(self, axes: Sequence[str]) -> "Measurement | None":
        """The measurement marginalised to the variables in `axes`, in their order; None if there are none.

        Counts are summed over the other variables, and so are the variances of the noise.
        """
        common = tuple(axis for axis in axes if axis in self.axes)
        if not common:
            return None
        others = tuple(i for i, axis in enumerate(self.axes) if axis not in common)
        shared = [axis for axis in self.axes if axis in common]
        summed = self.noisy.sum(axis=others).transpose([shared.index(axis) for axis in common])
        cells = math.prod(self.noisy.shape[i] for i in others)
        return Measurement(common, summed, self.variance * cells)


def number_of_records(measurements: Sequence[Measurement]) -> float:
    """The estimated number of records, at least 1: the mean of the noisy totals, weighted by precision.

    The variance of a total is that of a cell times the number of cells. Totals have independent noise.

    Examples
    --------
    >>> number_of_records([Measurement(("sex",), np.array([40.0, 61.0]), 2.0)])
    101.0
    """
    precisions = [1 / (measurement.variance * measurement.noisy.size) for measurement in measurements]
    totals = [measurement.noisy.sum() for measurement in measurements]
    return max(1.0, float(np.dot(precisions, totals) / np.sum(precisions)))
