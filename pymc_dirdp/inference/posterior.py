"""Draws of the counts and the shares behind an output: independent, and exact."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["Draws", "draw_shares"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Draws:
    """Independent draws from the distribution of a row given an output.

    Attributes
    ----------
    counts : array of int, shape (draws, d)
        Each row adds up to the total.
    shares : array, shape (draws, d)
        Each row is positive and adds up to 1.
    acceptance : float
        The share of proposals that was accepted, in (0, 1]; how many draws are worth one does not depend on it.
    """

    counts: Integers
    shares: Array
    acceptance: float


def draw_shares(counts: Integers, alpha: Array, rng: np.random.Generator) -> Array:
    """One draw of the shares for each row of counts: `Dirichlet(alpha + counts)`, shape of `counts`."""
    shares: Array = dirichlet(alpha + counts, 1, rng)[0]
    return shares
