"""A mechanism of your own in one class: binomial noise on counts. `uv run examples/own_mechanism.py`."""

import math
from dataclasses import dataclass

import numpy as np
import pymc as pm
from scipy.special import gammaln

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.noise import Noise
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.registry import registered


@dataclass(frozen=True)
class Binomial(Noise):
    """The heads of an even number of fair coins less half of them, for one record of a person.

    Its curves are those of the listed distribution. The ends of the noise are possible for one data set alone: Rényi
    divergences are infinite, and (epsilon, delta) is all that it can guarantee.
    """

    coins: float

    def __post_init__(self):
        object.__setattr__(self, "coins", 2.0 * math.ceil(self.coins / 2))
        if not 0 < self.coins <= 1400:
            raise dirdp.errors.UnattainableError("Binomial noise takes 2 to 1400 coins.")

    @property
    def sd(self):
        return math.sqrt(self.coins) / 2

    def log_pmf(self, noise):
        heads = np.asarray(noise) + self.coins / 2
        inside = (heads >= 0) & (heads <= self.coins)
        k = np.where(inside, heads, 0.0)
        distribution = gammaln(self.coins + 1) - gammaln(k + 1) - gammaln(self.coins - k + 1) - self.coins * math.log(2)
        return np.where(inside, distribution, -np.inf)

    def fast(self, shape, rng):
        return rng.binomial(int(self.coins), 0.5, shape) - self.coins / 2

    def exact(self, shape, bits):
        n = int(self.coins)
        heads = [bits.uniform(1 << n).bit_count() - n // 2 for _ in range(math.prod(shape))]
        return np.array(heads, dtype=object).reshape(shape)


@dataclass(frozen=True, eq=False)
class BinomialMechanism(NoisyCounts):
    """Release counts plus binomial noise."""

    coins: float

    kind = "binomial"
    noise_type = Binomial


if __name__ == "__main__":
    with registered(BinomialMechanism), pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}):
        p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
        pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
        release = dirdp.sample(dirdp.ApproxDP(epsilon=1, delta=1e-6), mechanism="binomial")
        print(dirdp.report(release))
