"""Codes: data that say which row of a table a record feeds. Their arrays are found here, and not read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.tensor.elemwise import Elemwise

from pymc_dirdp.models.cells import Codes
from pymc_dirdp.models.graph import Node, origin, root_of, stored_array

__all__ = ["Parent", "parent_of"]


@dataclass(frozen=True, eq=False)
class Parent:
    """An array of codes, and the data that it is computed from, record by record.

    Attributes
    ----------
    name : str
        The name of the array, or what it is if it has no name.
    index : Variable
        The codes, or truth values, as a formula of stored arrays.
    stored : tuple of Variable
        These arrays. Each entry of one decides one code.
    places : tuple of int
        For each axis of these arrays, the axis of `index` that it follows. Other axes of `index` have length 1.
    on : tuple of (int or None)
        For each axis of these arrays, the axis of the observations that it follows; None for an axis of length 1.
    truth : bool
        Whether `index` holds truth values.
    """

    name: str
    index: Node
    stored: tuple[Node, ...]
    places: tuple[int, ...]
    on: tuple[int | None, ...]
    truth: bool

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of the observations that it follows."""
        return tuple(axis for axis in self.on if axis is not None)

    def lengths(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one of these arrays where the observations have this batch shape."""
        return tuple(1 if axis is None else shape[axis] for axis in self.on)


def parent_of(codes: Codes, model: pm.Model) -> Parent | None:
    """The parent behind codes; None if they are computed from anything but data, or from several records each."""
    index = codes.index
    observed = index in model.observed_RVs
    known = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    given = known.get(index, index)
    # PyMC casts a `pm.Data` of floats that is observed; elsewhere a cast may change the codes.
    array = stored_array(given, through_rounding=observed)
    if array is not None:
        formula, leaves = array, [(array, tuple(range(array.type.ndim)))]
    else:
        (formula,) = clone_replace([given], known)
        found = list(_leaves(formula, tuple(range(formula.type.ndim))))
        leaves = [leaf for leaf in found if leaf is not None]
        if len(leaves) < len(found):
            return None
    places = {place for _, place in leaves}
    if len(places) != 1 or places == {()}:
        return None
    (place,) = places
    on = tuple(codes.on[k] for k in place)
    if all(axis is None for axis in on):
        return None
    stored = tuple(dict.fromkeys(leaf for leaf, _ in leaves))
    return Parent(_name(index, stored), formula, stored, place, on, codes.truth)


def _leaves(node: Node, place: tuple[int, ...]) -> Iterator[tuple[Node, tuple[int, ...]] | None]:
    """The stored arrays behind a formula and the axes on which they lie; None for what is not computed entry by entry.

    `place` has the axis of the formula on which each axis of the node lies.
    """
    source, axes = origin(node)
    place = tuple(place[axis] for axis in axes)
    if isinstance(source, Constant) and np.size(source.data) == 1:
        return
    if root_of(source) is not None:
        yield source, place
    elif source.owner is not None and isinstance(source.owner.op, Elemwise):
        for part in source.owner.inputs:
            yield from _leaves(part, place)
    else:
        yield None


def _name(index: Node, stored: Sequence[Node]) -> str:
    """The name of the codes, or of the data behind them."""
    named = [root.name for array in stored if (root := root_of(array)) is not None and root.name]
    return str(index.name or " and ".join(dict.fromkeys(map(str, named))) or "an array")
