"""What counting an event on two data sets proves about the privacy loss, with a stated confidence."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtrc, betainccinv, betaincinv

from pymc_dirdp.arrays import Array

__all__ = ["EventLoss", "epsilon_from_shares", "epsilon_of", "lower_limit", "promised_orders", "upper_limit"]

# Truncated and zero-concentrated promises hold at every order; so many of them are checked.
_ORDERS = 40
_LARGEST_ORDER = 1e4


def lower_limit(hits: ArrayLike, n: int, level: float) -> Array:
    """Clopper and Pearson's lower confidence limit of a probability.

    Parameters
    ----------
    hits : array_like of int
        The number of independent trials in which the event happened.
    n : int
        The number of all trials.
    level : float
        With at most this probability the limit is above the truth, whatever the truth is.

    Returns
    -------
    limit : array, shape of `hits`

    References
    ----------
    Clopper and Pearson (1934), https://doi.org/10.1093/biomet/26.4.404.
    """
    k = np.asarray(hits, dtype=np.float64)
    return np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, level), 0.0)


def upper_limit(hits: ArrayLike, n: int, level: float) -> Array:
    """Clopper and Pearson's upper confidence limit; the arguments are those of :func:`lower_limit`."""
    k = np.asarray(hits, dtype=np.float64)
    return np.where(k < n, betainccinv(k + 1, np.maximum(n - k, 1), level), 1.0)


def epsilon_of(p: ArrayLike, q: ArrayLike, delta: float) -> Array:
    """The least epsilon of (epsilon, delta)-differential privacy, if an event has probabilities `p` and `q`.

    This is `log((p - delta) / q)`, which may be negative. It grows with p and falls with q, so limits may replace both.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(np.asarray(p) - delta, 0.0)) - np.log(q))


def epsilon_from_shares(hits_p: ArrayLike, hits_q: ArrayLike, trials: int, delta: float, level: float) -> Array:
    """The least epsilon, from the numbers of outputs with an event that came from either data set.

    Each of `trials` outputs has to come from either data set by the toss of a fair coin. If (epsilon, delta) holds, the
    first distribution is a part of at most `exp(epsilon)` times the second, and a rest of probability delta at most. Of
    the outputs with the event that are not of the rest, a share of at most `1 / (1 + exp(-epsilon))` then comes from
    the first data set, each independently. This is sharper than two limits where the event is rare, because the two
    counts share one error.

    Parameters
    ----------
    hits_p, hits_q : array_like of int
        How often the event happened for the first data set and for the second.
    trials : int
        The number of all outputs.
    delta : float
        A number in [0, 1).
    level : float
        With at most this probability the result is above the truth.

    Returns
    -------
    epsilon : array
        Minus infinity where nothing is shown.

    References
    ----------
    Steinke, Nasr and Jagielski (2023), Privacy auditing with one (1) training run, section 4: the same argument for
    one run.
    """
    p, q = np.asarray(hits_p, dtype=np.float64), np.asarray(hits_q, dtype=np.float64)
    rest = 0
    if delta > 0:
        # More outputs of the rest have a probability of level / 2, and the limit below takes the other half.
        level /= 2
        rest = _quantile_above(trials, delta / 2, level)
    of_p = np.maximum(p - rest, 0.0)
    share = np.where(of_p > 0, betaincinv(np.maximum(of_p, 1), q + 1, level), 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(share) - np.log1p(-share))


def _quantile_above(n: int, p: float, level: float) -> int:
    """The least k with `P[Binomial(n, p) > k] <= level`, by bisection."""
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bdtrc(middle, n, p) <= level else (middle, high)
    return high


@dataclass(frozen=True, eq=False)
class EventLoss:
    """The loss, in every measure, that an event with probabilities `p` and `q` proves at least.

    By data processing, two distributions are no closer than the two distributions of "the event happened". Each measure
    grows with p and falls with q where `p > q`; it is 0 or less elsewhere. `guarantee.loss` picks the one that a
    guarantee is about.
    """

    p: Array
    q: Array

    def renyi(self, order: float) -> Array:
        """Rényi divergence of two distributions on "it happened" and "it did not"; 0 where `p <= q`."""
        p, q = self.p, self.q
        with np.errstate(divide="ignore", invalid="ignore"):
            log_p, log_q, not_p, not_q = np.log(p), np.log(q), np.log1p(-p), np.log1p(-q)
            if order == 1:
                # 0 log 0 is 0.
                divergence = p * (log_p - log_q) + np.where(p < 1, (1 - p) * (not_p - not_q), 0.0)
            else:
                first, second = order * log_p + (1 - order) * log_q, order * not_p + (1 - order) * not_q
                divergence = np.logaddexp(first, np.where(p < 1, second, -np.inf)) / (order - 1)
        return np.asarray(np.where(p > q, divergence, 0.0))

    def rho(self, omega: float) -> Array:
        """The largest ratio of a divergence to its order, for some orders in `(1, omega]`."""
        return np.asarray(np.max([self.renyi(order) / order for order in promised_orders(omega).tolist()], axis=0))

    def delta(self, epsilon: float) -> Array:
        """Hockey-stick divergence of the two distributions; below 0 where the event proves nothing."""
        return np.asarray(self.p - np.exp(epsilon) * self.q)

    @property
    def pure_epsilon(self) -> Array:
        """The privacy loss of the event itself."""
        return epsilon_of(self.p, self.q, 0.0)


def promised_orders(omega: float) -> Array:
    """Orders in `(1, omega]`, denser near 1. A divergence at any of them may refute the guarantee."""
    return 1 + np.geomspace(1e-3 * min(1.0, omega - 1), min(omega, _LARGEST_ORDER) - 1, _ORDERS)
