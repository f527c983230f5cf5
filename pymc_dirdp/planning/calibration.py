"""Calibration of the Dirichlet mechanism for a guarantee, on the safe side of every root."""

import math
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, integer, one_of, positive_array
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.numerics.roots import largest_safe, log_excess
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.unit import LEAST_PARAMETER, MOST_PARAMETER, is_binary_row, personal_cells
from pymc_dirdp.published.privacy import p1_theorem_1_concentration
from pymc_dirdp.utility.expected_kl import PriorExpectedKL

__all__ = ["OBJECTIVES", "STRATEGIES", "calibrate", "untouched"]

STRATEGIES = ("optimal", "temper", "inflate", "algorithm-1")
OBJECTIVES = ("posterior", "estimate")

# If more is added, doubles no longer resolve what one record changes.
_MOST_ADDED = 1e12


def calibrate(
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int | None = None,
    adjacency: str = "replace-one",
    strategy: str = "optimal",
    objective: str = "posterior",
    min_count: float = 0.0,
    contribution: Contribution | int = 1,
    public_totals: bool = False,
) -> DirichletMechanism:
    """The Dirichlet mechanism that keeps `guarantee` and wastes nothing of it.

    Parameters
    ----------
    guarantee : RenyiDP, TruncatedCDP or ApproxDP
        The target. `PureDP`, `ZeroCDP` and `omega=inf` cannot be reached by any Dirichlet mechanism.
    prior : array_like, shape (..., d)
        The model's own prior, positive.
    n_records : int, optional
        Number of records in all, which the strategy `"optimal"` plans for: the public N under replace-one, your guess
        under add-remove. It changes the guarantee only with `public_totals`.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change.
    strategy : {"optimal", "temper", "inflate", "algorithm-1"}, default "optimal"
        Where the room for privacy comes from.

        * `"optimal"`: the pair of `r` and `alpha = prior + s`, `s >= 0`, on the boundary of the guarantee with the
          least a priori expected Kullback-Leibler divergence, see `objective`.
        * `"temper"`: `alpha = prior` and the largest `r`. It is above 1 where the guarantee has room for a draw that is
          more concentrated than the posterior.
        * `"inflate"`: `r = 1` and the least `s` (P2 section 4.1).
        * `"algorithm-1"`: P1 Algorithm 1 with its own bound, for `RenyiDP` only. It ignores the prior:
          `alpha = 1 + 4 (order - 1) r` in every cell.
    objective : {"posterior", "estimate"}, default "posterior"
        What `"optimal"` keeps small: `"posterior"` the divergence of the private posterior from the posterior, with
        `r <= 1`, so that a loose guarantee gives back the posterior unchanged; `"estimate"` the divergence of the draw
        from the data's frequencies (P1's measure).
    min_count : float, default 0.0
        The public promise that every cell of every data set that could occur holds at least so many records.
    contribution : Contribution or int, default 1
        What one person can add to the table. A whole number means so many records at most, anywhere in the table.
    public_totals : bool, default False
        Whether `n_records` is the public number of records of every data set that could occur. A table with one row of
        two categories loses less then, under replace-one (Theory, Theorem 14); nothing else changes.

    Returns
    -------
    mechanism : DirichletMechanism
        `mechanism.satisfies(guarantee)` is True. Where there is a boundary, `r` is within 1e-9 relative of it.

    Raises
    ------
    UnattainableError
        If no setting reaches the guarantee; the message says what can be reached.
    ArgumentError
        If an argument is outside its domain, or `"optimal"` lacks `n_records`.

    References
    ----------
    Theory, section 2 to 5 and 8, P1 Algorithm 1, P2 section 4.1.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> mechanism = calibrate(ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1, 1, 1], n_records=592)
    >>> mechanism.satisfies(ApproxDP(epsilon=1, delta=1e-6))
    True
    """
    parameters = positive_array(prior=prior)
    shared: dict[str, Any] = {
        "adjacency": adjacency_named(adjacency).name,
        "min_count": at_least(0, min_count=min_count),
        "contribution": Contribution.of(contribution).fitted(parameters.shape),
    }
    one_of(STRATEGIES, strategy=strategy)
    one_of(OBJECTIVES, objective=objective)
    _refuse_unattainable(guarantee)
    if strategy == "algorithm-1":
        return _algorithm_1(guarantee, parameters.shape, **shared)
    # Without a record nothing can be told apart, and there is nothing to calibrate by.
    if (
        public_totals
        and n_records
        and adjacency_named(adjacency).records_are_public
        and is_binary_row(parameters.shape)
    ):
        shared["n_records"] = n_records
    boundary = _Boundary(guarantee, parameters, **shared)
    if strategy == "temper":
        r, s = boundary.largest_r(0.0), 0.0
    elif strategy == "inflate":
        r, s = 1.0, boundary.least_s(1.0)
    else:
        search = _optimal_of_blocks if boundary.composed else _optimal
        r, s = search(boundary, _expected_kl(parameters, n_records, objective), cap_r=objective == "posterior")
    mechanism = DirichletMechanism(parameters + s, r, **shared)
    if not mechanism.satisfies(guarantee):
        # Several records of a person lose a little more when they are spread.
        boundary.spread = True
        if strategy == "inflate":
            s = boundary.least_s(1.0, near=max(s, 1e-6))
        else:
            r = boundary.largest_r(s, near=r)
        mechanism = DirichletMechanism(parameters + s, r, **shared)
    return _verified(mechanism, guarantee)


def untouched(prior: Array, *, adjacency: str, min_count: float, contribution: Contribution) -> DirichletMechanism:
    """The model's own posterior as it is, for a table of one category, of which it says nothing: shape `(..., 1)`."""
    return DirichletMechanism(prior, 1.0, adjacency=adjacency, min_count=min_count, contribution=contribution)


def _refuse_unattainable(guarantee: Guarantee) -> None:
    way_out = (
        "Ask for ApproxDP(epsilon, delta), RenyiDP(order, epsilon) or TruncatedCDP(rho, omega) with a finite omega."
    )
    if Guarantee.checked(guarantee=guarantee).is_pure:
        raise UnattainableError(
            "No Dirichlet mechanism keeps pure differential privacy: the density of its output vanishes where a "
            f"category that one record can change is near 0, so the loss is unbounded (P1 Proposition 3). {way_out}"
        )
    if math.isinf(guarantee.largest_order):
        raise UnattainableError(
            "No Dirichlet mechanism bounds the Rényi divergence at every order: it is infinite from order "
            f"1 + alpha / r on, so omega must be finite (P2, after Theorem 1). {way_out} Or take mechanism='floored', "
            "whose draws keep it."
        )


def _verified(mechanism: DirichletMechanism, guarantee: Guarantee) -> DirichletMechanism:
    if not mechanism.satisfies(guarantee):
        raise UnattainableError(
            f"Calibration for {guarantee} ended on the wrong side of its boundary, so there is no result. "
            "Please report the guarantee, the prior and the strategy."
        )
    return mechanism


def _expected_kl(prior: Array, n_records: int | None, objective: str) -> Callable[[float, float], float]:
    if n_records is None:
        raise ArgumentError(
            "strategy='optimal' plans for a number of records: pass n_records= (your guess, if the number is private), "
            "or use strategy='temper' or 'inflate', which need none."
        )
    expected = PriorExpectedKL(prior, integer(0, n_records=n_records))
    if objective == "posterior":
        return expected.posterior
    expected.estimate(1.0)  # Without records this raises an error, and it has to do so before the search.
    return expected.estimate


class _Boundary:
    """The pairs `(r, s)` at which a guarantee stops to hold. The loss rises with `r` and falls with `s`.

    At first several records of a person are taken to lie in one cell of each block, which is quick and nearly always
    the worst. With `spread` they may lie anywhere.
    """

    def __init__(
        self,
        guarantee: Guarantee,
        prior: Array,
        adjacency: str,
        min_count: float,
        contribution: Contribution,
        n_records: int | None = None,
    ) -> None:
        self.guarantee = guarantee
        self.adjacency = adjacency
        self.min_count = min_count
        self.spread = False
        # Only the smallest cells of each block matter, and adding s does not change which they are.
        self.cells = personal_cells(prior, contribution, n_records)

    def promising(self, guarantee: Guarantee) -> "_Boundary":
        """The boundary of another guarantee."""
        other = copy(self)
        other.guarantee = guarantee
        return other

    @property
    def composed(self) -> bool:
        """Whether every point of the boundary takes a composition."""
        return not self.guarantee.adds_up and isinstance(self.curves(1.0, 0.0), (Composition, Parallel))

    def curves(self, r: float, s: float) -> PrivacyCurves:
        """The curves of one person at this point, or slightly lower ones."""
        return self.cells.curves(r, self.adjacency, more=s, min_count=self.min_count, spread=False)

    def excess(self, r: float, s: float) -> float:
        """Logarithm of the loss over what the guarantee allows: at most 0 exactly where it holds."""
        excess = log_excess(*self.curves(r, s).loss(self.guarantee))
        # The loss with all records in one cell is quick to compute, and enough to refuse.
        if excess > 0 or not self.spread:
            return excess
        return log_excess(*self.cells.curves(r, self.adjacency, more=s, min_count=self.min_count).loss(self.guarantee))

    def largest_r(self, s: float, *, near: float = 1.0) -> float:
        """The largest concentration that keeps the guarantee with `alpha = prior + s`; the search starts at `near`."""
        return _outermost(lambda r: self.excess(r, s), start=near)

    def least_s(self, r: float, *, near: float = 1.0, rtol: float = 2e-12) -> float:
        """The least `s >= 0` that keeps the guarantee at this `r`; the search starts at `near`."""
        if self.excess(r, 0.0) <= 0:
            return 0.0
        # In terms of 1 / s the promise holds up to the root, as it does in terms of r.
        return 1.0 / _outermost(
            lambda inverse: self.excess(r, 1.0 / inverse),
            start=1 / near,
            rtol=rtol,
            least=1 / _MOST_ADDED,
            tight=f"The guarantee is so tight that no setting keeps it with s up to {_MOST_ADDED:g}; relax it.",
        )


def _outermost(excess: Callable[[float], float], **search: Any) -> float:
    """The largest x at which the promise holds, less a little for rounding elsewhere."""
    limits = {"least": LEAST_PARAMETER, "most": MOST_PARAMETER}
    return largest_safe(excess, factor=4, **limits | search)


def _optimal(boundary: _Boundary, error: Callable[[float, float], float], *, cap_r: bool) -> tuple[float, float]:
    """The point of the boundary with the least expected error, searched over log r from tempering outwards.

    At tempering s is 0. Further out both r and s grow. The grid guards against a second valley; the golden section
    then needs only the relative accuracy at which a minimum is flat.
    """
    from scipy.optimize import minimize_scalar  # Here, because it takes most of a second to import.

    r_temper = boundary.largest_r(0.0)
    if cap_r and r_temper >= 1:
        return 1.0, 0.0

    s_last = 1.0

    def error_at(log_r: float) -> float:
        nonlocal s_last
        r = math.exp(log_r)
        # Neighbouring points have similar s. A minimum is flat, so the search needs no more digits than these.
        s_last = boundary.least_s(r, near=max(s_last, 1e-6), rtol=1e-7)
        return error(r, s_last)

    start = math.log(r_temper)
    end = 0.0 if cap_r else start + math.log(1e4)
    grid = np.linspace(start, end, 9 if cap_r else 19)
    errors = [error(r_temper, 0.0), *(error_at(log_r) for log_r in grid[1:])]
    best = int(np.argmin(errors))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    minimum = minimize_scalar(error_at, bounds=(low, high), method="bounded", options={"xatol": 1e-4})
    if best == 0 and errors[0] <= minimum.fun:
        return r_temper, 0.0
    if best == len(grid) - 1 and errors[-1] <= minimum.fun:
        r = math.exp(grid[-1])
        return r, boundary.least_s(r)
    s = boundary.least_s(math.exp(minimum.x))
    # s was rounded up to the safe side; r takes up what that left.
    return min(boundary.largest_r(s), 1.0 if cap_r else math.inf), s


def _optimal_of_blocks(
    boundary: _Boundary, error: Callable[[float, float], float], *, cap_r: bool
) -> tuple[float, float]:
    """The optimum for an (epsilon, delta) of a person with many blocks, where each point of the boundary costs much.

    The search follows the boundary of a Rényi divergence that meets the other one at tempering, and ends on the true
    one. The minimum is flat, so the error is larger by less than 1e-3, relative.
    """
    r = boundary.largest_r(0.0)
    if cap_r and r >= 1:
        return 1.0, 0.0
    divergence = boundary.guarantee.as_divergence(boundary.curves(r, 0.0))
    assert divergence is not None
    _, s = _optimal(boundary.promising(divergence), error, cap_r=cap_r)
    r = boundary.largest_r(s, near=r)
    return (1.0, boundary.least_s(1.0, near=max(s, 1e-6))) if cap_r and r > 1 else (r, s)


def _algorithm_1(
    guarantee: Guarantee, shape: tuple[int, ...], adjacency: str, min_count: float, contribution: Contribution
) -> DirichletMechanism:
    order = guarantee.fixed.get("order")
    if order is None:
        raise UnattainableError(
            f"strategy='algorithm-1' is P1's calibration for RenyiDP targets, got {guarantee}. "
            "Use strategy='optimal', which knows the exact curves, or state a RenyiDP target."
        )
    relation, records = adjacency_named(adjacency), contribution.records
    r = p1_theorem_1_concentration(
        order=order,
        epsilon=guarantee.budget,
        delta_2_squared=contribution.blocks(shape) * records**2 * relation.delta_2_squared,
        delta_inf=records * relation.delta_inf,
        min_count=min_count,
    )
    alpha = np.full(shape, 1 + 4 * (order - 1) * r * records * relation.delta_inf)
    mechanism = DirichletMechanism(alpha, r, adjacency=adjacency, min_count=min_count, contribution=contribution)
    return _verified(mechanism, guarantee)
