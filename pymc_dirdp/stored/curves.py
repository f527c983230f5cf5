"""Whether the curves that a release holds follow from its numbers."""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.stored.release import CURVES, Stored, read
from pymc_dirdp.stored.untrusted import computable

__all__ = ["curve_at", "disagreements", "trusted"]

# Another version of SciPy rounds differently. This tolerance is only for the comparison of two descriptions: promises
# are decided on the recomputed curve, without a tolerance.
_ROUNDING = 1e-7
# The bound is flat around its best order, so rounding moves that order more than it moves the bound.
_FLAT = 1e-2
# A search over counts ends within a few per cent of the largest delta that it saw, at which epsilon differs by less.
_SEARCHED = {"delta": 0.3, "epsilon_at": 0.02}


def disagreements(stored: Stored) -> tuple[str, ...]:
    """The names of the stored curves, and of the pure epsilon, that are not those of the numbers.

    Raises
    ------
    ReleaseError
        If no curve can be computed from the numbers.
    """
    wrong = tuple(name for name in CURVES if not _agrees(stored, name))
    stated = stored.privacy.number("pure_epsilon") if "pure_epsilon" in stored.privacy else math.inf
    with computable():
        agrees = math.isclose(stated, stored.pure_epsilon, rel_tol=_ROUNDING)
    return wrong if agrees else (*wrong, "pure_epsilon")


def trusted(release: object) -> Stored:
    """The facts of a release whose curves and adjacency follow from its numbers; an error for any other release."""
    stored = read(release)
    if any(table.group.text("adjacency") != stored.adjacency for table in stored.tables.values()):
        raise ReleaseError("The release contradicts itself: its promise and its tables are for different adjacencies.")
    if wrong := disagreements(stored):
        raise ReleaseError(
            f"The release contradicts itself: {', '.join(wrong)} in the group 'privacy' do not follow from r, alpha, "
            "the noise, the groups and the draws. print(verify(release)) says what does."
        )
    return stored


def _agrees(stored: Stored, name: str) -> bool:
    arguments, values = stored.privacy.array(CURVES[name]), stored.privacy.array(name)
    with computable():
        recomputed = np.array(curve_at(stored.curves, name, arguments))
        close = np.isclose(values, recomputed, rtol=_FLAT if name == "best_order_at" else _ROUNDING, atol=0.0)
        if np.all(close) or name not in _SEARCHED or not stored.curves.searches_counts:
            return bool(np.all(close))
        return _proved(stored.curves, name, *(each[~close].tolist() for each in (arguments, values, recomputed)))


def _proved(
    curves: PrivacyCurves, name: str, arguments: list[float], values: list[float], recomputed: list[float]
) -> bool:
    """Whether values hold that a search ended with, and none is further above what was found here than it may be."""
    for argument, value, found in zip(arguments, values, recomputed, strict=True):
        epsilon, delta = (argument, value) if name == "delta" else (value, argument)
        # There is no tolerance towards less loss: it has to be proved.
        if not value <= found * (1 + _SEARCHED[name]) or not epsilon >= 0 or not curves.proves(epsilon, delta):
            return False
    return True


def curve_at(curves: PrivacyCurves, name: str, arguments: Array) -> tuple[float, ...]:
    """The values of a curve by the name that it has in a release.

    They are kept: whoever draws, reports and concludes asks for the same ones, and a search over counts takes long.
    """
    return _computed(_Keyed(curves.curve_key, curves), name, tuple(arguments.tolist()))


@dataclass(frozen=True)
class _Keyed:
    """Curves that are told apart by their key alone."""

    key: Hashable
    curves: PrivacyCurves = field(compare=False)


@lru_cache(maxsize=64)
def _computed(keyed: _Keyed, name: str, arguments: tuple[float, ...]) -> tuple[float, ...]:
    # Many points together may take as long as one.
    curves, points = keyed.curves, np.array(arguments)
    match name:
        case "renyi_divergence":
            values = curves.renyi(points)
        case "delta":
            values = curves.delta(points)
        case "best_order_at":
            values = curves.best_order(points)
        case _:
            values = curves.epsilon(points)
    return tuple(np.asarray(values).tolist())
