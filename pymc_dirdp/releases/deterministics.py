"""The Deterministics of a model beside the draws of a release. They are no part of its text."""

import json
from collections.abc import Sequence

import pymc as pm
import xarray as xr

from pymc_dirdp.models.graph import Node, compiling_plainly
from pymc_dirdp.models.table import is_path_name, is_variable_name
from pymc_dirdp.models.without_data import public_deterministics
from pymc_dirdp.releases.view import LEFT_OUT


def with_deterministics(tree: xr.DataTree, model: pm.Model) -> xr.DataTree:
    """Put the Deterministics of a model that follow from draws beside these, by `pm.compute_deterministics`.

    What depends on an observed variable, on data or on an array is left out, which the group `posterior` says. So is
    what cannot be computed: a release that was paid for is not lost for it.

    Parameters
    ----------
    tree : xarray.DataTree
        Its group `posterior` is changed.
    model : pymc.Model

    Returns
    -------
    tree : xarray.DataTree
        The same one.
    """
    if not model.deterministics:
        return tree
    group = tree["posterior"]
    draws = group.to_dataset()
    drawn = [variable for variable in model.free_RVs if variable.name in draws]
    of_records = {*_dims(model.observed_RVs, model)} - {*_dims(drawn, model)}
    names = [
        str(one.name)
        for one in public_deterministics(model, drawn, of_records)
        if is_variable_name(str(one.name)) and all(map(is_path_name, _dims([one], model)))
    ]
    computed = _computed(draws, names, model)
    for name in names if computed is None else ():
        longer = _computed(draws, [name], model)
        draws = draws if longer is None else longer
    draws = draws if computed is None else computed
    if left_out := [str(one.name) for one in model.deterministics if one.name not in draws.data_vars]:
        draws = draws.assign_attrs({LEFT_OUT: json.dumps(left_out)})
    group.dataset = draws
    return tree


def _dims(variables: Sequence[Node], model: pm.Model) -> list[str]:
    return [dim for one in variables for dim in model.named_vars_to_dims.get(str(one.name)) or () if dim is not None]


def _computed(draws: xr.Dataset, names: list[str], model: pm.Model) -> xr.Dataset | None:
    """Draws and these Deterministics; None if one of them fails, or has a shape that does not fit."""
    try:
        with compiling_plainly() as mode:
            values = pm.compute_deterministics(
                draws, var_names=names, model=model, progressbar=False, compile_kwargs={"mode": mode}
            )
        # The labels of the draws are those of the release.
        return draws.merge(values.drop_vars([name for name in values.coords if name in draws.coords]), join="exact")
    except Exception:  # The user's own formula may end in any error.
        return None
