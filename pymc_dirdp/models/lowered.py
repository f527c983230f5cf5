"""Models of `pymc.dims` as ordinary models: each variable with its dims becomes one with axes in the same order."""

from collections.abc import Sequence
from typing import Any

import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.dims.distributions import transforms
from pytensor.compile.mode import optdb
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.xtensor.basic import TensorFromXTensor
from pytensor.xtensor.type import XTensorType

from pymc_dirdp.models.graph import Node
from pymc_dirdp.models.replaced import replaced

__all__ = ["lowered"]


def lowered(model: pm.Model) -> pm.Model:
    """The same model without variables of `pymc.dims`; the model itself if it has none.

    Names, dims, labels, data and observations are those of the model. PyTensor's own rewrites do the work, which every
    function of such a model goes through before it is compiled.
    """
    named = list(model.named_vars.values())
    if not any(isinstance(variable.type, XTensorType) for variable in named):
        return model
    values = [value for rv in model.basic_RVs if (value := model.rvs_to_values.get(rv)) is not None]
    new = dict(zip([*named, *values], _without_dims([*named, *values]), strict=True))
    # A Deterministic that is another variable as it is needs a name of its own.
    new |= {variable: new[variable].copy() for variable in model.deterministics}
    copy = replaced(model, new, {rv: new[value] for rv, value in model.rvs_to_values.items()})
    copy.rvs_to_transforms.update({rv: _ordinary(transform) for rv, transform in copy.rvs_to_transforms.items()})
    return copy


def _without_dims(variables: Sequence[Node]) -> list[Node]:
    """The same variables, computed by operations on axes."""
    tensors: list[Any] = clone_replace(list(variables))
    tensors = [one.values if isinstance(one.type, XTensorType) else one for one in tensors]
    graph = FunctionGraph(outputs=tensors, clone=False)
    # A Deterministic is a copy, which is no operation with dims.
    copies = [node for node in graph.toposort() if isinstance(node.op, ViewOp)]
    graph.replace_all([(node.outputs[0], node.inputs[0]) for node in copies])
    optdb.query("+lower_xtensor").rewrite(graph)
    leaves = [
        one
        for one in ancestors(graph.outputs)
        if one.owner is not None and isinstance(one.owner.op, TensorFromXTensor) and one.owner.inputs[0].owner is None
    ]
    graph.replace_all([(leaf, _leaf(leaf.owner.inputs[0])) for leaf in leaves], import_missing=True)
    return list(graph.outputs)


def _leaf(variable: Any) -> Node:
    """An array without dims in the place of one with them."""
    if isinstance(variable, Constant):
        return pt.constant(variable.data, name=variable.name)
    if isinstance(variable, SharedVariable):
        return pytensor.shared(  # type: ignore[attr-defined, no-any-return, no-untyped-call]
            variable.get_value(borrow=True), name=variable.name, shape=variable.type.shape
        )
    return pt.tensor(name=variable.name, dtype=variable.type.dtype, shape=variable.type.shape)


def _ordinary(transform: Any) -> Any:
    """The transform without dims that does the same; any other as it is."""
    if isinstance(transform, transforms.SimplexTransform):
        return pm.distributions.transforms.simplex
    if isinstance(transform, transforms.LogOddsTransform):
        return pm.distributions.transforms.logodds
    if isinstance(transform, transforms.IntervalTransform):
        return pm.distributions.transforms.Interval(0, 1)
    return transform
