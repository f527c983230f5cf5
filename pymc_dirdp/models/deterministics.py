"""Which Deterministics may come along with a release, and their values at the draw."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors

from pymc_dirdp.models.graph import PLAIN, is_random, stored_shape
from pymc_dirdp.models.likelihoods import kind_of, probability_of
from pymc_dirdp.models.parents import indexing, stored_parent

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
    lengths = _lengths_of_records(model)
    kept: list[str] = []
    left_out: list[str] = []
    for deterministic in model.deterministics:
        safe = _is_function_of(parameters, deterministic, observations, lengths)
        (kept if safe else left_out).append(deterministic.name)
    return tuple(kept), tuple(left_out)


def _is_function_of(
    parameters: list[Variable[Any, Any]],
    deterministic: Variable[Any, Any],
    observations: set[Variable[Any, Any]],
    lengths: set[tuple[int, ...]],
) -> bool:
    above = set(ancestors([deterministic], blockers=parameters))
    others = above - set(parameters)
    return above != others and not any(
        is_random(variable)
        or isinstance(variable, SharedVariable)
        or variable in observations
        # `theta[parents]` is a number for each record: it says which row each of them is in.
        or (isinstance(variable, Constant) and np.shape(variable.data) in lengths)
        for variable in others
    )


def _lengths_of_records(model: pm.Model) -> set[tuple[int, ...]]:
    """Shapes of the arrays that index a conditional table: one entry for each record.

    An array of codes is another constant each time it is written, so it is known by its shape, which is public.
    """
    shapes: set[tuple[int, ...]] = set()
    for observed in model.observed_RVs:
        kind = kind_of(observed)
        found = None if kind.probability is None else indexing(probability_of(observed, kind))
        for index in found.indices if found is not None else ():
            stored = stored_parent(index, model)
            if stored is not None:
                shapes.add(stored_shape(stored))
    return shapes


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
