"""The Deterministics of a model as expressions that NumPy evaluates without the model."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, unflatten_index_variables

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.expressions import Expression, Step, computed, in_order
from pymc_dirdp.models.graph import Node, compiled_plainly, is_random, operation

__all__ = ["translated"]

Values = NDArray[Any]

# Operations on each entry: PyTensor's name and that of the expression.
_ELEMENTWISE = {
    **{"Add": "add", "Mul": "multiply", "Sub": "subtract", "TrueDiv": "true_divide", "IntDiv": "floor_divide"},
    **{"Mod": "mod", "Pow": "power", "Neg": "negative", "Abs": "absolute", "Sign": "sign", "Sqr": "square"},
    **{"Sqrt": "sqrt", "Reciprocal": "reciprocal", "Ceil": "ceil", "Floor": "floor", "Trunc": "trunc"},
    **{"RoundHalfToEven": "rint", "RoundHalfAwayFromZero": "round_half_away_from_zero", "Clip": "clip"},
    **{name: name.lower() for name in ("Exp", "Exp2", "Expm1", "Log", "Log2", "Log10", "Log1p", "IsNan", "IsInf")},
    **{name: name.lower() for name in ("Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Invert", "Softplus")},
    **{f"Arc{name}{h}": f"arc{name.lower()}{h}" for name in ("Sin", "Cos", "Tan") for h in ("", "h")},
    **{"ArcTan2": "arctan2", "Sigmoid": "expit", "Gamma": "gamma", "GammaLn": "gammaln", "Psi": "digamma"},
    **{"Erf": "erf", "Erfc": "erfc", "Erfinv": "erfinv", "Erfcinv": "erfcinv"},
    **{"Maximum": "maximum", "Minimum": "minimum", "Switch": "where"},
    **{"EQ": "equal", "NEQ": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater", "GE": "greater_equal"},
    **{"AND": "bitwise_and", "OR": "bitwise_or", "XOR": "bitwise_xor"},
}
_REDUCTIONS = {name: name.lower() for name in ("Sum", "Prod", "Max", "Any", "All", "Argmax", "LogSumExp")}
_COPIES = ViewOp | SpecifyShape | TensorFromScalar | ScalarFromTensor


class _UnknownError(Exception):
    """The reason why a Deterministic has no expression, after its name."""


def translated(model: pm.Model, name: str, released: Mapping[str, Sequence[int]]) -> Expression | str:
    """The expression of a Deterministic over released variables.

    Its value by NumPy is that by PyTensor at three public points, to 1e-12.

    Parameters
    ----------
    model : Model
        The model; one without variables of `pymc.dims`, see `lowered`.
    name : str
        The Deterministic.
    released : dict of str to tuple of int
        The shape of each released variable in one draw. Names that are no variable of the model are ignored.

    Returns
    -------
    Expression or str
        The expression, or why there is none, as half a sentence about the Deterministic that depends on the graph and
        on public points alone.
    """
    shapes = {one: tuple(shape) for one, shape in released.items() if one in model.named_vars}
    points = [{one: _public_point(shape, number) for one, shape in shapes.items()} for number in range(3)]
    inputs = {model[one]: value for one, value in points[2].items()}
    try:
        steps = _Steps(inputs)
        last = steps.of(model[name])
        expression = Expression.from_facts([step.fact for step in in_order(steps.steps, last)], shapes)
        function = compiled_plainly(list(inputs), model[name])
        for point in points:
            by_model = np.asarray(function(*point.values()))
            own = expression.evaluate({one: value[None] for one, value in point.items()})[0]
            # The differences of shares that are rounded have an error of their own.
            alike = own.dtype == by_model.dtype and own.shape == by_model.shape
            if not (alike and np.allclose(own, by_model, rtol=1e-12, atol=1e-15, equal_nan=True)):
                return "its formula has other values at public points"
    except _UnknownError as error:
        return str(error)
    except (ArgumentError, ArithmeticError, AssertionError, IndexError, TypeError, ValueError):
        return "it is larger than a formula may be, or has no value at public points"
    return expression


def _public_point(shape: tuple[int, ...], number: int) -> Values:
    """Shares that add up to 1 along the last axis: at first equal ones, then two others."""
    if not shape:
        return np.asarray([0.5, 0.3, 0.8][number])
    parts = np.arange(math.prod(shape)).reshape(shape) * ([0.0, math.sqrt(2), math.sqrt(3)][number]) % 1 + 0.1
    # A single share would be 1, which is no share of a Beta.
    return np.asarray(parts / (parts.sum(axis=-1, keepdims=True) if shape[-1] > 1 else 1.2))


class _Steps:
    """Steps that are added one by one, with their values at a public point, which show their shapes and dtypes."""

    def __init__(self, inputs: Mapping[Node, Values]) -> None:
        self.inputs = dict(inputs)
        self.steps: list[Step] = []
        self.values: list[Values] = []
        self.places: dict[Node, int] = {}
        # Whether the value of a variable follows from shapes and constants.
        self.fixed: dict[Node, bool] = {}
        self.inlined: dict[Any, Sequence[Node]] = {}

    def of(self, variable: Node) -> int:
        """The place of the step whose value is that of the variable."""
        order = list(toposort([variable], blockers=self.inputs))
        for node in order:
            from_shapes = isinstance(node.op, Shape | Shape_i) or all(map(self.is_fixed, node.inputs))
            self.fixed |= dict.fromkeys(node.outputs, from_shapes)
        # What is under a fixed variable needs no steps. The graph may be deeper than Python's stack.
        needed: set[Node] = set()
        waiting = [variable]
        while waiting:
            one = waiting.pop()
            if one.owner is not None and one not in needed and one not in self.inputs and not self.is_fixed(one):
                needed.add(one)
                waiting += one.owner.inputs
        for node in order:
            for output in needed.intersection(node.outputs).difference(self.places):
                self.places[output] = self._translate(output)
        return self.place(variable)

    def is_fixed(self, variable: Node) -> bool:
        return isinstance(variable, Constant) or self.fixed.get(variable, False)

    def place(self, variable: Node) -> int:
        """The place of a variable whose inputs have theirs."""
        if variable not in self.places:
            called = f" {variable.name!r}" if variable.name else ""
            if variable in self.inputs:
                place = self.add("released", (), {"name": variable.name}, value=self.inputs[variable])
                self.places[variable] = self.cast(place, variable.type.dtype)
            elif self.is_fixed(variable):
                self.places[variable] = self.constant(self.fixed_value(variable))
            else:
                kind = "data" if isinstance(variable, SharedVariable) else "variable"
                raise _UnknownError(f"it depends on the {kind}{called}, which is not released")
        return self.places[variable]

    def fixed_value(self, variable: Node) -> Values:
        """The value of a variable that no released variable and no data decide."""
        if isinstance(variable, Constant):
            return np.asarray(variable.data)
        if not self.is_fixed(variable):
            raise _UnknownError("it uses a shape or a position that is computed from released variables")
        if isinstance(variable.owner.op, _COPIES):
            return self.fixed_value(variable.owner.inputs[0])
        if any(isinstance(one, SharedVariable) for one in ancestors([variable], blockers=self.inputs)):
            raise _UnknownError("it depends on the shape of data")
        return np.asarray(compiled_plainly(list(self.inputs), variable)(*self.inputs.values()))

    def number(self, variable: Node) -> int:
        return int(self.fixed_value(variable))

    def add(
        self, name: str, arguments: Sequence[int], parameters: dict[str, Any], *, value: Values | None = None
    ) -> int:
        step = Step(name, tuple(arguments), parameters)
        self.values.append(computed(step, [self.values[i] for i in arguments]) if value is None else value)
        self.steps.append(step)
        return len(self.steps) - 1

    def constant(self, value: Values) -> int:
        if value.dtype.kind not in "biuf":
            raise _UnknownError(f"it holds numbers of the type {value.dtype}")
        if not np.isfinite(value).all():
            raise _UnknownError("it holds a number that is not finite")
        first = value.reshape(-1)[:1]
        if value.size > 1 and value.tobytes() == first.tobytes() * value.size:
            return self.add("broadcast", [self.constant(first.reshape(()))], {"shape": list(value.shape)})
        parts = {"dtype": str(value.dtype), "shape": list(value.shape), "values": value.reshape(-1).tolist()}
        return self.add("constant", (), parts, value=value)

    def cast(self, place: int, dtype: str) -> int:
        if self.values[place].dtype == dtype:
            return place
        if self.steps[place].operation == "constant":
            return self.constant(self.values[place].astype(dtype))
        return self.add("cast", [place], {"dtype": dtype})

    def typed(self, name: str, arguments: Sequence[int], parameters: dict[str, Any], dtype: str) -> int:
        """A step whose value has the dtype that PyTensor gives to it."""
        place = self.add(name, arguments, parameters)
        if self.values[place].dtype != dtype and dtype.startswith("float"):
            # PyTensor computes small integers as doubles at once, and NumPy computes them as floats of few digits.
            unchanged = 1 if name == "where" else 0
            casts = [self.cast(one, dtype) for one in arguments[unchanged:]]
            place = self.add(name, [*arguments[:unchanged], *casts], parameters)
        return self.cast(place, dtype)

    def _translate(self, output: Node) -> int:
        node, op, name = output.owner, output.owner.op, operation(output)
        inputs, dtype = node.inputs, str(getattr(output.type, "dtype", ""))
        if is_random(output):
            raise _UnknownError(f"it depends on the variable {output.name!r}, which is not released")
        if isinstance(op, _COPIES):
            return self.place(inputs[0])
        if isinstance(op, Subtensor | AdvancedSubtensor):
            return self._entries(inputs[0], unflatten_index_variables(inputs[1:], op.idx_list))
        if isinstance(op, OpFromGraph) and name != "LogSumExp":
            if node not in self.inlined:
                inner = dict(zip(op.inner_inputs, inputs, strict=True))
                # Newer versions of PyTensor freeze inner graphs, and bind their inputs.
                bound = hasattr(op.fgraph, "bind")
                self.inlined[node] = (
                    op.fgraph.bind(inner) if bound else graph_replace(op.inner_outputs, inner, strict=False)
                )
            return self.of(self.inlined[node][node.outputs.index(output)])
        if name == "IfElse":
            taken = inputs[1 : 1 + op.n_outs] if self.fixed_value(inputs[0]) else inputs[1 + op.n_outs :]
            return self.place(taken[node.outputs.index(output)])
        if isinstance(op, Elemwise):
            return self._elementwise(output, inputs, dtype)
        if isinstance(op, Dot) or (isinstance(op, Blockwise) and isinstance(op.core_op, Dot)):
            return self.typed("matmul", [self.place(one) for one in inputs], {}, dtype)
        if isinstance(op, Join):
            axis, arrays = self._along(output)
            return self.typed("join", [self.place(one) for one in arrays], {"axis": axis}, dtype)
        if isinstance(op, MakeVector):
            return self.typed("stack", [self.place(one) for one in inputs], {}, dtype)
        return self._of_one(output, self.place(inputs[0]), dtype)

    def _elementwise(self, output: Node, inputs: Sequence[Node], dtype: str) -> int:
        scalar, name = output.owner.op.scalar_op, operation(output)
        places = [self.place(one) for one in inputs]
        if name in ("Identity", "Cast"):
            return self.cast(places[0], dtype)
        if name == "Second":
            shape = np.broadcast_shapes(*(self.values[place].shape for place in places))
            return self.cast(self.add("broadcast", places[1:], {"shape": list(shape)}), dtype)
        if name not in _ELEMENTWISE or type(scalar).__module__.split(".")[0] != "pytensor":
            raise _UnknownError(f"it uses the operation {name}, which a formula does not have")
        return self.typed(_ELEMENTWISE[name], places, {}, dtype)

    def _along(self, output: Node) -> tuple[int, list[Node]]:
        """The axis of an operation, and its other inputs; older versions of PyTensor have the axis among the inputs."""
        op, inputs = output.owner.op, list(output.owner.inputs)
        if hasattr(op, "axis"):
            return op.axis % output.type.ndim, inputs
        axis = int(self.fixed_value(inputs.pop(0 if isinstance(op, Join) else 1)))
        return axis % output.type.ndim, inputs

    def _of_one(self, output: Node, array: int, dtype: str) -> int:
        """An operation on one array, and on numbers that are no released variables."""
        op, inputs, name = output.owner.op, output.owner.inputs, operation(output)
        shape = self.values[array].shape
        match op:
            case DimShuffle():
                return self._turned(array, [None if axis == "x" else int(axis) for axis in op.new_order])
            case Reshape():
                wanted = np.reshape(self.values[array], self.fixed_value(inputs[1]).tolist()).shape
                return self.add("reshape", [array], {"shape": list(wanted)})
            case Alloc():
                return self.add("broadcast", [array], {"shape": [self.number(one) for one in inputs[1:]]})
            case Split():
                axis, (_, lengths) = self._along(output)
                ends = np.cumsum(self.fixed_value(lengths)).tolist()
                number = output.owner.outputs.index(output)
                cut = slice([0, *ends][number], ends[number])
                return self._index(array, [*[slice(None)] * axis, cut])
            case ExtractDiag():
                rest = [axis for axis in range(len(shape)) if axis not in (op.axis1, op.axis2)]
                square = self._turned(array, [*rest, op.axis1, op.axis2])
                down, right = max(-op.offset, 0), max(op.offset, 0)
                place = np.arange(max(min(shape[op.axis1] - down, shape[op.axis2] - right), 0))
                return self._index(square, [*[slice(None)] * len(rest), place + down, place + right])
            case Repeat():
                repeated = np.repeat(np.arange(shape[op.axis]), self.fixed_value(inputs[1]))
                return self._index(array, [*[slice(None)] * op.axis, repeated])
            case CumOp():
                return self.typed("cumsum" if op.mode == "add" else "cumprod", [array], {"axis": op.axis}, dtype)
            case SortOp() | ArgSortOp():
                axis, _ = self._along(output)
                return self.add("sort" if isinstance(op, SortOp) else "argsort", [array], {"axis": axis})
            case _ if name in _REDUCTIONS:
                axes = range(len(shape)) if op.axis is None else sorted(op.axis)
                return self.typed(_REDUCTIONS[name], [array], {"axes": list(axes)}, dtype)
        name = type(op.core_op).__name__ if isinstance(op, Blockwise) else name
        raise _UnknownError(f"it uses the operation {name}, which a formula does not have")

    def _turned(self, array: int, order: list[int | None]) -> int:
        same = order == list(range(self.values[array].ndim))
        return array if same else self.add("axes", [array], {"order": order})

    def _entries(self, source: Node, entries: Sequence[Any]) -> int:
        """Entries of an array: by numbers and slices, by public arrays, or at places that are computed."""
        given: list[Any] = []
        for entry in entries:
            if isinstance(entry, slice):
                ends = (entry.start, entry.stop, entry.step)
                given.append(slice(*(None if end is None else self.number(end) for end in ends)))
            elif self.is_fixed(entry):
                value = self.fixed_value(entry)
                given += value.nonzero() if value.dtype == "bool" else [value]
            elif entry.type.dtype == "bool":
                raise _UnknownError("its shape may differ between draws")
            else:
                given.append(self.place(entry))
        return self._index(self.place(source), given)

    def _index(self, array: int, entries: Sequence[slice | Values | int]) -> int:
        """Entries by slices, by fixed places, and by steps whose values are places; other axes are whole."""
        shape = self.values[array].shape
        whole = [slice(None)] * (len(shape) - len(entries))
        index: list[Any] = []
        arrays: list[int] = []
        for entry, length in zip([*entries, *whole], shape, strict=True):
            if isinstance(entry, slice):
                start, stop, step = entry.indices(length)
                count = len(range(start, stop, step))
                index.append([start, count, step] if count else [0, 0, 1])
            elif isinstance(entry, np.ndarray) and entry.ndim == 0:
                index.append(int(entry) % length if -length <= entry < length else int(entry))
            else:
                index.append(None)
                arrays.append(
                    entry if isinstance(entry, int) else self.constant(np.where(entry < 0, entry + length, entry))
                )
        if index == [[0, length, 1] for length in shape]:
            return array
        return self.add("index", [array, *arrays], {"index": index})
