"""Index maps: which cell of which table each entry of a formula is. They are public, apart from unread codes."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.models.graph import Node

Cells = NDArray[np.int64]
"""The numbers of cells."""


class UnreadableError(Exception):
    """A tensor is not an index map of shares. The argument gives the reason, as a clause about the tensor."""


@dataclass(frozen=True)
class Codes:
    """An array of codes, which are data, and the axes of a tensor along which it chooses entries.

    Attributes
    ----------
    index : Variable
        The codes, or an array whose truth values choose entry 0 (false) or entry 1 (true).
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
    """The cell behind each entry of a tensor.

    The entry at `(i_0, i_1, ...)` is the cell `cells[j_0, j_1, ...]`, where `j_k` is `i_a` if `axes[k]` is the number
    `a`, and the code of the entry if it is `Codes`. The tensor is constant along all other axes.

    Attributes
    ----------
    cells : ndarray of int64
        Numbers of cells.
    axes : tuple of (int or Codes)
        For each axis of `cells`, the axis of the tensor or the codes that it follows.
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
        """The axis of `cells` that follows an axis of the tensor by position; None if there is none."""
        return self.axes.index(axis) if axis in self.axes else None

    def chosen_along(self, axis: int) -> bool:
        """Whether codes lie along an axis of the tensor."""
        return any(axis in codes.on for codes in self.codes)

    def last(self, axis: int) -> Cells:
        """The cells, with the axis that follows `axis` of the tensor as the last one."""
        place = self.place(axis)
        assert place is not None
        return np.moveaxis(self.cells, place, -1)


@dataclass(frozen=True, eq=False)
class Numbering:
    """Numbers for the cells of several tables: table after table, each in C order.

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
        """The number of the first cell of each table, and one past the last cell."""
        return np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])

    def of_table(self, name: str) -> Cells:
        """The numbers of the cells of a table."""
        i = self.names.index(name)
        return np.arange(self.starts[i], self.starts[i + 1]).reshape(self.shapes[i])

    def table_of(self, cells: Cells) -> Cells:
        """The position of the table of each cell."""
        return np.asarray(np.searchsorted(self.starts, cells, side="right") - 1)

    def ranges(self) -> list[tuple[str, int, int]]:
        """For each table, its name, its first number, and one past its last number."""
        return [(name, int(a), int(b)) for name, (a, b) in zip(self.names, pairwise(self.starts), strict=True)]

    def names_in(self, cells: Cells) -> list[str]:
        """The tables that contain any of these cells."""
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
                "is 1 minus one of several shares, which is the sum of the other categories and not a cell"
            )
        first = self.row_of(cells)
        return np.asarray(2 * first + 1 - cells)

    def are_rows(self, cells: Cells) -> bool:
        """Whether each line along the last axis contains every cell of one row exactly once."""
        first = self.row_of(cells[..., :1])
        d = self.categories(cells[..., :1])
        if np.any(d != cells.shape[-1]):
            return False
        return bool(np.array_equal(np.sort(cells, axis=-1), first + np.arange(cells.shape[-1])))
