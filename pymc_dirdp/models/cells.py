"""Index maps: which cell of which array each entry of a formula is."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_dirdp.models.graph import Node, evaluate

if TYPE_CHECKING:
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

    index: "Node"
    on: tuple[int | None, ...]
    truth: bool = False

    def renumbered(self, axes: dict[int, int]) -> "Codes":
        """The same codes of a tensor whose axes have been renumbered."""
        followed = [axis for axis in self.on if axis is not None]
        if any(axis not in axes for axis in followed):
            raise UnreadableError("is cut along an axis whose rows are chosen by codes")
        return Codes(self.index, tuple(None if axis is None else axes[axis] for axis in self.on), self.truth)


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

    def renumbered(self, axes: dict[int, int], ndim: int) -> "CellMap":
        """The map of a tensor whose axis `a` is now `axes[a]`; an axis that is not named had length 1."""
        cells, own_axes = self.cells, list(self.axes)
        for axis in range(self.ndim):
            if axis not in axes and axis in own_axes:
                place = own_axes.index(axis)
                cells = np.take(cells, 0, axis=place)
                del own_axes[place]
        return CellMap(
            cells, tuple(one.renumbered(axes) if isinstance(one, Codes) else axes[one] for one in own_axes), ndim
        )

    def last(self, axis: int) -> Cells:
        """The cells with the axis that `axis` of the tensor decides put last."""
        place = self.place(axis)
        assert place is not None
        return np.moveaxis(self.cells, place, -1)


def aligned(maps: Sequence[CellMap]) -> tuple[list[Cells], tuple[int | Codes, ...]]:
    """The cells of several tensors of as many axes over the same axes, which are codes first and then positions."""
    found = dict.fromkeys(axis for one in maps for axis in one.axes)
    codes = [axis for axis in found if isinstance(axis, Codes)]
    axes: tuple[int | Codes, ...] = (*codes, *sorted(axis for axis in found if isinstance(axis, int)))
    arrays = []
    for one in maps:
        order = sorted(range(len(one.axes)), key=lambda k, own=one.axes: axes.index(own[k]))  # type: ignore[misc]
        lengths = {one.axes[k]: one.cells.shape[k] for k in order}
        arrays.append(one.cells.transpose(order).reshape([lengths.get(axis, 1) for axis in axes]))
    try:
        return list(np.broadcast_arrays(*arrays)), axes
    except ValueError:
        raise UnreadableError("puts together shares whose shapes do not fit") from None


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


# What taking, choosing and putting together entries of a tensor does to its index map.


def public_value(node: Node) -> Cells:
    """The value of a shape or an index that is written into the model, or follows from the shape of a prior."""
    for leaf in ancestors([node]):
        if leaf.owner is None and not isinstance(leaf, Constant) and not isinstance(leaf.type, RandomType):
            raise UnreadableError("has a shape or an index that is computed in the model")
    return np.atleast_1d(evaluate(node))


def full_cells(map_: CellMap, node: Node) -> Cells:
    """The cells of a tensor without codes, with all axes of the tensor."""
    lengths = [
        map_.cells.shape[place] if (place := map_.place(axis)) is not None else length
        for axis, length in enumerate(node.type.shape)
    ]
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths):
        raise UnreadableError("is repeated a number of times that is not written into the model")
    positions = [axis for axis in map_.axes if isinstance(axis, int)]
    single = [n if axis in positions else 1 for axis, n in enumerate(known)]
    return np.broadcast_to(map_.cells.transpose(np.argsort(positions)).reshape(single), known)


def _taken(map_: CellMap, entries: Sequence[Any]) -> CellMap:
    """The map after entries were taken by numbers and slices that are written into the model."""
    cells, axes, renumbered = map_.cells, list(map_.axes), dict[int, int]()
    for axis in range(map_.ndim):
        entry = _literal(entries[axis]) if axis < len(entries) else slice(None)
        if entry != slice(None) and map_.chosen_along(axis):
            raise UnreadableError("is cut along an axis whose rows are chosen by codes")
        place = axes.index(axis) if axis in axes else None
        if place is not None and entry != slice(None):
            try:
                cells = cells[(slice(None),) * place + (entry,)]
            except IndexError:
                raise UnreadableError("takes an entry that is not there") from None
            if isinstance(entry, int):
                del axes[place]
        if isinstance(entry, slice):
            renumbered[axis] = len(renumbered)
    own_axes = tuple(one.renumbered(renumbered) if isinstance(one, Codes) else renumbered[one] for one in axes)
    return CellMap(cells, own_axes, len(renumbered))


def _literal(entry: Any) -> Any:
    if isinstance(entry, slice):
        return slice(*(_literal(part) for part in (entry.start, entry.stop, entry.step)))
    return entry if entry is None or isinstance(entry, int) else int(public_value(entry)[0])


def _is_number(entry: Any) -> bool:
    return not isinstance(entry, slice) and entry.type.ndim == 0


def indexed(map_: CellMap, entries: Sequence[Any], ndim: int) -> CellMap:
    """The map after entries were taken by slices and numbers of the model, and by arrays of codes, which are data."""
    if all(isinstance(entry, slice) or _is_number(entry) for entry in entries):
        return _taken(map_, entries)
    entries = [*entries, *[slice(None)] * (map_.ndim - len(entries))]
    for entry in entries:
        if not isinstance(entry, slice) and entry.type.dtype == "bool":
            raise UnreadableError("is chosen by a mask, which keeps rows by position")
    # Slices and numbers come first. An axis with a number keeps its place, at length 1, for NumPy's rule below.
    cut = [_literal(entry) if isinstance(entry, slice) else slice(None) for entry in entries]
    for axis, entry in enumerate(entries):
        if _is_number(entry):
            at = int(public_value(entry)[0])
            cut[axis] = slice(at, at + 1 if at != -1 else None)
    map_ = _taken(map_, cut)
    by_arrays = [axis for axis, entry in enumerate(entries) if not isinstance(entry, slice)]
    width = max(entries[axis].type.ndim for axis in by_arrays)
    together = by_arrays == list(range(by_arrays[0], by_arrays[-1] + 1))
    # NumPy puts the axes of index arrays where the first of them was, or in front if a slice lies between them.
    front = by_arrays[0] if together else 0
    rest = [axis for axis in range(map_.ndim) if axis not in by_arrays]
    renumbered = {axis: k if k < front else k + width for k, axis in enumerate(rest)}
    axes: list[int | Codes] = []
    cells = map_.cells
    for one in map_.axes:
        if isinstance(one, Codes):
            axes.append(one.renumbered(renumbered))
        elif one in renumbered:
            axes.append(renumbered[one])
        elif _is_number(entries[one]):
            cells = np.take(cells, 0, axis=len(axes))
        else:
            index = entries[one]
            start = front + width - index.type.ndim
            # Also along axes of length 1: PyMC would repeat such codes, and reading the data finds that out.
            axes.append(Codes(index, tuple(range(start, start + index.type.ndim))))
    return CellMap(cells, tuple(axes), ndim)


def slices_along(map_: CellMap, part: Node, axis: int) -> list[CellMap]:
    """The map at each entry along an axis of the tensor."""
    if map_.chosen_along(axis):
        raise UnreadableError("is put together along an axis whose rows are chosen by codes")
    place = map_.place(axis)
    if place is None:
        length = 1 if part.type.ndim == 0 else part.type.shape[axis]
        if length is None:
            raise UnreadableError("is repeated a number of times that is not written into the model")
        return [map_] * length
    axes = tuple(one for one in map_.axes if one != axis)
    return [CellMap(np.take(map_.cells, k, axis=place), axes, map_.ndim) for k in range(map_.cells.shape[place])]
