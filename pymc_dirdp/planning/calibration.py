"""Calibration of Dirichlet draws: the setting that satisfies a guarantee and has the least expected error."""

import math
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import polygamma

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, integer, one_of, positive, positive_array
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.literals import AdjacencyName, DrawObjective, options_of
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.registry import STRATEGIES
from pymc_dirdp.numerics.roots import largest_satisfying, last_safe, log_ratio_to_budget
from pymc_dirdp.planning.expected_kl import PriorExpectedKL
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import Contribution, adjacency_by_name
from pymc_dirdp.privacy.unit import MAX_PARAMETER, MIN_PARAMETER, is_binary_row, personal_cells

# The settings of the Dirichlet mechanism up to which a guarantee holds, and the best of them.


class Boundary:
    """The largest `r` for each `s` at which a guarantee holds. The loss rises with `r` and falls with `s`.

    `s` is added to the prior parameters.

    By default several records of a person are assumed to lie in one cell of each block, which is quick and nearly
    always the worst case. With `spread` they may lie anywhere.
    """

    def __init__(
        self,
        guarantee: Guarantee,
        prior: Array,
        adjacency: AdjacencyName,
        min_count: float,
        contribution: Contribution,
        n_records: int | None = None,
    ) -> None:
        self.guarantee = guarantee
        self.adjacency = adjacency
        self.min_count = min_count
        self.prior = prior
        self.spread = False
        # Only the smallest cells of each block matter, and s does not change which they are.
        self.cells = personal_cells(prior, contribution, n_records)

    def for_guarantee(self, guarantee: Guarantee) -> Self:
        """The boundary of another guarantee."""
        boundary = copy(self)
        boundary.guarantee = guarantee
        return boundary

    @property
    def composed(self) -> bool:
        """Whether every point of the boundary takes a composition."""
        return not self.guarantee.adds_up and isinstance(self.curves(1.0, 0.0), (Composition, Parallel))

    def curves(self, r: float, s: float) -> PrivacyCurves:
        """The curves of one person at this point, or slightly lower ones."""
        return self._curves(r, s, spread=False)

    def _curves(self, r: float, s: float, *, spread: bool) -> PrivacyCurves:
        return self.cells.curves(r, self.adjacency, raise_by=s, min_count=self.min_count, spread=spread)

    def excess(self, r: float, s: float) -> float:
        """The logarithm of the loss divided by the guarantee's budget: at most 0 exactly where the guarantee holds."""
        excess = log_ratio_to_budget(*self.curves(r, s).loss(self.guarantee))
        # The loss with all records in one cell is quick to compute, and enough to refuse.
        if excess > 0 or not self.spread:
            return excess
        return log_ratio_to_budget(*self._curves(r, s, spread=True).loss(self.guarantee))

    def largest_r(self, s: float, *, guess: float = 1.0, rtol: float = 2e-12) -> float:
        """The largest concentration that satisfies the guarantee with this prior; the search starts at `guess`."""
        return _outermost(lambda r: self.excess(r, s), start=guess, rtol=rtol)

    def least_s(self, r: float, *, guess: float = 1.0, rtol: float = 2e-12, max_s: float = 1e12) -> float:
        """The least `s >= 0` that satisfies the guarantee at this `r`; the search starts at `guess`.

        Above `max_s`, doubles do not resolve the contribution of one record.
        """
        if self.excess(r, 0.0) <= 0:
            return 0.0
        # As a function of 1 / s the guarantee holds up to the root, as it does as a function of r.
        return 1.0 / _outermost(
            lambda inverse: self.excess(r, 1.0 / inverse),
            start=1 / guess,
            rtol=rtol,
            least=1 / max_s,
            tight=f"The guarantee is so tight that no setting satisfies it with s up to {max_s:g}; relax it.",
        )


def _outermost(excess: Callable[[float], float], **search: Any) -> float:
    """The largest x at which the guarantee holds, minus a little for rounding elsewhere."""
    limits = {"least": MIN_PARAMETER, "most": MAX_PARAMETER}
    return largest_satisfying(excess, factor=4, **limits | search)


def optimal(boundary: Boundary, error: Callable[[float, float], float], *, cap_r: bool) -> tuple[float, float]:
    """The point of the boundary with the smallest expected error, searched over log r from tempering outwards.

    At tempering s is 0. Further out both r and s grow. The grid guards against a second local minimum. The bounded
    search then needs only the relative accuracy at which a minimum is flat.
    """
    from scipy.optimize import minimize_scalar  # Here, because it takes most of a second to import.

    r_temper = boundary.largest_r(0.0)
    if cap_r and r_temper >= 1:
        return 1.0, 0.0

    s_last = 1.0

    def error_at(log_r: float) -> float:
        nonlocal s_last
        r = math.exp(log_r)
        # Neighbouring points have similar s. A minimum is flat, so this accuracy is enough.
        s_last = boundary.least_s(r, guess=max(s_last, 1e-6), rtol=1e-7)
        return error(r, s_last)

    start = math.log(r_temper)
    end = 0.0 if cap_r else start + math.log(1e4)
    grid = np.linspace(start, end, 9 if cap_r else 19)
    errors = [error(r_temper, 0.0), *(error_at(log_r) for log_r in grid[1:])]
    i_best = int(np.argmin(errors))
    low, high = grid[max(i_best - 1, 0)], grid[min(i_best + 1, len(grid) - 1)]
    minimum = minimize_scalar(error_at, bounds=(low, high), method="bounded", options={"xatol": 1e-4})
    if i_best == 0 and errors[0] <= minimum.fun:
        return r_temper, 0.0
    if i_best == len(grid) - 1 and errors[-1] <= minimum.fun:
        r = math.exp(grid[-1])
        return r, boundary.least_s(r)
    s = boundary.least_s(math.exp(minimum.x))
    # s was rounded up to the safe side, so r may be larger.
    return min(boundary.largest_r(s), 1.0 if cap_r else math.inf), s


def optimal_of_blocks(
    boundary: Boundary, error: Callable[[float, float], float], *, cap_r: bool
) -> tuple[float, float]:
    """The optimum for an (epsilon, delta) of a person with many blocks, where points of the boundary are expensive.

    The search follows the boundary of a Rényi divergence that meets the true one at tempering, and ends on the true
    one. The minimum is flat, so the relative increase of the error is below 1e-3.
    """
    r = boundary.largest_r(0.0)
    if cap_r and r >= 1:
        return 1.0, 0.0
    divergence = boundary.guarantee.as_divergence(boundary.curves(r, 0.0))
    assert divergence is not None
    _, s = optimal(boundary.for_guarantee(divergence), error, cap_r=cap_r)
    r = boundary.largest_r(s, guess=r)
    return (1.0, boundary.least_s(1.0, guess=max(s, 1e-6))) if cap_r and r > 1 else (r, s)


# Calibration of the Dirichlet mechanism for a guarantee, on the safe side of every root.


OBJECTIVES = options_of(DrawObjective)


def calibrate_dirichlet(
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int | None = None,
    adjacency: AdjacencyName = "replace-one",
    strategy: str = "optimal",
    objective: str = "posterior",
    min_count: float = 0.0,
    contribution: Contribution | int = 1,
    public_totals: bool = False,
) -> DirichletMechanism:
    """The Dirichlet mechanism that satisfies a guarantee and uses all of it, see :func:`pymc_dirdp.calibrate`.

    Returns
    -------
    mechanism : DirichletMechanism
        `mechanism.satisfies(guarantee)` is True. If there is a boundary, `r` is within 1e-9 of it, relative.

    Raises
    ------
    UnattainableError
        If no setting satisfies the guarantee. The error says which guarantees are attainable.
    ArgumentError
        If an argument is outside its domain, or `"optimal"` lacks `n_records`.
    """
    parameters = positive_array(prior=prior)
    common: dict[str, Any] = {
        "adjacency": adjacency_by_name(adjacency).name,
        "min_count": at_least(0, min_count=min_count),
        "contribution": Contribution.of(contribution).fitted(parameters.shape),
    }
    shared = dict(common)
    one_of(STRATEGIES, strategy=strategy)
    one_of(OBJECTIVES, objective=objective)
    Guarantee.checked(guarantee=guarantee)
    if math.isinf(guarantee.largest_order):
        noise = "mechanism='geometric'" if guarantee.is_pure else "mechanism='gaussian' or mechanism='geometric'"
        raise UnattainableError(
            f"No Dirichlet draw satisfies {guarantee}: its loss is unbounded, and its Rényi divergence is infinite "
            f"from order 1 + alpha / r on (P1 Proposition 3, P2 after Theorem 1). Noise on the counts does: pass "
            f"{noise}. Or ask for ApproxDP(epsilon, delta), RenyiDP(order, epsilon) or TruncatedCDP(rho, omega) with "
            "a finite omega."
        )
    if strategy == "algorithm-1":
        return _algorithm_1(guarantee, parameters.shape, **shared)
    # If no record can change, all outputs are equally likely, and there is nothing to calibrate.
    if (
        public_totals
        and n_records
        and n_records > 2 * math.ceil(common["min_count"])
        and adjacency_by_name(adjacency).records_are_public
        and is_binary_row(parameters.shape)
    ):
        shared["n_records"] = n_records
    boundary = Boundary(guarantee, parameters, **shared)
    if strategy == "temper":
        r, s = boundary.largest_r(0.0), 0.0
    elif strategy == "inflate":
        r, s = 1.0, boundary.least_s(1.0)
    else:
        search = optimal_of_blocks if boundary.composed else optimal
        r, s = search(boundary, _expected_kl(parameters, n_records, objective), cap_r=objective == "posterior")
    mechanism = DirichletMechanism(parameters + s, r, **shared)
    if not mechanism.satisfies(guarantee):
        # Several records of a person may lose a little more if they are spread.
        boundary.spread = True
        if strategy == "inflate":
            s = boundary.least_s(1.0, guess=max(s, 1e-6))
        else:
            r = boundary.largest_r(s, guess=r)
        mechanism = DirichletMechanism(parameters + s, r, **shared)
    return _verified(mechanism, guarantee)


def untouched(
    prior: Array, *, adjacency: AdjacencyName, min_count: float, contribution: Contribution
) -> DirichletMechanism:
    """The model's own posterior, for a table of one category, about which it reveals nothing: shape `(..., 1)`."""
    return DirichletMechanism(prior, 1.0, adjacency=adjacency, min_count=min_count, contribution=contribution)


def _verified(mechanism: DirichletMechanism, guarantee: Guarantee) -> DirichletMechanism:
    if not mechanism.satisfies(guarantee):
        raise UnattainableError(
            f"Calibration for {guarantee} ended on the wrong side of its boundary, so there is no result. "
            "Please report the guarantee, the prior and the strategy."
        )
    return mechanism


def _expected_kl(prior: Array, n_records: int | None, objective: str) -> Callable[..., float]:
    if n_records is None:
        raise ArgumentError(
            "The best Dirichlet draw depends on the number of records. Pass n_records= (your guess, if the number is "
            "private), or mechanism='geometric' or dirdp.mechanisms.Dirichlet(strategy='temper'), which need none."
        )
    expected = PriorExpectedKL(prior, integer(0, n_records=n_records))
    if objective == "posterior":
        return expected.posterior
    expected.estimate(1.0)  # Without records this raises an error, before the search.
    return expected.estimate


def p1_theorem_1_concentration(
    *, order: float, epsilon: float, delta_2_squared: float = 2.0, delta_inf: float = 1.0, min_count: float = 0.0
) -> float:
    """The `r` of P1 Algorithm 1, line 1 (with Remark 2 for `min_count`), on the safe side of the root.

    It solves
    `epsilon = order / 2 * r**2 * delta_2_squared * psi'(1 + r * min_count + 3 * (order - 1) * r * delta_inf)`.
    Algorithm 1 then takes `alpha = 1 + 4 * (order - 1) * r * delta_inf`.

    Parameters
    ----------
    order, delta_2_squared, delta_inf
        Same as in :func:`pymc_dirdp.papers.p1_theorem_1`.
    epsilon : float
        Target in nats, positive.
    min_count : float
        Public lower bound of every entry of the statistic.

    Returns
    -------
    r : float
        The largest concentration with a bound of at most `epsilon`; P1 Lemma 2 shows that the root is unique.

    Examples
    --------
    >>> round(p1_theorem_1_concentration(order=5, epsilon=0.1), 4)
    0.2776
    """
    order, epsilon, min_count = at_least(1, order=order), positive(epsilon=epsilon), at_least(0, min_count=min_count)
    delta_2_squared, delta_inf = positive(delta_2_squared=delta_2_squared), positive(delta_inf=delta_inf)

    # In logarithms, because the product may be too large or too small for a double.
    log_scale = math.log(order) - math.log(2) + math.log(delta_2_squared)
    with np.errstate(divide="ignore"):
        log_slope = np.logaddexp(np.log(min_count), np.log(order - 1) + math.log(3) + math.log(delta_inf))

    def excess(r: float) -> float:
        log_argument = float(np.logaddexp(0, math.log(r) + log_slope))
        # `x * psi'(x)` falls to 1, and is 1 in doubles before exp(37).
        x = math.exp(min(log_argument, 37))
        log_bound = log_scale + 2 * math.log(r) + math.log(x * float(polygamma(1, x))) - log_argument
        # The rounding error of five logarithms of at most 1400.
        return log_bound - math.log(epsilon) + 2e-12

    # psi' <= psi'(1) gives a safe start, and the bound rises with r from 0 to infinity.
    safe = math.exp((math.log(epsilon) - log_scale - math.log(polygamma(1, 1.0))) / 2 - 2e-12)
    return last_safe(excess, start=safe)


def _algorithm_1(
    guarantee: Guarantee, shape: tuple[int, ...], adjacency: AdjacencyName, min_count: float, contribution: Contribution
) -> DirichletMechanism:
    order = guarantee.fixed.get("order")
    if order is None:
        raise UnattainableError(
            f"strategy='algorithm-1' is P1's calibration for RenyiDP targets, got {guarantee}. "
            "Use strategy='optimal', which has the exact curves, or pass a RenyiDP target."
        )
    relation, records = adjacency_by_name(adjacency), contribution.records
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
