"""What stands in the place of the observed variables of a private model: noisy tables with the likelihood of counts.

They are made, and can be looked at, before anything is published: noisy counts are shared variables, and are put in
when they are known. So nothing that is wrong with a model is found only after a ledger was charged.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable, shared
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import positive
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.joint_rows import JointRows
from pymc_dirdp.inference.noisy_rows import pair_terms
from pymc_dirdp.mechanisms.noise import NoisyMarginal
from pymc_dirdp.models.graph import Node
from pymc_dirdp.models.outcomes import Inputs, Outcomes
from pymc_dirdp.models.without_data import (
    check_nothing_left,
    public_data,
    public_deterministics,
    without_data,
)
from pymc_dirdp.releases.model_tables import ModelRead, has_likelihood, layout_of
from pymc_dirdp.releases.noisy_tables import JointCounts, NoisyCounts, NoisyPoisson, observe_noisy_numbers
from pymc_dirdp.releases.plan_types import Plan, PlannedTable

type _Publish = Callable[[Array], None]


def _noisy_counts(shape: tuple[int, ...], name: str) -> Any:
    """Where noisy counts are put in when they are known."""
    make: Any = shared
    return make(np.zeros(shape, dtype=np.int64), shape=shape, name=f"{name}_noisy")


def _measured(part: PlannedTable) -> NoisyMarginal:
    """The counts of a table, and the noise of their mechanism."""
    mechanism: Any = part.mechanism
    marginal: NoisyMarginal = mechanism.noisy_marginals[0]
    return marginal


def _terms(totals: Integers, shape: tuple[int, ...], name: str) -> Any:
    """Where what depends on noisy counts alone is put in when they are known: nothing for other tables than pairs."""
    make: Any = shared
    size = 0 if shape[-1] != 2 else pair_terms(np.zeros((totals.size, 2)), np.zeros(3), totals.ravel()).shape[-1]
    return make(np.full((*shape[:-1], size), np.nan), shape=(*shape[:-1], size), name=f"{name}_terms")


def _published_into(place: Any) -> _Publish:
    return lambda noisy: place.set_value(_integers(noisy).reshape(place.type.shape))


def _integers(noisy: Array) -> Integers:
    """Noisy counts as PyMC's discrete variables are, cut where there are no 64-bit integers."""
    return np.clip(np.rint(noisy), -(2.0**62), 2.0**62).astype(np.int64)


def _numbers_of_people(
    found: Outcomes, read: ModelRead, part: PlannedTable, ending: str, *, unlikely: float = 45.0
) -> _Publish:
    """Observe noisy observations, each of them a number of people.

    Noise of a probability of `exp(-unlikely)` beside that of none is left out of the sums.
    """
    assert found.value is not None
    inputs, model, noise = read.inputs, pm.modelcontext(None), part.mechanism.cell_noise
    assert noise is not None
    log_p, value, size = found.log_p, found.value, len(found.labels)
    make: Any = shared
    grid, logs = (
        make(np.zeros((1, size)), shape=(None, size), name=f"{found.name}_{what}") for what in ("numbers", "noise")
    )
    place = _noisy_counts(tuple(value.type.shape), found.name)
    numbers: Any = vectorize_graph(log_p, {value: grid.reshape((-1, *value.type.shape)).astype(value.type.dtype)})
    log_numbers = numbers.reshape((-1, size))
    at_points = inputs.function(log_numbers, grid)
    math_of_graphs: Any = pt

    def publish(published: Array) -> None:
        noisy = np.asarray(published, dtype=np.float64).ravel()[:size]
        reach = unlikely / noise.slope if not noise.is_normal else math.sqrt(unlikely / noise.slope)
        low, high = np.maximum(np.floor(noisy - reach), 0), np.ceil(np.maximum(noisy, 0) + reach)
        # Numbers of people from 0 on are all summed over if they are fewer than this.
        low[low < 300] = 0
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
        place.set_value(_integers(noisy).reshape(place.type.shape))

    # The numbers that are summed over are put in later.
    log_numbers = _in_model(log_numbers, inputs, model, grid)
    logp = math_of_graphs.logsumexp(log_numbers + logs, axis=0)
    dims = read.model.named_vars_to_dims.get(found.name)
    called = dims and tuple(dim and f"{dim}{ending}" for dim in dims)
    for dim, new in zip(dims or (), called or (), strict=True):
        if dim is not None and new not in model.coords:
            model.add_coord(new, read.model.coords.get(dim), length=int(read.model.dim_lengths[dim].eval()))
    observe_noisy_numbers(
        _new(f"{found.name}{ending}", model),
        _in_model(read.model[found.name], inputs, model),
        [model[str(rv.name)] for rv in inputs.by_variable],
        logp,
        [grid, logs],
        measured=_measured(part),
        observed=place,
        dims=called,
    )
    return publish


def _joint_tables(log_p: Sequence[Any], parts: Sequence[PlannedTable], name: str) -> list[_Publish]:
    """Observe the noisy counts of tables that share a noise, side by side; for each of them how these are put in."""
    noise = parts[0].mechanism.shared_noise
    assert noise is not None
    seen = [part.mechanism.joint_rows(np.zeros(part.table.shape)) for part in parts]
    blocks = [block for rows in seen if rows is not None for block in rows.blocks]
    rows = JointRows.of(blocks, noise.radius_log_weights, published=False)
    ends = np.cumsum(rows.cells)
    place = _noisy_counts((int(ends[-1]),), name)
    labels = [
        f"{part.table.name}={label}"
        for part in parts
        for label in part.table.coords[(part.table.dims or ("",))[0] or ""] or ()
    ]
    dim = f"{name}_cell"
    pm.modelcontext(None).add_coord(dim, labels)
    totals = np.array([part.n_records for part in parts], dtype=np.int64)
    measured = NoisyMarginal((0,), (int(ends[-1]),), noise)
    inputs = pt.concatenate([logs.ravel() for logs in log_p]), totals, *rows.arrays
    JointCounts(name, *inputs, measured=measured, observed=place, dims=(dim,))

    def publishing(part: PlannedTable, start: int, end: int, most: int) -> _Publish:
        def publish(noisy: Array) -> None:
            if noisy.sum() != part.n_records or np.maximum(-noisy, 0).sum() > most:
                raise ReleaseError(
                    f"The release does not belong to this plan: the noisy counts of {part.table.name!r} do not add up "
                    f"to {part.n_records} records, or some are below -{most}. Ask its publisher for the file again."
                )
            values = place.get_value()
            values[start:end] = _integers(noisy)
            place.set_value(values)

        none = np.zeros(end - start)
        none[0] = part.n_records
        publish(none)
        return publish

    most = rows.limits.max(axis=1).tolist()
    return list(map(publishing, parts, (ends - rows.cells).tolist(), ends.tolist(), most))


def _in_model(graph: Any, inputs: Inputs, model: pm.Model, *published: Node) -> Any:
    """A function of the inputs, or of the free variables, as one of the free variables of a copy of the model.

    Public data become constants, so that nothing that happens to the original model changes the copy.
    """
    places: dict[Node, Node] = {}
    for rv, place in inputs.by_variable.items():
        places[place] = places[rv] = model[str(rv.name)]
    for node in ancestors([graph], blockers=list(places)):
        is_random_state = isinstance(node.type, RandomType)
        if isinstance(node, SharedVariable) and node not in published and not is_random_state:
            # The same memory, so that what looks for data that are left behind still finds them.
            places[node] = pt.constant(node.get_value(borrow=True))
    return graph_replace([graph], places, strict=False)[0]


@final
@dataclass(frozen=True, eq=False)
class PrivateModel:
    """A copy of a model whose observed variables are noisy tables.

    Attributes
    ----------
    model : pymc.Model
        Its noisy counts are made up until `publish` is called.
    publish : callable
        `publish(noisy)` puts in what was published of each table, a mapping from names to noisy counts.
    """

    model: pm.Model
    publish: Callable[[Mapping[str, Array]], None]


def with_terms(
    found: ModelRead,
    chosen: Plan,
    n_prior: float | Mapping[str, float] | None,
    *,
    beside: pm.Model | None = None,
    ending: str = "",
) -> PrivateModel:
    """The free variables of a model with the likelihood of a release that keeps to a plan.

    Parameters
    ----------
    found : ModelRead
    chosen : Plan
        Of the tables of the model, or of those of a release.
    n_prior
        As for :func:`pymc_dirdp.private_model`.
    beside : pymc.Model, optional
        A private model with the same free variables, to which the tables are added.
    ending : str, default ""
        Of the names of all variables and dims that are added.

    Raises
    ------
    ReleaseError
        If the plan is not for these tables.
    ArgumentError
        If `n_prior` is no positive number, or the free variables are others.
    """
    parts = {part.table.name: part for part in chosen.parts}
    if set(parts) != {one.name for one in found.outcomes}:
        raise ReleaseError(
            f"The release has the tables {', '.join(sorted(parts))}, and the model observes "
            f"{', '.join(one.name for one in found.outcomes)}. Take the model that was released."
        )
    if beside is None:
        public = public_data(found.model, found.secret, found.dims, found.said)
        deterministics = public_deterministics(found.model, found.free, found.dims, public)
        private = without_data(found.model, found.free, deterministics)
    else:
        _refuse_other_variables(found, beside)
        private = beside
    places: dict[str, _Publish] = {}
    together = {part.table.name for group in chosen.together for part in group}
    for outcomes in found.outcomes:
        part, laid = parts[outcomes.name], layout_of(outcomes, found)
        labels = tuple(tuple(map(str, part.table.coords[dim] or ())) for dim in laid.dims if dim in part.table.coords)
        if part.table.dims != laid.dims or labels != laid.labels or not has_likelihood(part):
            raise ReleaseError(
                f"The table {outcomes.name!r} of the release has other rows or outcomes than the model. Pass public, "
                "levels, counts, support and unit as for the release, with the public covariates of all its records."
            )
        given = n_prior.get(outcomes.name) if isinstance(n_prior, Mapping) else n_prior
        most = None if given is None else positive(n_prior=given)
        if outcomes.name not in together:
            with private:
                places[outcomes.name] = _observed(outcomes, found, part, most, ending)
    log_p = {outcomes.name: outcomes.log_p for outcomes in found.outcomes}
    for group in chosen.together:
        names = [part.table.name for part in group]
        with private:
            logs = [_in_model(log_p[name], found.inputs, private) for name in names]
            places |= zip(names, _joint_tables(logs, group, _new("_".join(names) + ending, private)), strict=True)
    check_nothing_left(private, found.secret, (), found.dims)

    def publish(noisy: Mapping[str, Array]) -> None:
        for name, put in places.items():
            put(noisy[name])

    return PrivateModel(private, publish)


def _refuse_other_variables(found: ModelRead, private: pm.Model) -> None:
    """Refuse a model whose free variables are not those of a private model, by their names and shapes."""
    shapes = {str(rv.name): rv.type.shape for rv in private.free_RVs}
    for rv in found.free:
        if shapes.get(str(rv.name)) != rv.type.shape:
            raise ArgumentError(
                f"{rv.name!r} is no free variable of the same shape in the models of all releases. Give all of them "
                "the same free variables; what differs between releases is a covariate."
            )


def _new(name: str, private: pm.Model) -> str:
    """A name that a private model has not used."""
    if name in private.named_vars:
        raise ArgumentError(f"{name!r} is a variable of the model, and the private model needs the name. Rename it.")
    return name


def _observed(
    outcomes: Outcomes, found: ModelRead, part: PlannedTable, most: float | None, ending: str = ""
) -> _Publish:
    """Observe the noisy table of an observed variable in the model on the context stack; how noisy counts are put in.

    New free variables are added to the model.
    """
    private, name = pm.modelcontext(None), f"{outcomes.name}{ending}"
    if outcomes.kind == "counts":
        return _numbers_of_people(outcomes, found, part, ending)
    outcomes = replace(outcomes, name=_new(name, private))
    laid = layout_of(outcomes, found)
    noise, rows, cells = part.mechanism.cell_noise, len(outcomes.rows), len(outcomes.labels)
    assert noise is not None
    for dim, labels in zip(laid.dims, laid.labels, strict=True):
        private.add_coord(dim, labels)
    place = _noisy_counts(laid.shape, name)
    observed: dict[str, Any] = {"measured": _measured(part), "observed": place, "dims": laid.dims}
    log_p = _in_model(outcomes.log_p, found.inputs, private)
    publish = _published_into(place)
    if laid.rows_are_public:
        totals = np.array(part.totals or (part.n_records or 0,), dtype=np.int64).reshape(laid.shape[:-1])
        terms = _terms(totals, laid.shape, name)
        NoisyCounts(name, log_p.reshape(laid.shape), totals, noise.numbers, terms, **observed)

        def publish_with_terms(noisy: Array) -> None:
            publish(noisy)
            if terms.type.shape[-1]:
                pairs = place.get_value().reshape(-1, 2).astype(np.float64)
                terms.set_value(pair_terms(pairs, noise.numbers, totals.ravel()).reshape(terms.type.shape))

        return publish_with_terms
    dims = None
    if rows > 1:
        dims = (f"{name}_row",)
        if dims[0] not in private.coords:
            private.add_coord(dims[0], tuple(map(str, outcomes.rows)))
    if found.said.records_are_public:
        shares = pm.Dirichlet(_new(f"{name}_shares", private), np.ones(rows), dims=dims)
        weights = (pt.log(shares)[:, None] + log_p).reshape(laid.shape)
        NoisyCounts(name, weights, np.int64(part.n_records or 0), noise.numbers, np.empty(0), **observed)
        return publish
    make: Any = shared
    upper = make(np.zeros(()), name=f"{name}_most")
    expected: Any = pm.Uniform(_new(f"{name}_expected", private), 0, upper, shape=None if dims else (rows,), dims=dims)
    NoisyPoisson(name, (pt.log(expected)[:, None] + log_p).reshape(laid.shape), noise.numbers, **observed)

    def publish_with_most(noisy: Array) -> None:
        publish(noisy)
        seen = np.maximum(np.reshape(noisy, (rows, cells)).sum(axis=1), 1.0)
        upper.set_value(np.asarray(10 * seen.max() + 20 * noise.sd * cells if most is None else most))

    publish_with_most(np.zeros(laid.shape))
    return publish_with_most
