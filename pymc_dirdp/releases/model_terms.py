"""What stands in a private model in the place of an observed variable: the log-probability of its noisy counts.

A term is made, and can be looked at, before anything is published: noisy counts are shared variables, and are put in
when they are known. So nothing that is wrong with a model is found only after a ledger was charged, and one compiled
function serves for many releases.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import shared
from pytensor.graph.replace import graph_replace, vectorize_graph

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import positive
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.joint_rows import JointRows
from pymc_dirdp.inference.noisy_rows import NoisyRows
from pymc_dirdp.mechanisms.outputs import CellNoise
from pymc_dirdp.models.outcomes import Inputs, Outcomes
from pymc_dirdp.models.without_data import check_nothing_left, public_deterministics, without_data
from pymc_dirdp.releases.likelihood import CountsLogp, tell_jax
from pymc_dirdp.releases.model_tables import (
    ModelRead,
    has_likelihood,
    layout_of,
)
from pymc_dirdp.releases.plan_types import Plan, PlannedTable

__all__ = ["ModelTerms", "with_terms"]

# Noise of a probability of exp of minus this, beside that of none, is left out of sums over counts.
_UNLIKELY = 45.0
# Numbers of people from 0 on are all summed over if they are fewer than this.
_FEW = 300


@final
@dataclass(frozen=True, eq=False)
class _Term:
    """The log-probability of what is published of an observed variable.

    Attributes
    ----------
    logp : TensorVariable or None
        None if tables that share a noise have one term together.
    publish : callable
        `publish(noise, noisy)` puts in noisy counts, a :class:`CellNoise` on each; None if tables share a noise.
    holds : tuple of SharedVariable
        What of the graph is published.
    """

    logp: Any
    publish: Callable[[CellNoise | None, Array], None]
    holds: tuple[Any, ...]


def _shared_zeros(shape: tuple[int | None, ...], name: str) -> Any:
    make: Any = shared
    return make(np.zeros([length or 1 for length in shape]), shape=shape, name=name)


def _rows_term(log_weights: Any, shape: tuple[int, int], totals: tuple[int, ...] | None, name: str) -> _Term:
    """The log-probability of noisy rows.

    Parameters
    ----------
    log_weights : TensorVariable, shape (rows, cells)
        Log-probabilities of the cells of each row; or, with private totals, logarithms of the expected counts.
    shape : tuple of int
        That of the weights.
    totals : tuple of int, or None
        The public numbers of records of the rows; None if they are private.
    name : str
    """
    tell_jax()
    noisy, noise = _shared_zeros(shape, f"{name}_noisy"), _shared_zeros((3,), f"{name}_noise")
    rows = NoisyRows(None if totals is None else np.array(totals, dtype=np.int64))
    value, _ = CountsLogp(rows, name, shape).make_node(log_weights, noisy, noise).outputs

    def publish(cell_noise: CellNoise | None, published: Array) -> None:
        assert cell_noise is not None
        noisy.set_value(np.array(published, dtype=np.float64).reshape(shape))
        noise.set_value(cell_noise.numbers)

    publish(CellNoise(False, 1.0, 0.0), np.zeros(shape))
    return _Term(value if totals is not None else value - pt.exp(log_weights).sum(), publish, (noisy, noise))


def _counts_term(found: Outcomes, inputs: Inputs, model: pm.Model) -> _Term:
    """The log-probability of noisy observations, each of them a number of people."""
    assert found.value is not None
    log_p, value, size = found.log_p, found.value, len(found.labels)
    grid, logs = (
        _shared_zeros((None, size), f"{found.name}_numbers"),
        _shared_zeros((None, size), f"{found.name}_noise"),
    )
    numbers: Any = vectorize_graph(log_p, {value: grid.reshape((-1, *value.type.shape)).astype(value.type.dtype)})
    log_numbers = numbers.reshape((-1, size))
    at_points = inputs.function(log_numbers, grid)
    math_of_graphs: Any = pt

    def publish(noise: CellNoise | None, published: Array) -> None:
        assert noise is not None
        noisy = np.asarray(published, dtype=np.float64).ravel()[:size]
        reach = _UNLIKELY / noise.slope if not noise.is_normal else math.sqrt(_UNLIKELY / noise.slope)
        low, high = np.maximum(np.floor(noisy - reach), 0), np.ceil(np.maximum(noisy, 0) + reach)
        low[low < _FEW] = 0
        counts = low + np.arange(int((high - low).max()) + 1, dtype=np.float64)[:, None]
        chances = np.where(counts <= high, noise.log_noise(noisy - counts), -np.inf)
        possible = np.any([np.isfinite(one) for one in at_points(counts)], axis=0) & np.isfinite(chances)
        if not possible.any(axis=0).all():
            raise ReleaseError(
                f"The release does not belong to this model, in which no value of {found.name!r} is near its noisy "
                "count. Take the model that was released."
            )
        # A number that the model cannot have stands for one that it can, with a probability of 0. So no gradient is
        # taken where a log-probability has none.
        first = np.take_along_axis(counts, possible.argmax(axis=0)[None], axis=0)
        grid.set_value(np.where(possible, counts, first))
        logs.set_value(np.where(possible, chances, -np.inf))

    logp = math_of_graphs.logsumexp(_in_model(log_numbers, inputs, model) + logs, axis=0).sum()
    return _Term(logp, publish, (grid, logs))


def _joint_terms(log_p: Sequence[Any], parts: Sequence[PlannedTable]) -> tuple[Any, list[_Term]]:
    """The log-probability of the noisy counts of tables that share a noise; for each of them how these are put in."""
    tell_jax()
    noise = parts[0].mechanism.shared_noise
    assert noise is not None
    seen = [part.mechanism.joint_rows(np.zeros(part.table.shape)) for part in parts]
    blocks = [block for one in seen if one is not None for block in one.blocks]
    rows = JointRows.of(blocks, noise.radius_log_weights, published=False)
    noisy_outputs = [_shared_zeros(part.table.shape, f"{part.table.name}_noisy") for part in parts]
    inputs = [pt.concatenate([one.ravel() for one in each]) for each in (log_p, noisy_outputs)]
    name = "_".join(part.table.name for part in parts)
    value, _ = CountsLogp(rows, name, (int(rows.cells.sum()),)).make_node(*inputs).outputs

    def publishing(part: PlannedTable, place: Any, most: int) -> _Term:
        def publish(_: CellNoise | None, noisy: Array) -> None:
            if noisy.sum() != part.n_records or np.maximum(-noisy, 0).sum() > most:
                raise ReleaseError(
                    f"The release does not belong to this plan: the noisy counts of {part.table.name!r} do not add up "
                    f"to {part.n_records} records, or some are below -{most}. Ask its publisher for the file again."
                )
            place.set_value(np.array(noisy, dtype=np.float64))

        none = np.zeros(part.table.shape)
        none[0] = part.n_records
        publish(None, none)
        return _Term(None, publish, (place,))

    most = rows.limits.max(axis=1).tolist()
    return value, list(map(publishing, parts, noisy_outputs, most))


def _in_model(graph: Any, inputs: Inputs, model: pm.Model) -> Any:
    """A function of the inputs as one of the free variables of a copy of the model."""
    places = {place: model[str(rv.name)] for rv, place in inputs.by_variable.items()}
    return graph_replace([graph], places, strict=False)[0]


@final
@dataclass(frozen=True, eq=False)
class ModelTerms:
    """A copy of a model in which each observed variable is the likelihood of its noisy counts.

    Attributes
    ----------
    model : pymc.Model
        Its terms hold made-up noisy counts until `publish` is called.
    publish : callable
        `publish(noise, noisy)` puts in what was published of each observed variable: two mappings from names to a
        :class:`CellNoise`, where tables do not share a noise, and to noisy counts.
    """

    model: pm.Model
    publish: Callable[[Mapping[str, CellNoise], Mapping[str, Array]], None]


def with_terms(found: ModelRead, chosen: Plan, n_prior: float | Mapping[str, float] | None) -> ModelTerms:
    """The free variables of a model with the likelihood of a release that keeps to a plan.

    Parameters
    ----------
    found : ModelRead
    chosen : Plan
        Of the tables of the model, or of those of a release.
    n_prior
        As for :func:`pymc_dirdp.private_model`.

    Raises
    ------
    ReleaseError
        If the plan is not for these tables.
    ArgumentError
        If `n_prior` is no positive number.
    """
    parts = {part.table.name: part for part in chosen.parts}
    if set(parts) != {one.name for one in found.outcomes}:
        raise ReleaseError(
            f"The release has the tables {', '.join(sorted(parts))}, and the model observes "
            f"{', '.join(one.name for one in found.outcomes)}. Take the model that was released."
        )
    public = found.said.records_are_public
    hidden = frozenset[int]() if public else found.records
    deterministics = public_deterministics(found.model, found.free, hidden, found.dims)
    private = without_data(found.model, found.free, deterministics)
    terms: dict[str, _Term] = {}
    together = {part.table.name for group in chosen.together for part in group}
    lengths: set[int] = set()
    for one in found.outcomes:
        part, laid = parts[one.name], layout_of(one, found)
        labels = tuple(tuple(map(str, part.table.coords[dim] or ())) for dim in laid.dims if dim in part.table.coords)
        if part.table.dims != laid.dims or labels != laid.labels or not has_likelihood(part):
            raise ReleaseError(
                f"The table {one.name!r} of the release has other rows or outcomes than the model. Pass public, "
                "levels, counts, support and unit as for the release, with the public covariates of all its records."
            )
        lengths |= {*laid.shape, len(one.rows), len(one.labels)}
        given = n_prior.get(one.name) if isinstance(n_prior, Mapping) else n_prior
        if one.name in together:
            continue
        with private:
            name = _new(f"{one.name}_release", found)
            terms[one.name] = _term(one, found, part, None if given is None else positive(n_prior=given))
            pm.Potential(name, terms[one.name].logp)
    log_p = {one.name: one.log_p for one in found.outcomes}
    for group in chosen.together:
        names = [part.table.name for part in group]
        with private:
            value, each = _joint_terms([_in_model(log_p[name], found.inputs, private) for name in names], group)
            pm.Potential(_new(f"{'_'.join(names)}_release", found), value)
        terms |= zip(names, each, strict=True)
    known = {length for rv in found.free for length in found.model.rvs_to_values[rv].type.shape if length is not None}
    own = [node for term in terms.values() for node in term.holds]
    check_nothing_left(private, found.secret, own, found.records, lengths | (known if public else set()))

    def publish(noise: Mapping[str, CellNoise], noisy: Mapping[str, Array]) -> None:
        for name, term in terms.items():
            term.publish(noise.get(name), noisy[name])

    return ModelTerms(private, publish)


def _new(name: str, found: ModelRead) -> str:
    """A name that the model has not used."""
    if name in found.model.named_vars:
        raise ArgumentError(f"{name!r} is a variable of the model, and the private model needs the name. Rename it.")
    return name


def _term(one: Outcomes, found: ModelRead, part: PlannedTable, most: float | None) -> _Term:
    """The term of an observed variable; new free variables are added to the model on the context stack."""
    private, laid = pm.modelcontext(None), layout_of(one, found)
    if one.kind == "counts":
        return _counts_term(one, found.inputs, private)
    rows, cells = len(one.rows), len(one.labels)
    log_p = _in_model(one.log_p, found.inputs, private)
    if laid.rows_are_public:
        return _rows_term(log_p, (rows, cells), part.totals or (part.n_records or 0,), one.name)
    dims = None
    if rows > 1:
        dims = (f"{one.name}_row",)
        private.add_coord(dims[0], tuple(map(str, one.rows)))
    if found.said.records_are_public:
        shares = pm.Dirichlet(_new(f"{one.name}_shares", found), np.ones(rows), dims=dims)
        weights = (pt.log(shares)[:, None] + log_p).reshape((1, rows * cells))
        return _rows_term(weights, (1, rows * cells), (part.n_records or 0,), one.name)
    upper = _shared_zeros((), f"{one.name}_most")
    name = _new(f"{one.name}_expected", found)
    expected: Any = pm.Uniform(name, 0, upper, shape=None if dims else (rows,), dims=dims)
    term = _rows_term(pt.log(expected)[:, None] + log_p, (rows, cells), None, one.name)

    def publish(noise: CellNoise | None, noisy: Array) -> None:
        assert noise is not None
        term.publish(noise, noisy)
        seen = np.maximum(np.reshape(noisy, (rows, cells)).sum(axis=1), 1.0)
        upper.set_value(np.asarray(10 * seen.max() + 20 * noise.sd * cells if most is None else most))
        private.set_initval(expected, np.minimum(seen, upper.get_value() / 2))

    publish(CellNoise(False, 1.0, 0.0), np.zeros((rows, cells)))
    return _Term(term.logp, publish, (*term.holds, upper))
