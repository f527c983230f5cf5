"""Checks of public arguments. Each takes the argument by name, so that the error can name it.

>>> positive(r=-1)
Traceback (most recent call last):
    ...
pymc_dirdp.errors.ArgumentError: Expected r > 0 and finite, got r=-1.
"""

import difflib
import math
import numbers
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.errors import ArgumentError

__all__ = [
    "at_least",
    "integer",
    "numbers_or_none",
    "one_of",
    "open_unit_interval",
    "positive",
    "positive_array",
    "within",
]


def _real(wanted: str, named: dict[str, object]) -> tuple[str, float]:
    ((name, value),) = named.items()
    is_scalar = isinstance(value, numbers.Real) or (isinstance(value, np.ndarray) and value.ndim == 0)
    if not is_scalar or isinstance(value, (bool, np.bool_)):
        # The type, not the value: somebody may pass data here by mistake.
        raise ArgumentError(f"Expected {name} {wanted}, got a {type(value).__name__}.")
    try:
        return name, float(value)  # type: ignore[arg-type]
    except OverflowError:
        # A whole number or a fraction beyond the largest double.
        return name, math.inf if value > 0 else -math.inf  # type: ignore[operator]


def positive(**named: object) -> float:
    """A finite real number above 0."""
    name, value = _real("> 0 and finite", named)
    if not (math.isfinite(value) and value > 0):
        raise ArgumentError(f"Expected {name} > 0 and finite, got {name}={value:g}.")
    return value


def at_least(bound: float, *, finite: bool = True, **named: object) -> float:
    """A real number that is not below `bound`."""
    wanted = f">= {bound:g}" + (" and finite" if finite else "")
    name, value = _real(wanted, named)
    if not value >= bound or (finite and not math.isfinite(value)):
        raise ArgumentError(f"Expected {name} {wanted}, got {name}={value:g}.")
    return value


def open_unit_interval(**named: object) -> float:
    """A real number strictly between 0 and 1."""
    name, value = _real("in (0, 1)", named)
    if not 0 < value < 1:
        raise ArgumentError(f"Expected {name} in (0, 1), got {name}={value:g}.")
    return value


def within(least: float, most: float, **named: ArrayLike) -> None:
    """Refuse a positive number, or an array of them, that has entries below or above the bounds.

    Privacy curves are computed in doubles: beyond such bounds products of parameters are no doubles any more.
    """
    ((name, value),) = named.items()
    if not np.all((np.asarray(value) >= least) & (np.asarray(value) <= most)):
        raise ArgumentError(
            f"Expected {name} between {least:g} and {most:g}, where its privacy loss can be computed in doubles. "
            "Rescale it."
        )


def integer(bound: int, **named: object) -> int:
    """A whole number that is not below `bound`."""
    name, value = _real(f"to be a whole number >= {bound}", named)
    if not (value >= bound and math.isfinite(value) and value == math.floor(value)):
        raise ArgumentError(f"Expected {name} to be a whole number >= {bound}, got {name}={value:g}.")
    return int(named[name])  # type: ignore[call-overload,no-any-return]


def one_of(allowed: Iterable[str], **named: object) -> str:
    """One of a few names; the error suggests the nearest one."""
    ((name, value),) = named.items()
    choices = list(allowed)
    if isinstance(value, str) and value in choices:
        return value
    if not isinstance(value, str):
        # The type, not the value, as above.
        value = f"a {type(value).__name__}"
        raise ArgumentError(f"Expected {name} to be one of {', '.join(map(repr, choices))}, got {value}.")
    near = difflib.get_close_matches(str(value).lower(), choices, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(repr(choice) for choice in choices)
    raise ArgumentError(f"Unknown {name} {value!r}; expected one of {listed}.{hint}")


def numbers_or_none(value: ArrayLike) -> NDArray[np.float64] | None:
    """The value as an array of doubles, or None.

    NumPy's own error repeats the value, and Python keeps it as the context of an error that is raised while it is
    handled. So it ends here.
    """
    try:
        return np.asarray(value, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        return None


def positive_array(**named: ArrayLike) -> NDArray[np.float64]:
    """A read-only copy of an array of finite positive numbers with at least two in its last axis."""
    ((name, value),) = named.items()
    found = numbers_or_none(value)
    if found is None:
        raise ArgumentError(f"Expected {name} to be an array of numbers, got a {type(value).__name__}.")
    array = found.copy()
    if array.ndim == 0 or array.shape[-1] < 2:
        raise ArgumentError(
            f"Expected {name} to have at least two categories in its last axis, got shape {array.shape}. "
            "With one category there is nothing to estimate; write a Beta prior as the pair [alpha, beta]."
        )
    if array.size == 0:
        raise ArgumentError(f"Expected {name} to hold at least one row, got shape {array.shape}.")
    if not np.all(np.isfinite(array) & (array > 0)):
        raise ArgumentError(f"Expected every entry of {name} to be > 0 and finite.")
    array.flags.writeable = False
    return array
