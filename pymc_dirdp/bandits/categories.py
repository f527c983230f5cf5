"""Posteriors of the mean reward of an arm given noisy counts of categories.

All batches of an arm have the same shares, with a Dirichlet prior, and each batch has its own noise. So the true counts
of the batches are dependent given the output, and no closed form is known. This module samples them:

1. Integrate the shares out. The true counts `x` have the probability
   `prod_k G(a_k + X_k) / prod_bk x_bk! * exp(-sum_bk |z_bk - x_bk| / scale)`, with the sums `X_k` over the batches `b`.
2. Start at the noisy counts, adjusted to be nonnegative.
3. Metropolis steps shift rewards of a batch from one cell to another, with four ratios of Gamma functions. Steps have
   all sizes up to the scale of the noise.
4. A joint step draws the share of one cell relative to another given the counts, changes it, and reassigns each reward
   of all batches by a coin. If the noise hides the rewards, only such joint steps mix well.
5. Record the sums `X` after each sweep over all batches and cells. Given `X` the shares are `Dirichlet(a + X)`.

Draws of the mean reward are exact given `X`. On a grid the posterior is an average of Beta distributions with the mean
and the variance of each `Dirichlet(a + X)`, which is exact for two cells.
"""

import math
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, final, override

import numpy as np
from scipy.special import betainc, betaln

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.bandits.batch_release import BatchCounts, BatchMechanism
from pymc_dirdp.bandits.beliefs import CELLS, Belief, Grid, GridBelief
from pymc_dirdp.sampling.bits import compiled


def infer_shares(
    prior: tuple[float, ...],
    mechanism: BatchMechanism,
    batches: tuple[tuple[int, Any], ...],
    grid: Grid | None = None,
) -> GridBelief:
    """The posterior of the mean reward of an arm given its released batches, by default on a grid that it fills."""
    if isinstance(mechanism, BatchCounts):
        return ShareBelief(prior, mechanism, batches, grid)
    belief = Belief((prior[0], prior[1]), mechanism, batches, grid)
    return belief.narrowed() if grid is None else belief


@final
class ShareBelief(GridBelief):
    """The posterior given noisy counts of each batch. The release seeds the draws, so they are reproducible.

    Parameters
    ----------
    prior : tuple of float
        Dirichlet prior of the shares of the cells.
    mechanism : BatchCounts
    batches : tuple of (int, tuple of int)
        The size and the noisy counts of each batch.
    grid : Grid, optional
        By default one that the posterior fills.
    sweeps : int, default 2000
        Number of samples of the true counts.
    """

    def __init__(
        self,
        prior: tuple[float, ...],
        mechanism: BatchCounts,
        batches: tuple[tuple[int, Any], ...] = (),
        grid: Grid | None = None,
        sweeps: int = 2000,
    ) -> None:
        self.prior, self.mechanism, self.batches = prior, mechanism, batches
        self._grid, self._sweeps, self._worths = grid, sweeps, np.array(mechanism.worths)

    @cached_property
    def _concentrations(self) -> Array:
        """Parameters of the Dirichlet distribution of the shares, for each sample of the counts."""
        noisy = np.array([output for _, output in self.batches], dtype=np.float64).reshape(-1, len(self.prior))
        sizes = np.array([size for size, _ in self.batches], dtype=np.int64)
        prior = np.array(self.prior)
        return prior + sampled_counts(noisy, sizes, self.mechanism.scale, prior, self._sweeps)

    @cached_property
    @override
    def grid(self) -> Grid:  # type: ignore[override]
        return self._filled() if self._grid is None else self._grid

    @override
    def and_batch(self, size: int, released: Any) -> "ShareBelief":
        return ShareBelief(self.prior, self.mechanism, (*self.batches, (size, released)))

    @cached_property
    def _means(self) -> Array:
        """The expected mean reward given each sample of the counts."""
        return np.asarray(self._concentrations @ self._worths / self._concentrations.sum(axis=1))

    @cached_property
    def _variances(self) -> Array:
        """The variance of the mean reward given each sample of the counts."""
        sizes = self._concentrations.sum(axis=1)
        centred = (self._worths - self._means[:, None]) ** 2
        return np.asarray(np.einsum("sk,sk->s", self._concentrations, centred) / (sizes * (sizes + 1)))

    def _filled(self) -> Grid:
        reach = 12 * np.sqrt(self._variances)
        low, high = (self._means - reach).min(), (self._means + reach).max()
        low, high = max(low, 0.0), min(high, 1.0)
        return Grid(
            0.0 if low <= 0 else math.asin(math.sqrt(low)), np.pi / 2 if high >= 1 else math.asin(math.sqrt(high))
        )

    @cached_property
    @override
    def weights(self) -> Array:  # type: ignore[override]
        # One Beta distribution for each group of samples with nearly the same mean.
        order = np.argsort(self._means, kind="stable")
        groups = np.array_split(order, min(100, len(order)))
        means = np.array([self._means[item].mean() for item in groups])
        variances = np.array([self._variances[item].mean() + self._means[item].var() for item in groups])
        shares = np.array([len(item) for item in groups]) / len(order)
        # A posterior narrower than a cell is widened to its width.
        width = np.sqrt(means * (1 - means)) * 2 * (self.grid.high - self.grid.low) / CELLS
        sizes = means * (1 - means) / np.maximum(variances, width**2) - 1
        a, b = np.maximum(means * sizes, 1e-3)[:, None], np.maximum((1 - means) * sizes, 1e-3)[:, None]
        if min(a.min(), b.min()) < 1:  # The density is unbounded, and there are few rewards.
            weights: Array = shares @ np.diff(betainc(a, b, np.sin(self.grid.angles) ** 2), axis=1)
        else:
            logs = (a - 0.5) * np.log(self.grid.means) + (b - 0.5) * np.log1p(-self.grid.means) - betaln(a, b)
            weights = shares @ np.exp(logs)
        return weights / weights.sum()

    @property
    @override
    def mean(self) -> float:
        return float(self._means.mean())

    @override
    def draw(self, size: int, rng: np.random.Generator) -> Array:
        chosen = self._concentrations[rng.integers(len(self._concentrations), size=size)]
        gammas = rng.standard_gamma(chosen)
        return np.asarray(gammas @ self._worths / gammas.sum(axis=1))


def sampled_counts(
    noisy: Array, sizes: Integers, scale: float, prior: Array, sweeps: int, *, burn_in: int = 200
) -> Integers:
    """Samples of the true counts of all batches together, given the noisy counts of each.

    Parameters
    ----------
    noisy : array, shape (batches, cells)
        Integers, as doubles, because noise may exceed 64 bits.
    sizes : array of int, shape (batches,)
        Number of rewards in each batch.
    scale : float
        The probability of noise `z` is proportional to `exp(-sum(abs(z)) / scale)`.
    prior : array, shape (cells,)
        Dirichlet prior of the shares.
    sweeps : int
    burn_in : int, default 200
        Discarded sweeps. Successive sweeps are nearly independent if batches are larger than the noise. Otherwise only
        sweeps at a distance of a hundred are.

    Returns
    -------
    counts : array of int, shape (sweeps, cells)
        Each row sums to the number of rewards in all batches.

    Examples
    --------
    >>> counts = sampled_counts(np.array([[12.0, 5.0, 3.0]]), np.array([20]), 2.0, np.ones(3), sweeps=4)
    >>> counts.sum(axis=1)
    array([20, 20, 20, 20])
    """
    batches, cells = noisy.shape
    if not batches:
        return np.zeros((1, cells), dtype=np.int64)
    # All readers of the release compute the same samples.
    rng = np.random.default_rng([int(item) if item >= 0 else 2**62 - int(item) for item in noisy.ravel()])
    counts = np.stack([_start(row, int(size)) for row, size in zip(noisy, sizes, strict=True)])
    # Steps are not much larger than the noise, and smaller than a batch.
    levels = 1 + math.ceil(math.log(max(min(2 * scale, float(sizes.max())), 1.0), 4))
    trace = np.empty((burn_in + sweeps, cells), dtype=np.int64)
    _walk_compiled()(rng, noisy, scale, prior, counts, levels, trace)
    return trace[burn_in:]


def _start(noisy: Array, size: int) -> Integers:
    """Counts near the noisy counts. The excess over the size is taken from the largest."""
    counts = np.clip(noisy, 0, size).astype(np.int64)
    excess = sum(counts.tolist()) - size
    for cell in np.argsort(-counts):
        n_shifted = min(excess, int(counts[cell]))
        counts[cell] -= n_shifted
        excess -= n_shifted
    return counts


def _log_ratio(start: float, step: float) -> float:
    """`log G(start + step) - log G(start)`."""
    # For large values two terms of the series of a ratio of Gamma functions have an error of 1e-12.
    if start < 1e6 or step * step > start:
        return math.lgamma(start + step) - math.lgamma(start)
    return step * math.log(start) + step * (step - 1) / (2 * start)


def _accepted(rng: np.random.Generator, log_ratio: float) -> bool:
    return log_ratio >= 0 or rng.random() < math.exp(log_ratio)


def _pair(rng: np.random.Generator, cells: int) -> tuple[int, int]:
    to = int(rng.integers(0, cells))
    return to, int((to + rng.integers(1, cells)) % cells)


def _move_in_batch(
    rng: np.random.Generator, noisy: Array, scale: float, prior: Array, counts: Integers, sums: Integers, step: int
) -> None:
    to, source = _pair(rng, len(sums))
    gain_count, loss_count = counts[to] + step, counts[source] - step
    if loss_count < 0:
        return
    nearer = abs(noisy[to] - counts[to]) - abs(noisy[to] - gain_count)
    nearer += abs(noisy[source] - counts[source]) - abs(noisy[source] - loss_count)
    log_ratio = (
        nearer / scale
        + _log_ratio(prior[to] + sums[to], step)
        + _log_ratio(prior[source] + sums[source], -step)
        - _log_ratio(counts[to] + 1.0, step)
        - _log_ratio(counts[source] + 1.0, -step)
    )
    if _accepted(rng, log_ratio):
        counts[to], counts[source] = gain_count, loss_count
        sums[to] += step
        sums[source] -= step


def _move_share(
    rng: np.random.Generator, noisy: Array, scale: float, prior: Array, counts: Integers, sums: Integers, width: float
) -> None:
    to, source = _pair(rng, len(sums))
    first, second = rng.standard_gamma(prior[to] + sums[to]), rng.standard_gamma(prior[source] + sums[source])
    odds = first / max(second, 1e-300)
    proposed_odds = odds * math.exp(width * abs(rng.standard_normal()))
    if not 0 < odds < proposed_odds < 1e300:  # One of the two shares rounds to 0.
        return
    share, larger = odds / (1 + odds), proposed_odds / (1 + proposed_odds)
    # Each reward of the cell `source` follows the change with this probability; in the reverse step each of `to` does.
    follows = min(1.0, (larger - share) * (1 + odds))
    reassigned = np.empty(len(counts), dtype=np.int64)
    nearer, total = 0.0, 0
    for batch in range(len(counts)):
        gain_count, loss_count = counts[batch, to], counts[batch, source]
        reassigned[batch] = rng.binomial(loss_count, follows)
        total += reassigned[batch]
        nearer += abs(noisy[batch, to] - gain_count) - abs(noisy[batch, to] - gain_count - reassigned[batch])
        nearer += abs(noisy[batch, source] - loss_count) - abs(noisy[batch, source] - loss_count + reassigned[batch])
    log_prior = prior[to] * math.log(larger / share) - prior[source] * math.log((1 + proposed_odds) / (1 + odds))
    if _accepted(rng, nearer / scale + log_prior):
        for batch in range(len(counts)):
            counts[batch, to] += reassigned[batch]
            counts[batch, source] -= reassigned[batch]
        sums[to] += total
        sums[source] -= total


def _walk(
    rng: np.random.Generator, noisy: Array, scale: float, prior: Array, counts: Integers, levels: int, trace: Integers
) -> None:
    batches, cells = counts.shape
    sums = counts.sum(axis=0)
    for sweep in range(len(trace)):
        for batch in range(batches):
            for _ in range(cells):
                step = 1 + int(rng.standard_exponential() * 4.0 ** rng.integers(0, levels))
                _move_in_batch(rng, noisy[batch], scale, prior, counts[batch], sums, step)
        for _ in range(cells):
            _move_share(rng, noisy, scale, prior, counts, sums, 2.0 * 0.25 ** rng.integers(0, 6))
        for cell in range(cells):
            trace[sweep, cell] = sums[cell]


@cache
def _walk_compiled() -> Callable[..., None]:
    signature = "void(npy_rng, float64[:,:], float64, float64[:], int64[:,:], int64, int64[:,:])"
    return compiled(signature, _walk, _log_ratio, _accepted, _pair, _move_in_batch, _move_share)
