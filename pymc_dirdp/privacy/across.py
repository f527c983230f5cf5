"""A person who may leave one group of people and join another."""

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import final, override

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.curves import CurvesOf, PrivacyCurves
from pymc_dirdp.privacy.dominating_pairs import AddRemovePair, AppearingRecords
from pymc_dirdp.privacy.several_records import SpreadRecords

__all__ = ["AcrossGroups"]


@final
@dataclass(frozen=True)
class AcrossGroups(PrivacyCurves):
    """Curves for a person who leaves one group of disjoint people and joins another.

    Where neighbours replace a person, the tables of disjoint groups compose in parallel only if the person stays in the
    group, that is, if the size of each group is public. Otherwise the records disappear from the tables of one group
    and appear in those of another. These curves are for such a change; the whole release loses the larger of this and
    of a replacement within a group, for example `Parallel((within, across))`.

    Parameters
    ----------
    groups : tuple of PrivacyCurves
        For each group the curves of its whole release under **add-remove**; at least two. Dirichlet tables and
        compositions of them.

    Raises
    ------
    ArgumentError
        If there are fewer than two groups.

    References
    ----------
    Theory, section 7.

    Examples
    --------
    >>> from pymc_dirdp.privacy.dominating_pairs import AddRemovePair, ReplaceOnePair
    >>> across = AcrossGroups((AddRemovePair(0.5, 0.1), AddRemovePair(0.5, 0.1)))
    >>> across.renyi(2) == ReplaceOnePair(0.5, 0.5, 0.1).renyi(2)
    True
    """

    groups: tuple[PrivacyCurves, ...]

    def __post_init__(self) -> None:
        if len(self.groups) < 2:
            raise ArgumentError(
                f"Expected at least two groups of people, got {len(self.groups)}. With one group no person can change "
                "groups, so use its own curves."
            )

    @cached_property
    def _distinct(self) -> tuple[PrivacyCurves, ...]:
        """At most two groups of each kind, because a person changes between two groups only."""
        kept: list[PrivacyCurves] = []
        for group in self.groups:
            if sum(group.curve_key == other.curve_key for other in kept) < 2:
                kept.append(group)
        return tuple(kept)

    @override
    def _renyi(self, order: float) -> float:
        losses = [(group._renyi(order), _adding(group)._renyi(order)) for group in self._distinct]
        return max(left[0] + joined[1] for left, joined in itertools.permutations(losses, 2))

    @override
    def _rho(self, omega: float) -> float:
        # For each pair of groups the divergence over its order is convex in the order.
        return max(self._renyi(1.0), self._renyi(omega) / omega) if math.isfinite(omega) else math.inf

    @override
    def _delta(self, epsilon: float) -> float:
        return max(move._delta(epsilon) for move in self._moves)

    @cached_property
    def _moves(self) -> tuple[Composition, ...]:
        """Every change between two groups; the other direction of the composition is the way back."""
        pairs = itertools.combinations(self._distinct, 2)
        return tuple(Composition(((left, 1), (_adding(joined), 1))) for left, joined in pairs)


def _adding(curves: PrivacyCurves) -> PrivacyCurves:
    """The curves of records that appear, from those of records that appear or disappear.

    Noise, and whatever else loses the same in both directions, is returned as it is.
    """
    match CurvesOf.unwrapped(curves):
        case AddRemovePair() | SpreadRecords() as both:
            return AppearingRecords(both)
        case Composition(parts=parts):
            return Composition(tuple((_adding(part), times) for part, times in parts))
        case Parallel(members=members):
            return Parallel(tuple(_adding(member) for member in members))
    return curves
