"""Dirichlet draws in floating point: for simulation, and on a public grid for those who ask for a fast release."""

import numpy as np

from pymc_dirdp.arrays import Array

__all__ = ["dirichlet", "fast_dirichlet", "on_public_grid"]

# A grid finer than about 2**-45 would keep bits of the floating-point arithmetic.
_GRID = 2**32
# The least shape above 1: at 1 exactly NumPy changes its algorithm.
_ABOVE_ONE = float(np.nextafter(1, 2))


def dirichlet(concentration: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draws from `Dirichlet(concentration)`, row by row, none of whose components is 0 or NaN.

    It serves simulation, draws from public numbers, and the curator's own posterior. The last bits of its draws depend
    on the parameters. Releases of a secret are drawn by :func:`fast_dirichlet` or :mod:`pymc_dirdp.sampling.exact`.

    Parameters
    ----------
    concentration : array, shape (..., d)
        Positive parameters.
    draws : int
        Number of independent draws.
    rng : numpy.random.Generator
        From :func:`pymc_dirdp.sampling.entropy.generator`.

    Returns
    -------
    y : array, shape (draws, ..., d)
        Each row is positive and sums to 1 up to rounding. Components below the smallest normal double, 2.2e-308, are
        raised to it.

    Notes
    -----
    Every component is drawn as `log G_a = log G_{a+1} + log(U) / a`, whatever its parameter, and every row is
    normalised by log-sum-exp: no branch depends on the parameters.
    """
    shape = (draws, *concentration.shape)
    logs = np.log(rng.standard_gamma(np.maximum(concentration + 1, _ABOVE_ONE), size=shape))
    # 1 - random() lies in (0, 1], so the logarithm is finite; divided by a tiny parameter it may not be.
    with np.errstate(over="ignore"):
        logs += np.log(1.0 - rng.random(size=shape)) / concentration
    np.maximum(logs, -np.finfo(np.float64).max / 2, out=logs)
    logs -= logs.max(axis=-1, keepdims=True)
    y = np.exp(logs)
    y /= y.sum(axis=-1, keepdims=True)
    return np.maximum(y, np.finfo(np.float64).tiny, out=y)


def fast_dirichlet(concentration: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draws from `Dirichlet(concentration)`, rounded to a public grid: a release in floating point.

    With `k = round(y * 2**32)` of a draw `y` of :func:`dirichlet`, `(2 k + 1) / sum(2 k + 1)` is released, a positive
    function of whole numbers. Tests saw no trace of the arithmetic on this grid, but did on one of 2**-50. It is not
    proved that there is none. The number of random words that a draw takes, and its time, depend on the secret.

    Parameters
    ----------
    concentration, draws, rng
        Same as in :func:`dirichlet`. The concentration may be secret.

    Returns
    -------
    y : array, shape (draws, ..., d)
        Each row is positive, at least about 2**-33, and sums to 1 up to rounding.

    References
    ----------
    Mironov (2012), On significance of the least significant bits for differential privacy,
    https://doi.org/10.1145/2382196.2382264.
    """
    return on_public_grid(dirichlet(concentration, draws, rng))


def on_public_grid(y: Array) -> Array:
    """`(2 k + 1) / sum(2 k + 1)` with `k = round(y * 2**32)`, in the shape of `y`."""
    whole = 2 * np.rint(_GRID * y).astype(np.int64) + 1
    released: Array = whole / whole.sum(axis=-1, keepdims=True)
    return released
