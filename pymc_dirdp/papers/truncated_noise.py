"""P4's truncated noise on counts."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.mechanisms.geometric import Geometric
from pymc_dirdp.mechanisms.noise import round_scale_up
from pymc_dirdp.mechanisms.outputs import RowLikelihood
from pymc_dirdp.numerics.gamma import expm1_less
from pymc_dirdp.numerics.roots import largest_satisfying, log_ratio_to_budget, raised, round_up
from pymc_dirdp.papers.posterior_mechanism import WholePosterior
from pymc_dirdp.privacy.bounded_loss import RandomisedResponse
from pymc_dirdp.privacy.curves import LossCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import discrete_laplace

# The distribution of a count with integer noise, truncated to the range from 0 to the number of records.


@final
@dataclass(frozen=True)
class TruncatedCell:
    """The distribution of a noisy count truncated at 0 and `most`, which have the probabilities of the tails.

    All functions are elementwise, and smooth curves with few kinks between integer counts.

    Parameters
    ----------
    scale : float
        The scale of the noise, positive.
    floored : bool
        Whether the noise is Laplace noise rounded down; otherwise it is two-sided geometric noise.
    most : int
        The public number of records, at least 1.
    """

    scale: float
    floored: bool
    most: int

    @property
    def _log_side(self) -> float:
        """Minus the logarithm of the probability of non-negative noise."""
        return math.log(2) if self.floored else math.log1p(math.exp(-1 / self.scale))

    def log_pmf(self, released: ArrayLike, counts: ArrayLike) -> Array:
        """The log-probability of an output from 0 to `most`, given the count."""
        z, x = np.asarray(released, dtype=np.float64), np.asarray(counts, dtype=np.float64)
        # Laplace noise rounded down is g or -1 - g with the same probability.
        half = self.floored / 2
        inside = math.log(-math.expm1(-1 / self.scale)) - self._log_side - (np.abs(z - x + half) - half) / self.scale
        below, above = self._log_tail(x - self.floored), self._log_tail(self.most - x)
        return np.where(z == 0, below, np.where(z == self.most, above, inside))

    def log_at_least(self, released: ArrayLike, counts: ArrayLike) -> Array:
        """The log-probability of at least this output, from 1 to `most`, given the count."""
        return self._log_tail(np.asarray(released, dtype=np.float64) - np.asarray(counts, dtype=np.float64))

    def _log_tail(self, noise: Array) -> Array:
        """The log-probability of at least this noise."""
        log_rest = (np.minimum(noise, 0) - 1 + self.floored) / self.scale - self._log_side
        with np.errstate(divide="ignore"):
            return np.where(noise >= 0, -noise / self.scale - self._log_side, np.log1p(-np.exp(log_rest)))


# Noise on all cells except the last, truncated to the range from 0 to n, and the last cell by subtraction.


@final
@dataclass(frozen=True, eq=False)
class TruncatedNoiseMechanism(WholePosterior):
    """Release counts plus integer noise, truncated to the range from 0 to `n_records`, with a last cell by subtraction.

    Parameters
    ----------
    prior, n_records
        As for every :class:`~pymc_dirdp.papers.posterior_mechanism.WholePosterior`: the prior of the model, shape (d,),
        and the public number of records.
    scale : float
        Scale of the noise, positive. It is rounded up to 41 binary digits, and the attribute is the rounded number.
    noise_kind : {"geometric", "laplace"}, default "geometric"
        `"geometric"`: `P[G = g]` proportional to `exp(-|g| / scale)`. `"laplace"`: Laplace noise rounded down (P4).
    total : {"fixed", "printed"}, default "fixed"
        `"fixed"`: each cell is at most the number of records minus the cells before it, so the counts add up to
        `n_records` (P4, section 7.2.2). `"printed"`: as in P4, section 4.1. The total may be larger (ERRATA P4.11).
    adjacency : {"replace-one"}
        The number of records is public, so there is no other choice.
    contribution : int or Contribution, default 1
        The maximum number of records of one person. All of them may change from one cell to another.

    Notes
    -----
    Both kinds of noise are drawn as integers. Laplace noise rounded down is a geometric number g or `-1 - g`, with the
    same probability.

    With several records of one person, the curves are those of randomised response at `contribution / scale`, as for
    :class:`pymc_dirdp.mechanisms.GeometricMechanism`.

    A record changes one noisy cell with two categories, and two noisy cells with more. So pure differential privacy
    needs a scale of `1 / epsilon` or `2 / epsilon`. The curves are those without truncation, which are exact as an
    upper bound over all numbers of records. P4's two mechanisms are :func:`pymc_dirdp.papers.p4_lap_mech` and
    :func:`pymc_dirdp.papers.p4_ilap_mech`.

    References
    ----------
    P4, section 4.1; Ghosh, Roughgarden and Sundararajan (2012), https://doi.org/10.1137/09076828X; Theory, section 13.

    Examples
    --------
    >>> TruncatedNoiseMechanism([1, 1], 15_000, 1.0).expected_distance([7500, 7500])
    0.00491...
    >>> TruncatedNoiseMechanism([1, 1], 15_000, 1.0, noise_kind="laplace").expected_distance([7500, 7500])
    0.00624...
    """

    publishes: ClassVar[str] = "noisy_counts"

    scale: float
    _: KW_ONLY
    noise_kind: str = "geometric"
    total: str = "fixed"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", round_scale_up(self.scale))
        one_of(("geometric", "laplace"), noise_kind=self.noise_kind)
        one_of(("fixed", "printed"), total=self.total)

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        *,
        prior: ArrayLike,
        n_records: int | None = None,
        adjacency: AdjacencyName = "replace-one",
        contribution: Contribution | int = 1,
        noise_kind: str = "geometric",
        total: str = "fixed",
    ) -> Self:
        """The mechanism with the least noise that satisfies `guarantee`. Other arguments as for the mechanism."""
        facts: dict[str, Any] = {
            "prior": prior,
            "n_records": n_records,
            "adjacency": adjacency,
            "contribution": contribution,
            "noise_kind": noise_kind,
            "total": total,
        }

        def mechanism(inverse: float) -> Self:
            return cls(**facts, scale=1 / inverse)

        return mechanism(largest_satisfying(lambda inverse: log_ratio_to_budget(*mechanism(inverse).loss(guarantee))))

    @property
    def _cells(self) -> int:
        """The number of noisy cells that one person changes."""
        return 1 if len(self.prior) == 2 else 2

    @property
    @override
    def _curves(self) -> LossCurves:
        records = self.contributed.records
        cell_loss = records / Fraction(self.scale)
        if self.noise_kind == "geometric" or records > 1:
            return RandomisedResponse(round_up(cell_loss), self._cells, round_up(self._cells * cell_loss))
        return _FlooredLaplace(round_up(cell_loss), self._cells)

    @property
    @override
    def summary(self) -> str:
        return f"Truncated {self.noise_kind} noise of scale {self.scale:.4g}"

    @override
    def stronger(self, factor: float) -> tuple[str, Self] | None:
        # An audit lists the distribution of each alternative only if there are few outcomes.
        if (self.n_records + 1) ** (len(self.prior) - 1) >= 20_000:
            return None
        return "the same mechanism with less noise", replace(self, scale=self.scale / factor)

    @override
    def released(self, counts: Integers, source: np.random.Generator | Bits) -> Integers:
        noise = self._noise((len(counts) - 1,), source)
        # Sums of Python integers, because the noise may be larger than any machine integer.
        noisy = [min(max(count + x, 0), self.n_records) for count, x in zip(counts[:-1].tolist(), noise, strict=True)]
        released: Integers = self._completed(np.array([noisy], dtype=np.int64))[0]
        return released

    def _noise(self, shape: tuple[int, ...], source: np.random.Generator | Bits) -> list[Any]:
        if self.noise_kind == "geometric":
            drawn: list[Any] = Geometric(self.scale).draw(shape, source).tolist()
            return drawn
        if isinstance(source, np.random.Generator):
            floored: list[Any] = np.floor(source.laplace(0.0, self.scale, size=shape)).tolist()
            return floored
        # If x is two-sided geometric, the non-negative one of x and -1 - x is one-sided geometric.
        sizes = [max(x, -1 - x) for x in discrete_laplace(Fraction(self.scale), shape, source).tolist()]
        return [size if source.uniform(2) else -1 - size for size in sizes]

    @override
    def _distribution(self, counts: Integers, *, most_listed: int = 5_000_000) -> tuple[Integers, Array]:
        """All outcomes and their probabilities, for at most `most_listed` outcomes. Releases need no list."""
        cells, n = len(counts) - 1, self.n_records
        if (n + 1) ** cells > most_listed:
            raise UnattainableError(
                f"{n} records in {cells + 1} categories have more than {most_listed} noisy tables to sum over. "
                "Average over releases instead."
            )
        distributions = [np.exp(self._cell.log_pmf(np.arange(n + 1), count)) for count in counts[:-1].tolist()]
        noisy = np.stack(np.meshgrid(*[np.arange(n + 1)] * cells, indexing="ij"), axis=-1).reshape(-1, cells)
        probabilities = np.prod([distribution[noisy[:, i]] for i, distribution in enumerate(distributions)], axis=0)
        return self._completed(noisy), probabilities

    @property
    def _cell(self) -> TruncatedCell:
        """The distribution of every cell except the last, before the total is fixed."""
        return TruncatedCell(self.scale, self.noise_kind == "laplace", self.n_records)

    @override
    def is_on_grid(self, output: Array, steps: int | None) -> bool:
        return super().is_on_grid(output, steps) and self._is_completed(output.reshape(self.prior.shape))

    @override
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> list[RowLikelihood]:
        released = self._released_table(output)
        full, places = self._full(released), np.arange(len(released))

        def cell_loglik(counts: Array, cells: Integers) -> Array:
            return self._log_factors(counts, released[cells], places[cells], full)

        return [RowLikelihood(cell_loglik, np.zeros_like, smooth=True)]

    def _full(self, released: Integers) -> Integers:
        """The index of the first cell at which the total is reached; that of the last cell if there is none before."""
        before = released[..., :-1]
        at_total = np.cumsum(before, axis=-1) >= (self.n_records if self.total == "fixed" else np.inf)
        return np.where(at_total.any(axis=-1), at_total.argmax(axis=-1), before.shape[-1])

    def _log_factors(self, counts: Array, z: Integers, places: Integers, full: Integers) -> Array:
        """The factors of cells. Cells after a full cell, and the last cell, do not depend on the noise."""
        known = np.where(places < full, self._cell.log_pmf(z, counts), 0.0)
        cut = (places == full) & (full < len(self.prior) - 1)
        return np.where(cut, self._cell.log_at_least(z, counts), known)

    @override
    def published_totals(self, output: Array) -> list[tuple[NDArray[np.intp], float]]:
        # As printed, the sum of the counts may be larger.
        return super().published_totals(output if self.total == "fixed" else np.array([self.n_records]))

    @override
    def _released_table(self, output: Array) -> Integers:
        released = super()._released_table(output)
        if not self._is_completed(released):
            raise ArgumentError("The last cell of this output does not follow from the cells before it.")
        return released

    def _is_completed(self, released: NDArray[Any]) -> bool:
        return np.array_equal(self._completed(released[None, :-1].astype(np.int64))[0], released)

    def _completed(self, noisy: Integers) -> Integers:
        """Truncated noisy cells and the last cell, from shape (m, d - 1) to (m, d)."""
        n = self.n_records
        cells = np.clip(noisy, 0, n)
        if self.total == "fixed":
            cells = np.diff(np.minimum(np.cumsum(cells, axis=1), n), axis=1, prepend=0)
        return np.column_stack([cells, np.maximum(n - cells.sum(axis=1), 0)])


# The closed forms have fewer roundings than this.
_ULPS = 32


@final
@dataclass(frozen=True)
class _FlooredLaplace(LossCurves):
    """Laplace noise of scale `1 / u` rounded down, and the same noise shifted by 1, in one cell or in two.

    With `q = exp(-u)`, the loss of a cell is `u` with probability 1/2, 0 with `(1 - q) / 2`, and `-u` with `q / 2`.
    """

    u: float
    cells: int

    @property
    @override
    def pure_epsilon(self) -> float:
        return self.cells * self.u

    @override
    def _renyi(self, order: float) -> float:
        return min(raised(self.cells * self._cell_renyi(order), _ULPS), self.pure_epsilon)

    def _cell_renyi(self, order: float) -> float:
        """The divergence of one cell."""
        if order == math.inf:
            return self.u
        if order == 1:
            return self.u * -math.expm1(-self.u) / 2
        s = (order - 1) * self.u
        if s > 1:
            # Without the factor exp(s) / 2.
            rest = -math.expm1(-self.u) * math.exp(-s) + math.exp(-self.u - 2 * s)
            return (s + math.log1p(rest) - math.log(2)) / (order - 1)
        excess = -math.expm1(s) * math.expm1(-self.u - s) / 2
        return math.log1p(excess) / (order - 1)

    @override
    def _rho(self, omega: float) -> float:
        """An upper bound, the Kullback-Leibler divergence of the noise before rounding (Theory, Theorem 7)."""
        return raised(self.cells * float(expm1_less(np.array(-self.u))), _ULPS)

    @override
    def _delta(self, epsilon: float) -> float:
        u = self.u
        if epsilon >= self.pure_epsilon:
            return 0.0
        if self.cells == 1:
            return raised(_above(u - epsilon) / 2, _ULPS)
        return raised(_above(2 * u - epsilon) / 4 - math.expm1(-u) / 2 * _above(u - epsilon), _ULPS)


def _above(excess: float) -> float:
    """`1 - exp(-excess)`, or 0 below 0."""
    return -math.expm1(-max(excess, 0.0))
