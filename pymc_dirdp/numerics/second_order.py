"""Functions without their leading terms, computed without cancellation.

Calibrations spend much of their time here, so a series is summed in place, and only where it is needed.
"""

import numpy as np

from pymc_dirdp.arrays import Array

__all__ = ["expm1_less", "log1p_less", "stirling_remainder"]

# Below this size a series is summed, whose error after 13 terms is below rounding.
_SMALL = 0.05


def log1p_less(x: Array) -> Array:
    """`log(1 + x) - x` for x above -1; -inf at -1."""
    x = np.asarray(x)
    with np.errstate(divide="ignore"):
        result = np.asarray(np.log1p(x) - x)
    small = np.abs(x) < _SMALL
    near = x[small]
    series = np.zeros_like(near)
    for n in range(14, 1, -1):
        # The sum goes from the last term to the first, so that small ones are not lost.
        series *= near
        series += (1.0 if n % 2 else -1.0) / n
    result[small] = series * near**2
    return result


def expm1_less(x: Array) -> Array:
    """`exp(x) - 1 - x`."""
    x = np.asarray(x)
    result = np.asarray(np.expm1(x) - x)
    small = np.abs(x) < _SMALL
    near = x[small]
    series = np.ones_like(near)
    for n in range(10, 2, -1):
        series *= near / n
        series += 1
    result[small] = series * near**2 / 2
    return result


def stirling_remainder(a: float) -> float:
    """`log Gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2` for a of at least 1e4."""
    return (1 / 12 - 1 / (360 * a * a)) / a
