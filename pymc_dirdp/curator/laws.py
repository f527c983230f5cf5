"""The two conjugate laws of each table: the user's own posterior, and the one that a release is drawn from. Secret."""

from dataclasses import dataclass, field

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import gammaln

from pymc_dirdp.models.tables import Table
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["Law", "simplex", "variable"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Law:
    """`Dirichlet(power * counts + prior)` for every row: the posterior of counts of which each counts `power` times.

    Attributes
    ----------
    table : Table
        Its public facts.
    cells : DataArray, shape of the table
        Any numbers; for the dims and coords of a table with its categories.
    counts : ndarray, shape of the table
        The secret; not in the `repr`.
    prior : ndarray, shape of the table
        The model's own prior, or the mechanism's `alpha`.
    power : float
        1, or the mechanism's `r`.
    """

    table: Table
    cells: xr.DataArray = field(repr=False)
    counts: Array = field(repr=False)
    prior: Array
    power: float

    @property
    def concentration(self) -> Array:
        """Parameters of the law."""
        return self.power * self.counts + self.prior

    def sample(self, chains: int, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws, shape `(chains, draws, *table.shape)`; that they are called chains is for ArviZ."""
        return _shaped(dirichlet(self.concentration, chains * draws, rng), chains)

    def sample_prior(self, chains: int, draws: int, rng: np.random.Generator) -> Array:
        """The same from the prior."""
        return _shaped(dirichlet(self.prior, chains * draws, rng), chains)

    def log_prior(self, p: Array) -> Array:
        """Logarithm of the prior's density at `p`, for each row: shape `(..., *rows)`.

        The density in logarithms of ratios `log(p_i / p_d)`, the coordinates in which samplers move: `prod p**prior`
        over the Beta function. Its powers are priors of so many times the prior counts. With respect to `p` itself a
        flat prior would have one density everywhere, so that no power of it says what its counts do.
        """
        constant = gammaln(self.prior.sum(axis=-1)) - gammaln(self.prior).sum(axis=-1)
        return np.asarray(constant + (self.prior * np.log(p)).sum(axis=-1))

    def left_one_out(self) -> Array:
        """Logarithm of the mean probability of each cell once one of its records is left out; NaN for an empty cell.

        The mean of `Dirichlet(power * (counts - e_c) + prior)` at the cell `c`: no Monte Carlo is needed.
        """
        rest = np.where(self.counts > 0, self.concentration - self.power, np.nan)
        total = self.concentration.sum(axis=-1, keepdims=True) - self.power
        return np.asarray(np.log(rest) - np.log(total))


def simplex(table: Table, values: Array) -> Array:
    """Draws of the released variable with both categories of a Beta, none of them 0, as their logarithm is needed."""
    p = np.stack([values, 1 - values], axis=-1) if table.family == "beta" else values
    return np.maximum(p, np.finfo(np.float64).tiny)


def variable(table: Table, p: Array) -> Array:
    """The reverse: the variable of the model. A Beta is the probability of success, the first of two categories."""
    return p[..., 0] if table.family == "beta" else p


def _shaped(p: Array, chains: int) -> Array:
    return p.reshape(chains, -1, *p.shape[1:])
