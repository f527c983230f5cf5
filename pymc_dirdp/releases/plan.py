"""From a model and a guarantee to mechanisms, by public numbers only: no observed value is read here."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from importlib.metadata import version
from typing import Unpack

import pymc as pm

from pymc_dirdp.checks import one_of, positive
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.base import TableMechanism
from pymc_dirdp.mechanisms.known import noises
from pymc_dirdp.models.names import check_names
from pymc_dirdp.models.observations import total_records
from pymc_dirdp.models.reading import Reading, read
from pymc_dirdp.models.tables import Table, root_model, tables
from pymc_dirdp.planning.allocation import allocate, whole_share
from pymc_dirdp.planning.calibration import calibrate
from pymc_dirdp.planning.choosing import Choice, rank
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.options import Options, Planning, refuse_unknown, with_options
from pymc_dirdp.releases.planned import Plan, PlannedTable
from pymc_dirdp.releases.wording import assumed

__all__ = ["plan"]

_Sizes = Mapping[str, int | None]
_Mechanisms = dict[str, TableMechanism]

# How many counts are simulated in all to choose between mechanisms.
_CELLS = 200_000


@with_options
def plan(guarantee: Guarantee, model: pm.Model | None = None, **planning: Unpack[Planning]) -> Plan:
    """Calibrate the mechanisms for a model before any observation is counted.

    Observed values are compared with each other and with numbers of trials, to refuse a model that would publish them
    or that leaves open whose records it holds. No number of a plan depends on them.

    Parameters
    ----------
    guarantee : RenyiDP, TruncatedCDP or ApproxDP
        What the whole release will promise.
    model : pymc.Model, optional
        The model on the context stack by default. It holds Dirichlet or Beta priors with conjugate likelihoods.
    **planning

    Returns
    -------
    plan : Plan
        Pass it to :func:`pymc_dirdp.sample` in place of the guarantee.

    Raises
    ------
    UnsupportedModelError
        If a guarantee cannot be proved for the model; the message names the variable, the reason and the way out.
    UnattainableError, ArgumentError
        As :func:`pymc_dirdp.calibrate` does.

    References
    ----------
    Theory, section 2 for the rows of a table, section 7 for several tables and draws, section 6 for `unit` and
    `contribution`.
    """
    guarantee = Guarantee.checked(guarantee=guarantee)
    refuse_unknown("plan", planning)
    wanted = Options(**planning)
    model = root_model(model)
    found = {table.name: table for table in tables(model)}
    check_names(tuple(found.values()))
    relation = adjacency_named(wanted.adjacency)
    reading = read(tuple(found.values()), model, wanted.stated, relation)
    sizes = _sizes(reading, model, found, wanted.n_records)
    allocated = _allocation(guarantee, found, sizes, reading, wanted)
    kinds = dict.fromkeys(found, wanted.mechanism)
    choices: dict[str, Choice] = {}
    if wanted.mechanism == "auto":
        choices = _choices(guarantee, found, sizes, reading, wanted, allocated)
        kinds = {name: choice.best for name, choice in choices.items()}
    chosen = allocated(kinds)
    contributions = [adds for _, adds in reading.contributions]
    return Plan(
        guarantee=guarantee,
        parts=tuple(PlannedTable(table, chosen[name], sizes[name], choices.get(name)) for name, table in found.items()),
        groups=reading.groups,
        strategy=wanted.strategy,
        objective=wanted.objective,
        draws=wanted.draws,
        adjacency=wanted.adjacency,
        min_count=wanted.min_count,
        reading=reading,
        assumptions=assumed(contributions, len(reading.groups), relation, reading.stated.public_n),
        library_version=version("pymc-dirdp"),
    )


def _allocation(
    guarantee: Guarantee, found: Mapping[str, Table], sizes: _Sizes, reading: Reading, wanted: Options
) -> Callable[[Mapping[str, str]], _Mechanisms]:
    """The mechanisms that keep the guarantee together, as a function of their kinds by table."""
    budget = _weights(wanted.weights, found)
    known: dict[Hashable, TableMechanism] = {}

    def calibrated(kind: str, name: str, share: Guarantee) -> TableMechanism:
        prior, adds = found[name].prior, reading.contribution(name)
        # Features with as many categories have the same problem.
        problem = kind, share, prior.shape, prior.tobytes(), sizes[name], adds
        if problem not in known:
            if kind == "dirichlet":
                known[problem] = calibrate(
                    share,
                    prior=prior,
                    n_records=sizes[name],
                    adjacency=wanted.adjacency,
                    strategy=wanted.strategy,
                    objective=wanted.objective,
                    min_count=wanted.min_count,
                    contribution=adds,
                )
            else:
                known[problem] = noises()[kind].for_guarantee(
                    share, prior=prior, adjacency=wanted.adjacency, contribution=adds
                )
        return known[problem]

    def allocated(by_table: Mapping[str, str]) -> _Mechanisms:
        return allocate(
            guarantee,
            lambda name, share: calibrated(by_table[name], name, share),
            weights=budget,
            groups=reading.groups,
            draws=wanted.draws,
            once=[name for name, kind in by_table.items() if kind in noises()],
        )

    return allocated


def _choices(
    guarantee: Guarantee,
    found: Mapping[str, Table],
    sizes: _Sizes,
    reading: Reading,
    wanted: Options,
    allocated: Callable[[Mapping[str, str]], _Mechanisms],
) -> dict[str, Choice]:
    """The best mechanism for each table, at what the Dirichlet mechanism would lose for it."""
    try:
        dirichlet = allocated(dict.fromkeys(found, "dirichlet"))
        shares = {name: whole_share(made, guarantee, wanted.draws) for name, made in dirichlet.items()}
    except UnattainableError:
        # No Dirichlet draw keeps it: then geometric noise is the measure.
        dirichlet = {}
        other = allocated(dict.fromkeys(found, "geometric"))
        shares = {name: whole_share(made, guarantee, 1) for name, made in other.items()}
    if len(found) == 1:
        # One release serves all draws, so noise may lose what all draws together may.
        shares = dict.fromkeys(shares, guarantee)
    return {
        name: rank(
            dirichlet.get(name),
            shares.get(name),
            prior=table.prior,
            n_records=sizes[name],
            adjacency=wanted.adjacency,
            objective=wanted.objective,
            contribution=reading.contribution(name),
            n_simulated_cells=_CELLS // len(found),
        )
        for name, table in found.items()
    }


def _weights(weights: Mapping[str, float] | None, found: Iterable[str]) -> dict[str, float]:
    if not isinstance(weights, Mapping | None):
        raise ArgumentError(f"Expected weights to map names of tables to numbers, got a {type(weights).__name__}.")
    given = dict(weights or {})
    names = list(found)
    for name in given:
        one_of(names, **{"table in weights": name})
    return {name: positive(**{f"weights[{name!r}]": given.get(name, 1.0)}) for name in names}


def _sizes(
    reading: Reading, model: pm.Model, found: Mapping[str, Table], n_records: int | Mapping[str, int] | None
) -> dict[str, int | None]:
    """The number of records of each table: public ones as the model says, others as they are planned for."""
    if reading.sizes_are_public:
        if n_records is not None:
            raise ArgumentError(
                "n_records is for adjacency='add-remove' or max_records_per_person. Under replace-one the number of "
                "records is public and the model states it."
            )
        return {name: total_records(table, model) for name, table in found.items()}
    names = list(found)
    if not isinstance(n_records, Mapping):
        return dict.fromkeys(names, n_records)
    for name in n_records:
        one_of(names, **{"table in n_records": name})
    return {name: n_records.get(name) for name in names}
