"""From a model and a guarantee to mechanisms, by public numbers only: no observed value is read here."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from importlib.metadata import version
from typing import TypedDict

import pymc as pm

from pymc_dirdp.checks import at_least, integer, one_of, positive
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.models.names import check_names
from pymc_dirdp.models.observations import total_records
from pymc_dirdp.models.reading import Reading, read
from pymc_dirdp.models.stated import Unit, stated
from pymc_dirdp.models.tables import Table, root_model, tables
from pymc_dirdp.planning.allocation import allocate, whole_share
from pymc_dirdp.planning.calibration import OBJECTIVES, STRATEGIES, calibrate
from pymc_dirdp.planning.choosing import KINDS, Choice, noise, rank
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.planned import Plan, PlannedTable
from pymc_dirdp.releases.wording import assumed

__all__ = ["Planning", "plan"]

# How many counts are simulated in all to choose between mechanisms.
_CELLS = 200_000


class Planning(TypedDict, total=False):
    """The options of :func:`plan`, which :func:`pymc_dirdp.sample` takes too."""

    adjacency: str
    unit: Unit | None
    contribution: int | None
    public_n: Iterable[str]
    max_records_per_person: int | None
    strategy: str
    objective: str
    draws: int
    mechanism: str
    n_records: int | Mapping[str, int] | None
    min_count: float
    weights: Mapping[str, float] | None
    disjoint: Iterable[Iterable[str]] | None


def plan(
    guarantee: Guarantee,
    model: pm.Model | None = None,
    *,
    adjacency: str = "replace-one",
    strategy: str = "optimal",
    objective: str = "posterior",
    draws: int = 1,
    mechanism: str = "dirichlet",
    n_records: int | Mapping[str, int] | None = None,
    min_count: float = 0.0,
    unit: Unit | None = None,
    contribution: int | None = None,
    public_n: Iterable[str] = (),
    max_records_per_person: int | None = None,
    weights: Mapping[str, float] | None = None,
    disjoint: Iterable[Iterable[str]] | None = None,
) -> Plan:
    """Calibrate the mechanisms for a model before any observation is counted.

    Observed values are compared with each other and with numbers of trials, to refuse a model that would publish them
    or that leaves open whose records it holds. No number of a plan depends on them.

    Parameters
    ----------
    guarantee : RenyiDP, TruncatedCDP or ApproxDP
        What the whole release will promise.
    model : pymc.Model, optional
        The model on the context stack by default. It holds Dirichlet or Beta priors with conjugate likelihoods.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change. Under replace-one the total number of records is public.
    strategy : {"optimal", "temper", "inflate", "algorithm-1"}, default "optimal"
        Where the room for privacy comes from, see :func:`pymc_dirdp.calibrate`.
    objective : {"posterior", "estimate"}, default "posterior"
        What `"optimal"` keeps small, see :func:`pymc_dirdp.calibrate`.
    draws : int, default 1
        Number of posterior draws. They compose: more draws from the same data lose more.
    mechanism : {"dirichlet", "gaussian", "geometric", "auto", "continuous-gaussian", "laplace"}, default "dirichlet"
        `"dirichlet"` draws from a tempered and smoothed posterior. `"gaussian"` (discrete Gaussian) and `"geometric"`
        (discrete Laplace) add whole noise to the counts and draw from the posterior given the noisy counts, which are
        published too: one release serves any number of draws, and other guarantees than a Dirichlet draw has can be
        kept. `"auto"` takes, for each table, the one of these with the least a priori loss for `objective`; no data
        decides. `"continuous-gaussian"` and `"laplace"` are the papers' baselines, which `sampler="fast"` alone can
        draw.
    n_records : int or mapping of str to int, optional
        Planning size where the number of records is private: under add-remove, and with `max_records_per_person`. One
        for all tables, or by table. Refused elsewhere, because the model says it.
    min_count : float, default 0.0
        The public promise that every cell of every data set that could occur holds at least so many records.
    unit : str, int or tuple of these, optional
        Where the people are: a dim of the observed variables, or the number of an axis of theirs, whose entries are the
        people; a tuple for people in groups, as `("hospital", "person")`. What a person can change in each table
        follows from the other axes. Without it one record is one person, unless the model leaves that open: then it is
        asked for.
    contribution : int, optional
        In place of `unit`: how many records of each table a person holds at most, anywhere.
    public_n : iterable of str, default ()
        Observed variables whose number of trials anybody may know, although it comes from data or differs between
        people.
    max_records_per_person : int, optional
        With `unit`: how many records of each observed variable a person holds at most. How many, and the number of
        records, are private then, so sizes come from `n_records`. A person with more is an error of `sample`.
    weights : mapping of str to float, optional
        Relative budgets of the tables, by name; 1 for those that are not named. Budgets are shares of the Rényi
        divergence, at the order of the guarantee or, for ApproxDP, at one that suits it.
    disjoint : iterable of iterables of str, optional
        Groups of tables or observed variables that are fed by different people: nobody has records in two groups.
        Variables in no group may hold anybody's records. Without it, every person may have a record in every table.

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
    relation = adjacency_named(adjacency)
    one_of(KINDS, mechanism=mechanism)
    one_of(STRATEGIES, strategy=strategy)
    one_of(OBJECTIVES, objective=objective)
    draws = integer(1, draws=draws)
    min_count = at_least(0, min_count=min_count)
    said = stated(
        unit=unit,
        contribution=contribution,
        public_n=public_n,
        max_records_per_person=max_records_per_person,
        disjoint=disjoint,
    )
    model = root_model(model)
    found = {table.name: table for table in tables(model)}
    check_names(tuple(found.values()))
    reading = read(tuple(found.values()), model, said, relation)
    if reading.sizes_are_public:
        if n_records is not None:
            raise ArgumentError(
                "n_records is for adjacency='add-remove' or max_records_per_person. Under replace-one the number of "
                "records is public and the model states it."
            )
        sizes: dict[str, int | None] = {name: total_records(table, model) for name, table in found.items()}
    else:
        sizes = _planning_sizes(n_records, found)
    groups = reading.groups

    def calibrated(kind: str, name: str, share: Guarantee) -> DirichletMechanism | NoisyCounts:
        prior, adds = found[name].prior, reading.contribution(name)
        # Features with as many categories have the same problem.
        problem = kind, share, prior.shape, prior.tobytes(), sizes[name], adds
        if problem not in known:
            if kind == "dirichlet":
                known[problem] = calibrate(
                    share,
                    prior=prior,
                    n_records=sizes[name],
                    adjacency=relation.name,
                    strategy=strategy,
                    objective=objective,
                    min_count=min_count,
                    contribution=adds,
                )
            else:
                known[problem] = noise(kind, share, prior, relation.name, adds)
        return known[problem]

    known: dict[Hashable, DirichletMechanism | NoisyCounts] = {}
    budget = _weights(weights, found)

    def allocated(kinds: Mapping[str, str]) -> dict[str, DirichletMechanism | NoisyCounts]:
        return allocate(
            guarantee,
            lambda name, share: calibrated(kinds[name], name, share),
            weights=budget,
            groups=groups,
            draws=draws,
            once=[name for name, kind in kinds.items() if kind != "dirichlet"],
        )

    kinds = dict.fromkeys(found, mechanism)
    choices: dict[str, Choice] = {}
    if mechanism == "auto":
        choices = _choices(guarantee, found, sizes, relation.name, objective, draws, reading, allocated)
        kinds = {name: choice.best for name, choice in choices.items()}
    chosen = allocated(kinds)
    return Plan(
        guarantee=guarantee,
        parts=tuple(PlannedTable(table, chosen[name], sizes[name], choices.get(name)) for name, table in found.items()),
        groups=groups,
        strategy=strategy,
        objective=objective,
        draws=draws,
        adjacency=relation.name,
        min_count=min_count,
        reading=reading,
        assumptions=assumed(
            [adds for _, adds in reading.contributions], len(groups), relation, reading.stated.public_n
        ),
        library_version=version("pymc-dirdp"),
    )


def _choices(
    guarantee: Guarantee,
    found: Mapping[str, Table],
    sizes: Mapping[str, int | None],
    adjacency: str,
    objective: str,
    draws: int,
    reading: Reading,
    allocated: Callable[[Mapping[str, str]], dict[str, DirichletMechanism | NoisyCounts]],
) -> dict[str, Choice]:
    """The best mechanism for each table, at what the Dirichlet mechanism would lose for it."""
    try:
        dirichlet = allocated(dict.fromkeys(found, "dirichlet"))
        shares = {name: whole_share(made, guarantee, draws) for name, made in dirichlet.items()}
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
            adjacency=adjacency,
            objective=objective,
            contribution=reading.contribution(name),
            cells=_CELLS // len(found),
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


def _planning_sizes(n_records: int | Mapping[str, int] | None, found: Iterable[str]) -> dict[str, int | None]:
    names = list(found)
    if not isinstance(n_records, Mapping):
        return dict.fromkeys(names, n_records)
    for name in n_records:
        one_of(names, **{"table in n_records": name})
    return {name: n_records.get(name) for name in names}
