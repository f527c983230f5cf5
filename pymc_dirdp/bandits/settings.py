"""What a bandit is made with and never changes: its arms, its guarantee, its rules, and whom it protects."""

import hashlib
import json
import secrets
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, final

from pymc_dirdp.accounting.entries import one_line, understood, written
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.every_round import EveryRound
from pymc_dirdp.bandits.rewards import checked_labels, checked_utilities
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["REWARD", "Settings", "unit_of"]

REWARD = "reward"
"""The unit of a guarantee about single rewards, in a ledger. Any other unit is a name for people."""

_FACTS = {"arms", "guarantee", "design", "unit", "utilities", "seeded", "key"}
_KEY_BYTES = 32


@final
@dataclass(frozen=True)
class Settings[Rules: Design | EveryRound]:
    """All that a run keeps for ever.

    Attributes
    ----------
    arms : tuple of labels
    guarantee : Guarantee
    design : Design or EveryRound
        The public rules, which keep the guarantee.
    unit : str
        Whom the guarantee protects: "reward", or a name for people.
    utilities : dict of str to float, or None
        The worth of each category.
    seeded : bool
        Whether the run can be computed again.
    key : bytes
        Makes the fingerprints of people: a secret.
    """

    arms: tuple[Hashable, ...]
    guarantee: Guarantee
    design: Rules
    unit: str = REWARD
    utilities: dict[str, float] | None = None
    seeded: bool = False
    key: bytes = field(default_factory=lambda: secrets.token_bytes(_KEY_BYTES), repr=False)

    @property
    def rewards(self) -> int:
        """How many rewards one unit gives at most."""
        return self.design.rewards

    @property
    def contribution(self) -> str | None:
        """What a ledger says of the rewards of a person; None where single rewards are protected."""
        return None if self.unit == REWARD else f"{self.rewards} reward{'s' * (self.rewards > 1)} of a run"

    def fingerprint(self, person: object) -> str | None:
        """What stands for a person in memory and in a file; None where single rewards are protected."""
        if self.unit == REWARD:
            if person is not None:
                raise ArgumentError("person= is for a bandit with contribution=, which protects people.")
            return None
        return hashlib.blake2b(_name_of(person), key=self.key, digest_size=16).hexdigest()

    def to_json(self) -> str:
        """The settings as a file holds them."""
        facts = {
            "arms": list(self.arms),
            "guarantee": written(self.guarantee),
            "design": self.design.to_json(),
            "unit": self.unit,
            "utilities": self.utilities,
            "seeded": self.seeded,
            "key": self.key.hex(),
        }
        return json.dumps(facts)

    @classmethod
    def from_json(cls, text: str) -> "Settings[Design]":
        """The settings of a file, each of them checked.

        Raises
        ------
        ValueError
            If a fact is not what it should be. Errors of wrong types and of missing facts are raised as they come.
        """
        facts: dict[str, Any] = json.loads(text)
        if set(facts) != _FACTS or not isinstance(facts["arms"], list) or not isinstance(facts["seeded"], bool):
            raise ArgumentError("These are no settings of a bandit.")
        key = bytes.fromhex(facts["key"])
        settings = Settings(
            checked_labels(facts["arms"]),
            understood(facts["guarantee"]),
            Design.from_json(facts["design"]),
            one_line(unit=facts["unit"]),
            checked_utilities(facts["utilities"]),
            facts["seeded"],
            key,
        )
        # A shorter key could be guessed, and several rewards of somebody are not the promise about single ones.
        if len(key) != _KEY_BYTES or (settings.unit == REWARD and settings.rewards > 1):
            raise ArgumentError("These are no settings of a bandit.")
        if not settings.design.privacy.satisfies(settings.guarantee):
            raise ArgumentError(f"The mechanism does not keep {settings.guarantee}.")
        return settings


def _name_of(person: object) -> bytes:
    """The one name of a person: 5, "5" and "5 " are the same."""
    try:
        name = str(person).strip().encode() if isinstance(person, str | int) and not isinstance(person, bool) else b""
    except ValueError:  # A text that is no Unicode, or an integer of thousands of digits.
        name = b""
    if not name:
        raise ArgumentError(
            "This bandit protects people, so it has to know whose reward this is: pass person=, an integer or a text "
            "that is not empty."
        )
    return name


def unit_of(contribution: int | None, unit: str | None) -> str:
    """Whom a run protects: single rewards, or people under the name that a ledger has for them."""
    if contribution is None:
        if unit not in (None, REWARD):
            raise ArgumentError(
                f"unit={one_line(unit=unit)!r} names people, and without contribution= a run protects single rewards. "
                "Pass contribution=, the number of rewards that each of them gives at most; or leave unit= out."
            )
        return REWARD
    if unit == REWARD:
        raise ArgumentError(
            "contribution= protects people, so unit='reward' would be a lower promise. Name the people."
        )
    return "person" if unit is None else one_line(unit=unit)
