"""Many independent releases of the same counts."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.simplex import SimplexMechanism
from pymc_dirdp.mechanisms.whole_posterior import WholePosterior

__all__ = ["BlackBox", "Outputs", "releases"]

Array = NDArray[np.float64]
BlackBox = Callable[[Array], object]
# Along the first axis. A list, where their shapes may differ.
Outputs = Array | Sequence[Array]

# Noise is drawn for so many tables at a time.
_AT_ONCE = 20_000


def releases(mechanism: Mechanism | BlackBox, counts: Array, n: int, rng: np.random.Generator) -> Outputs:
    """`n` releases, each what the guarantee of the mechanism is about.

    Parameters
    ----------
    mechanism : Mechanism or callable
        A callable takes the counts, brings its own randomness and returns an array, of any shape.
    counts : array
        Made up.
    n : int
        How many.
    rng : numpy.random.Generator
        For mechanisms of this library.

    Returns
    -------
    outputs : array, shape (n, ...), or list of n arrays
    """
    match mechanism:
        case DirichletMechanism():
            return mechanism.sample(counts, draws=n, sampler="fast", random_seed=rng)
        case SimplexMechanism():
            protected = range(mechanism.domain.n_protected)
            return mechanism.sample(counts, protected=protected, draws=n, random_seed=rng)
        case NoisyCounts():
            sizes = [min(_AT_ONCE, n - start) for start in range(0, n, _AT_ONCE)]
            return np.concatenate([_noisy(mechanism, counts, size, rng) for size in sizes])
        case WholePosterior():
            return np.array([mechanism.release(counts, random_seed=rng) for _ in range(n)], dtype=np.float64)
        case Mechanism():
            raise ArgumentError(f"A {type(mechanism).__name__} releases nothing. Pass a function of the counts.")
    return [np.asarray(mechanism(counts), dtype=np.float64) for _ in range(n)]


def _noisy(mechanism: NoisyCounts, counts: Array, size: int, rng: np.random.Generator) -> Array:
    """Noise is independent in every cell, so one table of many copies is as good as many tables, and faster."""
    tall = dataclasses.replace(mechanism, prior=np.broadcast_to(mechanism.prior, (size, *mechanism.prior.shape)))  # type: ignore[type-var]
    return tall.release(np.broadcast_to(counts, (size, *counts.shape)), random_seed=rng)
