"""The content of a ledger: its header and its entries, each a line of text, and the receipt of an entry."""

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
from pymc_dirdp.privacy.people import adjacency_by_name, bounded_by, disjoint_groups, filled_cells, who
from pymc_dirdp.texts.codec import facts_of, value_of

# The errors that reading a damaged text can raise.
PARSE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class JsonLine:
    """A dataclass that is written as one line of JSON. The class validates what is read, too."""

    @cached_property
    def text(self) -> str:
        """The only text that is parsed to this value."""
        return json.dumps(facts_of(self), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse a text; one of `PARSE_ERRORS` if no value is written as this text."""
        line = value_of(cls, json.loads(text))
        if line.text != text:
            raise ValueError("The text differs from the one that is written for these values.")
        return line


type Row = tuple[int, str, str]
"""A line of the chain in a file: its number, its text and its hash. The header has the number 0."""


def next_row(previous_hash: str, number: int, text: str) -> Row:
    """The row of a text that follows a hash; its own hash is SHA-256, in hexadecimal."""
    return number, text, hashlib.sha256(json.dumps([previous_hash, text]).encode()).hexdigest()


@final
@dataclass(frozen=True)
class Header(JsonLine):
    """The purpose of a ledger, which never changes. The fields are the parameters of :class:`Ledger`.

    The `identity` is a random text that was created with a ledger; None matches any ledger.
    """

    limit: Guarantee
    adaptive: bool
    adjacency: str
    unit: str | None = None
    identity: str | None = None

    def __post_init__(self) -> None:
        Guarantee.checked(limit=self.limit)
        adjacency_by_name(self.adjacency)
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
    """A recorded release, or a reservation for one. An attribute that is None or empty was not stated.

    Attributes
    ----------
    number : int
        Entries are numbered from 1 on.
    recorded : str
        The time, in UTC, ISO 8601.
    what : str
        A public text about the release, such as the names of the variables.
    guarantee : Guarantee
        The guarantee of the release.
    cost : mapping of str to float
        The numbers that the ledger sums, in nats or as probabilities.
    composition_rule : str or None
        The composition rule of the ledger; None where the tightest rule is chosen again each time.
    unit : str or None
        The unit of privacy, such as "record" or "person".
    contribution : int or str or None
        The maximum number of records of a unit in one table, or a text that states it table by table.
    min_count : float or None
        The number of records that every cell is assumed to contain.
    groups : tuple of tuple of str
        The tables of each group, where no unit feeds two groups.
    digest : str or None
        A fingerprint of the plan.
    reserved : bool
        Whether this is a reservation: its cost is reserved for a later release.
    uses : int or None
        The number of the reservation that this release used, and whose cost it replaced.
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
        # A NaN would make every sum undefined.
        if not self.cost or not all(cost >= 0 and math.isfinite(cost) for cost in self.cost.values()):
            raise ArgumentError("The mechanism has a loss that is not finite, or is below 0, so it cannot be recorded.")
        if self.reserved and self.uses is not None:
            raise ArgumentError("A reservation cannot use another one: leave using() out.")
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
        """The assumptions of the guarantee, in words."""
        sentences, label = [], self.unit or "record"
        if self.min_count:
            sentences.append(filled_cells(self.min_count))
        if isinstance(self.contribution, str):
            sentences.append(f"a {who(label)} contributes no more than {self.contribution}")
        elif self.contribution is not None and (self.contribution, self.unit or "record") != (1, "record"):
            sentences.append(bounded_by(label, self.contribution))
        if len(self.groups) > 1:
            sentences.append(disjoint_groups(label, self.groups))
        return tuple(sentences)


@final
@dataclass(frozen=True)
class Receipt:
    """A public proof that a ledger charged a release, by its ledger and entry.

    Attributes
    ----------
    ledger : str
        The random text that was created with the ledger.
    number : int
        The number of the entry.
    hash : str
        The hash of the entry, which follows from all entries up to it.
    """

    ledger: str
    number: int
    hash: str

    def __post_init__(self) -> None:
        is_valid = re.fullmatch("[0-9a-f]{32}", self.ledger) and re.fullmatch("[0-9a-f]{64}", self.hash)
        if not is_valid or self.number < 1:
            raise ArgumentError("Expected the identity of a ledger, the number of an entry and its hash.")

    @property
    def head(self) -> str:
        """The head of the ledger just after the charge: its number and its hash."""
        return f"{self.number}:{self.hash}"
