"""The change in anyone's belief about one person: bounds on posterior odds and probabilities, in words."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

from pymc_dirdp.numerics.gamma import LARGEST_EXPONENT
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.numerics.roots import floor_to_digits as down
from pymc_dirdp.numerics.roots import raised
from pymc_dirdp.privacy.curves import PrivacyCurves, worst_curves
from pymc_dirdp.privacy.guarantees import Guarantee

DELTA = 1e-6
"""A guarantee without a delta is also stated as an epsilon at this one."""


def delta_of(guarantee: Guarantee) -> float:
    """The delta at which a guarantee is stated as an epsilon."""
    return guarantee.stated_delta or DELTA


@final
@dataclass(frozen=True)
class Odds:
    """The largest factor by which a release may raise anyone's odds for the truth about one person (a Bayes factor).

    Parameters
    ----------
    curves : PrivacyCurves
        The curves of the release, or the largest that its guarantee allows.
    delta : float
        The probability with which the factor may not hold.
    secret : str
        The subject of the odds.
    """

    curves: PrivacyCurves
    delta: float
    secret: str

    @classmethod
    def of_guarantee(cls, guarantee: Guarantee, secret: str, *, times: int = 10) -> Self:
        """The odds if only the guarantee is known. At its own delta there is no bound, so a multiple of it is used."""
        delta = guarantee.stated_delta
        return cls(worst_curves(guarantee), min(1.0, up(times * delta)) if delta else DELTA, secret)

    @cached_property
    def log_factor(self) -> float:
        """The logarithm of the largest factor on the posterior odds; from above."""
        # Shares of delta at which the curve gives bounds on odds.
        points = [
            (part * self.delta, float(self.curves.epsilon(part * self.delta)))
            for part in (0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01)
            if part * self.delta > 0
        ]
        bounds = [raised(epsilon - math.log1p(-b / self.delta), 4) for b, epsilon in points]
        return min([self.curves.pure_epsilon, *bounds])

    def __str__(self) -> str:
        if math.isinf(self.log_factor):
            return "anything, because no bound follows"
        is_moderate = self.log_factor < LARGEST_EXPONENT
        factor = f"exp({up(self.log_factor, 4):.4g})"
        if is_moderate:
            factor = f"{up(raised(math.exp(self.log_factor), 4), 3):.3g}"
        is_pure = self.curves.pure_epsilon <= self.log_factor
        return f"{factor} at most" + f", except with a probability of at most {up(self.delta):g}" * (not is_pure)

    def paragraph(self, published: str, numbers: str) -> str:
        """A paragraph on the release, on what anyone may infer from it, and on the randomness of its numbers."""
        return (
            f"{published} with differential privacy. Whatever anyone believes about {self.secret}, and whatever else "
            f"they know, this multiplies their odds for the truth by {self}. An even chance before becomes "
            f"{chance(self.log_factor)} at most. {numbers}"
        )


def chance(log_odds: float) -> str:
    """The probability with these odds."""
    if math.isinf(log_odds):
        return "certainty"
    if log_odds > LARGEST_EXPONENT:
        return f"1 - exp(-{up(raised(log_odds, 4), 4):.4g})"
    return _percent(raised(1 / (1 + math.exp(-log_odds)), 4), 1 / raised(1 + math.exp(log_odds), 4))


def _percent(probability: float, rest: float) -> str:
    """A probability, rounded up, given its complement: it is not rounded to 100 % if it is less."""
    # From here on three digits differ from 100 %.
    if rest >= 1e-3:
        return f"{up(100 * probability, 3):.3g} %"
    return f"1 - {down(rest, 2):.2g}"


def randomness(logs: Iterable[float | None], *, min_probability: float = 1e-12) -> str:
    """The randomness of a release, and the probability that its noisy counts are the counts.

    Parameters
    ----------
    logs : iterable of float or None
        For each table the logarithm of the probability that all its noise is 0, or None without noise.
    min_probability : float
        Smaller probabilities are not reported, neither of noise nor of none: the logarithm of a complement has no more
        digits, and no reader expects what never happens.
    """
    logs = list(logs)
    log_probabilities = [log for log in logs if log is not None]
    if not logs or len(log_probabilities) < len(logs):
        return "The numbers are random on purpose."
    if -math.fsum(map(math.expm1, log_probabilities)) < min_probability:
        least = f"{min_probability:g}"
        return f"All noise is 0 but for a probability below {least}: the numbers rest on the counts themselves."
    # The probability for all tables is at most that of one table.
    if math.exp(min(log_probabilities)) < min_probability:
        return "The numbers are noisy on purpose."
    probability = _percent(math.exp(min(log_probabilities)), -math.expm1(min(log_probabilities)))
    return (
        f"The numbers are noisy on purpose: all noise is 0, and they rest on the counts themselves, with a probability "
        f"of {probability} at most."
    )
