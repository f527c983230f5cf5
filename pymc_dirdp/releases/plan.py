"""The options of a plan, and the choice of mechanisms for a model and a guarantee, which uses public numbers only.

This module counts no observed value.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, Unpack, get_type_hints, overload

import pymc as pm

from pymc_dirdp.checks import MAX_RECORDS, integer, mapping_of_names, one_of, positive, refuse_unknown
from pymc_dirdp.errors import ArgumentError, ManyDrawsWarning, UnsupportedModelError, type_name, warn
from pymc_dirdp.literals import AdjacencyName, MechanismName, NoiseName, Objective, Sampler
from pymc_dirdp.mechanisms.base import SAMPLERS
from pymc_dirdp.mechanisms.registry import Dirichlet, Marginals
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.graph import is_wide, purpose_of
from pymc_dirdp.models.privacy_unit import PrivacyUnit, Unit, UnitOptions, unit_options
from pymc_dirdp.models.table import Table, check_names, plain_labels
from pymc_dirdp.models.tables import root_model
from pymc_dirdp.models.whose_records import ModelTables, refuse_lost_unit, tables_and_people
from pymc_dirdp.planning.calibration import untouched
from pymc_dirdp.planning.choosing import Choice, Judge, TableFacts, Terms, choose
from pymc_dirdp.planning.measured_marginals import refuse_unlike_network
from pymc_dirdp.planning.options import MechanismOptions
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.progress import Bar
from pymc_dirdp.releases.choices import (
    PrivateChoice,
    check_budget_left,
    curves_of,
    refuse_unpaid_bins,
    refuse_unpaid_structure,
)
from pymc_dirdp.releases.plan_types import Plan, PlannedTable
from pymc_dirdp.releases.predicting import axes_of, prediction_loss_of
from pymc_dirdp.releases.wording import warn_if_few, warn_if_weak
from pymc_dirdp.signatures import options_of_plan, user_facing
from pymc_dirdp.texts.grammar import library_version

if TYPE_CHECKING:
    from pymc_dirdp.releases.model_plan import ModelPlan
    from pymc_dirdp.releases.pairs import PairsPlan


class Sampling(TypedDict, total=False):
    """The options of a plan that :func:`pymc_dirdp.sample` also takes."""

    adjacency: AdjacencyName
    mechanism: MechanismName | Dirichlet | Marginals
    n_records: int | Mapping[str, int] | None
    unit: Unit | None
    contribution: int | None
    public: Iterable[str] | bool


class Planning(Sampling, total=False):
    """The names of :class:`Options`, for functions that pass them on to others."""

    objective: Objective
    released_draws: int
    sampler: Sampler
    min_count: float
    weights: Mapping[str, float] | None
    after: PrivateChoice | Sequence[PrivateChoice] | None
    disjoint: Iterable[Iterable[str]] | None


class ModelPlanning(TypedDict, total=False):
    """The options of :func:`pymc_dirdp.plan` for a model of any discrete data."""

    any_model: Required[Literal[True]]
    public: Iterable[str] | bool
    levels: Mapping[str, int] | None
    count_variables: Iterable[str]
    jointly: Iterable[Iterable[str]]
    support: Mapping[str, Any] | None
    unit: Unit | None
    contribution: int | None
    adjacency: AdjacencyName | None
    mechanism: NoiseName
    weights: Mapping[str, float] | None
    disjoint: Iterable[Iterable[str]] | None
    max_cells: int


@dataclass(frozen=True, kw_only=True)
class Options(MechanismOptions):
    """Checked options.

    Parameters
    ----------
    n_records : int or mapping of str to int, optional
        The planning size if the number of records is private, which is so under add-remove, and with both `unit` and
        `contribution`. It is one number for all tables, or a mapping by table. Otherwise the model states the number.
    unit : str, int or tuple of these, optional
        The axis whose entries are the people: a dim of the observed variables, or the number of an axis. Pass a tuple
        for people in groups, such as `("hospital", "person")`. The other axes imply what a person can change in each
        table. By default one record is one person. If the model leaves that open, an error asks for the unit.
    contribution : int, optional
        The maximum number of records of a person in each table. With `unit` it is the maximum number of records of an
        entry of the unit in each observed variable. The numbers of records of a person and of all people are then
        private, so sizes come from `n_records`, and `sample` refuses data in which a person has more records.
    public : iterable of str, or True, default ()
        The names of public values; True for all of them. They may be observed variables whose number of trials comes
        from data or differs between people, or whose number of records differs from that of other variables of the same
        people. If each record is another person, this makes the numbers of records of its rows public, and a replaced
        record stays in its row. They may also be `pm.Data` in priors, including those that :func:`pymc.do` has put
        there, which are read when the plan is made. An error names those that have no effect.
    sampler : {"exact", "fast"}, default "exact"
        `"exact"` draws integers with random bits of the operating system, from a Pólya urn or as discrete noise, so the
        proofs about the distribution apply to the release. `"fast"` draws in floating point and rounds the draw to a
        public grid. Nothing is proved about its last bits, and the release says so. Only `"fast"` draws continuous
        noise. See :meth:`pymc_dirdp.mechanisms.DirichletMechanism.sample`.
    weights : mapping of str to float, optional
        Relative budgets of the tables, by name; 1 for the others. Budgets are shares of the Rényi divergence, at the
        order of the guarantee or, for ApproxDP, at a suitable order. Marginals have their own weights.
    after : Structure, Bins or sequence of these, optional
        The results of :func:`pymc_dirdp.choose_structure` and :func:`pymc_dirdp.choose_bins` for the same records. The
        guarantee then covers these choices and the tables together, and the tables get the remaining budget.
    disjoint : iterable of iterables of str, optional
        Groups of tables or observed variables of different people. No person has records in two groups. Variables in
        no group may have records of anybody. By default every person may have a record in every table.
    """

    n_records: int | Mapping[str, int] | None = None
    unit: Unit | None = None
    contribution: int | None = None
    public: Iterable[str] | bool = ()
    sampler: Sampler = "exact"
    weights: Mapping[str, float] | None = None
    after: PrivateChoice | Sequence[PrivateChoice] | None = None
    disjoint: Iterable[Iterable[str]] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "n_records", _checked_sizes(self.n_records))
        one_of(SAMPLERS, sampler=self.sampler)
        if self.weights is not None and self.kind == Marginals.kind:
            raise ArgumentError(
                "weights divide the guarantee among tables, but marginals of all tables share one budget. Pass "
                "mechanism=dirdp.mechanisms.Marginals(weights=...), which has weights of marginals."
            )
        # Invalid options are an error at once.
        _ = self.unit_options, self.choices

    @cached_property
    def choices(self) -> tuple[PrivateChoice, ...]:
        """The earlier private choices."""
        after = (self.after,) if isinstance(self.after, PrivateChoice) else self.after
        choices = () if after is None else tuple(after) if isinstance(after, list | tuple) else (after,)
        for choice in choices:
            if not isinstance(choice, PrivateChoice):
                raise ArgumentError(
                    "Expected after to be a result of choose_structure or choose_bins, or a list of these, got "
                    f"{type_name(choice)}. Leave public choices out, because they cost nothing."
                )
        return choices

    @cached_property
    def unit_options(self) -> UnitOptions:
        """The options about people."""
        return unit_options(
            unit=self.unit,
            contribution=self.contribution,
            public=() if isinstance(self.public, bool) else self.public,
            disjoint=self.disjoint,
            adjacency=self.adjacency,
        )


def predicts(planning: dict[str, Any]) -> bool:
    """Whether mechanisms are compared by predictions. A Dirichlet draw then minimizes its error as an estimate."""
    if not isinstance(planning.get("objective"), str) or planning["objective"] != "prediction":
        return False
    if (mechanism := planning.get("mechanism", "dirichlet")) != "auto":
        raise ArgumentError(
            f"objective='prediction' compares the mechanisms of mechanism='auto', got mechanism={mechanism!r}. Pass "
            "objective='estimate'."
        )
    planning["objective"] = "estimate"
    return True


def with_options[F: Callable[..., Any]](option_names: type) -> Callable[[F], F]:
    """Add options and their defaults to the signature of a function that takes them as `**planning`.

    Parameters
    ----------
    option_names : type
        The TypedDict of the options. The error about any other option shows the call of :func:`plan` that has it.
    """

    def set_signature(function: F) -> F:
        signature, names = inspect.signature(function), get_type_hints(option_names).keys()
        # The last parameter is `**planning`.
        *parameters, _ = signature.parameters.values()
        options = inspect.signature(Options).parameters
        parameters += [option for name, option in options.items() if name in names]
        signature = signature.replace(parameters=parameters)
        vars(function)["__signature__"] = signature
        return options_of_plan(*(options.keys() - names))(function)

    return set_signature


_Sizes = Mapping[str, int | None]
_Mechanisms = dict[str, TableMechanism]


@overload
def plan(
    guarantee: Guarantee, model: pm.Model | None = None, *, progressbar: bool = True, **planning: Unpack[ModelPlanning]
) -> "ModelPlan": ...


@overload
def plan(
    guarantee: Guarantee, model: pm.Model | None = None, *, progressbar: bool = True, **planning: Unpack[Planning]
) -> Plan: ...


@user_facing
@with_options(Planning)
def plan(
    guarantee: Guarantee, model: pm.Model | None = None, *, progressbar: bool = True, **planning: Any
) -> "Plan | ModelPlan | PairsPlan":
    """Calibrate the mechanisms of a release before any observation is counted.

    No number of a plan depends on the observations. They are only compared with each other and with numbers of trials,
    to refuse a model that would publish them, or whose unit of privacy is ambiguous.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee of the whole release.
    model : pymc.Model, optional
        A model of Dirichlet or Beta priors with conjugate likelihoods; by default the one on the context stack. With
        ``any_model=True`` it is any discrete model, with the options of :func:`private_model`, `weights` and
        `max_cells` (10,000 by default).
    progressbar : bool, default True
    adjacency, mechanism, n_records, unit, contribution, public
        As for :func:`sample`.
    objective : {"posterior", "estimate", "prediction"}, default "posterior"
        The target of a Dirichlet draw: your posterior, or the frequencies. ``"prediction"`` is for networks with
        ``mechanism="auto"``. It is the default for these, and ``"estimate"`` for networks with other mechanisms.
    released_draws : int, default 1
        The number of posterior draws in the release. Dirichlet draws share the guarantee; draws given noise are free.
    min_count : float, default 0.0
        A public lower bound on every cell of every possible data set. A wrong bound voids the guarantee.
    sampler : {"exact", "fast"}, default "exact"
        Integers from random bits of the operating system, or floating-point numbers, whose last bits are not proved.
    weights : mapping of str to float, optional
        Relative budgets of tables, by name; 1 for the others.
    after : Structure, Bins or sequence of these, optional
        Private choices from the same records, which the guarantee then covers too.
    disjoint : iterable of iterables of str, optional
        Groups of tables or observed variables; no person has records in two groups.

    Returns
    -------
    plan : Plan, PairsPlan or ModelPlan
        Pass it to :func:`sample` or :func:`private_model` instead of the guarantee.

    Raises
    ------
    UnsupportedModelError, DataError
        If no guarantee can be proved for the model, or its counts have lost their unit.
    UnattainableError, ArgumentError
        If no mechanism satisfies the guarantee, or an option is outside its domain.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> round(dirdp.plan(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model).parts[0].mechanism.r, 3)
    0.203
    """
    if "any_model" in planning:
        from pymc_dirdp.releases.model_plan import plan_of_model  # It imports this module.

        return plan_of_model(guarantee, root_model(model), **planning)
    refuse_unknown("plan", planning, Planning.__annotations__)
    if is_wide(root_model(model)):
        from pymc_dirdp.releases.pairs_drawn import plan_of_pairs  # It imports this module.

        return plan_of_pairs(guarantee, root_model(model), progressbar=progressbar, **planning)
    result = new_plan(guarantee, model, progressbar=progressbar, **planning)
    warn_if_few(result)
    refuse_unstated_unit(result, root_model(model))
    return result


def refuse_unstated_unit(plan: Plan, model: pm.Model) -> None:
    """Refuse counts that have lost their unit if the plan does not state one, see :func:`refuse_lost_unit`.

    It reads observed values, so a ledger must be charged before.
    """
    options = plan.privacy_unit.options
    if not options.unit and options.contribution is None:
        refuse_lost_unit({likelihood.name for part in plan.parts for likelihood in part.table.likelihoods}, model)


def new_plan(guarantee: Guarantee, model: pm.Model | None = None, *, progressbar: bool = True, **planning: Any) -> Plan:
    """The plan of a model with Dirichlet or Beta priors, before its observations are read."""
    # The model is checked first, so that swapped arguments are recognized.
    model = root_model(model)
    guarantee = Guarantee.checked(guarantee=guarantee)
    purpose = purpose_of(model)
    if "objective" not in planning and (objective := purpose.objective) is not None:
        # With a single mechanism there are no predictions to compare.
        planning["objective"] = objective if planning.get("mechanism") == "auto" else "estimate"
    by_prediction = predicts(planning)
    options = Options(**planning)
    refuse_unpaid_structure(purpose.structure, options.choices)
    parsed = tables_and_people(model, options.unit_options, all_public=options.public is True)
    by_name, privacy_unit = {table.name: table for table in parsed.tables}, parsed.reading
    labels = (plain_labels(dim) for table in by_name.values() for dim in table.coords.values() if dim is not None)
    refuse_unpaid_bins(labels, options.choices)
    check_names(parsed.tables)
    for choice in options.choices:
        choice.check_same_people(options.adjacency, privacy_unit.label)
    check_budget_left(guarantee, options.choices)
    sizes = _sizes(parsed, options.n_records)
    totals = {table.name: parsed.public_totals(table) for table in parsed.tables}
    with Bar(1, "plan", shown=progressbar):
        mechanisms, choices = _choose_mechanisms(
            guarantee, by_name, sizes, totals, privacy_unit, options, purpose.target, by_prediction=by_prediction
        )
    _warn_of_many_draws(mechanisms, options.released_draws)
    warn_if_weak(guarantee, max((size for size in sizes.values() if size is not None), default=None))
    return Plan(
        guarantee=guarantee,
        parts=tuple(
            PlannedTable(table, mechanisms[name], sizes[name], choices.get(name), totals[name])
            for name, table in by_name.items()
        ),
        unit_options=privacy_unit.options,
        groups=privacy_unit.groups,
        n_units=privacy_unit.n_units,
        others=privacy_unit.others,
        strategy=options.strategy,
        objective=options.objective,
        released_draws=options.released_draws,
        sampler=options.sampler,
        min_count=options.min_count,
        after=options.choices,
    )


def _choose_mechanisms(
    guarantee: Guarantee,
    tables: Mapping[str, Table],
    sizes: _Sizes,
    totals: Mapping[str, tuple[int, ...]],
    privacy_unit: PrivacyUnit,
    options: Options,
    target: str | None,
    *,
    by_prediction: bool,
) -> tuple[_Mechanisms, dict[str, Choice]]:
    """The mechanism of each table, and the expected errors by which its kind was chosen, if there was a choice."""
    # A table with a single category has no privacy loss, so it gets no share of the guarantee.
    constant: _Mechanisms = {
        name: untouched(
            table.prior,
            adjacency=options.adjacency,
            min_count=options.min_count,
            contribution=privacy_unit.contribution(name),
        )
        for name, table in tables.items()
        if table.n_categories == 1
    }
    weights = _weights(options.weights, dict(privacy_unit.shapes))
    facts = {
        name: TableFacts(
            table.prior, sizes[name], privacy_unit.contribution(name), weights[name], axes_of(table), totals[name]
        )
        for name, table in tables.items()
        if name not in constant
    }
    judge = _judge(facts, privacy_unit, target) if by_prediction and options.released_draws == 1 else None
    terms = Terms.of(
        options,
        groups=privacy_unit.groups,
        public_totals=privacy_unit.n_records_is_public,
        before=curves_of(options.choices),
        prediction_loss=judge,
        target=target,
    )
    mechanisms, choices = choose(guarantee, facts, terms, mechanism=options.kind)
    return constant | mechanisms, choices


def _judge(facts: Mapping[str, TableFacts], privacy_unit: PrivacyUnit, target: str | None) -> Judge | None:
    """The loss of predictions of the next record of a network, or its class. None if the tables are not a network."""
    axes = {name: fact.axes for name, fact in facts.items()}
    try:
        refuse_unlike_network(axes)
    except (ArgumentError, UnsupportedModelError):
        return None
    numbers = {fact.n_records for fact in facts.values()}
    if len(privacy_unit.groups) > 1 or (len(numbers) > 1 and privacy_unit.n_records_is_public):
        return None
    priors = {name: fact.prior for name, fact in facts.items()}
    largest = max((number or 0 for number in numbers), default=0)
    if not largest:
        raise ArgumentError(
            "Comparing the predictions of mechanisms needs a number of records above 0. Pass n_records=, your guess if "
            "the number is private."
        )
    return prediction_loss_of(axes, priors, largest, public=privacy_unit.n_records_is_public, target=target)


def _warn_of_many_draws(mechanisms: _Mechanisms, draws: int) -> None:
    # With a smaller r, several draws leave less than a tenth of the records in each.
    rates = {name: draw.r for name, mechanism in mechanisms.items() if (draw := mechanism.tempered) is not None}
    few = {name: r for name, r in rates.items() if r < 0.1}
    if draws > 1 and few:
        name, r = min(few.items(), key=itemgetter(1))
        warn(
            f"{draws} draws share the guarantee, so each of them counts {r:.2g} of every record of {name!r}. If you "
            "need draws for computations, release one: dirdp.analyse(release) gives as many posterior draws as you "
            "like without further privacy loss.",
            ManyDrawsWarning,
        )


def _weights(weights: Mapping[str, float] | None, tables: Iterable[str]) -> dict[str, float]:
    budgets, names = mapping_of_names(weights=weights), list(tables)
    for name in budgets:
        one_of(names, **{"table in weights": name})
    return {name: positive(**{f"weights[{name!r}]": budgets.get(name, 1.0)}) for name in names}


def _checked_sizes(n_records: int | Mapping[str, int] | None) -> int | dict[str, int] | None:
    """The planning size or sizes as Python integers, which a text can contain."""
    if n_records is None:
        return None
    several = isinstance(n_records, Mapping)
    named = mapping_of_names(n_records=n_records) if several else {None: n_records}
    sizes = {
        name: integer(0, **{"n_records" if name is None else f"n_records[{name!r}]": size})
        for name, size in named.items()
    }
    if any(size > MAX_RECORDS for size in sizes.values()):
        raise ArgumentError("Expected n_records to be at most 2**53, the largest number in a text.")
    return {name: size for name, size in sizes.items() if name is not None} if several else sizes[None]


def _sizes(parsed: ModelTables, n_records: int | Mapping[str, int] | None) -> dict[str, int | None]:
    """The number of records of each table: that of the model if it is public, otherwise the planning size."""
    names = [table.name for table in parsed.tables]
    if parsed.reading.n_records_is_public:
        if n_records is not None:
            raise ArgumentError(
                "n_records is for adjacency='add-remove', or unit= with contribution=. Under replace-one the number of "
                "records is public and the model states it."
            )
        return {table.name: parsed.n_records(table) for table in parsed.tables}
    if not isinstance(n_records, Mapping):
        return dict.fromkeys(names, n_records)
    for name in n_records:
        one_of(names, **{"table in n_records": name})
    return {name: n_records.get(name) for name in names}


def refuse_second_planning(plan: Plan, planning: Planning) -> None:
    """Refuse options in addition to a plan, even if they equal a default, because the plan may have another value."""
    if (unit := planning.get("unit")) is not None:
        raise ArgumentError(
            f"This plan protects {plan.privacy_unit.options.unit_text}; sample was asked for unit={unit!r}. Pass unit= "
            "to plan() instead."
        )
    if planning:
        raise ArgumentError(f"A plan already decides {', '.join(planning)}. Pass it to plan() instead.")


def plan_for(guarantee: Guarantee | Plan, model: pm.Model, *, progressbar: bool = True, **planning: Any) -> Plan:
    """The plan of a release: that with the least noise for a guarantee, or the plan itself if it fits the model.

    Raises
    ------
    UnsupportedModelError
        If it is the plan of another model.
    """
    if not isinstance(guarantee, Plan):
        result = new_plan(guarantee, model, progressbar=progressbar, **planning)
        warn_if_few(result)
        return result
    refuse_second_planning(guarantee, planning)  # type: ignore[arg-type]  # A plan allows for none.
    # Copies have no cached results.
    parts = tuple(replace(part, mechanism=copy(part.mechanism)) for part in guarantee.parts)
    result = replace(guarantee, parts=parts, library_version=library_version())
    check_names(tables_as_planned(result, model))
    return result


def tables_as_planned(plan: Plan, model: pm.Model) -> tuple[Table, ...]:
    """The tables of a model, which must be the model of a plan or a release.

    Raises
    ------
    UnsupportedModelError
        If it is another model.
    """
    # A plan may come from a file. The unit of privacy is derived again from the model, because a model with the same
    # tables may imply another one, and compared with the unit that the mechanisms of the plan protect.
    parsed = tables_and_people(model, plan.unit_options)
    is_public = parsed.reading.n_records_is_public
    facts = [(table.with_text_labels, parsed.n_records(table), parsed.public_totals(table)) for table in parsed.tables]
    planned_facts = [(part.table, part.n_records if is_public else None, part.totals) for part in plan.parts]
    if parsed.reading != plan.privacy_unit or facts != planned_facts:
        names = ", ".join(repr(part.table.name) for part in plan.parts)
        raise UnsupportedModelError(
            f"The model is not the one that was planned: {names}, a prior, dims, a likelihood, whose records they are "
            "or the public number of records has changed. Pass that model, or call plan() again."
        )
    return parsed.tables
