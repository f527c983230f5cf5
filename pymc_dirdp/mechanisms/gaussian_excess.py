"""The integral behind every hockey-stick divergence of Gaussian noise, without cancellation."""

import math

import numpy as np

from pymc_dirdp.numerics.quadrature import bulk_breaks, nodes

__all__ = ["gaussian_excess"]

# Further than this below 0, in standard deviations, the probability is 1e-33; it is added.
_LEFT, _LEFT_OUT = -12.0, 1e-32
# Above, exp(-50) of the integrand is left out; its bound is added.
_REACH = 100.0


def gaussian_excess(ratio: float, start: float) -> tuple[float, float]:
    """Two numbers about `f(x) = phi(x) (1 - exp(-ratio (x - start)))`, 0 below `start`; phi is the normal density.

    With `start = epsilon / ratio - ratio / 2` its integral is the hockey-stick divergence at epsilon of two normal
    distributions whose centres are `ratio` standard deviations apart. The integrand is positive, so nothing cancels.

    Returns
    -------
    integral : float
        The integral of f, from above up to rounding.
    variation : float
        An upper bound on the total variation of the derivative of f, its jump at `start` included.
    """
    # Everything is relative to the density at the start, if that is in the upper tail.
    reference = max(start, 0.0)
    left = max(0.0, _LEFT - start)
    end = math.sqrt(reference**2 + _REACH)
    y, weights = nodes(left + bulk_breaks(min(1.0, 1 / ratio, 1 / (1 + reference)), end - start - left))
    x = start + y
    # The exponent is (x**2 - reference**2) / 2, written so that nothing cancels in the upper tail.
    density = np.exp(-(y * (y / 2 + start) if start > 0 else x**2 / 2)) * weights
    fallen = np.exp(-ratio * y)
    integral = float(density @ -np.expm1(-ratio * y))
    bends = (x**2 + 1) * (1 - fallen) + ratio * (2 * np.abs(x) + ratio) * fallen
    at_start = math.exp(-(start**2 - reference**2) / 2)
    beyond = math.exp(-_REACH / 2) * min(1 / end, ratio * (1 + abs(start) / end))
    scale = math.exp(-(reference**2) / 2) / math.sqrt(2 * math.pi)
    below = _LEFT_OUT if left else 0.0
    return scale * (integral + beyond) + below, scale * (float(density @ bends) + ratio * at_start)
