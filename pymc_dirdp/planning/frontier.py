"""What accuracy costs in privacy, and what privacy costs in accuracy. No data are used."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Unpack, final, override

from numpy.typing import ArrayLike

from pymc_dirdp.checks import integer, positive, positive_array
from pymc_dirdp.display import Tabular
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.known import noises
from pymc_dirdp.numerics.roots import last_safe
from pymc_dirdp.planning.choosing import of_kind
from pymc_dirdp.planning.options import MechanismOptions, MechanismPlanning
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.utility.simulated import a_priori_kl

__all__ = ["Frontier", "expected_error", "least_guarantee", "least_records", "privacy_utility"]

# A guarantee with a larger budget is not private.
_LEAST_BUDGET, _LARGEST_BUDGET = 1e-9, 1e6
_MOST_RECORDS = 2**40
# The expected error of simulated noise is known to about a per cent, that of Dirichlet draws to nine digits.
_RTOL = 1e-6


def expected_error(
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int,
    **options: Unpack[MechanismPlanning],
) -> float:
    """The expected error at a guarantee, in nats, before any data are seen.

    Parameters
    ----------
    guarantee : Guarantee
        What one table and one draw have to keep.
    prior : array_like, shape (..., d)
        The model's own prior, positive.
    n_records : int
        Number of records in all, at least 1.
    **options
        `adjacency`, `mechanism`, `strategy` and `objective`, see
        :class:`pymc_dirdp.planning.options.MechanismOptions`. `mechanism="auto"` is the least of all, which is not
        always what a plan with it takes: a plan looks at estimates. Noisy counts are read as data here, clipped and
        smoothed, as the papers read them. The objective
        `"posterior"` is the divergence of the private posterior from the posterior, summed over rows, `"estimate"` that
        of one draw from the frequencies, averaged over rows.

    Returns
    -------
    error : float
        `inf` if the mechanism cannot keep the guarantee.

    References
    ----------
    Theory, section 8.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> guarantee = ApproxDP(epsilon=1.0, delta=1e-6)
    >>> round(expected_error(guarantee, prior=[1, 1, 1, 1], n_records=592, objective="estimate"), 4)
    0.0129
    """
    return _expected_kl(prior, n_records, MechanismOptions(**options))(guarantee)


def least_guarantee(
    kl: float,
    like: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int,
    **options: Unpack[MechanismPlanning],
) -> Guarantee:
    """The tightest guarantee at which the expected error is at most `kl`.

    Parameters
    ----------
    kl : float
        Target in nats, positive.
    like : Guarantee
        Says the kind of guarantee and what stays as it is: delta, the order, or omega. Its epsilon or rho is replaced.
    prior, n_records, **options
        As for :func:`expected_error`.

    Returns
    -------
    guarantee : Guarantee
        The kind is that of `like`, with the least epsilon or rho, within 1e-5 relative.

    Raises
    ------
    UnattainableError
        If no guarantee reaches the target.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> least_guarantee(0.01, ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1, 1, 1], n_records=592, objective="estimate")
    ApproxDP(epsilon=1.25..., delta=1e-06)
    """
    kl, name = positive(kl=kl), Guarantee.checked(guarantee=like).budget_name
    chosen = MechanismOptions(**options)
    error = _expected_kl(prior, n_records, chosen)

    def excess(amount: float) -> float:
        reached = error(like.with_budget(amount))
        return math.log(reached / kl) if reached > 0 else -math.inf

    amount = last_safe(
        excess,
        factor=0.5,
        least=_LEAST_BUDGET,
        most=_LARGEST_BUDGET,
        rtol=_RTOL,
        tight=f"An expected KL of {kl:g} nats is out of reach with mechanism={chosen.mechanism!r} and "
        f"n_records={n_records}, whatever {name} is. Raise kl or n_records, or take another mechanism or objective.",
        loose=f"An expected KL of {kl:g} nats needs next to no information: every {name} reaches it.",
    )
    return like.with_budget(amount)


def least_records(
    kl: float,
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    **options: Unpack[MechanismPlanning],
) -> int:
    """How many records it takes until the expected error at a guarantee is at most `kl`.

    Parameters
    ----------
    kl : float
        Target in nats, positive.
    guarantee : Guarantee
        What one table and one draw have to keep.
    prior, **options
        As for :func:`expected_error`.

    Returns
    -------
    n_records : int
        Found by doubling and bisection, within 1 per cent: rows of a table are assumed to hold an equal share.

    Raises
    ------
    UnattainableError
        If no number of records up to 2**40 reaches the target.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> least_records(0.02, ApproxDP(epsilon=1.0, delta=1e-6), prior=[1, 1, 1, 1], objective="estimate")
    408
    """
    kl, rows = positive(kl=kl), math.prod(positive_array(prior=prior).shape[:-1])
    chosen = MechanismOptions(**options)

    def error(n: int) -> float:
        return _expected_kl(prior, n, chosen)(guarantee)

    high = rows
    while (reached := error(high)) > kl:
        high *= 2
        # Whether a guarantee can be kept at all does not depend on the number of records.
        if high > _MOST_RECORDS or math.isinf(reached):
            raise UnattainableError(
                f"An expected KL of {kl:g} nats is out of reach at {guarantee} with "
                f"mechanism={chosen.mechanism!r}, for any number of records. Raise kl or loosen the guarantee."
            )
    low = high // 2
    while high - low > max(rows, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= kl else (middle, high)
    return high


@final
@dataclass(frozen=True)
class Frontier(Tabular):
    """Expected errors of several mechanisms over a grid of guarantees.

    `print` it, let a notebook show it, or take `frame()`.

    Attributes
    ----------
    guarantees : tuple of Guarantee
    expected_kl : dict of str to tuple of float
        For each mechanism the expected error at each guarantee, in nats; `inf` where it cannot keep it.
    objective : str
    n_records : int

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP, privacy_utility
    >>> grid = [ApproxDP(epsilon=e, delta=1e-6) for e in (0.5, 1.0)]
    >>> found = privacy_utility(grid, prior=[1, 1], n_records=100, mechanisms=["dirichlet"])
    >>> found.frame().shape
    (2, 1)
    """

    guarantees: tuple[Guarantee, ...]
    expected_kl: dict[str, tuple[float, ...]]
    objective: str
    n_records: int

    @property
    def amounts(self) -> tuple[float, ...]:
        """The epsilon or rho of each guarantee."""
        return tuple(guarantee.budget for guarantee in self.guarantees)

    @override
    def _told(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        columns = {"guarantee": map(str, self.guarantees)} | self.expected_kl
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return [f"expected KL of the {self.objective}, {self.n_records} records; a priori"], rows, []


def privacy_utility(
    guarantees: Iterable[Guarantee],
    *,
    prior: ArrayLike,
    n_records: int,
    mechanisms: Iterable[str] = ("dirichlet", "gaussian", "laplace", "geometric"),
    **options: Unpack[MechanismPlanning],
) -> Frontier:
    """Expected errors of several mechanisms over a grid of guarantees.

    Parameters
    ----------
    guarantees : iterable of Guarantee
        At least one; of one kind if they are to be plotted.
    mechanisms : iterable of str
        Names as for :func:`expected_error`.
    prior, n_records, **options
        As for :func:`expected_error`, without `mechanism`.

    Returns
    -------
    frontier : Frontier
        Public.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> grid = [ApproxDP(epsilon=e, delta=1e-6) for e in (0.5, 1.0)]
    >>> found = privacy_utility(grid, prior=[1, 1, 1, 1], n_records=592, mechanisms=["dirichlet"], objective="estimate")
    >>> [round(kl, 4) for kl in found.expected_kl["dirichlet"]]
    [0.0269, 0.0129]
    """
    grid = tuple(guarantees)
    if not grid:
        raise ArgumentError("Expected at least one guarantee.")
    if "mechanism" in options:
        raise ArgumentError("Expected mechanisms=, a sequence of names, in place of mechanism=.")
    chosen = MechanismOptions(**options)
    columns = {}
    for mechanism in mechanisms:
        error = _expected_kl(prior, n_records, replace(chosen, mechanism=mechanism))
        columns[mechanism] = tuple(map(error, grid))
    return Frontier(grid, columns, chosen.objective, int(n_records))


def _expected_kl(prior: ArrayLike, n_records: int, chosen: MechanismOptions) -> Callable[[Guarantee], float]:
    """The expected error as a function of the guarantee; `inf` where it cannot be kept."""
    parameters, n_records = positive_array(prior=prior), integer(1, n_records=n_records)

    def of(kind: str, guarantee: Guarantee) -> float:
        try:
            options = {key: getattr(chosen, key) for key in ("adjacency", "strategy", "objective")}
            options["public_totals"] = adjacency_named(chosen.adjacency).records_are_public
            mechanism = of_kind(kind, guarantee, prior=parameters, n_records=n_records, **options)
        except UnattainableError:
            return math.inf
        found = float(getattr(a_priori_kl(mechanism, parameters, n_records), chosen.objective))
        if math.isnan(found):
            raise ArgumentError(
                f"Of mechanism={kind!r} the divergence of posteriors is not known. Ask for objective='estimate'."
            )
        return found

    tried = ("dirichlet", *noises(exact=True)) if chosen.mechanism == "auto" else (chosen.mechanism,)
    return lambda guarantee: min(of(kind, guarantee) for kind in tried)
