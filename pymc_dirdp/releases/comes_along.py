"""The Deterministics that come along with a release, as its text holds them, and those that do not."""

from dataclasses import dataclass

from pymc_dirdp.checks import one_of
from pymc_dirdp.models.expressions import Expression

__all__ = ["AFTERWARDS", "Deterministic", "LeftOut"]

AFTERWARDS = "Compute it from the release"
"""What a user can do about nearly all of them."""
_PUBLIC = "If that is public, name it in var_names=[{name!r}]"
# Why a Deterministic does not come along, and what the user can do. Releases hold the words on the left.
_REASONS = {
    "not named": ("it is not in var_names", "Name it there"),
    "alone": ("it does not depend on a released variable", "Publish it apart from the release"),
    "random": ("it depends on the variable {about!r}, which is not released", AFTERWARDS),
    "data": ("it depends on the data {about!r}", f"{AFTERWARDS}, or write public numbers as constants"),
    "shared": ("it shares an array with the observations", AFTERWARDS),
    "name": ("its name is that of the draws, or holds a character that not every file can hold", "Rename it"),
    "dim": ("the name of its dim holds a character that not every file can hold", "Rename the dim"),
    "array": ("it holds an array, which could be data", _PUBLIC),
    "function": ("it calls a function of your own, which could hold data", _PUBLIC),
    "list": ("it holds so many numbers or entries that they could be data", _PUBLIC),
    "number": ("it holds another number than 0 and 1, which could come from the number of records", _PUBLIC),
    "formula": ("it has no formula that a release can hold", AFTERWARDS),
    "fails": ("it cannot be computed at this draw, or has another shape there", AFTERWARDS),
}


@dataclass(frozen=True, eq=False)
class Deterministic:
    """A Deterministic that comes along with a release, as a public function of its variables.

    Attributes
    ----------
    name : str
    dims : tuple of (str or None), or None
        As the model declares them.
    expression : Expression
    """

    name: str
    dims: tuple[str | None, ...] | None
    expression: Expression


@dataclass(frozen=True)
class LeftOut:
    """A Deterministic that does not come along, and why. That does not depend on data.

    Attributes
    ----------
    name : str
    reason : str
        In a word.
    about : str
        The name of the variable that the reason is about, if it is about one.
    """

    name: str
    reason: str
    about: str = ""

    def __post_init__(self) -> None:
        one_of(_REASONS, reason=self.reason)

    @property
    def sentences(self) -> tuple[str, str]:
        """The reason, and what the user can do."""
        reason, way_out = _REASONS[self.reason]
        return reason.format(about=self.about), way_out.format(name=self.name)

    def __str__(self) -> str:
        return ". ".join(self.sentences)
