"""Joint noise: several tables of the same people take one noise, whose largest norm over all tables decides."""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import checked_counts, integer, within
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.noisy_counts import LEAST, MOST, adds_up_to_0, round_scale_up
from pymc_dirdp.mechanisms.outputs import NoisyTable, Output
from pymc_dirdp.mechanisms.table import worst_neighbours
from pymc_dirdp.numerics.balls import Ball, JointBalls
from pymc_dirdp.numerics.roots import largest_safe, log_excess, round_up
from pymc_dirdp.privacy.bounded_loss import erased_responses
from pymc_dirdp.privacy.curves import CurvesOf, PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_named
from pymc_dirdp.sampling.bits import Bits, Seed, generator
from pymc_dirdp.sampling.geometric import fast_joint_noise, joint_noise
from pymc_dirdp.signatures import user_facing

# A released number is at most this, which noise of no scale gets near to.
_LARGEST = 2**1000


@final
@dataclass(frozen=True, eq=False)
class BlockLikelihood:
    """What a joint release says of the counts of one table, given the latent radius.

    Attributes
    ----------
    ball : Ball
        The norm of the table's noise.
    noisy : array, shape (d,)
        The noisy counts of this table.
    limits : array of int, shape (radii,)
        Given the radius, counts are possible if the norm of the noise is at most this, and all of those are as likely.
    """

    ball: Ball
    noisy: Array
    limits: Integers

    def norm(self, counts: ArrayLike) -> Array:
        """The norm of the noise if these were the counts, shape of their leading axes; `inf` if they are impossible."""
        return _norm(self.noisy - np.asarray(counts, dtype=np.float64), self.ball.zero_sum)


@final
@dataclass(frozen=True, eq=False)
class JointLikelihoods:
    """The likelihood of a joint release as a mixture over its latent radius; given that, tables are independent.

    It is the sum over i of `exp(log_weights[i])` times the product over blocks of 1 where the norm is at most
    `limits[i]`, and 0 elsewhere.

    Attributes
    ----------
    radii : array of int, shape (radii,)
        In units of one over the least common multiple of the records. Radii with a probability below exp(-80) together
        are left out.
    log_weights : array, shape (radii,)
    blocks : tuple of BlockLikelihood
        One for each table.
    """

    radii: Integers
    log_weights: Array
    blocks: tuple[BlockLikelihood, ...]

    def log_likelihood(self, counts: Sequence[ArrayLike]) -> Array:
        """Logarithm of the probability of the release given the counts of each table; leading axes broadcast."""
        norms = np.broadcast_arrays(*(block.norm(c) for block, c in zip(self.blocks, counts, strict=True)))
        # From the first radius at which all tables are possible on.
        tails = np.append(np.logaddexp.accumulate(self.log_weights[::-1])[::-1], -np.inf)
        firsts = [np.searchsorted(block.limits, norm) for block, norm in zip(self.blocks, norms, strict=True)]
        return np.asarray(tails[np.max(firsts, axis=0)])


@user_facing
@dataclass(frozen=True, eq=False)
class JointMechanism(CurvesOf, Mechanism):
    """Release `counts + Z` for several tables of the same people, where tables share one budget and not divide it.

    `P[Z = z]` is proportional to `exp(-max_k |z_k| / (records_k * scale))` over lists of integers, with the l1 norm of
    each table. It is for private numbers of records. Where those of each table are public, take
    :class:`ZeroSumJointMechanism`, which is less noisy at the same guarantee.

    Parameters
    ----------
    cells : sequence of int
        The number of cells of each table, at least 1. Counts and outputs are the cells of all tables side by side.
    scale : float
        Scale of the noise, positive. It is rounded up to 41 binary digits, and the attribute is the number that is
        used.
    records : int or sequence of int, default 1
        How many records one person has in each table, at most.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change: all of the person's records in all tables.

    Raises
    ------
    ArgumentError
        If a number is outside its domain.

    Notes
    -----
    The pure epsilon is `1 / scale`, or `2 / scale` under replace-one where a table has several cells, whatever the
    number of tables, and it is exact.
    Independent noise of the same epsilon has up to 6 times the variance for tables of two cells. The other curves are
    exact for one record in each table that is added or removed, and for equal numbers of records they are bounds by a
    chain of such steps; for unequal ones they are those of randomised response. For zero-concentrated privacy, and for
    many tables at a small delta, Gaussian noise is better.

    References
    ----------
    Hardt and Talwar (2010), On the geometry of differential privacy, https://doi.org/10.1145/1806689.1806786. Steinke
    and Ullman (2017), Between pure and approximate differential privacy, https://doi.org/10.29012/jpc.v7i2.648. The
    proof page of this class.

    Examples
    --------
    >>> mechanism = JointMechanism([2, 2, 2, 3], 4.0, adjacency="add-remove")
    >>> mechanism.pure_epsilon
    0.25
    >>> [len(noisy) for noisy in mechanism.split(mechanism.release([3, 1, 2, 2, 0, 4, 1, 1, 2]))]
    [2, 2, 2, 3]
    """

    cells: tuple[int, ...]
    scale: float
    _: KW_ONLY
    records: int | tuple[int, ...] = 1
    adjacency: str = "replace-one"

    output_kind: ClassVar[type[Output]] = NoisyTable
    zero_sum: ClassVar[bool] = False
    """Whether the noise of each table adds up to 0."""

    def __post_init__(self) -> None:
        cells = tuple(integer(1 + self.zero_sum, cells=d) for d in self.cells)
        if not cells:
            raise ArgumentError("Expected cells to list the number of cells of at least one table, got none.")
        records = self.records if isinstance(self.records, Sequence) else (self.records,) * len(cells)
        if len(records) != len(cells):
            raise ArgumentError(
                f"Expected records to be one number, or one for each of {len(cells)} tables, got {len(records)}."
            )
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "records", tuple(integer(1, records=m) for m in records))
        object.__setattr__(self, "adjacency", adjacency_named(self.adjacency).name)
        used = round_scale_up(self.scale)
        within(LEAST, MOST, scale=used)
        object.__setattr__(self, "scale", used)

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        *,
        cells: Sequence[int],
        records: int | Sequence[int] = 1,
        adjacency: str = "replace-one",
    ) -> Self:
        """The mechanism with the least noise that keeps `guarantee`; arguments as for the mechanism itself.

        Examples
        --------
        >>> from pymc_dirdp import PureDP
        >>> round(ZeroSumJointMechanism.for_guarantee(PureDP(epsilon=1), cells=[2] * 10).noise_sd ** 2, 1)
        43.9
        """
        Guarantee.checked(guarantee=guarantee)

        people = records if isinstance(records, int) else tuple(records)
        # What is wrong with the arguments is no matter of the scale.
        one = cls(tuple(cells), 1.0, records=people, adjacency=adjacency)

        def excess(inverse: float) -> float:
            return log_excess(*dataclasses.replace(one, scale=1 / inverse).loss(guarantee))

        return dataclasses.replace(one, scale=1 / largest_safe(excess))

    @cached_property
    def _balls(self) -> JointBalls:
        return JointBalls(tuple(Ball(d, self.zero_sum) for d in self.cells), self._records, self.scale)

    @property
    def _records(self) -> tuple[int, ...]:
        return self.records  # type: ignore[return-value]  # A tuple, once the mechanism is made.

    @property
    def _changes(self) -> int:
        """By how many times its records one person can change the norm of a table."""
        # In a table of one cell a record has no other cell to move to: a replaced person changes the number alone.
        return 1 if self.zero_sum or max(self.cells) == 1 else round(adjacency_named(self.adjacency).delta_1)

    @cached_property
    @override
    def _curves(self) -> PrivacyCurves:
        """Steps of one record in every table; if their numbers are unequal, as many steps as divide all of them."""
        parts = math.gcd(*self._records)
        u = round_up(1 / (parts * Fraction(self.scale)))
        return erased_responses(u, self._balls.step_outside, self._changes * parts, 1, self.pure_epsilon)

    @property
    @override
    def pure_epsilon(self) -> float:
        """The largest loss of an output: how far the norm moves, over the scale."""
        return round_up(self._changes / Fraction(self.scale))

    @property
    def shape(self) -> tuple[int]:
        """The shape of counts and outputs: the cells of all tables side by side."""
        return (sum(self.cells),)

    def split(self, table: ArrayLike) -> list[Array]:
        """The cells of each table, along the last axis."""
        return np.split(np.asarray(table, dtype=np.float64), np.cumsum(self.cells)[:-1], axis=-1)

    @property
    def noise_sds(self) -> tuple[float, ...]:
        """The standard deviation of the noise in one cell of each table."""
        return tuple(map(math.sqrt, self._balls.variances))

    @property
    @override
    def noise_sd(self) -> float | None:
        return self.noise_sds[0] if len(self._balls.kinds) == 1 else None

    @property
    @override
    def in_short(self) -> str:
        least, most = min(self.noise_sds), max(self.noise_sds)
        spread = f"{least:.4g}" if math.isclose(least, most) else f"{least:.4g} to {most:.4g}"
        many = f"{len(self.cells)} tables" if len(self.cells) > 1 else "1 table"
        zero = "zero-sum " if self.zero_sum else ""
        return f"{many} with joint {zero}noise of standard deviation {spread}"

    def release(self, counts: ArrayLike, *, sampler: str = "exact", random_seed: Seed = None) -> Array:
        """The noisy counts of all tables side by side: what the guarantee is about. They may be negative.

        Parameters
        ----------
        counts : array_like of integers, shape `shape`
            The secret. Errors never show it.
        sampler : {"exact", "fast"}, default "exact"
            `"exact"` draws in integers with bits of the operating system; the sums are rounded to doubles once.
            `"fast"` draws in floating point with NumPy: nearly the same distribution, and how nearly is not proved.
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.

        Notes
        -----
        The running time depends on the noise, and not on the counts.
        """
        table = checked_counts(counts, self.shape)
        released: Array = self.releases(table, 1, sampler=sampler, random_seed=random_seed)[0]
        return released

    @override
    def releases(
        self, counts: Array, n: int, *, sampler: str = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        """Independent outputs of all tables side by side; of the first ones, if the counts are theirs alone."""
        first = self._tables_in(counts.size)
        if self.checked_sampler(sampler) == "fast":
            return np.asarray(counts + fast_joint_noise(self._balls, n, generator(random_seed), first))
        bits = Bits(None if random_seed is None else generator(random_seed))
        whole = [int(count) for count in counts.tolist()]

        def noisy() -> list[float]:
            noise = self.exact_noise(bits, first).tolist()
            return [float(max(-_LARGEST, min(c + z, _LARGEST))) for c, z in zip(whole, noise, strict=True)]

        return np.array([noisy() for _ in range(n)])

    def exact_noise(self, bits: Bits, first: int | None = None) -> NDArray[np.object_]:
        """Noise of all tables side by side, or of the first, as Python's integers, exactly as the curves have it."""
        blocks = tuple(zip(self._balls.balls, self._records, strict=True))
        return joint_noise(Fraction(self.scale), blocks, bits, first)

    def joint_likelihoods(self, output: ArrayLike) -> JointLikelihoods:
        """What one output says of the counts: a mixture over the latent radius, given which tables are independent.

        Parameters
        ----------
        output : array_like, shape `shape`, or that of a table with one row for each
            From :meth:`release`. If it holds the first tables alone, the noise of the others is summed over.

        Returns
        -------
        likelihoods : JointLikelihoods

        Raises
        ------
        ArgumentError
            If the noise is so large that its radii are not listed.
        """
        radii, _, log_weights = self._balls.listed
        cells = np.ravel(output)
        known = self._tables_in(cells.size)
        blocks = tuple(
            BlockLikelihood(ball, noisy, self._balls.limits(m, radii))
            for ball, noisy, m in zip(
                self._balls.balls[:known],
                np.split(cells, np.cumsum(self.cells[: known - 1])),
                self._records[:known],
                strict=True,
            )
        )
        summed = Counter(zip(self._balls.balls[known:], self._records[known:], strict=True))
        others = sum(many * ball.log_points(self._balls.limits(m, radii)) for (ball, m), many in summed.items())
        return JointLikelihoods(radii, log_weights + others, blocks)

    def _tables_in(self, cells: int) -> int:
        """How many tables have so many cells together, from the first on."""
        ends = np.cumsum(self.cells)
        known = int(np.searchsorted(ends, cells))
        if known == len(ends) or ends[known] != cells:
            raise ArgumentError(f"Expected the cells of all tables, {ends[-1]}, or of the first ones, got {cells}.")
        return known + 1

    @property
    def radius_log_weights(self) -> Array:
        """The logarithm of what each radius of :meth:`joint_likelihoods` adds to the probability of a noise."""
        return self._balls.listed[2]

    @property
    def reaches(self) -> tuple[int, ...] | None:
        """The largest norm of the noise of each table, but for negligible ones; None if radii are not listed."""
        balls = self._balls
        return tuple(int(balls.limits(m, balls.listed[0][-1])) for m in self._records) if balls.is_listed else None

    @override
    def public_records(self, n_records: int | None) -> int | None:
        is_private = n_records is None and not adjacency_named(self.adjacency).records_are_public
        return None if is_private else super().public_records(n_records)

    @override
    def joint_rows(self, output: Array) -> JointLikelihoods:
        if output.shape != (len(self.cells), self.cells[0]) or len(set(self.cells)) > 1:
            raise ArgumentError(
                f"Expected an output of {len(self.cells)} tables with as many cells each, one in each row. Reshape it; "
                "for tables of different sizes take joint_likelihoods."
            )
        return self.joint_likelihoods(output)

    @property
    @override
    def free_variance(self) -> float | None:
        sd, cells = self.noise_sd, self.cells[0]
        return None if sd is None else sd**2 * cells / max(cells - self.zero_sum, 1)

    @property
    def dimension(self) -> int:
        """How many numbers of the noise are free."""
        return self._balls.dimension

    def _distance(self, noise: Array) -> Array:
        """The largest norm of the noise over the records."""
        each = zip(self.split(noise), self._records, strict=True)
        return np.asarray(np.max([_norm(z, self.zero_sum) / m for z, m in each], axis=0))

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        """The logarithm of the probability of an output of all tables; or of the first ones, the others summed over."""
        noise = np.asarray(output, dtype=np.float64) - np.asarray(counts, dtype=np.float64)
        if noise.shape[-1] == sum(self.cells):
            return np.asarray(-self._distance(noise) / self.scale - self._balls.log_normaliser)
        seen = self.joint_likelihoods(np.zeros(noise.shape[-1]))
        return seen.log_likelihood(np.split(-noise, np.cumsum(self.cells[: len(seen.blocks) - 1]), axis=-1))

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        with np.errstate(invalid="ignore"):
            if outputs.shape[-1] == sum(self.cells):
                # The normaliser, which is not known for noise of any scale, cancels.
                ratio: Array = (self._distance(outputs - y) - self._distance(outputs - x)) / self.scale
            else:
                ratio = self.log_likelihood(outputs, x) - self.log_likelihood(outputs, y)
        return np.nan_to_num(ratio, nan=0.0, posinf=1e300, neginf=-1e300)

    @override
    def worst_pair(self) -> tuple[Array, Array]:
        x, y = np.zeros(self.shape), np.zeros(self.shape)
        for end, d, m in zip(np.cumsum(self.cells).tolist(), self.cells, self._records, strict=True):
            more, less = worst_neighbours(np.zeros(self.shape), [(end - d, end - 1)], m, self.adjacency)
            x, y = x + more, y + less
        return x, y

    @override
    def stronger(self, factor: float) -> tuple[str, Self]:
        return "the same mechanism with less noise", dataclasses.replace(self, scale=self.scale / factor)


@user_facing
@final
@dataclass(frozen=True, eq=False)
class ZeroSumJointMechanism(JointMechanism):
    """Release `counts + Z` for several tables whose numbers of records are public; the noise of each adds up to 0.

    `P[Z = z]` is proportional to `exp(-max_k |z_k| / (2 records_k scale))` over lists of integers of which each table's
    add up to 0. Parameters are those of :class:`JointMechanism`, with `adjacency="replace-one"` and tables of at least
    two cells. A person's records in a table may move within it, but keep their number.

    Notes
    -----
    The pure epsilon is `1 / scale`. For one table this is :class:`ZeroSumGeometricMechanism` at twice the scale. Ten
    tables of two cells have a variance of 43.9 at epsilon 1, where independent noise has 199.8.

    Examples
    --------
    >>> mechanism = ZeroSumJointMechanism([2, 3], 1.0)
    >>> [int(noisy.sum()) for noisy in mechanism.split(mechanism.release([3, 1, 2, 2, 0]))]
    [4, 4]
    """

    zero_sum: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        adjacency_named(self.adjacency).refuse_private_records("JointMechanism")

    @override
    def published_totals(self, output: Array) -> list[tuple[NDArray[np.intp], float]]:
        parts = self.split(np.ravel(output))
        return [(np.array([row]), float(part.sum())) for row, part in enumerate(parts)]


def _norm(noise: Array, zero_sum: bool) -> Array:
    """The norm along the last axis; of noise that should add up to 0 half the l1 norm, infinite where it does not."""
    norm = np.abs(noise).sum(axis=-1)
    return np.asarray(np.where(adds_up_to_0(noise), norm / 2, np.inf) if zero_sum else norm)
