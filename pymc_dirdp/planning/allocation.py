"""One target, many tables: how much each may lose, and the mechanisms that together keep the guarantee."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.numerics.roots import log_excess, safe_root
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import ApproxDP, Guarantee, PureDP, RenyiDP, TruncatedCDP, ZeroCDP

__all__ = ["allocate", "composed", "shares", "whole_share"]

# One unit or so below the share: shares, added up in floating point, must not exceed the whole.
_DOWN = 1 - 2**-50
# Of the budget; half as much of epsilon is left unused at most.
_TIGHT = 2e-3


def shares(weights: Mapping[str, float], groups: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """The part of the budget that each table gets.

    Parameters
    ----------
    weights : mapping of str to float
        Relative budgets of all tables.
    groups : sequence of tuple of str
        Tables that one person's records may feed together. Each group may spend the whole budget.

    Returns
    -------
    shares : dict of str to float
        They add up to at most 1 in every group.
    """
    totals = {group: math.fsum(weights[name] for name in group) for group in groups}
    return {name: weight / max(totals[group] for group in groups if name in group) for name, weight in weights.items()}


def composed(mechanisms: Mapping[str, Mechanism], groups: Sequence[tuple[str, ...]], draws: int) -> PrivacyCurves:
    """The curves of a whole release: sequential within a group of tables, parallel over groups."""
    times = {name: (mechanism, 1 if mechanism.covers_all_draws else draws) for name, mechanism in mechanisms.items()}
    members = tuple(Composition(tuple(times[name] for name in mechanisms if name in group)) for group in groups)
    return members[0] if len(members) == 1 else Parallel(members)


def allocate[M: Mechanism](
    guarantee: Guarantee,
    calibrate: Callable[[str, Guarantee], M],
    *,
    weights: Mapping[str, float],
    groups: Sequence[tuple[str, ...]],
    draws: int,
    once: Collection[str] = (),
) -> dict[str, M]:
    """Mechanisms that keep `guarantee` together.

    Divergences add, so under `RenyiDP` and `TruncatedCDP` each table is calibrated for its share. An (epsilon, delta)
    does not divide: there the tables share a Rényi divergence, as large as the composed privacy loss allows.

    Parameters
    ----------
    guarantee : RenyiDP, TruncatedCDP or ApproxDP
        For all tables and draws together.
    calibrate : callable
        The mechanism of a table, by its name, for a guarantee of its own.
    weights : mapping of str to float
        Relative shares of the divergence, by table.
    groups : sequence of tuple of str
        Tables that one person's records may feed together; every table is in one at least.
    draws : int
        Number of draws of each.
    once : collection of str
        Tables of which one release serves all draws.

    Returns
    -------
    mechanisms : dict of str to Mechanism
        `composed(mechanisms, groups, draws).satisfies(guarantee)` is True.

    References
    ----------
    Theory, section 7.
    """
    releases = {name: 1 if name in once else draws for name in weights}
    if all(len(group) == 1 for group in groups) and set(releases.values()) == {1}:
        return {name: calibrate(name, guarantee) for name in weights}
    parts = {name: share * _DOWN / releases[name] for name, share in shares(weights, groups).items()}
    match guarantee:
        case RenyiDP() | TruncatedCDP() | ZeroCDP() | PureDP():
            return {name: calibrate(name, _scaled(guarantee, part)) for name, part in parts.items()}
        case ApproxDP(epsilon=epsilon, delta=delta):
            order, start = _gaussian_budget(epsilon, delta)
            while True:
                found = _largest_budget(order, start, guarantee, calibrate, parts, groups, draws)
                if found is not None:
                    return found
                # At a high order the divergence is infinite before the guarantee is used up. A lower one reaches on.
                order = 1 + (order - 1) / 2 if order > 1.1 else 1.0
    raise ArgumentError(f"Expected a guarantee such as ApproxDP(epsilon=1, delta=1e-6), got {type(guarantee)}.")


def _scaled(guarantee: RenyiDP | TruncatedCDP | ZeroCDP | PureDP, part: float) -> Guarantee:
    """A part of a promise of which parts add up."""
    match guarantee:
        case RenyiDP(order=order, epsilon=epsilon):
            return RenyiDP(order=order, epsilon=epsilon * part)
        case TruncatedCDP(rho=rho, omega=omega):
            return TruncatedCDP(rho=rho * part, omega=omega)
        case ZeroCDP(rho=rho):
            return ZeroCDP(rho=rho * part)
        case PureDP(epsilon=epsilon):
            return PureDP(epsilon=epsilon * part)


def whole_share(mechanism: Mechanism, guarantee: Guarantee, draws: int) -> Guarantee:
    """What all draws of a mechanism lose together, as a promise of their own for which others can be calibrated.

    At the order of the guarantee, or for `ApproxDP` at one that suits it; so it compares mechanisms and proves nothing.
    """
    if isinstance(guarantee, TruncatedCDP):
        return TruncatedCDP(rho=draws * mechanism.rho(guarantee.omega), omega=guarantee.omega)
    if isinstance(guarantee, RenyiDP):
        order = guarantee.order
    elif isinstance(guarantee, ApproxDP):
        order = _gaussian_budget(guarantee.epsilon, guarantee.delta)[0]
        while not math.isfinite(mechanism.renyi(order)):
            order = 1 + (order - 1) / 2
    else:
        return guarantee
    return RenyiDP(order=order, epsilon=draws * mechanism.renyi(order))


def _gaussian_budget(epsilon: float, delta: float) -> tuple[float, float]:
    """The order at which a Gaussian loss is converted best to this (epsilon, delta), and its divergence there."""
    log = -math.log(delta)
    root = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))
    if root == 0:
        return 1.0, delta**2
    order = 1 + math.sqrt(log) / root
    return order, order * root**2


def _largest_budget[M: Mechanism](
    order: float,
    start: float,
    guarantee: ApproxDP,
    calibrate: Callable[[str, Guarantee], M],
    parts: Mapping[str, float],
    groups: Sequence[tuple[str, ...]],
    draws: int,
) -> dict[str, M] | None:
    """Mechanisms for the largest divergence at this order that keeps the guarantee; None if every one does."""

    @lru_cache(maxsize=4)
    def mechanisms(budget: float) -> dict[str, M]:
        return {name: calibrate(name, RenyiDP(order=order, epsilon=budget * part)) for name, part in parts.items()}

    def excess(budget: float) -> float:
        delta = composed(mechanisms(budget), groups, draws)._delta(guarantee.epsilon)
        return log_excess(delta, guarantee.delta)

    safe = unsafe = start
    if excess(start) <= 0:
        while excess(unsafe) <= 0:
            previous, safe, unsafe = mechanisms(safe), unsafe, 4 * unsafe
            # A calibration that no longer follows its budget has given back the posterior itself.
            if safe > start and mechanisms(safe) == previous:
                return previous
            if unsafe > 1e6 * start:
                return None
    else:
        while excess(safe) > 0:
            safe, unsafe = safe / 4, safe
            if safe < 1e-100:
                raise UnattainableError("The guarantee is so tight that no setting keeps it; relax it.")
    return mechanisms(safe_root(excess, safe=safe, unsafe=unsafe, rtol=_TIGHT))
