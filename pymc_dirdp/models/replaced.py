"""A model with other variables in the place of some of its own."""

from collections.abc import Mapping

import pymc as pm

from pymc_dirdp.models.graph import Node

__all__ = ["replaced"]


def replaced(model: pm.Model, new: Mapping[Node, Node], values: Mapping[Node, Node]) -> pm.Model:
    """A copy of the model with new variables for those that are keys of `new`, and new values for those of `values`.

    Names, dims and labels are those of the model. Variables that are no keys are shared with it, and so their formulas
    must not use one that is.
    """
    copy = pm.Model(name=model.name)
    for dim, length in model.dim_lengths.items():
        copy.add_coord(dim, model.coords.get(dim), length=length)
    for name, variable in model.named_vars.items():
        instead = new.get(variable, variable)
        instead.name = name
        copy.named_vars[name] = instead
    copy.named_vars_to_dims.update({name: dims for name, dims in model.named_vars_to_dims.items() if dims})
    for ours, theirs in (
        (copy.free_RVs, model.free_RVs),
        (copy.observed_RVs, model.observed_RVs),
        (copy.deterministics, model.deterministics),
        (copy.potentials, model.potentials),
        (copy.data_vars, model.data_vars),
    ):
        ours.extend(new.get(variable, variable) for variable in theirs)
    for rv in model.basic_RVs:
        instead, value = new.get(rv, rv), values.get(rv, model.rvs_to_values[rv])
        copy.rvs_to_values[instead] = value
        copy.values_to_rvs[value] = instead
        copy.rvs_to_transforms[instead] = model.rvs_to_transforms[rv]
    return copy
