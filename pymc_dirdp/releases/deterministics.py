"""The Deterministics of a model in addition to the draws of a release. They are not saved with it."""

import json
from collections.abc import Sequence

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import Subtensor

from pymc_dirdp.models.graph import Node, plain_mode
from pymc_dirdp.models.table import is_path_name, is_variable_name
from pymc_dirdp.models.without_data import inner_variables, public_deterministics
from pymc_dirdp.releases.view import LEFT_OUT


def with_deterministics(tree: xr.DataTree, model: pm.Model, *, size_is_public: bool) -> xr.DataTree:
    """Add the Deterministics of a model that follow from the draws, by `pm.compute_deterministics`.

    Deterministics that depend on an observed variable, on data or on an array are left out, and the group `posterior`
    lists them. Those that cannot be computed are left out, too, so that their errors do not lose a paid release.

    A graph does not show whether the numbers in a formula are data. So a formula with many more numbers than its tables
    have cells is left out. If the number of records is private, any number except -1, 0 and 1 could reveal it.

    Parameters
    ----------
    tree : xarray.DataTree
        The release. Its group `posterior` is changed in place.
    model : pymc.Model
    size_is_public : bool
        Whether the number of records is public.

    Returns
    -------
    tree : xarray.DataTree
        The same tree.
    """
    if not model.deterministics:
        return tree
    group = tree["posterior"]
    draws = group.to_dataset()
    share_variables = [variable for variable in model.free_RVs if variable.name in draws]
    record_dims = {*_dims(model.observed_RVs, model)} - {*_dims(share_variables, model)}
    names = [
        str(variable.name)
        for variable in public_deterministics(model, share_variables, record_dims)
        if is_variable_name(str(variable.name)) and all(map(is_path_name, _dims([variable], model)))
        if not _could_hold_data(variable, share_variables, draws, size_is_public=size_is_public)
    ]
    complete = _compute(draws, names, model)
    for name in names if complete is None else ():
        extended = _compute(draws, [name], model)
        draws = draws if extended is None else extended
    draws = draws if complete is None else complete
    if left_out := [str(variable.name) for variable in model.deterministics if variable.name not in draws.data_vars]:
        draws = draws.assign_attrs({LEFT_OUT: json.dumps(left_out)})
    group.dataset = draws
    return tree


def _could_hold_data(
    formula: Node, share_variables: Sequence[Node], draws: xr.Dataset, *, size_is_public: bool
) -> bool:
    """Whether the numbers and entries of a formula could be individual records, or their private number."""
    upstream = list(ancestors([formula], blockers=list(share_variables)))
    cells = sum(
        draws[str(variable.name)].isel(chain=0, draw=0).size for variable in share_variables if variable in upstream
    )
    steps = list(
        dict.fromkeys(node.owner for node in [*upstream, *inner_variables(upstream)] if node.owner is not None)
    )
    entries = sum(isinstance(step.op, Subtensor) for step in steps)
    numbers = [
        np.asarray(value.data).item()
        for step in steps
        if not isinstance(step.op, Subtensor)
        for value in step.inputs
        if isinstance(value, Constant) and np.size(value.data) == 1 and np.asarray(value.data).dtype.kind in "iufc"
    ]
    if not size_is_public and any(number not in (-1, 0, 1) for number in numbers):
        return True
    widest = max((len(step.inputs) for step in steps), default=0)
    # Maximum number of constants and entries in a formula: 12, or 3 for each cell. A list of records is longer.
    return max(entries + len(numbers), widest) > max(12, 3 * cells)


def _dims(variables: Sequence[Node], model: pm.Model) -> list[str]:
    return [
        dim
        for variable in variables
        for dim in model.named_vars_to_dims.get(str(variable.name)) or ()
        if dim is not None
    ]


def _compute(draws: xr.Dataset, names: list[str], model: pm.Model) -> xr.Dataset | None:
    """The draws with these Deterministics; None if one of them fails or its shape does not match."""
    try:
        with plain_mode() as mode:
            values = pm.compute_deterministics(
                draws, var_names=names, model=model, progressbar=False, compile_kwargs={"mode": mode}
            )
        # The labels of the draws are those of the release.
        return draws.merge(values.drop_vars([name for name in values.coords if name in draws.coords]), join="exact")
    except Exception:  # A formula of the user may raise any error.
        return None
