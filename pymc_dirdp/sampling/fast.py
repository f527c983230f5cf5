"""Dirichlet draws in floating point."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["dirichlet"]

Array = NDArray[np.float64]

# Below this shape a Gamma draw can come out as 0: P[G_a < 1e-308] is about exp(-709 a).
_SMALL_SHAPE = 0.1


def dirichlet(concentration: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draws from `Dirichlet(concentration)`, row by row, none of whose components is 0 or NaN.

    A component with a small parameter is drawn as `log G_a = log G_{a+1} + log(U) / a`, and a row that holds one is
    normalised by log-sum-exp. Components below the smallest normal double, 2.2e-308, are reported as that number.

    Floating-point draws are not exactly Dirichlet draws. The guarantee is proved for the ideal law; see "Limits" in
    the documentation.

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
        Each row is positive and sums to 1 up to rounding.
    """
    small = concentration < _SMALL_SHAPE
    if not np.any(small):
        gammas = rng.standard_gamma(concentration, size=(draws, *concentration.shape))
        gammas /= gammas.sum(axis=-1, keepdims=True)
        return np.maximum(gammas, np.finfo(np.float64).tiny, out=gammas)
    logs = np.log(rng.standard_gamma(concentration + small, size=(draws, *concentration.shape)))
    # 1 - random() lies in (0, 1], so the logarithm is finite.
    boost = 1.0 - rng.random(size=(draws, int(small.sum())))
    logs[:, small] += np.log(boost) / concentration[small]
    logs -= logs.max(axis=-1, keepdims=True)
    y = np.exp(logs)
    y /= y.sum(axis=-1, keepdims=True)
    return np.maximum(y, np.finfo(np.float64).tiny, out=y)
