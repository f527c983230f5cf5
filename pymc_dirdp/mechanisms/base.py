"""What every mechanism says of itself: its curves, what it releases, how likely that is, and what a file holds of it.

A new mechanism is one file with a class that does so, and a line in :mod:`pymc_dirdp.mechanisms.known`. Nothing outside
this room asks which mechanism it has.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.facts import Fact
from pymc_dirdp.mechanisms.released import Released
from pymc_dirdp.mechanisms.row_likelihood import ReadsOutputs, RowLikelihood
from pymc_dirdp.mechanisms.tempered import Tempered
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.finite_laws import FiniteLaws
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.sampling.entropy import Seed
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["SAMPLERS", "Mechanism", "TableMechanism"]

SAMPLERS = ("exact", "fast")


class Mechanism(ReadsOutputs, PrivacyCurves):
    """A randomised release of a table of counts, with exact or upper-bound privacy curves.

    A subclass is a frozen dataclass with `eq=False`; its fields are public, and two mechanisms are equal if their class
    and their fields are.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms import GeometricMechanism
    >>> isinstance(GeometricMechanism([1, 1], 2.0), Mechanism)
    True
    """

    covers_all_draws: ClassVar[bool] = False
    """Whether one release serves any number of draws; otherwise each draw is a release of its own."""
    fits_all_tables: ClassVar[bool] = False
    """Whether the shares of all tables are fitted to what is published of all, so that they are no draw."""
    samplers: ClassVar[tuple[str, ...]] = SAMPLERS
    """The samplers that can draw it, out of `("exact", "fast")`; the first is the default."""
    min_count: float | None = None
    """What every cell is promised to hold; None if the guarantee does not rest on that."""
    weighs_in_floats: ClassVar[bool] = False
    """Whether its exact sampler draws whole numbers by weights that were computed in floating point."""
    has_urn: ClassVar[bool] = False
    """Whether its exact sampler is an urn, which takes `steps` and a thousand times as long as another sampler."""
    calibrated_by: ClassVar[str] = ""
    """The function that calibrates it, where `for_guarantee` does not."""
    beside: ClassVar[str | None] = None
    """The name of what is published beside each draw, of which the draw is a function; None if it is the draw alone."""

    @classmethod
    def of(cls, thing: object) -> "Self | None":
        """The thing if it is a mechanism of this class, and None if it is anything else."""
        return thing if isinstance(thing, cls) else None

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
        """The name, if this mechanism can be drawn so; None takes the mechanism's own default."""
        if sampler is None:
            return self.samplers[0]
        if one_of(SAMPLERS, sampler=sampler) not in self.samplers:
            raise ArgumentError(self._no_such_sampler(sampler))
        return sampler

    def shares_of(self, beside: Array) -> Array:
        """The draws of the shares, as a function of what is published beside them; the last axis adds up to 1."""
        raise ArgumentError(f"A {type(self).__name__} publishes nothing beside its draws.")

    def prepare(self, sampler: str) -> None:
        """Raise what would keep it from drawing, such as a missing package, before anything is spent."""

    def _no_such_sampler(self, sampler: str) -> str:
        return f"{type(self).__name__} has no sampler={sampler!r}. Use sampler={self.samplers[0]!r}."

    @property
    @abc.abstractmethod
    def in_short(self) -> str:
        """Its public numbers in a few words, such as `"standard deviation 5.98"`."""

    @abc.abstractmethod
    def releases(
        self, counts: Array, n: int, *, sampler: str = "fast", random_seed: Seed = None, steps: int | None = None
    ) -> Array:
        """`n` independent releases of made-up counts, each what the guarantee is about. Shape ``(n, ...)``."""

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
            The number of steps of the urn that drew the output; None for the law that the urn approaches.

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
            Any numbers: what claims to be a mechanism may put out anything.
        x, y : array
            The two data sets.
        floor : float
            Half a step of the grid, added to probabilities that a sampler on a grid may put out as 0.
        """
        with np.errstate(invalid="ignore"):
            ratio = self.log_likelihood(outputs, x) - self.log_likelihood(outputs, y)
        return np.nan_to_num(ratio, nan=0.0, posinf=1e300, neginf=-1e300)

    def output_laws(self, x: Array, y: Array, cells: int | None = None) -> FiniteLaws:
        """The laws of the output at two data sets, cut into about so many cells; None takes as many as are useful.

        Raises
        ------
        ArgumentError
            If the laws are not known, or not for such data sets.
        """
        raise ArgumentError(f"The law of a {type(self).__name__} is not known here. Use audit, which draws from it.")

    def stronger(self, factor: float) -> "tuple[str, Self] | None":
        """A mechanism of the same kind that loses more, the larger the factor, and what it is called; None if none."""
        return None

    @property
    def tempered(self) -> "Tempered | None":
        """The parameters of a draw that is itself the release; None if draws come from something released before."""
        return None

    @property
    def has_product_law(self) -> bool:
        """Whether the likelihood of an output is a product over cells, so that a posterior given it can be drawn."""
        return True

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

    def draws_of_shares(self, data: NDArray[np.int64], rng: np.random.Generator) -> Array:
        """One private draw of the shares for each of many made-up tables, in their shape: for planning.

        Parameters
        ----------
        data : array of int, shape ``(simulations, ...)``
        rng : numpy.random.Generator
        """
        draw: Array = dirichlet(self.posterior_parameters(data, rng), 1, rng)[0]
        return draw


class TableMechanism(Mechanism):
    """A mechanism for a table of counts, which a release of a model may name.

    Attributes
    ----------
    adjacency : {"replace-one", "add-remove"}
        What one person can change.
    contribution : Contribution
        What one person adds to the table.
    """

    adjacency: str
    contribution: Contribution | int

    kind: ClassVar[str]
    """Its name in `plan(mechanism=...)`."""
    needs_public_totals: ClassVar[bool] = False
    """Whether it publishes numbers of records, so that it is for tables where they are public."""
    facts: ClassVar[tuple[Fact, ...]]
    """What a release says of it, beside `adjacency` and `contribution`."""
    publishes: ClassVar[str | None] = None
    """The name of what is published beside the draws and decides them; None if the draws are the release.

    Where several tables are published, their names start so.
    """
    readings: ClassVar[tuple[str, ...]] = ()
    """The ways in which papers read what is published as data, as in `sample(postprocess=...)`."""
    formula: ClassVar[str]
    """The law of a draw, as a formula for the report; braces hold fields."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""

    @property
    def published_axes(self) -> dict[str, tuple[int, ...]]:
        """The tables that are published in place of draws, by name, and which axes of the table each of them keeps."""
        return {} if self.publishes is None else {self.publishes: tuple(range(len(self.shape)))}

    def as_output(self, published: Mapping[str, Array]) -> Array:
        """The output, as a likelihood takes it, that tables make up which were published in place of draws."""
        (output,) = published.values()
        return output

    def separately(self, output: Array) -> "list[tuple[TableMechanism, Array]]":
        """The independent mechanisms of which this one is made up, each with its part of an output."""
        return [(self, output)]

    @property
    def law_in_words(self) -> str:
        """The law of a draw in words, for the report."""
        return self.formula.format(**vars(self))

    @property
    def assumed_records(self) -> int | None:
        """The public number of records that its curves rest on; None if they hold for any number."""
        return None

    @property
    def contributed(self) -> Contribution:
        """What one person adds to the table, with one entry for each of its row axes."""
        return Contribution.of(self.contribution)

    @abc.abstractmethod
    def cell_log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        """The factor of each cell in the likelihood of an output, as a logarithm. Shapes broadcast.

        Given the table, a release is a product over its cells and rows: this, and :meth:`row_log_likelihood`.
        """

    def row_log_likelihood(self, totals: ArrayLike, *, steps: int | None = None) -> Array:
        """The factor of each row's total number of records in the likelihood, as a logarithm. Shape of `totals`."""
        return np.zeros(np.shape(totals))

    @abc.abstractmethod
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> list[RowLikelihood]:
        """The same factors as functions of the counts of each row, for one output: one for each row, in order.

        Parameters
        ----------
        output : array, shape `shape`
            One release.
        steps : int, optional
            Of the urn that drew it.

        Raises
        ------
        ArgumentError
            If an urn of so many steps cannot have drawn it.
        """

    @override
    def public_records(self, n_records: int | None) -> int | None:
        if adjacency_named(self.adjacency).records_are_public:
            if self.assumed_records is not None and n_records not in (None, self.assumed_records):
                raise ArgumentError("The mechanism is for another number of records. Leave n_records out.")
            return super().public_records(self.assumed_records if n_records is None else n_records)
        if n_records is not None:
            raise ArgumentError(
                f"Under {self.adjacency} the number of records is private. Leave n_records out, and pass your prior of "
                "it as n_prior= to analyse or estimate."
            )
        return None

    @override
    def likelihoods_of_rows(
        self, output: Array, *, n_records: int | None, sampler: str, steps: int | None = None
    ) -> list[RowLikelihood]:
        if sampler == "exact":
            steps = self.steps(sampler, n_records) if steps is None else steps
            if not self.is_on_grid(output, steps):
                raise ArgumentError(
                    "No exact sampler of this mechanism puts out such numbers. Pass what was released and not a draw "
                    "from it, the steps of the urn if you chose them, and sampler='fast' for what was drawn so."
                )
        return self.row_likelihoods(output, steps=steps)

    @override
    def log_likelihood(self, output: ArrayLike, counts: ArrayLike, *, steps: int | None = None) -> Array:
        table = np.asarray(counts, dtype=np.float64)
        cells = self.cell_log_likelihood(output, table, steps=steps).sum(axis=-1)
        rows = cells + self.row_log_likelihood(table.sum(axis=-1), steps=steps)
        return np.asarray(rows.sum(axis=tuple(range(rows.ndim - len(self.shape) + 1, rows.ndim))))

    @abc.abstractmethod
    def check(self, counts: ArrayLike) -> None:
        """Raise every error that depends on the counts, before anything is drawn."""

    @abc.abstractmethod
    def draw(
        self, counts: ArrayLike, draws: int, *, sampler: str, random_seed: Seed = None, n_records: int | None = None
    ) -> Released:
        """What is released: draws, or a table from which draws follow.

        Parameters
        ----------
        counts : array_like of whole numbers
            The secret.
        draws : int
            Number of draws.
        sampler : {"exact", "fast"}
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system.
        n_records : int or None
            The public or planned number of records.
        """

    def steps(self, sampler: str, n_records: int | None) -> int | None:
        """Public number of steps of the urn that draws; None without one."""
        return None

    def as_drawn(self, steps: int | None) -> "TableMechanism":
        """The same mechanism with the curves of what an urn of so many steps puts out, if it draws from one."""
        return self

    def read_as_data(self, output: Array, how: str) -> Array:
        """Nonnegative counts that a paper would take for the data: `how` is one of `readings`."""
        raise ArgumentError(f"{type(self).__name__} publishes no counts that could be read as data.")

    def possible_records(self, output: Array) -> range:
        """The numbers of records with which this output is possible, for all that is not negligible.

        Where the number of records is private, the draws of a release that publishes a table take each of these for as
        likely as another; so they are computed from the output alone.
        """
        raise ArgumentError(f"The output of a {type(self).__name__} does not say how many records there are.")

    @abc.abstractmethod
    def is_on_grid(self, output: Array, steps: int | None) -> bool:
        """Whether an exact sampler can have made this output."""

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        *,
        prior: ArrayLike,
        adjacency: str = "replace-one",
        contribution: Contribution | int = 1,
    ) -> Self:
        """The mechanism with the least error that keeps `guarantee`; arguments as for the mechanism itself."""
        raise ArgumentError(f"{cls.__name__} is calibrated for a number of records: use {cls.calibrated_by}.")

    @classmethod
    def planned(cls, guarantee: Guarantee, *, n_records: int | None, **facts: Any) -> Self:
        """The mechanism that a plan takes for a table: that of `for_guarantee`, or an error in the words of a plan.

        Parameters
        ----------
        guarantee : Guarantee
        n_records : int or None
            The number of records: public where the mechanism `needs_public_totals`, or that to plan for.
        **facts
            `prior`, `adjacency` and `contribution`.
        """
        return cls.for_guarantee(guarantee, **facts)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """The mechanism of which a file says these facts, by the names of its arguments."""
        return cls(**facts)
