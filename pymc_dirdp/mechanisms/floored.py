"""The floored Dirichlet mechanism: a draw whose intensities stay above a public floor."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincc, gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MOST_RECORDS, at_least, checked_counts, integer, positive, positive_array, within
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.base import Fact
from pymc_dirdp.mechanisms.outputs import ONE_DRAW, Draws, Output, RowLikelihood, RowsSeen
from pymc_dirdp.mechanisms.table import TableMechanism, blocks, worst_neighbours
from pymc_dirdp.numerics.gamma import log_mass
from pymc_dirdp.privacy.curves import CurvesOf, PrivacyCurves
from pymc_dirdp.privacy.floored import STEPS, floored_curves
from pymc_dirdp.privacy.people import Contribution, adjacency_named
from pymc_dirdp.sampling.bits import Bits, Seed, generator
from pymc_dirdp.sampling.floored import cells_of, exact_floored, fast_floored, flint, intensities
from pymc_dirdp.signatures import user_facing

__all__ = ["FlooredDirichletMechanism", "FlooredDistribution", "floored_pair"]


# What an intensity says of a count is looked at in so many places, so many standard deviations far.
_POINTS, _REACH = 64, 12.0
# A probability that SciPy computes with all digits.
_RARE = 1e-200


@final
@dataclass(frozen=True)
class FlooredDistribution:
    """Gamma distributions with parameters `r * counts + alpha`, given that they lie between a floor and a ceiling.

    Attributes
    ----------
    r, floor : float
    ceiling : float
        Infinite if there is none.
    """

    r: float
    floor: float
    ceiling: float

    def log_density(self, g: Array, counts: Array, alpha: Array) -> Array:
        """The logarithm of the density of intensities g. Shapes broadcast."""
        a = alpha + self.r * counts
        return np.asarray((a - 1) * np.log(g) - g - self._log_mass(a))

    def _log_likelihood(self, counts: Array, g: Array, alpha: Array) -> Array:
        return self.log_density(g, counts, alpha)

    def _log_mass(self, a: Array) -> Array:
        """The logarithm of the normaliser: quickly where SciPy's function is precise, by quadrature elsewhere."""
        if np.isfinite(self.ceiling):
            return log_mass(a, self.floor, self.ceiling)
        above = np.asarray(gammaincc(a, self.floor))
        found, rare = np.array(gammaln(a) + np.log(np.maximum(above, _RARE))), above < _RARE
        found[rare] = log_mass(a[rare], self.floor)
        return found

    def row_likelihood(self, g: Array, alpha: Array) -> RowLikelihood:
        """One row of intensities as a function of its counts. Shapes (d,)."""
        return RowLikelihood(
            lambda counts, cells: self.log_density(g[cells], counts, alpha[cells]), np.zeros_like, smooth=True
        )

    def rows_seen(self, g: Array, alpha: Array) -> RowsSeen:
        """What rows of intensities, each of another table, say of their counts. Shapes (rows, d)."""
        reach = _REACH * np.sqrt(g) / self.r + 1
        low, high = np.maximum(g / self.r - reach, 0), g / self.r + reach

        points = low + (high - low) * np.linspace(0, 1, _POINTS)[:, None, None]
        logs = self.log_density(g, points, alpha)
        mass = np.exp(logs - logs.max(axis=0))
        mass /= mass.sum(axis=0)
        mean = (mass * points).sum(axis=0)
        variance = (mass * (points - mean) ** 2).sum(axis=0)
        spread = float(np.sqrt(variance.sum(axis=-1)).mean())
        return RowsSeen(low, high, self._log_likelihood, (g, alpha), mean.sum(axis=-1), spread)


def floored_pair(
    alpha: Array, r: float, floor: float, moving: Sequence[NDArray[np.intp]], numbers: Sequence[int]
) -> tuple[Array, list[tuple[int, int]]]:
    """The counts of those who stay, and for each block the two cells between which a record moves.

    Parameters
    ----------
    alpha, r, floor
        As of the mechanism.
    moving : sequence of array of int
        The cells of each block of one person's records.
    numbers : sequence of int
        The public number of records of each row of two categories; none if they are unknown.
    """
    # The loss is largest a little above the floor: nearly there for the cell that gains, further up for the other.
    near, far = (floor + k * math.sqrt(floor) for k in (1, 4))
    base = np.zeros(alpha.shape)
    moves = []
    for cells in moving:
        found = _worst_cells(cells, (near + far) / r, numbers)
        if found is None:
            continue
        a, b = found
        for cell, intensity in ((a, near), (b, far)):
            base.flat[cell] = max(round((intensity - alpha.flat[cell]) / r), 0)
        moves.append((a, b))
    rows = base.reshape(-1, base.shape[-1])
    for row, number in enumerate(numbers):
        leaving = sum(cell // 2 == row for cell, _ in moves)
        rows[row, 0] = min(rows[row, 0], max(number - leaving, 0))
        rows[row, 1] = number - leaving - rows[row, 0]
    return base, moves


def _worst_cells(cells: NDArray[np.intp], together: float, numbers: Sequence[int]) -> tuple[int, int] | None:
    """Two cells of a block between which a record moves; None if there is no record.

    Where rows' numbers are public they are those of a row. The worst one has about so many records together as the
    worst counts of any number.
    """
    if not numbers:
        return int(cells[0]), int(cells[1])
    rows = [row for row in cells.reshape(-1, 2).tolist() if numbers[row[0] // 2]]
    if not rows:
        return None
    a, b = min(rows, key=lambda row: abs(math.log(numbers[row[0] // 2] / together)))
    return a, b


# Between these the curves, the distribution and the grid can be computed.
_RANGE = 1e-3, 1e4
# What a cell of the grid adds to an intensity at most.
_LAST_CELL = 1 + 2.0**-36


@user_facing
@final
@dataclass(frozen=True, eq=False)
class FlooredDirichletMechanism(CurvesOf, TableMechanism):
    """Release intensities `G_i`, which are `Gamma(r * counts_i + alpha_i)` given that they lie above a public floor.

    The draw of the shares is `G_i / sum(G)`, or `(G_i - c) / sum(G - c)` with a public c below the floor, which makes
    up for what the floor adds to cells that are nearly empty. Without a floor it would be a draw from
    `Dirichlet(r * counts + alpha)`, whose worst loss comes from shares near 0. The floor takes these away, so that at
    the same guarantee `r` is larger and the draw is 1.6 to 3.5 times closer to the frequencies than a Dirichlet draw
    (noise on counts is closer still), and it keeps zero-concentrated differential privacy, which no continuous
    Dirichlet draw without a floor does. The curves are those of the intensities. In one row under replace-one the loss
    depends on the shares alone, so that the intensities cost nothing more there; and from them more is inferred,
    because their distribution is a product over cells.

    Parameters
    ----------
    alpha : array_like, shape (..., d)
        Parameters of the distribution, between 1e-3 and 1e4. They are no prior of the model: small ones cost nothing.
        The leading axes are the rows of the table.
    r : float
        How much one record counts, between 1e-9 and 100.
    floor : float
        What no intensity is below, between 1e-3 and 1e4.
    ceiling : float, optional
        What no intensity is above, if there is such a bound. With a ceiling the mechanism keeps pure differential
        privacy.
    shift : float, default 0
        The c of the shares, as a part of the floor, from 0 to less than 1. The shares are computed from the published
        intensities, so the curves do not depend on it.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change, see :mod:`pymc_dirdp.privacy.people`.
    contribution : Contribution or int, default 1
        What one person can add to the table. The curves of one record are exact; for more they are upper bounds.
    n_records : int or sequence of int, optional
        The public number of records, for one row of two categories under replace-one, or that of each such row in
        order, where a person has at most one record in a block: that of every data set that could occur. As the two
        cells cannot both hold few, the curves are smaller. By default they hold for any number of records.

    Notes
    -----
    The exact sampler takes the optional package python-flint (``pip install python-flint``): it decides with
    certified bounds of the incomplete Gamma function in which cell of a public grid an intensity lies, so the release
    has the distribution that the curves are about.

    References
    ----------
    The proof page of this class. P1 and P2 for draws without a floor.

    Examples
    --------
    >>> mechanism = FlooredDirichletMechanism([0.02, 0.02, 0.02, 0.02], 0.7, 8.0)
    >>> mechanism.rho(math.inf)
    0.029...
    >>> intensities = mechanism.release([108, 286, 71, 127])
    >>> bool((intensities >= 8).all())
    True
    """

    alpha: Array
    r: float
    floor: float
    _: KW_ONLY
    ceiling: float | None = None
    shift: float = 0.0
    adjacency: str = "replace-one"
    contribution: Contribution | int = 1
    n_records: int | Sequence[int] | None = None

    kind: ClassVar[str] = "floored"
    calibrated_by: ClassVar[str] = "dirdp.planning.calibrate_floored()"
    output_kind: ClassVar[type[Output]] = Draws
    publishes: ClassVar[str] = "intensities"
    formula: ClassVar[str] = (
        "shares of G - {shift:.4g} t, with intensities G from Gamma(r x + alpha) above t = {floor:.4g}, x the counts"
    )
    facts: ClassVar[tuple[Fact, ...]] = (
        Fact("alpha", "alpha", "table"),
        Fact("r", "r", "scalar"),
        Fact("floor", "floor", "scalar"),
        Fact("ceiling", "ceiling", "number", optional=True),
        Fact("shift", "shift", "number"),
        Fact("public_records", "n_records", "whole", optional=True),
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", positive_array(alpha=self.alpha))
        object.__setattr__(self, "r", positive(r=self.r))
        object.__setattr__(self, "floor", positive(floor=self.floor))
        within(*_RANGE, alpha=self.alpha)
        within(*STEPS, r=self.r)
        within(*_RANGE, floor=self.floor)
        if self.ceiling is not None:
            object.__setattr__(self, "ceiling", positive(ceiling=self._top))
            if self.ceiling <= self.floor:
                raise ArgumentError("Expected ceiling to be above floor. Leave it out unless you need pure privacy.")
        object.__setattr__(self, "shift", at_least(0, shift=self.shift))
        if self.shift >= 1:
            raise ArgumentError("Expected shift to be below 1. At 1 a cell at the floor would have no share.")
        object.__setattr__(self, "adjacency", adjacency_named(self.adjacency).name)
        object.__setattr__(self, "contribution", Contribution.of(self.contribution).fitted(self.alpha.shape))
        if self.n_records is not None:
            object.__setattr__(self, "n_records", self._checked_numbers(self.n_records))

    def _checked_numbers(self, n_records: int | Sequence[int]) -> int | tuple[int, ...]:
        """The public number of records of one row, or those of several."""
        if not self.knows_records(self.alpha.shape, self.adjacency, self.contributed):
            raise ArgumentError(
                "n_records is for rows of two categories under replace-one, with one record of a person in a block: "
                "elsewhere the curves are the same for every number of records. Leave it out."
            )
        given: list[Any] = np.array(n_records, dtype=object).ravel().tolist()
        if len(given) != math.prod(self.alpha.shape[:-1]):
            raise ArgumentError(
                "Expected n_records to have a public number for each row. If only the total of several rows is public, "
                "a record may move between them, and the curves are those for any number: leave n_records out."
            )
        numbers = tuple(integer(0, n_records=number) for number in given)
        within(0, MOST_RECORDS, n_records=numbers)
        return numbers[0] if len(numbers) == 1 else numbers

    @staticmethod
    def knows_records(shape: tuple[int, ...], adjacency: str, contribution: Contribution) -> bool:
        """Whether public numbers of records of all rows make the curves of such a table smaller."""
        return shape[-1] == 2 and adjacency_named(adjacency).records_are_public and contribution.records == 1

    @property
    def _numbers(self) -> tuple[int, ...]:
        """The public number of records of each row; none if they are unknown."""
        if self.n_records is None:
            return ()
        return (self.n_records,) if isinstance(self.n_records, int) else tuple(self.n_records)

    @property
    @override
    def assumed_records(self) -> int | None:
        return sum(self._numbers) if self._numbers else None

    @property
    @override
    def rests_on_rows(self) -> bool:
        return len(self._numbers) > 1

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return tuple(self.alpha.shape)

    @property
    @override
    def in_short(self) -> str:
        ceiling = "" if self.ceiling is None else f", ceiling {self.ceiling:.4g}"
        shift = f", shift {self.shift:.4g}" if self.shift else ""
        return f"r {self.r:.4g}, floor {self.floor:.4g}{ceiling}{shift}"

    @property
    @override
    def formula_in_words(self) -> str:
        return super().formula_in_words + ("" if self.ceiling is None else f", all below {self.ceiling:.4g}")

    @property
    def taken_off(self) -> float:
        """What is taken off each intensity before their shares are formed."""
        return self.shift * self.floor

    @override
    def shares_of(self, output: Array) -> Array:
        above = output - self.taken_off
        return np.asarray(above / above.sum(axis=-1, keepdims=True))

    @override
    def prepare(self, sampler: str) -> None:
        if sampler == "exact":
            flint()

    @property
    def _top(self) -> float:
        return math.inf if self.ceiling is None else self.ceiling

    @cached_property
    @override
    def _curves(self) -> PrivacyCurves:
        distribution = (self.alpha, self.r, self.floor, self._top)
        return floored_curves(*distribution, self.adjacency, self.contributed, self.n_records)

    def _checked(self, counts: ArrayLike) -> Array:
        table = checked_counts(counts, self.alpha.shape, n_records=self.assumed_records)
        # Sums of two whole doubles below 2**53 are exact.
        if self._numbers and tuple(table.sum(axis=-1).ravel().tolist()) != self._numbers:
            raise DataError(
                "The counts of some row do not add up to its n_records, so the guarantee would be false. They must be "
                "the numbers of records of every data set that could have occurred."
            )
        return table

    @override
    def check(self, counts: ArrayLike) -> None:
        self._checked(counts)

    def release(self, counts: ArrayLike, *, draws: int = 1, sampler: str = "exact", random_seed: Seed = None) -> Array:
        """Independent draws of the intensities. The curves of this object are for **one** of them.

        Parameters
        ----------
        counts : array_like of integers, shape of `alpha`
            The secret. Errors never show it.
        draws : int, default 1
            Number of draws, at least 1.
        sampler : {"exact", "fast"}, default "exact"
            `"exact"` decides in which cell of a public grid, whose points lie `2**(2**-36)` times apart, an intensity
            lies, and returns the middle of the cell. Nothing is rounded on the way from the counts. `"fast"` draws in
            floating point with NumPy and puts the result on the same grid: nearly the distribution that the curves are
            about, and how nearly is not proved.
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system. Anything else is for tests.

        Returns
        -------
        intensities : array, shape ``(draws, *alpha.shape)``
            None is below the floor.

        Raises
        ------
        ImportError
            If `"exact"` lacks python-flint.
        """
        table, draws = self._checked(counts), integer(1, draws=draws)
        distribution: dict[str, Any] = {"ceiling": self._top, "draws": draws}
        if self.checked_sampler(sampler) == "exact":
            cells = exact_floored(self.alpha, self.r, self.floor, table, bits=Bits(random_seed), **distribution)
        else:
            cells = fast_floored(self.alpha, self.r, self.floor, table, rng=generator(random_seed), **distribution)
        return intensities(cells, self.floor)

    def sample(self, counts: ArrayLike, *, draws: int = 1, sampler: str = "exact", random_seed: Seed = None) -> Array:
        """Draws of the shares, from as many releases: arguments as for :meth:`release`.

        Returns
        -------
        y : array, shape ``(draws, *alpha.shape)``
            Positive; the last axis sums to 1 up to rounding.
        """
        return self.shares_of(self.release(counts, draws=draws, sampler=sampler, random_seed=random_seed))

    @override
    def draw(
        self, counts: ArrayLike, draws: int, *, sampler: str, random_seed: Seed = None, n_records: int | None = None
    ) -> Draws:
        return Draws({self.publishes: self.release(counts, draws=draws, sampler=sampler, random_seed=random_seed)})

    @override
    def read_output(self, facts: Mapping[str, Any], table: str, *, draws: int, of_success: bool) -> Output:
        return Draws.read(facts, {self.publishes: (draws, *self.shape)}, table)

    @property
    @override
    def draws_in_words(self) -> str:
        return ONE_DRAW

    @override
    def releases(
        self, counts: Array, n: int, *, sampler: str = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        return self.release(counts, draws=n, sampler=sampler, random_seed=random_seed)

    @override
    def private_posteriors(self, data: NDArray[np.int64], rng: np.random.Generator) -> None:
        return None

    @override
    def draws_of_shares(self, data: NDArray[np.int64], rng: np.random.Generator) -> Array:
        return self.shares_of(self.simulated(data, rng))

    def simulated(self, data: NDArray[np.int64], rng: np.random.Generator) -> Array:
        """Intensities of made-up data sets of shape `(..., *alpha.shape)`, drawn in floating point."""
        return self._simulated(np.broadcast_to(self.alpha, data.shape), data, rng)

    def _simulated(self, alpha: Array, counts: NDArray[Any], rng: np.random.Generator) -> Array:
        cells = fast_floored(alpha, self.r, self.floor, counts, ceiling=self._top, draws=1, rng=rng)
        return intensities(cells[0], self.floor)

    def _inside(self, output: Array) -> bool:
        # The middle of the last cell may lie a little above the ceiling.
        return bool(np.all((output >= self.floor) & (output <= self._top * _LAST_CELL)))

    @cached_property
    def _distribution(self) -> FlooredDistribution:
        return FlooredDistribution(self.r, self.floor, self._top)

    @override
    def cell_log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        g, x = np.asarray(output, dtype=np.float64), np.asarray(counts, dtype=np.float64)
        return self._distribution.log_density(g, x, self.alpha)

    @override
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> list[RowLikelihood]:
        if not self._inside(output):
            raise ArgumentError("Expected intensities between the floor and the ceiling. No sampler returns others.")
        d = self.alpha.shape[-1]
        return list(map(self._distribution.row_likelihood, output.reshape(-1, d), self.alpha.reshape(-1, d)))

    @override
    def rows_seen(self, counts: Array, rng: np.random.Generator) -> RowsSeen | None:
        # Rows of one table may have parameters of their own, and rows of many tables are asked for.
        if np.ptp(self.alpha):
            return None
        alpha = np.broadcast_to(self.alpha.flat[0], counts.shape)
        return self._distribution.rows_seen(self._simulated(alpha, counts, rng), alpha)

    @override
    def stronger(self, factor: float) -> tuple[str, Self]:
        return "the same mechanism with a larger r", replace(self, r=self.r * factor)

    @override
    def is_on_grid(self, output: Array, steps: int | None) -> bool:
        try:
            cells_of(output, self.floor)
        except ArgumentError:
            return False
        return self._inside(output)

    @override
    def worst_pair(self) -> tuple[Array, Array]:
        moving = blocks(self.alpha, self.contributed, lambda *_: 0.0)
        base, moves = floored_pair(self.alpha, self.r, self.floor, moving, self._numbers)
        return worst_neighbours(base, moves, self.contributed.records, self.adjacency)
