"""Private choices from the records before a release: the bins of a column, or the structure of a network.

A choice is public and can be saved. It has a privacy cost, which the guarantee of a release from the same records
covers, or a ledger records. A choice that neither covers is refused.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, ClassVar, Self, final, override
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.checks import one_line
from pymc_dirdp.counting.tables import interval_of
from pymc_dirdp.display import LabelledResult, Sections
from pymc_dirdp.errors import ArgumentError, ReleaseError, UnattainableError
from pymc_dirdp.mechanisms.choices import ChoiceMechanism, QuantilesMechanism, TreeMechanism
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.texts.codec import Layout, RebuiltOnCopy, WithLayout, facts_of, value_of
from pymc_dirdp.texts.grammar import Text, checked_version, digest, error_location

# Bins without a recorded cost, so that no model with their labels is planned as if they were public.
_UNPAID: WeakValueDictionary[int, "Bins"] = WeakValueDictionary()
# The identities of bins that the guarantee of a release covers.
_RELEASED: set[str] = set()


def fingerprint_of(mechanism: ChoiceMechanism, guarantee: Guarantee, unit: str, identity: str) -> str:
    """The digest that a ledger records before a choice is made."""
    return digest(facts_of({"mechanism": mechanism, "guarantee": guarantee, "unit": unit, "identity": identity}))


def _layout_of(**chosen: str) -> Layout:
    """The order of the fields of a choice, with those of the result."""
    last = ("mechanism", "guarantee", "unit", "identity", "entry", "reproducible", "library_version")
    return {"statement": "statement", **chosen, **{name: name for name in last}}


@dataclass(frozen=True, kw_only=True)
class PrivateChoice(RebuiltOnCopy, WithLayout, LabelledResult, Text):
    """A private choice from the records. Its subclasses are bins and structures.

    Attributes
    ----------
    mechanism : ChoiceMechanism
        The mechanism of the choice, with its privacy curves.
    guarantee : Guarantee
        The guarantee that the choice alone satisfies.
    unit : str
        The unit that the guarantee protects.
    identity : str
        A random text that distinguishes choices with the same result, because each has a privacy cost.
    entry : Receipt or None
        The entry of the ledger that records the cost.
    reproducible : bool
        Whether a seed was used, so that the choice is not private.
    library_version : str
    """

    mechanism: ChoiceMechanism
    guarantee: Guarantee
    unit: str
    identity: str = field(repr=False)
    entry: Receipt | None
    reproducible: bool
    library_version: str

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        one_line(unit=self.unit)
        one_line(identity=self.identity)
        checked_version(self.library_version)
        if not self._is_consistent:
            raise ArgumentError("the mechanism does not choose such a thing.")

    @property
    def statement(self) -> str:
        """The guarantee that the choice alone satisfies, in words."""
        return str(self.guarantee)

    @property
    @abstractmethod
    def _is_consistent(self) -> bool:
        """Whether the mechanism could have chosen it."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """The mechanism of the choice, in a few words."""

    @property
    @abstractmethod
    def _dependent_part(self) -> str:
        """The part of a release that depends on the choice, in words."""

    @property
    def adjacency(self) -> str:
        """What one unit can change."""
        return self.mechanism.adjacency

    @property
    def description(self) -> str:
        """The description of the choice in a release."""
        return (
            f"{self._dependent_part} chosen from the same records, privately, by {self.summary}; this "
            f"choice alone satisfies {self.guarantee}, and the guarantee covers both"
        )

    @property
    def recorded(self) -> bool:
        """Whether it names an entry of a ledger for its cost. :meth:`Ledger.holds` checks that entry."""
        return self.entry is not None

    @property
    def fingerprint(self) -> str:
        """The digest in its entry of a ledger, of all that was known before the choice."""
        return fingerprint_of(self.mechanism, self.guarantee, self.unit, self.identity)

    @property
    def _in_ledger(self) -> tuple[str, str]:
        return "ledger", "recorded" if self.recorded else "not recorded: pass after= to the next plan"

    def forget(self) -> None:
        """Do not require this copy to be covered by later plans, because a release covers it."""

    def mark_released(self) -> None:
        """Record that the guarantee of a release covers it."""

    def check_same_people(self, adjacency: str, unit: str) -> None:
        """Raise an error if the release protects another unit, because then their losses do not add up."""
        for name, choice_value, required in (("adjacency", self.adjacency, adjacency), ("unit", self.unit, unit)):
            if choice_value != required:
                raise ArgumentError(
                    f"The {self.kind} came from a choice for {name}={choice_value!r} and the release is for "
                    f"{required!r}, so their losses do not add up. Choose and release for the same people."
                )

    @classmethod
    @override
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        if cls is not PrivateChoice:
            return super().from_dict(facts)
        kinds: dict[Any, type[Self]] = {f"pymc_dirdp {kind.kind}": kind for kind in cls.__subclasses__()}
        if type(facts) is not dict or (kind := kinds.get(facts.get("format"))) is None:
            raise ArgumentError("Expected the earlier choice to be bins or a structure.")
        with error_location(f"the {kind.kind} that {'were' if kind.kind.endswith('s') else 'was'} chosen before"):
            return kind.from_dict(facts)

    @override
    def check_guarantee(self) -> None:
        if not self.mechanism.satisfies(self.guarantee):
            raise ReleaseError(
                f"The choice of the {self.kind} does not satisfy {self.guarantee}, which it states. Ask for "
                "it again. Choosing again costs privacy again."
            )


@final
@dataclass(frozen=True, kw_only=True)
class Bins(PrivateChoice):
    """The bins of a column, chosen by :func:`choose_bins`. They are public and may be published.

    A bin contains the numbers from its lower edge, inclusive, to its upper edge, exclusive. The object has no counts.

    Attributes
    ----------
    column : str
        The name of the column.
    edges : tuple of float
        The inner edges in ascending order, one fewer than bins.
    mechanism : QuantilesMechanism
        The mechanism of the choice, with its privacy curves.
    guarantee : Guarantee
        The guarantee that the choice alone satisfies.
    unit : str
        The unit that the guarantee protects.
    identity : str
        A random text that distinguishes choices with the same result, because each has a privacy cost.
    entry : Receipt or None
        The entry of the ledger that records the cost.
    reproducible : bool
        Whether a seed was used, so that the choice is not private.
    library_version : str

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> ledger = dirdp.Ledger(dirdp.PureDP(epsilon=5.0))
    >>> records = {"age": [20, 30, 40, 50] * 500}
    >>> bins = dirdp.choose_bins(
    ...     dirdp.PureDP(epsilon=4.0), records, "age", n_bins=2, candidates=[35, 60], ledger=ledger
    ... )
    >>> bins.labels
    ('below 35', '35 or more')
    >>> dirdp.count({"age": bins.label(records["age"])}, ["age"], categories={"age": bins.labels}).tolist()
    [1000, 1000]
    """

    column: str
    edges: tuple[float, ...]
    mechanism: QuantilesMechanism

    kind: ClassVar[str] = "bins"
    created_by: ClassVar[str] = "choose_bins"
    layout: ClassVar[Layout] = _layout_of(column="column", edges="edges")

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.recorded:
            # By identity in memory, because a copy from a file is equal and may live longer.
            _UNPAID[id(self)] = self

    @property
    def released(self) -> bool:
        """Whether the guarantee of a release of this process has covered these bins."""
        return self.identity in _RELEASED

    @override
    def forget(self) -> None:
        _UNPAID.pop(id(self), None)

    def mark_released(self) -> None:
        """Record that the guarantee of a release covers these bins."""
        _RELEASED.add(self.identity)

    @staticmethod
    def unpaid() -> tuple["Bins", ...]:
        """The live bins of this process whose cost no ledger records."""
        return tuple(_UNPAID.values())

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the bins in ascending order, which are the categories of the column."""
        names = [f"{edge!r}".removesuffix(".0") for edge in self.edges]
        between = [f"{low} to below {high}" for low, high in pairwise(names)]
        return (f"below {names[0]}", *between, f"{names[-1]} or more")

    def label(self, values: Any) -> NDArray[np.str_]:
        """The name of the bin of each number. **Secret**, like the numbers.

        Parameters
        ----------
        values : one-dimensional array or column of numbers
            Without missing values.

        Raises
        ------
        DataError
            If a value is missing or is no number.
        """
        return np.array(self.labels)[interval_of(values, self.edges, self.column)]

    @override
    def _parts(self) -> tuple[str, Sections]:
        lines = [
            ("bins", ", ".join(self.labels)),
            ("cost", f"{self.guarantee}, for {self.adjacency} of one {self.unit}"),
            ("how", self.summary),
            self._in_ledger,
        ]
        if self.reproducible:
            lines.append(("NOT PRIVATE", "they were chosen with a seed"))
        return f"Bins of {self.column}, chosen privately", [("", lines)]

    @property
    @override
    def summary(self) -> str:
        return (
            f"{self.mechanism.n_bins - 1} choices among {self.mechanism.n_candidates} candidates by the exponential "
            f"mechanism, with a scale of {self.mechanism.scale:.4g} records"
        )

    @property
    @override
    def _dependent_part(self) -> str:
        return f"where the bins of {self.column} end was"

    @property
    @override
    def _is_consistent(self) -> bool:
        one_line(column=self.column)
        rising = all(map(math.isfinite, self.edges)) and all(low < high for low, high in pairwise(self.edges))
        return rising and 0 < len(self.edges) < self.mechanism.n_bins


@final
@dataclass(frozen=True, kw_only=True)
class Structure(PrivateChoice, Mapping[str, tuple[str, ...]]):
    """The parents of each variable, chosen by :func:`choose_structure`. It is public and may be published.

    It is a mapping of each variable to its parents, which you can pass to :func:`pymc_dirdp.bayesian_network`. It has
    no scores and no counts.

    Attributes
    ----------
    parents : tuple of (str, tuple of str)
        The parents of each variable, at most one, in the order of the categories.
    mechanism : TreeMechanism
        The mechanism of the choice, with its privacy curves.
    guarantee : Guarantee
        The guarantee that the choice alone satisfies.
    unit : str
        The unit that the guarantee protects.
    identity : str
        A random text that distinguishes choices with the same result, because each has a privacy cost.
    entry : Receipt or None
        The entry of the ledger that records the cost.
    reproducible : bool
        Whether a seed was used, so that the choice is not private.
    library_version : str

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> records = {"rain": ["no", "yes"] * 500, "wet": ["no", "yes"] * 500, "coin": ["tail"] * 1000}
    >>> categories = {"rain": ["no", "yes"], "wet": ["no", "yes"], "coin": ["head", "tail"]}
    >>> structure = dirdp.choose_structure(dirdp.PureDP(epsilon=4.0), records, categories=categories)
    >>> structure["wet"]
    ('rain',)
    """

    parents: tuple[tuple[str, tuple[str, ...]], ...]
    mechanism: TreeMechanism

    kind: ClassVar[str] = "structure"
    created_by: ClassVar[str] = "choose_structure"
    layout: ClassVar[Layout] = _layout_of(parents="parents_by_name")

    @override
    def __getitem__(self, name: str) -> tuple[str, ...]:
        return self.parents_by_name[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self.parents_by_name)

    @override
    def __len__(self) -> int:
        return len(self.parents)

    @override
    def _parts(self) -> tuple[str, Sections]:
        edges = [f"{parent} -> {name}" for name, parents in self.parents for parent in parents]
        connected = {name for child, parents in self.parents if parents for name in (child, *parents)}
        isolated = [name for name in self if name not in connected]
        lines = [
            ("edges", ", ".join(edges) or "none"),
            *([("without an edge", ", ".join(isolated))] if isolated else []),
            ("cost", f"{self.guarantee}, for {self.adjacency} of one {self.unit}"),
            ("how", self.summary),
            self._in_ledger,
        ]
        if self.reproducible:
            lines.append(("NOT PRIVATE", "it was chosen with a seed"))
        return "Structure chosen privately", [("", lines)]

    @property
    @override
    def summary(self) -> str:
        chosen, sd = self.mechanism, self.mechanism.marginals[0].noise_sd
        return (
            f"{chosen.choices} choices of loss range {up(chosen.choice.u, 4):.4g} by the exponential mechanism, after "
            f"{len(chosen.marginals)} marginals with {chosen.noise} noise of standard deviation {sd:.4g}"
        )

    @property
    @override
    def _dependent_part(self) -> str:
        return "which tables there are was"

    @property
    def parents_by_name(self) -> dict[str, tuple[str, ...]]:
        """The parents of each variable."""
        return dict(self.parents)

    @classmethod
    @override
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        parents = value_of(dict[str, tuple[str, ...]], facts["parents"])
        return cls(parents=tuple(parents.items()), **cls.parse_fields(facts, "parents"))

    @property
    @override
    def _is_consistent(self) -> bool:
        for name, parents in self.parents:
            one_line(variable=name)
            if len(parents) > 1 or not self.parents_by_name.keys() >= set(parents):
                raise ArgumentError("a variable has two parents, or one that is no variable.")
        try:
            TopologicalSorter(self.parents_by_name).prepare()
        except CycleError:
            raise ArgumentError("its edges have a cycle.") from None
        return len(self.mechanism.lengths) == len(self)


def curves_of(choices: Sequence[PrivateChoice]) -> tuple[tuple[PrivacyCurves, int], ...]:
    """The privacy curves of each choice, including repeated choices with the same result."""
    return tuple((choice.mechanism, 1) for choice in choices)


def with_choices(choices: Sequence[PrivateChoice], curves: PrivacyCurves) -> PrivacyCurves:
    """The composition of the curves of the choices and of a later release from the same records."""
    return Composition((*curves_of(choices), (curves, 1))) if choices else curves


def refuse_unpaid_structure(chosen: object, choices: Sequence[PrivateChoice]) -> None:
    """Raise an error if the structure of a model was chosen from data, and nothing covers its cost."""
    if isinstance(chosen, Structure) and chosen not in choices and not chosen.recorded:
        raise ArgumentError(
            "The structure of this model was chosen from the records, and nothing covers what that has cost. Add "
            "after=structure, and the guarantee covers both; or choose it with ledger=, which then holds its cost. If "
            "you have paid for it elsewhere, build the model from dict(structure)."
        )


def refuse_unpaid_bins(dims: Iterable[Iterable[Any]], choices: Sequence[PrivateChoice] = ()) -> None:
    """Raise an error if the bins of a table were chosen from data, and nothing covers their cost.

    Parameters
    ----------
    dims : iterable of iterable
        The labels of each axis of each table.
    choices : sequence of PrivateChoice, default ()
        The choices that the guarantee covers.
    """
    # A table does not show which of several choices with the same edges it uses. So all of them must be covered, here
    # or by an earlier release. Otherwise a choice that cost .001 would cover another one that cost 5.
    covered = {choice.labels for choice in choices if isinstance(choice, Bins)}
    unpaid = [bins for bins in Bins.unpaid() if bins not in choices and not (bins.released and bins.labels in covered)]
    for labels in [set(map(str, dim)) for dim in dims] if unpaid else []:
        for bins in unpaid:
            # There may be other categories in addition to the bins, such as one for missing values.
            if labels.issuperset(bins.labels):
                raise ArgumentError(
                    f"The bins of {bins.column!r} were chosen from the records, and nothing covers what that has cost. "
                    "Pass after=bins to plan(), and the guarantee covers both; or choose them with "
                    "ledger=, which then holds their cost. Bins that were chosen twice have cost twice: after=[first, "
                    "second]."
                )


def check_budget_left(guarantee: Guarantee, choices: Sequence[PrivateChoice]) -> None:
    """Raise an error if the choices use up the guarantee."""
    if choices and not Composition(curves_of(choices)).satisfies(guarantee):
        costs = "; ".join(f"the {choice.kind} {choice.guarantee}" for choice in choices)
        raise UnattainableError(
            f"What was chosen before does not satisfy {guarantee} by itself. Its guarantees are {costs}. Relax the "
            "guarantee; choosing again would cost more."
        )
