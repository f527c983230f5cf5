"""Functions without their leading terms, computed without cancellation."""

import numpy as np

from pymc_dirdp.arrays import Array

__all__ = ["expm1_less", "log1p_less", "stirling_remainder"]

# Below this size a series is summed, whose error after 13 terms is below rounding.
_SMALL = 0.05


def log1p_less(x: Array) -> Array:
    """`log(1 + x) - x` for x above -1; -inf at -1."""
    small = np.abs(x) < _SMALL
    near = np.where(small, x, 0.0)
    series = np.zeros_like(near)
    for n in range(14, 1, -1):
        # The sum goes from the last term to the first, so that small ones are not lost.
        series = series * near + (1.0 if n % 2 else -1.0) / n
    with np.errstate(divide="ignore"):
        direct = np.log1p(x) - x
    return np.asarray(np.where(small, series * near**2, direct))


def expm1_less(x: Array) -> Array:
    """`exp(x) - 1 - x`."""
    small = np.abs(x) < _SMALL
    near = np.where(small, x, 0.0)
    series = np.ones_like(near)
    for n in range(10, 2, -1):
        series = 1 + series * near / n
    return np.asarray(np.where(small, series * near**2 / 2, np.expm1(x) - x))


def stirling_remainder(a: float) -> float:
    """`log Gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2` for a of at least 1e4."""
    return (1 / 12 - 1 / (360 * a * a)) / a
