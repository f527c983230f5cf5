"""The outcomes of one observation of any discrete model and their probabilities, by rows of public covariates.

The log-probabilities are graphs over inputs that replace the free variables. The replacement comes first, because PyMC
may derive a log-probability by drawing a new random variable (`pm.Censored` does), which no longer depends on the free
variables. All results are checked at three random points against PyMC's own log-probability with an entry for each
record, for made-up covariates. No record is read.
"""

import itertools
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import Alloc
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, unflatten_index_variables

from pymc_dirdp.errors import ArgumentError, DirdpError, UnsupportedModelError, missing_values
from pymc_dirdp.models.answers import Answers
from pymc_dirdp.models.counted import AnswersReading, JointReading, NumbersReading, OutcomesReading
from pymc_dirdp.models.finite_gradients import with_finite_gradient
from pymc_dirdp.models.graph import (
    FAILURES,
    Node,
    compile_plain,
    evaluate,
    initial_point,
    is_random,
    is_stored,
    operation,
    rebuild,
    same_data,
    source_of,
    stored_array,
    stored_shape,
)
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.model_options import TRIALS, ModelOptions, axes_of, core_of, model_question, model_refusal
from pymc_dirdp.models.privacy_unit import as_code, axis_text
from pymc_dirdp.models.questions import Answer
from pymc_dirdp.models.table import is_one_line
from pymc_dirdp.sampling.bits import generator


@final
@dataclass(frozen=True, eq=False)
class Effect:
    """A free variable with an entry for each person, which is integrated out by quadrature.

    Attributes
    ----------
    variable : Variable
        The free variable.
    input : Variable
        A vector with an entry for each person.
    formula : Variable
        The free variable as a function of the input and of other free variables.
    nodes, log_weights : array
        The quadrature nodes for the input of a person, and the logarithms of their weights.
    """

    variable: Node
    input: Node
    formula: Node
    nodes: NDArray[np.float64]
    log_weights: NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs that replace the free variables of a model, and their values at random points.

    Attributes
    ----------
    by_variable : dict
        For each free variable the input that stands for it.
    points : list of list of array
        Values of the inputs.
    effect : Effect or None
        The effect of each person, which is not a free variable of the private model.
    """

    by_variable: dict[Node, Node]
    points: list[list[Any]]
    effect: Effect | None = None

    @classmethod
    def from_model(cls, model: pm.Model, free: Sequence[Node], effect: Effect | None = None) -> "Inputs":
        """The inputs of a model. The points are near its initial point, because a prior may have no proper draws."""
        start, rng = initial_point(model, seed=1), generator(1)
        values = [model.rvs_to_values[rv] for rv in free]
        constrained = compile_plain(values, model.replace_rvs_by_values(list(free)))
        points = []
        for _ in range(3):
            nearby = [start[value.name] + rng.normal(scale=0.5, size=np.shape(start[value.name])) for value in values]
            points.append(
                constrained(*[np.asarray(point, dtype=v.type.dtype) for point, v in zip(nearby, values, strict=True)])
            )
        return cls({rv: rv.type(name=rv.name) for rv in free}, points, effect)

    def replaced(self, variable: Node) -> Node:
        """The variable as a function of the inputs."""
        if self.effect is not None:
            variable = graph_replace([variable], {self.effect.variable: self.effect.formula}, strict=False)[0]
        return graph_replace([variable], self.by_variable, strict=False)[0]

    def compiled_at_points(self, graph: Node, *others: Node) -> tuple[Callable[..., Any], ...]:
        """For each point, a function of other inputs or stored arrays that returns the value of a graph."""
        places = {node: node.type() for node in others}
        compiled = compile_plain(
            [*self.by_variable.values(), *places.values()], graph_replace([graph], places, strict=False)[0]
        )
        return tuple(partial(compiled, *point) for point in self.points)

    def function(self, graph: Node, *others: Node) -> Callable[..., list[NDArray[np.float64]]]:
        """A function of other inputs or stored arrays that returns the values of a graph at all points."""
        compiled = self.compiled_at_points(graph, *others)

        def values_at_points(*values: Any) -> list[NDArray[np.float64]]:
            with np.errstate(all="ignore"):
                return [np.asarray(at_point(*values)) for at_point in compiled]

        return values_at_points

    def at_points(self, graph: Node, *others: tuple[Node, Any]) -> list[NDArray[np.float64]]:
        """The values of a graph at all points, given those of other inputs."""
        return self.function(graph, *(node for node, _ in others))(*(value for _, value in others))


@final
@dataclass(frozen=True, eq=False)
class Outcomes:
    """The outcomes of one observed variable.

    Attributes
    ----------
    name : str
        The observed variable.
    kind : {"records", "trials", "counts"}
        What one person is: an observation, one of its trials, or one of the people that it counts.
    labels : tuple
        Labels of the outcomes; for counts, labels of the observations.
    rows : tuple
        Labels of the rows of covariates; a single one without covariates.
    log_p : Variable
        Log-probabilities of the outcomes as functions of the inputs, shape (rows, outcomes), or (rows, nodes, outcomes)
        until the effect of each person is integrated out; for counts, the log-probability of `value`.
    value : Variable or None
        For counts, the observed value.
    totals : tuple of int, or None
        The public numbers of records of the rows; None if they are private.
    n_records : int or None
        The number of records where one observation is one person; None elsewhere.
    reading : AnswersReading, JointReading or NumbersReading
        How to count its records.
    """

    name: str
    kind: str
    labels: tuple[Any, ...]
    rows: tuple[Any, ...]
    log_p: Node
    value: Node | None
    totals: tuple[int, ...] | None
    n_records: int | None
    reading: OutcomesReading

    @property
    def numbers(self) -> tuple[int, ...]:
        """The public numbers of records of the rows, or of all rows together."""
        return (self.n_records or 0,) if self.totals is None else self.totals


def n_row_arrays(graph: Iterable[Node], n: int, rv: Node) -> list[Node]:
    """The stored arrays in a graph of an observed variable that have an entry for each of n records."""
    stored = {id(node): node for node in graph if is_stored(node) and node.type.ndim}
    rows = [node for node in stored.values() if stored_shape(node)[0] == n]
    by_model = inputs_by_model(rv)
    return [node for node in rows if n > 1 or isinstance(node, SharedVariable) or node in by_model]


def inputs_by_model(rv: Node) -> set[Node]:
    """The inputs that a model itself passes to the operations and distributions before a variable.

    Sizes and single numbers, which PyMC writes as arrays of one entry, are left out. The covariate of a single record
    is included.
    """
    inputs = set[Node]()
    for step in {node.owner for node in ancestors([rv]) if node.owner is not None}:
        op: Any = step.op
        is_taken_out = isinstance(op, Subtensor) and not step.outputs[0].type.ndim
        if isinstance(op, RandomVariable):
            inputs.update(op.dist_params(step))
        elif not is_taken_out and not any(map(is_random, step.outputs)):
            inputs.update(step.inputs)
    return inputs


def record_arrays(rv: Node, free: Sequence[Node], shape: tuple[int, ...], options: ModelOptions) -> list[Node]:
    """The stored arrays behind an observed variable that have an entry for each record.

    If the number of records is private, these are the covariates that `levels` declares private. :func:`_aligned`
    refuses all others, and does not use the number.
    """
    graph = list(ancestors([rv], blockers=list(free)))
    if options.records_are_public:
        return n_row_arrays(graph, shape[0], rv)
    return [node for node in graph if is_stored(node) and node.type.ndim and node.name in options.levels]


def log_probability(rv: Node, value: Any, model: pm.Model, inputs: Inputs, people: int | None = None) -> Node:
    """The log-probability of a value as a function of the inputs alone.

    PyMC gives a variable without dims the shape of the `pm.Data` that it observes, or of an array as numbers. Here the
    shape of the value replaces it, so that later steps find no data that are read for their shape alone, and no number
    that may be the number of records. It also replaces the length of other data that are as long as the axis of the
    people.
    """
    variable = inputs.replaced(rv)
    random: Any = variable.owner.op
    if isinstance(random, RandomVariable):
        state, size, *arguments = variable.owner.inputs
        if isinstance(size, Constant) and size.data is not None:
            # Without a size it has the shape of its value.
            variable = random.make_node(state, None, *arguments).outputs[1]
    log_p: Node = pm.logp(variable, value, warn_rvs=False)
    observations = stored_observations(rv, model)
    lengths: dict[Node, Any] = {}
    for step in toposort([log_p]):
        op: Any = step.op
        if not isinstance(op, Shape | Shape_i):
            continue
        array = step.inputs[0]
        stored = stored_array(array, through_rounding=True)
        if stored is observations and array.type.ndim == value.type.ndim:
            lengths[step.outputs[0]] = op(value)
        elif stored is not None and people is not None:
            n = value.type.shape[people]
            shape: list[Any] = [
                value.shape[people] if length == n else pt.constant(length) for length in stored_shape(stored)
            ]
            lengths[step.outputs[0]] = pt.stack(shape) if isinstance(op, Shape) else shape[op.i]
    log_p = graph_replace([log_p], lengths, strict=False)[0]
    for node in ancestors([log_p]):
        if is_random(node):
            other = f" ({node.name!r})" if node.name else ""
            raise model_refusal(
                str(rv.name),
                f"depends on a random variable that is not a free variable of the model{other}",
                "Observe both together, as one variable whose values are all their combinations.",
            )
    return log_p


def refuse_observed_elsewhere(name: str, graph: Node, model: pm.Model) -> None:
    """Refuse a variable whose graph reads the observations of a variable."""
    observed = [stored_observations(rv, model) for rv in model.observed_RVs]
    for node in ancestors([graph]):
        if is_stored(node) and node.type.ndim and any(same_data(node, array) for array in observed):
            raise model_refusal(
                name, "reads the observations of a variable", "Observe both together, as one Multinomial variable."
            )


def people_axis(rv: Node, model: pm.Model, options: ModelOptions) -> int:
    """The axis of an observed variable whose entries are the people; 0 where it has no axis at all.

    Raises
    ------
    UnsupportedModelError
        If the options do not say which of several axes it is.
    ArgumentError
        If the variable lacks it.
    """
    people, known = options.people_axes(rv, model), axes_of(rv, model)
    if people is not None and len(people) == 1:
        return people[0]
    if people is not None or len(known.axes) > 1:
        ways = [f"unit={as_code(axis)} if each entry of {axis_text(axis)} is a person" for axis in known.axes]
        call = f"dirdp.private_model(guarantee, model, unit={as_code(known.axes[0])})"
        raise model_refusal(
            known.name,
            "has several axes of observations, and a person may have several answers",
            f"Pass {', or '.join(ways)}, as in {call}. If people are the entries of several axes together, "
            "reshape these into one axis.",
        )
    return 0


# Observed variables in which one observation is one person: outcomes by rows of covariates.


def read_records(rv: Node, shape: tuple[int, ...], model: pm.Model, inputs: Inputs, options: ModelOptions) -> Outcomes:
    """The outcomes of an observed variable in which each observation is a person."""
    name, core, axis = str(rv.name), core_of(rv), people_axis(rv, model, options)
    batch = shape[: len(shape) - core]
    n = batch[axis] if batch else None
    questions = (*batch[:axis], *batch[axis + 1 :])
    # The axis of people comes first. A variable with one axis of observations has one question.
    value = pt.tensor(dtype=rv.type.dtype, shape=(*batch[axis : axis + 1], *questions, *shape[len(batch) :]))
    log_p: Any = log_probability(
        rv, pt.moveaxis(value, 0, axis) if questions else value, model, inputs, axis if batch else None
    )
    log_p = pt.moveaxis(log_p, axis, 0) if questions else log_p
    arrays, written = _aligned(log_p, value, n, model, rv, inputs, options) if n is not None else ([], None)
    public, private = _covariates(name, arrays, model, options)
    first, pattern = _patterns(name, public, n or 1, options)
    levels = [options.levels[str(array.name)] for array in private]
    total_rows = len(first) * math.prod(levels)
    options.check_cells(name, total_rows)
    grid = list(itertools.product(*map(range, levels)))
    tables = {array: np.repeat(_entries(array, options)[first], len(grid), axis=0) for array in public}
    for array, codes in zip(private, zip(*grid, strict=True), strict=True):
        tables[array] = np.array(codes * len(first), dtype=array.type.dtype)
    # Three effects are enough to find the values, and to detect that people are mixed.
    few = _with_effects(tables, total_rows, inputs.effect, np.array([-1.3, 0.4, 2.1]))
    short, entry = _with_rows(log_p, value, few, written, model, rv, axis) if batch else (log_p, value)
    try:
        support = _support(rv, short, entry, core, inputs, options)
    except DirdpError:
        raise
    except ValueError:
        # An array that is not a covariate has an entry for each record, and fits no other number of rows.
        raise _per_record(name) from None
    options.check_cells(name, total_rows * len(support))
    by_value = _by_value(short, entry, support)
    rows = pt.moveaxis(by_value, 0, -1) if batch else by_value[None]

    def made_up(places: NDArray[np.int64]) -> tuple[Node, Node]:
        """The user's own log-probability of made-up records in these rows, and the input for the observations."""
        constants: dict[Node, Node] = {array: pt.constant(entries[places]) for array, entries in few.items()}
        if options.records_are_public:
            return (graph_replace([log_p], constants, strict=False)[0] if constants else log_p), value
        return _with_length(log_p, value, constants, (written, len(places)), model, rv, axis)

    _check_outcomes(name, rows, inputs)
    if n is not None:
        # Where the number of records is private, neither the answer nor an error may depend on it.
        _check_records(name, rows, support, n if options.records_are_public else None, made_up, inputs)
    labels = tuple(",".join(map(str, outcome.tolist())) if core else int(outcome) for outcome in support)
    answers = None
    if questions:
        flat = (-1, math.prod(questions), len(support))
        answers = Answers.from_logs(name, [logs.reshape(flat) for logs in inputs.at_points(rows)])
        fewer = "Merge answers or ask fewer questions, merge values of covariates"
        options.check_cells(name, total_rows * answers.cells, smaller=fewer)
        labels = answers.labels(support)
    if (effect := inputs.effect) is not None:
        at_nodes = _with_effects(tables, total_rows, effect, effect.nodes)
        short, entry = _with_rows(log_p, value, at_nodes, written, model, rv, axis)
        rows = pt.moveaxis(_by_value(with_finite_gradient(short), entry, support), 0, -1)
    if answers is not None:
        rows = answers.log_p(rows.reshape(flat))
    if effect is not None:
        rows = rows.reshape((total_rows, len(effect.nodes), len(labels)))

    reading = AnswersReading(
        name,
        source_of(stored_observations(rv, model)),
        (total_rows, len(labels)),
        support,
        pattern,
        axis,
        None if answers is None else answers.values_by_question,
        tuple((str(array.name), source_of(array), length) for array, length in zip(private, levels, strict=True)),
    )
    totals = tuple(np.bincount(pattern).tolist()) if options.records_are_public and not private else None
    code_labels = {array: _labels_of_codes(array, rv, model, inputs) for array in tables}
    return Outcomes(
        name, "records", labels, _row_labels(tables, total_rows, code_labels), rows, None, totals, n or 1, reading
    )


def _with_effects(
    tables: Mapping[Node, NDArray[Any]], rows: int, effect: Effect | None, values: NDArray[np.float64]
) -> dict[Node, NDArray[Any]]:
    """The covariates of the rows of a table, each row combined with each value of the effect of a person."""
    if effect is None:
        return dict(tables)
    repeated = {array: np.repeat(entries, len(values), axis=0) for array, entries in tables.items()}
    return {**repeated, effect.input: np.tile(values, rows)}


def _aligned(
    log_p: Node, value: Node, n: int, model: pm.Model, rv: Node, inputs: Inputs, options: ModelOptions
) -> tuple[list[Node], int | None]:
    """The stored arrays in a graph with an entry for each record, and the length that is the number of records.

    Other lengths may equal the number of records by chance, such as that of the questions. So a length in the graph is
    the number of records only if the graph has a fixed length otherwise. It is None if there is no such length. If the
    number of records is public, the arrays are those of this length. If it is private, nothing may depend on what
    equals it: an array then has an entry for each record if the graph has a fixed length unless the length of that
    array is unknown.
    """
    arrays = n_row_arrays(ancestors([log_p]), n, rv)
    stored = [node for node in ancestors([log_p]) if is_stored(node) and node.type.ndim]
    private = [node for node in stored if node.name in options.levels]
    others = [array for array in arrays if all(array is not covariate for covariate in private)]
    # All other arrays have their actual lengths.
    lengths = {
        variable: np.shape(point) for variable, point in zip(inputs.by_variable.values(), inputs.points[0], strict=True)
    }
    lengths |= {array: stored_shape(array) for array in others}

    axis = people_axis(rv, model, options)
    effects = [] if inputs.effect is None else [inputs.effect.input]

    def has_rows(unknown: Sequence[Node], written: int | None, rows: int | None) -> bool:
        shapes = (
            lengths | {array: (rows, *stored_shape(array)[1:]) for array in unknown} | dict.fromkeys(effects, (rows,))
        )
        places = {node: pt.tensor(dtype=node.type.dtype, shape=shape) for node, shape in shapes.items()}
        try:
            shortened, _ = _with_length(log_p, value, places, (written, rows), model, rv, axis)
        except UnsupportedModelError:
            return False
        return bool(shortened.type.shape[0] == rows)

    def fits(unknown: Sequence[Node], written: int | None) -> bool:
        # A graph that has the length of a single record otherwise also fits an unknown length, but not two records.
        return has_rows(unknown, written, None) and (n > 1 or has_rows(unknown, written, 2))

    with_records = arrays if options.records_are_public else private
    written = next((length for length in (None, n) if fits(with_records, length)), n)
    if options.records_are_public:
        return arrays, written
    if fits(private, written):
        # An array that is summed or indexed does not show whether it has an entry for each record, not even in the
        # user's own log-probability. PyMC writes the lengths of a reshape as such an array, which nothing else reads.
        steps = [node.owner for node in ancestors([log_p]) if node.owner is not None]
        read = {array for step in steps for array in (step.inputs[:1] if isinstance(step.op, Reshape) else step.inputs)}
        read -= {array for array in read if array.type.shape == (1,)} - inputs_by_model(rv)
        nameless = (isinstance(node, Constant) and node in read for node in stored)
        if options.public is not True and any(nameless):
            raise model_question(
                str(rv.name),
                "reads an array of numbers without a name, which may be computed from records",
                "If anybody may know it, pass public=True, or make it a pm.Data and pass its name in public=[...].",
                Answer({"public": True}),
            )
        return private, written
    aligned = [array for array in others if not fits(private + [other for other in others if other is not array], n)]
    if not aligned:
        raise _per_record(str(rv.name))
    return private + aligned, written


def _by_value(log_p: Node, entry: Node, values: NDArray[np.int64]) -> Any:
    """The log-probability at each of some values of one observation, which is the same for every entry."""
    column = values.reshape(len(values), *[1] * (entry.type.ndim - values.ndim + 1), *values.shape[1:])
    repeated = np.broadcast_to(column, (len(values), *entry.type.shape)).astype(entry.type.dtype)
    return vectorize_graph(log_p, {entry: pt.constant(repeated)})


def jointly_observed(outcomes: Sequence[Outcomes], options: ModelOptions) -> Outcomes:
    """The answers of the same people to several questions, as one variable whose values are all combinations.

    In the model, the answers of a person are independent given the free variables, so the log-probability of a
    combination is the sum of those of its parts.

    Raises
    ------
    UnsupportedModelError
        If they are not observations of the same people, or there are too many combinations.
    """
    name = "_".join(outcome.name for outcome in outcomes)
    largest = max(outcomes, key=lambda outcome: len(outcome.rows))
    rows, cells = len(largest.rows), math.prod(len(outcome.labels) for outcome in outcomes)
    if (
        len(outcomes) < 2
        or any(outcome.kind != "records" for outcome in outcomes)
        or (options.records_are_public and len({outcome.n_records for outcome in outcomes}) > 1)
        or any(outcome.rows != largest.rows for outcome in outcomes if len(outcome.rows) > 1)
    ):
        raise model_refusal(
            name,
            "is not a set of answers of the same people",
            "Combine observed variables that have an entry for each person and the same covariates.",
        )
    options.check_cells(name, rows * cells)
    places = list(itertools.product(*(range(len(outcome.labels)) for outcome in outcomes)))
    log_probs: list[Any] = [outcome.log_p for outcome in outcomes]
    chosen = [pt.broadcast_to(logs, (rows, *tuple(logs.shape)[1:])) for logs in log_probs]
    log_p: Any = sum(logs[..., list(entries)] for logs, entries in zip(chosen, zip(*places, strict=True), strict=True))
    labels = tuple(
        ",".join(str(outcome.labels[k]) for outcome, k in zip(outcomes, entries, strict=True)) for entries in places
    )

    parts = [outcome.reading for outcome in outcomes if not isinstance(outcome.reading, NumbersReading)]
    reading = JointReading(name, tuple(parts), (rows, cells))
    totals, n_records = largest.totals, largest.n_records
    return Outcomes(name, "records", labels, largest.rows, log_p, None, totals, n_records, reading)


def _covariates(
    name: str, arrays: Sequence[Node], model: pm.Model, options: ModelOptions
) -> tuple[list[Node], list[Node]]:
    """The public and the private arrays among those with an entry for each record, as declared."""
    observed = [stored_observations(rv, model) for rv in model.observed_RVs]
    private = [array for array in arrays if array.name in options.levels]
    for array in arrays:
        if any(array is other or (array not in private and same_data(array, other)) for other in observed):
            raise model_refusal(
                name,
                "has the observations of another variable as a predictor",
                "Observe both together, as one variable whose values are all their combinations.",
            )
        if array in private:
            if array.type.ndim != 1 or np.dtype(array.type.dtype).kind not in "iu":
                raise ArgumentError(f"levels= is for codes, but {array.name!r} is not a vector of integers.")
            continue
        if any(same_data(array, other) for other in private):
            raise model_refusal(
                name, "reads one covariate as public and private", "Use the same pm.Data throughout the model."
            )
        if not options.is_public(array.name):
            # One answer covers covariates without a name and all others.
            open_names = [other.name for other in arrays if other not in private and not options.is_public(other.name)]
            public = True if None in open_names else tuple(dict.fromkeys(map(str, open_names)))
            answer_options = {"public": public} | ({} if options.records_are_public else {"adjacency": "replace-one"})
            covariate = f"the covariate {array.name!r}" if array.name else "a covariate without a name"
            named = f"public=[{str(array.name)!r}]" if array.name else "public=True"
            levels = f"levels={{{str(array.name)!r}: k}}" if array.name else "a pm.Data with a name and levels="
            ways = [
                f"{named} if anybody may know it, record by record",
                f"{levels} if it is private and has the k codes 0, 1, ..., k-1",
            ]
            if not options.records_are_public:
                ways = [ways[1], f"adjacency='replace-one' and {ways[0]}"]
            way_out = f"Pass {'; or '.join(ways)}."
            if others := [repr(other) for other in dict.fromkeys(open_names) if other not in (array.name, None)]:
                way_out += f" Declare {', '.join(others)} in the same way."
            raise model_question(
                name, f"reads {covariate}, which has an entry for each record", way_out, Answer(answer_options)
            )
        if not options.records_are_public:
            raise ArgumentError(
                f"public={array.name!r} reveals the number of records, which is private under add-remove. Pass "
                f"levels={{{str(array.name)!r}: k}} instead, or adjacency='replace-one'."
            )
    return [array for array in arrays if array not in private], private


def _entries(array: Node, options: ModelOptions) -> NDArray[Any]:
    """The entries of a public covariate; if the library only assumes that it is public, two typical values in turn."""
    if not options.assumed:
        return evaluate(array)
    n, *others = stored_shape(array)
    kind = np.dtype(array.type.dtype)
    pair = np.array([0.5, 0.75] if kind.kind == "f" else [0, 1], dtype=kind)
    return np.broadcast_to(np.resize(pair, n).reshape(n, *(1 for _ in others)), (n, *others))


def _patterns(
    name: str, public: Sequence[Node], n: int, options: ModelOptions
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A record with each distinct value of the public covariates, in order, and the number of each record's value."""
    if not public:
        return np.zeros(1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    flat = np.concatenate([_entries(array, options).reshape(n, -1).astype(np.float64) for array in public], axis=1)
    if not np.all(np.isfinite(flat)):
        raise model_refusal(name, "has a public covariate with missing values", missing_values())
    _, first, pattern = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    return first.astype(np.int64), pattern.astype(np.int64).reshape(-1)


def _labels_of_codes(array: Node, rv: Node, model: pm.Model, inputs: Inputs) -> tuple[str, ...]:
    """Labels of the codes of a covariate: those of the dim along which it chooses entries of a variable of the model.

    Empty if it chooses along no such dim, or along several that disagree. Only dims of free variables are used, which
    the private model has as well. The dim of a Deterministic may name the people.
    """
    if array.type.ndim != 1 or np.dtype(array.type.dtype).kind not in "iu":
        return ()
    public = {dim for free in inputs.by_variable for dim in model.named_vars_to_dims.get(str(free.name), ())}
    by_name = {name: variable for name, variable in model.named_vars.items() if name in model.named_vars_to_dims}
    dims: set[str | None] = set()
    for node in ancestors([rv]):
        if node.owner is None or not isinstance(node.owner.op, AdvancedSubtensor):
            continue
        source, *indices = node.owner.inputs
        entries = unflatten_index_variables(indices, node.owner.op.idx_list)
        named = str(source.name)
        if by_name.get(named) is source and all(getattr(entry, "dtype", "int64") != "bool" for entry in entries):
            along = model.named_vars_to_dims[named]
            dims |= {dim for dim, entry in zip(along, entries, strict=False) if entry is array and dim in public}
    label_sets = {tuple(map(str, model.coords.get(str(dim)) or ())) for dim in dims}
    labels = label_sets.pop() if len(label_sets) == 1 else ()
    distinct = {unicodedata.normalize("NFC", label) for label in labels}
    return labels if len(distinct) == len(labels) and all(map(is_one_line, labels)) else ()


def _row_labels(
    tables: Mapping[Node, NDArray[Any]], rows: int, code_labels: Mapping[Node, tuple[str, ...]]
) -> tuple[Any, ...]:
    """Labels of the rows, from the values of the covariates or the labels of their codes."""
    if not tables:
        return (0,)
    labels = []
    for row in range(rows):
        parts = []
        for k, (array, table) in enumerate(tables.items()):
            entries = ", ".join(f"{float(value):.17g}" for value in np.ravel(table[row]))
            if code_labels.get(array) and 0 <= int(table[row]) < len(code_labels[array]):
                entries = code_labels[array][int(table[row])]
            parts.append(f"{array.name or f'x{k}'}={entries if table[row].size == 1 else f'({entries})'}")
        labels.append("; ".join(parts))
    # Labels may contain the separators, or look like codes.
    return _row_labels(tables, rows, {}) if code_labels and len(set(labels)) < rows else tuple(labels)


def _with_rows(
    log_p: Node,
    value: Node,
    tables: Mapping[Node, NDArray[Any]],
    n: int | None,
    model: pm.Model,
    rv: Node,
    axis: int,
) -> tuple[Node, Node]:
    """The log-probability with an entry for each row of the table instead of one for each record."""
    rows = max(map(len, tables.values()), default=1)
    constants = {array: pt.constant(entries) for array, entries in tables.items()}
    shortened, entry = _with_length(log_p, value, constants, (n, rows), model, rv, axis)
    if shortened.type.shape[0] not in (None, rows):
        raise _per_record(str(rv.name))
    return shortened, entry


def _with_length(
    log_p: Node,
    value: Node,
    places: Mapping[Node, Node],
    lengths: tuple[int | None, int | None],
    model: pm.Model,
    rv: Node,
    axis: int,
) -> tuple[Node, Node]:
    """The log-probability of another number of rows, which may be unknown, with replacements for the covariates.

    The lengths are the number of records in the graph, if there is one, and the number of rows. The graph is rebuilt
    from its inputs, so that the shapes of all nodes follow.
    """
    n, rows = lengths
    entry = pt.tensor(dtype=value.type.dtype, shape=(rows, *value.type.shape[1:]))
    memo: dict[Node, Node] = {**places, value: entry}
    length: Node = entry.shape[0] if rows is None else pt.constant(rows, dtype="int64")
    for dim in model.named_vars_to_dims.get(str(rv.name), ())[axis : axis + 1]:
        if dim is not None and dim in model.dim_lengths:
            memo[model.dim_lengths[dim]] = length

    def with_lengths(node: Any, entries: list[Node]) -> list[Node]:
        if isinstance(node.op, Alloc | SpecifyShape):
            entries[1:] = [_length(old, new, n, length) for old, new in zip(node.inputs[1:], entries[1:], strict=True)]
        return entries

    try:
        rebuild([log_p], memo, with_lengths)
    except FAILURES:
        raise _per_record(str(rv.name)) from None
    shortened = memo.get(log_p, log_p)
    if shortened.type.ndim != log_p.type.ndim:
        raise _per_record(str(rv.name))
    return shortened, entry


def _length(old: Node, new: Node, n: int | None, rows: Node) -> Node:
    """A length of an array, with the number of rows instead of that of records. A check detects a wrong one."""
    leaves = [node for node in ancestors([old]) if node.owner is None]
    if new is not old or not all(isinstance(node, Constant | SharedVariable) for node in leaves):
        return new
    entries = evaluate(old)
    same = entries.ndim == 0 and entries.dtype.kind in "iu" and int(entries) == n
    return rows if same else old


def _per_record(name: str) -> UnsupportedModelError:
    return model_refusal(
        name,
        "has something for each record that is not a covariate, such as an effect of single persons, or mixes records, "
        "as a mean of a covariate does",
        "Compute means before the model. Pass what differs between records as pm.Data with an entry for each, and "
        "choose effects of groups by codes, as in effect[group].",
    )


def _support(rv: Node, short: Node, entry: Node, core: int, inputs: Inputs, options: ModelOptions) -> NDArray[np.int64]:
    """The values of one observation: those in `support`, or all with a positive probability."""
    name = str(rv.name)
    if name in options.support:
        listed_values = np.asarray(options.support[name])
        if (
            listed_values.ndim != 1 + core
            or listed_values.dtype.kind not in "iub"
            or len(listed_values) < 2
            or not len(np.unique(listed_values, axis=0)) == len(listed_values)
        ):
            raise ArgumentError(
                f"Expected support[{name!r}] to be a list of at least two different values of one observation."
            )
        return listed_values.astype(np.int64)
    if core:
        trials = (
            " Or pass contribution=1 instead of unit= if each trial is another person."
            if operation(rv) in TRIALS
            else ""
        )
        raise model_refusal(
            name, "has vectors as observations", f"Pass support={{{name!r}: [...]}}, a list of all of them.{trials}"
        )
    # The values to try, and values far out that show whether the support ends.
    near, far_out = np.arange(-50, 256), (10**4, 10**6)
    tried = np.concatenate([near, far_out])
    possible = np.zeros(len(tried), dtype=bool)
    for logs in inputs.at_points(_by_value(short, entry, tried)):
        possible |= np.isfinite(logs.reshape(len(tried), -1)).any(axis=1)
    if possible[len(near) - 1 :].any() or possible[0]:
        raise model_question(
            name,
            "has no largest value, or more than 256 values",
            f"Pass count_variables=[{name!r}] if each observation is a number of people; cap it by pm.Censored(..., "
            f"upper=k); or list its values as support={{{name!r}: [...]}}.",
            Answer({"count_variables": (name,)}),
        )
    support = tried[possible]
    if len(support) < 2:
        raise model_refusal(name, "has one value only", "It contains no information, so leave it out.")
    return support.astype(np.int64)


def _check_outcomes(name: str, rows: Node, inputs: Inputs) -> None:
    """Check that the probabilities of the outcomes add up to 1."""
    for logs in inputs.at_points(rows):
        if not np.all(np.abs(np.exp(logs).sum(axis=-1) - 1) <= 1e-6):
            raise model_refusal(
                name,
                "has more values than those that were found or listed: their probabilities do not add up to 1",
                f"List all values of one observation as support={{{name!r}: [...]}}.",
            )


def _check_records(
    name: str,
    rows: Node,
    support: NDArray[np.int64],
    n: int | None,
    made_up: Callable[[NDArray[np.int64]], tuple[Node, Node]],
    inputs: Inputs,
) -> None:
    """Compare with PyMC's own log-probability of n made-up records; if n is private, of one more than of rows."""
    short = inputs.at_points(rows)
    total = len(short[0])
    n = total + 1 if n is None else n
    # Each row occurs once, as far as there are records. All records in one row detect a graph that mixes records, as a
    # mean of a covariate does.
    met = [(np.arange(n) + shift) % total for shift in range(0, total, max(n, 1))]
    for places in [*met, *(np.full(n, row) for row in sorted({0, total - 1}))]:
        whole, value = made_up(places)
        for k, outcome in enumerate(support):
            repeated = np.broadcast_to(outcome, value.type.shape).astype(value.type.dtype)
            try:
                expected = inputs.at_points(whole, (value, repeated))
            except (ValueError, AssertionError, IndexError):
                # An array is as long as there are records, but was not recognised as a covariate.
                raise _per_record(name) from None
            for computed, reference in zip(short, expected, strict=True):
                if not np.allclose(computed[places][..., k], reference, rtol=1e-9, atol=1e-9):
                    raise _per_record(name)
