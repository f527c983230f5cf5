"""Many independent releases of the same counts."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.mechanisms.base import Mechanism

__all__ = ["BlackBox", "Outputs", "releases"]

Array = NDArray[np.float64]
BlackBox = Callable[[Array], object]
# Along the first axis. A list, where their shapes may differ.
Outputs = Array | Sequence[Array]


def releases(
    mechanism: Mechanism | BlackBox,
    counts: Array,
    n: int,
    rng: np.random.Generator,
    *,
    sampler: str = "fast",
    steps: int | None = None,
) -> Outputs:
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
    sampler : str
        One that the mechanism has. It has no effect for a callable.
    steps : int, optional
        Of the urn, for the exact sampler of a mechanism that draws from one.

    Returns
    -------
    outputs : array, shape (n, ...), or list of n arrays
    """
    if isinstance(mechanism, Mechanism):
        return mechanism.releases(counts, n, sampler=sampler, random_seed=rng, steps=steps)
    return [np.asarray(mechanism(counts), dtype=np.float64) for _ in range(n)]
