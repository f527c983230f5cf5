"""Differentially private posterior sampling for PyMC models with Dirichlet or Beta priors.

Write the model as for `pm.sample`, and call `sample(guarantee)` for one private posterior draw. `__init__.pyi` lists
the public names. They are imported on first use, because SciPy alone takes a third of a second, and much of the package
does not need PyMC.
"""

from typing import Any

from pymc_dirdp.lazy import attach

_public, __dir__, __all__ = attach(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pymc-dirdp")
    return _public(name)
