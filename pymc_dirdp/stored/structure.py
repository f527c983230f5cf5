"""A structure that was chosen privately: the parents of each variable, and what choosing them has cost."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Self, final, override

from pymc_dirdp.accounting.entries import one_line
from pymc_dirdp.display import Labelled, Sections
from pymc_dirdp.errors import ArgumentError, DirdpError
from pymc_dirdp.mechanisms.tree import TreeMechanism
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.stored.readable import digest, guarantee_facts, guarantee_of, in_lines, parsed, plain

__all__ = ["Structure"]

_FORMAT, _VERSION = "pymc_dirdp structure", 1
_AGAIN = "Ask for the file again. To choose again costs privacy again."


@final
@dataclass(frozen=True)
class Structure(Labelled, Mapping[str, tuple[str, ...]]):
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
    recorded : bool
        Whether a ledger holds what it has cost.
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
    guarantee: Guarantee
    unit: str
    recorded: bool
    reproducible: bool
    library_version: str

    @override
    def __getitem__(self, name: str) -> tuple[str, ...]:
        return dict(self.parents)[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.parents))

    @override
    def __len__(self) -> int:
        return len(self.parents)

    @property
    def adjacency(self) -> str:
        """What one unit can change."""
        return self.mechanism.adjacency

    def followed_by(self, curves: PrivacyCurves) -> PrivacyCurves:
        """The curves of the choice and of what is released after it, from the same records."""
        return Composition(((self.mechanism, 1), (curves, 1)))

    def refuse_other_people(self, adjacency: str, unit: str) -> None:
        """Refuse to add the loss of this structure to one that is about others."""
        for name, mine, its in (("adjacency", self.adjacency, adjacency), ("unit", self.unit, unit)):
            if mine != its:
                raise ArgumentError(
                    f"The structure was chosen for {name}={mine!r} and the release is for {its!r}, so their losses do "
                    "not add up. Choose and release for the same people."
                )

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
            ("ledger", "recorded" if self.recorded else "not recorded: pass after= to what is released next"),
        ]
        if self.reproducible:
            lines.append(("NOT PRIVATE", "it was chosen with a seed"))
        return "Structure chosen privately", [("", lines)]

    @property
    def in_short(self) -> str:
        """How it was chosen, in a few words."""
        chosen, sd = self.mechanism, self.mechanism.margins[0].noise_sd
        return (
            f"{chosen.choices} choices of loss range {chosen.choice.u:.4g} by the exponential mechanism, after "
            f"{len(chosen.margins)} margins with {chosen.noise} noise of standard deviation {sd:.4g}"
        )

    @property
    def told(self) -> str:
        """What a release says of it."""
        return (
            f"which tables there are was chosen from the same records, privately, by {self.in_short}; that alone keeps "
            f"{self.guarantee}, and the guarantee covers both"
        )

    @property
    def facts(self) -> dict[str, Any]:
        """All that it says, in texts, numbers, lists and dicts."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "promise": str(self.guarantee),
            "parents": {name: list(given) for name, given in self.parents},
            "mechanism": self.mechanism.facts,
            "guarantee": guarantee_facts(self.guarantee),
            "unit": self.unit,
            "recorded": self.recorded,
            "reproducible": self.reproducible,
            "library_version": self.library_version,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """The structure of which these are the facts. Nothing is believed.

        Raises
        ------
        ArgumentError
            If they are no facts of a structure, contradict themselves, or the choice does not keep its guarantee.
        """
        try:
            found = cls(
                parents=_checked_parents(facts["parents"]),
                mechanism=TreeMechanism.from_facts(facts["mechanism"]),
                guarantee=guarantee_of(facts["guarantee"]),
                unit=one_line(unit=facts["unit"]),
                recorded=facts["recorded"],
                reproducible=facts["reproducible"],
                library_version=one_line(library_version=facts["library_version"]),
            )
            # Written again, it has to be the same: so it says nothing else.
            same = len(found.mechanism.lengths) == len(found) and plain(found.facts) == plain(facts)
            # The number 1 is equal to True, and no truth value.
            if not same or not (type(found.recorded) is type(found.reproducible) is bool):
                raise ValueError
        except DirdpError as error:
            raise ArgumentError(f"The structure is damaged: {error}") from None
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            raise ArgumentError(
                f"The structure is damaged: it says what no structure says, or contradicts itself. {_AGAIN}"
            ) from None
        if not found.mechanism.satisfies(found.guarantee):
            raise ArgumentError(f"The structure does not keep {found.guarantee}, although it says so. {_AGAIN}")
        return found

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the structure to a file that people can read.

        Parameters
        ----------
        path : path-like
            The file, which is made or replaced.
        """
        Path(path).write_text(in_lines({"digest": digest(self.facts)} | self.facts), encoding="utf-8")

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Self:
        """Read a structure that :meth:`to_json` wrote. Nothing in the file is believed.

        Raises
        ------
        ArgumentError
            If it is no structure, was changed, contradicts itself, or does not keep its guarantee.
        OSError
            If the file cannot be read.
        """
        text = Path(path).read_bytes()
        facts, _ = parsed(text, _FORMAT, _VERSION, what="structure", again=_AGAIN, made_by="choose_structure()")
        return cls.from_facts(facts)


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
