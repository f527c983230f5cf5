"""A release as a text: its plan and what was drawn; and a release of a sparse table.

The text holds facts alone: what was decided, and what the mechanisms returned. Curves, errors, sentences, draws given
noisy counts follow from the facts, see :mod:`pymc_dirdp.releases.view`.
"""

import math
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self, final, override

import numpy as np

from pymc_dirdp.accounting.store import Receipt
from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import integer, one_line, one_of
from pymc_dirdp.errors import ArgumentError, shown
from pymc_dirdp.mechanisms.base import SAMPLERS
from pymc_dirdp.mechanisms.outputs import Cells, Output
from pymc_dirdp.mechanisms.sparse import SparseGeometricMechanism
from pymc_dirdp.models.table import check_labels, is_path_name
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.grammar import (
    Text,
    at,
    digest,
    guarantee_facts,
    guarantee_of,
    label_of,
    labels_facts,
    line_of,
    version_of,
)
from pymc_dirdp.releases.plan_types import Plan, PlannedTable
from pymc_dirdp.sampling.bits import SOURCES

__all__ = ["Release", "SparseRelease", "check_variable", "identity"]

_SEED = "seed"
_AN_IDENTITY = re.compile(r"[0-9a-f]{32}", re.ASCII)
# No release has more shares in all its draws; a few characters of a text say how many draws there are.
_MOST_SHARES = 10**8


@final
@dataclass(frozen=True, eq=False)
class Release(Text):
    """A release: its plan and what was drawn, all of it public.

    Attributes
    ----------
    plan : Plan
    sampler : {"exact", "fast"}
    randomness : str
        The source of random bits; ``"seed"`` if the release can be computed again.
    identity : str
        128 random bits in hexadecimal. They tell this release from another one that drew the same numbers by chance, as
        two noisy counts may be equal; the same release twice tells nothing new.
    entry : Receipt or None
        The entry of the ledger that was charged for it. A copy of the ledger that is older does not hold it.
    output : mapping of str to Output
        What the mechanism of each table published: noisy tables, intensities, or the draws themselves, of a Beta those
        of success.
    """

    plan: Plan
    sampler: str
    randomness: str
    identity: str
    entry: Receipt | None
    output: Mapping[str, Output]

    @property
    def is_seeded(self) -> bool:
        """Whether it was drawn with a seed, or rests on a choice that was."""
        return self.randomness == _SEED or any(choice.reproducible for choice in self.plan.after)

    called: ClassVar[str] = "release"
    made_by: ClassVar[str] = "sample"

    @property
    @override
    def own_facts(self) -> dict[str, Any]:
        return {
            "plan": self.plan.said,
            "sampler": self.sampler,
            "randomness": self.randomness,
            "identity": self.identity,
            "entry": None if self.entry is None else asdict(self.entry),
            "output": {table: output.facts for table, output in self.output.items()},
        }

    @classmethod
    @override
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        with at("its plan"):
            plan = Plan.from_facts(facts["plan"])
        sampler = one_of(SAMPLERS, sampler=facts["sampler"])
        for part in plan.parts:
            part.mechanism.checked_sampler(sampler)
        return cls(
            plan=plan,
            sampler=sampler,
            randomness=one_of((*SOURCES[sampler], _SEED), randomness=facts["randomness"]),
            identity=_identity_of(facts["identity"]),
            entry=Receipt.from_facts(facts["entry"]),
            output={part.table.name: _output(facts["output"], part, plan.draws) for part in plan.parts},
        )

    @override
    def refuse_unkept(self) -> None:
        for choice in self.plan.after:
            choice.refuse_unkept()

    def steps(self, part: PlannedTable) -> int | None:
        """The number of steps of the urn that drew a table; None without one."""
        return part.mechanism.steps(self.sampler, part.n_records)

    @property
    @override
    def problem(self) -> str | None:
        """What of the output cannot come from its mechanism, in a sentence; None if all of it can."""
        return next((f"in {shown(table)} {problem}" for table, problem in self._problems()), None)

    def _problems(self) -> Iterator[tuple[str, str]]:
        for part in self.plan.parts:
            name = part.table.name
            problems = self.output[name].problems(part.mechanism, self.sampler, part.n_records, part.totals)
            yield from ((name, problem) for problem in problems)


@final
@dataclass(frozen=True, eq=False)
class SparseRelease(Text):
    """A release of a sparse table: the cells whose noisy counts reached the threshold.

    Attributes
    ----------
    guarantee : Guarantee
    mechanism : SparseGeometricMechanism
    unit : str
        Who is protected.
    categories : dict of str to list, or None
        The labels of each variable; None if the cells are numbers.
    randomness : str
    entry : Receipt or None
        The entry of the ledger that was charged for it.
    output : Cells
        The cells that are listed.
    library_version : str
    """

    guarantee: Guarantee
    mechanism: SparseGeometricMechanism
    unit: str
    categories: dict[str, list[Any]] | None
    randomness: str
    entry: Receipt | None
    output: Cells
    library_version: str

    @property
    def is_seeded(self) -> bool:
        """Whether it was drawn with a seed."""
        return self.randomness == _SEED

    called: ClassVar[str] = "sparse release"
    made_by: ClassVar[str] = "release_sparse"

    @property
    @override
    def own_facts(self) -> dict[str, Any]:
        mechanism = self.mechanism
        return {
            "statement": str(self.guarantee),
            "library_version": self.library_version,
            "guarantee": guarantee_facts(self.guarantee),
            "adjacency": mechanism.adjacency,
            "unit": self.unit,
            "contribution": mechanism.contribution,
            "mechanism": type(mechanism).__name__,
            "parameters": {
                "n_cells": mechanism.n_cells,
                "threshold": mechanism.threshold,
                "scale": mechanism.scale,
            },
            "categories": self.categories
            and {name: labels_facts(list(labels)) for name, labels in self.categories.items()},
            "randomness": self.randomness,
            "entry": None if self.entry is None else asdict(self.entry),
            "output": self.output.facts,
        }

    @classmethod
    @override
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        given, categories = facts["parameters"], facts["categories"]
        one_of((SparseGeometricMechanism.__name__,), mechanism=facts["mechanism"])
        mechanism = SparseGeometricMechanism(
            integer(2, n_cells=given["n_cells"]),
            integer(1, threshold=given["threshold"]),
            given["scale"],
            adjacency=facts["adjacency"],
            contribution=integer(1, contribution=facts["contribution"]),
        )
        labels = None
        if categories is not None:
            labels = {line_of(name): [label_of(one) for one in own] for name, own in categories.items()}
            if math.prod(map(len, labels.values())) != mechanism.n_cells:
                raise ArgumentError("the labels are not those of so many cells.")
            if any(len(set(own)) < len(own) for own in labels.values()):
                raise ArgumentError("two labels are the same.")
            for name, own in labels.items():
                check_variable(name, own)
        unit = one_line(unit=facts["unit"])
        if unit != unit.strip():
            raise ArgumentError("the unit begins or ends with a space.")
        if mechanism.contribution > 1 and unit == "record":
            raise ArgumentError("it speaks of single records, and of several records of a person.")
        return cls(
            guarantee=guarantee_of(facts["guarantee"]),
            mechanism=mechanism,
            unit=unit,
            categories=labels,
            randomness=one_of((*SOURCES["exact"], _SEED), randomness=facts["randomness"]),
            entry=Receipt.from_facts(facts["entry"]),
            output=Cells.read(facts["output"]),
            library_version=version_of(facts["library_version"]),
        )

    @property
    @override
    def problem(self) -> str | None:
        """What of the list cannot come from the mechanism; None if all of it can."""
        return next(self.output.problems(self.mechanism), None)

    def names(self, cells: Integers) -> list[Any]:
        """What cells are called: their numbers, or the tuples of their labels."""
        if not self.categories:
            return list(cells.tolist())
        shape = tuple(map(len, self.categories.values()))
        codes = np.unravel_index(cells, shape)
        columns = [[labels[i] for i in code] for labels, code in zip(self.categories.values(), codes, strict=True)]
        return list(zip(*columns, strict=True))


def check_variable(name: Any, labels: list[Any]) -> None:
    """Refuse a variable of a sparse table that a text does not show as it is."""
    if not isinstance(name, str) or not is_path_name(name):
        raise ArgumentError(
            f"Expected names of variables to be texts without '/', '\\' and control characters, got {shown(name)}. "
            "Rename the column."
        )
    check_labels(name, labels, "the table")


def identity(random_seed: object, output: Mapping[str, Output]) -> str:
    """The identity of a new release; with a seed the same release has the same one whenever it is drawn."""
    if random_seed is None:
        return secrets.token_hex(16)
    return digest({table: one.facts for table, one in output.items()})[:32]


def _identity_of(value: Any) -> str:
    if not _AN_IDENTITY.fullmatch(line_of(value)):
        raise ArgumentError("its identity is not 32 hexadecimal digits.")
    return str(value)


def _output(facts: Mapping[str, Any], part: PlannedTable, draws: int) -> Output:
    """The output of a table, with the shapes that its arrays have to have."""
    name = part.table.name
    if draws * math.prod(part.table.shape) > _MOST_SHARES:
        raise ArgumentError(f"it has more than {_MOST_SHARES} shares in all its draws.")
    with at(f"the output of {shown(name)}"):
        return part.mechanism.read_output(facts[name], name, draws=draws, of_success=part.table.family == "beta")
