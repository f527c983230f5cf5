"""Joint noise for one table in whose rows one person has records each, as the items of a survey."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NoReturn, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.joint import JointLikelihoods, ZeroSumJointMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.row_likelihood import RowLikelihood
from pymc_dirdp.mechanisms.whole_noise import used_scale
from pymc_dirdp.numerics.rounding import not_below
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import CurvesOf, PrivacyCurves
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.entropy import Seed, generator

__all__ = ["JointTableMechanism"]

_OTHERWISE = "Take mechanism='geometric', or 'auto'."


@final
@dataclass(frozen=True, eq=False)
class JointTableMechanism(CurvesOf, NoisyCounts):
    """Release `counts + Z` for a table in each of whose rows one person has records, such as items by answers.

    The rows are the tables of one :class:`ZeroSumJointMechanism`: they share a guarantee and do not divide it. The
    noise of each row adds up to 0, because its number of records is public.

    Parameters
    ----------
    prior : array_like, shape (rows, d)
        The model's own prior, positive; it says the shape of the table.
    scale : float
        Scale of the noise, positive. It is rounded up to 41 binary digits, and the attribute is the number that is
        used.
    adjacency : {"replace-one"}
        Nothing else leaves the number of records public.
    contribution : Contribution
        `Contribution(m, ("each",))`: a person has m records in every row. Nothing else is allowed.
    postprocess
        As for all noise on counts, see :class:`~pymc_dirdp.mechanisms.noisy_counts.NoisyCounts`.

    Raises
    ------
    ArgumentError
        If the table has not one axis of rows, in each of which a person has records, or a number is outside its domain.

    Notes
    -----
    The pure epsilon is `1 / scale`, whatever the number of rows, and exact. For ten rows of two cells at epsilon 1 the
    variance of a cell is 43.9, where independent noise has 199.8. For zero-concentrated privacy Gaussian noise is
    better, and for many rows at a small delta.

    References
    ----------
    The proof page of `JointMechanism`.

    Examples
    --------
    >>> import numpy as np
    >>> survey = JointTableMechanism(np.ones((10, 2)), 1.0, contribution=Contribution(1, ("each",)))
    >>> survey.pure_epsilon, round(survey.noise_sd**2, 1)
    (1.0, 43.9)
    """

    scale: float

    kind: ClassVar[str] = "joint"
    formula: ClassVar[str] = (
        "exact draws from the posterior given the noisy counts, whose rows share one latent radius: "
        "Dirichlet(x + prior), averaged over all counts x"
    )
    needs_public_totals: ClassVar[bool] = True
    is_joint: ClassVar[bool] = True
    readings: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.suits(self.prior.shape, self.contributed):
            raise ArgumentError(
                "Joint noise is for a table with one axis of rows, in each of which a person has as many records, as "
                f"unit= says it: items by answers. This one has the shape {self.prior.shape}, and "
                f"{', '.join(self.contributed.axes) or 'no'} rows. {_OTHERWISE}"
            )
        if not self._relation.records_are_public:
            raise ArgumentError(
                f"Under adjacency={self.adjacency!r} the number of records is private, and noise that adds up to 0 "
                f"would publish it. {_OTHERWISE}"
            )

    @classmethod
    @override
    def suits(cls, shape: Sequence[int], contribution: Contribution | int) -> bool:
        return len(shape) == 2 and Contribution.of(contribution).fitted(shape).axes == ("each",) and shape[-1] > 1

    @override
    def _checked_parameter(self, value: float) -> float:
        return super()._checked_parameter(used_scale(super()._checked_parameter(value)))

    @cached_property
    def rows_together(self) -> ZeroSumJointMechanism:
        """The mechanism whose tables are the rows."""
        rows, cells = self.prior.shape
        return ZeroSumJointMechanism((cells,) * rows, self.scale, records=self._records, adjacency=self.adjacency)

    @override
    def _alike(self) -> dict[str, Any]:
        return {"prior": np.ones(self.prior.shape)}

    @cached_property
    @override
    def _curves(self) -> PrivacyCurves:
        return self.rows_together._curves

    @property
    @override
    def pure_epsilon(self) -> float:
        return not_below(1 / Fraction(self.scale))

    @property
    @override
    def noise_sd(self) -> float:
        return self.rows_together.noise_sds[0]

    @property
    @override
    def free_variance(self) -> float:
        cells = int(self.prior.shape[-1])
        return self.noise_sd**2 * cells / (cells - 1)

    @property
    @override
    def in_short(self) -> str:
        return f"Joint zero-sum noise of standard deviation {self.noise_sd:.4g}"

    @override
    def noise_for(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        # Tables of one noise each, side by side.
        tables = int(np.prod(shape)) // self.prior.size
        return self.rows_together.releases(np.zeros(self.prior.size), tables, sampler="fast", random_seed=rng).reshape(
            shape
        )

    @override
    def exact_noise(self, shape: tuple[int, ...], bits: Bits) -> NDArray[Any]:
        return self.rows_together.exact_noise(bits).reshape(shape)

    @override
    def releases(
        self, counts: Array, n: int, *, sampler: str = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        table = np.asarray(counts, dtype=np.float64).ravel()
        rng = generator(random_seed)
        found = self.rows_together.releases(table, n, sampler=self.checked_sampler(sampler), random_seed=rng)
        return found.reshape(n, *self.prior.shape)

    @override
    def log_noise(self, noise: Array) -> NoReturn:
        self._refuse_product()

    @override
    def cell_log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> NoReturn:
        self._refuse_product()

    @override
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> list[RowLikelihood]:
        self._refuse_product()

    def _refuse_product(self) -> NoReturn:
        raise ArgumentError(
            "Joint noise of several rows has no likelihood of single cells or rows. Take log_likelihood, or joint_rows."
        )

    @property
    @override
    def cell_noise(self) -> None:
        """The noise of a cell is not independent of that of others."""

    @override
    def rows_seen(self, counts: Array, rng: np.random.Generator) -> None:
        """Rows are not seen by themselves."""

    def _flat(self, table: ArrayLike) -> Array:
        found = np.asarray(table, dtype=np.float64)
        return found.reshape(*found.shape[:-2], -1)

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        return self.rows_together.log_likelihood(self._flat(output), self._flat(counts))

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        flat = map(self._flat, (outputs, x, y))
        return self.rows_together.log_likelihood_ratio(*flat, floor=floor)

    @override
    def joint_rows(self, output: Array) -> JointLikelihoods:
        return self.rows_together.joint_rows(output)

    @override
    def published_totals(self, output: Array) -> list[tuple[NDArray[np.intp], float]]:
        return self.rows_together.published_totals(output)

    @override
    def output_laws(self, x: Array, y: Array, cells: int | None = None) -> NoReturn:
        self._refuse_product()
