"""The public rules of a private bandit: its prior, and its batches or private draws in every round."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, final

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.bandits.batch_release import KINDS, BatchMechanism, BatchNoise, Output
from pymc_dirdp.checks import integer, one_of, positive
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
from pymc_dirdp.signatures import user_facing
from pymc_dirdp.texts.codec import facts_by_field, fields_of, value_of


@user_facing
@final
@dataclass(frozen=True, kw_only=True)
class Design:
    """The public rules before the first pull. Only pulls determine when a batch ends.

    Attributes
    ----------
    mechanism : BatchNoise or BatchCounts
        The mechanism of each batch.
    prior : tuple of float
        Beta prior of each mean reward; for BatchCounts the Dirichlet prior of the shares of the cells.
    first_batch : int
        Size of the first batch of an arm.
    growth : float
        Ratio of the size of the next batch to all earlier pulls of the arm. A batch has at least `first_batch` pulls.

    Examples
    --------
    >>> from pymc_dirdp.bandits import BatchNoise
    >>> Design(mechanism=BatchNoise(2.0), growth=0.5).growth
    0.5
    """

    mechanism: BatchMechanism
    prior: tuple[float, ...] = (1.0, 1.0)
    first_batch: int = 1
    growth: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", checked_prior(self.prior, len(self.mechanism.worths)))
        object.__setattr__(self, "first_batch", integer(1, first_batch=self.first_batch))
        object.__setattr__(self, "growth", positive(growth=self.growth))

    @classmethod
    def of(
        cls,
        guarantee: Guarantee,
        *,
        mechanism: str | None,
        prior: tuple[float, ...],
        first_batch: int | None,
        growth: float,
        rewards: int,
        worths: tuple[float, ...] = (),
    ) -> "Design":
        """The rules that satisfy a guarantee for a whole run of any length. `worths` come from `utilities`."""
        kind = KINDS[one_of(KINDS, mechanism=BatchNoise.name if mechanism is None else mechanism)]
        chosen = kind.for_guarantee(guarantee, rewards=integer(1, contribution=rewards), worths=worths)
        first_size = chosen.first_batch if first_batch is None else first_batch
        return cls(mechanism=chosen, prior=prior, first_batch=first_size, growth=growth)

    @property
    def privacy(self) -> PrivacyCurves:
        """The curves of a whole run, of any length."""
        return self.mechanism

    @property
    def rewards(self) -> int:
        """The maximum number of rewards of one person."""
        return self.mechanism.rewards

    @property
    def span(self) -> str:
        """What the guarantee covers, for a report."""
        return "the whole run of any length: all choices and all outputs"

    def facts(self) -> Sequence[tuple[str, str]]:
        """Lines about the rules for a report."""
        prior = ", ".join(f"{parameter:g}" for parameter in self.prior)
        return [
            *self.mechanism.facts(),
            (
                "batches",
                f"the first of an arm has {self.first_batch} pulls, and each next one {self.growth:g} times the pulls "
                "before it; only pulls determine when a batch ends",
            ),
            (
                "prior",
                f"Beta({prior}) for each mean reward"
                if len(self.prior) == 2
                else f"Dirichlet({prior}) for the shares of the categories of each arm",
            ),
        ]

    def next_size(self, pulls: int) -> int:
        """The size of the next batch of an arm with this number of pulls in finished batches."""
        return min(max(self.first_batch, math.ceil(self.growth * pulls)), self.mechanism.largest_batch)

    def refuse_others(self, batches: Sequence[tuple[int, Output]]) -> None:
        """Check that the sizes and outputs of an arm's finished batches follow from the rules."""
        pulls = 0
        for size, output in batches:
            if size != self.next_size(pulls) or not self.mechanism.fits(output, size):
                raise ArgumentError(
                    "A batch has another size than its settings state, or an output that its mechanism cannot produce."
                )
            pulls += size

    def to_dict(self) -> dict[str, Any]:
        """All rules as a flat dict for a text, including those of the mechanism."""
        facts = facts_by_field(self)
        return {"mechanism": self.mechanism.name, **facts.pop("mechanism"), **facts}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """The rules of a text. Raises one of several errors if they are invalid."""
        kind = KINDS[facts["mechanism"]]
        names = [field.name for field in fields(kind)]
        mechanism = value_of(kind, {name: facts[name] for name in names})
        rules = {name: fact for name, fact in facts.items() if name not in names}
        return cls(mechanism=mechanism, **fields_of(cls, rules, without=("mechanism",)))


def checked_prior(prior: object, cells: int = 2, *, surest: float = 1e12) -> tuple[float, ...]:
    """The parameters of a Beta or Dirichlet prior."""
    value: Any = prior
    try:
        numbers = tuple(value)
    except TypeError:
        numbers = ()
    if len(numbers) != cells:
        expectation = "a pair of positive numbers, those of a Beta distribution"
        if cells > 2:
            expectation = f"{cells} positive numbers, those of a Dirichlet distribution of the categories"
        raise ArgumentError(f"Expected prior to be {expectation}.")
    parameters = tuple(positive(prior=parameter) for parameter in numbers)
    # Doubles near 1 do not resolve the width of a more concentrated prior.
    if max(parameters) > surest:
        raise ArgumentError(f"Expected prior to have no parameter above {surest:g}; such a prior never learns.")
    return parameters


@user_facing
@final
class EveryRound:
    """Thompson sampling with a private draw of every arm in every round: the rules of `schedule="every-round"`.

    A reward stays in the table of its arm, and each later round draws from that table again. So a run of `horizon`
    rounds releases as many draws, which share one guarantee. The exponent `r` of each falls with the horizon, and the
    policy hardly learns. This shows why :class:`pymc_dirdp.ThompsonSampler` releases each batch once.

    Parameters
    ----------
    guarantee : RenyiDP, TruncatedCDP or ApproxDP
        The guarantee of the whole run.
    horizon : int
        The number of rounds that the guarantee covers.
    prior : (float, float), default (1, 1)
        Beta prior of each mean reward, which is also added to the counts of each draw.

    Attributes
    ----------
    mechanism : DirichletMechanism
        The mechanism of one draw.

    Raises
    ------
    UnattainableError
        If no draw satisfies its part of the guarantee, or the guarantee is pure or zero-concentrated.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> policy = EveryRound(dirdp.RenyiDP(epsilon=1, order=2), horizon=100)
    >>> policy.mechanism.r < 0.1
    True
    """

    name = "a private draw in every round"
    # A draw with the default number of steps does not satisfy pure privacy.
    epsilon = np.inf
    rewards = 1

    def __init__(self, guarantee: Guarantee, horizon: int, prior: Sequence[float] = (1.0, 1.0)) -> None:
        self.guarantee = Guarantee.checked(guarantee=guarantee)
        self.horizon = integer(1, horizon=horizon)
        self.prior = checked_prior(prior)
        self.mechanism = self._calibrated()

    def _calibrated(self) -> DirichletMechanism:
        """The mechanism of one draw, such that all of them satisfy the guarantee together."""

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
        """Lines about the rules for a report."""
        (a, b), r = self.prior, f"{self.mechanism.r:.3g}"
        return [
            (
                "draws",
                f"in every round one exact draw of Beta({r} s + {a:g}, {r} (n - s) + {b:g}) of each arm with the "
                "sum s of n rewards",
            ),
            (
                "cost",
                f"each reward is in all later draws, and {self.horizon} draws share the guarantee, so a draw is as "
                f"wide as a posterior of {r} n rewards. Leave schedule= out: batches do not pay for rounds",
            ),
        ]

    def draw(self, counts: tuple[int, ...], bits: Bits) -> float:
        """A private draw of the mean reward of an arm with these failures and successes."""
        failures, successes = counts
        secret = np.array([successes, failures], dtype=object)
        steps = self.mechanism.default_steps(failures + successes)
        shares = exact_dirichlet(self.mechanism.alpha, self.mechanism.r, secret, steps=steps, draws=1, bits=bits)
        return float(shares[0, 0])

    def to_dict(self) -> dict[str, Any]:
        """Raise an error: later rounds draw from the same rewards, so a copy of a file would draw more often."""
        raise ArgumentError(
            "A run with schedule='every-round' has no file, because resuming an older copy would draw more often than "
            "the guarantee allows. Use batches, which are released once."
        )

    def play(
        self, means: Array, checkpoints: Integers, n_runs: int, rng: np.random.Generator, *, progressbar: bool
    ) -> tuple[Array, Integers]:
        """Regret at each checkpoint, shape (runs, checkpoints), and the pulls of each arm, shape (runs, arms)."""
        if checkpoints[-1] > self.horizon:
            raise ArgumentError(f"The guarantee is for {self.horizon} rounds. Create a policy with a longer horizon.")
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
