"""One private posterior draw of the mean reward for each batch, and what it says of the mean reward."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np
from scipy.special import gammaln, logsumexp, softmax

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import positive
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.planning.calibration import calibrate
from pymc_dirdp.privacy.curves import CurvesOf
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.exact import exact_dirichlet, urn_counts

__all__ = ["BatchDraw"]


@final
@dataclass(frozen=True)
class BatchDraw(CurvesOf):
    """A draw of `Beta(r s + a, r (n - s) + b)` for each batch of n rewards with the sum s; P1's and P2's mechanism.

    The draw is used through its likelihood, and never as the index of its arm: a bad draw of the best arm would stay
    for ever. It is the number of successes among the steps of the exact sampler. Its noise grows with the batch, so
    :class:`BatchNoise` is better from a few rewards on.

    Parameters
    ----------
    alpha : (float, float)
    r : float
        As for :class:`pymc_dirdp.mechanisms.DirichletMechanism`.

    Examples
    --------
    >>> BatchDraw(alpha=(2.0, 2.0), r=0.5).r
    0.5
    """

    alpha: tuple[float, float]
    r: float

    name: ClassVar[str] = "dirichlet"
    output: ClassVar[str] = "urn_successes"
    rewards: ClassVar[int] = 1
    largest_batch: ClassVar[int] = 4096  # The likelihood is a sum over all sums of a batch.

    @cached_property
    def _curves(self) -> DirichletMechanism:
        return DirichletMechanism(np.array(self.alpha), self.r)

    @classmethod
    def for_guarantee(cls, guarantee: Guarantee, *, prior: tuple[float, float] = (1.0, 1.0), rewards: int = 1) -> Self:
        """The draw with `alpha = prior` and the largest `r` that keeps a guarantee for the whole run.

        Raises
        ------
        ArgumentError
            If somebody may give several rewards.
        UnattainableError
            If no draw keeps the guarantee.
        """
        if rewards > 1:
            raise ArgumentError(
                "mechanism='dirichlet' is for one reward of a person: how several in different batches add up is not "
                "known. Use mechanism='geometric'."
            )
        mechanism = calibrate(guarantee, prior=np.array(prior), strategy="temper")
        return cls((float(mechanism.alpha[0]), float(mechanism.alpha[1])), mechanism.r)

    @property
    def first_batch(self) -> int:
        """A batch whose draw is as much about its rewards as about the prior."""
        return max(1, math.ceil(sum(self.alpha) / self.r))

    def _steps(self, size: int) -> int:
        return self._curves.default_steps(size)

    def release(self, total: int, size: int, bits: Bits) -> int:
        """The successes of the urn of a batch."""
        secret = np.array([total, size - total], dtype=object)
        steps = self._steps(size)
        drawn = exact_dirichlet(np.array(self.alpha), self.r, secret, steps=steps, draws=1, bits=bits)
        return int(urn_counts(drawn[0], steps)[0])

    def simulated(self, total: int, size: int, rng: np.random.Generator) -> int:
        """The successes of the urn of made-up rewards, in floating point."""
        a, b = self.alpha
        return int(rng.binomial(self._steps(size), rng.beta(self.r * total + a, self.r * (size - total) + b)))

    def log_likelihood(self, released: int, size: int, means: Array) -> Array:
        """Logarithm of the probability of the urn's successes, for mean rewards in (0, 1), up to a constant."""
        return np.asarray(logsumexp(self._log_terms(released, size, means), axis=0))

    def slope(self, released: int, size: int, means: Array) -> Array:
        """The derivative of the log-likelihood in the mean reward."""
        expected = softmax(self._log_terms(released, size, means), axis=0).T @ np.arange(size + 1.0)
        return np.asarray((expected - size * means) / (means * (1 - means)))

    def _log_terms(self, released: int, size: int, means: Array) -> Array:
        """Logarithm of the joint distribution of the output and each possible sum, shape (size + 1, means)."""
        (a, b), steps = self.alpha, self._steps(size)
        x = np.arange(size + 1.0)
        of_output = (
            gammaln(released + self.r * x + a)
            - gammaln(self.r * x + a)
            + gammaln(steps - released + self.r * (size - x) + b)
            - gammaln(self.r * (size - x) + b)
        )
        choices = gammaln(size + 1.0) - gammaln(x + 1) - gammaln(size - x + 1)
        rows = x[:, None]
        log_law = choices[:, None] + rows * np.log(means) + (size - rows) * np.log1p(-means)
        return np.asarray(of_output[:, None] + log_law)

    def facts(self) -> Sequence[tuple[str, str]]:
        """What a report says of the draw."""
        (a, b), r = self.alpha, f"{self.r:.6g}"
        return [
            ("draw", f"one exact draw of Beta({r} s + {a:g}, {r} (n - s) + {b:g}) of each batch with the sum s of n")
        ]

    def fits(self, released: int, size: int) -> bool:
        """Whether a batch can have output this number."""
        return 0 <= released <= self._steps(size)

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> Self:
        """The draw that a file holds."""
        a, b = facts["alpha"]
        return cls((positive(alpha=a), positive(alpha=b)), positive(r=facts["r"]))

    def to_json(self) -> dict[str, Any]:
        """Name and parameters, for a file."""
        return {"mechanism": self.name, "alpha": list(self.alpha), "r": self.r}
