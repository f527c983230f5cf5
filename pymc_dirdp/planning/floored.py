"""Calibration of floored draws at a prior and a floor: the largest concentration that keeps a guarantee."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.numerics.roots import log_excess, near_root
from pymc_dirdp.privacy.composition import Parallel
from pymc_dirdp.privacy.curves import NoLoss, PrivacyCurves
from pymc_dirdp.privacy.floored import STEPS, FlooredCells
from pymc_dirdp.privacy.floored_search import LARGEST_STEP, looser
from pymc_dirdp.privacy.floored_table import floored_curves
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["largest_floored_r"]

# The logarithm of a divergence rises about so many times as fast as that of r, and that of delta so many times its own
# distance from 0.
_SLOPE = 2.0
# How much of the logarithm of a loss may be left: of a delta that is searched for, of a loss of which only a bound is
# known, and of others. Some of it always is, because another machine rounds differently.
_CLOSE, _CLOSE_TO_BOUNDS, _VERY_CLOSE, _MARGIN = 3e-3, 1e-4, 1e-9, 1e-10
# The bound is mostly up to 2 % above what is seen. Room for that saves a second bound, and costs 1e-3 of r at most.
_ROOM = 0.02
# An r that is planned with a divergence is about so much too small where delta is found by a search.
_MORE = 1.3


def largest_floored_r(
    guarantee: Guarantee,
    alpha: Array,
    floor: float,
    ceiling: float = math.inf,
    *,
    proved: bool = True,
    begin: float | None = None,
    **people: Any,
) -> float:
    """The largest concentration at which a floored draw keeps a guarantee, from below.

    Parameters
    ----------
    guarantee : Guarantee
        Of any kind. `PureDP` needs a finite ceiling.
    alpha : array, shape (..., d)
        Prior parameters, positive.
    floor, ceiling : float
        Same as in :func:`~pymc_dirdp.privacy.floored_table.floored_curves`, and so are the bounds of `r`.
    proved : bool
        False takes a number that is quick to find, for comparisons. It may be too large.
    begin : float, optional
        Where a search for counts begins: what is known to be close saves some steps.
    **people
        `adjacency`, `contribution` and `n_records`, as for :func:`~pymc_dirdp.privacy.floored_table.floored_curves`.

    Returns
    -------
    r : float
        The curves at `r` satisfy the guarantee. It is within 1e-9 of the largest one for `ZeroCDP`, `RenyiDP` and
        `PureDP`, within 1e-4 for `TruncatedCDP`, and within a few thousandths for `ApproxDP`, where it is at most 20.
        It is the largest one that is computed, where that keeps the guarantee.

    Raises
    ------
    UnattainableError
        If no concentration keeps the guarantee, or no record can move.

    References
    ----------
    Statements 1 to 9 on the page of proofs "floored".

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dirdp import ZeroCDP
    >>> round(largest_floored_r(ZeroCDP(rho=0.02574), np.full((1, 4), 0.5), 8.0), 3)
    0.65
    """

    def curves(r: float) -> PrivacyCurves:
        return floored_curves(alpha, r, floor, ceiling, **people)

    def excess(r: float) -> float:
        return log_excess(*curves(r).loss(guarantee))

    if Guarantee.checked(guarantee=guarantee).is_pure and math.isinf(ceiling):
        raise UnattainableError(
            "Without a ceiling no floored draw keeps pure differential privacy: an intensity may be as large as it "
            "likes. State a finite ceiling, or ask for ZeroCDP(rho)."
        )
    if isinstance(curves(1.0), NoLoss):
        raise UnattainableError("Where a record cannot move, every concentration keeps every guarantee; take r = 1.")
    divergence = guarantee.as_divergence()
    start = 1.0
    if divergence is not None:
        # Divergences are at most their order times rho, which goes with the square of r.
        slope = curves(1.0).rho(math.inf)
        start = min(max(math.sqrt(divergence.epsilon / divergence.order / slope), STEPS[0]), STEPS[1])
    near = min(_MORE * start if begin is None else begin, LARGEST_STEP)
    if guarantee.stated_delta and (searched := _searched(curves(near))):
        return _by_search(guarantee, searched, near, proved=proved)
    if not proved:
        return start
    # A delta of many blocks is found on a grid, and a rho by bounds: neither is smooth.
    rough = guarantee.stated_delta or "omega" in guarantee.fixed
    close = _CLOSE_TO_BOUNDS if rough else _VERY_CLOSE
    return _root(lambda r: excess(r) + _MARGIN, start, _SLOPE, close, STEPS[1])


def _root(excess: Callable[[float], float], start: float, slope: float, close: float, most: float) -> float:
    """The root in r, searched for on a logarithmic scale; `most` if the promise holds there."""

    def at(log_r: float) -> float:
        return min(max(math.exp(log_r), STEPS[0]), most)

    ends = {"least": math.log(STEPS[0]), "most": math.log(most)}
    found = near_root(lambda log_r: excess(at(log_r)), math.log(start), slope=slope, close=close, **ends)
    if found is None:
        raise UnattainableError(
            f"The guarantee is so tight that a record would count less than {STEPS[0]:g}, and floored draws are not "
            "computed for that. State another guarantee, or use mechanism='geometric'."
        )
    return at(found)


def _searched(curves: PrivacyCurves) -> tuple[FlooredCells, ...]:
    """The blocks of cells of which the largest delta counts, if a search finds each of them."""
    members = curves.members if isinstance(curves, Parallel) else (curves,)
    cells = tuple(member for member in members if isinstance(member, FlooredCells) and member.searches_counts)
    return cells if all(member in cells or isinstance(member, NoLoss) for member in members) else ()


def _by_search(guarantee: Guarantee, cells: tuple[FlooredCells, ...], start: float, *, proved: bool) -> float:
    """The largest r for blocks of cells: a root of what a quick search sees, and then one bound of each, or two."""
    epsilon, delta = guarantee.budget, guarantee.allowed
    slope = _SLOPE * max(-math.log(delta), 1.0)
    room = _ROOM * float(looser(delta))
    near: dict[FlooredCells, tuple[float, ...]] = {}

    def seen(r: float) -> float:
        largest = 0.0
        for block in cells:
            found = replace(block, r=r).worst_counts(epsilon, near.get(block))
            if found.attained > 0:
                near[block] = found.shapes
            largest = max(largest, found.attained)
        return log_excess(largest, delta) + room

    r = _root(seen, start, slope, _CLOSE, LARGEST_STEP)
    if not proved:
        return r
    while (loss := log_excess(max(replace(block, r=r).delta(epsilon) for block in cells), delta)) > 0:
        r *= math.exp(-(loss / slope + 1e-4))
    return r
