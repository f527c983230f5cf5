"""What mechanisms that add noise to counts share: one noisy table, and draws and estimates from it."""

import abc
import math
from typing import Any, Self, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.adjacency import Adjacency, adjacency_named
from pymc_dirdp.checks import integer, one_of, positive_array
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.guarantees import Guarantee, PureDP
from pymc_dirdp.mechanisms.base import Mechanism, checked_counts
from pymc_dirdp.mechanisms.postprocess import POSTPROCESSES, postprocessed
from pymc_dirdp.roots import largest_safe, log_excess
from pymc_dirdp.sampling.entropy import Seed, generator
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["NoisyCounts"]

Array = NDArray[np.float64]


class NoisyCounts(Mechanism):
    """Release counts plus noise; everything else is post-processing of it.

    Attributes
    ----------
    prior : array, shape (..., d)
        The model's own prior; it says the shape of the table.
    adjacency : {"replace-one", "add-remove"}
        What one person can change.
    postprocess : {"clip-and-smooth", "clip", "project"}
        How noisy counts are made nonnegative, see :func:`pymc_dirdp.mechanisms.postprocess.postprocessed`.
    """

    covers_all_draws = True

    prior: Array
    adjacency: str
    postprocess: str

    def _check(self) -> None:
        """To be called once the fields are set."""
        object.__setattr__(self, "prior", positive_array(prior=self.prior))
        object.__setattr__(self, "adjacency", adjacency_named(self.adjacency).name)
        one_of(POSTPROCESSES, postprocess=self.postprocess)

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        *,
        prior: ArrayLike,
        adjacency: str = "replace-one",
        postprocess: str = "clip-and-smooth",
    ) -> Self:
        """The mechanism with the least noise that keeps `guarantee`.

        Parameters
        ----------
        guarantee : Guarantee
            The target.
        prior, adjacency, postprocess
            As for the mechanism itself.

        Returns
        -------
        mechanism : instance of this class
            `mechanism.satisfies(guarantee)` is True, and a scale smaller by 1e-9 relative does not keep it.

        Raises
        ------
        UnattainableError
            If noise of this law keeps no guarantee of this kind.
        """

        def made(inverse: float, table: ArrayLike) -> Any:
            return cls(table, 1 / inverse, adjacency=adjacency, postprocess=postprocess)  # type: ignore[call-arg]

        # The curves do not depend on the table, so the search is made for a small one.
        small = np.ones(2)
        if isinstance(guarantee, PureDP) and not math.isfinite(made(1.0, small).pure_epsilon):
            raise UnattainableError(
                f"{cls.__name__} keeps no pure differential privacy: its loss is unbounded. Ask for ApproxDP, RenyiDP, "
                "ZeroCDP or TruncatedCDP, or use LaplaceMechanism or GeometricMechanism."
            )
        mechanism: Self = made(largest_safe(lambda inverse: log_excess(*made(inverse, small).loss(guarantee))), prior)
        return mechanism

    @property
    @abc.abstractmethod
    def noise(self) -> float:
        """Standard deviation of the noise in one cell."""

    @property
    @abc.abstractmethod
    def parameter(self) -> float:
        """What calibration solves for and the class takes after `prior`: sigma, or the scale."""

    @abc.abstractmethod
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Independent noise of this shape."""

    def mended(self, noisy: Array) -> Array:
        """Noisy counts made nonnegative by `postprocess`. Shape (..., *prior.shape)."""
        return postprocessed(noisy, self.postprocess, noise=self.noise)

    @property
    def _relation(self) -> Adjacency:
        return adjacency_named(self.adjacency)

    @property
    def _public(self) -> tuple[object, ...]:
        return type(self), self.prior.shape, self.prior.tobytes(), self.noise, self.adjacency, self.postprocess

    @override
    def __eq__(self, other: object) -> bool:
        return self._public == other._public if isinstance(other, NoisyCounts) else NotImplemented

    @override
    def __hash__(self) -> int:
        return hash(self._public)

    def release(self, counts: ArrayLike, *, random_seed: Seed = None) -> Array:
        """The counts with noise: what the guarantee is about. Shape of `prior`; entries may be negative.

        Parameters
        ----------
        counts : array_like of whole numbers, shape of `prior`
            The secret. Errors never show it.
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.
        """
        return checked_counts(counts, self.prior.shape) + self.noise_for(self.prior.shape, generator(random_seed))

    def sample(self, counts: ArrayLike, *, draws: int = 1, sampler: str = "fast", random_seed: Seed = None) -> Array:
        """Posterior draws given the noisy counts: `Dirichlet(noisy + prior)`.

        All draws come from **one** noisy table, so the guarantee covers any number of them, and they vary less than
        draws from several.

        Parameters
        ----------
        counts : array_like of whole numbers, shape of `prior`
            The secret. Errors never show it.
        draws : int, default 1
            Number of draws, at least 1.
        sampler : {"fast"}, default "fast"
            `"fast"` draws in floating point with NumPy.
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.

        Returns
        -------
        y : array, shape ``(draws, *prior.shape)``

        References
        ----------
        P2 Appendix C.
        """
        one_of(("fast",), sampler=sampler)
        rng = generator(random_seed)
        return self.sample_from(self.release(counts, random_seed=rng), draws=draws, random_seed=rng)

    def sample_from(self, noisy: Array, *, draws: int = 1, random_seed: Seed = None) -> Array:
        """Posterior draws given one release: post-processing, which anybody may do as often as they like.

        Parameters
        ----------
        noisy : array, shape of `prior`
            From :meth:`release`.
        draws, random_seed
            As for :meth:`sample`.

        Returns
        -------
        y : array, shape ``(draws, *prior.shape)``
        """
        return dirichlet(self.mended(noisy) + self.prior, integer(1, draws=draws), generator(random_seed))

    def estimate(self, counts: ArrayLike, *, random_seed: Seed = None) -> Array:
        """Frequencies from the noisy counts, without the prior: shape of `prior`, rows add up to 1.

        A row of which nothing is left is uniform.
        """
        noisy = self.mended(self.release(counts, random_seed=random_seed))
        total = noisy.sum(axis=-1, keepdims=True)
        return np.where(total > 0, noisy / np.where(total > 0, total, 1.0), 1.0 / noisy.shape[-1])
