"""Operations of PyTensor that are computed in Python, within graphs that Numba compiles."""

import warnings
from collections.abc import Callable
from typing import Any

from pytensor.link.numba.dispatch.basic import generate_fallback_impl

__all__ = ["as_python"]


def as_python(op: Any, node: Any = None, **options: Any) -> Callable[..., Any]:
    """Numba calls Python. It says so at each compilation, and there is nothing that anybody should do about it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Numba will use object mode", UserWarning)
        found: Callable[..., Any] = generate_fallback_impl(op, node=node, **options)
    return found
