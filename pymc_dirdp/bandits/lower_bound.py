"""What no private policy can beat in the long run."""

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, numbers_or_none
from pymc_dirdp.errors import ArgumentError

__all__ = ["bandit_lower_bound", "checked_means", "divergence"]


def bandit_lower_bound(means: ArrayLike, epsilon: float) -> float:
    """The least regret that a policy with pure privacy can have, as a multiple of the logarithm of the horizon.

    Parameters
    ----------
    means : array_like, shape (arms,)
        Mean rewards of at least two Bernoulli arms, strictly between 0 and 1.
    epsilon : float
        Of pure differential privacy for the whole run; may be infinite, for policies without privacy.

    Returns
    -------
    constant : float
        For every policy that is good for all means, `regret / log(horizon)` comes down to this at best. It is about
        horizons without end, and says little where few rounds were played.

    References
    ----------
    Azize, Wu, Honda, Orabona, Ito and Basu (2025), Optimal regret of Bernoulli bandits under global differential
    privacy. Lai and Robbins (1985) without privacy.

    Examples
    --------
    >>> round(bandit_lower_bound([0.75, 0.625, 0.5, 0.375, 0.25], epsilon=1.0), 2)
    7.71
    """
    mu = checked_means(means)
    if np.any((mu <= 0) | (mu >= 1)):
        raise ArgumentError("Expected every mean strictly between 0 and 1.")
    gaps = mu.max() - mu
    worse = gaps > 0
    losses = divergence(mu[worse], float(mu.max()), at_least(0, finite=False, epsilon=epsilon))
    return float(np.sum(np.divide(gaps[worse], losses, out=np.full(losses.shape, np.inf), where=losses > 0)))


def divergence(x: Array, y: Array | float, epsilon: float) -> Array:
    """The information of a private observation: the least `epsilon abs(z - x) + kl(z, y)` over z, for `x <= y`.

    Without limit of privacy it is the Kullback-Leibler divergence of two Bernoulli distributions.
    """
    least = y * np.exp(-epsilon) / (1 - y + y * np.exp(-epsilon))
    own = _kl(x, y)
    return np.where(x >= least, own, -epsilon * x - np.log1p(y * np.expm1(-epsilon))) if np.isfinite(epsilon) else own


def _kl(x: Array, y: Array | float) -> Array:
    return np.asarray(x * np.log(x / y) + (1 - x) * (np.log1p(-x) - np.log1p(-y)))


def checked_means(means: ArrayLike) -> Array:
    """Mean rewards in [0, 1], of at least two arms."""
    mu = numbers_or_none(means)
    if mu is None or mu.ndim != 1 or len(mu) < 2 or not np.all((mu >= 0) & (mu <= 1)):
        raise ArgumentError("Expected means to be a list of mean rewards in [0, 1], of at least two arms.")
    return mu
