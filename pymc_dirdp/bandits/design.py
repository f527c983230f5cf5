"""The public rules of a private bandit: its mechanism, its prior, and the sizes of its batches."""

import math
from dataclasses import dataclass
from typing import Any, final

from pymc_dirdp.bandits.batch_draw import BatchDraw
from pymc_dirdp.bandits.batch_noise import BatchNoise
from pymc_dirdp.checks import integer, one_of, positive
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["MECHANISMS", "BatchMechanism", "Design"]

BatchMechanism = BatchNoise | BatchDraw
MECHANISMS = ("geometric", "dirichlet")


@final
@dataclass(frozen=True, kw_only=True)
class Design:
    """What is public before the first pull. Pulls alone decide when a batch ends.

    Attributes
    ----------
    mechanism : BatchNoise or BatchDraw
        What is released of each batch.
    prior : (float, float)
        Beta prior of each mean reward.
    first_batch : int
        Size of the first batch of an arm.
    growth : float
        The next batch has this many times as many pulls as all earlier ones of the arm, and at least `first_batch`.
    """

    mechanism: BatchMechanism
    prior: tuple[float, float] = (1.0, 1.0)
    first_batch: int = 1
    growth: float = 1.0

    @classmethod
    def of(
        cls,
        guarantee: Guarantee,
        *,
        mechanism: str,
        prior: tuple[float, float],
        first_batch: int | None,
        growth: float,
        rewards: int,
    ) -> "Design":
        """The rules that keep a guarantee for a whole run of any length."""
        try:
            a, b = prior
        except (TypeError, ValueError):
            raise ArgumentError("Expected prior to be a pair of positive numbers, those of a Beta law.") from None
        pair = positive(prior=a), positive(prior=b)
        rewards = integer(1, contribution=rewards)
        chosen: BatchMechanism
        if one_of(MECHANISMS, mechanism=mechanism) == "geometric":
            chosen = BatchNoise.for_guarantee(guarantee, rewards)
        elif rewards > 1:
            raise ArgumentError(
                "mechanism='dirichlet' is for one reward of a person: how several in different batches add up is not "
                "known. Use mechanism='geometric'."
            )
        else:
            chosen = BatchDraw.for_guarantee(guarantee, pair)
        first = chosen.first_batch if first_batch is None else integer(1, first_batch=first_batch)
        return cls(mechanism=chosen, prior=pair, first_batch=first, growth=positive(growth=growth))

    def next_size(self, pulls: int) -> int:
        """The size of the next batch of an arm with so many pulls in finished batches."""
        return min(max(self.first_batch, math.ceil(self.growth * pulls)), self.mechanism.largest_batch)

    def to_json(self) -> dict[str, Any]:
        """All rules, for a file."""
        return {
            **self.mechanism.to_json(),
            "prior": list(self.prior),
            "first_batch": self.first_batch,
            "growth": self.growth,
        }

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Design":
        """The rules of a file."""
        mechanism: BatchMechanism
        if one_of(MECHANISMS, mechanism=facts["mechanism"]) == "geometric":
            mechanism = BatchNoise(facts["scale"], facts["rewards"])
        else:
            mechanism = BatchDraw((facts["alpha"][0], facts["alpha"][1]), facts["r"])
        a, b = facts["prior"]
        return cls(
            mechanism=mechanism,
            prior=(positive(prior=a), positive(prior=b)),
            first_batch=integer(1, first_batch=facts["first_batch"]),
            growth=positive(growth=facts["growth"]),
        )
