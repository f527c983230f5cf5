"""Mechanisms that choose something from the records and release no number: how a file holds them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.curves import CurvesOf

__all__ = ["ChoiceMechanism"]


class ChoiceMechanism(CurvesOf):
    """A dataclass of public numbers and words that are all that is known of a choice, besides what was chosen."""

    adjacency: str

    @property
    def facts(self) -> dict[str, Any]:
        """What a file holds: the arguments of the class."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # a dataclass
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """The mechanism that a file names; everything is checked.

        Raises
        ------
        ArgumentError
            If there is no such mechanism.
        """
        try:
            found = cls(**facts)
            same = found.facts == {n: list(value) if isinstance(value, tuple) else value for n, value in facts.items()}
        except (AttributeError, TypeError):
            same = False
        if not same:
            raise ArgumentError(f"Expected the facts of a {cls.__name__}, as it uses them.")
        return found
