"""Draw a release from a plan and the counts: a DataTree that is safe to publish."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import pymc as pm
import xarray as xr

from pymc_dirdp.accounting.budget import check_ledger_type
from pymc_dirdp.accounting.opening import Counting, Sealed, TablesDrawing
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.outputs import NoisyTable, Output
from pymc_dirdp.models.counted import Reading, count_readings
from pymc_dirdp.models.graph import is_wide
from pymc_dirdp.models.observations import find_observations
from pymc_dirdp.models.public import count_rules
from pymc_dirdp.models.table import Table
from pymc_dirdp.models.tables import root_model
from pymc_dirdp.models.whose_records import reading_of
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.progress import Bar
from pymc_dirdp.releases.deterministics import with_deterministics
from pymc_dirdp.releases.draws import try_draws
from pymc_dirdp.releases.ledger_charge import charge_release
from pymc_dirdp.releases.opened import of_release
from pymc_dirdp.releases.pairs import PairsPlan
from pymc_dirdp.releases.pairs_drawn import sample_pairs
from pymc_dirdp.releases.plan import Sampling, plan_for, with_options
from pymc_dirdp.releases.plan_types import Plan, PlannedTable
from pymc_dirdp.releases.text import Release, identity
from pymc_dirdp.releases.view import try_view, view
from pymc_dirdp.releases.wording import warn_if_seeded, warn_of_ranking, warn_of_repetition
from pymc_dirdp.sampling.bits import Seed, generator, randomness
from pymc_dirdp.sampling.drawing import Drawing, Published
from pymc_dirdp.signatures import user_facing
from pymc_dirdp.texts.grammar import check_readable

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger


@user_facing
@with_options(Sampling)
def sample(
    guarantee: Guarantee | Plan | PairsPlan,
    model: pm.Model | None = None,
    *,
    random_seed: Seed = None,
    ledger: "Ledger | None" = None,
    progressbar: bool = True,
    **planning: Unpack[Sampling],
) -> xr.DataTree:
    """Draw a private release of a PyMC model: by default one posterior draw, with its guarantee.

    Parameters
    ----------
    guarantee : Guarantee or Plan
        The guarantee of the whole release, or the plan of this model from :func:`plan`. Leave out all options from
        `adjacency` on if you pass a plan. Only :func:`plan` has options such as `released_draws` and `weights`.
    model : pymc.Model, optional
        By default the model on the context stack.
    random_seed : int, SeedSequence, Generator or None, default None
        None takes entropy from the operating system. A seeded release can be drawn again and is **not private**.
    ledger : Ledger, optional
        It is charged before any observation is counted. If the budget is too small, nothing is drawn.
    progressbar : bool, default True
        Whether to show a bar if drawing takes over a second.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        Whether neighbouring data sets differ by a replaced record, so the number of records is public, or an added one.
    mechanism : str, Dirichlet or Marginals, default "dirichlet"
        ``"dirichlet"`` draws from a tempered posterior. ``"geometric"`` and ``"gaussian"`` release noisy counts and
        draws given them. ``"auto"`` minimizes the expected error of :func:`estimate`. ``"joint"`` adds shared noise to
        several tables of the same people. ``"marginals"`` releases noisy marginals of a network.
    n_records : int or mapping of str to int, optional
        Your guess of the number of records, if it is private.
    unit : str, int or tuple of these, optional
        The dim, or axis, whose entries are the people. By default one record is one person.
    contribution : int, optional
        The maximum number of records of a person in each table; with `unit`, in each observed variable.
    public : iterable of str, or True, default ()
        Names of public numbers of trials or records, and of public `pm.Data` in priors; True for all of them.

    Returns
    -------
    release : xarray.DataTree
        Group `posterior` has dims ``(chain=1, draw=1, ...)``. `mechanism`, `privacy` and `utility` have the noisy
        counts, the guarantee and the expected errors, in nats. It may be published.

    Raises
    ------
    UnsupportedModelError, UnattainableError, ArgumentError
        As for :func:`plan`.
    DataError
        If the observations do not fit the model. Only the curator may see this error.
    BudgetError, LedgerError
        If the ledger refuses the release or cannot be written. Nothing is drawn then.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model)
    >>> dict(release["posterior"].sizes)
    {'chain': 1, 'draw': 1, 'hair': 4}
    """
    if isinstance(model, Plan | PairsPlan):
        raise ArgumentError("Expected a PyMC model, got a Plan. The plan comes first, then the model.")
    model = root_model(model)
    if is_wide(model) != isinstance(guarantee, PairsPlan) and isinstance(guarantee, Plan | PairsPlan):
        raise ArgumentError("The plan is for another model: one of the two is a wide table, and the other is not.")
    if is_wide(model):
        options: Any = planning
        return sample_pairs(
            guarantee,  # type: ignore[arg-type]  # No plan of tables.
            model,
            ledger=ledger,
            random_seed=random_seed,
            progressbar=progressbar,
            **options,
        )
    return sample_sealed(
        guarantee,  # type: ignore[arg-type]  # No plan of pairs.
        model,
        ledger=ledger,
        random_seed=random_seed,
        progressbar=progressbar,
        **planning,
    )


def sample_sealed(
    guarantee: Guarantee | Plan,
    model: pm.Model,
    counting: Counting[Any] | None = None,
    *,
    ledger: "Ledger | None" = None,
    random_seed: Seed = None,
    progressbar: bool = True,
    **planning: Unpack[Sampling],
) -> xr.DataTree:
    """The release of a model whose records are opened after the charge, for :func:`sample`.

    Parameters
    ----------
    guarantee, ledger, random_seed, progressbar, **planning
        As in :func:`sample`.
    model : pymc.Model
        The model to plan and charge. Its observations are placeholders if `counting` is given.
    counting : Counting, optional
        By default the observations of the model are counted.
    """
    check_ledger_type(ledger)
    plan = plan_for(guarantee, model, progressbar=progressbar, **planning)
    check_readable(plan)
    composition = plan.composition
    # Plans may come from a file, so this is checked again, on the exact curve and without tolerance.
    if not composition.satisfies(plan.guarantee):
        raise UnattainableError(f"The plan does not satisfy {plan.guarantee}, so nothing was drawn. Plan again.")
    for part in plan.publishing(NoisyTable):
        try_draws(part, public=plan.privacy_unit.n_records_is_public)
    # Everything that can fail without the data comes before the charge, and so does all that needs no data.
    source = randomness(random_seed, sampler=plan.sampler)
    try_view(plan)
    tables = tuple(part.table for part in plan.parts)
    counting = _observed(tables, model, plan) if counting is None else counting
    sealed, count = Sealed(counting.records, ledger), counting.count
    drawing = _prepared(plan, counting, random_seed)
    # The frame of this function does not refer to the records when they are opened.
    del counting
    warn_if_seeded("release", random_seed=random_seed)
    receipt = None
    if ledger is not None:
        receipt = charge_release(
            plan,
            ledger,
            what=", ".join(table.name for table in tables),
            # The digest in the file of the plan, even if another version of this library wrote it.
            digest=guarantee.digest if isinstance(guarantee, Plan) else plan.digest,
            min_count=plan.min_count,
            groups=plan.groups if len(plan.groups) > 1 else None,
        )
    elif random_seed is None:
        warn_of_repetition(tables)
    for choice in plan.after:
        choice.mark_released()
    with Bar(1, "release", shown=progressbar) as bar:
        drawn = sealed.release(count, drawing.of, receipt)
        bar.advance()
    if drawn.ranked is not None:
        warn_of_ranking(tables, *drawn.ranked)
    outputs = {part.table.name: _output(part, drawn.arrays[part.table.name]) for part in plan.parts}
    release_identity = identity(random_seed, outputs)
    # The cache gets copies of the choices, so that it does not keep bins alive whose cost no release has covered yet.
    copied = replace(plan, after=tuple(map(copy, plan.after))) if plan.after else plan
    tree = view(of_release(Release(copied, source, release_identity, receipt, outputs)))
    return with_deterministics(tree, model, size_is_public=plan.privacy_unit.n_records_is_public)


def _observed(tables: Sequence[Table], model: pm.Model, plan: Plan) -> Counting[Any]:
    """How to count the observations of a model. It holds no records, and the model does."""
    options, by_table = plan.privacy_unit.options, {table.name: list[Reading]() for table in tables}
    for observed in find_observations(tables, model):
        by_table[observed.table.name].append(reading_of(observed, options))
    return Counting(list(by_table.values()), count_readings)


def _prepared(plan: Plan, counting: Counting[Any], random_seed: Seed) -> TablesDrawing:
    """The draws of all tables, with their noise, before the records are opened."""
    # All tables use one generator, so their noise is independent. Without a seed, the exact sampler uses random bits of
    # the operating system.
    sampler = plan.sampler
    source = None if sampler == "exact" and random_seed is None else generator(random_seed)
    shared: dict[str, Drawing] = {}
    for first, *others in plan.noise_groups:
        names = [part.table.name for part in (first, *others)]
        together = first.mechanism.prepare_together(
            [part.mechanism for part in others], sampler=sampler, random_seed=source
        )
        shared |= dict(zip(names, together, strict=True))
    drawings: dict[str, Drawing] = {}
    for part in plan.parts:
        name = part.table.name
        drawings[name] = shared.get(name) or part.mechanism.prepare(
            plan.released_draws, sampler=sampler, random_seed=source, n_records=part.n_records
        )
    known = counting.has_numbers and plan.privacy_unit.n_records_is_public
    numbers = {part.table.name: part.n_records for part in plan.parts if known and part.n_records is not None}
    rules = count_rules([part.table for part in plan.parts], plan.privacy_unit.options, counting.arrays)
    return TablesDrawing(drawings, rules, numbers)


def _output(part: PlannedTable, drawn: Sequence[Published]) -> Output:
    output = part.mechanism.output_of(drawn)
    return output.of_beta if part.table.family == "beta" else output
