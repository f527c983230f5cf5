"""Gaussian noise on counts."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Self, final, override

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from pymc_dirdp.adjacency import adjacency_named
from pymc_dirdp.checks import positive
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.guarantees import ApproxDP, Guarantee, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.roots import largest_safe, least_epsilon, log_excess

__all__ = ["GaussianMechanism"]

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class GaussianMechanism(NoisyCounts):
    """Release `counts + Normal(0, sigma**2)`, independent in every cell.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    sigma : float
        Standard deviation of the noise, positive.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change. A record that moves changes two cells, also if they are in two rows.
    postprocess : {"clip-and-smooth", "clip", "project"}, default "clip-and-smooth"
        How noisy counts are made nonnegative.

    Notes
    -----
    All curves are exact. The loss is normal with standard deviation `Delta_2 / sigma`, `Delta_2**2` being 2 under
    replace-one and 1 under add-remove.

    References
    ----------
    Balle and Wang (2018), Improving the Gaussian mechanism, Theorem 8. P1 section 5, P2 Appendix C.

    Examples
    --------
    >>> mechanism = GaussianMechanism([1, 1, 1, 1], 5.0)
    >>> mechanism.epsilon(1e-6)
    1.2...
    """

    prior: Array
    sigma: float
    _: KW_ONLY
    adjacency: str = "replace-one"
    postprocess: str = "clip-and-smooth"

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "sigma", positive(sigma=self.sigma))

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        *,
        prior: Array,
        adjacency: str = "replace-one",
        postprocess: str = "clip-and-smooth",
    ) -> Self:
        """The mechanism with the least noise that keeps `guarantee`, which is any but `PureDP`."""
        delta_2 = math.sqrt(adjacency_named(adjacency).delta_2_squared)
        mechanism = cls(prior, delta_2 / _largest_ratio(guarantee), adjacency=adjacency, postprocess=postprocess)
        while not mechanism.satisfies(guarantee):
            # Rounding of the ratio; one step of 1e-15 or two.
            mechanism = cls(prior, mechanism.sigma * (1 + 1e-15), adjacency=adjacency, postprocess=postprocess)
        return mechanism

    @property
    @override
    def noise(self) -> float:
        return self.sigma

    @override
    def _noise(self, rng: np.random.Generator) -> Array:
        return rng.normal(0.0, self.sigma, size=self.prior.shape)

    @property
    def _ratio(self) -> float:
        return math.sqrt(self._relation.delta_2_squared) / self.sigma

    @override
    def _renyi(self, order: float) -> float:
        return order * self._ratio**2 / 2

    @override
    def _rho(self, omega: float) -> float:
        return self._ratio**2 / 2

    @override
    def _delta(self, epsilon: float) -> float:
        return _delta(self._ratio, epsilon)

    @override
    def _epsilon(self, delta: float) -> float:
        return least_epsilon(self._delta, delta)


def _delta(ratio: float, epsilon: float) -> float:
    """Hockey-stick divergence of `Normal(ratio**2 / 2, ratio**2)`-distributed losses, without cancellation."""
    first = float(log_ndtr(ratio / 2 - epsilon / ratio))
    second = epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))
    # exp(first) - exp(second), with second < first.
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def _largest_ratio(guarantee: Guarantee) -> float:
    """The largest sensitivity over sigma that keeps the guarantee."""
    match guarantee:
        case RenyiDP(order=order, epsilon=epsilon):
            return math.sqrt(2 * epsilon / order)
        case TruncatedCDP(rho=rho) | ZeroCDP(rho=rho):
            return math.sqrt(2 * rho)
        case ApproxDP(epsilon=epsilon, delta=delta):

            def excess(ratio: float) -> float:
                return log_excess(_delta(ratio, epsilon), delta)

            return largest_safe(excess)
        case PureDP():
            raise UnattainableError(
                "Gaussian noise has no pure differential privacy: its loss is unbounded. Ask for ApproxDP, RenyiDP, "
                "ZeroCDP or TruncatedCDP, or use LaplaceMechanism."
            )
    raise ArgumentError(f"Expected a guarantee, got a {type(guarantee).__name__}.")
