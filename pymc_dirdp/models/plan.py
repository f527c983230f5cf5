"""From a model and a guarantee to mechanisms, by public numbers only: no observed value is read here."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version

import pymc as pm

from pymc_dirdp.adjacency import adjacency_named
from pymc_dirdp.allocation import allocate, composed, whole_share
from pymc_dirdp.calibration import OBJECTIVES, STRATEGIES, calibrate
from pymc_dirdp.checks import at_least, integer, one_of, positive
from pymc_dirdp.choosing import KINDS, Choice, noise, rank
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.guarantees import Guarantee
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.models.groups import people
from pymc_dirdp.models.names import check_names
from pymc_dirdp.models.observations import total_records
from pymc_dirdp.models.tables import Table, root_model, tables
from pymc_dirdp.privacy.curves import PrivacyCurves

__all__ = ["Plan", "PlannedTable", "plan"]

# How many counts are simulated in all to choose between mechanisms.
_CELLS = 200_000


@dataclass(frozen=True)
class PlannedTable:
    """One table of a plan.

    Attributes
    ----------
    table : Table
        Its public facts.
    mechanism : DirichletMechanism or NoisyCounts
        How it is released.
    n_records : int or None
        The public number of records under replace-one; the planning size under add-remove, if one was given.
    choice : Choice or None
        Under `mechanism="auto"`: the a priori losses by which the mechanism was chosen.
    """

    table: Table
    mechanism: DirichletMechanism | NoisyCounts
    n_records: int | None
    choice: Choice | None = None


@dataclass(frozen=True)
class Plan:
    """What will be done with the data, before any of them is read. Public, and safe to pickle or print.

    Attributes
    ----------
    guarantee : RenyiDP, TruncatedCDP or ApproxDP
        For the whole release, all tables and draws together.
    parts : tuple of PlannedTable
        The tables that are released, in the model's order.
    groups : tuple of tuple of str
        Names of tables that one person's records may feed together. One group, unless the user stated `disjoint`.
    strategy, objective : str
        How the mechanisms were chosen, see :func:`pymc_dirdp.calibrate`.
    draws : int
        How many draws the guarantee covers.
    adjacency : str
        What one person can change.
    min_count : float
        What every cell is promised to hold.
    contribution : int
        How many records of a table one person may hold.
    library_version : str
        Of pymc_dirdp.
    """

    guarantee: Guarantee
    parts: tuple[PlannedTable, ...]
    groups: tuple[tuple[str, ...], ...]
    strategy: str
    objective: str
    draws: int
    adjacency: str
    min_count: float
    contribution: int
    library_version: str

    @property
    def composition(self) -> PrivacyCurves:
        """The privacy curves of the whole release."""
        return composed({part.table.name: part.mechanism for part in self.parts}, self.groups, self.draws)


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
    contribution: int = 1,
    weights: Mapping[str, float] | None = None,
    disjoint: Iterable[Iterable[str]] | None = None,
) -> Plan:
    """Calibrate the mechanisms for a model without reading an observation.

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
    mechanism : {"dirichlet", "gaussian", "laplace", "geometric", "auto"}, default "dirichlet"
        `"dirichlet"` draws from a tempered and smoothed posterior. The others add noise to the counts and draw from the
        posterior given the noisy counts, which are published too: one release serves any number of draws, and other
        guarantees than a Dirichlet draw has can be kept. `"auto"` takes, for each table, the one with the least a
        priori loss for `objective`; no data decides. The counts of a table with noise are proved for one record of
        each person.
    n_records : int or mapping of str to int, optional
        Planning size under add-remove, where the number of records is private; one for all tables, or by table. Refused
        under replace-one, where the model says it.
    min_count : float, default 0.0
        The public promise that every cell of every data set that could occur holds at least so many records.
    contribution : int, default 1
        How many records of a table one person may hold at most. A variable with two likelihoods needs 2 or more, unless
        `disjoint` says that different people feed them.
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
    Theory, section 2 for the rows of a table, section 6 for `contribution`, section 7 for several tables and draws.
    """
    if not isinstance(guarantee, Guarantee):
        raise ArgumentError(
            f"Expected a guarantee such as ApproxDP(epsilon=1, delta=1e-6), got a {type(guarantee).__name__}."
        )
    relation = adjacency_named(adjacency)
    one_of(KINDS, mechanism=mechanism)
    one_of(STRATEGIES, strategy=strategy)
    one_of(OBJECTIVES, objective=objective)
    draws = integer(1, draws=draws)
    min_count = at_least(0, min_count=min_count)
    contribution = integer(1, contribution=contribution)
    model = root_model(model)
    found = {table.name: table for table in tables(model)}
    check_names(found.values())
    if relation.records_are_public:
        if n_records is not None:
            raise ArgumentError(
                "n_records is for adjacency='add-remove'. Under replace-one the number of records is public and the "
                "model states it."
            )
        sizes: dict[str, int | None] = {name: total_records(table, model) for name, table in found.items()}
    else:
        sizes = _planning_sizes(n_records, found)
    groups = people(tuple(found.values()), disjoint, contribution)

    def calibrated(kind: str, name: str, share: Guarantee) -> DirichletMechanism | NoisyCounts:
        prior = found[name].prior
        # Features with as many categories have the same problem.
        problem = kind, share, prior.shape, prior.tobytes(), sizes[name]
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
                    contribution=contribution,
                )
            else:
                known[problem] = noise(kind, share, prior, relation.name, contribution)
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
        choices = _choices(guarantee, found, sizes, relation.name, objective, draws, contribution, allocated)
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
        contribution=contribution,
        library_version=version("pymc-dirdp"),
    )


def _choices(
    guarantee: Guarantee,
    found: Mapping[str, Table],
    sizes: Mapping[str, int | None],
    adjacency: str,
    objective: str,
    draws: int,
    contribution: int,
    allocated: Callable[[Mapping[str, str]], dict[str, DirichletMechanism | NoisyCounts]],
) -> dict[str, Choice]:
    """The best mechanism for each table, at what the Dirichlet mechanism would lose for it."""
    if contribution > 1:
        # Noise is not proved there, so there is nothing to choose from.
        dirichlet = allocated(dict.fromkeys(found, "dirichlet"))
        shares: dict[str, Guarantee] = {}
    else:
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
