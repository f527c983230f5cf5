"""A run in batches: each is released once, and never forgotten."""

from collections.abc import Hashable, Sequence
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

    def add(self, arm: int, reward: Fraction, fingerprint: str | None) -> None:
        """Put a reward in [0, 1] into the open batch of its arm, unless its person gave enough of them."""
        self._close_if_full(arm)
        if fingerprint is not None:
            used = self.state.people.get(fingerprint, 0)
            if used >= self.design.mechanism.rewards:
                return
            self.state.people[fingerprint] = used + 1
        batch = self.state.open[arm]
        batch.pulls += 1
        batch.sum += int(self._bits.uniform(reward.denominator) < reward.numerator)
        self._close_if_full(arm)

    def _close_if_full(self, arm: int) -> None:
        """Release the sum of a batch once. It is in the file before it is anywhere else."""
        released, batch = self.state.released[arm], self.state.open[arm]
        size = self.design.next_size(sum(pulls for pulls, _ in released))
        if batch.pulls < size:
            return
        output = self.design.mechanism.release(batch.sum, size, self._bits)
        if self.file is not None:
            self.file.release(self.state, arm, size, output)
        released.append((size, output))
        self.state.open[arm] = OpenBatch()
        self._beliefs[arm] = self._beliefs[arm].and_batch(size, output)
        self._ahead.clear()

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
