"""The two secret conjugate posteriors of each table: the user's own, and the one that a release is drawn from."""

from dataclasses import dataclass, field

import numpy as np
import pymc as pm
import xarray as xr
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.models.names import DIAGNOSIS_NAMES, dim_beside, dim_name, outcome_dim
from pymc_dirdp.models.observations import read_counts
from pymc_dirdp.models.table import Table
from pymc_dirdp.releases.description import labels
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["Law", "own_law", "simplex", "variable"]


@dataclass(frozen=True, eq=False)
class Law:
    """`Dirichlet(power * counts + prior)` for every row: the posterior if each record counts `power` times.

    All arrays have the shape of the table.
    """

    table: Table
    counts: Array = field(repr=False)  # The secret.
    prior: Array  # The model's own prior, or the mechanism's `alpha`.
    power: float  # 1, or the mechanism's `r`.

    @property
    def cells(self) -> xr.DataArray:
        """An array with the dims and labels of the table and its categories, to be filled with a number for each."""
        table = self.table
        axes = table.dims or (None,) * (len(table.shape) - (table.family == "beta"))
        names = {dim_name(table.name, axis, dim): dim for axis, dim in enumerate(axes)}
        coords = {dim_beside(name, DIAGNOSIS_NAMES): labels(table).get(str(dim)) for name, dim in names.items()}
        if table.family == "beta":
            coords[outcome_dim(table.name)] = ["success", "failure"]
        given = {dim: values for dim, values in coords.items() if values is not None}
        return xr.DataArray(np.zeros(table.shape), given, list(coords))

    @property
    def concentration(self) -> Array:
        """The parameters of the distribution."""
        return self.power * self.counts + self.prior

    def sample(self, chains: int, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws, shape `(chains, draws, *table.shape)`; they are called chains for ArviZ."""
        return dirichlet(self.concentration, chains * draws, rng).reshape(chains, draws, *self.counts.shape)

    def sample_prior(self, chains: int, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws from the prior, of the same shape."""
        return dirichlet(self.prior, chains * draws, rng).reshape(chains, draws, *self.counts.shape)

    def log_prior(self, p: Array) -> Array:
        """Logarithm of the prior's density at `p`, for each row: shape `(..., *rows)`.

        It is the density in the coordinates of samplers, `log(p_i / p_d)`: `prod p**prior` over the Beta function. Its
        power `k` is a prior with `k` times the prior counts. With respect to `p` itself a flat prior has the same
        density everywhere, so its powers would not show what its counts do.
        """
        constant = gammaln(self.prior.sum(axis=-1)) - gammaln(self.prior).sum(axis=-1)
        return np.asarray(constant + (self.prior * np.log(p)).sum(axis=-1))

    def left_one_out(self) -> Array:
        """Logarithm of the mean probability of each cell once one of its records is left out; NaN for an empty cell.

        This is the mean of `Dirichlet(power * (counts - e_c) + prior)` at the cell `c`, so no Monte Carlo is needed.
        """
        rest = np.where(self.counts > 0, self.concentration - self.power, np.nan)
        total = self.concentration.sum(axis=-1, keepdims=True) - self.power
        return np.asarray(np.log(rest) - np.log(total))


def own_law(table: Table, model: pm.Model) -> Law:
    """The model's own posterior of a table. This function reads the counts."""
    return Law(table, read_counts(table, model).astype(np.float64), table.prior, 1.0)


def simplex(table: Table, values: Array) -> Array:
    """Draws of the released variable with both categories of a Beta, none of them 0, so that logarithms are finite."""
    p = np.stack([values, 1 - values], axis=-1) if table.family == "beta" else values
    return np.maximum(p, np.finfo(np.float64).tiny)


def variable(table: Table, p: Array) -> Array:
    """The reverse of `simplex`. A Beta variable is the probability of success, the first of two categories."""
    return p[..., 0] if table.family == "beta" else p
