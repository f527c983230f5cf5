"""Numbers that were computed from the data: no guarantee covers them."""

from typing import final

__all__ = ["Confidential"]


@final
class Confidential(float):
    """A number that says of itself that it must not be published. A calculation with it gives a plain float.

    Examples
    --------
    >>> Confidential(0.25)
    0.25 (confidential: computed from the data)
    """

    def __repr__(self) -> str:
        return f"{float(self)!r} (confidential: computed from the data)"

    def __str__(self) -> str:
        return repr(self)
