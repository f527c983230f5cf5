"""The public rules of a private bandit: its mechanism, its prior, and the sizes of its batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from pymc_dirdp.bandits.batch_release import BatchCounts, BatchDraw, BatchNoise, Output
from pymc_dirdp.checks import integer, one_of, positive
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["BatchMechanism", "Design", "checked_prior"]

BatchMechanism = BatchNoise | BatchDraw | BatchCounts
# The mechanisms of a batch by name; a new one is one more class here. The first is the default.
_KINDS: dict[str, type[BatchMechanism]] = {kind.name: kind for kind in (BatchNoise, BatchDraw, BatchCounts)}
_SUREST = 1e12


@final
@dataclass(frozen=True, kw_only=True)
class Design:
    """What is public before the first pull. Pulls alone decide when a batch ends.

    Attributes
    ----------
    mechanism : BatchNoise, BatchCounts or BatchDraw
        What is released of each batch.
    prior : tuple of float
        Beta prior of each mean reward; for BatchCounts the Dirichlet prior of the shares of the cells.
    first_batch : int
        Size of the first batch of an arm.
    growth : float
        The next batch has this many times as many pulls as all earlier ones of the arm, and at least `first_batch`.

    Examples
    --------
    >>> from pymc_dirdp.bandits import BatchNoise
    >>> Design(mechanism=BatchNoise(2.0), growth=0.5).growth
    0.5
    """

    mechanism: BatchMechanism
    prior: tuple[float, ...] = (1.0, 1.0)
    first_batch: int = 1
    growth: float = 1.0

    @classmethod
    def of(
        cls,
        guarantee: Guarantee,
        *,
        mechanism: str | None,
        prior: tuple[float, ...],
        first_batch: int | None,
        growth: float,
        rewards: int,
        worths: tuple[float, ...] = (),
    ) -> "Design":
        """The rules that keep a guarantee for a whole run of any length; `worths` are those of `utilities`."""
        kind = _KINDS[one_of(_KINDS, mechanism="geometric" if mechanism is None else mechanism)]
        chosen = kind.for_guarantee(guarantee, prior=prior, rewards=integer(1, contribution=rewards), worths=worths)
        first = chosen.first_batch if first_batch is None else integer(1, first_batch=first_batch)
        return cls(mechanism=chosen, prior=prior, first_batch=first, growth=positive(growth=growth))

    @property
    def privacy(self) -> PrivacyCurves:
        """The curves of a whole run, of any length."""
        return self.mechanism

    @property
    def rewards(self) -> int:
        """How many rewards one person gives at most."""
        return self.mechanism.rewards

    @property
    def span(self) -> str:
        """What the guarantee covers, for a report."""
        return "the whole run of any length: all choices and all that is released"

    def facts(self) -> Sequence[tuple[str, str]]:
        """What a report says of the rules."""
        prior = ", ".join(f"{one:g}" for one in self.prior)
        return [
            *self.mechanism.facts(),
            (
                "batches",
                f"the first of an arm has {self.first_batch} pulls, and each next one {self.growth:g} times the pulls "
                "before it; only pulls decide when it ends",
            ),
            (
                "prior",
                f"Beta({prior}) for each mean reward"
                if len(self.prior) == 2
                else f"Dirichlet({prior}) for the shares of the categories of each arm",
            ),
        ]

    def next_size(self, pulls: int) -> int:
        """The size of the next batch of an arm with so many pulls in finished batches."""
        return min(max(self.first_batch, math.ceil(self.growth * pulls)), self.mechanism.largest_batch)

    def refuse_others(self, batches: Sequence[tuple[int, Output]]) -> None:
        """Refuse the finished batches of an arm, sizes and outputs, that do not follow from the rules."""
        pulls = 0
        for size, output in batches:
            if size != self.next_size(pulls) or not self.mechanism.fits(output, size):
                raise ArgumentError(
                    "A batch has another size than its settings say, or an output that its mechanism cannot produce."
                )
            pulls += size

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
        mechanism = _KINDS[facts["mechanism"]].from_json(facts)
        return cls(
            mechanism=mechanism,
            prior=checked_prior(facts["prior"], len(mechanism.worths)),
            first_batch=integer(1, first_batch=facts["first_batch"]),
            growth=positive(growth=facts["growth"]),
        )


def checked_prior(prior: object, cells: int = 2) -> tuple[float, ...]:
    """The parameters of a Beta or Dirichlet prior."""
    given: Any = prior
    try:
        numbers = tuple(given)
    except TypeError:
        numbers = ()
    if len(numbers) != cells:
        wanted = "a pair of positive numbers, those of a Beta distribution"
        if cells > 2:
            wanted = f"{cells} positive numbers, those of a Dirichlet distribution of the categories"
        raise ArgumentError(f"Expected prior to be {wanted}.")
    parameters = tuple(positive(prior=one) for one in numbers)
    # A prior that is surer has a width that doubles near 1 do not resolve.
    if max(parameters) > _SUREST:
        raise ArgumentError(f"Expected prior to have no parameter above {_SUREST:g}; such a prior never learns.")
    return parameters
