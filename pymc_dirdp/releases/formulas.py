"""The parts of a formula over released variables: operations, arrays and single numbers, public or not."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import Subtensor

from pymc_dirdp.models.graph import Node

__all__ = ["entries_taken", "is_a_list", "is_array", "is_number", "is_own_function", "made_of", "numbers_of"]

# A formula may hold this many single numbers, however small its tables are.
_SHORT = 12


def made_of(deterministic: Node, inputs: list[Node]) -> list[Node]:
    """The variables that a Deterministic is computed from, apart from the released ones.

    They include the variables inside of its operations, such as those of the step of a scan.
    """
    released = set(inputs)
    outside = [node for node in ancestors([deterministic], blockers=inputs) if node not in released]
    return [*outside, *_inside(outside)]


def _inside(nodes: Iterable[Node]) -> list[Node]:
    inside: list[Node] = []
    for op in {node.owner.op for node in nodes if node.owner is not None}:
        for inner in (op, getattr(op, "core_op", None), getattr(op, "scalar_op", None)):
            if isinstance(inner, HasInnerGraph):
                graph = list(ancestors(inner.inner_outputs))
                inside += [*graph, *_inside(graph)]
    return inside


def is_own_function(node: Node) -> bool:
    """Whether an operation of the user's own, whose content cannot be seen, computes this variable."""
    if node.owner is None:
        return False
    ops = (node.owner.op, getattr(node.owner.op, "core_op", None), getattr(node.owner.op, "scalar_op", None))
    known = all(op is None or type(op).__module__.split(".")[0] in ("pytensor", "pymc") for op in ops)
    return not known or any(isinstance(op, FromFunctionOp) for op in ops)


def is_number(node: Node) -> bool:
    """Whether a node is a single number that was written into the model."""
    return isinstance(node, Constant) and np.size(node.data) == 1


def is_array(node: Node) -> bool:
    """Whether a node is an array of two numbers or more that was written into the model."""
    return isinstance(node, Constant) and np.size(node.data) > 1


def numbers_of(above: list[Node]) -> list[complex]:
    """The numbers in the arithmetic of a Deterministic, as often as they are used; not the indices of entries."""
    return [
        np.asarray(number.data).item()  # type: ignore[attr-defined]
        for node in _applied(above)
        if not isinstance(node.op, Subtensor)
        for number in node.inputs
        if is_number(number) and np.asarray(number.data).dtype.kind in "iufc"  # type: ignore[attr-defined]
    ]


def _applied(above: list[Node]) -> "list[Apply[Any]]":
    return list(dict.fromkeys(node.owner for node in above if node.owner is not None))


def entries_taken(above: list[Node]) -> list[int]:
    """The indices of single entries that are taken from any variable."""
    return [
        int(np.asarray(number.data))  # type: ignore[attr-defined]
        for node in _applied(above)
        if isinstance(node.op, Subtensor)
        for number in node.inputs[1:]
        if is_number(number)
    ]


def is_a_list(above: list[Node], cells: int) -> bool:
    """Whether there are so many single numbers or entries that they could be an array, written number by number.

    A formula uses each of the `cells` of its tables a few times. A list of people is longer.
    """
    widest = max((len(node.inputs) for node in _applied(above)), default=0)
    taken = sum(isinstance(node.op, Subtensor) for node in _applied(above))
    return max(len(numbers_of(above)) + taken, widest) > max(_SHORT, 3 * cells)
