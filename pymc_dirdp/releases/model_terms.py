"""The tables of a model of any discrete data, and what stands in the place of its observed variables.

An observed variable is counted in a table, whose plan is that of a conjugate model; in a private model the
log-probability of the noisy counts stands in its place. Such a term is made, and can be looked at, before anything is
published: noisy counts are shared variables, and are put in when they are known. So nothing that is wrong with a model
is found only after a ledger was charged, and one compiled function serves for many releases.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable, shared
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.subtensor import Subtensor

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import one_of, positive
from pymc_dirdp.errors import ArgumentError, ReleaseError, UnattainableError, UnsupportedModelError
from pymc_dirdp.inference.joint_rows import JointRows, multiplications
from pymc_dirdp.mechanisms.noise import NoisyMarginal
from pymc_dirdp.models.graph import Node, evaluate, is_stored, operation, parameters, stored_shape
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.outcome_kinds import (
    ask_whose_trials,
    has_several_trials,
    private_trials,
    read_outcomes,
    with_shares,
)
from pymc_dirdp.models.outcomes import (
    NOISES,
    Inputs,
    ModelOptions,
    Outcomes,
    asked,
    axes_of,
    jointly_observed,
    people_axis,
    record_arrays,
    refused,
)
from pymc_dirdp.models.person_effects import effect_of_person, integrated, refuse_long_format
from pymc_dirdp.models.privacy_unit import as_code, refuse_unknown_axes
from pymc_dirdp.models.public import numbers_to_name, refuse_copies
from pymc_dirdp.models.questions import Answer, OpenQuestionError, completed
from pymc_dirdp.models.refusals import REFUSALS
from pymc_dirdp.models.whose_records import known_bound, refuse_lost_unit
from pymc_dirdp.models.without_data import (
    check_nothing_left,
    public_data,
    public_deterministics,
    refuse_free_variables,
    refuse_unnamed_data,
    without_data,
)
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.noisy_tables import JointCounts, NoisyCounts, NoisyPoisson, observe_noisy_numbers
from pymc_dirdp.releases.plan import planned
from pymc_dirdp.releases.plan_types import Plan, PlannedTable, records_name


@final
@dataclass(frozen=True, eq=False)
class ModelRead:
    """A model that was read: what is public of it, and the functions that count its records."""

    model: pm.Model
    free: list[Node]
    inputs: Inputs
    outcomes: list[Outcomes]
    said: ModelOptions
    secret: list[Node]
    dims: frozenset[str]


def read_completely(model: pm.Model, said: ModelOptions, verb: str, *, plans: bool) -> ModelRead:
    """What :func:`read_model` returns, or one error with all that has to be said, and a call to copy.

    Parameters
    ----------
    model : pymc.Model
    said : ModelOptions
    verb : str
        How the call begins.
    plans : bool
        Whether a release is planned; a recipient's observations are made up, and of any number.
    """

    def attempt(said: ModelOptions) -> ModelRead:
        found = read_model(model, said)
        if plans:
            _different_numbers(found)
        return found

    return completed(attempt, said, verb)


def read_model(model: pm.Model, said: ModelOptions) -> ModelRead:
    """Read all observed variables of a model. No observation is looked at but to refuse one that is a covariate, too.

    Raises
    ------
    OpenQuestionError
        If something has to be said of it.
    UnsupportedModelError, ArgumentError
        It names the variable, the reason and a way out.
    """
    if not model.observed_RVs and model.potentials:
        raise UnsupportedModelError(
            f"private_model cannot release this model: it observes no variable, and {model.potentials[0].name!r} is a "
            "Potential, which does not say what its records are. Write a likelihood as an observed variable, such as "
            "pm.Bernoulli('y', p, observed=y)."
        )
    if not model.observed_RVs:
        raise UnsupportedModelError(
            "private_model cannot release this model: it observes nothing. Give its discrete variables observed=; a "
            "recipient gives made-up observations of the same kind."
        )
    ask_whose_trials(model, said)
    model = with_shares(model, said)
    observed = [str(rv.name) for rv in model.observed_RVs]
    groups = said.jointly
    together = [name for group in groups for name in group]
    if len(set(together)) < len(together):
        raise ArgumentError("Some observed variable is in jointly twice. Name it in one group.")
    for argument, names in (("counts", said.counts), ("support", said.support), ("jointly", together)):
        for name in names:
            one_of(observed, **{f"observed variable in {argument}": name})
    data = {str(one.name) for one in model.data_vars}
    named = [] if isinstance(said.public, bool) else list(said.public)
    for name in [*named, *said.levels]:
        one_of([*sorted(data), *observed], **{"name in public or levels": name})
    if both := set(named) & set(said.levels):
        raise ArgumentError(f"Name {min(both)!r} in public or in levels, not in both.")
    if said.unit:
        refuse_long_format(model, said)
        refuse_unknown_axes([axes_of(rv, model) for rv in model.observed_RVs], said.stated)
    for rv in model.observed_RVs:
        if _asks_for_people(rv, said):
            people_axis(rv, model, said)
    effect = effect_of_person(model, said)
    free = [rv for rv in model.free_RVs if effect is None or rv is not effect.variable]
    secret, dims = [], set()
    for rv in model.observed_RVs:
        name, stored = str(rv.name), stored_observations(rv, model)
        if any(node.owner is not None and isinstance(node.owner.op, Subtensor) for node in ancestors([stored])):
            # To say that the whole array is public would publish this part of it.
            raise refused(
                name,
                "observes a part of an array that the model may read elsewhere",
                "Cut it before the model: pm.Data('observations', records[:, 0]) and observed= that.",
            )
        secret.append(stored)
        if (known := known_bound(name, model)) is not None and known[1].records > said.most_records:
            raise ArgumentError(
                f"{name!r} counts at most {known[1].records} records of each {known[1].unit!r}. Say "
                f"contribution={known[1].records}, or count with contribution=1."
            )
        trials = said.trials_are_people and operation(rv) in ("Binomial", "Multinomial")
        if trials:
            secret += private_trials(parameters(rv)[1][0], said)
        shape = stored_shape(stored)
        core: Any = rv.owner.op
        if not hasattr(core, "ndim_supp"):
            raise refused(
                name,
                f"is no plain random variable ({type(core).__name__})",
                "Observe all records as they are, without total_size. In the place of pymc_extras.marginalize take a "
                "pm.Mixture, whose weights are the probabilities of the states.",
            )
        if name not in said.counts and not trials and len(shape) > core.ndim_supp:
            axis = people_axis(rv, model, said) if _asks_for_people(rv, said) else 0
            secret += record_arrays(rv, free, shape[axis:], said)
            dims |= {dim for dim in model.named_vars_to_dims.get(name, ())[axis : axis + 1] if dim is not None}
    refuse_free_variables(model, free, secret, dims)
    refuse_unnamed_data(model, free, secret, said)
    inputs = Inputs.of(model, free, effect)
    alone = {str(rv.name): read_outcomes(rv, model, inputs, said) for rv in model.observed_RVs}
    outcomes = [one for name, one in alone.items() if name not in together]
    outcomes += [jointly_observed([alone[name] for name in group], said) for group in groups]
    outcomes = integrated(outcomes, effect, model, groups)
    _refuse_shared_rows(outcomes, said)
    return ModelRead(model, free, inputs, outcomes, said, secret, frozenset(dims))


def _asks_for_people(rv: Node, said: ModelOptions) -> bool:
    """Whether an observation of a variable is that of one person, so that one of its axes holds the people."""
    known = hasattr(rv.owner.op, "ndim_supp") and rv.name not in said.counts
    return known and (bool(said.unit) or not has_several_trials(rv, said))


def _refuse_shared_rows(outcomes: Sequence[Outcomes], said: ModelOptions) -> None:
    """Refuse tables whose rows hold the same people, if their numbers are private: their likelihoods do not multiply.

    Given the free variables, the answers of a person are independent. But each table would have row sizes of its own.
    """
    unknown = [
        one.name for one in outcomes if one.kind == "records" and (one.totals is None or not said.records_are_public)
    ]
    apart = [set(group) for group in said.disjoint or ()]
    if len(unknown) < 2 or (apart and all(len(group & set(unknown)) < 2 for group in apart)):
        return
    both, alone = ", ".join(map(repr, unknown)), tuple((name,) for name in unknown)
    different = [] if apart else [Answer({"disjoint": alone}, "if nobody has answered two of them")]
    raise OpenQuestionError(
        f"private_model cannot release this model: {both} are answers of the same people, whose covariates or number "
        "are private, so that their tables have the same unknown row sizes. Say "
        f"jointly=[{unknown}], or disjoint= if they are different people.",
        [Answer({"jointly": (tuple(unknown),)}, "if they are answers of the same people"), *different],
    )


def _different_numbers(found: ModelRead) -> list[str]:
    """The tables whose public number of records differs from that of others of the same people.

    Raises
    ------
    UnsupportedModelError
        If nobody has said that anybody may know it.
    """
    said = found.said
    if not said.records_are_public or said.most_records > 1:
        return []
    numbers = {one.name: sum(one.totals) if one.totals is not None else one.n_records or 0 for one in found.outcomes}
    apart = [frozenset(group) for group in said.disjoint or ()]
    anybody = frozenset(numbers).difference(*apart)
    groups = [group | anybody for group in apart or [frozenset()]]
    differing = {name: group for group in groups for name in numbers_to_name(numbers, group)}
    parts = {"_".join(group): group for group in said.jointly}
    names = {name: parts.get(name, (name,)) for name in differing}
    unnamed = {name: of for name, of in names.items() if not all(map(said.is_public, of))}
    if unnamed:
        first = next(iter(unnamed))
        other = max(differing[first], key=numbers.__getitem__)
        public = [one for of in unnamed.values() for one in of]
        raise asked(
            first,
            REFUSALS["different numbers"].reason.format(other=other),
            f"Say public={as_code([*([] if isinstance(said.public, bool) else said.public), *public])} if anybody may "
            "know it, or disjoint= if different people stand behind them. If it is such a count, observe one variable "
            "with a category for each outcome, or ask for adjacency='add-remove', where the numbers of records are "
            "private.",
            Answer({"public": tuple(public)}, "if anybody may know these numbers"),
        )
    return list(differing)


@final
@dataclass(frozen=True)
class Layout:
    """The table of an observed variable: one row, several rows with public or private numbers, or all cells as one."""

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    rows_are_public: bool


def layout_of(one: Outcomes, found: ModelRead) -> Layout:
    """The table in which the records of an observed variable are counted."""
    outcomes, rows, public = tuple(map(str, one.labels)), tuple(map(str, one.rows)), found.said.records_are_public
    if one.kind == "counts":
        # A table has two cells at least.
        labels = outcomes if len(outcomes) > 1 else (*outcomes, "nobody")
        return Layout((len(labels),), (f"{one.name}_count",), (labels,), rows_are_public=False)
    if len(rows) == 1:
        return Layout((len(outcomes),), (f"{one.name}_outcome",), (outcomes,), rows_are_public=public)
    if public and (one.totals is None or found.said.most_records > 1):
        cells = tuple(f"{row} | {outcome}" for row in rows for outcome in outcomes)
        return Layout((len(cells),), (f"{one.name}_cell",), (cells,), rows_are_public=False)
    dims = (f"{one.name}_row", f"{one.name}_outcome")
    return Layout((len(rows), len(outcomes)), dims, (rows, outcomes), rows_are_public=public)


def counted(found: ModelRead, model: pm.Model) -> pm.Model:
    """**Secret**: the tables of a model's records, as :func:`table_model` has them. A ledger is charged before.

    Raises
    ------
    DataError
        If some observation is not what was said, bounded counts have lost their unit, or the model holds counts.
    """
    refuse_lost_unit([str(rv.name) for rv in found.model.observed_RVs], model, found.said.most_records)
    counts = {one.name: one.counts(model) for one in found.outcomes}
    used = ancestors([*found.model.basic_RVs, *found.model.deterministics])
    written = (node for node in used if is_stored(node) and node.type.ndim and not found.said.is_public(node.name))
    refuse_copies([evaluate(node) for node in written if not any(node is one for one in found.secret)], counts)
    return table_model(found, list(counts.values()))


def table_model(found: ModelRead, counts: Sequence[NDArray[np.int64]] | None) -> pm.Model:
    """The tables as a conjugate model, of which releases are planned and drawn. Its prior is not used here.

    Parameters
    ----------
    found : ModelRead
    counts : sequence of array, or None
        **Secret**: the counts of each table; made-up ones for planning.
    """
    with pm.Model(model=None) as tables:
        for k, one in enumerate(found.outcomes):
            laid = layout_of(one, found)
            for dim, labels in zip(laid.dims, laid.labels, strict=True):
                tables.add_coord(dim, labels)
            p = pm.Dirichlet(one.name, np.ones(laid.shape), dims=laid.dims)
            if counts is None:
                filled = np.zeros(laid.shape, dtype=np.int64)
                filled[..., 0] = _made_up_totals(one, found, laid)
            else:
                filled = counts[k].ravel()
                filled = np.append(filled, 0) if filled.size < np.prod(laid.shape) else filled
                filled = filled.reshape(laid.shape)
            pm.Multinomial(records_name(one.name), n=filled.sum(axis=-1), p=p, observed=filled)
    return tables


def _made_up_totals(one: Outcomes, found: ModelRead, laid: Layout) -> Any:
    """The public numbers of records of the rows; any numbers where they are private."""
    if not found.said.records_are_public:
        return 2
    if len(laid.shape) == 2:
        return one.totals
    return one.n_records if one.totals is None else sum(one.totals)


def planned_tables(guarantee: Guarantee, found: ModelRead, said: ModelOptions) -> Plan:
    """The plan with the least noise."""
    tables = table_model(found, None)
    differing = _different_numbers(found)
    options: dict[str, Any] = {
        "adjacency": said.relation,
        "contribution": found.said.most_records,
        "public": [
            records_name(one.name)
            for one in found.outcomes
            if (len((laid := layout_of(one, found)).shape) == 2 and laid.rows_are_public) or one.name in differing
        ],
        **{name: given for name in ("weights", "disjoint") if (given := getattr(said, name)) is not None},
    }
    plans: list[Plan] = []
    problem: Exception | None = None
    # Joint noise of a large table takes long to calibrate, and has no likelihood that NUTS could evaluate.
    shapes = [layout_of(outcomes, found).shape for outcomes in found.outcomes]
    small = all(len(shape) == 1 and multiplications(shape[0], 20) <= _MOST for shape in shapes)
    noises = [kind for kind in NOISES if small or kind != "joint"]
    for kind in noises if said.mechanism == "auto" else (said.mechanism,):
        try:
            one = planned(guarantee, tables, mechanism=kind, **options)
        except (UnattainableError, ArgumentError) as error:
            problem = problem or error
            continue
        if unknown := [part.table.name for part in one.parts if not has_likelihood(part)]:
            problem = problem or UnattainableError(
                "Joint noise is for observed variables of the same people, whose number is public, without covariates "
                f"and of up to some eight outcomes, and {unknown[0]!r} is another. Say mechanism='auto', or jointly= "
                "for one table of all combinations of answers."
            )
        else:
            plans.append(one)
    if not plans:
        assert problem is not None
        raise problem
    return min(plans, key=lambda one: math.hypot(*(part.mechanism.noise_sd or 0.0 for part in one.parts)))


# An evaluation of the likelihood of joint noise with so many multiplications takes some 20 ms, so NUTS takes minutes.
_MOST = 6e7


def has_likelihood(part: PlannedTable) -> bool:
    """Whether the likelihood of its noise is known: of single cells, or of a row that shares a noise with others."""
    mechanism, noise = part.mechanism, part.mechanism.shared_noise
    if mechanism.cell_noise is not None or noise is None:
        return mechanism.cell_noise is not None
    if len(part.table.shape) > 1 or part.n_records is None or noise.reaches is None:
        return False
    return sum(map(multiplications, noise.cells, noise.reaches)) <= _MOST


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


def _published_into(place: Any) -> _Publish:
    return lambda noisy: place.set_value(np.rint(noisy).astype(np.int64).reshape(place.type.shape))


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
        place.set_value(np.rint(noisy).astype(np.int64).reshape(place.type.shape))

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
            values[start:end] = np.rint(noisy)
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
            places[node] = pt.constant(node.get_value())
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
        NoisyCounts(name, log_p.reshape(laid.shape), totals, noise.numbers, **observed)
        return publish
    dims = None
    if rows > 1:
        dims = (f"{name}_row",)
        if dims[0] not in private.coords:
            private.add_coord(dims[0], tuple(map(str, outcomes.rows)))
    if found.said.records_are_public:
        shares = pm.Dirichlet(_new(f"{name}_shares", private), np.ones(rows), dims=dims)
        weights = (pt.log(shares)[:, None] + log_p).reshape(laid.shape)
        NoisyCounts(name, weights, np.int64(part.n_records or 0), noise.numbers, **observed)
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
