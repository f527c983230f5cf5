"""What is audited, and many independent releases of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self, cast, final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism

__all__ = ["BlackBox", "Outputs", "Source"]

BlackBox = Callable[[Array], object]
# The outputs along the first axis, or a list where their shapes may differ.
Outputs = Array | Sequence[Array]

# The default number of outputs of a black box.
_DRAWS = 100_000


@final
@dataclass(frozen=True)
class Source:
    """A mechanism of this library with one of its samplers, or a function of the counts that has its own randomness."""

    mechanism: Mechanism | BlackBox
    sampler: str | None = None  # None takes the default of the mechanism.
    steps: int | None = None  # The steps of the urn, for the exact sampler of a mechanism that draws from one.

    @property
    def known(self) -> Mechanism | None:
        """The mechanism of this library; None for a black box."""
        return Mechanism.of(self.mechanism)

    def checked(self) -> Self:
        """The source with the name of its sampler, or an error if there is no such sampler or it takes no steps."""
        known = self.known
        if known is None:
            if self.sampler is not None or self.steps is not None:
                raise ArgumentError("A black box brings its own sampler. Leave out sampler= and steps=.")
            return self
        sampler = known.checked_sampler(self.sampler)
        return replace(self, sampler=sampler, steps=known.checked_steps(self.steps, sampler))

    @property
    def name(self) -> str:
        """The class of the mechanism."""
        return "black box" if self.known is None else type(self.known).__name__

    @property
    def drawn_by(self) -> str:
        """The sampler in words."""
        named = self.sampler or "black box"
        return named if self.steps is None else f"{named}, steps={self.steps}"

    @property
    def default_draws(self) -> int:
        """How many releases an audit makes of each data set by default."""
        return _DRAWS if self.known is None else self.known.outputs_to_audit(str(self.sampler))

    def releases(self, counts: Array, n: int, rng: np.random.Generator) -> Outputs:
        """`n` independent releases of made-up counts; a black box does not use `rng`."""
        if (known := self.known) is not None:
            sampler = known.checked_sampler(self.sampler)
            return known.releases(counts, n, sampler=sampler, random_seed=rng, steps=self.steps)
        box = cast(BlackBox, self.mechanism)
        return [np.asarray(box(counts), dtype=np.float64) for _ in range(n)]
