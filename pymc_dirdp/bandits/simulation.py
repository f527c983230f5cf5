"""Made-up bandits: the regret of a policy over many runs, exactly and batch by batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.bandits.batches import BatchSimulation
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.lower_bound import checked_means
from pymc_dirdp.bandits.thompson import ThompsonSampler
from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.sampling.entropy import Seed, generator

__all__ = ["BanditRuns", "Policy", "simulate_bandit"]

# The default number of checkpoints, which are even in the logarithm of the round.
_CHECKPOINTS = 40


@runtime_checkable
class Policy(Protocol):
    """A rule for choosing arms that can play many runs by itself.

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
    """What many runs of a policy lost.

    Attributes
    ----------
    name : str
        Of the policy.
    means : array, shape (arms,)
        The true mean rewards.
    checkpoints : array of int, shape (checkpoints,)
        Rounds.
    regret : array, shape (runs, checkpoints)
        What was lost until then against always pulling the best arm, in expectation given the pulls.
    pulls : array of int, shape (runs, arms)
        How often each arm was pulled in all.
    epsilon : float
        Of pure privacy; infinite if there is none.

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
    """Play a policy many times on made-up Bernoulli arms.

    A private Thompson sampler is played batch by batch, not round by round: between two releases the probability of
    each arm is fixed, so the number of pulls until the next batch is full has a known distribution. The result has the
    distribution of the sampler itself, and a run of a million rounds takes some milliseconds.

    Parameters
    ----------
    policy : ThompsonSampler, or an object with `name` and `play`
        A sampler lends its rules; what it has learned is not used, and it is not changed.
    means : array_like, shape (arms,)
        True mean rewards, in [0, 1].
    horizon : int
        Number of rounds.
    n_runs : int, default 200
    checkpoints : sequence of int, optional
        Rounds at which regret is recorded; the horizon is added. Inside a batch regret is a straight line, which is
        exact in the mean.
    random_seed : int, SeedSequence, Generator or None
        Harmless: nobody's data are used.
    progressbar : bool, default True

    Returns
    -------
    runs : BanditRuns

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    >>> runs = dirdp.simulate_bandit(bandit, [0.6, 0.4], horizon=1000, n_runs=20, random_seed=1, progressbar=False)
    >>> runs.regret.shape[0], int(runs.pulls.sum(axis=1)[0])
    (20, 1000)
    """
    mu = checked_means(means)
    last, runs = integer(1, horizon=horizon), integer(1, n_runs=n_runs)
    rounds = _checkpoints(last, checkpoints)
    epsilon = np.inf
    if isinstance(policy, ThompsonSampler):
        if len(policy.arms) != len(mu):
            raise ArgumentError(f"Expected one mean for each of {len(policy.arms)} arms, got {len(mu)}.")
        policy = policy.design
    if isinstance(policy, Design):
        epsilon = policy.mechanism.pure_epsilon
        policy = BatchSimulation(policy)
    if not isinstance(policy, Policy):
        raise ArgumentError(f"Expected a ThompsonSampler or an object with name and play, got {type_name(policy)}.")
    regret, pulls = policy.play(mu, rounds, runs, generator(random_seed), progressbar=progressbar)
    return BanditRuns(policy.name, mu, rounds, regret, pulls, getattr(policy, "epsilon", epsilon))


def _checkpoints(horizon: int, checkpoints: Sequence[int] | None) -> Integers:
    if checkpoints is None:
        rounds = np.unique(np.geomspace(min(10, horizon), horizon, _CHECKPOINTS).round().astype(np.int64))
    else:
        rounds = np.unique([integer(1, checkpoints=one) for one in checkpoints] + [horizon]).astype(np.int64)
    if rounds[-1] > horizon:
        raise ArgumentError(f"Expected checkpoints up to the horizon, {horizon}.")
    rounds[-1] = horizon
    return rounds
