"""The base class of P4's mechanisms, which choose a whole posterior from finitely many."""

import abc
import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import accumulate
from typing import ClassVar, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import MAX_RECORDS, integer, positive_array, within
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.literals import AdjacencyName, Sampler
from pymc_dirdp.mechanisms.noisy_counts import ReleasedCounts
from pymc_dirdp.mechanisms.outputs import RowLikelihood
from pymc_dirdp.mechanisms.table import neighbouring_tables
from pymc_dirdp.papers.hellinger_distributions import all_counts, hellinger_distance, number_of_tables
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.privacy.people import Contribution, adjacency_by_name
from pymc_dirdp.sampling.bits import Bits, Seed, generator
from pymc_dirdp.sampling.drawing import Drawing, Once

# An exact draw of one of finitely many outcomes, with probabilities that are doubles.


def integer_weights(probabilities: Array) -> list[int]:
    """Probabilities as integer weights of at least `2**50`.

    The floor does not depend on the secret. So the outcome is drawn from a mixture, with these probabilities with
    probability about `1 - size * 2**-50`, and uniformly otherwise. A mixture with a common third distribution never
    increases a divergence, and every outcome is possible for all data sets. Rounding down changes a weight by less than
    `2**-50` of it, and a loss by less than 1e-15.

    Parameters
    ----------
    probabilities : array, shape (size,)
        Non-negative. The sum may differ from 1.
    """
    # The weight of a probability p is p 2**100 + 2**50, rounded down.
    floor = 1 << 50
    return [int(p) + floor for p in np.ldexp(probabilities, 100).tolist()]


def drawn_from(probabilities: Array, bits: Bits) -> int:
    """The index of an outcome, with probability exactly proportional to its integer weight."""
    cumulative = list(accumulate(integer_weights(probabilities)))
    return bisect_right(cumulative, bits.uniform(cumulative[-1]))


# Mechanisms that release counts as the parameters of a whole posterior.


@dataclass(frozen=True, eq=False)
class WholePosterior(ReleasedCounts):
    """Release `Dirichlet(prior + z)`, where the counts z are integers between 0 and `n_records`.

    Neighbours differ by one record that changes its cell. The number of records is public.

    A subclass is a frozen dataclass that defines the curves and the distribution of the output.

    Parameters
    ----------
    prior : array_like, shape (d,)
        The prior of the model, positive; `d = 2` is the Beta-binomial model.
    n_records : int
        The public number of records, at least 1.
    adjacency : {"replace-one"}
        The number of records is public, so there is no other choice.
    contribution : int or Contribution, default 1
        The maximum number of records of one person.
    """

    needs_public_totals: ClassVar[bool] = True

    prior: Array
    n_records: int
    _: KW_ONLY
    adjacency: AdjacencyName = "replace-one"
    contribution: Contribution | int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", positive_array(prior=self.prior))
        if self.prior.ndim != 1:
            raise ArgumentError(
                f"Expected prior to be one row, shape (d,), got shape {self.prior.shape}. The numbers of records of "
                "rows are not public. Use GeometricMechanism or DirichletMechanism for a table of several rows."
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
        """All possible outputs, and their probabilities."""

    def distribution(self, counts: ArrayLike) -> tuple[Integers, Array]:
        """All possible outputs, and their probabilities. They reveal the counts, so they are confidential.

        Parameters
        ----------
        counts : array_like of integers, shape (d,)
            The secret, or assumed counts for planning.

        Returns
        -------
        outcomes : array of int, shape (m, d)
        probabilities : array, shape (m,)
        """
        return self._distribution(self.check(counts))

    def expected_distance(self, counts: ArrayLike) -> float:
        """The exact expected Hellinger distance of the released posterior from the true one.

        Parameters
        ----------
        counts : array_like of integers, shape (d,)
            Assumed counts for planning. With the secret counts the result is confidential.
        """
        outcomes, probabilities = self.distribution(counts)
        return float(probabilities @ hellinger_distance(self.check(counts) + self.prior, outcomes + self.prior))

    def released(self, counts: Integers, source: np.random.Generator | Bits) -> Integers:
        """The release of checked counts: in floating point from a generator, or exact from bits."""
        outcomes, probabilities = self._distribution(counts)
        if isinstance(source, Bits):
            place = drawn_from(probabilities, source)
        else:
            place = source.choice(len(outcomes), p=probabilities / probabilities.sum())
        chosen: Integers = outcomes[place]
        return chosen

    @override
    def release(self, counts: ArrayLike, *, sampler: Sampler = "exact", random_seed: Seed = None) -> Integers:
        return self.released(self.check(counts), self._source(sampler, random_seed))

    @override
    def prepare(
        self, released_draws: int, *, sampler: Sampler, random_seed: Seed = None, n_records: int | None = None
    ) -> "PosteriorDrawing":
        return PosteriorDrawing(self.shape, 0.0, self.n_records, self, Once(self._source(sampler, random_seed)))

    @override
    def check(self, counts: ArrayLike) -> Integers:  # type: ignore[override]  # Doubles would do, too.
        return super().check(counts).astype(np.int64)

    @property
    @override
    def assumed_records(self) -> int:
        return self.n_records

    @override
    def releases(
        self, counts: Array, n: int, *, sampler: Sampler = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        rng = generator(random_seed)
        return np.array([self.release(counts, sampler=sampler, random_seed=rng) for _ in range(n)], dtype=np.float64)

    @override
    def posterior_parameters(self, counts: Integers, rng: np.random.Generator) -> Array:
        parameters: Array = np.array([self.release(table, random_seed=rng) for table in counts]) + self.prior
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
        self, output: Array, *, n_records: int | None, sampler: Sampler, steps: int | None = None
    ) -> list[RowLikelihood]:
        # Outputs of both samplers are integers, which is checked here.
        return self.row_likelihoods(output)

    @override
    def is_on_grid(self, output: Array, steps: int | None) -> bool:
        return self._holds_counts(output)

    def _holds_counts(self, output: Array) -> bool:
        return bool(np.all((output == np.floor(output)) & (output >= 0) & (output <= self.n_records)))

    def _released_table(self, output: Array) -> Integers:
        """One output as integer counts, or an error if it has other numbers."""
        if output.size != self.prior.size:
            raise ArgumentError(f"Expected an output of {self.prior.size} counts, got {output.size} numbers.")
        if not self._holds_counts(output):
            raise ArgumentError(
                f"Expected integers from 0 to {self.n_records}, as from release(), and not draws from the released "
                "posterior."
            )
        return output.astype(np.int64).reshape(self.prior.shape)

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        """The logarithm of the probability of any number of outputs, for one data set."""
        outcomes, probabilities = self.distribution(counts)
        known: dict[tuple[int, ...], float] = {}
        for outcome, probability in zip(map(tuple, outcomes.tolist()), probabilities.tolist(), strict=True):
            # The distribution may list an outcome several times.
            known[outcome] = known.get(outcome, 0.0) + probability
        outputs = np.asarray(output, dtype=np.int64)
        listed = [known.get(tuple(row), 0.0) for row in outputs.reshape(-1, outputs.shape[-1]).tolist()]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.array(listed).reshape(outputs.shape[:-1])))

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        # An audited program may return numbers outside the range of machine integers.
        return super().log_likelihood_ratio(np.clip(outputs, -1, self.n_records + 1), x, y)

    @override
    def output_distributions(self, x: Array, y: Array, cells: int | None = None) -> FiniteDistributions:
        outcomes = np.unique(np.concatenate([self.distribution(counts)[0] for counts in (x, y)]), axis=0)
        return FiniteDistributions(self.log_likelihood(outcomes, x), self.log_likelihood(outcomes, y))

    @override
    def worst_neighbours(self) -> tuple[Array, Array]:
        """The neighbours with the largest delta at half of the largest loss of any neighbours."""
        candidates = [(x, y, self.output_distributions(x, y)) for x, y in self._few_neighbours()]
        largest = max(distributions.pure_epsilon for *_, distributions in candidates)
        # The exponential of the loss must not overflow.
        x, y, _ = max(candidates, key=lambda candidate: candidate[2].delta(min(largest, 600.0) / 2))
        return x, y

    def _few_neighbours(self) -> Iterator[tuple[Array, Array]]:
        d, n = len(self.prior), self.n_records
        # All data sets if there are few; otherwise only the corners and the centre.
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


@final
@dataclass(frozen=True, eq=False, repr=False)
class PosteriorDrawing(Drawing):
    """The prepared choice of a posterior.

    Attributes
    ----------
    mechanism : WholePosterior
    source : Once
        Bits, or a generator.
    """

    mechanism: WholePosterior
    source: Once[Bits | np.random.Generator]

    @override
    def _drawn(self, counts: Array) -> list[Array]:
        return [np.asarray(self.mechanism.released(counts.astype(np.int64), self.source.take()), dtype=np.float64)]
