"""A plan: the public facts about a release that will be drawn, their fingerprint, and the text that holds them.

What a text says is checked when it is read.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, get_args, override

import numpy as np

from pymc_dirdp.checks import MOST_RECORDS, at_least, integer, one_of
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.base import Fact
from pymc_dirdp.mechanisms.outputs import Marginals, Output
from pymc_dirdp.mechanisms.registry import STRATEGIES, by_class_name
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.privacy_unit import Reading, stated
from pymc_dirdp.models.table import KindName, Likelihood, Table, View, check_names, plain_labels
from pymc_dirdp.planning.allocation import composed
from pymc_dirdp.planning.calibration import OBJECTIVES
from pymc_dirdp.planning.choosing import Choice
from pymc_dirdp.planning.options import MOST_DRAWS
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import Contribution, adjacency_named
from pymc_dirdp.releases.choices import PrivateChoice, choices_of, with_choices
from pymc_dirdp.releases.wording import assumed
from pymc_dirdp.texts.grammar import (
    Text,
    at,
    guarantee_facts,
    guarantee_of,
    label_of,
    labels_facts,
    library_version,
    line_of,
    plain,
    version_of,
)

if TYPE_CHECKING:
    from pymc_dirdp.models.table import Table
    from pymc_dirdp.releases.report import Report


def records_name(observed: str) -> str:
    """The name under which a private model counts the records of an observed variable."""
    return f"{observed}_records"


@dataclass(frozen=True)
class PlannedTable:
    """One table of a plan.

    Attributes
    ----------
    table : Table
        The public facts about it.
    mechanism : TableMechanism
        The mechanism that releases it.
    n_records : int or None
        The public number of records; where it is private, the planning size, if one was given.
    choice : Choice or None
        Under `mechanism="auto"`: the expected KL by which the mechanism was chosen.
    totals : tuple of int
        The public numbers of records of the entries of some row axes, see `Reading.public_axes`; empty without any.
    """

    table: "Table"
    mechanism: TableMechanism
    n_records: int | None
    choice: Choice | None = None
    totals: tuple[int, ...] = ()


@dataclass(frozen=True, repr=False)
class Plan(Text):
    """What will be done with the data, decided before any of them is counted. It is public: safe to print or to write.

    Attributes
    ----------
    guarantee : Guarantee
        The guarantee of the whole release, all tables and draws together.
    parts : tuple of PlannedTable
        The tables that are released, in the model's order.
    groups : tuple of tuple of str
        The names of tables that one person's records may feed together. There is one group without `disjoint`.
    strategy, objective : str
        How the mechanisms were chosen, see :func:`pymc_dirdp.calibrate`.
    draws : int
        How many draws the guarantee covers.
    adjacency : str
        What one person can change.
    min_count : float
        What every cell is guaranteed to hold.
    reading : Reading
        Whose records the model holds, and what one person adds to each table.
    assumptions : tuple of str
        What else the guarantee rests on, in sentences.
    library_version : str
        The version of pymc_dirdp.
    after : tuple of Structure or Bins
        What was chosen from the same records before. The guarantee covers it, too.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> chosen = dirdp.plan(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric", draws=100)
    >>> chosen
    Plan(1-differential privacy, 'p' by geometric)
    >>> chosen.draws
    100

    A plan is also a file that a colleague reads, and draws from: nothing in it is believed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dirdp.save(chosen, f"{folder}/plan.json")
    ...     dirdp.load(f"{folder}/plan.json") == chosen
    True
    """

    guarantee: Guarantee
    parts: tuple[PlannedTable, ...]
    groups: tuple[tuple[str, ...], ...]
    strategy: str
    objective: str
    draws: int
    adjacency: str
    min_count: float
    reading: Reading
    assumptions: tuple[str, ...]
    library_version: str
    after: tuple[PrivateChoice, ...] = ()

    def __repr__(self) -> str:
        # The tables that the one line of a plan names.
        several = len(self.parts) > 3
        shown = [f"{part.table.name!r} by {part.mechanism.kind}" for part in self.parts[: 3 - several]]
        more = [f"{len(self.parts) - len(shown)} more tables"] if several else []
        return f"Plan({', '.join([str(self.guarantee), *shown, *more])})"

    def __str__(self) -> str:
        return str(self._report())

    def _repr_html_(self) -> str:
        return self._report()._repr_html_()

    def _report(self) -> "Report":
        from pymc_dirdp.releases.report import report  # It needs this file.

        return report(self)

    @property
    def unit_label(self) -> str:
        """The name of the unit of privacy: "record", "person", "hospital, person", "at most 3 records"."""
        return self.reading.label

    @property
    def protected(self) -> str:
        """Who is protected, and what two neighbouring data sets are, in sentences."""
        return self.reading.protected

    @property
    def contribution(self) -> int:
        """How many records of one table a unit holds at most."""
        return max(self.reading.contribution(part.table.name).total(part.table.shape) for part in self.parts)

    @property
    def is_of_model(self) -> bool:
        """Whether its tables are those of :func:`pymc_dirdp.private_model`, whose inference is that of the model."""
        return all(
            tuple(likelihood.name for likelihood in part.table.likelihoods) == (records_name(part.table.name),)
            and str((part.table.dims or ("",))[-1]).startswith(f"{part.table.name}_")
            for part in self.parts
        )

    called: ClassVar[str] = "plan"
    made_by: ClassVar[str] = "plan"

    @property
    @override
    def own_facts(self) -> dict[str, Any]:

        return facts_of(self)

    @classmethod
    @override
    def from_facts(cls, facts: Mapping[str, Any]) -> "Plan":

        return plan_of(facts)

    @override
    def refuse_unkept(self) -> None:
        for choice in self.after:
            choice.refuse_unkept()
        if not self.composition.satisfies(self.guarantee):
            raise UnattainableError(f"The plan does not keep {self.guarantee}, although it says so. Call plan() again.")

    def publishing(self, kind: type[Output]) -> tuple[PlannedTable, ...]:
        """The tables of which outputs of a kind are published."""
        return tuple(part for part in self.parts if issubclass(part.mechanism.output_kind, kind))

    @property
    def together(self) -> tuple[tuple[PlannedTable, ...], ...]:
        """The sets of tables of which each shares one noise, that is drawn and read together."""
        sharing = {part.table.name: part for part in self.parts if part.mechanism.shared_noise is not None}
        found: list[tuple[PlannedTable, ...]] = []
        # All tables that share a noise are of the same people, so one group has the most of them.
        for group in sorted(self.groups, key=lambda group: -sum(name in sharing for name in group)):
            members = tuple(part for name, part in sharing.items() if name in group)
            if members:
                found.append(members)
            sharing = {name: part for name, part in sharing.items() if name not in group}
        return tuple(found)

    @property
    def composition(self) -> PrivacyCurves:
        """The privacy curves of the whole release, and of what was chosen before."""
        return with_choices(self.after, self.tables_alone)

    @property
    def tables_alone(self) -> PrivacyCurves:
        """The privacy curves of the tables, without what was done before."""
        return composed({part.table.name: part.mechanism for part in self.parts}, self.groups, self.draws)


def rebuild(plan: Plan) -> Plan:
    """The same plan, checked, with mechanisms that remember no computed value. The plan may come from a file.

    Raises
    ------
    ArgumentError
        If a number is outside its domain, or the plan does not state what its mechanisms assume.
    """
    adjacency_named(plan.adjacency)
    one_of(STRATEGIES, strategy=plan.strategy)
    one_of(OBJECTIVES, objective=plan.objective)
    at_least(0, min_count=plan.min_count)
    # A mechanism keeps what it has computed, and a file might hold what another mechanism has computed.
    parts = tuple(
        replace(part, mechanism=replace(part.mechanism))  # type: ignore[type-var]  # each is a dataclass
        for part in plan.parts
    )
    used = {part.mechanism.min_count for part in parts} - {None}
    if used - {plan.min_count} or plan.assumptions != assumed(plan.reading, [part.table for part in plan.parts]):
        raise ArgumentError(
            "The plan does not state what its mechanisms assume: min_count, or whose records lie where. Call plan() "
            "again."
        )
    said, adds = plan.reading.stated, [part.mechanism.contributed.fitted(part.table.shape) for part in parts]
    records, observed = said.contribution or 1, {one.name for part in parts for one in part.table.likelihoods}
    # Without a unit the records may lie anywhere along all row axes, but for rows whose numbers of records are public.
    # Where nothing was said of people, and rows are observed apart, a person has a record in each; the words say so.
    public = plan.reading.sizes_are_public and not observed.isdisjoint(said.public)
    kinds = {"any"} | ({"own"} if public and records == 1 else set())
    kinds |= {"each"} if said.contribution is None and said.counted is None else set()
    # An entry of a unit may fill its bound in each observed variable of its own, and others hold one record.
    few = said.is_bounded and not plan.reading.others and any(one.records < records for one in adds)
    if few or (not said.unit and any(one.records != records or set(one.axes) - kinds for one in adds)):
        raise ArgumentError("The tables allow for other records of a person than the plan states. Call plan() again.")
    if plan.draws != 1 and plan.publishing(Marginals):
        raise ArgumentError("The plan states several draws, and shares that are fitted are one estimate.")
    for part in parts:
        part.mechanism.check_numbers(part.n_records, public=plan.reading.sizes_are_public)
        entries = [part.table.shape[axis] for axis in plan.reading.public_axes(part.table.name)]
        if len(part.totals) != (math.prod(entries) if entries else 0) or (
            part.totals and (min(part.totals) < 0 or sum(part.totals) != part.n_records)
        ):
            raise ArgumentError(
                f"The plan does not state the public numbers of records of the rows of {part.table.name!r}, or they do "
                "not add up to that of the table. Call plan() again."
            )
    for parts_together in plan.together:
        first, *others = (part.mechanism for part in parts_together)
        if not first.shares_with(others):
            raise ArgumentError(
                f"The plan does not state all tables that share the noise of {parts_together[0].table.name!r}, or they "
                "are not tables of the same people. Call plan() again."
            )
    for choice in plan.after:
        choice.refuse_other_people(plan.adjacency, plan.unit_label)
    return replace(plan, parts=parts, draws=integer(1, draws=plan.draws), library_version=library_version())


def facts_of(plan: Plan) -> dict[str, Any]:
    """All that a plan says, in texts, numbers, lists and dicts. The first sentences follow from the numbers."""
    people = plain(asdict(plan.reading.stated))
    del people["adjacency"]  # It stands by itself.
    return {
        "statement": str(plan.guarantee),
        "protected": plan.protected,
        "assumptions": list(plan.assumptions),
        "library_version": plan.library_version,
        "guarantee": guarantee_facts(plan.guarantee),
        "draws": plan.draws,
        "adjacency": plan.adjacency,
        "min_count": plan.min_count,
        "strategy": plan.strategy,
        "objective": plan.objective,
        "people": people | {"n_units": plan.reading.n_units, "others": plan.reading.others},
        "groups": plain(plan.groups),
        "tables": [_table(part) for part in plan.parts],
    } | ({"after": [choice.facts for choice in plan.after]} if plan.after else {})


def plan_of(facts: Mapping[str, Any]) -> Plan:
    """The plan that says these facts; errors of all kinds if none does. Its guarantee is not decided."""
    adjacency = facts["adjacency"]
    people = dict(facts["people"])
    n_units, others = people.pop("n_units"), people.pop("others")
    said = stated(**people | {"unit": tuple(people["unit"]) or None, "adjacency": adjacency})
    parts = tuple(_part(table, adjacency, i) for i, table in enumerate(facts["tables"]))
    shapes = tuple((part.table.name, part.table.shape) for part in parts)
    contributions = tuple((part.table.name, part.mechanism.contributed) for part in parts)
    groups = tuple(map(tuple, facts["groups"]))
    grouped = {name for group in groups for name in group} == {name for name, _ in shapes}
    if (
        not grouped
        or len(dict(shapes)) < len(shapes)
        or any(len(set(group)) != len(group) or not group for group in groups)
    ):
        raise ArgumentError("its groups are not groups of its tables.")
    check_names(tuple(part.table for part in parts))
    n_units = None if n_units is None else integer(0, n_units=n_units)
    reading = Reading(said, shapes, contributions, groups, n_units, bool(others))
    if integer(1, draws=facts["draws"]) > MOST_DRAWS:
        raise ArgumentError(f"it has more than {MOST_DRAWS} draws.")
    plan = Plan(
        guarantee=guarantee_of(facts["guarantee"]),
        parts=parts,
        groups=groups,
        strategy=facts["strategy"],
        objective=facts["objective"],
        draws=integer(1, draws=facts["draws"]),
        adjacency=adjacency,
        min_count=at_least(0, min_count=facts["min_count"]),
        reading=reading,
        assumptions=assumed(reading, [part.table for part in parts]),
        library_version=version_of(facts["library_version"]),
        after=choices_of(facts["after"]) if "after" in facts else (),
    )
    rebuild(plan)
    return plan


def _table(part: PlannedTable) -> dict[str, Any]:
    table, mechanism = part.table, part.mechanism
    dims = list(table.dims) if table.dims else None
    return {
        "name": table.name,
        "family": table.family,
        "dims": dims,
        "labels": {dim: labels and labels_facts(plain_labels(labels)) for dim, labels in table.coords.items()},
        "observed": [_observed(likelihood) for likelihood in table.likelihoods],
        "n_records": part.n_records,
        **({"totals": list(part.totals)} if part.totals else {}),
        "prior": table.prior,
        "one_person_adds": plain(asdict(mechanism.contributed)),
        "mechanism": type(mechanism).__name__,
        "parameters": {
            fact.name: _parameter(getattr(mechanism, fact.field))
            for fact in _own_facts(type(mechanism))
            if not (fact.optional and getattr(mechanism, fact.field) is None)
        },
        "chosen_from": part.choice and plain(asdict(part.choice)),
    }


def _parameter(value: Any) -> Any:
    """A number, a word or a table as JSON; a tuple may hold tuples of several lengths."""
    if isinstance(value, tuple):
        return plain(value)
    found = np.asarray(value)
    return found if found.dtype in (np.float64, np.int64) else found.tolist()


def _part(facts: dict[str, Any], adjacency: str, place: int) -> PlannedTable:
    with at(f"table {place + 1}"):
        return _read_part(facts, adjacency)


def _read_part(facts: dict[str, Any], adjacency: str) -> PlannedTable:
    table = _read_table(facts)
    kind = by_class_name()[one_of(by_class_name(), mechanism=facts["mechanism"])]
    adds = facts["one_person_adds"]
    contribution = Contribution(adds["records"], tuple(adds["axes"])).fitted(table.shape)
    # A mechanism takes a single number if the records may lie anywhere.
    plain = contribution.records if set(contribution.axes) <= {"any"} else contribution
    given = {
        fact.field: facts["parameters"][fact.name]
        for fact in _own_facts(kind)
        if not fact.optional or fact.name in facts["parameters"]
    }
    shared = {"prior": table.prior} if any(fact.name == "prior" for fact in kind.facts) else {}
    mechanism = kind.from_facts({**shared, **given, "adjacency": adjacency, "contribution": plain})
    if mechanism.shape != table.shape:
        raise ArgumentError(f"the mechanism of {table.name!r} is for a table of another shape.")
    n_records, choice = facts["n_records"], facts["chosen_from"]
    n_records = None if n_records is None else integer(0, n_records=n_records)
    if n_records is not None and n_records > MOST_RECORDS:
        raise ArgumentError("n_records is above 2**53.")
    totals = tuple(integer(0, totals=total) for total in facts.get("totals", ()))
    return PlannedTable(table, mechanism, n_records, None if choice is None else _choice(choice), totals)


def _own_facts(kind: type[TableMechanism]) -> list[Fact]:
    """What has to be said of a mechanism beside the facts of its table."""
    return [fact for fact in kind.facts if fact.given and fact.name != "prior"]


def _read_table(facts: dict[str, Any]) -> Table:
    dims, coords = facts["dims"], facts["labels"]
    table = Table(
        name=line_of(facts["name"]),
        family="beta" if facts["family"] == "beta" else "dirichlet",
        prior=facts["prior"],
        dims=None if dims is None else tuple(dims),
        coords={dim: None if labels is None else tuple(map(label_of, labels)) for dim, labels in coords.items()},
    )
    n_cells = table.prior.size
    table = replace(table, likelihoods=tuple(_likelihood(one, n_cells) for one in facts["observed"]))
    released = table.shape if table.family == "dirichlet" else table.shape[:-1]
    if table.family == "beta" and table.n_categories != 2:
        raise ArgumentError(f"{table.name!r} is a Beta and has more than two categories.")
    if dims is not None and (len(dims) != len(released) or set(coords) != set(dims) - {None}):
        raise ArgumentError(f"the dims of {table.name!r} are not those of its shape.")
    for dim, length in zip(dims or (), released, strict=bool(dims)):
        labels = coords.get(dim)
        if labels is not None and len(labels) != length:
            raise ArgumentError(f"the labels of {dim!r} are not as many as its entries.")
    return table


def _observed(likelihood: Likelihood) -> dict[str, Any]:
    view = likelihood.view
    return {
        "name": likelihood.name,
        "kind": likelihood.kind,
        "rows": list(likelihood.rows),
        "parents": list(likelihood.parents),
        "view": view and {"cells": view.cells.tolist(), "by_codes": view.by_codes},
    }


def _likelihood(facts: dict[str, Any], n_cells: int) -> Likelihood:
    rows = tuple(None if axis is None else integer(0, rows=axis) for axis in facts["rows"])
    view, parents = facts["view"], tuple(map(line_of, facts["parents"]))
    if view is not None:
        cells = np.array(view["cells"])
        # The last axis holds the categories, and -1 stands for a cell of another table.
        if cells.dtype.kind != "i" or not cells.ndim or not np.all((cells >= -1) & (cells < n_cells)):
            raise ArgumentError("a view leads to cells that its table does not have.")
        view = View(cells, bool(view["by_codes"]))
    return Likelihood(line_of(facts["name"]), _kind(facts["kind"]), rows, parents, view)


def _kind(name: str) -> KindName:
    for known in get_args(KindName):
        if known == name:
            return known  # type: ignore[no-any-return]  # It is one of the words of a Literal.
    raise ArgumentError("a variable is of a kind that no table is counted from.")


def _choice(facts: dict[str, Any]) -> Choice:
    pairs = tuple((line_of(kind), at_least(0, expected_kl=kl)) for kind, kl in facts["expected_kl"])
    if not pairs:
        raise ArgumentError("a choice was made from nothing.")
    return Choice(pairs)
