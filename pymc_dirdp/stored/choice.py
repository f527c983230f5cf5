"""What was chosen privately from the records, with what choosing it has cost, and its file. It is public."""

import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from pymc_dirdp.accounting.entries import Receipt, one_line
from pymc_dirdp.display import Labelled
from pymc_dirdp.errors import ArgumentError, DirdpError
from pymc_dirdp.mechanisms.choice import ChoiceMechanism
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.stored.readable import digest, guarantee_facts, guarantee_of, in_lines, parsed, plain, version_of

__all__ = ["PrivateChoice", "fingerprint_of"]

_AGAIN = "Ask for the file again. To choose again costs privacy again."


def fingerprint_of(mechanism: ChoiceMechanism, guarantee: Guarantee, unit: str, identity: str) -> str:
    """What a ledger is told of a choice before it is made."""
    facts = {"mechanism": mechanism.facts, "guarantee": guarantee_facts(guarantee), "unit": unit, "identity": identity}
    return digest(facts)


@dataclass(frozen=True, kw_only=True)
class PrivateChoice(Labelled):
    """What was chosen privately from the records. A subclass says what that is.

    Attributes
    ----------
    mechanism : ChoiceMechanism
        How it was chosen, with its privacy curves.
    guarantee : Guarantee
        What choosing it keeps, by itself.
    unit : str
        Whom that protects.
    identity : str
        A random text, which tells two choices apart that came out the same: both have cost.
    entry : Receipt or None
        The entry of the ledger that holds what it has cost.
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

    called: ClassVar[str]
    """What is chosen, in a word."""
    version: ClassVar[int] = 2
    """The version of the form of its file."""
    mechanism_class: ClassVar[type[ChoiceMechanism]]
    """The class of the mechanism that a file can hold."""

    @property
    @abstractmethod
    def _chosen(self) -> dict[str, Any]:
        """What was chosen, in texts, numbers, lists and dicts."""

    @staticmethod
    @abstractmethod
    def _read(facts: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that stand for what was chosen; an error of any kind if the facts are none of it."""

    @property
    @abstractmethod
    def _is_consistent(self) -> bool:
        """Whether the mechanism could have chosen it."""

    @property
    @abstractmethod
    def in_short(self) -> str:
        """How it was chosen, in a few words."""

    @property
    @abstractmethod
    def _what_it_decides(self) -> str:
        """What of a release depends on it, in words."""

    @property
    def adjacency(self) -> str:
        """What one unit can change."""
        return self.mechanism.adjacency

    @property
    def told(self) -> str:
        """What a release says of it."""
        return (
            f"{self._what_it_decides} chosen from the same records, privately, by {self.in_short}; that alone keeps "
            f"{self.guarantee}, and the guarantee covers both"
        )

    @property
    def recorded(self) -> bool:
        """Whether it says that a ledger holds what it has cost. :meth:`Ledger.holds` knows whether it does."""
        return self.entry is not None

    @property
    def fingerprint(self) -> str:
        """What its entry of a ledger states as a digest: all that was known before it was chosen."""
        return fingerprint_of(self.mechanism, self.guarantee, self.unit, self.identity)

    @property
    def _in_ledger(self) -> tuple[str, str]:
        return "ledger", "recorded" if self.recorded else "not recorded: pass after= to what is released next"

    def mark_released(self) -> None:
        """Remember that the guarantee of a release covers it."""

    def refuse_other_people(self, adjacency: str, unit: str) -> None:
        """Refuse to add the loss of this choice to one that is about others."""
        for name, mine, its in (("adjacency", self.adjacency, adjacency), ("unit", self.unit, unit)):
            if mine != its:
                raise ArgumentError(
                    f"The {self.called} came from a choice for {name}={mine!r} and the release is for {its!r}, so "
                    "their losses do not add up. Choose and release for the same people."
                )

    @property
    def facts(self) -> dict[str, Any]:
        """All that it says, in texts, numbers, lists and dicts."""
        return {
            "format": f"pymc_dirdp {self.called}",
            "version": self.version,
            "promise": str(self.guarantee),
            **self._chosen,
            "mechanism": self.mechanism.facts,
            "guarantee": guarantee_facts(self.guarantee),
            "unit": self.unit,
            "identity": self.identity,
            "entry": None if self.entry is None else asdict(self.entry),
            "reproducible": self.reproducible,
            "library_version": self.library_version,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """The choice of which these are the facts. Nothing is believed.

        Raises
        ------
        ArgumentError
            If they are no such facts, contradict themselves, or the choice does not keep its guarantee.
        """
        damaged = f"The facts of the {cls.called} are damaged"
        try:
            found = cls(
                **cls._read(facts),
                mechanism=cls.mechanism_class.from_facts(facts["mechanism"]),
                guarantee=guarantee_of(facts["guarantee"]),
                unit=one_line(unit=facts["unit"]),
                identity=one_line(identity=facts["identity"]),
                entry=None if facts["entry"] is None else Receipt.from_facts(facts["entry"]),
                reproducible=facts["reproducible"],
                library_version=version_of(facts["library_version"]),
            )
            # Written again, it has to be the same: so it says nothing else. The number 1 is equal to True.
            same = found._is_consistent and plain(found.facts) == plain(facts)  # its own class
            if not same or type(found.reproducible) is not bool:
                raise ValueError
        except DirdpError as error:
            raise ArgumentError(f"{damaged}: {error}") from None
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            raise ArgumentError(f"{damaged}: they say what none say, or contradict themselves. {_AGAIN}") from None
        if not found.mechanism.satisfies(found.guarantee):
            raise ArgumentError(
                f"The choice of the {cls.called} does not keep {found.guarantee}, although its facts say so. {_AGAIN}"
            )
        return found

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file that people can read.

        Parameters
        ----------
        path : path-like
            The file, which is made or replaced.
        """
        Path(path).write_text(in_lines({"digest": digest(self.facts)} | self.facts), encoding="utf-8")

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`to_json` wrote. Nothing in the file is believed.

        Raises
        ------
        ArgumentError
            If it is no such file, was changed, contradicts itself, or does not keep its guarantee.
        OSError
            If the file cannot be read.
        """
        made_by, form = f"choose_{cls.called}()", f"pymc_dirdp {cls.called}"
        facts, _ = parsed(Path(path).read_bytes(), form, cls.version, what=cls.called, again=_AGAIN, made_by=made_by)
        return cls.from_facts(facts)
