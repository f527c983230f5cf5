"""How much a release may change what anyone believes about one person: odds and probabilities in words, from above."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

from pymc_dirdp.numerics.gamma import LARGEST_EXPONENT
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.numerics.roots import floor_to_digits as down
from pymc_dirdp.privacy.curves import PrivacyCurves, worst_curves
from pymc_dirdp.privacy.guarantees import Guarantee

DELTA = 1e-6
"""A guarantee without a delta is also given as an epsilon at this one."""


def delta_of(guarantee: Guarantee) -> float:
    """The delta at which a guarantee is stated as an epsilon."""
    return guarantee.stated_delta or DELTA


@final
@dataclass(frozen=True)
class Odds:
    """By how much anyone's odds of the truth about one person may rise at most.

    Parameters
    ----------
    curves : PrivacyCurves
        Those of what was published, or the largest that its guarantee allows.
    delta : float
        The factor holds but with this probability.
    secret : str
        What the odds are about.
    """

    curves: PrivacyCurves
    delta: float
    secret: str

    @classmethod
    def of_guarantee(cls, guarantee: Guarantee, secret: str, *, times: int = 10) -> Self:
        """The odds where nothing but the guarantee is known. With its own delta there is no bound, so some times it."""
        delta = guarantee.stated_delta
        return cls(worst_curves(guarantee), min(1.0, up(times * delta)) if delta else DELTA, secret)

    @cached_property
    def log_factor(self) -> float:
        """The logarithm of the factor by which odds of the truth rise at most; from above."""
        # Factors of delta at which the curve is asked for the best bound on odds.
        at = [
            (part * self.delta, float(self.curves.epsilon(part * self.delta)))
            for part in (0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01)
            if part * self.delta > 0
        ]
        return min([self.curves.pure_epsilon, *(epsilon - math.log1p(-b / self.delta) for b, epsilon in at)])

    def __str__(self) -> str:
        if math.isinf(self.log_factor):
            return "anything, because no bound follows"
        short = self.log_factor < LARGEST_EXPONENT
        factor = f"{up(math.exp(self.log_factor), 3):.3g}" if short else f"exp({up(self.log_factor, 4):.4g})"
        bounded = self.curves.pure_epsilon <= self.log_factor
        return f"{factor} at most" + f", except with a probability of at most {up(self.delta):g}" * (not bounded)

    def paragraph(self, published: str, numbers: str) -> str:
        """What was published of whom, what anyone may infer from it, and how random its numbers are."""
        return (
            f"{published} with differential privacy. Whatever anyone believes about {self.secret}, and whatever else "
            f"they know, this multiplies their odds for the truth by {self}. An even chance before becomes "
            f"{chance(self.log_factor)} at most. {numbers}"
        )


def chance(log_odds: float) -> str:
    """The probability that has these odds."""
    if math.isinf(log_odds):
        return "certainty"
    if log_odds > LARGEST_EXPONENT:
        return f"1 - exp(-{up(log_odds * (1 + 1e-12), 4):.4g})"
    return _percent(1 / (1 + math.exp(-log_odds)), 1 / (1 + math.exp(log_odds)))


def _percent(probability: float, rest: float) -> str:
    """A probability from above, given what is missing to 1: it is not rounded to 100 % where it is less."""
    # What is missing to 100 % is seen in three digits from here on.
    if rest >= 1e-3:
        return f"{up(100 * probability, 3):.3g} %"
    return f"1 - {down(rest, 2):.2g}"


def randomness(logs: Iterable[float | None], *, least: float = 1e-12) -> str:
    """What is random in a release, and how likely it is that its noisy counts are the counts.

    Parameters
    ----------
    logs : iterable of float or None
        For each table the logarithm of the probability that all its noise is 0, or None if it has none.
    least : float
        Noise with a probability below it is called none: the logarithm of its complement has no more digits.
    """
    logs = list(logs)
    known = [log for log in logs if log is not None]
    if not logs or len(known) < len(logs):
        return "The numbers are random on purpose."
    if -math.fsum(map(math.expm1, known)) < least:
        return f"All noise is 0 but for a probability below {least:g}: the numbers rest on the counts themselves."
    # All of them are the counts at most as often as those of one table.
    same = _percent(math.exp(min(known)), -math.expm1(min(known)))
    return (
        f"The numbers are noisy on purpose: all noise is 0, and they rest on the counts themselves, with a probability "
        f"of {same} at most."
    )
