"""A public number or word of a mechanism, as a file of a release holds it."""

from dataclasses import dataclass
from typing import final

__all__ = ["Fact"]


@final
@dataclass(frozen=True)
class Fact:
    """A public number or word of a mechanism, as the group of a table in a release holds it.

    Attributes
    ----------
    name : str
        Its name in the release.
    field : str
        The field or property of the mechanism.
    kind : {"table", "scalar", "number", "whole", "text", "list"}
        A variable with the axes of the table, a variable without axes, or an attribute; a list is written as JSON.
    given : bool, default True
        Whether the class takes it as an argument; otherwise it follows from the others, and is compared
        when it is read.
    optional : bool, default False
        Whether it is left out of a file where it is None.
    """

    name: str
    field: str
    kind: str
    given: bool = True
    optional: bool = False

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable of the group, and not an attribute."""
        return self.kind in ("table", "scalar")
