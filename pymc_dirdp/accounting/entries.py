"""What a ledger says: its header and its entries, each of which is a line of text, and the receipt of an entry."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

from pymc_dirdp.checks import at_least, integer, one_line
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_named, apart, bounded_by, filled, who
from pymc_dirdp.texts.codec import facts_of, value_of

# The errors that reading a damaged text can raise.
NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class JsonLine:
    """A dataclass that is written as one line of JSON. What is read is checked as what is made, by the class itself."""

    @cached_property
    def text(self) -> str:
        """The only text that is read as this."""
        return json.dumps(facts_of(self), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """What a text says; one of the errors `NONSENSE` if nothing is written as this text."""
        line = value_of(cls, json.loads(text))
        if line.text != text:
            raise ValueError("The text is not the one that is written of its facts.")
        return line


type Row = tuple[int, str, str]
"""A line of the chain as a file holds it: its number, its text and its hash. That of the header has the number 0."""


def following(before: str, number: int, text: str) -> Row:
    """The row of a text that follows a hash; its own hash is SHA-256, in hexadecimal."""
    return number, text, hashlib.sha256(json.dumps([before, text]).encode()).hexdigest()


@final
@dataclass(frozen=True)
class Header(JsonLine):
    """What a ledger is for; it never changes. The fields are the parameters of :class:`Ledger`.

    The `identity` is a random text that was made with a ledger; None stands for any.
    """

    limit: Guarantee
    adaptive: bool
    adjacency: str
    unit: str | None = None
    identity: str | None = None

    def __post_init__(self) -> None:
        Guarantee.checked(limit=self.limit)
        adjacency_named(self.adjacency)
        if self.unit is not None:
            one_line(unit=self.unit)
        if self.identity is not None and not re.fullmatch("[0-9a-f]{32}", self.identity):
            raise ValueError("The identity of a ledger is 32 hexadecimal digits.")

    def __str__(self) -> str:
        fixed = "" if self.adaptive else "; releases fixed in advance"
        unit = "" if self.unit is None else f"; unit {self.unit}"
        return f"{self.limit}, {self.adjacency}{fixed}{unit}"


@final
@dataclass(frozen=True)
class Entry(JsonLine):
    """One release that was recorded, or a reservation for one. What is None or empty was not stated.

    Attributes
    ----------
    number : int
        Entries are numbered from 1 on.
    recorded : str
        The time, in UTC, ISO 8601.
    what : str
        What was released: a public text, such as the names of the variables.
    guarantee : Guarantee
        What was guaranteed.
    cost : mapping of str to float
        The numbers that are added up, in nats or as probabilities.
    composition_rule : str or None
        How its cost was added to the others; None where the tightest rule is chosen again each time.
    unit : str or None
        Whom the guarantee is about, such as "record" or "person".
    contribution : int or str or None
        How many records of a unit are in one table at most, or a text that says it table by table.
    min_count : float or None
        The number of records that every cell is assumed to hold.
    groups : tuple of tuple of str
        The tables of each group, where no unit feeds two groups.
    digest : str or None
        A fingerprint of the plan.
    reserved : bool
        Whether nothing was released yet, and the cost is reserved for a later release.
    uses : int or None
        The number of the reservation whose cost this release gave back when its own was added.
    """

    number: int
    recorded: str
    what: str
    guarantee: Guarantee
    cost: Mapping[str, float]
    composition_rule: str | None = None
    unit: str | None = None
    contribution: int | str | None = None
    min_count: float | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    digest: str | None = None
    reserved: bool = False
    uses: int | None = None

    def __post_init__(self) -> None:
        # A sum with a cost that is no number could be anything.
        if not self.cost or not all(cost >= 0 and math.isfinite(cost) for cost in self.cost.values()):
            raise ArgumentError("The mechanism has a loss that is no number, or is below 0, so it cannot be recorded.")
        if self.reserved and self.uses is not None:
            raise ArgumentError("A reservation uses no other: leave using() out.")
        if isinstance(self.groups, str):
            raise ArgumentError("Expected groups to be a sequence of groups of names, got a str.")
        groups = tuple(tuple(one_line(groups=name) for name in group) for group in self.groups)
        object.__setattr__(self, "groups", groups)
        for name in ("recorded", "what", "unit", "digest", "contribution"):
            value = getattr(self, name)
            if name == "contribution" and not isinstance(value, str | None):
                object.__setattr__(self, name, integer(1, contribution=value))
            elif value is not None or name in ("recorded", "what"):
                one_line(**{name: value})
        if self.min_count is not None:
            object.__setattr__(self, "min_count", at_least(0, min_count=self.min_count))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What has to be true for the guarantee to hold, in words."""
        sentences, label = [], self.unit or "record"
        if self.min_count:
            sentences.append(filled(self.min_count))
        if isinstance(self.contribution, str):
            sentences.append(f"a {who(label)} contributes no more than {self.contribution}")
        elif self.contribution is not None and (self.contribution, self.unit or "record") != (1, "record"):
            sentences.append(bounded_by(label, self.contribution))
        if len(self.groups) > 1:
            sentences.append(apart(label, self.groups))
        return tuple(sentences)


@final
@dataclass(frozen=True)
class Receipt:
    """That a ledger has charged something: which entry of which ledger. It is public.

    Attributes
    ----------
    ledger : str
        The random text that was made with the ledger.
    number : int
        The number of the entry.
    hash : str
        The hash of the entry, which follows from all entries up to it.
    """

    ledger: str
    number: int
    hash: str

    def __post_init__(self) -> None:
        proper = re.fullmatch("[0-9a-f]{32}", self.ledger) and re.fullmatch("[0-9a-f]{64}", self.hash)
        if not proper or self.number < 1:
            raise ArgumentError("Expected the identity of a ledger, the number of an entry and its hash.")

    @property
    def head(self) -> str:
        """What the head of the ledger was when it had been charged: its number and its hash."""
        return f"{self.number}:{self.hash}"
