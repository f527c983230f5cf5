"""What a bandit guarantees, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.every_round import EveryRound
from pymc_dirdp.bandits.settings import REWARD, Settings
from pymc_dirdp.display import Labelled, Sections

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


def told(settings: Settings[Design | EveryRound], state: Sequence[tuple[str, str]]) -> BanditReport:
    """The report of a bandit, by public numbers only.

    Parameters
    ----------
    settings : Settings
    state : sequence of (str, str)
        How far the run has come, in public words.
    """
    design = settings.design
    privacy = [
        ("guarantee", f"{settings.guarantee}, for {design.span}"),
        ("protects", _protected(settings.unit, settings.rewards)),
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
    if settings.unit != REWARD:
        privacy.append(("assumed", f"one {settings.unit} has the same name in every update"))
    if settings.seeded:
        privacy.append(("warning", "drawn with a seed, so this run is not private"))
    sections = (("Privacy", tuple(privacy)), ("Rules", tuple(design.facts())), ("So far", tuple(state)))
    return BanditReport("Private Thompson sampling", sections)
