"""Which Deterministics may come along with a release, and their values at the draw."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors

from pymc_dirdp.models.graph import PLAIN, is_random

__all__ = ["evaluated", "of_parameters"]


def of_parameters(model: pm.Model, released: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the Deterministics that depend on released variables and constants alone, and of the others.

    A Deterministic that touches an observation or a `pm.Data` could carry the data out of the model, also through a
    part of the observations' own graph, so it is left out.
    """
    observations = {
        variable
        for observed in model.observed_RVs
        for variable in ancestors([model.rvs_to_values[observed]])
        # A constant number such as an axis or a power is nobody's data.
        if not (isinstance(variable, Constant) and np.ndim(variable.data) == 0)
    }
    parameters = [model[name] for name in released if name in model.named_vars]
    kept: list[str] = []
    left_out: list[str] = []
    for deterministic in model.deterministics:
        safe = _is_function_of(parameters, deterministic, observations)
        (kept if safe else left_out).append(deterministic.name)
    return tuple(kept), tuple(left_out)


def _is_function_of(
    parameters: list[Variable[Any, Any]], deterministic: Variable[Any, Any], observations: set[Variable[Any, Any]]
) -> bool:
    above = set(ancestors([deterministic], blockers=parameters))
    others = above - set(parameters)
    return above != others and not any(
        is_random(variable) or isinstance(variable, SharedVariable) or variable in observations for variable in others
    )


def evaluated(
    model: pm.Model, names: tuple[str, ...], draws: dict[str, NDArray[np.float64]]
) -> dict[str, NDArray[np.float64]]:
    """Values of these Deterministics at each draw: arrays of shape `(draws, ...)`.

    Compiled without optimisation for Python: it runs once a draw, and a compiler would take seconds.
    """
    if not names:
        return {}
    inputs = [model[name] for name in draws if name in model.named_vars]
    outputs = [model[name] for name in names]
    function = pytensor.function(inputs, outputs, mode=PLAIN, on_unused_input="ignore")  # type: ignore[attr-defined]
    arrays = [draws[variable.name] for variable in inputs]
    rows = [function(*values) for values in zip(*arrays, strict=True)]
    return {name: np.stack([np.asarray(row[i]) for row in rows]) for i, name in enumerate(names)}
