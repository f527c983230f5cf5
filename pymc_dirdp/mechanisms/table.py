"""Mechanisms for tables of counts: calibration, validation, sampling and loading."""

import abc
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, override

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.literals import AdjacencyName, Sampler
from pymc_dirdp.mechanisms.base import FileField, Mechanism
from pymc_dirdp.mechanisms.outputs import Measured, NoisyTable, Output, RowLikelihood, add_up_to_1
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import Contribution, adjacency_by_name
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.sampling.drawing import Drawing, Published, SecretCounts, checked_counts
from pymc_dirdp.texts.codec import facts_of, field_of


def neighbouring_tables(
    base: Array, moves: Sequence[tuple[int, int]], records: int, adjacency: AdjacencyName
) -> tuple[Array, Array]:
    """Two tables: `base` plus one person's records in the first cell of each block, and in the second or in none."""
    x, y = base.copy(), base.copy()
    for a, b in moves:
        x.flat[a] += records
        if adjacency_by_name(adjacency).records_are_public:
            y.flat[b] += records
    return x, y


class TableMechanism(Mechanism):
    """A mechanism for a table of counts that a release of a model may use.

    Attributes
    ----------
    adjacency : {"replace-one", "add-remove"}
        What one person can change.
    contribution : Contribution
        The records that one person adds to the table.
    """

    adjacency: AdjacencyName
    contribution: Contribution | int

    kind: ClassVar[str]
    """The name in `plan(mechanism=...)`."""
    output_kind: ClassVar[type[Output]] = NoisyTable
    needs_public_totals: ClassVar[bool] = False
    """Whether it publishes numbers of records, so that these have to be public."""
    facts: ClassVar[tuple[FileField, ...]]
    """The fields in a release file, other than `adjacency` and `contribution`."""
    publishes: ClassVar[str]
    """The name of the published array. If there are several, their names start with it."""
    formula: ClassVar[str]
    """The distribution of a draw, as a formula for the report."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""

    @property
    def published_axes(self) -> dict[str, tuple[int, ...]]:
        """The names of the published arrays, and the axes of the table that each of them has."""
        return {self.publishes: tuple(range(len(self.shape)))}

    def read_output(self, facts: Mapping[str, Any], table: str, *, n: int, of_success: bool) -> Output:
        """The output from the fields of a text.

        Parameters
        ----------
        facts : mapping of str to list
            The arrays by name.
        table : str
            The name of the table.
        n : int
            The number of draws of the release.
        of_success : bool
            Whether draws of a Beta variable are probabilities of success only.

        Raises
        ------
        ArgumentError
            If an array does not have the shape of this mechanism, or a number is not finite.
        """
        shapes = {name: tuple(self.shape[axis] for axis in axes) for name, axes in self.published_axes.items()}
        return self.output_kind.read(facts, shapes, table)

    def measured(self, output: Output) -> list[Measured]:
        """The noisy marginals of the table in an output; empty if the output is not noisy counts."""
        return []

    def totals_by_marginal(self, output: Array) -> list[list[float]]:
        """The totals of :meth:`published_totals`, for each published array."""
        return [[total for _, total in self.published_totals(output)]]

    @property
    def draws_note(self) -> str:
        """A note for the report on the correct use of the draws of a release."""
        published = self.publishes.replace("_", " ")
        return f"the draws are from the posterior given the {published}, so their means and intervals are valid"

    @classmethod
    def refuse_private_totals(cls, *, public: bool) -> None:
        """Raise if the mechanism would publish private numbers of records."""
        if cls.needs_public_totals and not public:
            raise ArgumentError(
                f"mechanism={cls.kind!r} publishes the number of records, which is private here. Use "
                "mechanism='geometric'. If the number is public and the adjacency is replace-one, pass "
                "public=['n_records'] to the planning function."
            )

    def refuse_inference(self) -> None:
        """Raise if the likelihood is not a product over cells, so that inference is not available."""

    def check_numbers(self, n_records: int | None, *, public: bool) -> None:
        """Raise if the numbers of records of a plan do not fit this mechanism.

        Parameters
        ----------
        n_records : int or None
            The public number of records, or the planned one.
        public : bool
            Whether the numbers are public.
        """
        if not public and (self.needs_public_totals or self.rests_on_totals):
            raise ArgumentError(
                "Under this plan the release would publish the number of records, which is private for this model. "
                "Call plan() again with this model."
            )
        if self.assumed_records is not None and (self.assumed_records != n_records or not public):
            raise ArgumentError(
                "The public number of records of the table differs from that of the plan. Call plan() again with this "
                "model."
            )

    @property
    def assumed_records(self) -> int | None:
        """The public number of records that the curves assume; None if they hold for any number."""
        return None

    @property
    def rests_on_totals(self) -> bool:
        """Whether the curves assume public numbers of records of each person, other than those that it publishes."""
        return False

    @property
    def contributed(self) -> Contribution:
        """The records that one person adds to the table, with one entry for each row axis."""
        return Contribution.of(self.contribution)

    def public_sizes(
        self, shape: Sequence[int], n_records: int, totals: Sequence[int] = (), *, public: bool
    ) -> tuple[Array, int]:
        """The public information on row sizes: a number of records for each row, and how many rows divide it.

        Parameters
        ----------
        shape : sequence of int
            Shape of the table of counts.
        n_records : int
            Number of records in the table.
        totals : sequence of int, optional
            The public numbers of records of blocks of rows.
        public : bool
            Whether `n_records` is public.
        """
        sharing = math.prod(shape[:-1])
        sizes = np.full(sharing, float(n_records))
        if totals:
            parts = self.contributed.rows_by_entry(shape)
            sharing, sizes[parts] = parts.shape[1], np.array(totals, dtype=np.float64)[:, None]
        elif public and set(self.contributed.fitted(shape).axes) == {"each"}:
            # A person has the same number of records in every row, so all row totals are equal.
            sharing, sizes = 1, sizes // len(sizes)
        return sizes, sharing

    @abc.abstractmethod
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> list[RowLikelihood]:
        """The likelihood of one output as a function of the counts of each row: one object per row, in order.

        Parameters
        ----------
        output : array, shape `shape`
            One release. If the noise is the same in all cells, any rows of it, in any shape.
        steps : int, optional
            Number of steps of the urn that drew it.

        Raises
        ------
        ArgumentError
            If an urn with this number of steps cannot return the output.
        """

    @override
    def public_records(self, n_records: int | None) -> int | None:
        if adjacency_by_name(self.adjacency).records_are_public:
            if self.assumed_records is not None and n_records not in (None, self.assumed_records):
                raise ArgumentError(
                    f"Expected n_records={self.assumed_records}, the number of records of the mechanism, got "
                    f"{n_records}. Leave n_records out."
                )
            return super().public_records(self.assumed_records if n_records is None else n_records)
        if n_records is not None:
            raise ArgumentError(
                f"Under {self.adjacency} the number of records is private. Leave n_records out, and pass your prior "
                "for it as n_prior= to analyse or estimate."
            )
        return None

    @override
    def likelihoods_of_rows(
        self, output: Array, *, n_records: int | None, sampler: Sampler, steps: int | None = None
    ) -> list[RowLikelihood]:
        if sampler == "exact":
            steps = self.steps(sampler, n_records) if steps is None else steps
            if not self.is_on_grid(output, steps):
                raise ArgumentError(
                    "The exact sampler of this mechanism cannot return this output. Pass the output as it was "
                    "released. If it is from the fast sampler, pass sampler='fast'; if the urn had another number of "
                    "steps, pass steps=."
                )
        return self.row_likelihoods(output, steps=steps)

    def check(self, counts: ArrayLike) -> Array:
        """Validate the counts and return them as doubles. They are **secret**, and no error shows one."""
        return checked_counts(counts, self.shape, self.min_count or 0.0, self.assumed_records)

    @abc.abstractmethod
    def prepare(
        self, released_draws: int, *, sampler: Sampler, random_seed: Seed = None, n_records: int | None = None
    ) -> Drawing:
        """The draw of an output with its noise or its source of randomness, before the records are opened.

        Parameters
        ----------
        released_draws : int
            Number of draws. A mechanism that releases noisy counts releases them once.
        sampler : {"exact", "fast"}
        random_seed : int, SeedSequence, Generator or None
            None uses entropy from the operating system.
        n_records : int or None
            The public or planned number of records.
        """

    def prepare_together(
        self, others: "Sequence[TableMechanism]", *, sampler: Sampler, random_seed: Seed = None
    ) -> Sequence[Drawing]:
        """As :meth:`prepare`, for this table and all others that share its noise, in this order."""
        raise ArgumentError(f"{type(self).__name__} does not share noise with other tables.")

    def output_of(self, drawn: Sequence[Published]) -> Output:
        """The output that is published, from the arrays of a drawing."""
        return self.output_kind(dict(zip(self.published_axes, drawn, strict=True)))

    def draw(
        self, counts: ArrayLike, n: int, *, sampler: Sampler, random_seed: Seed = None, n_records: int | None = None
    ) -> Output:
        """Draw the output that is published. `counts` are **secret**; other arguments as for :meth:`prepare`."""
        drawing = self.prepare(n, sampler=sampler, random_seed=random_seed, n_records=n_records)
        return self.output_of(drawing.of(SecretCounts(counts)))

    def shares_with(self, others: "Sequence[TableMechanism]") -> bool:
        """Whether the other mechanisms are exactly those that share its noise."""
        return False

    def steps(self, sampler: Sampler, n_records: int | None) -> int | None:
        """Public number of steps of the urn; None if the sampler is not an urn."""
        return None

    def possible_records(self, output: Array) -> range:
        """The numbers of records with a non-negligible likelihood for this output.

        Where the number of records is private, the draws of a release that publishes a table give each of these the
        same prior probability; so they are computed from the output alone.
        """
        raise ArgumentError(
            f"The output of a {type(self).__name__} does not bound the number of records. Pass n_prior=."
        )

    def problems(
        self, output: Output, sampler: Sampler, n_records: int | None, totals: Sequence[int] = ()
    ) -> Iterator[str]:
        """Properties of an output that this mechanism cannot publish, as sentences.

        Parameters
        ----------
        output : Output
        sampler : {"exact", "fast"}
        n_records : int or None
            The public or planned number of records.
        totals : sequence of int
            The public numbers of records of blocks of rows, if any.
        """
        if (shares := output.shares) is not None:
            if not np.all(shares > 0):
                yield "a share of a draw is not between 0 and 1"
            elif not np.all(add_up_to_1(shares)):
                yield "the shares of a draw do not add up to 1"
        steps = self.steps(sampler, n_records)
        if sampler == "exact" and not all(self.is_on_grid(values, steps) for values in output.values):
            yield "a number is not on the grid of the exact sampler"
        if not self.needs_public_totals:
            return
        # Large noisy counts are rounded to doubles, with this relative error.
        rounded = [2.0**-50 * float(np.abs(table).sum()) for table in output.published.values()]
        for rounding, sums in zip(rounded, self.totals_by_marginal(output.values[0]), strict=True):
            if abs(math.fsum(sums) - (n_records or 0)) > rounding:
                yield "the noisy counts do not add up to the number of records"
            if len(totals) == len(sums) and np.any(np.abs(np.subtract(totals, sums)) > rounding):
                yield "the noisy counts do not add up to the public numbers of records of the rows"
            if min(sums) < -rounding:
                yield "the noisy counts give a block of rows a negative number of records"

    @abc.abstractmethod
    def is_on_grid(self, output: Array, steps: int | None) -> bool:
        """Whether the exact sampler can return this output."""

    @classmethod
    def suits(cls, shape: Sequence[int], contribution: Contribution | int) -> bool:
        """Whether the mechanism supports tables of this shape with this contribution."""
        return True

    @classmethod
    def for_guarantee(
        cls,
        guarantee: Guarantee,
        *,
        prior: ArrayLike,
        adjacency: AdjacencyName = "replace-one",
        contribution: Contribution | int = 1,
    ) -> Self:
        """The mechanism with the smallest error that satisfies `guarantee`; arguments as for the mechanism itself."""
        raise ArgumentError(f"{cls.__name__} is calibrated for a number of records. Use dirdp.calibrate().")

    @classmethod
    def sharing(
        cls, guarantee: Guarantee, tables: Sequence[tuple[ArrayLike, Contribution | int]], *, adjacency: AdjacencyName
    ) -> "list[TableMechanism]":
        """The mechanisms of tables of the same people that share the least noise which satisfies a guarantee.

        Parameters
        ----------
        guarantee : Guarantee
            The guarantee of all tables together.
        tables : sequence of (array_like, Contribution or int)
            The prior of each table, and the records that a person adds to it.
        adjacency : str
            What one person can change.
        """
        raise ArgumentError(f"{cls.__name__} cannot share noise between tables. Use mechanism='joint'.")

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """The mechanism from the fields of a file, by the names of the arguments."""
        return cls(**facts)

    @property
    def json_parameters(self) -> dict[str, Any]:
        """The parameters in a text, other than those of the table."""
        values = {fact: getattr(self, fact.field) for fact in self.facts if fact.is_argument and fact.name != "prior"}
        return {fact.name: _parameter(x) for fact, x in values.items() if not (fact.optional and x is None)}

    @classmethod
    def of_table(
        cls, parameters: Mapping[str, Any], *, prior: Array, adjacency: AdjacencyName, contribution: Contribution
    ) -> Self:
        """The mechanism of a table from the parameters in a text; raises various errors if they are invalid."""
        arguments: dict[str, Any] = {"adjacency": adjacency}
        # The contribution is a single number if the records may lie anywhere.
        arguments["contribution"] = contribution.records if set(contribution.axes) <= {"any"} else contribution
        for fact in cls.facts:
            if fact.name == "prior":
                arguments["prior"] = prior
            elif fact.is_argument and not (fact.optional and fact.name not in parameters):
                value = parameters[fact.name]
                arguments[fact.field] = field_of(cls, fact.field, value) if fact.kind == "list" else value
        return cls.from_dict(arguments)


def _parameter(value: Any) -> Any:
    """A number, a string or a table for JSON; a tuple may contain tuples of different lengths."""
    if isinstance(value, tuple):
        return facts_of(value)
    array = np.asarray(value)
    return array if array.dtype in (np.float64, np.int64) else array.tolist()
