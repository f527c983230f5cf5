"""Log-probabilities whose gradient is finite where a probability is 0."""

from typing import Any

import pytensor.tensor as pt
from pymc.pytensorf import rewrite_pregrad
from pytensor import scalar as ps
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import Elemwise

from pymc_dirdp.models.graph import Node

_math: Any = pt


def _logarithm(x: Any) -> Any:
    """The logarithm, with a gradient of 0 where it is -inf."""
    return _math.log(_math.switch(x > 0, x, 1.0)) + _math.switch(x > 0, 0.0, -float("inf"))


def _logarithm_beside_1(x: Any) -> Any:
    return _math.log1p(_math.switch(x > -1, x, 0.0)) + _math.switch(x > -1, 0.0, -float("inf"))


_LOGARITHMS = {ps.Log: _logarithm, ps.Log1p: _logarithm_beside_1}


def with_finite_gradient(log_p: Node) -> Node:
    """A copy of a log-probability whose gradient is 0 where it would be undefined.

    A sum over effects of persons gives a log-probability of -inf the weight 0, and 0 times an infinite slope is nan.
    PyTensor's own rewrites run first. They replace the logarithm of a logistic function by one without a pole.

    Examples
    --------
    >>> import pytensor
    >>> x = pt.dscalar("x")
    >>> slope = pt.grad(pt.exp(with_finite_gradient(pt.log1p(-(1 - pt.exp(-pt.exp(x)))))), x)
    >>> float(slope.eval({x: 8.0}))
    0.0
    """
    copy: Node = rewrite_pregrad(clone_replace([log_p])[0])
    memo: dict[Node, Node] = {}
    for node in toposort([copy]):
        entries = [memo.get(variable, variable) for variable in node.inputs]
        op: Any = node.op
        finite = _LOGARITHMS.get(type(op.scalar_op)) if isinstance(op, Elemwise) else None
        if finite is not None:
            memo[node.outputs[0]] = finite(*entries)
        elif any(new is not old for new, old in zip(entries, node.inputs, strict=True)):
            applied: Any = op.make_node(*entries)
            memo.update(zip(node.outputs, applied.outputs, strict=True))
    return memo.get(copy, copy)
