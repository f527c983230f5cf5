"""What one observation of any discrete model can be, and how likely that is: outcomes by rows of public covariates.

The log-probabilities are graphs over inputs that stand for the free variables. That comes first, because PyMC may
derive a log-probability by drawing a new random variable (`pm.Censored` does), and then it is no function of the free
variables any more. Everything that is found is checked at three random points against PyMC's own log-probability with
an entry for each record, for covariates that are made up; no record is looked at.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import Alloc
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type import TensorType

from pymc_dirdp.errors import ArgumentError, DataError, UnsupportedModelError
from pymc_dirdp.models.graph import Node, compiled_plainly, evaluate, is_random, operation, parameters, stored_shape
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.shared_data import same_data
from pymc_dirdp.sampling.bits import generator

__all__ = ["Inputs", "Outcomes", "Statements", "n_row_arrays", "read_outcomes"]

# The values that are tried where no support is given, and values far out that tell whether it ends.
_TRIED, _FAR_OUT = np.arange(-50, 256), (10**4, 10**6)
_ROUNDING = 1e-6
_POINTS = 3


@final
@dataclass(frozen=True)
class Statements:
    """What the user says about a model. All of it is public.

    Attributes
    ----------
    public : tuple of str, or True
        Covariates that anybody may know, and observed variables whose numbers of trials anybody may know.
    levels : mapping of str to int
        Private covariates, with how many codes from 0 on each of them has.
    counts : tuple of str
        Observed variables of which every observation is a number of people.
    support : mapping of str to array
        The values of observed variables.
    trials_are_people : bool
        Whether every trial of a Binomial or Multinomial is another person.
    records_are_public : bool
        Whether the number of records is public: under replace-one.
    max_cells : int
    """

    public: tuple[str, ...] | bool
    levels: Mapping[str, int]
    counts: tuple[str, ...]
    support: Mapping[str, Any]
    trials_are_people: bool
    records_are_public: bool
    max_cells: int

    def is_public(self, name: str | None) -> bool:
        """Whether a covariate or number of trials was said to be public."""
        return self.public is True or (self.public is not False and name in self.public)


@final
@dataclass(frozen=True, eq=False)
class Inputs:
    """The free variables of a model, with inputs in their places, and values of these at random points.

    Attributes
    ----------
    by_variable : dict
        For each free variable the input that stands for it.
    points : list of list of array
        Values of the inputs.
    """

    by_variable: dict[Node, Node]
    points: list[list[Any]]

    @classmethod
    def of(cls, model: pm.Model, free: Sequence[Node]) -> "Inputs":
        """Those of a model: near its initial point, because draws from a prior may be no proper values."""
        start, rng = model.initial_point(random_seed=1), generator(1)
        values = [model.rvs_to_values[rv] for rv in free]
        at = compiled_plainly(values, model.replace_rvs_by_values(list(free)))
        points = []
        for _ in range(_POINTS):
            moved = [start[value.name] + rng.normal(scale=0.5, size=np.shape(start[value.name])) for value in values]
            points.append(at(*[np.asarray(one, dtype=v.type.dtype) for one, v in zip(moved, values, strict=True)]))
        return cls({rv: rv.type(name=rv.name) for rv in free}, points)

    def replaced(self, variable: Node) -> Node:
        """The variable as a function of the inputs."""
        return graph_replace([variable], self.by_variable, strict=False)[0]

    def at_points(self, graph: Node, *others: tuple[Node, Any]) -> list[NDArray[np.float64]]:
        """The values of a graph at all points, given those of other inputs."""
        inputs = [*self.by_variable.values(), *(node for node, _ in others)]
        function = compiled_plainly(inputs, graph)
        with np.errstate(all="ignore"):
            return [np.asarray(function(*point, *(value for _, value in others))) for point in self.points]


@final
@dataclass(frozen=True, eq=False)
class Outcomes:
    """The outcomes of one observed variable.

    Attributes
    ----------
    name : str
        The observed variable.
    kind : {"records", "trials", "counts"}
        What one person is: an observation, one of its trials, or one of those that it counts.
    labels : tuple
        Of the outcomes; of counts, of the observations.
    rows : tuple
        Labels of the rows of covariates; one of them where there are no covariates.
    log_p : Variable
        Their log-probabilities as functions of the inputs, shape (rows, outcomes); of counts, the log-probability of
        `value`.
    value : Variable or None
        Of counts: what is observed.
    totals : tuple of int, or None
        The public numbers of records of the rows; None if they are private.
    n_records : int or None
        The number of records where one observation is one person; None elsewhere.
    read : callable
        `read(model)` counts the records of the model. Only this looks at them.
    """

    name: str
    kind: str
    labels: tuple[Any, ...]
    rows: tuple[Any, ...]
    log_p: Node
    value: Node | None
    totals: tuple[int, ...] | None
    n_records: int | None
    read: Callable[[pm.Model], NDArray[np.int64]]


def refused(name: str | None, why: str, way_out: str) -> UnsupportedModelError:
    """The error for a model of which no private model is made."""
    return UnsupportedModelError(f"No private model is made of this one: {name!r} {why}. {way_out}")


def n_row_arrays(graph: Iterable[Node], n: int) -> list[Node]:
    """The stored arrays in a graph that have an entry for each of n records."""
    found: dict[int, Node] = {}
    for node in graph:
        if isinstance(node, Constant | SharedVariable) and isinstance(node.type, TensorType) and node.type.ndim:
            shape = stored_shape(node)
            # A single record has no covariates but those that are said to be data.
            if shape[0] == n and (n > 1 or (isinstance(node, SharedVariable) and node.name)):
                found.setdefault(id(node), node)
    return list(found.values())


def read_outcomes(rv: Node, model: pm.Model, inputs: Inputs, said: Statements) -> Outcomes:
    """Read one observed variable.

    Raises
    ------
    UnsupportedModelError, ArgumentError
        It names the variable, the reason and a way out.
    """
    name = str(rv.name)
    called = operation(rv)
    if "Minibatch" in called or model.rvs_to_transforms.get(rv) is not None:
        raise refused(name, "is rescaled or transformed", "Observe all records as they are, without total_size.")
    if np.dtype(rv.type.dtype).kind not in "iub":
        raise refused(
            name,
            f"is a variable of real numbers ({called})",
            "Cut it into intervals and observe their codes with pm.Categorical; for a pm.CustomDist or pm.Mixture of "
            "integers say dtype='int64', and give pm.Censored both bounds, such as lower=0.",
        )
    stored = stored_observations(rv, model)
    shape = stored_shape(stored)
    if name in said.counts:
        return _counts(rv, shape, model, inputs, said)
    several = called in ("Binomial", "Multinomial") and not _single_trials(rv, inputs)
    if several and said.trials_are_people:
        return _trials(rv, shape, model, inputs, said)
    if several and called == "Multinomial":
        raise refused(
            name,
            "counts several trials in each observation, and the model leaves open whose they are",
            "Say unit='trial' if each trial is another person.",
        )
    if several and shape == ():
        raise refused(name, "is a single number of successes", "Say unit='trial' if each trial is another person.")
    return _records(rv, shape, model, inputs, said)


def _single_trials(rv: Node, inputs: Inputs) -> bool:
    trials = parameters(rv)[1][0]
    return not any(is_random(node) for node in ancestors([trials])) and bool(np.all(evaluate(trials) == 1))


def _log_probability(rv: Node, value: Node, inputs: Inputs) -> Node:
    """The log-probability of a value as a function of the inputs alone."""
    found: Node = pm.logp(inputs.replaced(rv), value, warn_rvs=False)
    for node in ancestors([found]):
        if is_random(node):
            other = f" ({node.name!r})" if node.name else ""
            raise refused(
                str(rv.name),
                f"depends on a random variable that is no free variable of the model{other}",
                "Observe both together, as one variable whose values are all their combinations.",
            )
    return found


# One observation is one person.


def _records(rv: Node, shape: tuple[int, ...], model: pm.Model, inputs: Inputs, said: Statements) -> Outcomes:
    name, core = str(rv.name), _core(rv)
    batch = shape[: len(shape) - core]
    if len(batch) > 1:
        raise refused(
            name,
            "has more than one axis of observations, so a person may hold several of them",
            "Observe one variable for each entry of the second axis (each is then one observation of a person).",
        )
    value = pt.tensor(dtype=rv.type.dtype, shape=shape, name=f"{name}_value")
    log_p = _log_probability(rv, value, inputs)
    n = batch[0] if batch else None
    arrays = n_row_arrays(ancestors([log_p]), n) if n is not None else []
    columns, private = _covariates(name, arrays, model, said)
    public = [array for array in columns if array not in private]
    patterns, inverse = _patterns(name, public)
    grid = list(itertools.product(*(range(said.levels[str(array.name)]) for array in private)))
    total_rows = len(patterns) * len(grid)
    if total_rows > said.max_cells:
        raise _too_many(name, total_rows, said)
    tables = _arrays_of_rows(public, patterns, private, grid)
    short, entry = _with_rows(log_p, value, tables, n, total_rows, model, rv) if batch else (log_p, value)
    support = _support(rv, short, entry, core, inputs, said)
    if total_rows * len(support) > said.max_cells:
        raise _too_many(name, total_rows * len(support), said)
    values = np.broadcast_to(
        support[(slice(None), *([None] * len(batch)))],
        (len(support), *([total_rows] if batch else []), *shape[len(batch) :]),
    )
    by_value: Any = vectorize_graph(short, {entry: pt.constant(np.ascontiguousarray(values, dtype=rv.type.dtype))})
    rows = by_value.T if batch else by_value[None]
    _check(name, rows, log_p, value, support, tables, n, inputs)
    labels = tuple(",".join(map(str, one.tolist())) if core else int(one) for one in support)

    def read(records: pm.Model) -> NDArray[np.int64]:
        own = np.asarray(evaluate(stored_observations(records[name], records)))
        codes = _codes(name, own.reshape(-1, *shape[len(batch) :]), support)
        row = np.zeros(len(codes), dtype=np.int64) if inverse is None else inverse
        for array in private:
            row = row * said.levels[str(array.name)] + _levels(name, array, said)
        counts = np.zeros((total_rows, len(support)), dtype=np.int64)
        np.add.at(counts, (row, codes), 1)
        return counts

    totals = None
    if said.records_are_public and not private:
        row = np.zeros(n or 1, dtype=np.int64) if inverse is None else inverse
        totals = tuple(np.bincount(row, minlength=total_rows).tolist())
    labelled = _row_labels(public, patterns, private, grid)
    return Outcomes(name, "records", labels, labelled, rows, None, totals, n or 1, read)


def _refuse_observed_elsewhere(name: str, graph: Node, model: pm.Model) -> None:
    """Refuse a variable of which a stored array is what a variable observes."""
    observed = [stored_observations(rv, model) for rv in model.observed_RVs]
    for node in ancestors([graph]):
        is_array = isinstance(node, Constant | SharedVariable) and isinstance(node.type, TensorType) and node.type.ndim
        if is_array and any(same_data(node, one) for one in observed):
            raise refused(name, "reads what a variable observes", "Observe both together, as one Multinomial variable.")


def _core(rv: Node) -> int:
    op: Any = rv.owner.op
    return int(op.ndim_supp)


def _covariates(name: str, arrays: Sequence[Node], model: pm.Model, said: Statements) -> tuple[list[Node], list[Node]]:
    """The arrays with an entry for each record, and those of them that are private; each of them was spoken of."""
    observed = [stored_observations(rv, model) for rv in model.observed_RVs]
    private = [array for array in arrays if array.name in said.levels]
    for array in arrays:
        if any(array is one or (array not in private and same_data(array, one)) for one in observed):
            raise refused(
                name,
                "is explained by what another variable observes",
                "Observe both together, as one variable whose values are all their combinations.",
            )
        if array in private:
            if array.type.ndim != 1 or np.dtype(array.type.dtype).kind not in "iu":
                raise ArgumentError(f"levels= is for codes, and {array.name!r} is no vector of integers.")
            continue
        if not said.is_public(array.name):
            called = f"the covariate {array.name!r}" if array.name else "a covariate without a name"
            named = f"public=[{str(array.name)!r}]" if array.name else "public=True"
            levels = f"levels={{{str(array.name)!r}: k}}" if array.name else "a pm.Data with a name and levels="
            raise refused(
                name,
                f"reads {called}, which has an entry for each record",
                f"Say {named} if anybody may know it, record by record; or {levels} if it is private and has the k "
                "codes 0, 1, ..., k-1.",
            )
        if not said.records_are_public:
            raise ArgumentError(
                f"public={array.name!r} tells how many records there are, which add-remove keeps private. Say "
                f"levels={{{str(array.name)!r}: k}} in its place, or take adjacency='replace-one'."
            )
    return list(arrays), private


def _patterns(name: str, public: Sequence[Node]) -> tuple[list[NDArray[Any]], NDArray[np.int64] | None]:
    """The different rows of the public covariates, in order, and which of them each record has."""
    if not public:
        return [np.empty(0)], None
    columns = [np.asarray(evaluate(array)) for array in public]
    flat = np.concatenate([one.reshape(len(one), -1).astype(np.float64) for one in columns], axis=1)
    if not np.all(np.isfinite(flat)):
        raise refused(name, "has a public covariate with missing values", "Give them a category of their own.")
    patterns, inverse = np.unique(flat, axis=0, return_inverse=True)
    return list(patterns), np.asarray(inverse, dtype=np.int64).reshape(-1)


def _arrays_of_rows(
    public: Sequence[Node], patterns: Sequence[NDArray[Any]], private: Sequence[Node], grid: Sequence[tuple[int, ...]]
) -> dict[Node, NDArray[Any]]:
    """The covariates with an entry for each row of the table."""
    rows = [(pattern, codes) for pattern in patterns for codes in grid]
    found: dict[Node, NDArray[Any]] = {}
    start = 0
    for array in public:
        inner = stored_shape(array)[1:]
        size = math.prod(inner)
        values = np.array([pattern[start : start + size] for pattern, _ in rows]).reshape(len(rows), *inner)
        found[array] = values.astype(array.type.dtype)
        start += size
    for k, array in enumerate(private):
        found[array] = np.array([codes[k] for _, codes in rows], dtype=array.type.dtype)
    return found


def _row_labels(
    public: Sequence[Node], patterns: Sequence[NDArray[Any]], private: Sequence[Node], grid: Sequence[tuple[int, ...]]
) -> tuple[Any, ...]:
    """What the rows are called: by the values of the covariates."""
    if not public and not private:
        return (0,)
    labels = []
    for pattern in patterns:
        for codes in grid:
            parts, start = [], 0
            for k, array in enumerate(public):
                size = math.prod(stored_shape(array)[1:])
                held = ", ".join(f"{one:.17g}" for one in pattern[start : start + size])
                parts.append(f"{array.name or f'x{k}'}={held if size == 1 else f'({held})'}")
                start += size
            parts += [f"{array.name}={code}" for array, code in zip(private, codes, strict=True)]
            labels.append("; ".join(parts))
    return tuple(labels)


def _with_rows(
    log_p: Node,
    value: Node,
    tables: Mapping[Node, NDArray[Any]],
    n: int | None,
    rows: int,
    model: pm.Model,
    rv: Node,
) -> tuple[Node, Node]:
    """The log-probability with an entry for each row of the table in the place of one for each record.

    The graph is built again from its inputs, so that the shapes of all nodes follow.
    """
    entry = pt.tensor(dtype=value.type.dtype, shape=(rows, *value.type.shape[1:]), name=value.name)
    memo: dict[Node, Node] = {array: pt.constant(held) for array, held in tables.items()}
    memo[value] = entry
    for dim in model.named_vars_to_dims.get(str(rv.name), ())[:1]:
        if dim is not None and dim in model.dim_lengths:
            memo[model.dim_lengths[dim]] = pt.constant(rows, dtype="int64")
    try:
        _rebuild([log_p], memo, n, rows)
    except (TypeError, ValueError, NotImplementedError, AssertionError, IndexError, KeyError):
        raise _per_record(str(rv.name)) from None
    found = memo.get(log_p, log_p)
    if found.type.ndim != 1 or found.type.shape[0] not in (None, rows):
        raise _per_record(str(rv.name))
    return found, entry


def _rebuild(outputs: Sequence[Node], memo: dict[Node, Node], n: int | None, rows: int) -> None:
    """Put into `memo` what becomes of each node of a graph, given what becomes of some of its inputs."""
    for node in toposort(outputs):
        held = [memo.get(one, one) for one in node.inputs]
        if isinstance(node.op, Alloc | SpecifyShape):
            held[1:] = [_length(old, new, n, rows) for old, new in zip(node.inputs[1:], held[1:], strict=True)]
        if all(new is old for new, old in zip(held, node.inputs, strict=True)):
            continue
        if isinstance(node.op, OpFromGraph):
            # It keeps the shapes that it was made for, so its own graph takes its place.
            inner = dict(zip(node.op.inner_inputs, held, strict=True))
            _rebuild(node.op.inner_outputs, inner, n, rows)
            memo.update((old, inner[new]) for old, new in zip(node.outputs, node.op.inner_outputs, strict=True))
            continue
        made: Any = node.op.make_node(*held)
        memo.update(zip(node.outputs, made.outputs, strict=True))


def _length(old: Node, new: Node, n: int | None, rows: int) -> Node:
    """A length of an array: the number of rows where it was that of records. Where that is wrong, a check finds it."""
    leaves = [node for node in ancestors([old]) if node.owner is None]
    if new is not old or not all(isinstance(node, Constant | SharedVariable) for node in leaves):
        return new
    held = evaluate(old)
    same = held.ndim == 0 and held.dtype.kind in "iu" and int(held) == n
    return pt.constant(rows, dtype="int64") if same else old


def _per_record(name: str) -> UnsupportedModelError:
    return refused(
        name,
        "has something for each record that is no array of covariates, such as an effect of single persons, or mixes "
        "records, as a mean of a covariate does",
        "Compute means before the model. Write what differs between records as pm.Data with an entry for each, and "
        "choose effects of groups by codes, as in effect[group].",
    )


def _support(rv: Node, short: Node, entry: Node, core: int, inputs: Inputs, said: Statements) -> NDArray[np.int64]:
    """The values of one observation: those that were said, or all that have a probability."""
    name = str(rv.name)
    if name in said.support:
        given = np.asarray(said.support[name])
        if (
            given.ndim != 1 + core
            or given.dtype.kind not in "iub"
            or len(given) < 2
            or not len(np.unique(given, axis=0)) == len(given)
        ):
            raise ArgumentError(
                f"Expected support[{name!r}] to be a list of at least two different values of one observation."
            )
        return given.astype(np.int64)
    if core:
        raise refused(name, "has vectors as observations", f"Say support={{{name!r}: [...]}}, a list of all of them.")
    rows = entry.type.shape
    tried = np.concatenate([_TRIED, _FAR_OUT])
    values = np.broadcast_to(tried[(slice(None), *([None] * len(rows)))], (len(tried), *rows))
    graph = vectorize_graph(short, {entry: pt.constant(np.ascontiguousarray(values, dtype=entry.type.dtype))})
    found = np.zeros(len(tried), dtype=bool)
    for logs in inputs.at_points(graph):
        found |= np.isfinite(logs.reshape(len(tried), -1)).any(axis=1)
    if found[len(_TRIED) - 1 :].any() or found[0]:
        raise refused(
            name,
            "has no largest value, or more than 256 values",
            f"Say counts=[{name!r}] if each observation is a number of people; cap it by pm.Censored(..., upper=k); or "
            f"list its values as support={{{name!r}: [...]}}.",
        )
    support = tried[found]
    if len(support) < 2:
        raise refused(name, "has one value only", "Nothing is learnt from it: leave it out.")
    return support.astype(np.int64)


def _check(
    name: str,
    rows: Node,
    log_p: Node,
    value: Node,
    support: NDArray[np.int64],
    tables: Mapping[Node, NDArray[Any]],
    n: int | None,
    inputs: Inputs,
) -> None:
    """Compare with PyMC's own log-probability of n made-up records, and add up the outcomes."""
    short = inputs.at_points(rows)
    for logs in short:
        if not np.all(np.abs(np.exp(logs).sum(axis=1) - 1) <= _ROUNDING):
            raise refused(
                name,
                "has more values than those that were found or said: their probabilities do not add up to 1",
                f"List all values of one observation as support={{{name!r}: [...]}}.",
            )
    if n is None:
        return
    total = len(short[0])
    # Every row is met once, as far as there are records; and all records in one row tell what mixes records, as a mean
    # of a covariate does.
    met = [(np.arange(n) + shift) % total for shift in range(0, total, max(n, 1))]
    for places in [*met, *(np.full(n, row) for row in sorted({0, total - 1}))]:
        made_up: dict[Node, Node] = {array: pt.constant(held[places]) for array, held in tables.items()}
        whole = graph_replace([log_p], made_up, strict=False)[0] if made_up else log_p
        for k, one in enumerate(support):
            every = np.broadcast_to(one, value.type.shape).astype(value.type.dtype)
            for mine, pymc in zip(short, inputs.at_points(whole, (value, every)), strict=True):
                if not np.allclose(mine[places, k], pymc, rtol=1e-9, atol=1e-9):
                    raise _per_record(name)


def _codes(name: str, values: NDArray[Any], support: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each observation among the values; an error that shows none of them."""
    wrong = DataError(f"Some observation of {name!r} is none of its values, or is missing. Check the data.")
    if values.dtype.kind not in "biuf" or not np.all(np.isfinite(values)):
        raise wrong
    flat, known = values.reshape(len(values), -1), support.reshape(len(support), -1)
    codes = np.full(len(flat), -1, dtype=np.int64)
    for k, one in enumerate(known):
        codes[(flat == one).all(axis=1)] = k
    if np.any(codes < 0):
        raise wrong
    return codes


def _levels(name: str, array: Node, said: Statements) -> NDArray[np.int64]:
    codes = np.asarray(evaluate(array)).astype(np.int64)
    if np.any(codes < 0) or np.any(codes >= said.levels[str(array.name)]):
        raise DataError(
            f"Some code of {array.name!r} is not below levels={{{str(array.name)!r}: {said.levels[str(array.name)]}}}, "
            "or is missing. Check the data."
        )
    return codes


def _too_many(name: str, cells: int, said: Statements) -> UnsupportedModelError:
    return refused(
        name,
        f"has {cells} cells, which are more than max_cells={said.max_cells}, and the noise would swamp them",
        "Put values of covariates together, use fewer of them, or raise max_cells. Fewer cells than a fifth of the "
        "records is good advice.",
    )


# Each trial is one person.


def _trials(rv: Node, shape: tuple[int, ...], model: pm.Model, inputs: Inputs, said: Statements) -> Outcomes:
    name, core = str(rv.name), _core(rv)
    batch = shape[: len(shape) - core]
    trials, p = parameters(inputs.replaced(rv))[1]
    for node in ancestors([trials, p]):
        if is_random(node) or any(node is stored_observations(one, model) for one in model.observed_RVs):
            raise refused(
                name, "depends on what is observed elsewhere", "Observe both together, as one Multinomial variable."
            )
    _refuse_observed_elsewhere(name, p, model)
    held = np.broadcast_to(np.asarray(evaluate(trials)), batch)
    n_rows = math.prod(batch)
    if said.records_are_public and n_rows > 1:
        if any(
            same_data(one, stored_observations(other, model))
            for one in n_row_arrays(ancestors([trials]), n_rows)
            for other in model.observed_RVs
        ):
            raise refused(name, "has a number of trials that is observed elsewhere", "Take adjacency='add-remove'.")
        if not said.is_public(name):
            raise refused(
                name,
                "has a number of trials for each of several rows",
                f"Say public=[{name!r}] if anybody may know these numbers, or adjacency='add-remove' to keep them "
                "private.",
            )
    if core:
        logs = pt.log(pt.broadcast_to(p, shape)).reshape((n_rows, shape[-1]))
        labels: tuple[Any, ...] = tuple(range(shape[-1]))
    else:
        whole = pt.broadcast_to(p, batch).reshape((n_rows,))
        logs = pt.stack([pt.log(whole), pt.log1p(-whole)], axis=-1)
        labels = (1, 0)
    if n_rows * len(labels) > said.max_cells:
        raise _too_many(name, n_rows * len(labels), said)

    def read(records: pm.Model) -> NDArray[np.int64]:
        values = np.asarray(evaluate(stored_observations(records[name], records)))
        wrong = DataError(f"The observations of {name!r} are not counts of its trials. Check the data.")
        if values.dtype.kind not in "biuf" or not np.all(np.isfinite(values)) or np.any(values < 0):
            raise wrong
        if np.any(values != np.floor(values)):
            raise wrong
        whole = values.astype(np.int64)
        counts = whole.reshape(n_rows, -1) if core else np.stack([whole, held - whole], axis=-1).reshape(n_rows, 2)
        if np.any(counts < 0) or np.any(counts.sum(axis=1) != held.ravel()):
            raise wrong
        return counts

    totals = tuple(held.ravel().astype(int).tolist()) if said.records_are_public else None
    return Outcomes(name, "trials", labels, tuple(range(n_rows)), logs, None, totals, None, read)


# Each observation is a number of people.


def _counts(rv: Node, shape: tuple[int, ...], model: pm.Model, inputs: Inputs, said: Statements) -> Outcomes:
    name = str(rv.name)
    if _core(rv):
        raise refused(name, "has vectors as observations", "Say unit='trial' if each trial is another person.")
    if said.records_are_public:
        raise ArgumentError(
            f"counts={name!r} keeps the number of people private. Say adjacency='add-remove', or leave it out."
        )
    size = math.prod(shape)
    if size > said.max_cells:
        raise _too_many(name, size, said)
    value = pt.tensor(dtype=rv.type.dtype, shape=shape, name=f"{name}_value")
    log_p = _log_probability(rv, value, inputs)
    _refuse_observed_elsewhere(name, log_p, model)

    def read(records: pm.Model) -> NDArray[np.int64]:
        values = np.asarray(evaluate(stored_observations(records[name], records)))
        if values.dtype.kind not in "biuf" or not np.all(np.isfinite(values)) or np.any(values < 0):
            raise DataError(f"The observations of {name!r} are not all numbers of people. Check the data.")
        if np.any(values != np.floor(values)):
            raise DataError(f"The observations of {name!r} are not all integers. Check the data.")
        return values.astype(np.int64).reshape(size)

    return Outcomes(name, "counts", tuple(range(size)), (0,), log_p, value, None, None, read)
