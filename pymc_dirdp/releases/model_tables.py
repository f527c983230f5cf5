"""The tables of a model of any discrete data: parsed, counted and planned.

The records of an observed variable are counted in a table, which is planned in the same way as a conjugate model. The
module `noisy_tables` has the likelihood that replaces the variable in a private model.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any, final

import numpy as np
import pymc as pm
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import Subtensor

from pymc_dirdp.accounting.opening import Counting
from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError, ManyRowsWarning, UnattainableError, UnsupportedModelError, warn
from pymc_dirdp.inference.joint_rows import multiplications
from pymc_dirdp.models.counted import JointReading, OutcomesReading, count_outcomes
from pymc_dirdp.models.graph import (
    Node,
    Purpose,
    evaluate,
    is_stored,
    operation,
    parameters,
    same_data,
    set_purpose,
    stored_shape,
)
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.model_options import NOISES, ModelOptions, axes_of, model_question, model_refusal
from pymc_dirdp.models.outcome_kinds import (
    ask_whose_trials,
    has_several_trials,
    private_trials,
    read_outcomes,
    with_shares,
)
from pymc_dirdp.models.outcomes import Inputs, Outcomes, jointly_observed, people_axis, record_arrays
from pymc_dirdp.models.person_effects import effect_of_person, integrate_effect, refuse_long_format
from pymc_dirdp.models.privacy_unit import as_code, refuse_unknown_axes
from pymc_dirdp.models.public import numbers_to_name
from pymc_dirdp.models.questions import Answer, OpenQuestionError, read_or_ask
from pymc_dirdp.models.refusals import REFUSALS, refusal
from pymc_dirdp.models.whose_records import known_bound
from pymc_dirdp.models.without_data import (
    refuse_free_variables,
    refuse_unnamed_data,
)
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.plan import new_plan
from pymc_dirdp.releases.plan_types import Plan, PlannedTable, records_name


@final
@dataclass(frozen=True, eq=False)
class ParsedModel:
    """The public part of a model, and the functions that count its records."""

    model: pm.Model
    free: list[Node]
    inputs: Inputs
    outcomes: list[Outcomes]
    options: ModelOptions
    secret: list[Node]
    dims: frozenset[str]


def read_model_or_ask(model: pm.Model, options: ModelOptions, verb: str, *, plans: bool) -> ParsedModel:
    """Call :func:`read_model`, or raise one error with all missing options and a call to copy.

    Parameters
    ----------
    model : pymc.Model
    options : ModelOptions
    verb : str
        The beginning of the call in that error.
    plans : bool
        Whether to plan a release. A recipient has made-up observations, and may have any number of them.
    """

    def attempt(answers: ModelOptions) -> ParsedModel:
        parsed = read_model(model, replace(answers, assumed=answers != options))
        if plans:
            _refuse_shared_records(parsed)
            _different_numbers(parsed)
        return parsed

    return read_or_ask(attempt, options, verb)


def read_model(model: pm.Model, options: ModelOptions) -> ParsedModel:
    """Read all observed variables of a model. Observations are read only to refuse those that are covariates, too.

    Raises
    ------
    OpenQuestionError
        If an option is missing.
    UnsupportedModelError, ArgumentError
        If the model cannot be released. The error has the variable, the reason and a solution.
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
    ask_whose_trials(model, options)
    model = with_shares(model, options)
    observed = [str(rv.name) for rv in model.observed_RVs]
    groups = options.jointly
    joint_names = [name for group in groups for name in group]
    if len(set(joint_names)) < len(joint_names):
        raise ArgumentError("jointly= has an observed variable twice. Name each variable in one group only.")
    for argument, names in (
        ("count_variables", options.count_variables),
        ("support", options.support),
        ("jointly", joint_names),
    ):
        for name in names:
            one_of(observed, **{f"observed variable in {argument}": name})
    data = {str(variable.name) for variable in model.data_vars}
    named = [] if isinstance(options.public, bool) else list(options.public)
    for name in [*named, *options.levels]:
        one_of([*sorted(data), *observed], **{"name in public or levels": name})
    if repeated := set(named) & set(options.levels):
        raise ArgumentError(f"Name {min(repeated)!r} in public or in levels, not in both.")
    if options.unit:
        refuse_long_format(model, options)
        refuse_unknown_axes([axes_of(rv, model) for rv in model.observed_RVs], options.unit_options)
    axes = {rv: people_axis(rv, model, options) for rv in model.observed_RVs if _has_people_axis(rv, options)}
    effect = effect_of_person(model, options)
    free = [rv for rv in model.free_RVs if effect is None or rv is not effect.variable]
    secret, dims = [], set()
    for rv in model.observed_RVs:
        name, stored = str(rv.name), stored_observations(rv, model)
        if any(node.owner is not None and isinstance(node.owner.op, Subtensor) for node in ancestors([stored])):
            # To declare the whole array public would publish this part of it.
            raise model_refusal(
                name,
                "observes a part of an array that the model may read elsewhere",
                "Cut it before the model: pm.Data('observations', records[:, 0]) and observed= that.",
            )
        secret.append(stored)
        if (known := known_bound(stored)) is not None and known[1].records > options.max_records:
            raise ArgumentError(
                f"{name!r} counts at most {known[1].records} records of each {known[1].unit!r}. Pass "
                f"contribution={known[1].records}, or count with contribution=1."
            )
        trials = options.trials_are_people and operation(rv) in ("Binomial", "Multinomial")
        if trials:
            secret += private_trials(parameters(rv)[1][0], options)
        shape = stored_shape(stored)
        core: Any = rv.owner.op
        if not hasattr(core, "ndim_supp"):
            raise model_refusal(
                name,
                f"is no plain random variable ({type(core).__name__})",
                "Observe all records as they are, without total_size. Instead of pymc_extras.marginalize take a "
                "pm.Mixture, whose weights are the probabilities of the states.",
            )
        if name not in options.count_variables and not trials and len(shape) > core.ndim_supp:
            axis = axes[rv]
            secret += record_arrays(rv, free, shape[axis:], options)
            dims |= {dim for dim in model.named_vars_to_dims.get(name, ())[axis : axis + 1] if dim is not None}
    refuse_free_variables(model, free, secret, dims)
    refuse_unnamed_data(model, free, secret, options)
    inputs = Inputs.from_model(model, free, effect)
    separate = {str(rv.name): read_outcomes(rv, model, inputs, options) for rv in model.observed_RVs}
    outcomes = [table for name, table in separate.items() if name not in joint_names]
    outcomes += [jointly_observed([separate[name] for name in group], options) for group in groups]
    outcomes = integrate_effect(outcomes, effect, model, groups)
    _refuse_shared_rows(outcomes, options)
    return ParsedModel(model, free, inputs, outcomes, options, secret, frozenset(dims))


def _has_people_axis(rv: Node, options: ModelOptions) -> bool:
    """Whether each observation of a variable is of one person, so that one of its axes is that of the people."""
    known = hasattr(rv.owner.op, "ndim_supp") and rv.name not in options.count_variables
    return known and (bool(options.unit) or not has_several_trials(rv, options))


def _refuse_shared_rows(outcomes: Sequence[Outcomes], options: ModelOptions) -> None:
    """Refuse tables of the same people with private row sizes, because their likelihoods do not multiply.

    The answers of a person are independent given the free variables, but each table would have separate row sizes.
    """
    unknown = [
        table.name
        for table in outcomes
        if table.kind == "records" and (table.totals is None or not options.records_are_public)
    ]
    independent_sets = [set(group) for group in options.disjoint or ()]
    if len(unknown) < 2 or (independent_sets and all(len(group & set(unknown)) < 2 for group in independent_sets)):
        return
    names, singletons = ", ".join(map(repr, unknown)), tuple((name,) for name in unknown)
    different = [] if independent_sets else [Answer({"disjoint": singletons}, "if nobody has answered two of them")]
    raise OpenQuestionError(
        f"private_model cannot release this model: {names} are answers of the same people, whose covariates or number "
        "are private, so that their tables have the same unknown row sizes. Pass "
        f"jointly=[{unknown}], or disjoint= if they are different people.",
        [Answer({"jointly": (tuple(unknown),)}, "if they are answers of the same people"), *different],
    )


def _refuse_shared_records(parsed: ParsedModel) -> None:
    """Refuse groups of `disjoint` that share data, because they contain the same people."""
    observed, arrays_read = dict[str, Node](), dict[str, list[Node]]()
    for rv in parsed.model.observed_RVs:
        stored, upstream = stored_observations(rv, parsed.model), set(ancestors([rv]))
        observed[str(rv.name)] = stored
        arrays_read[str(rv.name)] = [stored, *(array for array in parsed.secret if array in upstream)]
    joint_names = {"_".join(group): group for group in parsed.options.jointly}
    groups = [
        [part for name in group for part in joint_names.get(name, (name,))] for group in parsed.options.disjoint or ()
    ]
    for first, second in permutations(groups, 2):
        for name, other in product(*([name for name in group if name in observed] for group in (first, second))):
            if any(same_data(observed[name], array) for array in arrays_read[other]):
                raise refusal("shared data", name, problem=f"and {other!r} hold the same data")


def _different_numbers(parsed: ParsedModel) -> list[str]:
    """The tables whose public number of records differs from that of other tables of the same people.

    Raises
    ------
    UnsupportedModelError
        If that number is not named in `public`.
    """
    options = parsed.options
    if not options.records_are_public or options.max_records > 1:
        return []
    numbers = {table.name: sum(table.numbers) for table in parsed.outcomes}
    independent_sets = [frozenset(group) for group in options.disjoint or ()]
    unlisted = frozenset(numbers).difference(*independent_sets)
    groups = [group | unlisted for group in independent_sets or [frozenset()]]
    differing = {name: group for group in groups for name in numbers_to_name(numbers, group)}
    parts = {"_".join(group): group for group in options.jointly}
    names = {name: parts.get(name, (name,)) for name in differing}
    unpublished = {
        name: table_parts for name, table_parts in names.items() if not all(map(options.is_public, table_parts))
    }
    if unpublished:
        first = next(iter(unpublished))
        other = max(differing[first], key=numbers.__getitem__)
        public = [part for names in unpublished.values() for part in names]
        public_names = as_code([*([] if isinstance(options.public, bool) else options.public), *public])
        raise model_question(
            first,
            REFUSALS["different numbers"].reason.format(other=other),
            f"Pass public={public_names} if anybody may know it, or disjoint= if they are of different people. "
            "If it is such a count, observe one variable with a category for each outcome, or ask for "
            "adjacency='add-remove', where the numbers of records are private.",
            Answer({"public": tuple(public)}, "if anybody may know these numbers"),
        )
    return list(differing)


@final
@dataclass(frozen=True)
class Layout:
    """The table of an observed variable: one row, several rows with public or private sizes, or all cells in a row."""

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    rows_are_public: bool


def layout_of(table: Outcomes, parsed: ParsedModel) -> Layout:
    """The table in which the records of an observed variable are counted."""
    outcomes, rows, public = (
        tuple(map(str, table.labels)),
        tuple(map(str, table.rows)),
        parsed.options.records_are_public,
    )
    if table.kind == "counts":
        # A table has at least two cells.
        labels = outcomes if len(outcomes) > 1 else (*outcomes, "nobody")
        return Layout((len(labels),), (f"{table.name}_count",), (labels,), rows_are_public=False)
    if len(rows) == 1:
        return Layout((len(outcomes),), (f"{table.name}_outcome",), (outcomes,), rows_are_public=public)
    if public and (table.totals is None or parsed.options.max_records > 1):
        cells = tuple(f"{row} | {outcome}" for row in rows for outcome in outcomes)
        return Layout((len(cells),), (f"{table.name}_cell",), (cells,), rows_are_public=False)
    dims = (f"{table.name}_row", f"{table.name}_outcome")
    return Layout((len(rows), len(outcomes)), dims, (rows, outcomes), rows_are_public=public)


def counting_of(parsed: ParsedModel) -> Counting[Any]:
    """How to count a model's records in its tables, see :func:`table_model`. It holds no records."""
    stored = {str(rv.name): stored_observations(rv, parsed.model) for rv in parsed.model.observed_RVs}
    unstated = {name for name, array in stored.items() if known_bound(array) is None}
    readings = [
        (_without_unit(table.reading, unstated, parsed.options.max_records), layout_of(table, parsed).shape)
        for table in parsed.outcomes
    ]
    nodes = ancestors([*parsed.model.basic_RVs, *parsed.model.deterministics])
    constants = (
        node for node in nodes if is_stored(node) and node.type.ndim and not parsed.options.is_public(node.name)
    )
    arrays = [evaluate(node) for node in constants if not any(node is array for array in parsed.secret)]
    return Counting(readings, count_outcomes, tuple(arrays))


def _without_unit(reading: OutcomesReading, unstated: Collection[str], most: int) -> OutcomesReading:
    """The same reading, which looks for counts that have lost a unit with more records than `most`."""
    if isinstance(reading, JointReading):
        return replace(reading, parts=tuple(_without_unit(part, unstated, most) for part in reading.parts))  # type: ignore[misc]
    return replace(reading, unstated=most if reading.name in unstated else None)


def table_model(parsed: ParsedModel) -> pm.Model:
    """The tables as a conjugate model with made-up counts, for planning releases. Its prior is not used here."""
    with pm.Model(model=None) as tables:
        set_purpose(tables, Purpose(of_counts=True))
        for table in parsed.outcomes:
            layout = layout_of(table, parsed)
            for dim, labels in zip(layout.dims, layout.labels, strict=True):
                tables.add_coord(dim, labels)
            p = pm.Dirichlet(table.name, np.ones(layout.shape), dims=layout.dims)
            counts = np.zeros(layout.shape, dtype=np.int64)
            if parsed.options.records_are_public:
                counts[..., 0] = table.numbers if len(layout.shape) == 2 else sum(table.numbers)
            else:
                counts[..., 0] = 2
            pm.Multinomial(records_name(table.name), n=counts.sum(axis=-1), p=p, observed=counts)
    return tables


def plan_tables(guarantee: Guarantee, parsed: ParsedModel) -> Plan:
    """The plan with the least noise."""
    _warn_of_many_rows(parsed)
    tables, options, differing = table_model(parsed), parsed.options, _different_numbers(parsed)
    layouts = {table.name: layout_of(table, parsed) for table in parsed.outcomes}
    arguments: dict[str, Any] = {
        "adjacency": options.relation,
        "contribution": options.max_records,
        "public": [
            records_name(name)
            for name, layout in layouts.items()
            if (len(layout.shape) == 2 and layout.rows_are_public) or name in differing
        ],
        "weights": options.weights,
        "disjoint": options.disjoint,
    }
    plans: list[Plan] = []
    problem: Exception | None = None
    # The calibration of joint noise for a large table is slow, and its likelihood is too slow for NUTS.
    small = all(
        len(layout.shape) == 1 and multiplications(layout.shape[0], 20) <= _MAX_MULTIPLICATIONS
        for layout in layouts.values()
    )
    noises = [kind for kind in NOISES if small or kind != "joint"]
    for kind in noises if options.mechanism == "auto" else (options.mechanism,):
        try:
            plan = new_plan(guarantee, tables, mechanism=kind, **arguments)
        except (UnattainableError, ArgumentError) as error:
            problem = problem or error
            continue
        if unknown := [part.table.name for part in plan.parts if not has_likelihood(part)]:
            problem = problem or UnattainableError(
                "Joint noise is for observed variables of the same people, whose number is public, without covariates "
                f"and of up to some eight outcomes, and {unknown[0]!r} is another. Pass mechanism='auto', or jointly= "
                "for one table of all combinations of answers."
            )
        else:
            plans.append(plan)
    if not plans:
        assert problem is not None
        raise problem
    return min(plans, key=lambda plan: math.hypot(*(part.mechanism.noise_sd or 0.0 for part in plan.parts)))


def _warn_of_many_rows(parsed: ParsedModel, *, most: int = 1_000) -> None:
    """Warn before the charge that NUTS will be slow, with faster options that have less noise."""
    for outcomes in parsed.outcomes:
        rows = len(outcomes.rows)
        if rows > most and outcomes.totals is None and outcomes.kind == "records":
            # To sum over the row sizes as well would take ten times as long as these free variables.
            instead = (
                "All of them are in one sum. With adjacency='add-remove' the noise is half as large, and an evaluation "
                "takes about half of the time. "
                if parsed.options.records_are_public
                else ""
            )
            warn(
                f"{outcomes.name!r} has {rows} rows of private covariates, whose numbers of records are as many new "
                f"free variables of the private model. {instead}Fewer levels, or covariates in public=, need less time "
                "and have less noise.",
                ManyRowsWarning,
            )


# Maximum number of multiplications in an evaluation of the likelihood of joint noise. It takes about 20 ms, so NUTS
# takes minutes.
_MAX_MULTIPLICATIONS = 6e7


def has_likelihood(part: PlannedTable) -> bool:
    """Whether the likelihood of its noise is available: for single cells, or for a row with shared noise."""
    mechanism, noise = part.mechanism, part.mechanism.shared_noise
    if mechanism.cell_noise is not None or noise is None:
        return mechanism.cell_noise is not None
    if len(part.table.shape) > 1 or part.n_records is None or noise.reaches is None:
        return False
    return sum(map(multiplications, noise.cells, noise.reaches)) <= _MAX_MULTIPLICATIONS
