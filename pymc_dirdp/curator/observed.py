"""Log-likelihoods and replicates of each observation of a model, given draws of its tables. They are confidential."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.observed_table import Labels
from pymc_dirdp.models.observations import Observation, find_observations
from pymc_dirdp.models.table import Table, dim_name

Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Observed:
    """The data of one observed variable. There is no `repr` of the fields, because they hold the data."""

    variable: Observation
    values: Codes  # Shape (*batch,) or (*batch, d).
    row: Codes  # Shape (*batch,): the row of each observation, among the table's rows that the variable sees.
    records: Codes | None  # Shape (*batch, d): the observations as counts of categories; None for codes.
    axes: Labels  # The dims of `values`, with their labels.

    def log_likelihood(self, p: Array) -> Array:
        """The log-likelihood of each observation: `(chains, draws, *table.shape)` gives `(chains, draws, *batch)`."""
        p = self._observed_shares(p)
        log_p = np.log(p).reshape(*p.shape[:2], -1, p.shape[-1])
        if self.records is None:
            cells = log_p.reshape(*p.shape[:2], -1)
            return np.asarray(cells[:, :, self.row * p.shape[-1] + self.values])
        total = np.broadcast_to(self._arrangements, (*p.shape[:2], *self.row.shape)).copy()
        # Categories are added one by one to save memory.
        for category in range(p.shape[-1]):
            total += self.records[..., category] * log_p[:, :, self.row, category]
        return total

    def total_log_likelihood(self, p: Array) -> Array:
        """The sum over all observations, shape `(chains, draws)`. The memory does not grow with their number."""
        p = self._observed_shares(p)
        counts = np.zeros((int(np.prod(p.shape[2:-1])), p.shape[-1]))
        if self.records is None:
            np.add.at(counts, (self.row.ravel(), self.values.ravel()), 1)
        else:
            np.add.at(counts, self.row.ravel(), self.records.reshape(-1, p.shape[-1]))
        log_p = np.log(p).reshape(*p.shape[:2], *counts.shape)
        return np.asarray((counts * log_p).sum(axis=(-2, -1)) + self._arrangements.sum())

    def replicate(self, p: Array, rng: np.random.Generator) -> Codes:
        """Data like the observed ones for each draw: `(chains, draws, *values.shape)`."""
        p = self._observed_shares(p)
        rows = p.reshape(*p.shape[:2], -1, p.shape[-1])
        rows = rows / rows.sum(axis=-1, keepdims=True)
        if self.records is None:
            uniform = rng.random((*p.shape[:2], *self.row.shape))
            below = np.cumsum(rows, axis=-1)
            codes = np.zeros(uniform.shape, dtype=np.int64)
            # The last category takes the remainder, so rounding of the sums cannot lead beyond it.
            for category in range(p.shape[-1] - 1):
                codes += uniform >= below[:, :, self.row, category]
            return codes
        trials = self.records.sum(axis=-1)
        if self.variable.kind.core:
            return rng.multinomial(trials, rows[:, :, self.row])
        return rng.binomial(trials, rows[:, :, self.row, 0])

    def _observed_shares(self, p: Array) -> Array:
        """The shares that the observed variable sees: `(chains, draws, *rows, k)`."""
        view = self.variable.likelihood.view
        return p if view is None else p.reshape(*p.shape[:2], -1)[..., view.cells]

    @cached_property
    def _arrangements(self) -> Array:
        """Log of the multinomial coefficient of the counts, which depends on no parameter."""
        if self.records is None:
            return np.zeros(self.row.shape)
        return np.asarray(gammaln(self.records.sum(axis=-1) + 1) - gammaln(self.records + 1).sum(axis=-1))


def observations(tables: Iterable[Table], model: pm.Model) -> dict[str, tuple[Observed, ...]]:
    """The observed variables that feed each table, by its name."""
    return {
        table.name: tuple(_observed(observation, model) for observation in find_observations([table], model))
        for table in tables
    }


def _observed(observed: Observation, model: pm.Model) -> Observed:
    """The single observations, which `read_counts` has counted and checked."""
    values, row, records = observed.reading.records()
    return Observed(
        variable=observed,
        values=values,
        row=np.broadcast_to(row, observed.lengths),
        records=records,
        axes=axes_of(observed.name, values, model),
    )


def axes_of(name: str, values: NDArray[Any], model: pm.Model) -> Labels:
    """The dims of a variable of the model, with their labels; or with numbers, if a dim has no labels."""
    dims = model.named_vars_to_dims.get(name) or (None,) * values.ndim
    return tuple(
        (dim_name(name, axis, dim), list(model.coords.get(dim) or range(size)))
        for axis, (dim, size) in enumerate(zip(dims, values.shape, strict=True))
    )
