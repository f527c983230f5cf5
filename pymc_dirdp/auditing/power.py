"""How likely an attack is to find a false claim: what a verdict of "consistent" is worth."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr

from pymc_dirdp.auditing.intervals import allowed, loss_of, lower_limit, upper_limit
from pymc_dirdp.auditing.laws import binned_laws
from pymc_dirdp.auditing.neighbours import worst_pair
from pymc_dirdp.checks import fraction, integer
from pymc_dirdp.guarantees import Guarantee
from pymc_dirdp.mechanisms.base import Mechanism

__all__ = ["chance_to_refute"]

Array = NDArray[np.float64]

# Standard deviations of a count that are summed over, and into how many steps they are cut at most.
_SPREAD, _STEPS = 9.0, 2_000


def chance_to_refute(
    mechanism: Mechanism,
    claim: Guarantee,
    *,
    pair: tuple[ArrayLike, ArrayLike] | None = None,
    n: int = 100_000,
    confidence: float = 1 - 1e-6,
) -> float:
    """Probability that `audit(mechanism, claim=claim, n=n)` says "refuted", if it chooses the best event.

    Parameters
    ----------
    mechanism : Mechanism
        Of this library, with its true law.
    claim : Guarantee
        What is said of it, right or wrong.
    pair, n, confidence
        As for `audit`, with one `delta`.

    Returns
    -------
    chance : float
        From the two binomial laws of the counts, for the better of the two directions.

    Examples
    --------
    >>> from pymc_dirdp import DirichletMechanism, PureDP
    >>> chance_to_refute(DirichletMechanism([1, 1, 1], 0.5), PureDP(epsilon=0.5), n=20_000)
    0.99...
    """
    size, doubt = integer(100, n=n), 1 - fraction(confidence=confidence)
    x, y = worst_pair(mechanism) if pair is None else (np.asarray(data, dtype=np.float64) for data in pair)
    laws = binned_laws(mechanism, x, y)
    # As in `audit`: three quarters are counted, and the claim is one of two bounds.
    trials, level = size - size // 4, doubt / 8
    directions = ((laws.log_p, laws.log_q), (laws.log_q, laws.log_p))
    return max(_chance(np.exp(log_p), np.exp(log_q), claim, trials, level) for log_p, log_q in directions)


def _chance(p: Array, q: Array, claim: Guarantee, trials: int, level: float) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(np.nan_to_num(np.log(q) - np.log(p)), kind="stable")
    # Events "the likelihood ratio is at least so large".
    p, q = (np.minimum(np.cumsum(law[order]), 1.0) for law in (p, q))
    lower = loss_of(claim, lower_limit(p * trials, trials, level), upper_limit(q * trials, trials, level))
    best = int(np.argmax(lower))
    sd = np.sqrt(trials * p[best] * (1 - p[best])) + 1
    middle = trials * p[best]
    edges = np.clip(np.round(np.linspace(middle - _SPREAD * sd, middle + _SPREAD * sd, _STEPS)), 0, trials)
    hits = np.unique(edges)
    # Each step counts as its least number of hits, so the chance is not overstated.
    below = np.where(hits > 0, bdtr(np.maximum(hits - 1, 0), trials, p[best]), 0.0)
    masses = np.diff(below, append=1.0)
    most = _most_hits(claim, hits, trials, level)
    return float(np.sum(masses * np.where(most >= 0, bdtr(np.maximum(most, 0), trials, q[best]), 0.0)))


def _most_hits(claim: Guarantee, hits: Array, trials: int, level: float) -> Array:
    """With how many hits on the less likely side the claim is still refuted; -1 where never. By bisection."""
    p = lower_limit(hits, trials, level)
    refuted, not_refuted = np.full(len(hits), -1.0), np.full(len(hits), trials + 1.0)
    while np.any(not_refuted - refuted > 1):
        middle = np.floor((refuted + not_refuted) / 2)
        yes = loss_of(claim, p, upper_limit(middle, trials, level)) > allowed(claim)
        refuted, not_refuted = np.where(yes, middle, refuted), np.where(yes, not_refuted, middle)
    return refuted
