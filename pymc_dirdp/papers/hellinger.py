"""P4's exponential mechanisms, which release a posterior with a small Hellinger distance from the true one."""

import functools
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self, final, override

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import one_of, positive
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.mechanisms.outputs import RowLikelihood
from pymc_dirdp.numerics.roots import largest_satisfying, log_ratio_to_budget
from pymc_dirdp.papers.hellinger_distributions import HellingerDistributions
from pymc_dirdp.papers.posterior_mechanism import WholePosterior
from pymc_dirdp.privacy.bounded_loss import RandomisedResponse
from pymc_dirdp.privacy.curves import LossCurves, rho_from_above
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.fast import dirichlet


@final
@dataclass(frozen=True, eq=False)
class HellingerMechanism(WholePosterior):
    """Release the posterior r with probability proportional to `exp(-exponent * H(post(x), r) / S(x))`.

    H is the Hellinger distance, S its sensitivity, and r is any posterior of a data set of `n_records` records.

    Parameters
    ----------
    prior, n_records
        As for every :class:`~pymc_dirdp.papers.posterior_mechanism.WholePosterior`: the prior of the model, shape (d,),
        and the public number of records.
    exponent : float
        Positive. Calibration solves for it.
    sensitivity : {"smooth", "global"}, default "smooth"
        S is the smooth sensitivity of P4, Definition 3, or the global sensitivity of section 4.2.1.
    smoothness : float, default 1
        P4's gamma, the maximum change of `1 / S` between neighbours. It has no effect for the global sensitivity.
    accounting : {"exact", "pure", "proved"}, default "exact"
        `"exact"` computes the curves by comparing all neighbours on all outputs, for at most 16,000 candidates.
        `"pure"` computes only the largest loss in this way, and uses the curves of randomised response at it. The pure
        epsilon is exact, and all else is a fast upper bound. Plans use it.
        `"proved"` uses P4's proof of pure differential privacy with `2 (1 + gamma) exponent` (without gamma for the
        global sensitivity), and the curves of randomised response at it, which bound those of any mechanism.
    adjacency : {"replace-one"}
        The number of records is public, so there is no other choice.
    contribution : {1}
        The accounting is for one record per person.

    Notes
    -----
    P4's Definition 4 is `exponent = epsilon / 4, smoothness = 1`. It uses a third to a half of its budget (ERRATA
    P4.2); `for_guarantee` with the exact accounting uses all of it.

    The exact sampler uses integers, and every output is possible for all data sets. Its probabilities and the curves
    are computed in floating point, so losses have an error of about 1e-12.

    References
    ----------
    P4, Definitions 3 and 4; ERRATA P4.1 to P4.3; Theory, section 13.

    Examples
    --------
    >>> from pymc_dirdp import PureDP
    >>> printed = HellingerMechanism([1, 1], 300, 0.25)
    >>> printed.pure_epsilon
    0.42...
    >>> whole = HellingerMechanism.for_guarantee(PureDP(epsilon=1), prior=[1, 1], n_records=300, smoothness=0.3)
    >>> printed.expected_distance([150, 150]) / whole.expected_distance([150, 150])
    6.08...
    """

    publishes: ClassVar[str] = "released_counts"

    exponent: float
    _: KW_ONLY
    sensitivity: str = "smooth"
    smoothness: float = 1.0
    accounting: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(("smooth", "global"), sensitivity=self.sensitivity)
        one_of(("exact", "pure", "proved"), accounting=self.accounting)
        object.__setattr__(self, "exponent", positive(exponent=self.exponent))
        object.__setattr__(self, "smoothness", positive(smoothness=self.smoothness))
        if self.contributed.records > 1:
            raise ArgumentError(
                f"HellingerMechanism accounts for one record of a person, got contribution="
                f"{self.contributed.records}. Use TruncatedNoiseMechanism."
            )

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        *,
        prior: ArrayLike,
        n_records: int | None = None,
        adjacency: AdjacencyName = "replace-one",
        contribution: Contribution | int = 1,
        sensitivity: str = "smooth",
        smoothness: float | None = None,
        accounting: str = "exact",
    ) -> Self:
        """The mechanism with the largest exponent that satisfies `guarantee`.

        Parameters
        ----------
        guarantee : Guarantee
            The target, of any kind.
        prior, n_records, adjacency, contribution, sensitivity, accounting
            As for the mechanism itself.
        smoothness : float or None
            P4's gamma. None chooses the gamma with the least expected distance for data sets from the prior predictive
            distribution. With more than 1,200 candidates it uses the proved accounting for this choice, to save time.

        Returns
        -------
        mechanism : HellingerMechanism
            `mechanism.satisfies(guarantee)` is True.

        Raises
        ------
        UnattainableError
            If there are too many candidates to compare, or to list.
        """
        facts: dict[str, Any] = {
            "prior": prior,
            "n_records": n_records,
            "adjacency": adjacency,
            "contribution": contribution,
            "sensitivity": sensitivity,
        }

        def mechanism(exponent: float, gamma: float, by: str) -> Self:
            return cls(**facts, exponent=exponent, smoothness=gamma, accounting=by)

        def calibrated(gamma: float, by: str) -> Self:
            def largest(by: str) -> float:
                return largest_satisfying(lambda x: log_ratio_to_budget(*mechanism(x, gamma, by).loss(guarantee)))

            if by == "pure" or (by == "exact" and Guarantee.checked(guarantee=guarantee).is_pure):
                start = largest("proved")
                distributions = mechanism(start, gamma, by)._distributions
                return mechanism(distributions.largest_exponent(_largest_loss(guarantee), start=start), gamma, by)
            return mechanism(largest(by), gamma, by)

        if smoothness is None and sensitivity == "smooth":
            first = mechanism(1.0, 1.0, accounting)
            # The choice takes a few seconds at most.
            by = accounting if first._distributions.candidates.size <= 1_200 else "proved"
            data = _predicted_data(first.prior, first.n_records)
            smoothness = _best_smoothness(lambda gamma: _mean_distance(calibrated(gamma, by), data))
        return calibrated(1.0 if smoothness is None else smoothness, accounting)

    @property
    def proved_epsilon(self) -> float:
        """P4's bound on the loss, from the proof of its Lemma 5.1 for any gamma."""
        return 2 * self.exponent * (1 + self.smoothness if self.sensitivity == "smooth" else 1.0)

    @property
    def candidates(self) -> Integers:
        """Counts of all possible outputs, in lexicographic order. Shape (size, d)."""
        return self._distributions.candidates.counts

    @property
    def _distributions(self) -> HellingerDistributions:
        return _distributions(tuple(self.prior.tolist()), self.n_records, self.sensitivity, self.smoothness)

    @property
    @override
    def _curves(self) -> LossCurves:
        if self.accounting == "proved":
            return RandomisedResponse(self.proved_epsilon)
        exact = _OfAllNeighbours(self._distributions, self.exponent)
        return RandomisedResponse(exact.pure_epsilon) if self.accounting == "pure" else exact

    @property
    @override
    def _public(self) -> tuple[object, ...]:
        # The smoothness has no effect for the global sensitivity.
        kind = self.sensitivity, self.smoothness if self.sensitivity == "smooth" else None
        return type(self), tuple(self.prior.tolist()), self.n_records, self.exponent, kind, self.accounting

    @property
    @override
    def summary(self) -> str:
        gamma = f", gamma {self.smoothness:.4g}" if self.sensitivity == "smooth" else ""
        return f"Hellinger mechanism of exponent {self.exponent:.4g}{gamma}, {self.accounting}"

    @override
    def refuse_inference(self) -> None:
        # Only with two cells is the likelihood of an output a product over cells.
        if len(self.prior) > 2:
            raise ArgumentError(
                "The likelihood of a HellingerMechanism with more than two categories is not a product over cells, so "
                "inference is not available. Release with TruncatedNoiseMechanism or GeometricMechanism; or weight "
                "each possible data set by its prior times exp(mechanism.log_likelihood(output, counts)) yourself."
            )

    @override
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> list[RowLikelihood]:
        self.refuse_inference()
        released = self._released_table(output)
        if released.sum() != self.n_records:
            raise ArgumentError(f"Expected an output that adds up to n_records={self.n_records}.")
        # Candidates are sorted by their first count.
        place = int(released[0])
        distributions, data = self._distributions, range(self.n_records + 1)
        of_first = np.array([distributions.log_distribution_at(first, self.exponent)[place] for first in data])

        def cell_loglik(counts: Array, cells: Integers) -> Array:
            # The first count determines the second.
            return np.where(cells == 0, of_first[np.asarray(counts, dtype=np.int64)], 0.0)

        return [RowLikelihood(cell_loglik, np.zeros_like, smooth=False)]

    @override
    def _distribution(self, counts: Integers) -> tuple[Integers, Array]:
        return self.candidates, np.exp(self._distributions.log_distribution(counts, self.exponent)[0])


@final
@dataclass(frozen=True)
class _OfAllNeighbours(LossCurves):
    """The curves of the worst neighbours, over all outputs."""

    distributions: HellingerDistributions
    exponent: float

    @property
    @override
    def pure_epsilon(self) -> float:
        return self._renyi(math.inf)

    @override
    def _renyi(self, order: float) -> float:
        return self.distributions.renyi(self.exponent, order)

    @override
    def _rho(self, omega: float) -> float:
        return rho_from_above(self._renyi, omega)

    @override
    def _delta(self, epsilon: float) -> float:
        return self.distributions.delta(self.exponent, epsilon) if epsilon < self.pure_epsilon else 0.0


def _largest_loss(guarantee: Guarantee) -> float:
    """The largest pure epsilon with which randomised response satisfies a guarantee."""
    if guarantee.is_pure:
        return guarantee.budget
    return largest_satisfying(lambda epsilon: log_ratio_to_budget(*RandomisedResponse(epsilon).loss(guarantee)))


@functools.lru_cache(maxsize=8)
def _distributions(
    prior: tuple[float, ...], n_records: int, sensitivity: str, smoothness: float
) -> HellingerDistributions:
    """The distributions, cached because candidates and sensitivities do not depend on the exponent."""
    return HellingerDistributions(np.array(prior), n_records, sensitivity, smoothness)


def _predicted_data(prior: Array, n_records: int) -> Integers:
    """Data sets from the prior predictive distribution. A fixed seed is harmless, because no real data are used."""
    rng = np.random.default_rng(4)
    return np.array([rng.multinomial(n_records, p) for p in dirichlet(prior, 24, rng)])


def _mean_distance(mechanism: HellingerMechanism, data: Integers) -> float:
    distributions = mechanism._distributions
    pairs = (distributions.log_distribution(counts, mechanism.exponent) for counts in data)
    return float(np.mean([np.exp(distribution) @ distances for distribution, distances in pairs]))


def _best_smoothness(distance: Callable[[float], float]) -> float:
    from scipy.optimize import minimize_scalar  # Here, because it takes most of a second to import.

    # The distance has one minimum, and differences of 10 % in gamma are negligible.
    minimum = minimize_scalar(
        lambda log: distance(math.exp(log)),
        bounds=(math.log(1e-3), math.log(10)),
        method="bounded",
        options={"xatol": 0.1},
    )
    return math.exp(minimum.x)
