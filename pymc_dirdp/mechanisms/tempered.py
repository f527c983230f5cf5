"""The parameters of a draw from `Dirichlet(r * counts + alpha)`, and of an urn that draws it."""

from dataclasses import dataclass
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array

__all__ = ["Tempered"]


@final
@dataclass(frozen=True)
class Tempered:
    """A mechanism whose output is itself a draw from `Dirichlet(r * counts + alpha)`.

    Attributes
    ----------
    alpha : array, shape (..., d)
    r : float
        How much one record counts.
    steps : int, optional
        The output is the counts of an urn of so many steps, if their number is decided.
    """

    alpha: Array
    r: float
    steps: int | None = None

    def matched(self, n_records: float) -> "Tempered":
        """A Dirichlet distribution with the means and variances of the shares of the urn, for so many records in all.

        With `u0` the sum of a row's parameters, `m` steps multiply the variance by `1 + u0 / m`, as does a factor of
        `(m - 1) / (u0 + m)` on all parameters. Rows have an equal share of the records here.
        """
        if self.steps is None:
            return self
        totals = self.alpha.sum(axis=-1)
        row = float(np.mean(totals)) + self.r * n_records / totals.size
        factor = max(self.steps - 1, 0.5) / (row + self.steps)
        return Tempered(factor * self.alpha, factor * self.r)
