"""The table of an observed variable of which one observation is one person: outcomes by rows of covariates.

Everything that is found is checked at three random points against PyMC's own log-probability with an entry for each
record, for covariates that are made up; no record is looked at.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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

from pymc_dirdp.errors import ArgumentError, DataError, UnsupportedModelError
from pymc_dirdp.models.graph import Node, evaluate, operation
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.outcomes import (
    Inputs,
    ModelOptions,
    Outcomes,
    core_of,
    log_probability,
    n_row_arrays,
    refused,
    too_many,
)
from pymc_dirdp.models.shared_data import same_data

__all__ = ["jointly_observed", "read_records"]

# The values that are tried where no support is given, and values far out that tell whether it ends.
_TRIED, _FAR_OUT = np.arange(-50, 256), (10**4, 10**6)
_ROUNDING = 1e-6


def read_records(rv: Node, shape: tuple[int, ...], model: pm.Model, inputs: Inputs, said: ModelOptions) -> Outcomes:
    """The outcomes of an observed variable, of which each observation is a person."""
    name, core = str(rv.name), core_of(rv)
    batch = shape[: len(shape) - core]
    if len(batch) > 1:
        raise refused(
            name,
            "has more than one axis of observations, so a person may hold several of them",
            "Observe one variable for each entry of the second axis, and put them together by jointly=.",
        )
    value = pt.tensor(dtype=rv.type.dtype, shape=shape, name=f"{name}_value")
    log_p = log_probability(rv, value, inputs)
    n = batch[0] if batch else None
    arrays = n_row_arrays(ancestors([log_p]), n) if n is not None else []
    columns, private = _covariates(name, arrays, model, said)
    public = [array for array in columns if array not in private]
    first, pattern = _patterns(name, public, n or 1)
    levels = [said.levels[str(array.name)] for array in private]
    total_rows = len(first) * math.prod(levels)
    if total_rows > said.max_cells:
        raise too_many(name, total_rows, said)
    grid = list(itertools.product(*map(range, levels)))
    tables = {array: np.repeat(evaluate(array)[first], len(grid), axis=0) for array in public}
    for array, codes in zip(private, zip(*grid, strict=True), strict=True):
        tables[array] = np.array(codes * len(first), dtype=array.type.dtype)
    short, entry = _with_rows(log_p, value, tables, n, total_rows, model, rv) if batch else (log_p, value)
    support = _support(rv, short, entry, core, inputs, said)
    if total_rows * len(support) > said.max_cells:
        raise too_many(name, total_rows * len(support), said)
    values = np.broadcast_to(
        support[(slice(None), *([None] * len(batch)))],
        (len(support), *([total_rows] if batch else []), *shape[len(batch) :]),
    )
    by_value: Any = vectorize_graph(short, {entry: pt.constant(np.ascontiguousarray(values, dtype=rv.type.dtype))})
    rows = by_value.T if batch else by_value[None]
    _check(name, rows, log_p, value, support, tables, n, inputs)
    labels = tuple(",".join(map(str, one.tolist())) if core else int(one) for one in support)

    def each(records: pm.Model) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        own = np.asarray(evaluate(stored_observations(records[name], records)))
        codes = _codes(name, own.reshape(-1, *shape[len(batch) :]), support)
        row = pattern
        for array, length in zip(private, levels, strict=True):
            row = row * length + _codes_below(length, array)
        return row, codes

    totals = tuple(np.bincount(pattern).tolist()) if said.records_are_public and not private else None
    read = _counted(each, (total_rows, len(support)))
    return Outcomes(name, "records", labels, _row_labels(tables, total_rows), rows, None, totals, n or 1, read, each)


def _counted(each: Callable[[pm.Model], Any], shape: tuple[int, int]) -> Callable[[pm.Model], NDArray[np.int64]]:
    """A function that counts records by row and outcome."""

    def read(records: pm.Model) -> NDArray[np.int64]:
        counts = np.zeros(shape, dtype=np.int64)
        np.add.at(counts, each(records), 1)
        return counts

    return read


def jointly_observed(outcomes: Sequence[Outcomes], said: ModelOptions) -> Outcomes:
    """The answers of the same people to several questions, as one variable whose values are all combinations.

    Given the free variables the answers of a person are independent, as the model has them, so the log-probability of a
    combination is the sum of those of its parts.

    Raises
    ------
    UnsupportedModelError
        If they are not observations of the same people, or there are too many combinations.
    """
    name = "_".join(one.name for one in outcomes)
    largest = max(outcomes, key=lambda one: len(one.rows))
    rows, cells = len(largest.rows), math.prod(len(one.labels) for one in outcomes)
    each = [one.each for one in outcomes if one.each is not None]
    if (
        len(outcomes) < 2
        or len(each) < len(outcomes)
        or len({one.n_records for one in outcomes}) > 1
        or any(one.rows != largest.rows for one in outcomes if len(one.rows) > 1)
    ):
        raise refused(
            name,
            "is no set of answers of the same people",
            "Put together observed variables of which each has an entry for each person, with the same covariates.",
        )
    if rows * cells > said.max_cells:
        raise too_many(name, rows * cells, said)
    places = list(itertools.product(*(range(len(one.labels)) for one in outcomes)))
    chosen = [pt.broadcast_to(one.log_p, (rows, len(one.labels))) for one in outcomes]
    log_p: Any = sum(logs[:, list(entries)] for logs, entries in zip(chosen, zip(*places, strict=True), strict=True))
    labels = tuple(",".join(str(one.labels[k]) for one, k in zip(outcomes, entries, strict=True)) for entries in places)

    def together(records: pm.Model) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        found = [read(records) for read in each]
        codes = np.zeros_like(found[0][1])
        for one, (_, own) in zip(outcomes, found, strict=True):
            codes = codes * len(one.labels) + own
        rows_of_records: NDArray[np.int64] = np.stack([row for row, _ in found]).max(axis=0)
        return rows_of_records, codes

    read = _counted(together, (rows, cells))
    return Outcomes(
        name, "records", labels, largest.rows, log_p, None, largest.totals, largest.n_records, read, together
    )


def _covariates(
    name: str, arrays: Sequence[Node], model: pm.Model, said: ModelOptions
) -> tuple[list[Node], list[Node]]:
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
        if any(same_data(array, one) for one in private):
            raise refused(
                name, "reads one covariate as public and private", "Use the same pm.Data in all places of the model."
            )
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


def _patterns(name: str, public: Sequence[Node], n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A record with each of the different values of the public covariates, in order, and which of these each has."""
    if not public:
        return np.zeros(1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    flat = np.concatenate([evaluate(array).reshape(n, -1).astype(np.float64) for array in public], axis=1)
    if not np.all(np.isfinite(flat)):
        raise refused(name, "has a public covariate with missing values", "Give them a category of their own.")
    _, first, pattern = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    return first.astype(np.int64), pattern.astype(np.int64).reshape(-1)


def _row_labels(tables: Mapping[Node, NDArray[Any]], rows: int) -> tuple[Any, ...]:
    """What the rows are called: by the values of the covariates."""
    if not tables:
        return (0,)
    labels = []
    for row in range(rows):
        parts = []
        for k, (array, table) in enumerate(tables.items()):
            entries = ", ".join(f"{float(one):.17g}" for one in np.ravel(table[row]))
            parts.append(f"{array.name or f'x{k}'}={entries if table[row].size == 1 else f'({entries})'}")
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
    memo: dict[Node, Node] = {array: pt.constant(entries) for array, entries in tables.items()}
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
        entries = [memo.get(one, one) for one in node.inputs]
        if isinstance(node.op, Alloc | SpecifyShape):
            entries[1:] = [_length(old, new, n, rows) for old, new in zip(node.inputs[1:], entries[1:], strict=True)]
        if all(new is old for new, old in zip(entries, node.inputs, strict=True)):
            continue
        if isinstance(node.op, OpFromGraph):
            # It keeps the shapes that it was made for, so its own graph takes its place.
            inner = dict(zip(node.op.inner_inputs, entries, strict=True))
            _rebuild(node.op.inner_outputs, inner, n, rows)
            memo.update((old, inner[new]) for old, new in zip(node.outputs, node.op.inner_outputs, strict=True))
            continue
        made: Any = node.op.make_node(*entries)
        memo.update(zip(node.outputs, made.outputs, strict=True))


def _length(old: Node, new: Node, n: int | None, rows: int) -> Node:
    """A length of an array: the number of rows where it was that of records. Where that is wrong, a check finds it."""
    leaves = [node for node in ancestors([old]) if node.owner is None]
    if new is not old or not all(isinstance(node, Constant | SharedVariable) for node in leaves):
        return new
    entries = evaluate(old)
    same = entries.ndim == 0 and entries.dtype.kind in "iu" and int(entries) == n
    return pt.constant(rows, dtype="int64") if same else old


def _per_record(name: str) -> UnsupportedModelError:
    return refused(
        name,
        "has something for each record that is no array of covariates, such as an effect of single persons, or mixes "
        "records, as a mean of a covariate does",
        "Compute means before the model. Write what differs between records as pm.Data with an entry for each, and "
        "choose effects of groups by codes, as in effect[group].",
    )


def _support(rv: Node, short: Node, entry: Node, core: int, inputs: Inputs, said: ModelOptions) -> NDArray[np.int64]:
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
        trials = (
            " Or say unit='trial' if each trial is another person."
            if operation(rv) in ("BetaBinomial", "DirichletMultinomial")
            else ""
        )
        raise refused(
            name, "has vectors as observations", f"Say support={{{name!r}: [...]}}, a list of all of them.{trials}"
        )
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
        made_up: dict[Node, Node] = {array: pt.constant(entries[places]) for array, entries in tables.items()}
        whole = graph_replace([log_p], made_up, strict=False)[0] if made_up else log_p
        for k, one in enumerate(support):
            every = np.broadcast_to(one, value.type.shape).astype(value.type.dtype)
            for mine, pymc in zip(short, inputs.at_points(whole, (value, every)), strict=True):
                if not np.allclose(mine[places, k], pymc, rtol=1e-9, atol=1e-9):
                    raise _per_record(name)


def _codes(name: str, values: NDArray[Any], support: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each observation among the values; an error that shows none of them."""
    wrong = DataError(
        f"Some observation of {name!r} is missing, or is no value that its distribution can have, which begins at 0 "
        "for categories. Check the data."
    )
    if values.dtype.kind not in "biuf" or not np.all(np.isfinite(values)):
        raise wrong
    # The size is written out, as there may be no record.
    flat, known = (one.reshape(len(one), math.prod(one.shape[1:])) for one in (values, support))
    codes = np.full(len(flat), -1, dtype=np.int64)
    for k, one in enumerate(known):
        codes[(flat == one).all(axis=1)] = k
    if np.any(codes < 0):
        raise wrong
    return codes


def _codes_below(length: int, array: Node) -> NDArray[np.int64]:
    codes = evaluate(array).astype(np.int64)
    if np.any(codes < 0) or np.any(codes >= length):
        raise DataError(
            f"Some code of {array.name!r} is missing, or is none of 0, ..., {length - 1}, as levels= says. Codes that "
            "begin at 1 have to be lowered by 1."
        )
    return codes
