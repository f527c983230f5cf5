"""What taking, choosing and putting together entries of a tensor does to its index map."""

from typing import Any

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_dirdp.models.cells import CellMap, Cells, Codes, UnreadableError
from pymc_dirdp.models.graph import Node, evaluate

__all__ = ["chosen", "full_cells", "public_value", "slices_along", "taken", "with_inputs"]


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


def taken(map_: CellMap, entries: list[Any]) -> CellMap:
    """The map after entries were taken by numbers and slices that are written into the model."""
    cells, axes, moved = map_.cells, list(map_.axes), dict[int, int]()
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
            moved[axis] = len(moved)
    kept = tuple(one.moved(moved) if isinstance(one, Codes) else moved[one] for one in axes)
    return CellMap(cells, kept, len(moved))


def _literal(entry: Any) -> Any:
    if isinstance(entry, slice):
        return slice(*(_literal(part) for part in (entry.start, entry.stop, entry.step)))
    return entry if entry is None or isinstance(entry, int) else int(public_value(entry)[0])


def with_inputs(entry: slice, inputs: list[Node]) -> slice:
    """The slice with the inputs of an operation in the place of their numbers."""
    parts = (entry.start, entry.stop, entry.step)
    return slice(*(None if part is None else inputs[part] if isinstance(part, int) else part for part in parts))


def _is_number(entry: Any) -> bool:
    return not isinstance(entry, slice) and entry.type.ndim == 0


def chosen(map_: CellMap, entries: list[Any], ndim: int) -> CellMap:
    """The map after rows were chosen by arrays of codes, which are data, beside slices and numbers."""
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
    map_ = taken(map_, cut)
    by_arrays = [axis for axis, entry in enumerate(entries) if not isinstance(entry, slice)]
    width = max(entries[axis].type.ndim for axis in by_arrays)
    together = by_arrays == list(range(by_arrays[0], by_arrays[-1] + 1))
    # NumPy puts the axes of index arrays where the first of them was, or in front if a slice lies between them.
    front = by_arrays[0] if together else 0
    rest = [axis for axis in range(map_.ndim) if axis not in by_arrays]
    moved = {axis: k if k < front else k + width for k, axis in enumerate(rest)}
    axes: list[int | Codes] = []
    cells = map_.cells
    for one in map_.axes:
        if isinstance(one, Codes):
            axes.append(one.moved(moved))
        elif one in moved:
            axes.append(moved[one])
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
