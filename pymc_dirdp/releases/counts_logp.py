"""The log-probability of noisy counts as operations of PyTensor, for Python, Numba and JAX.

The input of an operation is the logarithms of the weights of cells. Its outputs are the log-probability of the release
and its gradient, the expected counts. The operation of compiled rows has no state and depends on its inputs alone, so
other models and processes reuse the code that Numba has compiled and stored on disk.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from inspect import getsourcefile
from pathlib import Path
from typing import Any, final, override

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.gradient import DisconnectedType, disconnected_type, grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import (
    generate_fallback_impl,
    numba_funcify,
    numba_njit,
    register_funcify_and_cache_key,
)

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.joint_rows import CompiledRows, JointRows
from pymc_dirdp.inference.noisy_rows import NoisyRows
from pymc_dirdp.inference.observed_table import Beliefs, ObservedTable
from pymc_dirdp.inference.tables import posterior_of


class CountsLogp(Op):
    """Log-probability of a release and its gradient, as functions of the logarithms of the weights of cells.

    Evaluations share no state, so an operation is thread-safe. The logarithms are the first input, and the value has
    some of their leading axes.
    """

    value_axes = 0

    @abstractmethod
    def evaluate(self, logs: Array, *published: Array) -> tuple[Array, Array]:
        """The log-probability, `-inf` if a share is not a number, and its gradient, the expected counts."""

    @override
    def make_node(self, *inputs: Any) -> Apply[Any]:
        logs, *published = map(pt.as_tensor_variable, inputs)
        logs = logs.astype("float64")
        shape = logs.type.shape
        value = pt.tensor(dtype="float64", shape=shape[: self.value_axes])
        return Apply(self, [logs, *published], [value, pt.tensor(dtype="float64", shape=shape)])

    @override
    def perform(self, node: Apply[Any], inputs: Sequence[Any], output_storage: Sequence[list[Any]]) -> None:
        output_storage[0][0], output_storage[1][0] = self.evaluate(*inputs)

    @override
    def pullback(
        self, inputs: Sequence[Variable[Any, Any]], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Variable[Any, Any]]:
        if not isinstance(cotangents[1].type, DisconnectedType):
            missing: Any = grad_not_implemented(self, 0, inputs[0], "A release has no second derivatives.")
            return [missing, *(disconnected_type() for _ in inputs[1:])]
        added: list[Any] = ["x"] * (outputs[1].type.ndim - self.value_axes)
        gradient = cotangents[0].dimshuffle([*range(self.value_axes), *added]) * outputs[1]
        return [gradient, *(disconnected_type() for _ in inputs[1:])]

    def connection_pattern(self, node: Apply[Any]) -> list[list[bool]]:
        """The outputs are differentiable in the first input only."""
        return [[True, True], *([False, False] for _ in node.inputs[1:])]


@final
class ReleaseLogp(CountsLogp):
    """Log-probability of the output for a table, as a function of the logarithms of the shares.

    They have the shape of the table, with both outcomes of a Beta.

    Parameters
    ----------
    output : ObservedTable
        The output of the table. It must not change later.
    beliefs : Beliefs
        The priors of private totals.
    """

    def __init__(self, output: ObservedTable, beliefs: Beliefs) -> None:
        self._output, self._beliefs = output, beliefs
        self._distribution = posterior_of(output, beliefs)

    @override
    def __str__(self) -> str:
        return f"{type(self).__name__}({self._output.name})"

    def __reduce__(self) -> tuple[type["ReleaseLogp"], tuple[ObservedTable, Beliefs]]:
        # The distribution has functions and cannot be pickled, so its arguments are.
        return ReleaseLogp, (self._output, self._beliefs)

    @override
    def evaluate(self, logs: ArrayLike, *published: Array) -> tuple[Array, Array]:
        logs, shape = np.asarray(logs, dtype=np.float64), tuple(self._output.prior.shape)
        if logs.shape != shape:
            raise ValueError(f"Expected shares of {self._output.name!r} in the shape {shape}, got {logs.shape}.")
        if np.isnan(logs).any() or np.isposinf(logs).any():
            return np.asarray(-np.inf), np.zeros(shape)
        value, means = self._distribution.likelihood(logs)
        return np.asarray(value), means


@final
class RowsLogp(CountsLogp):
    """Log-probability of the noisy counts of compiled rows: of each row, or of all tables with shared noise.

    Its inputs are the logarithms of the weights of cells, the published values, and the other arrays of the rows.

    Parameters
    ----------
    kind : type of CompiledRows
    """

    __props__ = ("kind",)

    def __init__(self, kind: type[CompiledRows]) -> None:
        self.kind = kind
        self.value_axes = 1 if kind is NoisyRows else 0

    @override
    def evaluate(self, logs: Array, *published: Array) -> tuple[Array, Array]:
        if logs.shape != published[0].shape:
            raise ValueError("Expected as many weights of cells as noisy counts.")
        return self.kind.evaluate(logs, *published)


def rows_logp(kind: type[CompiledRows], log_weights: Any, *inputs: Any) -> Any:
    """The log-probability of compiled rows as a tensor: of each row, or of all tables with shared noise.

    Parameters
    ----------
    kind : type of CompiledRows
    log_weights : TensorVariable
        In the shape of the noisy counts.
    *inputs : TensorVariable or array
        The published values, beginning with the noisy counts, and the other arrays of the rows.
    """
    register_with_jax()
    value, _ = RowsLogp(kind).make_node(log_weights, *inputs).outputs
    return value


def fixed_rows_logp(rows: CompiledRows, log_weights: Any) -> Any:
    """The log-probability of published rows. The weights may have another shape."""
    inputs = [*rows.published, *rows.arrays]
    return rows_logp(type(rows), log_weights.reshape(inputs[0].shape), *inputs)


# Implementations for Numba and JAX.


def as_python(op: Any, node: Any = None, **options: Any) -> Callable[..., Any]:
    """Let Numba call Python, without its warning at each compilation, because users cannot avoid it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Numba will use object mode", UserWarning)
        fallback: Callable[..., Any] = generate_fallback_impl(op, node=node, **options)
    return fallback


numba_funcify.register(CountsLogp)(as_python)


@cache
def _version(kind: type[CompiledRows]) -> str:
    """A version of the code of a program, as a key of its cache."""
    files = {getsourcefile(kind), getsourcefile(JointRows), __file__}
    return sha256(b"".join(Path(str(file)).read_bytes() for file in sorted(map(str, files)))).hexdigest()[:16]


@register_funcify_and_cache_key(RowsLogp)  # type: ignore[untyped-decorator]
def _compiled_rows(op: RowsLogp, node: Any = None, **_: Any) -> tuple[Callable[..., Any], str]:
    """A call of the program. Read-only arrays, such as those of samplers, have another type in Numba."""
    program = op.kind.program()

    def evaluate(logs: Any, noisy: Any, first: Any, second: Any, third: Any) -> Any:
        if logs.shape != noisy.shape:
            raise ValueError("Expected as many weights of cells as noisy counts.")
        means, values = np.zeros(logs.shape), np.zeros(max(logs.size // max(logs.shape[-1], 1), 1))
        program(np.ascontiguousarray(logs), means, values, noisy, first, second, third)
        return values.reshape(logs.shape[:-1]), means

    return numba_njit(evaluate), f"{op.kind.__name__} {_version(op.kind)}"


def register_with_jax() -> None:
    """Let JAX evaluate the likelihood by a callback, if it is installed; PyMC does not need it otherwise."""
    try:
        jax: Any = import_module("jax")
        dispatch: Any = import_module("pytensor.link.jax.dispatch")
    except ImportError:
        # PyMC raises its own error if JAX is requested.
        return

    def as_callback(op: CountsLogp, **_: Any) -> Any:
        def callback(logs: Any, *published: Any) -> Any:
            double = np.dtype(np.float64)
            value = jax.ShapeDtypeStruct(logs.shape[: op.value_axes], double)
            results = value, jax.ShapeDtypeStruct(logs.shape, double)

            def call(*arrays: Any) -> Any:
                return op.evaluate(*map(np.asarray, arrays))

            return jax.pure_callback(call, results, logs, *published, vmap_method="sequential")

        def forward(*inputs: Any) -> Any:
            results = callback(*inputs)
            return results, (results[1], inputs[1:])

        def backward(residuals: Any, cotangents: Any) -> Any:
            gradient, published = residuals
            # JAX requires cotangents of integers to have the type float0.
            others = [
                array * 0 if array.dtype.kind == "f" else np.zeros(array.shape, jax.dtypes.float0)
                for array in published
            ]
            value_cotangent = cotangents[0].reshape(cotangents[0].shape + (1,) * (gradient.ndim - cotangents[0].ndim))
            return value_cotangent * gradient, *others

        logp = jax.custom_vjp(callback)
        logp.defvjp(forward, backward)
        return logp

    dispatch.jax_funcify.register(CountsLogp)(as_callback)
