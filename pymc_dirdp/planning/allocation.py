"""One guarantee for many tables: the budget of each, and mechanisms that satisfy the guarantee together."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache

from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.numerics.roots import bracket, log_ratio_to_budget, safe_root
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import NoLoss, PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee, RenyiDP


def shares(weights: Mapping[str, float], groups: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """The share of the budget of each table.

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
    # Mechanisms whose output is the same for all data sets lose nothing.
    losing = {name: mechanism for name, mechanism in mechanisms.items() if mechanism.pure_epsilon > 0}

    def of_group(group: tuple[str, ...]) -> tuple[tuple[Mechanism, int], ...]:
        # Tables that share a noise are one release.
        once = {
            mechanism_part.shared_noise or name: mechanism_part
            for name, mechanism_part in losing.items()
            if name in group
        }
        return tuple(
            (mechanism_part, mechanism_part.output_kind.releases_for(draws)) for mechanism_part in once.values()
        )

    members = tuple(Composition(part) for part in map(of_group, groups) if part)
    if not members:
        return NoLoss()
    return members[0] if len(members) == 1 else Parallel(members)


def allocate[M: Mechanism](
    guarantee: Guarantee,
    calibrate: Callable[[str, Guarantee], M],
    *,
    weights: Mapping[str, float],
    groups: Sequence[tuple[str, ...]],
    draws: int,
    once: Collection[str] = (),
    earlier: Sequence[tuple[PrivacyCurves, int]] = (),
) -> dict[str, M]:
    """Mechanisms that satisfy `guarantee` together.

    Divergences add up, so under `RenyiDP` and `TruncatedCDP` each table is calibrated for its share. An (epsilon,
    delta) cannot be divided. The tables then share a Rényi divergence, as large as the composed privacy loss allows.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee that all tables and draws have to satisfy together.
    calibrate : callable
        Takes the name of a table and its own guarantee. Returns the mechanism.
    weights : mapping of str to float
        Relative shares of the divergence, by table.
    groups : sequence of tuple of str
        Tables that one person's records may feed together. Every table is in at least one group.
    draws : int
        Number of draws from each table.
    once : collection of str
        The tables whose single release serves all draws.
    earlier : sequence of (PrivacyCurves, int), default ()
        Earlier releases about the same people, and their numbers. The guarantee covers them, too.

    Returns
    -------
    mechanisms : dict of str to Mechanism
        The composition of `composed(mechanisms, groups, draws)` with `earlier` satisfies the guarantee.

    Raises
    ------
    UnattainableError
        If no setting satisfies the guarantee, or `earlier` has used it up.

    References
    ----------
    Theory, section 7.
    """
    releases = {name: 1 if name in once else draws for name in weights}
    if all(len(group) == 1 for group in groups) and set(releases.values()) == {1} and not earlier:
        return {name: calibrate(name, guarantee) for name in weights}
    # Slightly below the share, because the sum of rounded shares must not exceed the whole.
    parts = {name: share * (1 - 2**-50) / releases[name] for name, share in shares(weights, groups).items()}
    divergence = guarantee.as_divergence()
    if divergence is None:
        remaining = _remaining_budget(earlier, guarantee)
        return {name: calibrate(name, guarantee.with_budget(remaining * part)) for name, part in parts.items()}
    while True:
        mechanisms = _largest_budget(divergence, guarantee, calibrate, parts, groups, draws, earlier)
        if mechanisms is not None:
            return mechanisms
        # At a high order the divergence is infinite before the guarantee is used up. A lower order uses more of it.
        order = divergence.order
        divergence = replace(divergence, order=1 + (order - 1) / 2 if order > 1.1 else 1.0)


def _remaining_budget(earlier: Sequence[tuple[PrivacyCurves, int]], guarantee: Guarantee) -> float:
    """The remaining budget where budgets add up."""
    remaining = guarantee.budget - (Composition(tuple(earlier)).loss(guarantee)[0] if earlier else 0.0)
    if remaining <= 0:
        raise UnattainableError("Earlier releases have used up the guarantee; relax it.")
    return remaining


def _largest_budget[M: Mechanism](
    start: RenyiDP,
    guarantee: Guarantee,
    calibrate: Callable[[str, Guarantee], M],
    parts: Mapping[str, float],
    groups: Sequence[tuple[str, ...]],
    draws: int,
    earlier: Sequence[tuple[PrivacyCurves, int]],
    *,
    max_shared: float = 1e3,
) -> dict[str, M] | None:
    """Mechanisms for the largest divergence, at the order of `start`, that satisfies the guarantee.

    None if all divergences satisfy it, so that a lower order can use more of it. Sums of losses of several tables take
    minutes above `max_shared`.
    """
    if guarantee.budget > max_shared:
        raise UnattainableError(
            f"Tables cannot share {guarantee.budget_name}={guarantee.budget:g} and a delta: their losses are summed on "
            f"a grid, up to {max_shared:g}. No guarantee of this size protects anyone; ask for at most 10."
        )

    @lru_cache(maxsize=8)
    def mechanisms(budget: float) -> dict[str, M]:
        return {name: calibrate(name, start.with_budget(budget * part)) for name, part in parts.items()}

    @cache
    def excess(budget: float) -> float:
        tables = composed(mechanisms(budget), groups, draws)
        return log_ratio_to_budget(*(Composition((*earlier, (tables, 1))) if earlier else tables).loss(guarantee))

    start_budget, end_budget = start.epsilon, 1e6 * start.epsilon
    # If four times the budget satisfies it, all budgets may. Up to the largest the mechanisms hardly change.
    if excess(start_budget) <= 0 and excess(4 * start_budget) <= 0 and excess(end_budget) <= 0:
        # A calibration that no longer depends on its budget has returned the posterior itself. No order is below 1.
        return (
            mechanisms(end_budget) if start.order == 1 or mechanisms(end_budget) == mechanisms(end_budget / 4) else None
        )
    safe, unsafe = bracket(excess, start=start_budget, factor=4, least=1e-100, most=end_budget)
    if safe == 0:
        raise UnattainableError("The guarantee is so tight that no setting satisfies it; relax it.")
    # The relative error of the budget. At most half as much of epsilon remains unused.
    return mechanisms(safe_root(excess, safe=safe, unsafe=unsafe, rtol=2e-3))
