"""Noisy tables as PyMC distributions, which replace the observed variables in a private model.

They are ordinary observed variables. Each of them draws counts from PyMC's distributions and adds the noise of the
mechanism. Its log-probability is that of the noisy counts, with the counts summed out. All its parameters are inputs
of the graph, so PyTensor can reuse compiled code.

They can be created before anything is published, so errors in a model are raised before a ledger is charged.
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
    parsed: ParsedModel,
    plan: Plan,
    n_prior: float | Mapping[str, float] | None,
    noisy: Mapping[str, Array] | None = None,
    *,
    base: pm.Model | None = None,
    suffix: str = "",
) -> pm.Model:
    """The free variables of a model, with the likelihood of a release that was drawn from a plan.

    Parameters
    ----------
    parsed : ParsedModel
    plan : Plan
        The plan of the model's tables, or that of a release.
    n_prior
        As for :func:`pymc_dirdp.private_model`.
    noisy : mapping of str to array, optional
        The published noisy counts of each table. By default they are zeros.
    base : pymc.Model, optional
        A private model with the same free variables, to which the tables are added.
    suffix : str, default ""
        The end of the names of all new variables and dims.

    Raises
    ------
    ReleaseError
        If the plan or the noisy counts are not those of these tables.
    ArgumentError
        If `n_prior` is not a positive number, or the free variables differ.
    """
    parts = {part.table.name: part for part in plan.parts}
    if set(parts) != {outcomes.name for outcomes in parsed.outcomes}:
        raise ReleaseError(
            f"The release has the tables {', '.join(sorted(parts))}, and the model observes "
            f"{', '.join(outcomes.name for outcomes in parsed.outcomes)}. Pass the model that was released."
        )
    if base is None:
        public = public_data(parsed.model, parsed.secret, parsed.dims, parsed.options)
        deterministics = public_deterministics(parsed.model, parsed.free, parsed.dims, public)
        private = without_data(parsed.model, parsed.free, deterministics)
    else:
        _refuse_other_variables(parsed, base)
        private = base
    published = {name: None if noisy is None else np.asarray(noisy[name], dtype=np.float64) for name in parts}
    joint_names = {part.table.name for group in plan.noise_groups for part in group}
    with private:
        for outcomes in parsed.outcomes:
            name = outcomes.name
            part = parts[name]
            if name not in joint_names:
                outcomes = _match_released_rows(part, outcomes)
            layout, coords = layout_of(outcomes, parsed), part.table.coords
            labels = tuple(tuple(map(str, coords[dim] or ())) for dim in layout.dims if dim in coords)
            if part.table.dims != layout.dims or labels != layout.labels or not has_likelihood(part):
                raise ReleaseError(
                    f"The table {name!r} of the release has other rows or outcomes than the model. Pass public, "
                    "levels, counts, support and unit as for the release, with the public covariates of all its "
                    "records."
                )
            largest = n_prior.get(name) if isinstance(n_prior, Mapping) else n_prior
            limit = None if largest is None else positive(n_prior=largest)
            if outcomes.kind == "counts":
                _observe_numbers(outcomes, parsed, part, published[name], suffix)
            elif name not in joint_names:
                renamed = replace(outcomes, name=_unused_name(f"{name}{suffix}"))
                _observe_rows(renamed, parsed, part, published[name], limit)
        for group in plan.noise_groups:
            log_p = [item.log_p for part in group for item in parsed.outcomes if item.name == part.table.name]
            name = _unused_name("_".join(part.table.name for part in group) + suffix)
            _observe_joint([_in_model(logs, parsed.inputs) for logs in log_p], group, published, name)
    check_nothing_left(private, parsed.secret, (), parsed.dims)
    return private


def _match_released_rows(part: PlannedTable, outcomes: Outcomes) -> Outcomes:
    """The outcomes on the rows of a released table, which may have covariates that the model does not use.

    Rows that differ only in such covariates have the same log-probabilities, so models with and without a covariate
    have likelihoods of the same release and can be compared. The caller refuses rows that match no row of the model.
    """
    name, coords, dims = outcomes.name, part.table.coords, part.table.dims
    if outcomes.kind != "records":
        return outcomes
    if dims == (f"{name}_cell",):
        cells = map(str, coords[f"{name}_cell"] or ())
        released_rows, has_totals = tuple(dict.fromkeys(cell.rpartition(" | ")[0] for cell in cells)), False
    elif dims == (f"{name}_row", f"{name}_outcome"):
        released_rows, has_totals = tuple(map(str, coords[f"{name}_row"] or ())), True
    else:
        return outcomes
    # A model without covariates has the single row 0, which matches every row.
    covariates = [frozenset[str]() if row == 0 else frozenset(str(row).split("; ")) for row in outcomes.rows]
    places = [[k for k, values in enumerate(covariates) if values <= set(row.split("; "))] for row in released_rows]
    if released_rows == tuple(map(str, outcomes.rows)) or any(len(rows) != 1 for rows in places):
        return outcomes
    log_p: Any = outcomes.log_p
    totals = (0,) * len(released_rows) if has_totals else None
    return replace(outcomes, rows=released_rows, log_p=log_p[[rows[0] for rows in places]], totals=totals)


def _refuse_other_variables(parsed: ParsedModel, private: pm.Model) -> None:
    """Refuse a model whose free variables differ from those of a private model in their names or shapes."""
    shapes = {str(rv.name): rv.type.shape for rv in private.free_RVs}
    for rv in parsed.free:
        if shapes.get(str(rv.name)) != rv.type.shape:
            raise ArgumentError(
                f"{rv.name!r} is no free variable of the same shape in the models of all releases. Give all of them "
                "the same free variables; what differs between releases is a covariate."
            )


def _unused_name(name: str) -> str:
    """A name that the private model has not used."""
    if name in pm.modelcontext(None).named_vars:
        raise ArgumentError(f"{name!r} is a variable of the model, and the private model needs the name. Rename it.")
    return name


def _in_model(graph: Any, inputs: Inputs, *published: Node) -> Any:
    """A graph of the inputs or the free variables, with the free variables of the private model in their place.

    Public data become constants, so that changes of the original model do not affect the copy.
    """
    places: dict[Node, Node] = {}
    for rv, place in inputs.by_variable.items():
        places[place] = places[rv] = pm.modelcontext(None)[str(rv.name)]
    for node in ancestors([graph], blockers=list(places)):
        is_random_state = isinstance(node.type, RandomType)
        if isinstance(node, SharedVariable) and node not in published and not is_random_state:
            # Not a copy, so that a search for private data in the model still recognizes them.
            places[node] = pt.constant(node.get_value(borrow=True))
    return graph_replace([graph], places, strict=False)[0]


# The distributions.


def _as_shared(values: Any, name: str, shape: tuple[int | None, ...] | None = None) -> Any:
    """A shared variable, which PyTensor does not compile into a function."""
    make: Any = shared
    return make(np.asarray(values), shape=np.shape(values) if shape is None else shape, name=name)


def _with_noise(counts: Callable[..., Any], marginal: NoisyMarginal, shape: tuple[int, ...]) -> Callable[..., Any]:
    """The `dist` of a :class:`pymc.CustomDist`, which draws the counts of a table and adds the noise."""

    def noisy(*parameters: Any) -> Any:
        noise: Any = _NoiseVariable(marginal)
        # Calling the operation itself differs between versions of PyTensor.
        _, noise_draws = noise.make_node(shared(np.random.default_rng()), None, pt.zeros(math.prod(shape))).outputs
        return counts(*parameters) + noise_draws.reshape(shape)

    return noisy


def _observed(noisy: Array | None, name: str, shape: tuple[int, ...]) -> Any:
    """Noisy counts as 64-bit integers, which are clipped to their range. They are zeros if nothing was published."""
    values = np.zeros(shape) if noisy is None else np.rint(noisy).ravel()[: math.prod(shape)].reshape(shape)
    return _as_shared(np.clip(values, -(2.0**62), 2.0**62).astype(np.int64), f"{name}_noisy")


def _multinomial(log_p: Any, n: Any, size: Any = None) -> Any:
    """Multinomial counts, also if a prior draws invalid shares, such as those of unordered cut points."""
    p = pt.maximum(pt.switch(pt.isnan(log_p), 0.0, pt.exp(log_p)), 1e-300)
    return pm.Multinomial.dist(n, p / p.sum(axis=-1, keepdims=True), size=size)


def _counts_of_rows(log_weights: Any, *others: Any) -> Any:
    """Counts of rows with public totals, which are the second input, or Poisson counts. The last input is a size."""
    return _multinomial(log_weights, others[0], others[-1]) if len(others) > 2 else pm.Poisson.dist(pt.exp(log_weights))


def _logp_of_rows(value: Any, log_weights: Any, *others: Any) -> Any:
    """Log-probability of noisy counts of rows.

    Parameters
    ----------
    value, log_weights : TensorVariable, shape (..., k)
        The noisy counts, and the logarithms of the shares or of the expected counts of cells.
    *others : TensorVariable
        The numbers of a `CellNoise` if totals are private. Otherwise the totals, these numbers, and the cached
        :func:`pair_terms` of the published noisy counts, which are empty if there are none. They are valid only for
        these noisy counts, and do not change the result.
    """
    rows = [array.reshape((-1, value.shape[-1])).astype("float64") for array in (log_weights, value)]
    n, noise, terms = others if len(others) > 1 else (np.empty(0, dtype=np.int64), *others, None)
    totals, row_terms = n.ravel().astype("int64"), np.empty((0, 0, 0))
    if terms is not None and terms.type.shape[-1]:
        row_terms = terms.reshape((totals.shape[0], 1, terms.shape[-1]))
    logs = rows_logp(NoisyRows, *rows, noise, row_terms, totals).reshape(value.shape[:-1], ndim=value.ndim - 1)
    return logs - pt.exp(log_weights).sum(axis=-1) if terms is None else logs


# The observed variables.


def _noisy_marginal(part: PlannedTable) -> NoisyMarginal:
    """The axes and the shape of a noisy table, and the noise of its mechanism."""
    mechanism: Any = part.mechanism
    marginal: NoisyMarginal = mechanism.noisy_marginals[0]
    return marginal


class _NoiseVariable(RandomVariable):
    """The noise of a mechanism on a table with as many cells as the input.

    Parameters
    ----------
    marginal : NoisyMarginal
        The table and its noise. It is a property, because PyTensor rebuilds operations from their properties.
    """

    name = "noise"
    signature = "(k)->(k)"
    dtype = "int64"
    _print_name = ("Noise", "\\operatorname{Noise}")
    __props__: Any = (*RandomVariable.__props__, "marginal")

    def __init__(self, marginal: NoisyMarginal, **options: Any) -> None:
        super().__init__(**options)
        self.marginal = marginal

    @override
    def rng_fn(self, rng: np.random.Generator, zeros: Array, size: Any) -> Integers:
        lead = zeros.shape[:-1] if size is None else tuple(size)
        noise = np.reshape(self.marginal.noise_for(lead, rng), (*lead, self.marginal.size))
        return np.rint(noise[..., : zeros.shape[-1]]).astype(np.int64)


@numba_core_rv_funcify.register(_NoiseVariable)
def _draw_in_python(op: _NoiseVariable, node: Any) -> Any:
    """Let Numba call Python. Its warning at each compilation is ignored, because you need not act on it."""
    warnings.filterwarnings("ignore", f"Numba will use object mode to run {type(op).__name__}", UserWarning)
    raise NotImplementedError("The noise of a whole table is drawn at once, by Python.")


def _observe_numbers(
    outcomes: Outcomes, parsed: ParsedModel, part: PlannedTable, noisy: Array | None, suffix: str, *, cut: float = 45.0
) -> None:
    """Observe noisy numbers of people.

    The sums leave out noise that is less likely than no noise by a factor of more than `exp(cut)`.
    """
    assert outcomes.value is not None
    inputs, model, noise = parsed.inputs, pm.modelcontext(None), part.mechanism.cell_noise
    assert noise is not None
    name, value, size = outcomes.name, outcomes.value, len(outcomes.labels)
    grid, logs = (_as_shared(np.zeros((1, size)), f"{name}_{what}", (None, size)) for what in ("numbers", "noise"))
    shape = tuple(value.type.shape)
    numbers: Any = vectorize_graph(outcomes.log_p, {value: grid.reshape((-1, *shape)).astype(value.type.dtype)})
    log_numbers = numbers.reshape((-1, size))
    if noisy is not None:
        noisy_counts = noisy.ravel()[:size]
        reach = cut / noise.slope if not noise.is_normal else math.sqrt(cut / noise.slope)
        low, high = np.maximum(np.floor(noisy_counts - reach), 0), np.ceil(np.maximum(noisy_counts, 0) + reach)
        # The sums start at 0 if that adds fewer than 300 numbers of people.
        low[low < 300] = 0
        counts = low + np.arange(int((high - low).max()) + 1, dtype=np.float64)[:, None]
        chances = np.where(counts <= high, noise.log_noise(noisy_counts - counts), -np.inf)
        at_points = inputs.at_points(log_numbers, (grid, counts))
        is_possible = np.any(list(map(np.isfinite, at_points)), axis=0) & np.isfinite(chances)
        if not is_possible.any(axis=0).all():
            raise ReleaseError(
                f"The release does not belong to this model, in which no value of {name!r} is near its noisy "
                "count. Pass the model that was released."
            )
        # Impossible numbers are replaced by a possible one with a probability of 0, because log-probabilities have no
        # gradient at impossible numbers.
        first = np.take_along_axis(counts, is_possible.argmax(axis=0)[None], axis=0)
        grid.set_value(np.where(is_possible, counts, first))
        logs.set_value(np.where(is_possible, chances, -np.inf))
    dims = parsed.model.named_vars_to_dims.get(name)
    new_dims = dims and tuple(dim and f"{dim}{suffix}" for dim in dims)
    for dim, new_dim in zip(dims or (), new_dims or (), strict=True):
        if dim is not None and new_dim not in model.coords:
            model.add_coord(new_dim, parsed.model.coords.get(dim), length=int(parsed.model.dim_lengths[dim].eval()))
    free = [model[str(rv.name)] for rv in inputs.by_variable]
    math_of_graphs: Any = pt
    without_noise = _in_model(parsed.model[name], inputs)
    log_p = math_of_graphs.logsumexp(_in_model(log_numbers, inputs, grid) + logs, axis=0)

    def people(*parameters: Any) -> Any:
        return graph_replace([without_noise], dict(zip(free, parameters, strict=False)), strict=False)[0]

    def logp(value: Any, *parameters: Any) -> Any:
        total: Any = graph_replace([log_p], dict(zip([*free, grid, logs], parameters, strict=True)), strict=False)[0]
        return total.reshape(shape)

    pm.CustomDist(
        _unused_name(f"{name}{suffix}"),
        *free,
        grid,
        logs,
        dist=_with_noise(people, _noisy_marginal(part), shape),
        logp=logp,
        signature=safe_signature([variable.type.ndim for variable in (*free, grid, logs)], [len(shape)]),
        observed=_observed(noisy, name, shape),
        dims=new_dims,
        class_name="NoisyNumbers",
    )


def _observe_joint(
    log_p: Sequence[Any], parts: Sequence[PlannedTable], noisy: Mapping[str, Array | None], name: str
) -> None:
    """Observe the noisy counts of tables that share their noise, concatenated."""
    noise = parts[0].mechanism.shared_noise
    assert noise is not None
    rows_by_part = [part.mechanism.joint_rows(np.zeros(part.table.shape)) for part in parts]
    blocks = [block for rows in rows_by_part if rows is not None for block in rows.blocks]
    rows = JointRows.of(blocks, noise.radius_log_weights, published=False)
    noisy_values = [values for part in parts if (values := noisy[part.table.name]) is not None]
    for part, values, bound in zip(parts, noisy_values, rows.limits.max(axis=1).tolist(), strict=False):
        if values.sum() != part.n_records or np.maximum(-values, 0).sum() > bound:
            raise ReleaseError(
                f"The release does not belong to this plan: the noisy counts of {part.table.name!r} do not add up "
                f"to {part.n_records} records, or some are below -{bound}. Ask its publisher for the file again."
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
        observed=_observed(np.concatenate(noisy_values) if noisy_values else None, name, shape),
        dims=(dim,),
        class_name="JointCounts",
    )


def _observe_rows(
    outcomes: Outcomes, parsed: ParsedModel, part: PlannedTable, noisy: Array | None, limit: float | None
) -> None:
    """Observe the noisy table of an observed variable. Private row sizes are added as free variables."""
    private, name, layout = pm.modelcontext(None), outcomes.name, layout_of(outcomes, parsed)
    noise, rows, cells = part.mechanism.cell_noise, len(outcomes.rows), len(outcomes.labels)
    assert noise is not None
    for dim, labels in zip(layout.dims, layout.labels, strict=True):
        private.add_coord(dim, labels)
    observed = _observed(noisy, name, layout.shape)
    values = observed.get_value().astype(np.float64)
    log_weights = _in_model(outcomes.log_p, parsed.inputs)
    if not layout.rows_are_public:
        dims = (f"{name}_row",) if rows > 1 else None
        if dims and dims[0] not in private.coords:
            private.add_coord(dims[0], tuple(map(str, outcomes.rows)))
        if parsed.options.records_are_public:
            row_sizes: Any = pm.Dirichlet(_unused_name(f"{name}_shares"), np.ones(rows), dims=dims)
        else:
            if limit is None:
                limit = 10 * float(values.reshape(rows, cells).sum(axis=1).max(initial=1.0)) + 20 * noise.sd * cells
            upper, shape = _as_shared(np.asarray(limit), f"{name}_most"), None if dims else (rows,)
            row_sizes = pm.Uniform(_unused_name(f"{name}_expected"), 0, upper, shape=shape, dims=dims)
        log_weights = pt.log(row_sizes)[:, None] + log_weights
    inputs = [log_weights.reshape(layout.shape), noise.numbers]
    is_public = parsed.options.records_are_public
    if is_public:
        totals = np.array(part.totals or (part.n_records or 0,), dtype=np.int64).reshape(layout.shape[:-1])
        pairs = values.reshape(totals.size, -1)
        terms = pair_terms(pairs, noise.numbers, totals.ravel()) if pairs.shape[1] == 2 else np.empty((totals.size, 0))
        terms = _as_shared(terms.reshape((*totals.shape, terms.shape[-1])), f"{name}_terms")
        inputs = [inputs[0], totals, noise.numbers, terms]
    pm.CustomDist(
        name,
        *inputs,
        dist=_with_noise(_counts_of_rows, _noisy_marginal(part), layout.shape),
        logp=_logp_of_rows,
        signature="(k),(),(c),(l)->(k)" if is_public else "(k),(c)->(k)",
        observed=observed,
        dims=layout.dims,
        class_name="NoisyCounts" if is_public else "NoisyPoisson",
    )
