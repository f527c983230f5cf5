"""What is audited, and many independent releases of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism

__all__ = ["BlackBox", "Outputs", "Source"]

BlackBox = Callable[[Array], object]
# The outputs along the first axis, or a list where their shapes may differ.
Outputs = Array | Sequence[Array]

# The default numbers of draws. An urn takes a thousand times as long as another sampler.
_DRAWS, _URN_DRAWS = 100_000, 10_000


@final
@dataclass(frozen=True)
class Source:
    """A mechanism of this library with one of its samplers, or a function of the counts that has its own randomness."""

    mechanism: Mechanism | BlackBox
    sampler: str | None = None  # None takes the default of the mechanism.
    steps: int | None = None  # The steps of the urn, for the exact sampler of a mechanism that draws from one.

    def checked(self) -> Self:
        """The source with the name of its sampler, or an error if there is no such sampler or it takes no steps."""
        if not isinstance(self.mechanism, Mechanism):
            if self.sampler is not None or self.steps is not None:
                raise ArgumentError("A black box brings its own sampler. Leave out sampler= and steps=.")
            return self
        sampler = self.mechanism.checked_sampler(self.sampler)
        if self.steps is not None and not (self.mechanism.has_urn and sampler == "exact"):
            raise ArgumentError(
                "steps is for the urn of sampler='exact', as a DirichletMechanism has it. Leave it out."
            )
        return replace(self, sampler=sampler)

    @property
    def name(self) -> str:
        """The class of the mechanism."""
        return type(self.mechanism).__name__ if isinstance(self.mechanism, Mechanism) else "black box"

    @property
    def drawn_by(self) -> str:
        """The sampler in words."""
        named = self.sampler or "black box"
        return named if self.steps is None else f"{named}, steps={self.steps}"

    @property
    def default_draws(self) -> int:
        """How many releases an audit makes of each data set by default."""
        urn = isinstance(self.mechanism, Mechanism) and self.mechanism.has_urn and self.sampler == "exact"
        return _URN_DRAWS if urn else _DRAWS

    def releases(self, counts: Array, n: int, rng: np.random.Generator) -> Outputs:
        """`n` independent releases of made-up counts; a black box does not use `rng`."""
        if isinstance(self.mechanism, Mechanism):
            sampler = self.mechanism.checked_sampler(self.sampler)
            return self.mechanism.releases(counts, n, sampler=sampler, random_seed=rng, steps=self.steps)
        return [np.asarray(self.mechanism(counts), dtype=np.float64) for _ in range(n)]
