"""The interface of every mechanism: privacy curves, sampling, fields of a release file, and texts."""

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer, one_of
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.literals import Sampler, options_of
from pymc_dirdp.mechanisms.noise import Noise
from pymc_dirdp.mechanisms.outputs import CellNoise, Draws, JointLikelihoods, Output, RowLikelihood
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.sampling.bits import Bits, Seed, generator
from pymc_dirdp.texts.codec import RebuiltOnCopy


@final
@dataclass(frozen=True)
class FileField:
    """A public number or word of a mechanism in the group that a release file has for its table.

    Attributes
    ----------
    name : str
        The name in the release.
    field : str
        The field or property of the mechanism.
    kind : {"table", "scalar", "attribute", "list"}
        A variable with the axes of the table, a variable without axes, or an attribute; a list is written as JSON.
    is_argument : bool, default True
        Whether the class takes it as an argument. Otherwise it follows from the arguments, and a file that is read has
        to have the same value.
    optional : bool, default False
        Whether a file leaves it out if it is None.
    """

    name: str
    field: str
    kind: str
    is_argument: bool = True
    optional: bool = False

    @property
    def is_variable(self) -> bool:
        """Whether the group has it as a variable and not as an attribute."""
        return self.kind in ("table", "scalar")


@final
@dataclass(frozen=True)
class Tempered:
    """A mechanism whose output is itself a draw from `Dirichlet(r * counts + alpha)`.

    Attributes
    ----------
    alpha : array, shape (..., d)
    r : float
        The weight of one record.
    """

    alpha: Array
    r: float


# A mechanism defines its curves, its output, the likelihood of an output, and its fields in a release file.
#
# A new mechanism is one file with such a class, and a line in :mod:`pymc_dirdp.mechanisms.registry`. No code outside
# this package depends on the class of a mechanism.


SAMPLERS: tuple[Sampler, ...] = options_of(Sampler)


class Mechanism(RebuiltOnCopy, PrivacyCurves):
    """A randomised release of a table of counts, with exact privacy curves or upper bounds of them.

    A subclass is a frozen dataclass with `eq=False`. Its fields are public. Two mechanisms are equal if their classes
    and fields are equal.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms import GeometricMechanism
    >>> isinstance(GeometricMechanism([1, 1], 2.0), Mechanism)
    True
    """

    output_kind: ClassVar[type[Output]] = Draws
    """The kind of output that it publishes."""
    min_count: float | None = None
    """The least count of every cell that the guarantee assumes; None if it does not assume one."""

    @property
    def shared_noise(self) -> Any:
        """The joint noise that several tables share, which are one release; None if the noise is independent."""
        return None

    @classmethod
    def of(cls, instance: object) -> "Self | None":
        """The object if it is a mechanism of this class, and None otherwise."""
        return instance if isinstance(instance, cls) else None

    @classmethod
    def required(cls, mechanism: object) -> "Self":
        """The argument if it is a mechanism of this class; otherwise an error says where to find the mechanisms."""
        if isinstance(mechanism, cls):
            return mechanism
        raise ArgumentError(
            f"Expected mechanism to be a mechanism of this library, got {type_name(mechanism)}. The mechanisms of a "
            "release are dirdp.verify(release).mechanisms, by table."
        )

    def __eq__(self, other: object) -> bool:
        return self._public == other._public if isinstance(other, Mechanism) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._public)

    @property
    def _public(self) -> tuple[object, ...]:
        """The class and all fields, as one hashable object."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))  # type: ignore[arg-type]
        hashable = ((v.shape, v.tobytes()) if isinstance(v, np.ndarray) else v for v in values)
        return type(self), *hashable

    def checked_sampler(self, sampler: Sampler | None) -> Sampler:
        """The name of a sampler that this mechanism has; None means the default."""
        return SAMPLERS[0] if sampler is None else cast(Sampler, one_of(SAMPLERS, sampler=sampler))

    def _source(self, sampler: Sampler, random_seed: Seed) -> Bits | np.random.Generator:
        """The source of randomness: bits for the exact sampler, a generator for the fast one."""
        return Bits(random_seed) if self.checked_sampler(sampler) == "exact" else generator(random_seed)

    def checked_steps(self, steps: int | None, sampler: Sampler) -> int | None:
        """The number of steps of the urn that the caller chose; an error if this sampler is not an urn."""
        if steps is None:
            return None
        if not self._is_urn(sampler):
            raise ArgumentError(
                f"{type(self).__name__} with sampler={sampler!r} does not draw from an urn, so it has no steps. Leave "
                "steps= out."
            )
        return integer(1, steps=steps)

    def outputs_to_audit(self, sampler: Sampler) -> int:
        """The default number of outputs that an audit draws for each data set."""
        # An urn takes a thousand times as long as another sampler.
        return 10_000 if self._is_urn(sampler) else 100_000

    def _is_urn(self, sampler: Sampler) -> bool:
        """Whether a sampler draws from a Pólya urn."""
        return False

    @property
    @abc.abstractmethod
    def summary(self) -> str:
        """The public parameters in a few words, such as `"standard deviation 5.98"`."""

    @abc.abstractmethod
    def releases(
        self, counts: Array, n: int, *, sampler: Sampler = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        """`n` independent releases of simulated counts, each covered by the guarantee. Shape ``(n, ...)``."""

    def replicates(self, counts: Array, n: int, rng: np.random.Generator) -> Array:
        """`n` outputs for each of several tables of counts, in floating point: shape `(tables, n, ...)`."""
        return np.stack([self.releases(table, n, random_seed=rng) for table in counts])

    @abc.abstractmethod
    def worst_neighbours(self) -> tuple[Array, Array]:
        """Simulated neighbours whose privacy loss is the largest, or close to it.

        In each block of cells in which a person's records may lie anywhere, the first data set has all of them in one
        cell. The second has them in another cell, or does not have them (Theory, sections 2 and 6).
        """

    @abc.abstractmethod
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        """Logarithm of the probability, or of the density, of an output given counts.

        Parameters
        ----------
        output, counts : array_like
            A release, and a data set. Leading axes broadcast.
        steps : int, optional
            The number of steps of the urn that drew the output; None for the limit distribution of the urn.

        Returns
        -------
        log_likelihood : array
            Shape of the leading axes. It is confidential if the counts are.
        """

    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        """Log-likelihood ratio of x and y, which is the most powerful test statistic. Shape of the leading axes.

        Parameters
        ----------
        outputs : array, shape (n, ...)
            Any numbers: the program under audit may return anything.
        x, y : array
            The two data sets.
        floor : float
            Half a grid step. It is added to probabilities that a sampler on a grid may round to 0.
        """
        with np.errstate(invalid="ignore"):
            ratio = self.log_likelihood(outputs, x) - self.log_likelihood(outputs, y)
        return np.nan_to_num(ratio, nan=0.0, posinf=1e300, neginf=-1e300)

    def output_distributions(self, x: Array, y: Array, cells: int | None = None) -> FiniteDistributions:
        """The distributions of the output at two data sets, discretised.

        Parameters
        ----------
        x, y : array
            The two data sets.
        cells : int, optional
            The approximate number of cells; by default as many as are useful.

        Raises
        ------
        ArgumentError
            If the distributions are not known for this mechanism, or not for these data sets.
        """
        raise ArgumentError(
            f"The distribution of the output of a {type(self).__name__} is not available. Use audit, which samples it."
        )

    def stronger(self, factor: float) -> "tuple[str, Self] | None":
        """A mechanism of the same kind with more privacy loss, and its description; None if there is none.

        The larger the factor, the larger the loss.
        """
        return None

    @property
    def log_no_noise(self) -> float | None:
        """The logarithm of the probability that all noise is 0; None if the mechanism does not add noise to counts."""
        return None

    @property
    def noise_sd(self) -> float | None:
        """Standard deviation of the noise in one cell; None unless all cells have noise of the same distribution."""
        return None

    @property
    def tempered(self) -> "Tempered | None":
        """The parameters of a draw that is itself the release; None if draws are post-processing of a release."""
        return None

    def posterior_parameters(self, counts: NDArray[np.int64], rng: np.random.Generator) -> Array:
        """Parameters of the private Dirichlet posterior, one release for each simulated table. Shape of `counts`.

        Parameters
        ----------
        counts : array of int, shape ``(simulations, ...)``
        rng : numpy.random.Generator

        Raises
        ------
        ArgumentError
            If the mechanism has no private posterior of counts.
        """
        raise ArgumentError(
            f"A {type(self).__name__} has no private posterior of counts. Use DirichletMechanism or noisy counts."
        )

    # Inference from an output; by default it is not available.

    def public_records(self, n_records: int | None) -> int | None:
        """The public number of records for inference from an output; None if it is private.

        Raises
        ------
        ArgumentError
            If a public number is missing or differs from that of the mechanism, or if the number is private and
            `n_records` is not None.
        """
        if n_records is None:
            raise ArgumentError(f"The number of records of a {type(self).__name__} is public. Pass n_records=.")
        return integer(0, n_records=n_records)

    def published_totals(self, output: Array) -> list[tuple[NDArray[np.intp], float]]:
        """Groups of rows whose total number of records an output publishes, and these totals; often there are none."""
        return []

    def joint_rows(self, output: Array) -> JointLikelihoods | None:
        """The joint likelihood of all rows, if the noise has a latent radius; otherwise None."""
        return None

    @property
    def cell_noise(self) -> CellNoise | None:
        """The noise on each cell, if the output is counts with Laplace or normal noise; otherwise None."""
        return None

    @property
    def row_noise(self) -> Noise | None:
        """The noise of one row for estimates, exactly or nearly; None if it is unknown or takes too long."""
        return None

    def likelihoods_of_rows(
        self, output: Array, *, n_records: int | None, sampler: Sampler, steps: int | None = None
    ) -> list[RowLikelihood]:
        """The likelihood of one output, factorised over the cells and the total of each row: one object per row.

        Parameters
        ----------
        output : array
            The release that the guarantee covers, in the shape of the table.
        n_records : int or None
            As :meth:`public_records` returned it.
        sampler : {"exact", "fast"}
            The sampler that drew the output.
        steps : int, optional
            Number of steps of the urn, for `"exact"`; by default its default.

        Raises
        ------
        ArgumentError
            If the likelihood is not a product over cells, or this mechanism cannot return the output.
        """
        raise ArgumentError(
            f"The likelihood of a {type(self).__name__} is not a product over cells, so inference from its outputs is "
            "not available. Release with GeometricMechanism, or weight each possible data set by its prior times "
            "exp(mechanism.log_likelihood(output, counts)) yourself."
        )
