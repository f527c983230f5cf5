"""Compiled code for large tables, also where no directory can be written to."""

from collections.abc import Callable
from typing import Any

__all__ = ["compiled"]


def compiled(signature: str, function: Callable[..., Any], *helpers: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled by Numba, and kept on disk for the next process if there is a place for it.

    Parameters
    ----------
    signature : str
        The types of its arguments.
    function : callable
        Plain Python; its own code is left as it is.
    *helpers : callable
        Functions of the same file that it calls. The copy on disk is renewed when that file changes, no other.
    """
    # Here, because it takes a second to import.
    from numba import njit
    from numba.extending import register_jitable

    for helper in helpers:
        register_jitable(helper)
    try:
        cached: Callable[..., Any] = njit(signature, cache=True)(function)
        return cached
    except RuntimeError as error:
        # Neither the package's directory, nor the user's cache, nor NUMBA_CACHE_DIR can be written to.
        if "no locator available" not in str(error):
            raise
        uncached: Callable[..., Any] = njit(signature)(function)
        return uncached
