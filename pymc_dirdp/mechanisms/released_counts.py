"""What mechanisms share that release one table of counts: draws and frequencies from it are post-processing."""

import abc
from typing import Any, ClassVar, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.outputs import NoisyTable, Output
from pymc_dirdp.mechanisms.postprocess import frequencies
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.entropy import Seed, generator
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["ReleasedCounts"]

Table = NDArray[Any]


class ReleasedCounts(Mechanism):
    """Release counts z once, and draw from `Dirichlet(prior + z)` as often as anybody likes.

    Attributes
    ----------
    prior : array, shape (..., d)
        The model's own prior; it says the shape of the table.
    """

    output_kind: ClassVar[type[Output]] = NoisyTable
    prior: Array

    @abc.abstractmethod
    def _checked(self, counts: ArrayLike) -> Table:
        """The counts as an array, or an error that does not show them."""

    @abc.abstractmethod
    def _fast_release(self, counts: Table, rng: np.random.Generator) -> Table: ...

    @abc.abstractmethod
    def _exact_release(self, counts: Table, bits: Bits) -> Table: ...

    def release(self, counts: ArrayLike, *, sampler: str = "exact", random_seed: Seed = None) -> Table:
        """The counts that are released: what the guarantee is about. Shape of `prior`; noisy ones may be negative.

        Parameters
        ----------
        counts : array_like of whole numbers, shape of `prior`
            The secret. Errors never show it. Where `n_records` is public, they add up to it.
        sampler : {"exact", "fast"}, default "exact"
            `"exact"` draws in whole numbers with bits of the operating system; noise is added to the counts as whole
            numbers, and the sum is rounded to a double once. `"fast"` draws in floating point with NumPy: nearly the
            law that the curves are about, and how nearly is not proved. Continuous noise has only that.
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.

        Notes
        -----
        The running time of exact noise depends on the noise, and not on the counts.
        """
        table = self._checked(counts)
        if self.checked_sampler(sampler) == "exact":
            return self._exact_release(table, Bits(random_seed))
        return self._fast_release(table, generator(random_seed))

    def postprocessed(self, released: Array) -> Array:
        """Released counts made nonnegative, where they need it. Shape (..., *prior.shape)."""
        return released

    def sample(self, counts: ArrayLike, *, draws: int = 1, sampler: str = "exact", random_seed: Seed = None) -> Array:
        """Draws from the released posterior `Dirichlet(prior + z)`.

        All draws come from **one** release, so the guarantee covers any number of them, and they vary less than draws
        from several.

        Parameters
        ----------
        counts, sampler, random_seed
            As for :meth:`release`. The draws that follow it are made in floating point.
        draws : int, default 1
            Number of draws, at least 1.

        Returns
        -------
        y : array, shape ``(draws, *prior.shape)``

        References
        ----------
        P2 Appendix C.
        """
        # One generator, which moves on; without a seed the exact release takes the operating system's own bits.
        rng = None if random_seed is None else generator(random_seed)
        return self.sample_from(self.release(counts, sampler=sampler, random_seed=rng), draws=draws, random_seed=rng)

    def sample_from(self, released: ArrayLike, *, draws: int = 1, random_seed: Seed = None) -> Array:
        """Posterior draws given one release: post-processing, which anybody may do as often as they like.

        Parameters
        ----------
        released : array_like, shape of `prior`
            From :meth:`release`.
        draws, random_seed
            As for :meth:`sample`.

        Returns
        -------
        y : array, shape ``(draws, *prior.shape)``
        """
        parameters = self.postprocessed(np.asarray(released, dtype=np.float64)) + self.prior
        return dirichlet(parameters, integer(1, draws=draws), generator(random_seed))

    @override
    def published_shares(self, data: NDArray[np.int64], rng: np.random.Generator) -> Array:
        return frequencies(self.posterior_parameters(data, rng) - self.prior)

    def estimate(self, counts: ArrayLike, *, sampler: str = "exact", random_seed: Seed = None) -> Array:
        """Frequencies from the released counts, without the prior: shape of `prior`, rows add up to 1.

        A row of which nothing is left is uniform. Arguments as for :meth:`release`.
        """
        return frequencies(self.postprocessed(self.release(counts, sampler=sampler, random_seed=random_seed)))
