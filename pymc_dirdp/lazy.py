"""Lazy import of the names of a package."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The functions `__getattr__` and `__dir__` and the list `__all__` of a package with lazy imports.

    The stub beside the package's `__init__.py` lists the public names once, as imports. Type checkers read the stub,
    and this function takes the module of each name from it.

    Parameters
    ----------
    package : str
        The `__name__` of the package.
    file : str
        The `__file__` of the package.

    Returns
    -------
    functions and names : tuple
        Assign them by `__getattr__, __dir__, __all__ = attach(__name__, __file__)`.

    Examples
    --------
    >>> from pymc_dirdp import plots
    >>> "plot_privacy" in dir(plots)
    True
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    homes = {name.name: line.module for line in stub.body if isinstance(line, ast.ImportFrom) for name in line.names}

    def look_up(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home == package:
            return import_module(f"{package}.{name}")
        # Like `from home import name`, which also imports modules.
        value = getattr(__import__(home, fromlist=[name]), name)
        setattr(sys.modules[package], name, value)  # The next access does not call this function.
        return value

    return look_up, lambda: sorted(homes), sorted(homes)
