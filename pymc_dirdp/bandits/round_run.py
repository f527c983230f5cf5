"""A run with a private draw of every arm in every round: all rewards are released again and again."""

from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NoReturn, final

from pymc_dirdp.bandits.every_round import EveryRound
from pymc_dirdp.bandits.store import State, StateFile
from pymc_dirdp.bandits.tables import draws_table
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.bits import Bits

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["RoundRun"]


@final
class RoundRun:
    """The rewards of all arms, and the draws that were taken.

    Parameters
    ----------
    design : EveryRound
        The public rules.
    state : State
        Its open batches hold all rewards, and are never closed.
    bits : Bits
        For draws and coins.
    """

    def __init__(self, design: EveryRound, state: State, bits: Bits) -> None:
        self.design, self.state, self._bits = design, state, bits
        self.file: StateFile | None = None
        self._draws: list[tuple[float, ...]] = []

    def choose(self, size: int) -> list[int]:
        """The arms of the next visitors; each is a round with a draw of every arm."""
        left = self.design.horizon - len(self._draws)
        if size > left:
            raise ArgumentError(
                f"The guarantee is for {self.design.horizon} rounds, of which {left} are left. Make a bandit with a "
                "longer horizon before it begins, or use batches, which keep their guarantee for a run of any length."
            )
        return [self._round() for _ in range(size)]

    def _round(self) -> int:
        drawn = tuple(self.design.draw(one.sum, one.pulls, self._bits) for one in self.state.open)
        self._draws.append(drawn)
        largest = [arm for arm, one in enumerate(drawn) if one == max(drawn)]
        return largest[self._bits.uniform(len(largest))]

    def add(self, rewards: Iterable[tuple[int, Fraction, str | None]]) -> None:
        """Count rewards in [0, 1] of their arms, all of them or none."""
        counted = list(self.state.open)
        for arm, reward, _ in rewards:
            counted[arm] = counted[arm].plus(reward, self._bits)
        self.state.open = counted

    def beliefs(self) -> NoReturn:
        """Refused: there are only the draws."""
        raise ArgumentError(
            "Draws of every round are all made of the same rewards, so they have no likelihoods that multiply, and a "
            "run with schedule='every-round' has no posterior beside the draws in `released`. Use batches."
        )

    def table(self, arms: Sequence[Hashable]) -> "xr.Dataset":
        """What was released, round by round."""
        return draws_table(arms, self._draws)

    def so_far(self, arms: Sequence[Hashable]) -> Sequence[tuple[str, str]]:
        """How far the run has come, for a report."""
        return [("rounds", f"{len(self._draws)} of {self.design.horizon} are over")]
