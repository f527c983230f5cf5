"""What a likelihood sees of a table: rows and categories in another order, some of them, or a cell for each outcome."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.models.cells import Cells

__all__ = ["View"]


class View:
    """A public map from the cells that a likelihood counts in to those of a table.

    Parameters
    ----------
    cells : ndarray of int64, shape (*rows, k)
        For every cell that the likelihood counts in: its number among the cells of the table, in C order; -1 if it
        belongs to another table.
    by_codes : bool, default False
        Whether codes, which are data, decide between this table and others.
    """

    __slots__ = ("by_codes", "cells")
    cells: Cells
    by_codes: bool

    def __init__(self, cells: NDArray[Any], by_codes: bool = False) -> None:
        own = np.array(cells, dtype=np.int64)
        own.flags.writeable = False
        self.cells, self.by_codes = own, by_codes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the counts that the likelihood makes."""
        return self.cells.shape

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which rows of the likelihood belong to this table."""
        return np.asarray(self.cells[..., 0] >= 0)

    def carried(self, counts: Cells, shape: tuple[int, ...]) -> Cells:
        """The counts of the table, of this shape, from those that the likelihood has made."""
        inside = self.cells >= 0
        found = np.zeros(int(np.prod(shape)), dtype=np.int64)
        np.add.at(found, self.cells[inside], counts[inside])
        return found.reshape(shape)

    def rows(self, n_categories: int) -> Cells:
        """The number of the table's row behind each row of the likelihood; -1 if it belongs to another table."""
        return np.where(self.inside, self.cells[..., 0] // n_categories, -1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, View):
            return NotImplemented
        return np.array_equal(self.cells, other.cells) and self.by_codes == other.by_codes

    def __hash__(self) -> int:
        return hash((self.shape, self.cells.tobytes(), self.by_codes))

    def __reduce__(self) -> tuple[Any, ...]:
        return View, (np.array(self.cells), self.by_codes)

    def __repr__(self) -> str:
        # The digest of a plan has this text, so it tells views apart.
        digest = hashlib.sha256(self.cells.tobytes()).hexdigest()[:16]
        return f"View(shape={self.shape}, by_codes={self.by_codes}, sha256={digest})"
