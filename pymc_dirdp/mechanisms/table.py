"""Mechanisms for tables of counts: how they are planned, checked, drawn and read back."""

import abc
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, override

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Fact, Mechanism
from pymc_dirdp.mechanisms.outputs import Measured, NoisyTable, Output, RowLikelihood, add_up_to_1
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import Contribution, adjacency_by_name
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.texts.codec import facts_of, field_of


def worst_neighbours(
    base: Array, moves: Sequence[tuple[int, int]], records: int, adjacency: str
) -> tuple[Array, Array]:
    """One person's records on top of `base`: in each block all in the first cell; in the second, or nowhere."""
    x, y = base.copy(), base.copy()
    for a, b in moves:
        x.flat[a] += records
        if adjacency_by_name(adjacency).records_are_public:
            y.flat[b] += records
    return x, y


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
    output_kind: ClassVar[type[Output]] = NoisyTable
    needs_public_totals: ClassVar[bool] = False
    """Whether it publishes numbers of records, so that it is for tables where they are public."""
    facts: ClassVar[tuple[Fact, ...]]
    """What a release says of it, beside `adjacency` and `contribution`."""
    publishes: ClassVar[str]
    """The name of what is published. Where several tables are, their names start so."""
    formula: ClassVar[str]
    """The distribution of a draw, as a formula for the report."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""

    @property
    def published_axes(self) -> dict[str, tuple[int, ...]]:
        """The tables that are published, by name, and which axes of the table each of them keeps."""
        return {self.publishes: tuple(range(len(self.shape)))}

    def read_output(self, facts: Mapping[str, Any], table: str, *, draws: int, of_success: bool) -> Output:
        """The output of which a text says these facts.

        Parameters
        ----------
        facts : mapping of str to list
            The arrays by name.
        table : str
            The name of the table.
        draws : int
            How many draws the release has.
        of_success : bool
            Whether draws of a Beta variable are those of success alone.

        Raises
        ------
        ArgumentError
            If an array has another shape than belongs to this mechanism, or a number is not finite.
        """
        shapes = {name: tuple(self.shape[axis] for axis in axes) for name, axes in self.published_axes.items()}
        return self.output_kind.read(facts, shapes, table)

    def measured(self, output: Output) -> list[Measured]:
        """The noisy counts of marginals of the table in an output; none where that is none of noisy counts."""
        return []

    def totals_by_marginal(self, output: Array) -> list[list[float]]:
        """The numbers of records of the :meth:`published_totals`, for each table that is published."""
        return [[total for _, total in self.published_totals(output)]]

    @property
    def draws_in_words(self) -> str:
        """What the draws of a release are, and what they are not."""
        published = self.publishes.replace("_", " ")
        return f"the draws are from the posterior given the {published}, so their means and intervals are right"

    @classmethod
    def refuse_private_totals(cls, *, public: bool) -> None:
        """Raise the error about numbers of records that would be published and are private."""
        if cls.needs_public_totals and not public:
            raise ArgumentError(
                f"mechanism={cls.kind!r} publishes the number of records, which is private here. Use "
                "mechanism='geometric'. If the number is public and the adjacency replace-one, planning functions take "
                "public=['n_records']."
            )

    def refuse_inference(self) -> None:
        """Raise the error about a mechanism whose likelihood is no product over cells, so that nothing is inferred."""

    def check_numbers(self, n_records: int | None, *, public: bool) -> None:
        """Raise the error about a plan whose numbers of records are not those that this mechanism is for.

        Parameters
        ----------
        n_records : int or None
            The public number of records, or the planned one.
        public : bool
            Whether the numbers are public.
        """
        if not public and (self.needs_public_totals or self.rests_on_totals):
            raise ArgumentError(
                "Under this plan the release would add up to the number of records, which is private here. Call "
                "plan() again."
            )
        if self.assumed_records is not None and (self.assumed_records != n_records or not public):
            raise ArgumentError(
                "The plan was made for another number of records than the public one of its table. Call plan() again."
            )

    @property
    def assumed_records(self) -> int | None:
        """The public number of records that its curves rest on; None if they hold for any number."""
        return None

    @property
    def rests_on_totals(self) -> bool:
        """Whether its curves rest on numbers of records of people that are public, beside those that it publishes."""
        return False

    @property
    def contributed(self) -> Contribution:
        """What one person adds to the table, with one entry for each of its row axes."""
        return Contribution.of(self.contribution)

    def public_sizes(
        self, shape: Sequence[int], n_records: int, totals: Sequence[int] = (), *, public: bool
    ) -> tuple[Array, int]:
        """What is known in advance of the sizes of rows: records for each row, and how many rows divide them.

        Parameters
        ----------
        shape : sequence of int
            Of the table of counts.
        n_records : int
            In the whole table.
        totals : sequence of int, optional
            The public numbers of records of parts of the rows.
        public : bool
            Whether `n_records` is public.
        """
        sharing = math.prod(shape[:-1])
        sizes = np.full(sharing, float(n_records))
        if totals:
            parts = self.contributed.rows_by_entry(shape)
            sharing, sizes[parts] = parts.shape[1], np.array(totals, dtype=np.float64)[:, None]
        elif public and set(self.contributed.fitted(shape).axes) == {"each"}:
            # A person has as many records in every row, so all rows hold equal numbers.
            sharing, sizes = 1, sizes // len(sizes)
        return sizes, sharing

    @abc.abstractmethod
    def row_likelihoods(self, output: Array, *, steps: int | None = None) -> list[RowLikelihood]:
        """The factors of one output's likelihood as functions of the counts of each row: one for each row, in order.

        Parameters
        ----------
        output : array, shape `shape`
            One release. Where the noise is the same in all cells, some rows of it, in any shape.
        steps : int, optional
            Of the urn that drew it.

        Raises
        ------
        ArgumentError
            If an urn of so many steps cannot have drawn it.
        """

    @override
    def public_records(self, n_records: int | None) -> int | None:
        if adjacency_by_name(self.adjacency).records_are_public:
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
                    "Pass the output as it was released: the exact sampler of this mechanism returns no such numbers. "
                    "If it was drawn by the fast sampler or by an urn of another length, pass sampler='fast' or steps=."
                )
        return self.row_likelihoods(output, steps=steps)

    @abc.abstractmethod
    def check(self, counts: ArrayLike) -> NDArray[Any]:
        """The counts as an array, or an error, which does not show them: every one that depends on the counts."""

    @abc.abstractmethod
    def draw(
        self, counts: ArrayLike, draws: int, *, sampler: str, random_seed: Seed = None, n_records: int | None = None
    ) -> Output:
        """What is published.

        Parameters
        ----------
        counts : array_like of integers
            The secret.
        draws : int
            Number of draws.
        sampler : {"exact", "fast"}
        random_seed : int, SeedSequence, Generator or None
            None takes entropy from the operating system.
        n_records : int or None
            The public or planned number of records.
        """

    def shares_with(self, others: "Sequence[TableMechanism]") -> bool:
        """Whether these are all others that share its noise."""
        return False

    def draw_together(
        self, others: "Sequence[TableMechanism]", counts: Sequence[ArrayLike], *, sampler: str, random_seed: Seed = None
    ) -> list[Output]:
        """What is published of this table and of all others that share its noise, in this order, as by :meth:`draw`."""
        raise ArgumentError(f"{type(self).__name__} shares no noise with other tables.")

    def steps(self, sampler: str, n_records: int | None) -> int | None:
        """Public number of steps of the urn that draws; None without one."""
        return None

    def possible_records(self, output: Array) -> range:
        """The numbers of records with which this output is possible, for all that is not negligible.

        Where the number of records is private, the draws of a release that publishes a table give each of these the
        same prior probability; so they are computed from the output alone.
        """
        raise ArgumentError(f"The output of a {type(self).__name__} does not say how many records there are.")

    def problems(
        self, output: Output, sampler: str, n_records: int | None, totals: Sequence[int] = ()
    ) -> Iterator[str]:
        """What of an output this mechanism cannot have published, in sentences.

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
        if sampler == "exact" and not all(self.is_on_grid(one, steps) for one in output.values):
            yield "a number is not on the grid of the exact sampler"
        if not self.needs_public_totals:
            return
        # Noisy counts that are no whole doubles are rounded by this share of their size.
        rounded = [2.0**-50 * float(np.abs(table).sum()) for table in output.published.values()]
        for rounding, found in zip(rounded, self.totals_by_marginal(output.values[0]), strict=True):
            if abs(math.fsum(found) - (n_records or 0)) > rounding:
                yield "the noisy counts do not add up to the number of records"
            if len(totals) == len(found) and np.any(np.abs(np.subtract(totals, found)) > rounding):
                yield "the noisy counts do not add up to the public numbers of records of the rows"
            if min(found) < -rounding:
                yield "the noisy counts give a block of rows a negative number of records"

    @abc.abstractmethod
    def is_on_grid(self, output: Array, steps: int | None) -> bool:
        """Whether an exact sampler can have made this output."""

    @classmethod
    def suits(cls, shape: Sequence[int], contribution: Contribution | int) -> bool:
        """Whether it is for tables of this shape to which a person adds so much."""
        return True

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
        raise ArgumentError(f"{cls.__name__} is calibrated for a number of records: use dirdp.calibrate().")

    @classmethod
    def sharing(
        cls, guarantee: Guarantee, tables: Sequence[tuple[ArrayLike, Contribution | int]], *, adjacency: str
    ) -> "list[TableMechanism]":
        """The mechanisms of tables of the same people that share the least noise which satisfies a guarantee.

        Parameters
        ----------
        guarantee : Guarantee
            Of all tables together.
        tables : sequence of (array_like, Contribution or int)
            The prior of each, and what a person adds to it.
        adjacency : str
            What one person can change.
        """
        raise ArgumentError(f"Tables by {cls.__name__} share no noise.")

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """The mechanism of which a file says these facts, by the names of its arguments."""
        return cls(**facts)

    @property
    def json_parameters(self) -> dict[str, Any]:
        """What a text says of it beside the facts of its table."""
        values = {fact: getattr(self, fact.field) for fact in self.facts if fact.given and fact.name != "prior"}
        return {fact.name: _parameter(x) for fact, x in values.items() if not (fact.optional and x is None)}

    @classmethod
    def of_table(
        cls, parameters: Mapping[str, Any], *, prior: Array, adjacency: str, contribution: Contribution
    ) -> Self:
        """The mechanism of a table of which a text says these parameters; errors of all kinds if there is none."""
        given: dict[str, Any] = {"adjacency": adjacency}
        # A mechanism takes a single number if the records may lie anywhere.
        given["contribution"] = contribution.records if set(contribution.axes) <= {"any"} else contribution
        for fact in cls.facts:
            if fact.name == "prior":
                given["prior"] = prior
            elif fact.given and not (fact.optional and fact.name not in parameters):
                value = parameters[fact.name]
                given[fact.field] = field_of(cls, fact.field, value) if fact.kind == "list" else value
        return cls.from_dict(given)


def _parameter(value: Any) -> Any:
    """A number, a word or a table as JSON has it; a tuple may hold tuples of several lengths."""
    if isinstance(value, tuple):
        return facts_of(value)
    array = np.asarray(value)
    return array if array.dtype in (np.float64, np.int64) else array.tolist()
