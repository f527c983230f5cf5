"""What mechanisms share that release the parameters of a whole posterior: counts of the public number of records."""

import abc
import itertools
import math
from collections.abc import Iterator
from typing import override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.base import Mechanism, checked_counts
from pymc_dirdp.mechanisms.finite_choice import drawn_from
from pymc_dirdp.mechanisms.hellinger_distance import hellinger_distance
from pymc_dirdp.privacy.finite_laws import FiniteLaws
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.entropy import Seed, generator
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["WholePosterior"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Up to so many data sets are all tried as neighbours; beyond, corners and the centre.
_MOST_TRIED = 600
# Its exponential is a double.
_LARGEST_LOSS = 600.0


class WholePosterior(Mechanism):
    """Release `Dirichlet(prior + z)`: the counts z are whole numbers between 0 and `n_records`.

    Neighbours differ by one record that moves from one cell to another; the number of records is public.

    Attributes
    ----------
    prior : array, shape (d,)
        The model's own prior.
    n_records : int
        Number of records, public.
    """

    adjacency = "replace-one"
    covers_all_draws = True
    prior: Array
    n_records: int

    def _check(self) -> None:
        """To be called once the fields are set."""
        object.__setattr__(self, "prior", positive_array(prior=self.prior))
        if self.prior.ndim != 1:
            raise ArgumentError(
                f"Expected prior to be one row, shape (d,), got shape {self.prior.shape}: the number of records of "
                "each row of a larger table is not public. Use GeometricMechanism or DirichletMechanism there."
            )
        object.__setattr__(self, "n_records", integer(1, n_records=self.n_records))

    @property
    def records_of_a_person(self) -> int:
        """How many records one person holds at most; all of them may move together."""
        return 1

    @abc.abstractmethod
    def _law(self, counts: Integers) -> tuple[Integers, Array]: ...

    def law(self, counts: ArrayLike) -> tuple[Integers, Array]:
        """All that can be released, and with which probability. It tells the counts, so it is the curator's.

        Parameters
        ----------
        counts : array_like of whole numbers, shape (d,)
            The secret, or counts that are assumed for planning.

        Returns
        -------
        outcomes : array of int, shape (m, d)
        probabilities : array, shape (m,)
        """
        return self._law(self._checked(counts))

    def expected_distance(self, counts: ArrayLike) -> float:
        """Expected Hellinger distance of the released posterior from the true one, summed exactly.

        Parameters
        ----------
        counts : array_like of whole numbers, shape (d,)
            Counts that are assumed for planning; for the secret ones the result is confidential.
        """
        outcomes, probabilities = self.law(counts)
        return float(probabilities @ hellinger_distance(self._checked(counts) + self.prior, outcomes + self.prior))

    def release(self, counts: ArrayLike, *, sampler: str = "exact", random_seed: Seed = None) -> Integers:
        """Counts z of the released posterior `Dirichlet(prior + z)`: what the guarantee is about. Shape of `prior`.

        Parameters
        ----------
        counts : array_like of whole numbers, shape of `prior`
            The secret; they add up to `n_records`. Errors never show it.
        sampler : {"exact", "fast"}, default "exact"
            `"exact"` draws in whole numbers with bits of the operating system. `"fast"` draws in floating point with
            NumPy: nearly the law that the curves are about, and how nearly is not proved.
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.
        """
        whole = self._checked(counts)
        if self.checked_sampler(sampler) == "exact":
            return self._exact_draw(whole, Bits(random_seed))
        return self._draw(whole, generator(random_seed))

    def _draw(self, counts: Integers, rng: np.random.Generator) -> Integers:
        outcomes, probabilities = self._law(counts)
        chosen: Integers = outcomes[rng.choice(len(outcomes), p=probabilities / probabilities.sum())]
        return chosen

    def _exact_draw(self, counts: Integers, bits: Bits) -> Integers:
        outcomes, probabilities = self._law(counts)
        chosen: Integers = outcomes[drawn_from(probabilities, bits)]
        return chosen

    def sample(self, counts: ArrayLike, *, draws: int = 1, sampler: str = "exact", random_seed: Seed = None) -> Array:
        """Draws from the released posterior.

        All draws come from **one** release, so the guarantee covers any number of them.

        Parameters
        ----------
        counts : array_like of whole numbers, shape of `prior`
            The secret; they add up to `n_records`. Errors never show it.
        draws : int, default 1
            Number of draws, at least 1.
        sampler : {"exact", "fast"}, default "exact"
            How the counts are released, see :meth:`release`. The draws that follow are post-processing, in floating
            point.
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.

        Returns
        -------
        y : array, shape ``(draws, *prior.shape)``
        """
        # One generator, which moves on; without a seed the exact release takes the operating system's own bits.
        rng = None if random_seed is None else generator(random_seed)
        released = self.release(counts, sampler=sampler, random_seed=rng)
        return dirichlet(released + self.prior, integer(1, draws=draws), generator(rng))

    def estimate(self, counts: ArrayLike, *, sampler: str = "exact", random_seed: Seed = None) -> Array:
        """Frequencies from the released counts, without the prior: shape of `prior`, adds up to 1.

        Arguments as for :meth:`release`.
        """
        released = self.release(counts, sampler=sampler, random_seed=random_seed)
        total = released.sum()
        return released / total if total else np.full(len(released), 1 / len(released))

    def _checked(self, counts: ArrayLike) -> Integers:
        whole = checked_counts(counts, self.prior.shape).astype(np.int64)
        if whole.sum() != self.n_records:
            raise DataError(f"The counts do not add up to the public n_records={self.n_records}.")
        return whole

    @override
    def releases(
        self, counts: Array, n: int, *, sampler: str = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        rng = generator(random_seed)
        return np.array([self.release(counts, sampler=sampler, random_seed=rng) for _ in range(n)], dtype=np.float64)

    @override
    def posterior_parameters(self, data: Integers, rng: np.random.Generator) -> Array:
        parameters: Array = np.array([self.release(counts, random_seed=rng) for counts in data]) + self.prior
        return parameters

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        """By the list of all outcomes, for one data set and any number of outputs."""
        outcomes, probabilities = self.law(counts)
        known: dict[tuple[int, ...], float] = {}
        for outcome, probability in zip(map(tuple, outcomes.tolist()), probabilities.tolist(), strict=True):
            # The law may list an outcome more than once.
            known[outcome] = known.get(outcome, 0.0) + probability
        outputs = np.asarray(output, dtype=np.int64)
        found = [known.get(tuple(one), 0.0) for one in outputs.reshape(-1, outputs.shape[-1]).tolist()]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.array(found).reshape(outputs.shape[:-1])))

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        # What claims to be a mechanism may put out numbers that no machine integer holds.
        return super().log_likelihood_ratio(np.clip(outputs, -1, self.n_records + 1), x, y)

    @override
    def output_laws(self, x: Array, y: Array, cells: int | None = None) -> FiniteLaws:
        outcomes = np.unique(np.concatenate([self.law(counts)[0] for counts in (x, y)]), axis=0)
        return FiniteLaws(self.log_likelihood(outcomes, x), self.log_likelihood(outcomes, y))

    @override
    def worst_pair(self) -> tuple[Array, Array]:
        """The neighbours that are furthest apart at half of the largest loss seen on any."""
        tried = [(x, y, self.output_laws(x, y)) for x, y in self._few_neighbours()]
        largest = max(laws.pure_epsilon for *_, laws in tried)
        x, y, _ = max(tried, key=lambda one: one[2].delta(min(largest, _LARGEST_LOSS) / 2))
        return x, y

    def _few_neighbours(self) -> Iterator[tuple[Array, Array]]:
        d, n = len(self.prior), self.n_records
        if math.comb(n + d - 1, d - 1) <= _MOST_TRIED:
            data = _all_counts(n, d)
        else:
            centre = np.full(d, n // d)
            centre[0] += n - centre.sum()
            data = [*(n * np.eye(d, dtype=np.int64)), centre]
        records = min(self.records_of_a_person, n)
        for counts in data:
            for a, b in itertools.permutations(range(d), 2):
                if counts[a] >= records:
                    moved = np.array(counts, dtype=np.float64)
                    moved[a] -= records
                    moved[b] += records
                    yield np.array(counts, dtype=np.float64), moved


def _all_counts(n: int, d: int) -> list[Integers]:
    if d == 1:
        return [np.array([n])]
    return [np.concatenate([[first], rest]) for first in range(n + 1) for rest in _all_counts(n - first, d - 1)]
