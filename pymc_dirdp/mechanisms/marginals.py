"""Noisy marginals of one table: each is a noisy table of its own, and their losses add up."""

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, Self, final, override

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MOST_RECORDS, checked_counts, integer, one_of, positive_array
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.base import Fact
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.outputs import Marginals, Output
from pymc_dirdp.mechanisms.table import TableMechanism, worst_neighbours
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import CurvesOf, NoLoss
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions, product_of
from pymc_dirdp.privacy.people import Contribution, adjacency_named
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.signatures import user_facing

NOISES = ("gaussian", "geometric")
"""The kinds of noise, as in `plan(mechanism=...)`."""


@user_facing
@dataclass(frozen=True, eq=False)
class MarginalsMechanism(CurvesOf, TableMechanism):
    """Release some marginals of a table of counts, each with independent integer noise of its own.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    marginals : sequence of sequences of int
        The axes that each marginal keeps, in rising order; its counts are summed over all others. No marginal stands
        there twice, or all of its axes have the length 1.
    parameters : sequence of float
        The parameter of the noise of each marginal: sigma, or the scale.
    noise : {"gaussian", "geometric"}, default "gaussian"
        The discrete Gaussian distribution, or the discrete Laplace distribution.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change.
    contribution : int or Contribution, default 1
        How many records a person holds in the table at most, and in which of its rows.

    Raises
    ------
    ArgumentError
        If a number is outside its domain, or a marginal is none of the table.

    Notes
    -----
    A record that moves changes at most two cells of each marginal by 1, and one that appears changes one. So each
    marginal is released by a mechanism for one row of counts, with its own curves, and the curves of all are those of
    their composition. Where a person has records in each entry of an axis, a marginal that keeps the axis has a block
    of cells for each entry, and a marginal that sums over it has all of these records in one block.

    References
    ----------
    McKenna, Miklau and Sheldon (2021), Winning the NIST contest, https://doi.org/10.29012/jpc.778, for measured
    marginals. The proof page of this class.

    Examples
    --------
    >>> mechanism = MarginalsMechanism([[1, 1, 1], [1, 1, 1]], [[1], [0, 1]], [5.0, 10.0])
    >>> mechanism.rho(8)
    0.05
    >>> {name: noisy.shape for name, noisy in mechanism.release([[3, 1, 0], [2, 2, 9]]).items()}
    {'noisy_counts_1': (3,), 'noisy_counts_0_1': (2, 3)}
    """

    prior: Array
    marginals: tuple[tuple[int, ...], ...]
    parameters: tuple[float, ...]
    noise: str = "gaussian"
    _: KW_ONLY
    adjacency: str = "replace-one"
    contribution: Contribution | int = 1

    kind = "marginals"
    publishes = "noisy_counts"
    formula = "shares fitted to the noisy counts of marginals of all tables"
    output_kind = Marginals
    facts = (
        Fact("prior", "prior", "table"),
        Fact("noise", "noise", "text"),
        Fact("marginals", "marginals", "list"),
        Fact("noise_parameters", "parameters", "list"),
        Fact("noise_sds", "noise_sds", "list", given=False),
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", positive_array(prior=self.prior))
        object.__setattr__(self, "adjacency", adjacency_named(self.adjacency).name)
        one_of(self._distributions(), noise=self.noise)
        adds = Contribution.of(self.contribution).fitted(self.prior.shape)
        if self.needs_public_totals and set(adds.axes) - {"any"}:
            raise ArgumentError(
                "Expected a contribution of records that may lie anywhere in the table, because a marginal adds up "
                "rows. Use MarginalsMechanism, whose noise is independent in each cell."
            )
        object.__setattr__(self, "contribution", adds)
        object.__setattr__(self, "marginals", self._checked_marginals())
        if len(self.parameters) != len(self.marginals):
            raise ArgumentError(
                f"Expected a parameter for each of {len(self.marginals)} marginals, got {len(self.parameters)}."
            )
        # What is used is what the mechanism of a marginal makes of it: a scale is rounded up.
        object.__setattr__(self, "parameters", tuple(map(float, self.parameters)))
        object.__setattr__(self, "parameters", tuple(part.parameter for part in self.parts))

    def _checked_marginals(self) -> tuple[tuple[int, ...], ...]:
        axes = self.prior.ndim
        marginals = tuple(tuple(integer(0, axis=axis) for axis in marginal) for marginal in self.marginals)
        if not marginals or len(set(marginals)) < len(marginals):
            raise ArgumentError("Expected marginals= to name at least one marginal, and none of them twice.")
        for marginal in marginals:
            if list(marginal) != sorted(set(marginal)) or not all(axis < axes for axis in marginal):
                raise ArgumentError(
                    f"Expected each marginal to list axes below {axes} in rising order, got {marginal}."
                )
            if self._cells(marginal) < 2:
                raise ArgumentError(f"Expected each marginal to have at least two cells, got the axes {marginal}.")
        return marginals

    @classmethod
    def _distributions(cls) -> dict[str, type[NoisyCounts]]:
        """The mechanism of a marginal, by the kind of its noise."""
        return {"gaussian": DiscreteGaussianMechanism, "geometric": GeometricMechanism}

    @classmethod
    def part(
        cls, cells: int, parameter: float, *, noise: str, adjacency: str, records: int, blocks: int = 1
    ) -> NoisyCounts:
        """The mechanism of one marginal, as a table of one row of cells, or of one row for each block of cells."""
        if blocks == cells:
            # A marginal of these axes alone: the records of all entries, taken as if they lay anywhere in it.
            records, blocks = records * blocks, 1
        shape, axes = (cells, ()) if blocks == 1 else ((blocks, cells // blocks), ("each",))
        facts = {"prior": np.ones(shape), "adjacency": adjacency, "contribution": Contribution(records, axes)}
        return cls._distributions()[noise].from_facts(facts | {"parameter": parameter})

    @cached_property
    def parts(self) -> tuple[NoisyCounts, ...]:
        """The mechanism of each marginal. The noise of all cells is alike, so rows are blocks in any order of cells."""
        adds = [self.contributed.in_marginal(self.prior.shape, marginal) for marginal in self.marginals]
        return tuple(
            self.part(
                self._cells(marginal),
                parameter,
                noise=self.noise,
                adjacency=self.adjacency,
                records=records,
                blocks=blocks,
            )
            for marginal, parameter, (records, blocks) in zip(self.marginals, self.parameters, adds, strict=True)
        )

    @cached_property
    @override
    def _curves(self) -> Composition:
        each = zip(self.marginals, self.parts, strict=True)
        losing = tuple((part.with_few_cells(), 1) for marginal, part in each if not self._is_fixed(marginal))
        return Composition(losing or ((NoLoss(), 1),))

    def _is_fixed(self, marginal: tuple[int, ...]) -> bool:
        return self.contributed.fixes_marginal(marginal, self.adjacency)

    @property
    @override
    def tells_rows(self) -> bool:
        return any(len(axes) > 1 for axes in self.marginals)

    @property
    @override
    def rests_on_totals(self) -> bool:
        return any(map(self._is_fixed, self.marginals))

    def _cells(self, marginal: tuple[int, ...]) -> int:
        return math.prod(self.prior.shape[axis] for axis in marginal)

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return tuple(self.prior.shape)

    @property
    def noise_sds(self) -> tuple[float, ...]:
        """The standard deviation of the noise in one cell of each marginal."""
        return tuple(part.noise_sd for part in self.parts)

    @property
    @override
    def marginals_with_noise(self) -> tuple[tuple[tuple[int, ...], float], ...]:
        return tuple(zip(self.marginals, self.noise_sds, strict=True))

    @property
    @override
    def log_no_noise(self) -> float:
        return math.fsum(part.log_no_noise for part in self.parts)

    @property
    @override
    def in_short(self) -> str:
        least, most = min(self.noise_sds), max(self.noise_sds)
        many = f"{len(self.marginals)} marginals" if len(self.marginals) > 1 else "1 marginal"
        spread = f"{least:.4g}" if math.isclose(least, most) else f"{least:.4g} to {most:.4g}"
        return f"{many} with {self._distribution_in_short} noise of standard deviation {spread}"

    @property
    def _distribution_in_short(self) -> str:
        return {"gaussian": "Gaussian"}.get(self.noise, self.noise)  # A name keeps its capital.

    @property
    @override
    def published_axes(self) -> dict[str, tuple[int, ...]]:
        return {f"{self.publishes}_{'_'.join(map(str, marginal))}": marginal for marginal in self.marginals}

    def marginals_of(self, counts: Array) -> list[Array]:
        """The counts of each marginal in the shape of its part; leading axes stay."""
        lead = counts.ndim - self.prior.ndim
        found = []
        for marginal, part in zip(self.marginals, self.parts, strict=True):
            others = tuple(lead + axis for axis in range(self.prior.ndim) if axis not in marginal)
            found.append(counts.sum(axis=others).reshape(*counts.shape[:lead], *part.shape))
        return found

    @override
    def separately(self, output: Array) -> list[tuple[TableMechanism, Array]]:
        ends = np.cumsum([self._cells(marginal) for marginal in self.marginals])[:-1]
        split = zip(self.parts, np.split(output, ends, axis=-1), strict=True)
        return [(part, seen.reshape(*seen.shape[:-1], *part.shape)) for part, seen in split]

    @override
    def check(self, counts: ArrayLike) -> None:
        self._checked(counts)

    def _checked(self, counts: ArrayLike) -> Array:
        table = checked_counts(counts, self.shape)
        # Sums over rows are exact below this.
        if sum(map(int, table.ravel().tolist())) > MOST_RECORDS:
            raise DataError("The counts add up to more than 2**53 records.")
        return table

    def release(self, counts: ArrayLike, *, sampler: str = "exact", random_seed: Seed = None) -> dict[str, Array]:
        """The noisy counts of each marginal by the name that a release gives them; arguments as for noisy tables."""
        # A generator moves on, so no two marginals share their noise.
        rng = None if random_seed is None else generator(random_seed)
        table = self._checked(counts)
        found = {}
        for part, of_marginal, (name, axes) in zip(
            self.parts, self.marginals_of(table), self.published_axes.items(), strict=True
        ):
            noisy = part.release(of_marginal, sampler=sampler, random_seed=rng)
            found[name] = noisy.reshape([self.prior.shape[axis] for axis in axes])
        return found

    @override
    def draw(
        self, counts: ArrayLike, draws: int, *, sampler: str, random_seed: Seed = None, n_records: int | None = None
    ) -> Marginals:
        return Marginals(self.release(counts, sampler=sampler, random_seed=random_seed), self.published_axes)

    @override
    def read_output(self, facts: Mapping[str, Any], table: str, *, draws: int, of_success: bool) -> Output:
        axes = self.published_axes
        shapes = {name: tuple(self.shape[axis] for axis in own) for name, own in axes.items()}
        return Marginals.read(facts, shapes, table, axes=axes)

    @property
    @override
    def draws_in_words(self) -> str:
        return (
            "the shares are one estimate, fitted to the noisy counts of all tables, and no draw; dirdp.analyse draws "
            "from the posterior given the noisy counts"
        )

    @override
    def releases(
        self, counts: Array, n: int, *, sampler: str = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        """The noisy counts of all marginals side by side: shape `(n, cells)`."""
        rng = generator(random_seed)
        each = zip(self.parts, self.marginals_of(np.asarray(counts, dtype=np.float64)), strict=True)
        drawn = [part.releases(of_marginal, n, sampler=sampler, random_seed=rng) for part, of_marginal in each]
        return np.concatenate([noisy.reshape(n, -1) for noisy in drawn], axis=-1)

    @override
    def worst_pair(self) -> tuple[Array, Array]:
        # The two cells of a block lie apart along every axis where they may, so a record that moves from one to the
        # other changes every marginal. All of a person's records move in the same way, which adds up.
        kinds = (*self.contributed.axes, "any")
        ends = [n if kind == "each" else 1 for kind, n in zip(kinds, self.shape, strict=True)]
        moves = []
        for first in np.ndindex(*ends):
            each = zip(kinds, self.shape, first, strict=True)
            last = [min(n - 1, 1) if kind == "any" else place for kind, n, place in each]
            moves.append((int(np.ravel_multi_index(first, self.shape)), int(np.ravel_multi_index(last, self.shape))))
        return worst_neighbours(np.zeros(self.shape), moves, self.contributed.records, self.adjacency)

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        return self._over_parts(
            np.asarray(output, dtype=np.float64),
            lambda part, seen, of_marginal: part.log_likelihood(seen, of_marginal),
            np.asarray(counts, dtype=np.float64),
        )

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        return self._over_parts(outputs, lambda part, seen, *both: part.log_likelihood_ratio(seen, *both), x, y)

    def _over_parts(self, outputs: Array, of: Callable[..., Array], *data: Array) -> Array:
        """The sum over marginals of a function of the mechanism, its outputs, and the marginals of some data sets."""
        marginals = [self.marginals_of(counts) for counts in data]
        each = zip(self.separately(outputs), *marginals, strict=True)
        return np.asarray(sum(of(part, seen, *tables) for (part, seen), *tables in each))

    @override
    def output_distributions(self, x: Array, y: Array, cells: int | None = None) -> FiniteDistributions:
        pairs = zip(self.parts, self.marginals_of(x), self.marginals_of(y), strict=True)
        return product_of([part.output_distributions(a, b, cells) for part, a, b in pairs if np.any(a != b)])

    @override
    def stronger(self, factor: float) -> tuple[str, Self]:
        less = tuple(parameter / factor for parameter in self.parameters)
        return "the same mechanism with less noise", replace(self, parameters=less)

    @override
    def cell_log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        self.refuse_inference()

    @override
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> NoReturn:
        self.refuse_inference()

    @override
    def refuse_inference(self) -> NoReturn:
        raise ArgumentError(
            "Marginals of a table say something of sums of its cells, so the likelihood is no product over cells. "
            "dirdp.analyse(release) and dirdp.estimate(release) take the marginals of all tables."
        )

    @override
    def is_on_grid(self, output: Array, steps: int | None) -> bool:
        return bool(np.array_equal(output, np.floor(output)))

    @classmethod
    @override
    def planned(cls, guarantee: Guarantee, *, n_records: int | None, **facts: Any) -> NoReturn:
        raise ArgumentError(
            "mechanism='marginals' divides one guarantee among marginals of all tables of a model, so it is planned "
            "for models alone: dirdp.plan(guarantee, model, mechanism='marginals')."
        )

    @classmethod
    @override
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """A file has lists, whose entries are checked here."""
        marginals, parameters = facts["marginals"], facts["parameters"]
        whole = all(
            isinstance(marginal, list | tuple) and all(type(axis) is int for axis in marginal) for marginal in marginals
        )
        if not whole or not all(type(parameter) in (int, float) for parameter in parameters):
            raise ArgumentError("Expected lists of axes, and a number for each.")
        return cls(**{**facts, "marginals": tuple(map(tuple, marginals)), "parameters": tuple(parameters)})


@user_facing
@final
@dataclass(frozen=True, eq=False)
class ZeroSumMarginalsMechanism(MarginalsMechanism):
    """Release some marginals of a table, each with geometric noise that adds up to 0.

    It is for tables whose number of records is public: each noisy marginal adds up to it. Parameters are those of
    :class:`MarginalsMechanism`, with `noise="geometric"`.

    Examples
    --------
    >>> mechanism = ZeroSumMarginalsMechanism([[1, 1, 1], [1, 1, 1]], [[1], [0, 1]], [8.0, 8.0])
    >>> mechanism.pure_epsilon
    0.5
    >>> [int(noisy.sum()) for noisy in mechanism.release([[3, 1, 0], [2, 2, 9]]).values()]
    [17, 17]
    """

    noise: str = "geometric"

    needs_public_totals = True

    @classmethod
    @override
    def _distributions(cls) -> dict[str, type[NoisyCounts]]:
        return {"geometric": ZeroSumGeometricMechanism}

    @property
    @override
    def _distribution_in_short(self) -> str:
        return "zero-sum geometric"
