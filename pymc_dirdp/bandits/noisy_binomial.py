"""The distribution of a binomial count with two-sided geometric noise, in closed form."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer, positive
from pymc_dirdp.errors import ArgumentError

__all__ = ["log_probability", "slope"]

# Below it the incomplete Beta function loses digits to doubles that are not normal.
_SMALL = 1e-290
_MOST_TERMS = 10_000


def log_probability(z: int, n: int, mu: ArrayLike, scale: float) -> Array:
    """Logarithm of the probability of `z = X + G` for `X ~ Binomial(n, mu)` and two-sided geometric noise `G`.

    Parameters
    ----------
    z : int
        The noisy count; any integer.
    n : int
        Number of trials, at least 0.
    mu : array_like
        Probabilities of success, strictly between 0 and 1.
    scale : float
        `P[G = g]` is proportional to `exp(-abs(g) / scale)`.

    Returns
    -------
    log_p : array, shape of `mu`

    Notes
    -----
    With `q = exp(-1 / scale)` the two halves of the noise tilt the binomial distribution: `E[q**(z - X); X <= z]` is
    `q**z A**n P[Binomial(n, mu / (q A)) <= z]` with `A = 1 - mu + mu / q`, and the other half likewise with `1 / q`.
    No number of terms grows with n.

    References
    ----------
    Theory, section 17.

    Examples
    --------
    >>> log_probability(7, 10, [0.2, 0.7], 2.0).round(3)
    array([-3.688, -1.872])
    """
    n, z, u = integer(0, n=n), int(z), 1 / positive(scale=scale)
    share = np.asarray(mu, dtype=np.float64)
    if not np.all((share > 0) & (share < 1)):
        raise ArgumentError("Expected every mu strictly between 0 and 1.")
    success, failure = np.log(share), np.log1p(-share)
    more, less = np.logaddexp(failure, success + u), np.logaddexp(failure, success - u)
    below = np.full(share.shape, -np.inf)
    above = np.full(share.shape, -np.inf)
    if z >= 0:
        below = n * more - u * z + _log_at_most(z, n, success + u - more, failure - more)
    if z < n:
        above = n * less + u * z + _log_at_most(n - z - 1, n, failure - less, success - u - less)
    # The noise is 0 with probability (1 - q) / (1 + q).
    return np.asarray(np.log(np.tanh(u / 2)) + np.logaddexp(below, above))


def slope(z: int, n: int, mu: ArrayLike, scale: float) -> Array:
    """The derivative of :func:`log_probability` in `mu`: one trial more that succeeds, against one that fails."""
    if n == 0:
        return np.zeros(np.shape(mu))
    here = log_probability(z, n, mu, scale)
    gain, loss = (log_probability(z - one, n - 1, mu, scale) for one in (1, 0))
    return np.asarray(n * (np.exp(gain - here) - np.exp(loss - here)))


def _log_at_most(z: int, n: int, log_p: Array, log_rest: Array) -> Array:
    """Logarithm of `P[Binomial(n, p) <= z]`, also where it is less than the least double; `p + rest = 1`."""
    if z >= n:
        return np.zeros(log_p.shape)
    if z < 0:
        return np.full(log_p.shape, -np.inf)
    a, b = float(n - z), float(z + 1)
    rest = np.exp(log_rest)
    value = betainc(a, b, rest)
    found = np.log(np.maximum(value, _SMALL))
    tiny = value < _SMALL
    if tiny.any():
        found[tiny] = a * log_rest[tiny] + b * log_p[tiny] - np.log(a) - betaln(a, b) + _log_fraction(a, b, rest[tiny])
    return np.asarray(found)


def _log_fraction(a: float, b: float, x: Array) -> Array:
    """Logarithm of the continued fraction of the incomplete Beta function, by the method of Lentz.

    Where the function is tiny, `x` is far below its mean `a / (a + b)`, and the fraction converges.
    """
    c, d = np.ones_like(x), 1 / (1 - (a + b) / (a + 1) * x)
    value = d.copy()
    for m in range(1, _MOST_TERMS):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            c, d = 1 + step / c, 1 / (1 + step * d)
            value *= c * d
        if np.all(np.abs(c * d - 1) < 1e-15):
            break
    return np.asarray(np.log(value))
