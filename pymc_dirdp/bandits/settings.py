"""The settings of a bandit, and the rewards that users report."""

import hashlib
import json
import math
import secrets
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Self, final

import numpy as np

from pymc_dirdp.bandits.batch_release import BatchCounts
from pymc_dirdp.bandits.design import Design, EveryRound, checked_prior
from pymc_dirdp.checks import at_least, one_line, one_of
from pymc_dirdp.counting.columns import identifier
from pymc_dirdp.errors import ArgumentError, DataError, type_name
from pymc_dirdp.literals import Schedule, options_of
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.texts.codec import facts_of, fields_of


@final
class Worth:
    """The worth of a reported reward on the scale from 0 to 1 that the sampler learns, and its inverse.

    Parameters
    ----------
    utilities : mapping of str to float, or None
        The worth of each category; None for rewards that are numbers in [0, 1].
    """

    def __init__(self, utilities: Mapping[str, float] | None) -> None:
        self._utilities = utilities
        self._least = min(utilities.values()) if utilities else 0.0
        self.span = max(utilities.values()) - self._least if utilities else 1.0

    def __len__(self) -> int:
        return len(self._utilities or ())

    def checked(self, reward: object) -> Fraction:
        """The worth of a reward as an exact number in [0, 1]. Errors contain no reward."""
        if self._utilities is None:
            return _in_unit_interval(reward)
        if not isinstance(reward, str) or reward not in self._utilities:
            raise DataError(f"Expected every reward to be one of {', '.join(map(repr, self._utilities))}.")
        highest = max(self._utilities.values())
        least = Fraction(self._least)
        return (Fraction(self._utilities[reward]) - least) / (Fraction(highest) - least)

    @property
    def levels(self) -> tuple[float, ...]:
        """The distinct worths on the scale from 0 to 1, ascending; none for rewards that are numbers."""
        return tuple(sorted({float(self.checked(name)) for name in self._utilities or ()}))

    def by_level(self, values: Sequence[float]) -> tuple[float, ...]:
        """Sums of the values of categories with the same worth."""
        levels, sums = self.levels, dict.fromkeys(self.levels, 0.0)
        for name, value in zip(self._utilities or (), values, strict=True):
            sums[float(self.checked(name))] += value
        return tuple(sums[level] for level in levels)

    def back(self, share: Any) -> Any:
        """Mean rewards in the units of `utilities`."""
        return self._least + self.span * share


def as_list(arm: Any, reward: Any, person: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Lists of arms, rewards and people. A label is a text or a number, so anything with a length is a list."""
    if isinstance(arm, str) or not hasattr(arm, "__len__"):
        return [_to_plain(arm)], [reward], [_to_plain(person)]
    if not hasattr(reward, "__len__"):
        raise ArgumentError("Expected as many rewards as arms.")
    people = [None] * len(arm) if person is None else person
    if isinstance(people, str) or not hasattr(people, "__len__") or not len(arm) == len(reward) == len(people):
        raise ArgumentError("Expected as many rewards, and people if they are given, as arms.")
    # Convert NumPy's labels to Python's.
    arms, rewards, persons = (np.asarray(column, dtype=object).tolist() for column in (arm, reward, people))
    return [_to_plain(item) for item in arms], rewards, [_to_plain(item) for item in persons]


def _to_plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def checked_labels(arms: Sequence[Hashable]) -> tuple[str | int, ...]:
    """Distinct labels of the arms that a file can hold."""
    if not isinstance(arms, Iterable):
        raise ArgumentError(f'Expected the names of the arms, such as ["a", "b"], got {type_name(arms)}.')
    labels = (arms,) if isinstance(arms, str) else tuple(arms)
    if not labels:
        raise ArgumentError("Expected at least one arm.")
    if not all(isinstance(label, str | int) and not isinstance(label, bool) for label in labels):
        raise ArgumentError("Expected every arm to be a text or an integer.")
    if len(set(labels)) < len(labels):
        raise ArgumentError("Expected arms to be different from one another.")
    return labels  # type: ignore[return-value]  # They are texts and integers.


def checked_utilities(utilities: Mapping[str, float] | None) -> dict[str, float] | None:
    """The worth of each category, with at least two different values."""
    if utilities is None:
        return None
    if not isinstance(utilities, Mapping) or not all(isinstance(name, str) for name in utilities):
        raise ArgumentError("Expected utilities to be a mapping from the names of categories to numbers.")
    worths = {name: at_least(-math.inf, utilities=value) for name, value in utilities.items()}
    if len(set(worths.values())) < 2:
        raise ArgumentError(
            "Expected utilities of at least two different numbers, so that there is something to learn."
        )
    return worths


def _in_unit_interval(reward: object) -> Fraction:
    """The exact value of a reward as a double. Errors contain no reward."""
    try:
        value = float(reward)  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):
        raise DataError(
            "Expected every reward to be a number in [0, 1], and for a list of rewards a list of as many arms."
        ) from None
    if math.isnan(value) or not 0 <= value <= 1:
        raise DataError(
            "Expected every reward to be a number in [0, 1]. Report a missing one as 0, and divide amounts by a public "
            "maximum."
        )
    return Fraction(value)


REWARD = "reward"
"""The unit of a guarantee about single rewards, in a ledger. Any other unit is a name for people."""

_KEY_BYTES = 32


@final
@dataclass(frozen=True)
class Settings[Rules: Design | EveryRound]:
    """The permanent settings of a run, and its public set of arms.

    Attributes
    ----------
    arms : tuple of labels
        All current and retired arms. New arms come last.
    guarantee : Guarantee
    design : Design or EveryRound
        The public rules, which satisfy the guarantee.
    unit : str
        The unit of privacy: "reward", or a name for people.
    utilities : dict of str to float, or None
        The worth of each category.
    seeded : bool
        Whether a seed can reproduce the run.
    key : bytes
        Secret key of the fingerprints of people.
    retired : tuple of labels
        The retired arms, in the order of `arms`.
    """

    arms: tuple[str | int, ...]
    guarantee: Guarantee
    design: Rules
    unit: str = REWARD
    utilities: dict[str, float] | None = None
    seeded: bool = False
    key: bytes = field(default_factory=lambda: secrets.token_bytes(_KEY_BYTES), repr=False)
    retired: tuple[str | int, ...] = ()

    def __post_init__(self) -> None:
        checked_labels(self.arms)
        one_line(unit=self.unit)
        checked_utilities(self.utilities)
        # True equals 1 in Python, but not in a text.
        if [repr(label) for label in self.retired] != [repr(label) for label in self.arms if label in self.retired]:
            raise ArgumentError("Expected the retired arms to be among the arms, each once, in the same order.")
        if len(self.retired) == len(self.arms):
            raise ArgumentError("At least one arm must be left. Add another one first.")
        if isinstance(self.design, Design) and self.design.mechanism.worths not in ((0.0, 1.0), self.worth.levels):
            raise ArgumentError("Expected the mechanism to have the same values of categories as utilities.")

    @property
    def places(self) -> list[int]:
        """The places of the active arms among all arms."""
        return [place for place, label in enumerate(self.arms) if label not in self.retired]

    def with_arm(self, label: Hashable) -> Self:
        """The settings with a new arm, or with a retired arm made active."""
        (label,) = checked_labels([label])
        if label in self.retired:
            return replace(
                self, retired=tuple(remaining_arm for remaining_arm in self.retired if remaining_arm != label)
            )
        return replace(self, arms=checked_labels([*self.arms, label]))

    def without_arm(self, label: Hashable) -> Self:
        """The settings with a retired arm. Its place does not change."""
        return replace(
            self,
            retired=tuple(
                remaining_arm for remaining_arm in self.arms if remaining_arm in self.retired or remaining_arm == label
            ),
        )

    @property
    def worth(self) -> Worth:
        """The worth of rewards."""
        return Worth(self.utilities)

    @property
    def rewards(self) -> int:
        """The maximum number of rewards of one unit."""
        return self.design.rewards

    @property
    def contribution(self) -> str | None:
        """Text for a ledger about the rewards of a person; None if the unit is a reward."""
        return None if self.unit == REWARD else f"{self.rewards} reward{'s' * (self.rewards > 1)} of a run"

    def fingerprint(self, person: object) -> str | None:
        """A pseudonym for a person in memory and in a file; None if the unit is a reward."""
        if self.unit == REWARD:
            if person is not None:
                raise ArgumentError("person= is for a bandit with contribution=, which protects people.")
            return None
        name = identifier(person)
        if name is None:
            raise ArgumentError(
                "Pass person=, an integer or a text of visible characters that is not empty: this bandit protects "
                "people, so it must know whose reward this is."
            )
        return hashlib.blake2b(name.encode(), key=self.key, digest_size=16).hexdigest()

    def to_json(self) -> str:
        """The settings as a text for a file."""
        names = ("arms", "retired", "guarantee", "design", "unit", "utilities", "seeded")
        facts = {name: facts_of(getattr(self, name)) for name in names}
        return json.dumps(facts | {"guarantee": json.dumps(facts["guarantee"]), "key": self.key.hex()})

    @classmethod
    def from_json(cls, text: str) -> "Settings[Design]":
        """The validated settings of a file.

        Raises
        ------
        ValueError
            If a value is invalid. Wrong types and missing values raise other errors.
        """
        facts: dict[str, Any] = json.loads(text)
        key, design = bytes.fromhex(facts.pop("key")), Design.from_dict(facts.pop("design"))
        facts["guarantee"] = json.loads(facts["guarantee"])
        settings = Settings(key=key, design=design, **fields_of(Settings, facts, without=("key", "design")))
        # The grammar is closed, so writing the settings must yield the same text.
        if settings.to_json() != text:
            raise ArgumentError("it is not written as this library writes it")
        # A shorter key could be guessed. A guarantee about single rewards has one reward for each unit.
        if len(key) != _KEY_BYTES or (settings.unit == REWARD and settings.rewards > 1):
            raise ArgumentError("invalid bandit settings: the key for people is too short, or the unit is wrong")
        if not settings.design.privacy.satisfies(settings.guarantee):
            raise ArgumentError(f"The mechanism does not satisfy {settings.guarantee}.")
        return settings


def unit_of(contribution: int | None, unit: str | None) -> str:
    """The unit of privacy of a run: single rewards, or the ledger's name for people."""
    if contribution is None:
        if unit not in (None, REWARD):
            raise ArgumentError(
                f"Pass contribution=, the maximum number of rewards of one person, or leave unit= out: "
                f"unit={one_line(unit=unit)!r} names people, and without contribution= a run protects single rewards."
            )
        return REWARD
    if unit == REWARD:
        raise ArgumentError(
            "Pass a word for people, such as unit='visitor': with contribution= the guarantee is for people, and "
            "unit='reward' would state a weaker one."
        )
    return "person" if unit is None else one_line(unit=unit)


def rules_of(
    guarantee: Guarantee,
    *,
    schedule: str,
    horizon: int | None,
    prior: Sequence[float] | None,
    worth: Worth,
    **of_batches: Any,
) -> Design | EveryRound:
    """The public rules of a run.

    Parameters
    ----------
    guarantee : Guarantee
    schedule, horizon, prior
        See :class:`pymc_dirdp.ThompsonSampler`.
    worth : Worth
        The worth of rewards.
    **of_batches
        `mechanism`, `first_batch`, `growth` and `contribution`, which are for batches only.
    """
    guarantee = Guarantee.checked(guarantee=guarantee)
    if one_of(options_of(Schedule), schedule=schedule) == "batches":
        if horizon is not None:
            raise ArgumentError(
                "horizon= is for schedule='every-round'. The guarantee of batches is for a run of any length: leave "
                "horizon= out."
            )
        contribution = of_batches.pop("contribution")
        names = len(worth) if of_batches["mechanism"] == BatchCounts.name else 0
        cells = names or 2
        parameters = checked_prior((1.0,) * cells if prior is None else prior, cells)
        if names:
            parameters = worth.by_level(parameters)
        rewards = 1 if contribution is None else contribution
        return Design.of(guarantee, prior=parameters, rewards=rewards, worths=worth.levels, **of_batches)
    # Options of batches, with their defaults.
    unsaid = {"mechanism": (None,), "first_batch": (None,), "growth": (1.0,), "contribution": (None,)}
    for name, value in of_batches.items():
        if value not in unsaid[name]:
            raise ArgumentError(f"{name}= is for batches: leave it out, or leave schedule='every-round' out.")
    if horizon is None:
        raise ArgumentError(
            "Pass horizon=: schedule='every-round' draws from the same rewards in each round, so its guarantee is for "
            "a fixed number of rounds. Or leave schedule= out, for a run of any length."
        )
    return EveryRound(guarantee, horizon, (1.0, 1.0) if prior is None else prior)
