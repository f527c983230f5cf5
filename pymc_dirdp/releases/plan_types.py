"""A plan: the public facts about a release that will be drawn. It is written as a text, and validated when read."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, override

from pymc_dirdp.checks import MAX_RECORDS, at_least, integer, one_of
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.literals import AdjacencyName, Sampler
from pymc_dirdp.mechanisms.base import SAMPLERS
from pymc_dirdp.mechanisms.outputs import Marginals, Output
from pymc_dirdp.mechanisms.registry import STRATEGIES, by_class_name
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.privacy_unit import PrivacyUnit, UnitOptions
from pymc_dirdp.models.table import Table, check_names
from pymc_dirdp.planning.allocation import composed
from pymc_dirdp.planning.calibration import OBJECTIVES
from pymc_dirdp.planning.choosing import Choice
from pymc_dirdp.planning.options import MAX_DRAWS
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.releases.choices import PrivateChoice, with_choices
from pymc_dirdp.releases.wording import model_assumptions
from pymc_dirdp.texts.codec import Layout, RebuiltOnCopy, WithLayout, fields_of, value_of
from pymc_dirdp.texts.grammar import Text, checked_version, error_location, library_version

if TYPE_CHECKING:
    from pymc_dirdp.releases.report import Report


def records_name(observed: str) -> str:
    """The name of the counts of an observed variable in a private model."""
    return f"{observed}_records"


@dataclass(frozen=True)
class PlannedTable(WithLayout):
    """One table of a plan.

    Attributes
    ----------
    table : Table
        The public facts about it, with labels of types that a text preserves.
    mechanism : TableMechanism
        The mechanism that releases it.
    n_records : int or None
        The public number of records. If it is private, the planning size, or None.
    choice : Choice or None
        With `mechanism="auto"`, the expected KL by which the mechanism was chosen.
    totals : tuple of int
        The public numbers of records along some row axes, see `PrivacyUnit.public_axes`; empty if there are none.
    """

    table: Table
    mechanism: TableMechanism
    n_records: int | None
    choice: Choice | None = None
    totals: tuple[int, ...] = ()

    layout: ClassVar[Layout] = {
        **{name: f"table.{name}" for name in ("name", "family", "dims")},
        "labels": "table.coords",
        "observed": "table.likelihoods",
        "n_records": "n_records",
        "totals": "totals",
        "prior": "table.prior",
        "one_person_adds": "mechanism.contributed",
        "mechanism": "mechanism_name",
        "parameters": "mechanism.json_parameters",
        "chosen_from": "choice",
    }
    omitted_if_empty: ClassVar[frozenset[str]] = frozenset({"totals"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", self.table.with_text_labels)
        if self.mechanism.shape != self.table.shape:
            raise ArgumentError(f"the mechanism of {self.table.name!r} is for a table of another shape.")
        if self.n_records is not None:
            object.__setattr__(self, "n_records", integer(0, n_records=self.n_records))
            if self.n_records > MAX_RECORDS:
                raise ArgumentError("n_records is above 2**53.")
        object.__setattr__(self, "totals", tuple(integer(0, totals=total) for total in self.totals))

    @property
    def mechanism_name(self) -> str:
        """The class of the mechanism, by its name in a text."""
        return type(self.mechanism).__name__

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any], adjacency: AdjacencyName) -> Self:
        """The table with these facts, in a plan for this relation. Raises any of several errors if it is invalid."""
        fields = fields_of(cls, facts, without=("mechanism",))
        table, name = fields["table"], facts["mechanism"]
        mechanism = by_class_name()[one_of(by_class_name(), mechanism=name)].of_table(
            facts["parameters"],
            prior=table.prior,
            adjacency=adjacency,
            contribution=value_of(Contribution, facts["one_person_adds"]).fitted(table.shape),
        )
        return cls(mechanism=mechanism, **fields)


class PublicPlan(RebuiltOnCopy, WithLayout, Text):
    """The common part of plans of tables and of pairs of columns: the guarantee, the unit of privacy and the report."""

    guarantee: Guarantee
    unit_options: UnitOptions
    library_version: str
    after: tuple[PrivateChoice, ...]

    created_by: ClassVar[str] = "plan"
    omitted_if_empty: ClassVar[frozenset[str]] = frozenset({"after"})

    @property
    @abstractmethod
    def privacy_unit(self) -> PrivacyUnit:
        """The unit of privacy: what one person can change, in numbers and sentences."""

    @property
    @abstractmethod
    def tables_alone(self) -> PrivacyCurves:
        """The privacy curves of the release, without earlier choices."""

    @property
    def composition(self) -> PrivacyCurves:
        """The privacy curves of the release and of earlier choices."""
        return with_choices(self.after, self.tables_alone)

    @property
    def statement(self) -> str:
        """The guarantee in words."""
        return str(self.guarantee)

    @property
    def protected(self) -> str:
        """Who is protected, and what two neighbouring data sets are, in sentences."""
        return self.privacy_unit.protected

    @property
    def adjacency(self) -> AdjacencyName:
        """The relation between neighbouring data sets."""
        return self.unit_options.adjacency

    @property
    def unit_label(self) -> str:
        """The name of the unit of privacy: "record", "person", "hospital, person", "at most 3 records"."""
        return self.privacy_unit.label

    @override
    def check_guarantee(self) -> None:
        for choice in self.after:
            choice.check_guarantee()
        if not self.composition.satisfies(self.guarantee):
            raise UnattainableError(f"The plan does not satisfy {self.guarantee}, which it states. Call plan() again.")

    def __str__(self) -> str:
        return str(self._report())

    def _repr_html_(self) -> str:
        return self._report()._repr_html_()

    def _report(self) -> "Report":
        from pymc_dirdp.releases.report import report  # It imports this module.

        return report(self)


@dataclass(frozen=True, repr=False)
class Plan(PublicPlan):
    """The plan of a release, which is made before any data are counted. It is public: safe to print and to save.

    Attributes
    ----------
    guarantee : Guarantee
        The guarantee of the whole release, all tables and draws together.
    parts : tuple of PlannedTable
        The released tables, in the order of the model.
    unit_options : UnitOptions
        The options about people.
    groups : tuple of tuple of str
        The groups of tables that may have records of the same person. Without `disjoint` there is one group.
    n_units : int or None
        The number of units, if a unit is an axis and the number is public.
    others : bool
        Whether some groups of tables have records of people who are not entries of the unit.
    strategy, objective : str
        How the mechanisms were chosen, see :func:`pymc_dirdp.calibrate`.
    released_draws : int
        The number of draws in the release. The guarantee covers all of them.
    sampler : {"exact", "fast"}
        The sampler of the draws, see :func:`pymc_dirdp.plan`.
    min_count : float
        The public lower bound on the count of every cell.
    library_version : str
        The version of pymc_dirdp.
    after : tuple of Structure or Bins
        The earlier private choices from the same records. The guarantee also covers these.

    Raises
    ------
    ArgumentError
        If a number is outside its domain, or the plan does not state what its mechanisms assume. The guarantee is
        checked when the plan is loaded, and before anything is drawn.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> chosen = dirdp.plan(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric", released_draws=100)
    >>> chosen
    Plan(1-differential privacy, 'p' by geometric)
    >>> chosen.released_draws
    100

    Colleagues can load the file of a plan and draw a release from it. Nothing in the file is trusted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dirdp.save(chosen, f"{folder}/plan.json")
    ...     dirdp.load(f"{folder}/plan.json") == chosen
    True
    """

    guarantee: Guarantee
    parts: tuple[PlannedTable, ...]
    unit_options: UnitOptions
    groups: tuple[tuple[str, ...], ...]
    n_units: int | None
    others: bool
    strategy: str
    objective: str
    released_draws: int
    sampler: Sampler
    min_count: float
    library_version: str = field(default_factory=library_version)
    after: tuple[PrivateChoice, ...] = ()

    kind: ClassVar[str] = "plan"
    # The sentences at the top follow from the numbers.
    layout: ClassVar[Layout] = {
        **{name: name for name in ("statement", "protected", "assumptions", "library_version", "guarantee")},
        **{name: name for name in ("released_draws", "sampler")},
        "adjacency": "unit_options.adjacency",
        **{name: name for name in ("min_count", "strategy", "objective")},
        "people": {
            **{name: f"unit_options.{name}" for name in ("unit", "contribution", "public", "disjoint", "counted")},
            "n_units": "n_units",
            "others": "others",
        },
        "groups": "groups",
        "tables": "parts",
        "after": "after",
    }

    def __post_init__(self) -> None:
        one_of(STRATEGIES, strategy=self.strategy)
        one_of(OBJECTIVES, objective=self.objective)
        object.__setattr__(self, "min_count", at_least(0, min_count=self.min_count))
        checked_version(self.library_version)
        object.__setattr__(self, "released_draws", integer(1, released_draws=self.released_draws))
        if self.released_draws > MAX_DRAWS:
            raise ArgumentError(f"it has more than {MAX_DRAWS} draws.")
        if self.released_draws != 1 and self.publishing(Marginals):
            raise ArgumentError("The plan states several draws, but fitted shares are a single estimate.")
        check_names(tuple(part.table for part in self.parts))
        self._check_people()
        one_of(SAMPLERS, sampler=self.sampler)
        for part in self.parts:
            self._check_numbers(part)
        for first, *others in self.noise_groups:
            if not first.mechanism.shares_with([part.mechanism for part in others]):
                raise ArgumentError(
                    f"The plan does not state all tables that share the noise of {first.table.name!r}, or they are not "
                    "tables of the same people. Call plan() again."
                )
        # A bound on the time that parsing a text takes.
        if len(self.after) > 1000:
            raise ArgumentError("It has more than 1000 earlier choices.")
        for choice in self.after:
            choice.check_same_people(self.adjacency, self.unit_label)

    def _check_people(self) -> None:
        """Refuse tables whose mechanisms assume another unit of privacy than the plan states."""
        names = [part.table.name for part in self.parts]
        groups_are_sets = all(group and len(set(group)) == len(group) for group in self.groups)
        if not names or len(set(names)) < len(names) or set().union(*self.groups) != set(names) or not groups_are_sets:
            raise ArgumentError("its groups are not groups of its tables.")
        if self.n_units is not None:
            integer(0, n_units=self.n_units)
        used = {part.mechanism.min_count for part in self.parts} - {None}
        if used - {self.min_count} or any(part.mechanism.adjacency != self.adjacency for part in self.parts):
            raise ArgumentError(
                "The plan does not state what its mechanisms assume: min_count, or what one person can change. Call "
                "plan() again."
            )
        options, adds = self.unit_options, [adds for _, adds in self.privacy_unit.contributions]
        records = options.contribution or 1
        observed = {likelihood.name for part in self.parts for likelihood in part.table.likelihoods}
        # Without a unit, the records of a person may be anywhere along the row axes, except if the numbers of records
        # of rows are public. Without any option about people, a person has a record in each separately observed row.
        public = options.n_records_is_public and not observed.isdisjoint(options.public)
        kinds = {"any"} | ({"own"} if public and records == 1 else set())
        kinds |= {"each"} if options.contribution is None and options.counted is None else set()
        # An entry of a unit may have the maximum number of records in each of its variables, other people have one.
        is_low = options.is_bounded and not self.others and any(amount.records < records for amount in adds)
        is_other = any(amount.records != records or set(amount.axes) - kinds for amount in adds)
        if is_low or (is_other and not options.unit):
            raise ArgumentError(
                "The tables allow for other records of a person than the plan states. Call plan() again."
            )

    def _check_numbers(self, part: PlannedTable) -> None:
        """Refuse a table whose mechanism is for other numbers of records, or whose public numbers do not add up."""
        part.mechanism.check_numbers(part.n_records, public=self.unit_options.n_records_is_public)
        entries = [part.table.shape[axis] for axis in self.privacy_unit.public_axes(part.table.name)]
        if len(part.totals) != (math.prod(entries) if entries else 0) or (
            part.totals and sum(part.totals) != part.n_records
        ):
            raise ArgumentError(
                f"The plan does not state the public numbers of records of the rows of {part.table.name!r}, or they do "
                "not add up to that of the table. Call plan() again."
            )

    @classmethod
    @override
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        parts = []
        for number, table in enumerate(facts["tables"], start=1):
            with error_location(f"table {number}"):
                parts.append(PlannedTable.of_facts(table, facts["adjacency"]))
        return cls(parts=tuple(parts), **cls.parse_fields(facts, "parts"))

    def __repr__(self) -> str:
        # At most three tables fit into a line.
        is_long = len(self.parts) > 3
        shown = [f"{part.table.name!r} by {part.mechanism.kind}" for part in self.parts[: 3 - is_long]]
        rest = [f"{len(self.parts) - len(shown)} more tables"] if is_long else []
        return f"Plan({', '.join([str(self.guarantee), *shown, *rest])})"

    @override
    @cached_property
    def privacy_unit(self) -> PrivacyUnit:
        """The unit of privacy: what one person can change, in numbers and sentences."""
        shapes = tuple((part.table.name, part.table.shape) for part in self.parts)
        adds = tuple((part.table.name, part.mechanism.contributed.fitted(part.table.shape)) for part in self.parts)
        return PrivacyUnit(self.unit_options, shapes, adds, self.groups, self.n_units, self.others)

    @cached_property
    def assumptions(self) -> tuple[str, ...]:
        """The further assumptions of the guarantee, in sentences."""
        return tuple(model_assumptions(self.privacy_unit, [part.table for part in self.parts]))

    @property
    def contribution(self) -> int:
        """The maximum number of records of a unit in one table."""
        return max(self.privacy_unit.contribution(part.table.name).total(part.table.shape) for part in self.parts)

    @property
    def is_of_model(self) -> bool:
        """Whether it is a plan for :func:`pymc_dirdp.private_model`. Inference then uses the model."""
        return all(
            tuple(likelihood.name for likelihood in part.table.likelihoods) == (records_name(part.table.name),)
            and str((part.table.dims or ("",))[-1]).startswith(f"{part.table.name}_")
            for part in self.parts
        )

    def publishing(self, kind: type[Output]) -> tuple[PlannedTable, ...]:
        """The tables whose mechanisms publish outputs of a kind."""
        return tuple(part for part in self.parts if issubclass(part.mechanism.output_kind, kind))

    @property
    def noise_groups(self) -> tuple[tuple[PlannedTable, ...], ...]:
        """The groups of tables that share their noise, which is drawn for all tables of a group together."""
        sharing = {part.table.name: part for part in self.parts if part.mechanism.shared_noise is not None}
        groups: list[tuple[PlannedTable, ...]] = []
        # Tables that share their noise are of the same people, so they are in one group. Larger groups come first.
        for group in sorted(self.groups, key=lambda group: -sum(name in sharing for name in group)):
            members = tuple(part for name, part in sharing.items() if name in group)
            if members:
                groups.append(members)
            sharing = {name: part for name, part in sharing.items() if name not in group}
        return tuple(groups)

    @property
    def tables_alone(self) -> PrivacyCurves:
        """The privacy curves of the tables, without earlier choices."""
        return composed({part.table.name: part.mechanism for part in self.parts}, self.groups, self.released_draws)
