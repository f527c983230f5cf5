"""The settings of the Dirichlet mechanism at which a guarantee stops to hold, and the best of them."""

import math
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.numerics.roots import largest_safe, log_excess
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.unit import LEAST_PARAMETER, MOST_PARAMETER, personal_cells

__all__ = ["Boundary", "optimal", "optimal_of_blocks"]

# If more is added, doubles no longer resolve what one record changes.
_MOST_ADDED = 1e12


class Boundary:
    """The pairs `(r, s)` at which a guarantee stops to hold. The loss rises with `r` and falls with `s`.

    Prior parameters are raised by `s`, or to `s` where the boundary is `levelled`.

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
        self.prior = prior
        self.spread = self.levelled = False
        # Only the smallest cells of each block matter, and s does not change which they are.
        self.cells = personal_cells(prior, contribution, n_records)

    def promising(self, guarantee: Guarantee) -> Self:
        """The boundary of another guarantee."""
        other = copy(self)
        other.guarantee = guarantee
        return other

    def levels(self) -> Self:
        """The boundary for priors whose small parameters are raised to `s`."""
        other = copy(self)
        other.levelled = True
        return other

    def raised(self, s: float) -> Array:
        """The prior parameters at `s`."""
        return np.maximum(self.prior, s) if self.levelled else self.prior + s

    @property
    def composed(self) -> bool:
        """Whether every point of the boundary takes a composition."""
        return not self.guarantee.adds_up and isinstance(self.curves(1.0, 0.0), (Composition, Parallel))

    def curves(self, r: float, s: float) -> PrivacyCurves:
        """The curves of one person at this point, or slightly lower ones."""
        return self._curves(r, s, spread=False)

    def _curves(self, r: float, s: float, *, spread: bool) -> PrivacyCurves:
        more, level = (0.0, s) if self.levelled else (s, 0.0)
        return self.cells.curves(r, self.adjacency, more=more, level=level, min_count=self.min_count, spread=spread)

    def excess(self, r: float, s: float) -> float:
        """Logarithm of the loss over what the guarantee allows: at most 0 exactly where it holds."""
        excess = log_excess(*self.curves(r, s).loss(self.guarantee))
        # The loss with all records in one cell is quick to compute, and enough to refuse.
        if excess > 0 or not self.spread:
            return excess
        return log_excess(*self._curves(r, s, spread=True).loss(self.guarantee))

    def largest_r(self, s: float, *, near: float = 1.0, rtol: float = 2e-12) -> float:
        """The largest concentration that keeps the guarantee with this prior; the search starts at `near`."""
        return _outermost(lambda r: self.excess(r, s), start=near, rtol=rtol)

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
    """The largest x at which the guarantee holds, less a little for rounding elsewhere."""
    limits = {"least": LEAST_PARAMETER, "most": MOST_PARAMETER}
    return largest_safe(excess, factor=4, **limits | search)


def optimal(boundary: Boundary, error: Callable[[float, float], float], *, cap_r: bool) -> tuple[float, float]:
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


def optimal_of_blocks(
    boundary: Boundary, error: Callable[[float, float], float], *, cap_r: bool
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
    _, s = optimal(boundary.promising(divergence), error, cap_r=cap_r)
    r = boundary.largest_r(s, near=r)
    return (1.0, boundary.least_s(1.0, near=max(s, 1e-6))) if cap_r and r > 1 else (r, s)
