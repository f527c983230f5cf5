"""The likelihood of a release as terms of any model: noisy counts of outcomes given their log-probabilities.

Which sums over counts these are is derived in :mod:`pymc_dirdp.inference.noisy_rows`. What remains is who is a row:

* the numbers of records of rows are public: a row is Multinomial given its number;
* their sum is public: all cells together are one Multinomial, with shares of the rows as new free variables;
* nothing is public: every cell is Poisson, and the expected number of records of a row is a new free variable lam. If
  lam is flat on (0, inf), the number of records is flat on 0, 1, 2, ..., because int exp(-lam) lam^n / n! dlam is 1 for
  each n; given the number, cells are Multinomial. Nothing else is assumed;
* each count is an observation of the model: log P[z] = sum_i log sum_x p_i(x) P[z_i | x], a sum over the numbers that
  noise can have taken to z_i, but for exp(-45) of it.
"""

import math
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace, vectorize_graph

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.inference.noisy_rows import NoisyRows
from pymc_dirdp.mechanisms.row_likelihood import CellNoise
from pymc_dirdp.models.outcomes import Inputs, Outcomes
from pymc_dirdp.releases.likelihood import CountsLogp, tell_jax

__all__ = ["counts_term", "expected_name", "in_model", "rows_term", "shares_name", "term_name"]

# Noise of a probability of exp of minus this, beside that of none, is left out of sums over counts.
_UNLIKELY = 45.0
# Numbers of people from 0 on are all summed over if they are fewer than this.
_FEW = 300


def expected_name(name: str) -> str:
    """The free variable of the expected numbers of records of an observed variable."""
    return f"{name}_expected"


def shares_name(name: str) -> str:
    """The free variable of the shares of the rows of an observed variable."""
    return f"{name}_shares"


def term_name(name: str) -> str:
    """The Potential of an observed variable."""
    return f"{name}_release"


def rows_term(log_weights: Any, noise: CellNoise, noisy: Array, totals: tuple[int, ...] | None, name: str) -> Any:
    """The log-probability of noisy rows.

    Parameters
    ----------
    log_weights : TensorVariable, shape (rows, cells)
        Log-probabilities of the cells of each row; or, with private totals, logarithms of the expected counts.
    noise : CellNoise
    noisy : array, shape (rows, cells)
    totals : tuple of int, or None
        The public numbers of records of the rows; None if they are private.
    name : str
    """
    tell_jax()
    rows = NoisyRows(noise, noisy, None if totals is None else np.array(totals, dtype=np.int64))
    value, _ = CountsLogp(rows, name, rows.shape).make_node(log_weights).outputs
    return value if totals is not None else value - pt.exp(log_weights).sum()


def counts_term(found: Outcomes, inputs: Inputs, noise: CellNoise, noisy: Array) -> Any:
    """The log-probability of noisy observations, each of them a number of people, as a function of the inputs."""
    assert found.value is not None
    reach = _UNLIKELY / noise.slope if not noise.is_normal else math.sqrt(_UNLIKELY / noise.slope)
    low, high = np.maximum(np.floor(noisy - reach), 0), np.ceil(np.maximum(noisy, 0) + reach)
    low[low < _FEW] = 0
    counts = low + np.arange(int((high - low).max()) + 1, dtype=np.float64)[:, None]
    logs = np.where(counts <= high, noise.log_noise(noisy - counts), -np.inf)
    log_p, value, shape = found.log_p, found.value, found.value.type.shape
    math_of_graphs: Any = pt

    def at(numbers: Array) -> Any:
        grid = pt.constant(numbers.reshape(-1, *shape).astype(value.type.dtype))
        each: Any = vectorize_graph(log_p, {value: grid})
        return each.reshape((len(numbers), -1))

    possible = np.any([np.isfinite(one) for one in inputs.at_points(at(counts))], axis=0) & np.isfinite(logs)
    if not possible.any(axis=0).all():
        raise ReleaseError(f"The release does not belong to this model: no value of {found.name!r} is near its number.")
    # A number that the model cannot have stands for one that it can, with a probability of 0. So no gradient is taken
    # where a log-probability has none.
    first = np.take_along_axis(counts, possible.argmax(axis=0)[None], axis=0)
    logs = np.where(possible, logs, -np.inf)
    return math_of_graphs.logsumexp(at(np.where(possible, counts, first)) + logs, axis=0).sum()


def in_model(graph: Any, inputs: Inputs, model: pm.Model) -> Any:
    """A function of the inputs as one of the free variables of a copy of the model."""
    places = {place: model[str(rv.name)] for rv, place in inputs.by_variable.items()}
    return graph_replace([graph], places, strict=False)[0]
