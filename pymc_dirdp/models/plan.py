"""From a model and a guarantee to a mechanism, by public numbers only: no observed value is read here."""

from dataclasses import dataclass
from importlib.metadata import version

import pymc as pm

from pymc_dirdp.adjacency import adjacency_named
from pymc_dirdp.calibration import OBJECTIVES, STRATEGIES, calibrate
from pymc_dirdp.checks import at_least, integer, one_of
from pymc_dirdp.composition import Composition
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.guarantees import ApproxDP, Guarantee, RenyiDP, TruncatedCDP
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.models.observations import total_records
from pymc_dirdp.models.tables import Table, root_model, tables

__all__ = ["Plan", "plan"]


@dataclass(frozen=True)
class Plan:
    """What will be done with the data, before any of them is read. Public, and safe to pickle or print.

    Attributes
    ----------
    guarantee : RenyiDP, TruncatedCDP or ApproxDP
        For the whole release, all draws together.
    table : Table
        The public facts of the table that is released.
    mechanism : DirichletMechanism
        How each draw is made.
    strategy, objective : str
        How the mechanism was chosen, see :func:`pymc_dirdp.calibrate`.
    draws : int
        How many draws the guarantee covers.
    n_records : int or None
        The public number of records under replace-one; the planning size under add-remove, if one was given.
    library_version : str
        Of pymc_dirdp.
    """

    guarantee: Guarantee
    table: Table
    mechanism: DirichletMechanism
    strategy: str
    objective: str
    draws: int
    n_records: int | None
    library_version: str

    @property
    def composition(self) -> Composition:
        """The privacy curves of the whole release."""
        return Composition(((self.mechanism, self.draws),))


def plan(
    guarantee: Guarantee,
    model: pm.Model | None = None,
    *,
    adjacency: str = "replace-one",
    strategy: str = "optimal",
    objective: str = "posterior",
    draws: int = 1,
    mechanism: str = "dirichlet",
    n_records: int | None = None,
    min_count: float = 0.0,
) -> Plan:
    """Calibrate the mechanism for a model without reading an observation.

    Parameters
    ----------
    guarantee : RenyiDP, TruncatedCDP or ApproxDP
        What the whole release will promise.
    model : pymc.Model, optional
        The model on the context stack by default. It holds one Dirichlet or Beta prior with a conjugate likelihood.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change. Under replace-one the total number of records is public.
    strategy : {"optimal", "temper", "inflate", "algorithm-1"}, default "optimal"
        Where the room for privacy comes from, see :func:`pymc_dirdp.calibrate`.
    objective : {"posterior", "estimate"}, default "posterior"
        What `"optimal"` keeps small, see :func:`pymc_dirdp.calibrate`.
    draws : int, default 1
        Number of posterior draws. They compose, so each gets the `draws`-th part of the divergence; for RenyiDP and
        TruncatedCDP only.
    mechanism : {"dirichlet"}, default "dirichlet"
        Which mechanism.
    n_records : int, optional
        Planning size under add-remove, where the number of records is private. Refused under replace-one, where the
        model says it.
    min_count : float, default 0.0
        The public promise that every cell of every data set that could occur holds at least so many records.

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
    """
    relation = adjacency_named(adjacency)
    one_of(("dirichlet",), mechanism=mechanism)
    one_of(STRATEGIES, strategy=strategy)
    one_of(OBJECTIVES, objective=objective)
    draws = integer(1, draws=draws)
    at_least(0, min_count=min_count)
    model = root_model(model)
    table = _only_table(tables(model))
    if relation.records_are_public:
        if n_records is not None:
            raise ArgumentError(
                "n_records is for adjacency='add-remove'. Under replace-one the number of records is public and the "
                "model states it."
            )
        n_records = total_records(table, model)
    chosen = calibrate(
        _share(guarantee, draws),
        prior=table.prior,
        n_records=n_records,
        adjacency=relation.name,
        strategy=strategy,
        objective=objective,
        min_count=min_count,
    )
    return Plan(
        guarantee=guarantee,
        table=table,
        mechanism=chosen,
        strategy=strategy,
        objective=objective,
        draws=draws,
        n_records=n_records,
        library_version=version("pymc-dirdp"),
    )


def _only_table(found: tuple[Table, ...]) -> Table:
    if len(found) > 1:
        names = ", ".join(repr(table.name) for table in found)
        raise UnsupportedModelError(
            f"The model holds {len(found)} tables: {names}. One release has one table for now, because records that "
            "feed several tables lose privacy in each. Write one model for each table, and add up their guarantees."
        )
    return found[0]


def _share(guarantee: Guarantee, draws: int) -> Guarantee:
    """What one draw may lose. Rényi divergences add at equal order, so the shares do too (Theory, section 7)."""
    if draws == 1:
        return guarantee
    # One unit in the last place below the share: `draws` times the share, rounded, must not exceed the whole.
    down = (1 - 2**-52) / draws
    match guarantee:
        case RenyiDP(order=order, epsilon=epsilon):
            return RenyiDP(order=order, epsilon=epsilon * down)
        case TruncatedCDP(rho=rho, omega=omega):
            return TruncatedCDP(rho=rho * down, omega=omega)
        case ApproxDP():
            raise ArgumentError(
                f"draws={draws} is accounted for under RenyiDP and TruncatedCDP only: several draws under ApproxDP "
                "need their composed privacy loss distribution. State a RenyiDP target, and read the (epsilon, delta) "
                "that it implies in the report."
            )
    return guarantee
