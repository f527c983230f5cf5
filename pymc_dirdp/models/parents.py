"""Conditional tables: which row of `theta[parents]` a record feeds."""

from dataclasses import dataclass
from typing import Any

import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dirdp.models.graph import Node, operation, origin

__all__ = ["Indexing", "indexing", "parent_name", "stored_parent"]


@dataclass(frozen=True)
class Indexing:
    """`parameter[indices]`, with an index array for each of the leading axes."""

    parameter: Node
    indices: tuple[Node, ...]


def indexing(probability: Node) -> Indexing | None:
    """How `probability` is indexed out of a variable; None where it is not, or in another way."""
    source, axes = origin(probability)
    # Axes that were added afterwards would let one record feed several rows.
    if source.owner is None or axes != tuple(range(probability.type.ndim)):
        return None
    op: Any = source.owner.op
    parameter, *indices = source.owner.inputs
    # A slice leaves rows to be matched by position; None adds an axis.
    if not isinstance(op, AdvancedSubtensor) or op.idx_list != tuple(range(len(indices))):
        return None
    # A mask selects rows by position: its True and False are no codes.
    if any(index.type.dtype == "bool" for index in indices):
        return None
    return Indexing(parameter, tuple(indices))


def stored_parent(index: Node, model: pm.Model) -> Node | None:
    """The constant or shared variable that holds the codes of an index array; None where they are computed.

    It is an array, a `pm.Data`, or the observed values of another variable of the model.
    """
    observed = index in model.observed_RVs
    codes = model.rvs_to_values[index] if observed else index
    # PyMC casts a `pm.Data` of floats that is observed; elsewhere a cast may change the codes.
    array, axes = origin(codes, through_rounding=observed)
    stored = isinstance(array, Constant | SharedVariable) and array.type.ndim > 0
    return array if stored and len(axes) == codes.type.ndim else None


def parent_name(index: Node) -> str:
    """The name of an index array, or what it is if it has no name."""
    if index.name:
        return str(index.name)
    return "an array" if index.owner is None else operation(index)
