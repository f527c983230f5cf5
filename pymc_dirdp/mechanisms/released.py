"""What one call of a mechanism publishes."""

from dataclasses import dataclass
from typing import final

from pymc_dirdp.arrays import Array

__all__ = ["Released"]


@final
@dataclass(frozen=True)
class Released:
    """What one call of :meth:`TableMechanism.draw` publishes.

    Attributes
    ----------
    values : array, shape ``(draws, *shape)``, or None
        Draws that are themselves the release; None if draws follow from what is published.
    published : dict of str to array
        Tables that are published, by name: one that decides the draws, or one beside each of them, `(draws, *shape)`.
    """

    values: Array | None
    published: dict[str, Array]
