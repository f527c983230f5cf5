"""Numbers that must not be published, and how they are marked."""

import operator
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
import xarray as xr

# Numbers that were computed from the data, which no guarantee covers.


DO_NOT_PUBLISH = "do not publish: computed from the data themselves, so the guarantee does not cover it"


def _marked(operation: Callable[..., Any]) -> tuple[Callable[["Confidential", Any], "Confidential"], ...]:
    """The operation with a marked number on the left, and on the right; the results are marked."""

    def on_the_left(self: "Confidential", other: Any) -> "Confidential":
        number = _number(other)
        return NotImplemented if number is None else Confidential(operation(self.value, number))

    def on_the_right(self: "Confidential", other: Any) -> "Confidential":
        number = _number(other)
        return NotImplemented if number is None else Confidential(operation(number, self.value))

    return on_the_left, on_the_right


def _compared(operation: Callable[..., bool]) -> Callable[["Confidential", Any], bool]:
    """A comparison of numbers. Its answer is not marked."""

    def compare(self: "Confidential", other: Any) -> bool:
        number = _number(other)
        return NotImplemented if number is None else operation(self.value, number)

    return compare


def _number(other: Any) -> float | None:
    if isinstance(other, Confidential):
        return other.value
    return float(other) if isinstance(other, int | float | np.integer | np.floating) else None


@final
class Confidential:
    """A number that says of itself that it must not be published.

    It is no `float`, so that nothing loses the mark by accident: a result of arithmetic with it is marked, a text made
    of it says so, an array of NumPy holds it as an object, and `json.dumps`, `math.sqrt`, `float` and `"%.3f" %` refuse
    it.

    Parameters
    ----------
    value : float
        The plain number, which can be read again as `value`.

    Examples
    --------
    >>> error = Confidential(0.25)
    >>> error
    0.25 (confidential: computed from the data)
    >>> f"{2 * error:.3f} nats"
    '0.500 (confidential) nats'
    >>> error.value
    0.25
    """

    __slots__ = ("_value",)

    # NumPy leaves arithmetic to this class, and does not make an array of it.
    __array_ufunc__ = None

    _value: float

    def __init__(self, value: "float | np.floating[Any] | Confidential") -> None:
        object.__setattr__(self, "_value", value.value if isinstance(value, Confidential) else float(value))

    @property
    def value(self) -> float:
        """The plain number, without the mark."""
        return self._value

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"A Confidential cannot be changed, so {name!r} cannot be set.")

    def __reduce__(self) -> tuple[Any, ...]:
        return Confidential, (self.value,)

    def __repr__(self) -> str:
        return f"{self.value!r} (confidential: computed from the data)"

    def __format__(self, spec: str) -> str:
        return f"{self.value:{spec}} (confidential)" if spec else repr(self)

    def __float__(self) -> float:
        raise TypeError("A confidential number loses its mark as a float. If you want that, take its .value.")

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __neg__(self) -> "Confidential":
        return Confidential(-self.value)

    def __abs__(self) -> "Confidential":
        return Confidential(abs(self.value))

    def __round__(self, digits: int = 0) -> "Confidential":
        return Confidential(round(self.value, digits))

    __add__, __radd__ = _marked(operator.add)
    __sub__, __rsub__ = _marked(operator.sub)
    __mul__, __rmul__ = _marked(operator.mul)
    __truediv__, __rtruediv__ = _marked(operator.truediv)
    __pow__, __rpow__ = _marked(operator.pow)
    __lt__, __le__ = _compared(operator.lt), _compared(operator.le)
    __gt__, __ge__ = _compared(operator.gt), _compared(operator.ge)
    __eq__, __ne__ = _compared(operator.eq), _compared(operator.ne)


# Trees whose every group and variable says that they are confidential.


def marked(groups: Mapping[str, xr.Dataset]) -> xr.DataTree:
    """The groups by path as a tree with the mark on every group and variable, so that what is taken out keeps it."""
    tree = xr.DataTree.from_dict({path: _with_marks(dataset) for path, dataset in groups.items()}, name="confidential")
    for node in tree.subtree:
        # Attributes are texts or numbers, so that a file returns what was written.
        others: dict[Any, Any] = {
            key: value for key, value in node.attrs.items() if isinstance(value, str | int | float)
        }
        node.attrs = {"confidential": DO_NOT_PUBLISH} | others
    return tree


def _with_marks(dataset: xr.Dataset) -> xr.Dataset:
    own = dataset.copy()
    for values in own.data_vars.values():
        values.attrs = {**values.attrs, "confidential": DO_NOT_PUBLISH}
    return own
