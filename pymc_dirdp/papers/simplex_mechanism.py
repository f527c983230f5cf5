"""P3's mechanism, which releases a private copy of a vector of shares."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Self, final, override

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, numbers_or_none, open_unit_interval, positive
from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError, type_name
from pymc_dirdp.literals import Sampler
from pymc_dirdp.mechanisms.dirichlet import DirichletDraws
from pymc_dirdp.mechanisms.outputs import RowLikelihood
from pymc_dirdp.numerics.roots import largest_satisfying, log_ratio_to_budget, product_above, round_down, round_up
from pymc_dirdp.privacy.curves import LossCurves
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.unit import MAX_PARAMETER, MIN_PARAMETER
from pymc_dirdp.sampling.bits import Bits, Seed
from pymc_dirdp.sampling.exact import fewest_steps, over_one_power, positive_frequencies, urn
from pymc_dirdp.sampling.fast import fast_dirichlet

# The domain of P3's simplex mechanism.


@final
@dataclass(frozen=True)
class SimplexDomain:
    """Vectors of the unit simplex with floors, and a neighbouring relation on them.

    Two vectors are neighbours if they differ in two protected entries, by at most `b / 2` in each.

    Parameters
    ----------
    n_protected : int
        The number of protected entries, `|W|`, at least 2.
    eta : float
        The lower bound of every protected entry.
    etabar : float
        The lower bound of the sum of the other entries.
    b : float
        The l1 norm of the change between neighbours, in (0, 1].
    weight : float, default 1.0
        The weight of one person's vector in the query: 1 for an identity query, `1 / N` for an average, the largest
        `|l_j|` for a linear query.

    References
    ----------
    P3 Definitions 1 and 3, Assumption 1, with ERRATA P3.6 and P3.7.

    Examples
    --------
    >>> SimplexDomain(2, eta=0.1, etabar=0.1, b=0.1).n_protected
    2
    """

    n_protected: int
    _: KW_ONLY
    eta: float
    etabar: float
    b: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_protected", integer(2, n_protected=self.n_protected))
        for name in ("eta", "etabar"):
            object.__setattr__(self, name, open_unit_interval(**{name: getattr(self, name)}))
        object.__setattr__(self, "b", positive(b=self.b))
        object.__setattr__(self, "weight", positive(weight=self.weight))
        if self.b > 1 or self.weight > 1:
            raise ArgumentError(f"Expected b and weight to be at most 1, got b={self.b:g}, weight={self.weight:g}.")
        if self.span <= 2 * self.eta:
            raise ArgumentError(
                f"The domain has at most one vector: {self.n_protected} entries of at least eta={self.eta:g} and the "
                f"rest of at least etabar={self.etabar:g} leave no room for a change. Lower eta or etabar."
            )

    @property
    def span(self) -> float:
        """`C = 1 - etabar - (m - 2) eta`, the largest sum of two protected entries."""
        return 1 - self.etabar - (self.n_protected - 2) * self.eta

    @property
    def largest_step(self) -> float:
        """The maximum change of an entry of the query by one person: `weight * min(b / 2, C - 2 eta)`, rounded up.

        It is computed with fractions, because the difference cancels for a small domain. The check of an input uses a
        sum of doubles, whose rounding error is added.
        """
        m = self.n_protected
        room = 1 - Fraction(self.etabar) - m * Fraction(self.eta) + m * Fraction(1, 2**52)
        return round_up(Fraction(self.weight) * min(Fraction(self.b) / 2, room))


# The simplex mechanism of P3: a Dirichlet draw around a vector of probabilities.


@final
@dataclass(frozen=True, eq=False)
class SimplexMechanism(DirichletDraws):
    """Release `x ~ Dirichlet(k p)` for a secret vector of probabilities `p`.

    The curves are exact. A step `t` between two protected entries is a record of weight `k t` that changes between two
    cells with prior `k eta`, so the dominating pair of the Dirichlet mechanism applies. P3's statement has a larger
    epsilon, also with its corrections, see :func:`pymc_dirdp.papers.p3_theorem_1_corrected`.

    Parameters
    ----------
    k : float
        Concentration, positive.
    domain : SimplexDomain
        Floors of the input, the neighbouring relation, and the weight of one person. They are public and hold for all
        possible inputs.

    References
    ----------
    P3; Theory, section 6 and 12.

    Examples
    --------
    >>> domain = SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4)
    >>> SimplexMechanism(24, domain).epsilon(0.05)
    19.13...
    """

    k: float
    domain: SimplexDomain

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", positive(k=self.k))
        if not isinstance(self.domain, SimplexDomain):
            raise ArgumentError(f"Expected domain to be a SimplexDomain, got {type_name(self.domain)}.")
        for parameter in (self.k * self.domain.eta, self.k * self.domain.largest_step):
            if not MIN_PARAMETER <= parameter <= MAX_PARAMETER:
                raise ArgumentError("Expected k times eta and k times the largest step between 1e-100 and 1e100.")

    @classmethod
    def for_guarantee(cls, guarantee: Guarantee, domain: SimplexDomain) -> Self:
        """The mechanism with the largest concentration, hence the least noise, that satisfies `guarantee`.

        No draw satisfies `PureDP`, `ZeroCDP` or `omega=inf`.

        Raises
        ------
        UnattainableError
            If no concentration satisfies it, because even a draw with the least concentration distinguishes steps of
            this size. Raise the floors, or reduce the weight of one person.
        """
        if math.isinf(Guarantee.checked(guarantee=guarantee).largest_order):
            raise UnattainableError(
                f"No continuous Dirichlet draw satisfies {guarantee}: its loss is unbounded. Ask for ApproxDP, RenyiDP "
                "or TruncatedCDP with a finite omega."
            )

        def excess(k: float) -> float:
            return log_ratio_to_budget(*cls(k, domain).loss(guarantee))

        # With larger concentrations a draw is more precise than an input in double precision.
        k = largest_satisfying(
            excess,
            least=1 / 1e12,
            most=1e12,
            tight=f"No concentration satisfies {guarantee}: even a draw with the least concentration distinguishes a "
            f"step of {domain.largest_step:g} from a floor of eta={domain.eta:g}. Raise eta, or lower b or the weight.",
            loose="The guarantee is so loose that every concentration satisfies it.",
        )
        return cls(k, domain)

    @cached_property
    @override
    def _curves(self) -> LossCurves:
        floor = round_down(Fraction(self.k) * Fraction(self.domain.eta))
        return DominatingPair(floor, floor, product_above(self.k, self.domain.largest_step))

    def sample(
        self,
        p: ArrayLike,
        *,
        protected: Sequence[int],
        released_draws: int = 1,
        sampler: Sampler = "exact",
        steps: int | None = None,
        random_seed: Seed = None,
    ) -> Array:
        """Independent draws. The curves of this object are for **one** of them.

        Parameters
        ----------
        p : array_like, shape (n,)
            The secret, which is positive and adds up to 1 up to rounding. For an average or a linear query, the value
            of the query.
        protected : sequence of int
            Positions of the protected entries; public.
        released_draws : int, default 1
            Number of draws, at least 1.
        sampler : {"exact", "fast"}, default "exact"
            `"exact"` draws integers from a Pólya urn with bits of the operating system. The weights are `k p` as exact
            rational numbers, and the output is positive and on a public grid. `"fast"` draws in floating point. Its
            distribution is close to that of the curves; there is no proved bound of the difference.
        steps : int, optional
            Public number of steps of the urn, for `"exact"`. By default the grid adds 1 % to the variance of a draw,
            with at most 10,000,000 steps.
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.

        Returns
        -------
        x : array, shape (released_draws, n)
        """
        vector, draws = self._checked(p, protected), integer(1, released_draws=released_draws)
        steps = self.checked_steps(steps, self.checked_sampler(sampler))
        source = self._source(sampler, random_seed)
        if not isinstance(source, Bits):
            return fast_dirichlet(self._parameters(vector), draws, source)
        if steps is None:
            steps = self._default_steps(len(vector))
        (k,), digits_of_k = over_one_power([self.k])
        weights, digits = over_one_power(vector.tolist())
        counts = urn([[k * weight for weight in weights]], digits_of_k + digits, steps=steps, draws=draws, bits=source)
        return positive_frequencies(counts[:, 0], steps)

    def _default_steps(self, n: int) -> int:
        # More steps of the urn would take minutes.
        return min(max(math.ceil(100 * self.k), fewest_steps(n)), 10_000_000)

    @override
    def likelihoods_of_rows(
        self, output: Array, *, n_records: int | None, sampler: Sampler, steps: int | None = None
    ) -> list[RowLikelihood]:
        """The likelihood of counts whose vector of probabilities was counts over `n_records`, without zeros."""
        n = integer(len(output), n_records=n_records)
        if sampler == "exact" and steps is None:
            steps = self._default_steps(len(output))
        draw = self._row_likelihood(np.zeros(len(output)), self.k / n, output, steps)

        def cell_loglik(counts: Array, cells: Integers) -> Array:
            logs = draw.cell_loglik(np.maximum(counts, 1.0), cells)
            return np.where(np.asarray(counts) >= 1, logs, -np.inf)

        return [RowLikelihood(cell_loglik, draw.total_loglik, smooth=True)]

    @override
    def concentration(self, counts: ArrayLike) -> Array:
        """The parameters `k * p` for a vector of probabilities instead of counts. **Secret** if `p` is."""
        return self._parameters(np.asarray(counts, dtype=np.float64))

    @override
    def _parameters(self, secret: Array) -> Array:
        return self.k * secret

    def variance(self, p: float) -> float:
        """The variance of an entry of the output with the input `p`, which is its mean (P3 Proposition 1)."""
        return open_unit_interval(p=p) * (1 - p) / (self.k + 1)

    @staticmethod
    def concentration_for_accuracy(mu: float, theta: float, n: int) -> float:
        """The `k` with which all `n` entries are within `mu` of the input with probability at least `1 - theta`.

        It is `log(2 n / theta) / (2 mu**2) - 1`. P3's Theorem 4 lacks the factor `2 n` (ERRATA P3.4).
        """
        return (
            math.log(2 * integer(2, n=n) / open_unit_interval(theta=theta)) / (2 * open_unit_interval(mu=mu) ** 2) - 1
        )

    def _checked(self, p: ArrayLike, protected: Sequence[int]) -> Array:
        positions = sorted({integer(0, protected=position) for position in protected})
        if len(positions) != self.domain.n_protected:
            raise ArgumentError(f"Expected {self.domain.n_protected} protected positions, got {len(positions)}.")
        vector = numbers_or_none(p)
        if vector is None:
            raise DataError("Expected p to be a vector of probabilities.")
        if vector.ndim != 1 or vector.size <= positions[-1] or vector.size == len(positions):
            raise ArgumentError(f"Expected p to be a vector with the positions {positions} and others.")
        # The curves are for neighbours that lose in one entry as much as they gain in another. Sums that differ from 1
        # by more than rounding would hide a difference between the two, times k.
        if not np.all(np.isfinite(vector)) or np.any(vector <= 0) or _misses_one(vector):
            raise DataError(
                "The entries of p are not positive numbers that add up to 1 up to rounding. Pass p / p.sum()."
            )
        # Without tolerance, because an input below the floor has a larger loss than guaranteed.
        if np.any(vector[positions] < self.domain.eta):
            raise DataError("A protected entry of p is below the guaranteed floor eta.")
        if float(vector[positions].sum()) > 1 - self.domain.etabar:
            raise DataError("The sum of the other entries of p is below the guaranteed floor etabar.")
        return vector

    @property
    @override
    def summary(self) -> str:
        return f"k {self.k:.4g}"

    @override
    def releases(
        self, counts: Array, n: int, *, sampler: Sampler = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        """The protected entries come first, as in :meth:`worst_neighbours`."""
        protected = range(self.domain.n_protected)
        return self.sample(
            counts, protected=protected, released_draws=n, sampler=sampler, random_seed=random_seed, steps=steps
        )

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        """The likelihood of a vector of probabilities instead of counts."""
        return self._log_likelihood_of_rows(self.concentration(counts), output, steps)

    @override
    def stronger(self, factor: float) -> tuple[str, Self]:
        return "the same mechanism with a larger k", replace(self, k=self.k * factor)

    @override
    def worst_neighbours(self) -> tuple[Array, Array]:
        """All protected entries at the floor, except for one step in the first or in the second entry."""
        vectors = []
        for position in (0, 1):
            p = np.full(self.domain.n_protected + 1, self.domain.eta)
            p[position] += self.domain.largest_step
            p[-1] = 1 - p[:-1].sum()
            vectors.append(p)
        return vectors[0], vectors[1]


def _misses_one(vector: Array) -> bool:
    """Whether the sum of the entries differs from 1 by more than rounding of entries divided by their sum."""
    return abs(math.fsum(vector.tolist()) - 1) > (len(vector) + 2) * 2.0**-52
