"""What replaces the observed variables of a private model: noisy tables as PyMC distributions.

So they are ordinary observed variables. Each draws counts from PyMC's own distributions and adds the noise of the
mechanism itself, and has the log-probability of noisy counts, in which the counts are summed out. All that a
log-probability depends on are its inputs, so PyTensor finds what it has compiled before.

They can be made before anything is published. So nothing that is wrong with a model is found only after a ledger was
charged.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable, shared
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.utils import safe_signature

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import positive
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.joint_rows import JointRows
from pymc_dirdp.inference.noisy_rows import NoisyRows, pair_terms
from pymc_dirdp.mechanisms.noise import NoisyMarginal
from pymc_dirdp.models.graph import Node
from pymc_dirdp.models.outcomes import Inputs, Outcomes
from pymc_dirdp.models.without_data import (
    check_nothing_left,
    public_data,
    public_deterministics,
    without_data,
)
from pymc_dirdp.releases.counts_logp import rows_logp
from pymc_dirdp.releases.model_tables import ParsedModel, has_likelihood, layout_of
from pymc_dirdp.releases.plan_types import Plan, PlannedTable


def with_terms(
    found: ParsedModel,
    chosen: Plan,
    n_prior: float | Mapping[str, float] | None,
    noisy: Mapping[str, Array] | None = None,
    *,
    beside: pm.Model | None = None,
    ending: str = "",
) -> pm.Model:
    """The free variables of a model with the likelihood of a release that keeps to a plan.

    Parameters
    ----------
    found : ParsedModel
    chosen : Plan
        Of the tables of the model, or of those of a release.
    n_prior
        As for :func:`pymc_dirdp.private_model`.
    noisy : mapping of str to array, optional
        What was published of each table. Without it noisy counts are made up.
    beside : pymc.Model, optional
        A private model with the same free variables, to which the tables are added.
    ending : str, default ""
        Of the names of all variables and dims that are added.

    Raises
    ------
    ReleaseError
        If the plan, or what was published, is not for these tables.
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
        public = public_data(found.model, found.secret, found.dims, found.options)
        deterministics = public_deterministics(found.model, found.free, found.dims, public)
        private = without_data(found.model, found.free, deterministics)
    else:
        _refuse_other_variables(found, beside)
        private = beside
    published = {name: None if noisy is None else np.asarray(noisy[name], dtype=np.float64) for name in parts}
    together = {part.table.name for group in chosen.together for part in group}
    with private:
        for outcomes in found.outcomes:
            name = outcomes.name
            part = parts[name]
            if name not in together:
                outcomes = _on_rows_of(part, outcomes)
            laid, coords = layout_of(outcomes, found), part.table.coords
            labels = tuple(tuple(map(str, coords[dim] or ())) for dim in laid.dims if dim in coords)
            if part.table.dims != laid.dims or labels != laid.labels or not has_likelihood(part):
                raise ReleaseError(
                    f"The table {name!r} of the release has other rows or outcomes than the model. Pass public, "
                    "levels, counts, support and unit as for the release, with the public covariates of all its "
                    "records."
                )
            given = n_prior.get(name) if isinstance(n_prior, Mapping) else n_prior
            most = None if given is None else positive(n_prior=given)
            if outcomes.kind == "counts":
                _observe_numbers(outcomes, found, part, published[name], ending)
            elif name not in together:
                _observe_rows(replace(outcomes, name=_new(f"{name}{ending}")), found, part, published[name], most)
        for group in chosen.together:
            log_p = [one.log_p for part in group for one in found.outcomes if one.name == part.table.name]
            name = _new("_".join(part.table.name for part in group) + ending)
            _observe_joint([_in_model(logs, found.inputs) for logs in log_p], group, published, name)
    check_nothing_left(private, found.secret, (), found.dims)
    return private


def _on_rows_of(part: PlannedTable, outcomes: Outcomes) -> Outcomes:
    """The outcomes on the rows of a released table, which may have covariates that the model does not read.

    Records in rows that differ in such covariates alone have the same log-probabilities. So models with and without a
    covariate have likelihoods of the same release and can be compared. Rows that match no row of the model are left to
    the caller to refuse.
    """
    name, coords, dims = outcomes.name, part.table.coords, part.table.dims
    if outcomes.kind != "records":
        return outcomes
    if dims == (f"{name}_cell",):
        cells = map(str, coords[f"{name}_cell"] or ())
        released, has_totals = tuple(dict.fromkeys(cell.rpartition(" | ")[0] for cell in cells)), False
    elif dims == (f"{name}_row", f"{name}_outcome"):
        released, has_totals = tuple(map(str, coords[f"{name}_row"] or ())), True
    else:
        return outcomes
    # A model without covariates has one row, 0, which is part of every row.
    own = [frozenset[str]() if row == 0 else frozenset(str(row).split("; ")) for row in outcomes.rows]
    places = [[k for k, values in enumerate(own) if values <= set(row.split("; "))] for row in released]
    if released == tuple(map(str, outcomes.rows)) or any(len(found) != 1 for found in places):
        return outcomes
    log_p: Any = outcomes.log_p
    totals = (0,) * len(released) if has_totals else None
    return replace(outcomes, rows=released, log_p=log_p[[found[0] for found in places]], totals=totals)


def _refuse_other_variables(found: ParsedModel, private: pm.Model) -> None:
    """Refuse a model whose free variables are not those of a private model, by their names and shapes."""
    shapes = {str(rv.name): rv.type.shape for rv in private.free_RVs}
    for rv in found.free:
        if shapes.get(str(rv.name)) != rv.type.shape:
            raise ArgumentError(
                f"{rv.name!r} is no free variable of the same shape in the models of all releases. Give all of them "
                "the same free variables; what differs between releases is a covariate."
            )


def _new(name: str) -> str:
    """A name that the private model has not used."""
    if name in pm.modelcontext(None).named_vars:
        raise ArgumentError(f"{name!r} is a variable of the model, and the private model needs the name. Rename it.")
    return name


def _in_model(graph: Any, inputs: Inputs, *published: Node) -> Any:
    """A function of the inputs, or of the free variables, as one of the free variables of the private model.

    Public data become constants, so that nothing that happens to the original model changes the copy.
    """
    places: dict[Node, Node] = {}
    for rv, place in inputs.by_variable.items():
        places[place] = places[rv] = pm.modelcontext(None)[str(rv.name)]
    for node in ancestors([graph], blockers=list(places)):
        is_random_state = isinstance(node.type, RandomType)
        if isinstance(node, SharedVariable) and node not in published and not is_random_state:
            # The same memory, so that what looks for data that are left behind still finds them.
            places[node] = pt.constant(node.get_value(borrow=True))
    return graph_replace([graph], places, strict=False)[0]


# The distributions.


def _stored(values: Any, name: str, shape: tuple[int | None, ...] | None = None) -> Any:
    """An array that PyTensor does not compile into a function."""
    make: Any = shared
    return make(np.asarray(values), shape=np.shape(values) if shape is None else shape, name=name)


def _with_noise(counts: Callable[..., Any], measured: NoisyMarginal, shape: tuple[int, ...]) -> Callable[..., Any]:
    """The `dist` of a :class:`pymc.CustomDist`: random counts of a table, with the noise of its mechanism."""

    def noisy(*parameters: Any) -> Any:
        noise: Any = _NoiseVariable(measured)
        # A call of the operation itself differs between versions of PyTensor.
        _, drawn = noise.make_node(shared(np.random.default_rng()), None, pt.zeros(math.prod(shape))).outputs
        return counts(*parameters) + drawn.reshape(shape)

    return noisy


def _observed(noisy: Array | None, name: str, shape: tuple[int, ...]) -> Any:
    """Noisy counts as PyMC's discrete variables are, cut where there are no 64-bit integers; zeros without any."""
    values = np.zeros(shape) if noisy is None else np.rint(noisy).ravel()[: math.prod(shape)].reshape(shape)
    return _stored(np.clip(values, -(2.0**62), 2.0**62).astype(np.int64), f"{name}_noisy")


def _multinomial(log_p: Any, n: Any, size: Any = None) -> Any:
    """Counts, also where a prior draws no proper shares, such as cut points without order, with which PyMC draws on."""
    p = pt.maximum(pt.switch(pt.isnan(log_p), 0.0, pt.exp(log_p)), 1e-300)
    return pm.Multinomial.dist(n, p / p.sum(axis=-1, keepdims=True), size=size)


def _counts_of_rows(log_weights: Any, *others: Any) -> Any:
    """Counts of rows with public totals, which are the next input, or Poisson counts; the last input is a size."""
    return _multinomial(log_weights, others[0], others[-1]) if len(others) > 2 else pm.Poisson.dist(pt.exp(log_weights))


def _logp_of_rows(value: Any, log_weights: Any, *others: Any) -> Any:
    """Log-probability of noisy counts of rows.

    Parameters
    ----------
    value, log_weights : TensorVariable, shape (..., k)
        The noisy counts, and the logarithms of the shares of cells, or of their expected counts.
    *others : TensorVariable
        The numbers of a `CellNoise` where totals are private. Otherwise the totals, these numbers, and
        :func:`pair_terms` of the noisy counts that were published, which changes no value; it has no entries where
        there are none, and is no use for other noisy counts.
    """
    rows = [array.reshape((-1, value.shape[-1])).astype("float64") for array in (log_weights, value)]
    n, noise, terms = others if len(others) > 1 else (np.empty(0, dtype=np.int64), *others, None)
    totals, listed = n.ravel().astype("int64"), np.empty((0, 0, 0))
    if terms is not None and terms.type.shape[-1]:
        listed = terms.reshape((totals.shape[0], 1, terms.shape[-1]))
    logs = rows_logp(NoisyRows, *rows, noise, listed, totals).reshape(value.shape[:-1], ndim=value.ndim - 1)
    return logs - pt.exp(log_weights).sum(axis=-1) if terms is None else logs


# The observed variables.


def _measured(part: PlannedTable) -> NoisyMarginal:
    """The counts of a table, and the noise of their mechanism."""
    mechanism: Any = part.mechanism
    marginal: NoisyMarginal = mechanism.noisy_marginals[0]
    return marginal


class _NoiseVariable(RandomVariable):
    """The noise of a mechanism on a table, of as many cells as the input has.

    Parameters
    ----------
    measured : NoisyMarginal
        The table and its noise. PyTensor makes operations again from their properties, so it is one.
    """

    name = "noise"
    signature = "(k)->(k)"
    dtype = "int64"
    _print_name = ("Noise", "\\operatorname{Noise}")
    __props__: Any = (*RandomVariable.__props__, "measured")

    def __init__(self, measured: NoisyMarginal, **options: Any) -> None:
        super().__init__(**options)
        self.measured = measured

    @override
    def rng_fn(self, rng: np.random.Generator, zeros: Array, size: Any) -> Integers:
        lead = zeros.shape[:-1] if size is None else tuple(size)
        noise = np.reshape(self.measured.noise_for(lead, rng), (*lead, self.measured.size))
        return np.rint(noise[..., : zeros.shape[-1]]).astype(np.int64)


@numba_core_rv_funcify.register(_NoiseVariable)
def _drawn_by_python(op: _NoiseVariable, node: Any) -> Any:
    """Numba calls Python. It says so at each compilation, and there is nothing that anybody should do about it."""
    warnings.filterwarnings("ignore", f"Numba will use object mode to run {type(op).__name__}", UserWarning)
    raise NotImplementedError("The noise of a whole table is drawn at once, by Python.")


def _observe_numbers(
    found: Outcomes, read: ParsedModel, part: PlannedTable, noisy: Array | None, ending: str, *, unlikely: float = 45.0
) -> None:
    """Observe noisy observations, each of them a number of people.

    Noise of a probability of `exp(-unlikely)` beside that of none is left out of the sums.
    """
    assert found.value is not None
    inputs, model, noise = read.inputs, pm.modelcontext(None), part.mechanism.cell_noise
    assert noise is not None
    value, size = found.value, len(found.labels)
    grid, logs = (_stored(np.zeros((1, size)), f"{found.name}_{what}", (None, size)) for what in ("numbers", "noise"))
    shape = tuple(value.type.shape)
    numbers: Any = vectorize_graph(found.log_p, {value: grid.reshape((-1, *shape)).astype(value.type.dtype)})
    log_numbers = numbers.reshape((-1, size))
    if noisy is not None:
        shown = noisy.ravel()[:size]
        reach = unlikely / noise.slope if not noise.is_normal else math.sqrt(unlikely / noise.slope)
        low, high = np.maximum(np.floor(shown - reach), 0), np.ceil(np.maximum(shown, 0) + reach)
        # Numbers of people from 0 on are all summed over if they are fewer than this.
        low[low < 300] = 0
        counts = low + np.arange(int((high - low).max()) + 1, dtype=np.float64)[:, None]
        chances = np.where(counts <= high, noise.log_noise(shown - counts), -np.inf)
        at_points = inputs.at_points(log_numbers, (grid, counts))
        possible = np.any([np.isfinite(one) for one in at_points], axis=0) & np.isfinite(chances)
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
    dims = read.model.named_vars_to_dims.get(found.name)
    called = dims and tuple(dim and f"{dim}{ending}" for dim in dims)
    for dim, new in zip(dims or (), called or (), strict=True):
        if dim is not None and new not in model.coords:
            model.add_coord(new, read.model.coords.get(dim), length=int(read.model.dim_lengths[dim].eval()))
    free = [model[str(rv.name)] for rv in inputs.by_variable]
    math_of_graphs: Any = pt
    without_noise = _in_model(read.model[found.name], inputs)
    log_p = math_of_graphs.logsumexp(_in_model(log_numbers, inputs, grid) + logs, axis=0)

    def people(*parameters: Any) -> Any:
        return graph_replace([without_noise], dict(zip(free, parameters, strict=False)), strict=False)[0]

    def logp(value: Any, *parameters: Any) -> Any:
        known: Any = graph_replace([log_p], dict(zip([*free, grid, logs], parameters, strict=True)), strict=False)[0]
        return known.reshape(shape)

    pm.CustomDist(
        _new(f"{found.name}{ending}"),
        *free,
        grid,
        logs,
        dist=_with_noise(people, _measured(part), shape),
        logp=logp,
        signature=safe_signature([variable.type.ndim for variable in (*free, grid, logs)], [len(shape)]),
        observed=_observed(noisy, found.name, shape),
        dims=called,
        class_name="NoisyNumbers",
    )


def _observe_joint(
    log_p: Sequence[Any], parts: Sequence[PlannedTable], noisy: Mapping[str, Array | None], name: str
) -> None:
    """Observe the noisy counts of tables that share a noise, side by side."""
    noise = parts[0].mechanism.shared_noise
    assert noise is not None
    seen = [part.mechanism.joint_rows(np.zeros(part.table.shape)) for part in parts]
    blocks = [block for rows in seen if rows is not None for block in rows.blocks]
    rows = JointRows.of(blocks, noise.radius_log_weights, published=False)
    published = [values for part in parts if (values := noisy[part.table.name]) is not None]
    for part, values, most in zip(parts, published, rows.limits.max(axis=1).tolist(), strict=False):
        if values.sum() != part.n_records or np.maximum(-values, 0).sum() > most:
            raise ReleaseError(
                f"The release does not belong to this plan: the noisy counts of {part.table.name!r} do not add up "
                f"to {part.n_records} records, or some are below -{most}. Ask its publisher for the file again."
            )
    dim, shape = f"{name}_cell", (int(rows.cells.sum()),)
    labels = [
        f"{part.table.name}={label}"
        for part in parts
        for label in part.table.coords[(part.table.dims or ("",))[0] or ""] or ()
    ]
    pm.modelcontext(None).add_coord(dim, labels)
    ends = np.cumsum(rows.cells).tolist()
    slices = list(map(slice, [0, *ends[:-1]], ends))

    def counts(log_p: Any, n: Any, *others: Any) -> Any:
        return pt.concatenate([_multinomial(log_p[cells], n[i]) for i, cells in enumerate(slices)])

    def logp(value: Any, log_p: Any, n: Any, *arrays: Any) -> Any:
        return rows_logp(JointRows, log_p, value.astype("float64"), *arrays)

    totals = np.array([part.n_records for part in parts], dtype=np.int64)
    pm.CustomDist(
        name,
        pt.concatenate([logs.ravel() for logs in log_p]),
        totals,
        *rows.arrays,
        dist=_with_noise(counts, NoisyMarginal((0,), shape, noise), shape),
        logp=logp,
        signature="(k),(t),(t),(m,r),(r)->(k)",
        observed=_observed(np.concatenate(published) if published else None, name, shape),
        dims=(dim,),
        class_name="JointCounts",
    )


def _observe_rows(
    outcomes: Outcomes, found: ParsedModel, part: PlannedTable, noisy: Array | None, most: float | None
) -> None:
    """Observe the noisy table of an observed variable. New free variables are added to the model."""
    private, name, laid = pm.modelcontext(None), outcomes.name, layout_of(outcomes, found)
    noise, rows, cells = part.mechanism.cell_noise, len(outcomes.rows), len(outcomes.labels)
    assert noise is not None
    for dim, labels in zip(laid.dims, laid.labels, strict=True):
        private.add_coord(dim, labels)
    observed = _observed(noisy, name, laid.shape)
    values = observed.get_value().astype(np.float64)
    log_weights = _in_model(outcomes.log_p, found.inputs)
    if not laid.rows_are_public:
        dims = (f"{name}_row",) if rows > 1 else None
        if dims and dims[0] not in private.coords:
            private.add_coord(dims[0], tuple(map(str, outcomes.rows)))
        if found.options.records_are_public:
            of_rows: Any = pm.Dirichlet(_new(f"{name}_shares"), np.ones(rows), dims=dims)
        else:
            if most is None:
                most = 10 * float(values.reshape(rows, cells).sum(axis=1).max(initial=1.0)) + 20 * noise.sd * cells
            upper, shape = _stored(np.asarray(most), f"{name}_most"), None if dims else (rows,)
            of_rows = pm.Uniform(_new(f"{name}_expected"), 0, upper, shape=shape, dims=dims)
        log_weights = pt.log(of_rows)[:, None] + log_weights
    inputs = [log_weights.reshape(laid.shape), noise.numbers]
    public = found.options.records_are_public
    if public:
        totals = np.array(part.totals or (part.n_records or 0,), dtype=np.int64).reshape(laid.shape[:-1])
        pairs = values.reshape(totals.size, -1)
        terms = pair_terms(pairs, noise.numbers, totals.ravel()) if pairs.shape[1] == 2 else np.empty((totals.size, 0))
        terms = _stored(terms.reshape((*totals.shape, terms.shape[-1])), f"{name}_terms")
        inputs = [inputs[0], totals, noise.numbers, terms]
    pm.CustomDist(
        name,
        *inputs,
        dist=_with_noise(_counts_of_rows, _measured(part), laid.shape),
        logp=_logp_of_rows,
        signature="(k),(),(c),(l)->(k)" if public else "(k),(c)->(k)",
        observed=observed,
        dims=laid.dims,
        class_name="NoisyCounts" if public else "NoisyPoisson",
    )
