"""Noisy counts: one mechanism for noise of any distribution, and post-processing to nonnegative counts.

The mechanism publishes noisy marginals of a table. A table without marginals is its only marginal.
"""

import abc
import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MAX_RECORDS, integer, one_of, positive_array
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.literals import AdjacencyName, Postprocess, Sampler, options_of
from pymc_dirdp.mechanisms.base import FileField
from pymc_dirdp.mechanisms.noise import Noise, NoisyMarginal
from pymc_dirdp.mechanisms.outputs import CellNoise, Measured, Output, RowLikelihood
from pymc_dirdp.mechanisms.table import TableMechanism, neighbouring_tables
from pymc_dirdp.numerics.roots import log_ratio_to_budget
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import LossCurves, NoLoss
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of
from pymc_dirdp.privacy.people import Contribution, adjacency_by_name
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.sampling.drawing import AddedNoise, Once, SecretCounts
from pymc_dirdp.sampling.fast import dirichlet

POSTPROCESSES: tuple[Postprocess, ...] = options_of(Postprocess)


def postprocessed(
    noisy: Array, how: Postprocess, *, noise: float, clipped: float = 1e-6, smoothing: float = 0.25
) -> Array:
    """Noisy counts made nonnegative.

    Parameters
    ----------
    noisy : array, shape (..., d)
        Counts plus noise.
    how : {"clip-and-smooth", "clip", "project"}
        * `"clip-and-smooth"`: negative counts become 0; a quarter of the noise's standard deviation is added to all
          cells.
        * `"clip"`: counts below 1e-6 become 1e-6 (P1's baselines). Small cells are badly underestimated.
        * `"project"`: the nearest nonnegative counts with the same total in each row (P3's projection on the simplex).
    noise : float
        Standard deviation of the noise in one cell.
    clipped : float
        What P1's baselines put instead of a negative count; the logarithm in the KL then decides the comparison.
    smoothing : float
        Fraction of the standard deviation; within 6 % of the best for tables of 4 to 1000 cells (see the tests).
    """
    if how == "clip":
        return np.maximum(noisy, clipped)
    if how == "project":
        return _projected(noisy)
    return np.maximum(noisy, 0.0) + smoothing * noise


def frequencies(counts: Array) -> Array:
    """Nonnegative counts divided by the totals of their rows; a row without records is uniform."""
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


class ReleasedCounts(TableMechanism):
    """Release counts z once; any number of draws from `Dirichlet(prior + z)` is post-processing.

    Attributes
    ----------
    prior : array, shape (..., d)
        The prior of the model, in the shape of the table.
    """

    prior: Array

    @abc.abstractmethod
    def release(self, counts: ArrayLike, *, sampler: Sampler = "exact", random_seed: Seed = None) -> NDArray[Any]:
        """Release counts; the guarantee covers the result. Shape of `prior`; noisy counts may be negative.

        Parameters
        ----------
        counts : array_like of integers, shape of `prior`
            The secret. Errors never show it. If `n_records` is public, the counts add up to it.
        sampler : {"exact", "fast"}, default "exact"
            `"exact"` draws integer noise with random bits of the operating system, adds it to the counts as integers,
            and rounds the sum once, to a double. `"fast"` draws in floating point with NumPy. Its distribution is close
            to that of the curves; there is no proved bound of the difference.
        random_seed : int, SeedSequence, Generator or None
            None uses entropy from the operating system. Pass anything else in tests only.

        Notes
        -----
        The running time of exact noise depends on the noise, and not on the counts.
        """

    def postprocessed(self, output: Array) -> Array:
        """Released counts made nonnegative, if necessary. Shape (..., *prior.shape)."""
        return output

    def sample(
        self, counts: ArrayLike, *, released_draws: int = 1, sampler: Sampler = "exact", random_seed: Seed = None
    ) -> Array:
        """Draws from the released posterior `Dirichlet(prior + z)`.

        All draws come from **one** release, so the guarantee covers any number of them, and they vary less than draws
        from several.

        Parameters
        ----------
        counts, sampler, random_seed
            As for :meth:`release`. The posterior draws are made in floating point.
        released_draws : int, default 1
            Number of draws, at least 1.

        Returns
        -------
        y : array, shape ``(released_draws, *prior.shape)``

        References
        ----------
        P2 Appendix C.
        """
        # One generator for both steps; without a seed the exact release uses bits of the operating system.
        rng = None if random_seed is None else generator(random_seed)
        output = self.release(counts, sampler=sampler, random_seed=rng)
        return self.sample_from(output, draws=released_draws, random_seed=rng)

    def sample_from(self, output: ArrayLike, *, draws: int = 1, random_seed: Seed = None) -> Array:
        """Posterior draws given one release: post-processing, without further privacy loss.

        Parameters
        ----------
        output : array_like, shape of `prior`
            From :meth:`release`.
        draws, random_seed
            The number of draws, at least 1, and the seed as for :meth:`release`.

        Returns
        -------
        y : array, shape ``(draws, *prior.shape)``
        """
        parameters = self.postprocessed(np.asarray(output, dtype=np.float64)) + self.prior
        return dirichlet(parameters, integer(1, draws=draws), generator(random_seed))

    def estimate(self, counts: ArrayLike, *, sampler: Sampler = "exact", random_seed: Seed = None) -> Array:
        """Frequencies from the released counts, without the prior: shape of `prior`, rows add up to 1.

        A row whose counts are all 0 is uniform. Arguments as for :meth:`release`.
        """
        return frequencies(self.postprocessed(self.release(counts, sampler=sampler, random_seed=random_seed)))


@dataclass(frozen=True, eq=False)
class NoisyMarginals(TableMechanism):
    """Release noisy marginals of a table of counts. Several marginals compose.

    A subclass is a frozen dataclass that defines the marginals and their noise.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The prior of the model, positive, in the shape of the table.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change.
    contribution : int or Contribution, default 1
        What one person adds to the table.
    """

    publishes: ClassVar[str] = "noisy_counts"
    instead: ClassVar[str] = ""
    """The mechanism for private numbers of records, if this one requires public numbers."""
    prior: Array
    _: KW_ONLY
    adjacency: AdjacencyName = "replace-one"
    contribution: Contribution | int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", positive_array(prior=self.prior))
        object.__setattr__(self, "adjacency", adjacency_by_name(self.adjacency).name)
        object.__setattr__(self, "contribution", Contribution.of(self.contribution).fitted(self.prior.shape))
        if self.needs_public_totals:
            adjacency_by_name(self.adjacency).refuse_private_records(self.instead)

    @property
    @abc.abstractmethod
    def noisy_marginals(self) -> tuple[NoisyMarginal, ...]:
        """The marginals that are published, with their noise."""

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of an output: all noisy counts concatenated, or the shape of the table if it is the only one."""
        return (sum(part.size for part in self.noisy_marginals),)

    def _split(self, output: Array) -> list[Array]:
        """The noisy counts of each marginal in an output; leading axes stay."""
        lead = output.shape[: output.ndim - len(self.output_shape)]
        ends = np.cumsum([part.size for part in self.noisy_marginals])
        parts = zip(np.split(output.reshape(*lead, -1), ends[:-1], axis=-1), self.noisy_marginals, strict=True)
        return [noisy.reshape(*lead, *part.shape) for noisy, part in parts]

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return tuple(self.prior.shape)

    def _curves_of(self, axes: tuple[int, ...], noise: Noise) -> LossCurves:
        """The curves of a marginal with these axes."""
        cells = math.prod(self.shape[axis] for axis in axes)
        people = self.contributed.in_marginal(self.shape, axes)
        return marginal_curves(noise, cells, *people, adjacency=self.adjacency)

    @cached_property
    @override
    def _curves(self) -> LossCurves:
        losing = [
            self._curves_of(marginal.axes, marginal.noise)
            for marginal in self.noisy_marginals
            if not self._is_fixed(marginal.axes)
        ]
        if len(losing) < 2:
            return losing[0] if losing else NoLoss()
        return Composition(tuple((curves, 1) for curves in losing))

    def _is_fixed(self, axes: tuple[int, ...]) -> bool:
        return self.contributed.fixes_marginal(axes, self.adjacency)

    def marginals_of(self, counts: NDArray[Any]) -> list[NDArray[Any]]:
        """The counts of each marginal; leading axes stay."""
        lead = counts.ndim - self.prior.ndim
        shifted = [tuple(lead + axis for axis in axes) for axes in self._summed_axes]
        return [counts.sum(axis=axes) if axes else counts for axes in shifted]

    @property
    def _summed_axes(self) -> list[tuple[int, ...]]:
        """The axes of the table over which each marginal sums."""
        axes = range(self.prior.ndim)
        return [tuple(axis for axis in axes if axis not in marginal.axes) for marginal in self.noisy_marginals]

    @override
    def prepare(
        self, released_draws: int, *, sampler: Sampler, random_seed: Seed = None, n_records: int | None = None
    ) -> AddedNoise:
        # The state of the generator advances, so no two marginals share noise.
        rng = None if random_seed is None else generator(random_seed)
        return self._added(marginal.noise_for((), self._source(sampler, rng)) for marginal in self.noisy_marginals)

    @override
    def check(self, counts: ArrayLike) -> Array:
        return self._added(np.zeros(marginal.shape) for marginal in self.noisy_marginals).check(SecretCounts(counts))

    def _added(self, noises: Iterable[NDArray[Any]]) -> AddedNoise:
        """These noises of all marginals, to be added."""
        marginals = tuple(zip(self._summed_axes, map(Once, noises), strict=True))
        return AddedNoise(self.shape, self.min_count or 0.0, self.assumed_records, marginals)

    @property
    @override
    def log_no_noise(self) -> float:
        nothing = [(marginal, np.zeros(marginal.shape)) for marginal in self.noisy_marginals]
        return math.fsum(min(float(marginal.log_likelihood(zeros, zeros)), 0.0) for marginal, zeros in nothing)

    @override
    def measured(self, output: Output) -> list[Measured]:
        parts = zip(self.published_axes, self.noisy_marginals, strict=True)
        return [(part.axes, output.published[name], part.noise.free_variance) for name, part in parts]

    @override
    def releases(
        self,
        counts: Array,
        n: int,
        *,
        sampler: Sampler = "fast",
        random_seed: Seed = None,
        steps: int | None = None,
        at_once: int = 20_000,
    ) -> Array:
        rng = generator(random_seed)
        sizes = [min(at_once, n - start) for start in range(0, n, at_once)]

        def drawn(marginal: NoisyMarginal, of_marginal: Array) -> Array:
            source = self._source(sampler, rng)
            return np.concatenate([marginal.noisy(of_marginal, (size,), source) for size in sizes])

        noisy = map(drawn, self.noisy_marginals, self.marginals_of(np.asarray(counts)))
        return np.concatenate([part.reshape(n, -1) for part in noisy], axis=-1).reshape(n, *self.output_shape)

    @override
    def replicates(self, counts: Array, n: int, rng: np.random.Generator) -> Array:
        lead, parts = (len(counts), n), zip(self.noisy_marginals, self.marginals_of(counts[:, None]), strict=True)
        noisy = [marginal.noisy(of_marginal, lead, rng) for marginal, of_marginal in parts]
        return np.concatenate([part.reshape(*lead, -1) for part in noisy], axis=-1).reshape(*lead, *self.output_shape)

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        outputs, data = (np.asarray(numbers, dtype=np.float64) for numbers in (output, counts))
        parts = zip(self.noisy_marginals, self._split(outputs), self.marginals_of(data), strict=True)
        return np.asarray(sum(marginal.log_likelihood(noisy, of_marginal) for marginal, noisy, of_marginal in parts))

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        data_sets = (self.marginals_of(np.asarray(counts, dtype=np.float64)) for counts in (x, y))
        parts = zip(self.noisy_marginals, self._split(outputs), *data_sets, strict=True)
        return np.asarray(sum(marginal.log_likelihood_ratio(*arrays) for marginal, *arrays in parts))

    @override
    def output_distributions(self, x: Array, y: Array, cells: int | None = None) -> FiniteDistributions:
        shifts = self.marginals_of(np.asarray(x, dtype=np.float64) - y)
        return product_of(
            [
                marginal.noise.distributions(marginal.lists(shift))
                for marginal, shift in zip(self.noisy_marginals, shifts, strict=True)
                if np.any(shift) or len(shifts) == 1
            ]
        )

    @override
    def is_on_grid(self, output: Array, steps: int | None) -> bool:
        return bool(np.array_equal(output, np.floor(output)))

    @override
    def worst_neighbours(self) -> tuple[Array, Array]:
        # The noise is the same in all cells. The two cells of a block differ along every axis where they may, so a
        # record that changes from one to the other changes every marginal. All records of a person change in the same
        # way, so their losses add up.
        kinds = (*self.contributed.axes, "any")
        ends = [n if kind == "each" else 1 for kind, n in zip(kinds, self.shape, strict=True)]
        moves = []
        for first in np.ndindex(*ends):
            along = zip(kinds, self.shape, first, strict=True)
            last = [min(n - 1, 1) if kind == "any" else place for kind, n, place in along]
            moves.append((int(np.ravel_multi_index(first, self.shape)), int(np.ravel_multi_index(last, self.shape))))
        return neighbouring_tables(np.zeros(self.shape), moves, self.contributed.records, self.adjacency)


def marginal_curves(noise: Noise, cells: int, records: int, blocks: int, *, adjacency: AdjacencyName) -> LossCurves:
    """The curves of a marginal to which a person adds `records` records in each of `blocks` blocks of cells."""
    if blocks == cells:
        # A block has one cell, so treat the records of all blocks as if they could lie anywhere in the marginal.
        records, blocks = records * blocks, 1
    return noise.curves(blocks, records, round(adjacency_by_name(adjacency).delta_1))


@dataclass(frozen=True, eq=False)
class NoisyCounts(ReleasedCounts, NoisyMarginals):
    """Release counts plus noise; everything else is post-processing.

    A subclass is a frozen dataclass with one more field, the parameter of the noise. It names the class of the
    :class:`~pymc_dirdp.mechanisms.noise.Noise`, which has the distribution, the curves and the samplers.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The prior of the model, positive, in the shape of the table.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change. A replaced record changes two cells by 1, in one row or in two.
    postprocess : {"clip-and-smooth", "clip", "project"}, default "clip-and-smooth"
        How :meth:`sample`, :meth:`estimate` and comparisons make noisy counts nonnegative, see
        :func:`pymc_dirdp.mechanisms.noisy_counts.postprocessed`. These are baselines from the literature, which treat
        noisy counts as the data. The posterior of :func:`pymc_dirdp.sample` does not depend on this parameter.
    contribution : int or Contribution, default 1
        The records that one person adds to the table; all of them may change together. In every block of cells, counts
        may increase by `records` in total and decrease by `records` in total. So there are two groups of cells that
        change, or one under add-remove.
    """

    formula = "exact draws from the posterior given the noisy counts: Dirichlet(x + prior), averaged over all counts x"
    facts = (
        FileField("prior", "prior", "table"),
        FileField("noise_parameter", "parameter", "scalar"),
        FileField("noise_sd", "noise_sd", "scalar", is_argument=False),
    )
    noise_type: ClassVar[type[Noise]]
    """The class of its noise."""

    _: KW_ONLY
    postprocess: Postprocess = "clip-and-smooth"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(POSTPROCESSES, postprocess=self.postprocess)
        # The noise rounds a scale up, and the attribute is the rounded number.
        name = self._parameter_name()
        object.__setattr__(self, name, getattr(self.noise_at(self.parameter), name))

    def noise_at(self, parameter: float) -> Noise:
        """The noise with this parameter."""
        return self.noise_type(parameter)  # type: ignore[call-arg]  # A subclass takes it first.

    @cached_property
    def noise(self) -> Noise:
        """The noise that is added to the counts."""
        return self.noise_at(self.parameter)

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        *,
        prior: ArrayLike,
        adjacency: AdjacencyName = "replace-one",
        postprocess: Postprocess = "clip-and-smooth",
        contribution: Contribution | int = 1,
    ) -> Self:
        """The mechanism with the smallest noise that satisfies `guarantee`.

        Parameters
        ----------
        guarantee : Guarantee
            The target.
        prior, adjacency, postprocess, contribution
            As for the mechanism itself.

        Returns
        -------
        mechanism : instance of this class
            `mechanism.satisfies(guarantee)` is True, for the exact distribution of the sampler. A scale that is smaller
            by a relative 1e-9 does not satisfy it, except for discrete Gaussian noise, whose delta is not monotonic.

        Raises
        ------
        UnattainableError
            If noise of this distribution satisfies no guarantee of this kind.
        """
        people: dict[str, Any] = {"adjacency": adjacency, "contribution": contribution, "postprocess": postprocess}
        guarantee = Guarantee.checked(guarantee=guarantee)
        return cls.from_dict({"prior": prior, "parameter": 1.0, **people}).calibrated(guarantee)

    def calibrated(self, guarantee: Guarantee) -> Self:
        """The same mechanism with the least noise that satisfies a guarantee."""
        # A delta is finite; any other loss that is not at one parameter is at none.
        if not guarantee.stated_delta and not math.isfinite(guarantee.loss(self)):
            raise UnattainableError(
                f"{type(self).__name__} does not satisfy {type(guarantee).__name__}, because its loss is unbounded. "
                "Ask for ApproxDP, or use GeometricMechanism, which satisfies every kind of guarantee."
            )

        axes = tuple(range(self.prior.ndim))

        def excess(parameter: float) -> float:
            return log_ratio_to_budget(*self._curves_of(axes, self.noise_at(parameter)).loss(guarantee))

        return self._with_parameter(type(self.noise).least(excess))

    def _with_parameter(self, parameter: float) -> Self:
        changed: dict[str, Any] = {self._parameter_name(): parameter}
        return dataclasses.replace(self, **changed)

    @property
    @override
    def noise_sd(self) -> float:
        """Standard deviation of the noise in one cell."""
        return self.noise.sd

    @property
    def parameter(self) -> float:
        """The noise parameter, which calibration solves for: sigma, or the scale."""
        return getattr(self, self._parameter_name())  # type: ignore[no-any-return]

    @classmethod
    def _parameter_name(cls) -> str:
        return dataclasses.fields(cls)[-1].name

    @classmethod
    @override
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        return cls(**{cls._parameter_name() if name == "parameter" else name: value for name, value in facts.items()})

    @property
    def separate_axes(self) -> tuple[int, ...]:
        """The axes whose entries have separate lists of noise."""
        return ()

    @cached_property
    @override
    def noisy_marginals(self) -> tuple[NoisyMarginal]:
        # The table is the only marginal.
        return (NoisyMarginal(tuple(range(self.prior.ndim)), self.shape, self.noise, self.separate_axes),)

    @property
    @override
    def output_shape(self) -> tuple[int, ...]:
        return self.shape

    @property
    @override
    def row_noise(self) -> Noise | None:
        return self.noise

    @property
    @override
    def cell_noise(self) -> CellNoise | None:
        return self.noise.cell_noise

    @override
    def postprocessed(self, output: Array) -> Array:
        return postprocessed(output, self.postprocess, noise=self.noise_sd)

    @property
    @override
    def summary(self) -> str:
        return f"{self.noise.name} noise of standard deviation {self.noise_sd:.4g}"

    @override
    def release(self, counts: ArrayLike, *, sampler: Sampler = "exact", random_seed: Seed = None) -> Array:
        return self.draw(counts, 1, sampler=sampler, random_seed=random_seed).published[self.publishes]

    @override
    def posterior_parameters(self, counts: NDArray[np.int64], rng: np.random.Generator) -> Array:
        noise = self.noisy_marginals[0].noise_for(counts.shape[: counts.ndim - self.prior.ndim], rng)
        return self.postprocessed(np.asarray(counts + noise, dtype=np.float64)) + self.prior

    @override
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> list[RowLikelihood]:
        def row_likelihood(z: Array) -> RowLikelihood:
            return RowLikelihood(
                lambda counts, cells: self.noise.log_pmf(z[cells] - counts), np.zeros_like, self.noise.smooth_noise
            )

        return [row_likelihood(z) for z in output.reshape(-1, output.shape[-1])]

    @override
    def possible_records(self, output: Array) -> range:
        middle, reach = float(output.sum()), self.noise.sum_reach(output.size)
        return records_between(middle - reach, middle + reach)

    @override
    def published_totals(self, output: Array) -> list[tuple[NDArray[np.intp], float]]:
        if not self.needs_public_totals:
            return []
        entries = self.contributed.rows_by_entry(self.shape)
        return [(rows, float(np.reshape(output, (-1, self.shape[-1]))[rows].sum())) for rows in entries]

    @override
    def stronger(self, factor: float) -> tuple[str, Self]:
        return "the same mechanism with less noise", self._with_parameter(self.parameter / factor)


def records_between(least: float, most: float) -> range:
    """The possible numbers of records between two ends."""
    least, most = (min(max(end, 0.0), MAX_RECORDS) for end in (least, most))
    return range(math.floor(least), math.ceil(most) + 1)
