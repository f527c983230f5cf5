"""The tables of a model of any discrete data: what is read of it, counted and planned.

An observed variable is counted in a table, whose plan is that of a conjugate model. What stands in its place in a
private model is in `noisy_tables`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any, final

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import Subtensor

from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError, ManyRowsWarning, UnattainableError, UnsupportedModelError, warn
from pymc_dirdp.inference.joint_rows import multiplications
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
from pymc_dirdp.models.public import numbers_to_name, refuse_copies
from pymc_dirdp.models.questions import Answer, OpenQuestionError, read_or_ask
from pymc_dirdp.models.refusals import REFUSALS, refusal
from pymc_dirdp.models.whose_records import known_bound, refuse_lost_unit
from pymc_dirdp.models.without_data import (
    refuse_free_variables,
    refuse_unnamed_data,
)
from pymc_dirdp.privacy.guarantees import Guarantee
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

    def attempt(way: ModelOptions) -> ModelRead:
        found = read_model(model, replace(way, assumed=way != said))
        if plans:
            _refuse_shared_records(found)
            _different_numbers(found)
        return found

    return read_or_ask(attempt, said, verb)


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
    for argument, names in (
        ("count_variables", said.count_variables),
        ("support", said.support),
        ("jointly", together),
    ):
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
        refuse_unknown_axes([axes_of(rv, model) for rv in model.observed_RVs], said.unit_options)
    axes = {rv: people_axis(rv, model, said) for rv in model.observed_RVs if _asks_for_people(rv, said)}
    effect = effect_of_person(model, said)
    free = [rv for rv in model.free_RVs if effect is None or rv is not effect.variable]
    secret, dims = [], set()
    for rv in model.observed_RVs:
        name, stored = str(rv.name), stored_observations(rv, model)
        if any(node.owner is not None and isinstance(node.owner.op, Subtensor) for node in ancestors([stored])):
            # To say that the whole array is public would publish this part of it.
            raise model_refusal(
                name,
                "observes a part of an array that the model may read elsewhere",
                "Cut it before the model: pm.Data('observations', records[:, 0]) and observed= that.",
            )
        secret.append(stored)
        if (known := known_bound(stored)) is not None and known[1].records > said.max_records:
            raise ArgumentError(
                f"{name!r} counts at most {known[1].records} records of each {known[1].unit!r}. Pass "
                f"contribution={known[1].records}, or count with contribution=1."
            )
        trials = said.trials_are_people and operation(rv) in ("Binomial", "Multinomial")
        if trials:
            secret += private_trials(parameters(rv)[1][0], said)
        shape = stored_shape(stored)
        core: Any = rv.owner.op
        if not hasattr(core, "ndim_supp"):
            raise model_refusal(
                name,
                f"is no plain random variable ({type(core).__name__})",
                "Observe all records as they are, without total_size. Instead of pymc_extras.marginalize take a "
                "pm.Mixture, whose weights are the probabilities of the states.",
            )
        if name not in said.count_variables and not trials and len(shape) > core.ndim_supp:
            axis = axes.get(rv, 0)
            secret += record_arrays(rv, free, shape[axis:], said)
            dims |= {dim for dim in model.named_vars_to_dims.get(name, ())[axis : axis + 1] if dim is not None}
    refuse_free_variables(model, free, secret, dims)
    refuse_unnamed_data(model, free, secret, said)
    inputs = Inputs.from_model(model, free, effect)
    alone = {str(rv.name): read_outcomes(rv, model, inputs, said) for rv in model.observed_RVs}
    outcomes = [one for name, one in alone.items() if name not in together]
    outcomes += [jointly_observed([alone[name] for name in group], said) for group in groups]
    outcomes = integrate_effect(outcomes, effect, model, groups)
    _refuse_shared_rows(outcomes, said)
    return ModelRead(model, free, inputs, outcomes, said, secret, frozenset(dims))


def _asks_for_people(rv: Node, said: ModelOptions) -> bool:
    """Whether an observation of a variable is that of one person, so that one of its axes holds the people."""
    known = hasattr(rv.owner.op, "ndim_supp") and rv.name not in said.count_variables
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
        "are private, so that their tables have the same unknown row sizes. Pass "
        f"jointly=[{unknown}], or disjoint= if they are different people.",
        [Answer({"jointly": (tuple(unknown),)}, "if they are answers of the same people"), *different],
    )


def _refuse_shared_records(found: ModelRead) -> None:
    """Refuse groups of `disjoint` of which one observes what another observes or reads: they hold the same people."""
    observed, reads = dict[str, Node](), dict[str, list[Node]]()
    for rv in found.model.observed_RVs:
        stored, behind = stored_observations(rv, found.model), set(ancestors([rv]))
        observed[str(rv.name)] = stored
        reads[str(rv.name)] = [stored, *(array for array in found.secret if array in behind)]
    together = {"_".join(group): group for group in found.said.jointly}
    groups = [[part for name in group for part in together.get(name, (name,))] for group in found.said.disjoint or ()]
    for first, second in permutations(groups, 2):
        for one, other in product(*([name for name in group if name in observed] for group in (first, second))):
            if any(same_data(observed[one], array) for array in reads[other]):
                raise refusal("shared data", one, problem=f"and {other!r} hold the same data")


def _different_numbers(found: ModelRead) -> list[str]:
    """The tables whose public number of records differs from that of others of the same people.

    Raises
    ------
    UnsupportedModelError
        If nobody has said that anybody may know it.
    """
    said = found.said
    if not said.records_are_public or said.max_records > 1:
        return []
    numbers = {one.name: sum(one.numbers) for one in found.outcomes}
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
        raise model_question(
            first,
            REFUSALS["different numbers"].reason.format(other=other),
            f"Pass public={as_code([*([] if isinstance(said.public, bool) else said.public), *public])} if anybody may "
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
    if public and (one.totals is None or found.said.max_records > 1):
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
    refuse_lost_unit([str(rv.name) for rv in found.model.observed_RVs], model, found.said.max_records)
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
        set_purpose(tables, Purpose(of_counts=True))
        for k, one in enumerate(found.outcomes):
            laid = layout_of(one, found)
            for dim, labels in zip(laid.dims, laid.labels, strict=True):
                tables.add_coord(dim, labels)
            p = pm.Dirichlet(one.name, np.ones(laid.shape), dims=laid.dims)
            filled = np.zeros(laid.shape, dtype=np.int64)
            if counts is not None:
                filled.flat[: counts[k].size] = counts[k].ravel()
            elif found.said.records_are_public:
                filled[..., 0] = one.numbers if len(laid.shape) == 2 else sum(one.numbers)
            else:
                filled[..., 0] = 2
            pm.Multinomial(records_name(one.name), n=filled.sum(axis=-1), p=p, observed=filled)
    return tables


def planned_tables(guarantee: Guarantee, found: ModelRead) -> Plan:
    """The plan with the least noise."""
    _warn_of_many_rows(found)
    tables, said, differing = table_model(found, None), found.said, _different_numbers(found)
    layouts = {one.name: layout_of(one, found) for one in found.outcomes}
    options: dict[str, Any] = {
        "adjacency": said.relation,
        "contribution": said.max_records,
        "public": [
            records_name(name)
            for name, laid in layouts.items()
            if (len(laid.shape) == 2 and laid.rows_are_public) or name in differing
        ],
        "weights": said.weights,
        "disjoint": said.disjoint,
    }
    plans: list[Plan] = []
    problem: Exception | None = None
    # Joint noise of a large table takes long to calibrate, and has no likelihood that NUTS could evaluate.
    small = all(len(laid.shape) == 1 and multiplications(laid.shape[0], 20) <= _MOST for laid in layouts.values())
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
                f"and of up to some eight outcomes, and {unknown[0]!r} is another. Pass mechanism='auto', or jointly= "
                "for one table of all combinations of answers."
            )
        else:
            plans.append(one)
    if not plans:
        assert problem is not None
        raise problem
    return min(plans, key=lambda one: math.hypot(*(part.mechanism.noise_sd or 0.0 for part in one.parts)))


def _warn_of_many_rows(found: ModelRead, *, most: int = 1_000) -> None:
    """Say before a release is bought that NUTS will take long, and what takes less time and has less noise."""
    for outcomes in found.outcomes:
        rows = len(outcomes.rows)
        if rows > most and outcomes.totals is None and outcomes.kind == "records":
            # Sums over the numbers of records of the rows as well would take ten times as long as these variables do.
            instead = (
                "All of them are in one sum. With adjacency='add-remove' the noise is half as large, and an evaluation "
                "takes about half of the time. "
                if found.said.records_are_public
                else ""
            )
            warn(
                f"{outcomes.name!r} has {rows} rows of private covariates, whose numbers of records are as many new "
                f"free variables of the private model. {instead}Fewer levels, or covariates in public=, need less time "
                "and have less noise.",
                ManyRowsWarning,
            )


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
