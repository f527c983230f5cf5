"""A structure that was chosen privately: the parents of each variable, and what choosing them has cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar, final, override

from pymc_dirdp.accounting.entries import one_line
from pymc_dirdp.display import Sections
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.choice import ChoiceMechanism
from pymc_dirdp.mechanisms.tree import TreeMechanism
from pymc_dirdp.stored.choice import PrivateChoice

__all__ = ["Structure"]


@final
@dataclass(frozen=True, kw_only=True)
class Structure(PrivateChoice, Mapping[str, tuple[str, ...]]):
    """The parents of each variable, as :func:`choose_structure` has chosen them. It is public, and may be published.

    It is a mapping of each variable to its parents, so :func:`pymc_dirdp.bayesian_network` takes it as it is. It holds
    no score and no count.

    Attributes
    ----------
    parents : tuple of (str, tuple of str)
        The parents of each variable, at most one, in the order of the categories.
    mechanism : TreeMechanism
        How they were chosen, with its privacy curves.
    guarantee : Guarantee
        What choosing them keeps, by itself.
    unit : str
        Whom that protects.
    identity : str
        A random text, which tells two choices apart that came out the same: both have cost.
    entry : Receipt or None
        The entry of the ledger that holds what it has cost.
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

    called: ClassVar[str] = "structure"
    mechanism_class: ClassVar[type[ChoiceMechanism]] = TreeMechanism

    @override
    def __getitem__(self, name: str) -> tuple[str, ...]:
        return dict(self.parents)[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.parents))

    @override
    def __len__(self) -> int:
        return len(self.parents)

    @override
    def _told(self) -> tuple[str, Sections]:
        edges = [f"{parent} -> {name}" for name, given in self.parents for parent in given]
        joined = {name for child, given in self.parents if given for name in (child, *given)}
        alone = [name for name in self if name not in joined]
        lines = [
            ("edges", ", ".join(edges) or "none"),
            *([("without an edge", ", ".join(alone))] if alone else []),
            ("cost", f"{self.guarantee}, for {self.adjacency} of one {self.unit}"),
            ("how", self.in_short),
            self._in_ledger,
        ]
        if self.reproducible:
            lines.append(("NOT PRIVATE", "it was chosen with a seed"))
        return "Structure chosen privately", [("", lines)]

    @property
    @override
    def in_short(self) -> str:
        chosen, sd = self.mechanism, self.mechanism.margins[0].noise_sd
        return (
            f"{chosen.choices} choices of loss range {chosen.choice.u:.4g} by the exponential mechanism, after "
            f"{len(chosen.margins)} margins with {chosen.noise} noise of standard deviation {sd:.4g}"
        )

    @property
    @override
    def _what_it_decides(self) -> str:
        return "which tables there are was"

    @property
    @override
    def _chosen(self) -> dict[str, Any]:
        return {"parents": {name: list(given) for name, given in self.parents}}

    @staticmethod
    @override
    def _read(facts: Mapping[str, Any]) -> dict[str, Any]:
        return {"parents": _checked_parents(facts["parents"])}

    @property
    @override
    def _is_consistent(self) -> bool:
        return len(self.mechanism.lengths) == len(self)


def _checked_parents(given: Mapping[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The parents of each variable, if each has one at most and there is no cycle."""
    parents = tuple((one_line(variable=name), tuple(one_line(parent=p) for p in ps)) for name, ps in given.items())
    known = {name for name, _ in parents}
    if not all(len(ps) <= 1 and set(ps) <= known for _, ps in parents):
        raise ArgumentError("a variable has two parents, or one that is no variable.")
    try:
        TopologicalSorter(dict(parents)).prepare()
    except CycleError:
        raise ArgumentError("its edges have a cycle.") from None
    return parents
