"""Marginals of a table that are published, each with a noise; a table is its own only marginal."""

import abc
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import checked_counts
from pymc_dirdp.mechanisms.noise import Noise, Whole
from pymc_dirdp.mechanisms.table import TableMechanism, worst_neighbours
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import LossCurves, NoLoss
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of
from pymc_dirdp.privacy.people import Adjacency, adjacency_named
from pymc_dirdp.sampling.bits import Bits, Seed, generator


@final
@dataclass(frozen=True)
class NoisyMarginal:
    """The counts of a marginal and what is added to them.

    Attributes
    ----------
    axes : tuple of int
        Those of the table that it keeps.
    shape : tuple of int
    noise : Noise
    together : int
        How many cells a list of noise is for; 1 for noise that is independent in each cell.
    first : tuple of int
        The axes whose entries have lists of their own.
    """

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    noise: Noise
    together: int = 1
    first: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    def lists(self, table: NDArray[Any]) -> NDArray[Any]:
        """The cells that share noise side by side: shape `(..., *shape)` to `(..., lists, cells of a list)`."""
        lead = table.ndim - len(self.shape)
        turned = np.moveaxis(table, [lead + axis for axis in self.first], range(lead, lead + len(self.first)))
        return turned.reshape(*table.shape[:lead], -1, self.together)

    def noise_for(self, lead: tuple[int, ...], source: np.random.Generator | Bits) -> Whole:
        """Independent noise of shape `(*lead, *shape)`: in floating point from a generator, or exact from bits."""
        size = (*lead, self.size // self.together, self.together)
        if isinstance(source, np.random.Generator):
            drawn: Whole = self.noise.fast(size, source)
        else:
            drawn = self.noise.exact(size, source)
        order = [*self.first, *(axis for axis in range(len(self.shape)) if axis not in self.first)]
        turned = drawn.reshape(*lead, *(self.shape[axis] for axis in order))
        return np.moveaxis(
            turned, range(len(lead), len(lead) + len(self.first)), [len(lead) + axis for axis in self.first]
        )

    def noisy(self, counts: Array, lead: tuple[int, ...], source: np.random.Generator | Bits) -> Array:
        """Independent noisy counts, shape `(*lead, *shape)`."""
        return noisy_counts(counts, self.noise_for(lead, source))

    def log_likelihood(self, output: Array, counts: Array) -> Array:
        """Logarithm of the probability of noisy counts, shape of the leading axes."""
        return np.asarray(self.noise.log_probability(self.lists(output - counts)).sum(axis=-1))

    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array) -> Array:
        """The same at one data set less that at another."""
        if self.noise.cell_noise is None:
            lists = (self.lists(outputs - counts) for counts in (x, y))
            return np.asarray(self.noise.log_ratio(*lists).sum(axis=-1))
        # Cells that do not change cancel exactly.
        changed = x != y
        seen = outputs[..., changed]
        return self.noise.log_ratio(seen - x[changed], seen - y[changed])


class NoisyMarginals(TableMechanism):
    """Release marginals of a table of counts, each plus a noise. The losses of several add up.

    A subclass is a frozen dataclass, which says what is measured, and with which noise.

    Attributes
    ----------
    prior : array, shape (..., d)
        The model's own prior; it says the shape of the table.
    """

    publishes: ClassVar[str] = "noisy_counts"
    instead: ClassVar[str] = ""
    """The mechanism for private numbers of records, where this one needs public ones."""
    prior: Array

    @property
    @abc.abstractmethod
    def noisy_marginals(self) -> tuple[NoisyMarginal, ...]:
        """What is published."""

    @abc.abstractmethod
    def _split(self, output: Array) -> list[Array]:
        """The noisy counts of each marginal in an output; leading axes stay."""

    @abc.abstractmethod
    def _joined(self, noisy: list[Array]) -> Array:
        """The output that consists of them."""

    @property
    def _relation(self) -> Adjacency:
        return adjacency_named(self.adjacency)

    def _refuse_private_totals(self) -> None:
        if self.needs_public_totals:
            self._relation.refuse_private_records(self.instead)

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return tuple(self.prior.shape)

    def _curves_of(self, axes: tuple[int, ...], noise: Noise) -> LossCurves:
        """Those of a marginal of these axes."""
        records, blocks = self.contributed.in_marginal(self.shape, axes)
        return noise.curves(blocks, records, round(self._relation.delta_1))

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
        every = range(self.prior.ndim)
        others = [
            tuple(lead + axis for axis in every if axis not in marginal.axes) for marginal in self.noisy_marginals
        ]
        return [counts.sum(axis=axes) if axes else counts for axes in others]

    @property
    @override
    def log_no_noise(self) -> float:
        nothing = [(marginal, np.zeros(marginal.shape)) for marginal in self.noisy_marginals]
        return math.fsum(min(float(marginal.log_likelihood(zeros, zeros)), 0.0) for marginal, zeros in nothing)

    def _checked(self, counts: ArrayLike) -> Array:
        """The counts as an array, or an error that does not show them."""
        return checked_counts(counts, self.shape)

    @override
    def check(self, counts: ArrayLike) -> None:
        self._checked(counts)

    @override
    def releases(
        self,
        counts: Array,
        n: int,
        *,
        sampler: str = "fast",
        random_seed: Seed = None,
        steps: int | None = None,
        at_once: int = 20_000,
    ) -> Array:
        rng, is_exact = generator(random_seed), self.checked_sampler(sampler) == "exact"
        sizes = [min(at_once, n - start) for start in range(0, n, at_once)]

        def drawn(marginal: NoisyMarginal, of_marginal: Array) -> Array:
            source = Bits(rng) if is_exact else rng
            return np.concatenate([marginal.noisy(of_marginal, (size,), source) for size in sizes])

        return self._joined(list(map(drawn, self.noisy_marginals, self.marginals_of(np.asarray(counts)))))

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        outputs, data = (np.asarray(numbers, dtype=np.float64) for numbers in (output, counts))
        parts = zip(self.noisy_marginals, self._split(outputs), self.marginals_of(data), strict=True)
        return np.asarray(sum(marginal.log_likelihood(seen, of_marginal) for marginal, seen, of_marginal in parts))

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        both = (self.marginals_of(np.asarray(counts, dtype=np.float64)) for counts in (x, y))
        parts = zip(self.noisy_marginals, self._split(outputs), *both, strict=True)
        return np.asarray(sum(marginal.log_likelihood_ratio(*seen) for marginal, *seen in parts))

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
    def worst_pair(self) -> tuple[Array, Array]:
        # Noise is the same in all cells. The two cells of a block lie apart along every axis where they may, so a
        # record that moves from one to the other changes every marginal. All of a person's records move in the same
        # way, which adds up.
        kinds = (*self.contributed.axes, "any")
        ends = [n if kind == "each" else 1 for kind, n in zip(kinds, self.shape, strict=True)]
        moves = []
        for first in np.ndindex(*ends):
            along = zip(kinds, self.shape, first, strict=True)
            last = [min(n - 1, 1) if kind == "any" else place for kind, n, place in along]
            moves.append((int(np.ravel_multi_index(first, self.shape)), int(np.ravel_multi_index(last, self.shape))))
        return worst_neighbours(np.zeros(self.shape), moves, self.contributed.records, self.adjacency)


def noisy_counts(counts: Array, noise: Whole, *, largest: float = 2.0**1000) -> Array:
    """Counts plus noise, clipped to the `largest`, which leaves room for sums of a table.

    Noise in Python's integers is added without rounding, and the sum is rounded to a double once.
    """
    if noise.dtype.kind == "f":
        return np.clip(counts + noise, -largest, largest)
    try:
        extra = noise.astype(np.int64)
    except OverflowError:
        extra = None
    # Counts are up to 2**53, so these sums are 64-bit numbers.
    if extra is not None and extra.min(initial=0) > -(2**62) and extra.max(initial=0) < 2**62:
        return (counts.astype(np.int64) + extra).astype(np.float64)
    most, whole = int(largest), np.broadcast_to(counts, noise.shape)
    sums = [
        max(-most, min(int(count) + z, most))
        for count, z in zip(whole.ravel().tolist(), noise.ravel().tolist(), strict=True)
    ]
    return np.array([float(value) for value in sums]).reshape(noise.shape)
