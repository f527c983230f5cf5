"""What a bandit promises, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, override

from pymc_dirdp.bandits.rewards import REWARD
from pymc_dirdp.display import Labelled, Sections

if TYPE_CHECKING:
    from pymc_dirdp.bandits.thompson import ThompsonSampler

__all__ = ["BanditReport", "told"]


@dataclass(frozen=True)
class BanditReport(Labelled):
    """Sections of labelled lines. `print` it, or let a notebook show it.

    Attributes
    ----------
    title : str
    sections : tuple of (str, tuple of (str, str))
    """

    title: str
    sections: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]

    @override
    def _told(self) -> tuple[str, Sections]:
        return self.title, self.sections


def _protected(unit: str, rewards: int) -> str:
    if unit == REWARD:
        return (
            "one reward: nobody can tell it from another reward in [0, 1]. Somebody with several rewards is protected "
            "less; contribution= protects people"
        )
    if rewards == 1:
        return f"one {unit} with at most 1 reward: nobody can tell it from another reward in [0, 1]"
    return f"one {unit} with at most {rewards} rewards: nobody can tell them from other rewards in [0, 1]"


def told(bandit: "ThompsonSampler", batches: Sequence[int], *, unit: str, seeded: bool) -> BanditReport:
    """The report of a bandit, by public numbers only."""
    design = bandit.design
    privacy = [
        ("guarantee", f"{bandit.guarantee}, for the whole run of any length: all choices and all that is released"),
        ("protects", _protected(unit, design.mechanism.rewards)),
        (
            "holds if",
            "rewards are reported in the order of the choices, at a deadline that does not depend on them, a missing "
            "one as 0; and everybody who sees the choices sees nothing else of the rewards",
        ),
        (
            "not covered",
            "who was a visitor and when; the sum of all rewards, unless it is released by a mechanism of its own",
        ),
    ]
    if seeded:
        privacy.append(("warning", "drawn with a seed, so this run is not private"))
    rules = [
        *design.mechanism.facts(),
        (
            "batches",
            f"the first of an arm has {design.first_batch} pulls, and each next one {design.growth:g} times the pulls "
            "before it; only pulls decide when it ends",
        ),
        ("prior", f"Beta({design.prior[0]:g}, {design.prior[1]:g}) for each mean reward"),
    ]
    state = [(str(arm), f"{n} batch{'es' * (n != 1)} released") for arm, n in zip(bandit.arms, batches, strict=True)]
    sections = (("Privacy", tuple(privacy)), ("Rules", tuple(rules)), ("Arms", tuple(state)))
    return BanditReport("Private Thompson sampling", sections)
