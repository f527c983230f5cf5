"""A run in batches: each is released once, and never forgotten."""

from collections import ChainMap
from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, final

import numpy as np

from pymc_dirdp.bandits.beliefs import Belief
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.store import OpenBatch, State, StateFile
from pymc_dirdp.bandits.tables import batches_table
from pymc_dirdp.sampling.bits import Bits

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["BatchRun"]

# Arms are drawn so many at a time; they are thrown away when a batch is released.
_AHEAD = 512


@final
class BatchRun:
    """The batches of all arms, and what their releases say of the mean rewards.

    Parameters
    ----------
    design : Design
        The public rules.
    state : State
        What was released, and the open batches.
    bits : Bits
        For noise and coins.
    rng : numpy Generator
        For choices, which are made of what was released.
    """

    def __init__(self, design: Design, state: State, bits: Bits, rng: np.random.Generator) -> None:
        self.design, self.state, self._bits, self._rng = design, state, bits, rng
        self.file: StateFile | None = None
        self._beliefs = [Belief(design.prior, design.mechanism, tuple(one)).narrowed() for one in state.released]
        self._ahead: list[int] = []

    def choose(self, size: int) -> list[int]:
        """The arms of the next visitors, each by a draw of all mean rewards from their posteriors."""
        while len(self._ahead) < size:
            theta = np.stack([belief.draw(max(_AHEAD, size), self._rng) for belief in self._beliefs])
            self._ahead += theta.argmax(axis=0).tolist()
        return [self._ahead.pop() for _ in range(size)]

    def add(self, rewards: Iterable[tuple[int, Fraction, str | None]]) -> None:
        """Put rewards in [0, 1] into the open batches of their arms, all of them or none.

        They are counted in a copy of the state, which takes its place once what it releases is in the file. A reward of
        a person who gave enough of them is left out.
        """
        before, finished = self.state, list[tuple[int, int, int, int]]()
        people = ChainMap({}, before.people)  # What is written to it goes to the first.
        after = State(list(before.released), list(before.open), people)
        for arm, reward, fingerprint in rewards:
            finished += self._closed(after, arm)
            if fingerprint is not None:
                used = people.get(fingerprint, 0)
                if used >= self.design.mechanism.rewards:
                    continue
                people[fingerprint] = used + 1
            after.open[arm] = after.open[arm].plus(reward, self._bits)
            finished += self._closed(after, arm)
        beliefs = list(self._beliefs)
        for arm, _, *batch in finished:
            beliefs[arm] = beliefs[arm].and_batch(*batch)
        # All that can fail comes before this line.
        if self.file is not None and finished:
            self.file.release(after, finished)
        before.people.update(people.maps[0])
        after.people = before.people
        self.state, self._beliefs = after, beliefs
        if finished:
            self._ahead.clear()

    def _closed(self, state: State, arm: int) -> list[tuple[int, int, int, int]]:
        """Draw what is released of the open batch of an arm if it is full: arm, number, size and output."""
        released, batch = state.released[arm], state.open[arm]
        size = self.design.next_size(sum(pulls for pulls, _ in released))
        if batch.pulls < size:
            return []
        output = self.design.mechanism.release(batch.sum, size, self._bits)
        state.released[arm], state.open[arm] = [*released, (size, output)], OpenBatch()
        return [(arm, len(released), size, output)]

    def beliefs(self) -> Sequence[Belief]:
        """The posterior of each arm."""
        return tuple(self._beliefs)

    def table(self, arms: Sequence[Hashable]) -> "xr.Dataset":
        """What was released, batch by batch."""
        return batches_table(arms, self.state.released, self.design.mechanism.output)

    def so_far(self, arms: Sequence[Hashable]) -> Sequence[tuple[str, str]]:
        """How far the run has come, for a report."""
        counts = [len(one) for one in self.state.released]
        return [(str(arm), f"{n} batch{'es' * (n != 1)} released") for arm, n in zip(arms, counts, strict=True)]
