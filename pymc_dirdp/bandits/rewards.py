"""Rewards as they are reported: labels of arms, numbers, and categories of public worth."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, final

import numpy as np

from pymc_dirdp.checks import at_least
from pymc_dirdp.errors import ArgumentError, DataError, type_name

__all__ = ["Worth", "checked_labels", "checked_utilities", "listed"]


@final
class Worth:
    """What a reported reward is worth, on the scale from 0 to 1 that the sampler learns, and back.

    Parameters
    ----------
    utilities : mapping of str to float, or None
        The worth of each category; None for rewards that are numbers in [0, 1].
    """

    def __init__(self, utilities: Mapping[str, float] | None) -> None:
        self._utilities = utilities
        self._least = min(utilities.values()) if utilities else 0.0
        self.span = max(utilities.values()) - self._least if utilities else 1.0

    def checked(self, reward: object) -> Fraction:
        """A reward as an exact number in [0, 1]. Errors hold no reward."""
        if self._utilities is None:
            return _in_unit_interval(reward)
        if not isinstance(reward, str) or reward not in self._utilities:
            raise DataError(f"Expected every reward to be one of {', '.join(map(repr, self._utilities))}.")
        most = max(self._utilities.values())
        least = Fraction(self._least)
        return (Fraction(self._utilities[reward]) - least) / (Fraction(most) - least)

    def back(self, share: Any) -> Any:
        """Mean rewards in the units of the worth."""
        return self._least + self.span * share


def listed(arm: Any, reward: Any, person: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Arms, rewards and people one by one. A label is a text or a number, so anything longer is a list of labels."""
    if isinstance(arm, str) or not hasattr(arm, "__len__"):
        return [_plain(arm)], [reward], [_plain(person)]
    if not hasattr(reward, "__len__"):
        raise ArgumentError("Expected as many rewards as arms.")
    people = [None] * len(arm) if person is None else person
    if isinstance(people, str) or not hasattr(people, "__len__") or not len(arm) == len(reward) == len(people):
        raise ArgumentError("Expected as many rewards, and people if they are given, as arms.")
    # NumPy's labels are those of Python.
    arms, rewards, persons = (np.asarray(each, dtype=object).tolist() for each in (arm, reward, people))
    return [_plain(one) for one in arms], rewards, [_plain(one) for one in persons]


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def checked_labels(arms: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """The labels of the arms, which a file can hold and tell apart."""
    if not isinstance(arms, Iterable):
        raise ArgumentError(f'Expected the names of the arms, such as ["a", "b"], got {type_name(arms)}.')
    labels = (arms,) if isinstance(arms, str) else tuple(arms)
    if not labels:
        raise ArgumentError("Expected at least one arm.")
    if not all(isinstance(label, str | int) and not isinstance(label, bool) for label in labels):
        raise ArgumentError("Expected every arm to be a text or a whole number.")
    if len(set(labels)) < len(labels):
        raise ArgumentError("Expected arms to be different from one another.")
    return labels


def checked_utilities(utilities: Mapping[str, float] | None) -> dict[str, float] | None:
    """The worth of each category, of which at least two differ."""
    if utilities is None:
        return None
    if not isinstance(utilities, Mapping) or not all(isinstance(name, str) for name in utilities):
        raise ArgumentError("Expected utilities to be a mapping from the names of categories to numbers.")
    worths = {name: at_least(-math.inf, utilities=value) for name, value in utilities.items()}
    if len(set(worths.values())) < 2:
        raise ArgumentError("Expected utilities of at least two different numbers; else there is nothing to learn.")
    return worths


def _in_unit_interval(reward: object) -> Fraction:
    """A reward as the exact number that the double is. Errors hold no reward."""
    try:
        value = float(reward)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError("Expected every reward to be a number in [0, 1].") from None
    if math.isnan(value) or not 0 <= value <= 1:
        raise DataError("Expected every reward to be a number in [0, 1]. A reward that is missing counts as 0.")
    return Fraction(value)
