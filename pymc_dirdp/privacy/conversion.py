"""From Rényi divergences to (epsilon, delta), at one order and at the best one (P1 Lemma 3)."""

import math
from collections.abc import Callable

import numpy as np

__all__ = ["best_order", "epsilon_at", "log_delta_at"]

# Orders from 1 + exp(-30) on; above 1 + exp(30) no curve of use is left.
_LOG_EXCESS = 30.0


def epsilon_at(order: float, divergence: float, delta: float) -> float:
    """The epsilon that a divergence of `divergence` nats at `order > 1` implies at `delta`; at least 0."""
    return max(0.0, divergence + math.log(order - 1) - (math.log(delta) + order * math.log(order)) / (order - 1))


def log_delta_at(order: float, divergence: float, epsilon: float) -> float:
    """The logarithm of the delta that a divergence of `divergence` nats at `order > 1` implies at `epsilon`."""
    return min(0.0, (order - 1) * (divergence - epsilon + math.log(order - 1)) - order * math.log(order))


def best_order(bound: Callable[[float], float], *, largest: float = math.inf) -> float:
    """The order in `(1, largest]` at which `bound(order)` is least.

    Every order gives a valid bound, so an inexact minimiser costs tightness and never privacy. `bound` may be infinite.
    """
    from scipy.optimize import minimize_scalar  # Here, because it takes most of a second to import.

    top = min(_LOG_EXCESS, math.log(largest - 1))
    grid = np.linspace(-_LOG_EXCESS, top, 61)

    def at(log_excess: float) -> float:
        return bound(1 + math.exp(log_excess))

    values = [at(x) for x in grid]
    best = int(np.argmin(values))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    # Brent's method needs finite values to compare.
    found = minimize_scalar(lambda x: min(at(x), 1e300), bounds=around, method="bounded", options={"xatol": 1e-9})
    log_excess = float(found.x) if found.fun < values[best] else float(grid[best])
    return min(1 + math.exp(log_excess), largest)
