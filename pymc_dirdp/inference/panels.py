"""A smooth function that takes long to compute, as polynomials on panels that are made where they are needed."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Panels"]

Array = NDArray[np.float64]

_POINTS = 16
# The last coefficients are as small as that, or as the rounding of the values.
_PRECISE, _ROUNDING = 1e-10, 1e-14
_NODES = np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
# The values at the nodes times this matrix are the coefficients of Chebyshev polynomials.
_TRANSFORM = np.cos(np.outer(np.arange(_POINTS), np.arccos(_NODES))) * 2 / _POINTS
_TRANSFORM[0] /= 2


class Panels:
    """A function that is interpolated by Chebyshev polynomials of degree 15 on panels.

    A panel is halved until the polynomial's coefficients have fallen off, but not below a width at which it is no
    effort to take the function itself.

    Parameters
    ----------
    function : callable
        It takes points of one panel, one after the other and falling, and returns their values.
    width : float
        Of the widest panels, which start at multiples of it.
    least_width : float
        The function is taken itself where narrower panels would be needed.

    Examples
    --------
    >>> calls = []
    >>> sine = Panels(lambda x: (calls.append(x), np.sin(x))[1], width=1.0, least_width=0.01)
    >>> bool(np.allclose([sine(x) for x in np.linspace(0, 0.99, 500)], np.sin(np.linspace(0, 0.99, 500)), atol=1e-11))
    True
    >>> sum(map(len, calls))
    16
    """

    def __init__(self, function: Callable[[Array], Array], *, width: float, least_width: float) -> None:
        self._function, self._width, self._least_width = function, width, least_width
        # By start and width; None where a panel is halved.
        self._coefficients: dict[tuple[float, float], Array | None] = {}

    def __call__(self, x: float) -> float:
        """The value at one point."""
        width = self._width
        start = width * math.floor(x / width)
        while width >= self._least_width:
            if (start, width) not in self._coefficients:
                self._coefficients[start, width] = self._fitted(start, width)
            found = self._coefficients[start, width]
            if found is not None:
                return float(np.polynomial.chebyshev.chebval(2 * (x - start) / width - 1, found))
            width /= 2
            start += width * (x >= start + width)
        return float(self._function(np.array([x]))[0])

    def _fitted(self, start: float, width: float) -> Array | None:
        values = self._function(start + width * (_NODES + 1) / 2)
        coefficients: Array = _TRANSFORM @ values
        allowed = max(_PRECISE, _ROUNDING * float(np.abs(values).max()))
        return coefficients if np.abs(coefficients[-3:]).max() <= allowed else None
