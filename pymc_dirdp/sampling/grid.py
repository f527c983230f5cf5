"""Noise on a grid, so that no last bit of a sum tells what the noise was added to."""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["on_grid"]

Array = NDArray[np.float64]

# Steps of the grid in the noise's standard deviation: what rounding adds to the variance is below 1e-10 of it.
_STEPS = 2.0**16


def on_grid(noise: Array, sd: float) -> Array:
    """Noise rounded to multiples of a power of two, at most 1, that depends on its public standard deviation alone.

    Floating-point noise has more fine bits near 0 than far from it, and the sum with a count keeps them: a count of 0
    shows itself by a bit that no other count leaves (Mironov 2012). Whole counts lie on this grid, so adding one to
    rounded noise is exact, and is the same as rounding the sum: post-processing of the ideal mechanism. That holds
    while counts are below `2**36` standard deviations, and beyond it the sum is rounded, which is post-processing too.

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
