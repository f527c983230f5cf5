"""What P4's mechanisms share: they release a whole posterior, chosen among finitely many."""

import abc
import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import accumulate
from typing import ClassVar, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import MAX_RECORDS, checked_counts, integer, positive_array, within
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.noisy_counts import ReleasedCounts
from pymc_dirdp.mechanisms.outputs import RowLikelihood
from pymc_dirdp.mechanisms.table import neighbouring_tables
from pymc_dirdp.papers.hellinger_distributions import all_counts, hellinger_distance, number_of_tables
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.privacy.people import Contribution, adjacency_by_name
from pymc_dirdp.sampling.bits import Bits, Seed, generator

# One of finitely many outcomes, drawn in integers from probabilities that are doubles.


def whole_weights(probabilities: Array) -> list[int]:
    """Probabilities as whole weights, each at least `2**50`.

    The floor is the same whatever the secret is, so the distribution that is drawn from is a mixture: it is that of the
    weights with probability about `1 - size * 2**-50`, and uniform otherwise. Mixing two distributions with the same
    third one never increases a divergence between them, and an outcome that is possible for one data set is so for all.
    What is rounded down is below 1, that is `2**-50` of any weight, so it moves a loss by less than 1e-15.

    Parameters
    ----------
    probabilities : array, shape (size,)
        At least 0. They need not add up to 1 exactly.
    """
    # A probability p becomes the weight p 2**100 + 2**50, rounded down.
    floor = 1 << 50
    return [int(p) + floor for p in np.ldexp(probabilities, 100).tolist()]


def drawn_from(probabilities: Array, bits: Bits) -> int:
    """The index of an outcome, with probability proportional to its whole weight exactly."""
    cumulative = list(accumulate(whole_weights(probabilities)))
    return bisect_right(cumulative, bits.uniform(cumulative[-1]))


# What mechanisms share that release the parameters of a whole posterior: counts of the public number of records.


@dataclass(frozen=True, eq=False)
class WholePosterior(ReleasedCounts):
    """Release `Dirichlet(prior + z)`: the counts z are integers between 0 and `n_records`.

    Neighbours differ by one record that moves from one cell to another; the number of records is public.

    A subclass is a frozen dataclass with fields of its own, which says its curves and the distribution of its output.

    Parameters
    ----------
    prior : array_like, shape (d,)
        The model's own prior, positive; `d = 2` is the Beta-binomial model.
    n_records : int
        Number of records, public, at least 1.
    adjacency : {"replace-one"}
        Nothing else leaves the number of records public.
    contribution : int or Contribution, default 1
        How many records one person holds at most.
    """

    needs_public_totals: ClassVar[bool] = True

    prior: Array
    n_records: int
    _: KW_ONLY
    adjacency: str = "replace-one"
    contribution: Contribution | int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", positive_array(prior=self.prior))
        if self.prior.ndim != 1:
            raise ArgumentError(
                f"Expected prior to be one row, shape (d,), got shape {self.prior.shape}: the number of records of "
                "each row of a larger table is not public. Use GeometricMechanism or DirichletMechanism there."
            )
        object.__setattr__(self, "n_records", integer(1, n_records=self.n_records))
        within(1, MAX_RECORDS, n_records=self.n_records)
        if not adjacency_by_name(self.adjacency).records_are_public:
            raise ArgumentError(
                f"Under adjacency={self.adjacency!r} the number of records is private, and {type(self).__name__} "
                "publishes it. Use GeometricMechanism, or adjacency='replace-one'."
            )
        object.__setattr__(self, "contribution", Contribution.of(self.contribution).fitted(self.prior.shape))

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return tuple(self.prior.shape)

    @abc.abstractmethod
    def _distribution(self, counts: Integers) -> tuple[Integers, Array]:
        """All that can be released, and with which probability."""

    def distribution(self, counts: ArrayLike) -> tuple[Integers, Array]:
        """All that can be released, and with which probability. It tells the counts, so it is the curator's.

        Parameters
        ----------
        counts : array_like of integers, shape (d,)
            The secret, or counts that are assumed for planning.

        Returns
        -------
        outcomes : array of int, shape (m, d)
        probabilities : array, shape (m,)
        """
        return self._distribution(self.check(counts))

    def expected_distance(self, counts: ArrayLike) -> float:
        """Expected Hellinger distance of the released posterior from the true one, summed exactly.

        Parameters
        ----------
        counts : array_like of integers, shape (d,)
            Counts that are assumed for planning; for the secret ones the result is confidential.
        """
        outcomes, probabilities = self.distribution(counts)
        return float(probabilities @ hellinger_distance(self.check(counts) + self.prior, outcomes + self.prior))

    @override
    def _released(self, counts: Integers, source: np.random.Generator | Bits) -> Integers:
        outcomes, probabilities = self._distribution(counts)
        if isinstance(source, Bits):
            place = drawn_from(probabilities, source)
        else:
            place = source.choice(len(outcomes), p=probabilities / probabilities.sum())
        chosen: Integers = outcomes[place]
        return chosen

    @override
    def check(self, counts: ArrayLike) -> Integers:
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
    def public_records(self, n_records: int | None) -> int:
        if n_records not in (None, self.n_records):
            raise ArgumentError(f"The mechanism is for n_records={self.n_records}, got another number. Leave it out.")
        return self.n_records

    @override
    def published_totals(self, output: Array) -> list[tuple[NDArray[np.intp], float]]:
        return [(np.zeros(1, dtype=np.intp), float(output.sum()))]

    @override
    def likelihoods_of_rows(
        self, output: Array, *, n_records: int | None, sampler: str, steps: int | None = None
    ) -> list[RowLikelihood]:
        # Whatever drew it, an output consists of integers, and that is looked at.
        return self.row_likelihoods(output)

    @override
    def is_on_grid(self, output: Array, steps: int | None) -> bool:
        return self._holds_counts(output)

    def _holds_counts(self, output: Array) -> bool:
        return bool(np.all((output == np.floor(output)) & (output >= 0) & (output <= self.n_records)))

    def _released_table(self, output: Array) -> Integers:
        """One output as whole counts, or an error if it holds anything else."""
        if output.size != self.prior.size:
            raise ArgumentError(f"Expected an output of {self.prior.size} counts, got {output.size} numbers.")
        if not self._holds_counts(output):
            raise ArgumentError(
                f"Expected integers from 0 to {self.n_records}, as release() returns them, and not draws from the "
                "released posterior."
            )
        return output.astype(np.int64).reshape(self.prior.shape)

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        """One data set and any number of outputs are allowed: all outcomes are listed."""
        outcomes, probabilities = self.distribution(counts)
        known: dict[tuple[int, ...], float] = {}
        for outcome, probability in zip(map(tuple, outcomes.tolist()), probabilities.tolist(), strict=True):
            # The distribution may list an outcome more than once.
            known[outcome] = known.get(outcome, 0.0) + probability
        outputs = np.asarray(output, dtype=np.int64)
        listed = [known.get(tuple(row), 0.0) for row in outputs.reshape(-1, outputs.shape[-1]).tolist()]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.array(listed).reshape(outputs.shape[:-1])))

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        # What claims to be a mechanism may have output that no machine integer holds.
        return super().log_likelihood_ratio(np.clip(outputs, -1, self.n_records + 1), x, y)

    @override
    def output_distributions(self, x: Array, y: Array, cells: int | None = None) -> FiniteDistributions:
        outcomes = np.unique(np.concatenate([self.distribution(counts)[0] for counts in (x, y)]), axis=0)
        return FiniteDistributions(self.log_likelihood(outcomes, x), self.log_likelihood(outcomes, y))

    @override
    def worst_neighbours(self) -> tuple[Array, Array]:
        """The neighbours that are furthest apart at half of the largest loss seen on any."""
        tried = [(x, y, self.output_distributions(x, y)) for x, y in self._few_neighbours()]
        largest = max(distributions.pure_epsilon for *_, distributions in tried)
        # The exponential of the loss has to be a double.
        x, y, _ = max(tried, key=lambda candidate: candidate[2].delta(min(largest, 600.0) / 2))
        return x, y

    def _few_neighbours(self) -> Iterator[tuple[Array, Array]]:
        d, n = len(self.prior), self.n_records
        # Up to so many data sets are all tried as neighbours; of more, only the corners and the centre.
        if number_of_tables(n, d) <= 600:
            data = all_counts(n, d)
        else:
            centre = np.full(d, n // d)
            centre[0] += n - centre.sum()
            data = np.vstack([n * np.eye(d, dtype=np.int64), centre])
        records = min(self.contributed.records, n)
        for counts in data.astype(np.float64):
            for a, b in itertools.permutations(range(d), 2):
                if counts[a] >= records:
                    yield neighbouring_tables(counts - records * np.eye(d)[a], [(a, b)], records, self.adjacency)
