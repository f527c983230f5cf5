"""The result of an audit: its bounds, what it could have refuted, and what it cannot see."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, final, override

from pymc_dirdp.auditing.power import CHANCE
from pymc_dirdp.display import Tabular
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["Audit", "Bound"]


@final
@dataclass(frozen=True)
class Bound:
    """A lower bound of the privacy loss, beside what is stated.

    Attributes
    ----------
    measure : str
        The name of what is bounded.
    lower : float
        The loss is at least this, with the confidence of the audit.
    stated : float
        What the claim allows or the curve says; `nan` if neither does.
    refutable : float
        If the true value were this or more, what is stated would have been refuted with probability 0.9, for the
        distributions that `alternative` names and for the data sets of the audit. It is computed from the distributions
        that a sampler stands for, without the grid of an exact one. It is `nan` if nothing is stated.
    alternative : str
        The distributions that were tried as the true one, for `refutable`.
    rarest : float
        The least probability with which an event of one data set that the other never gives refutes what is stated in
        nine of ten audits. It is `nan` if nothing is stated.
    ceiling : float
        The largest lower bound that so many outputs can give: a larger loss cannot be seen.
    hits_p, trials_p : int
        How often the event happened for the data set that makes it likelier, and of how many outputs.
    hits_q, trials_q : int
        How often it happened for the other data set, and of how many outputs.
    """

    measure: str
    lower: float
    stated: float
    refutable: float
    alternative: str
    rarest: float
    ceiling: float
    hits_p: int
    trials_p: int
    hits_q: int
    trials_q: int

    @property
    def exceeded(self) -> bool:
        """Whether more is lost than stated."""
        return self.lower > self.stated


@final
@dataclass(frozen=True)
class Audit(Tabular):
    """The result of an attack. `print` it, or let a notebook show it.

    Attributes
    ----------
    mechanism : str
        The name of its class.
    sampler : str
        The sampler that the outputs come from, with the number of steps if it was given; `"black box"` for a function.
    n : int
        Number of outputs for each data set. Which part of them is counted is decided by fair coins.
    confidence : float
        All bounds hold at once with this probability at least, over the outputs.
    claim : Guarantee, PrivacyCurves or None
        What was stated about the mechanism.
    last_bits : bool
        Whether the last bits of floating-point numbers were looked at.
    bounds : tuple of Bound
        The first is about the claim, if that is a guarantee; then come an epsilon for each delta, and delta at 0.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> mechanism = dirdp.mechanisms.GeometricMechanism([1, 1], 2.0)
    >>> found = dirdp.audit(mechanism, n=2000, random_seed=1)
    >>> found.n
    2000
    """

    mechanism: str
    sampler: str
    n: int
    confidence: float
    claim: Guarantee | PrivacyCurves | None
    last_bits: bool
    bounds: tuple[Bound, ...]

    _columns = tuple(field.name for field in fields(Bound) if field.name != "alternative")

    @property
    def verdict(self) -> str:
        """`"refuted"`, `"consistent"`, or `"nothing stated"`. Consistent is no proof: another attack may find more."""
        if any(bound.exceeded for bound in self.bounds):
            return "refuted"
        return "nothing stated" if all(math.isnan(bound.stated) for bound in self.bounds) else "consistent"

    @property
    def power(self) -> str:
        """What this audit would have refuted, in words; empty if nothing was stated."""
        sentences = [
            f"{bound.measure}: stated {bound.stated:.4g}; {_would_have(bound)}"
            for bound in self.bounds
            if not math.isnan(bound.stated)
        ]
        if not sentences:
            return ""
        return "\n".join([f"With {self.n} draws from each of the two data sets:", *(f"  {one}" for one in sentences)])

    @property
    def blind_spots(self) -> str:
        """What this audit cannot see, in words."""
        rarest = min((bound.rarest for bound in self.bounds if not math.isnan(bound.rarest)), default=math.inf)
        rare = f"an event of probability below {rarest:.2g}" if rarest < 1 else "an event too rare to be counted"
        bits = "" if self.last_bits else ", or the last bits of the numbers (pass last_bits=True)"
        return (
            f"It cannot see a loss that shows only between other data sets than these two, in {rare}, or in a pattern "
            f"that none of its statistics looks at{bits}."
        )

    @override
    def _told(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        sampler = "" if self.sampler == self.mechanism else f", sampler {self.sampler}"
        title = (
            f"{self.mechanism}{sampler}: {self.verdict}; {self.n} draws from each data set, false alarm below "
            f"{1 - self.confidence:.2g}"
        )
        return [title], [asdict(bound) for bound in self.bounds], self._meaning

    @property
    def _meaning(self) -> list[str]:
        match self.verdict:
            case "refuted":
                return ["More is lost than stated, already between the two data sets of this attack."]
            case "consistent":
                return ["Consistent is not a proof.", *self.power.split("\n"), self.blind_spots]
        return ["At least `lower` is lost. Nothing was stated to compare it with.", self.blind_spots]


def _would_have(bound: Bound) -> str:
    if math.isinf(bound.refutable):
        return "no true value would have been refuted with so few draws."
    return (
        f"a true value of {bound.refutable:.3g} or more would have been refuted with probability {CHANCE:g} "
        f"(in {bound.alternative})."
    )
