"""Noisy tables as PyMC distributions, so that they are ordinary observed variables of a private model.

Each has the log-probability of noisy counts, in which the counts are summed out, and draws further noisy counts with
the noise of the mechanism itself. All that a log-probability depends on are its inputs, so PyTensor finds what it has
compiled before.
"""

import warnings
from collections.abc import Sequence
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import Discrete
from pytensor.compile.sharedvalue import shared
from pytensor.graph.replace import graph_replace
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.inference.joint_rows import JointRows
from pymc_dirdp.inference.noisy_rows import NoisyRows
from pymc_dirdp.mechanisms.noise import NoisyMarginal
from pymc_dirdp.releases.counts_logp import rows_logp


class _NoisyVariable(RandomVariable):
    """Counts of the cells of rows, with the noise of a mechanism.

    Parameters
    ----------
    measured : NoisyMarginal
        The table and its noise. PyTensor makes operations again from their properties, so it is one.
    """

    dtype = "int64"
    __props__: Any = (*RandomVariable.__props__, "measured")

    def __init__(self, measured: NoisyMarginal, **options: Any) -> None:
        super().__init__(**options)
        self.measured = measured

    def noisy(self, counts: Integers, rng: np.random.Generator) -> Integers:
        """Counts of whole tables, leading axes of independent ones first, with noise on them."""
        whole = counts.reshape(-1, *self.measured.shape)
        noise = self.measured.noise_for((len(whole),), rng)
        return np.asarray(whole + np.rint(noise).astype(np.int64)).reshape(counts.shape)


@numba_core_rv_funcify.register(_NoisyVariable)
def _drawn_by_python(op: _NoisyVariable, node: Any) -> Any:
    """Numba calls Python. It says so at each compilation, and there is nothing that anybody should do about it."""
    warnings.filterwarnings("ignore", f"Numba will use object mode to run {type(op).__name__}", UserWarning)
    raise NotImplementedError("The noise of a whole table is drawn at once, by Python.")


def _shares_of(log_p: Array) -> Array:
    """Proper shares also where a prior draws none, such as cut points without order, with which PyMC draws on."""
    p = np.maximum(np.nan_to_num(np.exp(log_p), nan=0.0), 1e-300)
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


class _NoisyCountsVariable(_NoisyVariable):
    """Multinomial counts of each row with noise, given the log-probabilities and the number of records.

    The last input decides nothing of them.
    """

    name = "noisy_counts"
    signature = "(k),(),(c),(l)->(k)"
    _print_name = ("NoisyCounts", "\\operatorname{NoisyCounts}")

    @override
    def rng_fn(
        self, rng: np.random.Generator, log_p: Array, n: Integers, noise: Array, terms: Array, size: Any
    ) -> Integers:
        shape = np.broadcast_shapes(log_p.shape[:-1], n.shape) if size is None else tuple(size)
        p = np.broadcast_to(_shares_of(log_p), (*shape, log_p.shape[-1]))
        return self.noisy(rng.multinomial(np.broadcast_to(n, shape), p), rng)


class _NoisyPoissonVariable(_NoisyVariable):
    """Poisson counts of each cell with noise, given the logarithms of their means."""

    name = "noisy_poisson"
    signature = "(k),(c)->(k)"
    _print_name = ("NoisyPoisson", "\\operatorname{NoisyPoisson}")

    @override
    def rng_fn(self, rng: np.random.Generator, log_mu: Array, noise: Array, size: Any) -> Integers:
        shape = log_mu.shape if size is None else (*size, log_mu.shape[-1])
        return self.noisy(rng.poisson(np.broadcast_to(np.exp(log_mu), shape)), rng)


class _JointCountsVariable(_NoisyVariable):
    """Multinomial counts of several tables side by side with one noise for all of them.

    The last input has the number of cells of each table.
    """

    name = "joint_counts"
    signature = "(k),(t),(t),(m,r),(r)->(k)"
    _print_name = ("JointCounts", "\\operatorname{JointCounts}")

    @override
    def rng_fn(
        self, rng: np.random.Generator, log_p: Array, n: Integers, cells: Integers, limits: Any, radii: Any, size: Any
    ) -> Integers:
        shape = log_p.shape[:-1] if size is None else tuple(size)
        ends = np.cumsum(cells.reshape(-1, cells.shape[-1])[0])
        totals = np.broadcast_to(n, (*shape, len(ends)))
        tables = np.split(np.broadcast_to(log_p, (*shape, log_p.shape[-1])), ends[:-1], axis=-1)
        counts = [rng.multinomial(totals[..., i], _shares_of(logs)) for i, logs in enumerate(tables)]
        return self.noisy(np.concatenate(counts, axis=-1), rng)


def _in_rows(array: Any, like: Any) -> Any:
    return pt.broadcast_to(array, like.shape).reshape((-1, like.shape[-1]))


def _variable(
    cls: Any, /, *parameters: Any, measured: NoisyMarginal, rng: Any = None, size: Any = None, **options: Any
) -> Any:
    """The random variable of a class of distributions. PyMC looks for this function in each class itself."""
    state = shared(np.random.default_rng()) if rng is None else rng
    # A call of the operation itself differs between versions of PyTensor.
    return cls.rv_type(measured, **options).make_node(state, size, *parameters).outputs[1]


class _NoisyTable(Discrete):  # type: ignore[misc]  # PyMC has no types.
    """A distribution of noisy counts. `measured` is the table and its noise."""

    @classmethod
    def dist(cls, *parameters: Any, measured: NoisyMarginal, **options: Any) -> Any:
        return super().dist([pt.as_tensor_variable(array) for array in parameters], measured=measured, **options)


class NoisyCounts(_NoisyTable):
    """Noisy counts of rows with public totals: log-probabilities (k), a total, the three numbers of a `CellNoise`.

    The last input is :func:`pair_terms` of the noisy counts that were published (l), which changes no value. It is
    without entries where there are none, and no use for other noisy counts.
    """

    rv_type = _NoisyCountsVariable
    rv_op = classmethod(_variable)

    def support_point(rv: Any, size: Any, log_p: Any, n: Any, noise: Any, terms: Any) -> Any:  # noqa: D102, N805  # As PyMC calls it.
        return pt.round(n[..., None] * pt.exp(log_p)).astype("int64") + pt.zeros_like(rv)

    def logp(value: Any, log_p: Any, n: Any, noise: Any, terms: Any) -> Any:  # noqa: D102, N805
        totals = pt.broadcast_to(n, value.shape[:-1]).ravel().astype("int64")
        listed = terms.reshape((totals.shape[0], 1, terms.shape[-1])) if terms.type.shape[-1] else _NO_LISTS
        return _logp_of_rows(value, log_p, noise, listed, totals)


class NoisyPoisson(_NoisyTable):
    """Noisy counts of rows with private totals: logarithms of expected counts (k), the numbers of a `CellNoise`."""

    rv_type = _NoisyPoissonVariable
    rv_op = classmethod(_variable)

    def support_point(rv: Any, size: Any, log_mu: Any, noise: Any) -> Any:  # noqa: D102, N805
        return pt.round(pt.exp(log_mu)).astype("int64") + pt.zeros_like(rv)

    def logp(value: Any, log_mu: Any, noise: Any) -> Any:  # noqa: D102, N805
        logs = _logp_of_rows(value, log_mu, noise, _NO_LISTS, np.empty(0, dtype=np.int64))
        return logs - pt.broadcast_to(pt.exp(log_mu), value.shape).sum(axis=-1)


_NO_LISTS = np.empty((0, 0, 0))


def _logp_of_rows(value: Any, log_weights: Any, noise: Any, listed: Any, totals: Any) -> Any:
    rows = _in_rows(log_weights, value), _in_rows(value, value).astype("float64")
    # PyTensor has given the noise as many axes as the others have.
    logs = rows_logp(NoisyRows, *rows, noise.ravel()[:3], listed, totals)
    return logs.reshape(value.shape[:-1], ndim=value.ndim - 1)


class JointCounts(_NoisyTable):
    """Noisy counts of several tables side by side, which share one noise.

    Log-probabilities (k), the totals and numbers of cells of the tables (t), the limits of their norms (t, r) and the
    logarithms of the weights of the radii (r).
    """

    rv_type = _JointCountsVariable
    rv_op = classmethod(_variable)

    def support_point(rv: Any, size: Any, log_p: Any, n: Any, cells: Any, limits: Any, radii: Any) -> Any:  # noqa: D102, N805
        return pt.zeros_like(rv)

    def logp(value: Any, log_p: Any, n: Any, cells: Any, limits: Any, radii: Any) -> Any:  # noqa: D102, N805
        return rows_logp(JointRows, log_p, value.astype("float64"), cells, limits, radii)


class _NoiseVariable(_NoisyVariable):
    """The noise of a mechanism alone, of as many cells as the input has."""

    name = "noise"
    signature = "(k)->(k)"
    _print_name = ("Noise", "\\operatorname{Noise}")

    @override
    def rng_fn(self, rng: np.random.Generator, zeros: Array, size: Any) -> Integers:
        lead = zeros.shape[:-1] if size is None else tuple(size)
        return np.rint(self.measured.noise_for(lead, rng)[..., : zeros.shape[-1]]).astype(np.int64)


class _Noise(_NoisyTable):
    rv_type = _NoiseVariable
    rv_op = classmethod(_variable)


def observe_noisy_numbers(
    name: str,
    numbers: Any,
    free: Sequence[Any],
    logp: Any,
    fixed: Sequence[Any],
    *,
    measured: NoisyMarginal,
    observed: Any,
    dims: Any,
) -> Any:
    """Observe numbers of people of any distribution with noise on them, in the model on the context stack.

    Parameters
    ----------
    name : str
    numbers : TensorVariable
        The random variable without noise, a function of `free`.
    free : sequence of TensorVariable
        Free variables of the model.
    logp : TensorVariable
        The log-probability of each noisy number, a function of `free` and `fixed`.
    fixed : sequence of TensorVariable
        The numbers over which is summed, and the logarithms of the probabilities of their noise.
    measured : NoisyMarginal
    observed : TensorVariable
        The noisy numbers.
    dims : tuple of str, or None
    """
    inputs = [*free, *fixed]

    def drawn(*parameters: Any) -> Any:
        places = dict(zip(free, parameters, strict=False))
        without_noise: Any = graph_replace([numbers], places, strict=False)[0]
        size = int(np.prod(observed.type.shape))
        noise = _Noise.dist(pt.zeros(size), measured=measured)
        return without_noise + noise.reshape(observed.type.shape)

    def log_probability(value: Any, *parameters: Any) -> Any:
        given: Any = graph_replace([logp], dict(zip(inputs, parameters, strict=True)), strict=False)[0]
        return given.reshape(observed.type.shape)

    axes = iter(range(sum(variable.type.ndim for variable in inputs) + observed.type.ndim))
    cores = [",".join(f"d{next(axes)}" for _ in range(variable.type.ndim)) for variable in [*inputs, observed]]
    signature = ",".join(f"({core})" for core in cores[:-1]) + f"->({cores[-1]})"
    return pm.CustomDist(
        name,
        *inputs,
        dist=drawn,
        logp=log_probability,
        observed=observed,
        dims=dims,
        class_name="NoisyNumbers",
        signature=signature,
    )
