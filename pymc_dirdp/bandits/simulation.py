"""Simulated runs of bandits, and a lower bound on the regret under privacy."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.bandits.batch_release import BatchCounts, Output
from pymc_dirdp.bandits.beliefs import CELLS, Grid, best_probabilities
from pymc_dirdp.bandits.categories import ShareBelief, infer_shares
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.settings import Worth
from pymc_dirdp.bandits.thompson import ThompsonSampler
from pymc_dirdp.checks import at_least, integer, numbers_or_none
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.progress import Bar
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.signatures import user_facing


@user_facing
def bandit_lower_bound(means: ArrayLike, epsilon: float) -> float:
    """Asymptotic lower bound on the regret of a policy with pure privacy, over the logarithm of the horizon.

    Parameters
    ----------
    means : array_like, shape (arms,)
        Mean rewards of at least two Bernoulli arms, strictly between 0 and 1.
    epsilon : float
        Epsilon of pure differential privacy for the whole run; infinite for policies without privacy.

    Returns
    -------
    constant : float
        Limit inferior of `regret / log(horizon)` for every policy that is consistent for all means. The bound is
        asymptotic and has little meaning for few rounds.

    References
    ----------
    Azize, Wu, Honda, Orabona, Ito and Basu (2025), Optimal regret of Bernoulli bandits under global differential
    privacy. Lai and Robbins (1985) without privacy.

    Examples
    --------
    >>> round(bandit_lower_bound([0.75, 0.625, 0.5, 0.375, 0.25], epsilon=1.0), 2)
    7.71
    """
    mu = checked_means(means)
    if np.any((mu <= 0) | (mu >= 1)):
        raise ArgumentError("Expected every mean strictly between 0 and 1.")
    gaps = mu.max() - mu
    worse = gaps > 0
    losses = divergence(mu[worse], float(mu.max()), at_least(0, finite=False, epsilon=epsilon))
    return float(np.sum(np.divide(gaps[worse], losses, out=np.full(losses.shape, np.inf), where=losses > 0)))


def divergence(x: Array, y: Array | float, epsilon: float) -> Array:
    """The information of a private observation: the minimum of `epsilon abs(z - x) + kl(z, y)` over z, for `x <= y`.

    Without privacy it is the Kullback-Leibler divergence of two Bernoulli distributions.
    """
    least = y * np.exp(-epsilon) / (1 - y + y * np.exp(-epsilon))
    loss = _kl(x, y)
    return np.where(x >= least, loss, -epsilon * x - np.log1p(y * np.expm1(-epsilon))) if np.isfinite(epsilon) else loss


def _kl(x: Array, y: Array | float) -> Array:
    return np.asarray(x * np.log(x / y) + (1 - x) * (np.log1p(-x) - np.log1p(-y)))


def checked_means(means: ArrayLike) -> Array:
    """Mean rewards in [0, 1], of at least two arms."""
    mu = numbers_or_none(means)
    if mu is None or mu.ndim != 1 or len(mu) < 2 or not np.all((mu >= 0) & (mu <= 1)):
        raise ArgumentError("Expected means to be a list of mean rewards in [0, 1], of at least two arms.")
    return mu


@runtime_checkable
class Policy(Protocol):
    """A rule for choosing arms that can simulate many runs.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> isinstance(dirdp.bandits.EveryRound(dirdp.RenyiDP(epsilon=1, order=2), horizon=100), Policy)
    True
    """

    name: str

    def play(
        self, means: Array, checkpoints: Integers, n_runs: int, rng: np.random.Generator, *, progressbar: bool
    ) -> tuple[Array, Integers]:
        """Regret at each checkpoint, shape (runs, checkpoints), and the pulls of each arm, shape (runs, arms)."""


@final
@dataclass(frozen=True, eq=False)
class BanditRuns:
    """The regret of many simulated runs of a policy.

    Attributes
    ----------
    name : str
        Name of the policy.
    means : array, shape (arms,)
        The true mean rewards.
    checkpoints : array of int, shape (checkpoints,)
        Rounds.
    regret : array, shape (runs, checkpoints)
        Cumulative regret against always pulling the best arm, in expectation given the pulls.
    pulls : array of int, shape (runs, arms)
        Number of pulls of each arm.
    epsilon : float
        Epsilon of pure privacy; infinite if there is none.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    >>> runs = dirdp.simulate_bandit(bandit, [0.6, 0.4], horizon=1000, n_runs=20, random_seed=1, progressbar=False)
    >>> runs.regret.shape
    (20, 40)
    """

    name: str
    means: Array
    checkpoints: Integers
    regret: Array
    pulls: Integers
    epsilon: float = np.inf

    def __str__(self) -> str:
        last = self.regret[:, -1]
        low, median, high = np.quantile(last, [0.05, 0.5, 0.95])
        return (
            f"{self.name}: regret {median:.4g} after {self.checkpoints[-1]} rounds (median of {len(last)} runs; 90 % "
            f"between {low:.4g} and {high:.4g}, mean {last.mean():.4g})"
        )


@user_facing
def simulate_bandit(
    policy: ThompsonSampler | Design | Policy,
    means: ArrayLike,
    horizon: int,
    n_runs: int = 200,
    *,
    checkpoints: Sequence[int] | None = None,
    random_seed: Seed = None,
    progressbar: bool = True,
) -> BanditRuns:
    """Simulate many runs of a policy on Bernoulli arms.

    A private Thompson sampler is simulated batch by batch, not round by round. Between two releases the probability of
    each arm is fixed, so the number of pulls until the next batch is full has a known distribution. The result has the
    distribution of the sampler itself, and a run of a million rounds takes some milliseconds.

    Parameters
    ----------
    policy : ThompsonSampler, or an object with `name` and `play`
        Only the rules of a sampler are used. Its data are neither used nor changed.
    means : array_like, shape (arms,) or (arms, categories)
        True mean rewards, in [0, 1]; or, for a sampler with `utilities`, the shares of the categories of each arm, in
        the order of `utilities`. `mechanism="counts"` needs shares.
    horizon : int
        Number of rounds.
    n_runs : int, default 200
    checkpoints : sequence of int, optional
        Rounds at which regret is recorded; the horizon is added. Regret is interpolated linearly inside a batch, which
        is exact in the mean.
    random_seed : int, SeedSequence, Generator or None
        A seed does not affect privacy here, because no data are used.
    progressbar : bool, default True

    Returns
    -------
    runs : BanditRuns
        Regret is in mean rewards from 0 to 1; with `utilities` in units of the largest difference of worths.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    >>> runs = dirdp.simulate_bandit(bandit, [0.6, 0.4], horizon=1000, n_runs=20, random_seed=1, progressbar=False)
    >>> runs.regret.shape[0], int(runs.pulls.sum(axis=1)[0])
    (20, 1000)
    """
    mu, shares = (checked_means(means), None) if np.ndim(means) < 2 else _of_categories(policy, means)
    last, runs = integer(1, horizon=horizon), integer(1, n_runs=n_runs)
    rounds = _checkpoints(last, checkpoints)
    epsilon = np.inf
    if isinstance(policy, ThompsonSampler):
        if len(policy.arms) != len(mu):
            raise ArgumentError(f"Expected one mean for each of {len(policy.arms)} arms, got {len(mu)}.")
        policy = policy.design
    if isinstance(policy, Design):
        epsilon = policy.mechanism.pure_epsilon
        cells = len(policy.mechanism.worths)
        if shares is None or shares.shape[1] != cells:
            shares = np.stack([1 - mu, mu], axis=1)
        if shares.shape[1] != cells:
            raise ArgumentError("Pass the shares of the categories of each arm: mechanism='counts' counts categories.")
        policy = BatchSimulation(policy, shares)
    if not isinstance(policy, Policy):
        raise ArgumentError(f"Expected a ThompsonSampler or an object with name and play, got {type_name(policy)}.")
    regret, pulls = policy.play(mu, rounds, runs, generator(random_seed), progressbar=progressbar)
    return BanditRuns(policy.name, mu, rounds, regret, pulls, getattr(policy, "epsilon", epsilon))


def _of_categories(policy: object, means: ArrayLike) -> tuple[Array, Array]:
    """Mean rewards of arms from 0 to 1, and the shares of the distinct worths."""
    worth = policy._settings.worth if isinstance(policy, ThompsonSampler) else Worth(None)
    shares = numbers_or_none(means)
    names = len(worth)
    if shares is None or shares.ndim != 2 or len(shares) < 2 or shares.shape[1] != names:
        raise ArgumentError(
            f"Expected the shares of {names} categories for each of at least two arms."
            if names
            else "Pass a mean reward for each arm: shares of categories are for a ThompsonSampler with utilities=."
        )
    if np.any(shares < 0) or not np.allclose(shares.sum(axis=1), 1, rtol=0, atol=1e-9):
        raise ArgumentError("Expected shares of at least 0 that sum to 1 for each arm.")
    by_level = np.array([worth.by_level(row) for row in shares / shares.sum(axis=1, keepdims=True)])
    return by_level @ np.array(worth.levels), by_level


def _checkpoints(horizon: int, checkpoints: Sequence[int] | None) -> Integers:
    if checkpoints is None:
        # The default checkpoints are even in the logarithm of the round.
        rounds = np.unique(np.geomspace(min(10, horizon), horizon, 40).round().astype(np.int64))
    else:
        rounds = np.unique([integer(1, checkpoints=number) for number in checkpoints] + [horizon]).astype(np.int64)
    if rounds[-1] > horizon:
        raise ArgumentError(f"Expected checkpoints up to the horizon, {horizon}.")
    rounds[-1] = horizon
    return rounds


@final
class BatchSimulation:
    """Runs of :class:`pymc_dirdp.ThompsonSampler` on Bernoulli arms, with the distribution of the sampler itself.

    Rounds are the points of a Poisson process. Until a batch ends, the pulls of the arms are then independent Poisson
    processes, with the probabilities of the arms as rates. The time until the open batch of an arm is full has a Gamma
    distribution, and up to the first of these times the other arms have binomial numbers of pulls.

    The posteriors of all runs share a grid. A posterior narrower than a cell is widened to the cell, which is at most
    .0008 wide in the mean reward.

    Parameters
    ----------
    design : Design
        The public rules.
    shares : array, shape (arms, cells), optional
        The true shares of the cells of the mechanism, for rewards that are counted by category. By default rewards are
        0 or 1, with the means of :meth:`play`.
    """

    def __init__(self, design: Design, shares: Array | None = None) -> None:
        self.design, self.shares = design, shares
        self.name = f"private Thompson sampling ({design.mechanism.name})"
        self._grid = Grid()
        self._likelihood = lru_cache(maxsize=50_000)(self._computed)

    def _computed(self, output: int, size: int) -> Array:
        mechanism = self.design.mechanism
        assert not isinstance(mechanism, BatchCounts)
        return mechanism.log_likelihood(output, size, self._grid.means)

    def play(
        self, means: Array, checkpoints: Integers, n_runs: int, rng: np.random.Generator, *, progressbar: bool
    ) -> tuple[Array, Integers]:
        """Regret at each checkpoint, shape (runs, checkpoints), and the pulls of each arm, shape (runs, arms)."""
        runs = _Runs(self, means, n_runs, rng)
        horizon, gaps = int(checkpoints[-1]), means.max() - means
        regret = np.zeros((n_runs, len(checkpoints)))
        with Bar(n_runs * horizon, "rounds", shown=progressbar) as bar:
            while runs.active.size:
                rounds, lost_reward = runs.rounds.copy(), runs.pulls @ gaps
                runs.step(horizon)
                after, total = runs.rounds, runs.pulls @ gaps
                # Inside a batch the order of pulls is exchangeable, so mean regret is linear.
                share = (checkpoints - rounds[:, None]) / np.maximum(after - rounds, 1)[:, None]
                inside = (share > 0) & (share <= 1)
                line = lost_reward[:, None] + share * (total - lost_reward)[:, None]
                regret[inside] = line[inside]
                bar.advance(int((after - rounds).sum()))
        return regret, runs.pulls


class _Runs:
    """The state of many runs."""

    def __init__(self, simulation: BatchSimulation, means: Array, n_runs: int, rng: np.random.Generator) -> None:
        self.simulation, self.design, self.rng = simulation, simulation.design, rng
        self.shares = np.stack([1 - means, means], axis=1) if simulation.shares is None else simulation.shares
        arms = len(means)
        self.pulls = np.zeros((n_runs, arms), dtype=np.int64)
        self.rounds = np.zeros(n_runs, dtype=np.int64)
        self.active = np.arange(n_runs)
        self._finished = np.zeros((n_runs, arms), dtype=np.int64)
        self._sizes = np.full((n_runs, arms), self.design.next_size(0), dtype=np.int64)
        self._released: dict[tuple[int, int], tuple[tuple[int, Output], ...]] = {}
        prior = infer_shares(self.design.prior, self.design.mechanism, (), simulation._grid).weights
        self._weights = np.broadcast_to(prior, (n_runs, arms, CELLS)).copy()
        with np.errstate(divide="ignore"):
            self._logs = np.log(self._weights)
        self._logs -= self._logs.max(axis=-1, keepdims=True)

    def step(self, horizon: int) -> None:
        """Simulate every run until one of its batches is full, or to the horizon."""
        runs = self.active
        rates = best_probabilities(self._weights[runs])
        missing = self._sizes[runs] + self._finished[runs] - self.pulls[runs]
        with np.errstate(divide="ignore"):
            times = self.rng.standard_gamma(missing) / rates
        first = times.argmin(axis=1)
        ends = times.min(axis=1, keepdims=True)
        pulled = self.rng.binomial(missing - 1, np.minimum(ends / times, 1.0))
        index = np.arange(len(runs))
        # The last pull fills the batch.
        pulled[index, first] = missing[index, first]
        full = self.rounds[runs] + pulled.sum(axis=1) <= horizon
        for i in np.flatnonzero(~full):
            # The horizon comes first. All pulls but the last are in random order.
            pulled[i, first[i]] -= 1
            n_left = horizon - self.rounds[runs[i]]
            pulled[i] = _subsample(pulled[i], int(n_left), self.rng)
        self.pulls[runs] += pulled
        self.rounds[runs] += pulled.sum(axis=1)
        for run, arm in zip(runs[full], first[full], strict=True):
            self._release(int(run), int(arm))
        self.active = runs[self.rounds[runs] < horizon]

    def _release(self, run: int, arm: int) -> None:
        size = int(self._sizes[run, arm])
        # The last cell is drawn first, which for two cells is a binomial number of successes.
        counts = tuple(self.rng.multinomial(size, self.shares[arm, ::-1])[::-1].tolist())
        output = self.design.mechanism.simulated(counts, self.rng)
        self._weights[run, arm] = self._believed(run, arm, size, output)
        self._finished[run, arm] += size
        self._sizes[run, arm] = self.design.next_size(int(self._finished[run, arm]))

    def _believed(self, run: int, arm: int, size: int, output: Any, *, nothing: float = 35.0) -> Array:
        """The weights of the grid after a batch is released.

        Log-weights that lie more than `nothing` below the largest are set to 0. The probability of the arm to be the
        best there is below 1e-15.
        """
        mechanism, grid = self.design.mechanism, self.simulation._grid
        if isinstance(mechanism, BatchCounts):
            batches = self._released[run, arm] = (*self._released.get((run, arm), ()), (size, output))
            return ShareBelief(self.design.prior, mechanism, batches, grid, sweeps=400).weights
        logs = self._logs[run, arm]
        # Likelihoods of batches up to this size are cached, because they occur in many runs.
        if size <= 512:
            logs += self.simulation._likelihood(output, size)
        else:
            # Skip cells where the posterior has vanished.
            live = logs > -4 * nothing
            logs[live] += mechanism.log_likelihood(output, size, grid.means[live])
            logs[~live] = -np.inf
        logs -= logs.max()
        weights: Array = np.where(logs > -nothing, np.exp(logs), 0.0)
        return weights / weights.sum()


def _subsample(pulls: Integers, number: int, rng: np.random.Generator, *, max_count: int = 10**9) -> Integers:
    """Number of pulls of each arm among the first `number` pulls in random order.

    NumPy draws hypergeometric numbers only for fewer pulls than `max_count`.
    """
    subsample = np.zeros_like(pulls)
    while pulls.sum() >= max_count:
        # A fair coin decides whether a pull is in the earlier or the later half of the time.
        early = rng.binomial(pulls, 0.5)
        if early.sum() >= number:
            pulls = early
        else:
            subsample, pulls, number = subsample + early, pulls - early, number - int(early.sum())
    n_left = int(pulls.sum())
    for arm, count in enumerate(pulls.tolist()):
        # One arm after the other, because NumPy's multivariate draw takes time for each pull.
        n_left -= count
        drawn_count = rng.hypergeometric(count, n_left, number) if number and count else 0
        subsample[arm] += drawn_count
        number -= int(drawn_count)
    return subsample
