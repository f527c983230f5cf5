"""Calibration of Dirichlet draws whose guarantee is for the counts of an urn of so many steps.

Nothing else keeps `PureDP` and `ZeroCDP`.
"""

import math
from collections.abc import Callable
from typing import Any, override

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.tempered import Tempered
from pymc_dirdp.numerics.roots import log_excess
from pymc_dirdp.planning.boundary import Boundary, optimal
from pymc_dirdp.planning.expected_kl import PriorExpectedKL
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.least_of import LeastOf
from pymc_dirdp.privacy.randomised_response import RandomisedResponse
from pymc_dirdp.privacy.urn import urn_cells

__all__ = ["calibrate_urn", "needs_urn"]

# Numbers of steps that are tried: powers of 2. The last takes some 0.02 s for each row.
_FEWEST, _MOST, _MOST_IN_ALL = 2**2, 2**20, 2**26
# The curve of an urn takes long, so its boundary is found to this relative error.
_RTOL = 1e-5


def needs_urn(guarantee: Guarantee) -> bool:
    """Whether no continuous Dirichlet draw keeps such a guarantee, because it bounds the loss or all its moments."""
    return math.isinf(guarantee.largest_order)


def calibrate_urn(
    guarantee: Guarantee,
    *,
    prior: Array,
    n_records: int | None,
    strategy: str,
    objective: str,
    shared: dict[str, Any],
) -> DirichletMechanism:
    """The Dirichlet mechanism with the number of steps that is best for a guarantee.

    More steps add less to the variance of a draw, and lose more. Powers of 2 are tried, from the size of the table
    upwards or downwards as long as the expected error falls; for each, `r` and `alpha` are found as for the continuous
    draw. The error is that of a Dirichlet distribution with the means and variances of the urn's shares. It is flat
    around its minimum: a power of 2 costs about a per cent of it.

    Parameters
    ----------
    guarantee : Guarantee
    prior : array, shape (..., d)
    n_records, strategy, objective
        As for :func:`pymc_dirdp.calibrate`.
    shared : dict
        `adjacency`, `min_count`, `contribution` and perhaps `n_records` of the mechanism.

    Raises
    ------
    UnattainableError
        If `n_records` is missing, or no setting keeps the guarantee.
    """
    if n_records is None:
        raise UnattainableError(
            f"No continuous Dirichlet draw keeps {guarantee}: its loss is unbounded, and its Rényi divergence is "
            "infinite from order 1 + alpha / r on, so omega must be finite (P1 Proposition 3, P2 after Theorem 1). The "
            "counts of an urn keep it, and how many steps are best depends on the number of records: pass n_records=. "
            "Or ask for ApproxDP(epsilon, delta), RenyiDP(order, epsilon) or TruncatedCDP(rho, omega) with a finite "
            "omega."
        )
    error = _error(PriorExpectedKL(prior, n_records), objective)
    cap_r = objective == "posterior" and strategy == "optimal"
    n_rows = prior.size // prior.shape[-1]
    most = max(min(_MOST, 2 ** int(math.log2(_MOST_IN_ALL / n_rows))), _FEWEST)
    known: dict[int, tuple[float, _UrnBoundary, float, float]] = {}

    def tried(steps: int) -> float:
        if steps not in known:
            boundary = _UrnBoundary(guarantee, prior, steps, **shared)
            if strategy == "temper":
                r, s = boundary.largest_r(0.0), 0.0
            elif strategy == "inflate":
                r, s = 1.0, boundary.least_s(1.0)
            else:
                r, s = optimal(boundary, lambda r, s: error(r, s, steps), cap_r=cap_r)
            known[steps] = error(r, s, steps), boundary, r, s
        return known[steps][0]

    size = float(prior.sum() + n_records) / n_rows
    steps = _downhill(tried, min(max(2 ** round(math.log2(size)), _FEWEST), most), most)
    _, boundary, r, s = known[steps]
    if not guarantee.is_pure:
        # The search took less than the whole curve of the urn.
        boundary.exact = True
        if strategy == "inflate":
            s = boundary.least_s(1.0, near=max(s, 1e-6), rtol=_RTOL)
        else:
            r = boundary.largest_r(s, near=r, rtol=_RTOL)
            r = min(r, 1.0) if cap_r else r
    return DirichletMechanism(prior + s, r, urn_steps=steps, **shared)


class _UrnBoundary(Boundary):
    """The boundary of a guarantee for urns of so many steps."""

    def __init__(
        self,
        guarantee: Guarantee,
        prior: Array,
        steps: int,
        *,
        contribution: Contribution,
        **shared: Any,
    ) -> None:
        super().__init__(guarantee, prior, contribution=contribution, **shared)
        self.steps, self.exact = steps, False
        self.urns = urn_cells(prior, contribution)

    @override
    def excess(self, r: float, s: float) -> float:
        more = s + r * self.min_count
        pure = self.urns.pure_epsilon(r, self.steps, self.adjacency, more=more)
        if self.guarantee.is_pure:
            return log_excess(pure, self.guarantee.allowed)
        # Several records of a person are taken to lie in one cell until the end, which is quick.
        draw = self.cells.curves(r, self.adjacency, more=s, min_count=self.min_count, spread=self.exact)
        rho = self.guarantee.allowed
        if self.exact:
            return log_excess(LeastOf(draw, RandomisedResponse(pure)).rho(math.inf), rho)
        # From this order on, the pure loss over the order is small enough; up to it the draw has to be.
        order = pure / rho * (1 + 1e-12)
        return log_excess(draw.rho(order), rho) if order > 1 else log_excess(pure, rho)


def _error(expected: PriorExpectedKL, objective: str) -> Callable[[float, float, int], float]:
    """The expected error of a setting as a function of `r`, `s` and the number of steps."""
    measure = expected.posterior if objective == "posterior" else expected.estimate
    measure(1.0)  # Without records this may raise an error, and it has to do so before the search.

    def error(r: float, s: float, steps: int) -> float:
        factor = Tempered(expected.prior + s, r, steps).matched(expected.n_records).r / r
        return measure(factor * r, factor * s, keep=factor)

    return error


def _downhill(error: Callable[[int], float], start: int, most: int) -> int:
    """The power of 2 with the least error, from one of them in steps of a factor of 2."""
    best = start
    for factor in (2.0, 0.5):
        while _FEWEST <= (further := int(best * factor)) <= most and error(further) < error(best):
            best = further
    return best
