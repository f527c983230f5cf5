"""Many runs of private Thompson sampling at once, in which one step is a finished batch."""

from functools import lru_cache
from typing import Any, final

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.bandits.batch_release import BatchCounts, Output
from pymc_dirdp.bandits.beliefs import CELLS, Grid, best_probabilities
from pymc_dirdp.bandits.categories import ShareBelief, believed
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.progress import Bar

__all__ = ["BatchSimulation"]

# Log-weights below the largest by more are nothing: the arm is best there with less than one in 1e15.
_NOTHING = 35.0
# NumPy draws hypergeometric numbers from fewer pulls than this.
_MOST = 10**9
# Samples of the true counts of an arm whose categories are counted.
_SWEEPS = 400
# Likelihoods of batches up to this size are cached, because many runs meet them again.
_CACHED_UP_TO = 512


@final
class BatchSimulation:
    """Runs of :class:`pymc_dirdp.ThompsonSampler` on Bernoulli arms, with the distribution of the sampler itself.

    Rounds are put at the points of a Poisson process. Then the pulls of the arms are independent Poisson processes,
    whose rates are the probabilities of the arms, as long as no batch ends; the open batch of an arm is full after a
    time with a Gamma distribution, and until the first of these times the other arms have binomial numbers of pulls.

    The posteriors live on a grid that all runs share. One that is narrower than a cell is widened to it, which is .0004
    in a mean reward near a half and less elsewhere.

    Parameters
    ----------
    design : Design
        The public rules.
    shares : array, shape (arms, cells), optional
        The true shares of the cells of the mechanism, for rewards that are counted by category. By default rewards are
        0 or 1 with the means that are played.
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
                rounds, lost = runs.rounds.copy(), runs.pulls @ gaps
                runs.step(horizon)
                after, total = runs.rounds, runs.pulls @ gaps
                # Inside a batch the order of pulls is exchangeable, so regret is a straight line on average.
                share = (checkpoints - rounds[:, None]) / np.maximum(after - rounds, 1)[:, None]
                inside = (share > 0) & (share <= 1)
                line = lost[:, None] + share * (total - lost)[:, None]
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
        prior = believed(self.design.prior, self.design.mechanism, (), simulation._grid).weights
        self._weights = np.broadcast_to(prior, (n_runs, arms, CELLS)).copy()
        with np.errstate(divide="ignore"):
            self._logs = np.log(self._weights)
        self._logs -= self._logs.max(axis=-1, keepdims=True)

    def step(self, horizon: int) -> None:
        """Play every run until one of its batches is full, or to the horizon."""
        runs = self.active
        rates = best_probabilities(self._weights[runs])
        missing = self._sizes[runs] + self._finished[runs] - self.pulls[runs]
        with np.errstate(divide="ignore"):
            times = self.rng.standard_gamma(missing) / rates
        first = times.argmin(axis=1)
        ends = times.min(axis=1, keepdims=True)
        pulled = self.rng.binomial(missing - 1, np.minimum(ends / times, 1.0))
        here = np.arange(len(runs))
        # The last pull fills the batch.
        pulled[here, first] = missing[here, first]
        full = self.rounds[runs] + pulled.sum(axis=1) <= horizon
        for i in np.flatnonzero(~full):
            # The horizon comes before: all pulls but the last one are in any order.
            pulled[i, first[i]] -= 1
            left = horizon - self.rounds[runs[i]]
            pulled[i] = _some_of(pulled[i], int(left), self.rng)
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

    def _believed(self, run: int, arm: int, size: int, output: Any) -> Array:
        mechanism, grid = self.design.mechanism, self.simulation._grid
        if isinstance(mechanism, BatchCounts):
            batches = self._released[run, arm] = (*self._released.get((run, arm), ()), (size, output))
            return ShareBelief(self.design.prior, mechanism, batches, grid, sweeps=_SWEEPS).weights
        logs = self._logs[run, arm]
        if size <= _CACHED_UP_TO:
            logs += self.simulation._likelihood(output, size)
        else:
            # Where the posterior has vanished it need not be looked at again.
            live = logs > -4 * _NOTHING
            logs[live] += mechanism.log_likelihood(output, size, grid.means[live])
            logs[~live] = -np.inf
        logs -= logs.max()
        weights: Array = np.where(logs > -_NOTHING, np.exp(logs), 0.0)
        return weights / weights.sum()


def _some_of(pulls: Integers, number: int, rng: np.random.Generator) -> Integers:
    """How many of each arm are among the first `number` of some pulls in random order."""
    taken = np.zeros_like(pulls)
    while pulls.sum() >= _MOST:
        # Each pull is in the earlier half of the time or the later, like the toss of a coin.
        early = rng.binomial(pulls, 0.5)
        if early.sum() >= number:
            pulls = early
        else:
            taken, pulls, number = taken + early, pulls - early, number - int(early.sum())
    left = int(pulls.sum())
    for arm, count in enumerate(pulls.tolist()):
        # One arm after the other, because the joint distribution of NumPy takes time for each pull.
        left -= count
        of_arm = rng.hypergeometric(count, left, number) if number and count else 0
        taken[arm] += of_arm
        number -= int(of_arm)
    return taken
