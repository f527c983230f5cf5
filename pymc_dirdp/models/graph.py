"""Questions about PyTensor graphs. Nothing in this file knows what a table is."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytensor
from numpy.typing import NDArray
from pytensor.compile.mode import Mode
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Cast, Identity
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type_other import NoneTypeT

__all__ = [
    "Node",
    "compiled_plainly",
    "evaluate",
    "is_random",
    "operation",
    "origin",
    "parameters",
    "root_of",
    "stored_array",
    "stored_shape",
    "values_read",
]

Node = Variable[Any, Any]
"""A variable of PyTensor's graph, of any type."""

# The default mode compiles for seconds to save microseconds. These graphs are a few nodes long and run once.
PLAIN = Mode(linker="py", optimizer=None)  # type: ignore[arg-type]


def compiled_plainly(inputs: Sequence[Node], outputs: Any) -> Callable[..., Any]:
    """A function that runs in Python.

    The compiler is switched off as well: some operations, such as a softmax, would call it even in Python mode.
    """
    with pytensor.config.change_flags(cxx=""):  # type: ignore[attr-defined]
        function: Callable[..., Any] = pytensor.function(  # type: ignore[attr-defined]
            inputs, outputs, mode=PLAIN, on_unused_input="ignore"
        )
    return function


def evaluate(variable: Node) -> NDArray[Any]:
    """The present value of a graph that has no free inputs; about half a millisecond."""
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=False))
    return np.asarray(compiled_plainly([], variable)())


def stored_array(variable: Node, *, through_rounding: bool = False) -> Node | None:
    """The stored array, or the part of one, that a variable is a copy of; None if it is computed in another way.

    A stored array is a constant or a shared variable. A part is taken out by slices and numbers that are written into
    the model, or has its axes in another order, so that no entry of it occurs twice.
    """
    source, axes = origin(variable, through_rounding=through_rounding)
    return source if len(axes) == variable.type.ndim and root_of(source) is not None else None


def root_of(array: Node) -> Node | None:
    """The whole stored array of which an array is a part; None if it is no part of one."""
    while array.owner is not None:
        op, (source, *entries) = array.owner.op, array.owner.inputs
        moved = isinstance(op, DimShuffle) and sorted(map(str, op.new_order)) == sorted(map(str, range(op.input_ndim)))
        cut = type(op) is Subtensor and all(isinstance(entry, Constant) for entry in entries)
        if not moved and not cut:
            return None
        array = source
    return array if isinstance(array, Constant | SharedVariable) else None


def stored_shape(array: Node) -> tuple[int, ...]:
    """The shape of a stored array or of a part of one, without a look at what it holds."""
    if array.owner is not None:
        return tuple(np.shape(evaluate(array)))
    if isinstance(array, SharedVariable):
        return tuple(np.shape(array.get_value(borrow=True)))
    return tuple(np.shape(array.data))  # type: ignore[attr-defined]


def values_read(variable: Node) -> Iterator[Node]:
    """The variable and all variables whose values decide its value; not those of which only the shape is used."""
    seen: set[Node] = set()
    waiting = [variable]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        yield current
        if current.owner is not None and not isinstance(current.owner.op, Shape | Shape_i):
            waiting.extend(current.owner.inputs)


def is_random(variable: Node) -> bool:
    """Whether the variable is the output of a distribution."""
    return variable.owner is not None and isinstance(variable.owner.op, RNGConsumerOp)


def parameters(rv: Node) -> tuple[Node | None, tuple[Node, ...]]:
    """The size (None where the parameters decide it) and the parameters of a random variable."""
    # The op is asked, because the positions among its inputs differ between versions of PyMC.
    op: Any = rv.owner.op
    size = op.size_param(rv.owner)
    return (None if size is None or isinstance(size.type, NoneTypeT) else size), tuple(op.dist_params(rv.owner))


def origin(variable: Node, *, through_rounding: bool = False) -> tuple[Node, tuple[int, ...]]:
    """The variable that this one is a copy of, possibly with new axes of length 1.

    Parameters
    ----------
    variable : Variable
        Any tensor.
    through_rounding : bool, default False
        Whether to look through a cast to integers, which is no copy if the values are not whole.

    Returns
    -------
    source : Variable
        The first variable on the way back that is more than a copy of the one before it.
    axes : tuple of int
        For each axis of `source`, the axis of `variable` on which it lands; increasing.
    """
    axes = list(range(variable.type.ndim))
    while variable.owner is not None:
        op = variable.owner.op
        # A DimShuffle that keeps the order of the axes only adds new ones.
        if (undone := _undone(variable)) is not None:
            variable = undone
            continue
        if isinstance(op, DimShuffle) and list(op.shuffle) == list(range(op.input_ndim)):
            axes = [axis for axis, moved in zip(axes, op.new_order, strict=True) if moved != "x"]
        elif not _is_copy(op, through_rounding):
            break
        variable = variable.owner.inputs[0]
    return variable, tuple(axes)


def _undone(variable: Node) -> Node | None:
    """The variable before two moves of axes of which the second undoes the first; None if there are none."""
    inner = variable.owner.inputs[0]
    if (
        inner.owner is None
        or not isinstance(variable.owner.op, DimShuffle)
        or not isinstance(inner.owner.op, DimShuffle)
    ):
        return None
    first = inner.owner.op.new_order
    both = ["x" if axis == "x" else first[axis] for axis in variable.owner.op.new_order]
    source = inner.owner.inputs[0]
    return source if both == list(range(source.type.ndim)) else None


def _is_copy(op: Any, through_rounding: bool) -> bool:
    if isinstance(op, ViewOp | SpecifyShape):
        return True
    if not isinstance(op, Elemwise):
        return False
    if isinstance(op.scalar_op, Cast):
        return through_rounding or op.scalar_op.o_type.dtype.startswith("float")
    return isinstance(op.scalar_op, Identity)


def operation(variable: Node) -> str:
    """The name of the operation behind the variable: `Poisson`, `Sub`, `AdvancedSubtensor`. Never its inputs."""
    op: Any = variable.owner.op
    inner = op.scalar_op if isinstance(op, Elemwise) else op
    return type(inner).__name__.removesuffix("RV")
