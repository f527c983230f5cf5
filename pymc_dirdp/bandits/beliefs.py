"""Posteriors of mean rewards given released batches."""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final, override

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_funcify
from scipy.special import betainc

from pymc_dirdp.arrays import Array
from pymc_dirdp.bandits.batch_release import BatchCounts, BatchMechanism, BatchNoise
from pymc_dirdp.inference.noisy_rows import NoisyRows
from pymc_dirdp.releases.counts_logp import as_python, fixed_rows_logp
from pymc_dirdp.releases.likelihood import as_tensor


def log_likelihood(released: Sequence[Sequence[tuple[int, Any]]], means: Any, mechanism: BatchMechanism) -> Any:
    """Log-probability of all released batches, as a scalar variable for PyMC models.

    Parameters
    ----------
    released : sequence of sequences of (int, Output)
        For each arm the sizes and the outputs of its batches.
    means : tensor, shape (arms,)
        Mean rewards; for counts the shares of the cells, shape (arms, cells).
    mechanism : BatchMechanism
        The mechanism of each batch.
    """
    means = as_tensor(mean_reward=means)
    if isinstance(mechanism, BatchCounts):
        arms = [arm for arm, batches in enumerate(released) for _ in batches]
        if not arms:
            return pt.as_tensor_variable(0.0)
        outputs = np.array([output for batches in released for _, output in batches], dtype=np.float64)
        sizes = tuple(size for batches in released for size, _ in batches)
        shares, noise = means[np.array(arms)], mechanism.noise.cell_noise
        assert noise is not None
        rows = NoisyRows(np.array(sizes, dtype=np.int64), published=(outputs, noise.numbers))
        return fixed_rows_logp(rows, pt.log(shares)).sum()
    return _Released(released, mechanism)(means)


class _OfMeans(Op):
    """An operation on the means of all arms, identified by the released batches and their mechanism."""

    __props__ = ("released", "mechanism")

    def __init__(self, released: Sequence[Sequence[tuple[int, int]]], mechanism: BatchNoise) -> None:
        self.released = tuple(tuple((int(size), int(output)) for size, output in batches) for batches in released)
        self.mechanism = mechanism

    def _sums(self, means: Array, of: Callable[[int, int, Array], Array], *, edge: float = 1e-15) -> Array:
        """Sums over the batches of each arm. Means are clipped to the open interval, by at most `edge`."""
        inside = np.clip(np.asarray(means, dtype=np.float64), edge, 1 - edge)
        sums = [
            sum(float(of(output, size, mean[None])[0]) for size, output in batches)
            for batches, mean in zip(self.released, inside, strict=True)
        ]
        return np.array(sums, dtype=np.float64)


class _Released(_OfMeans):
    @override
    def make_node(self, *inputs: Any) -> Any:
        return Apply(self, [pt.as_tensor_variable(value) for value in inputs], [pt.dscalar()])

    @override
    def perform(self, node: Any, inputs: Sequence[Any], output_storage: Any) -> None:
        output_storage[0][0] = np.asarray(self._sums(inputs[0], self.mechanism.log_likelihood).sum())

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        return [cotangents[0] * _Slopes(self.released, self.mechanism)(inputs[0])]


class _Slopes(_OfMeans):
    @override
    def make_node(self, *inputs: Any) -> Any:
        return Apply(self, [pt.as_tensor_variable(value) for value in inputs], [pt.dvector()])

    @override
    def perform(self, node: Any, inputs: Sequence[Any], output_storage: Any) -> None:
        output_storage[0][0] = self._sums(inputs[0], self.mechanism.slope)


numba_funcify.register(_OfMeans)(as_python)


# Number of cells of a grid, which are even in the arcsine of the root of the mean to resolve rates such as .005.
CELLS = 2000
# Log-weights that lie this far below the largest are negligible.
_NOTHING = 45.0


@final
@dataclass(frozen=True)
class Grid:
    """A grid of the mean reward with cells that are even in `arcsin(sqrt(mean))`.

    Attributes
    ----------
    low, high : float
        The ends of the grid, as angles between 0 and pi / 2.
    """

    low: float = 0.0
    high: float = np.pi / 2

    @property
    def covers_ends(self) -> tuple[bool, bool]:
        """Whether the grid begins at a mean of 0, and ends at 1."""
        return self.low == 0.0, self.high == np.pi / 2

    @cached_property
    def angles(self) -> Array:
        """The ends of the cells, shape (CELLS + 1,)."""
        return np.linspace(self.low, self.high, CELLS + 1)

    @cached_property
    def means(self) -> Array:
        """A mean reward in each cell, shape (CELLS,)."""
        # No mean may round to 1, because 1 minus the mean needs a logarithm.
        return np.asarray(np.minimum(np.sin((self.angles[1:] + self.angles[:-1]) / 2) ** 2, 1 - 2.0**-53))

    def log_prior(self, prior: tuple[float, float]) -> Array:
        """Logarithms of the prior masses of the cells of a Beta distribution, up to a constant."""
        a, b = prior
        ends = np.sin(self.angles) ** 2
        # Use the smaller tail, which is more accurate. This sine is exactly 0 at the last angle, but the cosine is not.
        rests = np.sin(np.pi / 2 - self.angles) ** 2
        lower, upper = np.diff(betainc(a, b, ends)), -np.diff(betainc(b, a, rests))
        with np.errstate(divide="ignore"):
            logs: Array = np.log(np.where(ends[1:] < a / (a + b), lower, upper))
        # If both tails underflow, use the density in the middle of the cell.
        density = (a - 0.5) * np.log(self.means) + (b - 0.5) * np.log1p(-self.means)
        return np.where(np.isfinite(logs), logs, density) if np.isfinite(logs).any() else density

    def means_at(self, position: Array) -> Array:
        """Mean rewards at positions in units of cells from the lower end."""
        return np.asarray(np.sin(self.low + (self.high - self.low) * position / CELLS) ** 2)


class GridBelief(abc.ABC):
    """The posterior of the mean reward of one arm, as probabilities of the cells of a grid."""

    grid: Grid
    weights: Array
    batches: tuple[tuple[int, Any], ...]

    @cached_property
    def cdf(self) -> Array:
        """Probability of a mean below each end of a cell, shape (CELLS + 1,)."""
        return np.concatenate([[0.0], np.cumsum(self.weights)])

    @property
    def mean(self) -> float:
        """The expected mean reward."""
        return float(self.weights @ self.grid.means)

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Independent draws of the mean reward."""
        return self.grid.means_at(np.interp(rng.random(size) * self.cdf[-1], self.cdf, np.arange(CELLS + 1.0)))

    @abc.abstractmethod
    def and_batch(self, size: int, released: Any) -> "GridBelief":
        """The posterior after one more release."""


@final
class Belief(GridBelief):
    """The posterior given one noisy number of each batch, which has a likelihood in the mean reward.

    Parameters
    ----------
    prior : (float, float)
        The Beta prior.
    mechanism : BatchNoise
        The mechanism of the batches, and its likelihood.
    batches : tuple of (int, int)
        The size and the released number of each batch. The likelihood is the product over all batches.
    grid : Grid, optional
        By default all means from 0 to 1.
    """

    def __init__(
        self,
        prior: tuple[float, float],
        mechanism: BatchNoise,
        batches: tuple[tuple[int, int], ...] = (),
        grid: Grid | None = None,
    ) -> None:
        self.prior, self.mechanism, self.batches = prior, mechanism, batches
        self.grid = grid or Grid()
        logs = self.grid.log_prior(prior)
        for size, released in batches:
            logs = logs + mechanism.log_likelihood(released, size, self.grid.means)
        self.log_weights = logs - logs.max()

    @override
    def and_batch(self, size: int, released: Any) -> "Belief":
        belief = Belief.__new__(Belief)
        belief.prior, belief.mechanism, belief.grid = self.prior, self.mechanism, self.grid
        belief.batches = (*self.batches, (size, released))
        logs = self.log_weights + self.mechanism.log_likelihood(released, size, self.grid.means)
        belief.log_weights = logs - logs.max()
        # A new sum may contradict the old ones. The mass may then be at the ends of the grid, or beyond them.
        inside = [
            belief.log_weights[end] < -_NOTHING or covers_end
            for end, covers_end in zip((0, -1), self.grid.covers_ends, strict=True)
        ]
        return belief.narrowed() if all(inside) else Belief(self.prior, self.mechanism, belief.batches).narrowed()

    def narrowed(self) -> "Belief":
        """The same posterior on a grid that it fills."""
        belief = self
        while True:
            lived = np.flatnonzero(belief.log_weights > -_NOTHING)
            first, last = max(lived[0] - 1, 0), min(lived[-1] + 2, CELLS)
            # A posterior on less than this share of its grid needs a finer one.
            if last - first > 0.1 * CELLS:
                return belief
            # Leave room on both sides, so that the next sums rarely need another grid.
            room = last - first
            low, high = belief.grid.angles[[max(first - room, 0), min(last + room, CELLS)]]
            belief = Belief(self.prior, self.mechanism, self.batches, Grid(float(low), float(high)))

    @cached_property
    @override
    def weights(self) -> Array:  # type: ignore[override]
        weights: Array = np.exp(self.log_weights)
        return weights / weights.sum()


def best_probabilities(weights: Array) -> Array:
    """The probability that each arm is the best, from the weights of all arms on one grid.

    Parameters
    ----------
    weights : array, shape (..., arms, cells)
        Probabilities of the cells.

    Returns
    -------
    probabilities : array, shape (..., arms)
        They sum to 1.
    """
    # Half of the mass in the same cell counts as below.
    below = np.cumsum(weights, axis=-1)
    below -= weights / 2
    arms = weights.shape[-2]
    below_others, above_others = np.ones_like(weights), np.ones_like(weights)
    for k in range(1, arms):
        below_others[..., k, :] = below_others[..., k - 1, :] * below[..., k - 1, :]
        above_others[..., arms - 1 - k, :] = above_others[..., arms - k, :] * below[..., arms - k, :]
    probabilities = np.einsum("...kg,...kg,...kg->...k", weights, below_others, above_others)
    return np.asarray(probabilities / probabilities.sum(axis=-1, keepdims=True))


def expected_losses(beliefs: Sequence[GridBelief]) -> tuple[Array, Array]:
    """For each arm the probability that it is the best, and the expected loss of always choosing it.

    Returns
    -------
    best, losses : arrays, shape (arms,)
        The loss is the expected largest mean reward minus that of the arm.
    """
    # Interpolate all posteriors at the ends of all cells. Between two ends every distribution function is linear.
    angles = np.unique(np.concatenate([belief.grid.angles for belief in beliefs]))
    below = np.stack([np.interp(angles, belief.grid.angles, belief.cdf / belief.cdf[-1]) for belief in beliefs])
    probabilities = best_probabilities(np.maximum(np.diff(below, axis=1), 0.0))
    all_below = np.prod(below, axis=0)
    middles = np.sin((angles[1:] + angles[:-1]) / 2) ** 2
    mean_of_best = float(np.diff(all_below) @ middles)
    # The means use the same grid, so the loss of a single arm is exactly 0.
    return probabilities, np.maximum(mean_of_best - np.diff(below, axis=1) @ middles, 0.0)
