"""A mechanism of your own in one class: binomial noise on counts. `uv run examples/own_mechanism.py`."""

import math
from dataclasses import dataclass

import numpy as np
import pymc as pm
from scipy.special import gammaln

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.registry import registered
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions


@dataclass(frozen=True, eq=False)
class BinomialMechanism(NoisyCounts):
    """Release `counts + B - coins / 2`, with B the heads of an even number of fair coins, for one record of a person.

    The distribution is listed, so the curve is exact up to rounding. The ends of the noise are possible for one data
    set alone: Rényi divergences are infinite, and (epsilon, delta) is all that it can guarantee.
    """

    coins: float

    kind = "binomial"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "coins", 2.0 * math.ceil(self.coins / 2))
        if self.coins > 1400 or self.contributed.total(self.shape) > 1:
            raise dirdp.errors.UnattainableError(
                "BinomialMechanism takes at most 1400 coins and one record of a person."
            )

    @property
    def noise_sd(self) -> float:
        return math.sqrt(self.coins) / 2

    def log_noise(self, noise):
        heads = np.asarray(noise) + self.coins / 2
        inside = (heads >= 0) & (heads <= self.coins)
        k = np.where(inside, heads, 0.0)
        distribution = gammaln(self.coins + 1) - gammaln(k + 1) - gammaln(self.coins - k + 1) - self.coins * math.log(2)
        return np.where(inside, distribution, -np.inf)

    def noise_for(self, shape, rng):
        return rng.binomial(int(self.coins), 0.5, shape) - self.coins / 2

    def exact_noise(self, shape, bits):
        n = int(self.coins)
        heads = [bits.uniform(1 << n).bit_count() - n // 2 for _ in range(math.prod(shape))]
        return np.array(heads, dtype=object).reshape(shape)

    @property
    def _distributions(self) -> FiniteDistributions:
        """Two counts move by 1, or one under add-remove."""
        return self.output_distributions(*self.worst_pair())

    def _renyi(self, order):
        return self._distributions.renyi(order)

    def _rho(self, omega):
        return self._distributions.rho(omega)

    def _delta(self, epsilon):
        # Upwards by more than the logarithms of the distribution are rounded.
        return min(1.0, self._distributions.delta(epsilon) * (1 + 1e-10))


if __name__ == "__main__":
    with registered(BinomialMechanism), pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}):
        p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
        pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
        release = dirdp.sample(dirdp.ApproxDP(epsilon=1, delta=1e-6), mechanism="binomial")
        print(dirdp.report(release))
