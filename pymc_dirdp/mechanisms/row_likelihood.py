"""What an output says of one row of a table: a factor for each cell, and one for the row's total."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowLikelihood"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class RowLikelihood:
    """The likelihood of an output as a function of the counts of one row.

    It is `exp(of_total(sum_i x_i)) * prod_i exp(of_cells(x_i, i))`.

    Attributes
    ----------
    of_cells : callable
        `of_cells(counts, cells)`: the logarithm of the factor of each cell. Counts and cells are arrays that broadcast
        against each other.
    of_total : callable
        `of_total(totals)`: the logarithm of the factor of the row's total, elementwise.
    smooth : bool
        Whether `of_cells` follows a smooth curve with few kinks between whole counts, too.
    """

    of_cells: Callable[[Array, Integers], Array]
    of_total: Callable[[Array], Array]
    smooth: bool
