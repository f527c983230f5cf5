"""Noisy marginals of one table, composed."""

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self, final, override

from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer, one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.literals import CountNoise, Sampler, options_of
from pymc_dirdp.mechanisms.base import FileField
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussian
from pymc_dirdp.mechanisms.geometric import Geometric, ZeroSumGeometric
from pymc_dirdp.mechanisms.noise import Noise, NoisyMarginal
from pymc_dirdp.mechanisms.noisy_counts import NoisyMarginals
from pymc_dirdp.mechanisms.outputs import Marginals
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.signatures import user_facing

NOISES: tuple[CountNoise, ...] = options_of(CountNoise)
"""The kinds of noise, as in `plan(mechanism=...)`."""


@user_facing
@dataclass(frozen=True, eq=False)
class MarginalsMechanism(NoisyMarginals):
    """Release some marginals of a table of counts, each with independent integer noise.

    Parameters
    ----------
    prior : array_like, shape (..., d)
        The model's own prior, positive; it says the shape of the table.
    marginals : sequence of sequences of int
        The axes of each marginal, in rising order; its counts are summed over all other axes. All marginals are
        different, and each has at least two cells.
    parameters : sequence of float
        The noise parameter of each marginal: sigma, or the scale.
    noise : {"gaussian", "geometric"}, default "gaussian"
        The discrete Gaussian distribution, or the discrete Laplace distribution.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change.
    contribution : int or Contribution, default 1
        The maximum number of records of a person in the table, and the rows that they may be in.

    Raises
    ------
    ArgumentError
        If a number is outside its domain, or the table has no such marginal.

    Notes
    -----
    A replaced record changes at most two cells of each marginal by 1, and an added record changes one. So each marginal
    has the curves of a row of counts, and all marginals compose. If a person has records in each entry of an axis, a
    marginal with this axis has a block of cells for each entry. A marginal that sums over the axis has all of these
    records in one block.

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

    marginals: tuple[tuple[int, ...], ...]
    parameters: tuple[float, ...]
    noise: CountNoise = "gaussian"

    kind = "marginals"
    formula = "shares fitted to the noisy counts of marginals of all tables"
    output_kind = Marginals
    noises: ClassVar[tuple[str, ...]] = NOISES
    """The kinds of noise that the class accepts."""
    facts = (
        FileField("prior", "prior", "table"),
        FileField("noise", "noise", "attribute"),
        FileField("marginals", "marginals", "list"),
        FileField("noise_parameters", "parameters", "list"),
        FileField("noise_sds", "noise_sds", "list", is_argument=False),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self.noises, noise=self.noise)
        if self.needs_public_totals and set(self.contributed.axes) - {"any"}:
            raise ArgumentError(
                "Expected a contribution of records that may lie anywhere in the table, because a marginal sums over "
                "rows. Use MarginalsMechanism, whose noise is independent in each cell."
            )
        object.__setattr__(self, "marginals", self._checked_marginals())
        if len(self.parameters) != len(self.marginals):
            raise ArgumentError(
                f"Expected a parameter for each of {len(self.marginals)} marginals, got {len(self.parameters)}."
            )
        # The noise rounds a scale up, and the attribute is the rounded number.
        object.__setattr__(self, "parameters", tuple(map(float, self.parameters)))
        used = [getattr(marginal.noise, fields(marginal.noise)[0].name) for marginal in self.noisy_marginals]  # type: ignore[arg-type]
        object.__setattr__(self, "parameters", tuple(used))

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
    def noise_of(cls, kind: CountNoise, parameter: float, cells: int) -> Noise:
        """The noise of a marginal with this number of cells, by the kind of noise."""
        return (DiscreteGaussian if kind == "gaussian" else Geometric)(parameter)

    @cached_property
    @override
    def noisy_marginals(self) -> tuple[NoisyMarginal, ...]:
        return tuple(
            NoisyMarginal(
                axes,
                tuple(self.shape[axis] for axis in axes),
                self.noise_of(self.noise, parameter, self._cells(axes)),
            )
            for axes, parameter in zip(self.marginals, self.parameters, strict=True)
        )

    @property
    @override
    def rests_on_totals(self) -> bool:
        return any(map(self._is_fixed, self.marginals))

    def _cells(self, marginal: tuple[int, ...]) -> int:
        return math.prod(self.prior.shape[axis] for axis in marginal)

    @property
    def noise_sds(self) -> tuple[float, ...]:
        """The standard deviation of the noise in one cell of each marginal."""
        return tuple(marginal.noise.sd for marginal in self.noisy_marginals)

    @property
    @override
    def summary(self) -> str:
        least, most = min(self.noise_sds), max(self.noise_sds)
        n_marginals = f"{len(self.marginals)} marginals" if len(self.marginals) > 1 else "1 marginal"
        spread = f"{least:.4g}" if math.isclose(least, most) else f"{least:.4g} to {most:.4g}"
        name = self.noisy_marginals[0].noise.name
        return f"{n_marginals} with {name[:1].lower()}{name[1:]} noise of standard deviation {spread}"

    @property
    @override
    def published_axes(self) -> dict[str, tuple[int, ...]]:
        return {f"{self.publishes}_{'_'.join(map(str, marginal))}": marginal for marginal in self.marginals}

    @override
    def totals_by_marginal(self, output: Array) -> list[list[float]]:
        return [[float(part.sum())] for part in self._split(output)]

    def release(self, counts: ArrayLike, *, sampler: Sampler = "exact", random_seed: Seed = None) -> dict[str, Array]:
        """The noisy counts of each marginal, by their names in a release; arguments as for noisy tables."""
        return dict(self.draw(counts, 1, sampler=sampler, random_seed=random_seed).published)

    @property
    @override
    def draws_note(self) -> str:
        return (
            "the shares are an estimate, fitted to the noisy counts of all tables, and not a draw; dirdp.analyse draws "
            "from the posterior given the noisy counts"
        )

    @override
    def stronger(self, factor: float) -> tuple[str, Self]:
        parameters = tuple(parameter / factor for parameter in self.parameters)
        return "the same mechanism with less noise", replace(self, parameters=parameters)

    @override
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> NoReturn:
        self.refuse_inference()

    @override
    def refuse_inference(self) -> NoReturn:
        raise ArgumentError(
            "Marginals of a table are sums of its cells, so the likelihood is not a product over cells. Use "
            "dirdp.analyse(release) or dirdp.estimate(release), which use the marginals of all tables."
        )

    @classmethod
    @override
    def for_guarantee(cls, guarantee: Guarantee, **facts: Any) -> NoReturn:
        raise ArgumentError(
            "mechanism='marginals' divides one guarantee among marginals of all tables of a model, so it is planned "
            "for models only: dirdp.plan(guarantee, model, mechanism='marginals')."
        )


@user_facing
@final
@dataclass(frozen=True, eq=False)
class ZeroSumMarginalsMechanism(MarginalsMechanism):
    """Release some marginals of a table, each with geometric noise that adds up to 0.

    It is for tables with a public number of records: each noisy marginal adds up to it. The parameters are those of
    :class:`MarginalsMechanism`, with `noise="geometric"`.

    Examples
    --------
    >>> mechanism = ZeroSumMarginalsMechanism([[1, 1, 1], [1, 1, 1]], [[1], [0, 1]], [8.0, 8.0])
    >>> mechanism.pure_epsilon
    0.5
    >>> [int(noisy.sum()) for noisy in mechanism.release([[3, 1, 0], [2, 2, 9]]).values()]
    [17, 17]
    """

    noise: CountNoise = "geometric"

    needs_public_totals = True
    instead = "MarginalsMechanism"
    noises = ("geometric",)

    @classmethod
    @override
    def noise_of(cls, kind: CountNoise, parameter: float, cells: int) -> Noise:
        return ZeroSumGeometric(parameter, cells)
