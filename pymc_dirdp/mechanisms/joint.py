"""Joint noise for all tables of the same people: its density depends on the largest norm over the tables."""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NoReturn, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MAX_RECORDS, integer
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.literals import AdjacencyName, Sampler
from pymc_dirdp.mechanisms.base import FileField
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.noise import LEAST, MOST, Noise, Whole, round_scale_up
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts, records_between
from pymc_dirdp.mechanisms.outputs import BlockLikelihood, JointLikelihoods, RowLikelihood
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.numerics.balls import Ball, JointBalls
from pymc_dirdp.numerics.roots import log_ratio_to_budget, round_up, safe_root
from pymc_dirdp.privacy.bounded_loss import erased_responses
from pymc_dirdp.privacy.curves import LossCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.bits import Bits, Seed
from pymc_dirdp.sampling.drawing import AddedNoise, Once
from pymc_dirdp.sampling.geometric import fast_joint_noise, joint_noise
from pymc_dirdp.signatures import user_facing

type Block = tuple[int, int]
"""The number of cells of a block, and the number of records that a person has in it."""


@final
@dataclass(frozen=True)
class JointNoise(Noise):
    """`P[Z = z]` proportional to `exp(-max_k |z_k| / (records_k * scale))` over integer vectors z_k, one per block.

    The norm is the l1 norm, or half of it for vectors that add up to 0. Methods take the cells of all blocks
    concatenated, or of the first blocks only. In the second case the noise of the other blocks is summed out.

    Parameters
    ----------
    cells : sequence of int
        The number of cells of each block, at least 1, or 2 if their noise adds up to 0.
    scale : float
        Scale of the noise, positive. It is rounded up to 41 binary digits.
    records : int or sequence of int, default 1
        Maximum number of records of one person in each block.
    zero_sum : bool, default False
        Whether the noise of each block adds up to 0.

    Raises
    ------
    ArgumentError
        If a number is outside its domain.

    References
    ----------
    Hardt and Talwar (2010), On the geometry of differential privacy, https://doi.org/10.1145/1806689.1806786. Steinke
    and Ullman (2017), Between pure and approximate differential privacy, https://doi.org/10.29012/jpc.v7i2.648. The
    proof page of :class:`JointTableMechanism`.

    Examples
    --------
    >>> noise = JointNoise([2, 2, 2, 3], 4.0)
    >>> noise.curves(4, 1, changes=1).pure_epsilon
    0.25
    >>> [len(part) for part in noise.split(noise.exact((9,), Bits()))]
    [2, 2, 2, 3]
    """

    cells: tuple[int, ...]
    scale: float
    records: tuple[int, ...] | int = 1
    zero_sum: bool = False

    def __post_init__(self) -> None:
        cells = tuple(integer(1 + self.zero_sum, cells=d) for d in self.cells)
        if not cells:
            raise ArgumentError("Expected cells to list the number of cells of at least one block, got none.")
        records = self.records if isinstance(self.records, Sequence) else (self.records,) * len(cells)
        if len(records) != len(cells):
            raise ArgumentError(
                f"Expected records to be one number, or one for each of {len(cells)} blocks, got {len(records)}."
            )
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "records", tuple(integer(1, records=m) for m in records))
        object.__setattr__(self, "scale", round_scale_up(self.scale, least=LEAST, most=MOST))

    @property
    @override
    def name(self) -> str:
        return f"Joint{' zero-sum' * self.zero_sum}"

    @cached_property
    def balls(self) -> JointBalls:
        """The noise vectors of each block by their norm, and the radius that they share."""
        return _balls(self.blocks, self.scale, self.zero_sum)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The number of cells and the records of each block."""
        return tuple(zip(self.cells, self.records, strict=True))  # type: ignore[arg-type]  # A tuple, once it is made.

    @property
    def _lists(self) -> tuple[tuple[Ball, int], ...]:
        return tuple(zip(self.balls.balls, self.balls.records, strict=True))

    @override
    def curves(self, blocks: int, records: int, changes: int) -> LossCurves:
        """The curves of all blocks together, with the numbers of records that the noise has for each block.

        The bound is a chain of steps of one record in every block. If the numbers of records differ, the number of
        steps is their greatest common divisor. The maximum loss is the change of the norm, over the scale.
        """
        steps = 1 if self.zero_sum else changes
        parts = math.gcd(*self.balls.records)
        # Tables that share a noise have equal curves, whatever the order of its blocks.
        outside = _balls(tuple(sorted(self.blocks)), self.scale, self.zero_sum).step_outside
        u = round_up(1 / (parts * Fraction(self.scale)))
        return erased_responses(u, outside, steps * parts, 1, round_up(steps / Fraction(self.scale)))

    def split(self, table: ArrayLike) -> list[NDArray[Any]]:
        """Split the last axis into the cells of each block: of all blocks, or of the first ones."""
        cells = np.asarray(table)
        return np.split(cells, np.cumsum(self.cells[: self._blocks_in(cells.shape[-1]) - 1]), axis=-1)

    def _blocks_in(self, cells: int) -> int:
        """The number of first blocks that have this number of cells together."""
        ends = np.cumsum(self.cells)
        last = int(np.searchsorted(ends, cells))
        if last == len(ends) or ends[last] != cells:
            raise ArgumentError(f"Expected the cells of all blocks, {ends[-1]}, or of the first ones, got {cells}.")
        return last + 1

    @property
    @override
    def sd(self) -> float:
        """The standard deviation in one cell of the first block."""
        return math.sqrt(self.balls.variances[0])

    @property
    @override
    def free_variance(self) -> float:
        return self.sd**2 * self.cells[0] / max(self.cells[0] - self.zero_sum, 1)

    @override
    def fast(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return fast_joint_noise(self.balls, math.prod(shape[:-1]), rng, self._blocks_in(shape[-1])).reshape(shape)

    @override
    def exact(self, shape: tuple[int, ...], bits: Bits) -> Whole:
        first, lists = self._blocks_in(shape[-1]), range(math.prod(shape[:-1]))
        return np.stack([joint_noise(Fraction(self.scale), self._lists, bits, first) for _ in lists]).reshape(shape)

    def joint_likelihoods(self, output: ArrayLike) -> JointLikelihoods:
        """The likelihood of one output: a mixture over the latent radius, given which the blocks are independent.

        Parameters
        ----------
        output : array_like
            The noisy counts of all blocks concatenated, or of the first blocks only.

        Raises
        ------
        ArgumentError
            If the noise is so large that its radii are not listed.
        """
        radii, _, log_weights = self.balls.listed
        noisy = self.split(np.ravel(output))
        output_lists, other_lists = self._lists[: len(noisy)], Counter(self._lists[len(noisy) :])
        blocks = tuple(
            BlockLikelihood(ball, z, self.balls.limits(m, radii))
            for (ball, m), z in zip(output_lists, noisy, strict=True)
        )
        log_other_points = sum(
            count * ball.log_points(self.balls.limits(m, radii)) for (ball, m), count in other_lists.items()
        )
        return JointLikelihoods(radii, log_weights + log_other_points, blocks)

    @property
    def radius_log_weights(self) -> Array:
        """The log-weight of each radius of :meth:`joint_likelihoods` in the probability of a noise vector."""
        return self.balls.listed[2]

    @property
    def reaches(self) -> tuple[int, ...] | None:
        """The largest non-negligible norm of the noise of each block; None if radii are not listed."""
        balls = self.balls
        return tuple(int(balls.limits(m, balls.listed[0][-1])) for m in balls.records) if balls.is_listed else None

    def _distance(self, noise: Array) -> Array:
        """The maximum over blocks of the norm of the noise divided by the records."""
        parts = zip(self._lists, self.split(noise), strict=True)
        return np.asarray(np.max([ball.norm(z) / m for (ball, m), z in parts], axis=0))

    @override
    def log_probability(self, noise: Array) -> Array:
        if noise.shape[-1] == sum(self.cells):
            return np.asarray(-self._distance(noise) / self.scale - self.balls.log_normaliser)
        return self.joint_likelihoods(np.zeros(noise.shape[-1])).log_likelihood(self.split(-noise))

    @override
    def log_ratio(self, first: Array, second: Array) -> Array:
        with np.errstate(invalid="ignore"):
            if first.shape[-1] == sum(self.cells):
                # The normaliser, which is not computed for all scales, cancels.
                ratio: Array = (self._distance(second) - self._distance(first)) / self.scale
            else:
                ratio = self.log_probability(first) - self.log_probability(second)
        return np.nan_to_num(ratio, nan=0.0, posinf=1e300, neginf=-1e300)

    @override
    def log_pmf(self, noise: Array) -> NoReturn:
        _refuse_product()

    @property
    @override
    def cell_noise(self) -> None:
        """None, because the noise of different cells is dependent."""

    @override
    def distributions(self, shifts: Array) -> FiniteDistributions:
        raise ArgumentError(
            "The distribution of the output with joint noise is not available. Use audit, which samples it."
        )


@user_facing
@dataclass(frozen=True, eq=False)
class JointTableMechanism(NoisyCounts):
    """Release `counts + Z`, where the noise of the table is part of a joint noise.

    If a person has records in each row of the table, such as one answer to each item, each row is a block of cells. Any
    other table is one block. One guarantee covers all blocks of this table and of the tables that share its noise; it
    is not divided among them. If the number of records of each block is public, use
    :class:`ZeroSumJointTableMechanism`.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    scale : float
        Scale of the noise, positive. It is rounded up to 41 binary digits, and the attribute is the rounded number.
    noise_shared_with : sequence of (int, int, int), optional
        The blocks of the other tables that share the noise: the number of cells of a block, the records that a person
        has in it, and the number of such blocks, in rising order. None for a table by itself.
    adjacency : {"replace-one", "add-remove"}
        What one person can change: all of the person's records in all blocks.
    contribution : Contribution or int
        The records of a person: anywhere in the table, or, with `Contribution(m, ("each",))`, m in every row.
    postprocess
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`.

    Raises
    ------
    ArgumentError
        If all records of a person are in one row of the table, or a number is outside its domain.

    Notes
    -----
    The pure epsilon is `1 / scale`, or `2 / scale` under replace-one. It is exact for all blocks together and does not
    depend on their number. Independent noise of the same epsilon has up to 6 times the variance for blocks of two
    cells. The curves cover all tables of the joint noise. They are exact for one record in each block that is added or
    removed. For equal numbers of records they are bounds by a chain of such steps, and for unequal numbers they are
    those of randomised response. Gaussian noise is better for zero-concentrated privacy, and for many blocks at a small
    delta.

    References
    ----------
    The proof page of this class.

    Examples
    --------
    >>> item = JointTableMechanism([1, 1], 1.0, noise_shared_with=[(2, 1, 9)], adjacency="add-remove")
    >>> item.pure_epsilon, round(item.noise_sd**2, 1)
    (1.0, 77.0)
    """

    noise_shared_with: tuple[tuple[int, int, int], ...] | None = field(default=None, kw_only=True)
    scale: float

    kind: ClassVar[str] = "joint"
    formula: ClassVar[str] = (
        "exact draws from the posterior given the noisy counts, which share one latent radius: "
        "Dirichlet(x + prior), averaged over all counts x"
    )
    facts = (*NoisyCounts.facts, FileField("noise_shared_with", "noise_shared_with", "list", optional=True))  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.noise_shared_with is not None:
            object.__setattr__(self, "noise_shared_with", _checked_blocks(self.noise_shared_with))
        super().__post_init__()

    @classmethod
    @override
    def suits(cls, shape: Sequence[int], contribution: Contribution | int) -> bool:
        axes = Contribution.of(contribution).fitted(shape).axes
        return shape[-1] > 1 and (axes == ("each",) or set(axes) <= {"any"})

    @property
    def own_blocks(self) -> list[Block]:
        """The blocks of this table."""
        blocks = self.contributed.blocks(self.shape)
        return [(self.prior.size // blocks, self.contributed.records)] * blocks

    @override
    def noise_at(self, parameter: float) -> JointNoise:
        if not self.suits(self.prior.shape, self.contributed):
            raise ArgumentError(
                "Joint noise is for tables in which a person's records may lie anywhere, or in which a person has the "
                "same number of records in every row, such as items by answers; unit= declares this. Got shape "
                f"{self.prior.shape} with {', '.join(self.contributed.axes) or 'no'} rows. Pass "
                "mechanism='geometric' or 'auto'."
            )
        others = [(cells, records) for cells, records, times in self.noise_shared_with or () for _ in range(times)]
        return self._noise_of([*self.own_blocks, *others], parameter)

    def _noise_of(self, blocks: Sequence[Block], scale: float) -> JointNoise:
        cells, records = zip(*blocks, strict=True)
        return JointNoise(cells, scale, records, self.needs_public_totals)

    @cached_property
    def noise(self) -> JointNoise:
        """The joint noise of the blocks of this table, followed by the blocks that share it."""
        return self.noise_at(self.scale)

    @cached_property
    @override
    def shared_noise(self) -> JointNoise | None:
        return None if self.noise_shared_with is None else self._noise_of(sorted(self.noise.blocks), self.scale)

    @classmethod
    @override
    def sharing(
        cls,
        guarantee: Guarantee,
        tables: Sequence[tuple[ArrayLike, Contribution | int]],
        *,
        adjacency: AdjacencyName = "replace-one",
    ) -> "list[TableMechanism]":
        facts: dict[str, Any] = {"scale": 1.0, "adjacency": adjacency}
        alone = [cls(prior=np.asarray(prior), contribution=adds, **facts) for prior, adds in tables]
        blocks = sum((Counter(table.own_blocks) for table in alone), Counter[Block]())

        def other_blocks(table: JointTableMechanism) -> tuple[tuple[int, int, int], ...] | None:
            others = (blocks - Counter(table.own_blocks)).items()
            return tuple(sorted((*block, times) for block, times in others)) or None

        shared = [dataclasses.replace(table, noise_shared_with=other_blocks(table)) for table in alone]
        scale = shared[0].calibrated(Guarantee.checked(guarantee=guarantee)).scale
        return [dataclasses.replace(table, scale=scale) for table in shared]

    @override
    def shares_with(self, others: Sequence[TableMechanism]) -> bool:
        tables = [table for other in others if (table := JointTableMechanism.of(other)) is not None]
        blocks = [block for table in (self, *tables) for block in table.own_blocks]
        return (
            len(tables) == len(others)
            and all((table.shared_noise, table.adjacency) == (self.shared_noise, self.adjacency) for table in tables)
            and sorted(blocks) == sorted(self.noise.blocks)
        )

    @override
    def prepare_together(
        self,
        others: Sequence["JointTableMechanism"],  # type: ignore[override]  # Anyone who shares its noise is of its class.
        *,
        sampler: Sampler,
        random_seed: Seed = None,
    ) -> list[AddedNoise]:
        if not self.shares_with(others):
            raise ArgumentError("Expected exactly the tables that share one joint noise.")
        tables = [self, *others]
        sizes = [table.prior.size for table in tables]
        joint = self._noise_of([block for table in tables for block in table.own_blocks], self.scale)
        noise = joint.draw((sum(sizes),), self._source(sampler, random_seed))
        parts = np.split(noise, np.cumsum(sizes)[:-1])
        return [
            AddedNoise(table.shape, 0.0, None, (((), Once(part.reshape(table.shape))),))
            for table, part in zip(tables, parts, strict=True)
        ]

    @override
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> list[RowLikelihood]:
        _refuse_product()

    @cached_property
    def equivalent_alone(self) -> NoisyCounts:
        """A mechanism for this table only whose noise has the same standard deviation."""
        kind = ZeroSumGeometricMechanism if self.needs_public_totals else GeometricMechanism
        alone = kind(self.prior, self.scale, contribution=self.contribution)
        # Noise of small scales is 0 in doubles.
        sd, least, most = self.noise_sd, max(self.scale / 10, LEAST), 10 * self.scale * self.noise.balls.dimension
        scale = safe_root(lambda scale: log_ratio_to_budget(alone.noise_at(scale).sd, sd), safe=least, unsafe=most)
        return dataclasses.replace(alone, scale=scale)

    @property
    @override
    def row_noise(self) -> Noise | None:
        """Geometric noise of the same standard deviation.

        The error of estimates is nearly the same, because it depends mostly on the size of the noise. For tables of two
        and four cells, 100 and 1000 records and epsilon 0.1 to 3, the divergences were within 7 % of simulations with a
        flat prior, and within 15 % with a prior of 0.1. None if exact sums over the counts of a block would take more
        than about a second: blocks of more than two cells with noise above 150, or of more than 50 cells.
        """
        reaches, cells = self.noise.reaches, self.noise.cells[0]
        is_fast = reaches is not None and (cells <= 2 or (cells <= 50 and reaches[0] <= 150))
        return self.equivalent_alone.noise if is_fast else None

    @override
    def joint_rows(self, output: Array) -> JointLikelihoods:
        if output.shape != self.shape:
            raise ArgumentError(f"Expected an output of shape {self.shape}, got {output.shape}. Reshape it.")
        return self.noise.joint_likelihoods(output)

    @override
    def possible_records(self, output: Array) -> range:
        """The possible numbers of records of a block; the sum of its noise is at most the norm."""
        totals = output.reshape(len(self.own_blocks), -1).sum(axis=1)
        reach = MAX_RECORDS if self.noise.reaches is None else self.noise.reaches[0]
        return records_between(totals.min() - reach, totals.max() + reach)


@user_facing
@final
@dataclass(frozen=True, eq=False)
class ZeroSumJointTableMechanism(JointTableMechanism):
    """Release `counts + Z`, where the noise of the table is part of a joint noise that adds up to 0 in each block.

    It is for blocks with public numbers of records: the noisy counts of a block add up to its number. The parameters
    are those of :class:`JointTableMechanism`, with `adjacency="replace-one"`.

    Notes
    -----
    The pure epsilon is `1 / scale`. For ten blocks of two cells at epsilon 1 the variance of a cell is 43.9, where
    independent noise has 199.8.

    Examples
    --------
    >>> import numpy as np
    >>> survey = ZeroSumJointTableMechanism(np.ones((10, 2)), 1.0, contribution=Contribution(1, ("each",)))
    >>> survey.pure_epsilon, round(survey.noise_sd**2, 1)
    (1.0, 43.9)
    >>> item = ZeroSumJointTableMechanism([1, 1], 1.0, noise_shared_with=[(2, 1, 9)])
    >>> item.pure_epsilon, round(item.noise_sd**2, 1)
    (1.0, 43.9)
    """

    needs_public_totals: ClassVar[bool] = True
    instead: ClassVar[str] = "JointTableMechanism"


@lru_cache(maxsize=8)
def _balls(blocks: tuple[Block, ...], scale: float, zero_sum: bool) -> JointBalls:
    """The balls of a joint noise, cached, because all tables of a plan need the same radii, up to a million."""
    cells, records = zip(*blocks, strict=True)
    return JointBalls(tuple(Ball(d, zero_sum) for d in cells), records, scale)


def _refuse_product() -> NoReturn:
    raise ArgumentError(
        "The likelihood of joint noise is not a product over cells or rows. Use log_likelihood or joint_rows."
    )


def _checked_blocks(noise_shared_with: Any, *, most: int = 10**5) -> tuple[tuple[int, int, int], ...]:
    """Validate blocks of other tables; the maximum number prevents a short file from taking seconds to load."""
    if not isinstance(noise_shared_with, list | tuple) or not all(
        isinstance(block, list | tuple) and len(block) == 3 for block in noise_shared_with
    ):
        raise ArgumentError(
            "Expected noise_shared_with to list the cells, the records and the number of blocks of other tables."
        )
    checked = tuple(
        (integer(2, cells=cells), integer(1, records=records), integer(1, blocks=times))
        for cells, records, times in noise_shared_with
    )
    kinds = [block[:2] for block in checked]
    if not checked or kinds != sorted(set(kinds)) or sum(times for *_, times in checked) > most:
        raise ArgumentError(
            "Expected noise_shared_with to list at least one kind of block, each once in rising order, and at most "
            f"{most} blocks."
        )
    return checked
