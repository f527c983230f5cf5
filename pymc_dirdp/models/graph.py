"""Queries on the graph of a model, and copies of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.dims.distributions import transforms
from pymc.initial_point import make_initial_point_expression
from pymc.pytensorf import find_rng_nodes, replace_rng_nodes, reseed_rngs
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode, optdb
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Cast, Identity
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import Subtensor, get_idx_list
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT
from pytensor.xtensor.basic import TensorFromXTensor
from pytensor.xtensor.type import XTensorType

# Queries on PyTensor graphs. Nothing in this file depends on tables.


Node = Variable[Any, Any]
"""A variable of PyTensor's graph, of any type."""

# The default mode compiles for seconds to save microseconds. These graphs are a few nodes long and run once.
PLAIN = Mode(linker="py", optimizer=None)  # type: ignore[arg-type]


@contextmanager
def plain_mode() -> Iterator[Mode]:
    """The mode of functions that run in Python.

    The compiler is switched off as well: some operations, such as a softmax, would call it even in Python mode.
    """
    with pytensor.config.change_flags(cxx=""):  # type: ignore[attr-defined]
        yield PLAIN


def compile_plain(inputs: Sequence[Node], outputs: Any) -> Callable[..., Any]:
    """A function that runs in Python."""
    with plain_mode() as mode:
        function: Callable[..., Any] = pytensor.function(  # type: ignore[attr-defined]
            inputs, outputs, mode=mode, on_unused_input="ignore"
        )
    return function


def evaluate(variable: Node) -> NDArray[Any]:
    """The current value of a graph without free inputs. This takes about half a millisecond."""
    return np.asarray(_current_value(variable)())


def source_of(variable: Node) -> Callable[[], Any] | None:
    """A function that returns the current value, as :func:`evaluate`; None if there is none. No value is read.

    A call runs nothing of this library, because the graph is compiled here.
    """
    try:
        return _current_value(variable)
    except Exception:
        return None


def _current_value(variable: Node) -> Callable[[], Any]:
    if isinstance(variable, Constant):
        return partial(np.asarray, variable.data)
    if isinstance(variable, SharedVariable):
        return partial(variable.get_value, borrow=False)
    return compile_plain([], variable)


def initial_point(model: pm.Model, seed: int) -> dict[str, NDArray[Any]]:
    """PyMC's initial point, by the names of the value variables of free variables. It needs no compiler."""
    expressions = make_initial_point_expression(
        free_rvs=model.free_RVs,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies=model.rvs_to_initial_values,
        return_transformed=True,
    )
    # The generators of the model itself do not change.
    expressions = replace_rng_nodes(expressions)
    reseed_rngs(find_rng_nodes(expressions), seed)
    names = [str(model.rvs_to_values[rv].name) for rv in model.free_RVs]
    return dict(zip(names, map(np.asarray, compile_plain([], expressions)()), strict=True))


def stored_array(variable: Node, *, through_rounding: bool = False) -> Node | None:
    """The stored array, or the part of one, that a variable is a copy of; None if it is computed.

    A stored array is a constant or a shared variable. A part is selected by constant slices and indices, or has its
    axes in another order, so that no entry occurs twice.
    """
    source, axes = origin(variable, through_rounding=through_rounding)
    return source if len(axes) == variable.type.ndim and root_of(source) is not None else None


def root_of(array: Node) -> Node | None:
    """The whole stored array that an array is a part of; None if it is not a part of one."""
    while array.owner is not None:
        op, (source, *entries) = array.owner.op, array.owner.inputs
        turned = isinstance(op, DimShuffle) and sorted(map(str, op.new_order)) == sorted(map(str, range(op.input_ndim)))
        cut = type(op) is Subtensor and all(isinstance(entry, Constant) for entry in entries)
        if not turned and not cut:
            return None
        array = source
    return array if isinstance(array, Constant | SharedVariable) else None


def stored_shape(array: Node) -> tuple[int, ...]:
    """The shape of a stored array or of a part of one. Its values are not used."""
    if array.owner is not None:
        return tuple(np.shape(evaluate(array)))
    # A sparse matrix is not an array, but has a shape.
    if isinstance(array, SharedVariable):
        return tuple(np.shape(array.get_value(borrow=True)))
    return tuple(np.shape(array.data))  # type: ignore[attr-defined]


def is_stored(variable: Node) -> bool:
    """Whether the variable is a constant or a shared variable that holds numbers."""
    return isinstance(variable, Constant | SharedVariable) and isinstance(variable.type, TensorType)


def value_ancestors(variable: Node) -> Iterator[Node]:
    """The variable and all variables whose values determine its value, except those whose shape alone is used."""
    visited: set[Node] = set()
    waiting = [variable]
    while waiting:
        current = waiting.pop()
        if current in visited:
            continue
        visited.add(current)
        yield current
        if current.owner is not None and not isinstance(current.owner.op, Shape | Shape_i):
            waiting.extend(current.owner.inputs)


def is_random(variable: Node) -> bool:
    """Whether the variable is the output of a distribution."""
    return variable.owner is not None and isinstance(variable.owner.op, RNGConsumerOp)


def parameters(rv: Node) -> tuple[Node | None, tuple[Node, ...]]:
    """The size (None where the parameters decide it) and the parameters of a random variable."""
    # Ask the op, because the positions of its inputs differ between versions of PyMC.
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
        Whether to look through a cast to integers, which is not a copy if the values are not integers.

    Returns
    -------
    source : Variable
        The first variable on the way back that is not a copy of its input.
    axes : tuple of int
        For each axis of `source`, the corresponding axis of `variable`; increasing.
    """
    axes = list(range(variable.type.ndim))
    while variable.owner is not None:
        op = variable.owner.op
        inner = variable.owner.inputs[0]
        if isinstance(op, DimShuffle) and inner.owner is not None and isinstance(inner.owner.op, DimShuffle):
            before = inner.owner.inputs[0]
            composed = ["x" if axis == "x" else inner.owner.op.new_order[axis] for axis in op.new_order]
            if composed == list(range(before.type.ndim)):
                # The second reordering of axes undoes the first.
                variable = before
                continue
        # A DimShuffle that keeps the order of the axes only adds new ones.
        if isinstance(op, DimShuffle) and list(op.shuffle) == list(range(op.input_ndim)):
            axes = [axis for axis, new in zip(axes, op.new_order, strict=True) if new != "x"]
        elif not _is_copy(op, through_rounding):
            break
        variable = variable.owner.inputs[0]
    return variable, tuple(axes)


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


def formula(variable: Node) -> str:
    """The modeller's name of the operation behind the variable, with its article; or "a function"."""
    phrases = {
        "Add": "a sum",
        "Sub": "a difference",
        "Mul": "a product",
        "TrueDiv": "a quotient",
        "Pow": "a power",
        "Exp": "an exponential",
        "Log": "a logarithm",
        "Sigmoid": "an inverse logit",
        "Softmax": "a softmax",
        "Dot": "a matrix product",
        "BatchedDot": "a matrix product",
        "Sum": "a sum",
        "Max": "a maximum",
        "Switch": "a choice by pm.math.switch",
    }
    return phrases.get(operation(variable), "a function")


# Graphs with replaced inputs.

# Exceptions of PyTensor's operations that cannot be rebuilt, or have no value, for inputs of another shape.
FAILURES = (AssertionError, IndexError, KeyError, NotImplementedError, TypeError, ValueError)


def rebuild(
    outputs: Sequence[Node], memo: dict[Node, Node], changed: Callable[[Any, list[Node]], list[Node] | Node]
) -> None:
    """Rebuild a graph with some of its inputs replaced, and add its new nodes to `memo`.

    The types of new nodes follow from those of their new inputs.

    Parameters
    ----------
    outputs : sequence of Variable
        The ends of the graph.
    memo : dict of Variable to Variable
        The replacements. Ancestors of a key are not visited.
    changed : callable
        Takes an application and its new inputs. Returns the inputs to use, or a replacement of the output.

    Raises
    ------
    FAILURES
        If an operation refuses its new inputs.
    """
    for node in toposort(outputs, blockers=[*memo]):
        entries = changed(node, [memo.get(entry, entry) for entry in node.inputs])
        if isinstance(entries, Variable):
            memo[node.outputs[0]] = entries
        elif any(new is not old for new, old in zip(entries, node.inputs, strict=True)):
            if isinstance(node.op, OpFromGraph):
                # Its shapes are fixed, so its inner graph replaces it.
                inner = dict(zip(node.op.inner_inputs, entries, strict=True))
                rebuild(node.op.inner_outputs, inner, changed)
                memo.update((old, inner[new]) for old, new in zip(node.outputs, node.op.inner_outputs, strict=True))
            else:
                applied: Any = node.op.make_node(*entries)
                memo.update(zip(node.outputs, applied.outputs, strict=True))


# The purpose of models that this library built.


@dataclass(frozen=True)
class Purpose:
    """What a model was built for and from.

    Attributes
    ----------
    objective : str or None
        Objective of its plan; None for a model that a user wrote.
    target : str or None
        Axis of the predicted variable, for a classifier.
    structure : object
        Structure that was chosen from data.
    of_counts : bool
        Whether its data are counts of the records of another model. The other model has answered whose records these
        are, and counts may agree by chance or be made up.
    wide : object
        Public facts about the columns of a wide table, see :mod:`pymc_dirdp.releases.pairs_drawn`.
    """

    objective: str | None = None
    target: str | None = None
    structure: object = None
    of_counts: bool = False
    wide: object = None


_PURPOSES: WeakKeyDictionary[pm.Model, Purpose] = WeakKeyDictionary()


def set_purpose(model: pm.Model, purpose: Purpose) -> None:
    """Record the purpose of a model. A copy of the model does not have it."""
    _PURPOSES[model] = purpose


def purpose_of(model: pm.Model) -> Purpose:
    """The recorded purpose of a model, or that of a model that a user wrote."""
    return _PURPOSES.get(model, Purpose())


def is_wide(model: pm.Model) -> bool:
    """Whether a model describes a wide table, as from :func:`pymc_dirdp.latent_class`."""
    return purpose_of(model).wide is not None


# Models with replaced variables.


def replace_variables(model: pm.Model, new: Mapping[Node, Node], values: Mapping[Node, Node]) -> pm.Model:
    """A copy of the model, with `new` variables and `values` for those that are keys of these mappings.

    Names, dims and labels are those of the model. All other variables are shared with it, so their formulas must not
    use a variable that is replaced.
    """
    copy = pm.Model(name=model.name)
    for dim, length in model.dim_lengths.items():
        copy.add_coord(dim, model.coords.get(dim), length=length)
    for name, variable in model.named_vars.items():
        replacement = new.get(variable, variable)
        replacement.name = name
        copy.named_vars[name] = replacement
    copy.named_vars_to_dims.update({name: dims for name, dims in model.named_vars_to_dims.items() if dims})
    for copies, originals in (
        (copy.free_RVs, model.free_RVs),
        (copy.observed_RVs, model.observed_RVs),
        (copy.deterministics, model.deterministics),
        (copy.potentials, model.potentials),
        (copy.data_vars, model.data_vars),
    ):
        copies.extend(new.get(variable, variable) for variable in originals)
    for rv in model.basic_RVs:
        replacement, value = new.get(rv, rv), values.get(rv, model.rvs_to_values[rv])
        copy.rvs_to_values[replacement] = value
        copy.values_to_rvs[value] = replacement
        copy.rvs_to_transforms[replacement] = model.rvs_to_transforms[rv]
    return copy


# Models of `pymc.dims` as ordinary models: each variable with its dims becomes one with axes in the same order.


def lower_dims(model: pm.Model) -> pm.Model:
    """The same model without variables of `pymc.dims`; the model itself if it has none.

    Names, dims, labels, data and observations are those of the model. PyTensor's own rewrites do the work, as they do
    before PyMC compiles a function of such a model.
    """
    named = list(model.named_vars.values())
    if not any(isinstance(variable.type, XTensorType) for variable in named):
        return model
    values = [value for rv in model.basic_RVs if (value := model.rvs_to_values.get(rv)) is not None]
    variables = [*named, *values]
    tensors: list[Any] = clone_replace(variables)
    tensors = [variable.values if isinstance(variable.type, XTensorType) else variable for variable in tensors]
    graph = FunctionGraph(outputs=tensors, clone=False)
    # A Deterministic is a ViewOp, which these rewrites do not change.
    copies = [node for node in graph.toposort() if isinstance(node.op, ViewOp)]
    graph.replace_all([(node.outputs[0], node.inputs[0]) for node in copies])
    optdb.query("+lower_xtensor").rewrite(graph)
    leaves = [
        variable
        for variable in ancestors(graph.outputs)
        if variable.owner is not None
        and isinstance(variable.owner.op, TensorFromXTensor)
        and variable.owner.inputs[0].owner is None
    ]
    graph.replace_all([(leaf, _leaf(leaf.owner.inputs[0])) for leaf in leaves], import_missing=True)
    new = dict(zip(variables, graph.outputs, strict=True))
    # A Deterministic that is the same node as another variable needs a name of its own.
    new |= {variable: new[variable].copy() for variable in model.deterministics}
    copy = replace_variables(model, new, {rv: new[value] for rv, value in model.rvs_to_values.items()})
    # The equivalent transforms without dims.
    plain_transforms = (
        (transforms.SimplexTransform, pm.distributions.transforms.simplex),
        (transforms.LogOddsTransform, pm.distributions.transforms.logodds),
        (transforms.IntervalTransform, pm.distributions.transforms.Interval(0, 1)),
    )
    for rv, transform in copy.rvs_to_transforms.items():
        same = (plain for kind, plain in plain_transforms if isinstance(transform, kind))
        copy.rvs_to_transforms[rv] = next(same, transform)
    return copy


def _leaf(variable: Any) -> Node:
    """The same array without dims."""
    if isinstance(variable, Constant):
        return pt.constant(variable.data, name=variable.name)
    if isinstance(variable, SharedVariable):
        return pytensor.shared(  # type: ignore[attr-defined, no-any-return, no-untyped-call]
            variable.get_value(borrow=True), name=variable.name, shape=variable.type.shape
        )
    return pt.tensor(name=variable.name, dtype=variable.type.dtype, shape=variable.type.shape)


# Whether two inputs of a model hold the same data. The answers are truth values and axes, never data.


def same_data(first: Node, second: Node) -> bool:
    """Whether both are one stored array, or hold the same numbers, at least two of them.

    A single number may agree by chance, and the answer must not reveal that. Axes of length 1 are ignored.
    """
    return first is second or same_numbers(first, evaluate(second))


def shift_axis(parent: Node, observations: Node, *, least: int = 2) -> int | None:
    """The axis along which the parent is the observations shifted by one or two steps; None if there is none.

    A Markov chain does this: `P[x[:, :-1]]` observed as `x[:, 1:]`. At least `least` numbers have to agree, because
    fewer may agree by chance. Concatenated sequences of different lengths are not recognised.
    """
    root = root_of(parent)
    if isinstance(root, SharedVariable) and root_of(observations) is root:
        # Both may be different slices of one `pm.Data`.
        first, second = _slices(parent), _slices(observations)
        for axis in range(parent.type.ndim):
            if first[axis : axis + 1] != second[axis : axis + 1]:
                return axis
    parent_values, values = evaluate(parent), evaluate(observations)
    if parent_values.shape != values.shape:
        return None
    for axis in range(parent_values.ndim):
        ahead, behind = np.moveaxis(parent_values, axis, 0), np.moveaxis(values, axis, 0)
        pairs = (ahead, behind), (behind, ahead)
        if any(_is_ahead(*pair, step, least) for step in (1, 2) for pair in pairs):
            return axis
    if parent_values.ndim == 1:
        # Sequences of equal length may be concatenated: the start of one follows the end of another.
        for length in range(3, parent_values.size // 2 + 1):
            if parent_values.size % length == 0:
                ahead, behind = parent_values.reshape(-1, length).T, values.reshape(-1, length).T
                if _is_ahead(ahead, behind, 1, least) or _is_ahead(behind, ahead, 1, least):
                    return 0
    return None


def _slices(array: Node) -> list[str]:
    """The slices of a part of a stored array along its remaining axes."""
    if array.owner is None:
        return []
    if not isinstance(array.owner.op, Subtensor) or array.owner.inputs[0].owner is not None:
        return [f"several steps, the last of which is {array.owner.op}"]
    entries = get_idx_list(array.owner.inputs, array.owner.op.idx_list)
    slices = [repr(entry) for entry in entries if isinstance(entry, slice)]
    while slices and slices[-1] == repr(slice(None)):
        slices.pop()
    return slices


def _is_ahead(ahead: NDArray[Any], behind: NDArray[Any], step: int, least: int) -> bool:
    early, late = ahead[step:], behind[:-step]
    return bool(early.size >= least and np.array_equal(early, late))


def same_numbers(variable: Node, numbers: NDArray[Any]) -> bool:
    """Whether a stored array holds these numbers, at least two of them."""
    values, expected = np.squeeze(evaluate(variable)), np.squeeze(numbers)
    return bool(values.size > 1 and values.shape == expected.shape and np.array_equal(values, expected))
