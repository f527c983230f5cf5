"""What a ledger holds: what it is for, the releases, and the texts that stand for both in its file."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, final

from pymc_dirdp.checks import at_least, integer
from pymc_dirdp.display import visible
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.numerics.rounding import at_least_in_short
from pymc_dirdp.privacy.guarantees import KINDS, Guarantee

__all__ = ["Entry", "Header", "Receipt", "Terms", "chained", "one_line"]


@final
@dataclass(frozen=True)
class Header:
    """What a ledger is for; it never changes. The fields are the parameters of :class:`Ledger`."""

    limit: Guarantee
    adaptive: bool
    adjacency: str
    unit: str | None = None


@final
@dataclass(frozen=True)
class Terms:
    """Whom a release protects, and what it assumes. A fact that is None or empty was not stated.

    Attributes
    ----------
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
    """

    unit: str | None = None
    contribution: int | str | None = None
    min_count: float | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    digest: str | None = None

    @classmethod
    def checked(
        cls,
        *,
        unit: str | None,
        contribution: int | str | None,
        min_count: float | None,
        groups: Iterable[Iterable[str]] | None,
        digest: str | None,
    ) -> Self:
        """The terms, or an error that names the argument that is wrong."""
        if contribution is not None and not isinstance(contribution, str):
            contribution = integer(1, contribution=contribution)
        if isinstance(groups, str):
            raise ArgumentError("Expected groups to be a sequence of groups of names, got a str.")
        return cls(
            None if unit is None else one_line(unit=unit),
            one_line(contribution=contribution) if isinstance(contribution, str) else contribution,
            None if min_count is None else at_least(0, min_count=min_count),
            tuple(tuple(one_line(groups=name) for name in group) for group in groups or ()),
            None if digest is None else one_line(digest=digest),
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What has to be true for the guarantee to hold, in words."""
        said = []
        if self.min_count:
            said.append(f"every cell holds at least {at_least_in_short(self.min_count):g} records")
        if isinstance(self.contribution, str):
            said.append(f"a {self.unit or 'unit'} contributes no more than {self.contribution}")
        elif self.contribution is not None and (self.contribution, self.unit or "record") != (1, "record"):
            plural = "s" * (self.contribution > 1)
            said.append(f"one {self.unit or 'unit'} holds at most {self.contribution} record{plural} of a table")
        if len(self.groups) > 1:
            listed = " and ".join(f"({', '.join(group)})" for group in self.groups)
            said.append(f"no {self.unit or 'unit'} feeds two of {listed}")
        return tuple(said)


@final
@dataclass(frozen=True)
class Entry:
    """One release that was recorded, or a reservation for one.

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
    terms : Terms
        Whom the guarantee is about, and what it assumes.
    composition_rule : str or None
        How its cost was added to the others; None where the tightest rule is chosen again each time.
    reserved : bool
        Whether nothing was released yet, and the cost is kept for a release that will be.
    uses : int or None
        The number of the reservation whose cost this release gave back when its own was added.
    """

    number: int
    recorded: str
    what: str
    guarantee: Guarantee
    cost: Mapping[str, float]
    terms: Terms
    composition_rule: str | None
    reserved: bool = False
    uses: int | None = None

    def row(self) -> tuple[int, str, str, str, str, str, str | None, int, int | None]:
        """The entry as a file holds it."""
        guarantee, cost, terms = written(self.guarantee), json.dumps(dict(self.cost)), json.dumps(asdict(self.terms))
        facts = self.number, self.recorded, self.what, guarantee, cost, terms, self.composition_rule
        return *facts, int(self.reserved), self.uses

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Self:
        """The entry that a file holds.

        Raises
        ------
        ValueError
            If the row is no entry. Other errors of wrong types and of numbers out of range are raised as they come.
        """
        number, recorded, what, guarantee, cost, terms, composition_rule, reserved, uses = row
        costs = {str(name): float(value) for name, value in json.loads(cost).items()}
        facts = json.loads(terms)
        optional = (composition_rule, facts["unit"], facts["digest"])
        texts = (recorded, what, *(text for text in optional if text is not None))
        # A sum with a cost that is no number could be anything.
        if not all(math.isfinite(value) and value >= 0 for value in costs.values()) or not costs:
            raise ValueError("A cost is no number.")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("A text is no text.")
        if reserved and uses is not None:
            raise ValueError("A reservation uses no other.")
        facts["groups"] = tuple(tuple(str(name) for name in group) for group in facts["groups"])
        kept = Terms(**facts)
        return cls(number, recorded, what, understood(guarantee), costs, kept, composition_rule, bool(reserved), uses)


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

    @classmethod
    def from_facts(cls, facts: Any) -> Self:
        """The receipt of which these are the facts; an error of any kind if they are none."""
        found = cls(**facts)
        if type(found.number) is not int or found.number < 1 or {type(found.ledger), type(found.hash)} != {str}:
            raise ValueError("These are no facts of a receipt.")
        if not re.fullmatch("[0-9a-f]{32}", found.ledger) or not re.fullmatch("[0-9a-f]{64}", found.hash):
            raise ValueError("These are no facts of a receipt.")
        return found


def written(guarantee: Guarantee) -> str:
    """A guarantee as a text for files."""
    return json.dumps({"kind": type(guarantee).__name__, **asdict(guarantee)})


def understood(text: str) -> Guarantee:
    """The guarantee that was written."""
    facts = json.loads(text)
    return KINDS[facts.pop("kind")](**facts)


def chained(before: str, *facts: object) -> str:
    """The SHA-256, in hexadecimal, of the hash before and some texts and numbers."""
    return hashlib.sha256(json.dumps([before, *facts]).encode()).hexdigest()


def one_line(**named: object) -> str:
    """Accept a text of one line, without characters that a terminal obeys or that hide others."""
    ((name, value),) = named.items()
    if not isinstance(value, str):
        raise ArgumentError(f"Expected {name} to be a text, got {type_name(value)}.")
    if not value.strip():
        raise ArgumentError(f"Expected {name} to be a text, got an empty one.")
    if not value.isprintable():
        raise ArgumentError(
            f"Expected {name} to be a line of printable text, got control characters or others that cannot be seen: "
            f"{visible(value)!r}. Rename it, or leave them out."
        )
    return value
