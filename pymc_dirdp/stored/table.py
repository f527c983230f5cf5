"""How one table of a release was made, as plain, checked facts."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.errors import ArgumentError, shown
from pymc_dirdp.mechanisms.facts import Fact
from pymc_dirdp.mechanisms.known import by_class_name
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.planning.calibration import OBJECTIVES, STRATEGIES
from pymc_dirdp.privacy.adjacency import ADJACENCIES
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.stored.untrusted import Group

__all__ = ["StoredTable", "mechanism_of_table", "stored_adjacency", "stored_table"]

_MOST_STEPS = 2**53
_LONGEST_WORD = 50


@final
@dataclass(frozen=True, eq=False)
class StoredTable:
    """How one table was released, according to its file: the mechanism, what one person adds, and the model's prior.

    Its group is kept for texts that no curve depends on.
    """

    group: Group
    mechanism: TableMechanism
    contribution: Contribution
    prior: Array

    @property
    def output(self) -> Array:
        """What is published in place of draws, as a likelihood takes it."""
        return self.mechanism.as_output({name: self.group.array(name) for name in self.mechanism.published_axes})

    @property
    def steps(self) -> int | None:
        """The number of steps of the urn that drew it, according to the file; None without one."""
        if self.group.text("sampler") != "exact" or "steps" not in self.group:
            return None
        return self.group.whole("steps", 1, _MOST_STEPS)


def mechanism_of_table(group: Any) -> TableMechanism:
    """The mechanism of one table, from its group of a release: a node of the tree, or its data set."""
    return _mechanism(Group("mechanism", group))


def stored_table(group: Group) -> StoredTable:
    """The checked facts of one table.

    Raises
    ------
    ReleaseError
        If something is missing or of another kind, or there is no such mechanism.
    """
    for name, known in (("strategy", STRATEGIES), ("objective", OBJECTIVES)):
        if group.text(name) not in known:
            raise group.damaged(f"the {name} {shown(group.text(name))} is unknown")
    # Reports repeat these texts.
    group.text("sampler")
    for name in ("arithmetic", "randomness"):
        if name in group:
            group.text(name)
    group.names("observed")
    mechanism = _mechanism(group)
    prior = group.array("prior")
    if not np.all(np.isfinite(prior) & (prior > 0)):
        raise group.damaged("some entry of the prior is not positive or not finite")
    if group.text("family") not in ("dirichlet", "beta") or (group.text("family") == "beta" and prior.shape[-1] != 2):
        raise group.damaged(f"a prior of shape {prior.shape} is of the family {shown(group.text('family'))}")
    if mechanism.shape != prior.shape:
        raise group.damaged(f"it is for a table of shape {mechanism.shape}, and the prior has shape {prior.shape}")
    for fact in mechanism.facts:
        if not fact.given and not _follows(_read(group, fact), getattr(mechanism, fact.field)):
            raise group.damaged(f"{fact.name} does not follow from the other numbers")
    is_read = "postprocess" in group or (mechanism.readings and not mechanism.has_product_law)
    if is_read and group.text("postprocess") not in mechanism.readings:
        raise group.damaged(f"{shown(group.text('postprocess'))} is no reading of what it publishes")
    if "steps" in group:
        group.whole("steps", 1, _MOST_STEPS)
    if "least_records" in group or "most_records" in group:
        group.whole("least_records", 0, group.whole("most_records", 0, MOST_RECORDS))
    if "chosen_from" in group:
        _check_choice(group)
    return StoredTable(group, mechanism, _contribution(group), prior)


def _mechanism(group: Group) -> TableMechanism:
    name, known = group.text("mechanism"), by_class_name()
    if name not in known:
        raise group.damaged(f"the mechanism {shown(name)} is unknown")
    kind = known[name]
    contribution = _contribution(group)
    # A mechanism takes a single number if the records may lie anywhere.
    plain = contribution.records if set(contribution.axes) <= {"any"} else contribution
    given = {
        fact.field: _read(group, fact)
        for fact in kind.facts
        if fact.given and (fact.name in group or not fact.optional)
    }
    try:
        return kind.from_facts({**given, "adjacency": stored_adjacency(group), "contribution": plain})
    except (ArgumentError, ArithmeticError) as error:
        raise group.damaged(f"there is no such mechanism ({error})") from error


def _read(group: Group, fact: Fact) -> Any:
    readers: dict[str, Callable[[str], Any]] = {
        "table": group.array,
        "scalar": group.scalar,
        "number": group.number,
        "whole": lambda name: group.whole(name, 0, MOST_RECORDS),
        "text": lambda name: _word(group, name),
        "list": lambda name: _list(group, name),
    }
    return readers[fact.kind](fact.name)


def _list(group: Group, name: str) -> list[Any]:
    values = group.json(name)
    if not isinstance(values, list):
        raise group.damaged(f"the attribute {name!r} is no list")
    return values


def _follows(stated: Any, computed: Any) -> bool:
    """Whether a number, or a list of numbers, is the one that was computed, up to rounding."""
    if not isinstance(stated, list):
        return math.isclose(stated, computed, rel_tol=1e-9)
    numbers = all(type(value) in (int, float) for value in stated)
    return numbers and len(stated) == len(computed) and np.allclose(stated, computed, rtol=1e-9, atol=0)


def _word(group: Group, name: str) -> str:
    """A name that an error may repeat."""
    word = group.text(name)
    if len(word) > _LONGEST_WORD or not word.isprintable():
        raise group.damaged(f"the attribute {name!r} is {shown(word)}")
    return word


def _contribution(group: Group) -> Contribution:
    facts = group.json("contribution")
    if not isinstance(facts, dict) or set(facts) != {"records", "axes"}:
        raise group.damaged("the contribution is not that of a person")
    try:
        return Contribution(facts["records"], group.texts("contribution", facts["axes"]))
    except (ArgumentError, ArithmeticError) as error:
        raise group.damaged(f"the contribution is not that of a person ({error})") from error


def stored_adjacency(group: Group) -> str:
    """The neighbouring relation that a group names."""
    name = group.text("adjacency")
    if name not in ADJACENCIES:
        raise group.damaged(f"the adjacency {shown(name)} is unknown")
    return name


def _check_choice(group: Group) -> None:
    """Refuse a choice that is not a list of names of mechanisms, each with its expected KL."""
    choices = group.json("chosen_from")
    pairs = isinstance(choices, list) and choices and all(isinstance(pair, list) and len(pair) == 2 for pair in choices)
    # The numbers of JSON have no other type, and the comparison refuses NaN.
    if not pairs or not all(type(name) is str and type(kl) in (int, float) and kl >= 0 for name, kl in choices):
        raise group.damaged("'chosen_from' does not list mechanisms with their expected KL")
