"""One group of a file that anybody may have written. Each value is checked when it is read.

A value that is missing, or is not of the kind that belongs there, is a :class:`pymc_dirdp.errors.ReleaseError` which
names the group and the value.
"""

import json
import math
import numbers
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ReleaseError, shown, type_name

__all__ = ["Group", "computable", "group_at", "refuse_others"]

# A few bytes of a file may declare an array larger than any memory. No release holds more numbers in one array.
_MOST_NUMBERS = 10**8
# The largest number of characters of a text, and how many of them an error repeats.
_LONGEST = 10**7


@contextmanager
def computable() -> Iterator[None]:
    """Turn a failed computation into a ReleaseError: the numbers of a file may be too large or too small for curves."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            yield
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, ReleaseError):
            raise
        raise ReleaseError(
            "The release is damaged: no curve can be computed from its numbers, some of which are far too large or too "
            "small."
        ) from error


@final
@dataclass(frozen=True, eq=False)
class Group:
    """A group of a file, by the path that errors name, such as `"privacy"`. Nothing in its dataset was checked."""

    path: str
    dataset: Any

    def damaged(self, problem: str) -> ReleaseError:
        """The error about a problem of this group."""
        return ReleaseError(
            f"The release is damaged: in the group {self.path!r} {problem}. Read it again from whoever published it."
        )

    def __contains__(self, name: str) -> bool:
        return name in self.dataset.attrs

    def _attribute(self, name: str) -> Any:
        if name not in self.dataset.attrs:
            raise self.damaged(f"the attribute {name!r} is missing")
        return self.dataset.attrs[name]

    def check_attributes(self) -> None:
        """Refuse attributes that this library does not write: all of them are texts or numbers."""
        for name, value in self.dataset.attrs.items():
            if not isinstance(name, str) or not isinstance(value, str | numbers.Real):
                raise self.damaged(
                    f"the attribute {shown(name)} is {type_name(value)}, and every attribute of a release is a "
                    "text or a number"
                )
            if isinstance(value, str) and len(value) > _LONGEST:
                raise self.damaged(f"the attribute {shown(name)} is a text of more than {_LONGEST} characters")

    def text(self, name: str) -> str:
        """The attribute of that name, a text."""
        value = self._attribute(name)
        if not isinstance(value, str):
            raise self.damaged(f"the attribute {name!r} is {type_name(value)} and no text")
        return value

    def number(self, name: str) -> float:
        """The attribute of that name, a number, which may be infinite."""
        value = self._attribute(name)
        if not isinstance(value, numbers.Real) or isinstance(value, bool | np.bool_):
            raise self.damaged(f"the attribute {name!r} is {type_name(value)} and no number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isnan(number):
            raise self.damaged(f"the attribute {name!r} is no number")
        return number

    def whole(self, name: str, least: int, most: int) -> int:
        """The attribute of that name, an integer between two others."""
        value = self.number(name)
        if not (least <= value <= most and value == math.floor(value)):
            raise self.damaged(f"the attribute {name!r} is {value:g} and no whole number from {least} to {most}")
        return int(value)

    def json(self, name: str) -> Any:
        """The content of the attribute of that name, which is JSON."""
        return self.parsed(name, self.text(name))

    def parsed(self, name: str, text: str) -> Any:
        """The content of a JSON text that stands under that name."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise self.damaged(f"{name!r} is not the JSON that it should be") from None

    def names(self, name: str) -> tuple[str, ...]:
        """The attribute of that name, a list of texts in JSON."""
        return self.texts(name, self.json(name))

    def texts(self, name: str, texts: Any) -> tuple[str, ...]:
        """The texts, which come from the attribute of that name, or an error if they are no list of texts."""
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self.damaged(f"the attribute {name!r} does not list names")
        return tuple(texts)

    def array(self, name: str) -> Array:
        """The variable of that name, as finite or infinite numbers and never NaN."""
        values = self.any_array(name)
        if np.any(np.isnan(values)):
            raise self.damaged(f"the variable {name!r} holds what is no number")
        return values

    def any_array(self, name: str) -> Array:
        """The variable of that name, where a number may be missing (NaN)."""
        if name not in self.dataset.variables:
            raise self.damaged(f"the variable {name!r} is missing")
        # The data set itself looks through all its labels for each variable that it is asked for.
        variable = self.dataset.variables[name]
        if variable.dtype.kind not in "fiu":
            raise self.damaged(f"the variable {name!r} holds {variable.dtype} and no numbers")
        if not 0 < variable.size <= _MOST_NUMBERS:
            raise self.damaged(f"the variable {name!r} has the shape {shown(variable.shape)}")
        try:
            values: Array = np.asarray(variable.values, dtype=np.float64)
        except (OSError, RuntimeError, ValueError) as error:
            raise self.damaged(f"the variable {name!r} cannot be read") from error
        return values


def refuse_others(tree: Any) -> None:
    """Refuse a tree that was computed from the data themselves."""
    if "confidential" in getattr(tree, "attrs", ()):
        raise ReleaseError(
            "Expected a release from pymc_dirdp.sample, got a tree that is marked as confidential: like those of "
            "posterior() and diagnose(), it was computed from the data themselves, and no guarantee covers it."
        )


def group_at(tree: Any, *names: str) -> Group:
    """The group of a tree at a path of names, or an error if there is none."""
    node = tree
    for name in names:
        children = getattr(node, "children", None)
        if not isinstance(children, Mapping) or name not in children:
            raise ReleaseError(f"Expected a release from pymc_dirdp.sample; it lacks the groups {'/'.join(names)}.")
        node = children[name]
    group = Group("/".join(names), node.to_dataset())
    group.check_attributes()
    return group
