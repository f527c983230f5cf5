"""What every mechanism is: privacy curves, a draw, facts for the file of a release, and words."""

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer, one_of
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.literals import SamplerName, options_of
from pymc_dirdp.mechanisms.noise import Noise
from pymc_dirdp.mechanisms.outputs import CellNoise, Draws, JointLikelihoods, Output, RowLikelihood
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.sampling.bits import Bits, Seed, generator
from pymc_dirdp.texts.codec import RebuiltOnCopy


@final
@dataclass(frozen=True)
class Fact:
    """A public number or word of a mechanism, as the group of a table in a release holds it.

    Attributes
    ----------
    name : str
        Its name in the release.
    field : str
        The field or property of the mechanism.
    kind : {"table", "scalar", "attribute", "list"}
        A variable with the axes of the table, a variable without axes, or an attribute; a list is written as JSON.
    given : bool, default True
        Whether the class takes it as an argument; otherwise it follows from the others, and is compared
        when it is read.
    optional : bool, default False
        Whether it is left out of a file where it is None.
    """

    name: str
    field: str
    kind: str
    given: bool = True
    optional: bool = False

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable of the group, and not an attribute."""
        return self.kind in ("table", "scalar")


@final
@dataclass(frozen=True)
class Tempered:
    """A mechanism whose output is itself a draw from `Dirichlet(r * counts + alpha)`.

    Attributes
    ----------
    alpha : array, shape (..., d)
    r : float
        How much one record counts.
    """

    alpha: Array
    r: float


# What every mechanism says of itself: its curves, what it releases, how likely that is, and what a file holds of it.
#
# A new mechanism is one file with a class that does so, and a line in :mod:`pymc_dirdp.mechanisms.registry`. Nothing
# outside this room asks which mechanism it has.


SAMPLERS = options_of(SamplerName)


class Mechanism(RebuiltOnCopy, PrivacyCurves):
    """A randomised release of a table of counts, with exact or upper-bound privacy curves.

    A subclass is a frozen dataclass with `eq=False`; its fields are public, and two mechanisms are equal if their class
    and their fields are.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms import GeometricMechanism
    >>> isinstance(GeometricMechanism([1, 1], 2.0), Mechanism)
    True
    """

    output_kind: ClassVar[type[Output]] = Draws
    """The kind of output that it publishes."""
    min_count: float | None = None
    """What every cell is guaranteed to hold; None if the guarantee does not rest on that."""

    @property
    def shared_noise(self) -> Any:
        """The joint noise that it shares with others, which are one release with it; None without any."""
        return None

    @classmethod
    def of(cls, thing: object) -> "Self | None":
        """The thing if it is a mechanism of this class, and None if it is anything else."""
        return thing if isinstance(thing, cls) else None

    @classmethod
    def required(cls, mechanism: object) -> "Self":
        """The argument if it is a mechanism of this class, or an error that says where to find those of a release."""
        if isinstance(mechanism, cls):
            return mechanism
        raise ArgumentError(
            f"Expected mechanism to be a mechanism of this library, got {type_name(mechanism)}. Those of a release are "
            "dirdp.verify(release).mechanisms, by table."
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

    def checked_sampler(self, sampler: str | None) -> str:
        """The name, if this mechanism can be drawn so; None takes the default."""
        return SAMPLERS[0] if sampler is None else one_of(SAMPLERS, sampler=sampler)

    def _source(self, sampler: str, random_seed: Seed) -> Bits | np.random.Generator:
        """What is drawn from: bits by the exact sampler, and a generator by the fast one."""
        return Bits(random_seed) if self.checked_sampler(sampler) == "exact" else generator(random_seed)

    def checked_steps(self, steps: int | None, sampler: str) -> int | None:
        """The steps of an urn that somebody chose, if this sampler is one."""
        if steps is None:
            return None
        if not self._is_urn(sampler):
            raise ArgumentError(
                "steps is for the urn of sampler='exact', as a DirichletMechanism has it. Leave it out."
            )
        return integer(1, steps=steps)

    def outputs_to_audit(self, sampler: str) -> int:
        """How many outputs an audit draws of each data set by default."""
        # An urn takes a thousand times as long as another sampler.
        return 10_000 if self._is_urn(sampler) else 100_000

    def _is_urn(self, sampler: str) -> bool:
        """Whether a sampler draws from a Pólya urn."""
        return False

    @property
    @abc.abstractmethod
    def in_short(self) -> str:
        """Its public numbers in a few words, such as `"standard deviation 5.98"`."""

    @abc.abstractmethod
    def releases(
        self, counts: Array, n: int, *, sampler: str = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        """`n` independent releases of made-up counts, each what the guarantee is about. Shape ``(n, ...)``."""

    def replicates(self, counts: Array, n: int, rng: np.random.Generator) -> Array:
        """`n` outputs for each of several tables of counts, in floating point: shape `(tables, n, ...)`."""
        return np.stack([self.releases(table, n, random_seed=rng) for table in counts])

    @abc.abstractmethod
    def worst_pair(self) -> tuple[Array, Array]:
        """Made-up neighbours on which the loss is the largest, or close to it.

        In each block of cells where a person's records may lie anywhere, all of them are in one cell in the first data
        set, and in another cell, or nowhere, in the second (Theory, sections 2 and 6).
        """

    @abc.abstractmethod
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        """Logarithm of the probability, or of the density, of an output given counts.

        Parameters
        ----------
        output, counts : array_like
            A release, and a data set. Leading axes broadcast.
        steps : int, optional
            The number of steps of the urn that drew the output; None for the distribution that the urn approaches.

        Returns
        -------
        log_likelihood : array
            One number for each of the leading axes. It is confidential where the counts are.
        """

    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        """Logarithm of the likelihood of x over that of y, the most powerful statistic. Shape of the leading axes.

        Parameters
        ----------
        outputs : array, shape (n, ...)
            Any numbers: what claims to be a mechanism may have any output.
        x, y : array
            The two data sets.
        floor : float
            Half a step of the grid, added to probabilities that a sampler on a grid may round to 0.
        """
        with np.errstate(invalid="ignore"):
            ratio = self.log_likelihood(outputs, x) - self.log_likelihood(outputs, y)
        return np.nan_to_num(ratio, nan=0.0, posinf=1e300, neginf=-1e300)

    def output_distributions(self, x: Array, y: Array, cells: int | None = None) -> FiniteDistributions:
        """The distributions of the output at two data sets.

        Cut into about so many cells; None takes as many as are useful.

        Raises
        ------
        ArgumentError
            If the distributions are not known, or not for such data sets.
        """
        raise ArgumentError(
            f"The distribution of a {type(self).__name__} is not known here. Use audit, which draws from it."
        )

    def stronger(self, factor: float) -> "tuple[str, Self] | None":
        """A mechanism of the same kind that loses more, the larger the factor, and what it is called; None if none."""
        return None

    @property
    def log_no_noise(self) -> float | None:
        """The logarithm of the probability that all its noise is 0; None if it adds none to integers."""
        return None

    @property
    def noise_sd(self) -> float | None:
        """Standard deviation of the noise in one cell.

        None unless every cell has noise of the same distribution.
        """
        return None

    @property
    def tempered(self) -> "Tempered | None":
        """The parameters of a draw that is itself the release; None if draws come from something released before."""
        return None

    def posterior_parameters(self, data: NDArray[np.int64], rng: np.random.Generator) -> Array:
        """Parameters of the private Dirichlet posterior, one release for each of many made-up tables, in their shape.

        Parameters
        ----------
        data : array of int, shape ``(simulations, ...)``
        rng : numpy.random.Generator

        Raises
        ------
        ArgumentError
            If the mechanism does not lead to a posterior of counts.
        """
        raise ArgumentError(f"No private posterior of counts comes from a {type(self).__name__}.")

    # What it tells anyone who reads an output of it; by default that this is not possible here.

    def public_records(self, n_records: int | None) -> int | None:
        """The public number of records that an output is read with; None if it is private.

        Raises
        ------
        ArgumentError
            If a public number is missing, or is not that of the mechanism, or a private one is given.
        """
        if n_records is None:
            raise ArgumentError(f"The number of records of a {type(self).__name__} is public. Pass n_records=.")
        return integer(0, n_records=n_records)

    def published_totals(self, output: Array) -> list[tuple[NDArray[np.intp], float]]:
        """The rows, by number, whose records an output tells to add up to a number, and that number; often none."""
        return []

    def joint_rows(self, output: Array) -> JointLikelihoods | None:
        """The likelihood of all rows together, where noise has a latent radius; None where it has none."""
        return None

    @property
    def cell_noise(self) -> CellNoise | None:
        """The noise on each cell, where the output is the counts with a noise that is Laplace or normal; or None."""
        return None

    @property
    def row_noise(self) -> Noise | None:
        """The noise of one row as those see it who estimate, or nearly that; None if it is unknown or takes long."""
        return None

    def likelihoods_of_rows(
        self, output: Array, *, n_records: int | None, sampler: str, steps: int | None = None
    ) -> list[RowLikelihood]:
        """The factors of each cell and of each row's total in the likelihood of one output: one object for each row.

        Parameters
        ----------
        output : array
            What the guarantee is about, in the shape of the table.
        n_records : int or None
            As :meth:`public_records` returned it.
        sampler : {"exact", "fast"}
            What drew it.
        steps : int, optional
            Of the urn, for `"exact"`; by default those that are its default.

        Raises
        ------
        ArgumentError
            If the likelihood is no product, or the mechanism cannot have put this out.
        """
        raise ArgumentError(
            f"The likelihood of a {type(self).__name__} is not known as a product over cells, so nothing is inferred "
            "from its outputs here. Release with GeometricMechanism; or weigh each possible data set by its prior "
            "times exp(mechanism.log_likelihood(output, counts)) yourself."
        )
