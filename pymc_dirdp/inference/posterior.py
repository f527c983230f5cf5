"""Draws of the counts and the shares behind an output: independent, and exact."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.checks import integer
from pymc_dirdp.inference.drawing import draw_counts
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["Draws", "draw", "draw_shares"]

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


def draw(law: ProductLaw, draws: int, rng: np.random.Generator) -> Draws:
    """Draw counts and shares of one row given an output.

    Parameters
    ----------
    law : ProductLaw
        The row given the output.
    draws : int
        Number of independent draws.
    rng : numpy.random.Generator
        The source of randomness. What is drawn here is computed from what was published, so it needs no secrecy.

    Examples
    --------
    >>> z = np.array([3.0, 12.0, 8.0])
    >>> law = ProductLaw(alpha=[1, 1, 1], total=20, log_likelihood=lambda counts, cells: -np.abs(z[cells] - counts) / 2)
    >>> draw(law, 4000, np.random.default_rng(1)).shares.mean(axis=0).round(2)
    array([0.15, 0.51, 0.34])
    """
    draws = integer(1, draws=draws)
    counts, acceptance = draw_counts(law.tilted, np.full(draws, law.total), rng)
    return Draws(counts, draw_shares(counts, law.alpha, rng), acceptance)


def draw_shares(counts: Integers, alpha: Array, rng: np.random.Generator) -> Array:
    """One draw of the shares for each row of counts: `Dirichlet(alpha + counts)`, shape of `counts`."""
    shares: Array = dirichlet(alpha + counts, 1, rng)[0]
    return shares
