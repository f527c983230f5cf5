"""The tables of a model of any discrete data: what is said about it, how it is read, and how its tables are planned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors

from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError, UnattainableError, UnsupportedModelError
from pymc_dirdp.inference.joint_rows import multiplications
from pymc_dirdp.models.graph import Node, operation, parameters, stored_shape
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.outcome_kinds import private_trials, read_outcomes, with_shares
from pymc_dirdp.models.outcomes import NOISES, Inputs, ModelOptions, Outcomes, jointly_observed, n_row_arrays, refused
from pymc_dirdp.models.whose_records import known_bound
from pymc_dirdp.models.without_data import refuse_free_variables, refuse_unnamed_data
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.plan import plan
from pymc_dirdp.releases.plan_types import Plan, PlannedTable, records_name

__all__ = [
    "ModelRead",
    "has_likelihood",
    "layout_of",
    "planned_tables",
    "read_model",
    "table_model",
]

_NOBODY = "nobody"
# Those of one evaluation of the likelihood of joint noise, which takes some 20 ms then, so that NUTS takes minutes.
_MOST_MULTIPLICATIONS = 6e7


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
    records: frozenset[int]
    dims: frozenset[str]


def read_model(model: pm.Model, said: ModelOptions) -> ModelRead:
    """Read all observed variables of a model. No observation is looked at but to refuse one that is a covariate, too.

    Raises
    ------
    UnsupportedModelError, ArgumentError
        It names the variable, the reason and a way out.
    """
    if not model.observed_RVs:
        raise UnsupportedModelError(
            "private_model cannot release this model: it observes nothing. Give its discrete variables observed=; a "
            "recipient gives made-up observations of the same kind."
        )
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
    free, secret, records, dims = list(model.free_RVs), [], set(), set()
    for rv in model.observed_RVs:
        name, stored = str(rv.name), stored_observations(rv, model)
        secret.append(stored)
        if (known := known_bound(name, model)) is not None and known[1].records > said.contribution:
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
            records.add(shape[0])
            secret += n_row_arrays(ancestors([rv], blockers=free), shape[0])
            dims |= {dim for dim in model.named_vars_to_dims.get(name, ())[:1] if dim is not None}
    private = set() if said.records_are_public else records - set(said.levels.values())
    refuse_free_variables(model, free, secret, private, dims)
    refuse_unnamed_data(model, free, secret, said)
    inputs = Inputs.of(model, free)
    alone = {str(rv.name): read_outcomes(rv, model, inputs, said) for rv in model.observed_RVs}
    outcomes = [one for name, one in alone.items() if name not in together]
    outcomes += [jointly_observed([alone[name] for name in group], said) for group in groups]
    _refuse_shared_rows(outcomes, said)
    return ModelRead(model, free, inputs, outcomes, said, secret, frozenset(records), frozenset(dims))


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
    both = ", ".join(map(repr, unknown))
    raise UnsupportedModelError(
        f"private_model cannot release this model: {both} are answers of the same people, whose covariates or number "
        "are private, so that their tables have the same unknown row sizes. Say "
        f"jointly=[{unknown}], or disjoint= if they are different people."
    )


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
        labels = outcomes if len(outcomes) > 1 else (*outcomes, _NOBODY)
        return Layout((len(labels),), (f"{one.name}_count",), (labels,), rows_are_public=False)
    if len(rows) == 1:
        return Layout((len(outcomes),), (f"{one.name}_outcome",), (outcomes,), rows_are_public=public)
    if public and (one.totals is None or found.said.contribution > 1):
        cells = tuple(f"{row} | {outcome}" for row in rows for outcome in outcomes)
        return Layout((len(cells),), (f"{one.name}_cell",), (cells,), rows_are_public=False)
    dims = (f"{one.name}_row", f"{one.name}_outcome")
    return Layout((len(rows), len(outcomes)), dims, (rows, outcomes), rows_are_public=public)


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
    options: dict[str, Any] = {
        "adjacency": said.relation,
        "contribution": found.said.contribution,
        "public_n": [
            records_name(one.name)
            for one in found.outcomes
            if len((laid := layout_of(one, found)).shape) == 2 and laid.rows_are_public
        ],
        **{name: given for name in ("weights", "disjoint") if (given := getattr(said, name)) is not None},
    }
    plans: list[Plan] = []
    problem: Exception | None = None
    for kind in NOISES if said.mechanism == "auto" else (said.mechanism,):
        try:
            one = plan(guarantee, tables, mechanism=kind, **options)
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
    return min(plans, key=lambda one: sum((part.mechanism.noise_sd or 0.0) ** 2 for part in one.parts))


def has_likelihood(part: PlannedTable) -> bool:
    """Whether the likelihood of its noise is known: of single cells, or of a row that shares a noise with others."""
    mechanism, noise = part.mechanism, part.mechanism.shared_noise
    if mechanism.cell_noise is not None or noise is None:
        return mechanism.cell_noise is not None
    if len(part.table.shape) > 1 or part.n_records is None or noise.reaches is None:
        return False
    return sum(map(multiplications, noise.cells, noise.reaches)) <= _MOST_MULTIPLICATIONS
