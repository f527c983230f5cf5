"""All that was chosen privately before a release, from the same records: what it has cost together, and its facts."""

from collections.abc import Sequence
from typing import Any

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.stored.bins import Bins
from pymc_dirdp.stored.choice import PrivateChoice
from pymc_dirdp.stored.structure import Structure

__all__ = ["choices_of", "followed_by", "losses_of"]

_KINDS: dict[str, type[PrivateChoice]] = {f"pymc_dirdp {kind.called}": kind for kind in (Bins, Structure)}
# A model has no more tables than this, and a file must not take for ever.
_MOST = 1000


def losses_of(choices: Sequence[PrivateChoice]) -> tuple[tuple[PrivacyCurves, int], ...]:
    """The curves of each choice, once: equal ones that were made twice have cost twice."""
    return tuple((choice.mechanism, 1) for choice in choices)


def followed_by(choices: Sequence[PrivateChoice], curves: PrivacyCurves) -> PrivacyCurves:
    """The curves of the choices and of what is released after them, from the same records."""
    return Composition((*losses_of(choices), (curves, 1))) if choices else curves


def choices_of(facts: Any) -> tuple[PrivateChoice, ...]:
    """The choices of which these are the facts. Nothing is believed.

    Raises
    ------
    ArgumentError
        If they are no such facts, or one of them is damaged.
    """
    if not isinstance(facts, list) or not 0 < len(facts) <= _MOST or not all(isinstance(one, dict) for one in facts):
        raise ArgumentError("Expected a list of what was chosen before.")
    kinds = [_KINDS.get(str(one.get("format"))) for one in facts]
    if None in kinds:
        raise ArgumentError("Something was chosen before, and it is neither bins nor a structure.")
    return tuple(kind.from_facts(one) for kind, one in zip(kinds, facts, strict=True) if kind is not None)
