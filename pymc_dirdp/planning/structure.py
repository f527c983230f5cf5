"""How much noise a structure is chosen with, so that it takes a stated share of a guarantee."""

import math
from collections.abc import Sequence

from pymc_dirdp.checks import at_least
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.tree import TreeMechanism
from pymc_dirdp.numerics.roots import largest_safe, log_excess
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_named

__all__ = ["part_of", "tree_within"]

# The margins take this share of what the structure may lose, and the choices take the rest.
_MARGINS = 0.3
# The noise is the least that keeps the part of the guarantee, up to this share of it.
_TIGHT = 1e-4


def part_of(guarantee: Guarantee, share: float) -> Guarantee:
    """The part of a guarantee that a structure may take.

    Budgets that add up are divided. An epsilon with a delta is divided by the root of the share, because losses of
    many choices add up like standard deviations.

    Raises
    ------
    ArgumentError
        If the share is not in (0, 1], or there is no epsilon to divide.
    """
    guarantee = Guarantee.checked(guarantee=guarantee)
    share = at_least(0, share=share)
    if not 0 < share <= 1:
        raise ArgumentError(f"Expected share in (0, 1], got share={share:g}.")
    if guarantee.budget == 0:
        raise ArgumentError("Expected a guarantee with an epsilon above 0: a structure cannot take a part of nothing.")
    return guarantee.with_budget(guarantee.budget * (share if guarantee.adds_up else math.sqrt(share)))


def tree_within(
    guarantee: Guarantee, lengths: Sequence[int], *, adjacency: str = "replace-one", contribution: int = 1
) -> TreeMechanism:
    """The mechanism with the least noise that keeps a guarantee.

    Parameters
    ----------
    guarantee : Guarantee
        What the structure alone has to keep, of any kind.
    lengths, adjacency, contribution
        As for :class:`~pymc_dirdp.mechanisms.tree.TreeMechanism`.

    Returns
    -------
    mechanism : TreeMechanism
        `mechanism.satisfies(guarantee)` is True.

    Raises
    ------
    UnattainableError
        If no noise keeps the guarantee.

    Examples
    --------
    >>> from pymc_dirdp.privacy.guarantees import PureDP
    >>> mechanism = tree_within(PureDP(epsilon=1.0), [2, 3, 4])
    >>> round(mechanism.pure_epsilon, 3)
    1.0
    """
    relation = adjacency_named(adjacency)

    def mechanism(inverse: float) -> TreeMechanism:
        scale = 1 / inverse
        variables = sum(length > 1 for length in lengths)
        # Both scales are for one record; with more of them both sensitivities grow alike.
        choices = max(variables - 1, 1)
        width = min(2, choices) * relation.delta_1 / scale
        if guarantee.is_pure:
            noise, parameter = "geometric", relation.delta_1 * variables / (choices * width) * (1 / _MARGINS - 1)
        else:
            spent = choices * width**2 / 8 / (1 / _MARGINS - 1)
            noise, parameter = "gaussian", math.sqrt(variables * relation.delta_2_squared / (2 * spent))
        return TreeMechanism(tuple(lengths), scale, parameter, noise, adjacency=adjacency, contribution=contribution)

    mechanism(1.0)  # What is wrong with the lengths is no matter of the noise.

    def excess(inverse: float) -> float:
        try:
            return log_excess(*mechanism(inverse).loss(guarantee))
        except ArgumentError:
            # The noise is smaller or larger than any that can be drawn.
            return math.inf if inverse > 1 else -math.inf

    try:
        return mechanism(largest_safe(excess, rtol=_TIGHT))
    except ArgumentError:
        raise UnattainableError("The guarantee is so tight that no noise keeps it; relax it.") from None
