"""The likelihood of shares given a release, as an operation of PyTensor: a part of any model."""

import math
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol, final, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import ArrayLike
from pymc.distributions.dist_math import check_parameters
from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.link.numba.dispatch.basic import generate_fallback_impl, numba_funcify

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.beliefs import Beliefs
from pymc_dirdp.inference.noisy_rows import NoisyRows, noisy_rows
from pymc_dirdp.inference.seen import Seen
from pymc_dirdp.inference.tables import law_of
from pymc_dirdp.mechanisms.row_likelihood import CellNoise
from pymc_dirdp.models.outcomes import Inputs, Outcomes
from pymc_dirdp.releases.inference_setup import Source, inferences

__all__ = [
    "CountsLogp",
    "ReleaseLogp",
    "as_python",
    "counts_term",
    "expected_name",
    "in_model",
    "logp_of",
    "owned",
    "release_logp",
    "rows_term",
    "shares_name",
    "tell_jax",
    "term_name",
]

# Shares add up to 1 within this tolerance.
_ROUNDING = 1e-6


class Likelihood(Protocol):
    """What an operation computes."""

    def likelihood(self, log_weights: Array) -> tuple[float, Array]:
        """A log-probability and its gradient in the logarithms of the weights of cells."""


class CountsLogp(Op):
    """Log-probability of noisy counts, and its gradient, as functions of the logarithms of the weights of cells.

    Nothing is kept from one evaluation to the next, so several threads may share one.

    Parameters
    ----------
    distribution : Likelihood
        It must not change any more.
    name : str
        Of the table.
    shape : tuple of int
        That of the weights.
    """

    def __init__(self, distribution: Likelihood, name: str, shape: tuple[int, ...]) -> None:
        self._distribution, self.name, self.shape = distribution, name, shape

    @override
    def __str__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    def evaluate(self, log_shares: ArrayLike) -> tuple[Array, Array]:
        """The log-probability, `-inf` where it is 0 or a share is no number, and the expected counts: its gradient."""
        logs = np.asarray(log_shares, dtype=np.float64)
        if logs.shape != self.shape:
            raise ValueError(f"Expected shares of {self.name!r} in the shape {self.shape}, got {logs.shape}.")
        if np.isnan(logs).any() or np.isposinf(logs).any():
            return np.asarray(-np.inf), np.zeros(self.shape)
        value, means = self._distribution.likelihood(logs)
        return np.asarray(value), means

    @override
    def make_node(self, *inputs: Any) -> Apply[Any]:
        (log_shares,) = inputs
        return Apply(
            self, [pt.as_tensor_variable(log_shares)], [pt.dscalar(), pt.tensor(dtype="float64", shape=self.shape)]
        )

    @override
    def perform(self, node: Apply[Any], inputs: Sequence[Any], output_storage: Sequence[list[Any]]) -> None:
        output_storage[0][0], output_storage[1][0] = self.evaluate(inputs[0])

    @override
    def pullback(
        self, inputs: Sequence[Variable[Any, Any]], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Variable[Any, Any]]:
        if not isinstance(cotangents[1].type, DisconnectedType):
            return [grad_not_implemented(self, 0, inputs[0], "A release has no second derivatives.")]
        return [(cotangents[0] * outputs[1]).astype(inputs[0].type.dtype)]


def as_python(op: Any, node: Any = None, **options: Any) -> Callable[..., Any]:
    """Numba calls Python. It says so at each compilation, and there is nothing that anybody should do about it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Numba will use object mode", UserWarning)
        found: Callable[..., Any] = generate_fallback_impl(op, node=node, **options)
    return found


@final
class ReleaseLogp(CountsLogp):
    """Log-probability of the output for a table, as a function of the logarithms of the shares.

    Its shape has both outcomes of a Beta.

    Parameters
    ----------
    output : Seen
        Of the table. It must not change any more.
    beliefs : Beliefs
        About totals that are private.
    """

    def __init__(self, output: Seen, beliefs: Beliefs) -> None:
        self._output, self._beliefs = output, beliefs
        distribution = noisy_rows(output, beliefs) or law_of(output, beliefs)
        super().__init__(distribution, output.name, tuple(output.prior.shape))

    def __reduce__(self) -> tuple[type["ReleaseLogp"], tuple[Seen, Beliefs]]:
        # The distribution holds functions, which cannot be pickled; what it is made from can.
        return ReleaseLogp, (self._output, self._beliefs)


numba_funcify.register(CountsLogp)(as_python)


def tell_jax() -> None:
    """Let JAX call Python, if it is installed. JAX differentiates by itself, so it is told the gradient."""
    try:
        jax: Any = import_module("jax")
        dispatch: Any = import_module("pytensor.link.jax.dispatch")
    except ImportError:
        # PyMC says what is missing to who asks for JAX.
        return

    def as_callback(op: CountsLogp, **_: Any) -> Any:
        double = np.dtype(np.float64)
        results = jax.ShapeDtypeStruct((), double), jax.ShapeDtypeStruct(op.shape, double)

        def evaluated(log_shares: Any) -> Any:
            return jax.pure_callback(op.evaluate, results, log_shares, vmap_method="sequential")

        def backward(gradient: Any, cotangents: Any) -> Any:
            return (cotangents[0] * gradient,)

        logp = jax.custom_vjp(evaluated)
        logp.defvjp(lambda log_shares: (found := evaluated(log_shares), found[1]), backward)
        return logp

    dispatch.jax_funcify.register(CountsLogp)(as_callback)


def owned(release: Source | Sequence[Source]) -> Any:
    """A copy of a release, or of several, which does not change if they do."""
    if isinstance(release, list | tuple):
        return [owned(one) for one in release]
    return release.copy(deep=True) if isinstance(release, xr.DataTree) else release


def logp_of(output: Seen, beliefs: Beliefs, p: Any) -> Any:
    """Log-probability of the output of a table, given its shares.

    Parameters
    ----------
    output : Seen
        The output of the table, which does not change.
    beliefs : Beliefs
        About totals that are private.
    p : TensorVariable
        Its shares, in the shape of the draws.
    """
    tell_jax()
    logp = ReleaseLogp(output, beliefs)
    p = pt.as_tensor_variable(p)
    beta = output.family == "beta"
    shape = logp.shape[:-1] if beta else logp.shape
    if p.ndim != len(shape) or any(size not in (None, n) for size, n in zip(p.type.shape, shape, strict=True)):
        raise ArgumentError(f"Expected p in the shape of {output.name!r}, {shape}, got {p.type.shape}.")
    if beta:
        log_shares = pt.stack([pt.log(p), pt.log1p(-p)], axis=-1)
        proper, words = (p >= 0) & (p <= 1), "0 <= p <= 1"
    else:
        log_shares = pt.log(p)
        proper, words = (p >= 0) & pt.isclose(p.sum(axis=-1, keepdims=True), 1.0, 0.0, _ROUNDING), "p >= 0, sum(p) = 1"
    value, _ = logp.make_node(log_shares).outputs
    return check_parameters(value, proper, msg=words)


def release_logp(
    release: Source | Sequence[Source],
    p: Any,
    table: str | None = None,
    *,
    n_prior: int | ArrayLike | None = None,
    row_prior: ArrayLike | None = None,
) -> Any:
    """Log-probability of a release as a function of the shares: its likelihood, for a model of your own.

    The counts are summed out exactly, so it may be differentiated, and NUTS can sample `p` and whatever `p` depends on.
    It uses what was published alone and costs no privacy.

    Parameters
    ----------
    release : xarray.DataTree, MechanismOutput, or a list of them
        As for :func:`pymc_dirdp.analyse`. It is copied.
    p : TensorVariable
        The shares, in the shape of a draw of the table: of a Beta the probabilities of success.
    table : str, optional
        Which table of the release; needed if there are several. Tables of the same records are no independent pieces of
        evidence about row sizes, so a sum over them is right for their shares only.
    n_prior : int or array_like, optional
        As for :func:`pymc_dirdp.analyse`: your prior of a private number of records.
    row_prior : array_like, optional
        As for :func:`pymc_dirdp.analyse`: Dirichlet prior of how the records divide among rows; 1 for each by default.
        If your model says how large rows are, release and model the whole table as one row instead: that is exact, and
        faster.

    Returns
    -------
    logp : TensorVariable
        A scalar, for `pm.Potential`. Its gradient in `log p` is what the counts are expected to be. It is `-inf` where
        no table is possible. As with PyMC's own distributions, a `p` that is no probability is a `ParameterValueError`
        when evaluated, and `-inf` in a model's log-probability.

    Raises
    ------
    ReleaseError
        If it is no release, is damaged, or contradicts itself.
    ArgumentError
        If the shape of `p`, the table or a prior does not fit.

    Notes
    -----
    For noisy counts of rows whose numbers of records are public an evaluation with its gradient takes about .01 ms for
    a row of two cells, .2 ms for one of 5, and 3 ms for one of 100. Otherwise it is .02 ms for a row of two cells and a
    public total of a thousand, 1 ms for 4 cells, 4 ms for 10 and 14 ms for 50. For noisy counts of several rows whose
    sizes are not known, with a public number of records or a private one, it is about 2 ms for two rows of two cells,
    5 ms for four of five, and 20 ms for twenty of five. A draw says little about the sizes of rows, so for that it
    takes longer. There are no second derivatives. On the boundary of the simplex the value is right, and the
    gradient in `p` itself is no number.

    JAX (`nuts_sampler="numpyro"` or `"blackjax"`) calls back into Python for each evaluation, on one core at a time.
    It is told how when JAX is installed, `pip install jax numpyro`, before this function is called.

    References
    ----------
    Theory, section 16.

    Examples
    --------
    A regression on the released shares; an analyst who has no data at all can fit it:

    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     heads = pm.Binomial("heads", n=1000, p=p, observed=300)
    ...     release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric")
    >>> with pm.Model() as model:
    ...     logit = pm.Normal("logit", 0, 2, initval=-1.0)
    ...     _ = pm.Potential("release", dirdp.release_logp(release, pm.math.invlogit(logit)))
    >>> bool(model.compile_logp()({"logit": -0.85}) > model.compile_logp()({"logit": 0.85}))
    True
    """
    found = inferences(owned(release), None, n_prior, row_prior, jointly=False)
    names = list(found.tables)
    if table is None and len(names) > 1:
        raise ArgumentError(f"The release has the tables {', '.join(names)}. Pass table= one of them.")
    name = names[0] if table is None else table
    if name not in names:
        raise ArgumentError(f"The release has no table {name!r}, but {', '.join(names)}.")
    return logp_of(found.tables[name], found.beliefs[name], p)


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
