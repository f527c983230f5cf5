"""Private draws in every round: what a guarantee for each round costs over a whole run."""

from functools import cached_property
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, positive
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.planning.allocation import allocate, composed
from pymc_dirdp.planning.calibration import calibrate
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.progress import Bar

__all__ = ["EveryRound"]


@final
class EveryRound:
    """Thompson sampling with a private draw of every arm in every round, for :func:`simulate_bandit` only.

    A reward stays in the table of its arm, and each later round draws from that table again. So a run of `horizon`
    rounds releases as many draws, which share one guarantee: the exponent `r` of each falls with the horizon, and the
    policy hardly learns. It shows why :class:`pymc_dirdp.ThompsonSampler` releases each batch once.

    Parameters
    ----------
    guarantee : RenyiDP, TruncatedCDP or ApproxDP
        Of the whole run.
    horizon : int
        The number of rounds that the guarantee is for.
    prior : (float, float), default (1, 1)
        Beta prior of each mean reward, and the parameters that are added to each draw.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> policy = EveryRound(dirdp.RenyiDP(epsilon=1, order=2), horizon=100)
    >>> policy.mechanism.r < 0.1
    True
    """

    name = "a private draw in every round"
    # A Dirichlet draw has no pure privacy.
    epsilon = np.inf

    def __init__(self, guarantee: Guarantee, horizon: int, prior: tuple[float, float] = (1.0, 1.0)) -> None:
        self.guarantee = Guarantee.checked(guarantee=guarantee)
        self.horizon = integer(1, horizon=horizon)
        self.prior = positive(prior=prior[0]), positive(prior=prior[1])

    @cached_property
    def mechanism(self) -> DirichletMechanism:
        """The mechanism of one draw."""

        def calibrated(_: str, share: Guarantee) -> DirichletMechanism:
            return calibrate(share, prior=np.array(self.prior), strategy="temper")

        draws = {"groups": (("arm",),), "draws": self.horizon}
        return allocate(self.guarantee, calibrated, weights={"arm": 1.0}, **draws)["arm"]  # type: ignore[arg-type]

    @property
    def privacy(self) -> PrivacyCurves:
        """The curves of a whole run."""
        return composed({"arm": self.mechanism}, (("arm",),), self.horizon)

    def play(
        self, means: Array, checkpoints: Integers, n_runs: int, rng: np.random.Generator, *, progressbar: bool
    ) -> tuple[Array, Integers]:
        """Regret at each checkpoint, shape (runs, checkpoints), and the pulls of each arm, shape (runs, arms)."""
        if checkpoints[-1] > self.horizon:
            raise ArgumentError(f"The guarantee is for {self.horizon} rounds. Make the policy for a longer horizon.")
        (a, b), r = self.mechanism.alpha, self.mechanism.r
        successes = np.zeros((n_runs, len(means)), dtype=np.int64)
        pulls = np.zeros_like(successes)
        regret = np.empty((n_runs, len(checkpoints)))
        runs = np.arange(n_runs)
        gaps = means.max() - means
        with Bar(int(checkpoints[-1]), "rounds", shown=progressbar) as bar:
            for done in range(1, int(checkpoints[-1]) + 1):
                arms = rng.beta(r * successes + a, r * (pulls - successes) + b).argmax(axis=1)
                pulls[runs, arms] += 1
                successes[runs, arms] += rng.random(n_runs) < means[arms]
                regret[:, checkpoints == done] = (pulls @ gaps)[:, None]
                bar.advance(1)
        return regret, pulls
