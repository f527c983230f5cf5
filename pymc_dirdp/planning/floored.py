"""Calibration of floored draws at a prior and a floor: the largest concentration that keeps a guarantee."""

import math
from collections.abc import Callable
from dataclasses import replace

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.numerics.roots import largest_safe, log_excess
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.floored import STEPS, FlooredCells, floored_curves
from pymc_dirdp.privacy.floored_search import LARGEST_STEP
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["largest_floored_r"]

# The logarithm of delta rises about so many times as fast as that of r, at the deltas that are asked for.
_SLOPE = 20.0
_SEARCHES, _CLOSE = 20, 3e-3
# The bound is up to 2 % above what is seen. Room for most of it saves a second bound and costs 1e-3 of r at most.
_ROOM = 0.015
_RTOL = 1e-6


def largest_floored_r(
    guarantee: Guarantee,
    alpha: Array,
    floor: float,
    ceiling: float = math.inf,
    adjacency: str = "replace-one",
    contribution: Contribution | int = 1,
    n_records: int | None = None,
) -> float:
    """The largest concentration at which a floored draw keeps a guarantee, from below.

    Parameters
    ----------
    guarantee : Guarantee
        Of any kind. `PureDP` needs a finite ceiling.
    alpha : array, shape (..., d)
        Prior parameters, positive.
    floor, ceiling : float
        Same as in :func:`~pymc_dirdp.privacy.floored.floored_curves`, and so are the bounds of `r`.
    adjacency : {"replace-one", "add-remove"}
        The neighbouring relation.
    contribution : Contribution or int
        What one person can add to the table.
    n_records : int, optional
        The public number of records, as for :func:`~pymc_dirdp.privacy.floored.floored_curves`.

    Returns
    -------
    r : float
        The curves at `r` satisfy the guarantee. It is within 1e-9 of the largest one for `ZeroCDP` and `PureDP`, and
        within a few thousandths for `ApproxDP`, where it is at most 20.

    Raises
    ------
    UnattainableError
        If no concentration keeps the guarantee, or every one does.

    References
    ----------
    Statements 1 to 8 on the page of proofs "floored".

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dirdp import ZeroCDP
    >>> round(largest_floored_r(ZeroCDP(rho=0.02574), np.full((1, 4), 0.5), 8.0), 3)
    0.65
    """

    def curves(r: float) -> PrivacyCurves:
        return floored_curves(alpha, r, floor, ceiling, adjacency, contribution, n_records)

    def excess(r: float) -> float:
        return log_excess(*curves(r).loss(guarantee))

    if Guarantee.checked(guarantee=guarantee).is_pure and math.isinf(ceiling):
        raise UnattainableError(
            "Without a ceiling no floored draw keeps pure differential privacy: an intensity may be as large as it "
            "likes. State a finite ceiling, or ask for ZeroCDP(rho)."
        )
    # Divergences are at most their order times rho, which goes with the square of r.
    slope = curves(1.0).rho(math.inf)
    if slope == 0:
        raise UnattainableError("Where a record cannot move, every concentration keeps every guarantee; take r = 1.")
    divergence = guarantee.as_divergence()
    start = 1.0
    if divergence is not None:
        start = min(max(math.sqrt(divergence.epsilon / divergence.order / slope), STEPS[0]), STEPS[1])
    cells = curves(min(start, LARGEST_STEP))
    if isinstance(cells, FlooredCells) and cells.searches_counts and guarantee.stated_delta:
        return _by_search(guarantee, lambda r: replace(cells, r=r), cells.r)
    concentrated = math.isinf(guarantee.largest_order) and not guarantee.is_pure
    if concentrated and n_records is not None and excess(STEPS[1]) <= 0:
        return STEPS[1]
    # With a public number of records the largest variances depend on r, too.
    if concentrated and n_records is None:
        r = min(math.sqrt(guarantee.budget / slope), STEPS[1])
        while excess(r) > 0:
            r *= 1 - 1e-12
        return r
    return largest_safe(excess, start=start, factor=1.2, rtol=_RTOL, least=STEPS[0], most=STEPS[1])


def _by_search(guarantee: Guarantee, curves: Callable[[float], FlooredCells], start: float) -> float:
    """The largest r for one block of cells: a root of what a quick search sees, and then one bound, or two."""
    epsilon, delta = guarantee.budget, guarantee.allowed
    log_r, slope = math.log(start), _SLOPE
    last: tuple[float, float] | None = None
    near: tuple[float, ...] | None = None
    for _ in range(_SEARCHES):
        found = curves(math.exp(log_r)).worst_counts(epsilon, near)
        if found.attained == 0:
            log_r += 1.0
            continue
        near, gap = found.shapes, math.log(delta / found.attained) - _ROOM
        if last is not None and abs(log_r - last[0]) > 1e-9:
            slope = max((last[1] - gap) / (log_r - last[0]), 0.5)
        if abs(gap) < _CLOSE or (gap > 0 and log_r >= math.log(LARGEST_STEP)):
            break
        last = log_r, gap
        log_r = min(log_r + min(max(gap / slope, -1.0), 1.0), math.log(LARGEST_STEP))
    r = math.exp(log_r)
    while (loss := log_excess(curves(r).delta(epsilon), delta)) > 0:
        r *= math.exp(-(loss / slope + 1e-4))
    return r
