"""Arrays of a tree that are computed on access, in the same way as xarray reads those of a file."""

from collections.abc import Callable, Hashable
from typing import Any, final, override

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.core.indexing import LazilyIndexedArray, MemoryCachedArray, NumpyIndexingAdapter


@final
class Deferred(NumpyIndexingAdapter):
    """An array that is computed once, on first access.

    Within xarray's `MemoryCachedArray` it is an array in memory, whose values `print` shows. Within its
    `LazilyIndexedArray` `print` shows only the shape. Pickles contain the computed values.

    Parameters
    ----------
    compute : callable
        A function that returns the values.
    shape : tuple of int
    dtype : numpy.dtype
    source : hashable, optional
        The source of the array, to compare.
    """

    __slots__ = ("_array", "_compute", "_dtype", "_shape", "source")

    def __init__(
        self,
        compute: Callable[[], NDArray[Any]],
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        source: Hashable = None,
    ) -> None:
        self._compute, self._shape, self._dtype, self.source = compute, shape, dtype, source
        self._array: NDArray[Any] | None = None

    @property
    @override
    def array(self) -> NDArray[Any]:  # type: ignore[override]  # It is an attribute there.
        """The computed array, as a copy."""
        if self._array is None:
            self._array = np.array(self._compute(), dtype=self._dtype).reshape(self._shape)
        return self._array

    @property
    def is_computed(self) -> bool:
        """Whether it was accessed, so it may have been changed."""
        return self._array is not None

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    @override
    def dtype(self) -> Any:
        return self._dtype

    def __deepcopy__(self, memo: dict[int, Any]) -> NumpyIndexingAdapter:
        if self.is_computed:
            return NumpyIndexingAdapter(self.array.copy())
        return Deferred(self._compute, self._shape, self._dtype, self.source)

    def __reduce__(self) -> tuple[Any, ...]:
        return NumpyIndexingAdapter, (self.array,)


def is_untouched(variable: xr.Variable, source: Hashable) -> bool:
    """Whether a variable follows from a source and was not accessed, so it is unchanged."""
    data = variable._data
    array = data.array if isinstance(data, MemoryCachedArray | LazilyIndexedArray) else None
    return isinstance(array, Deferred) and not array.is_computed and array.source == source
