"""What all mechanisms share that add noise to counts, and how noisy counts are treated as the data."""

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Self, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MOST_RECORDS, checked_counts, integer, one_of, positive, positive_array, within
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.base import Fact, Mechanism
from pymc_dirdp.mechanisms.outputs import CellNoise, NoisyTable, Output, RowLikelihood, RowsSeen
from pymc_dirdp.mechanisms.table import TableMechanism, blocks, worst_neighbours
from pymc_dirdp.numerics.roots import largest_safe, log_excess
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of
from pymc_dirdp.privacy.people import Adjacency, Contribution, adjacency_named
from pymc_dirdp.sampling.bits import Bits, Seed, generator
from pymc_dirdp.sampling.discrete_noise import dyadic_above
from pymc_dirdp.sampling.fast import dirichlet

POSTPROCESSES = ("clip-and-smooth", "clip", "project")

# P1's baselines put this in the place of a negative count; the logarithm in the KL then decides the comparison.
_CLIPPED = 1e-6
# This part of the noise's standard deviation is within 6 % of the best for tables of 4 to 1000 cells (see the tests).
_SMOOTHING = 0.25


def postprocessed(noisy: Array, how: str, *, noise: float) -> Array:
    """Noisy counts made nonnegative.

    Parameters
    ----------
    noisy : array, shape (..., d)
        Counts plus noise.
    how : {"clip-and-smooth", "clip", "project"}
        * `"clip-and-smooth"`: negative counts become 0; every cell gets a quarter of the noise's standard deviation.
        * `"clip"`: counts below 1e-6 become 1e-6 (P1's baselines). Small cells are badly underestimated.
        * `"project"`: the nearest nonnegative counts with the same total in each row (P3's projection on the simplex).
    noise : float
        Standard deviation of the noise in one cell.
    """
    if how == "clip":
        return np.maximum(noisy, _CLIPPED)
    if how == "project":
        return _projected(noisy)
    return np.maximum(noisy, 0.0) + _SMOOTHING * noise


def frequencies(counts: Array) -> Array:
    """Counts, which are at least 0, over the totals of their rows; a row without records is uniform."""
    total = counts.sum(axis=-1, keepdims=True)
    return np.where(total > 0, counts / np.where(total > 0, total, 1.0), 1.0 / counts.shape[-1])


def _projected(noisy: Array) -> Array:
    """The nearest point with nonnegative entries and the row's own total, at least 0 (Held, Wolfe and Crowder 1974)."""
    total = np.maximum(noisy.sum(axis=-1, keepdims=True), 0.0)
    falling = -np.sort(-noisy, axis=-1)
    # The threshold that all positive entries are lowered by, if the k largest stay positive.
    thresholds = (np.cumsum(falling, axis=-1) - total) / np.arange(1, noisy.shape[-1] + 1)
    n_positive = np.maximum((falling > thresholds).sum(axis=-1, keepdims=True), 1)
    return np.maximum(noisy - np.take_along_axis(thresholds, n_positive - 1, axis=-1), 0.0)


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
        counts : array_like of integers, shape of `prior`
            The secret. Errors never show it. Where `n_records` is public, they add up to it.
        sampler : {"exact", "fast"}, default "exact"
            `"exact"` draws in integers with bits of the operating system; noise is added to the counts as whole
            numbers, and the sum is rounded to a double once. `"fast"` draws in floating point with NumPy: nearly the
            distribution that the curves are about, and how nearly is not proved.
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


# A double cannot hold noise of a larger scale; with a scale below the inverse all noise is 0.
_LARGEST_SCALE = 2.0**1000
# Numbers that add up to 0 do so up to this share of their sizes if they are rounded.
_ROUNDING = 2.0**-50


def round_scale_up(scale: float) -> float:
    """A scale rounded up to the rational number that the exact sampler uses."""
    if not 1 / _LARGEST_SCALE <= positive(scale=scale) <= _LARGEST_SCALE:
        raise ArgumentError(
            f"Expected scale between 2**-1000 and 2**1000, got scale={scale:g}. Ask for a larger epsilon, or a smaller "
            "one: noise of this size is never, or always, more than a double can hold."
        )
    return float(dyadic_above(float(scale)))


def adds_up_to_0(noise: Array) -> NDArray[np.bool_]:
    """Whether numbers along the last axis do. Very large noise is rounded to a double, cell by cell."""
    return np.asarray(np.abs(noise.sum(axis=-1)) <= _ROUNDING * np.abs(noise).sum(axis=-1))


def geometric_noise(scale: float, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """The difference of two geometric variables, which are exponential ones rounded down, as doubles."""
    first, second = scale * rng.standard_exponential((2, *shape))
    return np.asarray(np.floor(first) - np.floor(second))


Whole = NDArray[Any]

# The square of a parameter, and that over a square of records, have to be doubles.
LEAST, MOST = 2.0**-200, 2.0**200
# Integer noise is listed so many standard deviations far, and for so many cells at most.
_REACH, _MOST_CELLS = 60.0, 400_000
# A probability of exp of minus this is left out of sums.
_UNLIKELY = 60.0
# Noise is drawn for so many tables at a time.
_AT_ONCE = 20_000
# Simulated noise is looked at as many standard deviations far.
_FAR = 12.0
# Noise so far out tells the slope of its logarithm to all digits.
_FAR_OUT = 2.0**20
# A released number is at most this, which leaves room for sums of a table.
_LARGEST = 2.0**1000


@dataclass(frozen=True, eq=False)
class NoisyCounts(ReleasedCounts, TableMechanism):
    """Release counts plus noise; everything else is post-processing of it.

    A subclass is a frozen dataclass, whose one field more is the parameter of the noise. It says its curves, the
    distribution of the noise in one cell, and how that is drawn.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change. A record that moves changes two cells by 1, also if they are in two rows.
    postprocess : {"clip-and-smooth", "clip", "project"}, default "clip-and-smooth"
        How :meth:`sample`, :meth:`estimate` and comparisons make noisy counts nonnegative, see
        :func:`pymc_dirdp.mechanisms.noisy_counts.postprocessed`. These are published baselines, which read noisy counts
        as data. What :func:`pymc_dirdp.sample` draws from does not depend on it, but on an argument of its own.
    contribution : int or Contribution, default 1
        What one person adds to the table; all of that person's records may change together. In every block of cells
        the records may gain and lose `records` in all, so the counts that grow and those that fall make two groups of
        cells, or one under add-remove.
    """

    publishes = "noisy_counts"
    formula = "exact draws from the posterior given the noisy counts: Dirichlet(x + prior), averaged over all counts x"
    facts = (
        Fact("prior", "prior", "table"),
        Fact("noise_parameter", "parameter", "scalar"),
        Fact("noise_sd", "noise_sd", "scalar", given=False),
    )
    smooth_noise: ClassVar[bool] = False
    """Whether `log_noise` follows a smooth curve with few kinks between integers, too."""
    noise_family: ClassVar[str] = "normal"
    """The continuous distribution that `log_noise` follows: "normal", or "laplace" with the scale `parameter`."""

    prior: Array
    _: KW_ONLY
    adjacency: str = "replace-one"
    postprocess: str = "clip-and-smooth"
    contribution: Contribution | int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", positive_array(prior=self.prior))
        object.__setattr__(self, "adjacency", adjacency_named(self.adjacency).name)
        one_of(POSTPROCESSES, postprocess=self.postprocess)
        object.__setattr__(self, "contribution", Contribution.of(self.contribution).fitted(self.prior.shape))
        object.__setattr__(self, self._parameter_name(), self._checked_parameter(self.parameter))

    def _checked_parameter(self, value: float) -> float:
        """The parameter that is used; an error where curves cannot be computed for it."""
        named = {self._parameter_name(): value}
        used = positive(**named)
        within(LEAST, MOST, **named)
        return used

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        *,
        prior: ArrayLike,
        adjacency: str = "replace-one",
        postprocess: str = "clip-and-smooth",
        contribution: Contribution | int = 1,
    ) -> Self:
        """The mechanism with the least noise that keeps `guarantee`.

        Parameters
        ----------
        guarantee : Guarantee
            The target.
        prior, adjacency, postprocess, contribution
            As for the mechanism itself.

        Returns
        -------
        mechanism : instance of this class
            `mechanism.satisfies(guarantee)` is True, for the noise that is really drawn. A scale smaller by 1e-9
            relative does not keep it, except for discrete Gaussian noise, whose delta does not fall everywhere.

        Raises
        ------
        UnattainableError
            If noise of this distribution keeps no guarantee of this kind.
        """
        facts: dict[str, Any] = {
            "prior": prior,
            "adjacency": adjacency,
            "postprocess": postprocess,
            "contribution": contribution,
        }
        guarantee = Guarantee.checked(guarantee=guarantee)
        whole = cls.from_facts(facts | {"parameter": 1.0})
        small = facts | whole._alike()
        # A delta is finite; any other loss that is not at one parameter is at none.
        if not guarantee.stated_delta and not math.isfinite(guarantee.loss(cls.from_facts(small | {"parameter": 1.0}))):
            raise UnattainableError(
                f"{cls.__name__} keeps no {type(guarantee).__name__}: its loss is unbounded. Ask for ApproxDP, or use "
                "GeometricMechanism, which keeps every kind of guarantee."
            )

        def excess(parameter: float) -> float:
            return log_excess(*cls.from_facts(small | {"parameter": parameter}).loss(guarantee))

        return cls.from_facts(facts | {"parameter": cls._least(excess)})

    def _alike(self) -> dict[str, Any]:
        """Prior and contribution of a small table with the same curves: they depend on the number of blocks alone."""
        return {"prior": np.ones((self._blocks, 2)), "contribution": Contribution(self._records, ("each",))}

    def with_few_cells(self) -> Self:
        """A mechanism for a small table with the same curves. Those of equal noise are equal, and summed at once."""
        return dataclasses.replace(self, **self._alike())

    @classmethod
    def _least(cls, excess: Callable[[float], float]) -> float:
        """The least parameter at which a guarantee holds, that is, `excess` is at most 0."""
        return 1 / largest_safe(lambda inverse: excess(1 / inverse))

    @property
    @abc.abstractmethod
    @override
    def noise_sd(self) -> float:
        """Standard deviation of the noise in one cell."""

    @property
    @override
    def log_no_noise(self) -> float:
        none = np.zeros(self.prior.shape)
        return min(float(self.log_likelihood(none, none)), 0.0)

    def variance_left(self, cells: int, *, public: bool) -> float:
        """The variance of the noise in one of so many cells once their sum is known, where it is public.

        Independent noise is freed of its mean then; noise that adds up to 0 has none.
        """
        known = public and not self.needs_public_totals
        return self.noise_sd**2 * (1 - known / cells)

    @property
    def parameter(self) -> float:
        """What calibration solves for and the class takes after `prior`: sigma, or the scale."""
        return getattr(self, self._parameter_name())  # type: ignore[no-any-return]

    @classmethod
    def _parameter_name(cls) -> str:
        return dataclasses.fields(cls)[-1].name

    @classmethod
    @override
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        return cls(**{cls._parameter_name() if name == "parameter" else name: value for name, value in facts.items()})

    @abc.abstractmethod
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Independent noise of this shape in floating point: for simulations, and for `sampler="fast"`."""

    def noise_of_rows(self, rows: int, rng: np.random.Generator) -> Array:
        """Noise of so many rows, each of another table, shape `(rows, d)`; for simulations."""
        return self.noise_for((rows, self.prior.shape[-1]), rng)

    @override
    def rows_seen(self, counts: Array, rng: np.random.Generator) -> RowsSeen | None:
        z = counts + self.noise_of_rows(len(counts), rng)
        reach, totals = _FAR * self.noise_sd + 1, z.sum(axis=-1)
        # Noise that adds up to 0 in each row tells its total.
        public = np.array_equal(totals, counts.sum(axis=-1))
        total_sd = 0.0 if public else self.noise_sd * math.sqrt(z.shape[-1]) + 1
        return RowsSeen(z - reach, z + reach, lambda x, z: self.log_noise(z - x), (z,), totals, total_sd)

    @abc.abstractmethod
    def log_noise(self, noise: Array) -> Array:
        """Logarithm of the probability, or of the density, of noise in one cell. Elementwise."""

    @property
    @override
    def cell_noise(self) -> CellNoise | None:
        normal = self.noise_family == "normal"
        constant, far = (float(self.log_noise(np.array(at))) for at in (0.0, _FAR_OUT))
        return CellNoise(normal, (constant - far) / (_FAR_OUT**2 if normal else _FAR_OUT), constant)

    @abc.abstractmethod
    def exact_noise(self, shape: tuple[int, ...], bits: Bits) -> Whole:
        """Independent noise of this shape as Python's integers.

        It has exactly the distribution that the curves are about.
        """

    @override
    def postprocessed(self, released: Array) -> Array:
        return postprocessed(released, self.postprocess, noise=self.noise_sd)

    @property
    def _relation(self) -> Adjacency:
        return adjacency_named(self.adjacency)

    @property
    def _records(self) -> int:
        """How many records one person holds in a block, at most."""
        return self.contributed.records

    @property
    def _blocks(self) -> int:
        return self.contributed.blocks(self.prior.shape)

    @property
    def _groups(self) -> int:
        """How many groups of cells change: in every block those that grow and, under replace-one, those that fall."""
        return self._blocks * round(self._relation.delta_1)

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return tuple(self.prior.shape)

    @property
    @override
    def in_short(self) -> str:
        return f"{type(self).__name__.removesuffix('Mechanism')} noise of standard deviation {self.noise_sd:.4g}"

    @override
    def _checked(self, counts: ArrayLike) -> Array:
        return checked_counts(counts, self.prior.shape)

    @override
    def _fast_release(self, counts: Array, rng: np.random.Generator) -> Array:
        return np.clip(counts + self.noise_for(counts.shape, rng), -_LARGEST, _LARGEST)

    @override
    def _exact_release(self, counts: Array, bits: Bits) -> Array:
        largest, noise = int(_LARGEST), self.exact_noise(counts.shape, bits)
        try:
            extra = noise.astype(np.int64)
        except OverflowError:
            extra = None
        # Counts are up to 2**53, so these sums are 64-bit numbers.
        if extra is not None and extra.min(initial=0) > -(2**62) and extra.max(initial=0) < 2**62:
            return (counts.astype(np.int64) + extra).astype(np.float64)
        sums = [
            max(-largest, min(int(count) + one, largest))
            for count, one in zip(counts.ravel().tolist(), noise.ravel().tolist(), strict=True)
        ]
        return np.array([float(value) for value in sums]).reshape(counts.shape)

    @override
    def check(self, counts: ArrayLike) -> None:
        self._checked(counts)

    @override
    def draw(
        self, counts: ArrayLike, draws: int, *, sampler: str, random_seed: Seed = None, n_records: int | None = None
    ) -> NoisyTable:
        # The guarantee is about the noisy counts, so they are published; any number of draws follows from them.
        noisy = self.release(counts, sampler=sampler, random_seed=random_seed)
        return NoisyTable({self.publishes: np.asarray(noisy, dtype=np.float64)})

    @override
    def releases(
        self, counts: Array, n: int, *, sampler: str = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        """Noise is independent in every cell, so one table of many copies is as good as many tables, and faster."""
        rng = generator(random_seed)

        def some(size: int) -> Array:
            # What a person adds decides the curves, and not the noise, and may not fit to the shape of the tall table.
            copies = np.broadcast_to(self.prior, (size, *self.prior.shape))
            tall = dataclasses.replace(self, prior=copies, contribution=1)
            return tall.release(np.broadcast_to(counts, (size, *counts.shape)), sampler=sampler, random_seed=rng)

        return np.concatenate([some(min(_AT_ONCE, n - start)) for start in range(0, n, _AT_ONCE)])

    @override
    def posterior_parameters(self, data: NDArray[np.int64], rng: np.random.Generator) -> Array:
        return self.postprocessed(data + self.noise_for(data.shape, rng)) + self.prior

    @override
    def cell_log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        return self.log_noise(np.asarray(output, dtype=np.float64) - np.asarray(counts, dtype=np.float64))

    @override
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> list[RowLikelihood]:
        def of(z: Array) -> RowLikelihood:
            return RowLikelihood(
                lambda counts, cells: self.log_noise(z[cells] - counts), partial(self._of_total, z), self.smooth_noise
            )

        return [of(z) for z in output.reshape(-1, self.prior.shape[-1])]

    def _of_total(self, z: Array, totals: Array) -> Array:
        """No factor, but for totals so far from that of the noisy counts that no double could hold the likelihood."""
        return np.where(np.abs(totals - z.sum()) <= self._sum_reach(z.size), 0.0, -np.inf)

    def _sum_reach(self, cells: int) -> float:
        """How far the noise of so many cells takes their sum, but with a probability below `2 exp(-60)`.

        Bernstein's inequality for noise whose moments are at most those of a Laplace distribution of the same variance;
        a scale below 1 is that of integer noise that is mostly 0.
        """
        scale = self.noise_sd / math.sqrt(2) + 1
        return math.sqrt(2 * _UNLIKELY * cells) * self.noise_sd + _UNLIKELY * scale

    @override
    def possible_records(self, output: Array) -> range:
        middle, reach = float(output.sum()), self._sum_reach(output.size)
        least, most = (min(max(end, 0.0), MOST_RECORDS) for end in (middle - reach, middle + reach))
        return range(math.floor(least), math.ceil(most) + 1)

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        # Cells that do not change cancel exactly.
        changed = x != y
        seen = outputs[..., changed]
        with np.errstate(invalid="ignore", over="ignore"):
            ratio = self.log_noise(seen - x[changed]) - self.log_noise(seen - y[changed])
        return np.asarray(np.nan_to_num(ratio, nan=0.0, posinf=1e300, neginf=-1e300).sum(axis=-1))

    @override
    def output_distributions(self, x: Array, y: Array, cells: int | None = None) -> FiniteDistributions:
        return product_of([self._cell_distributions(abs(float(shift)), cells) for shift in (x - y)[x != y]])

    def _cell_distributions(self, shift: float, cells: int | None) -> FiniteDistributions:
        """The two distributions of one cell whose counts differ by `shift`.

        The noise is integer, and listed as far as it is not negligible.
        """
        reach = math.ceil(_REACH * self.noise_sd) + 1
        if 2 * reach + shift > _MOST_CELLS:
            raise ArgumentError(f"The distribution of {self.in_short} has too many cells to be summed over.")
        seen = np.arange(-reach, reach + round(shift) + 1, dtype=np.float64)
        return FiniteDistributions(self.log_noise(seen), self.log_noise(seen - shift))

    @override
    def stronger(self, factor: float) -> tuple[str, Self]:
        changed: dict[str, Any] = {self._parameter_name(): self.parameter / factor}
        return "the same mechanism with less noise", dataclasses.replace(self, **changed)

    @override
    def is_on_grid(self, output: Array, steps: int | None) -> bool:
        return bool(np.array_equal(output, np.floor(output)))

    @override
    def worst_pair(self) -> tuple[Array, Array]:
        # Noise is the same in all cells.
        moves = [(int(cells[0]), int(cells[1])) for cells in blocks(self.prior, self.contributed, lambda *_: 0.0)]
        return worst_neighbours(np.zeros(self.prior.shape), moves, self._records, self.adjacency)
