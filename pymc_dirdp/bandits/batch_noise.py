"""The sum of a batch of rewards with noise on it: one number, and what it says of the mean reward."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.bandits.noisy_binomial import log_probability, slope
from pymc_dirdp.checks import integer, positive
from pymc_dirdp.mechanisms.whole_noise import geometric_noise, used_scale
from pymc_dirdp.numerics.roots import largest_safe, log_excess
from pymc_dirdp.numerics.rounding import not_below
from pymc_dirdp.privacy.curves import CurvesOf
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.randomised_response import RandomisedResponse
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_laplace

__all__ = ["BatchNoise"]


@final
@dataclass(frozen=True)
class BatchNoise(CurvesOf):
    """Two-sided geometric noise on the sum of each batch; its curves are those of a whole run.

    A reward lies in one batch, and which one depends on pulls alone. So all that is released and done is
    post-processing of the one noisy sum that holds it (Theory, section 17).

    Parameters
    ----------
    scale : float
        Scale of the noise, positive; it is rounded up to 41 binary digits.
    rewards : int
        How many rewards one person gives at most. Their changes to all sums add up to no more than that.

    Examples
    --------
    >>> BatchNoise(2.0).pure_epsilon
    0.5
    """

    scale: float
    rewards: int = 1

    name: ClassVar[str] = "geometric"
    output: ClassVar[str] = "noisy_sum"
    largest_batch: ClassVar[int] = 2**53

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", used_scale(self.scale))
        object.__setattr__(self, "rewards", integer(1, rewards=self.rewards))

    @cached_property
    def _curves(self) -> RandomisedResponse:
        """No pair of distributions with pure privacy loses more; for one reward it is the pair of noisy sums itself."""
        loss = not_below(self.rewards / Fraction(self.scale))
        return RandomisedResponse(loss, 1, loss)

    @classmethod
    def for_guarantee(cls, guarantee: Guarantee, *, prior: tuple[float, float] = (1.0, 1.0), rewards: int = 1) -> Self:
        """The least noise that keeps a guarantee for the whole run. No prior changes it.

        Raises
        ------
        UnattainableError
            If the guarantee is so loose that no noise is needed, or so tight that none suffices.
        """
        guarantee = Guarantee.checked(guarantee=guarantee)

        def excess(inverse: float) -> float:
            return log_excess(*cls(1 / inverse, rewards).loss(guarantee))

        return cls(1 / largest_safe(excess, least=2.0**-900, most=2.0**900), rewards)

    @property
    def first_batch(self) -> int:
        """A first batch in which the noise does not hide the rewards altogether: two scales of the noise."""
        # The scale was rounded up a little, which should not cost a pull.
        return max(1, math.ceil(2 * self.scale * (1 - 1e-9)))

    def release(self, total: int, size: int, bits: Bits) -> int:
        """The noisy sum of a batch. The noise is drawn with integers alone."""
        return total + int(discrete_laplace(Fraction(self.scale), (1,), bits)[0])

    def simulated(self, total: int, size: int, rng: np.random.Generator) -> int:
        """A noisy sum of made-up rewards, in floating point."""
        return total + int(geometric_noise(self.scale, (), rng))

    def log_likelihood(self, released: int, size: int, means: Array) -> Array:
        """Logarithm of the probability of a noisy sum, for mean rewards in (0, 1)."""
        return log_probability(released, size, means, self.scale)

    def slope(self, released: int, size: int, means: Array) -> Array:
        """The derivative of the log-likelihood in the mean reward."""
        return slope(released, size, means, self.scale)

    def facts(self) -> Sequence[tuple[str, str]]:
        """What a report says of the noise."""
        return [("noise", f"two-sided geometric noise of scale {self.scale:.6g}, drawn in whole numbers, on each sum")]

    def fits(self, released: int, size: int) -> bool:
        """Whether a batch can have output this number: noise of 2000 scales has a probability below `exp(-1999)`."""
        return abs(released) <= size + 2000 * Fraction(self.scale)

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> Self:
        """The noise that a file holds."""
        return cls(positive(scale=facts["scale"]), facts["rewards"])

    def to_json(self) -> dict[str, Any]:
        """Name and parameters, for a file."""
        return {"mechanism": self.name, "scale": self.scale, "rewards": self.rewards}
