"""Private draws in every round, which share one guarantee."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.bandits.design import checked_prior
from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.allocation import allocate, composed
from pymc_dirdp.planning.prices import calibrate
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.progress import Bar
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.exact import exact_dirichlet

__all__ = ["EveryRound"]

# Private draws in every round: what a guarantee for each round costs over a whole run.


@final
class EveryRound:
    """Thompson sampling with a private draw of every arm in every round: the rules of `schedule="every-round"`.

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

    Attributes
    ----------
    mechanism : DirichletMechanism
        Of one draw.

    Raises
    ------
    UnattainableError
        If no draw keeps so little of the guarantee, or it is pure or zero-concentrated.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> policy = EveryRound(dirdp.RenyiDP(epsilon=1, order=2), horizon=100)
    >>> policy.mechanism.r < 0.1
    True
    """

    name = "a private draw in every round"
    # A draw with the default number of steps has no guarantee of pure privacy.
    epsilon = np.inf
    rewards = 1

    def __init__(self, guarantee: Guarantee, horizon: int, prior: Sequence[float] = (1.0, 1.0)) -> None:
        self.guarantee = Guarantee.checked(guarantee=guarantee)
        self.horizon = integer(1, horizon=horizon)
        self.prior = checked_prior(prior)
        self.mechanism = self._calibrated()

    def _calibrated(self) -> DirichletMechanism:
        """The mechanism of one draw, such that all of them keep the guarantee together."""

        def calibrated(_: str, share: Guarantee) -> DirichletMechanism:
            return calibrate(share, prior=np.array(self.prior), mechanism=Dirichlet(strategy="temper"))

        draws = {"groups": (("arm",),), "draws": self.horizon}
        return allocate(self.guarantee, calibrated, weights={"arm": 1.0}, **draws)["arm"]  # type: ignore[arg-type]

    @property
    def privacy(self) -> PrivacyCurves:
        """The curves of a whole run."""
        return composed({"arm": self.mechanism}, (("arm",),), self.horizon)

    @property
    def span(self) -> str:
        """What the guarantee covers, for a report."""
        return f"a run of at most {self.horizon} rounds: all choices and all draws"

    def facts(self) -> Sequence[tuple[str, str]]:
        """What a report says of the rules."""
        (a, b), r = self.prior, f"{self.mechanism.r:.3g}"
        return [
            (
                "draws",
                f"in every round one exact draw of Beta({r} s + {a:g}, {r} (n - s) + {b:g}) of each arm with the "
                "sum s of n rewards",
            ),
            (
                "cost",
                f"a reward is in all later draws, and {self.horizon} draws share the guarantee: a draw is as wide as a "
                f"posterior of {r} n rewards. Batches do not pay for rounds; leave schedule= out",
            ),
        ]

    def draw(self, counts: tuple[int, ...], bits: Bits) -> float:
        """A private draw of the mean reward of an arm with so many failures and successes."""
        failures, successes = counts
        secret = np.array([successes, failures], dtype=object)
        steps = self.mechanism.default_steps(failures + successes)
        drawn = exact_dirichlet(self.mechanism.alpha, self.mechanism.r, secret, steps=steps, draws=1, bits=bits)
        return float(drawn[0, 0])

    def to_json(self) -> dict[str, Any]:
        """Nothing: the rewards of all rounds are still to be drawn from, so a copy of a file would draw twice."""
        raise ArgumentError(
            "A run with schedule='every-round' has no file: somebody who went on with an older copy would draw more "
            "often than the guarantee allows. Use batches, which are released once."
        )

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
