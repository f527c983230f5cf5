"""Compiled code for large tables, also where no directory can be written to."""

from collections.abc import Callable
from typing import Any

__all__ = ["compiled"]


def compiled(signature: str, function: Callable[..., Any], *helpers: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled by Numba, and kept on disk for the next process if a folder can be written to.

    Parameters
    ----------
    signature : str
        The types of its arguments.
    function : callable
        Plain Python; its own code is left as it is.
    *helpers : callable
        Functions of the same file that it calls. The copy on disk is renewed only when that file changes.
    """
    from numba import njit  # Here, because it takes a second to import.
    from numba.extending import register_jitable

    for helper in helpers:
        register_jitable(helper)
    code: Callable[..., Any]
    try:
        code = njit(signature, cache=True)(function)
    except RuntimeError as error:
        # Neither the package's directory, nor the user's cache, nor NUMBA_CACHE_DIR can be written to.
        if "no locator available" not in str(error):
            raise
        code = njit(signature)(function)
    return code
