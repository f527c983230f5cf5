"""Public formulas over released variables: written as facts, read without trust, evaluated by NumPy.

Nothing in this file knows PyTensor, so what was released is computed again without the model.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pymc_dirdp.errors import ArgumentError, shown, type_name

__all__ = ["MOST_NUMBERS", "OPERATIONS", "Expression", "Step", "computed", "in_order"]

MOST_NUMBERS = 10**7
"""The steps of one expression compute at most this many numbers together, for one draw."""

_MOST_STEPS = 10_000
_MOST_AXES = 32
# NumPy takes as long for an argument as for so many numbers.
_PER_ARGUMENT = 100
_DTYPES = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float32", "float64")
_FAILURES = (ArithmeticError, IndexError, MemoryError, TypeError, ValueError)

Values = NDArray[Any]
Shape = tuple[int, ...]


class Operation(NamedTuple):
    """What a step does with its arguments and parameters.

    `shape` takes the shapes of the arguments, and refuses what `compute` cannot do; it computes no array.
    """

    compute: Callable[..., Any]
    shape: Callable[..., Sequence[int]]
    least: int
    most: int
    parameters: tuple[str, ...] = ()


class Step(NamedTuple):
    """One step of an expression: an operation, the steps whose values are its arguments, and its parameters."""

    operation: str
    arguments: tuple[int, ...]
    parameters: Mapping[str, Any]

    @property
    def fact(self) -> list[Any]:
        """The step as its expression writes it."""
        return [self.operation, list(self.arguments), dict(self.parameters)]


@dataclass(frozen=True)
class Expression:
    """A formula over released variables and public numbers, a list of steps whose last one is its value.

    Parameters
    ----------
    text : str
        The steps as JSON.
    released : tuple of (str, tuple of int)
        The released variables that it uses, each with its shape in one draw.
    shape : tuple of int
        The shape of its value at one draw.

    Examples
    --------
    >>> steps = [["released", [], {"name": "p"}], ["sum", [0], {"axes": [0]}]]
    >>> expression = Expression.from_facts(steps, {"p": (3,)})
    >>> expression.evaluate({"p": np.array([[0.5, 0.25, 0.25]])})
    array([1.])
    """

    text: str
    released: tuple[tuple[str, Shape], ...]
    shape: Shape

    @property
    def facts(self) -> list[Any]:
        """The steps, each an operation, the places of its arguments among the steps, and its parameters."""
        return cast("list[Any]", json.loads(self.text))

    @classmethod
    def from_facts(cls, facts: object, released_shapes: Mapping[str, Shape]) -> "Expression":
        """Read an expression from facts, of which nothing is believed.

        Parameters
        ----------
        facts : list
            What `facts` gave, in the same order.
        released_shapes : dict of str to tuple of int
            The shape of each released variable in one draw.

        Raises
        ------
        ArgumentError
            If this is no expression over these variables, is not written as `facts` writes it, or computes more than
            `MOST_NUMBERS` numbers.
        """
        if not isinstance(facts, list) or not 0 < len(facts) <= _MOST_STEPS:
            raise ArgumentError(f"Expected the facts of an expression to be a list of 1 to {_MOST_STEPS} steps.")
        steps = [_step(place, fact, released_shapes) for place, fact in enumerate(facts)]
        shapes: list[Shape] = []
        total = 0
        for place, step in enumerate(steps):
            try:
                shape, cost = _shape_and_cost(step, [shapes[i] for i in step.arguments], released_shapes)
            except _FAILURES:
                _refuse(place, f"parameters of {step.operation!r} that fit its arguments")
            total += cost
            if len(shape) > _MOST_AXES or total > MOST_NUMBERS:
                _refuse(place, f"at most {_MOST_AXES} axes and {MOST_NUMBERS} numbers in all")
            shapes.append(shape)
        # A step that is not used, is there twice or comes too early would be another text of the same formula.
        if in_order(steps, len(steps) - 1) != steps:
            raise ArgumentError("Expected the steps of an expression to stand once each, in the order of their use.")
        used = sorted({step.parameters["name"] for step in steps if step.operation == "released"})
        released = tuple((name, tuple(released_shapes[name])) for name in used)
        text = json.dumps([step.fact for step in steps], ensure_ascii=False, allow_nan=False)
        expression = cls(text, released, shapes[-1])
        # A step may still refuse the dtype of its arguments, so the formula is tried once.
        expression.evaluate({name: np.full((1, *shape), 0.5) for name, shape in released})
        return expression

    def evaluate(self, draws: Mapping[str, Values]) -> Values:
        """The value at each draw.

        Draws are taken one by one, so that a value does not depend on the other draws, and no more memory is used than
        one draw needs.

        Parameters
        ----------
        draws : dict of str to array of shape (draws, ...)
            The draws of the released variables that the expression uses; others are ignored.

        Returns
        -------
        array of shape (draws, ...)
            What cannot be computed is infinite or NaN.

        Raises
        ------
        ArgumentError
            If a variable is missing or has another shape, or an integer power or an index has no value at these draws.
        """
        arrays = {}
        for name, shape in self.released:
            array = np.asarray(draws[name]) if name in draws else None
            if array is None or array.ndim == 0 or array.shape[1:] != shape or array.dtype.kind not in "biuf":
                raise ArgumentError(f"Expected draws of {shown(name)}, an array of numbers of shape (draws, *{shape}).")
            arrays[name] = array.astype(np.float64)
        n_draws = {len(array) for array in arrays.values()} or {1}
        if len(n_draws) > 1 or 0 in n_draws:
            raise ArgumentError("Expected the same number of draws of each released variable, and at least one.")
        steps = [Step(operation, tuple(arguments), given) for operation, arguments, given in self.facts]
        constants = {i: _constant(**step.parameters) for i, step in enumerate(steps) if step.operation == "constant"}
        results = []
        for draw in range(n_draws.pop()):
            values: list[Values] = []
            for place, step in enumerate(steps):
                if step.operation == "released":
                    value = arrays[step.parameters["name"]][draw]
                elif place in constants:
                    value = constants[place]
                else:
                    try:
                        value = computed(step, [values[i] for i in step.arguments])
                    except _FAILURES:
                        _refuse(place, f"arguments that {step.operation!r} can take at every draw")
                values.append(value)
            results.append(values[-1])
        return np.stack(results)


def computed(step: Step, arguments: Sequence[Values]) -> Values:
    """The value of a step that is an operation: floating errors give infinite values and NaN, as in PyTensor."""
    with np.errstate(all="ignore"):
        return np.asarray(OPERATIONS[step.operation].compute(*arguments, **step.parameters))


def in_order(steps: Sequence[Step], last: int) -> list[Step]:
    """The steps that the value of the step `last` needs, each once, and after those that it uses.

    Raises
    ------
    ArgumentError
        If there are more than an expression may have.
    """
    new: dict[int, int] = {}
    texts: dict[str, int] = {}
    ordered: list[Step] = []
    waiting = [last]
    while waiting:
        place = waiting.pop()
        if place in new:
            continue
        missing = [i for i in steps[place].arguments if i not in new]
        if missing:
            waiting += [place, *reversed(missing)]
            continue
        step = steps[place]._replace(arguments=tuple(new[i] for i in steps[place].arguments))
        text = json.dumps(step.fact)
        if text not in texts:
            texts[text] = len(ordered)
            ordered.append(step)
        new[place] = texts[text]
    if len(ordered) > _MOST_STEPS:
        raise ArgumentError(f"Expected an expression of at most {_MOST_STEPS} steps, got {len(ordered)}.")
    return ordered


def _refuse(place: int, wanted: str) -> NoReturn:
    raise ArgumentError(f"Expected step {place} of the expression to have {wanted}.") from None


def _step(place: int, fact: object, released: Mapping[str, Shape]) -> Step:
    """One step whose operation, number of arguments and names and types of parameters are those of this file."""
    if not isinstance(fact, list) or len(fact) != 3:
        _refuse(place, "three parts: an operation, arguments and parameters")
    operation, arguments, given = fact
    if not isinstance(operation, str) or operation not in OPERATIONS:
        _refuse(
            place, f"a known operation, got {shown(operation) if isinstance(operation, str) else type_name(operation)}"
        )
    known = OPERATIONS[operation]
    if not _are_places(arguments, place) or not known.least <= len(arguments) <= known.most:
        _refuse(place, f"{known.least} to {known.most} earlier steps as arguments")
    if not isinstance(given, dict) or tuple(given) != known.parameters:
        _refuse(place, f"the parameters {list(known.parameters)}, in this order")
    for name, value in given.items():
        if not _PARAMETERS[name](value):
            _refuse(place, f"a parameter {name!r} of the type that {operation!r} takes")
    if operation == "released" and given["name"] not in released:
        _refuse(place, "the name of a released variable")
    if operation == "constant" and not _is_written_as_read(**given):
        _refuse(place, "the finite numbers of its dtype and shape")
    return Step(operation, tuple(arguments), given)


def _shape_and_cost(step: Step, shapes: Sequence[Shape], released: Mapping[str, Shape]) -> tuple[Shape, int]:
    """The shape of a step's value, and how many numbers are read and written in the time that it takes."""
    if step.operation == "released":
        shape = tuple(released[step.parameters["name"]])
    else:
        shape = tuple(OPERATIONS[step.operation].shape(*shapes, **step.parameters))
    # An empty axis does not make the others free: NumPy refuses shapes that are too large in other axes.
    written = math.prod(max(length, 1) for length in shape)
    if step.operation == "matmul":
        return shape, written * max(shapes[0][-1], 1)
    return shape, max([max(written, _PER_ARGUMENT) * max(len(shapes), 1), *(math.prod(shape) for shape in shapes)])


# Types of parameters; what they mean is checked by the shape of each operation.


def _is_whole(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**64


def _are_whole(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_whole, value))


def _are_places(value: object, end: int) -> bool:
    return _are_whole(value) and all(0 <= place < end for place in cast("list[int]", value))


def _are_lengths(value: object) -> bool:
    return _are_places(value, MOST_NUMBERS + 1) and len(cast("list[int]", value)) <= _MOST_AXES


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and all(
        type(number) is bool or _is_whole(number) or (type(number) is float and math.isfinite(number))
        for number in value
    )


def _is_index(value: object) -> bool:
    if not isinstance(value, list) or len(value) > _MOST_AXES:
        return False
    return all(one is None or _is_whole(one) or (_are_whole(one) and len(one) == 3) for one in value)


_PARAMETERS: dict[str, Callable[[object], bool]] = {
    "name": lambda value: isinstance(value, str),
    "dtype": lambda value: isinstance(value, str) and value in _DTYPES,
    "shape": _are_lengths,
    "values": _are_numbers,
    "axis": _is_whole,
    "axes": _are_lengths,
    "order": _is_index,
    "index": _is_index,
}


def _constant(dtype: str, shape: Sequence[int], values: Sequence[float]) -> Values:
    return np.array(values, dtype=dtype).reshape(shape)


def _is_written_as_read(dtype: str, shape: Sequence[int], values: Sequence[float]) -> bool:
    """Whether the numbers, of their types, are exactly those of an array."""
    if math.prod(shape) != len(values):
        return False
    try:
        # A number beyond the range of a small float would be read as infinite.
        with np.errstate(all="ignore"):
            back = np.array(values, dtype=dtype).tolist()
    except _FAILURES:
        return False
    return all(type(one) is type(other) and one == other for one, other in zip(back, values, strict=True))


# Shapes. Each raises one of `_FAILURES` where the arguments do not fit.


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError


def _axes_left(shape: Shape, axes: Sequence[int]) -> Shape:
    _require(list(axes) == sorted(set(axes)) and all(axis < len(shape) for axis in axes))
    return tuple(length for axis, length in enumerate(shape) if axis not in axes)


def _along(shape: Shape, axis: int) -> Shape:
    _require(0 <= axis < len(shape))
    return shape


def _broadcast_to(given: Shape, shape: Sequence[int]) -> Sequence[int]:
    _require(np.broadcast_shapes(given, tuple(shape)) == tuple(shape))
    return shape


def _reshaped(given: Shape, shape: Sequence[int]) -> Sequence[int]:
    _require(math.prod(given) == math.prod(shape))
    return shape


def _ordered(shape: Shape, order: Sequence[int | None]) -> Shape:
    present = [axis for axis in order if axis is not None]
    _require(len(set(present)) == len(present) and all(0 <= axis < len(shape) for axis in present))
    _require(all(shape[axis] == 1 for axis in set(range(len(shape))) - set(present)))
    return tuple(1 if axis is None else shape[axis] for axis in order)


def _joined(*shapes: Shape, axis: int) -> Shape:
    first = _along(shapes[0], axis)
    rest = [(*shape[:axis], *shape[axis + 1 :]) for shape in shapes]
    _require(all(one == rest[0] and len(shape) == len(first) for one, shape in zip(rest, shapes, strict=True)))
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _stacked(*shapes: Shape) -> Shape:
    _require(len(set(shapes)) == 1)
    return (len(shapes), *shapes[0])


def _product(left: Shape, right: Shape) -> Shape:
    _require(len(left) >= 2 and len(right) >= 2 and left[-1] == right[-2])
    return (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])


def _indexed(shape: Shape, *arrays: Shape, index: Sequence[Any]) -> Shape:
    _require(len(index) == len(shape) and sum(one is None for one in index) == len(arrays))
    for one, length in zip(index, shape, strict=True):
        if isinstance(one, list):
            start, count, step = one
            _require(0 <= count <= MOST_NUMBERS and step != 0)
            _require(count == 0 or (0 <= start < length and 0 <= start + (count - 1) * step < length))
        elif one is not None:
            _require(0 <= one < length)
    cut = [(axis, one[1]) for axis, one in enumerate(index) if isinstance(one, list)]
    if not arrays:
        return tuple(count for _, count in cut)
    # Next to arrays, NumPy takes a number as one of them. They keep their place if they stand together.
    taken = [axis for axis, one in enumerate(index) if not isinstance(one, list)]
    first = taken[0] if taken[-1] - taken[0] == len(taken) - 1 else 0
    before = [count for axis, count in cut if axis < first]
    after = [count for axis, count in cut if axis >= first]
    return (*before, *np.broadcast_shapes(*arrays), *after)


def _entries(index: Sequence[Any], arrays: Sequence[Values]) -> Iterator[Any]:
    waiting = iter(arrays)
    for one in index:
        if isinstance(one, list):
            start, count, step = one
            stop = start + count * step
            yield slice(start, stop if stop >= 0 else None, step) if count else slice(0, 0)
        else:
            yield next(waiting) if one is None else one


def _taken(array: Values, *arrays: Values, index: Sequence[Any]) -> Values:
    if any(one.dtype.kind not in "iu" for one in arrays):
        raise TypeError("An index is an integer.")
    return cast("Values", array[tuple(_entries(index, arrays))])


def _argmax(array: Values, axes: Sequence[int]) -> Values:
    rest = [axis for axis in range(array.ndim) if axis not in axes]
    turned = array.transpose(*rest, *axes)
    return np.argmax(turned.reshape(*turned.shape[: len(rest)], math.prod(turned.shape[len(rest) :])), axis=-1)


def _turned(array: Values, order: Sequence[int | None]) -> Values:
    present = [axis for axis in order if axis is not None]
    dropped = [axis for axis in range(array.ndim) if axis not in present]
    turned = array.transpose(*present, *dropped)
    return turned.reshape([1 if axis is None else array.shape[axis] for axis in order])


def _over(function: Callable[..., Any]) -> Operation:
    def compute(array: Values, axes: Sequence[int]) -> Any:
        return function(array, axis=tuple(axes))

    return Operation(compute, _axes_left, 1, 1, ("axes",))


def _folded(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: reduce(function, arrays)


_OF_ONE = (
    "negative absolute sign square sqrt reciprocal ceil floor trunc rint exp exp2 expm1 log log2 log10 log1p "
    "invert isnan isinf sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh"
)
_OF_TWO = (
    "subtract true_divide floor_divide mod power arctan2 equal not_equal less less_equal greater greater_equal "
    "bitwise_and bitwise_or bitwise_xor"
)
OPERATIONS: dict[str, Operation] = {
    "released": Operation(lambda: None, lambda: (), 0, 0, ("name",)),
    "constant": Operation(_constant, lambda dtype, shape, values: shape, 0, 0, ("dtype", "shape", "values")),
    **{name: Operation(getattr(np, name), np.broadcast_shapes, 1, 1) for name in _OF_ONE.split()},
    **{name: Operation(getattr(np, name), np.broadcast_shapes, 2, 2) for name in _OF_TWO.split()},
    **{
        name: Operation(_folded(getattr(np, name)), np.broadcast_shapes, 2, _MOST_STEPS)
        for name in ("add", "multiply", "maximum", "minimum")
    },
    **{
        name: Operation(getattr(special, name), np.broadcast_shapes, 1, 1)
        for name in ("expit", "gamma", "gammaln", "digamma", "erf", "erfc", "erfinv", "erfcinv")
    },
    "where": Operation(np.where, np.broadcast_shapes, 3, 3),
    # PyTensor asks for the lower bound first, also where it is above the upper one.
    "clip": Operation(lambda x, a, b: np.where(x < a, a, np.where(x > b, b, x)), np.broadcast_shapes, 3, 3),
    "round_half_away_from_zero": Operation(
        lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), np.broadcast_shapes, 1, 1
    ),
    "softplus": Operation(lambda x: np.logaddexp(0.0, x), np.broadcast_shapes, 1, 1),
    "cast": Operation(lambda x, dtype: x.astype(dtype), lambda shape, dtype: shape, 1, 1, ("dtype",)),
    **{name: _over(getattr(np, name)) for name in ("sum", "prod", "max", "any", "all")},
    "logsumexp": _over(special.logsumexp),
    "argmax": Operation(_argmax, _axes_left, 1, 1, ("axes",)),
    **{name: Operation(getattr(np, name), _along, 1, 1, ("axis",)) for name in ("cumsum", "cumprod")},
    "sort": Operation(np.sort, _along, 1, 1, ("axis",)),
    "argsort": Operation(lambda x, axis: np.argsort(x, axis, kind="stable"), _along, 1, 1, ("axis",)),
    "matmul": Operation(np.matmul, _product, 2, 2),
    "join": Operation(lambda *arrays, axis: np.concatenate(arrays, axis), _joined, 1, _MOST_STEPS, ("axis",)),
    "stack": Operation(lambda *arrays: np.stack(arrays), _stacked, 1, _MOST_STEPS),
    "reshape": Operation(lambda x, shape: x.reshape(shape), _reshaped, 1, 1, ("shape",)),
    "broadcast": Operation(lambda x, shape: np.broadcast_to(x, shape), _broadcast_to, 1, 1, ("shape",)),
    "axes": Operation(_turned, _ordered, 1, 1, ("order",)),
    "index": Operation(_taken, _indexed, 1, _MOST_AXES + 1, ("index",)),
}
"""All that a step may do, by name."""
