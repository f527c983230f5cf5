"""Plan and release a wide table. The model's records are counted in all pairs of columns, after the charge."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pymc as pm
import xarray as xr

from pymc_dirdp.accounting.budget import check_ledger_type
from pymc_dirdp.accounting.opening import Sealed
from pymc_dirdp.checks import integer, refuse_unknown
from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.counts import tabulate_columns
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.pairs import PairsMechanism
from pymc_dirdp.models.graph import evaluate, purpose_of, source_of
from pymc_dirdp.models.privacy_unit import unit_options
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.progress import Bar
from pymc_dirdp.releases.choices import check_budget_left, curves_of, refuse_unpaid_bins
from pymc_dirdp.releases.ledger_charge import charge_release
from pymc_dirdp.releases.opened import remembered
from pymc_dirdp.releases.pairs import PairsPlan, PairsRelease
from pymc_dirdp.releases.pairs_view import tree_of_pairs
from pymc_dirdp.releases.plan import Options
from pymc_dirdp.releases.wording import warn_if_seeded, warn_if_weak, warn_of_repetition
from pymc_dirdp.sampling.bits import Bits, Seed, generator, randomness
from pymc_dirdp.texts.codec import facts_of
from pymc_dirdp.texts.grammar import check_readable, digest

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger

RECORDS = "records"
"""The observed variable in a model of a wide table, with the codes of all records."""
# The options of a plan that apply to a wide table. The others are about tables and draws.
_OPTIONS = ("adjacency", "n_records", "contribution", "after")


@dataclass(frozen=True)
class WideColumns:
    """The public facts about a model of a wide table.

    Attributes
    ----------
    labels : mapping of str to list
        The categories of each column.
    bound : Bound or None
        The unit and its maximum number of records.
    """

    labels: Mapping[str, list[Any]]
    bound: Bound | None


def plan_of_pairs(guarantee: Guarantee, model: pm.Model, *, progressbar: bool = True, **planning: Any) -> PairsPlan:
    """The plan of a model of a wide table, for :func:`pymc_dirdp.plan`. It uses public numbers only."""
    refuse_unknown("plan", planning, dict.fromkeys(_OPTIONS))
    guarantee = Guarantee.checked(guarantee=guarantee)
    options, wide = Options(**planning), _columns_of(model)
    bound, contribution = wide.bound, options.contribution
    if bound is not None:
        if contribution is not None:
            raise ArgumentError("The records were counted with contribution= already. Leave it out here.")
        bound.refuse_public_number(options.adjacency)
        contribution = bound.records
    people = unit_options(
        unit=None,
        contribution=contribution,
        public=(),
        disjoint=None,
        counted=None if bound is None else bound.unit,
        adjacency=options.adjacency,
    )
    before = curves_of(options.choices)
    refuse_unpaid_bins(wide.labels.values(), options.choices)
    check_budget_left(guarantee, options.choices)
    lengths = [len(labels) for labels in wide.labels.values()]
    with Bar(1, "plan", shown=progressbar):
        mechanism = PairsMechanism.for_guarantee(
            guarantee, lengths, adjacency=options.adjacency, contribution=contribution or 1, before=before
        )
    n_records = _n_records(model, options.n_records, is_public=people.n_records_is_public)
    warn_if_weak(guarantee, n_records)
    columns = tuple((name, tuple(labels)) for name, labels in wide.labels.items())
    return PairsPlan(guarantee, columns, mechanism, people, n_records, after=options.choices)


def sample_pairs(
    guarantee: Guarantee | PairsPlan,
    model: pm.Model,
    *,
    ledger: "Ledger | None",
    random_seed: Seed = None,
    progressbar: bool = True,
    **planning: Any,
) -> xr.DataTree:
    """The release of a model of a wide table, for :func:`pymc_dirdp.sample`."""
    check_ledger_type(ledger)
    if isinstance(guarantee, PairsPlan):
        refuse_unknown("sample", planning, ())
        plan = guarantee
        _refuse_other_model(plan, model)
    else:
        plan = plan_of_pairs(guarantee, model, progressbar=progressbar, **planning)
    check_readable(plan)
    if not plan.composition.satisfies(plan.guarantee):
        raise UnattainableError(f"The plan does not satisfy {plan.guarantee}, so nothing was drawn. Plan again.")
    mechanism, source = plan.mechanism, randomness(random_seed, sampler="exact")
    sealed = Sealed(source_of(model.rvs_to_values[model[RECORDS]]), ledger)
    with Bar(1, "noise", shown=progressbar) as bar:
        drawing = mechanism.prepare(Bits(None if random_seed is None else generator(random_seed)))
        bar.advance()
    warn_if_seeded("release", random_seed=random_seed)
    receipt = None
    if ledger is not None:
        what = f"all pairs of {len(plan.columns)} columns"
        receipt = charge_release(plan, ledger, what=what, digest=plan.digest)
    elif random_seed is None:
        warn_of_repetition(plan.columns)
    for choice in plan.after:
        choice.mark_released()
    count = partial(tabulate_columns, tables=mechanism.tables, lengths=mechanism.lengths)
    with Bar(1, "tables", shown=progressbar) as bar:
        counts = sealed.release(count, drawing.of, receipt)
        bar.advance()
    identity = secrets.token_hex(16) if random_seed is None else digest(facts_of({"counts": counts}))[:32]
    return tree_of_pairs(remembered(PairsRelease(plan, source, identity, receipt, counts)))


def _columns_of(model: pm.Model) -> WideColumns:
    wide = purpose_of(model).wide
    assert isinstance(wide, WideColumns)
    return wide


def _n_records(model: pm.Model, n_records: Any, *, is_public: bool) -> int | None:
    if not is_public:
        return None if n_records is None else integer(1, n_records=n_records)
    if n_records is not None:
        raise ArgumentError("The number of records is public here, and the model states it. Leave n_records out.")
    return int(evaluate(model.rvs_to_values[model[RECORDS]]).shape[0])


def _refuse_other_model(plan: PairsPlan, model: pm.Model) -> None:
    """Refuse the plan of other columns, or of another unit of privacy."""
    wide = _columns_of(model)
    same = plan.labels == dict(wide.labels) and list(plan.labels) == list(wide.labels)
    unit = None if wide.bound is None else wide.bound.unit
    people = unit == plan.unit_options.counted and (wide.bound is None or wide.bound.records == plan.contribution)
    is_public = plan.unit_options.n_records_is_public
    if not same or not people or (is_public and plan.n_records != _n_records(model, None, is_public=True)):
        raise ArgumentError(
            "The plan is for another model: its columns, categories, number of records or unit of privacy differ. Call "
            "plan() again."
        )
