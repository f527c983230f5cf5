"""Index maps: which cell of which array each entry of a formula is."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.models.graph import Node

# Index maps: which cell of which table each entry of a tensor is. They are public, apart from codes not yet read.


Cells = NDArray[np.int64]
"""The numbers of cells."""


class UnreadableError(Exception):
    """A tensor is no index map of shares. The argument says why, as a clause about the tensor."""


@dataclass(frozen=True)
class Codes:
    """An array of codes, which is data, and the axes of a tensor along which it chooses.

    Attributes
    ----------
    index : Variable
        The codes, or an array whose truth values choose between entry 0 (false) and entry 1 (true).
    on : tuple of (int or None)
        For each axis of `index`: the axis of the tensor that it follows; None for an axis of length 1.
    truth : bool
        Whether truth values choose.
    """

    index: Node
    on: tuple[int | None, ...]
    truth: bool = False

    @property
    def followed(self) -> tuple[int, ...]:
        """The axes of the tensor that it follows."""
        return tuple(axis for axis in self.on if axis is not None)


@dataclass(frozen=True, eq=False)
class CellMap:
    """Which cell each entry of a tensor is.

    The entry at `(i_0, i_1, ...)` is the cell `cells[j_0, j_1, ...]`, where `j_k` is `i_a` if `axes[k]` is the number
    `a`, and the code of the entry if it is `Codes`. A tensor repeats itself along axes that nothing follows.

    Attributes
    ----------
    cells : ndarray of int64
        Numbers of cells.
    axes : tuple of (int or Codes)
        What decides each axis of `cells`.
    ndim : int
        The number of axes of the tensor.
    """

    cells: Cells
    axes: tuple[int | Codes, ...]
    ndim: int

    @property
    def codes(self) -> tuple[Codes, ...]:
        """The codes that choose cells."""
        return tuple(axis for axis in self.axes if isinstance(axis, Codes))

    def place(self, axis: int) -> int | None:
        """The axis of `cells` that an axis of the tensor decides by position; None if none."""
        return self.axes.index(axis) if axis in self.axes else None

    def chosen_along(self, axis: int) -> bool:
        """Whether codes lie along an axis of the tensor."""
        return any(axis in codes.on for codes in self.codes)

    def last(self, axis: int) -> Cells:
        """The cells with the axis that `axis` of the tensor decides put last."""
        place = self.place(axis)
        assert place is not None
        return np.moveaxis(self.cells, place, -1)


@dataclass(frozen=True, eq=False)
class Numbering:
    """The numbers of all cells of several tables, one table after the other and each in C order.

    Attributes
    ----------
    names : tuple of str
        The tables.
    shapes : tuple of tuple of int
        Their shapes, categories last.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def starts(self) -> Cells:
        """The number of the first cell of each table, and that after the last one."""
        return np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])

    def of_table(self, name: str) -> Cells:
        """The numbers of the cells of a table."""
        i = self.names.index(name)
        return np.arange(self.starts[i], self.starts[i + 1]).reshape(self.shapes[i])

    def table_of(self, cells: Cells) -> Cells:
        """The position of the table of each cell."""
        return np.asarray(np.searchsorted(self.starts, cells, side="right") - 1)

    def ranges(self) -> list[tuple[str, int, int]]:
        """For each table, its name, its first number and the one after its last."""
        return [(name, int(a), int(b)) for name, (a, b) in zip(self.names, pairwise(self.starts), strict=True)]

    def names_in(self, cells: Cells) -> list[str]:
        """The tables that hold any of these cells."""
        return [self.names[i] for i in np.flatnonzero(np.bincount(self.table_of(cells).ravel()))]

    def categories(self, cells: Cells) -> Cells:
        """The number of categories of each cell's table."""
        return np.array([shape[-1] for shape in self.shapes])[self.table_of(cells)]

    def row_of(self, cells: Cells) -> Cells:
        """The number of the first cell in the row of each cell."""
        start = self.starts[self.table_of(cells)]
        d = self.categories(cells)
        return np.asarray(start + (cells - start) // d * d)

    def others(self, cells: Cells) -> Cells:
        """The other cell of each row of two.

        Raises
        ------
        UnreadableError
            If a row has more than two cells.
        """
        if np.any(self.categories(cells) != 2):
            raise UnreadableError(
                "is one share taken from 1: the rest are several categories together, which is no cell"
            )
        first = self.row_of(cells)
        return np.asarray(2 * first + 1 - cells)

    def are_rows(self, cells: Cells) -> bool:
        """Whether each line along the last axis holds all cells of one row, each of them once."""
        first = self.row_of(cells[..., :1])
        d = self.categories(cells[..., :1])
        if np.any(d != cells.shape[-1]):
            return False
        return bool(np.array_equal(np.sort(cells, axis=-1), first + np.arange(cells.shape[-1])))
