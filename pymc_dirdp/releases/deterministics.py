"""The Deterministics that may come along with a release, and their values at the draw."""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.compile.ops import FromFunctionOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import Subtensor

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.expressions import Expression
from pymc_dirdp.models.graph import Node, compiled_plainly, evaluate, is_random
from pymc_dirdp.models.likelihoods import KINDS, batch_shape, kind_of, stored_observations, trials_parameter
from pymc_dirdp.models.table import Table, is_path_name, is_variable_name
from pymc_dirdp.models.tables import parents_of
from pymc_dirdp.models.translation import translated
from pymc_dirdp.releases.text import AFTERWARDS, Deterministic, LeftOut

__all__ = [
    "Derived",
    "as_formulas",
    "checked_names",
    "derived_quantities",
    "entries_taken",
    "evaluated",
    "is_array",
    "is_number",
    "is_own_function",
    "looks_like_array",
    "made_of",
    "numbers_of",
    "try_out",
]


@dataclass(frozen=True)
class Derived:
    """The names of the Deterministics that come along with a release, in the model's order, and those that do not."""

    included: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


def derived_quantities(
    model: pm.Model, tables: Iterable[Table], var_names: Collection[str] | None, *, records_are_public: bool
) -> Derived:
    """Find the Deterministics that are functions of released variables and public numbers alone.

    With `var_names`, only these Deterministics come along, and the user states that the arrays in them are public. By
    default all come along that hold no array. Where the number of records may not be published, a number above 1 in a
    Deterministic might be that number, so such a Deterministic has to be named.

    Raises
    ------
    ArgumentError
        If `var_names` names something else than a Deterministic or a released variable, or one that holds data.
    """
    tables = tuple(tables)
    released = tuple(table.name for table in tables)
    wanted = checked_names(var_names, model, released)
    inputs = [model[name] for name in released if name in model.named_vars]
    data = _Data(model, tables)

    def cells(deterministic: Node) -> int:
        used = set(ancestors([deterministic], blockers=inputs))
        return sum(table.prior.size for table in tables if table.name in model.named_vars and model[table.name] in used)

    included, left_out = [], []
    for deterministic in model.deterministics:
        name = str(deterministic.name)
        problem = _problem(deterministic, inputs, data) or _no_name(deterministic, model)
        if wanted is not None and name not in wanted:
            left_out.append(LeftOut(name, "not named"))
        elif problem is not None and wanted is not None:
            raise ArgumentError(f"{name!r} cannot be part of the release: {problem}.")
        elif problem is not None:
            left_out.append(problem)
        elif wanted is not None:
            _refuse_arrays_of_data(deterministic, inputs, data, cells(deterministic))
            included.append(name)
        elif (unnamed := _has_to_be_named(deterministic, inputs, cells(deterministic), records_are_public)) is not None:
            left_out.append(unnamed)
        else:
            included.append(name)
    return Derived(tuple(included), tuple(left_out))


def checked_names(
    var_names: Collection[str] | None, model: pm.Model, released: tuple[str, ...]
) -> frozenset[str] | None:
    """The Deterministics that `var_names` names, or None for no choice; names of tables are accepted and left out."""
    if var_names is None:
        return None
    if isinstance(var_names, str):
        raise ArgumentError(
            f"Expected var_names to be a list of names, got the text {var_names!r}: write [{var_names!r}]."
        )
    names = [str(deterministic.name) for deterministic in model.deterministics]
    for name in var_names:
        if name not in (*released, *names):
            near = difflib.get_close_matches(str(name), [*names, *released], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ArgumentError(f"var_names has {name!r}, which is not a Deterministic of the model.{hint}")
    # All tables always come along.
    return frozenset(var_names) - frozenset(released)


class _Data:
    """The nodes of the model's graph that belong to its observations. The values of `sources` are **secret**."""

    def __init__(self, model: pm.Model, tables: Iterable[Table]) -> None:
        sources: list[Node] = []
        for observed in model.observed_RVs:
            kind = kind_of(observed)
            parents = parents_of(observed, kind, model)
            sources += [stored_observations(observed, model), *(array for one in parents for array in one.stored)]
            if kind.trials is not None:
                sources.append(trials_parameter(observed, kind))
        self.sources = tuple(dict.fromkeys(sources))
        values = [model.rvs_to_values[observed] for observed in model.observed_RVs]
        # A single number, such as an axis or a power, is not counted as data.
        self.nodes = {node for node in ancestors([*values, *self.sources]) if not is_number(node)}

        self.counted_lengths = {
            length
            for table in tables
            for likelihood in table.likelihoods
            for axis, length in enumerate(batch_shape(model[likelihood.name], KINDS[likelihood.kind], model))
            if axis not in likelihood.rows and length > 1
        }


def _problem(deterministic: Node, inputs: list[Node], data: _Data) -> LeftOut | None:
    """Why a Deterministic can never come along. The graph alone decides it."""
    name = str(deterministic.name)
    above = made_of(deterministic, inputs)
    if not set(inputs) & set(ancestors([deterministic], blockers=inputs)):
        return LeftOut(name, "alone")
    for node in above:
        called = str(node.name or "")
        if is_random(node):
            return LeftOut(name, "random", called)
        if isinstance(node, SharedVariable):
            return LeftOut(name, "data", called)
        if node in data.nodes:
            return LeftOut(name, "shared")
    return None


def _no_name(deterministic: Node, model: pm.Model) -> LeftOut | None:
    """Why a release cannot hold the name of a Deterministic or of one of its dims."""
    name = str(deterministic.name)
    if not is_variable_name(name):
        return LeftOut(name, "name")
    dims = model.named_vars_to_dims.get(name) or ()
    return None if all(dim is None or is_path_name(dim) for dim in dims) else LeftOut(name, "dim")


def _has_to_be_named(deterministic: Node, inputs: list[Node], cells: int, records_are_public: bool) -> LeftOut | None:
    """Why a Deterministic comes along only if the user names it. The graph and public numbers decide it."""
    above = made_of(deterministic, inputs)
    if any(map(is_array, above)):
        reason = "array"
    elif any(map(is_own_function, above)):
        reason = "function"
    elif looks_like_array(above, cells):
        reason = "list"
    elif not records_are_public and any(number not in (-1, 0, 1) for number in numbers_of(above)):
        reason = "number"
    else:
        return None
    return LeftOut(str(deterministic.name), reason)


def _refuse_arrays_of_data(deterministic: Node, inputs: list[Node], data: _Data, cells: int) -> None:
    """Refuse an array that the user calls public and that is data all the same.

    Such an array has the values of the data in any order, because a reshape or a transpose is another array; or it has
    an axis as long as one along which records are counted, because it then tells something about each record.
    """
    secrets = {_sorted(array) for array in map(evaluate, data.sources) if array.size > 1}
    above = made_of(deterministic, inputs)
    constants = [np.asarray(node.data) for node in above if is_array(node)]  # type: ignore[attr-defined]
    if looks_like_array(above, cells):
        constants += [np.array(numbers_of(above)), np.array(entries_taken(above))]
    for values in constants:
        if (values.dtype.kind in "biuf" and _sorted(values) in secrets) or data.counted_lengths & set(values.shape):
            raise ArgumentError(
                f"{deterministic.name!r} cannot be part of the release: it holds an array that is data, or has an "
                "entry for each observation. Compute it from the release."
            )


def _sorted(array: NDArray[Any]) -> bytes:
    return np.sort(array.astype(np.float64), axis=None).tobytes()


def as_formulas(
    model: pm.Model, derived: Derived, tables: Iterable[Table], *, named: bool
) -> tuple[tuple[Deterministic, ...], tuple[LeftOut, ...]]:
    """The Deterministics that come along as public formulas, and those that do not.

    Raises
    ------
    ArgumentError
        If one that the user named has no formula.
    """
    released = {table.name: table.shape[:-1] if table.family == "beta" else table.shape for table in tables}
    found, left_out = [], list(derived.left_out)
    for name in derived.included:
        expression = translated(model, name, released)
        if isinstance(expression, Expression):
            dims = model.named_vars_to_dims.get(name)
            found.append(Deterministic(name, None if dims is None else tuple(dims), expression))
            continue
        if named:
            raise ArgumentError(f"{name!r} cannot be part of the release: {expression}. {AFTERWARDS}.")
        left_out.append(LeftOut(name, "formula"))
    return tuple(found), tuple(left_out)


def try_out(deterministics: Iterable[Deterministic], tables: Iterable[Table]) -> dict[str, Array]:
    """The values of one public draw, the middle of the simplex in every row: of the tables, then of Deterministics."""
    middle = {
        table.name: np.full((1, *(table.shape[:-1] if table.family == "beta" else table.shape)), 1 / table.n_categories)
        for table in tables
    }
    return middle | {one.name: one.expression.evaluate(middle) for one in deterministics}


def evaluated(
    model: pm.Model, names: tuple[str, ...], draws: dict[str, Array], *, known: dict[Node, Node] | None = None
) -> dict[str, Array]:
    """The values of these Deterministics at each draw: arrays of shape `(draws, ...)`.

    `known` has what stands in the place of other random variables.
    """
    if not names:
        return {}
    inputs = [model[name] for name in draws if name in model.named_vars]
    outputs = [model[name] for name in names]
    if known:
        outputs = graph_replace(outputs, known, strict=False)
    # The function runs in Python, because it runs once for each draw and a compiler would take seconds.
    function = compiled_plainly(inputs, outputs)
    arrays = [draws[str(variable.name)] for variable in inputs]
    rows = [function(*values) for values in zip(*arrays, strict=True)]
    return {name: np.stack([np.asarray(row[i]) for row in rows]) for i, name in enumerate(names)}


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


def looks_like_array(above: list[Node], cells: int) -> bool:
    """Whether there are so many single numbers or entries that they could be an array, written number by number.

    A formula uses each of the `cells` of its tables a few times. A list of people is longer.
    """
    widest = max((len(node.inputs) for node in _applied(above)), default=0)
    taken = sum(isinstance(node.op, Subtensor) for node in _applied(above))
    return max(len(numbers_of(above)) + taken, widest) > max(_SHORT, 3 * cells)
