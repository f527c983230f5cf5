"""What accuracy costs in privacy, and what privacy costs in accuracy. No data is used."""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.checks import integer, one_of, positive, positive_array
from pymc_dirdp.display import Tabular
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.numerics.roots import safe_root
from pymc_dirdp.planning.calibration import OBJECTIVES, STRATEGIES, calibrate
from pymc_dirdp.planning.choosing import KINDS, NOISES, noise
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.guarantees import ApproxDP, Guarantee, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.utility.expected_kl import PriorExpectedKL
from pymc_dirdp.utility.simulated import losses, predicted_data

__all__ = ["Frontier", "expected_loss", "least_guarantee", "least_records", "privacy_utility"]

Array = NDArray[np.float64]

# Beyond it nothing is private.
_LARGEST_LOSS = 1e6
_LEAST_LOSS = 1e-9
_MOST_RECORDS = 2**40
# A priori losses of simulated noise are known to about a per cent; those of Dirichlet draws to nine digits.
_RTOL = 1e-6


def expected_loss(
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int,
    adjacency: str = "replace-one",
    mechanism: str = "dirichlet",
    strategy: str = "optimal",
    objective: str = "posterior",
) -> float:
    """The a priori loss at a guarantee, in nats.

    Parameters
    ----------
    guarantee : Guarantee
        For one table and one draw.
    prior : array_like, shape (..., d)
        The model's own prior, positive.
    n_records : int
        Number of records in all, at least 1.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
    mechanism : {"dirichlet", "gaussian", "geometric", "continuous-gaussian", "laplace", "auto"}, default "dirichlet"
        Which mechanism; `"auto"` is the least of all.
    strategy : str, default "optimal"
        Of the Dirichlet mechanism, see :func:`pymc_dirdp.calibrate`.
    objective : {"posterior", "estimate"}, default "posterior"
        Divergence of the private posterior from the posterior, summed over rows, or of one draw from the frequencies,
        averaged over rows.

    Returns
    -------
    loss : float
        `inf` if the mechanism cannot keep the guarantee.

    References
    ----------
    Theory, section 8.
    """
    return _loss_function(prior, n_records, adjacency, mechanism, strategy, objective)(guarantee)


def least_guarantee(
    kl: float,
    like: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int,
    adjacency: str = "replace-one",
    mechanism: str = "dirichlet",
    strategy: str = "optimal",
    objective: str = "posterior",
) -> Guarantee:
    """The tightest guarantee at which the expected loss is at most `kl`.

    Parameters
    ----------
    kl : float
        Target in nats, positive.
    like : Guarantee
        Says the kind of guarantee and what stays as it is: delta, the order, or omega. Its epsilon or rho is replaced.
    prior, n_records, adjacency, mechanism, strategy, objective
        As for :func:`expected_loss`.

    Returns
    -------
    guarantee : Guarantee
        Of the kind of `like`, with the least epsilon or rho, within 1e-5 relative.

    Raises
    ------
    UnattainableError
        If no guarantee reaches the target.

    Examples
    --------
    >>> least_guarantee(0.01, ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1, 1, 1], n_records=592, objective="estimate")
    ApproxDP(epsilon=1.25..., delta=1e-06)
    """
    kl, name = positive(kl=kl), _varied(like)
    loss = _loss_function(prior, n_records, adjacency, mechanism, strategy, objective)

    def excess(amount: float) -> float:
        found = loss(_with(like, amount))
        return math.log(found / kl) if found > 0 else -math.inf

    safe = unsafe = 1.0
    while excess(safe) > 0:
        unsafe, safe = safe, 2 * safe
        if safe > _LARGEST_LOSS:
            raise UnattainableError(
                f"An expected loss of {kl:g} nats is out of reach with mechanism={mechanism!r} and "
                f"n_records={n_records}, whatever {name} is. Raise kl or n_records, or take another mechanism or "
                "objective."
            )
    while excess(unsafe) <= 0:
        safe, unsafe = unsafe, unsafe / 2
        if unsafe < _LEAST_LOSS:
            raise UnattainableError(f"A loss of {kl:g} nats needs next to no information: every {name} reaches it.")
    return _with(like, safe_root(excess, safe=safe, unsafe=unsafe, rtol=_RTOL))


def least_records(
    kl: float,
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    adjacency: str = "replace-one",
    mechanism: str = "dirichlet",
    strategy: str = "optimal",
    objective: str = "posterior",
) -> int:
    """How many records it takes until the expected loss at a guarantee is at most `kl`.

    Parameters
    ----------
    kl : float
        Target in nats, positive.
    guarantee : Guarantee
        For one table and one draw.
    prior, adjacency, mechanism, strategy, objective
        As for :func:`expected_loss`.

    Returns
    -------
    n_records : int
        Found by doubling and bisection, within 1 per cent: rows of a table are assumed to hold an equal share.

    Raises
    ------
    UnattainableError
        If no number of records up to 2**40 reaches the target.
    """
    kl, rows = positive(kl=kl), math.prod(positive_array(prior=prior).shape[:-1])

    def loss(n: int) -> float:
        return _loss_function(prior, n, adjacency, mechanism, strategy, objective)(guarantee)

    def reached(n: int) -> bool:
        return loss(n) <= kl

    high = rows
    # Whether a guarantee can be kept at all does not depend on the number of records.
    kept = math.isfinite(loss(high))
    while not reached(high):
        high *= 2
        if high > _MOST_RECORDS or not kept:
            raise UnattainableError(
                f"An expected loss of {kl:g} nats is out of reach at {guarantee} with mechanism={mechanism!r}, for any "
                "number of records. Raise kl or loosen the guarantee."
            )
    low = high // 2
    while high - low > max(rows, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


@final
@dataclass(frozen=True)
class Frontier(Tabular):
    """Expected losses of several mechanisms over a grid of guarantees.

    `print` it, let a notebook show it, or take `frame()`.

    Attributes
    ----------
    guarantees : tuple of Guarantee
    losses : dict of str to tuple of float
        For each mechanism the loss at each guarantee, in nats; `inf` where it cannot keep it.
    objective : str
    n_records : int
    """

    guarantees: tuple[Guarantee, ...]
    losses: dict[str, tuple[float, ...]]
    objective: str
    n_records: int

    @property
    def amounts(self) -> tuple[float, ...]:
        """The epsilon or rho of each guarantee."""
        return tuple(float(getattr(guarantee, _varied(guarantee))) for guarantee in self.guarantees)

    @override
    def _told(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        columns = {"guarantee": map(str, self.guarantees)} | self.losses
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return [f"expected KL of the {self.objective}, {self.n_records} records; a priori"], rows, []


def privacy_utility(
    guarantees: Iterable[Guarantee],
    *,
    prior: ArrayLike,
    n_records: int,
    adjacency: str = "replace-one",
    mechanisms: Iterable[str] = ("dirichlet", "gaussian", "laplace", "geometric"),
    strategy: str = "optimal",
    objective: str = "posterior",
) -> Frontier:
    """Expected losses over a grid of guarantees: the price list, before anything is bought.

    Parameters
    ----------
    guarantees : iterable of Guarantee
        At least one; of one kind if they are to be plotted.
    mechanisms : iterable of str
        Names as for :func:`expected_loss`.
    prior, n_records, adjacency, strategy, objective
        As for :func:`expected_loss`.

    Returns
    -------
    frontier : Frontier
        Public.
    """
    grid = tuple(guarantees)
    if not grid:
        raise ArgumentError("Expected at least one guarantee.")
    columns = {}
    for mechanism in mechanisms:
        loss = _loss_function(prior, n_records, adjacency, mechanism, strategy, objective)
        columns[mechanism] = tuple(loss(guarantee) for guarantee in grid)
    return Frontier(grid, columns, objective, int(n_records))


def _varied(guarantee: Guarantee) -> str:
    match guarantee:
        case ApproxDP() | RenyiDP() | PureDP():
            return "epsilon"
        case TruncatedCDP() | ZeroCDP():
            return "rho"
    raise ArgumentError(f"Expected a guarantee such as ApproxDP(epsilon=1, delta=1e-6), got {type(guarantee)}.")


def _with(like: Guarantee, amount: float) -> Guarantee:
    """The same promise with another epsilon or rho."""
    facts: dict[str, Any] = asdict(like) | {_varied(like): amount}
    return type(like)(**facts)


def _loss_function(
    prior: ArrayLike, n_records: int, adjacency: str, mechanism: str, strategy: str, objective: str
) -> Callable[[Guarantee], float]:
    """The a priori loss as a function of the guarantee; `inf` where it cannot be kept."""
    parameters, n_records = positive_array(prior=prior), integer(1, n_records=n_records)
    relation = adjacency_named(adjacency).name
    one_of(KINDS, mechanism=mechanism)
    one_of(STRATEGIES, strategy=strategy)
    one_of(OBJECTIVES, objective=objective)
    expected = PriorExpectedKL(parameters, n_records)
    # The same data sets at every guarantee, so that a curve is smooth.
    data = None if mechanism == "dirichlet" else predicted_data(parameters, n_records)

    def of_dirichlet(guarantee: Guarantee) -> float:
        made = calibrate(
            guarantee, prior=parameters, n_records=n_records, adjacency=relation, strategy=strategy, objective=objective
        )
        keep = 0.0 if strategy == "algorithm-1" else 1.0
        s = float((made.alpha - keep * parameters).flat[0])
        return float(getattr(expected, objective)(made.r, s, keep=keep))

    def of(kind: str, guarantee: Guarantee) -> float:
        try:
            if kind == "dirichlet":
                return of_dirichlet(guarantee)
            made: Mechanism = noise(kind, guarantee, parameters, relation, 1)
        except UnattainableError:
            return math.inf
        return float(getattr(losses(made, parameters, data), objective))  # type: ignore[arg-type]

    kinds = ("dirichlet", *NOISES) if mechanism == "auto" else (mechanism,)
    return lambda guarantee: min(of(kind, guarantee) for kind in kinds)
