"""The likelihood of released sums as an operation of PyTensor, for models of one's own."""

from collections.abc import Callable, Sequence
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_funcify

from pymc_dirdp.arrays import Array
from pymc_dirdp.bandits.design import BatchMechanism
from pymc_dirdp.releases.likelihood import as_python

__all__ = ["log_likelihood"]

# The law is computed for means in the open interval. Draws at its very ends are moved by less than this.
_EDGE = 1e-15


def log_likelihood(released: Sequence[Sequence[tuple[int, int]]], means: Any, mechanism: BatchMechanism) -> Any:
    """Logarithm of the probability of all released sums, as a scalar variable.

    Parameters
    ----------
    released : sequence of sequences of (int, int)
        For each arm the sizes and the released numbers of its batches.
    means : tensor, shape (arms,)
        Mean rewards.
    mechanism : BatchMechanism
        What was released of each batch.
    """
    return _Released(released, mechanism)(pt.as_tensor_variable(means))


class _OfMeans(Op):
    """An operation from the means of all arms, with facts that make it what it is."""

    __props__ = ("released", "mechanism")

    def __init__(self, released: Sequence[Sequence[tuple[int, int]]], mechanism: BatchMechanism) -> None:
        self.released = tuple(tuple((int(size), int(output)) for size, output in batches) for batches in released)
        self.mechanism = mechanism

    def _sums(self, means: Array, of: Callable[[int, int, Array], Array]) -> Array:
        inside = np.clip(np.asarray(means, dtype=np.float64), _EDGE, 1 - _EDGE)
        sums = [
            sum(float(of(output, size, mean[None])[0]) for size, output in batches)
            for batches, mean in zip(self.released, inside, strict=True)
        ]
        return np.array(sums, dtype=np.float64)


class _Released(_OfMeans):
    @override
    def make_node(self, *inputs: Any) -> Any:
        return Apply(self, [pt.as_tensor_variable(one) for one in inputs], [pt.dscalar()])

    @override
    def perform(self, node: Any, inputs: Sequence[Any], output_storage: Any) -> None:
        output_storage[0][0] = np.asarray(self._sums(inputs[0], self.mechanism.log_likelihood).sum())

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        return [cotangents[0] * _Slopes(self.released, self.mechanism)(inputs[0])]


class _Slopes(_OfMeans):
    @override
    def make_node(self, *inputs: Any) -> Any:
        return Apply(self, [pt.as_tensor_variable(one) for one in inputs], [pt.dvector()])

    @override
    def perform(self, node: Any, inputs: Sequence[Any], output_storage: Any) -> None:
        output_storage[0][0] = self._sums(inputs[0], self.mechanism.slope)


numba_funcify.register(_OfMeans)(as_python)
