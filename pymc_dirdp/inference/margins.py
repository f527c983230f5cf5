"""Families of a network and what was measured of them."""

from dataclasses import dataclass

from pymc_dirdp.arrays import Array

__all__ = ["Family", "Measurement"]


@dataclass(frozen=True, eq=False)
class Family:
    """The table of a variable given its parents.

    Attributes
    ----------
    name : str
    axes : tuple of str
        The names of the axes: the parents, and the variable itself last.
    shape : tuple of int
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Measurement:
    """Noisy counts of a margin.

    Attributes
    ----------
    axes : tuple of str
        The names of the axes.
    noisy : array
    variance : float
        That of the noise in one cell.
    """

    axes: tuple[str, ...]
    noisy: Array
    variance: float
