"""Noise on a grid, so that the last bits of a sum do not show which count the noise was added to."""

import math

import numpy as np

from pymc_dirdp.arrays import Array

__all__ = ["on_grid"]

# Steps of the grid in a standard deviation of the noise. Rounding adds less than 1e-10 of the variance.
_STEPS = 2.0**16


def on_grid(noise: Array, sd: float) -> Array:
    """Noise rounded to multiples of a power of two, at most 1, that depends on its public standard deviation alone.

    Floating-point noise has finer bits near 0 than far from it, and a sum with a count of 0 keeps bits that a sum with
    any other count loses (Mironov 2012). Whole counts lie on this grid, so adding one to rounded noise is exact. It
    equals rounding the sum, which is post-processing of the ideal mechanism. Above `2**36` standard deviations the sum
    is rounded again, which is post-processing too.

    Parameters
    ----------
    noise : array
        Draws in floating point.
    sd : float
        Their standard deviation, positive.

    References
    ----------
    Mironov (2012), On significance of the least significant bits for differential privacy,
    https://doi.org/10.1145/2382196.2382264.
    """
    step = min(1.0, 2.0 ** math.floor(math.log2(sd / _STEPS)))
    # Dividing and multiplying by a power of two is exact.
    return np.round(noise / step) * step
