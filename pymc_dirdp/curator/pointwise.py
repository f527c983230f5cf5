"""Each observation of a model beside draws of its tables: log-likelihoods and replicated data. Secret."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import gammaln

from pymc_dirdp.models.likelihoods import Kind, Likelihood, stored_observations
from pymc_dirdp.models.names import dim_name
from pymc_dirdp.models.observations import evaluated_input, records_by_cell, resolve_likelihood, rows_of, whole_numbers
from pymc_dirdp.models.tables import Table

__all__ = ["Observed", "observed"]

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Observed:
    """One observed variable as it was given. It has no `repr` of its own, because it holds the data.

    Attributes
    ----------
    name : str
        Of the variable.
    kind : Kind
        Of its distribution.
    values : ndarray of int64, shape (*batch,) or (*batch, d)
        The observations.
    row : ndarray of int64, shape (*batch,)
        Which row of the table each of them feeds.
    records : ndarray of int64, shape (*batch, d), or None
        The observations as counts of categories; None for codes.
    dims : tuple of str
        Of `values`.
    coords : dict of str to list
        The labels of these dims.
    """

    name: str
    kind: Kind
    values: Codes
    row: Codes
    records: Codes | None
    dims: tuple[str, ...]
    coords: dict[str, list[Any]]

    def log_likelihood(self, p: Array) -> Array:
        """For each observation: `(chains, draws, *table.shape)` gives `(chains, draws, *batch)`."""
        log_p = np.log(p).reshape(*p.shape[:2], -1, p.shape[-1])
        if self.records is None:
            cells = log_p.reshape(*p.shape[:2], -1)
            return np.asarray(cells[:, :, self.row * p.shape[-1] + self.values])
        total = np.broadcast_to(self._arrangements, (*p.shape[:2], *self.row.shape)).copy()
        # One category after the other: all at once would take d times the memory.
        for category in range(p.shape[-1]):
            total += self.records[..., category] * log_p[:, :, self.row, category]
        return total

    def total_log_likelihood(self, p: Array) -> Array:
        """The sum over all observations, shape `(chains, draws)`, in memory that does not grow with their number."""
        counts = np.zeros((int(np.prod(p.shape[2:-1])), p.shape[-1]))
        if self.records is None:
            np.add.at(counts, (self.row.ravel(), self.values.ravel()), 1)
        else:
            np.add.at(counts, self.row.ravel(), self.records.reshape(-1, p.shape[-1]))
        log_p = np.log(p).reshape(*p.shape[:2], *counts.shape)
        return np.asarray((counts * log_p).sum(axis=(-2, -1)) + self._arrangements.sum())

    def replicate(self, p: Array, rng: np.random.Generator) -> Codes:
        """Data like the observed ones for each draw: `(chains, draws, *values.shape)`."""
        rows = p.reshape(*p.shape[:2], -1, p.shape[-1])
        rows = rows / rows.sum(axis=-1, keepdims=True)
        if self.records is None:
            uniform = rng.random((*p.shape[:2], *self.row.shape))
            below = np.cumsum(rows, axis=-1)
            codes = np.zeros(uniform.shape, dtype=np.int64)
            # The last category is what is left, so that rounding of the sums cannot lead beyond it.
            for category in range(p.shape[-1] - 1):
                codes += uniform >= below[:, :, self.row, category]
            return codes
        trials = self.records.sum(axis=-1)
        if self.kind.core:
            return rng.multinomial(trials, rows[:, :, self.row])
        return rng.binomial(trials, rows[:, :, self.row, 0])

    @cached_property
    def _arrangements(self) -> Array:
        """Logarithm of how many orders of the records give the same counts: no parameter is in it."""
        if self.records is None:
            return np.zeros(self.row.shape)
        return np.asarray(gammaln(self.records.sum(axis=-1) + 1) - gammaln(self.records + 1).sum(axis=-1))


def observed(table: Table, likelihood: Likelihood, model: pm.Model) -> Observed:
    """The observations that `read_counts` has counted and checked, one by one."""
    rv, kind, batch = resolve_likelihood(likelihood, table, model)
    values = whole_numbers(evaluated_input(stored_observations(rv, model), rv), rv)
    axes = model.named_vars_to_dims.get(likelihood.name) or (None,) * values.ndim
    dims = tuple(dim_name(likelihood.name, axis, dim) for axis, dim in enumerate(axes))
    labels = {dim: model.coords.get(dim) for dim in dims}
    return Observed(
        name=likelihood.name,
        kind=kind,
        values=values,
        row=rows_of(values, rv, likelihood, table, model),
        records=None if kind.name == "categorical" else records_by_cell(values, rv, kind, batch),
        dims=dims,
        coords={dim: list(given) for dim, given in labels.items() if given is not None},
    )
