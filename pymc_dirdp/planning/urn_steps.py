"""Calibration of Dirichlet draws whose guarantee is for the counts of an urn of so many steps.

Nothing else keeps `PureDP` and `ZeroCDP`. Other guarantees may be kept by the continuous draw, but in sparse tables a
coarse urn keeps them with much less error: what a continuous draw shows of a record are shares near 0, of which a
coarse grid has none.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, override

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.tempered import Tempered
from pymc_dirdp.numerics.roots import log_excess
from pymc_dirdp.planning.boundary import Boundary, optimal
from pymc_dirdp.planning.expected_kl import PriorExpectedKL
from pymc_dirdp.planning.simulated import a_priori_kl, predicted_data, simulated_draw_kl
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.least_of import LeastOf
from pymc_dirdp.privacy.urn import urn_cells

__all__ = ["calibrate_urn", "needs_urn", "urn_score"]

# Numbers of steps that are tried: powers of 2. The last takes some 0.02 s for each row.
_FEWEST, _MOST, _MOST_IN_ALL = 2**2, 2**20, 2**26
# So many steps are hardly told from the continuous draw, where that keeps the guarantee.
_MOST_LIKE_A_DRAW = 2**14
# Cells that are simulated for one number of steps.
_CELLS = 50_000
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
    upwards or downwards as long as the expected error falls, or from a few upwards where the continuous draw keeps the
    guarantee, too; for each, `r` and `alpha` are found as for the continuous draw. The error is that of a Dirichlet
    distribution with the means and variances of the urn's shares. It is flat around its minimum: a power of 2 costs
    about a per cent of it.

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
    cap_r = objective == "posterior" and strategy in ("optimal", "urn")
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
            known[steps] = score(r, s, steps), boundary, r, s
        return known[steps][0]

    score = error
    if needs_urn(guarantee):
        size = float(prior.sum() + n_records) / n_rows
        steps = _downhill(tried, min(max(2 ** round(math.log2(size)), _FEWEST), most), most)
    else:
        scored = urn_score(prior, n_records, objective)

        def score(r: float, s: float, steps: int) -> float:
            return scored(DirichletMechanism(prior + s, r, urn_steps=steps, **shared))

        steps = _first_valley(tried, min(most, _MOST_LIKE_A_DRAW))
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
        urn = self.urns.curves(r, self.steps, self.adjacency, more=s, min_count=self.min_count)
        pure = urn.pure_epsilon
        if self.guarantee.is_pure:
            return log_excess(pure, self.guarantee.allowed)
        if not needs_urn(self.guarantee):
            return self._of_both(r, s, urn)
        # Several records of a person are taken to lie in one cell until the end, which is quick.
        draw = self.cells.curves(r, self.adjacency, more=s, min_count=self.min_count, spread=self.exact)
        rho = self.guarantee.allowed
        if self.exact:
            return log_excess(LeastOf(draw, urn).rho(math.inf), rho)
        # From this order on, the pure loss over the order is small enough; up to it the draw has to be.
        order = pure / rho * (1 + 1e-12)
        return log_excess(draw.rho(order), rho) if order > 1 else log_excess(pure, rho)

    def _of_both(self, r: float, s: float, urn: PrivacyCurves) -> float:
        """The excess of the smaller curve, of the draw or of its urn."""
        draw = self.cells.curves(r, self.adjacency, more=s, min_count=self.min_count, spread=self.exact)
        both = LeastOf(draw, urn)
        if self.exact or "omega" not in self.guarantee.fixed:
            return log_excess(*both.loss(self.guarantee))
        # The largest divergence over its order is nearly always at one of the ends.
        omega = self.guarantee.largest_order
        return log_excess(max(both.renyi(1.0), both.renyi(omega) / omega), self.guarantee.allowed)


def _first_valley(error: Callable[[int], float], most: int) -> int:
    """The power of 2 with the least error, from below. Where steps become many, the draw may be better once more."""
    best = steps = _FEWEST
    while (steps := 2 * steps) <= min(most, 4 * best):
        best = steps if error(steps) < error(best) else best
    return best


def _error(expected: PriorExpectedKL, objective: str) -> Callable[[float, float, int], float]:
    """The expected error of a setting as a function of `r`, `s` and the number of steps."""
    measure = expected.posterior if objective == "posterior" else expected.estimate
    measure(1.0)  # Without records this may raise an error, and it has to do so before the search.

    def error(r: float, s: float, steps: int) -> float:
        factor = Tempered(expected.prior + s, r, steps).matched(expected.n_records).r / r
        return measure(factor * r, factor * s, keep=factor)

    return error


def urn_score(prior: Array, n_records: int, objective: str) -> Callable[[DirichletMechanism], float]:
    """The expected error of what the exact sampler of a mechanism outputs, as a function of the mechanism.

    For the estimate it is simulated, because the shares of an urn of few steps are far from those of a Dirichlet
    distribution.
    """
    data = predicted_data(prior, n_records, n_cells=_CELLS)

    def score(one: DirichletMechanism) -> float:
        urn = replace(one, urn_steps=one.default_steps(n_records))
        return (
            a_priori_kl(urn, prior, n_records).posterior if objective == "posterior" else simulated_draw_kl(urn, data)
        )

    return score


def _downhill(error: Callable[[int], float], start: int, most: int) -> int:
    """The power of 2 with the least error, from one of them in steps of a factor of 2."""
    best = start
    for factor in (2.0, 0.5):
        while _FEWEST <= (further := int(best * factor)) <= most and error(further) < error(best):
            best = further
    return best
